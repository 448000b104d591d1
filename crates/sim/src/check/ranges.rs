// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that comes in any order: each byte once, none elsewhere.

use std::collections::BTreeMap;

use super::Judgement;
use super::demand;

/// Ranges that do not meet, by their first byte: where each ends.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    /// `length` bytes from `offset` on came, which must lie within `bounds` and be new.
    pub(super) fn insert(&mut self, offset: u32, length: u32, bounds: (u32, u32)) -> Judgement {
        if length == 0 {
            return Ok(());
        }
        let end = offset.saturating_add(length);
        let (low, high) = bounds;
        demand(low <= offset && end <= high, || format!("the offset is not of {low}..{high}"))?;
        let before = self.0.range(..end).next_back().map(|(_, before)| *before);
        let fresh = before.is_none_or(|before| before <= offset);
        demand(fresh, || format!("bytes from {offset} on come twice"))?;
        self.0.insert(offset, end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_comes_once_and_within_bounds() {
        let mut ranges = Ranges::default();
        let bounds = (10, 50);
        assert!(ranges.insert(30, 10, bounds).is_ok());
        assert!(ranges.insert(10, 20, bounds).is_ok());
        assert!(ranges.insert(25, 0, bounds).is_ok(), "nothing is nowhere");
        for (offset, length) in [(29, 1), (39, 2), (40, 11), (9, 1), (20, 25)] {
            assert!(ranges.insert(offset, length, bounds).is_err(), "{length} from {offset}");
        }
        assert!(ranges.insert(40, 10, bounds).is_ok());
    }
}
