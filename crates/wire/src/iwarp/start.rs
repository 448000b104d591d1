// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames that begin an MPA connection (RFC 5044 §7.1.1, RFC 6581 §4).
//!
//! ```text
//!  byte  0                 16           17        18                    20
//!        key               M C R S ---- revision  private data length   private data
//! ```

use super::IwarpError;
use super::field::Reader;
use super::field::Writer;

/// Bytes of a frame without its private data.
pub const START_LEN: usize = 20;

/// Longest private data (RFC 5044 §7.1.1).
pub const PRIVATE_DATA_LEN_MAX: usize = 512;

/// Bytes in front of the private data of an enhanced frame, which count as private data
/// (RFC 6581 §4).
pub const ENHANCED_LEN: usize = 4;

/// A depth that says that it is not negotiated (RFC 6581 §9).
pub const DEPTH_UNSAID: u16 = 0x3fff;

const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Who sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // RFC 5044 has two keys
pub enum StartKind {
    /// The initiator.
    Request,
    /// The responder.
    Reply,
}

/// A request or reply frame (RFC 5044 §7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which of them.
    pub kind: StartKind,
    /// M: who sends this wants markers in what it receives.
    pub markers: bool,
    /// C: who sends this wants CRCs.
    pub crc: bool,
    /// R: the responder rejects.
    pub reject: bool,
    /// S: private data begins with [`Enhanced`], from revision 2 on.
    pub enhanced: bool,
    /// Revision of MPA.
    pub revision: u8,
    /// Bytes of private data behind the frame, at most [`PRIVATE_DATA_LEN_MAX`].
    pub private_data_length: u16,
}

impl Start {
    /// Takes a frame apart. Any revision is taken; S counts from revision 2 on and is reserved
    /// before.
    ///
    /// # Errors
    /// Another key, or too much private data.
    pub fn parse(bytes: &[u8; START_LEN]) -> Result<Self, IwarpError> {
        let mut fields = Reader::of(bytes, START_LEN)?;
        let kind = match &fields.take::<16>() {
            REQUEST => StartKind::Request,
            REPLY => StartKind::Reply,
            _ => return Err(IwarpError::Key),
        };
        let (flags, revision, private_data_length) = (fields.u8(), fields.u8(), fields.u16());
        if usize::from(private_data_length) > PRIVATE_DATA_LEN_MAX {
            return Err(IwarpError::PrivateData(private_data_length));
        }
        Ok(Self {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0,
            enhanced: flags & ENHANCED != 0 && revision >= 2,
            revision,
            private_data_length,
        })
    }

    /// The bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; START_LEN] {
        let key = match self.kind {
            StartKind::Request => REQUEST,
            StartKind::Reply => REPLY,
        };
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.enhanced, ENHANCED);
        Writer::new()
            .put(key)
            .put(&[flags, self.revision])
            .put(&self.private_data_length.to_be_bytes())
            .done()
    }
}

/// The messages by which the initiator of a peer-to-peer connection may say that it is ready, each
/// without payload (RFC 6581 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyTypes {
    /// B: a Send.
    pub send: bool,
    /// C: an RDMA Write.
    pub write: bool,
    /// D: an RDMA Read.
    pub read: bool,
}

/// What stands in front of the private data of an enhanced frame (RFC 6581 §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// A: the initiator sends a message of one of `ready` before the responder sends.
    pub peer_to_peer: bool,
    /// What the initiator offers, or the responder chose.
    pub ready: ReadyTypes,
    /// RDMA Reads that the sender serves at once, 14 bits.
    pub ird: u16,
    /// RDMA Reads that the sender wants to have under way at once, 14 bits.
    pub ord: u16,
}

impl Enhanced {
    /// Takes the four bytes apart: each value means something.
    #[must_use]
    pub const fn parse([a, b, c, d]: [u8; ENHANCED_LEN]) -> Self {
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Self {
            peer_to_peer: first & 0x8000 != 0,
            ready: ReadyTypes {
                send: first & 0x4000 != 0,
                write: second & 0x8000 != 0,
                read: second & 0x4000 != 0,
            },
            ird: first & DEPTH_UNSAID,
            ord: second & DEPTH_UNSAID,
        }
    }

