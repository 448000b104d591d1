// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that comes unasked behind its command, in PDUs of its own: which is expected, and how far
//! it has come (RFC 7143 §4.2.5.2; RFC 7145 §7.3.4).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use iscsi::datamover::DataError;
use iscsi::datamover::Event;
use iscsi::datamover::TaskId;
use wire::iscsi::DataOut;
use wire::iscsi::Itt;
use wire::iscsi::Ttt;

use crate::limits::UNSOLICITED_MAX;

/// Data that is expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) task: TaskId,
    pub(super) itt: Itt,
    pub(super) offset: u32,
    pub(super) length: u32,
    /// Nobody wants the bytes: only the end counts.
    pub(super) discard: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    burst: Burst,
    /// Bytes so far.
    received: u32,
    data_sn: u32,
    /// The first thing that was wrong.
    error: Option<DataError>,
    abandoned: bool,
    /// The core has not looked since something came.
    fresh: bool,
}

/// What a PDU means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It belongs to nothing that is expected.
    Unknown,
    /// Its bytes are dropped.
    Nowhere,
    /// Its bytes belong to the task's buffer, at the offset that it says.
    Buffer(TaskId),
}

/// All that is expected of one connection: few bursts, and scanned.
#[derive(Debug, Default)]
pub(super) struct Unsolicited {
    entries: Vec<Entry>,
}

impl Unsolicited {
    /// Expects a burst; false if there are as many as may be.
    pub(super) fn open(&mut self, burst: Burst) -> bool {
        // A task tag that comes again names a new task.
        self.entries.retain(|entry| entry.burst.itt != burst.itt);
        if self.entries.len() >= UNSOLICITED_MAX {
            self.entries.retain(|entry| !entry.abandoned);
        }
        if self.entries.len() >= UNSOLICITED_MAX {
            return false;
        }
        let (received, data_sn, error) = (0, 0, None);
        let (abandoned, fresh) = (false, true);
        self.entries.push(Entry { burst, received, data_sn, error, abandoned, fresh });
        true
    }

    /// Where the bytes of a PDU belong. They come in order of their offsets, or are wrong.
    pub(super) fn place(&mut self, pdu: &DataOut, length: u32) -> Place {
        let entry = self.entries.iter_mut().find(|entry| entry.burst.itt == pdu.itt);
        let Some(entry) = entry.filter(|_| pdu.ttt == Ttt::NONE) else { return Place::Unknown };
        let Burst { task, offset, discard, .. } = entry.burst;
        entry.fresh = true;
        let is_next = offset.checked_add(entry.received) == Some(pdu.offset)
            && entry.data_sn == pdu.data_sn.0;
        let received = entry.received.checked_add(length).filter(|got| *got <= entry.burst.length);
        match received {
            Some(received) if is_next => {
                (entry.received, entry.data_sn) = (received, entry.data_sn.wrapping_add(1));
            }
            _ if is_next => entry.fail(DataError::Amount),
            _ => entry.fail(DataError::Sequence),
        }
        let is_wanted = entry.error.is_none() && !discard && !entry.abandoned;
        if is_wanted { Place::Buffer(task) } else { Place::Nowhere }
    }

    /// The bytes of a PDU found no place.
    pub(super) fn misplaced(&mut self, itt: Itt) {
        let entry = self.entries.iter_mut().find(|entry| entry.burst.itt == itt);
        if let Some(entry) = entry {
            entry.fail(DataError::Amount);
        }
    }

    /// The PDU with F has been placed: what the core is told, unless the task is abandoned.
    pub(super) fn end(&mut self, itt: Itt) -> Option<Event> {
        let at = self.entries.iter().position(|entry| entry.burst.itt == itt)?;
        let Entry { burst, received, error, abandoned, .. } = self.entries.remove(at);
        let Burst { task, offset, length, .. } = burst;
        let error = error.or_else(|| (received < length).then_some(DataError::Amount));
        let told = match error {
            None => Event::DataDone { task, offset, length },
            Some(error) => Event::DataFailed { task, offset, length, error },
        };
        (!abandoned).then_some(told)
    }

    /// From now on data of `task` is dropped silently.
    pub(super) fn abandon(&mut self, task: TaskId) {
        self.of(task).for_each(|entry| entry.abandoned = true);
    }

    /// Nothing more comes of it.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.entries.retain(|entry| entry.burst.task != task);
    }

    /// Fails what is open and has not moved since this was asked last.
    pub(super) fn overdue(&mut self, task: TaskId, events: &mut VecDeque<Event>) {
        for entry in self.of(task).filter(|entry| !entry.abandoned) {
            if !core::mem::take(&mut entry.fresh) {
                entry.abandoned = true;
                let Burst { task, offset, length, .. } = entry.burst;
                let error = DataError::Overdue;
                events.push_back(Event::DataFailed { task, offset, length, error });
            }
        }
    }

    pub(super) fn check(&self) {
        assert!(self.entries.len() <= UNSOLICITED_MAX, "bursts are bounded");
        for entry in &self.entries {
            assert!(entry.received <= entry.burst.length, "no more than is expected");
        }
    }

    fn of(&mut self, task: TaskId) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter(move |entry| entry.burst.task == task)
    }
}

impl Entry {
    fn fail(&mut self, error: DataError) {
        self.error.get_or_insert(error);
    }
}
