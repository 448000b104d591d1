// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system: a directory with one file, the disk.
//!
//! Reads and writes are answered when the disk has ended them, so many are under way; nothing is
//! cached by the system. As a block device the file keeps its size whatever is written, and opening
//! it with `O_TRUNC` leaves it as it is.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::SystemTime;

use fuser::Errno;
use fuser::FileAttr;
use fuser::FileHandle;
use fuser::FileType;
use fuser::Filesystem;
use fuser::FopenFlags;
use fuser::Generation;
use fuser::INodeNo;
use fuser::InitFlags;
use fuser::KernelConfig;
use fuser::LockOwner;
use fuser::OpenAccMode;
use fuser::OpenFlags;
use fuser::RenameFlags;
use fuser::ReplyAttr;
use fuser::ReplyCreate;
use fuser::ReplyData;
use fuser::ReplyDirectory;
use fuser::ReplyEmpty;
use fuser::ReplyEntry;
use fuser::ReplyLseek;
use fuser::ReplyOpen;
use fuser::ReplyStatfs;
use fuser::ReplyWrite;
use fuser::Request;
use fuser::TimeOrNow;
use fuser::WriteFlags;
use nbd::Command;
use rustix::fs::FallocateFlags;

use super::Shared;
use super::errno;
use super::holes::Wanted;
use crate::limits;
use crate::split;
use crate::split::Part;

/// Name of the file.
pub(super) const NAME: &str = "disk";

pub(super) const DISK: INodeNo = INodeNo(2);

/// The system asks for size and rights whenever it needs them: they may change.
const FRESH: Duration = Duration::ZERO;

/// `O_SYNC` has its bit, too. (What rustix calls so is `O_SYNC`.)
const O_DSYNC: i32 = 0o10000;

/// `SEEK_DATA` and `SEEK_HOLE`.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Whom an end is told.
#[derive(Debug)]
pub(super) enum Reply {
    /// So many bytes are wanted.
    Read(ReplyData, usize),
    /// So many bytes were given, and so many are held for them.
    Write {
        reply: ReplyWrite,
        bytes: u32,
        room: usize,
    },
    Done(ReplyEmpty),
}

/// `lseek`, which another thread answers.
#[derive(Debug)]
pub(super) struct Seek {
    pub(super) reply: ReplyLseek,
    pub(super) wanted: Wanted,
    pub(super) offset: u64,
}

#[derive(Debug)]
pub(super) struct Files {
    pub(super) shared: Arc<Shared>,
    pub(super) seeks: Sender<Seek>,
    pub(super) begun: SystemTime,
}

