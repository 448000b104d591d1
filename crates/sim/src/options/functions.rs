// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Much task management over sessions of several connections, so that commands overtake functions.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use crate::options::Class;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 83;

/// Connections of each session.
const CONNECTIONS: u16 = 4;

/// Command window.
const WINDOW: u16 = 32;

impl Options {
    /// In one run of six of class `network` hosts end what they asked for time and again.
    pub(super) fn manage_much(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if self.class != Class::Network || !rng.chance(170) {
            return;
        }
        // Far more than a command takes to be carried out.
        self.latency = (1000, 100_000);
        for target in &mut self.targets {
            (target.connections, target.window) = (CONNECTIONS, WINDOW);
        }
        for session in self.hosts.iter_mut().flatten() {
            session.connections = CONNECTIONS;
            (session.depth, session.blocks_max, session.pause) = (8, 4, 1000);
            // What nobody answers is not answered.
            (session.command_timeout, session.manages) = (0, 150);
        }
    }
}
