// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at a file that is to be served, which changes and locks nothing.

use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::Access;
use rustix::io::Errno;

use super::FileError;
use super::OpenOptions;
use super::Queue;
use super::among_devices;
use super::check_kind;
use super::check_writable;
use super::explain;
use super::folder::takes_file;
use super::folder::takes_files;
use super::folder_of;
use super::identity::recorded;
use super::image;
use super::is_broken_link;
use super::is_whole;
use super::length;
use super::missing;
use super::same;
use super::same::FileIdentity;
use super::sysfs::BlockDevice;

/// What is known of a file that is not open.
#[derive(Debug)]
#[non_exhaustive]
pub struct Examined {
    places: Vec<FileIdentity>,
    /// For a partition: its disk.
    disk: Option<FileIdentity>,
    read_only: bool,
    /// Unit of what is read and written past the page cache, bytes.
    pub direct_block: u32,
    /// Its size, or that with which it would be made, bytes.
    pub bytes: u64,
    /// The number that is written beside it, if there is one; or why it cannot be read.
    pub number: io::Result<Option<u64>>,
    /// For a file that would be made: true.
    pub missing: bool,
    /// True for a block device.
    pub block_device: bool,
}

impl Examined {
    /// Whether both are the same disk, and one of them writes to it; or a partition and its disk,
    /// of which only one is written to by itself.
    #[must_use]
    pub fn collides(&self, other: &Self) -> bool {
        let writers = [self, other].into_iter().filter(|file| !file.read_only).count();
        let in_one = self.is_part_of(other) || other.is_part_of(self);
        self.is_same(other) && writers > 0 || in_one && writers > 1
    }

    /// Whether both are the same disk.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.places.iter().any(|place| other.places.contains(place))
    }

    fn is_part_of(&self, other: &Self) -> bool {
        self.disk.as_ref().is_some_and(|disk| other.places.contains(disk))
    }
}

