// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that is written at the end of long work: whether it can be is seen before the work.

use std::fs::File;
use std::io::ErrorKind;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;

/// Open for writing; what was in it stays until [`Outfile::write`].
#[derive(Debug)]
pub(crate) struct Outfile {
    path: PathBuf,
    file: File,
    /// It was not there before, and nothing was written to it.
    useless: bool,
}

impl Outfile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}; try: another place", path.display());
        let (file, useless) = match File::create_new(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (File::options().write(true).open(path).with_context(cannot)?, false)
            }
            file => (file.with_context(cannot)?, true),
        };
        Ok(Self { path: path.to_owned(), file, useless })
    }

    /// Replaces what is in the file.
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<()> {
        self.useless = false;
        let cannot = || format!("cannot write {}", self.path.display());
        if self.file.metadata().with_context(cannot)?.is_file() {
            self.file.set_len(0).with_context(cannot)?;
        }
        self.file.write_all(bytes).with_context(cannot)
    }
}

impl Drop for Outfile {
    fn drop(&mut self) {
        if self.useless {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_until_there_is_something_else() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "something longer").unwrap();
        for path in [&old, &new] {
            drop(Outfile::open(path).unwrap());
        }
        assert!(std::fs::read(&old).unwrap() == b"something longer" && !new.exists());
        for path in [&old, &new] {
            Outfile::open(path).unwrap().write(b"short").unwrap();
            assert_eq!(std::fs::read(path).unwrap(), b"short");
        }
        assert!(Outfile::open(&folder.path().join("no/file")).is_err());
        assert!(Outfile::open(folder.path()).is_err());
        Outfile::open(Path::new("/dev/null")).unwrap().write(b"gone").unwrap();
    }
}
