// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What works.

use super::*;
use crate::limits::HEAD_LEN_MAX;
use crate::limits::TRANSMIT_LEN_MAX;
use crate::limits::TRANSMIT_PIECES_MAX;
use wire::iwarp::MULPDU_MIN;

/// Covers: RDM-14/S, DDP-10/S.
#[test]
fn sends_come_in_order_one_to_a_buffer() {
    for piece in [1, 7, 100_000] {
        let (mut a, mut b) = pair();
        let lengths = [0, 1, 4000, 3, 100_000];
        for (id, len) in (0..).zip(lengths) {
            b.receive(id, 100_000);
            a.post(id, send(&of_length(len)));
        }
        exchange(&mut a, &mut b, piece);
        let wanted: Vec<_> = (0..).zip(lengths.map(of_length)).collect();
        assert_eq!(b.messages(), wanted);
        assert_eq!(a.told(), [('s', 0), ('s', 1), ('s', 2), ('s', 3), ('s', 4)]);
    }
}

/// Covers: DDP-05/S, DDP-06/S, DDP-07/S, DDP-08/S, DDP-09/S.
#[test]
fn messages_are_cut_into_segments_that_fit() {
    let payload = of_length(100_001);
    for segment_len in [0, 536, 1448, 8960, 1 << 20] {
        let (mut a, _) = pair();
        a.qp.set_segment_len(segment_len);
        let longest = wire::iwarp::mulpdu(segment_len, Markers::None);
        assert!(longest >= MULPDU_MIN);
        let invalidate = Some(Stag(9));
        let notify = Notify::Solicited;
        a.post(
            1,
            Work::Send {
                head: Head::EMPTY,
                payload: Slice::from(payload.clone()),
                invalidate,
                notify,
            },
        );
        a.post(2, write(Stag(5), 1 << 40, &payload));
        a.post(3, send(&payload));
        let (mut sends, mut writes, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        for segment in a.segments() {
            assert!(segment.len() <= longest);
            let header = Ddp::parse(&segment).unwrap();
            match header {
                Ddp::Untagged(header) => sends.push(header),
                Ddp::Tagged(header) => writes.push(header),
            }
            joined.extend_from_slice(&segment[header.len()..]);
        }
        assert_eq!(joined, [&payload[..]; 3].concat(), "one after the other");
        let count = 100_001_usize.div_ceil(longest - 18);
        assert_eq!(sends.len(), 2 * count);
        for (at, header) in sends.iter().enumerate() {
            let (message, place) = (at / count, at % count);
            let offset = u32::try_from(place * (longest - 18)).unwrap();
            let wanted = Untagged {
                last: place + 1 == count,
                control: [0x46, 0x43][message],
                invalidate: [Stag(9), Stag(0)][message],
                queue: QueueNumber(0),
                msn: [Msn(1), Msn(2)][message],
                offset,
            };
            assert_eq!(*header, wanted);
        }
        for (at, header) in (0..).zip(&writes) {
            let offset = at * u64::try_from(longest - 14).unwrap();
            assert_eq!(header.offset.0, (1 << 40) + offset);
            assert_eq!((header.stag, header.control), (Stag(5), 0x40));
            assert_eq!(header.last, at + 1 == u64::try_from(writes.len()).unwrap());
        }
    }
}

#[test]
fn a_head_goes_in_front_of_its_payload_however_it_is_cut() {
    for (segment_len, head_len, payload_len) in
        [(0, HEAD_LEN_MAX, 3000), (1448, 76, 0), (1448, 76, 8192), (0, 0, 0), (0, HEAD_LEN_MAX, 0)]
    {
        let (mut a, mut b) = pair();
        a.qp.set_segment_len(segment_len);
        b.receive(1, 9000);
        let (front, back) = (vec![7; head_len], (0..=255).cycle().take(payload_len).collect());
        let head = Head::of(&[&front[..head_len / 2], &front[head_len / 2..]]).unwrap();
        let payload = Slice::from(Vec::clone(&back));
        let (invalidate, notify) = (None, Notify::Quietly);
        a.post(1, Work::Send { head, payload, invalidate, notify });
        let bytes = a.output();
        b.feed(&bytes);
        let [Event::Received(Received { buf, length, .. })] = &b.events[..] else {
            panic!("{:?}", b.events)
        };
        assert_eq!(buf[..*length], [front, back].concat());
    }
    assert!(Head::of(&[&[0; HEAD_LEN_MAX], &[0]]).is_none());
}

#[test]
fn a_segment_at_a_time_needs_one_buffer_for_all_messages() {
    let (mut a, mut b) = pair();
    for id in 1..=3 {
        a.post(id, send(&[7; 5]));
    }
    let bytes = a.output();
    let (mut rest, mut got) = (&bytes[..], 0);
    while !rest.is_empty() {
        if b.qp.receives() == 0 {
            b.receive(1, 16);
        }
        let taken = b.qp.handle_segment(rest, &mut b.regions);
        rest = &rest[taken..];
        b.collect();
        got += b.events.drain(..).filter(|event| matches!(event, Event::Received(_))).count();
    }
    assert_eq!((got, b.qp.ended()), (3, None));
}

/// A payload is copied once, as it comes, and no memory holds it meanwhile.
#[test]
fn what_is_placed_is_not_put_together_first() {
    let payload = of_length(60_000);
    for checks in [Checks::Crc, Checks::None] {
        for piece in [1, 15, 16, 17, 4096, 1 << 20] {
            let framing = Framing { checks, ..Framing::default() };
            let (mut a, mut b) = pair_of(Agreed { framing, ..agreed(Side::Initiator) });
            a.qp.set_segment_len(1 << 16);
            let (sink, ours) = (b.sink(60_000), a.sink(60_000));
            let source = b.source(&payload);
            a.post(1, write(sink, BASE.0, &payload));
            a.post(2, read(ours, source, 0, 60_000));
            exchange(&mut a, &mut b, piece);
            assert_eq!((a.qp.close(), a.told()[0]), (Ok(()), ('s', 1)));
            assert!(a.qp.bytes_held() < 64 && b.qp.bytes_held() < 64, "{piece}");
            assert_eq!((a.regions.bytes_placed(), b.regions.bytes_placed()), (60_000, 60_000));
            assert!(a.bytes(ours) == payload && b.bytes(sink) == payload, "{piece}");
        }
    }
}

#[test]
fn a_list_has_an_end() {
    let (mut a, _) = pair();
    a.qp.set_segment_len(0);
    a.post(1, write(Stag(5), 0, &of_length(100_000)));
    let mut list = SgList::new();
    assert!(a.qp.poll_transmit(&mut list));
    assert!((TRANSMIT_PIECES_MAX..TRANSMIT_PIECES_MAX + 3).contains(&list.pieces()));
    a.qp.handle_sent();
    a.qp.set_segment_len(1 << 16);
    a.post(2, write(Stag(5), 0, &of_length(2 << 20)));
    list.clear();
    assert!(a.qp.poll_transmit(&mut list));
    assert!((TRANSMIT_LEN_MAX..TRANSMIT_LEN_MAX + (1 << 16)).contains(&list.len()));
}

/// The messages that `node` lends of a stream that comes in pieces, and who lent each.
fn lent(node: &mut Node, bytes: &[u8], piece: usize) -> Vec<(Lender, Vec<u8>)> {
    let mut found = Vec::new();
    for mut rest in bytes.chunks(piece) {
        while !rest.is_empty() {
            let taken = node.qp.handle_segment(rest, &mut node.regions);
            node.collect();
            for event in &node.events {
                if let Event::Lent(Lent { lender, at, .. }) = event {
                    let from = match lender {
                        Lender::Giver => rest,
                        Lender::QueuePair => node.qp.staged(),
                    };
                    found.push((*lender, from[at.clone()].to_vec()));
                }
            }
            node.events.retain(|event| !matches!(event, Event::Lent(_)));
            rest = &rest[taken..];
        }
    }
    found
}

#[test]
fn a_message_of_one_segment_is_lent_and_takes_no_buffer() {
    let lengths = [0, 5, 700, 2, 6000, 3];
    let all = || lengths.map(of_length);
    for (piece, lender) in [(1 << 20, Lender::Giver), (1, Lender::QueuePair)] {
        let (mut a, mut b) = pair();
        b.qp.lend_messages(6000);
        a.qp.set_segment_len(8192);
        (0..).zip(all()).for_each(|(id, payload)| a.post(id, send(&payload)));
        let bytes = a.output();
        let wanted = all().map(|payload| (lender, payload));
        assert_eq!(lent(&mut b, &bytes, piece), wanted, "in order, without a buffer");
        assert!(b.events.is_empty());
    }
    let (mut a, mut b) = pair();
    b.qp.lend_messages(6000);
    b.receive(1, 6000);
    a.qp.set_segment_len(1448);
    (0..).zip(all()).for_each(|(id, payload)| a.post(id, send(&payload)));
    let found = lent(&mut b, &a.output(), 1 << 20);
    assert_eq!(found.len(), 5, "the one of several segments is not");
    assert_eq!(b.messages(), [(1, of_length(6000))]);
}

#[test]
fn what_is_lent_has_a_longest_length_and_ends_what_it_names() {
    let (mut a, mut b) = pair();
    b.qp.lend_messages(100);
    let sink = b.sink(8);
    let (head, notify) = (Head::EMPTY, Notify::Quietly);
    a.post(1, Work::Send { head, payload: Slice::empty(), invalidate: Some(sink), notify });
    b.feed(&a.output());
    let [Event::Lent(Lent { invalidated: Some((stag, Withdrawn { filled: 0, .. })), .. })] =
        &b.events[..]
    else {
        panic!("{:?}", b.events)
    };
    assert_eq!((*stag, b.regions.is_empty()), (sink, true));
    a.post(2, send(&[7; 101]));
    b.feed(&a.output());
    assert_eq!(b.qp.ended(), Some(End::Violated(Violation::TooLong(100))));
    let (mut a, mut b) = pair();
    b.qp.lend_messages(100);
    assert_eq!(b.qp.close(), Ok(()));
    a.post(1, send(b"late"));
    b.feed(&a.output());
    assert_eq!(
        (b.told(), b.qp.ended()),
        (vec![('c', 0), ('e', 0)], Some(End::Violated(Violation::Lost)))
    );
}

/// Covers: RDM-03/S, RDM-04/S, RDM-07/S.
#[test]
fn each_message_has_its_opcode_and_its_queue() {
    let (mut a, mut b) = pair();
    let sink = a.sink(8);
    let with = |invalidate, notify| Work::Send {
        head: Head::EMPTY,
        payload: Slice::empty(),
        invalidate,
        notify,
    };
    a.post(1, write(Stag(1), 0, b"x"));
    a.post(2, read(sink, Stag(2), 0, 8));
    a.post(3, with(None, Notify::Quietly));
    a.post(4, with(Some(Stag(3)), Notify::Quietly));
    a.post(5, with(None, Notify::Solicited));
    a.post(6, with(Some(Stag(4)), Notify::Solicited));
    let segments = a.segments();
    let seen = segments.iter().map(|segment| match Ddp::parse(segment).unwrap() {
        Ddp::Tagged(header) => (header.control, None, segment.len()),
        Ddp::Untagged(header) => (header.control, Some(header.queue.0), segment.len()),
    });
    let (send, ask) = (Some(0), Some(1));
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            (0x40, None, 15),
            (0x41, ask, 18 + 28),
            (0x43, send, 18),
            (0x44, send, 18),
            (0x45, send, 18),
            (0x46, send, 18),
        ]
    );
    let wanted = request(Stag(2), BASE.0, 8);
    let wanted = ReadRequest { sink_stag: sink, sink_offset: BASE, ..wanted };
    assert_eq!(segments[1][18..], wanted.emit());
    let source = b.source(b"12345678");
    let asked = untagged(0x41, 1, 1).emit();
    b.feed(&fpdus(&[segment(&asked, &request(source, BASE.0, 8).emit())]));
    let answer = segment(&tagged(0x42, Stag(0xaabb_ccdd), 5).emit(), b"12345678");
    assert_eq!(b.segments(), [answer]);
}

