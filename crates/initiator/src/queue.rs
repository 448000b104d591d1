// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions in the caller's own thread: post, reap, wait (the asynchronous interface of the AMP
//! study).

use std::collections::VecDeque;
use std::time::Duration;

use buf::Pool;
use engine::Choice;
use engine::epoll::Epoll;
use engine::uring::Uring;
use iscsi::initiator::discovery::Discovered;

use crate::Config;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::Management;
use crate::Options;
use crate::Request;
use crate::SessionId;
use crate::connect::Threads;
use crate::pump::Pump;
use crate::pump::after;
use crate::scsi::Execute;
use crate::stopwatch::Times;

/// A work queue and an event queue over any number of sessions; one thread uses it, nothing runs
/// besides.
///
/// Requests that are posted leave with the next call that waits, many in one system call. Time-outs
/// and reconnection go on only while the caller waits.
#[derive(Debug)]
pub struct Queue {
    pump: Engine,
    /// Events that a blocking call passed over.
    aside: VecDeque<Event>,
    tag: u64,
}

#[derive(Debug)]
enum Engine {
    Uring(Box<Pump<Uring>>),
    Epoll(Box<Pump<Epoll>>),
}

macro_rules! each {
    ($queue:expr, $pump:ident => $call:expr) => {
        match &mut $queue.pump {
            Engine::Uring($pump) => $call,
            Engine::Epoll($pump) => $call,
        }
    };
}

