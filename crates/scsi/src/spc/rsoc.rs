// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT SUPPORTED OPERATION CODES and TASK MANAGEMENT FUNCTIONS (SPC-4 §6.35, §6.36), from the
//! table that dispatches.

use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::nexus::Queries;
use crate::sense;
use crate::sense::Fault;
use crate::table::Entry;
use crate::task::Started;
use crate::task::data;
use alloc::vec::Vec;
use wire::scsi::cdb::CdbView;
use wire::scsi::opcode::Opcode;
use wire::scsi::rsoc;
use wire::scsi::rsoc::Command;
use wire::scsi::rsoc::Timeouts;

/// REPORT SUPPORTED OPERATION CODES.
pub(crate) fn report(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let bytes = match cdb.byte(2) & 7 {
        0 => all(unit, timeouts(cdb)),
        option @ 1..=3 => one(cdb, unit, option)?,
        _ => return Err(sense::invalid_bit(2, 2).into()),
    };
    Ok(data(bytes, cdb.u32_at(6)))
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
pub(crate) fn report_task_management(context: &Context<'_>) -> Result<Started, Fault> {
    let [first, second] = match context.nexus.queries() {
        Queries::None => [0; 2],
        Queries::All => rsoc::TASK_MANAGEMENT_QUERIES,
    };
    let functions = [rsoc::TASK_MANAGEMENT_BASIC | first, second];
    let bytes = rsoc::emit_task_management(functions, timeouts(&context.cdb));
    Ok(data(bytes, context.cdb.u32_at(6)))
}

/// RCTD and REPD stand at the same bit.
fn timeouts(cdb: &CdbView<'_>) -> Timeouts {
    if cdb.bit(2, 7) { Timeouts::Returned } else { Timeouts::Omitted }
}

fn all(unit: &LogicalUnit, timeouts: Timeouts) -> Vec<u8> {
    let commands =
        unit.commands().all().filter(|entry| entry.supported(unit)).map(|entry| Command {
            opcode: entry.opcode,
            service_action: entry.service_action,
            cdb_len: u16::from(entry.length),
        });
    rsoc::emit_all(commands, timeouts)
}

/// Reporting options 001b (an operation code without service actions), 010b (with) and 011b
/// (either).
fn one(cdb: &CdbView<'_>, unit: &LogicalUnit, option: u8) -> Result<Vec<u8>, Fault> {
    let (opcode, action) = (Opcode(cdb.byte(3)), cdb.u16_at(4));
    let known = || unit.commands().of_opcode(opcode).filter(|entry| entry.supported(unit));
    let has_actions = known().next().map(|entry| entry.service_action.is_some());
    if (option, has_actions) == (1, Some(true)) || (option, has_actions) == (2, Some(false)) {
        return Err(sense::invalid_bit(2, 2).into());
    }
    let matches = |entry: &&Entry| match entry.service_action {
        Some(own) => own == action,
        None => option == 1 || action == 0,
    };
    let usage = known().find(matches).map(|entry| entry.usage_for(unit));
    let usage = usage.as_ref().and_then(|(bytes, length)| bytes.get(..*length));
    Ok(rsoc::emit_one(usage, timeouts(cdb)))
}
