// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that outlive their connection at ErrorRecoveryLevel 2, and TASK REASSIGN (RFC 7143 §6.3.4,
//! §7.2.2, §7.5, §11.5.6, §11.14, appendix E.1).
//!
//! ```text
//!   connection fails ----> Lost ----logout for recovery,---> Lost, logged out --TASK REASSIGN-->
//!   logout for recovery ------------login with its CID------>       |        on the connection
//!                            |                                      |        of the request
//!                            +---- Time2Wait + Time2Retain ---------+--> tasks cleared
//! ```

use super::answer::Resumption;
use super::retained::Retained;
use crate::datamover::{Op, TaskId};
use crate::serial::Serial;
use crate::status::StatusNumbers;
use crate::target_role::leaving::Cleared;
use crate::target_role::limits;
use crate::target_role::names::{ConnectionId, NOWHERE};
use crate::target_role::output::Output;
use crate::target_role::session::Session;
use crate::target_role::task::{Phase, Task};
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{Cid, DataSn, Itt, StatSn};

/// A connection that is gone and whose tasks wait for another one.
#[derive(Debug)]
pub(super) struct Lost {
    /// Names it in its tasks.
    key: u32,
    cid: Cid,
    /// Its tasks may be reassigned: it was logged out for recovery.
    logged_out: bool,
    /// When its tasks are cleared.
    deadline: Instant,
    status: StatusNumbers,
    retained: Retained,
}

/// What a request to reassign a task finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::target_role) enum Reassignment {
    /// ErrorRecoveryLevel is below 2.
    NotSupported,
    /// Its connection has not been logged out.
    StillAllegiant,
    NoTask,
    Granted(TaskId),
}

impl Session {
    /// Whether tasks outlive their connection.
    pub(in crate::target_role) fn retains_tasks(&self) -> bool {
        self.recovery.level >= 2 && self.login.parameters.time2retain > 0 && !self.is_closed()
    }

    /// When the tasks of lost connections have all been cleared; None if there are none.
    pub(in crate::target_role) fn lost_until(&self) -> Option<Instant> {
        let waiting = |lost: &&Lost| self.tasks.orphans(lost.key).next().is_some();
        self.recovery.lost.iter().filter(waiting).map(|lost| lost.deadline).max()
    }

    /// Takes the tasks of a connection from it. Nothing more of them leaves until they are
    /// reassigned; commands that SCSI has go on.
    pub(in crate::target_role) fn suspend_connection(&mut self, id: ConnectionId) {
        let now = self.now;
        let deadline = now + self.retention();
        let key = self.recovery.next_lost;
        self.recovery.next_lost = key.wrapping_add(1);
        let Some(connection) = self.connection_mut(id) else { return };
        let lost = Lost {
            key,
            cid: connection.cid(),
            logged_out: false,
            deadline,
            status: *connection.status(),
            retained: connection.take_retained(now),
        };
        for task in self.tasks.of(id) {
            self.suspend(task, id, key);
        }
        self.recovery.lost.push(lost);
        if self.recovery.lost.len() > usize::from(limits::CONNECTIONS_MAX) {
            self.clear_lost(0);
        }
    }

    fn suspend(&mut self, task: TaskId, id: ConnectionId, key: u32) {
        match self.tasks.phase(task) {
            Some(Phase::Running) => {}
            Some(Phase::Draining) if self.tasks.answer(task).is_some() => {}
            _ => {
                self.discard(task);
                return;
            }
        }
        let first_burst_length = self.login.parameters.first_burst_length;
        let Some(entry) = self.tasks.any_mut(task) else { return };
        let itt = entry.command.itt;
        let has_buffer = entry.has_buffer();
        entry.orphan = Some(key);
        entry.connection = NOWHERE;
        if entry.phase == Phase::Running {
            entry.lose_transfers(first_burst_length);
        }
        self.outputs.op(id, Op::Suspend { task, itt });
        if has_buffer {
            self.outputs.push(Output::Detach { connection: id, task });
        }
    }

    /// The connection `cid` counts as logged out for recovery (RFC 7143 §11.14): its tasks may be
    /// reassigned. False if it is not known as lost.
    pub(in crate::target_role) fn log_out_lost(&mut self, cid: Cid, expected: StatSn) -> bool {
        let deadline = self.now + self.retention();
        let now = self.now;
        let mut done = Vec::new();
        let mut found = false;
        for lost in self.recovery.lost.iter_mut().filter(|lost| lost.cid == cid) {
            found = true;
            if lost.logged_out {
                continue;
            }
            lost.logged_out = true;
            lost.deadline = deadline;
            // The field may mean nothing in a login; what was never sent is not acknowledged.
            if !expected.is_after(lost.status.next()) {
                lost.status.acknowledge(expected);
                done.extend(lost.retained.take_acknowledged(&lost.status, now));
            }
        }
        for task in done {
            self.task_released(task);
        }
        found
    }

