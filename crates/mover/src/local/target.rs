// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target's half of a local connection.
//!
//! Read first: RFC 7143 §11.3 (immediate data), §11.7 (data), §11.8 (R2T).
//!
//! Ops are carried out strictly in order. Some say nothing to the other half (*silent*: Release,
//! NoticeKeys, Terminate); they take effect as soon as everything before them was given out, so
//! none ever waits at the head of the queue.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use buf::Buf;
use buf::Pool;
use buf::Slice;
use iscsi::datamover::Capabilities;
use iscsi::datamover::DataError;
use iscsi::datamover::Event;
use iscsi::datamover::Immediate;
use iscsi::datamover::Keys;
use iscsi::datamover::Op;
use iscsi::datamover::StreamViolation;
use iscsi::datamover::TaskId;
use slots::ById;
use wire::iscsi::BHS_LEN;
use wire::iscsi::Cdb;
use wire::iscsi::DataOut;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::ParseError;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::StatSn;

use super::CAPABILITIES;
use super::bursts::Burst;
use super::bursts::Bursts;
use super::bursts::Kind;
use super::message::Data;
use super::message::Get;
use super::message::Put;
use super::message::ToInitiator;
use super::message::ToTarget;
use super::sound::read_request;
use super::sound::write_header;
use crate::counters::Counters;
use crate::limits::TASKS_MAX;
use crate::staging::stage;

/// Reject reason "Protocol Error" (RFC 7143 §11.17.1).
const PROTOCOL_ERROR: u8 = 0x04;

/// Reject reason "Invalid PDU field" (RFC 7143 §11.17.1).
const INVALID_PDU_FIELD: u8 = 0x09;

/// The target's half of a local connection.
///
/// The pump gives it what came ([`Target::receive`], then [`Target::resume`] until that has
/// nothing) and what the core wants ([`Target::submit`]), and takes from it what is to go to the
/// other half ([`Target::poll_message`]) and what was released by that ([`Target::poll_event`]).
#[derive(Debug)]
pub struct Target {
    keys: Keys,
    /// Nothing has come yet: only a Login Request may begin a connection.
    first: bool,
    violation: Option<StreamViolation>,
    tasks: ById<TaskId, Task>,
    bursts: Bursts,
    ops: VecDeque<Op>,
    /// Bytes that wait in `ops`.
    queued: usize,
    events: VecDeque<Event>,
    end: End,
    /// Header of the last message, as a PDU would have it.
    header: Vec<u8>,
    /// Data of the last control message.
    control: Vec<u8>,
    /// A command whose immediate data found no buffer.
    short: Option<(ScsiCommand, Slice)>,
    /// ExpStatSN of the last data, until it is taken.
    acknowledged: Option<StatSn>,
    counters: Counters,
}

/// What is kept of one task.
#[derive(Debug, Default)]
struct Task {
    /// Filled by the initiator's data; byte 0 is byte 0 of its buffer.
    buf: Option<Buf>,
    /// Data was expected: only then does the end of the task look at the bursts.
    had_bursts: bool,
}

/// How far the connection has come towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Terminate was asked for: nothing after it is sent.
    Asked,
    /// Everything before Terminate was given out.
    Reached,
}

/// What became of the first op of the queue.
enum Outcome {
    Message(ToInitiator),
    Nothing,
    /// As many bursts are open as may be: the rest comes later.
    Waits(Op),
}

impl Default for Target {
    fn default() -> Self {
        Self {
            keys: Keys::LOGIN,
            first: true,
            violation: None,
            tasks: ById::new(TASKS_MAX),
            bursts: Bursts::default(),
            ops: VecDeque::new(),
            queued: 0,
            events: VecDeque::new(),
            end: End::Open,
            header: Vec::new(),
            control: Vec::new(),
            short: None,
            acknowledged: None,
            counters: Counters::default(),
        }
    }
}

impl Target {
    /// In the state before login: [`Keys::LOGIN`].
    pub fn new() -> Self {
        Self::default()
    }

