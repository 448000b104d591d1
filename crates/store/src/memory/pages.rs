// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which pages of a memory store hold something, and which are set aside: two bits a page, and how
//! many are one or the other. What nobody has written to takes no bits.
//!
//! The kernel knows too, but only for pages that are not swapped out. A page that is written and
//! discarded at the same time may be said to hold something that is gone, and never the other way:
//! what nobody knows of would be lost when the process hands over.

use crate::limits::TRACKED_MAX;
use crate::{Run, Space};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use spin::Once;

/// Bytes of a page, as a shift.
const PAGE_SHIFT: u32 = 12;
/// Pages of a word, as a shift.
const WORD_SHIFT: u32 = 5;
/// Bits of half a word: one a page.
const HALF: u32 = 1 << WORD_SHIFT;
/// Bits of a word that say which of its pages were written, below those that were set aside.
const PAGES: u64 = (1 << HALF) - 1;
/// Words of a chunk, as a shift: a chunk of 4 KiB stands for 64 MiB.
const CHUNK_SHIFT: u32 = 9;
/// The last page of a word.
const LAST: u64 = (1 << WORD_SHIFT) - 1;
const CHUNK_WORDS: usize = 1 << CHUNK_SHIFT;
/// The last page of a chunk.
const CHUNK_LAST: u64 = (1 << (WORD_SHIFT + CHUNK_SHIFT)) - 1;

/// Two bits for each page, none in a store that is too large to keep them.
///
/// A page that was written is mapped, whether it was set aside before or not: so a write looks at
/// one bit, as if there were no other. Both bits of a page are in one word: each change of it tells
/// exactly how many pages came to hold something or be set aside, also beside other changes.
#[derive(Debug)]
pub(super) struct Pages {
    /// Made when a bit of it is set first: those of terabytes would take seconds and memory that
    /// a disk may never need.
    chunks: Box<[Once<Box<Chunk>>]>,
    /// Pages of which a bit is set; for a moment it may be behind, and even below none.
    held: AtomicU64,
}

/// Which pages were written since they were discarded or set aside last, and in the upper half of
/// each word which were set aside since they were discarded last.
#[derive(Debug)]
struct Chunk([AtomicU64; CHUNK_WORDS]);

impl Default for Chunk {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; CHUNK_WORDS])
    }
}

impl Pages {
    pub(super) fn new(bytes: u64) -> Self {
        let chunks = bytes.div_ceil(1 << (PAGE_SHIFT + WORD_SHIFT + CHUNK_SHIFT));
        let chunks = if bytes > TRACKED_MAX { 0 } else { usize::try_from(chunks).unwrap_or(0) };
        let chunks = (0..chunks).map(|_| Once::new()).collect::<Vec<_>>().into();
        Self { chunks, held: AtomicU64::new(0) }
    }

