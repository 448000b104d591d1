// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout (RFC 7143 §11.14-11.15) and the other ways in which a session ends.

use super::session::{Pdu, Session, State};
use super::{ConnectionId, Output};
use crate::datamover::Op;
use crate::service::Indication;
use crate::violation::Violation;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clock::Instant;
use core::time::Duration;
use wire::iscsi::{AsyncMessage, LogoutRequest, LogoutResponse, Response};

/// Reasons (RFC 7143 §11.14.1).
const CLOSE_SESSION: u8 = 0;
const CLOSE_CONNECTION: u8 = 1;
const RECOVER_CONNECTION: u8 = 2;

/// Responses (RFC 7143 §11.15.1).
const CLOSED: u8 = 0;
const CID_NOT_FOUND: u8 = 1;
const RECOVERY_NOT_SUPPORTED: u8 = 2;

/// Events (RFC 7143 §11.9.1).
const LOGOUT_REQUESTED: u8 = 1;
const CONNECTION_DROPPED: u8 = 2;
const SESSION_DROPPED: u8 = 3;

impl Session {
    /// What can be wrong with a Logout Request by itself.
    pub(super) fn check_logout(&self, request: &LogoutRequest) -> Result<(), Violation> {
        match request.reason {
            CLOSE_SESSION => Ok(()),
            CLOSE_CONNECTION | RECOVER_CONNECTION if self.is_discovery() => {
                Err(Violation::NotInDiscovery)
            }
            CLOSE_CONNECTION | RECOVER_CONNECTION => Ok(()),
            reason => Err(Violation::UnknownLogoutReason(reason)),
        }
    }

    /// Ends the session, or says why not. With one connection, closing it closes the session.
    pub(super) fn run_logout(&mut self, pdu: &Pdu<'_>, request: &LogoutRequest) {
        let known = self.connections.iter().any(|connection| connection.cid == request.cid);
        let response = match request.reason {
            RECOVER_CONNECTION => RECOVERY_NOT_SUPPORTED,
            CLOSE_CONNECTION if !known => CID_NOT_FOUND,
            _ => CLOSED,
        };
        if response == CLOSED {
            self.end_tasks();
            self.outputs.push_back(Output::Indication(Indication::NexusLost));
        }
        let (time2wait, time2retain) = match response {
            // No state waits for another try, nor is there any to retain (RFC 7143 §11.15.3-4).
            CLOSED => (0, 0),
            CID_NOT_FOUND => (0, 0),
            _ => (self.login.parameters.time2wait, self.login.parameters.time2retain),
        };
        let numbers = self.response_numbers(pdu.connection);
        let answer = LogoutResponse { response, itt: request.itt, numbers, time2wait, time2retain };
        self.send(pdu.connection, Response::Logout(answer), Vec::new());
        if response == CLOSED {
            self.close(String::from("logout"));
        }
    }

    /// Asks the initiator to log out within `seconds` (async event 1, RFC 7143 §11.9.1); drops the
    /// connection if it does not. A discovery session takes no such message and ends at once.
    pub fn request_logout(&mut self, seconds: u16) {
        if self.state != State::Active {
            return;
        }
        if self.is_discovery() {
            return self.end(String::from("closed by the target"));
        }
        let deadline = self.now + Duration::from_secs(u64::from(seconds));
        self.state = State::LogoutRequested { deadline };
        self.announce(LOGOUT_REQUESTED, 0, 0, seconds);
    }

    /// Says that the session will be dropped (async event 3) and terminates it.
    pub fn drop_session(&mut self) {
        if self.is_closed() {
            return;
        }
        self.announce_session_drop();
        self.end(String::from("dropped by the target"));
    }

    /// The transport of `connection` is gone: without recovery that is the end of the session
    /// (RFC 7143 §7.1.4.4).
    pub fn handle_disconnect(&mut self, connection: ConnectionId, now: Instant) {
        self.now = now;
        if self.is_closed() || self.connection(connection).is_none() {
            return;
        }
        self.end(String::from("connection lost"));
    }

    /// Ends the connection, and with it the session, because of `violation`.
    pub(super) fn drop_connection(&mut self, id: ConnectionId, violation: Violation) {
        let Some(connection) = self.connection(id) else { return };
        let (cid, parameters) = (connection.cid.0, &self.login.parameters);
        let (wait, retain) = (parameters.time2wait, parameters.time2retain);
        if !self.is_discovery() {
            self.announce(CONNECTION_DROPPED, cid, wait, retain);
        }
        self.end(violation.to_string());
    }

    /// Ends all connections because of `violation`.
    pub(super) fn drop_for(&mut self, violation: Violation) {
        if !self.is_discovery() {
            self.announce_session_drop();
        }
        self.end(violation.to_string());
    }

    pub(super) fn logout_deadline(&self) -> Option<Instant> {
        match self.state {
            State::LogoutRequested { deadline } => Some(deadline),
            State::Active | State::Closed => None,
        }
    }

    /// Drops an initiator that was asked to log out and did not.
    pub(super) fn handle_logout_timeout(&mut self) {
        let due = self.logout_deadline().is_some_and(|deadline| deadline <= self.now);
        if let Some(connection) = self.connections.first()
            && due
        {
            self.react(connection.id, Violation::LogoutTimeout, &[]);
        }
    }

    fn announce_session_drop(&mut self) {
        let parameters = &self.login.parameters;
        let (wait, retain) = (parameters.time2wait, parameters.time2retain);
        self.announce(SESSION_DROPPED, 0, wait, retain);
    }

    fn announce(&mut self, event: u8, parameter1: u16, parameter2: u16, parameter3: u16) {
        let Some(id) = self.connections.first().map(|connection| connection.id) else { return };
        let numbers = self.response_numbers(id);
        let message = AsyncMessage {
            lun: Default::default(),
            numbers,
            event,
            vcode: 0,
            parameter1,
            parameter2,
            parameter3,
        };
        self.send(id, Response::Async(message), Vec::new());
    }

    /// Ends the session as if by itself: tasks silently (RFC 7143 §7.6), then the nexus, then the
    /// transport.
    fn end(&mut self, reason: String) {
        self.end_tasks();
        self.outputs.push_back(Output::Indication(Indication::NexusLost));
        self.close(reason);
    }

    fn close(&mut self, reason: String) {
        for connection in &mut self.connections {
            connection.text = None;
            connection.ping = None;
            self.outputs.push_back(Output::Op(connection.id, Op::Terminate));
        }
        self.outputs.push_back(Output::Closed { reason });
        self.state = State::Closed;
    }
}
