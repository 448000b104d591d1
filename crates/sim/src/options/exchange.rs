// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets that come back with another disk behind a LUN.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 86;

impl Options {
    /// In one run of three of class `target` in which disks have no states of their own.
    pub(super) fn exchange_disks(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        let has_states = self.targets.iter().any(|target| target.keeping.is_some())
            || self.hosts.iter().flatten().any(|session| session.copies > 0)
            || !self.resizes.is_empty();
        if self.class != Class::Target || has_states || !rng.chance(330) {
            return;
        }
        for session in self.hosts.iter_mut().flatten() {
            (session.guard, session.registers) = (false, false);
        }
        let span = u64::try_from(self.length.as_millis()).unwrap_or(0);
        for _ in 0..rng.within(1..=4) {
            // While there is load, which may not last for the whole time.
            let until = rng.pick(&[1000, 10_000, span]);
            let at = Duration::from_millis(rng.below(until));
            let length = u32::try_from(rng.within(1..=20_000)).unwrap_or(1);
            self.faults.push((at, Fault::Exchange(length)));
        }
        self.faults.sort();
    }
}
