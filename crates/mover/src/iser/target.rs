// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target's end of an iSER connection.
//!
//! Read first: RFC 7145 §7.3 (what becomes of each PDU), §8.1 (who may send how much).
//!
//! Ops are carried out strictly in order: each becomes a Send, an RDMA Write or an RDMA Read as
//! soon as the connection can take one more. Release waits until all that was posted before it has
//! left.

mod input;
mod output;
mod unasked;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use buf::Buf;
use buf::Pool;
use iscsi::datamover::Capabilities;
use iscsi::datamover::Event;
use iscsi::datamover::Keys;
use iscsi::datamover::Op;
use iscsi::datamover::StreamViolation;
use iscsi::datamover::TaskId;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use slots::ById;
use wire::iscsi::ScsiCommand;
use wire::iscsi::StatSn;
use wire::iwarp::Cause;
use wire::iwarp::Stag;
use wire::iwarp::UNTAGGED_LEN;

use self::output::message_weight;
use self::output::weight;
use self::unasked::Unasked;
use super::CAPABILITIES;
use super::OF_ADAPTERS;
use super::facts::Facts;
use super::message::MESSAGE_LEN_MAX;
use super::remote::Remote;
use super::stream::Stream;
use super::unsolicited::Burst;
use super::unsolicited::Unsolicited;
use crate::counters::Counters;
use crate::limits::ADAPTER_BUFFERS;
use crate::limits::LOGIN_BUFFERS;
use crate::limits::TASKS_MAX;

/// The target's end of an iSER connection.
///
/// The pump feeds it the bytes of the connection from the first one on ([`Target::feed`], again as
/// long as [`Target::has_more`]), gives it what the core wants ([`Target::submit`]), and takes from
/// it what is to be sent ([`Target::poll_transmit`]) and what that has released
/// ([`Target::poll_event`]).
#[derive(Debug)]
pub struct Target {
    stream: Stream,
    capabilities: Capabilities,
    keys: Keys,
    /// Nothing has come yet: only a Login Request may begin a connection.
    first: bool,
    /// The first message is a Hello (RFC 7145 §5.1.3).
    awaits_hello: bool,
    /// RDMA Reads at once that the initiator serves, by its Hello.
    reads_max: usize,
    credit: Credit,
    unasked: Unasked,
    violation: Option<StreamViolation>,
    tasks: ById<TaskId, Task>,
    remote: Remote,
    unsolicited: Unsolicited,
    /// RDMA Reads under way, the oldest first.
    reads: VecDeque<Reading>,
    ops: VecDeque<Op>,
    /// Bytes that wait in `ops`, and those of them that are of messages.
    queued: usize,
    queued_messages: usize,
    /// Tasks that are released when so many Sends and Writes have left.
    releases: VecDeque<(u64, TaskId)>,
    events: VecDeque<Event>,
    end: End,
    /// Of the last PDU: BHS and AHS, and data that is kept.
    header: Vec<u8>,
    control: Vec<u8>,
    /// A command whose immediate data, in `control`, found no buffer.
    short: Option<ScsiCommand>,
    /// ExpStatSN of the last data, until it is taken.
    acknowledged: Option<StatSn>,
    counters: Counters,
}

/// What the initiator may send before it hears from us (RFC 7145 §8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credit {
    /// In the login phase each request waits for the answer to the one before.
    Login { answered: bool },
    /// PDUs that the command window does not count, since we said something last.
    Full { unexpected: u32 },
}

/// What is kept of one task.
#[derive(Debug, Default)]
struct Task {
    buf: Held,
    had_unsolicited: bool,
}

/// The buffer for the initiator's data; its byte 0 is byte 0 of the initiator's.
#[derive(Debug, Default)]
enum Held {
    #[default]
    None,
    Here(Buf),
    /// RDMA Reads fill it.
    Sink(Stag),
}

