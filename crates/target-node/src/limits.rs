// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of logical units and of initiators: how many commands and bytes in a second, and how many
//! sessions.
//!
//! What one limit is stands in [`meter`]; which there are stands here. Sessions look for theirs
//! when they see another generation, and where there is no limit at all that is one look at a word.

pub(crate) mod meter;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::figures::HeldCommands;

use meter::Meter;
use meter::Rates;
use meter::Totals;

/// A limit of a target; what is None is not limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What is limited.
    pub of: Limited,
    /// Commands in a second that read or change what is on a medium. At once begin as many as come
    /// in a tenth of a second, or one.
    pub operations: Option<NonZeroU64>,
    /// Bytes in a second that such commands move. At once begins what a tenth of a second gives, or
    /// one command.
    pub bytes: Option<NonZeroU64>,
    /// Sessions at a time; of initiators alone. Those that are there stay.
    pub sessions: Option<NonZeroU64>,
}

/// What is limited, of one target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums)] // who shows limits must know each
pub enum Limited {
    /// A disk: all initiators together.
    Lun(u16),
    /// The initiator with this name: all its disks and sessions together.
    Initiator(String),
    /// Each initiator that has no limit of its own, by itself.
    EachInitiator,
}

/// A limit, and what came to it since it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitSnapshot {
    /// The target.
    pub target: String,
    /// The limit.
    pub limit: Limit,
    /// Serial number of the disk that it is for.
    pub disk: Option<String>,
    /// Commands that began.
    pub begun: u64,
    /// Those that had to wait for it.
    pub held: u64,
}

impl LimitSnapshot {
    /// Whether these commands are of what it limits. It may be another limit that holds them.
    #[must_use]
    pub fn is_for(&self, held: &HeldCommands) -> bool {
        held.target.as_ref() == Some(&self.target)
            && match &self.limit.of {
                Limited::Lun(_) => self.disk.as_ref() == Some(&held.disk),
                Limited::Initiator(name) => held.initiator == *name,
                Limited::EachInitiator => true,
            }
    }
}

/// All limits of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// Zero: there is none.
    generation: AtomicU64,
    table: Mutex<Table>,
}

/// Lists: there are few, and who has a session looks for his own when they change.
#[derive(Debug, Default)]
struct Table {
    generations: u64,
    targets: Vec<(String, Vec<Entry>)>,
}

#[derive(Debug)]
struct Entry {
    limit: Limit,
    /// Of [`Limited::EachInitiator`] what nobody asks.
    meter: Arc<Meter>,
    /// By name of the initiator, as long as it has a session.
    each: Vec<(String, Arc<Meter>)>,
    /// Of those who have gone.
    gone: Totals,
}

/// The meters of one session.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) initiator: Option<Arc<Meter>>,
    /// By number of the disk.
    pub(crate) luns: Vec<(u16, Arc<Meter>)>,
}

impl Meters {
    /// That of the disk with this number.
    pub(crate) fn of(&self, number: Option<u16>) -> Option<Arc<Meter>> {
        let (_, meter) = self.luns.iter().find(|(lun, _)| Some(*lun) == number)?;
        Some(Arc::clone(meter))
    }
}

impl Limits {
    /// Which generation there is now; zero: nothing is limited.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these, by target, and no other. Who has waited for one that goes finds it
    /// lifted.
    pub(crate) fn set(&self, limits: Vec<(String, Vec<Limit>)>) {
        let mut table = self.table();
        let mut old = std::mem::take(&mut table.targets);
        for (target, limits) in limits {
            if limits.is_empty() {
                continue;
            }
            let before = old.iter_mut().find(|(name, _)| *name == target);
            let mut nothing = Vec::new();
            let before = before.map_or(&mut nothing, |(_, entries)| entries);
            let mut entries = Vec::new();
            for limit in limits {
                let place = before.iter().position(|entry| entry.limit.of == limit.of);
                let entry = place.map(|place| before.swap_remove(place));
                entries.push(Entry::of(limit, entry));
            }
            table.targets.push((target, entries));
        }
        for entry in old.iter().flat_map(|(_, entries)| entries) {
            entry.set(Rates::default());
        }
        table.generations += 1;
        let generation = if table.targets.is_empty() { 0 } else { table.generations };
        self.generation.store(generation, Ordering::Release);
    }

    /// Those of a session.
    pub(crate) fn meters(&self, target: &str, initiator: &str) -> Meters {
        let mut table = self.table();
        let mut meters = Meters::default();
        let Some(entries) = table.of(target) else { return meters };
        let mut each = None;
        for entry in entries {
            match &entry.limit.of {
                Limited::Lun(number) => meters.luns.push((*number, Arc::clone(&entry.meter))),
                Limited::Initiator(name) if name == initiator => {
                    meters.initiator = Some(Arc::clone(&entry.meter));
                }
                Limited::Initiator(_) => {}
                Limited::EachInitiator => each = Some(entry),
            }
        }
        if meters.initiator.is_none() {
            meters.initiator = each.map(|entry| entry.meter_of(initiator));
        }
        meters
    }

