// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The responses of a connection that its initiator has not acknowledged, and Status SNACK (RFC
//! 7143 §4.2.2.2, §7.1.4.2, §11.16).

use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::status::StatusNumbers;
use crate::target_role::limits;
use crate::violation::Violation;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use clock::Instant;
use core::ops::Range;
use wire::iscsi::{DataSn, Itt, Numbers, Response, Snack, StatSn};

/// Unacknowledged responses, by StatSN without a gap.
#[derive(Debug)]
pub(in crate::target_role) struct Retained {
    /// StatSN of the first entry, or of the next one.
    first: StatSn,
    entries: VecDeque<Entry>,
    /// Bytes of data segments in `entries`.
    bytes: usize,
    /// When something was acknowledged last, or asked to be.
    since: Instant,
    /// What may be sent again, bytes.
    credit: usize,
    /// The initiator was asked at once for what came before this number.
    asked: StatSn,
}

/// A response that its initiator has not acknowledged.
#[derive(Clone, Debug)]
pub(in crate::target_role) enum Entry {
    /// The SCSI Response of a task, which keeps it itself.
    Task(TaskId),
    /// Any other one, with its data segment.
    Pdu(Response, Vec<u8>),
}

impl Retained {
    /// The next response has the number `first`.
    pub(in crate::target_role) const fn new(first: StatSn, now: Instant) -> Self {
        Self {
            first,
            entries: VecDeque::new(),
            bytes: 0,
            since: now,
            credit: limits::RESEND_CREDIT,
            asked: first,
        }
    }

    /// Everything, out of a connection that is gone, or that may still answer its own logout.
    pub(in crate::target_role) fn take(&mut self, now: Instant) -> Self {
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        core::mem::replace(self, Self::new(self.first.plus(count), now))
    }

