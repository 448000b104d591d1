// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When an administrator makes a disk smaller, or as large again as it was.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 17;

/// A disk gets another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// When.
    pub at: Duration,
    /// Which target.
    pub target: usize,
    /// Which of its units.
    pub lun: u16,
    /// So many of a thousand of its blocks are left, if it has all.
    pub left: usize,
}

impl Options {
    /// In one run of five without a crowd, and every other one with copies, disks change size.
    pub(super) fn resize_disks(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        let copies = self.hosts.iter().flatten().any(|session| session.copies > 0);
        if self.is_crowded() || !rng.chance(if copies { 500 } else { 200 }) {
            return;
        }
        let length = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        for _ in 0..rng.within(4..=40) {
            let target = rng.index(self.targets.len());
            let lun = u16::try_from(rng.index(usize::from(self.targets[target].luns))).unwrap_or(0);
            // Load may be done long before the time is over.
            let part = length / rng.pick(&[1, 4, 16]);
            let at = Duration::from_millis(1 + rng.below(part.max(1)));
            let left = rng.pick(&[100, 250, 500, 900]);
            self.resizes.push(Resize { at, target, lun, left });
        }
        for target in &mut self.targets {
            target.memory = false;
        }
        for session in self.hosts.iter_mut().flatten() {
            session.resized = 400;
        }
        self.resizes.sort_by_key(|resize| resize.at);
    }
}
