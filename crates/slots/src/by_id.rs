// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept for ids that another table gave out: sparse, and in no order of its own.

use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::Id;

/// A table for the ids of another one. One slot keeps one entry: that of an earlier tenant has to
/// be removed before a later one gets its own.
#[derive(Debug)]
pub struct ById<I, T> {
    slots: Vec<Slot<T>>,
    len: usize,
    max: u32,
    ids: PhantomData<fn() -> I>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<I: Id, T> ById<I, T> {
    /// For ids of slots below `max`.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        Self { slots: Vec::new(), len: 0, max, ids: PhantomData }
    }

    /// The entry of an id, made if it has none. None for an id beyond the table or one whose slot
    /// still keeps another's entry: both are faults of whoever gives the ids.
    pub fn open(&mut self, id: I, new: impl FnOnce() -> T) -> Option<&mut T> {
        if id.index() >= self.max {
            debug_assert!(false, "{id:?} is beyond the table");
            return None;
        }
        let index = id.index() as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || Slot { generation: 0, value: None });
        }
        let slot = self.slots.get_mut(index)?;
        if slot.value.is_none() {
            *slot = Slot { generation: id.generation(), value: Some(new()) };
            self.len += 1;
        }
        debug_assert_eq!(slot.generation, id.generation(), "slot {index} was never released");
        if slot.generation == id.generation() { slot.value.as_mut() } else { None }
    }

    /// The entry of an id, if it has one.
    #[must_use]
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        let slot = self.slots.get(id.index() as usize)?;
        if slot.generation == id.generation() { slot.value.as_ref() } else { None }
    }

    /// The entry of an id, if it has one.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation == id.generation() { slot.value.as_mut() } else { None }
    }

    /// The entry in a slot, whosever it is.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<(I, &mut T)> {
        let slot = self.slots.get_mut(index as usize)?;
        Some((I::new(index, slot.generation), slot.value.as_mut()?))
    }

    /// Takes the entry of an id out.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation != id.generation() {
            return None;
        }
        let value = slot.value.take()?;
        self.len -= 1;
        Some(value)
    }

    /// Drops the entry of an id where it stands; whether there was one.
    pub fn discard(&mut self, id: I) -> bool {
        let Some(slot) = self.slots.get_mut(id.index() as usize) else { return false };
        if slot.generation != id.generation() || slot.value.is_none() {
            return false;
        }
        slot.value = None;
        self.len -= 1;
        true
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All ids with their entries, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            let id = I::new(index, slot.generation);
            Some((id, slot.value.as_ref()?))
        })
    }

    /// Asserts what always holds. Looks at every slot: for tests and simulation.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check(&self) {
        assert_eq!(self.len, self.iter().count(), "count of entries");
        assert!(self.slots.len() <= self.max as usize, "slots");
    }
}
