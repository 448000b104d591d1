// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers: our target beside others that are installed (SPDK, tgt, istgt), under one load, in turns:
//! rate, processor time of the target, and how long the slowest hundredth of answers takes.

mod findings;
mod load;
mod servers;
mod space;

use std::time::Duration;

use engine::affinity;

use crate::Error;
use crate::progress::Steps;
use crate::study::{Findings, Settings};
use crate::workplace::Workplace;
use load::{Load, Sample, fill};
use servers::Server;
use space::Space;

/// Bytes of each disk: all of it in memory, on each side.
const DISK_BYTES: u64 = 64 << 20;

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
    let rounds = settings.rounds([3, 5, 15]);
    let time = Duration::from_millis(settings.effort.of(10, 200, 1000));
    Ok(findings::report(&Measured::take(Options { rounds, time }, settings, steps)?))
}

/// Whose target it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Lunwire,
    Spdk,
    Tgt,
    Istgt,
    Lio,
}

impl Peer {
    const ALL: [Self; 5] = [Self::Lunwire, Self::Spdk, Self::Tgt, Self::Istgt, Self::Lio];
    const OTHERS: [Self; 4] = [Self::Spdk, Self::Tgt, Self::Istgt, Self::Lio];

    const fn name(self) -> &'static str {
        match self {
            Self::Lunwire => "lunwire",
            Self::Spdk => "SPDK",
            Self::Tgt => "tgt",
            Self::Istgt => "istgt",
            Self::Lio => "LIO",
        }
    }
}

/// What is asked for, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    name: &'static str,
    bytes: u32,
    /// Requests outstanding in each session.
    depth: usize,
    write: bool,
    random: bool,
    sessions: usize,
    digests: bool,
}

impl Case {
    const fn new(name: &'static str, bytes: u32, depth: usize) -> Self {
        let (write, random, sessions, digests) = (false, bytes == 4 << 10, 1, false);
        Self { name, bytes, depth, write, random, sessions, digests }
    }

    const fn writes(self) -> Self {
        Self { write: true, ..self }
    }

    const fn shape(self) -> Shape {
        Shape { sessions: self.sessions, digests: self.digests }
    }
}

/// Of the sessions that a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    sessions: usize,
    digests: bool,
}

impl Shape {
    const PLAIN: Self = Self { sessions: 1, digests: false };
}

/// Each that there is, once.
fn shapes() -> Vec<Shape> {
    let mut all: Vec<Shape> = Vec::new();
    for shape in CASES.map(Case::shape) {
        all.extend((!all.contains(&shape)).then_some(shape));
    }
    all
}

/// As `bench/run` has them.
const CASES: [Case; 12] = [
    Case::new("4 KiB random read, depth 1", 4 << 10, 1),
    Case::new("4 KiB random write, depth 1", 4 << 10, 1).writes(),
    Case::new("4 KiB random read, depth 32", 4 << 10, 32),
    Case::new("4 KiB random write, depth 32", 4 << 10, 32).writes(),
    Case { sessions: 4, ..Case::new("4 sessions, 4 KiB random read, depth 32", 4 << 10, 32) },
    Case { sessions: 4, ..Case::new("4 sessions, 4 KiB random write, depth 32", 4 << 10, 32) }
        .writes(),
    Case::new("128 KiB read, depth 8", 128 << 10, 8),
    Case::new("128 KiB write, depth 8", 128 << 10, 8).writes(),
    Case::new("1 MiB read, depth 4", 1 << 20, 4),
    Case::new("1 MiB write, depth 4", 1 << 20, 4).writes(),
    Case { digests: true, ..Case::new("both digests, 128 KiB read, depth 8", 128 << 10, 8) },
    Case { digests: true, ..Case::new("both digests, 128 KiB write, depth 8", 128 << 10, 8) }
        .writes(),
];

/// All that was measured.
#[derive(Debug)]
struct Measured {
    options: Options,
    /// On what: network, processors, versions.
    notes: Vec<String>,
    /// Those that ran.
    present: Vec<Peer>,
    /// And those that did not, with what they need.
    lacking: Vec<(Peer, String)>,
    /// For how many blocks of those that were looked at a peer gave back what was written, in
    /// percent.
    intact: Vec<(Peer, f64)>,
    /// By case and peer, of each round.
    samples: Vec<(Case, Peer, Vec<Sample>)>,
}

