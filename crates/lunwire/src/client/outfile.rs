// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of this machine that a command writes besides its work: a plot, a log, what was read.
//! Whether it can be written is seen before the work, and nobody else may have it.

use std::fs::File;
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::units;
use engine::files::Taken;

use super::place;
use crate::output;

/// Open for writing; what was in it stays until something is written.
#[derive(Debug)]
pub(crate) struct Outfile {
    path: PathBuf,
    file: File,
    /// It was not there before, and nothing was written to it.
    useless: bool,
    begun: bool,
    /// Keeps others from it. There is none for what is everybody's, as a pipe or a terminal is.
    _taken: Option<Taken>,
}

/// Refuses what would not fit protection information that stands beside `path`, and warns where
/// that cannot be known.
pub(super) fn expect_unprotected(path: &Path) -> Result<()> {
    if let Some(astray) = target::expect_unprotected(path)? {
        output::say(format_args!("warning: {astray}"));
    }
    Ok(())
}

/// Whether the user wants to lose what is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overwrite {
    Allowed,
    Refused,
}

impl Overwrite {
    /// As `--overwrite` says.
    pub(crate) const fn said(flag: bool) -> Self {
        if flag { Self::Allowed } else { Self::Refused }
    }
}

impl Outfile {
    /// # Errors
    /// It cannot be written; others use it, as the daemon that serves it does; it is a device that
    /// holds data.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}; try: another place", path.display());
        expect_unprotected(path)?;
        let (file, useless) = match File::create_new(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (File::options().write(true).open(path).with_context(cannot)?, false)
            }
            file => (file.with_context(cannot)?, true),
        };
        let kind = file.metadata().with_context(cannot)?.file_type();
        if kind.is_block_device() {
            bail!("{} is a block device, which lunwire copy alone writes to", path.display());
        }
        let taken = kind.is_file().then(|| place::take_alone(path, &file)).transpose()?;
        Ok(Self { path: path.to_owned(), file, useless, begun: false, _taken: taken })
    }

    /// As `open`, for a file that has nothing in it.
    ///
    /// # Errors
    /// As for `open`, or there is something in it.
    pub(crate) fn open_empty(path: &Path) -> Result<Self> {
        let out = Self::open(path)?;
        match out.file.metadata() {
            Ok(metadata) if metadata.is_file() && metadata.len() > 0 => bail!(
                "{} exists and holds {}; try: another name, or --overwrite",
                path.display(),
                units::bytes(metadata.len())
            ),
            _ => Ok(out),
        }
    }

    /// `overwrite`: what is in it may be replaced.
    ///
    /// # Errors
    /// As for `open` or `open_empty`.
    pub(crate) fn open_for(path: &Path, overwrite: Overwrite) -> Result<Self> {
        match overwrite {
            Overwrite::Allowed => Self::open(path),
            Overwrite::Refused => Self::open_empty(path),
        }
    }

    /// Replaces what is in the file, and goes on behind that when it is called again.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let cannot = || format!("cannot write {}; try: another place", self.path.display());
        self.useless = false;
        if !std::mem::replace(&mut self.begun, true)
            && self.file.metadata().with_context(cannot)?.is_file()
        {
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
    fn what_others_have_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        std::fs::write(&path, "precious").unwrap();
        let full = Outfile::open_empty(&path).unwrap_err().to_string();
        assert!(full.contains("8 B") && full.contains("--overwrite"), "{full}");
        let served = File::options().read(true).write(true).open(&path).unwrap();
        engine::files::lock_alone(&path, &served).unwrap();
        let used = Outfile::open(&path).unwrap_err().to_string();
        assert!(used.contains("given twice"), "{used}");
        drop(served);
        // A program that another test starts has our files until it is itself.
        let open = || Outfile::open(&path).ok();
        let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
        (0..100)
            .find_map(|_| {
                open().or_else(|| {
                    pause();
                    None
                })
            })
            .unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        Outfile::open_empty(Path::new("/dev/null")).unwrap();
    }

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
            let mut out = Outfile::open(path).unwrap();
            out.write(b"sho").unwrap();
            out.write(b"rt").unwrap();
            assert_eq!(std::fs::read(path).unwrap(), b"short");
        }
        assert!(Outfile::open(&folder.path().join("no/file")).is_err());
        assert!(Outfile::open(folder.path()).is_err());
        Outfile::open(Path::new("/dev/null")).unwrap().write(b"gone").unwrap();
    }
}
