// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT IDENTIFYING INFORMATION parameter data (SPC-4 §6.32).

use super::field::get_u16;
use alloc::vec;
use alloc::vec::Vec;

/// The identifying information type that asks which others there are.
pub const SUPPORTED: u8 = 0x7f;

/// IDENTIFYING INFORMATION TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the standard has no other
pub enum Kind {
    /// 0000000b: peripheral device identifying information, any bytes.
    Unit,
    /// 0000010b: peripheral device text identifying information, UTF-8 with a null at its end.
    Text,
}

impl Kind {
    /// Every kind, ascending by code.
    pub const ALL: [Self; 2] = [Self::Unit, Self::Text];

    /// The seven bits on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unit => 0,
            Self::Text => 2,
        }
    }

    /// From seven bits.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Unit),
            2 => Some(Self::Text),
            _ => None,
        }
    }
}

/// What is written of one kind.
#[must_use]
pub fn emit(information: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(information.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut bytes = vec![0, 0, high, low];
    bytes.extend_from_slice(information);
    bytes
}

/// What `emit` wrote; None if it is cut.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<&[u8]> {
    let length = usize::from(get_u16(bytes, 2)?);
    bytes.get(4..4 + length)
}

/// Which kinds there are, with their longest length.
#[must_use]
pub fn emit_supported(kinds: impl IntoIterator<Item = (Kind, usize)>) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, length) in kinds {
        let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        list.extend_from_slice(&[kind.code() << 1, 0, high, low]);
    }
    emit(&list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors() {
        assert_eq!(emit(b"disk"), *b"\0\0\0\x04disk");
        assert_eq!(emit_supported([(Kind::Text, 256)]), [0, 0, 0, 4, 4, 0, 1, 0]);
        for kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
        }
    }

    proptest! {
        #[test]
        fn round_trip(information in proptest::collection::vec(any::<u8>(), 0..300)) {
            let bytes = emit(&information);
            prop_assert_eq!(parse(&bytes), Some(&information[..]));
            prop_assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        }
    }
}
