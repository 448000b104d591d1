// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices that a run has for itself: a loop device on a file, and disks that
//! `lunwire attach` makes of targets; and file systems on them.
//!
//! Whatever ends a run takes all of it away: mounts, then devices.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engine::loops::{LoopDevice, LoopError, LoopOptions};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Error;
use crate::programs::installed;

/// A disk that is let go of is free after so long: who looks at it by himself has gone.
const FREE_MOST: Duration = Duration::from_secs(5);

/// So long others may still use what is over.
const LEFT_MOST: Duration = Duration::from_secs(20);

/// And a process that has attached one has flushed, logged out and gone.
const LEAVING_MOST: Duration = Duration::from_secs(15);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// How mkfs.ext4 says that somebody else has the device to himself.
const IN_USE: [&str; 2] = ["in use by the system", "Device or resource busy"];

/// Of devices, as the targets have it.
const BLOCK: u32 = 512;

/// A block device, and where its file system is mounted whenever it is.
#[derive(Debug)]
pub(crate) struct Disk {
    device: Option<Device>,
    folder: PathBuf,
}

#[derive(Debug)]
enum Device {
    Loop(LoopDevice),
    Attached(Attached),
}

/// When what is written reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    AtOnce,
    Later,
}

impl Disk {
    /// A device on a file, past the system's cache of it; `folder` is made for mounts. The reason,
    /// where that cannot be.
    pub(crate) fn local(file: &Path, folder: PathBuf) -> Result<Self, String> {
        let device = LoopDevice::attach(file, LoopOptions { block: BLOCK, read_only: false });
        let device = device.map_err(|error| match error {
            LoopError::NotAllowed(path, why) => {
                format!("it needs root for loop devices ({path}: {why})")
            }
            error => format!("it needs a loop device ({error})"),
        })?;
        Self::new(Device::Loop(device), folder).map_err(Error::why)
    }

    /// What a process makes of a target's disk.
    pub(crate) fn attached(attached: Attached, folder: PathBuf) -> Result<Self, Error> {
        Self::new(Device::Attached(attached), folder)
    }

    fn new(device: Device, folder: PathBuf) -> Result<Self, Error> {
        let disk = Self { device: Some(device), folder };
        fs::create_dir(&disk.folder).map_err(Error::rig)?;
        Ok(disk)
    }

    pub(crate) fn device(&self) -> &Path {
        match &self.device {
            Some(Device::Loop(device)) => device.path(),
            Some(Device::Attached(attached)) => &attached.device,
            None => Path::new(""),
        }
    }

    /// The process that has attached it.
    pub(crate) fn initiator(&self) -> Option<u32> {
        match &self.device {
            Some(Device::Attached(attached)) => Some(attached.process.id()),
            Some(Device::Loop(_)) | None => None,
        }
    }

    /// With a new file system.
    pub(crate) fn mount(&self, new: &FileSystem, writes: Writes) -> Result<Mounted<'_>, Error> {
        let device = self.device();
        new.make(device, FREE_MOST)?;
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
        if writes == Writes::AtOnce {
            flags |= MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC;
        }
        let options = CString::new("barrier=0").unwrap_or_default();
        let until = Instant::now() + FREE_MOST;
        let mounted = until_free(
            until,
            || rustix::mount::mount(device, &self.folder, "ext4", flags, &*options),
            |error| *error == Errno::BUSY,
        );
        mounted.map_err(|error| {
            let (device, folder) = (device.display(), self.folder.display());
            let why = match error {
                Errno::BUSY => still_busy(FREE_MOST),
                error => needs_root(error),
            };
            Error::Rig(format!("cannot mount {device} on {folder}: {why}"))
        })?;
        Ok(Mounted { disk: self, is_over: false })
    }

    /// Takes it away.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), Error> {
        match self.device.take() {
            Some(Device::Loop(device)) => {
                let path = device.path().to_owned();
                free(&path, || device.detach())
            }
            Some(Device::Attached(attached)) => attached.end(),
            None => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // An error before this one is told.
        let _ = self.take_away();
    }
}

/// What makes file systems, and how large.
#[derive(Debug)]
pub(crate) struct FileSystem {
    mkfs: PathBuf,
    bytes: u64,
}

