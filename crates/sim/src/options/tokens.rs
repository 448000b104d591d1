// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies by token, slow enough that tokens expire under way, beside writers of their sources.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 16;

/// The same for full tables.
const STREAM_OF_FLOODS: u64 = 84;

/// Blocks of each unit, where copies are long.
const BLOCKS: usize = 256;

impl Options {
    /// In one run of four without a crowd hosts copy by token.
    pub(super) fn copy_by_token(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if self.is_crowded() || !rng.chance(250) {
            return;
        }
        // A copy of many short runs takes longer than the shortest life of a token.
        let long = rng.chance(700);
        if long {
            (self.disk, self.blocks) = ((10_000, 40_000), BLOCKS);
        }
        for target in &mut self.targets {
            target.memory = false;
        }
        for session in self.hosts.iter_mut().flatten() {
            // The model of claims knows commands for one unit.
            (session.guard, session.registers) = (false, false);
            session.copies = rng.pick(&[50, 250]);
            session.depth = session.depth.max(8);
            session.long_copies = long;
            if long {
                // Now and then a copy is not disturbed for so long.
                session.pause = rng.pick(&[500_000, 2_000_000]);
            }
        }
        self.fill_tables();
        self.reconcile();
    }

    /// In two of five of these some fill the tables, in which the oldest makes room.
    fn fill_tables(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM_OF_FLOODS);
        if rng.chance(400) {
            let sessions = self.hosts.iter_mut().flatten();
            sessions.for_each(|session| session.floods = rng.pick(&[0, 20, 50]));
        }
    }
}
