// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Border 2: the operational primitives of the Datamover Architecture (RFC 5047 §5-6), at burst
//! granularity.
//!
//! The core decides bursts (MaxBurstLength, FirstBurstLength, MaxOutstandingR2T); the mover decides
//! segments (MaxRecvDataSegmentLength, DataSN, R2TSN, TTT, digests).
//!
//! RFC 5047 has no place for immediate data. Here the mover stages it in a buffer from its pool and
//! gives it with the command, whole and digest-verified: a command whose immediate data is corrupt
//! was never received (RFC 7143 §7.8), and one that waits for its turn in CmdSN order owns its
//! data.

use alloc::vec::Vec;
use buf::{Buf, Slice};
use wire::iscsi::{CollapsedStatus, Itt, LunField, Numbers, Request, Response};

/// Names a task through all layers: a slot of its session's task table and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    /// The slot.
    pub index: u32,
    /// How many tasks the slot had before.
    pub generation: u32,
}

/// What the core asks of the mover. Ops of one connection are carried out in order.
#[derive(Debug)]
pub enum Op {
    /// Send_Control (RFC 5047 §5.1): one PDU and its data segment. In a SCSI Response the mover
    /// fills ExpDataSN from its books of `task`.
    SendControl {
        /// The PDU.
        response: Response,
        /// Its data segment.
        data: Vec<u8>,
        /// The task that a SCSI Response ends.
        task: Option<TaskId>,
    },
    /// Put_Data (§5.2): `data` to the initiator's buffer at `offset`; one burst, whose last PDU has
    /// F set and, with `status`, S. Data-In PDUs without status carry `numbers` without StatSN.
    PutData {
        /// The task.
        task: TaskId,
        /// Its tag.
        itt: Itt,
        /// The bytes of the burst.
        data: Slice,
        /// Place in the initiator's buffer, bytes.
        offset: u32,
        /// Numbers of the PDU.
        numbers: Numbers,
        /// What travels with the last PDU.
        status: Option<CollapsedStatus>,
    },
    /// Get_Data (§5.3): fetch `length` bytes of the initiator's buffer at `offset` into the
    /// attached buffer (an R2T).
    GetData {
        /// The task.
        task: TaskId,
        /// Its tag.
        itt: Itt,
        /// Its logical unit.
        lun: LunField,
        /// Place in the initiator's buffer, bytes.
        offset: u32,
        /// Bytes.
        length: u32,
        /// Numbers of the PDU.
        numbers: Numbers,
    },
    /// The initiator will send `length` bytes from `offset` on without being asked (unsolicited
    /// Data-Out), ended by F. `discard`: no buffer is attached; take note of the end only.
    ExpectUnsolicited {
        /// The task.
        task: TaskId,
        /// Its tag.
        itt: Itt,
        /// Its logical unit.
        lun: LunField,
        /// Place in the initiator's buffer, bytes.
        offset: u32,
        /// Bytes.
        length: u32,
        /// Nobody wants the bytes.
        discard: bool,
    },
    /// Deallocate_Task_Resources (§5.4): after everything queued before has left, forget the task
    /// and tell `Released`.
    Release {
        /// The task.
        task: TaskId,
    },
    /// End the bursts of an aborted task: its Data-Outs are dropped silently until F or `Release`.
    Abandon {
        /// The task.
        task: TaskId,
    },
    /// Forget the bursts of a task that was abandoned, released or not: its initiator has said that
    /// it sends nothing more for them. Holds at once.
    Forget {
        /// The task.
        task: TaskId,
    },
    /// Notice_Key_Values (§5.6).
    NoticeKeys(Keys),
    /// Connection_Terminate (§5.8): after everything queued before has left, close. `Terminated`
    /// follows.
    Terminate,
}

