// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides whether to spin before sleeping.
//!
//! Sleeping costs tens of microseconds until the thread runs again; spinning costs the core.
//! So a port spins while recent waits were short, and does not once they were long: a daemon
//! with nothing to do uses no CPU.
//!
//! Where both sides have one CPU between them, the peer cannot run while we spin. So after some
//! spins in a row that brought nothing a port sleeps at once in its next waits, and in more of them
//! each time that the spin behind them brings nothing either.

use std::time::Duration;

use clock::Instant;

use crate::affinity;
use crate::limits::WAKE_COST;

/// Moving average of waiting times.
#[derive(Debug)]
pub(crate) struct Spin {
    max_ns: u64,
    average_ns: u64,
    /// Spins in a row that brought nothing.
    lost: u32,
    /// Waits to come in which nobody spins.
    rest: u32,
}

/// Weight of a new observation is one in this.
const WEIGHT: u64 = 8;

/// A wait counts at most this many times the longest spin: one long wait ends spinning at once,
/// and about twenty short ones start it again.
const CLAMP: u64 = 16;

/// So many spins in a row may be lost.
const LOST_MAX: u32 = 4;

/// Waits without a spin after that; they double so often, with each spin more that is lost.
const REST: u32 = 16;
const DOUBLINGS: u32 = 4;

impl Spin {
    /// Spins for at most `max`; never on a machine with one CPU.
    pub(crate) fn new(max: Duration) -> Self {
        let max = if affinity::online_cpus() > 1 { max } else { Duration::ZERO };
        let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX / CLAMP);
        Self { max_ns, average_ns: max_ns.saturating_mul(CLAMP), lost: 0, rest: 0 }
    }

    /// How long to spin now.
    pub(crate) const fn budget_ns(&self) -> u64 {
        if self.average_ns < self.max_ns && self.rest == 0 { self.max_ns } else { 0 }
    }

    /// A spin of the whole budget brought nothing.
    pub(crate) fn lose(&mut self) {
        self.lost = self.lost.saturating_add(1);
        if self.lost >= LOST_MAX {
            self.rest = REST << (self.lost - LOST_MAX).min(DOUBLINGS);
        }
    }

    /// A wait began at `from` and ended at `to`.
    pub(crate) fn observe(&mut self, from: Instant, to: Instant, how: Waited) {
        let waited = to.since(from);
        let waited = match how {
            Waited::Spinning => {
                self.lost = 0;
                waited
            }
            Waited::Sleeping => {
                self.rest = self.rest.saturating_sub(1);
                waited.saturating_sub(WAKE_COST)
            }
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
        Spin { max_ns: MAX, average_ns: MAX * CLAMP, lost: 0, rest: 0 }
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

    /// A wait of a peer that answers at once when it runs, and cannot run while we spin.
    fn wait_for_who_shares_the_cpu(spin: &mut Spin) -> u64 {
        let ns = 5_000 + spin.budget_ns();
        if spin.budget_ns() > 0 {
            spin.lose();
        }
        wait(spin, ns, Waited::Sleeping);
        ns
    }

    #[test]
    fn who_keeps_the_cpu_from_its_peer_stops_spinning() {
        let mut spin = spin();
        let waits = 10_000;
        (0..waits).for_each(|_| _ = wait_for_who_shares_the_cpu(&mut spin));
        let spent: u64 = (0..waits).map(|_| wait_for_who_shares_the_cpu(&mut spin)).sum();
        assert!(spent / waits < 6_000, "{} ns a wait, of 5,000", spent / waits);

        let mut alone = 0;
        while spin.budget_ns() == 0 {
            wait(&mut spin, 40_000, Waited::Sleeping);
            alone += 1;
        }
        assert!(alone <= REST << DOUBLINGS, "it tries again after {alone} waits");
        wait(&mut spin, 10_000, Waited::Spinning);
        for _ in 1..LOST_MAX {
            spin.lose();
            wait(&mut spin, MAX + 5_000, Waited::Sleeping);
            assert_eq!(spin.budget_ns(), MAX, "some that are lost do not count");
        }
        spin.lose();
        assert_eq!(spin.budget_ns(), 0);
    }

    #[test]
    fn zero_never_spins() {
        let mut spin = Spin { max_ns: 0, average_ns: 0, lost: 0, rest: 0 };
        wait(&mut spin, 0, Waited::Spinning);
        assert_eq!(spin.budget_ns(), 0);
    }
}
