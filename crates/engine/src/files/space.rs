// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file has where: data, space that was set aside, or nothing.
//!
//! lseek(2) knows data and holes, among them data that have not left the page cache. Space that was
//! set aside is a hole to it, or data once it was read through the page cache. FIEMAP knows which
//! extents were never written to, but nothing of data on their way there; cachestat(2) knows
//! whether there are any.

use std::fs::File;
use std::fs::Metadata;
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use medium::Space;
use rustix::fs::FallocateFlags;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// What the file has at `offset`, and the byte where that ends. What follows may be the same.
///
/// # Errors
/// What the system said; files that know no holes say that they are data to their end.
pub fn allocation(fd: &OwnedFd, offset: u64) -> io::Result<(Space, u64)> {
    let (seen, end) = seen(fd, offset)?;
    let Ok(extents) = Extents::of(fd, offset, end) else { return Ok((seen, end)) };
    let (found, end) = extents.run(offset, end, seen);
    if (seen, found) != (Space::Mapped, Space::Anchored) {
        return Ok((found, end));
    }
    if !is_written_out(fd, offset, end) {
        return Ok((Space::Mapped, end));
    }
    // What was on its way when the extents were read is in them by now.
    Ok(Extents::of(fd, offset, end)?.run(offset, end, seen))
}

/// Whether space can be set aside on the file system of the regular file `file`, which `path`
/// leads to, and be told from data. Tried on a file of its own, without a name, in the same folder.
pub(super) fn reserves(path: &Path, file: &File, metadata: &Metadata) -> bool {
    Extents::of(file, 0, 1).is_ok() && trial(path, metadata.dev()).unwrap_or(false)
}

fn trial(path: &Path, device: u64) -> io::Result<bool> {
    let path = path.canonicalize()?;
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
    // The file itself may be mounted there.
    if file.metadata()?.dev() != device {
        return Ok(false);
    }
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, TRIAL_LEN)?;
    let found = Extents::of(&file, 0, TRIAL_LEN)?.run(0, TRIAL_LEN, Space::Deallocated);
    Ok(found == (Space::Anchored, TRIAL_LEN))
}

/// What lseek(2) sees.
fn seen(fd: &OwnedFd, offset: u64) -> io::Result<(Space, u64)> {
    let hole = rustix::fs::seek(fd, SeekFrom::Hole(offset))?;
    if hole > offset {
        return Ok((Space::Mapped, hole));
    }
    match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Ok(data) => Ok((Space::Deallocated, data)),
        // A hole up to the end.
        Err(Errno::NXIO) => Ok((Space::Deallocated, rustix::fs::seek(fd, SeekFrom::End(0))?)),
        Err(error) => Err(error.into()),
    }
}

/// The first extents of a range, in order.
#[derive(Debug)]
struct Extents {
    extents: Vec<Extent>,
    /// There may be more of them.
    cut: bool,
}

impl Extents {
    /// JUSTIFICATION: no library has FIEMAP; without it space that is set aside cannot be told from
    /// a hole.
    fn of(file: impl AsFd, offset: u64, end: u64) -> io::Result<Self> {
        let length = end.saturating_sub(offset);
        let count = u32::try_from(EXTENTS_MAX).unwrap_or(u32::MAX);
        let mut map = Map { offset, length, count, ..Map::default() };
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: FIEMAP reads and writes the head of the map, and no more extents behind it than
        // its `count` says; the map has that many (ioctl_fiemap(2)).
        let got = unsafe { libc::ioctl(fd, FS_IOC_FIEMAP, &raw mut map) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = usize::try_from(map.mapped).unwrap_or(0).min(EXTENTS_MAX);
        let extents = map.extents.into_iter().take(mapped).collect();
        Ok(Self { extents, cut: mapped == EXTENTS_MAX })
    }

    /// What there is at `offset`, and where that ends, at `end` at the latest. Where there is no
    /// extent there is what was `seen`.
    fn run(&self, offset: u64, end: u64, seen: Space) -> (Space, u64) {
        let (mut first, mut at) = (None, offset);
        for extent in &self.extents {
            let parts = [(seen, extent.offset), (extent.holds(seen), extent.end())];
            for (what, until) in parts.into_iter().filter(|(_, until)| *until > offset) {
                if until > at {
                    if *first.get_or_insert(what) != what {
                        return (first.unwrap_or(seen), at.min(end));
                    }
                    at = until;
                }
            }
        }
        match first {
            Some(first) if self.cut || first != seen => (first, at.min(end)),
            _ => (seen, end),
        }
    }
}

/// Extent of FIEMAP (linux/fiemap.h).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Extent {
    offset: u64,
    physical: u64,
    length: u64,
    reserved_64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

impl Extent {
    const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Space that a copy of the file shares must be found once more when it is written to.
    const fn holds(&self, seen: Space) -> Space {
        match self.flags & (EXTENT_UNWRITTEN | EXTENT_SHARED) {
            EXTENT_UNWRITTEN => Space::Anchored,
            flags if flags & EXTENT_UNWRITTEN == 0 => Space::Mapped,
            _ => seen,
        }
    }
}

/// Argument of FIEMAP (linux/fiemap.h), with room for extents.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Map {
    offset: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_MAX],
}

