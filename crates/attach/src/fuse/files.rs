// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system: a directory with one file, the disk.
//!
//! Reads and writes are answered when the disk has ended them, so many are under way; nothing is
//! cached by the system. As a block device the file keeps its size whatever is written, and opening
//! it with `O_TRUNC` leaves it as it is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use buf::Buf;
use initiator::Pool;
use nbd::Command;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Shared;
use super::device::Ticket;
use super::errno;
use super::holes::Wanted;
use super::message;
use super::message::Answer;
use super::message::Attributes;
use super::message::Message;
use super::message::Request;
use super::message::Size;
use crate::limits;
use crate::server::News;
use crate::split;
use crate::split::Part;

/// Name of the file.
pub(super) const NAME: &str = "disk";

/// Numbers of the directory and the file.
const ROOT: u64 = 1;
pub(super) const DISK: u64 = 2;

/// The part of the flags of `open` that says what it is for.
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;

/// `O_SYNC` has its bit, too. (What rustix calls so is `O_SYNC`.)
const O_DSYNC: u32 = 0o10000;

/// `SEEK_DATA` and `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Whom an end is told.
#[derive(Debug)]
pub(super) enum Reply {
    /// So many bytes are wanted.
    Read(Ticket, usize),
    /// So many bytes were given, and so many are held for them.
    Write {
        ticket: Ticket,
        bytes: u32,
        room: usize,
    },
    Done(Ticket),
}

impl Reply {
    pub(super) const fn ticket(&mut self) -> &mut Ticket {
        match self {
            Self::Read(ticket, _) | Self::Write { ticket, .. } | Self::Done(ticket) => ticket,
        }
    }
}

/// `lseek`, which another thread answers.
#[derive(Debug)]
pub(super) struct Seek {
    pub(super) ticket: Ticket,
    pub(super) wanted: Wanted,
    pub(super) offset: u64,
}

/// What a thread that takes requests has.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) shared: Arc<Shared>,
    pub(super) seeks: Sender<Seek>,
    /// Numbers of requests whose threads have a signal.
    pub(super) interrupts: Sender<u64>,
    /// Since the epoch.
    pub(super) begun: Duration,
}

impl Files {
    /// Takes requests until it is unmounted, or fails; whoever listens learns of that.
    pub(super) fn run(self) {
        let shared = Arc::clone(&self.shared);
        // What ends one ends all.
        match self.serve() {
            Ok(()) if shared.unmounted.swap(true, Ordering::AcqRel) => {}
            Ok(()) => shared.tell(News::Unmounted),
            Err(error) => {
                shared.failure().get_or_insert(error);
                shared.tell(News::Unmounted);
            }
        }
    }

    fn serve(self) -> io::Result<()> {
        let mut head = [0; message::HEAD_BYTES];
        let Ok(mut room) = self.shared.room(limits::FUSE_BYTES_MAX as usize, 0) else {
            return Ok(());
        };
        while let Some(length) = self.shared.device.receive(&mut head, &mut room)? {
            let message = match message::parse(&head, length) {
                Ok(message) => message,
                Err(odd) => {
                    self.shared.device.refuse(odd)?;
                    continue;
                }
            };
            match message.request {
                Request::Forget => {}
                Request::Interrupt { unique } => {
                    // Its thread lasts as long as this one.
                    let _ = self.interrupts.send(unique);
                }
                Request::Destroy => {
                    Ticket::new(&self.shared.device, message.unique).done();
                    break;
                }
                _ => self.handle(message, &mut room),
            }
        }
        Ok(())
    }

