// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks over several paths: class `paths`, of which each session is some.
//!
//! A class of its own leaves what was drawn for the others as it was.

use std::ops::RangeInclusive;
use std::time::Duration;

use initiator::PathPolicy;

use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 105;

/// When connections stand still, at the latest, milliseconds: as long as there is load.
const SPAN: u64 = 60_000;

/// Milliseconds for which a connection stands still: a little longer than its path is waited for,
/// so that what is on it comes when the same has been sent over another one.
const STANDSTILL: RangeInclusive<u64> = 3_000..=9_000;

impl Options {
    /// All sessions are several paths to one disk, which are cut, stand still and come back one by
    /// one; in two of three systems so often, and with so few blocks, that late writes meet new
    /// ones.
    pub(super) fn go_over_paths(&mut self) {
        if self.class != Class::Paths {
            return;
        }
        let mut rng = Rng::stream(self.seed, STREAM);
        let contends = rng.chance(667);
        for target in &mut self.targets {
            // Paths are to one unit.
            target.luns = 1;
            // It keeps what stands still for longer than the hosts do.
            target.ping = 30;
            if contends {
                target.window = target.window.max(32);
            }
        }
        self.resizes.retain(|resize| resize.lun == 0);
        // What others write behind a write that has ended, while a copy of it is in doubt, is not
        // waited for (docs/PATHS.md): each disk has one user.
        let mut taken = vec![false; self.targets.len()];
        for host in &mut self.hosts {
            host.retain(|session| !std::mem::replace(&mut taken[session.target], true));
        }
        self.hosts.retain(|host| !host.is_empty());
        for session in self.hosts.iter_mut().flatten() {
            session.paths = rng.pick(&[2, 2, 3]);
            session.path_policy =
                rng.pick(&[PathPolicy::LeastQueued, PathPolicy::RoundRobin, PathPolicy::Failover]);
            // What is of one nexus is not of all paths.
            (session.guard, session.registers, session.local) = (false, false, false);
            (session.manages, session.modes) = (0, 0);
            (session.copies, session.floods, session.long_copies) = (0, 0, false);
            session.resized = 0;
            if contends {
                (session.recovery, session.connections, session.command_timeout) = (0, 1, 0);
                (session.depth, session.blocks_max, session.pause) = (32, 4, 100_000);
                (session.operations, session.rest) = (600, 0);
            }
        }
        if !contends {
            return;
        }
        self.blocks = 16;
        self.length = self.length.max(Duration::from_millis(2 * SPAN));
        for _ in 0..rng.within(20..=60) {
            let at = Duration::from_millis(rng.below(SPAN));
            let length = u32::try_from(rng.within(STANDSTILL)).unwrap_or(0);
            self.faults.push((at, Fault::Stall(length)));
        }
        self.faults.sort();
    }
}
