// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `crc32` instruction in three streams: it takes three cycles, but a new one can start in
//! each.

use crate::shift::Shift;
use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

/// The register behind `bytes`.
#[target_feature(enable = "sse4.2")]
pub(crate) fn update(register: u32, bytes: &[u8]) -> u32 {
    let mut register = u64::from(register);
    let (long, bytes) = bytes.as_chunks::<{ 3 * LONG }>();
    for block in long {
        register = three_streams::<LONG>(register, block, &SHIFT_LONG);
    }
    let (short, bytes) = bytes.as_chunks::<{ 3 * SHORT }>();
    for block in short {
        register = three_streams::<SHORT>(register, block, &SHIFT_SHORT);
    }
    one_stream(register, bytes)
}

/// The register behind `block`, which has three times `N` bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
fn three_streams<const N: usize>(register: u64, block: &[u8], shift: &Shift) -> u64 {
    let (a, rest) = block.split_at(N);
    let (b, c) = rest.split_at(N);
    let (mut first, mut second, mut third) = (register, 0, 0);
    let words = a.as_chunks().0.iter().zip(b.as_chunks().0).zip(c.as_chunks().0);
    for ((a, b), c) in words {
        first = _mm_crc32_u64(first, u64::from_le_bytes(*a));
        second = _mm_crc32_u64(second, u64::from_le_bytes(*b));
        third = _mm_crc32_u64(third, u64::from_le_bytes(*c));
    }
    join(shift, first, second, third)
}

#[inline]
fn join(shift: &Shift, first: u64, second: u64, third: u64) -> u64 {
    u64::from(low_half(third) ^ shift.apply(low_half(second) ^ shift.apply(low_half(first))))
}

/// Copies `src` to `dst`, which has the same length; the register behind the bytes. The stores find
/// room beside the instruction, so that the copy costs next to nothing.
#[target_feature(enable = "sse4.2")]
pub(crate) fn copy_update(register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let mut register = u64::from(register);
    let (long_src, src) = src.as_chunks::<{ 3 * LONG }>();
    let (long_dst, dst) = dst.as_chunks_mut::<{ 3 * LONG }>();
    for (dst, src) in long_dst.iter_mut().zip(long_src) {
        register = copy_three_streams::<LONG>(register, dst, src, &SHIFT_LONG);
    }
    let (short_src, src) = src.as_chunks::<{ 3 * SHORT }>();
    let (short_dst, dst) = dst.as_chunks_mut::<{ 3 * SHORT }>();
    for (dst, src) in short_dst.iter_mut().zip(short_src) {
        register = copy_three_streams::<SHORT>(register, dst, src, &SHIFT_SHORT);
    }
    dst.copy_from_slice(src);
    one_stream(register, dst)
}

/// As [`three_streams`], and copies `src` to `dst`: by 16 bytes, as stores of 8 would hold the
/// instruction up.
#[inline]
#[target_feature(enable = "sse4.2")]
fn copy_three_streams<const N: usize>(
    register: u64,
    dst: &mut [u8],
    src: &[u8],
    shift: &Shift,
) -> u64 {
    let (a, rest) = src.split_at(N);
    let (b, c) = rest.split_at(N);
    let (to_a, rest) = dst.split_at_mut(N);
    let (to_b, to_c) = rest.split_at_mut(N);
    let (mut first, mut second, mut third) = (register, 0, 0);
    let from = a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0).zip(c.as_chunks::<16>().0);
    let to = to_a.as_chunks_mut::<16>().0.iter_mut().zip(to_b.as_chunks_mut::<16>().0);
    for (((a, b), c), ((to_a, to_b), to_c)) in from.zip(to.zip(to_c.as_chunks_mut::<16>().0)) {
        (*to_a, *to_b, *to_c) = (*a, *b, *c);
        first = words_of(first, a);
        second = words_of(second, b);
        third = words_of(third, c);
    }
    join(shift, first, second, third)
}

/// The register behind `bytes`, word by word.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn one_stream(mut register: u64, bytes: &[u8]) -> u32 {
    let (words, bytes) = bytes.as_chunks();
    for bytes in words {
        register = word(register, u64::from_le_bytes(*bytes));
    }
    let mut register = low_half(register);
    let (words, bytes) = bytes.as_chunks();
    for word in words {
        register = _mm_crc32_u32(register, u32::from_le_bytes(*word));
    }
    for byte in bytes {
        register = _mm_crc32_u8(register, *byte);
    }
    register
}

/// The register behind the words of `bytes`.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn words_of<const N: usize>(mut register: u64, bytes: &[u8; N]) -> u64 {
    for bytes in bytes.as_chunks().0 {
        register = word(register, u64::from_le_bytes(*bytes));
    }
    register
}

/// The register behind one word.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn word(register: u64, word: u64) -> u64 {
    _mm_crc32_u64(register, word)
}

/// The instruction leaves the upper half zero.
pub(crate) const fn low_half(register: u64) -> u32 {
    (register & 0xffff_ffff) as u32
}

/// Bytes of each stream of a long block: three of them fill 4 KiB but for 16 bytes.
const LONG: usize = 1360;

/// Bytes of each stream of a short block: three of them cost less than one stream, the joining
/// included.
const SHORT: usize = 112;

const _: () = assert!(LONG.is_multiple_of(16) && SHORT.is_multiple_of(16));

static SHIFT_LONG: Shift = Shift::new(LONG as u64);
static SHIFT_SHORT: Shift = Shift::new(SHORT as u64);
