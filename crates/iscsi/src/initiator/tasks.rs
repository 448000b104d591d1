// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tasks of a session: slots with generations; a task tag names slot and generation.

use alloc::vec::Vec;

use clock::Instant;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;
use wire::iscsi::StatSn;

use super::Command;
use super::ConnectionId;
use super::datamover::TaskId;
use super::datamover::itt;
use super::datamover::slot;
use super::limits::TASKS_MAX;
use super::session::Pace;
use super::session::Patience;

/// A command that has not ended.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) command: Command,
    /// None while it waits for the command window.
    pub(super) sent: Option<CmdSn>,
    /// Where it was sent: its allegiance (RFC 7143 §4.2.5.1).
    pub(super) connection: ConnectionId,
    /// Task management that ends it is under way.
    pub(super) aborting: bool,
    /// Whether its connection is gone.
    pub(super) home: Home,
    /// Missing data will not come: it fails when its status is there.
    pub(super) given_up: bool,
    /// The number of its status, which waits for missing data.
    pub(super) held: Option<StatSn>,
    /// How often missing data was asked for.
    pub(super) snacks: u16,
    /// What its connection takes has changed since it was sent: missing data has to be cut anew.
    pub(super) resegment: bool,
    /// SNACK tags that were used for it.
    pub(super) snack_tags: u32,
    /// Since it came or, once it was sent, since the target worked on it last.
    pub(super) patience: Patience,
    /// How far it gets, by what the mover tells.
    pub(super) pace: Pace,
    /// How often it was sent again because the target had dropped it.
    pub(super) resends: u8,
}

/// Whether a command that was sent has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// It has.
    There,
    /// Its connection is gone and not yet logged out.
    Gone,
    /// It waits for its turn to be reassigned.
    Queued,
    /// Its reassignment was asked for.
    Asked,
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
    pub(super) fn insert(&mut self, command: Command, now: Instant) -> Option<TaskId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok().filter(|at| *at < TASKS_MAX)?;
                self.slots.push(Slot::default());
                index
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.task = Some(Task {
            command,
            sent: None,
            connection: ConnectionId(0),
            aborting: false,
            home: Home::There,
            given_up: false,
            held: None,
            snacks: 0,
            resegment: false,
            snack_tags: 0,
            patience: Patience::new(now),
            pace: Pace::new(now),
            resends: 0,
        });
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
    pub(super) fn mark_sent(
        &mut self,
        id: TaskId,
        number: CmdSn,
        connection: ConnectionId,
        now: Instant,
    ) -> Option<&Task> {
        let task = self.slots.get_mut(id.index as usize)?.task.as_mut()?;
        assert!(task.sent.is_none(), "a command gets one number");
        task.sent = Some(number);
        task.connection = connection;
        task.patience = Patience::new(now);
        self.sent += 1;
        Some(task)
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

    /// Those that were sent on a connection, in no order.
    pub(super) fn of(&self, connection: ConnectionId) -> Vec<TaskId> {
        let its = |task: &Task| task.sent.is_some() && task.connection == connection;
        let live = self.slots.iter().zip(0..);
        live.filter(|(slot, _)| slot.task.as_ref().is_some_and(its))
            .map(|(slot, index)| TaskId { index, generation: slot.generation })
            .collect()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TaskId, &mut Task)> {
        self.slots.iter_mut().zip(0..).filter_map(|(slot, index)| {
            let id = TaskId { index, generation: slot.generation };
            Some((id, slot.task.as_mut()?))
        })
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
