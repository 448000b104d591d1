// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Border 1 as iSCSI sees it: the SCSI transport protocol services of SAM-5 §5.4 and §7.12.

use crate::datamover::TaskId;
use alloc::vec::Vec;
use buf::{Buf, Slice};
use wire::iscsi::{Attribute, Cdb, LunField, StatSn};

/// What a session tells the SCSI side, in order.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the SCSI side must heed each
pub enum Indication {
    /// SCSI Command Received. The SCSI side answers with `receive_data_out` or `complete`, at once
    /// or later.
    Command(Command),
    /// Data-Out Received: all bytes asked for by `receive_data_out` are in the task's buffer (mover
    /// `detach`).
    DataOutReceived {
        /// The task.
        task: TaskId,
    },
    /// The transport failed the transfer; the session itself answers with CHECK CONDITION. The SCSI
    /// side drops the task; nothing of it may reach the medium after this.
    Dropped {
        /// The task.
        task: TaskId,
    },
    /// The task ended with its connection, without an answer. As `Dropped`, and the other commands
    /// of this nexus on its unit find the unit attention 47h/7Fh (RFC 7143 §11.14.5).
    Cleared {
        /// The task.
        task: TaskId,
    },
    /// Answer with `quiesced` when nothing of the tasks that have ended, however that was, is left:
    /// no work of them may reach the medium after that.
    Quiesce {
        /// Names the question.
        id: u32,
    },
    /// The task's resources are free: its buffer may be reused.
    Ended {
        /// The task.
        task: TaskId,
    },
    /// Task Management Request Received; every condition of iSCSI is met. Answer with
    /// `task_management_done`.
    Management(Management),
    /// The mover found no buffer for immediate data, and asks once more when it is next fed: give
    /// up data that is kept only to be sent again.
    OutOfBuffers,
    /// The I_T nexus is gone (SAM-5 §6.3.4): drop every task of the session.
    NexusLost,
}

/// One SCSI command.
#[derive(Debug)]
pub struct Command {
    /// Names it in every answer.
    pub task: TaskId,
    /// The logical unit, as the initiator wrote it.
    pub lun: LunField,
    /// What to do.
    pub cdb: Cdb,
    /// Task attribute (SAM-5 §8.6).
    pub attribute: Attribute,
    /// Command priority, 0-15, 0 below protocol level 2 (RFC 7144 §6.1). A hint for the order of
    /// SIMPLE tasks, which the device server starts as they come: it says so by PRIOR_SUP = 0.
    pub priority: u8,
    /// Expected bytes from the initiator (0 without W).
    pub expected_out: u32,
    /// Expected bytes to the initiator (0 without R).
    pub expected_in: u32,
    /// ExpStatSN that the command came with: its initiator had seen all responses before it on this
    /// connection, and none that came later.
    pub acknowledged: StatSn,
    /// It has a place in the order of its session (RFC 7143 §4.2.2.1): all commands with smaller
    /// CmdSNs, on whichever connection, were indicated before. An immediate command has none.
    pub numbered: bool,
    /// Immediate data at offset 0, if any. If it holds all bytes, the SCSI side may use it at once:
    /// `receive_data_out` then indicates DataOutReceived without any PDU.
    pub immediate: Option<(Buf, u32)>,
    /// The mover had no buffer: answer TASK SET FULL.
    pub exhausted: bool,
}

/// How a command ends: Send SCSI Command Complete, with Send Data-In where there is data.
#[derive(Debug)]
pub struct Completion {
    /// SAM status code.
    pub status: u8,
    /// Sense data (without the length bytes), at most 252 bytes; only with CHECK CONDITION.
    pub sense: Vec<u8>,
    /// Data for the initiator. Only the first `expected_in` bytes travel.
    pub data_in: Option<Slice>,
    /// Bytes that the SCSI layer had for, or took from, the initiator: the base of the residual
    /// (RFC 7143 §11.4.5). For data in: `data_in.len()` after truncation by the allocation length.
    pub presented: u64,
    /// The Response Fence flag (RFC 7143 §4.2.2.3.4): the initiator must see this response after
    /// all before it and before all after it, on whatever connection they travel.
    pub fence: bool,
}

