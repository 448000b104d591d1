// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The login phase of one connection. Read RFC 7143 §6.1 to §6.3, §11.12 and §11.13 first.
//!
//! ```text
//! Start --request--> Admission --admit--> Turn <--request/response--> Turn
//!                                          |  T=1 to full feature
//!                                          v
//!                                       Establish --establish--> Over (Done)
//! any --error, deadline--> Over (Failed)
//! ```
//!
//! In `Turn` the initiator has the next word. A request with C=1 is answered by an empty response
//! and leaves the state as it is; so does a response with C=1, which the initiator answers by an
//! empty request.

mod answers;
mod error;
mod markers;
mod negotiation;
mod output;
mod phase;
mod security;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use clock::Instant;
use wire::iscsi::BHS_LEN;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::Itt;
use wire::iscsi::LoginRequest;
use wire::iscsi::LoginRequestView;
use wire::iscsi::LoginResponse;
use wire::iscsi::Numbers;
use wire::iscsi::OPCODE_LOGIN_REQUEST;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::Stage;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use self::error::LoginError;
use self::negotiation::Names;
use self::negotiation::Turn;
pub use self::output::LoginOutput;
use self::phase::Phase;
use super::admission::Admission;
use super::admission::AdmissionRequest;
use super::logged_in::LoggedIn;
use super::parameters::Parameters;
use crate::datamover::Capabilities;
use crate::datamover::Event;
use crate::datamover::Keys;
use crate::datamover::Op;
use crate::datamover::Rdma;
use crate::datamover::StreamViolation;
use crate::limits;
use crate::negotiate::SessionType;

/// The login phase of one connection (RFC 7143 §6.3).
///
/// Drain [`Login::poll_output`] after each call. After [`LoginOutput::Done`] or
/// [`LoginOutput::Failed`] the machine is over and takes no notice of anything.
#[derive(Debug)]
pub struct Login {
    state: State,
    deadline: Instant,
    /// Of the next response.
    stat_sn: StatSn,
    /// What responses repeat; known from the first request on.
    echo: Option<Echo>,
    outputs: VecDeque<LoginOutput>,
    /// Of the mover.
    capabilities: Capabilities,
}

#[derive(Debug)]
enum State {
    /// No PDU yet.
    Start,
    /// The initiator has the next word.
    Turn(Box<Phase>),
    /// The node is asked whether the initiator may come in; this request waits.
    Admission(Box<Phase>, LoginRequest),
    /// The node is asked for the session; this segment of the final response waits.
    Establish(Box<Phase>, Box<Parameters>, Vec<u8>),
    /// Done or failed.
    Over,
}

/// The fields that every response repeats (RFC 7143 §11.13).
#[derive(Clone, Copy, Debug)]
struct Echo {
    isid: Isid,
    tsih: Tsih,
    itt: Itt,
    exp_cmd_sn: CmdSn,
    max_cmd_sn: CmdSn,
}

impl Login {
    /// A connection that was accepted at `now`, whose mover can do `capabilities`. `stat_sn`: any
    /// start value. The whole login must end within `login_timeout`, whatever comes meanwhile.
    #[must_use]
    pub fn new(
        now: Instant,
        stat_sn: StatSn,
        login_timeout: Duration,
        capabilities: Capabilities,
    ) -> Self {
        Self {
            state: State::Start,
            deadline: now + login_timeout,
            stat_sn,
            echo: None,
            outputs: VecDeque::new(),
            capabilities,
        }
    }

    /// Takes what the mover tells. `header`: the PDU at hand; `data`: its data segment.
    pub fn handle_event(&mut self, event: Event, header: &[u8], data: &[u8], now: Instant) {
        self.handle_timeout(now);
        let state = core::mem::replace(&mut self.state, State::Over);
        let next = match (state, event) {
            (State::Over, _) => Ok(State::Over),
            (state, Event::Control { request: Request::Login(request), .. }) => {
                self.request(state, request, data)
            }
            (state, Event::Control { .. }) => Err(other_pdu(&state)),
            (state, Event::Rejected { .. }) => Err(self.unparsed(&state, header, "illegal field")),
            (state, Event::Violation(violation)) => Err(self.violated(&state, header, violation)),
            // A mover that has been given no task has nothing else to tell.
            (state, _) => Ok(state),
        };
        self.settle(next);
    }

