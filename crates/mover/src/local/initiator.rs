// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator's half of a local connection: places data, answers what asks for data, and
//! believes nothing that a target says about lengths, offsets and tags.
//!
//! Read first: RFC 7143 §11.7 (data), §11.8 (R2T), §4.2.5.2 (unsolicited data).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use buf::Buf;
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
use slots::ById;
use wire::iscsi::CmdSn;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::Residual;
use wire::iscsi::ScsiCommand;
use wire::iscsi::ScsiResponse;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

use super::CAPABILITIES;
use super::message::Data;
use super::message::Get;
use super::message::Put;
use super::message::ToInitiator;
use super::message::ToTarget;
use super::sound::read_response;
use crate::stamp::stamp;

/// The initiator's half of a local connection.
///
/// The pump gives it what came ([`Initiator::receive`]) and what the core wants
/// ([`Initiator::submit`]), and takes from it what is to go to the other half
/// ([`Initiator::poll_message`]).
#[derive(Debug)]
pub struct Initiator {
    keys: Keys,
    violation: Option<Violation>,
    tasks: ById<TaskId, Task>,
    items: VecDeque<Item>,
    end: End,
    /// Data of the last control message, or sense data.
    control: Vec<u8>,
    /// Of the last message that told it.
    max_cmd_sn: CmdSn,
    /// Payload bytes that were copied.
    copied: u64,
}

/// What waits to be sent.
#[derive(Debug)]
enum Item {
    Op(Op),
    Burst(Burst),
}

/// Data that goes to the target, unasked or asked for.
#[derive(Clone, Copy, Debug)]
struct Burst {
    task: TaskId,
    ttt: Ttt,
    offset: u32,
    end: u32,
}

/// How far the connection has come towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Terminate was asked for: nothing after it is sent.
    Asked,
    /// Everything before Terminate is on its way.
    Reached,
}

/// What is kept of one task.
#[derive(Debug, Default)]
struct Task {
    /// Sent to the target; byte 0 is byte 0 of the command's buffer.
    write: Option<Slice>,
    read: Option<Buf>,
    /// Bytes that the command sends, and that it may get; zero until it is on its way.
    out_len: u32,
    in_len: u32,
    /// The unit that its command names.
    lun: LunField,
    /// Bytes that were placed, without a gap.
    received: u32,
    /// Where the next request for data may begin at the earliest.
    asked: u32,
    /// Where the data that was given out so far ends.
    given: u32,
    /// Requests for data that were not answered.
    open: u16,
    begun: bool,
    /// Nothing more is sent for it.
    quiet: bool,
}

impl Default for Initiator {
    fn default() -> Self {
        Self {
            keys: Keys::LOGIN,
            violation: None,
            tasks: ById::new(TASK_SLOTS_MAX),
            items: VecDeque::new(),
            end: End::Open,
            control: Vec::new(),
            max_cmd_sn: CmdSn(0),
            copied: 0,
        }
    }
}

