// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where bytes come from and go to: disks, files, standard input and output.

mod contents;
mod streams;

pub(crate) use contents::expect_there;
pub(crate) use streams::read_stdin;
pub(crate) use streams::write_stdout;

use std::fs::File;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use buf::Buf;
use control::units;
use engine::files;
use engine::files::FileError;
use engine::files::Holder;
use engine::files::Taken;
use initiator::Address;
use initiator::Data;
use initiator::Done;
use initiator::Flushed;
use initiator::Geometry;
use initiator::Kind;
use initiator::Queue;
use initiator::Request;
use initiator::Retry;
use initiator::SessionId;
use initiator::Url;
use initiator::scsi;
use rustix::fs::OFlags;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use self::contents::expect_folder;
use self::streams::flush_stdout;
use self::streams::unwritten;
use crate::args::ClientOptions;
use crate::client;

/// Standard input or output.
pub(crate) const STANDARD: &str = "-";

/// One end of a copy.
#[derive(Debug)]
pub(crate) enum Place {
    Disk(Disk),
    File(Local),
    /// Standard input or output.
    Stream,
}

/// A logical unit.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The first one, where there are several.
    pub(crate) url: Url,
    pub(crate) address: Box<Address>,
    pub(crate) session: SessionId,
    pub(crate) lun: u16,
    pub(crate) geometry: Geometry,
    pub(crate) durability: Durability,
}

/// What brings what is written to a disk to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// SYNCHRONIZE CACHE.
    Flush,
    /// Each write, by FUA: it has a cache that cannot be flushed.
    Fua,
    /// Each write, as far as the disk says, which has nothing to flush.
    Itself,
}

/// A file or block device of this machine.
#[derive(Debug)]
pub(crate) struct Local {
    path: String,
    file: File,
    size: u64,
    /// It was empty when it was opened: what is not written reads as zero.
    fresh: bool,
    regular: bool,
}

impl Place {
    /// Opens a source.
    pub(crate) fn source(queue: &mut Queue, options: &ClientOptions, text: &str) -> Result<Self> {
        if text == STANDARD {
            return Ok(Self::Stream);
        }
        if client::is_url(text) {
            return Ok(Self::Disk(Disk::open(queue, options, text)?));
        }
        let file = File::open(text).with_context(|| format!("cannot read {text}"))?;
        let local = Local::new(text, file)?;
        local.expect_size()?;
        Ok(Self::File(local))
    }

