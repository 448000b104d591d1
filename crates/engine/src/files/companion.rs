// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that belongs to another one and has a name of its own: it is found by whatever name the
//! other one is opened, a hard link or one that it was given since.
//!
//! An extended attribute of the file tells the name of its companion, and for which two files that
//! was written: inodes, and the times when they were born. So a copy of the file has none. A
//! companion that was moved together with its file is looked for beside it; one that is found
//! nowhere was removed, or moved to a place that cannot be known.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::OFlags;

use super::identity::attribute;
use super::identity::born;
use super::identity::not_understood;
use super::identity::set_attribute;
use crate::limits::COMPANION_LEN_MAX;

/// The attribute; a file without it has no companion.
pub const COMPANION_ATTRIBUTE: &str = "user.lunwire.beside";

/// What the attribute begins with: the version of its form, `1 INODE BIRTH INODE BIRTH PATH`, first
/// of the file, then of its companion. A birth that is not known is [`UNKNOWN`].
const VERSION: &[u8] = b"1";
const UNKNOWN: &str = "-";

/// Words before the path.
const NUMBERS: usize = 5;

/// What was bound to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // whoever looks for it must know what it may be
pub enum Companion {
    /// It is here.
    There(PathBuf),
    /// It is neither here any more nor beside its file: removed, replaced, or moved elsewhere.
    Astray(PathBuf),
}

/// Writes beside `file` that `companion`, which is `path`, belongs to it, on stable storage; false
/// where there is no place for that.
///
/// # Errors
/// What the kernel says, such as `ENOSPC`.
pub fn bind(file: impl AsFd, companion: impl AsFd, path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    let numbers = format!("{} {} ", numbers(&file)?, numbers(companion)?);
    let text = [VERSION, b" ", numbers.as_bytes(), path.as_os_str().as_bytes()].concat();
    let mut bytes = [0; COMPANION_LEN_MAX];
    // It is there already, as a rule. One that cannot be read is written anew.
    if matches!(attribute(&file, COMPANION_ATTRIBUTE, &mut bytes), Ok(Some(found)) if found == text)
    {
        return Ok(true);
    }
    set_attribute(file, COMPANION_ATTRIBUTE, &text)
}

/// What was bound to the file `path`, which was asked for by the name `given`: it is where it was,
/// or by the same name beside one of the two.
///
/// # Errors
/// What the kernel says of `path`, or `InvalidData` if what is written beside it is not understood.
pub fn companion(path: &Path, given: &Path) -> io::Result<Option<Companion>> {
    let Some(file) = opened(path)? else { return Ok(None) };
    let mut bytes = [0; COMPANION_LEN_MAX];
    let Some(text) = attribute(&file, COMPANION_ATTRIBUTE, &mut bytes)? else { return Ok(None) };
    let mut words = text.splitn(NUMBERS + 1, |byte| *byte == b' ');
    let is_ours = words.next() == Some(VERSION);
    let mut pair = || Some([words.next()?, words.next()?].join(&b' '));
    let (Some(own), Some(other), Some(name), true) = (pair(), pair(), words.next(), is_ours) else {
        return Err(not_understood(COMPANION_ATTRIBUTE));
    };
    let name = PathBuf::from(OsStr::from_bytes(name));
    if own != numbers(&file)?.as_bytes() {
        return Ok(None);
    }
    let beside = |file: &Path| file.parent().and_then(|it| Some(it.join(name.file_name()?)));
    for place in [Some(name.clone()), beside(path), beside(given)].into_iter().flatten() {
        let is_it = match opened(&place) {
            Ok(Some(found)) => numbers(found)?.as_bytes() == other,
            Ok(None) => false,
            // One that cannot be looked at is not taken for one that is gone.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => place == name,
            Err(_) => false,
        };
        if is_it {
            return Ok(Some(Companion::There(place)));
        }
    }
    Ok(Some(Companion::Astray(name)))
}