/// Task management functions that reach the SCSI side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard
pub enum Function {
    /// End one task.
    AbortTask {
        /// The task.
        task: TaskId,
    },
    /// End all tasks of this nexus on the unit.
    AbortTaskSet,
    /// End the auto contingent allegiance that this nexus has on the unit.
    ClearAca,
    /// End all tasks of the unit's task set, whoever sent them.
    ClearTaskSet,
    /// Reset the unit for everybody.
    LogicalUnitReset,
    /// Reset every unit that this nexus sees, for everybody.
    TargetWarmReset,
    /// Let the target be as after power on; once this is answered, end all its sessions.
    TargetColdReset,
    /// End all tasks of this nexus on all units, as if it had been lost (RFC 7144 §6.3).
    NexusReset,
    /// Is this task in the task set (RFC 7144 §6.3)?
    QueryTask {
        /// The one that was asked for, if it is known and belongs to the unit.
        task: Option<TaskId>,
    },
    /// Has the nexus a task on the unit (RFC 7144 §6.3)?
    QueryTaskSet,
    /// Does news wait for the nexus on the unit (RFC 7144 §6.3)?
    QueryAsynchronousEvent,
}

impl Function {
    /// Its name in the standard (RFC 7143 §11.5.1, RFC 7144 §6.3.1).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AbortTask { .. } => "ABORT TASK",
            Self::AbortTaskSet => "ABORT TASK SET",
            Self::ClearAca => "CLEAR ACA",
            Self::ClearTaskSet => "CLEAR TASK SET",
            Self::LogicalUnitReset => "LOGICAL UNIT RESET",
            Self::TargetWarmReset => "TARGET WARM RESET",
            Self::TargetColdReset => "TARGET COLD RESET",
            Self::NexusReset => "I_T NEXUS RESET",
            Self::QueryTask { .. } => "QUERY TASK",
            Self::QueryTaskSet => "QUERY TASK SET",
            Self::QueryAsynchronousEvent => "QUERY ASYNCHRONOUS EVENT",
        }
    }

    /// True for those that end all tasks of a scope: a unit, a nexus, a target (RFC 7143 §4.2.3.3).
    #[must_use]
    pub const fn ends_many(self) -> bool {
        use Function::{AbortTaskSet, ClearTaskSet, LogicalUnitReset};
        matches!(self, AbortTaskSet | ClearTaskSet | LogicalUnitReset) || self.is_for_all_units()
    }

    /// True for those that name no unit: their LUN field is reserved.
    #[must_use]
    pub const fn is_for_all_units(self) -> bool {
        self.is_target_reset() || matches!(self, Self::NexusReset)
    }

    /// TARGET WARM RESET or TARGET COLD RESET.
    #[must_use]
    pub const fn is_target_reset(self) -> bool {
        matches!(self, Self::TargetWarmReset | Self::TargetColdReset)
    }
}

/// One task management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Management {
    /// Names the request until it is answered.
    pub id: u32,
    /// What to do.
    pub function: Function,
    /// The logical unit; with AbortTask that of the task. Means nothing for functions that are for
    /// all units.
    pub lun: LunField,
}

/// SAM-5 service responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard
pub enum ServiceResponse {
    /// Done; for a question: no.
    Complete,
    /// Yes: only to the questions of RFC 7144.
    Succeeded {
        /// Additional response information, 24 bits (SAM-5 §7.10).
        additional: u32,
    },
    /// No such task; it may have ended.
    TaskDoesNotExist,
    /// No such logical unit for this initiator.
    LunDoesNotExist,
    /// The unit does not have this function.
    NotSupported,
    /// This initiator may not do it.
    AuthorizationFailed,
    /// Anything else.
    Rejected,
}

impl ServiceResponse {
    /// The response code (RFC 7143 §11.6.1, RFC 7144 §6.4).
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::TaskDoesNotExist => 1,
            Self::LunDoesNotExist => 2,
            Self::NotSupported => 5,
            Self::AuthorizationFailed => 6,
            Self::Succeeded { .. } => 7,
            Self::Rejected => 255,
        }
    }
}
