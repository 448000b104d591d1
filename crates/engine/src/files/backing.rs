// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is below a block device, as sysfs tells it.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use super::SECTOR;
use super::same::is_claimed;
use super::same::place;
use crate::limits::DEVICES_DEPTH_MAX;

/// The regular file in which the bytes of a device are, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backing {
    pub(super) file: PathBuf,
    begin: u64,
    end: u64,
    /// The loop devices between.
    through: Vec<String>,
}

impl Backing {
    /// Of a loop device, a partition of one, or what is made of one; None for any other device.
    pub(super) fn of(device: u64) -> Option<Self> {
        Self::below(&sysfs(device), 0)
    }

    /// `folder`: the place of the device in sysfs.
    fn below(folder: &Path, depth: usize) -> Option<Self> {
        if depth >= DEVICES_DEPTH_MAX {
            return None;
        }
        let folder = fs::canonicalize(folder).ok()?;
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| text(name).and_then(|text| text.trim().parse::<u64>().ok());
        let sectors = |name: &str| number(name).map(|count| count.saturating_mul(SECTOR));
        let size = sectors("size").unwrap_or(u64::MAX);
        if let Some(file) = text("loop/backing_file") {
            let file = PathBuf::from(file.trim_end_matches('\n'));
            let offset = number("loop/offset").unwrap_or(0);
            let name = folder.file_name()?.to_string_lossy().into_owned();
            let whole = Self { file, begin: 0, end: u64::MAX, through: Vec::new() };
            let device = fs::metadata(&whole.file).ok();
            let device = device.filter(|found| found.file_type().is_block_device());
            let lower = match device {
                Some(device) => Self::below(&sysfs(device.rdev()), depth + 1)?,
                None => whole,
            };
            return Some(lower.part(offset, size).through(name));
        }
        if text("partition").is_some() {
            let start = sectors("start").unwrap_or(0);
            return Some(Self::below(folder.parent()?, depth + 1)?.part(start, size));
        }
        let slaves = fs::read_dir(folder.join("slaves")).ok()?.flatten();
        slaves.into_iter().find_map(|slave| Self::below(&slave.path(), depth + 1))
    }

    /// `size` bytes of it from `start`.
    fn part(self, start: u64, size: u64) -> Self {
        let begin = self.begin.saturating_add(start).min(self.end);
        Self { begin, end: begin.saturating_add(size).min(self.end), ..self }
    }

    fn through(mut self, name: String) -> Self {
        self.through.push(name);
        self
    }

    /// Another loop device that shows some of this and that the system uses.
    pub(super) fn other_user(&self) -> Option<PathBuf> {
        let own = fs::metadata(&self.file).ok()?;
        loops().into_iter().find_map(|(name, folder)| {
            let other = Self::below(&folder, 0).filter(|_| !self.through.contains(&name))?;
            let apart = self.end <= other.begin || other.end <= self.begin;
            let same = fs::metadata(&other.file).is_ok_and(|file| place(&file) == place(&own));
            let device = Path::new("/dev").join(name);
            (same && !apart && is_claimed(&device)).then_some(device)
        })
    }
}

/// The disk that a device is a partition of.
pub(super) fn disk_of(device: u64) -> Option<u64> {
    disk_above(&sysfs(device))
}

/// `folder`: the place of the device in sysfs.
fn disk_above(folder: &Path) -> Option<u64> {
    let folder = fs::canonicalize(folder).ok()?;
    let is_partition = folder.join("partition").exists();
    let text = fs::read_to_string(folder.parent().filter(|_| is_partition)?.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a block device is set read-only: one that is may be opened for writing all the same, and
/// each write fails.
pub(super) fn is_read_only(device: u64) -> bool {
    fs::read_to_string(sysfs(device).join("ro")).is_ok_and(|set| set.trim() == "1")
}

fn sysfs(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// All loop devices: their names, and their places in sysfs.
pub(super) fn loops() -> Vec<(String, PathBuf)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let named =
        devices.map(|device| (device.file_name().to_string_lossy().into_owned(), device.path()));
    named.filter(|(name, _)| name.starts_with("loop")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No partitions of loop devices on some kernels: the files of sysfs are made here.
    #[test]
    fn a_partition_is_a_part_of_the_file_behind_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("loop7");
        let put = |name: &str, text: &str| {
            let path = disk.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("loop/backing_file", "/nowhere/disk\n");
        put("loop/offset", "4096\n");
        put("size", "100\n");
        put("dev", "7:7\n");
        put("loop7p1/partition", "1\n");
        put("loop7p1/start", "8\n");
        put("loop7p1/size", "10\n");
        let found = Backing::below(&disk.join("loop7p1"), 0).unwrap();
        assert_eq!((found.begin, found.end), (4096 + 8 * 512, 4096 + 18 * 512));
        assert_eq!(
            (found.file.as_path(), found.through),
            (Path::new("/nowhere/disk"), vec!["loop7".into()])
        );
        assert_eq!(disk_above(&disk.join("loop7p1")), Some(rustix::fs::makedev(7, 7)));
        assert_eq!(disk_above(&disk), None);
        // A volume on the partition.
        let volume = folder.path().join("dm-0");
        fs::create_dir_all(volume.join("slaves")).unwrap();
        std::os::unix::fs::symlink(disk.join("loop7p1"), volume.join("slaves/loop7p1")).unwrap();
        assert_eq!(Backing::below(&volume, 0).unwrap().file, Path::new("/nowhere/disk"));
        fs::remove_dir_all(disk.join("loop")).unwrap();
        assert_eq!(Backing::below(&disk.join("loop7p1"), 0), None);
    }
}
