// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One session in full feature phase (RFC 7143 §4.2, §7, §11).
//!
//! ```text
//!                    request_logout
//!          Active ---------------------> LogoutRequested
//!          |  ^ |                               |
//!   last   |  | +------ L, D ----> Closed <-----+ L, D, last connection lost, no logout in time
//!   conn.  |  | J                    ^
//!   lost   v  |                      |          L  logout with reason 0, or 1 of the last one
//!          Failed -------------------+ T, D     D  drop_session, a violation that ends the session
//!                                               J  a connection joins: session continuation
//!                                               T  Time2Wait and Time2Retain are over
//! ```
//!
//! Here PDUs are handed to those who know them: `numbering` (whose turn it is), `task` (SCSI
//! commands), `management`, `text`, `ping`, `logout`; `life` knows how connections come and go.

mod endings;
mod fences;
mod life;
mod logouts;
mod management;
mod order;
mod pings;
mod statuses;
mod terminations;
mod texts;

use super::connection::{Connection, Connections};
use super::fence::Fences;
use super::limits;
use super::logged_in::LoggedIn;
use super::logout;
use super::logout::Logouts;
use super::management::Managements;
use super::names::ConnectionId;
use super::names::NOWHERE;
use super::numbering::Numbering;
use super::output::{Output, Outputs};
use super::pdu::Pdu;
use super::ping::Patience;
use super::recovery::Recovery;
use super::settings::Settings;
use super::task::{Look, Tasks};
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
    pub(super) login: LoggedIn,
    pub(super) patience: Patience,
    pub(super) state: State,
    pub(super) numbering: Numbering,
    pub(super) tasks: Tasks,
    pub(super) managements: Managements,
    pub(super) logouts: Logouts,
    pub(super) connections: Connections,
    pub(super) recovery: Recovery,
    pub(super) look: Look,
    pub(super) fences: Fences,
    /// The bits of the command priority that count: none below protocol level 2 (RFC 7144 §4).
    pub(super) priority_mask: u8,
    pub(super) outputs: Outputs,
    pub(super) now: Instant,
}

/// Life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Active,
    LogoutRequested {
        deadline: Instant,
    },
    /// No connection is left; one may come until the deadline.
    Failed {
        deadline: Instant,
    },
    Closed,
}

