// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text Requests in full feature phase (RFC 7143 §6.2, §11.10-11.11): SendTargets (appendix C) and
//! the few keys that may still change.
//!
//! An exchange is one or more requests with the same task tag. Its requests may be long (C bit),
//! and so may its answer: each part but the last has C set and is fetched by an empty request.
//! Nothing takes effect before the end.

use super::limits;
use super::names::TargetRecord;
use super::pdu::Pdu;
use super::tags::Tags;
use crate::name;
use crate::negotiate;
use crate::negotiate::NOT_UNDERSTOOD;
use crate::negotiate::REJECT;
use crate::params;
use crate::params::Id;
use crate::params::Key;
use crate::params::Rule;
use crate::violation::Violation;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use wire::iscsi::Itt;
use wire::iscsi::TextRequest;
use wire::iscsi::Ttt;
use wire::iscsi::keys::Pairs;

const SEND_TARGETS: &str = "SendTargets";

/// The text exchange of a connection, if there is one.
#[derive(Debug, Default)]
pub(super) struct Texts {
    open: Option<Exchange>,
}

/// A text exchange under way on a connection.
#[derive(Debug)]
struct Exchange {
    itt: Itt,
    /// Of its last request: the initiator has said all.
    final_: bool,
    /// What the next request must carry.
    ttt: Ttt,
    /// Text of requests with the C bit.
    request: Vec<u8>,
    /// Keys that came, to find repetitions.
    seen: Vec<String>,
    /// Our answer, and how much of it has been sent.
    answer: Vec<u8>,
    sent: usize,
    /// MaxRecvDataSegmentLength of the initiator, in force when the exchange ends.
    new_limit: Option<u32>,
    /// The node is being asked: what it may tell, and the request that waits for it.
    lookup: Option<Lookup>,
}

#[derive(Debug)]
struct Lookup {
    only: Option<String>,
    header: Vec<u8>,
}

/// What an initiator may ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    /// In a discovery session, SendTargets and nothing else (RFC 7143 §4.3).
    pub(super) discovery: bool,
    /// The target of the session.
    pub(super) target: Option<&'a str>,
}

/// What follows a request.
#[derive(Debug)]
pub(super) enum Next {
    /// The [next part](Texts::next_part) of the answer leaves.
    Say,
    /// The node is asked for this target, or for all, and [tells](Texts::found).
    Ask(Option<String>),
}

/// A part of an answer.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) itt: Itt,
    pub(super) ttt: Ttt,
    pub(super) data: Vec<u8>,
    /// More follows.
    pub(super) more: bool,
    /// Both sides have said all.
    pub(super) over: bool,
    /// The MaxRecvDataSegmentLength that is in force now.
    pub(super) new_limit: Option<u32>,
}

/// What SendTargets asks for.
enum Query {
    /// Nothing, or nothing that may be told.
    None,
    All,
    One(String),
}

impl Texts {
    /// A Text Request whose turn it is, or an immediate one.
    pub(super) fn take(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TextRequest,
        scope: Scope<'_>,
    ) -> Result<Next, Violation> {
        if request.itt == Itt::NONE {
            return Err(Violation::ReservedTaskTag);
        }
        if request.continue_ && request.final_ {
            return Err(Violation::TextContinueFinal);
        }
        if self.is_asking() {
            return Err(Violation::TextUnanswered);
        }
        let same = |e: &Exchange| e.itt == request.itt && e.ttt == request.ttt;
        let mut exchange = match self.open.take() {
            _ if request.ttt == Ttt::NONE => Exchange::new(request.itt),
            Some(exchange) if same(&exchange) => exchange,
            other => {
                self.open = other;
                return Err(Violation::UnknownTextExchange);
            }
        };
        exchange.final_ = request.final_;
        let next = exchange.take(pdu, request, scope)?;
        self.open = Some(exchange);
        Ok(next)
    }

    /// What the node tells of its targets; those that were not asked for are left out. Only while
    /// the node is being asked.
    ///
    /// # Errors
    /// They are too many: the exchange is over. The header of the request that asked.
    pub(super) fn found(&mut self, records: &[TargetRecord]) -> Result<(), Vec<u8>> {
        let exchange = self.open.as_mut();
        let Some((exchange, lookup)) = exchange.and_then(|it| it.lookup.take().map(|l| (it, l)))
        else {
            debug_assert!(false, "nobody asked for targets");
            return Ok(());
        };
        let asked =
            |record: &&TargetRecord| lookup.only.as_ref().is_none_or(|name| *name == record.name);
        for record in records.iter().filter(asked) {
            exchange.put("TargetName", &record.name);
            for address in &record.addresses {
                exchange.put("TargetAddress", address);
            }
        }
        if exchange.answer.len() > limits::TEXT_RESPONSE_MAX {
            self.open = None;
            return Err(lookup.header);
        }
        Ok(())
    }

