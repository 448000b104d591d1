// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes and times as people write them.

use crate::limits::{BLOCK_MIN, DELAY_MAX, SIZE_MAX};
use core::fmt;
use core::time::Duration;

/// Most digits behind the point.
const FRACTION_LEN_MAX: usize = 12;

/// Every suffix, whatever its case.
const UNITS: [(&str, u128); 20] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("P", 1 << 50),
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("E", 1 << 60),
    ("EiB", 1 << 60),
    ("EB", 1_000_000_000_000_000_000),
];

/// Why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Something else than a number and one suffix.
    #[error(
        "a size is a number of bytes, also with K, M, G, T or P (powers of 1024) or KB, MB, GB, TB \
         or PB (of 1000), such as 512M or 1.5G"
    )]
    NotANumber,
    /// A part of a byte is left.
    #[error("a size is a whole number of bytes")]
    NotWholeBytes,
    /// Above what a file can be.
    #[error(
        "a size is at most {SIZE_MAX} bytes, which is a little less than 8 EiB: 8191P is right"
    )]
    TooLarge,
    /// A disk without blocks.
    #[error("a size is at least {BLOCK_MIN} bytes")]
    Zero,
    /// Part of a block.
    #[error("a size is a multiple of {BLOCK_MIN} bytes: {below} and {above} are the nearest")]
    NotWholeBlocks {
        /// The next smaller size, bytes.
        below: u64,
        /// The next larger one.
        above: u64,
    },
}

/// A number of bytes as people write it: `4096`, `4K`, `4KiB`, `1.5G` (powers of 1024), `4KB`
/// (powers of 1000).
///
/// # Errors
/// What is wrong with `text`.
pub fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    match parse(text)? {
        (bytes, true) => Ok(bytes),
        (_, false) => Err(SizeError::NotWholeBytes),
    }
}

/// The whole bytes, and whether there is nothing behind them.
fn parse(text: &str) -> Result<(u64, bool), SizeError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).ok_or(SizeError::NotANumber)?;
    let is_unit = |name: &&(&str, u128)| name.0.eq_ignore_ascii_case(unit);
    let factor = UNITS.iter().find(is_unit).ok_or(SizeError::NotANumber)?.1;
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return Err(SizeError::NotANumber),
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(fraction) {
        return Err(SizeError::NotANumber);
    }
    // Only digits: what does not parse is too large.
    let whole: u64 = whole.parse().map_err(|_| SizeError::TooLarge)?;
    let bytes = u128::from(whole).checked_mul(factor).ok_or(SizeError::TooLarge)?;
    let (digits, places) = match fraction.trim_end_matches('0') {
        digits if digits.len() > FRACTION_LEN_MAX => return Err(SizeError::NotWholeBytes),
        "" => (0, 0),
        digits => (digits.parse::<u128>().map_err(|_| SizeError::NotANumber)?, digits.len()),
    };
    let parts = (0..places).fold(1_u128, |parts, _| parts * 10);
    let share = digits * factor;
    let whole = u64::try_from(bytes + share / parts).map_err(|_| SizeError::TooLarge)?;
    Ok((whole, share.is_multiple_of(parts)))
}

/// The size of a store in bytes: not zero, a multiple of 512, at most 2^63 - 1.
///
/// # Errors
/// What is wrong with `text`.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (bytes, whole) = parse(text)?;
    match bytes {
        0..BLOCK_MIN => Err(SizeError::Zero),
        bytes if bytes > SIZE_MAX => Err(SizeError::TooLarge),
        bytes if whole && bytes.is_multiple_of(BLOCK_MIN) => Ok(bytes),
        bytes => {
            let below = bytes - bytes % BLOCK_MIN;
            Err(SizeError::NotWholeBlocks { below, above: below + BLOCK_MIN })
        }
    }
}

/// A number of bytes, exactly, as [`parse_bytes`] takes it: with the largest unit that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exactly(pub u64);

impl fmt::Display for Exactly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let fits = |(shift, _): &(u32, &str)| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        let (shift, unit) = units.into_iter().find(fits).unwrap_or((0, ""));
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

/// A time: a number and `us`, `ms` or `s`, at most a minute; None for anything else, and for zero.
pub(super) fn parse_time(text: &str) -> Option<Duration> {
    parse_time_up_to(text, DELAY_MAX)
}

/// The same with another longest one.
pub(super) fn parse_time_up_to(text: &str, max: Duration) -> Option<Duration> {
    let (number, nanoseconds) = if let Some(number) = text.strip_suffix("us") {
        (number, 1_000)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1_000_000)
    } else {
        (text.strip_suffix('s')?, 1_000_000_000)
    };
    let time = Duration::from_nanos(parse_count(number)?.checked_mul(nanoseconds)?);
    (time <= max).then_some(time)
}

/// A time, exactly, as [`parse_time`] takes it: with the largest unit that fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExactTime(pub(super) Duration);

impl fmt::Display for ExactTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let units = [(1_000_000, "s"), (1_000, "ms")];
        let fits = |(unit, _): &(u128, &str)| micros > 0 && micros.is_multiple_of(*unit);
        let (unit, name) = units.into_iter().find(fits).unwrap_or((1, "us"));
        write!(f, "{}{name}", micros / unit)
    }
}

/// A number of digits alone, not zero.
pub(super) fn parse_count(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|count| *count > 0)
}
