// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one source of chance: every draw follows from the seed.

use std::ops::RangeInclusive;
use std::time::Duration;

/// SplitMix64: small, fast, and good enough to choose with. Never for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A stream that follows from `seed`.
    #[must_use]
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for `purpose`, so that more draws for one thing change no other.
    #[must_use]
    pub(crate) const fn stream(seed: u64, purpose: u64) -> Self {
        Self(mix(seed ^ mix(purpose.wrapping_add(0x9e37_79b9_7f4a_7c15))))
    }

    /// 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `bound`; 0 for a bound of 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// An index of something that has `length` parts.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Within `range`.
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = (*range.start(), *range.end());
        low + self.below((high - low).saturating_add(1))
    }

    /// A time within `range`, of microseconds.
    pub(crate) fn micros(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_micros(self.within(range))
    }

    /// True `per_mille` times of a thousand.
    pub(crate) const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `choices`, which are not empty.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Fills `bytes`.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Each bit of the result depends on each bit of `value`.
#[must_use]
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_stream_and_bounds_hold() {
        let (mut a, mut b) = (Rng::stream(7, 1), Rng::stream(7, 1));
        assert!((0..100).all(|_| a.next() == b.next()));
        assert_ne!(Rng::stream(7, 1).next(), Rng::stream(7, 2).next());
        assert!((0..1000).all(|_| (3..=5).contains(&a.within(3..=5))));
        assert_eq!(a.below(0), 0);
    }
}
