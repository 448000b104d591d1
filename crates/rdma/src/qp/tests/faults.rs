// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer does wrong, and what it is told.

use super::*;
use crate::region::Denied;

/// Feeds FPDUs and gives the violation and the payload of the one Terminate that follows.
fn refused(node: &mut Node, bytes: &[u8]) -> (Violation, Terminate) {
    node.feed(bytes);
    let Some(End::Violated(violation)) = node.qp.ended() else {
        panic!("{:?} {:?}", node.qp.ended(), node.told())
    };
    let segments = node.segments();
    let [segment] = segments.as_slice() else { panic!("{segments:?}") };
    assert_eq!(segment[..18], untagged(0x47, 2, 1).emit());
    let terminate = Terminate::parse(&segment[18..]).expect("it is well formed");
    assert_eq!(terminate.cause, violation.cause());
    (violation, terminate)
}

/// As `refused`, of segments, for a node with a buffer of ten bytes, a sink and a source of eight.
fn provoke(segments: impl Fn(&Stags) -> Vec<Vec<u8>>) -> (Violation, Terminate) {
    let (mut node, stags) = prepared();
    let outcome = refused(&mut node, &fpdus(&segments(&stags)));
    assert_eq!(node.bytes(stags.sink), [0; 8], "nothing was placed");
    outcome
}

struct Stags {
    sink: Stag,
    source: Stag,
    foreign: Stag,
}

fn prepared() -> (Node, Stags) {
    let mut node = Node::new(agreed(Side::Responder));
    node.receive(1, 10);
    let (sink, source) = (node.sink(8), node.source(b"12345678"));
    let buf = node.buf(8);
    let foreign = node.regions.advertise(StreamId(8), BASE, Memory::Sink(buf)).expect("room");
    (node, Stags { sink, source, foreign })
}

fn code(violation: Violation) -> (u8, u8, u8) {
    let Cause { layer, kind, code } = violation.cause();
    (layer, kind, code)
}

/// Covers: DDP-12/S, DDP-14/S, DDP-18/S, RDM-12/S.
#[test]
fn tagged_segments_are_checked_before_a_byte_is_placed() {
    let base = BASE.0;
    for (stag, offset, wanted) in [
        (0, base, (1, 1, 0)),
        (1, base + 7, (1, 1, 1)),
        (1, base - 1, (1, 1, 1)),
        (2, base, (1, 1, 2)),
        (1, u64::MAX, (1, 1, 3)),
        (3, base, (0, 1, 2)),
    ] {
        let (violation, terminate) = provoke(|stags| {
            let stag = [Stag(0x5555_5500), stags.sink, stags.foreign, stags.source][stag];
            vec![segment(&tagged(0x40, stag, offset).emit(), b"xy")]
        });
        assert_eq!(code(violation), wanted);
        assert_eq!(terminate.segment_length, Some(16));
    }
    let mut old = segment(&tagged(0x40, Stag(1), 0).emit(), b"x");
    for version in [0, 2, 3] {
        old[0] = 0xc0 | version;
        let (violation, terminate) = provoke(|_| vec![old.clone()]);
        assert_eq!(code(violation), (1, 1, 4));
        assert_eq!(terminate.header, None, "nobody knows what it looks like");
    }
}

/// Covers: DDP-07/S, DDP-13/S, RDM-15/S.
#[test]
fn untagged_segments_are_checked() {
    let at = |offset, header: Untagged| Untagged { offset, ..header };
    for (header, length, wanted) in [
        (untagged(0x43, 3, 1), 1, (1, 2, 1)),
        (untagged(0x43, u32::MAX, 1), 1, (1, 2, 1)),
        (untagged(0x43, 0, 3), 1, (1, 2, 3)),
        (untagged(0x43, 0, 0), 1, (1, 2, 3)),
        (at(1, untagged(0x43, 0, 1)), 1, (1, 2, 4)),
        (untagged(0x43, 0, 1), 11, (1, 2, 5)),
    ] {
        let bytes = segment(&header.emit(), &vec![7; length]);
        let (violation, terminate) = provoke(|_| vec![bytes.clone()]);
        assert_eq!(code(violation), wanted, "{header:?}");
        assert_eq!(terminate.header, Some(Ddp::Untagged(header)));
    }
    let message = |msn| segment(&untagged(0x43, 0, msn).emit(), b"x");
    let (violation, _) = provoke(|_| vec![message(1), message(2)]);
    assert_eq!(code(violation), (1, 2, 2), "there is one buffer");
}

