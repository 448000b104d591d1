// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets that keep reservations and mode parameters through a loss of power, on a medium that is
//! slow and fails.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use crate::options::Class;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 82;

/// Command window at the least.
const WINDOW: u16 = 64;

/// How a target keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// How long it takes, microseconds.
    pub time: (u64, u64),
    /// So many of a thousand steps of it fail.
    pub errors: u64,
    /// So many of a thousand times the power goes while it is under way.
    pub cuts: u64,
}

impl Keeping {
    /// A medium that is not slow, microseconds.
    pub(crate) const QUICK: (u64, u64) = (100, 2000);
}

impl Options {
    /// In one run of three targets keep what they are told to keep.
    pub(super) fn keep_states(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if !rng.chance(330) || !self.hogs.is_empty() {
            return;
        }
        let dark = matches!(self.class, Class::Target | Class::Mixed);
        let fails = matches!(self.class, Class::Disk | Class::Mixed | Class::Target);
        for (number, target) in self.targets.iter_mut().enumerate() {
            let slow = rng.pick(&[Keeping::QUICK, (10_000, 500_000), (5_000_000, 60_000_000)]);
            let errors = rng.pick(&[0, 30, 150]);
            let cuts = rng.pick(&[0, 30, 100]);
            target.keeping = Some(Keeping {
                time: slow,
                errors: if fails { errors } else { 0 },
                cuts: if dark && !target.memory { cuts } else { 0 },
            });
            // What is being kept has a place in the window: others of its session find one too.
            target.window = target.window.max(WINDOW);
            let mut sessions = self.hosts.iter_mut().flatten();
            let Some(first) = sessions.find(|session| session.target == number) else { continue };
            // The model of claims knows hosts, not their paths, and commands for one unit.
            let guards = rng.chance(700) && !target.two_groups && first.copies == 0;
            first.guard |= guards;
            first.registers &= !first.guard;
            first.modes = if rng.chance(400) { 60 } else { 0 };
        }
    }
}
