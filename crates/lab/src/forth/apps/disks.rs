// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The places as block devices, each with a new file system whenever one is mounted: a loop device
//! on a file, and disks that `lunwire attach` makes of targets in this process.
//!
//! Whatever ends this takes all of it away: mounts, then devices, then targets.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engine::loops::{LoopDevice, LoopError, LoopOptions};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use target::Target;

use crate::Error;
use crate::forth::Place;
use crate::forth::direct::{CHUNK, path_of};
use crate::forth::rig::{self, name_of, node_folder, plan, spec_of};
use crate::forth::theirs::{DISKS, NODES};
use crate::programs::installed;
use crate::workplace::Workplace;

/// A disk that is let go of is free after so long: who looks at it by himself has gone.
const FREE_MOST: Duration = Duration::from_secs(5);

/// And a process that has attached one has flushed, logged out and gone.
const LEAVING_MOST: Duration = Duration::from_secs(15);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The disks of all places that there are.
#[derive(Debug)]
pub(super) struct Disks {
    all: Vec<Disk>,
    targets: Vec<Target>,
    /// Why a place is not there.
    pub(super) lacking: Vec<String>,
    mkfs: PathBuf,
    /// Of each file system: as large everywhere.
    bytes: u64,
    /// Last: all else is below it.
    folder: Workplace,
}

/// A disk of one place.
#[derive(Debug)]
pub(super) struct Disk {
    place: Place,
    device: Device,
    /// Where it is mounted.
    folder: PathBuf,
}

#[derive(Debug)]
enum Device {
    Loop(LoopDevice),
    Attached(Attached),
}

/// When what is written reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    AtOnce,
    Later,
}

impl Disks {
    /// Five files of `bytes` for each node; `program` attaches. The reason, where that cannot be.
    pub(super) fn start(program: Option<&Path>, bytes: u64) -> Result<Self, String> {
        let program = program.ok_or("it needs the command lunwire, which attaches disks")?;
        let mkfs = installed("mkfs.ext4", "e2fsprogs")?;
        let folder = Workplace::new().map_err(|error| error.to_string())?;
        rig::pin_application();
        let path = folder.path().to_owned();
        let whole = bytes * DISKS as u64;
        let mut disks = Self {
            all: Vec::new(),
            targets: Vec::new(),
            lacking: Vec::new(),
            mkfs,
            bytes: whole,
            folder,
        };
        let local = local(&path, whole)?;
        disks.add(&path, Place::Direct, Device::Loop(local)).map_err(|error| error.to_string())?;
        // Where this cannot be mounted, none can.
        let mounted = disks.mount(Place::Direct, Writes::Later).and_then(Mounted::end);
        mounted.map_err(|error| format!("it needs a file system: {error}"))?;
        for (place, name, nodes, option) in [
            (Place::X1, "x1", 1, ""),
            (Place::X3, "x3", NODES, ""),
            (Place::X3Uncached, "uncached", NODES, ",direct"),
        ] {
            let served = (0..nodes).map(|index| {
                let node = node_folder(&path, &format!("{name}-{index}"), bytes)?;
                let target = Target::start(plan(&spec_of(&node, option)?, index)?);
                Ok((index, target.map_err(Error::rig)?))
            });
            let attached = served.collect::<Result<Vec<_>, Error>>().and_then(|served| {
                let url = url_of(&served)?;
                disks.targets.extend(served.into_iter().map(|(_, target)| target));
                let attached = Attached::start(program, &url, &path.join(format!("state-{name}")))?;
                disks.add(&path, place, Device::Attached(attached))
            });
            if let Err(error) = attached {
                disks.lacking.push(format!("{}: {error}", place.name()));
            }
        }
        // What was written now is not to be written meanwhile.
        rustix::fs::sync();
        Ok(disks)
    }

    fn add(&mut self, path: &Path, place: Place, device: Device) -> Result<(), Error> {
        let folder = path.join(format!("mounted-{}", self.all.len()));
        self.all.push(Disk { place, device, folder });
        self.all.last().map_or(Ok(()), |disk| fs::create_dir(&disk.folder).map_err(Error::rig))
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.all.iter().map(|disk| disk.place).collect()
    }

