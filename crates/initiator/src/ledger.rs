// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which writes a flush has made durable, and whether any were lost before one did.

/// How often a unit may have lost what it had not brought to stable storage, and how often it has
/// told that it failed to keep what it had acknowledged, whatever it promised of that
/// ([`Done::generation`](crate::Done)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    resets: u64,
    failures: u64,
}

impl Generation {
    /// What was in a volatile cache may be gone.
    pub(crate) const fn reset(&mut self) {
        self.resets += 1;
    }

    /// An acknowledged write has failed, by the word of the unit itself.
    pub(crate) const fn failed(&mut self) {
        self.failures += 1;
    }

    /// Whether what was in a volatile cache may be gone since `before`.
    pub(crate) const fn is_reset_since(self, before: Self) -> bool {
        self.resets != before.resets
    }

    /// Whether an acknowledged write has failed since `before`.
    pub(crate) const fn has_failed_since(self, before: Self) -> bool {
        self.failures != before.failures
    }

    #[cfg(test)]
    pub(crate) const fn of(resets: u64, failures: u64) -> Self {
        Self { resets, failures }
    }
}

/// Keeps account of writes up to a flush that covers them.
///
/// A target that loses its power, or is reset, loses what its volatile cache holds, although it had
/// acknowledged it. Sessions outlive that; what was written must be written again. Each command
/// tells in which generation of the unit it was done ([`Done::generation`](crate::Done)); writes of
/// another generation than that of the flush may be gone.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// By resets: writes that may be in a cache.
    cached: Account,
    /// By failures: all of them.
    all: Account,
    written: u64,
}

/// Writes that were not flushed, and whether any were lost.
#[derive(Clone, Debug, Default)]
struct Account {
    /// How many events there had been, and the last write before the next one; a row or two, whose
    /// memory stays.
    writes: Vec<(u64, u64)>,
    lost: bool,
}

/// What was written when a flush was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushMark(u64);

/// What has become of the writes since the flush before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is no fourth
#[must_use]
pub enum Fate {
    /// All are on stable storage.
    Kept,
    /// Some may have been in a cache when the unit was reset. One that writes through has lost
    /// nothing by that.
    Reset,
    /// Some may be those of which the unit told that it failed to keep them.
    Failed,
}

impl Ledger {
    /// A write has ended well in `generation`.
    pub fn wrote(&mut self, generation: Generation) {
        self.wrote_durably(generation);
        self.cached.wrote(generation.resets, self.written);
    }

    /// The same, of one that was on stable storage before it ended, as far as the unit says: with
    /// FUA.
    pub fn wrote_durably(&mut self, generation: Generation) {
        self.written += 1;
        self.all.wrote(generation.failures, self.written);
    }

    /// A flush is about to be asked for: it covers what was written until now.
    #[must_use]
    pub const fn mark(&self) -> FlushMark {
        FlushMark(self.written)
    }

    /// A flush has ended well in `generation`. A loss stays one until [`Ledger::forget`], for
    /// whoever asks next may have written what is lost.
    pub fn flushed(&mut self, mark: FlushMark, generation: Generation) -> Fate {
        let is_reset = self.cached.is_lost(generation.resets);
        let has_failed = self.all.is_lost(generation.failures);
        self.cached.flushed(mark, generation.resets);
        self.all.flushed(mark, generation.failures);
        match (has_failed, is_reset) {
            (true, _) => Fate::Failed,
            (false, true) => Fate::Reset,
            (false, false) => Fate::Kept,
        }
    }

    /// Whether the unit, which has ended a command in `generation`, has told of a failure since
    /// writes that no flush has confirmed; also of those on stable storage.
    #[must_use]
    pub fn has_failed(&mut self, generation: Generation) -> bool {
        self.all.is_lost(generation.failures)
    }

    /// What was written until now is no longer of interest: it is being written again. Flushes that
    /// are under way cover nothing that is written from now on.
    pub fn forget(&mut self) {
        (self.cached, self.all) = Default::default();
    }

    /// The same of what may have been in a cache: what was on stable storage when it ended is not
    /// written again.
    pub(crate) fn forget_cached(&mut self) {
        self.cached = Account::default();
    }

    /// Whether writes have ended that no flush has confirmed, whatever the unit promised of them.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        self.all.lost || !self.all.writes.is_empty()
    }

    /// The unit writes through: resets took nothing.
    pub(crate) fn excuse_resets(&mut self) {
        self.cached.lost = false;
    }

    /// Whether something may be in a cache, or was when that was lost.
    pub(crate) fn has_cached(&self) -> bool {
        self.cached.lost || !self.cached.writes.is_empty()
    }
}

impl Account {
    fn wrote(&mut self, events: u64, write: u64) {
        match self.writes.iter_mut().find(|(of, _)| *of == events) {
            Some((_, last)) => *last = write,
            None => self.writes.push((events, write)),
        }
    }

