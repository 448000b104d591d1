// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers in place of objects: a caller that closes one twice, or makes one up, gets an error.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::RwLock;

use slots::Id;
use slots::Slots;

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

/// What handles of one kind mean.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    kind: u64,
    name: &'static str,
    slots: RwLock<Slots<Key, Arc<T>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    index: u32,
    generation: u32,
}

/// Bits of a handle above its slot: a generation, then the kind.
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

impl<T> Handles<T> {
    const fn new(kind: u64, name: &'static str) -> Self {
        let slots = Slots::new(limits::HANDLES_MAX);
        Self { kind, name, slots: RwLock::new(slots) }
    }

    /// A handle of its own for `value`.
    pub(crate) fn insert(&self, value: T) -> Result<u64, Failure> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let key = slots.try_insert_with(|_| Arc::new(value));
        let full = || {
            Failure::new(Code::Full, format!("as many handles of a {} as there may be", self.name))
        };
        let Key { index, generation } = key.ok_or_else(full)?;
        Ok(u64::from(index) | u64::from(generation) << GENERATION_SHIFT | self.kind << KIND_SHIFT)
    }

    /// What `handle` means. It stays as long as somebody has it in hands.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let found = self.key(handle).and_then(|key| slots.get(key).map(Arc::clone));
        found.ok_or_else(|| self.unknown())
    }

    /// The handle means nothing any more.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        self.key(handle).and_then(|key| slots.remove(key)).ok_or_else(|| self.unknown())
    }

    fn key(&self, handle: u64) -> Option<Key> {
        let [index, generation] =
            [handle, handle >> GENERATION_SHIFT].map(|part| part & 0xffff_ffff);
        let generation = generation & ((1 << Key::GENERATION_BITS) - 1);
        let key = Key::new(u32::try_from(index).ok()?, u32::try_from(generation).ok()?);
        (handle >> KIND_SHIFT == self.kind).then_some(key)
    }

    fn unknown(&self) -> Failure {
        let text = format!("the handle is of no {}: it was closed, or never was one", self.name);
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
}
