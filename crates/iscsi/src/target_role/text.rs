// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text Requests in full feature phase (RFC 7143 §6.2, §11.10-11.11): SendTargets (appendix C) and
//! the few keys that may still change.
//!
//! An exchange is one or more requests with the same task tag. Its requests may be long (C bit),
//! and so may its answer: each part but the last has C set and is fetched by an empty request.
//! Nothing takes effect before the end.

use super::limits;
use super::names::ConnectionId;
use super::names::TargetRecord;
use super::output::Output;
use super::pdu::Pdu;
use super::session::Session;
use crate::datamover::Op;
use crate::name;
use crate::negotiate::{self, NOT_UNDERSTOOD, REJECT};
use crate::params::{self, Id, Key, Rule};
use crate::violation::Violation;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wire::iscsi::keys::Pairs;
use wire::iscsi::{Itt, Response, TextRequest, TextResponse, Ttt};

const SEND_TARGETS: &str = "SendTargets";

/// A text exchange under way on a connection.
#[derive(Debug)]
pub(super) struct Exchange {
    itt: Itt,
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
    final_: bool,
    header: Vec<u8>,
}

/// What SendTargets asks for.
enum Query {
    /// Nothing, or nothing that may be told.
    None,
    All,
    One(String),
}

impl Session {
    /// Node side: what SendTargets may show this initiator; the answer to `Output::Targets`.
    /// Records of targets that were not asked for are left out.
    pub fn targets(&mut self, records: Vec<TargetRecord>) {
        if self.is_closed() {
            return;
        }
        let waits = |exchange: &mut Exchange| exchange.lookup.is_some();
        let found = self.connections.iter_mut().find_map(|connection| {
            connection.text.take_if(waits).map(|exchange| (connection.id, exchange))
        });
        let Some((id, mut exchange)) = found else { return };
        let Some(lookup) = exchange.lookup.take() else { return };
        let asked =
            |record: &&TargetRecord| lookup.only.as_ref().is_none_or(|name| *name == record.name);
        for record in records.iter().filter(asked) {
            exchange.put("TargetName", &record.name);
            for address in &record.addresses {
                exchange.put("TargetAddress", address);
            }
        }
        if exchange.answer.len() > limits::TEXT_RESPONSE_MAX {
            return self.react(id, Violation::TextTooLong, &lookup.header);
        }
        self.send_text(id, exchange, lookup.final_);
        self.settle();
    }

    /// A Text Request whose turn it is, or an immediate one.
    pub(super) fn run_text(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TextRequest,
    ) -> Result<(), Violation> {
        if request.itt == Itt::NONE {
            return Err(Violation::ReservedTaskTag);
        }
        if request.continue_ && request.final_ {
            return Err(Violation::TextContinueFinal);
        }
        let Some(connection) = self.connection_mut(pdu.connection) else { return Ok(()) };
        if connection.text.as_ref().is_some_and(|exchange| exchange.lookup.is_some()) {
            return Err(Violation::TextUnanswered);
        }
        let former = connection.text.take();
        let mut exchange = if request.ttt == Ttt::NONE {
            Exchange::new(request.itt)
        } else {
            let same = |e: &Exchange| e.itt == request.itt && e.ttt == request.ttt;
            match former {
                Some(exchange) if same(&exchange) => exchange,
                other => {
                    connection.text = other;
                    return Err(Violation::UnknownTextExchange);
                }
            }
        };
        if exchange.sent < exchange.answer.len() {
            if !pdu.data.is_empty() {
                return Err(Violation::TextInterrupted);
            }
            self.open_window();
            self.send_text(pdu.connection, exchange, request.final_);
            return Ok(());
        }
        exchange.add(pdu.data)?;
        let query = if request.continue_ { Query::None } else { self.read_pairs(&mut exchange)? };
        self.open_window();
        let only = match query {
            Query::None => {
                self.send_text(pdu.connection, exchange, request.final_);
                return Ok(());
            }
            Query::All => None,
            Query::One(name) => Some(name),
        };
        let header = pdu.header.to_vec();
        exchange.lookup = Some(Lookup { only: only.clone(), final_: request.final_, header });
        if let Some(connection) = self.connection_mut(pdu.connection) {
            connection.text = Some(exchange);
        }
        self.outputs.push(Output::Targets(only));
        Ok(())
    }

