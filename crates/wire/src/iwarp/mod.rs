// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iWARP: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040) on a byte stream.
//!
//! An FPDU is a length, a DDP segment, padding and a CRC. A segment is a DDP header, of which one
//! byte is RDMAP's, and payload. Parsing looks at one header and knows no state: what must hold
//! between segments is for the machines of `rdma` to judge.

mod ddp;
pub(crate) mod field;
mod fpdu;
mod rdmap;
mod start;
mod terminate;

pub use ddp::*;
pub use fpdu::*;
pub use rdmap::*;
pub use start::*;
pub use terminate::*;

use core::fmt;

/// A steering tag: names a buffer of the peer that it told us of (RFC 5041 §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stag(pub u32);

/// A tagged offset: a place in the buffer that an STag names (RFC 5041 §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaggedOffset(pub u64);

/// A queue number of untagged buffers (RFC 5041 §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueNumber(pub u32);

/// A message sequence number: the place of a message in its queue, from 1 (RFC 5041 §5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Msn(pub u32);

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IwarpError {
    /// The bytes end before the header does.
    Truncated {
        /// What the header takes, in bytes.
        needed: usize,
        /// What was there.
        given: usize,
    },
    /// Neither the key of a request nor that of a reply (RFC 5044 §7.1.1).
    Key,
    /// Private data beyond its limit (RFC 5044 §7.1.1).
    PrivateData(u16),
    /// A version of DDP other than 1 (RFC 5041 §4.1).
    DdpVersion {
        /// What the header says.
        version: u8,
        /// Whether the segment says that it is tagged: each kind has an error of its own.
        tagged: bool,
    },
    /// A version of RDMAP other than 1 (RFC 5040 §4.1).
    RdmapVersion(u8),
}

impl fmt::Display for IwarpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, given } => {
                write!(f, "header of {needed} bytes cut to {given}")
            }
            Self::Key => f.write_str("no MPA request and no MPA reply"),
            Self::PrivateData(length) => write!(f, "{length} bytes of private data"),
            Self::DdpVersion { version, .. } => write!(f, "DDP version {version}"),
            Self::RdmapVersion(version) => write!(f, "RDMAP version {version}"),
        }
    }
}

impl core::error::Error for IwarpError {}
