// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens regular files and block devices to serve as disks, and finds out what they can do.

mod backing;
mod companion;
mod error;
mod examine;
mod folder;
mod identity;
mod image;
mod lock;
mod made;
mod name;
mod ofd;
mod same;
mod space;
mod swap;
mod sysfs;
mod volume;
mod whole;

use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::io::Seek;
use std::io::SeekFrom;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustix::fs::FallocateFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Resource;

use crate::limits::RELEASE_PATIENCE;
use crate::limits::RELEASE_PAUSE;

pub use backing::file_behind;
pub use companion::COMPANION_ATTRIBUTE;
pub use companion::Companion;
pub use companion::bind;
pub use companion::companion;
pub use error::FileError;
pub use examine::Examined;
pub use examine::examine;
pub use folder::among_devices;
pub use folder::examine_folder;
pub use folder::exchange;
pub use folder::folder_of;
pub use folder::set_aside;
pub use folder::sync_name;
pub use identity::facts;
pub use identity::fresh;
pub use identity::has_content;
pub use identity::host;
pub use identity::record;
pub use identity::recorded;
pub use identity::renew;
pub use image::image_format;
pub use lock::Holder;
pub use lock::lock_alone;
pub use lock::writer;
pub use made::take_back;
pub use name::Name;
pub use name::name;
pub use same::Taken;
pub use same::take_alone;
pub use space::allocation;
pub use sysfs::Below;
pub use sysfs::BlockDevice;
pub use volume::SnapshotError;
pub use volume::Usage;
pub use volume::resize;
pub use volume::size;
pub use volume::snapshot;
pub use volume::usage;
pub use whole::open_whole;
pub use whole::read_text;
pub use whole::read_whole;
pub use whole::refuse_pipes;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Writing is not wanted, or not allowed.
    pub read_only: bool,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// A missing file is made with this size, bytes, sparse; one that is there has its own.
    pub create_size: Option<u64>,
    /// An image of a virtual machine is to be taken for what it is: bytes.
    pub raw: bool,
}

/// An open file and what it can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenFile {
    /// The file.
    pub fd: Arc<OwnedFd>,
    /// Size, bytes: a multiple of [`SECTOR`], not zero.
    pub bytes: u64,
    /// The file that a loop device shows; to be held as long as `fd` is, so that nobody else serves
    /// it.
    pub behind: Option<Arc<OwnedFd>>,
    /// It was not there before.
    pub made: bool,
    /// True for a block device, false for a regular file.
    pub block_device: bool,
    /// Unit of what is read and written past the page cache, bytes; a power of two.
    pub direct_block: u32,
    /// Smallest piece that is written without reading first, bytes; a power of two.
    pub physical_block: u32,
    /// The medium turns.
    pub rotational: bool,
    /// Space is given back in pieces of this many bytes; None: not at all.
    pub discard_granularity: Option<u32>,
    /// Space can be set aside for a later write, and told from data ([`medium::Space::Anchored`]).
    pub reserves: bool,
    /// What was written may be lost by a crash of the host until it is synced.
    pub volatile_cache: bool,
}

/// Unit of sizes, bytes.
pub const SECTOR: u64 = 512;

