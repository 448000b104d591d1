// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SANITIZE (SBC-3 §5.20): OVERWRITE on any store, BLOCK ERASE where space can be given back. No
//! store encrypts what it keeps, so that there is no key to erase.

use super::Content;
use super::Kind;
use super::begin;
use crate::keeping::Change;
use crate::keeping::Keeping;
use crate::kept::KeepFailed;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Started;
use wire::scsi::copy::Malformed;
use wire::scsi::format::OVERWRITE_HEADER_LEN;
use wire::scsi::format::Overwrite;

/// SANITIZE, OVERWRITE.
pub(crate) fn overwrite(context: &Context<'_>) -> Result<Started, Fault> {
    let length = u32::from(context.cdb.u16_at(7));
    let header = u32::try_from(OVERWRITE_HEADER_LEN).unwrap_or(0);
    if !(header + 1..=header + context.unit.block()).contains(&length) {
        return Err(sense::invalid_field(7).into());
    }
    check_failure_mode(context)?;
    parameters::receive(context, length, begin_overwrite)
}

fn begin_overwrite(context: &Context<'_>, bytes: &[u8]) -> Result<Started, Fault> {
    let list = Overwrite::parse(bytes).map_err(|malformed| match malformed {
        Malformed::Field(at) => sense::invalid_parameter(at),
        _ => sense::PARAMETER_LIST_LENGTH,
    })?;
    if list.test != 0 {
        return Err(sense::invalid_parameter_bit(0, 6).into());
    }
    if list.count == 0 || list.count > limits::OVERWRITES_MAX {
        return Err(sense::invalid_parameter_bit(0, 4).into());
    }
    if list.pattern.is_empty() {
        return Err(sense::invalid_parameter(2).into());
    }
    let content = Content::pattern(context.unit, list.pattern, list.count, list.invert);
    let presented = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    begin(context, kind(context), content, context.cdb.bit(1, 7), presented)
}

/// SANITIZE, BLOCK ERASE.
pub(crate) fn block_erase(context: &Context<'_>) -> Result<Started, Fault> {
    check_no_list(context)?;
    check_failure_mode(context)?;
    begin(context, kind(context), Content::Discard, context.cdb.bit(1, 7), 0)
}

/// SANITIZE, EXIT FAILURE MODE: only if the SANITIZE that failed allowed it; else nothing is left
/// to exit from.
pub(crate) fn exit_failure_mode(context: &Context<'_>) -> Result<Started, Fault> {
    check_no_list(context)?;
    let unit = context.unit;
    // A unit that did not fail stays in service meanwhile.
    if !unit.is_special(Special::WipeFailed) {
        return Ok(task::good(0));
    }
    // None begins meanwhile: what is kept would say that none is under way.
    if !unit.make_special(Special::Wiping) {
        return Err(unit.wiping_sense().into());
    }
    // A SANITIZE may have ended well since the failure was seen.
    if !unit.is_special(Special::WipeFailed) {
        unit.make_ordinary(Special::Wiping);
        return Ok(task::good(0));
    }
    if unit.wiping_kind() != Kind::SanitizeUnrestricted {
        unit.make_ordinary(Special::Wiping);
        return Err(sense::invalid_bit(1, 4).into());
    }
    if let Some(keep) = unit.note_wipe(None) {
        return Ok(Keeping::begin(Change::WipeFailureEnds, keep, 0));
    }
    finish_exit(unit, Ok(()))?;
    Ok(task::good(0))
}

/// It is kept that there is no failure any more; or not.
pub(crate) fn finish_exit(
    unit: &LogicalUnit,
    result: Result<(), KeepFailed>,
) -> Result<(), KeepFailed> {
    if result.is_ok() {
        unit.make_ordinary(Special::WipeFailed);
    }
    unit.make_ordinary(Special::Wiping);
    result
}

fn check_no_list(context: &Context<'_>) -> Result<(), Fault> {
    if context.cdb.u16_at(7) == 0 { Ok(()) } else { Err(sense::invalid_field(7).into()) }
}

/// After a failure without AUSE the next one cannot be with it (SBC-3 §4.11.4).
fn check_failure_mode(context: &Context<'_>) -> Result<(), Fault> {
    let restricted = context.unit.is_special(Special::WipeFailed)
        && context.unit.wiping_kind() == Kind::Sanitize;
    if restricted && context.cdb.bit(1, 5) {
        return Err(sense::invalid_bit(1, 5).into());
    }
    Ok(())
}

fn kind(context: &Context<'_>) -> Kind {
    if context.cdb.bit(1, 5) { Kind::SanitizeUnrestricted } else { Kind::Sanitize }
}
