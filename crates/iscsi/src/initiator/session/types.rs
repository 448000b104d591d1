// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Border 1 as the initiator's iSCSI sees it: the SCSI transport protocol services of SAM-5 §5.4
//! and §7.12.

use alloc::vec::Vec;
use core::time::Duration;

use thiserror::Error;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::LunField;
use wire::iscsi::Residual;
use wire::iscsi::StatSn;

use crate::initiator::datamover::Op;
use crate::initiator::datamover::TaskId;
use crate::initiator::datamover::Violation;
use crate::initiator::discovery::Discovered;
use crate::initiator::discovery::DiscoveryError;

/// One SCSI command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its logical unit.
    pub lun: LunField,
    /// What to do.
    pub cdb: Cdb,
    /// Task attribute (SAM-5 §8.6).
    pub attribute: Attribute,
    /// Bytes for the target. Not together with `data_in`.
    pub data_out: u32,
    /// Most bytes from the target.
    pub data_in: u32,
}

/// A command that the target answered with a SCSI status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// SAM status code.
    pub status: u8,
    /// Sense data; empty unless CHECK CONDITION.
    pub sense: Vec<u8>,
    /// Bytes of data in the buffer, from its first on.
    pub received: u32,
    /// What the target says was not transferred.
    pub residual: Residual,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the pump must treat each
pub enum Outcome {
    /// By a SCSI status.
    Done(Completion),
    /// Without one.
    Failed(Ending),
}

/// How a command ended without a SCSI status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Ending {
    /// RFC 7143 §11.4.3.
    #[error("the target failed to carry it out (response {0:#04x})")]
    TargetFailure(u8),
    /// RFC 7143 §7.8.
    #[error("its data came with a wrong digest")]
    Damaged,
    /// Task management ended it.
    #[error("it was aborted")]
    Aborted,
    /// It took longer than it may and was aborted.
    #[error("it took too long and was aborted")]
    TimedOut,
    /// Another command took too long, and so its unit was reset.
    #[error("its unit was reset because another command took too long")]
    Reset,
    /// RFC 7143 §11.17.
    #[error("the target rejected it (reason {0:#04x})")]
    Rejected(u8),
    /// The session ended before.
    #[error("the session ended before it did")]
    Lost {
        /// Whether the target may have carried it out.
        sent: bool,
    },
}

/// What is done about a command that takes too long, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Step {
    /// ABORT TASK.
    #[error("aborting it")]
    Abort,
    /// LOGICAL UNIT RESET.
    #[error("resetting its unit")]
    Reset,
    /// A new session.
    #[error("giving up the session")]
    Session,
}

/// Task management functions (RFC 7143 §11.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard without reassignment
pub enum Function {
    /// End one task.
    AbortTask(TaskId),
    /// End all tasks of this session on the unit.
    AbortTaskSet(LunField),
    /// End all tasks of the unit, whoever sent them.
    ClearTaskSet(LunField),
    /// Reset the unit for everybody.
    LogicalUnitReset(LunField),
    /// Reset the target for everybody.
    TargetWarmReset,
}

/// What a session tells the SCSI side, in order.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the pump must treat each
pub enum Indication {
    /// Command Complete Received: the last word about a task. Its buffers are with the mover until
    /// the Release op that comes before it.
    Ended {
        /// The task.
        task: TaskId,
        /// How.
        outcome: Outcome,
    },
    /// A command was not answered in time; its end follows.
    Overdue {
        /// The task.
        task: TaskId,
        /// What is done about it now.
        step: Step,
    },
    /// The answer to a task management function. Comes after the end of the tasks that it ended.
    Managed {
        /// Names the request.
        id: u32,
        /// RFC 7143 §11.6.1: 0 done, 255 rejected. None: its connection or the session ended
        /// before, and nobody knows. Commands that it was to end are then aborted one by one.
        response: Option<u8>,
    },
    /// The answer to SendTargets.
    Targets(Result<Vec<Discovered>, DiscoveryError>),
    /// The target refused SendTargets, with this reject reason.
    TargetsRejected(u8),
    /// A new MaxRecvDataSegmentLength is in force on each connection, or the former one still is.
    Declared(Result<(), DeclareError>),
    /// A SCSI asynchronous event with its sense data (RFC 7143 §11.9.1, event 0).
    Asynchronous {
        /// The unit.
        lun: LunField,
        /// Sense data.
        sense: Vec<u8>,
    },
}