    /// The bytes. Depths that 14 bits do not hold are not negotiated.
    #[must_use]
    pub fn emit(&self) -> [u8; ENHANCED_LEN] {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let first = flag(self.peer_to_peer, 0x8000)
            | flag(self.ready.send, 0x4000)
            | self.ird.min(DEPTH_UNSAID);
        let second = flag(self.ready.write, 0x8000)
            | flag(self.ready.read, 0x4000)
            | self.ord.min(DEPTH_UNSAID);
        Writer::new().put(&first.to_be_bytes()).put(&second.to_be_bytes()).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Start = Start {
        kind: StartKind::Request,
        markers: false,
        crc: true,
        reject: false,
        enhanced: false,
        revision: 1,
        private_data_length: 0,
    };

    fn bytes(key: &[u8; 16], rest: [u8; 4]) -> [u8; START_LEN] {
        Writer::new().put(key).put(&rest).done()
    }

    /// Covers: MPA-16/S.
    #[test]
    fn frames_have_a_key_flags_a_revision_and_a_length() {
        let request = bytes(b"MPA ID Req Frame", [0x40, 1, 0, 0]);
        assert_eq!((PLAIN.emit(), Start::parse(&request)), (request, Ok(PLAIN)));
        let reply = bytes(b"MPA ID Rep Frame", [0xf0, 2, 2, 0]);
        let full = Start {
            kind: StartKind::Reply,
            markers: true,
            reject: true,
            enhanced: true,
            revision: 2,
            private_data_length: 512,
            ..PLAIN
        };
        assert_eq!((full.emit(), Start::parse(&reply)), (reply, Ok(full)));
        assert_eq!(
            Start::parse(&bytes(b"MPA ID Req frame", [0x40, 1, 0, 0])),
            Err(IwarpError::Key)
        );
    }

    /// Covers: MPA-17/S.
    #[test]
    fn private_data_has_512_bytes_at_most() {
        let long = bytes(b"MPA ID Req Frame", [0x40, 1, 2, 1]);
        assert_eq!(Start::parse(&long), Err(IwarpError::PrivateData(513)));
    }

    /// Covers: MPA-18/S.
    #[test]
    fn reserved_flags_are_zero_and_ignored() {
        let odd = bytes(b"MPA ID Req Frame", [0x5f, 1, 0, 0]);
        assert_eq!(Start::parse(&odd), Ok(PLAIN), "S is reserved in revision 1");
        assert_eq!(PLAIN.emit()[16], 0x40);
    }

    #[test]
    fn enhanced_frames_begin_with_depths() {
        let plain = Enhanced { ird: 32, ord: 32, ..Enhanced::default() };
        assert_eq!(plain.emit(), [0x00, 0x20, 0x00, 0x20]);
        let ready = ReadyTypes { send: false, write: true, read: true };
        let peer = Enhanced { peer_to_peer: true, ready, ird: 16, ord: 16 };
        assert_eq!(peer.emit(), [0x80, 0x10, 0xc0, 0x10]);
        assert_eq!(Enhanced::parse([0x80, 0x10, 0xc0, 0x10]), peer);
        let beyond = Enhanced { ird: 0x4000, ord: u16::MAX, ..Enhanced::default() };
        assert_eq!(beyond.emit(), [0x3f, 0xff, 0x3f, 0xff]);
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_emitted(
            key in prop_oneof![Just(*REQUEST), Just(*REPLY)],
            rest in any::<[u8; 4]>(),
        ) {
            if let Ok(start) = Start::parse(&bytes(&key, rest)) {
                prop_assert_eq!(Start::parse(&start.emit()), Ok(start));
            }
            prop_assert_eq!(Enhanced::parse(rest).emit(), rest);
        }
    }
}
