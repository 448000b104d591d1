// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management (RFC 7143 §4.2.3, §11.5-11.6).
//!
//! ```text
//!   ABORT TASK ------------------------------> WithScsi --done--------------------------> answered
//!   the others --> Waiting --conditions met--> WithScsi --done--> Fenced --acknowledged-->
//! answered
//! ```
//!
//! *Waiting*: for every command with a lower CmdSN, and for the end of the data of the tasks
//! concerned; commands of the LUN with a higher CmdSN stay in the window until the SCSI side is
//! done. *Fenced*: every response sent before must be acknowledged by ExpStatSN, on every
//! connection; with several connections, later responses wait until this one is acknowledged too.

use super::connection::Fence;
use super::recovery::Reassignment;
use super::session::{Held, Pdu, Session};
use super::task::lun_key;
use super::{ConnectionId, limits};
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::service::{Function, Indication, Management, ServiceResponse};
use crate::violation::Violation;
use crate::window::Position;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{
    CmdSn, Itt, LunField, Response, ScsiCommand, TaskManagementRequest, TaskManagementResponse,
};

/// Functions (RFC 7143 §11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TASK_REASSIGN: u8 = 8;

/// Responses (RFC 7143 §11.6.1).
const FUNCTION_COMPLETE: u8 = 0;
const TASK_DOES_NOT_EXIST: u8 = 1;
const STILL_ALLEGIANT: u8 = 3;
const REASSIGN_NOT_SUPPORTED: u8 = 4;
const FUNCTION_NOT_SUPPORTED: u8 = 5;
const FUNCTION_REJECTED: u8 = 255;

/// The task management requests of a session that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Managements {
    pending: Vec<Pending>,
    next_id: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    id: u32,
    connection: ConnectionId,
    itt: Itt,
    lun: LunField,
    cmd_sn: CmdSn,
    immediate: bool,
    function: Function,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `until`: when data that still does not come is given up.
    Waiting {
        until: Instant,
    },
    WithScsi,
    /// `response` goes out when no connection holds a fence for it.
    Fenced {
        response: u8,
    },
}

impl Managements {
    /// Requests that take a place in the command window.
    pub(super) fn numbered(&self) -> u16 {
        let numbered = self.pending.iter().filter(|pending| !pending.immediate).count();
        u16::try_from(numbered).unwrap_or(u16::MAX)
    }

    pub(super) fn find(&self, itt: Itt) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.itt == itt)
    }

    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        let immediate = self.pending.iter().filter(|pending| pending.immediate).count();
        assert!(immediate <= usize::from(limits::IMMEDIATE_MANAGEMENT_MAX), "immediate requests");
    }

    fn immediate(&self) -> usize {
        self.pending.iter().filter(|pending| pending.immediate).count()
    }
}

impl Pending {
    /// True if its answer comes after all before it and before all after it (RFC 7143 §4.2.2.3).
    const fn is_fenced(&self) -> bool {
        matches!(self.function, Function::AbortTaskSet | Function::ClearTaskSet)
    }

    /// True for commands of its LUN that came after it: they wait until it is done.
    fn bars(&self, lun: LunField, cmd_sn: CmdSn) -> bool {
        let acting = matches!(self.stage, Stage::Waiting { .. } | Stage::WithScsi);
        let many = !matches!(self.function, Function::AbortTask { .. });
        acting && many && lun_key(self.lun) == lun_key(lun) && !cmd_sn.is_before(self.cmd_sn)
    }
}

impl Session {
    /// SCSI side: the function `id` has been carried out. No response of a task it covers follows.
    pub fn task_management_done(&mut self, id: u32, response: ServiceResponse) {
        let with_scsi = |pending: &Pending| pending.id == id && pending.stage == Stage::WithScsi;
        let Some(at) = self.managements.pending.iter().position(with_scsi) else { return };
        let Some(pending) = self.managements.pending.get(at).copied() else { return };
        for task in self.covered(&pending) {
            match response {
                ServiceResponse::Complete => self.end_task(task),
                _ => self.resume(task),
            }
        }
        if pending.is_fenced() {
            for connection in self.connections.iter_mut() {
                let before = connection.status.next();
                connection.fences.push(Fence { management: id, before });
            }
        }
        if let Some(pending) = self.managements.pending.get_mut(at) {
            pending.stage = Stage::Fenced { response: response as u8 };
        }
        self.settle();
    }

