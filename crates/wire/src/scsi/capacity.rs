// SPDX-License-Identifier: Apache-2.0 OR MIT
//! READ CAPACITY parameter data (SBC-3 §5.15, §5.16).

use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use super::field::put;
use super::protection::ProtectionType;

/// Length of READ CAPACITY(10) data, bytes.
pub const CAPACITY_10_LEN: usize = 8;
/// Length of READ CAPACITY(16) data, bytes.
pub const CAPACITY_16_LEN: usize = 32;

/// Capacity and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// RETURNED LOGICAL BLOCK ADDRESS: the last block.
    pub last_lba: u64,
    /// Bytes in a logical block.
    pub block_length: u32,
    /// PROT_EN and P_TYPE. P_I_EXPONENT is zero: there is one piece of it in each block.
    pub protection: Option<ProtectionType>,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT, 0-15.
    pub physical_exponent: u8,
    /// LBPME and LBPRZ.
    pub provisioning: Provisioning,
    /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS, 14 bits.
    pub lowest_aligned_lba: u16,
}

/// What READ CAPACITY(16) says about logical block provisioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits, of which LBPRZ means nothing alone
pub enum Provisioning {
    /// LBPME = 0: fully provisioned.
    Full,
    /// LBPME = 1: unmapped blocks read as anything.
    Managed,
    /// LBPME = 1, LBPRZ = 1: unmapped blocks read as zero.
    ManagedZeros,
}

impl Capacity {
    /// READ CAPACITY(10): a last block beyond 32 bits becomes FFFFFFFFh.
    #[must_use]
    pub fn emit_10(&self) -> [u8; CAPACITY_10_LEN] {
        let mut bytes = [0; CAPACITY_10_LEN];
        put(&mut bytes, 0, u32::try_from(self.last_lba).unwrap_or(u32::MAX).to_be_bytes());
        put(&mut bytes, 4, self.block_length.to_be_bytes());
        bytes
    }

    /// READ CAPACITY(16).
    #[must_use]
    pub fn emit_16(&self) -> [u8; CAPACITY_16_LEN] {
        let mut bytes = [0; CAPACITY_16_LEN];
        put(&mut bytes, 0, self.last_lba.to_be_bytes());
        put(&mut bytes, 8, self.block_length.to_be_bytes());
        bytes[12] = ProtectionType::capacity_bits(self.protection);
        bytes[13] = self.physical_exponent & 0x0f;
        put(&mut bytes, 14, (self.lowest_aligned_lba & 0x3fff).to_be_bytes());
        bytes[14] |= match self.provisioning {
            Provisioning::Full => 0,
            Provisioning::Managed => 0x80,
            Provisioning::ManagedZeros => 0xc0,
        };
        bytes
    }

    /// Reads READ CAPACITY(16) data; None if cut before byte 16.
    #[must_use]
    pub fn parse_16(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            last_lba: get_u64(bytes, 0)?,
            block_length: get_u32(bytes, 8)?,
            protection: ProtectionType::of_capacity(get_u8(bytes, 12)?),
            physical_exponent: get_u8(bytes, 13)? & 0x0f,
            provisioning: match get_u8(bytes, 14)? & 0xc0 {
                0x80 => Provisioning::Managed,
                0xc0 => Provisioning::ManagedZeros,
                _ => Provisioning::Full,
            },
            lowest_aligned_lba: get_u16(bytes, 14)? & 0x3fff,
        })
    }

    /// Reads READ CAPACITY(10) data as (last LBA, block length); None if short.
    #[must_use]
    pub fn parse_10(bytes: &[u8]) -> Option<(u32, u32)> {
        Some((get_u32(bytes, 0)?, get_u32(bytes, 4)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors() {
        let capacity = Capacity {
            last_lba: 0x1_0000_0000,
            block_length: 512,
            protection: Some(ProtectionType::Two),
            physical_exponent: 3,
            provisioning: Provisioning::ManagedZeros,
            lowest_aligned_lba: 0,
        };
        assert_eq!(capacity.emit_10(), [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
        let mut expected = [0; 32];
        expected[..16].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 3, 3, 0xc0, 0]);
        assert_eq!(capacity.emit_16(), expected);
    }

    proptest! {
        #[test]
        fn round_trip(
            last_lba: u64, block_length: u32, physical_exponent in 0_u8..16, kind in 0_usize..3,
            lowest_aligned_lba in 0_u16..0x4000, number in 0_u8..4,
        ) {
            let provisioning =
                [Provisioning::Full, Provisioning::Managed, Provisioning::ManagedZeros][kind];
            let capacity = Capacity {
                last_lba, block_length, physical_exponent, provisioning, lowest_aligned_lba,
                protection: ProtectionType::from_number(number),
            };
            prop_assert_eq!(Capacity::parse_16(&capacity.emit_16()), Some(capacity));
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (Capacity::parse_16(&bytes), Capacity::parse_10(&bytes));
        }
    }
}
