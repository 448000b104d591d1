// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serial number arithmetic on 32 bits (RFC 1982 §3), as RFC 7143 §4.2.2.1 demands it for every
//! number that counts PDUs.

use wire::iscsi::{CmdSn, DataSn, R2tSn, StatSn};

/// A number that counts modulo 2^32.
///
/// Two numbers at a distance of exactly 2^31 have no order: neither is before the other.
pub trait Serial: Copy {
    /// The bare 32 bits.
    fn bits(self) -> u32;

    /// The number of these 32 bits.
    fn from_bits(bits: u32) -> Self;

    /// True if `self` comes before `other`.
    fn is_before(self, other: Self) -> bool {
        let ahead = other.bits().wrapping_sub(self.bits());
        ahead != 0 && ahead < HALF
    }

    /// True if `self` comes after `other`.
    fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// `self + count`.
    #[must_use]
    fn plus(self, count: u32) -> Self {
        Self::from_bits(self.bits().wrapping_add(count))
    }

    /// `self - count`.
    #[must_use]
    fn minus(self, count: u32) -> Self {
        Self::from_bits(self.bits().wrapping_sub(count))
    }

    /// Steps from `earlier` up to `self`, modulo 2^32.
    fn steps_from(self, earlier: Self) -> u32 {
        self.bits().wrapping_sub(earlier.bits())
    }
}

const HALF: u32 = 1 << 31;

macro_rules! serial {
    ($($name:ident)*) => {$(
        impl Serial for $name {
            fn bits(self) -> u32 {
                self.0
            }

            fn from_bits(bits: u32) -> Self {
                Self(bits)
            }
        }
    )*};
}

serial! { CmdSn StatSn DataSn R2tSn }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_pairs_around_the_wrap() {
        let table = [
            (0x0000_0000, 0x0000_0000, false, false),
            (0x0000_0000, 0x0000_0001, true, false),
            (0x0000_0001, 0x0000_0000, false, true),
            (0xffff_ffff, 0x0000_0000, true, false),
            (0x0000_0000, 0xffff_ffff, false, true),
            (0x7fff_ffff, 0x8000_0000, true, false),
            (0x0000_0000, 0x7fff_ffff, true, false),
            (0x0000_0000, 0x8000_0000, false, false),
            (0x8000_0000, 0x0000_0000, false, false),
            (0xffff_fff0, 0x0000_000f, true, false),
            (0x8000_0001, 0x0000_0000, true, false),
            (0x0000_0001, 0x8000_0001, false, false),
            (0x7fff_ffff, 0xffff_ffff, false, false),
            (0xffff_ffff, 0x7fff_fffe, true, false),
        ];
        for (a, b, before, after) in table {
            assert_eq!(CmdSn(a).is_before(CmdSn(b)), before, "{a:#x} < {b:#x}");
            assert_eq!(CmdSn(a).is_after(CmdSn(b)), after, "{a:#x} > {b:#x}");
        }
    }

    #[test]
    fn steps_wrap() {
        assert_eq!(StatSn(0xffff_ffff).plus(2), StatSn(1));
        assert_eq!(StatSn(1).minus(2), StatSn(0xffff_ffff));
        assert_eq!(DataSn(3).steps_from(DataSn(0xffff_fffe)), 5);
        assert_eq!(R2tSn(0).steps_from(R2tSn(0)), 0);
    }
}
