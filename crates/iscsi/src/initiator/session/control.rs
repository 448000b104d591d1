// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All that is no SCSI command: pings, logout, asynchronous messages, rejects.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use clock::Instant;
use wire::iscsi::AsyncMessage;
use wire::iscsi::BhsView;
use wire::iscsi::Itt;
use wire::iscsi::LogoutRequest;
use wire::iscsi::LogoutResponse;
use wire::iscsi::LunField;
use wire::iscsi::NopIn;
use wire::iscsi::NopOut;
use wire::iscsi::Reject;
use wire::iscsi::Request;
use wire::iscsi::Ttt;
use wire::scsi::Lun;

use super::Indication;
use super::Session;
use super::SessionError;
use super::State;
use super::commands::sense_of;
use super::connection::LEADING;
use super::connection::Phase;
use super::connection::Ping;
use super::ending_of;
use super::management::Management;
use super::text::Declaring;
use super::text::Text;
use crate::initiator::ConnectionId;
use crate::initiator::TaskReporting;
use crate::initiator::datamover::Op;
use crate::initiator::datamover::control_itt;
use crate::initiator::limits;
use crate::serial::Serial;

/// What is under way besides commands.
#[derive(Debug)]
pub(super) struct Controls {
    /// Of the last tag that was made.
    tag: u16,
    pub(super) next_id: u32,
    pub(super) managements: Vec<Management>,
    /// Aborts that were given up, whose answers may still come, oldest first.
    pub(super) given_up: VecDeque<(Itt, ConnectionId)>,
    pub(super) text: Option<Text>,
    pub(super) declaring: Option<Declaring>,
    /// The MaxRecvDataSegmentLength that was declared last, bytes; None: that of the logins.
    pub(super) declared: Option<u32>,
    /// Where the session was logged out.
    pub(super) logout_at: ConnectionId,
}

impl Default for Controls {
    fn default() -> Self {
        Self {
            tag: 0,
            next_id: 0,
            managements: Vec::new(),
            given_up: VecDeque::new(),
            text: None,
            declaring: None,
            declared: None,
            logout_at: LEADING,
        }
    }
}

impl Controls {
    pub(super) fn next_itt(&mut self) -> Itt {
        self.tag = self.tag.wrapping_add(1);
        control_itt(self.tag)
    }

    /// When task management has taken too long.
    pub(super) fn abort_deadline(&self) -> Option<Instant> {
        self.managements.iter().map(|management| management.until).min()
    }

    /// Whether an answer is due that is none of a command.
    pub(super) fn are_waiting(&self) -> bool {
        !self.managements.is_empty() || self.text.is_some()
    }

    /// When a text exchange has taken too long.
    pub(super) fn text_deadline(&self) -> Option<Instant> {
        self.text.as_ref().map(|text| text.until)
    }

    /// Whether what a connection takes may change at any moment.
    pub(super) fn declares_at(&self, at: ConnectionId) -> bool {
        self.text.as_ref().is_some_and(|text| text.at == at && text.declares())
    }
}

