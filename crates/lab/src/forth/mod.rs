// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FORTH: five disks at hand, behind one target, and behind three that the initiator stripes over:
//! throughput, response time and CPU by Iometer's grid, and applications on a file system there
//! (`apps`): PostMark, TPC-H, and a server of NFS under a load like that of SFS.

mod apps;
mod direct;
mod findings;
mod network;
mod rig;
mod theirs;

use std::time::Duration;

use crate::Error;
use crate::measure::{median, real};
use crate::progress::Steps;
use crate::study::{Findings, Settings};
use network::Packet;
use rig::Rig;

/// How much to measure.
#[derive(Clone, Debug)]
struct Options {
    /// Runs of each case; medians count.
    rounds: usize,
    /// How long each runs.
    time: Duration,
    /// Sizes of requests, bytes.
    sizes: Vec<u32>,
    /// Requests outstanding.
    depths: Vec<usize>,
    /// Bytes of each disk.
    disk: u64,
}

/// Runs the study.
pub(crate) fn run(settings: &Settings, steps: &Steps<'_>) -> Result<Findings, Error> {
    let effort = settings.effort;
    let kib: &[u32] = effort.of(&[8, 128], &[4, 8, 16, 128], &[1, 2, 4, 8, 16, 32, 64, 128]);
    let sizes = [512].into_iter().chain(kib.iter().map(|kib| kib << 10)).collect();
    let depths = effort.of(&[1, 4][..], &[1, 4, 16], &[1, 2, 4, 8, 16]).to_vec();
    let time = Duration::from_millis(effort.of(4, 40, 100));
    let disk = effort.of(2, 8, 32) << 20;
    let rounds = settings.rounds([3, 3, 5]);
    let options = Options { rounds, time, sizes, depths, disk };
    let measured = Measured::take(options, steps)?;
    let mail = apps::postmark::measure(settings, steps)?;
    let [tpch, columns] = apps::tpch::measure(settings, steps)?;
    let sfs = apps::sfs::measure(settings, steps)?;
    Ok(findings::report(&measured, &[mail, tpch, columns, sfs]))
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// One file past the cache.
    Disk,
    /// A RAM-disk of a target.
    Ram,
    /// Five files as RAID-0.
    Direct,
    /// The same behind a target.
    X1,
    /// Three such targets, striped by the initiator.
    X3,
    /// The same, whose files go past the cache.
    X3Uncached,
}

impl Place {
    /// Those of figure 3, with one request at a time.
    const SINGLE: [Self; 2] = [Self::Disk, Self::Ram];
    /// Those of figures 4 to 6.
    const GRID: [Self; 4] = [Self::Direct, Self::X1, Self::X3, Self::X3Uncached];

    const fn name(self) -> &'static str {
        match self {
            Self::Disk => "one disk",
            Self::Ram => "iSCSI RAM-disk",
            Self::Direct => "direct",
            Self::X1 => "iSCSI x1",
            Self::X3 => "iSCSI x3",
            Self::X3Uncached => "iSCSI x3, no cache",
        }
    }
}

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Sequential,
    Random,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    Read,
    Write,
    /// Seven reads for three writes.
    Mixed,
}

impl Mix {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Mixed];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Mixed => "70 % read",
        }
    }

    /// Whether the request of this number is a write.
    const fn writes(self, number: u64) -> bool {
        match self {
            Self::Read => false,
            Self::Write => true,
            // Spread over ten requests.
            Self::Mixed => (number * 3) % 10 < 3,
        }
    }
}

/// What is asked for, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    pattern: Pattern,
    mix: Mix,
    bytes: u32,
    depth: usize,
}

impl Load {
    fn kind(self) -> String {
        let pattern = match self.pattern {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        };
        format!("{pattern} {}", self.mix.name())
    }

    fn name(self) -> String {
        let bytes = crate::picture::bytes(u64::from(self.bytes));
        format!("{}, {bytes}, {} at once", self.kind(), self.depth)
    }

    /// The byte at which the request of this number begins.
    fn offset(self, number: u64, size: u64) -> u64 {
        let places = (size / u64::from(self.bytes)).max(1);
        let place = match self.pattern {
            Pattern::Sequential => number,
            Pattern::Random => scattered(number),
        };
        place % places * u64::from(self.bytes)
    }
}

/// A number that has nothing to do with its neighbours, and is the same each time (splitmix64).
const fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
struct Sample {
    ios: f64,
    seconds: f64,
    /// Of the application's side: its threads, the initiator within.
    cpu_ns: u64,
}

/// One load at one place.
#[derive(Debug)]
struct Case {
    place: Place,
    load: Load,
    samples: Vec<Sample>,
}

