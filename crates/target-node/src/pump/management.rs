// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management across sessions and reactors (RFC 7143 §11.5, SAM-5 §7).
//!
//! A function is answered only when no work of an ended task is left in the engine
//! (`quiescence.rs`): after the answer nothing of the task may still reach the medium, where
//! anything that comes later could see it or come before it.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::service;
use iscsi::service::Function;
use iscsi::service::ServiceResponse;
use scsi::AcaCleared;
use scsi::LogicalUnit;
use scsi::Victims;
use wire::scsi::Sense;
use wire::scsi::sam::TASK_ABORTED;

use super::Doing;
use super::Pump;
use super::context::Context;
use super::letter::Effect;
use super::letter::Letter;
use super::letter::Units;
use super::letter::Whose;
use super::quiescence::Origin;
use super::services::task_of;
use super::storing::is_pause;
use super::view::SessionView;
use super::view::never;
use crate::events::Event;
use crate::table::Key;

/// Who ended a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// This function of its own session.
    Function(u32),
    /// A command of its own session, which does not end itself.
    Command(TaskId),
    /// Another session.
    Another(Effect),
}

impl<P: Port> Pump<P> {
    /// Task Management Request Received.
    pub(super) fn manage(&mut self, key: Key, request: service::Management) {
        let Some(mut view) = self.session(key) else {
            return never("effects come before the end of their session");
        };
        let units = view.session.units_of(&request);
        if let Some(answer) = view.session.immediate_answer(&request, &units) {
            view.session.machine.task_management_done(request.id, answer);
            return view.context.tell_waiting(None);
        }
        let service::Management { id, function, .. } = request;
        view.tell_of(function, &units);
        let units = match (function, &view.session.login.target) {
            // Whatever this initiator sees of it.
            (Function::TargetColdReset, Some(name)) => {
                view.context.shared.catalogue.now().units(name)
            }
            _ => units,
        };
        let target = view.session.login.target.as_deref().map(Arc::from);
        let origin =
            Origin::Session { session: key, id, function, units: Arc::clone(&units), target };
        let management = view.context.managements.begin(origin);
        if let Function::AbortTask { task } = function {
            view.drop_task(task);
            view.session.machine.abort(task);
        } else {
            view.end_tasks(&units, By::Function(id));
        }
        let effect = match function {
            Function::ClearTaskSet => Some(Effect::Cleared),
            Function::LogicalUnitReset | Function::TargetWarmReset => Some(Effect::Reset),
            Function::TargetColdReset => Some(Effect::PowerOn),
            _ => None,
        };
        if matches!(effect, Some(Effect::Reset | Effect::PowerOn)) {
            // Before the others, so that no copy begins another piece.
            units.iter().for_each(|unit| unit.end_copies());
        }
        let is_shared =
            effect != Some(Effect::Cleared) || units.iter().any(|unit| unit.shares_task_set());
        if let Some(effect) = effect.filter(|_| is_shared) {
            self.abort_elsewhere(key, &units, effect, &Whose::All, management);
        }
        self.context.reset_devices(function, &units);
        self.context.wait_for_ended_work(management);
        self.one_done(management);
    }

    /// TARGET COLD RESET is done: the sessions of the target end, here and on the other reactors.
    pub(super) fn end_all_sessions(&mut self, target: Arc<str>) {
        let Context { shared, reactor: here, .. } = &self.context;
        for (reactor, mailbox) in shared.mailboxes.iter().enumerate() {
            if reactor != *here {
                mailbox.send(Letter::EndSessions { target: Arc::clone(&target) });
            }
        }
        // Not at once: the session that asked has its answer to send first.
        shared.mailboxes[*here].send(Letter::EndSessions { target });
    }

    /// The sessions of a target end here.
    pub(super) fn end_sessions(&mut self, target: &str) {
        let is_of = |session: &super::Session| session.login.target.as_deref() == Some(target);
        let sessions = self.sessions.iter().filter(|(_, session)| is_of(session));
        let sessions: Vec<Key> = sessions.map(|(key, _)| key).collect();
        for key in sessions {
            if let Some(view) = self.session(key) {
                view.session.machine.set_now(view.context.port.now());
                view.session.machine.reset();
            }
            self.settle(key);
        }
    }

