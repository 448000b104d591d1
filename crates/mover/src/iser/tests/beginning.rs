// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A byte stream that goes on with RDMA after its login, and the Hello that may come first there
//! (RFC 7145 §5.1).

use super::*;
use crate::iser::stream::Arrival;
use crate::iser::stream::Stream;
use iscsi::datamover::StreamViolation;
use rdma::mpa::Checks;
use rdma::verbs::Head;
use wire::iser::ISER_VERSION;
use wire::iser::IserHeader;
use wire::iwarp::Cause;

const LEFT: &[u8] = b"the last login response";

/// An initiator's end without manners, and the target that it speaks to.
struct Peer {
    pool: Pool,
    stream: Stream,
    far: Target,
    /// What the target has sent before its MPA reply.
    before: Vec<u8>,
}

impl Peer {
    fn new(hello: bool) -> Self {
        let pool = Pool::new(16 << 20).unwrap();
        let mut far = Target::of_login(&pool, 1).unwrap();
        far.follow(LEFT.to_vec(), target::Keys { hello, ..target::Keys::LOGIN });
        let stream = Stream::initiator(pool.take(16 << 10).unwrap(), 2, Checks::Crc);
        Self { stream, pool, far, before: Vec::new() }
    }

    /// Carries bytes both ways until there are none; what the target tells, and what it has sent.
    fn exchange(&mut self) -> (Vec<target::Event>, Vec<IserHeader>) {
        let (mut events, mut headers) = (Vec::new(), Vec::new());
        loop {
            let (mut out, mut back) = (SgList::new(), SgList::new());
            let to_near = self.far.poll_transmit(&mut back);
            let to_far = self.stream.poll_transmit(&mut out);
            if !to_near && !to_far {
                return (events, headers);
            }
            if to_far {
                self.stream.handle_sent();
                let bytes = out.to_vec();
                let mut rest = &bytes[..];
                while !rest.is_empty() || self.far.has_more() {
                    let (taken, event) = self.far.feed(rest, &self.pool);
                    rest = &rest[taken..];
                    events.extend(event);
                }
            }
            if to_near {
                self.far.handle_sent();
                let bytes = back.to_vec();
                let mut rest = &bytes[..];
                if self.before.is_empty() {
                    let (left, others) = rest.split_at(LEFT.len());
                    self.before = left.to_vec();
                    rest = others;
                }
                while !rest.is_empty() {
                    let (taken, arrival) = self.stream.feed(rest, || None);
                    if matches!(arrival, Some(Arrival::Message { .. })) {
                        headers.extend(IserHeader::parse(self.stream.message(rest)));
                    }
                    rest = &rest[taken..];
                }
            }
        }
    }

    fn say(&mut self, parts: &[&[u8]]) -> (Vec<target::Event>, Vec<IserHeader>) {
        self.exchange();
        self.stream.send(Head::of(parts).unwrap(), Slice::empty(), None);
        self.exchange()
    }
}

fn command_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    command(TASK, true, 0).emit(0, &mut bytes);
    bytes
}

/// Covers: ISC-06, DAP-06/T.
#[test]
fn what_is_left_of_the_login_goes_out_first_and_no_login_follows() {
    let mut peer = Peer::new(false);
    let (events, headers) = peer.say(&[&IserHeader::PLAIN.emit(), &command_bytes()]);
    assert_eq!(peer.before, LEFT);
    assert!(matches!(events[..], [target::Event::Control { .. }]), "{events:?}");
    assert!(headers.is_empty());
}

fn hello(max_version: u8, min_version: u8, ird: u16) -> [u8; 28] {
    IserHeader::Hello { max_version, min_version, ird }.emit()
}

/// Covers: ISC-09, ISC-10, ISC-11, ISC-13/T.
#[test]
fn a_hello_is_answered_where_it_was_announced() {
    let (max_version, version) = (ISER_VERSION, ISER_VERSION);
    for (max, min, rejected) in [(10, 10, false), (15, 1, false), (11, 11, true), (9, 1, true)] {
        let mut peer = Peer::new(true);
        let (events, headers) = peer.say(&[&hello(max, min, 1)]);
        let reply = IserHeader::HelloReply { rejected, max_version, version, ord: 1 };
        assert_eq!(headers, [reply]);
        let is_over = StreamViolation::Rdma(None);
        match &events[..] {
            [] => assert!(!rejected),
            [target::Event::Violation(found)] => assert!(rejected && *found == is_over),
            other => panic!("{other:?}"),
        }
    }
    let wrong = StreamViolation::Rdma(Some(Cause::UNEXPECTED_OPCODE));
    let mut peer = Peer::new(true);
    let (events, _) = peer.say(&[&IserHeader::PLAIN.emit(), &command_bytes()]);
    assert!(matches!(events[..], [target::Event::Violation(found)] if found == wrong), "missing");
    let mut peer = Peer::new(false);
    let (events, _) = peer.say(&[&hello(10, 10, 1)]);
    assert!(matches!(events[..], [target::Event::Violation(found)] if found == wrong), "unasked");
}

