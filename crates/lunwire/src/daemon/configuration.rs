// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration that is served, and how another one takes its place while sessions go on: all
//! of it or nothing.

mod files;
#[cfg(test)]
mod tests;
mod watching;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin::AddedLun;
use control::admin::EndedSession;
use control::admin::Refused;
use control::admin::Reloaded;
use control::admin::RemovedLun;
use scsi::AccessState;
use target::Change;
use target::Changed;
use target::Limit;
use target::Made;
use target::OutdatedSession;
use target::Portal;
use target::Stores;
use target::Target;

use self::files::Seen;
use self::files::changed;
use self::files::seen;
pub(crate) use self::watching::expect_file;
pub(crate) use self::watching::watch;
use super::admin::has_data_in_memory;
use super::manager;
use super::manager::Reloading;
use super::sandboxed::Sandbox;
use super::take_over::gate::Gate;
use super::take_over::gate::Pass;
use crate::args::ServeOptions;
use crate::output;
use crate::plan;
use crate::plan::Difference;
use crate::plan::Draft;
use crate::plan::DraftLun;
use crate::plan::Dumped;
use crate::plan::Served;
use crate::plan::UnitMaker;
use crate::ports;

/// How long initiators get to log out whose sessions end.
const GRACE: Duration = Duration::from_secs(2);

/// Files that do not change for so long are whole.
const STEADY: Duration = Duration::from_millis(100);

/// Between two looks at one that is watched.
const LOOK: Duration = Duration::from_secs(1);

/// Looks until it is.
const LOOKS_MAX: usize = 20;

/// What is served, as the administrator wants it.
#[derive(Debug)]
pub(crate) struct Configuration {
    options: ServeOptions,
    target: Arc<Target>,
    /// Held by who reads the file, which may take its time: what is served can be asked for.
    reading: Mutex<()>,
    /// Held while disks come or go, so that what is served and what is known of it are the same
    /// again before the next one does. Locks are taken in the order in which they stand here.
    changing: Mutex<()>,
    now: Mutex<Now>,
    sandbox: Sandbox,
    gate: Gate,
}

/// Whoever has it is the only one by whom disks come or go.
#[derive(Debug)]
#[must_use = "others go on when it is dropped"]
pub(crate) struct Changing<'a>(#[expect(dead_code)] MutexGuard<'a, ()>);

#[derive(Debug)]
struct Now {
    /// As it was read last; disks that came by an order are among it.
    draft: Draft,
    /// The files that it names, as they were when they were read.
    named: Arc<Vec<Seen>>,
    /// Where sockets listen: the address of the configuration, and the real one, which has a port.
    portals: Vec<(SocketAddr, SocketAddr)>,
}

impl Configuration {
    /// `draft`: what `target` was started with.
    pub(crate) fn new(
        options: ServeOptions,
        draft: Draft,
        target: Arc<Target>,
        sandbox: Sandbox,
    ) -> Self {
        let wanted = draft.portals().into_iter().map(|portal| portal.address);
        let portals = wanted.zip(target.socket_portals()).collect();
        let (reading, changing) = (Mutex::default(), Mutex::default());
        let named = Arc::new(draft.facts_as_read());
        let now = Mutex::new(Now { draft, named, portals });
        Self { options, target, reading, changing, now, sandbox, gate: Gate::default() }
    }

    /// Orders pass it, unless everything is handed over.
    pub(crate) const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Where it listens: the addresses of the configuration, and the real ones.
    pub(crate) fn portals(&self) -> Vec<(SocketAddr, SocketAddr)> {
        self.now().portals.clone()
    }

    pub(crate) fn state_dir(&self) -> Result<Option<String>> {
        let now = self.now();
        let whole = now.draft.state_dir.as_deref().map(std::path::absolute).transpose()?;
        Ok(whole.map(|folder| folder.display().to_string()))
    }

    /// The disks that came by orders, and those that went.
    ///
    /// # Errors
    /// One of them cannot be told.
    pub(crate) fn ordered(&self) -> Result<(Vec<AddedLun>, Vec<RemovedLun>)> {
        let mut now = self.now();
        now.forget_gone(&self.target);
        now.draft.ordered()
    }