/// Opens `path`, or makes it if there is none and a size is given, and locks it as long as the
/// file is open: alone for writing, with others for reading only.
///
/// # Errors
///
/// See [`FileError`]; a file that was made and then failed is removed again.
pub fn open(path: &Path, options: &OpenOptions) -> Result<OpenFile, FileError> {
    if let Some(wanted) = options.create_size
        && !is_whole(wanted)
    {
        return Err(FileError::UselessSize { path: path.into(), wanted });
    }
    // Looked at before it is opened: opening a pipe would wait for its other end.
    let (file, made) = match fs::metadata(path) {
        Ok(metadata) => {
            check_kind(path, &metadata)?;
            check_writable(path, &metadata, options)?;
            (open_existing(path, options)?, false)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => (create(path, options)?, true),
        Err(error) => return Err(explain(path, options, error)),
    };
    lock::lock(path, &file, options.read_only).map_err(FileError::of_a_disk)?;
    if !options.raw {
        image::refuse(path, &file)?;
    }
    let claim = same::claim(path, &file, options.read_only).map_err(FileError::of_a_disk)?;
    let open = describe(path, file, options)?;
    Ok(OpenFile { behind: claim.hold(&open.fd), made, ..open })
}

/// Brings what was written to `file` to stable storage.
///
/// # Errors
///
/// `EIO`, `ENOSPC` and others of fdatasync(2): data may be lost.
pub fn sync(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

const fn is_whole(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(SECTOR)
}

fn check_kind(path: &Path, metadata: &fs::Metadata) -> Result<(), FileError> {
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(FileError::Directory { path: path.into() });
    }
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    Err(FileError::WrongKind { path: path.into() })
}

fn check_writable(
    path: &Path,
    metadata: &fs::Metadata,
    options: &OpenOptions,
) -> Result<(), FileError> {
    let block_device = metadata.file_type().is_block_device();
    if block_device && !options.read_only && is_read_only(metadata.rdev()) {
        return Err(FileError::ReadOnly { path: path.into() });
    }
    Ok(())
}

fn flags(options: &OpenOptions) -> fs::OpenOptions {
    let mut flags = fs::OpenOptions::new();
    flags.read(true).write(!options.read_only);
    let direct = if options.direct { libc::O_DIRECT } else { 0 };
    // Without O_CREAT this means block devices only.
    let alone = if options.read_only { 0 } else { libc::O_EXCL };
    flags.custom_flags(direct | alone);
    flags
}

/// A block device is opened for nobody else who asks like this, as mounting does. Waits a moment
/// for one that is being given up, see [`lock`].
fn open_existing(path: &Path, options: &OpenOptions) -> Result<File, FileError> {
    let begin = Instant::now();
    loop {
        match flags(options).open(path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                same::refuse_ours(path)?;
                if begin.elapsed() >= RELEASE_PATIENCE {
                    return Err(FileError::Claimed { path: path.into() });
                }
                thread::sleep(RELEASE_PAUSE);
            }
            result => return result.map_err(|error| explain(path, options, error)),
        }
    }
}

fn create(path: &Path, options: &OpenOptions) -> Result<File, FileError> {
    let (Some(size), false) = (options.create_size, options.read_only) else {
        return Err(missing(path, options));
    };
    if among_devices(path) {
        return Err(FileError::NoDevice { path: path.into() });
    }
    // O_DIRECT is set later: where it is unknown, the file is made before that is told.
    let cached = OpenOptions { direct: false, ..*options };
    let opened = flags(&cached).create_new(true).mode(0o600).open(path);
    let file = opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound if folder_of(path).is_dir() => FileError::NoFiles { path: path.into() },
        ErrorKind::NotFound => FileError::FolderMissing { path: path.into() },
        ErrorKind::AlreadyExists if is_broken_link(path) => {
            FileError::BrokenLink { path: path.into() }
        }
        _ => explain(path, options, error),
    })?;
    let lasting = prepare(&file, size, options.direct)
        .and_then(|()| file.sync_all())
        .and_then(|()| sync_name(path, &file));
    if let Err(error) = lasting {
        // The first error is the one to tell.
        let _ = fs::remove_file(path);
        return Err(explain(path, options, error));
    }
    Ok(file)
}

/// Makes a new file what it is to be.
fn prepare(file: &File, size: u64, direct: bool) -> io::Result<()> {
    if direct {
        rustix::fs::fcntl_setfl(file, rustix::fs::fcntl_getfl(file)? | OFlags::DIRECT)?;
    }
    within_limit(size)?;
    file.set_len(size)
}

/// Whether this process may make a file so long (`ulimit -f`): else the kernel ends it.
fn within_limit(bytes: u64) -> io::Result<()> {
    let most = rustix::process::getrlimit(Resource::Fsize).current;
    if most.is_some_and(|most| bytes > most) { Err(Errno::FBIG.into()) } else { Ok(()) }
}

fn is_broken_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// A file that is not there and cannot be made.
fn missing(path: &Path, options: &OpenOptions) -> FileError {
    let path = path.to_path_buf();
    match folder_of(&path).try_exists() {
        _ if among_devices(&path) => FileError::NoDevice { path },
        _ if is_broken_link(&path) => FileError::BrokenLink { path },
        Ok(false) => FileError::FolderMissing { path },
        _ if options.read_only => FileError::NothingToRead { path },
        _ => FileError::Missing { path },
    }
}

fn explain(path: &Path, options: &OpenOptions, source: io::Error) -> FileError {
    let path = path.to_path_buf();
    match source.kind() {
        ErrorKind::NotFound => missing(&path, options),
        ErrorKind::PermissionDenied => refused(path, options),
        ErrorKind::IsADirectory => FileError::Directory { path },
        ErrorKind::FileTooLarge => FileError::TooLarge { path },
        ErrorKind::ReadOnlyFilesystem if is_missing(&path) => FileError::NoFiles { path },
        ErrorKind::ReadOnlyFilesystem => FileError::ReadOnly { path },
        ErrorKind::InvalidInput if options.direct => FileError::DirectUnsupported { path },
        _ => FileError::Other { path, source },
    }
}