    /// Ends the tasks of other sessions on `units`, here and on the other reactors.
    fn abort_elsewhere(
        &mut self,
        issuer: Key,
        units: &Units,
        effect: Effect,
        whose: &Whose,
        management: Key,
    ) {
        let others: Vec<Key> = self.sessions.keys().filter(|key| *key != issuer).collect();
        for key in others {
            self.abort_other(key, units, effect, whose);
        }
        let Context { managements, shared, reactor: here, .. } = &mut self.context;
        let mut asked = 0;
        for (reactor, mailbox) in shared.mailboxes.iter().enumerate() {
            if reactor == *here {
                continue;
            }
            let is_asked = mailbox.is_sent(Letter::AbortUnits {
                units: Arc::clone(units),
                effect,
                whose: whose.clone(),
                reactor: *here,
                management,
            });
            // One that has stopped has none.
            asked += usize::from(is_asked);
        }
        managements.wait_for_more(management, asked);
    }

    /// A command aborts the tasks of others; it goes on when none of their work is left.
    pub(super) fn preempt(&mut self, key: Key, task: TaskId, victims: Victims) {
        let Some(view) = self.session(key) else {
            return never("effects come before the end of their session");
        };
        let unit = task_of(&mut view.session.tasks, task).and_then(|task| task.scsi.unit());
        let Some(unit) = unit.cloned() else {
            return never("only a command for a unit asks for it");
        };
        let management = view.context.managements.begin(Origin::Command { session: key, task });
        tracing::info!(?victims, "a command aborts others");
        let units: Units = [unit].into();
        if victims != Victims::OwnNexus {
            let whose = match &victims {
                Victims::Ports(ports) => Whose::Ports(ports.as_slice().into()),
                _ => Whose::All,
            };
            self.abort_elsewhere(key, &units, Effect::Cleared, &whose, management);
        }
        if !matches!(victims, Victims::Ports(_))
            && let Some(mut view) = self.session(key)
        {
            view.end_tasks(&units, By::Command(task));
        }
        self.context.wait_for_ended_work(management);
        self.one_done(management);
    }

    /// The same for a command that has ended since.
    pub(super) fn preempt_for_nobody(
        &mut self,
        session: Key,
        unit: &Arc<LogicalUnit>,
        of: &[String],
    ) {
        let management = self.context.managements.begin(Origin::Nobody);
        let (units, whose) = ([Arc::clone(unit)].into(), Whose::Ports(of.into()));
        self.abort_elsewhere(session, &units, Effect::Cleared, &whose, management);
        self.context.wait_for_ended_work(management);
        self.one_done(management);
    }

    /// Another reactor asks for the same here.
    pub(super) fn abort_units(
        &mut self,
        units: &Units,
        effect: Effect,
        whose: &Whose,
        (reactor, management): (usize, Key),
    ) {
        let origin = Origin::Reactor { reactor, management };
        let local = self.context.managements.begin(origin);
        let sessions: Vec<Key> = self.sessions.keys().collect();
        for key in sessions {
            self.abort_other(key, units, effect, whose);
        }
        self.context.wait_for_ended_work(local);
        self.one_done(local);
    }

    /// One of the sessions that there were: the end of another one's tasks may end it.
    fn abort_other(&mut self, key: Key, units: &Units, effect: Effect, whose: &Whose) {
        let Some(mut view) = self.session(key) else { return };
        if !view.session.nexus.as_ref().is_some_and(|nexus| whose.includes(nexus)) {
            return;
        }
        let ended = view.end_tasks(units, By::Another(effect));
        if ended.is_empty() {
            return;
        }
        if effect == Effect::Cleared
            && let Some(nexus) = &view.session.nexus
        {
            for unit in ended.iter().filter(|unit| !unit.reports_aborted_tasks()) {
                nexus.commands_cleared(unit);
            }
        }
        self.settle(key);
    }