    /// The limits that orders have set.
    pub(crate) fn ordered_limits(&self) -> Vec<control::admin::Limit> {
        self.now().draft.ordered_limits()
    }

    /// The states that orders have given port groups of all disks.
    pub(crate) fn ordered_states(&self) -> Vec<control::admin::OrderedState> {
        self.now().draft.all_ordered_states()
    }

    /// What is served, for who serves it anew: nobody asks this one any more.
    pub(crate) fn take_draft(&self) -> Draft {
        std::mem::replace(&mut self.now().draft, Draft::new())
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes units as the configuration has it now.
    pub(crate) fn maker(&self) -> UnitMaker {
        self.now().draft.unit_maker()
    }

    /// Waits for who has disks come or go.
    pub(crate) fn changing(&self) -> Changing<'_> {
        Changing(self.changing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A disk came by an order. Others have seen it before: what they have ordered of it, and of
    /// all disks, is so.
    pub(crate) fn added(&self, _: Changing<'_>, target: &str, lun: DraftLun) {
        let mut now = self.now();
        let units = self.target.units(target).unwrap_or_default();
        let unit = units.iter().find(|(number, _)| *number == lun.number());
        now.draft.add_lun(target, lun);
        for (group, state) in now.draft.ordered_states(target) {
            let unit = unit.filter(|(_, unit)| {
                let mut groups = unit.port_groups().into_iter();
                groups.any(|one| one.number == *group && one.state != *state)
            });
            if let Some(Err(error)) = unit.map(|(_, unit)| unit.set_access_state(*group, *state)) {
                tracing::error!(target, group, %error, "its state is as before");
            }
        }
        self.target.limit(now.draft.limits());
    }

    /// A disk went by an order, and its limits with it.
    pub(crate) fn removed(&self, _: Changing<'_>) {
        let mut now = self.now();
        now.forget_gone(&self.target);
        self.target.limit(now.draft.limits());
    }

    /// An order limits something, or nothing more.
    pub(crate) fn limit(&self, target: &str, limit: Limit) {
        let mut now = self.now();
        now.draft.set_limit(target, limit);
        // The disk may have gone meanwhile: the next one by its number has no limit.
        now.forget_gone(&self.target);
        self.target.limit(now.draft.limits());
    }

    /// An order gives a target port group of all disks another state.
    ///
    /// # Errors
    /// As [`ports::set`].
    pub(crate) fn set_state(&self, target: &str, group: u16, text: &str) -> Result<(), String> {
        let mut now = self.now();
        let state = ports::set(&self.target, target, None, group, text)?;
        now.draft.set_state(target, group, state);
        Ok(())
    }

    /// Reads the file again, and serves what it says. With `dry_run`, or where something of it
    /// cannot change while the daemon runs, only tells what is otherwise. `destroy_data`: disks in
    /// memory may go with what hosts wrote.
    ///
    /// # Errors
    /// What is wrong with the file, or with what it names; nothing has changed then.
    pub(crate) fn reload(&self, _: &Pass, dry_run: bool, destroy_data: bool) -> Result<Reloaded> {
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let was_default = self.now().draft.default_disk;
        let mut wanted = self.read(was_default)?;
        if !dry_run {
            self.await_clusters(&wanted)?;
        }
        let _changing = (!dry_run).then(|| self.changing());
        let mut now = self.now();
        let target = &*self.target;
        wanted.keep_states(&now.draft);
        let units = now.forget_gone(target);
        let difference = Difference::between(&now.draft, &wanted, &units)?;
        let mut told = Reloaded {
            differences: difference.told.clone(),
            refused: difference.refused.clone(),
            warnings: wanted.warnings(),
            ..Reloaded::default()
        };
        if !destroy_data {
            told.refused.extend(self.lost_with(&difference, &now.draft));
        }
        told.refused.extend(self.out_of_reach(&difference));
        let terms = now.change(&difference, &wanted);
        match target.preview(&terms) {
            Ok(sessions) => told.sessions = sessions.into_iter().map(ended).collect(),
            Err(error) => {
                let (what, why) = ("what is served".into(), error.to_string());
                told.refused.push(Refused { what, why });
            }
        }
        if dry_run || !told.refused.is_empty() {
            return Ok(told);
        }
        let _told = Reloading::begin(target);
        if !told.differences.is_empty() {
            let changed = self.apply(&difference, &wanted, terms);
            let changed = changed.map_err(|error| self.sandbox.hint(error))?;
            self.set_states(&difference);
            target.tell_slow_commands(wanted.slow());
            target.limit(wanted.limits());
            told.sessions = changed.ended.into_iter().map(ended).collect();
            told.warnings.extend(changed.left.iter().map(ToString::to_string));
            told.warnings.extend(changed.silent.iter().map(|reactor| {
                format!("reactor {reactor} does not answer: its sessions may go on as before")
            }));
            let portals = now.portals_after(&difference, &target.socket_portals());
            now.portals.iter().filter(|known| !portals.contains(known)).for_each(|(_, real)| {
                manager::forget(*real);
            });
            now.portals = portals;
        }
        now.draft.http_tls.renew(&mut wanted.http_tls);
        now.named = Arc::new(wanted.facts_as_read());
        now.draft = wanted;
        told.applied = true;
        Ok(told)
    }

    /// Nothing else comes or goes while disks are opened: clusters that do not answer are waited
    /// for before.
    fn await_clusters(&self, wanted: &Draft) -> Result<()> {
        let stores = {
            let mut now = self.now();
            let units = now.forget_gone(&self.target);
            let difference = Difference::between(&now.draft, wanted, &units)?;
            let comes = difference.refused.is_empty();
            let stores = difference.stores().filter(|_| comes).map(str::to_owned);
            stores.collect::<Vec<_>>()
        };
        let mut stores = stores.iter();
        stores.try_for_each(|store| {
            plan::await_clusters(store).with_context(|| format!("store {store}"))
        })
    }

    /// What is served, as a file.
    ///
    /// # Errors
    /// Paths that cannot be named.
    pub(crate) fn dump(&self) -> Result<Dumped> {
        let mut now = self.now();
        let units = now.forget_gone(&self.target);
        now.draft.dump(&self.options, &units)
    }

    /// Whether the file says what it said when it was read last, and in the same folder, from which
    /// its paths count. None: it is being read.
    fn is_as_read(&self, path: &Path) -> Option<Result<bool>> {
        let now = self.now.try_lock().ok()?;
        let text = now.draft.text().map(str::to_owned);
        let is_there = now.draft.folder() == plan::folder_of(path).as_deref();
        drop(now);
        Some(plan::text_of(path).map(|now| is_there && text.is_some_and(|text| text == now)))
    }

    /// The file as it is now. `was_default`: what was served was named by nobody.
    fn read(&self, was_default: bool) -> Result<Draft> {
        let Some(path) = &self.options.config else {
            bail!("the daemon was started without a file; try: lunwire serve --config FILE")
        };
        let shown = path.display();
        let mut looks = 0..LOOKS_MAX;
        let mut named = self.now().draft.files_read();
        let mut before = seen(path, &named)?;
        let draft = loop {
            std::thread::sleep(STEADY);
            let draft =
                Draft::from_options(&self.options).map_err(|error| self.sandbox.hint(error));
            if let Ok(draft) = &draft {
                named = draft.files_read();
            }
            let now = seen(path, &named)?;
            let other = changed(&before, &now);
            let Some(other) = other else { break draft? };
            looks.next().with_context(|| {
                let other = other.display();
                format!("{other} changes while it is read; try: again when it is written")
            })?;
            before = now;
        };
        if draft.default_disk && !was_default {
            bail!("{shown} names no target, and all would go; try: a [[target]] in it");
        }
        Ok(draft)
    }

    /// What the sandbox keeps from coming.
    fn out_of_reach(&self, difference: &Difference<'_>) -> Vec<Refused> {
        let of_targets = difference
            .add
            .iter()
            .flat_map(|target| target.luns.iter().map(move |lun| (target.name(), lun)));
        let come = difference.add_luns.iter().map(|(target, lun)| (target.name(), *lun));
        let luns = of_targets.chain(come).filter_map(|(target, lun)| {
            let why = self.sandbox.admits(lun).err()?;
            Some(Refused { what: format!("LUN {} of {target}", lun.number()), why })
        });
        let portals = difference.listen.iter().filter_map(|portal| {
            let why = self.sandbox.admits_port(portal.address.port()).err()?;
            Some(Refused { what: format!("portal {}", portal.address), why })
        });
        luns.chain(portals).collect()
    }

    /// Disks in memory that would go with what hosts wrote to them.
    fn lost_with(&self, difference: &Difference<'_>, served: &Draft) -> Vec<Refused> {
        let of_targets = difference.remove.iter().flat_map(|name| {
            served.lun_numbers(name).into_iter().map(move |number| (name.clone(), number))
        });
        let going = of_targets.chain(difference.remove_luns.iter().cloned());
        let mut units = BTreeMap::new();
        let lost = going.filter(|(name, lun)| {
            // Those of a target are looked up once: there may be thousands.
            let units: &mut BTreeMap<_, _> = units.entry(name.clone()).or_insert_with(|| {
                self.target.units(name).unwrap_or_default().into_iter().collect()
            });
            units.get(lun).is_some_and(|unit| has_data_in_memory(unit))
        });
        let refused = lost.map(|(name, lun)| Refused {
            what: format!("LUN {lun} of {name}"),
            why: "it is in memory, and what hosts wrote to it would be lost; try: --destroy-data, \
                  or lunwire copy it first"
                .into(),
        });
        refused.collect()
    }

    fn apply(&self, difference: &Difference<'_>, wanted: &Draft, terms: Change) -> Result<Changed> {
        let mut made = Made::default();
        let changed = self.target.change(|stores| {
            let change = self.with_disks(difference, wanted, terms, stores);
            made = stores.made();
            change
        });
        changed.inspect_err(|_| made.take_back())
    }

    /// Of groups that the disks have.
    fn set_states(&self, difference: &Difference<'_>) {
        for (target, group, state) in &difference.states {
            for (_, unit) in self.target.units(target).into_iter().flatten() {
                if let Err(error) = unit.set_access_state(*group, *state) {
                    tracing::error!(target, group, %error, "its state is as before");
                }
            }
        }
    }

    /// The change with the disks that come.
    fn with_disks(
        &self,
        difference: &Difference<'_>,
        wanted: &Draft,
        mut change: Change,
        stores: &mut Stores,
    ) -> Result<Change> {
        let maker = wanted.unit_maker();
        let goes = |(name, lun): &(String, u16)| {
            difference.remove.contains(name)
                || difference.remove_luns.iter().any(|(of, number)| (of, number) == (name, lun))
        };
        let stays = |naa: &[u8]| self.target.find_disk(naa).filter(|place| !goes(place));
        change.add = wanted.open_nodes(&maker, stores, difference.add.iter().copied(), &stays)?;
        for (target, lun) in &difference.add_luns {
            let come = change.add_luns.iter();
            let taken = |naa: &[u8]| {
                let mut come = come.clone().map(|(name, lun, unit)| (name, lun, unit));
                let here = come.find(|(.., unit)| unit.identity().naa == naa);
                let here = here.map(|(name, lun, _)| (name.clone(), *lun));
                let new = plan::disk_with(&change.add, naa);
                here.or(new).or_else(|| stays(naa))
            };
            let unit = maker.make(stores, target.name(), lun, &taken);
            let unit = unit.map_err(|error| {
                let targets = self.target.targets();
                let luns = targets.iter().flat_map(|target| {
                    let luns = target.luns.iter();
                    luns.map(|lun| (&*target.name, lun.number, &*lun.label))
                });
                plan::served_already(error, luns)
            })?;
            change.add_luns.push((target.name().to_owned(), lun.number(), Arc::new(unit)));
        }
        Ok(change)
    }
}

/// What units say of themselves, asked at once: there may be thousands.
#[derive(Debug, Default)]
struct Units {
    bytes: BTreeMap<String, BTreeMap<u16, u64>>,
    states: BTreeMap<String, BTreeMap<u16, Vec<AccessState>>>,
}

impl Units {
    fn of(target: &Target) -> Self {
        let mut all = Self::default();
        for name in target.names() {
            let bytes = all.bytes.entry(name.clone()).or_default();
            let states = all.states.entry(name.clone()).or_default();
            for (number, unit) in target.units(&name).into_iter().flatten() {
                bytes.insert(number, unit.blocks() * u64::from(unit.block()));
                for group in unit.port_groups() {
                    states.entry(group.number).or_default().push(group.state);
                }
            }
        }
        all
    }
}

impl Served for Units {
    fn bytes_of(&self, target: &str, lun: u16) -> Option<u64> {
        self.bytes.get(target)?.get(&lun).copied()
    }

    fn states_of(&self, target: &str, group: u16) -> Vec<AccessState> {
        let known = self.states.get(target).and_then(|groups| groups.get(&group));
        known.cloned().unwrap_or_default()
    }
}

impl Now {
    /// Disks that are served no more are not among it. Gives what the others say.
    fn forget_gone(&mut self, target: &Target) -> Units {
        let units = Units::of(target);
        self.draft.keep_luns(|name, lun| units.bytes_of(name, lun).is_some());
        units
    }

    /// What is to be otherwise, without the disks that come: of targets that come the terms alone.
    fn change(&self, difference: &Difference<'_>, wanted: &Draft) -> Change {
        let real = |address: SocketAddr| {
            let known = self.portals.iter().find(|(configured, _)| *configured == address);
            known.map_or(address, |(_, real)| *real)
        };
        let of_now = |portal: &Portal| Portal { address: real(portal.address), ..*portal };
        Change {
            add: difference.add.iter().map(|target| target.node(Vec::new())).collect(),
            replace: difference.replace.iter().map(|target| target.node(Vec::new())).collect(),
            remove: difference.remove.clone(),
            remove_luns: difference.remove_luns.clone(),
            listen: difference.listen.iter().map(of_now).collect(),
            unlisten: difference.unlisten.iter().copied().map(real).collect(),
            discovery: difference.discovery.then(|| wanted.discovery().clone()),
            hide_targets: difference.hide_targets.then(|| wanted.hides_targets()),
            grace: GRACE,
            ..Change::default()
        }
    }

    /// Where sockets listen after a change, in the order of `real`.
    fn portals_after(
        &self,
        difference: &Difference<'_>,
        real: &[SocketAddr],
    ) -> Vec<(SocketAddr, SocketAddr)> {
        let is_known = |address: &SocketAddr| self.portals.iter().any(|(one, _)| one == address);
        let stay = self.portals.iter().map(|(configured, _)| *configured);
        let stay = stay.filter(|address| !difference.unlisten.contains(address));
        let new = difference.listen.iter().map(|portal| portal.address);
        stay.chain(new.filter(|address| !is_known(address))).zip(real.iter().copied()).collect()
    }
}

fn ended(session: OutdatedSession) -> EndedSession {
    let OutdatedSession { tsih, initiator, target, why, .. } = session;
    EndedSession { tsih, initiator, target, why: why.reason().into() }
}

/// Differences that the log tells one by one; of more it tells how many there are.
const DIFFERENCES_TOLD_MAX: usize = 20;

/// Says in the log what came of a signal that asked for it, or of a file that has changed.
pub(crate) fn log(result: &Result<Reloaded>) {
    match result {
        Ok(told) => {
            for refused in &told.refused {
                tracing::error!("not reloaded: {}: {}", refused.what, refused.why);
            }
            told.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            if told.applied {
                for difference in told.differences.iter().take(DIFFERENCES_TOLD_MAX) {
                    tracing::info!(name: target::Event::Change.name(), "reloaded: {difference}");
                }
                let (differences, sessions) = (told.differences.len(), told.sessions.len());
                tracing::info!(
                    name: target::Event::Change.name(), differences, sessions_ended = sessions,
                    "configuration reloaded"
                );
            }
        }
        Err(error) => tracing::error!("not reloaded: {}", output::chain(error)),
    }
}
