// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who a file is: a number beside its blocks that goes where the file goes, and facts by which the
//! host tells it from all others.
//!
//! The number is an extended attribute of the file, together with the inode for which it was
//! written and the time when that was born: what copies attributes (`cp --archive`, backups) makes
//! another inode, and a copy is another disk. The number of an inode alone is not enough: another
//! file system has the same ones, and one that was given up is given to the next file. Renaming
//! keeps it; removing the file removes it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::fs::FileType;
use rustix::fs::StatxFlags;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::sysfs::BlockDevice;
use crate::limits::RECORD_LEN_MAX;

const ATTRIBUTE: &str = "user.lunwire.disk";

/// What the attribute begins with: the version of its form. `1 NUMBER INODE` is of earlier versions
/// and of file systems without birth times, `2 NUMBER INODE BIRTH` of the others.
const INODE_ONLY: &str = "1";
const WITH_BIRTH: &str = "2";

/// The number that was written beside `file`, if one was written for it.
///
/// # Errors
/// What fgetxattr(2) says, or `InvalidData` if the number is none that this program wrote. A file
/// system that has no place for it, or a block device, has none: that is no error.
pub fn recorded(file: impl AsFd) -> io::Result<Option<u64>> {
    let file = file.as_fd();
    let mut bytes = [0; RECORD_LEN_MAX];
    let Some(bytes) = attribute(file, ATTRIBUTE, &mut bytes)? else { return Ok(None) };
    let foreign = || not_understood(ATTRIBUTE);
    let text = str::from_utf8(bytes).map_err(|_| foreign())?;
    let mut words = text.split(' ');
    let (Some(version), Some(number), Some(inode)) = (words.next(), words.next(), words.next())
    else {
        return Err(foreign());
    };
    let number = u64::from_str_radix(number, 16).map_err(|_| foreign())?;
    let inode = inode.parse::<u64>().map_err(|_| foreign())?;
    let same_inode = inode == rustix::fs::fstat(file)?.st_ino;
    let is_it = match (version, words.next(), words.next()) {
        (INODE_ONLY, None, None) => same_inode,
        (WITH_BIRTH, Some(birth), None) if is_time(birth) => {
            // Not known any more: where it was written it was, so this is elsewhere.
            same_inode && born(file).as_deref() == Some(birth)
        }
        _ => return Err(foreign()),
    };
    Ok(is_it.then_some(number))
}

/// Writes the `number` of `file` anew if an earlier version wrote it, so that copies made from now
/// on are told from it; see [`record`].
///
/// # Errors
/// What the kernel says, such as `ENOSPC`.
pub fn renew(file: &OwnedFd, number: u64) -> io::Result<bool> {
    let mut bytes = [0; RECORD_LEN_MAX];
    let length = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes)?;
    let text = text_of(file, number)?;
    if bytes.get(..length) == Some(text.as_bytes()) { Ok(true) } else { write(file, &text) }
}

/// Writes `number` beside `file`, on stable storage; false where there is no place for it: on
/// block devices and some file systems, and where the user may not.
///
/// # Errors
/// What the kernel says, such as `ENOSPC`.
pub fn record(file: &OwnedFd, number: u64) -> io::Result<bool> {
    write(file, &text_of(file, number)?)
}

/// What the attribute of `file` is to say.
fn text_of(file: &OwnedFd, number: u64) -> io::Result<String> {
    let inode = rustix::fs::fstat(file)?.st_ino;
    Ok(match born(file) {
        Some(birth) => format!("{WITH_BIRTH} {number:016x} {inode} {birth}"),
        None => format!("{INODE_ONLY} {number:016x} {inode}"),
    })
}

fn write(file: &OwnedFd, text: &str) -> io::Result<bool> {
    set_attribute(file, ATTRIBUTE, text.as_bytes())
}

