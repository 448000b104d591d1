// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps what logical units need over a loss of power in files of one folder, one for each unit and
//! kind of state.
//!
//! A state is written to a new file, synced, and then takes the place of the old one; the folder is
//! synced too. So after a crash at any point the old state is there or the new one, whole.

use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

use engine::files;
use scsi::Identity;
use scsi::KeepFailed;
use scsi::Keeper;
use scsi::Kept;

/// Longest file that is read: far more than any state that was ever written.
const STATE_LEN_MAX: u64 = 1 << 20;

/// The file of one kind of state of one unit.
#[derive(Debug)]
pub struct StateFile {
    folder: PathBuf,
    path: PathBuf,
    /// Where the next state is written before it takes its place.
    draft: PathBuf,
    /// What is there.
    last: Mutex<Option<Vec<u8>>>,
}

impl StateFile {
    /// The file with the `kept` of the unit `identity` in `folder`, which is made if it is missing,
    /// and what is in it.
    ///
    /// # Errors
    /// If the folder cannot be made, or there is a file that cannot be read or is too long.
    pub fn open(
        folder: &Path,
        identity: &Identity,
        kept: Kept,
    ) -> io::Result<(Self, Option<Vec<u8>>)> {
        std::fs::create_dir_all(folder)?;
        let path = place(folder, &identity.naa, kept.name());
        let draft = place(folder, &identity.naa, &format!("{}.new", kept.name()));
        let state = match files::read_whole(&path, STATE_LEN_MAX) {
            Ok(state) => Some(state),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(io::Error::other(format!("{} is too long", path.display())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let last = Mutex::new(state.clone());
        Ok((Self { folder: folder.to_owned(), path, draft, last }, state))
    }

    /// Where the state is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `sync` brings the folder to stable storage.
    fn put(&self, state: &[u8], sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = File::open(&self.folder)?;
        self.exchange(state)?;
        if let Err(error) = sync(&folder) {
            // The new state is there, and nobody relies on it: a restart must not find it.
            let put_back = match &*last {
                Some(last) => self.exchange(last),
                None => std::fs::remove_file(&self.path),
            };
            let put_back = put_back.and_then(|()| folder.sync_all());
            if let Err(error) = put_back {
                let path = self.path.display();
                tracing::error!(%path, %error, "cannot put the old state of a unit back");
            }
            return Err(error);
        }
        *last = Some(state.to_vec());
        Ok(())
    }

    fn exchange(&self, state: &[u8]) -> io::Result<()> {
        let options = File::options().write(true).create(true).truncate(true).mode(0o600).clone();
        let mut file = options.open(&self.draft)?;
        file.write_all(state)?;
        file.sync_all()?;
        std::fs::rename(&self.draft, &self.path)
    }
}

/// Where something is kept of the unit with this designator.
pub(crate) fn place(folder: &Path, naa: &[u8], what: &str) -> PathBuf {
    let name: String = naa.iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("naa.{name}.{what}"))
}

impl Keeper for StateFile {
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
        self.put(state, File::sync_all).map_err(|error| {
            tracing::error!(path = %self.path.display(), %error, "cannot keep the state of a unit");
            KeepFailed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity::derive("iqn.a", 0, "LUNWIRE", "disk")
    }

    #[test]
    fn what_was_kept_is_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("deep/state");
        let (file, none) = StateFile::open(&folder, &identity(), Kept::Reservations).expect("made");
        assert_eq!(none, None);
        file.keep(b"one").expect("room");
        file.keep(b"two").expect("room");
        let (_, state) =
            StateFile::open(&folder, &identity(), Kept::Reservations).expect("readable");
        assert_eq!(state.as_deref(), Some(&b"two"[..]));
        assert_eq!(std::fs::read_dir(&folder).expect("readable").count(), 1, "no draft is left");
    }

    #[test]
    fn a_crash_before_the_exchange_leaves_the_old_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) =
            StateFile::open(folder.path(), &identity(), Kept::Reservations).expect("made");
        file.keep(b"old").expect("room");
        std::fs::write(&file.draft, b"ne").expect("room");
        let (_, state) =
            StateFile::open(folder.path(), &identity(), Kept::Reservations).expect("readable");
        assert_eq!(state.as_deref(), Some(&b"old"[..]));
    }

    /// A draft that holds any part of the new state, and one that is whole but has not taken its
    /// place: whatever a crash leaves behind, and however often, the old state counts, and the
    /// next one can be kept.
    #[test]
    fn a_crash_at_any_byte_leaves_the_old_state() {
        let folder = tempfile::tempdir().expect("a folder");
        for kept in Kept::ALL {
            let open = || StateFile::open(folder.path(), &identity(), kept).expect("readable");
            let mut old = b"state 0".to_vec();
            open().0.keep(&old).expect("room");
            for turn in 1..4 {
                let new = format!("state {turn}, which is longer").into_bytes();
                for written in 0..=new.len() {
                    std::fs::write(&open().0.draft, &new[..written]).expect("room");
                    assert_eq!(open().1.as_ref(), Some(&old), "{written} bytes were written");
                }
                open().0.keep(&new).expect("room");
                assert_eq!(open().1.as_ref(), Some(&new));
                old = new;
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), Kept::ALL.len());
    }

    /// The exchange is done, and then the folder cannot be synced: a command that was told so must
    /// not find its change in force after a restart.
    #[test]
    fn what_failed_at_the_last_step_is_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let open =
            || StateFile::open(folder.path(), &identity(), Kept::Reservations).expect("readable");
        let failed = |_: &File| Err(io::Error::other("a broken disk"));
        let (file, _) = open();
        assert!(file.put(b"first", failed).is_err());
        assert_eq!(open().1, None);
        file.keep(b"old").expect("room");
        assert!(file.put(b"new", failed).is_err());
        assert_eq!(open().1.as_deref(), Some(&b"old"[..]));
    }

    #[test]
    fn failures_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) =
            StateFile::open(folder.path(), &identity(), Kept::Reservations).expect("made");
        std::fs::create_dir(&file.draft).expect("room");
        assert_eq!(file.keep(b"state"), Err(KeepFailed));
        let long = vec![0; usize::try_from(STATE_LEN_MAX).expect("small") + 1];
        std::fs::write(file.path(), long).expect("room");
        assert!(StateFile::open(folder.path(), &identity(), Kept::Reservations).is_err());
    }
}
