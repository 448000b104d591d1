// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pump: the one loop where engine, mover and iscsi meet.
//!
//! ```text
//! Queue --Request--> Link --Command--> iscsi --Op--> mover --SgList--> engine
//!       <--Event---      <-Indication-      <-Event-       <--bytes---
//! ```
//!
//! A READ enters in [`Pump::post`], becomes a command in `link/jobs.rs`, leaves in
//! [`Pump::transmit`], comes back in `SessionDriver::received` and ends in `SessionDriver::ended`.

mod bundles;
mod stripes;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use buf::Pool;
use buf::SgList;
use clock::Instant;
use engine::Landing;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Waker;
use engine::Work;
use mover::tcp::initiator::ByteCounters;
use slots::Slots;

use crate::Config;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::Management;
use crate::Options;
use crate::Request;
use crate::SessionId;
use crate::Transport;
use crate::connect;
use crate::connect::Attempt;
use crate::connect::Connector;
use crate::connect::LocalTarget;
use crate::limits;
use crate::link::SessionDriver;
use crate::multipath::Bundle;
use crate::stopwatch::Layer;
use crate::stopwatch::Stopwatch;
use crate::stopwatch::Times;
use crate::stripe::Array;

/// One thread's share: a port, a pool, and sessions. [`Queue`](crate::Queue) is one over an engine
/// of this machine; whoever has a port of another kind drives it by [`Pump::turn`].
#[derive(Debug)]
pub struct Pump<P> {
    port: P,
    connector: Box<dyn Connector>,
    pool: Pool,
    links: Slots<SessionId, SessionDriver>,
    /// What those that are forgotten did to payload bytes.
    past: ByteCounters,
    epoch: u32,
    events: VecDeque<Event>,
    /// Sessions that are several paths, and how many there ever were.
    bundles: Vec<Bundle>,
    bundles_made: u32,
    /// Sessions that are several disks.
    stripes: Vec<Array>,
    /// Events of members of stripes.
    told_members: VecDeque<Event>,
    /// Events that no bundle has to see any more.
    told: VecDeque<Event>,
    /// Requests that wait for a buffer.
    awaiting_buffer: usize,
    /// Sessions that may have something to send.
    dirty: Vec<SessionId>,
    /// Connections that are over but for a last word, and until when they are kept for it.
    parting: Vec<(Socket, Instant)>,
    watch: Stopwatch,
}

/// What a link works with besides itself.
pub(crate) struct Context<'a, P> {
    pub(crate) now: Instant,
    pub(crate) pool: &'a Pool,
    port: &'a mut P,
    connector: &'a mut dyn Connector,
    epoch: &'a mut u32,
    events: &'a mut VecDeque<Event>,
    /// Requests that wait for a buffer, of all sessions.
    pub(crate) awaiting_buffer: &'a mut usize,
    dirty: &'a mut Vec<SessionId>,
    parting: &'a mut Vec<(Socket, Instant)>,
    pub(crate) watch: &'a mut Stopwatch,
}

/// Bytes of a connection that have come, and those that the system of the other side has taken;
/// None from a port that does not know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) received: Option<u64>,
    pub(crate) taken: Option<u64>,
}

/// Places of the parts of a token: what the work is, the session's slot, the connection.
const KIND_SHIFT: u32 = 56;
const INDEX_SHIFT: u32 = 32;
const INDEX_MASK: u64 = LINKS_MAX as u64 - 1;
/// Sessions whose slots fit a token.
const LINKS_MAX: u32 = 1 << 24;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const LAST_WORD: u64 = 3;

fn token(kind: u64, index: u32, epoch: u32) -> Token {
    Token(kind << KIND_SHIFT | u64::from(index) << INDEX_SHIFT | u64::from(epoch))
}

