// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The write-back cache of a client (`rbd_cache` with a policy of write-back): what it has
//! acknowledged and not yet written to its objects. Readers see it; it goes with the process.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::disk::Sector;

/// With more than so many sectors dirty, a write waits for its objects (`rbd_cache_max_dirty`).
const DIRTY_MAX: usize = 96;

/// Sectors that their objects do not have, each with the number of its change.
#[derive(Debug, Default)]
pub(super) struct Cache {
    dirty: BTreeMap<u64, (Option<Sector>, u64)>,
    changes: u64,
}

impl Cache {
    pub(super) fn put(&mut self, sector: u64, content: Option<Sector>) {
        self.changes += 1;
        self.dirty.insert(sector, (content, self.changes));
    }

    pub(super) fn forget(&mut self, sector: u64) {
        self.dirty.remove(&sector);
    }

    /// Sectors that are as they were when they were written back are clean.
    pub(super) fn clean(&mut self, versions: &[(u64, u64)]) {
        for (sector, version) in versions {
            if self.version(*sector) == Some(*version) {
                self.forget(*sector);
            }
        }
    }

    /// Nothing is left behind the end of the image.
    pub(super) fn cut(&mut self, end: u64) {
        drop(self.dirty.split_off(&end));
    }

    pub(super) fn get(&self, sector: u64) -> Option<Option<Sector>> {
        self.dirty.get(&sector).map(|(content, _)| *content)
    }

    pub(super) fn version(&self, sector: u64) -> Option<u64> {
        self.dirty.get(&sector).map(|(_, version)| *version)
    }

    pub(super) fn has(&self, range: Range<u64>) -> bool {
        range.into_iter().all(|sector| self.dirty.contains_key(&sector))
    }

    pub(super) fn has_room(&self, sectors: usize) -> bool {
        self.dirty.len() + sectors <= DIRTY_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dirty.is_empty()
    }

    pub(super) fn dirty(&self) -> impl Iterator<Item = (u64, Option<Sector>)> {
        self.dirty.iter().map(|(sector, (content, _))| (*sector, *content))
    }
}
