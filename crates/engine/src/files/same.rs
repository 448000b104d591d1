// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One disk is one disk, whatever name it is opened by: a device by two nodes, a file and the loop
//! device that shows it. Locks are on the node or file that was opened and do not see that.

use std::fs;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;

use super::FileError;
use super::Holder;
use super::lock;

/// What bytes are where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
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
    places: Vec<Place>,
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

/// Refuses a disk that is open here already, or that others have by another name.
pub(super) fn claim(path: &Path, file: &File, read_only: bool) -> Result<Claim, FileError> {
    let other = |source| FileError::Other { path: path.into(), source };
    let metadata = file.metadata().map_err(other)?;
    let mut places = vec![place(&metadata)];
    let mut behind = None;
    if metadata.file_type().is_block_device() {
        if let Some(file) = backing_file(metadata.rdev()) {
            let opened = File::options().read(true).write(!read_only).open(&file);
            if let Ok(opened) = opened {
                places.push(place(&opened.metadata().map_err(other)?));
                refuse_known(path, &places, read_only)?;
                lock::lock(&file, &opened, read_only)?;
                behind = Some(opened);
            }
        }
    } else if !read_only && let Some(device) = loop_of(&metadata) {
        return Err(FileError::SameDisk { path: path.into(), other: device });
    }
    refuse_known(path, &places, read_only)?;
    let path = path.to_path_buf();
    Ok(Claim { known: Known { places, path, read_only, fd: Weak::new() }, behind })
}

/// Refuses a device that this process has open.
pub(super) fn refuse_ours(path: &Path) -> Result<(), FileError> {
    match fs::metadata(path) {
        Ok(metadata) => refuse_known(path, &[place(&metadata)], false),
        Err(source) => Err(FileError::Other { path: path.into(), source }),
    }
}

fn refuse_known(path: &Path, places: &[Place], read_only: bool) -> Result<(), FileError> {
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
pub(super) fn places(metadata: &fs::Metadata) -> Vec<Place> {
    let mut places = vec![place(metadata)];
    if metadata.file_type().is_block_device() {
        let file = backing_file(metadata.rdev()).and_then(|file| fs::metadata(file).ok());
        places.extend(file.map(|file| place(&file)));
    }
    places
}

fn place(metadata: &fs::Metadata) -> Place {
    if metadata.file_type().is_block_device() {
        Place::Device(metadata.rdev())
    } else {
        Place::File(metadata.dev(), metadata.ino())
    }
}

/// The file that a loop device shows; None for any other device.
fn backing_file(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    Some(PathBuf::from(fs::read_to_string(name).ok()?.trim_end_matches('\n')))
}

/// The loop device that shows a file, if there is one.
fn loop_of(metadata: &fs::Metadata) -> Option<PathBuf> {
    let is_it = |device: &fs::DirEntry| {
        let shown = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        let shown = fs::metadata(shown.trim_end_matches('\n')).ok()?;
        (place(&shown) == place(metadata)).then_some(())
    };
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    let mut loops =
        devices.filter(|device| device.file_name().as_encoded_bytes().starts_with(b"loop"));
    let found = loops.find(|device| is_it(device).is_some())?;
    Some(Path::new("/dev").join(found.file_name()))
}

#[cfg(test)]
mod tests {
    use super::super::OpenOptions;
    use super::super::open;
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
        let readers = [open(&path, &reading).unwrap(), open(&link, &reading).unwrap()];
        drop(readers);
        assert!(open(&link, &OpenOptions::default()).is_ok());
    }

    /// A loop device that goes with the test; None where there may be none.
    struct Loop(PathBuf);

    impl Loop {
        fn of(file: &Path) -> Option<Self> {
            let losetup = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
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
        let Some(device) = Loop::of(&path) else { return println!("skipped: no loop device") };
        let plain = OpenOptions::default();
        let shown = open(&path, &plain).unwrap_err();
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
        let mounted = alone.open(&device.0).unwrap();
        let claimed = open(&device.0, &plain).unwrap_err();
        assert!(matches!(claimed, FileError::Claimed { .. }), "{claimed}");
        assert!(open(&device.0, &options).is_ok(), "it can be read");
        drop(mounted);
        assert!(open(&device.0, &plain).is_ok());
    }

    #[test]
    fn places_are_compared_not_names() {
        let path = Path::new("/nowhere/disk");
        let known = |read_only, fd: &Arc<OwnedFd>| {
            let places = vec![Place::Device(u64::MAX), Place::File(u64::MAX, 7)];
            let path = path.to_path_buf();
            let known = Known { places, path, read_only, fd: Weak::new() };
            assert!(Claim { known, behind: None }.hold(fd).is_none());
        };
        let fd = || Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let (first, other) = (fd(), Path::new("/nowhere/other"));
        known(true, &first);
        for place in [[Place::Device(u64::MAX)], [Place::File(u64::MAX, 7)]] {
            assert!(refuse_known(other, &place, true).is_ok(), "both only read");
            let same = refuse_known(other, &place, false).unwrap_err();
            assert!(matches!(same, FileError::SameDisk { .. }), "{same}");
            let same = refuse_known(path, &place, false).unwrap_err();
            assert!(matches!(same, FileError::InUse { holder: Holder::Ourselves, .. }), "{same}");
        }
        drop(first);
        assert!(refuse_known(other, &[Place::Device(u64::MAX)], false).is_ok(), "it is closed");
    }
}