    pub(in crate::target_role) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tasks whose status is here, oldest first.
    pub(in crate::target_role) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Task(task) => Some(*task),
            Entry::Pdu(..) => None,
        })
    }

    pub(in crate::target_role) fn push_task(&mut self, number: StatSn, task: TaskId, now: Instant) {
        self.push(number, Entry::Task(task), now);
    }

    /// Keeps a response that leaves, if it is one that is numbered.
    pub(in crate::target_role) fn push_pdu(
        &mut self,
        response: &Response,
        data: &[u8],
        now: Instant,
    ) {
        let is_numbered = match response {
            Response::NopIn(nop) => nop.itt != Itt::NONE,
            Response::DataIn(_) | Response::R2t(_) => false,
            _ => true,
        };
        if is_numbered {
            let entry = Entry::Pdu(*response, data.to_vec());
            self.push(numbers(response).stat_sn, entry, now);
        }
    }

    fn push(&mut self, number: StatSn, entry: Entry, now: Instant) {
        assert_eq!(number.steps_from(self.first) as usize, self.entries.len(), "no gap");
        if self.entries.is_empty() {
            self.since = now;
        }
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
    }

    /// Forgets what is acknowledged; gives the tasks among it.
    pub(in crate::target_role) fn take_acknowledged(
        &mut self,
        status: &StatusNumbers,
        now: Instant,
    ) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        while status.is_acknowledged(self.first.plus(1))
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= entry.bytes();
            let paid = self.credit + entry.bytes() + limits::RESEND_COST;
            self.credit = paid.min(limits::RESEND_CREDIT);
            self.first = self.first.plus(1);
            self.since = now;
            if let Entry::Task(task) = entry {
                tasks.push(task);
            }
        }
        tasks
    }

    /// Takes what sending `pdus` with `bytes` of data again costs.
    ///
    /// # Errors
    /// The initiator has asked for too much since it last acknowledged something.
    pub(in crate::target_role) fn pay(
        &mut self,
        pdus: usize,
        bytes: usize,
    ) -> Result<(), Violation> {
        let left = self.credit.checked_sub(pdus * limits::RESEND_COST + bytes);
        self.credit = left.ok_or(Violation::NotKept)?;
        Ok(())
    }

    /// The entries that a SNACK asks for; None if one of them was never sent or is acknowledged.
    fn range_of(&self, snack: &Snack) -> Option<Range<usize>> {
        let length = self.entries.len();
        if (snack.beg_run, snack.run_length) == (0, 0) {
            return Some(0..length);
        }
        let from = StatSn(snack.beg_run).steps_from(self.first) as usize;
        let to = match snack.run_length {
            0 => length,
            count => from.checked_add(count as usize)?,
        };
        (from < to && to <= length).then_some(from..to)
    }

    /// The responses that a Status SNACK asks for, paid for.
    ///
    /// # Errors
    /// One of them was never sent or is acknowledged, or they are too many.
    pub(in crate::target_role) fn again(&mut self, snack: &Snack) -> Result<Vec<Entry>, Violation> {
        let nothing = Violation::NothingToResend(DataSn::default());
        let wanted = self.range_of(snack).ok_or(nothing)?;
        let bytes = self.entries.range(wanted.clone()).map(Entry::bytes).sum();
        self.pay(wanted.len(), bytes)?;
        Ok(self.entries.range(wanted).cloned().collect())
    }

    /// True, once, if something before `next` stays unacknowledged: its initiator is to be asked at
    /// once.
    pub(in crate::target_role) fn is_stuck(&mut self, next: StatSn, now: Instant) -> bool {
        let is_stuck = !self.entries.is_empty() && self.asked != next;
        if is_stuck {
            (self.asked, self.since) = (next, now);
        }
        is_stuck
    }

    /// True, once in a while, if something has stayed unacknowledged for long.
    pub(in crate::target_role) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.deadline().is_some_and(|deadline| deadline <= now);
        if is_due {
            self.since = now;
        }
        is_due
    }

    /// More than an initiator leaves unacknowledged that still listens.
    pub(in crate::target_role) fn is_overfull(&self) -> bool {
        self.bytes > limits::RETAINED_BYTES_MAX || self.entries.len() > limits::RETAINED_MAX
    }

    pub(in crate::target_role) fn deadline(&self) -> Option<Instant> {
        (!self.entries.is_empty()).then(|| self.since + limits::STATUS_WAIT)
    }

    /// Panics if an invariant does not hold.
    pub(in crate::target_role) fn check(&self, is_on: bool, status: &StatusNumbers) {
        assert!(is_on || self.entries.is_empty(), "nothing is retained at level 0");
        let next = self.first.plus(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        assert!(!is_on || next == status.next(), "every response is retained");
        assert_eq!(self.bytes, self.entries.iter().map(Entry::bytes).sum::<usize>());
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Self::Task(_) => 0,
            Self::Pdu(_, data) => data.len(),
        }
    }
}

/// The numbers of a response.
fn numbers(response: &Response) -> Numbers {
    let mut copy = *response;
    *numbers_mut(&mut copy)
}

/// The same response with ExpCmdSN and MaxCmdSN of `now` (RFC 7143 §11.16).
pub(in crate::target_role) fn with_window(mut response: Response, now: Numbers) -> Response {
    let numbers = numbers_mut(&mut response);
    *numbers = Numbers { stat_sn: numbers.stat_sn, ..now };
    response
}

fn numbers_mut(response: &mut Response) -> &mut Numbers {
    match response {
        Response::NopIn(pdu) => &mut pdu.numbers,
        Response::Scsi(pdu) => &mut pdu.numbers,
        Response::TaskManagement(pdu) => &mut pdu.numbers,
        Response::Login(pdu) => &mut pdu.numbers,
        Response::Text(pdu) => &mut pdu.numbers,
        Response::DataIn(pdu) => &mut pdu.numbers,
        Response::Logout(pdu) => &mut pdu.numbers,
        Response::R2t(pdu) => &mut pdu.numbers,
        Response::Async(pdu) => &mut pdu.numbers,
        Response::Reject(pdu) => &mut pdu.numbers,
    }
}
