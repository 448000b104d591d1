// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that something is done to as a whole: one thing at a time for each of them, and none waits
//! for what is done to another one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use scsi::LogicalUnit;

/// Units by their addresses, which are theirs as long as somebody has them.
#[derive(Debug, Default)]
pub(crate) struct Occupied {
    units: Mutex<BTreeSet<usize>>,
    freed: Condvar,
}

/// The right to do something to a unit.
#[derive(Debug)]
pub(crate) struct Occupation<'a> {
    of: &'a Occupied,
    unit: &'a Arc<LogicalUnit>,
}

impl Occupied {
    /// Waits until nothing else is done to `unit`.
    pub(crate) fn wait<'a>(&'a self, unit: &'a Arc<LogicalUnit>) -> Occupation<'a> {
        let mut units = self.units();
        while !units.insert(address(unit)) {
            units = self.freed.wait(units).unwrap_or_else(PoisonError::into_inner);
        }
        Occupation { of: self, unit }
    }

    /// None: something else is done to `unit`.
    pub(crate) fn at_once<'a>(&'a self, unit: &'a Arc<LogicalUnit>) -> Option<Occupation<'a>> {
        let is_free = self.units().insert(address(unit));
        // One that was made in vain would free the unit when it is dropped.
        is_free.then(|| Occupation { of: self, unit })
    }

    fn units(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        // What the lock guards is whole between any two statements.
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Occupation<'_> {
    fn drop(&mut self) {
        self.of.units().remove(&address(self.unit));
        self.of.freed.notify_all();
    }
}

fn address(unit: &Arc<LogicalUnit>) -> usize {
    Arc::as_ptr(unit).addr()
}
