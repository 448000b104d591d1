// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked for again above ErrorRecoveryLevel 0. Read first: RFC 7143 §7.1.4.1 and §7.1.4.2
//! (recovery within a command and within a connection), §7.8, §7.9, §11.16 (SNACK).
//!
//! The mover tells what is missing; here it is asked for, at once, as often as is reasonable. A
//! command whose data does not come fails when its status is there, and no status is acknowledged
//! before that.

use alloc::vec::Vec;

use wire::iscsi::BhsView;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::OPCODE_DATA_OUT;
use wire::iscsi::OPCODE_SCSI_COMMAND;
use wire::iscsi::OPCODE_SNACK;
use wire::iscsi::Reject;
use wire::iscsi::Request;
use wire::iscsi::Snack;
use wire::iscsi::SnackView;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

use super::Ending;
use super::Outcome;
use super::Session;
use super::SessionError;
use super::statuses::Arrival;
use crate::initiator::ConnectionId;
use crate::initiator::datamover::Event;
use crate::initiator::datamover::Op;
use crate::initiator::datamover::Run;
use crate::initiator::datamover::TaskId;
use crate::initiator::datamover::itt;
use crate::initiator::limits;
use crate::initiator::tasks::Home;
use crate::serial::Serial;
use crate::violation::reason;

/// SNACK types (RFC 7143 §11.16.1).
const DATA_OR_R2T: u8 = 0;
const STATUS: u8 = 1;
const DATA_ACK: u8 = 2;
const R_DATA: u8 = 3;

impl Session {
    /// Whether what is lost may be asked for: ErrorRecoveryLevel is above 0. Over RDMA nothing is
    /// lost, and no SNACK is sent (RFC 7145 §7.3.11, §10.2.1).
    pub(super) const fn recovers(&self) -> bool {
        let agreed = &self.login.parameters;
        agreed.error_recovery_level > 0 && agreed.rdma.is_none()
    }

    /// What only a mover tells that recovers.
    pub(super) fn recover(&mut self, at: ConnectionId, event: &Event) -> Result<(), SessionError> {
        match event {
            Event::Incomplete { task, lost, has_status, numbers } => {
                self.move_window(*numbers);
                if *has_status {
                    self.hold_status(at, *task, *numbers)?;
                }
                if let Some(run) = lost {
                    self.ask_for_data(at, *task, *run)?;
                }
                Ok(())
            }
            Event::StatusLost(number) => {
                let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
                let expected = connection.statuses.expected();
                let lost = SessionError::StatusLost { got: *number, expected };
                connection.statuses.lose(*number).map_err(|_| lost)
            }
            Event::Acknowledge { lun, ttt, next, numbers, .. } => {
                self.move_window(*numbers);
                let run = Run { first: next.0, count: 0 };
                self.snack(at, DATA_ACK, *lun, Itt::NONE, ttt.0, run);
                Ok(())
            }
            Event::Stray(numbers) => {
                self.move_window(*numbers);
                self.count_status(at, numbers.stat_sn).map(drop)
            }
            Event::Ended(_) | Event::Control { .. } | Event::Window(_) | Event::Violation(_) => {
                Ok(())
            }
        }
    }

    /// Asks for statuses that are missing (RFC 7143 §7.9).
    pub(super) fn ask_for_statuses(&mut self, at: ConnectionId) -> Result<(), SessionError> {
        loop {
            let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
            if connection.statuses.are_in_order() {
                return Ok(());
            }
            let expected = connection.statuses.expected();
            let lost = SessionError::StatusLost { got: expected, expected };
            let Some(run) = connection.statuses.ask().map_err(|_| lost)? else { return Ok(()) };
            self.snack(at, STATUS, LunField::default(), Itt::NONE, Ttt::NONE.0, run);
        }
    }

    /// A status came before all data of its command: it is not acknowledged (RFC 7143 §7.9).
    fn hold_status(
        &mut self,
        at: ConnectionId,
        task: TaskId,
        numbers: Numbers,
    ) -> Result<(), SessionError> {
        let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
        let (got, expected) = (numbers.stat_sn, connection.statuses.expected());
        let lost = SessionError::StatusLost { got, expected };
        if connection.statuses.hold(got).map_err(|_| lost)? == Arrival::Again {
            return Ok(());
        }
        let Some(entry) = self.tasks.get_mut(task) else { return Ok(()) };
        entry.held = Some(got);
        if entry.given_up {
            return self.end_damaged(at, task);
        }
        Ok(())
    }

    fn ask_for_data(
        &mut self,
        at: ConnectionId,
        task: TaskId,
        run: Run,
    ) -> Result<(), SessionError> {
        let Some(entry) = self.tasks.get_mut(task) else { return Ok(()) };
        entry.snacks += 1;
        if entry.snacks > limits::DATA_SNACKS_MAX {
            return self.give_up(task);
        }
        let reads = entry.command.data_in > 0;
        if reads && (entry.resegment || self.controls.declares_at(at)) {
            self.ask_for_all_data(at, task);
            return Ok(());
        }
        self.snack(at, DATA_OR_R2T, LunField::default(), itt(task), Ttt::NONE.0, run);
        Ok(())
    }