impl<P: Port> Context<'_, P> {
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn mark_dirty(&mut self, id: SessionId) {
        if self.dirty.last() != Some(&id) {
            self.dirty.push(id);
        }
    }

    /// Never zero, which no connection has.
    pub(crate) fn next_epoch(&mut self) -> u32 {
        *self.epoch = self.epoch.wrapping_add(1).max(1);
        *self.epoch
    }

    pub(crate) fn connect(
        &mut self,
        transport: Transport,
        first: Vec<String>,
        others: Vec<String>,
    ) -> Attempt {
        self.connector.connect(transport, first, others, self.port.waker())
    }

    /// A connection to a target in this process, or why there is none: known at once.
    pub(crate) fn connect_local(&self, target: &LocalTarget) -> Attempt {
        connect::within_process(target, &self.port.waker())
    }

    /// Wakes the port of this pump.
    pub(crate) fn waker(&self) -> Waker {
        self.port.waker()
    }

    pub(crate) fn random(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.port.random(bytes)
    }

    /// The port takes a connection over and receives from it.
    pub(crate) fn take_over(&mut self, fd: OwnedFd, id: SessionId, epoch: u32) -> Socket {
        let socket = self.port.add_socket(fd);
        self.port.submit(token(RECEIVE, id.index, epoch), Work::Receive { socket });
        socket
    }

    /// The port watches what wakes a connection over an adapter.
    pub(crate) fn watch(&mut self, fd: OwnedFd, id: SessionId, epoch: u32) -> Socket {
        let socket = self.port.add_socket(fd);
        self.port.submit(token(RECEIVE, id.index, epoch), Work::Watch { socket });
        socket
    }

    /// What a connection has carried, as far as the port knows.
    pub(crate) fn carried(&self, socket: Socket) -> Carried {
        let (received, taken) = (self.port.arrived(socket), self.port.acknowledged(socket));
        Carried { received, taken }
    }

    /// See [`Port::wall_clock`].
    pub(crate) fn wall_clock(&self) -> Duration {
        self.port.wall_clock()
    }

    /// See [`Port::segment_len`].
    pub(crate) fn segment_len(&self, socket: Socket) -> Option<usize> {
        self.port.segment_len(socket)
    }

    /// See [`Port::land`].
    pub(crate) fn land(&mut self, socket: Socket, landing: Landing) -> Option<Landing> {
        self.port.land(socket, landing)
    }

    /// What has not left never will.
    pub(crate) fn hang_up(&mut self, socket: Socket) {
        self.port.close(socket);
    }

    /// Ends a connection when this has been sent on it, or after some time.
    pub(crate) fn part_with(&mut self, socket: Socket, list: SgList) {
        self.port.submit(token(LAST_WORD, 0, socket.0), Work::Send { socket, list });
        self.port.shutdown(socket);
        self.parting.push((socket, self.now + limits::LAST_WORD_PATIENCE));
    }

    /// Ends a connection on which all is said.
    pub(crate) fn part(&mut self, socket: Socket) {
        self.port.shutdown(socket);
        self.port.close(socket);
    }
}

/// A link and what it works with, borrowed side by side.
macro_rules! with_link {
    ($pump:expr, $id:expr, |$link:ident, $context:ident| $body:expr) => {{
        let pump = $pump;
        let mut $context = Context {
            now: pump.port.now(),
            pool: &pump.pool,
            port: &mut pump.port,
            connector: &mut *pump.connector,
            epoch: &mut pump.epoch,
            events: &mut pump.events,
            awaiting_buffer: &mut pump.awaiting_buffer,
            dirty: &mut pump.dirty,
            parting: &mut pump.parting,
            watch: &mut pump.watch,
        };
        match pump.links.get_mut($id) {
            Some($link) => {
                let result = $body;
                $link.testify();
                Some(result)
            }
            None => None,
        }
    }};
}

use with_link;

impl<P: Port> Pump<P> {
    /// Runs over `port`; `connector` makes its connections. Of `config` only the pool counts.
    ///
    /// # Errors
    /// If buffers cannot be had.
    pub fn new(port: P, connector: Box<dyn Connector>, config: &Config) -> io::Result<Self> {
        Ok(Self {
            port,
            connector,
            pool: Pool::new(config.pool_bytes_max)?,
            links: Slots::new(LINKS_MAX),
            past: ByteCounters::default(),
            epoch: 0,
            events: VecDeque::new(),
            bundles: Vec::new(),
            bundles_made: 0,
            stripes: Vec::new(),
            told_members: VecDeque::new(),
            told: VecDeque::new(),
            awaiting_buffer: 0,
            dirty: Vec::new(),
            parting: Vec::new(),
            watch: Stopwatch::default(),
        })
    }

    /// Begins to log in; [`Event::Up`] or [`Event::Ended`] follows.
    ///
    /// # Errors
    /// [`Kind::Options`], [`Kind::System`], [`Kind::Full`].
    pub fn open(&mut self, options: Options) -> Result<SessionId, Error> {
        self.open_link(options, None)
    }

