// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI devices of the system, by the nodes that take commands: `/dev/sgN` (SG) and `/dev/bsg/...`
//! (block SG). Commands are carried out by the thread that calls, which waits for their end.

mod error;
mod ioctl;

use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::files::FileError;
use crate::files::lock_alone;
use crate::limits::RELEASE_PAUSE;

pub use error::SgError;

/// The data of a command.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // Linux passes no command that moves data both ways
pub enum Data<'a> {
    /// None.
    Nothing,
    /// To the device.
    Out(&'a [u8]),
    /// From the device, as much as it has.
    In(&'a mut [u8]),
}

/// What the system says of a command that it has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // the two headers say nothing else
pub struct Reply {
    /// SAM status code, as far as there is one.
    pub status: u8,
    /// What the driver of the host adapter says; 0 is good.
    pub host_status: u32,
    /// What the SCSI layer says.
    pub driver_status: u32,
    /// Sense data.
    pub sense: Vec<u8>,
    /// Bytes that were transferred.
    pub moved: u32,
}

/// A device of the system that takes commands.
#[derive(Debug)]
pub struct SgDevice {
    node: File,
    kind: Kind,
    /// The SG node of the same device: the block SG node knows no reset.
    resets: Option<File>,
    /// What keeps the system from using its blocks.
    _claim: Option<File>,
    place: Arc<Place>,
    limits: Limits,
}

/// What the system says of a device, before anybody has asked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the longest transfer.
    pub transfer_max: u32,
    /// Commands that it takes at a time.
    pub queue_depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sg,
    BlockSg,
}

/// A device that this process has open, by its folder in sysfs, which is one whatever node it is
/// opened by.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    path: PathBuf,
}

static OPEN: Mutex<Vec<Weak<Place>>> = Mutex::new(Vec::new());

/// Where the system does not say how long a transfer may be, bytes: what every host adapter takes.
const TRANSFER_ASSUMED: u32 = 128 << 10;

/// Commands at a time where the system does not say how many.
const DEPTH_ASSUMED: u32 = 1;

/// The thread that has had a device last lets go of it a little after whoever closed it.
const CLOSING_PATIENCE: Duration = Duration::from_millis(200);

/// Linux: the device number of SG nodes.
const SG_MAJOR: u32 = 21;

impl SgDevice {
    /// Opens the device of `path`, for this process alone as far as others ask.
    ///
    /// # Errors
    /// See [`SgError`].
    pub fn open(path: &Path) -> Result<Self, SgError> {
        let (kind, folder) = look(path)?;
        let place = take_place(path, &folder)?;
        let node = open_node(path).map_err(|error| explain(path, error))?;
        let resets = match kind {
            Kind::Sg => None,
            Kind::BlockSg => node_of(&folder).and_then(|node| open_node(&node).ok()),
        };
        // Whoever serves it by its other node has the lock of the SG node, too.
        for node in [Some(&node), resets.as_ref()].into_iter().flatten() {
            lock(path, node)?;
        }
        let claim = claim(path, &folder)?;
        if kind == Kind::Sg {
            ioctl::version(node.as_fd()).map_err(|_| SgError::NotScsi { path: path.into() })?;
        }
        let asked = resets.as_ref().unwrap_or(&node);
        let limits = limits_of(&folder, || ioctl::transfer_max(asked.as_fd()).ok());
        Ok(Self { node, kind, resets, _claim: claim, place, limits })
    }

