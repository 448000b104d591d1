// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps a second daemon from a file: two that write to one disk destroy it.
//!
//! flock(2), because `/proc/locks` tells who holds it and udev honours it for block devices, and
//! beside it the locks of byte ranges that QEMU takes. The lock ends with the last reference to the
//! open file, so nothing is left behind by a crash.

use std::fmt;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::FileError;
use super::backing::Backing;
use super::ofd;
use crate::limits::RELEASE_PATIENCE;
use crate::limits::RELEASE_PAUSE;

/// How much of `/proc/locks` one read asks for, in bytes. The kernel gives a page at a time.
const READ_BYTES: usize = 16 * 1024;
/// How often that list is read for a lock that is not in it.
const LOOKS: usize = 3;

/// Who holds the lock of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// The process with this id.
    Process(u32),
    /// This process: the file is asked for twice.
    Ourselves,
    /// QEMU, or who locks as it does.
    Machine,
    /// The kernel does not tell: a process of another container or host.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(id) => write!(f, "in use by process {id}; try: stop process {id}"),
            Self::Ourselves => f.write_str("given twice; try: once, or read-only each time"),
            Self::Machine => f.write_str(
                "in use by QEMU, or by a program that locks as it does; \
                 try: shut the virtual machine down",
            ),
            Self::Unknown => f.write_str("in use; try: stop the process that holds its lock"),
        }
    }
}

/// Locks `file`: for this process alone, or with others that only read.
///
/// Waits a moment for a lock that is being given up: the kernel ends the work of a killed
/// process, and with it the lock, a little after the process.
pub(super) fn lock(path: &Path, file: &File, read_only: bool) -> Result<(), FileError> {
    let how = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let begin = Instant::now();
    loop {
        // A process may have been stopped since it looked last: it looks once more behind the end.
        let is_last = begin.elapsed() >= RELEASE_PATIENCE;
        match rustix::fs::flock(file, how) {
            Ok(()) if !ofd::contradicts(file, read_only) => return Ok(()),
            Err(Errno::INTR) => {}
            result @ (Ok(()) | Err(Errno::WOULDBLOCK)) => {
                let holder = if result.is_ok() { Holder::Machine } else { holder(file) };
                if holder == Holder::Ourselves || is_last {
                    return Err(FileError::InUse { path: path.into(), holder });
                }
                thread::sleep(RELEASE_PAUSE);
            }
            // File systems without locks protect nothing, but serve.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(()),
            Err(errno) => return Err(FileError::Other { path: path.into(), source: errno.into() }),
        }
    }
}

/// Locks `file`, which is `path`, for this process alone, as long as it is open.
///
/// # Errors
/// [`FileError::InUse`] if somebody else has it.
pub fn lock_alone(path: &Path, file: &File) -> Result<(), FileError> {
    lock(path, file, false)
}

/// Who says by a lock that it writes to `file`, or to the file that is behind that device. Takes no
/// lock.
#[must_use]
pub fn writer(file: &File) -> Option<Holder> {
    let of = |file: &File| ofd::has_writer(file).then(|| holder(file));
    let behind = || {
        let metadata = file.metadata().ok()?;
        let device = metadata.file_type().is_block_device().then(|| metadata.rdev())?;
        File::open(Backing::of(device)?.file).ok()
    };
    of(file).or_else(|| of(&behind()?))
}

fn holder(file: &File) -> Holder {
    let Ok(metadata) = file.metadata() else { return Holder::Unknown };
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    // A page of the list is of one moment; between two pages a line can slip through.
    let found = (0..LOOKS).find_map(|_| find(&locks().ok()?, &place));
    match found {
        Some(id) if id == std::process::id() => Holder::Ourselves,
        Some(id) => Holder::Process(id),
        None => Holder::Unknown,
    }
}

/// The text of `/proc/locks`, by reads of a page and more: the kernel begins anew at each read, and
/// counts lines, so small reads skip one for each that has gone meanwhile.
fn locks() -> io::Result<String> {
    let mut list = BufReader::with_capacity(READ_BYTES, File::open("/proc/locks")?);
    let mut text = String::with_capacity(READ_BYTES);
    while list.read_line(&mut text)? > 0 {}
    Ok(text)
}

