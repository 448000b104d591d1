// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every limit of the device server, with its reason. Lengths in bytes.

use core::time::Duration;
use wire::scsi::copy::CSCD_LEN;
use wire::scsi::copy::OFFSET_SEGMENT_LEN;
use wire::scsi::token::RANGE_LEN;
use wire::scsi::token::WRITE_HEADER_LEN;

/// Longest READ, WRITE or VERIFY (MAXIMUM TRANSFER LENGTH): one buffer holds it, and hosts gain
/// nothing beyond it.
pub const TRANSFER_MAX: u32 = 4 << 20;

/// OPTIMAL TRANSFER LENGTH: long enough to hide the round trip, short enough to share the wire.
pub const TRANSFER_OPTIMAL: u32 = 1 << 20;

/// Longest single read or write that a command makes on its own account (VERIFY, WRITE SAME), so
/// that other commands get their turn between two of them.
pub const PIECE_MAX: u32 = 1 << 20;

/// Longest WRITE SAME (MAXIMUM WRITE SAME LENGTH): its pieces keep the store busy for some
/// milliseconds.
pub const WRITE_SAME_MAX: u32 = 16 << 20;

/// Longest COMPARE AND WRITE (MAXIMUM COMPARE AND WRITE LENGTH): hosts use one block as a lock, and
/// all writers of the unit wait for it.
pub const COMPARE_MAX: u32 = 64 << 10;

/// Longest PRE-FETCH that is tried (MAXIMUM PREFETCH LENGTH): what one READ may bring in.
pub const PREFETCH_MAX: u32 = TRANSFER_MAX;

/// Descriptors of one GET LBA STATUS: the rest is asked for by the next one.
pub const STATUS_DESCRIPTORS_MAX: usize = 256;

/// Questions to the store for one GET LBA STATUS: each may look at a long run.
pub const STATUS_QUESTIONS_MAX: u32 = 512;

/// Longest run that one question is about: looking at it takes a memory store some microseconds.
pub const STATUS_LENGTH_MAX: u64 = 16 << 30;

/// Longest zeroing in one step, which may set space aside: memory writes zeroes for that, as a
/// file may.
pub const ZERO_MAX: u64 = 4 << 20;

/// Longest discard in one step: a discard costs by the extents it frees, not by its length.
pub const DISCARD_MAX: u64 = 64 << 20;

/// Blocks of one UNMAP (MAXIMUM UNMAP LBA COUNT): the sum over its descriptors.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;

/// Descriptors of one UNMAP (MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT): its list stays about a page.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// Initiator ports that a unit remembers after their nexus was lost, so that the next one learns of
/// it. The oldest is forgotten first; it then gets 29/00 where it would have got 29/07.
pub const LOST_PORTS_MAX: usize = 1024;

/// Registrations of one unit: a cluster has some dozens of nodes, each with a few paths.
pub const REGISTRANTS_MAX: usize = 512;

/// Longest PERSISTENT RESERVE OUT parameter list: all registrations at once, with names of usual
/// length.
pub const RESERVE_OUT_LEN_MAX: usize = 64 << 10;

/// Longest SET TARGET PORT GROUPS parameter list: all groups of a unit many times over.
pub const SET_GROUPS_LEN_MAX: u32 = 4096;

/// CSCD descriptors of one EXTENDED COPY: hosts name one source and one destination.
pub const CSCDS_MAX: u16 = 16;

/// Segment descriptors of one EXTENDED COPY: VMware sends one at a time, others some dozens.
pub const COPY_SEGMENTS_MAX: u16 = 64;

/// All descriptors of one EXTENDED COPY, whose segments are all of the longest kind.
#[allow(clippy::cast_possible_truncation)] // some dozens of bytes
pub const COPY_DESCRIPTORS_LEN_MAX: u32 =
    CSCDS_MAX as u32 * CSCD_LEN as u32 + COPY_SEGMENTS_MAX as u32 * OFFSET_SEGMENT_LEN as u32;

/// Longest EXTENDED COPY parameter list that is received: one that has more descriptors than it may
/// is told so.
pub const COPY_LIST_LEN_MAX: u32 = 2 * COPY_DESCRIPTORS_LEN_MAX;

/// Longest segment of an EXTENDED COPY: what its number of blocks can say with 512 bytes each, and
/// no more with 4096, so that a command ends within the hosts' time-outs.
pub const COPY_SEGMENT_MAX: u32 = 32 << 20;