    /// What the system says of it.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether the system still has it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.place.folder.join("type").exists()
    }

    /// Carries out a command, and waits for its end, which the system sees to when `timeout` is
    /// over.
    ///
    /// Of a command that a signal interrupts nobody hears any more what became of it: the calling
    /// thread does well to keep signals away ([`without_signals`]).
    ///
    /// # Errors
    /// The command was not sent: `ENODEV` and `ENXIO` for a device that is gone, `EPERM` for a
    /// command that this process may not send, `EINVAL` for one that the host adapter cannot take.
    pub fn carry_out(&self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> io::Result<Reply> {
        match self.kind {
            Kind::Sg => ioctl::carry_out_3(self.node.as_fd(), cdb, data, timeout),
            Kind::BlockSg => ioctl::carry_out_4(self.node.as_fd(), cdb, data, timeout),
        }
    }

    /// Resets the device (LOGICAL UNIT RESET) and nothing else, and waits for that.
    ///
    /// # Errors
    /// The driver of the host adapter cannot, or the user may not.
    pub fn reset(&self) -> io::Result<()> {
        match (self.kind, &self.resets) {
            (Kind::Sg, _) => ioctl::reset(self.node.as_fd()),
            (Kind::BlockSg, Some(node)) => ioctl::reset(node.as_fd()),
            (Kind::BlockSg, None) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }
}

/// Keeps signals from the calling thread for good: they would tear it from a command under way.
pub fn without_signals() {
    ioctl::block_signals();
}

/// Whether `path` could be opened as a device. Locks nothing and sends nothing.
///
/// # Errors
/// See [`SgError`].
pub fn examine(path: &Path) -> Result<(), SgError> {
    look(path)?;
    open_node(path).map(drop).map_err(|error| explain(path, error))
}

/// What kind of node a path is, and the folder of its device in sysfs.
fn look(path: &Path) -> Result<(Kind, PathBuf), SgError> {
    let metadata = fs::metadata(path).map_err(|error| explain(path, error))?;
    let kind = metadata.file_type();
    let folder = sysfs_of(&metadata);
    if kind.is_block_device() {
        let node = folder.as_deref().and_then(node_of);
        return Err(match node {
            Some(node) => SgError::BlockDevice { path: path.into(), node },
            None => SgError::NotScsi { path: path.into() },
        });
    }
    // `type` is an attribute of SCSI devices alone.
    let folder = folder.filter(|folder| folder.join("type").exists());
    let Some(folder) = folder.filter(|_| kind.is_char_device()) else {
        return Err(SgError::NotScsi { path: path.into() });
    };
    let is_sg = rustix::fs::major(metadata.rdev()) == SG_MAJOR;
    let is_bsg = folder.join("bsg").exists() && !is_sg && is_bsg_node(&folder, &metadata);
    match (is_sg, is_bsg) {
        (true, _) => Ok((Kind::Sg, folder)),
        (false, true) => Ok((Kind::BlockSg, folder)),
        (false, false) => Err(SgError::NotScsi { path: path.into() }),
    }
}

fn open_node(path: &Path) -> io::Result<File> {
    // Not waiting for somebody who has it for themselves.
    File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn lock(path: &Path, node: &File) -> Result<(), SgError> {
    lock_alone(path, node).map_err(|error| match error {
        FileError::InUse { holder, .. } => SgError::InUse { path: path.into(), holder },
        _ => SgError::Other { path: path.into(), source: io::Error::other(error.to_string()) },
    })
}

fn explain(path: &Path, error: io::Error) -> SgError {
    let path = path.to_path_buf();
    match error.kind() {
        ErrorKind::NotFound => SgError::Missing { path },
        ErrorKind::PermissionDenied => SgError::Permission { path },
        ErrorKind::ResourceBusy => SgError::InUse { path, holder: crate::files::Holder::Unknown },
        _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => {
            SgError::Missing { path }
        }
        _ => SgError::Other { path, source: error },
    }
}

/// The folder in sysfs of the device whose node this is.
fn sysfs_of(metadata: &fs::Metadata) -> Option<PathBuf> {
    let kind = if metadata.file_type().is_block_device() { "block" } else { "char" };
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::canonicalize(format!("/sys/dev/{kind}/{major}:{minor}/device")).ok()
}

/// The SG node of a device.
fn node_of(folder: &Path) -> Option<PathBuf> {
    only_name(&folder.join("scsi_generic")).map(|name| Path::new("/dev").join(name))
}

fn only_name(folder: &Path) -> Option<String> {
    let mut names = fs::read_dir(folder).ok()?.flatten();
    names.next().and_then(|entry| entry.file_name().into_string().ok())
}

/// Whether a node is the block SG node of the device, and not that of its tape driver or such.
fn is_bsg_node(folder: &Path, metadata: &fs::Metadata) -> bool {
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let Some(name) = only_name(&folder.join("bsg")) else { return false };
    text(&folder.join("bsg").join(name).join("dev")) == Some(format!("{major}:{minor}"))
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Waits a moment for one that is being given up.
fn take_place(path: &Path, folder: &Path) -> Result<Arc<Place>, SgError> {
    let begin = Instant::now();
    loop {
        match try_place(path, folder) {
            Err(SgError::Twice { .. }) if begin.elapsed() < CLOSING_PATIENCE => {
                thread::sleep(RELEASE_PAUSE);
            }
            result => return result,
        }
    }
}

fn try_place(path: &Path, folder: &Path) -> Result<Arc<Place>, SgError> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|place| place.strong_count() > 0);
    if let Some(other) = open.iter().filter_map(Weak::upgrade).find(|at| at.folder == folder) {
        return Err(SgError::Twice { path: path.into(), other: other.path.clone() });
    }
    let place = Arc::new(Place { folder: folder.into(), path: path.into() });
    open.push(Arc::downgrade(&place));
    Ok(place)
}

/// Keeps the system from mounting the disk that the device is, too, and from reading it ahead of
/// its hosts. None if it is none, or this user may not open it.
fn claim(path: &Path, folder: &Path) -> Result<Option<File>, SgError> {
    let Some(name) = only_name(&folder.join("block")) else { return Ok(None) };
    let disk = Path::new("/dev").join(name);
    let flags = libc::O_EXCL | libc::O_NONBLOCK;
    match File::options().read(true).custom_flags(flags).open(&disk) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            Err(SgError::Busy { path: path.into(), disk })
        }
        // No medium, or no right to it: then nobody mounts it through us.
        Err(_) => Ok(None),
    }
}

