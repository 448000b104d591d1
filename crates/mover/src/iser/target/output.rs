// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes from the target.

use alloc::vec::Vec;

use buf::SgList;
use buf::Slice;
use iscsi::datamover::DataError;
use iscsi::datamover::Event;
use iscsi::datamover::NumberedGet;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use rdma::region::Memory;
use rdma::verbs::Work;
use wire::iscsi::BHS_LEN;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::Response;
use wire::iser::IserHeader;
use wire::iwarp::Cause;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

use super::Credit;
use super::End;
use super::Held;
use super::Reading;
use super::Target;
use crate::iser::message::head;
use crate::iser::message::padded_vec;
use crate::iser::stream::BASE;

/// What became of the first op of the queue.
enum Outcome {
    Done,
    /// As many RDMA Reads are under way as may be.
    Waits(Op),
}

impl Target {
    /// Appends what is to be sent to `list`; false if there is nothing, or something is on its way.
    pub fn poll_transmit(&mut self, list: &mut SgList) -> bool {
        while self.stream.takes_more()
            && self.ops.front().is_some_and(|op| self.unasked.may_send(op))
            && let Some(op) = self.ops.pop_front()
        {
            let (weight, of_message) = (weight(&op), message_weight(&op));
            if let Outcome::Waits(op) = self.carry_out(op) {
                self.ops.push_front(op);
                break;
            }
            self.queued -= weight;
            self.queued_messages -= of_message;
            self.run_silent();
        }
        self.settle_left();
        let before = list.len();
        let any = self.stream.poll_transmit(list);
        let length = list.len().saturating_sub(before);
        self.counters.bytes_out += u64::try_from(length).unwrap_or_default();
        any
    }

    /// What was handed out has left.
    pub fn handle_sent(&mut self) {
        self.stream.handle_sent();
        self.settle_left();
    }

    /// Releases what waited for what has left by now.
    pub(super) fn settle_left(&mut self) {
        if self.stream.is_over() {
            self.ops.retain(|op| matches!(op, Op::Release { .. }));
            (self.queued, self.queued_messages) = (0, 0);
            self.run_silent();
        }
        while let Some((posted, task)) = self.releases.front().copied()
            && self.stream.has_left(posted)
        {
            self.releases.pop_front();
            self.release(task);
        }
    }

    pub(super) fn queue(&mut self, op: Op) {
        match op {
            Op::Terminate => self.end = End::Asked,
            Op::SendControl { .. } => self.refresh_credit(),
            _ => {}
        }
        self.queued += weight(&op);
        self.queued_messages += message_weight(&op);
        self.ops.push_back(op);
        self.run_silent();
        self.settle_left();
    }

    pub(super) fn drop_ops(&mut self, goes: impl Fn(&Op) -> bool) {
        self.ops.retain(|op| !goes(op));
        self.queued = self.ops.iter().map(weight).sum();
        self.queued_messages = self.ops.iter().map(message_weight).sum();
        self.run_silent();
        self.settle_left();
    }

    /// A buffer is its task's again when no RDMA Read fills it.
    pub(super) fn restore(&mut self, task: TaskId, sink: Stag) {
        if self.reads.iter().any(|read| read.sink == sink) {
            return;
        }
        if let Some(buf) = self.stream.withdraw(sink)
            && let Some(task) = self.tasks.get_mut(task)
            && matches!(task.buf, Held::Sink(of) if of == sink)
        {
            task.buf = Held::Here(buf);
        }
    }

    /// The initiator hears from us, and may go on.
    const fn refresh_credit(&mut self) {
        self.credit = match self.credit {
            Credit::Login { .. } => Credit::Login { answered: true },
            Credit::Full { .. } => Credit::Full { unexpected: 0 },
        };
    }

    /// Silent ops at the head of the queue wait there no more.
    fn run_silent(&mut self) {
        while self.ops.front().is_some_and(is_silent) {
            if let Some(Op::Release { task }) = self.ops.pop_front() {
                self.releases.push_back((self.stream.posted(), task));
            }
        }
    }

    fn carry_out(&mut self, op: Op) -> Outcome {
        match op {
            Op::SendControl { response, data, .. } => self.send(response, data),
            Op::PutData { itt, data, offset, .. } => self.put(itt, data, offset),
            Op::PutNumbered(put) => self.put(put.itt, put.data, put.offset),
            Op::GetData { length: 0, .. } | Op::GetNumbered(NumberedGet { length: 0, .. }) => {}
            Op::GetData { .. } | Op::GetNumbered(_) if !self.reads_more() => {
                return Outcome::Waits(op);
            }
            Op::GetData { task, itt, offset, length, .. } => {
                let first = self.remote.first(itt, offset).unwrap_or(offset);
                self.get((task, itt), (offset, length), first);
            }
            Op::GetNumbered(get) => {
                let NumberedGet { task, itt, offset, length, solicited_from, .. } = get;
                self.get((task, itt), (offset, length), solicited_from);
            }
            _ => {}
        }
        Outcome::Done
    }

