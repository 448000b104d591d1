// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The task table of a session: tasks are found by id or by task tag.

use super::entry::Phase;
use super::entry::Task;
use super::terms::Terms;
use crate::datamover::TaskId;
use crate::target_role::limits;
use crate::target_role::names::ConnectionId;
use crate::target_role::recovery::Answer;
use alloc::vec::Vec;
use slots::Slots;
use wire::iscsi::Itt;

/// All tasks of a session.
#[derive(Debug)]
pub(super) struct Table {
    slots: Slots<TaskId, Entry>,
    /// Task tag of each slot, `Itt::NONE` unless its task is live: a short run of memory to search.
    tags: Vec<Itt>,
    next_order: u64,
    running: u16,
    draining: u16,
    immediate: u16,
}

#[derive(Debug)]
struct Entry {
    /// When the task was delivered, in terms of others.
    order: u64,
    task: Task,
}

impl Table {
    /// Room for a window of `depth` commands.
    pub(super) fn new(depth: u16) -> Self {
        let immediate = u32::from(limits::IMMEDIATE_TASKS_MAX) + u32::from(limits::CONNECTIONS_MAX);
        let max = u32::from(depth) * limits::SLOTS_PER_DEPTH + immediate;
        let capacity = usize::from(depth);
        Self {
            slots: Slots::new(max).with_capacity(capacity),
            tags: Vec::with_capacity(capacity),
            next_order: 0,
            running: 0,
            draining: 0,
            immediate: 0,
        }
    }

    /// Delivered tasks that take a place in the command window.
    pub(super) const fn running(&self) -> u16 {
        self.running
    }

    /// Ended tasks that the mover has not released, immediate ones not counted.
    pub(super) const fn draining(&self) -> u16 {
        self.draining
    }

    /// Tasks of immediate commands.
    pub(super) const fn immediate(&self) -> u16 {
        self.immediate
    }

    /// Makes a task in phase Held; None if there is no room.
    pub(super) fn insert(&mut self, itt: Itt, new: impl FnOnce(TaskId) -> Task) -> Option<TaskId> {
        let immediate = &mut self.immediate;
        let id = self.slots.try_insert_with(|id| {
            let task = new(id);
            *immediate += u16::from(task.command.immediate);
            Entry { order: 0, task }
        })?;
        let at = usize::try_from(id.index).ok()?;
        if at >= self.tags.len() {
            self.tags.resize(at + 1, Itt::NONE);
        }
        *self.tags.get_mut(at)? = itt;
        Some(id)
    }

    /// The task is delivered: it runs.
    pub(super) fn start(&mut self, id: TaskId) {
        let order = self.next_order;
        let Some(Entry { task, order: place }) = self.slots.get_mut(id) else { return };
        assert_eq!(task.phase, Phase::Held, "a task is delivered once");
        task.phase = Phase::Running;
        *place = order;
        let numbered = !task.command.immediate;
        self.next_order += 1;
        self.running += u16::from(numbered);
    }

    /// The task is answered or aborted: only its release is awaited.
    pub(super) fn drain(&mut self, id: TaskId) {
        let Some(Entry { task, .. }) = self.slots.get_mut(id) else { return };
        assert_ne!(task.phase, Phase::Draining, "a task ends once");
        let was_running = task.phase == Phase::Running;
        task.phase = Phase::Draining;
        let numbered = !task.command.immediate;
        if let Ok(at) = usize::try_from(id.index)
            && let Some(tag) = self.tags.get_mut(at)
        {
            *tag = Itt::NONE;
        }
        self.running -= u16::from(numbered && was_running);
        self.draining += u16::from(numbered);
    }

    /// Forgets a draining task; true if the SCSI side was told of it. One that does not exist or
    /// still runs is left alone.
    pub(super) fn remove(&mut self, id: TaskId) -> bool {
        let Some(task) = self.get(id).filter(|task| task.phase == Phase::Draining) else {
            return false;
        };
        let (immediate, indicated) = (task.command.immediate, task.indicated);
        self.slots.discard(id);
        if immediate {
            self.immediate -= 1;
        } else {
            self.draining -= 1;
        }
        indicated
    }