/// An RDMA Read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    task: TaskId,
    sink: Stag,
    offset: u32,
    length: u32,
    /// The core wants to hear of its end.
    wanted: bool,
    /// The core has not looked for it yet.
    fresh: bool,
}

/// How far the connection has come towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Terminate was asked for: nothing after it is sent.
    Asked,
}

impl Target {
    /// Before the first byte of an initiator whom nobody knows: [`Keys::LOGIN`]. It has no memory
    /// before a message has come, and what comes is short until the login is over. `seed`: a number
    /// that no other connection has, and no initiator guesses.
    #[must_use]
    pub fn of_stranger(seed: u32) -> Self {
        let mut target = Self::over(Stream::target(None, seed));
        target.stream.limit_incoming(UNTAGGED_LEN + MESSAGE_LEN_MAX);
        target
    }

    /// As the last response of a login is about to leave that agreed on RDMA. None if `pool` has no
    /// buffer for the messages of one more connection. `seed`: as of strangers.
    #[must_use]
    pub fn of_login(pool: &Pool, seed: u32) -> Option<Self> {
        Some(Self::over(Stream::target(Some(pool.take(MESSAGE_LEN_MAX)?), seed)))
    }

    /// Over an adapter, before the first message of an initiator whom nobody knows, and what that
    /// is told: it has said this when it asked for the connection. None if it has not said what
    /// initiators of iSER do. The adapter gets buffers for a login out of `pool`.
    #[must_use]
    pub fn of_adapter(said: &[u8], depths: Depths, pool: &Pool) -> Option<(Self, [u8; 4])> {
        let (stream, answer) = Stream::adapter(said, depths)?;
        let mut target = Self { capabilities: OF_ADAPTERS, ..Self::over(stream) };
        target.provide(LOGIN_BUFFERS, pool).then_some((target, answer))
    }

    /// The last response of a login is about to leave: there is a buffer for what follows, and an
    /// adapter gets as many as may come; false if `pool` has not so many, or would have too little
    /// left for others.
    #[must_use]
    pub fn prepare(&mut self, pool: &Pool) -> bool {
        self.stream.keep(|| pool.take(MESSAGE_LEN_MAX))
            && self.provide(usize::from(ADAPTER_BUFFERS), &pool.share())
    }

    fn provide(&mut self, count: usize, pool: &Pool) -> bool {
        self.stream.provide(count, || pool.take(MESSAGE_LEN_MAX))
    }

    /// What an adapter is to do next, after [`Target::poll_transmit`], which has no bytes then.
    pub fn poll_post(&mut self) -> Option<Post> {
        let post = self.stream.poll_post();
        if let Some(Post::Send(_, work)) = &post {
            self.counters.bytes_out += u64::try_from(work.len()).unwrap_or_default();
        }
        post
    }

    /// An adapter has done something: feed no bytes as long as [`Target::has_more`].
    pub fn handle_done(&mut self, done: Done) {
        if let Done::Received { length, .. } = &done {
            self.counters.bytes_in += u64::try_from(*length).unwrap_or_default();
        }
        self.stream.handle_done(done);
        self.settle_left();
    }

    fn over(stream: Stream) -> Self {
        Self {
            stream,
            capabilities: CAPABILITIES,
            keys: Keys::LOGIN,
            first: true,
            awaits_hello: false,
            reads_max: usize::MAX,
            credit: Credit::Login { answered: true },
            unasked: Unasked::default(),
            violation: None,
            tasks: ById::new(TASKS_MAX),
            remote: Remote::default(),
            unsolicited: Unsolicited::default(),
            reads: VecDeque::new(),
            ops: VecDeque::new(),
            queued: 0,
            queued_messages: 0,
            releases: VecDeque::new(),
            events: VecDeque::new(),
            end: End::Open,
            header: Vec::new(),
            control: Vec::new(),
            short: None,
            acknowledged: None,
            counters: Counters::default(),
        }
    }

