// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections over raw Ethernet: a station at each end, and frames between them that are lost,
//! come twice, late or damaged.
//!
//! What a pump sends goes into the stream of its station (`ether`), and what comes out of the
//! other one goes to the other pump. What a connection carries is one stream to both of these, so
//! each byte that comes out is held against what went in.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

use clock::Instant;
use engine::Event;
use ether::Ended;
use ether::Endpoint;
use ether::limits::RING_BYTES;
use wire::ether::ConnectionId;
use wire::ether::Mac;

use crate::net::LinkId;
use crate::net::Side;
use crate::options::FramePlan;
use crate::rng::Rng;
use crate::trace::fingerprint;
use crate::wires::ECONNRESET;
use crate::world::Due;
use crate::world::State;
use crate::world::World;

/// Addresses of the two stations.
const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

/// Ethernet fills shorter frames up, behind its own header.
const SHORTEST: usize = 46;

/// What both ends of a connection have.
#[derive(Debug)]
pub(crate) struct Frames {
    halves: [Half; 2],
    plan: FramePlan,
    rng: Rng,
    /// Frames on their way.
    under_way: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// When time is to pass for the stations, if that is on the agenda.
    timer: Option<Instant>,
    /// That something is to be done is on the agenda.
    is_woken: bool,
    /// What who listens is given when the connection stands.
    waiting: Option<(OwnedFd, SocketAddr, SocketAddr)>,
}

/// One end.
#[derive(Debug)]
struct Half {
    /// None: its process is gone.
    endpoint: Option<Endpoint>,
    /// What it calls the connection; zero before it stands.
    id: ConnectionId,
    /// What the network has changed may have become longer than there was room for.
    rest: Vec<u8>,
    /// Nothing follows.
    has_ended: bool,
    /// What has gone into the stream of this side and has not come out of it.
    carried: VecDeque<u8>,
    /// Nothing arrives before, but what is late.
    last: Instant,
}

impl Frames {
    /// Side 0 opens the connection, from now on.
    pub(crate) fn new(
        plan: FramePlan,
        mut rng: Rng,
        waiting: (OwnedFd, SocketAddr, SocketAddr),
        now: Instant,
    ) -> Self {
        let id = ConnectionId(rng.next() | 1);
        let mut opener = Endpoint::new(plan.payload_max);
        opener.open(MACS[1], id, now);
        let acceptor = Endpoint::new(plan.payload_max).accepting();
        Self {
            halves: [Half::new(opener, id), Half::new(acceptor, ConnectionId(0))],
            plan,
            rng,
            under_way: BTreeMap::new(),
            next: 0,
            timer: None,
            is_woken: false,
            waiting: Some(waiting),
        }
    }

    /// Bytes that the stream of `side` takes now.
    pub(crate) fn room(&mut self, side: Side) -> usize {
        let half = &mut self.halves[side];
        let id = half.id;
        match &mut half.endpoint {
            Some(endpoint) if half.rest.is_empty() => endpoint.room(id).len(),
            _ => 0,
        }
    }

    /// They go into it.
    pub(crate) fn put(&mut self, side: Side, bytes: &[u8], now: Instant) {
        let half = &mut self.halves[side];
        half.carried.extend(bytes);
        half.rest.extend_from_slice(bytes);
        half.fill(now);
    }

    /// Nothing follows.
    pub(crate) fn finish(&mut self, side: Side, now: Instant) {
        self.halves[side].has_ended = true;
        self.halves[side].fill(now);
    }

    /// A pump has closed its end, as a station hears of it: who has opened the connection ends it
    /// at once, who has accepted it has what was sent carried to its end.
    pub(crate) fn close(&mut self, side: Side, now: Instant) {
        let half = &mut self.halves[side];
        let Some(endpoint) = &mut half.endpoint else { return };
        match side {
            0 => endpoint.abort(half.id, now),
            _ => endpoint.leave(half.id, now),
        }
    }

