// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that need no network: messages within one process.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use crate::options::Class;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 95;

impl Options {
    /// In one of four systems some sessions are with a target in their own process.
    pub(super) fn stay_at_home(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        // A liar lies in bytes.
        let may = self.class != Class::Liar;
        if !rng.chance(250) || !may {
            return;
        }
        for session in self.hosts.iter_mut().flatten() {
            session.local = rng.chance(500) && !self.targets[session.target].two_groups;
        }
    }

    /// All sessions need the network, as they did before.
    pub(super) fn leave_home(&mut self) {
        for session in self.hosts.iter_mut().flatten() {
            session.local = false;
        }
    }
}
