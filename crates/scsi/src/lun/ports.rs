// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit keeps for each initiator port that it has met, and how it tells them of events.

use super::LogicalUnit;
use super::Special;
use crate::attention::Attention;
use crate::attention::Attentions;
use crate::copy::records::Copies;
use crate::exclusion::Writers;
use crate::kept::RestoreError;
use crate::limits;
use crate::mmc::medium::MediumOfNexus;
use crate::nexus::NexusNames;
use crate::pass::news::News;
use crate::spc::buffer::EchoBuffer;
use crate::spc::persistent;
use crate::spc::persistent::registry::Port as NexusPort;
use crate::spc::persistent::registry::Registry;
use crate::spc::persistent::reservations::Reservations;
use crate::spc::persistent::rights::Reserved;
use crate::spc::persistent::rights::StandingWord;
use crate::statistics::Counter;
use crate::statistics::Totals;
use crate::statistics::Traffic;
use crate::taskset::Running;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wire::scsi::persistent::Type;

/// What a unit keeps for one I_T nexus; it outlives the nexus. On a cache line of its own, because
/// each write of the nexus counts itself here.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct NexusState {
    pub(crate) attentions: Attentions,
    pub(crate) writers: Writers,
    pub(crate) standing: StandingWord,
    pub(crate) running: Running,
    pub(crate) copies: Copies,
    pub(crate) traffic: Traffic,
    pub(crate) echo: EchoBuffer,
    pub(crate) medium: MediumOfNexus,
    pub(crate) news: News,
}

#[derive(Debug)]
pub(super) struct NexusEntry {
    initiator_port: String,
    portal_group_tag: u16,
    relative_port: u16,
    pub(super) nexus_state: Arc<NexusState>,
}

/// What reservations a unit has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservationsShown {
    /// How many nexuses are registered.
    pub registrants: usize,
    /// What kind of persistent reservation there is.
    pub kind: Option<Type>,
    /// There is one of RESERVE(6) or RESERVE(10), which is no persistent one.
    pub legacy: bool,
    /// The initiator port that holds it, unless all registrants do.
    pub holder: Option<String>,
}

impl LogicalUnit {
    /// Does `what` with what is kept for each nexus.
    pub(crate) fn each_nexus(&self, what: impl Fn(&NexusState)) {
        self.ports.lock().iter().for_each(|port| what(&port.nexus_state));
    }

    /// True if `holds` for any nexus.
    pub(crate) fn any_nexus(&self, holds: impl Fn(&NexusState) -> bool) -> bool {
        self.ports.lock().iter().any(|port| holds(&port.nexus_state))
    }

    /// What this unit keeps for the nexus of these names, made if need be; a new nexus is told why
    /// it knows nothing.
    pub(crate) fn nexus_state(&self, names: &NexusNames) -> Arc<NexusState> {
        let reservations = self.reservations.lock();
        let mut ports = self.ports.lock();
        let known = ports.iter().find(|port| {
            port.initiator_port == names.initiator_port
                && port.portal_group_tag == names.portal_group_tag
        });
        if let Some(port) = known {
            port.nexus_state.attentions.establish(Attention::NexusLoss);
            return Arc::clone(&port.nexus_state);
        }
        let lost = ports.iter().filter(|port| port.lost()).count();
        if lost >= limits::LOST_PORTS_MAX
            && let Some(oldest) = ports.iter().position(NexusEntry::lost)
        {
            let gone = ports.remove(oldest);
            self.statistics.retire(&gone.nexus_state.traffic);
        }
        let nexus_state = Arc::new(NexusState::default());
        nexus_state.standing.store(reservations.registry.standing(&NexusPort::from(names)));
        nexus_state.attentions.establish(Attention::PowerOn);
        ports.push(NexusEntry {
            initiator_port: names.initiator_port.clone(),
            portal_group_tag: names.portal_group_tag,
            relative_port: names.relative_port,
            nexus_state: Arc::clone(&nexus_state),
        });
        nexus_state
    }

    #[cfg(test)]
    pub(crate) fn ports(&self) -> usize {
        self.ports.lock().len()
    }

    /// Sets the words that commands read without a lock.
    pub(crate) fn show_reservations(&self, registry: &Registry) {
        for port in self.ports.lock().iter() {
            port.nexus_state.standing.store(registry.standing(&port.name()));
        }
        let reserved = registry.reserved();
        self.reserved.store(reserved);
        if reserved == Reserved::Nobody {
            self.make_ordinary(Special::Reserved);
        } else {
            self.make_special(Special::Reserved);
        }
    }

    /// Ends the reservation of RESERVE, if it is of `holder`, or of anybody for None (SPC-2
    /// §5.5.1). Gives whether there was one.
    pub(crate) fn end_legacy_reservation(&self, holder: Option<&NexusNames>) -> bool {
        if self.reserved.load() != Reserved::Legacy {
            return false;
        }
        let registry = &mut self.reservations.lock().registry;
        let port = holder.map(NexusPort::from);
        let ends = registry.legacy.is_some() && (port.is_none() || registry.legacy == port);
        if ends {
            registry.legacy = None;
            self.show_reservations(registry);
        }
        ends
    }

