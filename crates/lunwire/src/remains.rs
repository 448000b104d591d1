// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What remains of sessions whose process was killed.
//!
//! A write that such a process has sent may be on its way for long, on a line that stands still,
//! and come over what the next process writes. The target carries it out no more when another
//! session of the same initiator port has begun in the same portal group (RFC 7143 §6.3.5). So each
//! session is a file in a folder as long as something of it may come about, locked by its process;
//! whoever uses the disk next ends what remains of it first.

mod record;

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use initiator::Initiator;
use initiator::Nexus;
use initiator::Options;
use initiator::Url;
use initiator::Witness;

use self::record::Held;
use self::record::Orphan;
use self::record::Record;
use crate::client::leaving;
use crate::client::waiting;

/// How long to try to end a session over one portal.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sessions of one disk.
#[derive(Debug)]
pub(crate) struct Remains {
    folder: PathBuf,
    disk: Disk,
    paths: Vec<Watched>,
}

/// What the disk is; None: nothing was written to it yet.
type Disk = Arc<Mutex<Option<String>>>;

#[derive(Debug)]
struct Watched {
    options: Options,
    keeper: Arc<Keeper>,
}

/// Writes down the sessions over one path.
#[derive(Debug)]
struct Keeper {
    folder: PathBuf,
    disk: Disk,
    url: Url,
    initiator: String,
    held: Mutex<Option<Held>>,
}

impl Watched {
    /// Whether it has a session that is so.
    fn has(&self, is_so: impl Fn(&Record) -> bool) -> bool {
        lock(&self.keeper.held).as_ref().is_some_and(|held| is_so(&held.record))
    }

    /// Whether it has a session in the portal group of that of `record`.
    fn is_beside(&self, record: &Record) -> bool {
        self.has(|held| {
            held.target == record.target && record.is_in_group_of(&held.portal, held.group)
        })
    }
}

impl Remains {
    /// Of a disk, in the folder where this process keeps its state.
    pub(crate) fn of_a_disk(state: &Path) -> Self {
        Self { folder: record::folder(state), disk: Disk::default(), paths: Vec::new() }
    }

    /// The sessions with `options` are to be remembered, over `url` to the disk.
    pub(crate) fn remember(&mut self, url: &Url, options: &mut Options) {
        let keeper = Arc::new(Keeper {
            folder: self.folder.clone(),
            disk: Arc::clone(&self.disk),
            url: url.clone(),
            initiator: options.initiator.clone(),
            held: Mutex::default(),
        });
        options.witness = Some(Arc::clone(&keeper) as Arc<dyn Witness>);
        self.paths.push(Watched { options: options.clone(), keeper });
    }

    /// Ends what remains of sessions with the disk, which is called `disk`. Nothing is to be
    /// written to it before. `options_of`: as this process would log in over a URL that is none of
    /// its paths.
    ///
    /// # Errors
    /// It cannot be ended: what is late may come over what is written from now on.
    pub(crate) fn end(
        &self,
        disk: &str,
        initiator: &Initiator,
        mut options_of: impl FnMut(&Url) -> Result<Options>,
    ) -> Result<()> {
        let _alone = record::lock(&self.folder)
            .with_context(|| format!("cannot lock {}", self.folder.display()))?;
        for orphan in record::orphans(&self.folder, |record| self.is_of(record, disk))? {
            if self.is_of(&orphan.record, disk) {
                if !self.is_replaced(&orphan.record) {
                    self.end_one(&orphan, initiator, &mut options_of)?;
                }
                orphan.forget();
            } else if orphan.record.disk.is_none() {
                orphan.forget();
            }
        }
        *lock(&self.disk) = Some(disk.to_owned());
        let written = self.paths.iter().try_for_each(|path| path.keeper.write_again());
        written.map_err(anyhow::Error::msg)
    }

    /// Whether something has gone over the session of `record` to the disk, which is called `disk`.
    fn is_of(&self, record: &Record, disk: &str) -> bool {
        let Some(of) = &record.disk else { return false };
        let is_path = |path: &Watched| {
            let url = &path.keeper.url;
            url.target == record.target && url.lun.unwrap_or(0) == record.lun
        };
        of == disk || self.paths.iter().any(is_path)
    }

    /// Whether a session of ours, which has begun since, is in the place of that of `record`.
    fn is_replaced(&self, record: &Record) -> bool {
        self.paths.iter().any(|path| path.has(|held| held.is_in_the_place_of(record)))
    }

