// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT TIMESTAMP and SET TIMESTAMP parameter data (SPC-4 §6.38, §6.45), 12 bytes each.

use super::field::get;
use super::field::put;

/// Length of either, bytes.
pub const LEN: usize = 12;

/// The largest TIMESTAMP: 48 bits of milliseconds since 1970-01-01 UTC.
pub const MAX: u64 = (1 << 48) - 1;

/// TIMESTAMP ORIGIN (SPC-4 §5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those that a unit with a clock can have
#[repr(u8)]
pub enum Origin {
    /// Set by SET TIMESTAMP.
    Command = 2,
    /// Known by other means.
    Other = 3,
}

/// Writes what REPORT TIMESTAMP gives; `milliseconds` is cut to 48 bits.
#[must_use]
pub fn emit(origin: Origin, milliseconds: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[1] = 10;
    bytes[2] = origin as u8;
    let [_, _, timestamp @ ..] = (milliseconds & MAX).to_be_bytes();
    put::<6>(&mut bytes, 4, timestamp);
    bytes
}

/// TIMESTAMP of either, milliseconds; None if it is cut.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<u64> {
    let [a, b, c, d, e, f] = get::<6>(bytes, 4)?;
    Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// The first reserved byte of a SET TIMESTAMP list that is not zero.
#[must_use]
pub fn first_reserved(bytes: &[u8]) -> Option<u16> {
    let mut reserved = (0..4).chain(10..12);
    reserved.find(|at| bytes.get(usize::from(*at)).is_some_and(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector() {
        let bytes = emit(Origin::Command, 0x0102_0304_0506);
        assert_eq!(bytes, [0, 10, 2, 0, 1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!(parse(&bytes), Some(0x0102_0304_0506));
        assert_eq!(parse(&bytes[..9]), None);
        assert_eq!(first_reserved(&bytes), Some(1), "not what SET TIMESTAMP sends");
        assert_eq!(first_reserved(&[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 7]), Some(11));
        assert_eq!(first_reserved(&[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0]), None);
    }
}
