// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes a file away again that was made for something that came to nothing.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Removes `path`, which was made as `file` and is open, unless it is another file by now or
/// something was written from byte `from` on. Where the file system does not tell that nothing
/// was, the file stays.
pub fn take_back(path: &Path, file: &OwnedFd, from: u64) {
    let Ok(stat) = rustix::fs::fstat(file) else { return };
    let same = |facts: fs::Metadata| facts.dev() == stat.st_dev && facts.ino() == stat.st_ino;
    let is_it = fs::symlink_metadata(path).is_ok_and(same);
    if is_it && rustix::fs::seek(file, SeekFrom::Data(from)) == Err(Errno::NXIO) {
        // What cannot be removed is an empty file, and the failure is told already.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn only_what_nobody_wrote_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let made = || {
            let file = File::create(&path).unwrap();
            file.set_len(1 << 20).unwrap();
            file
        };
        take_back(&path, &made().into(), 0);
        assert!(!path.exists());
        let file = made();
        file.write_all_at(b"x", 0).unwrap();
        take_back(&path, &file.try_clone().unwrap().into(), 0);
        assert!(path.exists(), "it has content");
        take_back(&path, &file.into(), 1 << 16);
        assert!(!path.exists(), "the content is our own");
        let old = made();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        drop(made());
        take_back(&path, &old.into(), 0);
        assert!(path.exists(), "another file");
    }
}