    /// What can be wrong with a task management request whatever the order.
    pub(super) fn check_management(
        &self,
        request: &TaskManagementRequest,
    ) -> Result<(), Violation> {
        if request.itt == Itt::NONE {
            return Err(Violation::ReservedTaskTag);
        }
        if !request.immediate {
            match self.window.position(request.cmd_sn) {
                Position::Outside | Position::Duplicate => return Ok(()),
                Position::Next | Position::Ahead => {}
            }
        }
        let used =
            self.tasks.find(request.itt).is_some() || self.managements.find(request.itt).is_some();
        if used {
            return Err(Violation::TaskInProgress);
        }
        Ok(())
    }

    /// A task management request whose turn it is, or an immediate one.
    pub(super) fn run_management(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
    ) -> Result<(), Violation> {
        let full = self.managements.immediate() >= usize::from(limits::IMMEDIATE_MANAGEMENT_MAX);
        if request.immediate && full {
            return Err(Violation::TooManyImmediate);
        }
        let function = match request.function {
            ABORT_TASK => return self.run_abort_task(pdu, request),
            ABORT_TASK_SET => Function::AbortTaskSet,
            CLEAR_TASK_SET => Function::ClearTaskSet,
            LOGICAL_UNIT_RESET => Function::LogicalUnitReset,
            TASK_REASSIGN if self.is_no_scsi_task(request.referenced_task) => {
                return self.refuse_management(pdu, request, FUNCTION_REJECTED);
            }
            TASK_REASSIGN => return self.run_reassign(pdu, request),
            _ => return self.refuse_management(pdu, request, FUNCTION_NOT_SUPPORTED),
        };
        let until = self.now + limits::TRANSFER_WAIT;
        self.add_management(pdu, request, function, Stage::Waiting { until });
        Ok(())
    }

    /// When task management gives up waiting for data.
    pub(super) fn management_deadline(&self) -> Option<Instant> {
        let deadlines = self.managements.pending.iter().filter_map(|pending| match pending.stage {
            Stage::Waiting { until } if until > self.now => Some(until),
            _ => None,
        });
        deadlines.min()
    }

    /// Takes every step that can be taken. True if commands may have become free to be delivered.
    pub(super) fn progress_managements(&mut self) -> bool {
        self.lift_barrier();
        let mut freed = false;
        let mut at = 0;
        while let Some(pending) = self.managements.pending.get(at).copied() {
            match pending.stage {
                Stage::Waiting { until } if self.may_act(&pending, until) => self.act(at, &pending),
                Stage::Fenced { response } => {
                    if self.barrier.is_none() && self.is_acknowledged(pending.id) {
                        self.answer_management(at, response);
                        freed = true;
                        continue;
                    }
                }
                Stage::Waiting { .. } | Stage::WithScsi => {}
            }
            at += 1;
        }
        freed
    }

    /// True if the SCSI side must not have the held command yet.
    pub(super) fn is_task_barred(&self, task: TaskId) -> bool {
        self.tasks.live_ref(task).is_some_and(|task| self.is_command_barred(&task.command))
    }

    /// True if a function for its LUN and with a lower CmdSN is under way.
    pub(super) fn is_command_barred(&self, command: &ScsiCommand) -> bool {
        let pending = &self.managements.pending;
        pending.iter().any(|pending| pending.bars(command.lun, command.cmd_sn))
    }

    /// True if a function for `lun` is under way.
    pub(super) fn is_lun_barred(&self, lun: LunField) -> bool {
        self.managements.pending.iter().any(|pending| pending.bars(lun, pending.cmd_sn))
    }

