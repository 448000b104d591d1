// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When to say what to a name server (RFC 4171 §2.4, §5.6.5).
//!
//! ```text
//!            time                 all answered
//!  Resting --------> Talking ---------------------> Resting (a third of the period)
//!                       |  failure
//!                       +-------------------------> Resting (1 s, 2 s, ... 60 s)
//!  any --leave--> Resting (at once) --> Talking (deregistration) --> Over
//! ```
//!
//! The server forgets an entity that says nothing for its registration period. A query of our own
//! entity keeps it alive; an answer that does not know it makes us register again.
//!
//! Where the server asks by itself whether we are there (`inquiry`), that is as good as a query.
//! One whose inquiries do not come drops the portals that it asks after: we register once more,
//! without inquiries.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use clock::Instant;
use wire::isns::Flags;
use wire::isns::Function;
use wire::isns::HEADER_LEN;
use wire::isns::Header;
use wire::isns::IsnsError;
use wire::isns::PAYLOAD_LEN_MAX;
use wire::isns::Status;
use wire::isns::Tag;
use wire::isns::response;

use super::registration::INQUIRY_SECONDS;
use super::registration::PERIOD;
use super::registration::Registration;
use super::registration::Request;

/// What the client has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Connect to the server.
    Connect,
    /// Nothing, for so long.
    Rest(Duration),
    /// Nothing ever again.
    Over,
}

/// In whose name a registration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    /// That of the one before.
    Same,
    /// Another one.
    Another,
}

/// For the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The server knows us.
    Registered,
    /// It did not know us any more.
    Forgotten,
    /// It does not know us any more, at our wish.
    Deregistered,
    /// Its inquiries do not come: we register without.
    Silent,
    /// It cannot be told anything; the next attempt comes after this time.
    Failed { reason: String, retry: Option<Duration> },
}

/// A registration that is kept alive.
#[derive(Debug)]
pub(super) struct Registrar {
    registration: Registration,
    /// Registrations under other names of ours, which are taken back first.
    former: VecDeque<Registration>,
    state: State,
    /// The server has answered our whole registration.
    registered: bool,
    /// The server may have heard of us.
    mentioned: bool,
    leaving: bool,
    /// Failures since the last answer.
    failures: u32,
    period: Duration,
    /// Where inquiries are answered.
    posts: Vec<SocketAddr>,
    /// The server has none, or they do not come.
    uninquired: bool,
    /// How often the server asks.
    interval: Duration,
    /// When an inquiry must have come.
    silent_at: Option<Instant>,
    transaction: u16,
    news: VecDeque<News>,
}

#[derive(Debug)]
enum State {
    Resting { until: Instant },
    Talking(Box<Talk>),
    Over,
}

/// A connection to the server.
#[derive(Debug)]
struct Talk {
    local: IpAddr,
    /// What is still to be said.
    requests: VecDeque<Request>,
    /// What was said last and has no answer.
    open: Option<Function>,
    deadline: Instant,
    /// Bytes of the PDU under way.
    inbox: Vec<u8>,
    /// Payloads of the PDUs of the answer so far, and their number.
    answer: Vec<u8>,
    pdus: u16,
}

impl Registrar {
    pub(super) const fn new(registration: Registration, now: Instant) -> Self {
        Self {
            registration,
            former: VecDeque::new(),
            state: State::Resting { until: now },
            registered: false,
            mentioned: false,
            leaving: false,
            failures: 0,
            period: PERIOD,
            posts: Vec::new(),
            uninquired: false,
            interval: INTERVAL,
            silent_at: None,
            transaction: 0,
            news: VecDeque::new(),
        }
    }

    /// What is registered from now on; not while a connection is there.
    pub(super) fn replace(&mut self, next: Registration, now: Instant) -> Entity {
        let old = std::mem::replace(&mut self.registration, next);
        let is_same = old.entity == self.registration.entity;
        if !is_same && self.mentioned {
            self.former.push_back(old);
        }
        (self.registered, self.uninquired, self.silent_at) = (false, false, None);
        if let State::Resting { until } = &mut self.state {
            *until = now;
        }
        if is_same { Entity::Same } else { Entity::Another }
    }

    pub(super) fn next(&self, now: Instant) -> Next {
        match &self.state {
            State::Resting { until } => {
                let until = self.silent_at.map_or(*until, |silent_at| silent_at.min(*until));
                if until <= now { Next::Connect } else { Next::Rest(until.since(now)) }
            }
            State::Talking(_) => Next::Rest(Duration::ZERO),
            State::Over => Next::Over,
        }
    }

    /// The addresses where the server may ask, which sees us at `local`.
    pub(super) fn addresses(&self, local: IpAddr) -> Vec<IpAddr> {
        self.registration.addresses(local).iter().map(|portal| portal.address.ip()).collect()
    }

    /// Inquiries are answered at `posts`.
    pub(super) fn listens(&mut self, posts: Vec<SocketAddr>) {
        self.posts = posts;
    }

