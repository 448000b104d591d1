// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management. Read first: RFC 7143 §4.2.3 (multi-task abort), §7.11 (time-outs), §11.5,
//! §11.6.

use alloc::vec::Vec;

use clock::Instant;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Request;
use wire::iscsi::TaskManagementRequest;
use wire::iscsi::TaskManagementResponse;

use super::DeclareError;
use super::Ending;
use super::Function;
use super::Indication;
use super::Outcome;
use super::Refused;
use super::Session;
use super::SessionError;
use super::State;
use super::Step;
use super::connection::LEADING;
use super::control::Controls;
use super::patience::Patience;
use crate::initiator::ConnectionId;
use crate::initiator::TaskReporting;
use crate::initiator::datamover::Op;
use crate::initiator::datamover::TaskId;
use crate::initiator::datamover::itt;
use crate::initiator::limits;
use crate::initiator::tasks::Home;
use crate::initiator::tasks::Task;
use crate::serial::Serial;

/// "Function rejected" (RFC 7143 §11.6.1).
pub(super) const REJECTED: u8 = 255;

/// A function that is under way.
#[derive(Debug)]
pub(super) struct Management {
    pub(super) itt: Itt,
    job: Job,
    at: ConnectionId,
    /// What was sent before it has a smaller CmdSN: only that does it end (RFC 7143 §11.5.1).
    cmd_sn: CmdSn,
    /// When to look whether it takes too long.
    pub(super) until: Instant,
    patience: Patience,
    /// The command that it is about has ended by itself.
    concluded: bool,
}

/// What a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Somebody asked for it by this name.
    User(u32, Function),
    /// A command took too long.
    Expired(TaskId),
    /// It could not be aborted, or came to the same end again: everything of its unit is ended.
    Reset(LunField),
    /// An abort that was not answered in time: its answer may still come.
    Abandoned,
    /// The connection of a command is gone.
    Reassign(TaskId),
    /// A function that is lost may have ended it.
    Doubtful(TaskId),
}

impl Controls {
    /// Whether one more function may be under way.
    pub(super) fn has_room(&self) -> bool {
        self.managements.len() < limits::MANAGEMENTS_MAX
    }

    /// Books a function; gives its tag.
    pub(super) fn begin(&mut self, job: Job, at: ConnectionId, cmd_sn: CmdSn, now: Instant) -> Itt {
        let itt = self.next_itt();
        let (until, patience) = (now + limits::ABORT_TIMEOUT, Patience::new(now));
        let concluded = false;
        self.managements.push(Management { itt, job, at, cmd_sn, until, patience, concluded });
        itt
    }

    /// Waits no longer for the answer to an abort, which may come all the same.
    fn give_up(&mut self, itt: Itt, at: ConnectionId) {
        if self.given_up.len() >= limits::GIVEN_UP_MAX {
            self.given_up.pop_front();
        }
        self.given_up.push_back((itt, at));
    }

    /// True, once, for the tag of an abort that was given up.
    fn take_given_up(&mut self, itt: Itt) -> bool {
        let place = self.given_up.iter().position(|(of, _)| *of == itt);
        place.is_some_and(|place| self.given_up.remove(place).is_some())
    }

