// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of disks and initiators, which come, change and go while there is load.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 107;

/// Other limits of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPlan {
    /// When.
    pub at: Duration,
    /// Of this target.
    pub target: usize,
    /// Commands and bytes in a second of its first disk, and of each initiator; zero: all.
    pub rates: [(u64, u64); 2],
}

impl Options {
    /// In one run of five.
    pub(super) fn limit(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if !rng.chance(200) {
            return;
        }
        let span = u64::try_from(self.length.as_millis()).unwrap_or(0).max(1);
        for _ in 0..rng.within(1..=8) {
            let until = rng.pick(&[1000, 10_000, span]);
            let at = Duration::from_millis(rng.below(until));
            let mut rates = || {
                let operations = rng.pick(&[0, 5, 50, 500, 5000]);
                (operations, rng.pick(&[0, 100_000, 1_000_000, 20_000_000]))
            };
            let rates = [rates(), rates()];
            let target = usize::try_from(rng.below(self.targets.len() as u64)).unwrap_or(0);
            self.limits.push(LimitPlan { at, target, rates });
        }
        self.limits.sort_by_key(|limit| limit.at);
    }
}