    /// Opens a destination. What is in a file stays until [`Place::clear`].
    pub(crate) fn destination(
        queue: &mut Queue,
        options: &ClientOptions,
        text: &str,
    ) -> Result<Self> {
        if text == STANDARD {
            if engine::standard::output_is_missing() {
                bail!("standard output is closed; try: a FILE, or a program that reads it");
            }
            return Ok(Self::Stream);
        }
        if client::is_url(text) {
            let disk = Disk::open(queue, options, text)?;
            disk.expect_writable()?;
            return Ok(Self::Disk(disk));
        }
        client::outfile::expect_unprotected(Path::new(text))?;
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false);
        let kind = std::fs::metadata(text).map(|metadata| metadata.file_type());
        if kind.is_err() && files::among_devices(Path::new(text)) {
            bail!(
                "cannot write {text}: no such device; try: lsblk, which shows those that are there"
            );
        }
        expect_folder(text)?;
        if kind.is_ok_and(|kind| kind.is_block_device()) {
            // A device that is mounted, or part of another one, is refused by the system.
            how.create(false).custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let file = match how.open(text) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                return Err(who_has(text));
            }
            file => file.with_context(|| format!("cannot write {text}; try: another place"))?,
        };
        // Whoever serves a file has it locked, and would go on to serve what others put there.
        files::lock_alone(Path::new(text), &file).map_err(occupied)?;
        Ok(Self::File(Local::new(text, file)?))
    }

    /// Fails for a file that has something in it, and for any device: what is on one is not seen by
    /// its name.
    pub(crate) fn expect_empty(&self) -> Result<()> {
        match self {
            Self::File(Local { path, size, regular: true, .. }) if *size > 0 => bail!(
                "{path} exists and holds {}; try: another name, or --overwrite",
                units::bytes(*size)
            ),
            Self::File(Local { path, regular: false, .. }) => bail!(
                "{path} is a device, and what is on it would be lost; try: lsblk --fs {path}, \
                 which shows what that may be, then --overwrite"
            ),
            _ => Ok(()),
        }
    }

    /// Fails for a file or device that others use, by whatever name. What it gives keeps others
    /// away.
    pub(crate) fn take_alone(&self) -> Result<Option<Taken>> {
        let Self::File(Local { path, file, .. }) = self else { return Ok(None) };
        take_alone(Path::new(path), file).map(Some)
    }

    /// Nothing of what a file held before stays in it.
    pub(crate) fn clear(&mut self) -> Result<()> {
        match self {
            Self::File(local) => local.clear(),
            Self::Disk(_) | Self::Stream => Ok(()),
        }
    }

    /// As the user knows it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Disk(disk) => disk.address.to_string(),
            Self::File(local) => local.path.clone(),
            Self::Stream => "standard input or output".to_owned(),
        }
    }

    /// Bytes, where that is known.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::Disk(disk) => Some(disk.geometry.bytes()),
            Self::File(local) => Some(local.size),
            Self::Stream => None,
        }
    }

    /// Bytes that a destination has room for; None: it grows.
    pub(crate) fn room(&self) -> Option<u64> {
        match self {
            Self::Disk(disk) => Some(disk.geometry.bytes()),
            Self::File(local) if !local.regular => Some(local.size),
            Self::File(_) | Self::Stream => None,
        }
    }

    /// Finds out how what is written comes to stable storage.
    pub(crate) fn find_durability(&mut self, queue: &mut Queue) -> Result<()> {
        match self {
            Self::Disk(disk) => disk.find_durability(queue),
            Self::File(_) | Self::Stream => Ok(()),
        }
    }

    /// Whether what a flush has confirmed is safe from what fails later.
    pub(crate) const fn has_flush(&self) -> bool {
        !matches!(self, Self::Disk(Disk { durability: Durability::Fua | Durability::Itself, .. }))
    }

    /// Brings what was written to stable storage; a disk does not belong here, it is told by
    /// [`initiator::Ledger`] what a flush stands for.
    pub(crate) fn flush(&self) -> Result<()> {
        match self {
            Self::Disk(_) => Ok(()),
            Self::File(local) => {
                local.sync().with_context(|| format!("cannot flush {}", local.path))
            }
            Self::Stream => flush_stdout().map_err(unwritten),
        }
    }

    /// Whether the user wants an end, and what is here cannot be reached.
    pub(crate) fn is_left(&self, queue: &Queue) -> bool {
        matches!(self, Self::Disk(disk) if client::is_to_leave(queue, &[disk.session]))
    }
}

impl Disk {
    pub(crate) fn open(queue: &mut Queue, options: &ClientOptions, text: &str) -> Result<Self> {
        let address = Box::new(client::disk_address(text)?);
        let session = client::login_all(queue, options, &address)?;
        let url = address.first().with_context(|| format!("no URL in {text:?}"))?.clone();
        let lun = url.lun.unwrap_or(0);
        match scsi::geometry(&mut queue.unit(session, lun)) {
            Ok(geometry) => {
                let durability = Durability::Flush;
                Ok(Self { url, address, session, lun, geometry, durability })
            }
            Err(error) => {
                let error = client::no_unit(queue, session, error, &url);
                queue.logout(session);
                Err(error)
            }
        }
    }

    /// Fails before anything is written to a disk that takes no writes.
    pub(crate) fn expect_writable(&self) -> Result<()> {
        if self.geometry.read_only {
            let inspect = client::try_command("inspect", &self.url);
            bail!("{}: the disk is write protected{inspect}", self.url);
        }
        Ok(())
    }

    /// A cache that cannot be flushed is written through, or this fails: before anything is
    /// written that might be lost.
    fn find_durability(&mut self, queue: &mut Queue) -> Result<()> {
        self.durability = match scsi::flush(&mut queue.unit(self.session, self.lun)) {
            Ok(Flushed::Done) => Durability::Flush,
            Ok(Flushed::Nothing) => Durability::Itself,
            Err(error)
                if matches!(error.kind(), Kind::CannotFlush) && self.geometry.write_through =>
            {
                Durability::Fua
            }
            Err(error) => return Err(client::advised(error, &self.url)),
        };
        Ok(())
    }