    /// Sends the next part of an answer, and ends the exchange if both sides have said all.
    fn send_text(&mut self, id: ConnectionId, mut exchange: Exchange, request_final: bool) {
        let Some(connection) = self.connection_mut(id) else { return };
        let limit =
            usize::try_from(connection.keys.max_send_data_segment_length).unwrap_or(usize::MAX);
        let rest = exchange.answer.get(exchange.sent..).unwrap_or_default();
        let part = rest.get(..limit).unwrap_or(rest).to_vec();
        exchange.sent += part.len();
        let more = exchange.sent < exchange.answer.len();
        let over = request_final && !more;
        let ttt = if over { Ttt::NONE } else { connection.next_ttt() };
        exchange.ttt = ttt;
        let itt = exchange.itt;
        let new_limit = exchange.new_limit;
        connection.text = (!over).then_some(exchange);
        let numbers = self.response_numbers(id);
        let lun = Default::default();
        let answer = TextResponse { final_: over, continue_: more, lun, itt, ttt, numbers };
        self.send(id, Response::Text(answer), part);
        if over && let Some(limit) = new_limit {
            self.change_limit(id, limit);
        }
    }

    /// The initiator's new MaxRecvDataSegmentLength is in force.
    fn change_limit(&mut self, id: ConnectionId, limit: u32) {
        let Some(connection) = self.connection_mut(id) else { return };
        connection.keys.max_send_data_segment_length = limit;
        let keys = connection.keys;
        self.outputs.op(id, Op::NoticeKeys(keys));
    }

    /// Answers every key of a whole request (RFC 7143 §6.2).
    fn read_pairs(&self, exchange: &mut Exchange) -> Result<Query, Violation> {
        let text = core::mem::take(&mut exchange.request);
        let mut query = Query::None;
        for pair in Pairs::new(&text) {
            let (name, value) = pair.map_err(|_| Violation::TextMalformed)?;
            exchange.note(name)?;
            if self.is_discovery() && name != SEND_TARGETS {
                return Err(Violation::NotInDiscovery);
            }
            let key = params::find(name);
            match key.map(|key| key.id) {
                Some(Id::SendTargets) => match self.query(value) {
                    Some(found) => query = found,
                    None => exchange.put(name, REJECT),
                },
                Some(Id::MaxRecvDataSegmentLength) => match declared_number(key, value) {
                    Some(limit) => exchange.new_limit = Some(limit),
                    None => exchange.put(name, REJECT),
                },
                Some(Id::InitiatorAlias) => {}
                // Keys of the login, or of the target.
                Some(_) => exchange.put(name, REJECT),
                None => exchange.put(name, NOT_UNDERSTOOD),
            }
        }
        // A discovery session is for SendTargets and nothing else (RFC 7143 §4.3).
        if self.is_discovery() && exchange.seen.is_empty() {
            return Err(Violation::NotInDiscovery);
        }
        Ok(query)
    }

    /// RFC 7143 appendix C: who may ask for what. None: refused.
    fn query(&self, value: &str) -> Option<Query> {
        let own = self.login.target.as_deref();
        let asked = name::prepared(value);
        match (value, own) {
            ("All", _) if self.is_discovery() => Some(Query::All),
            ("All", _) => None,
            ("", own) => own.map(|name| Query::One(name.to_string())),
            (_, _) if self.is_discovery() => Some(Query::One(asked)),
            (_, Some(own)) if asked == own => Some(Query::One(asked)),
            _ => None,
        }
    }
}

impl Exchange {
    fn new(itt: Itt) -> Self {
        Self {
            itt,
            ttt: Ttt::NONE,
            request: Vec::new(),
            seen: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            new_limit: None,
            lookup: None,
        }
    }

    /// The tag of its requests.
    pub(super) const fn itt(&self) -> Itt {
        self.itt
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

    fn put(&mut self, key: &str, value: &str) {
        self.answer.extend_from_slice(key.as_bytes());
        self.answer.push(b'=');
        self.answer.extend_from_slice(value.as_bytes());
        self.answer.push(0);
    }
}

/// The declared number of a key, if it lies in the range of the table.
fn declared_number(key: Option<&Key>, value: &str) -> Option<u32> {
    match &key?.rule {
        Rule::Number(range) => negotiate::number(value, range),
        _ => None,
    }
}
