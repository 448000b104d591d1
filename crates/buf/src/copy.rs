// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one place that copies.

use std::ptr;

/// Copies `src` to `dst`, which has the same length: a caller's mistake otherwise, which panics.
///
/// The one entry for copies on the data path, so that a processor on which the system's copy is
/// slow can be helped in one place. An own loop of 32-byte loads and stores for the distances where
/// `rep movsb` is slow on some processors was measured on Zen 5 and is not here: the system's copy
/// was as fast or faster at every distance, and page-aligned buffers keep clear of those distances.
pub fn copy(dst: &mut [u8], src: &[u8]) {
    dst.copy_from_slice(src);
}

/// Copies `len` bytes; the ranges may overlap.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes.
pub(crate) unsafe fn copy_raw(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { ptr::copy(src, dst, len) }
}

#[cfg(test)]
mod tests {
    use super::copy;
    use crate::Pool;

    #[test]
    fn every_distance_and_length_copies_exactly() {
        let pool = Pool::new(1 << 20).expect("room");
        let mut from = pool.take(8192).expect("room");
        let mut to = pool.take(8192).expect("room");
        for (i, byte) in from.iter_mut().enumerate() {
            *byte = u8::try_from(i % 251).expect("below 256");
        }
        for offset in 0..40 {
            for len in [0, 1, 31, 32, 511, 512, 513, 640, 767, 4095, 4096, 5000] {
                to.fill(0xee);
                copy(&mut to[offset..offset + len], &from[3..3 + len]);
                assert_eq!(to[offset..offset + len], from[3..3 + len], "{offset} {len}");
                assert!(to[..offset].iter().all(|byte| *byte == 0xee), "{offset} {len}");
                assert!(to[offset + len..].iter().all(|byte| *byte == 0xee), "{offset} {len}");
            }
        }
    }
}