    /// What it can do.
    pub const fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    /// Takes a message. After a [`Event::Violation`] every other one gives the same violation.
    pub fn receive(&mut self, message: ToTarget, pool: &Pool) -> Option<Event> {
        debug_assert!(self.short.is_none(), "resume was called until there was nothing");
        if let Some(violation) = self.violation {
            return Some(Event::Violation(violation));
        }
        self.control.clear();
        self.counters.bytes_in += message.data_len() as u64;
        let event = match self.refusal(&message) {
            Some(violation) => Err(violation),
            None => Ok(match message {
                ToTarget::Control { request, data } => Some(self.take_control(&request, data)),
                ToTarget::Command { command, data } => Some(self.take_command(command, data, pool)),
                ToTarget::Data(data) => self.take_data(&data),
            }),
        };
        event.unwrap_or_else(|violation| {
            self.violation = Some(violation);
            Some(Event::Violation(violation))
        })
    }

    /// The second event of a message: after [`Event::NoBuffer`] the command, whoever was told may
    /// have made room.
    pub fn resume(&mut self, pool: &Pool) -> Option<Event> {
        let (command, data) = self.short.take()?;
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let immediate = match stage(&command, length, pool) {
            Some(buf) => self.staged(buf, &data),
            None => Immediate::Exhausted { length },
        };
        Some(Event::Control { request: Request::Command(command), immediate })
    }

    /// Header (BHS and AHS) of the last message, as a PDU would have it.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Data of the last control message, until the next one.
    pub fn control_data(&self) -> &[u8] {
        &self.control
    }

    /// ExpStatSN of the last data since this was asked last: such messages carry an acknowledgement
    /// like all others (RFC 7143 §4.2.2.2), and nobody above hears of them one by one.
    pub const fn take_acknowledged(&mut self) -> Option<StatSn> {
        self.acknowledged.take()
    }