    /// Lets the time be `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !matches!(self.state, State::Over) && now >= self.deadline {
            self.fail(&LoginError::Timeout);
        }
    }

    /// The node's answer to [`LoginOutput::Admit`]. Without effect if the login has ended
    /// meanwhile.
    pub fn admit(&mut self, admission: Admission) {
        let state = core::mem::replace(&mut self.state, State::Over);
        let next = match state {
            State::Admission(phase, request) => self.admitted(phase, &request, admission),
            other => Ok(other),
        };
        self.settle(next);
    }

    /// ExpCmdSN and MaxCmdSN of the session that the login wants to join: what its responses say
    /// from now on. Call it before [`Login::establish`]; earlier responses go to somebody who may
    /// not have proved who it is.
    pub fn join(&mut self, (exp_cmd_sn, max_cmd_sn): (CmdSn, CmdSn)) {
        if let Some(echo) = &mut self.echo {
            (echo.exp_cmd_sn, echo.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        }
    }

    /// The session that the login wants to join is over RDMA, and so is this connection then,
    /// behind its last response if it is a byte stream (RFC 7145 §6.3). Call it before
    /// [`Login::admit`].
    pub const fn join_rdma(&mut self) {
        if matches!(self.capabilities.rdma, Rdma::Possible) {
            self.capabilities = Capabilities::RDMA;
        }
    }

    /// What its mover can do, in full feature phase if that is known.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The node's answer to [`LoginOutput::Establish`]: the session's TSIH, or the status of a
    /// refusal. Without effect if the login has ended meanwhile.
    pub fn establish(&mut self, result: Result<Tsih, u16>) {
        let state = core::mem::replace(&mut self.state, State::Over);
        let next = match state {
            State::Establish(phase, parameters, segment) => match result {
                Ok(Tsih(0)) => Err(refused(0x0300, reason_of(0x0300))),
                Ok(tsih) => {
                    self.done(*phase, *parameters, segment, tsih);
                    Ok(State::Over)
                }
                Err(status) => Err(refused(status, reason_of(status))),
            },
            other => Ok(other),
        };
        self.settle(next);
    }

    /// The name that the initiator has proved to have by CHAP: it holds from
    /// [`LoginOutput::Establish`] on until [`Login::establish`]. All connections of a session must
    /// have the same (RFC 7143 §9.2).
    #[must_use]
    pub fn authenticated(&self) -> Option<&str> {
        match &self.state {
            State::Turn(phase) | State::Admission(phase, _) | State::Establish(phase, ..) => {
                phase.user()
            }
            State::Start | State::Over => None,
        }
    }

    /// Whether the login that asks for its session goes on as an RDMA stream (RFC 7145 §5.1.2): it
    /// holds from [`LoginOutput::Establish`] on until [`Login::establish`].
    #[must_use]
    pub fn becomes_rdma(&self) -> bool {
        matches!(&self.state, State::Establish(_, parameters, _) if parameters.rdma.is_some())
    }

    /// The next output, in order.
    pub fn poll_output(&mut self) -> Option<LoginOutput> {
        self.outputs.pop_front()
    }

    /// When [`Login::handle_timeout`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!matches!(self.state, State::Over)).then_some(self.deadline)
    }

    fn settle(&mut self, next: Result<State, LoginError>) {
        match next {
            Ok(state) => self.state = state,
            Err(error) => self.fail(&error),
        }
    }

    fn request(
        &mut self,
        state: State,
        request: LoginRequest,
        data: &[u8],
    ) -> Result<State, LoginError> {
        let mut phase = match state {
            State::Turn(phase) => phase,
            State::Start => {
                self.echo = Some(Echo::of(&request));
                if request.version_min > 0 {
                    return Err(LoginError::Version(request.version_min));
                }
                Box::new(Phase::new(request))
            }
            _ => return Err(LoginError::Unanswered),
        };
        phase.check(&request)?;
        if !phase.answers.is_empty() {
            if request.continue_ || !data.is_empty() {
                return Err(LoginError::ContinuationNotEmpty);
            }
            return self.answer(phase, &request);
        }
        if phase.text.len() + data.len() > limits::LOGIN_TEXT_LEN_MAX {
            return Err(LoginError::TextTooLong);
        }
        phase.text.extend_from_slice(data);
        if request.continue_ {
            self.respond(phase.stage, Outcome::Stay, Vec::new());
            return Ok(State::Turn(phase));
        }
        if phase.negotiation.is_some() {
            return self.negotiate(phase, &request, Turn::Later);
        }
        let names = Names::read(&phase.text)?;
        self.outputs.push_back(LoginOutput::Admit(AdmissionRequest {
            initiator: names.initiator.clone(),
            target: names.target.clone(),
            discovery: names.session == SessionType::Discovery,
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
        }));
        phase.names = Some(names);
        Ok(State::Admission(phase, request))
    }

    fn admitted(
        &mut self,
        mut phase: Box<Phase>,
        request: &LoginRequest,
        admission: Admission,
    ) -> Result<State, LoginError> {
        let (portal_group_tag, target_alias, settings, authentication) = match admission {
            Admission::Granted { portal_group_tag, target_alias, settings, authentication } => {
                let settings = settings.within(self.capabilities);
                (portal_group_tag, target_alias, settings, authentication)
            }
            Admission::Redirected { address, duration } => {
                return Err(LoginError::Redirected { address, duration });
            }
            Admission::Refused { status, reason } => return Err(refused(status, reason)),
        };
        if let Some(echo) = &mut self.echo
            && request.tsih == Tsih(0)
        {
            let depth = u32::from(settings.queue_depth.max(1));
            echo.max_cmd_sn = CmdSn(echo.exp_cmd_sn.0.wrapping_add(depth - 1));
        }
        phase.introduce(portal_group_tag, target_alias, &settings, authentication)?;
        if phase.stage != Stage::Security && !phase.may_transit()? {
            return Err(LoginError::SecuritySkipped);
        }
        self.negotiate(phase, request, Turn::First)
    }

    /// Takes the whole text of a request and answers it.
    fn negotiate(
        &mut self,
        mut phase: Box<Phase>,
        request: &LoginRequest,
        turn: Turn,
    ) -> Result<State, LoginError> {
        let text = core::mem::take(&mut phase.text);
        let stage = phase.stage;
        let Phase { negotiation: Some(negotiation), answers, .. } = &mut *phase else {
            return Err(LoginError::Malformed("keys before admission"));
        };
        negotiation.read(&text, stage, turn, answers)?;
        negotiation.declare(stage, answers)?;
        self.answer(phase, request)
    }

    /// Sends the next part of the answers, and follows T once all of them are sent.
    fn answer(
        &mut self,
        mut phase: Box<Phase>,
        request: &LoginRequest,
    ) -> Result<State, LoginError> {
        let segment = phase.answers.next_segment();
        let outcome = match request.next {
            _ if !phase.answers.is_empty() => Outcome::Continue,
            Some(_) if request.transit && !phase.may_transit()? => Outcome::Stay,
            Some(Stage::FullFeature) if request.transit => {
                let parameters = phase.finish()?;
                self.outputs.push_back(LoginOutput::Establish);
                return Ok(State::Establish(phase, Box::new(parameters), segment));
            }
            Some(next) if request.transit => Outcome::Transit(next),
            _ => Outcome::Stay,
        };
        self.respond(phase.stage, outcome, segment);
        if let Outcome::Transit(next) = outcome {
            phase.stage = next;
        }
        Ok(State::Turn(phase))
    }

    fn done(&mut self, phase: Phase, parameters: Parameters, segment: Vec<u8>, tsih: Tsih) {
        let proved = phase.user().is_some();
        let Phase { first, stage, negotiation: Some(negotiation), .. } = phase else {
            self.fail(&LoginError::Malformed("end before admission"));
            return;
        };
        let (names, initiator_alias) = negotiation.into_names();
        if let Some(echo) = &mut self.echo {
            echo.tsih = tsih;
        }
        self.respond(stage, Outcome::Transit(Stage::FullFeature), segment);
        let discovery = names.session == SessionType::Discovery;
        self.outputs.push_back(LoginOutput::Op(Op::NoticeKeys(keys(&parameters, discovery))));
        self.outputs.push_back(LoginOutput::Done(LoggedIn {
            initiator: names.initiator,
            initiator_alias,
            target: names.target,
            discovery,
            proved,
            isid: first.isid,
            cid: first.cid,
            tsih,
            exp_cmd_sn: first.cmd_sn,
            stat_sn: self.stat_sn,
            exp_stat_sn: first.exp_stat_sn,
            capabilities: match (parameters.rdma, self.capabilities.rdma) {
                // The byte stream goes on as another one.
                (Some(_), Rdma::Possible) => Capabilities::RDMA,
                _ => self.capabilities,
            },
            parameters,
        }));
    }

    /// A PDU that could not be parsed, or not be taken whole.
    fn unparsed(&mut self, state: &State, header: &[u8], what: &'static str) -> LoginError {
        let Some(echo) = Echo::of_header(header) else { return other_pdu(state) };
        self.echo.get_or_insert(echo);
        LoginError::Malformed(what)
    }

    fn violated(&mut self, state: &State, header: &[u8], violation: StreamViolation) -> LoginError {
        match violation {
            StreamViolation::SegmentTooLong { .. } => {
                self.unparsed(state, header, "data segment above 8192 bytes")
            }
            StreamViolation::AdditionalHeader => {
                self.unparsed(state, header, "additional header segments")
            }
            StreamViolation::NotLogin | StreamViolation::HeaderDigest | StreamViolation::Marker => {
                other_pdu(state)
            }
            StreamViolation::Rdma(_) => LoginError::Rdma,
        }
    }

    fn fail(&mut self, error: &LoginError) {
        let status = error.status().filter(|_| self.echo.is_some());
        if let Some(status) = status {
            self.respond(Stage::Security, Outcome::Failed(status), error.keys());
        }
        self.outputs.push_back(LoginOutput::Op(Op::Terminate));
        self.outputs.push_back(LoginOutput::Failed { status, reason: error.to_string() });
        self.state = State::Over;
    }

    fn respond(&mut self, current: Stage, outcome: Outcome, data: Vec<u8>) {
        let echo = self.echo.expect("responses follow a request");
        assert!(data.len() <= limits::LOGIN_SEGMENT_LEN_MAX);
        let stat_sn = self.stat_sn;
        self.stat_sn = StatSn(stat_sn.0.wrapping_add(1));
        let next = match outcome {
            Outcome::Transit(next) => Some(next),
            _ => None,
        };
        let response = Response::Login(LoginResponse {
            transit: next.is_some(),
            continue_: matches!(outcome, Outcome::Continue),
            current,
            next,
            version_max: 0,
            version_active: 0,
            isid: echo.isid,
            tsih: echo.tsih,
            itt: echo.itt,
            numbers: Numbers { stat_sn, exp_cmd_sn: echo.exp_cmd_sn, max_cmd_sn: echo.max_cmd_sn },
            status: if let Outcome::Failed(status) = outcome { status } else { 0 },
        });
        self.outputs.push_back(LoginOutput::Op(Op::SendControl { response, data, task: None }));
    }
}