impl Files {
    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let geometry = self.shared.disk.geometry();
        let (kind, size, perm, nlink) = match node {
            INodeNo::ROOT => (FileType::Directory, 0, 0o500, 2),
            DISK if geometry.read_only => (FileType::RegularFile, geometry.bytes(), 0o400, 1),
            DISK => (FileType::RegularFile, geometry.bytes(), 0o600, 1),
            _ => return None,
        };
        Some(FileAttr {
            ino: node,
            size,
            blocks: size / 512,
            atime: self.begun,
            mtime: self.begun,
            ctime: self.begun,
            crtime: self.begun,
            kind,
            perm,
            nlink,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: geometry.physical.max(limits::PREFERRED_MIN),
            flags: 0,
        })
    }

    /// Zeroes in pieces, which end together.
    fn zero(&self, mut at: u64, end: u64, keep_space: bool, reply: ReplyEmpty) {
        let geometry = self.shared.disk.geometry();
        // Who wants zeroes by `fallocate` writes them himself when that is no quicker.
        let command = Command::WriteZeroes { keep_space, fast: true };
        let mut requests = Vec::new();
        while at < end {
            let length = u32::try_from(end - at).unwrap_or(u32::MAX).min(limits::ZERO_BYTES_MAX);
            let request = nbd::Request { command, durable: false, cookie: 0, offset: at, length };
            match split::parts(&request, &geometry) {
                Ok(parts) => requests.push((request, parts)),
                Err(error) => return reply.error(errno(error)),
            }
            at += u64::from(length);
        }
        self.shared.carry(|carrier| carrier.begin(Reply::Done(reply), &requests));
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What cannot be had is not needed for being right.
        let _ = config.set_max_write(limits::FUSE_BYTES_MAX);
        let requests = u16::try_from(limits::REQUESTS_MAX).unwrap_or(u16::MAX);
        let _ = config.set_max_background(requests);
        let _ = config.set_congestion_threshold(requests);
        for flag in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_ATOMIC_O_TRUNC] {
            let _ = config.add_capabilities(flag);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK) {
            Some(attributes) if parent == INodeNo::ROOT && name == NAME => {
                reply.entry(&FRESH, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(node) {
            Some(attributes) => reply.attr(&FRESH, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(node) else { return reply.error(Errno::ENOENT) };
        if mode.is_some() || user.is_some() || group.is_some() {
            return reply.error(Errno::EPERM);
        }
        // As a block device: it has the size that it has.
        if size.is_some_and(|size| size != attributes.size) {
            return reply.error(Errno::EINVAL);
        }
        reply.attr(&FRESH, &attributes);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if node != DISK {
            return reply.error(Errno::ENOENT);
        }
        if flags.acc_mode() != OpenAccMode::O_RDONLY && self.shared.disk.geometry().read_only {
            return reply.error(Errno::EROFS);
        }
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let geometry = self.shared.disk.geometry();
        let there = geometry.bytes().saturating_sub(offset);
        let length = u32::try_from(there).unwrap_or(u32::MAX).min(size);
        let command = Command::Read;
        let request = nbd::Request { command, durable: false, cookie: 0, offset, length };
        match split::parts(&request, &geometry) {
            Err(error) => reply.error(errno(error)),
            Ok(parts) => {
                let owner = Reply::Read(reply, length as usize);
                self.shared.carry(|carrier| carrier.begin(owner, &[(request, parts)]));
            }
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let geometry = self.shared.disk.geometry();
        let there = geometry.bytes().saturating_sub(offset);
        if there == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let data = data.get(..usize::try_from(there).unwrap_or(usize::MAX)).unwrap_or(data);
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let durable = flags.0 & O_DSYNC != 0;
        let command = Command::Write;
        let request = nbd::Request { command, durable, cookie: 0, offset, length };
        let (blocks, lead) = match split::parts(&request, &geometry).as_deref() {
            Err(error) => return reply.error(errno(*error)),
            Ok([Part::Write { blocks, lead }]) => (blocks.clone(), *lead),
            Ok(_) => return reply.written(0),
        };
        let Some(mut buf) = self.shared.room(split::length(blocks)) else {
            return reply.error(Errno::EIO);
        };
        if let Some(room) = buf.get_mut(lead..lead + data.len()) {
            room.copy_from_slice(data);
        }
        let owner = Reply::Write { reply, bytes: length, room: buf.len() };
        self.shared.carry(|carrier| carrier.write(owner, request, vec![buf], lead));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.shared.disk.geometry().read_only {
            return reply.ok();
        }
        let command = Command::Flush;
        let request = nbd::Request { command, durable: false, cookie: 0, offset: 0, length: 0 };
        let parts = vec![Part::Flush];
        self.shared.carry(|carrier| carrier.begin(Reply::Done(reply), &[(request, parts)]));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let keep_space = match mode - FallocateFlags::KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE => false,
            FallocateFlags::ZERO_RANGE => true,
            // Nobody can promise that there will be space.
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let bytes = self.shared.disk.geometry().bytes();
        let end = offset.saturating_add(length);
        if end > bytes && !keeps_size {
            return reply.error(Errno::ENOSPC);
        }
        self.zero(offset, end.min(bytes), keep_space, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let wanted = match whence {
            SEEK_DATA => Wanted::Data,
            SEEK_HOLE => Wanted::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        // Without its thread the reply goes with an error.
        let _ = self.seeks.send(Seek { reply, wanted, offset });
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if node != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, NAME),
        ];
        for (next, (node, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(node, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    // There is this one file, and no other.

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let geometry = self.shared.disk.geometry();
        let block = geometry.block;
        reply.statfs(geometry.blocks, 0, 0, 1, 0, block, 255, block);
    }
}