/// Covers: RDM-05/S, RDM-16/S, RDM-17/S.
#[test]
fn a_send_may_end_an_stag_and_wake() {
    let (mut a, mut b) = pair();
    let (first, second) = (b.sink(8), b.source(b"12345678"));
    let kinds = [
        (None, Notify::Quietly),
        (Some(first), Notify::Quietly),
        (None, Notify::Solicited),
        (Some(second), Notify::Solicited),
    ];
    for (id, (invalidate, notify)) in (0..).zip(kinds) {
        b.receive(id, 16);
        a.post(
            id,
            Work::Send { head: Head::EMPTY, payload: Slice::from(vec![1]), invalidate, notify },
        );
    }
    for segment in a.segments() {
        let Ok(Ddp::Untagged(header)) = Ddp::parse(&segment) else { panic!("a Send") };
        let msn = usize::try_from(header.msn.0).unwrap();
        assert_eq!(header.invalidate, kinds[msn - 1].0.unwrap_or(Stag(0)));
        assert_eq!(b.regions.len(), [2, 2, 1, 1][msn - 1], "before message {msn}");
        b.feed(&fpdus(&[segment]));
    }
    for (event, (stag, wanted)) in b.events.iter().zip(kinds) {
        let Event::Received(Received { invalidated, notify, .. }) = event else {
            panic!("{event:?}")
        };
        assert_eq!((invalidated.as_ref().map(|(stag, _)| *stag), *notify), (stag, wanted));
    }
    assert_eq!(b.told(), [('m', 0), ('m', 1), ('m', 2), ('m', 3)], "in order");
}

