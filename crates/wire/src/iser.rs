// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header that iSER puts before each PDU that travels as a Send (RFC 7145 §9).
//!
//! ```text
//!  byte  0          1             2    4           8             16         20
//!  PDU   1 W R --   ------------------ Write STag  Write Offset  Read STag  Read Offset
//!  Hello 2 ------   max, min      IRD  ------------------------------------------------
//!  reply 3 ---- REJ max, current  ORD  ------------------------------------------------
//! ```

use core::fmt;

use crate::iwarp::Stag;
use crate::iwarp::TaggedOffset;
use crate::iwarp::field::Reader;
use crate::iwarp::field::Writer;

/// Length of the header, bytes.
pub const ISER_LEN: usize = 28;

/// The one version there is, 1.0 in tenths (RFC 7145 §9.3).
pub const ISER_VERSION: u8 = 10;

const OPCODE_SHIFT: u32 = 4;
const CONTROL: u8 = 1;
const HELLO: u8 = 2;
const HELLO_REPLY: u8 = 3;
const WRITE_VALID: u8 = 0x08;
const READ_VALID: u8 = 0x04;
const REJECTED: u8 = 0x01;

/// Memory of the initiator that the target may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Its name.
    pub stag: Stag,
    /// The offset of its first byte.
    pub base: TaggedOffset,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the three of the standard
pub enum IserHeader {
    /// Before a PDU (RFC 7145 §9.2).
    Control {
        /// What the target may read: WSV, Write STag and Write Base Offset.
        write: Option<Advertised>,
        /// What the target may write to: RSV, Read STag and Read Base Offset.
        read: Option<Advertised>,
    },
    /// The first message of an initiator that wants to be answered (RFC 7145 §9.3).
    Hello {
        /// The newest version that it speaks.
        max_version: u8,
        /// The oldest one.
        min_version: u8,
        /// RDMA Reads at once that it serves.
        ird: u16,
    },
    /// The answer to it (RFC 7145 §9.4).
    HelloReply {
        /// The connection is refused.
        rejected: bool,
        /// The newest version that the target speaks.
        max_version: u8,
        /// The version in use.
        version: u8,
        /// RDMA Reads at once that the target will send.
        ord: u16,
    },
}

/// Why bytes are no header: a format error (RFC 7145 §10.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // nothing else can be wrong with one
pub enum IserError {
    /// The message ends before its header does.
    Truncated(usize),
    /// An opcode that the standard does not have.
    Opcode(u8),
}

impl IserHeader {
    /// Before a PDU without memory.
    pub const PLAIN: Self = Self::Control { write: None, read: None };

    /// Takes the first bytes of a message apart.
    ///
    /// # Errors
    /// A format error.
    pub fn parse(message: &[u8]) -> Result<Self, IserError> {
        let truncated = |_| IserError::Truncated(message.len());
        let mut fields = Reader::of(message, ISER_LEN).map_err(truncated)?;
        let (first, versions, depth) = (fields.u8(), fields.u8(), fields.u16());
        let mut memory =
            || Advertised { stag: Stag(fields.u32()), base: TaggedOffset(fields.u64()) };
        let (write, read) = (memory(), memory());
        let (newest, other) = (versions >> 4, versions & 0x0f);
        Ok(match first >> OPCODE_SHIFT {
            CONTROL => Self::Control {
                write: (first & WRITE_VALID != 0).then_some(write),
                read: (first & READ_VALID != 0).then_some(read),
            },
            HELLO => Self::Hello { max_version: newest, min_version: other, ird: depth },
            HELLO_REPLY => Self::HelloReply {
                rejected: first & REJECTED != 0,
                max_version: newest,
                version: other,
                ord: depth,
            },
            opcode => return Err(IserError::Opcode(opcode)),
        })
    }

    /// The bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; ISER_LEN] {
        let none = Advertised::default();
        match *self {
            Self::Control { write, read } => {
                let valid = |memory: Option<Advertised>, flag| memory.map_or(0, |_| flag);
                let flags = valid(write, WRITE_VALID) | valid(read, READ_VALID);
                let (write, read) = (write.unwrap_or(none), read.unwrap_or(none));
                emit([CONTROL << OPCODE_SHIFT | flags, 0], 0, write, read)
            }
            Self::Hello { max_version, min_version, ird } => {
                emit([HELLO << OPCODE_SHIFT, versions(max_version, min_version)], ird, none, none)
            }
            Self::HelloReply { rejected, max_version, version, ord } => {
                let first = HELLO_REPLY << OPCODE_SHIFT | if rejected { REJECTED } else { 0 };
                emit([first, versions(max_version, version)], ord, none, none)
            }
        }
    }
}

