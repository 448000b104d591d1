// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folders in which a run works: all that it mounts, attaches and starts has its path below one. A
//! run that is killed (SIGKILL) takes nothing away; the next one does.
//!
//! A folder is a run's as long as that holds the lock of a file in it, which the kernel lets go of
//! when the process ends, however it does.

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::loops::LoopDevice;
use rustix::fs::{FlockOperation, OFlags, flock, statvfs};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, geteuid, getpid, kill_process};

use crate::huge;

/// How folders are named, with something random behind it.
const PREFIX: &str = "lunwire-lab-";

/// The file whose lock says that somebody works there.
const HELD: &str = "held";

/// A variable of the environment that tells the folder of a program none of whose arguments does.
pub(crate) const OWNER: &str = "LUNWIRE_LAB_FOLDER";

/// Folders that somebody took for left behind, between making them and locking them.
const TRIES: usize = 3;

/// Programs that were killed have gone after so long.
const GONE_MOST: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// A folder for as long as this is kept. What is still mounted there then, as where a program that
/// served it was killed, goes with it.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: PathBuf,
    _held: File,
}

impl Workplace {
    pub(crate) fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> io::Result<Self> {
        let (parent, mut tries) = (real(parent), 0);
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
            let held = File::create(folder.path().join(HELD))?;
            tries += 1;
            match flock(&held, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { folder: folder.keep(), _held: held }),
                Err(error) if tries == TRIES => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // What stays here is the next run's to take away, which tells of it.
        let _ = free(&self.folder);
        let _ = remove(&self.folder);
    }
}

/// What so many bytes need that cannot be had in a folder.
pub(crate) fn lacks_room(folder: &Path, bytes: u64, why: impl Display) -> String {
    let mib = bytes.div_ceil(1 << 20);
    format!("it needs {mib} MiB below {}: {why}", folder.display())
}

/// Fails, and says what is needed, where the folder has no room for so many bytes.
pub(crate) fn expect_room(folder: &Path, bytes: u64) -> Result<(), String> {
    let system = statvfs(folder).ok().filter(|system| system.f_blocks > 0);
    // Some file systems do not count.
    let Some(system) = system else { return Ok(()) };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    match free < bytes {
        true => Err(lacks_room(folder, bytes, format!("{} KiB are free", free >> 10))),
        false => Ok(()),
    }
}

/// Takes away what runs of this user left that were killed; says what that was, and what could not
/// be taken away.
#[must_use]
pub fn clean() -> Vec<String> {
    clean_below(&std::env::temp_dir())
}

fn clean_below(parent: &Path) -> Vec<String> {
    let entries = fs::read_dir(real(parent)).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    named.filter_map(|entry| take_away(&entry.path())).collect()
}

/// As the kernel tells of mounts and devices below it: without links, and from the root on.
fn real(folder: &Path) -> PathBuf {
    // What there is not is told by who uses it.
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}

/// None where somebody works, or it is none of ours.
fn take_away(folder: &Path) -> Option<String> {
    let facts = folder.symlink_metadata().ok()?;
    if !facts.is_dir() || facts.uid() != geteuid().as_raw() {
        return None;
    }
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let held = File::options().read(true).custom_flags(flags).open(folder.join(HELD)).ok()?;
    flock(&held, FlockOperation::NonBlockingLockExclusive).ok()?;
    let programs = end_programs(folder);
    let Freed { mounts, devices, mut wrong } = free(folder);
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    let pages = below.filter(|entry| huge::give_back(&entry.path())).count();
    if let Err(error) = remove(folder) {
        wrong.push(error.to_string());
    }
    let all = [
        (programs, "program"),
        (mounts, "mount"),
        (devices, "loop device"),
        (pages, "setting of huge pages"),
    ];
    let all = all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| {
        let end = if count == 1 { "" } else { "s" };
        format!("{count} {what}{end}")
    });
    let all: Vec<String> = ["its folder".to_owned()].into_iter().chain(all).collect();
    let wrong = if wrong.is_empty() {
        String::new()
    } else {
        format!("; not taken away: {}", wrong.join("; "))
    };
    let folder = folder.display();
    Some(format!("took away what a killed run had left: {} ({folder}){wrong}", all.join(", ")))
}

/// What was below a folder, and what of it could not be taken away.
struct Freed {
    mounts: usize,
    devices: usize,
    wrong: Vec<String>,
}

