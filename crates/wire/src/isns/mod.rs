// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSNS messages (RFC 4171): what a target says to a name server, and what that answers.
//!
//! A message is a header of twelve bytes and a payload of attributes, each with tag, length and
//! value. What a server sends is hostile input: parsing is total, every length is checked.

mod attribute;
mod header;

pub use attribute::*;
pub use header::*;

use core::fmt;

/// The TCP port of name servers (RFC 4171 §2.8).
pub const PORT: u16 = 3205;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IsnsError {
    /// A version other than 1.
    Version(u16),
    /// A length that is no multiple of four.
    Alignment(u32),
    /// An attribute that goes beyond its message.
    Attribute {
        /// Bytes that it claims.
        length: u32,
        /// Bytes that there are.
        left: usize,
    },
    /// Bytes after the last attribute that are none.
    Trailing(usize),
    /// A response without a status.
    Status,
}

impl fmt::Display for IsnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "iSNS version {version}"),
            Self::Alignment(length) => write!(f, "a length of {length} bytes, no multiple of four"),
            Self::Attribute { length, left } => {
                write!(f, "an attribute of {length} bytes with {left} left")
            }
            Self::Trailing(left) => write!(f, "{left} bytes that are no attribute"),
            Self::Status => f.write_str("a response without a status"),
        }
    }
}

impl core::error::Error for IsnsError {}