/// Longest read and write of a copy: between two of them other commands get their turn.
pub const COPY_PIECE: u32 = 512 << 10;

/// Copies of one nexus under way at one unit.
pub const COPIES_MAX: usize = 8;

/// Copies of one nexus and unit that are remembered, so that their end can be asked for.
pub const COPY_RECORDS_MAX: usize = 64;

/// How long a host does well to wait before it asks again how far a copy is, milliseconds.
pub const COPY_DELAY_MS: u32 = 50;

/// Range descriptors of one POPULATE TOKEN or WRITE USING TOKEN: a file in that many extents.
pub const TOKEN_RANGES_MAX: u16 = 128;

/// Longest parameter list of the two.
#[allow(clippy::cast_possible_truncation)] // some hundreds of bytes
pub const TOKEN_LIST_LEN_MAX: u32 =
    WRITE_HEADER_LEN as u32 + TOKEN_RANGES_MAX as u32 * RANGE_LEN as u32;

/// Bytes that one token stands for, and that one WRITE USING TOKEN copies.
pub const TOKEN_BYTES_MAX: u64 = 1 << 30;

/// Bytes that a WRITE USING TOKEN does well to copy at once.
pub const TOKEN_BYTES_OPTIMAL: u64 = 64 << 20;

/// Tokens of one unit: hosts have a few under way at a time. The oldest makes room.
pub const TOKENS_MAX: usize = 256;

/// A token that is not used for so long expires, unless its host asked for something else.
pub const TOKEN_INACTIVITY: Duration = Duration::from_secs(60);

/// The longest that a host may ask for.
pub const TOKEN_INACTIVITY_MAX: Duration = Duration::from_secs(600);

/// A token expires after so long in any case.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);

/// Passes of one SANITIZE with OVERWRITE: no sanitization standard asks for more.
pub const OVERWRITES_MAX: u8 = 31;

/// Longest FORMAT UNIT parameter list: a long header and a pattern of one block.
pub const FORMAT_LIST_LEN_MAX: u32 = 8 + 4 + 4096;

/// Longest parameter list of LOG SELECT, bytes: the three counters that can be set need 48.
pub(crate) const LOG_LIST_LEN_MAX: u16 = 1024;

/// Longest name of an initiator port: an iSCSI name of 223 bytes and `,i,0x` with an ISID.
pub const PORT_NAME_LEN_MAX: usize = 223 + 17;

/// Echo buffer of one nexus: a page of memory, and less than the 8191 bytes that its descriptor can
/// tell.
pub const ECHO_BUFFER_LEN: u16 = 4096;

/// Longest identifying information (SPC-4 §5.7 knows 64 to 512 bytes), and longest text of it.
pub const IDENTIFICATION_LEN_MAX: usize = 512;
/// As above.
pub const IDENTIFICATION_TEXT_LEN_MAX: usize = 256;

/// Tasks of one unit that are listed because they are ordered, or behind those that are: several
/// sessions with a full command window each. One more is answered with TASK SET FULL.
pub const LISTED_TASKS_MAX: usize = 1024;

/// Reads of a unit that have ended before the store's work for them, which is not waited for any
/// more: so few that the buffers they hold are not missed. One more, and the unit is fenced until
/// it has ended.
pub const LEFT_READS_MAX: u32 = 16;

/// Longest sense data, bytes: descriptor format with INFORMATION and a field pointer.
pub const SENSE_LEN_MAX: u8 = 28;

/// Blocks of the largest CD, one of 80 minutes: what is larger is shown as a DVD.
pub const CD_BLOCKS_MAX: u64 = 80 * 60 * 75;

/// Longest serial number, so that every designator fits its length byte.
pub const SERIAL_LEN_MAX: usize = 64;

const _: () = assert!(TRANSFER_MAX as usize <= buf::BUF_LEN_MAX);
const _: () = assert!(COMPARE_MAX <= TRANSFER_MAX / 2 && COMPARE_MAX / 512 < 256);
const _: () = assert!(TRANSFER_OPTIMAL <= TRANSFER_MAX && PIECE_MAX <= TRANSFER_MAX);
const _: () = assert!(COPY_PIECE <= TRANSFER_MAX);
const _: () = assert!(8 + 16 * UNMAP_DESCRIPTORS_MAX <= u16::MAX as u32);
