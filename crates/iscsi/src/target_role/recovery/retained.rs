// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The responses of a connection that its initiator has not acknowledged, and Status SNACK (RFC
//! 7143 §4.2.2.2, §7.1.4.2, §11.16).

use crate::datamover::{Op, TaskId};
use crate::serial::Serial;
use crate::status::StatusNumbers;
use crate::target_role::limits;
use crate::target_role::names::ConnectionId;
use crate::target_role::session::Session;
use crate::violation::Violation;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use clock::Instant;
use core::ops::Range;
use wire::iscsi::{Itt, Numbers, Response, Snack, StatSn};

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

#[derive(Clone, Debug)]
enum Entry {
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
    pub(super) fn take(&mut self, now: Instant) -> Self {
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        core::mem::replace(self, Self::new(self.first.plus(count), now))
    }

    pub(in crate::target_role) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tasks whose status is here, oldest first.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Task(task) => Some(*task),
            Entry::Pdu(..) => None,
        })
    }

    pub(super) fn push_task(&mut self, number: StatSn, task: TaskId, now: Instant) {
        self.push(number, Entry::Task(task), now);
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
    pub(super) fn take_acknowledged(
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

    /// Takes what sending `pdus` with `bytes` of data again costs; false if the initiator has asked
    /// for too much since it last acknowledged something.
    pub(super) fn spend(&mut self, pdus: usize, bytes: usize) -> bool {
        let left = self.credit.checked_sub(pdus * limits::RESEND_COST + bytes);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }

    /// The entries that a SNACK asks for; None if one of them was never sent or is acknowledged.
    fn wanted(&self, snack: &Snack) -> Option<Range<usize>> {
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

    /// More than an initiator leaves unacknowledged that still listens.
    fn is_overfull(&self) -> bool {
        self.bytes > limits::RETAINED_BYTES_MAX || self.entries.len() > limits::RETAINED_MAX
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.entries.is_empty()).then(|| self.since + limits::STATUS_WAIT)
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self, is_on: bool, status: &StatusNumbers) {
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

impl Session {
    /// Keeps a response that leaves on a connection, if it is one that is numbered.
    pub(in crate::target_role) fn retain(
        &mut self,
        id: ConnectionId,
        response: &Response,
        data: &[u8],
    ) {
        let now = self.now;
        let is_numbered = match response {
            Response::NopIn(nop) => nop.itt != Itt::NONE,
            Response::DataIn(_) | Response::R2t(_) => false,
            _ => true,
        };
        if is_numbered && let Some(connection) = self.connection_mut(id) {
            let entry = Entry::Pdu(*response, data.to_vec());
            connection.retained.push(numbers(response).stat_sn, entry, now);
        }
    }

    /// Forgets what the initiator has acknowledged on a connection.
    pub(in crate::target_role) fn forget_acknowledged(
        &mut self,
        id: ConnectionId,
    ) -> Result<(), Violation> {
        let now = self.now;
        let Some(connection) = self.connection_mut(id) else { return Ok(()) };
        let status = connection.status;
        let tasks = connection.retained.take_acknowledged(&status, now);
        for task in tasks {
            self.give_up_answer(task);
            self.outputs.op(id, Op::Release { task });
        }
        self.check_retained(id)
    }

    /// Whether an initiator may still be sent what must be kept for it. PDUs that acknowledge
    /// nothing, since they cannot be read, are answered too.
    pub(in crate::target_role) fn check_retained(&self, id: ConnectionId) -> Result<(), Violation> {
        match self.connection(id) {
            Some(connection) if connection.retained.is_overfull() => Err(Violation::Unacknowledged),
            _ => Ok(()),
        }
    }

    /// Status SNACK: sends responses again, with the window as it is now.
    pub(super) fn resend_status(
        &mut self,
        id: ConnectionId,
        snack: &Snack,
    ) -> Result<(), Violation> {
        let now = self.numbers(id);
        let Some(connection) = self.connection(id) else { return Ok(()) };
        let nothing = Violation::NothingToResend(Default::default());
        let wanted = connection.retained.wanted(snack).ok_or(nothing)?;
        let (pdus, data) = (wanted.len(), connection.retained.entries.range(wanted.clone()));
        let bytes = data.map(Entry::bytes).sum();
        if !self.may_resend(id, pdus, bytes) {
            return Err(Violation::NotKept);
        }
        let Some(connection) = self.connection(id) else { return Ok(()) };
        let again: Vec<Entry> = connection.retained.entries.range(wanted).cloned().collect();
        for entry in again {
            match entry {
                Entry::Pdu(response, data) => {
                    let response = with_window(response, now);
                    self.outputs.op(id, Op::SendControl { response, data, task: None });
                }
                Entry::Task(task) => self.send_status_again(task),
            }
        }
        Ok(())
    }

    /// Whether a SNACK is served: see `Retained::spend`.
    pub(super) fn may_resend(&mut self, id: ConnectionId, pdus: usize, bytes: usize) -> bool {
        self.connection_mut(id).is_some_and(|at| at.retained.spend(pdus, bytes))
    }

    /// When status has stayed unacknowledged for long on some connection.
    pub(super) fn status_deadline(&self) -> Option<Instant> {
        let waits = self.connections.iter().filter(|connection| connection.ping.is_none());
        waits.filter_map(|connection| connection.retained.deadline()).min()
    }

    /// Asks at once where statuses that are not acknowledged are all that keeps the window closed:
    /// the initiator has no command left to acknowledge them with. Once, then as ever.
    pub(in crate::target_role) fn ask_if_stuck(&mut self) {
        let busy = self.tasks.running() > 0 || self.managements.numbered() > 0;
        if !self.recovery.is_on() || busy || self.window.size() > 0 {
            return;
        }
        let mut stuck = Vec::new();
        for connection in self.connections.iter_mut() {
            let (next, retained) = (connection.status.next(), &mut connection.retained);
            if !retained.is_empty() && retained.asked != next {
                (retained.asked, retained.since) = (next, self.now);
                stuck.push(connection.id);
            }
        }
        for id in stuck {
            self.send_ping(id);
        }
    }

    /// Tells initiators the next StatSN where status stays unacknowledged for long, so that they
    /// see what they miss (RFC 7143 §7.1.4.2).
    pub(super) fn ask_for_acknowledgements(&mut self) {
        let now = self.now;
        let due = |at: &Retained| at.deadline().is_some_and(|deadline| deadline <= now);
        let mut silent = Vec::new();
        for connection in self.connections.iter_mut() {
            if due(&connection.retained) {
                connection.retained.since = now;
                silent.push(connection.id);
            }
        }
        for id in silent {
            self.send_ping(id);
        }
    }
}

/// The numbers of a response.
fn numbers(response: &Response) -> Numbers {
    let mut copy = *response;
    *numbers_mut(&mut copy)
}

/// The same response with ExpCmdSN and MaxCmdSN of `now` (RFC 7143 §11.16).
pub(super) fn with_window(mut response: Response, now: Numbers) -> Response {
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
