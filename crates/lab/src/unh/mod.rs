// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UNH: iSCSI whose data moves by RDMA (iSER) beside plain iSCSI, in user space on both sides, and
//! what the study left open.

mod findings;
mod frames;
mod rig;
mod theirs;

use std::time::Duration;

use engine::affinity::allowed_cpus;

use crate::measure::{median, real};
use crate::{Error, Report};
use rig::{Rig, Sample};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Runs of each case; medians count.
    pub rounds: usize,
    /// How long each runs, at least.
    pub time: Duration,
    /// Every third size alone, and fewer commands at once.
    pub quick: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { rounds: 3, time: Duration::from_millis(100), quick: false }
    }
}

/// Runs the study.
///
/// # Errors
/// [`Error`]: no memory or no threads, or a defect of ours.
pub fn run(options: &Options) -> Result<Report, Error> {
    let options = *options;
    let builder = std::thread::Builder::new().name(rig::LOAD_NAME.into());
    // It loads the target itself, and is counted by its name.
    let measured = builder.spawn(move || Measured::take(&options));
    let measured = measured.map_err(|error| Error::Rig(error.to_string()))?.join();
    let measured = measured.map_err(|_| Error::Rig("the load has panicked".into()))??;
    Ok(findings::report(&measured))
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
    fn sizes(&self) -> Vec<u32> {
        let step = if self.quick { 3 } else { 1 };
        // The largest is always among them.
        SIZES.into_iter().step_by(step).collect()
    }

    fn depths(&self) -> Vec<usize> {
        let step = if self.quick { 3 } else { 1 };
        let last = DEPTHS.last().copied();
        let mut depths: Vec<usize> = DEPTHS.into_iter().step_by(step).collect();
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
    fn typical(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(of).collect())
    }

    /// Megabits of payload in a second, as the study counts.
    fn megabits(&self) -> f64 {
        let bits = 8.0 * f64::from(self.load.bytes);
        self.typical(|sample| sample.transfers * bits / sample.seconds / 1e6)
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

impl Measured {
    fn take(options: &Options) -> Result<Self, Error> {
        // What a thread waits is not to count as work.
        let mut rig = Rig::start(Duration::ZERO)?;
        let engine = rig.engine();
        let cases = Load::all(options).into_iter();
        let mut cases: Vec<Case> = cases.map(|load| Case { load, samples: Vec::new() }).collect();
        // All take turns, so that what the machine does besides hits all of them.
        for _ in 0..options.rounds {
            for case in &mut cases {
                case.samples.push(rig.run(case.load, options.time)?);
            }
        }
        let counted = frames::Counted::take(&rig)?;
        rig.stop()?;
        let spinning = Self::take_spinning(options)?;
        let (options, cpus) = (*options, allowed_cpus().len());
        Ok(Self { options, engine, cpus, cases, spinning, counted })
    }

    fn take_spinning(options: &Options) -> Result<Vec<Case>, Error> {
        let loads = options.sizes().into_iter().filter(|size| READ_SIZES.contains(size));
        let loads = loads.flat_map(|size| Carrier::BOTH.map(|of| Load::of(of, false, size)));
        let mut cases: Vec<Case> = loads.map(|load| Case { load, samples: Vec::new() }).collect();
        let mut rig = Rig::start(engine::limits::SPIN_MAX)?;
        for _ in 0..options.rounds {
            for case in &mut cases {
                case.samples.push(rig.run(case.load, options.time)?);
            }
        }
        rig.stop()?;
        Ok(cases)
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
        for (quick, least, most) in [(false, 250, 400), (true, 90, 160)] {
            let options = Options { quick, ..Options::default() };
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
