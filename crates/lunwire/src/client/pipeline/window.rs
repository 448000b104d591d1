// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a copy is under way: what the line carries in a second or so. A flush, the end that
//! a user wants and the next line of progress wait behind all of it.
//!
//! ```text
//! piece waits up to EASY:  the window grows by it (twice as much for each round trip)
//! longer than HARD:        it shrinks to what would have waited EASY
//! the shortest took FAR:   it may grow beyond what keeps two ends busy that are near
//! ```
//!
//! Waiting is what it takes beyond the shortest time of any: that of a far target, or a busy disk,
//! does not become less with less under way.

use std::time::Duration;
use std::time::Instant;

use super::Copy;
use super::Moving;
use super::narrow;
use crate::client::place::Local;
use crate::client::place::Place;

/// Commands under way at once: enough to keep both ends busy where they are near.
const DEPTH: usize = 16;

/// The same where one is far: 64 MiB fill 1 Gbit/s for half a second, and a write of a piece takes
/// two round trips, one of which is to ask for its data.
const DEPTH_FAR: usize = 64;

/// No piece of a disk that is near is always as slow: it comes from a far one.
const FAR: Duration = Duration::from_millis(20);

/// Bytes of a piece where no disk takes less, and the line is fast.
pub(super) const PIECE: u32 = 1 << 20;

/// Bytes of a piece at least: 0.7 s of a line of 100 KB/s; less of it would cost fast lines more
/// commands than they gain.
const PIECE_LEAST: u64 = 64 << 10;

/// Bytes under way before the line is known: 1.3 s of 100 KB/s. Seven round trips double it to the
/// most.
const FIRST: u64 = 2 * PIECE_LEAST;

/// A piece that waits no longer leaves room for more: where the window grows for a round trip after
/// what is too much was posted, twice of this is under way.
const EASY: Duration = Duration::from_millis(500);

/// A piece that waits longer had too much before it: less than the client has to come to an end
/// ([`crate::client::leaving::FAREWELL`]), and far enough from [`EASY`] for disks that answer in
/// bursts.
const HARD: Duration = Duration::from_millis(1500);

const _: () = assert!(HARD.as_millis() < crate::client::leaving::FAREWELL.as_millis());

/// What the user says of how much may be under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Pieces at once, from the beginning on; None: as the line shows.
    pub(crate) depth: Option<usize>,
    /// Bytes of a piece at most.
    pub(crate) block: Option<u32>,
}

/// Bytes that may be under way.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    /// Where both ends are near.
    near: u64,
    /// Where one is far.
    most: u64,
    /// Pieces of which the window is made.
    share: u64,
    /// What began before says nothing of the size that it has now.
    since: Instant,
    /// The shortest time of a piece.
    least: Duration,
}

/// The begin of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Instant,
    /// Others were under way, or had no room beside it: it shows what waiting there is.
    counts: bool,
}

impl Window {
    /// `piece`: bytes of the longest one; `depth`: how many are wanted at once.
    pub(super) fn new(piece: u32, depth: Option<usize>, now: Instant) -> Self {
        let [near, most] = depth.map_or([DEPTH, DEPTH_FAR], |depth| [depth; 2]);
        let share = near.max(1) as u64;
        let [near, most] = [near, most].map(|depth| u64::from(piece) * depth as u64);
        let most = most.min(u64::from(PIECE) * DEPTH_FAR as u64).max(near);
        let size = if depth.is_some() { near } else { FIRST.min(near) };
        Self { size, near, most, share, since: now, least: Duration::MAX }
    }

