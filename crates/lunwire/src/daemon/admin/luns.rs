// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders about logical units: add, remove, resize, rescan, snapshot.

use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin;
use control::admin::Reply;
use scsi::LogicalUnit;
use store::spec::Spec;
use target::LunSnapshot;
use target::NewImage;
use target::NewLun;
use target::Resized;
use target::Shrink;
use target::SnapshotPlace;

use super::Shared;
use crate::daemon::shown;
use crate::daemon::shown::Waits;
use crate::output;
use crate::plan;
use crate::plan::DraftLun;
use crate::plan::initiators;

impl Shared {
    /// Serves one more unit.
    pub(super) fn add(
        &self,
        name: Option<&str>,
        number: Option<u16>,
        order: &admin::NewLun,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Reply> {
        if let Some(number) = number {
            plan::lun_number(number)
                .map_err(|right| anyhow::anyhow!("--number {number}: {right}"))?;
        }
        let target = self.name_of(name)?;
        let initiators = initiators(order).map_err(anyhow::Error::msg)?;
        // Nothing else comes or goes while a store is opened.
        plan::await_clusters(&order.store).with_context(|| format!("store {}", order.store))?;
        let only = initiators.clone();
        let new = NewLun { number, initiators };
        let mut warnings = Vec::new();
        let changing = self.configuration.changing();
        let (maker, mut drafted) = (self.configuration.maker(), None);
        let number = self.target.add_lun(&target, new, |stores, number| {
            let unwanted = || {
                let store = &order.store;
                anyhow::anyhow!("{store} is not served: nobody waits for it any more")
            };
            if !is_wanted() {
                return Err(unwanted());
            }
            let draft = DraftLun::from_order(number, order).map_err(anyhow::Error::msg)?;
            self.beside.sandbox.admits(&draft).map_err(anyhow::Error::msg)?;
            let taken = |naa: &[u8]| self.target.find_disk(naa);
            let unit = maker.make(stores, &target, &draft, &taken);
            drafted = Some(draft.only_for(only));
            let (made, new_images) = (stores.made(), stores.new_images());
            warnings.extend(new_images.iter().map(ToString::to_string));
            warnings.extend(stores.odd_sizes().iter().map(ToString::to_string));
            // Opening may have taken its time.
            let unit = unit.and_then(|unit| if is_wanted() { Ok(unit) } else { Err(unwanted()) });
            unit.map_err(|error| {
                made.take_back();
                let targets = self.target.targets();
                let luns = targets.iter().flat_map(|target| {
                    let luns = target.luns.iter();
                    luns.map(|lun| (&*target.name, lun.number, &*lun.label))
                });
                let error = self.beside.sandbox.hint(plan::served_already(error, luns));
                new_images.iter().fold(error, |error, NewImage { place, .. }| {
                    let said = output::chain(&error);
                    anyhow::anyhow!("{said}; the new, empty image {place} stays: rbd rm {place}")
                })
            })
        })?;
        // Before others go on: the next order may remove it.
        let for_nobody = !self.target.is_for_somebody(&target, number)?;
        let lun = self.lun(&target, number);
        if let Some(drafted) = drafted {
            self.configuration.added(changing, &target, drafted);
        }
        let lun = lun.context("what was added is not found")?;
        let told = self.odd_about(&lun);
        told.iter().for_each(|warning| tracing::warn!("{warning}"));
        warnings.extend(told);
        let disk = shown::lun(lun, &Waits::new());
        Ok(Reply::Added { target, lun: number, disk, for_nobody, warnings })
    }

    /// Serves a unit no more.
    pub(super) fn remove(&self, name: Option<&str>, lun: u16, destroy_data: bool) -> Result<Reply> {
        let target = self.name_of(name)?;
        if !destroy_data && self.unit(&target, lun).is_some_and(|unit| has_data_in_memory(&unit)) {
            bail!(
                "LUN {lun} is in memory, and what hosts wrote to it would be lost; \
                 try: --destroy-data, or lunwire copy it first"
            );
        }
        let changing = self.configuration.changing();
        self.target.remove_lun_and(&target, lun, || self.configuration.removed(changing))?;
        Ok(Reply::Removed { target, lun, warnings: Vec::new() })
    }

    /// Gives a disk another size.
    pub(super) fn resize(
        &self,
        name: Option<&str>,
        lun: u16,
        (bytes, shrink): (u64, Shrink),
        is_wanted: &dyn Fn() -> bool,
    ) -> Reply {
        self.of_target(name, |target| {
            let Resized { before, now } =
                self.target.resize_while(is_wanted, target, lun, bytes, shrink)?;
            let grown = self.lun(target, lun).filter(|_| now > before);
            let warnings = grown.map(|lun| self.odd_about(&lun)).unwrap_or_default();
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            Ok(Reply::Resized { target: target.to_owned(), lun, before, now, warnings })
        })
    }

    /// Looks whether the files behind disks have another size.
    pub(super) fn rescan(&self) -> Reply {
        let shown = |found: target::Rescanned| {
            let target::Rescanned { target, lun, before, now } = found;
            admin::RescannedLun { target, lun, before, now }
        };
        let unseen = self.target.look_behind();
        let luns: Vec<_> = self.target.rescan().into_iter().map(shown).collect();
        let smaller = luns.iter().filter(|found| found.now < found.before);
        let warnings = smaller.map(shown::smaller);
        let warnings = warnings.chain(unseen.iter().map(shown::unseen)).collect();
        Reply::Rescanned { luns, warnings }
    }

    /// Makes a file with the present content of a disk.
    pub(super) fn snapshot(
        &self,
        name: Option<&str>,
        lun: u16,
        place: SnapshotPlace<'_>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Reply {
        self.of_target(name, |target| {
            let is_elsewhere = self.lun(target, lun).is_some_and(|lun| lun.elsewhere.is_some());
            let admitted = self.beside.sandbox.admits_file(place.path);
            if let (false, Err(message)) = (is_elsewhere, admitted) {
                return Ok(Reply::Error { message });
            }
            let kept = self.target.snapshot_while(is_wanted, target, lun, place)?;
            let image = self.lun(target, lun).and_then(|lun| lun.elsewhere);
            let lost = image.and_then(|image| image.lost);
            let warnings = lost.map(|how| shown::kept_elsewhere(lun, how));
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            Ok(Reply::Snapshotted {
                target: target.to_owned(),
                lun,
                bytes: kept.bytes,
                name: kept.name,
                warnings: warnings.into_iter().collect(),
            })
        })
    }

    /// What hosts can write, and this machine has no room for, where this disk has a part in it.
    fn odd_about(&self, lun: &LunSnapshot) -> Vec<String> {
        let all = self.disks();
        let Ok(this) = lun.label.parse() else { return Vec::new() };
        let mut odd = plan::machine::too_little_room(&all, Some(&this));
        if plan::memory_of(&this) > 0 {
            odd.extend(plan::machine::too_much_memory(plan::memory_of_all(&all)));
        }
        odd
    }

    /// What backs all LUNs.
    pub(super) fn disks(&self) -> Vec<Spec> {
        let targets = self.target.targets();
        let luns = targets.iter().flat_map(|target| &target.luns);
        luns.filter_map(|lun| lun.label.parse().ok()).collect()
    }

    fn lun(&self, target: &str, number: u16) -> Option<LunSnapshot> {
        let mut targets = self.target.targets().into_iter();
        let mut luns = targets.find(|one| one.name == target)?.luns.into_iter();
        luns.find(|lun| lun.number == number)
    }

    /// Whoever has it keeps it from being closed.
    fn unit(&self, target: &str, number: u16) -> Option<Arc<LogicalUnit>> {
        let mut units = self.target.units(target)?.into_iter();
        units.find(|(known, _)| *known == number).map(|(_, unit)| unit)
    }
}

/// Whether there is something on a disk that ends with it.
pub(in crate::daemon) fn has_data_in_memory(unit: &LogicalUnit) -> bool {
    let Ok(spec) = unit.label().parse() else { return false };
    unit.store().has_data_in_memory() || plan::is_in_memory(&spec) && unit.is_formatted_otherwise()
}
