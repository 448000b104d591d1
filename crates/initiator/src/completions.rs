// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A completion queue: what has ended, and what has happened to disks, behind one descriptor.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use engine::Signal;
use engine::Waker;
use wire::scsi::Sense;

use crate::Chunks;
use crate::Error;
use crate::Fate;
use crate::PathChange;
use crate::limits;
use crate::session::lock;

/// Where the ends of operations gather ([`Disk::submit`](crate::Disk::submit)), and the events of
/// disks ([`Disk::watch`](crate::Disk::watch)), with a descriptor to wait on.
///
/// It takes no more locks and allocates no more memory for each operation when there are thousands
/// under way: it is for servers that have a poll loop. Clones are the same queue; several threads
/// may reap it.
///
/// The descriptor (of a queue that wakes no port) is readable while there is something to reap, and
/// after that until a call of
/// [`CompletionQueue::reap`] or [`CompletionQueue::reap_all`] has found nothing. So reap until
/// nothing is there, then wait. Its bytes are the queue's own: poll it, but do not read it.
///
/// ```
/// use lunwire_initiator::Completion;
/// use lunwire_initiator::CompletionQueue;
/// use lunwire_initiator::Disk;
/// use lunwire_initiator::Error;
/// use lunwire_initiator::Operation;
///
/// /// Reads the start of a disk, 4 KiB at a time, all at once.
/// fn read(disk: &Disk, count: u64) -> Result<usize, Error> {
///     let queue = CompletionQueue::new()?;
///     for tag in 0..count {
///         disk.submit(&queue, tag, Operation::read(tag * 4096, 4096))?;
///     }
///     let (mut entries, mut left, mut bytes) = (Vec::new(), count, 0);
///     while left > 0 {
///         if queue.reap_all(&mut entries) == 0 {
///             // Or poll, epoll, io_uring: `queue` is `AsFd`.
///             let _ = queue.wait(None);
///         }
///         for entry in entries.drain(..) {
///             if let Completion::Ended { result, .. } = entry {
///                 (left, bytes) = (left - 1, bytes + result?.bytes());
///             }
///         }
///     }
///     Ok(bytes)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CompletionQueue(pub(crate) Arc<Shared>);

/// One entry of a completion queue.
#[derive(Debug)]
#[non_exhaustive]
pub enum Completion {
    /// An operation has ended.
    Ended {
        /// As it was submitted.
        tag: u64,
        /// How; with the data of a read.
        result: Result<Chunks, Error>,
    },
    /// Something has happened to a disk.
    Event {
        /// As it is watched.
        tag: u64,
        /// What.
        event: DiskEvent,
    },
}

/// What happens to a disk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DiskEvent {
    /// It has another size.
    Resized {
        /// Bytes before.
        was: u64,
        /// Bytes now: operations are held against it from now on.
        now: u64,
    },
    /// The unit has told of a change (SPC-4 §5.14). What it has besides a size may be another;
    /// [`Disk::learn`](crate::Disk::learn) asks for it.
    Attention(Sense),
    /// The unit may have lost what it had acknowledged and not brought to stable storage: it was
    /// reset or began anew ([`Fate::Reset`]), or told that it failed to keep something
    /// ([`Fate::Failed`]). Comes before the end of any operation that was carried out after that.
    MayHaveLost(Fate),
    /// The unit has told anew whether it has a volatile cache. It is asked whenever it may have
    /// lost something by a reset, and in each new session.
    Cache {
        /// Whether writes are acknowledged before they are on stable storage.
        volatile: bool,
    },
    /// The session was lost, and another one is being made; operations wait.
    Lost(Error),
    /// There is a session again, and operations go on.
    Back,
    /// One of several paths to it is lost, back, or in another state; operations go on.
    Path {
        /// Which one, counted from zero.
        path: usize,
        /// What has happened to it.
        change: PathChange,
    },
    /// The session is over; operations fail from now on.
    Ended(Error),
}

/// What reaper and server share.
#[derive(Debug)]
pub(crate) struct Shared {
    entries: Mutex<Entries>,
    signal: Signal,
    /// A port that is woken besides.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Entries {
    ready: VecDeque<Completion>,
    /// How many of them may be missed.
    missable: usize,
    /// The descriptor is readable.
    raised: bool,
}

impl CompletionQueue {
    /// An empty one.
    ///
    /// # Errors
    /// [`Kind::System`](crate::Kind) if there is no descriptor left.
    pub fn new() -> Result<Self, Error> {
        Self::with(None)
    }

    /// An empty one of whoever sleeps in a port: that is woken, which costs no system call while it
    /// is awake.
    ///
    /// # Errors
    /// As for `new`.
    pub fn waking(waker: Waker) -> Result<Self, Error> {
        Self::with(Some(waker))
    }

    fn with(waker: Option<Waker>) -> Result<Self, Error> {
        let signal = Signal::new()?;
        Ok(Self(Arc::new(Shared { entries: Mutex::default(), signal, waker })))
    }

    /// The next entry, without waiting.
    #[must_use]
    pub fn reap(&self) -> Option<Completion> {
        let mut entries = lock(&self.0.entries);
        let entry = entries.ready.pop_front();
        match &entry {
            Some(entry) => entries.missable -= usize::from(entry.may_be_missed()),
            None => self.0.lower(&mut entries),
        }
        entry
    }

