// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work on files, whoever carries it out: io_uring, a file thread, or the reactor itself.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use buf::Buf;
use buf::Slice;
use libc::EAGAIN;
use libc::EINTR;
use libc::EIO;
use libc::EOPNOTSUPP;
use libc::c_int;
use libc::iovec;
use libc::off_t;
use medium::Space;

use crate::Event;
use crate::FileRefused;
use crate::Token;
use crate::limits::FILES_MAX;
use crate::memory::Mapping;

/// A file that a port knows.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) direct: bool,
}

/// The files of a port by id.
#[derive(Debug, Default)]
pub(crate) struct Files(Vec<Option<Rc<File>>>);

impl Files {
    pub(crate) fn add(
        &mut self,
        id: u32,
        fd: Arc<OwnedFd>,
        direct: bool,
    ) -> Result<(), FileRefused> {
        if id >= FILES_MAX {
            return Err(FileRefused::TooMany(id));
        }
        let index = id as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        match self.0.get_mut(index) {
            Some(slot @ None) => *slot = Some(Rc::new(File { fd, direct })),
            _ => return Err(FileRefused::Taken(id)),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u32) {
        if let Some(slot) = self.0.get_mut(id as usize) {
            *slot = None;
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<Rc<File>> {
        self.0.get(id as usize)?.clone()
    }
}

/// One work, with its buffer and how far it has come.
#[derive(Debug)]
pub(crate) struct FileWork {
    token: Token,
    offset: u64,
    done: usize,
    what: What,
}

/// What is to be done.
#[derive(Debug)]
enum What {
    Read(Buf),
    Write { data: Slice, durable: bool, bounce: Option<Mapping> },
    Sync,
    Clear { length: u64, leave: Space, way: Way },
}

/// How a range is made to read as zero: by one call, by a hole, or by a hole that is then filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ZeroRange,
    Punch,
    Fill,
}

/// What comes after a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    Again,
    /// It is done.
    Done(Result<usize, i32>),
}

/// The next system call of a work, with addresses that are valid while the work lives unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Read { base: *mut u8, len: usize, offset: u64 },
    Write { base: *const u8, len: usize, offset: u64, flags: c_int },
    Sync,
    Allocate { mode: c_int, offset: u64, len: u64 },
}

/// What a work is, for a port that treats kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    DurableWrite,
    Other,
}

/// Alignment of offsets, lengths and addresses for direct files.
const SECTOR: usize = 512;

