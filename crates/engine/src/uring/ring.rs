// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ring itself: submissions with keys, completions, waiting.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::io::ErrorKind;
use std::time::Duration;

use io_uring::IoUring;
use io_uring::cqueue;
use io_uring::opcode;
use io_uring::squeue;
use io_uring::types::CancelBuilder;
use io_uring::types::SubmitArgs;
use io_uring::types::Timespec;

use crate::cycles;
use crate::limits::COMPLETIONS;
use crate::limits::SUBMISSIONS;
use crate::receive::ReceiveBuffers;

/// What a submission was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bell,
    Accept,
    Receive,
    Send,
    File,
    /// Cancels all work of a socket that is being closed.
    Cancel,
    /// Cancels a receive.
    Pause,
    /// Looks whether a descriptor can be read.
    Watch,
}

/// What tells completions apart: a kind and an index into the table of the kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u64);

const KIND_SHIFT: u32 = 56;
const INDEX_MASK: u64 = (1 << KIND_SHIFT) - 1;

impl Key {
    pub(super) const fn new(kind: Kind, index: usize) -> Self {
        Self((kind as u64) << KIND_SHIFT | (index as u64 & INDEX_MASK))
    }

    pub(super) const fn of(user_data: u64) -> Self {
        Self(user_data)
    }

    pub(super) const fn kind(self) -> Kind {
        match self.0 >> KIND_SHIFT {
            0 => Kind::Bell,
            1 => Kind::Accept,
            2 => Kind::Receive,
            3 => Kind::Send,
            4 => Kind::File,
            5 => Kind::Cancel,
            7 => Kind::Watch,
            _ => Kind::Pause,
        }
    }

    pub(super) fn index(self) -> usize {
        usize::try_from(self.0 & INDEX_MASK).expect("it was made from an usize")
    }

    pub(super) const fn user_data(self) -> u64 {
        self.0
    }
}

/// The group of the provided buffers; there is one.
pub(super) const BUFFER_GROUP: u16 = 0;

/// How a ring may be made, best first.
#[derive(Clone, Copy, Debug)]
enum Flavour {
    /// Completions are worked on when the thread asks (kernel 6.1).
    Deferred,
    /// Completions do not interrupt the thread (5.19).
    Cooperative,
}

/// A ring and the number of completions that it owes.
pub(super) struct Ring {
    ring: IoUring,
    flavour: Flavour,
    /// Submissions that found the queue full while the kernel was not taking any.
    backlog: VecDeque<squeue::Entry>,
    /// Submissions whose last completion has not been seen.
    owed: usize,
    /// Spent in system calls that do not sleep.
    cycles: u64,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("flavour", &self.flavour).field("owed", &self.owed).finish()
    }
}

