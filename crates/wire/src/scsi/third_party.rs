// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Third-party copy VPD page 8F (SPC-4 §7.8.17, SBC-4 §6.6.10): what a copy manager can do.

use super::copy::CSCD_IDENTIFICATION;
use super::copy::CSCD_SELF;
use super::copy::SEGMENT_BLOCK_TO_BLOCK;
use super::copy::SEGMENT_WITH_OFFSET;
use super::field::get_u16;
use super::token::TYPE_CHANGE_VULNERABLE;
use super::token::TYPE_ZERO;
use alloc::vec::Vec;

/// Block device ROD token limits descriptor.
pub const BLOCK_LIMITS: u16 = 0x0000;
/// Supported commands descriptor.
pub const COMMANDS: u16 = 0x0001;
/// Parameter data descriptor.
pub const PARAMETERS: u16 = 0x0004;
/// Supported descriptors descriptor.
pub const DESCRIPTORS: u16 = 0x0008;
/// Supported CSCD descriptor IDs descriptor.
pub const CSCD_IDS: u16 = 0x000c;
/// ROD token features descriptor.
pub const ROD_FEATURES: u16 = 0x0106;
/// Supported ROD token and ROD types descriptor.
pub const ROD_TYPES: u16 = 0x0108;
/// General copy operations descriptor.
pub const GENERAL: u16 = 0x8001;

/// TOKEN_IN: WRITE USING TOKEN takes tokens of the type.
const TOKEN_IN: u8 = 0x02;
/// TOKEN_OUT: POPULATE TOKEN makes them.
const TOKEN_OUT: u8 = 0x01;

/// What the page says. Lengths in bytes unless they are said to be in blocks, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThirdPartyCopy<'a> {
    /// Operation codes with their service actions.
    pub commands: &'a [(u8, &'a [u8])],
    /// MAXIMUM CSCD DESCRIPTOR COUNT.
    pub cscds_max: u16,
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub segments_max: u16,
    /// MAXIMUM DESCRIPTOR LIST LENGTH.
    pub descriptors_len_max: u32,
    /// TOTAL CONCURRENT COPIES, and those with an identifier.
    pub copies_max: u32,
    /// MAXIMUM SEGMENT LENGTH.
    pub segment_max: u32,
    /// DATA SEGMENT GRANULARITY, as a power of two.
    pub granularity: u8,
    /// MAXIMUM RANGE DESCRIPTORS.
    pub ranges_max: u16,
    /// MAXIMUM INACTIVITY TIMEOUT.
    pub inactivity_max_s: u32,
    /// DEFAULT INACTIVITY TIMEOUT.
    pub inactivity_s: u32,
    /// MINIMUM and MAXIMUM TOKEN LIFETIME.
    pub lifetime_s: u32,
    /// MAXIMUM TOKEN TRANSFER SIZE, blocks.
    pub transfer_max: u64,
    /// OPTIMAL TRANSFER COUNT, blocks.
    pub transfer_optimal: u64,
}

impl ThirdPartyCopy<'_> {
    /// The content of the page: descriptors, ascending by type.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut page = Vec::new();
        append(&mut page, BLOCK_LIMITS, &self.block_limits());
        append(&mut page, COMMANDS, &self.command_list());
        append(&mut page, PARAMETERS, &self.parameters());
        append(
            &mut page,
            DESCRIPTORS,
            &[3, SEGMENT_BLOCK_TO_BLOCK, SEGMENT_WITH_OFFSET, CSCD_IDENTIFICATION],
        );
        let [high, low] = CSCD_SELF.to_be_bytes();
        append(&mut page, CSCD_IDS, &[0, 2, high, low]);
        append(&mut page, ROD_FEATURES, &self.rod_features());
        append(&mut page, ROD_TYPES, &rod_types());
        append(&mut page, GENERAL, &self.general());
        page
    }

    fn block_limits(&self) -> Vec<u8> {
        let mut bytes = Vec::from([0; 6]);
        bytes.extend_from_slice(&self.ranges_max.to_be_bytes());
        bytes.extend_from_slice(&self.inactivity_max_s.to_be_bytes());
        bytes.extend_from_slice(&self.inactivity_s.to_be_bytes());
        bytes.extend_from_slice(&self.transfer_max.to_be_bytes());
        bytes.extend_from_slice(&self.transfer_optimal.to_be_bytes());
        bytes
    }

    fn command_list(&self) -> Vec<u8> {
        let mut bytes = Vec::from([0]);
        for (opcode, actions) in self.commands {
            bytes.extend_from_slice(&[*opcode, u8::try_from(actions.len()).unwrap_or(0)]);
            bytes.extend_from_slice(actions);
        }
        bytes[0] = u8::try_from(bytes.len() - 1).unwrap_or(0);
        bytes
    }

    fn parameters(&self) -> Vec<u8> {
        let mut bytes = Vec::from([0; 4]);
        bytes.extend_from_slice(&self.cscds_max.to_be_bytes());
        bytes.extend_from_slice(&self.segments_max.to_be_bytes());
        bytes.extend_from_slice(&self.descriptors_len_max.to_be_bytes());
        // No inline data.
        bytes.extend_from_slice(&[0; 16]);
        bytes
    }

    /// Tokens of other copy managers are not taken.
    fn rod_features(&self) -> Vec<u8> {
        let mut bytes = Vec::from([0; 12]);
        bytes.extend_from_slice(&self.lifetime_s.to_be_bytes());
        bytes.extend_from_slice(&self.lifetime_s.to_be_bytes());
        bytes.extend_from_slice(&self.inactivity_max_s.to_be_bytes());
        bytes.extend_from_slice(&[0; 20]);
        bytes
    }

    fn general(&self) -> Vec<u8> {
        let mut bytes = self.copies_max.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.copies_max.to_be_bytes());
        bytes.extend_from_slice(&self.segment_max.to_be_bytes());
        bytes.push(self.granularity);
        bytes.resize(32, 0);
        bytes
    }
}

