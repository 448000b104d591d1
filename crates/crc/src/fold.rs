// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folding by carry-less multiplication (Gopal et al., 2009), whatever the width of a vector: the
//! constants, and the algorithm as a macro that `clmul128`, `clmul256` and `clmul512` fill in.
//!
//! # Numbers
//!
//! Bits are reflected: bit i of a 64-bit word stands for x^(63-i), the first eight bytes of a lane
//! for the higher powers. A product has its bit i at x^(126-i), so as a lane it stands for the
//! product times x; the constants have one power less for it. `K` below is 32 bits in the upper
//! half of a word.
//!
//! A lane X = A x^64 + B may be replaced by A K1 x + B K2 x further on, which is the same modulo the
//! generator: moved by D bytes, K1 = x^(8D+63) and K2 = x^(8D-1).
//!
//! # A message
//!
//! ```text
//! head      words and bytes, by the crc32 instruction, until whole vectors are left
//! front     1, 2, 4 vectors, as the binary digits of their count modulo 8 say
//! groups    8 vectors each, in 8 accumulators: no multiplication waits for the one before
//! last      all accumulators and lanes move to the last lane, side by side
//! ```
//!
//! Long messages are cut into blocks of two areas that are worked on at once: multiplication and
//! the crc32 instruction use different units of the processor. In the time of 16 multiplications
//! (a group) it also takes 16 words, in four streams since the instruction takes three cycles. The
//! parts are joined by multiplications with powers from a table.

use crate::combine::{multiply, power_of_bytes};
use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si64};

/// Accumulators, and vectors in a group: a fold takes about 10 cycles and two multiplications, of
/// which one can start in each cycle.
pub(crate) const GROUP: usize = 8;

/// Bytes that one stream of the crc32 instruction takes in the time of a group.
pub(crate) const STREAM_STEP: usize = 32;

/// Streams of the crc32 instruction.
pub(crate) const STREAMS: usize = 4;

/// Groups of a block: what joins its parts is then a small share of its time, and its areas and
/// their copies stay within a cache of 48 KiB.
pub(crate) const BLOCK_GROUPS_MAX: usize = 32;

/// Groups of a block: with less, joining the parts costs more than they save.
pub(crate) const BLOCK_GROUPS_MIN: usize = 4;

/// Bytes from which on vectors are faster than words.
pub(crate) const VECTORS_MIN: usize = 128;

/// The constants of each lane that move it by `distance` bytes.
pub(crate) const fn distance(distance: usize) -> [u64; 2] {
    [times_x7(power(distance + 7)) << 32, times_x7(power(distance - 1)) << 32]
}

/// A register moved by so many times [`STREAM_STEP`] bytes, but for the crc32 instruction, which
/// takes it in as a word.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(crate) fn moved(register: u32, steps: usize) -> u64 {
    let register = _mm_cvtsi32_si128(register.cast_signed());
    let power = _mm_cvtsi32_si128(POWERS[steps].cast_signed());
    _mm_cvtsi128_si64(_mm_clmulepi64_si128(register, power, 0)).cast_unsigned()
}

/// `POWERS[n]` moves a register by n times [`STREAM_STEP`] bytes: the crc32 instruction then takes
/// in the product, which is another factor of x^33.
static POWERS: [u32; STREAMS * BLOCK_GROUPS_MAX + 1] = powers();

const fn powers() -> [u32; STREAMS * BLOCK_GROUPS_MAX + 1] {
    let mut powers = [0; STREAMS * BLOCK_GROUPS_MAX + 1];
    let step = power_of_bytes(STREAM_STEP as u64);
    let mut next = multiply(power(STREAM_STEP - 5), X7);
    let mut n = 1;
    while n < powers.len() {
        powers[n] = next;
        next = multiply(next, step);
        n += 1;
    }
    powers
}

const fn power(bytes: usize) -> u32 {
    power_of_bytes(bytes as u64)
}

const fn times_x7(polynomial: u32) -> u64 {
    multiply(polynomial, X7) as u64
}

/// The polynomial x^7.
const X7: u32 = 1 << 24;