/// What a response says besides its keys.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// T=0.
    Stay,
    /// C=1: more of the answer follows.
    Continue,
    /// T=1 with this NSG.
    Transit(Stage),
    /// The login fails with this status.
    Failed(u16),
}

impl Echo {
    fn of(request: &LoginRequest) -> Self {
        let LoginRequest { isid, tsih, itt, cmd_sn, .. } = *request;
        Self { isid, tsih, itt, exp_cmd_sn: cmd_sn, max_cmd_sn: cmd_sn }
    }

    /// From the bytes of a Login Request that could not be parsed; None if it is something else.
    fn of_header(header: &[u8]) -> Option<Self> {
        let mut bhs: [u8; BHS_LEN] = *header.first_chunk()?;
        // Additional header segments, which no login has, may be announced and not be there.
        bhs[TOTAL_AHS_LENGTH] = 0;
        let view = LoginRequestView::new_checked(bhs).ok()?;
        (view.bhs().opcode() == OPCODE_LOGIN_REQUEST).then(|| Self {
            isid: view.isid(),
            tsih: view.tsih(),
            itt: view.itt(),
            exp_cmd_sn: view.cmd_sn(),
            max_cmd_sn: view.cmd_sn(),
        })
    }
}

fn other_pdu(state: &State) -> LoginError {
    match state {
        State::Start => LoginError::NotLogin,
        _ => LoginError::OtherPdu,
    }
}

