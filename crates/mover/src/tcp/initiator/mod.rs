// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator's end of one connection over a byte stream: places Data-In, answers R2Ts, and
//! believes nothing that a target says about lengths, offsets and numbers.

mod reassembly;
mod rx;
mod task;
#[cfg(test)]
mod tests;
mod tx;

use alloc::vec::Vec;

use buf::Buf;
use buf::SgList;
use iscsi::datamover::Capabilities;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use wire::iscsi::BHS_LEN;
use wire::iscsi::StatSn;

pub use task::Carried;

use rx::Rx;
use task::Tasks;
use tx::Tx;

/// The initiator's end of one connection over a byte stream.
///
/// The pump gives it what came ([`Tcp::feed`]), what the core wants ([`Tcp::submit`]) and takes
/// from it what is to be sent ([`Tcp::poll_transmit`], then [`Tcp::handle_sent`]).
#[derive(Debug, Default)]
pub struct Tcp {
    rx: Rx,
    tx: Tx,
    tasks: Tasks,
}

/// What a connection has done to payload bytes since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounters {
    /// Bytes copied, both ways.
    pub copied: u64,
    /// Bytes run through CRC32C, both ways.
    pub digested: u64,
}

impl core::ops::AddAssign for ByteCounters {
    fn add_assign(&mut self, other: Self) {
        self.copied += other.copied;
        self.digested += other.digested;
    }
}

impl Tcp {
    /// In the state before login: [`iscsi::initiator::datamover::Keys::LOGIN`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What it can do.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        Capabilities::STREAM
    }

    /// Takes bytes up to and including the one that makes an event; returns how many, and the
    /// event. Call it again with the rest. After an [`Event::Violation`] everything is taken and
    /// the same violation told again.
    pub fn feed(&mut self, bytes: &[u8]) -> (usize, Option<Event>) {
        let Self { rx, tx, tasks } = self;
        rx.feed(bytes, rx::Context { tasks, tx })
    }

    /// Where the next bytes of the stream belong, if they are many data bytes of one PDU: a buffer,
    /// where to begin and where to end. The buffer is to come back by `landed` before anything else
    /// is fed; a task that ends meanwhile ends without it.
    pub fn landing(&mut self) -> Option<(Buf, usize, usize)> {
        self.rx.landing(&mut self.tasks)
    }

    /// The first `bytes` bytes of what `landing` asked for are in `buf`. Gives an event as `feed`
    /// does.
    pub fn landed(&mut self, buf: Buf, bytes: usize) -> Option<Event> {
        let Self { rx, tx, tasks } = self;
        rx.landed(buf, bytes, rx::Context { tasks, tx })
    }

    /// Data segment of the PDU of the last event, until the next `feed`.
    #[must_use]
    pub fn control_data(&self) -> &[u8] {
        self.rx.control_data()
    }

    /// Whether a task is here.
    #[must_use]
    pub fn holds(&self, task: TaskId) -> bool {
        self.tasks.holds(task)
    }

    /// How far a task is: a number that changes when the target sends data of it or asks for some
    /// that it did not ask for before, and when such data is given out. None if it is not here.
    #[must_use]
    pub fn progress(&self, task: TaskId) -> Option<u64> {
        self.tasks.get(task).map(task::TaskState::progress)
    }

    /// Bytes of the PDU under way that have not come.
    #[must_use]
    pub fn arriving(&self) -> usize {
        self.rx.left_of_pdu().unwrap_or(BHS_LEN)
    }

    /// Takes a task out, to go on with it on another connection ([`Tcp::adopt`]). Nothing more of
    /// it is sent here.
    pub fn carry(&mut self, task: TaskId) -> Option<Carried> {
        self.tasks.carry(task, self.rx.is_receiving(task))
    }

    /// Takes all tasks out: this connection is gone.
    pub fn carry_all(&mut self) -> Vec<Carried> {
        let all: Vec<TaskId> = self.tasks.ids().collect();
        all.into_iter().filter_map(|task| self.carry(task)).collect()
    }

    /// Goes on with a task of another connection. What comes next for it may be what came before.
    pub fn adopt(&mut self, carried: Carried) {
        self.tasks.adopt(carried);
    }

    /// Takes an op; `Detach` gives the buffer of its task back. `Attach`, `Detach`, `Release`,
    /// `Quiet`, the received side of `NoticeKeys` and keys that change nothing but lengths hold at
    /// once, the rest in order. After `Terminate` nothing is sent.
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        match op {
            Op::Attach { task, write, read } => self.tasks.open(task, write, read),
            Op::Detach { task } => return self.tasks.get_mut(task)?.read.take(),
            Op::Release { task } => self.tasks.release(task),
            Op::Quiet { task } => self.tasks.silence(task),
            Op::NoticeKeys(keys) => {
                self.rx.set_keys(keys);
                self.tx.submit(op);
            }
            Op::SendCommand { task, ref command, .. } => {
                self.tasks.begin(task, command);
                self.tx.submit(op);
            }
            Op::Reassign { task, mut request } => {
                request.exp_data_sn = self.tasks.resume(task);
                self.tx.submit(Op::Reassign { task, request });
            }
            Op::Resegment { task, request } => {
                self.tasks.restart(task, request.tag);
                self.tx.submit(op);
            }
            op => self.tx.submit(op),
        }
        None
    }

    /// Fills `list`, which is cleared before, with what is to be sent next, up to the budget of
    /// [`crate::limits`]; false if there is nothing. One list is under way at a time: false also
    /// until `handle_sent`. Each PDU carries `exp_stat_sn`, the core's newest.
    pub fn poll_transmit(&mut self, list: &mut SgList, exp_stat_sn: StatSn) -> bool {
        self.tx.poll(list, &mut self.tasks, exp_stat_sn)
    }

    /// The list of the last `poll_transmit` has left.
    pub fn handle_sent(&mut self) {
        self.tx.handle_sent();
    }

    /// Everything was sent and a Terminate op was reached: close the socket.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.tx.is_terminated()
    }

    /// Tasks that have resources here: zero when all were released.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.count()
    }

    /// Answers to pings of the target that wait to be sent.
    #[must_use]
    pub fn echoes(&self) -> usize {
        self.tx.echoes()
    }

    /// What was done to payload bytes.
    #[must_use]
    pub const fn byte_counters(&self) -> ByteCounters {
        let (rx, tx) = (self.rx.byte_counters(), self.tx.byte_counters());
        ByteCounters { copied: rx.copied + tx.copied, digested: rx.digested + tx.digested }
    }

    /// Asserts what always holds. Looks at every task: for tests and simulation.
    pub fn check(&self) {
        self.tasks.check();
    }
}
