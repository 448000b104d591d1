// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IBM: what moving data costs a target's processor over TCP, raw Ethernet, RDMA and NFS, with
//! nothing below it as the floor, by size of operation and frame, and how much of that is for each
//! byte, for each frame and for each operation; and what writes to files cost an initiator's.

mod apps;
mod bursts;
mod findings;
mod loops;
mod nas;
mod rig;
mod theirs;
mod wire;

use std::time::Duration;

use crate::Error;
use crate::measure::median;
use crate::picture::bytes;
use crate::progress::Steps;
use crate::study::{Findings, Settings};
use apps::Applications;
use bursts::Bursts;
use rig::Rig;
use wire::Wire;

/// How much to measure.
#[derive(Clone, Debug)]
struct Options {
    /// Of each case, in each of the two runs.
    rounds: usize,
    /// How long each case runs.
    time: Duration,
    /// Of operations, bytes.
    sizes: Vec<u32>,
    /// What frames carry, bytes.
    mtus: Vec<u32>,
}

/// The second one tells whether the first can be had again.
const RUNS: usize = 2;

/// Runs the study.
pub(crate) fn run(settings: &Settings, steps: &Steps<'_>) -> Result<Findings, Error> {
    let effort = settings.effort;
    let kib: &[u32] = effort.of(&[4, 64], &[4, 16, 64, 256], &[1, 2, 4, 8, 16, 32, 64, 128, 256]);
    let options = Options {
        rounds: settings.rounds([3, 5, 5]),
        time: Duration::from_millis(effort.of(10, 120, 500)),
        sizes: kib.iter().map(|kib| kib << 10).collect(),
        mtus: effort.of(&[1500, 9000][..], &[1500, 9000], &[1500, 4500, 9000]).to_vec(),
    };
    let measured = Measured::take(options, steps)?;
    let bursts = Bursts::take(settings, steps)?;
    let applications = Applications::take(settings, steps)?;
    Ok(findings::report(&measured, bursts.as_ref().map_err(String::as_str), &applications))
}

/// How data gets from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As values within the process: the commands and the disk alone.
    Local,
    Tcp,
    /// iSER over software iWARP.
    Iser,
    /// Raw Ethernet, by packet sockets.
    Ether,
    /// The same past the network stack.
    Xdp,
    /// No disk, but a file of a server of NFS.
    Nfs,
}

impl Way {
    /// Those to a disk.
    const ALL: [Self; 5] = [Self::Local, Self::Tcp, Self::Iser, Self::Ether, Self::Xdp];
    const NETWORK: [Self; 4] = [Self::Tcp, Self::Iser, Self::Ether, Self::Xdp];

    const fn name(self) -> &'static str {
        match self {
            Self::Local => "no network",
            Self::Tcp => "TCP",
            Self::Iser => "iSER/iWARP",
            Self::Ether => "raw Ethernet",
            Self::Xdp => "AF_XDP",
            Self::Nfs => "NFS",
        }
    }
}

/// Operations of which file servers and disks are compared; the study does not say.
const BURST: u32 = 64 << 10;

/// What is asked for, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    way: Way,
    write: bool,
    /// Of an operation.
    bytes: u32,
    /// What a frame carries; None: there is no wire.
    frame: Option<u32>,
}

impl Load {
    /// Of the operation alone.
    fn operation(self) -> String {
        format!("{} of {}", direction(self.write), bytes(u64::from(self.bytes)))
    }

    fn frame(self) -> String {
        self.frame.map_or_else(|| "-".into(), |mtu| mtu.to_string())
    }

    fn name(self) -> String {
        let frames = self.frame.map(|mtu| format!(", frames of {mtu}"));
        format!("{}, {}{}", self.way.name(), self.operation(), frames.unwrap_or_default())
    }
}

const fn direction(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

/// The part of a processor that one side has used.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// By a loop beside it.
    by_loop: f64,
    /// By the kernel's ticks.
    by_kernel: f64,
}

/// What one run of a case gave.
#[derive(Clone, Copy, Debug)]
struct Sample {
    ops: f64,
    seconds: f64,
    /// Both ways.
    frames: f64,
    /// What the loops have counted in a second, the target's first.
    loops: [f64; 2],
    target: Use,
    initiator: Use,
    /// Of the target's threads, as the kernel accounts for them.
    threads: f64,
}

impl Sample {
    /// Holds the loops against what they count when nothing else is done.
    fn settle(&mut self, idle: [f64; 2]) {
        let sides = [&mut self.target, &mut self.initiator];
        for ((side, rate), idle) in sides.into_iter().zip(self.loops).zip(idle) {
            side.by_loop = loops::utilization(rate, idle);
        }
    }
}

/// One load.
#[derive(Debug)]
struct Case {
    load: Load,
    /// Of each run.
    samples: [Vec<Sample>; RUNS],
}

/// Something of a sample.
type Of = fn(&Case, &Sample) -> f64;

impl Case {
    fn values(&self, of: Of) -> Vec<f64> {
        self.samples.iter().flatten().map(|sample| of(self, sample)).collect()
    }

    fn typical(&self, of: Of) -> f64 {
        median(self.values(of))
    }

    /// MB/s.
    fn bandwidth(&self, sample: &Sample) -> f64 {
        sample.ops * f64::from(self.load.bytes) / sample.seconds / 1e6
    }

    /// In a second.
    #[allow(clippy::unused_self)] // as the others
    fn operations(&self, sample: &Sample) -> f64 {
        sample.ops / sample.seconds
    }

    /// In a second.
    #[allow(clippy::unused_self)]
    fn frames(&self, sample: &Sample) -> f64 {
        sample.frames / sample.seconds
    }