/// Whether all that was written in the range has left the page cache; false if the kernel cannot
/// tell (before Linux 6.5).
///
/// JUSTIFICATION: no library has cachestat; without it space that was set aside would seem to hold
/// data as soon as it was read.
fn is_written_out(fd: &OwnedFd, offset: u64, end: u64) -> bool {
    let range = [offset, end.saturating_sub(offset)];
    let mut pages = Pages::default();
    let (no_flags, fd) = (0_u32, fd.as_raw_fd());
    let (asked, answer) = (&raw const range, &raw mut pages);
    // SAFETY: the kernel reads two numbers at `asked` and writes five at `answer` (cachestat(2));
    // both are of this function.
    let got = unsafe { libc::syscall(SYS_CACHESTAT, fd, asked, answer, no_flags) };
    got == 0 && (pages.dirty, pages.writeback) == (0, 0)
}

/// `struct cachestat` (linux/mman.h).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Extents that are asked for at once.
const EXTENTS_MAX: usize = 32;
/// `_IOWR('f', 11, struct fiemap)`, whose size is that of the head alone.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b;
const _: () = assert!(mem::offset_of!(Map, extents) == 0x20 && size_of::<Extent>() == 56);
/// The same on all architectures that we build for; libc has no name for it yet.
const SYS_CACHESTAT: libc::c_long = 451;
const EXTENT_UNWRITTEN: u32 = 0x800;
const EXTENT_SHARED: u32 = 0x2000;
/// Bytes that are set aside to see whether that works.
const TRIAL_LEN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn extents(list: &[(u64, u64, u32)]) -> Extents {
        let extents = list.iter().map(|(offset, length, flags)| Extent {
            offset: *offset,
            length: *length,
            flags: *flags,
            ..Extent::default()
        });
        Extents { extents: extents.collect(), cut: false }
    }

    #[test]
    fn runs_join_what_is_alike() {
        use Space::{Anchored, Deallocated, Mapped};
        let (unwritten, shared) = (EXTENT_UNWRITTEN, EXTENT_UNWRITTEN | EXTENT_SHARED);
        let none = extents(&[]);
        assert_eq!(none.run(5, 9, Deallocated), (Deallocated, 9));
        assert_eq!(none.run(5, 9, Mapped), (Mapped, 9));
        let list = [(10, 10, unwritten), (20, 10, unwritten), (40, 10, shared), (60, 10, 0)];
        let some = extents(&list);
        assert_eq!(some.run(0, 100, Deallocated), (Deallocated, 10));
        assert_eq!(some.run(10, 100, Deallocated), (Anchored, 30));
        assert_eq!(some.run(15, 25, Deallocated), (Anchored, 25));
        assert_eq!(some.run(30, 100, Deallocated), (Deallocated, 60));
        assert_eq!(some.run(60, 100, Deallocated), (Mapped, 70));
        assert_eq!(some.run(70, 100, Deallocated), (Deallocated, 100));
        assert_eq!(some.run(30, 100, Mapped), (Mapped, 100));
        assert_eq!(some.run(12, 18, Mapped), (Anchored, 18));
        let cut = Extents { cut: true, ..extents(&list) };
        assert_eq!(cut.run(30, 100, Mapped), (Mapped, 70));
    }

    /// A file of 1 MiB where space can be set aside; None, with a word, where it cannot.
    fn reserving() -> Option<File> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let metadata = file.as_file().metadata().unwrap();
        if !reserves(file.path(), file.as_file(), &metadata) {
            println!("skipped: the temporary folder's file system cannot set space aside");
            return None;
        }
        Some(file.into_file())
    }

    #[test]
    fn space_that_is_set_aside_is_told_from_data_and_holes() {
        use Space::{Anchored, Deallocated, Mapped};
        let Some(file) = reserving() else { return };
        let fd = OwnedFd::from(file.try_clone().unwrap());
        let at = |offset| allocation(&fd, offset).unwrap();
        assert_eq!(at(4096), (Deallocated, 1 << 20));
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, 65_536, 65_536).unwrap();
        assert_eq!(at(0), (Deallocated, 65_536));
        assert_eq!(at(65_536), (Anchored, 131_072));
        file.write_all_at(&[1; 4096], 98_304).unwrap();
        assert_eq!(at(65_536), (Anchored, 98_304), "and nothing was synced");
        assert_eq!(at(98_304), (Mapped, 102_400));
        file.sync_all().unwrap();
        assert_eq!(at(98_304), (Mapped, 102_400));
        assert_eq!(at(102_400), (Anchored, 131_072));
        // What was read is in the page cache.
        let mut seen = [1; 4096];
        file.read_exact_at(&mut seen, 65_536).unwrap();
        assert_eq!(seen, [0; 4096]);
        if is_written_out(&fd, 65_536, 69_632) {
            assert_eq!(at(65_536).0, Anchored);
        }
        file.write_all_at(&[1], 65_536).unwrap();
        assert_eq!(at(65_536).0, Mapped);
    }

    #[test]
    fn what_cannot_tell_reserves_nothing() {
        let path = Path::new("/proc/self/status");
        let file = File::open(path).unwrap();
        assert!(!reserves(path, &file, &file.metadata().unwrap()));
        let memory = Path::new("/dev/shm");
        let Ok(file) = tempfile::NamedTempFile::new_in(memory) else { return };
        let metadata = file.as_file().metadata().unwrap();
        file.as_file().set_len(4096).unwrap();
        let fd = OwnedFd::from(file.reopen().unwrap());
        if !reserves(file.path(), file.as_file(), &metadata) {
            assert_eq!(allocation(&fd, 0).unwrap(), (Space::Deallocated, 4096));
        }
    }
}
