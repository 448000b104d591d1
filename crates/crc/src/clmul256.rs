// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folding two lanes of 128 bits at once: VPCLMULQDQ with AVX2.

use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128,
    _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_set_epi64x, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
    _mm256_zextsi128_si256,
};

type Vector = __m256i;

const WIDTH: usize = 32;

/// Bytes from which on vectors are faster than words.
const VECTORS_MIN: usize = 192;

/// A group leaves the unit of the crc32 instruction free.
const WITH_STREAMS: bool = true;

/// A fold takes about 10 cycles and two multiplications, of which one can start in each cycle.
const GROUP: usize = 8;

crate::fold::kernel!("avx2,vpclmulqdq,pclmulqdq,sse4.2");

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; WIDTH]) -> Vector {
    // SAFETY: the array has the 32 bytes that are read; they need no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(bytes: &mut [u8; WIDTH], vector: Vector) {
    // SAFETY: the array has the 32 bytes that are written; they need no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn zero() -> Vector {
    _mm256_setzero_si256()
}

#[inline]
#[target_feature(enable = "avx2")]
fn low(register: u32) -> Vector {
    _mm256_zextsi128_si256(_mm_cvtsi32_si128(register.cast_signed()))
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold(vector: Vector, constants: Vector, plus: Vector) -> Vector {
    let first = _mm256_clmulepi64_epi128(vector, constants, 0x00);
    let second = _mm256_clmulepi64_epi128(vector, constants, 0x11);
    _mm256_xor_si256(_mm256_xor_si256(first, plus), second)
}

#[inline]
#[target_feature(enable = "avx2")]
fn same([first, second]: &[u64; 2]) -> Vector {
    let (first, second) = (first.cast_signed(), second.cast_signed());
    _mm256_set_epi64x(second, first, second, first)
}

#[inline]
#[target_feature(enable = "avx2")]
fn each([[a, b], [c, d]]: &[[u64; 2]; LANES]) -> Vector {
    let [a, b, c, d] = [*a, *b, *c, *d].map(u64::cast_signed);
    _mm256_set_epi64x(d, c, b, a)
}

/// The sum of all lanes, with the last one of `plus`.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes(vector: Vector, plus: Vector) -> (u64, u64) {
    let lane = _mm_xor_si128(_mm256_castsi256_si128(vector), _mm256_extracti128_si256(vector, 1));
    let lane = _mm_xor_si128(lane, _mm256_extracti128_si256(plus, 1));
    (_mm_cvtsi128_si64(lane).cast_unsigned(), _mm_extract_epi64(lane, 1).cast_unsigned())
}
