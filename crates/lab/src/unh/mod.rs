// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UNH: iSCSI whose data moves by RDMA (iSER) beside plain iSCSI, in user space on both sides, and
//! what the study left open.

mod findings;
mod frames;
mod rig;
mod theirs;

use std::time::Duration;

use engine::affinity::allowed_cpus;

use crate::Error;
use crate::measure::{median, real};
use crate::progress::Steps;
use crate::study::{Findings, Settings};
use rig::{Rig, Sample};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Runs of each case; medians count.
    rounds: usize,
    /// How long each runs, at least.
    time: Duration,
    sizes: Sizes,
}

/// Which sizes, and how many commands at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    All,
    /// Every third one.
    Few,
}

/// Runs the study.
pub(crate) fn run(settings: &Settings, steps: &Steps<'_>) -> Result<Findings, Error> {
    let rounds = settings.rounds([3, 3, 9]);
    let time = Duration::from_millis(settings.effort.of(1, 100, 200));
    let sizes = settings.effort.of(Sizes::Few, Sizes::All, Sizes::All);
    Ok(findings::report(&Measured::take(&Options { rounds, time, sizes }, steps)?))
}

/// What carries a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// Plain iSCSI, without digests, as in the study.
    Tcp,
    /// With both digests.
    TcpDigests,
    /// iSER over software iWARP, with the CRC of MPA.
    Iwarp,
    /// Without it.
    IwarpNoCrc,
}

impl Carrier {
    const ALL: [Self; 4] = [Self::Tcp, Self::TcpDigests, Self::Iwarp, Self::IwarpNoCrc];
    /// Those that are compared.
    const BOTH: [Self; 2] = [Self::Iwarp, Self::Tcp];

    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "iSCSI/TCP",
            Self::TcpDigests => "iSCSI/TCP, digests",
            Self::Iwarp => "iSER/iWARP",
            Self::IwarpNoCrc => "iSER/iWARP, no CRC",
        }
    }
}

/// How write data gets to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    /// All of it is asked for: InitialR2T=Yes, ImmediateData=No, as in the study.
    All,
    /// The first burst is not: InitialR2T=No, ImmediateData=Yes.
    Rest,
}

/// What backs the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// MEMORYIO of the study.
    Memory,
    /// FILEIO.
    File,
}

/// What is asked for, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    carrier: Carrier,
    asking: Asking,
    backing: Backing,
    write: bool,
    /// Of a transfer.
    bytes: u32,
    /// Of a command at most; what does not fit takes several, one after the other.
    cut: u32,
    /// Transfers at once.
    depth: usize,
}

/// Commands of the kernel-space initiator: what Linux cuts transfers into.
const KERNEL_CUT: u32 = 512 << 10;

/// The largest command of ours: transfers above that take several, as no initiator may send more
/// than a disk takes at once.
const OWN_CUT: u32 = 4 << 20;

/// The sizes of the study's figures, 512 B to 10 MiB.
const SIZES: [u32; 16] = [
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    10 << 20,
];

/// Those with many commands at once.
const MANY_SIZES: [u32; 3] = [4 << 10, 64 << 10, 512 << 10];

const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

impl Load {
    fn name(self) -> String {
        let what = if self.write { "write" } else { "read" };
        let size = crate::picture::bytes(u64::from(self.bytes));
        format!("{what} of {size} by {}, {} at once", self.carrier.name(), self.depth)
    }

    /// With the parameters of the study, in user space.
    const fn of(carrier: Carrier, write: bool, bytes: u32) -> Self {
        let (asking, backing) = (Asking::All, Backing::Memory);
        Self { carrier, asking, backing, write, bytes, cut: OWN_CUT, depth: 1 }
    }

    const fn unasked(self) -> Self {
        Self { asking: Asking::Rest, ..self }
    }

    const fn in_file(self) -> Self {
        Self { backing: Backing::File, ..self }
    }

    /// In commands as those of Linux.
    const fn in_pieces(self) -> Self {
        Self { cut: KERNEL_CUT, ..self }
    }

    const fn at_once(self, depth: usize) -> Self {
        Self { depth, ..self }
    }

    /// All that is measured.
    fn all(options: &Options) -> Vec<Self> {
        let mut loads = Vec::new();
        for write in [false, true] {
            for carrier in Carrier::BOTH {
                for bytes in options.sizes() {
                    let load = Self::of(carrier, write, bytes);
                    loads.extend([load, load.unasked(), load.in_file()]);
                    if bytes > KERNEL_CUT {
                        loads.push(load.in_pieces());
                    }
                }
                for bytes in MANY_SIZES {
                    let depths = options.depths().into_iter();
                    loads
                        .extend(depths.map(|depth| Self::of(carrier, write, bytes).at_once(depth)));
                }
            }
            for carrier in Carrier::ALL {
                loads.extend(CPU_SIZES.map(|bytes| Self::of(carrier, write, bytes)));
            }
        }
        let mut once: Vec<Self> = Vec::with_capacity(loads.len());
        for load in loads {
            if !once.contains(&load) {
                once.push(load);
            }
        }
        once
    }
}

