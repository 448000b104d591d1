// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices as the system shows them: what their bytes lie in, and who they are.
//!
//! ```text
//! file <--- loop0 <--- loop0p1      each arrow is one step of [`BlockDevice::below`]
//! sda  <--- sda1  <--- dm-0
//! ```

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use super::SECTOR;

/// A block device that the system has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its place in sysfs, without links.
    folder: PathBuf,
}

/// What bytes of a device lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // whoever follows must know every way
pub enum Below {
    /// A loop device shows this file, or this device, from byte `begin` to `end`.
    File {
        /// By the name that the system tells.
        path: PathBuf,
        /// First byte.
        begin: u64,
        /// Behind the last byte.
        end: u64,
    },
    /// A partition is this part of its disk.
    Disk {
        /// The disk.
        device: BlockDevice,
        /// First byte.
        begin: u64,
        /// Behind the last byte.
        end: u64,
    },
    /// A volume is made of parts of this device; the system does not tell which.
    Parts(BlockDevice),
}

impl BlockDevice {
    /// The one with this number, if the system shows it.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Self::at(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
    }

    /// `folder`: its place in sysfs, or a link to that.
    pub(super) fn at(folder: &Path) -> Option<Self> {
        Some(Self { folder: fs::canonicalize(folder).ok()? })
    }

    /// All loop devices.
    pub(super) fn loops() -> impl Iterator<Item = Self> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let loops =
            devices.filter(|device| device.file_name().as_encoded_bytes().starts_with(b"loop"));
        loops.filter_map(|device| Self::at(&device.path()))
    }

    /// What one of its attributes says.
    #[must_use]
    pub fn text(&self, attribute: &str) -> Option<String> {
        let text = fs::read_to_string(self.folder.join(attribute)).ok()?;
        Some(text.trim_end_matches('\n').to_owned())
    }

    pub(super) fn has(&self, attribute: &str) -> bool {
        self.folder.join(attribute).exists()
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let text = self.text("dev")?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The node by which it is opened, as a rule.
    #[must_use]
    pub fn node(&self) -> Option<PathBuf> {
        Some(Path::new("/dev").join(self.folder.file_name()?))
    }

    /// Its world-wide name, in the way of sysfs: `naa.` or `eui.` and hex digits.
    #[must_use]
    pub fn world_wide_name(&self) -> Option<String> {
        let text = self.text("device/wwid").or_else(|| self.text("wwid"))?;
        Some(text.trim().to_owned())
    }

    /// The disk that it is a partition of.
    #[must_use]
    pub fn disk(&self) -> Option<Self> {
        let folder = self.folder.parent().filter(|_| self.has("partition"))?;
        Some(Self { folder: folder.to_owned() })
    }

    /// What its bytes lie in.
    #[must_use]
    pub fn below(&self) -> Vec<Below> {
        let number = |name: &str| self.text(name)?.trim().parse::<u64>().ok();
        let sectors = |name: &str| number(name).map(|count| count.saturating_mul(SECTOR));
        let part = |begin: u64| {
            (begin, sectors("size").map_or(u64::MAX, |size| begin.saturating_add(size)))
        };
        if let Some(path) = self.text("loop/backing_file") {
            let (begin, end) = part(number("loop/offset").unwrap_or(0));
            return vec![Below::File { path: path.into(), begin, end }];
        }
        if let Some(device) = self.disk() {
            let (begin, end) = part(sectors("start").unwrap_or(0));
            return vec![Below::Disk { device, begin, end }];
        }
        let slaves = fs::read_dir(self.folder.join("slaves")).into_iter().flatten().flatten();
        slaves.filter_map(|slave| Self::at(&slave.path())).map(Below::Parts).collect()
    }
}
