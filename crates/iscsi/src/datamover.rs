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

use alloc::boxed::Box;
use alloc::vec::Vec;
use buf::{Buf, Slice};
use core::fmt;
use thiserror::Error;
use wire::iscsi::{CollapsedStatus, DataSn, Itt, LunField, Numbers, R2tSn, Request, Response, Ttt};
use wire::iwarp::Cause;

/// What a mover can do beyond the ops that every mover carries out. A mover says it before its
/// connection begins; the core asks for nothing else, and negotiates nothing that needs more. All
/// connections of a session have the same (RFC 7145 §6.3 asks so of iSER).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Status may travel with the last data: `Op::PutData` with a status.
    pub collapses_status: bool,
    /// Highest ErrorRecoveryLevel: at 2 tasks can leave a connection and go on on another one.
    pub recovery_level: u8,
    /// PDUs may be lost or damaged on their way, and of data have numbers by which they are asked
    /// for again: `Op::AskAgain`. Without it nothing is, at whatever level (RFC 7145 §10.2.1).
    pub numbers_data: bool,
    /// CRC32C over headers and data (RFC 7143 §13.1).
    pub digests: bool,
    /// Markers of RFC 3720.
    pub markers: bool,
    /// Data may go from the port straight into its buffer.
    pub lands: bool,
    /// What RDMAExtensions comes to.
    pub rdma: Rdma,
    /// Each PDU needs a buffer that was given out before it comes, and so many there are; None: any
    /// number may come. With buffers there is no unsolicited data but what is immediate.
    pub buffers: Option<u16>,
}

/// What RDMAExtensions may come to on a connection (RFC 7145 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a connection has RDMA, or it has not
pub enum Rdma {
    /// No.
    #[default]
    Never,
    /// Either: it is a byte stream, and can go on with RDMA after the login.
    Possible,
    /// Yes: it began with RDMA.
    Always,
}

impl Capabilities {
    /// Those of a byte stream.
    pub const STREAM: Self = Self {
        collapses_status: true,
        recovery_level: 2,
        numbers_data: true,
        digests: true,
        markers: true,
        lands: true,
        rdma: Rdma::Never,
        buffers: None,
    };

    /// Those of an RDMA stream (RFC 7145).
    pub const RDMA: Self = Self {
        collapses_status: false,
        recovery_level: 2,
        numbers_data: false,
        digests: false,
        markers: false,
        lands: false,
        rdma: Rdma::Always,
        buffers: None,
    };
}

/// Names a task through all layers: a slot of its session's task table and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The slot.
    pub index: u32,
    /// How many tasks the slot had before.
    pub generation: u32,
}

impl slots::Id for TaskId {
    fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> u32 {
        self.generation
    }
}