/// Takes mounts and loop devices away that are below the folder.
fn free(folder: &Path) -> Freed {
    // Without its mount a device's file is not known by its path.
    let devices = devices_below(folder);
    // What was mounted last goes first.
    let mounts: Vec<PathBuf> = mounts_below(folder).into_iter().rev().collect();
    let unmounted = mounts.iter().map(|place| {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        unmount(place, flags).map_err(|error| format!("{}: {error}", place.display()))
    });
    let unmounted: Vec<Result<(), String>> = unmounted.collect();
    let detached = devices.iter().map(|device| {
        device.clear().map_err(|error| format!("{}: {error}", device.path().display()))
    });
    let wrong = unmounted.into_iter().chain(detached).filter_map(Result::err).collect();
    Freed { mounts: mounts.len(), devices: devices.len(), wrong }
}

/// The folder keeps the file that tells whose it is as long as anything else is left.
fn remove(folder: &Path) -> io::Result<()> {
    let told = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    for entry in fs::read_dir(folder).map_err(|error| told(folder, error))? {
        let entry = entry.map_err(|error| told(folder, error))?;
        let path = entry.path();
        if entry.file_name() == HELD {
            continue;
        }
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        removed.map_err(|error| told(&path, error))?;
    }
    fs::remove_dir_all(folder).map_err(|error| told(folder, error))
}

/// Ends the programs that were started with a path below the folder, or that the folder owns, and
/// what they begin until they are gone; gives how many.
fn end_programs(folder: &Path) -> usize {
    let mut ended = HashSet::new();
    let until = Instant::now() + GONE_MOST;
    loop {
        let found = programs_of(folder);
        for pid in &found {
            let _ = kill_process(*pid, Signal::KILL);
        }
        ended.extend(found.iter().copied());
        if found.is_empty() || Instant::now() >= until {
            return ended.len();
        }
        std::thread::sleep(LOOK);
    }
}

fn programs_of(folder: &Path) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pids = pids.filter_map(Pid::from_raw).filter(|pid| *pid != getpid());
    let folder = folder.as_os_str().as_encoded_bytes();
    let within = [folder, b"/"].concat();
    let owned = [OWNER.as_bytes(), b"=", folder].concat();
    let is_below = |pid: &Pid| {
        // Of one that has ended and was not waited for there is nothing here.
        let read = |name| fs::read(format!("/proc/{}/{name}", pid.as_raw_nonzero()));
        let has_path = |words: Vec<u8>| words.windows(within.len()).any(|part| part == within);
        let is_owned = |all: Vec<u8>| all.split(|byte| *byte == 0).any(|one| one == owned);
        read("cmdline").is_ok_and(has_path) || read("environ").is_ok_and(is_owned)
    };
    pids.filter(is_below).collect()
}

fn devices_below(folder: &Path) -> Vec<LoopDevice> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some(PathBuf::from(file.trim_end_matches('\n')))
    });
    let files: Vec<PathBuf> = files.filter(|file| file.starts_with(folder)).collect();
    files.iter().flat_map(|file| LoopDevice::of(file)).collect()
}

fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = text.lines().filter_map(|line| line.split(' ').nth(MOUNTED_AT));
    places.map(unescaped).filter(|place| place.starts_with(folder)).collect()
}

/// The place of a mount in a line.
const MOUNTED_AT: usize = 4;

