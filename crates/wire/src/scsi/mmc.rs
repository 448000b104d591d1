// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameter data of CD and DVD drives (MMC-6): a medium with one session of one data track.

mod cdb;
mod feature;

pub use cdb::Features;
pub use cdb::GetConfiguration;
pub use cdb::ReadDiscInformation;
pub use cdb::ReadDiscStructure;
pub use cdb::ReadToc;
pub use cdb::ReadTrackInformation;
pub use cdb::TrackOf;
pub use feature::Current;
pub use feature::Feature;
pub use feature::Profile;
pub use feature::configuration;
pub use feature::parse_configuration;

use super::field::get_u32;
use super::field::put;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of user data in a sector of mode 1, and the logical block length.
pub const BLOCK_LEN: u32 = 2048;

/// TRACK NUMBER of the lead-out area (MMC-6 §4.2.3.5.2).
pub const LEAD_OUT: u8 = 0xaa;
/// The only track.
const TRACK: u8 = 1;
/// ADR 1 (position), CONTROL 4 (data track, no copy permission).
const DATA_TRACK: u8 = 0x14;
/// Sectors before the one with logical block address 0.
const LEAD_IN_SECTORS: u64 = 150;
/// Sectors of a second.
const SECTORS_PER_SECOND: u64 = 75;
/// Addresses in minutes, seconds and frames end here.
const MSF_MAX: [u8; 3] = [255, 59, 74];

/// A block address in minutes, seconds and frames (MMC-6 §4.2.3.3); the largest one for those that
/// cannot be said.
#[must_use]
pub fn msf(lba: u64) -> [u8; 3] {
    let sectors = lba.saturating_add(LEAD_IN_SECTORS);
    let (seconds, frame) = (sectors / SECTORS_PER_SECOND, sectors % SECTORS_PER_SECOND);
    let field = |value: u64| u8::try_from(value).ok();
    match (field(seconds / 60), field(seconds % 60), field(frame)) {
        (Some(minute), Some(second), Some(frame)) => [minute, second, frame],
        _ => MSF_MAX,
    }
}

/// How addresses are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // one bit
pub enum Addresses {
    /// Logical block addresses.
    Blocks,
    /// Minutes, seconds, frames.
    Msf,
}

impl Addresses {
    fn emit(self, lba: u64) -> [u8; 4] {
        match self {
            Self::Blocks => u32::try_from(lba).unwrap_or(u32::MAX).to_be_bytes(),
            Self::Msf => {
                let [minute, second, frame] = msf(lba);
                [0, minute, second, frame]
            }
        }
    }
}

/// Table of contents (MMC-6 §6.25.3.2, format 0): the track, if it is asked for, and the lead-out
/// at `end`. None if `first` names no track.
#[must_use]
pub fn toc(first: u8, end: u64, addresses: Addresses) -> Option<Vec<u8>> {
    if first > TRACK && first != LEAD_OUT {
        return None;
    }
    let mut bytes = vec![0, 0, TRACK, TRACK];
    for (number, lba) in [(TRACK, 0), (LEAD_OUT, end)] {
        if number >= first {
            bytes.extend_from_slice(&[0, DATA_TRACK, number, 0]);
            bytes.extend_from_slice(&addresses.emit(lba));
        }
    }
    Some(with_length(bytes))
}

/// Session information (MMC-6 §6.25.3.3, format 1).
#[must_use]
pub fn sessions(addresses: Addresses) -> Vec<u8> {
    let mut bytes = vec![0, 0, 1, 1, 0, DATA_TRACK, TRACK, 0];
    bytes.extend_from_slice(&addresses.emit(0));
    with_length(bytes)
}

/// Full table of contents (MMC-6 §6.25.3.4, format 2), always in minutes, seconds and frames.
#[must_use]
pub fn full_toc(end: u64) -> Vec<u8> {
    const FIRST_TRACK: u8 = 0xa0;
    const LAST_TRACK: u8 = 0xa1;
    const START_OF_LEAD_OUT: u8 = 0xa2;
    let mut bytes = vec![0, 0, 1, 1];
    for (point, [minute, second, frame]) in [
        (FIRST_TRACK, [TRACK, 0, 0]),
        (LAST_TRACK, [TRACK, 0, 0]),
        (START_OF_LEAD_OUT, msf(end)),
        (TRACK, msf(0)),
    ] {
        bytes.extend_from_slice(&[1, DATA_TRACK, 0, point, 0, 0, 0, 0, minute, second, frame]);
    }
    with_length(bytes)
}

/// Sets the length field of the first two bytes, which counts what follows it.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(bytes.len().saturating_sub(2)).unwrap_or(u16::MAX);
    put(&mut bytes, 0, length.to_be_bytes());
    bytes
}

/// Class of media events, as a number and as a bit of a request (MMC-6 §6.7.2).
pub const MEDIA_CLASS: u8 = 4;

