// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores whose work is done elsewhere and that do not answer: who looks after them hears of it,
//! also when no host asks for anything new.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use engine::Port;
use scsi::LogicalUnit;

use super::Doing;
use super::Kind;
use super::PendingIo;
use super::Pump;
use super::context::Context;
use super::jobs;
use super::jobs::Job;
use super::token;
use crate::figures::Wait;
use crate::silences::Found;
use crate::silences::News;
use crate::silences::Place;
use crate::table::Key;

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// A store that has not answered for so long is silent, and so is one whose hosts hear BUSY. A
/// cluster that is well takes milliseconds, and one that is full of work some hundred of them.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Work that is under way for so long is shown to who asks.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Work of one disk that waits for its store.
struct Waiting {
    unit: Arc<LogicalUnit>,
    commands: usize,
    /// When the oldest began.
    since: Instant,
}

impl<P: Port> Context<P> {
    /// Work of a store begins that is done elsewhere.
    pub(super) fn look_for_silence(&mut self, io: Key) {
        let now = self.port.now();
        if let Some(pending) = self.ios.get_mut(io) {
            pending.begun = Some(now);
        }
        if !self.looks_for_silence {
            self.looks_for_silence = true;
            self.timers.set(token(Kind::SilenceTimer, Key::NOBODY).0, now + INTERVAL);
        }
    }
}

impl<P: Port> Pump<P> {
    /// Looks which stores do not answer, and again later if there is still something under way.
    #[cold]
    pub(super) fn find_silences(&mut self) {
        let now = self.context.port.now();
        let waiting = self.waiting_for(SHOWN_AFTER, now);
        let found = self.silent_of(&waiting, now);
        let news = self.context.shared.silences.note(self.context.reactor, &found, now);
        let of: BTreeMap<&str, &Waiting> = match news.is_empty() {
            true => BTreeMap::new(),
            false => waiting.iter().map(|one| (&*one.unit.identity().serial, one)).collect(),
        };
        for one in &news {
            match one {
                News::Silent(place) | News::Busy(place) => {
                    let Some(waiting) = of.get(&*place.disk) else { continue };
                    tell(place, waiting, matches!(one, News::Busy(_)), now);
                }
                News::Over(place, lasted) => tell_end(place, *lasted),
            }
        }
        self.context.looks_for_silence = self.context.errands > 0;
        if self.context.looks_for_silence {
            self.context.timers.set(token(Kind::SilenceTimer, Key::NOBODY).0, now + INTERVAL);
        }
    }

    /// Those of these whose stores are silent.
    fn silent_of(&self, waiting: &[Waiting], now: Instant) -> Vec<Found> {
        let mut found = Vec::new();
        for Waiting { unit, since, .. } in waiting {
            let elsewhere = unit.store().elsewhere();
            let is_busy = unit.is_fenced() || elsewhere.is_some_and(|elsewhere| elsewhere.is_busy);
            if is_busy || now.since(*since) >= SILENT_AFTER {
                let who = elsewhere.map_or("store", |elsewhere| elsewhere.who);
                found.push((unit, *since, is_busy, who));
            }
        }
        let places = if found.is_empty() { BTreeMap::new() } else { self.places() };
        let found = found.into_iter().map(|(unit, since, is_busy, who)| {
            let (target, lun) = places.get(&Arc::as_ptr(unit)).cloned().unzip();
            let (disk, store) = (unit.identity().serial.clone(), unit.label().to_owned());
            Found { place: Place { disk, target, lun, store, who }, since, is_busy }
        });
        found.collect()
    }

    /// Target and LUN of all units.
    fn places(&self) -> BTreeMap<*const LogicalUnit, (String, u16)> {
        let nodes = self.context.shared.catalogue.now();
        let mut places = BTreeMap::new();
        for served in nodes.all() {
            for (lun, unit) in served.luns() {
                let place = || (served.node().name.clone(), lun);
                places.entry(Arc::as_ptr(&unit)).or_insert_with(place);
            }
        }
        places
    }

    /// What has waited for some time, by disk.
    pub(super) fn waits(&self) -> Vec<Wait> {
        let now = self.context.port.now();
        let waiting = self.waiting_for(SHOWN_AFTER, now).into_iter();
        waiting
            .map(|Waiting { unit, commands, since }| Wait {
                disk: unit.identity().serial.clone(),
                commands,
                oldest: now.since(since),
            })
            .collect()
    }

    fn waiting_for(&self, length: Duration, now: Instant) -> Vec<Waiting> {
        let mut all: BTreeMap<*const LogicalUnit, Waiting> = BTreeMap::new();
        for (_, pending) in self.context.ios.iter() {
            let Some(begun) = pending.begun.filter(|begun| now.since(*begun) >= length) else {
                continue;
            };
            let Some(unit) = self.unit_of(pending) else { continue };
            let new = || Waiting { unit: Arc::clone(unit), commands: 0, since: begun };
            let waiting = all.entry(Arc::as_ptr(unit)).or_insert_with(new);
            waiting.commands += 1;
            waiting.since = waiting.since.min(begun);
        }
        all.into_values().collect()
    }

    /// The unit that work of a store is for.
    fn unit_of<'a>(&'a self, pending: &'a PendingIo) -> Option<&'a Arc<LogicalUnit>> {
        if !matches!(pending.doing, Doing::Store { .. }) {
            return None;
        }
        if let Some(task) = &pending.ended {
            return task.place();
        }
        if pending.session == Key::NOBODY {
            let job: &Job = self.jobs.get(jobs::key_of(pending.task))?;
            return job.task().place();
        }
        let tasks = &self.sessions.get(pending.session)?.tasks;
        let task = tasks.get(pending.task.index as usize)?.as_ref();
        task.filter(|task| task.id == pending.task)?.scsi.place()
    }
}

/// Says that a store does not answer, and what hosts hear.
fn tell(place: &Place, waiting: &Waiting, is_busy: bool, now: Instant) {
    let Waiting { unit, commands, since } = waiting;
    let Place { disk, target, lun, store, who } = place;
    let (lun, target) = (*lun, target.as_deref());
    let seconds = now.since(*since).as_secs();
    let elsewhere = unit.store().elsewhere();
    let advice = elsewhere.map(|elsewhere| format!("; try: {}", elsewhere.advice));
    let advice = advice.unwrap_or_default();
    if is_busy {
        tracing::error!(
            disk,
            target,
            lun,
            store,
            commands,
            "the {who} has not answered for {seconds} s; hosts hear BUSY{advice}"
        );
        return;
    }
    let busy = elsewhere.map(|elsewhere| elsewhere.busy_after.as_secs());
    let busy = busy.map(|after| format!(", and hear BUSY after {after} s")).unwrap_or_default();
    tracing::warn!(
        disk,
        target,
        lun,
        store,
        commands,
        "the {who} has not answered for {seconds} s; hosts wait{busy}{advice}"
    );
}

/// Says that it answers again.
fn tell_end(place: &Place, lasted: Duration) {
    let Place { disk, target, lun, store, who } = place;
    let (lun, target) = (*lun, target.as_deref());
    let seconds = lasted.as_secs();
    tracing::info!(disk, target, lun, store, "the {who} answers again, after {seconds} s");
}
