// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folding one lane of 128 bits at a time: PCLMULQDQ.

use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_loadu_si128, _mm_set_epi64x, _mm_setzero_si128, _mm_storeu_si128, _mm_xor_si128,
};

type Vector = __m128i;

const WIDTH: usize = 16;

/// Bytes from which on vectors are faster than words.
const VECTORS_MIN: usize = 320;

/// A group leaves the unit of the crc32 instruction free.
const WITH_STREAMS: bool = true;

/// A fold takes about 10 cycles and two multiplications, of which one can start in each cycle.
const GROUP: usize = 8;

crate::fold::kernel!("pclmulqdq,sse4.2");

#[inline]
#[target_feature(enable = "sse2")]
fn load(bytes: &[u8; WIDTH]) -> Vector {
    // SAFETY: the array has the 16 bytes that are read; they need no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn store(bytes: &mut [u8; WIDTH], vector: Vector) {
    // SAFETY: the array has the 16 bytes that are written; they need no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn zero() -> Vector {
    _mm_setzero_si128()
}

#[inline]
#[target_feature(enable = "sse2")]
fn low(register: u32) -> Vector {
    _mm_cvtsi32_si128(register.cast_signed())
}

#[inline]
#[target_feature(enable = "sse2")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm_xor_si128(a, b)
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn fold(vector: Vector, constants: Vector, plus: Vector) -> Vector {
    let first = _mm_clmulepi64_si128(vector, constants, 0x00);
    let second = _mm_clmulepi64_si128(vector, constants, 0x11);
    _mm_xor_si128(_mm_xor_si128(first, plus), second)
}

#[inline]
#[target_feature(enable = "sse2")]
fn same([first, second]: &[u64; 2]) -> Vector {
    _mm_set_epi64x(second.cast_signed(), first.cast_signed())
}

#[inline]
#[target_feature(enable = "sse2")]
fn each([lane]: &[[u64; 2]; LANES]) -> Vector {
    same(lane)
}

/// The sum of both.
#[inline]
#[target_feature(enable = "sse4.1")]
fn lanes(vector: Vector, plus: Vector) -> (u64, u64) {
    let lane = _mm_xor_si128(vector, plus);
    (_mm_cvtsi128_si64(lane).cast_unsigned(), _mm_extract_epi64(lane, 1).cast_unsigned())
}
