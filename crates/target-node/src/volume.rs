// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done to a served disk as a whole: another size, a look at its file, a snapshot.
//!
//! Growing: the file first, then what hosts see. Shrinking: what hosts see first, then the requests
//! that are under way end, then the file; so no request meets an end that it does not know of.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use engine::FileRefused;
use engine::files::Name;
use engine::files::SnapshotError;
use scsi::LogicalUnit;
use store::Store;

use crate::mail::Answered;
use crate::mail::Answers;
use crate::pump::Letter;
use crate::reactor::PATIENCE;
use crate::reactor::Target;
use crate::stores::StoreFile;

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

/// Why a disk stays as it is; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// No such target.
    #[error("no target {0}; try: lunwire status")]
    NoTarget(String),
    /// No such LUN.
    #[error("no LUN {lun} at {target}; try: lunwire status")]
    NoLun {
        /// The target.
        target: String,
        /// The number.
        lun: u16,
    },
    /// Not one writable file.
    #[error(
        "LUN {lun} is not one writable file or image: only file: without protection, and rbd:, \
         both without readonly, can do this"
    )]
    NotAFile {
        /// The number.
        lun: u16,
    },
    /// A file, where there is none.
    #[error(
        "LUN {lun} is an image, whose snapshot has a name and is no file: {path} is none; try: \
         lunwire lun snapshot {lun} {}",
        .path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("monday")
    )]
    NoName {
        /// The number.
        lun: u16,
        /// What was asked for.
        path: String,
    },
    /// What is no file has refused it.
    #[error("LUN {lun}: {said}")]
    Behind {
        /// The number.
        lun: u16,
        /// Why, and what to do.
        said: String,
    },
    /// A device has the size that it has.
    #[error("{path} is a block device: grow it where it comes from, then: lunwire lun rescan")]
    BlockDevice {
        /// The device.
        path: String,
    },
    /// Zero, or not whole blocks.
    #[error(
        "{bytes} bytes is no size for LUN {lun}: it must be a multiple of {block}, and not zero; \
         try: {}",
        nearest(*.bytes, *.block)
    )]
    Size {
        /// The number.
        lun: u16,
        /// The size asked for.
        bytes: u64,
        /// Its block length.
        block: u32,
    },
    /// Smaller, and nobody said that it may.
    #[error(
        "{bytes} bytes is less than the {before} that LUN {lun} has: what lies behind would be \
         lost; try: --shrink, after the file system on it has been made smaller"
    )]
    Smaller {
        /// The number.
        lun: u16,
        /// The size asked for.
        bytes: u64,
        /// Its size.
        before: u64,
    },
    /// What the file holds may not be what hosts were told.
    #[error(
        "{path}, which is LUN {lun}, could not write back: blocks that hosts wrote may be lost; \
         try: write them again and flush, and then this"
    )]
    Lost {
        /// The number.
        lun: u16,
        /// The file.
        path: String,
    },
    /// Requests do not end.
    #[error("requests behind the new end of LUN {lun} did not end in time; it is as it was")]
    Busy {
        /// The number.
        lun: u16,
    },
    /// No file can have that size where it is.
    #[error(
        "{path} cannot have {bytes} bytes: that is more than its file system, or ulimit -f of the \
         daemon, lets a file have; try: a smaller size"
    )]
    TooLarge {
        /// The file.
        path: String,
        /// The size that was asked for.
        bytes: u64,
    },
    /// The kernel says no.
    #[error("cannot resize {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// Another one has the number.
    #[error("LUN {lun} is at {target} already; try: another --number")]
    Taken {
        /// The target.
        target: String,
        /// The number.
        lun: u16,
    },
    /// It is for an initiator that may not log in.
    #[error("{name} may not log in to the target; try: one of its [[target.initiator]]")]
    NotAdmitted {
        /// The initiator.
        name: String,
    },
    /// All numbers are taken, or were.
    #[error("each number was used at {target}; try: --number with that of a LUN that was removed")]
    Full {
        /// The target.
        target: String,
    },
    /// FORMAT UNIT or SANITIZE is under way.
    #[error("LUN {lun} is being wiped (FORMAT UNIT or SANITIZE); try: again when that is over")]
    Wiping {
        /// The number.
        lun: u16,
    },
    /// Its work does not end.
    #[error(
        "LUN {lun} is not served any more, but requests to what is behind it do not end: it stays \
         open until {}",
        match .who {
            Some(who) => format!("the {who} answers"),
            None => "the daemon ends".to_owned(),
        }
    )]
    Lingers {
        /// The number.
        lun: u16,
        /// Who does not answer, in a word, where it is somebody elsewhere.
        who: Option<&'static str>,
    },
    /// What was written may not have reached the medium.
    #[error("LUN {lun} is not served any more, but {path} cannot be flushed: {source}")]
    Flush {
        /// The number.
        lun: u16,
        /// The file.
        path: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The same of what is no file.
    #[error(
        "LUN {lun} is not served any more, but {}",
        match .source {
            store::Error::Silent => {
                "what is behind it does not answer: it is closed when that does".to_owned()
            }
            source => format!(
                "cannot be closed: {source}; writes that were acknowledged may be lost"
            ),
        }
    )]
    Finish {
        /// The number.
        lun: u16,
        /// What is wrong.
        source: store::Error,
    },
    /// A reactor has no place for a file.
    #[error("a file of the disk cannot be served: {0}")]
    Refused(#[from] FileRefused),
    /// Who has asked is gone.
    #[error("nobody waits for it any more: nothing was done")]
    Unwanted,
    /// A reactor does not answer.
    #[error("a reactor does not answer; it is as it was")]
    Silent,
    /// No snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// The sizes next to `bytes` that a disk of such blocks can have.
fn nearest(bytes: u64, block: u32) -> String {
    let block = u64::from(block);
    let most = i64::MAX.unsigned_abs() / block * block;
    match bytes - bytes % block {
        0 => format!("{block}"),
        below if below >= most => format!("{most}"),
        below => format!("{below} or {}", below + block),
    }
}

/// A disk whose file is another size than what hosts see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescanned {
    /// The target.
    pub target: String,
    /// The number of the disk.
    pub lun: u16,
    /// What hosts saw before, bytes.
    pub before: u64,
    /// The size of the file, in whole blocks. Hosts see it if it is larger; a disk does not become
    /// smaller by itself.
    pub now: u64,
}

