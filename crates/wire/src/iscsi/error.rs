// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with a header by itself, whatever the state of the session.

use core::fmt;

/// Why a header is no legal PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the header does. Lengths in bytes.
    Truncated {
        /// What the BHS, or BHS and AHS, take.
        needed: usize,
        /// What was there.
        given: usize,
    },
    /// The opcode is none that this side receives (RFC 7143 §11.2.1.2).
    UnknownOpcode(u8),
    /// A code that RFC 7143 reserves stands in a field that has a meaning (§11).
    ReservedValue {
        /// The field, as the RFC names it.
        field: &'static str,
        /// What stands in it.
        value: u32,
    },
    /// Two fields contradict each other: a format error (RFC 7143 §7.7).
    Inconsistent {
        /// The contradiction.
        what: &'static str,
    },
}

impl ParseError {
    /// The reason of the Reject that a target in full feature phase answers with
    /// (RFC 7143 §11.17.1): 0x05 "command not supported" for an opcode, 0x09 "invalid PDU field"
    /// for a reserved code, 0x04 "protocol error" else.
    pub const fn reject_reason(&self) -> u8 {
        match self {
            Self::UnknownOpcode(_) => 0x05,
            Self::ReservedValue { .. } => 0x09,
            Self::Truncated { .. } | Self::Inconsistent { .. } => 0x04,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, given } => {
                write!(f, "header of {needed} bytes cut to {given}")
            }
            Self::UnknownOpcode(opcode) => write!(f, "unknown opcode 0x{opcode:02x}"),
            Self::ReservedValue { field, value } => {
                write!(f, "reserved value 0x{value:x} in {field}")
            }
            Self::Inconsistent { what } => f.write_str(what),
        }
    }
}

impl core::error::Error for ParseError {}
