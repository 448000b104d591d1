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

/// Requests of a session that contends.
const OPERATIONS: u32 = 600;

/// Stream of what contends over portal groups.
const STREAM_OF_CONTEST: u64 = 85;

/// When connections stand still there, at the latest, milliseconds: as long as there is load.
const CONTEST: u64 = 90_000;

/// Milliseconds for which a connection stands still: longer than a session waits for the answer to
/// a ping, so that it is given up with what is on its way.
const STANDSTILL: std::ops::RangeInclusive<u64> = 16_000..=40_000;

impl Options {
    /// Gives targets their portal groups. Where there are some, and connections may fail, some
    /// stand still for so long that their sessions go on elsewhere before.
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

    /// In one run of five of class `network` sessions write to few blocks without a rest while
    /// their connections stand still time and again, so that old writes meet new ones.
    pub(super) fn contend(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM_OF_CONTEST);
        if self.class != Class::Network || !rng.chance(200) {
            return;
        }
        self.blocks = 16;
        self.length = self.length.max(Duration::from_millis(2 * CONTEST));
        for target in &mut self.targets {
            target.two_groups = true;
            // It keeps what stands still for longer than the hosts do.
            (target.ping, target.window) = (30, target.window.max(32));
        }
        for session in self.hosts.iter_mut().flatten() {
            (session.guard, session.registers) = (false, false);
            (session.recovery, session.connections, session.command_timeout) = (0, 1, 0);
            (session.depth, session.blocks_max, session.pause) = (32, 4, 100_000);
            (session.operations, session.rest) = (OPERATIONS, 0);
        }
        for _ in 0..rng.within(8..=20) {
            let at = Duration::from_millis(rng.below(CONTEST));
            let length = u32::try_from(rng.within(STANDSTILL)).unwrap_or(0);
            self.faults.push((at, Fault::Stall(length)));
        }
        self.faults.sort();
    }
}
