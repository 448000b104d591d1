// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folding four lanes of 128 bits at once: VPCLMULQDQ with AVX-512.

use std::arch::x86_64::{
    __m512i, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_xor_si256, _mm512_castsi512_si256,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_extracti64x4_epi64,
    _mm512_loadu_si512, _mm512_set_epi64, _mm512_setzero_si512, _mm512_storeu_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

type Vector = __m512i;

const WIDTH: usize = 64;

/// Bytes from which on vectors are faster than words.
const VECTORS_MIN: usize = 128;

/// Multiplication alone: Intel's processors close a port to the crc32 instruction while they do
/// operations on 512 bits, and 8 or 16 words beside a group gained nothing.
pub(crate) mod alone {
    use super::*;

    /// A fold takes about 10 cycles and two multiplications, of which one can start in each cycle.
    const GROUP: usize = 8;

    const WITH_STREAMS: bool = false;

    crate::fold::kernel!("avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2");
}

/// Beside the crc32 instruction: AMD's have a unit of its own for it, and gain 1.4 times.
pub(crate) mod beside_words {
    use super::*;

    /// A fold takes 5 cycles, and one multiplication can start in each second one.
    const GROUP: usize = 4;

    const WITH_STREAMS: bool = true;

    crate::fold::kernel!("avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2");
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; WIDTH]) -> Vector {
    // SAFETY: the array has the 64 bytes that are read; they need no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; WIDTH], vector: Vector) {
    // SAFETY: the array has the 64 bytes that are written; they need no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

#[inline]
#[target_feature(enable = "avx512f")]
fn low(register: u32) -> Vector {
    _mm512_zextsi128_si512(_mm_cvtsi32_si128(register.cast_signed()))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(vector: Vector, constants: Vector, plus: Vector) -> Vector {
    let first = _mm512_clmulepi64_epi128(vector, constants, 0x00);
    let second = _mm512_clmulepi64_epi128(vector, constants, 0x11);
    _mm512_ternarylogic_epi64(first, second, plus, XOR_OF_THREE)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn same([first, second]: &[u64; 2]) -> Vector {
    let (first, second) = (first.cast_signed(), second.cast_signed());
    _mm512_set_epi64(second, first, second, first, second, first, second, first)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn each(lanes: &[[u64; 2]; WIDTH / 16]) -> Vector {
    let [a, b, c, d, e, f, g, h] = *lanes.as_flattened() else { return zero() };
    let [a, b, c, d] = [a, b, c, d].map(u64::cast_signed);
    let [e, f, g, h] = [e, f, g, h].map(u64::cast_signed);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

/// The sum of all lanes, with the last one of `plus`.
#[inline]
#[target_feature(enable = "avx512f,sse4.1")]
fn lanes(vector: Vector, plus: Vector) -> (u64, u64) {
    let half = _mm512_extracti64x4_epi64(vector, 1);
    let half = _mm256_xor_si256(half, _mm512_castsi512_si256(vector));
    let lane = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    let lane = _mm_xor_si128(lane, _mm512_extracti32x4_epi32(plus, 3));
    (_mm_cvtsi128_si64(lane).cast_unsigned(), _mm_extract_epi64(lane, 1).cast_unsigned())
}

/// The truth table of the exclusive or.
const XOR_OF_THREE: i32 = 0x96;
