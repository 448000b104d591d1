// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ops to gather lists: which goes when, and what is told once it has left. `pdus` knows what each
//! looks like on the wire.
//!
//! Ops are carried out strictly in order. Some have nothing to send (*silent*: Release, NoticeKeys,
//! Terminate); they take effect as soon as everything before them is on its way, so none ever waits
//! at the head of the queue.

mod pdus;

pub(super) use pdus::{part, push_trailer};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use buf::SgList;
use iscsi::datamover::{Event, Keys, Op, TaskId};
use wire::iscsi::{BHS_LEN, Itt, Response};

use super::Framing;
use super::marker::{Digests, Inserter};
use super::task::Tasks;
use crate::counters::Counters;
use crate::limits::{PIECES_PER_PDU, TRANSMIT_BYTES_MAX, TRANSMIT_PIECES_MAX};

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Tx {
    keys: Keys,
    /// Some where the stream has markers.
    markers: Option<Inserter>,
    /// The last list has them: the one before they begin may end as they do.
    is_marked: bool,
    /// Bytes of all lists so far.
    position: u64,
    ops: VecDeque<Op>,
    /// Bytes of the first op, a PutData, that are on their way already.
    progress: u32,
    /// Bytes that wait in `ops`, and those of them that are of messages.
    queued: usize,
    queued_messages: usize,
    /// Bytes of the list that is under way.
    under_way: usize,
    sending: bool,
    /// Tasks that are free once the list under way has left.
    leaving: Vec<TaskId>,
    events: VecDeque<Event>,
    end: End,
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

/// What the sender works with besides itself.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) tasks: &'a mut Tasks,
    pub(super) counters: &'a mut Counters,
}

/// What became of the first op of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    /// The list is full, or a slot for a burst is missing: the rest comes with a later list.
    Waits,
}

impl Tx {
    pub(super) fn new() -> Self {
        Self {
            keys: Keys::LOGIN,
            markers: None,
            is_marked: false,
            position: 0,
            ops: VecDeque::new(),
            progress: 0,
            queued: 0,
            queued_messages: 0,
            under_way: 0,
            sending: false,
            leaving: Vec::new(),
            events: VecDeque::new(),
            end: End::Open,
        }
    }

    /// Takes an op that may send something. `Attach`, `ExpectUnsolicited`, `Abandon` and their like
    /// are for the receiving side.
    pub(super) fn submit(&mut self, op: Op, tasks: &mut Tasks) {
        match op {
            Op::Release { .. } => {}
            _ if self.end != End::Open => return,
            Op::Terminate => self.end = End::Asked,
            _ => {}
        }
        self.queued += weight(&op);
        self.queued_messages += message_weight(&op);
        self.ops.push_back(op);
        if !self.sending {
            self.run_silent(tasks);
            self.flush_leaving();
        }
    }

    /// Drops what an aborted task still wanted to ask for.
    pub(super) fn abandon(&mut self, task: TaskId, tasks: &mut Tasks) {
        self.forget(tasks, |op| match op {
            Op::GetData { task: of, .. } => *of == task,
            Op::GetNumbered(get) | Op::AskAgain(get) => get.task == task,
            _ => false,
        });
    }

    /// Drops all that is queued for a task that leaves this connection.
    pub(super) fn suspend(&mut self, task: TaskId, itt: Itt, tasks: &mut Tasks) {
        let goes = |op: &Op| match op {
            Op::PutNumbered(put) => put.task == task,
            Op::GetNumbered(get) | Op::AskAgain(get) => get.task == task,
            Op::SendControl { response: Response::Scsi(response), .. } => response.itt == itt,
            _ => false,
        };
        if self.ops.front().is_some_and(goes) {
            self.progress = 0;
        }
        self.forget(tasks, goes);
    }

    fn forget(&mut self, tasks: &mut Tasks, goes: impl Fn(&Op) -> bool) {
        self.ops.retain(|op| !goes(op));
        self.queued = self.ops.iter().map(weight).sum();
        self.queued_messages = self.ops.iter().map(message_weight).sum();
        if !self.sending {
            self.run_silent(tasks);
            self.flush_leaving();
        }
    }

    /// Tells of each burst of a task to which nothing has come for too long.
    pub(super) fn look_for_overdue(&mut self, task: TaskId, tasks: &mut Tasks) {
        tasks.bursts.overdue(task, &mut self.events);
    }

    /// See `Tcp::poll_transmit`.
    pub(super) fn poll(&mut self, list: &mut SgList, mut context: Context<'_>) -> bool {
        if self.sending {
            return false;
        }
        list.clear();
        while has_room(list) {
            let Some(mut op) = self.ops.pop_front() else { break };
            let (weight, of_message) = (weight(&op), message_weight(&op));
            if self.carry_out(&mut op, list, &mut context) == Progress::Waits {
                self.ops.push_front(op);
                break;
            }
            self.queued -= weight;
            self.queued_messages -= of_message;
            self.progress = 0;
        }
        self.is_marked = self.markers.is_some();
        if let Some(markers) = &mut self.markers {
            let digests = Digests { header: self.keys.header_digest, data: self.keys.data_digest };
            markers.mark(list, digests);
        }
        self.position += list.len() as u64;
        self.run_silent(context.tasks);
        self.sending = !list.is_empty();
        self.under_way = list.len();
        context.counters.bytes_out += list.len() as u64;
        if !self.sending {
            self.flush_leaving();
        }
        self.sending
    }

