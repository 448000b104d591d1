// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registrations and the reservation of a unit, and what each service action makes of them (SPC-4
//! §5.12). Every action works on a copy, which takes effect as a whole or not at all.

use super::rights::Reserved;
use super::rights::Standing;
use crate::attention::Attention;
use crate::limits;
use crate::nexus::NexusNames;
use crate::sense;
use crate::sense::Fault;
use alloc::string::String;
use alloc::vec::Vec;
use wire::scsi::persistent::FullStatus;
use wire::scsi::persistent::MoveList;
use wire::scsi::persistent::ParameterList;
use wire::scsi::persistent::Type;

/// An I_T nexus by name: it may have no session now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// `iqn...,i,0x<isid>`
    pub(crate) initiator: String,
    /// Relative target port.
    pub(crate) target: u16,
}

/// A registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub(crate) port: Port,
    pub(crate) key: u64,
    /// At every target port.
    pub(crate) all_target_ports: bool,
}

/// The persistent reservation; its scope is the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) kind: Type,
    /// The registrant that holds it; with the all registrants types who made it, which means
    /// nothing.
    pub(crate) holder: Port,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    /// PRGENERATION.
    pub(crate) generation: u32,
    pub(crate) registrants: Vec<Registrant>,
    pub(crate) reservation: Option<Reservation>,
    /// APTPL of the last registration.
    pub(crate) persists: bool,
    /// Holder of RESERVE.
    pub(crate) legacy: Option<Port>,
}

/// What others must notice of an action.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) attentions: Vec<(Port, Attention)>,
    /// Nexuses whose tasks are to be aborted.
    pub(crate) preempted: Vec<Port>,
}

/// Whether REGISTER looks at the existing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    MustMatch,
    Ignored,
}

impl From<&NexusNames> for Port {
    fn from(names: &NexusNames) -> Self {
        Self { initiator: names.initiator_port.clone(), target: names.relative_port }
    }
}

impl Registrant {
    fn is(&self, port: &Port) -> bool {
        self.port.initiator == port.initiator
            && (self.all_target_ports || self.port.target == port.target)
    }
}

impl Registry {
    pub(super) fn registrant(&self, port: &Port) -> Option<&Registrant> {
        self.registrants.iter().find(|registrant| registrant.is(port))
    }

    /// The registrant `port` with this key; anything else is a conflict.
    fn with_key(&self, port: &Port, key: u64) -> Result<(), Fault> {
        match self.registrant(port) {
            Some(registrant) if registrant.key == key => Ok(()),
            _ => Err(Fault::RESERVATION_CONFLICT),
        }
    }

