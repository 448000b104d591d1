// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fast multi-task abort (RFC 7143 §4.2.3.4-4.2.3.5): tasks end at once, and their data bursts stay
//! open until the initiator says that it has stopped sending.
//!
//! ```text
//!   task management ends tasks --event 5, one a unit--> initiator
//!   bursts are abandoned                                    |
//!   bursts are forgotten <--NOP-Out with the same LUN-------+
//! ```
//!
//! On the connection of the request there is no event: the initiator stops by itself.

use super::limits;
use super::names::ConnectionId;
use super::parameters::TaskReporting;
use super::pdu::Pdu;
use super::session::Session;
use super::task::lun_key;
use crate::datamover::{Op, TaskId};
use crate::serial::Serial;
use crate::service::Completion;
use alloc::vec::Vec;
use wire::iscsi::{LunField, NopOut, StatSn};

/// Task Termination (RFC 7143 §11.9.1).
const TASK_TERMINATION: u8 = 5;

/// Tasks of one unit whose end a connection was told, and has not confirmed.
#[derive(Debug)]
pub(super) struct Termination {
    lun: LunField,
    /// Of the event.
    stat_sn: StatSn,
    /// Those that had data on its way.
    tasks: Vec<TaskId>,
}

/// What is to be told to a connection.
struct Notice {
    connection: ConnectionId,
    lun: LunField,
    tasks: Vec<TaskId>,
}

impl Session {
    /// Whether the function `id` of this session ends `task`: not if its CmdSN is that of the
    /// function or above, for then it came behind it (RFC 7143 §11.5.1). It may have been carried
    /// out before, over another connection.
    #[must_use]
    pub fn ends(&self, id: u32, task: TaskId) -> bool {
        let pending = self.managements.get(id);
        let entry = self.tasks.live_ref(task);
        pending.zip(entry).is_some_and(|(pending, entry)| pending.covers(&entry.command))
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
        self.end_with_notice(&all, pending.map(|pending| pending.connection));
        self.settle();
    }

    /// SCSI side: a function of another nexus has ended these tasks, and each is answered with
    /// `status`: at once with FastAbort, else when its data has ended.
    pub fn terminate_with(&mut self, tasks: &[TaskId], status: u8) {
        if self.is_fast() {
            let notices = self.notices(tasks, None);
            for task in tasks {
                self.abandon(*task);
            }
            notices.into_iter().for_each(|notice| self.give_notice(notice));
        }
        for task in tasks {
            let completion =
                Completion { status, sense: Vec::new(), data_in: None, presented: 0, fence: false };
            self.complete(*task, completion);
        }
    }

    /// `own`: the connection that needs no event.
    pub(super) fn end_with_notice(&mut self, tasks: &[TaskId], own: Option<ConnectionId>) {
        let notices = if self.is_fast() { self.notices(tasks, own) } else { Vec::new() };
        for task in tasks {
            self.end_task(*task);
        }
        notices.into_iter().for_each(|notice| self.give_notice(notice));
    }

    pub(super) fn is_fast(&self) -> bool {
        self.login.parameters.task_reporting == TaskReporting::FastAbort
    }

    /// Ends the data of a task that goes on: what still comes of it is dropped.
    fn abandon(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.running_mut(task) else { return };
        if entry.transfer.is_open() {
            entry.transfer.give_up();
            let connection = entry.connection;
            self.outputs.op(connection, Op::Abandon { task });
        }
    }

    /// What to tell of the end of these tasks, and to whom.
    fn notices(&self, tasks: &[TaskId], own: Option<ConnectionId>) -> Vec<Notice> {
        let mut notices: Vec<Notice> = Vec::new();
        for task in tasks {
            let Some(entry) = self.tasks.live_ref(*task) else { continue };
            let (connection, lun) = (entry.connection, entry.command.lun);
            let is_open = entry.transfer.is_open();
            if own == Some(connection) || self.connection(connection).is_none() {
                continue;
            }
            let same = |notice: &Notice| {
                notice.connection == connection && lun_key(notice.lun) == lun_key(lun)
            };
            let at = notices.iter().position(same).unwrap_or(notices.len());
            if at == notices.len() {
                notices.push(Notice { connection, lun, tasks: Vec::new() });
            }
            if let Some(notice) = notices.get_mut(at)
                && is_open
            {
                notice.tasks.push(*task);
            }
        }
        notices
    }

    fn give_notice(&mut self, notice: Notice) {
        let Notice { connection: id, lun, tasks } = notice;
        let stat_sn = self.announce_for(id, lun, TASK_TERMINATION, [0; 3]);
        let Some(connection) = self.connection_mut(id) else { return };
        let all = &mut connection.terminations;
        let oldest = (all.len() >= limits::TERMINATIONS_MAX).then(|| all.remove(0));
        all.push(Termination { lun, stat_sn, tasks });
        for task in oldest.into_iter().flat_map(|oldest| oldest.tasks) {
            self.outputs.op(id, Op::Forget { task });
        }
    }

    /// A NOP-Out that is no ping may confirm that no data of ended tasks will follow (RFC 7143
    /// §11.9.1).
    pub(super) fn confirm_termination(&mut self, pdu: &Pdu<'_>, nop: &NopOut) {
        let Some(connection) = self.connection_mut(pdu.connection) else { return };
        let all = &mut connection.terminations;
        let confirmed = |told: &Termination| {
            lun_key(told.lun) == lun_key(nop.lun) && nop.exp_stat_sn.is_after(told.stat_sn)
        };
        let mut stopped = Vec::new();
        all.retain_mut(|told| {
            let keep = !confirmed(told);
            if !keep {
                stopped.append(&mut told.tasks);
            }
            keep
        });
        for task in stopped {
            self.outputs.op(pdu.connection, Op::Forget { task });
        }
    }
}
