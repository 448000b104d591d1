// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of connections by the process that has them; pumps and the command line call it.
//!
//! A [`Capture`] is a file. A [`Tap`] is at one connection and is told what is sent and received
//! there, in order; it makes up the segments of TCP that could have carried it. What is to be
//! written waits in a bounded queue for a thread: no I/O waits for the file, and a file that is
//! full, broken or slow ends the capture, or lacks something, and nothing else.
#![forbid(unsafe_code)]

mod file;
mod tap;
mod trace;

use std::time::Duration;

pub use file::Capture;
pub use file::End;
pub use file::Figures;
pub use file::LIMIT_DEFAULT;
pub use file::OpenError;
pub use file::Opened;
pub use file::Short;
pub use file::append;
pub use file::open as open_file;
pub use tap::Side;
pub use tap::Tap;
pub use trace::DATA_MAX;
pub use trace::Filter;
pub use trace::Follower;
pub use trace::Framing;
pub use trace::Taken;
pub use trace::Terms;
pub use trace::Trace;
pub use trace::TraceEnd;
pub use trace::TraceFigures;
pub use trace::Who;

/// The number before the first byte of a connection that begins then: with another one between the
/// same ends it is no other's continuation.
fn first_sequence(now: Duration) -> u32 {
    u32::try_from(now.as_micros() & u128::from(u32::MAX)).unwrap_or_default()
}
