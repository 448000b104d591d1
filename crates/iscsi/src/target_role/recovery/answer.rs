// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer of a command, kept until its status is acknowledged; Data SNACK, R-Data SNACK and
//! DataACK (RFC 7143 §7.8, §11.7.2, §11.16).
//!
//! A status that travelled with the last data is sent again in a SCSI Response of its own, under
//! its number, once that data is resegmented (§11.16.3), was given up, or goes over another
//! connection.

use super::retained::with_window;
use super::runs::{Cut, Run};
use crate::datamover::{NumberedPut, Op, TaskId};
use crate::service::Completion;
use crate::target_role::names::ConnectionId;
use crate::target_role::pdu::Pdu;
use crate::target_role::session::Session;
use crate::target_role::task::{Task, collapses, sense_segment};
use crate::violation::{Sense, Violation};
use alloc::boxed::Box;
use alloc::vec::Vec;
use buf::Slice;
use core::ops::Range;
use wire::iscsi::{
    CollapsedStatus, DataSn, Itt, Numbers, Residual, Response, ScsiResponse, Snack, Ttt,
};
use wire::scsi::sam::CHECK_CONDITION;

/// Response code "command completed at target" (RFC 7143 §11.4.3).
const COMPLETED_AT_TARGET: u8 = 0x00;

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

/// Where and from which DataSN on an answer is sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resumption {
    pub(super) id: ConnectionId,
    /// ExpDataSN of the request.
    pub(super) from: DataSn,
}

impl Answer {
    /// The SCSI Response and its data segment.
    fn status(&self) -> (Response, &Vec<u8>) {
        let exp_data_sn = DataSn(self.next);
        (Response::Scsi(ScsiResponse { exp_data_sn, ..self.response }), &self.sense)
    }

    /// Bytes that are kept for sending again.
    pub(super) fn kept_bytes(&self) -> usize {
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
    fn status_run(&self) -> Option<Run> {
        let last = self.next.checked_sub(1).filter(|_| self.collapsed)?;
        self.runs.last()?.part(&(last..self.next))
    }

    /// The status that travels with a run.
    fn status_of(&self, run: &Run) -> Option<CollapsedStatus> {
        let ScsiResponse { status, residual, .. } = self.response;
        let Kept::Whole(data) = &self.data else { return None };
        let is_last = run.ends && run.end() as usize == data.len();
        (self.collapsed && is_last).then_some(CollapsedStatus { status, residual })
    }

    fn give_up(&mut self) {
        self.collapsed = false;
        if let Kept::Whole(_) = self.data {
            self.data = Kept::GivenUp;
        }
    }
}

impl Session {
    /// Sends data and status of a task, and keeps both.
    pub(in crate::target_role) fn respond_and_keep(
        &mut self,
        task: TaskId,
        mut completion: Completion,
    ) {
        let status_qualifier = self.retry_delay(completion.status);
        let Some(entry) = self.tasks.running_mut(task) else { return };
        let connection = entry.connection;
        let (residual, bidi_read_residual) = entry.residuals(&completion);
        let data = completion.data_in.take().and_then(|data| entry.data_to_send(data));
        let collapsed = collapses(completion.status) && data.is_some();
        let response = ScsiResponse {
            response: COMPLETED_AT_TARGET,
            status: completion.status,
            status_qualifier,
            itt: entry.command.itt,
            snack_tag: 0,
            numbers: Numbers::default(),
            exp_data_sn: DataSn(0),
            bidi_read_residual,
            residual,
        };
        entry.answer = Some(Box::new(Answer {
            response,
            sense: sense_segment(&completion.sense),
            data: data.map_or(Kept::Nothing, Kept::Whole),
            collapsed,
            runs: Vec::new(),
            next: 0,
            acknowledged: 0,
        }));
        self.tasks.drain(task);
        self.open_window();
        self.put_from(task, 0);
        if !collapsed {
            self.send_status(task);
        }
        self.account(task, connection);
    }

    /// The rest of the data, and the status, on another connection (RFC 7143 §7.2.2, §11.5.6).
    pub(super) fn answer_again(&mut self, task: TaskId, at: Resumption) {
        let Some(answer) = self.tasks.answer_mut(task) else { return };
        answer.response.snack_tag = 0;
        answer.collapsed = false;
        if at.from.0 > answer.acknowledged && at.from.0 <= answer.next {
            answer.acknowledged = at.from.0;
        }
        let from = answer.acknowledged;
        match answer.data {
            Kept::Whole(_) => self.put_from(task, from),
            Kept::GivenUp if from < answer.next => answer.fail(),
            Kept::GivenUp | Kept::Nothing => {}
        }
        debug_assert_eq!(self.tasks.draining_tag(task).map(|(id, _)| id), Some(at.id));
        self.send_status(task);
    }

    /// Forgets the answer of a task: it is acknowledged, or nobody waits for it any more.
    pub(in crate::target_role) fn give_up_answer(&mut self, task: TaskId) {
        if let Some(answer) = self.tasks.take_answer(task) {
            self.recovery.kept_bytes -= answer.kept_bytes();
        }
    }

