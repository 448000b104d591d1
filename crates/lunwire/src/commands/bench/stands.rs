// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often and how long no request came to an end: an outage that nobody has watched.

use std::time::Duration;
use std::time::Instant;

/// What is shorter is no outage.
pub(super) const STAND: Duration = Duration::from_secs(1);

/// The times in which none did.
#[derive(Debug)]
pub(super) struct Stands {
    /// When one ended last.
    last: Instant,
    pub(super) count: u64,
    pub(super) time: Duration,
}

impl Stands {
    pub(super) const fn new(begun: Instant) -> Self {
        Self { last: begun, count: 0, time: Duration::ZERO }
    }

    /// A request has ended, or all is over.
    pub(super) fn ends(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.last);
        if time >= STAND {
            self.count += 1;
            self.time += time;
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_no_outage() {
        let begun = Instant::now();
        let mut stands = Stands::new(begun);
        for millis in [900, 1800, 3000, 3001, 5001] {
            stands.ends(begun + Duration::from_millis(millis));
        }
        assert_eq!((stands.count, stands.time), (2, Duration::from_millis(3200)));
    }
}
