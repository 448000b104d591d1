// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote copy: the command `lunwire copy` on one side of a long line, a target on the other.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use scsi::{Identity, LogicalUnit};
use store::spec::Spec;
use target::{Node, Plan, Stores, Target};

use super::wan::{Counts, Nature, Wan};
use crate::Error;
use crate::measure::real;
use crate::progress::Steps;
use crate::workplace;

const TARGET: &str = "iqn.2026-01.local.lunwire:lab";

/// What is written to the first disk is dropped: no copy comes to its end before it is over.
const ENDLESS: u64 = 1 << 40;

/// The second one is of memory, to be read back.
pub(super) const WHOLE: u64 = 16 << 20;

/// What is copied there.
const COPIED: &str = "copied";

/// The line, bits in a second.
pub(super) const RATE: f64 = 1e9;

/// What its router has room for: a tenth of a second, as is usual.
const QUEUE: u64 = 12_500_000;

/// The largest send buffer of a connection where nobody has tuned anything: what Linux has.
pub(in crate::ibm) const UNTUNED: u64 = 4 << 20;

/// The same where somebody has: what 1 Gbit/s carries in half a second.
pub(in crate::ibm) const TUNED: u64 = 64 << 20;

/// What is wanted under way for 1 Gbit/s at 100 ms, and more.
pub(in crate::ibm) const DEEP: Option<u8> = Some(64);

/// A copy that moves nothing within this has failed.
const BEGIN_MOST: Duration = Duration::from_secs(20);

/// And one that is read back takes no longer.
const WHOLE_MOST: Duration = Duration::from_secs(40);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// How a copy goes, and over which line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ibm) struct Case {
    /// To the target and back, ms.
    pub(in crate::ibm) trip: u32,
    /// Lost frames, percent.
    pub(in crate::ibm) loss: f64,
    pub(in crate::ibm) connections: u16,
    /// `--depth`; None: what the command finds itself.
    pub(in crate::ibm) depth: Option<u8>,
    /// TCP's congestion control.
    pub(in crate::ibm) control: &'static str,
    /// The most that the kernel keeps to be sent of a connection, bytes (tcp_wmem).
    pub(in crate::ibm) buffer: u64,
}

impl Case {
    /// As anybody has it who says nothing.
    pub(in crate::ibm) const USUAL: Self = Self {
        trip: 100,
        loss: 0.0,
        connections: 1,
        depth: None,
        control: "cubic",
        buffer: UNTUNED,
    };

    /// Few of them: what tells most, one thing changed at a time.
    pub(super) fn some() -> Vec<Self> {
        let usual = Self::USUAL;
        let deep = Self { depth: DEEP, ..usual };
        let found = [50, 100, 200].map(|trip| Self { trip, ..usual });
        let tuned = [
            Self { connections: 8, depth: Some(16), ..usual },
            Self { connections: 8, ..deep },
            Self { trip: 200, connections: 8, ..deep },
            Self { buffer: TUNED, ..deep },
        ];
        let lossy = [(0.1, 1), (0.1, 8), (1.0, 1), (1.0, 8)];
        let lossy = lossy.map(|(loss, connections)| Self { loss, connections, ..deep });
        let other =
            [1, 8].map(|connections| Self { loss: 1.0, connections, control: "bbr", ..deep });
        found.into_iter().chain(tuned).chain(lossy).chain(other).collect()
    }

    /// Those, and all others of these trips, losses, connections and controls.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Self::some();
        for (trip, loss) in
            [50, 100, 200].map(|trip| [0.0, 0.1, 1.0].map(|loss| (trip, loss))).concat()
        {
            for (connections, control) in
                [1, 4, 8].map(|n| ["cubic", "bbr"].map(|c| (n, c))).concat()
            {
                let case = Self { trip, loss, connections, control, depth: DEEP, ..Self::USUAL };
                all.extend((!all.contains(&case)).then_some(case));
            }
        }
        all
    }

    pub(in crate::ibm) fn name(self) -> String {
        let Self { trip, loss, connections, control, .. } = self;
        let end = if connections == 1 { "" } else { "s" };
        let mut name =
            format!("{trip} ms, loss {loss} %, {connections} connection{end}, {control}");
        name.extend(self.depth.map(|depth| format!(", depth {depth}")));
        name.extend(
            (self.buffer != UNTUNED).then(|| format!(", buffer {} MiB", self.buffer >> 20)),
        );
        name
    }

    fn nature(self) -> Nature {
        Nature {
            rate: RATE,
            delay: Duration::from_millis(u64::from(self.trip)) / 2,
            loss: self.loss / 100.0,
            queue_bytes: QUEUE,
        }
    }

    fn round_trips(self, count: u32) -> Duration {
        Duration::from_millis(u64::from(self.trip)) * count
    }
}

