// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a long line behind a router: frames wait in a bounded queue for their turn at
//! the line's rate, some are lost, and others arrive a delay later. Without sockets or clocks.

use std::collections::VecDeque;
use std::time::Duration;

/// What a line is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ibm) struct Nature {
    /// Bits in a second, with all that Ethernet needs for a frame.
    pub(in crate::ibm) rate: f64,
    /// From one end to the other.
    pub(in crate::ibm) delay: Duration,
    /// Part of the frames that is lost.
    pub(in crate::ibm) loss: f64,
    /// What the router has room for.
    pub(in crate::ibm) queue_bytes: u64,
}

/// Preamble, CRC and gap of a frame.
const FRAME_MORE: usize = 24;

/// Ethernet, IP, and TCP with timestamps.
pub(super) const HEADERS: usize = 14 + 20 + 32;

/// Frames on a line of this nature.
#[derive(Debug)]
pub(super) struct Line {
    nature: Nature,
    /// When the last frame that was taken has left the router.
    free: Duration,
    /// When they arrive, in order.
    under_way: VecDeque<(Duration, Vec<u8>)>,
    /// Memory of those that have arrived.
    spare: Vec<Vec<u8>>,
    /// State of the random numbers.
    random: u64,
    pub(super) counts: Counts,
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::ibm) struct Counts {
    pub(in crate::ibm) carried: u64,
    /// What those carried that have arrived, without the headers of Ethernet, IP and TCP.
    pub(in crate::ibm) bytes: u64,
    /// By chance.
    pub(in crate::ibm) lost: u64,
    /// For which the router had no room.
    pub(in crate::ibm) dropped: u64,
}

impl Line {
    pub(super) const fn new(nature: Nature, seed: u64) -> Self {
        Self {
            nature,
            free: Duration::ZERO,
            under_way: VecDeque::new(),
            spare: Vec::new(),
            random: seed,
            counts: Counts { carried: 0, bytes: 0, lost: 0, dropped: 0 },
        }
    }

    /// A frame comes to the router.
    pub(super) fn offer(&mut self, now: Duration, frame: &[u8]) {
        if self.draw() < self.nature.loss {
            self.counts.lost += 1;
            return;
        }
        let begin = self.free.max(now);
        let waiting = (begin - now).as_secs_f64() * self.nature.rate / 8.0;
        if waiting > crate::measure::real(self.nature.queue_bytes) {
            self.counts.dropped += 1;
            return;
        }
        let bits = crate::measure::real((frame.len() + FRAME_MORE) as u64) * 8.0;
        self.free = begin + Duration::from_secs_f64(bits / self.nature.rate);
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(frame);
        self.under_way.push_back((self.free + self.nature.delay, kept));
        self.counts.carried += 1;
    }

    /// The next frame that has arrived; [`Line::take_back`] has its memory used again.
    pub(super) fn arrived(&mut self, now: Duration) -> Option<Vec<u8>> {
        let is_here = self.under_way.front().is_some_and(|(at, _)| *at <= now);
        let frame = if is_here { self.under_way.pop_front()?.1 } else { return None };
        self.counts.bytes += frame.len().saturating_sub(HEADERS) as u64;
        Some(frame)
    }

    pub(super) fn take_back(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }

    /// From nothing up to one (SplitMix64).
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        crate::measure::real((z ^ (z >> 31)) >> 11) / crate::measure::real(1 << 53)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Nature =
        Nature { rate: 1e9, delay: Duration::from_millis(50), loss: 0.0, queue_bytes: 1 << 20 };

    fn arrivals(line: &mut Line, until: Duration) -> Vec<(Duration, usize)> {
        let mut all = Vec::new();
        for micros in (0..=u64::try_from(until.as_micros()).unwrap()).step_by(10) {
            let now = Duration::from_micros(micros);
            while let Some(frame) = line.arrived(now) {
                all.push((now, frame.len()));
                line.take_back(frame);
            }
        }
        all
    }

    #[test]
    fn frames_arrive_in_order_at_the_rate_and_a_delay_later() {
        let mut line = Line::new(GIGABIT, 1);
        let frames = [1514, 60, 1514];
        frames.iter().for_each(|len| line.offer(Duration::ZERO, &vec![7; *len]));
        assert!(line.arrived(Duration::from_micros(50_012)).is_none());
        let all = arrivals(&mut line, Duration::from_millis(60));
        assert_eq!(all.iter().map(|(_, len)| *len).collect::<Vec<_>>(), frames);
        let micros: Vec<u128> = all.iter().map(|(at, _)| at.as_micros()).collect();
        // 12.3 us for a full frame, 0.7 us for the shortest.
        assert_eq!(micros, [50_020, 50_020, 50_030]);
        assert_eq!(line.counts, Counts { carried: 3, bytes: 2 * 1448, lost: 0, dropped: 0 });
    }

    #[test]
    fn the_router_has_room_for_so_much_and_no_more() {
        let mut line = Line::new(Nature { queue_bytes: 15_380, ..GIGABIT }, 1);
        for _ in 0..50 {
            line.offer(Duration::ZERO, &[0; 1514]);
        }
        assert_eq!(line.counts, Counts { carried: 11, bytes: 0, lost: 0, dropped: 39 });
        // A frame later there is room for one.
        line.offer(Duration::from_micros(13), &[0; 1514]);
        line.offer(Duration::from_micros(13), &[0; 1514]);
        assert_eq!(line.counts, Counts { carried: 12, bytes: 0, lost: 0, dropped: 40 });
    }

    #[test]
    fn losses_are_as_frequent_as_they_should_be_and_the_same_by_seed() {
        let lost = |seed| {
            let mut line = Line::new(Nature { loss: 0.01, ..GIGABIT }, seed);
            let mut which = Vec::new();
            for number in 0..100_000_u64 {
                let before = line.counts.lost;
                line.offer(Duration::from_micros(20 * number), &[0; 60]);
                which.extend((line.counts.lost > before).then_some(number));
                while let Some(frame) = line.arrived(Duration::MAX) {
                    line.take_back(frame);
                }
            }
            which
        };
        let one = lost(1);
        assert!((850..1150).contains(&one.len()), "{}", one.len());
        assert_eq!(one, lost(1));
        assert_ne!(one, lost(2));
    }
}