    /// The server has asked, at `now` or before, and we have answered.
    pub(super) fn inquired(&mut self, at: Instant) {
        let Some(silent_at) = self.silent_at else { return };
        self.silent_at = Some(silent_at.max(at + self.interval * INTERVALS_KEPT));
        if let State::Resting { until } = &mut self.state
            && self.failures == 0
            && !self.leaving
        {
            *until = (*until).max(at + self.period / REFRESHES);
        }
    }

    /// The server is reached, from the address `local`.
    pub(super) fn connected(&mut self, local: IpAddr, now: Instant) {
        if !self.leaving && self.silent_at.is_some_and(|silent_at| silent_at <= now) {
            (self.registered, self.uninquired, self.silent_at) = (false, true, None);
            self.news.push_back(News::Silent);
        }
        let mut requests: VecDeque<Request> =
            self.former.iter().map(Registration::deregister).collect();
        requests.extend(match (self.leaving, self.registered) {
            (true, _) => VecDeque::from([self.registration.deregister()]),
            (false, true) => VecDeque::from([self.registration.query()]),
            (false, false) => self.registration.register(local, self.inquired_at()),
        });
        self.state = State::Talking(Box::new(Talk {
            local,
            requests,
            open: None,
            deadline: now + ANSWER_WAIT,
            inbox: Vec::new(),
            answer: Vec::new(),
            pdus: 0,
        }));
    }

    /// The next request, once the one before is answered.
    pub(super) fn transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let State::Talking(talk) = &mut self.state else { return None };
        if talk.open.is_some() {
            return None;
        }
        let request = talk.requests.pop_front()?;
        assert!(request.payload.fits(), "requests are cut into pieces");
        self.transaction = self.transaction.wrapping_add(1);
        talk.open = Some(request.function);
        talk.deadline = now + ANSWER_WAIT;
        self.mentioned |= request.function == Function::REGISTER;
        let header = Header {
            function: request.function,
            length: u16::try_from(request.payload.as_bytes().len()).unwrap_or(u16::MAX),
            flags: request.flags.with(Flags::CLIENT).with(Flags::FIRST).with(Flags::LAST),
            transaction: self.transaction,
            sequence: 0,
        };
        let mut bytes = header.emit().to_vec();
        bytes.extend_from_slice(request.payload.as_bytes());
        Some(bytes)
    }

    /// Whether the connection is still needed.
    pub(super) const fn is_talking(&self) -> bool {
        matches!(self.state, State::Talking(_))
    }

    /// Bytes from the server.
    pub(super) fn received(&mut self, bytes: &[u8], now: Instant) {
        let State::Talking(talk) = &mut self.state else { return };
        talk.inbox.extend_from_slice(bytes);
        loop {
            let State::Talking(talk) = &mut self.state else { return };
            match talk.take_answer(self.transaction) {
                Ok(Some((function, answer))) => self.answered(function, &answer, now),
                Ok(None) => return,
                Err(reason) => return self.failed(reason, now),
            }
        }
    }

    /// Lets the time be `now`.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let State::Talking(talk) = &self.state
            && talk.deadline <= now
        {
            self.failed("it does not answer".into(), now);
        }
    }

    /// The connection cannot be made, or is gone.
    pub(super) fn failed(&mut self, reason: String, now: Instant) {
        if matches!(self.state, State::Over) {
            return;
        }
        let retry = RETRY_MIN.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        let retry = (!self.leaving).then_some(retry);
        // A server that is down asks nobody.
        let interval = self.interval;
        self.silent_at = self.silent_at.map(|_| now + retry.unwrap_or_default() + interval * 2);
        self.news.push_back(News::Failed { reason, retry });
        self.state = match retry {
            Some(retry) => State::Resting { until: now + retry },
            None => State::Over,
        };
    }

    /// The daemon stops: deregisters, if there is anything registered. One attempt is made.
    pub(super) fn leave(&mut self, now: Instant) {
        if self.leaving {
            return;
        }
        self.leaving = true;
        match &mut self.state {
            State::Talking(talk) => {
                talk.requests.clear();
                talk.deadline = talk.deadline.min(now + LEAVE_WAIT);
                if talk.open.is_none() {
                    self.rest(now);
                }
            }
            State::Resting { .. } => self.rest(now),
            State::Over => {}
        }
    }

    pub(super) fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn answered(&mut self, function: Function, answer: &[u8], now: Instant) {
        let (status, known) = match self.read(answer) {
            Ok(read) => read,
            Err(error) => return self.failed(format!("it answers with {error}"), now),
        };
        let registers = function == Function::REGISTER;
        match (function, status) {
            (Function::REGISTER, Status::SUCCESS) => {}
            (Function::REGISTER, Status::NO_INQUIRIES) if !self.inquired_at().is_empty() => {
                self.uninquired = true;
                return self.register_again();
            }
            (Function::QUERY, Status::SUCCESS) if known => {}
            (Function::QUERY, _) => return self.forgotten(),
            (Function::DEREGISTER, _) if self.former.pop_front().is_some() => {}
            (Function::DEREGISTER, _) => {
                self.mentioned = false;
                self.news.push_back(News::Deregistered);
            }
            (_, Status(status)) => return self.failed(format!("it refuses: status {status}"), now),
        }
        self.failures = 0;
        let State::Talking(talk) = &mut self.state else { return };
        talk.deadline = now + ANSWER_WAIT;
        if talk.requests.is_empty() {
            if registers && !self.leaving {
                self.registered = true;
                let is_inquired = !self.inquired_at().is_empty();
                self.silent_at = is_inquired.then(|| now + self.interval * 2);
                self.news.push_back(News::Registered);
            }
            self.rest(now);
        }
    }

    /// The status, and whether the server has us: what stands before the delimiter only repeats the
    /// question. Takes the server's period over.
    fn read(&mut self, answer: &[u8]) -> Result<(Status, bool), IsnsError> {
        let (status, attributes) = response(answer)?;
        let (mut found, mut known) = (false, false);
        let (mut period, mut interval) = (None, None);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.tag {
                Tag::DELIMITER => found = true,
                _ if !found => {}
                Tag::ENTITY => known |= attribute.text() == Some(self.registration.entity.as_str()),
                Tag::PERIOD => period = attribute.number(),
                Tag::INQUIRY_INTERVAL => interval = attribute.number(),
                _ => {}
            }
        }
        if let Some(seconds) = period.filter(|_| known) {
            let period = Duration::from_secs(seconds.into());
            self.period = period.clamp(PERIOD_MIN, PERIOD_MAX);
        }
        if let Some(seconds) = interval.filter(|seconds| known && *seconds > 0) {
            self.interval = Duration::from_secs(seconds.into()).min(PERIOD_MAX);
        }
        Ok((status, known))
    }

    fn forgotten(&mut self) {
        (self.registered, self.uninquired, self.silent_at) = (false, false, None);
        self.news.push_back(News::Forgotten);
        self.register_again();
    }

    fn register_again(&mut self) {
        let posts = if self.uninquired { &[] } else { self.posts.as_slice() };
        let State::Talking(talk) = &mut self.state else { return };
        talk.requests = self.registration.register(talk.local, posts);
    }

    /// Where the server is to ask.
    fn inquired_at(&self) -> &[SocketAddr] {
        if self.uninquired { &[] } else { &self.posts }
    }

    /// All was said for now.
    fn rest(&mut self, now: Instant) {
        self.state = match (self.leaving, self.mentioned) {
            (true, true) => State::Resting { until: now },
            (true, false) => State::Over,
            (false, _) => State::Resting { until: now + self.period / REFRESHES },
        };
    }
}

