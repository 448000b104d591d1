// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lies in segments of RDMA streams: names of memory that were not given, or have ended, places
//! outside of it, and numbers of messages.

use wire::iscsi::BHS_LEN;
use wire::iser::ISER_LEN;
use wire::iwarp::Ddp;
use wire::iwarp::Opcode;
use wire::iwarp::READ_REQUEST_LEN;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::UNTAGGED_LEN;
use wire::iwarp::Untagged;

use crate::check::Memory;
use crate::rng::Rng;

/// A bit that an STag of the other one's never has the other way.
const FOREIGN: u32 = 1 << 31;

/// So many of a thousand Sends that could lie do.
const SENDS: u64 = 200;

/// What was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Whoever believes it breaks the rules of RDMA.
    Lie(&'static str),
    /// The PDU in it lies at this place.
    Pdu(usize),
}

/// Changes a number of one segment; says which. Its PDU may be what is to lie.
pub(super) fn tell(segment: &mut [u8], memory: &Memory, rng: &mut Rng) -> Option<Told> {
    let header = Ddp::parse(segment).ok()?;
    let opcode = Opcode::parse(header.control()).ok()?;
    let (front, payload) = segment.split_at_mut_checked(header.len())?;
    match (header, opcode) {
        (Ddp::Tagged(header), Opcode::Write) if !payload.is_empty() => {
            let at = (header.stag, header.offset);
            let (what, at) = elsewhere(at, payload.len(), memory, rng)?;
            let (stag, offset) = at;
            front.copy_from_slice(&Tagged { stag, offset, ..header }.emit());
            Some(Told::Lie(what))
        }
        (Ddp::Tagged(header), Opcode::ReadResponse) => {
            let (what, header) = match rng.chance(500) {
                true => {
                    ("STag of a Read Response", Tagged { stag: foreign(header.stag), ..header })
                }
                false => {
                    let offset = TaggedOffset(header.offset.0.wrapping_add(1 + rng.below(3)));
                    ("offset of a Read Response", Tagged { offset, ..header })
                }
            };
            front.copy_from_slice(&header.emit());
            Some(Told::Lie(what))
        }
        (Ddp::Untagged(_), Opcode::ReadRequest) if rng.chance(800) => {
            let place: &mut [u8; READ_REQUEST_LEN] = payload.first_chunk_mut()?;
            let request = ReadRequest::parse(place);
            let length = usize::try_from(request.length).unwrap_or(usize::MAX);
            let at = (request.source_stag, request.source_offset);
            let (what, (source_stag, source_offset)) = elsewhere(at, length, memory, rng)?;
            *place = ReadRequest { source_stag, source_offset, ..request }.emit();
            Some(Told::Lie(what))
        }
        (Ddp::Untagged(_), Opcode::Terminate) => None,
        // There are more of these than of all others.
        (Ddp::Untagged(_), _) if !rng.chance(SENDS) => None,
        (Ddp::Untagged(header), opcode) => {
            let is_first = header.offset == 0 && payload.len() >= ISER_LEN + BHS_LEN;
            if is_first && rng.chance(500) {
                return Some(Told::Pdu(UNTAGGED_LEN + ISER_LEN));
            }
            let (what, header) = untagged(header, opcode, rng);
            front.copy_from_slice(&header.emit());
            Some(Told::Lie(what))
        }
        (Ddp::Tagged(_), _) => None,
    }
}

/// Where a target may not go.
fn elsewhere(
    (stag, offset): (Stag, TaggedOffset),
    length: usize,
    memory: &Memory,
    rng: &mut Rng,
) -> Option<(&'static str, (Stag, TaggedOffset))> {
    let name = memory.of(stag)?;
    let ended: Vec<Stag> = memory.ended(name.is_source).collect();
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    Some(match rng.below(6) {
        0 => ("STag that was not given", (foreign(stag), offset)),
        1 => ("STag of another time", (Stag(stag.0 ^ 1), offset)),
        2 | 3 if !ended.is_empty() => {
            ("STag of a task that has ended", (ended[rng.index(ended.len())], offset))
        }
        2..=4 => {
            let before = TaggedOffset(name.base.wrapping_sub(1 + rng.below(length)));
            ("place before the memory of an STag", (stag, before))
        }
        _ => {
            // An STag may not name what is written unasked.
            let inside = if name.is_source { 0 } else { length.saturating_sub(1) };
            let across = (name.base + u64::from(name.length)).saturating_sub(inside);
            ("place behind the memory of an STag", (stag, TaggedOffset(across)))
        }
    })
}

fn untagged(header: Untagged, opcode: Opcode, rng: &mut Rng) -> (&'static str, Untagged) {
    let mut header = header;
    let what = match rng.below(4) {
        0 => {
            header.msn.0 = header.msn.0.wrapping_add(1);
            "MSN"
        }
        1 => {
            header.offset = header.offset.wrapping_add(4);
            "MO"
        }
        2 if opcode.invalidates() => {
            header.invalidate = foreign(header.invalidate);
            "STag to be invalidated"
        }
        _ => {
            header.queue.0 = header.queue.0.wrapping_add(3);
            "QN"
        }
    };
    (what, header)
}

const fn foreign(stag: Stag) -> Stag {
    Stag(stag.0 ^ FOREIGN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use wire::iwarp::Msn;
    use wire::iwarp::SEND_QUEUE;

    #[test]
    fn a_lie_changes_a_segment_and_leaves_it_one() {
        let untagged = |opcode: Opcode| Untagged {
            last: true,
            control: opcode.control(),
            invalidate: Stag(7),
            queue: SEND_QUEUE,
            msn: Msn(1),
            offset: 0,
        };
        let response = Tagged {
            last: true,
            control: Opcode::ReadResponse.control(),
            stag: Stag(7),
            offset: TaggedOffset(9),
        };
        let mut rng = Rng::stream(1, 1);
        let mut told = BTreeSet::new();
        for _ in 0..1000 {
            for (front, payload) in [
                (untagged(Opcode::SendSolicitedInvalidate).emit().to_vec(), 100),
                (untagged(Opcode::Send).emit().to_vec(), 10),
                (response.emit().to_vec(), 10),
            ] {
                let before = [&front[..], &vec![0; payload]].concat();
                let mut after = before.clone();
                match tell(&mut after, &Memory::default(), &mut rng) {
                    Some(Told::Lie(what)) => {
                        assert!(Ddp::parse(&after).is_ok() && after != before, "{what}");
                        told.insert(what);
                    }
                    Some(Told::Pdu(at)) => assert_eq!((at, &after), (46, &before)),
                    None => assert_eq!(front.len(), UNTAGGED_LEN),
                }
            }
        }
        assert_eq!(told.len(), 6, "{told:?}");
        let mut terminate = untagged(Opcode::Terminate).emit().to_vec();
        assert_eq!(tell(&mut terminate, &Memory::default(), &mut rng), None);
        // Of memory that nobody has named nothing is known.
        let write = Tagged { control: Opcode::Write.control(), ..response };
        let mut write = [&write.emit()[..], &[0; 4]].concat();
        assert_eq!(tell(&mut write, &Memory::default(), &mut rng), None);
    }
}