impl FileSystem {
    /// The reason, where there can be none.
    pub(crate) fn of(bytes: u64) -> Result<Self, String> {
        Ok(Self { mkfs: installed("mkfs.ext4", "e2fsprogs")?, bytes })
    }

    /// Who looks at a new device (udev, who wants a loop device for himself) may have it alone for
    /// a moment.
    fn make(&self, device: &Path, most: Duration) -> Result<(), Error> {
        let until = Instant::now() + most;
        let made = until_free(until, || self.try_make(device), |why| is_in_use(why));
        made.map_err(|why| {
            let more =
                if is_in_use(&why) { format!(": {}", still_busy(most)) } else { String::new() };
            Error::Rig(format!("mkfs.ext4 {}: {why}{more}", device.display()))
        })
    }

    fn try_make(&self, device: &Path) -> Result<(), String> {
        // A device that forgets what it had takes time that says nothing of the application.
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        let made = Command::new(&self.mkfs)
            .args(["-q", "-F", "-b", "4096", "-E", options])
            .arg(device)
            .arg(format!("{}k", self.bytes >> 10))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        match made.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        }
    }
}

fn is_in_use(said: &str) -> bool {
    IN_USE.iter().any(|words| said.contains(words))
}

fn still_busy(most: Duration) -> String {
    format!("somebody else has had the device to himself for {} s", most.as_secs_f64())
}

/// A disk whose file system is mounted.
#[derive(Debug)]
pub(crate) struct Mounted<'a> {
    disk: &'a Disk,
    is_over: bool,
}

impl Mounted<'_> {
    pub(crate) fn folder(&self) -> &Path {
        &self.disk.folder
    }

    /// As the kernel calls it.
    pub(crate) fn device(&self) -> String {
        let name = self.disk.device().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The process that has attached it.
    pub(crate) fn initiator(&self) -> Option<u32> {
        self.disk.initiator()
    }

    /// Writes all that is left, and takes the file system away.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.is_over = true;
        let folder = &self.disk.folder;
        free(folder, || Ok(rustix::mount::unmount(folder, UnmountFlags::NOFOLLOW)?))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let unmount = |flags| rustix::mount::unmount(&self.disk.folder, flags);
        if !self.is_over && unmount(UnmountFlags::NOFOLLOW).is_err() {
            // It goes with its last user, who is told to end.
            let _ = unmount(UnmountFlags::DETACH);
        }
    }
}

/// `lunwire attach URL --loop`, in the calling thread's network and on its processors.
#[derive(Debug)]
pub(crate) struct Attached {
    process: Child,
    device: PathBuf,
}

impl Attached {
    /// With these options; `state` is made, and its path tells whose process it is.
    pub(crate) fn start(
        program: &Path,
        url: &str,
        options: &[&str],
        state: &Path,
    ) -> Result<Self, Error> {
        fs::DirBuilder::new().mode(0o700).create(state).map_err(Error::rig)?;
        let mut process = Command::new(program)
            .args(["attach", url, "--loop", "--json"])
            .args(options)
            .arg("--state-dir")
            .arg(state)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Who interrupts this run lets it take the file system away first.
            .process_group(0)
            .spawn()
            .map_err(Error::rig)?;
        let from = process.stdout.take();
        let mut attached = Self { device: PathBuf::new(), process };
        let mut line = String::new();
        let read = from.map_or(Ok(0), |from| BufReader::new(from).read_line(&mut line));
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(device) = said["loop"].as_str() {
            attached.device = device.into();
            return Ok(attached);
        }
        let why = match read {
            Ok(_) => attached.complaint(),
            Err(error) => error.to_string(),
        };
        let _ = attached.end();
        let why = why.trim();
        let why = why.strip_prefix("lunwire: ").unwrap_or(why);
        Err(Error::Rig(format!("lunwire attach --loop: {why}")))
    }

    /// What it said, until it ends.
    fn complaint(&mut self) -> String {
        let mut why = String::new();
        if let Some(mut from) = self.process.stderr.take() {
            let _ = from.read_to_string(&mut why);
        }
        why
    }

