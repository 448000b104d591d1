// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMP: what it costs a target when a polling core does all work on sockets for it, against
//! doing that itself.

mod findings;
mod protocol;
mod rig;
mod theirs;

use std::time::Duration;

use engine::affinity::allowed_cpus;

use crate::Error;
use crate::progress::Steps;
use crate::study::{Findings, Settings};
use rig::{Rig, Sample};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Runs of each case; medians count.
    rounds: usize,
    /// How long each runs.
    time: Duration,
}

/// Runs the study.
pub(crate) fn run(settings: &Settings, steps: &Steps<'_>) -> Result<Findings, Error> {
    let rounds = settings.rounds([3, 5, 11]);
    let time = Duration::from_millis(settings.effort.of(50, 500, 1000));
    Ok(findings::report(&Measured::take(&Options { rounds, time }, steps)?))
}

/// How the work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// One reactor.
    Smp,
    /// A reactor and a core that sleeps with nothing to do.
    Sleeping,
    /// A reactor and a core that never sleeps.
    Polling,
}

impl Division {
    const ALL: [Self; 3] = [Self::Smp, Self::Sleeping, Self::Polling];

    const fn name(self) -> &'static str {
        match self {
            Self::Smp => "SMP",
            Self::Sleeping => "AMP",
            Self::Polling => "AMP, polling",
        }
    }
}

/// What is asked for, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    write: bool,
    bytes: u32,
}

impl Load {
    /// As in the study.
    const ALL: [Self; 4] = [
        Self { write: false, bytes: 8 << 10 },
        Self { write: true, bytes: 8 << 10 },
        Self { write: false, bytes: 64 << 10 },
        Self { write: true, bytes: 64 << 10 },
    ];

    fn name(self) -> String {
        let direction = if self.write { "write" } else { "read" };
        format!("{} KiB {direction}", self.bytes >> 10)
    }
}

/// Which CPUs run what.
#[derive(Clone, Copy, Debug)]
struct Places {
    reactor: usize,
    core: usize,
    load: usize,
    /// How many there are.
    count: usize,
}

impl Places {
    /// On two CPUs the reactor of a divided target shares one with the load: the polling core has
    /// to be alone.
    fn of(division: Division) -> Self {
        let cpus = allowed_cpus();
        let at = |index: usize| cpus.get(index % cpus.len()).copied().unwrap_or(0);
        let load = at(cpus.len() - 1);
        match (division, cpus.len()) {
            (Division::Smp, count) => Self { reactor: at(0), core: at(0), load, count },
            (_, count @ (1 | 2)) => Self { reactor: load, core: at(0), load, count },
            (_, count) => Self { reactor: at(0), core: at(1), load, count },
        }
    }
}

/// All that was measured.
#[derive(Debug)]
struct Measured {
    options: Options,
    /// Cycles of the time-stamp counter in a second.
    per_second: f64,
    engine: &'static str,
    cases: Vec<Case>,
    /// Why the processor's counters could not be read; None: they could.
    uncounted: Option<String>,
}

/// One load on one division.
#[derive(Debug)]
struct Case {
    division: Division,
    load: Load,
    samples: Vec<Sample>,
    /// System calls for each I/O of reactor and core; None: this kernel does not tell us.
    calls: Option<[f64; 2]>,
}

/// One run of each case of a division.
fn run_all(
    rig: &mut Rig,
    division: Division,
    cases: &mut [Case],
    (round, time): (usize, Duration),
    steps: &Steps<'_>,
) -> Result<(), Error> {
    for case in cases.iter_mut().filter(|case| case.division == division) {
        steps.next(&format!("{}, {}", division.name(), case.load.name()))?;
        case.samples.push(rig.run(case.load, time)?);
        if round == 0 {
            case.calls = rig.count_calls(case.load)?;
        }
    }
    Ok(())
}

impl Measured {
    fn take(options: &Options, steps: &Steps<'_>) -> Result<Self, Error> {
        let mut cases: Vec<Case> = Division::ALL
            .into_iter()
            .flat_map(|division| Load::ALL.map(|load| (division, load)))
            .map(|(division, load)| Case { division, load, samples: Vec::new(), calls: None })
            .collect();
        steps.expect(options.rounds * cases.len());
        let mut uncounted = None;
        let mut engine = "";
        // The divisions take turns, so that what the machine does besides hits all of them.
        for round in 0..options.rounds {
            for division in Division::ALL {
                let mut rig = Rig::start(division, Places::of(division))?;
                engine = rig.engine();
                let ran = run_all(&mut rig, division, &mut cases, (round, options.time), steps);
                uncounted = rig.uncounted();
                // Whatever came of it, nothing is served any more.
                rig.stop()?;
                ran?;
            }
        }
        let per_second = engine::cycles::per_second();
        Ok(Self { options: *options, per_second, engine, cases, uncounted })
    }

    fn case(&self, division: Division, load: Load) -> Option<&Case> {
        self.cases.iter().find(|case| case.division == division && case.load == load)
    }
}
