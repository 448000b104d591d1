// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How connections reach their initiators: over a socket of the port, with RDMA on it or not, or by
//! messages to somebody in the same process. The one place where the pump knows which.
//!
//! A connection has a mover and a line of the same kind. What a mover emits is work for the port,
//! or messages for the other end of a [`LocalEnd`].

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

use buf::Buf;
use buf::Pool;
use buf::SgList;
use capture::Side;
use capture::Tap;
use clock::Instant;
use engine::Landing;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Work;
use engine::duplex::Bounds;
use engine::duplex::End;
use iscsi::datamover::Event;
use mover::Mover;
use mover::iser;
use mover::local;
use mover::local::ToInitiator;
use mover::local::ToTarget;
use mover::tcp::Tcp;

use super::Connection;
use super::Followers;
use super::Phase;
use super::Pump;
use super::adapters::Adapter;
use super::context::Context;
use crate::ends::Ends;
use crate::table::Key;

/// Our end of a local connection.
pub(crate) type OurEnd = End<ToInitiator, ToTarget>;

/// The other end of a local connection, for an initiator.
pub type LocalEnd = End<ToTarget, ToInitiator>;

/// How much may be under way on a local connection in each direction: two messages for each command
/// of a window of 128, and data as on a socket before its connection is not read any more.
const LOCAL_BOUNDS: Bounds = Bounds { count_max: 256, weight_max: 16 << 20 };

/// From one look for memory to the next, while commands wait for it.
const LOOK: Duration = Duration::from_millis(1);

/// A new local connection.
pub(crate) fn local_ends() -> (LocalEnd, OurEnd) {
    engine::duplex::duplex(LOCAL_BOUNDS)
}

/// What carries a connection, on its way to a reactor.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// With whom its bytes are told to, if so.
    Socket(OwnedFd, Option<Box<Tap>>),
    Local(Local),
    /// An adapter, and the mover over it.
    Adapter(Box<dyn verbs::Adapter>),
}

/// What carries a connection.
#[derive(Debug)]
pub(super) enum Line {
    Socket {
        socket: Socket,
        /// The list to fill; None while it is under way.
        list: Option<SgList>,
        /// Is told what comes and goes.
        tap: Option<Box<Tap>>,
    },
    Local(Local),
    Adapter(Adapter),
}

/// A local connection.
#[derive(Debug)]
pub(crate) struct Local {
    /// None: all has been said.
    end: Option<OurEnd>,
    /// What has come and was not looked at.
    came: VecDeque<ToTarget>,
    /// Nothing is taken for now.
    paused: bool,
    /// The other end had no room for all that there was.
    is_full: bool,
}

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// What was sent before is still under way.
    UnderWay,
    /// It is under way now.
    Begun,
    /// All that could be sent has left.
    Left,
    /// There was nothing that could be sent.
    Nothing,
}

impl Carrier {
    /// A mover for a connection that begins.
    pub(super) fn mover(&self) -> Option<Mover> {
        match self {
            Self::Socket(..) => Some(Mover::Tcp(Tcp::new())),
            Self::Local(_) => Some(Mover::Local(local::Target::new())),
            // It was made with the connection.
            Self::Adapter(_) => None,
        }
    }

    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// A connection is captured from its first byte, if it is. What is within this process has no
    /// bytes.
    pub(super) fn be_captured(&mut self, context: &Context<impl Port>, ends: Ends) {
        if let Self::Socket(fd, tap) = self
            && let Some(capture) = &context.shared.capture
            && let Some(ends) = ends.captured(u16::try_from(fd.as_raw_fd()).unwrap_or(u16::MAX))
        {
            let now = context.port.wall_clock();
            *tap = Tap::open(capture, Side::Target, ends, now).map(Box::new);
        }
    }
}

impl From<OurEnd> for Carrier {
    fn from(end: OurEnd) -> Self {
        let (came, paused, is_full) = (VecDeque::new(), false, false);
        Self::Local(Local { end: Some(end), came, paused, is_full })
    }
}

