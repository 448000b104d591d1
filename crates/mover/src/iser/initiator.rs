// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator's end of an iSER connection: names memory for the target, and believes nothing
//! that it says about tags.
//!
//! Read first: RFC 7145 §7.3.1 (commands), §7.3.2 (the end of a task), §8.3 (STags).

mod output;
mod task;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use buf::Buf;
use buf::Pool;
use buf::Slice;
use iscsi::datamover::Capabilities;
use iscsi::initiator::datamover::Ended;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TASK_SLOTS_MAX;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use iscsi::initiator::datamover::itt;
use iscsi::initiator::datamover::slot;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Registry;
use rdma::mpa::Checks;
use rdma::region::Withdrawn;
use slots::ById;
use wire::iscsi::BHS_LEN;
use wire::iscsi::CmdSn;
use wire::iscsi::DataSn;
use wire::iscsi::Response;
use wire::iscsi::ScsiResponse;
use wire::iser::ISER_LEN;
use wire::iser::ISER_VERSION;
use wire::iser::IserHeader;
use wire::iwarp::Cause;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

pub use self::task::Carried;

use self::output::Item;
use self::task::Task;
use super::CAPABILITIES;
use super::OF_ADAPTERS;
use super::facts::Facts;
use super::message::MESSAGE_LEN_MAX;
use super::message::Parts;
use super::message::parts;
use super::stream::ASKED;
use super::stream::Arrival;
use super::stream::Stream;
use super::unexpected::Unexpected;
use crate::limits::ADAPTER_BUFFERS;

/// The initiator's end of an iSER connection.
///
/// The pump feeds it the bytes of the connection ([`Initiator::feed`], again as long as
/// [`Initiator::has_more`]) and what the core wants ([`Initiator::submit`]), and takes from it what
/// is to be sent ([`Initiator::poll_transmit`]): first of all the request for the connection.
#[derive(Debug)]
pub struct Initiator {
    stream: Stream,
    capabilities: Capabilities,
    keys: Keys,
    violation: Option<Violation>,
    tasks: ById<TaskId, Task>,
    unexpected: Unexpected,
    items: VecDeque<Item>,
    hello: Hello,
    end: End,
    /// Data of the last PDU.
    control: Vec<u8>,
    /// Of the last PDU that told it.
    max_cmd_sn: CmdSn,
    /// For the header of one PDU.
    scratch: Vec<u8>,
}

/// How far the connection has come towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Terminate was asked for: nothing after it is sent.
    Asked,
}

/// How far the exchange has come by which RDMA may begin (RFC 7145 §5.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hello {
    /// There is none, or it is over.
    Over,
    /// Nothing else goes out before,
    Due,
    /// nor before the answer to it.
    Asked,
}

/// What a Terminate says of a message that iSER does not have here (RFC 7145 §10.1.3).
const FORMAT_ERROR: Cause = Cause::UNEXPECTED_OPCODE;

impl Initiator {
    /// What the target is told with the request for a connection over an adapter.
    pub const ASKED: [u8; 4] = ASKED;

    /// In the state before login: [`Keys::LOGIN`]. None if `pool` has no buffer for the messages of
    /// one more connection. `seed`: a number that no other connection has, and no target guesses.
    #[must_use]
    pub fn new(pool: &Pool, seed: u32) -> Option<Self> {
        Self::with_checks(pool, seed, Checks::Crc)
    }

    /// As [`Initiator::new`]; without CRCs if the target does not insist on them.
    #[must_use]
    pub fn with_checks(pool: &Pool, seed: u32, checks: Checks) -> Option<Self> {
        let stream = Stream::initiator(pool.take(MESSAGE_LEN_MAX)?, seed, checks);
        Some(Self::over(stream))
    }

    /// Over an adapter, whose connection stands: the target was told [`Initiator::ASKED`]. The
    /// adapter gets buffers for all that may come; None if `pool` has not so many.
    #[must_use]
    pub fn of_adapter(pool: &Pool, depths: Depths, registry: Box<dyn Registry>) -> Option<Self> {
        let mut stream = Stream::adapter_initiator(depths, registry);
        let count = usize::from(ADAPTER_BUFFERS);
        let has_buffers = stream.provide(count, || pool.take(MESSAGE_LEN_MAX));
        has_buffers.then(|| Self { capabilities: OF_ADAPTERS, ..Self::over(stream) })
    }

    /// What an adapter is to do next, after [`Initiator::poll_transmit`], which has no bytes then.
    pub fn poll_post(&mut self) -> Option<Post> {
        self.stream.poll_post()
    }

    /// An adapter has done something: feed no bytes as long as [`Initiator::has_more`].
    pub fn handle_done(&mut self, done: Done) {
        self.stream.handle_done(done);
    }

    /// Bytes that were given out and have not left.
    #[must_use]
    pub const fn leaving(&self) -> usize {
        self.stream.leaving_len()
    }

