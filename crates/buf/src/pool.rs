// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pool: slots by size class in one reservation, last in first out, with a hard bound.

use crate::Buf;
use crate::limits::{BUF_LEN_MAX, CLASS_SIZES, POOL_BYTES_MAX, REFERENCES_MAX};
use crate::map::Mapping;
use std::fmt;
use std::io;
use std::process::abort;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bounded pool of page-aligned buffers in size classes.
///
/// Cheap to clone; a buffer goes back when the last reference to it is dropped, on any thread.
/// Nothing is allocated after `new`. The bound counts whole class sizes, both for what is handed
/// out and for what is kept warm, so that the memory in use by the pool never passes it either.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool that hands out at most `bytes_max` bytes at once.
    ///
    /// # Errors
    /// The system's error if the address space cannot be reserved; `InvalidInput` past 4 TiB.
    pub fn new(bytes_max: usize) -> io::Result<Self> {
        if bytes_max > POOL_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut areas = [Area::default(); CLASS_SIZES.len()];
        let (mut offset, mut slot) = (0, 0);
        for (area, size) in areas.iter_mut().zip(CLASS_SIZES) {
            let slots = bytes_max / size;
            *area = Area { offset, slot, slots };
            offset += slots * size;
            slot += slots;
        }
        let map = Mapping::new(offset)?;
        let references = (0..slot).map(|_| AtomicU32::new(0)).collect();
        let classes = areas.map(|area| Free {
            warm: Vec::with_capacity(area.slots),
            cold: Vec::with_capacity(area.slots),
            fresh: 0,
        });
        let lists = Mutex::new(Lists { bytes_in_use: 0, bytes_resident: 0, classes });
        Ok(Self { shared: Arc::new(Shared { map, areas, references, bytes_max, lists }) })
    }

    /// A buffer that shows `len` bytes: zero, or bytes of earlier use, so that the taker must
    /// overwrite all that it gives away. None when the bound is reached or `len` is above
    /// [`BUF_LEN_MAX`].
    pub fn take(&self, len: usize) -> Option<Buf> {
        if len > BUF_LEN_MAX {
            return None;
        }
        let class = CLASS_SIZES.iter().position(|size| len <= *size)?;
        let index = self.shared.take(class)?;
        Some(Buf::new(Slot::first(&self.shared, class, index), len))
    }

    /// Bytes handed out, counted in class sizes.
    pub fn bytes_in_use(&self) -> usize {
        self.shared.lists().bytes_in_use
    }

    /// The bound, bytes.
    pub fn bytes_max(&self) -> usize {
        self.shared.bytes_max
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = self.shared.lists();
        f.debug_struct("Pool")
            .field("bytes_max", &self.shared.bytes_max)
            .field("bytes_in_use", &lists.bytes_in_use)
            .field("bytes_resident", &lists.bytes_resident)
            .finish()
    }
}

/// A counted reference to one slot of a pool; the last one gives the slot back.
///
/// JUSTIFICATION: the counter stands in a table of the pool, and all references to a slot together
/// hold one reference to the pool, so that a clone is one atomic increment and allocates nothing;
/// an `Arc<Buf>` would allocate for each buffer that is frozen (20 ns and a cache miss per READ).
pub(crate) struct Slot {
    /// From `Arc::into_raw`: the slot's share of the pool, given back with the slot.
    shared: NonNull<Shared>,
    class: usize,
    index: u32,
}

impl Slot {
    fn first(shared: &Arc<Shared>, class: usize, index: u32) -> Self {
        let raw = Arc::into_raw(Arc::clone(shared)).cast_mut();
        let slot = Self { shared: NonNull::new(raw).expect("an Arc is not null"), class, index };
        let references = slot.references();
        assert_eq!(references.load(Ordering::Relaxed), 0, "a free slot has no references");
        references.store(1, Ordering::Relaxed);
        slot
    }

