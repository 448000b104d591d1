// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which bytes of a buffer a peer has written: what it has not is of who had the buffer before.

use alloc::vec::Vec;
use core::ops::Range;

use crate::limits::GAPS_MAX;

/// The bytes that have come, in whatever order, and however often.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// Those from the first one on, without a gap.
    whole: usize,
    /// Those behind a gap, ascending; none touches another.
    behind: Vec<Range<usize>>,
}

impl Filled {
    /// Takes bytes that have come. Those behind more gaps than are kept count as if they had not.
    pub(crate) fn note(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if range.start <= self.whole {
            self.whole = self.whole.max(range.end);
            while let Some(next) = self.behind.first().filter(|next| next.start <= self.whole) {
                self.whole = self.whole.max(next.end);
                self.behind.remove(0);
            }
            return;
        }
        let at = self.behind.partition_point(|before| before.end < range.start);
        let mut joined = range;
        while let Some(next) = self.behind.get(at).filter(|next| next.start <= joined.end) {
            joined = joined.start.min(next.start)..joined.end.max(next.end);
            self.behind.remove(at);
        }
        if self.behind.len() < GAPS_MAX {
            self.behind.insert(at, joined);
        }
    }

    /// Bytes from the first one on that have come, without a gap.
    pub(crate) const fn whole(&self) -> usize {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_few() {
        let mut filled = Filled::default();
        for at in 1..=GAPS_MAX + 1 {
            filled.note(2 * at..2 * at + 1);
        }
        assert_eq!(filled.behind.len(), GAPS_MAX);
        // What joins others needs no room.
        filled.note(3..4);
        assert_eq!(filled.behind.len(), GAPS_MAX - 1);
        filled.note(0..2 * GAPS_MAX);
        assert_eq!((filled.whole(), filled.behind.len()), (2 * GAPS_MAX + 1, 0));
    }

    proptest! {
        #[test]
        fn bytes_have_come_or_not(
            ranges in proptest::collection::vec((0..40_usize, 0..12_usize), 0..20),
        ) {
            let (mut filled, mut model) = (Filled::default(), vec![false; 60]);
            for (start, length) in ranges {
                filled.note(start..start + length);
                model[start..start + length].fill(true);
                let whole = model.iter().take_while(|has_come| **has_come).count();
                prop_assert_eq!(filled.whole(), whole);
            }
        }
    }
}