    /// False in a store that is too large.
    pub(super) fn are_known(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Every page that has a byte of the range holds something.
    #[inline]
    pub(super) fn write(&self, offset: u64, length: u64) {
        self.set(touched(offset, length), 0);
    }

    /// Every page that has a byte of the range is set aside; those that lie in it as a whole hold
    /// nothing.
    pub(super) fn anchor(&self, offset: u64, length: u64) {
        self.set(touched(offset, length), HALF);
        self.unset(whole(offset, length), 1);
    }

    /// Pages that lie in the range as a whole are neither.
    pub(super) fn clear(&self, offset: u64, length: u64) {
        self.unset(whole(offset, length), 1 | 1 << HALF);
    }

    /// What holds for the page of `offset`, and how far.
    pub(super) fn run(&self, offset: u64, length: u64) -> Run {
        if !self.are_known() {
            return Run { space: Space::Mapped, length };
        }
        let first = offset >> PAGE_SHIFT;
        let end = (offset.saturating_add(length)).div_ceil(1 << PAGE_SHIFT);
        let (written, anchored) = self.halves(first);
        let bit = |half: u64| half >> (first & LAST) & 1 == 1;
        let space = match (bit(written), bit(anchored)) {
            (true, _) => Space::Mapped,
            (false, true) => Space::Anchored,
            (false, false) => Space::Deallocated,
        };
        let mut page = first;
        while page < end {
            if space == Space::Deallocated && !self.is_made(page) {
                page = (page | CHUNK_LAST) + 1;
                continue;
            }
            let (written, anchored) = self.halves(page);
            let others = match space {
                Space::Mapped => !written & PAGES,
                Space::Anchored => (written | !anchored) & PAGES,
                Space::Deallocated => written | anchored,
            };
            let others = others & (u64::MAX << (page & LAST));
            if others != 0 {
                page = (page & !LAST) + u64::from(others.trailing_zeros());
                break;
            }
            page = (page | LAST) + 1;
        }
        Run { space, length: (page << PAGE_SHIFT).saturating_sub(offset).min(length) }
    }

    /// Bytes of all pages that hold something or are set aside; None if nobody counts.
    pub(super) fn bytes(&self) -> Option<u64> {
        if !self.are_known() {
            return None;
        }
        let pages = self.held.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned();
        Some(pages << PAGE_SHIFT)
    }

    /// Sets the bits of these pages, `half` bits further up.
    #[inline]
    fn set(&self, pages: Range<u64>, half: u32) {
        self.each(pages, |page, mask| {
            let Some(word) = self.make(page) else { return };
            // Mostly set already: then no cache line is taken from another CPU.
            if word.load(Ordering::Relaxed) & (mask << half) != mask << half {
                let before = word.fetch_or(mask << half, Ordering::Relaxed);
                let came = (mask & !held(before)).count_ones();
                self.held.fetch_add(came.into(), Ordering::Relaxed);
            }
        });
    }

    /// Unsets the bits of these pages in those halves of a word that `halves` has a bit at the
    /// begin of.
    fn unset(&self, pages: Range<u64>, halves: u64) {
        let mut page = pages.start;
        while page < pages.end {
            let next = pages.end.min((page | CHUNK_LAST) + 1);
            if self.is_made(page) {
                self.each(page..next, |page, mask| {
                    let Some(word) = self.at(page) else { return };
                    let before = word.fetch_and(!(mask * halves), Ordering::Relaxed);
                    let went = held(before) & !held(before & !(mask * halves));
                    self.held.fetch_sub(went.count_ones().into(), Ordering::Relaxed);
                });
            }
            page = next;
        }
    }

    /// What the word of `page` says: of those written, and of those set aside.
    fn halves(&self, page: u64) -> (u64, u64) {
        let word = self.at(page).map_or(0, |word| word.load(Ordering::Relaxed));
        (word & PAGES, word >> HALF)
    }

    /// The word of `page`; None: no bit of its chunk was ever set.
    fn at(&self, page: u64) -> Option<&AtomicU64> {
        self.chunk(page)?.get()?.word(page)
    }

    /// The word of `page`, to set bits of it.
    #[inline]
    fn make(&self, page: u64) -> Option<&AtomicU64> {
        self.chunk(page)?.call_once(Box::default).word(page)
    }

    fn is_made(&self, page: u64) -> bool {
        self.chunk(page).is_some_and(Once::is_completed)
    }

    #[inline]
    fn chunk(&self, page: u64) -> Option<&Once<Box<Chunk>>> {
        self.chunks.get(usize::try_from(page >> (WORD_SHIFT + CHUNK_SHIFT)).ok()?)
    }

    /// Calls `change` with a page of each word, and the bits of the pages that lie in it.
    #[inline]
    fn each(&self, pages: Range<u64>, change: impl Fn(u64, u64)) {
        let Range { start: mut page, end } = pages;
        while page < end {
            let next = end.min((page | LAST) + 1);
            change(page, (PAGES << (page & LAST)) & (PAGES >> (LAST - ((next - 1) & LAST))));
            page = next;
        }
    }
}

impl Chunk {
    #[inline]
    fn word(&self, page: u64) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(page >> WORD_SHIFT).ok()? & (CHUNK_WORDS - 1))
    }
}

/// Bits of pages that were written or set aside, as one half.
#[inline]
const fn held(word: u64) -> u64 {
    (word | word >> HALF) & PAGES
}

/// The pages that have a byte of the range.
#[inline]
const fn touched(offset: u64, length: u64) -> Range<u64> {
    if length == 0 {
        return 0..0;
    }
    offset >> PAGE_SHIFT..((offset + length - 1) >> PAGE_SHIFT) + 1
}