/// Covers: RDM-13/S, RDM-18/S.
#[test]
fn a_send_comes_after_what_was_written_before_it() {
    let (mut a, mut b) = pair();
    b.receive(1, 16);
    let stag = b.sink(20_000);
    let written = of_length(20_000);
    a.post(1, write(stag, BASE.0, &written[..10_000]));
    a.post(2, write(stag, BASE.0 + 10_000, &written[10_000..]));
    a.post(3, send(b"done"));
    for byte in a.output() {
        assert_eq!(b.told(), [], "nobody hears of a Write");
        b.feed(&[byte]);
    }
    assert_eq!(b.messages(), [(1, b"done".to_vec())]);
    assert_eq!(b.bytes(stag), written);
}

/// Covers: RDM-08/S, RDM-11/S, RDM-19/S.
#[test]
fn reads_are_answered_in_order_and_never_too_many_are_under_way() {
    let (mut a, mut b) = pair();
    let data = of_length(16 * 5000);
    let (sink, source) = (a.sink(data.len()), b.source(&data));
    for id in 0..16 {
        a.post(id, read(sink, source, id * 5000, 5000));
    }
    b.receive(99, 16);
    a.post(99, send(b"after"));
    loop {
        let asked = a.output();
        b.feed(&asked);
        assert!(a.qp.inbound.reads() <= 4 && b.qp.outbound.responses() <= 4);
        let answers = b.output();
        if asked.is_empty() && answers.is_empty() {
            break;
        }
        a.feed(&answers);
    }
    let reads: Vec<_> = a.told().into_iter().filter(|(kind, _)| *kind == 'r').collect();
    assert_eq!(reads, (0..16).map(|id| ('r', id)).collect::<Vec<_>>());
    assert_eq!((b.messages().len(), a.bytes(sink)), (1, data));
}

