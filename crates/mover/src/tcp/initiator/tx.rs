// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ops and R2Ts to gather lists: commands with immediate data, Data-Out PDUs, digests.
//!
//! Read first: RFC 7143 §11.2 (segments and digests), §11.7 (Data-Out), §4.2.2.4 (DataSN), §4.2.5.2
//! (unsolicited data).
//!
//! Everything goes out in the order in which it was asked for: unsolicited data right behind its
//! command, the answers to R2Ts behind what was queued before them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use buf::SgList;
use buf::Slice;
use crc::Crc32c;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::itt;
use wire::iscsi::DataOut;
use wire::iscsi::DataSn;
use wire::iscsi::LunField;
use wire::iscsi::R2t;
use wire::iscsi::Request;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

use super::super::marker::Digests;
use super::super::marker::Inserter;
use super::super::tx::has_room;
use super::super::tx::part;
use super::super::tx::push_trailer;
use super::ByteCounters;
use super::task::Tasks;
use crate::limits::INLINE_DATA_MAX;
use crate::limits::SEND_SEGMENT_MAX;
use crate::stamp::stamp;

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Tx {
    keys: Keys,
    items: VecDeque<Item>,
    /// Some where the stream has markers.
    markers: Option<Inserter>,
    /// Bytes of the stream that were given out.
    position: u64,
    sending: bool,
    end: End,
    /// The header under construction, kept for its memory.
    header: Vec<u8>,
    byte_counters: ByteCounters,
}

#[derive(Debug)]
enum Item {
    Op(Op),
    Burst(Burst),
}

/// A sequence of Data-Out PDUs: unsolicited data, or the answer to an R2T.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    task: TaskId,
    ttt: Ttt,
    lun: LunField,
    next: u32,
    end: u32,
    data_sn: u32,
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

/// What became of the first item of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    /// This burst comes next.
    Then(Burst),
}

impl PartialEq for Burst {
    fn eq(&self, other: &Self) -> bool {
        (self.task, self.ttt, self.next) == (other.task, other.ttt, other.next)
    }
}

impl Eq for Burst {}

impl Burst {
    pub(super) const fn solicited(task: TaskId, pdu: &R2t) -> Self {
        let end = pdu.offset.saturating_add(pdu.desired_length);
        Self { task, ttt: pdu.ttt, lun: pdu.lun, next: pdu.offset, end, data_sn: 0 }
    }
}

impl Default for Tx {
    fn default() -> Self {
        Self {
            keys: Keys::LOGIN,
            items: VecDeque::new(),
            markers: None,
            position: 0,
            sending: false,
            end: End::Open,
            header: Vec::new(),
            byte_counters: ByteCounters::default(),
        }
    }
}

impl Tx {
    pub(super) const fn byte_counters(&self) -> ByteCounters {
        self.byte_counters
    }

    pub(super) fn submit(&mut self, op: Op) {
        if self.end != End::Open {
            return;
        }
        match op {
            Op::Terminate => self.end = End::Asked,
            Op::NoticeKeys(keys) if self.differ_in_lengths(&keys) => return self.set_lengths(keys),
            _ => {}
        }
        self.items.push_back(Item::Op(op));
        self.run_silent();
    }

    /// Answers to pings of the target that wait.
    pub(super) fn echoes(&self) -> usize {
        self.items.iter().filter(|item| matches!(item, Item::Op(op) if op.is_echo())).count()
    }

    /// The answer to an R2T.
    pub(super) fn burst(&mut self, burst: Burst) {
        if self.end == End::Open {
            self.items.push_back(Item::Burst(burst));
        }
    }

    /// See `Tcp::poll_transmit`.
    pub(super) fn poll(
        &mut self,
        list: &mut SgList,
        tasks: &mut Tasks,
        exp_stat_sn: StatSn,
    ) -> bool {
        if self.sending {
            return false;
        }
        list.clear();
        while has_room(list) {
            let Some(item) = self.items.pop_front() else { break };
            let progress = match item {
                Item::Op(op) => self.carry_out(op, list, tasks, exp_stat_sn),
                Item::Burst(burst) => self.data_out(burst, list, tasks, exp_stat_sn),
            };
            if let Progress::Then(burst) = progress {
                self.items.push_front(Item::Burst(burst));
            }
        }
        if let Some(markers) = &mut self.markers {
            let digests = Digests { header: self.keys.header_digest, data: self.keys.data_digest };
            markers.mark(list, digests);
        }
        self.position += list.len() as u64;
        self.run_silent();
        self.sending = !list.is_empty();
        self.sending
    }

    pub(super) fn handle_sent(&mut self) {
        self.sending = false;
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.end == End::Reached && !self.sending
    }

    /// Carries out what has nothing to send and stands at the head of the queue.
    fn run_silent(&mut self) {
        while let Some(Item::Op(Op::NoticeKeys(_) | Op::Terminate)) = self.items.front() {
            match self.items.pop_front() {
                Some(Item::Op(Op::NoticeKeys(keys))) => self.set_keys(keys),
                _ => self.end = End::Reached,
            }
        }
    }

    /// Whether new keys change nothing of how PDUs are framed.
    fn differ_in_lengths(&self, keys: &Keys) -> bool {
        let framing = |keys: &Keys| (keys.header_digest, keys.data_digest, keys.markers);
        framing(&self.keys) == framing(keys)
    }