    fn handle(&self, message: Message<'_>, room: &mut Buf) {
        let Message { unique, node, thread, request } = message;
        let ticket = Ticket::new(&self.shared.device, unique).of_thread(thread);
        match request {
            Request::Read { offset, size } => self.read(ticket, offset, size),
            Request::Write { offset, size, flags } => self.write(ticket, offset, size, flags, room),
            Request::Fsync => self.flush(ticket),
            Request::Fallocate { offset, length, mode } => {
                self.fallocate(ticket, offset, length, mode);
            }
            Request::Lseek { offset, whence } => self.seek(ticket, offset, whence),
            Request::Lookup { name } if node == ROOT && name == NAME.as_bytes() => {
                match self.attributes(DISK) {
                    Some(attributes) => ticket.answer(&Answer::entry(&attributes)),
                    None => ticket.error(Errno::NOENT),
                }
            }
            Request::Lookup { .. } => ticket.error(Errno::NOENT),
            Request::Attributes => match self.attributes(node) {
                Some(attributes) => ticket.answer(&Answer::attributes(&attributes)),
                None => ticket.error(Errno::NOENT),
            },
            Request::SetAttributes { size, is_of_rights } => {
                self.set_attributes(ticket, node, size, is_of_rights);
            }
            Request::Open { flags } => self.open(ticket, node, flags),
            Request::OpenFolder => ticket.answer(&Answer::opened_folder()),
            Request::ReadFolder { offset, size } => read_folder(ticket, node, offset, size),
            Request::Statfs => {
                let geometry = self.shared.disk.geometry();
                ticket.answer(&Answer::statfs(geometry.blocks, geometry.block));
            }
            Request::Release => ticket.done(),
            // There is this one file, and no other.
            Request::Change => ticket.error(Errno::PERM),
            _ => ticket.error(Errno::NOSYS),
        }
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        let geometry = self.shared.disk.geometry();
        let (size, mode, links) = match node {
            ROOT => (0, message::S_IFDIR | 0o500, 2),
            DISK if geometry.read_only => (geometry.bytes(), message::S_IFREG | 0o400, 1),
            DISK => (geometry.bytes(), message::S_IFREG | 0o600, 1),
            _ => return None,
        };
        Some(Attributes {
            node,
            size,
            mode,
            links,
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            block: geometry.physical.max(limits::PREFERRED_MIN),
            changed: self.begun,
        })
    }

    fn set_attributes(&self, ticket: Ticket, node: u64, size: Option<Size>, is_of_rights: bool) {
        let Some(attributes) = self.attributes(node) else { return ticket.error(Errno::NOENT) };
        if is_of_rights {
            return ticket.error(Errno::PERM);
        }
        // As a block device: it has the size that it has, which the system takes from the answer.
        let is_kept = match size {
            None | Some(Size::OfPath(0)) => true,
            Some(Size::OfPath(size) | Size::OfHandle(size)) => size == attributes.size,
        };
        if !is_kept {
            return ticket.error(Errno::INVAL);
        }
        ticket.answer(&Answer::attributes(&attributes));
    }

    fn open(&self, ticket: Ticket, node: u64, flags: u32) {
        if node != DISK {
            return ticket.error(Errno::NOENT);
        }
        if flags & O_ACCMODE != O_RDONLY && self.shared.disk.geometry().read_only {
            return ticket.error(Errno::ROFS);
        }
        ticket.answer(&Answer::opened());
    }

    fn read(&self, ticket: Ticket, offset: u64, size: u32) {
        let geometry = self.shared.disk.geometry();
        let there = geometry.bytes().saturating_sub(offset);
        let length = u32::try_from(there).unwrap_or(u32::MAX).min(size);
        if length == 0 {
            return ticket.done();
        }
        let command = Command::Read;
        let request = nbd::Request { command, durable: false, cookie: 0, offset, length };
        match split::parts(&request, &geometry) {
            Err(error) => ticket.error(errno(error)),
            Ok(parts) => {
                let owner = Reply::Read(ticket, length as usize);
                self.shared.carry(|carrier| carrier.begin(owner, &[(request, parts)]));
            }
        }
    }

