// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends of tasks that task management asked for, of this session or another one.

use super::Session;
use crate::datamover::Op;
use crate::datamover::TaskId;
use crate::service::Completion;
use crate::target_role::names::ConnectionId;
use crate::target_role::parameters::TaskReporting;
use crate::target_role::termination::Notices;
use alloc::vec::Vec;

/// Task Termination (RFC 7143 §11.9.1).
const TASK_TERMINATION: u8 = 5;

impl Session {
    /// Whether the function `id` of this session ends `task`: not if its CmdSN is that of the
    /// function or above, for then it came behind it (RFC 7143 §11.5.1). It may have been carried
    /// out before, over another connection.
    #[must_use]
    pub fn ends(&self, id: u32, task: TaskId) -> bool {
        let pending = self.managements.get(id);
        let entry = self.tasks.live(task);
        pending.zip(entry).is_some_and(|(pending, entry)| pending.covers(entry.command()))
    }

    /// SCSI side: task management has ended these tasks. They get no answer; `Ended` follows for
    /// each when its buffer is free. `issuer`: the function, if it came in this session; it takes
    /// all its tasks along. Tasks that have been answered already are left alone.
    pub fn terminate(&mut self, tasks: &[TaskId], issuer: Option<u32>) {
        let pending = issuer.and_then(|id| self.managements.get(id)).copied();
        let mut all = tasks.to_vec();
        if let Some(pending) = &pending {
            let more = self.covered(pending);
            all.extend(more.into_iter().filter(|task| !tasks.contains(task)));
        }
        self.end_with_notice(&all, pending.map(|pending| pending.connection()));
        self.settle();
    }

    /// SCSI side: a function of another nexus has ended these tasks, and each is answered with
    /// `status`: at once with FastAbort, else when its data has ended.
    pub fn terminate_with(&mut self, tasks: &[TaskId], status: u8) {
        if self.is_fast() {
            let notices = self.notices(tasks, None);
            for task in tasks {
                self.tasks.abandon(*task, &mut self.outputs);
            }
            self.give_notices(notices);
        }
        for task in tasks {
            let completion =
                Completion { status, sense: Vec::new(), data_in: None, presented: 0, fence: false };
            self.complete(*task, completion);
        }
    }

    /// `own`: the connection that needs no event.
    pub(super) fn end_with_notice(&mut self, tasks: &[TaskId], own: Option<ConnectionId>) {
        let notices = self.is_fast().then(|| self.notices(tasks, own));
        for task in tasks {
            self.tasks.end(*task, &mut self.outputs);
        }
        notices.into_iter().for_each(|notices| self.give_notices(notices));
    }

    pub(super) fn is_fast(&self) -> bool {
        self.login.parameters.task_reporting == TaskReporting::FastAbort
    }

    /// What to tell of the end of these tasks, and to whom.
    fn notices(&self, tasks: &[TaskId], own: Option<ConnectionId>) -> Notices {
        let mut notices = Notices::default();
        for task in tasks {
            let Some(entry) = self.tasks.live(*task) else { continue };
            let (connection, lun) = (entry.connection(), entry.command().lun);
            if own != Some(connection) && self.connections.get(connection).is_some() {
                notices.add(connection, lun, entry.is_open().then_some(*task));
            }
        }
        notices
    }

    fn give_notices(&mut self, notices: Notices) {
        for notice in notices.into_iter() {
            let id = notice.connection;
            let stat_sn = self.announce(id, notice.lun, TASK_TERMINATION, [0; 3]);
            let Some(connection) = self.connections.present_mut(id) else { continue };
            let oldest = connection.terminations_mut().tell(notice, stat_sn);
            self.forget_bursts(id, oldest);
        }
    }

    /// No data of these tasks follows.
    pub(super) fn forget_bursts(&mut self, id: ConnectionId, tasks: Vec<TaskId>) {
        for task in tasks {
            self.outputs.op(id, Op::Forget { task });
        }
    }
}
