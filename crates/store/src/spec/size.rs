// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes and times as people write them.

use crate::limits::{BLOCK_MIN, DELAY_MAX, SIZE_MAX};
use core::time::Duration;

/// Why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Other characters than digits and one suffix.
    #[error("a size is a number of bytes with an optional K, M, G or T, such as 512M")]
    NotANumber,
    /// Above what a file can be.
    #[error("a size is at most {SIZE_MAX} bytes")]
    TooLarge,
    /// A disk without blocks.
    #[error("a size is at least {BLOCK_MIN} bytes")]
    Zero,
    /// Part of a block.
    #[error("a size is a multiple of {BLOCK_MIN} bytes")]
    NotWholeBlocks,
}

/// The size of a store in bytes: a number with an optional suffix K, M, G or T (powers of 1024),
/// not zero, a multiple of 512, at most 2^63 - 1.
///
/// # Errors
/// What is wrong with `text`.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (text.get(..at), 10),
        Some((at, 'M' | 'm')) => (text.get(..at), 20),
        Some((at, 'G' | 'g')) => (text.get(..at), 30),
        Some((at, 'T' | 't')) => (text.get(..at), 40),
        _ => (Some(text), 0),
    };
    let digits = digits.ok_or(SizeError::NotANumber)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SizeError::NotANumber);
    }
    // Only digits: what does not parse is too large.
    let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    let bytes = number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)?;
    match bytes {
        0 => Err(SizeError::Zero),
        bytes if bytes > SIZE_MAX => Err(SizeError::TooLarge),
        bytes if !bytes.is_multiple_of(BLOCK_MIN) => Err(SizeError::NotWholeBlocks),
        bytes => Ok(bytes),
    }
}

/// A time: a number and `us`, `ms` or `s`, at most a minute; None for anything else, and for zero.
pub(super) fn parse_time(text: &str) -> Option<Duration> {
    let (number, nanoseconds) = if let Some(number) = text.strip_suffix("us") {
        (number, 1_000)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1_000_000)
    } else {
        (text.strip_suffix('s')?, 1_000_000_000)
    };
    let time = Duration::from_nanos(parse_count(number)?.checked_mul(nanoseconds)?);
    (time <= DELAY_MAX).then_some(time)
}

/// A number of digits alone, not zero.
pub(super) fn parse_count(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|count| *count > 0)
}
