// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One limit: a token bucket, and the line of those that wait for it.
//!
//! The bucket is kept as the time at which all that has begun is paid for: a command moves that
//! time by what it costs, and begins when no more than [`BURST`] lies ahead with it, or nothing if
//! it costs more than that alone. So in any time `t` no more begins than `rate * (t + BURST)`, or,
//! of commands that cost more than a burst, one more of them.
//!
//! Who waits stands in line by a virtual time (start-time fair queueing): each flow, which is what
//! a session wants of one disk, begins where it ended last, or where the line has come to. So flows
//! that always want more get the same, whatever the size of their commands. Who looks before others
//! in line do may go first by [`SLACK`]: reactors look in turn, and need not wait for each other.
//! No more than that: the first one gets what it needs, however much that is.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use clock::Instant;

/// What may come at once after a rest, as a time at the full rate.
pub(crate) const BURST: Duration = Duration::from_millis(100);

/// How far one flow may be before another one, as a time at the full rate.
const SLACK: Duration = Duration::from_millis(10);

/// Who waits looks again at least so often, since others may have gone meanwhile: less than a
/// burst, so that nothing of the rate is lost.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// Who waits for others looks no sooner than this.
const LOOK_MIN: Duration = Duration::from_millis(1);

const _: () = assert!(LOOK_MAX.as_nanos() < BURST.as_nanos(), "a bucket is full before a look");

const SECOND: u128 = 1_000_000_000;

/// How much in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) operations: Option<NonZeroU64>,
    pub(crate) bytes: Option<NonZeroU64>,
}

impl Rates {
    /// Nanoseconds that a command takes of each at the full rate.
    fn costs(self, bytes: u64) -> [u64; 2] {
        let cost = |units: u64, rate: Option<NonZeroU64>| {
            let rate = rate.map_or(u128::MAX, |rate| rate.get().into());
            let cost = (u128::from(units) * SECOND).div_ceil(rate);
            if rate == u128::MAX { 0 } else { u64::try_from(cost).unwrap_or(u64::MAX) }
        };
        [cost(1, self.operations), cost(bytes, self.bytes)]
    }

    const fn is_none(self) -> bool {
        self.operations.is_none() && self.bytes.is_none()
    }
}

/// A limit that sessions share, on whatever reactor they are.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rates: Rates,
    /// When all that has begun is paid for, by operations and by bytes.
    paid: [u64; 2],
    /// How far the line is, in virtual time.
    reached: u64,
    turns: u64,
    /// Those that wait, in order: where they begin, and their number.
    line: Vec<(u64, u64)>,
    totals: Totals,
}

/// What came to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Commands that began.
    pub(crate) begun: u64,
    /// Those of them that had to wait.
    pub(crate) held: u64,
}

impl Totals {
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { begun: self.begun + other.begun, held: self.held + other.held }
    }
}

/// How far a flow is with a meter.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Where it ended, in virtual time.
    finish: u64,
    place: Option<Place>,
}

/// A place in line, which is free again when it is dropped.
#[derive(Debug)]
struct Place {
    meter: Arc<Meter>,
    start: u64,
    turn: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.meter.inner();
        if let Ok(at) = inner.line.binary_search(&(self.start, self.turn)) {
            inner.line.remove(at);
        }
    }
}

impl Meter {
    /// What the lock guards is whole between any two statements.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other rates from now on, and a full bucket.
    pub(crate) fn set(&self, rates: Rates) {
        let mut inner = self.inner();
        if inner.rates != rates {
            (inner.rates, inner.paid) = (rates, [0; 2]);
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.inner().totals
    }

    /// Gives back what a command has paid that does not begin after all.
    pub(crate) fn refund(&self, bytes: u64) {
        let mut inner = self.inner();
        let costs = inner.rates.costs(bytes);
        for (paid, cost) in inner.paid.iter_mut().zip(costs) {
            *paid = paid.saturating_sub(cost);
        }
        inner.totals.begun = inner.totals.begun.saturating_sub(1);
    }
}

impl Standing {
    /// The next command of this flow, which moves so many bytes, wants to begin. None: it begins,
    /// and has paid. Else when it looks again.
    pub(crate) fn ask(&mut self, meter: &Arc<Meter>, now: Instant, bytes: u64) -> Option<Instant> {
        if self.place.as_ref().is_some_and(|place| !Arc::ptr_eq(&place.meter, meter)) {
            self.place = None;
        }
        let mut inner = meter.inner();
        if inner.rates.is_none() {
            inner.totals.begun += 1;
            drop(inner);
            self.place = None;
            return None;
        }
        let costs = inner.rates.costs(bytes);
        let start = match &self.place {
            Some(place) => place.start,
            None => self.finish.max(inner.reached),
        };
        let waits = inner.waits(start, costs, now);
        if waits.is_none() {
            inner.begin(start, costs, now);
            self.finish = start.saturating_add(costs.into_iter().max().unwrap_or_default());
        } else if self.place.is_none() {
            let turn = inner.turns;
            inner.turns += 1;
            inner.totals.held += 1;
            let at = inner.line.partition_point(|other| *other < (start, turn));
            inner.line.insert(at, (start, turn));
            self.place = Some(Place { meter: Arc::clone(meter), start, turn });
            return waits;
        }
        // Who leaves the line takes the lock again.
        drop(inner);
        if waits.is_none() {
            self.place = None;
        }
        waits
    }

    /// Its command is over, or another one is the next: it stands in no line.
    pub(crate) fn leave(&mut self) {
        self.place = None;
    }
}

impl Inner {
    /// When one that stands at `start` looks again; None: it may begin.
    fn waits(&self, start: u64, costs: [u64; 2], now: Instant) -> Option<Instant> {
        let ahead = self
            .line
            .first()
            .map_or(0, |(first, _)| start.saturating_sub(first.saturating_add(nanos(SLACK))));
        if ahead > 0 {
            return Some(now + Duration::from_nanos(ahead).clamp(LOOK_MIN, LOOK_MAX));
        }
        let burst = nanos(BURST);
        // Of a rate that is not limited nothing is paid.
        let free = |(paid, cost): (&u64, u64)| paid.saturating_sub(burst - cost.min(burst));
        let at = self.paid.iter().zip(costs).map(free).max().unwrap_or_default();
        (at > now.0).then(|| Instant(at).min(now + LOOK_MAX))
    }

    fn begin(&mut self, start: u64, costs: [u64; 2], now: Instant) {
        for (paid, cost) in self.paid.iter_mut().zip(costs) {
            *paid = (*paid).max(now.0).saturating_add(cost);
        }
        // One that is behind by the slack, and between two commands, stays behind.
        self.reached = self.reached.max(start.saturating_sub(nanos(SLACK)));
        self.totals.begun += 1;
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