    /// Ends the commands of all sessions for a unit that is not served any more; answers when none
    /// of their work is left.
    pub(super) fn end_tasks_of(&mut self, unit: &Arc<LogicalUnit>, reply: Sender<()>) {
        let management = self.context.managements.begin(Origin::Drain { reply });
        let units: Units = [Arc::clone(unit)].into();
        let sessions: Vec<Key> = self.sessions.keys().collect();
        for key in sessions {
            self.abort_other(key, &units, Effect::Cleared, &Whose::All);
        }
        self.context.wait_for_ended_work(management);
        self.one_done(management);
    }

    /// All tasks have ended: the rest of the function, and its answer, if its session is still
    /// there.
    pub(super) fn finish(&mut self, key: Key, (id, function): (u32, Function), units: &Units) {
        // Whose tasks have ended hears of it, also where who asked has gone meanwhile.
        let reset: fn(&LogicalUnit) -> bool = match function {
            Function::LogicalUnitReset | Function::TargetWarmReset => {
                LogicalUnit::logical_unit_reset
            }
            Function::TargetColdReset => LogicalUnit::power_on,
            _ => |_| false,
        };
        let ended: Vec<_> = units.iter().filter(|unit| reset(unit)).collect();
        if let Some(mut view) = self.session(key) {
            ended.into_iter().for_each(|unit| view.tell_reserved(unit, function.name()));
            if function == Function::NexusReset {
                view.reset_nexus();
            }
            let SessionView { session, context, .. } = view;
            session.machine.set_now(context.port.now());
            session.machine.task_management_done(id, ServiceResponse::Complete);
        }
        self.context.tell_waiting(None);
    }
}

impl<P: Port> SessionView<'_, P> {
    fn reset_nexus(&mut self) {
        self.end_reservations(Function::NexusReset.name());
        if let Some(nexus) = &self.session.nexus {
            nexus.reset();
        }
    }

    /// For the log.
    fn tell_of(&self, function: Function, units: &Units) {
        let session = &*self.session;
        let peer = session.connections.iter().find_map(|key| self.connections.get(*key));
        let peer = peer.map_or(session.peer, |connection| connection.peer);
        let (initiator, tsih) = (session.login.initiator.as_str(), session.tsih.0);
        let disk = units.first().map(|unit| unit.identity().serial.as_str());
        let name = function.name();
        if let Function::AbortTask { task } = function {
            let tag = session.machine.tag_of(task).map(|tag| format!("{:#010x}", tag.0));
            tracing::warn!(
                name: Event::Abort.name(), %peer, initiator, tsih, function = name, tag, disk,
                "task management: an initiator ends a command"
            );
            return;
        }
        tracing::warn!(
            name: Event::Reset.name(),
            %peer,
            initiator,
            tsih,
            function = name,
            disk,
            "task management: an initiator ends commands"
        );
    }

    /// Ends the tasks of the session on `units`; returns the units that had any. Those that another
    /// session ends get status TASK ABORTED where TAS says so (SPC-4 §7.5.8), else no answer.
    fn end_tasks(&mut self, units: &Units, by: By) -> Vec<Arc<LogicalUnit>> {
        let session = &*self.session;
        let mut tasks: Vec<TaskId> = Vec::new();
        let mut told: Vec<TaskId> = Vec::new();
        let mut touched: Vec<Arc<LogicalUnit>> = Vec::new();
        for task in session.tasks.iter().flatten() {
            let unit = task.scsi.unit();
            let Some(unit) = unit.filter(|of| units.iter().any(|unit| Arc::ptr_eq(of, unit)))
            else {
                continue;
            };
            let is_spared = match by {
                By::Command(id) => id == task.id,
                By::Function(id) => !session.machine.ends(id, task.id),
                By::Another(_) => false,
            };
            if is_spared {
                continue;
            }
            let is_told = matches!(by, By::Another(Effect::Cleared | Effect::Reset))
                && unit.reports_aborted_tasks();
            if is_told { &mut told } else { &mut tasks }.push(task.id);
            if !touched.iter().any(|of| Arc::ptr_eq(of, unit)) {
                touched.push(Arc::clone(unit));
            }
        }
        for id in tasks.iter().chain(&told) {
            self.drop_task(*id);
        }
        let machine = &mut self.session.machine;
        machine.set_now(self.context.port.now());
        machine.terminate_with(&told, TASK_ABORTED);
        let issuer = if let By::Function(id) = by { Some(id) } else { None };
        machine.terminate(&tasks, issuer);
        touched
    }

    /// The device server forgets a task.
    pub(super) fn drop_task(&mut self, id: TaskId) {
        self.arrives(id, None);
        if let Some(task) = self.session.slot_of(id).and_then(Option::take) {
            let own = self.key;
            self.context.runnable.forget(own, id);
            self.session.held.forget(id);
            self.forget_waiter(id);
            self.context.waiting.forget(own, id);
            self.context.keep(own, id, task.scsi);
        }
    }

    /// A task has ended with its connection (RFC 7143 §11.14.5).
    pub(super) fn clear_task(&mut self, id: TaskId) {
        if let Some((nexus, task, _)) = self.session.at_work(id)
            && let Some(unit) = task.scsi.unit()
        {
            nexus.commands_cleared_by_iscsi(unit);
        }
        self.drop_task(id);
    }
}

