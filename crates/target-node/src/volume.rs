// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done to a served disk as a whole: another size, a snapshot.
//!
//! Growing: the file first, then what hosts see. Shrinking: what hosts see first, then the requests
//! that are under way end, then the file; so no request meets an end that it does not know of.

mod error;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use engine::files::SnapshotError;
use scsi::LogicalUnit;
use store::Store;

use crate::events::Event;
use crate::mail::Answered;
use crate::mail::Answers;
use crate::pump::Letter;
use crate::stores::StoreFile;
use crate::target::PATIENCE;
use crate::target::Target;

pub use error::VolumeError;

/// Requests that are under way beyond a new end, and answers to letters, get so long.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Whether a disk may lose what lies behind a smaller end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // yes or no
pub enum Shrink {
    /// It must not become smaller.
    Refused,
    /// The user has said so.
    Allowed,
}

/// Where a snapshot is to be.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs)] // whoever wants one says both
pub struct SnapshotPlace<'a> {
    /// The file that it is to be, of a disk in a file.
    pub path: &'a Path,
    /// What it is to be called, of what is no file; None: a file was asked for.
    pub name: Option<&'a str>,
}

/// What became of the size of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// What hosts saw before, bytes.
    pub before: u64,
    /// What they see now.
    pub now: u64,
}

/// A snapshot that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its size.
    pub bytes: u64,
    /// What it is called, where it is no file.
    pub name: Option<String>,
}

/// One writable file and the disk on it.
struct Volume {
    unit: Arc<LogicalUnit>,
    /// None: its store is no file.
    file: Option<StoreFile>,
}

impl Target {
    /// Gives the disk `lun` of `target`, which must be one regular file or have a store that can do
    /// it, another size; hosts are told (CAPACITY DATA HAS CHANGED).
    ///
    /// # Errors
    /// See [`VolumeError`]; the disk is as it was then.
    pub fn resize(
        &self,
        target: &str,
        lun: u16,
        bytes: u64,
        shrink: Shrink,
    ) -> Result<Resized, VolumeError> {
        self.resize_while(&|| true, target, lun, bytes, shrink)
    }

    /// The same for somebody who may go away: what has not begun then does not begin.
    ///
    /// # Errors
    /// As [`resize`](Self::resize), and [`VolumeError::Unwanted`].
    pub fn resize_while(
        &self,
        is_wanted: &dyn Fn() -> bool,
        target: &str,
        lun: u16,
        bytes: u64,
        shrink: Shrink,
    ) -> Result<Resized, VolumeError> {
        let Volume { unit, file } = self.volume(target, lun)?;
        let _one_at_a_time = self.occupied().wait(&unit);
        wanted(is_wanted)?;
        let block = unit.block();
        if bytes == 0 || !bytes.is_multiple_of(u64::from(block)) || i64::try_from(bytes).is_err() {
            return Err(VolumeError::Size { lun, bytes, block });
        }
        let before = bytes_of(&unit);
        if bytes < before && shrink == Shrink::Refused {
            return Err(VolumeError::Smaller { lun, bytes, before });
        }
        let resize = || match &file {
            Some(file) => resize_file(file, bytes),
            None => match unit.store().resize_behind(bytes, is_wanted) {
                None => Err(VolumeError::NotAFile { lun }),
                Some(done) => done.map_err(|said| VolumeError::Behind { lun, said }),
            },
        };
        match &file {
            Some(file) if file.block_device => {
                return Err(VolumeError::BlockDevice { path: file.path.clone() });
            }
            Some(file) if file.health.has_failed() => {
                return Err(VolumeError::Lost { lun, path: file.path.clone() });
            }
            _ => {}
        }
        if bytes >= before {
            resize()?;
            show(&unit, bytes);
        } else {
            show_less(&unit, bytes);
            let done = if self.drained(&unit) { resize() } else { Err(VolumeError::Busy { lun }) };
            if let Err(error) = done {
                show(&unit, before);
                return Err(error);
            }
        }
        tracing::info!(name: Event::Lun.name(), target, lun, before, now = bytes, "resized");
        Ok(Resized { before, now: bytes })
    }

    /// Makes `path` a file with the present content of the disk `lun` of `target`, by sharing its
    /// blocks; of what is no file a snapshot of its own kind, called `name`.
    ///
    /// # Errors
    /// See [`VolumeError`]; nothing is left at `path` then.
    pub fn snapshot(
        &self,
        target: &str,
        lun: u16,
        place: SnapshotPlace<'_>,
    ) -> Result<Snapshot, VolumeError> {
        self.snapshot_while(&|| true, target, lun, place)
    }

