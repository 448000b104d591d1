// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every requirement that a peer can break, and what a Terminate says of it.

use crate::region::Denied;
use thiserror::Error;
use wire::iwarp::Cause;
use wire::iwarp::IwarpError;
use wire::iwarp::QueueNumber;
use wire::iwarp::Stag;

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
    /// RFC 5041 §4.1.
    #[error("DDP version {version}")]
    DdpVersion {
        /// What the segment says.
        version: u8,
        /// Of which kind it says that it is.
        tagged: bool,
    },
    /// RFC 5041 §7.1.
    #[error("a message for queue {}", .0.0)]
    Queue(QueueNumber),
    /// RFC 5041 §7.1; on queue 1 more RDMA Reads than agreed (RFC 5040 §5.2).
    #[error("no buffer for a message of queue {}", .0.0)]
    NoBuffer(QueueNumber),
    /// RFC 5041 §5.3.
    #[error("message {found} where {wanted} is due")]
    Msn {
        /// The next of the queue.
        wanted: u32,
        /// What came.
        found: u32,
    },
    /// RFC 5041 §5.1.
    #[error("offset {found} in a message where {wanted} is due")]
    Offset {
        /// Where the segment before it ended.
        wanted: u32,
        /// What came.
        found: u32,
    },
    /// RFC 5041 §7.1.
    #[error("a message longer than its buffer of {0} bytes")]
    TooLong(usize),
    /// RFC 5041 §7.1: of an RDMA Write or Read Response.
    #[error("placing: {0}")]
    Placing(Denied),
    /// RFC 5040 §5.2: of an RDMA Read Request.
    #[error("reading: {0}")]
    Reading(Denied),
    /// RFC 5040 §5.3.
    #[error("an STag that cannot be invalidated: {:#010x}", .0.0)]
    NotInvalidated(Stag),
    /// RFC 5040 §4.1.
    #[error("RDMAP version {0}")]
    RdmapVersion(u8),
    /// RFC 5040 §4.3: unknown, in the wrong kind of segment, or not due.
    #[error("RDMAP control byte {0:#04x} out of place")]
    Opcode(u8),
    /// RFC 5040 §5.2: another length than that of its header.
    #[error("an RDMA Read Request of {0} bytes")]
    ReadRequestLength(usize),
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
            Self::DdpVersion { tagged: true, .. } => Cause::TAGGED_VERSION,
            Self::DdpVersion { tagged: false, .. } => Cause::UNTAGGED_VERSION,
            Self::Queue(_) => Cause::UNTAGGED_QUEUE,
            Self::NoBuffer(_) => Cause::UNTAGGED_NO_BUFFER,
            Self::Msn { .. } => Cause::UNTAGGED_MSN,
            Self::Offset { .. } => Cause::UNTAGGED_OFFSET,
            Self::TooLong(_) => Cause::UNTAGGED_TOO_LONG,
            Self::Placing(denied) => match denied {
                Denied::Stag => Cause::TAGGED_INVALID_STAG,
                Denied::Bounds => Cause::TAGGED_BOUNDS,
                Denied::Stream => Cause::TAGGED_STREAM,
                Denied::Wrap => Cause::TAGGED_WRAP,
                // DDP knows no rights: RDMAP finds that they are missing.
                Denied::Access => Cause::REMOTE_ACCESS,
            },
            Self::Reading(denied) => match denied {
                Denied::Stag => Cause::REMOTE_INVALID_STAG,
                Denied::Bounds => Cause::REMOTE_BOUNDS,
                Denied::Stream => Cause::REMOTE_STREAM,
                Denied::Wrap => Cause::REMOTE_WRAP,
                Denied::Access => Cause::REMOTE_ACCESS,
            },
            Self::NotInvalidated(_) => Cause::REMOTE_NOT_INVALIDATED,
            Self::RdmapVersion(_) => Cause::RDMAP_VERSION,
            Self::Opcode(_) => Cause::UNEXPECTED_OPCODE,
            Self::ReadRequestLength(_) => Cause::OPERATION_UNSPECIFIED,
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;

    fn all() -> Vec<Violation> {
        let denied = [Denied::Stag, Denied::Bounds, Denied::Stream, Denied::Wrap, Denied::Access];
        let mut all = vec![
            Violation::Key,
            Violation::Crossed,
            Violation::Revision(7),
            Violation::PrivateData(513),
            Violation::StartTimeout,
            Violation::Depth { wanted: 2, served: 1 },
            Violation::ReadyType,
            Violation::Crc,
            Violation::Marker { wanted: 0, found: 4 },
            Violation::UlpduLength(13),
            Violation::Lost,
            Violation::DdpVersion { version: 0, tagged: true },
            Violation::DdpVersion { version: 0, tagged: false },
            Violation::Queue(QueueNumber(3)),
            Violation::NoBuffer(QueueNumber(0)),
            Violation::Msn { wanted: 1, found: 3 },
            Violation::Offset { wanted: 0, found: 4 },
            Violation::TooLong(8),
            Violation::NotInvalidated(Stag(1)),
            Violation::RdmapVersion(0),
            Violation::Opcode(0x49),
            Violation::ReadRequestLength(27),
        ];
        all.extend(denied.map(Violation::Placing));
        all.extend(denied.map(Violation::Reading));
        all
    }

    /// Covers: MPE-12/S.
    #[test]
    fn each_violation_says_what_a_standard_assigns() {
        let causes: BTreeSet<_> = all()
            .into_iter()
            .map(|violation| {
                let cause = violation.cause();
                assert!(cause.meaning().is_some(), "{violation}");
                assert!(!violation.to_string().is_empty());
                (cause.layer, cause.kind, cause.code)
            })
            .collect();
        let of = |layer| causes.iter().filter(|cause| cause.0 == layer).count();
        assert_eq!([of(0), of(1), of(2)], [9, 11, 6]);
    }
}
