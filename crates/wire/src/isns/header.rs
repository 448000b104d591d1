// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The message header (RFC 4171 §5.1).
//!
//! ```text
//!  byte  0        2         4            6       8           10
//!        version  function  PDU length   flags   transaction sequence
//! ```

use super::IsnsError;

/// Bytes of a header.
pub const HEADER_LEN: usize = 12;

/// Longest payload of one PDU: its length has 16 bits and is a multiple of four.
pub const PAYLOAD_LEN_MAX: usize = 65_532;

/// The one version there is.
const VERSION: u16 = 1;

/// What a message is for (RFC 4171 §4.1.3). A response has bit 15 set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u16);

impl Function {
    /// Device Attribute Registration Request.
    pub const REGISTER: Self = Self(0x0001);
    /// Device Attribute Query Request.
    pub const QUERY: Self = Self(0x0002);
    /// Deregister Device Request.
    pub const DEREGISTER: Self = Self(0x0004);
    /// Entity Status Inquiry (ESI), from a server.
    pub const INQUIRY: Self = Self(0x000d);

    /// The response to this request.
    #[must_use]
    pub const fn response(self) -> Self {
        Self(self.0 | 0x8000)
    }
}

/// The flags of a message (RFC 4171 §5.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// The sender is a client.
    pub const CLIENT: Self = Self(0x8000);
    /// The sender is a server.
    pub const SERVER: Self = Self(0x4000);
    /// What is registered replaces what there is.
    pub const REPLACE: Self = Self(0x1000);
    /// The last PDU of the message.
    pub const LAST: Self = Self(0x0800);
    /// The first PDU of the message.
    pub const FIRST: Self = Self(0x0400);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The header of one PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the message is for.
    pub function: Function,
    /// Bytes of payload, a multiple of four.
    pub length: u16,
    /// Flags.
    pub flags: Flags,
    /// Equal in a request and its response.
    pub transaction: u16,
    /// Place of this PDU in its message, from 0.
    pub sequence: u16,
}

impl Header {
    /// Takes a header apart.
    ///
    /// # Errors
    /// Another version, or a length that is no multiple of four.
    pub fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, IsnsError> {
        let [v1, v0, f1, f0, l1, l0, g1, g0, t1, t0, s1, s0] = bytes;
        let version = u16::from_be_bytes([v1, v0]);
        if version != VERSION {
            return Err(IsnsError::Version(version));
        }
        let length = u16::from_be_bytes([l1, l0]);
        if !length.is_multiple_of(4) {
            return Err(IsnsError::Alignment(length.into()));
        }
        Ok(Self {
            function: Function(u16::from_be_bytes([f1, f0])),
            length,
            flags: Flags(u16::from_be_bytes([g1, g0])),
            transaction: u16::from_be_bytes([t1, t0]),
            sequence: u16::from_be_bytes([s1, s0]),
        })
    }

    /// The bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let words =
            [VERSION, self.function.0, self.length, self.flags.0, self.transaction, self.sequence];
        let mut bytes = [0; HEADER_LEN];
        for (to, word) in bytes.chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout() {
        let header = Header {
            function: Function::REGISTER,
            length: 0x0104,
            flags: Flags::CLIENT.with(Flags::FIRST).with(Flags::LAST),
            transaction: 7,
            sequence: 0,
        };
        let bytes = [0, 1, 0, 1, 1, 4, 0x8c, 0, 0, 7, 0, 0];
        assert_eq!(header.emit(), bytes);
        assert_eq!(Header::parse(bytes), Ok(header));
        assert!(header.flags.has(Flags::LAST) && !header.flags.has(Flags::REPLACE));
        assert_eq!(Function::QUERY.response(), Function(0x8002));
    }

    #[test]
    fn what_is_refused() {
        let mut bytes = [0, 2, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0];
        assert_eq!(Header::parse(bytes), Err(IsnsError::Version(2)));
        bytes[1] = 1;
        bytes[5] = 6;
        assert_eq!(Header::parse(bytes), Err(IsnsError::Alignment(6)));
    }

    proptest! {
        #[test]
        fn parse_is_faithful(bytes in any::<[u8; HEADER_LEN]>()) {
            if let Ok(header) = Header::parse(bytes) {
                prop_assert_eq!(header.emit(), bytes);
            }
        }
    }
}
