// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Border 1 as iSCSI sees it: the SCSI transport protocol services of SAM-5 §5.4 and §7.12.
#![allow(missing_docs)]

use crate::datamover::TaskId;
use alloc::vec::Vec;
use buf::{Buf, Slice};
use wire::iscsi::{Attribute, Cdb, LunField};

/// What a session tells the SCSI side, in order.
#[derive(Debug)]
pub enum Indication {
    /// SCSI Command Received. The SCSI side answers with `receive_data_out` or `complete`, at once or later.
    Command(Command),
    /// Data-Out Received: all bytes asked for by `receive_data_out` are in the task's buffer (mover `detach`).
    DataOutReceived { task: TaskId },
    /// The transport failed the transfer; the session itself answers with CHECK CONDITION. The SCSI side drops the
    /// task; nothing of it may reach the medium after this.
    Dropped { task: TaskId },
    /// The task's resources are free: its buffer may be reused.
    Ended { task: TaskId },
    /// Task Management Request Received; every condition of iSCSI is met. Answer with `task_management_done`.
    Management(Management),
    /// The I_T nexus is gone (SAM-5 §6.3.4): drop every task of the session.
    NexusLost,
}

#[derive(Debug)]
pub struct Command {
    pub task: TaskId,
    pub lun: LunField,
    pub cdb: Cdb,
    pub attribute: Attribute,
    pub priority: u8,
    /// Expected bytes from the initiator (0 without W).
    pub expected_out: u32,
    /// Expected bytes to the initiator (0 without R).
    pub expected_in: u32,
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
}

/// Task management functions that reach the SCSI side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    AbortTask { task: TaskId },
    AbortTaskSet,
    ClearTaskSet,
    LogicalUnitReset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Management {
    /// Names the request until it is answered.
    pub id: u32,
    pub function: Function,
    pub lun: LunField,
}

/// SAM-5 service responses, as RFC 7143 §11.6.1 codes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ServiceResponse {
    Complete = 0,
    TaskDoesNotExist = 1,
    LunDoesNotExist = 2,
    NotSupported = 5,
    AuthorizationFailed = 6,
    Rejected = 255,
}
