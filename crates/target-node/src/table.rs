// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of a pump, and keys that fit into the tokens of events.

use slots::Slots;

/// Names an entry; stale once the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Names nothing in any table.
    pub(crate) const NOBODY: Self = Self { index: u32::MAX, generation: 0 };

    pub(crate) const fn parts(self) -> (u32, u32) {
        (self.index, self.generation)
    }

    pub(crate) const fn from_parts((index, generation): (u32, u32)) -> Self {
        Self { index, generation }
    }

    /// Bits of a key that fit into a token beside eight bits of kind.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.index) | (u64::from(self.generation & GENERATION_MASK) << 32)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let index = u32::try_from(bits & 0xffff_ffff).expect("masked to 32 bits");
        let generation = u32::try_from((bits >> 32) & u64::from(GENERATION_MASK));
        Self { index, generation: generation.expect("masked to 24 bits") }
    }
}

/// Generations have 24 bits: a slot must be reused 16 million times within the life of one event to
/// be mistaken.
const GENERATION_BITS: u32 = 24;

const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

impl slots::Id for Key {
    const GENERATION_BITS: u32 = GENERATION_BITS;
    // Timers that are due at the same time expire in the order of their tokens.
    const BY_AGE: bool = true;

    fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> u32 {
        self.generation
    }
}

/// A table of the pump. What it keeps bounds each of them far below 2^32 entries.
pub(crate) type Table<T> = Slots<Key, T>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fit_into_tokens() {
        let mut table = Table::default();
        let first = table.insert('a');
        table.remove(first);
        let second = table.insert('b');
        assert_eq!(Key::from_bits(second.to_bits()), second);
        assert_ne!(first, second);
        let last = Key { index: u32::MAX - 1, generation: GENERATION_MASK };
        assert_eq!(Key::from_bits(last.to_bits()), last);
    }
}
