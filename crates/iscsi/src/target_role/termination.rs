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
use super::lun::lun_key;
use super::names::ConnectionId;
use crate::datamover::TaskId;
use crate::serial::Serial;
use alloc::vec::Vec;
use wire::iscsi::LunField;
use wire::iscsi::NopOut;
use wire::iscsi::StatSn;

/// Ends of tasks that the initiator was told on one connection, and has not confirmed.
#[derive(Debug, Default)]
pub(super) struct Terminations {
    told: Vec<Termination>,
}

/// Tasks of one unit.
#[derive(Debug)]
struct Termination {
    lun: LunField,
    /// Of the event.
    stat_sn: StatSn,
    /// Those that had data on its way.
    tasks: Vec<TaskId>,
}

impl Terminations {
    /// The event `stat_sn` has told of `notice`. Gives the tasks whose bursts can be forgotten
    /// because there are too many events.
    pub(super) fn tell(&mut self, notice: Notice, stat_sn: StatSn) -> Vec<TaskId> {
        let full = self.told.len() >= limits::TERMINATIONS_MAX;
        let oldest = full.then(|| self.told.remove(0));
        let Notice { lun, tasks, .. } = notice;
        self.told.push(Termination { lun, stat_sn, tasks });
        oldest.map(|oldest| oldest.tasks).unwrap_or_default()
    }

    /// A NOP-Out that is no ping may confirm that no data of ended tasks will follow (RFC 7143
    /// §11.9.1): gives these tasks.
    pub(super) fn confirm(&mut self, nop: &NopOut) -> Vec<TaskId> {
        let confirmed = |told: &Termination| {
            lun_key(told.lun) == lun_key(nop.lun) && nop.exp_stat_sn.is_after(told.stat_sn)
        };
        let mut stopped = Vec::new();
        self.told.retain_mut(|told| {
            let keep = !confirmed(told);
            if !keep {
                stopped.append(&mut told.tasks);
            }
            keep
        });
        stopped
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        assert!(self.told.len() <= limits::TERMINATIONS_MAX, "ends of tasks to be confirmed");
    }
}

/// What is to be told to a connection.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) connection: ConnectionId,
    pub(super) lun: LunField,
    /// Tasks that have data on its way.
    tasks: Vec<TaskId>,
}

/// What is to be told to all connections: one notice for each unit of each.
#[derive(Debug, Default)]
pub(super) struct Notices {
    all: Vec<Notice>,
}

impl Notices {
    /// A task of `lun` ends on `connection`; `open`: it, if it has data on its way.
    pub(super) fn add(&mut self, connection: ConnectionId, lun: LunField, open: Option<TaskId>) {
        let same = |notice: &&mut Notice| {
            notice.connection == connection && lun_key(notice.lun) == lun_key(lun)
        };
        match self.all.iter_mut().find(same) {
            Some(notice) => notice.tasks.extend(open),
            None => self.all.push(Notice { connection, lun, tasks: Vec::from_iter(open) }),
        }
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = Notice> {
        self.all.into_iter()
    }
}