/// What a copy moved.
#[derive(Clone, Debug)]
pub(in crate::ibm) struct Moved {
    pub(in crate::ibm) case: Case,
    /// MB/s, once it is at its pace.
    pub(in crate::ibm) rates: Vec<f64>,
    /// What became of the frames that went to the target.
    pub(in crate::ibm) frames: Counts,
}

/// A line, and a target at its end.
pub(super) struct Far<'a> {
    wan: Wan,
    target: Target,
    program: &'a Path,
    folder: &'a Path,
}

/// How much is measured of each case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Before the first one, in round trips, and beyond these.
    pub(super) before: (u32, Duration),
    /// How long each is.
    pub(super) slice: Duration,
    pub(super) slices: usize,
}

impl<'a> Far<'a> {
    /// Copies are of files in `folder`, which owns their processes. The reason, where that cannot
    /// be.
    pub(super) fn start(program: Option<&'a Path>, folder: &'a Path) -> Result<Self, String> {
        let program = program.ok_or("it needs the command lunwire, which copies")?;
        let written = std::fs::write(folder.join(COPIED), pattern(WHOLE));
        written.map_err(|error| workplace::lacks_room(folder, WHOLE, error))?;
        let wan = Wan::lay(Case::USUAL.nature())?;
        let start = || Target::start(plan()?).map_err(Error::rig);
        let started = wan.target.within(start).map_err(|error| error.to_string())?;
        Ok(Self { target: started.map_err(Error::why)?, wan, program, folder })
    }

    fn url(&self, lun: u16) -> Result<String, Error> {
        let portal = self.target.portals().first().copied();
        let portal = portal.ok_or_else(|| Error::rig("it does not listen"))?;
        Ok(format!("iscsi://{portal}/{TARGET}/{lun}"))
    }

    fn prepare(&self, case: Case) -> Result<(), Error> {
        self.wan.change(case.nature());
        let set = |name, value: &str| self.wan.set(name, value).map_err(Error::Rig);
        set("tcp_wmem", &format!("4096 16384 {}", case.buffer))?;
        // What is remembered of the line before says nothing of this one.
        set("tcp_no_metrics_save", "1")?;
        self.wan.control(case.control).map_err(Error::Rig)
    }

    fn copy(&self, case: Case, words: &[&str]) -> Result<Copy, Error> {
        let mut command = Command::new(self.program);
        command.arg("copy").args(words).arg("--quiet");
        command.args(["--connections", &case.connections.to_string()]);
        command.args(case.depth.map(|depth| format!("--depth={depth}")));
        command.env(workplace::OWNER, self.folder);
        // Who interrupts this run has it ended here.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let started = self.wan.initiator.within(|| command.spawn()).and_then(|child| child);
        Ok(Copy(started.map_err(Error::rig)?))
    }

    /// Copies from a stream that has no end, as long as it takes to see its pace.
    pub(super) fn run(&self, case: Case, pace: Pace, steps: &Steps<'_>) -> Result<Moved, Error> {
        self.prepare(case)?;
        let mut copy = self.copy(case, &["-", &self.url(0)?])?;
        let stdin = copy.0.stdin.take().ok_or_else(|| Error::rig("no pipe"))?;
        let feeder = std::thread::spawn(move || feed(stdin));
        let arrived = || self.wan.counts()[1].bytes;
        let measured = measure(case, pace, arrived, &mut copy, steps);
        let frames = self.wan.counts()[1];
        drop(copy);
        let _ = feeder.join();
        Ok(Moved { case, rates: measured?, frames })
    }