    fn holds(&self, registrant: &Registrant) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| {
            reservation.kind.is_of_all_registrants() || registrant.is(&reservation.holder)
        })
    }

    /// What `port` is here.
    pub(crate) fn standing(&self, port: &Port) -> Standing {
        let registrant = self.registrant(port);
        Standing {
            registered: registrant.is_some(),
            holds: registrant.is_some_and(|registrant| self.holds(registrant)),
            holds_legacy: self.legacy.as_ref() == Some(port),
        }
    }

    /// What kind of reservation there is.
    pub(crate) fn reserved(&self) -> Reserved {
        match (&self.legacy, &self.reservation) {
            (Some(_), _) => Reserved::Legacy,
            (None, Some(reservation)) => Reserved::Persistent(reservation.kind),
            (None, None) => Reserved::Nobody,
        }
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        let Self { registrants, reservation, legacy, .. } = self;
        assert!(registrants.len() <= limits::REGISTRANTS_MAX, "registrations are bounded");
        for (at, one) in registrants.iter().enumerate() {
            assert_ne!(one.key, 0, "{:?} has a key", one.port);
            let twice = registrants.iter().skip(at + 1).any(|other| other.port == one.port);
            assert!(!twice, "{:?} is registered once", one.port);
        }
        if let Some(Reservation { kind, holder }) = reservation {
            let held = match kind.is_of_all_registrants() {
                true => !registrants.is_empty(),
                false => self.registrant(holder).is_some(),
            };
            assert!(held, "the reservation ends with its last holder: {reservation:?}");
            assert_eq!(*legacy, None, "RESERVE stands beside no persistent reservation");
        }
    }

    /// REGISTER and REGISTER AND IGNORE EXISTING KEY (SPC-4 §5.12.7).
    pub(crate) fn register(
        &mut self,
        port: &Port,
        list: &ParameterList<'_>,
        existing: Existing,
    ) -> Result<Effects, Fault> {
        let mut effects = Effects::default();
        let known = self.registrant(port).map(|registrant| registrant.key);
        if existing == Existing::MustMatch && known.unwrap_or(0) != list.key {
            return Err(Fault::RESERVATION_CONFLICT);
        }
        if list.names_initiator_ports() && (existing == Existing::Ignored || known.is_some()) {
            return Err(sense::invalid_parameter_bit(20, 3).into());
        }
        if list.action_key == 0 {
            if known.is_some() {
                self.unregister(port, &mut effects);
                self.generation = self.generation.wrapping_add(1);
                self.persists = list.persists();
            }
            return Ok(effects);
        }
        let mut ports = Vec::new();
        if list.names_initiator_ports() {
            let initiators = list.initiator_ports(limits::REGISTRANTS_MAX);
            for initiator in initiators.ok_or_else(|| sense::invalid_parameter(24))? {
                ports.push(Port { initiator, target: port.target });
            }
            if ports.iter().any(|port| self.registrant(port).is_some()) {
                return Err(Fault::RESERVATION_CONFLICT);
            }
        }
        ports.push(port.clone());
        for port in ports {
            self.put(port, list.action_key, list.all_target_ports())?;
        }
        self.generation = self.generation.wrapping_add(1);
        self.persists = list.persists();
        Ok(effects)
    }

    fn put(&mut self, port: Port, key: u64, all_target_ports: bool) -> Result<(), Fault> {
        if let Some(known) = self.registrants.iter_mut().find(|known| known.is(&port)) {
            known.key = key;
            known.all_target_ports = all_target_ports;
            return Ok(());
        }
        if self.registrants.len() >= limits::REGISTRANTS_MAX {
            return Err(sense::INSUFFICIENT_REGISTRATION_RESOURCES.into());
        }
        self.registrants.push(Registrant { port, key, all_target_ports });
        Ok(())
    }

    fn unregister(&mut self, port: &Port, effects: &mut Effects) {
        let held = self.standing(port).holds;
        self.registrants.retain(|registrant| !registrant.is(port));
        let Some(reservation) = &self.reservation else { return };
        let all = reservation.kind.is_of_all_registrants();
        if (all && self.registrants.is_empty()) || (!all && held) {
            let tell = reservation.kind.lets_registrants();
            self.reservation = None;
            if tell {
                self.tell_others(port, Attention::ReservationsReleased, effects);
            }
        }
    }

    fn tell_others(&self, port: &Port, attention: Attention, effects: &mut Effects) {
        for other in self.registrants.iter().filter(|other| !other.is(port)) {
            effects.attentions.push((other.port.clone(), attention));
        }
    }

    /// RESERVE (SPC-4 §5.12.9).
    pub(crate) fn reserve(&mut self, port: &Port, key: u64, kind: Type) -> Result<(), Fault> {
        self.with_key(port, key)?;
        match &self.reservation {
            None => {
                self.reservation = Some(Reservation { kind, holder: port.clone() });
                Ok(())
            }
            Some(held) if held.kind == kind && self.standing(port).holds => Ok(()),
            Some(_) => Err(Fault::RESERVATION_CONFLICT),
        }
    }

    /// RELEASE (SPC-4 §5.12.11.2).
    pub(crate) fn release(&mut self, port: &Port, key: u64, kind: Type) -> Result<Effects, Fault> {
        self.with_key(port, key)?;
        let mut effects = Effects::default();
        let Some(held) = &self.reservation else { return Ok(effects) };
        if !self.standing(port).holds {
            return Ok(effects);
        }
        if held.kind != kind {
            return Err(sense::INVALID_RELEASE.into());
        }
        self.reservation = None;
        if kind.lets_registrants() {
            self.tell_others(port, Attention::ReservationsReleased, &mut effects);
        }
        Ok(effects)
    }

    /// CLEAR (SPC-4 §5.12.11.6).
    pub(crate) fn clear(&mut self, port: &Port, key: u64) -> Result<Effects, Fault> {
        self.with_key(port, key)?;
        let mut effects = Effects::default();
        self.tell_others(port, Attention::ReservationsPreempted, &mut effects);
        self.registrants.clear();
        self.reservation = None;
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// PREEMPT, and what PREEMPT AND ABORT does to registrations (SPC-4 §5.12.11.4).
    pub(crate) fn preempt(
        &mut self,
        port: &Port,
        (key, victim): (u64, u64),
        kind: Type,
    ) -> Result<Effects, Fault> {
        self.with_key(port, key)?;
        let held = self.reservation.clone();
        let all = held.as_ref().is_some_and(|held| held.kind.is_of_all_registrants());
        if victim == 0 && !all {
            return Err(sense::invalid_parameter(8).into());
        }
        let goes = |registrant: &Registrant| victim == 0 || registrant.key == victim;
        if !self.registrants.iter().any(goes) {
            return Err(Fault::RESERVATION_CONFLICT);
        }
        // The reservation is taken over where its holder is preempted, or all holders are.
        let takes = match &held {
            Some(held) if !all => {
                self.registrant(&held.holder).is_some_and(|holder| holder.key == victim)
            }
            _ => all && victim == 0,
        };
        let mut effects = Effects::default();
        for gone in self.registrants.iter().filter(|one| goes(one) && !one.is(port)) {
            effects.attentions.push((gone.port.clone(), Attention::RegistrationsPreempted));
            effects.preempted.push(gone.port.clone());
        }
        self.registrants.retain(|registrant| registrant.is(port) || !goes(registrant));
        if takes {
            self.reservation = Some(Reservation { kind, holder: port.clone() });
            if held.is_some_and(|held| held.kind != kind) {
                self.tell_others(port, Attention::ReservationsReleased, &mut effects);
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// REGISTER AND MOVE (SPC-4 §5.12.8). There is one target port, so a nexus at another one does
    /// not exist.
    pub(crate) fn move_to(&mut self, port: &Port, list: &MoveList) -> Result<(), Fault> {
        self.with_key(port, list.key)?;
        let kind = match &self.reservation {
            Some(held) if held.kind.is_of_all_registrants() => None,
            Some(held) if self.standing(port).holds => Some(held.kind),
            _ => None,
        };
        let kind = kind.ok_or(Fault::RESERVATION_CONFLICT)?;
        if list.action_key == 0 {
            return Err(sense::invalid_parameter(8).into());
        }
        if list.relative_port != port.target {
            return Err(sense::invalid_parameter(18).into());
        }
        let initiator = list.initiator_port.clone().ok_or_else(|| sense::invalid_parameter(24))?;
        let to = Port { initiator, target: list.relative_port };
        if to == *port {
            return Err(sense::invalid_parameter(24).into());
        }
        let all_target_ports = self.registrant(&to).is_some_and(|known| known.all_target_ports);
        self.put(to.clone(), list.action_key, all_target_ports)?;
        self.reservation = Some(Reservation { kind, holder: to });
        if list.unregister {
            self.registrants.retain(|registrant| !registrant.is(port));
        }
        self.generation = self.generation.wrapping_add(1);
        self.persists = list.persists;
        Ok(())
    }

    /// RESERVE(6), (10) (SPC-2 §7.21). With CRH a registrant's request changes nothing.
    pub(crate) fn reserve_legacy(&mut self, port: &Port) -> Result<(), Fault> {
        if !self.registrants.is_empty() {
            return self.registrant(port).map(|_| ()).ok_or(Fault::RESERVATION_CONFLICT);
        }
        match &self.legacy {
            Some(holder) if holder != port => Err(Fault::RESERVATION_CONFLICT),
            _ => {
                self.legacy = Some(port.clone());
                Ok(())
            }
        }
    }

    /// RELEASE(6), (10) (SPC-2 §7.16): nothing if somebody else holds it.
    pub(crate) fn release_legacy(&mut self, port: &Port) -> Result<(), Fault> {
        if !self.registrants.is_empty() {
            return self.registrant(port).map(|_| ()).ok_or(Fault::RESERVATION_CONFLICT);
        }
        self.legacy.take_if(|holder| holder == port);
        Ok(())
    }

    /// Key of the holder, 0 where all registrants are, and the type: READ RESERVATION.
    pub(crate) fn shown(&self) -> Option<(u64, Type)> {
        let held = self.reservation.as_ref()?;
        let key = if held.kind.is_of_all_registrants() {
            0
        } else {
            self.registrant(&held.holder).map_or(0, |holder| holder.key)
        };
        Some((key, held.kind))
    }

    /// READ FULL STATUS.
    pub(crate) fn full_status(&self) -> Vec<FullStatus> {
        let kind = self.reservation.as_ref().map(|held| held.kind);
        let shown = |registrant: &Registrant| FullStatus {
            key: registrant.key,
            all_target_ports: registrant.all_target_ports,
            holds: kind.filter(|_| self.holds(registrant)),
            relative_port: registrant.port.target,
            initiator_port: registrant.port.initiator.clone(),
        };
        self.registrants.iter().map(shown).collect()
    }
}
