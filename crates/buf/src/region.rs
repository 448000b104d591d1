// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of which parts are lent while others are written: a RAM disk.

mod groups;
mod spare;
mod words;

use crate::Slice;
use crate::copy::{copy_raw, copy_raw_away, prefetch};
use crate::limits::{DISCARD_STEP, PAGE, STREAM_MIN, WRITE_STEP};
use crate::map::Mapping;
use groups::{GROUP, Groups};
pub(crate) use spare::Copied;
use spare::Spare;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;
use words::{Locked, Words};

/// Zeroed, sparse memory of a fixed length: a RAM disk.
///
/// Takes no room for pages that were never written. What was lent does not change while a slice of
/// it lives: who writes to a page of it writes to a new one, which takes the place of the old one
/// when the last slice is gone. Reads and writes that meet in time give each page from one or the
/// other.
///
/// JUSTIFICATION: pages are lent to the kernel and to other threads without a copy, which for large
/// reads is half of what they cost. Who may touch which page when is settled by two words for each
/// group of pages (see `words`): the language cannot express it.
#[derive(Debug)]
pub struct Region {
    map: Mapping,
    len: usize,
    groups: Groups,
    /// New pages in place of lent ones, and copies of what cannot be lent.
    spare: Spare,
}

/// Why a region did not do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // says all there is to say
pub enum RegionError {
    /// The range is not within the region.
    OutOfRange,
    /// So many lent pages have been written to that there is no room for new ones until some come
    /// back. Of a range that was to change each page is old or new.
    Full,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "the range is not within the region",
            Self::Full => "too many lent pages have been written to",
        })
    }
}

impl std::error::Error for RegionError {}

/// Regions up to half of the machine's memory get huge pages. A larger one is meant to be sparse,
/// and with huge pages each written block could take two megabytes.
fn huge_pages_len_max() -> usize {
    let facts = rustix::system::sysinfo();
    let bytes = u64::from(facts.mem_unit).saturating_mul(facts.totalram);
    usize::try_from(bytes / 2).unwrap_or(usize::MAX)
}

/// Where a part of a change goes.
#[derive(Clone, Copy, Debug)]
struct CopyTarget {
    to: *mut u8,
    /// Offset in the region, if it goes to the region itself and not to a new page.
    home: Option<usize>,
    /// Bytes of the change that come before.
    done: usize,
    len: usize,
}

impl Region {
    /// Reserves `len` bytes, all zero.
    ///
    /// # Errors
    /// The system's error if there is not so much address space; `InvalidInput` if no address can
    /// be so large.
    pub fn new(len: u64) -> io::Result<Arc<Self>> {
        Self::with(len, Spare::default())
    }

    fn with(len: u64, spare: Spare) -> io::Result<Arc<Self>> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map = Mapping::new(len)?;
        if len <= huge_pages_len_max() {
            map.prefer_huge_pages();
        }
        Ok(Arc::new(Self { map, len, groups: Groups::new(len)?, spare }))
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the region takes besides its own: for pages that are lent and were written to,
    /// and for copies of what could not be lent.
    pub fn spare_bytes(&self) -> u64 {
        self.spare.bytes() as u64
    }