/// The pages that lie in the range as a whole.
const fn whole(offset: u64, length: u64) -> Range<u64> {
    offset.div_ceil(1 << PAGE_SHIFT)..(offset + length) >> PAGE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_end_where_another_kind_begins() {
        let pages = Pages::new(1 << 30);
        let run = |offset, length| {
            let run = pages.run(offset, length);
            (run.space, run.length)
        };
        assert_eq!(run(0, 1 << 30), (Space::Deallocated, 1 << 30));
        pages.write(4096 * 70 + 5, 1);
        assert_eq!(run(512, 1 << 30), (Space::Deallocated, 4096 * 70 - 512));
        assert_eq!(run(4096 * 70 + 512, 1 << 30), (Space::Mapped, 4096 - 512));
        pages.clear(4096 * 70 + 512, 8192);
        assert_eq!(run(4096 * 70, 512).0, Space::Mapped, "only in part");
        pages.anchor(4096 * 70 + 512, 4096 * 100);
        assert_eq!(run(4096 * 70, 8192), (Space::Mapped, 4096));
        assert_eq!(run(4096 * 71, 1 << 20), (Space::Anchored, 4096 * 100));
        pages.clear(4096 * 69, 4096 * 102);
        assert_eq!(run(0, 1 << 30), (Space::Deallocated, 1 << 30));
    }

    /// Whoever writes and discards the same pages at once: the count is none but that of the bits.
    #[test]
    fn what_is_held_is_counted_beside_other_changes() {
        let pages = Pages::new(64 << 20);
        std::thread::scope(|scope| {
            for who in 0..4_u64 {
                let pages = &pages;
                scope.spawn(move || {
                    for turn in 0..20_000_u64 {
                        let at = (turn * 7 + who * 13) % 96 * 4096;
                        match (turn + who) % 3 {
                            0 => pages.write(at, 4096 * 5),
                            1 => pages.anchor(at, 4096 * 3),
                            _ => pages.clear(at, 4096 * 4),
                        }
                    }
                });
            }
        });
        let is_held = |page: &u64| pages.run(page * 4096, 4096).space != Space::Deallocated;
        let held = (0..(64 << 20 >> 12)).filter(is_held).count() as u64;
        assert_eq!(pages.bytes(), Some(held * 4096));
        pages.clear(0, 64 << 20);
        assert_eq!(pages.bytes(), Some(0));
    }

    /// Terabytes are told of at once: a status asks for it each time.
    #[test]
    fn what_is_held_of_terabytes_is_no_walk() {
        let pages = Pages::new(64 << 30);
        pages.write(5 << 30, 1 << 20);
        let begun = std::time::Instant::now();
        for _ in 0..1000 {
            assert_eq!(pages.bytes(), Some(1 << 20));
        }
        // A walk takes milliseconds, a thousand of them seconds.
        assert!(begun.elapsed() < std::time::Duration::from_millis(500));
    }

    /// Terabytes that nobody has written to take next to nothing, and no time.
    #[test]
    fn bits_come_with_what_is_written() {
        let begun = std::time::Instant::now();
        let pages = Pages::new(4 << 40);
        let made = || pages.chunks.iter().filter(|chunk| chunk.is_completed()).count();
        assert_eq!(pages.run(0, 4 << 40).length, 4 << 40);
        pages.clear(0, 4 << 40);
        assert_eq!(made(), 0);
        pages.write((3 << 40) - 1, 2);
        assert_eq!(made(), 2);
        assert_eq!(pages.bytes(), Some(8192));
        let run = pages.run(4096, 4 << 40);
        assert_eq!((run.space, run.length), (Space::Deallocated, (3 << 40) - 8192));
        pages.clear(0, 4 << 40);
        assert_eq!((pages.bytes(), made()), (Some(0), 2));
        assert!(begun.elapsed() < std::time::Duration::from_secs(30));
    }

    proptest! {
        #[test]
        fn as_a_table_of_truth_has_it(
            steps in proptest::collection::vec((0..3_u8, 0_u64..1200, 0_u64..400), 0..20),
            at in 0_u64..1200,
        ) {
            let pages = Pages::new(1600 * 512);
            let mut model = [Space::Deallocated; 200];
            for (step, offset, length) in steps {
                let (offset, length) = (offset * 512, length * 512);
                match step {
                    0 => pages.write(offset, length),
                    1 => pages.anchor(offset, length),
                    _ => pages.clear(offset, length),
                }
                for (page, state) in (0_u64..).zip(model.iter_mut()) {
                    let (start, end) = (page * 4096, page * 4096 + 4096);
                    let touched = length > 0 && start < offset + length && end > offset;
                    let whole = start >= offset && end <= offset + length;
                    match step {
                        0 if touched => *state = Space::Mapped,
                        1 if whole => *state = Space::Anchored,
                        1 if touched && *state == Space::Deallocated => *state = Space::Anchored,
                        2 if whole => *state = Space::Deallocated,
                        _ => {}
                    }
                }
            }
            let held = model.iter().filter(|space| **space != Space::Deallocated).count() as u64;
            prop_assert_eq!(pages.bytes(), Some(held * 4096));
            let run = pages.run(at * 512, 400 * 512);
            let index = |byte: u64| usize::try_from(byte / 4096).expect("small");
            prop_assert_eq!(run.space, model[index(at * 512)]);
            let last = at * 512 + run.length - 1;
            prop_assert!(model[index(at * 512)..=index(last)].iter().all(|m| *m == run.space));
            if run.length < 400 * 512 {
                prop_assert!(model[index(last + 1)] != run.space);
            }
        }
    }
}
