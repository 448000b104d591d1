// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at what a configuration needs of the machine besides files.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;

use control::units;
use engine::Choice;
use store::spec::FileSpec;
use store::spec::Spec;
use target::Error;
use target::Portal;

use super::Draft;
use super::files::files_written;
use super::lun::memory_of_all;

impl Draft {
    /// Whether a target could start, as far as can be seen without listening; who has its portals
    /// now does not count (see [`Draft::taken_portals`]).
    pub(crate) fn examine_machine(&self) -> Vec<anyhow::Error> {
        let mut wrong = Vec::new();
        for Portal { address, .. } in self.portals() {
            let failed = |source| Error::Listen { address, source };
            wrong.extend(engine::examine_address(address).map_err(failed).err());
        }
        let must = self.adapters().at.into_iter().map(|portal| portal.address);
        wrong.extend(must.filter_map(|address| verbs::at(address).err()).map(Error::from));
        if self.engine == Choice::Uring {
            let engine = self.engine.name();
            let failed = |refusal| Error::Engine { engine, source: io::Error::other(refusal) };
            wrong.extend(engine::probe().uring.map_err(failed).err());
        }
        wrong.into_iter().map(anyhow::Error::from).collect()
    }

    /// As [`too_little_room`], for all disks.
    pub(super) fn too_little_room(&self) -> Vec<String> {
        let luns = self.targets.iter().flat_map(|target| &target.luns);
        let disks: Vec<Spec> = luns.map(|lun| lun.spec.clone()).collect();
        too_little_room(&disks, None)
    }

    /// A warning if hosts can write more to disks in memory than there is.
    pub(super) fn too_much_memory(&self) -> Option<String> {
        let luns = self.targets.iter().flat_map(|target| &target.luns);
        let disks = memory_of_all(luns.map(|lun| &lun.spec));
        too_much_memory(disks)
    }
}

/// A warning if disks in memory of so many bytes can be filled beyond what there is.
pub(crate) fn too_much_memory(disks: u64) -> Option<String> {
    let Memory { bytes, of } = Memory::all();
    (disks > bytes).then(|| {
        format!(
            "the disks in memory have {} in all, and {of} has {}: the system ends the \
             daemon when hosts have filled them so far, and what is on them is lost; try: \
             smaller ones, or file:PATH,size=SIZE",
            units::bytes(disks),
            units::bytes(bytes)
        )
    })
}

/// Why no more disks in memory come over HTTP, if they would have so many bytes with this one: who
/// has a token shall not be able to have the daemon ended. Who may use the control socket is
/// warned.
pub(crate) fn beyond_memory(disks: u64) -> Option<String> {
    let Memory { bytes, of } = Memory::all();
    (disks > bytes).then(|| {
        format!(
            "the disks in memory would have {} in all, and {of} has {}: over HTTP no more come \
             than can be filled; try: a smaller one",
            units::bytes(disks),
            units::bytes(bytes)
        )
    })
}

/// What a process can have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    bytes: u64,
    /// What has it, in words.
    of: &'static str,
}

impl Memory {
    /// Looked at once, before a sandbox takes the files away that tell it.
    fn all() -> Self {
        static ALL: OnceLock<Memory> = OnceLock::new();
        *ALL.get_or_init(|| {
            let machine = rustix::system::sysinfo();
            let machine = machine.totalram.saturating_mul(machine.mem_unit.into());
            let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            match control_group_memory(Path::new("/sys/fs/cgroup"), &own) {
                Some(bytes) if bytes < machine => Self { bytes, of: "its control group" },
                _ => Self { bytes: machine, of: "this machine" },
            }
        })
    }
}

/// The least `memory.max` of a control group and those above it, below `root`; `own` is what
/// /proc/self/cgroup says (cgroups(7), version 2).
fn control_group_memory(root: &Path, own: &str) -> Option<u64> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let is_plain = Path::new(own).components().all(|part| matches!(part, Component::Normal(_)));
    let groups = Path::new(own).ancestors().filter(|_| is_plain);
    let limit = |group: &Path| {
        let said = std::fs::read_to_string(root.join(group).join("memory.max")).ok()?;
        said.trim().parse().ok()
    };
    groups.filter_map(limit).min()
}

