// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Log pages (SPC-4 §7.3).

use super::field::get_u64;
use super::field::put;
use alloc::vec::Vec;

/// Supported log pages.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Write error counters.
pub const WRITE_ERRORS: u8 = 0x02;
/// Read error counters.
pub const READ_ERRORS: u8 = 0x03;
/// Verify error counters.
pub const VERIFY_ERRORS: u8 = 0x05;
/// Temperature.
pub const TEMPERATURE: u8 = 0x0d;
/// General statistics and performance.
pub const GENERAL_STATISTICS: u8 = 0x19;
/// Informational exceptions.
pub const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
/// Every subpage.
pub const ALL_SUBPAGES: u8 = 0xff;

/// FORMAT AND LINKING of a parameter (SPC-4 §7.3.2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // the two that are in use
pub enum Format {
    /// A counter that stops at its largest value: 00b.
    Counter,
    /// A binary list: 11b.
    List,
}

/// A log page with `content`; SPF is set where there is a subpage.
#[must_use]
pub fn page(code: u8, subpage: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let subpage_format = if subpage == 0 { 0 } else { 0x40 };
    let mut bytes = Vec::with_capacity(4 + content.len());
    bytes.extend_from_slice(&[code & 0x3f | subpage_format, subpage, high, low]);
    bytes.extend_from_slice(content);
    bytes
}

/// A log parameter.
#[must_use]
pub fn parameter(code: u16, format: Format, value: &[u8]) -> Vec<u8> {
    let [high, low] = code.to_be_bytes();
    let control = if format == Format::List { 0x03 } else { 0 };
    let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
    let mut bytes = Vec::with_capacity(4 + value.len());
    bytes.extend_from_slice(&[high, low, control, length]);
    bytes.extend_from_slice(value);
    bytes
}

/// Parameter 0001h of the general statistics and performance page (SPC-4 §7.3.8), without the time
/// that commands took, which is not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneralStatistics {
    /// NUMBER OF READ COMMANDS.
    pub reads: u64,
    /// NUMBER OF WRITE COMMANDS.
    pub writes: u64,
    /// NUMBER OF LOGICAL BLOCKS RECEIVED.
    pub blocks_received: u64,
    /// NUMBER OF LOGICAL BLOCKS TRANSMITTED.
    pub blocks_transmitted: u64,
}

impl GeneralStatistics {
    /// Writes the value of the parameter.
    #[must_use]
    pub fn emit(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let counts = [self.reads, self.writes, self.blocks_received, self.blocks_transmitted];
        for (count, at) in counts.into_iter().zip((0..).step_by(8)) {
            put(&mut bytes, at, count.to_be_bytes());
        }
        bytes
    }

    /// Reads the value; None if it is cut.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            reads: get_u64(bytes, 0)?,
            writes: get_u64(bytes, 8)?,
            blocks_received: get_u64(bytes, 16)?,
            blocks_transmitted: get_u64(bytes, 24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_statistics() {
        let values =
            GeneralStatistics { reads: 1, writes: 2, blocks_received: 3, blocks_transmitted: 4 };
        let bytes = values.emit();
        assert_eq!((bytes[7], bytes[15], bytes[23], bytes[31]), (1, 2, 3, 4));
        assert_eq!(GeneralStatistics::parse(&bytes), Some(values));
        assert_eq!(GeneralStatistics::parse(&bytes[..31]), None);
    }

    #[test]
    fn vectors() {
        let counter = parameter(6, Format::Counter, &[1, 2]);
        assert_eq!(counter, [0, 6, 0, 2, 1, 2]);
        assert_eq!(page(READ_ERRORS, 0, &counter), [3, 0, 0, 6, 0, 6, 0, 2, 1, 2]);
        assert_eq!(page(SUPPORTED_PAGES, 0xff, &[0, 0]), [0x40, 0xff, 0, 2, 0, 0]);
        assert_eq!(parameter(0, Format::List, &[0])[2], 3);
    }
}