    /// New lengths hold for all that is not on its way: commands that wait here are cut to them.
    fn set_lengths(&mut self, keys: Keys) {
        self.keys = keys;
        let limit = keys.max_send_data_segment_length;
        for item in &mut self.items {
            let Item::Op(Op::SendCommand { command, immediate, unsolicited_end, .. }) = item else {
                continue;
            };
            if *immediate > limit {
                // Without other unsolicited data the target asks for the rest.
                if *unsolicited_end == *immediate {
                    *unsolicited_end = limit;
                }
                *immediate = limit;
                command.final_ = *unsolicited_end == limit;
            }
        }
    }

    fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
        if let Some(interval) = keys.markers.send
            && self.markers.is_none()
        {
            self.markers = Some(Inserter::new(interval, self.position));
        }
    }

    fn carry_out(
        &mut self,
        op: Op,
        list: &mut SgList,
        tasks: &mut Tasks,
        exp_stat_sn: StatSn,
    ) -> Progress {
        match op {
            Op::SendControl { mut request, data } => {
                stamp(&mut request, exp_stat_sn);
                let length_max = self.keys.max_send_data_segment_length as usize;
                debug_assert!(data.len() <= length_max, "longer than the peer takes");
                let data = (!data.is_empty()).then(|| Slice::from(data));
                self.push(&request, data, list);
                Progress::Done
            }
            Op::SendCommand { task, mut command, immediate, unsolicited_end } => {
                let Some(entry) = tasks.get_mut(task) else { return Progress::Done };
                command.exp_stat_sn = exp_stat_sn;
                let data = entry.write.as_ref().and_then(|data| part(data, 0, immediate));
                self.push(&Request::Command(command), data, list);
                if unsolicited_end <= immediate {
                    return Progress::Done;
                }
                let (ttt, lun) = (Ttt::NONE, command.lun);
                let (next, end) = (immediate, unsolicited_end);
                Progress::Then(Burst { task, ttt, lun, next, end, data_sn: 0 })
            }
            Op::NoticeKeys(keys) => {
                debug_assert!(list.is_empty(), "a login has sent all that it had to say");
                self.set_keys(keys);
                Progress::Done
            }
            Op::Terminate => {
                self.end = End::Reached;
                Progress::Done
            }
            Op::Reassign { mut request, .. } => {
                request.exp_stat_sn = exp_stat_sn;
                self.push(&Request::TaskManagement(request), None, list);
                Progress::Done
            }
            Op::Resegment { request, .. } => {
                let mut request = Request::Snack(request);
                stamp(&mut request, exp_stat_sn);
                self.push(&request, None, list);
                Progress::Done
            }
            Op::Attach { .. } | Op::Detach { .. } | Op::Release { .. } | Op::Quiet { .. } => {
                Progress::Done
            }
        }
    }

    /// One Data-Out PDU of a burst. A task that has ended sends nothing more.
    fn data_out(
        &mut self,
        burst: Burst,
        list: &mut SgList,
        tasks: &mut Tasks,
        exp_stat_sn: StatSn,
    ) -> Progress {
        let entry = tasks.get_mut(burst.task).filter(|entry| !entry.quiet);
        let Some(entry) = entry else { return Progress::Done };
        // Multiples of four, so that only the last PDU is padded (RFC 7143 §11.7.7).
        let length_max = self.keys.max_send_data_segment_length.min(SEND_SEGMENT_MAX) & !3;
        let length = (burst.end - burst.next).min(length_max.max(4));
        let data = entry.write.as_ref().and_then(|data| part(data, burst.next, length));
        debug_assert!(data.is_some(), "a burst lies in the buffer");
        let Some(data) = data else { return Progress::Done };
        let next = burst.next + length;
        entry.give(next);
        let last = next == burst.end;
        if last && burst.ttt != Ttt::NONE {
            entry.open_r2ts = entry.open_r2ts.saturating_sub(1);
        }
        let pdu = DataOut {
            final_: last,
            lun: burst.lun,
            itt: itt(burst.task),
            ttt: burst.ttt,
            exp_stat_sn,
            data_sn: DataSn(burst.data_sn),
            offset: burst.next,
        };
        self.push(&Request::DataOut(pdu), Some(data), list);
        let data_sn = burst.data_sn.wrapping_add(1);
        if last { Progress::Done } else { Progress::Then(Burst { next, data_sn, ..burst }) }
    }

    /// Appends a PDU with its digests.
    fn push(&mut self, request: &Request, data: Option<Slice>, list: &mut SgList) {
        let data = data.filter(|data| !data.is_empty());
        let length = data.as_ref().map_or(0, Slice::len);
        self.header.clear();
        request.emit(u32::try_from(length).unwrap_or(u32::MAX), &mut self.header);
        list.push_bytes(&self.header);
        if self.keys.header_digest {
            list.push_bytes(&crc::crc32c(&self.header).to_le_bytes());
        }
        let Some(data) = data else { return };
        let mut crc = self.keys.data_digest.then(Crc32c::new);
        if let Some(crc) = &mut crc {
            crc.update(data.bytes());
        }
        if length <= INLINE_DATA_MAX {
            self.byte_counters.copied += length as u64;
            list.push_bytes(data.bytes());
        } else {
            list.push(data);
        }
        if crc.is_some() {
            self.byte_counters.digested += length as u64;
        }
        push_trailer(length, crc, list);
    }
}