/// Why a value that was declared in full feature phase is not in force on each connection (RFC 7143
/// §7.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeclareError {
    /// RFC 7143 §11.17.
    #[error("the target rejected the text request (reason {0:#04x})")]
    Rejected(u8),
    /// RFC 7143 §6.2.
    #[error("the target does not take the key")]
    Refused,
    /// RFC 7143 §6.4.
    #[error("the target's answers cannot be understood, or name a key twice")]
    Nonsense,
    /// The session ended before.
    #[error("the session ended before the target had answered")]
    Lost,
}

/// What a session gives.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the pump must carry out each
pub enum Output {
    /// Must be carried out by the mover.
    Op(Op),
    /// For the SCSI side.
    Indication(Indication),
    /// The session is over; a Terminate op and the end of each command came before.
    Closed {
        /// Why.
        error: SessionError,
        /// No new login before so much time has gone by (RFC 7143 §7.5).
        time2wait: Duration,
    },
}

/// Why the session does not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// It ends or has ended.
    #[error("the session is closing")]
    Closed,
    /// As many are under way as there may be.
    #[error("too many requests at once")]
    Full,
    /// A discovery session has no SCSI commands, and no other one SendTargets of all.
    #[error("not in this type of session")]
    Discovery,
    /// Data in both directions is not built.
    #[error("bidirectional commands are not supported")]
    Bidirectional,
    /// The task has ended.
    #[error("no such task")]
    NoTask,
    /// There is no connection for it now.
    #[error("its connection is being recovered")]
    Recovering,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// As asked for.
    #[error("logged out")]
    LoggedOut,
    /// RFC 7143 §11.9.1.
    #[error("the target asked for a logout")]
    LogoutRequested,
    /// RFC 7143 §11.9.1.
    #[error("the target dropped the session")]
    Dropped,
    /// By the peer or on the way to it.
    #[error("the connection broke")]
    Disconnected,
    /// Told by the mover.
    #[error("the target broke the protocol: {0}")]
    Violation(Violation),
    /// RFC 7143 §7.9.
    #[error("a status was lost: number {} came instead of {}", .got.0, .expected.0)]
    StatusLost {
        /// StatSN of the PDU.
        got: StatSn,
        /// The next one.
        expected: StatSn,
    },
    /// RFC 7143 §11.4.7.
    #[error("the target broke the protocol: CHECK CONDITION without sense data")]
    NoSense,
    /// RFC 7143 §7.7.
    #[error("the target broke the protocol: {0}")]
    Malformed(&'static str),
    /// RFC 7143 §4.3.
    #[error("the target broke the protocol: unexpected {0}")]
    UnexpectedPdu(&'static str),
    /// RFC 7143 §11.17: the numbers of commands may have a gap now.
    #[error("the target rejected a command (reason {0:#04x})")]
    Rejected(u8),
    /// RFC 7143 §11.18.
    #[error("no answer to a ping")]
    PingTimeout,
    /// RFC 7143 §7.11.
    #[error("a command took too long and could not be aborted")]
    AbortTimeout,
    /// RFC 7143 §11.11.
    #[error("no answer to a text request ({0})")]
    TextTimeout(&'static str),
    /// RFC 7143 §11.15.
    #[error("no answer to a logout")]
    LogoutTimeout,
    /// RFC 7143 §7.2.2.
    #[error("the target does not give back the commands of a connection that broke")]
    NotRecovered,
}

impl SessionError {
    /// Whether another connection may do better (RFC 7143 §7.1.4.3).
    pub(super) const fn is_of_connection(&self) -> bool {
        match self {
            Self::Disconnected | Self::PingTimeout | Self::StatusLost { .. } => true,
            Self::Violation(violation) => {
                // An RDMA stream ends for what TCP does, or for an error (RFC 7145 §10.1).
                use Violation as V;
                matches!(violation, V::HeaderDigest | V::DataDigest | V::Rdma(_))
            }
            _ => false,
        }
    }
}
