// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tasks of a session; a task tag names slot and generation.

use alloc::vec::Vec;

use clock::Instant;
use slots::Slots;
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

/// All tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    tasks: Slots<TaskId, Task>,
    sent: u32,
}

impl Default for Tasks {
    fn default() -> Self {
        // So much of a generation fits a tag.
        Self { tasks: Slots::new(TASKS_MAX).with_generation_bits(u16::BITS), sent: 0 }
    }
}

impl Tasks {
    /// None if there are too many.
    pub(super) fn insert(&mut self, command: Command, now: Instant) -> Option<TaskId> {
        self.tasks.try_insert_with(|_| Task {
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
        })
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(id)
    }

    /// The task goes out with this number.
    pub(super) fn mark_sent(
        &mut self,
        id: TaskId,
        number: CmdSn,
        connection: ConnectionId,
        now: Instant,
    ) -> Option<&Task> {
        let task = self.tasks.get_mut(id)?;
        assert!(task.sent.is_none(), "a command gets one number");
        task.sent = Some(number);
        task.connection = connection;
        task.patience = Patience::new(now);
        self.sent += 1;
        Some(task)
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(id)?;
        self.sent -= u32::from(task.sent.is_some());
        Some(task)
    }

    /// The task with this tag.
    pub(super) fn find(&self, tag: Itt) -> Option<TaskId> {
        let (id, _) = self.tasks.at(slot(tag)?)?;
        (itt(id) == tag).then_some(id)
    }

    /// All of them, in no order.
    pub(super) fn ids(&self) -> Vec<TaskId> {
        self.tasks.keys().collect()
    }

    /// Those that were sent on a connection, in no order.
    pub(super) fn of(&self, connection: ConnectionId) -> Vec<TaskId> {
        let its = |task: &Task| task.sent.is_some() && task.connection == connection;
        self.tasks.iter().filter(|(_, task)| its(task)).map(|(id, _)| id).collect()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TaskId, &mut Task)> {
        self.tasks.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Those that the target may have.
    pub(super) const fn sent(&self) -> u32 {
        self.sent
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        self.tasks.check();
        let sent = self.tasks.values().filter(|task| task.sent.is_some()).count();
        assert_eq!(sent, self.sent as usize, "count of sent tasks");
    }
}