    /// Address of the slot's first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        let shared = self.shared();
        shared.map.at(shared.offset(self.class, self.index))
    }

    /// Bytes of the slot.
    pub(crate) fn capacity(&self) -> usize {
        CLASS_SIZES[self.class]
    }

    /// True if this is the only reference: what others did through theirs is visible here.
    pub(crate) fn is_unique(&self) -> bool {
        self.references().load(Ordering::Acquire) == 1
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the pointer came from `Arc::into_raw`, and its count is given back only with the
        // last reference to the slot, of which self is one.
        unsafe { self.shared.as_ref() }
    }

    fn references(&self) -> &AtomicU32 {
        self.shared().references(self.class, self.index)
    }
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        let before = self.references().fetch_add(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0, "self is a reference");
        if before > REFERENCES_MAX {
            abort();
        }
        Self { shared: self.shared, class: self.class, index: self.index }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let references = self.references();
        if references.load(Ordering::Acquire) == 1 {
            // The only reference: nobody else can count up or down, and what the others did before
            // they went is visible. Cheaper than counting down.
            references.store(0, Ordering::Relaxed);
        } else if references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        } else {
            // What all other references read or wrote comes before the next use of the slot.
            fence(Ordering::Acquire);
        }
        // SAFETY: made by `Arc::into_raw` in `first`; this is the last reference to the slot, so
        // the count is taken back once.
        let shared = unsafe { Arc::from_raw(self.shared.as_ptr()) };
        shared.give_back(self.class, self.index);
    }
}

// SAFETY: the counter is atomic, the pool is Sync, and the bytes are reached only through `Buf`,
// which is unique, and `Slice`, which only reads.
unsafe impl Send for Slot {}
// SAFETY: as for Send.
unsafe impl Sync for Slot {}

/// What all clones of a pool and all its buffers share.
struct Shared {
    map: Mapping,
    areas: [Area; CLASS_SIZES.len()],
    /// One counter for each slot of each class.
    references: Box<[AtomicU32]>,
    bytes_max: usize,
    /// Held for a few instructions; each reactor has a pool of its own, so there is no contention.
    lists: Mutex<Lists>,
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offset(&self, class: usize, index: u32) -> usize {
        self.areas[class].offset + index as usize * CLASS_SIZES[class]
    }

    fn references(&self, class: usize, index: u32) -> &AtomicU32 {
        let area = &self.areas[class];
        debug_assert!((index as usize) < area.slots, "a slot of the class");
        &self.references[area.slot + index as usize]
    }

    /// A slot without references, or None at the bound.
    fn take(&self, class: usize) -> Option<u32> {
        let size = CLASS_SIZES[class];
        let mut lists = self.lists();
        let after = lists.bytes_in_use.checked_add(size)?;
        if after > self.bytes_max {
            return None;
        }
        let index = match lists.classes[class].warm.pop() {
            Some(index) => index,
            None => {
                self.make_room(&mut lists, size);
                lists.bytes_resident += size;
                lists.classes[class].take_cold(self.areas[class].slots)
            }
        };
        lists.bytes_in_use = after;
        assert!(lists.bytes_in_use <= lists.bytes_resident, "what is in use is resident");
        Some(index)
    }

    fn give_back(&self, class: usize, index: u32) {
        let mut lists = self.lists();
        lists.bytes_in_use = lists
            .bytes_in_use
            .checked_sub(CLASS_SIZES[class])
            .expect("a slot that comes back was counted when it was taken");
        lists.classes[class].warm.push(index);
    }

    /// Gives memory of free slots of other classes back to the system until `size` bytes fit the
    /// bound.
    fn make_room(&self, lists: &mut Lists, size: usize) {
        while lists.bytes_resident + size > self.bytes_max {
            let warm = lists.classes.iter_mut().enumerate().rev();
            let (class, index) = warm
                .filter_map(|(class, free)| Some((class, free.warm.pop()?)))
                .next()
                .expect("what is resident and not in use is warm, and the use fits the bound");
            // SAFETY: the slot is free, so no reference to its bytes exists, and the lists are
            // locked. If the system refuses, the pages stay: a loss of memory, not of truth.
            unsafe { self.map.give_back(self.offset(class, index), CLASS_SIZES[class]) };
            lists.classes[class].cold.push(index);
            lists.bytes_resident -= CLASS_SIZES[class];
        }
    }
}