/// Covers: DDP-02/S.
#[test]
fn other_versions_of_ddp_are_refused() {
    for version in [0, 2, 3] {
        for (first, wanted) in [(0xc0, (1, 1, 4)), (0x40, (1, 2, 6))] {
            let (violation, _) = provoke(|_| vec![vec![first | version; 18]]);
            assert_eq!(code(violation), wanted);
        }
    }
}

#[test]
fn a_message_of_several_segments_is_one_message() {
    let first = Untagged { last: false, ..untagged(0x43, 0, 1) };
    let second = Untagged { offset: 2, ..first };
    for (wrong, wanted) in [
        (Untagged { offset: 3, ..second }, (1, 2, 4)),
        (Untagged { offset: 0, ..second }, (1, 2, 4)),
        (Untagged { msn: Msn(2), ..second }, (1, 2, 3)),
        (Untagged { control: 0x45, ..second }, (0, 2, 6)),
        (Untagged { invalidate: Stag(1), ..second }, (0, 2, 6)),
    ] {
        let (violation, _) =
            provoke(|_| vec![segment(&first.emit(), b"ab"), segment(&wrong.emit(), b"cd")]);
        assert_eq!(code(violation), wanted, "{wrong:?}");
    }
}

#[test]
fn a_write_of_several_segments_goes_on_where_it_was() {
    for (is_other, offset, wanted) in [(true, 2, (1, 1, 0)), (false, 3, (1, 1, 1))] {
        let (mut node, stags) = prepared();
        let first = Tagged { last: false, ..tagged(0x40, stags.sink, BASE.0) };
        let stag = if is_other { stags.source } else { stags.sink };
        let second = tagged(0x40, stag, BASE.0 + offset);
        let bytes = fpdus(&[segment(&first.emit(), b"ab"), segment(&second.emit(), b"cd")]);
        assert_eq!(code(refused(&mut node, &bytes).0), wanted);
        assert_eq!(node.bytes(stags.sink), *b"ab\0\0\0\0\0\0");
    }
}

/// Covers: RDM-02/S, RDM-03/S, RDM-04/S.
#[test]
fn versions_opcodes_and_queues_of_rdmap_are_checked() {
    let on = |control: u8, queue| segment(&untagged(control, queue, 1).emit(), b"");
    let direct = |control| segment(&tagged(control, Stag(0), 0).emit(), b"");
    let mut all = vec![];
    for control in [0x03, 0x83, 0xc3] {
        all.push((on(control, 0), (0, 2, 5)));
        all.push((direct(control), (0, 2, 5)));
    }
    for control in 0x48..=0x4f {
        all.push((on(control, 0), (0, 2, 6)));
        all.push((direct(control), (0, 2, 6)));
    }
    for (control, queue) in [(0x40, 0), (0x42, 0), (0x43, 1), (0x41, 0), (0x46, 2), (0x47, 0)] {
        all.push((on(control, queue), (0, 2, 6)));
    }
    for control in [0x41, 0x43, 0x44, 0x45, 0x46, 0x47] {
        all.push((direct(control), (0, 2, 6)));
    }
    for (bytes, wanted) in all {
        let (violation, _) = provoke(|_| vec![bytes.clone()]);
        assert_eq!(code(violation), wanted, "{bytes:x?}");
    }
}

/// Covers: RDM-09/S, RDM-23/S.
#[test]
fn a_read_request_is_checked_before_it_is_answered() {
    let base = BASE.0;
    for (stag, offset, length, wanted) in [
        (0, base, 1, 0),
        (1, base + 1, 8, 1),
        (1, base, u32::MAX, 1),
        (1, base - 1, 1, 1),
        (3, base, 1, 2),
        (2, base, 1, 3),
        (1, u64::MAX, 2, 4),
    ] {
        let header = untagged(0x41, 1, 1);
        let (mut node, stags) = prepared();
        let stag = [Stag(0x5555_5500), stags.source, stags.foreign, stags.sink][stag];
        let request = request(stag, offset, length);
        let bytes = fpdus(&[segment(&header.emit(), &request.emit())]);
        let (violation, terminate) = refused(&mut node, &bytes);
        assert_eq!(code(violation), (0, 1, wanted));
        assert_eq!(terminate.segment_length, Some(46));
        assert_eq!(terminate.header, Some(Ddp::Untagged(header)));
        assert_eq!(terminate.read_request, Some(request));
    }
}

