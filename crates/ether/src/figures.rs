// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a connection tells of itself.

use core::time::Duration;

use wire::ether::Mac;

/// How far a connection that stands has come. Offsets are of streams, whose ends count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Who is at the other end.
    pub peer: Mac,
    /// Bytes of ours that have come there, as far as we were told.
    pub acknowledged: u64,
    /// Bytes of ours that were sent once at least.
    pub sent: u64,
    /// All before it may be sent, as far as the peer has room.
    pub allowed: u64,
    /// Bytes that may be in flight, as far as the network has room.
    pub window: u64,
    /// Bytes that are.
    pub in_flight: u64,
    /// Frames that were sent once more.
    pub resent: u64,
    /// Bytes of the peer that have come, without a gap.
    pub come: u64,
    /// Those of them that were read.
    pub read: u64,
    /// Longest payload of a frame.
    pub payload_max: usize,
    /// How long a round trip takes, smoothed; None: not measured yet.
    pub round_trip: Option<Duration>,
}
