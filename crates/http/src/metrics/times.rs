// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times that were taken with the time-stamp counter.

use target::LayerTime;

use super::table::Value;
use crate::looks::About;

/// Times of one kind.
#[derive(Debug)]
pub(super) struct Times {
    times: LayerTime,
    cycles_per_second: f64,
}

/// Upper bounds of histograms: microseconds to seconds, each four times the one before.
const BOUNDS: [f64; 12] = [
    1e-6, 4e-6, 16e-6, 64e-6, 256e-6, 1.024e-3, 4.096e-3, 16.384e-3, 65.536e-3, 262.144e-3,
    1.048_576, 4.194_304,
];

impl Times {
    pub(super) fn new(about: About, times: &LayerTime) -> Self {
        Self { times: times.clone(), cycles_per_second: about.cycles_per_second }
    }

    /// All of them together.
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    pub(super) fn seconds(&self) -> f64 {
        self.times.cycles as f64 / self.cycles_per_second
    }

    pub(super) fn histogram(&self) -> Value {
        let mut buckets = Vec::with_capacity(BOUNDS.len() + 1);
        let mut before = 0;
        for bound in BOUNDS {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 2^40
            let within = self.times.within((bound * self.cycles_per_second) as u64);
            buckets.push((bound, within.saturating_sub(before)));
            before = within;
        }
        let count = self.times.laps;
        buckets.push((f64::INFINITY, count.saturating_sub(before)));
        Value::Histogram { sum: self.seconds(), count, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_longer_is_in_a_later_bucket() {
        let about = About { version: "0", cycles_per_second: 1e9 };
        let mut times = LayerTime::default();
        [100, 5_000, 5_000, 2_000_000, 60_000_000_000].into_iter().for_each(|ns| times.add(ns));
        let Value::Histogram { sum, count, buckets } = Times::new(about, &times).histogram() else {
            panic!("of another kind")
        };
        assert_eq!(count, 5);
        assert!((sum - 60.002_010_1).abs() < 1e-6, "{sum}");
        let counts: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        assert!(buckets.is_sorted_by(|(one, _), (other, _)| one < other));
        assert_eq!(buckets.last().map(|(bound, _)| *bound), Some(f64::INFINITY));
    }
}
