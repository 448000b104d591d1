// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use core::time::Duration;

use wire::ether::HEADER_LEN_MAX;

/// Bytes that one direction of a connection holds at each end: what 10 Gbit/s carry in 800 us, four
/// round trips of a switched network.
pub const RING_BYTES: usize = 1 << 20;

/// Longest payload of a frame: that of a jumbo frame of 9000 bytes, with room for a header.
pub const PAYLOAD_MAX: usize = 9000;

/// Shortest payload that peers may agree on: less would make more headers than data.
pub const PAYLOAD_MIN: usize = 256;

/// Payload that any Ethernet takes: what is left of its 1500 bytes behind the longest header.
pub const PAYLOAD_STANDARD: usize = 1500 - HEADER_LEN_MAX;

/// Connections of an endpoint: each has two rings.
pub const CONNECTIONS_MAX: usize = 256;

/// Of them, those whose opener has not shown that it hears us. The oldest of the station that has
/// most goes for a new one.
pub const HALF_OPEN_MAX: usize = 64;

/// Resets that wait to be sent to those who name no connection; more are not worth an answer.
pub const STRAYS_MAX: usize = 16;

/// Frames of a direction in flight: a ring of the shortest standard frames, and as many again.
pub const SEGMENTS_MAX: usize = 4096;

/// Gaps that a receiver keeps account of; what would make one more is dropped, and comes again.
pub const RANGES_MAX: usize = 64;

/// Frames sent later that have come before one counts as lost (RFC 9002 §6.1.1).
pub const REORDER_FRAMES: u64 = 3;

/// The first frames of a connection, as far as memory of a switch is concerned (RFC 6928).
pub const WINDOW_FRAMES_FIRST: u64 = 10;

/// Less is never in flight where there is something to be sent.
pub const WINDOW_FRAMES_MIN: u64 = 2;

/// Time-out before a round trip was measured.
pub const RTO_FIRST: Duration = Duration::from_millis(100);

/// Shortest time-out. RFC 6298 has 1 s, for paths through the world whose ends delay what they
/// acknowledge; ours do not, and a thread that waits for a processor is back by then.
pub const RTO_MIN: Duration = Duration::from_millis(20);

/// Longest time-out: a wire that was out is used soon again.
pub const RTO_MAX: Duration = Duration::from_secs(2);

/// Shortest wait before the last frame is sent once more to see what has come.
pub const PROBE_MIN: Duration = Duration::from_millis(4);

/// Time-outs of the same frame before the peer counts as gone: about 20 s.
pub const TIMEOUTS_MAX: u32 = 16;

/// An opener asks this often with frames of the full length; then the path may not carry them.
pub const FULL_ASKS: u32 = 3;

/// So long an opener asks.
pub const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// So long an acceptor waits for an opener to show that it hears.
pub const HALF_OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// An acceptor answers this often where it is asked once: the opener may have left, or never been.
pub const ANSWERS_MAX: u32 = 2;

/// From one ask to the next.
pub const ASK_PAUSE: Duration = Duration::from_millis(200);

/// A peer that has been silent so long is asked whether it is there.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A peer that has been silent so long is gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A connection that is over answers so long what comes late.
pub const LINGER: Duration = Duration::from_secs(1);

/// So long what was left to be sent may take where nobody waits for it any more.
pub const LAST_WORDS: Duration = Duration::from_secs(5);

const _: () = assert!(PAYLOAD_MIN <= PAYLOAD_STANDARD && PAYLOAD_STANDARD <= PAYLOAD_MAX);
const _: () = assert!(PAYLOAD_MAX + HEADER_LEN_MAX < 1 << 16);
const _: () = assert!(RING_BYTES / PAYLOAD_STANDARD < SEGMENTS_MAX);
