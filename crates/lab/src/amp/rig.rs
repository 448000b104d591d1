// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target and its initiator in this process, and what each of their threads does for an I/O.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use buf::Slice;
use engine::Choice;
use engine::counters::Counter;
use engine::counters::What;
use initiator::{Data, Event, Geometry, Queue, Request, Retry, SessionId};
use scsi::{Identity, LogicalUnit};
use store::spec::Spec;
use target::{AuthenticationPolicy, Idle, Mode, Node, Plan, Stores, Target, Times};

use super::{Division, Load, Places};
use crate::Error;
use crate::measure::real;
use crate::threads::{Interrupts, Usage, find, interrupts, usage};

const TARGET: &str = "iqn.2026-01.local.lunwire:lab";

/// Bytes of the disk: what is read and written stays in the last cache of most servers.
const DISK_BYTES: u64 = 32 << 20;

/// Sessions, as the study ran two programs, and commands of each that are under way.
pub(crate) const SESSIONS: usize = 2;
pub(crate) const DEPTH: usize = 16;

/// How long system calls are counted.
const COUNTED: Duration = Duration::from_millis(150);

/// What one run gave.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) ios: f64,
    pub(crate) seconds: f64,
    /// The reactor's.
    pub(crate) host: Usage,
    /// The polling core's; nothing in SMP.
    pub(crate) core: Usage,
    pub(crate) interrupts: Interrupts,
    /// Counts of the time-stamp counter that a command takes, by layer of the reactor, as its
    /// stop-watch tells.
    pub(crate) layers: Vec<(&'static str, f64)>,
    /// Instructions and cache misses of reactor and core, if the processor tells.
    pub(crate) events: Option<[f64; 2]>,
}

/// A running target and the thread that loads it.
pub(crate) struct Rig {
    target: Target,
    host: u32,
    core: Option<u32>,
    engine: &'static str,
    orders: Option<Sender<(Load, Duration)>>,
    answers: Receiver<Result<(u64, f64), String>>,
    load: Option<JoinHandle<()>>,
    uncounted: Option<String>,
}

impl Rig {
    pub(crate) fn start(division: Division, places: Places) -> Result<Self, Error> {
        let wrong = |error: String| Error::Rig(error);
        let target =
            Target::start(plan(division, places)?).map_err(|error| wrong(error.to_string()))?;
        let engine = target.engine();
        let portal = target.portals().first().copied();
        let portal = portal.ok_or_else(|| wrong("it does not listen".into()))?;
        let host = find("reactor-0").ok_or_else(|| wrong("it has no reactor".into()))?;
        let core = find("ppe-0");
        let (orders, taken) = channel();
        let (tell, answers) = channel();
        let builder = std::thread::Builder::new().name("lab-load".into());
        let load = builder
            .spawn(move || load(portal, places.load, &taken, &tell))
            .map_err(|error| wrong(error.to_string()))?;
        let (orders, load) = (Some(orders), Some(load));
        let rig = Self { target, host, core, engine, orders, answers, load, uncounted: None };
        rig.answer()?;
        Ok(rig)
    }

