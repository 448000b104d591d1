// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may touch which pages of a region: two words for each group of pages.
//!
//! ```text
//! lends = MOVED | number of slices that have a byte of the group
//! writing = 1 while somebody reads or writes pages that others may not use meanwhile
//!
//! free --lend--> lent --last slice gone--> free
//!  |               |
//!  | lock          | lock: new bytes go to new pages
//!  v               v
//! written       lent and moved --last slice gone--> locked, pages brought home, free
//! ```
//!
//! `writing` is held for the length of a copy. Who lends counts first and looks at `writing` then;
//! who writes sets `writing` first and looks at the count then: so one of the two sees the other.
//! Who wants to lend and sees a writer takes its count back and waits; so does another writer.
//! Slices of a group that is being written may be cloned and given back at any time. Whoever finds,
//! by what it did last, that the group is neither lent nor locked but has new pages brings them
//! home: so there are none once the slices are gone.
//!
//! `writing` is a word of its own so that a group that nobody had borrowed is unlocked by a plain
//! store: an operation that reads and writes would wait until all that was just copied has left the
//! processor for the caches.

use crate::limits::{LENDS_MAX, PAGE};
use crate::map::Mapping;
use std::hint;
use std::io;
use std::ops::Range;
use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread;

/// Bytes of a group: few words to touch for a large read, and so few in all that those of a region
/// of a gigabyte stay in a cache; a write that meets a lent group makes new pages only for those
/// that it touches.
pub(super) const GROUP: usize = 16 * PAGE;

/// There are new pages.
const MOVED: u32 = 1 << 31;
const LENDS: u32 = MOVED - 1;
const _: () = assert!(LENDS_MAX < LENDS / 2);

/// Times that a word is looked at before the processor is given to another thread.
const LOOKS_MAX: u32 = 64;

/// The words of all groups, in memory that takes no room before it is used.
#[derive(Debug)]
pub(super) struct Groups {
    words: Mapping,
    count: usize,
}

/// Zero at first: free.
#[derive(Debug)]
struct Words {
    lends: AtomicU32,
    writing: AtomicU32,
}

impl Words {
    fn is_being_written(&self) -> bool {
        self.writing.load(Ordering::SeqCst) != 0
    }

    fn try_lock(&self) -> bool {
        self.writing.swap(1, Ordering::SeqCst) == 0
    }
}

/// What a lock has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// The group is not lent and has no new pages: nor will it before it is unlocked.
    Free,
    /// It may be lent or have new pages.
    InUse,
}

/// What became of a wish to lend; the group is counted as lent in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lending {
    Lent,
    /// Its newest bytes are elsewhere, as long as others have it, too.
    Moved,
    /// It was in the way of somebody: take it back and try again.
    Again,
}

/// The groups that have a byte of the range.
#[inline]
pub(super) const fn of(start: usize, len: usize) -> Range<usize> {
    if len == 0 {
        return 0..0;
    }
    start / GROUP..(start + len - 1) / GROUP + 1
}

impl Groups {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let count = len.div_ceil(GROUP);
        Ok(Self { words: Mapping::new(count * size_of::<Words>())?, count })
    }

    #[inline]
    fn words(&self, group: usize) -> &Words {
        assert!(group < self.count, "a group of the region");
        let words = self.words.at(group * size_of::<Words>()).cast::<Words>();
        // SAFETY: the mapping has room for `count` of them, zero at first, is page aligned, lives
        // as long as self and is used for nothing else.
        unsafe { words.as_ref() }
    }

    #[inline]
    pub(super) fn lend(&self, group: usize) -> Lending {
        let words = self.words(group);
        let before = words.lends.fetch_add(1, Ordering::SeqCst);
        guard(before);
        if words.is_being_written() {
            wait_while(|| words.is_being_written());
            return Lending::Again;
        }
        match before {
            MOVED => Lending::Again,
            before if before & MOVED != 0 => Lending::Moved,
            _ => Lending::Lent,
        }
    }

    /// Counts another slice of bytes that are lent already.
    #[inline]
    pub(super) fn lend_again(&self, group: usize) {
        let before = self.words(group).lends.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & LENDS > 0, "lent already");
        guard(before);
    }

    /// A slice is gone; true if new pages can be brought home.
    #[inline]
    pub(super) fn take_back(&self, group: usize) -> bool {
        let before = self.words(group).lends.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before & LENDS > 0, "was lent");
        before.wrapping_sub(1) == MOVED
    }

    /// Waits until nobody else uses the group.
    #[inline]
    pub(super) fn lock(&self, group: usize) -> Locked {
        let words = self.words(group);
        if !words.try_lock() {
            wait_while(|| words.is_being_written() || !words.try_lock());
        }
        match words.lends.load(Ordering::SeqCst) {
            0 => Locked::Free,
            _ => Locked::InUse,
        }
    }

    /// Locks a group that has new pages and is not lent; false if that is not so any more.
    pub(super) fn try_lock_moved(&self, group: usize) -> bool {
        let words = self.words(group);
        while words.try_lock() {
            if words.lends.load(Ordering::SeqCst) == MOVED {
                return true;
            }
            if !self.unlock(group) {
                break;
            }
        }
        false
    }

    /// Of a group that was free when it was locked.
    #[inline]
    pub(super) fn unlock_free(&self, group: usize) {
        debug_assert!(!self.is_moved(group), "only who writes to a lent group makes new pages");
        self.words(group).writing.store(0, Ordering::Release);
    }

    /// True if new pages can be brought home: slices have gone meanwhile.
    #[inline]
    pub(super) fn unlock(&self, group: usize) -> bool {
        let words = self.words(group);
        let before = words.writing.swap(0, Ordering::SeqCst);
        debug_assert!(before != 0, "was locked");
        words.lends.load(Ordering::SeqCst) == MOVED
    }

    /// Of a locked group: once false, nobody borrows it before it is unlocked.
    pub(super) fn is_lent(&self, group: usize) -> bool {
        self.words(group).lends.load(Ordering::SeqCst) & LENDS > 0
    }

    /// Of a locked group.
    pub(super) fn is_moved(&self, group: usize) -> bool {
        self.words(group).lends.load(Ordering::Relaxed) & MOVED != 0
    }

    /// Of a locked group.
    pub(super) fn set_moved(&self, group: usize) {
        self.words(group).lends.fetch_or(MOVED, Ordering::Relaxed);
    }

    /// Of a locked group.
    pub(super) fn set_home(&self, group: usize) {
        self.words(group).lends.fetch_and(!MOVED, Ordering::Relaxed);
    }
}

/// A count that would wrap would give pages away that are in use.
#[inline]
fn guard(before: u32) {
    if before & LENDS > LENDS_MAX {
        process::abort();
    }
}

/// What is waited for is the end of a copy of some pages by another thread, which may have to wait
/// for the processor itself.
#[cold]
fn wait_while(mut busy: impl FnMut() -> bool) {
    let mut looks = 0;
    while busy() {
        if looks < LOOKS_MAX {
            looks += 1;
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}