/// Covers: RDM-20/S.
#[test]
fn the_bytes_of_a_read_are_in_place_when_it_is_told() {
    let (mut a, mut b) = pair();
    let data = of_length(9000);
    let (sink, source) = (a.sink(9000), b.source(&data));
    a.post(1, read(sink, source, 0, 9000));
    let asked = a.output();
    b.feed(&asked);
    for byte in b.output() {
        assert!(a.told().is_empty());
        a.feed(&[byte]);
    }
    assert_eq!((a.told(), a.bytes(sink)), (vec![('r', 1)], data));
}

/// Covers: DDP-11/S, RDM-10/S, RDM-12/S.
#[test]
fn messages_may_be_empty() {
    let (mut a, mut b) = pair();
    b.receive(3, 16);
    a.post(1, write(Stag(0xdead_beef), 77, b""));
    a.post(2, read(Stag(0x1234_5678), Stag(0x8765_4321), 0, 0));
    a.post(3, send(b""));
    exchange(&mut a, &mut b, 5);
    assert_eq!(a.told(), [('s', 1), ('s', 3), ('r', 2)]);
    assert_eq!(b.messages(), [(3, vec![])]);
    assert_eq!((a.qp.ended(), b.qp.ended()), (None, None));
}

/// Covers: MPA-21.
#[test]
fn the_responder_waits_for_the_first_fpdu() {
    let (mut a, mut b) = pair();
    a.receive(1, 16);
    b.receive(1, 16);
    b.post(2, send(b"mine"));
    assert_eq!(b.output(), []);
    a.post(2, send(b"first"));
    let bytes = a.output();
    b.feed(&bytes[..bytes.len() - 1]);
    assert_eq!(b.output(), [], "not yet whole");
    b.feed(&bytes[bytes.len() - 1..]);
    let bytes = b.output();
    a.feed(&bytes);
    assert_eq!(a.messages(), [(1, b"mine".to_vec())]);
}

