// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue of a device: its requests, and their answers.
//!
//! ```text
//! FETCH --request--> taken --answer: COMMIT_AND_FETCH--> fetching --request--> taken ...
//!                                                           |
//!                                                           `--the device is stopped--> ended
//! ```

use std::fmt;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::IoUring;
use io_uring::opcode::PollAdd;
use io_uring::opcode::UringCmd16;
use io_uring::squeue;
use io_uring::types::Fd;
use io_uring::types::SubmitArgs;
use io_uring::types::Timespec;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

use super::DEPTH;
use super::SECTOR;
use super::layout;
use super::layout::Descriptor;
use super::layout::operation;

/// Completions that are no tag's.
const WATCHED: u64 = 1 << 32;

/// What a request asks for. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // the driver tells no more
pub struct Request {
    /// By which it is answered.
    pub tag: u16,
    /// What is to be done; None: what this driver was not told that we can do.
    pub action: Option<Action>,
    /// Where.
    pub offset: u64,
    /// How much.
    pub length: u64,
    /// On stable storage before it is answered.
    pub durable: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // who serves must know all
pub enum Action {
    /// Read.
    Read,
    /// Write.
    Write,
    /// All that was answered is to be on stable storage.
    Flush,
    /// The data is of no interest any more.
    Discard,
    /// It reads as zeroes afterwards.
    Zero {
        /// And keeps its space.
        keep_space: bool,
    },
}

/// What has come out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // who serves must know all
pub enum Coming {
    /// A request, which is answered once.
    Request(Request),
    /// There is nothing more to come under one tag.
    Ended,
    /// One of the watched descriptors can be read.
    Watched,
}

/// The one queue of a device, which one thread serves: the one that has made this.
pub struct Queue {
    ring: IoUring,
    device: File,
    descriptors: Descriptors,
    watched: Vec<OwnedFd>,
    /// Tags under which something may come.
    live: usize,
    /// What did not fit into the ring.
    unsent: Vec<squeue::Entry>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("device", &self.device).field("live", &self.live).finish()
    }
}

impl Queue {
    /// Of an open device, whose requests are fetched from now on. `watched`: descriptors that end a
    /// wait when they can be read.
    pub(super) fn new(device: File, watched: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let watched: io::Result<Vec<OwnedFd>> =
            watched.iter().map(BorrowedFd::try_clone_to_owned).collect();
        let mut queue = Self {
            ring: IoUring::builder()
                .setup_single_issuer()
                .setup_coop_taskrun()
                .build(u32::from(DEPTH) * 2)?,
            descriptors: Descriptors::of(&device)?,
            device,
            watched: watched?,
            live: usize::from(DEPTH),
            unsent: Vec::new(),
        };
        for tag in 0..DEPTH {
            queue.command(layout::FETCH, tag, 0);
        }
        for index in 0..queue.watched.len() {
            queue.watch(index);
        }
        queue.send();
        queue.ring.submit()?;
        Ok(queue)
    }

    /// What has come, without waiting.
    pub fn take(&mut self) -> Option<Coming> {
        loop {
            let done = self.ring.completion().next()?;
            if done.user_data() >= WATCHED {
                self.watch(usize::try_from(done.user_data() - WATCHED).unwrap_or(usize::MAX));
                return Some(Coming::Watched);
            }
            let Ok(tag) = u16::try_from(done.user_data()) else { continue };
            if done.result() != 0 {
                self.live = self.live.saturating_sub(1);
                return Some(Coming::Ended);
            }
            if let Some(descriptor) = self.descriptors.get(tag) {
                return Some(Coming::Request(request(tag, &descriptor)));
            }
        }
    }

    /// Waits until something has come, at most for `timeout`; None: for ever. May end early.
    ///
    /// # Errors
    /// If the ring is broken.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.send();
        let waited = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        match waited {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells how a request has ended: None, or an error number of the system. It is told to the
    /// driver by the next [`wait`](Self::wait).
    pub fn answer(&mut self, request: &Request, error: Option<i32>) {
        let moved = match request.action {
            // No longer than a request may be.
            Some(Action::Read | Action::Write) => i32::try_from(request.length).unwrap_or(i32::MAX),
            _ => 0,
        };
        let result = error.map_or(moved, |number| -number.abs());
        self.command(layout::COMMIT_AND_FETCH, request.tag, result);
    }

    /// Whether nothing comes any more: the device was stopped.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.live == 0
    }

