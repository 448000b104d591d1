// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Huge pages that a run takes of the machine, and gives back: how many stands in a file of the
//! run's folder meanwhile, so that the next run can give them back for one that was killed. Several
//! runs may have some: each adds its own, and takes away no more.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const SETTING: &str = "/proc/sys/vm/nr_hugepages";

/// In the folder: how many were taken.
const TAKEN: &str = "huge-pages-taken";

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
        let told = |error: io::Error| error.to_string();
        let wanted = mib / PAGE_MIB;
        let pages = Self { folder: folder.to_owned() };
        change(|before| {
            // Who is killed in between has taken them.
            fs::write(folder.join(TAKEN), wanted.to_string())?;
            fs::write(SETTING, before.saturating_add(wanted).to_string())?;
            let more = number(SETTING).unwrap_or(0).saturating_sub(before);
            fs::write(folder.join(TAKEN), more.to_string())
        })
        .map_err(told)?;
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

/// Gives back what a run took that worked in `folder`; false if that was nothing.
pub(crate) fn give_back(folder: &Path) -> bool {
    let file = folder.join(TAKEN);
    let Some(taken) = number(&file) else { return false };
    let given = change(|now| fs::write(SETTING, now.saturating_sub(taken).to_string()));
    let _ = fs::remove_file(file);
    taken > 0 && given.is_ok()
}

/// Changes the number of pages, of which `how` is told; other runs wait meanwhile.
fn change(how: impl FnOnce(u64) -> io::Result<()>) -> io::Result<()> {
    let setting = File::open(SETTING)?;
    flock(&setting, FlockOperation::LockExclusive)?;
    how(number(SETTING).unwrap_or(0))
}

fn number(file: impl AsRef<Path>) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_given_back_and_no_more() {
        let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
        let before = number(SETTING);
        let [first, second] = [0, 1].map(|at: usize| HugePages::take(folders[at].path(), PAGE_MIB));
        let both = [&first, &second].into_iter().flatten().count() as u64;
        if let Ok(pages) = &first {
            assert!(pages.mount().is_dir());
        }
        assert_eq!(number(SETTING), before.map(|before| before + both));
        // In the order in which they came, and not the other way round.
        drop(first);
        drop(second);
        assert_eq!(number(SETTING), before);
        assert!(folders.iter().all(|folder| !give_back(folder.path())), "nothing is left of it");
    }
}
