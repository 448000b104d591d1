// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How bytes get from one end of a connection to the other.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

use engine::Chunk;
use engine::Event;
use engine::Landing;
use initiator::Connected;
use initiator::Error;
use initiator::Line;
use rustix::net::AddressFamily;
use rustix::net::SocketType;

use crate::check::Told;
use crate::frames::Frames;
use crate::locals::local_portal;
use crate::net::End;
use crate::net::Link;
use crate::net::LinkId;
use crate::net::Segment;
use crate::net::Side;
use crate::news::News;
use crate::rng::Rng;
use crate::tap;
use crate::tap::Heard;
use crate::tap::Tap;
use crate::trace::fingerprint;
use crate::world;
use crate::world::Dial;
use crate::world::Due;
use crate::world::Place;
use crate::world::State;
use crate::world::World;

const EPIPE: i32 = 32;
pub(crate) const ECONNRESET: i32 = 104;
pub(crate) const ECANCELED: i32 = 125;

/// A silent peer lets an attempt to connect last so long.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

impl World {
    /// The time that one segment takes.
    pub(crate) fn latency(&mut self) -> Duration {
        let (low, high) = self.weather.latency;
        self.net_rng.micros(low..=high)
    }

    /// An attempt to connect comes to its end.
    pub(crate) fn dial(&mut self, mut dial: Dial) {
        let state = dial.to.map(|to| (self.desks[to].state, self.desks[to].accepting));
        let refusal = match state {
            Some((State::Up, Some(_))) => None,
            Some((State::Dark, _)) if !dial.silent => {
                dial.silent = true;
                return self.after(DIAL_PATIENCE, Due::Dial(Box::new(dial)));
            }
            Some((State::Dark, _)) => Some("timed out"),
            _ => Some("connection refused"),
        };
        if self.desks[dial.from].state != State::Up {
            return;
        }
        let result = match (refusal, dial.to) {
            (None, Some(to)) if dial.by_adapters => return self.ask(dial, to),
            (None, Some(to)) => {
                let local = dial.portals.first().filter(|portal| **portal == local_portal(to));
                let joined = local.and_then(|portal| self.locals.join(to, portal));
                Ok(joined.unwrap_or_else(|| self.join(&dial, to)))
            }
            (reason, _) => {
                let reason = reason.unwrap_or("unreachable").to_owned();
                Err(Error::unreachable(&dial.portals, reason))
            }
        };
        let made = u64::from(result.is_ok());
        let names = (self.desks[dial.from].name.clone(), refusal.unwrap_or("connected"));
        self.trace.step(self.now, &[2, dial.from as u64, made], || {
            format!("{} dials: {}", names.0, names.1)
        });
        // Who asked may be gone.
        let _ = dial.result.send(result);
        dial.waker.wake();
        self.make_ready(dial.from);
    }

    /// A connection that no port of ours made, with what is sent over it at once. `from` gets
    /// what comes back, but nobody there reads it.
    pub(crate) fn intrude(&mut self, from: usize, to: usize, bytes: Vec<u8>) -> LinkId {
        let id = self.knock(from, to);
        self.send_bare(id, bytes);
        id
    }

    /// Such a connection before anything is sent.
    pub(crate) fn knock(&mut self, from: usize, to: usize) -> LinkId {
        let (id, ours, _) = self.connect(from, to, PORTAL);
        if let Some(link) = self.net.links.get_mut(&id) {
            link.ends[0].fd = Some(ours);
        }
        id
    }

    /// More of it.
    pub(crate) fn send_bare(&mut self, id: LinkId, bytes: Vec<u8>) {
        let latency = self.latency();
        self.carry(id, 0, bytes, latency);
    }

    /// Makes a connection.
    fn join(&mut self, dial: &Dial, to: usize) -> Connected {
        let second = dial.portals.first() == Some(&world::second_portal(to));
        let local = local_end(second);
        let (ours, peer) = match dial.by_frames {
            true => self.connect_by_frames(dial.from, to, local),
            false => {
                let (_, ours, peer) = self.connect(dial.from, to, local);
                (ours, peer)
            }
        };
        let portal = dial.portals.first().cloned().unwrap_or_default();
        let line = Line::Stream(TcpStream::from(ours));
        Connected { line, peer, portal }
    }

