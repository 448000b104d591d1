// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether two places are one: a file by another path, a device in front of it, a disk by another
//! portal. Opening the destination of such a copy would empty its source.
//!
//! Each place is a set of extents, one for every object that its bytes lie in ([`BlockDevice`]).

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use ::scsi::Identity;
use anyhow::Result;
use anyhow::anyhow;
use engine::files;
use engine::files::Below;
use engine::files::BlockDevice;
use engine::files::Holder;
use engine::limits::DEVICES_DEPTH_MAX;
use initiator::Queue;
use initiator::Session;
use initiator::Url;
use initiator::scsi;
use rustix::fs::FileType;
use rustix::fs::Stat;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use super::place::Disk;
use super::place::Place;

/// Something that holds bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Object {
    /// Device and inode.
    File(u64, u64),
    /// A block device by its number.
    Device(u64),
    /// A disk of ours, by the number that is kept beside its file.
    Served(Vec<u8>),
    /// A disk by its world-wide name, in the way of sysfs: `naa.` or `eui.` and hex digits.
    Unit(String),
}

/// The part of an object that a place lies in.
#[derive(Clone, Debug)]
struct Extent {
    object: Object,
    begin: u64,
    end: u64,
    /// All between is of the place; if not, nobody knows which parts.
    all: bool,
}

impl Extent {
    const fn whole(object: Object) -> Self {
        Self { object, begin: 0, end: u64::MAX, all: true }
    }

    /// Two that only have some unknown part of the same bytes are two volumes of a group.
    fn meets(&self, other: &Self) -> bool {
        let apart = self.end <= other.begin || other.end <= self.begin;
        self.object == other.object && !apart && (self.all || other.all)
    }

    /// Where this lies in `object`, of which it is (in) the part from `begin` to `end`.
    fn below(&self, object: Object, begin: u64, end: u64) -> Self {
        let at = |within: u64| begin.saturating_add(within).min(end);
        Self { object, begin: at(self.begin), end: at(self.end), all: self.all }
    }

    fn unknown_part(object: Object) -> Self {
        Self { all: false, ..Self::whole(object) }
    }
}

/// Fails if what is written to `to` may change what is still to be read from `from`. `different`:
/// the user says that disks with one name are two, and that a file that is served is of another
/// one.
pub(crate) fn refuse(queue: &mut Queue, from: &Place, to: &Place, different: bool) -> Result<()> {
    let same = |why: &str| {
        Err(anyhow!("{} and {} are the same{why}; nothing was written", from.name(), to.name()))
    };
    if let (Place::Disk(a), Place::Disk(b)) = (from, to) {
        let target = |url: &Url| url.target.as_deref().map(iscsi::name::prepared);
        let is_one = |a: &Url, b: &Url| a.lun == b.lun && target(a) == target(b);
        // A stripe has several units.
        let pairs = || a.address.urls().flat_map(|of| b.address.urls().map(move |to| (of, to)));
        let one_unit = pairs().any(|(a, b)| is_one(a, b));
        if pairs().any(|(a, b)| is_one(a, b) && a.portal() == b.portal()) {
            return same("");
        }
        if different {
            return Ok(());
        }
        let (a, b) = (designators(queue, a)?, designators(queue, b)?);
        let shared = a.iter().any(|name| b.contains(name));
        let world_wide = a.iter().any(|name| b.contains(name) && likely_name(name).is_some());
        return match one_unit && (shared || a.is_empty() || b.is_empty()) || world_wide {
            true => same(
                ", by what they say of themselves (lunwire inspect shows it); if they are not: \
                 --different-disks",
            ),
            false => Ok(()),
        };
    }
    if different && (matches!(from, Place::Disk(_)) || matches!(to, Place::Disk(_))) {
        return Ok(());
    }
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let (a, b) = (extents(queue, from, stdin.as_fd())?, extents(queue, to, stdout.as_fd())?);
    if a.iter().any(|a| b.iter().any(|b| a.meets(b))) {
        return same(", or lie in one another");
    }
    match writer(from, stdin.as_fd()).filter(|_| matches!(to, Place::Disk(_))) {
        Some(holder) => Err(anyhow!(
            "{} is {holder}, or lunwire copy --different-disks if {} is not made of it; nothing \
             was written",
            from.name(),
            to.name()
        )),
        None => Ok(()),
    }
}