impl Ring {
    /// A ring whose receives take from `buffers`, which outlive it.
    pub(super) fn new(buffers: &ReceiveBuffers, count: u16) -> io::Result<Self> {
        let (ring, flavour) = match build(Flavour::Deferred) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                (build(Flavour::Cooperative)?, Flavour::Cooperative)
            }
            made => (made?, Flavour::Deferred),
        };
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(ErrorKind::Unsupported.into());
        }
        let address = buffers.ring_address().ok_or(ErrorKind::InvalidInput)?;
        let submitter = ring.submitter();
        // SAFETY: `address` is that of `count` entries, page aligned; the port keeps the buffers,
        // and with them the entries, until after the ring is closed.
        unsafe { submitter.register_buf_ring_with_flags(address, count, BUFFER_GROUP, 0) }?;
        Ok(Self { ring, flavour, backlog: VecDeque::new(), owed: 0, cycles: 0 })
    }

    pub(super) const fn flavour(&self) -> &'static str {
        match self.flavour {
            Flavour::Deferred => "deferred task work, multishot receive, provided buffers",
            Flavour::Cooperative => "cooperative task work, multishot receive, provided buffers",
        }
    }

    /// Queues `entry` under `key`. What its addresses point to must stay until its last
    /// completion: callers keep it in the entry of `key`'s index.
    pub(super) fn push(&mut self, key: Key, entry: squeue::Entry) {
        self.owed += 1;
        let entry = entry.user_data(key.user_data());
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.submit();
            if !self.backlog.is_empty() || !self.try_push(&entry) {
                self.backlog.push_back(entry);
            }
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        let mut queue = self.ring.submission();
        // SAFETY: the callers of `push` keep what the entry points to, in tables of the port that
        // are emptied only by the last completion, or leaked.
        unsafe { queue.push(entry) }.is_ok()
    }

    /// Hands queued submissions to the kernel; no system call if there are none.
    pub(super) fn submit(&mut self) {
        loop {
            if !self.ring.submission().is_empty() {
                // What an error (EBUSY, EAGAIN, EINTR) leaves is handed over by the next call.
                if self.enter().is_err() {
                    return;
                }
            }
            if self.backlog.is_empty() {
                return;
            }
            while let Some(entry) = self.backlog.pop_front() {
                if !self.try_push(&entry) {
                    self.backlog.push_front(entry);
                    break;
                }
            }
        }
    }

    /// The system call that does not sleep.
    fn enter(&mut self) -> io::Result<usize> {
        let begun = cycles::glance();
        let entered = self.ring.submit();
        self.cycles = self.cycles.wrapping_add(cycles::glance().wrapping_sub(begun));
        entered
    }

    /// Counts of the time-stamp counter in system calls that do not sleep.
    pub(super) const fn cycles(&self) -> u64 {
        self.cycles
    }

    /// True if a completion can be popped. No system call unless the kernel says that it has
    /// completions to post.
    pub(super) fn has_completions(&mut self) -> bool {
        if !self.ring.completion().is_empty() {
            return true;
        }
        let queue = self.ring.submission();
        let flagged = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if flagged {
            let _ = self.enter();
        }
        flagged && !self.ring.completion().is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<cqueue::Entry> {
        let entry = self.ring.completion().next()?;
        if !cqueue::more(entry.flags()) {
            self.owed = self.owed.saturating_sub(1);
        }
        Some(entry)
    }

    /// Hands over what is queued and waits for `count` completions, at most `timeout`.
    pub(super) fn sleep(&self, timeout: Option<Duration>, count: usize) {
        let submitter = self.ring.submitter();
        // Errors (time is up, a signal, completions to be taken first) just end the sleep.
        let _ = match timeout {
            None => submitter.submit_and_wait(count),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                submitter.submit_with_args(count, &SubmitArgs::new().timespec(&time))
            }
        };
    }

    /// Cancels everything and waits until the kernel owes nothing.
    pub(super) fn quiesce(&mut self) -> io::Result<()> {
        // Never submitted, so nothing is owed for them.
        self.owed = self.owed.saturating_sub(self.backlog.len());
        self.backlog.clear();
        let mut errors = 0;
        let mut rounds = 0u32;
        while self.owed > 0 {
            // What was just being worked on cannot be cancelled: ask again from time to time.
            if rounds.is_multiple_of(CANCEL_EVERY) {
                let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
                self.push(Key::new(Kind::Pause, 0), cancel);
            }
            rounds = rounds.wrapping_add(1);
            let time = Timespec::from(QUIESCE_LOOK);
            let args = SubmitArgs::new().timespec(&time);
            match self.ring.submitter().submit_with_args(1, &args) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
                Err(error) if errors > QUIESCE_ERRORS_MAX => return Err(error),
                Err(_) => errors += 1,
            }
            while self.pop().is_some() {}
        }
        Ok(())
    }
}

/// How long to wait for completions before asking again.
const QUIESCE_LOOK: Duration = Duration::from_millis(10);

/// Looks between two cancellations.
const CANCEL_EVERY: u32 = 8;

/// A ring that refuses to be waited for this often will not be waited for.
const QUIESCE_ERRORS_MAX: u32 = 1000;

fn build(flavour: Flavour) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(COMPLETIONS).setup_submit_all().setup_taskrun_flag();
    match flavour {
        Flavour::Deferred => builder.setup_single_issuer().setup_defer_taskrun(),
        Flavour::Cooperative => builder.setup_coop_taskrun(),
    };
    builder.dontfork();
    builder.build(SUBMISSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_carry_kind_and_index() {
        for kind in [
            Kind::Bell,
            Kind::Accept,
            Kind::Receive,
            Kind::Send,
            Kind::File,
            Kind::Cancel,
            Kind::Pause,
        ] {
            let key = Key::of(Key::new(kind, 123_456).user_data());
            assert_eq!((key.kind(), key.index()), (kind, 123_456));
        }
    }
}
