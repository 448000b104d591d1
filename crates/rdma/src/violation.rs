// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every requirement that a peer can break, and what a Terminate says of it.

use thiserror::Error;
use wire::iwarp::Cause;
use wire::iwarp::IwarpError;

/// One variant for each broken requirement. All of them end the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(clippy::exhaustive_enums)] // each has its cause
pub enum Violation {
    /// RFC 5044 §7.1.1.
    #[error("no MPA request and no MPA reply")]
    Key,
    /// RFC 5044 §7.1.2.
    #[error("an MPA request where a reply is due, or the reverse")]
    Crossed,
    /// RFC 5044 §7.1.1.
    #[error("MPA revision {0}")]
    Revision(u8),
    /// RFC 5044 §7.1.1: more than 512 bytes; RFC 6581 §4: fewer than four.
    #[error("{0} bytes of private data")]
    PrivateData(u16),
    /// RFC 5044 §7.1.2.
    #[error("no MPA request or reply came in time")]
    StartTimeout,
    /// RFC 6581 §9.
    #[error("the peer wants {wanted} RDMA Reads at once, and {served} are served")]
    Depth {
        /// ORD of the reply.
        wanted: u16,
        /// IRD of the request.
        served: u16,
    },
    /// RFC 6581 §5.
    #[error("none of the offered ready-to-receive messages was chosen")]
    ReadyType,
    /// RFC 5044 §4.4.
    #[error("the CRC of an FPDU is wrong")]
    Crc,
    /// RFC 5044 §4.3.
    #[error("a marker points {found} bytes back, and its FPDU began {wanted} before")]
    Marker {
        /// Where the FPDU began.
        wanted: u16,
        /// What the marker says.
        found: u16,
    },
    /// RFC 5044 §4.5.
    #[error("an FPDU of {0} bytes")]
    UlpduLength(u16),
    /// RFC 5044 §8.
    #[error("the connection ended in the middle")]
    Lost,
}

impl Violation {
    /// What a Terminate says, and what the upper layer is told (RFC 5040 §4.8, RFC 5044 §8).
    #[must_use]
    pub const fn cause(self) -> Cause {
        match self {
            Self::Key
            | Self::Crossed
            | Self::Revision(_)
            | Self::PrivateData(_)
            | Self::StartTimeout => Cause::MPA_START,
            Self::Depth { .. } => Cause::MPA_IRD,
            Self::ReadyType => Cause::MPA_READY,
            Self::Crc => Cause::MPA_CRC,
            Self::Marker { .. } | Self::UlpduLength(_) => Cause::MPA_MARKER,
            Self::Lost => Cause::MPA_LOST,
        }
    }

    /// What is wrong with a frame that begins a connection.
    pub(crate) const fn of_start(error: IwarpError) -> Self {
        match error {
            IwarpError::PrivateData(length) => Self::PrivateData(length),
            _ => Self::Key,
        }
    }
}
