// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that was asked for and has not come: recovery R2T and R2T SNACK (RFC 7143 §7.1.4.1,
//! §7.8, §7.9, §11.8, §11.16).

use crate::datamover::{NumberedGet, Op, TaskId};
use crate::target_role::limits;
use crate::target_role::pdu::Pdu;
use crate::target_role::session::Session;
use crate::target_role::task::{Task, Transfer};
use crate::violation::Violation;
use alloc::vec::Vec;
use wire::iscsi::{DataSn, R2tSn, Snack};

/// The books of a task's write data; at level 0 there are none.
#[derive(Debug, Default)]
pub(in crate::target_role) struct Books {
    /// R2Ts whose data has not come.
    asked: Vec<Asked>,
    /// Offset and length of what was lost and must be asked for again.
    again: Vec<(u32, u32)>,
    /// The next R2TSN.
    next: u32,
    /// How often data of this task was asked for again.
    tries: u16,
    /// All R2Ts before are satisfied, since the connection was lost that they were sent on.
    satisfied: u32,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    r2t_sn: u32,
    offset: u32,
    length: u32,
}

impl Books {
    /// A burst has ended.
    pub(in crate::target_role) fn close(&mut self, offset: u32, length: u32) {
        self.asked.retain(|asked| (asked.offset, asked.length) != (offset, length));
    }

    /// A burst must be asked for again, unless it had no data: no R2T asks for nothing (RFC 7143
    /// §11.8.4).
    fn miss(&mut self, offset: u32, length: u32) {
        if length > 0 {
            self.again.push((offset, length));
        }
    }

    /// The connection is gone: all that is open must be asked for again, and `unasked` too.
    pub(super) fn lose(&mut self, unasked: Option<(u32, u32)>) {
        let open = self.asked.iter().map(|asked| asked.r2t_sn);
        self.satisfied = open.min().unwrap_or(self.next);
        self.again.extend(self.asked.drain(..).map(|asked| (asked.offset, asked.length)));
        if let Some((offset, length)) = unasked {
            self.miss(offset, length);
        }
        // The lowest is asked for first.
        self.again.sort_unstable_by_key(|(offset, _)| core::cmp::Reverse(*offset));
    }

    /// Another connection goes on: what the initiator has seen keeps its number, the rest is
    /// numbered anew (RFC 7143 §7.2.2).
    pub(super) fn resume(&mut self, expected: u32) {
        let is_valid = expected > self.satisfied && expected <= self.next;
        self.next = if is_valid { expected } else { self.satisfied };
    }

    /// The open R2Ts that a SNACK asks for; None if one of them was never sent or its data is here.
    fn wanted(&self, snack: &Snack) -> Option<Vec<Asked>> {
        let (from, to) = match (snack.beg_run, snack.run_length) {
            (from, 0) => (from, self.next),
            (from, count) => (from, from.checked_add(count)?),
        };
        let within = |asked: &&Asked| (from..to).contains(&asked.r2t_sn);
        let open: Vec<Asked> = self.asked.iter().filter(within).copied().collect();
        let all = (snack.beg_run, snack.run_length) == (0, 0);
        let whole = open.len() == to.saturating_sub(from) as usize && from < to && to <= self.next;
        let is_right = if all { self.next > 0 } else { whole };
        is_right.then_some(open)
    }
}

impl Transfer {
    /// The books, begun if there were none.
    pub(super) fn books(&mut self) -> &mut Books {
        self.books.get_or_insert_default()
    }

    /// True if something that was lost has not been asked for again.
    pub(in crate::target_role) fn misses(&self) -> bool {
        self.books.as_ref().is_some_and(|books| !books.again.is_empty())
    }

    /// What is to be asked for again.
    pub(in crate::target_role) fn take_missing(&mut self) -> Option<(u32, u32)> {
        self.books.as_mut()?.again.pop()
    }
}

impl Session {
    /// Sends an R2T under the next number.
    pub(in crate::target_role) fn get_numbered(&mut self, task: TaskId, offset: u32, length: u32) {
        let Some(entry) = self.tasks.running_mut(task) else { return };
        let books = entry.transfer.books();
        let r2t_sn = books.next;
        books.next = r2t_sn.wrapping_add(1);
        let asked = Asked { r2t_sn, offset, length };
        books.asked.push(asked);
        let id = entry.connection;
        if let Some(get) = self.get_of(task, asked) {
            self.outputs.op(id, Op::GetNumbered(get));
        }
    }

    /// R2T SNACK: sends R2Ts again whose data has not come.
    pub(super) fn resend_r2t(&mut self, pdu: &Pdu<'_>, snack: &Snack) -> Result<(), Violation> {
        let unknown = Violation::NothingToResend(DataSn(0));
        let task = self.tasks.find(snack.itt).filter(|task| task.connection == pdu.connection);
        let task = task.ok_or(unknown)?;
        let (id, books) = (task.id, task.transfer.books.as_deref());
        let next = books.map_or(0, |books| books.next);
        let wanted = books.and_then(|books| books.wanted(snack));
        let wanted = wanted.ok_or(Violation::NothingToResend(DataSn(next)))?;
        if !self.may_resend(pdu.connection, wanted.len(), 0) {
            return Err(Violation::NotKept);
        }
        for asked in wanted {
            if let Some(get) = self.get_of(id, asked) {
                self.outputs.op(pdu.connection, Op::AskAgain(get));
            }
        }
        Ok(())
    }

    fn get_of(&mut self, task: TaskId, asked: Asked) -> Option<NumberedGet> {
        let entry = self.tasks.running_mut(task)?;
        let (id, itt, lun) = (entry.connection, entry.command.itt, entry.command.lun);
        let Asked { r2t_sn, offset, length } = asked;
        let numbers = self.numbers(id);
        Some(NumberedGet { task, itt, lun, offset, length, numbers, r2t_sn: R2tSn(r2t_sn) })
    }

    /// A burst has ended in error: within-command recovery asks for it again. False if the task has
    /// to fail.
    pub(in crate::target_role) fn recovers_burst(
        &mut self,
        task: TaskId,
        offset: u32,
        length: u32,
        violation: Violation,
    ) -> bool {
        if !self.recovery.is_on() || violation != Violation::LostData {
            return false;
        }
        let Some(entry) = self.tasks.live_mut(task) else { return false };
        entry.transfer.books().close(offset, length);
        if !entry.may_recover() {
            return false;
        }
        let books = entry.transfer.books();
        books.tries += 1;
        books.miss(offset, length);
        true
    }
}

impl Task {
    /// True if lost data of this task is worth asking for again.
    fn may_recover(&self) -> bool {
        let tries = self.transfer.books.as_ref().map_or(0, |books| books.tries);
        self.may_go_on()
            && tries < limits::RECOVERY_TRIES_MAX
            && self.transfer.silences < limits::SILENCES_MAX
    }
}
