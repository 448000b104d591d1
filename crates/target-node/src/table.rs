// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slab whose keys say which of a slot's tenants they mean, so that a late event never meets a
//! stranger.

use slab::Slab;

/// Names an entry; stale once the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
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
const GENERATION_MASK: u32 = 0x00ff_ffff;

#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Slab<(u32, T)>,
    generation: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Slab::new(), generation: 0 }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    pub(crate) fn insert_with(&mut self, value: impl FnOnce(Key) -> T) -> Key {
        self.generation = (self.generation + 1) & GENERATION_MASK;
        let entry = self.slots.vacant_entry();
        let index = u32::try_from(entry.key()).expect("tables are bounded far below 2^32");
        let key = Key { index, generation: self.generation };
        entry.insert((self.generation, value(key)));
        key
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, value) = self.slots.get(key.index as usize)?;
        (*generation == key.generation).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(key.index as usize)?;
        (*generation == key.generation).then_some(value)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        Some(self.slots.remove(key.index as usize).1)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.slots.iter().map(|(index, (generation, _))| Key {
            index: u32::try_from(index).expect("tables are bounded far below 2^32"),
            generation: *generation,
        })
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|(_, (_, value))| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots.iter_mut().map(|(index, (generation, value))| {
            let index = u32::try_from(index).expect("tables are bounded far below 2^32");
            (Key { index, generation: *generation }, value)
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().map(|(index, (generation, value))| {
            let index = u32::try_from(index).expect("tables are bounded far below 2^32");
            (Key { index, generation: *generation }, value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut table = Table::default();
        let first = table.insert('a');
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b');
        assert_eq!(first.index, second.index);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!(Key::from_bits(second.to_bits()), second);
    }
}
