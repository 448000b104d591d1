// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Building text.

use alloc::vec::Vec;
use core::fmt;
use core::fmt::Write;

/// Builds the text of a Login or Text PDU: `key=value` and a null byte each (RFC 7143 §6.1), up to
/// a limit of bytes.
///
/// ```
/// # use lunwire_wire::iscsi::keys::TextWriter;
/// let mut text = TextWriter::new(8192);
/// text.push_number("MaxBurstLength", 262_144)?;
/// assert_eq!(text.as_bytes(), b"MaxBurstLength=262144\0");
/// # Ok::<(), lunwire_wire::iscsi::keys::TextFull>(())
/// ```
#[derive(Clone, Debug)]
pub struct TextWriter {
    text: Vec<u8>,
    limit: usize,
}

/// A pair does not fit. Nothing of it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextFull;

impl fmt::Display for TextFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text exceeds its limit")
    }
}

impl core::error::Error for TextFull {}

impl TextWriter {
    /// Empty text that grows to at most `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self { text: Vec::new(), limit }
    }

    /// Appends a pair.
    ///
    /// # Errors
    /// [`TextFull`].
    pub fn push(&mut self, key: &str, value: &str) -> Result<(), TextFull> {
        self.push_with(key, |out| out.write_str(value))
    }

    /// Appends a pair whose value is a number, in decimal.
    ///
    /// # Errors
    /// [`TextFull`].
    pub fn push_number(&mut self, key: &str, value: u64) -> Result<(), TextFull> {
        self.push_with(key, |out| write!(out, "{value}"))
    }

    /// Appends a pair whose value is binary, in hex.
    ///
    /// # Errors
    /// [`TextFull`].
    pub fn push_binary_hex(&mut self, key: &str, value: &[u8]) -> Result<(), TextFull> {
        self.push_with(key, |out| {
            out.write_str("0x")?;
            value.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        })
    }

    /// Appends a pair whose value is binary, in base64.
    ///
    /// # Errors
    /// [`TextFull`].
    pub fn push_binary_base64(&mut self, key: &str, value: &[u8]) -> Result<(), TextFull> {
        self.push_with(key, |out| {
            out.write_str("0b")?;
            value.chunks(3).try_for_each(|group| write_base64(out, group))
        })
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The text.
    pub fn into_vec(self) -> Vec<u8> {
        self.text
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether no pair was written.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn push_with(
        &mut self,
        key: &str,
        value: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> Result<(), TextFull> {
        let start = self.text.len();
        debug_assert!(super::check_key(key).is_ok(), "a key of ours has a legal name");
        let written = self
            .write_str(key)
            .and_then(|()| self.write_str("="))
            .and_then(|()| value(self))
            .and_then(|()| self.write_str("\0"));
        written.map_err(|fmt::Error| {
            self.text.truncate(start);
            TextFull
        })
    }
}

impl Write for TextWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() > self.limit.saturating_sub(self.text.len()) {
            return Err(fmt::Error);
        }
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Writes one group of up to three bytes as four characters (RFC 4648 §4).
fn write_base64(out: &mut TextWriter, group: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for at in 0..4_usize {
        let digit = match DIGITS.get((bits >> (18 - 6 * at) & 0x3f) as usize) {
            Some(digit) if at <= group.len() => char::from(*digit),
            _ => '=',
        };
        out.write_char(digit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: NEG-01/S.
    #[test]
    fn all_kinds_of_values() {
        let mut text = TextWriter::new(200);
        text.push("AuthMethod", "CHAP").unwrap();
        text.push_number("CHAP_I", 1).unwrap();
        text.push_binary_hex("CHAP_C", &[0, 1, 0xfe]).unwrap();
        text.push_binary_base64("CHAP_R", &[0, 1, 2, 3]).unwrap();
        assert_eq!(
            text.into_vec(),
            b"AuthMethod=CHAP\0CHAP_I=1\0CHAP_C=0x0001fe\0CHAP_R=0bAAECAw==\0"
        );
    }

    #[test]
    fn a_pair_fits_whole_or_not_at_all() {
        let mut text = TextWriter::new(8);
        assert!(text.is_empty());
        assert_eq!(text.push("A", "12"), Ok(()));
        assert_eq!(text.push_number("B", 123), Err(TextFull), "the null byte counts");
        assert_eq!(text.as_bytes(), b"A=12\0");
        assert_eq!(text.push("B", ""), Ok(()));
        assert_eq!(text.len(), 8);
        assert_eq!(text.push("C", ""), Err(TextFull));
    }
}
