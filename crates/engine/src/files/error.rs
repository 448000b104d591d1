// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a file cannot be served.

use std::io;
use std::path::PathBuf;

use super::Holder;
use super::SECTOR;
use super::folder_of;

/// Why a file cannot be used; the text names it and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// No such file.
    #[error(
        "{} does not exist; try: file:{},size=10G to create it, with the size that it is to have \
         and its other options",
        .path.display(), .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// No such file, and it was to be read only.
    #[error(
        "{} does not exist, and what is only read is not made; try: another path",
        .path.display()
    )]
    NothingToRead {
        /// The file.
        path: PathBuf,
    },
    /// No such device; a file among devices is never wanted.
    #[error("{}: no such device; try: lsblk, which shows those that are there", .path.display())]
    NoDevice {
        /// The device.
        path: PathBuf,
    },
    /// A symbolic link that leads nowhere.
    #[error(
        "{} is a link to what does not exist; try: the path that it is to lead to, or remove it",
        .path.display()
    )]
    BrokenLink {
        /// The link.
        path: PathBuf,
    },
    /// The folder of the file is missing.
    #[error(
        "{}: the folder {} does not exist; try: mkdir -p {}",
        .path.display(), folder_of(.path).display(), folder_of(.path).display()
    )]
    FolderMissing {
        /// The file.
        path: PathBuf,
    },
    /// The folder is there and takes no files, as those of `/proc`.
    #[error("no file {} can be made: its folder takes none; try: another folder", .path.display())]
    NoFiles {
        /// The file.
        path: PathBuf,
    },
    /// The user may not make a file there.
    #[error(
        "no permission to make {}: its folder {} takes no files of this user; try: chown or chmod \
         the folder, or another one",
        .path.display(), folder_of(.path).display()
    )]
    FolderPermission {
        /// The file.
        path: PathBuf,
    },
    /// The user may not see what is in the folder.
    #[error(
        "no permission to look for {} in its folder; try: chmod +x the folders above it, or \
         another path",
        .path.display()
    )]
    Hidden {
        /// The file.
        path: PathBuf,
    },
    /// The user may not.
    #[error(
        "no permission to open {} for {}; try: chown or chmod it, or serve it read-only",
        .path.display(), if *.read_only { "reading" } else { "reading and writing" }
    )]
    Permission {
        /// The file.
        path: PathBuf,
        /// Whether only reading was tried.
        read_only: bool,
    },
    /// A folder.
    #[error("{} is a folder; try: a file within it", .path.display())]
    Directory {
        /// The file.
        path: PathBuf,
    },
    /// A pipe, socket or character device.
    #[error("{} is neither a regular file nor a block device", .path.display())]
    WrongKind {
        /// The file.
        path: PathBuf,
    },
    /// Zero bytes long.
    #[error("{} is empty; try: truncate -s SIZE it, or remove it and give a size", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Not whole sectors.
    #[error(
        "{} has {bytes} bytes, which is not a multiple of 512; try: another file, or truncate -s \
         {} it if it is the image of a disk",
        .path.display(), .bytes.next_multiple_of(SECTOR)
    )]
    NotWholeSectors {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The size asked for is zero or not whole sectors.
    #[error(
        "{wanted} bytes is no size for {}: it must be a multiple of 512; try: {}",
        .path.display(),
        match .wanted / SECTOR * SECTOR {
            0 => format!("{SECTOR}"),
            below => format!("{below} or {}", below.saturating_add(SECTOR)),
        }
    )]
    UselessSize {
        /// The file.
        path: PathBuf,
        /// The size asked for.
        wanted: u64,
    },
    /// More than a file can have there.
    #[error(
        "the file system, or the limit of this process (ulimit -f), takes no file {} of the size \
         that is wanted; try: a smaller size",
        .path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file system or device is mounted or set read-only.
    #[error("{} is on a read-only file system or device; try: serve it read-only", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file system does not know `O_DIRECT`.
    #[error("{} cannot be opened past the page cache; try: without direct", .path.display())]
    DirectUnsupported {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else serves it: for writing, or this is for writing.
    #[error("{} is {holder}", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who.
        holder: Holder,
    },
    /// Another process serves it.
    #[error(
        "{} is in use by process {process}; try: stop process {process}, or readonly in each, \
         where nobody is to write",
        .path.display()
    )]
    Served {
        /// The file.
        path: PathBuf,
        /// Who.
        process: u32,
    },
    /// A block device that the system uses: a mounted file system, RAID, LVM, swap, multipath.
    #[error(
        "{} is mounted or in use by the system (RAID, LVM, swap, multipath); \
         try: lsblk {}, then unmount or release it, or serve it read-only",
        .path.display(), .path.display()
    )]
    Claimed {
        /// The device.
        path: PathBuf,
    },
    /// A file and the device that shows it, or one device by two names.
    #[error("{} is the same disk as {}; try: serve one of them", .path.display(), .other.display())]
    SameDisk {
        /// The file or device.
        path: PathBuf,
        /// The one that has it.
        other: PathBuf,
    },
    /// A loop device whose file another one shows, too, which is mounted.
    #[error(
        "{} shows the same file as {}, which is mounted or in use by the system; try: lsblk {}, \
         then unmount or release it",
        .path.display(), .other.display(), .other.display()
    )]
    Shown {
        /// The device.
        path: PathBuf,
        /// The one that is mounted.
        other: PathBuf,
    },
    /// Swap space of the system.
    #[error(
        "{} is swap space of this system, which would write to it, too; try: swapoff {}, or \
         another file",
        .path.display(), .file.display()
    )]
    Swap {
        /// The file, or the device that shows it.
        path: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// The image of a virtual machine, whose format means that its bytes are not those of a disk.
    #[error(
        "{} is an image in the format {format}, and hosts would see its inside; try: \
         qemu-img convert -O raw it, or format=raw if these bytes are what you want to serve",
        .path.display()
    )]
    Image {
        /// The file.
        path: PathBuf,
        /// What it is.
        format: &'static str,
    },
    /// Anything else that the kernel says.
    #[error(
        "cannot open {at}: {source}; try: namei -l {at}, which shows the way there and who may go \
         it",
        at = .path.display()
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

impl FileError {
    /// The same of a file that is to be served, which several may do who only read.
    pub(super) fn of_a_disk(self) -> Self {
        match self {
            Self::InUse { path, holder: Holder::Process(process) } => {
                Self::Served { path, process }
            }
            other => other,
        }
    }
}