/// A disk of which nobody knows what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unseen {
    /// The target.
    pub target: String,
    /// The number of the disk.
    pub lun: u16,
    /// Why, and what to try.
    pub why: String,
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
        tracing::info!(target, lun, before, now = bytes, "resized");
        Ok(Resized { before, now: bytes })
    }

    /// Looks at what is behind all disks, and takes over the size of what grew. Gives the
    /// ones whose size is another one; those that are smaller stay as they are. A disk that takes
    /// another size meanwhile is left out.
    pub fn rescan(&self) -> Vec<Rescanned> {
        self.note_names();
        self.take_over_sizes(|target, lun, unit| match self.file_of(unit) {
            None => unit.store().bytes_behind(),
            Some(file) => match engine::files::size(&file.fd) {
                Ok(bytes) => Some(bytes),
                Err(error) => {
                    tracing::warn!(target, lun, %error, "cannot ask for the size of a disk");
                    None
                }
            },
        })
    }

    /// Has all stores that must be asked say what is behind them, side by side: those of a cluster
    /// that does not answer are waited for once. Gives the disks of which nobody knows.
    pub fn look_behind(&self) -> Vec<Unseen> {
        let disks: Vec<_> = self.disks().collect();
        let why = |unit: &Arc<LogicalUnit>| match self.occupied().at_once(unit) {
            // Whoever does something to it hears of what does not answer.
            None => {
                unit.store().elsewhere().map(|_| "another order for it is under way".to_owned())
            }
            Some(free) => {
                drop(free);
                unit.store().look_behind()?.err()
            }
        };
        let why = &why;
        std::thread::scope(|scope| {
            let looks: Vec<_> = disks
                .iter()
                .map(|(target, lun, unit)| (target, *lun, scope.spawn(move || why(unit))))
                .collect();
            let unseen = looks.into_iter().filter_map(|(target, lun, look)| {
                // One that has panicked has said why.
                let why = look.join().unwrap_or_default()?;
                Some(Unseen { target: target.clone(), lun, why })
            });
            unseen.collect()
        })
    }

    /// The same for disks whose stores hear by themselves of another size. Costs nothing.
    pub fn note_sizes(&self) -> Vec<Rescanned> {
        self.take_over_sizes(|_, _, unit| unit.store().bytes_behind())
    }

    fn take_over_sizes(
        &self,
        size: impl Fn(&str, u16, &LogicalUnit) -> Option<u64>,
    ) -> Vec<Rescanned> {
        let mut changed = Vec::new();
        for (target, lun, unit) in self.disks() {
            let Some(_one_at_a_time) = self.occupied().at_once(&unit) else { continue };
            let Some(bytes) = size(&target, lun, &unit) else { continue };
            let (before, now) = (bytes_of(&unit), bytes - bytes % u64::from(unit.block()));
            self.tell_shrunk(&target, lun, &unit, now);
            if now == before {
                continue;
            }
            if now > before {
                show(&unit, now);
                tracing::info!(target, lun, before, now, "a disk has grown");
            }
            changed.push(Rescanned { target, lun, before, now });
        }
        changed
    }

    /// What is behind a disk has `now` bytes: if that is less than hosts see, it is told, once.
    fn tell_shrunk(&self, target: &str, lun: u16, unit: &LogicalUnit, now: u64) {
        let (before, disk) = (bytes_of(unit), unit.identity().serial.as_str());
        let mut shrunk = self.shrunk().lock().unwrap_or_else(PoisonError::into_inner);
        if now >= before {
            if shrunk.remove(disk).is_some() {
                tracing::info!(target, lun, now, "a disk has all again that hosts see of it");
            }
        } else if shrunk.insert(disk.to_owned(), now) != Some(now) {
            tracing::warn!(
                target,
                lun,
                store = unit.label(),
                before,
                now,
                "a disk has become smaller than hosts see it: what reaches behind its end fails; \
                 try: make it as large as before, or, after the file system on it was made \
                 smaller, lunwire lun resize {lun} {now} --shrink"
            );
        }
    }

    /// A disk is served no more.
    pub(crate) fn forget_shrunk(&self, unit: &LogicalUnit) {
        let mut shrunk = self.shrunk().lock().unwrap_or_else(PoisonError::into_inner);
        shrunk.remove(unit.identity().serial.as_str());
    }

    /// The bytes that were behind a disk at the last look, where these are less than hosts see.
    pub(crate) fn shrunk_bytes_of(&self, unit: &LogicalUnit) -> Option<u64> {
        let shrunk = self.shrunk().lock().unwrap_or_else(PoisonError::into_inner);
        let now = shrunk.get(unit.identity().serial.as_str()).copied();
        now.filter(|now| *now < bytes_of(unit))
    }

    /// Tells each thin disk how much space its file takes and how much is left, so that hosts hear
    /// when it runs out.
    pub fn note_usage(&self) {
        for (target, lun, unit) in self.disks() {
            let file = self.file_of(&unit).filter(|file| file.writable && !file.block_device);
            let Some(file) = file else { continue };
            let was_short = unit.is_short_of_space();
            match engine::files::usage(&file.fd) {
                Ok(engine::files::Usage { used, available }) => {
                    unit.note_usage(store::Usage { used, available, shared: true });
                    if unit.is_short_of_space() && !was_short {
                        tracing::warn!(target, lun, used, available, "a disk runs out of space");
                    }
                }
                Err(error) => tracing::warn!(target, lun, %error, "cannot ask for free space"),
            }
        }
    }

    /// Looks whether the files behind all disks can still be found by their paths. What is written
    /// to one that was deleted is gone when it is served no more, and that is told once.
    pub fn note_names(&self) {
        for (target, lun, unit) in self.disks() {
            for file in self.files_of(&unit) {
                // Whoever cannot be asked now is asked again.
                let Ok(now) = engine::files::name(&file.fd, file.path.as_ref()) else { continue };
                let mut name = file.name.lock().unwrap_or_else(PoisonError::into_inner);
                if std::mem::replace(&mut *name, now) == now {
                    continue;
                }
                let path = &*file.path;
                match astray(now) {
                    None => tracing::info!(target, lun, path, "the file of a disk is back"),
                    Some(how) => tracing::warn!(
                        target,
                        lun,
                        path,
                        "the file of a disk was {how} while it is served: nobody will find there \
                         what hosts write; try: lunwire copy the disk to another file before its \
                         LUN is removed or the daemon ends"
                    ),
                }
            }
        }
    }

    /// What has become of a file of a disk that was not found by its path at the last look:
    /// `deleted`, `replaced` or `moved`.
    pub(crate) fn astray_file_of(&self, unit: &LogicalUnit) -> Option<&'static str> {
        self.files_of(unit)
            .find_map(|file| astray(*file.name.lock().unwrap_or_else(PoisonError::into_inner)))
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
    fn files_of(&self, unit: &LogicalUnit) -> impl Iterator<Item = StoreFile> + '_ {
        unit.store().files().into_iter().filter_map(|id| self.files().find(id))
    }

    fn file_of(&self, unit: &LogicalUnit) -> Option<StoreFile> {
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

/// A name that is lost, in a word.
const fn astray(name: Name) -> Option<&'static str> {
    match name {
        Name::Kept => None,
        Name::Moved => Some("moved"),
        Name::Replaced => Some("replaced"),
        Name::Deleted => Some("deleted"),
    }
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
