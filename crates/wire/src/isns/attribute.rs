// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of messages (RFC 4171 §5.1.4, §6): tag, length, value.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{IsnsError, PAYLOAD_LEN_MAX};

/// What an attribute is (RFC 4171 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

impl Tag {
    /// Between what a message is about and what it says of that.
    pub const DELIMITER: Self = Self(0);
    /// Entity Identifier.
    pub const ENTITY: Self = Self(1);
    /// Entity Protocol: 2 is iSCSI.
    pub const PROTOCOL: Self = Self(2);
    /// Timestamp, seconds, 8 bytes.
    pub const TIMESTAMP: Self = Self(4);
    /// Registration Period, seconds.
    pub const PERIOD: Self = Self(6);
    /// Portal IP Address, 16 bytes.
    pub const PORTAL_ADDRESS: Self = Self(16);
    /// Portal TCP/UDP Port.
    pub const PORTAL_PORT: Self = Self(17);
    /// ESI Interval, seconds.
    pub const INQUIRY_INTERVAL: Self = Self(19);
    /// ESI Port.
    pub const INQUIRY_PORT: Self = Self(20);
    /// iSCSI Name.
    pub const NAME: Self = Self(32);
    /// iSCSI Node Type: bit 0 is a target.
    pub const NODE_TYPE: Self = Self(33);
    /// iSCSI Node Alias.
    pub const ALIAS: Self = Self(34);
    /// Portal Group iSCSI Name.
    pub const GROUP_NAME: Self = Self(48);
    /// Portal Group Portal IP Address.
    pub const GROUP_ADDRESS: Self = Self(49);
    /// Portal Group Portal TCP/UDP Port.
    pub const GROUP_PORT: Self = Self(50);
    /// Portal Group Tag.
    pub const GROUP_TAG: Self = Self(51);
}

/// Entity Protocol: iSCSI (RFC 4171 §6.2.2).
pub const PROTOCOL_ISCSI: u32 = 2;

/// iSCSI Node Type: a target (RFC 4171 §6.4.2).
pub const NODE_TYPE_TARGET: u32 = 1;

/// Bit 15 of a port, as RFC 4171 §6.3.2 counts them: it is one of UDP.
const UDP: u32 = 0x0001_0000;

/// What a response says of its request (RFC 4171 §5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// It was done.
    pub const SUCCESS: Self = Self(0);
    /// The server does not send ESI messages.
    pub const NO_INQUIRIES: Self = Self(21);
    /// There is no such entry.
    pub const NO_SUCH_ENTRY: Self = Self(9);
    /// The server does not know the source any more.
    pub const SOURCE_UNKNOWN: Self = Self(4);
}

/// One attribute as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// What it is.
    pub tag: Tag,
    /// Its value, with padding.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// A value of four bytes.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.value.try_into().ok()?))
    }

    /// A text, up to its null. None if it has none or is no UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        let end = self.value.iter().position(|byte| *byte == 0)?;
        core::str::from_utf8(self.value.get(..end)?).ok()
    }
}

/// The attributes of a payload, in order. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Of a payload, or of what follows the status of a response.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    fn take(&mut self) -> Result<Attribute<'a>, IsnsError> {
        let Some(([t3, t2, t1, t0, l3, l2, l1, l0], rest)) = self.0.split_first_chunk() else {
            return Err(IsnsError::Trailing(self.0.len()));
        };
        let tag = Tag(u32::from_be_bytes([*t3, *t2, *t1, *t0]));
        let length = u32::from_be_bytes([*l3, *l2, *l1, *l0]);
        if !length.is_multiple_of(4) {
            return Err(IsnsError::Alignment(length));
        }
        let left = rest.len();
        let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (value, rest) = split.ok_or(IsnsError::Attribute { length, left })?;
        self.0 = rest;
        Ok(Attribute { tag, value })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, IsnsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.0 = &[];
        }
        Some(taken)
    }
}

/// The status of a response, and its attributes.
///
/// # Errors
/// There are not even four bytes.
pub fn response(payload: &[u8]) -> Result<(Status, Attributes<'_>), IsnsError> {
    let (status, rest) = payload.split_first_chunk().ok_or(IsnsError::Status)?;
    Ok((Status(u32::from_be_bytes(*status)), Attributes::new(rest)))
}

