// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may go wrong, by class.

use std::time::Duration;

use crate::options::Trouble;
use crate::rng::Rng;

/// Which faults may be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// None: every request must succeed.
    Calm,
    /// Of connections and bytes.
    Network,
    /// Targets are killed, machines lose power.
    Target,
    /// Hosts crash.
    Host,
    /// Disks are slow and fail.
    Disk,
    /// Memory is short, queues are small.
    Scarce,
    /// One side says what is not so, well formed.
    Liar,
    /// All of these.
    Mixed,
    /// Of a cluster that disks are images on; targets are killed, machines lose power.
    Cluster,
    /// Of single paths out of several to one disk; targets are killed, machines lose power.
    Paths,
    /// Of connections over raw Ethernet, whose frames are lost, doubled, late and damaged; targets
    /// are killed, machines lose power.
    Ether,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 11] = [
        Self::Calm,
        Self::Network,
        Self::Target,
        Self::Host,
        Self::Disk,
        Self::Scarce,
        Self::Liar,
        Self::Mixed,
        Self::Cluster,
        Self::Paths,
        Self::Ether,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Network => "network",
            Self::Target => "target",
            Self::Host => "host",
            Self::Disk => "disk",
            Self::Scarce => "scarce",
            Self::Liar => "liar",
            Self::Mixed => "mixed",
            Self::Cluster => "cluster",
            Self::Paths => "paths",
            Self::Ether => "ether",
        }
    }

    /// The class with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// A connection is reset at both ends.
    Cut,
    /// A connection carries nothing for so many milliseconds.
    Stall(u32),
    /// A connection carries nothing any more, and nobody is told.
    HalfOpen,
    /// A bit of what one side sends under a digest is flipped.
    Flip,
    /// One side sends a wrong DataSN, offset or StatSN, or a wrong name or place of memory: the
    /// other must end the connection.
    Lie,
    /// A connection ends in the middle of an FPDU.
    Tear,
    /// The process of a target is killed and comes back after so many milliseconds.
    Kill(u32),
    /// As a loss of power, and another disk, of zeroes, is behind one of its LUNs afterwards.
    Exchange(u32),
    /// The machine of a target loses its power for so many milliseconds.
    PowerLoss(u32),
    /// A host loses its power for so many milliseconds.
    HostCrash(u32),
    /// All disk work takes many times as long for so many milliseconds.
    SlowDisk(u32),
    /// So many works of a disk fail.
    DiskError(u32),
    /// A disk cannot write back what nobody has synced, and says so once, to whoever syncs next.
    Writeback,
    /// So many writes and flushes of a connection are told that something has failed which was
    /// acknowledged before.
    News(u32),
    /// All machines sleep for so many milliseconds.
    Sleep(u32),
    /// Clocks on walls are set by so many seconds.
    SetClock(i32),
    /// Something befalls a cluster that disks are images on.
    Cluster(Trouble),
}

impl Fault {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cut => "connections cut",
            Self::Stall(_) => "connections stalled",
            Self::HalfOpen => "connections half open",
            Self::Flip => "flips ordered",
            Self::Lie => "lies ordered",
            Self::Tear => "connections cut within an FPDU",
            Self::Kill(_) => "targets killed",
            Self::Exchange(_) => "disks exchanged",
            Self::PowerLoss(_) => "power losses",
            Self::HostCrash(_) => "hosts crashed",
            Self::SlowDisk(_) => "slow spells of disks",
            Self::DiskError(_) => "spells of disk errors",
            Self::Writeback => "failed writebacks",
            Self::News(_) => "failures told once",
            Self::Sleep(_) => "clock jumps",
            Self::SetClock(_) => "wall clocks set",
            Self::Cluster(trouble) => trouble.name(),
        }
    }
}

/// Faults of `class` within `length`.
pub(super) fn draw(rng: &mut Rng, class: Class, length: Duration) -> Vec<(Duration, Fault)> {
    let kinds: &[u8] = match class {
        Class::Calm | Class::Scarce => &[],
        Class::Network => &[0, 0, 1, 1, 2, 3, 3, 9],
        Class::Target => &[4, 5, 5, 0],
        Class::Cluster => &[4, 4, 5, 0],
        Class::Ether => &[0, 0, 1, 1, 2, 3, 4, 4, 5, 6, 9],
        Class::Paths => &[0, 0, 0, 1, 1, 1, 2, 2, 4, 5, 9],
        Class::Host => &[6, 6, 0, 1],
        Class::Disk => &[7, 8, 5],
        Class::Liar => &[11],
        Class::Mixed => &[0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10],
    };
    if kinds.is_empty() {
        return Vec::new();
    }
    let span = u64::try_from(length.as_millis()).unwrap_or(0);
    let mut faults: Vec<(Duration, Fault)> = (0..rng.within(1..=20))
        .map(|_| {
            let at = Duration::from_millis(rng.below(span));
            let short = u32::try_from(rng.within(1..=30_000)).unwrap_or(1);
            let fault = match rng.pick(kinds) {
                0 => Fault::Cut,
                1 => Fault::Stall(short),
                2 => Fault::HalfOpen,
                3 => Fault::Flip,
                4 => Fault::Kill(short),
                5 => Fault::PowerLoss(short),
                6 => Fault::HostCrash(short),
                7 => Fault::SlowDisk(short),
                8 => Fault::DiskError(1 + short % 5),
                9 => Fault::Sleep(short * 2),
                11 => Fault::Lie,
                _ => Fault::SetClock(i32::try_from(short).unwrap_or(0) - 15_000),
            };
            (at, fault)
        })
        .collect();
    faults.sort();
    faults
}