    /// Where files may be that go with all of it.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The disk of a place, with a new file system.
    pub(super) fn mount(&self, place: Place, writes: Writes) -> Result<Mounted<'_>, Error> {
        let disk = self.all.iter().find(|disk| disk.place == place);
        let disk = disk.ok_or_else(|| Error::rig("no disk"))?;
        let device = disk.device.path();
        // A device that forgets what it had takes time that says nothing of the application.
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        let made = Command::new(&self.mkfs)
            .args(["-q", "-F", "-b", "4096", "-E", options])
            .arg(device)
            .arg(format!("{}k", self.bytes >> 10))
            .stdin(Stdio::null())
            .output()
            .map_err(Error::rig)?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            return Err(Error::Rig(format!("mkfs.ext4 {}: {}", device.display(), said.trim())));
        }
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
        if writes == Writes::AtOnce {
            flags |= MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC;
        }
        let options = CString::new("barrier=0").unwrap_or_default();
        rustix::mount::mount(device, &disk.folder, "ext4", flags, &*options).map_err(|error| {
            Error::Rig(format!(
                "cannot mount {} on {}: {error}",
                device.display(),
                disk.folder.display()
            ))
        })?;
        Ok(Mounted { disk, is_over: false })
    }

    /// Takes all away.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), Error> {
        let disks = self.all.drain(..).map(|disk| match disk.device {
            Device::Loop(device) => free(|| device.detach()),
            Device::Attached(attached) => attached.end(),
        });
        let disks: Vec<_> = disks.collect();
        let targets = self.targets.drain(..);
        let targets = targets.map(|target| target.stop(Duration::ZERO).map_err(Error::rig));
        let targets: Vec<_> = targets.collect();
        // All have ended before the first that went wrong is told.
        disks.into_iter().chain(targets).collect()
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        // An error before this one is told.
        let _ = self.take_away();
    }
}

impl Device {
    fn path(&self) -> &Path {
        match self {
            Self::Loop(device) => device.path(),
            Self::Attached(attached) => &attached.device,
        }
    }
}

/// A disk whose file system is mounted.
#[derive(Debug)]
pub(super) struct Mounted<'a> {
    disk: &'a Disk,
    is_over: bool,
}

impl Mounted<'_> {
    pub(super) fn folder(&self) -> &Path {
        &self.disk.folder
    }

    /// As the kernel calls it.
    pub(super) fn device(&self) -> String {
        let name = self.disk.device.path().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The process that has attached it.
    pub(super) fn initiator(&self) -> Option<u32> {
        match &self.disk.device {
            Device::Loop(_) => None,
            Device::Attached(attached) => Some(attached.process.id()),
        }
    }

    /// Writes all that is left, and takes the file system away.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.is_over = true;
        free(|| Ok(rustix::mount::unmount(&self.disk.folder, UnmountFlags::NOFOLLOW)?))
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

/// `lunwire attach URL --loop`.
#[derive(Debug)]
struct Attached {
    process: Child,
    device: PathBuf,
}

impl Attached {
    fn start(program: &Path, url: &str, state: &Path) -> Result<Self, Error> {
        fs::DirBuilder::new().mode(0o700).create(state).map_err(Error::rig)?;
        let mut process = Command::new(program)
            .args(["attach", url, "--loop", "--json", "--state-dir"])
            .arg(state)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Who interrupts this run lets it take the file system away first.
            .process_group(0)
            .spawn()
            .map_err(Error::rig)?;
        let mut line = String::new();
        if let Some(from) = process.stdout.take() {
            BufReader::new(from).read_line(&mut line).map_err(Error::rig)?;
        }
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(device) = said["loop"].as_str() {
            return Ok(Self { device: device.into(), process });
        }
        let mut why = String::new();
        if let Some(mut from) = process.stderr.take() {
            let _ = from.read_to_string(&mut why);
        }
        let attached = Self { device: PathBuf::new(), process };
        let _ = attached.end();
        Err(Error::Rig(format!("lunwire attach --loop: {}", why.trim())))
    }

    /// Lets it flush, log out and go.
    fn end(mut self) -> Result<(), Error> {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let until = Instant::now() + LEAVING_MOST;
        loop {
            match self.process.try_wait().map_err(Error::rig)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let mut why = String::new();
                    if let Some(mut from) = self.process.stderr.take() {
                        let _ = from.read_to_string(&mut why);
                    }
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

/// A file of so many bytes as a device, past the system's cache of it.
fn local(folder: &Path, bytes: u64) -> Result<LoopDevice, String> {
    let node = folder.join("direct");
    let path = path_of(&node, 0);
    let made = fs::create_dir(&node).and_then(|()| rig::fill(&mut File::create(&path)?, bytes));
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    let device = LoopDevice::attach(&path, LoopOptions { block: BLOCK, read_only: false });
    device.map_err(|error| match error {
        LoopError::NotAllowed(path, why) => {
            format!("it needs root for loop devices ({path}: {why})")
        }
        error => format!("it needs a loop device ({error})"),
    })
}

/// Of the devices, as the targets have it.
const BLOCK: u32 = 512;

/// All targets as one disk.
fn url_of(served: &[(usize, Target)]) -> Result<String, Error> {
    let one = |(index, target): &(usize, Target)| {
        let portal = target.portals().first().copied();
        let portal = portal.ok_or_else(|| Error::rig("a target does not listen"))?;
        Ok(format!("iscsi://{portal}/{}/0", name_of(*index)))
    };
    let urls = served.iter().map(one).collect::<Result<Vec<String>, Error>>()?;
    Ok(match &urls[..] {
        [url] => url.clone(),
        _ => format!("stripe:{CHUNK}({})", urls.join(";")),
    })
}

/// Does what may be done as soon as nobody uses it.
fn free(mut what: impl FnMut() -> std::io::Result<()>) -> Result<(), Error> {
    let until = Instant::now() + FREE_MOST;
    loop {
        match what() {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(LOOK);
            }
            result => return result.map_err(Error::rig),
        }
    }
}
