// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Border 2 from the initiator's side: the operational primitives of the Datamover Architecture
//! (RFC 5047 §5-6).
//!
//! The core decides what a command sends unasked and when a command goes; the mover answers R2Ts,
//! places Data-In and keeps what is booked for each PDU (DataSN, R2TSN, digests). The core hears of
//! a command once, when its status is there.
//!
//! ExpStatSN is not part of an op: the mover is told the newest one when it makes PDUs.

use alloc::vec::Vec;

use buf::Buf;
use buf::Slice;
use thiserror::Error;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::ScsiResponse;
use wire::iscsi::Snack;
use wire::iscsi::StatSn;
use wire::iscsi::TaskManagementRequest;
use wire::iscsi::Ttt;
use wire::iwarp::Cause;

use crate::datamover::Why;

pub use crate::datamover::Markers;
pub use crate::datamover::TaskId;

/// What the core asks of the mover. Ops of one connection are carried out in order.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // a mover must carry out each
pub enum Op {
    /// Give a task its buffers, before its `SendCommand`. What does not fit into them is refused
    /// when it comes. Holds at once.
    Attach {
        /// The task.
        task: TaskId,
        /// At least what the command sends.
        write: Option<Slice>,
        /// Room for what it may get.
        read: Option<Buf>,
    },
    /// Take the read buffer of a task back: submitting this op gives it, with all that was placed
    /// in it. Holds at once.
    Detach {
        /// The task.
        task: TaskId,
    },
    /// Send_Control (RFC 5047 §5.1): one PDU that is no SCSI command, and its data segment.
    SendControl {
        /// The PDU.
        request: Request,
        /// Its data segment.
        data: Vec<u8>,
    },
    /// Send_Control of a SCSI command with what it sends unasked, from the attached buffer: first
    /// `immediate` bytes with the command, then Data-Out PDUs up to `unsolicited_end`.
    SendCommand {
        /// The task; [`itt`] gives its tag.
        task: TaskId,
        /// The PDU.
        command: ScsiCommand,
        /// Bytes of immediate data.
        immediate: u32,
        /// Where unsolicited data ends, immediate data included, bytes.
        unsolicited_end: u32,
    },
    /// Send_Control of a TASK REASSIGN, for a task that was begun on another connection: what comes
    /// next for it may be what came before. The mover fills in ExpDataSN (RFC 7143 §11.5.6).
    Reassign {
        /// The task.
        task: TaskId,
        /// The PDU.
        request: TaskManagementRequest,
    },
    /// Send_Control of an R-Data SNACK: all data of the task that is not acknowledged is forgotten
    /// and comes once more, and only the status with the tag of the request counts (RFC 7143
    /// §11.16.3).
    Resegment {
        /// The task.
        task: TaskId,
        /// The PDU.
        request: Snack,
    },
    /// Send nothing more for a task that is to end; what comes for it is taken as ever (RFC 7143
    /// §4.2.3.4).
    Quiet {
        /// The task.
        task: TaskId,
    },
    /// Deallocate_Task_Resources (§5.4): forget the task; nothing more is sent or placed for it.
    Release {
        /// The task.
        task: TaskId,
    },
    /// Notice_Key_Values (§5.6).
    NoticeKeys(Keys),
    /// Connection_Terminate (§5.8): after everything queued before has left, close.
    Terminate,
}

impl Op {
    /// Whether it answers a ping of the target.
    #[must_use]
    pub fn is_echo(&self) -> bool {
        let Self::SendControl { request: Request::NopOut(pdu), .. } = self else { return false };
        pdu.itt == Itt::NONE && pdu.ttt != Ttt::NONE
    }

    /// Whether it begins something at the target: a logout of the session is the last one.
    pub(super) const fn is_request(&self) -> bool {
        match self {
            Self::SendControl { .. }
            | Self::SendCommand { .. }
            | Self::Reassign { .. }
            | Self::Resegment { .. } => true,
            Self::Attach { .. }
            | Self::Detach { .. }
            | Self::Quiet { .. }
            | Self::Release { .. }
            | Self::NoticeKeys(_)
            | Self::Terminate => false,
        }
    }
}

