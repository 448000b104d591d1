// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps what logical units need over a loss of power in files of one folder, one for each unit and
//! kind of state.
//!
//! A state is written to a draft, synced, and then changes places with the old one; the folder is
//! synced too. So after a crash at any point the old state is there or the new one, whole.
//!
//! What was the state is the next draft, and keeps its space: both files always have space for as
//! much as is kept. So a change that keeps less, as when registrations are released, needs no space
//! that the file system may not have. A file system that writes elsewhere what is written again
//! (Btrfs, ZFS) may still need some, and one whose files cannot change places (NFS) needs a name.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

use scsi::Identity;
use scsi::KeepFailed;
use scsi::Keeper;
use scsi::Kept;

use self::shelf::Folder;

mod shelf;

pub use self::shelf::Draft;
pub use self::shelf::Shelf;

/// The file of one kind of state of one unit.
#[derive(Debug)]
pub struct StateFile {
    shelf: Box<dyn Shelf>,
    name: String,
    /// Where the next state is written before it takes its place.
    draft: String,
    /// The next draft, until it takes that place.
    spare: String,
    /// For messages.
    path: PathBuf,
    last: Mutex<Last>,
}

/// What is there.
#[derive(Debug)]
struct Last {
    state: Option<Vec<u8>>,
    /// The names of the files may not be on stable storage: after a crash the next draft may be
    /// found in the place of the state.
    is_unsettled: bool,
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
        let spare = name_of(&identity.naa, &format!("{}.spare", kept.name()));
        let state = shelf.read(&name)?;
        let path = PathBuf::from(&name);
        // Whoever was here before may have been killed with its names not yet synced: what hosts
        // are told of from now on must stay.
        let synced = shelf.sync();
        if let Err(error) = &synced {
            tracing::warn!(path = name, %error, "cannot sync what is kept of a unit");
        }
        let last = Mutex::new(Last { state: state.clone(), is_unsettled: synced.is_err() });
        let file = Self { shelf, name, draft, spare, path, last };
        if let Some(state) = &state
            && let Err(error) = file.shelf.open(&file.draft, state.len())
        {
            let path = file.path.display();
            tracing::warn!(%path, %error, "no space for a change of what is kept of a unit");
        }
        Ok((file, state))
    }

    /// The place of such a file, and what is in it, if it is there. Makes nothing.
    ///
    /// # Errors
    /// If there is a file that cannot be read or is too long.
    pub fn examine(
        folder: &Path,
        identity: &Identity,
        kept: Kept,
    ) -> io::Result<(PathBuf, Option<Vec<u8>>)> {
        let name = name_of(&identity.naa, kept.name());
        let state = Folder(folder.to_owned()).read(&name)?;
        Ok((folder.join(name), state))
    }

    /// Where the state is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn put(&self, state: &[u8]) -> io::Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_unsettled {
            // Else the draft that is written over may be what a crash brings back.
            self.shelf.sync()?;
        }
        last.is_unsettled = true;
        self.exchange(state)?;
        if let Err(error) = self.shelf.sync() {
            // The new state is there, and nobody relies on it: a restart must not find it.
            let put_back = match &last.state {
                Some(last) => self.exchange(last),
                None => self.shelf.remove(&self.name),
            };
            match put_back.and_then(|()| self.shelf.sync()) {
                Ok(()) => last.is_unsettled = false,
                Err(error) => {
                    let path = self.path.display();
                    tracing::error!(%path, %error, "cannot put the old state of a unit back");
                }
            }
            return Err(error);
        }
        *last = Last { state: Some(state.to_vec()), is_unsettled: false };
        Ok(())
    }

    fn exchange(&self, state: &[u8]) -> io::Result<()> {
        // The next draft first: without it what is kept now could not be released later.
        let there = self.shelf.set_aside(&self.name, state.len())?;
        // Over what is in it, which gives no space back before it is used again.
        let mut draft = self.shelf.open(&self.draft, state.len())?;
        draft.write(state)?;
        draft.sync()?;
        if there && self.shelf.exchange(&self.draft, &self.name)? {
            return Ok(());
        }
        self.shelf.open(&self.spare, state.len())?;
        self.shelf.rename(&self.draft, &self.name)?;
        // The state is there; without this name the next change makes another one.
        let _ = self.shelf.rename(&self.spare, &self.draft);
        Ok(())
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
    use std::fs::File;
    use std::io::Write;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering;

    use super::shelf::STATE_LEN_MAX;
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
        assert_eq!(names(&folder), 2, "the state, and room for the next one");
    }

    fn names(folder: &Path) -> usize {
        std::fs::read_dir(folder).expect("readable").count()
    }

    /// A small file system of memory, as long as it lives.
    struct Small(tempfile::TempDir);

    impl Small {
        /// None: whoever runs this test may not mount any.
        fn mount() -> Option<Self> {
            let folder = tempfile::tempdir().expect("a folder");
            let mut mount = std::process::Command::new("mount");
            let small = ["-t", "tmpfs", "-o", "size=128k,nr_inodes=32", "tmpfs"];
            let done = mount.args(small).arg(folder.path()).output().ok()?;
            done.status.success().then_some(Self(folder))
        }

        /// Takes all room and all names.
        fn fill(&self) {
            let mut ballast = File::create(self.0.path().join("ballast")).expect("room");
            while ballast.write_all(&[1; 512]).is_ok() {}
            for number in 0.. {
                if File::create(self.0.path().join(number.to_string())).is_err() {
                    return;
                }
            }
        }
    }

    impl Drop for Small {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg(self.0.path()).output();
        }
    }

    /// What releases takes no more room than what it releases took: it goes on where there is
    /// none, again and again, and is what a restart finds.
    #[test]
    fn what_takes_less_room_is_kept_in_a_full_folder() {
        let Some(small) = Small::mount() else {
            eprintln!("cannot mount a file system; nothing was tested");
            return;
        };
        let folder = small.0.path();
        let open = || StateFile::open(folder, &identity(), Kept::Reservations).expect("readable");
        let (file, _) = open();
        file.keep(&[1; 100]).expect("room");
        file.keep(&[2; 9000]).expect("room");
        small.fill();
        assert_eq!(file.keep(&[3; 60_000]), Err(KeepFailed), "more than there was");
        assert_eq!(open().1, Some(vec![2; 9000]));
        // Of many registrations one goes, then all; and after a restart the same.
        let (mut file, mut length) = (file, 9000);
        for turn in 4..10 {
            length = length * 7 / 8;
            assert_eq!(file.keep(&vec![turn; length]), Ok(()), "{length} bytes");
            let (again, state) = open();
            assert_eq!(state, Some(vec![turn; length]));
            file = again;
        }
        assert_eq!(file.keep(&[9; 32]), Ok(()));
        assert_eq!(open().1, Some(vec![9; 32]));
    }

    /// The same where nothing can be mounted: no name and no block is new.
    #[test]
    fn what_takes_less_room_is_written_where_there_is_some() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) =
            StateFile::open(folder.path(), &identity(), Kept::Reservations).expect("made");
        file.keep(&[1; 100]).expect("room");
        file.keep(&[2; 20_000]).expect("room");
        let inodes = || {
            [&file.name, &file.draft]
                .map(|name| folder.path().join(name).metadata().expect("it is").ino())
        };
        let mut before = inodes();
        let blocks = folder.path().join(&file.draft).metadata().expect("it is").blocks();
        assert!(blocks * 512 >= 20_000, "there is room for as much: {blocks} blocks");
        for length in [19_000, 5000, 32] {
            file.keep(&vec![3; length]).expect("room");
            before.reverse();
            assert_eq!(inodes(), before, "the two files change places");
        }
    }

    /// A folder of an older daemon has the state alone: room is made when it is opened.
    #[test]
    fn room_is_made_for_a_state_that_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let open =
            || StateFile::open(folder.path(), &identity(), Kept::Reservations).expect("readable");
        std::fs::write(open().0.path(), [7; 5000]).expect("room");
        assert_eq!(open().1, Some(vec![7; 5000]));
        assert_eq!(names(folder.path()), 2);
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
        assert_eq!(names(folder.path()), 2 * Kept::ALL.len());
    }

    /// A folder whose names cannot be synced once: when so many syncs have gone well.
    #[derive(Debug)]
    struct Faulty(Folder, AtomicU32);

    impl Shelf for Faulty {
        fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
            self.0.read(name)
        }

        fn set_aside(&self, name: &str, length: usize) -> io::Result<bool> {
            self.0.set_aside(name, length)
        }

        fn open(&self, name: &str, length: usize) -> io::Result<Box<dyn Draft>> {
            self.0.open(name, length)
        }

        fn exchange(&self, one: &str, other: &str) -> io::Result<bool> {
            self.0.exchange(one, other)
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.0.rename(from, to)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }

        fn sync(&self) -> io::Result<()> {
            if self.1.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err(io::Error::other("a broken disk"));
            }
            self.0.sync()
        }
    }

    /// The exchange is done, and then the folder cannot be synced: a command that was told so must
    /// not find its change in force after a restart.
    #[test]
    fn what_failed_at_the_last_step_is_taken_back() {
        // The first is for what may have been left unsynced before.
        const SECOND: u32 = 1;
        const NEVER: u32 = u32::MAX;
        let folder = tempfile::tempdir().expect("a folder");
        let open = |before| {
            let shelf = Faulty(Folder(folder.path().to_owned()), AtomicU32::new(before));
            StateFile::on(Box::new(shelf), &identity(), Kept::Reservations).expect("readable")
        };
        assert_eq!(open(SECOND).0.keep(b"first"), Err(KeepFailed));
        assert_eq!(open(NEVER).1, None);
        open(NEVER).0.keep(b"old").expect("room");
        assert_eq!(open(SECOND).0.keep(b"new"), Err(KeepFailed));
        assert_eq!(open(NEVER).1.as_deref(), Some(&b"old"[..]));
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
