// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of sessions: one for each, whole at any time, and locked as long as its process lives.

use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::TryLockError;
use std::io;
use std::io::ErrorKind;
use std::io::Seek as _;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use serde::Deserialize;
use serde::Serialize;
use wire::iscsi::Isid;

/// The folder, within that of the state.
const FOLDER: &str = "sessions";

const KIND: &str = "json";

/// Of one that is being written.
const DRAFT: &str = "new";

/// Nobody writes one for so long.
const DRAFT_MAX: Duration = Duration::from_secs(60);

/// A process that was killed gives its memory back first, and what it has open then.
const DYING_MAX: Duration = Duration::from_secs(60);

/// How often it is looked whether it is gone.
const DYING_LOOK: Duration = Duration::from_millis(20);

/// So often others may take the folder away meanwhile.
const FOLDERS_GONE_MAX: usize = 100;

/// One session, as far as another process has to know it that ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) url: String,
    pub(super) target: Option<String>,
    pub(super) lun: u16,
    pub(super) initiator: String,
    pub(super) isid: [u8; 6],
    pub(super) portal: String,
    pub(super) group: Option<u16>,
    pub(super) disk: Option<String>,
    /// Whose it is.
    pub(super) pid: u32,
}

impl Record {
    pub(super) const fn isid(&self) -> Isid {
        Isid(self.isid)
    }

    /// Whether a portal that said that it is of `group` is of that of the session. Where a group is
    /// not told, that is sure of the same portal alone.
    pub(super) fn is_in_group_of(&self, portal: &str, group: Option<u16>) -> bool {
        let is_same = self.group.zip(group).map(|(one, other)| one == other);
        is_same.unwrap_or(self.portal == portal)
    }

    /// Whether the target has ended the session of `other` when this one began, which is younger.
    pub(super) fn is_in_the_place_of(&self, other: &Self) -> bool {
        let is_same_port = self.initiator == other.initiator && self.isid == other.isid;
        let is_same_target = self.target == other.target;
        is_same_port && is_same_target && other.is_in_group_of(&self.portal, self.group)
    }

    /// The name of its file: a nexus has one session.
    fn name(&self) -> String {
        let nexus = format!("{}\n{:?}\n{}", self.initiator, self.target, self.portal);
        let isid: String = self.isid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{isid}-{:08x}", crc::crc32c(nexus.as_bytes()))
    }
}

/// The file of a session of this process.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) record: Record,
    path: PathBuf,
    file: File,
}

impl Held {
    /// Writes down a session; with what error, and where, it cannot be.
    pub(super) fn write(folder: &Path, record: Record) -> Result<Self, (PathBuf, io::Error)> {
        let path = folder.join(record.name()).with_extension(KIND);
        let draft = path.with_extension(format!("{}.{DRAFT}", std::process::id()));
        let written = within(folder, || write(&draft, &path, &record));
        if written.is_err() {
            // It may be a part of it.
            let _ = fs::remove_file(&draft);
        }
        match written {
            Ok(file) => Ok(Self { record, path, file }),
            Err(error) => Err((path, error)),
        }
    }

    /// Nothing of the session is left.
    pub(super) fn remove(self) {
        remove(&self.path, &self.file);
    }
}

fn write(draft: &Path, path: &Path, record: &Record) -> io::Result<File> {
    let mut flags = File::options();
    let mut file = flags.write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    // It never has its name without the lock.
    file.lock()?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    fs::rename(draft, path)?;
    engine::files::sync_name(path, &file)?;
    Ok(file)
}

/// Takes `path` away, unless it is another file than `file` by now.
fn remove(path: &Path, file: &File) {
    if is_at(path, file) {
        // One that stays has somebody end what has ended.
        let _ = fs::remove_file(path);
        // There may be others in it.
        let _ = path.parent().map(fs::remove_dir);
    }
}

fn is_at(path: &Path, file: &File) -> bool {
    let number = |facts: io::Result<fs::Metadata>| facts.map(|it| (it.dev(), it.ino())).ok();
    let own = number(file.metadata());
    own.is_some() && own == number(fs::symlink_metadata(path))
}