/// The negotiated values that a mover must know. In effect for every PDU after it: sent (from this
/// op on) and received (from the first byte after the PDU that is being handled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// CRC32C over each header.
    pub header_digest: bool,
    /// CRC32C over each data segment.
    pub data_digest: bool,
    /// Longest data segment that the target takes, bytes.
    pub max_send_data_segment_length: u32,
    /// Longest data segment that we take, bytes: 8192 in the login phase.
    pub max_recv_data_segment_length: u32,
    /// Longest range of one R2T, bytes.
    pub max_burst_length: u32,
    /// Most R2Ts of a task that may wait for their data.
    pub max_outstanding_r2t: u16,
    /// PDUs and sequences of a command come in order of their offsets (RFC 7143 §13.18, §13.19).
    pub data_in_order: bool,
    /// ErrorRecoveryLevel is above 0: what is lost is told and comes again (RFC 7143 §7.1.5).
    pub recovery: bool,
    /// PDUs of tasks that have ended may still come, and are passed over: there are other
    /// connections, or something is sent again.
    pub strays: bool,
    /// Markers of RFC 3720.
    pub markers: Markers,
    /// PDUs past the command window that the target takes before it answers; zero: it states no
    /// limit (RFC 7145 §6.7).
    pub unexpected_max: u32,
    /// Over RDMA, what a command names begins behind what it sends unasked (RFC 7145 §6.9).
    pub solicited_only: bool,
    /// Over RDMA, the first message is a Hello (RFC 7145 §5.1.3).
    pub hello: bool,
}

impl Keys {
    /// In force before and during login (RFC 7143 §6.3): no digests, 8192 bytes each way.
    pub const LOGIN: Self = Self {
        header_digest: false,
        data_digest: false,
        max_send_data_segment_length: 8192,
        max_recv_data_segment_length: 8192,
        max_burst_length: 0,
        max_outstanding_r2t: 0,
        data_in_order: true,
        recovery: false,
        strays: false,
        markers: Markers { send: None, receive: None },
        unexpected_max: 0,
        solicited_only: false,
        hello: false,
    };
}

/// What the mover tells the core.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the core must treat each
pub enum Event {
    /// Control_Notify (RFC 5047 §6.1): a whole PDU other than Data-In, R2T and SCSI Response,
    /// digests verified. Its data is in the mover's `control_data()` until the next feed.
    Control {
        /// The PDU.
        response: Response,
    },
    /// A command has ended: by a SCSI Response, whose sense data is in `control_data()`, or by the
    /// status in its last Data-In.
    Ended(Ended),
    /// A PDU without status that moves the command window.
    Window(Numbers),
    /// Above ErrorRecoveryLevel 0: Data-In or R2Ts of a task did not come, or were damaged.
    Incomplete {
        /// The task.
        task: TaskId,
        /// What is missing and was not told before.
        lost: Option<Run>,
        /// The status came in this PDU; [`Event::Ended`] follows when nothing is missing any more.
        has_status: bool,
        /// Of the PDU.
        numbers: Numbers,
    },
    /// Above ErrorRecoveryLevel 0: a numbered PDU was damaged and dropped.
    StatusLost(StatSn),
    /// Above ErrorRecoveryLevel 0: a Data-In asks for an acknowledgement, and nothing before it is
    /// missing (RFC 7143 §11.7.2).
    Acknowledge {
        /// The task.
        task: TaskId,
        /// A copy from the PDU.
        lun: LunField,
        /// A copy from the PDU.
        ttt: Ttt,
        /// The next DataSN.
        next: DataSn,
        /// Of the PDU.
        numbers: Numbers,
    },
    /// The status of a task that has ended: of use for its numbers only.
    Stray(Numbers),
    /// The byte stream or its sender cannot be trusted any more: the core ends the connection.
    Violation(Violation),
}

/// A run of DataSNs or R2TSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// How a command ended, with what the mover has booked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The task.
    pub task: TaskId,
    /// Status and residual; of a status in Data-In what a SCSI Response would have said.
    pub response: ScsiResponse,
    /// Bytes that were placed, from the first of the buffer on without a gap.
    pub received: u32,
    /// Data-In with a wrong digest was dropped: what is in the buffer is not whole.
    pub damaged: bool,
}

