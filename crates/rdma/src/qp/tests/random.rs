// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any work and any bytes.

use super::*;
use proptest::prelude::*;

/// What is posted: kind, place, length.
type Step = (u8, u16, u16);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((0..3_u8, 0..2000_u16, 0..2000_u16), 1..20)
}

proptest! {
    #[test]
    fn whatever_is_posted_arrives(
        steps in steps(),
        pieces in 1..3000_usize,
        segment_len in 0..3000_usize,
        has_markers: bool,
        ord in 1..4_u16,
    ) {
        let mark = |is: bool| if is { Markers::Sent } else { Markers::None };
        let framing = Framing { sent: mark(has_markers), ..Framing::default() };
        let depths = Depths { ird: ord, ord };
        let (mut a, mut b) = pair_of(Agreed { framing, depths, ..agreed(Side::Initiator) });
        a.qp.set_segment_len(segment_len);
        b.qp.set_segment_len(segment_len);
        let theirs = of_length(4000);
        let (ours, sink, source) = (a.sink(4000), b.sink(4000), b.source(&theirs));
        let (mut written, mut fetched, mut sent) = (vec![0; 4000], vec![0; 4000], vec![]);
        for (id, (kind, place, length)) in (0..).zip(steps) {
            let (at, len) = (usize::from(place), usize::from(length));
            let payload = vec![u8::try_from(id % 250).unwrap() + 1; len];
            match kind {
                0 => {
                    b.receive(id, 2000);
                    sent.push((id, payload.clone()));
                    a.post(id, send(&payload));
                }
                1 => {
                    written[at..at + len].copy_from_slice(&payload);
                    a.post(id, write(sink, BASE.0 + u64::from(place), &payload));
                }
                _ => {
                    fetched[at..at + len].copy_from_slice(&theirs[at..at + len]);
                    a.post(id, read(ours, source, place.into(), length.into()));
                }
            }
        }
        exchange(&mut a, &mut b, pieces);
        prop_assert_eq!(a.qp.close(), Ok(()), "all is done");
        prop_assert_eq!(b.messages(), sent);
        prop_assert_eq!(a.bytes(ours), fetched);
        prop_assert_eq!(b.bytes(sink), written);
    }

    /// Covers: RDM-29/S.
    #[test]
    fn no_segment_reaches_what_it_may_not(
        all in proptest::collection::vec(
            (0..8_u8, 0..4_u8, 0..6_u8, prop_oneof![0..12_u64, any::<u64>()], 0..12_usize),
            1..12,
        ),
    ) {
        let mut node = Node::new(agreed(Side::Responder));
        let (before, sink, after) = (node.sink(8), node.sink(8), node.sink(8));
        node.receive(1, 8);
        node.receive(2, 8);
        let buf = node.buf(8);
        let foreign = node.regions.advertise(StreamId(9), BASE, Memory::Sink(buf)).unwrap();
        for (opcode, queue, which, offset, len) in all {
            let control = 0x40 | opcode;
            let stag = [sink, sink, sink, foreign, Stag(0), Stag(sink.0 ^ 0xff)];
            let stag = stag[usize::from(which)];
            let bytes = if opcode == 0 || opcode == 2 {
                let at = offset.wrapping_add(BASE.0);
                segment(&tagged(control, stag, at).emit(), &vec![0xee; len])
            } else {
                let header = untagged(control, queue.into(), 1);
                segment(&Untagged { invalidate: stag, ..header }.emit(), &vec![0xee; len])
            };
            node.feed(&fpdus(&[bytes]));
        }
        prop_assert_eq!(node.bytes(before), [0; 8]);
        prop_assert_eq!(node.bytes(after), [0; 8]);
        prop_assert_eq!(node.bytes(foreign), [0; 8]);
        let list = node.output();
        prop_assert!(list.len() < 200, "a Terminate and answers of nothing");
    }
}
