// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of keys (RFC 7143 §6.1).

use core::fmt;

/// A number: decimal without leading zeros, or hex after `0x` or `0X`. None if it is neither or not
/// below 2^64.
///
/// ```
/// # use lunwire_wire::iscsi::keys::numeric;
/// assert_eq!(numeric("0X40000"), numeric("262144"));
/// ```
pub fn numeric(value: &str) -> Option<u64> {
    let (digits, radix) = match strip_prefix(value, b'x') {
        Some(digits) => (digits, 16),
        None if value.len() > 1 && value.starts_with('0') => return None,
        None => (value, 10),
    };
    // The parser of integers would take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// A range `lo~hi`, both ends within. None if it is none, or if its ends are in the wrong order.
pub fn range(value: &str) -> Option<(u64, u64)> {
    let (low, high) = value.split_once('~')?;
    let (low, high) = (numeric(low)?, numeric(high)?);
    (low <= high).then_some((low, high))
}

/// `Yes` or `No`.
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// The entries of a list, most wanted first.
pub fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',')
}

/// Why a value is no binary value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BinaryError {
    /// Neither hex, base64 nor decimal.
    Malformed,
    /// More bytes than the buffer takes.
    TooLong,
}

impl fmt::Display for BinaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed binary value",
            Self::TooLong => "binary value too long",
        })
    }
}

impl core::error::Error for BinaryError {}

/// Decodes a binary value into `out` and gives the part that it fills.
///
/// Hex (`0x`) of an odd number of digits begins with half a byte; base64 (`0b`) is padded
/// (RFC 4648 §4); a decimal constant, which may only stand for up to 64 bits, becomes as few bytes
/// as hold it.
///
/// # Errors
/// [`BinaryError`]; `out` may have been written to.
pub fn binary<'o>(value: &str, out: &'o mut [u8]) -> Result<&'o [u8], BinaryError> {
    let len = if let Some(digits) = strip_prefix(value, b'x') {
        hex(digits.as_bytes(), out)?
    } else if let Some(digits) = strip_prefix(value, b'b') {
        base64(digits.as_bytes(), out)?
    } else {
        decimal(value, out)?
    };
    out.get(..len).ok_or(BinaryError::TooLong)
}

/// What follows `0` and a letter of either case.
fn strip_prefix(value: &str, letter: u8) -> Option<&str> {
    match value.as_bytes() {
        [b'0', second, ..] if second.eq_ignore_ascii_case(&letter) => value.get(2..),
        _ => None,
    }
}

fn hex(digits: &[u8], out: &mut [u8]) -> Result<usize, BinaryError> {
    let len = digits.len().div_ceil(2);
    let out = out.get_mut(..len).ok_or(BinaryError::TooLong)?;
    if digits.is_empty() {
        return Err(BinaryError::Malformed);
    }
    for (out, pair) in out.iter_mut().rev().zip(digits.rchunks(2)) {
        *out = 0;
        for digit in pair {
            *out = *out << 4 | hex_digit(*digit).ok_or(BinaryError::Malformed)?;
        }
    }
    Ok(len)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn base64(digits: &[u8], out: &mut [u8]) -> Result<usize, BinaryError> {
    let padding = digits.iter().rev().take_while(|digit| **digit == b'=').count();
    if digits.is_empty() || !digits.len().is_multiple_of(4) || padding > 2 {
        return Err(BinaryError::Malformed);
    }
    let len = digits.len() / 4 * 3 - padding;
    let out = out.get_mut(..len).ok_or(BinaryError::TooLong)?;
    let digits = digits.get(..digits.len() - padding).unwrap_or_default();
    for (out, group) in out.chunks_mut(3).zip(digits.chunks(4)) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | u32::from(base64_digit(*digit).ok_or(BinaryError::Malformed)?);
        }
        bits <<= 6 * (4 - group.len());
        let [_, bytes @ ..] = bits.to_be_bytes();
        // Bits that the padding leaves over must be zero, so that every value has one form.
        if bytes.iter().skip(out.len()).any(|byte| *byte != 0) {
            return Err(BinaryError::Malformed);
        }
        for (to, from) in out.iter_mut().zip(bytes) {
            *to = from;
        }
    }
    Ok(len)
}

