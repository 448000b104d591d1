// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that leave a connection and go on on another (RFC 7143 §7.2.2).

use super::Tasks;
use crate::datamover::Op;
use crate::datamover::TaskId;
use crate::target_role::leaving::Reassigned;
use crate::target_role::names::ConnectionId;
use crate::target_role::names::NOWHERE;
use crate::target_role::output::Output;
use crate::target_role::output::Outputs;
use crate::target_role::task::entry::Phase;
use wire::iscsi::DataSn;

impl Tasks {
    /// Takes a task from a connection that is gone: it waits for another one as one of `lost`.
    /// Nothing more of it leaves; a command that SCSI has goes on. An immediate command stays where
    /// it is, to end with its connection (RFC 7143 §7.14).
    pub(in crate::target_role) fn suspend(&mut self, id: TaskId, lost: u32, outputs: &mut Outputs) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let waits = match entry.phase {
            Phase::Held => false,
            Phase::Running if entry.command.immediate => return,
            Phase::Running => true,
            Phase::Draining => entry.answer.is_some(),
        };
        if !waits {
            self.discard(id, outputs);
            return;
        }
        let (connection, itt) = (entry.connection, entry.command.itt);
        let has_buffer = entry.has_buffer();
        entry.orphan = Some(lost);
        entry.connection = NOWHERE;
        if entry.phase == Phase::Running {
            entry.lose_transfers(&self.terms);
        }
        outputs.op(connection, Op::Suspend { task: id, itt });
        if has_buffer {
            outputs.push(Output::Detach { connection, task: id });
        }
    }

    /// A task goes on on another connection, from `from` (ExpDataSN of the request) on.
    pub(in crate::target_role) fn reassign(
        &mut self,
        id: TaskId,
        connection: ConnectionId,
        from: DataSn,
        outputs: &mut Outputs,
    ) -> Option<Reassigned> {
        let entry = self.table.get_mut(id);
        debug_assert!(entry.as_ref().is_some_and(|it| it.orphan.is_some()), "it waits for that");
        let entry = entry?;
        entry.orphan = None;
        entry.connection = connection;
        entry.transfer.moved = true;
        if let Some(answer) = &mut entry.answer {
            answer.resume(from);
            return Some(Reassigned::Answered);
        }
        let has_buffer = entry.awaits_data();
        entry.transfer.r2ts().resume(from.0);
        if has_buffer {
            outputs.push(Output::Attach { connection, task: id });
        }
        Some(Reassigned::Running)
    }
}