    /// Its process is gone, and can tell nobody.
    pub(crate) fn vanish(&mut self, side: Side) {
        self.halves[side].endpoint = None;
        self.halves[side].rest.clear();
    }

    /// A frame has come to `side`. `is_up`: somebody runs there.
    fn take(&mut self, side: Side, bytes: &[u8], is_up: bool, now: Instant) {
        if !is_up {
            return;
        }
        let payload_max = self.plan.payload_max;
        let half = &mut self.halves[side];
        if side == 1 && half.endpoint.is_none() {
            // The next process at this station, which knows nothing.
            half.endpoint = Some(Endpoint::new(payload_max).accepting());
            half.id = ConnectionId(0);
        }
        let Some(endpoint) = &mut half.endpoint else { return };
        if let Some(asked) = endpoint.handle_frame(MACS[1 - side], bytes, now) {
            endpoint.accept(asked, ConnectionId(self.rng.next() | 1), now);
        }
    }

    /// What `side` has to send now: when each frame arrives, and under which number. Some arrive
    /// twice, some never. What befalls them is told to `mark`.
    fn send(
        &mut self,
        side: Side,
        latency: (u64, u64),
        now: Instant,
        mut mark: impl FnMut(&'static str),
    ) -> Vec<(Instant, u64)> {
        let mut sent = Vec::new();
        let FramePlan { lost, doubled, late, damaged, late_us, .. } = self.plan;
        let half = &mut self.halves[side];
        let Some(endpoint) = &mut half.endpoint else { return sent };
        while let Some(due) = endpoint.poll_transmit(now) {
            if self.rng.chance(lost) {
                mark("frame lost");
                continue;
            }
            let [first, second] = due.payload;
            let mut frame = [due.header.bytes(), first, second].concat();
            frame.resize(frame.len().max(SHORTEST), 0);
            if self.rng.chance(damaged) {
                mark("frame damaged");
                damage(&mut frame, &mut self.rng);
            }
            half.last = half.last.max(now + self.rng.micros(latency.0..=latency.1));
            let mut arrivals = vec![half.last];
            if self.rng.chance(doubled) {
                mark("frame doubled");
                arrivals.push(half.last + self.rng.micros(0..=late_us));
            }
            if self.rng.chance(late) {
                mark("frame late");
                arrivals[0] = half.last + self.rng.micros(0..=late_us);
            }
            for at in arrivals {
                self.next += 1;
                self.under_way.insert(self.next, frame.clone());
                sent.push((at, self.next));
            }
        }
        sent
    }

    /// What has come to `side` in order, at most `most` bytes of it. Fails where that is not what
    /// was sent.
    fn read(&mut self, side: Side, most: usize, now: Instant) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let [near, far] = &mut self.halves;
        let (reader, sender) = if side == 0 { (near, far) } else { (far, near) };
        let Some(endpoint) = &mut reader.endpoint else { return Ok(bytes) };
        while bytes.len() < most {
            let piece = endpoint.readable(reader.id);
            let length = piece.len().min(most - bytes.len());
            if length == 0 {
                break;
            }
            bytes.extend_from_slice(&piece[..length]);
            endpoint.consume(reader.id, length, now);
        }
        let length = bytes.len().min(sender.carried.len());
        if length < bytes.len() || !sender.carried.drain(..length).eq(bytes.iter().copied()) {
            return Err(format!("side {side} reads what was never sent"));
        }
        Ok(bytes)
    }

    /// The ends agree on what has come, and no more is sent than there is room for.
    fn broken(&self) -> Option<String> {
        let figures = |side: Side| {
            let half = &self.halves[side];
            half.endpoint.as_ref().and_then(|endpoint| endpoint.figures(half.id))
        };
        for side in [0, 1] {
            let (Some(sender), Some(reader)) = (figures(side), figures(1 - side)) else {
                continue;
            };
            if sender.acknowledged > reader.come {
                let (acknowledged, come) = (sender.acknowledged, reader.come);
                return Some(format!("side {side} takes {acknowledged} of {come} for come"));
            }
            // The end of a stream takes no room.
            let edge = reader.read + RING_BYTES as u64 + 1;
            if sender.sent > edge {
                return Some(format!("side {side} sends {} beyond {edge}", sender.sent));
            }
        }
        None
    }
}