    /// `refuges`: of one path out of several.
    fn open_link(
        &mut self,
        options: Options,
        refuges: Option<&[String]>,
    ) -> Result<SessionId, Error> {
        let id = self.links.next_id().ok_or_else(|| Error::new(Kind::Full))?;
        let mut context = Context {
            now: self.port.now(),
            pool: &self.pool,
            port: &mut self.port,
            connector: &mut *self.connector,
            epoch: &mut self.epoch,
            events: &mut self.events,
            awaiting_buffer: &mut self.awaiting_buffer,
            dirty: &mut self.dirty,
            parting: &mut self.parting,
            watch: &mut self.watch,
        };
        let link = SessionDriver::new(id, options, refuges, &self.links, &mut context)?;
        self.links.insert(link);
        Ok(id)
    }

    /// Takes a request; it leaves with the next turn, and [`Event::Done`] with `tag` follows.
    ///
    /// # Errors
    /// The request comes back if there is no room for its data, or no such session.
    pub fn post(
        &mut self,
        session: SessionId,
        tag: u64,
        request: Request,
    ) -> Result<(), (Error, Request)> {
        if self.stripe(session).is_some() {
            return self.post_to_stripe(session, tag, request);
        }
        if self.bundle(session).is_some() {
            return self.post_to_bundle(session, tag, request);
        }
        let Some(link) = self.links.get_mut(session) else {
            return Err((Error::new(Kind::Closed), request));
        };
        self.watch.laps.lap(Layer::Caller);
        let posted = link.post(tag, request, &self.pool, self.awaiting_buffer > 0);
        if posted.is_ok() && self.dirty.last() != Some(&session) {
            self.dirty.push(session);
        }
        self.watch.posted();
        posted
    }

    /// See [`crate::Queue::declare_segment`].
    ///
    /// # Errors
    /// The session has ended, or is busy with another exchange.
    pub fn declare_segment(&mut self, session: SessionId, length: u32) -> Result<(), Error> {
        if self.links.get(session).is_none() {
            return Err(Error::new(Kind::Closed));
        }
        let declared =
            with_link!(&mut *self, session, |link, context| link.declare(length, &mut context));
        self.carry_bundles();
        declared.unwrap_or(Ok(()))
    }

    /// See [`crate::Queue::post_management`].
    ///
    /// # Errors
    /// The session has ended, is not logged in now, or has as many functions under way as it may.
    pub fn post_management(
        &mut self,
        session: SessionId,
        tag: u64,
        management: Management,
    ) -> Result<(), Error> {
        if self.stripe(session).is_some() {
            return Err(Error::new(Kind::Unsupported("task management, being a stripe")));
        }
        let session = match self.bundle(session) {
            Some(bundle) => *bundle.usable().ok_or_else(|| Error::new(Kind::NoPath))?,
            None => session,
        };
        if self.links.get(session).is_none() {
            return Err(Error::new(Kind::Closed));
        }
        let asked = with_link!(&mut *self, session, |link, context| {
            link.manage(tag, management, &mut context)
        });
        self.carry_bundles();
        asked.unwrap_or(Ok(()))
    }

    /// Begins to log out; [`Event::Ended`] follows.
    pub fn close(&mut self, session: SessionId) {
        if self.stripe(session).is_some() {
            return self.close_stripe(session);
        }
        if self.bundle(session).is_some() {
            return self.close_bundle(session);
        }
        with_link!(&mut *self, session, |link, context| link.close(&mut context));
    }

    /// Ends a session at once, see [`Queue::abandon`](crate::Queue::abandon).
    pub fn abandon(&mut self, session: SessionId) {
        if self.stripe(session).is_some() {
            return self.close_stripe(session);
        }
        if self.bundle(session).is_some() {
            return self.close_bundle(session);
        }
        with_link!(&mut *self, session, |link, context| link.abandon(&mut context));
    }

    /// Begins to end all sessions, those with something under way first.
    pub(crate) fn leave_all(&mut self) {
        let stripes: Vec<SessionId> = self.stripes.iter().map(Array::id).collect();
        stripes.into_iter().for_each(|stripe| self.close_stripe(stripe));
        let bundles: Vec<SessionId> = self.bundles.iter().map(Bundle::id).collect();
        bundles.into_iter().for_each(|bundle| self.close_bundle(bundle));
        let busy = self.in_doubt();
        let idle = self.links.keys().filter(|id| !busy.contains(id));
        let all: Vec<SessionId> = busy.iter().copied().chain(idle).collect();
        all.into_iter().for_each(|session| self.abandon(session));
    }