/// Whether `path` could be opened as far as can be seen without doing it. A daemon or a virtual
/// machine that has it now does not count, the system that uses it does.
///
/// # Errors
/// See [`FileError`].
pub fn examine(path: &Path, options: &OpenOptions) -> Result<Examined, FileError> {
    let own = || path.to_path_buf();
    if let Some(wanted) = options.create_size
        && !is_whole(wanted)
    {
        return Err(FileError::UselessSize { path: own(), wanted });
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return examine_missing(path, options),
        Err(error) => return Err(explain(path, options, error)),
    };
    check_kind(path, &metadata)?;
    check_writable(path, &metadata, options)?;
    let access =
        if options.read_only { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
    rustix::fs::access(path, access).map_err(|errno| explain(path, options, errno.into()))?;
    same::refuse_used(path, &metadata, options.read_only)?;
    let mut flags = File::options();
    flags.read(true).custom_flags(if options.direct { libc::O_DIRECT } else { 0 });
    let mut file = flags.open(path).map_err(|error| explain(path, options, error))?;
    let block_device = metadata.file_type().is_block_device();
    if block_device && !options.read_only {
        same::refuse_claimed(path, &file)?;
    }
    let bytes = length(path, &mut file, &metadata)?;
    if !options.raw {
        image::refuse(path, &file)?;
    }
    let queue = Queue::of(if block_device { metadata.rdev() } else { metadata.dev() });
    let places = same::places(&metadata);
    let device = BlockDevice::of(metadata.rdev()).filter(|_| block_device);
    let disk = device.and_then(|device| device.disk());
    Ok(Examined {
        places,
        disk: disk.and_then(|disk| disk.number()).map(FileIdentity::Device),
        read_only: options.read_only,
        direct_block: queue.direct_block(),
        bytes,
        number: recorded(&file),
        missing: false,
        block_device,
    })
}

/// A file that would be made.
fn examine_missing(path: &Path, options: &OpenOptions) -> Result<Examined, FileError> {
    let own = || path.to_path_buf();
    let size = match options.create_size {
        Some(size) if !options.read_only && !among_devices(path) => size,
        _ => return Err(missing(path, options)),
    };
    if is_broken_link(path) {
        return Err(FileError::BrokenLink { path: own() });
    }
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(FileError::Directory { path: own() });
    }
    let whole = fs::canonicalize(folder_of(path)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => FileError::FolderMissing { path: own() },
        _ => explain(path, options, error),
    })?;
    takes_files(&whole).map_err(|errno| match errno {
        Errno::NOENT => FileError::NoFiles { path: own() },
        _ => explain(path, options, errno.into()),
    })?;
    takes_file(&whole, size, options.direct).map_err(|error| explain(path, options, error))?;
    let whole = whole.join(path.file_name().unwrap_or_default());
    Ok(Examined {
        places: vec![FileIdentity::Name(whole)],
        disk: None,
        read_only: false,
        direct_block: 512,
        bytes: size,
        number: Ok(None),
        missing: true,
        block_device: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_served_is_seen_without_opening_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (plain, reading) =
            (OpenOptions::default(), OpenOptions { read_only: true, ..OpenOptions::default() });
        let made = OpenOptions { create_size: Some(4096), ..plain };
        fs::write(path("empty"), []).unwrap();
        fs::write(path("disk"), [0; 4096]).unwrap();
        fs::write(path("image"), b"vhdxfile".repeat(64)).unwrap();
        let refused = |name: &str, options| examine(&path(name), options).unwrap_err();
        assert!(matches!(refused("none", &plain), FileError::Missing { .. }));
        assert!(matches!(refused("no/disk", &made), FileError::FolderMissing { .. }));
        let device = examine(Path::new("/dev/lunwire-no-such-device"), &made).unwrap_err();
        assert!(matches!(device, FileError::NoDevice { .. }));
        assert!(matches!(refused("empty", &plain), FileError::Empty { .. }));
        assert!(matches!(refused("image", &plain), FileError::Image { .. }));
        assert!(matches!(refused("", &plain), FileError::Directory { .. }));
        fs::hard_link(path("disk"), path("link")).unwrap();
        let [first, second] = ["disk", "link"].map(|name| examine(&path(name), &plain).unwrap());
        assert!(first.collides(&second));
        let [reader, other] = ["disk", "link"].map(|name| examine(&path(name), &reading).unwrap());
        assert!(!reader.collides(&other) && reader.collides(&first));
        let [new, again] = ["new", "./new"].map(|name| examine(&path(name), &made).unwrap());
        assert!(new.collides(&again) && !new.collides(&first));
        assert!(!path("new").exists());
        assert_eq!((new.bytes, new.missing, first.bytes, first.missing), (4096, true, 4096, false));
        let kernel = examine(Path::new("/proc/lunwire-new"), &made).unwrap_err();
        assert!(matches!(kernel, FileError::NoFiles { .. } | FileError::Permission { .. }));
        let kernel = super::super::open(Path::new("/proc/lunwire-new"), &made).unwrap_err();
        assert!(matches!(kernel, FileError::NoFiles { .. } | FileError::Permission { .. }));
    }

    #[test]
    fn a_size_that_no_file_can_have_is_seen_without_making_one() {
        // Not in memory, where a file may be as large as numbers are.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("disk");
        let largest = u64::try_from(i64::MAX).unwrap() / 512 * 512;
        let wanted = OpenOptions { create_size: Some(largest), ..OpenOptions::default() };
        let looked = examine(&path, &wanted);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        match super::super::open(&path, &wanted) {
            Ok(_) => println!("skipped: this file system takes files of all sizes"),
            Err(opened) => {
                assert!(matches!(opened, FileError::TooLarge { .. }), "{opened}");
                let looked = looked.unwrap_err();
                assert!(matches!(looked, FileError::TooLarge { .. }), "{looked}");
            }
        }
    }

    #[test]
    fn a_partition_and_its_disk_are_not_written_to_by_two() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, [0; 4096]).unwrap();
        let device = |places, disk, read_only| {
            let options = OpenOptions { read_only, ..OpenOptions::default() };
            Examined { places, disk, ..examine(&path, &options).unwrap() }
        };
        let (whole, part) = (FileIdentity::Device(u64::MAX), FileIdentity::Device(u64::MAX - 1));
        let disk = |read_only| device(vec![whole.clone()], None, read_only);
        let first = |read_only| device(vec![part.clone()], Some(whole.clone()), read_only);
        let second = device(vec![FileIdentity::Device(u64::MAX - 2)], Some(whole.clone()), false);
        assert!(first(false).collides(&disk(false)) && disk(false).collides(&first(false)));
        assert!(!first(true).collides(&disk(false)) && !disk(true).collides(&first(false)));
        assert!(!second.collides(&first(false)), "two partitions");
        assert!(!first(false).is_same(&disk(false)));
    }

    /// What a look at `path` says, which must be what opening it says.
    fn both_refuse(path: &Path, options: &OpenOptions) -> FileError {
        let looked = examine(path, options).expect_err("a look sees it");
        let opened = super::super::open(path, options).unwrap_err();
        assert_eq!(looked.to_string(), opened.to_string());
        looked
    }

    #[test]
    fn names_that_no_file_can_be_made_by_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let made = OpenOptions { create_size: Some(4096), ..OpenOptions::default() };
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
        let error = both_refuse(&link, &made);
        assert!(matches!(error, FileError::BrokenLink { .. }), "{error}");
        both_refuse(&link, &OpenOptions::default());
        let error = both_refuse(&folder.path().join("none/"), &made);
        assert!(matches!(error, FileError::Directory { .. }), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Memory in which nothing goes past the page cache.
    struct Ramfs(tempfile::TempDir);

    impl Ramfs {
        fn mounted() -> Option<Self> {
            let folder = tempfile::tempdir().unwrap();
            let mut mount = std::process::Command::new("mount");
            let done = mount.args(["-t", "ramfs", "none"]).arg(folder.path()).output();
            done.is_ok_and(|output| output.status.success()).then_some(Self(folder))
        }
    }

    impl Drop for Ramfs {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg(self.0.path()).status();
        }
    }

    #[test]
    fn a_file_system_that_does_not_go_past_the_cache_is_seen() {
        let Some(folder) = Ramfs::mounted() else {
            return println!("skipped: nothing can be mounted here");
        };
        let direct = OpenOptions { direct: true, ..OpenOptions::default() };
        let disk = folder.0.path().join("disk");
        fs::write(&disk, [0; 4096]).unwrap();
        let error = both_refuse(&disk, &direct);
        assert!(matches!(error, FileError::DirectUnsupported { .. }), "{error}");
        let new = folder.0.path().join("new");
        let error = both_refuse(&new, &OpenOptions { create_size: Some(4096), ..direct });
        assert!(matches!(error, FileError::DirectUnsupported { .. }), "{error}");
        assert!(!new.exists(), "what could not be served is not left there, empty");
    }
}
