// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer of a command, kept until its status is acknowledged; Data SNACK, R-Data SNACK and
//! DataACK (RFC 7143 §7.8, §11.7.2, §11.16).
//!
//! A status that travelled with the last data is sent again in a SCSI Response of its own, under
//! its number, once that data is resegmented (§11.16.3), was given up, or goes over another
//! connection.

use super::runs::Cut;
use super::runs::Run;
use crate::datamover::NumberedPut;
use crate::datamover::TaskId;
use crate::target_role::reply::Reply;
use crate::target_role::reply::sense_segment;
use crate::violation::Sense;
use crate::violation::Violation;
use alloc::vec::Vec;
use buf::Slice;
use core::ops::Range;
use wire::iscsi::CollapsedStatus;
use wire::iscsi::DataSn;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::Residual;
use wire::iscsi::Response;
use wire::iscsi::ScsiResponse;
use wire::iscsi::Snack;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;
use wire::scsi::sam::CHECK_CONDITION;

/// The iSCSI condition "SNACK rejected" (RFC 7143 §11.4.7.2).
const SNACK_REJECTED: Sense = Sense { key: 0x0b, code: 0x11, qualifier: 0x13 };

/// What a command was answered.
#[derive(Debug)]
pub(in crate::target_role) struct Answer {
    /// As it was sent last.
    response: ScsiResponse,
    /// Its data segment.
    sense: Vec<u8>,
    data: Kept,
    /// The status travels with the last Data-In.
    collapsed: bool,
    /// Data-In PDUs, by DataSN.
    runs: Vec<Run>,
    /// The DataSN of the first one.
    first: u32,
    /// The next DataSN.
    next: u32,
    /// All before is acknowledged: the data acknowledgement reference number (RFC 7143 §11.5.6).
    acknowledged: u32,
}

#[derive(Debug)]
enum Kept {
    Whole(Slice),
    /// There was no room for it, or its memory belongs to others too.
    GivenUp,
    /// There was none, or nobody needs it any more.
    Nothing,
}

/// Data of an answer that is still to be cut.
#[derive(Debug)]
pub(in crate::target_role) struct Rest {
    offset: u32,
    total: u32,
    cut: Cut,
}

impl Answer {
    /// `first`: the number behind that of the last R2T, since one series has both (RFC 7143
    /// §4.2.2.4).
    pub(in crate::target_role) fn new(reply: &mut Reply, first: u32) -> Self {
        let collapsed = reply.collapsed().is_some();
        Self {
            response: reply.response(Numbers::default()),
            sense: sense_segment(&reply.sense),
            data: reply.data.take().map_or(Kept::Nothing, Kept::Whole),
            collapsed,
            runs: Vec::new(),
            first,
            next: first,
            acknowledged: first,
        }
    }

    /// Goes on on another connection, which has all before `from`, if that can be (RFC 7143
    /// §11.5.6).
    pub(in crate::target_role) fn resume(&mut self, from: DataSn) {
        self.response.snack_tag = 0;
        self.collapsed = false;
        if from.0 > self.acknowledged && from.0 <= self.next {
            self.acknowledged = from.0;
        }
        if matches!(self.data, Kept::GivenUp) && self.acknowledged < self.next {
            self.fail();
        }
    }

    /// All data that is not acknowledged is to be cut anew, under `tag` (R-Data SNACK).
    pub(in crate::target_role) fn resegment(&mut self, tag: u32) -> Result<(), Violation> {
        match self.data {
            Kept::GivenUp => return Err(Violation::NotKept),
            Kept::Nothing => return Err(Violation::NothingToResend(DataSn(self.next))),
            Kept::Whole(_) => {}
        }
        self.response.snack_tag = tag;
        self.collapsed = false;
        Ok(())
    }

