// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a flush promises to an application: that no loss of power takes what was written before it,
//! and that no failure has which was told before.

use clock::Instant;
use initiator::Fate;
use initiator::FlushMark;
use initiator::Generation;
use initiator::Ledger;

/// What one session was promised for one unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    ledger: Ledger,
    /// When writes ended that no flush has covered yet, and that are not durable by themselves.
    open: Vec<Instant>,
    /// When a failure was told: a deferred error, or a flush that did not end well.
    failures: Vec<Instant>,
}

/// How a flush ended, for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// All is on stable storage.
    Kept,
    /// Write again what was not flushed before.
    Lost,
    /// All is said to be there, and is not.
    Broken,
}

impl Promises {
    /// A write was acknowledged.
    pub(super) fn wrote(&mut self, generation: Generation, durable: bool, now: Instant) {
        self.ledger.wrote(generation);
        if !durable {
            self.open.push(now);
        }
    }

    /// A flush is asked for.
    pub(super) const fn mark(&self) -> FlushMark {
        self.ledger.mark()
    }

    /// What was acknowledged before may have failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures.push(now);
    }

    /// A flush that was asked for at `asked` has ended well; `outages`: when the power was lost;
    /// `refused`: when it had ended otherwise, and was asked for again.
    pub(super) fn flushed(
        &mut self,
        mark: FlushMark,
        generation: Generation,
        asked: Instant,
        outages: &[Instant],
        refused: Option<Instant>,
    ) -> Word {
        if self.ledger.flushed(mark, generation) != Fate::Kept {
            self.ledger.forget();
            self.open.clear();
            return Word::Lost;
        }
        let between = |written: &Instant| {
            let mut events = outages.iter().chain(&self.failures);
            events.any(|at| written < at && *at < asked)
                || refused.is_some_and(|at| *written < asked && *written < at)
        };
        let broken = self.open.iter().any(between);
        self.open.retain(|written| *written >= asked);
        if broken { Word::Broken } else { Word::Kept }
    }
}
