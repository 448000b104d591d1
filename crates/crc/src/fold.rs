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
//! A lane X = A x^64 + B may be replaced by A K1 x + B K2 x further on, which is the same modulo
//! the generator: moved by D bytes, K1 = x^(8D+63) and K2 = x^(8D-1).
//!
//! # A message
//!
//! ```text
//! head      words and bytes, by the crc32 instruction, until whole vectors are left
//! front     1, 2, 4 vectors, as the binary digits of their count modulo a group's say
//! groups    of vectors, in as many accumulators: no multiplication waits for the one before
//! last      all accumulators and lanes move to the last lane, side by side
//! ```
//!
//! Where multiplication and the crc32 instruction use different units of the processor, there is
//! room for more: long messages are cut into blocks of two areas that are worked on at once. In
//! the time of a group the instruction takes 16 words, in four streams since it takes three cycles.
//! The parts are joined by multiplications with powers from a table. Copies have no streams: they
//! gained 12 % where the bytes were in the nearest cache, and lost a quarter where they were in
//! memory, which is then read and written in five places.

use crate::combine::{multiply, power_of_bytes};
use std::arch::x86_64::{
    _MM_HINT_ET0, _MM_HINT_T0, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_prefetch,
};

/// Bytes that one stream of the crc32 instruction takes in the time of a group.
pub(crate) const STREAM_STEP: usize = 32;

/// Streams of the crc32 instruction.
pub(crate) const STREAMS: usize = 4;

/// Groups of a block: with less, joining the parts costs more than they save.
pub(crate) const BLOCK_STEPS_MIN: usize = 4;

/// Groups of a block: what joins its parts is then a small share of its time, and its
/// areas are a few pages.
pub(crate) const BLOCK_STEPS_MAX: usize = 32;

/// Bytes from which on it pays to let the vectors begin with a cache line: one that crosses a line
/// is two accesses.
pub(crate) const ALIGNED_MIN: usize = 1024;

/// A cache line.
pub(crate) const LINE: usize = 64;

/// How far ahead of itself a copy asks for its bytes. Where they were in memory, 2 and 4 KiB gained
/// a fifth, 512 bytes less; where they are in cache it costs nothing. What lies behind the copy is
/// not asked for: 512 bytes to 2 KiB alone took half as long again with it. Streaming stores gained
/// more where the destination was in memory, but made it 2 to 6 times as slow where it was in
/// cache, and who takes the copy on, to send or to store it, would find it in memory.
pub(crate) const AHEAD: usize = 2048;

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
static POWERS: [u32; STREAMS * BLOCK_STEPS_MAX + 1] = powers();

