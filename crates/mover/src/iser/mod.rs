// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSER (RFC 7145) over software iWARP: PDUs are Sends, data moves by RDMA.
//!
//! Read first: RFC 7145 §7 (what each PDU and primitive becomes), §8 (buffers and STags), §10
//! (errors). A READ is an RDMA Write of the target, a WRITE an RDMA Read of the target, and neither
//! Data-In nor R2T nor solicited Data-Out is ever on the wire. Nothing is lost or damaged on the
//! way, so there are no digests, no markers and no numbers of data PDUs: ErrorRecoveryLevel 1 asks
//! for nothing again, and at 2 tasks go on on another connection, with other STags (§10.2).

mod facts;
mod initiator;
mod message;
mod remote;
mod stream;
mod target;
mod unexpected;
mod unsolicited;

use iscsi::datamover::Capabilities;

pub use facts::Facts;
pub use initiator::Carried;
pub use initiator::Initiator;
pub use rdma::mpa::Checks;
pub use rdma::mpa::Framing;
pub use target::Target;
pub use wire::iwarp::Markers;

use crate::limits::ADAPTER_BUFFERS;

/// What both ends can do.
pub const CAPABILITIES: Capabilities = Capabilities::RDMA;

/// What both ends can do over an adapter, which has memory until it says that it is done: no task
/// can take its buffer along from a connection that is not over.
pub const OF_ADAPTERS: Capabilities =
    Capabilities { buffers: Some(ADAPTER_BUFFERS), recovery_level: 1, ..CAPABILITIES };

/// The first byte of a connection that begins with MPA: of its request (RFC 5044 §7.1.1). No Login
/// Request begins like that.
pub const FIRST_BYTE: u8 = b'M';

#[cfg(test)]
mod tests;