    /// Logs out a lost connection for good: its tasks end. None if it is not known as lost.
    pub(in crate::target_role) fn close_lost(&mut self, cid: Cid) -> Option<Cleared> {
        let mut cleared = None;
        while let Some(at) = self.recovery.lost.iter().position(|lost| lost.cid == cid) {
            let tasks = self.clear_lost(at);
            cleared = Some(if cleared == Some(Cleared::Tasks) { Cleared::Tasks } else { tasks });
        }
        cleared
    }

    /// When the tasks of some lost connection are cleared.
    pub(super) fn lost_deadline(&self) -> Option<Instant> {
        let unclaimed = self.recovery.lost.iter().filter(|lost| !self.is_claimed(lost));
        unclaimed.map(|lost| lost.deadline).min()
    }

    /// True if somebody has come in time for a task of it, and the answer is in line.
    fn is_claimed(&self, lost: &Lost) -> bool {
        let mut tasks = self.tasks.iter().filter(|task| task.orphan == Some(lost.key));
        tasks.any(|task| self.managements.claims(task.command.itt))
    }

    /// Clears the tasks of lost connections that nobody came for (RFC 7143 §7.5).
    pub(super) fn expire_lost(&mut self) {
        let now = self.now;
        let due = |session: &Self| {
            let mut lost = session.recovery.lost.iter();
            lost.position(|lost| lost.deadline <= now && !session.is_claimed(lost))
        };
        while let Some(at) = due(self) {
            self.clear_lost(at);
        }
    }

    fn clear_lost(&mut self, at: usize) -> Cleared {
        let mut cleared = Cleared::Nothing;
        let lost = self.recovery.lost.remove(at);
        let tasks: Vec<TaskId> = self.tasks.orphans(lost.key).collect();
        for task in tasks {
            cleared = cleared.or(self.discard(task));
        }
        cleared
    }

    /// What becomes of a request to reassign the task `itt` (RFC 7143 §7.2.2).
    pub(in crate::target_role) fn reassignment(&self, itt: Itt) -> Reassignment {
        if self.recovery.level < 2 {
            return Reassignment::NotSupported;
        }
        let Some(task) = self.tasks.newest(itt) else { return Reassignment::NoTask };
        let logged_out = task.orphan.is_some_and(|key| {
            self.recovery.lost.iter().any(|lost| lost.key == key && lost.logged_out)
        });
        match logged_out {
            true => Reassignment::Granted(task.id),
            false => Reassignment::StillAllegiant,
        }
    }

    /// Goes on with a task on another connection. Its response to the request has been sent.
    pub(in crate::target_role) fn reassign(
        &mut self,
        task: TaskId,
        id: ConnectionId,
        from: DataSn,
    ) {
        let Some(entry) = self.tasks.any_mut(task) else { return };
        entry.orphan = None;
        entry.connection = id;
        if entry.phase == Phase::Draining {
            return self.answer_again(task, Resumption { id, from });
        }
        let has_buffer = entry.awaits_data();
        entry.transfer.books().resume(from.0);
        if has_buffer {
            self.outputs.push(Output::Attach { connection: id, task });
        }
        self.resume(task);
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check_lost(&self) {
        let lost = &self.recovery.lost;
        assert!(lost.is_empty() || self.recovery.level >= 2, "tasks outlive connections at 2");
        assert!(lost.len() <= usize::from(limits::CONNECTIONS_MAX), "lost connections");
        let known = |key| lost.iter().any(|lost| lost.key == key);
        for task in self.tasks.iter() {
            assert_eq!(task.orphan.is_some(), task.connection == NOWHERE, "an orphan is nowhere");
            assert!(self.is_closed() || task.orphan.is_none_or(known), "an orphan is waited for");
        }
    }
}

impl Task {
    /// What was under way to a connection that is gone must be asked for again.
    fn lose_transfers(&mut self, first_burst_length: u32) {
        let announced = (self.immediate_end(), self.first_burst_end(first_burst_length));
        let lost = self.transfer.lose();
        let books = self.transfer.books();
        books.lose(lost.then_some((announced.0, announced.1 - announced.0)));
    }
}