impl Initiator {
    /// In the state before login: [`Keys::LOGIN`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What it can do.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    /// Takes an op; `Detach` gives the buffer of its task back. `Attach`, `Detach`, `Release`,
    /// `Quiet` and `NoticeKeys` hold at once, the rest in order. After `Terminate` nothing is sent.
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        match op {
            Op::Attach { task, write, read } => self.attach(task, write, read),
            Op::Detach { task } => return self.tasks.get_mut(task)?.read.take(),
            Op::Release { task } => {
                self.tasks.discard(task);
            }
            Op::Quiet { task } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.quiet = true;
                }
            }
            // No message looks different with other keys.
            Op::NoticeKeys(keys) => self.keys = keys,
            Op::Reassign { .. } | Op::Resegment { .. } => {
                debug_assert!(false, "asked of a mover that has no numbers");
            }
            Op::Terminate if self.end == End::Open => {
                self.end = End::Asked;
                self.look_for_end();
            }
            Op::SendCommand { .. } | Op::SendControl { .. } if self.end == End::Open => {
                if let Op::SendCommand { task, command, .. } = &op
                    && let Some(task) = self.tasks.get_mut(*task)
                {
                    task.begin(command);
                }
                self.items.push_back(Item::Op(op));
            }
            Op::Terminate | Op::SendCommand { .. } | Op::SendControl { .. } => {}
        }
        None
    }

    fn attach(&mut self, id: TaskId, write: Option<Slice>, read: Option<Buf>) {
        if let Some(task) = self.tasks.open(id, Task::default) {
            *task = Task { write, read, ..Task::default() };
        }
    }

    /// Takes a message. After an [`Event::Violation`] every other one gives the same violation.
    pub fn receive(&mut self, message: ToInitiator) -> Option<Event> {
        let event = match self.violation {
            Some(violation) => Err(violation),
            None => self.take(message),
        };
        event.unwrap_or_else(|violation| {
            self.violation = Some(violation);
            Some(Event::Violation(violation))
        })
    }

    fn take(&mut self, message: ToInitiator) -> Result<Option<Event>, Violation> {
        let (length, limit) = (message.data_len(), self.keys.max_recv_data_segment_length);
        let is_control = !matches!(message, ToInitiator::Put(_));
        if is_control && length > limit as usize {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            return Err(Violation::SegmentTooLong { length, limit });
        }
        match message {
            ToInitiator::Control { response, data } => {
                let opcode = response.opcode();
                let response = read_response(&response, &data);
                let response = response.ok_or(Violation::Malformed { opcode })?;
                self.control = data;
                Ok(Some(Event::Control { response }))
            }
            ToInitiator::Status { response, sense } => {
                self.control = sense;
                self.end_task(response)
            }
            ToInitiator::Put(put) => self.place(put),
            ToInitiator::Get(get) => self.answer(get),
        }
    }

    /// The data of the last control message, or the sense data of the last status, until the next
    /// message.
    #[must_use]
    pub fn control_data(&self) -> &[u8] {
        &self.control
    }

    /// The next message to the other half; None if there is nothing. It carries `exp_stat_sn`, the
    /// core's newest.
    pub fn poll_message(&mut self, exp_stat_sn: StatSn) -> Option<ToTarget> {
        let message = loop {
            let Some(item) = self.items.pop_front() else { break None };
            let message = match item {
                Item::Op(op) => self.message_of(op, exp_stat_sn),
                Item::Burst(burst) => self.data_of(burst, exp_stat_sn),
            };
            if message.is_some() {
                break message;
            }
        };
        self.look_for_end();
        message
    }

    /// Everything was given out and a Terminate op was reached: close the connection.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.end == End::Reached
    }

    /// Whether a task is here.
    #[must_use]
    pub fn holds(&self, task: TaskId) -> bool {
        self.tasks.get(task).is_some()
    }

    /// How far a task is: a number that changes when the target sends data of it or asks for some,
    /// and when such data is given out. None if it is not here.
    #[must_use]
    pub fn progress(&self, task: TaskId) -> Option<u64> {
        self.tasks.get(task).map(Task::progress)
    }

    /// Tasks that have resources here: zero when all were released.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Payload bytes that were copied.
    #[must_use]
    pub const fn copied(&self) -> u64 {
        self.copied
    }

    /// Asserts what always holds. Looks at every task: for tests and simulation.
    pub fn check(&self) {
        self.tasks.check();
        for task in self.tasks.iter().map(|(_, task)| task) {
            assert!(task.received <= task.in_len, "data lies in the buffer");
            assert!(task.asked <= task.out_len, "what was asked for lies in the buffer");
            assert!(task.given <= task.out_len, "what was given lies in the buffer");
        }
        let waits = self.end == End::Asked;
        assert!(!waits || !self.items.is_empty(), "the end waits for something");
    }

    fn look_for_end(&mut self) {
        if self.end == End::Asked && self.items.is_empty() {
            self.end = End::Reached;
        }
    }

    fn message_of(&mut self, op: Op, exp_stat_sn: StatSn) -> Option<ToTarget> {
        match op {
            Op::SendControl { mut request, data } => {
                stamp(&mut request, exp_stat_sn);
                Some(ToTarget::Control { request, data })
            }
            Op::SendCommand { task: id, mut command, immediate, unsolicited_end } => {
                let task = self.tasks.get_mut(id)?;
                command.exp_stat_sn = exp_stat_sn;
                if immediate < unsolicited_end {
                    let (ttt, offset, end) = (Ttt::NONE, immediate, unsolicited_end);
                    self.items.push_front(Item::Burst(Burst { task: id, ttt, offset, end }));
                }
                let data = task.part(0, immediate).unwrap_or_default();
                Some(ToTarget::Command { command, data })
            }
            _ => None,
        }
    }

    /// The data of a burst. A task that has ended sends nothing more.
    fn data_of(&mut self, burst: Burst, exp_stat_sn: StatSn) -> Option<ToTarget> {
        let Burst { task: id, ttt, offset, end } = burst;
        let task = self.tasks.get_mut(id).filter(|task| !task.quiet)?;
        let data = task.part(offset, end);
        debug_assert!(data.is_some(), "a burst lies in the buffer");
        let data = data?;
        task.given = task.given.max(end);
        if ttt != Ttt::NONE {
            task.open = task.open.saturating_sub(1);
        }
        Some(ToTarget::Data(Data { itt: itt(id), ttt, exp_stat_sn, offset, data }))
    }

    /// A SCSI command has ended with a status of its own.
    fn end_task(&mut self, mut response: ScsiResponse) -> Result<Option<Event>, Violation> {
        let Some((id, task)) = self.find(response.itt)? else {
            return Ok(Some(Event::Stray(response.numbers)));
        };
        let received = task.received;
        self.max_cmd_sn = response.numbers.max_cmd_sn;
        response.exp_data_sn = DataSn(0);
        Ok(Some(Event::Ended(Ended { task: id, response, received, damaged: false })))
    }

    /// Data for the buffer of a command: it comes in order, whatever was negotiated.
    fn place(&mut self, put: Put) -> Result<Option<Event>, Violation> {
        let Put { itt, offset, data, numbers, status } = put;
        let Some((id, task)) = self.find(itt)? else {
            return match status {
                Some(_) => Ok(Some(Event::Stray(numbers))),
                None => Ok(self.window(numbers)),
            };
        };
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let buffer = task.in_len;
        let end = offset.checked_add(length).filter(|end| *end <= buffer);
        let end = end.ok_or(Violation::Range { offset, length, buffer })?;
        if offset != task.received && length > 0 {
            return Err(Violation::Offset { offset, expected: task.received });
        }
        // A task that ends gives its buffer back first.
        let read = task.read.as_mut().and_then(|buf| buf.get_mut(offset as usize..end as usize));
        let copied = read.map_or(0, |read| {
            data.copy_to(read);
            u64::from(length)
        });
        if length > 0 {
            task.received = end;
        }
        let received = task.received;
        self.copied += copied;
        let Some(status) = status else { return Ok(self.window(numbers)) };
        self.max_cmd_sn = numbers.max_cmd_sn;
        let response = ScsiResponse {
            response: 0,
            status: status.status,
            status_qualifier: 0,
            itt,
            snack_tag: 0,
            numbers,
            exp_data_sn: DataSn(0),
            bidi_read_residual: Residual::None,
            residual: status.residual,
        };
        self.control.clear();
        Ok(Some(Event::Ended(Ended { task: id, response, received, damaged: false })))
    }

    /// A request for data.
    fn answer(&mut self, get: Get) -> Result<Option<Event>, Violation> {
        let keys = self.keys;
        if let Some((id, task)) = self.find(get.itt)? {
            let end = task.ask(&get, &keys)?;
            let Get { ttt, offset, .. } = get;
            if self.end == End::Open {
                self.items.push_back(Item::Burst(Burst { task: id, ttt, offset, end }));
            }
        }
        Ok(self.window(get.numbers))
    }

    /// The task that a message belongs to; None for one that has ended, where such may come.
    fn find(&mut self, tag: Itt) -> Result<Option<(TaskId, &mut Task)>, Violation> {
        let found = slot(tag).and_then(|index| self.tasks.at_mut(index));
        match found.filter(|(id, task)| task.begun && itt(*id) == tag) {
            Some(found) => Ok(Some(found)),
            None if self.keys.strays => Ok(None),
            None => Err(Violation::UnknownTask(tag)),
        }
    }

    /// Told only where it changes, so that most data needs no event.
    fn window(&mut self, numbers: Numbers) -> Option<Event> {
        if numbers.max_cmd_sn == self.max_cmd_sn {
            return None;
        }
        self.max_cmd_sn = numbers.max_cmd_sn;
        Some(Event::Window(numbers))
    }
}

