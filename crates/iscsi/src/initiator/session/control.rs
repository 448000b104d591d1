// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All that is no SCSI command: pings, task management, text, logout, asynchronous messages,
//! rejects.

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
use wire::iscsi::TaskManagementRequest;
use wire::iscsi::TaskManagementResponse;
use wire::iscsi::TextRequest;
use wire::iscsi::TextResponse;
use wire::iscsi::Ttt;
use wire::iscsi::keys::TextWriter;

use super::Ending;
use super::Function;
use super::Indication;
use super::Outcome;
use super::Refused;
use super::Session;
use super::SessionError;
use super::State;
use super::ending_of;
use crate::initiator::datamover::Op;
use crate::initiator::datamover::TaskId;
use crate::initiator::datamover::control_itt;
use crate::initiator::datamover::itt;
use crate::initiator::discovery;
use crate::initiator::limits;
use crate::params::Id;
use crate::serial::Serial;
use crate::violation::reason;

/// What is under way besides commands.
#[derive(Debug, Default)]
pub(super) struct Controls {
    /// Of the last tag that was made.
    tag: u16,
    next_id: u32,
    ping: Option<Ping>,
    managements: Vec<Management>,
    text: Option<Text>,
}

#[derive(Debug)]
struct Ping {
    itt: Itt,
    until: Instant,
}

#[derive(Debug)]
struct Management {
    itt: Itt,
    /// None: the session itself aborts a command that took too long.
    id: Option<u32>,
    function: Function,
    until: Instant,
    /// The command that it is about has ended by itself.
    concluded: bool,
}

#[derive(Debug)]
struct Text {
    itt: Itt,
    /// What has come so far.
    text: Vec<u8>,
    exchanges: u32,
}

impl Controls {
    fn next_itt(&mut self) -> Itt {
        self.tag = self.tag.wrapping_add(1);
        control_itt(self.tag)
    }

    /// When task management has taken too long.
    pub(super) fn abort_deadline(&self) -> Option<Instant> {
        self.managements.iter().map(|management| management.until).min()
    }

    /// A task that is being aborted has ended by itself.
    pub(super) fn concluded(&mut self, task: TaskId) {
        for management in &mut self.managements {
            management.concluded |= management.function == Function::AbortTask(task);
        }
    }
}