    /// Lets it flush, log out and go.
    fn end(mut self) -> Result<(), Error> {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let until = Instant::now() + LEAVING_MOST;
        loop {
            match self.process.try_wait().map_err(Error::rig)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let why = self.complaint();
                    return Err(Error::Rig(format!("lunwire attach: {status}: {}", why.trim())));
                }
                None if Instant::now() >= until => break,
                None => std::thread::sleep(LOOK),
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        Err(Error::Rig(format!("lunwire attach did not let go of {}", self.device.display())))
    }
}

/// What a mount that is refused needs.
pub(crate) fn needs_root(error: Errno) -> String {
    match error {
        Errno::PERM => format!("it needs root, CAP_SYS_ADMIN ({error})"),
        error => error.to_string(),
    }
}

/// Does what may be done as soon as nobody uses `place`, a device or what is mounted there.
fn free(place: &Path, what: impl FnMut() -> std::io::Result<()>) -> Result<(), Error> {
    let is_busy = |error: &std::io::Error| error.kind() == ErrorKind::ResourceBusy;
    until_free(Instant::now() + LEFT_MOST, what, is_busy).map_err(|error| {
        let users = if is_busy(&error) { users_of(place) } else { String::new() };
        Error::Rig(format!("cannot let go of {}: {error}{users}", place.display()))
    })
}

/// Who has something open at `place` or below it: programs and their numbers, or nothing.
fn users_of(place: &Path) -> String {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut users = Vec::new();
    for process in processes.map(|entry| entry.path()) {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let links =
            open.map(|entry| entry.path()).chain([process.join("cwd"), process.join("root")]);
        if links.filter_map(|link| fs::read_link(link).ok()).any(|to| to.starts_with(place)) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let number = process.file_name().unwrap_or_default().to_string_lossy();
            users.push(format!("{} ({number})", name.trim()));
        }
    }
    match users.is_empty() {
        true => String::new(),
        false => format!("; used by {}", users.join(", ")),
    }
}

