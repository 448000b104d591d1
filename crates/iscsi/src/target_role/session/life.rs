// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How connections join a session and leave it, and what is left when the last one goes (RFC 7143
//! §6.3.4-6.3.6, §7.5, §7.6, §8.2, §8.3).
//!
//! Below ErrorRecoveryLevel 2 no task outlives its connection: `clear_connection` is the one place
//! where that is decided. At level 2 the tasks wait in `recovery`.

use super::Session;
use super::State;
use crate::datamover::Capabilities;
use crate::datamover::Op;
use crate::datamover::Rdma;
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::target_role::connection::Connection;
use crate::target_role::ending::Ending;
use crate::target_role::leaving::Leaving;
use crate::target_role::limits;
use crate::target_role::logged_in::LoggedIn;
use crate::target_role::names::ConnectionId;
use crate::target_role::output::Output;
use crate::target_role::task::Task;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use core::time::Duration;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;

/// Login statuses (RFC 7143 §11.13.5).
const TOO_MANY_CONNECTIONS: u16 = 0x0206;
const CANNOT_INCLUDE: u16 = 0x0208;
const SESSION_DOES_NOT_EXIST: u16 = 0x020a;
const SERVICE_UNAVAILABLE: u16 = 0x0301;

impl Session {
    /// Whether a connection with this CID may join (RFC 7143 §6.3.1), over a mover of these
    /// capabilities: a CID in use asks for connection reinstatement.
    ///
    /// # Errors
    /// The status of the refusal.
    pub fn admits(&self, cid: Cid, capabilities: Capabilities) -> Result<(), u16> {
        let max = usize::from(self.login.parameters.max_connections.max(1));
        match self.state {
            State::LoggedOut | State::Closed => Err(SESSION_DOES_NOT_EXIST),
            _ if !becomes(capabilities, self.login.capabilities) => Err(CANNOT_INCLUDE),
            State::LogoutRequested { .. } => Err(SERVICE_UNAVAILABLE),
            State::Active | State::Failed { .. } if self.connections.find(cid).is_some() => Ok(()),
            State::Active | State::Failed { .. } if self.connections.count() < max => Ok(()),
            State::Active | State::Failed { .. } => Err(TOO_MANY_CONNECTIONS),
        }
    }

    /// Connection reinstatement (RFC 7143 §6.3.4): implicitly logs out the connection with this
    /// CID, if there is one. The session lives on even without another, until the new one joins.
    pub fn replace_connection(&mut self, cid: Cid, now: Instant) {
        self.now = now;
        let Some(id) = self.connections.find(cid) else { return };
        if self.is_closed() {
            return;
        }
        self.clear_connection(id, Leaving::Recoverable);
        self.remove_connection(id, Ending::Replaced);
        if self.connections.count() == 0 {
            let wait = self.retention().max(limits::REPLACEMENT_WAIT);
            self.state = State::Failed { deadline: self.now + wait };
        }
        self.settle();
    }

    /// A login to this session is done: its connection joins (RFC 7143 §6.3.1, §6.3.6). Only after
    /// [`admits`](Self::admits), and with no connection of the same CID.
    pub fn add_connection(&mut self, login: &LoggedIn, now: Instant) -> ConnectionId {
        self.now = now;
        let id = self.connections.insert(login, &self.login.parameters, self.numbering.max(), now);
        // What was said to the last one of this id is not for the new one.
        self.outputs.forget_ops(id);
        if let Some(connection) = self.connections.get(id) {
            let keys = *connection.keys();
            self.outputs.op(id, Op::NoticeKeys(keys));
        }
        if matches!(self.state, State::Failed { .. }) {
            self.state = State::Active;
        }
        // A login with its CID logs a lost connection out for recovery (RFC 7143 §11.14).
        self.log_out_lost(login.cid, login.exp_stat_sn);
        // The login response carried the window as it is.
        self.numbering.tell();
        self.settle();
        id
    }

    /// ExpCmdSN and MaxCmdSN, for the responses of a login that wants to join.
    pub fn command_window(&self) -> (CmdSn, CmdSn) {
        (self.numbering.exp(), self.numbering.max())
    }

