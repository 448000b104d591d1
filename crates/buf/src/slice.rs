// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared, read-only bytes.

use crate::copy::{copy, fetch};
use crate::limits::{BUF_LEN_MAX, FETCH_MAX, FETCH_MIN, PAGE};
use crate::map::Mapping;
use crate::pool::Slot;
use crate::region::Copied;
use crate::{Buf, Ground, Region};
use std::fmt;
use std::io;
use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, OnceLock};

/// A shared, read-only run of bytes that stay alive as long as the slice.
///
/// Part of a frozen [`Buf`], of a [`Region`], of a `Vec` or of static memory. A clone or a part is
/// one atomic increment, and for a `Region` one for each of its groups of pages. The bytes never
/// change.
pub struct Slice {
    owner: Owner,
    base: NonNull<u8>,
    len: usize,
}

#[derive(Clone)]
enum Owner {
    Static,
    Slot(Slot),
    Vec(#[expect(dead_code, reason = "held, not read")] Arc<Vec<u8>>),
    /// All groups of pages that the slice has a byte of are lent.
    Region(Arc<Region>),
    Copied(#[expect(dead_code, reason = "held, not read")] Arc<Copied>),
}

impl Slice {
    /// No bytes.
    pub fn empty() -> Self {
        Self::from_static(&[])
    }

    /// Bytes that live as long as the process.
    pub fn from_static(bytes: &'static [u8]) -> Self {
        Self { owner: Owner::Static, base: NonNull::from(bytes).cast(), len: bytes.len() }
    }

    /// [`BUF_LEN_MAX`] zero bytes, page aligned: the same ones for all callers, for the life of the
    /// process. They take up no memory, as they are never written.
    ///
    /// # Errors
    /// The system's error if there is no address space for them.
    pub fn zeroes() -> io::Result<Self> {
        static ZEROES: OnceLock<Mapping> = OnceLock::new();
        let zeroes = match ZEROES.get() {
            Some(zeroes) => zeroes,
            None => {
                let fresh = Mapping::new(BUF_LEN_MAX)?;
                ZEROES.get_or_init(|| fresh)
            }
        };
        Ok(Self { owner: Owner::Static, base: zeroes.at(0), len: BUF_LEN_MAX })
    }

    /// `slot` has `len` initialised bytes at `base`, to which nobody writes while references live.
    pub(crate) fn of_slot(slot: Slot, base: NonNull<u8>, len: usize) -> Self {
        Self { owner: Owner::Slot(slot), base, len }
    }

    /// `region` has `len` bytes at `base`, which are lent to the slice.
    pub(crate) fn of_region(region: Arc<Region>, base: NonNull<u8>, len: usize) -> Self {
        Self { owner: Owner::Region(region), base, len }
    }

    /// `copied` has `len` bytes at `base`, to which nobody writes any more.
    pub(crate) fn of_copied(copied: Arc<Copied>, base: NonNull<u8>, len: usize) -> Self {
        Self { owner: Owner::Copied(copied), base, len }
    }

    /// The buffer again, if this is the only reference to it and starts at its first byte; it shows
    /// as many bytes as the slice.
    ///
    /// # Errors
    /// The slice itself, if others may be reading or it is not (the start of) a frozen [`Buf`].
    pub fn try_into_buf(mut self) -> Result<Buf, Self> {
        match mem::replace(&mut self.owner, Owner::Static) {
            Owner::Slot(slot) if slot.is_unique() && slot.base() == self.base => {
                Ok(Buf::new(slot, self.len))
            }
            owner => {
                self.owner = owner;
                Err(self)
            }
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of `range`; None if it does not lie within the slice.
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        // SAFETY: `start` is at most `len`, so the address is within the owner's bytes or one past.
        let base = unsafe { self.base.add(range.start) };
        Some(self.of_same(base, range.end - range.start))
    }

    /// As `part`, in place of this slice: the whole costs nothing.
    pub fn into_part(self, range: Range<usize>) -> Option<Self> {
        if range == (0..self.len) { Some(self) } else { self.part(range) }
    }

    /// A slice within this one.
    fn of_same(&self, base: NonNull<u8>, len: usize) -> Self {
        if let Owner::Region(region) = &self.owner {
            region.lend_again(base, len);
        }
        Self { owner: self.owner.clone(), base, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the owner keeps `len` initialised bytes at `base` alive, and nobody writes to
        // them: a frozen buffer has no `Buf`, a Vec is behind our own Arc, static memory is shared,
        // a copy is finished, and to what a region has lent it writes no more.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// True if it is a part of a [`Region`], which has to write elsewhere while the slice lives.
    pub fn is_lent(&self) -> bool {
        matches!(self.owner, Owner::Region(_) | Owner::Copied(_))
    }

    /// Bytes of a [`Region`] that whoever writes to them finds lent while the slice lives: all of
    /// each group of pages that it has a byte of, or the copy of what could not be lent.
    #[inline]
    pub fn lent_bytes(&self) -> usize {
        match &self.owner {
            Owner::Region(region) => region.lent_bytes(self.base, self.len),
            Owner::Copied(_) => self.len.next_multiple_of(PAGE),
            Owner::Static | Owner::Slot(_) | Owner::Vec(_) => 0,
        }
    }

    /// Brings the bytes into the caches of this processor, if they are many that a region has lent,
    /// which no cache holds, and the processor is one whose own copy of such bytes is slow (AMD's
    /// `rep movsb`, with which Linux copies): to be asked for just before they are sent.
    pub fn fetch(&self) {
        if let Owner::Region(_) = self.owner
            && (FETCH_MIN..=FETCH_MAX).contains(&self.len)
        {
            fetch(self.bytes());
        }
    }

    /// What its bytes lie on, if that is a buffer of a pool.
    pub fn ground(&self) -> Option<Ground> {
        match &self.owner {
            Owner::Slot(slot) => Some(slot.ground()),
            Owner::Static | Owner::Vec(_) | Owner::Region(_) | Owner::Copied(_) => None,
        }
    }

    /// Copies all bytes into `to`, which has the same length: a caller's mistake otherwise, which
    /// panics.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "as many bytes as the slice has");
        copy(to, self.bytes());
    }

    /// All bytes in a fresh vector: for tests and rare paths.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Address for the kernel; valid while self or a clone of it lives.
    pub fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }
}

impl Clone for Slice {
    fn clone(&self) -> Self {
        self.of_same(self.base, self.len)
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        if let Owner::Region(region) = &self.owner {
            region.take_back(self.base, self.len);
        }
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Vec<u8>> for Slice {
    /// Takes the vector over: allocates a counter, copies nothing. For rare paths; its bytes are
    /// not page aligned.
    fn from(bytes: Vec<u8>) -> Self {
        let bytes = Arc::new(bytes);
        let (base, len) = (NonNull::from(bytes.as_slice()).cast(), bytes.len());
        Self { owner: Owner::Vec(bytes), base, len }
    }
}

impl fmt::Debug for Slice {
    /// The length and the kind; not the bytes, which are the user's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.owner {
            Owner::Static => "static",
            Owner::Slot(_) => "pool",
            Owner::Vec(_) => "vec",
            Owner::Region(_) => "region",
            Owner::Copied(_) => "copy",
        };
        f.debug_struct("Slice").field("len", &self.len).field("of", &kind).finish()
    }
}

// SAFETY: the owners are Send and Sync, and `base` is only read through.
unsafe impl Send for Slice {}
// SAFETY: as for Send.
unsafe impl Sync for Slice {}

#[cfg(test)]
mod tests {
    use super::PAGE;
    use super::Slice;
    use crate::{Pool, Region};

    fn frozen(pool: &Pool, bytes: &[u8]) -> Slice {
        let mut buf = pool.take(bytes.len()).expect("room");
        buf.copy_from_slice(bytes);
        buf.freeze()
    }

    #[test]
    fn a_part_keeps_the_whole_alive_and_the_pool_too() {
        let pool = Pool::new(1 << 20).expect("room");
        let whole = frozen(&pool, b"0123456789");
        let part = whole.part(3..6).expect("within");
        drop(whole);
        assert_eq!(pool.bytes_in_use(), 4096);
        drop(pool);
        assert_eq!(part.bytes(), b"345");
        assert_eq!(part.part(1..2).expect("within").to_vec(), b"4");
    }

    #[test]
    fn whole_groups_of_pages_are_lent() {
        let region = Region::new(1 << 20).expect("address space");
        for (offset, length, lent) in [(0, 1, 1), (65_535, 2, 2), (65_536, 131_072, 2), (7, 0, 0)] {
            let slice = region.lend(offset, length).expect("within");
            assert_eq!(slice.lent_bytes(), lent << 16, "{length} bytes at {offset}");
        }
        let pool = Pool::new(1 << 20).expect("room");
        assert_eq!(frozen(&pool, b"123").lent_bytes(), 0);
        let lent = region.lend(0, 512).expect("within");
        region.write(0, &[1]).expect("room");
        assert_eq!(region.lend(0, 512).expect("room").lent_bytes(), PAGE, "a copy");
        drop(lent);
    }

    #[test]
    fn what_is_fetched_is_as_it_was_and_still_lent() {
        let region = Region::new(1 << 20).expect("address space");
        region.write(3, &[7; 70_000]).expect("within");
        for length in [0, 1, 16 << 10, 70_000, 512 << 10] {
            let lent = region.lend(3, length).expect("within");
            let before = lent.to_vec();
            lent.fetch();
            assert!(lent.is_lent() && lent.bytes() == before, "{length} bytes");
        }
        Slice::from_static(&[1; 20_000]).fetch();
    }

    #[test]
    fn parts_out_of_range_are_refused() {
        let slice = Slice::from_static(b"0123");
        assert!(slice.part(0..4).is_some());
        assert!(slice.part(4..4).is_some_and(|part| part.is_empty()));
        assert!(slice.part(0..5).is_none());
        assert!(slice.part(5..5).is_none());
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 3..2;
        assert!(slice.part(reversed).is_none());
    }

    #[test]
    fn only_the_last_reference_becomes_a_buffer_again() {
        let pool = Pool::new(1 << 20).expect("room");
        let slice = frozen(&pool, b"0123456789");
        let clone = slice.clone();
        let slice = slice.try_into_buf().expect_err("two references");
        drop(clone);
        let tail = slice.part(1..10).expect("within");
        drop(slice);
        let tail = tail.try_into_buf().expect_err("does not start at the first byte");
        drop(tail);
        let mut buf = frozen(&pool, b"abc").try_into_buf().expect("one reference");
        buf[0] = b'x';
        assert_eq!(&*buf, b"xbc");
        assert!(Slice::from(vec![1]).try_into_buf().is_err());
        drop(buf);
        assert_eq!(pool.bytes_in_use(), 0);
    }

    #[test]
    fn a_part_of_a_region_outlives_the_region_and_keeps_its_bytes() {
        let region = Region::new(8192).expect("room");
        region.write(4100, b"old").expect("within");
        let slice = region.lend(4000, 200).expect("within");
        region.write(4100, b"now").expect("within");
        drop(region);
        assert_eq!(slice.bytes()[100..103], *b"old");
    }

    #[test]
    fn debug_shows_no_user_data() {
        let text = format!("{:?}", Slice::from(b"secret".to_vec()));
        assert_eq!(text, "Slice { len: 6, of: \"vec\" }");
    }

    #[test]
    fn zeroes_are_zero_and_the_same() {
        let (a, b) = (Slice::zeroes().expect("room"), Slice::zeroes().expect("room"));
        assert_eq!(a.as_ptr(), b.as_ptr());
        assert_eq!(a.len(), crate::BUF_LEN_MAX);
        assert!(a.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn slices_cross_threads() {
        let pool = Pool::new(1 << 20).expect("room");
        let slice = frozen(&pool, &[7; 5000]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let slice = slice.clone();
                scope.spawn(move || {
                    for at in 0..5000 {
                        let part = slice.part(at..5000).expect("within");
                        assert_eq!(part.bytes().len(), 5000 - at);
                    }
                });
            }
        });
        assert!(slice.try_into_buf().is_ok());
        assert_eq!(pool.bytes_in_use(), 0);
    }
}