impl<P: Port> Context<P> {
    /// A task that has ended holds what it holds of its unit until its store work is done.
    pub(super) fn keep(&mut self, key: Key, id: TaskId, mut task: scsi::Task) {
        let of_task = self.ios.iter_mut().find(|(_, io)| (io.session, io.task) == (key, id));
        let Some((io, pending)) = of_task else { return self.over(task) };
        task.outlast();
        if let Doing::Store { op, io } = &pending.doing
            && is_pause(io)
            && let Some(store) = task.store()
        {
            store.give_up(op, io);
        }
        pending.ended = Some(Box::new(task));
        self.bound_wait(io);
        self.hurry(io);
    }
}

impl super::Session {
    /// The units that a function is for: one, all that the nexus sees, or none.
    fn units_of(&self, request: &service::Management) -> Units {
        let Some(nexus) = &self.nexus else { return Units::from([]) };
        if request.function.is_for_all_units() {
            return nexus.units().cloned().collect();
        }
        nexus.unit(request.lun).cloned().into_iter().collect()
    }

    /// The answer to a function that is a question, or that cannot be carried out.
    fn immediate_answer(
        &self,
        request: &service::Management,
        units: &Units,
    ) -> Option<ServiceResponse> {
        let succeeded = |is_so| match is_so {
            true => ServiceResponse::Succeeded { additional: 0 },
            false => ServiceResponse::Complete,
        };
        let is_for_all = request.function.is_for_all_units();
        let unit = units.first().filter(|_| !is_for_all);
        let Some(unit) = unit else {
            return (!is_for_all).then_some(ServiceResponse::LunDoesNotExist);
        };
        match request.function {
            Function::ClearAca => {
                let cleared = self.nexus.as_ref().map(|nexus| nexus.clear_aca(unit));
                Some(match cleared {
                    Some(AcaCleared::OfAnother) => ServiceResponse::Rejected,
                    _ => ServiceResponse::Complete,
                })
            }
            Function::QueryTask { task } => Some(succeeded(task.is_some())),
            Function::QueryTaskSet => {
                let mut units = self.tasks.iter().flatten().filter_map(|task| task.scsi.unit());
                Some(succeeded(units.any(|of| Arc::ptr_eq(of, unit))))
            }
            Function::QueryAsynchronousEvent => {
                let pending = self.nexus.as_ref().and_then(|nexus| nexus.pending_sense(unit));
                Some(match pending {
                    Some(pending) => ServiceResponse::Succeeded { additional: described(&pending) },
                    None => ServiceResponse::Complete,
                })
            }
            _ => None,
        }
    }
}

/// Additional response information: whether one or more wait, sense key, codes (SAM-5 §7.10).
fn described(pending: &scsi::PendingSense) -> u32 {
    let depth = if pending.more { 0b10 } else { 0b01 };
    let Sense { key, asc, ascq, .. } = pending.sense;
    u32::from_be_bytes([0, depth << 4 | key as u8, asc, ascq])
}
