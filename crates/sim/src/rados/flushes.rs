// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flushes of an image, as `crates/rbd` has them: one at a time, since the client tells of a
//! failure once, to whichever comes next; and one that fails is for everybody ([`store::health`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use store::health::Health;
use store::health::Verdict;
use store::health::Watch;
use store::health::Watched;

use super::image::Doer;
use crate::disk::EIO;
use crate::disk::SECTOR;

/// The flushes of one image.
#[derive(Debug)]
pub(super) struct Flushes {
    health: Arc<Health>,
    /// Writes are acknowledged before their objects have them.
    volatile: bool,
    /// Works that wait for the next one.
    pub(super) waiting: Vec<u64>,
    riding: Vec<u64>,
    under_way: Option<Watch>,
    /// What it waits for.
    pub(super) pending: BTreeSet<Doer>,
    /// The errno that the next one is told.
    pub(super) news: Option<i32>,
}

impl Flushes {
    pub(super) fn new(bytes: u64, volatile: bool) -> Self {
        let block = u32::try_from(SECTOR).unwrap_or(0);
        Self {
            health: Arc::new(Health::new(bytes, block, false)),
            volatile,
            waiting: Vec::new(),
            riding: Vec::new(),
            under_way: None,
            pending: BTreeSet::new(),
            news: None,
        }
    }

    /// Bytes are about to change. Gives the failure before.
    pub(super) fn note_begin(&self, offset: u64, length: u64) -> Option<u64> {
        if self.volatile {
            self.health.note_write(offset, length);
        }
        self.health.failure()
    }

    /// They have changed.
    pub(super) fn note_end(&self, failure: Option<u64>, offset: u64, length: u64) {
        if let Some(failure) = failure {
            self.health.note_rewrite(offset, length, failure);
        }
        if self.volatile {
            self.health.note_write(offset, length);
        }
    }

    /// What the client had is lost.
    pub(super) fn lose_unknown(&self) {
        self.health.lose_unknown();
    }

    /// Whether a flush is of no use: what may be lost was not all written again.
    pub(super) fn refuse(&self) -> bool {
        self.health.has_failed() && !self.health.is_whole_again()
    }

    /// True if a flush begins, for all that wait.
    pub(super) fn board(&mut self) -> bool {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return false;
        }
        self.riding = std::mem::take(&mut self.waiting);
        self.under_way = Some(Watch::begin(&self.health, Watched::Sync));
        true
    }

    /// It is over: whom to tell, and of which failure.
    pub(super) fn ended(&mut self) -> (Vec<u64>, Option<i32>) {
        let news = self.news.take();
        if let Some(mut watch) = self.under_way.take() {
            watch.end(news.is_none());
            // What was lost may be whole again by it.
            let _: Verdict = watch.verdict();
        }
        let failed = news.or_else(|| self.health.has_failed().then_some(EIO));
        (std::mem::take(&mut self.riding), failed)
    }
}
