// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reassembly of a task whose data did not come in order: which numbers and which bytes are there,
//! and a status that waits for the rest.
//!
//! Read first: RFC 7143 §7.8, §7.9 (what is lost), §11.7.2 (DataACK), §11.16 (SNACK), §13.18 (data
//! out of order). A task has no such state while each PDU comes right behind the one before.

use alloc::vec::Vec;

use iscsi::initiator::datamover::Run;
use iscsi::initiator::datamover::Violation;
use wire::iscsi::LunField;
use wire::iscsi::ScsiResponse;
use wire::iscsi::Ttt;

use super::super::coverage::Coverage;
use crate::limits::MISSING_RUNS_MAX;

/// Data that was asked for by an R-Data SNACK (RFC 7143 §11.16.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// What the SCSI Response has to name.
    pub(super) tag: u32,
    /// The first DataSN.
    pub(super) first: u32,
    /// The first one has come. What comes before it was sent before the target knew.
    pub(super) begun: bool,
}

/// What is kept of a task whose PDUs did not come in order.
#[derive(Debug, Default)]
pub(super) struct ReassemblyState {
    coverage: Coverage,
    /// Numbers that have not come, below the next one: half open, ascending.
    missing: Vec<(u32, u32)>,
    /// All data that is not acknowledged comes once more, cut anew.
    pub(super) again: Option<Again>,
    /// What the PDU at hand showed to be missing.
    found: Option<(u32, u32)>,
    /// The status and its sense data, which came before all data was there.
    pub(super) held: Option<(ScsiResponse, Vec<u8>)>,
    /// A Data-In asked for an acknowledgement.
    pub(super) acknowledge: Option<(LunField, Ttt)>,
    /// What was acknowledged to the target last, where that had gaps.
    confirmed: Option<Coverage>,
}

impl ReassemblyState {
    /// For a task of which `received` bytes have come in order.
    pub(super) fn new(received: u32) -> Self {
        let mut coverage = Coverage::default();
        // A single range always fits.
        let _ = coverage.insert(0, received);
        Self { coverage, ..Self::default() }
    }

    /// The numbers from `from` up to `to` are missing.
    pub(super) fn miss(&mut self, from: u32, to: u32) -> Result<(), Violation> {
        debug_assert!(from < to, "something is missing");
        if self.missing.len() >= MISSING_RUNS_MAX {
            return Err(Violation::Sequence { got: to, expected: from });
        }
        let place = self.missing.partition_point(|run| run.0 < from);
        self.missing.insert(place, (from, to));
        // The runs of one PDU adjoin each other: a gap before it, and itself.
        self.found = match self.found {
            Some((first, end)) if end == from => Some((first, to)),
            _ => Some((from, to)),
        };
        Ok(())
    }

    /// `number` has come; false if it was not missing.
    pub(super) fn fill(&mut self, number: u32) -> bool {
        let place = self.missing.iter().position(|run| (run.0..run.1).contains(&number));
        let Some(place) = place else { return false };
        let run = self.missing.remove(place);
        for part in [(number + 1, run.1), (run.0, number)] {
            if part.0 < part.1 {
                self.missing.insert(place, part);
            }
        }
        true
    }

    /// Bytes have come.
    pub(super) fn cover(&mut self, start: u32, end: u32) -> Result<(), Violation> {
        let expected = self.coverage.prefix();
        self.coverage.insert(start, end).map_err(|_| Violation::Offset { offset: start, expected })
    }

    /// A PDU that had come is worth nothing.
    pub(super) fn uncover(&mut self, start: u32, end: u32) {
        self.coverage.remove(start, end);
    }

    /// Bytes from the first on without a gap.
    pub(super) fn received(&self) -> u32 {
        self.coverage.prefix()
    }

    /// What was found to be missing since the last call.
    pub(super) fn take_found(&mut self) -> Option<Run> {
        let (first, end) = self.found.take()?;
        Some(Run { first, count: end - first })
    }

    /// Whether this number is missing.
    pub(super) fn misses(&self, number: u32) -> bool {
        self.missing.iter().any(|run| (run.0..run.1).contains(&number))
    }

    /// Whether numbers are missing.
    pub(super) fn is_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Whether there are bytes behind a gap.
    pub(super) fn has_gap(&self) -> bool {
        self.coverage.has_gap()
    }

    /// Whether the next PDU may be dealt with as if there were no such state.
    pub(super) fn is_empty(&self) -> bool {
        self.missing.is_empty()
            && !self.has_gap()
            && self.held.is_none()
            && self.acknowledge.is_none()
            && self.confirmed.is_none()
            && self.again.is_none()
    }

    /// All numbers so far are acknowledged to the target.
    pub(super) fn confirm(&mut self) {
        self.confirmed = self.has_gap().then(|| self.coverage.clone());
    }

    /// The state of the same task on another connection: what was acknowledged. None if that is in
    /// order.
    pub(super) fn resume(self) -> Option<Self> {
        let coverage = self.confirmed?;
        let confirmed = Some(coverage.clone());
        Some(Self { coverage, confirmed, ..Self::default() })
    }

    pub(super) fn check(&self, next: u32, in_len: u32) {
        self.coverage.check();
        assert!(self.missing.len() <= MISSING_RUNS_MAX + 1, "bounded");
        assert!(self.missing.iter().all(|run| run.0 < run.1 && run.1 <= next), "below the next");
        assert!(self.missing.is_sorted_by(|left, right| left.1 <= right.0), "ascending");
        assert!(self.received() <= in_len, "data lies in the buffer");
        assert!(self.found.is_none(), "what is missing was told");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list of flags.
        #[test]
        fn missing_numbers_are_those_that_did_not_come(
            gaps in prop::collection::vec((1..6u32, 1..4u32), 1..10),
            come in prop::collection::vec(0..60u32, 0..40),
        ) {
            let mut state = ReassemblyState::new(0);
            let (mut next, mut missing) = (0, Vec::new());
            for (here, lost) in gaps {
                state.miss(next + here, next + here + lost).unwrap();
                prop_assert_eq!(state.take_found().map(|run| run.count), Some(lost));
                missing.extend(next + here..next + here + lost);
                next += here + lost;
            }
            for number in come {
                let place = missing.iter().position(|one| *one == number);
                prop_assert_eq!(state.fill(number), place.is_some());
                if let Some(place) = place {
                    missing.remove(place);
                }
                state.check(next, 0);
            }
            prop_assert_eq!(state.is_missing(), !missing.is_empty());
        }
    }
}