/// Reads whose data comes in a few pieces: more than one, and fewer than keep both sides busy.
const READ_SIZES: std::ops::RangeInclusive<u32> = 32 << 10..=1 << 20;

/// Where the cost of CRCs is looked at.
const CPU_SIZES: [u32; 2] = [64 << 10, 1 << 20];

impl Options {
    const fn step(&self) -> usize {
        match self.sizes {
            Sizes::All => 1,
            Sizes::Few => 3,
        }
    }

    fn sizes(&self) -> Vec<u32> {
        // The largest is always among them.
        SIZES.into_iter().step_by(self.step()).collect()
    }

    fn depths(&self) -> Vec<usize> {
        let last = DEPTHS.last().copied();
        let mut depths: Vec<usize> = DEPTHS.into_iter().step_by(self.step()).collect();
        depths.extend(last.filter(|last| !depths.contains(last)));
        depths
    }
}

/// One load.
#[derive(Debug)]
struct Case {
    load: Load,
    samples: Vec<Sample>,
}

impl Case {
    fn values(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }

    fn typical(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.values(of))
    }

    /// Megabits of payload in a second, as the study counts.
    fn megabits(&self) -> f64 {
        median(self.rates())
    }

    /// The same of each run.
    fn rates(&self) -> Vec<f64> {
        let bits = 8.0 * f64::from(self.load.bytes);
        self.values(|sample| sample.transfers * bits / sample.seconds / 1e6)
    }

    /// Microseconds from one transfer to the next.
    fn each_us(&self) -> f64 {
        self.typical(|sample| sample.seconds * 1e6 / sample.transfers)
    }

    /// How often target and initiator have slept in a transfer.
    fn sleeps(&self) -> [f64; 2] {
        [
            self.typical(|sample| real(sample.target.voluntary) / sample.transfers),
            self.typical(|sample| real(sample.initiator.voluntary) / sample.transfers),
        ]
    }

    /// Processor time of target and initiator for a transfer, microseconds.
    fn cpu_us(&self) -> [f64; 2] {
        let each = |ns: u64, sample: &Sample| real(ns) / 1000.0 / sample.transfers;
        [
            self.typical(|sample| each(sample.target.cpu_ns, sample)),
            self.typical(|sample| each(sample.initiator.cpu_ns, sample)),
        ]
    }
}

/// All that was measured.
#[derive(Debug)]
struct Measured {
    options: Options,
    engine: &'static str,
    cpus: usize,
    cases: Vec<Case>,
    /// Reads where both sides spin before they sleep.
    spinning: Vec<Case>,
    /// Of the frames.
    counted: frames::Counted,
}

impl Rig {
    fn take_turns(
        &mut self,
        cases: &mut [Case],
        options: &Options,
        steps: &Steps<'_>,
    ) -> Result<(), Error> {
        for _ in 0..options.rounds {
            for case in &mut *cases {
                steps.next(&case.load.name())?;
                case.samples.push(self.run(case.load, options.time)?);
            }
        }
        Ok(())
    }
}

impl Measured {
    fn take(options: &Options, steps: &Steps<'_>) -> Result<Self, Error> {
        // What a thread waits is not to count as work.
        let mut rig = Rig::start(Duration::ZERO)?;
        let engine = rig.engine();
        let cases = Load::all(options).into_iter();
        let mut cases: Vec<Case> = cases.map(|load| Case { load, samples: Vec::new() }).collect();
        let mut spinning = Self::to_spin(options);
        steps.expect(options.rounds * (cases.len() + spinning.len()));
        // All take turns, so that what the machine does besides hits all of them.
        let ran = rig.take_turns(&mut cases, options, steps);
        let counted = ran.and_then(|()| frames::Counted::take(&rig));
        // Whatever came of it, nothing is served any more.
        rig.stop()?;
        let counted = counted?;
        let mut rig = Rig::start(engine::limits::SPIN_MAX)?;
        let ran = rig.take_turns(&mut spinning, options, steps);
        rig.stop()?;
        ran?;
        let (options, cpus) = (*options, allowed_cpus().len());
        Ok(Self { options, engine, cpus, cases, spinning, counted })
    }

    fn to_spin(options: &Options) -> Vec<Case> {
        let loads = options.sizes().into_iter().filter(|size| READ_SIZES.contains(size));
        let loads = loads.flat_map(|size| Carrier::BOTH.map(|of| Load::of(of, false, size)));
        loads.map(|load| Case { load, samples: Vec::new() }).collect()
    }

    fn case(&self, load: Load) -> Option<&Case> {
        self.cases.iter().find(|case| case.load == load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_study_is_measured_from_end_to_end() {
        for (sizes, least, most) in [(Sizes::All, 250, 400), (Sizes::Few, 90, 160)] {
            let options = Options { rounds: 1, time: Duration::ZERO, sizes };
            let sizes = options.sizes();
            assert_eq!((sizes.first(), sizes.last()), (Some(&512), Some(&(10 << 20))));
            assert_eq!(options.depths().last(), Some(&32));
            let loads = Load::all(&options);
            assert!((least..most).contains(&loads.len()), "{}", loads.len());
            let first = loads.first().copied();
            assert!(loads.iter().filter(|load| Some(**load) == first).count() == 1);
        }
    }
}
