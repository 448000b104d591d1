// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A descriptor that is readable while there is something to fetch: for whoever waits in a poll
//! loop of their own.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;

/// An eventfd. Whoever raises and lowers it remembers which of them came last.
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    /// Not raised.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> io::Result<Self> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(fd))
    }

    /// From now on it is readable.
    pub fn raise(&self) {
        // It fails when the counter is at its end, and readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// From now on it is not.
    pub fn lower(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Waits until it is raised, at most for `timeout`; None: for ever. False: it is not. A signal
    /// to the process may end the wait early.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut looked_at = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut looked_at, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_readable_from_raise_to_lower() {
        let signal = Signal::new().expect("a descriptor");
        assert!(!signal.wait(Some(Duration::ZERO)));
        signal.raise();
        signal.raise();
        assert!(signal.wait(None) && signal.wait(None));
        signal.lower();
        assert!(!signal.wait(Some(Duration::from_millis(1))));
    }
}
