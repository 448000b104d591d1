// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GET LBA STATUS parameter data (SBC-3 §5.4.2).

use super::field::get_u8;
use super::field::get_u32;
use super::field::get_u64;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes before the first descriptor.
pub const HEADER_LEN: usize = 8;
/// Bytes of a descriptor.
pub const DESCRIPTOR_LEN: usize = 16;

/// PROVISIONING STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // all that SBC-3 has
pub enum Provisioning {
    /// Mapped, or unknown.
    Mapped = 0,
    /// Deallocated.
    Deallocated = 1,
    /// Anchored.
    Anchored = 2,
}

/// LBA status descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
    /// Their status.
    pub provisioning: Provisioning,
}

/// Writes the data.
#[must_use]
pub fn emit(descriptors: &[Descriptor]) -> Vec<u8> {
    let length = 4 + descriptors.len() * DESCRIPTOR_LEN;
    let mut bytes = vec![0; HEADER_LEN];
    super::field::put(&mut bytes, 0, u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    for descriptor in descriptors {
        bytes.extend_from_slice(&descriptor.lba.to_be_bytes());
        bytes.extend_from_slice(&descriptor.blocks.to_be_bytes());
        bytes.extend_from_slice(&[descriptor.provisioning as u8, 0, 0, 0]);
    }
    bytes
}

/// Reads the descriptors that are both announced and there; None if there is no header.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Vec<Descriptor>> {
    let announced = usize::try_from(get_u32(bytes, 0)?).ok()?.saturating_add(4);
    let bytes = bytes.get(..announced).unwrap_or(bytes);
    let rest = bytes.get(HEADER_LEN..)?;
    rest.chunks_exact(DESCRIPTOR_LEN)
        .map(|descriptor| {
            Some(Descriptor {
                lba: get_u64(descriptor, 0)?,
                blocks: get_u32(descriptor, 8)?,
                provisioning: match get_u8(descriptor, 12)? & 0xf {
                    1 => Provisioning::Deallocated,
                    2 => Provisioning::Anchored,
                    _ => Provisioning::Mapped,
                },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vector() {
        let bytes = emit(&[Descriptor { lba: 8, blocks: 2, provisioning: Provisioning::Anchored }]);
        assert_eq!(
            bytes,
            [0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2, 2, 0, 0, 0]
        );
    }

    proptest! {
        #[test]
        fn round_trip(list in proptest::collection::vec(any::<(u64, u32, bool)>(), 0..9)) {
            let list: Vec<_> = list
                .into_iter()
                .map(|(lba, blocks, mapped)| Descriptor {
                    lba,
                    blocks,
                    provisioning: if mapped {
                        Provisioning::Mapped
                    } else {
                        Provisioning::Deallocated
                    },
                })
                .collect();
            prop_assert_eq!(parse(&emit(&list)), Some(list));
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&bytes);
        }
    }
}
