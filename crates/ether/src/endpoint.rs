// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All connections of one station.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::ops::Bound;

use clock::Instant;
use wire::ether::Body;
use wire::ether::ConnectionId;
use wire::ether::Frame;
use wire::ether::Mac;
use wire::ether::Start;

use crate::connection::Connection;
use crate::connection::Ended;
use crate::connection::Outgoing;
use crate::connection::Stream;
use crate::figures::Figures;
use crate::limits::CONNECTIONS_MAX;
use crate::limits::HALF_OPEN_MAX;
use crate::limits::PAYLOAD_MIN;
use crate::limits::STRAYS_MAX;

/// The connections of a station. Whoever owns it hands in frames and times, then takes events and
/// frames until there are none; bytes at any time.
pub struct Endpoint {
    connections: BTreeMap<ConnectionId, Connection>,
    payload_max: usize,
    accepts: bool,
    /// Frames to those who name no connection.
    strays: VecDeque<(Mac, Frame<'static>)>,
    events: VecDeque<Event>,
    /// Who has sent a frame last: others come first.
    turn: ConnectionId,
    stats: Stats,
}

/// Somebody asks for a connection.
#[derive(Debug)]
pub struct Asked {
    peer: Mac,
    start: Start,
}

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // whoever owns an endpoint treats them all
pub enum Event {
    /// One that we have opened stands.
    Opened(ConnectionId),
    /// One that a peer has opened stands.
    Accepted(ConnectionId, Mac),
    /// It is over. What has come before an end in order can be read no more: it was.
    Ended(ConnectionId, Ended),
}

/// What an endpoint has seen, for who looks for the reason of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Frames that were taken apart.
    pub frames: u64,
    /// Frames that are none.
    pub malformed: u64,
    /// Frames for connections that are not there.
    pub strays: u64,
    /// Frames that were sent once more, of connections that are over.
    pub resent: u64,
}

impl Endpoint {
    /// Without connections. A frame of the wire carries `payload_max` bytes behind the longest
    /// header.
    #[must_use]
    pub const fn new(payload_max: usize) -> Self {
        Self {
            connections: BTreeMap::new(),
            payload_max,
            accepts: false,
            strays: VecDeque::new(),
            events: VecDeque::new(),
            turn: ConnectionId(0),
            stats: Stats { frames: 0, malformed: 0, strays: 0, resent: 0 },
        }
    }

    /// Takes connections. There is one such endpoint at a station: it answers, too, for connections
    /// that it does not know.
    #[must_use]
    pub const fn accepting(mut self) -> Self {
        self.accepts = true;
        self
    }

    /// Opens a connection to `peer`, which `id` names from now on: a number that nobody can guess.
    /// False: there are too many, or one has it.
    pub fn open(&mut self, peer: Mac, id: ConnectionId, now: Instant) -> bool {
        if self.is_full() || id == ConnectionId(0) || self.connections.contains_key(&id) {
            return false;
        }
        self.connections.insert(id, Connection::open(peer, id, self.payload_max, now));
        true
    }

    /// A frame has come from `from`: what is behind Ethernet's header. If somebody asks for a
    /// connection, [`Endpoint::accept`] gives one.
    pub fn handle_frame(&mut self, from: Mac, bytes: &[u8], now: Instant) -> Option<Asked> {
        let Ok(Frame { to, to_acceptor, body }) = Frame::parse(bytes) else {
            self.stats.malformed += 1;
            return None;
        };
        self.stats.frames += 1;
        if !from.is_of_one() {
            return None;
        }
        if let Body::Open(start) = body {
            return if to_acceptor && self.accepts { self.asked(from, start, now) } else { None };
        }
        let id = match body {
            // What has no name yet is nobody's to reset in this way.
            Body::Reset { from: ConnectionId(0) } if to == ConnectionId(0) => None,
            Body::Reset { from: theirs } if to == ConnectionId(0) => {
                self.known_as(from, theirs, !to_acceptor)
            }
            _ => Some(to),
        };
        let connection = id.and_then(|id| self.connections.get_mut(&id));
        let Some(connection) = connection
            .filter(|found| found.ends.peer == from && found.ends.we_opened != to_acceptor)
        else {
            self.stats.strays += 1;
            // Others at our address may have opened what we do not know.
            if to_acceptor && self.accepts && !matches!(body, Body::Reset { .. }) {
                let (body, to) = (Body::Reset { from: to }, ConnectionId(0));
                self.stray(from, Frame { to, to_acceptor: false, body });
            }
            return None;
        };
        let id = connection.ends.ours;
        let stands = match body {
            Body::Accept(start) => connection.handle_accept(start, now),
            Body::Data(data) => connection.handle_data(&data, now),
            Body::Reset { from } => {
                if from == connection.ends.theirs || connection.is_opening() {
                    connection.handle_reset(now);
                }
                false
            }
            Body::Open(_) => false,
        };
        if stands {
            connection.is_known = true;
            let peer = connection.ends.peer;
            let opened = connection.ends.we_opened;
            self.events.push_back(match opened {
                true => Event::Opened(id),
                false => Event::Accepted(id, peer),
            });
        }
        self.settle(id);
        None
    }

