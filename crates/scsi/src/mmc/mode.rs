// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MODE SENSE of a drive (MMC-6 §7): pages that cannot be changed, no block descriptor.

use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use alloc::vec::Vec;
use wire::scsi::mmc;
use wire::scsi::mmc::page;
use wire::scsi::mode;
use wire::scsi::mode::DeviceSpecific;
use wire::scsi::mode::PageControl;
use wire::scsi::mode::Sense;

/// Ascending.
const PAGES: [u8; 5] = [
    page::ERROR_RECOVERY,
    page::CD_DEVICE,
    mode::INFORMATIONAL_EXCEPTIONS,
    page::TIMEOUT,
    page::CAPABILITIES,
];

/// MODE SENSE(6), (10).
pub(crate) fn mode_sense(context: &Context<'_>) -> Result<Started, Fault> {
    let asked = Sense::parse(&context.cdb);
    Ok(data(mode_data(context, &asked)?, u32::from(asked.allocation)))
}

fn mode_data(context: &Context<'_>, asked: &Sense) -> Result<Vec<u8>, Fault> {
    let (control, (code, subpage)) = (asked.control, asked.page);
    if control == PageControl::Saved {
        return Err(sense::SAVING_NOT_SUPPORTED.into());
    }
    if code != mode::ALL_PAGES && !PAGES.contains(&code) {
        return Err(sense::invalid_bit(2, 5).into());
    }
    if subpage != 0 && subpage != mode::ALL_SUBPAGES {
        return Err(sense::invalid_field(3).into());
    }
    let mut pages = Vec::new();
    for code in PAGES.into_iter().filter(|page| code == mode::ALL_PAGES || *page == code) {
        let mut bytes = page_of(context, code);
        if control == PageControl::Changeable
            && let Some(parameters) = bytes.get_mut(2..)
        {
            parameters.fill(0);
        }
        pages.extend(bytes);
    }
    let specific = DeviceSpecific { write_protected: true, dpo_fua: false };
    Ok(mode::emit(asked.header, specific, None, &pages))
}

fn page_of(context: &Context<'_>, code: u8) -> Vec<u8> {
    match code {
        page::ERROR_RECOVERY => mmc::error_recovery_page(),
        page::CD_DEVICE => mmc::cd_device_page(),
        page::TIMEOUT => mmc::timeout_page(),
        page::CAPABILITIES => mmc::capabilities_page(
            context.unit.any_nexus(|nexus_state| nexus_state.medium.prevents()),
        ),
        _ => mode::informational_exceptions().to_vec(),
    }
}