    /// Begins to send all data that is not acknowledged, in bursts of `burst` and segments of
    /// `segment` bytes. None if there is no data.
    pub(in crate::target_role) fn recut(&mut self, segment: u32, burst: u32) -> Option<Rest> {
        let Kept::Whole(data) = &self.data else { return None };
        let total = u32::try_from(data.len()).expect("cut to the expected length, 32 bits");
        let offset = self.offset_of(self.acknowledged);
        self.cut(self.acknowledged);
        let cut = Cut::new(total.saturating_sub(offset), segment, burst);
        Some(Rest { offset, total, cut })
    }

    /// The next PDUs of `rest`. Each run but the last asks to be acknowledged, with a tag of its
    /// own (RFC 7143 §11.7.2), if there is one.
    pub(in crate::target_role) fn next_run(
        &mut self,
        rest: &mut Rest,
        tag: impl FnOnce() -> Option<Ttt>,
    ) -> Option<Run> {
        let offset = rest.offset;
        let left = rest.total.checked_sub(offset).filter(|left| *left > 0)?;
        let Cut { segment, burst, run } = rest.cut;
        let length = run.min(left);
        let tag = if length < left { tag() } else { None };
        let (first, burst_at, ends) = (self.next, offset, true);
        let made = Run { first, offset, length, segment, burst_at, burst, ends, tag };
        self.next = made.next();
        self.runs.push(made);
        rest.offset += length;
        Some(made)
    }

    /// A run as it is sent. None if its data is not there any more.
    pub(in crate::target_role) fn put(
        &self,
        run: &Run,
        task: TaskId,
        lun: LunField,
        numbers: Numbers,
    ) -> Option<NumberedPut> {
        let Kept::Whole(data) = &self.data else { return None };
        let status = self.status_of(run);
        let stat_sn = self.response.numbers.stat_sn;
        let numbers = if status.is_some() { Numbers { stat_sn, ..numbers } } else { numbers };
        let range = run.offset as usize..run.end() as usize;
        let data = data.part(range).expect("a range within the slice");
        Some(NumberedPut {
            task,
            itt: self.response.itt,
            data,
            offset: run.offset,
            numbers,
            data_sn: DataSn(run.first),
            segment: run.segment,
            burst_at: run.burst_at,
            burst: run.burst,
            final_: run.ends,
            acknowledge: run.tag.map(|tag| (tag, lun)),
            status,
        })
    }

    /// The PDUs that a Data SNACK asks for. `segment`: what its initiator takes now.
    pub(in crate::target_role) fn again(
        &self,
        snack: &Snack,
        segment: u32,
    ) -> Result<Vec<Run>, Violation> {
        let nothing = Violation::NothingToResend(DataSn(self.next));
        let wanted = self.wanted(snack).ok_or(nothing)?;
        if matches!(self.data, Kept::GivenUp) {
            return Err(Violation::NotKept);
        }
        let runs: Vec<Run> = self.runs.iter().filter_map(|run| run.part(&wanted)).collect();
        // What no longer fits must be asked for by an R-Data SNACK (RFC 7143 §11.16.3).
        match runs.iter().any(|run| run.segment > segment && run.length > segment) {
            true => Err(nothing),
            false => Ok(runs),
        }
    }

    /// All before `number` has arrived: gives the bytes that need not be kept any more. None if
    /// that cannot be.
    pub(in crate::target_role) fn acknowledge(&mut self, number: u32) -> Option<usize> {
        if number <= self.acknowledged || number > self.next {
            return None;
        }
        self.acknowledged = number;
        // The status may be asked for with the PDU that it came in.
        let is_all = self.acknowledged == self.next && !self.collapsed;
        let freed = if is_all { self.kept_bytes() } else { 0 };
        if is_all {
            self.data = Kept::Nothing;
        }
        Some(freed)
    }

    /// The status leaves under this number.
    pub(in crate::target_role) fn number(&mut self, numbers: Numbers) -> StatSn {
        self.response.numbers = numbers;
        numbers.stat_sn
    }

