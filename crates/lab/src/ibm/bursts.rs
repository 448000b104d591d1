// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a burst of writes costs the initiator's side: to files on disks that are attached over TCP
//! and raw Ethernet, to these disks without a file system, and to a file of a server of NFS.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::affinity;
use target::Target;

use super::Way;
use super::loops::{self, Loops};
use super::nas::{Nas, RamDisk, Served};
use super::rig::{DISK_BYTES, TARGET, cpus, start_nas, start_target};
use super::wire::Wire;
use crate::Error;
use crate::attached::{Attached, Disk, FileSystem, Mounted, Writes};
use crate::measure::real;
use crate::progress::Steps;
use crate::study::Settings;
use crate::threads;
use crate::workplace::Workplace;

/// Of a write; and as much lies between two of them, so that no two can be made one.
pub(super) const WRITE: u32 = 4 << 10;

/// Of a burst: half of a disk is for the file system.
const WRITES_MOST: u64 = 2048;
const _: () = assert!(offset(WRITES_MOST) <= DISK_BYTES / 2);

/// A disk for each goal that is one, and memory for those at hand.
const LUNS: u16 = 6;
const MEMORY_MIB: u64 = 2 * (DISK_BYTES >> 20) + 1;

/// Of frames, bytes: the first size of the other figures.
const MTU: u32 = 1500;

/// As the sessions of the other figures are.
const OPTIONS: [&str; 4] = ["--header-digest", "off", "--data-digest", "off"];

/// The loops count alone for so long before each round.
const REST: Duration = Duration::from_millis(20);

/// Parts of that, of which the fastest counts.
const RESTS: u32 = 3;

/// Where a burst goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    pub(super) way: Way,
    /// Whether this side has the file system.
    pub(super) files: bool,
}

impl Goal {
    pub(super) const ALL: [Self; 7] = [
        Self { way: Way::Local, files: true },
        Self { way: Way::Tcp, files: true },
        Self { way: Way::Ether, files: true },
        Self { way: Way::Nfs, files: false },
        Self { way: Way::Local, files: false },
        Self { way: Way::Tcp, files: false },
        Self { way: Way::Ether, files: false },
    ];

    pub(super) fn name(self) -> String {
        match self.way {
            Way::Nfs => "NFS".into(),
            way if self.files => format!("{}, a file system", way.name()),
            way => format!("{}, the disk alone", way.name()),
        }
    }
}

/// What a burst took of processors, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    /// On the wall, until all of it was written.
    pub(super) seconds: f64,
    /// What the loops of both sides have missed, without what the target's threads have used.
    pub(super) by_loop: f64,
    /// What the kernel's accounts have of this thread, of the process that has attached the disk
    /// and of the kernel's threads.
    pub(super) by_accounts: f64,
}

/// All bursts to one goal.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) goal: Goal,
    pub(super) took: Vec<Took>,
}

/// Something of a burst.
pub(super) type Of = fn(&Took) -> f64;

/// All that was measured.
#[derive(Clone, Debug)]
pub(super) struct Bursts {
    /// Of a burst.
    pub(super) writes: u64,
    pub(super) rounds: usize,
    pub(super) cases: Vec<Case>,
    /// What is not to be had here, and why.
    pub(super) lacking: Vec<(Way, String)>,
}

impl Bursts {
    /// The reason, where disks cannot be attached.
    pub(super) fn take(
        settings: &Settings,
        steps: &Steps<'_>,
    ) -> Result<Result<Self, String>, Error> {
        let program = settings.program.as_deref();
        let Some(program) = program else {
            return Ok(Err("it needs the command lunwire, which attaches disks".into()));
        };
        let bursts = Self {
            writes: settings.effort.of(64, WRITES_MOST, WRITES_MOST),
            rounds: settings.rounds([3, 7, 15]),
            cases: Vec::new(),
            lacking: Vec::new(),
        };
        let wire = Wire::lay(&[MTU], cpus());
        // In a thread of its own, which can be in the initiator's network.
        let work = || bursts.run(program, &wire, steps);
        let ended = std::thread::scope(|scope| scope.spawn(work).join());
        ended.map_err(|_| Error::rig("the load has panicked"))?
    }