const fn powers() -> [u32; STREAMS * BLOCK_STEPS_MAX + 1] {
    let mut powers = [0; STREAMS * BLOCK_STEPS_MAX + 1];
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

/// Asks for the `N` bytes that come [`AHEAD`] of `bytes`.
#[inline]
pub(crate) fn prefetch<const N: usize>(bytes: &[u8]) {
    for line in 0..N / LINE {
        let ahead = bytes.as_ptr().wrapping_add(AHEAD + line * LINE);
        // SAFETY: a prefetch is a hint, which does nothing where there is no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) };
    }
}

/// As [`prefetch`], to be written.
#[inline]
pub(crate) fn prefetch_to_write<const N: usize>(bytes: &[u8]) {
    for line in 0..N / LINE {
        let ahead = bytes.as_ptr().wrapping_add(AHEAD + line * LINE);
        // SAFETY: a prefetch is a hint, which does nothing where there is no memory.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(ahead.cast()) };
    }
}

/// The functions `update` and `copy_update` of a kernel.
///
/// The module that expands it has `WIDTH`, the bytes of a vector, `VECTORS_MIN`, the bytes from
/// which on vectors are faster than words, `GROUP`, the accumulators and vectors in a group (4 or
/// 8), `WITH_STREAMS`, the type `Vector`, and these functions for `$features`: `load`, `store`,
/// `zero`, `low` (a register as a vector), `xor`, `fold` (a vector moved by constants, plus another
/// one), `same` (constants for all lanes), `each` (constants for each lane) and `lanes` (the sum of
/// all lanes of one vector and the last one of another).
macro_rules! kernel {
    ($features:literal) => {
        use crate::fold::{
            AHEAD, ALIGNED_MIN, BLOCK_STEPS_MAX, BLOCK_STEPS_MIN, LINE, STREAM_STEP, STREAMS,
            distance, moved, prefetch, prefetch_to_write,
        };
        use crate::sse42::{low_half, one_stream, word, words_of};
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

        /// Head and whole vectors; what is long begins with a cache line and has a tail. Unless it
        /// copies, `dst` is empty.
        #[inline]
        #[target_feature(enable = $features)]
        fn run<const COPY: bool>(register: u32, src: &[u8], dst: &mut [u8]) -> u32 {
            if src.len() < VECTORS_MIN {
                if COPY {
                    dst.copy_from_slice(src);
                }
                return one_stream(register.into(), src);
            }
            if src.len() >= ALIGNED_MIN {
                return long::<COPY>(register, src, dst);
            }
            let (head, body) = src.split_at(src.len() % WIDTH);
            if head.is_empty() {
                return whole::<COPY>(register, body, dst);
            }
            if COPY {
                ends(src, dst);
            }
            let to = if COPY { &mut dst[head.len()..] } else { dst };
            whole::<COPY>(one_stream(register.into(), head), body, to)
        }

        /// Copies the first line and the last vector, where head and tail are.
        #[inline]
        #[target_feature(enable = $features)]
        fn ends(src: &[u8], dst: &mut [u8]) {
            let line = src.as_chunks().0.iter().zip(dst.as_chunks_mut().0);
            for (from, to) in line.take(LINE / WIDTH) {
                store(to, load(from));
            }
            if let (Some(from), Some(to)) = (src.last_chunk(), dst.last_chunk_mut()) {
                store(to, load(from));
            }
        }

        /// As `run`, apart from it: what is short saves no registers for it.
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn long<const COPY: bool>(register: u32, src: &[u8], dst: &mut [u8]) -> u32 {
            if COPY {
                ends(src, dst);
            }
            let head = if COPY { dst.as_ptr() } else { src.as_ptr() }.align_offset(LINE);
            let (head, src) = src.split_at(head);
            let dst = if COPY { &mut dst[head.len()..] } else { dst };
            let register = one_stream(register.into(), head);
            let (body, tail) = src.split_at(src.len() - src.len() % WIDTH);
            let register = if WITH_STREAMS && !COPY && body.len() >= BLOCK_STEPS_MIN * BLOCK_STEP {
                blocks(register, body)
            } else {
                whole::<COPY>(register, body, dst)
            };
            one_stream(register.into(), tail)
        }

        /// Whole vectors.
        #[inline]
        #[target_feature(enable = $features)]
        fn whole<const COPY: bool>(register: u32, src: &[u8], dst: &mut [u8]) -> u32 {
            let (mut from, mut to) = (src.as_chunks().0, dst.as_chunks_mut().0);
            let (sums, empty) = vectors::<COPY>(register, &mut from, &mut to);
            last(&sums, empty)
        }

        /// Blocks of about the same size: a short last one would cost as much to join.
        #[inline]
        #[target_feature(enable = $features)]
        fn blocks(mut register: u32, mut src: &[u8]) -> u32 {
            let mut steps = src.len() / BLOCK_STEP;
            let mut more = src.len() % BLOCK_STEP;
            while steps > 0 {
                let count = steps.div_ceil(steps.div_ceil(BLOCK_STEPS_MAX));
                let (block, rest) = src.split_at(more + count * BLOCK_STEP);
                register = two_areas(register, count, block);
                src = rest;
                steps -= count;
                more = 0;
            }
            register
        }

        /// A block: `steps` steps of each stream at its end, before them as many groups and up to
        /// a group's vectors more, less one.
        #[inline]
        #[target_feature(enable = $features)]
        fn two_areas(register: u32, steps: usize, block: &[u8]) -> u32 {
            let (src, streams) = block.split_at(block.len() - steps * STREAMS * STREAM_STEP);
            let mut src = src.as_chunks().0;
            let (mut sums, _) = front::<false>(register, &mut src, &mut &mut [][..]);
            let by_group = same(&BY_GROUP);
            let streams = streams.as_chunks::<STREAM_STEP>().0;
            let (first, rest) = streams.split_at(steps);
            let (second, rest) = rest.split_at(steps);
            let (third, fourth) = rest.split_at(steps);
            let [mut a, mut b, mut c, mut d] = [0; STREAMS];
            let areas = first.iter().zip(second).zip(third).zip(fourth);
            for (((first, second), third), fourth) in areas {
                if let Some(group) = take::<false, GROUP>(&mut src, &mut &mut [][..]) {
                    for at in 0..GROUP {
                        sums[at] = fold(sums[at], by_group, group[at]);
                    }
                }
                a = words_of(a, first);
                b = words_of(b, second);
                c = words_of(c, third);
                d = words_of(d, fourth);
            }
            let product = moved(last(&sums, 0), 4 * steps)
                ^ moved(low_half(a), 3 * steps)
                ^ moved(low_half(b), 2 * steps)
                ^ moved(low_half(c), steps);
            low_half(word(0, product) ^ d)
        }

        /// Any number of vectors: the accumulators behind them, and how many of those are empty.
        #[inline]
        #[target_feature(enable = $features)]
        fn vectors<const COPY: bool>(
            register: u32,
            src: &mut &[[u8; WIDTH]],
            dst: &mut &mut [[u8; WIDTH]],
        ) -> ([Vector; GROUP], usize) {
            let (mut sums, empty) = front::<COPY>(register, src, dst);
            let by_group = same(&BY_GROUP);
            while let Some(group) = take::<COPY, GROUP>(src, dst) {
                for at in 0..GROUP {
                    sums[at] = fold(sums[at], by_group, group[at]);
                }
            }
            (sums, empty)
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
            let goes_on = N == GROUP && rest.len() * WIDTH >= AHEAD;
            if COPY && goes_on {
                prefetch::<{ GROUP * WIDTH }>(from.as_flattened());
            }
            let mut vectors = [zero(); N];
            for (vector, from) in vectors.iter_mut().zip(from) {
                *vector = load(from);
            }
            if COPY {
                let (to, rest) = mem::take(dst).split_first_chunk_mut::<N>()?;
                *dst = rest;
                if goes_on {
                    prefetch_to_write::<{ GROUP * WIDTH }>(to.as_flattened());
                }
                for (to, vector) in to.iter_mut().zip(vectors) {
                    store(to, vector);
                }
            }
            Some(vectors)
        }

        /// The accumulators behind as many vectors as leave whole groups; if there is no group,
        /// these are all.
        #[inline]
        #[target_feature(enable = $features)]
        fn front<const COPY: bool>(
            register: u32,
            src: &mut &[[u8; WIDTH]],
            dst: &mut &mut [[u8; WIDTH]],
        ) -> ([Vector; GROUP], usize) {
            let count = src.len() % GROUP;
            let mut sums = [zero(); GROUP];
            let mut pending = low(register);
            if count & 1 != 0
                && let Some([a]) = take::<COPY, 1>(src, dst)
            {
                sums[GROUP - 1] = xor(a, pending);
                pending = zero();
            }
            if count & 2 != 0
                && let Some([a, b]) = take::<COPY, 2>(src, dst)
            {
                sums[GROUP - 2] = fold(sums[GROUP - 1], same(&BY_1), xor(a, pending));
                sums[GROUP - 1] = b;
                pending = zero();
            }
            if GROUP == 8
                && count & 4 != 0
                && let Some([a, b, c, d]) = take::<COPY, 4>(src, dst)
            {
                sums[GROUP - 4] = fold(sums[GROUP - 2], same(&BY_2), xor(a, pending));
                sums[GROUP - 3] = fold(sums[GROUP - 1], same(&BY_2), b);
                (sums[GROUP - 2], sums[GROUP - 1]) = (c, d);
                pending = zero();
            }
            let Some(mut group) = take::<COPY, GROUP>(src, dst) else {
                return (sums, GROUP / 2);
            };
            group[0] = xor(group[0], pending);
            if count != 0 {
                for at in 0..GROUP / 2 {
                    group[at] = fold(sums[at + GROUP / 2], same(&BY_HALF), group[at]);
                }
            }
            (group, 0)
        }

        /// The register behind the accumulators, of which the first `empty` are zero.
        #[inline]
        #[target_feature(enable = $features)]
        fn last(sums: &[Vector; GROUP], empty: usize) -> u32 {
            let (mut even, mut odd) = (zero(), zero());
            for at in 0..GROUP / 4 {
                let (e, o) = (GROUP - 1 - 2 * at, GROUP - 2 - 2 * at);
                even = fold(sums[e], each(&LAST[e]), even);
                odd = fold(sums[o], each(&LAST[o]), odd);
            }
            if empty == 0 {
                for at in GROUP / 4..GROUP / 2 {
                    let (e, o) = (GROUP - 1 - 2 * at, GROUP - 2 - 2 * at);
                    even = fold(sums[e], each(&LAST[e]), even);
                    odd = fold(sums[o], each(&LAST[o]), odd);
                }
            }
            let (first, second) = lanes(xor(even, odd), sums[GROUP - 1]);
            low_half(word(word(0, first), second))
        }

        /// Bytes of a group and of the step that each stream takes in its time.
        const BLOCK_STEP: usize = GROUP * WIDTH + STREAMS * STREAM_STEP;

        const LANES: usize = WIDTH / 16;

        static BY_1: [u64; 2] = distance(WIDTH);
        static BY_2: [u64; 2] = distance(2 * WIDTH);
        static BY_HALF: [u64; 2] = distance(GROUP / 2 * WIDTH);
        static BY_GROUP: [u64; 2] = distance(GROUP * WIDTH);

        /// What moves each lane of each accumulator to the last lane of the last one, which itself
        /// is left out.
        static LAST: [[[u64; 2]; LANES]; GROUP] = to_last();

        const fn to_last() -> [[[u64; 2]; LANES]; GROUP] {
            let mut constants = [[[0; 2]; LANES]; GROUP];
            let mut bytes = GROUP * WIDTH;
            let mut at = 0;
            while at < GROUP {
                let mut lane = 0;
                while lane < LANES {
                    bytes -= 16;
                    if bytes > 0 {
                        constants[at][lane] = distance(bytes);
                    }
                    lane += 1;
                }
                at += 1;
            }
            constants
        }
    };
}

pub(crate) use kernel;
