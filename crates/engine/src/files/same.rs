// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One disk is one disk, whatever name it is opened by: a device by two nodes, a file and the loop
//! device that shows it. Locks are on the node or file that was opened and do not see that.

use std::fs;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
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
use std::time::Instant;

use super::FileError;
use super::Holder;
use super::backing::Backing;
use super::lock;
use super::ofd;
use super::swap::is_swap;
use super::sysfs::BlockDevice;
use crate::limits::RELEASE_PATIENCE;
use crate::limits::RELEASE_PAUSE;

/// What bytes are where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileIdentity {
    /// By device number.
    Device(u64),
    /// By file system and inode.
    File(u64, u64),
    /// By name: it will be made.
    Name(PathBuf),
}

/// A disk that this process has open.
#[derive(Debug)]
struct Known {
    places: Vec<FileIdentity>,
    path: PathBuf,
    read_only: bool,
    fd: Weak<OwnedFd>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// A disk that nobody else has; to be held while it is open.
#[derive(Debug)]
pub(super) struct Claim {
    known: Known,
    /// The file behind a loop device, with its lock.
    behind: Option<File>,
}

impl Claim {
    /// From now on the disk is taken as long as `fd` is open. Gives what is to be held with it.
    pub(super) fn hold(self, fd: &Arc<OwnedFd>) -> Option<Arc<OwnedFd>> {
        let Self { mut known, behind } = self;
        known.fd = Arc::downgrade(fd);
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.fd.strong_count() > 0);
        all.push(known);
        behind.map(|file| Arc::new(OwnedFd::from(file)))
    }
}

/// What keeps others from a file or device as long as it is there.
#[derive(Debug)]
pub struct Taken {
    _behind: Option<File>,
}

/// Takes `file`, which is `path` and open for writing, for this process alone: for a copy onto it.
///
/// # Errors
/// [`FileError`] if somebody serves, mounted or shows it, also by another name.
pub fn take_alone(path: &Path, file: &File) -> Result<Taken, FileError> {
    lock::lock(path, file, false)?;
    Ok(Taken { _behind: claim(path, file, false)?.behind })
}

/// Refuses a disk that is open here already, or that others have by another name.
pub(super) fn claim(path: &Path, file: &File, read_only: bool) -> Result<Claim, FileError> {
    let other = |source| FileError::Other { path: path.into(), source };
    let metadata = file.metadata().map_err(other)?;
    let mut places = vec![place(&metadata)];
    let mut behind = None;
    if metadata.file_type().is_block_device()
        && let Some(backing) = Backing::of(metadata.rdev())
        && let Ok(opened) = File::options().read(true).write(!read_only).open(&backing.file)
    {
        places.push(place(&opened.metadata().map_err(other)?));
        refuse_known(path, &places, read_only)?;
        lock::lock(&backing.file, &opened, read_only)?;
        behind = Some(opened);
    }
    refuse_used(path, &metadata, read_only)?;
    refuse_known(path, &places, read_only)?;
    let path = path.to_path_buf();
    Ok(Claim { known: Known { places, path, read_only, fd: Weak::new() }, behind })
}

/// Refuses for writing what the system uses by another name: a file that a loop device shows, a
/// loop device whose file is mounted by another one, swap space. Devices that it uses by their own
/// name it keeps from others by itself.
pub(super) fn refuse_used(
    path: &Path,
    metadata: &fs::Metadata,
    read_only: bool,
) -> Result<(), FileError> {
    if read_only {
        return Ok(());
    }
    let path = path.to_path_buf();
    if metadata.file_type().is_block_device() {
        let Some(backing) = Backing::of(metadata.rdev()) else { return Ok(()) };
        if fs::metadata(&backing.file).is_ok_and(|file| is_swap(&file)) {
            return Err(FileError::Swap { path, file: backing.file });
        }
        return match backing.other_user() {
            Some(other) => Err(FileError::Shown { path, other }),
            None => Ok(()),
        };
    }
    if is_swap(metadata) {
        return Err(FileError::Swap { file: path.clone(), path });
    }
    match loop_of(metadata) {
        Some(other) => Err(FileError::SameDisk { path, other }),
        None => Ok(()),
    }
}

/// Refuses for writing a device that the system uses by its own name. Who writes to it and locks it
/// as we do, a daemon or QEMU, does not count. `file` is the device, open for reading.
pub(super) fn refuse_claimed(path: &Path, file: &File) -> Result<(), FileError> {
    let begin = Instant::now();
    // One that is being taken is claimed before it is locked, one that is given up after.
    while is_claimed(path) && !ofd::has_writer(file) {
        if begin.elapsed() >= RELEASE_PATIENCE {
            return Err(FileError::Claimed { path: path.into() });
        }
        thread::sleep(RELEASE_PAUSE);
    }
    Ok(())
}

