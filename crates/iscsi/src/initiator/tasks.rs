// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tasks of a session: slots with generations; a task tag names slot and generation.

use alloc::vec::Vec;

use wire::iscsi::CmdSn;
use wire::iscsi::Itt;

use super::Command;
use super::datamover::TaskId;
use super::datamover::itt;
use super::datamover::slot;
use super::limits::TASKS_MAX;

/// A command that has not ended.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) command: Command,
    /// None while it waits for the command window.
    pub(super) sent: Option<CmdSn>,
    /// Task management that ends it is under way.
    pub(super) aborting: bool,
}

#[derive(Debug, Default)]
struct Slot {
    /// 16 bits count: those that fit a tag.
    generation: u32,
    task: Option<Task>,
}

/// All tasks. Slots are used again: no allocation once the table has grown to the load.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
    sent: u32,
}

impl Tasks {
    /// None if there are too many.
    pub(super) fn insert(&mut self, command: Command) -> Option<TaskId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok().filter(|at| *at < TASKS_MAX)?;
                self.slots.push(Slot::default());
                index
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.task = Some(Task { command, sent: None, aborting: false });
        Some(TaskId { index, generation: slot.generation })
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&Task> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.task.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.task.as_mut() } else { None }
    }

    /// The task goes out with this number.
    pub(super) fn mark_sent(&mut self, id: TaskId, number: CmdSn) {
        if let Some(task) = self.get_mut(id) {
            assert!(task.sent.is_none(), "a command is sent once");
            task.sent = Some(number);
            self.sent += 1;
        }
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let task = slot.task.take()?;
        slot.generation = (slot.generation + 1) & 0xffff;
        self.free.push(id.index);
        self.sent -= u32::from(task.sent.is_some());
        Some(task)
    }

    /// The task with this tag.
    pub(super) fn find(&self, tag: Itt) -> Option<TaskId> {
        let index = slot(tag)?;
        let slot = self.slots.get(index as usize)?;
        let id = TaskId { index, generation: slot.generation };
        (slot.task.is_some() && itt(id) == tag).then_some(id)
    }

    /// All of them, in no order.
    pub(super) fn ids(&self) -> Vec<TaskId> {
        let live = self.slots.iter().zip(0..).filter(|(slot, _)| slot.task.is_some());
        live.map(|(slot, index)| TaskId { index, generation: slot.generation }).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Those that the target may have.
    pub(super) const fn sent(&self) -> u32 {
        self.sent
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        let live = self.slots.iter().filter_map(|slot| slot.task.as_ref());
        let sent = live.clone().filter(|task| task.sent.is_some()).count();
        assert_eq!(live.count(), self.len(), "live tasks and free slots");
        assert_eq!(sent, self.sent as usize, "count of sent tasks");
    }
}
