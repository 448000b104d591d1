// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When two LUN fields name the same unit.

use wire::iscsi::LunField;

/// Compares LUNs: the flat form of a number below 256 is the same unit as the peripheral form
/// (SAM-5 §4.7.5).
pub(super) fn lun_key(lun: LunField) -> [u8; 8] {
    match lun.0 {
        [0x40, number, rest @ ..] => {
            let mut key = [0; 8];
            key[1] = number;
            key[2..].copy_from_slice(&rest);
            key
        }
        other => other,
    }
}