    /// True if its data belongs to others, too.
    pub(in crate::target_role) fn is_lent(&self) -> bool {
        match &self.data {
            Kept::Whole(data) => data.is_lent(),
            Kept::GivenUp | Kept::Nothing => true,
        }
    }

    /// Whether it has data that is kept.
    pub(in crate::target_role) fn keeps_data(&self) -> bool {
        self.kept_bytes() > 0
    }

    /// True if it asked for a DataACK with this tag.
    pub(in crate::target_role) fn has_asked(&self, tag: Ttt) -> bool {
        self.runs.iter().any(|run| run.tag == Some(tag))
    }

    /// The last tag with which it asked for a DataACK.
    pub(in crate::target_role) fn last_tag(&self) -> Option<Ttt> {
        self.runs.iter().rev().find_map(|run| run.tag)
    }

    /// The SCSI Response and its data segment.
    pub(in crate::target_role) fn status(&self) -> (Response, &Vec<u8>) {
        // Data-In alone is counted, whatever numbers R2Ts have taken (§11.4.8).
        let exp_data_sn = DataSn(self.next - self.first);
        (Response::Scsi(ScsiResponse { exp_data_sn, ..self.response }), &self.sense)
    }

    /// Bytes that are kept for sending again.
    pub(in crate::target_role) fn kept_bytes(&self) -> usize {
        match &self.data {
            Kept::Whole(data) => data.len(),
            Kept::GivenUp | Kept::Nothing => 0,
        }
    }

    /// The DataSNs that a Data SNACK asks for; None if one was never sent or is acknowledged.
    fn wanted(&self, snack: &Snack) -> Option<Range<u32>> {
        let (from, to) = match (snack.beg_run, snack.run_length) {
            (0, 0) => (self.acknowledged, self.next),
            (from, 0) => (from, self.next),
            (from, count) => (from, from.checked_add(count)?),
        };
        (from >= self.acknowledged && from < to && to <= self.next).then_some(from..to)
    }

    /// Where the PDU `number` begins, if it was sent, or would begin.
    fn offset_of(&self, number: u32) -> u32 {
        let within = |run: &&Run| (run.first..run.next()).contains(&number);
        match self.runs.iter().find(within) {
            Some(run) => run.offset + (number - run.first) * run.segment,
            None => self.runs.last().map_or(0, Run::end),
        }
    }

    /// Forgets the PDUs from `number` on: they will be cut anew.
    fn cut(&mut self, number: u32) {
        let before = 0..number;
        self.runs = self.runs.iter().filter_map(|run| run.part(&before)).collect();
        self.next = number;
    }

    /// Data that the initiator misses is gone: the command ends with the condition "SNACK
    /// rejected" (RFC 7143 §11.4.7.2).
    fn fail(&mut self) {
        self.response.status = CHECK_CONDITION;
        self.response.residual = Residual::None;
        self.sense = sense_segment(&SNACK_REJECTED.to_fixed());
        self.data = Kept::Nothing;
        self.next = self.acknowledged;
    }

    /// The PDU that the status travels with, if it does.
    pub(in crate::target_role) fn status_run(&self) -> Option<Run> {
        let last = self.next.checked_sub(1).filter(|_| self.collapsed)?;
        self.runs.last()?.part(&(last..self.next))
    }

    /// The status that travels with a run.
    pub(in crate::target_role) fn status_of(&self, run: &Run) -> Option<CollapsedStatus> {
        let ScsiResponse { status, residual, .. } = self.response;
        let Kept::Whole(data) = &self.data else { return None };
        let is_last = run.ends && run.end() as usize == data.len();
        (self.collapsed && is_last).then_some(CollapsedStatus { status, residual })
    }

    pub(in crate::target_role) fn give_up(&mut self) {
        self.collapsed = false;
        if let Kept::Whole(_) = self.data {
            self.data = Kept::GivenUp;
        }
    }
}