impl Queue {
    /// Starts an engine in this thread.
    ///
    /// # Errors
    /// [`Kind::System`] if the engine or its buffers cannot be had.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let port = engine::Config { spin_max: config.spin_max, ..engine::Config::default() };
        let pump = match engine::choose(config.engine) {
            Choice::Epoll => {
                Engine::Epoll(Box::new(Pump::new(Epoll::new(&port)?, Box::new(Threads), config)?))
            }
            _ => Engine::Uring(Box::new(Pump::new(Uring::new(&port)?, Box::new(Threads), config)?)),
        };
        Ok(Self { pump, aside: VecDeque::new(), tag: OWN_TAGS })
    }

    /// Begins to log in; [`Event::Up`] or [`Event::Ended`] follows. Requests may be posted at once.
    ///
    /// # Errors
    /// [`Kind::System`], [`Kind::Full`].
    pub fn open(&mut self, options: Options) -> Result<SessionId, Error> {
        each!(self, pump => pump.open(options))
    }

    /// Logs in and waits for it.
    ///
    /// # Errors
    /// Whatever ends the login.
    pub fn login(&mut self, options: Options) -> Result<SessionId, Error> {
        let id = self.open(options)?;
        loop {
            match self.until(|event| match event {
                Event::Up { session, .. } | Event::Ended { session, .. } => *session == id,
                _ => false,
            }) {
                Event::Ended { error, .. } => {
                    self.forget(id);
                    return Err(error.unwrap_or_else(|| Error::new(Kind::Closed)));
                }
                Event::Up { .. } => return Ok(id),
                _ => {}
            }
        }
    }

    /// Asks the target at one of the portals what targets there are.
    ///
    /// # Errors
    /// Whatever ends the login or the answer.
    pub fn discover(&mut self, options: Options) -> Result<Vec<Discovered>, Error> {
        let id = self.open(Options { target: None, ..options })?;
        let found = self.until(|event| match event {
            Event::Targets { session, .. } | Event::Ended { session, .. } => *session == id,
            _ => false,
        });
        match found {
            Event::Targets { result, .. } => {
                self.logout(id);
                result
            }
            Event::Ended { error, .. } => {
                self.forget(id);
                Err(error.unwrap_or_else(|| Error::new(Kind::Closed)))
            }
            _ => Err(Error::new(Kind::Closed)),
        }
    }

    /// Takes a request; [`Event::Done`] with `tag` follows. Tags belong to the caller; those with
    /// the highest bit set are the queue's own.
    ///
    /// # Errors
    /// The request comes back if there is no room for its data ([`Kind::Full`]: reap, drop data,
    /// try again) or the session has ended.
    pub fn post(
        &mut self,
        session: SessionId,
        tag: u64,
        request: Request,
    ) -> Result<(), (Error, Request)> {
        each!(self, pump => pump.post(session, tag, request))
    }

    /// Starts a task management function; [`Event::Managed`] with `tag` follows, and before it what
    /// becomes of the commands that it ends.
    ///
    /// # Errors
    /// The session has ended, is not logged in now, or has as many functions under way as it may.
    pub fn post_management(
        &mut self,
        session: SessionId,
        tag: u64,
        management: Management,
    ) -> Result<(), Error> {
        each!(self, pump => pump.post_management(session, tag, management))
    }

    /// Starts a task management function and waits for its end; other events are kept for `reap`.
    ///
    /// # Errors
    /// [`Kind::Management`] if the target does not carry it out; whatever ends the session.
    pub fn manage(&mut self, session: SessionId, management: Management) -> Result<(), Error> {
        self.tag = self.tag.wrapping_add(1) | OWN_TAGS;
        let own = self.tag;
        self.post_management(session, own, management)?;
        match self.until(|event| matches!(event, Event::Managed { tag, .. } if *tag == own)) {
            Event::Managed { result, .. } => result,
            _ => Err(Error::new(Kind::Closed)),
        }
    }

    /// Declares the longest data segment that this side takes, bytes, anew: at once on each
    /// connection of a session that is logged in, and in each login from now on (RFC 7143 §13.12).
    /// [`Event::Declared`] follows. Shorter ones let others get in between on a slow path; longer
    /// ones cost less for each byte. Commands that are under way go on.
    ///
    /// # Errors
    /// The session has ended, or is busy with another text exchange.
    pub fn declare_segment(&mut self, session: SessionId, length: u32) -> Result<(), Error> {
        each!(self, pump => pump.declare_segment(session, length))
    }

    /// As `declare_segment`, and waits for the answer; other events are kept for `reap`.
    ///
    /// # Errors
    /// However it fails; what held before holds on.
    pub fn resize_segments(&mut self, session: SessionId, length: u32) -> Result<(), Error> {
        self.declare_segment(session, length)?;
        match self.until(|event| match event {
            Event::Declared { session: of, .. } | Event::Ended { session: of, .. } => {
                *of == session
            }
            _ => false,
        }) {
            Event::Declared { result, .. } => result,
            Event::Ended { error, .. } => Err(error.unwrap_or_else(|| Error::new(Kind::Closed))),
            _ => Err(Error::new(Kind::Closed)),
        }
    }

    /// The next event, without waiting.
    pub fn reap(&mut self) -> Option<Event> {
        if let Some(event) = self.aside.pop_front() {
            return Some(event);
        }
        each!(self, pump => pump.next_event())
    }

    /// Sends what was posted and waits until there are `count` events to reap, or for `timeout`.
    /// Returns how many there are. Spins first, adaptively, as the configuration says; a `timeout`
    /// of zero polls.
    pub fn wait_n(&mut self, count: usize, timeout: Duration) -> usize {
        let deadline = each!(self, pump => after(pump.now(), timeout));
        loop {
            each!(self, pump => pump.turn(Some(deadline)));
            let there = self.aside.len() + each!(self, pump => pump.events());
            if there >= count || each!(self, pump => pump.now()) >= deadline {
                return there;
            }
        }
    }

    /// As `wait_n` for one event, without an end.
    pub fn wait(&mut self) {
        each!(self, pump => pump.turn(None));
    }

    /// Posts a request and waits for its end; other events are kept for `reap`.
    ///
    /// # Errors
    /// However the request fails.
    pub fn execute(&mut self, session: SessionId, request: Request) -> Result<Done, Error> {
        self.tag = self.tag.wrapping_add(1) | OWN_TAGS;
        let own = self.tag;
        self.post(session, own, request).map_err(|(error, _)| error)?;
        match self.until(|event| matches!(event, Event::Done { tag, .. } if *tag == own)) {
            Event::Done { result, .. } => result,
            _ => Err(Error::new(Kind::Closed)),
        }
    }

    /// Whether a session is logged in now: what is posted leaves at once.
    #[must_use]
    pub fn is_up(&self, session: SessionId) -> bool {
        match &self.pump {
            Engine::Uring(pump) => pump.is_up(session),
            Engine::Epoll(pump) => pump.is_up(session),
        }
    }

    /// Begins to log out; [`Event::Ended`] follows.
    pub fn close(&mut self, session: SessionId) {
        each!(self, pump => pump.close(session));
    }

    /// Ends a session at once: what is under way gets an error. So that nothing of it reaches its
    /// unit any more, on whatever way it is, another session takes its place (RFC 7143 §6.3.5) and
    /// logs out; [`Event::Ended`] follows then, or when that cannot be had.
    pub fn abandon(&mut self, session: SessionId) {
        each!(self, pump => pump.abandon(session));
    }

    /// Whether a session has ended, or never was.
    #[must_use]
    pub fn is_over(&mut self, session: SessionId) -> bool {
        each!(self, pump => pump.is_over(session))
    }

    /// Logs out and waits for it, at most some seconds. [`Event::Ended`] is there to reap then.
    pub fn logout(&mut self, session: SessionId) {
        self.close(session);
        while !each!(self, pump => pump.is_over(session)) {
            each!(self, pump => pump.turn(None));
        }
        self.forget(session);
    }

    /// Logs out of all sessions and waits for it, at most for `patience`.
    pub fn leave(&mut self, patience: Duration) {
        each!(self, pump => pump.close_all());
        let deadline = each!(self, pump => after(pump.now(), patience));
        while !each!(self, pump => pump.are_all_over())
            && each!(self, pump => pump.now()) < deadline
        {
            each!(self, pump => pump.turn(Some(deadline)));
        }
    }

    /// Where data buffers come from.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        match &self.pump {
            Engine::Uring(pump) => pump.pool(),
            Engine::Epoll(pump) => pump.pool(),
        }
    }

    /// The engine that was chosen.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match &self.pump {
            Engine::Uring(pump) => pump.engine(),
            Engine::Epoll(pump) => pump.engine(),
        }
    }

    /// Where the time of this queue went.
    #[must_use]
    pub fn times(&mut self) -> Times {
        each!(self, pump => pump.times())
    }

    /// Ends a wait from another thread.
    #[must_use]
    pub fn waker(&self) -> engine::Waker {
        match &self.pump {
            Engine::Uring(pump) => pump.waker(),
            Engine::Epoll(pump) => pump.waker(),
        }
    }

    /// Logical unit `lun` of `session`, for the functions of [`crate::scsi`].
    pub fn unit(&mut self, session: SessionId, lun: u16) -> QueueUnit<'_> {
        QueueUnit { queue: self, session, lun }
    }

    /// Drops what is known of a session that has ended.
    pub fn forget(&mut self, session: SessionId) {
        each!(self, pump => pump.forget(session));
    }

    /// Waits for an event that `wanted` says it is; the others are kept.
    fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            while let Some(event) = each!(self, pump => pump.next_event()) {
                if wanted(&event) {
                    return event;
                }
                self.aside.push_back(event);
            }
            each!(self, pump => pump.turn(None));
        }
    }
}

/// Tags of the queue itself.
const OWN_TAGS: u64 = 1 << 63;

/// One logical unit over a queue.
#[derive(Debug)]
pub struct QueueUnit<'a> {
    queue: &'a mut Queue,
    session: SessionId,
    lun: u16,
}

impl Execute for QueueUnit<'_> {
    fn execute(
        &mut self,
        cdb: wire::iscsi::Cdb,
        data: crate::Data,
        retry: crate::Retry,
    ) -> Result<Done, Error> {
        self.queue.execute(self.session, Request { lun: self.lun, cdb, data, retry })
    }
}
