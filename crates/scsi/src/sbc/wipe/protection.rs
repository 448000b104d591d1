// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of protection information: what stands beside the blocks is cleared first, so that
//! none of it is ever taken for that of new data; then, when all else is done, the unit is of
//! another type.

use crate::attention::Attention;
use crate::limits;
use crate::lun::LogicalUnit;
use crate::nexus::Mapped;
use crate::protect;
use alloc::sync::Arc;
use store::Op;
use store::Space;
use wire::scsi::protection::ProtectionType;

/// The part of a wipe that is about protection information.
#[derive(Debug)]
pub(super) struct Reprotection {
    /// What is left to be cleared: first byte and end.
    at: u64,
    end: u64,
    kind: Option<ProtectionType>,
    /// Who has asked for it, and need not be told.
    own: Arc<Mapped>,
}

impl Reprotection {
    /// Of a unit that can be formatted with protection information, and then is of type `kind`.
    pub(super) fn new(
        unit: &LogicalUnit,
        kind: Option<ProtectionType>,
        own: &Arc<Mapped>,
    ) -> Option<Self> {
        unit.protection()?;
        let (at, length) = protect::all_records(unit);
        Some(Self { at, end: at + length, kind, own: Arc::clone(own) })
    }

    /// The next piece of what is to be cleared.
    pub(super) fn clear(&mut self) -> Option<Op> {
        let (offset, length) = (self.at, (self.end - self.at).min(limits::DISCARD_MAX));
        self.at += length;
        (length > 0).then_some(Op::Clear { offset, length, leave: Space::Deallocated })
    }

    /// Writes how the unit is formatted from now on, if that changes.
    pub(super) fn header(&self, unit: &LogicalUnit) -> Option<Op> {
        (self.kind != unit.protection_type()).then(|| protect::header(unit, self.kind))
    }

    /// The unit is formatted so: READ CAPACITY(16) says another P_TYPE (SBC-3 §4.10).
    pub(super) fn take_effect(&self, unit: &LogicalUnit) {
        if let Some(protection) = unit.protection()
            && protection.kind() != self.kind
        {
            protection.set_kind(self.kind);
            unit.establish_elsewhere(&self.own.nexus_state, Attention::CapacityChanged);
        }
    }
}
