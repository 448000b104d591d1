// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Big-endian access by offset: reading is total, writing goes to bytes that the caller has made.

pub(super) fn get<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn get_u8(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

pub(super) fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    get(bytes, at).map(u16::from_be_bytes)
}

pub(super) fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    get(bytes, at).map(u32::from_be_bytes)
}

pub(super) fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    get(bytes, at).map(u64::from_be_bytes)
}

/// Writes `value` at `at`; the caller's array is long enough by construction.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(to) = bytes.get_mut(at..at + N) {
        to.copy_from_slice(&value);
    } else {
        debug_assert!(false, "field at {at} lies outside its layout");
    }
}