    fn run(
        mut self,
        program: &Path,
        wire: &Result<Wire, String>,
        steps: &Steps<'_>,
    ) -> Result<Result<Self, String>, Error> {
        match wire {
            Ok(wire) => wire.initiator.enter().map_err(Error::rig)?,
            Err(why) => self.lacking.push((Way::Ether, why.clone())),
        }
        // Where it cannot be pinned it runs where it likes.
        let _ = affinity::pin(cpus()[1]);
        let mut side = match Side::start(wire.as_ref().ok()) {
            Ok(side) => side,
            Err(why) => return Ok(Err(why)),
        };
        let ran = side.attach(program, wire.as_ref().ok()).and_then(|disks| {
            let ran = self.take_turns(&mut side, &disks, steps);
            let ended: Vec<_> = disks.into_iter().map(|(_, disk)| disk.end()).collect();
            // All have ended before the first that went wrong is told.
            ran.and_then(|()| ended.into_iter().collect::<Result<(), Error>>())
        });
        for (way, why) in side.lacking.drain(..) {
            // One reason for each, and the first one.
            if self.lacking.iter().all(|(lacking, _)| *lacking != way) {
                self.lacking.push((way, why));
            }
        }
        let ended = side.end();
        ran?;
        ended?;
        Ok(Ok(self))
    }

    fn take_turns(
        &mut self,
        side: &mut Side,
        disks: &[(Goal, Disk)],
        steps: &Steps<'_>,
    ) -> Result<(), Error> {
        let mut places = Vec::new();
        for (goal, disk) in disks {
            match Place::of(*goal, disk, &side.new) {
                Ok(place) => places.push(place),
                Err(error) => side.lacking.push((goal.way, error.why())),
            }
        }
        let goals = Goal::ALL.into_iter();
        let is_there = |goal: &Goal| match goal.way {
            Way::Nfs => side.nas.is_some(),
            _ => places.iter().any(|place| place.goal == *goal),
        };
        let goals = goals.filter(is_there);
        self.cases = goals.map(|goal| Case { goal, took: Vec::new() }).collect();
        steps.expect(self.rounds * self.cases.len());
        let mut all = Vec::new();
        // The first one of each is for caches and memory.
        for round in 0..=self.rounds {
            side.rest();
            for (at, case) in self.cases.iter().enumerate() {
                if round > 0 {
                    steps.next(&format!("a burst of writes: {}", case.goal.name()))?;
                }
                let place = places.iter().find(|place| place.goal == case.goal);
                let sample = side.burst(place, self.writes)?;
                if round > 0 {
                    all.push((at, sample));
                }
            }
        }
        for (at, sample) in all {
            let took = sample.settle(&side.idle);
            self.cases.get_mut(at).into_iter().for_each(|case| case.took.push(took));
        }
        places.into_iter().try_for_each(Place::end)
    }

    pub(super) fn case(&self, goal: Goal) -> Option<&Case> {
        self.cases.iter().find(|case| case.goal == goal)
    }
}

impl Case {
    pub(super) fn values(&self, of: Of) -> Vec<f64> {
        self.took.iter().map(of).collect()
    }
}

/// A target of disks in memory, a server of NFS, and what tells how much both sides have to do.
struct Side {
    target: Arc<Target>,
    threads: Vec<u32>,
    nas: Option<Nas>,
    /// What is not to be had here, and why.
    lacking: Vec<(Way, String)>,
    loops: Loops,
    idle: Vec<f64>,
    new: FileSystem,
    data: Vec<u8>,
    /// Last: all else is below them.
    memory: RamDisk,
    folder: Workplace,
}

impl Side {
    fn start(wire: Option<&Wire>) -> Result<Self, String> {
        let told = Error::why;
        let new = FileSystem::of(DISK_BYTES)?;
        let folder = Workplace::new().map_err(|error| error.to_string())?;
        let memory = RamDisk::mount(&folder.path().join("memory"), MEMORY_MIB)?;
        let [theirs, ours] = cpus();
        let mut lacking = Vec::new();
        let before = threads::all();
        let target = start_target(wire, theirs, LUNS, &mut lacking).map_err(told)?;
        let threads = threads::all().into_iter().filter(|tid| !before.contains(tid)).collect();
        let nas = start_nas(wire, theirs).and_then(Served::connect);
        let nas = nas.map_err(|why| lacking.push((Way::Nfs, why))).ok();
        let sides = if ours == theirs { vec![ours] } else { vec![theirs, ours] };
        let loops = Loops::start(&sides).map_err(told)?;
        let idle = vec![0.0; sides.len()];
        let data = vec![0xa5; WRITE as usize];
        Ok(Self { target, threads, nas, lacking, loops, idle, new, data, memory, folder })
    }

