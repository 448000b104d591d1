// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens to DDP and RDMAP (RFC 5041, RFC 5040) and to the header of iSER (RFC 7145 §9): which
//! PDUs there are, and what is done with memory.

use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iser::ISER_LEN;
use wire::iser::IserHeader;
use wire::iwarp::Ddp;
use wire::iwarp::Opcode;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

use crate::net::Side;

/// Both directions: the Send of each that has begun.
#[derive(Debug, Default)]
pub(super) struct Messages([Vec<u8>; 2]);

/// What a segment says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A PDU, with the memory that goes with it: its BHS and AHS, its data.
    Pdu(IserHeader, Vec<u8>, Vec<u8>),
    /// Bytes are written.
    Written(Stag, TaggedOffset, usize),
    /// Bytes are asked for.
    Asked(ReadRequest),
    /// Bytes that were asked for, and whether they are the last ones.
    Answered(usize, bool),
}

impl Messages {
    /// A segment of `side`; an error if nobody could understand it.
    pub(super) fn hear(&mut self, side: Side, segment: &[u8]) -> Result<Option<Said>, String> {
        let wrong = |what: &str| format!("side {side} sends {what}");
        let header = Ddp::parse(segment).map_err(|error| wrong(&format!("{error:?}")))?;
        let payload = &segment[header.len()..];
        let opcode = Opcode::parse(header.control()).map_err(|_| wrong("no RDMAP"))?;
        Ok(match (header, opcode) {
            (Ddp::Tagged(at), Opcode::Write) => {
                Some(Said::Written(at.stag, at.offset, payload.len()))
            }
            (Ddp::Tagged(at), Opcode::ReadResponse) => Some(Said::Answered(payload.len(), at.last)),
            (Ddp::Untagged(_), Opcode::ReadRequest) => {
                let request = payload.first_chunk().map(ReadRequest::parse);
                Some(Said::Asked(request.ok_or_else(|| wrong("half a Read Request"))?))
            }
            (Ddp::Untagged(_), Opcode::Terminate) => None,
            (Ddp::Untagged(header), _) => {
                let message = &mut self.0[side];
                let begun = u32::try_from(message.len()).unwrap_or(u32::MAX);
                if header.offset != begun {
                    return Err(wrong("a Send that does not go on where it was"));
                }
                message.extend_from_slice(payload);
                if !header.last {
                    return Ok(None);
                }
                pdu(&std::mem::take(message)).map_err(wrong)?
            }
            (Ddp::Tagged(_), _) => return Err(wrong("a tagged message that is none")),
        })
    }
}

/// What stands in a Send; None: no PDU.
pub(crate) fn pdu(message: &[u8]) -> Result<Option<Said>, &'static str> {
    let iser = IserHeader::parse(message).map_err(|_| "no header of iSER")?;
    if !matches!(iser, IserHeader::Control { .. }) {
        return Ok(None);
    }
    let pdu = &message[ISER_LEN..];
    let view = BhsView::new_checked(pdu).map_err(|_| "half a PDU")?;
    let start = BHS_LEN + view.total_ahs_length();
    let length = usize::try_from(view.data_segment_length()).unwrap_or(usize::MAX);
    let data = pdu.get(start..start.saturating_add(length)).ok_or("half a PDU")?;
    if pdu.len() != start + length.next_multiple_of(4) {
        return Err("a PDU of another length than it says");
    }
    Ok(Some(Said::Pdu(iser, pdu[..start].to_vec(), data.to_vec())))
}