/// The functions `update` and `copy_update` of a kernel.
///
/// The module that expands it has `WIDTH`, the bytes of a vector, the type `Vector`, and these
/// functions for `$features`: `load`, `store`, `zero`, `low` (a register as a vector), `xor`,
/// `fold` (a vector moved by constants, plus another one), `same` (constants for all lanes),
/// `each` (constants for each lane), `lanes` (the sum of all lanes) and `last_lane`.
macro_rules! kernel {
    ($features:literal) => {
        use crate::fold::{
            BLOCK_GROUPS_MAX, BLOCK_GROUPS_MIN, GROUP, STREAM_STEP, STREAMS, VECTORS_MIN, distance,
            moved,
        };
        use crate::sse42::{four_words, low_half, one_stream, word};
        use std::mem;

        /// The register behind `bytes`.
        #[target_feature(enable = $features)]
        pub(crate) fn update(register: u32, bytes: &[u8]) -> u32 {
            run::<false>(register, bytes, &mut [])
        }

        /// Copies `src` to `dst`, which has the same length; the register behind the bytes.
        #[target_feature(enable = $features)]
        pub(crate) fn copy_update(register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
            run::<true>(register, src, dst)
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn run<const COPY: bool>(mut register: u32, src: &[u8], dst: &mut [u8]) -> u32 {
            let mut groups = src.len() / BLOCK_STEP;
            if groups < BLOCK_GROUPS_MIN {
                return vectors::<COPY>(register, src, dst);
            }
            let (front, mut src) = src.split_at(src.len() % BLOCK_STEP);
            let (to, mut dst) = dst.split_at_mut(if COPY { front.len() } else { 0 });
            register = vectors::<COPY>(register, front, to);
            while groups > 0 {
                // Blocks of about the same size: a short last one would cost as much to join.
                let count = groups.div_ceil(groups.div_ceil(BLOCK_GROUPS_MAX));
                groups -= count;
                let (from, rest) = src.split_at(count * BLOCK_STEP);
                let (to, rest_to) = dst.split_at_mut(if COPY { from.len() } else { 0 });
                register = block::<COPY>(register, count, from, to);
                (src, dst) = (rest, rest_to);
            }
            register
        }

        /// Any number of bytes, without streams.
        #[inline]
        #[target_feature(enable = $features)]
        fn vectors<const COPY: bool>(register: u32, src: &[u8], dst: &mut [u8]) -> u32 {
            if src.len() < VECTORS_MIN {
                if COPY {
                    dst.copy_from_slice(src);
                }
                return one_stream(register.into(), src);
            }
            let (head, src) = src.split_at(src.len() % WIDTH);
            let (to, dst) = dst.split_at_mut(if COPY { head.len() } else { 0 });
            if COPY {
                to.copy_from_slice(head);
            }
            let register = one_stream(register.into(), head);
            fold_all::<COPY>(register, src.as_chunks().0, dst.as_chunks_mut().0)
        }

        /// Takes the next `N` vectors, copying them.
        #[inline]
        #[target_feature(enable = $features)]
        fn take<const COPY: bool, const N: usize>(
            src: &mut &[[u8; WIDTH]],
            dst: &mut &mut [[u8; WIDTH]],
        ) -> Option<[Vector; N]> {
            let (from, rest) = src.split_first_chunk::<N>()?;
            *src = rest;
            let mut vectors = [zero(); N];
            for (vector, from) in vectors.iter_mut().zip(from) {
                *vector = load(from);
            }
            if COPY {
                let (to, rest) = mem::take(dst).split_first_chunk_mut::<N>()?;
                *dst = rest;
                for (to, vector) in to.iter_mut().zip(vectors) {
                    store(to, vector);
                }
            }
            Some(vectors)
        }

        /// Whole vectors, the front first.
        #[inline]
        #[target_feature(enable = $features)]
        fn fold_all<const COPY: bool>(
            register: u32,
            mut src: &[[u8; WIDTH]],
            mut dst: &mut [[u8; WIDTH]],
        ) -> u32 {
            let front = src.len() % GROUP;
            let mut sums = [zero(); GROUP];
            let mut pending = low(register);
            if front & 1 != 0
                && let Some([a]) = take::<COPY, 1>(&mut src, &mut dst)
            {
                sums[7] = xor(a, pending);
                pending = zero();
            }
            if front & 2 != 0
                && let Some([a, b]) = take::<COPY, 2>(&mut src, &mut dst)
            {
                sums[6] = fold(sums[7], same(&BY_1), xor(a, pending));
                sums[7] = b;
                pending = zero();
            }
            if front & 4 != 0
                && let Some([a, b, c, d]) = take::<COPY, 4>(&mut src, &mut dst)
            {
                sums[4] = fold(sums[6], same(&BY_2), xor(a, pending));
                sums[5] = fold(sums[7], same(&BY_2), b);
                (sums[6], sums[7]) = (c, d);
                pending = zero();
            }
            let Some(mut group) = take::<COPY, GROUP>(&mut src, &mut dst) else {
                return last(&sums, GROUP / 2);
            };
            group[0] = xor(group[0], pending);
            if front != 0 {
                for at in 0..4 {
                    group[at] = fold(sums[at + 4], same(&BY_4), group[at]);
                }
            }
            let mut sums = group;
            let by_group = same(&BY_GROUP);
            while let Some(group) = take::<COPY, GROUP>(&mut src, &mut dst) {
                for at in 0..GROUP {
                    sums[at] = fold(sums[at], by_group, group[at]);
                }
            }
            last(&sums, 0)
        }

        /// The register behind the accumulators, of which the first `empty` are zero.
        #[inline]
        #[target_feature(enable = $features)]
        fn last(sums: &[Vector; GROUP], empty: usize) -> u32 {
            let mut even = fold(sums[7], each(&LAST[7]), zero());
            let mut odd = fold(sums[6], each(&LAST[6]), zero());
            even = fold(sums[5], each(&LAST[5]), even);
            odd = fold(sums[4], each(&LAST[4]), odd);
            if empty == 0 {
                even = fold(sums[3], each(&LAST[3]), even);
                odd = fold(sums[2], each(&LAST[2]), odd);
                even = fold(sums[1], each(&LAST[1]), even);
                odd = fold(sums[0], each(&LAST[0]), odd);
            }
            let (first, second) = lanes(xor(even, odd), sums[7]);
            low_half(word(word(0, first), second))
        }

        /// `count` groups of vectors, and as many steps of the streams behind them.
        #[inline]
        #[target_feature(enable = $features)]
        fn block<const COPY: bool>(register: u32, count: usize, src: &[u8], dst: &mut [u8]) -> u32 {
            let (from, streams) = src.split_at(count * GROUP * WIDTH);
            let (to, to_streams) = dst.split_at_mut(if COPY { from.len() } else { 0 });
            let mut src = from.as_chunks::<WIDTH>().0;
            let mut dst = to.as_chunks_mut::<WIDTH>().0;
            let steps = streams.as_chunks::<STREAM_STEP>().0;
            let [a, b, c, d] = [0, 1, 2, 3].map(|at| &steps[at * count..][..count]);
            let to_steps = to_streams.as_chunks_mut::<STREAM_STEP>().0;
            let (to_ab, to_cd) = to_steps.split_at_mut(if COPY { 2 * count } else { 0 });
            let (to_a, to_b) = to_ab.split_at_mut(if COPY { count } else { 0 });
            let (to_c, to_d) = to_cd.split_at_mut(if COPY { count } else { 0 });
            let mut streams = [0; STREAMS];
            let mut sums = [zero(); GROUP];
            let by_group = same(&BY_GROUP);
            for at in 0..count {
                if let Some(group) = take::<COPY, GROUP>(&mut src, &mut dst) {
                    if at == 0 {
                        sums = group;
                        sums[0] = xor(sums[0], low(register));
                    } else {
                        for at in 0..GROUP {
                            sums[at] = fold(sums[at], by_group, group[at]);
                        }
                    }
                }
                let [first, second, third, fourth] = &mut streams;
                *first = four_words(*first, &a[at]);
                *second = four_words(*second, &b[at]);
                *third = four_words(*third, &c[at]);
                *fourth = four_words(*fourth, &d[at]);
                if COPY {
                    (to_a[at], to_b[at], to_c[at], to_d[at]) = (a[at], b[at], c[at], d[at]);
                }
            }
            let [first, second, third, fourth] = streams;
            let product = moved(last(&sums, 0), 4 * count)
                ^ moved(low_half(first), 3 * count)
                ^ moved(low_half(second), 2 * count)
                ^ moved(low_half(third), count);
            low_half(word(0, product) ^ fourth)
        }

        /// Bytes of a group and of the step that each stream takes in its time.
        const BLOCK_STEP: usize = GROUP * WIDTH + STREAMS * STREAM_STEP;

        const LANES: usize = WIDTH / 16;

        static BY_1: [u64; 2] = distance(WIDTH);
        static BY_2: [u64; 2] = distance(2 * WIDTH);
        static BY_4: [u64; 2] = distance(4 * WIDTH);
        static BY_GROUP: [u64; 2] = distance(GROUP * WIDTH);

        /// What moves each lane of each accumulator to the last lane of the last one, which itself
        /// is left out.
        static LAST: [[[u64; 2]; LANES]; GROUP] = to_last();

        const fn to_last() -> [[[u64; 2]; LANES]; GROUP] {
            let mut constants = [[[0; 2]; LANES]; GROUP];
            let mut lane = 0;
            while lane + 1 < GROUP * LANES {
                let bytes = 16 * (GROUP * LANES - 1 - lane);
                constants[lane / LANES][lane % LANES] = distance(bytes);
                lane += 1;
            }
            constants
        }
    };
}

pub(crate) use kernel;
