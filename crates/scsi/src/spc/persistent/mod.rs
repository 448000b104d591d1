// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PERSISTENT RESERVE IN and OUT (SPC-4 §6.15, §6.16), RESERVE and RELEASE (SPC-2 §7.16, §7.21).
//!
//! All of them work under one lock of the unit, which nobody has for long: a change that has to be
//! kept first leaves it, and others that change something wait for their turn until that is done
//! ([`reservations`]). Other commands read words without a lock, which each change sets anew.

pub(crate) mod registry;
pub(crate) mod reservations;
pub(crate) mod rights;
mod saved;

use crate::kept::Keep;
use crate::kept::KeepFailed;
use crate::kept::RestoreError;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Completion;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use crate::task::Victims;
use alloc::boxed::Box;
use alloc::vec::Vec;
use buf::Slice;
use registry::Effects;
use registry::Existing;
use registry::Port;
use registry::Registry;
use reservations::Reservations;
use wire::scsi::persistent;
use wire::scsi::persistent::MoveList;
use wire::scsi::persistent::ParameterList;
use wire::scsi::persistent::PowerLoss;
use wire::scsi::persistent::Type;

/// A command that works on reservations.
#[derive(Debug)]
pub(crate) struct Persistent {
    action: Action,
    /// Byte 2 of the CDB: scope and type.
    scope_type: u8,
    /// Allocation length, or length of the parameter list.
    length: u32,
    stage: Stage,
    /// It has changed what is reserved or registered.
    changed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    In(u16),
    Out(u16),
    Reserve,
    Release,
}

#[derive(Debug)]
enum Stage {
    /// Awaits its parameter list.
    Receiving,
    /// Awaits its turn.
    Ready(Slice),
    /// Awaits that this is kept.
    Keeping(Registry, Effects),
    /// Tasks of others are being aborted.
    Aborting,
    Over,
}

/// PERSISTENT RESERVE IN.
pub(crate) fn reserve_in(context: &Context<'_>) -> Result<Started, Fault> {
    let action = Action::In(context.cdb.service_action());
    begin(context, action, u32::from(context.cdb.u16_at(7)))
}

/// RESERVE(6), (10).
pub(crate) fn reserve(context: &Context<'_>) -> Result<Started, Fault> {
    begin(context, Action::Reserve, 0)
}

/// RELEASE(6), (10).
pub(crate) fn release(context: &Context<'_>) -> Result<Started, Fault> {
    begin(context, Action::Release, 0)
}

fn begin(context: &Context<'_>, action: Action, length: u32) -> Result<Started, Fault> {
    let stage = Stage::Ready(Slice::empty());
    let mut machine = Persistent { action, scope_type: 0, length, stage, changed: false };
    let step = machine.attempt(context.nexus, context.unit)?;
    Ok((Machine::Persistent(Box::new(machine)), step))
}

/// PERSISTENT RESERVE OUT.
pub(crate) fn reserve_out(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, length) = (&context.cdb, context.cdb.u32_at(5));
    let (action, scope_type) = (cdb.service_action(), cdb.byte(2));
    let has_type = matches!(
        action,
        persistent::RESERVE
            | persistent::RELEASE
            | persistent::PREEMPT
            | persistent::PREEMPT_AND_ABORT
    );
    if has_type && scope_type >> 4 != 0 {
        return Err(sense::invalid_bit(2, 7).into());
    }
    if has_type && Type::from_code(scope_type).is_none() {
        return Err(sense::invalid_bit(2, 3).into());
    }
    let list_is_good = usize::try_from(length)
        .is_ok_and(|length| (persistent::LIST_LEN..=limits::RESERVE_OUT_LEN_MAX).contains(&length));
    if !list_is_good {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let action = Action::Out(action);
    let stage = Stage::Receiving;
    let machine = Persistent { action, scope_type, length, stage, changed: false };
    Ok((Machine::Persistent(Box::new(machine)), Step::ReceiveDataOut { length }))
}

impl Persistent {
    /// Whether it has changed what is reserved or registered.
    pub(crate) const fn has_changed(&self) -> bool {
        self.changed
    }

