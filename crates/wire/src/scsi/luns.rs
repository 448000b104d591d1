// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT LUNS parameter data (SPC-4 §6.33).

use super::field::get_u32;
use super::lun::Lun;
use crate::iscsi::LunField;
use alloc::vec::Vec;

/// Bytes before the list.
const HEADER_LEN: usize = 8;

/// Writes the list; its LUN LIST LENGTH is the whole length, whatever is cut off later.
#[must_use]
pub fn emit(luns: impl IntoIterator<Item = Lun>) -> Vec<u8> {
    let mut bytes = Vec::from([0; HEADER_LEN]);
    for lun in luns {
        bytes.extend_from_slice(&lun.emit().0);
    }
    let length = u32::try_from(bytes.len() - HEADER_LEN).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The LUN fields of `bytes`, as many as are both announced and there; None without a whole header.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<impl Iterator<Item = LunField> + '_> {
    let announced = usize::try_from(get_u32(bytes, 0)?).ok()?;
    let list = bytes.get(HEADER_LEN..)?;
    let list = list.get(..announced).unwrap_or(list);
    Some(list.as_chunks::<8>().0.iter().map(|chunk| LunField(*chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vector() {
        let bytes = emit([Lun::Unit(0), Lun::Unit(256)]);
        let expected = [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes, expected);
    }

    proptest! {
        #[test]
        fn round_trip(numbers in proptest::collection::vec(any::<u16>(), 0..40)) {
            let bytes = emit(numbers.iter().map(|number| Lun::Unit(*number)));
            let back: Vec<_> = parse(&bytes).expect("a header").filter_map(Lun::parse).collect();
            prop_assert_eq!(back, numbers.into_iter().map(Lun::Unit).collect::<Vec<_>>());
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(list) = parse(&bytes) {
                prop_assert!(list.count() <= 8);
            }
        }
    }
}
