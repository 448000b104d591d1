// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gate through which each command for a unit goes (SAM-5 §5.14, SPC-4 §5.3).

use super::Extent;
use super::LogicalUnit;
use super::NexusState;
use super::Special;
use crate::limits;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::spc::alua::reach::Reach;
use crate::spc::persistent::rights;
use crate::spc::persistent::rights::Guard;
use crate::spc::persistent::rights::Starts;
use crate::table::Entry;
use crate::table::Flag;
use crate::task::Request;
use crate::task::Started;
use core::sync::atomic::Ordering;
use wire::scsi::cdb::CdbView;
use wire::scsi::cdb::Group;
use wire::scsi::opcode::Opcode;

/// Everything that a handler sees.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) nexus: &'a Nexus,
    pub(crate) unit: &'a LogicalUnit,
    pub(crate) nexus_state: &'a NexusState,
    pub(crate) request: &'a Request,
    pub(crate) cdb: CdbView<'a>,
}

impl Context<'_> {
    /// The gate: what may stop a command before its handler sees it, in the order of SPC-4 §5.3 and
    /// SAM-5 §5.14. A reservation conflict comes behind the unit attentions of a reset and before
    /// all others (SAM-5 §5.3.3).
    pub(crate) fn start(&self) -> Result<Started, Fault> {
        let found = self.unit.commands.find(&self.cdb);
        let pending = self.nexus_state.attentions.pending()
            && !matches!(&found, Ok(entry) if entry.has(Flag::Informative));
        if self.request.unaware && !matches!(&found, Ok(entry) if entry.has(Flag::Informative)) {
            return Err(sense::INQUIRY_CHANGED.into());
        }
        if pending && self.nexus_state.attentions.begins_with_reset() {
            self.report_attention()?;
        }
        if self.unit.is_special(Special::Reserved)
            && let Ok(entry) = &found
        {
            self.check_reservation(entry.guard)?;
        }
        if pending {
            self.report_attention()?;
        }
        let entry = found?;
        if !entry.supported(self.unit) {
            return Err(self.unit.commands.not_supported(entry, &self.cdb));
        }
        entry.check(&self.request.cdb)?;
        if self.unit.special.load(Ordering::SeqCst) & Special::OBSTACLES != 0 {
            self.check_obstacles(entry)?;
        }
        if entry.has(Flag::Writes) {
            if self.unit.geometry.read_only {
                return Err(sense::WRITE_PROTECTED.into());
            }
            if self.unit.is_special(Special::WriteProtected) {
                return Err(sense::SOFTWARE_WRITE_PROTECTED.into());
            }
        }
        (entry.handler)(self)
    }

    /// A pending unit attention, which this clears.
    #[cold]
    fn report_attention(&self) -> Result<(), Fault> {
        match self.nexus_state.take_attention() {
            Some(sense) => Err(sense.into()),
            None => Ok(()),
        }
    }

    /// What the state of the unit, or of the way to it, lets through.
    #[cold]
    fn check_obstacles(&self, entry: &Entry) -> Result<(), Fault> {
        if self.unit.is_special(Special::Asymmetric)
            && let Some(obstacle) =
                self.unit.access.obstacle(self.nexus.names().relative_port, Reach::of(entry))
        {
            return Err(obstacle.into());
        }
        if self.unit.is_special(Special::Wiping) && Reach::of(entry) != Reach::Always {
            return Err(self.unit.wiping_sense().into());
        }
        if entry.has(Flag::Medium)
            && let Some(sense) = self.unit.not_ready()
        {
            return Err(sense.into());
        }
        let ends_failure = matches!(entry.opcode, Opcode::SANITIZE | Opcode::FORMAT_UNIT);
        if self.unit.is_special(Special::WipeFailed) && entry.has(Flag::Medium) && !ends_failure {
            return Err(self.unit.wipe_failed_sense().into());
        }
        Ok(())
    }

    #[cold]
    fn check_reservation(&self, guard: Guard) -> Result<(), Fault> {
        let only_starts = self.cdb.byte(4) & 0xf1 == 1;
        let starts = if only_starts { Starts::Only } else { Starts::No };
        let standing = self.nexus_state.standing.load();
        if rights::allows(self.unit.reserved.load(), standing, guard, starts) {
            return Ok(());
        }
        Err(Fault::RESERVATION_CONFLICT)
    }

    /// The extent of a READ, WRITE or VERIFY: within the unit, and no longer than MAXIMUM TRANSFER
    /// LENGTH.
    pub(crate) fn transfer(&self) -> Result<(Extent, u32), Fault> {
        let extent = self.unit.extent(self.cdb.lba(), u64::from(self.cdb.transfer_length()))?;
        match u32::try_from(extent.length) {
            Ok(length) if length <= limits::TRANSFER_MAX => Ok((extent, length)),
            _ => Err(self.length_field().into()),
        }
    }

    /// 5/24/00 that points at a field of the byte of DPO and FUA.
    pub(crate) fn flag_field(&self, bit: u8) -> wire::scsi::Sense {
        let at = Group::of(self.cdb.opcode()).map_or(1, Group::flags_at);
        sense::invalid_bit(u16::from(at), bit)
    }

    /// 5/24/00 that points at TRANSFER LENGTH.
    pub(crate) fn length_field(&self) -> wire::scsi::Sense {
        sense::invalid_field(Group::of(self.cdb.opcode()).map_or(0, Group::length_at))
    }
}
