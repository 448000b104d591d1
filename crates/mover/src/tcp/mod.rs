// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI over a byte stream (RFC 7143): the target's end of one connection, and in [`initiator`]
//! the other one.

mod burst;
mod coverage;
mod frame;
pub mod initiator;
mod marker;
mod rx;
mod segment;
mod task;
mod tx;

use alloc::vec::Vec;

use buf::{Buf, Pool, SgList};
use iscsi::datamover::{Capabilities, Event, Op};
use wire::iscsi::StatSn;

pub use crate::counters::{Counters, PdusIn, PdusOut};

use burst::Kind;
use rx::Rx;
use task::Tasks;
use tx::Tx;

/// Length of either digest, bytes (RFC 7143 §11.2.3).
const DIGEST_LEN: usize = 4;

/// The target's end of one connection over a byte stream.
///
/// The pump gives it what came ([`Tcp::feed`]), what the core wants ([`Tcp::submit`]) and takes
/// from it what is to be sent ([`Tcp::poll_transmit`], then [`Tcp::handle_sent`]) and what was
/// released ([`Tcp::poll_event`]).
#[derive(Debug)]
pub struct Tcp {
    rx: Rx,
    tx: Tx,
    tasks: Tasks,
    counters: Counters,
}

/// What PDUs have besides headers and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // there are two digests
pub struct Framing {
    /// A digest behind each header.
    pub header_digest: bool,
    /// A digest behind each data segment.
    pub data_digest: bool,
}

impl Tcp {
    /// In the state before login: [`iscsi::datamover::Keys::LOGIN`].
    pub fn new() -> Self {
        Self {
            rx: Rx::new(),
            tx: Tx::new(),
            tasks: Tasks::default(),
            counters: Counters::default(),
        }
    }

    /// What it can do.
    pub const fn capabilities(&self) -> Capabilities {
        Capabilities::STREAM
    }

    /// Takes bytes up to and including the one that makes an event; returns how many, and the
    /// event. Call it again with the rest, also where none were taken: a PDU can make two events.
    /// After a [`Event::Violation`] everything is taken and the same violation told again.
    pub fn feed(&mut self, bytes: &[u8], pool: &Pool) -> (usize, Option<Event>) {
        let Self { rx, tasks, counters, .. } = self;
        rx.feed(bytes, segment::Context { pool, tasks, counters })
    }

    /// Where the next bytes of the stream belong, if they are many data bytes of one PDU: a buffer,
    /// where to begin and where to end. The buffer is to come back by `landed` before anything else
    /// is fed; the caller sees to it that no task is taken away from this connection meanwhile.
    pub fn landing(&mut self) -> Option<(Buf, usize, usize)> {
        self.rx.landing(&mut self.tasks)
    }

    /// The first `bytes` bytes of what `landing` asked for are in `buf`. Gives an event as `feed`
    /// does.
    pub fn landed(&mut self, buf: Buf, bytes: usize, pool: &Pool) -> Option<Event> {
        let Self { rx, tasks, counters, .. } = self;
        rx.landed(buf, bytes, segment::Context { pool, tasks, counters })
    }

    /// Header (BHS and AHS) of the PDU of the last event, until the next `feed`.
    pub fn header(&self) -> &[u8] {
        self.rx.header()
    }

    /// Data segment of the PDU of the last Control event, unless it was a SCSI command; until the
    /// next `feed`.
    pub fn control_data(&self) -> &[u8] {
        self.rx.control_data()
    }

    /// ExpStatSN of the last Data-Out since this was asked last: these PDUs carry an
    /// acknowledgement like all others (RFC 7143 §4.2.2.2), and nobody above hears of them one by
    /// one.
    pub const fn take_acknowledged(&mut self) -> Option<StatSn> {
        self.rx.take_acknowledged()
    }

    /// What PDUs that come have besides headers and data.
    pub const fn received_framing(&self) -> Framing {
        self.rx.framing()
    }

    /// The same, of those that are sent: of the last list, but for the PDUs of a login in it.
    pub const fn sent_framing(&self) -> Framing {
        self.tx.framing()
    }

    /// The stream has markers of RFC 3720, one way or both.
    pub const fn has_markers(&self) -> bool {
        self.rx.has_markers() || self.tx.has_markers()
    }

    /// The last list of `poll_transmit` has markers.
    pub const fn is_marked(&self) -> bool {
        self.tx.is_marked()
    }

