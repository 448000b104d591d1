// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may touch the pages of one group of a region: two words.
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
//! home: so there are none once the slices are gone. `tests/words_model.rs` tries every order.
//!
//! `writing` is a word of its own so that a group that nobody had borrowed is unlocked by a plain
//! store: an operation that reads and writes would wait until all that was just copied has left the
//! processor for the caches.

use crate::limits::LENDS_MAX;
use crate::sync::AtomicU32;
use crate::sync::Ordering;
use crate::sync::spin_loop;
use crate::sync::yield_now;
use std::process;

/// There are new pages.
const MOVED: u32 = 1 << 31;
const LENDS: u32 = MOVED - 1;
const _: () = assert!(LENDS_MAX < LENDS / 2);

/// Times that a word is looked at before the processor is given to another thread.
const LOOKS_MAX: u32 = 64;

/// Zero at first: free.
#[derive(Debug, Default)]
pub(crate) struct Words {
    lends: AtomicU32,
    writing: AtomicU32,
}

/// What a lock has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// The group is not lent and has no new pages: nor will it before it is unlocked.
    Free,
    /// It may be lent or have new pages.
    InUse,
}

/// `home` brings new pages home and calls [`Words::set_home`]; the group is locked and not lent
/// then.
impl Words {
    /// Counts a slice; false if others have it and its newest bytes are on new pages.
    #[inline]
    pub(crate) fn lend(&self, home: impl Fn()) -> bool {
        loop {
            let before = self.lends.fetch_add(1, Ordering::SeqCst);
            guard(before);
            if self.is_being_written() {
                wait_while(|| self.is_being_written());
            } else if before & MOVED == 0 {
                return true;
            } else if before != MOVED {
                self.take_back(home);
                return false;
            }
            // What was moved comes home now, if it is lent no more.
            self.take_back(&home);
        }
    }

    /// Counts another slice of bytes that are lent already.
    #[inline]
    pub(crate) fn lend_again(&self) {
        let before = self.lends.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & LENDS > 0, "lent already");
        guard(before);
    }

    /// A slice is gone.
    #[inline]
    pub(crate) fn take_back(&self, home: impl Fn()) {
        let before = self.lends.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before & LENDS > 0, "was lent");
        if before.wrapping_sub(1) == MOVED {
            self.settle(home);
        }
    }

    /// Waits until nobody else uses the group.
    #[inline]
    pub(crate) fn lock(&self) -> Locked {
        if !self.try_lock() {
            wait_while(|| self.is_being_written() || !self.try_lock());
        }
        match self.lends.load(Ordering::SeqCst) {
            0 => Locked::Free,
            _ => Locked::InUse,
        }
    }

    /// Of a group that was free when it was locked.
    #[inline]
    pub(crate) fn unlock_free(&self) {
        debug_assert!(!self.is_moved(), "only who writes to a lent group makes new pages");
        self.writing.store(0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn unlock(&self, home: impl Fn()) {
        if self.release() {
            self.settle(home);
        }
    }

    /// Of a locked group: once false, nobody borrows it before it is unlocked.
    pub(crate) fn is_lent(&self) -> bool {
        self.lends.load(Ordering::SeqCst) & LENDS > 0
    }

    /// Of a locked group.
    pub(crate) fn is_moved(&self) -> bool {
        self.lends.load(Ordering::Relaxed) & MOVED != 0
    }

    /// Of a locked group.
    pub(crate) fn set_moved(&self) {
        self.lends.fetch_or(MOVED, Ordering::Relaxed);
    }

    /// Of a locked group.
    pub(crate) fn set_home(&self) {
        self.lends.fetch_and(!MOVED, Ordering::Relaxed);
    }

    /// Nobody has borrowed from the group any more: new pages take the place of the old ones.
    #[cold]
    fn settle(&self, home: impl Fn()) {
        while self.try_lock() {
            if self.lends.load(Ordering::SeqCst) == MOVED {
                home();
            }
            // Slices may have gone meanwhile.
            if !self.release() {
                return;
            }
        }
    }

    fn is_being_written(&self) -> bool {
        self.writing.load(Ordering::SeqCst) != 0
    }

    fn try_lock(&self) -> bool {
        self.writing.swap(1, Ordering::SeqCst) == 0
    }

    /// True if new pages can be brought home.
    fn release(&self) -> bool {
        let before = self.writing.swap(0, Ordering::SeqCst);
        debug_assert!(before != 0, "was locked");
        self.lends.load(Ordering::SeqCst) == MOVED
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
            spin_loop();
        } else {
            yield_now();
        }
    }
}