impl Session {
    /// The session with its leading connection, which gets `ConnectionId(0)`.
    pub fn new(login: LoggedIn, settings: &Settings, now: Instant) -> Self {
        let depth = settings.queue_depth.clamp(1, limits::QUEUE_DEPTH_MAX);
        let numbering = Numbering::new(login.exp_cmd_sn, depth);
        let mut connections = Connections::default();
        connections.insert(&login, &login.parameters, numbering.max(), now);
        Self {
            patience: Patience::new(&login, settings, now),
            state: State::Active,
            tasks: Tasks::new(depth),
            managements: Managements::new(login.parameters.protocol_level, settings.target_reset),
            logouts: Logouts::default(),
            connections,
            recovery: Recovery::new(&login.parameters, settings.kept_bytes_max),
            look: Look::default(),
            fences: Fences::default(),
            priority_mask: if login.parameters.protocol_level >= 2 { 0x0f } else { 0 },
            outputs: Outputs::with_capacity(usize::from(depth)),
            numbering,
            login,
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
            self.task_released(task);
            return self.settle();
        }
        let Some(at) = self.connection_mut(connection) else { return };
        at.life_mut().hear(now);
        if at.is_logged_out() || self.is_closed() {
            return;
        }
        let pdu = Pdu { connection, header, data };
        let result = match event {
            Event::Control { request, immediate } => self.handle_request(&pdu, request, immediate),
            Event::DataDone { task, offset, length } => {
                self.data_done(task, offset, length);
                Ok(())
            }
            Event::DataFailed { task, offset, length, error } => {
                self.note_silence(task, error);
                self.data_failed(task, (offset, length), error.into());
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
        let Some(at) = self.connection_mut(connection) else { return };
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
            self.handle_recovery_timeout();
            self.look_for_overdue();
        }
        if !self.is_closed() {
            self.handle_ping_timeout();
        }
        self.settle();
    }

    /// What must be carried out next; None when everything has been.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.reserve_undeclared();
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
            self.recovery_deadline(),
            self.look.at(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Responses of `connection` that the initiator had not seen when it sent its last PDU: a lower
    /// bound of how many commands it keeps outstanding.
    pub fn unacknowledged(&self, connection: ConnectionId) -> u32 {
        self.connection(connection).map_or(0, |connection| connection.status().unacknowledged())
    }

    /// The StatSN that the next response on `connection` gets.
    pub fn next_stat_sn(&self, connection: ConnectionId) -> StatSn {
        self.connection(connection).map_or(StatSn(0), |connection| connection.status().next())
    }

    /// Verifies every invariant (panics on a defect); tests and the simulator call it after each
    /// step.
    pub fn check(&self) {
        self.tasks.check(&self.login.parameters);
        self.managements.check(|id| self.connections.get(id).is_some());
        self.check_recovery();
        self.fences.check();
        self.logouts.check(|id| self.connections.get(id).is_some());
        let running = self.tasks.running() + self.managements.numbered();
        self.numbering.check(running);
        for connection in self.connections.iter() {
            connection.check(self.recovery.is_on());
        }
        let failed = matches!(self.state, State::Failed { .. } | State::Closed);
        assert!(failed == (self.connections.count() == 0), "a live session has a connection");
        let lives = |id| self.is_closed() || id == NOWHERE || self.connection(id).is_some();
        assert!(self.tasks.connections().all(lives), "a task outlived its connection");
        if self.is_closed() {
            assert_eq!(self.poll_timeout(), None, "a closed session waits for nothing");
            assert_eq!(self.tasks.running(), 0, "a closed session runs nothing");
        }
    }

    /// True once the session is over: it takes nothing any more.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(super) const fn is_discovery(&self) -> bool {
        self.login.discovery
    }

    pub(super) fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id)
    }

    pub(super) fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id)
    }

    /// Numbers of a PDU that does not advance StatSN. The initiator will hear of the window as it
    /// is now.
    pub(super) fn numbers(&mut self, id: ConnectionId) -> Numbers {
        let Some(connection) = self.connections.present_mut(id) else { return Numbers::default() };
        let (exp, max) = self.numbering.tell();
        connection.numbers(exp, max)
    }

    /// Numbers of a response: takes the next StatSN.
    pub(super) fn response_numbers(&mut self, id: ConnectionId) -> Numbers {
        let Some(connection) = self.connections.present_mut(id) else { return Numbers::default() };
        let (exp, max) = self.numbering.tell();
        connection.response_numbers(exp, max)
    }

    pub(super) fn send(&mut self, id: ConnectionId, response: Response, data: Vec<u8>) {
        if self.recovery.is_on()
            && let Some(connection) = self.connections.present_mut(id)
        {
            connection.retained_mut().push_pdu(&response, &data, self.now);
        }
        self.outputs.op(id, Op::SendControl { response, data, task: None });
    }

    /// Does what a violation asks for. `header`: of the PDU that broke the rule.
    pub(super) fn react(&mut self, id: ConnectionId, violation: Violation, header: &[u8]) {
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
    pub(super) fn settle(&mut self) {
        if self.is_closed() {
            return;
        }
        loop {
            self.deliver_held();
            if self.is_closed() || !self.progress_managements() {
                break;
            }
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
            Request::Login(_) => Err(Violation::LoginRequest),
            Request::Text(_) => Ok(()),
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
    pub(super) fn run(&mut self, pdu: &Pdu<'_>, request: &Request) -> Result<(), Violation> {
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