/// The file of a session whose process is gone; nobody else has it.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) record: Record,
    pub(super) path: PathBuf,
    file: File,
}

impl Orphan {
    /// Nothing of the session is left.
    pub(super) fn forget(self) {
        remove(&self.path, &self.file);
    }
}

/// Where the files are for a process that keeps its state in `state`.
pub(super) fn folder(state: &Path) -> PathBuf {
    let folder = state.join(FOLDER);
    // What messages name is found from everywhere.
    std::path::absolute(&folder).unwrap_or(folder)
}

/// Does what needs the folder, which whoever ends the last session in it may take away meanwhile.
fn within<T>(folder: &Path, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let once = || make(folder).and_then(|()| act());
    let mut done = once();
    for _ in 0..FOLDERS_GONE_MAX {
        match &done {
            Err(error) if error.kind() == ErrorKind::NotFound => done = once(),
            _ => break,
        }
    }
    done
}

/// Makes the folder, for its user alone, if it is missing.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => engine::files::sync_name(folder, &File::open(folder)?),
        // An error of this says that it is gone again.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match folder.metadata()? {
            facts if facts.is_dir() => Ok(()),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Nobody else ends sessions in `folder` as long as this is there.
pub(super) fn lock(folder: &Path) -> io::Result<File> {
    let lock = within(folder, || File::open(folder))?;
    lock.lock()?;
    Ok(lock)
}

/// All sessions of processes that are gone. One that is dying is waited for, where a session
/// with its disk `matters`.
pub(super) fn orphans(folder: &Path, matters: impl Fn(&Record) -> bool) -> Result<Vec<Orphan>> {
    let mut orphans = Vec::new();
    let unreadable = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let shown = path.display();
        if path.extension().is_some_and(|kind| kind == DRAFT) {
            sweep(&path);
        }
        if path.extension().is_none_or(|kind| kind != KIND) {
            continue;
        }
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file.with_context(|| format!("cannot read {shown}"))?,
        };
        if !is_left(&file, &matters).with_context(|| format!("cannot lock {shown}"))? {
            continue;
        }
        // Its process may have ended in order, or written it anew.
        if !is_at(&path, &file) {
            continue;
        }
        let record = read(&file).map_err(|error| {
            anyhow!(
                "{shown} is no session ({error}), and what it was is not known; try: rm {shown}, \
                 when no target has a session any more of a process that was killed here"
            )
        })?;
        orphans.push(Orphan { record, path, file });
    }
    Ok(orphans)
}

/// Takes a draft away whose process was killed before it was whole.
fn sweep(draft: &Path) {
    let Ok(file) = File::open(draft) else { return };
    let written = file.metadata().and_then(|facts| facts.modified()).ok();
    let is_old = written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= DRAFT_MAX);
    if is_old && file.try_lock().is_ok() {
        // One that stays is in nobody's way.
        let _ = fs::remove_file(draft);
    }
}

fn read(mut file: &File) -> Result<Record> {
    file.rewind()?;
    Ok(serde_json::from_reader(file)?)
}

/// Whether nobody has this file of a session any more; it is locked then.
fn is_left(file: &File, matters: impl Fn(&Record) -> bool) -> Result<bool> {
    let begun = Instant::now();
    loop {
        // Before the lock is tried: who has gone since has it no more.
        let dying = read(file).ok().filter(|record| matters(record) && is_dying(record.pid));
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let Some(Record { pid, .. }) = dying else { return Ok(false) };
        if begun.elapsed() >= DYING_MAX {
            bail!("process {pid} was killed, and has it still");
        }
        thread::sleep(DYING_LOOK);
    }
}

