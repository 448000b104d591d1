// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every bound of this crate, each with its reason.

use buf::BUF_LEN_MAX;
/// Longest segment of data that is sent, in either role, bytes.
pub use iscsi::datamover::DATA_IN_SEGMENT_MAX as SEND_SEGMENT_MAX;
/// Bytes of data of a PDU over RDMA.
pub use iscsi::limits::RDMA_SEGMENT_LEN as ISER_DATA_MAX;
/// PDUs past the command window that an initiator may send over RDMA before it hears from us.
pub use iscsi::limits::UNEXPECTED_MAX;
use wire::iscsi::BHS_LEN;

/// Longest AHS list in bytes: TotalAHSLength counts 255 four-byte words (RFC 7143 §11.2.1.5).
pub const AHS_LEN_MAX: usize = 255 * 4;

/// Bytes of the buffer for control data that a connection keeps between PDUs: one login segment. A
/// longer segment is received into memory that goes back with the next PDU.
pub const CONTROL_KEEP: usize = 8192;

/// Tasks that one connection can have resources for. The core's command window is far smaller; this
/// only stops a wrong index from growing the table without end.
pub const TASKS_MAX: u32 = 1 << 16;

/// R2Ts that one connection may have open at once: a command window of 512 times MaxOutstandingR2T
/// of 8. Further ones wait in their queue until a burst ends.
pub const SOLICITED_MAX: usize = 4096;

/// Unsolicited bursts that one connection may have open at once: one for each command of a window
/// of 512.
pub const UNSOLICITED_MAX: usize = 512;

/// Ranges that the coverage of one burst may have where its PDUs need not come in order: a megabyte
/// in PDUs of 512 bytes, every second one first. A burst that needs more fails. It bounds what a
/// burst costs to 8 KiB.
pub const COVERAGE_RANGES_MAX: usize = 1024;

/// Runs of missing Data-In or R2Ts that an initiator keeps of one task: with more than that lost
/// here and there, another connection serves it better.
pub const MISSING_RUNS_MAX: usize = 256;

/// Ranges whose memory a slot for bursts keeps from one burst to the next.
pub const COVERAGE_KEEP: usize = 16;

/// Bytes after which a transmit list takes no further PDU: about what a 10 Gbit/s link carries in a
/// millisecond. The last PDU may exceed it by its own length.
pub const TRANSMIT_BYTES_MAX: usize = 1 << 20;

/// Gather elements of one transmit list. The kernel takes 1,024 (IOV_MAX); half of it leaves room
/// for the caller's own.
pub const TRANSMIT_PIECES_MAX: usize = 512;

/// Gather elements that one PDU can add: header, data, padding with digest.
pub const PIECES_PER_PDU: usize = 3;

/// Control data up to this many bytes is copied behind its header instead of taking a gather
/// element.
pub const INLINE_DATA_MAX: usize = 512;

/// Bytes of a data segment that must still be missing for the port to receive them straight into
/// their buffer: below that the copy costs less than a receive of their own.
pub const LANDING_MIN: usize = 32 << 10;

/// Commands of one connection whose memory is known at once: far more than a command window and
/// what goes past it.
pub const REMOTE_MAX: usize = 1024;

/// Sends and RDMA Writes that are posted at once: what a transmit list takes. The rest can still be
/// taken back.
pub const POSTED_MAX: usize = 512;

/// Buffers for PDUs that an adapter has of a session's connection: a command window of 128, and
/// what may come past it; another one is lent to whoever looks at the last PDU.
pub const ADAPTER_BUFFERS: u16 = 128 + iscsi::limits::UNEXPECTED_BUFFERS;

/// The same before the login is over: each request waits for the answer to the one before, which is
/// lent while that is made.
pub const LOGIN_BUFFERS: usize = 2;

/// Bytes of TCP's segment that an FPDU fills: all that one takes within a machine.
pub const SEGMENT_LEN_MAX: usize = 65_536;

const _: () = assert!(POSTED_MAX < rdma::limits::WORKS_MAX);
const _: () = assert!(ISER_DATA_MAX as usize >= CONTROL_KEEP, "a login segment fits");
const _: () = assert!(BHS_LEN + AHS_LEN_MAX + CONTROL_KEEP < 64 << 10, "memory before login");
const _: () =
    assert!(SOLICITED_MAX + UNSOLICITED_MAX < u16::MAX as usize, "TTT 0xffffffff is never made");
const _: () = assert!(COVERAGE_KEEP < COVERAGE_RANGES_MAX);
const _: () = assert!(TRANSMIT_PIECES_MAX < 1024 && PIECES_PER_PDU < TRANSMIT_PIECES_MAX);
const _: () =
    assert!(SEND_SEGMENT_MAX as usize <= BUF_LEN_MAX && SEND_SEGMENT_MAX.is_multiple_of(4));