/// Who writes to a source. A disk that is made of it, as a stripe or a mirror is, does not name it.
fn writer(from: &Place, standard: BorrowedFd<'_>) -> Option<Holder> {
    match from {
        Place::Disk(_) => None,
        Place::File(local) => files::writer(local.file()),
        Place::Stream => files::writer(&File::from(standard.try_clone_to_owned().ok()?)),
    }
}

/// What a disk says of itself.
pub(crate) fn designators(queue: &mut Queue, disk: &Disk) -> Result<Vec<Designator>> {
    let unit = &mut queue.unit(disk.session, disk.lun);
    let names = scsi::designators(unit).map_err(|error| super::advised(error, &disk.url))?;
    let of_unit = |name: &Designator| {
        let unit = vpd::Association::LogicalUnit;
        match name {
            Designator::Naa(_)
            | Designator::Eui(_)
            | Designator::T10Vendor(_)
            | Designator::Content(_) => true,
            Designator::ScsiName { of, .. } => *of == unit,
            _ => false,
        }
    };
    Ok(names.into_iter().filter(of_unit).collect())
}

/// The name of a disk that no other one in the world has.
pub(crate) fn unit_name(designator: &Designator) -> Option<String> {
    match designator {
        Designator::Naa(value) if !vpd::is_world_wide(value) => None,
        name => likely_name(name),
    }
}

/// What the disk of `session` at `url` is called, by whatever way it is reached; one without such
/// a name by its place.
pub(crate) fn name_of(session: &Session, url: &Url) -> Result<String, initiator::Error> {
    let lun = url.lun.unwrap_or(0);
    let names = scsi::designators(&mut session.unit(lun))?;
    let place = || format!("{} {lun}", url.target.as_deref().unwrap_or_default());
    Ok(names.iter().find_map(unit_name).unwrap_or_else(place))
}

/// One that hardly any other one has: of two with the same nothing is lost by asking.
fn likely_name(designator: &Designator) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match designator {
        // NAA 3h is assigned by whoever likes (SPC-4 §7.8.5.2): some targets count from one.
        Designator::Naa(value) if value.first().is_some_and(|byte| byte >> 4 != 3) => {
            Some(format!("naa.{}", hex(value)))
        }
        Designator::Eui(value) => Some(format!("eui.{}", hex(value))),
        _ => None,
    }
}

/// `standard`: the descriptor that a stream is.
fn extents(queue: &mut Queue, place: &Place, standard: BorrowedFd<'_>) -> Result<Vec<Extent>> {
    let found = match place {
        Place::Disk(disk) => {
            let names = designators(queue, disk)?;
            let object = |name: &Designator| match (likely_name(name), name) {
                (Some(name), _) => Some(Object::Unit(name)),
                (None, Designator::Naa(number)) => Some(Object::Served(number.clone())),
                _ => None,
            };
            return Ok(names.iter().filter_map(object).map(Extent::whole).collect());
        }
        Place::File(local) => rustix::fs::fstat(local.file()),
        Place::Stream => rustix::fs::fstat(standard),
    };
    let mut extents = Vec::new();
    // A stream that is closed is found by whoever uses it.
    if let Some(extent) = found.ok().as_ref().and_then(extent_of) {
        if let Place::File(local) = place {
            served_as(local.file(), Path::new(&place.name()), &extent, &mut extents);
        }
        follow(extent, &mut extents, 0);
    }
    Ok(extents)
}