    pub(super) fn handle_sent(&mut self, tasks: &mut Tasks) {
        self.sending = false;
        self.under_way = 0;
        self.run_silent(tasks);
        self.flush_leaving();
    }

    pub(super) const fn framing(&self) -> Framing {
        let Keys { header_digest, data_digest, .. } = self.keys;
        Framing { header_digest, data_digest }
    }

    pub(super) const fn has_markers(&self) -> bool {
        self.markers.is_some()
    }

    pub(super) const fn is_marked(&self) -> bool {
        self.is_marked
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.end == End::Reached && !self.sending
    }

    pub(super) fn backlog(&self) -> usize {
        self.queued + self.under_way - self.progress as usize
    }

    pub(super) const fn messages(&self) -> usize {
        self.queued_messages
    }

    /// Bytes of the list that is under way.
    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        assert_eq!(self.queued, self.ops.iter().map(weight).sum::<usize>(), "bytes queued");
        let messages = self.ops.iter().map(message_weight).sum::<usize>();
        assert_eq!(self.queued_messages, messages, "of messages");
        assert!(self.progress as usize <= self.queued, "progress within the queue");
        assert!(self.sending || !self.ops.front().is_some_and(is_silent), "silent ops never wait");
        assert!(self.sending || self.leaving.is_empty(), "released tasks are told");
        assert_eq!(self.sending, self.under_way > 0, "a list under way has bytes");
    }

    fn carry_out(&mut self, op: &mut Op, list: &mut SgList, context: &mut Context<'_>) -> Progress {
        match op {
            Op::SendControl { response, data, task } => {
                self.send_control(*response, core::mem::take(data), *task, list, context);
                Progress::Done
            }
            Op::PutData { .. } => self.put_data(op, list, context),
            Op::GetData { .. } => self.get_data(op, list, context),
            Op::PutNumbered(put) => self.put_numbered(put, list, context),
            Op::GetNumbered(get) => self.get_numbered(get, list, context),
            Op::AskAgain(get) => {
                if let Some(key) = context.tasks.bursts.find_open(get) {
                    self.push_r2t(get, key, list, context);
                }
                Progress::Done
            }
            // Markers begin with a list: what is in this one has none.
            Op::NoticeKeys(keys) if self.begins_markers(keys) && !list.is_empty() => {
                Progress::Waits
            }
            Op::Release { .. } | Op::NoticeKeys(_) | Op::Terminate => {
                self.run(op, context.tasks);
                Progress::Done
            }
            Op::Attach { .. }
            | Op::Detach { .. }
            | Op::ExpectUnsolicited { .. }
            | Op::Abandon { .. }
            | Op::Forget { .. }
            | Op::Overdue { .. }
            | Op::Suspend { .. }
            | Op::Unname { .. } => Progress::Done,
        }
    }

    /// Carries out silent ops at the head of the queue.
    fn run_silent(&mut self, tasks: &mut Tasks) {
        while self.ops.front().is_some_and(is_silent) {
            if let Some(op) = self.ops.pop_front() {
                self.run(&op, tasks);
            }
        }
    }

    fn run(&mut self, op: &Op, tasks: &mut Tasks) {
        match op {
            Op::Release { task } => {
                tasks.release(*task);
                self.leaving.push(*task);
            }
            Op::NoticeKeys(keys) => {
                self.keys = *keys;
                if let Some(interval) = keys.markers.send
                    && self.begins_markers(keys)
                {
                    self.markers = Some(Inserter::new(interval, self.position));
                }
            }
            Op::Terminate => self.end = End::Reached,
            _ => {}
        }
    }

    const fn begins_markers(&self, keys: &Keys) -> bool {
        keys.markers.send.is_some() && self.markers.is_none()
    }

    fn flush_leaving(&mut self) {
        self.events.extend(self.leaving.drain(..).map(|task| Event::Released { task }));
    }
}

pub(super) fn has_room(list: &SgList) -> bool {
    list.len() < TRANSMIT_BYTES_MAX && list.pieces() + PIECES_PER_PDU <= TRANSMIT_PIECES_MAX
}

fn is_silent(op: &Op) -> bool {
    matches!(op, Op::Release { .. } | Op::NoticeKeys(_) | Op::Terminate)
}

/// Bytes that an op adds to the backlog: its data and one header.
fn weight(op: &Op) -> usize {
    match op {
        Op::SendControl { data, .. } => BHS_LEN + data.len(),
        Op::PutData { data, .. } => BHS_LEN + data.len(),
        Op::PutNumbered(put) => BHS_LEN + put.data.len(),
        Op::GetData { .. } | Op::GetNumbered(_) | Op::AskAgain(_) => BHS_LEN,
        _ => 0,
    }
}

/// As `weight`, of messages alone.
fn message_weight(op: &Op) -> usize {
    if matches!(op, Op::SendControl { .. }) { weight(op) } else { 0 }
}
