// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of the login phase. A peer that has not logged in can make a connection hold one text and
//! one answer.

/// Longest data segment of a login PDU in either direction, in bytes: the default
/// MaxRecvDataSegmentLength, which holds until login ends (RFC 7143 §6.3).
pub const LOGIN_SEGMENT_LEN_MAX: usize = 8192;

/// Longest logical text (all PDUs joined by the C bit), in bytes. RFC 7143 §6.2 demands 8192; twice
/// that leaves room for chatty initiators.
pub const LOGIN_TEXT_LEN_MAX: usize = 16 * 1024;

/// All answers of one login together, in bytes. `A=` is answered by `A=NotUnderstood`, so an answer
/// can be five times its text; the whole of an honest login is below 4 KiB.
pub const LOGIN_ANSWER_LEN_MAX: usize = 32 * 1024;

/// Login Requests in one login phase. RFC 7143 §6.2 asks for six at least; a whole text in small
/// pieces needs more.
pub const LOGIN_EXCHANGES_MAX: u32 = 64;

/// Characters of peer text that a log line quotes.
pub const QUOTE_LEN_MAX: usize = 80;

/// Longest iSCSI name in bytes (RFC 7143 §4.2.7.1).
pub const NAME_LEN_MAX: usize = 223;

/// Longest simple text value in bytes (RFC 7143 §6.1).
pub const TEXT_VALUE_LEN_MAX: usize = 255;

/// Longest CHAP_C and CHAP_R, in bytes of the binary value (RFC 7143 §12.1.3).
pub const CHAP_BINARY_LEN_MAX: usize = 1024;

/// Shortest CHAP secret in bytes: 96 bits (RFC 7143 §9.2.1).
pub const CHAP_SECRET_LEN_MIN: usize = 12;

/// Longest CHAP secret in bytes. RFC 7143 §9.2.1 asks for 16; more than a hash can hold is no gain,
/// but somebody may use a long sentence.
pub const CHAP_SECRET_LEN_MAX: usize = 1024;

/// Bytes of data that a PDU has over RDMA, each way: what deployed stacks take. Data of commands
/// moves without PDUs, so that there is no reason for more.
pub const RDMA_SEGMENT_LEN: u32 = 8192;

/// PDUs that an initiator may send past the command window before it hears from us
/// (MaxOutstandingUnexpectedPDUs, RFC 7145 §6.7): the unsolicited data of 128 commands of 64 KiB.
pub const UNEXPECTED_MAX: u32 = 1024;

/// The same where each needs a buffer of its own, given out before: there is no unsolicited data
/// then, and what is left are pings, answers to pings, task management and immediate commands. Of
/// deployed initiators none asks how many these may be, and none has more than eight of them.
pub const UNEXPECTED_BUFFERS: u16 = 32;

/// Bytes of AHS that a command of ours may have: an extended CDB of 32 bytes, and the length of
/// what a bidirectional command reads (RFC 7143 §11.2.2).
pub const AHS_LEN: u32 = 20 + 8;

const _: () = assert!(LOGIN_SEGMENT_LEN_MAX <= RDMA_SEGMENT_LEN as usize);
const _: () = assert!(LOGIN_TEXT_LEN_MAX >= LOGIN_SEGMENT_LEN_MAX);
const _: () = assert!(LOGIN_EXCHANGES_MAX as usize * LOGIN_SEGMENT_LEN_MAX >= LOGIN_TEXT_LEN_MAX);
const _: () = assert!(LOGIN_TEXT_LEN_MAX + LOGIN_ANSWER_LEN_MAX < 64 * 1024);

/// Most connections of a session: more than one for each path between two machines buys nothing.
pub const CONNECTIONS_MAX: u16 = 32;
