// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that outlive their connection at ErrorRecoveryLevel 2, and TASK REASSIGN (RFC 7143 §6.3.4,
//! §7.2.2, §7.5, §11.5.6, §11.14, appendix E.1).

use super::Session;
use super::State;
use crate::datamover::TaskId;
use crate::target_role::leaving::Reassigned;
use crate::target_role::management::Managements;
use crate::target_role::names::ConnectionId;
use crate::target_role::task::Task;
use crate::target_role::task::Tasks;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::Cid;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::StatSn;

/// What a request to reassign a task finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reassignment {
    /// ErrorRecoveryLevel is below 2.
    NotSupported,
    /// Its connection has not been logged out.
    StillAllegiant,
    NoTask,
    Granted(TaskId),
}

impl Session {
    /// Whether tasks may be reassigned: ErrorRecoveryLevel is 2.
    pub(super) const fn reassigns(&self) -> bool {
        self.login.parameters.error_recovery_level >= 2
    }

    /// Whether tasks outlive their connection.
    pub(super) fn retains_tasks(&self) -> bool {
        self.reassigns() && self.login.parameters.time2retain > 0 && self.state != State::Closed
    }

    /// When the tasks of lost connections have all been cleared; None if there are none.
    pub(super) fn lost_until(&self) -> Option<Instant> {
        self.lost.until(|key| self.tasks.orphans(key).next().is_some())
    }

    /// Takes the tasks of a connection from it. Nothing more of them leaves until they are
    /// reassigned; commands that SCSI has go on.
    pub(super) fn suspend_connection(&mut self, id: ConnectionId) {
        let deadline = self.now + self.retention();
        let Some(connection) = self.connections.present_mut(id) else { return };
        let (cid, status) = (connection.cid(), *connection.status());
        let retained = connection.take_retained(self.now);
        let key = self.lost.add(cid, status, retained, deadline);
        for task in self.tasks.of(id) {
            self.tasks.suspend(task, key, &mut self.outputs);
        }
        if let Some(key) = self.lost.take_excess() {
            self.clear_orphans(key);
        }
    }

    /// The connection `cid` counts as logged out for recovery (RFC 7143 §11.14): its tasks may be
    /// reassigned. False if it is not known as lost.
    pub(super) fn log_out_lost(&mut self, cid: Cid, expected: StatSn) -> bool {
        let deadline = self.now + self.retention();
        let acknowledged = self.lost.log_out(cid, expected, deadline, self.now);
        let known = acknowledged.is_some();
        for task in acknowledged.into_iter().flatten() {
            self.tasks.release(task, &mut self.outputs);
        }
        known
    }

    /// Logs out a lost connection for good: its tasks end. False if it is not known as lost.
    pub(super) fn close_lost(&mut self, cid: Cid) -> bool {
        let mut is_known = false;
        while let Some(key) = self.lost.take(cid) {
            self.clear_orphans(key);
            is_known = true;
        }
        is_known
    }

    /// When the tasks of some lost connection are cleared.
    pub(super) fn lost_deadline(&self) -> Option<Instant> {
        self.lost.deadline(|key| claims(&self.tasks, &self.managements, key))
    }

    /// Clears the tasks of lost connections that nobody came for (RFC 7143 §7.5).
    pub(super) fn expire_lost(&mut self) {
        while let Some(key) =
            self.lost.take_due(self.now, |key| claims(&self.tasks, &self.managements, key))
        {
            self.clear_orphans(key);
        }
    }

    /// What becomes of a request to reassign the task `itt` (RFC 7143 §7.2.2).
    pub(super) fn reassignment(&self, itt: Itt) -> Reassignment {
        if !self.reassigns() {
            return Reassignment::NotSupported;
        }
        let Some(task) = self.tasks.newest(itt) else { return Reassignment::NoTask };
        match task.orphan() {
            Some(key) if self.lost.is_logged_out(key) => Reassignment::Granted(task.id()),
            _ => Reassignment::StillAllegiant,
        }
    }

    /// Goes on with a task on another connection. Its response to the request has been sent.
    pub(super) fn reassign(&mut self, task: TaskId, id: ConnectionId, from: DataSn) {
        match self.tasks.reassign(task, id, from, &mut self.outputs) {
            Some(Reassigned::Answered) => self.answer_again(task),
            Some(Reassigned::Running) => self.resume(task),
            None => {}
        }
    }

    fn clear_orphans(&mut self, key: u32) {
        let tasks: Vec<TaskId> = self.tasks.orphans(key).map(Task::id).collect();
        for task in tasks {
            self.tasks.discard(task, &mut self.outputs);
        }
    }
}

/// True if somebody has come in time for a task of a lost connection, and the answer is in line.
fn claims(tasks: &Tasks, managements: &Managements, lost: u32) -> bool {
    tasks.orphans(lost).any(|task| managements.claims(task.command().itt))
}