impl Session {
    /// Whether a connection is there to say anything on.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connections.any_up().is_some()
    }

    /// Ends the session in order; `Closed` follows. Commands that have not ended are lost.
    pub fn logout(&mut self, now: Instant) {
        if matches!(self.state, State::Active | State::Draining { .. }) {
            self.begin_logout(now, false);
        }
    }

    /// As [`Session::logout`], when nothing is under way any more or `patience` is over; no new
    /// command is sent.
    pub fn drain(&mut self, patience: Duration, now: Instant) {
        if self.state == State::Active {
            self.state = State::Draining { until: now + patience };
            self.logout_if_drained(now);
        }
    }

    pub(super) fn begin_logout(&mut self, now: Instant, asked: bool) {
        let Some(at) = self.connections.any_up() else { return self.close(ending_of(asked), None) };
        let itt = self.controls.next_itt();
        let until = now + limits::LOGOUT_TIMEOUT;
        self.controls.logout_at = at;
        let request = LogoutRequest {
            immediate: true,
            reason: 0,
            itt,
            cid: self.connections.get(at).map_or(self.login.cid, |connection| connection.cid),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn_at(at),
        };
        self.send_control(at, Request::Logout(request), Vec::new());
        self.state = State::LoggingOut { itt, until, asked };
    }

    pub(super) fn logout_if_drained(&mut self, now: Instant) {
        if matches!(self.state, State::Draining { .. }) && self.tasks.sent() == 0 {
            self.begin_logout(now, true);
        }
    }

    /// When to ping, or when a ping has taken too long.
    pub(super) fn ping_deadline(&self) -> Option<Instant> {
        let up = self.connections.iter().filter(|(_, connection)| connection.is_up());
        up.filter_map(|(_, connection)| match &connection.ping {
            Some(ping) => Some(ping.until),
            None if self.ping_interval.is_zero() || self.state != State::Active => None,
            None => Some(connection.heard + self.ping_interval),
        })
        .min()
    }

    /// Pings where it has been silent; a connection whose ping was not answered is given up.
    pub(super) fn ping_silent(&mut self, now: Instant) {
        while self.ping_deadline().is_some_and(|at| at <= now) {
            let (state, interval) = (self.state, self.ping_interval);
            let due = self.connections.iter().find(|(_, connection)| {
                let until = match &connection.ping {
                    Some(ping) => Some(ping.until),
                    None if interval.is_zero() || state != State::Active => None,
                    None => Some(connection.heard + interval),
                };
                connection.is_up() && until.is_some_and(|until| until <= now)
            });
            let Some(id) = due.map(|(id, _)| id) else { return };
            let itt = self.controls.next_itt();
            let Some(connection) = self.connections.get_mut(id) else { return };
            if connection.ping.is_some() {
                self.fail(id, SessionError::PingTimeout, now);
                continue;
            }
            connection.ping = Some(Ping { itt, until: now + self.ping_timeout });
            self.send_nop(id, LunField::default(), itt, Ttt::NONE);
        }
    }

    pub(super) fn nop_in(&mut self, at: ConnectionId, pdu: &NopIn) -> Result<(), SessionError> {
        // RFC 7143 §11.19.2, §11.19.3: a ping or an answer, and a ping is about a unit.
        if pdu.itt != Itt::NONE && pdu.ttt != Ttt::NONE {
            return Err(SessionError::Malformed("nop-in with both tags"));
        }
        if pdu.ttt != Ttt::NONE && Lun::parse(pdu.lun).is_none() {
            return Err(SessionError::Malformed("nop-in with a strange lun"));
        }
        self.move_window(pdu.numbers);
        if pdu.itt == Itt::NONE {
            // Takes no StatSN of its own (RFC 7143 §11.19.2), but tells the next one.
            let next = pdu.numbers.stat_sn;
            let recovers = self.recovers();
            let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
            let expected = connection.statuses.expected();
            let lost = SessionError::StatusLost { got: next, expected };
            if !recovers && next.is_after(expected) {
                return Err(lost);
            }
            connection.statuses.expect(next).map_err(|_| lost)?;
            if pdu.ttt != Ttt::NONE {
                self.send_nop(at, pdu.lun, Itt::NONE, pdu.ttt);
            }
            return Ok(());
        }
        if !self.count_status(at, pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
        match &connection.ping {
            Some(ping) if ping.itt == pdu.itt => {
                connection.ping = None;
                connection.statuses.ask_again();
                Ok(())
            }
            _ => Err(SessionError::UnexpectedPdu("nop-in")),
        }
    }

    fn send_nop(&mut self, at: ConnectionId, lun: LunField, itt: Itt, ttt: Ttt) {
        let request = NopOut {
            immediate: true,
            lun,
            itt,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn_at(at),
        };
        self.send_control(at, Request::NopOut(request), Vec::new());
    }

    pub(super) fn logged_out(
        &mut self,
        pdu: &LogoutResponse,
        now: Instant,
    ) -> Result<(), SessionError> {
        if self.cleaned_up(pdu.itt, pdu.response, pdu.time2wait, now)? {
            return Ok(());
        }
        match self.state {
            State::LoggingOut { itt, asked, .. } if itt == pdu.itt => {
                self.close(ending_of(asked), Some(pdu.time2wait));
                Ok(())
            }
            _ => Err(SessionError::UnexpectedPdu("logout response")),
        }
    }

    /// News of the target (RFC 7143 §11.9.1).
    pub(super) fn asynchronous(
        &mut self,
        at: ConnectionId,
        pdu: &AsyncMessage,
        data: &[u8],
        now: Instant,
    ) -> Result<(), SessionError> {
        match pdu.event {
            0 => {
                let sense = sense_of(data).unwrap_or_default().to_vec();
                self.indicate(Indication::Asynchronous { lun: pdu.lun, sense });
            }
            4 if self.negotiate_as_asked(at, now) => {}
            // A logout and a new login are a negotiation, too.
            1 | 4 => {
                let until = now + Duration::from_secs(pdu.parameter3.into()) / 2;
                match self.state {
                    State::Active => self.state = State::Draining { until },
                    // Whoever has the least patience.
                    State::Draining { until: other } => {
                        self.state = State::Draining { until: until.min(other) };
                    }
                    State::LoggingOut { .. } | State::Closed => {}
                }
            }
            2 => self.dropped(pdu, now),
            3 => self.close(SessionError::Dropped, Some(pdu.parameter2)),
            5 if self.login.parameters.task_reporting == TaskReporting::FastAbort => {
                self.quiet(at, Some(pdu.lun));
                self.send_nop(at, pdu.lun, Itt::NONE, Ttt::NONE);
            }
            _ => {}
        }
        Ok(())
    }

    /// The target has dropped a connection, or will.
    fn dropped(&mut self, pdu: &AsyncMessage, now: Instant) {
        let named = |phase| matches!(phase, Phase::Up);
        let found = self
            .connections
            .iter()
            .find(|(_, connection)| connection.cid.0 == pdu.parameter1 && named(connection.phase));
        match found.map(|(id, _)| id) {
            Some(id) if self.may_go_on(id) && (pdu.parameter3 > 0 || self.has_other(id)) => {
                self.lose(id, Some((pdu.parameter2, pdu.parameter3)), now);
            }
            Some(_) => self.close(SessionError::Dropped, Some(pdu.parameter2)),
            None => {}
        }
    }

    /// A PDU of ours was refused; its header is the data (RFC 7143 §11.17).
    pub(super) fn rejected(
        &mut self,
        at: ConnectionId,
        pdu: &Reject,
        data: &[u8],
        now: Instant,
    ) -> Result<(), SessionError> {
        let Ok(bhs) = BhsView::new_checked(data) else {
            return Err(SessionError::Rejected(pdu.reason));
        };
        let tag = bhs.itt();
        if self.task_rejected(at, pdu, data)? || self.management_rejected(tag, now)? {
            return Ok(());
        }
        if self.controls.text.as_ref().is_some_and(|text| text.itt == tag) {
            self.text_rejected(pdu.reason, now);
            return Ok(());
        }
        if let Some(connection) = self.connections.get_mut(at)
            && connection.ping.is_some_and(|ping| ping.itt == tag)
        {
            connection.ping = None;
            return Ok(());
        }
        if self.is_logging_out() {
            return Err(SessionError::LogoutTimeout);
        }
        self.cleaned_up(tag, LOGOUT_REJECTED, 0, now).map(drop)
    }

    pub(super) const fn is_logging_out(&self) -> bool {
        matches!(self.state, State::LoggingOut { .. })
    }

    pub(super) fn send_control(&mut self, at: ConnectionId, request: Request, data: Vec<u8>) {
        self.op(at, Op::SendControl { request, data });
    }
}

/// A logout that was not even looked at.
const LOGOUT_REJECTED: u8 = 255;
