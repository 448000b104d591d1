// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stations that do harm: floods, lies, silence, and frames in the name of others.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use clock::Instant;
use wire::ether::Body;
use wire::ether::ConnectionId;
use wire::ether::Data;
use wire::ether::Frame;
use wire::ether::Mac;
use wire::ether::Range;
use wire::ether::Sacks;
use wire::ether::Start;

use crate::Ended;
use crate::Endpoint;
use crate::Event;
use crate::limits::HALF_OPEN_MAX;
use crate::limits::HALF_OPEN_PATIENCE;
use crate::limits::OPEN_PATIENCE;
use crate::limits::RANGES_MAX;
use crate::limits::RING_BYTES;

const PEER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PAYLOAD: usize = 1400;
const WINDOW: u32 = 1 << 20;

fn start(from: u64, padding: u16) -> Start {
    Start { from: ConnectionId(from), payload_max: 1400, window: WINDOW, padding }
}

fn bytes(to: u64, to_acceptor: bool, body: Body<'_>) -> Vec<u8> {
    let frame = Frame { to: ConnectionId(to), to_acceptor, body };
    let mut bytes = frame.header().bytes().to_vec();
    match body {
        Body::Data(data) => bytes.extend_from_slice(data.payload),
        Body::Open(start) | Body::Accept(start) => {
            bytes.resize(bytes.len() + usize::from(start.padding), 0);
        }
        Body::Reset { .. } => {}
    }
    bytes
}

fn nothing() -> Data<'static> {
    let (sacks, payload) = (Sacks::default(), &[][..]);
    let (sequence, acknowledged, fin, probe) = (0, 0, false, false);
    Data { sequence, acknowledged, window: WINDOW, fin, probe, sacks, payload }
}

/// What an endpoint sends now: to whom, how long, and what.
fn sent(endpoint: &mut Endpoint, now: Instant) -> Vec<(Mac, Vec<u8>)> {
    let mut sent = Vec::new();
    while let Some(due) = endpoint.poll_transmit(now) {
        let [first, second] = due.payload;
        sent.push((due.to, [due.header.bytes(), first, second].concat()));
    }
    sent
}

fn knock(endpoint: &mut Endpoint, from: Mac, theirs: u64, ours: u64, now: Instant) {
    let open = bytes(0, true, Body::Open(start(theirs, 1400)));
    if let Some(asked) = endpoint.handle_frame(from, &open, now) {
        endpoint.accept(asked, ConnectionId(ours), now);
    }
}

/// An acceptor with one connection that stands, which it calls 2 and the peer 1.
fn acceptor() -> Endpoint {
    let (mut endpoint, now) = (Endpoint::new(PAYLOAD).accepting(), Instant(1));
    knock(&mut endpoint, PEER, 1, 2, now);
    endpoint.handle_frame(PEER, &bytes(2, true, Body::Data(nothing())), now);
    assert_eq!(endpoint.poll_event(), Some(Event::Accepted(ConnectionId(2), PEER)));
    sent(&mut endpoint, now);
    endpoint
}

fn ended(endpoint: &mut Endpoint) -> Option<Ended> {
    core::iter::from_fn(|| endpoint.poll_event()).find_map(|event| match event {
        Event::Ended(_, why) => Some(why),
        _ => None,
    })
}

const fn stranger(number: u64) -> Mac {
    let [.., a, b, c] = number.to_be_bytes();
    Mac([2, 9, 9, a, b, c])
}

/// A flood of Opens from stations that are not there takes no more than there is for those that
/// have not shown that they hear, and keeps nobody out who answers.
#[test]
fn a_flood_from_many_stations_keeps_nobody_out() {
    let (mut endpoint, mut now) = (Endpoint::new(PAYLOAD).accepting(), Instant(1));
    for number in 0..20_000 {
        now = now + Duration::from_micros(10);
        knock(&mut endpoint, stranger(number), 7, 1_000_000 + number, now);
        endpoint.check();
        assert!(endpoint.len() <= HALF_OPEN_MAX);
    }
    sent(&mut endpoint, now);
    now = now + Duration::from_micros(10);
    knock(&mut endpoint, PEER, 1, 2, now);
    // A round trip later.
    for number in 0..HALF_OPEN_MAX as u64 - 1 {
        now = now + Duration::from_micros(10);
        knock(&mut endpoint, stranger(number), 8, 2_000_000 + number, now);
    }
    endpoint.handle_frame(PEER, &bytes(2, true, Body::Data(nothing())), now);
    assert_eq!(endpoint.poll_event(), Some(Event::Accepted(ConnectionId(2), PEER)));
    endpoint.handle_timeout(now + HALF_OPEN_PATIENCE + HALF_OPEN_PATIENCE);
    assert_eq!(endpoint.len(), 1, "nothing is left of them");
}

