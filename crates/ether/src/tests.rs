// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two endpoints over a wire that loses, doubles, delays and reorders, in virtual time.

use alloc::vec::Vec;
use core::time::Duration;

use clock::Instant;
use proptest::prelude::*;
use wire::ether::Body;
use wire::ether::ConnectionId;
use wire::ether::Data;
use wire::ether::Frame;
use wire::ether::Mac;
use wire::ether::Sacks;
use wire::ether::Start;

use crate::Ended;
use crate::Endpoint;
use crate::Event;
use crate::limits::CONNECTIONS_MAX;
use crate::limits::HALF_OPEN_MAX;
use crate::limits::HALF_OPEN_PATIENCE;
use crate::limits::LINGER;
use crate::limits::OPEN_PATIENCE;
use crate::limits::PAYLOAD_MAX;
use crate::limits::RING_BYTES;
use crate::limits::SILENCE_MAX;

const OPENER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const ACCEPTOR: Mac = Mac([2, 0, 0, 0, 0, 2]);
const FAR: Duration = Duration::from_secs(600);

/// SplitMix64.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.below(count) == 0
    }
}

/// One frame in so many, zero: none; delays in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lost: u64,
    doubled: u64,
    late: u64,
    late_us: u64,
    longest: usize,
}

struct World {
    ends: [Endpoint; 2],
    /// When, at which end, and what.
    under_way: Vec<(Instant, usize, Vec<u8>)>,
    faults: Faults,
    draws: Draws,
    now: Instant,
    events: [Vec<Event>; 2],
    carried: u64,
}

impl World {
    fn new(seed: u64, faults: Faults, payload_max: usize) -> Self {
        Self {
            ends: [Endpoint::new(payload_max), Endpoint::new(payload_max).accepting()],
            under_way: Vec::new(),
            faults,
            draws: Draws(seed),
            now: Instant(1),
            events: [Vec::new(), Vec::new()],
            carried: 0,
        }
    }

