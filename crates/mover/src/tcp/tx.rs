// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ops to gather lists: Data-In segments, R2Ts, control PDUs, digests.
//!
//! Read first: RFC 7143 §11.2 (segments and digests), §11.7 (Data-In), §11.8 (R2T), §4.2.2.4
//! (DataSN).
//!
//! Ops are carried out strictly in order. Some have nothing to send (*silent*: Release, NoticeKeys,
//! Terminate); they take effect as soon as everything before them is on its way, so none ever waits
//! at the head of the queue.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use buf::{Pool, SgList, Slice};
use crc::Crc32c;
use iscsi::datamover::{Event, Keys, NumberedGet, NumberedPut, Op, TaskId};
use wire::iscsi::{
    BHS_LEN, DataIn, DataSn, Itt, LunField, Numbers, R2t, R2tSn, Response, StatSn, Ttt, pad4,
};

use super::burst::{self, BurstKey, Kind};
use super::counters::Counters;
use super::marker::{Digests, Inserter};
use super::task::Tasks;
use crate::limits::{
    COPY_STEP, INLINE_DATA_MAX, PIECES_PER_PDU, TRANSMIT_BYTES_MAX, TRANSMIT_PIECES_MAX,
};

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Tx {
    keys: Keys,
    /// Some where the stream has markers.
    markers: Option<Inserter>,
    /// Bytes of all lists so far.
    position: u64,
    ops: VecDeque<Op>,
    /// Bytes of the first op, a PutData, that are on their way already.
    progress: u32,
    /// Bytes that wait in `ops`.
    queued: usize,
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
    pub(super) pool: &'a Pool,
    pub(super) tasks: &'a mut Tasks,
    pub(super) counters: &'a mut Counters,
}

/// What became of the first op of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    /// The list is full, or a buffer or a slot for a burst is missing: the rest comes with a later
    /// list.
    Waits,
}

/// Data of one segment as it will be sent, with its digest if there is one.
struct Segment {
    data: Slice,
    crc: Option<Crc32c>,
}

impl Tx {
    pub(super) fn new() -> Self {
        Self {
            keys: Keys::LOGIN,
            markers: None,
            position: 0,
            ops: VecDeque::new(),
            progress: 0,
            queued: 0,
            under_way: 0,
            sending: false,
            leaving: Vec::new(),
            events: VecDeque::new(),
            end: End::Open,
        }
    }

