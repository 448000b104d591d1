// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which pages of a memory store hold something: one bit a page.
//!
//! The kernel knows too, but only for pages that are not swapped out. A page that is written and
//! discarded at the same time may be left with either answer, as it is left with either content.

use crate::Run;
use crate::limits::TRACKED_MAX;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

/// Bytes of a page, as a shift.
const PAGE_SHIFT: u32 = 12;
/// Pages of a word, as a shift.
const WORD_SHIFT: u32 = 6;
/// Words of a chunk, as a shift: a chunk of 4 KiB stands for 128 MiB.
const CHUNK_SHIFT: u32 = 9;
const CHUNK_WORDS: usize = 1 << CHUNK_SHIFT;

/// One bit for each page, none in a store that is too large to keep them.
#[derive(Debug)]
pub(super) struct Pages {
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
        let chunks = bytes.div_ceil(1 << (PAGE_SHIFT + WORD_SHIFT + CHUNK_SHIFT));
        let chunks = if bytes > TRACKED_MAX { 0 } else { usize::try_from(chunks).unwrap_or(0) };
        Self { chunks: (0..chunks).map(|_| Chunk::default()).collect::<Vec<_>>().into() }
    }

    /// Every page that has a byte of the range holds something.
    #[inline]
    pub(super) fn set(&self, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let first = offset >> PAGE_SHIFT;
        let end = ((offset + length - 1) >> PAGE_SHIFT) + 1;
        self.each(first, end, |word, mask| {
            // Mostly set already: then no cache line is taken from another CPU.
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        });
    }

    /// Pages that lie in the range as a whole hold nothing.
    pub(super) fn clear(&self, offset: u64, length: u64) {
        let first = offset.div_ceil(1 << PAGE_SHIFT);
        let end = (offset + length) >> PAGE_SHIFT;
        self.each(first, end, |word, mask| {
            word.fetch_and(!mask, Ordering::Relaxed);
        });
    }

    /// What holds for the page of `offset`, and how far.
    pub(super) fn run(&self, offset: u64, length: u64) -> Run {
        if self.chunks.is_empty() {
            return Run { allocated: true, length };
        }
        let first = offset >> PAGE_SHIFT;
        let end = (offset.saturating_add(length)).div_ceil(1 << PAGE_SHIFT);
        let allocated = self.word(first) >> (first & 63) & 1 == 1;
        let mut page = first;
        while page < end {
            let word = self.word(page);
            let other = if allocated { !word } else { word } & (u64::MAX << (page & 63));
            if other != 0 {
                page = (page & !63) + u64::from(other.trailing_zeros());
                break;
            }
            page = (page | 63) + 1;
        }
        Run { allocated, length: (page << PAGE_SHIFT).saturating_sub(offset).min(length) }
    }

    /// Bytes of all pages that hold something; None if nobody counts.
    pub(super) fn bytes(&self) -> Option<u64> {
        if self.chunks.is_empty() {
            return None;
        }
        let words = self.chunks.iter().flat_map(|chunk| &chunk.0);
        let pages: u64 =
            words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum();
        Some(pages << PAGE_SHIFT)
    }

    fn word(&self, page: u64) -> u64 {
        self.at(page).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn at(&self, page: u64) -> Option<&AtomicU64> {
        let word = usize::try_from(page >> WORD_SHIFT).ok()?;
        self.chunks.get(word >> CHUNK_SHIFT)?.0.get(word & (CHUNK_WORDS - 1))
    }

    #[inline]
    fn each(&self, first: u64, end: u64, change: impl Fn(&AtomicU64, u64)) {
        let mut page = first;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_end_where_the_other_kind_begins() {
        let pages = Pages::new(1 << 30);
        let run = |offset, length| {
            let run = pages.run(offset, length);
            (run.allocated, run.length)
        };
        assert_eq!(run(0, 1 << 30), (false, 1 << 30));
        pages.set(4096 * 70 + 5, 1);
        assert_eq!(run(512, 1 << 30), (false, 4096 * 70 - 512));
        assert_eq!(run(4096 * 70 + 512, 1 << 30), (true, 4096 - 512));
        pages.clear(4096 * 70 + 512, 8192);
        assert!(run(4096 * 70, 512).0, "only in part");
        pages.clear(4096 * 69, 8192);
        assert_eq!(run(0, 1 << 30), (false, 1 << 30));
    }

    proptest! {
        #[test]
        fn as_a_table_of_truth_has_it(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..1200, 0_u64..400), 0..20),
            at in 0_u64..1200,
        ) {
            let pages = Pages::new(1600 * 512);
            let mut model = [false; 200];
            for (set, offset, length) in steps {
                let (offset, length) = (offset * 512, length * 512);
                if set { pages.set(offset, length) } else { pages.clear(offset, length) }
                for (page, state) in (0_u64..).zip(model.iter_mut()) {
                    let (start, end) = (page * 4096, page * 4096 + 4096);
                    let touched = length > 0 && start < offset + length && end > offset;
                    let whole = start >= offset && end <= offset + length;
                    if set && touched { *state = true } else if !set && whole { *state = false }
                }
            }
            let held = model.iter().filter(|held| **held).count() as u64;
            prop_assert_eq!(pages.bytes(), Some(held * 4096));
            let run = pages.run(at * 512, 400 * 512);
            let index = |byte: u64| usize::try_from(byte / 4096).expect("small");
            prop_assert_eq!(run.allocated, model[index(at * 512)]);
            let last = at * 512 + run.length - 1;
            prop_assert!(model[index(at * 512)..=index(last)].iter().all(|m| *m == run.allocated));
            if run.length < 400 * 512 {
                prop_assert!(model[index(last + 1)] != run.allocated);
            }
        }
    }
}
