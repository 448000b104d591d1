// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads what PERSISTENT RESERVE IN returns (SPC-4 §6.15.2, §6.15.3).

use alloc::vec::Vec;

use super::field::get_u8;
use super::field::get_u32;
use super::field::get_u64;
use super::persistent::Type;

/// READ KEYS data: the generation and the keys, as many as are announced and there. None if cut.
#[must_use]
pub fn parse_keys(bytes: &[u8]) -> Option<(u32, Vec<u64>)> {
    let generation = get_u32(bytes, 0)?;
    let announced = usize::try_from(get_u32(bytes, 4)?).ok()?;
    let list = bytes.get(8..)?;
    let list = list.get(..announced).unwrap_or(list);
    Some((generation, list.chunks_exact(8).filter_map(|key| get_u64(key, 0)).collect()))
}

/// READ RESERVATION data: the key and the type of the holder. None if cut or if there is none.
#[must_use]
pub fn parse_reservation(bytes: &[u8]) -> Option<(u64, Type)> {
    if get_u32(bytes, 4)? < 16 {
        return None;
    }
    Some((get_u64(bytes, 8)?, Type::from_code(get_u8(bytes, 21)? & 0x0f)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::persistent;

    #[test]
    fn keys_and_holder_read_back() {
        let bytes = persistent::emit_keys(7, [1, u64::MAX]);
        assert_eq!(parse_keys(&bytes), Some((7, Vec::from([1, u64::MAX]))));
        assert_eq!(parse_keys(&bytes[..20]), Some((7, Vec::from([1]))));
        assert_eq!(parse_keys(&bytes[..7]), None);
        for kind in Type::ALL {
            let bytes = persistent::emit_reservation(7, Some((5, kind)));
            assert_eq!(parse_reservation(&bytes), Some((5, kind)));
        }
        assert_eq!(parse_reservation(&persistent::emit_reservation(7, None)), None);
    }
}
