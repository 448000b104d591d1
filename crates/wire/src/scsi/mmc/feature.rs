// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Features of a drive (MMC-6 §5.3) and GET CONFIGURATION data, which lists them.

use super::super::field::get_u8;
use super::super::field::get_u16;
use super::super::field::put;
use super::BLOCK_LEN;
use alloc::vec;
use alloc::vec::Vec;

/// A profile (MMC-6 §5.3.1, table 93).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those that this crate writes
#[repr(u16)]
pub enum Profile {
    /// No medium.
    None = 0x0000,
    /// CD-ROM.
    CdRom = 0x0008,
    /// DVD-ROM.
    DvdRom = 0x0010,
}

/// A feature descriptor (MMC-6 §5.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Feature code.
    pub code: u16,
    /// VERSION, four bits.
    pub version: u8,
    /// It is always current.
    pub persistent: bool,
    /// It is current now.
    pub current: bool,
    /// What depends on the feature; a multiple of four bytes.
    pub data: Vec<u8>,
}

/// Whether what a feature speaks of is so with the medium that is in the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // one bit
pub enum Current {
    /// It is.
    Yes,
    /// It is not.
    No,
}

impl Feature {
    /// Profile List (MMC-6 §5.3.1): a DVD-ROM and a CD-ROM drive, of which `profile` is current.
    #[must_use]
    pub fn profile_list(profile: Profile) -> Self {
        let mut data = Vec::new();
        for listed in [Profile::DvdRom, Profile::CdRom] {
            let [high, low] = (listed as u16).to_be_bytes();
            data.extend_from_slice(&[high, low, u8::from(listed == profile), 0]);
        }
        Self::always(0x0000, 0, data)
    }

    /// Core (MMC-6 §5.3.2): SCSI; device busy events are not told.
    #[must_use]
    pub fn core() -> Self {
        const SCSI: u8 = 1;
        Self::always(0x0001, 2, vec![0, 0, 0, SCSI, 0, 0, 0, 0])
    }

    /// Morphing (MMC-6 §5.3.3): features change with the medium, and the host polls.
    #[must_use]
    pub fn morphing() -> Self {
        Self::always(0x0002, 1, vec![0; 4])
    }

    /// Removable Medium (MMC-6 §5.3.4): a tray that can be opened and locked.
    #[must_use]
    pub fn removable_medium() -> Self {
        const TRAY: u8 = 1 << 5;
        const EJECT: u8 = 1 << 3;
        const LOCK: u8 = 1;
        Self::always(0x0003, 0, vec![TRAY | EJECT | LOCK, 0, 0, 0])
    }

    /// Random Readable (MMC-6 §5.3.7); `blocking`: blocks that are read at once.
    #[must_use]
    pub fn random_readable(blocking: u16, current: Current) -> Self {
        let mut data = BLOCK_LEN.to_be_bytes().to_vec();
        data.extend_from_slice(&blocking.to_be_bytes());
        data.extend_from_slice(&[0; 2]);
        Self::of_medium(0x0010, 0, current, data)
    }

    /// CD Read (MMC-6 §5.3.11).
    #[must_use]
    pub fn cd_read(current: Current) -> Self {
        Self::of_medium(0x001e, 2, current, vec![0; 4])
    }

    /// DVD Read (MMC-6 §5.3.12).
    #[must_use]
    pub fn dvd_read(current: Current) -> Self {
        Self::of_medium(0x001f, 0, current, Vec::new())
    }

    /// Time-out.
    #[must_use]
    pub fn timeout() -> Self {
        Self::always(0x0105, 0, Vec::new())
    }

    /// Logical Unit Serial Number; spaces fill it up.
    #[must_use]
    pub fn serial_number(serial: &str) -> Self {
        let mut data = serial.as_bytes().to_vec();
        data.resize(data.len().next_multiple_of(4), b' ');
        Self::always(0x0108, 0, data)
    }

