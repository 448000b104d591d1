// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FPDUs and the markers among them (RFC 5044 §4).
//!
//! ```text
//!  byte  0               2        2+n            a multiple of 4
//!        ULPDU length n  ULPDU    padding 0..3   CRC, 4 bytes
//! ```

use super::field::Writer;

/// Bytes of the length in front of a ULPDU.
pub const LENGTH_LEN: usize = 2;

/// Bytes of the CRC behind it, least significant one first, as in iSCSI.
pub const CRC_LEN: usize = 4;

/// Bytes of a marker.
pub const MARKER_LEN: usize = 4;

/// From the first byte of a marker to that of the next one (RFC 5044 §4.3).
pub const MARKER_INTERVAL: usize = 512;

/// Longest ULPDU that a sender makes (RFC 5044 §4.5): its FPDU with markers fits 64 KiB.
pub const MULPDU_MAX: usize = 64_768;

/// What a sender can always take as one ULPDU (RFC 5044 §4.5).
pub const MULPDU_MIN: usize = 128;

/// Bytes of zeroes behind a ULPDU, so that the CRC begins at a multiple of four.
#[must_use]
pub const fn padding(ulpdu_length: u16) -> usize {
    (LENGTH_LEN + ulpdu_length as usize).wrapping_neg() % 4
}

/// Bytes of the FPDU of such a ULPDU, markers apart.
#[must_use]
pub const fn fpdu_len(ulpdu_length: u16) -> usize {
    LENGTH_LEN + ulpdu_length as usize + padding(ulpdu_length) + CRC_LEN
}

/// The longest ULPDU whose FPDU fits a TCP segment of `segment_len` bytes (RFC 5044 §4.5), between
/// [`MULPDU_MIN`] and [`MULPDU_MAX`].
#[must_use]
pub fn mulpdu(segment_len: usize, markers: Markers) -> usize {
    let overhead = match markers {
        Markers::None => 0,
        Markers::Sent => MARKER_LEN * segment_len.div_ceil(MARKER_INTERVAL),
    };
    let taken = LENGTH_LEN + CRC_LEN + overhead + segment_len % 4;
    segment_len.saturating_sub(taken).clamp(MULPDU_MIN, MULPDU_MAX)
}

/// Whether a stream has markers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // it has, or it has not
pub enum Markers {
    /// It has none.
    #[default]
    None,
    /// One each [`MARKER_INTERVAL`] bytes.
    Sent,
}

/// A marker (RFC 5044 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// FPDUPTR: bytes of the stream from the length of the FPDU to this marker; 0 where the marker
    /// stands right in front of the length.
    pub fpdu_pointer: u16,
}

impl Marker {
    /// Takes a marker apart; the reserved half is ignored.
    #[must_use]
    pub const fn parse([_, _, high, low]: [u8; MARKER_LEN]) -> Self {
        Self { fpdu_pointer: u16::from_be_bytes([high, low]) }
    }

    /// The bytes.
    #[must_use]
    pub fn emit(self) -> [u8; MARKER_LEN] {
        Writer::new().put(&[0, 0]).put(&self.fpdu_pointer.to_be_bytes()).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_ends_at_a_word() {
        let of = |length| (padding(length), fpdu_len(length));
        assert_eq!([of(0), of(14), of(19), of(22)], [(2, 8), (0, 20), (3, 28), (0, 28)]);
        assert_eq!(of(u16::MAX), (3, 65_544));
        assert!((0..=u16::MAX).all(|length| fpdu_len(length).is_multiple_of(4)));
    }

    #[test]
    fn a_marker_points_back() {
        assert_eq!(Marker { fpdu_pointer: 508 }.emit(), [0, 0, 1, 0xfc]);
        assert_eq!(Marker::parse([0xff, 0xff, 1, 0xfc]), Marker { fpdu_pointer: 508 });
    }

    /// Covers: MPA-13/S.
    #[test]
    fn a_ulpdu_fits_a_segment() {
        for (segment, plain, marked) in [
            (536, 530, 522),
            (1448, 1442, 1430),
            (1460, 1454, 1442),
            (8948, 8942, 8870),
            (8960, 8954, 8882),
        ] {
            assert_eq!(mulpdu(segment, Markers::None), plain);
            assert_eq!(mulpdu(segment, Markers::Sent), marked);
        }
        assert_eq!([mulpdu(0, Markers::Sent), mulpdu(100, Markers::None)], [MULPDU_MIN; 2]);
        assert_eq!(mulpdu(usize::MAX, Markers::None), MULPDU_MAX);
    }
}
