// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MODE SELECT (SPC-4 §6.9, §6.10): the whole list is checked before anything changes. Nothing is
//! saved: the values last as long as the unit.

use super::mode;
use crate::attention::Attention;
use crate::lun::Context;
use crate::lun::Link;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use wire::scsi::mode as pages;
use wire::scsi::mode::BlockDescriptor;
use wire::scsi::mode::Control;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;
use wire::scsi::mode::PageControl;
use wire::scsi::opcode::Opcode;

/// A MODE SELECT that awaits its list.
#[derive(Debug)]
pub(crate) struct Select {
    header: Header,
    length: u32,
}

/// MODE SELECT(6), (10).
pub(crate) fn select(context: &Context<'_>) -> Result<Started, Fault> {
    let cdb = &context.cdb;
    let (header, length) = if cdb.opcode() == Opcode::MODE_SELECT_6 {
        (Header::Six, u32::from(cdb.byte(4)))
    } else {
        (Header::Ten, u32::from(cdb.u16_at(7)))
    };
    if cdb.bit(1, 0) {
        return Err(sense::invalid_bit(1, 0).into());
    }
    if length == 0 {
        return Ok(task::good(0));
    }
    if !cdb.bit(1, 4) {
        return Err(sense::invalid_bit(1, 4).into());
    }
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    Ok((Machine::Select(Select { header, length }), Step::ReceiveDataOut { length }))
}

impl Select {
    pub(crate) fn resume(
        &self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Step, Fault> {
        let list = task::data_out(input, self.length)?.to_vec();
        if let Some(control) = self.check(unit, &list)? {
            apply(nexus, unit, control);
        }
        Ok(Step::Complete(sense::good(u64::from(self.length))))
    }

    /// Every rule that a list must keep; the control page, if it is in the list.
    fn check(&self, unit: &LogicalUnit, list: &[u8]) -> Result<Option<Control>, Fault> {
        let data = ModeData::parse_list(self.header, list).ok_or(sense::PARAMETER_LIST_LENGTH)?;
        let at = list.len() - data.pages.len();
        if let Some(descriptor) = data.descriptor {
            check_descriptor(unit, descriptor, self.header)?;
        }
        let mut control = None;
        let (mut rest, mut at) = (data.pages, at);
        while let Some(first) = rest.first() {
            let page = mode::page_of(unit, first & 0x7f, PageControl::Current);
            let mask = mode::page_of(unit, first & 0x7f, PageControl::Changeable);
            let (Some(page), Some(mask)) = (page, mask) else {
                return Err(parameter(at));
            };
            if rest.get(1) != page.get(1) {
                return Err(parameter(at + 1));
            }
            let split = rest.split_at_checked(page.len());
            let (sent, after) = split.ok_or(sense::PARAMETER_LIST_LENGTH)?;
            for (index, ((sent, page), mask)) in
                sent.iter().zip(&page).zip(&mask).enumerate().skip(2)
            {
                if (sent ^ page) & !mask != 0 {
                    return Err(parameter(at + index));
                }
            }
            if first & 0x3f == pages::CONTROL {
                control = Control::parse(sent);
            }
            (rest, at) = (after, at + sent.len());
        }
        Ok(control)
    }
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

/// Takes the values over; every other nexus is told if they are new (SPC-4 §5.14).
fn apply(nexus: &Nexus, unit: &LogicalUnit, control: Control) {
    let mut changed = false;
    for (special, wanted) in [
        (Special::DescriptorSense, control.descriptor_sense),
        (Special::WriteProtected, control.software_write_protect),
    ] {
        changed |= unit.is_special(special) != wanted;
        if wanted {
            unit.make_special(special);
        } else {
            unit.make_ordinary(special);
        }
    }
    if changed {
        let own = nexus.link_to(unit).map(core::ptr::from_ref::<Link>);
        unit.establish_at_others(own, Attention::ModeChanged);
    }
}
