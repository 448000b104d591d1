// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session in full feature phase. Read RFC 7143 §4.2.2 (numbers), §4.2.5 (data), §7 (errors) and
//! §11.9 to §11.18 first.
//!
//! ```text
//! Active --target asks for a logout--> Draining --nothing under way, or time is over--+
//!   |  `------------------------- logout ------------------------------------------> LoggingOut
//!   `--violation, time-out, drop, disconnect--> Closed <--answer, time-out-------------'
//! ```
//!
//! Commands wait here, in order, until the command window takes them. Whatever ends the session,
//! each command gets exactly one [`Indication::Ended`].
//!
//! - `commands`: what is sent for a command, and how it ends.
//! - `connection`: which connections there are and where a command goes.
//! - `statuses`: which statuses of a connection have come.
//! - `recovery`: above ErrorRecoveryLevel 0, what is lost is asked for (SNACK).
//! - `retries`: how far numbers may go on behind a command that was sent again.
//! - `failover`: what becomes of the commands of a connection that is gone.
//! - `doubt`: what becomes of commands that a lost function may have ended.
//! - `text`: SendTargets and what is negotiated in full feature phase.
//! - `patience`: how long all that may take on a slow line.
//! - `management`: task management; `control`: all else that is no SCSI command.

mod commands;
mod connection;
mod control;
mod doubt;
mod failover;
mod management;
mod patience;
mod recovery;
mod retries;
mod statuses;
#[cfg(test)]
mod tests;
mod text;
mod types;

pub(super) use patience::Pace;
pub(super) use patience::Patience;

pub use patience::Carried;
pub use types::Command;
pub use types::Completion;
pub use types::DeclareError;
pub use types::Ending;
pub use types::Function;
pub use types::Indication;
pub use types::Outcome;
pub use types::Output;
pub use types::Refused;
pub use types::SessionError;
pub use types::Step;

use alloc::collections::VecDeque;
use core::time::Duration;

use clock::Instant;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;
use wire::iscsi::Numbers;
use wire::iscsi::Response;
use wire::iscsi::StatSn;

use self::connection::Connection;
use self::connection::Connections;
use self::connection::LEADING;
use self::control::Controls;
use self::doubt::Doubts;
use self::failover::Failover;
use self::patience::Bytes;
use self::retries::Retries;
use self::statuses::Arrival;
use super::ConnectionId;
use super::LoggedIn;
use super::Settings;
use super::datamover::Event;
use super::datamover::Op;
use super::datamover::TaskId;
use super::tasks::Tasks;
use crate::serial::Serial;

/// One session of an initiator.
///
/// Drain [`Session::poll_output_at`] after each call, then ask [`Session::wanted`] and
/// [`Session::poll_timeout`]. A session that was negotiated to one connection and to
/// ErrorRecoveryLevel below 2 never has another one than the leading one: for such sessions there
/// are calls that need not name it.
#[derive(Debug)]
pub struct Session {
    login: LoggedIn,
    command_timeout: Duration,
    /// Between two looks at how far commands are.
    look_interval: Duration,
    /// When that was done last.
    looked: Instant,
    ping_interval: Duration,
    ping_timeout: Duration,
    state: State,
    /// Of the next non-immediate command.
    cmd_sn: CmdSn,
    exp_cmd_sn: CmdSn,
    max_cmd_sn: CmdSn,
    /// Commands that are with the target at once.
    commands_max: u32,
    connections: Connections,
    tasks: Tasks,
    /// Commands that wait for the window, in order.
    waiting: VecDeque<TaskId>,
    /// When to look whether commands have taken too long, in order; ended ones stay in it.
    deadlines: VecDeque<(Instant, TaskId)>,
    controls: Controls,
    retries: Retries,
    failover: Failover,
    doubts: Doubts,
    /// Why it is closed.
    ended_by: Option<SessionError>,
    outputs: VecDeque<(ConnectionId, Output)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    /// The target asked for a logout: no new command; the logout follows at the latest then.
    Draining {
        until: Instant,
    },
    LoggingOut {
        itt: Itt,
        until: Instant,
        asked: bool,
    },
    Closed,
}

