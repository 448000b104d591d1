// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What befalls the cluster of a target, done: the runner's part.

use crate::faults::millis;
use crate::host::target_name;
use crate::model::Beside;
use crate::options::Trouble;
use crate::run::Run;
use crate::world::Due;
use crate::world::Plan;

/// What it takes to start a process again, milliseconds.
const RESTART: u32 = 500;

/// After so long a client that has an image has told whoever serves it of another size,
/// microseconds.
const HEARD: (u64, u64) = (100, 2_000_000);

impl Run {
    /// Something befalls the cluster of a target that is drawn now.
    pub(crate) fn trouble(&mut self, trouble: Trouble) -> bool {
        let index = self.rng.index(self.machines.len());
        let machine = &self.machines[index];
        let lun = self.rng.index(machine.disks.len());
        let (desk, disk) = (machine.desk, machine.disks[lun]);
        if machine.target.is_none() || machine.shrinking.is_some() {
            return false;
        }
        let world = std::rc::Rc::clone(&self.world);
        if !world.borrow_mut().trouble(desk, disk, trouble, self.rng.next()) {
            return false;
        }
        match trouble {
            Trouble::Blocklisted(length) => {
                world.borrow_mut().after(millis(length), Due::Plan(Plan::Restart(index, None)));
            }
            Trouble::Removed(length) => {
                let plan = Plan::Restart(index, Some(lun));
                world.borrow_mut().after(millis(length), Due::Plan(plan));
            }
            Trouble::Resized(left) => self.resize_from_outside(index, lun, left),
            Trouble::Inactive(_) | Trouble::Away(_) | Trouble::Full(_) | Trouble::Unreadable(_) => {
            }
        }
        true
    }

    /// Somebody starts the process of a target again, so that it opens its images.
    pub(crate) fn restart(&mut self, index: usize, removed: Option<usize>) {
        let is_up = self.machines[index].target.is_some();
        if is_up && !self.stop(index, false, RESTART) {
            let plan = Plan::Restart(index, removed);
            return self.world.borrow_mut().after(millis(RESTART), Due::Plan(plan));
        }
        if let Some(lun) = removed {
            self.put_another_disk(index, lun);
        }
    }

    /// An image that is whole becomes smaller, another one whole again. Nobody here is asked.
    fn resize_from_outside(&mut self, index: usize, lun: usize, left: u32) {
        let unit = self.stage.units[index][lun];
        let model = &mut self.stage.models[unit];
        let (whole, before) = (model.len(), self.machines[index].sizes[lun]);
        let part = whole * usize::try_from(left).unwrap_or(0) / 1000;
        let blocks = if before < whole { whole } else { part.max(1) };
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let disk = self.machines[index].disks[lun];
        let beside = match world.disks[disk].changes_before(u64::MAX) {
            true => Beside::Work,
            false => Beside::Nothing,
        };
        // What a client wrote behind an end that it did not know was cut off.
        model.cut_beside(blocks.min(before), now, beside);
        let machine = &mut self.machines[index];
        machine.sizes[lun] = blocks;
        world.resize_image(machine.desk, machine.disks[lun], machine.bytes(blocks));
        self.stage.sizes[unit].may_be(now, blocks.min(before), blocks.max(before));
        let delay = self.rng.micros(HEARD.0..=HEARD.1);
        world.after(delay, Due::Plan(Plan::Hear(index, lun)));
    }

    /// A target hears that an image has another size, and shows hosts what has grown.
    pub(crate) fn hear(&mut self, index: usize, lun: usize) {
        let unit = self.stage.units[index][lun];
        let machine = &self.machines[index];
        let blocks = machine.sizes[lun];
        let mut world = self.world.borrow_mut();
        let now = world.now;
        if blocks < self.stage.models[unit].len() {
            self.stage.models[unit].cut(blocks, now);
        }
        let bytes = machine.bytes(blocks);
        if world.hear_of_size(machine.desk, machine.disks[lun], bytes)
            && let (Some(target), Ok(number)) = (&machine.target, u16::try_from(lun))
        {
            target.show_size(&target_name(machine.desk), number, bytes);
            world.rouse(machine.desk);
        }
        world.tally.mark("another size heard");
        self.stage.sizes[unit].may_be(now, blocks, blocks);
    }
}
