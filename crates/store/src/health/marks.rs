// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of blocks of a file: one bit each, memory for those parts that were ever in it.

use crate::limits::{MARKS_GROWTH, MARKS_MAX};
use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;
use spin::Once;

/// Blocks of a word, as a shift.
const WORD_SHIFT: u32 = 6;
/// Words of a chunk: 4 KiB, which stand for 128 MiB in blocks of 4 KiB.
const CHUNK_WORDS: usize = 512;

/// A set of blocks, shared by all reactors. Bytes behind what it was made for are one more block.
#[derive(Debug)]
pub(super) struct Marks {
    /// Bytes of a block, as a shift.
    shift: u32,
    chunks: Box<[Once<Box<Chunk>>]>,
    beyond: AtomicBool,
}

#[derive(Debug)]
struct Chunk([AtomicU64; CHUNK_WORDS]);

impl Marks {
    /// None of the blocks of `1 << shift` bytes of a file of `bytes`.
    pub(super) fn new(bytes: u64, shift: u32) -> Self {
        let bytes = bytes.saturating_mul(MARKS_GROWTH).min(MARKS_MAX << shift);
        let chunk = (CHUNK_WORDS as u64) << (WORD_SHIFT + shift);
        let chunks = (0..bytes.div_ceil(chunk)).map(|_| Once::new()).collect();
        Self { shift, chunks, beyond: AtomicBool::new(false) }
    }

    /// Adds each block that has a byte of the range. As a rule they are there, and it costs a look
    /// at a word or two.
    #[inline]
    pub(super) fn add(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        for (index, bits) in words(offset >> self.shift..end.div_ceil(1 << self.shift)) {
            let Some(word) = self.word_or_new(index) else {
                return self.beyond.store(true, SeqCst);
            };
            if word.load(SeqCst) & bits != bits {
                word.fetch_or(bits, SeqCst);
            }
        }
    }

    /// Adds blocks that nobody knows.
    pub(super) fn add_unknown(&self) {
        self.beyond.store(true, SeqCst);
    }

    /// Takes out each block that lies in the range as a whole.
    pub(super) fn remove(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let blocks = offset.div_ceil(1 << self.shift)..end >> self.shift;
        for (index, bits) in words(blocks) {
            let Some(word) = self.word(index) else { continue };
            word.fetch_and(!bits, SeqCst);
        }
    }

    /// Moves all blocks to `to`.
    pub(super) fn move_to(&self, to: &Self) {
        self.each(|index, word| match word.swap(0, SeqCst) {
            0 => {}
            bits => to.join(index, bits),
        });
        if self.beyond.swap(false, SeqCst) {
            to.beyond.store(true, SeqCst);
        }
    }

    /// Adds all blocks to `to`, too.
    pub(super) fn copy_to(&self, to: &Self) {
        self.each(|index, word| match word.load(SeqCst) {
            0 => {}
            bits => to.join(index, bits),
        });
        if self.beyond.load(SeqCst) {
            to.beyond.store(true, SeqCst);
        }
    }

    pub(super) fn clear(&self) {
        self.each(|_, word| word.store(0, SeqCst));
        self.beyond.store(false, SeqCst);
    }

    pub(super) fn is_empty(&self) -> bool {
        let mut all = 0;
        self.each(|_, word| all |= word.load(SeqCst));
        all == 0 && !self.beyond.load(SeqCst)
    }

    fn join(&self, index: u64, bits: u64) {
        match self.word_or_new(index) {
            Some(word) => _ = word.fetch_or(bits, SeqCst),
            None => self.beyond.store(true, SeqCst),
        }
    }

    fn each(&self, mut what: impl FnMut(u64, &AtomicU64)) {
        for (number, chunk) in (0_u64..).zip(&self.chunks) {
            let Some(chunk) = chunk.get() else { continue };
            for (at, word) in (0_u64..).zip(&chunk.0) {
                what(number * CHUNK_WORDS as u64 + at, word);
            }
        }
    }

    #[inline]
    fn word(&self, index: u64) -> Option<&AtomicU64> {
        let index = usize::try_from(index).ok()?;
        self.chunks.get(index / CHUNK_WORDS)?.get()?.0.get(index % CHUNK_WORDS)
    }

    #[inline]
    fn word_or_new(&self, index: u64) -> Option<&AtomicU64> {
        let index = usize::try_from(index).ok()?;
        let chunk = self.chunks.get(index / CHUNK_WORDS)?;
        let new = || Box::new(Chunk([const { AtomicU64::new(0) }; CHUNK_WORDS]));
        chunk.call_once(new).0.get(index % CHUNK_WORDS)
    }
}

/// The words that have a block of the range, and its bits in them.
#[inline]
fn words(blocks: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let last = blocks.end.saturating_sub(1);
    let range = if blocks.is_empty() { 0..0 } else { blocks.start >> 6..(last >> 6) + 1 };
    range.map(move |index| {
        let from = if index == blocks.start >> 6 { blocks.start & 63 } else { 0 };
        let to = if index == last >> 6 { last & 63 } else { 63 };
        (index, (u64::MAX << from) & (u64::MAX >> (63 - to)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// As a set of blocks would be.
        #[test]
        fn marks_are_a_set(
            steps in proptest::collection::vec(
                (0_u64..3 << 20, 0_u64..1 << 20, any::<bool>()), 0..20,
            )
        ) {
            let (marks, other) = (Marks::new(4 << 20, 9), Marks::new(4 << 20, 9));
            let mut set = BTreeSet::new();
            for (offset, length, add) in steps {
                if add {
                    marks.add(offset, length);
                    set.extend(offset / 512..(offset + length).div_ceil(512).max(offset / 512));
                } else {
                    marks.remove(offset, length);
                    let gone = offset.div_ceil(512)..(offset + length) / 512;
                    set.retain(|block| !gone.contains(block));
                }
            }
            prop_assert_eq!(marks.is_empty(), set.is_empty());
            marks.move_to(&other);
            prop_assert!(marks.is_empty());
            for block in &set {
                other.remove(block * 512, 512);
            }
            prop_assert!(other.is_empty());
        }
    }

    #[test]
    fn what_lies_behind_is_never_forgotten_but_as_a_whole() {
        let marks = Marks::new(512, 9);
        marks.add(1 << 60, 512);
        marks.remove(1 << 60, 512);
        assert!(!marks.is_empty());
        marks.clear();
        assert!(marks.is_empty());
    }

    #[test]
    fn all_words_of_a_range() {
        let of = |range| words(range).collect::<Vec<_>>();
        assert_eq!(of(3..3), []);
        assert_eq!(of(3..5), [(0, 0b1_1000)]);
        assert_eq!(of(63..129), [(0, 1 << 63), (1, u64::MAX), (2, 1)]);
    }
}