    /// ABORT TASK (RFC 7143 §11.6.1).
    fn run_abort_task(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
    ) -> Result<(), Violation> {
        let referenced = request.referenced_task;
        if referenced == request.itt || self.is_no_scsi_task(referenced) {
            return self.refuse_management(pdu, request, FUNCTION_REJECTED);
        }
        let Some(task) = self.tasks.find(referenced) else {
            let response = self.plug_missing(request);
            return self.refuse_management(pdu, request, response);
        };
        let (id, lun, cmd_sn) = (task.id, task.command.lun, task.command.cmd_sn);
        if lun_key(lun) != lun_key(request.lun) {
            return self.refuse_management(pdu, request, TASK_DOES_NOT_EXIST);
        }
        if self.tasks.running_mut(id).is_none() {
            // It waits behind a hole: its number counts as received, and nobody above knows of it.
            if let Some(Held::Command(held)) = self.window.take(cmd_sn) {
                self.end_task(held);
            }
            return self.refuse_management(pdu, request, FUNCTION_COMPLETE);
        }
        if !self.is_known_to_scsi(id) {
            self.end_task(id);
            return self.refuse_management(pdu, request, FUNCTION_COMPLETE);
        }
        let function = Function::AbortTask { task: id };
        self.add_management(pdu, request, function, Stage::WithScsi);
        if let Some(pending) = self.managements.pending.last() {
            let management = Management { id: pending.id, function, lun };
            self.indicate(Indication::Management(management));
        }
        Ok(())
    }

    /// TASK REASSIGN (RFC 7143 §7.2.2, §11.5.1): the response comes before all else of the task.
    fn run_reassign(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
    ) -> Result<(), Violation> {
        let response = match self.reassignment(request.referenced_task) {
            Reassignment::NotSupported => REASSIGN_NOT_SUPPORTED,
            Reassignment::StillAllegiant => STILL_ALLEGIANT,
            Reassignment::NoTask => TASK_DOES_NOT_EXIST,
            // The response would have to wait, and the task with it: may be sent again.
            Reassignment::Granted(_) if self.barrier.is_some() => {
                return Err(Violation::TooManyImmediate);
            }
            Reassignment::Granted(task) => {
                self.send_management_response(pdu.connection, request.itt, FUNCTION_COMPLETE);
                self.reassign(task, pdu.connection, request.exp_data_sn);
                return Ok(());
            }
        };
        self.refuse_management(pdu, request, response)
    }

    /// True for the tag of a task management request or text exchange under way.
    fn is_no_scsi_task(&self, itt: Itt) -> bool {
        let texts = self.connections.iter().filter_map(|connection| connection.text.as_ref());
        self.managements.find(itt).is_some() || texts.into_iter().any(|text| text.itt() == itt)
    }

    /// The task is unknown: either it ended, or its command is missing and counts as received from
    /// now on.
    fn plug_missing(&mut self, request: &TaskManagementRequest) -> u8 {
        let missing = request.ref_cmd_sn.is_before(request.cmd_sn);
        if missing && self.window.plug(request.ref_cmd_sn) {
            // Steps over the plug, so that our answer shows it.
            self.window.peek();
            FUNCTION_COMPLETE
        } else {
            TASK_DOES_NOT_EXIST
        }
    }

    fn add_management(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
        function: Function,
        stage: Stage,
    ) {
        self.push_management(pdu, request, function, stage);
        if let Some(pending) = self.managements.pending.last().copied() {
            for task in self.covered(&pending) {
                if let Some(task) = self.tasks.running_mut(task) {
                    task.transfer.held_back = true;
                }
            }
        }
    }

    fn push_management(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
        function: Function,
        stage: Stage,
    ) {
        let id = self.managements.next_id;
        self.managements.next_id = id.wrapping_add(1);
        self.managements.pending.push(Pending {
            id,
            connection: pdu.connection,
            itt: request.itt,
            lun: request.lun,
            cmd_sn: request.cmd_sn,
            immediate: request.immediate,
            function,
            stage,
        });
    }