/// What the core asks of the mover. Ops of one connection are carried out in order.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // a mover must carry out each
pub enum Op {
    /// Give a task the buffer that its write data comes into: byte 0 of it is byte 0 of the
    /// initiator's buffer. One that it has already is replaced. Holds at once; needed before the
    /// data comes: without a buffer the burst fails.
    Attach {
        /// The task.
        task: TaskId,
        /// Its buffer.
        buf: Buf,
    },
    /// Take the buffer of a task back: submitting this op gives it, with all that has come into it.
    /// Asked for when no burst of the task is open. Holds at once.
    Detach {
        /// The task.
        task: TaskId,
    },
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
    /// Put_Data (§5.2): `data` to the initiator's buffer at `offset`; in bursts, whose last PDU has
    /// F set; the last one of all has, with `status`, S too. Data-In PDUs without status carry
    /// `numbers` without StatSN. One operation for all, however small the bursts: what it costs
    /// does not depend on what the initiator wishes.
    PutData {
        /// The task.
        task: TaskId,
        /// Its tag.
        itt: Itt,
        /// All bytes.
        data: Slice,
        /// Place in the initiator's buffer, bytes.
        offset: u32,
        /// Bytes of each burst but the last: at least 1.
        burst: u32,
        /// Numbers of each PDU; StatSN counts with `status`.
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
    /// As `PutData`, where answers are kept: for the first time or again. The core numbers the
    /// PDUs, as it must be able to name each of them later; who has no numbers passes that over.
    PutNumbered(Box<NumberedPut>),
    /// As `GetData`, where what was asked for is kept: the core numbers the R2T.
    GetNumbered(NumberedGet),
    /// Send the R2T of an open burst again, with the transfer tag that it had; nothing if the burst
    /// has ended.
    AskAgain(NumberedGet),
    /// Tell `DataFailed` with `DataError::Overdue` for each burst of the task to which no PDU has
    /// come since the last op of this kind, and drop what still comes of it.
    Overdue {
        /// The task.
        task: TaskId,
    },
    /// The task leaves this connection: drop what is queued for it, and its Data-Outs silently. Its
    /// buffer stays until it is detached.
    Suspend {
        /// The task.
        task: TaskId,
        /// Its tag.
        itt: Itt,
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
    /// The task ends without an answer: what its command has named of the initiator's memory is not
    /// reached any more. Holds at once.
    Unname {
        /// Its tag.
        itt: Itt,
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

/// A run of Data-In PDUs (RFC 7143 §11.7), all of `segment` bytes but the last.
#[derive(Clone, Debug)]
pub struct NumberedPut {
    /// The task.
    pub task: TaskId,
    /// Its tag.
    pub itt: Itt,
    /// The bytes of the run.
    pub data: Slice,
    /// Place in the initiator's buffer, bytes.
    pub offset: u32,
    /// Numbers of each PDU; StatSN counts with `status`.
    pub numbers: Numbers,
    /// Number of the first PDU.
    pub data_sn: DataSn,
    /// Bytes of each PDU but the last: at least 1.
    pub segment: u32,
    /// Where in the initiator's buffer a burst began, bytes.
    pub burst_at: u32,
    /// Bytes of each burst from there on, at least 1: a PDU that ends one has F.
    pub burst: u32,
    /// Whether the last PDU ends a burst in any case.
    pub final_: bool,
    /// The last PDU asks for a DataACK with this tag and LUN: A.
    pub acknowledge: Option<(Ttt, LunField)>,
    /// What travels with the last PDU, which then ends a burst: S.
    pub status: Option<CollapsedStatus>,
}

/// One R2T (RFC 7143 §11.8).
#[derive(Clone, Copy, Debug)]
pub struct NumberedGet {
    /// The task.
    pub task: TaskId,
    /// Its tag.
    pub itt: Itt,
    /// Its logical unit.
    pub lun: LunField,
    /// Place in the initiator's buffer, bytes.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
    /// Numbers of the PDU.
    pub numbers: Numbers,
    /// Its number within the command.
    pub r2t_sn: R2tSn,
    /// Where the data began that this connection brings only when it is asked for.
    pub solicited_from: u32,
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
    /// Data-Out PDUs of a burst come in order of their offsets (RFC 7143 §13.18).
    pub data_pdu_in_order: bool,
    /// Markers of RFC 3720.
    pub markers: Markers,
    /// The memory that an initiator names has only what is asked for (RFC 7145 §6.9).
    pub solicited_only: bool,
    /// PDUs past all answers that the initiator takes before it says something; zero: it states no
    /// limit (RFC 7145 §6.7).
    pub unexpected_max: u32,
    /// PDUs past the command window that we take before we say something; zero: no limit was stated
    /// (RFC 7145 §8.1.1).
    pub own_unexpected_max: u32,
    /// The initiator's first message over RDMA is a Hello (RFC 7145 §5.1.3).
    pub hello: bool,
}

/// Payload bytes between two fixed interval markers (RFC 3720 appendix A); None: there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Markers {
    /// In what we send.
    pub send: Option<u32>,
    /// In what we receive.
    pub receive: Option<u32>,
}

impl Keys {
    /// Bytes of each Data-In PDU of a burst but the last: what the peer takes, within what one PDU
    /// may hold up others; a multiple of four, so that only the last PDU is padded (RFC 7143
    /// §11.7.7).
    pub const fn data_in_segment(&self) -> u32 {
        let length = if self.max_send_data_segment_length < DATA_IN_SEGMENT_MAX {
            self.max_send_data_segment_length & !3
        } else {
            DATA_IN_SEGMENT_MAX
        };
        if length < 4 { 4 } else { length }
    }

    /// In force before and during login (RFC 7143 §6.3): no digests, 8192 bytes each way.
    pub const LOGIN: Self = Self {
        header_digest: false,
        data_digest: false,
        max_send_data_segment_length: 8192,
        max_recv_data_segment_length: 8192,
        first_burst_length: 0,
        data_pdu_in_order: true,
        markers: Markers { send: None, receive: None },
        solicited_only: false,
        unexpected_max: 0,
        own_unexpected_max: 0,
        hello: false,
    };
}

/// Longest Data-In segment in bytes. An initiator may take 16 MiB at once, but then one PDU would
/// hold up all others, and a private copy of it would need a huge buffer.
pub const DATA_IN_SEGMENT_MAX: u32 = 256 << 10;

/// Immediate data of a SCSI command (RFC 7143 §11.3).
#[derive(Debug, Default)]
#[expect(clippy::exhaustive_enums)] // there is data or there is none
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
#[expect(clippy::exhaustive_enums)] // the core must heed each
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
    /// A burst ended (F seen, or nothing came for too long) with an error: the task must fail with
    /// the matching sense, or the burst be asked for again.
    DataFailed {
        /// The task.
        task: TaskId,
        /// Place of the whole burst in the initiator's buffer, bytes.
        offset: u32,
        /// Bytes that the whole burst should have.
        length: u32,
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
    /// There is no buffer for the immediate data of a command whose header has come. The next feed
    /// asks the pool once more; if it is still empty, the data is dropped (`Immediate::Exhausted`).
    NoBuffer,
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
#[expect(clippy::exhaustive_enums)] // the core must answer each
pub enum DataError {
    /// Data digest wrong: 0B/47/05; the mover has told `DigestError` for the Reject before.
    Digest,
    /// Ended early, or went beyond its length: 0B/0C/0D.
    Amount,
    /// DataSN or offset out of order: an implied digest error, 0B/47/05 (RFC 7143 §7.8).
    Sequence,
    /// Nothing came for too long: lost, 0B/47/05.
    Overdue,
}

/// What breaks framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(clippy::exhaustive_enums)] // the core must answer each
pub enum StreamViolation {
    /// A header digest is wrong: the lengths in the header mean nothing.
    #[error("a header digest is wrong")]
    HeaderDigest,
    /// DataSegmentLength above what we declared.
    #[error("a data segment of {length} bytes, where {limit} are the most")]
    SegmentTooLong {
        /// Bytes.
        length: u32,
        /// What we declared, bytes.
        limit: u32,
    },
    /// AHS on a PDU that has none, or longer than the list it announces.
    #[error("an additional header that cannot be there")]
    AdditionalHeader,
    /// The first bytes of the connection are no Login Request.
    #[error("it does not begin with a login")]
    NotLogin,
    /// A marker's copies differ, or it does not point to the next PDU (RFC 3720 §A.1).
    #[error("a wrong marker")]
    Marker,
    /// The RDMA stream has ended, or brings what is no message of iSER: what a Terminate says of
    /// that (RFC 7145 §10.1).
    #[error("the rdma stream has ended{}", Why(*.0))]
    Rdma(Option<Cause>),
}

/// What is said behind a message, if anybody knows.
pub(crate) struct Why(pub(crate) Option<Cause>);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.and_then(Cause::meaning) {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}
