// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flushes of an image, one after the other, and what they say of writes that were acknowledged.
//!
//! Ceph's client tells once that it could not write what it had acknowledged: to the flush that
//! comes next, whoever asked for it. So the library has one flush at a time; those that come
//! meanwhile ride together on the next one. One that fails is for everybody: flushes fail until
//! all that may be lost was written again and flushed ([`store::health`]), as those of a file do.
#![forbid(unsafe_code)]

use crate::flight::Counted;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use store::Error;
use store::foreign::Completer;
use store::health::Health;
use store::health::Verdict;
use store::health::Watch;
use store::health::Watched;

/// The flushes of one image.
#[derive(Debug)]
pub(crate) struct Flushes {
    health: Arc<Health>,
    /// Writes are acknowledged before the cluster has them.
    volatile: bool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// For the next one.
    waiting: Vec<Rider>,
    /// The one that the library has, and whom it is for.
    under_way: Option<Watch>,
    riding: Vec<Rider>,
}

/// Whoever has asked for a flush.
#[derive(Debug)]
pub(crate) struct Rider {
    pub(crate) completer: Completer,
    pub(crate) counted: Counted,
}

/// Whether the library is to be given a flush now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Begin,
    Nothing,
}

/// What a write needs to know when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// The failure before it, which it may repair.
    failure: Option<u64>,
}

impl Flushes {
    /// Of an image of `bytes`, which may lose what it has acknowledged if that is `volatile`.
    pub(crate) fn new(bytes: u64, block: u32, volatile: bool) -> Self {
        // One at a time: there is no other one to get the news.
        let health = Arc::new(Health::new(bytes, block, false));
        Self { health, volatile, queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // What the lock guards is whole between any two statements.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These bytes are about to change.
    pub(crate) fn note_begin(&self, offset: u64, length: u64) -> Noted {
        if self.volatile {
            self.health.note_write(offset, length);
        }
        Noted { failure: self.health.failure() }
    }

    /// They have changed.
    pub(crate) fn note_end(&self, noted: Noted, offset: u64, length: u64) {
        if let Some(failure) = noted.failure {
            self.health.note_rewrite(offset, length, failure);
        }
        if self.volatile {
            self.health.note_write(offset, length);
        }
    }

    /// What the client had is lost, and nobody can tell what that was: it fails for good. True if
    /// it had something, and had not failed before.
    pub(crate) fn lose_unknown(&self) -> bool {
        let before = self.health.has_failed();
        if self.volatile {
            self.health.lose_unknown();
        }
        self.volatile && !before
    }

    pub(crate) fn may_have_lost(&self) -> bool {
        self.health.has_failed()
    }

    /// Somebody wants a flush.
    pub(crate) fn join(&self, rider: Rider) -> Next {
        if self.health.has_failed() && !self.health.is_whole_again() {
            rider.completer.complete(Err(Error::Write));
            return Next::Nothing;
        }
        let mut queue = self.queue();
        queue.waiting.push(rider);
        self.board(&mut queue)
    }

    /// The flush that the library had is over. True if the image has failed by it.
    pub(crate) fn ended(&self, result: Result<(), Error>) -> (Next, bool) {
        let mut queue = self.queue();
        let Some(mut watch) = queue.under_way.take() else { return (Next::Nothing, false) };
        let failed = watch.end(result.is_ok());
        if result.is_ok() && watch.verdict() == Verdict::Repaired {
            tracing::info!("what an image of Ceph may have lost was written again and flushed");
        }
        let riders = std::mem::take(&mut queue.riding);
        let next = self.board(&mut queue);
        drop(queue);
        let result = if self.health.has_failed() { result.and(Err(Error::Write)) } else { result };
        for Rider { completer, counted } in riders {
            completer.complete(result);
            drop(counted);
        }
        (next, failed)
    }

    fn board(&self, queue: &mut Queue) -> Next {
        if queue.under_way.is_some() || queue.waiting.is_empty() {
            return Next::Nothing;
        }
        queue.riding = std::mem::take(&mut queue.waiting);
        queue.under_way = Some(Watch::begin(&self.health, Watched::Sync));
        Next::Begin
    }
}