impl Line {
    pub(super) fn open<P: Port>(carrier: Carrier, port: &mut P) -> Self {
        match carrier {
            Carrier::Socket(fd, tap) => {
                let socket = port.add_socket(fd);
                Self::Socket { socket, list: Some(SgList::new()), tap }
            }
            Carrier::Local(local) => Self::Local(local),
            Carrier::Adapter(connection) => Self::Adapter(Adapter::open(connection, port)),
        }
    }

    /// From now on what comes is told.
    pub(super) fn begin<P: Port>(&self, receiving: Token, port: &mut P) {
        match self {
            Self::Socket { socket, .. } => {
                port.submit(receiving, Work::Receive { socket: *socket });
            }
            Self::Local(local) => local.end.iter().for_each(|end| end.attach(port.waker())),
            Self::Adapter(line) => line.begin(receiving, port),
        }
    }

    /// Tells a mover what its segments of TCP are like.
    pub(super) fn fit<P: Port>(&self, mover: &mut iser::Target, port: &P) {
        if let Self::Socket { socket, .. } = self
            && let Some(length) = port.segment_len(*socket)
        {
            mover.set_segment_len(length);
        }
    }

    /// Hands out what `mover` has to send.
    #[inline]
    pub(super) fn send<P: Port>(
        &mut self,
        mover: &mut Mover,
        followers: &mut Option<Box<Followers>>,
        of: Token,
        port: &mut P,
    ) -> Sent {
        match (self, mover) {
            (Self::Socket { socket, list, tap }, mover @ (Mover::Tcp(_) | Mover::Iser(_))) => {
                let Some(mut filling) = list.take() else { return Sent::UnderWay };
                if transmits(mover, &mut filling) {
                    if let Some(tap) = tap {
                        tap.sent(port.wall_clock(), &filling);
                    }
                    if let Some(followers) = followers {
                        followers.sent(port.wall_clock(), &filling, mover);
                    }
                    port.submit(of, Work::Send { socket: *socket, list: filling });
                    return Sent::Begun;
                }
                *list = Some(filling);
                // What cannot be sent is told, and what waited only for others is over.
                let has_told = matches!(mover, Mover::Iser(mover) if mover.has_events());
                if has_told { Sent::Left } else { Sent::Nothing }
            }
            (Self::Local(line), Mover::Local(mover)) => line.send(mover),
            (Self::Adapter(line), Mover::Iser(mover)) => line.send(mover),
            (Self::Socket { .. }, Mover::Local(_))
            | (Self::Local(_), Mover::Tcp(_) | Mover::Iser(_))
            | (Self::Adapter(_), Mover::Tcp(_) | Mover::Local(_)) => {
                debug_assert!(false, "a mover for another kind of line");
                Sent::Nothing
            }
        }
    }

    /// Bytes have come.
    #[inline]
    pub(super) fn note_received<P: Port>(&mut self, bytes: &[u8], port: &P) {
        if let Self::Socket { tap: Some(tap), .. } = self {
            tap.received(port.wall_clock(), bytes);
        }
    }

    /// Nothing more comes.
    pub(super) fn note_ended<P: Port>(&mut self, error: Option<i32>, port: &P) {
        if let Self::Socket { tap: Some(tap), .. } = self {
            tap.ended(port.wall_clock(), error.is_some());
        }
    }

    /// Somebody is told what comes, who must see all of it.
    pub(super) fn is_captured(&self) -> bool {
        matches!(self, Self::Socket { tap: Some(tap), .. } if tap.is_open())
    }

    /// A list has left.
    #[inline]
    pub(super) fn take_back(&mut self, mut sent: SgList) {
        if let Self::Socket { list, .. } = self {
            sent.clear();
            *list = Some(sent);
        }
    }