/// The process that holds the flock of `place` (`MAJOR:MINOR:INODE`) in the text of `/proc/locks`.
/// Lines of processes that wait begin with `->` after their number.
fn find(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, id) = (words.next()?, words.nth(2)?);
        (kind == "FLOCK" && words.next()? == place).then(|| id.parse().ok().filter(|id| *id > 0))?
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn the_holder_is_found_among_others() {
        let locks = "1: OFDLCK ADVISORY  READ -1 00:06:1022 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 411 fe:00:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 77 fe:00:1234 0 EOF\n\
                     3: POSIX  ADVISORY  WRITE 412 fe:00:1234 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 413 fe:00:1234 0 EOF\n\
                     5: FLOCK  ADVISORY  READ 0 fe:00:5 0 EOF\n";
        assert_eq!(find(locks, "fe:00:1234"), Some(413));
        assert_eq!(find(locks, "fe:00:99"), Some(411));
        assert_eq!(find(locks, "fe:00:5"), None);
        assert_eq!(find("", "fe:00:99"), None);
        assert_eq!(find("short\n", "fe:00:99"), None);
    }

    /// A program that another test starts has our files, closed or not, until it is itself.
    fn soon(mut done: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < RELEASE_PATIENCE, "its lock is still there");
            thread::sleep(RELEASE_PAUSE);
        }
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::write(&path, [0; 512]).unwrap();
        let file = || File::options().read(true).write(true).open(&path).unwrap();
        let (first, second, third) = (file(), file(), file());
        lock(&path, &first, true).unwrap();
        lock(&path, &second, true).unwrap();
        let error = lock(&path, &third, false).unwrap_err();
        let ours = matches!(error, FileError::InUse { holder: Holder::Ourselves, .. });
        assert!(ours, "{error}");
        drop((first, second));
        soon(|| lock(&path, &third, false).is_ok());
        assert!(lock(&path, &file(), true).unwrap_err().to_string().contains("given twice"));
    }

    #[test]
    fn a_holder_is_found_while_others_lock_and_release() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(dir.path().join(name)).unwrap();
        let ours = file("ours");
        lock_alone(&dir.path().join("ours"), &ours).unwrap();
        let busy = AtomicBool::new(true);
        thread::scope(|scope| {
            for name in ["first", "second", "third", "fourth"] {
                let (file, busy) = (file(name), &busy);
                scope.spawn(move || {
                    while busy.load(Ordering::Relaxed) {
                        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
                        thread::yield_now();
                        rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
                    }
                });
            }
            let lost = (0..2000).filter(|_| holder(&ours) != Holder::Ourselves).count();
            busy.store(false, Ordering::Relaxed);
            assert_eq!(lost, 0);
        });
    }

    #[test]
    fn a_writer_is_seen_and_a_reader_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::write(&path, [0; 512]).unwrap();
        let file = || File::options().read(true).write(true).open(&path).unwrap();
        let (first, second) = (file(), File::open(&path).unwrap());
        assert_eq!(writer(&second), None);
        lock(&path, &first, true).unwrap();
        assert_eq!(writer(&second), None);
        drop(first);
        let first = file();
        soon(|| lock(&path, &first, false).is_ok());
        assert_eq!(writer(&second), Some(Holder::Ourselves));
        drop(first);
        soon(|| writer(&second).is_none());
    }

    /// QEMU takes no flock, and looks for none.
    #[test]
    fn what_a_virtual_machine_uses_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::write(&path, [0; 512]).unwrap();
        let file = || File::options().read(true).write(true).open(&path).unwrap();
        let machine = file();
        assert!(!ofd::contradicts(&machine, false));
        let error = lock(&path, &file(), false).unwrap_err();
        assert!(matches!(error, FileError::InUse { holder: Holder::Machine, .. }), "{error}");
    }
}
