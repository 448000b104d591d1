// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of a connection that is gone, and of its commands. Read first: RFC 7143 §6.3.4
//! (connection reinstatement), §7.1.4.3, §7.2 (retry and reassignment), §7.5 (time-outs), §11.14
//! (logout).
//!
//! A connection that is gone is logged out by another one or, at ErrorRecoveryLevel 2, by the login
//! of its successor. Only then is it known what the target has of its commands:
//!
//! - those that it never counted are sent again under their numbers, which closes the gap;
//! - at level 2, the others are reassigned, one TASK REASSIGN for each;
//! - below, the others have ended with the connection.
//!
//! Whatever goes wrong on the way ends the session, and a new one makes sure that nothing of this
//! one reaches the medium later.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use clock::Instant;
use wire::iscsi::Cid;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LogoutRequest;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::Request;
use wire::iscsi::TaskManagementRequest;

use super::Ending;
use super::Outcome;
use super::Session;
use super::SessionError;
use super::State;
use super::connection::Connection;
use super::connection::LEADING;
use super::connection::Phase;
use super::management::Job;
use super::patience::Patience;
use crate::initiator::ConnectionId;
use crate::initiator::Joining;
use crate::initiator::LoggedIn;
use crate::initiator::datamover::Keys;
use crate::initiator::datamover::Op;
use crate::initiator::datamover::TaskId;
use crate::initiator::datamover::itt;
use crate::initiator::limits;
use crate::initiator::tasks::Home;
use crate::limits::CONNECTIONS_MAX;
use crate::serial::Serial;

/// Reasons of a logout (RFC 7143 §11.14.1).
const CLOSE_CONNECTION: u8 = 1;
const RECOVER_CONNECTION: u8 = 2;

/// Logout responses (RFC 7143 §11.15.1).
const LOGGED_OUT: u8 = 0;
const NO_SUCH_CONNECTION: u8 = 1;

/// RFC 7143 §11.5.1.
const TASK_REASSIGN: u8 = 8;

/// Task management responses (RFC 7143 §11.6.1).
const FUNCTION_COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;

/// What is to be done for commands whose connection is gone.
#[derive(Debug, Default)]
pub(super) struct Failover {
    /// Commands to reassign, in order.
    reassign: VecDeque<TaskId>,
    /// Without a connection by then, the session ends.
    patience: Option<Instant>,
}

impl Session {
    /// A connection that wants to be made: the pump connects to the target, tells so by
    /// [`Session::begin_join`], logs in and ends by [`Session::joined`] or
    /// [`Session::join_failed`].
    #[must_use]
    pub fn wanted(&self, now: Instant) -> Option<ConnectionId> {
        if !matches!(self.state, State::Active) {
            return None;
        }
        let due = |phase| matches!(phase, Phase::Wanted { from, .. } if from <= now);
        let mut due = self.connections.iter().filter(|(_, connection)| due(connection.phase));
        due.next().map(|(id, _)| id)
    }

    /// The pump makes a connection that is [`Session::wanted`]. Of no other one this is taken
    /// notice of.
    pub fn begin_join(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && let Phase::Wanted { tries, .. } = connection.phase
        {
            connection.phase = Phase::Joining { tries };
        }
    }

    /// What the login of a connection needs to know, once there is something to log in on. None
    /// unless it is being made (RFC 7143 §6.3.4: one that is up is not replaced).
    #[must_use]
    pub fn joining(&self, id: ConnectionId) -> Option<Joining> {
        let connection = self.connections.get(id)?;
        if !matches!(connection.phase, Phase::Joining { .. }) {
            return None;
        }
        Some(Joining {
            connection: id,
            tsih: self.login.tsih,
            cid: connection.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: connection.statuses.expected(),
            parameters: self.login.parameters.clone(),
        })
    }

