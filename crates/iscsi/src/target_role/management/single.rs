// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions that are about one task, and what is particular to resets of the whole target.

use super::{
    Claim, FUNCTION_COMPLETE, FUNCTION_REJECTED, Pdu, REASSIGN_NOT_SUPPORTED, STILL_ALLEGIANT,
    Session, Stage, TARGET_COLD_RESET, TARGET_WARM_RESET, TASK_DOES_NOT_EXIST, lun_key,
};
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::service::{Function, Indication, Management};
use crate::target_role::numbering::Held;
use crate::target_role::recovery::Reassignment;
use crate::target_role::settings::TargetReset;
use crate::violation::Violation;
use crate::window::Position;
use wire::iscsi::{Itt, TaskManagementRequest};

impl Session {
    /// ABORT TASK (RFC 7143 §11.6.1).
    pub(super) fn run_abort_task(
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
        self.hand_over(pdu, request, Function::AbortTask { task: id });
        Ok(())
    }

    /// Gives a function that has nothing to wait for to the SCSI side.
    fn hand_over(&mut self, pdu: &Pdu<'_>, request: &TaskManagementRequest, function: Function) {
        let id = self.add_management(pdu, request, function, Stage::WithScsi);
        self.outputs.indicate(Indication::Management(Management {
            id,
            function,
            lun: request.lun,
        }));
    }

    /// TASK REASSIGN (RFC 7143 §7.2.2, §11.5.1): the response comes before all else of the task. A
    /// task that is granted stays where it is until the response leaves.
    pub(super) fn run_reassign(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
    ) -> Result<(), Violation> {
        let task = request.referenced_task;
        let (response, granted) = self.judge_reassignment(task);
        let claim = granted.map(|_| Claim { task, from: request.exp_data_sn });
        self.answer_in_turn(pdu, request, response, claim)
    }

    /// The response to TASK REASSIGN as things are, and the task if it is granted.
    pub(super) fn judge_reassignment(&self, task: Itt) -> (u8, Option<TaskId>) {
        match self.reassignment(task) {
            Reassignment::NotSupported => (REASSIGN_NOT_SUPPORTED, None),
            Reassignment::StillAllegiant => (STILL_ALLEGIANT, None),
            Reassignment::NoTask => (TASK_DOES_NOT_EXIST, None),
            Reassignment::Granted(task) => (FUNCTION_COMPLETE, Some(task)),
        }
    }

    /// True for the tag of a task management request, logout or text exchange under way.
    pub(super) fn is_no_scsi_task(&self, itt: Itt) -> bool {
        let mut texts = self.connections.iter().filter_map(|connection| connection.text().itt());
        self.managements.find(itt).is_some()
            || self.logouts.has(itt)
            || texts.any(|text| text == itt)
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

    /// QUERY TASK (RFC 7144 §6.3): a task is there from its arrival until its answer.
    pub(super) fn run_query_task(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TaskManagementRequest,
    ) -> Result<(), Violation> {
        let task = self.tasks.find(request.referenced_task);
        let task = task.filter(|task| lun_key(task.command.lun) == lun_key(request.lun));
        let function = Function::QueryTask { task: task.map(|task| task.id) };
        self.hand_over(pdu, request, function);
        Ok(())
    }

    /// The reset of the whole target with this code, if this initiator may ask for it.
    pub(super) fn permitted_reset(&self, function: u8) -> Option<Function> {
        match function {
            TARGET_WARM_RESET if self.target_reset >= TargetReset::Warm => {
                Some(Function::TargetWarmReset)
            }
            TARGET_COLD_RESET if self.target_reset >= TargetReset::Cold => {
                Some(Function::TargetColdReset)
            }
            _ => None,
        }
    }

    /// A reset of the whole target waits for no command: those that have not come count as received
    /// (RFC 7143 §4.2.3.3 b).
    pub(super) fn plug_before(&mut self, request: &TaskManagementRequest) {
        let first = self.window.exp();
        let missing = request.cmd_sn.steps_from(first);
        if missing <= self.window.size() {
            for step in 0..missing {
                self.window.plug(first.plus(step));
            }
        }
    }

    /// The same for one that itself stands behind the missing commands.
    pub(in crate::target_role) fn plug_before_numbered(&mut self, request: &TaskManagementRequest) {
        let is_taken = !request.immediate
            && self.permitted_reset(request.function).is_some()
            && self.window.position(request.cmd_sn) == Position::Ahead;
        if is_taken {
            self.plug_before(request);
        }
    }
}