/// The regular file `path`, for a look; None if it is something else.
fn opened(path: &Path) -> io::Result<Option<File>> {
    // A pipe would wait for its other end.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblock).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// What tells a file from all others of its file system.
fn numbers(file: impl AsFd) -> io::Result<String> {
    let inode = rustix::fs::fstat(&file)?.st_ino;
    Ok(format!("{inode} {}", born(file).as_deref().unwrap_or(UNKNOWN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn companion(path: &Path) -> io::Result<Option<Companion>> {
        super::companion(path, path)
    }

    /// Two files in a folder, bound; None where the file system has no place for it.
    fn pair(folder: &Path) -> Option<[PathBuf; 2]> {
        let paths = ["disk", "disk of it.pi"].map(|name| folder.join(name));
        let [file, side] = paths.each_ref().map(|path| {
            fs::write(path, b"x").unwrap();
            File::open(path).unwrap()
        });
        bind(&file, &side, &paths[1]).unwrap().then_some(paths)
    }

    #[test]
    fn a_companion_is_found_by_every_name_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let Some([disk, side]) = pair(folder.path()) else { return };
        let side = side.canonicalize().unwrap();
        let is_there = Companion::There(side.clone());
        let [hard, moved] = ["hard", "moved"].map(|name| folder.path().join(name));
        assert_eq!(companion(&disk).unwrap().as_ref(), Some(&is_there));
        fs::hard_link(&disk, &hard).unwrap();
        fs::rename(&disk, &moved).unwrap();
        assert_eq!(companion(&hard).unwrap().as_ref(), Some(&is_there));
        assert_eq!(companion(&moved).unwrap().as_ref(), Some(&is_there));
        assert_eq!(companion(&disk).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(companion(folder.path()).unwrap(), None);
        assert_eq!(companion(Path::new("/dev/null")).unwrap(), None);
        let other = folder.path().join("other");
        fs::write(&other, b"x").unwrap();
        assert_eq!(companion(&other).unwrap(), None);
        // A companion that has moved is told anew.
        let there = folder.path().join("there");
        fs::rename(&side, &there).unwrap();
        let astray = Companion::Astray(side.clone());
        assert_eq!(companion(&hard).unwrap().as_ref(), Some(&astray));
        fs::write(&side, b"of somebody else").unwrap();
        assert_eq!(companion(&hard).unwrap().as_ref(), Some(&astray));
        assert!(bind(File::open(&hard).unwrap(), File::open(&there).unwrap(), &there).unwrap());
        let there = Companion::There(there.canonicalize().unwrap());
        assert_eq!(companion(&hard).unwrap(), Some(there));
    }

    #[test]
    fn a_companion_that_moved_with_its_file_is_found_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let Some([disk, side]) = pair(folder.path()) else { return };
        let (next, far) = (folder.path().join("next"), folder.path().join("far"));
        fs::create_dir(&next).unwrap();
        let moved = |path: &Path| next.join(path.file_name().unwrap());
        fs::rename(&side, moved(&side)).unwrap();
        fs::rename(&disk, moved(&disk)).unwrap();
        fs::hard_link(moved(&disk), next.join("hard")).unwrap();
        fs::hard_link(moved(&disk), &far).unwrap();
        let there = Some(Companion::There(moved(&side)));
        assert_eq!(companion(&moved(&disk)).unwrap(), there);
        assert_eq!(companion(&next.join("hard")).unwrap(), there);
        assert_eq!(super::companion(&far, &next.join("link")).unwrap(), there, "by a link");
        let side = folder.path().canonicalize().unwrap().join(side.file_name().unwrap());
        assert_eq!(companion(&far).unwrap(), Some(Companion::Astray(side)));
    }

    #[test]
    fn a_copy_has_no_companion_and_what_is_not_understood_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let Some([disk, _]) = pair(folder.path()) else { return };
        let mut bytes = [0; COMPANION_LEN_MAX];
        let text = attribute(File::open(&disk).unwrap(), COMPANION_ATTRIBUTE, &mut bytes)
            .unwrap()
            .unwrap();
        let copy = folder.path().join("copy");
        fs::write(&copy, b"x").unwrap();
        let put = |text: &[u8]| {
            set_attribute(File::open(&copy).unwrap(), COMPANION_ATTRIBUTE, text).unwrap()
        };
        assert!(put(text));
        assert_eq!(companion(&copy).unwrap(), None);
        for text in [&b""[..], b"1", b"1 2 3 4 5", b"2 2 3 4 5 /path"] {
            assert!(put(text));
            let error = companion(&copy).unwrap_err();
            assert!(error.to_string().contains(COMPANION_ATTRIBUTE), "{error}");
        }
    }
}