    /// All disks that there can be.
    fn attach(&mut self, program: &Path, wire: Option<&Wire>) -> Result<Vec<(Goal, Disk)>, Error> {
        let mut disks = Vec::new();
        let goals = Goal::ALL.into_iter().filter(|goal| goal.way != Way::Nfs);
        for (lun, goal) in goals.enumerate() {
            let folder = self.folder.path().join(format!("mounted-{lun}"));
            let disk = if goal.way == Way::Local {
                let file = self.memory.path().join(format!("disk-{lun}"));
                let made = File::create(&file).and_then(|file| fill(&file, DISK_BYTES));
                made.map_err(Error::rig)?;
                Disk::local(&file, folder).map_err(Error::Rig)
            } else {
                let Some(url) = self.url(goal.way, wire, lun) else { continue };
                let state = self.folder.path().join(format!("state-{lun}"));
                let attached = Attached::start(program, &url, &OPTIONS, &state);
                attached.and_then(|attached| Disk::attached(attached, folder))
            };
            match disk {
                Ok(disk) => disks.push((goal, disk)),
                Err(error) => self.lacking.push((goal.way, error.why())),
            }
        }
        Ok(disks)
    }

    fn url(&self, way: Way, wire: Option<&Wire>, lun: usize) -> Option<String> {
        if way == Way::Tcp {
            let portal = self.target.portals().first().copied()?;
            return Some(format!("iscsi://{portal}/{TARGET}/{lun}"));
        }
        let interface = &wire?.pairs.first()?.initiator;
        let stations = self.target.stations();
        let (place, _) = stations.first()?;
        Some(format!("ether://{}%{interface}/{TARGET}/{lun}", place.mac))
    }

    /// Lets the loops count alone.
    fn rest(&mut self) {
        for _ in 0..RESTS {
            let before = self.now();
            std::thread::sleep(REST / RESTS);
            let after = self.now();
            self.note(&before, &after);
        }
    }

    /// The fastest that a loop ever was is nearest to what it is when nothing else is done.
    fn note(&mut self, before: &Now, after: &Now) {
        for (idle, rate) in self.idle.iter_mut().zip(after.since(before).1) {
            *idle = idle.max(rate);
        }
    }

    /// To a place, or else to the server of NFS.
    fn burst(&mut self, place: Option<&Place<'_>>, writes: u64) -> Result<Sample, Error> {
        let initiator = place.and_then(|place| place.initiator);
        let accounts_before = self.accounts(initiator);
        let before = self.now();
        match place {
            Some(place) => place.burst(writes, &self.data).map_err(Error::rig)?,
            None => {
                let nas = self.nas.as_mut().ok_or_else(|| Error::rig("no server of NFS"))?;
                nas.burst((0..writes).map(offset), &self.data)?;
            }
        }
        let after = self.now();
        let accounts = self.accounts(initiator);
        self.note(&before, &after);
        let [theirs, ours] =
            [0, 1].map(|at: usize| accounts[at].saturating_sub(accounts_before[at]));
        let (seconds, rates) = after.since(&before);
        let by_accounts = real(ours + after.own_ns.saturating_sub(before.own_ns)) / 1e9;
        Ok(Sample { seconds, rates, served: real(theirs) / 1e9, by_accounts })
    }

    fn now(&self) -> Now {
        let loops = self.loops.counts().into_iter().map(real).collect();
        Now { loops, own_ns: threads::own_ns(), at: Instant::now() }
    }

    /// Nanoseconds of who serves, and of the initiator's side without this thread.
    fn accounts(&self, initiator: Option<u32>) -> [u64; 2] {
        let process = |pid: Option<u32>| pid.map_or(0, |pid| threads::process(pid).cpu_ns);
        let target: u64 = self.threads.iter().map(|tid| threads::usage(*tid).cpu_ns).sum();
        let theirs = target + process(self.nas.as_ref().map(Nas::process));
        [theirs, process(initiator) + threads::kernel_ns()]
    }