    const fn always(code: u16, version: u8, data: Vec<u8>) -> Self {
        Self { code, version, persistent: true, current: true, data }
    }

    fn of_medium(code: u16, version: u8, current: Current, data: Vec<u8>) -> Self {
        Self { code, version, persistent: false, current: current == Current::Yes, data }
    }
}

/// Length of the header of GET CONFIGURATION data, bytes.
const FEATURE_HEADER_LEN: usize = 8;

/// GET CONFIGURATION data (MMC-6 §6.6.3).
#[must_use]
pub fn configuration<'a>(
    profile: Profile,
    features: impl IntoIterator<Item = &'a Feature>,
) -> Vec<u8> {
    let [high, low] = (profile as u16).to_be_bytes();
    let mut bytes = vec![0, 0, 0, 0, 0, 0, high, low];
    for feature in features {
        let [high, low] = feature.code.to_be_bytes();
        let flags = (feature.version & 0x0f) << 2
            | u8::from(feature.persistent) << 1
            | u8::from(feature.current);
        let length = u8::try_from(feature.data.len()).unwrap_or(0);
        bytes.extend_from_slice(&[high, low, flags, length]);
        bytes.extend_from_slice(feature.data.get(..usize::from(length)).unwrap_or_default());
    }
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    put(&mut bytes, 0, length.to_be_bytes());
    bytes
}

/// Reads GET CONFIGURATION data as current profile and features; ends at the first one that is cut.
#[must_use]
pub fn parse_configuration(bytes: &[u8]) -> Option<(u16, Vec<Feature>)> {
    let profile = get_u16(bytes, 6)?;
    let mut features = Vec::new();
    let mut rest = bytes.get(FEATURE_HEADER_LEN..)?;
    while let (Some(code), Some(flags), Some(length)) =
        (get_u16(rest, 0), get_u8(rest, 2), get_u8(rest, 3))
    {
        let Some((feature, after)) = rest.split_at_checked(4 + usize::from(length)) else { break };
        features.push(Feature {
            code,
            version: flags >> 2 & 0x0f,
            persistent: flags & 2 != 0,
            current: flags & 1 != 0,
            data: feature.get(4..).unwrap_or_default().to_vec(),
        });
        rest = after;
    }
    Some((profile, features))
}

#[cfg(test)]
mod tests {
    use super::super::super::field::get_u32;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors() {
        let list = Feature::profile_list(Profile::DvdRom);
        assert_eq!(list.data, [0, 0x10, 1, 0, 0, 8, 0, 0]);
        assert_eq!(Feature::removable_medium().data, [0x29, 0, 0, 0]);
        let readable = Feature::random_readable(16, Current::Yes);
        assert_eq!(readable.data, [0, 0, 8, 0, 0, 16, 0, 0]);
        assert_eq!(Feature::serial_number("abcde").data, *b"abcde   ");
        let bytes = configuration(Profile::CdRom, [&Feature::cd_read(Current::No)]);
        assert_eq!(bytes, [0, 0, 0, 12, 0, 0, 0, 8, 0, 0x1e, 8, 4, 0, 0, 0, 0]);
    }

    fn feature() -> impl Strategy<Value = Feature> {
        (any::<u16>(), 0_u8..16, any::<bool>(), any::<bool>(), 0_usize..4).prop_map(
            |(code, version, persistent, current, words)| Feature {
                code,
                version,
                persistent,
                current,
                data: vec![7; words * 4],
            },
        )
    }

    proptest! {
        #[test]
        fn configurations_round_trip(features in proptest::collection::vec(feature(), 0..20)) {
            let bytes = configuration(Profile::DvdRom, &features);
            let length = u32::try_from(bytes.len()).unwrap() - 4;
            prop_assert_eq!(get_u32(&bytes, 0), Some(length));
            prop_assert_eq!(parse_configuration(&bytes), Some((0x10, features)));
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_configuration(&bytes);
        }
    }
}
