// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies in buckets whose width grows with the value: at most 1.6 % wide, from nanoseconds to
//! minutes in a few kilobytes.

/// Buckets of each power of two.
const SUB: usize = 64;
const SUB_BITS: u32 = SUB.trailing_zeros();

/// Counts of values, nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        // 64 bits, of which the lowest have no buckets of their own.
        let buckets = (u64::BITS - SUB_BITS + 1) as usize * SUB;
        Self { counts: vec![0; buckets], total: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        if let Some(count) = self.counts.get_mut(bucket(value)) {
            *count += 1;
        }
        self.total += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// One of which is known that it is larger is not counted yet, but as the largest one.
    pub(crate) fn reach(&mut self, value: u64) {
        self.max = self.max.max(value);
    }

    /// Values counted.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// The largest value.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn mean(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.total.max(1))).unwrap_or(u64::MAX)
    }

    /// The value that a share of `parts` in 10,000 does not exceed, as exact as a bucket.
    pub(crate) fn percentile(&self, parts: u64) -> u64 {
        let wanted = (self.total * parts).div_ceil(10_000).max(1);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(place).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(value: u64) -> usize {
    let power = (u64::BITS - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    let within = usize::try_from(value >> power).expect("the shift leaves seven bits");
    power as usize * SUB + within
}

/// The largest value of a bucket.
fn upper(place: usize) -> u64 {
    if place < 2 * SUB {
        return place as u64;
    }
    let power = place / SUB - 1;
    let within = (place - power * SUB) as u64;
    (within << power) + ((1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        for value in (0..5000).chain([1 << 20, (1 << 30) + 12345, u64::MAX / 3]) {
            let top = upper(bucket(value));
            assert!(top >= value && top - value <= value / 32, "{value} in {top}");
            assert!(bucket(value + 1) >= bucket(value));
        }
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|value| histogram.add(value * 1000));
        for (parts, expected) in [(5000, 5_000_000), (9900, 9_900_000), (9999, 9_999_000)] {
            let got = histogram.percentile(parts);
            assert!(got >= expected && got <= expected + expected / 32, "{parts}: {got}");
        }
        assert_eq!((histogram.max(), histogram.total()), (10_000_000, 10_000));
        assert_eq!(histogram.mean(), 5_000_500);
        assert_eq!(Histogram::default().percentile(9999), 0);
    }
}
