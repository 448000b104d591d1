// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a unit is formatted, as it is kept beside its data.
//!
//! The side store begins with a header of [`PROTECTION_RECORDS_AT`] bytes, of which the first 36
//! mean something: `{ magic:8 version:4 type:4 block:4 zero:4 blocks:8 crc:4 }`, big-endian, the
//! CRC32C over all before it. Behind it is one record a block.

use super::record::RECORD_LEN;
use alloc::vec::Vec;
use wire::scsi::protection::ProtectionType;

/// Where the records begin: nothing shares a page with the header.
pub const PROTECTION_RECORDS_AT: u64 = 4096;

/// Bytes of the header that are written at once: what every disk writes as a whole.
pub const PROTECTION_HEADER_LEN: usize = 512;

const MAGIC: [u8; 8] = *b"LW-T10PI";
const VERSION: u32 = 1;
const CHECKED_LEN: usize = 32;

/// How a unit is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionFormat {
    /// None: a host has formatted it without protection information.
    pub kind: Option<ProtectionType>,
    /// Logical block length, bytes.
    pub block: u32,
    /// Capacity, blocks.
    pub blocks: u64,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Something else is written there.
    #[error("it holds no protection information of ours")]
    Foreign,
    /// Written by a later version.
    #[error("it is of version {0}, and this program knows version {VERSION}")]
    Version(u32),
    /// Cut or changed.
    #[error("its header is damaged")]
    Damaged,
}

impl ProtectionFormat {
    /// Bytes of the side store.
    #[must_use]
    pub const fn side_len(&self) -> u64 {
        let records = self.blocks.saturating_mul(RECORD_LEN as u64);
        PROTECTION_RECORDS_AT.saturating_add(records).next_multiple_of(PROTECTION_HEADER_LEN as u64)
    }

    /// Writes the header.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PROTECTION_HEADER_LEN);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        let number = self.kind.map_or(0, ProtectionType::number);
        bytes.extend_from_slice(&u32::from(number).to_be_bytes());
        bytes.extend_from_slice(&self.block.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.blocks.to_be_bytes());
        debug_assert_eq!(bytes.len(), CHECKED_LEN);
        bytes.extend_from_slice(&crc::crc32c(&bytes).to_be_bytes());
        bytes.resize(PROTECTION_HEADER_LEN, 0);
        bytes
    }

    /// Reads a header; None where there are only zeros: nothing was ever formatted.
    ///
    /// # Errors
    /// If it is not what [`ProtectionFormat::emit`] writes.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let Some((checked, rest)) = bytes.split_first_chunk::<CHECKED_LEN>() else {
            return Err(FormatError::Foreign);
        };
        let [a, b, c, d, e, f, g, h, fields @ ..] = *checked;
        if [a, b, c, d, e, f, g, h] != MAGIC {
            return Err(FormatError::Foreign);
        }
        let (words, _) = fields.as_chunks::<4>();
        let [version, number, block, _, high, low] = *words else {
            return Err(FormatError::Damaged);
        };
        match u32::from_be_bytes(version) {
            VERSION => {}
            other => return Err(FormatError::Version(other)),
        }
        let crc = rest.first_chunk::<4>().map(|crc| u32::from_be_bytes(*crc));
        if crc != Some(crc::crc32c(checked)) {
            return Err(FormatError::Damaged);
        }
        let kind = match u32::from_be_bytes(number) {
            0 => None,
            number => {
                let number = u8::try_from(number).map_err(|_| FormatError::Damaged)?;
                Some(ProtectionType::from_number(number).ok_or(FormatError::Damaged)?)
            }
        };
        let blocks = u64::from(u32::from_be_bytes(high)) << 32 | u64::from(u32::from_be_bytes(low));
        Ok(Some(Self { kind, block: u32::from_be_bytes(block), blocks }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: ProtectionFormat =
        ProtectionFormat { kind: Some(ProtectionType::Two), block: 4096, blocks: 0x1_0000_0001 };

    #[test]
    fn vector() {
        let bytes = FORMAT.emit();
        let expected = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
        assert_eq!((&bytes[..8], &bytes[8..32]), (&b"LW-T10PI"[..], &expected[..]));
        assert_eq!(bytes.len(), PROTECTION_HEADER_LEN);
        let small = ProtectionFormat { blocks: 3, ..FORMAT };
        assert_eq!((small.side_len(), FORMAT.side_len() % 512), (4608, 0));
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        assert_eq!(ProtectionFormat::parse(&[0; 512]), Ok(None), "a new file");
        assert_eq!(ProtectionFormat::parse(&[7; 512]), Err(FormatError::Foreign));
        let mut later = FORMAT.emit();
        later[11] = 2;
        assert_eq!(ProtectionFormat::parse(&later), Err(FormatError::Version(2)));
        let mut changed = FORMAT.emit();
        changed[31] = 9;
        assert_eq!(ProtectionFormat::parse(&changed), Err(FormatError::Damaged));
    }

    proptest! {
        #[test]
        fn round_trip(number in 0_u8..4, block: u32, blocks: u64) {
            let kind = ProtectionType::from_number(number);
            let format = ProtectionFormat { kind, block, blocks };
            prop_assert_eq!(ProtectionFormat::parse(&format.emit()), Ok(Some(format)));
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0_usize..36, more in 1_u8..=255) {
            let mut bytes = FORMAT.emit();
            bytes[at] = bytes[at].wrapping_add(more);
            prop_assert!(ProtectionFormat::parse(&bytes).is_err());
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = ProtectionFormat::parse(&bytes);
        }
    }
}