impl Case {
    fn values(&self, of: impl Fn(&Self, &Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(|sample| of(self, sample)).collect()
    }

    fn typical(&self, of: impl Fn(&Self, &Sample) -> f64) -> f64 {
        median(self.values(of))
    }

    /// MB/s.
    fn rate(&self, sample: &Sample) -> f64 {
        sample.ios * f64::from(self.load.bytes) / sample.seconds / 1e6
    }

    /// Mean microseconds of a request: as many as are allowed are always outstanding, so by
    /// Little's law it is their number by their rate.
    fn response(&self, sample: &Sample) -> f64 {
        real(self.load.depth as u64) * sample.seconds * 1e6 / sample.ios
    }

    /// Percent of a processor.
    #[allow(clippy::unused_self)] // as the others
    fn cpu(&self, sample: &Sample) -> f64 {
        real(sample.cpu_ns) / sample.seconds / 1e7
    }

    /// Microseconds of a processor for each request.
    #[allow(clippy::unused_self)]
    fn cost(&self, sample: &Sample) -> f64 {
        real(sample.cpu_ns) / 1000.0 / sample.ios
    }
}

/// All that was measured.
#[derive(Debug)]
struct Measured {
    options: Options,
    cases: Vec<Case>,
    packets: Vec<Packet>,
    /// Places that are not to be had here, and why.
    lacking: Vec<(Place, String)>,
}

/// All rounds. All cases take turns, so that what the machine does besides hits all of them.
fn run_all(
    rig: &mut Rig,
    cases: &mut [Case],
    packets: &mut [Packet],
    options: &Options,
    steps: &Steps<'_>,
) -> Result<(), Error> {
    for _ in 0..options.rounds {
        for packet in &mut *packets {
            steps.next(&format!("TCP, {} bytes", packet.bytes))?;
            packet.measure(options.time)?;
        }
        for case in &mut *cases {
            steps.next(&format!("{}: {}", case.place.name(), case.load.name()))?;
            case.samples.push(rig.run(case.place, case.load, options.time)?);
        }
    }
    Ok(())
}

impl Measured {
    fn take(options: Options, steps: &Steps<'_>) -> Result<Self, Error> {
        let mut rig = Rig::start(options.disk)?;
        let mut cases = Vec::new();
        for load in options.loads() {
            let mut add = |place: Place| {
                if rig.has(place, load.bytes) {
                    cases.push(Case { place, load, samples: Vec::new() });
                }
            };
            if load.depth == 1 {
                Place::SINGLE.into_iter().for_each(&mut add);
            }
            Place::GRID.into_iter().for_each(add);
        }
        let mut packets: Vec<Packet> = options.sizes.iter().copied().map(Packet::new).collect();
        steps.expect(options.rounds * (cases.len() + packets.len()));
        let ran = run_all(&mut rig, &mut cases, &mut packets, &options, steps);
        let lacking = rig.lacking();
        // Whatever came of it, nothing is served any more.
        rig.stop()?;
        ran?;
        Ok(Self { options, cases, packets, lacking })
    }

    fn case(&self, place: Place, load: Load) -> Option<&Case> {
        self.cases.iter().find(|case| (case.place, case.load) == (place, load))
    }
}

impl Options {
    fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for pattern in [Pattern::Sequential, Pattern::Random] {
            for mix in Mix::ALL {
                for &bytes in &self.sizes {
                    let of = |&depth: &usize| Load { pattern, mix, bytes, depth };
                    loads.extend(self.depths.iter().map(of));
                }
            }
        }
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_seven_reads_for_three_writes() {
        let count = |mix: Mix| (0..1000).filter(|number| mix.writes(*number)).count();
        assert_eq!(Mix::ALL.map(count), [0, 1000, 300]);
        let begin: Vec<bool> = (0..10).map(|number| Mix::Mixed.writes(number)).collect();
        assert!(begin.windows(3).all(|three| three.contains(&false)), "they are spread");
    }

    #[test]
    fn requests_stay_on_the_disk_and_random_ones_are_spread() {
        let load = |pattern| Load { pattern, mix: Mix::Read, bytes: 4096, depth: 1 };
        let offsets = |pattern| -> Vec<u64> {
            (0..4096).map(|number| load(pattern).offset(number, 1 << 20)).collect()
        };
        let random = offsets(Pattern::Random);
        assert!(random.iter().all(|at| at + 4096 <= 1 << 20 && at % 4096 == 0));
        let places: std::collections::BTreeSet<_> = random.iter().collect();
        assert_eq!(places.len(), 256, "all are met");
        let sequential = offsets(Pattern::Sequential);
        assert_eq!(sequential[..3], [0, 4096, 8192]);
        assert_eq!(sequential[256], 0, "from the beginning again");
    }
}
