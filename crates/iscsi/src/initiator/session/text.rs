// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text Requests in full feature phase: SendTargets, and a MaxRecvDataSegmentLength that is
//! declared anew. Read first: RFC 7143 §6.4 (negotiation in full feature phase), §7.12 (failures),
//! §11.10, §11.11, §13.12, appendix C.
//!
//! ```text
//!   request with F --> F=0, C=1: an empty request fetches the next part ---+
//!     ^         `----> F=0, C=0: a request with our answers ---------------+--> F=1: in force
//!     `-- a key came twice, or makes no sense: TTT 0xffffffff begins anew -+
//! ```
//!
//! A session has one exchange at a time; what is declared goes to its connections one by one.
//! Nothing takes effect before the last response, and nothing of an exchange that fails.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use clock::Instant;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Request;
use wire::iscsi::TextRequest;
use wire::iscsi::TextResponse;
use wire::iscsi::Ttt;
use wire::iscsi::keys::Pairs;
use wire::iscsi::keys::TextWriter;

use super::DeclareError;
use super::Indication;
use super::Patience;
use super::Refused;
use super::Session;
use super::SessionError;
use super::State;
use crate::initiator::ConnectionId;
use crate::initiator::datamover::Keys;
use crate::initiator::datamover::Op;
use crate::initiator::discovery;
use crate::initiator::limits;
use crate::negotiate;
use crate::negotiate::NOT_UNDERSTOOD;
use crate::negotiate::REJECT;
use crate::params;
use crate::params::Id;
use crate::params::Rule;

/// An exchange that is under way.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) itt: Itt,
    pub(super) at: ConnectionId,
    /// When to look whether the answer takes too long.
    pub(super) until: Instant,
    patience: Patience,
    subject: Subject,
    /// What has come and was not looked at.
    text: Vec<u8>,
    exchanges: u32,
}

/// What an exchange is about.
#[derive(Debug)]
enum Subject {
    Targets,
    Segment(Box<Negotiation>),
}

/// One declaration of MaxRecvDataSegmentLength, and what the target has said in its course.
#[derive(Debug)]
struct Negotiation {
    /// Bytes.
    length: u32,
    /// How often it began anew.
    resets: u8,
    /// Somebody waits for [`Indication::Declared`].
    told: bool,
    /// Keys of the target.
    seen: Vec<String>,
    /// What the target declared, bytes.
    segment: Option<u32>,
    /// It does not take ours.
    refused: bool,
}

/// A length that is declared on one connection after the other.
#[derive(Debug)]
pub(super) struct Declaring {
    length: u32,
    left: Vec<ConnectionId>,
}

/// Keys of a target that no negotiation can be made of.
#[derive(Debug)]
struct Nonsense;