    /// Moves all entries to the end of `to`, without waiting; gives their number.
    pub fn reap_all(&self, to: &mut Vec<Completion>) -> usize {
        let mut entries = lock(&self.0.entries);
        let count = entries.ready.len();
        if count == 0 {
            self.0.lower(&mut entries);
        }
        to.extend(entries.ready.drain(..));
        entries.missable = 0;
        count
    }

    /// Ends waits, of all threads: the descriptor is readable until a reaper has found nothing.
    pub fn interrupt(&self) {
        let mut entries = lock(&self.0.entries);
        if !entries.raised {
            entries.raised = true;
            self.0.wake();
        }
    }

    /// Waits until its descriptor is readable, at most for `timeout`; None: for ever. False: it is
    /// not. May end early, with nothing to reap.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.0.signal.wait(timeout)
    }
}

impl Completion {
    /// Whether it is about what comes and goes: what counts then is what was told last.
    const fn may_be_missed(&self) -> bool {
        use DiskEvent as E;
        let Self::Event { event, .. } = self else { return false };
        !matches!(event, E::MayHaveLost(_) | E::Ended(_))
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.signal.as_fd()
    }
}

impl Shared {
    /// The server: it raises the signal when it has told all that it has to tell. Who does not reap
    /// misses the oldest of many events, since a target may cause any number.
    pub(crate) fn push(&self, entry: Completion) {
        let mut entries = lock(&self.entries);
        if entry.may_be_missed() {
            let is_full = entries.missable == limits::EVENTS_MAX;
            let oldest = is_full.then(|| entries.ready.iter().position(Completion::may_be_missed));
            match oldest.flatten() {
                Some(oldest) => drop(entries.ready.remove(oldest)),
                None => entries.missable += 1,
            }
        }
        entries.ready.push_back(entry);
    }

    /// The server, after entries were pushed.
    pub(crate) fn raise(&self) {
        let mut entries = lock(&self.entries);
        if !entries.raised && !entries.ready.is_empty() {
            entries.raised = true;
            self.wake();
        }
    }

    fn wake(&self) {
        match &self.waker {
            Some(waker) => waker.wake(),
            None => self.signal.raise(),
        }
    }

    fn lower(&self, entries: &mut Entries) {
        if std::mem::take(&mut entries.raised) && self.waker.is_none() {
            self.signal.lower();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_woken_once_until_nothing_was_found() {
        let waker = Waker::new().expect("a descriptor");
        let queue = CompletionQueue::waking(waker.clone()).expect("a descriptor");
        let mut entries = Vec::new();
        for tag in [1, 2] {
            queue.0.push(Completion::Ended { tag, result: Ok(Chunks::default()) });
            queue.0.raise();
            assert_eq!(waker.answer(), tag == 1);
        }
        assert_eq!((queue.reap_all(&mut entries), queue.reap_all(&mut entries)), (2, 0));
        queue.0.push(Completion::Event { tag: 3, event: DiskEvent::Back });
        queue.0.raise();
        assert!(waker.answer());
    }

    #[test]
    fn a_target_does_not_fill_a_queue_that_nobody_reaps() {
        let queue = CompletionQueue::new().expect("a descriptor");
        let push = |tag, event| queue.0.push(Completion::Event { tag, event });
        push(0, DiskEvent::MayHaveLost(Fate::Reset));
        for tag in 1..3 * limits::EVENTS_MAX as u64 {
            push(tag, DiskEvent::Back);
        }
        queue.0.push(Completion::Ended { tag: 0, result: Ok(Chunks::default()) });
        let first = queue.reap();
        assert!(matches!(first, Some(Completion::Event { tag: 0, .. })), "not to be missed");
        assert!(matches!(queue.reap(), Some(Completion::Event { .. })));
        push(u64::MAX, DiskEvent::Back);
        push(u64::MAX, DiskEvent::Back);
        let mut entries = Vec::new();
        assert_eq!(queue.reap_all(&mut entries), limits::EVENTS_MAX + 1);
        let oldest = entries.first().expect("many");
        let place = 2 * limits::EVENTS_MAX as u64 + 2;
        assert!(matches!(oldest, Completion::Event { tag, .. } if *tag == place), "{oldest:?}");
    }

    #[test]
    fn the_descriptor_is_readable_until_nothing_was_found() {
        let queue = CompletionQueue::new().expect("a descriptor");
        let now = Some(Duration::ZERO);
        assert!(!queue.wait(now));
        for tag in [1, 2] {
            queue.0.push(Completion::Ended { tag, result: Ok(Chunks::default()) });
        }
        assert!(!queue.wait(now), "all are told at once");
        queue.0.raise();
        assert!(queue.wait(now));
        let mut entries = Vec::new();
        assert_eq!(queue.reap_all(&mut entries), 2);
        assert!(queue.wait(now), "more may have come");
        assert_eq!(queue.reap_all(&mut entries), 0);
        assert!(!queue.wait(now));
        queue.0.raise();
        assert!(!queue.wait(now), "there is nothing");
        queue.interrupt();
        assert!(queue.wait(now) && queue.reap().is_none() && !queue.wait(now));
        queue.0.push(Completion::Event { tag: 3, event: DiskEvent::Back });
        queue.0.raise();
        assert!(queue.wait(now) && queue.reap().is_some() && queue.reap().is_none());
        assert!(!queue.wait(now));
    }
}