/// What happened to the medium (MMC-6 §6.7.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those that this crate writes
#[repr(u8)]
pub enum MediaEvent {
    /// Nothing.
    None = 0,
    /// There is a new one.
    New = 2,
    /// It was taken out.
    Removed = 3,
}

/// GET EVENT STATUS NOTIFICATION data of the media class; None: no class that was asked for is
/// supported.
#[must_use]
pub fn event_status(media: Option<(MediaEvent, bool)>) -> Vec<u8> {
    const SUPPORTED: u8 = 1 << MEDIA_CLASS;
    const NO_EVENT_AVAILABLE: u8 = 0x80;
    match media {
        None => vec![0, 2, NO_EVENT_AVAILABLE, SUPPORTED],
        Some((event, present)) => {
            let status = if present { 0x02 } else { 0x01 };
            vec![0, 6, MEDIA_CLASS, SUPPORTED, event as u8, status, 0, 0]
        }
    }
}

/// READ DISC INFORMATION data (MMC-6 §6.21.3): complete, not erasable.
#[must_use]
pub fn disc_information() -> Vec<u8> {
    const COMPLETE: u8 = 0x0e;
    const NOT_THERE: [u8; 4] = [0xff; 4];
    let mut bytes = vec![0; 34];
    put(&mut bytes, 2, [COMPLETE, TRACK, 1, TRACK, TRACK]);
    put(&mut bytes, 16, NOT_THERE);
    put(&mut bytes, 20, NOT_THERE);
    with_length(bytes)
}

/// READ TRACK INFORMATION data (MMC-6 §6.26.3) of the track, which has `blocks` blocks.
#[must_use]
pub fn track_information(blocks: u64) -> Vec<u8> {
    const DATA: u8 = 0x04;
    const MODE_1: u8 = 0x01;
    const LAST_VALID: u8 = 0x02;
    let clamp = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = vec![0; 36];
    put(&mut bytes, 2, [TRACK, 1, 0, DATA, MODE_1, LAST_VALID]);
    put(&mut bytes, 24, clamp(blocks));
    put(&mut bytes, 28, clamp(blocks.saturating_sub(1)));
    with_length(bytes)
}

/// MECHANISM STATUS data (MMC-6 §6.11.3) of a drive without changer.
#[must_use]
pub const fn mechanism_status(door_open: bool) -> [u8; 8] {
    [0, if door_open { 0x10 } else { 0 }, 0, 0, 0, 1, 0, 0]
}

/// First physical sector of a DVD's data area.
const DVD_START: u32 = 0x03_0000;

/// READ DISC STRUCTURE, format 00h: physical format information (MMC-6 §6.22.3.2.1) of a DVD-ROM
/// with one layer of `blocks` blocks.
#[must_use]
pub fn dvd_physical(blocks: u64) -> Vec<u8> {
    const MAX_24_BITS: u32 = 0x00ff_ffff;
    let end = u32::try_from(blocks.saturating_sub(1)).unwrap_or(MAX_24_BITS);
    let end = end.saturating_add(DVD_START).min(MAX_24_BITS);
    // DVD-ROM, version 1; 120 mm, rate not specified; one embossed layer; 0.267 um by 0.74 um.
    let mut data = vec![0x01, 0x0f, 0x01, 0x00];
    data.extend_from_slice(&DVD_START.to_be_bytes());
    data.extend_from_slice(&end.to_be_bytes());
    data.resize(2048, 0);
    structure(&data)
}

/// Format 01h: no copyright protection, playable in every region.
#[must_use]
pub fn dvd_copyright() -> Vec<u8> {
    structure(&[0; 4])
}

/// Format 04h: disc manufacturing information, of which there is none.
#[must_use]
pub fn dvd_manufacturing() -> Vec<u8> {
    structure(&[0; 2048])
}

/// Format FFh: which formats can be read, each with the length of its data.
#[must_use]
pub fn structure_list() -> Vec<u8> {
    const READABLE: u8 = 0x40;
    let mut data = Vec::new();
    for (format, length) in [(0x00, 2052_u16), (0x01, 8), (0x04, 2052)] {
        let [high, low] = length.to_be_bytes();
        data.extend_from_slice(&[format, READABLE, high, low]);
    }
    structure(&data)
}

fn structure(data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(data);
    with_length(bytes)
}

/// Page codes of the mode parameters of a drive.
pub mod page {
    /// Read-write error recovery.
    pub const ERROR_RECOVERY: u8 = 0x01;
    /// CD device parameters.
    pub const CD_DEVICE: u8 = 0x0d;
    /// Time-out and protect.
    pub const TIMEOUT: u8 = 0x1d;
    /// Capabilities and mechanical status.
    pub const CAPABILITIES: u8 = 0x2a;
}

/// Read-write error recovery page of a drive (MMC-6 §7.2): everything is tried, nothing is told.
#[must_use]
pub fn error_recovery_page() -> Vec<u8> {
    fixed_page(page::ERROR_RECOVERY, 10)
}

