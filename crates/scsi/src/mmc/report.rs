// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a drive tells of itself and of its disc: GET CONFIGURATION, READ TOC/PMA/ATIP, READ DISC
//! INFORMATION, READ TRACK INFORMATION, READ DISC STRUCTURE (MMC-6 §6.6, §6.25, §6.21, §6.26,
//! §6.22).

use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use crate::task::good;
use alloc::vec;
use alloc::vec::Vec;
use wire::scsi::mmc;
use wire::scsi::mmc::Current;
use wire::scsi::mmc::Feature;
use wire::scsi::mmc::Features;
use wire::scsi::mmc::GetConfiguration;
use wire::scsi::mmc::Profile;
use wire::scsi::mmc::ReadDiscInformation;
use wire::scsi::mmc::ReadDiscStructure;
use wire::scsi::mmc::ReadToc;
use wire::scsi::mmc::ReadTrackInformation;
use wire::scsi::mmc::TrackOf;

/// What the disc is: a CD holds no more than [`limits::CD_BLOCKS_MAX`], all else is a DVD.
fn profile(unit: &LogicalUnit) -> Profile {
    if unit.is_special(Special::Ejected) {
        Profile::None
    } else if unit.blocks() <= limits::CD_BLOCKS_MAX {
        Profile::CdRom
    } else {
        Profile::DvdRom
    }
}

/// GET CONFIGURATION.
pub(crate) fn configuration(context: &Context<'_>) -> Result<Started, Fault> {
    let unit = context.unit;
    let GetConfiguration { features: asked, first, allocation } =
        GetConfiguration::parse(&context.cdb);
    let asked = asked.ok_or_else(|| sense::invalid_bit(1, 1))?;
    let profile = profile(unit);
    let features = features(unit, profile);
    let shown = features.iter().filter(|feature| match asked {
        Features::One => feature.code == first,
        Features::Current => feature.code >= first && feature.current,
        Features::All => feature.code >= first,
    });
    Ok(data(mmc::configuration(profile, shown), u32::from(allocation)))
}

/// Every feature of the drive, ascending (MMC-6 §5.3).
fn features(unit: &LogicalUnit, profile: Profile) -> Vec<Feature> {
    let current = |holds| if holds { Current::Yes } else { Current::No };
    let (cd, dvd) = (profile == Profile::CdRom, profile == Profile::DvdRom);
    // One sector of a CD, an ECC block of a DVD.
    let blocking = if dvd { 16 } else { 1 };
    vec![
        Feature::profile_list(profile),
        Feature::core(),
        Feature::morphing(),
        Feature::removable_medium(),
        Feature::random_readable(blocking, current(cd || dvd)),
        Feature::cd_read(current(cd)),
        Feature::dvd_read(current(dvd)),
        Feature::timeout(),
        Feature::serial_number(&unit.identity().serial),
    ]
}

/// READ TOC/PMA/ATIP.
pub(crate) fn table_of_contents(context: &Context<'_>) -> Result<Started, Fault> {
    let blocks = context.unit.blocks();
    let ReadToc { format, addresses, number, allocation } = ReadToc::parse(&context.cdb);
    let bytes = match format {
        0 => mmc::toc(number, blocks, addresses).ok_or(sense::invalid_field(6))?,
        1 => mmc::sessions(addresses),
        2 if number > 1 => return Err(sense::invalid_field(6).into()),
        2 => mmc::full_toc(blocks),
        _ => return Err(sense::invalid_bit(2, 3).into()),
    };
    Ok(data(bytes, u32::from(allocation)))
}

/// READ DISC INFORMATION: the standard form.
pub(crate) fn disc_information(context: &Context<'_>) -> Result<Started, Fault> {
    let ReadDiscInformation { form, allocation } = ReadDiscInformation::parse(&context.cdb);
    if form != 0 {
        return Err(sense::invalid_bit(1, 2).into());
    }
    Ok(data(mmc::disc_information(), u32::from(allocation)))
}

/// READ TRACK INFORMATION: by block, by track or by session.
pub(crate) fn track_information(context: &Context<'_>) -> Result<Started, Fault> {
    let unit = context.unit;
    let ReadTrackInformation { of, allocation } = ReadTrackInformation::parse(&context.cdb);
    match of.ok_or_else(|| sense::invalid_bit(1, 1))? {
        TrackOf::Block(lba) => {
            unit.extent(u64::from(lba), 1)?;
        }
        TrackOf::Track(1) | TrackOf::Session(1) => {}
        TrackOf::Track(_) | TrackOf::Session(_) => return Err(sense::invalid_field(2).into()),
    }
    Ok(data(mmc::track_information(unit.blocks()), u32::from(allocation)))
}

/// READ DISC STRUCTURE of a DVD.
pub(crate) fn disc_structure(context: &Context<'_>) -> Result<Started, Fault> {
    const DVD: u8 = 0;
    let unit = context.unit;
    let asked = ReadDiscStructure::parse(&context.cdb);
    if asked.medium != DVD {
        return Err(sense::invalid_bit(1, 3).into());
    }
    if profile(unit) != Profile::DvdRom {
        return Err(sense::INCOMPATIBLE_FORMAT.into());
    }
    if asked.layer != 0 {
        return Err(sense::invalid_field(6).into());
    }
    let bytes = match asked.format {
        0x00 => mmc::dvd_physical(unit.blocks()),
        0x01 => mmc::dvd_copyright(),
        0x04 => mmc::dvd_manufacturing(),
        0xff => mmc::structure_list(),
        _ => return Err(sense::invalid_field(7).into()),
    };
    Ok(data(bytes, u32::from(asked.allocation)))
}

/// SET CD SPEED: a file is as quick as it is.
pub(crate) fn set_speed(_context: &Context<'_>) -> Result<Started, Fault> {
    Ok(good(0))
}