    fn over(stream: Stream) -> Self {
        Self {
            stream,
            capabilities: CAPABILITIES,
            keys: Keys::LOGIN,
            violation: None,
            tasks: ById::new(TASK_SLOTS_MAX),
            unexpected: Unexpected::default(),
            items: VecDeque::new(),
            hello: Hello::Over,
            end: End::Open,
            control: Vec::new(),
            max_cmd_sn: CmdSn(0),
            scratch: Vec::new(),
        }
    }

    /// Tells how long segments of TCP are.
    pub fn set_segment_len(&mut self, segment_len: usize) {
        self.stream.set_segment_len(segment_len);
    }

    /// What it can do.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Takes a task out, to go on with it, or send its command again, on another connection. What
    /// the target could reach of it here, it reaches no more.
    pub fn carry(&mut self, task: TaskId) -> Option<Carried> {
        self.end_memory(task);
        self.tasks.remove(task).map(|entry| Carried::new(task, entry))
    }

    /// Takes all tasks out: this connection is gone.
    pub fn carry_all(&mut self) -> Vec<Carried> {
        let all: Vec<TaskId> = self.tasks.iter().map(|(id, _)| id).collect();
        all.into_iter().filter_map(|task| self.carry(task)).collect()
    }

    /// Takes over a task of another connection: its command, or the request to reassign it, names
    /// its memory anew.
    pub fn adopt(&mut self, carried: Carried) {
        let (id, task) = carried.into_task();
        debug_assert!(!self.holds(id), "the task is new");
        self.tasks.open(id, || task);
    }