impl Session {
    /// Asks a discovery session which targets there are, or any session about its own target;
    /// [`Indication::Targets`] follows.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn send_targets(&mut self, now: Instant) -> Result<(), Refused> {
        self.may_exchange_text()?;
        // An empty value asks about the target of the session (RFC 7143 appendix C).
        let which = if self.login.discovery { "All" } else { "" };
        let text = pair(Id::SendTargets, which);
        let at = self.connections.any_up().ok_or(Refused::Recovering)?;
        self.begin_text(at, Subject::Targets, text, now);
        Ok(())
    }

    /// Declares MaxRecvDataSegmentLength anew on each connection, bytes; one outside the range of
    /// the key is taken as the nearest end of the range. [`Indication::Declared`] follows. A
    /// connection that is made later has what its login declares.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn declare(&mut self, length: u32, now: Instant) -> Result<(), Refused> {
        self.may_exchange_text()?;
        if self.controls.declaring.is_some() {
            return Err(Refused::Full);
        }
        let length = match &Id::MaxRecvDataSegmentLength.key().rule {
            Rule::Number(range) => length.clamp(*range.start(), *range.end()),
            _ => length,
        };
        let up = self.connections.iter().filter(|(_, connection)| connection.is_up());
        let left: Vec<ConnectionId> = up.map(|(id, _)| id).collect();
        if left.is_empty() {
            return Err(Refused::Recovering);
        }
        self.controls.declared = Some(length);
        self.controls.declaring = Some(Declaring { length, left });
        self.declare_next(now);
        Ok(())
    }

    fn may_exchange_text(&self) -> Result<(), Refused> {
        match (self.state, &self.controls.text) {
            (State::Active, None) => Ok(()),
            (State::Active, Some(_)) => Err(Refused::Full),
            _ => Err(Refused::Closed),
        }
    }

    /// The target wishes to negotiate on a connection: what holds there is declared once more (RFC
    /// 7143 §11.9.1, event 4). False if that cannot be done.
    pub(super) fn negotiate_as_asked(&mut self, at: ConnectionId, now: Instant) -> bool {
        let pending = self.controls.text.as_ref().map(|text| text.at == at);
        let connection = self.connections.get(at);
        match (self.state, pending, connection) {
            (State::Active, Some(here), _) => here,
            (State::Active, None, Some(connection)) => {
                let length = connection.keys.max_recv_data_segment_length;
                self.begin_declaration(at, length, false, now);
                true
            }
            _ => false,
        }
    }

    /// Goes on with the next connection that is there.
    fn declare_next(&mut self, now: Instant) {
        let Some(declaring) = &mut self.controls.declaring else { return };
        while let Some(at) = declaring.left.pop() {
            if self.connections.get(at).is_some_and(|connection| connection.is_up()) {
                let length = declaring.length;
                return self.begin_declaration(at, length, true, now);
            }
        }
        self.controls.declaring = None;
        self.indicate(Indication::Declared(Ok(())));
    }

    /// A connection has logged in. If its login began before the last declaration, that follows.
    pub(super) fn declare_late(&mut self, at: ConnectionId, now: Instant) {
        let Some(length) = self.controls.declared else { return };
        let holds = |keys: &Keys| keys.max_recv_data_segment_length == length;
        if self.connections.get(at).is_none_or(|connection| holds(&connection.keys)) {
            return;
        }
        match (&mut self.controls.declaring, &self.controls.text) {
            (Some(declaring), _) => declaring.left.push(at),
            (None, None) => self.begin_declaration(at, length, false, now),
            // Longer segments than were wished for, until it logs in again.
            (None, Some(_)) => {}
        }
    }

    fn begin_declaration(&mut self, at: ConnectionId, length: u32, told: bool, now: Instant) {
        let negotiation = Negotiation::new(length, 0, told);
        let text = negotiation.text();
        self.begin_text(at, Subject::Segment(Box::new(negotiation)), text, now);
    }

    fn begin_text(&mut self, at: ConnectionId, subject: Subject, data: Vec<u8>, now: Instant) {
        let itt = self.controls.next_itt();
        let until = now + self.text_timeout();
        let patience = Patience::new(now);
        let text = Text { itt, at, until, patience, subject, text: Vec::new(), exchanges: 0 };
        self.controls.text = Some(text);
        self.send_text(at, itt, Ttt::NONE, LunField::default(), data);
    }

    /// An exchange that takes too long, and not because of a slow line, ends the session.
    pub(super) fn expire_text(&mut self, now: Instant) -> Result<(), SessionError> {
        let Some(text) = self.controls.text.as_ref().filter(|text| text.until <= now) else {
            return Ok(());
        };
        let (mut patience, place) = (text.patience, (text.at, None));
        let late = SessionError::TextTimeout(text.key());
        let until =
            self.check_patience(&mut patience, self.text_timeout(), place, now).ok_or(late)?;
        if let Some(text) = &mut self.controls.text {
            (text.until, text.patience) = (until, patience);
        }
        Ok(())
    }

    /// How long the target may take for each answer: as for a command.
    fn text_timeout(&self) -> Duration {
        match self.command_timeout {
            Duration::ZERO => limits::TEXT_TIMEOUT,
            timeout => timeout,
        }
    }

    fn send_text(&mut self, at: ConnectionId, itt: Itt, ttt: Ttt, lun: LunField, data: Vec<u8>) {
        let request = TextRequest {
            immediate: true,
            final_: true,
            continue_: false,
            lun,
            itt,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn_at(at),
        };
        self.send_control(at, Request::Text(request), data);
    }

    /// A part of an answer; the next one is asked for by another request (RFC 7143 §6.4, §11.11).
    pub(super) fn text(
        &mut self,
        pdu: &TextResponse,
        data: &[u8],
        now: Instant,
    ) -> Result<(), SessionError> {
        let until = now + self.text_timeout();
        let Some(exchange) = self.controls.text.as_mut().filter(|text| text.itt == pdu.itt) else {
            return Err(SessionError::UnexpectedPdu("text response"));
        };
        exchange.exchanges += 1;
        (exchange.until, exchange.patience) = (until, Patience::new(now));
        let length = exchange.text.len() + data.len();
        if length > limits::DISCOVERY_TEXT_LEN_MAX
            || exchange.exchanges > limits::TEXT_EXCHANGES_MAX
        {
            return Err(SessionError::UnexpectedPdu("text without end"));
        }
        exchange.text.extend_from_slice(data);
        let at = exchange.at;
        match &exchange.subject {
            Subject::Targets if pdu.final_ => {
                let text = self.controls.text.take().map(|text| text.text).unwrap_or_default();
                self.indicate(Indication::Targets(discovery::parse(&text)));
            }
            Subject::Segment(_) if pdu.final_ || !pdu.continue_ => self.negotiated(pdu, now),
            _ => self.answer_text(at, pdu, Vec::new()),
        }
        Ok(())
    }

    fn answer_text(&mut self, at: ConnectionId, pdu: &TextResponse, data: Vec<u8>) {
        self.send_text(at, pdu.itt, pdu.ttt, pdu.lun, data);
    }

    /// All that the target says in one step of a negotiation is there.
    fn negotiated(&mut self, pdu: &TextResponse, now: Instant) {
        let Some(exchange) = &mut self.controls.text else { return };
        let Subject::Segment(negotiation) = &mut exchange.subject else { return };
        let at = exchange.at;
        let text = core::mem::take(&mut exchange.text);
        match negotiation.read(&text) {
            Ok(answers) if !pdu.final_ => self.answer_text(at, pdu, answers),
            Ok(_) if negotiation.refused => self.declared(Err(DeclareError::Refused), now),
            Ok(_) => {
                let (length, segment) = (negotiation.length, negotiation.segment);
                self.put_in_force(at, length, segment);
                self.declared(Ok(()), now);
            }
            Err(Nonsense) if negotiation.resets < limits::TEXT_RESETS_MAX => {
                let (length, told) = (negotiation.length, negotiation.told);
                **negotiation = Negotiation::new(length, negotiation.resets + 1, told);
                let (itt, again) = (exchange.itt, negotiation.text());
                self.send_text(at, itt, Ttt::NONE, LunField::default(), again);
            }
            Err(Nonsense) => self.declared(Err(DeclareError::Nonsense), now),
        }
    }

    /// The lengths that a connection has from now on. Data of commands that are under way can no
    /// longer be asked for as it was sent (RFC 7143 §11.16.3).
    fn put_in_force(&mut self, at: ConnectionId, length: u32, segment: Option<u32>) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let before = connection.keys;
        connection.keys.max_recv_data_segment_length = length;
        if let Some(segment) = segment {
            connection.keys.max_send_data_segment_length = segment;
        }
        let keys = connection.keys;
        if keys == before {
            return;
        }
        self.op(at, Op::NoticeKeys(keys));
        if length != before.max_recv_data_segment_length {
            for task in self.tasks.of(at) {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.resegment = true;
                }
            }
        }
    }

    /// A declaration has come to its end on one connection.
    fn declared(&mut self, result: Result<(), DeclareError>, now: Instant) {
        let Some(Text { subject: Subject::Segment(negotiation), .. }) = self.controls.text.take()
        else {
            return;
        };
        match result {
            // What the target wished for, and nobody here.
            _ if !negotiation.told => {}
            Ok(()) => self.declare_next(now),
            Err(error) => {
                self.controls.declaring = None;
                self.indicate(Indication::Declared(Err(error)));
            }
        }
    }

    /// The target rejected the request of the exchange that is under way.
    pub(super) fn text_rejected(&mut self, reason: u8, now: Instant) {
        match self.controls.text.as_ref().map(|text| &text.subject) {
            Some(Subject::Targets) => {
                self.controls.text = None;
                self.indicate(Indication::TargetsRejected(reason));
            }
            Some(Subject::Segment(_)) => self.declared(Err(DeclareError::Rejected(reason)), now),
            None => {}
        }
    }

    /// A connection is gone: so is the exchange on it. Its successor declares what holds then.
    pub(super) fn text_lost(&mut self, at: ConnectionId, now: Instant) {
        match self.controls.text.as_ref().filter(|text| text.at == at).map(|text| &text.subject) {
            Some(Subject::Targets) => self.text_rejected(0, now),
            Some(Subject::Segment(_)) => self.declared(Ok(()), now),
            None => {}
        }
    }
}