impl Talk {
    /// The whole answer to the open request, if it is there.
    fn take_answer(&mut self, transaction: u16) -> Result<Option<(Function, Vec<u8>)>, String> {
        let Some((header, rest)) = self.inbox.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = Header::parse(*header).map_err(|error| format!("it sends {error}"))?;
        let Some(open) = self.open else { return Err("it speaks unasked".into()) };
        let expected = header.function == open.response()
            && header.transaction == transaction
            && header.sequence == self.pdus
            && header.flags.has(Flags::SERVER);
        if !expected {
            return Err("it answers something else".into());
        }
        let Some(payload) = rest.get(..usize::from(header.length)) else { return Ok(None) };
        if self.answer.len() + payload.len() > ANSWER_MAX {
            return Err(format!("its answer exceeds {ANSWER_MAX} bytes"));
        }
        self.answer.extend_from_slice(payload);
        self.inbox.drain(..HEADER_LEN + usize::from(header.length));
        if !header.flags.has(Flags::LAST) {
            self.pdus = self.pdus.wrapping_add(1);
            return Ok(None);
        }
        self.pdus = 0;
        self.open = None;
        Ok(Some((open, std::mem::take(&mut self.answer))))
    }
}

/// A server that wants more messages than one in ten seconds does not get them.
const PERIOD_MIN: Duration = Duration::from_secs(30);

/// So long is a day: whoever registers for longer is still asked after once a day.
const PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// Messages in a period: two may be lost.
const REFRESHES: u32 = 3;

/// How often a server asks that does not say how often.
const INTERVAL: Duration = Duration::from_secs(INQUIRY_SECONDS as u64);

/// Intervals without an inquiry after which none is expected any more: the server has tried several
/// times by then (RFC 4171 §6.3.4).
const INTERVALS_KEPT: u32 = 3;

/// A server that does not answer for so long is left.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// An answer that is open when the daemon stops gets so long.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Pauses after failures: doubled from the first to the last.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Longest answer, bytes: that to a registration repeats all of it.
const ANSWER_MAX: usize = 256 << 10;

const _: () = assert!(PERIOD_MIN.as_secs() <= PERIOD.as_secs());
const _: () = assert!(ANSWER_MAX >= PAYLOAD_LEN_MAX + HEADER_LEN);

#[cfg(test)]
mod tests;
