// SPDX-License-Identifier: Apache-2.0 OR MIT
//! READ CD (MMC-6 §6.19): user data of the data track, or nothing.

use crate::limits;
use crate::lun::Context;
use crate::sbc::rw;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Started;

/// EXPECTED SECTOR TYPE: any, and mode 1, which all sectors are.
const ANY_TYPE: u8 = 0;
const MODE_1: u8 = 2;
/// USER DATA alone, of the main channel selection.
const USER_DATA: u8 = 0x10;

/// READ CD. Sync, headers and error correction of sectors are not kept in an image, nor are
/// subchannels.
pub(crate) fn read_cd(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    if !matches!(cdb.byte(1) >> 2 & 7, ANY_TYPE | MODE_1) {
        return Err(sense::ILLEGAL_TRACK_MODE.into());
    }
    if cdb.byte(10) & 7 != 0 {
        return Err(sense::invalid_bit(10, 2).into());
    }
    let blocks = u64::from(cdb.u32_at(5) & 0x00ff_ffff);
    let extent = unit.extent(cdb.lba(), blocks)?;
    if extent.length > u64::from(limits::TRANSFER_MAX) {
        return Err(sense::invalid_field(6).into());
    }
    match cdb.byte(9) {
        0 => Ok(task::good(0)),
        USER_DATA => rw::read_extent(context, extent, false),
        _ => Err(sense::invalid_bit(9, 7).into()),
    }
}
