// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides whether to spin before sleeping.
//!
//! Sleeping costs tens of microseconds until the thread runs again; spinning costs the core.
//! So a port spins while recent waits were short, and does not once they were long: a daemon
//! with nothing to do uses no CPU.

use std::time::Duration;

use clock::Instant;

use crate::affinity;
use crate::limits::WAKE_COST;

/// Moving average of waiting times.
#[derive(Debug)]
pub(crate) struct Spin {
    max_ns: u64,
    average_ns: u64,
}

/// Weight of a new observation is one in this.
const WEIGHT: u64 = 8;

/// A wait counts at most this many times the longest spin: one long wait ends spinning at once,
/// and about twenty short ones start it again.
const CLAMP: u64 = 16;

impl Spin {
    /// Spins for at most `max`; never on a machine with one CPU.
    pub(crate) fn new(max: Duration) -> Self {
        let max = if affinity::online_cpus() > 1 { max } else { Duration::ZERO };
        let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX / CLAMP);
        Self { max_ns, average_ns: max_ns.saturating_mul(CLAMP) }
    }

    /// How long to spin now.
    pub(crate) const fn budget_ns(&self) -> u64 {
        if self.average_ns < self.max_ns { self.max_ns } else { 0 }
    }

    /// A wait began at `from` and ended at `to`.
    pub(crate) fn observe(&mut self, from: Instant, to: Instant, how: Waited) {
        let waited = to.since(from);
        let waited = match how {
            Waited::Spinning => waited,
            Waited::Sleeping => waited.saturating_sub(WAKE_COST),
        };
        let limit = self.max_ns.saturating_mul(CLAMP);
        let ns = u64::try_from(waited.as_nanos()).unwrap_or(limit).min(limit);
        self.average_ns = self.average_ns - self.average_ns / WEIGHT + ns / WEIGHT;
    }
}

/// How a wait was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The event came while spinning.
    Spinning,
    /// The thread slept.
    Sleeping,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 50_000;

    fn spin() -> Spin {
        Spin { max_ns: MAX, average_ns: MAX * CLAMP }
    }

    fn wait(spin: &mut Spin, ns: u64, how: Waited) {
        spin.observe(Instant(7), Instant(7 + ns), how);
    }

    #[test]
    fn short_waits_start_spinning_and_one_long_wait_ends_it() {
        let mut spin = spin();
        assert_eq!(spin.budget_ns(), 0);
        let mut short = 0;
        while spin.budget_ns() == 0 {
            wait(&mut spin, 70_000, Waited::Sleeping);
            short += 1;
            assert!(short < 40);
        }
        assert_eq!(spin.budget_ns(), MAX);
        for _ in 0..20 {
            wait(&mut spin, 10_000, Waited::Spinning);
        }
        wait(&mut spin, 1_000_000_000, Waited::Sleeping);
        assert_eq!(spin.budget_ns(), 0);
    }

    #[test]
    fn zero_never_spins() {
        let mut spin = Spin { max_ns: 0, average_ns: 0 };
        wait(&mut spin, 0, Waited::Spinning);
        assert_eq!(spin.budget_ns(), 0);
    }
}