/// Largest offset that the kernel takes.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl FileWork {
    pub(crate) const fn read(token: Token, offset: u64, buf: Buf) -> Self {
        Self { token, offset, done: 0, what: What::Read(buf) }
    }

    pub(crate) const fn write(token: Token, offset: u64, data: Slice, durable: bool) -> Self {
        let what = What::Write { data, durable, bounce: None };
        Self { token, offset, done: 0, what }
    }

    pub(crate) const fn sync(token: Token) -> Self {
        Self { token, offset: 0, done: 0, what: What::Sync }
    }

    pub(crate) const fn clear(token: Token, offset: u64, length: u64, leave: Space) -> Self {
        let way = match leave {
            Space::Deallocated => Way::Punch,
            Space::Mapped | Space::Anchored => Way::ZeroRange,
        };
        Self { token, offset, done: 0, what: What::Clear { length, leave, way } }
    }

    pub(crate) const fn kind(&self) -> Kind {
        match self.what {
            What::Read(_) => Kind::Read,
            What::Write { durable: false, .. } => Kind::Write,
            What::Write { durable: true, .. } => Kind::DurableWrite,
            What::Sync | What::Clear { .. } => Kind::Other,
        }
    }

    /// To be called once: copies data that a direct file could not take from where they are.
    pub(crate) fn prepare(&mut self, direct: bool) -> Result<(), i32> {
        if let What::Write { data, bounce, .. } = &mut self.what
            && direct
            && !data.is_empty()
            && !data.as_ptr().addr().is_multiple_of(SECTOR)
        {
            let mut copy = Mapping::new(data.len()).map_err(|error| errno_of(&error))?;
            data.copy_to(copy.bytes_mut());
            *bounce = Some(copy);
        }
        Ok(())
    }

    /// The next system call; None if there is nothing to do.
    pub(crate) fn call(&mut self) -> Option<Call> {
        let done = self.done;
        let offset = self.offset.checked_add(done as u64)?;
        let call = match &mut self.what {
            What::Read(buf) => {
                let left = buf.get_mut(done..)?;
                Call::Read { base: left.as_mut_ptr(), len: left.len(), offset }
            }
            What::Write { data, durable, bounce } => {
                let base = bounce.as_ref().map_or(data.as_ptr(), |copy| copy.as_ptr().cast_const());
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                let len = data.len() - done;
                Call::Write { base: base.wrapping_add(done), len, offset, flags }
            }
            What::Sync => return Some(Call::Sync),
            What::Clear { length, way, .. } => {
                let how = match way {
                    Way::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
                    Way::Punch => libc::FALLOC_FL_PUNCH_HOLE,
                    Way::Fill => 0,
                };
                let mode = how | libc::FALLOC_FL_KEEP_SIZE;
                Call::Allocate { mode, offset, len: *length }
            }
        };
        let len = match call {
            Call::Read { len, .. } | Call::Write { len, .. } => len as u64,
            Call::Allocate { len, .. } => len,
            Call::Sync => 1,
        };
        (len > 0).then_some(call)
    }

    /// Takes what the system call of `call` returned: bytes, or an errno.
    pub(crate) fn step(&mut self, result: Result<usize, i32>, direct: bool) -> Step {
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(EINTR | EAGAIN) => return Step::Again,
            Err(EOPNOTSUPP) => {
                let What::Clear { way: way @ Way::ZeroRange, .. } = &mut self.what else {
                    return Step::Done(Err(EOPNOTSUPP));
                };
                // A hole reads as zero just as well (tmpfs knows only this).
                *way = Way::Punch;
                return Step::Again;
            }
            Err(errno) => return Step::Done(Err(errno)),
        };
        self.done += bytes;
        let len = match &mut self.what {
            What::Read(buf) => buf.len(),
            What::Write { data, .. } => data.len(),
            What::Clear { leave: Space::Anchored, way: way @ Way::Punch, .. } => {
                *way = Way::Fill;
                return Step::Again;
            }
            What::Sync | What::Clear { .. } => return Step::Done(Ok(0)),
        };
        if self.done >= len {
            return Step::Done(Ok(self.done));
        }
        match self.what {
            What::Read(_) if bytes == 0 => Step::Done(Ok(self.done)),
            // The end of a file may lie within a sector; a direct read cannot go on from there.
            What::Read(_) if direct && !bytes.is_multiple_of(SECTOR) => Step::Done(Ok(self.done)),
            _ if bytes == 0 => Step::Done(Err(EIO)),
            _ => Step::Again,
        }
    }

    /// Carries the work out on the calling thread, however long it takes.
    pub(crate) fn run(&mut self, file: &OwnedFd, direct: bool) -> Result<usize, i32> {
        loop {
            let Some(call) = self.call() else { return Ok(self.done) };
            let result = call.perform(file, 0);
            if let Step::Done(result) = self.step(result, direct) {
                return result;
            }
        }
    }

    /// The event of the finished work, which gives the buffer back.
    pub(crate) fn into_event(self, result: Result<usize, i32>) -> (Token, Event) {
        let plain = result.map(|_| ());
        let event = match self.what {
            What::Read(mut buf) => {
                buf.truncate(self.done);
                Event::Read { buf, result }
            }
            What::Write { .. } => Event::Wrote { result: plain },
            What::Sync => Event::Synced { result: plain },
            What::Clear { .. } => Event::Cleared { result: plain },
        };
        (self.token, event)
    }
}

impl Call {
    /// Makes the system call; `flags` are added to those of a read or write.
    pub(crate) fn perform(&self, file: &OwnedFd, flags: c_int) -> Result<usize, i32> {
        let fd = file.as_raw_fd();
        match *self {
            Self::Read { base, len, offset } => {
                let vector = iovec { iov_base: base.cast(), iov_len: len };
                let at = off(offset)?;
                // SAFETY: `base` points to `len` bytes of the work's own buffer, which lives, and
                // is not borrowed, while the work is borrowed for this call.
                let got = unsafe { libc::preadv2(fd, &raw const vector, 1, at, flags) };
                answer(got)
            }
            Self::Write { base, len, offset, flags: own } => {
                let vector = iovec { iov_base: base.cast_mut().cast(), iov_len: len };
                let at = off(offset)?;
                // SAFETY: `base` points to `len` bytes that the work's slice or copy keeps alive;
                // the kernel only reads them.
                let got = unsafe { libc::pwritev2(fd, &raw const vector, 1, at, own | flags) };
                answer(got)
            }
            Self::Sync => rustix::fs::fdatasync(file).map(|()| 0).map_err(|e| e.raw_os_error()),
            Self::Allocate { mode, offset, len } => {
                // SAFETY: touches no memory of this process.
                let got = unsafe { libc::fallocate(fd, mode, off(offset)?, off(len)?) };
                answer(isize::try_from(got).unwrap_or(-1))
            }
        }
    }
}

fn off(value: u64) -> Result<off_t, i32> {
    if value > OFFSET_MAX {
        return Err(libc::EINVAL);
    }
    off_t::try_from(value).map_err(|_| libc::EINVAL)
}