    /// Sessions of which something may still change a unit.
    pub(crate) fn in_doubt(&self) -> Vec<SessionId> {
        let links = self.links.iter().filter(|(_, link)| link.is_in_doubt());
        let mut all: Vec<SessionId> = links.map(|(_, link)| self.known_as(link.id)).collect();
        all.dedup();
        all
    }

    /// See [`crate::Queue::busy_for`].
    pub(crate) fn busy_for(&self, session: SessionId) -> Option<Duration> {
        if let Some(stripe) = self.stripe(session) {
            return stripe.sessions().filter_map(|member| self.busy_for(member)).max();
        }
        let since = match self.bundle(session) {
            Some(bundle) => {
                let paths = bundle.sessions();
                paths.filter_map(|path| self.links.get(path)?.busy_since()).min()?
            }
            None => self.links.get(session).and_then(SessionDriver::busy_since)?,
        };
        Some(self.now().since(since))
    }

    /// See [`crate::Queue::is_being_replaced`].
    pub(crate) fn is_being_replaced(&self, session: SessionId) -> bool {
        if let Some(stripe) = self.stripe(session) {
            return stripe.sessions().any(|member| self.is_being_replaced(member));
        }
        let replaces =
            |session| self.links.get(session).is_some_and(SessionDriver::is_being_replaced);
        match self.bundle(session) {
            Some(bundle) => bundle.sessions().any(replaces),
            None => replaces(session),
        }
    }

    /// Whether no session is left.
    pub(crate) fn are_all_over(&self) -> bool {
        self.parting.is_empty() && self.links.values().all(SessionDriver::is_dead)
    }

    /// Whether a session is logged in now.
    #[must_use]
    pub fn is_up(&self, session: SessionId) -> bool {
        if let Some(stripe) = self.stripe(session) {
            return stripe.is_up();
        }
        match self.bundle(session) {
            Some(bundle) => bundle.is_up(),
            None => self.links.get(session).is_some_and(SessionDriver::is_up),
        }
    }

    /// Whether a session has ended, or never was.
    pub fn is_over(&self, session: SessionId) -> bool {
        if let Some(stripe) = self.stripe(session) {
            return stripe.is_over();
        }
        match self.bundle(session) {
            Some(bundle) => bundle.is_over(),
            None => self.links.get(session).is_none_or(SessionDriver::is_dead),
        }
    }

    /// Drops what is known of a session that has ended.
    pub fn forget(&mut self, session: SessionId) {
        if self.stripe(session).is_some() {
            return self.forget_stripe(session);
        }
        if self.bundle(session).is_some() {
            return self.forget_bundle(session);
        }
        if let Some(link) = self.links.get(session).filter(|link| link.is_dead()) {
            self.past += link.byte_counters();
            self.links.discard(session);
        }
    }

    /// The next event, without waiting.
    pub fn next_event(&mut self) -> Option<Event> {
        self.carry_stripes();
        self.told.pop_front().or_else(|| self.events.pop_front())
    }

    /// How many events there are.
    pub fn events(&self) -> usize {
        self.told.len() + self.events.len()
    }

    /// Where data buffers come from.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where the time went.
    #[must_use]
    pub fn times(&mut self) -> Times {
        let mut times = self.watch.times();
        let mut touched = self.past;
        self.links.values().for_each(|link| touched += link.byte_counters());
        (times.copied, times.digested) = (touched.copied, touched.digested);
        times
    }

    pub(crate) fn now(&self) -> Instant {
        self.port.now()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.port.waker()
    }