    /// Data or R2T SNACK.
    pub(super) fn resend_data(&mut self, pdu: &Pdu<'_>, snack: &Snack) -> Result<(), Violation> {
        let Some(task) = self.tasks.answered(snack.itt, pdu.connection) else {
            return self.resend_r2t(pdu, snack);
        };
        let segment = self.connection(pdu.connection).map_or(0, |at| at.keys().data_in_segment());
        let Some(answer) = self.tasks.answer(task) else { return Ok(()) };
        let nothing = Violation::NothingToResend(DataSn(answer.next));
        let wanted = answer.wanted(snack).ok_or(nothing)?;
        let runs: Vec<Run> = answer.runs.iter().filter_map(|run| run.part(&wanted)).collect();
        if matches!(answer.data, Kept::GivenUp) {
            return Err(Violation::NotKept);
        }
        // What no longer fits must be asked for by an R-Data SNACK (RFC 7143 §11.16.3).
        if runs.iter().any(|run| run.segment > segment && run.length > segment) {
            return Err(nothing);
        }
        if !self.may_resend(pdu.connection, runs.len(), 0) {
            return Err(Violation::NotKept);
        }
        for run in runs {
            self.put_run(task, &run);
        }
        Ok(())
    }

    /// R-Data SNACK: all data that is not acknowledged in segments of the length that holds now,
    /// and a response with its tag.
    pub(super) fn resend_resegmented(
        &mut self,
        pdu: &Pdu<'_>,
        snack: &Snack,
    ) -> Result<(), Violation> {
        let tagged = !matches!(snack.tag, 0 | u32::MAX);
        if snack.itt == Itt::NONE || !tagged || (snack.beg_run, snack.run_length) != (0, 0) {
            return Err(Violation::SnackField);
        }
        let nothing = Violation::NothingToResend(DataSn(0));
        let task = self.tasks.answered(snack.itt, pdu.connection).ok_or(nothing)?;
        let burst = self.login.parameters.max_burst_length.max(1) as usize;
        let Some(answer) = self.tasks.answer(task) else { return Ok(()) };
        let bursts = answer.kept_bytes().div_ceil(burst);
        if bursts > 0 && !self.may_resend(pdu.connection, bursts + 1, 0) {
            return Err(Violation::NotKept);
        }
        let Some(answer) = self.tasks.answer_mut(task) else { return Ok(()) };
        match answer.data {
            Kept::GivenUp => return Err(Violation::NotKept),
            Kept::Nothing => return Err(Violation::NothingToResend(DataSn(answer.next))),
            Kept::Whole(_) => {}
        }
        answer.response.snack_tag = snack.tag;
        answer.collapsed = false;
        let from = answer.acknowledged;
        self.put_from(task, from);
        self.send_status_again(task);
        Ok(())
    }

    /// DataACK: all before BegRun has arrived.
    pub(super) fn acknowledge_data(
        &mut self,
        id: ConnectionId,
        snack: &Snack,
    ) -> Result<(), Violation> {
        let tag = Some(Ttt(snack.tag));
        let asked = |answer: &Answer| answer.runs.iter().any(|run| run.tag == tag);
        let found = self
            .tasks
            .answered_where(id, |task, answer| asked(answer) && task.command.lun == snack.lun);
        let wrong = Violation::DataAcknowledgement;
        if snack.itt != Itt::NONE || snack.run_length != 0 {
            return Err(wrong);
        }
        let task = found.ok_or(wrong)?;
        let Some(answer) = self.tasks.answer_mut(task) else { return Ok(()) };
        if snack.beg_run <= answer.acknowledged || snack.beg_run > answer.next {
            return Err(wrong);
        }
        answer.acknowledged = snack.beg_run;
        // The status may be asked for with the PDU that it came in.
        if answer.acknowledged == answer.next && !answer.collapsed {
            self.recovery.kept_bytes -= answer.kept_bytes();
            answer.data = Kept::Nothing;
        }
        Ok(())
    }

    /// Sends the data of an answer from the PDU `number` on, in bursts of MaxBurstLength. Each run
    /// but the last asks to be acknowledged (RFC 7143 §11.7.2).
    fn put_from(&mut self, task: TaskId, number: u32) {
        let burst = self.login.parameters.max_burst_length.max(1);
        let Some((id, _)) = self.tasks.draining_tag(task) else { return };
        let Some(segment) = self.connection(id).map(|at| at.keys().data_in_segment()) else {
            return;
        };
        let Some(answer) = self.tasks.answer_mut(task) else { return };
        let Kept::Whole(data) = &answer.data else { return };
        let total = u32::try_from(data.len()).expect("cut to the expected length, 32 bits");
        let mut offset = answer.offset_of(number);
        answer.cut(number);
        let Cut { segment, burst, run } = Cut::new(total.saturating_sub(offset), segment, burst);
        while offset < total {
            let length = run.min(total - offset);
            let more = length < total - offset;
            let tag = match self.connection_mut(id) {
                Some(connection) if more => Some(connection.next_ttt()),
                _ => None,
            };
            let Some(answer) = self.tasks.answer_mut(task) else { return };
            let (first, burst_at, ends) = (answer.next, offset, true);
            let made = Run { first, offset, length, segment, burst_at, burst, ends, tag };
            answer.next = made.next();
            answer.runs.push(made);
            if answer.collapsed && !more {
                self.number_status(task, id);
            }
            self.put_run(task, &made);
            offset += length;
        }
    }