    /// Takes an op that may send something. `ExpectUnsolicited` and `Abandon` are for the receiving
    /// side.
    pub(super) fn submit(&mut self, op: Op, tasks: &mut Tasks) {
        match op {
            Op::Release { .. } => {}
            _ if self.end != End::Open => return,
            Op::Terminate => self.end = End::Asked,
            _ => {}
        }
        self.queued += weight(&op);
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
        let mut dropped = 0;
        self.ops.retain(|op| {
            let gone = goes(op);
            dropped += if gone { weight(op) } else { 0 };
            !gone
        });
        self.queued -= dropped;
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
            let weight = weight(&op);
            if self.carry_out(&mut op, list, &mut context) == Progress::Waits {
                self.ops.push_front(op);
                break;
            }
            self.queued -= weight;
            self.progress = 0;
        }
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

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.end == End::Reached && !self.sending
    }

    pub(super) fn backlog(&self) -> usize {
        self.queued + self.under_way - self.progress as usize
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        assert_eq!(self.queued, self.ops.iter().map(weight).sum::<usize>(), "bytes queued");
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
            Op::ExpectUnsolicited { .. }
            | Op::Abandon { .. }
            | Op::Forget { .. }
            | Op::Overdue { .. }
            | Op::Suspend { .. } => Progress::Done,
        }
    }

    /// The core never gives more data than the peer takes (RFC 7143 §13.12): which part of a text
    /// or of sense data could be left out is not known here. Should it happen, the segment is cut:
    /// the framing holds.
    fn send_control(
        &self,
        mut response: Response,
        mut data: Vec<u8>,
        task: Option<TaskId>,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) {
        let length_max = self.keys.max_send_data_segment_length;
        debug_assert!(data.len() <= length_max as usize, "control data longer than the peer takes");
        data.truncate(length_max as usize);
        if let (Response::Scsi(scsi), Some(task)) = (&mut response, task) {
            let data_ins = context.tasks.get_mut(task).map_or(0, |task| task.data_ins);
            scsi.exp_data_sn = DataSn(if scsi.response == 0 { data_ins } else { 0 });
        }
        context.counters.pdus_out.count(&response);
        let length = u32::try_from(data.len()).unwrap_or(length_max);
        self.push_header(response.emit(length), list, context);
        let mut crc = (self.keys.data_digest && length > 0).then(Crc32c::new);
        if let Some(crc) = &mut crc {
            crc.update(&data);
            context.counters.bytes_crc += data.len() as u64;
        }
        if data.len() <= INLINE_DATA_MAX {
            context.counters.bytes_copied += data.len() as u64;
            list.push_bytes(&data);
        } else {
            list.push(Slice::from(data));
        }
        push_trailer(length as usize, crc, list);
    }

    /// Bursts of Data-In PDUs, each as long as the peer takes it.
    fn put_data(&mut self, op: &Op, list: &mut SgList, context: &mut Context<'_>) -> Progress {
        let Op::PutData { task, itt, data, offset, burst, numbers, status } = op else {
            return Progress::Done;
        };
        let total = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if total == 0 && status.is_none() {
            return Progress::Done;
        }
        let length_max = self.keys.data_in_segment();
        while has_room(list) {
            // Mostly all is one burst.
            let left = if total > *burst {
                (total - self.progress).min(burst - self.progress % burst)
            } else {
                total - self.progress
            };
            let length = left.min(length_max);
            let Some(part) = part(data, self.progress, length) else { return Progress::Done };
            let Some(segment) = self.segment(part, list, context) else { return Progress::Waits };
            let length = u32::try_from(segment.data.len()).unwrap_or(length);
            let end = self.progress + length;
            let last = end == total;
            let Some(books) = context.tasks.open(*task) else { return Progress::Done };
            let status = if last { *status } else { None };
            let data_in = DataIn {
                final_: length == left,
                acknowledge: false,
                status,
                lun: LunField::default(),
                itt: *itt,
                ttt: Ttt::NONE,
                numbers: match status {
                    Some(_) => *numbers,
                    None => Numbers { stat_sn: StatSn(0), ..*numbers },
                },
                data_sn: DataSn(books.next_sn),
                offset: offset.wrapping_add(self.progress),
            };
            books.next_sn = books.next_sn.wrapping_add(1);
            books.data_ins = books.data_ins.wrapping_add(1);
            context.counters.pdus_out.data_in += 1;
            self.push_header(data_in.emit(length), list, context);
            if length > 0 {
                list.push(segment.data);
            }
            push_trailer(length as usize, segment.crc, list);
            self.progress = end;
            if last {
                return Progress::Done;
            }
        }
        Progress::Waits
    }

    /// One R2T.
    fn get_data(&self, op: &Op, list: &mut SgList, context: &mut Context<'_>) -> Progress {
        let Op::GetData { task, itt, lun, offset, length, numbers } = *op else {
            return Progress::Done;
        };
        debug_assert!(length > 0, "an R2T asks for at least one byte (RFC 7143 §11.8.4)");
        let burst = burst::Request { kind: Kind::Solicited, task, itt, lun, offset, length };
        if context.tasks.open(task).is_none() || length == 0 {
            return Progress::Done;
        }
        let Some(key) = context.tasks.bursts.open(burst) else { return Progress::Waits };
        let Some(books) = context.tasks.open(task) else { return Progress::Done };
        books.had_bursts = true;
        let r2t_sn = R2tSn(books.next_sn);
        books.next_sn = books.next_sn.wrapping_add(1);
        let r2t = R2t { lun, itt, ttt: key.ttt(), numbers, r2t_sn, offset, desired_length: length };
        context.counters.pdus_out.r2t += 1;
        self.push_header(r2t.emit(0), list, context);
        Progress::Done
    }

    /// One R2T that the core has numbered.
    fn get_numbered(
        &self,
        get: &NumberedGet,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) -> Progress {
        debug_assert!(get.length > 0, "an R2T asks for at least one byte (RFC 7143 §11.8.4)");
        let Some(books) = context.tasks.open(get.task) else { return Progress::Done };
        books.had_bursts = true;
        let NumberedGet { task, itt, lun, offset, length, .. } = *get;
        let burst = burst::Request { kind: Kind::Solicited, task, itt, lun, offset, length };
        let Some(key) = context.tasks.bursts.open(burst) else { return Progress::Waits };
        self.push_r2t(get, key, list, context);
        Progress::Done
    }

    fn push_r2t(
        &self,
        get: &NumberedGet,
        key: BurstKey,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) {
        let NumberedGet { itt, lun, offset, length, numbers, r2t_sn, .. } = *get;
        let r2t = R2t { lun, itt, ttt: key.ttt(), numbers, r2t_sn, offset, desired_length: length };
        context.counters.pdus_out.r2t += 1;
        self.push_header(r2t.emit(0), list, context);
    }

    /// A run of Data-In PDUs that the core has numbered.
    fn put_numbered(
        &mut self,
        put: &NumberedPut,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) -> Progress {
        let total = u32::try_from(put.data.len()).unwrap_or(u32::MAX);
        let segment = put.segment.max(1);
        while has_room(list) {
            let length = (total - self.progress).min(segment);
            let Some(part) = part(&put.data, self.progress, length) else { return Progress::Done };
            let Some(made) = self.whole_segment(&part, list, context) else {
                return Progress::Waits;
            };
            let last = self.progress + length == total;
            let acknowledge = put.acknowledge.filter(|_| last);
            let status = put.status.filter(|_| last);
            let (ttt, lun) = acknowledge.unwrap_or_else(no_tag);
            let offset = put.offset.wrapping_add(self.progress);
            let in_bursts = offset.wrapping_add(length).wrapping_sub(put.burst_at);
            let data_in = DataIn {
                final_: in_bursts.is_multiple_of(put.burst) || put.final_ && last,
                acknowledge: acknowledge.is_some(),
                status,
                lun,
                itt: put.itt,
                ttt,
                numbers: match status {
                    Some(_) => put.numbers,
                    None => Numbers { stat_sn: StatSn(0), ..put.numbers },
                },
                data_sn: DataSn(put.data_sn.0.wrapping_add(self.progress / segment)),
                offset,
            };
            context.counters.pdus_out.data_in += 1;
            self.push_header(data_in.emit(length), list, context);
            list.push(made.data);
            push_trailer(length as usize, made.crc, list);
            self.progress += length;
            if last {
                return Progress::Done;
            }
        }
        Progress::Waits
    }

    /// As `segment`, but never shorter than asked: the numbers of the PDUs are given.
    fn whole_segment(
        &self,
        data: &Slice,
        list: &SgList,
        context: &mut Context<'_>,
    ) -> Option<Segment> {
        let segment = self.segment(data.clone(), list, context)?;
        if segment.data.len() == data.len() {
            return Some(segment);
        }
        let mut copy = vec![0; data.len()];
        let mut crc = Crc32c::new();
        copy_in_steps(data, &mut copy, &mut crc);
        Some(Segment { data: Slice::from(copy), crc: Some(crc) })
    }

    /// `data` made ready to be sent. Memory that others may change is copied before its digest is
    /// taken, else the digest would be that of other bytes. None if there is no buffer for the
    /// copy; but an empty list always gets a short segment from the heap, as nothing else might
    /// ever call again.
    fn segment(&self, data: Slice, list: &SgList, context: &mut Context<'_>) -> Option<Segment> {
        if !self.keys.data_digest || data.is_empty() {
            return Some(Segment { data, crc: None });
        }
        let mut crc = Crc32c::new();
        if let Some(bytes) = data.bytes() {
            context.counters.bytes_crc += bytes.len() as u64;
            crc.update(bytes);
            return Some(Segment { data, crc: Some(crc) });
        }
        let data = match context.pool.take(data.len()) {
            Some(mut copy) => {
                copy_in_steps(&data, &mut copy, &mut crc);
                copy.freeze()
            }
            None if list.is_empty() => {
                let mut copy = vec![0; data.len().min(COPY_STEP)];
                copy_in_steps(&data, &mut copy, &mut crc);
                Slice::from(copy)
            }
            None => return None,
        };
        context.counters.bytes_copied += data.len() as u64;
        context.counters.bytes_crc += data.len() as u64;
        Some(Segment { data, crc: Some(crc) })
    }

    fn push_header(&self, bhs: [u8; BHS_LEN], list: &mut SgList, context: &mut Context<'_>) {
        list.push_bytes(&bhs);
        if self.keys.header_digest {
            context.counters.bytes_crc += bhs.len() as u64;
            list.push_bytes(&crc::crc32c(&bhs).to_le_bytes());
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

/// What a Data-In carries that asks for no acknowledgement.
fn no_tag() -> (Ttt, LunField) {
    (Ttt::NONE, LunField::default())
}

/// Copies the front of `from` to all of `to`; the digest is taken while the bytes are still near.
fn copy_in_steps(from: &Slice, to: &mut [u8], crc: &mut Crc32c) {
    let mut at = 0;
    for step in to.chunks_mut(COPY_STEP) {
        if let Some(part) = from.part(at..at + step.len()) {
            part.copy_to(step);
        }
        crc.update(step);
        at += step.len();
    }
}

pub(super) fn part(data: &Slice, at: u32, length: u32) -> Option<Slice> {
    let at = at as usize;
    data.part(at..at.checked_add(length as usize)?)
}

/// Padding, and the digest over data and padding (RFC 7143 §11.2.3); an empty segment has neither.
pub(super) fn push_trailer(length: usize, crc: Option<Crc32c>, list: &mut SgList) {
    const ZEROS: [u8; 3] = [0; 3];
    let padding = ZEROS.get(..pad4(length) - length).unwrap_or_default();
    list.push_bytes(padding);
    if let Some(mut crc) = crc {
        crc.update(padding);
        list.push_bytes(&crc.finish().to_le_bytes());
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