    /// What reservations there are.
    #[must_use]
    pub fn reservations_shown(&self) -> ReservationsShown {
        let registry = &self.reservations.lock().registry;
        let held = registry.reservation.as_ref();
        let holder = held.filter(|held| !held.kind.is_of_all_registrants());
        let holder = registry.legacy.as_ref().or_else(|| holder.map(|held| &held.holder));
        ReservationsShown {
            registrants: registry.registrants.len(),
            kind: held.map(|held| held.kind),
            legacy: registry.legacy.is_some(),
            holder: holder.map(|holder| holder.initiator.clone()),
        }
    }

    /// The registrations and the reservation that do not outlive a loss of power, as bytes for
    /// [`LogicalUnit::carry_reservations`] of another process. None: there are none.
    #[must_use]
    pub fn carried_reservations(&self) -> Option<Vec<u8>> {
        persistent::carried(&self.reservations.lock().registry, self.number())
    }

    /// Has the reservations of the process that served this unit before.
    ///
    /// # Errors
    /// If `state` is none of this unit; nothing has changed then.
    pub fn carry_reservations(&self, state: &[u8]) -> Result<(), RestoreError> {
        let registry = persistent::carry(state, self.number())?;
        let mut reservations = self.reservations.lock();
        *reservations = registry.into();
        self.show_reservations(&reservations.registry);
        Ok(())
    }

    /// What power on leaves of reservations and registrations: all if they are to persist (APTPL),
    /// none otherwise (SPC-4 §5.9.1). A change that is just being kept comes before that.
    pub(crate) fn forget_reservations(&self) -> bool {
        let mut reservations = self.reservations.lock();
        let has_some = !reservations.registry.registrants.is_empty();
        !reservations.defer_power_on()
            && self.forget_what_does_not_persist(&mut reservations)
            && has_some
    }

    /// Gives whether it is so.
    pub(crate) fn forget_what_does_not_persist(&self, reservations: &mut Reservations) -> bool {
        let forgets = !reservations.registry.persists;
        if forgets {
            reservations.registry = Registry::default();
            self.show_reservations(&reservations.registry);
        }
        forgets
    }

    /// Tells one nexus, if it was ever there.
    pub(crate) fn establish_at(&self, name: &NexusPort, attention: Attention) {
        let ports = self.ports.lock();
        for port in ports.iter().filter(|port| port.name() == *name) {
            port.nexus_state.attentions.establish(attention);
        }
    }

    /// The ACA condition of a preempted nexus ends (SPC-4 §5.12.11.5).
    pub(crate) fn clear_aca_of(&self, name: &NexusPort) {
        let nexus_state = {
            let ports = self.ports.lock();
            let port = ports.iter().find(|port| port.name() == *name);
            port.map(|port| Arc::clone(&port.nexus_state))
        };
        if let Some(nexus_state) = nexus_state {
            self.task_set.lock().clear_fault(self, Some(&nexus_state));
        }
    }

    /// What the unit has done since it exists, whatever hosts have reset.
    pub fn figures(&self) -> Totals {
        self.statistics.absolute(|totals| self.sum_traffic(totals))
    }

    /// What the unit has counted, as hosts see it.
    pub(crate) fn totals(&self) -> Totals {
        self.statistics.totals(|totals| self.sum_traffic(totals))
    }

    /// Lets counters begin anew.
    pub(crate) fn reset_statistics(&self, counters: &[Counter]) {
        self.statistics.reset(counters, |totals| self.sum_traffic(totals));
    }

    pub(crate) fn set_statistic(&self, counter: Counter, count: u64) {
        self.statistics.set(counter, count, |totals| self.sum_traffic(totals));
    }

    fn sum_traffic(&self, totals: &mut Totals) {
        self.ports.lock().iter().for_each(|port| port.nexus_state.traffic.sum(totals));
    }

    /// Ends the copies that were asked of this unit, as soon as they take their next step.
    pub fn end_copies(&self) {
        for port in self.ports.lock().iter() {
            port.nexus_state.copies.clear();
        }
    }

    /// Tells every nexus but the one of `nexus_state`.
    pub(crate) fn establish_elsewhere(&self, nexus_state: &NexusState, attention: Attention) {
        for port in
            self.ports.lock().iter().filter(|port| !core::ptr::eq(&*port.nexus_state, nexus_state))
        {
            port.nexus_state.attentions.establish(attention);
        }
    }

    /// Tells every nexus, also those that are lost for now.
    pub(crate) fn establish_everywhere(&self, attention: Attention) {
        for port in self.ports.lock().iter() {
            port.nexus_state.attentions.establish(attention);
        }
    }

    /// Initiator ports that are not here now will be told that the target serves other units than
    /// before (3F/0E), when they are back.
    pub fn tell_absent_of_other_units(&self) {
        for port in self.ports.lock().iter().filter(|port| port.lost()) {
            port.nexus_state.attentions.establish(Attention::LunsChanged);
        }
    }

    /// Tells every nexus this and nothing else.
    pub(crate) fn replace_everywhere(&self, attention: Attention) {
        for port in self.ports.lock().iter() {
            port.nexus_state.attentions.replace(attention);
        }
    }
}

impl NexusEntry {
    pub(super) fn name(&self) -> NexusPort {
        NexusPort { initiator: self.initiator_port.clone(), target: self.relative_port }
    }

    /// True if no nexus holds its state.
    fn lost(&self) -> bool {
        Arc::strong_count(&self.nexus_state) == 1
    }
}