    /// Two ends, of which the second one is given to who listens at `local`.
    fn connect(
        &mut self,
        from: usize,
        to: usize,
        local: SocketAddr,
    ) -> (LinkId, OwnedFd, SocketAddr) {
        let (id, [ours, theirs], peer) = self.lay(from, to);
        if let Some(token) = self.desks[to].accepting {
            self.tell(to, token, Event::Accepted { connection: theirs, peer, local });
        }
        (id, ours, SocketAddr::from(([10, 0, 0, 1], 3260)))
    }

    /// Stations at both ends begin to make a connection, of which the first end is there at once.
    fn connect_by_frames(
        &mut self,
        from: usize,
        to: usize,
        local: SocketAddr,
    ) -> (OwnedFd, SocketAddr) {
        let (id, [ours, theirs], peer) = self.lay(from, to);
        let rng = Rng::new(self.frame_rng.next());
        let frames = Frames::new(self.frame_plan, rng, (theirs, peer, local), self.now);
        if let Some(link) = self.net.links.get_mut(&id) {
            link.frames = Some(Box::new(frames));
        }
        self.wake_frames(id);
        (ours, SocketAddr::from(([10, 0, 0, 1], 3260)))
    }

    /// Two ends that nobody has, and the address of the first one.
    pub(crate) fn lay(&mut self, from: usize, to: usize) -> (LinkId, [OwnedFd; 2], SocketAddr) {
        let fds = [handle(), handle()];
        let (low, high) = self.weather.window;
        let window = self.net_rng.within(low..=high);
        let link = Link {
            ends: [from, to].map(|desk| End { desk, ..End::default() }),
            pipes: Default::default(),
            stalled_until: self.now,
            dead: false,
            window: usize::try_from(window).unwrap_or(usize::MAX),
            tap: Tap::default(),
            news: News::default(),
            verbs: None,
            frames: None,
        };
        let id = self.net.insert(link);
        for (side, fd) in fds.iter().enumerate() {
            self.handles.insert(fd.as_raw_fd(), Place::End(id, side));
        }
        let number = u16::try_from(id % 60_000).unwrap_or(0) + 1024;
        (id, fds, SocketAddr::from(([10, 1, 0, 1], number)))
    }

    /// The next bytes of a send go on their way.
    pub(crate) fn push(&mut self, id: LinkId, side: Side) {
        let piece = self.weather.piece as u64;
        let (latency, most) = (self.latency(), self.net_rng.within(1..=piece));
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let room = match &mut link.frames {
            Some(frames) => frames.room(side),
            None => link.room(side),
        };
        let room = room.min(usize::try_from(most).unwrap_or(usize::MAX));
        let end = &mut link.ends[side];
        if end.closed || end.ending.is_some_and(|error| error.is_some()) {
            return self.fail_send(id, side);
        }
        let Some(sending) = &mut end.sending else { return self.finish(id, side) };
        let left = sending.list.len() - sending.taken;
        let taken = left.min(room);
        if taken == 0 && left > 0 {
            return;
        }
        let bytes = match &sending.bytes {
            Some(bytes) => bytes[sending.taken..sending.taken + taken].to_vec(),
            None => sending.list.part_to_vec(sending.taken, taken),
        };
        sending.taken += taken;
        let complete = sending.taken == sending.list.len();
        let done = if complete { end.sending.take() } else { None };
        let desk = end.desk;
        if !bytes.is_empty() {
            self.carry(id, side, bytes, latency);
        }
        match done {
            Some(done) => {
                self.tell(desk, done.token, Event::Sent { list: done.list, result: Ok(()) });
                self.finish(id, side);
            }
            None => self.after(Duration::from_micros(1), Due::Push(id, side)),
        }
    }