    /// The connections now, by id.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, Cid)> {
        self.connections.iter().map(|connection| (connection.id(), connection.cid()))
    }

    /// The connection of a task that has not been answered: all that concerns the task goes there
    /// (RFC 7143 §4.2.5.1).
    pub fn connection_of(&self, task: TaskId) -> Option<ConnectionId> {
        self.tasks.live(task).map(Task::connection)
    }

    /// The task tag of a task that has not been answered.
    pub fn tag_of(&self, task: TaskId) -> Option<Itt> {
        self.tasks.live(task).map(|task| task.command().itt)
    }

    /// The transport of `connection` is gone (RFC 7143 §7.1.4.4). That is the end of the session if
    /// it was the last and the session is not to be kept.
    pub fn handle_disconnect(&mut self, connection: ConnectionId, now: Instant) {
        self.now = now;
        if self.connections.get(connection).is_none() {
            return;
        }
        if self.state == State::LoggedOut {
            return self.lose_logged_out(connection);
        }
        self.lose(connection, Ending::Lost);
    }

    /// Ends the connection because of `violation`, and says so (async event 2): on another one if
    /// there is another.
    pub(super) fn drop_connection(&mut self, id: ConnectionId, violation: Violation) {
        let cid = self.connections.get(id).map(Connection::cid);
        if let Some(cid) = cid
            && self.connections.count() == 1
            && !self.is_discovery()
        {
            self.announce_connection_drop(id, cid);
        }
        self.lose(id, Ending::Violation(violation));
    }

    /// A connection is gone without a logout: the others tell of it (RFC 7143 §7.1.4.3).
    fn lose(&mut self, id: ConnectionId, reason: Ending) {
        let Some(cid) = self.connections.get(id).map(Connection::cid) else { return };
        let retained = self.state == State::Active && !self.is_discovery();
        let last = self.connections.count() == 1;
        if last && (!retained || self.login.parameters.time2retain == 0) {
            return self.end(reason);
        }
        self.clear_connection(id, Leaving::Recoverable);
        self.remove_connection(id, reason);
        if last {
            self.state = State::Failed { deadline: self.now + self.retention() };
        } else if let Some(other) = self.connections.first() {
            self.announce_connection_drop(other, cid);
        }
        self.settle();
    }

    /// How long a session without a connection is kept (RFC 7143 §7.5).
    pub(super) fn retention(&self) -> Duration {
        let parameters = &self.login.parameters;
        Duration::from_secs(u64::from(parameters.time2wait) + u64::from(parameters.time2retain))
    }

    /// When [`handle_state_timeout`](Self::handle_state_timeout) has something to do.
    pub(super) fn state_deadline(&self) -> Option<Instant> {
        match self.state {
            State::LogoutRequested { deadline } | State::Failed { deadline } => Some(deadline),
            State::Active | State::LoggedOut | State::Closed => None,
        }
    }

    /// Ends a session that nobody came back to, or that was asked to log out and did not.
    pub(super) fn handle_state_timeout(&mut self) {
        if self.state_deadline().is_none_or(|deadline| deadline > self.now) {
            return;
        }
        if matches!(self.state, State::Failed { .. }) {
            return self.end(Ending::Timeout);
        }
        let all: Vec<ConnectionId> = self.connections().map(|(id, _)| id).collect();
        for id in all {
            self.drop_connection(id, Violation::LogoutTimeout);
        }
    }

    /// Ends all that belongs to a connection and not to the session, without a word to the
    /// initiator (RFC 7143 §6.3.4, §7.6, appendix E.1).
    pub(super) fn clear_connection(&mut self, id: ConnectionId, leaving: Leaving) {
        self.forget_held(id);
        if leaving == Leaving::Recoverable && self.retains_tasks() {
            self.suspend_connection(id);
        }
        for task in self.tasks.of(id) {
            self.tasks.discard(task, &mut self.outputs);
        }
        self.forget_managements(id);
        self.logouts.forget_connection(id);
    }

    /// Takes a cleared connection out: it closes once all that was said on it has left.
    pub(super) fn remove_connection(&mut self, id: ConnectionId, reason: Ending) {
        if self.connections.remove(id).is_none() {
            return;
        }
        self.fences.forget_connection(id);
        self.note_received();
        self.outputs.op(id, Op::Terminate);
        self.outputs.push(Output::ConnectionClosed { connection: id, reason });
        // What it alone was told of the window may not have arrived.
        let told = self.connections.iter().map(|connection| connection.told_max_cmd_sn());
        if let Some(latest) = told.reduce(|a, b| if b.is_after(a) { b } else { a }) {
            self.numbering.confirm_told(latest);
        }
    }
}

/// Whether a connection whose mover can do `now` has one that can do `session` in full feature
/// phase: a byte stream goes on with RDMA in a session over it (RFC 7145 §6.3).
fn becomes(now: Capabilities, session: Capabilities) -> bool {
    now == session || now.rdma == Rdma::Possible && session == Capabilities::RDMA
}