/// What the attribute `name` of `file` holds; None if there is none, or no place for one.
pub(super) fn attribute<'a>(
    file: impl AsFd,
    name: &str,
    to: &'a mut [u8],
) -> io::Result<Option<&'a [u8]>> {
    match rustix::fs::fgetxattr(file, name, &mut *to) {
        Ok(length) => Ok(to.get(..length)),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::NOSYS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes the attribute `name` of `file`, on stable storage; false where there is no place for it.
pub(super) fn set_attribute(file: impl AsFd, name: &str, bytes: &[u8]) -> io::Result<bool> {
    let file = file.as_fd();
    match rustix::fs::fsetxattr(file, name, bytes, XattrFlags::empty()) {
        Ok(()) => {}
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::NOSYS) => {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    }
    rustix::fs::fsync(file)?;
    Ok(true)
}

/// The attribute `name` is there, and nobody knows what it says.
pub(super) fn not_understood(name: &str) -> io::Error {
    let problem = format!("its attribute {name} is not understood");
    io::Error::new(io::ErrorKind::InvalidData, problem)
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
        let own = BlockDevice::of(stat.st_rdev).as_ref().and_then(name_of);
        return Ok(own.unwrap_or_else(|| format!("device {}", path.display())));
    }
    Ok(match born(file) {
        Some(birth) => format!("file {} {birth}", stat.st_ino),
        None => format!("file {} {}", stat.st_ino, path.display()),
    })
}

/// When the inode of `file` was born, seconds and nanoseconds; None where the file system does not
/// tell.
pub(super) fn born(file: impl AsFd) -> Option<String> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let known = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::BTIME);
    known.then(|| format!("{}.{:09}", told.stx_btime.tv_sec, told.stx_btime.tv_nsec))
}

/// Whether `text` is of the form that [`born`] writes.
fn is_time(text: &str) -> bool {
    text.split_once('.').is_some_and(|(seconds, nanoseconds)| {
        seconds.parse::<i64>().is_ok() && nanoseconds.parse::<u32>().is_ok()
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

/// The name that a block device has of its own, wherever it is attached.
fn name_of(device: &BlockDevice) -> Option<String> {
    for name in ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial"] {
        let text = device.text(name).unwrap_or_default();
        if !text.trim().is_empty() {
            return Some(format!("{name} {}", text.trim()));
        }
    }
    let partition = device.text("partition")?;
    Some(format!("{} partition {}", name_of(&device.disk()?)?, partition.trim()))
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

    fn put(file: &OwnedFd, text: &str) {
        rustix::fs::fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()).unwrap();
    }

    fn text(file: &OwnedFd) -> String {
        let mut bytes = [0; 256];
        let length = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes).unwrap();
        str::from_utf8(&bytes[..length]).unwrap().to_owned()
    }

    /// As on another file system, or when the number of a removed file was given to it.
    #[test]
    fn a_copy_with_the_same_inode_is_another_disk() {
        let folder = tempfile::tempdir().unwrap();
        let file = made(&folder.path().join("disk"));
        let inode = rustix::fs::fstat(&file).unwrap().st_ino;
        if !record(&file, 7).unwrap() || born(&file).is_none() {
            return; // this file system has no place for it, or tells no birth
        }
        let own = text(&file);
        assert_eq!(own, format!("2 {:016x} {inode} {}", 7, born(&file).unwrap()));
        put(&file, &format!("2 {:016x} {inode} 1767225600.000000001", 7));
        assert_eq!(recorded(&file).unwrap(), None, "born at another time");
        // What an earlier version wrote is good and gets the birth.
        put(&file, &format!("1 {:016x} {inode}", 7));
        assert_eq!(recorded(&file).unwrap(), Some(7));
        assert!(renew(&file, 7).unwrap());
        assert_eq!(text(&file), own);
        assert!(renew(&file, 7).unwrap());
        assert_eq!((text(&file), recorded(&file).unwrap()), (own, Some(7)));
    }

    #[test]
    fn a_number_of_somebody_else_is_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = made(&folder.path().join("disk"));
        if !record(&file, 7).unwrap() {
            return;
        }
        for text in [
            "",
            "1",
            "2 7 7",
            "1 x 7",
            "1 7 x",
            "1 7 7 7",
            "2 7 7 x",
            "2 7 7 7",
            "2 7 7 7.x",
            "2 7 7 7.7 7",
            "\u{e4}",
            &"1".repeat(100),
        ] {
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