    /// Sends all that is due.
    fn flush(&mut self) {
        for end in 0..2 {
            while let Some(due) = self.ends[end].poll_transmit(self.now) {
                let mut bytes = due.header.bytes().to_vec();
                due.payload.iter().for_each(|piece| bytes.extend_from_slice(piece));
                if due.to != [ACCEPTOR, OPENER][end] {
                    continue;
                }
                let Faults { lost, doubled, late, late_us, longest } = self.faults;
                self.carried += 1;
                if self.draws.one_in(lost) || longest > 0 && bytes.len() > longest {
                    continue;
                }
                let copies = if self.draws.one_in(doubled) { 2 } else { 1 };
                for _ in 0..copies {
                    let more = if self.draws.one_in(late) { self.draws.below(late_us) } else { 0 };
                    let at = self.now + Duration::from_micros(20 + more);
                    self.under_way.push((at, 1 - end, bytes.clone()));
                }
            }
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push(event);
            }
            self.ends[end].check();
        }
    }

    /// To the next thing that happens; false if nothing does before `until`.
    fn step(&mut self, until: Instant) -> bool {
        self.flush();
        let next = self.under_way.iter().enumerate().min_by_key(|(index, one)| (one.0, *index));
        let frame = next.map(|(index, one)| (one.0, index));
        let timers = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
        let at = [frame.map(|(at, _)| at), timers].into_iter().flatten().min();
        let Some(at) = at.filter(|at| *at <= until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(at);
        if let Some((_, index)) = frame.filter(|(at, _)| *at <= self.now) {
            let (_, end, bytes) = self.under_way.remove(index);
            let id = ConnectionId(self.draws.next() | 1);
            if let Some(asked) =
                self.ends[end].handle_frame([ACCEPTOR, OPENER][end], &bytes, self.now)
            {
                self.ends[end].accept(asked, id, self.now);
            }
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        self.flush();
        true
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    /// A connection that stands: what each end calls it.
    fn connect(&mut self) -> [ConnectionId; 2] {
        self.try_connect().expect("it is accepted")
    }

    /// None: what the opener says without data was lost as often as it is asked for.
    fn try_connect(&mut self) -> Option<[ConnectionId; 2]> {
        let id = ConnectionId(self.draws.next() | 1);
        assert!(self.ends[0].open(ACCEPTOR, id, self.now));
        let until = self.now + OPEN_PATIENCE;
        while !self.events[0].contains(&Event::Opened(id)) {
            assert!(self.step(until), "it does not open: {:?}", self.events);
        }
        loop {
            let accepted = self.events[1].iter().rev().find_map(|event| match event {
                Event::Accepted(id, OPENER) => Some(*id),
                _ => None,
            });
            if let Some(theirs) = accepted {
                return Some([id, theirs]);
            }
            if !self.step(until) {
                return None;
            }
        }
    }

    fn ended(&self, end: usize) -> Option<Ended> {
        self.events[end].iter().find_map(|event| match event {
            Event::Ended(_, why) => Some(*why),
            _ => None,
        })
    }
}

/// The byte of a stream at an offset.
const fn byte(end: usize, at: u64) -> u8 {
    let [first, ..] = at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    if end == 0 { first } else { !first }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Both ends send so many bytes, in pieces, and read what comes, in pieces; then all is over.
fn converse(world: &mut World, ids: [ConnectionId; 2], lens: [u64; 2]) {
    let (mut written, mut read) = ([0_u64; 2], [0_u64; 2]);
    let until = world.now + FAR;
    while world
        .events
        .iter()
        .any(|events| !events.iter().any(|one| matches!(one, Event::Ended(..))))
    {
        for end in 0..2 {
            let (id, now) = (ids[end], world.now);
            let endpoint = &mut world.ends[end];
            let room = endpoint.room(id);
            let most = 1 + world.draws.below(200_000);
            let len = most.min(room.len() as u64).min(lens[end] - written[end]);
            for (index, place) in room.iter_mut().take(size(len)).enumerate() {
                *place = byte(end, written[end] + index as u64);
            }
            endpoint.filled(id, size(len));
            written[end] += len;
            if written[end] == lens[end] && !endpoint.is_finished(id) {
                endpoint.finish(id, now);
            }
            if world.draws.one_in(3) {
                continue;
            }
            let bytes = endpoint.readable(id);
            let len = bytes.len().min(1 + size(world.draws.below(300_000)));
            for (index, have) in bytes.iter().take(len).enumerate() {
                assert_eq!(*have, byte(1 - end, read[end] + index as u64), "at {}", read[end]);
            }
            endpoint.consume(id, len, now);
            read[end] += len as u64;
        }
        assert!(world.step(until), "it does not end: {written:?} {read:?} {:?}", world.events);
    }
    assert_eq!(read, [lens[1], lens[0]], "{:?}", world.events);
    assert_eq!([world.ended(0), world.ended(1)], [Some(Ended::InOrder); 2]);
}

#[test]
fn a_good_wire_carries_all_without_a_word_too_many() {
    let mut world = World::new(1, Faults::default(), PAYLOAD_MAX);
    let ids = world.connect();
    converse(&mut world, ids, [4_000_000, 100]);
    let frames = 4_000_000 / PAYLOAD_MAX as u64;
    assert_eq!(world.ends[0].stats().resent, 0);
    assert!(world.carried < 3 * frames, "{} frames for {frames}", world.carried);
    world.run(LINGER + LINGER);
    assert!(world.ends.iter().all(Endpoint::is_empty), "nothing is left");
}

#[test]
fn a_bad_wire_carries_all() {
    for seed in 0..30 {
        let faults = Faults { lost: 50, doubled: 30, late: 10, late_us: 500, longest: 0 };
        let mut world = World::new(seed, faults, 1400);
        let ids = world.connect();
        converse(&mut world, ids, [1_500_000, 700_000]);
    }
}

#[test]
fn a_wire_that_loses_every_third_frame_carries_all() {
    for seed in 0..10 {
        let faults = Faults { lost: 3, doubled: 5, late: 2, late_us: 3000, longest: 0 };
        let mut world = World::new(seed, faults, 1400);
        let id = ConnectionId(seed + 1);
        world.ends[0].open(ACCEPTOR, id, world.now);
        world.run(OPEN_PATIENCE);
        let Some(Event::Accepted(theirs, _)) = world.events[1].first().copied() else { continue };
        converse(&mut world, [id, theirs], [50_000, 50_000]);
    }
}

/// What loss costs: not a time-out for each.
#[test]
fn losses_are_mended_without_time_outs() {
    let faults = Faults { lost: 100, ..Faults::default() };
    let mut world = World::new(3, faults, 1400);
    let ids = world.connect();
    let begin = world.now;
    converse(&mut world, ids, [3_000_000, 0]);
    let took = world.now.since(begin);
    assert!(world.ends[0].stats().resent < 100, "{:?}", world.ends[0].stats());
    assert!(took < Duration::from_millis(300), "{took:?}");
}

#[test]
fn a_path_without_jumbo_frames_has_shorter_ones() {
    let faults = Faults { longest: 1500, ..Faults::default() };
    let mut world = World::new(1, faults, PAYLOAD_MAX);
    let ids = world.connect();
    converse(&mut world, ids, [300_000, 300_000]);
}

#[test]
fn a_reader_who_stops_stops_the_sender_and_may_go_on() {
    let mut world = World::new(1, Faults { lost: 20, ..Faults::default() }, 1400);
    let [ours, theirs] = world.connect();
    for _ in 0..10 {
        let len = world.ends[0].room(ours).len();
        world.ends[0].filled(ours, len);
        world.run(Duration::from_secs(3));
    }
    assert_eq!(world.ends[1].readable(theirs).len(), RING_BYTES);
    assert_eq!(world.ends[0].room(ours).len(), 0);
    let (now, half) = (world.now, RING_BYTES / 2);
    world.ends[1].consume(theirs, half, now);
    world.run(Duration::from_secs(3));
    assert_eq!(world.ends[0].room(ours).len(), half);
    assert_eq!([world.ended(0), world.ended(1)], [None; 2]);
}

#[test]
fn an_end_that_is_gone_is_noticed() {
    let mut world = World::new(1, Faults::default(), 1400);
    let ids = world.connect();
    world.run(Duration::from_secs(60));
    assert_eq!(world.ended(0), None, "who is silent and there stays");
    world.faults.lost = 1;
    world.run(SILENCE_MAX + Duration::from_secs(1));
    assert_eq!([world.ended(0), world.ended(1)], [Some(Ended::Silent); 2]);
    world.run(LINGER + LINGER);
    assert!(world.ends.iter().all(Endpoint::is_empty));
    let _ = ids;
}

#[test]
fn a_station_that_begins_anew_says_so() {
    let mut world = World::new(1, Faults::default(), 1400);
    let [ours, _] = world.connect();
    world.ends[1] = Endpoint::new(1400).accepting();
    world.ends[0].filled(ours, 100);
    world.run(Duration::from_secs(1));
    assert_eq!(world.ended(0), Some(Ended::Reset));
    // An opener does not: somebody else may be at its address.
    let [_, theirs] = world.connect();
    world.ends[0] = Endpoint::new(1400);
    world.events = [Vec::new(), Vec::new()];
    world.ends[1].filled(theirs, 100);
    world.run(Duration::from_secs(1));
    assert_eq!(world.ended(1), None);
    world.run(Duration::from_secs(40));
    assert_eq!(world.ended(1), Some(Ended::Silent));
}

#[test]
fn a_connection_is_aborted_and_the_peer_hears() {
    let mut world = World::new(1, Faults::default(), 1400);
    let [ours, _] = world.connect();
    let now = world.now;
    world.ends[0].abort(ours, now);
    world.run(Duration::from_millis(10));
    assert_eq!([world.ended(0), world.ended(1)], [Some(Ended::Aborted), Some(Ended::Reset)]);
}

#[test]
fn who_leaves_has_its_last_words_heard_and_waits_for_nobody() {
    let mut world = World::new(1, Faults { lost: 10, ..Faults::default() }, 1400);
    let [ours, theirs] = world.connect();
    let now = world.now;
    world.ends[0].filled(ours, 10_000);
    world.ends[0].leave(ours, now);
    world.ends[1].filled(theirs, 10_000);
    world.run(Duration::from_secs(1));
    assert_eq!(world.ends[1].readable(theirs).len(), 10_000);
    world.faults.lost = 0;
    world.run(Duration::from_secs(9));
    assert_eq!([world.ended(0), world.ended(1)], [Some(Ended::Aborted), Some(Ended::Reset)]);
}

#[test]
fn nobody_there_and_nobody_who_accepts() {
    let mut world = World::new(1, Faults::default(), 1400);
    world.ends[1] = Endpoint::new(1400);
    world.ends[0].open(ACCEPTOR, ConnectionId(9), world.now);
    world.run(OPEN_PATIENCE + LINGER + LINGER);
    assert_eq!(world.events[0], [Event::Ended(ConnectionId(9), Ended::Silent)]);
    assert!(world.ends[0].is_empty());
}

fn open_from(from: u64) -> Vec<u8> {
    let start = Start { from: ConnectionId(from), payload_max: 1400, window: 1000, padding: 1400 };
    let frame = Frame { to: ConnectionId(0), to_acceptor: true, body: Body::Open(start) };
    [frame.header().bytes(), &[0; 1400]].concat()
}

#[test]
fn a_flood_of_opens_is_bounded() {
    let mut endpoint = Endpoint::new(1400).accepting();
    for from in 1..10_000 {
        let now = Instant(from);
        let asked = endpoint.handle_frame(OPENER, &open_from(from), now).unwrap();
        endpoint.accept(asked, ConnectionId(from), now);
        assert!(endpoint.handle_frame(OPENER, &open_from(from), now).is_none(), "it is known");
        endpoint.check();
    }
    assert_eq!(endpoint.len(), HALF_OPEN_MAX);
    assert!(endpoint.poll_event().is_none(), "nobody has shown that it hears");
    // Those that stand keep others out.
    let mut endpoint = Endpoint::new(1400).accepting();
    for from in 1..=CONNECTIONS_MAX as u64 + 1 {
        let asked = endpoint.handle_frame(OPENER, &open_from(from), Instant(from)).unwrap();
        endpoint.accept(asked, ConnectionId(from), Instant(from));
        let (to, sacks) = (ConnectionId(from), Sacks::default());
        let (fin, probe, payload) = (false, false, &[][..]);
        let data = Data { sequence: 0, acknowledged: 0, window: 0, fin, probe, sacks, payload };
        let frame = Frame { to, to_acceptor: true, body: Body::Data(data) };
        endpoint.handle_frame(OPENER, frame.header().bytes(), Instant(from));
    }
    let resets = core::iter::from_fn(|| {
        let due = endpoint.poll_transmit(Instant(0))?;
        Some(matches!(Frame::parse(due.header.bytes()), Ok(Frame { body: Body::Reset { .. }, .. })))
    });
    assert!(resets.take(300).any(|is_reset| is_reset), "one too many is refused");
    assert_eq!(endpoint.len(), CONNECTIONS_MAX);
}

#[test]
fn a_stranger_touches_nothing() {
    let mut world = World::new(1, Faults::default(), 1400);
    let [ours, theirs] = world.connect();
    let now = world.now;
    let sacks = Sacks::default();
    let data = Data {
        sequence: 0,
        acknowledged: 0,
        window: 0,
        fin: true,
        probe: false,
        sacks,
        payload: b"hello",
    };
    let frame = Frame { to: theirs, to_acceptor: true, body: Body::Data(data) };
    let mut bytes = frame.header().bytes().to_vec();
    bytes.extend_from_slice(b"hello");
    world.ends[1].handle_frame(Mac([2; 6]), &bytes, now);
    assert!(world.ends[1].readable(theirs).is_empty(), "another station");
    let reset = |to| Frame { to, to_acceptor: true, body: Body::Reset { from: ConnectionId(1) } };
    world.ends[1].handle_frame(OPENER, reset(theirs).header().bytes(), now);
    world.ends[1].handle_frame(OPENER, reset(ConnectionId(0)).header().bytes(), now);
    world.run(Duration::from_millis(1));
    assert_eq!(world.ended(1), None, "its id is not known to who sends it");
    let wrong = Frame { to_acceptor: false, ..frame };
    let mut bytes = wrong.header().bytes().to_vec();
    bytes.extend_from_slice(b"hello");
    world.ends[1].handle_frame(OPENER, &bytes, now);
    assert!(world.ends[1].readable(theirs).is_empty(), "for the other end");
    world.ends[1].handle_frame(OPENER, &bytes[..20], now);
    assert_eq!(world.ends[1].stats().malformed, 1);
    let _ = ours;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever a wire does, what comes is what was sent.
    #[test]
    fn streams_are_whole(
        seed: u64,
        lost in 8..100_u64,
        doubled in 0..20_u64,
        late in 0..20_u64,
        late_us in 0..20_000_u64,
        payload_max in prop_oneof![Just(256), Just(1400), Just(PAYLOAD_MAX)],
        lens in (0..150_000_u64, 0..150_000_u64),
    ) {
        let faults = Faults { lost, doubled, late, late_us, longest: 0 };
        let mut world = World::new(seed, faults, payload_max);
        if let Some(ids) = world.try_connect() {
            converse(&mut world, ids, lens.into());
        }
    }
}

/// An acceptor answers twice; what it then waits for comes with the data of the opener, however
/// often that has to be sent.
#[test]
fn an_opener_that_was_not_heard_is_with_its_data() {
    let faults = Faults { lost: 18, doubled: 5, late: 4, late_us: 0, longest: 0 };
    let mut world = World::new(16_904_351_339_753_271_462, faults, 256);
    let id = ConnectionId(world.draws.next() | 1);
    assert!(world.ends[0].open(ACCEPTOR, id, world.now));
    world.run(HALF_OPEN_PATIENCE / 2);
    assert!(world.events[0].contains(&Event::Opened(id)) && world.events[1].is_empty());
    world.ends[0].filled(id, 1);
    world.run(HALF_OPEN_PATIENCE / 4);
    assert!(matches!(world.events[1][..], [Event::Accepted(_, OPENER)]));
}

/// It has ended once with an empty range beyond a gap, which no peer takes.
#[test]
fn an_end_beyond_a_gap_is_no_range() {
    let faults = Faults { lost: 27, doubled: 13, late: 16, late_us: 3, longest: 0 };
    let mut world = World::new(7_619_408_192_861_742_974, faults, PAYLOAD_MAX);
    let ids = world.connect();
    converse(&mut world, ids, [7029, 41_435]);
}
