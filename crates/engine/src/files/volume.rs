// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done to a whole file while it is served: its size, and copies that share its blocks.

use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::folder::sync_name;
use super::within_limit;

/// Why there is no snapshot; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// There is a file of that name.
    #[error("{} exists; try: another name", .path.display())]
    Exists {
        /// The snapshot.
        path: PathBuf,
    },
    /// The file system cannot, or the snapshot would be on another one.
    #[error(
        "{} cannot share blocks with the disk: that needs a file system with reflinks (XFS, \
         Btrfs), the same one for both; try: lunwire copy, or cp while nobody writes",
        .path.display()
    )]
    Unsupported {
        /// The snapshot.
        path: PathBuf,
    },
    /// Anything else that the kernel says.
    #[error("cannot make {}: {source}; try: another place", .path.display())]
    Other {
        /// The snapshot.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Size of a file or block device now, bytes.
///
/// # Errors
/// What the kernel says.
pub fn size(file: &OwnedFd) -> io::Result<u64> {
    // A device has no length of its own; where the file stands is of no interest to anybody.
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

/// Space of a regular file and of the file system that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that the file takes.
    pub used: u64,
    /// Bytes that are left for anybody.
    pub available: u64,
}

/// Space that a regular file takes, and that is left on its file system.
///
/// # Errors
/// What the kernel says.
pub fn usage(file: &OwnedFd) -> io::Result<Usage> {
    /// Unit of `st_blocks`, whatever the file system's own is.
    const STAT_BLOCK: u64 = 512;
    let blocks = rustix::fs::fstat(file)?.st_blocks;
    let free = rustix::fs::fstatvfs(file)?;
    let used = u64::try_from(blocks).unwrap_or(0).saturating_mul(STAT_BLOCK);
    Ok(Usage { used, available: free.f_bavail.saturating_mul(free.f_frsize) })
}

/// Gives a regular file another size: new bytes are a hole, bytes behind the new end are lost. The
/// size is on stable storage then.
///
/// # Errors
/// What the kernel says; `ENOSPC` and `EFBIG` among it.
pub fn resize(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    if bytes > size(file)? {
        within_limit(bytes)?;
    }
    rustix::fs::ftruncate(file, bytes)?;
    Ok(rustix::fs::fsync(file)?)
}

/// A new file at `path` with the present content of `file`, whose blocks both share until one of
/// them is written to. Writes that have ended are in it; of those under way each byte is or is not.
/// It is on stable storage then, and so is its name.
///
/// # Errors
/// See [`SnapshotError`]; nothing is left at `path` then.
pub fn snapshot(file: &OwnedFd, path: &Path) -> Result<(), SnapshotError> {
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
    let new = options.open(path).map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => SnapshotError::Exists { path: path.into() },
        _ => SnapshotError::Other { path: path.into(), source },
    })?;
    clone_into(file, &new, path).inspect_err(|_| {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(path);
    })
}

fn clone_into(file: &OwnedFd, new: &File, path: &Path) -> Result<(), SnapshotError> {
    let path = || path.to_path_buf();
    match rustix::fs::ioctl_ficlone(new.as_fd(), file.as_fd()) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV | Errno::INVAL | Errno::NOSYS) => {
            return Err(SnapshotError::Unsupported { path: path() });
        }
        Err(errno) => return Err(SnapshotError::Other { path: path(), source: errno.into() }),
    }
    new.sync_all()
        .and_then(|()| sync_name(&path(), new))
        .map_err(|source| SnapshotError::Other { path: path(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    fn disk(folder: &Path) -> Arc<OwnedFd> {
        let options =
            super::super::OpenOptions { create_size: Some(1 << 20), ..Default::default() };
        super::super::open(&folder.join("disk"), &options).unwrap().fd
    }

    #[test]
    fn a_file_grows_with_zeroes_and_shrinks() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(folder.path());
        assert_eq!(size(&disk).unwrap(), 1 << 20);
        resize(&disk, 2 << 20).unwrap();
        assert_eq!(size(&disk).unwrap(), 2 << 20);
        let file = File::open(folder.path().join("disk")).unwrap();
        let mut end = [1; 512];
        file.read_exact_at(&mut end, (2 << 20) - 512).unwrap();
        assert_eq!(end, [0; 512]);
        resize(&disk, 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }

    #[test]
    fn usage_follows_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(folder.path());
        let before = usage(&disk).unwrap();
        assert!(before.available > 0);
        let writer = File::options().write(true).open(folder.path().join("disk")).unwrap();
        writer.write_all_at(&[7; 65_536], 0).unwrap();
        writer.sync_all().unwrap();
        assert!(usage(&disk).unwrap().used >= before.used + 65_536);
    }

    /// Where the file system has reflinks a snapshot keeps what was there; elsewhere the refusal
    /// says what is missing and leaves nothing behind.
    #[test]
    fn a_snapshot_keeps_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(folder.path());
        let writer = File::options().write(true).open(folder.path().join("disk")).unwrap();
        writer.write_all_at(&[7; 4096], 4096).unwrap();
        let path = folder.path().join("snapshot");
        match snapshot(&disk, &path) {
            Ok(()) => {
                writer.write_all_at(&[8; 4096], 4096).unwrap();
                let kept = std::fs::read(&path).unwrap();
                assert_eq!(kept.len(), 1 << 20);
                assert!(kept[4096..8192].iter().all(|byte| *byte == 7));
                let again = snapshot(&disk, &path).unwrap_err();
                assert!(matches!(again, SnapshotError::Exists { .. }), "{again}");
            }
            Err(error) => {
                assert!(matches!(error, SnapshotError::Unsupported { .. }), "{error}");
                assert!(error.to_string().contains("reflinks"), "{error}");
                assert!(!path.exists());
            }
        }
        let nowhere = snapshot(&disk, &folder.path().join("no/snapshot")).unwrap_err();
        assert!(matches!(nowhere, SnapshotError::Other { .. }), "{nowhere}");
    }
}
