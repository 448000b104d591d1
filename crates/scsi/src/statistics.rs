// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit counts: commands and blocks, and what could not be read or written (SPC-4 §7.3).
//!
//! Commands are counted in the state of their nexus, which one thread alone writes to: no atomic
//! step is needed, only that others may look.

use crate::sense;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use wire::scsi::Sense;
use wire::scsi::SenseKey;

/// What one nexus has read and written.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// What a unit has done since it exists, or since hosts have reset the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Reads that ended well.
    pub reads: u64,
    /// Writes that ended well.
    pub writes: u64,
    /// Bytes of these reads.
    pub bytes_read: u64,
    /// Bytes of these writes.
    pub bytes_written: u64,
    /// Blocks could not be read.
    pub read_errors: u64,
    /// Blocks could not be written.
    pub write_errors: u64,
    /// Blocks were not what they were compared with.
    pub verify_errors: u64,
}

/// Which sums LOG SELECT resets, or sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Traffic,
    ReadErrors,
    WriteErrors,
    VerifyErrors,
}

impl Counter {
    pub(crate) const ALL: [Self; 4] =
        [Self::Traffic, Self::ReadErrors, Self::WriteErrors, Self::VerifyErrors];
}

/// The counters of one unit that belong to no living nexus.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    verify_errors: AtomicU64,
    /// Of nexuses that are forgotten.
    retired: spin::Mutex<Totals>,
    /// What was there at the last reset.
    base: spin::Mutex<Totals>,
}

impl Traffic {
    /// A READ of so many bytes has ended well.
    #[inline]
    pub(crate) fn count_read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.bytes_read, bytes);
    }

    /// A WRITE of so many bytes has ended well.
    #[inline]
    pub(crate) fn count_write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.bytes_written, bytes);
    }

    /// Adds it to `totals`.
    pub(crate) fn sum(&self, totals: &mut Totals) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        totals.reads = totals.reads.wrapping_add(of(&self.reads));
        totals.writes = totals.writes.wrapping_add(of(&self.writes));
        totals.bytes_read = totals.bytes_read.wrapping_add(of(&self.bytes_read));
        totals.bytes_written = totals.bytes_written.wrapping_add(of(&self.bytes_written));
    }
}

/// By the one thread that writes it.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Statistics {
    /// Counts a failure, if it is one of the medium.
    pub(crate) fn count_failure(&self, failure: Sense) {
        let counter = match failure.key {
            SenseKey::MediumError if failure.asc == sense::UNRECOVERED_READ_ERROR => {
                &self.read_errors
            }
            SenseKey::MediumError => &self.write_errors,
            SenseKey::Miscompare => &self.verify_errors,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A nexus is forgotten; what it did is not.
    pub(crate) fn retire(&self, traffic: &Traffic) {
        traffic.sum(&mut self.retired.lock());
    }

    /// All sums; `live` adds what nexuses that are known have done.
    pub(crate) fn totals(&self, live: impl Fn(&mut Totals)) -> Totals {
        let now = self.absolute(live);
        let base = *self.base.lock();
        Totals {
            reads: now.reads.wrapping_sub(base.reads),
            writes: now.writes.wrapping_sub(base.writes),
            bytes_read: now.bytes_read.wrapping_sub(base.bytes_read),
            bytes_written: now.bytes_written.wrapping_sub(base.bytes_written),
            read_errors: now.read_errors.wrapping_sub(base.read_errors),
            write_errors: now.write_errors.wrapping_sub(base.write_errors),
            verify_errors: now.verify_errors.wrapping_sub(base.verify_errors),
        }
    }

    /// Lets some sums begin anew.
    pub(crate) fn reset(&self, counters: &[Counter], live: impl Fn(&mut Totals)) {
        let now = self.absolute(live);
        let mut base = self.base.lock();
        for counter in counters {
            match counter {
                Counter::Traffic => {
                    (base.reads, base.bytes_read) = (now.reads, now.bytes_read);
                    (base.writes, base.bytes_written) = (now.writes, now.bytes_written);
                }
                Counter::ReadErrors => base.read_errors = now.read_errors,
                Counter::WriteErrors => base.write_errors = now.write_errors,
                Counter::VerifyErrors => base.verify_errors = now.verify_errors,
            }
        }
    }

    /// Lets one sum go on from `count`.
    pub(crate) fn set(&self, counter: Counter, count: u64, live: impl Fn(&mut Totals)) {
        self.reset(&[counter], live);
        let mut base = self.base.lock();
        match counter {
            // What was measured cannot be set.
            Counter::Traffic => {}
            Counter::ReadErrors => base.read_errors = base.read_errors.wrapping_sub(count),
            Counter::WriteErrors => base.write_errors = base.write_errors.wrapping_sub(count),
            Counter::VerifyErrors => base.verify_errors = base.verify_errors.wrapping_sub(count),
        }
    }

    /// All sums since the unit exists, whatever was reset.
    pub(crate) fn absolute(&self, live: impl Fn(&mut Totals)) -> Totals {
        let mut totals = *self.retired.lock();
        live(&mut totals);
        totals.read_errors = self.read_errors.load(Ordering::Relaxed);
        totals.write_errors = self.write_errors.load(Ordering::Relaxed);
        totals.verify_errors = self.verify_errors.load(Ordering::Relaxed);
        totals
    }
}