impl Half {
    fn new(endpoint: Endpoint, id: ConnectionId) -> Self {
        Self {
            endpoint: Some(endpoint),
            id,
            rest: Vec::new(),
            has_ended: false,
            carried: VecDeque::new(),
            last: Instant(0),
        }
    }

    /// As much goes into the stream as there is room for, and its end behind all.
    fn fill(&mut self, now: Instant) {
        let Some(endpoint) = &mut self.endpoint else { return self.rest.clear() };
        let mut taken = 0;
        while taken < self.rest.len() {
            let room = endpoint.room(self.id);
            let length = room.len().min(self.rest.len() - taken);
            if length == 0 {
                break;
            }
            room[..length].copy_from_slice(&self.rest[taken..taken + length]);
            endpoint.filled(self.id, length);
            taken += length;
        }
        self.rest.drain(..taken);
        if self.has_ended && self.rest.is_empty() && !endpoint.is_finished(self.id) {
            endpoint.finish(self.id, now);
        }
    }
}

/// A frame whose damage the checksum of Ethernet has not shown, but its header does: it is cut
/// short, or of a version or kind that there is not.
fn damage(frame: &mut Vec<u8>, rng: &mut Rng) {
    match rng.below(3) {
        0 => frame.truncate(rng.index(40)),
        1 => frame[0] ^= 1 << rng.below(8),
        _ => frame[1] |= 0x80,
    }
}

impl World {
    /// Something is to be done for the stations of a connection: at once, but not within the call.
    pub(crate) fn wake_frames(&mut self, id: LinkId) {
        let Some(frames) = self.net.links.get_mut(&id).and_then(|link| link.frames.as_mut()) else {
            return;
        };
        if !std::mem::replace(&mut frames.is_woken, true) {
            self.after(Duration::from_micros(1), Due::Frames(id));
        }
    }

    /// A frame comes to `side`.
    pub(crate) fn frame_comes(&mut self, id: LinkId, side: Side, number: u64) {
        let now = self.now;
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if link.stalled_until > now && !link.dead {
            let until = link.stalled_until;
            return self.at(until, Due::Frame(id, side, number));
        }
        let is_up = self.desks[link.ends[side].desk].state == State::Up;
        let Some(frames) = &mut link.frames else { return };
        let Some(bytes) = frames.under_way.remove(&number) else { return };
        if link.dead {
            return;
        }
        frames.take(side, &bytes, is_up, now);
        self.trace.step(now, &[11, id, side as u64, fingerprint(&bytes)], || {
            format!("link {id}.{side}: a frame of {} bytes comes", bytes.len())
        });
        self.exchange(id);
    }

    /// All that stations of a connection have to do: times, what has become of it, bytes both ways,
    /// and frames.
    pub(crate) fn exchange(&mut self, id: LinkId) {
        let now = self.now;
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let Some(frames) = &mut link.frames else { return };
        frames.is_woken = false;
        frames.timer = frames.timer.filter(|at| *at > now);
        for endpoint in frames.halves.iter_mut().filter_map(|half| half.endpoint.as_mut()) {
            endpoint.handle_timeout(now);
            endpoint.check();
        }
        for side in [0, 1] {
            self.take_frame_events(id, side);
            self.carry_out_of_frames(id, side);
        }
        self.send_frames(id);
    }

