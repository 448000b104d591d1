// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management functions (SAM-5 §7): the pump has ended the tasks, this does the rest.

use crate::attention::Attention;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::taskset::Sharing;
use wire::scsi::Sense;

/// What CLEAR ACA found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // the pump must know every one
pub enum AcaCleared {
    /// The condition has ended.
    Done,
    /// There was none.
    Nothing,
    /// There is one that only another nexus can clear.
    OfAnother,
}

/// Sense that waits for the next command of a nexus (SAM-5 §7.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSense {
    /// What that command will be told.
    pub sense: Sense,
    /// Whether more waits behind it.
    pub more: bool,
}

impl Nexus {
    /// LOGICAL UNIT RESET (SAM-5 §6.3.3): a stopped unit starts again, mode parameters have their
    /// saved or default values, ACA conditions and the reservation of RESERVE end, and every nexus,
    /// this one too, is told with 29/03. Call it once, at the nexus that asked.
    pub fn logical_unit_reset(&self, unit: &LogicalUnit) {
        unit.reset();
        unit.establish_everywhere(Attention::DeviceReset);
    }

    /// I_T NEXUS RESET (SAM-5 §6.3.4): as if this nexus had been lost and were back: 29/07 from
    /// each unit, its reservation of RESERVE ends.
    pub fn reset(&self) {
        for unit in self.units() {
            unit.end_legacy_reservation(Some(self.names()));
            if let Some(link) = self.link_to(unit) {
                unit.task_set().lock().clear_fault(unit, Some(link));
                link.copies.clear();
                link.medium.allow_removal();
            }
            self.establish(unit, Attention::NexusLoss);
        }
    }

    /// QUERY ASYNCHRONOUS EVENT (SAM-5 §7.10): what the next command will be told, which stays.
    #[must_use]
    pub fn pending_sense(&self, unit: &LogicalUnit) -> Option<PendingSense> {
        let (next, more) = self.link_to(unit)?.attentions.peek()?;
        Some(PendingSense { sense: next.sense(), more })
    }

    /// Tasks of this nexus were ended by another one's CLEAR TASK SET (SAM-5 §7.4): 2F/00.
    pub fn commands_cleared(&self, unit: &LogicalUnit) {
        self.establish(unit, Attention::CommandsCleared);
    }

    /// Tasks of this nexus were ended by a logout or time-out of one of its connections (RFC 7143
    /// §11.14.5): 47/7F.
    pub fn commands_cleared_by_iscsi(&self, unit: &LogicalUnit) {
        self.establish(unit, Attention::ClearedByIscsi);
    }

    /// CLEAR ACA (SAM-5 §7.5): the ACA condition of this nexus ends.
    pub fn clear_aca(&self, unit: &LogicalUnit) -> AcaCleared {
        let mut set = unit.task_set().lock();
        match self.link_to(unit) {
            Some(link) if set.clear_fault(unit, Some(link)) => AcaCleared::Done,
            _ if unit.sharing() == Sharing::AllNexuses && set.is_faulted() => AcaCleared::OfAnother,
            _ => AcaCleared::Nothing,
        }
    }

    fn establish(&self, unit: &LogicalUnit, attention: Attention) {
        if let Some(link) = self.link_to(unit) {
            link.attentions.establish(attention);
        }
    }
}

impl LogicalUnit {
    /// TARGET COLD RESET: the unit is as after power on (SAM-5 §6.3.1). Reservations and
    /// registrations that are not to persist are gone, all else is as after a reset, and every
    /// nexus is told with 29/00 and of nothing that was before.
    pub fn power_on(&self) {
        self.reset();
        self.forget_reservations();
        self.replace_everywhere(Attention::PowerOn);
    }

    fn reset(&self) {
        self.restart();
        self.each_link(|link| link.medium.allow_removal());
        self.revert_modes();
        self.timestamp().revert();
        self.task_set().lock().clear_fault(self, None);
        self.end_legacy_reservation(None);
        self.end_copies();
    }
}
