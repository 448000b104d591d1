// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FORMAT UNIT (SBC-3 §5.2): there are no defects to map, so that formatting is writing the
//! initialization pattern, zeros by default.

use super::Content;
use super::Kind;
use super::begin_as;
use crate::limits;
use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task::Started;
use wire::scsi::copy::Malformed;
use wire::scsi::format::FORMAT_LONG_LEN;
use wire::scsi::format::FORMAT_SHORT_LEN;
use wire::scsi::format::Format;
use wire::scsi::format::FormatHeader;
use wire::scsi::protection::BadProtection;
use wire::scsi::protection::ProtectionType;

/// FORMAT UNIT. CMPLIST and DEFECT LIST FORMAT speak of a defect list, which is always empty.
pub(crate) fn format_unit(context: &Context<'_>) -> Result<Started, Fault> {
    let cdb = &context.cdb;
    let Some(header) = header(context) else {
        // Without a parameter list nothing may speak of one.
        if cdb.byte(1) & 0x2f != 0 {
            return Err(sense::invalid_bit(1, 5).into());
        }
        let protection = protection(context, 0)?;
        return begin_as(context, protection, Content::zeros(context.unit), false, 0);
    };
    // The list says itself how long it is: as much of it is taken as there is.
    let least = match header {
        FormatHeader::Short => FORMAT_SHORT_LEN,
        FormatHeader::Long => FORMAT_LONG_LEN,
    };
    let sent = context.request.expected_out;
    let least = u32::try_from(least).unwrap_or(0);
    if sent < least {
        return Err(sense::short_data_out(u64::from(least)));
    }
    if sent > limits::FORMAT_LIST_LEN_MAX {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    parameters::receive(context, sent, begin_with)
}

/// None without FMTDATA.
fn header(context: &Context<'_>) -> Option<FormatHeader> {
    let long = if context.cdb.bit(1, 5) { FormatHeader::Long } else { FormatHeader::Short };
    context.cdb.bit(1, 4).then_some(long)
}

fn begin_with(context: &Context<'_>, bytes: &[u8]) -> Result<Started, Fault> {
    let header = header(context).ok_or(sense::INTERNAL)?;
    let list = Format::parse(bytes, header).map_err(|malformed| match malformed {
        Malformed::Field(at) => sense::invalid_parameter(at),
        _ => sense::PARAMETER_LIST_LENGTH,
    })?;
    let protection = protection(context, list.protection_usage)?;
    if list.protection_interval != 0 {
        return Err(sense::invalid_parameter(3).into());
    }
    if list.defects_len != 0 {
        let at = if header == FormatHeader::Short { 2 } else { 4 };
        return Err(sense::invalid_parameter(at).into());
    }
    let block = usize::try_from(context.unit.block()).unwrap_or(0);
    if list.pattern.len() > block {
        let at = if header == FormatHeader::Short { FORMAT_SHORT_LEN } else { FORMAT_LONG_LEN };
        return Err(sense::invalid_parameter(u16::try_from(at + 2).unwrap_or(0)).into());
    }
    let content = if list.pattern.iter().all(|byte| *byte == 0) {
        Content::zeros(context.unit)
    } else {
        Content::pattern(context.unit, list.pattern, 1, false)
    };
    let presented = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    begin_as(context, protection, content, list.immediate, presented)
}

/// What FMTPINFO and PROTECTION FIELD USAGE ask for. Of a unit that cannot be protected the table
/// lets no FMTPINFO through.
fn protection(context: &Context<'_>, usage: u8) -> Result<(Kind, Option<ProtectionType>), Fault> {
    let information = context.cdb.byte(1) >> 6;
    ProtectionType::of_format(information, usage).map(|kind| (Kind::Format, kind)).map_err(|bad| {
        match bad {
            BadProtection::Information => sense::invalid_bit(1, 7).into(),
            BadProtection::Usage => sense::invalid_parameter_bit(0, 2).into(),
        }
    })
}
