// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounting: by the system where we may, else by `fusermount3`, which does it for users.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::mount::UnmountFlags;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;

use super::files::NAME;

const DEVICE: &str = "/dev/fuse";

/// It mounts for users, and is part of the package `fuse3`.
const HELPER: &str = "fusermount3";

/// Where it finds the socket for the descriptor: on its standard input.
const HELPER_SOCKET: (&str, &str) = ("_FUSE_COMMFD", "0");

const ADVICE: &str = "--nbd SOCKET, which needs no rights";

/// Why a disk is not mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// It is not there.
    #[error("{0}: there is no such directory; try: mkdir -p {0}")]
    Missing(String),
    /// It is something else.
    #[error("{0} is no directory; try: another one")]
    NoDirectory(String),
    /// Files of others are there.
    #[error("{0} is not empty; try: another directory")]
    NotEmpty(String),
    /// Another process is mounting there.
    #[error("{0}: another process is about to use it; try: another directory")]
    Taken(String),
    /// Somebody who served a mount has gone without an end.
    #[error(
        "{0}: a mount is there whose server is gone; try: lunwire detach {0}, fusermount3 -u {0}, \
         or umount {0}"
    )]
    LeftBehind(String),
    /// The system has no FUSE.
    #[error("{DEVICE}: {0}; try: modprobe fuse, or {ADVICE}")]
    NoFuse(io::Error),
    /// The device is not for us.
    #[error("{DEVICE}: {0}; try: as root, chmod 666 {DEVICE}, or {ADVICE}")]
    NotAllowed(io::Error),
    /// Not root, and no helper.
    #[error(
        "only root may mount, and {HELPER}, which does it for users, is missing: {0}; try: the \
         package fuse3, or {ADVICE}"
    )]
    NoHelper(io::Error),
    /// The helper says why.
    #[error("{HELPER}: {0}; try: {way}, or {ADVICE}", way = way_around(.0))]
    Helper(String),
    /// The system says no.
    #[error("cannot mount on {0}: {1}")]
    System(String, io::Error),
}

/// What helps where the helper fails: it has no rights where a process may gain none, or in a
/// namespace of another user.
fn way_around(said: &str) -> &'static str {
    let has_none = said.contains("Operation not permitted");
    if has_none { "unshare -rm, as it has no rights here" } else { "a directory of yours" }
}

/// A directory where the disk is mounted.
#[derive(Debug)]
pub(super) struct Mount {
    /// Absolute, without links.
    path: PathBuf,
    /// By which the system tells it from what is mounted over it; None: it does not tell.
    device: Option<String>,
}

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmount {
    /// Not as long as somebody uses it.
    Unused,
    /// Whoever waits for an answer gets an error at once.
    Cut,
    /// Nobody finds it any more; who uses it is in trouble when its server ends.
    Detach,
}

impl Mount {
    /// Looks at the directory, and mounts there; gives the descriptor by which it is served.
    pub(super) fn new(folder: &Path, read_only: bool) -> Result<(Self, OwnedFd), MountError> {
        let (path, _alone) = look(folder)?;
        let device = open()?;
        let shown = path.display().to_string();
        let failed = |error: Errno| MountError::System(shown.clone(), error.into());
        let facts = rustix::fs::stat(&path).map_err(failed)?;
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        let options = format!(
            "fd={},rootmode={:o},user_id={user},group_id={group},default_permissions",
            device.as_raw_fd(),
            facts.st_mode
        );
        let options = CString::new(options).unwrap_or_default();
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        flags.set(MountFlags::RDONLY, read_only);
        match rustix::mount::mount("lunwire", &path, "fuse.lunwire", flags, &*options) {
            Ok(()) => Ok((Self::at(path), device)),
            Err(Errno::PERM) => {
                // Its own descriptor is mounted.
                drop(device);
                let device = mount_by_helper(&path, read_only)?;
                Ok((Self::at(path), device))
            }
            Err(Errno::NODEV) => Err(MountError::NoFuse(Errno::NODEV.into())),
            Err(error) => Err(failed(error)),
        }
    }

