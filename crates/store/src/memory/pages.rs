// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which pages of a memory store hold something, and which are set aside: two bits a page.
//!
//! The kernel knows too, but only for pages that are not swapped out. A page that is written and
//! discarded or set aside at the same time may be left with either answer, as it is left with
//! either content.

use crate::limits::TRACKED_MAX;
use crate::{Run, Space};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

/// Bytes of a page, as a shift.
const PAGE_SHIFT: u32 = 12;
/// Pages of a word, as a shift.
const WORD_SHIFT: u32 = 6;
/// Words of a chunk, as a shift: a chunk of 4 KiB stands for 128 MiB.
const CHUNK_SHIFT: u32 = 9;
const CHUNK_WORDS: usize = 1 << CHUNK_SHIFT;

/// Two bits for each page, none in a store that is too large to keep them.
///
/// A page that was written is mapped, whether it was set aside before or not: so a write looks at
/// one bit, as if there were no other.
#[derive(Debug)]
pub(super) struct Pages {
    /// Pages that were written since they were discarded or set aside last.
    written: Bits,
    /// Pages that were set aside since they were discarded last.
    anchored: Bits,
}

/// One bit for each page.
#[derive(Debug)]
struct Bits {
    chunks: Box<[Chunk]>,
}

#[derive(Debug)]
struct Chunk([AtomicU64; CHUNK_WORDS]);

impl Default for Chunk {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; CHUNK_WORDS])
    }
}

impl Pages {
    pub(super) fn new(bytes: u64) -> Self {
        Self { written: Bits::new(bytes), anchored: Bits::new(bytes) }
    }

    /// False in a store that is too large.
    pub(super) fn are_known(&self) -> bool {
        !self.written.chunks.is_empty()
    }

    /// Every page that has a byte of the range holds something.
    #[inline]
    pub(super) fn write(&self, offset: u64, length: u64) {
        self.written.set(touched(offset, length));
    }

    /// Every page that has a byte of the range is set aside; those that lie in it as a whole hold
    /// nothing.
    pub(super) fn anchor(&self, offset: u64, length: u64) {
        self.anchored.set(touched(offset, length));
        self.written.clear(whole(offset, length));
    }

    /// Pages that lie in the range as a whole are neither.
    pub(super) fn clear(&self, offset: u64, length: u64) {
        self.written.clear(whole(offset, length));
        self.anchored.clear(whole(offset, length));
    }

    /// What holds for the page of `offset`, and how far.
    pub(super) fn run(&self, offset: u64, length: u64) -> Run {
        if !self.are_known() {
            return Run { space: Space::Mapped, length };
        }
        let first = offset >> PAGE_SHIFT;
        let end = (offset.saturating_add(length)).div_ceil(1 << PAGE_SHIFT);
        let bit = |word: u64| word >> (first & 63) & 1 == 1;
        let space = match (bit(self.written.word(first)), bit(self.anchored.word(first))) {
            (true, _) => Space::Mapped,
            (false, true) => Space::Anchored,
            (false, false) => Space::Deallocated,
        };
        let mut page = first;
        while page < end {
            let (written, anchored) = (self.written.word(page), self.anchored.word(page));
            let others = match space {
                Space::Mapped => !written,
                Space::Anchored => written | !anchored,
                Space::Deallocated => written | anchored,
            };
            let others = others & (u64::MAX << (page & 63));
            if others != 0 {
                page = (page & !63) + u64::from(others.trailing_zeros());
                break;
            }
            page = (page | 63) + 1;
        }
        Run { space, length: (page << PAGE_SHIFT).saturating_sub(offset).min(length) }
    }

    /// Bytes of all pages that hold something or are set aside; None if nobody counts.
    pub(super) fn bytes(&self) -> Option<u64> {
        if !self.are_known() {
            return None;
        }
        let words = self.written.words().zip(self.anchored.words());
        let pages: u64 =
            words.map(|(written, anchored)| u64::from((written | anchored).count_ones())).sum();
        Some(pages << PAGE_SHIFT)
    }
}

impl Bits {
    fn new(bytes: u64) -> Self {
        let chunks = bytes.div_ceil(1 << (PAGE_SHIFT + WORD_SHIFT + CHUNK_SHIFT));
        let chunks = if bytes > TRACKED_MAX { 0 } else { usize::try_from(chunks).unwrap_or(0) };
        Self { chunks: (0..chunks).map(|_| Chunk::default()).collect::<Vec<_>>().into() }
    }

    #[inline]
    fn set(&self, pages: Range<u64>) {
        self.each(pages, |word, mask| {
            // Mostly set already: then no cache line is taken from another CPU.
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        });
    }

    fn clear(&self, pages: Range<u64>) {
        self.each(pages, |word, mask| {
            word.fetch_and(!mask, Ordering::Relaxed);
        });
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().flat_map(|chunk| &chunk.0).map(|word| word.load(Ordering::Relaxed))
    }

    fn word(&self, page: u64) -> u64 {
        self.at(page).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn at(&self, page: u64) -> Option<&AtomicU64> {
        let word = usize::try_from(page >> WORD_SHIFT).ok()?;
        self.chunks.get(word >> CHUNK_SHIFT)?.0.get(word & (CHUNK_WORDS - 1))
    }

    #[inline]
    fn each(&self, pages: Range<u64>, change: impl Fn(&AtomicU64, u64)) {
        let Range { start: mut page, end } = pages;
        while page < end {
            let next = end.min((page | 63) + 1);
            let mask = (u64::MAX << (page & 63)) & (u64::MAX >> (63 - ((next - 1) & 63)));
            if let Some(word) = self.at(page) {
                change(word, mask);
            }
            page = next;
        }
    }
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