    fn send(&mut self, mut response: Response, data: Vec<u8>) {
        self.counters.pdus_out.count(&response);
        self.unasked.note_sent(&response);
        let mut invalidate = None;
        if let Response::Scsi(response) = &mut response {
            // Data has no numbers.
            response.exp_data_sn = DataSn(0);
            let entry = self.remote.take(response.itt);
            let memory = entry.and_then(|entry| entry.read.or(entry.write));
            invalidate = memory.map(|memory| memory.stag).filter(|_| self.stream.invalidates());
        }
        let header = response.emit(u32::try_from(data.len()).unwrap_or(u32::MAX));
        let head = head(IserHeader::PLAIN, &header);
        debug_assert!(head.is_some(), "a target sends no additional headers");
        if let Some(head) = head {
            self.stream.send(head, padded_vec(data), invalidate);
        }
    }

    /// Moves data to what the command has named.
    fn put(&mut self, itt: Itt, data: Slice, offset: u32) {
        if data.is_empty() {
            return;
        }
        match self.remote.of(itt).and_then(|entry| entry.read) {
            Some(memory) => {
                self.counters.pdus_out.data_in += 1;
                self.stream.write(data, memory.stag, within(memory.base, offset));
            }
            // A status would say that it has come.
            None => self.stream.terminate(Cause::CATASTROPHIC_STREAM),
        }
    }

    /// Whether one more RDMA Read may be under way, or none will ever be.
    fn reads_more(&self) -> bool {
        let is_free = self.stream.free_reads() > 0 && self.reads.len() < self.reads_max;
        is_free || self.reads.is_empty()
    }

    /// Fetches a burst, or tells that it cannot be. `first`: where the data began that comes only
    /// when it is asked for.
    fn get(&mut self, (task, itt): (TaskId, Itt), (offset, length): (u32, u32), first: u32) {
        if self.reads_max == 0 || !self.try_get((task, itt), (offset, length), first) {
            let error = DataError::Amount;
            self.events.push_back(Event::DataFailed { task, offset, length, error });
        }
    }

    /// False if there is no memory for it on either side.
    fn try_get(
        &mut self,
        (task, itt): (TaskId, Itt),
        (offset, length): (u32, u32),
        first: u32,
    ) -> bool {
        let first = if self.keys.solicited_only { first } else { 0 };
        let memory = self.remote.of(itt).and_then(|entry| entry.write);
        let (Some(memory), Some(source_at)) = (memory, offset.checked_sub(first)) else {
            return false;
        };
        let Some(sink) = self.sink(task) else { return false };
        let work = Work::Read {
            sink,
            sink_offset: within(BASE, offset),
            source: memory.stag,
            source_offset: within(memory.base, source_at),
            length,
        };
        if !self.stream.read(work) {
            self.restore(task, sink);
            return false;
        }
        self.counters.pdus_out.r2t += 1;
        let (wanted, fresh) = (true, true);
        self.reads.push_back(Reading { task, sink, offset, length, wanted, fresh });
        true
    }

    /// The name of a task's buffer for RDMA Reads.
    fn sink(&mut self, id: TaskId) -> Option<Stag> {
        let task = self.tasks.get_mut(id)?;
        let (held, stag) = match core::mem::take(&mut task.buf) {
            Held::Here(buf) => match self.stream.advertise(Memory::Sink(buf)) {
                Ok(stag) => (Held::Sink(stag), Some(stag)),
                Err(Memory::Sink(buf)) => (Held::Here(buf), None),
                Err(Memory::Source(_)) => (Held::None, None),
            },
            Held::Sink(stag) => (Held::Sink(stag), Some(stag)),
            Held::None => (Held::None, None),
        };
        task.buf = held;
        stag
    }
}

/// The place that is so far behind the first byte.
fn within(base: TaggedOffset, offset: u32) -> TaggedOffset {
    TaggedOffset(base.0.wrapping_add(offset.into()))
}

/// What `Suspend` drops.
pub(super) fn is_of(op: &Op, task: TaskId, itt: Itt) -> bool {
    match op {
        Op::PutData { task: of, .. } => *of == task,
        Op::PutNumbered(put) => put.task == task,
        op if fetches(op, task) => true,
        Op::SendControl { response: Response::Scsi(response), .. } => response.itt == itt,
        _ => false,
    }
}

/// Whether it asks for data of a task.
pub(super) fn fetches(op: &Op, task: TaskId) -> bool {
    match op {
        Op::GetData { task: of, .. } | Op::GetNumbered(NumberedGet { task: of, .. }) => *of == task,
        _ => false,
    }
}

pub(super) const fn is_silent(op: &Op) -> bool {
    matches!(op, Op::Release { .. } | Op::Terminate)
}

/// Bytes that an op adds to the backlog: its data, and of each message what a header would have.
pub(super) fn weight(op: &Op) -> usize {
    match op {
        Op::SendControl { data, .. } => BHS_LEN + data.len(),
        Op::PutData { data, .. } => BHS_LEN + data.len(),
        Op::PutNumbered(put) => BHS_LEN + put.data.len(),
        Op::GetData { .. } | Op::GetNumbered(_) => BHS_LEN,
        _ => 0,
    }
}

/// As `weight`, of messages alone.
pub(super) fn message_weight(op: &Op) -> usize {
    if matches!(op, Op::SendControl { .. }) { weight(op) } else { 0 }
}
