// SPDX-License-Identifier: Apache-2.0 OR MIT
//! READ CAPACITY (SBC-3 §5.15, §5.16).

use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use wire::scsi::capacity::CAPACITY_10_LEN;
use wire::scsi::capacity::Capacity;
use wire::scsi::capacity::Provisioning;

/// READ CAPACITY(10); PMI and its LBA are obsolete and refused by the table.
pub(crate) fn capacity_10(context: &Context<'_>) -> Result<Started, Fault> {
    let bytes = capacity(context.unit).emit_10().to_vec();
    Ok(data(bytes, u32::try_from(CAPACITY_10_LEN).unwrap_or(u32::MAX)))
}

/// READ CAPACITY(16).
pub(crate) fn capacity_16(context: &Context<'_>) -> Result<Started, Fault> {
    Ok(data(capacity(context.unit).emit_16().to_vec(), context.cdb.u32_at(10)))
}

fn capacity(unit: &LogicalUnit) -> Capacity {
    let per_physical = unit.blocks_in(unit.geometry().physical_block).max(1);
    Capacity {
        last_lba: unit.blocks() - 1,
        block_length: unit.block(),
        protection: unit.protection_type(),
        physical_exponent: u8::try_from(per_physical.ilog2().min(15)).unwrap_or(15),
        provisioning: if unit.can_discard() {
            Provisioning::ManagedZeros
        } else {
            Provisioning::Full
        },
        lowest_aligned_lba: 0,
    }
}
