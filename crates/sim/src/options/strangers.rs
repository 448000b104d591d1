// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When somebody comes who is not who he says he is.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use crate::options::Options;
use crate::options::Secrets;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 14;

impl Options {
    /// Sends impostors to where secrets are asked for, in half of the systems.
    pub(super) fn invite_impostors(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if !rng.chance(500) || self.targets.iter().all(|one| one.secrets == Secrets::None) {
            return;
        }
        for target in &mut self.targets {
            target.optional = target.secrets == Secrets::Initiator && rng.chance(400);
        }
        let count = rng.within(1..=12);
        let length = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        // Load may be done long before the time is over: more come in its first part.
        let mut times: Vec<Duration> = (0..count)
            .map(|_| {
                let part = length / rng.pick(&[1, 4, 16, 64]);
                Duration::from_millis(1 + rng.below(part.max(1)))
            })
            .collect();
        times.sort();
        self.impostors = times;
    }
}
