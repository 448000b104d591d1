// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of slots with generations: an id names a slot and which of its tenants is meant, so that
//! a late event never meets a stranger.
//!
//! [`Slots`] gives ids out. [`ById`] keeps something for ids that another table gave out. Both use
//! their slots again: no allocation once they have grown to the load. A look-up is an index and a
//! comparison.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod by_id;

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

pub use by_id::ById;

/// Names an entry of a table; stale once the entry is removed. Each kind of table has a type of its
/// own for it.
pub trait Id: Copy + PartialEq + fmt::Debug {
    /// Low bits of a generation that count, where an id has to fit somewhere.
    const GENERATION_BITS: u32 = u32::BITS;

    /// Generations count the entries of the whole table, not the tenants of each slot: of two ids
    /// the one with the higher generation is the younger one, until the count wraps.
    const BY_AGE: bool = false;

    /// The id with these parts.
    fn new(index: u32, generation: u32) -> Self;
    /// The slot.
    fn index(self) -> u32;
    /// Which tenant of the slot.
    fn generation(self) -> u32;
}

/// A table that gives ids to what it keeps. The slot that was given back last is used first.
#[derive(Debug)]
pub struct Slots<I, T> {
    slots: Vec<Slot<T>>,
    /// The first empty slot, [`NONE`] if all are full.
    empty: u32,
    len: usize,
    max: u32,
    generations: u32,
    /// Of the youngest entry, if they go by age.
    youngest: u32,
    ids: PhantomData<fn() -> I>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// The empty slot after this empty one, [`NONE`] if there is none.
    next: u32,
    value: Option<T>,
}

/// No slot: tables have fewer.
const NONE: u32 = u32::MAX;

impl<I: Id, T> Default for Slots<I, T> {
    fn default() -> Self {
        Self::new(NONE)
    }
}

impl<I: Id, T> Slots<I, T> {
    /// For at most `max` entries at once.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        Self {
            slots: Vec::new(),
            empty: NONE,
            len: 0,
            max,
            generations: u32::MAX >> (u32::BITS - I::GENERATION_BITS),
            youngest: 0,
            ids: PhantomData,
        }
    }

    /// As [`Id::GENERATION_BITS`], for this table.
    #[must_use]
    pub const fn with_generation_bits(mut self, bits: u32) -> Self {
        assert!(0 < bits && bits <= u32::BITS);
        self.generations = u32::MAX >> (u32::BITS - bits);
        self
    }

    /// With room for `count` entries.
    #[must_use]
    pub fn with_capacity(mut self, count: usize) -> Self {
        self.slots.reserve_exact(count);
        self
    }

    /// The id that the next entry gets; None if the table is full.
    #[must_use]
    pub fn next_id(&self) -> Option<I> {
        let (index, generation) = match self.slots.get(self.empty as usize) {
            Some(slot) => (self.empty, slot.generation),
            None => (u32::try_from(self.slots.len()).ok().filter(|at| *at < self.max)?, 0),
        };
        let younger = self.youngest.wrapping_add(1) & self.generations;
        Some(I::new(index, if I::BY_AGE { younger } else { generation }))
    }

    /// Keeps a value that knows its id; None if the table is full.
    pub fn try_insert_with(&mut self, new: impl FnOnce(I) -> T) -> Option<I> {
        let id = self.next_id()?;
        let value = Some(new(id));
        match self.slots.get_mut(id.index() as usize) {
            Some(slot) => {
                self.empty = slot.next;
                *slot = Slot { generation: id.generation(), next: NONE, value };
            }
            None => self.slots.push(Slot { generation: id.generation(), next: NONE, value }),
        }
        self.youngest = id.generation();
        self.len += 1;
        Some(id)
    }

    /// As `try_insert_with`, of a table that something else bounds.
    ///
    /// # Panics
    /// If the table is full.
    pub fn insert_with(&mut self, new: impl FnOnce(I) -> T) -> I {
        self.try_insert_with(new).expect("the table is bounded elsewhere")
    }

    /// As `insert_with`.
    ///
    /// # Panics
    /// If the table is full.
    pub fn insert(&mut self, value: T) -> I {
        self.insert_with(|_| value)
    }

    /// The entry.
    #[must_use]
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        let slot = self.slots.get(id.index() as usize)?;
        if slot.generation == id.generation() { slot.value.as_ref() } else { None }
    }

    /// The entry.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation == id.generation() { slot.value.as_mut() } else { None }
    }

    /// The entry in a slot, whoever it is.
    #[must_use]
    #[inline]
    pub fn at(&self, index: u32) -> Option<(I, &T)> {
        let slot = self.slots.get(index as usize)?;
        Some((I::new(index, slot.generation), slot.value.as_ref()?))
    }

    /// Takes an entry out: its id is stale from now on.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation != id.generation() {
            return None;
        }
        let value = slot.value.take()?;
        self.vacate(id);
        Some(value)
    }

    /// Drops an entry where it stands; whether there was one.
    pub fn discard(&mut self, id: I) -> bool {
        let Some(slot) = self.slots.get_mut(id.index() as usize) else { return false };
        if slot.generation != id.generation() || slot.value.is_none() {
            return false;
        }
        slot.value = None;
        self.vacate(id);
        true
    }

    /// The slot of an entry that was taken out is free.
    fn vacate(&mut self, id: I) {
        if let Some(slot) = self.slots.get_mut(id.index() as usize) {
            if !I::BY_AGE {
                slot.generation = slot.generation.wrapping_add(1) & self.generations;
            }
            slot.next = self.empty;
            self.empty = id.index();
            self.len -= 1;
        }
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// How many slots there are, full or empty: the index of every id is below that.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(NONE)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All ids, by slot.
    pub fn keys(&self) -> impl Iterator<Item = I> + '_ {
        self.iter().map(|(id, _)| id)
    }

    /// All entries, by slot.
    pub fn values(&self) -> impl Iterator<Item = &T> + Clone {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// All entries, by slot.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// All ids with their entries, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            let id = I::new(index, slot.generation);
            Some((id, slot.value.as_ref()?))
        })
    }

    /// All ids with their entries, by slot.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.slots.iter_mut().zip(0..).filter_map(|(slot, index)| {
            let id = I::new(index, slot.generation);
            Some((id, slot.value.as_mut()?))
        })
    }

    /// Asserts what always holds. Looks at every slot: for tests and simulation.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check(&self) {
        let full = self.values().count();
        assert_eq!(self.len, full, "count of entries");
        assert!(self.slots.len() <= self.max as usize, "slots");
        let (mut at, mut empty) = (self.empty, 0);
        while let Some(slot) = self.slots.get(at as usize) {
            assert!(slot.value.is_none(), "an empty slot");
            empty += 1;
            assert!(empty <= self.slots.len(), "each empty slot once");
            at = slot.next;
        }
        assert_eq!(at, NONE, "the last empty slot");
        assert_eq!(full + empty, self.slots.len(), "no slot is lost");
    }
}

#[cfg(test)]
mod tests;