/// One station that asks for connections without end takes the places of its own.
#[test]
fn a_flood_from_one_station_takes_its_own_places() {
    let (mut endpoint, mut now) = (Endpoint::new(PAYLOAD).accepting(), Instant(1));
    knock(&mut endpoint, PEER, 1, 2, now);
    for number in 0..10_000 {
        now = now + Duration::from_micros(10);
        knock(&mut endpoint, stranger(0), 7 + number, 1_000_000 + number, now);
    }
    assert_eq!(endpoint.len(), HALF_OPEN_MAX);
    endpoint.handle_frame(PEER, &bytes(2, true, Body::Data(nothing())), now);
    assert_eq!(endpoint.poll_event(), Some(Event::Accepted(ConnectionId(2), PEER)));
}

/// Who sends in the name of another one cannot have more sent to that one than it sent itself, but
/// for a small number of times.
#[test]
fn an_open_is_answered_by_no_more_than_it_brought() {
    let (mut endpoint, mut now) = (Endpoint::new(9000).accepting(), Instant(1));
    let open = bytes(0, true, Body::Open(Start { payload_max: 9000, ..start(1, 300) }));
    let asked = endpoint.handle_frame(PEER, &open, now).unwrap();
    endpoint.accept(asked, ConnectionId(2), now);
    let mut answered = 0;
    for _ in 0..100 {
        answered += sent(&mut endpoint, now).iter().map(|(_, frame)| frame.len()).sum::<usize>();
        now = now + Duration::from_millis(100);
        endpoint.handle_timeout(now);
    }
    assert!((open.len()..=3 * open.len()).contains(&answered), "{answered} for {}", open.len());
    // One that shows nothing of the path is none.
    let open = bytes(0, true, Body::Open(Start { payload_max: 9000, ..start(2, 0) }));
    assert!(endpoint.handle_frame(PEER, &open, now).is_none());
}

/// A reset that names no connection ends none, also of those that the peer has not named yet.
#[test]
fn a_reset_of_who_knows_no_id_ends_nothing() {
    let (mut endpoint, now) = (Endpoint::new(PAYLOAD), Instant(1));
    assert!(endpoint.open(PEER, ConnectionId(77), now));
    for (to, from) in [(0, 0), (0, 1), (1, 0), (78, 77)] {
        let reset = bytes(to, false, Body::Reset { from: ConnectionId(from) });
        endpoint.handle_frame(PEER, &reset, now);
        assert_eq!(endpoint.poll_event(), None, "to {to} from {from}");
    }
    let reset = bytes(77, false, Body::Reset { from: ConnectionId(0) });
    endpoint.handle_frame(stranger(1), &reset, now);
    assert_eq!(endpoint.poll_event(), None, "of another station");
    endpoint.handle_frame(PEER, &reset, now);
    assert_eq!(ended(&mut endpoint), Some(Ended::Refused));

    let mut endpoint = acceptor();
    for (to, from) in [(0, 0), (2, 0), (2, 3), (1, 2), (0, 2)] {
        let reset = bytes(to, true, Body::Reset { from: ConnectionId(from) });
        endpoint.handle_frame(PEER, &reset, now);
        assert_eq!(endpoint.poll_event(), None, "to {to} from {from}");
    }
    let reset = bytes(2, true, Body::Reset { from: ConnectionId(1) });
    endpoint.handle_frame(PEER, &reset, now);
    assert_eq!(ended(&mut endpoint), Some(Ended::Reset));
}

