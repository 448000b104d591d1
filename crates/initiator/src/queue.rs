// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions in the caller's own thread: post, reap, wait (the asynchronous interface of the AMP
//! study).

mod interrupt;

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
use crate::Paths;
use crate::Request;
use crate::SessionId;
use crate::Stripe;
use crate::connect::Threads;
use crate::pump::Pump;
use crate::pump::after;
use crate::scsi::Execute;
use crate::stopwatch::Times;

use self::interrupt::Interrupt;
pub use self::interrupt::InterruptHandle;

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
    /// Answers that nobody waits for any more.
    orphans: usize,
    interrupt: Interrupt,
    listener: Option<fn(&Event) -> bool>,
}

#[derive(Debug)]
enum Engine {
    Uring(Box<Pump<Uring>>),
    Epoll(Box<Pump<Epoll>>),
}

macro_rules! each_ref {
    ($queue:expr, $pump:ident => $call:expr) => {
        match &$queue.pump {
            Engine::Uring($pump) => $call,
            Engine::Epoll($pump) => $call,
        }
    };
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
        Ok(Self {
            pump,
            aside: VecDeque::new(),
            tag: OWN_TAGS,
            orphans: 0,
            interrupt: Interrupt::default(),
            listener: None,
        })
    }

    /// Begins to log in; [`Event::Up`] or [`Event::Ended`] follows. Requests may be posted at once.
    ///
    /// # Errors
    /// [`Kind::System`], [`Kind::Full`].
    pub fn open(&mut self, options: Options) -> Result<SessionId, Error> {
        each!(self, pump => pump.open(options))
    }

    /// Begins to log in over several paths to one disk; [`Event::Up`] follows when one of them
    /// can be used and the others are known, or have had a second, or [`Event::Ended`]. What it
    /// gives is used as a session. Requests go to the unit of the first path, under its number;
    /// each goes over one path, and over another one when that is lost ([`Event::Path`]). Nothing
    /// that is written over what was lost with a path is sent, or has ended, before it is certain
    /// that this cannot come about any more ([`Kind::InDoubt`]). Patience is that of the first one.
    ///
    /// # Errors
    /// As for `open`. [`Event::Ended`] comes with [`Kind::OtherPath`], [`Kind::OtherSize`],
    /// [`Kind::LocalName`] or [`Kind::Nameless`] if the paths are not known to lead to one disk,
    /// and with [`Kind::OtherProtection`] if some let write and others do not.
    pub fn open_paths(&mut self, paths: Paths) -> Result<SessionId, Error> {
        each!(self, pump => pump.open_paths(paths))
    }

    /// Begins to log in to several disks that are used as one; [`Event::Up`] follows when all of
    /// them are known, or [`Event::Ended`]. What it gives is used as a session. Requests go to the
    /// unit of the first disk, under its number, and to the disks that have a part of what they
    /// name; each ends with its last part, with the first error in the order of its range. READ,
    /// WRITE, WRITE SAME, UNMAP, COMPARE AND WRITE within a chunk, SYNCHRONIZE CACHE, GET LBA
    /// STATUS and what tells size and limits are carried out; nothing else is.
    ///
    /// A request that crosses the border of two disks is not one operation: after a crash or an
    /// error some of it may be written, and some not.
    ///
    /// # Errors
    /// As for `open_paths`; [`Kind::Stripe`], with which [`Event::Ended`] comes, too.
    pub fn open_stripe(&mut self, stripe: Stripe) -> Result<SessionId, Error> {
        each!(self, pump => pump.open_stripe(stripe))
    }

    /// Logs in and waits for it.
    ///
    /// # Errors
    /// Whatever ends the login.
    pub fn login(&mut self, options: Options) -> Result<SessionId, Error> {
        let id = self.open(options)?;
        self.until_up(id)
    }

    /// As `login`, over several paths ([`Queue::open_paths`]).
    ///
    /// # Errors
    /// As for `open_paths`; whatever ends all logins.
    pub fn login_paths(&mut self, paths: Paths) -> Result<SessionId, Error> {
        let id = self.open_paths(paths)?;
        self.until_up(id)
    }

    /// As `login`, to several disks that are used as one ([`Queue::open_stripe`]).
    ///
    /// # Errors
    /// As for `open_stripe`; whatever ends one of the logins.
    pub fn login_stripe(&mut self, stripe: Stripe) -> Result<SessionId, Error> {
        let id = self.open_stripe(stripe)?;
        self.until_up(id)
    }

    fn until_up(&mut self, id: SessionId) -> Result<SessionId, Error> {
        let came = self.until(|event| match event {
            Event::Up { session, .. } | Event::Ended { session, .. } => *session == id,
            _ => false,
        });
        match came {
            Ok(Event::Up { .. }) => Ok(id),
            Ok(Event::Ended { error, .. }) => {
                self.forget(id);
                // The connection of a refusal is closed (RFC 7143 §11.13.5), also if nobody waits
                // for this queue any more.
                for _ in 0..CLOSING_TURNS {
                    let now = each!(self, pump => pump.now());
                    each!(self, pump => pump.turn(Some(now)));
                }
                Err(error.unwrap_or_else(|| Error::new(Kind::Closed)))
            }
            Ok(_) => Err(Error::new(Kind::Closed)),
            Err(error) => {
                self.close(id);
                Err(error)
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
            Ok(Event::Targets { result, .. }) => {
                self.logout(id);
                result
            }
            Ok(Event::Ended { error, .. }) => {
                self.forget(id);
                Err(error.unwrap_or_else(|| Error::new(Kind::Closed)))
            }
            Ok(_) => Err(Error::new(Kind::Closed)),
            Err(error) => {
                self.close(id);
                Err(error)
            }
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
        self.expect_time()?;
        self.post_management(session, own, management)?;
        match self.answer(|event| matches!(event, Event::Managed { tag, .. } if *tag == own))? {
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
        })? {
            Event::Declared { result, .. } => result,
            Event::Ended { error, .. } => Err(error.unwrap_or_else(|| Error::new(Kind::Closed))),
            _ => Err(Error::new(Kind::Closed)),
        }
    }

    /// The next event, without waiting.
    pub fn reap(&mut self) -> Option<Event> {
        loop {
            let event = match self.aside.pop_front() {
                Some(event) => event,
                None => each!(self, pump => pump.next_event())?,
            };
            if self.orphans == 0 || !is_own(&event) {
                return Some(event);
            }
            self.orphans -= 1;
        }
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
    /// However the request fails. [`Kind::Interrupted`] as for all calls here that wait for an
    /// answer: what was posted goes on.
    pub fn execute(&mut self, session: SessionId, request: Request) -> Result<Done, Error> {
        self.tag = self.tag.wrapping_add(1) | OWN_TAGS;
        let own = self.tag;
        self.expect_time()?;
        self.post(session, own, request).map_err(|(error, _)| error)?;
        match self.answer(|event| matches!(event, Event::Done { tag, .. } if *tag == own))? {
            Event::Done { result, .. } => result,
            _ => Err(Error::new(Kind::Closed)),
        }
    }

    /// Whether a session is logged in now: what is posted leaves at once.
    #[must_use]
    pub fn is_up(&self, session: SessionId) -> bool {
        each_ref!(self, pump => pump.is_up(session))
    }

    /// Begins to log out; [`Event::Ended`] follows. A session that does not end in order is
    /// abandoned.
    pub fn close(&mut self, session: SessionId) {
        each!(self, pump => pump.close(session));
    }

    /// Ends a session at once: what is under way gets an error. So that nothing of it reaches its
    /// unit any more, on whatever way it is, another session takes its place (RFC 7143 §6.3.5) and
    /// logs out. [`Event::Ended`] follows then, or with [`Kind::NotReplaced`] when that cannot be
    /// had in time. One with nothing under way that may change a unit just logs out.
    pub fn abandon(&mut self, session: SessionId) {
        each!(self, pump => pump.abandon(session));
    }

    /// Sessions of which something that was sent may still change a unit: commands are under way,
    /// or were lost with their session and nobody has taken its place.
    #[must_use]
    pub fn in_doubt(&self) -> Vec<SessionId> {
        each_ref!(self, pump => pump.in_doubt())
    }

    /// For how long a command that waits to be tried again has been told that the target is busy
    /// (BUSY, TASK SET FULL, a unit that is becoming ready); None: none is.
    #[must_use]
    pub fn busy_for(&self, session: SessionId) -> Option<Duration> {
        each_ref!(self, pump => pump.busy_for(session))
    }

    /// Whether the session that is to take the place of an abandoned one has a connection: on a
    /// slow line it may need more time to log in.
    #[must_use]
    pub fn is_being_replaced(&self, session: SessionId) -> bool {
        each_ref!(self, pump => pump.is_being_replaced(session))
    }

    /// Whether a session has ended, or never was.
    #[must_use]
    pub fn is_over(&mut self, session: SessionId) -> bool {
        each!(self, pump => pump.is_over(session))
    }

    /// Logs out and waits for it, at most some seconds. [`Event::Ended`] is there to reap then. A
    /// session that is still [in doubt](Self::in_doubt) stays known.
    pub fn logout(&mut self, session: SessionId) {
        self.close(session);
        while !each!(self, pump => pump.is_over(session)) && self.expect_time().is_ok() {
            let limit = self.interrupt.limit();
            each!(self, pump => pump.turn(limit));
        }
        if !self.in_doubt().contains(&session) {
            self.forget(session);
        }
    }

    /// Ends all sessions: those with something under way are [abandoned](Self::abandon), all at the
    /// same time, the others log out. Waits for the logouts for at most `patience`, and for what is
    /// abandoned as long as `most`. Gives the sessions of which something may still come about
    /// then. May be called again. No [`InterruptHandle`] ends it.
    pub fn leave(&mut self, patience: Duration, most: Duration) -> Vec<SessionId> {
        each!(self, pump => pump.leave_all());
        let now = each!(self, pump => pump.now());
        let (soon, last) = (after(now, patience.min(most)), after(now, most));
        loop {
            let (left, now) = (self.in_doubt(), each!(self, pump => pump.now()));
            let all_is_said = each!(self, pump => pump.are_all_over());
            if all_is_said || now >= last || left.is_empty() && now >= soon {
                return left;
            }
            let deadline = if left.is_empty() { soon } else { last };
            each!(self, pump => pump.turn(Some(deadline)));
        }
    }

    /// What ends the calls of this queue that wait for an answer, from any thread.
    #[must_use]
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.interrupt.handle(self.waker())
    }

    /// After an interrupt: calls wait for answers again, until `time` from now at the latest.
    pub fn resume_for(&mut self, time: Duration) {
        let now = each!(self, pump => pump.now());
        self.interrupt.resume(after(now, time));
    }

    /// How long calls that wait for an answer go on after an interrupt; at first they do not.
    pub fn set_grace(&mut self, grace: Duration) {
        self.interrupt.grace = grace;
    }

    /// While a call waits for an answer, `listener` hears at once what happens besides. What it
    /// says it has dealt with is not kept for `reap`.
    pub fn listen(&mut self, listener: fn(&Event) -> bool) {
        self.listener = Some(listener);
    }

    /// Where data buffers come from.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        each_ref!(self, pump => pump.pool())
    }

    /// The engine that was chosen.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        each_ref!(self, pump => pump.engine())
    }

    /// Where the time of this queue went.
    #[must_use]
    pub fn times(&mut self) -> Times {
        each!(self, pump => pump.times())
    }

    /// Ends a wait from another thread.
    #[must_use]
    pub fn waker(&self) -> engine::Waker {
        each_ref!(self, pump => pump.waker())
    }

    /// Logical unit `lun` of `session`, for the functions of [`crate::scsi`].
    pub fn unit(&mut self, session: SessionId, lun: u16) -> QueueUnit<'_> {
        QueueUnit { queue: self, session, lun }
    }

    /// Drops what is known of a session that has ended.
    pub fn forget(&mut self, session: SessionId) {
        each!(self, pump => pump.forget(session));
    }

    /// Fails when this program wants no longer to wait.
    fn expect_time(&mut self) -> Result<(), Error> {
        match self.interrupt.is_over(each_ref!(self, pump => pump.now())) {
            true => Err(Error::new(Kind::Interrupted)),
            false => Ok(()),
        }
    }

    /// As `until`, for an event that nobody else wants to have.
    fn answer(&mut self, wanted: impl Fn(&Event) -> bool) -> Result<Event, Error> {
        let answer = self.until(wanted);
        self.orphans += usize::from(answer.is_err());
        answer
    }

    /// Waits for an event that `wanted` says it is; the others are kept.
    fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Result<Event, Error> {
        loop {
            while let Some(event) = each!(self, pump => pump.next_event()) {
                if wanted(&event) {
                    return Ok(event);
                }
                if !self.listener.is_some_and(|listener| listener(&event)) {
                    self.aside.push_back(event);
                }
            }
            self.expect_time()?;
            let limit = self.interrupt.limit();
            each!(self, pump => pump.turn(limit));
        }
    }
}

/// Whether it answers a call of the queue itself.
const fn is_own(event: &Event) -> bool {
    match event {
        Event::Done { tag, .. } | Event::Managed { tag, .. } => *tag & OWN_TAGS != 0,
        _ => false,
    }
}

/// In one what is under way on a socket is given up, in the next one the socket is closed.
const CLOSING_TURNS: usize = 2;

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
