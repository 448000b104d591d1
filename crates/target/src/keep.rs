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
    /// The next draft, until it takes that place.
    spare: PathBuf,
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
        let spare = place(folder, &identity.naa, &format!("{}.spare", kept.name()));
        let state = match files::read_whole(&path, STATE_LEN_MAX) {
            Ok(state) => Some(state),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(io::Error::other(format!("{} is too long", path.display())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let last = Mutex::new(state.clone());
        let file = Self { folder: folder.to_owned(), path, draft, spare, last };
        if let Some(state) = &state
            && let Err(error) = Self::with_space(&file.draft, state.len())
        {
            let path = file.path.display();
            tracing::warn!(%path, %error, "no space for a change of what is kept of a unit");
        }
        Ok((file, state))
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
        // The next draft first: without it what is kept now could not be released later.
        let there = match File::options().write(true).open(&self.path) {
            Ok(old) => files::set_aside(&old, state.len() as u64).map(|()| true)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        // Over what is in it, which gives no space back before it is used again.
        let mut file = Self::with_space(&self.draft, state.len())?;
        file.write_all(state)?;
        file.set_len(state.len() as u64)?;
        file.sync_all()?;
        if there && files::exchange(&self.draft, &self.path)? {
            return Ok(());
        }
        Self::with_space(&self.spare, state.len())?;
        std::fs::rename(&self.draft, &self.path)?;
        // The state is there; without this name the next change makes another one.
        let _ = std::fs::rename(&self.spare, &self.draft);
        Ok(())
    }

    /// The file `path`, with what is in it, and with space for `length` bytes.
    fn with_space(path: &Path, length: usize) -> io::Result<File> {
        let options = File::options().write(true).create(true).truncate(false).mode(0o600).clone();
        let file = options.open(path)?;
        files::set_aside(&file, length as u64)?;
        Ok(file)
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
        let inodes = || [&file.path, &file.draft].map(|path| path.metadata().expect("it is").ino());
        let mut before = inodes();
        let blocks = file.draft.metadata().expect("it is").blocks();
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
        assert_eq!(names(folder.path()), 2 * Kept::ALL.len());
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