    fn take_frame_events(&mut self, id: LinkId, side: Side) {
        loop {
            let Some(link) = self.net.links.get_mut(&id) else { return };
            let Some(frames) = &mut link.frames else { return };
            let half = &mut frames.halves[side];
            let Some(event) = half.endpoint.as_mut().and_then(Endpoint::poll_event) else { return };
            match event {
                ether::Event::Opened(_) => self.tally.mark("connection over frames"),
                ether::Event::Accepted(ours, _) => {
                    half.id = ours;
                    let Some((connection, peer, local)) = frames.waiting.take() else {
                        let broken = format!("link {id}: a connection is accepted twice");
                        return self.tally.broken.push(broken);
                    };
                    let to = link.ends[1].desk;
                    if let Some(token) = self.desks[to].accepting {
                        self.tell(to, token, Event::Accepted { connection, peer, local });
                    }
                }
                ether::Event::Ended(_, why) => {
                    self.trace.note(self.now, || format!("link {id}.{side} has ended: {why:?}"));
                    let end = &mut link.ends[side];
                    if why == Ended::InOrder {
                        end.ending.get_or_insert(None);
                        let left = frames.halves[1 - side].carried.len();
                        if left > 0 && !end.closed {
                            let broken = format!("link {id}.{side} ends before {left} bytes");
                            self.tally.broken.push(broken);
                        }
                    } else {
                        end.unread.clear();
                        end.ending = Some(Some(ECONNRESET));
                    }
                    self.give_up_waiting(id, side);
                    self.feed(id, side);
                    self.fail_send_if_reset(id, side);
                }
            }
        }
    }

    /// Nobody will ever have the end of who was asked for a connection that never stood.
    pub(crate) fn give_up_waiting(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let Some(frames) = &mut link.frames else { return };
        if side == 0
            && let Some((connection, ..)) = frames.waiting.take()
        {
            link.ends[1].closed = true;
            self.handles.remove(&connection.as_raw_fd());
        }
    }

    /// What has come goes to the pump, as much as its socket would hold; and there may be room for
    /// what it sends.
    fn carry_out_of_frames(&mut self, id: LinkId, side: Side) {
        let now = self.now;
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let most = link.window.saturating_sub(link.ends[side].unread.len());
        let Some(frames) = &mut link.frames else { return };
        let read = frames.read(side, most, now);
        let half = &mut frames.halves[side];
        half.fill(now);
        let at_end = half.endpoint.as_ref().is_some_and(|endpoint| endpoint.is_at_end(half.id));
        let has_room = link.ends[side].sending.is_some() && frames.room(side) > 0;
        let broken = frames.broken();
        self.tally.broken.extend(broken.map(|broken| format!("link {id}: {broken}")));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(broken) => return self.tally.broken.push(format!("link {id}: {broken}")),
        };
        let pipe = &mut link.pipes[1 - side];
        pipe.bytes = pipe.bytes.saturating_sub(bytes.len());
        pipe.arrived += bytes.len() as u64;
        let end = &mut link.ends[side];
        let is_news = !bytes.is_empty() || at_end && end.ending.is_none();
        if !end.closed {
            end.unread.extend(bytes);
        }
        if at_end {
            end.ending.get_or_insert(None);
        }
        if is_news {
            self.feed(id, side);
        }
        if has_room {
            self.after(Duration::from_micros(1), Due::Push(id, side));
        }
    }

    fn send_frames(&mut self, id: LinkId) {
        let (now, latency) = (self.now, self.weather.latency);
        for side in [0, 1] {
            let Some(link) = self.net.links.get_mut(&id) else { return };
            let Some(frames) = &mut link.frames else { return };
            let tally = &mut self.tally;
            let sent = frames.send(side, latency, now, |what| tally.mark(what));
            for (at, number) in sent {
                self.at(at, Due::Frame(id, 1 - side, number));
            }
        }
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let Some(frames) = &mut link.frames else { return };
        let endpoints = frames.halves.iter().filter_map(|half| half.endpoint.as_ref());
        let Some(due) = endpoints.filter_map(Endpoint::poll_timeout).min() else { return };
        let due = due.max(now + Duration::from_micros(1));
        if frames.timer.is_none_or(|at| due < at) {
            frames.timer = Some(due);
            self.at(due, Due::Frames(id));
        }
    }
}
