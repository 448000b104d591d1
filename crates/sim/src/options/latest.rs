// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was added last to what a seed draws: senders that use the freedom of order, and
//! all types of persistent reservations.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use wire::scsi::persistent::Type;

use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 7;

impl Options {
    /// Puts on what goes beyond a narrow system.
    pub(super) fn widen_further(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        self.disorder = rng.pick(&[0, 200, 800]);
        for target in &mut self.targets {
            target.reservation = rng.pick(&Type::ALL);
        }
        for session in self.hosts.iter_mut().flatten() {
            session.registers = rng.chance(400) && !session.guard;
        }
    }
}