    /// A part, as it is now: what is written later does not reach it. Nothing is copied, but where
    /// a lent page was written to.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn lend(self: &Arc<Self>, offset: u64, len: usize) -> Result<Slice, RegionError> {
        let start = self.start(offset, len)?;
        let groups = groups::of(start, len);
        for group in groups.clone() {
            if !self.lend_group(group) {
                (groups.start..group).for_each(|taken| self.take_group_back(taken));
                return self.copied(start, len);
            }
        }
        Ok(Slice::of_region(Arc::clone(self), self.map.at(start), len))
    }

    /// Has the processor bring a range that will be written to soon into its caches, as far as
    /// that pays: a range out of bounds, or one that is streamed past them, it leaves alone.
    pub fn prefetch(&self, offset: u64, len: usize) {
        if let Ok(start) = self.start(offset, len)
            && len < STREAM_MIN
        {
            groups::of(start, len).for_each(|group| self.groups.prefetch(group));
            prefetch(self.map.at(start).as_ptr(), len);
        }
    }

    /// Has the processor bring what it takes to lend a range into its caches, which are not its
    /// bytes. A range out of bounds it leaves alone.
    pub fn prefetch_to_lend(&self, offset: u64, len: usize) {
        if let Ok(start) = self.start(offset, len) {
            groups::of(start, len).for_each(|group| self.groups.prefetch(group));
        }
    }

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// Only [`RegionError::OutOfRange`].
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), RegionError> {
        let start = self.start(offset, to.len())?;
        // SAFETY: `to` is the caller's own and so not part of the region.
        unsafe { self.copy_out(start, to.as_mut_ptr(), to.len()) }
        Ok(())
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), RegionError> {
        let start = self.start(offset, from.len())?;
        self.change(start, from.len(), WRITE_STEP, |place| {
            let from = from.as_ptr().wrapping_add(place.done);
            // SAFETY: `change` gives places that nobody else uses, which together are as long as
            // `from`.
            unsafe { copy_raw_away(place.to, from, place.len) }
        })
    }

    /// Copies all bytes of `from` to `offset`; `from` may be a part of a region, even of this one.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn write_slice(&self, offset: u64, from: &Slice) -> Result<(), RegionError> {
        self.write(offset, from.bytes())
    }

    /// Writes zeroes: the pages stay.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn fill_zero(&self, offset: u64, len: u64) -> Result<(), RegionError> {
        let (start, len) = self.range(offset, len)?;
        self.change(start, len, WRITE_STEP, zero)
    }

    /// Gives whole pages back to the system and zeroes the rest: the range reads as zero
    /// afterwards.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), RegionError> {
        let (start, len) = self.range(offset, len)?;
        self.change(start, len, DISCARD_STEP, |place| match place.home {
            Some(start) => self.give_back(start, place),
            None => zero(place),
        })
    }

    fn give_back(&self, start: usize, place: CopyTarget) {
        let end = start + place.len;
        let first = start.next_multiple_of(PAGE);
        let last = end - end % PAGE;
        // SAFETY: `change` gives places that nobody else uses: no reference to a byte exists.
        if first >= last || !unsafe { self.map.give_back(first, last - first) } {
            return zero(place);
        }
        let tail = self.map.at(last).as_ptr();
        zero(CopyTarget { len: first - start, ..place });
        zero(CopyTarget { to: tail, len: end - last, ..place });
    }

    /// Lends what a slice of it has lent already once more.
    #[inline]
    pub(crate) fn lend_again(&self, base: NonNull<u8>, len: usize) {
        for group in self.groups_at(base, len) {
            self.words(group).lend_again();
        }
    }

    /// A slice is gone.
    #[inline]
    pub(crate) fn take_back(&self, base: NonNull<u8>, len: usize) {
        for group in self.groups_at(base, len) {
            self.take_group_back(group);
        }
    }

    /// Bytes of all groups that a lent range has a byte of.
    #[inline]
    pub(crate) fn lent_bytes(&self, base: NonNull<u8>, len: usize) -> usize {
        self.groups_at(base, len).len() * GROUP
    }

    fn groups_at(&self, base: NonNull<u8>, len: usize) -> Range<usize> {
        groups::of(base.as_ptr().addr() - self.map.at(0).as_ptr().addr(), len)
    }

    #[inline]
    fn words(&self, group: usize) -> &Words {
        self.groups.words(group)
    }

    /// False if pages of it have been written to while they are lent.
    #[inline]
    fn lend_group(&self, group: usize) -> bool {
        self.words(group).lend(|| self.bring_home(group))
    }

    #[inline]
    fn take_group_back(&self, group: usize) {
        self.words(group).take_back(|| self.bring_home(group));
    }

    /// The group is locked and not lent.
    fn bring_home(&self, group: usize) {
        self.spare.bring_home(pages(group), |page| self.map.at(page * PAGE).as_ptr());
        self.words(group).set_home();
    }

    #[inline]
    fn unlock(&self, group: usize) {
        self.words(group).unlock(|| self.bring_home(group));
    }

    /// Has `put` write a range, in steps of which each begins and ends at a multiple of `step`:
    /// each place is given while nobody else reads or writes it.
    fn change(
        &self,
        start: usize,
        len: usize,
        step: usize,
        put: impl Fn(CopyTarget),
    ) -> Result<(), RegionError> {
        let end = start + len;
        let mut at = start;
        while at < end {
            let next = end.min((at / step + 1) * step);
            let groups = groups::of(at, next - at);
            let mut free = true;
            for group in groups.clone() {
                free &= self.words(group).lock() == Locked::Free;
            }
            let place = |at: usize, next: usize| CopyTarget {
                to: self.map.at(at).as_ptr(),
                home: Some(at),
                done: at - start,
                len: next - at,
            };
            if free {
                put(place(at, next));
                groups.for_each(|group| self.words(group).unlock_free());
            } else {
                let result = groups.clone().try_for_each(|group| {
                    let part = place(at.max(group * GROUP), next.min((group + 1) * GROUP));
                    self.change_group(group, part, &put)
                });
                groups.for_each(|group| self.unlock(group));
                result?;
            }
            at = next;
        }
        Ok(())
    }

    /// A change of a group that is locked, and that is lent or has moved pages.
    #[cold]
    fn change_group(
        &self,
        group: usize,
        place: CopyTarget,
        put: &impl Fn(CopyTarget),
    ) -> Result<(), RegionError> {
        let Some(start) = place.home else { return Ok(()) };
        if !self.words(group).is_lent() {
            self.bring_home(group);
            put(place);
            return Ok(());
        }
        let end = start + place.len;
        let mut at = start;
        while at < end {
            let page = at / PAGE;
            let next = end.min((page + 1) * PAGE);
            let old = self.map.at(page * PAGE).as_ptr();
            let part = |new: *mut u8| CopyTarget {
                to: new.wrapping_add(at % PAGE),
                home: None,
                done: place.done + (at - start),
                len: next - at,
            };
            self.spare.change(page, old, |new| put(part(new)))?;
            self.words(group).set_moved();
            at = next;
        }
        Ok(())
    }

    /// Copies a range to `to`, group by group, from where the newest bytes are.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, which are not part of the region.
    unsafe fn copy_out(&self, start: usize, to: *mut u8, len: usize) {
        for group in groups::of(start, len) {
            let locked = self.words(group).lock();
            let (mut at, end) = (start.max(group * GROUP), (start + len).min((group + 1) * GROUP));
            while at < end {
                let page = at / PAGE;
                let next = end.min((page + 1) * PAGE);
                let to = to.wrapping_add(at - start);
                let copy = |from: *const u8| {
                    // SAFETY: the caller's promise for `to`; `from` is a page, locked against
                    // writers, which has the bytes up to `next`.
                    unsafe { copy_raw(to, from.wrapping_add(at % PAGE), next - at) }
                };
                if !self.words(group).is_moved() || !self.spare.look(page, copy) {
                    copy(self.map.at(page * PAGE).as_ptr());
                }
                at = next;
            }
            match locked {
                Locked::Free => self.words(group).unlock_free(),
                Locked::InUse => self.unlock(group),
            }
        }
    }

    /// A range that cannot be lent, since its newest bytes are on new pages.
    #[cold]
    fn copied(self: &Arc<Self>, start: usize, len: usize) -> Result<Slice, RegionError> {
        let copy = Copied::new(self, len)?;
        let base = copy.base();
        // SAFETY: the copy was made with `len` bytes, and nobody else knows it yet.
        unsafe { self.copy_out(start, base.as_ptr(), len) };
        Ok(Slice::of_copied(Arc::new(copy), base, len))
    }

    fn start(&self, offset: u64, len: usize) -> Result<usize, RegionError> {
        let start = usize::try_from(offset).map_err(|_| RegionError::OutOfRange)?;
        let end = start.checked_add(len).ok_or(RegionError::OutOfRange)?;
        if end <= self.len { Ok(start) } else { Err(RegionError::OutOfRange) }
    }

    fn range(&self, offset: u64, len: u64) -> Result<(usize, usize), RegionError> {
        let len = usize::try_from(len).map_err(|_| RegionError::OutOfRange)?;
        Ok((self.start(offset, len)?, len))
    }
}

/// The pages of a group.
const fn pages(group: usize) -> Range<usize> {
    group * (GROUP / PAGE)..(group + 1) * (GROUP / PAGE)
}

fn zero(place: CopyTarget) {
    // SAFETY: places of a change are writable, and nobody else uses them meanwhile.
    unsafe { ptr::write_bytes(place.to, 0, place.len) }
}

#[cfg(test)]
mod tests;