    /// READ of whole blocks at a byte offset.
    pub(crate) fn read(&self, offset: u64, length: u32) -> Request {
        let block = u64::from(self.geometry.block);
        let blocks = length / self.geometry.block;
        let cdb = self.geometry.read(offset / block, blocks);
        Request { lun: self.lun, cdb, data: Data::In(length), retry: Retry::Always }
    }

    /// WRITE of whole blocks at a byte offset.
    pub(crate) fn write(&self, offset: u64, data: buf::Slice) -> Request {
        let block = u64::from(self.geometry.block);
        let blocks = u32::try_from(data.len()).unwrap_or(0) / self.geometry.block;
        let cdb = match self.durability {
            Durability::Fua => self.geometry.write_durably(offset / block, blocks),
            Durability::Flush | Durability::Itself => self.geometry.write(offset / block, blocks),
        };
        Request { lun: self.lun, cdb, data: Data::Out(data), retry: Retry::Always }
    }

    /// What makes zeroes of a range without sending them all, if there is something. It is not
    /// UNMAP, which a disk may leave undone, and there is none that goes to stable storage by
    /// itself.
    pub(crate) fn zero(&self, offset: u64, length: u32) -> Option<Request> {
        if self.durability == Durability::Fua {
            return None;
        }
        let (lba, blocks) = (offset / u64::from(self.geometry.block), length / self.geometry.block);
        let cdb = self.geometry.write_same(lba, blocks)?;
        let block = vec![0; self.geometry.block as usize];
        let data = Data::Out(buf::Slice::from(block));
        Some(Request { lun: self.lun, cdb, data, retry: Retry::Always })
    }

    /// The error of a command that went to this disk. One beyond its end looks whether the disk has
    /// become smaller meanwhile.
    pub(crate) fn explain(&self, queue: &mut Queue, error: initiator::Error) -> anyhow::Error {
        let beyond = error.sense().is_some_and(|sense| sense.asc == 0x21);
        let unit = &mut queue.unit(self.session, self.lun);
        if beyond && let Ok(capacity) = scsi::capacity(unit) {
            let (was, now) = (self.geometry.blocks, capacity.last_lba.saturating_add(1));
            if was != now {
                return anyhow!(
                    "{}: the disk has changed its size from {was} to {now} blocks; try: again, \
                     from the beginning",
                    self.url
                );
            }
        }
        let gone = error.sense().is_some_and(|sense| sense.asc == 0x25);
        if gone {
            let (url, target) = (&self.url, Url { lun: None, ..self.url.clone() });
            return anyhow!(
                "{url}: the logical unit has vanished ({error}); try: lunwire inspect {target}, \
                 which shows those that are there"
            );
        }
        client::advised(error, &self.url)
    }

    /// Reads and waits.
    pub(crate) fn read_now(&self, queue: &mut Queue, offset: u64, length: u32) -> Result<Vec<u8>> {
        match queue.execute(self.session, self.read(offset, length)) {
            Ok(done) => Ok(self.whole(done, offset, length)?.to_vec()),
            Err(error) => Err(self.explain(queue, error)),
        }
    }

    /// `length` in whole blocks, bytes.
    pub(crate) fn round_up(&self, length: u64) -> u32 {
        let whole = length.next_multiple_of(self.geometry.block.into());
        u32::try_from(whole).unwrap_or(u32::MAX)
    }

    /// The data of a READ of `length` bytes at `offset`.
    pub(crate) fn whole(&self, done: Done, offset: u64, length: u32) -> Result<Buf> {
        let came = done.data.as_ref().map_or(0, |data| data.len());
        match done.data {
            Some(data) if came == length as usize => Ok(data),
            _ => bail!(
                "{}: {came} bytes at byte {offset} came instead of {length}, though the target \
                 reported no error",
                self.url
            ),
        }
    }
}

