// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A crowd on few blocks: disks in memory, deep queues without a pause, and narrow connections, so
//! that data of READs waits to be sent while others write to the same blocks.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use crate::options::Class;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 13;

/// Blocks of each unit that are used.
const BLOCKS: usize = 16;

impl Options {
    /// In one run of four all go for the same blocks.
    pub(super) fn crowd(&mut self) {
        if !self.is_crowded() {
            return;
        }
        self.blocks = BLOCKS;
        self.piece = self.piece.min(9000);
        self.window = (4 << 10, 8 << 10);
        for target in &mut self.targets {
            target.memory = true;
            target.luns = 1;
        }
        for session in self.hosts.iter_mut().flatten() {
            (session.depth, session.blocks_max, session.pause) = (32, 8, 0);
            session.operations = session.operations.max(150);
        }
        self.reconcile();
    }

    /// Whether this is such a run.
    pub(super) fn is_crowded(&self) -> bool {
        let volatile = matches!(self.class, Class::Target | Class::Disk | Class::Mixed);
        !volatile && Rng::stream(self.seed, STREAM).chance(250)
    }
}
