// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether what was acknowledged can still reach the medium.
//!
//! The system writes back late and tells a failure once, to whoever syncs next (Linux: one report
//! for each open file). All hosts share the open file, so one of them would hear of it and all
//! others would be told GOOD. Hence: a sync or durable write that fails makes the file *failed* for
//! everybody. What may be lost is every block that was written since the last good sync. The file
//! stays failed until each of these was written again, after the failure, and then synced.
//!
//! What was written before the file was opened nobody here knows. So whoever opens it syncs it
//! first; if that fails, it stays failed ([`File::after_a_loss`](crate::file::File::after_a_loss)).
//!
//! Two syncs that overlap may get each other's news, so a good one is believed only when all that
//! overlapped with it have ended, and none has failed.

mod marks;

use crate::limits::MARKED_BLOCKS_MAX;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;
use marks::Marks;

/// What is known of the syncs of one file, shared by all reactors.
#[derive(Debug)]
pub struct Health {
    /// Number of the failure that is not repaired; 0: there is none.
    failure: AtomicU64,
    /// Blocks that were written, and that no sync has taken.
    dirty: Marks,
    /// Blocks that the sync under way is to bring to the medium.
    taken: Marks,
    /// Blocks that may be lost.
    lost: Marks,
    log: spin::Mutex<Log>,
    /// Syncs that overlap may get each other's news.
    shares_news: bool,
}

/// Syncs and durable writes in the order in which they began.
#[derive(Debug, Default)]
struct Log {
    begun: u64,
    /// Whether they have ended, from the oldest one that has not.
    ended: VecDeque<bool>,
    /// How often one has failed.
    failures: u64,
    /// The sync that `taken` is for.
    taker: Option<u64>,
}

/// What a sync or durable write that ended well is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // each driver must handle each of them
pub enum Verdict {
    /// Not known yet: others that overlapped with it are under way. To be asked again.
    Wait,
    /// What it says.
    Good,
    /// What it says, and all that was lost has been written again: the file is sound.
    Repaired,
    /// One that overlapped with it has failed: so has this one.
    Doubtful,
}

impl Health {
    /// Of a file of `bytes` that is written in blocks of `block` bytes. Of a very large one several
    /// blocks are one here.
    pub fn new(bytes: u64, block: u32, shares_news: bool) -> Self {
        let coarse = bytes.div_ceil(MARKED_BLOCKS_MAX).max(1).next_power_of_two().ilog2();
        let shift = block.max(512).ilog2().max(coarse);
        let marks = || Marks::new(bytes, shift);
        Self {
            failure: AtomicU64::new(0),
            dirty: marks(),
            taken: marks(),
            lost: marks(),
            log: spin::Mutex::default(),
            shares_news,
        }
    }

    /// It fails for good: blocks are lost that nobody can name, so nobody can write them again.
    pub fn lose_unknown(&self) {
        let mut log = self.log.lock();
        self.lost.add_unknown();
        self.fail(&mut log);
    }

    /// True from a failed sync until all that it may have lost was written again and synced.
    pub fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    /// The failure that is not repaired.
    #[inline]
    pub fn failure(&self) -> Option<u64> {
        let failure = self.failure.load(SeqCst);
        (failure != 0).then_some(failure)
    }

    /// Bytes are about to be written, or were: what is acknowledged of them waits for a sync.
    #[inline]
    pub fn note_write(&self, offset: u64, length: u64) {
        self.dirty.add(offset, length);
    }

    /// Bytes were written that were handed to the system after `failure`.
    #[cold]
    pub fn note_rewrite(&self, offset: u64, length: u64, failure: u64) {
        let log = self.log.lock();
        if log.failures == failure {
            self.lost.remove(offset, length);
        }
    }

    /// Whether all that was lost has been written again.
    #[cold]
    pub fn is_whole_again(&self) -> bool {
        self.lost.is_empty()
    }

    fn fail(&self, log: &mut Log) {
        log.failures += 1;
        self.dirty.copy_to(&self.lost);
        self.taken.copy_to(&self.lost);
        if !self.lost.is_empty() {
            self.failure.store(log.failures, SeqCst);
        }
    }
}

/// What a [`Watch`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is no third kind
pub enum Watched {
    /// A sync of the whole file.
    Sync,
    /// A write that is on stable storage when it ends.
    DurableWrite,
}

/// A sync or durable write that is with the system; whoever hands it over holds one until it ends.
#[derive(Debug)]
pub struct Watch {
    health: Arc<Health>,
    number: u64,
    what: Watched,
    /// Failures when it began.
    failures: u64,
    /// It began with all that was lost written again.
    repairs: bool,
    /// When it ended: those before this one overlapped with it.
    overlapped: Option<u64>,
}

impl Watch {
    /// It is about to be handed over.
    pub fn begin(health: &Arc<Health>, what: Watched) -> Self {
        let mut log = health.log.lock();
        let (number, failures) = (log.begun, log.failures);
        log.begun += 1;
        log.ended.push_back(false);
        let is_sync = what == Watched::Sync;
        if is_sync && log.taker.is_none() {
            log.taker = Some(number);
            health.dirty.move_to(&health.taken);
        }
        let repairs = is_sync && health.has_failed() && health.is_whole_again();
        drop(log);
        let health = Arc::clone(health);
        Self { health, number, what, failures, repairs, overlapped: None }
    }

    /// It has ended, well or not. True if the file has failed by it and had not before.
    pub fn end(&mut self, well: bool) -> bool {
        if self.overlapped.is_some() {
            return false;
        }
        let mut log = self.health.log.lock();
        self.overlapped = Some(log.begun);
        let oldest = log.begun - log.ended.len() as u64;
        let at = usize::try_from(self.number.saturating_sub(oldest)).unwrap_or(usize::MAX);
        if let Some(ended) = log.ended.get_mut(at) {
            *ended = true;
        }
        while log.ended.front() == Some(&true) {
            log.ended.pop_front();
        }
        if well {
            return false;
        }
        let before = self.health.has_failed();
        self.health.fail(&mut log);
        self.give_back(&mut log);
        !before && self.health.has_failed()
    }

    /// What it is worth, if it has ended well.
    pub fn verdict(&mut self) -> Verdict {
        let Some(until) = self.overlapped else { return Verdict::Wait };
        let mut log = self.health.log.lock();
        let oldest = log.begun - log.ended.len() as u64;
        if self.health.shares_news && log.failures != self.failures {
            self.give_back(&mut log);
            return Verdict::Doubtful;
        }
        if self.health.shares_news && oldest < until {
            return Verdict::Wait;
        }
        self.give_back(&mut log);
        if self.repairs && log.failures == self.failures {
            self.health.failure.store(0, SeqCst);
            return Verdict::Repaired;
        }
        Verdict::Good
    }

    /// What the file is to those who wait for this one.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The blocks that were taken for it are on the medium, or are among those that are lost.
    fn give_back(&self, log: &mut Log) {
        if self.what == Watched::Sync && log.taker == Some(self.number) {
            log.taker = None;
            self.health.taken.clear();
        }
    }
}

impl Drop for Watch {
    /// Nobody will ever know how it ended.
    fn drop(&mut self) {
        if self.overlapped.is_none() {
            self.end(false);
        }
    }
}

#[cfg(test)]
mod tests;