impl Local {
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// A file that is new has its entry in a folder, too.
    fn sync(&self) -> std::io::Result<()> {
        self.file.sync_all()?;
        match Path::new(&self.path).parent().filter(|_| self.fresh) {
            Some(folder) if folder.as_os_str().is_empty() => File::open(".")?.sync_all(),
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    fn clear(&mut self) -> Result<()> {
        if self.regular && self.resize(0).with_context(|| format!("cannot empty {}", self.path))? {
            (self.size, self.fresh) = (0, true);
        }
        Ok(())
    }

    /// Gives a regular file this size, unless it keeps its own as a device does: the file of an
    /// attached disk, and a sealed one.
    fn resize(&mut self, size: u64) -> std::io::Result<bool> {
        match rustix::fs::ftruncate(&self.file, size) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP) if self.size > 0 => {
                self.regular = false;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn new(path: &str, file: File) -> Result<Self> {
        let cannot = || format!("cannot use {path}");
        let metadata = file.metadata().with_context(cannot)?;
        let regular = metadata.is_file();
        let size = if regular {
            metadata.len()
        } else if metadata.file_type().is_block_device() {
            rustix::fs::seek(&file, SeekFrom::End(0)).with_context(cannot)?
        } else {
            bail!("{path} is neither a file nor a block device; use - for streams");
        };
        Ok(Self { path: path.to_owned(), file, size, fresh: regular && size == 0, regular })
    }

    /// Fails for a file that has more in it than it says, which is nothing.
    fn expect_size(&self) -> Result<()> {
        if self.regular
            && self.size == 0
            && self.file.read_at(&mut [0], 0).is_ok_and(|read| read > 0)
        {
            let path = &self.path;
            bail!(
                "{path} does not tell its size, as files of the kernel do; try: cat {path} | \
                 lunwire copy - DESTINATION"
            );
        }
        Ok(())
    }

    /// Whether the range was never written: it reads as zeroes and need not be read.
    pub(crate) fn is_hole(&self, offset: u64, length: u64) -> bool {
        if !self.regular {
            return false;
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => data >= offset.saturating_add(length),
            // Nothing but a hole up to the end, if that is not before.
            Err(Errno::NXIO) => {
                let end = offset.saturating_add(length);
                self.file.metadata().is_ok_and(|metadata| end <= metadata.len())
            }
            Err(_) => false,
        }
    }

    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let (path, end) = (&self.path, offset.saturating_add(to.len() as u64));
        self.file.read_exact_at(to, offset).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => anyhow!(
                "{path} has become shorter, or never was as long as it said: it ends before byte \
                 {end}"
            ),
            _ => anyhow::Error::new(error).context(format!("cannot read {path} at byte {offset}")),
        })
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| {
            let room = room(&error);
            anyhow::Error::new(error)
                .context(format!("cannot write {} at byte {offset}{room}", self.path))
        })
    }

    /// Zeroes at a place that may hold something else; False if they must be written.
    pub(crate) const fn skips_zeroes(&self) -> bool {
        self.fresh
    }

    /// The size that a regular file ends with.
    pub(crate) fn set_size(&mut self, size: u64) -> Result<()> {
        if self.regular {
            self.resize(size).with_context(|| format!("cannot size {}", self.path))?;
        }
        Ok(())
    }
}

/// What to try where a file may have no more.
pub(crate) fn room(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; try: free some space there",
        ErrorKind::FileTooLarge => "; try: ulimit -f unlimited, or another file system",
        _ => "",
    }
}

/// Who has a device that the system gives to nobody else.
fn who_has(device: &str) -> anyhow::Error {
    let locked = File::open(device).ok().map(|file| files::lock_alone(Path::new(device), &file));
    if let Some(Err(error)) = locked {
        return error.into();
    }
    anyhow!(
        "{device} is mounted or in use by the system (RAID, LVM, swap, multipath); try: lsblk \
         {device}, then unmount or release it"
    )
}

/// Takes `file`, which is `path`, for this process alone.
///
/// # Errors
/// Others use it, by whatever name.
pub(crate) fn take_alone(path: &Path, file: &File) -> Result<Taken> {
    match files::take_alone(path, file) {
        Err(FileError::SameDisk { other, .. }) => {
            let (path, other) = (path.display(), other.display());
            bail!("{path} is in use: {other} shows it; try: umount, and losetup --detach {other}")
        }
        Err(error) => Err(occupied(error)),
        Ok(taken) => Ok(taken),
    }
}

/// Why a file is not to be written to; who serves it takes what is written to its disk.
fn occupied(error: FileError) -> anyhow::Error {
    match error {
        FileError::InUse { path, holder: Holder::Process(process) } => anyhow::anyhow!(
            "{} is in use by process {process}; try: if that serves it, lunwire copy to the URL of \
             the disk, else stop process {process}",
            path.display()
        ),
        error => error.into(),
    }
}
