// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An administrator gives disks another size, as the daemon does it: growing, the file first;
//! shrinking, first what hosts see, then what is under way ends, then the file is cut.

use std::time::Duration;

use clock::Instant;
use target::Answers;

use crate::host::target_name;
use crate::machine::Machine;
use crate::options::Resize;
use crate::run::Run;

/// After so long a disk keeps its size.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// A disk that becomes smaller.
#[derive(Debug)]
pub(crate) struct Shrinking {
    lun: u16,
    blocks: usize,
    since: Instant,
    drained: Answers<()>,
}

/// The sizes that a unit had, and from when on.
#[derive(Clone, Debug)]
pub(crate) struct Sizes(Vec<(Instant, Size)>);

/// Blocks of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// So many can be used,
    pub(crate) least: usize,
    /// and no more than these.
    pub(crate) most: usize,
    /// Hosts see no more than these.
    pub(crate) seen: usize,
}

impl Sizes {
    pub(crate) fn new(now: Instant, blocks: usize) -> Self {
        Self(vec![(now, Size { least: blocks, most: blocks, seen: blocks })])
    }

    /// What it was at some time between two moments.
    pub(crate) fn between(&self, asked: Instant, now: Instant) -> Size {
        let first = self.0.partition_point(|(from, _)| *from < asked).saturating_sub(1);
        let known = self.0[first..].iter().filter(|(from, _)| *from <= now).map(|(_, size)| *size);
        let both = |one: Size, other: Size| Size {
            least: one.least.min(other.least),
            most: one.most.max(other.most),
            seen: one.seen.max(other.seen),
        };
        known.reduce(both).unwrap_or(Size { least: 0, most: 0, seen: 0 })
    }

    /// Whether it ever had another one.
    pub(crate) const fn have_changed(&self) -> bool {
        self.0.len() > 1
    }

    fn last(&self) -> usize {
        self.0.last().map_or(0, |(_, size)| size.least)
    }

    fn change(&mut self, now: Instant, blocks: usize) {
        self.0.push((now, Size { least: blocks, most: blocks, seen: blocks }));
    }

    /// From now on it is between these, whatever hosts see.
    pub(crate) fn may_be(&mut self, now: Instant, least: usize, most: usize) {
        let seen = self.0.last().map_or(most, |(_, size)| size.seen.max(most));
        self.0.push((now, Size { least, most, seen }));
    }
}

impl Machine {
    pub(crate) fn bytes(&self, blocks: usize) -> u64 {
        (blocks * self.plan.block_len) as u64
    }

    pub(crate) fn blocks(&self, bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX) / self.plan.block_len
    }

    /// Hosts see a smaller disk; true if that has begun.
    fn shrink(&mut self, lun: u16, blocks: usize, now: Instant) -> bool {
        let (name, bytes) = (target_name(self.desk), self.bytes(blocks));
        let Some(target) = &self.target else { return false };
        let Some(drained) = target.begin_shrink(&name, lun, bytes) else { return false };
        self.shrinking = Some(Shrinking { lun, blocks, since: now, drained });
        true
    }

    /// The file is as large again as it was, then hosts see that.
    fn grow(&mut self, lun: u16, blocks: usize) {
        let (name, bytes) = (target_name(self.desk), self.bytes(blocks));
        let Some(served) = &self.target else { return };
        self.sizes[usize::from(lun)] = blocks;
        let disk = self.disks[usize::from(lun)];
        self.world.borrow_mut().resize(self.desk, disk, bytes);
        served.show_size(&name, lun, bytes);
    }
}

impl Run {
    /// Does it, if the target is up and does no other; a disk that is not whole grows.
    pub(crate) fn resize(&mut self, resize: Resize) {
        let Resize { target, lun, left, .. } = resize;
        let unit = self.stage.units[target][usize::from(lun)];
        let now = self.world.borrow().now;
        let machine = &mut self.machines[target];
        if machine.target.is_none() || machine.shrinking.is_some() {
            return;
        }
        let whole = self.stage.models[unit].len();
        if machine.sizes[usize::from(lun)] < whole {
            return self.restore(target, lun);
        }
        let blocks = (whole * left / 1000).max(1);
        if machine.shrink(lun, blocks, now) {
            self.stage.sizes[unit].change(now, blocks);
            let mut world = self.world.borrow_mut();
            world.tally.mark("disk shrinks");
            world.rouse(target);
        }
    }

    /// A disk is as large again as it was.
    fn restore(&mut self, target: usize, lun: u16) {
        let unit = self.stage.units[target][usize::from(lun)];
        let whole = self.stage.models[unit].len();
        self.machines[target].grow(lun, whole);
        self.stage.models[unit].set_end(whole);
        let mut world = self.world.borrow_mut();
        self.stage.sizes[unit].change(world.now, whole);
        world.tally.mark("disk grows");
        world.rouse(target);
    }

    /// All disks are as large again as they were.
    pub(crate) fn restore_all(&mut self) {
        for target in 0..self.machines.len() {
            for lun in 0..self.machines[target].plan.luns {
                let unit = self.stage.units[target][usize::from(lun)];
                if self.stage.sizes[unit].last() < self.stage.models[unit].len() {
                    self.restore(target, lun);
                }
            }
        }
    }

    /// Whether a disk is becoming smaller.
    pub(crate) fn is_shrinking(&self) -> bool {
        self.machines.iter().any(|machine| machine.shrinking.is_some())
    }

    /// Files whose units have nothing under way any more are cut.
    pub(crate) fn cut_files(&mut self) {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        for (target, machine) in self.machines.iter_mut().enumerate() {
            let Some(Shrinking { lun, blocks, since, drained }) = &mut machine.shrinking else {
                continue;
            };
            let (lun, blocks) = (*lun, *blocks);
            let (unit, at) = (self.stage.units[target][usize::from(lun)], usize::from(lun));
            let bytes = (blocks * machine.plan.block_len) as u64;
            if drained.are_complete() {
                world.resize(machine.desk, machine.disks[at], bytes);
                world.tally.mark("file cut");
                self.stage.models[unit].cut(blocks, now);
                machine.sizes[at] = blocks;
            } else if machine.target.is_some() && now.since(*since) <= DRAIN_MAX {
                continue;
            } else {
                // Too late, or the process is gone: the file is as it was.
                let before = machine.sizes[at];
                let bytes = (before * machine.plan.block_len) as u64;
                if let Some(served) = &machine.target {
                    served.show_size(&target_name(machine.desk), lun, bytes);
                }
                self.stage.sizes[unit].change(now, before);
                world.tally.mark("disk keeps its size");
            }
            machine.shrinking = None;
        }
    }
}
