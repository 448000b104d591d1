// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protection information (SBC-3 §4.22): what stands behind each logical block, and how commands
//! name it.

use super::field::get;

/// Bytes of protection information behind a logical block.
pub const INFORMATION_LEN: usize = 8;

/// Protection information of one logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// LOGICAL BLOCK GUARD: a CRC of the data.
    pub guard: u16,
    /// LOGICAL BLOCK APPLICATION TAG.
    pub application: u16,
    /// LOGICAL BLOCK REFERENCE TAG.
    pub reference: u32,
}

impl Information {
    /// All bits set: of a block that was never written, or was unmapped. Nothing of it is checked.
    pub const ONES: Self = Self { guard: u16::MAX, application: u16::MAX, reference: u32::MAX };

    /// Reads it.
    #[must_use]
    pub const fn parse(bytes: [u8; INFORMATION_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            guard: u16::from_be_bytes([a, b]),
            application: u16::from_be_bytes([c, d]),
            reference: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// The one that begins at byte `at`; None beyond the end.
    #[must_use]
    pub fn at(bytes: &[u8], at: usize) -> Option<Self> {
        get(bytes, at).map(Self::parse)
    }

    /// Writes it.
    #[must_use]
    pub const fn emit(&self) -> [u8; INFORMATION_LEN] {
        let [a, b] = self.guard.to_be_bytes();
        let [c, d] = self.application.to_be_bytes();
        let [e, f, g, h] = self.reference.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }
}

/// How a unit is protected (SBC-3 §4.22.2); a unit without protection is of type 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the standard has no further one for this device
pub enum ProtectionType {
    /// The reference tag is the low half of the LBA.
    One,
    /// The reference tag of the first block stands in 32-byte CDBs.
    Two,
    /// The reference tag is the application's.
    Three,
}

/// Why FORMAT UNIT cannot protect a unit so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two fields
pub enum BadProtection {
    /// FMTPINFO.
    Information,
    /// PROTECTION FIELD USAGE.
    Usage,
}

impl ProtectionType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::Three];

    /// 1, 2 or 3.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// The type with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Three),
            _ => None,
        }
    }

    /// What FMTPINFO and PROTECTION FIELD USAGE of FORMAT UNIT ask for (SBC-3 §5.2.2); None is no
    /// protection.
    ///
    /// # Errors
    /// If one of them has a value that is reserved.
    pub const fn of_format(information: u8, usage: u8) -> Result<Option<Self>, BadProtection> {
        match (information, usage) {
            (0, 0) => Ok(None),
            (2, 0) => Ok(Some(Self::One)),
            (3, 0) => Ok(Some(Self::Two)),
            (3, 1) => Ok(Some(Self::Three)),
            (1 | 4.., _) => Err(BadProtection::Information),
            _ => Err(BadProtection::Usage),
        }
    }

    /// The low four bits of byte 12 of READ CAPACITY(16): P_TYPE and PROT_EN.
    #[must_use]
    pub const fn capacity_bits(of: Option<Self>) -> u8 {
        match of {
            None => 0,
            Some(kind) => (kind.number() - 1) << 1 | 1,
        }
    }

    /// The type that those bits mean; None without PROT_EN, or for a reserved type.
    #[must_use]
    pub const fn of_capacity(byte: u8) -> Option<Self> {
        match byte & 1 {
            0 => None,
            _ => Self::from_number((byte >> 1 & 7) + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors() {
        let information = Information { guard: 0xd0db, application: 0x1234, reference: 0xa0b };
        let bytes = [0xd0, 0xdb, 0x12, 0x34, 0, 0, 0x0a, 0x0b];
        assert_eq!(information.emit(), bytes);
        assert_eq!(Information::at(&bytes, 0), Some(information));
        assert_eq!(Information::at(&bytes, 1), None);
        assert_eq!(Information::ONES.emit(), [0xff; 8]);
    }

    #[test]
    fn format_fields() {
        use BadProtection::{Information as Field, Usage};
        use ProtectionType::{One, Three, Two};
        for (fields, expected) in [
            ((0, 0), Ok(None)),
            ((2, 0), Ok(Some(One))),
            ((3, 0), Ok(Some(Two))),
            ((3, 1), Ok(Some(Three))),
            ((1, 0), Err(Field)),
            ((0, 1), Err(Usage)),
            ((2, 1), Err(Usage)),
            ((3, 2), Err(Usage)),
        ] {
            assert_eq!(ProtectionType::of_format(fields.0, fields.1), expected, "{fields:?}");
        }
    }

    #[test]
    fn capacity_bits() {
        let bits = |kind| ProtectionType::capacity_bits(kind);
        assert_eq!(bits(None), 0);
        assert_eq!(ProtectionType::ALL.map(|kind| bits(Some(kind))), [1, 3, 5]);
        for kind in ProtectionType::ALL {
            assert_eq!(ProtectionType::of_capacity(bits(Some(kind))), Some(kind));
            assert_eq!(ProtectionType::from_number(kind.number()), Some(kind));
        }
        assert_eq!(ProtectionType::of_capacity(4), None, "PROT_EN is not set");
        assert_eq!(ProtectionType::of_capacity(7), None, "reserved");
    }

    proptest! {
        #[test]
        fn round_trip(bytes: [u8; 8]) {
            prop_assert_eq!(Information::parse(bytes).emit(), bytes);
        }
    }
}
