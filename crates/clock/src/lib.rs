// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points in time as values: machines are told the time and never read a clock.
#![no_std]
#![forbid(unsafe_code)]

use core::ops::Add;
use core::time::Duration;

/// Nanoseconds since an epoch that the driver of the machines chose (often its own start).
///
/// Only differences have a meaning. Wraps after 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time.
    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_and_subtracting_saturate() {
        let t = Instant(5) + Duration::from_nanos(7);
        assert_eq!(t, Instant(12));
        assert_eq!(t.since(Instant(2)), Duration::from_nanos(10));
        assert_eq!(Instant(2).since(t), Duration::ZERO);
        assert_eq!(Instant(1) + Duration::MAX, Instant(u64::MAX));
    }
}