/// Covers: RDM-07/S.
#[test]
fn a_read_request_is_one_segment_of_28_bytes() {
    let whole = untagged(0x41, 1, 1);
    for (header, length, wanted) in [
        (whole, 29, (1, 2, 5)),
        (whole, 27, (0, 2, 0xff)),
        (Untagged { last: false, ..whole }, 28, (1, 2, 5)),
        (Untagged { offset: 1, ..whole }, 28, (1, 2, 4)),
        (Untagged { msn: Msn(2), ..whole }, 28, (1, 2, 3)),
    ] {
        let bytes = segment(&header.emit(), &vec![0; length]);
        let (violation, _) = provoke(|_| vec![bytes.clone()]);
        assert_eq!(code(violation), wanted, "{header:?}");
    }
}

/// Covers: RDM-11/S.
#[test]
fn more_reads_than_agreed_find_no_buffer() {
    let ask = |msn| segment(&untagged(0x41, 1, msn).emit(), &request(Stag(0), 0, 0).emit());
    let (violation, _) = provoke(|_| (1..=5).map(ask).collect());
    assert_eq!((violation, code(violation)), (Violation::NoBuffer(QueueNumber(1)), (1, 2, 2)));
}

/// Covers: RDM-16/S.
#[test]
fn what_cannot_be_invalidated_ends_the_stream() {
    for stag in [0, 1] {
        let (violation, _) = provoke(|stags| {
            let invalidate = [Stag(0x5555_5500), stags.foreign][stag];
            let header = Untagged { invalidate, ..untagged(0x44, 0, 1) };
            vec![segment(&header.emit(), b"x")]
        });
        assert_eq!(code(violation), (0, 1, 9));
    }
}

#[test]
fn a_read_response_is_what_was_asked_for() {
    let asked = || {
        let (mut a, _) = pair();
        let sink = a.sink(8);
        a.post(1, read(sink, Stag(1), 0, 6));
        assert!(!a.output().is_empty());
        (a, sink)
    };
    let answer = |stag: Stag, offset, last, payload: &[u8]| {
        let header = Tagged { last, ..tagged(0x42, stag, BASE.0 + offset) };
        segment(&header.emit(), payload)
    };
    for (is_other, offset, last, payload, wanted) in [
        (true, 0, true, &b"123456"[..], (1, 1, 0)),
        (false, 1, true, b"123456", (1, 1, 1)),
        (false, 0, true, b"1234567", (1, 1, 1)),
        (false, 0, true, b"12345", (1, 1, 1)),
        (false, 0, false, b"1234567", (1, 1, 1)),
    ] {
        let (mut a, sink) = asked();
        let stag = if is_other { a.sink(8) } else { sink };
        let bytes = fpdus(&[answer(stag, offset, last, payload)]);
        assert_eq!(code(refused(&mut a, &bytes).0), wanted);
        assert_eq!((a.told(), a.bytes(sink)), (vec![('e', 0), ('f', 1)], vec![0; 8]));
    }
    let (mut a, sink) = asked();
    let good = fpdus(&[answer(sink, 0, true, b"123456")]);
    a.feed(&good);
    assert_eq!(a.told(), [('r', 1)]);
    assert_eq!(code(refused(&mut a, &good).0), (0, 2, 6), "nobody asked for a second one");
    let (mut a, sink) = asked();
    drop(a.regions.invalidate(sink));
    assert_eq!(refused(&mut a, &good).0, Violation::Placing(Denied::Stag));
}

