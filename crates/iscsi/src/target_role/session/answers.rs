// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data and status that are sent again, above ErrorRecoveryLevel 0: SNACK and DataACK (RFC 7143
//! §7.8, §11.16). The answers know what was sent, connections the numbers and what it may cost.

use super::Session;
use crate::datamover::Op;
use crate::datamover::TaskId;
use crate::target_role::names::ConnectionId;
use crate::target_role::pdu::Pdu;
use crate::target_role::recovery::Answer;
use crate::target_role::recovery::Run;
use crate::target_role::recovery::with_window;
use crate::target_role::reply::Reply;
use crate::target_role::task::Task;
use crate::violation::Violation;
use alloc::boxed::Box;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::Snack;
use wire::iscsi::Ttt;

/// SNACK types (RFC 7143 §11.16.1).
const DATA_OR_R2T: u8 = 0;
const STATUS: u8 = 1;
const DATA_ACK: u8 = 2;
const R_DATA: u8 = 3;

impl Session {
    /// True if data that others may change must be copied before `complete` to be kept.
    pub const fn keeps_data(&self) -> bool {
        self.keeps_answers()
    }

    /// Memory is short: gives up all data that is kept for sending again. False if there was none.
    pub fn give_up_kept_data(&mut self) -> bool {
        self.tasks.give_up_kept_data()
    }

    /// Carries out a SNACK Request (RFC 7143 §11.16).
    pub(super) fn run_snack(&mut self, pdu: &Pdu<'_>, snack: &Snack) -> Result<(), Violation> {
        if self.login.parameters.rdma.is_some() {
            return Err(Violation::SnackOverRdma);
        }
        if !self.recovers() {
            return Err(Violation::Snack);
        }
        let id = pdu.connection;
        let tagged = snack.tag != Ttt::NONE.0;
        match snack.kind {
            DATA_OR_R2T if snack.itt != Itt::NONE && !tagged => self.resend_data(id, snack),
            STATUS if snack.itt == Itt::NONE && !tagged => self.resend_status(id, snack),
            DATA_ACK => match self.tasks.acknowledge_data(id, snack) {
                // ExpStatSN, of this PDU even, may have acknowledged the status before, and so all.
                Err(_) if self.has_released(id, snack) => Ok(()),
                result => result,
            },
            R_DATA => self.resend_resegmented(id, snack),
            _ => Err(Violation::SnackField),
        }
    }

    /// Whether a DataACK answers Data-In of a task whose status is acknowledged.
    fn has_released(&self, id: ConnectionId, snack: &Snack) -> bool {
        let is_whole = snack.itt == Itt::NONE && snack.run_length == 0;
        let connection = self.connections.get(id);
        is_whole && connection.is_some_and(|at| at.has_released(Ttt(snack.tag)))
    }

    /// Sends data and status of a task, and keeps both.
    pub(super) fn respond_and_keep(&mut self, task: TaskId, reply: &mut Reply) {
        let connection = reply.connection;
        let is_collapsed = reply.collapsed().is_some();
        self.tasks.keep(task, reply);
        self.put_unacknowledged(task);
        if !is_collapsed {
            self.send_status(task);
        }
        if let Some(connection) = self.connections.present_mut(connection) {
            self.tasks.account(task, connection.retained().tasks());
        }
    }

    /// The rest of the data, and the status, on another connection (RFC 7143 §7.2.2, §11.5.6).
    pub(super) fn answer_again(&mut self, task: TaskId) {
        self.put_unacknowledged(task);
        self.send_status(task);
    }

    /// Sends the status as it is now, under the number that it has.
    pub(super) fn send_status_again(&mut self, task: TaskId) {
        let Some((entry, answer)) = self.tasks.get(task).and_then(with_answer) else { return };
        let id = entry.connection();
        let (response, sense) = answer.status();
        let (run, data) = (answer.status_run(), sense.clone());
        let numbers = self.numbers(id);
        let segment =
            self.connections.get(id).map_or(0, |at| at.keys().max_send_data_segment_length);
        // Without its data, where that no longer fits: ExpDataSN tells that it is missing, and an
        // R-Data SNACK asks for it (RFC 7143 §11.16.3).
        if let Some(run) = run.filter(|run| run.length <= segment) {
            return self.put_run(task, &run);
        }
        let response = with_window(response, numbers);
        self.outputs.op(id, Op::SendControl { response, data, task: None });
    }

    /// Data or R2T SNACK.
    fn resend_data(&mut self, id: ConnectionId, snack: &Snack) -> Result<(), Violation> {
        let segment = self.data_in_segment(id);
        let Some((entry, answer)) = self.tasks.answered(snack.itt, id).and_then(with_answer) else {
            return self.resend_r2t(id, snack);
        };
        let (task, runs) = (entry.id(), answer.again(snack, segment)?);
        self.pay_for(id, runs.len())?;
        for run in runs {
            self.put_run(task, &run);
        }
        Ok(())
    }

