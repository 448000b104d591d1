// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TEST UNIT READY, REQUEST SENSE and REPORT LUNS (SPC-4 §6).

use crate::lun::Context;
use crate::lun::Special;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use crate::task::good;
use alloc::vec::Vec;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::cdb::CdbView;
use wire::scsi::luns;

/// TEST UNIT READY (SPC-4 §6.47): the gate has asked everything.
pub(crate) fn test_unit_ready(_context: &Context<'_>) -> Result<Started, Fault> {
    Ok(good(0))
}

/// REQUEST SENSE (SPC-4 §6.39): a pending unit attention as data, which clears it; else whether the
/// unit is ready.
pub(crate) fn request_sense(context: &Context<'_>) -> Result<Started, Fault> {
    let sense = match context.nexus_state.take_attention() {
        Some(attention) => attention,
        None if context.unit.is_special(Special::Wiping) => context.unit.wiping_sense(),
        None => context.unit.not_ready().unwrap_or(sense::NO_SENSE),
    };
    Ok(data(sense_data(&context.cdb, sense), u32::from(context.cdb.byte(4))))
}

/// Sense data in the format that DESC asks for.
pub(crate) fn sense_data(cdb: &CdbView<'_>, sense: Sense) -> Vec<u8> {
    if cdb.bit(1, 0) { sense.emit_descriptor() } else { sense.emit_fixed().to_vec() }
}

/// REPORT LUNS of a unit.
pub(crate) fn report_luns_of_unit(context: &Context<'_>) -> Result<Started, Fault> {
    report_luns(context.nexus, &context.cdb)
}

/// REPORT LUNS (SPC-4 §6.33): the units that this nexus sees.
pub(crate) fn report_luns(nexus: &Nexus, cdb: &CdbView<'_>) -> Result<Started, Fault> {
    let units = nexus.numbers().map(Lun::Unit);
    let bytes = match cdb.byte(2) {
        0 => luns::emit(units),
        1 => luns::emit([Lun::ReportLuns]),
        2 => luns::emit(units.chain([Lun::ReportLuns])),
        _ => return Err(sense::invalid_field(2).into()),
    };
    nexus.luns_reported();
    Ok(data(bytes, cdb.u32_at(6)))
}