/// What a target did that no target may do, as far as the mover knows (RFC 7143 §7.7 to §7.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// RFC 7143 §11.2.1: no target begins a connection with such bytes.
    #[error("what answers there does not speak iscsi")]
    NotIscsi,
    /// RFC 7143 §7.8: the lengths in the header mean nothing.
    #[error("wrong header digest")]
    HeaderDigest,
    /// RFC 7143 §7.8: a status or a control PDU was lost with it.
    #[error("wrong data digest in a PDU that carries status or control")]
    DataDigest,
    /// RFC 7143 §13.12.
    #[error("data segment of {length} bytes, {limit} are allowed")]
    SegmentTooLong {
        /// Bytes.
        length: u32,
        /// What we declared, bytes.
        limit: u32,
    },
    /// RFC 7143 §7.7: a format error.
    #[error("malformed pdu with opcode {opcode:#04x}")]
    Malformed {
        /// Of the PDU.
        opcode: u8,
    },
    /// RFC 7143 §11.2.1.8.
    #[error("data or status for a task that does not exist (tag {:#010x})", .0.0)]
    UnknownTask(Itt),
    /// RFC 7143 §11.7: the command does not take data in, or the range is beyond its buffer.
    #[error("data-in of {length} bytes at {offset} does not lie in the buffer of {buffer} bytes")]
    Range {
        /// Buffer Offset, bytes.
        offset: u32,
        /// Bytes.
        length: u32,
        /// The expected transfer, bytes.
        buffer: u32,
    },
    /// RFC 7143 §7.9: data or an R2T was lost on the way, or its order is not the agreed one.
    #[error("data-in or r2t out of order: number {got} instead of {expected}")]
    Sequence {
        /// DataSN or R2TSN.
        got: u32,
        /// The next one.
        expected: u32,
    },
    /// RFC 7143 §13.18, §13.19.
    #[error("data-in at {offset} where {expected} comes next")]
    Offset {
        /// Buffer Offset, bytes.
        offset: u32,
        /// The first byte that is missing.
        expected: u32,
    },
    /// RFC 7143 §11.8: outside of the command's data, or longer than MaxBurstLength.
    #[error("r2t for {length} bytes at {offset} of a command that has {buffer}")]
    R2tRange {
        /// Buffer Offset, bytes.
        offset: u32,
        /// Desired Data Transfer Length, bytes.
        length: u32,
        /// The expected transfer, bytes.
        buffer: u32,
    },
    /// RFC 7143 §4.2.5.3, §11.8.
    #[error("an r2t names another logical unit than its command")]
    R2tUnit,
    /// RFC 3720 §A.2.
    #[error("a marker that does not point to the next pdu")]
    Marker,
    /// RFC 7145 §10.1: the RDMA stream has ended, or brings what is no message of iSER.
    #[error("the rdma stream has ended{}", Why(*.0))]
    Rdma(Option<Cause>),
    /// RFC 7143 §13.17.
    #[error("more r2ts at once than the {0} that were agreed")]
    TooManyR2ts(u16),
    /// RFC 7143 §11.19: a target waits for the answer to a ping.
    #[error("it asks for answers to pings, and does not take {0} of them")]
    TooManyPings(usize),
}

/// Tags of tasks have slot numbers below this; the slot number above marks other requests.
pub const TASK_SLOTS_MAX: u32 = 0xfff0;

/// Slot number in the tags of requests that are no SCSI commands.
const CONTROL_SLOT: u32 = 0xfffe;

/// The Initiator Task Tag of a task: never that of no task, nor of another request (RFC 7143
/// §11.2.1.8). A slot gives each of 65536 tasks in turn another tag, so that late PDUs find no
/// task.
#[must_use]
pub const fn itt(task: TaskId) -> Itt {
    Itt(task.generation << 16 | task.index & 0xffff)
}

/// The tag of the `count`th request that is no SCSI command.
#[must_use]
pub const fn control_itt(count: u16) -> Itt {
    Itt((count as u32) << 16 | CONTROL_SLOT)
}

/// The slot that a tag names. None for the tags of other requests.
#[must_use]
pub const fn slot(itt: Itt) -> Option<u32> {
    let slot = itt.0 & 0xffff;
    if slot < TASK_SLOTS_MAX { Some(slot) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: CMD-29.
    #[test]
    fn tags_are_distinct_and_never_none() {
        let first = TaskId { index: 7, generation: 0 };
        let again = TaskId { index: 7, generation: 1 };
        assert_ne!(itt(first), itt(again));
        assert_eq!((slot(itt(first)), slot(itt(again))), (Some(7), Some(7)));
        let last = TaskId { index: TASK_SLOTS_MAX - 1, generation: u32::MAX };
        assert_ne!(itt(last), Itt::NONE);
        for count in [0, 1, u16::MAX] {
            assert_ne!(control_itt(count), Itt::NONE);
            assert_eq!(slot(control_itt(count)), None);
        }
        assert_eq!(slot(Itt::NONE), None);
    }
}