/// Refuses a device that this process has open.
pub(super) fn refuse_ours(path: &Path) -> Result<(), FileError> {
    match fs::metadata(path) {
        Ok(metadata) => refuse_known(path, &[place(&metadata)], false),
        Err(source) => Err(FileError::Other { path: path.into(), source }),
    }
}

fn refuse_known(path: &Path, places: &[FileIdentity], read_only: bool) -> Result<(), FileError> {
    let all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |known: &&Known| {
        known.fd.strong_count() > 0
            && !(read_only && known.read_only)
            && known.places.iter().any(|place| places.contains(place))
    };
    match all.iter().find(is_same) {
        None => Ok(()),
        Some(known) if known.path == path => {
            Err(FileError::InUse { path: path.into(), holder: Holder::Ourselves })
        }
        Some(known) => Err(FileError::SameDisk { path: path.into(), other: known.path.clone() }),
    }
}

/// Where the bytes of a file or device are, by all that is known of it.
pub(super) fn places(metadata: &fs::Metadata) -> Vec<FileIdentity> {
    let mut places = vec![place(metadata)];
    if metadata.file_type().is_block_device() {
        let file = Backing::of(metadata.rdev()).and_then(|backing| fs::metadata(backing.file).ok());
        places.extend(file.map(|file| place(&file)));
    }
    places
}

pub(super) fn place(metadata: &fs::Metadata) -> FileIdentity {
    if metadata.file_type().is_block_device() {
        FileIdentity::Device(metadata.rdev())
    } else {
        FileIdentity::File(metadata.dev(), metadata.ino())
    }
}

/// Whether the system uses a device: it is mounted, or a part of another one.
pub(super) fn is_claimed(device: &Path) -> bool {
    let alone =
        File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(device);
    alone.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
}

/// The loop device that shows a file, if there is one.
fn loop_of(metadata: &fs::Metadata) -> Option<PathBuf> {
    let shows = |device: &BlockDevice| {
        let shown = device.text("loop/backing_file").and_then(|file| fs::metadata(file).ok());
        shown.is_some_and(|shown| place(&shown) == place(metadata))
    };
    BlockDevice::loops().find(shows)?.node()
}

