// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a study has come, and whether it is to stop.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;

/// Who watches a run, and may end it.
pub trait Audience: Sync {
    /// A step begins: what it is, and how many of how many are done.
    fn step(&self, what: &str, done: usize, of: usize);

    /// Whether nobody wants the rest.
    fn is_to_stop(&self) -> bool;
}

/// The steps of a study.
pub(crate) struct Steps<'a> {
    audience: &'a dyn Audience,
    done: AtomicUsize,
    of: AtomicUsize,
}

impl<'a> Steps<'a> {
    pub(crate) const fn new(audience: &'a dyn Audience) -> Self {
        Self { audience, done: AtomicUsize::new(0), of: AtomicUsize::new(0) }
    }

    /// So many more are to come.
    pub(crate) fn expect(&self, steps: usize) {
        self.of.fetch_add(steps, Ordering::Relaxed);
    }

    /// Whether nobody wants the rest: who waits for another process within a step asks.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.audience.is_to_stop()
    }

    /// Begins the next one. What is measured in it is whole, or not at all.
    pub(crate) fn next(&self, what: &str) -> Result<(), Error> {
        if self.audience.is_to_stop() {
            return Err(Error::Stopped);
        }
        let done = self.done.fetch_add(1, Ordering::Relaxed);
        self.audience.step(what, done, self.of.load(Ordering::Relaxed));
        Ok(())
    }
}
