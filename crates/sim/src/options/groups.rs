// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets with several portal groups: a login over another one reinstates nothing.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 8;

/// Milliseconds for which a connection stands still: longer than a session waits for the answer to
/// a ping, so that it is given up with what is on its way.
const STANDSTILL: std::ops::RangeInclusive<u64> = 16_000..=40_000;

impl Options {
    /// Gives targets their portal groups. Where there are some, and connections may fail, some stand
    /// still for so long that their sessions go on elsewhere before.
    pub(super) fn divide(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        for target in &mut self.targets {
            target.two_groups = rng.chance(400);
        }
        for session in self.hosts.iter_mut().flatten() {
            // What is registered over one group holds for that one alone (SPC-4 §5.13.7), and the
            // model of claims knows hosts, not their paths.
            if self.targets[session.target].two_groups {
                (session.guard, session.registers) = (false, false);
            }
        }
        let divided = self.targets.iter().any(|target| target.two_groups);
        if !divided || !matches!(self.class, Class::Network | Class::Mixed) {
            return;
        }
        let span = u64::try_from(self.length.as_millis()).unwrap_or(0);
        for _ in 0..rng.within(1..=6) {
            let at = Duration::from_millis(rng.below(span));
            let length = u32::try_from(rng.within(STANDSTILL)).unwrap_or(0);
            self.faults.push((at, Fault::Stall(length)));
        }
        self.faults.sort();
    }
}
