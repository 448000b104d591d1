// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file that is below a block device.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use super::same::is_claimed;
use super::same::place;
use super::sysfs::Below;
use super::sysfs::BlockDevice;
use crate::limits::DEVICES_DEPTH_MAX;

/// The regular file in which the bytes of a device are, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backing {
    pub(super) file: PathBuf,
    begin: u64,
    end: u64,
    /// The loop devices between, by their nodes.
    through: Vec<PathBuf>,
}

impl Backing {
    /// Of a loop device, a partition of one, or what is made of one; None for any other device.
    pub(super) fn of(device: u64) -> Option<Self> {
        Self::below(&BlockDevice::of(device)?, 0)
    }

    fn below(device: &BlockDevice, depth: usize) -> Option<Self> {
        if depth >= DEVICES_DEPTH_MAX {
            return None;
        }
        device.below().into_iter().find_map(|below| match below {
            Below::File { path, begin, end } => {
                let shown = fs::metadata(&path).ok();
                let shown = shown.filter(|found| found.file_type().is_block_device());
                let lower = match shown {
                    Some(shown) => Self::below(&BlockDevice::of(shown.rdev())?, depth + 1)?,
                    None => Self { file: path, begin: 0, end: u64::MAX, through: Vec::new() },
                };
                Some(lower.part(begin, end).through(device.node()?))
            }
            Below::Disk { device, begin, end } => {
                Some(Self::below(&device, depth + 1)?.part(begin, end))
            }
            Below::Parts(device) => Self::below(&device, depth + 1),
        })
    }

    /// What of it is between two bytes of it.
    fn part(self, begin: u64, end: u64) -> Self {
        let at = |within: u64| self.begin.saturating_add(within).min(self.end);
        Self { begin: at(begin), end: at(end), ..self }
    }

    fn through(mut self, node: PathBuf) -> Self {
        self.through.push(node);
        self
    }

    /// Another loop device that shows some of this and that the system uses.
    pub(super) fn other_user(&self) -> Option<PathBuf> {
        let own = fs::metadata(&self.file).ok()?;
        BlockDevice::loops().find_map(|device| {
            let node = device.node().filter(|node| !self.through.contains(node))?;
            let other = Self::below(&device, 0)?;
            let apart = self.end <= other.begin || other.end <= self.begin;
            let same = fs::metadata(&other.file).is_ok_and(|file| place(&file) == place(&own));
            (same && !apart && is_claimed(&node)).then_some(node)
        })
    }
}

/// The regular file in which the bytes of the device `path` are, if they are in one.
#[must_use]
pub fn file_behind(path: &Path) -> Option<PathBuf> {
    let metadata = path.metadata().ok()?;
    let device = metadata.file_type().is_block_device().then(|| metadata.rdev())?;
    Some(Backing::of(device)?.file)
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
        let at = |path: &Path| BlockDevice::at(path).unwrap();
        let found = Backing::below(&at(&disk.join("loop7p1")), 0).unwrap();
        assert_eq!((found.begin, found.end), (4096 + 8 * 512, 4096 + 18 * 512));
        assert_eq!(
            (found.file.as_path(), found.through),
            (Path::new("/nowhere/disk"), vec!["/dev/loop7".into()])
        );
        let whole = at(&disk.join("loop7p1")).disk().unwrap();
        assert_eq!(whole.number(), Some(rustix::fs::makedev(7, 7)));
        assert_eq!(at(&disk).disk(), None);
        // A volume on the partition.
        let volume = folder.path().join("dm-0");
        fs::create_dir_all(volume.join("slaves")).unwrap();
        std::os::unix::fs::symlink(disk.join("loop7p1"), volume.join("slaves/loop7p1")).unwrap();
        assert_eq!(Backing::below(&at(&volume), 0).unwrap().file, Path::new("/nowhere/disk"));
        fs::remove_dir_all(disk.join("loop")).unwrap();
        assert_eq!(Backing::below(&at(&disk.join("loop7p1")), 0), None);
    }
}