/// CD device parameters page: 60 seconds of a minute, 75 frames of a second.
#[must_use]
pub fn cd_device_page() -> Vec<u8> {
    let mut bytes = fixed_page(page::CD_DEVICE, 6);
    put(&mut bytes, 4, [0, 60, 0, 75]);
    bytes
}

/// Time-out and protect page (MMC-6 §7.5): no time-outs.
#[must_use]
pub fn timeout_page() -> Vec<u8> {
    fixed_page(page::TIMEOUT, 8)
}

/// Capabilities and mechanical status page (MMC-3 §6.3.11): CDs and DVDs, a tray with a lock.
#[must_use]
pub fn capabilities_page(locked: bool) -> Vec<u8> {
    /// 48 times 176 kB/s, which nothing holds us to.
    const SPEED: u16 = 8467;
    const BUFFER_KIB: u16 = 2048;
    let mut bytes = fixed_page(page::CAPABILITIES, 22);
    bytes[2] = 0x0b;
    bytes[6] = 0x29 | if locked { 0x02 } else { 0 };
    put(&mut bytes, 8, SPEED.to_be_bytes());
    put(&mut bytes, 12, BUFFER_KIB.to_be_bytes());
    put(&mut bytes, 14, SPEED.to_be_bytes());
    bytes
}

fn fixed_page(code: u8, length: u8) -> Vec<u8> {
    let mut bytes = vec![0; 2 + usize::from(length)];
    put(&mut bytes, 0, [code, length]);
    bytes
}

/// The track as a table of contents has it: (first block of the track, first block of the
/// lead-out); None if it is cut. Of the form with block addresses.
#[must_use]
pub fn parse_toc(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((get_u32(bytes, 8)?, get_u32(bytes, 16)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_in_minutes() {
        assert_eq!(msf(0), [0, 2, 0]);
        assert_eq!(msf(74), [0, 2, 74]);
        assert_eq!(msf(333_000 - 150), [74, 0, 0]);
        assert_eq!(msf(1_151_849), [255, 59, 74]);
        assert_eq!(msf(u64::MAX), [255, 59, 74]);
    }

    #[test]
    fn tables_of_contents() {
        let whole = [0, 18, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0, 0, 0x14, 0xaa, 0, 0, 0, 0x10, 0];
        assert_eq!(toc(0, 4096, Addresses::Blocks).unwrap(), whole);
        assert_eq!(parse_toc(&whole), Some((0, 4096)));
        let lead_out = toc(LEAD_OUT, 4096, Addresses::Msf).unwrap();
        assert_eq!(lead_out, [0, 10, 1, 1, 0, 0x14, 0xaa, 0, 0, 0, 56, 46]);
        assert_eq!(toc(2, 4096, Addresses::Blocks), None);
        assert_eq!(sessions(Addresses::Blocks), [0, 10, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0]);
        let full = full_toc(4096);
        assert_eq!((full.len(), full[1]), (4 + 4 * 11, 46));
        assert_eq!(full[4 + 22..4 + 33], [1, 0x14, 0, 0xa2, 0, 0, 0, 0, 0, 56, 46]);
    }

    #[test]
    fn events_and_states() {
        assert_eq!(event_status(None), [0, 2, 0x80, 0x10]);
        let new = event_status(Some((MediaEvent::New, true)));
        assert_eq!(new, [0, 6, 4, 0x10, 2, 2, 0, 0]);
        assert_eq!(mechanism_status(true)[1], 0x10);
        let disc = disc_information();
        assert_eq!((disc.len(), disc[1], disc[2]), (34, 32, 0x0e));
        let track = track_information(1000);
        assert_eq!((track.len(), track[1]), (36, 34));
        assert_eq!(track[24..32], [0, 0, 3, 0xe8, 0, 0, 3, 0xe7]);
    }

    #[test]
    fn structures_of_a_dvd() {
        let physical = dvd_physical(0x1000);
        assert_eq!((physical.len(), &physical[..4]), (2052, &[0x08, 0x02, 0, 0][..]));
        assert_eq!(physical[8..16], [0, 3, 0, 0, 0, 3, 0x0f, 0xff]);
        assert_eq!(dvd_physical(1 << 40)[12..16], [0, 0xff, 0xff, 0xff]);
        assert_eq!(dvd_copyright(), [0, 6, 0, 0, 0, 0, 0, 0]);
        assert_eq!(structure_list()[..8], [0, 14, 0, 0, 0, 0x40, 0x08, 0x04]);
    }

    #[test]
    fn pages_say_their_length() {
        for bytes in
            [error_recovery_page(), cd_device_page(), timeout_page(), capabilities_page(true)]
        {
            assert_eq!(bytes.len(), 2 + usize::from(bytes[1]));
        }
        assert_eq!(capabilities_page(true)[6], 0x2b);
    }

    proptest! {
        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_toc(&bytes);
        }
    }
}
