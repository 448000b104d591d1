// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Huge pages that a run takes of the machine, and gives back: what was set before stands in a file
//! of the run's folder meanwhile, so that the next run can give them back for one that was killed.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const SETTING: &str = "/proc/sys/vm/nr_hugepages";

/// In the folder: how many there were before.
const BEFORE: &str = "huge-pages-before";

const PAGE_MIB: u64 = 2;

/// Those that were taken, and where they are mounted.
#[derive(Debug)]
pub(crate) struct HugePages {
    folder: PathBuf,
}

impl HugePages {
    /// Takes so many MiB of the machine, mounted below `folder`.
    ///
    /// # Errors
    /// Why there are none; then nothing was taken.
    pub(crate) fn take(folder: &Path, mib: u64) -> Result<Self, String> {
        let told = |error: std::io::Error| error.to_string();
        let before = number(SETTING).ok_or("the kernel has none")?;
        fs::write(folder.join(BEFORE), before.to_string()).map_err(told)?;
        let pages = Self { folder: folder.to_owned() };
        let wanted = mib / PAGE_MIB;
        fs::write(SETTING, (before + wanted).to_string()).map_err(told)?;
        let free = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let free = free.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
        let free: u64 = free.and_then(|free| free.trim().parse().ok()).unwrap_or(0);
        if free < wanted {
            return Err(format!("the machine gives {free} of {wanted} huge pages"));
        }
        fs::create_dir(pages.mount()).map_err(told)?;
        let size = Some(c"pagesize=2M");
        mount("none", pages.mount(), "hugetlbfs", MountFlags::empty(), size)
            .map_err(|error| error.to_string())?;
        Ok(pages)
    }

    pub(crate) fn mount(&self) -> PathBuf {
        self.folder.join("huge")
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = unmount(self.mount(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        give_back(&self.folder);
    }
}

/// Sets what was set before a run took pages that worked in `folder`; false if none were taken.
pub(crate) fn give_back(folder: &Path) -> bool {
    let file = folder.join(BEFORE);
    let Some(before) = number(&file) else { return false };
    let given = fs::write(SETTING, before.to_string()).is_ok();
    let _ = fs::remove_file(file);
    given
}

fn number(file: impl AsRef<Path>) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_given_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = number(SETTING);
        let taken = HugePages::take(folder.path(), PAGE_MIB);
        if let Ok(pages) = &taken {
            assert!(pages.mount().is_dir() && number(SETTING) > before);
        }
        drop(taken);
        assert_eq!(number(SETTING), before);
        assert!(!give_back(folder.path()), "nothing is left of it");
    }
}