    pub(crate) fn engine(&self) -> &'static str {
        self.port.name()
    }

    /// Sends what has gathered, then waits for the engine: until something happens there, something
    /// is due, or `deadline`.
    pub fn turn(&mut self, deadline: Option<Instant>) {
        self.watch.begin();
        let before = self.events();
        self.transmit();
        self.watch.laps.lap(Layer::Send);
        // What was posted may have met its end already, and nothing more comes for it.
        let at_once = (self.events() > before).then(|| self.port.now());
        let due = self.links.values().filter_map(SessionDriver::deadline).min();
        let parted = self.parting.iter().map(|(_, until)| *until).min();
        let paths = self.bundles.iter().filter_map(Bundle::deadline).min();
        let stripes = self.stripes.iter().filter_map(Array::deadline).min();
        let deadline = [due, parted, paths, stripes, at_once, deadline].into_iter().flatten().min();
        let kernel = self.port.kernel_cycles();
        self.port.wait(deadline);
        self.watch.laps.waited(self.port.kernel_cycles().wrapping_sub(kernel));
        self.gather();
    }

    /// Takes what the engine has, without waiting.
    fn gather(&mut self) {
        while let Some((token, event)) = self.port.next_event() {
            self.dispatch(token, event);
        }
        let now = self.port.now();
        self.part(|_, until| until <= now);
        let due = |link: &SessionDriver| link.deadline().is_some_and(|at| at <= now);
        let late = self.links.iter().filter(|(_, link)| due(link));
        let late: Vec<SessionId> = late.map(|(id, _)| id).collect();
        for id in late {
            with_link!(&mut *self, id, |link, context| link.expire(&mut context));
        }
        self.expire_bundles();
        self.expire_stripes();
        self.watch.laps.lap(Layer::Protocol);
        self.transmit();
        self.carry_stripes();
        self.watch.laps.lap(Layer::Send);
    }

    fn dispatch(&mut self, token: Token, event: engine::Event) {
        use engine::Event as E;
        if matches!(event, E::Woken) {
            return self.woken();
        }
        if token.0 >> KIND_SHIFT == LAST_WORD {
            return self.part(|socket, _| u64::from(socket.0) == token.0 & u64::from(u32::MAX));
        }
        let index = u32::try_from(token.0 >> INDEX_SHIFT & INDEX_MASK).unwrap_or(u32::MAX);
        let epoch = u32::try_from(token.0 & u64::from(u32::MAX)).unwrap_or(0);
        // Whether the session is still the one that it was, the connection says by its epoch.
        let Some((id, _)) = self.links.at(index) else { return };
        match event {
            E::Received { bytes } => {
                with_link!(self, id, |link, context| {
                    link.received(epoch, &bytes, &mut context);
                });
            }
            E::Ready => {
                with_link!(self, id, |link, context| link.stirred(epoch, &mut context));
            }
            E::Landed { buf, bytes } => {
                with_link!(self, id, |link, context| {
                    link.landed(epoch, buf, bytes, &mut context);
                });
            }
            E::Sent { list, result } => {
                with_link!(self, id, |link, context| {
                    link.sent(epoch, list, result, &mut context);
                });
            }
            E::ReceiveEnded { error } => {
                with_link!(self, id, |link, context| {
                    link.note_ended(epoch, error, &context);
                    link.disconnected(epoch, &mut context);
                });
            }
            _ => debug_assert!(false, "work that nobody gave to the engine"),
        }
    }

    /// Closes connections whose last word is said, or takes too long.
    fn part(&mut self, is_over: impl Fn(Socket, Instant) -> bool) {
        let port = &mut self.port;
        self.parting.retain(|(socket, until)| {
            let over = is_over(*socket, *until);
            if over {
                port.close(*socket);
            }
            !over
        });
    }

    /// Other threads have something for some session.
    fn woken(&mut self) {
        for index in 0..self.links.slots() {
            let Some((id, _)) = self.links.at(index) else { continue };
            with_link!(&mut *self, id, |link, context| link.poll_connect(&mut context));
        }
    }

    /// Hands lists to the engine, many PDUs in each.
    fn transmit(&mut self) {
        while let Some(id) = self.dirty.last().copied() {
            // What was posted since the last turn, with one look at the clock.
            if self.links.get(id).is_some_and(SessionDriver::has_ready) {
                self.watch.laps.lap(Layer::Send);
                with_link!(&mut *self, id, |link, context| link.issue(&mut context));
                self.watch.laps.lap(Layer::Post);
            }
            self.dirty.pop();
            let Some(link) = self.links.get_mut(id) else { continue };
            let stirred = link.transmit(&mut self.port, |port, socket, list, epoch| {
                port.submit(token(SEND, id.index, epoch), Work::Send { socket, list });
            });
            for epoch in stirred {
                with_link!(&mut *self, id, |link, context| link.look(epoch, &mut context));
            }
        }
    }
}

/// A point in time that lies `timeout` ahead.
pub(crate) fn after(now: Instant, timeout: Duration) -> Instant {
    now + timeout
}
