// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DDP headers (RFC 5041 §4).
//!
//! ```text
//!  byte  0                1      2        6        10    14    18
//!        1 L ---- version RDMAP  STag     TO             payload
//!        0 L ---- version RDMAP  for ULP  QN       MSN   MO    payload
//! ```

use super::IwarpError;
use super::Msn;
use super::QueueNumber;
use super::Stag;
use super::TaggedOffset;
use super::field::Reader;
use super::field::Writer;

/// Bytes of the header of a tagged segment.
pub const TAGGED_LEN: usize = 14;

/// Bytes of the header of an untagged segment.
pub const UNTAGGED_LEN: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION: u8 = 0x03;
/// The one version there is.
const VERSION_1: u8 = 0x01;

/// The header of a segment that says where its payload goes (RFC 5041 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// RsvdULP: the control byte of RDMAP.
    pub control: u8,
    /// The buffer.
    pub stag: Stag,
    /// The place in it.
    pub offset: TaggedOffset,
}

impl Tagged {
    /// The bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; TAGGED_LEN] {
        Writer::new()
            .put(&[first_byte(TAGGED, self.last), self.control])
            .put(&self.stag.0.to_be_bytes())
            .put(&self.offset.0.to_be_bytes())
            .done()
    }
}

/// The header of a segment for the next buffer of a queue (RFC 5041 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// First byte of RsvdULP: the control byte of RDMAP.
    pub control: u8,
    /// The other four: the STag that a Send with Invalidate ends, else zero (RFC 5040 §4.2).
    pub invalidate: Stag,
    /// The queue.
    pub queue: QueueNumber,
    /// Which message of the queue.
    pub msn: Msn,
    /// MO: where in the message the payload begins.
    pub offset: u32,
}

impl Untagged {
    /// The bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; UNTAGGED_LEN] {
        Writer::new()
            .put(&[first_byte(0, self.last), self.control])
            .put(&self.invalidate.0.to_be_bytes())
            .put(&self.queue.0.to_be_bytes())
            .put(&self.msn.0.to_be_bytes())
            .put(&self.offset.to_be_bytes())
            .done()
    }
}

fn first_byte(tagged: u8, last: bool) -> u8 {
    tagged | if last { LAST } else { 0 } | VERSION_1
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // one bit says which
pub enum Ddp {
    /// T is 1.
    Tagged(Tagged),
    /// T is 0.
    Untagged(Untagged),
}

impl Ddp {
    /// Takes the header at the front of a segment apart.
    ///
    /// # Errors
    /// Another version, or too few bytes. The version comes first: nobody knows how long the
    /// headers of other versions are.
    pub fn parse(segment: &[u8]) -> Result<Self, IwarpError> {
        let first = Reader::of(segment, 1)?.u8();
        let (tagged, last) = (first & TAGGED != 0, first & LAST != 0);
        if first & VERSION != VERSION_1 {
            return Err(IwarpError::DdpVersion { version: first & VERSION, tagged });
        }
        let mut fields = Reader::of(segment, Self::len_of(first))?;
        let [_, control] = fields.take();
        if tagged {
            let (stag, offset) = (Stag(fields.u32()), TaggedOffset(fields.u64()));
            return Ok(Self::Tagged(Tagged { last, control, stag, offset }));
        }
        Ok(Self::Untagged(Untagged {
            last,
            control,
            invalidate: Stag(fields.u32()),
            queue: QueueNumber(fields.u32()),
            msn: Msn(fields.u32()),
            offset: fields.u32(),
        }))
    }

    /// Bytes of the header.
    #[must_use]
    #[expect(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// Bytes of the header that begins with this byte, which has the T bit.
    #[must_use]
    pub const fn len_of(first: u8) -> usize {
        if first & TAGGED != 0 { TAGGED_LEN } else { UNTAGGED_LEN }
    }

    /// The control byte of RDMAP.
    #[must_use]
    pub const fn control(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.control,
            Self::Untagged(header) => header.control,
        }
    }

    /// Whether this is the last segment of its message.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        match self {
            Self::Tagged(header) => header.last,
            Self::Untagged(header) => header.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Covers: DDP-01/S, DDP-03/S.
    #[test]
    fn a_tagged_header_has_14_bytes() {
        let header = Tagged {
            last: true,
            control: 0x40,
            stag: Stag(0x1122_3344),
            offset: TaggedOffset(0x0102_0304_0506_0708),
        };
        let bytes = [0xc1, 0x40, 0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(header.emit(), bytes);
        assert_eq!(Ddp::parse(&bytes), Ok(Ddp::Tagged(header)));
        assert_eq!(Tagged { last: false, ..header }.emit()[0], 0x81);
    }

    /// Covers: DDP-04/S.
    #[test]
    fn an_untagged_header_has_18_bytes() {
        let header = Untagged {
            last: true,
            control: 0x44,
            invalidate: Stag(0x0102_0304),
            queue: QueueNumber(1),
            msn: Msn(0x0a0b_0c0d),
            offset: 0x1122_3344,
        };
        let bytes =
            [0x41, 0x44, 1, 2, 3, 4, 0, 0, 0, 1, 0x0a, 0x0b, 0x0c, 0x0d, 0x11, 0x22, 0x33, 0x44];
        assert_eq!(header.emit(), bytes);
        assert_eq!(Ddp::parse(&bytes), Ok(Ddp::Untagged(header)));
        assert_eq!(Untagged { last: false, ..header }.emit()[0], 0x01);
    }

    #[test]
    fn what_is_no_header() {
        let truncated = |needed, given| Err(IwarpError::Truncated { needed, given });
        assert_eq!(Ddp::parse(&[]), truncated(1, 0));
        assert_eq!(Ddp::parse(&[0xc1; 13]), truncated(14, 13));
        assert_eq!(Ddp::parse(&[0x41; 17]), truncated(18, 17));
        let version = |version, tagged| Err(IwarpError::DdpVersion { version, tagged });
        assert_eq!(Ddp::parse(&[0xc0; 14]), version(0, true));
        assert_eq!(Ddp::parse(&[0x42; 18]), version(2, false));
    }

    /// Covers: DDP-16/S.
    #[test]
    fn reserved_bits_are_ignored() {
        let mut bytes = [0; UNTAGGED_LEN];
        bytes[0] = 0x7d;
        assert!(Ddp::parse(&bytes).is_ok_and(|header| header.is_last() && header.len() == 18));
        bytes[0] = 0xbd;
        assert!(Ddp::parse(&bytes).is_ok_and(|header| !header.is_last() && header.len() == 14));
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_emitted(mut bytes in any::<[u8; UNTAGGED_LEN]>()) {
            bytes[0] = bytes[0] & 0xc0 | 1;
            let header = Ddp::parse(&bytes).expect("version 1 and long enough");
            let emitted = match header {
                Ddp::Tagged(header) => header.emit().to_vec(),
                Ddp::Untagged(header) => header.emit().to_vec(),
            };
            prop_assert_eq!(emitted.as_slice(), &bytes[..header.len()]);
        }
    }
}