    pub(crate) const fn engine(&self) -> &'static str {
        self.engine
    }

    pub(crate) fn uncounted(&self) -> Option<String> {
        self.uncounted.clone()
    }

    /// I/Os and seconds of one run.
    fn drive(&self, load: Load, time: Duration) -> Result<(f64, f64), Error> {
        let orders = self.orders.as_ref();
        orders.and_then(|orders| orders.send((load, time)).ok());
        self.answer()
    }

    /// What the load says next: that it has logged in, or what came of a run.
    fn answer(&self) -> Result<(f64, f64), Error> {
        let answer = self.answers.recv().map_err(|_| Error::Rig("the load has ended".into()))?;
        let (ios, seconds) = answer.map_err(Error::Rig)?;
        Ok((real(ios), seconds))
    }

    pub(crate) fn run(&mut self, load: Load, time: Duration) -> Result<Sample, Error> {
        let threads = [Some(self.host), self.core];
        let counters: Result<Vec<[Counter; 2]>, _> = threads
            .into_iter()
            .flatten()
            .map(|tid| {
                let open = |what| Counter::open(tid, what);
                Ok([open(What::Instructions)?, open(What::CacheMisses)?])
            })
            .collect::<std::io::Result<_>>();
        self.uncounted = counters.as_ref().err().map(uncountable);
        let used = || threads.map(|tid| tid.map(usage).unwrap_or_default());
        let times_before = self.target.times();
        let (before, interrupts_before) = (used(), interrupts());
        let (ios, seconds) = self.drive(load, time)?;
        let ([host, core], interrupts) = (used(), interrupts() - interrupts_before);
        let events = counters.ok().map(|counters| {
            [0, 1].map(|at| {
                let reads = counters.iter().filter_map(|pair| pair.get(at)?.read().ok());
                reads.map(real).sum::<f64>()
            })
        });
        let (host, core) = (host - before[0], core - before[1]);
        let layers = layers(&times_before, &self.target.times());
        Ok(Sample { ios, seconds, host, core, interrupts, layers, events })
    }

    /// System calls for each I/O of reactor and core; None if the kernel does not count them for
    /// us.
    pub(crate) fn count_calls(&self, load: Load) -> Result<Option<[f64; 2]>, Error> {
        let open = |tid| Counter::open(tid, What::SystemCalls).ok();
        let Some(host) = open(self.host) else { return Ok(None) };
        let core = self.core.and_then(open);
        let (ios, _) = self.drive(load, COUNTED)?;
        let each = |counter: Option<&Counter>| {
            counter.and_then(|counter| counter.read().ok()).map_or(0.0, real) / ios
        };
        Ok(Some([each(Some(&host)), each(core.as_ref())]))
    }

    pub(crate) fn stop(mut self) -> Result<(), Error> {
        self.orders = None;
        let joined = self.load.take().map_or(Ok(()), JoinHandle::join);
        let stopped = self.target.stop(Duration::ZERO);
        joined.map_err(|_| Error::Rig("the load has panicked".into()))?;
        stopped.map_err(|error| Error::Rig(error.to_string()))
    }
}

/// What a command took of each layer between two looks.
fn layers(before: &Times, after: &Times) -> Vec<(&'static str, f64)> {
    let commands = after.commands.saturating_sub(before.commands).max(1);
    let of = |times: &Times, name: &str| {
        let layer = times.layers.iter().find(|(other, _)| *other == name);
        layer.map_or(0, |(_, layer)| layer.cycles)
    };
    let each = |name: &'static str| {
        let cycles = of(after, name).saturating_sub(of(before, name));
        (name, real(cycles) / real(commands))
    };
    after.layers.iter().map(|(name, _)| each(name)).collect()
}

fn plan(division: Division, places: Places) -> Result<Plan, Error> {
    let mut stores = Stores::new();
    let wrong = |error: String| Error::Rig(error);
    let store = stores
        .open(&Spec::Memory { bytes: DISK_BYTES })
        .map_err(|error| wrong(error.to_string()))?;
    let identity = Identity::derive(TARGET, 0, "LUNWIRE", "VIRTUAL DISK");
    let unit = LogicalUnit::new(identity, store, 512).map_err(|error| wrong(error.to_string()))?;
    let node = Node {
        name: TARGET.to_owned(),
        alias: None,
        luns: vec![(0, Arc::new(unit))],
        access: Vec::new(),
        authentication: AuthenticationPolicy::default(),
        settings: iscsi::target_role::Settings::default(),
        redirect: None,
    };
    Ok(Plan {
        portals: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        listening: Vec::new(),
        nodes: vec![node],
        discovery: AuthenticationPolicy::default(),
        stores,
        engine: Choice::Auto,
        mode: match division {
            Division::Smp => Mode::Smp,
            Division::Sleeping => Mode::Amp { cores: 1, idle: Idle::Sleep },
            Division::Polling => Mode::Amp { cores: 1, idle: Idle::Poll },
        },
        reactors: 1,
        cpus: vec![places.reactor, places.core],
        // What a thread waits is not to count as work.
        spin_max: Duration::ZERO,
        pool_bytes_max: 64 << 20,
        login_timeout: Duration::from_secs(15),
        rdma: target::Rdma::Off,
        capture: None,
        adapters: target::Adapters::default(),
        ether: Vec::new(),
        frames: Vec::new(),
        end_wait: target::END_WAIT_DEFAULT,
        isns: None,
        sessions_max: target::SESSIONS_MAX,
        connections: target::ConnectionLimits::default(),
        hide_targets: false,
        limits: Vec::new(),
    })
}

