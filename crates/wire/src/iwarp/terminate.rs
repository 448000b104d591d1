// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Terminate message: why a stream ends, and by which segment (RFC 5040 §4.8).
//!
//! ```text
//!  byte  0            1     2          3    4                   6
//!        layer, type  code  M D R ---  ---  DDP segment length  DDP header, Read Request
//! ```

use super::Ddp;
use super::IwarpError;
use super::READ_REQUEST_LEN;
use super::ReadRequest;
use super::UNTAGGED_LEN;
use super::field::Reader;
use alloc::vec::Vec;
use core::fmt;

/// Longest Terminate message.
pub const TERMINATE_LEN_MAX: usize = 4 + 2 + UNTAGGED_LEN + READ_REQUEST_LEN;

const SEGMENT_LENGTH: u8 = 0x80;
const DDP_HEADER: u8 = 0x40;
const RDMAP_HEADER: u8 = 0x20;

/// Which layer ends a stream, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// 0 RDMAP, 1 DDP, 2 MPA; 4 bits.
    pub layer: u8,
    /// Kind of error within the layer; 4 bits.
    pub kind: u8,
    /// The error.
    pub code: u8,
}

macro_rules! causes {
    ($($name:ident($layer:literal, $kind:literal, $code:literal) $text:literal;)*) => {
        impl Cause {
            $(
                #[doc = concat!($text, ".")]
                pub const $name: Self = Self { layer: $layer, kind: $kind, code: $code };
            )*

            /// What it says, if a standard assigns it.
            #[must_use]
            pub const fn meaning(self) -> Option<&'static str> {
                match (self.layer, self.kind, self.code) {
                    $(($layer, $kind, $code) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

// RFC 5040 §4.8, RFC 5041 §7.1, RFC 5044 §8, RFC 6581 §8.
causes! {
    RDMAP_LOCAL(0, 0, 0) "RDMAP: local catastrophic error";
    REMOTE_INVALID_STAG(0, 1, 0x00) "RDMAP: invalid STag";
    REMOTE_BOUNDS(0, 1, 0x01) "RDMAP: base or bounds violation";
    REMOTE_ACCESS(0, 1, 0x02) "RDMAP: access rights violation";
    REMOTE_STREAM(0, 1, 0x03) "RDMAP: STag of another stream";
    REMOTE_WRAP(0, 1, 0x04) "RDMAP: tagged offset wraps";
    REMOTE_NOT_INVALIDATED(0, 1, 0x09) "RDMAP: STag cannot be invalidated";
    REMOTE_UNSPECIFIED(0, 1, 0xff) "RDMAP: unspecified protection error";
    RDMAP_VERSION(0, 2, 0x05) "RDMAP: invalid version";
    UNEXPECTED_OPCODE(0, 2, 0x06) "RDMAP: unexpected opcode";
    CATASTROPHIC_STREAM(0, 2, 0x07) "RDMAP: catastrophic error, this stream";
    CATASTROPHIC_GLOBAL(0, 2, 0x08) "RDMAP: catastrophic error, all streams";
    NOT_INVALIDATED(0, 2, 0x09) "RDMAP: STag cannot be invalidated";
    OPERATION_UNSPECIFIED(0, 2, 0xff) "RDMAP: unspecified operation error";
    DDP_LOCAL(1, 0, 0x00) "DDP: local catastrophic error";
    TAGGED_INVALID_STAG(1, 1, 0x00) "DDP: invalid STag";
    TAGGED_BOUNDS(1, 1, 0x01) "DDP: base or bounds violation";
    TAGGED_STREAM(1, 1, 0x02) "DDP: STag of another stream";
    TAGGED_WRAP(1, 1, 0x03) "DDP: tagged offset wraps";
    TAGGED_VERSION(1, 1, 0x04) "DDP: invalid version of a tagged segment";
    UNTAGGED_QUEUE(1, 2, 0x01) "DDP: invalid queue number";
    UNTAGGED_NO_BUFFER(1, 2, 0x02) "DDP: no buffer for the message";
    UNTAGGED_MSN(1, 2, 0x03) "DDP: message number out of range";
    UNTAGGED_OFFSET(1, 2, 0x04) "DDP: invalid message offset";
    UNTAGGED_TOO_LONG(1, 2, 0x05) "DDP: message longer than its buffer";
    UNTAGGED_VERSION(1, 2, 0x06) "DDP: invalid version of an untagged segment";
    MPA_LOST(2, 0, 0x01) "MPA: connection closed, terminated or lost";
    MPA_CRC(2, 0, 0x02) "MPA: CRC error";
    MPA_MARKER(2, 0, 0x03) "MPA: marker and length disagree";
    MPA_START(2, 0, 0x04) "MPA: invalid request or reply";
    MPA_LOCAL(2, 0, 0x05) "MPA: local catastrophic error";
    MPA_IRD(2, 0, 0x06) "MPA: too few RDMA Reads at once";
    MPA_READY(2, 0, 0x07) "MPA: no matching ready-to-receive message";
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(text) => f.write_str(text),
            None => write!(f, "layer {}, type {}, code {:#04x}", self.layer, self.kind, self.code),
        }
    }
}

/// A Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// Why.
    pub cause: Cause,
    /// M: length of the DDP segment by which it came so.
    pub segment_length: Option<u16>,
    /// D: its header.
    pub header: Option<Ddp>,
    /// R: the Read Request, if it was one.
    pub read_request: Option<ReadRequest>,
}

impl Terminate {
    /// Takes the payload of a message apart; what stands behind it is ignored.
    ///
    /// # Errors
    /// Too few bytes, or a DDP header of another version.
    pub fn parse(payload: &[u8]) -> Result<Self, IwarpError> {
        let mut fields = Reader::of(payload, 4)?;
        let [kinds, code, flags, _] = fields.take();
        let mut rest = payload.get(4..).unwrap_or_default();
        let mut terminate = Self {
            cause: Cause { layer: kinds >> 4, kind: kinds & 0x0f, code },
            segment_length: None,
            header: None,
            read_request: None,
        };
        if flags & SEGMENT_LENGTH != 0 {
            terminate.segment_length = Some(Reader::of(rest, 2)?.u16());
            rest = rest.get(2..).unwrap_or_default();
        }
        if flags & DDP_HEADER != 0 {
            let header = Ddp::parse(rest)?;
            rest = rest.get(header.len()..).unwrap_or_default();
            terminate.header = Some(header);
        }
        if flags & RDMAP_HEADER != 0 {
            let mut fields = Reader::of(rest, READ_REQUEST_LEN)?;
            terminate.read_request = Some(ReadRequest::parse(&fields.take()));
        }
        Ok(terminate)
    }

    /// The payload of the message, at most [`TERMINATE_LEN_MAX`] bytes.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let Cause { layer, kind, code } = self.cause;
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.segment_length.is_some(), SEGMENT_LENGTH)
            | flag(self.header.is_some(), DDP_HEADER)
            | flag(self.read_request.is_some(), RDMAP_HEADER);
        let mut bytes = Vec::with_capacity(TERMINATE_LEN_MAX);
        bytes.extend_from_slice(&[layer << 4 | kind & 0x0f, code, flags, 0]);
        bytes.extend(self.segment_length.into_iter().flat_map(u16::to_be_bytes));
        match self.header {
            Some(Ddp::Tagged(header)) => bytes.extend_from_slice(&header.emit()),
            Some(Ddp::Untagged(header)) => bytes.extend_from_slice(&header.emit()),
            None => {}
        }
        bytes.extend(self.read_request.into_iter().flat_map(|request| request.emit()));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::Msn;
    use super::super::QueueNumber;
    use super::super::Stag;
    use super::super::Tagged;
    use super::super::TaggedOffset;
    use super::super::Untagged;
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    const BARE: Terminate = Terminate {
        cause: Cause::REMOTE_INVALID_STAG,
        segment_length: None,
        header: None,
        read_request: None,
    };

    #[test]
    fn without_headers_it_has_four_bytes() {
        assert_eq!(BARE.emit(), [1, 0, 0, 0]);
        assert_eq!(Terminate::parse(&[1, 0, 0, 0, 9, 9]), Ok(BARE));
        assert_eq!(
            Terminate::parse(&[1, 0, 0]),
            Err(IwarpError::Truncated { needed: 4, given: 3 })
        );
    }

    #[test]
    fn headers_stand_where_their_bits_say() {
        let header = Ddp::Tagged(Tagged {
            last: true,
            control: 0x40,
            stag: Stag(0x1122_3344),
            offset: TaggedOffset(0x1000),
        });
        let tagged = Terminate {
            cause: Cause::TAGGED_BOUNDS,
            segment_length: Some(0x13),
            header: Some(header),
            ..BARE
        };
        let bytes = [
            0x11, 0x01, 0xc0, 0, 0, 0x13, 0xc1, 0x40, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0, 0,
            0x10, 0,
        ];
        assert_eq!((tagged.emit().as_slice(), Terminate::parse(&bytes)), (&bytes[..], Ok(tagged)));
        for len in 0..bytes.len() {
            assert!(Terminate::parse(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_read_request_comes_last() {
        let header = Ddp::Untagged(Untagged {
            last: true,
            control: 0x41,
            invalidate: Stag(0),
            queue: QueueNumber(1),
            msn: Msn(7),
            offset: 0,
        });
        let request = ReadRequest::parse(&[7; READ_REQUEST_LEN]);
        let read = Terminate {
            segment_length: Some(46),
            header: Some(header),
            read_request: Some(request),
            ..BARE
        };
        let bytes = read.emit();
        assert_eq!((bytes.len(), bytes[2]), (TERMINATE_LEN_MAX, 0xe0));
        assert_eq!(Terminate::parse(&bytes), Ok(read));
        assert!(Terminate::parse(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn causes_have_a_meaning() {
        assert_eq!(Cause::MPA_CRC.to_string(), "MPA: CRC error");
        let nobody = Cause { layer: 3, kind: 1, code: 2 };
        assert_eq!(nobody.to_string(), "layer 3, type 1, code 0x02");
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_emitted(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(terminate) = Terminate::parse(&bytes) {
                prop_assert_eq!(Terminate::parse(&terminate.emit()), Ok(terminate));
            }
        }
    }
}