    /// The next part of the answer, at most `limit` bytes. The exchange ends with it if both sides
    /// have said all.
    pub(super) fn next_part(&mut self, limit: usize, tags: &mut Tags) -> Option<Part> {
        let exchange = self.open.as_mut()?;
        let rest = exchange.answer.get(exchange.sent..).unwrap_or_default();
        let data = rest.get(..limit).unwrap_or(rest).to_vec();
        exchange.sent += data.len();
        let more = exchange.sent < exchange.answer.len();
        let over = exchange.final_ && !more;
        exchange.ttt = if over { Ttt::NONE } else { tags.next() };
        let new_limit = exchange.new_limit.filter(|_| over);
        let part = Part { itt: exchange.itt, ttt: exchange.ttt, data, more, over, new_limit };
        if over {
            self.open = None;
        }
        Some(part)
    }

    /// True while the node is being asked.
    pub(super) fn is_asking(&self) -> bool {
        self.open.as_ref().is_some_and(|exchange| exchange.lookup.is_some())
    }

    /// The tag of the exchange under way.
    pub(super) fn itt(&self) -> Option<Itt> {
        self.open.as_ref().map(|exchange| exchange.itt)
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        let Some(exchange) = &self.open else { return };
        assert!(exchange.request.len() <= limits::TEXT_REQUEST_MAX, "text of one exchange");
        assert!(exchange.seen.len() <= limits::TEXT_PAIRS_MAX, "pairs of one exchange");
        assert!(exchange.sent <= exchange.answer.len(), "more of an answer sent than there is");
    }
}

impl Exchange {
    fn new(itt: Itt) -> Self {
        Self {
            itt,
            final_: false,
            ttt: Ttt::NONE,
            request: Vec::new(),
            seen: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            new_limit: None,
            lookup: None,
        }
    }

    /// Reads what has come.
    fn take(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TextRequest,
        scope: Scope<'_>,
    ) -> Result<Next, Violation> {
        if self.sent < self.answer.len() {
            return match pdu.data.is_empty() {
                true => Ok(Next::Say),
                false => Err(Violation::TextInterrupted),
            };
        }
        self.add(pdu.data)?;
        if request.continue_ {
            return Ok(Next::Say);
        }
        let only = match self.read_pairs(scope)? {
            Query::None => return Ok(Next::Say),
            Query::All => None,
            Query::One(name) => Some(name),
        };
        self.lookup = Some(Lookup { only: only.clone(), header: pdu.header.to_vec() });
        Ok(Next::Ask(only))
    }

    fn add(&mut self, data: &[u8]) -> Result<(), Violation> {
        if self.request.len() + data.len() > limits::TEXT_REQUEST_MAX {
            return Err(Violation::TextTooLong);
        }
        self.request.extend_from_slice(data);
        Ok(())
    }

    fn note(&mut self, key: &str) -> Result<(), Violation> {
        if self.seen.iter().any(|seen| seen == key) {
            return Err(Violation::TextRepeatedKey);
        }
        if self.seen.len() >= limits::TEXT_PAIRS_MAX {
            return Err(Violation::TextTooLong);
        }
        self.seen.push(key.to_string());
        Ok(())
    }

    /// Answers every key of a whole request (RFC 7143 §6.2).
    fn read_pairs(&mut self, scope: Scope<'_>) -> Result<Query, Violation> {
        let text = core::mem::take(&mut self.request);
        let mut query = Query::None;
        for pair in Pairs::new(&text) {
            let (name, value) = pair.map_err(|_| Violation::TextMalformed)?;
            self.note(name)?;
            if scope.discovery && name != SEND_TARGETS {
                return Err(Violation::NotInDiscovery);
            }
            let key = params::find(name);
            match key.map(|key| key.id) {
                Some(Id::SendTargets) => match scope.query(value) {
                    Some(found) => query = found,
                    None => self.put(name, REJECT),
                },
                Some(Id::MaxRecvDataSegmentLength) => match declared_number(key, value) {
                    Some(limit) => self.new_limit = Some(limit),
                    None => self.put(name, REJECT),
                },
                Some(Id::InitiatorAlias) => {}
                // Keys of the login, or of the target.
                Some(_) => self.put(name, REJECT),
                None => self.put(name, NOT_UNDERSTOOD),
            }
        }
        // A discovery session is for SendTargets and nothing else (RFC 7143 §4.3).
        if scope.discovery && self.seen.is_empty() {
            return Err(Violation::NotInDiscovery);
        }
        Ok(query)
    }

    fn put(&mut self, key: &str, value: &str) {
        self.answer.extend_from_slice(key.as_bytes());
        self.answer.push(b'=');
        self.answer.extend_from_slice(value.as_bytes());
        self.answer.push(0);
    }
}

impl Scope<'_> {
    /// RFC 7143 appendix C: who may ask for what. None: refused.
    fn query(self, value: &str) -> Option<Query> {
        let own = self.target;
        let asked = name::prepared(value);
        match (value, own) {
            ("All", _) if self.discovery => Some(Query::All),
            ("All", _) => None,
            ("", own) => own.map(|name| Query::One(name.to_string())),
            (_, _) if self.discovery => Some(Query::One(asked)),
            (_, Some(own)) if asked == own => Some(Query::One(asked)),
            _ => None,
        }
    }
}

/// The declared number of a key, if it lies in the range of the table.
fn declared_number(key: Option<&Key>, value: &str) -> Option<u32> {
    match &key?.rule {
        Rule::Number(range) => negotiate::number(value, range),
        _ => None,
    }
}
