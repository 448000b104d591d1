// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder in which state outlives the daemon (`--state-dir`): one daemon's alone, and nobody
//! else's to read.

use std::fs::DirBuilder;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use engine::files::FileError;
use engine::files::folder_of;

/// Bits that let others than the owner in.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// Why state cannot be kept in a folder; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFolderError {
    /// Another daemon keeps its state there: they would overwrite each other's reservations.
    #[error(
        "the state folder {} is another daemon's: {source}, or give each daemon a folder of its \
         own",
        .folder.display()
    )]
    Taken {
        /// The folder.
        folder: PathBuf,
        /// Who has it.
        source: FileError,
    },
    /// A folder above it that is missing is a mistyped name, or a disk that is not mounted.
    #[error(
        "cannot make the state folder {}: the folder {} does not exist; try: mkdir -p {}",
        .folder.display(), folder_of(.folder).display(), folder_of(.folder).display()
    )]
    Nowhere {
        /// The folder.
        folder: PathBuf,
    },
    /// It cannot be made or used.
    #[error("cannot use the state folder {}: {source}; try: another folder", .folder.display())]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// A state folder that is ours as long as this lives.
#[derive(Debug)]
pub struct StateFolder {
    _lock: File,
}

impl StateFolder {
    /// Whether `folder` could be taken, as far as can be seen without making it; who has it now
    /// does not count.
    ///
    /// # Errors
    /// If it cannot be made or used.
    pub fn examine(folder: &Path) -> Result<(), StateFolderError> {
        engine::files::examine_folder(folder).map_err(|source| unusable(folder, source))
    }

    /// Takes `folder`, which is made if it is missing, but not what it would be in. Files in it are
    /// for their owner alone from then on.
    ///
    /// # Errors
    /// If another daemon has it, or it cannot be made or used.
    pub fn take(folder: &Path) -> Result<Self, StateFolderError> {
        let unusable = |source| unusable(folder, source);
        // The folder itself is locked, so that nothing is left behind in it.
        let lock = make(folder).and_then(|()| File::open(folder)).map_err(unusable)?;
        engine::files::lock_alone(folder, &lock)
            .map_err(|source| StateFolderError::Taken { folder: folder.into(), source })?;
        close(folder).map_err(unusable)?;
        Ok(Self { _lock: lock })
    }
}

fn unusable(folder: &Path, source: io::Error) -> StateFolderError {
    let is_missing = |path: &Path| matches!(path.try_exists(), Ok(false));
    if source.kind() == io::ErrorKind::NotFound && is_missing(folder_of(folder)) {
        return StateFolderError::Nowhere { folder: folder.into() };
    }
    StateFolderError::Unusable { folder: folder.into(), source }
}

/// Makes the folder, for its owner alone, if it is missing, and its name lasting.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        let mode = folder.metadata()?.permissions().mode();
        if mode & OTHERS_WRITE != 0 {
            tracing::warn!(
                folder = %folder.display(),
                "others may write to the state folder, and exchange its files; try: chmod 700"
            );
        }
        return Ok(());
    }
    DirBuilder::new().mode(0o700).create(folder)?;
    engine::files::sync_name(folder, &File::open(folder)?)
}

/// Takes away what lets others read files that an older daemon has made.
fn close(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let ours = entry.file_name().as_encoded_bytes().starts_with(b"naa.");
        if !ours || !entry.file_type()?.is_file() {
            continue;
        }
        let mode = entry.metadata()?.permissions().mode();
        if mode & OTHERS != 0 {
            let closed = std::fs::Permissions::from_mode(mode & !OTHERS & 0o7777);
            std::fs::set_permissions(entry.path(), closed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_state_folder_is_one_daemons_and_for_its_owner_alone() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("state");
        let first = StateFolder::take(&folder).expect("it is made");
        assert_eq!(mode(&folder), 0o700);
        let error = StateFolder::take(&folder).expect_err("it is taken").to_string();
        assert!(error.contains("another daemon's"), "{error}");
        drop(first);
        let old = folder.join("naa.3000.reservations");
        std::fs::write(&old, b"state").expect("room");
        std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o644)).expect("ours");
        let _again = StateFolder::take(&folder).expect("it is free");
        assert_eq!(mode(&old), 0o600);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let parent = tempfile::tempdir().expect("a folder");
        let file = parent.path().join("file");
        std::fs::write(&file, b"").expect("room");
        let within = file.join("deep");
        let link = parent.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).expect("room");
        for folder in [&file, &within, &link, &"/proc/state".into()] {
            assert!(StateFolder::examine(folder).is_err(), "{folder:?}");
            let taken = StateFolder::take(folder);
            assert!(matches!(taken, Err(StateFolderError::Unusable { .. })), "{folder:?}");
        }
        let new = parent.path().join("a");
        StateFolder::examine(&new).expect("it can be made");
        for refused in
            [StateFolder::examine(&new.join("b")), StateFolder::take(&new.join("b")).map(drop)]
        {
            let error = refused.expect_err("its folder is missing");
            assert!(matches!(error, StateFolderError::Nowhere { .. }), "{error}");
            assert!(error.to_string().ends_with(&format!("mkdir -p {}", new.display())), "{error}");
        }
        assert!(!new.exists());
    }
}
