// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logical units that come and go while their target is served.
//!
//! Coming: every reactor knows the files first, then logins see the unit, then the sessions that
//! are there. Going: sessions and logins see it no more; commands under way end by themselves, and
//! the rest is ended; when nobody holds the unit, its files are flushed and closed. All sessions
//! whose map has changed are told so (3F/0E).

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use engine::FileRefused;
use scsi::LogicalUnit;

use crate::events::Event;
use crate::node::LunMap;
use crate::pump::Letter;

use crate::served::Served;
use crate::stores::StoreFile;
use crate::stores::Stores;
use crate::target::Target;
use crate::volume::VolumeError;

/// The greatest number of the flat addressing method (SAM-5 §4.7.7.3).
pub const LUN_NUMBER_MAX: u16 = 16_383;

/// Commands for a unit that is taken away have so long to end by themselves.
const GRACE: Duration = Duration::from_secs(2);

/// After that they are ended, and have so long until none of their work is left.
const END_MAX: Duration = Duration::from_secs(10);

/// How often to look whether anybody still holds a unit.
const LOOK: Duration = Duration::from_millis(2);

/// Where a unit is to be, and for whom.
#[derive(Clone, Debug, Default)]
pub struct NewLun {
    /// Its number; if None the lowest one that no unit had since the target is served: hosts that
    /// have not looked yet must not take one for another.
    pub number: Option<u16>,
    /// Normalized names of the initiators that see it, whatever the rules of the target say of
    /// numbers; if empty, those see it whom these rules let.
    pub initiators: Vec<String>,
}

impl Target {
    /// Serves one more unit, which `open` makes of a store. Gives its number. Sessions that may see
    /// it are told.
    ///
    /// # Errors
    /// What `open` says, or see [`VolumeError`]; nothing has changed then.
    pub fn add_lun<E: From<VolumeError>>(
        &self,
        target: &str,
        wanted: NewLun,
        open: impl FnOnce(&mut Stores, u16) -> Result<LogicalUnit, E>,
    ) -> Result<u16, E> {
        let _one_at_a_time = self.volumes();
        let served = self.served(target)?;
        let lun = free_number(&served, wanted.number)?;
        if let Some(name) = wanted.initiators.iter().find(|name| !served.node().admits(name)) {
            return Err(VolumeError::NotAdmitted { name: name.clone() }.into());
        }
        let mut stores = self.files().beside();
        let unit = Arc::new(open(&mut stores, lun)?);
        self.introduce_files(&stores.files)?;
        self.files().add(stores.files);
        served.add_lun(lun, unit, wanted.initiators);
        self.show_luns(&served);
        tracing::info!(name: Event::Lun.name(), target, lun, "LUN added");
        Ok(lun)
    }

    /// Whether there is an initiator that would see this unit of `target`.
    ///
    /// # Errors
    /// There is no such target.
    pub fn is_for_somebody(&self, target: &str, lun: u16) -> Result<bool, VolumeError> {
        Ok(self.served(target)?.is_for_somebody(lun))
    }

    /// Serves a unit no more. Commands under way end by themselves within two seconds, or end with
    /// TASK ABORTED; then its files are flushed and closed.
    ///
    /// # Errors
    /// See [`VolumeError`]; `Lingers` and `Flush` tell what is wrong after the unit has gone.
    pub fn remove_lun(&self, target: &str, lun: u16) -> Result<(), VolumeError> {
        self.remove_lun_and(target, lun, || ())
    }

    /// The same. `gone` is called when the unit is served no more, and nothing of it has ended yet:
    /// no other one has come by its number before.
    ///
    /// # Errors
    /// As [`remove_lun`](Self::remove_lun).
    pub fn remove_lun_and(
        &self,
        target: &str,
        lun: u16,
        gone: impl FnOnce(),
    ) -> Result<(), VolumeError> {
        let one_at_a_time = self.volumes();
        let served = self.served(target)?;
        let unit = served.luns().into_iter().find(|(number, _)| *number == lun);
        let Some((_, unit)) = unit else {
            return Err(VolumeError::NoLun { target: target.to_owned(), lun });
        };
        if unit.is_being_wiped() {
            return Err(VolumeError::Wiping { lun });
        }
        served.remove_lun(lun);
        tell_reservations_end(target, lun, &unit);
        unit.withdraw();
        self.show_luns(&served);
        tracing::info!(name: Event::Lun.name(), target, lun, "LUN removed");
        gone();
        if unit.store().files().is_empty() {
            // Nobody gets the numbers of its files, and who waits for a cluster holds up no other.
            drop(one_at_a_time);
        }
        self.close_unit(lun, &unit)
    }

