// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names in folders: a file that was synced is lost all the same if its folder was not.

use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::Access;
use rustix::io::Errno;

use super::prepare;
use super::within_limit;
use crate::limits::LINKS_MAX;

/// Brings the name of `file`, which is `path`, to stable storage.
///
/// # Errors
/// What the kernel says of a sync.
pub fn sync_name(path: &Path, file: &File) -> io::Result<()> {
    match File::open(folder_of(path)) {
        Ok(folder) => folder.sync_all(),
        // A folder may let us write and not read: then its whole file system is synced.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(rustix::fs::syncfs(file)?),
        Err(error) => Err(error),
    }
}

/// The folder in which `path` is.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Whether `folder` can be used for files that are made in it, or could be made in the folder above
/// it. Makes nothing.
///
/// # Errors
/// What the kernel would say.
pub fn examine_folder(folder: &Path) -> io::Result<()> {
    let folder = match fs::metadata(folder) {
        // What a link names is not made.
        Err(error)
            if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(folder).is_err() =>
        {
            folder_of(folder)
        }
        Err(error) => return Err(error),
        Ok(_) => folder,
    };
    if !fs::metadata(folder)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(takes_files(folder)?)
}

/// Whether a file can be made in `folder`, as far as can be seen without making one.
pub(super) fn takes_files(folder: &Path) -> Result<(), Errno> {
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    // Those of the kernel: the user root may write there, and is told that there is no such file.
    let kind = rustix::fs::statfs(folder)?.f_type;
    if [libc::PROC_SUPER_MAGIC, libc::SYSFS_MAGIC].contains(&kind) {
        return Err(Errno::NOENT);
    }
    Ok(())
}

/// Whether a new file in `folder` can have `size` bytes and be used past the page cache, if it is
/// to be `direct`: one without a name is made so, and is gone at once. Unknown
/// where the file system makes none without a name.
pub(super) fn takes_file(folder: &Path, size: u64, direct: bool) -> io::Result<()> {
    // O_EXCL: it never gets a name.
    let nameless = libc::O_TMPFILE | libc::O_EXCL;
    let mut flags = File::options();
    flags.read(true).write(true).mode(0o600).custom_flags(nameless);
    match flags.open(folder) {
        Ok(file) => prepare(&file, size, direct),
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            Err(error)
        }
        Err(_) => within_limit(size),
    }
}

/// Whether `path`, which is not there, would be a file among devices: a device with a mistyped
/// name, most likely. `/dev/shm` is memory for files.
#[must_use]
pub fn among_devices(path: &Path) -> bool {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        path = folder.join(path.file_name().unwrap_or_default());
        match fs::read_link(&path) {
            Ok(to) => path = folder.join(to),
            Err(_) => break,
        }
    }
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// Lets the files `one` and `other` change places, at once and without room for it; false: the file
/// system cannot.
///
/// # Errors
/// What the kernel says.
pub fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    use rustix::fs::CWD;
    use rustix::io::Errno;
    match rustix::fs::renameat_with(CWD, one, CWD, other, rustix::fs::RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sets space for `length` bytes aside for `file`, which looks as before. Where the file system
/// knows no such thing, none is set aside.
///
/// # Errors
/// There is not so much space, or whatever else the kernel says.
pub fn set_aside(file: &File, length: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length.max(1)) {
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = File::create(&path).unwrap();
        sync_name(&path, &file).unwrap();
        sync_name(Path::new("disk"), &file).unwrap();
        assert!(sync_name(&folder.path().join("no/disk"), &file).is_err());
    }

    #[test]
    fn files_change_places_and_have_space_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        for path in [&one, &other] {
            fs::write(path, path.to_str().unwrap()).unwrap();
        }
        if exchange(&one, &other).unwrap() {
            assert_eq!(fs::read(&one).unwrap(), other.to_str().unwrap().as_bytes());
        }
        assert!(exchange(&one, &folder.path().join("none")).is_err());
        let before = fs::read(&one).unwrap();
        set_aside(&File::options().write(true).open(&one).unwrap(), 1 << 20).unwrap();
        assert_eq!(fs::read(&one).unwrap(), before);
    }
}
