// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps commands apart that touch the same blocks of a protected unit: a block and what stands
//! beside it are read and written in two steps, which must belong together.
//!
//! Who comes waits for everybody who came before and is in the way, so that nobody waits for ever.
//! A command holds one range at a time, so that none waits for another in a ring.

use crate::lun::Extent;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The ranges of one unit that commands hold, or wait for.
#[derive(Debug, Default)]
pub(crate) struct Ranges(spin::Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    /// In the order in which they came.
    wishes: Vec<Wish>,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    number: u64,
    start: u64,
    end: u64,
    sharing: Sharing,
}

/// Who else may touch the same blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Who reads too.
    Reads,
    /// Nobody.
    Nobody,
}

/// A place in the queue, which is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    ranges: Arc<Ranges>,
    number: u64,
}

impl Ranges {
    /// Queues up for `extent`; it is held once [`Held::is_granted`] says so.
    pub(crate) fn queue(self: &Arc<Self>, extent: Extent, sharing: Sharing) -> Held {
        let mut queue = self.0.lock();
        let number = queue.next;
        queue.next += 1;
        let (start, end) = (extent.offset, extent.offset.saturating_add(extent.length));
        queue.wishes.push(Wish { number, start, end, sharing });
        Held { ranges: Arc::clone(self), number }
    }
}

impl Wish {
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let apart = self.end <= other.start || other.end <= self.start;
        !apart && (self.sharing == Sharing::Nobody || other.sharing == Sharing::Nobody)
    }
}

impl Held {
    /// True once nobody who came before is in the way.
    pub(crate) fn is_granted(&self) -> bool {
        let queue = self.ranges.0.lock();
        let mut before = queue.wishes.iter().take_while(|wish| wish.number != self.number);
        let own = queue.wishes.iter().find(|wish| wish.number == self.number);
        own.is_some_and(|own| !before.any(|wish| wish.is_in_the_way_of(own)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ranges.0.lock().wishes.retain(|wish| wish.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges() -> Arc<Ranges> {
        Arc::new(Ranges::default())
    }

    const fn extent(offset: u64, length: u64) -> Extent {
        Extent { offset, length }
    }

    #[test]
    fn writers_keep_everybody_out_of_their_blocks() {
        let ranges = ranges();
        let writer = ranges.queue(extent(512, 1024), Sharing::Nobody);
        assert!(writer.is_granted());
        for (offset, length, free) in [(0, 512, true), (1536, 9, true), (0, 513, false)] {
            let reader = ranges.queue(extent(offset, length), Sharing::Reads);
            assert_eq!(reader.is_granted(), free, "{offset}");
        }
        let late = ranges.queue(extent(600, 1), Sharing::Reads);
        drop(writer);
        assert!(late.is_granted());
    }

    #[test]
    fn readers_share_and_do_not_overtake_a_writer_that_waits() {
        let ranges = ranges();
        let first = ranges.queue(extent(0, 512), Sharing::Reads);
        let second = ranges.queue(extent(0, 512), Sharing::Reads);
        let writer = ranges.queue(extent(0, 512), Sharing::Nobody);
        let late = ranges.queue(extent(0, 512), Sharing::Reads);
        let granted = [&first, &second, &writer, &late].map(Held::is_granted);
        assert_eq!(granted, [true, true, false, false]);
        drop((first, second));
        assert_eq!([&writer, &late].map(Held::is_granted), [true, false]);
        drop(writer);
        assert!(late.is_granted() && ranges.0.lock().wishes.len() == 1);
    }
}