/// Where a class has its slots.
#[derive(Clone, Copy, Debug, Default)]
struct Area {
    /// Of the first slot, in the mapping.
    offset: usize,
    /// Number of the first slot in the table of counters.
    slot: usize,
    slots: usize,
}

#[derive(Debug)]
struct Lists {
    bytes_in_use: usize,
    /// Bytes of the slots that are in use or warm.
    bytes_resident: usize,
    classes: [Free; CLASS_SIZES.len()],
}

/// The free slots of a class; the lists have room for all slots from the start.
#[derive(Debug)]
struct Free {
    /// Used before, last in first out: the hottest in the caches is taken first.
    warm: Vec<u32>,
    /// Used before, their memory given back to the system.
    cold: Vec<u32>,
    /// This one and all above it were never used.
    fresh: u32,
}

impl Free {
    /// A slot without memory. The bound counts class sizes, so a class cannot run out before it.
    fn take_cold(&mut self, slots: usize) -> u32 {
        self.cold.pop().unwrap_or_else(|| {
            let index = self.fresh;
            assert!((index as usize) < slots, "the bound is reached before the slots run out");
            self.fresh += 1;
            index
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;
    use crate::limits::{BUF_LEN_MAX, CLASS_SIZES, PAGE};
    use crate::{Buf, Slice};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::atomic::Ordering;

    const BOUND: usize = 20 << 20;

    #[derive(Clone, Debug)]
    enum Step {
        Take(usize),
        Drop(usize),
        Freeze(usize),
        Share(usize),
        Unshare(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let len = prop_oneof![0..70_000_usize, 0..BUF_LEN_MAX + 2];
        prop_oneof![
            4 => len.prop_map(Step::Take),
            2 => any::<usize>().prop_map(Step::Drop),
            2 => any::<usize>().prop_map(Step::Freeze),
            2 => any::<usize>().prop_map(Step::Share),
            3 => any::<usize>().prop_map(Step::Unshare),
        ]
    }

    fn class_size(len: usize) -> Option<usize> {
        CLASS_SIZES.into_iter().find(|size| len <= *size)
    }

    /// What was written into a buffer: its number at both ends.
    fn mark(buf: &mut [u8], number: u8) {
        if let Some(first) = buf.first_mut() {
            *first = number;
        }
        if let Some(last) = buf.last_mut() {
            *last = number;
        }
    }

    fn is_marked(bytes: &[u8], number: u8) -> bool {
        [bytes.first(), bytes.last()].into_iter().flatten().all(|byte| *byte == number)
    }

    proptest! {
        #[test]
        fn never_gives_the_same_memory_twice(steps in proptest::collection::vec(step(), 1..120)) {
            let pool = Pool::new(BOUND).expect("room");
            let mut bufs: VecDeque<(u8, Buf)> = VecDeque::new();
            let mut slices: VecDeque<(u8, usize, Vec<Slice>)> = VecDeque::new();
            let (mut in_use, mut number) = (0, 0_u8);
            for step in steps {
                match step {
                    Step::Take(len) => {
                        let size = class_size(len);
                        let fits = size.is_some_and(|size| in_use + size <= BOUND);
                        let taken = pool.take(len);
                        prop_assert_eq!(taken.is_some(), fits);
                        if let (Some(mut buf), Some(size)) = (taken, size) {
                            prop_assert_eq!(buf.len(), len);
                            prop_assert!(buf.as_ptr().addr().is_multiple_of(PAGE));
                            number = number.wrapping_add(1);
                            mark(&mut buf, number);
                            in_use += size;
                            bufs.push_back((number, buf));
                        }
                    }
                    Step::Drop(at) if !bufs.is_empty() => {
                        let (number, buf) = bufs.remove(at % bufs.len()).expect("within");
                        prop_assert!(is_marked(&buf, number));
                        in_use -= class_size(buf.len()).expect("was taken");
                    }
                    Step::Freeze(at) if !bufs.is_empty() => {
                        let (number, buf) = bufs.remove(at % bufs.len()).expect("within");
                        let size = class_size(buf.len()).expect("was taken");
                        slices.push_back((number, size, vec![buf.freeze()]));
                    }
                    Step::Share(at) if !slices.is_empty() => {
                        let at = at % slices.len();
                        let (_, _, shared) = &mut slices[at];
                        let clone = shared[0].clone();
                        shared.push(clone);
                    }
                    Step::Unshare(at) if !slices.is_empty() => {
                        let at = at % slices.len();
                        let (number, size, shared) = &mut slices[at];
                        let slice = shared.pop().expect("at least one");
                        prop_assert!(is_marked(slice.bytes(), *number));
                        drop(slice);
                        if shared.is_empty() {
                            in_use -= *size;
                            slices.remove(at);
                        }
                    }
                    Step::Drop(_) | Step::Freeze(_) | Step::Share(_) | Step::Unshare(_) => {}
                }
                prop_assert_eq!(pool.bytes_in_use(), in_use);
                prop_assert!(pool.shared.lists().bytes_resident <= BOUND);
            }
            drop((bufs, slices));
            prop_assert_eq!(pool.bytes_in_use(), 0);
            let mut counts = pool.shared.references.iter();
            let free = counts.all(|count| count.load(Ordering::Relaxed) == 0);
            prop_assert!(free);
        }
    }

    #[test]
    fn the_last_one_back_is_the_first_one_out() {
        let pool = Pool::new(1 << 20).expect("room");
        let (first, second) = (pool.take(9).expect("room"), pool.take(9).expect("room"));
        let (hot, cold) = (second.as_ptr(), first.as_ptr());
        drop(first);
        drop(second);
        let again = pool.take(4096).expect("room");
        assert_eq!(again.as_ptr(), hot);
        assert_eq!(pool.take(1).expect("room").as_ptr(), cold);
    }

    #[test]
    fn a_change_of_sizes_stays_within_the_bound() {
        let pool = Pool::new(1 << 20).expect("room");
        for _ in 0..3 {
            let mut small: Vec<Buf> = std::iter::from_fn(|| pool.take(4096)).collect();
            assert_eq!(small.len(), 256);
            small.iter_mut().for_each(|buf| buf.fill(1));
            assert!(pool.take(1 << 20).is_none());
            drop(small);
            let mut large = pool.take(1 << 20).expect("all came back");
            large.fill(2);
            assert!(pool.take(0).is_none());
            assert_eq!(pool.shared.lists().bytes_resident, 1 << 20);
        }
    }

    #[test]
    fn sizes_out_of_bounds_are_refused() {
        assert!(Pool::new(usize::MAX).is_err());
        let pool = Pool::new(0).expect("an empty pool");
        assert!(pool.take(0).is_none());
        let pool = Pool::new(64 << 20).expect("room");
        assert!(pool.take(BUF_LEN_MAX + 1).is_none());
        assert!(pool.take(usize::MAX).is_none());
        let mut buf = pool.take(BUF_LEN_MAX).expect("room");
        buf.truncate(usize::MAX);
        assert_eq!(buf.len(), BUF_LEN_MAX);
        buf.truncate(3);
        assert_eq!(buf.freeze().len(), 3);
    }

    #[test]
    fn buffers_cross_threads_and_outlive_the_pool() {
        let pool = Pool::new(1 << 20).expect("room");
        let (to, from) = std::sync::mpsc::sync_channel::<(u8, Slice)>(8);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (number, slice) in from {
                    assert!(is_marked(slice.bytes(), number));
                }
            });
            let pool = &pool;
            for thread in 0..3_u8 {
                let to = to.clone();
                scope.spawn(move || {
                    for round in 0..2000_u16 {
                        let len = 1 + usize::from(round) * 7;
                        let Some(mut buf) = pool.take(len) else { continue };
                        mark(&mut buf, thread);
                        to.send((thread, buf.freeze())).expect("the reader lives");
                    }
                });
            }
            drop(to);
        });
        assert_eq!(pool.bytes_in_use(), 0);
        let last = pool.take(1).expect("room");
        drop(pool);
        drop(last);
    }
}
