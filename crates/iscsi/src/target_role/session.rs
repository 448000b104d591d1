// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One session in full feature phase (RFC 7143 §4.2, §7, §11).
//!
//! ```text
//!                    request_logout
//!          Active ---------------------> LogoutRequested
//!          |  ^ |                               |
//!   last   |  | +--- L, D -------> Closed <-----+ L, D, last connection lost, no logout in time
//!   conn.  |  | J                    ^
//!   lost   v  |                      |          L  logout with reason 0, or 1 of the last one
//!          |                         |             (through LoggedOut: no work of a task is left)
//!          Failed -------------------+ T, D     D  drop_session, a violation that ends the session
//!                                               J  a connection joins: session continuation
//!                                               T  Time2Wait and Time2Retain are over
//! ```
//!
//! Here PDUs are handed to those who know them. Each machine has its state to itself; the files
//! below join them: `order` (whose turn it is), `commands` (SCSI commands), `answers` and
//! `statuses` (what is kept and sent again), `management` with `fences` and `terminations`,
//! `texts`, `pings`, `logouts`; `life`, `reassignment` and `endings` know how connections and
//! sessions come and go.

mod answers;
mod commands;
mod endings;
mod fences;
mod life;
mod logouts;
mod management;
mod order;
mod pings;
mod reassignment;
mod statuses;
mod terminations;
mod texts;

use super::connection::Connections;
use super::fence::Fences;
use super::limits;
use super::logged_in::LoggedIn;
use super::logout;
use super::logout::Logouts;
use super::management::Managements;
use super::names::ConnectionId;
use super::numbering::Numbering;
use super::output::{Output, Outputs};
use super::pdu::Pdu;
use super::ping::Patience;
use super::recovery::LostConnections;
use super::settings::Settings;
use super::task::Tasks;
use super::task::Terms;
use crate::datamover::{Event, Immediate, Op};
use crate::service::Indication;
use crate::violation::{Reaction, Violation};
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{Numbers, Reject, Request, Response, StatSn};

/// One session in full feature phase, with all its connections.
///
/// After each call, take all of [`poll_output`](Self::poll_output) in order and carry out each
/// before the next is taken: the SCSI side answers an `Indication::Command` with `receive_data_out`
/// or `complete` before the next poll wherever it can. When the queue is empty, a place is asked
/// for (`Output::Reserve`) for data that a command announced and the SCSI side has not asked for.
#[derive(Debug)]
pub struct Session {
    login: LoggedIn,
    patience: Patience,
    state: State,
    numbering: Numbering,
    tasks: Tasks,
    managements: Managements,
    logouts: Logouts,
    connections: Connections,
    lost: LostConnections,
    fences: Fences,
    outputs: Outputs,
    /// A TARGET COLD RESET was carried out.
    is_reset: bool,
    now: Instant,
}

/// Life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    LogoutRequested {
        deadline: Instant,
    },
    /// No connection is left; one may come until the deadline.
    Failed {
        deadline: Instant,
    },
    /// Its initiator has logged it out, and its tasks have ended; the answer waits until nothing of
    /// them is left.
    LoggedOut,
    Closed,
}

impl Session {
    /// The session with its leading connection, which gets `ConnectionId(0)`.
    pub fn new(login: LoggedIn, settings: &Settings, now: Instant) -> Self {
        let depth = settings.depth_over(login.capabilities).clamp(1, limits::QUEUE_DEPTH_MAX);
        let numbering = Numbering::new(login.exp_cmd_sn, depth);
        let mut connections = Connections::default();
        connections.insert(&login, &login.parameters, numbering.max(), now);
        let terms = Terms::new(&login.parameters, login.capabilities);
        Self {
            patience: Patience::new(&login, settings, now),
            state: State::Active,
            tasks: Tasks::new(depth, terms, settings.kept_bytes_max),
            managements: Managements::new(login.parameters.protocol_level, settings.target_reset),
            logouts: Logouts::default(),
            connections,
            lost: LostConnections::default(),
            fences: Fences::default(),
            outputs: Outputs::with_capacity(usize::from(depth)),
            numbering,
            login,
            is_reset: false,
            now,
        }
    }

    /// What a mover told. `header`: BHS and AHS of the PDU at hand. `data`: its data segment unless
    /// it is a SCSI command.
    pub fn handle_event(
        &mut self,
        connection: ConnectionId,
        event: Event,
        header: &[u8],
        data: &[u8],
        now: Instant,
    ) {
        self.now = now;
        if let Event::Released { task } = event {
            self.tasks.release(task, &mut self.outputs);
            return self.settle();
        }
        let Some(at) = self.connections.get_mut(connection) else { return };
        at.life_mut().hear(now);
        if at.is_logged_out() || self.is_closed() {
            return;
        }
        let pdu = Pdu { connection, header, data };
        let result = match event {
            Event::Control { request, immediate } => self.handle_request(&pdu, request, immediate),
            Event::DataDone { task, offset, length } => {
                self.data_done(task, (offset, length));
                Ok(())
            }
            Event::DataFailed { task, offset, length, error } => {
                self.data_failed(task, (offset, length), error);
                Ok(())
            }
            Event::NoBuffer => {
                self.outputs.indicate(Indication::OutOfBuffers);
                Ok(())
            }
            Event::Rejected { reason } => {
                self.check_retained(connection).and(Err(Violation::Malformed(reason)))
            }
            Event::DigestError => self.check_retained(connection).and(Err(Violation::DataDigest)),
            Event::Violation(violation) => Err(Violation::Stream(violation)),
            Event::Released { .. } => Ok(()),
        };
        if let Err(violation) = result {
            self.react(connection, violation, header);
        }
        self.settle();
    }