    /// Fetches the data of a write, which fills `to`.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn fetch(&self, tag: u16, to: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(to, layout::data_of(tag))
    }

    /// Brings data of a read, from byte `at` of it on.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn bring(&self, tag: u16, at: u64, from: &[u8]) -> io::Result<()> {
        self.device.write_all_at(from, layout::data_of(tag) + at)
    }

    fn command(&mut self, code: u32, tag: u16, result: i32) {
        let fd = Fd(self.device.as_raw_fd());
        let entry = UringCmd16::new(fd, code).cmd(layout::io(tag, result)).build();
        self.unsent.push(entry.user_data(tag.into()));
    }

    fn watch(&mut self, index: usize) {
        let Some(fd) = self.watched.get(index) else { return };
        let poll = PollAdd::new(Fd(fd.as_raw_fd()), u32::from(libc::POLLIN.unsigned_abs()));
        self.unsent.push(poll.build().user_data(WATCHED + index as u64));
    }

    /// Each tag and each descriptor has one entry at most: the ring has room for all.
    fn send(&mut self) {
        let mut queue = self.ring.submission();
        for entry in self.unsent.drain(..) {
            // SAFETY: the entries lend no memory: data goes by `fetch` and `bring`. The descriptors
            // are open as long as this is there, and the ring goes before them.
            let pushed = unsafe { queue.push(&entry) };
            debug_assert!(pushed.is_ok(), "more entries than tags and descriptors");
        }
    }
}

/// Errors of io_uring_enter(2) after which it is called again.
fn is_passing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Interrupted
        || matches!(error.raw_os_error(), Some(libc::ETIME | libc::EBUSY | libc::EAGAIN))
}

fn request(tag: u16, descriptor: &Descriptor) -> Request {
    let flags = descriptor.operation_and_flags;
    let action = match flags & 0xff {
        operation::READ => Some(Action::Read),
        operation::WRITE => Some(Action::Write),
        operation::FLUSH => Some(Action::Flush),
        operation::DISCARD => Some(Action::Discard),
        operation::WRITE_ZEROES => {
            Some(Action::Zero { keep_space: flags & layout::KEEP_SPACE != 0 })
        }
        _ => None,
    };
    Request {
        tag,
        action,
        offset: descriptor.first.saturating_mul(SECTOR),
        length: u64::from(descriptor.sectors) * SECTOR,
        durable: flags & layout::FUA != 0,
    }
}

/// Where the driver describes the request of each tag.
#[derive(Debug)]
struct Descriptors {
    base: NonNull<Descriptor>,
    bytes: usize,
}

impl Descriptors {
    /// JUSTIFICATION: the driver says what a request is in memory that it shares, and nowhere else.
    fn of(device: &File) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = (usize::from(DEPTH) * size_of::<Descriptor>()).next_multiple_of(page);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a mapping at an address that the kernel chooses touches no memory of anybody
        // else.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, ProtFlags::READ, flags, device, 0) }?;
        let base = NonNull::new(base.cast::<Descriptor>()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    fn get(&self, tag: u16) -> Option<Descriptor> {
        if tag >= DEPTH {
            return None;
        }
        // SAFETY: the mapping has `DEPTH` of them, and the tag is less.
        let place = unsafe { self.base.add(tag.into()) };
        // SAFETY: the place is aligned, as mappings begin with a page, readable and lives as long
        // as this; any bytes are a descriptor. The driver writes it before it completes a fetch,
        // and not again before that is answered.
        Some(unsafe { place.read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: base and bytes are those of a mapping that only this value owned.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(operation_and_flags: u32) -> Request {
        request(3, &Descriptor { operation_and_flags, sectors: 8, first: 16, address: 0 })
    }

    #[test]
    fn a_descriptor_is_a_request() {
        let read = Request {
            tag: 3,
            action: Some(Action::Read),
            offset: 8192,
            length: 4096,
            durable: false,
        };
        assert_eq!(of(operation::READ), read);
        let durable = of(operation::WRITE | layout::FUA);
        assert_eq!((durable.action, durable.durable), (Some(Action::Write), true));
        // Flags that say how urgent it is.
        assert_eq!(of(operation::FLUSH | 0x700).action, Some(Action::Flush));
        assert_eq!(of(operation::DISCARD).action, Some(Action::Discard));
        let keep_space = true;
        let zero = of(operation::WRITE_ZEROES | layout::KEEP_SPACE);
        assert_eq!(zero.action, Some(Action::Zero { keep_space }));
        assert_eq!(of(17).action, None);
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let file = File::open("/dev/null").expect("it is there");
        assert!(Queue::new(file, &[]).is_err());
    }
}
