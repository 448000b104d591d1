// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MODE SELECT (SPC-4 §6.9, §6.10): the whole list is checked before anything changes. With SP the
//! values are on stable storage before they are in force.

use super::mode;
use super::mode::PageCode;
use super::modes::Changed;
use super::modes::Lasting;
use super::modes::Parameters;
use crate::attention::Attention;
use crate::kept::KeepFailed;
use crate::lun::Context;
use crate::lun::Link;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use buf::Slice;
use wire::scsi::mode as pages;
use wire::scsi::mode::BlockDescriptor;
use wire::scsi::mode::Caching;
use wire::scsi::mode::Control;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;
use wire::scsi::mode::PageControl;
use wire::scsi::mode::PageHeader;
use wire::scsi::opcode::Opcode;

/// A MODE SELECT under way.
#[derive(Debug)]
pub(crate) struct Select {
    header: Header,
    lasting: Lasting,
    length: u32,
    /// The list, while somebody else is changing the values.
    list: Option<Slice>,
}

/// MODE SELECT(6), (10).
pub(crate) fn select(context: &Context<'_>) -> Result<Started, Fault> {
    let cdb = &context.cdb;
    let (header, length) = if cdb.opcode() == Opcode::MODE_SELECT_6 {
        (Header::Six, u32::from(cdb.byte(4)))
    } else {
        (Header::Ten, u32::from(cdb.u16_at(7)))
    };
    let saves = cdb.bit(1, 0);
    if saves && !context.unit.modes().can_save() {
        return Err(sense::invalid_bit(1, 0).into());
    }
    let lasting = if saves { Lasting::Saved } else { Lasting::UntilReset };
    if !cdb.bit(1, 4) && length != 0 {
        return Err(sense::invalid_bit(1, 4).into());
    }
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let mut select = Select { header, lasting, length, list: None };
    if length != 0 {
        return Ok((Machine::Select(select), Step::ReceiveDataOut { length }));
    }
    if !saves {
        return Ok(task::good(0));
    }
    // Nothing is new, but what is in force is to be saved (SPC-4 §6.9).
    let step = select.attempt(context.nexus, context.unit, Slice::empty())?;
    Ok((Machine::Select(select), step))
}

impl Select {
    pub(crate) fn resume(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Step, Fault> {
        let list = match (self.list.take(), input) {
            (None, input @ Input::DataOut(_)) => {
                // A copy of its own, that nobody can change.
                Slice::from(task::data_out(input, self.length)?.to_vec())
            }
            (Some(list), Input::Turn) => list,
            _ => return Err(sense::INTERNAL.into()),
        };
        self.attempt(nexus, unit, list)
    }

    /// Takes the values over, unless somebody else is changing them; every other nexus is told if
    /// they are new (SPC-4 §5.13.2).
    fn attempt(&mut self, nexus: &Nexus, unit: &LogicalUnit, list: Slice) -> Result<Step, Fault> {
        let mut wanted = unit.modes().current();
        if self.length != 0 {
            self.check(unit, list.bytes().unwrap_or_default(), &mut wanted)?;
        }
        let changed = unit.change_modes(wanted, self.lasting);
        match changed.map_err(|KeepFailed| sense::INTERNAL)? {
            Changed::Busy => {
                self.list = Some(list);
                return Ok(Step::Wait);
            }
            Changed::Done { differs: true } => {
                let own = nexus.link_to(unit).map(core::ptr::from_ref::<Link>);
                unit.establish_at_others(own, Attention::ModeChanged);
            }
            Changed::Done { differs: false } => {}
        }
        Ok(Step::Complete(sense::good(u64::from(self.length))))
    }

    /// Every rule that a list must keep; what is in it goes to `wanted`.
    fn check(&self, unit: &LogicalUnit, list: &[u8], wanted: &mut Parameters) -> Result<(), Fault> {
        let data = ModeData::parse_list(self.header, list).ok_or(sense::PARAMETER_LIST_LENGTH)?;
        let mut at = list.len() - data.pages.len();
        if let Some(descriptor) = data.descriptor {
            check_descriptor(unit, descriptor, self.header)?;
        }
        let mut rest = data.pages;
        while let Some(first) = rest.first() {
            let subpage = if first & SPF != 0 { rest.get(1).copied() } else { Some(0) };
            let code = (first & 0x3f, subpage.ok_or(sense::PARAMETER_LIST_LENGTH)?);
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
}

/// SPF: the page has a subpage code.
const SPF: u8 = 0x40;

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
        return Err(parameter(at + if header.header == 4 { 2 } else { 1 }));
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
    let at = if header == Header::Six { 4 } else { 8 };
    let (blocks, length, open, length_at) = match descriptor {
        BlockDescriptor::Short { blocks, length } => {
            (u64::from(blocks), length, blocks == 0 || blocks == u32::MAX, 5)
        }
        BlockDescriptor::Long { blocks, length } => {
            (blocks, length, blocks == 0 || blocks == u64::MAX, 12)
        }
    };
    if !open && blocks != unit.blocks() {
        return Err(parameter(at));
    }
    if length != unit.block() {
        return Err(parameter(at + length_at));
    }
    Ok(())
}
