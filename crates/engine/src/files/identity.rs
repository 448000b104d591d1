// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who a file is: a number beside its blocks that goes where the file goes, and facts by which the
//! host tells it from all others.
//!
//! The number is an extended attribute of the file, together with the inode for which it was
//! written: what copies attributes (`cp --archive`, backups) makes another inode, and a copy is
//! another disk. Renaming keeps it; removing the file removes it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::FileType;
use rustix::fs::StatxFlags;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::limits::RECORD_LEN_MAX;

const ATTRIBUTE: &str = "user.lunwire.disk";

/// What the attribute begins with: the version of its form.
const VERSION: &str = "1";

/// The number that was written beside `file`, if one was written for it.
///
/// # Errors
/// What fgetxattr(2) says, or `InvalidData` if the number is none that this program wrote. A file
/// system that has no place for it, or a block device, has none: that is no error.
pub fn recorded(file: impl AsFd) -> io::Result<Option<u64>> {
    let file = file.as_fd();
    let mut bytes = [0; RECORD_LEN_MAX];
    let length = match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::NOSYS) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let foreign = || {
        let problem = format!("its attribute {ATTRIBUTE} is not understood");
        io::Error::new(io::ErrorKind::InvalidData, problem)
    };
    let text =
        bytes.get(..length).and_then(|text| str::from_utf8(text).ok()).ok_or_else(foreign)?;
    let mut words = text.split(' ');
    let (Some(VERSION), Some(number), Some(inode), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(foreign());
    };
    let number = u64::from_str_radix(number, 16).map_err(|_| foreign())?;
    let inode = inode.parse::<u64>().map_err(|_| foreign())?;
    Ok((inode == rustix::fs::fstat(file)?.st_ino).then_some(number))
}

/// Writes `number` beside `file`, on stable storage; false where there is no place for it: on
/// block devices and some file systems, and where the user may not.
///
/// # Errors
/// What the kernel says, such as `ENOSPC`.
pub fn record(file: &OwnedFd, number: u64) -> io::Result<bool> {
    let text = format!("{VERSION} {number:016x} {}", rustix::fs::fstat(file)?.st_ino);
    match rustix::fs::fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()) {
        Ok(()) => {}
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::NOSYS) => {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    }
    rustix::fs::fsync(file)?;
    Ok(true)
}

/// What tells `file`, which was opened as `path`, from all others of this host, as far as the host
/// knows: the same after a restart.
///
/// # Errors
/// What statx(2) says.
pub fn facts(file: &OwnedFd, path: &Path) -> io::Result<String> {
    let stat = rustix::fs::fstat(file)?;
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        return Ok(device(&folder).unwrap_or_else(|| format!("device {}", path.display())));
    }
    let asked = StatxFlags::BTIME | StatxFlags::INO;
    let born = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, asked)
        .ok()
        .filter(|told| StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::BTIME))
        .map(|told| told.stx_btime);
    Ok(match born {
        Some(born) => format!("file {} {}.{:09}", stat.st_ino, born.tv_sec, born.tv_nsec),
        None => format!("file {} {}", stat.st_ino, path.display()),
    })
}

/// True if `file` has blocks: one that was just made has none.
///
/// # Errors
/// What fstat(2) says.
pub fn has_content(file: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    let device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    Ok(device || stat.st_blocks > 0)
}

/// The name that a block device has of its own, wherever it is attached; `folder`: its place in
/// sysfs.
fn device(folder: &Path) -> Option<String> {
    for name in ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial"] {
        let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
        if !text.trim().is_empty() {
            return Some(format!("{name} {}", text.trim()));
        }
    }
    let partition = fs::read_to_string(folder.join("partition")).ok()?;
    let whole = fs::canonicalize(folder).ok()?;
    Some(format!("{} partition {}", device(whole.parent()?)?, partition.trim()))
}

/// A number for a thing that never was before.
///
/// # Errors
/// What getrandom(2) says.
pub fn fresh() -> io::Result<u64> {
    getrandom::u64().map_err(io::Error::other)
}

/// What tells this host from others, and a file system without birth times or attributes from that
/// of another host.
#[must_use]
pub fn host() -> String {
    let places = ["/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/hostname"];
    let mut texts = places.iter().filter_map(|place| fs::read_to_string(place).ok());
    texts.find(|text| !text.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn made(path: &Path) -> OwnedFd {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        OwnedFd::from(file.unwrap())
    }

    #[test]
    fn a_number_goes_where_its_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = made(&path);
        assert_eq!(recorded(&file).unwrap(), None);
        if !record(&file, 7).unwrap() {
            return; // this file system has no place for it
        }
        assert_eq!(recorded(&file).unwrap(), Some(7));
        let facts_before = facts(&file, &path).unwrap();
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        assert_eq!(recorded(made(&moved)).unwrap(), Some(7));
        assert_eq!(facts(&made(&moved), &moved).unwrap(), facts_before);
        let copy = made(&path);
        rustix::fs::fsetxattr(&copy, ATTRIBUTE, b"1 0000000000000007 1", XattrFlags::empty())
            .unwrap();
        assert_eq!(recorded(&copy).unwrap(), None, "of another inode");
        assert_ne!(facts(&copy, &path).unwrap(), facts_before);
    }

    #[test]
    fn a_number_of_somebody_else_is_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = made(&folder.path().join("disk"));
        if !record(&file, 7).unwrap() {
            return;
        }
        for text in ["", "1", "2 7 7", "1 x 7", "1 7 x", "1 7 7 7", "\u{e4}", &"1".repeat(100)] {
            let text = text.as_bytes();
            rustix::fs::fsetxattr(&file, ATTRIBUTE, text, XattrFlags::empty()).unwrap();
            assert!(recorded(&file).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_was_just_made_has_no_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = made(&path);
        File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        assert!(!has_content(&file).unwrap());
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        assert!(has_content(&made(&path)).unwrap());
    }
}
