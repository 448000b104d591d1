// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets whose disks are elsewhere: their stores are answered by others, late or never.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use crate::options::Class;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 85;

/// How far away the disks of a target are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remoteness {
    /// What it takes to get there, microseconds.
    pub delay: (u64, u64),
    /// So many of a thousand works are answered only when nobody waits for them any more.
    pub silent: u64,
    /// So many of a thousand answers are dropped.
    pub dropped: u64,
    /// Every write goes to stable storage there.
    pub sync: bool,
    /// It does not hear that nobody waits any more.
    pub deaf: bool,
}

impl Options {
    /// One of four targets that are not in memory has its disks elsewhere.
    pub(super) fn serve_elsewhere(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        let fails = matches!(self.class, Class::Disk | Class::Mixed | Class::Target);
        let quiet = matches!(self.class, Class::Calm | Class::Scarce) || !self.hogs.is_empty();
        for target in &mut self.targets {
            let chosen = rng.chance(250) && !target.memory;
            let delays = [(0, 1000), (100, 20_000), (1000, 500_000)];
            let delay = rng.pick(if quiet { &delays[..2] } else { &delays });
            let (silent, dropped) = (rng.pick(&[0, 2, 10]), rng.pick(&[0, 5, 30]));
            let sync = target.sync;
            let (silent, dropped) = if fails { (silent, dropped) } else { (0, 0) };
            let remoteness = Remoteness { delay, silent, dropped, sync, deaf: false };
            target.elsewhere = chosen.then_some(remoteness);
        }
    }
}
