// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use core::time::Duration;
use wire::iwarp::DEPTH_UNSAID;
use wire::iwarp::ENHANCED_LEN;
use wire::iwarp::PRIVATE_DATA_LEN_MAX;

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