    pub(crate) fn resume(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Step, Fault> {
        match (&self.stage, input) {
            (Stage::Receiving, input @ Input::DataOut(_)) => {
                let list = task::data_out(input, self.length)?;
                // A copy of its own, that nobody can change.
                self.stage = Stage::Ready(Slice::from(list.to_vec()));
                self.attempt(nexus, unit)
            }
            (Stage::Ready(_), Input::Turn) => self.attempt(nexus, unit),
            (Stage::Keeping(..), Input::Kept(result)) => self.finish(unit, result),
            (Stage::Aborting, Input::Turn) => self.complete(),
            _ => Err(sense::INTERNAL.into()),
        }
    }

    /// Does it, if nobody else is changing the reservations now.
    fn attempt(&mut self, nexus: &Nexus, unit: &LogicalUnit) -> Result<Step, Fault> {
        let Stage::Ready(list) = &self.stage else { return Err(sense::INTERNAL.into()) };
        let mut reservations = unit.reservations().lock();
        let registry = &reservations.registry;
        let port = Port::from(nexus.names());
        if registry.legacy.as_ref().is_some_and(|holder| *holder != port)
            && self.action != Action::Release
        {
            return Err(Fault::RESERVATION_CONFLICT);
        }
        if let Action::In(action) = self.action {
            let bytes = report(registry, unit, action);
            return Ok(task::data(bytes, self.length).1);
        }
        if reservations.is_changing() {
            return Ok(Step::Wait);
        }
        let list = list.bytes();
        let mut next = registry.clone();
        let effects = match self.action {
            Action::Reserve => next.reserve_legacy(&port).map(|()| Effects::default()),
            Action::Release => next.release_legacy(&port).map(|()| Effects::default()),
            Action::Out(persistent::REGISTER_AND_MOVE) => {
                let list = MoveList::parse(list).ok_or(sense::PARAMETER_LIST_LENGTH)?;
                check_power_loss(unit, list.persists, 17)?;
                next.move_to(&port, &list).map(|()| Effects::default())
            }
            Action::Out(action) => self.act(&mut next, &port, action, list, unit),
            Action::In(_) => Err(sense::INTERNAL.into()),
        }?;
        // What RESERVE gave is never kept.
        let is_kept = matches!(self.action, Action::Out(_)) && (next.persists || registry.persists);
        if next != *registry
            && is_kept
            && let Some(keeper) = unit.keeper()
        {
            let keep = Keep::new(keeper, saved::emit(&next, unit.number()));
            reservations.begin_change();
            drop(reservations);
            self.stage = Stage::Keeping(next, effects);
            return Ok(Step::Keep(keep));
        }
        self.changed = take_effect(unit, &mut reservations, next, &effects);
        drop(reservations);
        self.end(unit, effects)
    }

    /// The change is kept, or not. With a task that has ended meanwhile, too.
    pub(crate) fn finish(
        &mut self,
        unit: &LogicalUnit,
        result: Result<(), KeepFailed>,
    ) -> Result<Step, Fault> {
        let stage = core::mem::replace(&mut self.stage, Stage::Over);
        let Stage::Keeping(mut next, effects) = stage else { return Err(sense::INTERNAL.into()) };
        let mut reservations = unit.reservations().lock();
        let was_powered_on = reservations.end_change();
        if result.is_ok() {
            // The nexus that had it may have been lost meanwhile.
            next.legacy.clone_from(&reservations.registry.legacy);
            self.changed = take_effect(unit, &mut reservations, next, &effects);
        }
        if was_powered_on {
            unit.forget_what_does_not_persist(&mut reservations);
        }
        drop(reservations);
        result?;
        self.end(unit, effects)
    }

    /// The change never left.
    pub(crate) fn abandon(&mut self, unit: &LogicalUnit) {
        if let Stage::Keeping(..) = self.stage {
            // The same as if it had failed.
            let _ = self.finish(unit, Err(KeepFailed));
        }
    }

    /// The service actions with the basic parameter list.
    fn act(
        &self,
        next: &mut Registry,
        port: &Port,
        action: u16,
        list: &[u8],
        unit: &LogicalUnit,
    ) -> Result<Effects, Fault> {
        let length = list.len();
        let list = ParameterList::parse(list).ok_or(sense::PARAMETER_LIST_LENGTH)?;
        if length != persistent::LIST_LEN && !list.names_initiator_ports() {
            return Err(sense::PARAMETER_LIST_LENGTH.into());
        }
        let kind = Type::from_code(self.scope_type).unwrap_or(Type::WriteExclusive);
        let existing = match action {
            persistent::REGISTER => Existing::MustMatch,
            persistent::REGISTER_AND_IGNORE_EXISTING_KEY => Existing::Ignored,
            persistent::RESERVE => {
                return next.reserve(port, list.key, kind).map(|()| Effects::default());
            }
            persistent::RELEASE => return next.release(port, list.key, kind),
            persistent::CLEAR => return next.clear(port, list.key),
            _ => return next.preempt(port, (list.key, list.action_key), kind),
        };
        check_power_loss(unit, list.persists(), 20)?;
        next.register(port, &list, existing)
    }

    /// It has taken effect: what others must do, then the end.
    fn end(&mut self, unit: &LogicalUnit, effects: Effects) -> Result<Step, Fault> {
        if self.action == Action::Out(persistent::PREEMPT_AND_ABORT) {
            self.stage = Stage::Aborting;
            for port in &effects.preempted {
                unit.clear_aca_of(port);
            }
            let ports = effects.preempted.into_iter().map(|port| port.initiator).collect();
            return Ok(Step::Abort { victims: Victims::Ports(ports) });
        }
        self.complete()
    }

    fn complete(&self) -> Result<Step, Fault> {
        let presented = if let Action::Out(_) = self.action { self.length } else { 0 };
        // Tasks of others have ended (RFC 7143 §4.2.2.3.4 f).
        let fence = self.action == Action::Out(persistent::PREEMPT_AND_ABORT);
        Ok(Step::Complete(Completion { fence, ..sense::good(u64::from(presented)) }))
    }
}

/// Puts `next` in force and tells who must know. Gives whether it is anything new.
fn take_effect(
    unit: &LogicalUnit,
    reservations: &mut Reservations,
    next: Registry,
    effects: &Effects,
) -> bool {
    let changes = next != reservations.registry;
    if changes {
        unit.show_reservations(&next);
        reservations.registry = next;
    }
    for (port, attention) in &effects.attentions {
        unit.establish_at(port, *attention);
    }
    changes
}

/// APTPL, bit 0 of byte `at` of the list, needs somebody who keeps the state.
fn check_power_loss(unit: &LogicalUnit, persists: bool, at: u16) -> Result<(), Fault> {
    if persists && unit.keeper().is_none() {
        return Err(sense::invalid_parameter_bit(at, 0).into());
    }
    Ok(())
}

/// What PERSISTENT RESERVE IN reports.
fn report(registry: &Registry, unit: &LogicalUnit, action: u16) -> Vec<u8> {
    let generation = registry.generation;
    match action {
        persistent::READ_KEYS => {
            let keys = registry.registrants.iter().map(|registrant| registrant.key);
            persistent::emit_keys(generation, keys)
        }
        persistent::READ_RESERVATION => persistent::emit_reservation(generation, registry.shown()),
        persistent::REPORT_CAPABILITIES => {
            let power_loss = match unit.keeper() {
                None => PowerLoss::Never,
                Some(_) if registry.persists => PowerLoss::Active,
                Some(_) => PowerLoss::Possible,
            };
            persistent::emit_capabilities(power_loss).to_vec()
        }
        _ => persistent::emit_full_status(generation, &registry.full_status()),
    }
}

/// State that a [`Keeper`](crate::Keeper) kept for the unit `unit`.
pub(crate) fn restore(state: &[u8], unit: u64) -> Result<Registry, RestoreError> {
    saved::parse(state, unit)
}

/// What a loss of power would end of `registry`, for the next process that serves the unit `unit`.
pub(crate) fn carried(registry: &Registry, unit: u64) -> Option<Vec<u8>> {
    let is_lost = !registry.persists && !registry.registrants.is_empty();
    is_lost.then(|| saved::emit(&Registry { persists: true, ..registry.clone() }, unit))
}

/// What [`carried`] gave: a loss of power would end it as before.
pub(crate) fn carry(state: &[u8], unit: u64) -> Result<Registry, RestoreError> {
    let registry = saved::parse(state, unit)?;
    Ok(Registry { persists: false, ..registry })
}

#[cfg(test)]
mod tests;
