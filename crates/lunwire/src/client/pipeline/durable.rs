// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a copy is on stable storage, and what must be written again because its target may have
//! lost it: a disk that loses its power forgets what it had acknowledged and not yet flushed. What
//! fails behind an acknowledgement, or in a flush, is told once: whoever asks again hears that all
//! is well. Where a disk has no flush nothing has confirmed what was written: when it tells of a
//! failure all of it is written again.

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::units;
use initiator::Kind;
use initiator::Ledger;
use initiator::scsi;

use super::Copy;
use super::Journal;
use super::journal::Pace;
use crate::client;
use crate::client::place::Place;
use crate::output;

/// Between two flushes of a disk: so much work is lost at the most.
const FLUSH_PAUSE: Duration = Duration::from_secs(10);

/// The same with a journal, which tells what was flushed.
const JOURNAL_PAUSE: Duration = Duration::from_secs(2);

/// How often one part is written again: a target that fails each time is to be seen to.
const REWINDS_MAX: u32 = 8;

/// Why writes that were acknowledged may be lost.
const CAUSE: &str = "the target was reset, began anew, or failed to keep what it had acknowledged";

/// How far a copy is safe.
#[derive(Debug)]
pub(super) struct Durable {
    /// Everything before is on stable storage.
    flushed: u64,
    /// Writes since then.
    pub(super) ledger: Ledger,
    at: Instant,
    rewinds: u32,
    /// A flush has failed.
    failed: bool,
}

impl Durable {
    pub(super) fn new(begin: u64) -> Self {
        let (ledger, at) = (Ledger::default(), Instant::now());
        Self { flushed: begin, ledger, at, rewinds: 0, failed: false }
    }

    pub(super) const fn flushed(&self) -> u64 {
        self.flushed
    }

    /// No flush that comes now says anything.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed
    }
}

impl Copy<'_> {
    /// Flushes, and keeps the journal, when it is time for that.
    pub(super) fn flush_in_time(&mut self) -> Result<()> {
        let pause = match (&self.plan.journal, &self.plan.to) {
            (Some(_), _) => JOURNAL_PAUSE,
            (None, Place::Disk(_)) => FLUSH_PAUSE,
            (None, Place::File(_) | Place::Stream) => return Ok(()),
        };
        if self.durable.at.elapsed() < pause {
            return Ok(());
        }
        if self.flush()? {
            let flushed = self.durable.flushed;
            let Some(journal) = &mut self.plan.journal else { return Ok(()) };
            journal.keep(flushed, Pace::Going)?;
            let (kept, what) = (units::bytes(flushed), self.plan.what);
            client::set_last_words(format!(
                "the same command goes on after {kept} that were {what}"
            ));
            Ok(())
        } else {
            self.rewind()
        }
    }

    /// Brings to stable storage what is done. False: some of it may be lost since the last time.
    pub(super) fn flush(&mut self) -> Result<bool> {
        // What it brings to stable storage need not be copied again.
        self.queue.set_grace(client::leaving::farewell_left());
        let flushed = self.try_flush();
        self.queue.set_grace(Duration::ZERO);
        self.durable.failed |= flushed.is_err();
        flushed
    }

    fn try_flush(&mut self) -> Result<bool> {
        let done = self.done;
        let whole = match &self.plan.to {
            Place::Disk(disk) => {
                let unit = &mut self.queue.unit(disk.session, disk.lun);
                let ledger = &mut self.durable.ledger;
                match scsi::flush_writes(unit, Some(&disk.geometry), ledger) {
                    Ok(_) => true,
                    Err(error) if matches!(error.kind(), Kind::WritesLost) => false,
                    Err(error) => {
                        let error = client::advised(error, &disk.url);
                        return Err(error.context(self.so_far()));
                    }
                }
            }
            place => {
                place.flush().with_context(|| self.so_far())?;
                true
            }
        };
        if whole {
            if done > self.durable.flushed && self.plan.to.has_flush() {
                self.durable.rewinds = 0;
            }
            self.durable.flushed = done;
        } else if !self.plan.to.has_flush() {
            self.durable.flushed = 0;
        }
        self.durable.at = Instant::now();
        Ok(whole)
    }

    /// Goes back to where all is safe.
    pub(super) fn rewind(&mut self) -> Result<()> {
        let (to, safe) = (self.plan.to.name(), self.durable.flushed);
        let lost = units::bytes(self.done.saturating_sub(safe));
        if matches!(self.plan.from, Place::Stream) {
            bail!(
                "{to}: {CAUSE}, and may have lost {lost} that were written and not yet flushed; \
                 standard input cannot be read again; try: again, \
                 from the beginning"
            );
        }
        self.durable.rewinds += 1;
        if self.durable.rewinds > REWINDS_MAX {
            bail!("{to}: {CAUSE}, {REWINDS_MAX} times before a flush");
        }
        output::say(format_args!("{to}: {CAUSE}, and may have lost {lost}; writing them again"));
        // The state may tell of more.
        self.plan.journal.as_mut().map_or(Ok(()), |journal| journal.keep(safe, Pace::Going))?;
        // What is under way would be taken for what comes in its place.
        while !self.under_way.is_empty() {
            if client::is_interrupted() {
                return Err(self.interruption());
            }
            self.wait()?;
        }
        (self.next, self.done, self.ended) = (safe, safe, false);
        self.finished.clear();
        self.digests.split_off(&safe);
        self.durable.ledger.forget();
        Ok(())
    }
    /// The copy ends early: keeps how far it has come. Gives what is to be said.
    pub(super) fn halt(&mut self, error: anyhow::Error, mut journal: Journal) -> anyhow::Error {
        // What was flushed before counts where there is nobody to flush now.
        let none = self.durable.has_failed() || self.plan.to.is_left(self.queue) || !self.drain();
        if self.interrupted {
            self.queue.resume_for(client::leaving::farewell_left());
        }
        let flushed = if none { Ok(true) } else { self.flush() };
        let safe = self.durable.flushed().min(self.doubted.unwrap_or(u64::MAX));
        // What stands in the state is true without a flush that came too late.
        let flushed = flushed.or_else(|error| match self.interrupted {
            true => Ok(true),
            false => Err(error),
        });
        let kept = flushed.and_then(|_| journal.keep(safe, Pace::Halted));
        let error = if self.interrupted { self.interruption() } else { error };
        match (kept, self.doubted) {
            (Ok(()), None) if safe == self.done => {
                anyhow!("{error:#}; the same command goes on from there")
            }
            (Ok(()), None) => {
                anyhow!("{error:#}; the same command goes on after {}", units::bytes(safe))
            }
            (Ok(()), Some(from)) => anyhow!(
                "{error:#}; the same command copies again from byte {from} on, and compares"
            ),
            (Err(_), _) => error,
        }
    }

    /// Takes what is under way to a disk when the user wants an end: a flush would wait for it
    /// however long it takes. False: it does not end in time.
    fn drain(&mut self) -> bool {
        let is_disk = matches!(self.plan.to, Place::Disk(_));
        while self.interrupted && is_disk && !self.under_way.is_empty() {
            if self.plan.to.is_left(self.queue) || self.wait().is_err() {
                return false;
            }
        }
        true
    }
}