    /// R2T SNACK: sends R2Ts again whose data has not come.
    fn resend_r2t(&mut self, id: ConnectionId, snack: &Snack) -> Result<(), Violation> {
        let bursts = self.tasks.bursts_again(id, snack)?;
        self.pay_for(id, bursts.len())?;
        for burst in bursts {
            let get = burst.numbered(self.numbers(id));
            debug_assert!(get.is_some(), "R2Ts have numbers above level 0");
            get.into_iter().for_each(|get| self.outputs.op(id, Op::AskAgain(get)));
        }
        Ok(())
    }

    /// R-Data SNACK: all data that is not acknowledged in segments of the length that holds now,
    /// and a response with its tag.
    fn resend_resegmented(&mut self, id: ConnectionId, snack: &Snack) -> Result<(), Violation> {
        let tagged = !matches!(snack.tag, 0 | u32::MAX);
        if snack.itt == Itt::NONE || !tagged || (snack.beg_run, snack.run_length) != (0, 0) {
            return Err(Violation::SnackField);
        }
        let answered = self.tasks.answered(snack.itt, id).and_then(with_answer);
        let (entry, answer) = answered.ok_or(Violation::NothingToResend(DataSn(0)))?;
        let task = entry.id();
        let burst = self.login.parameters.max_burst_length.max(1) as usize;
        let bursts = answer.kept_bytes().div_ceil(burst);
        if bursts > 0 {
            self.pay_for(id, bursts + 1)?;
        }
        if let Some(answer) = self.tasks.answer_mut(task) {
            answer.resegment(snack.tag)?;
        }
        self.put_unacknowledged(task);
        self.send_status_again(task);
        Ok(())
    }

    /// Sends the data of an answer that is not acknowledged, in bursts of MaxBurstLength.
    fn put_unacknowledged(&mut self, task: TaskId) {
        let Some(id) = self.tasks.get(task).map(Task::connection) else { return };
        let burst = self.login.parameters.max_burst_length.max(1);
        let segment = self.data_in_segment(id);
        // Over RDMA no PDU acknowledges data (RFC 7145 §7.3.5, §7.3.11): all stays until the
        // status is acknowledged.
        let asks = self.recovers();
        let answer = self.tasks.answer_mut(task);
        let Some(mut rest) = answer.and_then(|answer| answer.recut(segment, burst)) else { return };
        while let Some(answer) = self.tasks.answer_mut(task)
            && let Some(connection) = self.connections.present_mut(id)
            && let Some(run) = answer.next_run(&mut rest, || asks.then(|| connection.next_ttt()))
        {
            if answer.status_of(&run).is_some() {
                self.number_status(task, id);
            }
            self.put_run(task, &run);
        }
    }

    fn put_run(&mut self, task: TaskId, run: &Run) {
        let Some(id) = self.tasks.get(task).map(Task::connection) else { return };
        let numbers = self.numbers(id);
        let Some((entry, answer)) = self.tasks.get(task).and_then(with_answer) else { return };
        if let Some(put) = answer.put(run, task, entry.command().lun, numbers) {
            self.outputs.op(id, Op::PutNumbered(Box::new(put)));
        }
    }

    /// Sends the status of an answer for the first time on its connection.
    fn send_status(&mut self, task: TaskId) {
        let Some(id) = self.tasks.get(task).map(Task::connection) else { return };
        self.number_status(task, id);
        self.send_status_again(task);
    }

    /// Gives the status of an answer its number, under which it is kept.
    fn number_status(&mut self, task: TaskId, id: ConnectionId) {
        let numbers = self.response_numbers(id);
        let answer = self.tasks.answer_mut(task);
        debug_assert!(answer.is_some(), "what is numbered is kept");
        if let Some(answer) = answer
            && let Some(connection) = self.connections.present_mut(id)
        {
            connection.retained_mut().push_task(answer.number(numbers), task, self.now);
        }
    }

    /// What sending `pdus` again costs, unless its initiator has asked for too much since it last
    /// acknowledged something.
    fn pay_for(&mut self, id: ConnectionId, pdus: usize) -> Result<(), Violation> {
        match self.connections.present_mut(id) {
            Some(connection) => connection.retained_mut().pay(pdus, 0),
            None => Err(Violation::NotKept),
        }
    }

    fn data_in_segment(&self, id: ConnectionId) -> u32 {
        self.connections.get(id).map_or(0, |at| at.keys().data_in_segment())
    }
}

fn with_answer(task: &Task) -> Option<(&Task, &Answer)> {
    task.answer().map(|answer| (task, answer))
}
