// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a file that is open can still be found by its name. One that cannot takes all that is
//! written to it, and is gone when it is closed.

use std::fs;
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FileType;

/// What has become of the name of an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // who asks must know every answer
pub enum Name {
    /// It has it.
    #[default]
    Kept,
    /// It has another one, and this one is nobody's.
    Moved,
    /// Another file has it.
    Replaced,
    /// It has none, and nobody else has this one.
    Deleted,
}

/// Whether `file`, which was opened as `path`, still has that name.
///
/// # Errors
/// What the kernel says where that does not answer it.
pub fn name(file: impl AsFd, path: &Path) -> io::Result<Name> {
    let own = rustix::fs::fstat(file)?;
    let is_device = FileType::from_raw_mode(own.st_mode) == FileType::BlockDevice;
    match fs::metadata(path) {
        // Any node of a device is that device.
        Ok(found) if is_device => {
            let same = found.file_type().is_block_device() && found.rdev() == own.st_rdev;
            Ok(if same { Name::Kept } else { Name::Replaced })
        }
        Ok(found) if found.dev() == own.st_dev && found.ino() == own.st_ino => Ok(Name::Kept),
        Ok(_) => Ok(Name::Replaced),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(if own.st_nlink == 0 || is_device { Name::Deleted } else { Name::Moved })
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_file_is_found_by_its_name_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("disk"), folder.path().join("other"));
        let file = File::create(&path).unwrap();
        let now = || name(&file, &path).unwrap();
        assert_eq!(now(), Name::Kept);
        fs::rename(&path, &other).unwrap();
        assert_eq!(now(), Name::Moved);
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert_eq!(now(), Name::Kept, "a link leads to it");
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"x").unwrap();
        assert_eq!(now(), Name::Replaced);
        fs::remove_file(&path).unwrap();
        fs::remove_file(&other).unwrap();
        assert_eq!(now(), Name::Deleted);
    }
}
