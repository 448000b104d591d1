// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a connection keeps for each task: its buffer, its numbers, its bursts.

use buf::Buf;
use iscsi::datamover::{DataError, TaskId};
use slots::ById;

use super::burst::{self, BurstKey, Bursts};
use crate::limits::TASKS_MAX;

/// What one connection keeps of one task.
#[derive(Debug, Default)]
pub(super) struct TaskState {
    /// Filled by Data-Outs; byte 0 is byte 0 of the initiator's buffer.
    pub(super) buf: Option<Buf>,
    /// Next DataSN of Data-In or R2TSN: one series for both (RFC 7143 §4.2.2.4).
    pub(super) next_sn: u32,
    /// Data-In PDUs made (ExpDataSN, RFC 7143 §11.4.8).
    pub(super) data_ins: u32,
    /// A burst was opened: only then does the end of the task look at the burst table.
    pub(super) had_bursts: bool,
}

/// All tasks of one connection.
#[derive(Debug)]
pub(super) struct Tasks {
    tasks: ById<TaskId, TaskState>,
    pub(super) bursts: Bursts,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { tasks: ById::new(TASKS_MAX), bursts: Bursts::default() }
    }
}

impl Tasks {
    /// The task, opened if it is new. None for an id beyond the table or one whose slot another
    /// task still holds: both are faults of the core.
    pub(super) fn open(&mut self, id: TaskId) -> Option<&mut TaskState> {
        self.tasks.open(id, TaskState::default)
    }

    /// The task, if it has resources here.
    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut TaskState> {
        self.tasks.get_mut(id)
    }

    /// Opens an unsolicited burst. One too many is not opened: its Data-Outs are then refused.
    pub(super) fn expect(&mut self, burst: burst::Request) {
        let Some(task) = self.open(burst.task) else { return };
        task.had_bursts = true;
        let opened = self.bursts.open(burst);
        debug_assert!(opened.is_some(), "more unsolicited bursts than the command window allows");
    }

    /// From now on Data-Outs of the task are dropped silently.
    pub(super) fn abandon(&mut self, id: TaskId) {
        if self.get_mut(id).is_some_and(|task| task.had_bursts) {
            self.bursts.abandon(id);
        }
    }

    /// Forgets the task; a buffer that is still attached goes back to its pool.
    pub(super) fn release(&mut self, id: TaskId) {
        let Some(task) = self.get_mut(id) else { return };
        let had_bursts = task.had_bursts;
        if had_bursts {
            self.bursts.close(id);
        }
        self.tasks.discard(id);
    }

    /// Where the next `length` bytes of a burst go, at `at` of its task's buffer. None: nobody
    /// wants them. A missing or short buffer fails the burst instead of writing beside it.
    pub(super) fn landing(&mut self, key: BurstKey, at: u32, length: usize) -> Option<&mut [u8]> {
        let Self { tasks, bursts } = self;
        let id = bursts.landing(key)?;
        let start = at as usize;
        let buf = tasks.get_mut(id).and_then(|task| task.buf.as_mut());
        let place = buf.and_then(|buf| buf.get_mut(start..start.checked_add(length)?));
        if place.is_none() {
            bursts.fail(key, DataError::Amount);
        }
        place
    }

    /// Gives out the buffer that the next `length` bytes of a burst go into, from `at` on. None:
    /// nobody wants them, or they do not fit.
    pub(super) fn lend(&mut self, key: BurstKey, at: u32, length: usize) -> Option<Buf> {
        let id = self.bursts.landing(key)?;
        let end = (at as usize).checked_add(length)?;
        self.get_mut(id)?.buf.take_if(|buf| end <= buf.len())
    }

    /// Takes back what `lend` gave out. The task may have another buffer by now, since the device
    /// server asked for data of which some was under way: then that gets what was in this one, for
    /// it has all data so far.
    pub(super) fn give_back(&mut self, key: BurstKey, buf: Buf) {
        if let Some(id) = self.bursts.landing(key)
            && let Some(task) = self.get_mut(id)
        {
            match &mut task.buf {
                None => task.buf = Some(buf),
                Some(other) => {
                    let length = buf.len().min(other.len());
                    buf::copy(&mut other[..length], &buf[..length]);
                }
            }
        }
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        self.tasks.check();
        self.bursts.check();
    }

    /// Tasks that have resources here.
    pub(super) fn count(&self) -> usize {
        self.tasks.len()
    }
}
