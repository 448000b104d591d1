// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one half keeps for each task, by the slot number of its id.

use alloc::vec::Vec;

use iscsi::datamover::TaskId;

use crate::limits::TASKS_MAX;

/// All tasks of one half.
#[derive(Debug)]
pub(super) struct Tasks<T> {
    slots: Vec<Slot<T>>,
    live: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    task: Option<T>,
}

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), live: 0 }
    }
}

impl<T: Default> Tasks<T> {
    /// The task, opened if it is new. None for an id beyond the table or one whose slot another
    /// task still holds: both are faults of the core.
    pub(super) fn open(&mut self, id: TaskId) -> Option<&mut T> {
        if id.index >= TASKS_MAX {
            debug_assert!(false, "task index {} is beyond the table", id.index);
            return None;
        }
        let index = id.index as usize;
        while self.slots.len() <= index {
            self.slots.push(Slot { generation: 0, task: None });
        }
        let slot = self.slots.get_mut(index)?;
        if slot.task.is_none() {
            *slot = Slot { generation: id.generation, task: Some(T::default()) };
            self.live += 1;
        }
        debug_assert_eq!(slot.generation, id.generation, "slot {index} was never released");
        if slot.generation == id.generation { slot.task.as_mut() } else { None }
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.task.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.task.as_mut() } else { None }
    }

    /// The task that a slot has now.
    pub(super) fn at(&mut self, index: u32) -> Option<(TaskId, &mut T)> {
        let slot = self.slots.get_mut(index as usize)?;
        Some((TaskId { index, generation: slot.generation }, slot.task.as_mut()?))
    }

    pub(super) fn release(&mut self, id: TaskId) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let task = slot.task.take()?;
        self.live -= 1;
        Some(task)
    }

    pub(super) fn count(&self) -> usize {
        self.live
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.task.as_ref())
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        assert_eq!(self.live, self.iter().count(), "live tasks");
    }
}