/// The thread that loads the target: runs what it is told to, until nobody does any more.
fn load(
    portal: SocketAddr,
    cpu: usize,
    orders: &Receiver<(Load, Duration)>,
    tell: &Sender<Result<(u64, f64), String>>,
) {
    // Where it cannot be pinned it runs where it likes.
    let _ = engine::affinity::pin(cpu);
    let mut driver = match Driver::log_in(portal) {
        Ok(driver) => driver,
        Err(error) => return drop(tell.send(Err(error))),
    };
    // Who has gone wants no answer.
    let _ = tell.send(Ok((0, 0.0)));
    for (load, time) in orders {
        if tell.send(driver.run(load, time)).is_err() {
            break;
        }
    }
}

/// The initiator.
struct Driver {
    queue: Queue,
    sessions: Vec<SessionId>,
    geometry: Geometry,
    at: u64,
}

impl Driver {
    fn log_in(portal: SocketAddr) -> Result<Self, String> {
        let config = initiator::Config { spin_max: Duration::ZERO, ..initiator::Config::default() };
        let mut queue = Queue::new(&config).map_err(|error| error.to_string())?;
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            let options = initiator::Options::new(portal.to_string(), Some(TARGET.to_owned()));
            sessions.push(queue.login(options).map_err(|error| error.to_string())?);
        }
        let first = *sessions.first().ok_or("no session")?;
        let geometry = initiator::scsi::geometry(&mut queue.unit(first, 0));
        let geometry = geometry.map_err(|error| error.to_string())?;
        let mut driver = Self { queue, sessions, geometry, at: 0 };
        // All of the disk has its memory before anything is measured.
        let whole = Load { write: true, bytes: 64 << 10 };
        driver.keep_busy(whole, |ios, _| ios * u64::from(whole.bytes) < DISK_BYTES)?;
        Ok(driver)
    }

    fn run(&mut self, load: Load, time: Duration) -> Result<(u64, f64), String> {
        self.keep_busy(load, |_, elapsed| elapsed < time)
    }

    /// Keeps all commands under way while `going` says so of I/Os and time; gives both.
    fn keep_busy(
        &mut self,
        load: Load,
        going: impl Fn(u64, Duration) -> bool,
    ) -> Result<(u64, f64), String> {
        let data = self.queue.pool().take(load.bytes as usize).ok_or("no memory")?.freeze();
        // The disk is a multiple of any load.
        self.at = 0;
        let begin = Instant::now();
        let (mut ios, mut under_way) = (0, 0);
        for slot in 0..SESSIONS * DEPTH {
            self.post(slot, load, &data)?;
            under_way += 1;
        }
        while under_way > 0 {
            self.queue.wait_n(1, Duration::from_secs(10));
            let more = going(ios, begin.elapsed());
            while let Some(event) = self.queue.reap() {
                match event {
                    Event::Done { tag, result, .. } => {
                        result.map_err(|error| error.to_string())?;
                        ios += 1;
                        under_way -= 1;
                        if more {
                            self.post(usize::try_from(tag).unwrap_or(0), load, &data)?;
                            under_way += 1;
                        }
                    }
                    Event::Down { error, .. } => return Err(error.to_string()),
                    _ => {}
                }
            }
        }
        Ok((ios, begin.elapsed().as_secs_f64()))
    }

    fn post(&mut self, slot: usize, load: Load, data: &Slice) -> Result<(), String> {
        let session = *self.sessions.get(slot % SESSIONS).ok_or("no session")?;
        let blocks = load.bytes / self.geometry.block;
        let lba = self.at;
        self.at = (self.at + u64::from(blocks)) % (DISK_BYTES / u64::from(self.geometry.block));
        let (cdb, data) = match load.write {
            true => (self.geometry.write(lba, blocks), Data::Out(data.clone())),
            false => (self.geometry.read(lba, blocks), Data::In(load.bytes)),
        };
        let request = Request { lun: 0, cdb, data, retry: Retry::Always };
        self.queue.post(session, slot as u64, request).map_err(|(error, _)| error.to_string())
    }
}

/// Why the processor's counters cannot be read, for people.
fn uncountable(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there are none, as in most virtual machines".into(),
        ErrorKind::PermissionDenied => {
            format!("{error}; try: as root, or sysctl kernel.perf_event_paranoid=1")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_are_not_there_are_no_file() {
        let of = |code| uncountable(&std::io::Error::from_raw_os_error(code));
        assert_eq!(of(2), "there are none, as in most virtual machines");
        assert!(of(13).contains("perf_event_paranoid"), "{}", of(13));
    }
}
