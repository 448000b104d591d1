// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use core::time::Duration;
use wire::iwarp::DEPTH_UNSAID;
use wire::iwarp::ENHANCED_LEN;
use wire::iwarp::MULPDU_MIN;
use wire::iwarp::PRIVATE_DATA_LEN_MAX;
use wire::iwarp::UNTAGGED_LEN;

/// How long a peer may take for its request or reply, private data included (RFC 5044 §7.1.2 asks
/// for a bound): as long as a login may.
pub const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Longest private data of the upper layer, in bytes: what an enhanced frame leaves of it, so that
/// nobody has to know in advance what the peer speaks (RFC 6581 §4).
pub const USER_DATA_LEN_MAX: usize = PRIVATE_DATA_LEN_MAX - ENHANCED_LEN;

/// RDMA Reads that we serve at once, or have under way: what adapters offer, and enough to fill any
/// path with the bursts of iSCSI.
pub const READS_MAX: u16 = 256;

const _: () = assert!(READS_MAX < DEPTH_UNSAID, "the depth can be told");

/// STags of one table: tasks of many sessions, two each, and what is left of the 24 bits of an
/// index is slack.
pub const REGIONS_MAX: u32 = 1 << 20;

/// Gaps that are kept of what a peer has written to one buffer: one that writes 1 MiB in pieces of
/// 8 KiB, every second one first. What comes behind more of them has to come again.
pub const GAPS_MAX: usize = 64;

/// Receive buffers that one queue pair holds: a command window and what may come unasked.
pub const RECEIVES_MAX: usize = 4096;

/// Operations that wait on one queue pair to be sent: those of a full window, each with its data
/// and its status. The rest waits with whoever posts.
pub const WORKS_MAX: usize = 4096;

/// Bytes that one list gathers before it is handed to the transport: what a 10 Gbit/s link carries
/// in a millisecond. While a list leaves, the next one is not begun, so that short ones cost.
pub const TRANSMIT_LEN_MAX: usize = 1 << 20;

/// Elements of a list, as far as whole segments fill them: what one system call takes, with room.
pub const TRANSMIT_PIECES_MAX: usize = 512;

/// What a TCP segment takes, in bytes, until the engine has asked: Ethernet's frame without headers
/// and time stamps.
pub const SEGMENT_LEN: usize = 1448;

/// Bytes of a Send that go by value: what every first segment has room for, and more than the
/// headers of iSER and iSCSI with a long CDB take.
pub const HEAD_LEN_MAX: usize = MULPDU_MIN - UNTAGGED_LEN;
