// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a round trip takes, and how long to wait for one (RFC 6298).

use core::time::Duration;

use crate::limits::PROBE_MIN;
use crate::limits::RTO_FIRST;
use crate::limits::RTO_MAX;
use crate::limits::RTO_MIN;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    /// Smoothed, and how much it varies; None before the first measurement.
    known: Option<(Duration, Duration)>,
    latest: Duration,
    min: Duration,
}

impl Rtt {
    /// A round trip of a frame that was sent once (§3).
    pub(crate) fn measured(&mut self, sample: Duration) {
        self.latest = sample;
        self.known = Some(match self.known {
            // §2.2
            None => (sample, sample / 2),
            // §2.3
            Some((smoothed, varies)) => {
                (smoothed * 7 / 8 + sample / 8, varies * 3 / 4 + smoothed.abs_diff(sample) / 4)
            }
        });
        self.min = if self.min.is_zero() { sample } else { self.min.min(sample) };
    }

    /// The time-out after so many in a row (§2.4, §2.5, §5.5).
    pub(crate) fn timeout(&self, times: u32) -> Duration {
        let once = match self.known {
            None => RTO_FIRST,
            Some((smoothed, varies)) => (smoothed + varies * 4).max(RTO_MIN),
        };
        once.saturating_mul(1 << times.min(16)).min(RTO_MAX)
    }

    /// When to ask what has become of the last frame.
    pub(crate) fn probe(&self) -> Duration {
        match self.known {
            None => RTO_FIRST,
            Some((smoothed, _)) => (smoothed * 2).max(PROBE_MIN).min(self.timeout(0)),
        }
    }

    /// So long after a frame, later ones may come before it (RFC 9002 §6.1.2).
    pub(crate) fn reordering(&self) -> Duration {
        let smoothed = self.known.map_or(RTO_FIRST, |(smoothed, _)| smoothed);
        smoothed.max(self.latest) * 9 / 8
    }

    /// How long a round trip takes; None: it was not measured yet.
    pub(crate) const fn smoothed(&self) -> Option<Duration> {
        match self.known {
            Some((smoothed, _)) => Some(smoothed),
            None => None,
        }
    }

    /// What comes sooner is no answer.
    pub(crate) const fn shortest(&self) -> Duration {
        self.min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_follows_the_round_trip() {
        const fn ms(count: u64) -> Duration {
            Duration::from_millis(count)
        }
        let mut rtt = Rtt::default();
        assert_eq!((rtt.timeout(0), rtt.timeout(1)), (RTO_FIRST, 2 * RTO_FIRST));
        rtt.measured(ms(40));
        assert_eq!(rtt.timeout(0), ms(40 + 4 * 20));
        for _ in 0..200 {
            rtt.measured(ms(40));
        }
        assert!(rtt.timeout(0) < ms(41), "{:?}", rtt.timeout(0));
        assert_eq!(rtt.reordering(), ms(45));
        rtt.measured(ms(80));
        assert!(rtt.timeout(0) > ms(80), "{:?}", rtt.timeout(0));
        assert_eq!(rtt.timeout(40), RTO_MAX);
        assert_eq!(rtt.shortest(), ms(40));
        for _ in 0..200 {
            rtt.measured(Duration::from_micros(50));
        }
        assert_eq!((rtt.timeout(0), rtt.probe()), (RTO_MIN, PROBE_MIN));
    }
}
