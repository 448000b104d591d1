// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets whose disks are images on a cluster, and what befalls that.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 91;

/// The cluster behind a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rados {
    /// Length of an object, bytes.
    pub object: u64,
    /// Placement groups.
    pub groups: u64,
    /// What it takes an object to do something and to say so, microseconds.
    pub delay: (u64, u64),
    /// The client has a write-back cache.
    pub cache: bool,
    /// When nothing has ended for so many seconds, what comes is told BUSY.
    pub busy: u64,
}

/// Something that goes wrong with a cluster, for so many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Trouble {
    /// A placement group does not answer.
    Inactive(u32),
    /// Nothing answers.
    Away(u32),
    /// There is no space for what is written.
    Full(u32),
    /// An object cannot be read or written.
    Unreadable(u32),
    /// A client gets nothing done until its process is started again.
    Blocklisted(u32),
    /// Somebody else gives an image another size: so many of a thousand of its blocks are left, or
    /// all come back if some are gone.
    Resized(u32),
    /// Somebody removes an image; the target comes back with another one.
    Removed(u32),
}

impl Trouble {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inactive(_) => "placement groups inactive",
            Self::Away(_) => "clusters away",
            Self::Full(_) => "clusters full",
            Self::Unreadable(_) => "objects unreadable",
            Self::Blocklisted(_) => "clients blocklisted",
            Self::Resized(_) => "images resized by others",
            Self::Removed(_) => "images removed",
        }
    }
}

impl Options {
    /// All targets of class `cluster`.
    pub(super) fn serve_images(&mut self) {
        if self.class != Class::Cluster {
            return;
        }
        let mut rng = Rng::stream(self.seed, STREAM);
        for target in &mut self.targets {
            let cache = rng.chance(500);
            target.rados = Some(Rados {
                object: rng.pick(&[4096, 8192, 32_768]),
                groups: rng.pick(&[1, 4, 16]),
                delay: rng.pick(&[(100, 1000), (500, 20_000), (1000, 300_000)]),
                cache,
                busy: rng.pick(&[2, 5, 20]),
            });
            // What was acknowledged without a cache lasts.
            (target.memory, target.elsewhere, target.sync) = (false, None, !cache);
        }
        if rng.chance(300) {
            self.leave_silences(&mut rng);
            return;
        }
        // What goes wrong besides: sizes that change by themselves are one thing, those that an
        // administrator changes another.
        let resizes = self.resizes.is_empty() && rng.chance(350);
        let has_states = self.targets.iter().any(|target| target.keeping.is_some())
            || self.hosts.iter().flatten().any(|session| session.copies > 0)
            || !self.resizes.is_empty();
        let removes = !has_states && !resizes && rng.chance(300);
        if removes {
            for session in self.hosts.iter_mut().flatten() {
                (session.guard, session.registers) = (false, false);
            }
        }
        let span = u64::try_from(self.length.as_millis()).unwrap_or(0);
        for _ in 0..rng.within(1..=12) {
            // While there is load, which may not last for the whole time.
            let until = rng.pick(&[1000, 10_000, span]);
            let at = Duration::from_millis(rng.below(until));
            let longest = rng.pick(&[1000, 30_000, 120_000]);
            let length = u32::try_from(rng.within(1..=longest)).unwrap_or(1);
            let trouble = match rng.below(12) {
                8.. if resizes => Trouble::Resized(rng.pick(&[100, 250, 500, 900])),
                8..11 if removes => Trouble::Removed(length % 30_000),
                0..3 => Trouble::Inactive(length),
                3 => Trouble::Away(length),
                4 => Trouble::Full(length),
                5 | 6 => Trouble::Unreadable(length),
                7 => Trouble::Blocklisted(length % 30_000),
                _ => continue,
            };
            self.faults.push((at, Fault::Cluster(trouble)));
        }
        self.faults.sort();
    }

    /// Clusters are silent, and all else is as well as can be.
    fn leave_silences(&mut self, rng: &mut Rng) {
        self.impostors.clear();
        self.hogs.clear();
        self.hasty.clear();
        self.resizes.clear();
        self.latency = (50, 500);
        for target in &mut self.targets {
            (target.limit, target.window, target.pool) = (0, 128, 32 << 20);
            target.luns = target.luns.max(2);
            if let Some(rados) = &mut target.rados {
                rados.delay = (100, 2000);
            }
        }
        for session in self.hosts.iter_mut().flatten() {
            (session.command_timeout, session.copies, session.floods) = (0, 0, 0);
            (session.manages, session.resized) = (0, 0);
        }
        self.faults.clear();
        for _ in 0..rng.within(1..=6) {
            let until = rng.pick(&[300, 3000, 20_000]);
            let at = Duration::from_millis(rng.below(until));
            let length = u32::try_from(rng.within(20_000..=200_000)).unwrap_or(1);
            let trouble = match rng.below(3) {
                0 => Trouble::Away(length),
                _ => Trouble::Inactive(length),
            };
            self.faults.push((at, Fault::Cluster(trouble)));
        }
        self.faults.sort();
    }

    /// Whether nothing goes wrong but that clusters are silent.
    pub(crate) fn is_silent_at_most(&self) -> bool {
        let silent = |fault: &Fault| {
            matches!(fault, Fault::Cluster(Trouble::Inactive(_) | Trouble::Away(_)))
        };
        self.class == Class::Cluster
            && (self.impatient
                || self.hosts.iter().flatten().all(|session| session.command_timeout == 0))
            && self.faults.iter().all(|(_, fault)| silent(fault))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_that_befalls_a_cluster_is_drawn_with_a_cache_and_without() {
        let (mut troubles, mut caches) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..200 {
            let options = Options::draw(seed, Class::Cluster);
            for (_, fault) in &options.faults {
                if let Fault::Cluster(trouble) = fault {
                    troubles.insert(trouble.name());
                }
            }
            caches.extend(options.targets.iter().map(|target| target.rados.map(|it| it.cache)));
        }
        assert_eq!(troubles.len(), 7, "{troubles:?}");
        assert_eq!(caches, BTreeSet::from([Some(false), Some(true)]));
    }
}
