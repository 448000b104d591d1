// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management (RFC 7143 §4.2.3, §11.5-11.6).
//!
//! ```text
//!   ABORT TASK ------------------------------> WithScsi --done--> Answered --its turn--> sent
//!   the others --> Waiting --conditions met--> WithScsi --done--> Answered --its turn--> sent
//! ```
//!
//! *Waiting*: for every command with a lower CmdSN and, without FastAbort, for the end of the data
//! of the tasks concerned; commands of the LUN with a higher CmdSN stay in the window until the
//! SCSI side is done. *Answered*: where the answer is fenced, or others are, it gets in line
//! (`fence`).

mod single;

use super::fence::{Fence, Holder};
use super::limits;
use super::lun::lun_key;
use super::names::ConnectionId;
use super::pdu::Pdu;
use super::session::Session;
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::service::{Function, Indication, Management, ServiceResponse};
use crate::violation::Violation;
use crate::window::Position;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{
    CmdSn, DataSn, Itt, LunField, Response, ScsiCommand, TaskManagementRequest,
    TaskManagementResponse,
};

/// Functions (RFC 7143 §11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_ACA: u8 = 3;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

/// Functions of protocol level 2 (RFC 7144 §6.3).
const QUERY_TASK: u8 = 9;
const QUERY_TASK_SET: u8 = 10;
const I_T_NEXUS_RESET: u8 = 11;
const QUERY_ASYNCHRONOUS_EVENT: u8 = 12;

/// Responses (RFC 7143 §11.6.1, RFC 7144 §6.4).
const FUNCTION_COMPLETE: u8 = 0;
const TASK_DOES_NOT_EXIST: u8 = 1;
const STILL_ALLEGIANT: u8 = 3;
const REASSIGN_NOT_SUPPORTED: u8 = 4;
const FUNCTION_NOT_SUPPORTED: u8 = 5;
const AUTHORIZATION_FAILED: u8 = 6;
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
    pub(super) connection: ConnectionId,
    itt: Itt,
    lun: LunField,
    cmd_sn: CmdSn,
    immediate: bool,
    /// None for one that was refused, and for TASK REASSIGN.
    function: Option<Function>,
    /// What is reassigned once the answer leaves.
    claim: Option<Claim>,
    stage: Stage,
}

/// What TASK REASSIGN was granted.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// The referenced task tag.
    task: Itt,
    /// ExpDataSN.
    from: DataSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `until`: when data that still does not come is given up.
    Waiting {
        until: Instant,
    },
    WithScsi,
    /// The answer is in line.
    Answered {
        response: u8,
        additional: u32,
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

    pub(super) fn get(&self, id: u32) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.id == id)
    }

    /// True if its answer is in line.
    pub(super) fn is_answered(&self, id: u32) -> bool {
        self.get(id).is_some_and(|pending| matches!(pending.stage, Stage::Answered { .. }))
    }

    /// True if the reassignment of this task is in line.
    pub(super) fn claims(&self, task: Itt) -> bool {
        let claims = self.pending.iter().filter_map(|pending| pending.claim);
        claims.into_iter().any(|claim| claim.task == task)
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
    /// How its answer stands to other responses (RFC 7143 §4.2.2.3.4, §11.6.1).
    fn fence(&self) -> Fence {
        match self.function {
            Some(Function::AbortTaskSet | Function::ClearTaskSet) => Fence::Always,
            // All connections end with the answer: there is no later response.
            Some(Function::TargetColdReset) => Fence::None,
            Some(Function::ClearAca) => Fence::Promised,
            Some(function) if function.ends_many() => Fence::Promised,
            _ => Fence::None,
        }
    }

    /// True for commands to its units that came after it: they wait until it is done.
    fn bars(&self, lun: LunField, cmd_sn: CmdSn) -> bool {
        let acting = matches!(self.stage, Stage::Waiting { .. } | Stage::WithScsi);
        acting && self.is_for(lun) && !cmd_sn.is_before(self.cmd_sn)
    }

    /// True for a command of a unit that it ends, if it came before it.
    pub(super) fn covers(&self, command: &ScsiCommand) -> bool {
        let before = command.cmd_sn.is_before(self.cmd_sn)
            || (command.immediate && command.cmd_sn == self.cmd_sn);
        self.is_for(command.lun) && before
    }

    /// True if it ends all tasks on this unit.
    fn is_for(&self, lun: LunField) -> bool {
        let Some(function) = self.function else { return false };
        function.ends_many() && (function.is_for_all_units() || lun_key(self.lun) == lun_key(lun))
    }
}