fn answer(got: isize) -> Result<usize, i32> {
    usize::try_from(got).map_err(|_| errno_of(&io::Error::last_os_error()))
}

/// The kernel's number of `error`.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(EIO)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn temp(bytes: &[u8]) -> (std::fs::File, OwnedFd) {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let fd = file.try_clone().unwrap().into();
        (file, fd)
    }

    #[test]
    fn a_read_past_the_end_is_truncated() {
        let (_file, fd) = temp(&[7; 1000]);
        let buf = buf::Pool::new(1 << 20).unwrap().take(4096).unwrap();
        let mut work = FileWork::read(Token(1), 100, buf);
        let result = work.run(&fd, false);
        assert_eq!(result, Ok(900));
        let (token, Event::Read { buf, result }) = work.into_event(result) else { panic!() };
        assert_eq!((token, result), (Token(1), Ok(900)));
        assert_eq!(&*buf, &[7; 900][..]);
    }

    #[test]
    fn steps_continue_short_calls_and_stop_at_errors() {
        let mut work = FileWork::write(Token(1), 0, Slice::from(vec![1; 10]), false);
        assert_eq!(work.step(Ok(4), false), Step::Again);
        assert!(matches!(work.call(), Some(Call::Write { len: 6, offset: 4, .. })));
        assert_eq!(work.step(Err(EINTR), false), Step::Again);
        assert_eq!(work.step(Ok(0), false), Step::Done(Err(EIO)));
        assert_eq!(work.step(Err(libc::ENOSPC), false), Step::Done(Err(libc::ENOSPC)));
        assert_eq!(work.step(Ok(6), false), Step::Done(Ok(10)));
        assert!(work.call().is_none());
    }

    #[test]
    fn a_direct_read_stops_within_a_sector() {
        let buf = buf::Pool::new(1 << 20).unwrap().take(4096).unwrap();
        let mut work = FileWork::read(Token(1), 0, buf);
        assert_eq!(work.step(Ok(1024), true), Step::Again);
        assert_eq!(work.step(Ok(100), true), Step::Done(Ok(1124)));
    }

    #[test]
    fn zeroing_falls_back_to_a_hole() {
        let mut work = FileWork::clear(Token(1), 0, 4096, Space::Mapped);
        assert_eq!(work.step(Err(EOPNOTSUPP), false), Step::Again);
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert!(matches!(work.call(), Some(Call::Allocate { mode, .. }) if mode == hole));
        assert_eq!(work.step(Err(EOPNOTSUPP), false), Step::Done(Err(EOPNOTSUPP)));
    }

    #[test]
    fn reserving_falls_back_to_a_hole_that_is_filled() {
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let mode = |work: &mut FileWork| match work.call() {
            Some(Call::Allocate { mode, offset: 512, len: 4096 }) => mode,
            call => panic!("{call:?}"),
        };
        let mut work = FileWork::clear(Token(1), 512, 4096, Space::Anchored);
        assert_eq!(mode(&mut work), libc::FALLOC_FL_ZERO_RANGE | keep);
        assert_eq!(work.step(Err(EOPNOTSUPP), false), Step::Again);
        assert_eq!(mode(&mut work), libc::FALLOC_FL_PUNCH_HOLE | keep);
        assert_eq!(work.step(Ok(0), false), Step::Again);
        assert_eq!(mode(&mut work), keep);
        assert_eq!(work.step(Err(libc::ENOSPC), false), Step::Done(Err(libc::ENOSPC)));
        assert_eq!(work.step(Ok(0), false), Step::Done(Ok(0)));
        let mut at_once = FileWork::clear(Token(1), 512, 4096, Space::Anchored);
        assert_eq!(at_once.step(Ok(0), false), Step::Done(Ok(0)));
    }

    #[test]
    fn direct_files_get_a_copy_of_unaligned_data() {
        let data = Slice::from((0..=255).cycle().take(4096).collect::<Vec<u8>>());
        let part = data.part(1..1025).unwrap();
        let mut work = FileWork::write(Token(1), 0, part.clone(), false);
        work.prepare(true).unwrap();
        let Some(Call::Write { base, .. }) = work.call() else { panic!() };
        assert!(base.addr().is_multiple_of(SECTOR));
        let (file, fd) = temp(&[]);
        assert_eq!(work.run(&fd, true), Ok(1024));
        let mut got = [0; 1024];
        file.read_exact_at(&mut got, 0).unwrap();
        assert_eq!(got, part.to_vec().as_slice());
    }

    #[test]
    fn offsets_beyond_the_kernels_are_refused() {
        let (_file, fd) = temp(&[]);
        let mut work = FileWork::clear(Token(1), u64::MAX - 1, 10, Space::Deallocated);
        assert_eq!(work.run(&fd, false), Err(libc::EINVAL));
    }
}
