// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout (RFC 7143 §11.14-11.15) and the other ways in which a session ends.

use super::life::{Cleared, Leaving};
use super::names::ConnectionId;
use super::output::Output;
use super::parameters::Parameters;
use super::pdu::Pdu;
use super::session::{Session, State};
use crate::datamover::Op;
use crate::service::Indication;
use crate::violation::Violation;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use wire::iscsi::{
    AsyncMessage, Cid, Itt, LogoutRequest, LogoutResponse, LunField, Response, StatSn,
};

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

/// Logouts of single connections that wait for the SCSI side.
#[derive(Debug, Default)]
pub(super) struct Logouts {
    waiting: Vec<Waiting>,
    next_id: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u32,
    /// Where the request came and the answer goes.
    connection: ConnectionId,
    itt: Itt,
    leaving: Leaving,
}

impl Logouts {
    /// Whether this is the tag of a logout that is not answered yet.
    pub(super) fn has(&self, itt: Itt) -> bool {
        self.waiting.iter().any(|waiting| waiting.itt == itt)
    }
}

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

    /// Ends the session or one connection of it, or says why not. Closing the last connection
    /// closes the session.
    pub(super) fn run_logout(&mut self, pdu: &Pdu<'_>, request: &LogoutRequest) {
        let named = self.connections.find(request.cid);
        let own = pdu.connection;
        self.acknowledge_closing(named.unwrap_or(own), request.exp_stat_sn);
        match (request.reason, named) {
            (RECOVER_CONNECTION, _) if !self.recovery.reassigns() => {
                let times = self.recovery_times();
                self.send_logout_response(own, request.itt, RECOVERY_NOT_SUPPORTED, times);
            }
            (RECOVER_CONNECTION, Some(closing))
                if self.connections.count() > 1 || self.retains_tasks() =>
            {
                self.close_connection(own, request, closing, Leaving::Recoverable);
            }
            (RECOVER_CONNECTION | CLOSE_CONNECTION, None) => self.log_out_absent(own, request),
            (CLOSE_CONNECTION, Some(closing))
                if self.connections.count() > 1 || self.lost_until().is_some() =>
            {
                self.close_connection(own, request, closing, Leaving::Closed);
            }
            _ => {
                self.end_tasks();
                self.outputs.push(Output::Indication(Indication::NexusLost));
                self.send_logout_response(own, request.itt, CLOSED, (0, 0));
                self.close(String::from("logout"));
            }
        }
    }

    /// ExpStatSN of a logout is that of the connection to be closed (RFC 7143 §11.14.4).
    fn acknowledge_closing(&mut self, id: ConnectionId, expected: StatSn) {
        if let Some(connection) = self.connection_mut(id) {
            connection.status.acknowledge(expected);
            // What it leaves unacknowledged goes with it.
            let _ = self.forget_acknowledged(id);
        }
    }

    /// SCSI side: the answer to `Indication::Quiesce`. Nothing of the tasks it was told to drop
    /// before is left.
    pub fn quiesced(&mut self, id: u32) {
        let Some(at) = self.logouts.waiting.iter().position(|waiting| waiting.id == id) else {
            return;
        };
        let waiting = self.logouts.waiting.remove(at);
        self.finish_close(waiting);
        self.settle();
    }

    /// Logs one connection out: its tasks end before the answer, or wait to be reassigned (RFC 7143
    /// §11.14).
    fn close_connection(
        &mut self,
        own: ConnectionId,
        request: &LogoutRequest,
        closing: ConnectionId,
        leaving: Leaving,
    ) {
        let cleared = self.clear_connection(closing, leaving);
        if leaving == Leaving::Recoverable {
            self.log_out_lost(request.cid, request.exp_stat_sn);
        }
        if closing == own {
            if let Some(connection) = self.connection_mut(own) {
                connection.logged_out = true;
            }
        } else {
            self.remove_connection(closing, String::from("logout"));
        }
        self.answer_close(own, request.itt, leaving, cleared);
    }

    /// Logs a connection out that is not there: it may be lost, and its tasks not.
    fn log_out_absent(&mut self, own: ConnectionId, request: &LogoutRequest) {
        let LogoutRequest { cid, itt, exp_stat_sn, .. } = *request;
        if request.reason == RECOVER_CONNECTION {
            let known = self.log_out_lost(cid, exp_stat_sn);
            let times = self.recovery_times();
            let (response, times) = if known { (CLOSED, times) } else { (CID_NOT_FOUND, (0, 0)) };
            return self.send_logout_response(own, itt, response, times);
        }
        match self.close_lost(cid) {
            Some(cleared) => self.answer_close(own, itt, Leaving::Closed, cleared),
            None => self.send_logout_response(own, itt, CID_NOT_FOUND, (0, 0)),
        }
    }

    /// Answers once nothing of the tasks that were cleared is left.
    fn answer_close(&mut self, own: ConnectionId, itt: Itt, leaving: Leaving, cleared: Cleared) {
        let id = self.logouts.next_id;
        self.logouts.next_id = id.wrapping_add(1);
        let waiting = Waiting { id, connection: own, itt, leaving };
        match cleared {
            Cleared::Nothing => self.finish_close(waiting),
            Cleared::Tasks => {
                self.logouts.waiting.push(waiting);
                self.outputs.indicate(Indication::Quiesce { id });
            }
        }
    }

    fn finish_close(&mut self, waiting: Waiting) {
        let Waiting { connection, itt, leaving, .. } = waiting;
        let Some(logged_out) = self.connection(connection).map(|own| own.logged_out) else {
            return;
        };
        let recoverable = leaving == Leaving::Recoverable && self.retains_tasks();
        // Where the tasks are gone, there is nothing to wait for nor to retain (RFC 7143
        // §11.15.3-4).
        let times = if recoverable { self.recovery_times() } else { (0, 0) };
        self.send_logout_response(connection, itt, CLOSED, times);
        if logged_out {
            self.remove_connection(connection, String::from("logout"));
        }
        if self.connections.count() > 0 {
            return;
        }
        let waited_for = self.lost_until();
        let until = if recoverable { Some(self.now + self.retention()) } else { waited_for };
        match until {
            Some(deadline) => self.state = State::Failed { deadline },
            None => self.end(String::from("logout")),
        }
    }

    /// Time2Wait and Time2Retain of the session.
    fn recovery_times(&self) -> (u16, u16) {
        let Parameters { time2wait, time2retain, .. } = self.login.parameters;
        (time2wait, time2retain)
    }

    fn send_logout_response(
        &mut self,
        id: ConnectionId,
        itt: Itt,
        response: u8,
        (time2wait, time2retain): (u16, u16),
    ) {
        let numbers = self.response_numbers(id);
        let answer = LogoutResponse { response, itt, numbers, time2wait, time2retain };
        self.send(id, Response::Logout(answer), Vec::new());
    }

    /// Logouts that a lost connection asked for need no answer any more.
    pub(super) fn forget_logouts(&mut self, id: ConnectionId) {
        self.logouts.waiting.retain(|waiting| waiting.connection != id);
    }

    /// Asks the initiator to log out within `seconds` (async event 1 on each connection, RFC 7143
    /// §11.9.1); drops the connections if it does not. A discovery session takes no such message
    /// and ends at once, as does one without a connection.
    pub fn request_logout(&mut self, seconds: u16) {
        if !matches!(self.state, State::Active | State::Failed { .. }) {
            return;
        }
        if self.is_discovery() {
            return self.end(String::from("closed by the target"));
        }
        if self.connections.count() == 0 {
            return self.end(String::from("closed by the target"));
        }
        let deadline = self.now + Duration::from_secs(u64::from(seconds));
        self.state = State::LogoutRequested { deadline };
        let all: Vec<ConnectionId> = self.connections.iter().map(|c| c.id).collect();
        for id in all {
            self.announce(id, LOGOUT_REQUESTED, 0, 0, seconds);
        }
    }

    /// Says that the session will be dropped (async event 3) and terminates it.
    pub fn drop_session(&mut self) {
        if self.is_closed() {
            return;
        }
        if !self.is_discovery() {
            self.announce_session_drop();
        }
        self.end(String::from("dropped by the target"));
    }

    /// Ends all connections because of `violation`.
    pub(super) fn drop_for(&mut self, violation: Violation) {
        if !self.is_discovery() {
            self.announce_session_drop();
        }
        self.end(violation.to_string());
    }

    fn announce_session_drop(&mut self) {
        let Some(id) = self.connections.first() else { return };
        let parameters = &self.login.parameters;
        let (wait, retain) = (parameters.time2wait, parameters.time2retain);
        self.announce(id, SESSION_DROPPED, 0, wait, retain);
    }

    /// Async event 2 about the connection `cid`.
    pub(super) fn announce_connection_drop(&mut self, id: ConnectionId, cid: Cid) {
        let parameters = &self.login.parameters;
        let (wait, retain) = (parameters.time2wait, parameters.time2retain);
        self.announce(id, CONNECTION_DROPPED, cid.0, wait, retain);
    }

    fn announce(
        &mut self,
        id: ConnectionId,
        event: u8,
        parameter1: u16,
        parameter2: u16,
        parameter3: u16,
    ) {
        let parameters = [parameter1, parameter2, parameter3];
        self.announce_for(id, LunField::default(), event, parameters);
    }

    /// An Async Message about a unit; gives its StatSN.
    pub(super) fn announce_for(
        &mut self,
        id: ConnectionId,
        lun: LunField,
        event: u8,
        [parameter1, parameter2, parameter3]: [u16; 3],
    ) -> StatSn {
        let numbers = self.response_numbers(id);
        let message =
            AsyncMessage { lun, numbers, event, vcode: 0, parameter1, parameter2, parameter3 };
        self.send(id, Response::Async(message), Vec::new());
        numbers.stat_sn
    }

    /// Ends the session as if by itself: tasks silently (RFC 7143 §7.6), then the nexus, then the
    /// transport.
    pub(super) fn end(&mut self, reason: String) {
        self.end_tasks();
        self.outputs.push(Output::Indication(Indication::NexusLost));
        self.close(reason);
    }

    fn close(&mut self, reason: String) {
        for connection in core::mem::take(&mut self.connections).iter() {
            self.outputs.push(Output::Op(connection.id, Op::Terminate));
        }
        self.outputs.push(Output::Closed { reason });
        self.state = State::Closed;
    }
}