/// The negotiated values that a mover must know. In effect for every PDU after it: sent (from this
/// op on) and received (from the first byte after the PDU that is being handled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// CRC32C over each header.
    pub header_digest: bool,
    /// CRC32C over each data segment.
    pub data_digest: bool,
    /// Longest data segment that the peer takes, bytes.
    pub max_send_data_segment_length: u32,
    /// Longest data segment that we take, bytes: 8192 in the login phase.
    pub max_recv_data_segment_length: u32,
    /// Longest immediate data, bytes (0: none allowed; a longer one is still received whole and
    /// reported).
    pub first_burst_length: u32,
}

impl Keys {
    /// In force before and during login (RFC 7143 §6.3): no digests, 8192 bytes each way.
    pub const LOGIN: Self = Self {
        header_digest: false,
        data_digest: false,
        max_send_data_segment_length: 8192,
        max_recv_data_segment_length: 8192,
        first_burst_length: 0,
    };
}

/// Immediate data of a SCSI command (RFC 7143 §11.3).
#[derive(Debug, Default)]
pub enum Immediate {
    /// The command has none.
    #[default]
    None,
    /// `data.len()` is at least the data segment: the mover takes a buffer for the whole expected
    /// transfer where that is within `buf::BUF_LEN_MAX`, so that it can become the task's buffer.
    /// `length` bytes are valid.
    Staged {
        /// A buffer that begins with the data segment.
        data: Buf,
        /// Bytes of the data segment.
        length: u32,
    },
    /// The pool was empty: the bytes were dropped. The task can only end as TASK SET FULL or BUSY.
    Exhausted {
        /// Bytes that were dropped.
        length: u32,
    },
}

/// What the mover tells the core.
#[derive(Debug)]
pub enum Event {
    /// Control_Notify (RFC 5047 §6.1): a whole PDU other than Data-Out, digests verified. Data of
    /// PDUs other than SCSI commands is in the mover's `control_data()`, the header with its AHS in
    /// `header()`, until the next feed.
    Control {
        /// The PDU.
        request: Request,
        /// Immediate data of a SCSI command.
        immediate: Immediate,
    },
    /// Data_Completion_Notify (§6.2): a GetData or unsolicited burst is complete (F seen, all bytes
    /// there).
    DataDone {
        /// The task.
        task: TaskId,
        /// Place in the initiator's buffer, bytes.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// A burst ended (F seen) with an error: the task must fail with the matching sense.
    DataFailed {
        /// The task.
        task: TaskId,
        /// Why.
        error: DataError,
    },
    /// A whole PDU that cannot be taken, already skipped: the core answers with Reject (reason as
    /// in RFC 7143 §11.17.1), the header is in `header()`.
    Rejected {
        /// For the Reject.
        reason: u8,
    },
    /// A command whose immediate data failed its digest, or any other PDU but Data-Out that did:
    /// skipped, CmdSN left open.
    DigestError,
    /// Task_Released: the data of the task has left and its bursts are closed.
    Released {
        /// The task.
        task: TaskId,
    },
    /// The byte stream cannot be trusted any more (header digest, oversized segment, ...): the core
    /// ends the connection.
    Violation(StreamViolation),
}

/// Why a write burst failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataError {
    /// Data digest wrong: 0B/47/05; the mover has told `DigestError` for the Reject before.
    Digest,
    /// Ended early, or went beyond its length: 0B/0C/0D.
    Amount,
    /// DataSN or offset out of order: an implied digest error, 0B/47/05 (RFC 7143 §7.8).
    Sequence,
}

/// What breaks framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamViolation {
    /// A header digest is wrong: the lengths in the header mean nothing.
    HeaderDigest,
    /// DataSegmentLength above what we declared.
    SegmentTooLong {
        /// Bytes.
        length: u32,
        /// What we declared, bytes.
        limit: u32,
    },
    /// AHS on a PDU that has none, or longer than the list it announces.
    AdditionalHeader,
    /// The first bytes of the connection are no Login Request.
    NotLogin,
}
