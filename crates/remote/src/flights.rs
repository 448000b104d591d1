// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations that are under way at the initiator, and the thread that brings their ends back.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use initiator::Chunks;
use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Error;
use initiator::Fate;
use initiator::Kind;
use initiator::Operation;
use initiator::PathChange;
use slab::Slab;
use store::Op;
use store::foreign::Completer;

use crate::limits;
use crate::outcome;

/// The tag of what ends the thread, and that of what happens to the disk.
const LAST: u64 = u64::MAX;
const NEWS: u64 = u64::MAX - 1;

/// What the reactors and the thread share.
#[derive(Debug)]
pub(crate) struct Flights {
    queue: CompletionQueue,
    /// Under their tags.
    under_way: Mutex<Slab<Flight>>,
    state: Mutex<State>,
    /// Whether it has told of a volatile cache, at first and last.
    is_told_volatile: bool,
    is_volatile: AtomicBool,
    /// For messages.
    place: String,
}

#[derive(Debug)]
struct Flight {
    op: Op,
    completer: Completer,
    /// Changes that had ended when it began.
    changes: u64,
}

/// What is known of the disk.
#[derive(Debug)]
struct State {
    /// Changes that have ended, and how many of them were flushed.
    changes: u64,
    flushed: u64,
    /// Since when there is no session.
    lost: Option<Instant>,
    /// It is let go on this side.
    is_leaving: bool,
    /// The session is being ended: what it had under way is told to have ended.
    is_ending: bool,
    /// The session is over for good.
    is_over: bool,
    /// The disk behind the LUN is another one.
    is_replaced: bool,
    /// The gateways behind which it is, of those at the other target, as far as is known.
    behind: Vec<u64>,
    /// Others may be behind it since that was asked.
    may_be_moved: bool,
    /// It leads back to this one.
    is_circle: bool,
    /// Something that was acknowledged may be lost.
    has_lost: bool,
    /// It has a volatile cache, or may have had one since it was reset: it has not told yet.
    may_be_volatile: bool,
}

impl Flights {
    /// Of `disk`, called `place`. The thread ends with [`land`](Self::land).
    ///
    /// # Errors
    /// There is no descriptor or no thread left.
    pub(crate) fn start(disk: &Disk, place: String) -> Result<Arc<Self>, Error> {
        let state = State {
            changes: 0,
            flushed: 0,
            lost: None,
            is_leaving: false,
            is_ending: false,
            is_over: false,
            is_replaced: false,
            behind: Vec::new(),
            may_be_moved: false,
            is_circle: false,
            has_lost: false,
            may_be_volatile: disk.geometry().volatile_cache,
        };
        let queue = CompletionQueue::new()?;
        disk.watch(&queue, NEWS);
        let (under_way, state) = (Mutex::default(), Mutex::new(state));
        let is_told_volatile = disk.geometry().volatile_cache;
        let is_volatile = AtomicBool::new(is_told_volatile);
        let flights =
            Arc::new(Self { queue, under_way, state, is_told_volatile, is_volatile, place });
        let theirs = Arc::clone(&flights);
        thread::Builder::new().name("remote".into()).spawn(move || theirs.bring_back())?;
        Ok(flights)
    }

    /// Begins `operation`, which is `op`; its end goes to `completer`.
    pub(crate) fn begin(&self, disk: &Disk, op: &Op, operation: Operation, completer: Completer) {
        let changes = self.state().changes;
        let tag = self.under_way().insert(Flight { op: op.clone(), completer, changes });
        if let Err(error) = disk.submit(&self.queue, tag as u64, operation) {
            self.ended(tag as u64, Err(error));
        }
    }

    /// That the session ends is no news from now on.
    pub(crate) fn leave(&self) {
        self.state().is_leaving = true;
    }

    /// The session is ended from now on.
    pub(crate) fn end(&self) {
        self.state().is_ending = true;
    }

    /// The thread ends when all that is under way has ended.
    pub(crate) fn land(&self, disk: &Disk) {
        // Whether it is flushed or fails: an answer comes.
        if disk.submit(&self.queue, LAST, Operation::Flush).is_err() {
            tracing::debug!(disk = self.place, "the initiator has gone before its disk");
        }
    }

    /// There has been no session for `patience`, or there will be none.
    pub(crate) fn is_lost(&self, patience: Duration) -> bool {
        let state = self.state();
        state.is_over || state.lost.is_some_and(|since| since.elapsed() >= patience)
    }

    /// The session is lost, and may have, or carry out when it is back, what changes the disk.
    pub(crate) fn may_change_late(&self) -> bool {
        let state = self.state();
        let (is_lost, is_ending) = (state.lost.is_some() && !state.is_over, state.is_ending);
        drop(state);
        is_lost && (is_ending || self.is_changing())
    }

    /// What changes the disk is under way.
    pub(crate) fn is_changing(&self) -> bool {
        self.under_way().iter().any(|(_, flight)| flight.op.changes())
    }

    /// Nothing will be taken any more, until the disk is opened again.
    pub(crate) fn is_shut_out(&self) -> bool {
        let state = self.state();
        state.is_over || state.is_replaced || state.is_circle
    }

    /// Something was changed that was not flushed.
    pub(crate) fn is_dirty(&self) -> bool {
        let state = self.state();
        state.changes != state.flushed
    }

    /// Whether what has ended until now, and no flush has covered, may be in a volatile cache.
    pub(crate) fn may_be_volatile(&self) -> bool {
        self.state().may_be_volatile
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.state().is_replaced
    }

    /// Which gateways are behind it.
    pub(crate) fn behind(&self) -> Vec<u64> {
        self.state().behind.clone()
    }