    /// A task that has been delivered and not answered.
    pub(super) fn running_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.get_mut(id).filter(|task| task.phase == Phase::Running)
    }

    /// A task that has not been answered.
    pub(super) fn live_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.get_mut(id).filter(|task| task.phase != Phase::Draining)
    }

    /// A task that has not been answered.
    pub(super) fn live_ref(&self, id: TaskId) -> Option<&Task> {
        self.get(id).filter(|task| task.phase != Phase::Draining)
    }

    /// A task in whatever phase.
    pub(super) fn get(&self, id: TaskId) -> Option<&Task> {
        self.slots.get(id).map(|entry| &entry.task)
    }

    /// A task in whatever phase.
    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slots.get_mut(id).map(|entry| &mut entry.task)
    }

    /// All tasks.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.slots.values().map(|entry| &entry.task)
    }

    /// The live task with this tag, or the answered one whose status is not acknowledged.
    pub(super) fn newest(&self, itt: Itt) -> Option<&Task> {
        let answered = |task: &&Task| task.answer.is_some() && task.command.itt == itt;
        self.find(itt).or_else(|| self.iter().find(answered))
    }

    /// The answered task of a connection that fits.
    pub(super) fn answered_where(
        &self,
        connection: ConnectionId,
        fits: impl Fn(&Task, &Answer) -> bool,
    ) -> Option<TaskId> {
        let mut own = self.iter().filter(|task| task.connection == connection);
        let found = own.find(|task| task.answer.as_deref().is_some_and(|it| fits(task, it)))?;
        Some(found.id)
    }

    /// The answered task of a connection with this tag, unless a new one has taken the tag.
    pub(super) fn answered(&self, itt: Itt, connection: ConnectionId) -> Option<TaskId> {
        if self.find(itt).is_some() {
            return None;
        }
        self.answered_where(connection, |task, _| task.command.itt == itt)
    }

    /// Some answered task whose data is kept.
    pub(super) fn keeping(&self) -> Option<TaskId> {
        self.iter().find(|task| task.answer().is_some_and(Answer::keeps_data)).map(|task| task.id)
    }

    /// The live task with this tag.
    pub(super) fn find(&self, itt: Itt) -> Option<&Task> {
        if itt == Itt::NONE {
            return None;
        }
        let at = self.tags.iter().position(|tag| *tag == itt)?;
        self.slots.at(u32::try_from(at).ok()?).map(|(_, entry)| &entry.task)
    }

    /// Every live task.
    pub(super) fn live(&self) -> Vec<TaskId> {
        self.iter().filter(|task| task.phase != Phase::Draining).map(|task| task.id).collect()
    }

    /// Every task of a connection, in whatever phase.
    pub(super) fn of(&self, connection: ConnectionId) -> Vec<TaskId> {
        self.iter().filter(|task| task.connection == connection).map(|task| task.id).collect()
    }

    /// Every running task, in the order of delivery.
    pub(super) fn in_order(&self) -> Vec<&Task> {
        let running = self.slots.values().filter(|entry| entry.task.phase == Phase::Running);
        let mut running: Vec<&Entry> = running.collect();
        running.sort_unstable_by_key(|entry| entry.order);
        running.into_iter().map(|entry| &entry.task).collect()
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self, terms: &Terms) {
        let (mut running, mut draining, mut immediate) = (0, 0, 0);
        self.slots.check();
        for (tag, index) in self.tags.iter().zip(0..) {
            let Some((_, Entry { task, .. })) = self.slots.at(index) else {
                assert_eq!(*tag, Itt::NONE, "an empty slot has no tag");
                continue;
            };
            let live = task.phase != Phase::Draining;
            assert_eq!(*tag, if live { task.command.itt } else { Itt::NONE }, "tag of a slot");
            assert!(
                !live || self.tags.iter().filter(|other| *other == tag).count() == 1,
                "one tag"
            );
            let numbered = u16::from(!task.command.immediate);
            match task.phase {
                Phase::Held => assert!(!task.indicated, "a held command is not known to SCSI"),
                Phase::Running => running += numbered,
                Phase::Draining => draining += numbered,
            }
            immediate += 1 - numbered;
            let transfer = &task.transfer;
            assert!(transfer.open_r2t <= terms.open_r2t_max, "more R2Ts open than negotiated");
            assert!(transfer.wanted.unwrap_or(0) <= task.expected_out(), "asks for too much");
        }
        assert_eq!(running, self.running, "count of running tasks");
        assert_eq!(draining, self.draining, "count of draining tasks");
        assert_eq!(immediate, self.immediate, "count of immediate tasks");
        let most = limits::IMMEDIATE_TASKS_MAX + limits::CONNECTIONS_MAX;
        assert!(self.immediate <= most, "immediate tasks");
    }
}
