// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The login phase of one connection. Read RFC 7143 §6.1 to §6.3, §11.12 and §11.13 first.
//!
//! ```text
//! new --AuthMethod--> Security --[CHAP_A .. CHAP_R]--> Operational --T=1--> Over (Done)
//!                        |  T=1                            |
//! any --error, deadline, refusal--> Over (Failed)     any --class 1--> Over (Redirected)
//! ```
//!
//! In each state the target has the next word. A response with C=1 is answered by an empty request
//! and leaves the state as it is.

mod error;
mod markers;
mod negotiation;
mod security;
#[cfg(test)]
mod tests;

pub use error::LoginError;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use clock::Instant;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::LoginRequest;
use wire::iscsi::LoginResponse;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::Stage;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;
use wire::iscsi::keys::Pairs;
use wire::iscsi::keys::TextWriter;

use self::negotiation::Negotiation;
use self::negotiation::push;
use self::security::Security;
use super::Authenticated;
use super::Identity;
use super::Joining;
use super::LoggedIn;
use super::LoginOutput;
use super::Settings;
use super::datamover::Event;
use super::datamover::Op;
use super::datamover::Violation;
use super::datamover::control_itt;
use crate::chap::Client;
use crate::limits;
use crate::negotiate;
use crate::params;
use crate::params::Id;
use crate::serial::Serial;

/// The login phase of one connection, from the initiator's side (RFC 7143 §6.3).
///
/// Drain [`Login::poll_output`] after each call, also after `new`. After [`LoginOutput::Done`],
/// [`LoginOutput::Redirected`] or [`LoginOutput::Failed`] the machine is over and takes no notice
/// of anything.
#[derive(Debug)]
pub struct Login {
    identity: Identity,
    state: State,
    negotiation: Negotiation,
    deadline: Instant,
    cmd_sn: CmdSn,
    exp_stat_sn: StatSn,
    /// Responses are counted from the first one on.
    counts: bool,
    /// Of the requests: zero for a new session (RFC 7143 §11.12.6).
    tsih: Tsih,
    /// Of responses with C=1.
    text: Vec<u8>,
    exchanges: u32,
    authenticated: Authenticated,
    /// The ISID of the responses, where it is another one.
    foreign_isid: Option<Isid>,
    outputs: VecDeque<LoginOutput>,
}

#[derive(Debug)]
enum State {
    /// SecurityNegotiation.
    Security(Security),
    /// LoginOperationalNegotiation.
    Operational,
    /// Done, redirected or failed.
    Over,
}

impl Login {
    /// A connection that was opened at `now`; the first request is ready. `client`: by what the
    /// initiator can prove who it is. `cmd_sn`: that of the first command, any value.
    #[must_use]
    pub fn new(
        identity: Identity,
        settings: &Settings,
        client: Option<Client>,
        cmd_sn: CmdSn,
        now: Instant,
    ) -> Self {
        let negotiation = Negotiation::new(&identity, settings, None);
        let new = (Tsih(0), cmd_sn, StatSn(0));
        Self::begin(identity, settings, client, negotiation, new, now)
    }

    /// As [`Login::new`], for one more connection of a session, or one that replaces a connection
    /// that is gone (RFC 7143 §6.3.4). The identity is that of the session; its CID does not count.
    #[must_use]
    pub fn join(
        mut identity: Identity,
        settings: &Settings,
        client: Option<Client>,
        joining: Joining,
        now: Instant,
    ) -> Self {
        identity.cid = joining.cid;
        let numbers = (joining.tsih, joining.cmd_sn, joining.exp_stat_sn);
        let negotiation = Negotiation::new(&identity, settings, Some(joining.parameters));
        Self::begin(identity, settings, client, negotiation, numbers, now)
    }

    fn begin(
        identity: Identity,
        settings: &Settings,
        client: Option<Client>,
        negotiation: Negotiation,
        (tsih, cmd_sn, exp_stat_sn): (Tsih, CmdSn, StatSn),
        now: Instant,
    ) -> Self {
        let security = match client {
            None => Security::Off,
            Some(client) => Security::Offered(Box::new(client)),
        };
        let mut login = Self {
            identity,
            state: State::Security(security),
            negotiation,
            deadline: now + settings.login_timeout,
            cmd_sn,
            exp_stat_sn,
            counts: false,
            tsih,
            text: Vec::new(),
            exchanges: 0,
            authenticated: Authenticated::Nobody,
            foreign_isid: None,
            outputs: VecDeque::new(),
        };
        if let Err(error) = login.introduce() {
            login.fail(error);
        }
        login
    }