    /// Bytes that are yet to come of the PDU that comes; None: of its header so little has come
    /// that nobody knows.
    pub fn left_of_pdu(&self) -> Option<usize> {
        self.rx.left_of_pdu()
    }

    /// Takes an op; `Detach` gives the buffer of its task back. What concerns receiving (`Attach`,
    /// `Detach`, `ExpectUnsolicited`, `Abandon`, `Forget`, `Suspend`, `Overdue`, received side of
    /// `NoticeKeys`) holds at once, the rest in order. After `Terminate` of what is sent only
    /// `Release` has an effect.
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        let Self { rx, tx, tasks, counters } = self;
        match op {
            Op::Attach { task, buf } => {
                if let Some(task) = tasks.open(task) {
                    task.buf = Some(buf);
                }
            }
            Op::Detach { task } => return tasks.get_mut(task)?.buf.take(),
            Op::ExpectUnsolicited { task, itt, lun, offset, length, discard } => {
                let kind = if discard { Kind::Discard } else { Kind::Unsolicited };
                tasks.expect(burst::Request { kind, task, itt, lun, offset, length });
            }
            Op::Abandon { task } => {
                tasks.abandon(task);
                tx.abandon(task, tasks);
            }
            Op::Suspend { task, itt } => {
                tasks.abandon(task);
                tx.suspend(task, itt, tasks);
            }
            Op::Overdue { task } => tx.look_for_overdue(task, tasks),
            Op::Forget { task } => tasks.bursts.forget(task),
            // No command names memory.
            Op::Unname { .. } => {}
            Op::NoticeKeys(keys) => {
                tasks.bursts.set_order(keys.data_pdu_in_order);
                rx.set_keys(&keys, counters.bytes_in);
                tx.submit(op, tasks);
            }
            op => tx.submit(op, tasks),
        }
        None
    }

    /// Fills `list`, which is cleared before, with what is to be sent next, up to the budget of
    /// [`crate::limits`]; false if there is nothing. One list is under way at a time: false also
    /// until `handle_sent`. False with a `backlog` also means that all bursts are open: try again
    /// after the next `feed`.
    pub fn poll_transmit(&mut self, list: &mut SgList) -> bool {
        let Self { tx, tasks, counters, .. } = self;
        tx.poll(list, tx::Context { tasks, counters })
    }

    /// The list of the last `poll_transmit` has left.
    pub fn handle_sent(&mut self) {
        self.tx.handle_sent(&mut self.tasks);
    }

    /// All that waits to be sent, for who goes on with the connection in another way.
    pub fn take_queued(&mut self) -> Vec<u8> {
        let (mut bytes, mut list) = (Vec::new(), SgList::new());
        // What is on its way is with the port.
        self.handle_sent();
        while self.poll_transmit(&mut list) {
            bytes.extend(list.to_vec());
            list.clear();
            self.handle_sent();
        }
        bytes
    }

    /// Events that `handle_sent` or `submit` made (Released).
    pub fn poll_event(&mut self) -> Option<Event> {
        self.tx.poll_event()
    }

    /// Everything was sent and a Terminate op was reached: close the socket.
    pub fn is_terminated(&self) -> bool {
        self.tx.is_terminated()
    }

    /// Bytes that wait to be sent, headers included, with those under way (the pump pauses
    /// receiving above a limit).
    pub fn backlog(&self) -> usize {
        self.tx.backlog()
    }

    /// Bytes of messages, which are no data, that wait to be sent.
    pub fn messages(&self) -> usize {
        self.tx.messages()
    }

    /// Bytes of all lists that have left.
    pub fn left(&self) -> u64 {
        self.counters.bytes_out - self.tx.under_way() as u64
    }

    /// Tasks that have resources here: zero when all were released.
    pub fn task_count(&self) -> usize {
        self.tasks.count()
    }

    /// Bursts that are open and not abandoned: zero when all tasks were released.
    pub fn open_bursts(&self) -> usize {
        self.tasks.bursts.open_count()
    }

    /// Bursts of aborted tasks whose last PDU has not come; their Data-Outs are dropped.
    pub fn abandoned_bursts(&self) -> usize {
        self.tasks.bursts.abandoned_count()
    }

    /// Asserts what always holds. Looks at every op, task and burst: for tests and simulation.
    pub fn check(&self) {
        self.tx.check();
        self.tasks.check();
    }

    /// What this connection has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
