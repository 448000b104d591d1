// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From when on a command is slow, and how many of them the log is told of.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Instant;

/// Lines in the log in a second, of all reactors: a disk that is slow is slow for each command.
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// What reactors share of it.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    /// Nanoseconds; zero: nobody wants to hear of any.
    after: AtomicU64,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Slow {
    /// Commands are slow that take so long; zero: none is.
    pub(crate) fn set(&self, after: Duration) {
        let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.after.store(after, Ordering::Relaxed);
    }

    /// From when on a command is slow; None: none is.
    #[inline]
    pub(crate) fn after(&self) -> Option<Duration> {
        let after = self.after.load(Ordering::Relaxed);
        (after != 0).then(|| Duration::from_nanos(after))
    }

    /// Whether the log is told of one more; gives how many it was not told of since the last one.
    pub(crate) fn tell(&self, now: Instant) -> Option<u64> {
        // What the lock guards is whole between any two statements.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.since.is_none_or(|since| now.since(since) >= WINDOW) {
            (told.since, told.lines) = (Some(now), 0);
        }
        if told.lines >= LINES_MAX {
            told.left_out += 1;
            return None;
        }
        told.lines += 1;
        Some(std::mem::take(&mut told.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_of_in_a_few_lines() {
        let slow = Slow::default();
        assert_eq!(slow.after(), None);
        slow.set(WINDOW);
        assert_eq!(slow.after(), Some(WINDOW));
        let begin = Instant(1_000_000_000);
        let told = (0..25).filter_map(|_| slow.tell(begin)).collect::<Vec<_>>();
        assert_eq!(told, [0; 10]);
        assert_eq!(slow.tell(begin + WINDOW), Some(15));
        assert_eq!(slow.tell(begin + WINDOW), Some(0));
    }
}