impl Measured {
    fn take(options: Options, settings: &Settings, steps: &Steps<'_>) -> Result<Self, Error> {
        let mut measured = Self {
            options,
            notes: Vec::new(),
            present: Vec::new(),
            lacking: Vec::new(),
            intact: Vec::new(),
            samples: Vec::new(),
        };
        let place = Workplace::new().map_err(Error::rig)?;
        // This thread is the load, and servers are where it is when it starts them.
        let space = Space::enter();
        measured.notes.push(space.told());
        let cpus = affinity::allowed_cpus();
        let [target, load] = [cpus.first(), cpus.last()].map(|cpu| cpu.copied().unwrap_or(0));
        measured.notes.push(match target == load {
            true => "There is one processor for target and load.".to_owned(),
            false => format!("Targets have processor {target}, the load has {load}."),
        });
        // Where they cannot be pinned they run where they like.
        let _ = affinity::pin(target);
        let mut servers = Vec::new();
        for peer in Peer::ALL {
            steps.expect(1);
            steps.next(&format!("starting {}", peer.name()))?;
            match Server::start(peer, &place, settings, target) {
                Ok(server) => {
                    measured.notes.push(server.about().to_owned());
                    measured.present.push(peer);
                    servers.push(server);
                }
                Err(why) => measured.lacking.push((peer, why)),
            }
        }
        let _ = affinity::pin(load);
        let ran = measured.run_all(&mut servers, steps);
        let ended: Vec<Result<(), Error>> = servers.into_iter().map(Server::end).collect();
        ran?;
        ended.into_iter().collect::<Result<(), Error>>()?;
        Ok(measured)
    }

    fn run_all(&mut self, servers: &mut [Server], steps: &Steps<'_>) -> Result<(), Error> {
        steps.expect(servers.len() * (1 + CASES.len() * self.options.rounds));
        for at in 0..servers.len() {
            let server = choose(servers, at)?;
            steps.next(&format!("filling the disk of {}", server.peer.name()))?;
            self.intact.push((server.peer, fill(server)?));
        }
        for case in CASES {
            self.samples.extend(servers.iter().map(|server| (case, server.peer, Vec::new())));
        }
        for round in 0..self.options.rounds {
            for shape in shapes() {
                self.take_turns(servers, shape, round, steps)?;
            }
        }
        Ok(())
    }

    /// All cases of these sessions once. Logins are shared: istgt sleeps for a second at each.
    fn take_turns(
        &mut self,
        servers: &mut [Server],
        shape: Shape,
        round: usize,
        steps: &Steps<'_>,
    ) -> Result<(), Error> {
        let mut loads = Vec::new();
        for at in 0..servers.len() {
            loads.push(Load::log_in(choose(servers, at)?, shape)?);
        }
        // Another one begins each time, so that what the machine does besides hits all of them.
        for case in CASES.into_iter().filter(|case| case.shape() == shape) {
            for turn in 0..servers.len() {
                let at = (turn + round) % servers.len();
                let server = choose(servers, at)?;
                let peer = server.peer;
                steps.next(&format!("{}, {}", peer.name(), case.name))?;
                let load = loads.get_mut(at).ok_or_else(|| Error::rig("no such load"))?;
                let sample = load.measure(server, case, self.options.time)?;
                let mut all = self.samples.iter_mut();
                if let Some((.., samples)) =
                    all.find(|(of, whose, _)| (*of, *whose) == (case, peer))
                {
                    samples.push(sample);
                }
            }
        }
        for (at, load) in loads.into_iter().enumerate() {
            choose(servers, at)?;
            load.leave();
        }
        Ok(())
    }

    fn of(&self, case: Case, peer: Peer) -> Option<&[Sample]> {
        let found = self.samples.iter().find(|(of, whose, _)| (*of, *whose) == (case, peer));
        found.map(|(.., samples)| samples.as_slice())
    }
}

/// Lets one of them run, and no other: who polls would take the processor from the others.
fn choose(servers: &mut [Server], chosen: usize) -> Result<&mut Server, Error> {
    for (at, server) in servers.iter_mut().enumerate() {
        if at != chosen {
            server.halt()?;
        }
    }
    let server = servers.get_mut(chosen).ok_or_else(|| Error::rig("no such server"))?;
    server.resume()?;
    Ok(server)
}
