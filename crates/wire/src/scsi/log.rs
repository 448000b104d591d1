// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Log pages (SPC-4 §7.3).

use alloc::vec::Vec;

/// Supported log pages.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Write error counters.
pub const WRITE_ERRORS: u8 = 0x02;
/// Read error counters.
pub const READ_ERRORS: u8 = 0x03;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors() {
        let counter = parameter(6, Format::Counter, &[1, 2]);
        assert_eq!(counter, [0, 6, 0, 2, 1, 2]);
        assert_eq!(page(READ_ERRORS, 0, &counter), [3, 0, 0, 6, 0, 6, 0, 2, 1, 2]);
        assert_eq!(page(SUPPORTED_PAGES, 0xff, &[0, 0]), [0x40, 0xff, 0, 2, 0, 0]);
        assert_eq!(parameter(0, Format::List, &[0])[2], 3);
    }
}