impl Session {
    /// A session whose login has ended at `now`.
    #[must_use]
    pub fn new(login: LoggedIn, settings: &Settings, now: Instant) -> Self {
        let leading = Connection::new(login.cid, login.exp_stat_sn, login.keys(), now);
        let mut session = Self {
            command_timeout: settings.command_timeout,
            look_interval: patience::look_interval(settings.command_timeout),
            looked: now,
            ping_interval: settings.ping_interval,
            ping_timeout: settings.ping_timeout,
            state: State::Active,
            cmd_sn: login.cmd_sn,
            exp_cmd_sn: login.cmd_sn,
            max_cmd_sn: login.max_cmd_sn,
            commands_max: settings.commands_max,
            connections: Connections::new(leading, settings.policy),
            tasks: Tasks::default(),
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            controls: Controls::default(),
            retries: Retries::default(),
            failover: Failover::default(),
            doubts: Doubts::default(),
            ended_by: None,
            outputs: VecDeque::new(),
            login,
        };
        session.want_more(settings.connections, now);
        session
    }

    /// Send SCSI Command (SAM-5 §5.4.2): goes out as soon as the command window takes it. The pump
    /// gives the mover the buffers of the task before it submits the op that sends it.
    ///
    /// # Errors
    /// [`Refused`]; nothing was taken then.
    pub fn command(&mut self, command: Command, now: Instant) -> Result<TaskId, Refused> {
        if self.login.discovery {
            return Err(Refused::Discovery);
        }
        if command.data_in > 0 && command.data_out > 0 {
            return Err(Refused::Bidirectional);
        }
        if self.state != State::Active {
            return Err(Refused::Closed);
        }
        let task = self.tasks.insert(command, now).ok_or(Refused::Full)?;
        self.waiting.push_back(task);
        if !self.command_timeout.is_zero() {
            self.forget_ended();
            self.deadlines.push_back((now + self.command_timeout, task));
        }
        self.send_waiting(now);
        Ok(task)
    }

    /// As [`Session::handle_event_at`], of the leading connection.
    pub fn handle_event(&mut self, event: Event, data: &[u8], now: Instant) {
        self.handle_event_at(LEADING, event, data, now);
    }

    /// Takes what the mover of a connection tells; `data`: the data segment of the PDU at hand.
    pub fn handle_event_at(&mut self, at: ConnectionId, event: Event, data: &[u8], now: Instant) {
        if self.state == State::Closed {
            return;
        }
        let Some(connection) = self.connections.get_mut(at).filter(|connection| connection.is_up())
        else {
            return;
        };
        connection.heard = now;
        let handled = match event {
            Event::Ended(ended) => {
                self.note_end(at, ended.task, now);
                self.ended(at, &ended, data)
            }
            Event::Control { response } => self.control(at, &response, data, now),
            Event::Window(numbers) => {
                self.move_window(numbers);
                Ok(())
            }
            Event::Violation(violation) => Err(SessionError::Violation(violation)),
            event => self.recover(at, &event),
        };
        let handled = handled.and_then(|()| self.ask_for_statuses(at));
        if let Err(error) = handled {
            return self.fail(at, error, now);
        }
        self.send_waiting(now);
        self.logout_if_drained(now);
    }

    /// The leading connection is gone.
    pub fn handle_disconnect(&mut self) {
        let now = self.connections.get(LEADING).map_or(Instant(0), |leading| leading.heard);
        self.handle_disconnect_at(LEADING, now);
    }

    /// A connection is gone.
    pub fn handle_disconnect_at(&mut self, at: ConnectionId, now: Instant) {
        match self.state {
            State::LoggingOut { asked, .. } if self.controls.logout_at == at => {
                self.close(ending_of(asked), None);
            }
            // The target closes one after the other.
            State::LoggingOut { .. } => {}
            _ => self.fail(at, SessionError::Disconnected, now),
        }
    }

