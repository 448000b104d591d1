// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a flush promises to an application: that no loss of power takes what was written before it.

use clock::Instant;
use initiator::FlushMark;
use initiator::Ledger;

/// What one session was promised for one unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    ledger: Ledger,
    /// When writes ended that no flush has covered yet, and that are not durable by themselves.
    open: Vec<Instant>,
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
    pub(super) fn wrote(&mut self, generation: u64, durable: bool, now: Instant) {
        self.ledger.wrote(generation);
        if !durable {
            self.open.push(now);
        }
    }

    /// A flush is asked for.
    pub(super) const fn mark(&self) -> FlushMark {
        self.ledger.mark()
    }

    /// A flush that was asked for at `asked` has ended well; `outages`: when the power was lost.
    pub(super) fn flushed(
        &mut self,
        mark: FlushMark,
        generation: u64,
        asked: Instant,
        outages: &[Instant],
    ) -> Word {
        if !self.ledger.flushed(mark, Some(generation)) {
            self.ledger.forget();
            self.open.clear();
            return Word::Lost;
        }
        let between = |written: &Instant| outages.iter().any(|at| written < at && *at < asked);
        let broken = self.open.iter().any(between);
        self.open.retain(|written| *written >= asked);
        if broken { Word::Broken } else { Word::Kept }
    }
}