fn base64_digit(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

fn decimal(value: &str, out: &mut [u8]) -> Result<usize, BinaryError> {
    let bytes = numeric(value).ok_or(BinaryError::Malformed)?.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(7);
    let bytes = bytes.get(zeros..).unwrap_or_default();
    out.get_mut(..bytes.len()).ok_or(BinaryError::TooLong)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::super::TextWriter;
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn decode(value: &str) -> Result<Vec<u8>, BinaryError> {
        binary(value, &mut [0xee; 64]).map(<[u8]>::to_vec)
    }

    /// Covers: NEG-06/S.
    #[test]
    fn numbers() {
        for value in ["262144", "0x40000", "0X40000", "0x00040000"] {
            assert_eq!(numeric(value), Some(262_144), "{value}");
        }
        assert_eq!(numeric("0xaBcDeF"), Some(0x00ab_cdef));
        assert_eq!(numeric("0"), Some(0));
        for value in [
            "", "00", "007", "-1", "+1", "0x", "0x-1", "0x+1", "1 ", " 1", "1a", "0xg", "0b1",
            "1.5",
        ] {
            assert_eq!(numeric(value), None, "{value:?}");
        }
    }

    /// Covers: NEG-07/S.
    #[test]
    fn numbers_end_below_2_to_the_64() {
        assert_eq!(numeric("18446744073709551615"), Some(u64::MAX));
        assert_eq!(numeric("18446744073709551616"), None);
        assert_eq!(numeric("0xffffffffffffffff"), Some(u64::MAX));
        assert_eq!(numeric("0x10000000000000000"), None);
        assert_eq!(decode("18446744073709551616"), Err(BinaryError::Malformed));
    }

    #[test]
    fn ranges_booleans_lists() {
        assert_eq!(range("2048~8192"), Some((2048, 8192)));
        assert_eq!(range("0x10~16"), Some((16, 16)));
        for value in ["2048", "2~1", "~", "1~", "~1", "1~2~3", "1 ~2"] {
            assert_eq!(range(value), None, "{value}");
        }
        assert_eq!((boolean("Yes"), boolean("No")), (Some(true), Some(false)));
        assert_eq!((boolean("yes"), boolean("")), (None, None));
        assert_eq!(list("CRC32C,None").collect::<Vec<_>>(), ["CRC32C", "None"]);
        assert_eq!(list("None").collect::<Vec<_>>(), ["None"]);
        assert_eq!(list("A,,B").collect::<Vec<_>>(), ["A", "", "B"]);
    }

    /// Covers: NEG-08/S.
    #[test]
    fn binary_in_hex_and_base64() {
        let cases: [(&str, &str, &[u8]); 3] = [
            (
                "0x000102030405060708090a0b0c0d0e0f",
                "0bAAECAwQFBgcICQoLDA0ODw==",
                &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            ),
            (
                "0xAB7C55ADBE54EAC30221152F0CF60099",
                "0Bq3xVrb5U6sMCIRUvDPYAmQ==",
                &[
                    0xab, 0x7c, 0x55, 0xad, 0xbe, 0x54, 0xea, 0xc3, 2, 0x21, 0x15, 0x2f, 0xc, 0xf6,
                    0, 0x99,
                ],
            ),
            (
                "0X000000000000000000000000000000000000000080",
                "0bAAAAAAAAAAAAAAAAAAAAAAAAAACA",
                &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80],
            ),
        ];
        for (hex, base64, bytes) in cases {
            assert_eq!(decode(hex).unwrap(), bytes);
            assert_eq!(decode(base64).unwrap(), bytes);
        }
        assert_eq!(decode("0x123").unwrap(), [0x01, 0x23], "an odd digit count rounds up");
        assert_eq!(decode("0xf").unwrap(), [0x0f]);
    }

    #[test]
    fn binary_in_decimal() {
        assert_eq!(decode("0").unwrap(), [0]);
        assert_eq!(decode("258").unwrap(), [1, 2]);
        assert_eq!(decode("18446744073709551615").unwrap(), [0xff; 8]);
    }

    #[test]
    fn bad_binary() {
        let bad = [
            "",
            "0x",
            "0b",
            "0xgg",
            "0b=",
            "0b====",
            "0bA===",
            "0bAA=A",
            "0bAAA",
            "0bAB==",
            "0b\u{e4}aa",
            "-1",
            "x",
        ];
        for value in bad {
            assert_eq!(decode(value), Err(BinaryError::Malformed), "{value}");
        }
    }

    #[test]
    fn binary_is_bounded() {
        let mut out = [0; 2];
        assert_eq!(binary("0x0102", &mut out), Ok(&[1, 2][..]));
        assert_eq!(binary("0x010203", &mut out), Err(BinaryError::TooLong));
        assert_eq!(binary("0bAQI=", &mut out), Ok(&[1, 2][..]));
        assert_eq!(binary("0bAQID", &mut out), Err(BinaryError::TooLong));
        assert_eq!(binary("65536", &mut out), Err(BinaryError::TooLong));
    }

    proptest! {
        #[test]
        fn binary_comes_back(bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            let mut writer = TextWriter::new(1024);
            writer.push_binary_hex("H", &bytes).unwrap();
            writer.push_binary_base64("B", &bytes).unwrap();
            for pair in super::super::Pairs::new(writer.as_bytes()) {
                prop_assert_eq!(decode(pair.unwrap().1).unwrap(), &bytes[..]);
            }
        }

        #[test]
        fn any_value_is_decoded_or_refused(
            value in "0?[xXbB]?[\u{e4}=+/0-9a-zA-Z]{0,80}",
            len in 0_usize..40,
        ) {
            let mut out = [0; 40];
            if let Ok(bytes) = binary(&value, &mut out[..len]) {
                prop_assert!(bytes.len() <= len);
            }
            let _ = (numeric(&value), range(&value), boolean(&value), list(&value).count());
        }

        #[test]
        fn any_number_comes_back(number: u64) {
            prop_assert_eq!(numeric(&alloc::format!("{number}")), Some(number));
            prop_assert_eq!(numeric(&alloc::format!("0x{number:x}")), Some(number));
            let upper: String = alloc::format!("0X{number:X}");
            prop_assert_eq!(numeric(&upper), Some(number));
        }
    }
}
