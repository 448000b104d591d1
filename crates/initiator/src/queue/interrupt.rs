// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a program ends a call that waits.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Instant;
use engine::Waker;

/// Ends the calls of a [`Queue`](crate::Queue) that wait for an answer, from another thread, such
/// as one that hears of signals: those under way and those that come later give
/// [`Kind::Interrupted`](crate::Kind::Interrupted). What was posted goes on; whoever wants an end
/// of that too calls [`Queue::leave`](crate::Queue::leave) then.
#[derive(Clone, Debug)]
pub struct InterruptHandle {
    asked: Arc<AtomicBool>,
    waker: Waker,
}

impl InterruptHandle {
    /// Asks for an end of all waiting, until [`Queue::resume_for`](crate::Queue::resume_for).
    pub fn interrupt(&self) {
        self.asked.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// What the queue knows of it.
#[derive(Debug, Default)]
pub(super) struct Interrupt {
    asked: Arc<AtomicBool>,
    /// How long calls go on then.
    pub(super) grace: Duration,
    /// When calls end.
    limit: Option<Instant>,
}

impl Interrupt {
    pub(super) fn handle(&self, waker: Waker) -> InterruptHandle {
        InterruptHandle { asked: Arc::clone(&self.asked), waker }
    }

    /// Whether nothing is waited for any more.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        if self.asked.load(Ordering::Acquire) {
            let end = now + self.grace;
            self.limit = Some(self.limit.map_or(end, |limit| limit.min(end)));
        }
        self.limit.is_some_and(|limit| limit <= now)
    }

    /// When to look again, whatever happens.
    pub(super) const fn limit(&self) -> Option<Instant> {
        self.limit
    }

    pub(super) fn resume(&mut self, limit: Instant) {
        self.asked.store(false, Ordering::Release);
        self.limit = Some(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn calls_go_on_as_long_as_they_are_given() {
        let mut interrupt = Interrupt::default();
        let begin = Instant::default();
        assert!(!interrupt.is_over(begin) && interrupt.limit().is_none());
        let handle = interrupt.handle(Waker::new().expect("a descriptor"));
        interrupt.grace = SECOND * 2;
        handle.interrupt();
        assert!(!interrupt.is_over(begin));
        assert_eq!(interrupt.limit(), Some(begin + SECOND * 2));
        // Whoever comes later has no time of his own.
        assert!(!interrupt.is_over(begin + SECOND) && interrupt.is_over(begin + SECOND * 2));
        interrupt.resume(begin + SECOND * 5);
        assert!(!interrupt.is_over(begin + SECOND * 4) && interrupt.is_over(begin + SECOND * 5));
        interrupt.resume(begin + SECOND * 9);
        interrupt.grace = Duration::ZERO;
        handle.interrupt();
        assert!(interrupt.is_over(begin + SECOND * 6), "it was asked for again");
    }
}