    /// Something is on its way to the initiator, and nothing else can be sent until that has left.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Socket { list, .. } => list.is_none(),
            Self::Local(line) => line.is_full,
            Self::Adapter(line) => line.is_busy(),
        }
    }

    /// What is sent soon after something else goes with it, at less cost.
    #[inline]
    pub(super) fn gains_from_waiting(&self) -> bool {
        matches!(self, Self::Socket { list: Some(_), .. })
    }

    /// Takes nothing more for now.
    pub(super) fn pause<P: Port>(&mut self, port: &mut P) {
        match self {
            Self::Socket { socket, .. } => port.pause(*socket),
            Self::Local(line) => line.paused = true,
            Self::Adapter(line) => line.pause(),
        }
    }

    pub(super) fn resume<P: Port>(&mut self, port: &mut P) {
        match self {
            Self::Socket { socket, .. } => port.resume(*socket),
            Self::Local(line) => {
                line.paused = false;
                // What has come meanwhile was told of.
                port.waker().wake();
            }
            Self::Adapter(line) => line.resume(),
        }
    }

    /// Bytes that have come to the initiator; None: nobody knows.
    pub(super) fn acknowledged<P: Port>(&self, port: &P) -> Option<u64> {
        match self {
            Self::Socket { socket, .. } => port.acknowledged(*socket),
            Self::Local(_) | Self::Adapter(_) => None,
        }
    }

    /// Nothing more is sent.
    pub(super) fn shutdown<P: Port>(&mut self, port: &mut P) {
        match self {
            Self::Socket { socket, tap, .. } => {
                port.shutdown(*socket);
                tap.iter_mut().for_each(|tap| tap.shut(port.wall_clock()));
            }
            Self::Local(line) => line.end = None,
            Self::Adapter(line) => line.shutdown(),
        }
    }

    pub(super) fn close<P: Port>(self, port: &mut P) {
        match self {
            Self::Socket { socket, tap, .. } => {
                port.close(socket);
                tap.into_iter().for_each(|tap| tap.closed(port.wall_clock()));
            }
            Self::Local(_) => {}
            Self::Adapter(line) => line.leave(port),
        }
    }

    /// Nothing of the connection is left, on either side.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Local(Local { end: None, .. }))
    }

    /// Asks the port for the socket, which it gives back; a local line needs nobody's leave.
    pub(super) fn detach<P: Port>(&self, receiving: Token, port: &mut P) {
        match self {
            Self::Socket { socket, .. } => {
                port.submit(receiving, Work::Detach { socket: *socket });
            }
            Self::Local(_) => port.waker().wake(),
            // The end of watching tells that it is free.
            Self::Adapter(line) => line.leave(port),
        }
    }

    /// What goes on to another reactor. `fd`: what the port has given back.
    pub(super) fn into_carrier(self, fd: Option<OwnedFd>) -> Option<Carrier> {
        match self {
            Self::Socket { tap, .. } => fd.map(|fd| Carrier::Socket(fd, tap)),
            Self::Local(line) => Some(Carrier::Local(line)),
            Self::Adapter(line) => Some(Carrier::Adapter(line.into_connection())),
        }
    }
}

/// Feeds bytes; how many were taken, and the event of the last of them.
#[inline]
pub(super) fn feed(mover: &mut Mover, bytes: &[u8], pool: &Pool) -> (usize, Option<Event>) {
    match mover {
        Mover::Tcp(mover) => mover.feed(bytes, pool),
        Mover::Iser(mover) => mover.feed(bytes, pool),
        Mover::Local(_) => (bytes.len(), None),
    }
}

/// There is an event of what was fed: feed once more, perhaps nothing.
#[inline]
pub(super) fn has_more(mover: &Mover) -> bool {
    matches!(mover, Mover::Iser(mover) if mover.has_more())
}

/// Appends what is to be sent.
#[inline]
fn transmits(mover: &mut Mover, list: &mut SgList) -> bool {
    match mover {
        Mover::Tcp(mover) => mover.poll_transmit(list),
        Mover::Iser(mover) => mover.poll_transmit(list),
        Mover::Local(_) => false,
    }
}

/// Bytes have come where they belong.
#[inline]
pub(super) fn landed(mover: &mut Mover, buf: Buf, bytes: usize, pool: &Pool) -> Option<Event> {
    match mover {
        Mover::Tcp(mover) => mover.landed(buf, bytes, pool),
        Mover::Iser(_) | Mover::Local(_) => None,
    }
}

