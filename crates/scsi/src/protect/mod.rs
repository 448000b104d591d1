// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protection information (SBC-3 §4.22): eight bytes beside each logical block, which travel with
//! it where the host asks for it, and are checked.
//!
//! A unit that can be formatted so has a store of two parts
//! ([`store::beside::Beside`]) and a command table of its own, so that all others pay nothing. What
//! stands beside a block is in [`record`]; how a unit is formatted in [`format`].

mod format;
mod machine;
mod piece;
mod ranges;
mod record;
mod sent;
mod start;
mod terms;
#[cfg(test)]
mod tests;
pub(crate) mod unmap;

pub use format::FormatError;
pub use format::PROTECTION_HEADER_LEN;
pub use format::PROTECTION_RECORDS_AT;
pub use format::ProtectionFormat;
pub use machine::CheckedAt;
pub use machine::FailedCheck;
pub(crate) use machine::Protected;
pub(crate) use start::start;

use crate::lun::LogicalUnit;
use alloc::sync::Arc;
use buf::Slice;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering;
use ranges::Ranges;
use record::RECORD_LEN;
use store::Op;
use store::beside::SIDE;
use wire::scsi::protection::ProtectionType;

/// What a unit knows that can be formatted with protection information.
#[derive(Debug)]
pub(crate) struct Protection {
    /// Of [`ProtectionType::number`]; 0 where it is formatted without.
    kind: AtomicU8,
    at_start: u8,
    ranges: Arc<Ranges>,
}

impl Protection {
    /// Formatted so.
    pub(crate) fn new(kind: Option<ProtectionType>) -> Self {
        let at_start = kind.map_or(0, ProtectionType::number);
        Self { kind: AtomicU8::new(at_start), at_start, ranges: Arc::default() }
    }

    /// How it is formatted.
    pub(crate) fn kind(&self) -> Option<ProtectionType> {
        ProtectionType::from_number(self.kind.load(Ordering::Acquire))
    }

    /// Whether a host has formatted it otherwise since the start.
    pub(crate) fn is_another_kind(&self) -> bool {
        self.kind.load(Ordering::Acquire) != self.at_start
    }

    /// It is formatted anew.
    pub(crate) fn set_kind(&self, kind: Option<ProtectionType>) {
        self.kind.store(kind.map_or(0, ProtectionType::number), Ordering::Release);
    }

    pub(crate) const fn ranges(&self) -> &Arc<Ranges> {
        &self.ranges
    }
}

/// All that stands beside the blocks of a unit.
pub(crate) fn all_records(unit: &LogicalUnit) -> (u64, u64) {
    (SIDE + PROTECTION_RECORDS_AT, unit.blocks() * RECORD_LEN as u64)
}

/// Writes how a unit is formatted.
pub(crate) fn header(unit: &LogicalUnit, kind: Option<ProtectionType>) -> Op {
    let format = ProtectionFormat { kind, block: unit.block(), blocks: unit.blocks() };
    Op::Write { offset: SIDE, data: Slice::from(format.emit()), durable: true }
}