    /// The same for somebody who may go away: what has not begun then does not begin.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot), and [`VolumeError::Unwanted`].
    pub fn snapshot_while(
        &self,
        is_wanted: &dyn Fn() -> bool,
        target: &str,
        lun: u16,
        SnapshotPlace { path, name }: SnapshotPlace<'_>,
    ) -> Result<Snapshot, VolumeError> {
        let Volume { unit, file } = self.volume(target, lun)?;
        let _one_at_a_time = self.occupied().wait(&unit);
        wanted(is_wanted)?;
        let bytes = bytes_of(&unit);
        let Some(file) = file else {
            // Without a name it says whether there can be any.
            let done = unit.store().snapshot_behind(name.unwrap_or_default(), is_wanted);
            let done = done.ok_or(VolumeError::NotAFile { lun })?;
            let path = path.display().to_string();
            name.ok_or(VolumeError::NoName { lun, path })?;
            let name = done.map_err(|said| VolumeError::Behind { lun, said })?;
            tracing::info!(target, lun, name, bytes, "snapshot");
            return Ok(Snapshot { bytes, name: Some(name) });
        };
        if file.block_device {
            return Err(SnapshotError::Unsupported { path: path.into() }.into());
        }
        if file.health.has_failed() {
            return Err(VolumeError::Lost { lun, path: file.path });
        }
        engine::files::snapshot(&file.fd, path)?;
        tracing::info!(target, lun, path = %path.display(), bytes, "snapshot");
        Ok(Snapshot { bytes, name: None })
    }

    /// The size that hosts see of the disk `lun` of `target`, bytes.
    #[must_use]
    pub fn disk_bytes(&self, target: &str, lun: u16) -> Option<u64> {
        let mut all = self.disks();
        all.find(|(name, number, _)| name == target && *number == lun)
            .map(|(_, _, unit)| bytes_of(&unit))
    }

    /// Where the disk with this NAA designator is served.
    #[must_use]
    pub fn find_disk(&self, naa: &[u8]) -> Option<(String, u16)> {
        self.disks()
            .find(|(_, _, unit)| unit.identity().naa == naa)
            .map(|(target, number, _)| (target, number))
    }

    fn volume(&self, target: &str, lun: u16) -> Result<Volume, VolumeError> {
        if !self.disks().any(|(name, _, _)| name == target) {
            return Err(VolumeError::NoTarget(target.to_owned()));
        }
        let unit = self
            .disks()
            .find(|(name, number, _)| name == target && *number == lun)
            .map(|(_, _, unit)| unit)
            .ok_or_else(|| VolumeError::NoLun { target: target.to_owned(), lun })?;
        let file = self.file_of(&unit);
        let fits = match &file {
            Some(file) => file.writable,
            None => unit.store().files().is_empty() && !unit.store().geometry().read_only,
        };
        if fits { Ok(Volume { unit, file }) } else { Err(VolumeError::NotAFile { lun }) }
    }

    /// All files behind a disk.
    pub(crate) fn files_of(&self, unit: &LogicalUnit) -> impl Iterator<Item = StoreFile> + '_ {
        unit.store().files().into_iter().filter_map(|id| self.files().find(id))
    }

    pub(crate) fn file_of(&self, unit: &LogicalUnit) -> Option<StoreFile> {
        self.files().find(unit.store().file()?)
    }

    /// True when no reactor has work on `unit` left that it had before.
    fn drained(&self, unit: &Arc<LogicalUnit>) -> bool {
        self.ask_reactors(|reply| Letter::Drain { unit: Arc::clone(unit), reply })
    }

    /// True when every reactor has answered a letter that may wait for work under way.
    fn ask_reactors(&self, letter: impl Fn(Sender<()>) -> Letter) -> bool {
        Answers::ask(self.mailboxes(), letter).within(DRAIN_MAX).silent.is_empty()
    }

    /// True when every reactor has answered a letter that waits for nothing.
    pub(crate) fn tell_reactors(&self, letter: impl Fn(Sender<()>) -> Letter) -> bool {
        self.answers(letter).is_some()
    }

    /// What every reactor answers to a letter that waits for nothing; None if one does not.
    pub(crate) fn answers<T>(&self, letter: impl Fn(Sender<T>) -> Letter) -> Option<Vec<T>> {
        let Answered { answers, silent } = Answers::ask(self.mailboxes(), letter).within(PATIENCE);
        silent.is_empty().then_some(answers)
    }

    pub(crate) fn volumes(&self) -> MutexGuard<'_, ()> {
        self.volume_lock().lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wanted(is_wanted: &dyn Fn() -> bool) -> Result<(), VolumeError> {
    if is_wanted() { Ok(()) } else { Err(VolumeError::Unwanted) }
}

fn resize_file(file: &StoreFile, bytes: u64) -> Result<(), VolumeError> {
    let path = file.path.clone();
    file.synced(|fd| engine::files::resize(fd, bytes)).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => VolumeError::TooLarge { path, bytes },
        _ => VolumeError::File { path, source },
    })
}

/// Whether a disk could not write back what it has acknowledged, and that was not written again
/// since: flushes fail.
pub(crate) fn may_have_lost_writes(unit: &LogicalUnit) -> bool {
    let store = unit.store();
    let health = store.files().into_iter().filter_map(|file| store.health(file));
    health.into_iter().any(|health| health.has_failed()) || store.may_have_lost()
}

/// Bytes that hosts see.
pub(crate) fn bytes_of(unit: &LogicalUnit) -> u64 {
    unit.blocks() * u64::from(unit.block())
}

/// Hosts see `bytes` from now on, which is less than before.
pub(crate) fn show_less(unit: &LogicalUnit, bytes: u64) {
    show(unit, bytes);
    unit.cut_off(bytes);
}

/// Hosts see `bytes` from now on.
pub(crate) fn show(unit: &LogicalUnit, bytes: u64) {
    let store: &Arc<dyn Store> = unit.store();
    if store.set_bytes(bytes)
        && let Err(error) = unit.resized()
    {
        tracing::error!(%error, "a disk keeps its size");
    }
}
