// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is looked at now and then: memory that nobody needs, and connections that take nothing.

use std::time::Duration;

use buf::Trimmed;
use engine::Port;
use mover::Mover;

use super::Kind;
use super::Phase;
use super::Pump;
use super::context::Context;
use super::token;
use crate::table::Key;

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(10);

/// Memory goes back in steps of so many bytes, each well below a millisecond,
const STEP: usize = 8 << 20;

/// with so much time between them for everything else.
const BETWEEN_STEPS: Duration = Duration::from_millis(10);

/// A session's connection that takes not one list of PDUs, about a megabyte, for so many intervals
/// is cut: its initiator does not read, whatever it may still send. So is one that does not end the
/// RDMA Read that is under way, whose command may have been aborted: it keeps memory of ours. A
/// line of 10 kB/s takes one.
const STUCK_MAX: u8 = 12;

/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;

/// What a connection has sent, and what it has fetched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    lists: u64,
    sends: Watched,
    reads: Watched,
}

/// Something of which one after the other ends.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// How many had ended at the last look.
    seen: u64,
    /// Looks since one has, with something under way.
    stuck: u8,
}

impl Progress {
    /// A list of PDUs has left.
    pub(super) fn count_list(&mut self) {
        self.lists = self.lists.wrapping_add(1);
    }
}

impl Watched {
    /// True if none has ended for too long; `over`: how many have.
    fn is_stuck(&mut self, over: u64, under_way: bool) -> bool {
        let moved = std::mem::replace(&mut self.seen, over) != over;
        self.stuck = if moved || !under_way { 0 } else { self.stuck.saturating_add(1) };
        self.stuck > STUCK_MAX
    }
}

impl<P: Port> Context<P> {
    /// There is something to look at.
    pub(super) fn sweep_later(&mut self) {
        if !self.sweeps {
            self.sweeps = true;
            self.sweep_at(self.port.now() + INTERVAL);
        }
    }

    fn sweep_at(&mut self, at: clock::Instant) {
        self.timers.set(token(Kind::Sweep, Key::NOBODY).0, at);
    }
}

impl<P: Port> Pump<P> {
    pub(super) fn sweep(&mut self) {
        let now = self.context.port.now();
        let next = match self.context.pool.trim(STEP) {
            Trimmed::InPart => return self.context.sweep_at(now + BETWEEN_STEPS),
            Trimmed::ForNow => Some(now + INTERVAL),
            Trimmed::All => self.is_used().then_some(now + INTERVAL),
        };
        self.cut_stuck();
        match next {
            Some(at) => self.context.sweep_at(at),
            None => self.context.sweeps = false,
        }
    }

    /// Somebody has memory, or may take it yet: a session does without a connection, too.
    fn is_used(&self) -> bool {
        let alone = self.connections.is_empty() && self.sessions.is_empty();
        !alone || self.context.pool.bytes_in_use() > 0
    }

    fn cut_stuck(&mut self) {
        let mut stuck = Vec::new();
        for (key, connection) in self.connections.iter_mut() {
            let (reads, reads_over) = match &connection.mover {
                Mover::Iser(mover) => (mover.reads(), mover.reads_over()),
                Mover::Tcp(_) | Mover::Local(_) => (0, 0),
            };
            let Progress { lists, sends, reads: fetched } = &mut connection.progress;
            let is_stuck = sends.is_stuck(*lists, connection.line.is_busy())
                | fetched.is_stuck(reads_over, reads > 0);
            if is_stuck && matches!(connection.phase, Phase::Session { .. }) {
                stuck.push(key);
            }
        }
        for key in stuck {
            self.disconnected(key, Some(TIMED_OUT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until something is stuck, at most so many.
    fn looks(watched: &mut Watched, over: impl Fn(u8) -> u64, under_way: bool) -> Option<u8> {
        (1..=100).find(|look| watched.is_stuck(over(*look), under_way))
    }

    #[test]
    fn what_does_not_end_is_stuck_after_two_minutes_and_what_goes_on_never() {
        let mut watched = Watched::default();
        assert_eq!(looks(&mut watched, |_| 0, true), Some(STUCK_MAX + 1));
        assert!(!watched.is_stuck(1, true), "one has ended");
        assert_eq!(looks(&mut watched, |look| 1 + u64::from(look / 12), true), None);
        assert_eq!(looks(&mut watched, |_| 9, false), None, "nothing is under way");
    }
}