fn rod_types() -> Vec<u8> {
    const DESCRIPTOR_LEN: usize = 64;
    let mut bytes = Vec::from([0; 4]);
    for (rod_type, flags, preference) in
        [(TYPE_CHANGE_VULNERABLE, TOKEN_IN | TOKEN_OUT, 0x8000_u16), (TYPE_ZERO, TOKEN_IN, 0)]
    {
        let start = bytes.len();
        bytes.extend_from_slice(&rod_type.to_be_bytes());
        bytes.extend_from_slice(&[flags, 0]);
        bytes.extend_from_slice(&preference.to_be_bytes());
        bytes.resize(start + DESCRIPTOR_LEN, 0);
    }
    let length = u16::try_from(bytes.len() - 4).unwrap_or(0).to_be_bytes();
    bytes[2..4].copy_from_slice(&length);
    bytes
}

/// Appends a descriptor, padded to a multiple of four bytes.
fn append(page: &mut Vec<u8>, code: u16, content: &[u8]) {
    let padded = content.len().next_multiple_of(4);
    page.extend_from_slice(&code.to_be_bytes());
    page.extend_from_slice(&u16::try_from(padded).unwrap_or(0).to_be_bytes());
    page.extend_from_slice(content);
    page.resize(page.len() + padded - content.len(), 0);
}

/// The descriptors of the content of the page: type and content, up to the first that is cut.
pub fn descriptors(content: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = content;
    core::iter::from_fn(move || {
        let code = get_u16(rest, 0)?;
        let length = usize::from(get_u16(rest, 2)?);
        let (one, after) = rest.get(4..)?.split_at_checked(length)?;
        rest = after;
        Some((code, one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vector() {
        let page = ThirdPartyCopy {
            commands: &[(0x83, &[0, 1, 0x10]), (0x84, &[0])],
            cscds_max: 16,
            segments_max: 64,
            descriptors_len_max: 0x0900,
            copies_max: 8,
            segment_max: 0x0100_0000,
            granularity: 9,
            ranges_max: 128,
            inactivity_max_s: 600,
            inactivity_s: 60,
            lifetime_s: 3600,
            transfer_max: 0x1_0000,
            transfer_optimal: 0x800,
        }
        .emit();
        let all: Vec<_> = descriptors(&page).collect();
        let codes: Vec<u16> = all.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, [0, 1, 4, 8, 0xc, 0x106, 0x108, 0x8001]);
        let lengths: Vec<usize> = all.iter().map(|(_, content)| content.len()).collect();
        assert_eq!(lengths, [32, 12, 28, 4, 4, 44, 132, 32]);
        assert_eq!(all[0].1[6..16], [0, 128, 0, 0, 2, 0x58, 0, 0, 0, 60]);
        assert_eq!(all[0].1[16..], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        assert_eq!(all[1].1, [8, 0x83, 3, 0, 1, 0x10, 0x84, 1, 0, 0, 0, 0]);
        assert_eq!(all[2].1[4..12], [0, 16, 0, 64, 0, 0, 9, 0]);
        assert_eq!(all[3].1, [3, 2, 0x0a, 0xe4]);
        assert_eq!(all[6].1[..12], [0, 0, 0, 128, 0, 0x80, 0, 1, 3, 0, 0x80, 0]);
        assert_eq!(all[7].1[..14], [0, 0, 0, 8, 0, 0, 0, 8, 1, 0, 0, 0, 9, 0]);
    }

    proptest! {
        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = descriptors(&bytes).count();
        }
    }
}
