// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management functions (SAM-5 §7): the pump has ended the tasks, this does the rest.

use crate::attention::Attention;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::nexus::Nexus;

impl Nexus {
    /// LOGICAL UNIT RESET (SAM-5 §6.3.3): a stopped unit starts again, mode parameters have their
    /// default values, the reservation of RESERVE ends, and every nexus, this one
    /// too, is told with 29/03. Call it once, at the nexus that asked.
    pub fn logical_unit_reset(&self, unit: &LogicalUnit) {
        unit.restart();
        unit.each_link(|link| link.medium.allow_removal());
        unit.make_ordinary(Special::WriteProtected);
        unit.make_ordinary(Special::DescriptorSense);
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

    fn establish(&self, unit: &LogicalUnit, attention: Attention) {
        if let Some(link) = self.link_to(unit) {
            link.attentions.establish(attention);
        }
    }
}
