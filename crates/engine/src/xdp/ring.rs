// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that we have together with the kernel: the rings of AF_XDP, and that of frames.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::net::xdp::XdpRingFlags;
use rustix::net::xdp::XdpRingOffset;

/// Pages that are mapped as long as this value is there.
///
/// JUSTIFICATION: the kernel reads and writes these pages while we do; a buffer of the standard
/// library may not be shared so, and a copy for each frame is what this way is to save.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Pages of zeros.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the address, so no memory of anybody else is touched.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, access, flags) }?;
        let memory = Self::of(base.cast(), len)?;
        // After a fork the first who writes gets another page, and the kernel has the one before.
        // SAFETY: the pages are ours; all that changes is that children do not have them.
        unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork) }?;
        Ok(memory)
    }

    fn shared(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let flags = flags | MapFlags::POPULATE;
        // SAFETY: as above.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, flags, fd, offset) }?;
        Self::of(base.cast(), len)
    }

    fn of(base: *mut u8, len: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    pub(super) fn address(&self) -> u64 {
        u64::try_from(self.base.as_ptr().expose_provenance()).unwrap_or(0)
    }

    /// Bytes of it. None if there are not so many.
    ///
    /// # Safety
    /// The kernel does not write to them as long as they are borrowed.
    pub(super) unsafe fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        let start = self.base.as_ptr().wrapping_add(at).cast_const();
        // SAFETY: they are in the mapping, which is live, and the caller says that nobody writes.
        is_within.then(|| unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// Bytes of it, to be written to. None if there are not so many.
    ///
    /// # Safety
    /// The kernel neither writes to nor reads them as long as they are borrowed.
    pub(super) unsafe fn bytes_mut(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        let start = self.base.as_ptr().wrapping_add(at);
        // SAFETY: as above; `self` is borrowed for us alone.
        is_within.then(|| unsafe { std::slice::from_raw_parts_mut(start, len) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of a mapping that only this value owned.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

/// One ring: one side puts entries there, the other one takes them.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries_at: usize,
    entries: u32,
    /// How far our side is; the other side learns of it by `publish`.
    ours: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Of `entries`, a power of two, at `page` of the socket, where `offset` says.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offset: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        assert!(entries.is_power_of_two());
        let strange = || io::Error::other("the kernel lays rings out in an unknown way");
        let place = |at: u64| usize::try_from(at).ok().filter(|at| *at < OFFSETS_END);
        let word = |at: u64| place(at).filter(|at| at.is_multiple_of(size_of::<u32>()));
        let producer = word(offset.producer).ok_or_else(strange)?;
        let consumer = word(offset.consumer).ok_or_else(strange)?;
        let flags = offset.flags.map(|at| word(at).ok_or_else(strange)).transpose()?;
        let entries_at = place(offset.desc).filter(|at| at.is_multiple_of(align_of::<T>()));
        let entries_at = entries_at.ok_or_else(strange)?;
        let count = usize::try_from(entries).unwrap_or(0);
        let words = [producer, consumer, flags.unwrap_or(0)];
        if words.into_iter().any(|at| at + size_of::<u32>() > entries_at) {
            return Err(strange());
        }
        let mapping = Mapping::shared(fd, page, entries_at + count * size_of::<T>())?;
        let of = PhantomData;
        Ok(Self { mapping, producer, consumer, flags, entries_at, entries, ours: 0, of })
    }

    /// Entries that may be put there.
    pub(super) fn room(&self) -> u32 {
        let theirs = self.word(self.consumer).load(Ordering::Acquire);
        self.entries.saturating_sub(self.ours.wrapping_sub(theirs))
    }

    /// Entries that were put there, published or not, and not taken.
    pub(super) fn waiting(&self) -> u32 {
        self.entries - self.room()
    }

    /// Puts an entry there; false if there is no room.
    pub(super) fn put(&mut self, entry: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        let place = self.place(self.ours);
        // SAFETY: it is in the mapping and aligned for its kind, and the other side has taken
        // what was there.
        unsafe { place.write(entry) };
        self.ours = self.ours.wrapping_add(1);
        true
    }

    /// The other side hears of what was put there.
    pub(super) fn publish_put(&self) {
        self.word(self.producer).store(self.ours, Ordering::Release);
    }

    /// Takes an entry, if there is one. What it says is the kernel's word, and to be checked.
    pub(super) fn take(&mut self) -> Option<T> {
        let theirs = self.word(self.producer).load(Ordering::Acquire);
        let there = theirs.wrapping_sub(self.ours);
        if there == 0 || there > self.entries {
            return None;
        }
        let place = self.place(self.ours);
        // SAFETY: it is in the mapping and aligned for its kind, of which any bytes are one (two
        // kinds are in use, both of integers); the other side has written it before it said so.
        let entry = unsafe { place.read() };
        self.ours = self.ours.wrapping_add(1);
        Some(entry)
    }

    /// The other side hears of what was taken.
    pub(super) fn publish_taken(&self) {
        self.word(self.consumer).store(self.ours, Ordering::Release);
    }

    /// Whether the kernel waits for a call before it goes on with this ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        // What was published comes before the look: the kernel says that it waits, and then looks.
        fence(Ordering::SeqCst);
        let flags = self.flags.map_or(0, |at| self.word(at).load(Ordering::Relaxed));
        XdpRingFlags::from_bits_retain(flags).contains(XdpRingFlags::XDP_RING_NEED_WAKEUP)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let word = self.mapping.base.as_ptr().wrapping_add(at).cast::<u32>();
        // SAFETY: it is in the mapping and aligned; both sides use it atomically.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn place(&self, index: u32) -> *mut T {
        let index = usize::try_from(index & (self.entries - 1)).unwrap_or(0);
        let at = self.entries_at + index * size_of::<T>();
        self.mapping.base.as_ptr().wrapping_add(at).cast::<T>()
    }
}

/// Before it a ring has its words, and its entries begin.
const OFFSETS_END: usize = 64 << 10;
