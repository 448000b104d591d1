// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The task table of a session: slots with generations, found by id or by task tag.

use super::entry::Phase;
use super::entry::Task;
use super::terms::Terms;
use crate::datamover::TaskId;
use crate::target_role::limits;
use crate::target_role::names::ConnectionId;
use crate::target_role::recovery::Answer;
use alloc::vec::Vec;
use wire::iscsi::Itt;

/// All tasks of a session. Slots and lists are reused: no allocation once they have grown to the
/// load.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Task tag of each slot, `Itt::NONE` unless its task is live: a short run of memory to search.
    tags: Vec<Itt>,
    slots_max: usize,
    next_order: u64,
    running: u16,
    draining: u16,
    immediate: u16,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// When the task was delivered, in terms of others.
    order: u64,
    task: Option<Task>,
}

impl Table {
    /// Room for a window of `depth` commands.
    pub(super) fn new(depth: u16) -> Self {
        let slots_max =
            usize::from(depth) * limits::SLOTS_PER_DEPTH + usize::from(limits::IMMEDIATE_TASKS_MAX);
        let capacity = usize::from(depth);
        Self {
            slots: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            tags: Vec::with_capacity(capacity),
            slots_max,
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
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let at = usize::try_from(index).ok()?;
        let slot = self.slots.get_mut(at)?;
        let id = TaskId { index, generation: slot.generation };
        let task = new(id);
        self.immediate += u16::from(task.command.immediate);
        slot.task = Some(task);
        *self.tags.get_mut(at)? = itt;
        Some(id)
    }

    /// The task is delivered: it runs.
    pub(super) fn start(&mut self, id: TaskId) {
        let order = self.next_order;
        let Some(slot) = self.slot_mut(id) else { return };
        let Some(task) = &mut slot.task else { return };
        assert_eq!(task.phase, Phase::Held, "a task is delivered once");
        task.phase = Phase::Running;
        slot.order = order;
        let numbered = !task.command.immediate;
        self.next_order += 1;
        self.running += u16::from(numbered);
    }

    /// The task is answered or aborted: only its release is awaited.
    pub(super) fn drain(&mut self, id: TaskId) {
        let Some(slot) = self.slot_mut(id) else { return };
        let Some(task) = &mut slot.task else { return };
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
        let Some(slot) = self.slot_mut(id) else { return false };
        let Some(task) = slot.task.as_ref().filter(|task| task.phase == Phase::Draining) else {
            return false;
        };
        let (immediate, indicated) = (task.command.immediate, task.indicated);
        slot.task = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        if immediate {
            self.immediate -= 1;
        } else {
            self.draining -= 1;
        }
        indicated
    }

    /// A task that has been delivered and not answered.
    pub(super) fn running_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slot_mut(id)?.task.as_mut().filter(|task| task.phase == Phase::Running)
    }

    /// A task that has not been answered.
    pub(super) fn live_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slot_mut(id)?.task.as_mut().filter(|task| task.phase != Phase::Draining)
    }

    /// A task that has not been answered.
    pub(super) fn live_ref(&self, id: TaskId) -> Option<&Task> {
        let slot = self.slots.get(usize::try_from(id.index).ok()?)?;
        let task = slot.task.as_ref()?;
        (slot.generation == id.generation && task.phase != Phase::Draining).then_some(task)
    }

    /// A task in whatever phase.
    pub(super) fn get(&self, id: TaskId) -> Option<&Task> {
        let slot = self.slots.get(usize::try_from(id.index).ok()?)?;
        slot.task.as_ref().filter(|_| slot.generation == id.generation)
    }

    /// A task in whatever phase.
    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slot_mut(id)?.task.as_mut()
    }

    /// All tasks.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.slots.iter().filter_map(|slot| slot.task.as_ref())
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
        self.slots.get(at)?.task.as_ref()
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
        let mut running: Vec<(u64, &Task)> = self
            .slots
            .iter()
            .filter_map(|slot| slot.task.as_ref().map(|task| (slot.order, task)))
            .filter(|(_, task)| task.phase == Phase::Running)
            .collect();
        running.sort_unstable_by_key(|(order, _)| *order);
        running.into_iter().map(|(_, task)| task).collect()
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self, terms: &Terms) {
        let (mut running, mut draining, mut immediate, mut empty) = (0, 0, 0, 0);
        for (slot, tag) in self.slots.iter().zip(&self.tags) {
            let Some(task) = &slot.task else {
                assert_eq!(*tag, Itt::NONE, "an empty slot has no tag");
                empty += 1;
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
        assert_eq!(empty, self.free.len(), "free slots");
        assert!(self.slots.len() <= self.slots_max, "slots");
        assert!(self.immediate <= limits::IMMEDIATE_TASKS_MAX, "immediate tasks");
    }

    fn grow(&mut self) -> Option<u32> {
        let index = self.slots.len();
        if index >= self.slots_max {
            return None;
        }
        self.slots.push(Slot { generation: 0, order: 0, task: None });
        self.tags.push(Itt::NONE);
        u32::try_from(index).ok()
    }

    fn slot_mut(&mut self, id: TaskId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::try_from(id.index).ok()?)?;
        (slot.generation == id.generation).then_some(slot)
    }
}