    /// Takes an op; `Detach` gives the buffer of its task back. What concerns receiving (`Attach`,
    /// `Detach`, `ExpectUnsolicited`, `Abandon`, `Forget`, `Suspend`, `Overdue`, `NoticeKeys`)
    /// holds at once, the rest in order. After `Terminate` of what is sent only `Release` has an
    /// effect.
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        match op {
            Op::Attach { task, buf } => {
                if let Some(task) = self.tasks.open(task, Task::default) {
                    task.buf = Some(buf);
                }
            }
            Op::Detach { task } => return self.tasks.get_mut(task)?.buf.take(),
            Op::ExpectUnsolicited { task, itt, offset, length, discard, .. } => {
                let kind = if discard { Kind::Discard } else { Kind::Unsolicited };
                let opened = self.expect(Burst { kind, task, itt, offset, length });
                debug_assert!(opened.is_some(), "more than the command window allows");
            }
            Op::Abandon { task } => {
                self.abandon(task);
                self.drop_ops(|op| matches!(op, Op::GetData { task: of, .. } if *of == task));
            }
            Op::Suspend { task, itt } => {
                self.abandon(task);
                self.drop_ops(|op| is_of(op, task, itt));
            }
            Op::Overdue { task } => self.bursts.overdue(task, &mut self.events),
            Op::Forget { task } => self.bursts.forget(task),
            // No command names memory.
            Op::Unname { .. } => {}
            // No message looks different with other keys.
            Op::NoticeKeys(keys) => self.keys = keys,
            Op::PutNumbered(_) | Op::GetNumbered(_) | Op::AskAgain(_) => {
                debug_assert!(false, "asked of a mover that has no numbers");
            }
            Op::Release { .. } => self.queue(op),
            op if self.end == End::Open => self.queue(op),
            Op::SendControl { .. } | Op::PutData { .. } | Op::GetData { .. } | Op::Terminate => {}
        }
        None
    }

    /// The next message to the other half; None if there is nothing. None with a `backlog` also
    /// means that as many bursts are open as may be: ask again after the next `receive`.
    pub fn poll_message(&mut self) -> Option<ToInitiator> {
        loop {
            let op = self.ops.pop_front()?;
            let weight = weight(&op);
            let outcome = self.carry_out(op);
            if let Outcome::Waits(op) = outcome {
                self.ops.push_front(op);
                return None;
            }
            self.queued -= weight;
            self.run_silent();
            if let Outcome::Message(message) = outcome {
                self.counters.bytes_out += message.data_len() as u64;
                return Some(message);
            }
        }
    }

    /// Events that `submit` and `poll_message` made (Released, and what is overdue).
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Everything was given out and a Terminate op was reached: close the connection.
    pub fn is_terminated(&self) -> bool {
        self.end == End::Reached
    }

    /// Bytes that wait to be given out, with something for each message.
    pub fn backlog(&self) -> usize {
        self.queued
    }

    /// Tasks that have resources here: zero when all were released.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Bursts that are open and not abandoned: zero when all tasks were released.
    pub fn open_bursts(&self) -> usize {
        self.bursts.open_count()
    }

    /// Bursts of aborted tasks whose data has not come.
    pub fn abandoned_bursts(&self) -> usize {
        self.bursts.abandoned_count()
    }

    /// What this connection has counted: messages where there are no PDUs, and of bytes those of
    /// data.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Asserts what always holds. Looks at every op, task and burst: for tests and simulation.
    pub fn check(&self) {
        self.tasks.check();
        self.bursts.check();
        assert_eq!(self.queued, self.ops.iter().map(weight).sum::<usize>(), "bytes queued");
        assert!(!self.ops.front().is_some_and(is_silent), "silent ops never wait");
    }

    /// What breaks the connection, before anything is made of it.
    fn refusal(&mut self, message: &ToTarget) -> Option<StreamViolation> {
        let is_login = matches!(message, ToTarget::Control { request: Request::Login(_), .. });
        if self.first && !is_login {
            return Some(StreamViolation::NotLogin);
        }
        self.first = false;
        let limit = self.keys.max_recv_data_segment_length;
        let length = u32::try_from(message.data_len()).unwrap_or(u32::MAX);
        // A burst is as long as it was asked for.
        let is_burst = matches!(message, ToTarget::Data(_));
        let is_too_long = !is_burst && length > limit;
        is_too_long.then_some(StreamViolation::SegmentTooLong { length, limit })
    }

    fn take_control(&mut self, request: &Request, data: Vec<u8>) -> Event {
        let reason = match read_request(request, &data, &mut self.header) {
            // What a task brings has messages of its own.
            Ok(Request::Command(_) | Request::DataOut(_)) => PROTOCOL_ERROR,
            Ok(request) => {
                self.counters.pdus_in.count(&request);
                self.control = data;
                return Event::Control { request, immediate: Immediate::None };
            }
            Err(error) => error.reject_reason(),
        };
        self.counters.pdus_in.malformed += 1;
        Event::Rejected { reason }
    }

    fn take_command(&mut self, command: ScsiCommand, data: Slice, pool: &Pool) -> Event {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        write_header(&Request::Command(command), data.len(), &mut self.header);
        if let Err(error) = check(&command) {
            self.counters.pdus_in.malformed += 1;
            return Event::Rejected { reason: error.reject_reason() };
        }
        self.counters.pdus_in.scsi_command += 1;
        if length == 0 {
            let request = Request::Command(command);
            return Event::Control { request, immediate: Immediate::None };
        }
        let Some(buf) = stage(&command, length, pool) else {
            self.short = Some((command, data));
            return Event::NoBuffer;
        };
        let immediate = self.staged(buf, &data);
        Event::Control { request: Request::Command(command), immediate }
    }

    fn staged(&mut self, mut buf: Buf, data: &Slice) -> Immediate {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let Some(place) = buf.get_mut(..data.len()) else {
            debug_assert!(false, "a staged buffer has room for the data");
            return Immediate::Exhausted { length };
        };
        data.copy_to(place);
        self.counters.bytes_copied += u64::from(length);
        Immediate::Staged { data: buf, length }
    }

    fn take_data(&mut self, message: &Data) -> Option<Event> {
        self.counters.pdus_in.data_out += 1;
        self.acknowledged = Some(message.exp_stat_sn);
        let Data { itt, ttt, exp_stat_sn, offset, ref data } = *message;
        let Some((burst, wanted)) = self.bursts.answered(message) else {
            let (final_, lun, data_sn) = (true, LunField::default(), DataSn(0));
            let pdu = DataOut { final_, lun, itt, ttt, exp_stat_sn, data_sn, offset };
            write_header(&Request::DataOut(pdu), data.len(), &mut self.header);
            return Some(Event::Rejected { reason: INVALID_PDU_FIELD });
        };
        wanted.then(|| burst.result(self.land(&burst, message)))
    }

    /// Puts the data of a burst into the buffer of its task; the first thing that is wrong.
    fn land(&mut self, burst: &Burst, message: &Data) -> Option<DataError> {
        let Data { offset, ref data, .. } = *message;
        if offset != burst.offset {
            return Some(DataError::Sequence);
        }
        if data.len() != burst.length as usize {
            return Some(DataError::Amount);
        }
        if burst.kind == Kind::Discard {
            return None;
        }
        let start = offset as usize;
        let buf = self.tasks.get_mut(burst.task).and_then(|task| task.buf.as_mut());
        let end = start.checked_add(data.len());
        let Some(place) = buf.zip(end).and_then(|(buf, end)| buf.get_mut(start..end)) else {
            return Some(DataError::Amount);
        };
        data.copy_to(place);
        self.counters.bytes_copied += data.len() as u64;
        None
    }

    fn expect(&mut self, burst: Burst) -> Option<wire::iscsi::Ttt> {
        self.tasks.open(burst.task, Task::default)?.had_bursts = true;
        self.bursts.open(burst)
    }

    fn abandon(&mut self, task: TaskId) {
        if self.tasks.get(task).is_some_and(|task| task.had_bursts) {
            self.bursts.abandon(task);
        }
    }

    fn release(&mut self, id: TaskId) {
        if self.tasks.remove(id).is_some_and(|task| task.had_bursts) {
            self.bursts.close(id);
        }
        self.events.push_back(Event::Released { task: id });
    }

    fn queue(&mut self, op: Op) {
        if matches!(op, Op::Terminate) {
            self.end = End::Asked;
        }
        self.queued += weight(&op);
        self.ops.push_back(op);
        self.run_silent();
    }

    fn drop_ops(&mut self, goes: impl Fn(&Op) -> bool) {
        self.ops.retain(|op| !goes(op));
        self.queued = self.ops.iter().map(weight).sum();
        self.run_silent();
    }

    /// Carries out silent ops at the head of the queue.
    fn run_silent(&mut self) {
        while self.ops.front().is_some_and(is_silent) {
            match self.ops.pop_front() {
                Some(Op::Release { task }) => self.release(task),
                _ => self.end = End::Reached,
            }
        }
    }

    fn carry_out(&mut self, op: Op) -> Outcome {
        match op {
            Op::SendControl { mut response, data, .. } => {
                self.counters.pdus_out.count(&response);
                if let Response::Scsi(response) = &mut response {
                    response.exp_data_sn = DataSn(0);
                    return Outcome::Message(ToInitiator::Status {
                        response: *response,
                        sense: data,
                    });
                }
                Outcome::Message(ToInitiator::Control { response, data })
            }
            Op::PutData { data, status: None, .. } if data.is_empty() => Outcome::Nothing,
            Op::PutData { itt, data, offset, numbers, status, .. } => {
                self.counters.pdus_out.data_in += 1;
                Outcome::Message(ToInitiator::Put(Put { itt, offset, data, numbers, status }))
            }
            Op::GetData { length: 0, .. } => Outcome::Nothing,
            Op::GetData { task, itt, lun, offset, length, numbers } => {
                let burst = Burst { kind: Kind::Solicited, task, itt, offset, length };
                let Some(ttt) = self.expect(burst) else { return Outcome::Waits(op) };
                self.counters.pdus_out.r2t += 1;
                let get = Get { itt, ttt, lun, offset, length, numbers };
                Outcome::Message(ToInitiator::Get(get))
            }
            _ => Outcome::Nothing,
        }
    }
}

/// What a parser would have refused (RFC 7143 §11.3).
fn check(command: &ScsiCommand) -> Result<(), ParseError> {
    if command.itt == Itt::NONE {
        return Err(ParseError::ReservedValue { field: "ITT", value: command.itt.0 });
    }
    if command.cdb.len > Cdb::LEN_MAX {
        return Err(ParseError::Inconsistent { what: "a cdb that no header has room for" });
    }
    command.check()
}

/// What `Suspend` drops.
fn is_of(op: &Op, task: TaskId, itt: Itt) -> bool {
    match op {
        Op::PutData { task: of, .. } | Op::GetData { task: of, .. } => *of == task,
        Op::SendControl { response: Response::Scsi(response), .. } => response.itt == itt,
        _ => false,
    }
}

const fn is_silent(op: &Op) -> bool {
    matches!(op, Op::Release { .. } | Op::Terminate)
}

/// Bytes that an op adds to the backlog: its data, and of each message what a header would have.
fn weight(op: &Op) -> usize {
    match op {
        Op::SendControl { data, .. } => BHS_LEN + data.len(),
        Op::PutData { data, .. } => BHS_LEN + data.len(),
        Op::GetData { .. } => BHS_LEN,
        _ => 0,
    }
}