    /// The buffers for messages that it has of its pool as long as it is there, bytes each.
    pub fn standing_buffers(&self) -> impl Iterator<Item = usize> {
        let count = self.capabilities.buffers.map_or(1, usize::from);
        core::iter::repeat_n(MESSAGE_LEN_MAX, count)
    }

    /// Tells how long segments of TCP are.
    pub fn set_segment_len(&mut self, segment_len: usize) {
        self.stream.set_segment_len(segment_len);
    }

    /// Goes on with a byte stream whose login is over: `queued` is what is left to be said there.
    pub fn follow(&mut self, queued: Vec<u8>, keys: Keys) {
        self.stream.go_on_behind(queued);
        self.first = false;
        self.submit(Op::NoticeKeys(keys));
    }

    /// What it can do.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Header (BHS and AHS) of the last PDU, until the next feed.
    #[must_use]
    pub const fn header(&self) -> &[u8] {
        self.header.as_slice()
    }

    /// Data of the last control PDU, until the next feed.
    #[must_use]
    pub const fn control_data(&self) -> &[u8] {
        self.control.as_slice()
    }

    /// ExpStatSN of the last data since this was asked last: of such PDUs nobody above hears (RFC
    /// 7143 §4.2.2.2).
    pub const fn take_acknowledged(&mut self) -> Option<StatSn> {
        self.acknowledged.take()
    }

