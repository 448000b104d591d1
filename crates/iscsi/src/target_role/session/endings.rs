// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a session ends, and the Async Messages that tell of an end (RFC 7143 §7.6, §11.9).

use super::Session;
use super::State;
use crate::datamover::Op;
use crate::service::Indication;
use crate::target_role::connection::Connection;
use crate::target_role::ending::Ending;
use crate::target_role::names::ConnectionId;
use crate::target_role::output::Output;
use crate::target_role::parameters::Parameters;
use crate::violation::Violation;
use alloc::vec::Vec;
use core::time::Duration;
use wire::iscsi::AsyncMessage;
use wire::iscsi::Cid;
use wire::iscsi::LunField;
use wire::iscsi::Response;
use wire::iscsi::StatSn;

/// Events (RFC 7143 §11.9.1).
const LOGOUT_REQUESTED: u8 = 1;
const CONNECTION_DROPPED: u8 = 2;
const SESSION_DROPPED: u8 = 3;

impl Session {
    /// Asks the initiator to log out within `seconds` (async event 1 on each connection, RFC 7143
    /// §11.9.1); drops the connections if it does not. If it was asked before, the earlier end
    /// counts. A discovery session takes no such message and ends at once, as does one without a
    /// connection.
    pub fn request_logout(&mut self, seconds: u16) {
        let deadline = self.now + Duration::from_secs(u64::from(seconds));
        match self.state {
            State::Active | State::Failed { .. } => {}
            State::LogoutRequested { deadline: told } if deadline < told => {}
            State::LogoutRequested { .. } | State::LoggedOut | State::Closed => return,
        }
        if self.is_discovery() || self.connections.count() == 0 {
            return self.end(Ending::Closed);
        }
        self.state = State::LogoutRequested { deadline };
        let all: Vec<ConnectionId> = self.connections.iter().map(Connection::id).collect();
        for id in all {
            self.announce(id, LunField::default(), LOGOUT_REQUESTED, [0, 0, seconds]);
        }
    }

    /// Says that the session will be dropped (async event 3) and terminates it.
    pub fn drop_session(&mut self) {
        if self.state == State::LoggedOut {
            return self.close(Ending::Dropped);
        }
        if self.is_closed() {
            return;
        }
        if !self.is_discovery() {
            self.announce_session_drop();
        }
        self.end(Ending::Dropped);
    }

    /// TARGET COLD RESET ends the sessions of its target: as [`drop_session`](Self::drop_session),
    /// once the answer, if it is due here, has left.
    pub fn reset(&mut self) {
        self.is_reset = true;
        self.settle();
    }

    /// Ends all connections because of `violation`.
    pub(super) fn drop_for(&mut self, violation: Violation) {
        if !self.is_discovery() {
            self.announce_session_drop();
        }
        self.end(Ending::Violation(violation));
    }

    fn announce_session_drop(&mut self) {
        let Some(id) = self.connections.first() else { return };
        let (wait, retain) = self.recovery_times();
        self.announce(id, LunField::default(), SESSION_DROPPED, [0, wait, retain]);
    }

    /// Async event 2 about the connection `cid`.
    pub(super) fn announce_connection_drop(&mut self, id: ConnectionId, cid: Cid) {
        let (wait, retain) = self.recovery_times();
        self.announce(id, LunField::default(), CONNECTION_DROPPED, [cid.0, wait, retain]);
    }

    /// An Async Message about a unit; gives its StatSN.
    pub(super) fn announce(
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

    /// Ends every task of the session (RFC 7143 §7.6).
    pub(super) fn end_tasks(&mut self) {
        self.tasks.end_all(&mut self.outputs);
        self.fences.clear();
        self.managements.clear();
    }

    /// Time2Wait and Time2Retain of the session.
    pub(super) fn recovery_times(&self) -> (u16, u16) {
        let Parameters { time2wait, time2retain, .. } = self.login.parameters;
        (time2wait, time2retain)
    }

    /// Ends the session as if by itself: tasks silently (RFC 7143 §7.6), then the nexus, then the
    /// transport.
    pub(super) fn end(&mut self, reason: Ending) {
        self.lose_nexus();
        self.close(reason);
    }

    /// Ends the tasks silently (RFC 7143 §7.6), then the nexus.
    pub(super) fn lose_nexus(&mut self) {
        self.end_tasks();
        self.outputs.push(Output::Indication(Indication::NexusLost));
    }

    pub(super) fn close(&mut self, reason: Ending) {
        self.logouts.clear();
        for connection in core::mem::take(&mut self.connections).iter() {
            self.outputs.push(Output::Op(connection.id(), Op::Terminate));
        }
        self.outputs.push(Output::Closed { reason });
        self.state = State::Closed;
    }
}