    /// Nobody uses its disks any more.
    fn end(self) -> Result<(), Error> {
        drop(self.loops);
        let stopped = self.target.stop(Duration::ZERO).map_err(Error::rig);
        let ended = self.nas.map_or(Ok(()), Nas::end);
        drop((self.memory, self.folder));
        stopped.and(ended)
    }
}

/// What is counted at a time.
struct Now {
    at: Instant,
    loops: Vec<f64>,
    /// Of this thread.
    own_ns: u64,
}

impl Now {
    /// Seconds since `before`, and what the loops have counted in a second.
    fn since(&self, before: &Self) -> (f64, Vec<f64>) {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let counts = before.loops.iter().zip(&self.loops);
        (seconds, counts.map(|(before, after)| (after - before) / seconds).collect())
    }
}

/// What a burst gave, before it is known how fast the loops are.
struct Sample {
    seconds: f64,
    rates: Vec<f64>,
    /// Of who serves, seconds.
    served: f64,
    by_accounts: f64,
}

impl Sample {
    fn settle(self, idle: &[f64]) -> Took {
        let Self { seconds, rates, served, by_accounts } = self;
        let used = rates.iter().zip(idle).map(|(rate, idle)| loops::utilization(*rate, *idle));
        let by_loop = used.sum::<f64>() * seconds - served;
        Took { seconds, by_loop, by_accounts }
    }
}

/// A disk that is ready for bursts.
struct Place<'a> {
    goal: Goal,
    initiator: Option<u32>,
    file: File,
    mounted: Option<Mounted<'a>>,
}

impl<'a> Place<'a> {
    fn of(goal: Goal, disk: &'a Disk, new: &FileSystem) -> Result<Self, Error> {
        let mounted = goal.files.then(|| disk.mount(new, Writes::Later)).transpose()?;
        let file = match &mounted {
            // It has its space: a burst changes data alone.
            Some(mounted) => File::create(mounted.folder().join("file")).and_then(|file| {
                fill(&file, offset(WRITES_MOST))?;
                file.sync_all()?;
                Ok(file)
            }),
            None => File::options().write(true).open(disk.device()),
        };
        let initiator = disk.initiator();
        Ok(Self { goal, initiator, file: file.map_err(Error::rig)?, mounted })
    }

    /// They are all in the cache at once, and then written.
    fn burst(&self, writes: u64, data: &[u8]) -> std::io::Result<()> {
        (0..writes).try_for_each(|number| self.file.write_all_at(data, offset(number)))?;
        self.file.sync_all()
    }

    fn end(self) -> Result<(), Error> {
        drop(self.file);
        self.mounted.map_or(Ok(()), Mounted::end)
    }
}

/// Of a write: each second one is left out.
const fn offset(number: u64) -> u64 {
    2 * number * WRITE as u64
}

fn fill(mut file: &File, bytes: u64) -> std::io::Result<()> {
    let part = vec![0x5a; 1 << 20];
    (0..bytes >> 20).try_for_each(|_| file.write_all(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_is_not_the_initiator() {
        let rates = vec![60.0, 75.0];
        let sample = Sample { seconds: 2.0, rates, served: 0.5, by_accounts: 0.7 };
        let took = sample.settle(&[100.0, 100.0]);
        assert!((took.by_loop - 0.8).abs() < 1e-9, "0.4 and 0.25 of two seconds: {took:?}");
        assert!((took.by_accounts - 0.7).abs() < 1e-9);
    }

    #[test]
    fn no_two_writes_touch_and_each_goal_has_a_name() {
        assert_eq!([0, 1, 2].map(offset), [0, 8192, 16384]);
        let names: std::collections::BTreeSet<String> =
            Goal::ALL.into_iter().map(Goal::name).collect();
        assert_eq!(names.len(), Goal::ALL.len());
        let disks = Goal::ALL.into_iter().filter(|goal| goal.way != Way::Nfs);
        assert_eq!(disks.count(), usize::from(LUNS));
    }
}
