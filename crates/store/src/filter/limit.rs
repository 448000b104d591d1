// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `limit=...`: so many operations or bytes in a second, over all initiators together.
//!
//! A token bucket, kept as the time at which it will be full again: an operation moves that time by
//! what it costs, and waits until no more than [`LIMIT_BURST`] lies ahead. So waiting operations
//! are spread evenly, in the order in which they came, and no thread owns the bucket.

use super::behind;
use crate::limits::LIMIT_BURST;
use crate::{Io, IoResult, Layer, Op, Store, Submitted};
use alloc::sync::Arc;
use clock::Instant;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use core::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;

/// A bound on what is done in a second.
#[derive(Debug)]
pub struct Limit {
    behind: Arc<dyn Store>,
    layer: Layer,
    rate: Rate,
    /// Nanoseconds of the driver's clock at which all that was admitted is paid for.
    paid: AtomicU64,
}

/// How much in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // the spelling has these
pub enum Rate {
    /// Operations, of any kind and length; at least one.
    Operations(u64),
    /// Bytes read and written; at least one.
    Bytes(u64),
}

impl Limit {
    /// In front of `behind`.
    pub fn new(behind: Arc<dyn Store>, layer: Layer, rate: Rate) -> Self {
        Self { behind, layer, rate, paid: AtomicU64::new(0) }
    }

    /// Nanoseconds that `op` takes at the full rate.
    fn cost(&self, op: &Op) -> u64 {
        let (units, rate) = match self.rate {
            Rate::Operations(rate) => (1, rate),
            Rate::Bytes(rate) => (op.range().1, rate),
        };
        let cost = u128::from(units) * u128::from(SECOND_NS) / u128::from(rate.max(1));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// Admits an operation of this cost at `now`; how long it has to wait.
    fn admit(&self, now: Instant, cost: u64) -> Duration {
        let burst = u64::try_from(LIMIT_BURST.as_nanos()).unwrap_or(u64::MAX);
        let mut paid = self.paid.load(Ordering::Relaxed);
        loop {
            let next = paid.max(now.0).saturating_add(cost);
            match self.paid.compare_exchange(paid, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Instant(paid.saturating_sub(burst)).since(now),
                Err(other) => paid = other,
            }
        }
    }
}

impl Store for Limit {
    fn submit(&self, op: &Op) -> Submitted {
        let free = matches!(op, Op::Status { .. });
        let moves = matches!(op, Op::Read { .. } | Op::Write { .. });
        if free || (matches!(self.rate, Rate::Bytes(_)) && !moves) {
            return self.behind.submit(op);
        }
        Submitted::Io(Io::Clock { layer: self.layer })
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        match (io, result) {
            (Io::Clock { layer }, IoResult::Clock(now)) if *layer == self.layer => {
                match self.admit(now, self.cost(op)) {
                    Duration::ZERO => self.behind.submit(op),
                    length => Submitted::Io(Io::Pause { layer: self.layer, length }),
                }
            }
            (Io::Pause { layer, .. }, _) if *layer == self.layer => self.behind.submit(op),
            (_, result) => self.behind.complete(op, io, result),
        }
    }

    behind!(geometry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::Null;

    const READ: Op = Op::Read { offset: 0, length: 4096 };

    fn limit(rate: Rate) -> Limit {
        Limit::new(Arc::new(Null::new(1 << 20).expect("room")), Layer(0), rate)
    }

    /// When each of `count` reads that come at once may begin, milliseconds.
    fn begins(limit: &Limit, count: usize) -> alloc::vec::Vec<u128> {
        let now = Instant(5 * SECOND_NS);
        (0..count).map(|_| limit.admit(now, limit.cost(&READ)).as_millis()).collect()
    }

    #[test]
    fn operations_are_spread_behind_a_burst() {
        let limit = limit(Rate::Operations(20));
        assert_eq!(begins(&limit, 6), [0, 0, 0, 50, 100, 150]);
        // A second later the bucket is full again, and no fuller than at the beginning.
        let later = Instant(7 * SECOND_NS);
        let waits: alloc::vec::Vec<_> =
            (0..4).map(|_| limit.admit(later, limit.cost(&READ)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 50]);
    }

    #[test]
    fn bytes_count_by_their_number() {
        let limit = limit(Rate::Bytes(40_960));
        assert_eq!(begins(&limit, 4), [0, 0, 100, 200]);
        let longer = Op::Read { offset: 0, length: 8192 };
        assert_eq!(limit.cost(&longer), 2 * limit.cost(&READ));
    }

    #[test]
    fn the_rate_over_a_long_time_is_what_was_asked() {
        let limit = limit(Rate::Operations(1000));
        let (mut now, mut done) = (Instant(0), 0_u32);
        while now.0 < 10 * SECOND_NS {
            now = now + limit.admit(now, limit.cost(&READ));
            done += 1;
        }
        assert!((9_990..=10_110).contains(&done), "{done}");
    }

    #[test]
    fn what_moves_no_bytes_is_free_of_a_bound_on_bytes() {
        let limit = limit(Rate::Bytes(1));
        for op in [Op::Flush, Op::Zero { offset: 0, length: 512 }] {
            assert!(matches!(limit.submit(&op), Submitted::Done(_)), "{op:?}");
        }
        assert!(matches!(limit.submit(&READ), Submitted::Io(Io::Clock { .. })));
    }

    #[test]
    fn no_rate_overflows() {
        let limit = limit(Rate::Bytes(1));
        let op = Op::Read { offset: 0, length: u32::MAX };
        for _ in 0..10 {
            limit.admit(Instant(u64::MAX - 5), limit.cost(&op));
        }
        assert_eq!(limit.admit(Instant(u64::MAX), 7), Duration::ZERO);
    }
}