    /// A Data-Out, of which the mover tells nothing else, acknowledged all responses before
    /// `expected` (RFC 7143 §4.2.2.2).
    pub fn acknowledge(&mut self, connection: ConnectionId, expected: StatSn, now: Instant) {
        self.now = now;
        let Some(at) = self.connections.get_mut(connection) else { return };
        if at.is_logged_out() || at.status().is_acknowledged(expected) || self.is_closed() {
            return;
        }
        if let Err(violation) = self.take_acknowledgement(connection, expected) {
            self.react(connection, violation, &[]);
        }
        self.settle();
    }

    /// Tells the time. Calls that carry none take place at the last time told, so this comes before
    /// those that begin to wait for something: `request_logout`, `terminate`,
    /// `task_management_done`, and `complete` with a fence.
    pub const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Call when `poll_timeout` has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if !self.is_closed() {
            self.handle_state_timeout();
        }
        if !self.is_closed() {
            if self.keeps_answers() {
                self.ask_for_acknowledgements();
                self.expire_lost();
            }
            self.tasks.look_for_overdue(self.now, &mut self.outputs);
        }
        if !self.is_closed() {
            self.handle_ping_timeout();
        }
        self.settle();
    }

    /// What must be carried out next; None when everything has been.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.tasks.reserve_undeclared(self.now, &mut self.outputs);
        }
        self.outputs.pop()
    }

    /// When `handle_timeout` is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let deadlines = [
            self.ping_deadline(),
            self.state_deadline(),
            self.managements.deadline(self.now),
            self.keeps_answers().then(|| self.status_deadline()).flatten(),
            self.lost_deadline(),
            self.tasks.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Responses of `connection` that the initiator had not seen when it sent its last PDU: a lower
    /// bound of how many commands it keeps outstanding.
    pub fn unacknowledged(&self, connection: ConnectionId) -> u32 {
        self.connections
            .get(connection)
            .map_or(0, |connection| connection.status().unacknowledged())
    }

    /// The StatSN that the next response on `connection` gets.
    pub fn next_stat_sn(&self, connection: ConnectionId) -> StatSn {
        self.connections.get(connection).map_or(StatSn(0), |connection| connection.status().next())
    }

    /// Verifies every invariant (panics on a defect); tests and the simulator call it after each
    /// step.
    pub fn check(&self) {
        let here = |id| self.is_closed() || self.connections.get(id).is_some();
        self.tasks.check(here, |key| self.is_closed() || self.lost.has(key));
        self.lost.check(self.reassigns());
        self.managements.check(|id| self.connections.get(id).is_some());
        self.fences.check();
        self.logouts.check(|id| self.connections.get(id).is_some());
        let running = self.tasks.running() + self.managements.numbered();
        self.numbering.check(running);
        for connection in self.connections.iter() {
            connection.check(self.keeps_answers());
        }
        let failed = matches!(self.state, State::Failed { .. } | State::Closed);
        assert!(failed == (self.connections.count() == 0), "a live session has a connection");
        if self.is_closed() {
            assert_eq!(self.poll_timeout(), None, "a closed session waits for nothing");
            assert_eq!(self.tasks.running(), 0, "a closed session runs nothing");
        }
    }

    /// True once the session is over: it takes nothing any more.
    fn is_closed(&self) -> bool {
        matches!(self.state, State::LoggedOut | State::Closed)
    }

    const fn is_discovery(&self) -> bool {
        self.login.discovery
    }

    /// Whether what is lost on a connection is sent again there: ErrorRecoveryLevel is above 0,
    /// and its movers number what they send.
    const fn recovers(&self) -> bool {
        self.login.parameters.error_recovery_level > 0 && self.login.capabilities.numbers_data
    }

    /// Whether what was answered is kept until it is acknowledged: to be sent again on its
    /// connection, or on another one.
    const fn keeps_answers(&self) -> bool {
        self.recovers() || self.reassigns()
    }

    /// Numbers of a PDU that does not advance StatSN. The initiator will hear of the window as it
    /// is now.
    fn numbers(&mut self, id: ConnectionId) -> Numbers {
        let Some(connection) = self.connections.present_mut(id) else { return Numbers::default() };
        let (exp, max) = self.numbering.tell();
        connection.numbers(exp, max)
    }

    /// Numbers of a response: takes the next StatSN.
    fn response_numbers(&mut self, id: ConnectionId) -> Numbers {
        let Some(connection) = self.connections.present_mut(id) else { return Numbers::default() };
        let (exp, max) = self.numbering.tell();
        connection.response_numbers(exp, max)
    }

    fn send(&mut self, id: ConnectionId, response: Response, data: Vec<u8>) {
        if self.keeps_answers()
            && let Some(connection) = self.connections.present_mut(id)
        {
            connection.retained_mut().push_pdu(&response, &data, self.now);
        }
        self.outputs.op(id, Op::SendControl { response, data, task: None });
    }

    /// Does what a violation asks for. `header`: of the PDU that broke the rule.
    fn react(&mut self, id: ConnectionId, violation: Violation, header: &[u8]) {
        match violation.reaction() {
            Reaction::Ignore => {}
            Reaction::Reject(reason) => {
                let numbers = self.response_numbers(id);
                let reject = Reject { reason, numbers, data_sn: violation.next_data_sn() };
                let header = self.connections.get(id).map_or(header, |at| at.fitting(header));
                self.send(id, Response::Reject(reject), header.to_vec());
            }
            Reaction::DropConnection => self.drop_connection(id, violation),
            Reaction::DropSession => self.drop_for(violation),
            Reaction::FailTask(_) | Reaction::RefuseTask(_) => {
                unreachable!("violations of a task are settled where its task is known")
            }
        }
    }

    /// Whatever can go on now, goes on.
    fn settle(&mut self) {
        if self.is_closed() {
            return;
        }
        loop {
            self.deliver_held();
            if self.is_closed() || !self.progress_managements() {
                break;
            }
        }
        if self.is_reset && !self.managements.answers_cold_reset() {
            self.drop_session();
        }
        if !self.is_closed() {
            self.open_window();
            self.tell_open_window();
            self.ask_if_stuck();
        }
    }

    fn handle_request(
        &mut self,
        pdu: &Pdu<'_>,
        request: Request,
        immediate_data: Immediate,
    ) -> Result<(), Violation> {
        if let Some(expected) = exp_stat_sn(&request) {
            self.take_acknowledgement(pdu.connection, expected)?;
        }
        self.check_request(pdu, &request)?;
        let (cmd_sn, immediate) = match request {
            Request::Command(command) => {
                return self.handle_command(pdu, command, immediate_data);
            }
            Request::NopOut(pdu) => (pdu.cmd_sn, pdu.immediate),
            Request::TaskManagement(pdu) => {
                self.plug_before_numbered(&pdu);
                (pdu.cmd_sn, pdu.immediate)
            }
            Request::Text(pdu) => (pdu.cmd_sn, pdu.immediate),
            Request::Logout(pdu) => (pdu.cmd_sn, pdu.immediate),
            Request::Login(_) => return Err(Violation::LoginRequest),
            Request::Snack(snack) => return self.run_snack(pdu, &snack),
            Request::DataOut(_) => return Err(Violation::UnknownTransfer),
        };
        if immediate {
            return self.run(pdu, &request);
        }
        self.order(pdu, request, cmd_sn)
    }

    /// What can be wrong with a PDU whatever the order.
    fn check_request(&self, pdu: &Pdu<'_>, request: &Request) -> Result<(), Violation> {
        match request {
            Request::Login(_) | Request::Text(_) => Ok(()),
            Request::Logout(logout) => logout::check(logout, self.is_discovery()),
            _ if self.is_discovery() => Err(Violation::NotInDiscovery),
            Request::NopOut(nop) => match self.connections.get(pdu.connection) {
                Some(connection) => connection.life().check_nop(nop),
                None => Ok(()),
            },
            Request::TaskManagement(request) => self.check_management(request),
            _ => Ok(()),
        }
    }

    /// Carries out a PDU other than a SCSI command. On an error nothing has been done or said.
    fn run(&mut self, pdu: &Pdu<'_>, request: &Request) -> Result<(), Violation> {
        match request {
            Request::TaskManagement(request) => return self.run_management(pdu, request),
            Request::Text(request) => return self.run_text(pdu, request),
            Request::NopOut(nop) => {
                self.open_window();
                self.run_nop(pdu, nop);
            }
            Request::Logout(request) => {
                self.open_window();
                self.run_logout(pdu, request);
            }
            Request::Command(_) | Request::Login(_) | Request::DataOut(_) | Request::Snack(_) => {}
        }
        Ok(())
    }
}

/// The acknowledgement that a PDU carries for its own connection. That of a Logout is for the
/// connection to be closed (RFC 7143 §11.14.4).
const fn exp_stat_sn(request: &Request) -> Option<StatSn> {
    match request {
        Request::NopOut(pdu) => Some(pdu.exp_stat_sn),
        Request::Command(pdu) => Some(pdu.exp_stat_sn),
        Request::TaskManagement(pdu) => Some(pdu.exp_stat_sn),
        Request::Text(pdu) => Some(pdu.exp_stat_sn),
        Request::DataOut(pdu) => Some(pdu.exp_stat_sn),
        Request::Snack(pdu) => Some(pdu.exp_stat_sn),
        Request::Logout(_) | Request::Login(_) => None,
    }
}
