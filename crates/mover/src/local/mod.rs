// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI between two nodes of one process: PDUs and data as values, no bytes of a stream.
//!
//! Both halves speak in messages ([`ToTarget`], [`ToInitiator`]), which somebody carries between
//! them in order. Data travels as a reference and is copied once, into the buffer of who receives
//! it. Nothing is lost or damaged on the way, so there are no digests, no markers and no numbers of
//! data PDUs (ErrorRecoveryLevel 0), and no burst is cut.

mod bursts;
mod initiator;
mod message;
mod sound;
mod target;
#[cfg(test)]
mod tests;

pub use initiator::Initiator;
pub use message::Data;
pub use message::Get;
pub use message::Put;
pub use message::ToInitiator;
pub use message::ToTarget;
pub use target::Target;

use iscsi::datamover::Capabilities;

/// What local movers can do.
pub const CAPABILITIES: Capabilities = Capabilities {
    collapses_status: true,
    recovery_level: 0,
    numbers_data: false,
    digests: false,
    markers: false,
    lands: false,
    rdma: iscsi::datamover::Rdma::Never,
    buffers: None,
};