/// Covers: MPA-07/S, MPA-12/S, MPA-29/S, MPA-30/S.
#[test]
fn fpdus_that_are_none_end_the_stream() {
    let good = fpdus(&[segment(&untagged(0x43, 0, 1).emit(), b"x")]);
    let mut bad = good.clone();
    bad[20] ^= 1;
    let (mut node, _) = prepared();
    let (violation, terminate) = refused(&mut node, &bad);
    assert_eq!((violation, code(violation)), (Violation::Crc, (2, 0, 2)));
    assert_eq!(terminate, bare(Cause::MPA_CRC), "no header of it can be trusted");
    assert_eq!(node.messages(), []);
    let (mut node, _) = prepared();
    assert_eq!(code(refused(&mut node, &[0, 13, 0, 0]).0), (2, 0, 3));
    let (violation, _) = provoke(|_| vec![vec![0x41; 17]]);
    assert_eq!(violation, Violation::UlpduLength(17), "too short for its own header");
    let framing = Framing { received: Markers::Sent, ..Framing::default() };
    let mut node = Node::new(Agreed { framing, ..agreed(Side::Responder) });
    let (violation, _) = refused(&mut node, &[0, 0, 0, 4]);
    assert_eq!(violation, Violation::Marker { wanted: 0, found: 4 });
    assert_eq!(code(violation), (2, 0, 3));
}

/// What is placed as it comes has not come before its CRC has been seen.
///
/// Covers: MPA-07/S.
#[test]
fn a_tagged_segment_with_a_wrong_crc_has_never_come() {
    for length in 1..=8 {
        for piece in [1, 3, 100] {
            for at in 16..16 + length + 4 {
                let (mut node, stag) = prepared_read();
                let header = Tagged { last: length == 8, ..tagged(0x42, stag, BASE.0) };
                let good = fpdus(&[segment(&header.emit(), &of_length(length))]);
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                bad.chunks(piece).for_each(|bytes| node.feed(bytes));
                let (violation, terminate) = refused(&mut node, &[]);
                assert_eq!((violation, terminate), (Violation::Crc, bare(Cause::MPA_CRC)));
                assert_eq!(node.told(), [('e', 0), ('f', 1)], "byte {at}");
                node.feed(&good);
                assert_eq!(node.told().len(), 2, "nothing after it");
            }
        }
    }
}

/// A node with an RDMA Read of eight bytes under way.
fn prepared_read() -> (Node, Stag) {
    let (mut node, _) = pair();
    let sink = node.sink(8);
    node.post(1, read(sink, Stag(1), 0, 8));
    assert!(!node.output().is_empty());
    (node, sink)
}

/// Covers: DDP-14/S.
#[test]
fn an_stag_that_ends_while_its_segment_comes_ends_the_stream() {
    let (mut node, stags) = prepared();
    let header = tagged(0x40, stags.sink, BASE.0);
    let bytes = fpdus(&[segment(&header.emit(), b"12345678")]);
    let (first, second) = bytes.split_at(20);
    node.feed(first);
    assert!(!node.qp.receiver.is_between() && node.qp.close().is_err());
    let withdrawn = node.regions.invalidate(stags.sink).expect("it is there");
    let Memory::Sink(buf) = withdrawn.memory else { panic!("a sink") };
    assert_eq!((&buf[..], withdrawn.filled), (&b"1234\0\0\0\0"[..], 4));
    let (violation, terminate) = refused(&mut node, second);
    assert_eq!(violation, Violation::Placing(Denied::Stag));
    assert_eq!(terminate.segment_length, Some(22));
    assert_eq!(terminate.header, Some(Ddp::Tagged(header)));
}

/// Covers: DDP-15/S, RDM-21/S.
#[test]
fn the_first_error_is_the_last_word() {
    let (mut node, stags) = prepared();
    node.post(5, send(b"never"));
    node.post(6, write(Stag(1), 0, b"never"));
    let wrong = fpdus(&[segment(&tagged(0x40, Stag(0x5555_5500), 0).emit(), b"x")]);
    let good = fpdus(&[segment(&tagged(0x40, stags.sink, BASE.0).emit(), b"x")]);
    let all = [&wrong[..], &good, &wrong].concat();
    let (violation, _) = refused(&mut node, &all);
    assert_eq!(violation, Violation::Placing(Denied::Stag));
    node.feed(&wrong);
    assert_eq!(node.output(), [], "nothing after a Terminate");
    assert_eq!(node.told(), [('e', 0), ('f', 5), ('f', 6), ('f', 1)]);
    assert_eq!(node.bytes(stags.sink), [0; 8]);
    let refused = node.qp.post_send(WorkId(7), send(b""), &node.regions).unwrap_err();
    assert_eq!(refused.refusal, Refusal::Ended);
    let buf = node.buf(1);
    assert!(node.qp.post_receive(WorkId(7), buf).is_err());
}