    /// Every reactor knows these files.
    ///
    /// # Errors
    /// If one does not; none knows them then.
    pub(crate) fn introduce_files(&self, files: &[StoreFile]) -> Result<(), VolumeError> {
        for (number, file) in (0..).zip(files) {
            let answers = self.answers(|reply| Letter::AddFile { file: file.clone(), reply });
            let added = answers.ok_or(VolumeError::Silent).and_then(|answers| {
                Ok(answers.into_iter().collect::<Result<(), FileRefused>>()?)
            });
            if let Err(error) = added {
                // Where it was refused the number is another file's.
                let known = number + usize::from(matches!(error, VolumeError::Silent));
                self.forget_files(files.get(..known).unwrap_or_default());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Closes units that are in no map any more. Sessions that still have them get `grace` to end.
    /// Gives what is wrong with them after that.
    pub(crate) fn close_units(&self, units: LunMap, grace: Duration) -> Vec<VolumeError> {
        let deadline = Instant::now() + grace;
        let mut left = Vec::new();
        for (lun, unit) in units {
            is_held_by_us_alone(&unit, deadline.saturating_duration_since(Instant::now()));
            unit.withdraw();
            left.extend(self.close_unit(lun, &unit).err());
        }
        left
    }

    fn close_unit(&self, lun: u16, unit: &Arc<LogicalUnit>) -> Result<(), VolumeError> {
        let is_let_go = self.is_let_go(unit);
        // Another disk that hosts know by the same number has a size of its own.
        self.forget_shrunk(unit);
        if !is_let_go {
            let who = unit.store().elsewhere().map(|elsewhere| elsewhere.who);
            let lingers = VolumeError::Lingers { lun, who };
            tracing::warn!("{lingers}");
            return Err(lingers);
        }
        let ids = unit.store().files();
        let mut files = self.files().all();
        files.retain(|file| ids.contains(&file.id));
        self.forget_files(&files);
        let mut result = Ok(());
        for file in files.iter().filter(|file| file.writable) {
            if let Err(source) = file.synced(|fd| engine::files::sync(fd)) {
                let path = file.path.clone();
                result = Err(VolumeError::Flush { lun, path, source });
            }
        }
        if let Err(source) = unit.store().finish() {
            result = Err(VolumeError::Finish { lun, source });
        }
        // A polling core lets go of them a little later. Then they can be served again at once.
        for file in &files {
            if !is_held_by_us_alone(&file.fd, GRACE) {
                tracing::warn!(path = file.path, "a file that was removed is still held");
            }
        }
        result
    }

    fn served(&self, target: &str) -> Result<Arc<Served>, VolumeError> {
        let nodes = self.nodes();
        nodes.find(target).cloned().ok_or_else(|| VolumeError::NoTarget(target.to_owned()))
    }

    /// All sessions of a target see the units that it has now, and so will initiators that come
    /// back.
    fn show_luns(&self, served: &Served) {
        let target: Arc<str> = served.node().name.as_str().into();
        if !self.tell_reactors(|reply| Letter::Remap { target: Arc::clone(&target), reply }) {
            tracing::error!(%target, "a reactor does not answer: its sessions see the old LUNs");
        }
        for (_, unit) in served.luns() {
            unit.tell_absent_of_other_units();
        }
    }

    /// Waits until nobody else holds a unit that is not in any map, as commands, jobs and work
    /// under way do; true if so.
    fn is_let_go(&self, unit: &Arc<LogicalUnit>) -> bool {
        if is_held_by_us_alone(unit, GRACE) {
            return true;
        }
        tracing::info!("commands for a LUN that was removed are ended");
        self.tell_reactors(|reply| Letter::EndTasks { unit: Arc::clone(unit), reply });
        is_held_by_us_alone(unit, END_MAX)
    }

    /// No reactor knows these files any more.
    fn forget_files(&self, files: &[StoreFile]) {
        for StoreFile { id, .. } in files {
            self.tell_reactors(|reply| Letter::RemoveFile { id: *id, reply });
        }
        let ids: Vec<_> = files.iter().map(|file| file.id).collect();
        self.files().remove(&ids);
    }
}

/// Says what of a unit is reserved no more, as it is served no more: whoever comes by its number
/// next finds nothing of it.
pub(crate) fn tell_reservations_end(target: &str, lun: u16, unit: &LogicalUnit) {
    let shown = unit.reservations_shown();
    if shown.legacy || shown.kind.is_some() || shown.registrants > 0 {
        tracing::info!(
            name: Event::Reservation.name(),
            target,
            lun,
            action = "LUN REMOVED",
            mode = "none",
            before = shown.holder,
            registered = 0,
            "reservations changed"
        );
    }
}

fn free_number(served: &Served, wanted: Option<u16>) -> Result<u16, VolumeError> {
    let luns = served.luns();
    let is_free = |number: &u16| !luns.iter().any(|(taken, _)| taken == number);
    let target = || served.node().name.clone();
    match wanted {
        Some(lun) if is_free(&lun) => Ok(lun),
        Some(lun) => Err(VolumeError::Taken { target: target(), lun }),
        None => (0..=LUN_NUMBER_MAX)
            .find(|lun| served.is_unused(*lun))
            .ok_or_else(|| VolumeError::Full { target: target() }),
    }
}

fn is_held_by_us_alone<T>(held: &Arc<T>, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while Arc::strong_count(held) > 1 {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