    /// Pieces at once.
    fn depth(&self) -> u64 {
        if self.size > self.near { self.size.div_ceil(self.piece()) } else { self.share }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of the next piece, before it is cut to blocks.
    pub(super) fn piece(&self) -> u64 {
        // Each is a part of all longer ones, so that their borders are those of the shorter ones.
        let longest = self.near / self.share;
        let share = (self.size / self.share).clamp(PIECE_LEAST.min(longest), longest.max(1));
        1 << share.ilog2()
    }

    /// A piece of `length` bytes begins where `under_way` are.
    pub(super) const fn begin(&self, under_way: u64, length: u64, at: Instant) -> Begun {
        Begun { at, counts: under_way > 0 || length > self.size / 2 }
    }

    /// A piece of `length` bytes has ended.
    pub(super) fn note(&mut self, begun: Begun, length: u64, now: Instant) {
        let time = now.saturating_duration_since(begun.at);
        self.least = self.least.min(time);
        let waited = time.saturating_sub(self.least);
        if waited <= EASY && begun.counts {
            let most = if self.least >= FAR { self.most } else { self.near.max(self.size) };
            self.size = self.size.saturating_add(length).min(most);
        } else if waited > HARD && begun.at >= self.since {
            let size = u128::from(self.size) * EASY.as_millis() / waited.as_millis();
            let size = u64::try_from(size).unwrap_or(self.most);
            self.size = size.max(PIECE_LEAST).min(self.most);
            self.since = now;
        }
    }
}

impl Copy<'_> {
    pub(super) fn is_full(&self) -> bool {
        let pieces = (self.under_way.len() + self.held.len()) as u64;
        let (moving, next) = (self.moving(), self.window.piece().min(self.piece.into()));
        pieces >= self.window.depth() || (moving > 0 && moving + next > self.window.size())
    }

    /// Bytes under way.
    fn moving(&self) -> u64 {
        let moving: u64 = self.under_way.values().map(Moving::weight).sum();
        let held: u64 = self.held.values().map(|data| data.len() as u64).sum();
        moving + held
    }

    /// A piece begins on a line.
    pub(super) fn begin(&self, length: u64) -> Option<Begun> {
        Some(self.window.begin(self.moving(), length, Instant::now()))
    }

    /// Bytes of the piece at `offset`: it ends where a longer one would.
    pub(super) fn piece_at(&self, offset: u64) -> u64 {
        let piece = u64::from(self.plan.cut(self.window.piece().min(self.piece.into())));
        piece - offset % piece
    }

    /// The zeroes at `offset` of a file, where `length` bytes are to be taken: as many as can be
    /// where they cost the line nothing.
    pub(super) fn hole_at(&self, file: &Local, offset: u64, length: u64) -> Option<u64> {
        let at = self.plan.from_offset + offset;
        let piece = u64::from(self.piece);
        let left = self.plan.length.map_or(u64::MAX, |total| total - offset);
        let whole = (piece - offset % piece).min(left);
        let is_free = || match &self.plan.to {
            Place::Disk(disk) => {
                !self.same_refused
                    && whole.is_multiple_of(disk.geometry.block.into())
                    && disk.zero(self.plan.to_offset + offset, narrow(whole)).is_some()
            }
            Place::File(_) | Place::Stream => true,
        };
        if whole > length && file.is_hole(at, whole) && is_free() {
            return Some(whole);
        }
        file.is_hole(at, length).then_some(length)
    }