/// What the user may not do: the file itself may not be there.
fn refused(path: PathBuf, options: &OpenOptions) -> FileError {
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => FileError::Hidden { path },
        _ if is_missing(&path) => FileError::FolderPermission { path },
        _ => FileError::Permission { path, read_only: options.read_only },
    }
}

fn is_missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

fn describe(path: &Path, mut file: File, options: &OpenOptions) -> Result<OpenFile, FileError> {
    let other = |source| FileError::Other { path: path.into(), source };
    let metadata = file.metadata().map_err(other)?;
    check_kind(path, &metadata)?;
    let block_device = metadata.file_type().is_block_device();
    let bytes = length(path, &mut file, &metadata)?;
    let device = if block_device { metadata.rdev() } else { metadata.dev() };
    let queue = Queue::of(device);
    let cached = !block_device || !options.direct;
    let discard_granularity = match (options.read_only, block_device) {
        (true, _) => None,
        (false, true) => queue.number("discard_granularity").filter(|bytes| *bytes > 0),
        (false, false) => punches(&file, bytes).then(|| block_size(&metadata)),
    };
    let reserves =
        !block_device && discard_granularity.is_some() && space::reserves(path, &file, &metadata);
    let physical_block = if block_device {
        queue.number("physical_block_size").filter(|n| n.is_power_of_two()).unwrap_or(512)
    } else {
        block_size(&metadata)
    };
    Ok(OpenFile {
        fd: Arc::new(OwnedFd::from(file)),
        bytes,
        behind: None,
        made: false,
        block_device,
        direct_block: queue.direct_block(),
        physical_block,
        rotational: queue.number("rotational") == Some(1),
        discard_granularity,
        reserves,
        volatile_cache: cached || queue.text("write_cache").trim() != "write through",
    })
}

/// The size of a file or device, which must be whole sectors.
fn length(path: &Path, file: &mut File, metadata: &fs::Metadata) -> Result<u64, FileError> {
    let bytes = if metadata.file_type().is_block_device() {
        let end = file.seek(SeekFrom::End(0));
        end.map_err(|source| FileError::Other { path: path.into(), source })?
    } else {
        metadata.len()
    };
    if bytes == 0 {
        return Err(FileError::Empty { path: path.into() });
    }
    if !is_whole(bytes) {
        return Err(FileError::NotWholeSectors { path: path.into(), bytes });
    }
    Ok(bytes)
}

/// Block size of the file system; 4096 if it says something odd.
fn block_size(metadata: &fs::Metadata) -> u32 {
    let size = u32::try_from(metadata.blksize()).unwrap_or(0);
    if size.is_power_of_two() && (512..=65_536).contains(&size) { size } else { 4096 }
}

/// Tries where nothing is: behind the end, which changes nothing.
fn punches(file: &File, bytes: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let behind = bytes.next_multiple_of(1 << 20);
    rustix::fs::fallocate(file, flags, behind, 4096).is_ok()
}

/// Whether a block device is set read-only: one that is may be opened for writing all the same, and
/// each write fails.
fn is_read_only(device: u64) -> bool {
    BlockDevice::of(device).and_then(|device| device.text("ro")).is_some_and(|set| set == "1")
}

/// The attributes of a block device's request queue in sysfs; empty if it has none (tmpfs).
struct Queue(Option<BlockDevice>);

impl Queue {
    fn of(device: u64) -> Self {
        let own = BlockDevice::of(device);
        // A partition has the queue of its disk.
        Self(own.and_then(|own| if own.has("queue") { Some(own) } else { own.disk() }))
    }

    fn text(&self, attribute: &str) -> String {
        let device = self.0.as_ref();
        device.and_then(|device| device.text(&format!("queue/{attribute}"))).unwrap_or_default()
    }

    fn direct_block(&self) -> u32 {
        self.number("logical_block_size").filter(|n| n.is_power_of_two()).unwrap_or(512)
    }

