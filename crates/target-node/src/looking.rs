// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at what is behind disks: its size, its space, its names, whether it answers.

use std::sync::Arc;
use std::sync::PoisonError;
use std::thread::Builder;

use engine::files::Name;
use scsi::LogicalUnit;

use crate::events::Event;
use crate::target::Target;
use crate::volume::bytes_of;
use crate::volume::show;

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

impl Target {
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
                .map(|(target, lun, unit)| {
                    let look = Builder::new().spawn_scoped(scope, move || why(unit));
                    // There may be more disks than threads can be had.
                    (target, *lun, look.map_err(|_| why(unit)))
                })
                .collect();
            let unseen = looks.into_iter().filter_map(|(target, lun, look)| {
                let why = match look {
                    // One that has panicked has said why.
                    Ok(look) => look.join().unwrap_or_default()?,
                    Err(why) => why?,
                };
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
                tracing::info!(
                    name: Event::Lun.name(), target, lun, before, now, "a disk has grown"
                );
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