    /// Percent of the target's processor.
    #[allow(clippy::unused_self)]
    fn utilization(&self, sample: &Sample) -> f64 {
        100.0 * sample.target.by_loop
    }

    /// The same of the initiator's.
    #[allow(clippy::unused_self)]
    fn initiator(&self, sample: &Sample) -> f64 {
        100.0 * sample.initiator.by_loop
    }

    /// Percent of the target's processor by the kernel's ticks.
    #[allow(clippy::unused_self)]
    fn kernel(&self, sample: &Sample) -> f64 {
        100.0 * sample.target.by_kernel
    }

    /// The same by what its threads have used.
    #[allow(clippy::unused_self)]
    fn threads(&self, sample: &Sample) -> f64 {
        100.0 * sample.threads
    }

    /// Percent of both processors that 100 MB/s take.
    fn cost_of_both(&self, sample: &Sample) -> f64 {
        let both = self.utilization(sample) + self.initiator(sample);
        100.0 * both / self.bandwidth(sample).max(1e-9)
    }

    /// Percent of the target's processor that 100 MB/s take, what Fibre Channel moved.
    fn cost(&self, sample: &Sample) -> f64 {
        100.0 * self.utilization(sample) / self.bandwidth(sample).max(1e-9)
    }
}

/// All that was measured.
#[derive(Debug)]
struct Measured {
    options: Options,
    engine: &'static str,
    cases: Vec<Case>,
    /// Ways that are not to be had here, and why.
    lacking: Vec<(Way, String)>,
    /// Why there is no wire, and frames have no size.
    wireless: Option<String>,
    /// Why received frames are not the receiver's work.
    unsteered: Option<String>,
}

impl Measured {
    fn take(options: Options, steps: &Steps<'_>) -> Result<Self, Error> {
        let mut measured = Self {
            options,
            engine: "",
            cases: Vec::new(),
            lacking: Vec::new(),
            wireless: None,
            unsteered: None,
        };
        for run in 0..RUNS {
            let wire = Wire::lay(&measured.options.mtus, rig::cpus()).and_then(|mut wire| {
                wire.add_for_programs(&measured.options.mtus)?;
                Ok(wire)
            });
            let work = || measured.one_run(run, &wire, steps);
            // In a thread of its own, which can be in the initiator's network.
            let ended = std::thread::scope(|scope| scope.spawn(work).join());
            ended.map_err(|_| Error::rig("the load has panicked"))??;
        }
        Ok(measured)
    }

    fn one_run(
        &mut self,
        run: usize,
        wire: &Result<Wire, String>,
        steps: &Steps<'_>,
    ) -> Result<(), Error> {
        if let Ok(wire) = wire {
            wire.initiator.enter().map_err(Error::rig)?;
        }
        let mut rig = Rig::start(wire.as_ref().ok())?;
        if run == 0 {
            self.begin(&rig, wire);
            steps.expect(RUNS * self.options.rounds * (self.cases.len() + 1));
        }
        let ran = self.take_turns(run, &mut rig, steps);
        let samples = self.cases.iter_mut().filter_map(|case| case.samples.get_mut(run)).flatten();
        samples.for_each(|sample| sample.settle(rig.idle()));
        // Whatever came of it, nothing is served any more.
        rig.stop()?;
        ran
    }

    /// What is there is what the first run finds.
    fn begin(&mut self, rig: &Rig<'_>, wire: &Result<Wire, String>) {
        self.engine = rig.engine();
        self.lacking.clone_from(&rig.lacking);
        match wire {
            Ok(wire) => self.unsteered.clone_from(&wire.unsteered),
            Err(why) => {
                self.wireless = Some(why.clone());
                self.lacking.extend([Way::Ether, Way::Xdp].map(|way| (way, why.clone())));
            }
        }
        let loads = self.loads().into_iter().filter(|load| rig.has(*load));
        self.cases = loads.map(|load| Case { load, samples: Default::default() }).collect();
    }

    /// All take turns, so that what the machine does besides hits all of them.
    fn take_turns(
        &mut self,
        run: usize,
        rig: &mut Rig<'_>,
        steps: &Steps<'_>,
    ) -> Result<(), Error> {
        let time = self.options.time;
        for _ in 0..self.options.rounds {
            steps.next("the loops alone")?;
            rig.rest(time);
            for case in &mut self.cases {
                steps.next(&case.load.name())?;
                let sample = rig.run(case.load, time)?;
                case.samples.get_mut(run).into_iter().for_each(|samples| samples.push(sample));
            }
        }
        Ok(())
    }

    /// Sizes of frames; a wire there is none has none.
    fn frames(&self) -> Vec<Option<u32>> {
        match self.wireless {
            None => self.options.mtus.iter().copied().map(Some).collect(),
            Some(_) => vec![None],
        }
    }

    fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for write in [false, true] {
            for &bytes in &self.options.sizes {
                loads.push(Load { way: Way::Local, write, bytes, frame: None });
                for frame in self.frames() {
                    loads.extend(Way::NETWORK.map(|way| Load { way, write, bytes, frame }));
                }
                if bytes == BURST {
                    let frame = self.frames().first().copied().flatten();
                    loads.push(Load { way: Way::Nfs, write, bytes, frame });
                }
            }
        }
        loads
    }

    fn case(&self, load: Load) -> Option<&Case> {
        self.cases.iter().find(|case| case.load == load)
    }

    fn cases_of(&self, way: Way, write: bool) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(move |case| (case.load.way, case.load.write) == (way, write))
    }

    fn has(&self, way: Way) -> bool {
        self.cases.iter().any(|case| case.load.way == way)
    }
}