    /// Bytes are on their way.
    fn carry(&mut self, id: LinkId, side: Side, mut bytes: Vec<u8>, latency: Duration) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if link.pipes[side].is_torn {
            return;
        }
        let target = self.desks[link.ends[1].desk].home;
        let mut place = tap::Place { target, sessions: &mut self.sessions };
        let heard = match self.unheard.contains(&id) {
            true => Heard::default(),
            false => link.tap.hear(side, &bytes, &mut place),
        };
        if let Some([ird, _]) = self.depths.get(&target) {
            link.tap.checks.memory.depth = Some(usize::from(*ird));
        }
        let covered = &heard.covered;
        if heard.begins_rdma {
            self.tally.mark("RDMA stream");
        }
        self.note_heard(id, target);
        let parts = [3, id, side as u64, fingerprint(&bytes)];
        let now = self.now;
        self.trace.step(now, &parts, || format!("link {id}.{side} sends {} bytes", bytes.len()));
        self.lower_depths(target, &heard.depths, &mut bytes);
        self.maybe_lie(id, side, &heard, &mut bytes);
        self.maybe_order(id, side, &heard.headers, &mut bytes);
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let arrives = (now + latency).max(link.pipes[side].last);
        self.maybe_tell(id, side, &heard.headers, &mut bytes, arrives);
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let pipe = &mut link.pipes[side];
        if pipe.flips > 0 && !covered.is_empty() {
            pipe.flips -= 1;
            let range = covered[self.net_rng.index(covered.len())].clone();
            let at = range.start + self.net_rng.index(range.len());
            let flip = 1 << self.net_rng.below(8);
            bytes[at] ^= flip;
            self.tally.flips += 1;
            self.trace.note(now, || format!("link {id}.{side}: byte {at} is flipped by {flip:#x}"));
        }
        let tears = pipe.tears > 0 && !heard.inside.is_empty();
        if tears {
            let range = heard.inside[self.net_rng.index(heard.inside.len())].clone();
            bytes.truncate(range.start + self.net_rng.index(range.len()));
            (pipe.tears, pipe.is_torn) = (0, true);
        }
        pipe.bytes += bytes.len();
        self.tally.bytes += bytes.len() as u64;
        if let Some(frames) = &mut link.frames {
            frames.put(side, &bytes, now);
            return self.wake_frames(id);
        }
        pipe.last = arrives;
        pipe.segments.push_back((arrives, Segment::Bytes(bytes)));
        self.at(arrives, Due::Arrival(id, side));
        if tears {
            self.tear(id, side);
        }
    }

    /// What a connection to `target` has said means something to others.
    pub(crate) fn note_heard(&mut self, id: LinkId, target: usize) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        self.tally.broken.append(&mut link.tap.checks.broken);
        for told in std::mem::take(&mut link.tap.checks.heard) {
            if matches!(told, Told::Reassigned) {
                self.tally.mark("task goes on over another RDMA stream");
            }
            self.resets.hear(id, target, told, (&self.disks, self.now));
            self.orders.hear(id, target, told);
        }
        self.tally.broken.append(&mut self.orders.broken);
    }

    /// What was sent ends in the middle of an FPDU: by end of stream, or with the connection.
    fn tear(&mut self, id: LinkId, side: Side) {
        self.trace.note(self.now, || format!("link {id}.{side}: half an FPDU is the last one"));
        if self.net_rng.chance(500) {
            return self.signal(id, side, Segment::Fin);
        }
        self.signal(id, side, Segment::Reset);
        self.signal(id, 1 - side, Segment::Reset);
    }

    /// Whoever is between an initiator and this target has room for few RDMA Reads: it lowers what
    /// the request for a connection tells (RFC 6581 §9).
    fn lower_depths(&self, target: usize, places: &[(usize, usize)], bytes: &mut [u8]) {
        let Some([ird, ord]) = self.depths.get(&target) else { return };
        for (at, byte) in places {
            // The first two bits of each are no part of it.
            let new = [None, Some(*ird), None, Some(*ord)][*byte];
            bytes[*at] = new.unwrap_or(bytes[*at] & 0xc0);
        }
    }

    /// A send was the last one, and end of stream or the end of the socket was asked for.
    fn finish(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if std::mem::take(&mut link.ends[side].shut) {
            self.signal(id, side, Segment::Fin);
        }
    }

    /// Sends end of stream or reset behind what is on its way.
    pub(crate) fn signal(&mut self, id: LinkId, side: Side, segment: Segment) {
        let latency = self.latency();
        let now = self.now;
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if let (Segment::Fin, Some(frames)) = (&segment, &mut link.frames) {
            frames.finish(side, now);
            return self.wake_frames(id);
        }
        let pipe = &mut link.pipes[side];
        let arrives = (self.now + latency).max(pipe.last);
        pipe.last = arrives;
        pipe.segments.push_back((arrives, segment));
        self.at(arrives, Due::Arrival(id, side));
    }

    /// A segment that `from` sent is there.
    pub(crate) fn arrive(&mut self, id: LinkId, from: Side) {
        let now = self.now;
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if link.dead {
            return;
        }
        if link.stalled_until > now {
            let until = link.stalled_until;
            return self.at(until, Due::Arrival(id, from));
        }
        let to = 1 - from;
        let Some((_, segment)) = link.pipes[from].segments.pop_front() else { return };
        let state = self.desks[link.ends[to].desk].state;
        let end = &mut link.ends[to];
        if let Segment::Bytes(bytes) = &segment {
            link.pipes[from].bytes -= bytes.len();
            link.pipes[from].arrived += bytes.len() as u64;
        }
        if end.closed {
            // A port that is gone answers by a reset, once.
            if state != State::Dark && matches!(segment, Segment::Bytes(_) | Segment::Op(_)) {
                self.signal(id, to, Segment::Reset);
            }
            return self.forget_if_over(id);
        }
        match segment {
            Segment::Op(op) => return self.take_op(id, from, op),
            Segment::Fin | Segment::Reset if link.verbs.is_some() => {
                return self.end_adapter(id, to, matches!(segment, Segment::Reset));
            }
            Segment::Bytes(bytes) => end.unread.extend(bytes),
            Segment::Fin => {
                end.ending.get_or_insert(None);
            }
            Segment::Reset => {
                end.unread.clear();
                end.ending = Some(Some(ECONNRESET));
            }
        }
        self.feed(id, to);
        self.fail_send_if_reset(id, to);
    }

    pub(crate) fn fail_send_if_reset(&mut self, id: LinkId, side: Side) {
        let link = self.net.links.get(&id);
        if link.is_some_and(|link| link.ends[side].ending == Some(Some(ECONNRESET))) {
            self.fail_send(id, side);
        }
    }

    /// Gives a port what has arrived for it.
    pub(crate) fn feed(&mut self, id: LinkId, side: Side) {
        loop {
            let piece = self.net_rng.within(1..=self.weather.piece as u64);
            let Some(link) = self.net.links.get_mut(&id) else { return };
            let end = &mut link.ends[side];
            let open = !end.closed && (!end.paused || end.landing.is_some());
            let Some(token) = end.receiving.filter(|_| open) else { return };
            let desk = end.desk;
            if end.unread.is_empty() {
                if let Some(error) = end.ending {
                    if let Some((Landing { buf, .. }, bytes)) = end.landing.take() {
                        self.tell(desk, token, Event::Landed { buf, bytes });
                    }
                    let Some(link) = self.net.links.get_mut(&id) else { return };
                    let end = &mut link.ends[side];
                    end.receiving = None;
                    self.tell(desk, token, Event::ReceiveEnded { error });
                }
                return;
            }
            let length = end.unread.len().min(usize::try_from(piece).unwrap_or(usize::MAX));
            if let Some((mut landing, before)) = end.landing.take() {
                let length = length.min(landing.end - landing.at);
                let place = &mut landing.buf[landing.at..landing.at + length];
                place.copy_from_slice(&drain(&mut end.unread, length));
                landing.at += length;
                let bytes = before + length;
                // A kernel gives up early now and then, whatever it was asked for.
                if landing.at < landing.end && !self.net_rng.chance(20) {
                    end.landing = Some((landing, bytes));
                } else {
                    self.tell(desk, token, Event::Landed { buf: landing.buf, bytes });
                }
                self.make_room(id, 1 - side);
                continue;
            }
            let bytes: Vec<u8> = drain(&mut end.unread, length);
            self.tell(desk, token, Event::Received { bytes: Chunk::from(bytes) });
            self.make_room(id, 1 - side);
        }
    }

    /// Something was taken of what `side` has sent.
    fn make_room(&mut self, id: LinkId, side: Side) {
        match self.net.links.get(&id).is_some_and(|link| link.frames.is_some()) {
            true => self.wake_frames(id),
            false => self.after(Duration::from_micros(1), Due::Push(id, side)),
        }
    }

    /// A send cannot go on.
    fn fail_send(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let errno = if link.ends[side].closed { ECANCELED } else { EPIPE };
        let desk = link.ends[side].desk;
        if let Some(sending) = link.ends[side].sending.take() {
            let event = Event::Sent { list: sending.list, result: Err(errno) };
            self.tell(desk, sending.token, event);
        }
    }

    /// The port gives an end up; the peer is told by end of stream, or by a reset if `abruptly`.
    pub(crate) fn close_end(&mut self, id: LinkId, side: Side, abruptly: bool) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        if end.closed {
            return;
        }
        let unread = !end.unread.is_empty();
        let ended = end.ending.is_some_and(|error| error.is_some());
        end.closed = true;
        end.unread = VecDeque::new();
        end.landing = None;
        let fd = end.fd.take();
        let (desk, receiving) = (end.desk, end.receiving.take());
        let detaching = end.detaching.take();
        if let Some(fd) = fd {
            self.handles.remove(&fd.as_raw_fd());
        }
        if let Some(token) = receiving {
            self.tell(desk, token, Event::ReceiveEnded { error: Some(ECANCELED) });
        }
        self.fail_send(id, side);
        if let Some((token, _)) = detaching {
            self.tell(desk, token, Event::Detached { connection: None });
        }
        let now = self.now;
        if let Some(frames) = self.net.links.get_mut(&id).and_then(|link| link.frames.as_mut()) {
            match abruptly {
                true => frames.vanish(side),
                false => frames.close(side, now),
            }
            self.give_up_waiting(id, side);
            self.wake_frames(id);
        } else if !ended {
            let reset = abruptly || unread;
            self.signal(id, side, if reset { Segment::Reset } else { Segment::Fin });
        }
        self.forget_if_over(id);
    }

    fn forget_if_over(&mut self, id: LinkId) {
        if let Some(link) = self.net.links.get_mut(&id)
            && link.is_over()
        {
            self.net.links.remove(&id);
        }
    }

    /// Both ends hear that the connection is gone.
    pub(crate) fn cut(&mut self, id: LinkId) {
        for side in [0, 1] {
            let Some(link) = self.net.links.get_mut(&id) else { return };
            let pipe = &mut link.pipes[side];
            (pipe.bytes, pipe.last) = (0, self.now);
            pipe.segments.clear();
            if let Some(frames) = &mut link.frames {
                frames.vanish(side);
            }
            self.signal(id, side, Segment::Reset);
        }
    }
}

/// A descriptor that stands for an end of a connection.
pub(crate) fn handle() -> OwnedFd {
    rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
        .expect("descriptors are left: each connection takes two")
}

/// Where connections to the first portal of a target come to: an address that no portal is listed
/// with but its own.
const PORTAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Where those to the second one come to: by its port the target knows the portal group.
const SECOND_PORTAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 3261);

/// The end of the target, of its second portal or of its first one.
pub(crate) fn local_end(second: bool) -> SocketAddr {
    if second { SECOND_PORTAL } else { PORTAL }
}

fn drain(from: &mut VecDeque<u8>, length: usize) -> Vec<u8> {
    if length == from.len() {
        return Vec::from(std::mem::take(from));
    }
    from.drain(..length).collect()
}
