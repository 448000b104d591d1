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
        let span = u64::try_from(self.length.as_millis()).unwrap_or(0);
        for _ in 0..rng.within(1..=12) {
            // While there is load, which may not last for the whole time.
            let until = rng.pick(&[1000, 10_000, span]);
            let at = Duration::from_millis(rng.below(until));
            let longest = rng.pick(&[1000, 30_000, 120_000]);
            let length = u32::try_from(rng.within(1..=longest)).unwrap_or(1);
            let trouble = match rng.below(8) {
                0..3 => Trouble::Inactive(length),
                3 => Trouble::Away(length),
                4 => Trouble::Full(length),
                5 | 6 => Trouble::Unreadable(length),
                _ => Trouble::Blocklisted(length % 30_000),
            };
            self.faults.push((at, Fault::Cluster(trouble)));
        }
        self.faults.sort();
    }
}
