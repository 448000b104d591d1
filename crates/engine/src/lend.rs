// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending without a copy: pages of lasting memory go through a pipe into a socket by reference.
//!
//! A RAM disk's READs cost little but the copy into the socket, so that copy is left out:
//! vmsplice(2) puts references to the pages into a pipe, headers are written between them, and
//! splice(2) moves all of it into the socket. MSG_ZEROCOPY would not do: within a host the kernel
//! then copies after all. A pipe belongs to one send until the socket has taken everything.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use libc::iovec;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::pipe::SpliceFlags;

use crate::gather::Gather;
use crate::limits::PIPE_BYTES;
use crate::limits::PIPES_MAX;
use crate::sockets::Mode;

/// The pipes of a port.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    spare: Vec<Pipe>,
    /// Pipes that are with sends.
    taken: usize,
    /// The system refused one: it is not asked again.
    refused: bool,
}

impl Pipes {
    /// An empty pipe; None if all are in use or the system gives none, and then sends copy.
    pub(crate) fn take(&mut self) -> Option<Pipe> {
        if self.refused || self.taken >= PIPES_MAX {
            return None;
        }
        let pipe = match self.spare.pop() {
            Some(pipe) => Some(pipe),
            None => Pipe::new().ok(),
        };
        self.refused = pipe.is_none();
        self.taken += usize::from(pipe.is_some());
        pipe
    }

    /// Takes a pipe back; one that holds bytes of a send that failed is closed.
    pub(crate) fn give_back(&mut self, pipe: Pipe) {
        self.taken = self.taken.saturating_sub(1);
        if pipe.held == 0 {
            self.spare.push(pipe);
        }
    }
}

/// How far a send came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The socket has taken everything.
    Done,
    /// The socket takes more when it is writable.
    Full,
    /// The send is over, with this error number.
    Failed(i32),
}

/// A pipe between the memory and a socket.
#[derive(Debug)]
pub(crate) struct Pipe {
    into: OwnedFd,
    out: OwnedFd,
    /// Bytes that were put in and that the socket has not taken.
    held: usize,
}

impl Pipe {
    /// A pipe that takes references, which a sandbox may forbid.
    fn new() -> io::Result<Self> {
        static PROBE: [u8; 1] = [0x5a];
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // An unprivileged user has a limit for all of his pipes together; past it, this fails.
        rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES)?;
        let probe = iovec { iov_base: (&raw const PROBE).cast_mut().cast(), iov_len: PROBE.len() };
        // SAFETY: the element is static bytes that never change.
        unsafe { refer(&into, &probe) }?;
        let mut read = [0];
        rustix::io::read(&out, &mut read)?;
        if read == PROBE {
            Ok(Self { into, out, held: 0 })
        } else {
            Err(io::ErrorKind::Other.into())
        }
    }

    /// Moves all of `gather` into `socket`, or as much as it takes now.
    pub(crate) fn pass(&mut self, gather: &mut Gather, socket: &OwnedFd, mode: Mode) -> Progress {
        // splice(2) waits unless the socket itself says not to.
        if mode == Mode::Blocking {
            let _ = rustix::io::ioctl_fionbio(socket, true);
        }
        let progress = loop {
            match self.step(gather, socket) {
                Ok(()) if self.held == 0 && gather.remaining() == 0 => break Progress::Done,
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Progress::Full,
                Err(errno) => break Progress::Failed(errno.raw_os_error()),
            }
        };
        if mode == Mode::Blocking {
            let _ = rustix::io::ioctl_fionbio(socket, false);
        }
        progress
    }

    /// Fills the pipe as far as it goes and empties it once.
    fn step(&mut self, gather: &mut Gather, socket: &OwnedFd) -> Result<(), Errno> {
        while gather.remaining() > 0 {
            match self.put(gather) {
                Ok(true) => {}
                Ok(false) | Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        let mut flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        if gather.remaining() > 0 {
            flags |= SpliceFlags::MORE;
        }
        match rustix::pipe::splice(&self.out, None, socket, None, self.held, flags)? {
            0 => Err(Errno::IO),
            moved => {
                self.held = self.held.saturating_sub(moved);
                Ok(())
            }
        }
    }

    /// Puts the next element in; false if only a part of it had room.
    fn put(&mut self, gather: &mut Gather) -> Result<bool, Errno> {
        let Some((element, lent)) = gather.next() else { return Ok(false) };
        let put = if lent {
            // SAFETY: the element is lasting memory, a part of a region or static (`buf` says so).
            // The kernel keeps the pages for as long as it refers to them, also when the mapping is
            // gone; that their bytes may change meanwhile is what a region's bytes do.
            unsafe { refer(&self.into, &element) }
        } else {
            // SAFETY: the element belongs to the list of the gather, which lives during the call.
            done(unsafe { libc::write(self.into.as_raw_fd(), element.iov_base, element.iov_len) })
        }?;
        self.held += put;
        gather.advance(put);
        Ok(put == element.iov_len)
    }
}

/// Puts references to the pages of `element` into a pipe; gives the number of bytes.
///
/// # Safety
/// The memory is mapped, and what is done to its bytes while the kernel refers to them is all right
/// with whoever reads them.
unsafe fn refer(pipe: &OwnedFd, element: &iovec) -> Result<usize, Errno> {
    // SAFETY: the kernel reads one element, which lives during the call; the rest is the caller's
    // promise.
    done(unsafe { libc::vmsplice(pipe.as_raw_fd(), element, 1, libc::SPLICE_F_NONBLOCK) })
}

fn done(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