    /// What is mounted there now.
    fn at(path: PathBuf) -> Self {
        let device = uppermost(&mountinfo(), &path).map(str::to_owned);
        Self { path, device }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if somebody uses it, it is mounted elsewhere, too, or
    /// something else is mounted over it.
    pub(super) fn remove(&self, how: Unmount) -> io::Result<()> {
        let there = mountinfo();
        let is_other = |there: &str| self.device.as_deref().is_some_and(|ours| ours != there);
        if uppermost(&there, &self.path).is_some_and(is_other) {
            return Err(Errno::BUSY.into());
        }
        let is_bound = |ours: &str| places(&there, ours).any(|place| place != escaped(&self.path));
        if how == Unmount::Unused && self.device.as_deref().is_some_and(is_bound) {
            return Err(Errno::BUSY.into());
        }
        let flags = match how {
            Unmount::Unused => UnmountFlags::empty(),
            Unmount::Cut => UnmountFlags::FORCE | UnmountFlags::DETACH,
            Unmount::Detach => UnmountFlags::DETACH,
        };
        match rustix::mount::unmount(&self.path, flags | UnmountFlags::NOFOLLOW) {
            Err(Errno::PERM) => unmount_by_helper(&self.path, how),
            result => Ok(result?),
        }
    }
}

fn mountinfo() -> String {
    // Without it nothing is told from anything.
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// A path as it stands in mountinfo (proc_pid_mountinfo(5)).
fn escaped(path: &Path) -> String {
    let path = path.to_string_lossy().replace('\\', "\\134").replace(' ', "\\040");
    path.replace('\t', "\\011").replace('\n', "\\012")
}

/// What is mounted, in order: the device and the place of each.
fn mounts(mountinfo: &str) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    mountinfo.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(2);
        Some((words.next()?, words.nth(1)?))
    })
}

/// The device of what was mounted at `path` last.
fn uppermost<'a>(mountinfo: &'a str, path: &Path) -> Option<&'a str> {
    let path = escaped(path);
    mounts(mountinfo).rfind(|(_, place)| *place == path).map(|(device, _)| device)
}

/// Where `device` is mounted.
fn places<'a>(mountinfo: &'a str, device: &str) -> impl Iterator<Item = &'a str> {
    mounts(mountinfo).filter(move |(one, _)| *one == device).map(|(_, place)| place)
}

/// Takes away a mount whose server is gone, if there is one.
///
/// # Errors
/// If the system says no.
pub fn forget(folder: &Path) -> io::Result<()> {
    match std::fs::metadata(folder) {
        // The latter while its server is ending.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::NOTCONN | Errno::CONNABORTED)
            ) =>
        {
            Mount::at(folder.to_owned()).remove(Unmount::Detach)
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a disk is mounted there, and served.
#[must_use]
pub fn is_served(folder: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|facts| facts.dev());
    match (device(folder), device(&folder.join(".."))) {
        (Ok(here), Ok(around)) => here != around && folder.join(NAME).exists(),
        _ => false,
    }
}

/// Whether something may be mounted there; as long as the directory is held, by us alone.
fn look(folder: &Path) -> Result<(PathBuf, File), MountError> {
    let shown = folder.display().to_string();
    let failed = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => MountError::Missing(shown.clone()),
        Some(Errno::NOTDIR) => MountError::NoDirectory(shown.clone()),
        Some(Errno::NOTCONN | Errno::CONNABORTED) => MountError::LeftBehind(shown.clone()),
        _ => MountError::System(shown.clone(), error),
    };
    if !std::fs::metadata(folder).map_err(failed)?.is_dir() {
        return Err(MountError::NoDirectory(shown));
    }
    let alone = File::open(folder).map_err(failed)?;
    // Not all file systems can lock a directory.
    if rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    {
        return Err(MountError::Taken(shown));
    }
    if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
        return Err(MountError::NotEmpty(shown));
    }
    Ok((folder.canonicalize().map_err(failed)?, alone))
}

fn open() -> Result<OwnedFd, MountError> {
    let device = File::options().read(true).write(true).open(DEVICE);
    device.map(OwnedFd::from).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => MountError::NotAllowed(error),
        _ => MountError::NoFuse(error),
    })
}

fn mount_by_helper(path: &Path, read_only: bool) -> Result<OwnedFd, MountError> {
    let shown = path.display().to_string();
    let failed = |error: io::Error| MountError::System(shown.clone(), error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let access = if read_only { "ro" } else { "rw" };
    let options =
        format!("{access},nosuid,nodev,noexec,default_permissions,fsname=lunwire,subtype=lunwire");
    let (key, value) = HELPER_SOCKET;
    let said = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(path)
        .env(key, value)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .output()
        .map_err(MountError::NoHelper)?;
    if !said.status.success() {
        return Err(MountError::Helper(words(&said.stderr)));
    }
    receive(&ours).map_err(failed)
}

/// The descriptor that comes over a socket.
fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut data, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let came = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    came.ok_or_else(|| io::Error::other(format!("{HELPER} gave no descriptor")))
}

