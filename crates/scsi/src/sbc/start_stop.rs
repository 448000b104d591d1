// SPDX-License-Identifier: Apache-2.0 OR MIT
//! START STOP UNIT (SBC-3 §5.22) and PREVENT ALLOW MEDIUM REMOVAL (SPC-4 §6.18) of a disk that
//! cannot be removed.

use super::sync::Then;
use super::sync::flush;
use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::good;

/// START STOP UNIT. Stopping flushes first unless NO_FLUSH. There are no power conditions and
/// nothing to load or eject.
pub(crate) fn start_stop(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    if cdb.byte(4) >> 4 != 0 {
        return Err(sense::invalid_bit(4, 7).into());
    }
    if cdb.bit(4, 1) {
        return Err(sense::invalid_bit(4, 1).into());
    }
    match (cdb.bit(4, 0), cdb.bit(4, 2)) {
        (true, _) => unit.restart(),
        (false, false) => return Ok(flush(0, Then::Stop)),
        (false, true) => unit.stop(),
    }
    Ok(good(0))
}

/// PREVENT ALLOW MEDIUM REMOVAL: hosts send it to any disk. What cannot be removed is prevented
/// from removal already, so there is nothing to keep; the obsolete values are refused.
pub(crate) fn prevent_allow(context: &Context<'_>) -> Result<Started, Fault> {
    if context.cdb.bit(4, 1) {
        return Err(sense::invalid_bit(4, 1).into());
    }
    Ok(good(0))
}