/// A list has left.
#[inline]
pub(super) fn handle_sent(mover: &mut Mover) {
    match mover {
        Mover::Tcp(mover) => mover.handle_sent(),
        Mover::Iser(mover) => mover.handle_sent(),
        Mover::Local(_) => {}
    }
}

impl Connection {
    /// Many bytes of data that are to come go straight to where they belong, if the port can do
    /// that. Not where tasks go on over other connections: they take their buffers along.
    #[inline]
    pub(super) fn land<P: Port>(&mut self, port: &mut P) {
        if self.lands
            && self.followers.is_none()
            && let (Line::Socket { socket, .. }, Mover::Tcp(mover)) = (&self.line, &mut self.mover)
            && let Some((buf, at, end)) = mover.landing()
            && let Some(back) = port.land(*socket, Landing { buf, at, end })
        {
            let event = mover.landed(back.buf, 0, &self.pool);
            debug_assert!(event.is_none(), "nothing has come");
        }
    }
}

impl<P: Port> Pump<P> {
    /// Takes what has come over connections that no event tells of.
    pub(super) fn take_messages(&mut self) {
        self.serve_stirred();
        if self.context.locals.is_empty() {
            return;
        }
        let mut locals = std::mem::take(&mut self.context.locals);
        locals.retain(|key| self.converse(*key));
        // Those that have begun meanwhile.
        locals.append(&mut self.context.locals);
        self.context.locals = locals;
    }

    /// When to look for memory that is waited for: a local initiator gives it back without a word.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let Context { locals, memory_queue, port, .. } = &self.context;
        if locals.is_empty() || memory_queue.is_empty() {
            return None;
        }
        let wait = if memory_queue.has_moved_up() { Duration::ZERO } else { LOOK };
        Some(port.now() + wait)
    }

    /// Takes what has come over one of them; false if it is not here any more.
    fn converse(&mut self, key: Key) -> bool {
        let mut any = false;
        loop {
            let now = self.context.port.now();
            let Some(mut view) = self.connection(key) else { return false };
            let Connection { line, mover, phase, pool, .. } = &mut *view.connection;
            let (Line::Local(line), Mover::Local(mover)) = (line, mover) else { return false };
            if matches!(phase, Phase::Moving(_)) {
                self.detached(key, None);
                return false;
            }
            // Before it goes on, whoever was told that there is no buffer may have made room.
            let event = match mover.resume(pool) {
                Some(event) => Some(event),
                None => match line.receive() {
                    Some(_) if matches!(phase, Phase::Closing) => None,
                    Some(message) => mover.receive(message, pool),
                    None if line.is_left_alone() => {
                        self.disconnected(key, None);
                        return false;
                    }
                    None => {
                        any |= line.is_full;
                        break;
                    }
                },
            };
            any = true;
            view.context.watch.laps.fed(0);
            if let Some(event) = event {
                let next = view.take_event(event, now);
                self.settle_next(key, next);
            }
        }
        if any {
            self.mark_dirty(key);
        }
        true
    }
}

impl Local {
    fn send(&mut self, mover: &mut local::Target) -> Sent {
        let Some(end) = &self.end else { return Sent::Nothing };
        let mut any = false;
        let has_room = end.send_from(|| {
            let message = mover.poll_message()?;
            any = true;
            let weight = message.data_len();
            Some((message, weight))
        });
        self.is_full = !has_room;
        match (any, has_room) {
            (true, _) => Sent::Left,
            (false, true) => Sent::Nothing,
            // The port is woken when there is room.
            (false, false) => Sent::UnderWay,
        }
    }

    /// The next message, in order.
    fn receive(&mut self) -> Option<ToTarget> {
        if self.paused {
            return None;
        }
        if self.came.is_empty() {
            self.end.as_ref()?.receive(&mut self.came);
        }
        self.came.pop_front()
    }

    /// The initiator has gone, and nothing of what it said is left.
    fn is_left_alone(&self) -> bool {
        self.came.is_empty() && self.end.as_ref().is_none_or(OurEnd::is_over)
    }
}