    fn number(&self, attribute: &str) -> Option<u32> {
        self.text(attribute).trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens what was just given up: a program that another test starts has our files until it is
    /// itself.
    pub(super) fn open_again(path: &Path, options: &OpenOptions) -> Result<OpenFile, FileError> {
        patiently(|| open(path, options))
    }

    pub(super) fn patiently<T, E>(mut opens: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let begin = Instant::now();
        loop {
            match opens() {
                Err(_) if begin.elapsed() < RELEASE_PATIENCE => thread::sleep(RELEASE_PAUSE),
                result => return result,
            }
        }
    }

    fn create_size(bytes: u64) -> OpenOptions {
        OpenOptions { create_size: Some(bytes), ..OpenOptions::default() }
    }

    fn refuse(path: &Path, options: &OpenOptions) -> FileError {
        let error = open(path, options).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        error
    }

    #[test]
    fn a_missing_file_is_made_only_with_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let plain = OpenOptions::default();
        assert!(matches!(refuse(&path, &plain), FileError::Missing { .. }));
        let made = open(&path, &create_size(1 << 20)).unwrap();
        assert_eq!(made.bytes, 1 << 20);
        assert!(!made.block_device && made.volatile_cache);
        assert!(made.physical_block.is_power_of_two());
        sync(&*made.fd).unwrap();
        assert!(matches!(
            refuse(&path, &plain),
            FileError::InUse { holder: Holder::Ourselves, .. }
        ));
        drop(made);
        assert_eq!(open_again(&path, &plain).unwrap().bytes, 1 << 20);
        assert!(open_again(&path, &create_size(1 << 20)).is_ok());
        let other = open_again(&path, &create_size(2 << 20)).unwrap();
        assert_eq!(other.bytes, 1 << 20, "it has the size that it has");
        drop(other);
        let error = refuse(&dir.path().join("no/disk"), &create_size(512));
        assert!(matches!(error, FileError::FolderMissing { .. }), "{error}");
    }

    #[test]
    fn useless_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let plain = OpenOptions::default();
        assert!(matches!(refuse(dir.path(), &plain), FileError::Directory { .. }));
        fs::write(&path, []).unwrap();
        assert!(matches!(refuse(&path, &plain), FileError::Empty { .. }));
        fs::write(&path, [0; 700]).unwrap();
        let error = refuse(&path, &plain);
        assert!(matches!(error, FileError::NotWholeSectors { bytes: 700, .. }));
        assert!(error.to_string().contains("1024"));
        for size in [0, 1000] {
            let error = refuse(&path, &create_size(size));
            assert!(matches!(error, FileError::UselessSize { .. }), "{error}");
        }
        assert!(matches!(refuse(Path::new("/dev/zero"), &plain), FileError::WrongKind { .. }));
    }

    #[test]
    fn images_of_virtual_machines_are_refused_unless_they_are_meant() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.qcow2");
        let mut image = vec![0; 4096];
        image[..4].copy_from_slice(b"QFI\xfb");
        fs::write(&path, &image).unwrap();
        let error = refuse(&path, &OpenOptions::default());
        assert!(matches!(error, FileError::Image { format: "qcow2", .. }));
        assert!(error.to_string().contains("format=raw"), "{error}");
        let served = open(&path, &OpenOptions { raw: true, ..OpenOptions::default() }).unwrap();
        // What was served before may have got its first bytes from a host, which must not keep
        // others from their disks.
        if record(&served.fd, 1).unwrap() {
            drop(served);
            assert!(open_again(&path, &OpenOptions::default()).is_ok());
        }
    }

    #[test]
    fn read_only_gives_no_space_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::write(&path, [0; 4096]).unwrap();
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let readers = [open(&path, &options).unwrap(), open(&path, &options).unwrap()];
        assert!(readers.iter().all(|file| file.discard_granularity.is_none() && !file.reserves));
        assert!(matches!(refuse(&path, &OpenOptions::default()), FileError::InUse { .. }));
        drop(readers);
        let writable = open_again(&path, &OpenOptions::default()).unwrap();
        // Probing changed nothing.
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
        assert_eq!(writable.bytes, 4096);
    }

    #[test]
    fn the_kernels_words_are_translated() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("disk");
        fs::write(path, [0; 512]).unwrap();
        let direct = OpenOptions { direct: true, ..OpenOptions::default() };
        let error = |errno| io::Error::from_raw_os_error(errno);
        let plain = OpenOptions::default();
        let of = |errno| explain(path, &plain, error(errno));
        assert!(matches!(of(libc::EACCES), FileError::Permission { .. }));
        assert!(matches!(of(libc::EROFS), FileError::ReadOnly { .. }));
        // What is not there cannot have the wrong owner.
        let new = |errno| explain(&folder.path().join("new"), &plain, error(errno));
        assert!(matches!(new(libc::EACCES), FileError::FolderPermission { .. }));
        assert!(matches!(new(libc::EROFS), FileError::NoFiles { .. }));
        assert!(matches!(of(libc::EISDIR), FileError::Directory { .. }));
        assert!(matches!(of(libc::EINVAL), FileError::Other { .. }));
        let odd = explain(path, &direct, error(libc::EINVAL));
        assert!(matches!(odd, FileError::DirectUnsupported { .. }));
    }
}