    /// Whether there are writes from before the last one of `events`.
    fn is_lost(&mut self, events: u64) -> bool {
        let before = self.writes.len();
        self.writes.retain(|(of, _)| *of >= events);
        self.lost |= self.writes.len() < before;
        self.lost
    }

    fn flushed(&mut self, mark: FlushMark, events: u64) {
        self.writes.retain(|(of, last)| *of > events || *last > mark.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn after(resets: u64, failures: u64) -> Generation {
        Generation::of(resets, failures)
    }

    #[test]
    fn a_flush_of_another_generation_covers_nothing_before() {
        for (step, fate) in [(after(1, 0), Fate::Reset), (after(0, 1), Fate::Failed)] {
            let at = |times| after(step.resets * times, step.failures * times);
            let mut ledger = Ledger::default();
            ledger.wrote(at(0));
            let mark = ledger.mark();
            assert_eq!(ledger.flushed(mark, at(0)), Fate::Kept);
            ledger.wrote(at(1));
            let mark = ledger.mark();
            assert_eq!(ledger.flushed(mark, at(1)), Fate::Kept, "what was flushed is safe");
            ledger.wrote(at(1));
            let mark = ledger.mark();
            assert_eq!(ledger.flushed(mark, at(2)), fate);
            let mark = ledger.mark();
            assert_eq!(ledger.flushed(mark, at(2)), fate, "everybody is told");
        }
    }

    #[test]
    fn a_flush_from_before_covers_nothing_that_is_written_again() {
        let mut ledger = Ledger::default();
        ledger.wrote(after(0, 0));
        let late = ledger.mark();
        assert_eq!(ledger.flushed(late, after(1, 0)), Fate::Reset);
        ledger.forget();
        ledger.wrote(after(1, 0));
        assert_eq!(ledger.flushed(late, after(1, 0)), Fate::Kept);
        let fate = ledger.flushed(ledger.mark(), after(2, 0));
        assert_eq!(fate, Fate::Reset, "it was asked for before the write");
    }

    #[test]
    fn writes_beside_a_flush_wait_for_the_next_one() {
        let mut ledger = Ledger::default();
        ledger.wrote(after(0, 0));
        let mark = ledger.mark();
        ledger.wrote(after(0, 0));
        assert_eq!(ledger.flushed(mark, after(0, 0)), Fate::Kept);
        let mark = ledger.mark();
        let fate = ledger.flushed(mark, after(1, 0));
        assert_eq!(fate, Fate::Reset, "the second one was not covered");
        let mut ledger = Ledger::default();
        let mark = ledger.mark();
        // Its end was told late.
        ledger.wrote(after(3, 0));
        assert_eq!(ledger.flushed(mark, after(2, 0)), Fate::Kept);
        let mark = ledger.mark();
        assert_eq!(ledger.flushed(mark, after(3, 0)), Fate::Kept);
    }

    #[test]
    fn what_is_on_stable_storage_is_lost_by_no_reset() {
        let mut ledger = Ledger::default();
        ledger.wrote_durably(after(0, 0));
        assert!(!ledger.has_cached());
        assert!(!ledger.has_failed(after(1, 0)));
        assert_eq!(ledger.flushed(ledger.mark(), after(1, 0)), Fate::Kept);
        ledger.wrote_durably(after(1, 0));
        assert!(ledger.has_failed(after(1, 1)));
        assert_eq!(ledger.flushed(ledger.mark(), after(1, 1)), Fate::Failed, "and it stays so");
    }

    #[test]
    fn what_is_not_written_again_may_still_fail() {
        let mut ledger = Ledger::default();
        assert!(!ledger.has_unconfirmed());
        ledger.wrote_durably(after(0, 0));
        ledger.wrote(after(0, 0));
        ledger.forget_cached();
        assert!(ledger.has_unconfirmed() && !ledger.has_cached());
        assert_eq!(ledger.clone().flushed(ledger.mark(), after(1, 0)), Fate::Kept);
        assert_eq!(ledger.flushed(ledger.mark(), after(1, 1)), Fate::Failed);
        assert!(ledger.has_unconfirmed(), "they are lost");
        ledger.forget();
        assert!(!ledger.has_unconfirmed());
    }

    #[test]
    fn an_excused_reset_excuses_no_failure() {
        let mut ledger = Ledger::default();
        ledger.wrote(after(0, 0));
        ledger.wrote(after(1, 0));
        assert_eq!(ledger.flushed(FlushMark(1), after(1, 0)), Fate::Reset);
        ledger.excuse_resets();
        assert!(ledger.has_failed(after(1, 1)), "the second one is still open");
        assert_eq!(ledger.flushed(ledger.mark(), after(1, 1)), Fate::Failed);
    }
}
