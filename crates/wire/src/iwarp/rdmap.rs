// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What RDMAP puts into DDP's headers and messages (RFC 5040 §4).

use super::IwarpError;
use super::QueueNumber;
use super::Stag;
use super::TaggedOffset;
use super::field::Reader;
use super::field::Writer;

/// The queue of Sends (RFC 5040 §4.2).
pub const SEND_QUEUE: QueueNumber = QueueNumber(0);

/// The queue of RDMA Read Requests.
pub const READ_QUEUE: QueueNumber = QueueNumber(1);

/// The queue of Terminates.
pub const TERMINATE_QUEUE: QueueNumber = QueueNumber(2);

/// Bytes of an RDMA Read Request behind the DDP header.
pub const READ_REQUEST_LEN: usize = 28;

const VERSION_SHIFT: u32 = 6;
/// The one version there is.
const VERSION: u8 = 1;

/// What a message is (RFC 5040 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // four bits; those without a name are in Unknown
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInvalidate,
    /// Send with Solicited Event.
    SendSolicited,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    /// Terminate.
    Terminate,
    /// One that RFC 5040 does not assign, 8 to 15.
    Unknown(u8),
}

impl Opcode {
    /// Takes the control byte apart: version, reserved bits, opcode (RFC 5040 §4.1).
    ///
    /// # Errors
    /// Another version.
    pub const fn parse(control: u8) -> Result<Self, IwarpError> {
        let version = control >> VERSION_SHIFT;
        if version != VERSION {
            return Err(IwarpError::RdmapVersion(version));
        }
        Ok(match control & 0x0f {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            other => Self::Unknown(other),
        })
    }

    /// The control byte.
    #[must_use]
    pub const fn control(self) -> u8 {
        let code = match self {
            Self::Write => 0,
            Self::ReadRequest => 1,
            Self::ReadResponse => 2,
            Self::Send => 3,
            Self::SendInvalidate => 4,
            Self::SendSolicited => 5,
            Self::SendSolicitedInvalidate => 6,
            Self::Terminate => 7,
            Self::Unknown(code) => code & 0x0f,
        };
        VERSION << VERSION_SHIFT | code
    }

    /// The queue of its messages; None: they are tagged, or nobody knows (RFC 5040 §4.3).
    #[must_use]
    pub const fn queue(self) -> Option<QueueNumber> {
        match self {
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate => Some(SEND_QUEUE),
            Self::ReadRequest => Some(READ_QUEUE),
            Self::Terminate => Some(TERMINATE_QUEUE),
            Self::Write | Self::ReadResponse | Self::Unknown(_) => None,
        }
    }

    /// Whether the message ends an STag of who receives it.
    #[must_use]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// Whether who receives it is to be woken.
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate)
    }
}

/// The header of an RDMA Read Request, which is all of its message (RFC 5040 §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where the data goes: a buffer of who asks.
    pub sink_stag: Stag,
    /// The place in it.
    pub sink_offset: TaggedOffset,
    /// Bytes that are asked for.
    pub length: u32,
    /// Where the data comes from: a buffer of who is asked.
    pub source_stag: Stag,
    /// The place in it.
    pub source_offset: TaggedOffset,
}

impl ReadRequest {
    /// Takes the header apart: each value means something to somebody.
    #[must_use]
    pub fn parse(bytes: &[u8; READ_REQUEST_LEN]) -> Self {
        let mut fields = Reader::of(bytes, READ_REQUEST_LEN).expect("an array has its length");
        Self {
            sink_stag: Stag(fields.u32()),
            sink_offset: TaggedOffset(fields.u64()),
            length: fields.u32(),
            source_stag: Stag(fields.u32()),
            source_offset: TaggedOffset(fields.u64()),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; READ_REQUEST_LEN] {
        Writer::new()
            .put(&self.sink_stag.0.to_be_bytes())
            .put(&self.sink_offset.0.to_be_bytes())
            .put(&self.length.to_be_bytes())
            .put(&self.source_stag.0.to_be_bytes())
            .put(&self.source_offset.0.to_be_bytes())
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Opcode; 8] = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        Opcode::Send,
        Opcode::SendInvalidate,
        Opcode::SendSolicited,
        Opcode::SendSolicitedInvalidate,
        Opcode::Terminate,
    ];

    /// Covers: RDM-01/S.
    #[test]
    fn the_control_byte_has_version_1_and_an_opcode() {
        for (control, opcode) in (0x40..).zip(ALL) {
            assert_eq!(opcode.control(), control);
            assert_eq!(Opcode::parse(control), Ok(opcode));
            assert_eq!(Opcode::parse(control | 0x30), Ok(opcode), "reserved bits");
        }
        assert_eq!(Opcode::parse(0x4f), Ok(Opcode::Unknown(15)));
        assert_eq!(Opcode::parse(0x03), Err(IwarpError::RdmapVersion(0)));
        assert_eq!(Opcode::parse(0x83), Err(IwarpError::RdmapVersion(2)));
    }

    #[test]
    fn each_opcode_has_its_queue() {
        let queues = ALL.map(|opcode| opcode.queue().map(|queue| queue.0));
        let send = Some(0);
        assert_eq!(queues, [None, Some(1), None, send, send, send, send, Some(2)]);
        let of = |is: fn(Opcode) -> bool| ALL.map(|opcode| u8::from(is(opcode)));
        assert_eq!(of(Opcode::invalidates), [0, 0, 0, 0, 1, 0, 1, 0]);
        assert_eq!(of(Opcode::is_solicited), [0, 0, 0, 0, 0, 1, 1, 0]);
    }

    /// Covers: RDM-06/S.
    #[test]
    fn a_read_request_has_28_bytes() {
        let request = ReadRequest {
            sink_stag: Stag(0xaabb_ccdd),
            sink_offset: TaggedOffset(0x2000),
            length: 65536,
            source_stag: Stag(0x1122_3344),
            source_offset: TaggedOffset(0x0102_0304_0506_0708),
        };
        let bytes = [
            0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 1, 0, 0, 0x11, 0x22, 0x33, 0x44,
            1, 2, 3, 4, 5, 6, 7, 8,
        ];
        assert_eq!((request.emit(), ReadRequest::parse(&bytes)), (bytes, request));
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_emitted(
            bytes in any::<[u8; READ_REQUEST_LEN]>(),
            control in any::<u8>(),
        ) {
            prop_assert_eq!(ReadRequest::parse(&bytes).emit(), bytes);
            if let Ok(opcode) = Opcode::parse(control) {
                prop_assert_eq!(opcode.control(), control & !0x30);
            }
        }
    }
}