    fn put_run(&mut self, task: TaskId, run: &Run) {
        let Some((id, itt)) = self.tasks.draining_tag(task) else { return };
        let Some(lun) = self.tasks.draining_lun(task) else { return };
        let numbers = self.numbers(id);
        let Some(answer) = self.tasks.answer(task) else { return };
        let Kept::Whole(data) = &answer.data else { return };
        let status = answer.status_of(run);
        let stat_sn = answer.response.numbers.stat_sn;
        let numbers = if status.is_some() { Numbers { stat_sn, ..numbers } } else { numbers };
        let range = run.offset as usize..run.end() as usize;
        let data = data.part(range).expect("a range within the slice");
        let put = NumberedPut {
            task,
            itt,
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
        };
        self.outputs.op(id, Op::PutNumbered(Box::new(put)));
    }

    /// Sends the status of an answer for the first time on its connection.
    fn send_status(&mut self, task: TaskId) {
        let Some((id, _)) = self.tasks.draining_tag(task) else { return };
        self.number_status(task, id);
        self.send_status_again(task);
    }

    /// Gives the status of an answer its number, under which it is kept.
    fn number_status(&mut self, task: TaskId, id: ConnectionId) {
        let now = self.now;
        let numbers = self.response_numbers(id);
        let Some(answer) = self.tasks.answer_mut(task) else { return };
        answer.response.numbers = numbers;
        if let Some(connection) = self.connection_mut(id) {
            connection.retained_mut().push_task(numbers.stat_sn, task, now);
        }
    }

    /// Sends the status as it is now, under the number that it has.
    pub(in crate::target_role) fn send_status_again(&mut self, task: TaskId) {
        let Some((id, _)) = self.tasks.draining_tag(task) else { return };
        let numbers = self.numbers(id);
        let Some(segment) = self.connection(id).map(|at| at.keys().max_send_data_segment_length)
        else {
            return;
        };
        let Some(answer) = self.tasks.answer(task) else { return };
        // Without its data, where that no longer fits: ExpDataSN tells that it is missing, and an
        // R-Data SNACK asks for it (RFC 7143 §11.16.3).
        if let Some(run) = answer.status_run().filter(|run| run.length <= segment) {
            return self.put_run(task, &run);
        }
        let (response, sense) = answer.status();
        let (response, data) = (with_window(response, numbers), sense.clone());
        self.outputs.op(id, Op::SendControl { response, data, task: None });
    }

    /// Counts the data of a fresh answer. Where there is no room, the oldest of the connection are
    /// given up: a SNACK for them is then refused, which RFC 7143 §7.8 allows.
    fn account(&mut self, task: TaskId, id: ConnectionId) {
        let Some(answer) = self.tasks.answer_mut(task) else { return };
        let private = matches!(&answer.data, Kept::Whole(data) if !data.is_lent());
        if !private || answer.kept_bytes() > self.recovery.kept_bytes_max {
            return answer.give_up();
        }
        self.recovery.kept_bytes += answer.kept_bytes();
        let Some(connection) = self.connection(id) else { return };
        let oldest: Vec<TaskId> = match self.is_overfull() {
            true => connection.retained().tasks().collect(),
            false => return,
        };
        for task in oldest {
            if !self.is_overfull() {
                return;
            }
            self.give_up_data(task);
        }
        // What other connections keep has no room either.
        self.give_up_data(task);
        while self.is_overfull()
            && let Some(other) = self.tasks.keeping()
        {
            self.give_up_data(other);
        }
    }

    fn is_overfull(&self) -> bool {
        self.recovery.kept_bytes > self.recovery.kept_bytes_max
    }

    fn give_up_data(&mut self, task: TaskId) {
        let Some(answer) = self.tasks.answer_mut(task) else { return };
        self.recovery.kept_bytes -= answer.kept_bytes();
        answer.give_up();
    }

    /// Memory is short: gives up all data that is kept for sending again. False if there was none.
    pub fn give_up_kept_data(&mut self) -> bool {
        let had = self.recovery.kept_bytes > 0;
        while let Some(task) = self.tasks.keeping() {
            self.give_up_data(task);
        }
        had
    }

    /// True if data that others may change must be copied before `complete` to be kept.
    pub const fn keeps_data(&self) -> bool {
        self.recovery.is_on()
    }
}

/// Whether a task has data that is kept.
pub(in crate::target_role) fn keeps_data(task: &Task) -> bool {
    task.answer.as_ref().is_some_and(|answer| answer.kept_bytes() > 0)
}
