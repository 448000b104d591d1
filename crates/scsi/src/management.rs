// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management functions (SAM-5 §7): the pump has ended the tasks, this does the rest.

use crate::attention::Attention;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::taskset::Sharing;

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

impl Nexus {
    /// LOGICAL UNIT RESET (SAM-5 §6.3.3): a stopped unit starts again, mode parameters have their
    /// saved or default values, ACA conditions end, the reservation of RESERVE ends, and every nexus, this one
    /// too, is told with 29/03. Call it once, at the nexus that asked.
    pub fn logical_unit_reset(&self, unit: &LogicalUnit) {
        unit.restart();
        unit.revert_modes();
        unit.timestamp().revert();
        unit.task_set().lock().clear_fault(unit, None);
        unit.end_legacy_reservation(None);
        unit.establish_everywhere(Attention::DeviceReset);
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