/// Writes a payload.
#[derive(Clone, Debug, Default)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// With nothing in it.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The bytes so far.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it still is a payload of one PDU.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.0.len() <= PAYLOAD_LEN_MAX
    }

    /// Appends an attribute without value: the delimiter, or one that is asked for.
    pub fn push_empty(&mut self, tag: Tag) {
        self.push(tag, &[]);
    }

    /// Appends a number.
    pub fn push_number(&mut self, tag: Tag, value: u32) {
        self.push(tag, &value.to_be_bytes());
    }

    /// Appends a text with its null.
    pub fn push_text(&mut self, tag: Tag, text: &str) {
        let mut value = Vec::with_capacity(text.len() + 4);
        value.extend_from_slice(text.as_bytes());
        value.push(0);
        self.push(tag, &value);
    }

    /// Appends an address: IPv4 as it is mapped into IPv6 (RFC 4171 §6.3.1).
    pub fn push_address(&mut self, tag: Tag, address: IpAddr) {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        self.push(tag, &address.octets());
    }

    /// Appends a TCP port: bit 16 would say UDP (RFC 4171 §6.3.2).
    pub fn push_port(&mut self, tag: Tag, port: u16) {
        self.push_number(tag, port.into());
    }

    /// Appends a UDP port (RFC 4171 §6.3.5).
    pub fn push_udp_port(&mut self, tag: Tag, port: u16) {
        self.push_number(tag, UDP | u32::from(port));
    }

    fn push(&mut self, tag: Tag, value: &[u8]) {
        let padded = value.len().next_multiple_of(4);
        let length = u32::try_from(padded).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&tag.0.to_be_bytes());
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len() + padded - value.len(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    #[test]
    fn layout() {
        let mut payload = Payload::new();
        payload.push_text(Tag::NAME, "iqn.a");
        payload.push_number(Tag::NODE_TYPE, NODE_TYPE_TARGET);
        payload.push_empty(Tag::DELIMITER);
        payload.push_address(Tag::PORTAL_ADDRESS, Ipv4Addr::new(192, 0, 2, 1).into());
        payload.push_port(Tag::PORTAL_PORT, 3260);
        payload.push_udp_port(Tag::INQUIRY_PORT, 3206);
        let expected = [
            &[0, 0, 0, 32, 0, 0, 0, 8][..],
            b"iqn.a\0\0\0",
            &[0, 0, 0, 33, 0, 0, 0, 4, 0, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1],
            &[0, 0, 0, 17, 0, 0, 0, 4, 0, 0, 12, 188],
            &[0, 0, 0, 20, 0, 0, 0, 4, 0, 1, 12, 134],
        ];
        assert_eq!(payload.as_bytes(), expected.concat());
        let found: Vec<_> = Attributes::new(payload.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(found[0].text(), Some("iqn.a"));
        assert_eq!((found[1].number(), found[4].number()), (Some(1), Some(3260)));
        assert_eq!((found[2].tag, found[2].value), (Tag::DELIMITER, &[][..]));
        let mut six = Payload::new();
        six.push_address(Tag::PORTAL_ADDRESS, Ipv6Addr::LOCALHOST.into());
        assert_eq!(six.as_bytes()[8..], Ipv6Addr::LOCALHOST.octets());
    }

    #[test]
    fn lengths_that_lie() {
        let attribute = |length: u32, value: &[u8]| {
            let mut bytes = [0, 0, 0, 32].to_vec();
            bytes.extend(length.to_be_bytes());
            bytes.extend_from_slice(value);
            Attributes::new(&bytes).collect::<Result<Vec<_>, _>>().map(|found| found.len())
        };
        assert_eq!(attribute(4, b"abc\0"), Ok(1));
        assert_eq!(attribute(3, b"abc\0"), Err(IsnsError::Alignment(3)));
        assert_eq!(attribute(8, b"abc\0"), Err(IsnsError::Attribute { length: 8, left: 4 }));
        let all = u32::MAX - 3;
        assert_eq!(attribute(all, b"abc\0"), Err(IsnsError::Attribute { length: all, left: 4 }));
        assert_eq!(attribute(4, b"abc\0x"), Err(IsnsError::Trailing(1)));
        assert_eq!(response(&[0, 0, 0]).unwrap_err(), IsnsError::Status);
        assert_eq!(response(&[0, 0, 0, 9]).unwrap().0, Status::NO_SUCH_ENTRY);
    }

    #[test]
    fn text_ends_at_its_null() {
        let text = |value| Attribute { tag: Tag::NAME, value }.text();
        assert_eq!(text(b"ab\0\0"), Some("ab"));
        assert_eq!(text(b"ab\0c"), Some("ab"));
        assert_eq!(text(b"abcd"), None);
        assert_eq!(text(b"\xff\0\0\0"), None);
        assert_eq!(text(b""), None);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_nothing_is_lost(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut again = Payload::new();
            let mut whole = true;
            for attribute in Attributes::new(&bytes) {
                match attribute {
                    Ok(Attribute { tag, value }) => again.push(tag, value),
                    Err(_) => whole = false,
                }
            }
            prop_assert!(bytes.starts_with(again.as_bytes()));
            prop_assert_eq!(whole, again.as_bytes().len() == bytes.len());
        }
    }
}