impl Session {
    /// SCSI side: the function `id` has been carried out. No response of a task it covers follows.
    pub fn task_management_done(&mut self, id: u32, response: ServiceResponse) {
        let with_scsi = |pending: &Pending| pending.id == id && pending.stage == Stage::WithScsi;
        let Some(at) = self.managements.pending.iter().position(with_scsi) else { return };
        let Some(pending) = self.managements.pending.get(at).copied() else { return };
        let covered = self.covered(&pending);
        let ends_many = pending.function.is_some_and(Function::ends_many);
        match response {
            ServiceResponse::Complete if ends_many => {
                self.end_with_notice(&covered, Some(pending.connection));
            }
            ServiceResponse::Complete => covered.into_iter().for_each(|task| self.end_task(task)),
            _ => covered.into_iter().for_each(|task| self.resume(task)),
        }
        let additional = match response {
            ServiceResponse::Succeeded { additional } => additional,
            _ => 0,
        };
        if let Some(pending) = self.managements.pending.get_mut(at) {
            pending.stage = Stage::Answered { response: response.code(), additional };
        }
        if !self.get_in_line(Holder::Management(id), pending.fence()) {
            self.answer_management(id);
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
        let new = self.login.parameters.protocol_level >= 2;
        let function = match request.function {
            ABORT_TASK => return self.run_abort_task(pdu, request),
            ABORT_TASK_SET => Function::AbortTaskSet,
            CLEAR_ACA => Function::ClearAca,
            CLEAR_TASK_SET => Function::ClearTaskSet,
            LOGICAL_UNIT_RESET => Function::LogicalUnitReset,
            TARGET_WARM_RESET | TARGET_COLD_RESET => {
                let Some(function) = self.permitted_reset(request.function) else {
                    return self.refuse_management(pdu, request, AUTHORIZATION_FAILED);
                };
                self.plug_before(request);
                function
            }
            QUERY_TASK if new => return self.run_query_task(pdu, request),
            QUERY_TASK_SET if new => Function::QueryTaskSet,
            I_T_NEXUS_RESET if new => Function::NexusReset,
            QUERY_ASYNCHRONOUS_EVENT if new => Function::QueryAsynchronousEvent,
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
        for at in 0..self.managements.pending.len() {
            let Some(pending) = self.managements.pending.get(at).copied() else { break };
            if let Stage::Waiting { until } = pending.stage
                && self.may_act(&pending, until)
            {
                self.act(at, &pending);
            }
        }
        self.progress_fences()
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

    fn add_management(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
        function: Function,
        stage: Stage,
    ) -> u32 {
        let id = self.push_management(pdu, request, Some(function), stage);
        if let Some(pending) = self.managements.get(id).copied() {
            for task in self.covered(&pending) {
                if let Some(task) = self.tasks.running_mut(task) {
                    task.transfer.held_back = true;
                }
            }
        }
        id
    }

    fn push_management(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
        function: Option<Function>,
        stage: Stage,
    ) -> u32 {
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
            claim: None,
            stage,
        });
        id
    }

    /// Answers at once, without the SCSI side.
    fn refuse_management(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
        response: u8,
    ) -> Result<(), Violation> {
        self.answer_in_turn(pdu, request, response, None)
    }

    fn answer_in_turn(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
        response: u8,
        claim: Option<Claim>,
    ) -> Result<(), Violation> {
        let stage = Stage::Answered { response, additional: 0 };
        let id = self.push_management(pdu, request, None, stage);
        if let Some(pending) = self.managements.pending.last_mut() {
            pending.claim = claim;
        }
        if !self.get_in_line(Holder::Management(id), Fence::None) {
            self.answer_management(id);
        }
        Ok(())
    }

    /// Forgets the requests of a connection that is gone; their tasks go on.
    pub(super) fn forget_managements(&mut self, id: ConnectionId) {
        let of = |pending: &Pending| pending.connection == id;
        let gone: Vec<Pending> = self.managements.pending.iter().copied().filter(of).collect();
        self.managements.pending.retain(|pending| !of(pending));
        for pending in gone {
            if !matches!(pending.stage, Stage::Answered { .. }) {
                for task in self.covered(&pending) {
                    self.resume(task);
                }
            }
        }
    }

    /// All commands below the request have come, and the data asked for has ended (RFC 7143
    /// §4.2.3.3). With FastAbort the data does not matter (§4.2.3.4).
    fn may_act(&self, pending: &Pending, until: Instant) -> bool {
        if self.window.exp().is_before(pending.cmd_sn) {
            return false;
        }
        let waits =
            |task: &TaskId| self.tasks.live_ref(*task).is_some_and(|task| task.transfer.is_open());
        self.is_fast() || self.now >= until || !self.covered(pending).iter().any(waits)
    }

    fn act(&mut self, at: usize, pending: &Pending) {
        let Some(entry) = self.managements.pending.get_mut(at) else { return };
        entry.stage = Stage::WithScsi;
        let Pending { id, function: Some(function), lun, .. } = *pending else { return };
        self.outputs.indicate(Indication::Management(Management { id, function, lun }));
    }

    /// The running tasks that a function ends, in the order of delivery.
    pub(super) fn covered(&self, pending: &Pending) -> Vec<TaskId> {
        if let Some(Function::AbortTask { task }) = pending.function {
            return self.tasks.live_ref(task).map(|task| task.id).into_iter().collect();
        }
        let covered = self.tasks.in_order().into_iter();
        covered.filter(|task| pending.covers(&task.command)).map(|task| task.id).collect()
    }

    /// Sends the answer of a function; gives its connection.
    pub(super) fn answer_management(&mut self, id: u32) -> Option<ConnectionId> {
        let at = self.managements.pending.iter().position(|pending| pending.id == id)?;
        let Stage::Answered { response, additional } = self.managements.pending.get(at)?.stage
        else {
            return None;
        };
        let pending = self.managements.pending.remove(at);
        self.open_window();
        let (response, granted) = match pending.claim {
            // What was granted may have changed while the answer was in line.
            Some(claim) => self.judge_reassignment(claim.task),
            None => (response, None),
        };
        let numbers = self.response_numbers(pending.connection);
        let answer = TaskManagementResponse { response, additional, itt: pending.itt, numbers };
        self.send(pending.connection, Response::TaskManagement(answer), Vec::new());
        if let (Some(task), Some(claim)) = (granted, pending.claim) {
            self.reassign(task, pending.connection, claim.from);
        }
        Some(pending.connection)
    }
}
