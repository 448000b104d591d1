// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the data of an answer is cut into Data-In PDUs, so that each can be named by its DataSN
//! (RFC 7143 §11.7.5, §11.16.6).

use crate::target_role::limits;
use core::ops::Range;
use wire::iscsi::Ttt;

/// One burst of Data-In PDUs, or several where they are many, or the front of such.
#[derive(Clone, Copy, Debug)]
pub(in crate::target_role) struct Run {
    /// DataSN of the first PDU.
    pub(in crate::target_role) first: u32,
    pub(in crate::target_role) offset: u32,
    pub(in crate::target_role) length: u32,
    /// Bytes of each PDU but the last.
    pub(in crate::target_role) segment: u32,
    /// Where a burst began, and bytes of each burst from there on: a PDU that ends one has F.
    pub(in crate::target_role) burst_at: u32,
    pub(in crate::target_role) burst: u32,
    /// The last PDU has F in any case.
    pub(in crate::target_role) ends: bool,
    /// The last PDU has A and this tag.
    pub(in crate::target_role) tag: Option<Ttt>,
}

impl Run {
    pub(in crate::target_role) fn next(&self) -> u32 {
        self.first + self.length.div_ceil(self.segment)
    }

    pub(in crate::target_role) fn end(&self) -> u32 {
        self.offset + self.length
    }

    /// The PDUs of `wanted` that are in this run.
    pub(in crate::target_role) fn part(&self, wanted: &Range<u32>) -> Option<Self> {
        let (from, to) = (wanted.start.max(self.first), wanted.end.min(self.next()));
        if from >= to {
            return None;
        }
        let offset = self.offset + (from - self.first) * self.segment;
        let is_last = to == self.next();
        let end = if is_last { self.end() } else { self.offset + (to - self.first) * self.segment };
        Some(Self {
            first: from,
            offset,
            length: end - offset,
            ends: self.ends && is_last,
            tag: self.tag.filter(|_| is_last),
            ..*self
        })
    }
}

/// How the data of an answer is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::target_role) struct Cut {
    pub(in crate::target_role) segment: u32,
    pub(in crate::target_role) burst: u32,
    pub(in crate::target_role) run: u32,
}

impl Cut {
    /// For `left` bytes. Each burst is a run, unless they are so many that an initiator could buy
    /// much memory by a small MaxBurstLength: then a run has several, all of whole segments, so
    /// that its PDUs can still be told apart by their numbers.
    pub(in crate::target_role) fn new(left: u32, segment: u32, burst: u32) -> Self {
        if left.div_ceil(burst) <= limits::ANSWER_RUNS_MAX {
            return Self { segment, burst, run: burst };
        }
        let segment = segment.min(burst);
        let burst = burst - burst % segment;
        let bursts = left.div_ceil(burst).div_ceil(limits::ANSWER_RUNS_MAX);
        Self { segment, burst, run: burst.saturating_mul(bursts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bursts_are_a_run_each() {
        let cut = Cut::new(1 << 20, 8192, 262_144);
        assert_eq!(cut, Cut { segment: 8192, burst: 262_144, run: 262_144 });
        let cut = Cut::new(64 * 1000, 300, 1000);
        assert_eq!(cut, Cut { segment: 300, burst: 1000, run: 1000 });
    }

    #[test]
    fn many_bursts_share_runs_and_have_whole_segments() {
        for left in [64_001, 1 << 20, 4 << 20, u32::MAX] {
            for (segment, burst) in [(300, 1000), (8192, 512), (512, 512), (999, 1000)] {
                let cut = Cut::new(left, segment, burst);
                assert!(cut.segment <= segment && (1..=burst).contains(&cut.burst));
                assert!(cut.burst.is_multiple_of(cut.segment));
                assert!(cut.run.is_multiple_of(cut.burst));
                assert!(left.div_ceil(cut.run) <= limits::ANSWER_RUNS_MAX);
            }
        }
    }
}