impl Text {
    /// What was asked.
    pub(super) fn key(&self) -> &'static str {
        match self.subject {
            Subject::Targets => Id::SendTargets.key().name,
            Subject::Segment(_) => Id::MaxRecvDataSegmentLength.key().name,
        }
    }

    /// Whether it may change what the connection takes.
    pub(super) const fn declares(&self) -> bool {
        matches!(self.subject, Subject::Segment(_))
    }
}

impl Negotiation {
    const fn new(length: u32, resets: u8, told: bool) -> Self {
        Self { length, resets, told, seen: Vec::new(), segment: None, refused: false }
    }

    /// What the first request says.
    fn text(&self) -> Vec<u8> {
        pair(Id::MaxRecvDataSegmentLength, &self.length.to_string())
    }

    /// Takes the keys of one step; gives the answers to those that want one.
    fn read(&mut self, text: &[u8]) -> Result<Vec<u8>, Nonsense> {
        let mut answers = TextWriter::new(limits::TEXT_ANSWER_LEN_MAX);
        for pair in Pairs::new(text) {
            let (name, value) = pair.map_err(|_| Nonsense)?;
            let key = params::find(name).map(|key| (key.id, &key.rule));
            // RFC 7143 §6.4: no key twice in one negotiation, but for what may be repeated.
            let repeats = matches!(key, Some((Id::TargetAddress, _)));
            let again = !repeats && self.seen.iter().any(|seen| seen == name);
            if again || self.seen.len() >= limits::TEXT_KEYS_MAX {
                return Err(Nonsense);
            }
            self.seen.push(name.to_string());
            let answer = match key {
                Some((Id::MaxRecvDataSegmentLength, Rule::Number(range))) => {
                    self.declared_by_target(value, range)?;
                    continue;
                }
                Some((Id::TargetAlias | Id::TargetAddress, _)) => continue,
                Some(_) => REJECT,
                None => NOT_UNDERSTOOD,
            };
            answers.push(name, answer).map_err(|_| Nonsense)?;
        }
        Ok(answers.into_vec())
    }

    /// Its own length, or what it thinks of ours.
    fn declared_by_target(
        &mut self,
        value: &str,
        range: &core::ops::RangeInclusive<u32>,
    ) -> Result<(), Nonsense> {
        if matches!(value, REJECT | NOT_UNDERSTOOD) {
            self.refused = true;
            return Ok(());
        }
        self.segment = Some(negotiate::number(value, range).ok_or(Nonsense)?);
        Ok(())
    }
}

/// One pair: far shorter than any segment (RFC 7143 §13.12).
fn pair(id: Id, value: &str) -> Vec<u8> {
    let mut text = TextWriter::new(limits::TEXT_ANSWER_LEN_MAX);
    let written = text.push(id.key().name, value);
    debug_assert!(written.is_ok(), "a short pair");
    text.into_vec()
}