    /// Takes the place of a session: where one of ours is in its group, else over its own portal,
    /// else over another one that may be of that group.
    fn end_one(
        &self,
        orphan: &Orphan,
        initiator: &Initiator,
        mut options_of: impl FnMut(&Url) -> Result<Options>,
    ) -> Result<()> {
        let record = &orphan.record;
        let url = Url::parse(&record.url).with_context(|| orphan.path.display().to_string())?;
        // A session over iSER takes the place of one over TCP, too.
        let same_target = |path: &&Watched| path.options.target == record.target;
        let same_url = self.paths.iter().find(|path| path.keeper.url.to_string() == record.url);
        let same_way = || {
            let mut paths = self.paths.iter().filter(same_target);
            paths.find(|path| path.options.transport == url.transport)
        };
        let own = match same_url.or_else(same_way) {
            Some(path) => path.options.clone(),
            None => options_of(&url)?,
        };
        let own = Options { portals: vec![record.portal.clone()], ..own };
        let others = self.paths.iter().filter(same_target).filter(|_| record.group.is_some());
        // Those that have a session are sure to answer, and to be of its group.
        let (sure, others): (Vec<_>, Vec<_>) = others.partition(|path| path.is_beside(record));
        let of =
            |paths: Vec<&Watched>| paths.into_iter().map(|path| path.options.clone()).collect();
        let (sure, others): (Vec<_>, Vec<_>) = (of(sure), of(others));
        let mut first = None;
        for options in sure.into_iter().chain([own]).chain(others) {
            match take_the_place(record, options, initiator) {
                Ok(()) => {
                    tracing::info!(
                        portal = record.portal, isid = %record.isid(),
                        "the session of a process that is gone is ended"
                    );
                    return Ok(());
                }
                Err(error) if leaving::is_given_up() => return Err(error),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let Some(error) = first else { return Ok(()) };
        let (isid, file) = (record.isid().to_string(), orphan.path.display());
        // As `lunwire sessions` shows it.
        let isid = isid.trim_start_matches("0x");
        bail!(
            "{url}: a process that was killed had the session {isid} there, whose last writes may \
             still come, over what is written from now on; it cannot be ended: {error}; try: again \
             when {portal} can be reached, or, when the target is certain to have no such session \
             any more, rm {file}",
            portal = record.portal,
        );
    }
}

fn take_the_place(record: &Record, options: Options, initiator: &Initiator) -> Result<()> {
    let login = initiator.begin(Options {
        isid: Some(record.isid()),
        initiator: record.initiator.clone(),
        connect_patience: PATIENCE,
        takes_over: false,
        witness: Some(Arc::new(SameGroup(record.clone()))),
        ..options
    });
    match waiting::unless_given_up(login) {
        Some(session) => session?.logout(),
        None => bail!("interrupted"),
    }
    Ok(())
}

/// Only a session in the same group takes the place of another one.
#[derive(Debug)]
struct SameGroup(Record);

impl Witness for SameGroup {
    fn begins(&self, nexus: &Nexus) -> Result<(), String> {
        match self.0.is_in_group_of(&nexus.portal, nexus.group) {
            true => Ok(()),
            false => Err("the portal is of another group".to_owned()),
        }
    }

    fn ends(&self, _: &Nexus) {}
}

impl Keeper {
    fn write(&self, held: &mut Option<Held>, record: Record) -> Result<(), String> {
        if held.as_ref().is_some_and(|held| held.record == record) {
            return Ok(());
        }
        let new = Held::write(&self.folder, record).map_err(|(path, error)| {
            format!("cannot write {}, which remembers it: {error}", path.display())
        })?;
        // The new session is in the place of the old one, be it over another portal.
        if let Some(old) = held.replace(new) {
            old.remove();
        }
        Ok(())
    }

    /// The disk is known by now.
    fn write_again(&self) -> Result<(), String> {
        let disk = lock(&self.disk).clone();
        let mut held = lock(&self.held);
        match held.as_ref().map(|held| held.record.clone()) {
            Some(record) => self.write(&mut held, Record { disk, ..record }),
            None => Ok(()),
        }
    }
}

impl Witness for Keeper {
    fn begins(&self, nexus: &Nexus) -> Result<(), String> {
        let mut held = lock(&self.held);
        let record = Record {
            url: self.url.to_string(),
            target: self.url.target.clone(),
            lun: self.url.lun.unwrap_or(0),
            initiator: self.initiator.clone(),
            isid: nexus.isid.0,
            portal: nexus.portal.clone(),
            group: nexus.group,
            disk: lock(&self.disk).clone(),
            pid: std::process::id(),
        };
        self.write(&mut held, record)
    }

    fn ends(&self, _: &Nexus) {
        if let Some(held) = lock(&self.held).take() {
            held.remove();
        }
    }
}

/// What the locks guard is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    fn record(portal: &str) -> Record {
        Record {
            url: "iscsi://host/iqn.x:disk/1".into(),
            target: Some("iqn.x:disk".into()),
            lun: 1,
            initiator: "iqn.x:me".into(),
            isid: [0x80, 0, 0, 0, 0, 1],
            portal: portal.into(),
            group: Some(1),
            disk: Some("naa.1".into()),
            pid: 1,
        }
    }

    fn keeper(state: &Path) -> Keeper {
        Keeper {
            folder: record::folder(state),
            disk: Disk::default(),
            url: Url::parse("iscsi://host/iqn.x:disk/1").unwrap(),
            initiator: "iqn.x:me".into(),
            held: Mutex::default(),
        }
    }

    #[test]
    fn a_session_that_was_ended_over_another_portal_is_struck_out() {
        let state = tempfile::tempdir().unwrap();
        let keeper = keeper(state.path());
        let mut held = lock(&keeper.held);
        keeper.write(&mut held, record("a:1")).unwrap();
        keeper.write(&mut held, record("b:1")).unwrap();
        assert!(record::orphans(&keeper.folder, |_| true).unwrap().is_empty(), "its process lives");
        held.take().unwrap().remove();
        assert!(!keeper.folder.exists(), "nothing is left of it");
    }

    #[test]
    fn our_own_session_may_be_in_the_place_of_one_that_is_left() {
        let state = tempfile::tempdir().unwrap();
        let keeper = Arc::new(keeper(state.path()));
        keeper.write(&mut lock(&keeper.held), record("b:1")).unwrap();
        let mut remains = Remains::of_a_disk(state.path());
        let options = Options::of_url(&keeper.url);
        remains.paths.push(Watched { options, keeper });
        assert!(remains.is_replaced(&record("a:1")), "over another portal of its group");
        let isid = [0x80, 0, 0, 0, 0, 2];
        for other in [
            Record { isid, ..record("a:1") },
            Record { group: Some(2), ..record("a:1") },
            Record { group: None, ..record("a:1") },
            Record { initiator: "iqn.x:you".into(), ..record("a:1") },
            Record { target: Some("iqn.x:other".into()), ..record("a:1") },
        ] {
            assert!(!remains.is_replaced(&other), "{other:?}");
        }
    }
}