impl Task {
    /// The command goes out: what it may transfer is bounded by its buffers, too.
    fn begin(&mut self, command: &ScsiCommand) {
        let bounded = |wanted: bool, length: Option<usize>| {
            let length = length.and_then(|length| u32::try_from(length).ok()).unwrap_or(0);
            if wanted { command.expected_length.min(length) } else { 0 }
        };
        self.out_len = bounded(command.write, self.write.as_ref().map(Slice::len));
        self.in_len = bounded(command.read, self.read.as_ref().map(|buf| buf.len()));
        self.lun = command.lun;
        self.begun = true;
    }

    /// Whether data may be asked for now; returns where it ends.
    fn ask(&mut self, get: &Get, keys: &Keys) -> Result<u32, Violation> {
        let Get { lun, offset, length, .. } = *get;
        if lun != self.lun {
            return Err(Violation::R2tUnit);
        }
        let range = Violation::R2tRange { offset, length, buffer: self.out_len };
        let end = offset.checked_add(length).filter(|end| *end <= self.out_len).ok_or(range)?;
        let is_empty = length == 0 || get.ttt == Ttt::NONE;
        if is_empty || length > keys.max_burst_length || offset < self.asked {
            return Err(range);
        }
        if self.open >= keys.max_outstanding_r2t {
            return Err(Violation::TooManyR2ts(keys.max_outstanding_r2t));
        }
        self.asked = end;
        self.open += 1;
        Ok(end)
    }

    fn part(&self, from: u32, to: u32) -> Option<Slice> {
        self.write.as_ref()?.part(from as usize..to as usize)
    }

    fn progress(&self) -> u64 {
        u64::from(self.received) + u64::from(self.asked) + u64::from(self.given)
    }
}