/// Adds the names under which a daemon of ours serves `file`, which `extent` is in.
fn served_as(file: &File, path: &Path, extent: &Extent, to: &mut Vec<Extent>) {
    let Ok(file) = file.try_clone().map(OwnedFd::from) else { return };
    // The number that is kept beside it; where none can be, what a daemon makes of it.
    let derived = |facts: String| Identity::number_of(files::host().as_bytes(), facts.as_bytes());
    let numbers =
        [files::recorded(&file).ok().flatten(), files::facts(&file, path).ok().map(derived)];
    for number in numbers.into_iter().flatten() {
        let object = Object::Served(Identity::of(number, "", "").naa);
        to.push(Extent { object, ..extent.clone() });
    }
}

fn extent_of(stat: &Stat) -> Option<Extent> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(Extent::whole(Object::File(stat.st_dev, stat.st_ino))),
        FileType::BlockDevice => Some(Extent::whole(Object::Device(stat.st_rdev))),
        _ => None,
    }
}

/// Adds `extent` and all that it lies in. What sysfs does not tell is left out.
fn follow(extent: Extent, to: &mut Vec<Extent>, depth: usize) {
    to.push(extent.clone());
    let Object::Device(number) = extent.object else { return };
    if depth >= DEVICES_DEPTH_MAX {
        return;
    }
    let Some(device) = BlockDevice::of(number) else { return };
    for below in device.below() {
        let (object, name, begin, end) = match below {
            Below::File { path, begin, end } => {
                let found = rustix::fs::stat(&path).ok().as_ref().and_then(extent_of);
                (found.map(|found| found.object), Some(path), begin, end)
            }
            Below::Disk { device, begin, end } => {
                (device.number().map(Object::Device), device.node(), begin, end)
            }
            Below::Parts(device) => {
                if let Some(number) = device.number() {
                    follow(Extent::unknown_part(Object::Device(number)), to, depth + 1);
                }
                continue;
            }
        };
        let Some(object) = object else { continue };
        let below = extent.below(object, begin, end);
        if let Some((file, name)) = name.and_then(|name| Some((File::open(&name).ok()?, name))) {
            served_as(&file, &name, &below, to);
        }
        follow(below, to, depth + 1);
    }
    if let Some(name) = device.world_wide_name() {
        let object = Object::Unit(name.to_ascii_lowercase());
        to.push(Extent { object, ..extent });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    const DISK: Object = Object::Device(1);

    #[test]
    fn parts_meet_where_bytes_are_shared() {
        let whole = Extent::whole(DISK);
        let first = Extent::whole(Object::Device(2)).below(DISK, 0, 100);
        let second = Extent::whole(Object::Device(3)).below(DISK, 100, 200);
        assert!(whole.meets(&first) && second.meets(&whole));
        assert!(!first.meets(&second));
        assert!(!whole.meets(&Extent::whole(Object::Device(9))));
        // Two volumes in one partition, and a volume beside a partition.
        let volume = Extent::unknown_part(Object::Device(2));
        assert!(!volume.meets(&volume));
        assert!(volume.meets(&Extent::whole(Object::Device(2))));
        assert!(!volume.below(DISK, 0, 100).meets(&second));
        assert!(volume.below(DISK, 0, 100).meets(&whole));
        assert!(volume.below(DISK, 0, 100).meets(&first), "the partition holds the volume");
    }

    #[test]
    fn names_of_the_world_are_told_from_local_ones() {
        let naa = |first: u8| unit_name(&Designator::Naa(vec![first, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(naa(0x60).unwrap(), "naa.6001020304050607");
        assert_eq!(naa(0x30), None);
        let of_tgtd = Designator::Naa([&[0x60][..], &[0; 14], &[1]].concat());
        assert_eq!(unit_name(&of_tgtd), None, "each tgtd has it");
        assert!(likely_name(&of_tgtd).is_some(), "the kernel names a device so");
        assert_eq!(unit_name(&Designator::T10Vendor(b"IET     00010001".to_vec())), None);
        assert_eq!(unit_name(&Designator::Eui(vec![0xab; 8])).unwrap(), "eui.abababababababab");
    }
}