/// Covers: ISC-11, ISF-08.
#[test]
fn as_many_reads_are_under_way_as_the_hello_allows() {
    for (served, failed) in [(1, 0), (2, 0), (0, 4)] {
        let (reads, events) = reads_under_way(served);
        assert_eq!((reads, events.len()), (served.into(), failed), "{events:?}");
        assert!(events.iter().all(|event| matches!(event, target::Event::DataFailed { .. })));
    }
}

/// Of four RDMA Reads of an initiator that serves so many, and what becomes of the others.
fn reads_under_way(served: u16) -> (usize, Vec<target::Event>) {
    let mut peer = Peer::new(true);
    peer.say(&[&hello(10, 10, served)]);
    let memory = wire::iser::Advertised::default();
    let header = IserHeader::Control { write: Some(memory), read: None };
    let mut pdu = Vec::new();
    command(TASK, false, 8192).emit(0, &mut pdu);
    peer.say(&[&header.emit(), &pdu]);
    let buf = peer.pool.take(8192).unwrap();
    peer.far.submit(target::Op::Attach { task: TASK, buf });
    (0..4).for_each(|at| drop(peer.far.submit(get(at * 2048, 2048))));
    let mut list = SgList::new();
    while peer.far.poll_transmit(&mut list) {
        peer.far.handle_sent();
    }
    (peer.far.reads(), core::iter::from_fn(|| peer.far.poll_event()).collect())
}

/// The request is that of Linux's ib_iser over siw, as recorded, which asks for no CRC.
#[test]
fn whether_there_are_crcs_is_the_initiators_choice() {
    for crc in [0, 0x40] {
        let pool = Pool::new(16 << 20).unwrap();
        let mut far = Target::of_stranger(2);
        let frame = |key: &[u8], depths: [u8; 4]| {
            [key, &[0x10 | crc, 2, 0, 8], &depths, &[0x80, 0, 0, 0]].concat()
        };
        let request = frame(b"MPA ID Req Frame", [0, 0x80, 0, 1]);
        let (taken, event) = far.feed(&request, &pool);
        assert!(taken == request.len() && event.is_none());
        let mut out = SgList::new();
        assert!(far.poll_transmit(&mut out));
        assert_eq!(out.to_vec(), frame(b"MPA ID Rep Frame", [0, 1, 0, 0x80]));
    }
}

/// What the login of a connection that joins has agreed on is its own alone; what its session has
/// comes behind it.
#[test]
fn a_connection_that_joins_begins_as_its_session_does() {
    let mut peer = Peer::new(false);
    peer.far.submit(target::Op::NoticeKeys(target::Keys { hello: true, ..target::Keys::LOGIN }));
    let (events, headers) = peer.say(&[&hello(10, 10, 1)]);
    assert!(events.is_empty(), "{events:?}");
    assert!(matches!(headers[..], [IserHeader::HelloReply { rejected: false, .. }]));
}

/// The last response of the login has not left when the first bytes of MPA are here.
///
/// Covers: ISC-05, MPA-26.
#[test]
fn a_target_is_ready_before_the_last_response_leaves() {
    let mut peer = Peer::new(false);
    let mut asked = SgList::new();
    assert!(peer.stream.poll_transmit(&mut asked));
    peer.stream.handle_sent();
    let asked = asked.to_vec();
    let (taken, event) = peer.far.feed(&asked, &peer.pool);
    assert!(taken == asked.len() && event.is_none());
    let (events, headers) = peer.say(&[&IserHeader::PLAIN.emit(), &command_bytes()]);
    assert_eq!(peer.before, LEFT);
    assert!(matches!(events[..], [target::Event::Control { .. }]), "{events:?}");
    assert!(headers.is_empty());
}