/// Blanks and the like are written as three digits of eight.
fn unescaped(place: &str) -> PathBuf {
    let mut text = place.to_owned();
    for (written, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(written, meant);
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use rustix::mount::{MountFlags, mount};

    use super::*;

    #[test]
    fn who_works_is_left_alone_and_what_was_left_goes() {
        let parent = tempfile::tempdir().unwrap();
        let place = Workplace::below(parent.path()).unwrap();
        let other = parent.path().join("lunwire-other");
        fs::create_dir(&other).unwrap();
        assert_eq!(clean_below(parent.path()), [""; 0]);
        assert!(place.path().is_dir() && other.is_dir());

        // As if it had been killed: nobody has the lock, and a program goes on.
        let left = parent.path().join("lunwire-lab-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(HELD), "").unwrap();
        let log = left.join("log");
        fs::write(&log, "").unwrap();
        // One that begins no other: until that is another program, it is as its parent, and counts.
        let mut program = Command::new("tail").arg("-f").arg(&log).spawn().unwrap();
        let mut owned = Command::new("sleep").arg("60").env(OWNER, &left).spawn().unwrap();
        while programs_of(&left).len() < 2 {
            std::thread::sleep(LOOK);
        }
        let mut waiting = Vec::new();
        std::thread::scope(|scope| {
            // Its parent is this one, and has to wait for it.
            scope.spawn(|| program.wait().unwrap());
            scope.spawn(|| owned.wait().unwrap());
            waiting = clean_below(parent.path());
        });
        let said = waiting.concat();
        assert!(said.contains("its folder, 2 programs (") && !said.contains("not taken"), "{said}");
        assert!(!left.exists() && place.path().is_dir());
        drop(place);
        assert_eq!(clean_below(parent.path()), [""; 0]);
    }

    /// Each is followed by another one, soon after it began, and maybe while it is ended.
    #[test]
    fn what_programs_begin_while_they_are_ended_goes_with_them() {
        const CHAINS: usize = 10;
        let parent = tempfile::tempdir().unwrap();
        let next = "next() { sleep 0.05; next & }; next";
        let log = parent.path().join("log");
        let begin = |_| Command::new("sh").args(["-c", next]).arg(&log).spawn().unwrap();
        let chains: Vec<_> = (0..CHAINS).map(begin).collect();
        end_programs(parent.path());
        let left = programs_of(parent.path());
        while !programs_of(parent.path()).is_empty() {
            end_programs(parent.path());
        }
        for mut chain in chains {
            chain.wait().unwrap();
        }
        assert_eq!(left, []);
    }

    /// As where a program that served a file system was killed amid a run.
    #[test]
    fn what_is_mounted_below_goes_with_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let place = Workplace::below(parent.path()).unwrap();
        let folder = place.path().to_owned();
        for name in ["0", "mounted", "z"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        if !mounted(&folder.join("mounted")) {
            return;
        }
        assert!(mounted(&folder.join("mounted/within")));
        drop(place);
        let left = mounts_below(parent.path());
        for place in left.iter().rev() {
            unmount(place, UnmountFlags::DETACH).unwrap();
        }
        assert_eq!(left, [""; 0].map(PathBuf::from));
        assert!(!folder.exists());
    }

    /// The kernel tells of mounts by the folder that is meant.
    #[test]
    fn a_folder_that_is_reached_by_a_link_is_known_by_its_own_name() {
        let parent = tempfile::tempdir().unwrap();
        let (there, link) = (parent.path().join("there"), parent.path().join("link"));
        fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink("there", &link).unwrap();
        let place = Workplace::below(&link).unwrap();
        assert_eq!(place.path().parent(), Some(fs::canonicalize(&there).unwrap().as_path()));
        drop(place);
        let left = link.join("lunwire-lab-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(HELD), "").unwrap();
        let mounts = usize::from(mounted(&left.join("mounted")));
        let said = clean_below(&link).concat();
        let stay = mounts_below(&there);
        for place in stay.iter().rev() {
            unmount(place, UnmountFlags::DETACH).unwrap();
        }
        assert_eq!(stay, [""; 0].map(PathBuf::from), "{said}");
        assert!(!left.exists() && said.contains("1 mount") == (mounts == 1), "{said}");
    }

    #[test]
    fn what_is_left_of_a_folder_is_still_known_as_such() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("lunwire-lab-left");
        let stuck = folder.join("stuck");
        fs::create_dir_all(&stuck).unwrap();
        fs::write(folder.join(HELD), "").unwrap();
        let is_mount = mounted(&stuck);
        if !is_mount {
            // Who is not root has other ways to be refused.
            fs::write(stuck.join("file"), "").unwrap();
            fs::set_permissions(&stuck, fs::Permissions::from_mode(0o500)).unwrap();
        }
        let why = remove(&folder).unwrap_err().to_string();
        assert!(why.starts_with(&format!("{}: ", stuck.display())), "{why}");
        assert!(folder.join(HELD).exists());
        if is_mount {
            assert!(clean_below(parent.path()).concat().contains("its folder, 1 mount ("));
        } else {
            fs::set_permissions(&stuck, fs::Permissions::from_mode(0o700)).unwrap();
            assert_eq!(clean_below(parent.path()).len(), 1);
        }
        assert!(!folder.exists());
    }

    /// A file system in memory, at a folder that is made; not so where mounts are root's.
    fn mounted(folder: &Path) -> bool {
        let _ = fs::create_dir(folder);
        let none = MountFlags::empty();
        mount("tmpfs", folder, "tmpfs", none, c"size=1m").is_ok()
    }

    #[test]
    fn room_that_is_lacking_is_told_with_what_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(expect_room(folder.path(), 4096), Ok(()));
        let why = expect_room(folder.path(), 1 << 60).unwrap_err();
        let begin = format!("it needs {} MiB below {}: ", 1_u64 << 40, folder.path().display());
        assert!(why.starts_with(&begin) && why.ends_with(" KiB are free"), "{why}");
        // Where nothing is counted.
        assert_eq!(expect_room(Path::new("/proc"), 1 << 60), Ok(()));
    }

    #[test]
    fn mounts_are_read_as_they_are_written() {
        assert_eq!(unescaped("/a\\040b\\134c"), Path::new("/a b\\c"));
        assert!(!mounts_below(Path::new("/")).is_empty());
        assert!(mounts_below(Path::new("/no/such/place")).is_empty());
    }
}
