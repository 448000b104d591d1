// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps what logical units need over a loss of power in files of one folder, one for each unit and
//! kind of state.
//!
//! A state is written to a new file, synced, and then takes the place of the old one; the folder is
//! synced too. So after a crash at any point the old state is there or the new one, whole.

use std::fmt;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

use scsi::Identity;
use scsi::KeepFailed;
use scsi::Keeper;
use scsi::Kept;

/// Longest file that is read: far more than any state that was ever written.
const STATE_LEN_MAX: u64 = 1 << 20;

/// A folder that files of states are in: the system's, or a simulated one.
pub trait Shelf: Send + Sync + fmt::Debug {
    /// What is in a file; None if there is none.
    ///
    /// # Errors
    /// If it cannot be read or is too long.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Makes a file of these bytes, which are not yet on stable storage.
    ///
    /// # Errors
    /// Then any part of it may be there.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<Box<dyn Draft>>;

    /// Gives a file another name, in place of what has that, at once for everybody who looks.
    ///
    /// # Errors
    /// Then all is as before.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file away.
    ///
    /// # Errors
    /// Then it is still there.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Brings the names of the files to stable storage.
    ///
    /// # Errors
    /// Then nobody knows which of the last changes are there after a crash.
    fn sync(&self) -> io::Result<()>;
}

/// A file that was written.
pub trait Draft {
    /// Brings its content to stable storage.
    ///
    /// # Errors
    /// Then any part of it may be there after a crash.
    fn sync(&self) -> io::Result<()>;
}

impl Draft for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A folder of the system.
#[derive(Debug)]
struct Folder(PathBuf);

impl Shelf for Folder {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.0.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut state = Vec::new();
        let read = file.take(STATE_LEN_MAX + 1).read_to_end(&mut state)?;
        if read as u64 > STATE_LEN_MAX {
            return Err(io::Error::other(format!("{} is too long", path.display())));
        }
        Ok(Some(state))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<Box<dyn Draft>> {
        let options = File::options().write(true).create(true).truncate(true).mode(0o600).clone();
        let mut file = options.open(self.0.join(name))?;
        file.write_all(bytes)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

/// The file of one kind of state of one unit.
#[derive(Debug)]
pub struct StateFile {
    shelf: Box<dyn Shelf>,
    name: String,
    /// Where the next state is written before it takes its place.
    draft: String,
    /// For messages.
    path: PathBuf,
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
        let (mut file, state) = Self::on(Box::new(Folder(folder.to_owned())), identity, kept)?;
        file.path = folder.join(&file.name);
        Ok((file, state))
    }

    /// The same on any shelf.
    ///
    /// # Errors
    /// If there is a file that cannot be read.
    pub fn on(
        shelf: Box<dyn Shelf>,
        identity: &Identity,
        kept: Kept,
    ) -> io::Result<(Self, Option<Vec<u8>>)> {
        let name = name_of(&identity.naa, kept.name());
        let draft = name_of(&identity.naa, &format!("{}.new", kept.name()));
        let state = shelf.read(&name)?;
        let (path, last) = (PathBuf::from(&name), Mutex::new(state.clone()));
        Ok((Self { shelf, name, draft, path, last }, state))
    }

    /// Where the state is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn put(&self, state: &[u8]) -> io::Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.exchange(state)?;
        if let Err(error) = self.shelf.sync() {
            // The new state is there, and nobody relies on it: a restart must not find it.
            let put_back = match &*last {
                Some(last) => self.exchange(last),
                None => self.shelf.remove(&self.name),
            };
            let put_back = put_back.and_then(|()| self.shelf.sync());
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
        let draft = self.shelf.write(&self.draft, state)?;
        draft.sync()?;
        self.shelf.rename(&self.draft, &self.name)
    }
}

/// Where something is kept of the unit with this designator.
pub(crate) fn place(folder: &Path, naa: &[u8], what: &str) -> PathBuf {
    folder.join(name_of(naa, what))
}

fn name_of(naa: &[u8], what: &str) -> String {
    let name: String = naa.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("naa.{name}.{what}")
}

impl Keeper for StateFile {
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
        self.put(state).map_err(|error| {
            tracing::error!(path = %self.path.display(), %error, "cannot keep the state of a unit");
            KeepFailed
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

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
        std::fs::write(folder.path().join(&file.draft), b"ne").expect("room");
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
                    std::fs::write(folder.path().join(open().0.draft), &new[..written])
                        .expect("room");
                    assert_eq!(open().1.as_ref(), Some(&old), "{written} bytes were written");
                }
                open().0.keep(&new).expect("room");
                assert_eq!(open().1.as_ref(), Some(&new));
                old = new;
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), Kept::ALL.len());
    }

    /// A folder whose names cannot be synced once.
    #[derive(Debug)]
    struct Faulty(Folder, AtomicBool);

    impl Shelf for Faulty {
        fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
            self.0.read(name)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> io::Result<Box<dyn Draft>> {
            self.0.write(name, bytes)
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.0.rename(from, to)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }

        fn sync(&self) -> io::Result<()> {
            if self.1.swap(false, Ordering::Relaxed) {
                return Err(io::Error::other("a broken disk"));
            }
            self.0.sync()
        }
    }

    /// The exchange is done, and then the folder cannot be synced: a command that was told so must
    /// not find its change in force after a restart.
    #[test]
    fn what_failed_at_the_last_step_is_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |fails| {
            let shelf = Faulty(Folder(folder.path().to_owned()), AtomicBool::new(fails));
            StateFile::on(Box::new(shelf), &identity(), Kept::Reservations).expect("readable")
        };
        assert_eq!(open(true).0.keep(b"first"), Err(KeepFailed));
        assert_eq!(open(false).1, None);
        open(false).0.keep(b"old").expect("room");
        assert_eq!(open(true).0.keep(b"new"), Err(KeepFailed));
        assert_eq!(open(false).1.as_deref(), Some(&b"old"[..]));
    }

    #[test]
    fn failures_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) =
            StateFile::open(folder.path(), &identity(), Kept::Reservations).expect("made");
        std::fs::create_dir(folder.path().join(&file.draft)).expect("room");
        assert_eq!(file.keep(b"state"), Err(KeepFailed));
        let long = vec![0; usize::try_from(STATE_LEN_MAX).expect("small") + 1];
        std::fs::write(file.path(), long).expect("room");
        assert!(StateFile::open(folder.path(), &identity(), Kept::Reservations).is_err());
    }
}
