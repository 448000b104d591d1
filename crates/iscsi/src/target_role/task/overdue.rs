// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that was asked for, or announced, and does not come (RFC 7143 §7.8).
//!
//! The mover is asked to look at intervals: a burst to which nothing came between two looks has
//! ended in error. At ErrorRecoveryLevel 0 that ends its command, so that no initiator holds
//! buffers, and the task sets of its units, for as long as it likes; above that it is asked for
//! again (`recovery`), several times. On a slow line the last one of many waits long for its turn.
//! So the look is put off while so much comes that the line is one, until twice as much has come as
//! was waited for; and at level 0 for some time while other bursts of the session come to their
//! ends, however small they are.

use crate::target_role::limits;
use clock::Instant;
use core::time::Duration;

/// When data that does not come is looked for next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    at: Option<Instant>,
    /// What ends does not put it off beyond this.
    latest: Instant,
    /// When it was planned or put off by what came, and what had come by then, bytes.
    from: Instant,
    before: u64,
    /// That does not put it off beyond this; known when it was due first.
    until: Option<u64>,
    /// What has come on all connections as far as is known, bytes.
    received: u64,
    /// What is lost is asked for again.
    recovers: bool,
}

impl Look {
    pub(super) fn new(recovers: bool) -> Self {
        let (latest, from) = (Instant::default(), Instant::default());
        Self { at: None, latest, from, before: 0, until: None, received: 0, recovers }
    }

    /// So much has come on all connections, in bytes.
    pub(super) fn note_received(&mut self, received: u64) {
        self.received = received;
    }

    /// Data is on its way from now on.
    #[inline]
    pub(super) fn expect(&mut self, now: Instant) {
        if self.at.is_none() {
            self.at = Some(now + self.wait());
            self.latest = now + limits::DATA_WAIT_MAX;
            (self.from, self.before, self.until) = (now, self.received, None);
        }
    }

    /// A burst has come.
    #[inline]
    pub(super) fn came(&mut self, now: Instant) {
        if let Some(at) = &mut self.at
            && !self.recovers
        {
            *at = (now + limits::DATA_WAIT).min(self.latest);
        }
    }

    /// True, once, when it is time to look; [expect](Self::expect) what is still open. `open`: the
    /// bytes that the tasks with data on its way take.
    pub(super) fn take_due(&mut self, now: Instant, open: impl FnOnce() -> u64) -> bool {
        if self.at.is_none_or(|at| at > now) {
            return false;
        }
        let came = self.received.saturating_sub(self.before);
        let waited = now.since(self.from).max(self.wait()).as_secs();
        let received = self.received;
        let until = *self.until.get_or_insert_with(|| received.saturating_add(open() * 2));
        let is_slow = came >= limits::DATA_RATE_MIN.saturating_mul(waited) && received < until;
        self.at = is_slow.then(|| now + self.wait());
        (self.from, self.before) = (now, received);
        !is_slow
    }

    /// How long a burst may stay silent.
    const fn wait(&self) -> Duration {
        if self.recovers { limits::SEQUENCE_WAIT } else { limits::DATA_WAIT }
    }

    pub(super) const fn at(&self) -> Option<Instant> {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_put_off_at_level_0_alone_and_not_for_ever() {
        let start = Instant(0);
        for (recovers, wait) in [(false, limits::DATA_WAIT), (true, limits::SEQUENCE_WAIT)] {
            let mut look = Look::new(recovers);
            look.expect(start);
            assert_eq!(look.at(), Some(start + wait));
            let later = start + limits::SEQUENCE_WAIT / 2;
            look.came(later);
            assert_eq!(look.at(), Some(if recovers { start } else { later } + wait));
        }
        let mut look = Look::new(false);
        look.expect(start);
        look.came(start + limits::DATA_WAIT_MAX);
        assert_eq!(look.at(), Some(start + limits::DATA_WAIT_MAX));
        let due = start + limits::DATA_WAIT_MAX;
        assert!(!look.take_due(start, || 0) && look.take_due(due, || 1 << 20));
        assert_eq!(look.at(), None);
    }

    #[test]
    fn a_look_is_put_off_while_a_slow_line_brings_what_was_waited_for() {
        let mut look = Look::new(false);
        look.expect(Instant(0));
        let (wait, open) = (limits::DATA_WAIT, 4 << 20);
        let rate = limits::DATA_RATE_MIN * wait.as_secs();
        let mut now = Instant(0);
        for received in [rate, 2 * rate, 3 * rate] {
            now = now + wait;
            look.note_received(received);
            assert!(!look.take_due(now, || open), "{received}");
            assert_eq!(look.at(), Some(now + wait));
        }
        now = now + wait;
        look.note_received(4 * rate - 1);
        assert!(look.take_due(now, || open));
    }
}