    /// Answers at once, without the SCSI side.
    fn refuse_management(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
        response: u8,
    ) -> Result<(), Violation> {
        if self.barrier.is_some() {
            // It waits like any other response; which function it was no longer matters.
            let function = Function::LogicalUnitReset;
            self.push_management(pdu, request, function, Stage::Fenced { response });
            return Ok(());
        }
        self.open_window();
        self.send_management_response(pdu.connection, request.itt, response);
        Ok(())
    }

    /// True if all that was sent before the fence of this request is acknowledged; asks for what is
    /// not.
    fn is_acknowledged(&mut self, management: u32) -> bool {
        let mut missing = Vec::new();
        for connection in self.connections.iter_mut() {
            let status = connection.status;
            connection.fences.retain(|fence| {
                fence.management != management || !status.is_acknowledged(fence.before)
            });
            if connection.fences.iter().any(|fence| fence.management == management) {
                missing.push(connection.id);
            }
        }
        for id in &missing {
            self.send_ping(*id);
        }
        missing.is_empty()
    }

    /// Lets responses go that wait for the acknowledgement of a fenced one.
    fn lift_barrier(&mut self) {
        let Some((id, before)) = self.barrier else { return };
        if self.connection(id).is_some_and(|at| !at.status.is_acknowledged(before)) {
            return self.send_ping(id);
        }
        self.barrier = None;
        for task in core::mem::take(&mut self.tasks.parked) {
            self.advance(task);
        }
    }

    /// Forgets the requests of a connection that is gone; their tasks go on.
    pub(super) fn forget_managements(&mut self, id: ConnectionId) {
        let of = |pending: &Pending| pending.connection == id;
        let gone: Vec<Pending> = self.managements.pending.iter().copied().filter(of).collect();
        self.managements.pending.retain(|pending| !of(pending));
        for pending in gone {
            for connection in self.connections.iter_mut() {
                connection.fences.retain(|fence| fence.management != pending.id);
            }
            if !matches!(pending.stage, Stage::Fenced { .. }) {
                for task in self.covered(&pending) {
                    self.resume(task);
                }
            }
        }
    }

    /// RFC 7143 §4.2.3.3: all commands below the request have come, and the data asked for has
    /// ended.
    fn may_act(&self, pending: &Pending, until: Instant) -> bool {
        if self.window.exp().is_before(pending.cmd_sn) {
            return false;
        }
        let waits =
            |task: &TaskId| self.tasks.live_ref(*task).is_some_and(|task| task.transfer.is_open());
        self.now >= until || !self.covered(pending).iter().any(waits)
    }

    fn act(&mut self, at: usize, pending: &Pending) {
        let Some(entry) = self.managements.pending.get_mut(at) else { return };
        entry.stage = Stage::WithScsi;
        let Pending { id, function, lun, .. } = *pending;
        self.indicate(Indication::Management(Management { id, function, lun }));
    }

    /// The running tasks that a function ends, in the order of delivery.
    fn covered(&self, pending: &Pending) -> Vec<TaskId> {
        if let Function::AbortTask { task } = pending.function {
            return self.tasks.live_ref(task).map(|task| task.id).into_iter().collect();
        }
        let key = lun_key(pending.lun);
        let covered = self.tasks.in_order().into_iter().filter(|task| {
            let command = &task.command;
            let before = command.cmd_sn.is_before(pending.cmd_sn)
                || (command.immediate && command.cmd_sn == pending.cmd_sn);
            lun_key(command.lun) == key && before
        });
        covered.map(|task| task.id).collect()
    }

    fn answer_management(&mut self, at: usize, response: u8) {
        if at >= self.managements.pending.len() {
            return;
        }
        let pending = self.managements.pending.remove(at);
        self.open_window();
        self.send_management_response(pending.connection, pending.itt, response);
        if pending.is_fenced() && self.connections.count() > 1 {
            let next = self.connection(pending.connection).map(|at| at.status.next());
            self.barrier = next.map(|before| (pending.connection, before));
        }
    }

    fn send_management_response(&mut self, id: ConnectionId, itt: Itt, response: u8) {
        let numbers = self.response_numbers(id);
        let answer = TaskManagementResponse { response, additional: 0, itt, numbers };
        self.send(id, Response::TaskManagement(answer), Vec::new());
    }
}
