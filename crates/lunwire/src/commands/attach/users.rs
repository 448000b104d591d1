// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who uses a file or a device, as far as the system tells us.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use engine::loops::LoopDevice;

/// As many are named.
const NAMED_MAX: usize = 4;

/// Who has `path` open, or works in the folder that FUSE shows it in, and where it is mounted, for
/// people. Processes of others are not seen.
pub(super) fn of(path: &Path) -> String {
    known(path).unwrap_or_else(|| "somebody".to_owned())
}

/// The same; None: it is not known that anybody does.
pub(super) fn known(path: &Path) -> Option<String> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = mounts(&mountinfo, path);
    let folder = path.parent().filter(|folder| is_of_fuse(&mountinfo, folder));
    found.extend(path.parent().and_then(|folder| over(&mountinfo, folder)));
    found.extend(path.parent().map(|folder| bound(&mountinfo, folder)).unwrap_or_default());
    found.extend(processes(path, folder));
    found.extend(loops(path));
    match found.len() {
        0 => None,
        count if count > NAMED_MAX => {
            let named = found.get(..NAMED_MAX).unwrap_or_default().join(", ");
            Some(format!("{named} and {} more", count - NAMED_MAX))
        }
        _ => Some(found.join(", ")),
    }
}

/// Whether a process has `path` open, or a partition of it, or a loop device is made of it.
pub(super) fn has_some(path: &Path) -> bool {
    !processes(path, None).is_empty() || !loops(path).is_empty()
}

/// Whether `found` is the device `path`, or one of its partitions.
fn is_of(found: &str, path: &Path) -> bool {
    let rest = path.to_str().and_then(|path| found.strip_prefix(path));
    let is_partition = |rest: &str| {
        let number = rest.strip_prefix('p').filter(|number| !number.is_empty());
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    rest.is_some_and(|rest| rest.is_empty() || is_partition(rest))
}

/// The system has the file behind a loop device open, and no process.
fn loops(path: &Path) -> Vec<String> {
    let all = LoopDevice::of(path).into_iter();
    all.map(|device| format!("the loop device {}", device.path().display())).collect()
}

/// Where it is mounted (proc_pid_mountinfo(5)): the source is the second word behind ` - `.
fn mounts(mountinfo: &str, path: &Path) -> Vec<String> {
    let place = |line: &str| {
        let (before, behind) = line.split_once(" - ")?;
        let source = behind.split(' ').nth(1)?;
        let folder = before.split(' ').nth(4)?;
        is_of(source, path).then(|| format!("the file system on {folder}"))
    };
    mountinfo.lines().filter_map(place).collect()
}

/// Whether FUSE is mounted there.
fn is_of_fuse(mountinfo: &str, folder: &Path) -> bool {
    mountinfo.lines().any(|line| {
        let parts = line.split_once(" - ").filter(|(_, behind)| behind.starts_with("fuse"));
        parts.and_then(|(before, _)| before.split(' ').nth(4)).is_some_and(|at| folder == at)
    })
}

/// What is mounted over the FUSE in `folder`, and not ours to be taken away.
fn over(mountinfo: &str, folder: &Path) -> Option<String> {
    let kinds = mountinfo.lines().filter_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        (before.split(' ').nth(4) == folder.to_str()).then(|| behind.split(' ').next())?
    });
    let kinds: Vec<&str> = kinds.collect();
    match kinds[..] {
        [.., first, last] if first.starts_with("fuse") => {
            Some(format!("the {last} that is mounted over it"))
        }
        _ => None,
    }
}

/// Where else the FUSE in `folder` is mounted, by `mount --bind`, and so used.
fn bound(mountinfo: &str, folder: &Path) -> Vec<String> {
    let of_fuse = mountinfo.lines().filter_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        let mut words = before.split(' ').skip(2);
        let (device, place) = (words.next()?, words.nth(1)?);
        behind.starts_with("fuse").then_some((device, place))
    });
    let all: Vec<(&str, &str)> = of_fuse.collect();
    let ours = all.iter().find(|(_, place)| Path::new(place) == folder).map(|(device, _)| *device);
    let others =
        all.iter().filter(|(device, place)| Some(*device) == ours && Path::new(place) != folder);
    others.map(|(_, place)| format!("the mount of it at {place}")).collect()
}

/// Those that have `path` open, or work in `folder`.
fn processes(path: &Path, folder: Option<&Path>) -> Vec<String> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for process in all.flatten() {
        let number = process.file_name().to_string_lossy().into_owned();
        if number == own || !number.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        let is_ours = |to: PathBuf| to.to_str().is_some_and(|to| is_of(to, path)) || to == path;
        let works_at = fs::read_link(process.path().join("cwd")).ok();
        let is_there = folder.is_some_and(|folder| works_at.as_deref() == Some(folder));
        if is_there || open.flatten().any(|one| fs::read_link(one.path()).is_ok_and(is_ours)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} (process {number})", name.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_the_device_and_its_partitions_are_found() {
        let mountinfo = "\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
40 22 7:3 / /mnt/a rw - ext4 /dev/loop3 rw\n\
41 22 7:30 / /mnt/b rw - ext4 /dev/loop30 rw\n\
42 22 259:0 / /mnt/c rw shared:2 master:1 - xfs /dev/loop3p1 rw\n";
        let found = mounts(mountinfo, Path::new("/dev/loop3"));
        assert_eq!(found, ["the file system on /mnt/a", "the file system on /mnt/c"]);
        assert!(mounts("nonsense\n - \n", Path::new("/dev/loop3")).is_empty());
    }

    #[test]
    fn who_works_in_a_folder_uses_what_is_mounted_there() {
        let mountinfo = "\
22 1 0:5 / /dev rw - devtmpfs udev rw\n\
40 22 0:50 / /mnt/disk rw - fuse lunwire rw\n";
        assert!(is_of_fuse(mountinfo, Path::new("/mnt/disk")));
        assert!(!is_of_fuse(mountinfo, Path::new("/dev")));
        assert!(!is_of_fuse(mountinfo, Path::new("/mnt")));
        assert_eq!(over(mountinfo, Path::new("/mnt/disk")), None);
        let bind = format!("{mountinfo}41 22 0:50 / /mnt/b rw - fuse.lunwire lunwire rw\n");
        assert_eq!(bound(&bind, Path::new("/mnt/disk")), ["the mount of it at /mnt/b"]);
        assert!(bound(mountinfo, Path::new("/mnt/disk")).is_empty());
        let covered = format!("{mountinfo}41 40 0:51 / /mnt/disk rw - tmpfs none rw\n");
        let told = over(&covered, Path::new("/mnt/disk"));
        assert_eq!(told.as_deref(), Some("the tmpfs that is mounted over it"));
        let here = std::env::current_dir().unwrap();
        let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = processes(Path::new("/no such file"), Some(&here));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        let who = format!("sleep (process {})", sleep.id());
        assert!(found.contains(&who), "{found:?}");
    }

    #[test]
    fn who_has_a_partition_open_uses_the_device() {
        let device = Path::new("/dev/ublkb1");
        assert!(
            ["/dev/ublkb1", "/dev/ublkb1p1", "/dev/ublkb1p12"].map(|one| is_of(one, device))
                == [true; 3]
        );
        for other in ["/dev/ublkb10", "/dev/ublkb1p", "/dev/ublkb1px", "/dev/ublkb", "/tmp/x"] {
            assert!(!is_of(other, device), "{other}");
        }
    }

    #[test]
    fn a_file_that_nobody_has_open_is_used_by_somebody() {
        assert_eq!(of(Path::new("/no such file")), "somebody");
    }
}
