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
use wire::isns::NODE_TYPE_TARGET;
use wire::isns::PAYLOAD_LEN_MAX;
use wire::isns::PROTOCOL_ISCSI;
use wire::isns::Payload;
use wire::isns::Status;
use wire::isns::Tag;
use wire::isns::response;

use crate::node::Portal;

/// What is registered.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Names the daemon; the name of its first target, which no other daemon has.
    pub(crate) entity: String,
    /// The targets: name and alias.
    pub(crate) targets: Vec<(String, Option<String>)>,
    /// Where they are reached. For a wildcard address the one that the server sees is registered.
    pub(crate) portals: Vec<Portal>,
}

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

/// For the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The server knows us.
    Registered,
    /// It did not know us any more.
    Forgotten,
    /// It does not know us any more, at our wish.
    Deregistered,
    /// It cannot be told anything; the next attempt comes after this time.
    Failed { reason: String, retry: Option<Duration> },
}

/// A registration that is kept alive.
#[derive(Debug)]
pub(super) struct Registrar {
    registration: Registration,
    state: State,
    /// The server has answered our whole registration.
    registered: bool,
    /// The server may have heard of us.
    mentioned: bool,
    leaving: bool,
    /// Failures since the last answer.
    failures: u32,
    period: Duration,
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

#[derive(Debug)]
struct Request {
    function: Function,
    flags: Flags,
    payload: Payload,
}

impl Registrar {
    pub(super) const fn new(registration: Registration, now: Instant) -> Self {
        Self {
            registration,
            state: State::Resting { until: now },
            registered: false,
            mentioned: false,
            leaving: false,
            failures: 0,
            period: PERIOD,
            transaction: 0,
            news: VecDeque::new(),
        }
    }

    pub(super) fn next(&self, now: Instant) -> Next {
        match &self.state {
            State::Resting { until } if *until <= now => Next::Connect,
            State::Resting { until } => Next::Rest(until.since(now)),
            State::Talking(_) => Next::Rest(Duration::ZERO),
            State::Over => Next::Over,
        }
    }