    /// Takes an op; `Detach` gives the buffer of its task back. `Attach`, `Detach`, `Release`,
    /// `Quiet` and `NoticeKeys` hold at once, the rest in order. After `Terminate` nothing is sent.
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        match op {
            Op::Attach { task, write, read } => {
                self.end_memory(task);
                if let Some(task) = self.tasks.open(task, Task::default) {
                    *task = Task::new(write, read);
                }
            }
            Op::Detach { task } => {
                self.end_memory(task);
                return self.tasks.get_mut(task)?.take_read();
            }
            Op::Release { task } => {
                self.end_memory(task);
                self.tasks.discard(task);
            }
            Op::Quiet { task } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.quiet = true;
                }
            }
            Op::NoticeKeys(keys) => {
                self.unexpected.set_max(keys.unexpected_max);
                if keys.hello && !self.keys.hello {
                    self.hello = Hello::Due;
                }
                self.keys = keys;
            }
            Op::Resegment { .. } => debug_assert!(false, "asked of a mover that has no numbers"),
            Op::Terminate => self.end = End::Asked,
            Op::SendCommand { .. } | Op::SendControl { .. } | Op::Reassign { .. } => {
                if self.end == End::Open {
                    self.items.push_back(Item::Op(op));
                }
            }
        }
        None
    }

    /// Takes bytes up to the next event: how many, and that. After an [`Event::Violation`] every
    /// other call gives the same. After `Terminate` nothing else is told (RFC 5047:
    /// Connection_Terminate).
    pub fn feed(&mut self, bytes: &[u8]) -> (usize, Option<Event>) {
        if let Some(violation) = self.violation {
            return (bytes.len(), Some(Event::Violation(violation)));
        }
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken..).unwrap_or_default();
            let (more, arrival) = self.stream.feed(rest, || None);
            taken += more;
            let Some(arrival) = arrival else { return (taken, None) };
            match self.handle(arrival, rest) {
                Ok(Some(event)) if self.end == End::Open => return (taken, Some(event)),
                Ok(_) => {}
                Err(violation) => {
                    self.violation = Some(violation);
                    return (taken, Some(Event::Violation(violation)));
                }
            }
        }
    }

    /// There is an event of what was fed: feed once more, perhaps nothing.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.violation.is_none() && self.stream.has_more()
    }

    /// Sends an RDMA Write of no bytes, which means nothing, once RDMA has begun: Linux's siw does
    /// not see a first message that comes before siw_accept has looked, until another one comes.
    pub fn nudge(&mut self) {
        self.stream.write(Slice::empty(), Stag(0), TaggedOffset(0));
    }

    /// The data of the last PDU, until the next feed.
    #[must_use]
    pub const fn control_data(&self) -> &[u8] {
        self.control.as_slice()
    }

    /// What was handed out has left.
    pub fn handle_sent(&mut self) {
        self.stream.handle_sent();
    }

    /// Whether a task is here.
    #[must_use]
    pub fn holds(&self, task: TaskId) -> bool {
        self.tasks.get(task).is_some()
    }

    /// How far a task is: a number that changes when the target moves data of it, and when such
    /// data is given out. None if it is not here.
    #[must_use]
    pub fn progress(&self, task: TaskId) -> Option<u64> {
        let task = self.tasks.get(task)?;
        let moved = task.stags().map(|stag| self.stream.moved(stag));
        Some(task.given().saturating_add(moved.sum()))
    }

    /// Tasks that have resources here: zero when all were released.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Payload bytes that were copied.
    #[must_use]
    pub const fn copied(&self) -> u64 {
        self.stream.regions.bytes_placed()
    }

    /// STags that the target may use.
    #[must_use]
    pub fn advertised(&self) -> usize {
        self.stream.named().0
    }

    /// What the connection has agreed on; None: nothing yet, or it is over.
    #[must_use]
    pub fn facts(&self) -> Option<Facts> {
        self.stream.facts()
    }

    /// Asserts what always holds. Looks at every task: for tests and simulation.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check(&self) {
        self.stream.check();
        self.tasks.check();
        let stags: usize = self.tasks.iter().map(|(_, task)| task.stags().count()).sum();
        // A target that ended the wrong one has ended the connection.
        let is_whole = self.violation.is_some() || stags == self.advertised();
        assert!(is_whole, "each STag is a task's");
    }

    /// Sends what no initiator sends.
    #[cfg(test)]
    pub(super) fn submit_raw(&mut self, head: rdma::verbs::Head) {
        self.stream.send(head, Slice::empty(), None);
    }

    /// `given`: the bytes that it came with.
    fn handle(&mut self, arrival: Arrival, given: &[u8]) -> Result<Option<Event>, Violation> {
        match arrival {
            Arrival::Message { invalidated } => self.handle_message(given, invalidated),
            // We ask for nothing.
            Arrival::Read => Ok(None),
            Arrival::Ended(cause) => Err(Violation::Rdma(cause)),
        }
    }

    /// The peer breaks a rule of iSER: the stream ends (RFC 7145 §10.1.3).
    fn breach(&mut self, cause: Cause) -> Violation {
        self.stream.terminate(cause);
        Violation::Rdma(Some(cause))
    }

    fn handle_message(
        &mut self,
        given: &[u8],
        invalidated: Option<(Stag, Withdrawn)>,
    ) -> Result<Option<Event>, Violation> {
        if self.hello == Hello::Asked {
            return self.handle_reply(given);
        }
        let message = self.stream.message(given);
        let (Ok(IserHeader::Control { .. }), Some(parts)) =
            (IserHeader::parse(message), parts(message))
        else {
            return Err(self.breach(FORMAT_ERROR));
        };
        let Parts { header, data } = parts;
        let header = message.get(header).unwrap_or_default();
        let opcode = header.first().copied().unwrap_or_default() & OPCODE;
        let response = Response::parse(header).ok().filter(|_| header.len() == BHS_LEN);
        let limit = self.keys.max_recv_data_segment_length;
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if length > limit {
            return Err(Violation::SegmentTooLong { length, limit });
        }
        self.control.clear();
        self.control.extend_from_slice(message.get(data).unwrap_or_default());
        let response = response.ok_or(Violation::Malformed { opcode })?;
        self.unexpected.note_received(&response);
        match (response, invalidated) {
            (Response::Scsi(response), invalidated) => self.end_task(response, invalidated),
            // Only the end of a task ends memory of ours (RFC 7145 §8.3.2).
            (_, Some(_)) => Err(self.breach(Cause::NOT_INVALIDATED)),
            // Data moves by RDMA alone.
            (Response::DataIn(_) | Response::R2t(_), None) => Err(Violation::Malformed { opcode }),
            (response, None) => Ok(Some(Event::Control { response })),
        }
    }

    /// The answer to our Hello.
    fn handle_reply(&mut self, given: &[u8]) -> Result<Option<Event>, Violation> {
        let message = self.stream.message(given);
        let header = IserHeader::parse(message).ok().filter(|_| message.len() == ISER_LEN);
        match header {
            Some(IserHeader::HelloReply { rejected: false, version: ISER_VERSION, .. }) => {
                self.hello = Hello::Over;
                Ok(None)
            }
            Some(IserHeader::HelloReply { rejected: true, .. }) => Err(Violation::Rdma(None)),
            _ => Err(self.breach(FORMAT_ERROR)),
        }
    }

    /// A SCSI command has ended: what it named is gone before anybody hears of that (RFC 7145
    /// §8.3.2).
    fn end_task(
        &mut self,
        mut response: ScsiResponse,
        invalidated: Option<(Stag, Withdrawn)>,
    ) -> Result<Option<Event>, Violation> {
        let found = slot(response.itt).and_then(|index| self.tasks.at_mut(index));
        let found = found.filter(|(id, task)| task.begun && itt(*id) == response.itt);
        let Some((id, task)) = found else {
            return match invalidated {
                Some(_) => Err(self.breach(Cause::NOT_INVALIDATED)),
                None if self.keys.strays => Ok(Some(Event::Stray(response.numbers))),
                None => Err(Violation::UnknownTask(response.itt)),
            };
        };
        let is_own = match invalidated {
            Some((stag, withdrawn)) => task.invalidated(stag, withdrawn),
            None => true,
        };
        if !is_own {
            return Err(self.breach(Cause::NOT_INVALIDATED));
        }
        task.end_memory(&mut self.stream);
        let received = task.received();
        self.max_cmd_sn = response.numbers.max_cmd_sn;
        response.exp_data_sn = DataSn(0);
        Ok(Some(Event::Ended(Ended { task: id, response, received, damaged: false })))
    }

    /// The target reaches nothing of a task any more.
    fn end_memory(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.end_memory(&mut self.stream);
    }
}

/// The bits of the first byte of a header that are its opcode.
const OPCODE: u8 = 0x3f;