/// A refusal by the node; a status that is none counts as a defect of the target.
fn refused(status: u16, reason: &'static str) -> LoginError {
    let status = if matches!(status >> 8, 2 | 3) { status } else { 0x0300 };
    LoginError::Refused { status, reason }
}

/// What a status means where it answers a login that was admitted and finds no place, for the log
/// (RFC 7143 §11.13.5).
#[must_use]
pub const fn reason_of(status: u16) -> &'static str {
    match status {
        0x0201 => "the session is of another user than the one who is proved",
        0x0206 => "the session has as many connections as it may have",
        0x0208 => "the session is over another kind of transport",
        0x020a => "the session that it wants to join does not exist",
        0x0302 => "there are as many sessions as there may be",
        _ => "the target cannot take it",
    }
}

impl LoggedIn {
    /// What the mover must know from the first PDU of the full feature phase on.
    #[must_use]
    pub fn keys(&self) -> Keys {
        keys(&self.parameters, self.discovery)
    }
}

/// What the mover must know of the outcome.
fn keys(parameters: &Parameters, discovery: bool) -> Keys {
    let immediate = parameters.immediate_data && !discovery;
    Keys {
        header_digest: parameters.header_digest,
        data_digest: parameters.data_digest,
        max_send_data_segment_length: parameters.max_send_data_segment_length,
        max_recv_data_segment_length: parameters.max_recv_data_segment_length,
        first_burst_length: if immediate { parameters.first_burst_length } else { 0 },
        data_pdu_in_order: parameters.data_pdu_in_order,
        markers: parameters.markers,
        solicited_only: parameters.rdma.is_some_and(|rdma| rdma.solicited_only),
        unexpected_max: parameters.rdma.map_or(0, |rdma| rdma.unexpected_max),
        own_unexpected_max: parameters.rdma.map_or(0, |rdma| rdma.own_unexpected_max),
        hello: parameters.rdma.is_some_and(|rdma| rdma.hello),
    }
}

/// Where a header says how long its additional segments are.
const TOTAL_AHS_LENGTH: usize = 4;
