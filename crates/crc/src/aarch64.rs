// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CRC instructions of ARMv8 in three streams: one takes two or three cycles, but a new one can
//! start in each.

use crate::shift::Shift;
use std::arch::aarch64::{__crc32cb, __crc32cd};

/// The register behind `bytes`.
#[target_feature(enable = "crc")]
pub(crate) fn update(mut register: u32, bytes: &[u8]) -> u32 {
    let (long, bytes) = bytes.as_chunks::<{ 3 * LONG }>();
    for block in long {
        register = three_streams::<LONG, false>(register, block, &mut [], &SHIFT_LONG);
    }
    let (short, bytes) = bytes.as_chunks::<{ 3 * SHORT }>();
    for block in short {
        register = three_streams::<SHORT, false>(register, block, &mut [], &SHIFT_SHORT);
    }
    one_stream(register, bytes)
}

/// Copies `src` to `dst`, which has the same length; the register behind the bytes.
#[target_feature(enable = "crc")]
pub(crate) fn copy_update(mut register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let (long_src, src) = src.as_chunks::<{ 3 * LONG }>();
    let (long_dst, dst) = dst.as_chunks_mut::<{ 3 * LONG }>();
    for (dst, src) in long_dst.iter_mut().zip(long_src) {
        register = three_streams::<LONG, true>(register, src, dst, &SHIFT_LONG);
    }
    let (short_src, src) = src.as_chunks::<{ 3 * SHORT }>();
    let (short_dst, dst) = dst.as_chunks_mut::<{ 3 * SHORT }>();
    for (dst, src) in short_dst.iter_mut().zip(short_src) {
        register = three_streams::<SHORT, true>(register, src, dst, &SHIFT_SHORT);
    }
    dst.copy_from_slice(src);
    one_stream(register, src)
}

/// The register behind `block`, which has three times `N` bytes; if `COPY`, it goes to `dst`.
#[inline]
#[target_feature(enable = "crc")]
fn three_streams<const N: usize, const COPY: bool>(
    register: u32,
    block: &[u8],
    dst: &mut [u8],
    shift: &Shift,
) -> u32 {
    let steps = block.as_chunks::<STEP>().0;
    let to = dst.as_chunks_mut::<STEP>().0;
    let count = N / STEP;
    let (mut first, mut second, mut third) = (register, 0, 0);
    for at in 0..count {
        let [a, b, c] = [0, count, 2 * count].map(|start| &steps[start + at]);
        if COPY {
            (to[at], to[count + at], to[2 * count + at]) = (*a, *b, *c);
        }
        first = two_words(first, a);
        second = two_words(second, b);
        third = two_words(third, c);
    }
    third ^ shift.apply(second ^ shift.apply(first))
}

#[inline]
#[target_feature(enable = "crc")]
fn two_words(mut register: u32, bytes: &[u8; STEP]) -> u32 {
    for word in bytes.as_chunks().0 {
        register = __crc32cd(register, u64::from_le_bytes(*word));
    }
    register
}

#[inline]
#[target_feature(enable = "crc")]
fn one_stream(mut register: u32, bytes: &[u8]) -> u32 {
    let (words, bytes) = bytes.as_chunks();
    for word in words {
        register = __crc32cd(register, u64::from_le_bytes(*word));
    }
    for byte in bytes {
        register = __crc32cb(register, *byte);
    }
    register
}

/// Bytes that a stream takes and copies in one go.
const STEP: usize = 16;

/// Bytes of each stream of a long block: three of them fill 4 KiB but for 16 bytes.
const LONG: usize = 1360;

/// Bytes of each stream of a short block: three of them cost less than one stream, the joining
/// included.
const SHORT: usize = 112;

const _: () = assert!(LONG.is_multiple_of(STEP) && SHORT.is_multiple_of(STEP));

static SHIFT_LONG: Shift = Shift::new(LONG as u64);
static SHIFT_SHORT: Shift = Shift::new(SHORT as u64);