/// `transfer_max`: what the SG node says, which no other device than a disk has a place for.
fn limits_of(folder: &Path, transfer_max: impl FnOnce() -> Option<i32>) -> Limits {
    let number = |path: PathBuf| text(&path)?.parse::<u32>().ok();
    let queue = only_name(&folder.join("block"))
        .map(|name| folder.join("block").join(name).join("queue"))
        .and_then(|queue| number(queue.join("max_hw_sectors_kb")))
        .and_then(|kilobytes| kilobytes.checked_mul(1024));
    Limits {
        transfer_max: queue
            .or_else(|| u32::try_from(transfer_max()?).ok().filter(|bytes| *bytes > 0))
            .unwrap_or(TRANSFER_ASSUMED),
        queue_depth: number(folder.join("queue_depth")).unwrap_or(DEPTH_ASSUMED).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> SgError {
        SgDevice::open(path).expect_err("it is no SCSI device")
    }

    #[test]
    fn what_is_no_device_is_refused_and_told_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("disk");
        fs::write(&file, [0; 512]).expect("a file");
        for path in [&file, folder.path(), Path::new("/dev/null")] {
            let error = refused(path);
            assert!(matches!(error, SgError::NotScsi { .. }), "{error:?}");
            assert!(error.to_string().contains("lsscsi -g"), "{error}");
        }
        let error = refused(&folder.path().join("sg0"));
        assert!(matches!(error, SgError::Missing { .. }), "{error:?}");
    }

    #[test]
    fn errors_of_the_system_have_a_reason() {
        let of = |errno| explain(Path::new("/dev/sg0"), io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::ENXIO), SgError::Missing { .. }));
        assert!(matches!(of(libc::EACCES), SgError::Permission { .. }));
        assert!(matches!(of(libc::EBUSY), SgError::InUse { .. }));
        assert!(matches!(of(libc::EIO), SgError::Other { .. }));
    }

    #[test]
    fn a_device_is_open_once() {
        let folder = Path::new("/sys/devices/test/a_device_is_open_once");
        let first = take_place(Path::new("/dev/sg1"), folder).expect("the first");
        let error = take_place(Path::new("/dev/bsg/1:0:0:0"), folder).expect_err("the same");
        assert!(error.to_string().contains("as /dev/sg1"), "{error}");
        drop(first);
        assert!(take_place(Path::new("/dev/sg1"), folder).is_ok());
    }

    #[test]
    fn what_the_system_does_not_say_is_assumed_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = |said| limits_of(folder.path(), || said);
        assert_eq!((limits(None).transfer_max, limits(None).queue_depth), (TRANSFER_ASSUMED, 1));
        assert_eq!(
            [-1, 0, 4096].map(|said| limits(Some(said)).transfer_max),
            [TRANSFER_ASSUMED, TRANSFER_ASSUMED, 4096]
        );
        let queue = folder.path().join("block/sda/queue");
        fs::create_dir_all(&queue).expect("a folder");
        fs::write(queue.join("max_hw_sectors_kb"), "512\n").expect("a file");
        fs::write(folder.path().join("queue_depth"), "64\n").expect("a file");
        let limits = limits(Some(4096));
        assert_eq!((limits.transfer_max, limits.queue_depth), (512 << 10, 64));
    }
}