/// What is acknowledged and was never sent ends the connection, and nothing else does.
#[test]
fn lies_end_a_connection_or_change_nothing() {
    let sacks = |start, end| {
        let mut sacks = Sacks::default();
        sacks.push(Range { start, end });
        sacks
    };
    let lies: [(Data<'_>, Option<Ended>); 7] = [
        (Data { acknowledged: 1, ..nothing() }, Some(Ended::Violation)),
        (Data { acknowledged: u64::MAX, ..nothing() }, Some(Ended::Violation)),
        (Data { sacks: sacks(5, 9), ..nothing() }, Some(Ended::Violation)),
        (Data { window: u32::MAX, ..nothing() }, None),
        (Data { window: 0, ..nothing() }, None),
        (Data { sequence: u64::from(u32::MAX), payload: &[1; 1400], ..nothing() }, None),
        (Data { sequence: RING_BYTES as u64 - 1, payload: &[1; 2], ..nothing() }, None),
    ];
    for (number, (lie, fate)) in lies.into_iter().enumerate() {
        let (mut endpoint, now) = (acceptor(), Instant(2));
        endpoint.handle_frame(PEER, &bytes(2, true, Body::Data(lie)), now);
        endpoint.check();
        assert_eq!(ended(&mut endpoint), fate, "lie {number}");
        assert!(endpoint.readable(ConnectionId(2)).is_empty());
        let frames = sent(&mut endpoint, now).len();
        assert!(frames <= 1, "lie {number} is answered by {frames} frames");
    }
}

/// A window that is said to be larger than any is not filled beyond what we keep of a stream.
#[test]
fn a_window_without_end_takes_no_more_than_a_ring() {
    let (mut endpoint, mut now) = (acceptor(), Instant(2));
    let id = ConnectionId(2);
    let told = bytes(2, true, Body::Data(Data { window: u32::MAX, ..nothing() }));
    endpoint.handle_frame(PEER, &told, now);
    let mut put = 0;
    for _ in 0..2000 {
        let room = endpoint.room(id).len();
        endpoint.filled(id, room);
        put += room;
        sent(&mut endpoint, now);
        now = now + Duration::from_millis(1);
        endpoint.handle_timeout(now);
        endpoint.check();
    }
    assert_eq!(put, RING_BYTES);
}

/// A peer that answers and never reads keeps its connection, one ring of it, and is asked ever less
/// often.
#[test]
fn who_never_reads_costs_a_ring_and_a_frame_now_and_then() {
    let (mut endpoint, mut now) = (Endpoint::new(PAYLOAD).accepting(), Instant(1));
    let open = bytes(0, true, Body::Open(Start { window: 0, ..start(1, 1400) }));
    let asked = endpoint.handle_frame(PEER, &open, now).unwrap();
    endpoint.accept(asked, ConnectionId(2), now);
    let id = ConnectionId(2);
    let deaf = bytes(2, true, Body::Data(Data { window: 0, ..nothing() }));
    endpoint.handle_frame(PEER, &deaf, now);
    assert_eq!(endpoint.poll_event(), Some(Event::Accepted(id, PEER)));
    let mut frames = 0;
    for second in 0..600 {
        let room = endpoint.room(id).len();
        endpoint.filled(id, room);
        endpoint.handle_frame(PEER, &deaf, now);
        let count = sent(&mut endpoint, now).len();
        frames += if second < 60 { 0 } else { count };
        now = now + Duration::from_secs(1);
        endpoint.handle_timeout(now);
        assert!(endpoint.poll_event().is_none());
    }
    assert!(frames < 2 * 600, "{frames} frames in nine minutes");
}

/// Pieces of one byte with gaps between fill a table, not memory; what fills a gap is taken.
#[test]
fn crumbs_are_bounded() {
    let (mut endpoint, now) = (acceptor(), Instant(2));
    for at in 0..10 * RANGES_MAX as u64 {
        let crumb = Data { sequence: 2 * at + 1, payload: &[7], ..nothing() };
        endpoint.handle_frame(PEER, &bytes(2, true, Body::Data(crumb)), now);
        endpoint.check();
    }
    assert!(sent(&mut endpoint, now).len() <= 1, "many frames, one answer");
    let first = vec![7; 2 * RANGES_MAX];
    let first = Data { sequence: 0, payload: &first, ..nothing() };
    endpoint.handle_frame(PEER, &bytes(2, true, Body::Data(first)), now);
    assert_eq!(endpoint.readable(ConnectionId(2)).len(), 2 * RANGES_MAX);
}

/// A flood of frames for connections that are not there has few answers.
#[test]
fn strays_have_few_answers() {
    let (mut endpoint, now) = (acceptor(), Instant(2));
    for number in 0..10_000 {
        let stray = bytes(100 + number, true, Body::Data(nothing()));
        endpoint.handle_frame(stranger(number), &stray, now);
        endpoint.check();
    }
    assert_eq!(endpoint.stats().strays, 10_000);
    let answers = sent(&mut endpoint, now);
    assert!(answers.len() <= crate::limits::STRAYS_MAX, "{}", answers.len());
    assert!(answers.iter().all(|(_, answer)| answer.len() == wire::ether::HEADER_LEN));
}

/// An acceptor that answers in the name of another one is not believed; one that offers frames too
/// short to be of use is left.
#[test]
fn an_opener_believes_who_it_has_asked() {
    let (mut endpoint, now) = (Endpoint::new(PAYLOAD), Instant(1));
    endpoint.open(PEER, ConnectionId(77), now);
    let accept = bytes(77, false, Body::Accept(start(5, 1400)));
    endpoint.handle_frame(stranger(1), &accept, now);
    assert_eq!(endpoint.poll_event(), None);
    let tiny = bytes(77, false, Body::Accept(Start { payload_max: 1, ..start(5, 0) }));
    endpoint.handle_frame(PEER, &tiny, now);
    assert_eq!(ended(&mut endpoint), Some(Ended::Violation));
    endpoint.handle_timeout(now + OPEN_PATIENCE + OPEN_PATIENCE);
    assert!(endpoint.figures(ConnectionId(77)).is_none());
}
