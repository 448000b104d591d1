// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is under way at the disk, and what must wait for it. No I/O.
//!
//! A write that begins or ends within a block reads that block, and writes it back whole: what
//! another write put into it in between would be gone. So it is alone in its blocks, and writes
//! that meet there are carried out in the order in which they came.

use std::collections::VecDeque;
use std::ops::Range;

use slab::Slab;

/// Something under way, or to be, with what its owner knows of it.
#[derive(Debug)]
pub(crate) struct Job<T> {
    /// Bytes that it changes, in whole blocks.
    pub(crate) blocks: Range<u64>,
    /// Nothing else may change these meanwhile.
    pub(crate) alone: bool,
    pub(crate) what: T,
}

impl<T> Job<T> {
    fn meets(&self, other: &Self) -> bool {
        let overlap = self.blocks.start < other.blocks.end && other.blocks.start < self.blocks.end;
        (self.alone || other.alone) && overlap
    }
}

/// Jobs under way, by number, and those that wait for them.
#[derive(Debug)]
pub(crate) struct Jobs<T> {
    under_way: Slab<Job<T>>,
    waiting: VecDeque<Job<T>>,
    /// Of both kinds, those that are alone: as long as there are none nobody waits.
    alone: usize,
}

impl<T> Default for Jobs<T> {
    fn default() -> Self {
        Self { under_way: Slab::new(), waiting: VecDeque::new(), alone: 0 }
    }
}

impl<T> Jobs<T> {
    /// Begins a job and gives its number; None: it waits for others, and comes out of
    /// [`next`](Self::next).
    pub(crate) fn begin(&mut self, job: Job<T>) -> Option<usize> {
        self.alone += usize::from(job.alone);
        if self.alone > 0 && (self.is_hindered(&job) || self.waiting.iter().any(|w| w.meets(&job)))
        {
            self.waiting.push_back(job);
            return None;
        }
        Some(self.under_way.insert(job))
    }

    /// A job that waited and may begin: it is under way now. Called until there is none whenever
    /// one has ended.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let free = (0..self.waiting.len()).find(|&index| {
            let Some(job) = self.waiting.get(index) else { return false };
            !self.is_hindered(job) && !self.waiting.range(..index).any(|w| w.meets(job))
        })?;
        let job = self.waiting.remove(free)?;
        Some(self.under_way.insert(job))
    }

    fn is_hindered(&self, job: &Job<T>) -> bool {
        self.under_way.iter().any(|(_, other)| other.meets(job))
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.under_way.get_mut(number).map(|job| &mut job.what)
    }

    /// All that is under way.
    pub(crate) fn under_way(&mut self) -> impl Iterator<Item = &mut T> {
        self.under_way.iter_mut().map(|(_, job)| &mut job.what)
    }

    pub(crate) fn end(&mut self, number: usize) -> Option<T> {
        let job = self.under_way.try_remove(number)?;
        self.alone -= usize::from(job.alone);
        Some(job.what)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(blocks: Range<u64>, alone: bool, what: u32) -> Job<u32> {
        Job { blocks, alone, what }
    }

    #[test]
    fn writes_of_whole_blocks_wait_for_nobody() {
        let mut jobs = Jobs::default();
        assert!(jobs.begin(job(0..8, false, 1)).is_some());
        assert!(jobs.begin(job(0..8, false, 2)).is_some());
        assert!(jobs.next().is_none() && !jobs.is_empty());
    }

    #[test]
    fn who_is_alone_waits_for_others_and_they_for_it() {
        let mut jobs = Jobs::default();
        let first = jobs.begin(job(0..8, false, 1)).expect("nobody else");
        assert!(jobs.begin(job(4..6, true, 2)).is_none(), "1 is there");
        assert!(jobs.begin(job(0..5, false, 3)).is_none(), "2 came before");
        let aside = jobs.begin(job(8..9, true, 4)).expect("meets nobody");
        assert!(jobs.next().is_none());
        assert_eq!(jobs.end(first), Some(1));
        let second = jobs.next().expect("2 may begin");
        assert_eq!(jobs.get_mut(second), Some(&mut 2));
        assert!(jobs.next().is_none(), "3 waits for 2");
        assert_eq!((jobs.end(second), jobs.end(aside)), (Some(2), Some(4)));
        let third = jobs.next().expect("3 may begin");
        assert_eq!(jobs.end(third), Some(3));
        assert!(jobs.is_empty() && jobs.end(third).is_none());
        assert!(jobs.begin(job(0..8, false, 5)).is_some() && jobs.alone == 0);
    }
}