/// A warning for each file system that has less room than the files of these disks may still take.
/// `about`: only where the files of this one are.
pub(crate) fn too_little_room(disks: &[Spec], about: Option<&Spec>) -> Vec<String> {
    let growing = |spec: &Spec| -> Vec<Growth> {
        files_written(spec).iter().filter_map(Growth::of).collect()
    };
    let wanted: Option<Vec<u64>> =
        about.map(|spec| growing(spec).iter().map(|growth| growth.device).collect());
    let mut systems: Vec<Growth> = Vec::new();
    for growth in disks.iter().flat_map(growing) {
        match systems.iter_mut().find(|system| system.device == growth.device) {
            Some(system) => system.bytes = system.bytes.saturating_add(growth.bytes),
            None => systems.push(growth),
        }
    }
    let is_wanted = |device| wanted.as_ref().is_none_or(|wanted| wanted.contains(device));
    let lacking = systems.iter().filter(|system| is_wanted(&system.device)).filter_map(|system| {
        let free = free_room(&system.folder).filter(|free| *free < system.bytes)?;
        Some(format!(
            "the file system of {} has {} free, and what hosts may still write to disks there \
             takes {}: writes fail when it is full; try: smaller ones, more room, or space-warning \
             of the LUN (lun add --space-warning), which warns hosts before",
            system.folder.display(),
            units::bytes(free),
            units::bytes(system.bytes)
        ))
    });
    lacking.collect()
}

/// By how much a file may still grow where it is.
struct Growth {
    device: u64,
    folder: PathBuf,
    bytes: u64,
}

impl Growth {
    /// None for what takes no room of a file system.
    fn of(file: &FileSpec) -> Option<Self> {
        let path = std::path::absolute(&file.path).ok()?;
        let folder = path.parent()?.to_path_buf();
        let (device, bytes) = match path.metadata() {
            Ok(found) if found.is_file() => {
                let has = found.blocks().saturating_mul(BLOCK);
                (found.dev(), found.len().saturating_sub(has))
            }
            Ok(_) => return None,
            Err(_) => (folder.metadata().ok()?.dev(), file.size?),
        };
        Some(Self { device, folder, bytes })
    }
}

/// Unit of `st_blocks` (inode(7)).
const BLOCK: u64 = 512;

/// Bytes that a program without rights can still write there; None where that is not counted.
fn free_room(folder: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(folder).ok().filter(|system| system.f_blocks > 0)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Bytes that a program can have without harm to the others.
pub(crate) fn free_memory() -> u64 {
    let facts = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available(&facts).unwrap_or_else(|| {
        let machine = rustix::system::sysinfo();
        machine.freeram.saturating_mul(machine.mem_unit.into())
    })
}

/// What proc(5) calls MemAvailable.
fn available(facts: &str) -> Option<u64> {
    let line = facts.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_control_group_and_those_above_counts() {
        let folder = tempfile::tempdir().unwrap();
        let limited = |group: &str, limit: &str| {
            let place = folder.path().join(group);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("memory.max"), limit).unwrap();
        };
        let of = |own: &str| control_group_memory(folder.path(), own);
        assert_eq!(of("0::/a/b\n"), None, "nothing is limited");
        limited("a/b", "max\n");
        assert_eq!(of("0::/a/b\n"), None);
        limited("a", "1073741824\n");
        assert_eq!(of("1:cpu:/other\n0::/a/b\n"), Some(1 << 30));
        limited("a/b", "4096\n");
        assert_eq!(of("0::/a/b\n"), Some(4096));
        limited("", "512\n");
        assert_eq!((of("0::/a/b\n"), of("0::/\n")), (Some(512), Some(512)), "a container's");
        assert_eq!((of(""), of("0::/../a\n"), of("5:memory:/a\n")), (None, None, None));
    }

    #[test]
    fn what_is_available_is_read_as_the_kernel_tells_it() {
        let facts = "MemTotal:  200 kB\nMemFree:  10 kB\nMemAvailable:   100 kB\nBuffers: 1 kB\n";
        assert_eq!(available(facts), Some(100 << 10));
        assert_eq!(available("MemTotal:  200 kB\n"), None);
        assert!(free_memory() > 0);
    }
}