/// Whether a process was killed and is not gone: it is asked to end, or ends.
fn is_dying(pid: u32) -> bool {
    const EXITING: u64 = 4;
    const KILLED: u64 = 1 << (9 - 1);
    let of = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    // Behind the name of the program, in brackets: `S PPID PGRP SESSION TTY TPGID FLAGS`.
    let stat = of("stat");
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let flags: u64 = behind.split_whitespace().nth(6).and_then(|it| it.parse().ok()).unwrap_or(0);
    let status = of("status");
    let pending = status.lines().filter_map(|line| {
        let line = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    flags & EXITING != 0 || pending.fold(0, |all, of| all | of) & KILLED != 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    fn record(isid: u8) -> Record {
        Record {
            url: "iscsi://host/iqn.x:disk/1".into(),
            target: Some("iqn.x:disk".into()),
            lun: 1,
            initiator: "iqn.x:me".into(),
            isid: [0x80, 0, 0, 0, 0, isid],
            portal: "host:3260".into(),
            group: Some(1),
            disk: None,
            pid: std::process::id(),
        }
    }

    fn left(folder: &Path) -> Vec<Record> {
        orphans(folder, |_| true).unwrap().into_iter().map(|orphan| orphan.record).collect()
    }

    #[test]
    fn a_session_is_left_by_a_process_that_is_gone() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path());
        let [one, other] = [1, 2].map(|isid| Held::write(&folder, record(isid)).unwrap());
        assert!(left(&folder).is_empty(), "both live");
        // As if it was killed: the lock ends with the file.
        drop(one);
        assert_eq!(left(&folder), [record(1)]);
        assert_eq!(left(&folder), [record(1)], "until it is ended");
        let [orphan] = <[_; 1]>::try_from(orphans(&folder, |_| true).unwrap()).unwrap();
        assert!(left(&folder).is_empty(), "somebody is ending it");
        orphan.forget();
        other.remove();
        assert!(!folder.exists(), "nothing is left in it");
    }

    /// The last one that ends takes the folder away, which the next one may have found there.
    #[test]
    fn sessions_begin_while_others_end() {
        let state = tempfile::tempdir().unwrap();
        let folder = &folder(state.path());
        thread::scope(|scope| {
            for isid in 1..5 {
                scope.spawn(move || {
                    for _ in 0..300 {
                        Held::write(folder, record(isid)).unwrap().remove();
                    }
                });
            }
        });
        assert!(!folder.exists(), "nothing is left in it");
    }

    #[test]
    fn a_session_that_is_written_down_anew_is_not_taken_away_with_the_old_one() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path());
        let old = Held::write(&folder, record(1)).unwrap();
        let known = Record { disk: Some("naa.1".into()), ..record(1) };
        let new = Held::write(&folder, known.clone()).unwrap();
        old.remove();
        assert!(left(&folder).is_empty(), "it lives");
        drop(new);
        assert_eq!(left(&folder), [known]);
    }

    #[test]
    fn a_process_that_was_killed_is_waited_for_until_it_is_gone() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path());
        // It stays as a zombie until somebody hears of it.
        let mut killed = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        killed.kill().unwrap();
        let dying = Record { pid: killed.id(), ..record(1) };
        let held = Held::write(&folder, dying.clone()).unwrap();
        let of_another_disk = orphans(&folder, |_| false).unwrap();
        assert!(of_another_disk.is_empty());
        let gone = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        assert_eq!(left(&folder), [dying]);
        gone.join().unwrap();
        killed.wait().unwrap();
        assert!(!is_dying(std::process::id()) && !is_dying(u32::MAX));
    }

    #[test]
    fn drafts_of_processes_that_were_killed_are_taken_away() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path());
        drop(lock(&folder).unwrap());
        let draft = |name: &str| {
            let path = folder.join(name).with_extension("7.new");
            let file = File::create(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - 2 * DRAFT_MAX).unwrap();
            (path, file)
        };
        let ((left, _), (young, file), (held, own)) = (draft("left"), draft("young"), draft("own"));
        file.set_modified(std::time::SystemTime::now()).unwrap();
        own.lock().unwrap();
        assert!(orphans(&folder, |_| true).unwrap().is_empty());
        assert_eq!([left, young, held].map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path());
        drop(lock(&folder).unwrap());
        fs::write(folder.join("draft.1.new"), "{").unwrap();
        assert!(left(&folder).is_empty());
        fs::write(folder.join("broken.json"), "{").unwrap();
        let error = format!("{:#}", orphans(&folder, |_| true).unwrap_err());
        assert!(error.contains("broken.json is no session (EOF"), "{error}");
        assert!(error.contains("try: rm /"), "{error}");
        let file = state.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Held::write(&self::folder(&file), record(1)).is_err());
    }
}