    /// Data that was sent before the connection took other lengths is asked for as a whole, cut as
    /// it takes it now (RFC 7143 §11.16.3). Also while that is being agreed: when the target reads
    /// this, it may be so.
    fn ask_for_all_data(&mut self, at: ConnectionId, task: TaskId) {
        let exp_stat_sn = self.exp_stat_sn_at(at);
        let Some(entry) = self.tasks.get_mut(task) else { return };
        entry.resegment = false;
        // Neither 0 nor 0xffffffff, and one task asks far less often (RFC 7143 §11.16.5).
        entry.snack_tags += 1;
        let request = Snack {
            kind: R_DATA,
            lun: LunField::default(),
            itt: itt(task),
            tag: entry.snack_tags,
            exp_stat_sn,
            beg_run: 0,
            run_length: 0,
        };
        self.op(at, Op::Resegment { task, request });
    }

    /// Missing data of a task will not come: the task fails once its status is there (RFC 7143
    /// §7.8).
    fn give_up(&mut self, task: TaskId) -> Result<(), SessionError> {
        let Some(entry) = self.tasks.get_mut(task) else { return Ok(()) };
        if entry.command.data_in == 0 {
            // An R2T that the target does not need answered any more.
            return Ok(());
        }
        entry.given_up = true;
        let at = entry.connection;
        if entry.held.is_some() { self.end_damaged(at, task) } else { Ok(()) }
    }

    /// Ends a task whose status is there and whose data is not.
    fn end_damaged(&mut self, at: ConnectionId, task: TaskId) -> Result<(), SessionError> {
        let Some(held) = self.tasks.get(task).and_then(|entry| entry.held) else { return Ok(()) };
        self.count_status(at, held)?;
        self.controls.concluded(task);
        self.end_task(task, Outcome::Failed(Ending::Damaged));
        Ok(())
    }

    fn snack(&mut self, at: ConnectionId, kind: u8, lun: LunField, itt: Itt, tag: u32, run: Run) {
        let exp_stat_sn = self.exp_stat_sn_at(at);
        let (beg_run, run_length) = (run.first, run.count);
        let request = Snack { kind, lun, itt, tag, exp_stat_sn, beg_run, run_length };
        self.op(at, Op::SendControl { request: Request::Snack(request), data: Vec::new() });
    }

    /// A PDU of a task, or a SNACK, was refused. False if it was neither (RFC 7143 §7.8, §7.3).
    pub(super) fn task_rejected(
        &mut self,
        at: ConnectionId,
        pdu: &Reject,
        header: &[u8],
    ) -> Result<bool, SessionError> {
        let Ok(bhs) = BhsView::new_checked(header) else { return Ok(false) };
        let task = self.tasks.find(bhs.itt());
        let damaged = pdu.reason == reason::DATA_DIGEST_ERROR;
        match (bhs.opcode(), task) {
            (OPCODE_SNACK, Some(task)) => self.give_up(task)?,
            (OPCODE_SNACK, None) => return self.snack_rejected(at, header).map(|()| true),
            // The target asks for it again, or ends the task.
            (OPCODE_DATA_OUT, Some(_)) if damaged => {}
            // It was not received: its number is open (RFC 7143 §7.8).
            (OPCODE_SCSI_COMMAND, Some(task)) if damaged && self.may_resend(task) => {
                self.resend_rejected(task);
            }
            (_, Some(task)) => {
                if !damaged {
                    self.end_task(task, Outcome::Failed(Ending::Rejected(pdu.reason)));
                }
                return Err(SessionError::Rejected(pdu.reason));
            }
            (_, None) => return Ok(false),
        }
        Ok(true)
    }

    /// A SNACK about no task: without the statuses that it asked for the connection cannot go on.
    fn snack_rejected(&self, at: ConnectionId, header: &[u8]) -> Result<(), SessionError> {
        let (Ok(snack), Some(connection)) =
            (SnackView::new_checked(header), self.connections.get(at))
        else {
            return Ok(());
        };
        let got = StatSn(snack.beg_run());
        if snack.kind() == STATUS && connection.statuses.is_missing(got) {
            let expected = connection.statuses.expected();
            return Err(SessionError::StatusLost { got, expected });
        }
        Ok(())
    }

    /// Whether a command that the target dropped may be sent again under its number: only to fill
    /// the gap that it left (RFC 7143 §7.2.1).
    fn may_resend(&self, task: TaskId) -> bool {
        let Some(entry) = self.tasks.get(task) else { return false };
        let is_open = entry.sent.is_some_and(|number| !number.is_before(self.exp_cmd_sn));
        is_open && entry.home == Home::There && entry.resends < limits::RESENDS_MAX
    }

    fn resend_rejected(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.get_mut(task) else { return };
        entry.resends += 1;
        let (number, at) = (entry.sent, entry.connection);
        if let Some(number) = number {
            self.retries.note(at, number);
            self.send(task, number, at);
        }
    }
}
