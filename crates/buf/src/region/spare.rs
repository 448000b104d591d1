// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a region takes besides its own memory: new pages in place of lent ones, and copies for
//! those who want to borrow such pages. Both are counted and bounded together.

use super::{Region, RegionError};
use crate::copy::copy_raw;
use crate::limits::{PAGE, SPARE_BYTES_MAX};
use crate::map::Mapping;
use std::collections::HashMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// New pages by their number, and the count of all spare bytes.
#[derive(Debug)]
pub(super) struct Spare {
    pages: Mutex<HashMap<usize, Box<[u8]>>>,
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Default for Spare {
    fn default() -> Self {
        Self::new(SPARE_BYTES_MAX)
    }
}

impl Spare {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { pages: Mutex::default(), bytes: AtomicUsize::new(0), bytes_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), RegionError> {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        match self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(RegionError::Full),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A panic of whoever held it leaves the table as it was before or after.
    fn pages(&self) -> MutexGuard<'_, HashMap<usize, Box<[u8]>>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `put` write to the new page, which has the bytes of `old` at first.
    pub(super) fn change(
        &self,
        page: usize,
        old: *const u8,
        put: impl FnOnce(*mut u8),
    ) -> Result<(), RegionError> {
        let mut pages = self.pages();
        if let Some(new) = pages.get_mut(&page) {
            put(new.as_mut_ptr());
            return Ok(());
        }
        self.take(PAGE)?;
        let mut new = vec![0; PAGE].into_boxed_slice();
        // SAFETY: both have a page of bytes, and the new one is ours.
        unsafe { copy_raw(new.as_mut_ptr(), old, PAGE) };
        put(new.as_mut_ptr());
        pages.insert(page, new);
        Ok(())
    }

    /// Has `copy` read the new page; false if there is none.
    pub(super) fn look(&self, page: usize, copy: impl FnOnce(*const u8)) -> bool {
        let pages = self.pages();
        let Some(new) = pages.get(&page) else { return false };
        copy(new.as_ptr());
        true
    }

    /// Copies the new ones of `pages` to where `home` says and forgets them. Nobody else uses those
    /// places.
    pub(super) fn bring_home(&self, pages: Range<usize>, home: impl Fn(usize) -> *mut u8) {
        let mut all = self.pages();
        for page in pages {
            let Some(new) = all.remove(&page) else { continue };
            // SAFETY: both have a page of bytes.
            unsafe { copy_raw(home(page), new.as_ptr(), PAGE) };
            self.give_back(PAGE);
        }
    }
}

/// A copy of bytes of a region, counted as long as it lives.
#[derive(Debug)]
pub(crate) struct Copied {
    map: Mapping,
    len: usize,
    region: Arc<Region>,
}

impl Copied {
    /// Room for `len` bytes, zero at first.
    pub(super) fn new(region: &Arc<Region>, len: usize) -> Result<Self, RegionError> {
        let len = len.next_multiple_of(PAGE);
        region.spare.take(len)?;
        match Mapping::new(len) {
            Ok(map) => Ok(Self { map, len, region: Arc::clone(region) }),
            Err(_) => {
                region.spare.give_back(len);
                Err(RegionError::Full)
            }
        }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.map.at(0)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.region.spare.give_back(self.len);
    }
}
