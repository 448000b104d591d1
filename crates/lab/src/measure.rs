// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cycles, medians, and caches that have forgotten.

use std::hint::black_box;

use engine::cycles;

/// More than the two nearest caches of any processor that we know: 2 MiB and 3 MiB.
const EVICTION_BYTES: usize = 16 << 20;

/// A line of the cache.
const LINE: usize = 64;

/// Measures in cycles of the time-stamp counter.
#[derive(Debug)]
pub(crate) struct Meter {
    /// What reading the counter twice takes by itself.
    overhead: u64,
    /// Cycles in a second.
    pub(crate) per_second: f64,
    eviction: Vec<u8>,
}

impl Meter {
    pub(crate) fn new() -> Self {
        let pairs = (0..1000).map(|_| {
            let start = cycles::now();
            cycles::now() - start
        });
        let overhead = pairs.min().unwrap_or(0);
        Self { overhead, per_second: cycles::per_second(), eviction: vec![1; EVICTION_BYTES] }
    }

    /// Cycles that `work` takes.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> (u64, T) {
        let start = cycles::now();
        let result = work();
        let taken = cycles::now() - start;
        (taken.saturating_sub(self.overhead), result)
    }

    /// The two nearest caches forget whatever they had.
    pub(crate) fn evict(&self) {
        touch(&self.eviction);
    }
}

/// Brings `bytes` into the nearest cache.
pub(crate) fn touch(bytes: &[u8]) {
    let lines = bytes.iter().step_by(LINE);
    black_box(lines.fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
}

/// The middle one; of an even number the upper one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// As a number with which one can divide.
#[allow(clippy::cast_precision_loss)] // far below 2^52
pub(crate) const fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::{Meter, median};

    #[test]
    fn a_meter_measures() {
        let meter = Meter::new();
        let (cycles, sum) = meter.time(|| (0..10_000_u64).map(std::hint::black_box).sum::<u64>());
        assert!(cycles > 0 && sum == 49_995_000);
        meter.evict();
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median(Vec::new()).abs() < 1e-9);
    }
}
