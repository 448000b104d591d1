// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which bytes of a burst have come, where PDUs need not come in order (RFC 7143 §13.18).
//!
//! Only bursts whose PDUs did come out of order have such lists; while all is in order, one number
//! is enough.

use alloc::vec::Vec;

use crate::limits::{COVERAGE_KEEP, COVERAGE_RANGES_MAX};

/// Ranges of offsets, half open, ascending; none touches another.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    ranges: Vec<(u32, u32)>,
}

/// Why a range cannot be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Some of its bytes came before.
    Overlap,
    /// There would be more than [`COVERAGE_RANGES_MAX`] ranges.
    Scattered,
}

impl Coverage {
    /// Enters the bytes from `start` up to `end`; nothing is changed if that is refused.
    pub(super) fn insert(&mut self, start: u32, end: u32) -> Result<(), Refusal> {
        if start >= end {
            return Ok(());
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let joins_left = self.ranges.get(first).is_some_and(|range| range.1 == start);
        let next = first + usize::from(joins_left);
        let right = self.ranges.get(next).copied();
        if right.is_some_and(|range| range.0 < end) {
            return Err(Refusal::Overlap);
        }
        let joins_right = right.is_some_and(|range| range.0 == end);
        match (joins_left, joins_right) {
            (true, true) => {
                let (_, far) = self.ranges.remove(next);
                self.set_end(first, far);
            }
            (true, false) => self.set_end(first, end),
            (false, true) => {
                if let Some(range) = self.ranges.get_mut(next) {
                    range.0 = start;
                }
            }
            (false, false) if self.ranges.len() >= COVERAGE_RANGES_MAX => {
                return Err(Refusal::Scattered);
            }
            (false, false) => self.ranges.insert(next, (start, end)),
        }
        Ok(())
    }

    /// Takes the bytes from `start` up to `end` out again, as far as they were entered; they count
    /// as one range more at most, so this is never refused.
    pub(super) fn remove(&mut self, start: u32, end: u32) {
        let place = self.ranges.partition_point(|range| range.1 <= start);
        let Some(range) = self.ranges.get(place).copied() else { return };
        if range.0 >= end {
            return;
        }
        debug_assert!(range.0 <= start && end <= range.1, "what was entered at once lies together");
        let parts = [(range.0, start), (end, range.1)];
        let parts = parts.into_iter().filter(|part| part.0 < part.1);
        self.ranges.splice(place..=place, parts);
    }

    /// How many bytes there are from offset 0 on without a gap.
    pub(super) fn prefix(&self) -> u32 {
        self.ranges.first().filter(|range| range.0 == 0).map_or(0, |range| range.1)
    }

    /// Whether there are bytes behind a gap.
    pub(super) fn has_gap(&self) -> bool {
        self.ranges.last().is_some_and(|range| range.1 > self.prefix())
    }

    /// Forgets all; the memory of an odd burst goes back.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.ranges.shrink_to(COVERAGE_KEEP);
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        // What is taken out of a range may split one that was the last allowed.
        assert!(self.ranges.len() <= COVERAGE_RANGES_MAX + 1, "bounded");
        assert!(self.ranges.iter().all(|range| range.0 < range.1), "no empty range");
        assert!(self.ranges.is_sorted_by(|left, right| left.1 < right.0), "apart, ascending");
    }

    fn set_end(&mut self, at: usize, end: u32) {
        if let Some(range) = self.ranges.get_mut(at) {
            range.1 = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_grow_together() {
        let mut coverage = Coverage::default();
        for (start, end) in [(8, 12), (0, 4), (20, 24), (4, 8), (16, 20), (12, 16)] {
            assert_eq!(coverage.insert(start, end), Ok(()));
            coverage.check();
        }
        assert_eq!(coverage.ranges, [(0, 24)]);
        assert_eq!(coverage.insert(24, 24), Ok(()), "nothing is no overlap");
        coverage.clear();
        assert_eq!(coverage.insert(3, 5), Ok(()));
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let mut coverage = Coverage::default();
        let last = u32::try_from(COVERAGE_RANGES_MAX).unwrap();
        for place in 0..last {
            assert_eq!(coverage.insert(place * 2, place * 2 + 1), Ok(()));
        }
        assert_eq!(coverage.insert(last * 2, last * 2 + 1), Err(Refusal::Scattered));
        assert_eq!(coverage.insert(1, 2), Ok(()), "what closes a gap always fits");
        coverage.check();
        coverage.clear();
        assert!(coverage.ranges.capacity() <= COVERAGE_KEEP);
    }

    #[test]
    fn what_is_taken_out_can_be_entered_again() {
        let mut coverage = Coverage::default();
        assert_eq!((coverage.prefix(), coverage.has_gap()), (0, false));
        assert_eq!(coverage.insert(0, 30), Ok(()));
        coverage.remove(10, 20);
        assert_eq!(coverage.ranges, [(0, 10), (20, 30)]);
        assert_eq!((coverage.prefix(), coverage.has_gap()), (10, true));
        coverage.remove(20, 30);
        assert_eq!((coverage.prefix(), coverage.has_gap()), (10, false));
        coverage.remove(0, 10);
        assert_eq!((coverage.prefix(), coverage.has_gap()), (0, false));
        coverage.remove(5, 8);
        assert_eq!(coverage.insert(4, 8), Ok(()));
        assert_eq!((coverage.prefix(), coverage.has_gap()), (0, true));
        coverage.check();
    }

    proptest! {
        /// Against one flag for each byte.
        #[test]
        fn as_one_flag_for_each_byte(
            ranges in prop::collection::vec((0_u32..200, 0_u32..20), 0..60),
        ) {
            let mut coverage = Coverage::default();
            let mut flags = [false; 256];
            for (start, length) in ranges {
                let bytes = &mut flags[start as usize..(start + length) as usize];
                let free = bytes.iter().all(|flag| !*flag);
                let told = coverage.insert(start, start + length);
                prop_assert_eq!(told, if free { Ok(()) } else { Err(Refusal::Overlap) });
                if free {
                    bytes.fill(true);
                }
                coverage.check();
            }
        }
    }
}
