// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which writes a flush has made durable, and whether any were lost before one did.

use std::collections::BTreeMap;

/// Keeps account of writes up to a flush that covers them.
///
/// A target that loses its power, or is reset, loses what its volatile cache holds, although it had
/// acknowledged it. Sessions outlive that; what was written must be written again. Each command
/// tells in which generation of the unit it was done ([`Done::generation`](crate::Done)); writes of
/// another generation than that of the flush may be gone.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Of each generation: the last write in it.
    writes: BTreeMap<u64, u64>,
    written: u64,
    lost: bool,
}

/// What was written when a flush was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushMark(u64);

impl Ledger {
    /// A write has ended well in `generation`.
    pub fn wrote(&mut self, generation: u64) {
        self.written += 1;
        self.writes.insert(generation, self.written);
    }

    /// A flush is about to be asked for: it covers what was written until now.
    #[must_use]
    pub const fn mark(&self) -> FlushMark {
        FlushMark(self.written)
    }

    /// A flush has ended well in `generation`; None: the unit has nothing to flush. False: some
    /// writes since the flush before may be lost. It stays so, for whoever asks next may have
    /// written them.
    pub fn flushed(&mut self, mark: FlushMark, generation: Option<u64>) -> bool {
        let Some(generation) = generation else { return !self.lost };
        self.lost |= self.writes.range(..generation).next().is_some();
        self.writes.retain(|of, last| *of > generation || *last > mark.0);
        !self.lost
    }

    /// What was written until now is no longer of interest: it is being written again, or was not
    /// lost after all. Flushes that are under way cover nothing that is written from now on.
    pub fn forget(&mut self) {
        self.writes.clear();
        self.lost = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_of_another_generation_covers_nothing_before() {
        let mut ledger = Ledger::default();
        ledger.wrote(0);
        let mark = ledger.mark();
        assert!(ledger.flushed(mark, Some(0)));
        ledger.wrote(1);
        let mark = ledger.mark();
        assert!(ledger.flushed(mark, Some(1)), "what was flushed before is safe");
        ledger.wrote(1);
        let mark = ledger.mark();
        assert!(!ledger.flushed(mark, Some(2)));
        let mark = ledger.mark();
        assert!(!ledger.flushed(mark, Some(2)), "everybody is told");
    }

    #[test]
    fn a_flush_from_before_covers_nothing_that_is_written_again() {
        let mut ledger = Ledger::default();
        ledger.wrote(0);
        let late = ledger.mark();
        assert!(!ledger.flushed(late, Some(1)));
        ledger.forget();
        ledger.wrote(1);
        assert!(ledger.flushed(late, Some(1)));
        assert!(!ledger.flushed(ledger.mark(), Some(2)), "it was asked for before the write");
    }

    #[test]
    fn writes_beside_a_flush_wait_for_the_next_one() {
        let mut ledger = Ledger::default();
        ledger.wrote(0);
        let mark = ledger.mark();
        ledger.wrote(0);
        assert!(ledger.flushed(mark, Some(0)));
        let mark = ledger.mark();
        assert!(!ledger.flushed(mark, Some(1)), "the second one was not covered");
        let mut ledger = Ledger::default();
        let mark = ledger.mark();
        // Its end was told late.
        ledger.wrote(3);
        assert!(ledger.flushed(mark, Some(2)));
        let mark = ledger.mark();
        assert!(ledger.flushed(mark, Some(3)));
    }
}
