// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakes a sleeping port from another thread; costs no system call while the port is awake.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;

/// Wakes a port from another thread; cheap to clone, coalesces.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

impl Waker {
    /// Of a port that has no kernel to sleep in: it asks [`Waker::answer`] instead.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> io::Result<Self> {
        Bell::new().map(Self)
    }

    /// The port: true if somebody called `wake` since the last time.
    #[must_use]
    pub fn answer(&self) -> bool {
        self.0.answer().has(Reason::Wake)
    }

    /// Makes the port give one `Event::Woken`; many calls before that give one.
    pub fn wake(&self) {
        self.0.ring(Reason::Wake);
    }
}

/// Why a bell is rung.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// Somebody called `Waker::wake`.
    Wake = 1,
    /// A file thread has finished work.
    Files = 2,
    /// A ring has what its reader wants.
    Ring = 4,
}

/// Reasons that were given since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rung(u32);

impl Rung {
    pub(crate) const fn has(self, reason: Reason) -> bool {
        self.0 & reason as u32 != 0
    }
}

/// A word that holds what happened, and an eventfd that interrupts the sleep of the port.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicU32,
    fd: OwnedFd,
}

/// The port sleeps or is about to: a ringer must write to the eventfd.
const SLEEPING: u32 = 1 << 31;

impl Bell {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { state: AtomicU32::new(0), fd }))
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker(Arc::clone(self))
    }

    /// Any thread: notes `reason` and ends the sleep of the port.
    pub(crate) fn ring(&self, reason: Reason) {
        let before = self.state.fetch_or(reason as u32, Ordering::SeqCst);
        if before & SLEEPING != 0 && before & reason as u32 == 0 {
            // Ports that never read the counter would need 2^64 calls to make it overflow.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The port: true if somebody rang. Cheap enough for a spin loop.
    pub(crate) fn is_rung(&self) -> bool {
        self.state.load(Ordering::Acquire) & !SLEEPING != 0
    }

    /// The port: takes the reasons.
    pub(crate) fn answer(&self) -> Rung {
        if !self.is_rung() {
            return Rung(0);
        }
        Rung(self.state.swap(0, Ordering::SeqCst) & !SLEEPING)
    }

    /// The port, before it sleeps: false if somebody rang, so that it must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state.compare_exchange(0, SLEEPING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The port, between `fall_asleep` and `wake_up`, if it sleeps in no other way: until somebody
    /// rings, at most `timeout` (None: for ever).
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut looked_at = [PollFd::new(&self.fd, PollFlags::IN)];
        // A signal or an error just ends the sleep. What a late ringer still writes ends the next.
        if rustix::event::poll(&mut looked_at, timeout.as_ref()).is_ok_and(|ready| ready > 0) {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }

    /// The port, after it slept.
    pub(crate) fn wake_up(&self) {
        self.state.fetch_and(!SLEEPING, Ordering::SeqCst);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(bell: &Bell) -> Option<u64> {
        let mut bytes = [0; 8];
        rustix::io::read(bell, &mut bytes).ok().map(|_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn only_a_sleeper_costs_a_system_call_and_only_one() {
        let bell = Bell::new().unwrap();
        let waker = bell.waker();
        waker.wake();
        assert!(bell.is_rung());
        assert!(!bell.fall_asleep());
        assert_eq!(counter(&bell), None);
        assert!(bell.answer().has(Reason::Wake));
        assert!(!bell.answer().has(Reason::Wake));
        assert!(bell.fall_asleep());
        waker.wake();
        waker.clone().wake();
        assert_eq!(counter(&bell), Some(1));
        bell.wake_up();
        let rung = bell.answer();
        assert!(rung.has(Reason::Wake));
        assert!(!rung.has(Reason::Files));
    }
}
