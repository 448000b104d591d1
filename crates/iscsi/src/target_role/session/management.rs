// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management (RFC 7143 §4.2.3, §11.5-11.6): functions wait for commands and data, the SCSI
//! side carries them out, tasks end or go on.

use super::Session;
use super::reassignment::Reassignment;
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::service::Function;
use crate::service::ServiceResponse;
use crate::target_role::fence::Holder;
use crate::target_role::limits;
use crate::target_role::lun::lun_key;
use crate::target_role::management::Claim;
use crate::target_role::management::Course;
use crate::target_role::management::FUNCTION_COMPLETE;
use crate::target_role::management::FUNCTION_REJECTED;
use crate::target_role::management::Pending;
use crate::target_role::management::REASSIGN_NOT_SUPPORTED;
use crate::target_role::management::STILL_ALLEGIANT;
use crate::target_role::management::TASK_DOES_NOT_EXIST;
use crate::target_role::names::ConnectionId;
use crate::target_role::numbering::Turn;
use crate::target_role::pdu::Pdu;
use crate::target_role::task::Task;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::Itt;
use wire::iscsi::Response;
use wire::iscsi::TaskManagementRequest;
use wire::iscsi::TaskManagementResponse;

impl Session {
    /// SCSI side: the function `id` has been carried out. No response of a task it covers follows.
    pub fn task_management_done(&mut self, id: u32, response: ServiceResponse) {
        let Some(pending) = self.managements.done(id, response) else { return };
        let covered = self.covered(&pending);
        match response {
            ServiceResponse::Complete if pending.ends_many() => {
                self.end_with_notice(&covered, Some(pending.connection()));
            }
            ServiceResponse::Complete => {
                covered.into_iter().for_each(|task| self.tasks.end(task, &mut self.outputs))
            }
            _ => covered.into_iter().for_each(|task| self.resume(task)),
        }
        self.answer_in_turn(&pending);
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
        // One that is not taken anyway may have the tag of one that was.
        let is_taken = request.immediate || self.numbering.turn(request.cmd_sn).is_ok();
        let is_used =
            || self.tasks.find(request.itt).is_some() || self.managements.has(request.itt);
        if is_taken && is_used() {
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
        let id = pdu.connection;
        let function = match self.managements.course(id, request)? {
            Course::AbortTask => {
                self.run_abort_task(id, request);
                return Ok(());
            }
            Course::QueryTask => {
                let task = self.tasks.find(request.referenced_task);
                // A task is there from its arrival until its answer (RFC 7144 §6.3).
                let task = task.filter(|task| lun_key(task.command().lun) == lun_key(request.lun));
                let function = Function::QueryTask { task: task.map(Task::id) };
                self.managements.hand_over(id, request, function, &mut self.outputs);
                return Ok(());
            }
            Course::Reassign => {
                self.run_reassign(id, request);
                return Ok(());
            }
            Course::Refuse(response) => {
                self.respond_to_management(id, request, response, None);
                return Ok(());
            }
            Course::ResetTarget(function) => {
                self.numbering.plug_before(request.cmd_sn);
                function
            }
            Course::CarryOut(function) => function,
        };
        let until = self.now + limits::TRANSFER_WAIT;
        let pending = self.managements.wait(id, request, function, until);
        self.hold_back(&pending);
        Ok(())
    }

    /// A reset of the whole target that itself stands behind missing commands waits for none of
    /// them (RFC 7143 §4.2.3.3 b).
    pub(super) fn plug_before_numbered(&mut self, request: &TaskManagementRequest) {
        let is_taken = !request.immediate
            && self.managements.permitted_reset(request).is_some()
            && self.numbering.turn(request.cmd_sn) == Ok(Turn::Later);
        if is_taken {
            self.numbering.plug_before(request.cmd_sn);
        }
    }

    /// Takes every step that can be taken. True if commands may have become free to be delivered.
    pub(super) fn progress_managements(&mut self) -> bool {
        for nth in 0..self.managements.count() {
            if let Some((pending, until)) = self.managements.waiting(nth, self.numbering.exp())
                && self.may_act(&pending, until)
            {
                self.managements.act(nth, &mut self.outputs);
            }
        }
        self.progress_fences()
    }

    /// True if the SCSI side must not have the held command yet.
    pub(super) fn is_task_barred(&self, task: TaskId) -> bool {
        let task = self.tasks.live(task);
        task.is_some_and(|task| self.managements.bar_command(task.command()))
    }

    /// Forgets the requests of a connection that is gone; their tasks go on.
    pub(super) fn forget_managements(&mut self, id: ConnectionId) {
        for pending in self.managements.forget_connection(id) {
            for task in self.covered(&pending) {
                self.resume(task);
            }
        }
    }

    /// The running tasks that a function ends, in the order of delivery.
    pub(super) fn covered(&self, pending: &Pending) -> Vec<TaskId> {
        if let Some(task) = pending.aborts() {
            return self.tasks.live(task).map(Task::id).into_iter().collect();
        }
        let covered = self.tasks.in_order().into_iter();
        covered.filter(|task| pending.covers(task.command())).map(Task::id).collect()
    }

    /// Sends the answer of a function, if it has one; gives its connection.
    pub(super) fn answer_management(&mut self, id: u32) -> Option<ConnectionId> {
        let pending = self.managements.take_answered(id)?;
        let connection = pending.connection();
        self.open_window();
        // What was granted may have changed while the answer was in line.
        let judged = pending.claim().map(|claim| (claim, self.judge_reassignment(claim.task)));
        let numbers = self.response_numbers(connection);
        let answer = pending.answer(numbers)?;
        let response = judged.map_or(answer.response, |(_, (response, _))| response);
        let answer = TaskManagementResponse { response, ..answer };
        self.send(connection, Response::TaskManagement(answer), Vec::new());
        if let Some((claim, (_, Some(task)))) = judged {
            self.reassign(task, connection, claim.from);
        }
        Some(connection)
    }

    /// All tasks concerned wait until the function is done: they ask for no data.
    fn hold_back(&mut self, pending: &Pending) {
        for task in self.covered(pending) {
            self.tasks.hold_back(task);
        }
    }

    /// The data asked for has ended (RFC 7143 §4.2.3.3). With FastAbort it does not matter
    /// (§4.2.3.4).
    fn may_act(&self, pending: &Pending, until: Instant) -> bool {
        let waits = |task: &TaskId| self.tasks.live(*task).is_some_and(Task::is_open);
        self.is_fast() || self.now >= until || !self.covered(pending).iter().any(waits)
    }

    fn answer_in_turn(&mut self, pending: &Pending) {
        if !self.get_in_line(Holder::Management(pending.id()), pending.fence()) {
            self.answer_management(pending.id());
        }
    }

    /// Answers without the SCSI side.
    fn respond_to_management(
        &mut self,
        id: ConnectionId,
        request: &TaskManagementRequest,
        response: u8,
        claim: Option<Claim>,
    ) {
        let pending = self.managements.respond(id, request, response, claim);
        self.answer_in_turn(&pending);
    }

    /// ABORT TASK (RFC 7143 §11.6.1).
    fn run_abort_task(&mut self, id: ConnectionId, request: &TaskManagementRequest) {
        let response = match self.abort_early(request) {
            Ok(response) => response,
            Err(task) => {
                let function = Function::AbortTask { task };
                let outputs = &mut self.outputs;
                let pending = self.managements.hand_over(id, request, function, outputs);
                return self.hold_back(&pending);
            }
        };
        self.respond_to_management(id, request, response, None);
    }

    /// The response to ABORT TASK where the SCSI side need not be asked.
    ///
    /// # Errors
    /// The task that the SCSI side has.
    fn abort_early(&mut self, request: &TaskManagementRequest) -> Result<u8, TaskId> {
        let referenced = request.referenced_task;
        if referenced == request.itt || self.is_no_scsi_task(referenced) {
            return Ok(FUNCTION_REJECTED);
        }
        let Some(task) = self.tasks.find(referenced) else {
            // Either it ended, or its command is missing and counts as received from now on.
            let missing = request.ref_cmd_sn.is_before(request.cmd_sn);
            let plugged = missing && self.numbering.plug(request.ref_cmd_sn);
            return Ok(if plugged { FUNCTION_COMPLETE } else { TASK_DOES_NOT_EXIST });
        };
        let (id, cmd_sn) = (task.id(), task.command().cmd_sn);
        if lun_key(task.command().lun) != lun_key(request.lun) {
            return Ok(TASK_DOES_NOT_EXIST);
        }
        if self.tasks.is_with_scsi(id) {
            return Err(id);
        }
        match self.tasks.is_running(id) {
            true => self.tasks.end(id, &mut self.outputs),
            // It waits behind a hole: its number counts as received, and nobody above knows of it.
            false => {
                let held = self.numbering.take_command(cmd_sn);
                debug_assert_eq!(held, Some(id), "a command that does not run waits");
                held.into_iter().for_each(|task| self.tasks.end(task, &mut self.outputs));
            }
        }
        Ok(FUNCTION_COMPLETE)
    }

    /// TASK REASSIGN (RFC 7143 §7.2.2, §11.5.1): the response comes before all else of the task. A
    /// task that is granted stays where it is until the response leaves.
    fn run_reassign(&mut self, id: ConnectionId, request: &TaskManagementRequest) {
        let task = request.referenced_task;
        if self.is_no_scsi_task(task) {
            return self.respond_to_management(id, request, FUNCTION_REJECTED, None);
        }
        let (response, granted) = self.judge_reassignment(task);
        let claim = granted.map(|_| Claim { task, from: request.exp_data_sn });
        self.respond_to_management(id, request, response, claim);
    }

    /// The response to TASK REASSIGN as things are, and the task if it is granted.
    fn judge_reassignment(&self, task: Itt) -> (u8, Option<TaskId>) {
        match self.reassignment(task) {
            Reassignment::NotSupported => (REASSIGN_NOT_SUPPORTED, None),
            Reassignment::StillAllegiant => (STILL_ALLEGIANT, None),
            Reassignment::NoTask => (TASK_DOES_NOT_EXIST, None),
            Reassignment::Granted(task) => (FUNCTION_COMPLETE, Some(task)),
        }
    }

    /// True for the tag of a task management request, logout or text exchange under way.
    fn is_no_scsi_task(&self, itt: Itt) -> bool {
        let mut texts = self.connections.iter().filter_map(|at| at.text().itt());
        self.managements.has(itt) || self.logouts.has(itt) || texts.any(|text| text == itt)
    }
}