#[cfg(test)]
mod tests {
    use super::super::OpenOptions;
    use super::super::examine;
    use super::super::open;
    use super::super::tests::open_again;
    use super::super::tests::patiently;
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    #[test]
    fn a_file_by_two_names_is_one_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("disk"), folder.path().join("link"));
        fs::write(&path, [0; 4096]).unwrap();
        fs::hard_link(&path, &link).unwrap();
        let first = open(&path, &OpenOptions::default()).unwrap();
        assert!(open(&link, &OpenOptions::default()).is_err());
        drop(first);
        let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
        let readers = [open_again(&path, &reading).unwrap(), open(&link, &reading).unwrap()];
        drop(readers);
        assert!(open_again(&link, &OpenOptions::default()).is_ok());
    }

    /// A loop device that goes with the test; None where there may be none.
    struct Loop(PathBuf);

    impl Loop {
        fn of(file: &Path) -> Option<Self> {
            Self::with(&[], file)
        }

        fn with(more: &[&str], file: &Path) -> Option<Self> {
            let mut losetup = Command::new("losetup");
            let losetup = losetup.args(["--find", "--show"]).args(more).arg(file).output();
            let told = losetup.ok().filter(|output| output.status.success())?;
            Some(Self(String::from_utf8(told.stdout).unwrap().trim().into()))
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    #[test]
    fn a_device_by_any_name_is_one_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let Some(device) = Loop::of(&path) else {
            return println!("skipped: losetup makes no loop device here");
        };
        let plain = OpenOptions::default();
        let shown = open(&path, &plain).unwrap_err();
        assert!(matches!(shown, FileError::SameDisk { .. }), "{shown}");
        let shown = examine(&path, &plain).unwrap_err();
        assert!(matches!(shown, FileError::SameDisk { .. }), "{shown}");
        let served = open(&device.0, &plain).unwrap();
        assert!(served.block_device && served.behind.is_some());
        let node = folder.path().join("node");
        let number = fs::metadata(&device.0).unwrap().rdev().to_string();
        let (major, minor) = (number.parse::<u64>().unwrap() >> 8, number.parse::<u64>().unwrap());
        let made = Command::new("mknod")
            .arg(&node)
            .args(["b", &major.to_string(), &(minor & 0xff).to_string()])
            .status();
        if made.is_ok_and(|status| status.success()) {
            for read_only in [false, true] {
                let options = OpenOptions { read_only, ..plain };
                // Where the folder takes no devices this fails in another way.
                assert!(open(&node, &options).is_err());
            }
        }
        let again = open(&device.0, &plain).unwrap_err();
        assert!(again.to_string().contains("given twice"), "{again}");
        let options = OpenOptions { read_only: true, ..plain };
        assert!(open(&path, &options).is_err(), "the file behind it");
        drop(served);
        // As a file system does that is mounted.
        let mut alone = File::options();
        alone.read(true).write(true).custom_flags(libc::O_EXCL);
        let mounted = patiently(|| alone.open(&device.0)).unwrap();
        let claimed = open(&device.0, &plain).unwrap_err();
        assert!(matches!(claimed, FileError::Claimed { .. }), "{claimed}");
        assert!(open(&device.0, &options).is_ok(), "it can be read");
        drop(mounted);
        assert!(open_again(&device.0, &plain).is_ok());
    }

    /// A file system that goes with the test; None where none may be mounted.
    struct Mount<'a>(&'a Path);

    impl<'a> Mount<'a> {
        fn of(device: &Path, at: &'a Path) -> Option<Self> {
            let done =
                |command: &mut Command| command.status().is_ok_and(|status| status.success());
            fs::create_dir(at).unwrap();
            let there = done(Command::new("mkfs.ext2").arg("-q").arg(device))
                && done(Command::new("mount").arg(device).arg(at));
            there.then_some(Self(at))
        }
    }

    impl Drop for Mount<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0).status();
        }
    }

    #[test]
    fn a_device_that_takes_no_writes_is_served_read_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let Some(device) = Loop::with(&["--read-only"], &path) else {
            return println!("skipped: losetup makes no loop device here");
        };
        let plain = OpenOptions::default();
        for refused in [
            open(&device.0, &plain).map(drop).unwrap_err(),
            examine(&device.0, &plain).map(drop).unwrap_err(),
        ] {
            assert!(matches!(refused, FileError::ReadOnly { .. }), "{refused}");
        }
        let reading = OpenOptions { read_only: true, ..plain };
        examine(&device.0, &reading).unwrap();
        open(&device.0, &reading).unwrap();
    }

    #[test]
    fn a_look_tells_a_device_that_is_mounted_from_one_that_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let Some(device) = Loop::of(&path) else {
            return println!("skipped: losetup makes no loop device here");
        };
        let plain = OpenOptions::default();
        let reading = OpenOptions { read_only: true, ..plain };
        let served = open(&device.0, &plain).unwrap();
        examine(&device.0, &plain).expect("who serves it does not count");
        drop(served);
        examine(&device.0, &plain).expect("nobody has it");
        let place = folder.path().join("mounted");
        let Some(_mounted) = Mount::of(&device.0, &place) else {
            return println!("skipped: nothing can be mounted here");
        };
        let refused = examine(&device.0, &plain).unwrap_err();
        assert!(matches!(refused, FileError::Claimed { .. }), "{refused}");
        examine(&device.0, &reading).expect("it can be read");
        let _reader = open(&device.0, &reading).unwrap();
        let refused = examine(&device.0, &plain).unwrap_err();
        assert!(matches!(refused, FileError::Claimed { .. }), "beside a reader: {refused}");
    }

    #[test]
    fn a_loop_device_beside_a_mounted_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let (Some(first), Some(second)) = (Loop::of(&path), Loop::of(&path)) else {
            return println!("skipped: losetup makes no loop device here");
        };
        let mut alone = File::options();
        alone.read(true).write(true).custom_flags(libc::O_EXCL);
        let mounted = patiently(|| alone.open(&first.0)).unwrap();
        let refused = open(&second.0, &OpenOptions::default()).unwrap_err();
        assert!(matches!(refused, FileError::Shown { .. }), "{refused}");
        let refused = examine(&second.0, &OpenOptions::default()).unwrap_err();
        assert!(matches!(refused, FileError::Shown { .. }), "{refused}");
        drop(mounted);
        assert!(open_again(&second.0, &OpenOptions::default()).is_ok());
    }

    #[test]
    fn places_are_compared_not_names() {
        let path = Path::new("/nowhere/disk");
        let known = |read_only, fd: &Arc<OwnedFd>| {
            let places = vec![FileIdentity::Device(u64::MAX), FileIdentity::File(u64::MAX, 7)];
            let path = path.to_path_buf();
            let known = Known { places, path, read_only, fd: Weak::new() };
            assert!(Claim { known, behind: None }.hold(fd).is_none());
        };
        let fd = || Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let (first, other) = (fd(), Path::new("/nowhere/other"));
        known(true, &first);
        for place in [[FileIdentity::Device(u64::MAX)], [FileIdentity::File(u64::MAX, 7)]] {
            assert!(refuse_known(other, &place, true).is_ok(), "both only read");
            let same = refuse_known(other, &place, false).unwrap_err();
            assert!(matches!(same, FileError::SameDisk { .. }), "{same}");
            let same = refuse_known(path, &place, false).unwrap_err();
            assert!(matches!(same, FileError::InUse { holder: Holder::Ourselves, .. }), "{same}");
        }
        drop(first);
        assert!(
            refuse_known(other, &[FileIdentity::Device(u64::MAX)], false).is_ok(),
            "it is closed"
        );
    }
}