    /// Whether that is to be asked again; true once.
    pub(crate) fn take_move(&self) -> bool {
        std::mem::take(&mut self.state().may_be_moved)
    }

    /// The gateways behind it are these. True: `own` is one of them.
    pub(crate) fn is_circle(&self, own: u64, behind: Vec<u64>) -> bool {
        let is_circle = behind.contains(&own) || behind.len() >= limits::GATEWAYS_MAX;
        let mut state = self.state();
        state.behind = behind;
        state.behind.truncate(limits::GATEWAYS_MAX);
        let was_circle = std::mem::replace(&mut state.is_circle, is_circle);
        drop(state);
        if is_circle && !was_circle {
            tracing::error!(
                disk = self.place,
                "the disk leads back to this one: gateways serve each other's disk in a circle, \
                 and all commands fail until it is opened again; try: serve another disk in one of \
                 them"
            );
        }
        is_circle
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.state().has_lost
    }

    /// What was acknowledged may be lost: flushes fail until the disk is opened again.
    pub(crate) fn lose(&self) {
        self.state().has_lost = true;
    }

    /// Takes note of an error that says more than that an operation failed.
    pub(crate) fn note(&self, error: &Error) {
        match error.kind() {
            Kind::WritesLost | Kind::CannotFlush => {
                let first = !std::mem::replace(&mut self.state().has_lost, true);
                if first {
                    tracing::error!(disk = self.place, "{error}: its flushes fail from now on");
                }
            }
            Kind::OtherDisk { .. } => {
                let first = !std::mem::replace(&mut self.state().is_replaced, true);
                if first {
                    tracing::error!(disk = self.place, "{error}");
                }
            }
            _ => {}
        }
    }

    fn bring_back(&self) {
        let mut ready = Vec::new();
        loop {
            if self.queue.reap_all(&mut ready) == 0 {
                // May end early.
                let _ = self.queue.wait(None);
            }
            let mut is_last = false;
            for entry in ready.drain(..) {
                match entry {
                    Completion::Ended { tag: LAST, .. } => is_last = true,
                    Completion::Ended { tag, result } => self.ended(tag, result),
                    Completion::Event { event, .. } => self.happened(&event),
                    _ => {}
                }
            }
            if is_last {
                return;
            }
        }
    }

    fn ended(&self, tag: u64, result: Result<Chunks, Error>) {
        let place = usize::try_from(tag).unwrap_or(usize::MAX);
        let flight = self.under_way().try_remove(place);
        let Some(Flight { op, mut completer, changes }) = flight else { return };
        if op.changes() {
            self.state().changes += 1;
        } else if matches!((&op, &result), (Op::Flush, Ok(_))) {
            let mut state = self.state();
            state.flushed = state.flushed.max(changes);
        }
        match result {
            Ok(chunks) if chunks.bytes() == completer.room().len() => {
                chunks.copy_to(completer.room());
                completer.complete(Ok(()));
            }
            Ok(_) => completer.complete(Err(store::Error::Read)),
            Err(error) => {
                self.note(&error);
                tracing::debug!(disk = self.place, what = op.name(), "{error}");
                completer.complete_with(outcome::failed(&op, &error));
            }
        }
    }

    fn happened(&self, event: &DiskEvent) {
        let disk = &self.place;
        match event {
            DiskEvent::Lost(error) => {
                let mut state = self.state();
                if state.lost.is_none() {
                    state.lost = Some(Instant::now());
                    drop(state);
                    tracing::warn!(disk, "{error}: commands wait until there is a session again");
                }
            }
            DiskEvent::Back => {
                let mut state = self.state();
                (state.lost, state.may_be_moved) = (None, true);
                drop(state);
                tracing::info!(disk, "the session is back");
            }
            DiskEvent::Ended(error) => {
                let mut state = self.state();
                state.is_over = true;
                if state.is_leaving {
                    return;
                }
                drop(state);
                tracing::error!(disk, "{error}: all commands fail until it is opened again");
            }
            DiskEvent::Path { path, change } => {
                let path = path + 1;
                match change {
                    PathChange::Lost(error) => {
                        tracing::warn!(disk, path, "a path is lost, and is tried again: {error}");
                    }
                    PathChange::Back => tracing::info!(disk, path, "a path is used"),
                    PathChange::Refused(error) => {
                        tracing::warn!(disk, path, "a path is not used: {error}");
                    }
                    change => tracing::info!(disk, path, "a path has changed: {change:?}"),
                }
            }
            // Comes before the end of whatever was carried out after that.
            DiskEvent::MayHaveLost(Fate::Reset) => {
                let mut state = self.state();
                (state.may_be_volatile, state.may_be_moved) = (true, true);
            }
            // REPORTED LUNS DATA HAS CHANGED, INQUIRY DATA HAS CHANGED.
            DiskEvent::Attention(sense)
                if matches!((sense.asc, sense.ascq), (0x3f, 0x03 | 0x0e)) =>
            {
                self.state().may_be_moved = true;
            }
            DiskEvent::Cache { volatile } => {
                self.state().may_be_volatile = *volatile;
                let was = self.is_volatile.swap(*volatile, Ordering::AcqRel);
                if *volatile && !was && !self.is_told_volatile {
                    tracing::warn!(
                        disk,
                        "the disk has a volatile cache now, and had none when it was opened: each \
                         write is flushed, as hosts were told that there is none; open it again \
                         and they flush themselves"
                    );
                }
            }
            DiskEvent::Resized { was, now } => {
                tracing::info!(disk, was, now, "the disk has another size");
            }
            _ => {}
        }
    }

    fn under_way(&self) -> MutexGuard<'_, Slab<Flight>> {
        // What the locks guard is whole between any two statements.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
