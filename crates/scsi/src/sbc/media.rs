// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PRE-FETCH (SBC-3 §5.7, §5.8) and READ DEFECT DATA (SBC-3 §5.17, §5.18).

use super::verify::Verify;
use crate::limits;
use crate::lun::Context;
use crate::sense::Fault;
use crate::task;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::vec;

/// PRE-FETCH(10), (16): reads what is asked for, so that a cache beneath has it, and says CONDITION
/// MET; GOOD for more than MAXIMUM PREFETCH LENGTH, which is not tried. With IMMED the store, which
/// reads ahead by itself, is not disturbed. Zero blocks mean those up to the end.
pub(crate) fn pre_fetch(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let lba = cdb.lba();
    let blocks = match u64::from(cdb.transfer_length()) {
        0 => unit.blocks().saturating_sub(lba),
        blocks => blocks,
    };
    let extent = unit.extent(lba, blocks)?;
    if extent.length > u64::from(limits::PREFETCH_MAX) {
        return Ok(task::good(0));
    }
    if extent.length == 0 || cdb.bit(1, 1) {
        return Ok((Machine::Done, Step::Complete(task::condition_met())));
    }
    let mut verify = Verify::pre_fetch(extent);
    let step = verify.step();
    Ok((Machine::Verify(verify), step))
}

/// READ DEFECT DATA(10): there are none in any list, and every format can say so.
pub(crate) fn defects_10(context: &Context<'_>) -> Result<Started, Fault> {
    let asked = context.cdb.byte(2);
    Ok(task::data(vec![0, asked, 0, 0], u32::from(context.cdb.u16_at(7))))
}

/// READ DEFECT DATA(12).
pub(crate) fn defects_12(context: &Context<'_>) -> Result<Started, Fault> {
    let asked = context.cdb.byte(1);
    Ok(task::data(vec![0, asked, 0, 0, 0, 0, 0, 0], context.cdb.u32_at(6)))
}