    /// Takes an op; `Detach` gives the buffer of its task back. What concerns receiving (`Attach`,
    /// `Detach`, `ExpectUnsolicited`, `Abandon`, `Forget`, `Suspend`, `Overdue`, `Unname`,
    /// `NoticeKeys`) holds at once, the rest in order. After `Terminate` of what is sent only
    /// `Release` has an effect.
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        match op {
            Op::Attach { task, buf } => {
                if let Some(task) = self.tasks.open(task, Task::default) {
                    task.buf = Held::Here(buf);
                }
            }
            Op::Detach { task } => return self.detach(task),
            Op::ExpectUnsolicited { task, itt, offset, length, discard, .. } => {
                if let Some(task) = self.tasks.open(task, Task::default) {
                    task.had_unsolicited = true;
                }
                let burst = Burst { task, itt, offset, length, discard };
                let opened = self.unsolicited.open(burst);
                debug_assert!(opened, "more than the command window allows");
            }
            Op::Abandon { task } => {
                self.abandon(task);
                self.drop_ops(|op| output::fetches(op, task));
            }
            Op::Suspend { task, itt } => {
                self.abandon(task);
                self.drop_ops(|op| output::is_of(op, task, itt));
            }
            Op::Overdue { task } => self.overdue(task),
            Op::Forget { task } => self.unsolicited.forget(task),
            Op::Unname { itt } => drop(self.remote.take(itt)),
            Op::NoticeKeys(keys) => {
                self.stream.limit_incoming(usize::MAX);
                self.unasked.set_max(keys.unexpected_max);
                // However the connection began, it is the first message of the full feature phase;
                // one that joins hears of it from its session.
                self.awaits_hello |= keys.hello && !self.keys.hello;
                self.keys = keys;
                self.credit = Credit::Full { unexpected: 0 };
            }
            Op::AskAgain(_) => debug_assert!(false, "asked of a mover that has no numbers"),
            Op::Release { .. } => self.queue(op),
            op if self.end == End::Open => self.queue(op),
            Op::SendControl { .. }
            | Op::PutData { .. }
            | Op::PutNumbered(_)
            | Op::GetData { .. }
            | Op::GetNumbered(_)
            | Op::Terminate => {}
        }
        None
    }

    /// Events that `submit` and sending made (Released, and what failed).
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether `poll_event` has something to tell.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Everything has left and a Terminate op was reached: close the connection.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.end == End::Asked && self.ops.is_empty() && self.stream.is_drained()
    }

    /// Bytes that wait to leave, with those under way.
    #[must_use]
    pub const fn backlog(&self) -> usize {
        self.queued + self.stream.leaving_len()
    }

    /// Bytes that wait to leave without more from the initiator. What waits until it has shown that
    /// it has what was said unasked would wait for ever if nobody heard it: of that, messages alone
    /// count, since data has its bound in the pool.
    #[must_use]
    pub fn burden(&self) -> usize {
        match self.ops.front().is_some_and(|op| !self.unasked.may_send(op)) {
            true => self.queued_messages,
            false => self.backlog(),
        }
    }

    /// Bytes of messages, which are no data, that wait to be sent.
    #[must_use]
    pub const fn messages(&self) -> usize {
        self.queued_messages
    }

    /// Tasks that have resources here: zero when all were released.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// RDMA Reads under way.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.len()
    }

    /// RDMA Reads that are over. They come in order: while this does not change, whatever the
    /// oldest one fills is not had back, also when its task has ended long ago.
    #[must_use]
    pub fn reads_over(&self) -> u64 {
        let all = self.counters.pdus_out.r2t;
        all.saturating_sub(u64::try_from(self.reads.len()).unwrap_or(u64::MAX))
    }

    /// Memory that holds what has come of a segment, in bytes.
    #[cfg(test)]
    pub(super) fn bytes_held(&self) -> usize {
        self.stream.bytes_held()
    }

    /// What this connection has counted: Data-In and R2T for RDMA Writes and Reads.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the connection has agreed on; None: nothing yet, or it is over.
    #[must_use]
    pub fn facts(&self) -> Option<Facts> {
        self.stream.facts()
    }

    /// Asserts what always holds. Looks at every op, task and burst: for tests and simulation.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check(&self) {
        self.stream.check();
        self.tasks.check();
        self.remote.check();
        self.unsolicited.check();
        assert_eq!(self.queued, self.ops.iter().map(weight).sum::<usize>(), "bytes queued");
        let messages = self.ops.iter().map(message_weight).sum::<usize>();
        assert_eq!(self.queued_messages, messages, "of messages");
        assert!(!self.ops.front().is_some_and(output::is_silent), "silent ops never wait");
    }

    fn detach(&mut self, task: TaskId) -> Option<Buf> {
        let task = self.tasks.get_mut(task)?;
        match core::mem::take(&mut task.buf) {
            Held::Here(buf) => Some(buf),
            Held::Sink(stag) => {
                let is_safe = self.stream.is_over() || !self.stream.is_of_adapter();
                debug_assert!(is_safe, "an adapter may fill it");
                // What still comes for it finds no memory, and ends what is left of the stream.
                self.stream.withdraw(stag)
            }
            Held::None => None,
        }
    }

    fn abandon(&mut self, task: TaskId) {
        self.unsolicited.abandon(task);
        let of = self.reads.iter_mut().filter(|read| read.task == task);
        of.for_each(|read| read.wanted = false);
    }

    /// RDMA Reads come in order: one that does not come holds up all others, and its memory cannot
    /// be had back before. No initiator has to do anything for one, so the stream is broken.
    fn overdue(&mut self, task: TaskId) {
        self.unsolicited.overdue(task, &mut self.events);
        let mut is_stuck = false;
        for read in self.reads.iter_mut().filter(|read| read.task == task && read.wanted) {
            is_stuck |= !core::mem::take(&mut read.fresh);
        }
        if is_stuck && self.violation.is_none() {
            let violation = self.breach(Cause::CATASTROPHIC_STREAM);
            self.violation = Some(violation);
            self.settle_left();
            self.events.push_back(Event::Violation(violation));
        }
    }

    fn release(&mut self, id: TaskId) {
        if self.tasks.remove(id).is_some_and(|task| task.had_unsolicited) {
            self.unsolicited.forget(id);
        }
        // Memory that RDMA Reads fill is kept until their end.
        self.abandon(id);
        self.events.push_back(Event::Released { task: id });
    }
}