    /// Lets the time be `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Closed => return,
            State::Draining { until } if now >= until => return self.begin_logout(now, true),
            State::LoggingOut { until, .. } if now >= until => {
                return self.close(SessionError::LogoutTimeout, None);
            }
            // All that is late now ends with the logout.
            State::LoggingOut { .. } => return,
            _ => {}
        }
        if self.looks_at().is_some_and(|at| at <= now) {
            self.looked = now;
        }
        self.ping_silent(now);
        let expired = self.expire(now).and_then(|()| self.expire_failover(now));
        if let Err(error) = expired {
            self.close(error, None);
        }
    }

    /// What must be carried out next, of a session that has one connection.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.poll_output_at().map(|(_, output)| output)
    }

    /// What must be carried out next, and on which connection: that of an op; of anything else it
    /// means nothing.
    pub fn poll_output_at(&mut self) -> Option<(ConnectionId, Output)> {
        self.outputs.pop_front()
    }

    /// When to call [`Session::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = match self.state {
            State::Closed => return None,
            State::Active => None,
            State::Draining { until } => Some(until),
            State::LoggingOut { until, .. } => return Some(until),
        };
        // Those that find no room to be aborted wait for an answer.
        let command = self.deadlines.front().filter(|_| self.controls.has_room());
        let command = command.map(|(at, _)| *at);
        let (abort, text) = (self.controls.abort_deadline(), self.controls.text_deadline());
        let times = [state, command, abort, text, self.ping_deadline(), self.looks_at()];
        times.into_iter().flatten().chain(self.failover_deadline()).min()
    }

    /// ExpStatSN of what goes out now on the leading connection.
    #[must_use]
    pub fn exp_stat_sn(&self) -> StatSn {
        self.exp_stat_sn_at(LEADING)
    }

    /// ExpStatSN of what goes out now on a connection.
    #[must_use]
    pub fn exp_stat_sn_at(&self, at: ConnectionId) -> StatSn {
        self.connections.get(at).map_or(StatSn(0), |connection| connection.statuses.expected())
    }

    /// What was agreed at login.
    #[must_use]
    pub const fn login(&self) -> &LoggedIn {
        &self.login
    }

    /// Why the session is over; None while it is not. Known before the end of its commands is told.
    #[must_use]
    pub const fn ended_by(&self) -> Option<SessionError> {
        self.ended_by
    }

    /// Commands that have not ended.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Connections in full feature phase.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.iter().filter(|(_, connection)| connection.is_up()).count()
    }

    /// Whether new commands are taken.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// Panics if an invariant does not hold: for tests and simulation.
    pub fn check(&self) {
        self.tasks.check();
        let waiting = self.tasks.len() - self.tasks.sent() as usize;
        assert_eq!(waiting, self.waiting.len(), "what was not sent waits");
        assert!(
            !self.cmd_sn.is_after(self.max_cmd_sn.plus(1)) || self.tasks.sent() == 0,
            "no command beyond the window"
        );
        assert!(self.state != State::Closed || self.tasks.len() == 0, "nothing outlives it");
        for (id, connection) in self.connections.iter() {
            connection.statuses.check();
            let tasks = self.tasks.of(id);
            assert_eq!(tasks.len(), connection.load as usize, "commands of connection {}", id.0);
            let commands = tasks.iter().filter_map(|task| self.tasks.get(*task));
            let asked =
                commands.map(|task| Bytes::of(&task.command)).fold(Bytes::NONE, Bytes::plus);
            assert_eq!(asked, connection.asked, "what they move on connection {}", id.0);
        }
        self.check_failover();
        self.check_doubts();
    }

    /// MaxCmdSN and ExpCmdSN of a PDU: never backwards, and both ignored where they contradict each
    /// other (RFC 7143 §4.2.2.1).
    fn move_window(&mut self, numbers: Numbers) {
        if numbers.max_cmd_sn.is_before(numbers.exp_cmd_sn.minus(1)) {
            return;
        }
        if numbers.max_cmd_sn.is_after(self.max_cmd_sn) {
            self.max_cmd_sn = numbers.max_cmd_sn;
        }
        if numbers.exp_cmd_sn.is_after(self.exp_cmd_sn) {
            self.exp_cmd_sn = numbers.exp_cmd_sn;
            self.retries.acknowledged(numbers.exp_cmd_sn);
        }
    }

    /// A PDU that takes a StatSN. False for one that came before; a gap means that a status was
    /// lost, which ends a session without recovery (RFC 7143 §7.9).
    fn count_status(&mut self, at: ConnectionId, got: StatSn) -> Result<bool, SessionError> {
        let recovers = self.recovers();
        let Some(connection) = self.connections.get_mut(at) else { return Ok(false) };
        let expected = connection.statuses.expected();
        let lost = SessionError::StatusLost { got, expected };
        if !recovers && got.is_after(expected) {
            return Err(lost);
        }
        let arrival = connection.statuses.take(got).map_err(|_| lost)?;
        Ok(arrival == Arrival::New)
    }

    /// Looks at a command again at this time.
    fn look_again_at(&mut self, until: Instant, task: TaskId) {
        let place = self.deadlines.partition_point(|(at, _)| *at <= until);
        self.deadlines.insert(place, (until, task));
    }

    /// Drops the front of the deadlines as far as it belongs to commands that have ended.
    fn forget_ended(&mut self) {
        while let Some((_, task)) = self.deadlines.front()
            && self.tasks.get(*task).is_none()
        {
            self.deadlines.pop_front();
        }
    }

    /// A connection has failed, or what came on it: what it means for the session.
    fn fail(&mut self, at: ConnectionId, error: SessionError, now: Instant) {
        if error.is_of_connection() && self.may_go_on(at) {
            self.lose(at, None, now);
        } else {
            self.close(error, None);
        }
    }

    /// Ends everything; each command gets its last word.
    fn close(&mut self, error: SessionError, time2wait: Option<u16>) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.ended_by = Some(error);
        self.waiting.clear();
        for id in self.tasks.ids() {
            let sent = self.tasks.get(id).is_some_and(|task| task.sent.is_some());
            self.end_task(id, Outcome::Failed(Ending::Lost { sent }));
        }
        self.deadlines.clear();
        self.end_controls();
        self.end_doubts();
        self.end_connections();
        let time2wait = time2wait.unwrap_or(self.login.parameters.time2wait);
        let time2wait = Duration::from_secs(time2wait.into());
        self.outputs.push_back((LEADING, Output::Closed { error, time2wait }));
    }

    /// Nothing is asked on any connection once the session is being logged out (RFC 7143 §11.14).
    fn op(&mut self, at: ConnectionId, op: Op) {
        if !(self.is_logging_out() && op.is_request()) {
            self.outputs.push_back((at, Output::Op(op)));
        }
    }

    fn indicate(&mut self, indication: Indication) {
        self.outputs.push_back((LEADING, Output::Indication(indication)));
    }

    /// A PDU that is neither data nor the status of a command.
    fn control(
        &mut self,
        at: ConnectionId,
        response: &Response,
        data: &[u8],
        now: Instant,
    ) -> Result<(), SessionError> {
        let numbers = match response {
            Response::NopIn(pdu) => return self.nop_in(at, pdu),
            Response::Login(_) => return Err(SessionError::UnexpectedPdu("login response")),
            Response::Scsi(_) | Response::DataIn(_) | Response::R2t(_) => return Ok(()),
            Response::TaskManagement(pdu) => pdu.numbers,
            Response::Text(pdu) => pdu.numbers,
            Response::Logout(pdu) => pdu.numbers,
            Response::Async(pdu) => pdu.numbers,
            Response::Reject(pdu) => pdu.numbers,
        };
        self.move_window(numbers);
        if !self.count_status(at, numbers.stat_sn)? {
            return Ok(());
        }
        match response {
            Response::TaskManagement(pdu) => self.managed(pdu, now),
            Response::Text(pdu) => self.text(pdu, data, now),
            Response::Logout(pdu) => self.logged_out(pdu, now),
            Response::Async(pdu) => self.asynchronous(at, pdu, data, now),
            Response::Reject(pdu) => self.rejected(at, pdu, data, now),
            _ => Ok(()),
        }
    }
}

/// How a session ends by logout.
const fn ending_of(asked: bool) -> SessionError {
    if asked { SessionError::LogoutRequested } else { SessionError::LoggedOut }
}
