// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CDBs that ask a drive what it and its disc are (MMC-6 §6).

use super::Addresses;
use crate::scsi::cdb::CdbView;

/// Which features GET CONFIGURATION gives: RT (MMC-6 §6.6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits, of which one value is reserved
pub enum Features {
    /// All from the one that is named on.
    All,
    /// Those of them that are current.
    Current,
    /// The one that is named alone.
    One,
}

/// GET CONFIGURATION (MMC-6 §6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetConfiguration {
    /// None for the reserved value.
    pub features: Option<Features>,
    /// STARTING FEATURE NUMBER.
    pub first: u16,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u16,
}

impl GetConfiguration {
    /// Reads a CDB with this operation code.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        let features = match cdb.byte(1) & 3 {
            0 => Some(Features::All),
            1 => Some(Features::Current),
            2 => Some(Features::One),
            _ => None,
        };
        Self { features, first: cdb.u16_at(2), allocation: cdb.u16_at(7) }
    }
}

/// READ TOC/PMA/ATIP (MMC-6 §6.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadToc {
    /// FORMAT. It stands in byte 2, or, for hosts of old, at the top of CONTROL.
    pub format: u8,
    /// MSF.
    pub addresses: Addresses,
    /// TRACK/SESSION NUMBER.
    pub number: u8,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u16,
}

impl ReadToc {
    /// Reads a CDB with this operation code.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        let format = match cdb.byte(2) & 0x0f {
            0 => cdb.byte(9) >> 6,
            format => format,
        };
        let addresses = if cdb.bit(1, 1) { Addresses::Msf } else { Addresses::Blocks };
        Self { format, addresses, number: cdb.byte(6), allocation: cdb.u16_at(7) }
    }
}

/// READ DISC INFORMATION (MMC-6 §6.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDiscInformation {
    /// DATA TYPE; zero is the standard form.
    pub form: u8,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u16,
}

impl ReadDiscInformation {
    /// Reads a CDB with this operation code.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        Self { form: cdb.byte(1) & 7, allocation: cdb.u16_at(7) }
    }
}

/// What READ TRACK INFORMATION names (MMC-6 §6.26.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits, of which one value is reserved
pub enum TrackOf {
    /// The track of a block.
    Block(u32),
    /// A track by its number.
    Track(u32),
    /// The first track of a session.
    Session(u32),
}

/// READ TRACK INFORMATION (MMC-6 §6.26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTrackInformation {
    /// None for the reserved value.
    pub of: Option<TrackOf>,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u16,
}

impl ReadTrackInformation {
    /// Reads a CDB with this operation code.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        let number = cdb.u32_at(2);
        let of = match cdb.byte(1) & 3 {
            0 => Some(TrackOf::Block(number)),
            1 => Some(TrackOf::Track(number)),
            2 => Some(TrackOf::Session(number)),
            _ => None,
        };
        Self { of, allocation: cdb.u16_at(7) }
    }
}

/// READ DISC STRUCTURE (MMC-6 §6.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDiscStructure {
    /// MEDIA TYPE; zero is a DVD.
    pub medium: u8,
    /// LAYER NUMBER.
    pub layer: u8,
    /// FORMAT.
    pub format: u8,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u16,
}

impl ReadDiscStructure {
    /// Reads a CDB with this operation code.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        Self {
            medium: cdb.byte(1) & 0x0f,
            layer: cdb.byte(6),
            format: cdb.byte(7),
            allocation: cdb.u16_at(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::Cdb;

    fn cdb(bytes: &[u8]) -> Cdb {
        Cdb::new(bytes).expect("32 bytes at most")
    }

    #[test]
    fn get_configuration_vectors() {
        let one = cdb(&[0x46, 0x02, 0x01, 0x08, 0, 0, 0, 0x12, 0x34, 0]);
        let expected =
            GetConfiguration { features: Some(Features::One), first: 0x108, allocation: 0x1234 };
        assert_eq!(GetConfiguration::parse(&CdbView::new(&one)), expected);
        let reserved = cdb(&[0x46, 0x03]);
        assert_eq!(GetConfiguration::parse(&CdbView::new(&reserved)).features, None);
    }

    #[test]
    fn the_format_of_a_table_of_contents_stands_in_two_places() {
        let new = cdb(&[0x43, 0x02, 0x02, 0, 0, 0, 1, 0, 8, 0x40]);
        let expected = ReadToc { format: 2, addresses: Addresses::Msf, number: 1, allocation: 8 };
        assert_eq!(ReadToc::parse(&CdbView::new(&new)), expected);
        let old = cdb(&[0x43, 0, 0, 0, 0, 0, 0, 0, 8, 0x40]);
        let expected =
            ReadToc { format: 1, addresses: Addresses::Blocks, number: 0, allocation: 8 };
        assert_eq!(ReadToc::parse(&CdbView::new(&old)), expected);
    }

    #[test]
    fn disc_and_track_vectors() {
        let disc = cdb(&[0x51, 0x01, 0, 0, 0, 0, 0, 0, 34, 0]);
        let expected = ReadDiscInformation { form: 1, allocation: 34 };
        assert_eq!(ReadDiscInformation::parse(&CdbView::new(&disc)), expected);
        let track = cdb(&[0x52, 0x01, 0, 0, 0, 1, 0, 0, 36, 0]);
        let expected = ReadTrackInformation { of: Some(TrackOf::Track(1)), allocation: 36 };
        assert_eq!(ReadTrackInformation::parse(&CdbView::new(&track)), expected);
        let reserved = cdb(&[0x52, 0x03]);
        assert_eq!(ReadTrackInformation::parse(&CdbView::new(&reserved)).of, None);
        let structure = cdb(&[0xad, 0, 0, 0, 0, 0, 1, 4, 0x08, 0x04, 0, 0]);
        let expected = ReadDiscStructure { medium: 0, layer: 1, format: 4, allocation: 0x804 };
        assert_eq!(ReadDiscStructure::parse(&CdbView::new(&structure)), expected);
    }
}