    /// Copies the file to the disk in memory, and has it read back and compared; gives MB/s of the
    /// whole, both ways, the login included.
    pub(super) fn verify(&self, case: Case, steps: &Steps<'_>) -> Result<f64, Error> {
        self.prepare(case)?;
        let path = self.folder.join(COPIED);
        let begun = Instant::now();
        let path = path.to_string_lossy();
        let mut copy = self.copy(case, &[&path, &self.url(1)?, "--verify"])?;
        while copy.0.try_wait().map_err(Error::rig)?.is_none() {
            if begun.elapsed() > WHOLE_MOST {
                return Err(Error::rig("a copy over a long line does not end"));
            }
            copy.look(steps)?;
        }
        copy.expect_success()?;
        Ok(2.0 * real(WHOLE) / 1e6 / begun.elapsed().as_secs_f64())
    }

    pub(super) fn end(self) -> Result<(), Error> {
        self.target.stop(Duration::ZERO).map_err(Error::rig)
    }
}

/// The command, which does not outlive this.
struct Copy(Child);

impl Copy {
    /// Waits a moment.
    fn look(&mut self, steps: &Steps<'_>) -> Result<(), Error> {
        if steps.is_to_stop() {
            return Err(Error::Stopped);
        }
        std::thread::sleep(LOOK);
        Ok(())
    }

    fn expect_success(&mut self) -> Result<(), Error> {
        match self.0.try_wait().map_err(Error::rig)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let mut why = String::new();
                if let Some(mut from) = self.0.stderr.take() {
                    let _ = from.read_to_string(&mut why);
                }
                Err(Error::Rig(format!("lunwire copy: {status}: {}", why.trim())))
            }
            None => Ok(()),
        }
    }

    fn wait(&mut self, time: Duration, steps: &Steps<'_>) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.expect_success()?;
            self.look(steps)?;
        }
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // What is under way is of no use to anybody.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes until nobody reads.
fn feed(mut to: ChildStdin) {
    let data = pattern(256 << 10);
    while to.write_all(&data).is_ok() {}
}

/// No block of it is of zeroes, which would not be sent.
fn pattern(bytes: u64) -> Vec<u8> {
    (1..=bytes).map(|at| (at % 251) as u8 + 1).collect()
}

fn measure(
    case: Case,
    pace: Pace,
    arrived: impl Fn() -> u64,
    copy: &mut Copy,
    steps: &Steps<'_>,
) -> Result<Vec<f64>, Error> {
    let begun = Instant::now();
    // More than the login and all questions.
    while arrived() < 64 << 10 {
        if begun.elapsed() > BEGIN_MOST {
            return Err(Error::rig("a copy over a long line does not begin"));
        }
        copy.wait(LOOK, steps)?;
    }
    copy.wait(case.round_trips(pace.before.0) + pace.before.1, steps)?;
    let mut rates = Vec::new();
    for _ in 0..pace.slices {
        let (before, begun) = (arrived(), Instant::now());
        copy.wait(pace.slice.max(case.round_trips(2)), steps)?;
        rates.push(real(arrived() - before) / 1e6 / begun.elapsed().as_secs_f64());
    }
    Ok(rates)
}

fn plan() -> Result<Plan, Error> {
    let mut stores = Stores::new();
    let mut luns = Vec::new();
    for (lun, spec) in [(0, Spec::Null { bytes: ENDLESS }), (1, Spec::Memory { bytes: WHOLE })] {
        let store = stores.open(&spec).map_err(Error::rig)?;
        let identity = Identity::derive(TARGET, lun, "LUNWIRE", "VIRTUAL DISK");
        luns.push((lun, Arc::new(LogicalUnit::new(identity, store, 512).map_err(Error::rig)?)));
    }
    let mut node = Node::new(TARGET.to_owned(), luns);
    node.settings.max_connections = CONNECTIONS_MAX;
    let plan = Plan::new(vec![Wan::address().into()], vec![node], stores);
    Ok(Plan { spin_max: Duration::ZERO, ..plan })
}

/// More than any case has.
const CONNECTIONS_MAX: u16 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own() {
        let all = Case::all();
        let names: std::collections::BTreeSet<String> =
            all.iter().map(|case| case.name()).collect();
        assert_eq!(names.len(), all.len());
        assert!(Case::some().iter().all(|case| all.contains(case)));
        assert!(all.iter().all(|case| case.connections <= CONNECTIONS_MAX));
    }

    #[test]
    fn no_block_of_what_is_copied_is_of_zeroes() {
        assert!(pattern(4096).iter().all(|byte| *byte > 0));
    }
}
