// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reliable byte stream over raw Ethernet frames, as a sans-IO machine; stations drive it.
//!
//! [`Endpoint`] has all connections of one station: frames, bytes and times go in, frames and bytes
//! come out. Streams end like those of TCP: each direction by itself, or both at once by a reset.
//!
//! ```text
//!  opener                         acceptor
//!    | Open, filled up to the longest frame  |   again until it is answered;
//!    |-------------------------------------->|   short ones after a while
//!    |               Accept, filled up       |   its owner is not told before
//!    |<--------------------------------------|   the opener has shown that it heard
//!    | Data: offsets, SACK, window           |
//!    |<------------------------------------->|
//! ```
//!
//! - **What goes through** is offsets of 64 bits in each direction, so that none comes twice. A
//!   connection has a random id of 64 bits at each end: a frame of an older connection, or of
//!   somebody who has not heard one, belongs to none.
//! - **Loss** is found by what was sent later and has come (SACK; three frames later, or 9/8 of a
//!   round trip as in RFC 9002 §6.1), by a probe at the tail, and by a time-out (RFC 6298, with
//!   bounds for a local wire). What is in flight is bounded by the receiver's window and by a
//!   congestion window (RFC 5681), since switches drop what they have no room for.
//! - **Memory**: two rings of fixed size for each connection that stands, and tables with bounds;
//!   nothing that a peer sends makes any of them larger.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod congestion;
mod connection;
mod endpoint;
mod figures;
#[cfg(test)]
mod hostile;
pub mod limits;
mod receiver;
mod ring;
mod rtt;
mod sender;
#[cfg(test)]
mod tests;

pub use connection::Ended;
pub use connection::Outgoing;
pub use endpoint::Asked;
pub use endpoint::Endpoint;
pub use endpoint::Event;
pub use endpoint::Stats;
pub use figures::Figures;
