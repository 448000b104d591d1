// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is looked at now and then: memory that nobody needs, and connections that take nothing.

use std::time::Duration;

use buf::Trimmed;
use engine::Port;

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
/// is cut: its initiator does not read, whatever it may still send. A line of 10 kB/s takes one.
const STUCK_MAX: u8 = 12;

/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;

/// What a connection has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sends {
    count: u32,
    /// `count` at the last look.
    seen: u32,
    /// Looks since it changed, with something under way.
    stuck: u8,
}

impl Sends {
    /// A list of PDUs has left.
    pub(super) fn count(&mut self) {
        self.count = self.count.wrapping_add(1);
    }

    /// True if nothing has left for too long.
    fn is_stuck(&mut self, under_way: bool) -> bool {
        let moved = std::mem::replace(&mut self.seen, self.count) != self.count;
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
            let under_way = connection.line.is_busy();
            if connection.sends.is_stuck(under_way)
                && matches!(connection.phase, Phase::Session { .. })
            {
                stuck.push(key);
            }
        }
        for key in stuck {
            self.disconnected(key, Some(TIMED_OUT));
        }
    }
}
