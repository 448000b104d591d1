// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers in place of objects: a caller that closes one twice, or makes one up, gets an error.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use slots::Id;
use slots::Slots;

use crate::border;
use crate::code::Code;
use crate::code::Failure;
use crate::disk::Disk;
use crate::limits;
use crate::options::Draft;
use crate::ring::Ring;

/// All options of the process.
pub(crate) static OPTIONS: Handles<std::sync::Mutex<Draft>> = Handles::new(1, "options");
/// All disks.
pub(crate) static DISKS: Handles<Disk> = Handles::new(2, "disk");
/// All queues.
pub(crate) static QUEUES: Handles<Ring> = Handles::new(3, "queue");

/// How many forks there were between the process that made the first handle and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// This process is a child of the one that called last.
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// What handles of one kind mean.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    kind: u64,
    name: &'static str,
    first: Table<T>,
}

/// Handles that one process has made. A child has those of its parent in its memory, but neither
/// the threads behind them nor, perhaps, whoever held the lock: it never looks into them, and has a
/// table of its own.
#[derive(Debug)]
struct Table<T> {
    slots: RwLock<Slots<Key, Arc<T>>>,
    of_child: OnceLock<Box<Table<T>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    index: u32,
    generation: u32,
}

/// Bits of a handle above its slot: how many forks there were before it, a generation, then the
/// kind.
const FORKS_SHIFT: u32 = 16;
const FORKS_MASK: u64 = 0xffff;
const _: () = assert!(limits::HANDLES_MAX <= 1 << FORKS_SHIFT);
const GENERATION_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = GENERATION_SHIFT + Key::GENERATION_BITS;

impl Id for Key {
    const GENERATION_BITS: u32 = 24;

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

impl<T> Table<T> {
    const fn new() -> Self {
        let slots = RwLock::new(Slots::new(limits::HANDLES_MAX));
        Self { slots, of_child: OnceLock::new() }
    }
}

impl<T> Handles<T> {
    const fn new(kind: u64, name: &'static str) -> Self {
        Self { kind, name, first: Table::new() }
    }

    /// A handle of its own for `value`.
    pub(crate) fn insert(&self, value: T) -> Result<u64, Failure> {
        border::hear_of_forks();
        let (table, forks) = self.table();
        let mut slots = table.slots.write().unwrap_or_else(PoisonError::into_inner);
        let key = slots.try_insert_with(|_| Arc::new(value));
        let full = || {
            Failure::new(Code::Full, format!("as many handles of a {} as there may be", self.name))
        };
        let Key { index, generation } = key.ok_or_else(full)?;
        let generation = u64::from(generation) << GENERATION_SHIFT;
        Ok(u64::from(index) | forks << FORKS_SHIFT | generation | self.kind << KIND_SHIFT)
    }

    /// What `handle` means. It stays as long as somebody has it in hands.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let (table, forks) = self.table();
        let slots = table.slots.read().unwrap_or_else(PoisonError::into_inner);
        let found = self.key(handle, forks).and_then(|key| slots.get(key).map(Arc::clone));
        found.ok_or_else(|| self.unknown())
    }

    /// The handle means nothing any more.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let (table, forks) = self.table();
        let mut slots = table.slots.write().unwrap_or_else(PoisonError::into_inner);
        self.key(handle, forks).and_then(|key| slots.remove(key)).ok_or_else(|| self.unknown())
    }

    /// The table of this process, and the count of forks that it stands for.
    fn table(&self) -> (&Table<T>, u64) {
        let forks = FORKS.load(Ordering::Relaxed);
        (self.table_after(forks), forks & FORKS_MASK)
    }

    fn table_after(&self, forks: u64) -> &Table<T> {
        (0..forks)
            .fold(&self.first, |table, _| table.of_child.get_or_init(|| Box::new(Table::new())))
    }

    fn key(&self, handle: u64, forks: u64) -> Option<Key> {
        let index = u32::try_from(handle & ((1 << FORKS_SHIFT) - 1)).ok()?;
        let generation = handle >> GENERATION_SHIFT & ((1 << Key::GENERATION_BITS) - 1);
        let key = Key::new(index, u32::try_from(generation).ok()?);
        let is_ours = handle >> FORKS_SHIFT & FORKS_MASK == forks;
        (is_ours && handle >> KIND_SHIFT == self.kind).then_some(key)
    }

    fn unknown(&self) -> Failure {
        let text = format!(
            "the handle is of no {}: it was closed, never was one, or is of before a fork",
            self.name
        );
        Failure::new(Code::Handle, text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    static NUMBERS: Handles<u32> = Handles::new(7, "number");

    #[test]
    fn what_was_closed_or_never_was_is_an_error() {
        let first = NUMBERS.insert(1).unwrap();
        assert_eq!(*NUMBERS.get(first).unwrap(), 1);
        for wrong in [0, 1, u64::MAX, first ^ 1 << KIND_SHIFT, first + 1, first | 1 << 40] {
            assert_eq!(NUMBERS.get(wrong).unwrap_err().code(), Code::Handle, "{wrong:#x}");
        }
        let kept = NUMBERS.remove(first).unwrap();
        assert!(NUMBERS.get(first).is_err() && NUMBERS.remove(first).is_err());
        // The next one has its slot.
        let second = NUMBERS.insert(2).unwrap();
        assert_ne!(first, second);
        assert!(NUMBERS.get(first).is_err());
        assert_eq!((*kept, *NUMBERS.get(second).unwrap()), (1, 2));
    }

    #[test]
    fn a_child_has_a_table_of_its_own() {
        let handles = Handles::<u32>::new(8, "number");
        let tables = [0, 1, 2, 1].map(|forks| std::ptr::from_ref(handles.table_after(forks)));
        assert_eq!(tables[1], tables[3]);
        assert!(tables[0] != tables[1] && tables[1] != tables[2] && tables[2] != tables[0]);
        let [first, second] = [0, 1].map(|forks| handles.key(8 << KIND_SHIFT, forks));
        assert!(first.is_some() && second.is_none());
    }
}