    /// Accepts; `id` names the connection from now on: a number that nobody can guess.
    pub fn accept(&mut self, asked: Asked, id: ConnectionId, now: Instant) {
        let Asked { peer, start } = asked;
        self.make_room_for_half_open();
        if self.is_full() || id == ConnectionId(0) || self.connections.contains_key(&id) {
            return self.refuse(peer, start);
        }
        self.connections.insert(id, Connection::accept(peer, id, start, self.payload_max, now));
    }

    /// Where bytes to be sent are put: as much room as is in one piece.
    pub fn room(&mut self, id: ConnectionId) -> &mut [u8] {
        let stream = self.connections.get_mut(&id).and_then(Connection::stream_mut);
        stream.map_or(&mut [], |stream| stream.sender.room())
    }

    /// So many bytes were put there.
    pub fn filled(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(stream) = self.connections.get_mut(&id).and_then(Connection::stream_mut) {
            stream.sender.filled(bytes);
        }
    }

    /// Nothing follows what was put there.
    pub fn finish(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&id)
            && let Some(stream) = connection.stream_mut()
        {
            stream.sender.finish();
            connection.settle(now);
        }
        self.settle(id);
    }

    /// Whether [`Endpoint::finish`] was called, or it is over.
    #[must_use]
    pub fn is_finished(&self, id: ConnectionId) -> bool {
        self.stream(id).is_none_or(|stream| stream.sender.is_finished())
    }

    /// What has come in order, as much as is in one piece.
    #[must_use]
    pub fn readable(&self, id: ConnectionId) -> &[u8] {
        self.stream(id).map_or(&[], |stream| stream.receiver.readable())
    }

    /// So many bytes of it were read.
    pub fn consume(&mut self, id: ConnectionId, bytes: usize, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&id)
            && let Some(stream) = connection.stream_mut()
        {
            stream.receiver.consume(bytes);
            connection.settle(now);
        }
        self.settle(id);
    }

    /// All that the peer has sent was read, and it sends no more.
    #[must_use]
    pub fn is_at_end(&self, id: ConnectionId) -> bool {
        self.stream(id).is_some_and(|stream| stream.receiver.is_over())
    }

    /// Nobody reads any more; what was put there to be sent still is, for some time.
    pub fn leave(&mut self, id: ConnectionId, now: Instant) {
        self.connections.get_mut(&id).into_iter().for_each(|one| one.leave(now));
        self.settle(id);
    }

    /// Ends both directions at once; the peer is told.
    pub fn abort(&mut self, id: ConnectionId, now: Instant) {
        self.connections.get_mut(&id).into_iter().for_each(|one| one.abort(now));
        self.settle(id);
    }

    /// What has become of connections, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Endpoint::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.connections.values().filter_map(Connection::poll_timeout).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, one)| one.poll_timeout().is_some_and(|due| due <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            if connection.handle_timeout(now) {
                self.settle(id);
            } else {
                self.connections.remove(&id);
            }
        }
    }

    /// The next frame, if one is due. Connections take turns.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing<'_>> {
        if let Some((to, frame)) = self.strays.pop_front() {
            return Some(Outgoing { to, header: frame.header(), payload: [&[]; 2] });
        }
        let behind = (Bound::Excluded(self.turn), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(self.turn));
        let (id, due) = match first_due(&mut self.connections, behind, now) {
            Some(found) => found,
            None => first_due(&mut self.connections, before, now)?,
        };
        self.turn = id;
        let connection = self.connections.get(&id)?;
        let payload = connection.payload(&due.filling);
        Some(Outgoing { to: due.to, header: due.header, payload })
    }

    /// Connections, those included that linger.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// How far a connection has come, if it stands.
    #[must_use]
    pub fn figures(&self, id: ConnectionId) -> Option<Figures> {
        let connection = self.connections.get(&id)?;
        let Stream { sender, receiver } = connection.stream()?;
        let (come, read) = receiver.progress();
        Some(Figures { peer: connection.ends.peer, come, read, ..sender.figures() })
    }

    /// Peers have all that was put there for them, of connections that are left or over: what comes
    /// from them is all that is waited for.
    #[must_use]
    pub fn has_said_all(&self) -> bool {
        let mut streams = self.connections.values().filter_map(Connection::stream);
        streams.all(|stream| stream.sender.is_over())
    }

    /// Ends all connections at once; peers are told.
    pub fn abort_all(&mut self, now: Instant) {
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        ids.into_iter().for_each(|id| self.abort(id, now));
    }

    /// What it has seen.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let streams = self.connections.values().filter_map(Connection::stream);
        let resent: u64 = streams.map(|stream| stream.sender.resent).sum();
        Stats { resent: self.stats.resent + resent, ..self.stats }
    }

    /// Its invariants hold.
    pub fn check(&self) {
        assert!(self.connections.len() <= CONNECTIONS_MAX && self.strays.len() <= STRAYS_MAX);
        self.connections.values().for_each(Connection::check);
    }

    fn stream(&self, id: ConnectionId) -> Option<&Stream> {
        self.connections.get(&id).and_then(Connection::stream)
    }

    fn is_full(&self) -> bool {
        self.connections.len() >= CONNECTIONS_MAX
    }

    fn asked(&mut self, peer: Mac, start: Start, now: Instant) -> Option<Asked> {
        // The answer is filled up as the question was: it shows what the path carries, and is no
        // more than whoever asks in the name of another one has sent itself.
        let payload_max = start.payload_max.min(start.padding);
        let start = Start { payload_max, ..start };
        if start.from == ConnectionId(0) || usize::from(payload_max) < PAYLOAD_MIN {
            return None;
        }
        let known = self.known_as(peer, start.from, false);
        if let Some(connection) = known.and_then(|id| self.connections.get_mut(&id)) {
            connection.handle_open(start, now);
            return None;
        }
        Some(Asked { peer, start })
    }

    /// The oldest goes of those that have not shown that they hear: of the station that has most of
    /// them, so that one that floods takes its own places.
    fn make_room_for_half_open(&mut self) {
        let half_open = self.connections.iter().filter(|(_, one)| one.is_half_open());
        let mut by_station: BTreeMap<Mac, (usize, Reverse<Instant>, ConnectionId)> =
            BTreeMap::new();
        for (id, one) in half_open {
            let station = by_station.entry(one.ends.peer);
            let (count, since, oldest) = station.or_insert_with(|| (0, Reverse(one.since()), *id));
            *count += 1;
            if one.since() < since.0 {
                (*since, *oldest) = (Reverse(one.since()), *id);
            }
        }
        let all: usize = by_station.values().map(|(count, ..)| count).sum();
        if all >= HALF_OPEN_MAX
            && let Some((.., oldest)) = by_station.into_values().max()
        {
            self.connections.remove(&oldest);
        }
    }

    fn refuse(&mut self, peer: Mac, start: Start) {
        let body = Body::Reset { from: ConnectionId(0) };
        self.stray(peer, Frame { to: start.from, to_acceptor: false, body });
    }

    fn stray(&mut self, to: Mac, frame: Frame<'static>) {
        if self.strays.len() < STRAYS_MAX {
            self.strays.push_back((to, frame));
        }
    }

    /// What we call a connection that `peer` calls so.
    fn known_as(&self, peer: Mac, theirs: ConnectionId, we_opened: bool) -> Option<ConnectionId> {
        let mut all = self.connections.values().map(|one| one.ends);
        all.find(|ends| ends.peer == peer && ends.theirs == theirs && ends.we_opened == we_opened)
            .map(|ends| ends.ours)
    }

    /// Tells of an end, once.
    fn settle(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(why) = connection.ended()
            && !core::mem::replace(&mut connection.is_told, true)
        {
            self.stats.resent += core::mem::take(&mut connection.resent);
            if connection.is_known {
                self.events.push_back(Event::Ended(id, why));
            }
        }
    }
}

fn first_due(
    connections: &mut BTreeMap<ConnectionId, Connection>,
    among: (Bound<ConnectionId>, Bound<ConnectionId>),
    now: Instant,
) -> Option<(ConnectionId, crate::connection::Due)> {
    let mut all = connections.range_mut(among);
    all.find_map(|(id, one)| one.poll_transmit(now).map(|due| (*id, due)))
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Endpoint");
        fields.field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}