    /// The server is reached, from the address `local`.
    pub(super) fn connected(&mut self, local: IpAddr, now: Instant) {
        let requests = match (self.leaving, self.registered) {
            (true, _) => VecDeque::from([self.registration.deregister()]),
            (false, true) => VecDeque::from([self.registration.query()]),
            (false, false) => self.registration.register(local),
        };
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
            (Function::QUERY, Status::SUCCESS) if known => {}
            (Function::QUERY, _) => return self.forgotten(),
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
                self.news.push_back(News::Registered);
            }
            self.rest(now);
        }
    }

    /// The status, and whether the server has us: what stands before the delimiter only repeats the
    /// question. Takes the server's period over.
    fn read(&mut self, answer: &[u8]) -> Result<(Status, bool), IsnsError> {
        let (status, attributes) = response(answer)?;
        let (mut found, mut known, mut period) = (false, false, None);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.tag {
                Tag::DELIMITER => found = true,
                _ if !found => {}
                Tag::ENTITY => known |= attribute.text() == Some(self.registration.entity.as_str()),
                Tag::PERIOD => period = attribute.number(),
                _ => {}
            }
        }
        if let Some(seconds) = period.filter(|_| known) {
            let period = Duration::from_secs(seconds.into());
            self.period = period.clamp(PERIOD_MIN, PERIOD_MAX);
        }
        Ok((status, known))
    }

    fn forgotten(&mut self) {
        self.registered = false;
        self.news.push_back(News::Forgotten);
        let State::Talking(talk) = &mut self.state else { return };
        talk.requests = self.registration.register(talk.local);
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

impl Registration {
    /// Everything, cut into messages: the first one replaces what a former life of the daemon left,
    /// the others add targets.
    fn register(&self, local: IpAddr) -> VecDeque<Request> {
        let portals = self.addresses(local);
        let mut requests = VecDeque::new();
        let mut targets = self.targets.iter().peekable();
        while requests.is_empty() || targets.peek().is_some() {
            let mut payload = self.about();
            payload.push_text(Tag::ENTITY, &self.entity);
            payload.push_number(Tag::PROTOCOL, PROTOCOL_ISCSI);
            payload.push_number(Tag::PERIOD, u32::try_from(PERIOD.as_secs()).unwrap_or(u32::MAX));
            for portal in &portals {
                payload.push_address(Tag::PORTAL_ADDRESS, portal.address.ip());
                payload.push_port(Tag::PORTAL_PORT, portal.address.port());
            }
            while payload.as_bytes().len() < REQUEST_TARGETS_MAX
                && let Some((name, alias)) = targets.next()
            {
                add_target(&mut payload, name, alias.as_deref(), &portals);
            }
            let first = requests.is_empty();
            let flags = if first { Flags::REPLACE } else { Flags::default() };
            requests.push_back(Request { function: Function::REGISTER, flags, payload });
        }
        requests
    }

    fn query(&self) -> Request {
        let mut payload = self.about();
        payload.push_empty(Tag::ENTITY);
        payload.push_empty(Tag::PERIOD);
        Request { function: Function::QUERY, flags: Flags::default(), payload }
    }

    fn deregister(&self) -> Request {
        let mut payload = Payload::new();
        payload.push_text(Tag::NAME, &self.entity);
        payload.push_empty(Tag::DELIMITER);
        payload.push_text(Tag::ENTITY, &self.entity);
        Request { function: Function::DEREGISTER, flags: Flags::default(), payload }
    }

    /// Who speaks, and about which entity.
    fn about(&self) -> Payload {
        let mut payload = Payload::new();
        payload.push_text(Tag::NAME, &self.entity);
        payload.push_text(Tag::ENTITY, &self.entity);
        payload.push_empty(Tag::DELIMITER);
        payload
    }

    /// The portals as others reach them.
    fn addresses(&self, local: IpAddr) -> Vec<Portal> {
        let mut portals: Vec<Portal> = Vec::new();
        for Portal { address, group } in self.portals.iter().copied() {
            let ip = if address.ip().is_unspecified() { local } else { address.ip() };
            let reached = SocketAddr::new(ip, address.port());
            let known = portals.iter().any(|portal| portal.address == reached);
            if ip.is_ipv4() == address.is_ipv4() && !known {
                portals.push(Portal { address: reached, group });
            }
        }
        portals.truncate(PORTALS_MAX);
        portals
    }
}

/// A target and its portal group.
fn add_target(payload: &mut Payload, name: &str, alias: Option<&str>, portals: &[Portal]) {
    payload.push_text(Tag::NAME, name);
    payload.push_number(Tag::NODE_TYPE, NODE_TYPE_TARGET);
    if let Some(alias) = alias {
        payload.push_text(Tag::ALIAS, alias);
    }
    for portal in portals {
        payload.push_text(Tag::GROUP_NAME, name);
        payload.push_address(Tag::GROUP_ADDRESS, portal.address.ip());
        payload.push_port(Tag::GROUP_PORT, portal.address.port());
        payload.push_number(Tag::GROUP_TAG, portal.group.into());
    }
}

/// The registration period that we ask for: a daemon that was killed is forgotten in this time.
const PERIOD: Duration = Duration::from_secs(300);

/// A server that wants more messages than one in ten seconds does not get them.
const PERIOD_MIN: Duration = Duration::from_secs(30);

/// So long is a day: whoever registers for longer is still asked after once a day.
const PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// Messages in a period: two may be lost.
const REFRESHES: u32 = 3;

/// A server that does not answer for so long is left.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// An answer that is open when the daemon stops gets so long.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Pauses after failures: doubled from the first to the last.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Longest answer, bytes: that to a registration repeats all of it.
const ANSWER_MAX: usize = 256 << 10;

/// Portals that are registered: more than the addresses of a big machine.
const PORTALS_MAX: usize = 64;

/// A request takes no further target beyond so many bytes.
const REQUEST_TARGETS_MAX: usize = 32 << 10;

/// Longest target in a request: names of 223 bytes for node, alias and a group for each portal.
const TARGET_MAX: usize = 2 * 280 + PORTALS_MAX * (240 + 24 + 12 + 12);

const _: () = assert!(REQUEST_TARGETS_MAX + TARGET_MAX <= PAYLOAD_LEN_MAX);
const _: () = assert!(PERIOD_MIN.as_secs() <= PERIOD.as_secs());
const _: () = assert!(ANSWER_MAX >= PAYLOAD_LEN_MAX + HEADER_LEN);

#[cfg(test)]
mod tests;