    /// A task that is being aborted has ended by itself.
    pub(super) fn concluded(&mut self, task: TaskId) {
        for management in &mut self.managements {
            management.concluded |= match management.job {
                Job::User(_, Function::AbortTask(of)) | Job::Expired(of) => of == task,
                Job::User(..)
                | Job::Reassign(_)
                | Job::Doubtful(_)
                | Job::Reset(_)
                | Job::Abandoned => false,
            };
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
        if !self.controls.has_room() {
            return Err(Refused::Full);
        }
        let at = match function {
            Function::AbortTask(task) => {
                let entry = self.tasks.get(task).ok_or(Refused::NoTask)?;
                (entry.home == Home::There).then_some(entry.connection)
            }
            _ => self.connections.any_up(),
        };
        let at = at.ok_or(Refused::Recovering)?;
        let id = self.controls.next_id;
        self.controls.next_id = id.wrapping_add(1);
        self.send_management(Job::User(id, function), function, at, now);
        Ok(id)
    }

    /// Commands that took too long are aborted; what cannot be aborted ends the session (RFC 7143
    /// §7.11).
    pub(super) fn expire(&mut self, now: Instant) -> Result<(), SessionError> {
        while self.controls.abort_deadline().is_some_and(|at| now >= at) {
            self.look_at_functions(now)?;
        }
        self.expire_text(now)?;
        self.forget_ended();
        while let Some((at, id)) = self.deadlines.front().copied()
            && at <= now
        {
            let Some(task) = self.tasks.get(id) else {
                self.deadlines.pop_front();
                continue;
            };
            let (at, was_sent) = (task.connection, task.sent.is_some());
            let again = match task.home {
                _ if !was_sent => self.look_at_window(task.patience, now),
                Home::There if task.aborting => {
                    self.deadlines.pop_front();
                    continue;
                }
                Home::There => self.look_at_task(id, now),
                // Recovery has a bound of its own.
                _ => Some(now + self.command_timeout),
            };
            if again.is_none() && was_sent && !self.controls.has_room() {
                // Its turn comes when a function under way has ended, which has its own bound.
                break;
            }
            self.deadlines.pop_front();
            if let Some(again) = again {
                self.look_again_at(again, id);
            } else if was_sent {
                self.indicate(Indication::Overdue { task: id, step: Step::Abort });
                self.send_management(Job::Expired(id), Function::AbortTask(id), at, now);
            } else {
                self.end_task(id, Outcome::Failed(Ending::TimedOut));
            }
        }
        Ok(())
    }

    /// A function was not answered in time, unless it waits for a slow line. Where it was to abort
    /// one command, the unit is reset.
    fn look_at_functions(&mut self, now: Instant) -> Result<(), SessionError> {
        let due = |entry: &Management| now >= entry.until;
        let Some(place) = self.controls.managements.iter().position(due) else { return Ok(()) };
        let mut management = self.controls.managements.swap_remove(place);
        let about = match management.job {
            Job::Expired(task) | Job::Reassign(task) | Job::Doubtful(task) => Some(task),
            Job::User(_, Function::AbortTask(task)) => Some(task),
            Job::User(..) | Job::Reset(_) | Job::Abandoned => None,
        };
        let (limit, place) = (limits::ABORT_TIMEOUT, (management.at, about));
        if let Some(until) = self.check_patience(&mut management.patience, limit, place, now) {
            self.controls.managements.push(Management { until, ..management });
            return Ok(());
        }
        match management.job {
            // It has ended meanwhile.
            Job::Expired(task) | Job::Doubtful(task) if self.tasks.get(task).is_none() => {
                self.controls.give_up(management.itt, management.at);
                self.ask_more(now);
                Ok(())
            }
            Job::Expired(task) => {
                let (at, until) = (management.at, now + limits::ABORT_TIMEOUT);
                let patience = Patience::new(now);
                let late = Management { job: Job::Abandoned, until, patience, ..management };
                self.controls.managements.push(late);
                self.reset_unit_of(task, at, now);
                Ok(())
            }
            Job::Abandoned => {
                self.controls.give_up(management.itt, management.at);
                self.ask_more(now);
                Ok(())
            }
            job => {
                self.tell_managed(job, None);
                Err(SessionError::AbortTimeout)
            }
        }
    }

    fn reset_unit_of(&mut self, task: TaskId, at: ConnectionId, now: Instant) {
        let Some(entry) = self.tasks.get(task) else { return };
        let lun = entry.command.lun;
        self.indicate(Indication::Overdue { task, step: Step::Reset });
        // One is enough for all that wait on the unit.
        let asked = |entry: &Management| matches!(entry.job, Job::Reset(of) if of == lun);
        if !self.controls.managements.iter().any(asked) {
            self.send_management(Job::Reset(lun), Function::LogicalUnitReset(lun), at, now);
        }
    }

    /// Ends everything of a unit by LOGICAL UNIT RESET because commands take too long there: those
    /// of this session end with [`Ending::Reset`], and what is sent from now on is carried out. A
    /// target that does not do so loses the session. False if nothing can be asked now.
    pub fn reset_unit(&mut self, lun: LunField, now: Instant) -> bool {
        let at = self.connections.any_up().filter(|_| self.state == State::Active);
        let Some(at) = at.filter(|_| self.controls.has_room()) else { return false };
        self.send_management(Job::Reset(lun), Function::LogicalUnitReset(lun), at, now);
        true
    }

    /// Ends the session because its target does not do what it is asked for.
    pub fn leave(&mut self) {
        self.close(SessionError::AbortTimeout, None);
    }

    pub(super) fn send_management(
        &mut self,
        job: Job,
        function: Function,
        at: ConnectionId,
        now: Instant,
    ) {
        let (code, lun) = match function {
            Function::AbortTask(_) => (1, LunField::default()),
            Function::AbortTaskSet(lun) => (2, lun),
            Function::ClearTaskSet(lun) => (4, lun),
            Function::LogicalUnitReset(lun) => (5, lun),
            Function::TargetWarmReset => (6, LunField::default()),
        };
        let mut request = TaskManagementRequest {
            immediate: true,
            function: code,
            lun,
            itt: Itt::NONE,
            referenced_task: Itt::NONE,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn_at(at),
            ref_cmd_sn: self.cmd_sn,
            exp_data_sn: wire::iscsi::DataSn(0),
        };
        if let Function::AbortTask(task) = function
            && let Some(entry) = self.tasks.get_mut(task)
        {
            request.lun = entry.command.lun;
            request.referenced_task = itt(task);
            entry.aborting = true;
            let Some(number) = entry.sent else {
                // It never was on the wire, so there is nothing to abort there.
                self.end_task(task, Outcome::Failed(Ending::Aborted));
                return self.tell_managed(job, Some(0));
            };
            request.ref_cmd_sn = number;
        }
        request.itt = self.controls.begin(job, at, self.cmd_sn, now);
        self.send_control(at, Request::TaskManagement(request), Vec::new());
        self.silence(function, at);
    }

    /// With FastAbort, what the function ends sends nothing more on the connection that asks (RFC
    /// 7143 §4.2.3.4).
    fn silence(&mut self, function: Function, at: ConnectionId) {
        if self.login.parameters.task_reporting != TaskReporting::FastAbort {
            return;
        }
        match function {
            Function::AbortTask(_) => {}
            Function::AbortTaskSet(lun)
            | Function::ClearTaskSet(lun)
            | Function::LogicalUnitReset(lun) => self.quiet(at, Some(lun)),
            Function::TargetWarmReset => self.quiet(at, None),
        }
    }

    /// The commands of a connection, of one unit or of all, send nothing more.
    pub(super) fn quiet(&mut self, at: ConnectionId, lun: Option<LunField>) {
        for task in self.tasks.of(at) {
            let its = |entry: &Task| {
                entry.command.data_out > 0 && lun.is_none_or(|lun| lun == entry.command.lun)
            };
            if self.tasks.get(task).is_some_and(its) {
                self.op(at, Op::Quiet { task });
            }
        }
    }

    pub(super) fn managed(
        &mut self,
        pdu: &TaskManagementResponse,
        now: Instant,
    ) -> Result<(), SessionError> {
        let place = self.controls.managements.iter().position(|entry| entry.itt == pdu.itt);
        let Some(place) = place else {
            // Its task has ended otherwise (RFC 7143 §4.2.3.3).
            let unexpected = SessionError::UnexpectedPdu("task management response");
            return if self.controls.take_given_up(pdu.itt) { Ok(()) } else { Err(unexpected) };
        };
        self.management_answered(place, pdu.response, now)
    }

    /// A function was refused as a PDU; false if the tag is of no function.
    pub(super) fn management_rejected(
        &mut self,
        tag: Itt,
        now: Instant,
    ) -> Result<bool, SessionError> {
        let place = self.controls.managements.iter().position(|entry| entry.itt == tag);
        let Some(place) = place else { return Ok(false) };
        self.management_answered(place, REJECTED, now).map(|()| true)
    }

    fn management_answered(
        &mut self,
        place: usize,
        response: u8,
        now: Instant,
    ) -> Result<(), SessionError> {
        let management = self.controls.managements.swap_remove(place);
        match management.job {
            Job::Reassign(task) => {
                self.reassigned(task, response, now)?;
                self.abort_doubtful(now);
                return Ok(());
            }
            Job::Reset(_) if response != 0 => return Err(SessionError::AbortTimeout),
            Job::Expired(task) if response > 1 && !management.concluded => {
                self.reset_unit_of(task, management.at, now);
                return Ok(());
            }
            Job::Doubtful(task) if response > 1 => self.refused_doubtful(task)?,
            _ => {}
        }
        self.conclude(&management, response, now);
        self.tell_managed(management.job, Some(response));
        self.ask_more(now);
        Ok(())
    }

    /// A function has ended: others have waited for that.
    fn ask_more(&mut self, now: Instant) {
        self.reassign_more(now);
        self.abort_doubtful(now);
    }

    fn tell_managed(&mut self, job: Job, response: Option<u8>) {
        if let Job::User(id, _) = job {
            self.indicate(Indication::Managed { id, response });
        }
    }

    /// Ends the tasks that a function ended (RFC 7143 §4.2.3.3). Their status, if there was one,
    /// came before this response.
    fn conclude(&mut self, management: &Management, response: u8, now: Instant) {
        let (done, gone) = (response == 0, response <= 1);
        let (function, ending) = match management.job {
            Job::User(_, function) => (function, Ending::Aborted),
            Job::Reset(lun) => (Function::LogicalUnitReset(lun), Ending::Reset),
            Job::Doubtful(task) => (Function::AbortTask(task), Ending::Aborted),
            Job::Expired(task) | Job::Reassign(task) => {
                (Function::AbortTask(task), Ending::TimedOut)
            }
            Job::Abandoned => return,
        };
        match function {
            Function::AbortTask(task) if gone => {
                self.end_task(task, Outcome::Failed(ending));
            }
            Function::AbortTask(task) => self.watch_again(task, now),
            _ if done => {
                for id in self.covered(function, management.cmd_sn) {
                    let late = self.tasks.get(id).is_some_and(|task| task.aborting);
                    let late = late && ending == Ending::Reset;
                    let ending = if late { Ending::TimedOut } else { ending };
                    self.end_task(id, Outcome::Failed(ending));
                }
            }
            _ => {}
        }
    }

    /// The commands that a function over many is for: those of its units that were sent before it
    /// (RFC 7143 §11.5.1).
    fn covered(&self, function: Function, cmd_sn: CmdSn) -> Vec<TaskId> {
        let lun = match function {
            Function::AbortTask(_) => return Vec::new(),
            Function::AbortTaskSet(lun)
            | Function::ClearTaskSet(lun)
            | Function::LogicalUnitReset(lun) => Some(lun),
            Function::TargetWarmReset => None,
        };
        let is_covered = |task: &Task| {
            task.sent.is_some_and(|number| number.is_before(cmd_sn))
                && lun.is_none_or(|lun| lun == task.command.lun)
        };
        let mut tasks = self.tasks.ids();
        tasks.retain(|id| self.tasks.get(*id).is_some_and(is_covered));
        tasks
    }

    /// A command is not being aborted any more: its time begins again.
    fn watch_again(&mut self, task: TaskId, now: Instant) {
        let Some(entry) = self.tasks.get_mut(task) else { return };
        (entry.aborting, entry.patience) = (false, Patience::new(now));
        if !self.command_timeout.is_zero() {
            self.deadlines.retain(|(_, of)| *of != task);
            self.look_again_at(now + self.command_timeout, task);
        }
    }

    /// What was asked for on a connection that is gone: functions fail, time-outs begin again.
    pub(super) fn requests_lost(&mut self, at: ConnectionId, now: Instant) {
        self.controls.given_up.retain(|(_, of)| *of != at);
        let managements = core::mem::take(&mut self.controls.managements);
        for management in managements {
            if management.at != at {
                self.controls.managements.push(management);
                continue;
            }
            match management.job {
                // Asked for again once the connection is logged out.
                Job::Reassign(_) | Job::Abandoned => {}
                // What waits for it begins to wait again.
                Job::Reset(lun) => {
                    for task in self.tasks.ids() {
                        let waits = |entry: &Task| entry.command.lun == lun && entry.aborting;
                        if self.tasks.get(task).is_some_and(waits) {
                            self.watch_again(task, now);
                        }
                    }
                }
                Job::Expired(task) | Job::Doubtful(task) => self.watch_again(task, now),
                Job::User(_, function) => {
                    if let Function::AbortTask(task) = function {
                        self.watch_again(task, now);
                    }
                    self.doubt(self.covered(function, management.cmd_sn));
                    self.tell_managed(management.job, None);
                }
            }
        }
        self.text_lost(at, now);
    }

    /// The session ends: nothing is under way any more.
    pub(super) fn end_controls(&mut self) {
        let controls = core::mem::take(&mut self.controls);
        for management in controls.managements {
            self.tell_managed(management.job, None);
        }
        if controls.declaring.is_some() {
            self.indicate(Indication::Declared(Err(DeclareError::Lost)));
        }
        debug_assert!(self.connections.get(LEADING).is_some(), "there is always one");
    }
}
