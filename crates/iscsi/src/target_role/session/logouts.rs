// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout (RFC 7143 §11.14-11.15): tasks end, or wait, before the answer.

use super::Session;
use super::State;
use crate::service::Indication;
use crate::target_role::ending::Ending;
use crate::target_role::leaving::Leaving;
use crate::target_role::logout;
use crate::target_role::logout::Answer;
use crate::target_role::logout::Course;
use crate::target_role::logout::Logout;
use crate::target_role::logout::Standing;
use crate::target_role::names::ConnectionId;
use crate::target_role::pdu::Pdu;
use alloc::vec::Vec;
use wire::iscsi::Itt;
use wire::iscsi::LogoutRequest;
use wire::iscsi::LogoutResponse;
use wire::iscsi::Response;

impl Session {
    /// Ends the session or one connection of it, or says why not.
    pub(super) fn run_logout(&mut self, pdu: &Pdu<'_>, request: &LogoutRequest) {
        let own = pdu.connection;
        let standing = Standing {
            named: self.connections.find(request.cid),
            connections: self.connections.count(),
            reassigns: self.reassigns(),
            retains: self.retains_tasks(),
            has_lost: self.lost_until().is_some(),
        };
        // ExpStatSN of a logout is that of the connection to be closed (RFC 7143 §11.14.4). What
        // that one leaves unacknowledged goes with it.
        let _ = self.take_acknowledgement(standing.named.unwrap_or(own), request.exp_stat_sn);
        match logout::course(request, &standing) {
            Course::Refuse(answer) => {
                let times = self.recovery_times();
                self.send_logout_response(own, request.itt, answer, times);
            }
            Course::Close { connection, leaving } => {
                self.close_connection(own, request, connection, leaving);
            }
            Course::CloseAbsent(leaving) => self.log_out_absent(own, request, leaving),
            Course::EndSession => {
                self.lose_nexus();
                self.state = State::LoggedOut;
                self.answer_close(Logout { connection: own, itt: request.itt, leaving: None });
            }
        }
    }

    /// SCSI side: the answer to `Indication::Quiesce`. Nothing of the tasks it was told to drop
    /// before is left.
    pub fn quiesced(&mut self, id: u32) {
        let Some(logout) = self.logouts.quiesced(id) else { return };
        match logout.leaving {
            Some(leaving) => self.finish_close(logout, leaving),
            None => {
                self.send_logout_response(logout.connection, logout.itt, Answer::Closed, (0, 0));
                self.close(Ending::Logout);
            }
        }
        self.settle();
    }

    /// The transport of `id` is gone while the logout of the session waits for the end of its
    /// tasks. Without the connection that asked nobody waits for an answer.
    pub(super) fn lose_logged_out(&mut self, id: ConnectionId) {
        self.logouts.forget_connection(id);
        if self.logouts.is_empty() {
            self.close(Ending::Lost);
        } else {
            self.remove_connection(id, Ending::Lost);
        }
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
        self.clear_connection(closing, leaving);
        if leaving == Leaving::Recoverable {
            self.log_out_lost(request.cid, request.exp_stat_sn);
        }
        if closing != own {
            self.remove_connection(closing, Ending::Logout);
        } else if let Some(connection) = self.connections.present_mut(own) {
            connection.log_out();
        }
        let logout = Logout { connection: own, itt: request.itt, leaving: Some(leaving) };
        match leaving == Leaving::Recoverable && self.retains_tasks() {
            // They do not end.
            true => self.finish_close(logout, leaving),
            false => self.answer_close(logout),
        }
    }

    /// Logs a connection out that is not there: it may be lost, and its tasks not.
    fn log_out_absent(&mut self, own: ConnectionId, request: &LogoutRequest, leaving: Leaving) {
        let LogoutRequest { cid, itt, exp_stat_sn, .. } = *request;
        let is_known = match leaving {
            Leaving::Recoverable => self.log_out_lost(cid, exp_stat_sn),
            Leaving::Closed => self.close_lost(cid),
        };
        match leaving {
            _ if !is_known => self.send_logout_response(own, itt, Answer::CidNotFound, (0, 0)),
            Leaving::Recoverable => {
                let times = self.recovery_times();
                self.send_logout_response(own, itt, Answer::Closed, times);
            }
            Leaving::Closed => {
                self.answer_close(Logout { connection: own, itt, leaving: Some(leaving) });
            }
        }
    }

    /// Answers once nothing of the tasks that have ended is left. There may be some even where none
    /// ends now: those that a function or another session aborted.
    fn answer_close(&mut self, logout: Logout) {
        let id = self.logouts.wait(logout);
        self.outputs.indicate(Indication::Quiesce { id });
    }

    fn finish_close(&mut self, logout: Logout, leaving: Leaving) {
        let Logout { connection, itt, .. } = logout;
        let own = self.connections.present_mut(connection);
        let Some(logged_out) = own.map(|own| own.is_logged_out()) else { return };
        let recoverable = leaving == Leaving::Recoverable && self.retains_tasks();
        // Where the tasks are gone, there is nothing to wait for nor to retain (RFC 7143
        // §11.15.3-4).
        let times = if recoverable { self.recovery_times() } else { (0, 0) };
        self.send_logout_response(connection, itt, Answer::Closed, times);
        if logged_out {
            self.remove_connection(connection, Ending::Logout);
        }
        if self.connections.count() > 0 {
            return;
        }
        let waited_for = self.lost_until();
        let until = if recoverable { Some(self.now + self.retention()) } else { waited_for };
        match until {
            Some(deadline) => self.state = State::Failed { deadline },
            None => self.end(Ending::Logout),
        }
    }

    fn send_logout_response(
        &mut self,
        id: ConnectionId,
        itt: Itt,
        answer: Answer,
        (time2wait, time2retain): (u16, u16),
    ) {
        let numbers = self.response_numbers(id);
        let response = answer.code();
        let answer = LogoutResponse { response, itt, numbers, time2wait, time2retain };
        self.send(id, Response::Logout(answer), Vec::new());
    }
}
