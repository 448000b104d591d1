// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UNMAP parameter list (SBC-3 §5.28.2).

use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use alloc::vec::Vec;

/// Bytes before the descriptors.
pub const HEADER_LEN: usize = 8;
/// Bytes of a descriptor.
pub const DESCRIPTOR_LEN: usize = 16;

/// An UNMAP block descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub lba: u64,
    /// Blocks; zero is no error.
    pub blocks: u32,
}

/// What is wrong with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// Shorter than its header, or than the header announces: PARAMETER LIST LENGTH ERROR.
    Length,
    /// UNMAP BLOCK DESCRIPTOR DATA LENGTH (byte 2) goes beyond UNMAP DATA LENGTH: INVALID FIELD IN
    /// PARAMETER LIST.
    DescriptorLength,
}

/// A parameter list whose lengths have been checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    descriptors: &'a [[u8; DESCRIPTOR_LEN]],
}

impl<'a> View<'a> {
    /// Checks the lengths. A last descriptor that is incomplete is ignored (SBC-3 §5.28.2); bytes
    /// after those announced are too.
    ///
    /// # Errors
    /// If the list does not hold what its header announces.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (Some(data), Some(descriptors)) = (get_u16(bytes, 0), get_u16(bytes, 2)) else {
            return Err(Malformed::Length);
        };
        let (data, descriptors) = (usize::from(data), usize::from(descriptors));
        if bytes.len() < HEADER_LEN || bytes.len() < 2 + data {
            return Err(Malformed::Length);
        }
        if descriptors > 0 && HEADER_LEN + descriptors > 2 + data {
            return Err(Malformed::DescriptorLength);
        }
        let list = bytes.get(HEADER_LEN..HEADER_LEN + descriptors).ok_or(Malformed::Length)?;
        Ok(Self { descriptors: list.as_chunks().0 })
    }

    /// Number of descriptors.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// True if there is no descriptor.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// The descriptor at `index`.
    #[must_use]
    pub fn range(&self, index: usize) -> Option<Range> {
        let descriptor = self.descriptors.get(index)?;
        Some(Range { lba: get_u64(descriptor, 0)?, blocks: get_u32(descriptor, 8)? })
    }

    /// All descriptors in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range> + use<'_, 'a> {
        (0..self.len()).filter_map(|index| self.range(index))
    }
}

/// Writes a list; None if it has more descriptors than its length fields can say.
#[must_use]
pub fn emit(ranges: &[Range]) -> Option<Vec<u8>> {
    let descriptors = u16::try_from(ranges.len() * DESCRIPTOR_LEN).ok()?;
    let data = descriptors.checked_add(6)?;
    let mut bytes = Vec::from([0; HEADER_LEN]);
    bytes[..2].copy_from_slice(&data.to_be_bytes());
    bytes[2..4].copy_from_slice(&descriptors.to_be_bytes());
    for range in ranges {
        bytes.extend_from_slice(&range.lba.to_be_bytes());
        bytes.extend_from_slice(&range.blocks.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vector() {
        let bytes = emit(&[Range { lba: 0x0102, blocks: 3 }]).expect("one descriptor");
        assert_eq!(
            bytes,
            [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0]
        );
    }

    #[test]
    fn lengths_that_lie() {
        let good = emit(&[Range { lba: 0, blocks: 1 }]).expect("one descriptor");
        for cut in 0..good.len() {
            assert_eq!(View::new(&good[..cut]).err(), Some(Malformed::Length), "cut at {cut}");
        }
        let mut more = good.clone();
        more[3] = 32;
        assert_eq!(View::new(&more).err(), Some(Malformed::DescriptorLength));
        let mut partial = good.clone();
        partial[3] = 15;
        assert_eq!(View::new(&partial).map(|view| view.len()), Ok(0));
        let mut longer = good;
        longer.extend_from_slice(&[0xff; 40]);
        assert_eq!(View::new(&longer).map(|view| view.len()), Ok(1));
    }

    proptest! {
        #[test]
        fn round_trip(list in proptest::collection::vec(any::<(u64, u32)>(), 0..20)) {
            let ranges: Vec<_> = list.iter().map(|&(lba, blocks)| Range { lba, blocks }).collect();
            let bytes = emit(&ranges).expect("a short list");
            let view = View::new(&bytes).expect("well formed");
            prop_assert_eq!(view.ranges().collect::<Vec<_>>(), ranges);
        }

        #[test]
        fn parse_is_total(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), small in 0_u8..80,
        ) {
            let mut bytes = bytes;
            let _ = View::new(&bytes).map(|view| view.ranges().count());
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[0, small, 0, small.saturating_sub(6)]);
            }
            let _ = View::new(&bytes).map(|view| view.ranges().count());
        }
    }
}