    pub(super) fn note_time(&mut self, begun: Option<Begun>, length: u64) {
        if let Some(begun) = begun {
            self.window.note(begun, length, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// The longest time of a piece over the last half of `time`, and the bytes that have moved, on
    /// a line of `rate` bytes/s whose ends are `trip` apart.
    fn carry(window: &mut Window, begin: Instant, rate: f64, trip: f64, time: f64) -> (f64, u64) {
        let (mut now, mut free, mut longest, mut moved) = (0.0, 0.0_f64, 0.0_f64, 0);
        let mut line: VecDeque<(f64, Begun, f64, u64)> = VecDeque::new();
        let at = |seconds: f64| begin + Duration::from_secs_f64(seconds);
        while now < time {
            let under_way = |line: &VecDeque<(f64, Begun, f64, u64)>| -> u64 {
                line.iter().map(|(_, _, _, length)| length).sum()
            };
            while (line.len() as u64) < window.depth()
                && (line.is_empty() || under_way(&line) + window.piece() <= window.size())
            {
                let length = window.piece().min(PIECE.into());
                free = free.max(now) + length as f64 / rate;
                let begun = window.begin(under_way(&line), length, at(now));
                line.push_back((now, begun, free + trip, length));
            }
            if let Some((posted, begun, end, length)) = line.pop_front() {
                now = end;
                moved += length;
                window.note(begun, length, at(end));
                if now > time / 2.0 {
                    longest = longest.max(end - posted);
                }
            }
        }
        (longest, moved)
    }

    #[test]
    fn a_slow_line_has_little_under_way_and_is_kept_busy() {
        for rate in [100e3, 200e3, 500e3, 5e6] {
            let begin = Instant::now();
            let mut window = Window::new(PIECE, None, begin);
            let (longest, moved) = carry(&mut window, begin, rate, 0.02, 60.0);
            assert!(longest < 2.0, "{rate}: {longest}");
            assert!(moved as f64 > 0.9 * 60.0 * rate, "{rate}: {moved}");
        }
    }

    #[test]
    fn a_fast_line_has_all_under_way_after_some_round_trips() {
        let begin = Instant::now();
        let mut window = Window::new(PIECE, None, begin);
        carry(&mut window, begin, 2e9, 0.001, 0.03);
        assert_eq!((window.size(), window.piece()), (16 << 20, 1 << 20));
    }

    #[test]
    fn a_line_that_becomes_slow_has_less_under_way() {
        let begin = Instant::now();
        let mut window = Window::new(PIECE, None, begin);
        carry(&mut window, begin, 2e9, 0.001, 0.1);
        let (longest, _) = carry(&mut window, begin + Duration::from_secs(1), 200e3, 0.02, 240.0);
        assert!(longest < 2.0, "{longest}");
    }

    #[test]
    fn a_far_target_is_no_slow_line() {
        for trip in [0.6, 2.0] {
            let begin = Instant::now();
            let mut window = Window::new(PIECE, None, begin);
            carry(&mut window, begin, 20e6, trip, 15.0 * trip);
            assert!(window.size() > 8 << 20, "{trip}: {}", window.size());
        }
    }

    /// A write takes two round trips: 1 Gbit/s at 100 ms and 200 ms has 25 and 50 MB under way.
    #[test]
    fn a_far_target_behind_a_fast_line_gets_all_that_this_carries() {
        for trip in [0.2, 0.4] {
            let begin = Instant::now();
            let mut window = Window::new(PIECE, None, begin);
            let begun = carry(&mut window, begin, 125e6, trip, 20.0 * trip).1;
            let later = begin + Duration::from_secs(60);
            let (longest, moved) = carry(&mut window, later, 125e6, trip, 10.0);
            assert!(moved as f64 > 0.9 * 10.0 * 125e6, "{trip}: {begun}, then {moved}");
            assert!(longest < trip + 1.5, "{trip}: {longest}");
            assert_eq!(window.piece(), 1 << 20);
        }
    }

    #[test]
    fn what_the_user_wants_is_under_way_from_the_beginning() {
        let begin = Instant::now();
        let mut window = Window::new(4 << 20, Some(3), begin);
        assert_eq!((window.size(), window.piece(), window.depth()), (12 << 20, 4 << 20, 3));
        carry(&mut window, begin, 2e9, 0.2, 4.0);
        assert_eq!(window.size(), 12 << 20, "and no more");
        let one = Window::new(512, Some(1), begin);
        assert_eq!((one.size(), one.piece(), one.depth()), (512, 512, 1));
    }

    #[test]
    fn a_slow_line_has_less_under_way_than_the_user_wants() {
        let begin = Instant::now();
        let mut window = Window::new(PIECE, Some(64), begin);
        let (longest, _) = carry(&mut window, begin, 5e6, 0.02, 120.0);
        assert!(longest < 2.0, "{longest}");
    }
}