    /// Data stands at the start of `room`. What is long takes `room` with it, in the place of which
    /// there is another one then; the rest is copied.
    fn write(&self, ticket: Ticket, offset: u64, size: u32, flags: u32, room: &mut Buf) {
        let geometry = self.shared.disk.geometry();
        let there = geometry.bytes().saturating_sub(offset);
        if there == 0 && size > 0 {
            return ticket.error(Errno::NOSPC);
        }
        let length = size.min(u32::try_from(there).unwrap_or(u32::MAX));
        let durable = flags & O_DSYNC != 0;
        let command = Command::Write;
        let request = nbd::Request { command, durable, cookie: 0, offset, length };
        let (blocks, lead) = match split::parts(&request, &geometry).as_deref() {
            Err(error) => return ticket.error(errno(*error)),
            Ok([Part::Write { blocks, lead }]) => (blocks.clone(), *lead),
            Ok(_) => return ticket.answer(&Answer::written(0)),
        };
        let (new, whole) = (length as usize, split::length(blocks));
        let is_long = new == whole && Pool::cost(new) == Pool::cost(room.len());
        let held = if is_long { room.len() } else { whole };
        let mut buf = match self.shared.room(held, ticket.thread()) {
            Ok(buf) => buf,
            Err(error) => return ticket.error(error),
        };
        if is_long {
            std::mem::swap(&mut buf, room);
            buf.truncate(new);
        } else if let (Some(to), Some(from)) = (buf.get_mut(lead..lead + new), room.get(..new)) {
            to.copy_from_slice(from);
        }
        let owner = Reply::Write { ticket, bytes: length, room: held };
        self.shared.carry(|carrier| carrier.write(owner, request, vec![buf], lead));
    }

    fn flush(&self, ticket: Ticket) {
        if self.shared.disk.geometry().read_only {
            return ticket.done();
        }
        let command = Command::Flush;
        let request = nbd::Request { command, durable: false, cookie: 0, offset: 0, length: 0 };
        let parts = vec![Part::Flush];
        self.shared.carry(|carrier| carrier.begin(Reply::Done(ticket), &[(request, parts)]));
    }

    fn fallocate(&self, ticket: Ticket, offset: u64, length: u64, mode: u32) {
        let mode = FallocateFlags::from_bits_retain(mode);
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let keep_space = match mode - FallocateFlags::KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE => false,
            FallocateFlags::ZERO_RANGE => true,
            // Nobody can promise that there will be space.
            _ => return ticket.error(Errno::OPNOTSUPP),
        };
        let bytes = self.shared.disk.geometry().bytes();
        let end = offset.saturating_add(length);
        if end > bytes && !keeps_size {
            return ticket.error(Errno::NOSPC);
        }
        self.zero(offset, end.min(bytes), keep_space, ticket);
    }

    /// Zeroes in pieces, which end together.
    fn zero(&self, mut at: u64, end: u64, keep_space: bool, ticket: Ticket) {
        let geometry = self.shared.disk.geometry();
        // Who wants zeroes by `fallocate` writes them himself when that is no quicker.
        let command = Command::WriteZeroes { keep_space, fast: true };
        let mut requests = Vec::new();
        while at < end {
            let length = u32::try_from(end - at).unwrap_or(u32::MAX).min(limits::ZERO_BYTES_MAX);
            let request = nbd::Request { command, durable: false, cookie: 0, offset: at, length };
            match split::parts(&request, &geometry) {
                Ok(parts) => requests.push((request, parts)),
                Err(error) => return ticket.error(errno(error)),
            }
            at += u64::from(length);
        }
        self.shared.carry(|carrier| carrier.begin(Reply::Done(ticket), &requests));
    }

    fn seek(&self, ticket: Ticket, offset: u64, whence: u32) {
        let wanted = match whence {
            SEEK_DATA => Wanted::Data,
            SEEK_HOLE => Wanted::Hole,
            _ => return ticket.error(Errno::INVAL),
        };
        // Without its thread the ticket goes with an error.
        let _ = self.seeks.send(Seek { ticket, wanted, offset });
    }
}

