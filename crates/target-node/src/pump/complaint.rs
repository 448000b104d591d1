// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores that fail and blocks that are not what they were, in the log of who has to do something
//! about it: hosts are told, but it is not they who can make room or change a disk.

use std::io;
use std::sync::Arc;

use scsi::CheckedAt;
use scsi::LogicalUnit;
use scsi::Nexus;
use store::FileId;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;

use super::shared::Shared;

/// Where something has failed.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) shared: &'a Shared,
    /// Whose command it is, and the name of the target; jobs belong to nobody.
    pub(super) session: Option<(&'a Nexus, Option<&'a str>)>,
}

/// What the engine said of work that failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cause {
    errno: Option<i32>,
    is_cut_short: bool,
    file: Option<FileId>,
}

impl Cause {
    #[inline]
    pub(super) fn of(io: &Io, result: &IoResult) -> Self {
        let errno = match result {
            IoResult::Read(Err(errno))
            | IoResult::Other(Err(errno))
            | IoResult::ProvisioningStatus(Err(errno)) => Some(*errno),
            IoResult::Read(Ok(_))
            | IoResult::Other(Ok(()))
            | IoResult::ProvisioningStatus(Ok(_))
            | IoResult::Clock(_)
            | IoResult::Foreign(_) => None,
        };
        Self { errno, is_cut_short: io.is_cut_short(result), file: io.file() }
    }

    fn text(&self) -> Option<String> {
        if self.is_cut_short {
            return Some("the file ends before that: another program has made it shorter".into());
        }
        let errno = self.errno.filter(|errno| *errno != 0);
        errno.map(|errno| io::Error::from_raw_os_error(errno).to_string())
    }
}

/// Tells of an operation that has failed; `cause` as the engine said it. A store that does not
/// answer has told that itself: hosts are told to ask again, which may be often. So may a job, of
/// what others use for now.
#[inline]
pub(super) fn of(scene: Scene<'_>, task: &scsi::Task, op: &Op, outcome: &Outcome, cause: Cause) {
    if let Outcome::Failed(error) = outcome
        && *error != store::Error::Silent
        && !(*error == store::Error::Busy && scene.session.is_none())
    {
        tell(scene, task, op, *error, cause);
    }
}

#[cold]
fn tell(scene: Scene<'_>, task: &scsi::Task, op: &Op, error: store::Error, cause: Cause) {
    let unit = task.place();
    let (target, lun) = scene.place(unit);
    let file = cause.file.or_else(|| unit.and_then(|unit| unit.store().file()));
    let path = file.and_then(|file| scene.shared.files.path(file));
    let (offset, length) = op.range();
    tracing::warn!(
        disk = serial(unit),
        target,
        lun,
        path,
        what = op.name(),
        offset,
        length,
        error = error.to_string(),
        cause = cause.text(),
        "a store has failed"
    );
}

/// Tells of a command that has found blocks which do not fit their protection information.
#[cold]
pub(super) fn of_check(scene: Scene<'_>, task: &scsi::Task) {
    let Some(failed) = task.failed_check() else { return };
    let (disk, (target, lun)) = (serial(task.unit()), scene.place(task.unit()));
    let (block, field) = (failed.block, failed.field);
    match failed.place {
        CheckedAt::Medium => tracing::warn!(
            disk,
            target,
            lun,
            block,
            field,
            "a block is not what was written: its protection information does not fit"
        ),
        CheckedAt::Sent => tracing::warn!(
            disk,
            target,
            lun,
            block,
            field,
            "a block was not written: it came with protection information that does not fit"
        ),
    }
}

fn serial(unit: Option<&Arc<LogicalUnit>>) -> &str {
    unit.map_or("(none)", |unit| unit.identity().serial.as_str())
}

impl Scene<'_> {
    /// Target and LUN of a unit.
    pub(super) fn place(&self, unit: Option<&Arc<LogicalUnit>>) -> (Option<String>, Option<u16>) {
        let Some(unit) = unit else { return (None, None) };
        if let Some((nexus, target)) = self.session
            && let Some(lun) = nexus.number_of(unit)
        {
            return (target.map(str::to_owned), Some(lun));
        }
        let nodes = self.shared.catalogue.now();
        let mut all = nodes.all().iter();
        let place = all.find_map(|served| {
            let luns = served.luns();
            let (lun, _) = luns.into_iter().find(|(_, other)| Arc::ptr_eq(other, unit))?;
            Some((served.node().name.clone(), lun))
        });
        place.unzip()
    }
}
