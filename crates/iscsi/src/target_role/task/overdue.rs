// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that was asked for, or announced, and does not come (RFC 7143 §7.8).
//!
//! The mover is asked to look at intervals: a burst to which nothing came between two looks has
//! ended in error. At ErrorRecoveryLevel 0 that ends its command, so that no initiator holds
//! buffers, and the task sets of its units, for as long as it likes; above that it is asked for
//! again (`recovery`), several times. At level 0 the look is put off while other bursts of the
//! session come to their ends: on a slow line the last one of many waits long for its turn.

use crate::target_role::limits;
use clock::Instant;

/// When data that does not come is looked for next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    at: Option<Instant>,
    /// It is not put off beyond this.
    latest: Instant,
    /// What is lost is asked for again.
    recovers: bool,
}

impl Look {
    pub(super) fn new(recovers: bool) -> Self {
        Self { at: None, latest: Instant::default(), recovers }
    }

    /// Data is on its way from now on.
    #[inline]
    pub(super) fn expect(&mut self, now: Instant) {
        if self.at.is_none() {
            let wait = if self.recovers { limits::SEQUENCE_WAIT } else { limits::DATA_WAIT };
            self.at = Some(now + wait);
            self.latest = now + limits::DATA_WAIT_MAX;
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

    /// True, once, when it is time to look; [expect](Self::expect) what is still open.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
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
        assert!(!look.take_due(start) && look.take_due(start + limits::DATA_WAIT_MAX));
        assert_eq!(look.at(), None);
    }
}