fn read_folder(ticket: Ticket, node: u64, offset: u64, size: u32) {
    if node != ROOT {
        return ticket.error(Errno::NOTDIR);
    }
    let folder = message::S_IFDIR;
    let entries = [(ROOT, folder, "."), (ROOT, folder, ".."), (DISK, message::S_IFREG, NAME)];
    ticket.answer(&Answer::folder(&entries, offset, size));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use initiator::CompletionQueue;
    use initiator::Config;
    use initiator::Disk;
    use initiator::Initiator;
    use initiator::Options;
    use rustix::io::retry_on_intr;
    use rustix::net::AddressFamily;
    use rustix::net::SocketFlags;
    use rustix::net::SocketType;
    use rustix::net::sockopt::Timeout;

    use super::*;
    use crate::carrier::Carrier;

    const IQN: &str = "iqn.2026-01.com.example:disks";
    const BYTES: u64 = 1 << 20;

    /// A disk of a target in this process.
    fn disk() -> (target::Target, Initiator, Disk) {
        let mut stores = target::Stores::new();
        let store = stores.open(&target::Spec::Memory { bytes: BYTES }).unwrap();
        let identity = target::Identity::derive(IQN, 0, "EXAMPLE", "MEMORY");
        let unit = target::LogicalUnit::new(identity, store, 512).unwrap();
        let node = target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
        let listen: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
        let plan = target::Plan::new(vec![listen.into()], vec![node], stores);
        let target = target::Target::start(plan).unwrap();
        let initiator = Initiator::start(&Config::default()).unwrap();
        let portal = target.portals()[0].to_string();
        let session = initiator.connect(Options::new(portal, Some(IQN.to_owned()))).unwrap();
        let disk = Disk::open(&session, 0).unwrap();
        (target, initiator, disk)
    }

    /// Who takes requests from `device`.
    fn files(disk: &Disk, device: OwnedFd) -> (Files, mpsc::Receiver<News>) {
        let (news_to, news) = mpsc::sync_channel(1);
        let (seeks, _) = mpsc::channel();
        let (interrupts, _) = mpsc::channel();
        let completions = CompletionQueue::new().unwrap();
        let shared = Arc::new(Shared {
            disk: disk.clone(),
            pool: Pool::new(64 << 20).unwrap(),
            carrier: Mutex::new(Carrier::new(disk.clone(), completions, 0, Arc::default())),
            settling: Arc::default(),
            device: Arc::new(device.into()),
            writing: AtomicUsize::new(0),
            unmounted: AtomicBool::new(false),
            failure: Mutex::new(None),
            closing: AtomicBool::new(false),
            news: Mutex::new(Some(news_to)),
        });
        (Files { shared, seeks, interrupts, begun: Duration::ZERO }, news)
    }

    /// The header of a message that asks for `code` of the disk.
    fn request(length: u32, code: u32, unique: u64) -> Vec<u8> {
        let (lengths, numbers) = ([length, code], [unique, DISK, 0, 0]);
        let lengths = lengths.iter().flat_map(|number| number.to_ne_bytes());
        lengths.chain(numbers.iter().flat_map(|number| number.to_ne_bytes())).collect()
    }

    #[test]
    fn what_is_no_request_is_answered_and_only_what_nobody_asks_ends_all() {
        let (_target, _initiator, disk) = disk();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, system) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        // A test does not wait for what does not come.
        let patience = Some(Duration::from_secs(20));
        rustix::net::sockopt::set_socket_timeout(&system, Timeout::Recv, patience).unwrap();
        let (files, news) = files(&disk, ours);
        let shared = Arc::clone(&files.shared);
        let thread = std::thread::spawn(move || files.run());
        let ask = |message: &[u8]| {
            rustix::io::write(&system, message).unwrap();
            let mut bytes = [0; 256];
            let length = retry_on_intr(|| rustix::io::read(&system, &mut bytes[..])).unwrap();
            bytes[..length].to_vec()
        };
        // A write without arguments; a length that is another one.
        for (unique, odd) in [(7, request(40, 16, 7)), (8, request(48, 3, 8))] {
            assert_eq!(ask(&odd), message::header(unique, -Errno::INVAL.raw_os_error(), 0));
        }
        let facts = ask(&request(40, 3, 9));
        assert_eq!((facts.len(), &facts[16 + 24..16 + 32]), (16 + 104, &BYTES.to_ne_bytes()[..]));
        rustix::io::write(&system, b"rubbish").unwrap();
        thread.join().unwrap();
        assert!(matches!(news.try_recv(), Ok(News::Unmounted)));
        let failure = shared.failure().take().unwrap().to_string();
        assert_eq!(failure, "the system sent what is no request of FUSE");
        assert!(!shared.unmounted.load(Ordering::Acquire), "it is to be unmounted");
    }
}
