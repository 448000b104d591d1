// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logical unit numbers (SAM-5 §4.7): the single-level forms and the REPORT LUNS well known unit.

use crate::iscsi::LunField;

/// A decoded logical unit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Lun {
    /// An ordinary logical unit.
    Unit(u16),
    /// The REPORT LUNS well known logical unit (SPC-4 §8.2): C101h.
    ReportLuns,
}

impl Lun {
    /// Decodes peripheral device addressing on bus 0, flat space, extended flat space and the well
    /// known form; LUN 1 is LUN 1 in each. None for anything else, for second-level addresses and
    /// above 65535.
    #[inline]
    #[must_use]
    pub fn parse(field: LunField) -> Option<Self> {
        let [b0, b1, b2, b3, rest @ ..] = field.0;
        if rest != [0; 4] {
            return None;
        }
        match b0 {
            0x00 if (b2, b3) == (0, 0) => Some(Self::Unit(u16::from(b1))),
            0x40..=0x7f if (b2, b3) == (0, 0) => {
                Some(Self::Unit(u16::from_be_bytes([b0 & 0x3f, b1])))
            }
            0xc1 if (b1, b2, b3) == (1, 0, 0) => Some(Self::ReportLuns),
            0xd2 if b1 == 0 => Some(Self::Unit(u16::from_be_bytes([b2, b3]))),
            _ => None,
        }
    }

    /// The shortest form: peripheral up to 255, flat up to 16383, else extended flat.
    #[must_use]
    pub fn emit(self) -> LunField {
        let head = match self {
            Self::ReportLuns => [0xc1, 1, 0, 0],
            Self::Unit(number) => {
                let [high, low] = number.to_be_bytes();
                match high {
                    0 => [0, low, 0, 0],
                    1..=0x3f => [0x40 | high, low, 0, 0],
                    _ => [0xd2, 0, high, low],
                }
            }
        };
        let [a, b, c, d] = head;
        LunField([a, b, c, d, 0, 0, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(head: [u8; 4]) -> LunField {
        LunField([head[0], head[1], head[2], head[3], 0, 0, 0, 0])
    }

    /// Covers: FMT-11/T.
    #[test]
    fn one_number_in_three_forms() {
        for head in [[0, 1, 0, 0], [0x40, 1, 0, 0], [0xd2, 0, 0, 1]] {
            assert_eq!(Lun::parse(field(head)), Some(Lun::Unit(1)), "{head:x?}");
        }
        assert_eq!(Lun::parse(field([0x41, 0, 0, 0])), Some(Lun::Unit(256)));
        assert_eq!(Lun::parse(field([0x7f, 0xff, 0, 0])), Some(Lun::Unit(16383)));
    }

    /// Covers: FMT-11/I.
    #[test]
    fn vectors() {
        assert_eq!(Lun::Unit(255).emit(), field([0, 255, 0, 0]));
        assert_eq!(Lun::Unit(256).emit(), field([0x41, 0, 0, 0]));
        assert_eq!(Lun::Unit(16383).emit(), field([0x7f, 0xff, 0, 0]));
        assert_eq!(Lun::Unit(16384).emit(), field([0xd2, 0, 0x40, 0]));
        assert_eq!(Lun::ReportLuns.emit(), field([0xc1, 1, 0, 0]));
    }

    #[test]
    fn other_forms_are_no_unit() {
        for head in [[1, 0, 0, 0], [0x80, 0, 0, 0], [0xc1, 2, 0, 0], [0xd2, 1, 0, 0], [0, 0, 1, 0]]
        {
            assert_eq!(Lun::parse(field(head)), None, "{head:x?}");
        }
        assert_eq!(Lun::parse(LunField([0, 1, 0, 0, 0, 0, 0, 1])), None);
    }

    proptest! {
        #[test]
        fn round_trip(number: u16) {
            prop_assert_eq!(Lun::parse(Lun::Unit(number).emit()), Some(Lun::Unit(number)));
        }

        #[test]
        fn parse_is_total(bytes: [u8; 8]) {
            if let Some(lun) = Lun::parse(LunField(bytes)) {
                prop_assert_eq!(Lun::parse(lun.emit()), Some(lun));
            }
        }
    }
}
