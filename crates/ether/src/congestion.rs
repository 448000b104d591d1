// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much may be in flight (RFC 5681, with the factor of RFC 9438 §4.6).

use crate::limits::RING_BYTES;
use crate::limits::WINDOW_FRAMES_FIRST;
use crate::limits::WINDOW_FRAMES_MIN;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    /// Bytes.
    window: u64,
    /// Above it the window grows by a frame each round trip.
    threshold: u64,
    /// A frame with less than this number was lost with one before.
    counted_before: u64,
    frame: u64,
}

impl Congestion {
    pub(crate) const fn new(frame: u64) -> Self {
        let window = WINDOW_FRAMES_FIRST * frame;
        Self { window, threshold: u64::MAX, counted_before: 0, frame }
    }

    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// So many bytes have come, while as much was in flight as may be.
    pub(crate) fn delivered(&mut self, bytes: u64) {
        let more = match self.window < self.threshold {
            true => bytes,
            false => self.frame * bytes / self.window.max(1),
        };
        self.window = (self.window + more).min(RING_BYTES as u64);
    }

    /// Frame number `order` is lost; the next one will be `next`. What is lost within a round trip
    /// counts once.
    pub(crate) fn lost(&mut self, order: u64, next: u64) {
        if order >= self.counted_before {
            self.counted_before = next;
            self.threshold = (self.window * 7 / 10).max(self.least());
            self.window = self.threshold;
        }
    }

    /// Nothing has come for long.
    pub(crate) fn timed_out(&mut self, next: u64) {
        self.counted_before = next;
        self.threshold = (self.window / 2).max(self.least());
        self.window = self.least();
    }

    const fn least(&self) -> u64 {
        WINDOW_FRAMES_MIN * self.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_and_shrinks() {
        let mut window = Congestion::new(1000);
        assert_eq!(window.window(), 10_000);
        window.delivered(10_000);
        assert_eq!(window.window(), 20_000, "doubled in a round trip");
        window.lost(5, 21);
        window.lost(6, 22);
        assert_eq!(window.window(), 14_000, "once for all that was in flight");
        window.delivered(14_000);
        assert_eq!(window.window(), 15_000, "a frame more in a round trip");
        window.lost(21, 40);
        assert_eq!(window.window(), 10_500);
        window.timed_out(50);
        assert_eq!(window.window(), 2000);
        for _ in 0..10_000 {
            window.delivered(100_000);
        }
        assert_eq!(window.window(), RING_BYTES as u64);
    }
}