const fn versions(newest: u8, other: u8) -> u8 {
    newest << 4 | other & 0x0f
}

fn emit(front: [u8; 2], depth: u16, write: Advertised, read: Advertised) -> [u8; ISER_LEN] {
    Writer::new()
        .put(&front)
        .put(&depth.to_be_bytes())
        .put(&write.stag.0.to_be_bytes())
        .put(&write.base.0.to_be_bytes())
        .put(&read.stag.0.to_be_bytes())
        .put(&read.base.0.to_be_bytes())
        .done()
}

impl fmt::Display for IserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(length) => write!(f, "iSER message of {length} bytes"),
            Self::Opcode(opcode) => write!(f, "iSER opcode {opcode}"),
        }
    }
}

impl core::error::Error for IserError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WRITE: Advertised = Advertised { stag: Stag(0x0102_0304), base: TaggedOffset(0x1000) };
    const READ: Advertised =
        Advertised { stag: Stag(0x0a0b_0c0d), base: TaggedOffset(0x1122_3344_5566_7788) };

    fn bytes(front: [u8; 4], rest: [u8; 24]) -> [u8; ISER_LEN] {
        let mut bytes = [0; ISER_LEN];
        bytes[..4].copy_from_slice(&front);
        bytes[4..].copy_from_slice(&rest);
        bytes
    }

    /// Covers: ISP-02/S.
    #[test]
    fn a_header_before_a_pdu_names_memory() {
        let write = [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let both = [
            1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x10, 0, 10, 11, 12, 13, 0x11, 0x22, 0x33, 0x44, 0x55,
            0x66, 0x77, 0x88,
        ];
        for (header, vector) in [
            (IserHeader::PLAIN, bytes([0x10, 0, 0, 0], [0; 24])),
            (IserHeader::Control { write: Some(WRITE), read: None }, bytes([0x18, 0, 0, 0], write)),
            (
                IserHeader::Control { write: Some(WRITE), read: Some(READ) },
                bytes([0x1c, 0, 0, 0], both),
            ),
        ] {
            assert_eq!((header.emit(), IserHeader::parse(&vector)), (vector, Ok(header)));
        }
    }

    /// Covers: ISC-13/S, ISP-02/S.
    #[test]
    fn hello_and_its_answer_speak_version_10() {
        let (max_version, min_version, version) = (ISER_VERSION, ISER_VERSION, ISER_VERSION);
        for (header, front) in [
            (IserHeader::Hello { max_version, min_version, ird: 0x0102 }, [0x20, 0xaa, 1, 2]),
            (
                IserHeader::HelloReply { rejected: false, max_version, version, ord: 0x0304 },
                [0x30, 0xaa, 3, 4],
            ),
            (
                IserHeader::HelloReply { rejected: true, max_version, version, ord: 0 },
                [0x31, 0xaa, 0, 0],
            ),
        ] {
            let vector = bytes(front, [0; 24]);
            assert_eq!((header.emit(), IserHeader::parse(&vector)), (vector, Ok(header)));
        }
    }

    #[test]
    fn what_is_reserved_is_not_looked_at_and_the_rest_is_refused() {
        let told = IserHeader::parse(&bytes([0x13, 0xff, 0xff, 0xff], [0xff; 24]));
        assert_eq!(told, Ok(IserHeader::PLAIN));
        for opcode in [0, 4, 15] {
            let told = IserHeader::parse(&bytes([opcode << 4, 0, 0, 0], [0; 24]));
            assert_eq!(told, Err(IserError::Opcode(opcode)));
        }
        assert_eq!(IserHeader::parse(&[0x10; 27]), Err(IserError::Truncated(27)));
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_emitted(message in any::<[u8; ISER_LEN]>()) {
            if let Ok(header) = IserHeader::parse(&message) {
                prop_assert_eq!(IserHeader::parse(&header.emit()), Ok(header));
            }
        }
    }
}
