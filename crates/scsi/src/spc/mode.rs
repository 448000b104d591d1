// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MODE SENSE (SPC-4 §6.11, §6.12) and the pages of a disk.

use super::modes::Parameters;
use crate::limits;
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
use wire::scsi::mode::ControlExtension;
use wire::scsi::mode::DeviceSpecific;
use wire::scsi::mode::PageControl;
use wire::scsi::mode::Sense;
use wire::scsi::provisioning;

/// Page and subpage code.
pub(super) type PageCode = (u8, u8);

/// Pages of a disk, ascending.
const PAGES: [PageCode; 6] = [
    (provisioning::ERROR_RECOVERY, 0),
    (mode::CACHING, 0),
    (mode::CONTROL, 0),
    (mode::CONTROL, mode::CONTROL_EXTENSION),
    (mode::INFORMATIONAL_EXCEPTIONS, 0),
    (mode::INFORMATIONAL_EXCEPTIONS, provisioning::THRESHOLDS),
];

/// PS: the page can be saved.
const SAVABLE: u8 = 0x80;

/// MODE SENSE(6), (10).
pub(crate) fn mode_sense(context: &Context<'_>) -> Result<Started, Fault> {
    let asked = Sense::parse(&context.cdb);
    Ok(data(mode_data(context.unit, &asked)?, u32::from(asked.allocation)))
}

fn mode_data(unit: &LogicalUnit, asked: &Sense) -> Result<Vec<u8>, Fault> {
    let (control, (code, subpage)) = (asked.control, asked.page);
    if control == PageControl::Saved && !unit.modes().can_save() {
        return Err(sense::SAVING_NOT_SUPPORTED.into());
    }
    let of_code = |page: &PageCode| code == mode::ALL_PAGES || page.0 == code;
    let of_subpage = |page: &PageCode| subpage == mode::ALL_SUBPAGES || page.1 == subpage;
    let pages_of_unit = || PAGES.into_iter().filter(|page| is_page(unit, *page));
    if !pages_of_unit().any(|page| of_code(&page)) {
        return Err(sense::invalid_bit(2, 5).into());
    }
    let one_of_all = code == mode::ALL_PAGES && subpage != 0 && subpage != mode::ALL_SUBPAGES;
    if one_of_all || !pages_of_unit().any(|page| of_code(&page) && of_subpage(&page)) {
        return Err(sense::invalid_field(3).into());
    }
    let mut pages = Vec::new();
    for page in pages_of_unit().filter(|page| of_code(page) && of_subpage(page)) {
        let mut bytes = page_of(unit, page, control).ok_or(Fault::BUSY)?;
        if is_savable(unit, page)
            && let Some(first) = bytes.first_mut()
        {
            *first |= SAVABLE;
        }
        pages.extend(bytes);
    }
    let specific = DeviceSpecific {
        write_protected: unit.geometry().read_only || unit.is_special(Special::WriteProtected),
        dpo_fua: true,
    };
    let descriptor =
        (!asked.without_descriptor).then(|| block_descriptor(unit, asked.long_allowed));
    Ok(mode::emit(asked.header, specific, descriptor, &pages))
}

fn is_savable(unit: &LogicalUnit, page: PageCode) -> bool {
    let changeable = match page {
        (mode::CONTROL, 0) => true,
        (mode::CACHING, 0) => unit.modes().has_cache(),
        _ => false,
    };
    changeable && unit.modes().can_save()
}

/// True if the unit has such a page: thresholds are those of thin units.
pub(super) fn is_page(unit: &LogicalUnit, page: PageCode) -> bool {
    let thin_only = page == (mode::INFORMATIONAL_EXCEPTIONS, provisioning::THRESHOLDS);
    PAGES.contains(&page) && (!thin_only || unit.can_discard())
}

/// A page with the values that `control` asks for; None if there is no such page.
pub(super) fn page_of(unit: &LogicalUnit, page: PageCode, control: PageControl) -> Option<Vec<u8>> {
    let modes = unit.modes();
    let values = match control {
        PageControl::Current => modes.current(),
        PageControl::Saved => modes.saved(),
        PageControl::Default => modes.default(),
        PageControl::Changeable => return mask_of(unit, page),
    };
    let Parameters { control, caching } = values;
    Some(match page {
        (mode::CACHING, 0) => caching.emit().to_vec(),
        (mode::CONTROL, 0) => control.emit().to_vec(),
        (mode::CONTROL, mode::CONTROL_EXTENSION) => {
            let sense_len_max = limits::SENSE_LEN_MAX;
            ControlExtension { scsi_precedence: true, sense_len_max }.emit().to_vec()
        }
        (mode::INFORMATIONAL_EXCEPTIONS, 0) => mode::informational_exceptions().to_vec(),
        (mode::INFORMATIONAL_EXCEPTIONS, provisioning::THRESHOLDS) => {
            unit.thresholds().emit().to_vec()
        }
        (provisioning::ERROR_RECOVERY, 0) => unit.error_recovery().emit().to_vec(),
        _ => return None,
    })
}

/// The bits of a page that can be changed.
fn mask_of(unit: &LogicalUnit, page: PageCode) -> Option<Vec<u8>> {
    match page {
        (mode::CACHING, 0) => Some(unit.modes().caching_mask().to_vec()),
        (mode::CONTROL, 0) => Some(unit.modes().control_mask().to_vec()),
        _ => {
            let mut bytes = page_of(unit, page, PageControl::Default)?;
            let header = if page.1 == 0 { 2 } else { 4 };
            bytes.get_mut(header..)?.fill(0);
            Some(bytes)
        }
    }
}

fn block_descriptor(unit: &LogicalUnit, long: bool) -> BlockDescriptor {
    let (blocks, length) = (unit.blocks(), unit.block());
    if long {
        BlockDescriptor::Long { blocks, length }
    } else {
        BlockDescriptor::Short { blocks: u32::try_from(blocks).unwrap_or(u32::MAX), length }
    }
}