/// Does it again as long as somebody else is in the way, up to a point.
fn until_free<E>(
    until: Instant,
    mut what: impl FnMut() -> Result<(), E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<(), E> {
    loop {
        match what() {
            Err(error) if is_busy(&error) && Instant::now() < until => std::thread::sleep(LOOK),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::workplace::Workplace;

    #[test]
    fn who_is_in_the_way_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path();
        assert_eq!(users_of(place), "");
        let _open = File::create(place.join("file")).expect("a file");
        let users = users_of(place);
        assert!(users.contains(&format!("({})", std::process::id())), "{users}");
    }

    /// A program in the place of `lunwire`, which does as it is told here.
    fn program(folder: &Path, orders: &str) -> PathBuf {
        let path = folder.join("program");
        fs::write(&path, format!("#!/bin/sh\n{orders}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn start(folder: &Path, orders: &str) -> Result<Attached, Error> {
        let state = folder.join("state");
        Attached::start(&program(folder, orders), "iscsi://there/it/0", &["--word"], &state)
    }

    #[test]
    fn who_attaches_is_heard_and_told_to_end() {
        let folder = Workplace::new().unwrap();
        let orders = "trap 'exit 0' TERM\necho \"{\\\"loop\\\":\\\"$5\\\"}\"\n\
                      while :; do sleep 0.01; done";
        let attached = start(folder.path(), orders).unwrap();
        assert_eq!(attached.device, Path::new("--word"), "options are before the state");
        let disk = Disk::attached(attached, folder.path().join("mounted")).unwrap();
        let process = format!("/proc/{}", disk.initiator().unwrap());
        assert!(Path::new(&process).exists() && folder.path().join("mounted").is_dir());
        disk.end().unwrap();
        assert!(!Path::new(&process).exists(), "it was waited for");
    }

    #[test]
    fn what_ends_badly_is_told_by_its_own_words() {
        let folder = Workplace::new().unwrap();
        let why = start(folder.path(), "echo 'lunwire: no such target' >&2; exit 1").unwrap_err();
        assert!(why.to_string().ends_with("lunwire attach --loop: no such target"), "{why}");
        let folder = Workplace::new().unwrap();
        let orders = "trap 'echo lost it >&2; exit 3' TERM\necho '{\"loop\":\"/dev/null\"}'\n\
                      while :; do sleep 0.01; done";
        let why = start(folder.path(), orders).unwrap().end().unwrap_err();
        assert!(why.to_string().contains("3: lost it"), "{why}");
    }

    #[test]
    fn a_mount_that_is_refused_says_what_it_needs() {
        assert!(needs_root(Errno::PERM).starts_with("it needs root, CAP_SYS_ADMIN ("));
        assert!(!needs_root(Errno::NODEV).contains("root"));
    }

    /// As where udev looks at it, or a program that wants a loop device tries this one.
    #[test]
    fn a_device_that_somebody_else_has_for_a_moment_is_waited_for() {
        let folder = Workplace::new().unwrap();
        let said = "it is apparently in use by the system; will not make a filesystem here!";
        let tries = folder.path().join("tries");
        let busy = |times: usize| {
            let orders = format!(
                "echo >>{0}\n[ $(wc -l <{0}) -gt {times} ] && exit 0\necho '{said}' >&2\nexit 1",
                tries.display()
            );
            FileSystem { mkfs: program(folder.path(), &orders), bytes: 1 << 20 }
        };
        busy(3).make(Path::new("/dev/null"), Duration::from_secs(10)).unwrap();
        assert_eq!(fs::read_to_string(&tries).unwrap().len(), 4);
        let ever = busy(usize::MAX >> 1).make(Path::new("/dev/null"), LOOK).unwrap_err();
        let ever = ever.to_string();
        assert!(ever.contains(said), "{ever}");
        assert!(
            ever.ends_with("somebody else has had the device to himself for 0.005 s"),
            "{ever}"
        );
        // What fails for another reason is not tried again.
        fs::remove_file(&tries).unwrap();
        let orders = format!("echo >>{}\necho 'no such device' >&2; exit 1", tries.display());
        let other = FileSystem { mkfs: program(folder.path(), &orders), bytes: 1 << 20 };
        let why = other.make(Path::new("/dev/null"), Duration::from_secs(10)).unwrap_err();
        assert!(why.to_string().ends_with("mkfs.ext4 /dev/null: no such device"), "{why}");
        assert_eq!(fs::read_to_string(&tries).unwrap().len(), 1);
    }

    #[test]
    fn a_real_device_that_is_held_for_a_moment_gets_its_file_system() {
        use std::os::unix::fs::OpenOptionsExt;
        let folder = Workplace::new().unwrap();
        let file = folder.path().join("file");
        File::create(&file).and_then(|file| file.set_len(16 << 20)).unwrap();
        let disk = Disk::local(&file, folder.path().join("mounted"));
        let (disk, new) = match disk.and_then(|disk| Ok((disk, FileSystem::of(16 << 20)?))) {
            Ok(both) => both,
            Err(why) => return assert!(why.starts_with("it needs "), "{why}"),
        };
        let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
        let held = File::options().read(true).custom_flags(exclusive).open(disk.device()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                drop(held);
            });
            disk.mount(&new, Writes::Later).unwrap().end().unwrap();
        });
        disk.end().unwrap();
    }

    /// As a run that fails in the midst of it does.
    #[test]
    fn a_disk_that_is_dropped_leaves_neither_mount_nor_device() {
        let folder = Workplace::new().unwrap();
        let file = folder.path().join("file");
        File::create(&file).and_then(|file| file.set_len(16 << 20)).unwrap();
        let (disk, new) = match Disk::local(&file, folder.path().join("mounted"))
            .and_then(|disk| Ok((disk, FileSystem::of(16 << 20)?)))
        {
            Ok(both) => both,
            Err(why) => return assert!(why.starts_with("it needs "), "{why}"),
        };
        assert_eq!(LoopDevice::of(&file).len(), 1);
        let mounted = disk.mount(&new, Writes::AtOnce).unwrap();
        assert!(mounted.device().starts_with("loop") && mounted.initiator().is_none());
        File::create(mounted.folder().join("written")).unwrap();
        drop(mounted);
        assert_eq!(fs::read_dir(folder.path().join("mounted")).unwrap().count(), 0);
        drop(disk);
        assert_eq!(LoopDevice::of(&file).len(), 0);
    }
}
