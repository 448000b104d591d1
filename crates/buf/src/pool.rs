// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pool: slots by size class in one reservation, last in first out, with a hard bound, and the
//! shares of those who take from it.

mod lists;
#[cfg(test)]
mod tests;

use crate::Buf;
use crate::Ground;
use crate::limits::{BUF_LEN_MAX, CLASS_SIZES, POOL_BYTES_MAX, REFERENCES_MAX};
use crate::map::Mapping;
use lists::{Free, Lists, Room};
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
///
/// # Shares
/// [`Pool::share`] gives a view of the pool with books of its own. What such a view has must stay
/// within a share that shrinks faster than what is free, so whoever is alone has most of the pool,
/// and however many take all they can and give nothing back, something is left for the next one.
/// No limit has to be set, and nothing is gained by being first. A clone has the same books.
pub struct Pool {
    shared: Arc<Shared>,
    account: u32,
}

/// How much of its share a taker may use, from little to much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // takers choose one of these
pub enum Claim {
    /// What would only be convenient: half of the share, so that what is older and needs more still
    /// finds some of it.
    Convenience,
    /// What something new needs.
    Share,
    /// What something needs that has memory already, and gives it back only after this: whatever is
    /// free.
    Completion,
}

/// What [`Pool::trim`] leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the caller's timer knows these
pub enum Trimmed {
    /// Nothing has memory.
    All,
    /// What is in use, or was since the last time: look again after a while.
    ForNow,
    /// More that was not: once more, soon.
    InPart,
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
        let losses = (0..slot).map(|_| AtomicU32::new(0)).collect();
        let lists = Mutex::new(Lists::new(areas.map(|area| area.slots), slot));
        let shared =
            Arc::new(Shared { map, areas, references, losses, number: number(), bytes_max, lists });
        Ok(Self { shared, account: lists::OPEN })
    }

    /// A view of the same pool whose holder has a share, with books of its own.
    #[must_use]
    pub fn share(&self) -> Self {
        let account = self.shared.lists().open_account();
        Self { shared: Arc::clone(&self.shared), account }
    }

    /// A buffer that shows `len` bytes: zero, or bytes of earlier use, so that the taker must
    /// overwrite all that it gives away. None when the bound or the share is reached, or `len` is
    /// above [`BUF_LEN_MAX`].
    pub fn take(&self, len: usize) -> Option<Buf> {
        self.take_as(len, Claim::Share)
    }

    /// As `take`, of more or less than the whole share. Without a share all of these are alike.
    pub fn take_as(&self, len: usize, claim: Claim) -> Option<Buf> {
        let class = class_of(len)?;
        let index = self.shared.take(class, self.account, claim)?;
        Some(Buf::new(Slot::first(&self.shared, class, index), len))
    }

    /// What a buffer of `len` bytes takes of a pool, bytes; what none gives is as long as it is.
    #[must_use]
    pub fn cost(len: usize) -> usize {
        class_of(len).map_or(len, |class| CLASS_SIZES[class])
    }

    /// Whether the pool could ever give buffers of all these lengths at once.
    pub fn could_take(&self, lens: impl IntoIterator<Item = usize>) -> bool {
        let sizes = lens.into_iter().map(|len| class_of(len).map(|class| CLASS_SIZES[class]));
        sizes.sum::<Option<usize>>().is_some_and(|bytes| bytes <= self.shared.bytes_max)
    }

    /// Gives memory of free slots that no taker needed since the last call back to the system, at
    /// most `bytes` and one slot.
    pub fn trim(&self, bytes: usize) -> Trimmed {
        self.shared.trim(bytes)
    }

    /// How often something came back: whoever was refused may look whether this has changed.
    pub fn returned(&self) -> u64 {
        self.shared.lists().returned
    }

    /// Bytes that this view and its clones have handed out, counted in class sizes; without a share
    /// those of all.
    pub fn bytes_taken(&self) -> usize {
        self.shared.lists().bytes_of(self.account)
    }

    /// Bytes handed out, counted in class sizes.
    pub fn bytes_in_use(&self) -> usize {
        self.shared.lists().bytes_in_use
    }

    /// Bytes that have memory: handed out, or kept warm for the next one.
    pub fn bytes_resident(&self) -> usize {
        self.shared.lists().bytes_resident
    }

    /// The bound, bytes.
    pub fn bytes_max(&self) -> usize {
        self.shared.bytes_max
    }
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        self.shared.lists().join_account(self.account);
        Self { shared: Arc::clone(&self.shared), account: self.account }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lists().leave_account(self.account);
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

    /// What the slot lies on as long as there is a reference to it.
    pub(crate) fn ground(&self) -> Ground {
        let shared = self.shared();
        let losses = shared.losses[shared.slot(self.class, self.index)].load(Ordering::Relaxed);
        let pages = u64::from(shared.number) << u32::BITS | u64::from(losses);
        Ground { address: self.base().as_ptr().addr(), length: self.capacity(), pages }
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
    /// How often each slot has lost its pages.
    losses: Box<[AtomicU32]>,
    /// No other pool has it.
    number: u32,
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

    /// The slot's number among those of all classes.
    fn slot(&self, class: usize, index: u32) -> usize {
        self.areas[class].slot + index as usize
    }

    fn references(&self, class: usize, index: u32) -> &AtomicU32 {
        let area = self.areas[class];
        debug_assert!((index as usize) < area.slots, "a slot of the class");
        &self.references[self.slot(class, index)]
    }

    /// A slot without references, or None at the bound.
    fn take(&self, class: usize, account: u32, claim: Claim) -> Option<u32> {
        let size = CLASS_SIZES[class];
        let mut lists = self.lists();
        let after = lists.bytes_in_use.checked_add(size)?;
        let free = self.bytes_max.checked_sub(after)?;
        let room = Room { free, bytes_max: self.bytes_max };
        if !lists.allows(account, size, room, claim) {
            return None;
        }
        let index = match lists.classes[class].take_warm() {
            Some(index) => index,
            None => {
                self.make_room(&mut lists, size);
                lists.bytes_resident += size;
                lists.classes[class].take_cold(self.areas[class].slots)
            }
        };
        lists.bytes_in_use = after;
        lists.charge(account, self.slot(class, index), size);
        assert!(lists.bytes_in_use <= lists.bytes_resident, "what is in use is resident");
        Some(index)
    }

    fn give_back(&self, class: usize, index: u32) {
        let mut lists = self.lists();
        lists.bytes_in_use = lists
            .bytes_in_use
            .checked_sub(CLASS_SIZES[class])
            .expect("a slot that comes back was counted when it was taken");
        lists.discharge(self.slot(class, index), CLASS_SIZES[class]);
        lists.returned += 1;
        lists.classes[class].warm.push(index);
    }

    /// Gives memory of free slots of other classes back to the system until `size` bytes fit the
    /// bound.
    fn make_room(&self, lists: &mut Lists, size: usize) {
        while lists.bytes_resident + size > self.bytes_max {
            let warm = lists.classes.iter_mut().enumerate().rev();
            let (class, index) = warm
                .filter_map(|(class, free)| Some((class, free.take_warm()?)))
                .next()
                .expect("what is resident and not in use is warm, and the use fits the bound");
            self.cool(class, index);
            lists.classes[class].cold.push(index);
            lists.bytes_resident -= CLASS_SIZES[class];
        }
    }

    /// See `Pool::trim`.
    fn trim(&self, bytes: usize) -> Trimmed {
        let lists = &mut *self.lists();
        let mut left = bytes;
        for (class, size) in CLASS_SIZES.into_iter().enumerate().rev() {
            let most = left / size + 1;
            let cooled = lists.classes[class].cool_unused(most, |index| self.cool(class, index));
            lists.bytes_resident -= cooled * size;
            left = left.saturating_sub(cooled * size);
            if cooled == most {
                return Trimmed::InPart;
            }
        }
        lists.classes.iter_mut().for_each(Free::begin_period);
        match lists.bytes_resident {
            0 => Trimmed::All,
            _ => Trimmed::ForNow,
        }
    }

    /// Gives the memory of a slot that is free back to the system; the lists are locked.
    fn cool(&self, class: usize, index: u32) {
        self.losses[self.slot(class, index)].fetch_add(1, Ordering::Relaxed);
        // SAFETY: the slot is free, so no reference to its bytes exists, and the lists are locked.
        // If the system refuses, the pages stay: a loss of memory, not of truth.
        unsafe { self.map.give_back(self.offset(class, index), CLASS_SIZES[class]) };
    }
}

/// Of a pool.
fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
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

/// The smallest class that has room for `len` bytes.
fn class_of(len: usize) -> Option<usize> {
    if len > BUF_LEN_MAX {
        return None;
    }
    CLASS_SIZES.iter().position(|size| len <= *size)
}
