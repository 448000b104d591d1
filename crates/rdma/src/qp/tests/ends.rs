// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How connections end.

use super::*;

/// Covers: RDM-24/S, RDM-25/S.
#[test]
fn a_terminate_ends_the_stream_and_is_never_answered() {
    let good = bare(Cause::REMOTE_BOUNDS).emit();
    let wrong_headers = [0x11, 0, 0xe0, 0, 0, 9, 0x41];
    for (msn, payload, wanted) in [
        (1, &good[..], Some(Cause::REMOTE_BOUNDS)),
        (9, &good, Some(Cause::REMOTE_BOUNDS)),
        (1, &wrong_headers, None),
        (1, b"", None),
    ] {
        let (mut a, _) = pair();
        a.receive(1, 16);
        a.post(2, send(b"never"));
        a.feed(&fpdus(&[segment(&untagged(0x47, 2, msn).emit(), payload)]));
        assert_eq!(a.qp.ended(), Some(End::ByPeer(wanted)));
        assert_eq!(a.output(), []);
        assert_eq!(a.told(), [('e', 0), ('f', 2), ('f', 1)]);
    }
}

/// Covers: RDM-22/S.
#[test]
fn a_terminate_goes_alone_on_its_queue() {
    let (mut a, mut b) = pair();
    a.qp.set_segment_len(0);
    a.post(1, send(b"before"));
    b.receive(1, 16);
    let bytes = a.output();
    b.feed(&bytes);
    a.qp.terminate(Cause::REMOTE_ACCESS);
    let segments = a.segments();
    let wanted = segment(&untagged(0x47, 2, 1).emit(), &[0x01, 0x02, 0, 0]);
    assert_eq!(segments, [wanted]);
    b.feed(&fpdus(&segments));
    assert_eq!(b.qp.ended(), Some(End::ByPeer(Some(Cause::REMOTE_ACCESS))));
    let vector = [
        0x00, 0x16, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0x41,
        0x08, 0x2a, 0xc0,
    ];
    let (mut c, _) = pair();
    c.qp.terminate(Cause::REMOTE_INVALID_STAG);
    assert_eq!(c.output(), vector);
}

/// Covers: RDM-27/S, MPE-11/I.
#[test]
fn what_fails_with_us_is_told() {
    for cause in [Cause::CATASTROPHIC_STREAM, Cause::CATASTROPHIC_GLOBAL, Cause::MPA_LOCAL] {
        let (mut a, mut b) = pair();
        a.post(1, send(b"never"));
        a.qp.terminate(cause);
        exchange(&mut a, &mut b, 3);
        assert_eq!(a.qp.ended(), Some(End::Local(cause)));
        assert_eq!(b.qp.ended(), Some(End::ByPeer(Some(cause))));
        assert_eq!(a.told(), [('e', 0), ('f', 1)]);
    }
}

/// Covers: RDM-26/S, DDP-17/S.
#[test]
fn closing_waits_for_what_is_pending() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.sink(8), b.source(b"12345678"));
    b.receive(1, 16);
    a.post(1, send(b"last"));
    a.post(2, read(sink, source, 0, 8));
    assert_eq!(a.qp.close(), Err(Pending), "posted");
    let mut list = SgList::new();
    assert!(a.qp.poll_transmit(&mut list));
    assert_eq!(a.qp.close(), Err(Pending), "with the transport");
    a.qp.handle_sent();
    assert_eq!(a.qp.close(), Err(Pending), "a Read is under way");
    let bytes = list.to_vec();
    b.feed(&bytes[..10]);
    assert_eq!(b.qp.close(), Err(Pending), "half an FPDU");
    b.feed(&bytes[10..]);
    assert_eq!(b.qp.close(), Err(Pending), "a Read is to be answered");
    let answer = b.output();
    a.feed(&answer);
    assert_eq!(a.qp.close(), Ok(()));
    assert_eq!(a.qp.close(), Err(Pending), "once");
    assert!(a.qp.post_send(WorkId(3), send(b""), &a.regions).is_err());
    a.collect();
    assert_eq!(a.told(), [('s', 1), ('r', 2), ('c', 0)]);
    b.qp.handle_shut();
    a.qp.handle_shut();
    assert_eq!([a.qp.ended(), b.qp.ended()], [Some(End::Closed); 2]);
    assert_eq!(b.messages(), [(1, b"last".to_vec())]);
}

/// Covers: MPA-28/S, MPA-29/S.
#[test]
fn a_shut_connection_is_over_in_both_directions() {
    let (mut a, mut b) = pair();
    a.receive(1, 16);
    a.qp.handle_shut();
    a.collect();
    assert_eq!((a.qp.ended(), a.told()), (Some(End::Closed), vec![('e', 0), ('f', 1)]));
    assert!(a.qp.post_send(WorkId(2), send(b"late"), &a.regions).is_err());
    assert_eq!(a.output(), []);
    b.receive(1, 16);
    b.feed(&[0]);
    b.qp.handle_shut();
    b.collect();
    assert_eq!(b.qp.ended(), Some(End::Violated(Violation::Lost)), "in the middle");
    assert_eq!(Violation::Lost.cause(), Cause { layer: 2, kind: 0, code: 1 });
    assert_eq!(b.output(), [], "nobody is there to be told");
    let (mut c, _) = pair();
    c.post(1, send(b"never"));
    c.qp.handle_lost();
    c.collect();
    assert_eq!(c.told(), [('e', 0), ('f', 1)]);
    c.qp.handle_lost();
    c.qp.handle_shut();
    c.qp.terminate(Cause::RDMAP_LOCAL);
    c.collect();
    assert_eq!(c.qp.ended(), Some(End::Violated(Violation::Lost)), "the first reason stays");
    assert_eq!(c.told().len(), 2);
}

#[test]
fn who_goes_on_after_our_end_is_cut_off() {
    for (header, payload) in [
        (untagged(0x43, 0, 1).emit().to_vec(), &b"late"[..]),
        (tagged(0x40, Stag(0), 0).emit().to_vec(), b""),
    ] {
        let (mut a, _) = pair();
        a.receive(1, 16);
        assert_eq!(a.qp.close(), Ok(()));
        a.feed(&fpdus(&[segment(&header, payload)]));
        assert_eq!(a.qp.ended(), Some(End::Violated(Violation::Lost)));
        assert_eq!((a.output(), a.messages()), (vec![], vec![]));
    }
    let (mut a, _) = pair();
    assert_eq!(a.qp.close(), Ok(()));
    a.feed(&[0, 0]);
    assert_eq!(a.qp.ended(), Some(End::Violated(Violation::UlpduLength(0))));
    assert_eq!(a.output(), [], "our sending side is shut");
}
