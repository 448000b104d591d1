// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one place that copies.

use crate::limits::STREAM_MIN;
#[cfg(target_arch = "x86_64")]
use std::hint::black_box;
use std::ptr;
#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

/// Bytes of a cache line: written whole, it leaves the processor in one piece.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

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

/// Copies `len` bytes to memory that will not be read soon; the ranges may overlap.
///
/// From [`STREAM_MIN`] on with stores that pass by the caches (FAST05 calls it streaming): the
/// lines need not be fetched before they are overwritten, and what is in the cache stays there.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes.
pub(crate) unsafe fn copy_raw_away(dst: *mut u8, src: *const u8, len: usize) {
    let apart = dst.addr().abs_diff(src.addr()) >= len;
    if cfg!(target_arch = "x86_64") && len >= STREAM_MIN && apart {
        // SAFETY: the caller's promise, and the ranges do not overlap.
        unsafe { stream(dst, src, len) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_raw(dst, src, len) }
    }
}

/// Has the processor bring `len` bytes from `from` on into its caches.
#[cfg(target_arch = "x86_64")]
pub(crate) fn prefetch(from: *const u8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    for at in (0..len).step_by(LINE) {
        // SAFETY: a hint, which faults at no address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) const fn prefetch(_: *const u8, _: usize) {}

/// Reads a byte of each line, on a processor that then copies them quicker. Loads and no hints: as
/// many hints at once wait for each other, and cost more than they saved.
#[cfg(target_arch = "x86_64")]
pub(crate) fn fetch(bytes: &[u8]) {
    static PAYS: LazyLock<bool> = LazyLock::new(|| {
        let vendor = std::arch::x86_64::__cpuid(0);
        let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        vendor.as_flattened() == b"AuthenticAMD"
    });
    if *PAYS {
        black_box(bytes.iter().step_by(LINE).fold(0, |all, byte| all ^ byte));
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) const fn fetch(_: &[u8]) {}

/// # Safety
/// As for [`copy_raw_away`], and the ranges do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(dst: *mut u8, src: *const u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_sfence, _mm_stream_si128};

    const WORD: usize = size_of::<__m128i>();
    const { assert!(LINE == 4 * WORD) };
    let head = dst.align_offset(LINE).min(len);
    let body = (len - head) / LINE * LINE;
    // SAFETY: `head` is at most `len`, and the ranges do not overlap (the caller's promise).
    unsafe { ptr::copy_nonoverlapping(src, dst, head) };
    for at in (head..head + body).step_by(LINE) {
        // SAFETY: at + LINE is at most `len`: within what is readable; unaligned is said.
        let words = unsafe { src.wrapping_add(at).cast::<[__m128i; 4]>().read_unaligned() };
        for (number, word) in words.into_iter().enumerate() {
            let to = dst.wrapping_add(at + number * WORD).cast::<__m128i>();
            // SAFETY: within what is writable, as above, and aligned, since the line is. SSE2 is
            // part of x86-64.
            unsafe { _mm_stream_si128(to, word) };
        }
    }
    // SAFETY: SSE is part of x86-64. What is published afterwards is not seen before these stores.
    unsafe { _mm_sfence() };
    let (from, to) = (src.wrapping_add(head + body), dst.wrapping_add(head + body));
    // SAFETY: what is left of the two ranges.
    unsafe { ptr::copy_nonoverlapping(from, to, len - head - body) };
}

#[cfg(not(target_arch = "x86_64"))]
use copy_raw as stream;

#[cfg(test)]
mod tests {
    use super::{copy, copy_raw_away};
    use crate::Pool;
    use crate::limits::STREAM_MIN;

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

    fn numbered(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from(i % 251).expect("below 256")).collect()
    }

    #[test]
    fn streaming_copies_exactly_wherever_it_begins_and_ends() {
        let from = numbered(STREAM_MIN + 512);
        for offset in 0..70 {
            for len in [0, 63, STREAM_MIN - 1, STREAM_MIN, STREAM_MIN + 1, STREAM_MIN + 100] {
                let mut to = vec![0xee; STREAM_MIN + 512];
                let (dst, src) = (to[offset..].as_mut_ptr(), from[7..].as_ptr());
                // SAFETY: both vectors are longer than the offset and the length together.
                unsafe { copy_raw_away(dst, src, len) };
                assert!(to[offset..offset + len] == from[7..7 + len], "{offset} {len}");
                assert!(to[..offset].iter().all(|byte| *byte == 0xee), "{offset} {len}");
                assert!(to[offset + len..].iter().all(|byte| *byte == 0xee), "{offset} {len}");
            }
        }
    }

    #[test]
    fn streaming_leaves_ranges_that_overlap_to_the_ordinary_copy() {
        for distance in [1, 64, STREAM_MIN - 1, STREAM_MIN] {
            let mut bytes = numbered(3 * STREAM_MIN);
            let mut model = bytes.clone();
            model.copy_within(100..100 + STREAM_MIN, 100 + distance);
            let base = bytes.as_mut_ptr();
            let (dst, src) = (base.wrapping_add(100 + distance), base.wrapping_add(100));
            // SAFETY: both ranges end before the vector does.
            unsafe { copy_raw_away(dst, src, STREAM_MIN) };
            assert!(bytes == model, "{distance}");
        }
    }
}
