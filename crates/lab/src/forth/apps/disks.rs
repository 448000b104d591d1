// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The places as block devices, each with a new file system whenever one is mounted: a loop device
//! on a file, and disks that `lunwire attach` makes of targets in this process.
//!
//! Whatever ends this takes all of it away: mounts, then devices, then targets.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use target::Target;

use crate::Error;
use crate::attached::{Attached, Disk, FileSystem};
pub(super) use crate::attached::{Mounted, Writes};
use crate::forth::Place;
use crate::forth::direct::{CHUNK, path_of};
use crate::forth::rig::{self, name_of, node_folder, plan, spec_of};
use crate::forth::theirs::{DISKS, NODES};
use crate::workplace::Workplace;

/// The disks of all places that there are.
#[derive(Debug)]
pub(super) struct Disks {
    all: Vec<(Place, Disk)>,
    targets: Vec<Target>,
    /// Why a place is not there.
    pub(super) lacking: Vec<String>,
    /// As large everywhere.
    new: FileSystem,
    /// Last: all else is below it.
    folder: Workplace,
}

impl Disks {
    /// Five files of `bytes` for each node; `program` attaches. The reason, where that cannot be.
    pub(super) fn start(program: Option<&Path>, bytes: u64) -> Result<Self, String> {
        let program = program.ok_or("it needs the command lunwire, which attaches disks")?;
        let whole = bytes * DISKS as u64;
        let new = FileSystem::of(whole)?;
        let folder = Workplace::new().map_err(|error| error.to_string())?;
        rig::pin_application();
        let path = folder.path().to_owned();
        let mut disks =
            Self { all: Vec::new(), targets: Vec::new(), lacking: Vec::new(), new, folder };
        let local = Disk::local(&local(&path, whole)?, disks.next_folder())?;
        disks.all.push((Place::Direct, local));
        // Where this cannot be mounted, none can.
        let mounted = disks.mount(Place::Direct, Writes::Later).and_then(Mounted::end);
        mounted.map_err(|error| format!("it needs a file system ({})", error.why()))?;
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
                let state = path.join(format!("state-{name}"));
                let attached = Attached::start(program, &url, &[], &state)?;
                disks.all.push((place, Disk::attached(attached, disks.next_folder())?));
                Ok(())
            });
            if let Err(error) = attached {
                disks.lacking.push(format!("{}: {error}", place.name()));
            }
        }
        // What was written now is not to be written meanwhile.
        rustix::fs::sync();
        Ok(disks)
    }

    fn next_folder(&self) -> PathBuf {
        self.folder.path().join(format!("mounted-{}", self.all.len()))
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.all.iter().map(|(place, _)| *place).collect()
    }

    /// Where files may be that go with all of it.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The disk of a place, with a new file system.
    pub(super) fn mount(&self, place: Place, writes: Writes) -> Result<Mounted<'_>, Error> {
        let disk = self.all.iter().find(|(at, _)| *at == place);
        let (_, disk) = disk.ok_or_else(|| Error::rig("no disk"))?;
        disk.mount(&self.new, writes)
    }

    /// Takes all away.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), Error> {
        let disks: Vec<_> = self.all.drain(..).map(|(_, disk)| disk.end()).collect();
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

/// The file of so many bytes that is the disk at hand.
fn local(folder: &Path, bytes: u64) -> Result<PathBuf, String> {
    let node = folder.join("direct");
    let path = path_of(&node, 0);
    let made = fs::create_dir(&node).and_then(|()| rig::fill(&mut File::create(&path)?, bytes));
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

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
