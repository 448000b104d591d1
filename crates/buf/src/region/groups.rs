// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may touch which pages of a region: one word for each group of pages.
//!
//! ```text
//! word = WRITING | MOVED | number of slices that have a byte of the group
//!
//! free --lend--> lent --last slice gone--> free
//!  |               |
//!  | lock          | lock: new bytes go to new pages
//!  v               v
//! written       lent and moved --last slice gone--> locked, pages brought home, free
//! ```
//!
//! WRITING is held for the length of a copy. Who wants to lend meanwhile takes its count back and
//! waits; so does another writer. Slices of a group that is being written may be cloned and given
//! back at any time. Whoever finds, by what it did last, that the group is neither lent nor locked
//! but has new pages brings them home: so there are none once the slices are gone.

use crate::limits::{LENDS_MAX, PAGE};
use crate::map::Mapping;
use std::hint;
use std::io;
use std::ops::Range;
use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread;

/// Bytes of a group: fewer words to touch for a large read than with one for each page; a write
/// that meets a lent group makes new pages only for those that it touches.
pub(super) const GROUP: usize = 4 * PAGE;

/// Somebody reads or writes pages that others may not use meanwhile.
const WRITING: u32 = 1 << 31;
/// There are new pages.
const MOVED: u32 = 1 << 30;
const LENDS: u32 = MOVED - 1;
const _: () = assert!(LENDS_MAX < LENDS / 2);

/// Times that a word is looked at before the processor is given to another thread.
const LOOKS_MAX: u32 = 64;

/// A word for each group, in memory that takes no room before it is used.
#[derive(Debug)]
pub(super) struct Groups {
    words: Mapping,
    count: usize,
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
        Ok(Self { words: Mapping::new(count * size_of::<AtomicU32>())?, count })
    }

    #[inline]
    fn word(&self, group: usize) -> &AtomicU32 {
        assert!(group < self.count, "a group of the region");
        let word = self.words.at(group * size_of::<AtomicU32>()).cast::<AtomicU32>();
        // SAFETY: the mapping has `count` words, zero at first, is page aligned, lives as long as
        // self and is used for nothing else.
        unsafe { word.as_ref() }
    }

    #[inline]
    pub(super) fn lend(&self, group: usize) -> Lending {
        let word = self.word(group);
        let before = word.fetch_add(1, Ordering::Acquire);
        match before & (WRITING | MOVED) {
            0 => {
                guard(before);
                Lending::Lent
            }
            MOVED if before & LENDS > 0 => Lending::Moved,
            MOVED => Lending::Again,
            _ => {
                wait_while(|| word.load(Ordering::Relaxed) & WRITING != 0);
                Lending::Again
            }
        }
    }

    /// Counts another slice of bytes that are lent already.
    #[inline]
    pub(super) fn lend_again(&self, group: usize) {
        let before = self.word(group).fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & LENDS > 0, "lent already");
        guard(before);
    }

    /// A slice is gone; true if new pages can be brought home.
    #[inline]
    pub(super) fn take_back(&self, group: usize) -> bool {
        let before = self.word(group).fetch_sub(1, Ordering::Release);
        debug_assert!(before & LENDS > 0, "was lent");
        before.wrapping_sub(1) == MOVED
    }

    /// Waits until nobody else uses the group; true if it is neither lent nor has new pages.
    #[inline]
    pub(super) fn lock(&self, group: usize) -> bool {
        let word = self.word(group);
        let free = word.compare_exchange(0, WRITING, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok() || {
            wait_while(|| word.fetch_or(WRITING, Ordering::Acquire) & WRITING != 0);
            false
        }
    }

    /// Locks a group that has new pages and is not lent; false if that is not so any more.
    pub(super) fn try_lock_moved(&self, group: usize) -> bool {
        self.word(group)
            .compare_exchange(MOVED, MOVED | WRITING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// True if new pages can be brought home: slices have gone meanwhile.
    #[inline]
    pub(super) fn unlock(&self, group: usize) -> bool {
        let before = self.word(group).fetch_and(!WRITING, Ordering::Release);
        debug_assert!(before & WRITING != 0, "was locked");
        before & !WRITING == MOVED
    }

    /// Of a locked group, which nobody can borrow: once false, it stays so.
    pub(super) fn is_lent(&self, group: usize) -> bool {
        self.word(group).load(Ordering::Acquire) & LENDS > 0
    }

    /// Of a locked group.
    pub(super) fn is_moved(&self, group: usize) -> bool {
        self.word(group).load(Ordering::Relaxed) & MOVED != 0
    }

    /// Of a locked group.
    pub(super) fn set_moved(&self, group: usize) {
        self.word(group).fetch_or(MOVED, Ordering::Relaxed);
    }

    /// Of a locked group.
    pub(super) fn set_home(&self, group: usize) {
        self.word(group).fetch_and(!MOVED, Ordering::Relaxed);
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
