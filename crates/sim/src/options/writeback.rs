// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that lose what they had taken, and say so once: late, and to whoever asks next.
//!
//! A stream of its own leaves what was drawn before as it was; it comes with losses of power, which
//! show what is gone.

use std::time::Duration;

use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 80;

/// From a failed writeback to the loss of power, milliseconds at most: in this time hosts flush.
const TO_DARKNESS_MAX: u64 = 20_000;

impl Options {
    /// Adds failed writebacks, each followed by a loss of power as a rule.
    pub(super) fn spoil_writebacks(&mut self) {
        if !matches!(self.class, Class::Disk | Class::Mixed) {
            return;
        }
        let mut rng = Rng::stream(self.seed, STREAM);
        let span = u64::try_from(self.length.as_millis()).unwrap_or(0);
        for _ in 0..rng.within(0..=6) {
            // While there is load, which may not last for the whole time.
            let until = rng.pick(&[1000, 10_000, span]);
            let at = Duration::from_millis(rng.below(until));
            self.faults.push((at, Fault::Writeback));
            if rng.chance(800) {
                let after = Duration::from_millis(rng.within(1..=TO_DARKNESS_MAX));
                let length = u32::try_from(rng.within(1..=30_000)).unwrap_or(1);
                self.faults.push((at + after, Fault::PowerLoss(length)));
            }
        }
        self.faults.sort();
    }
}