fn unmount_by_helper(path: &Path, how: Unmount) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    let command = command.args(helper_options(how)).arg("--").arg(path);
    let said = command.stdin(Stdio::null()).output()?;
    if said.status.success() {
        return Ok(());
    }
    let words = words(&said.stderr);
    // It says it in words alone.
    match words.to_lowercase().contains("busy") {
        true => Err(Errno::BUSY.into()),
        false => Err(io::Error::other(words)),
    }
}

/// It cannot cut a mount: one that is in use goes all the same, and its users get errors when its
/// server ends.
fn helper_options(how: Unmount) -> &'static [&'static str] {
    match how {
        Unmount::Unused => &["-u"],
        Unmount::Cut | Unmount::Detach => &["-u", "-z"],
    }
}

/// The last line of what a program said, without its name.
fn words(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.trim().lines().last().unwrap_or("it does not say why");
    line.strip_prefix(&format!("{HELPER}: ")).unwrap_or(line).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn only_empty_directories_are_mounted_on() {
        let folder = tempfile::tempdir().unwrap();
        let held = look(folder.path()).unwrap();
        assert!(matches!(look(folder.path()), Err(MountError::Taken(_))), "one at a time");
        drop(held);
        assert!(look(folder.path()).is_ok() && !is_served(folder.path()));
        let missing = folder.path().join("missing");
        assert!(matches!(look(&missing), Err(MountError::Missing(_))));
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(matches!(look(folder.path()), Err(MountError::NotEmpty(_))));
        let file = folder.path().join("file");
        assert!(matches!(look(&file), Err(MountError::NoDirectory(_))));
        assert!(matches!(look(&file.join("x")), Err(MountError::NoDirectory(_))));
    }

    #[test]
    fn a_directory_is_not_blamed_for_rights_that_are_missing() {
        let told = |said: &str| MountError::Helper(said.to_owned()).to_string();
        let told_of_rights = told("mount failed: Operation not permitted");
        assert!(told_of_rights.contains("; try: unshare -rm"), "{told_of_rights}");
        let told_of_place = told("user has no write access to mountpoint /mnt");
        assert!(told_of_place.contains("; try: a directory of yours"), "{told_of_place}");
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_said_to_be_gone() {
        let folder = tempfile::tempdir().unwrap();
        forget(folder.path()).unwrap();
        forget(&folder.path().join("missing")).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        assert!(forget(&link).is_err());
    }

    #[test]
    fn what_is_mounted_over_another_one_is_told_from_it() {
        let mountinfo = "\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
40 22 0:50 / /mnt/my\\040disk rw - fuse.lunwire lunwire rw\n\
41 40 0:51 / /mnt/my\\040disk rw - tmpfs none rw\n\
42 22 0:52 / /mnt/b rw - fuse.lunwire lunwire rw\n";
        let at = |path| uppermost(mountinfo, Path::new(path));
        assert_eq!((at("/mnt/my disk"), at("/mnt/b")), (Some("0:51"), Some("0:52")));
        assert_eq!((at("/mnt"), uppermost("nonsense\n", Path::new("/"))), (None, None));
        let bound = format!("{mountinfo}43 22 0:50 / /mnt/c rw - fuse.lunwire lunwire rw\n");
        assert_eq!(places(&bound, "0:50").collect::<Vec<_>>(), ["/mnt/my\\040disk", "/mnt/c"]);
    }

    #[test]
    fn the_helper_takes_away_what_is_in_use_unless_it_may_not() {
        assert_eq!(helper_options(Unmount::Unused), ["-u"]);
        for how in [Unmount::Cut, Unmount::Detach] {
            assert_eq!(helper_options(how), ["-u", "-z"], "{how:?}");
        }
    }

    #[test]
    fn what_the_helper_says_is_told_once() {
        let said = b"fusermount3: mount failed: Operation not permitted\n";
        assert_eq!(words(said), "mount failed: Operation not permitted");
        assert_eq!(words(b""), "it does not say why");
    }
}