    /// A connection is in full feature phase.
    pub fn joined(&mut self, id: ConnectionId, login: &LoggedIn, now: Instant) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !matches!(connection.phase, Phase::Joining { .. }) {
            return;
        }
        let fresh = Connection::new(connection.cid, login.exp_stat_sn, login.keys(), now);
        *connection = Connection { load: connection.load, asked: connection.asked, ..fresh };
        self.move_window(Numbers {
            stat_sn: login.exp_stat_sn,
            exp_cmd_sn: login.exp_cmd_sn,
            max_cmd_sn: login.max_cmd_sn,
        });
        self.failover.patience = None;
        self.recovered(id, now);
        self.declare_late(id, now);
        self.send_waiting(now);
    }

    /// A connection could not be made. `hopeless`: nor will it be later.
    pub fn join_failed(&mut self, id: ConnectionId, hopeless: bool, now: Instant) {
        let any_up = self.connections.any_up().is_some();
        let gone =
            |task: &TaskId| self.tasks.get(*task).is_some_and(|task| task.home == Home::Gone);
        let stranded = self.tasks.of(id).iter().any(gone);
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Phase::Joining { tries } = connection.phase else { return };
        let pause = (limits::REJOIN_MIN * (1 << tries.min(8))).min(limits::REJOIN_MAX);
        match (any_up, hopeless) {
            (true, _) if stranded => self.clean_up(id, now),
            (true, true) => connection.phase = Phase::Down,
            (false, true) => self.close(SessionError::Disconnected, None),
            _ => connection.phase = Phase::Wanted { from: now + pause, tries: tries + 1 },
        }
    }

    /// The session is to have so many connections, as far as the target agreed.
    pub(super) fn want_more(&mut self, connections: u16, now: Instant) {
        let agreed = self.login.parameters.max_connections;
        let count = connections.min(agreed).min(CONNECTIONS_MAX);
        if self.login.discovery {
            return;
        }
        for more in 1..count {
            let cid = Cid(self.login.cid.0.wrapping_add(more));
            let fresh = Connection::new(cid, Default::default(), Keys::LOGIN, now);
            let phase = Phase::Wanted { from: now, tries: 0 };
            self.connections.push(Connection { phase, ..fresh });
        }
    }

    /// Whether the session can do without this connection.
    pub(super) fn may_go_on(&self, at: ConnectionId) -> bool {
        let agreed = &self.login.parameters;
        let waits = agreed.error_recovery_level >= 2 && agreed.time2retain > 0;
        let is_active = matches!(self.state, State::Active) && !self.login.discovery;
        is_active && (waits || self.has_other(at))
    }

    /// Whether another connection is there.
    pub(super) fn has_other(&self, at: ConnectionId) -> bool {
        self.connections.iter().any(|(id, other)| id != at && other.is_up())
    }

    /// A connection is gone, and the session goes on. `announced`: the Time2Wait and Time2Retain
    /// that the target told, seconds.
    pub(super) fn lose(&mut self, at: ConnectionId, announced: Option<(u16, u16)>, now: Instant) {
        let Some(connection) = self.connections.get_mut(at).filter(|gone| gone.is_up()) else {
            return;
        };
        connection.ping = None;
        connection.phase = Phase::Down;
        self.retries.forget(at);
        self.op(at, Op::Terminate);
        for id in self.tasks.of(at) {
            if let Some(task) = self.tasks.get_mut(id) {
                (task.held, task.snacks) = (None, 0);
                if task.home != Home::Queued {
                    task.home = Home::Gone;
                }
            }
        }
        self.requests_lost(at, now);
        match announced {
            None => self.clean_up(at, now),
            Some((wait, retain)) => self.rest(at, wait, retain, now),
        }
        // Those that it was to log out need another one.
        let its = |phase| matches!(phase, Phase::CleanUp { at: by, .. } if by == at);
        let others = self.connections.iter().filter(|(_, other)| its(other.phase));
        for other in others.map(|(id, _)| id).collect::<Vec<_>>() {
            self.clean_up(other, now);
        }
        self.reassign_more(now);
        self.abort_doubtful(now);
    }

    /// As [`Session::clean_up`], after Time2Wait.
    fn rest(&mut self, id: ConnectionId, wait: u16, retain: u16, now: Instant) {
        let until = now + Duration::from_secs(wait.into());
        if self.connections.any_up().is_none() {
            self.await_successor(id, until, retain);
        } else if wait == 0 {
            self.clean_up(id, now);
        } else if let Some(connection) = self.connections.get_mut(id) {
            connection.phase = Phase::Respite { until, logged_out: false };
        }
    }

    /// The next login of a connection stands for its logout, for Time2Retain from then on.
    fn await_successor(&mut self, id: ConnectionId, from: Instant, retain: u16) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.phase = Phase::Wanted { from, tries: 0 };
        let until = from + Duration::from_secs(retain.into());
        self.failover.patience.get_or_insert(until);
    }

    /// Has a connection logged out that is gone: by another one or, where there is none, by the
    /// login of its successor.
    fn clean_up(&mut self, id: ConnectionId, now: Instant) {
        let agreed = &self.login.parameters;
        let (wait, retain) = (agreed.time2wait, agreed.time2retain);
        let reason = if self.reassigns() { RECOVER_CONNECTION } else { CLOSE_CONNECTION };
        let Some(by) = self.connections.any_up() else {
            return self.await_successor(id, now + Duration::from_secs(wait.into()), retain);
        };
        let itt = self.controls.next_itt();
        let until = now + limits::LOGOUT_TIMEOUT;
        let Some(connection) = self.connections.get_mut(id) else { return };
        let patience = Patience::new(now);
        connection.phase = Phase::CleanUp { itt, at: by, until, patience };
        let (cid, exp_stat_sn) = (connection.cid, connection.statuses.expected());
        let cmd_sn = self.cmd_sn;
        let request = LogoutRequest { immediate: true, reason, itt, cid, cmd_sn, exp_stat_sn };
        self.op(by, Op::SendControl { request: Request::Logout(request), data: Vec::new() });
    }

    /// The answer to the logout of a connection that is gone; false if it is another one's.
    pub(super) fn cleaned_up(
        &mut self,
        tag: Itt,
        response: u8,
        time2wait: u16,
        now: Instant,
    ) -> Result<bool, SessionError> {
        let reassigns = self.reassigns();
        let its = |phase| matches!(phase, Phase::CleanUp { itt, .. } if itt == tag);
        let found = self.connections.iter_mut().find(|(_, connection)| its(connection.phase));
        let Some((id, connection)) = found else { return Ok(false) };
        // One that the target does not know has ended there with all that was its own.
        if !matches!(response, LOGGED_OUT | NO_SUCH_CONNECTION) {
            return Err(SessionError::NotRecovered);
        }
        // Of tasks that the target keeps it says when it takes them again (RFC 7143 §11.15.3).
        if response == LOGGED_OUT && reassigns && time2wait > 0 {
            let until = now + Duration::from_secs(time2wait.into());
            connection.phase = Phase::Respite { until, logged_out: true };
            return Ok(true);
        }
        connection.phase = Phase::Wanted { from: now, tries: 0 };
        self.recovered(id, now);
        Ok(true)
    }

    /// A connection that was gone is logged out: its commands go on elsewhere.
    fn recovered(&mut self, id: ConnectionId, now: Instant) {
        let mut tasks: Vec<TaskId> = self.tasks.of(id);
        tasks.retain(|task| self.tasks.get(*task).is_some_and(|entry| entry.home == Home::Gone));
        let number = |task: &TaskId| self.tasks.get(*task).and_then(|entry| entry.sent);
        tasks.sort_by_key(|task| number(task).map(|sent| sent.steps_from(self.cmd_sn)));
        let reassigns = self.reassigns();
        for task in tasks {
            let Some(entry) = self.tasks.get_mut(task) else { continue };
            match entry.sent {
                Some(number) if !number.is_before(self.exp_cmd_sn) => {
                    let Some(to) = self.connections.choose() else { continue };
                    let from = entry.connection;
                    (entry.connection, entry.home) = (to, Home::There);
                    entry.patience = Patience::new(now);
                    self.connections.shift_load(Some(from), Some(to), &entry.command);
                    self.retries.note(to, number);
                    self.send(task, number, to);
                }
                _ if reassigns => {
                    entry.home = Home::Queued;
                    self.failover.reassign.push_back(task);
                }
                _ => self.end_task(task, Outcome::Failed(Ending::Lost { sent: true })),
            }
        }
        self.reassign_more(now);
    }

    /// Asks for the reassignment of as many commands as may be asked for at once.
    pub(super) fn reassign_more(&mut self, now: Instant) {
        while self.controls.has_room() && !self.failover.reassign.is_empty() {
            let Some(to) = self.connections.choose() else { return };
            let Some(task) = self.failover.reassign.pop_front() else { return };
            let Some(entry) = self.tasks.get_mut(task) else { continue };
            self.connections.shift_load(Some(entry.connection), Some(to), &entry.command);
            (entry.connection, entry.home, entry.resegment) = (to, Home::Asked, false);
            let request = TaskManagementRequest {
                immediate: true,
                function: TASK_REASSIGN,
                lun: LunField::default(),
                itt: self.controls.begin(Job::Reassign(task), to, self.cmd_sn, now),
                referenced_task: itt(task),
                cmd_sn: self.cmd_sn,
                exp_stat_sn: self.exp_stat_sn_at(to),
                ref_cmd_sn: Default::default(),
                exp_data_sn: DataSn(0),
            };
            self.op(to, Op::Reassign { task, request });
        }
    }

    /// The answer to TASK REASSIGN.
    pub(super) fn reassigned(
        &mut self,
        task: TaskId,
        response: u8,
        now: Instant,
    ) -> Result<(), SessionError> {
        match (response, self.tasks.get_mut(task)) {
            (FUNCTION_COMPLETE, Some(entry)) => {
                (entry.home, entry.patience) = (Home::There, Patience::new(now));
            }
            (FUNCTION_COMPLETE | NO_SUCH_TASK, None) => {}
            (NO_SUCH_TASK, Some(_)) => {
                self.end_task(task, Outcome::Failed(Ending::Lost { sent: true }));
            }
            // The target may still carry it out.
            _ => return Err(SessionError::NotRecovered),
        }
        self.reassign_more(now);
        Ok(())
    }

    /// Whether commands outlive their connections: ErrorRecoveryLevel is 2.
    const fn reassigns(&self) -> bool {
        self.login.parameters.error_recovery_level >= 2
    }

    /// When something is due.
    pub(super) fn failover_deadline(&self) -> Option<Instant> {
        let of = |phase| match phase {
            Phase::CleanUp { until, .. } | Phase::Respite { until, .. } => Some(until),
            Phase::Wanted { from, .. } if self.state == State::Active => Some(from),
            _ => None,
        };
        let connections =
            self.connections.iter().filter_map(|(_, connection)| of(connection.phase));
        connections.chain(self.failover.patience).min()
    }

    /// Does what is due.
    pub(super) fn expire_failover(&mut self, now: Instant) -> Result<(), SessionError> {
        if self.failover.patience.is_some_and(|at| at <= now) {
            return Err(SessionError::Disconnected);
        }
        while let Some((id, logged_out)) = self.rested(now) {
            if logged_out && let Some(connection) = self.connections.get_mut(id) {
                connection.phase = Phase::Wanted { from: now, tries: 0 };
                self.recovered(id, now);
            } else {
                self.clean_up(id, now);
            }
        }
        let due = |phase| matches!(phase, Phase::CleanUp { until, .. } if until <= now);
        let next = |session: &Self| {
            let mut all = session.connections.iter();
            let found = all.find(|(_, connection)| due(connection.phase))?;
            Some((found.0, found.1.phase))
        };
        while let Some((id, Phase::CleanUp { itt, at, mut patience, .. })) = next(self) {
            let until = self.check_patience(&mut patience, limits::LOGOUT_TIMEOUT, (at, None), now);
            let until = until.ok_or(SessionError::LogoutTimeout)?;
            if let Some(connection) = self.connections.get_mut(id) {
                connection.phase = Phase::CleanUp { itt, at, until, patience };
            }
        }
        Ok(())
    }

    /// A connection whose respite is over, and whether it is logged out.
    fn rested(&self, now: Instant) -> Option<(ConnectionId, bool)> {
        self.connections.iter().find_map(|(id, connection)| match connection.phase {
            Phase::Respite { until, logged_out } if until <= now => Some((id, logged_out)),
            _ => None,
        })
    }

    /// The session is over: so are its connections.
    pub(super) fn end_connections(&mut self) {
        let mut gone = Vec::new();
        for (id, connection) in self.connections.iter_mut() {
            if connection.is_up() || id == LEADING {
                gone.push(id);
            }
            connection.phase = Phase::Down;
        }
        for id in gone {
            self.op(id, Op::Terminate);
        }
        self.failover = Failover::default();
    }

    pub(super) fn check_failover(&self) {
        for (id, connection) in self.connections.iter() {
            for task in self.tasks.of(id).iter().filter_map(|task| self.tasks.get(*task)) {
                let at_home = connection.is_up() || task.home != Home::There;
                assert!(at_home, "a command of a connection that is gone waits for another one");
            }
        }
        assert!(self.connections.any_up().is_none() || self.failover.patience.is_none());
        let can = self.connections.any_up().is_some() && self.controls.has_room();
        assert!(!can || self.failover.reassign.is_empty(), "reassigned as soon as it can be");
    }
}
