// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What both sides of a start have in common (RFC 5044 §7.1, RFC 6581 §4).

use super::Checks;
use super::Depths;
use super::Framing;
use super::ReadyType;
use crate::limits::USER_DATA_LEN_MAX;
use crate::violation::Violation;
use alloc::vec::Vec;
use wire::iwarp::ENHANCED_LEN;
use wire::iwarp::Enhanced;
use wire::iwarp::Markers;
use wire::iwarp::ReadyTypes;
use wire::iwarp::START_LEN;
use wire::iwarp::Start;
use wire::iwarp::StartKind;

/// What one side wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Whether it asks for CRCs.
    pub checks: Checks,
    /// Whether it asks for markers in what it receives.
    pub markers: Markers,
    /// RDMA Reads at once.
    pub depths: Depths,
    /// Of an initiator: the connection is peer-to-peer, and it can begin with one of these.
    pub ready: Option<ReadyTypes>,
    /// For the peer's upper layer.
    pub private_data: PrivateData,
}

/// What one upper layer tells the other in a request or reply: no more than fits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateData(Vec<u8>);

impl TryFrom<Vec<u8>> for PrivateData {
    type Error = Vec<u8>;

    /// Gives back what is longer than [`USER_DATA_LEN_MAX`].
    fn try_from(bytes: Vec<u8>) -> Result<Self, Self::Error> {
        if bytes.len() <= USER_DATA_LEN_MAX { Ok(Self(bytes)) } else { Err(bytes) }
    }
}

/// Who asked for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a connection has two ends
pub enum Side {
    /// Who sent the request. It sends the first FPDU.
    Initiator,
    /// Who replied. It sends none before it has received one (RFC 5044 §7.1.2).
    Responder,
}

/// What a connection goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Who we are.
    pub side: Side,
    /// How FPDUs look.
    pub framing: Framing,
    /// RDMA Reads at once.
    pub depths: Depths,
    /// The first message of the initiator, which no upper layer hears of (RFC 6581 §5).
    pub ready: Option<ReadyType>,
}

/// A frame that comes in pieces. It grows with what has come, never with what is announced.
#[derive(Debug, Default)]
pub(super) struct Collector {
    bytes: Vec<u8>,
}

/// A frame that is whole.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) start: Start,
    pub(super) enhanced: Option<Enhanced>,
    pub(super) private_data: Vec<u8>,
}

impl Collector {
    /// Takes what belongs to the frame: how many bytes, and the frame when it is whole.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        wanted: StartKind,
    ) -> Result<(usize, Option<Frame>), Violation> {
        let given = bytes.len();
        loop {
            let start = self.head(wanted)?;
            let length = match &start {
                Some(start) => START_LEN + usize::from(start.private_data_length),
                None => START_LEN,
            };
            let missing = length.saturating_sub(self.bytes.len());
            let (here, rest) = bytes.split_at(missing.min(bytes.len()));
            self.bytes.extend_from_slice(here);
            bytes = rest;
            if here.len() < missing {
                return Ok((given, None));
            }
            if let Some(start) = start {
                return Ok((given - bytes.len(), Some(self.frame(start)?)));
            }
        }
    }

    /// The frame's head, once it is there.
    fn head(&self, wanted: StartKind) -> Result<Option<Start>, Violation> {
        let Some(head) = self.bytes.first_chunk::<START_LEN>() else { return Ok(None) };
        let start = Start::parse(head).map_err(Violation::of_start)?;
        if start.kind != wanted {
            return Err(Violation::Crossed);
        }
        if !(1..=2).contains(&start.revision) {
            return Err(Violation::Revision(start.revision));
        }
        // A rejection needs no depths, and some peers leave them out.
        let needs_depths = start.enhanced && !(start.reject && wanted == StartKind::Reply);
        if needs_depths && usize::from(start.private_data_length) < ENHANCED_LEN {
            return Err(Violation::PrivateData(start.private_data_length));
        }
        Ok(Some(start))
    }

    fn frame(&mut self, start: Start) -> Result<Frame, Violation> {
        let data = self.bytes.get(START_LEN..).unwrap_or_default();
        let (enhanced, data) = match data.split_first_chunk::<ENHANCED_LEN>() {
            Some((depths, rest)) if start.enhanced => (Some(Enhanced::parse(*depths)), rest),
            _ => (None, data),
        };
        Ok(Frame { start, enhanced, private_data: data.to_vec() })
    }
}

/// How FPDUs look once both have said what they want.
pub(super) fn framing(own: &Offer, peer: &Start) -> Framing {
    let checks = if peer.crc { Checks::Crc } else { own.checks };
    let sent = if peer.markers { Markers::Sent } else { Markers::None };
    Framing { checks, sent, received: own.markers }
}

/// The bytes of a frame.
pub(super) fn emit(
    start: Start,
    enhanced: Option<Enhanced>,
    private_data: &PrivateData,
) -> Vec<u8> {
    let prefix = enhanced.map(|enhanced| enhanced.emit());
    let prefix = prefix.as_ref().map_or(&[][..], |prefix| &prefix[..]);
    let length = prefix.len() + private_data.0.len();
    let private_data_length =
        u16::try_from(length).expect("private data is measured when it is made");
    let head = Start { enhanced: enhanced.is_some(), private_data_length, ..start }.emit();
    [&head, prefix, &private_data.0].concat()
}