/// Covers: MPE-08, MPE-10.
#[test]
fn a_peer_to_peer_connection_begins_with_an_empty_message() {
    for (ready, first) in [
        (ReadyType::Send, untagged(0x43, 0, 1).emit().to_vec()),
        (ReadyType::Write, tagged(0x40, Stag(0), 0).emit().to_vec()),
        (ReadyType::Read, segment(&untagged(0x41, 1, 1).emit(), &[0; 28])),
    ] {
        let depths = Depths { ird: 0, ord: 0 };
        let ready = Agreed { ready: Some(ready), depths, ..agreed(Side::Initiator) };
        let (mut a, mut b) = pair_of(ready);
        a.receive(1, 16);
        b.receive(1, 16);
        b.receive(4, 16);
        b.post(2, send(b"at once"));
        let segments = a.segments();
        assert_eq!(segments, [first]);
        b.feed(&fpdus(&segments));
        assert_eq!(b.told(), [], "nobody hears of it");
        a.post(3, send(b""));
        a.post(4, send(b"then"));
        exchange(&mut a, &mut b, 9);
        assert_eq!(a.messages(), [(1, b"at once".to_vec())]);
        assert_eq!(b.messages(), [(1, vec![]), (4, b"then".to_vec())], "only the first is unheard");
        assert_eq!((a.told().len(), b.told().len()), (3, 3));
    }
}

#[test]
fn markers_and_no_checks_change_nothing_above() {
    let framing = Framing { checks: Checks::None, sent: Markers::Sent, received: Markers::None };
    let (mut a, mut b) = pair_of(Agreed { framing, ..agreed(Side::Initiator) });
    let data = of_length(70_000);
    let (sink, source) = (a.sink(70_000), b.source(&data));
    b.receive(1, 70_000);
    a.post(1, send(&data));
    a.post(2, read(sink, source, 0, 70_000));
    exchange(&mut a, &mut b, 333);
    assert_eq!((b.messages(), a.bytes(sink)), (vec![(1, data.clone())], data));
}

/// Covers: RDM-28/S.
#[test]
fn what_cannot_be_sent_is_given_back() {
    let (mut a, _) = pair();
    let (sink, source) = (a.sink(8), a.source(b"12345678"));
    let mut refused = |work| a.qp.post_send(WorkId(1), work, &a.regions).unwrap_err().refusal;
    assert_eq!(refused(read(sink, Stag(1), 1, 8)), Refusal::Sink);
    assert_eq!(refused(read(sink, Stag(1), 0, u32::MAX)), Refusal::Sink);
    assert_eq!(refused(read(source, Stag(1), 0, 8)), Refusal::Sink);
    assert_eq!(too_long(1 << 32), Some(Refusal::TooLong));
    assert_eq!(too_long((1 << 32) - 1), None);
    let depths = Depths { ird: 1, ord: 0 };
    let mut blind = Node::new(Agreed { depths, ..agreed(Side::Initiator) });
    let refused = blind.qp.post_send(WorkId(1), read(sink, sink, 0, 0), &blind.regions);
    assert_eq!(refused.unwrap_err().refusal, Refusal::Depth);
}

#[test]
fn neither_our_work_nor_the_peers_reads_wait_for_all_of_the_other() {
    let (_, mut b) = pair();
    let source = b.source(b"12345678");
    (0..3).for_each(|id| b.post(id, send(b"mine")));
    let ask = |msn| {
        let header = untagged(0x41, 1, msn).emit();
        segment(&header, &request(source, BASE.0, 8).emit())
    };
    b.feed(&fpdus(&[ask(1), ask(2), ask(3)]));
    let controls: Vec<u8> = b.segments().iter().map(|segment| segment[1]).collect();
    assert_eq!(controls, [0x43, 0x42, 0x43, 0x42, 0x43, 0x42]);
}

#[test]
fn queues_are_bounded() {
    let (mut a, _) = pair();
    for id in 0..WORKS_MAX as u64 {
        a.post(id, send(b""));
    }
    let one_more = a.qp.post_send(WorkId(0), send(b"x"), &a.regions).unwrap_err();
    assert!(matches!(*one_more, Refused { refusal: Refusal::Full, work: Work::Send { .. } }));
    let mut b = Node::new(agreed(Side::Responder));
    let pool = Pool::new(64 << 20).expect("address space");
    for id in 0..RECEIVES_MAX as u64 {
        b.qp.post_receive(WorkId(id), pool.take(1).expect("room")).expect("within the bound");
    }
    assert!(b.qp.post_receive(WorkId(0), pool.take(1).expect("room")).is_err());
}