impl Session {
    /// Starts a task management function; [`Indication::Managed`] follows.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn manage(&mut self, function: Function, now: Instant) -> Result<u32, Refused> {
        if self.login.discovery {
            return Err(Refused::Discovery);
        }
        if self.state != State::Active {
            return Err(Refused::Closed);
        }
        if self.controls.managements.len() >= limits::MANAGEMENTS_MAX {
            return Err(Refused::Full);
        }
        if let Function::AbortTask(task) = function
            && self.tasks.get(task).is_none()
        {
            return Err(Refused::NoTask);
        }
        let id = self.controls.next_id;
        self.controls.next_id = id.wrapping_add(1);
        self.send_management(function, Some(id), now);
        Ok(id)
    }

    /// Asks a discovery session which targets there are, or any session about its own target;
    /// [`Indication::Targets`] follows.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn send_targets(&mut self) -> Result<(), Refused> {
        if self.state != State::Active {
            return Err(Refused::Closed);
        }
        if self.controls.text.is_some() {
            return Err(Refused::Full);
        }
        let mut text = TextWriter::new(limits::DISCOVERY_TEXT_LEN_MAX);
        // An empty value asks about the target of the session (RFC 7143 appendix C).
        let which = if self.login.discovery { "All" } else { "" };
        if text.push(Id::SendTargets.key().name, which).is_err() {
            return Err(Refused::Full);
        }
        let itt = self.controls.next_itt();
        self.controls.text = Some(Text { itt, text: Vec::new(), exchanges: 0 });
        self.send_text(itt, Ttt::NONE, LunField::default(), text.into_vec());
        Ok(())
    }

    /// Ends the session in order; `Closed` follows. Commands that have not ended are lost.
    pub fn logout(&mut self, now: Instant) {
        if matches!(self.state, State::Active | State::Draining { .. }) {
            self.begin_logout(now, false);
        }
    }

    pub(super) fn begin_logout(&mut self, now: Instant, asked: bool) {
        let itt = self.controls.next_itt();
        let until = now + limits::LOGOUT_TIMEOUT;
        self.state = State::LoggingOut { itt, until, asked };
        let request = LogoutRequest {
            immediate: true,
            reason: 0,
            itt,
            cid: self.login.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send_control(Request::Logout(request), Vec::new());
    }

    pub(super) fn logout_if_drained(&mut self, now: Instant) {
        if matches!(self.state, State::Draining { .. }) && self.tasks.sent() == 0 {
            self.begin_logout(now, true);
        }
    }

    /// When to ping, or when a ping has taken too long.
    pub(super) fn ping_deadline(&self) -> Option<Instant> {
        match &self.controls.ping {
            Some(ping) => Some(ping.until),
            None if self.ping_interval.is_zero() || self.state != State::Active => None,
            None => Some(self.heard + self.ping_interval),
        }
    }

    pub(super) fn ping_if_silent(&mut self, now: Instant) -> Result<(), SessionError> {
        if self.ping_deadline().is_none_or(|at| now < at) {
            return Ok(());
        }
        if self.controls.ping.is_some() {
            return Err(SessionError::PingTimeout);
        }
        let itt = self.controls.next_itt();
        self.controls.ping = Some(Ping { itt, until: now + self.ping_timeout });
        self.send_nop(LunField::default(), itt, Ttt::NONE);
        Ok(())
    }

    /// Commands that took too long are aborted; what cannot be aborted ends the session (RFC 7143
    /// §7.11).
    pub(super) fn expire(&mut self, now: Instant) -> Result<(), SessionError> {
        if self.controls.abort_deadline().is_some_and(|at| now >= at) {
            return Err(SessionError::AbortTimeout);
        }
        self.forget_ended();
        while let Some((at, id)) = self.deadlines.front().copied()
            && at <= now
        {
            self.deadlines.pop_front();
            let Some(task) = self.tasks.get_mut(id) else { continue };
            if task.sent.is_none() {
                self.end_task(id, Outcome::Failed(Ending::TimedOut));
            } else if !task.aborting {
                if self.controls.managements.len() >= limits::MANAGEMENTS_MAX {
                    return Err(SessionError::AbortTimeout);
                }
                self.send_management(Function::AbortTask(id), None, now);
            }
        }
        Ok(())
    }

    fn send_management(&mut self, function: Function, id: Option<u32>, now: Instant) {
        let (code, lun) = match function {
            Function::AbortTask(_) => (1, LunField::default()),
            Function::AbortTaskSet(lun) => (2, lun),
            Function::ClearTaskSet(lun) => (4, lun),
            Function::LogicalUnitReset(lun) => (5, lun),
            Function::TargetWarmReset => (6, LunField::default()),
        };
        let tag = self.controls.next_itt();
        let mut request = TaskManagementRequest {
            immediate: true,
            function: code,
            lun,
            itt: tag,
            referenced_task: Itt::NONE,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn: self.cmd_sn,
            exp_data_sn: wire::iscsi::DataSn(0),
        };
        let mut concluded = false;
        if let Function::AbortTask(task) = function
            && let Some(entry) = self.tasks.get_mut(task)
        {
            request.lun = entry.command.lun;
            request.referenced_task = itt(task);
            entry.aborting = true;
            match entry.sent {
                Some(number) => request.ref_cmd_sn = number,
                // It never was on the wire, so there is nothing to abort there.
                None => concluded = true,
            }
        }
        if concluded {
            if let Function::AbortTask(task) = function {
                self.end_task(task, Outcome::Failed(Ending::Aborted));
            }
            if let Some(id) = id {
                self.indicate(Indication::Managed { id, response: Some(0) });
            }
            return;
        }
        let until = now + limits::ABORT_TIMEOUT;
        self.controls.managements.push(Management { itt: tag, id, function, until, concluded });
        self.send_control(Request::TaskManagement(request), Vec::new());
    }

    pub(super) fn managed(&mut self, pdu: &TaskManagementResponse) -> Result<(), SessionError> {
        self.move_window(pdu.numbers);
        if !self.count_status(pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let place = self.controls.managements.iter().position(|entry| entry.itt == pdu.itt);
        let Some(place) = place else {
            return Err(SessionError::UnexpectedPdu("task management response"));
        };
        let management = self.controls.managements.swap_remove(place);
        self.conclude(&management, pdu.response)?;
        if let Some(id) = management.id {
            self.indicate(Indication::Managed { id, response: Some(pdu.response) });
        }
        Ok(())
    }

    /// Ends the tasks that a function ended (RFC 7143 §4.2.3.3). Their status, if there was one,
    /// came before this response.
    fn conclude(&mut self, management: &Management, response: u8) -> Result<(), SessionError> {
        let (done, gone) = (response == 0, response <= 1);
        let lun = match management.function {
            Function::AbortTask(task) if gone => {
                let ending = match management.id {
                    Some(_) => Ending::Aborted,
                    None => Ending::TimedOut,
                };
                self.end_task(task, Outcome::Failed(ending));
                return Ok(());
            }
            Function::AbortTask(task) => {
                if management.id.is_none() && !management.concluded {
                    return Err(SessionError::AbortTimeout);
                }
                if let Some(entry) = self.tasks.get_mut(task) {
                    entry.aborting = false;
                }
                return Ok(());
            }
            Function::AbortTaskSet(lun)
            | Function::ClearTaskSet(lun)
            | Function::LogicalUnitReset(lun) => Some(lun),
            Function::TargetWarmReset => None,
        };
        for id in if done { self.tasks.ids() } else { Vec::new() } {
            let hit = self.tasks.get(id).is_some_and(|task| {
                task.sent.is_some() && lun.is_none_or(|lun| lun == task.command.lun)
            });
            if hit {
                self.end_task(id, Outcome::Failed(Ending::Aborted));
            }
        }
        Ok(())
    }

    pub(super) fn nop_in(&mut self, pdu: &NopIn) -> Result<(), SessionError> {
        self.move_window(pdu.numbers);
        if pdu.itt == Itt::NONE {
            // Takes no StatSN of its own (RFC 7143 §11.19.2), but tells the next one.
            if pdu.numbers.stat_sn.is_after(self.exp_stat_sn) {
                let expected = self.exp_stat_sn;
                return Err(SessionError::StatusLost { got: pdu.numbers.stat_sn, expected });
            }
            if pdu.ttt != Ttt::NONE && !self.is_logging_out() {
                self.send_nop(pdu.lun, Itt::NONE, pdu.ttt);
            }
            return Ok(());
        }
        if !self.count_status(pdu.numbers.stat_sn)? {
            return Ok(());
        }
        match &self.controls.ping {
            Some(ping) if ping.itt == pdu.itt => {
                self.controls.ping = None;
                Ok(())
            }
            _ => Err(SessionError::UnexpectedPdu("nop-in")),
        }
    }

    fn send_nop(&mut self, lun: LunField, itt: Itt, ttt: Ttt) {
        let request = NopOut {
            immediate: true,
            lun,
            itt,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send_control(Request::NopOut(request), Vec::new());
    }

    fn send_text(&mut self, itt: Itt, ttt: Ttt, lun: LunField, data: Vec<u8>) {
        let request = TextRequest {
            immediate: true,
            final_: true,
            continue_: false,
            lun,
            itt,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send_control(Request::Text(request), data);
    }

    /// A part of the answer to SendTargets; the next one is asked for by an empty request (RFC 7143
    /// §6.4, §11.11).
    pub(super) fn text(&mut self, pdu: &TextResponse, data: &[u8]) -> Result<(), SessionError> {
        self.move_window(pdu.numbers);
        if !self.count_status(pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let Some(exchange) = self.controls.text.as_mut().filter(|text| text.itt == pdu.itt) else {
            return Err(SessionError::UnexpectedPdu("text response"));
        };
        exchange.exchanges += 1;
        let length = exchange.text.len() + data.len();
        if length > limits::DISCOVERY_TEXT_LEN_MAX
            || exchange.exchanges > limits::TEXT_EXCHANGES_MAX
        {
            return Err(SessionError::UnexpectedPdu("text without end"));
        }
        exchange.text.extend_from_slice(data);
        if !pdu.final_ {
            if !self.is_logging_out() {
                self.send_text(pdu.itt, pdu.ttt, pdu.lun, Vec::new());
            }
            return Ok(());
        }
        let text = self.controls.text.take().map(|text| text.text).unwrap_or_default();
        self.indicate(Indication::Targets(discovery::parse(&text)));
        Ok(())
    }

    pub(super) fn logged_out(&mut self, pdu: &LogoutResponse) -> Result<(), SessionError> {
        self.move_window(pdu.numbers);
        if !self.count_status(pdu.numbers.stat_sn)? {
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
        pdu: &AsyncMessage,
        data: &[u8],
        now: Instant,
    ) -> Result<(), SessionError> {
        self.move_window(pdu.numbers);
        if !self.count_status(pdu.numbers.stat_sn)? {
            return Ok(());
        }
        match pdu.event {
            0 => {
                let sense = super::sense_of(data).unwrap_or_default().to_vec();
                self.indicate(Indication::Asynchronous { lun: pdu.lun, sense });
            }
            // 4 asks for negotiation, which a logout and a new login are, too.
            1 | 4 if self.state == State::Active => {
                let patience = Duration::from_secs(pdu.parameter3.into()) / 2;
                self.state = State::Draining { until: now + patience };
            }
            2 if pdu.parameter1 != self.login.cid.0 => {}
            2 | 3 => self.close(SessionError::Dropped, Some(pdu.parameter2)),
            _ => {}
        }
        Ok(())
    }

    /// A PDU of ours was refused; its header is the data (RFC 7143 §11.17).
    pub(super) fn rejected(&mut self, pdu: &Reject, data: &[u8]) -> Result<(), SessionError> {
        self.move_window(pdu.numbers);
        if !self.count_status(pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let Ok(bhs) = BhsView::new_checked(data) else {
            return Err(SessionError::Rejected(pdu.reason));
        };
        let tag = bhs.itt();
        if let Some(task) = self.tasks.find(tag) {
            // Data that was damaged on the way may be sent again (RFC 7143 §7.8); all else would
            // be refused again.
            if pdu.reason != reason::DATA_DIGEST_ERROR {
                self.end_task(task, Outcome::Failed(Ending::Rejected(pdu.reason)));
            }
            return Err(SessionError::Rejected(pdu.reason));
        }
        if self.controls.text.as_ref().is_some_and(|text| text.itt == tag) {
            self.controls.text = None;
            self.indicate(Indication::TargetsRejected(pdu.reason));
            return Ok(());
        }
        if self.controls.ping.as_ref().is_some_and(|ping| ping.itt == tag) {
            self.controls.ping = None;
            return Ok(());
        }
        let place = self.controls.managements.iter().position(|entry| entry.itt == tag);
        if let Some(place) = place {
            let management = self.controls.managements.swap_remove(place);
            self.conclude(&management, 255)?;
            if let Some(id) = management.id {
                self.indicate(Indication::Managed { id, response: Some(255) });
            }
            return Ok(());
        }
        if self.is_logging_out() {
            return Err(SessionError::LogoutTimeout);
        }
        Ok(())
    }

    /// The session ends: nothing is under way any more.
    pub(super) fn end_controls(&mut self) {
        let controls = core::mem::take(&mut self.controls);
        for management in controls.managements {
            if let Some(id) = management.id {
                self.indicate(Indication::Managed { id, response: None });
            }
        }
    }

    const fn is_logging_out(&self) -> bool {
        matches!(self.state, State::LoggingOut { .. })
    }

    fn send_control(&mut self, request: Request, data: Vec<u8>) {
        self.op(Op::SendControl { request, data });
    }
}
