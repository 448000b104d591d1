// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MODE SENSE (SPC-4 §6.11, §6.12). Of the control page D_SENSE and SWP can be changed; nothing is
//! saved.

use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use alloc::vec::Vec;
use wire::scsi::mode;
use wire::scsi::mode::BlockDescriptor;
use wire::scsi::mode::Caching;
use wire::scsi::mode::Control;
use wire::scsi::mode::DeviceSpecific;
use wire::scsi::mode::Header;
use wire::scsi::mode::PageControl;

/// Pages of a disk, ascending.
const PAGES: [u8; 3] = [mode::CACHING, mode::CONTROL, mode::INFORMATIONAL_EXCEPTIONS];

/// BUSY TIMEOUT PERIOD: no limit is promised.
const BUSY_TIMEOUT_UNLIMITED: u16 = 0xffff;

/// MODE SENSE(6).
pub(crate) fn sense_6(context: &Context<'_>) -> Result<Started, Fault> {
    let bytes = mode_data(context, Header::Six)?;
    Ok(data(bytes, u32::from(context.cdb.byte(4))))
}

/// MODE SENSE(10).
pub(crate) fn sense_10(context: &Context<'_>) -> Result<Started, Fault> {
    let bytes = mode_data(context, Header::Ten)?;
    Ok(data(bytes, u32::from(context.cdb.u16_at(7))))
}

fn mode_data(context: &Context<'_>, header: Header) -> Result<Vec<u8>, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let control = PageControl::from_code(cdb.byte(2) >> 6);
    if control == PageControl::Saved {
        return Err(sense::SAVING_NOT_SUPPORTED.into());
    }
    let (code, subpage) = (cdb.byte(2) & 0x3f, cdb.byte(3));
    if code != mode::ALL_PAGES && !PAGES.contains(&code) {
        return Err(sense::invalid_bit(2, 5).into());
    }
    if subpage != 0 && subpage != mode::ALL_SUBPAGES {
        return Err(sense::invalid_field(3).into());
    }
    let mut pages = Vec::new();
    for page in PAGES.into_iter().filter(|page| code == mode::ALL_PAGES || *page == code) {
        push_page(&mut pages, unit, page, control);
    }
    let specific = DeviceSpecific {
        write_protected: unit.geometry().read_only || unit.is_special(Special::WriteProtected),
        dpo_fua: true,
    };
    let long = header == Header::Ten && cdb.bit(1, 4);
    let descriptor = (!cdb.bit(1, 3)).then(|| block_descriptor(unit, long));
    Ok(mode::emit(header, specific, descriptor, &pages))
}

fn push_page(to: &mut Vec<u8>, unit: &LogicalUnit, page: u8, control: PageControl) {
    to.extend(page_of(unit, page, control).unwrap_or_default());
}

/// A page with the values that `control` asks for; None if there is no such page.
pub(super) fn page_of(unit: &LogicalUnit, page: u8, control: PageControl) -> Option<Vec<u8>> {
    let changeable = control == PageControl::Changeable;
    let mut bytes = match page {
        mode::CACHING => Caching { write_cache: unit.geometry().volatile_cache }.emit().to_vec(),
        mode::CONTROL => {
            let current = |special| match control {
                PageControl::Current => unit.is_special(special),
                PageControl::Changeable => true,
                PageControl::Default | PageControl::Saved => false,
            };
            let page = Control {
                busy_timeout: BUSY_TIMEOUT_UNLIMITED,
                descriptor_sense: current(Special::DescriptorSense),
                software_write_protect: current(Special::WriteProtected),
            };
            let mut bytes = page.emit();
            if changeable {
                (bytes[3], bytes[8], bytes[9]) = (0, 0, 0);
            }
            return Some(bytes.to_vec());
        }
        mode::INFORMATIONAL_EXCEPTIONS => mode::informational_exceptions().to_vec(),
        _ => return None,
    };
    if changeable && let Some(parameters) = bytes.get_mut(2..) {
        parameters.fill(0);
    }
    Some(bytes)
}

fn block_descriptor(unit: &LogicalUnit, long: bool) -> BlockDescriptor {
    let (blocks, length) = (unit.blocks(), unit.block());
    if long {
        BlockDescriptor::Long { blocks, length }
    } else {
        BlockDescriptor::Short { blocks: u32::try_from(blocks).unwrap_or(u32::MAX), length }
    }
}