    /// How many sessions an initiator may have with a target.
    pub(crate) fn sessions_max(&self, target: &str, initiator: &str) -> Option<usize> {
        if self.generation() == 0 {
            return None;
        }
        let mut table = self.table();
        let entries = table.of(target)?;
        let is_own = |entry: &&Entry| match &entry.limit.of {
            Limited::Initiator(name) => name == initiator,
            _ => false,
        };
        let is_each = |entry: &&Entry| entry.limit.of == Limited::EachInitiator;
        let entry = entries.iter().find(is_own).or_else(|| entries.iter().find(is_each))?;
        let sessions = entry.limit.sessions?;
        Some(usize::try_from(sessions.get()).unwrap_or(usize::MAX))
    }

    /// All that there are.
    pub(crate) fn snapshot(&self) -> Vec<LimitSnapshot> {
        let table = self.table();
        let all = table.targets.iter();
        let all = all.flat_map(|(target, entries)| entries.iter().map(move |it| (target, it)));
        all.map(|(target, entry)| {
            let Totals { begun, held } = entry.totals();
            let (target, limit) = (target.clone(), entry.limit.clone());
            LimitSnapshot { target, limit, disk: None, begun, held }
        })
        .collect()
    }
}

impl Table {
    fn of(&mut self, target: &str) -> Option<&mut Vec<Entry>> {
        let (_, entries) = self.targets.iter_mut().find(|(name, _)| name == target)?;
        Some(entries)
    }
}

impl Entry {
    /// With what the one before had, if there was one.
    fn of(limit: Limit, before: Option<Self>) -> Self {
        let (meter, each, gone) = match before {
            Some(Self { meter, each, gone, .. }) => (meter, each, gone),
            None => Default::default(),
        };
        let entry = Self { limit, meter, each, gone };
        entry.set(Rates { operations: entry.limit.operations, bytes: entry.limit.bytes });
        entry
    }

    fn set(&self, rates: Rates) {
        self.meter.set(rates);
        self.each.iter().for_each(|(_, meter)| meter.set(rates));
    }

    fn meter_of(&mut self, initiator: &str) -> Arc<Meter> {
        if let Some((_, meter)) = self.each.iter().find(|(name, _)| name == initiator) {
            return Arc::clone(meter);
        }
        let gone = &mut self.gone;
        self.each.retain(|(_, meter)| {
            let stays = Arc::strong_count(meter) > 1;
            if !stays {
                *gone = gone.and(meter.totals());
            }
            stays
        });
        let meter = Arc::<Meter>::default();
        meter.set(Rates { operations: self.limit.operations, bytes: self.limit.bytes });
        self.each.push((initiator.to_owned(), Arc::clone(&meter)));
        meter
    }

    fn totals(&self) -> Totals {
        let each = self.each.iter().map(|(_, meter)| meter.totals());
        each.fold(self.gone.and(self.meter.totals()), Totals::and)
    }
}

#[cfg(test)]
mod tests {
    use clock::Instant;

    use super::meter::Standing;
    use super::*;

    fn limit(of: Limited, operations: u64) -> Limit {
        let operations = NonZeroU64::new(operations);
        Limit { of, operations, bytes: None, sessions: NonZeroU64::new(2) }
    }

    #[test]
    fn each_session_has_the_meters_that_are_for_it() {
        let limits = Limits::default();
        assert_eq!(limits.generation(), 0);
        assert_eq!(limits.sessions_max("t", "a"), None);
        let of_a = limit(Limited::Initiator("a".into()), 1);
        let all = [limit(Limited::Lun(3), 1), limit(Limited::EachInitiator, 1), of_a];
        limits.set(vec![("t".to_owned(), all.to_vec())]);
        assert_ne!(limits.generation(), 0);
        let of = |initiator| limits.meters("t", initiator);
        let [a, b, c] = ["a", "b", "c"].map(|name| of(name).initiator.unwrap());
        assert!(Arc::ptr_eq(&b, &of("b").initiator.unwrap()), "all its sessions have one");
        assert!(!Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&b, &c), "each has its own");
        assert!(Arc::ptr_eq(&of("a").luns[0].1, &of("b").luns[0].1), "a disk is one for all");
        assert!(limits.meters("u", "a").initiator.is_none());
        assert_eq!(limits.sessions_max("t", "b"), Some(2));
        assert_eq!(limits.sessions_max("u", "b"), None);
        // Names that come and go leave nothing.
        drop((b, c));
        of("d");
        let kept: usize =
            limits.table().of("t").unwrap().iter().map(|entry| entry.each.len()).sum();
        assert_eq!(kept, 1);
        assert_eq!(limits.snapshot().len(), 3);
    }

    #[test]
    fn what_is_lifted_holds_nobody() {
        let limits = Limits::default();
        limits.set(vec![("t".to_owned(), vec![limit(Limited::Lun(0), 1)])]);
        let meter = Arc::clone(&limits.meters("t", "a").luns[0].1);
        let mut flow = Standing::default();
        assert_eq!(flow.ask(&meter, Instant(0), 0), None);
        assert!(flow.ask(&meter, Instant(0), 0).is_some());
        let before = limits.generation();
        limits.set(vec![("t".to_owned(), vec![limit(Limited::Lun(0), 2)])]);
        assert_ne!(limits.generation(), before);
        assert!(Arc::ptr_eq(&meter, &limits.meters("t", "a").luns[0].1), "it stays the same one");
        assert_eq!(flow.ask(&meter, Instant(0), 0), None, "with a full bucket");
        assert!(flow.ask(&meter, Instant(0), 0).is_some());
        limits.set(Vec::new());
        assert_eq!(limits.generation(), 0);
        assert_eq!(flow.ask(&meter, Instant(0), 0), None);
    }
}
