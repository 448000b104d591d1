// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MODE SELECT (SPC-4 §6.9, §6.10): the whole list is checked before anything changes. With SP the
//! values are on stable storage before they are in force.

use super::mode;
use super::mode::PageCode;
use super::modes::Changed;
use super::modes::Lasting;
use super::modes::Parameters;
use crate::attention::Attention;
use crate::keeping::Change;
use crate::keeping::Keeping;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Started;
use wire::scsi::mode as pages;
use wire::scsi::mode::BlockDescriptor;
use wire::scsi::mode::Caching;
use wire::scsi::mode::Control;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;
use wire::scsi::mode::PageControl;
use wire::scsi::mode::PageHeader;
use wire::scsi::mode::Select;

/// MODE SELECT(6), (10).
pub(crate) fn select(context: &Context<'_>) -> Result<Started, Fault> {
    let select = Select::parse(&context.cdb);
    if select.saves && !context.unit.modes().can_save() {
        return Err(sense::invalid_bit(1, 0).into());
    }
    if !select.page_format && select.length != 0 {
        return Err(sense::invalid_bit(1, 4).into());
    }
    if select.length == 0 && !select.saves {
        return Ok(task::good(0));
    }
    parameters::receive(context, u32::from(select.length), take_over)
}

/// Takes the values of `list` over, unless somebody else is changing them; every other nexus is
/// told if they are new (SPC-4 §5.13.2). Without a list nothing is new, but what is in force may
/// have to be saved (SPC-4 §6.9).
fn take_over(context: &Context<'_>, list: &[u8]) -> Result<Started, Fault> {
    let (select, unit) = (Select::parse(&context.cdb), context.unit);
    let mut wanted = unit.modes().current();
    if !list.is_empty() {
        check(unit, select.header, list, &mut wanted)?;
    }
    let lasting = if select.saves { Lasting::Saved } else { Lasting::UntilReset };
    match unit.change_modes(wanted, lasting)? {
        Changed::Busy => return Ok(parameters::again()),
        Changed::Keep(keep) => {
            return Ok(Keeping::begin(Change::Modes(wanted), keep, u64::from(select.length)));
        }
        Changed::Done { differs: true } => {
            context.nexus.tell_others(unit, Attention::ModeChanged);
        }
        Changed::Done { differs: false } => {}
    }
    Ok(task::good(u64::from(select.length)))
}

/// Every rule that a list must keep; what is in it goes to `wanted`.
fn check(
    unit: &LogicalUnit,
    header: Header,
    list: &[u8],
    wanted: &mut Parameters,
) -> Result<(), Fault> {
    let data = ModeData::parse_list(header, list).ok_or(sense::PARAMETER_LIST_LENGTH)?;
    let mut at = list.len() - data.pages.len();
    if let Some(descriptor) = data.descriptor {
        check_descriptor(unit, descriptor, header)?;
    }
    let mut rest = data.pages;
    while !rest.is_empty() {
        let code = pages::page_code(rest).ok_or(sense::PARAMETER_LIST_LENGTH)?;
        if !mode::is_page(unit, code) {
            return Err(parameter(at));
        }
        let sent = check_page(unit, code, rest, at)?;
        take(code, sent, wanted).ok_or_else(|| parameter(at + 3))?;
        at += sent.len();
        rest = rest.get(sent.len()..).unwrap_or_default();
    }
    Ok(())
}

/// The page at the front of `rest`, in which nothing else than what can be changed differs from
/// what is in force.
fn check_page<'a>(
    unit: &LogicalUnit,
    code: PageCode,
    rest: &'a [u8],
    at: usize,
) -> Result<&'a [u8], Fault> {
    let page = mode::page_of(unit, code, PageControl::Current).ok_or_else(|| parameter(at))?;
    let mask = mode::page_of(unit, code, PageControl::Changeable).ok_or_else(|| parameter(at))?;
    let header = PageHeader::parse(rest).ok_or(sense::PARAMETER_LIST_LENGTH)?;
    let length = usize::from(header.header) + usize::from(header.length);
    // A page of another format, or of another length than ours.
    if (header.code, header.subpage) != code || length != page.len() {
        return Err(parameter(at + usize::from(header.length_at())));
    }
    let sent = rest.get(..length).ok_or(sense::PARAMETER_LIST_LENGTH)?;
    let parameters = sent.iter().zip(&page).zip(&mask).enumerate().skip(header.header.into());
    for (index, ((sent, page), mask)) in parameters {
        if (sent ^ page) & !mask != 0 {
            return Err(parameter(at + index));
        }
    }
    Ok(sent)
}

/// Takes over what can be changed; None if a value is reserved.
fn take(code: PageCode, sent: &[u8], wanted: &mut Parameters) -> Option<()> {
    match code {
        (pages::CONTROL, 0) => wanted.control = Control::parse(sent)?,
        (pages::CACHING, 0) => wanted.caching = Caching::parse(sent)?,
        _ => {}
    }
    Some(())
}

fn parameter(at: usize) -> Fault {
    sense::invalid_parameter(u16::try_from(at).unwrap_or(u16::MAX)).into()
}

/// The unit has one format; the number of blocks may be left open (SBC-3 §6.5.3).
fn check_descriptor(
    unit: &LogicalUnit,
    descriptor: BlockDescriptor,
    header: Header,
) -> Result<(), Fault> {
    let (blocks, length) = match descriptor {
        BlockDescriptor::Short { blocks, length } => (u64::from(blocks), length),
        BlockDescriptor::Long { blocks, length } => (blocks, length),
    };
    if !descriptor.keeps_blocks() && blocks != unit.blocks() {
        return Err(sense::invalid_parameter(header.size()).into());
    }
    if length != unit.block() {
        return Err(sense::invalid_parameter(header.size() + descriptor.length_at()).into());
    }
    Ok(())
}