    /// Takes what the mover tells; `data`: the data segment of the PDU at hand.
    pub fn handle_event(&mut self, event: Event, data: &[u8], now: Instant) {
        self.handle_timeout(now);
        if matches!(self.state, State::Over) {
            return;
        }
        let handled = match event {
            Event::Control { response: Response::Login(response) } => self.response(response, data),
            Event::Violation(Violation::NotIscsi) => Err(LoginError::NotIscsi),
            Event::Violation(violation) => Err(LoginError::Stream(violation)),
            _ => Err(LoginError::OtherPdu),
        };
        if let Err(error) = handled {
            self.fail(error);
        }
    }

    /// Lets the time be `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !matches!(self.state, State::Over) && now >= self.deadline {
            self.fail(LoginError::Timeout);
        }
    }

    /// The connection is gone.
    pub fn handle_disconnect(&mut self) {
        if !matches!(self.state, State::Over) {
            self.fail(LoginError::Disconnected);
        }
    }

    /// What must be carried out next.
    pub fn poll_output(&mut self) -> Option<LoginOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`Login::handle_timeout`]. None once the login is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!matches!(self.state, State::Over)).then_some(self.deadline)
    }

    /// ExpStatSN of the next request (RFC 7143 §11.12.9).
    #[must_use]
    pub const fn exp_stat_sn(&self) -> StatSn {
        self.exp_stat_sn
    }

    /// The first request: who we are, whom we want, how we may prove ourselves.
    fn introduce(&mut self) -> Result<(), LoginError> {
        let mut text = TextWriter::new(limits::LOGIN_SEGMENT_LEN_MAX);
        push(&mut text, Id::InitiatorName.key().name, &self.identity.initiator)?;
        // Ornament: one that does not fit the protocol is left out.
        let alias = self.identity.initiator_alias.as_ref();
        if let Some(alias) = alias.filter(|alias| negotiate::may_be_declared(alias)) {
            push(&mut text, Id::InitiatorAlias.key().name, alias)?;
        }
        let kind = usize::from(self.identity.discovery);
        let kind = params::SESSION_TYPES.get(kind).copied().unwrap_or_default();
        if self.tsih == Tsih(0) {
            push(&mut text, Id::SessionType.key().name, kind)?;
        }
        if let Some(target) = &self.identity.target {
            push(&mut text, Id::TargetName.key().name, target)?;
        }
        let (methods, next) = match &self.state {
            // One that must see the target's proof does not go without.
            State::Security(Security::Offered(client)) if client.is_mutual() => ("CHAP", None),
            State::Security(Security::Offered(_)) => ("CHAP,None", None),
            _ => ("None", Some(Stage::Operational)),
        };
        push(&mut text, Id::AuthMethod.key().name, methods)?;
        self.send(Stage::Security, next, text);
        Ok(())
    }

    fn send(&mut self, current: Stage, next: Option<Stage>, text: TextWriter) {
        let request = LoginRequest {
            transit: next.is_some(),
            continue_: false,
            current,
            next,
            version_max: 0,
            version_min: 0,
            isid: self.identity.isid,
            tsih: self.tsih,
            itt: control_itt(0),
            cid: self.identity.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(),
        };
        let op = Op::SendControl { request: Request::Login(request), data: text.into_vec() };
        self.outputs.push_back(LoginOutput::Op(op));
    }

    fn response(&mut self, response: LoginResponse, data: &[u8]) -> Result<(), LoginError> {
        self.exchanges += 1;
        if self.exchanges > limits::LOGIN_EXCHANGES_MAX {
            return Err(LoginError::Exchanges);
        }
        if self.text.len() + data.len() > limits::LOGIN_TEXT_LEN_MAX {
            return Err(LoginError::TextTooLong);
        }
        self.text.extend_from_slice(data);
        match response.status >> 8 {
            0 => {}
            1 => return self.redirect(response.status),
            _ => return Err(LoginError::Refused(response.status)),
        }
        let current = self.stage();
        self.check(&response, current)?;
        if response.continue_ {
            self.send(current, None, TextWriter::new(0));
            return Ok(());
        }
        let text = core::mem::take(&mut self.text);
        let mut answers = TextWriter::new(limits::LOGIN_SEGMENT_LEN_MAX);
        let ready = match current {
            Stage::Security => self.security(&text, &mut answers)?,
            _ => {
                self.operational(&text, &mut answers)?;
                true
            }
        };
        self.check_portal_group()?;
        if !response.transit {
            let after =
                if current == Stage::Security { Stage::Operational } else { Stage::FullFeature };
            self.send(current, ready.then_some(after), answers);
            return Ok(());
        }
        self.transit(&response, answers)
    }

    /// The target agrees to leave the stage.
    fn transit(&mut self, response: &LoginResponse, answers: TextWriter) -> Result<(), LoginError> {
        match (self.stage(), response.next) {
            (Stage::Security, Some(Stage::Operational)) => {
                self.leave_security()?;
                let mut text = answers;
                self.negotiation.offer(&mut text)?;
                self.state = State::Operational;
                self.send(Stage::Operational, Some(Stage::FullFeature), text);
                Ok(())
            }
            (Stage::Operational, Some(Stage::FullFeature)) if answers.is_empty() => {
                self.finish(response)
            }
            _ => Err(LoginError::Malformed("a transition that was not asked for")),
        }
    }

    fn finish(&mut self, response: &LoginResponse) -> Result<(), LoginError> {
        if response.tsih == Tsih(0) {
            return Err(LoginError::Malformed("TSIH 0 at the end of a login"));
        }
        if self.tsih != Tsih(0) && response.tsih != self.tsih {
            return Err(LoginError::Malformed("another TSIH"));
        }
        let (max, expected) = (response.numbers.max_cmd_sn, response.numbers.exp_cmd_sn);
        // Both are ignored if they contradict each other (RFC 7143 §4.2.2.1).
        let (exp_cmd_sn, max_cmd_sn) = match max.is_before(expected.minus(1)) {
            true => (self.cmd_sn, self.cmd_sn.minus(1)),
            false => (expected, max),
        };
        let logged_in = LoggedIn {
            tsih: response.tsih,
            cid: self.identity.cid,
            discovery: self.identity.discovery,
            target_alias: self.negotiation.target_alias.take(),
            portal_group_tag: self.negotiation.portal_group_tag,
            foreign_isid: self.foreign_isid,
            authentication: self.authenticated,
            cmd_sn: self.cmd_sn,
            exp_cmd_sn,
            max_cmd_sn,
            exp_stat_sn: self.exp_stat_sn(),
            parameters: self.negotiation.finish()?,
        };
        self.state = State::Over;
        self.outputs.push_back(LoginOutput::Op(Op::NoticeKeys(logged_in.keys())));
        self.outputs.push_back(LoginOutput::Done(Box::new(logged_in)));
        Ok(())
    }

    /// What every response repeats or counts (RFC 7143 §11.13).
    fn check(&mut self, response: &LoginResponse, current: Stage) -> Result<(), LoginError> {
        if response.version_active != 0 {
            return Err(LoginError::Version(response.version_active));
        }
        if response.itt != control_itt(0) {
            return Err(LoginError::Malformed("another task tag"));
        }
        if response.isid != self.identity.isid {
            // Some targets name none at all. Tag and connection say whose answer it is, so that a
            // new session does without; what rests on the ISID does not.
            if self.identity.reinstates {
                return Err(LoginError::Malformed("another ISID"));
            }
            self.foreign_isid = Some(response.isid);
        }
        if response.current != current {
            return Err(LoginError::Stage { got: response.current, current });
        }
        let stat_sn = response.numbers.stat_sn;
        if self.counts && self.exp_stat_sn != stat_sn {
            return Err(LoginError::Malformed("StatSN out of order"));
        }
        (self.counts, self.exp_stat_sn) = (true, stat_sn.plus(1));
        Ok(())
    }

    /// The tag comes with the first response: a login to another group ends before it takes effect
    /// there (RFC 7143 §13.9).
    const fn check_portal_group(&self) -> Result<(), LoginError> {
        match (self.negotiation.portal_group_tag, self.identity.portal_group_tag) {
            (Some(got), Some(expected)) if got != expected => {
                Err(LoginError::PortalGroup { got, expected })
            }
            _ => Ok(()),
        }
    }

    fn stage(&self) -> Stage {
        match self.state {
            State::Security(_) => Stage::Security,
            State::Operational | State::Over => Stage::Operational,
        }
    }

    fn operational(&mut self, text: &[u8], answers: &mut TextWriter) -> Result<(), LoginError> {
        for pair in pairs(text) {
            let pair = pair.map_err(LoginError::Text)?;
            self.negotiation.take(pair, Stage::Operational, answers)?;
        }
        Ok(())
    }

    /// Status class 1: the address stands in this text (RFC 7143 §11.13.5).
    fn redirect(&mut self, status: u16) -> Result<(), LoginError> {
        let text = core::mem::take(&mut self.text);
        let mut address = None;
        for pair in pairs(&text) {
            let (name, value) = pair.map_err(LoginError::Text)?;
            if name == Id::TargetAddress.key().name && address.is_none() {
                address = Some(super::discovery::Address::parse(value).portal);
            }
        }
        let address = address.filter(|address| !address.is_empty());
        let address = address.ok_or(LoginError::RedirectWithoutAddress)?;
        self.end(LoginOutput::Redirected { address, permanent: status == 0x0102 });
        Ok(())
    }

    fn fail(&mut self, error: LoginError) {
        self.end(LoginOutput::Failed(error));
    }

    fn end(&mut self, last: LoginOutput) {
        self.state = State::Over;
        self.outputs.push_back(LoginOutput::Op(Op::Terminate));
        self.outputs.push_back(last);
    }
}

/// The pairs of `text`; binary values may be long.
fn pairs(text: &[u8]) -> Pairs<'_> {
    Pairs::new(text).with_limit(|_| usize::MAX)
}
