// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target with a disk in memory, an initiator with a session of each kind, each side on a
//! processor of its own, and what tells how much these have to do.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::affinity;
use initiator::{Begin, Checks, DigestOffer, Geometry, LocalTarget, Queue, SessionId, Transport};
use scsi::{Identity, LogicalUnit};
use store::spec::Spec;
use target::{Interface, Node, Plan, Rdma, Stores, Target};

use super::loops::Loops;
use super::nas::{Nas, Served};
use super::wire::{self, Pair, Wire};
use super::{Load, Sample, Use, Way};
use crate::Error;
use crate::driver::{Ask, Driver};
use crate::machine::worked;
use crate::measure::real;
use crate::threads;

pub(super) const TARGET: &str = "iqn.2026-01.local.lunwire:lab";

/// Bytes of a disk: what most servers have in a cache.
pub(super) const DISK_BYTES: u64 = 32 << 20;

/// Bytes that the buffers of one side may take.
const POOL_BYTES: usize = 64 << 20;

/// The processors of target and initiator: one, where there is no other.
pub(super) fn cpus() -> [usize; 2] {
    let all = affinity::allowed_cpus();
    [all.first(), all.last()].map(|cpu| cpu.copied().unwrap_or(0))
}

/// All of it; the thread that makes it is the initiator's.
pub(super) struct Rig<'a> {
    target: Arc<Target>,
    /// The target's threads.
    threads: Vec<u32>,
    queue: Queue,
    sessions: Vec<(Way, Option<u32>, SessionId)>,
    geometry: Geometry,
    loops: Loops,
    /// What the loops count in a second when nothing else is done.
    idle: [f64; 2],
    wire: Option<&'a Wire>,
    nas: Option<Nas>,
    /// Ways that are not to be had here, and why.
    pub(super) lacking: Vec<(Way, String)>,
}

/// What everything has counted at a time.
struct Counted {
    at: Instant,
    loops: [f64; 2],
    worked: [f64; 2],
    threads_ns: u64,
    frames: u64,
}

/// Parts of a rest.
const RESTS: u32 = 5;

impl<'a> Rig<'a> {
    pub(super) fn start(wire: Option<&'a Wire>) -> Result<Self, Error> {
        let [ours, theirs] = [cpus()[1], cpus()[0]];
        // Where it cannot be pinned it runs where it likes.
        let _ = affinity::pin(ours);
        let before = threads::all();
        let mut lacking = Vec::new();
        let target = start_target(wire, theirs, 1, &mut lacking)?;
        let threads = threads::all().into_iter().filter(|tid| !before.contains(tid)).collect();
        let nas = start_nas(wire, theirs).and_then(Served::connect);
        let nas = nas.map_err(|why| lacking.push((Way::Nfs, why))).ok();
        let config = initiator::Config {
            spin_max: Duration::ZERO,
            pool_bytes_max: POOL_BYTES,
            ..initiator::Config::default()
        };
        let mut queue = Queue::new(&config).map_err(Error::rig)?;
        let local = queue.login(local_options(&target)).map_err(Error::rig)?;
        let geometry = initiator::scsi::geometry(&mut queue.unit(local, 0)).map_err(Error::rig)?;
        let cpus = if ours == theirs { vec![ours] } else { vec![theirs, ours] };
        let mut rig = Self {
            target,
            threads,
            queue,
            sessions: vec![(Way::Local, None, local)],
            geometry,
            loops: Loops::start(&cpus)?,
            idle: [0.0; 2],
            wire,
            nas,
            lacking,
        };
        rig.log_in_all()?;
        Ok(rig)
    }

    fn log_in_all(&mut self) -> Result<(), Error> {
        let mut frames: Vec<Option<u32>> = vec![None];
        if let Some(wire) = self.wire {
            frames = wire.pairs.iter().map(|pair| Some(pair.mtu)).collect();
        }
        let portals = self.target.portals();
        for (at, frame) in frames.into_iter().enumerate() {
            let portal = portals.get(at).copied();
            let portal = portal.ok_or_else(|| Error::rig("it does not listen"))?;
            for way in Way::NETWORK {
                let peer = match way {
                    Way::Ether | Way::Xdp => {
                        let Some(station) = self.station(way, frame) else { continue };
                        station
                    }
                    _ => portal.to_string(),
                };
                match self.queue.login(options(way, peer)) {
                    Ok(session) => self.sessions.push((way, frame, session)),
                    Err(error) => self.lacking.push((way, error.to_string())),
                }
            }
        }
        // All of the disk has its memory before anything is measured, and each session has moved
        // something.
        let loads = self.sessions.iter().map(|(way, frame, _)| Load {
            way: *way,
            write: true,
            bytes: 64 << 10,
            frame: *frame,
        });
        for load in loads.collect::<Vec<_>>() {
            self.keep_busy(load, Duration::from_millis(1))?;
        }
        Ok(())
    }

    /// The target's at the wire of this way, and our interface that leads there.
    fn station(&self, way: Way, frame: Option<u32>) -> Option<String> {
        let pair = pair_of(self.wire?, way, frame)?;
        let stations = self.target.stations();
        let (place, _) = stations.iter().find(|(at, _)| at.interface.name == pair.target)?;
        let interface = Interface { name: pair.initiator.clone(), way: frames_by(way) };
        Some(format!("{}%{interface}", place.mac))
    }

    pub(super) fn engine(&self) -> &'static str {
        self.target.engine()
    }

    /// Whether there is a session for this load.
    pub(super) fn has(&self, load: Load) -> bool {
        match load.way {
            Way::Nfs => self.nas.is_some(),
            _ => self.session(load).is_some(),
        }
    }

    fn session(&self, load: Load) -> Option<SessionId> {
        let is_it = |one: &&(Way, Option<u32>, SessionId)| (one.0, one.1) == (load.way, load.frame);
        self.sessions.iter().find(is_it).map(|(_, _, session)| *session)
    }

    /// Lets the loops count alone for so long.
    pub(super) fn rest(&mut self, time: Duration) {
        for _ in 0..RESTS {
            let before = self.counted(None, Way::Local);
            std::thread::sleep(time / RESTS);
            self.note(rates(&before, &self.counted(None, Way::Local)));
        }
    }

    /// Whatever disturbs a loop makes it slower: the fastest that it ever was is nearest to what it
    /// is when nothing else is done.
    fn note(&mut self, rates: [f64; 2]) {
        self.idle.iter_mut().zip(rates).for_each(|(idle, rate)| *idle = idle.max(rate));
    }

    /// The most that the loops have counted in a second.
    pub(super) const fn idle(&self) -> [f64; 2] {
        self.idle
    }

    pub(super) fn run(&mut self, load: Load, time: Duration) -> Result<Sample, Error> {
        let interface = self.wire.and_then(|wire| pair_of(wire, load.way, load.frame));
        let interface = interface.map(|pair| pair.initiator.as_str());
        let before = self.counted(interface, load.way);
        let ops = self.keep_busy(load, time)?;
        let after = self.counted(interface, load.way);
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let loops = rates(&before, &after);
        self.note(loops);
        let side = |at: usize| Use {
            by_loop: 0.0,
            by_kernel: (after.worked[at] - before.worked[at]) / seconds,
        };
        Ok(Sample {
            ops: real(ops),
            seconds,
            frames: real(after.frames.saturating_sub(before.frames)),
            loops,
            target: side(0),
            initiator: side(1),
            threads: real(after.threads_ns.saturating_sub(before.threads_ns)) / 1e9 / seconds,
        })
    }

    fn keep_busy(&mut self, load: Load, time: Duration) -> Result<u64, Error> {
        if load.way == Way::Nfs {
            let nas = self.nas.as_mut().ok_or_else(|| Error::rig("no server of NFS"))?;
            return nas.keep_busy(load, time);
        }
        let session = self.session(load).ok_or_else(|| Error::rig("no session"))?;
        let length = load.bytes as usize;
        let data = self.queue.pool().take(length).ok_or(Error::Memory(length))?.freeze();
        let Self { queue, geometry, .. } = self;
        let driver = Driver { queue, session, geometry, data: &data, depth: 1 };
        let ask = |number: u64, size: u64| {
            let places = (size / u64::from(load.bytes)).max(1);
            Ask { offset: number % places * u64::from(load.bytes), write: load.write }
        };
        Ok(driver.keep_busy(time, ask)?.0)
    }

    fn counted(&self, interface: Option<&str>, way: Way) -> Counted {
        let counts = self.loops.counts();
        let count = |count: Option<&u64>| real(count.copied().unwrap_or(0));
        let threads_ns = match self.nas.as_ref().filter(|_| way == Way::Nfs) {
            Some(nas) => threads::process(nas.process()).cpu_ns,
            None => self.threads.iter().map(|tid| threads::usage(*tid).cpu_ns).sum(),
        };
        let frames = interface.map_or(0, wire::frames);
        Counted {
            at: Instant::now(),
            loops: [count(counts.first()), count(counts.last())],
            worked: cpus().map(|cpu| worked(cpu).unwrap_or(0.0)),
            threads_ns,
            frames,
        }
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        drop((self.loops, self.queue));
        let stopped = self.target.stop(Duration::ZERO).map_err(Error::rig);
        let ended = self.nas.map_or(Ok(()), Nas::end);
        stopped.and(ended)
    }
}

fn rates(before: &Counted, after: &Counted) -> [f64; 2] {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    [0, 1].map(|at: usize| (after.loops[at] - before.loops[at]) / seconds)
}

/// The wire that a way has for itself, or shares with others.
fn pair_of(wire: &Wire, way: Way, frame: Option<u32>) -> Option<&Pair> {
    match way {
        Way::Xdp => wire.pair_for_programs(frame),
        _ => wire.pair(frame),
    }
}

const fn frames_by(way: Way) -> target::Way {
    match way {
        Way::Xdp => target::Way::Xdp,
        _ => target::Way::Packet,
    }
}

/// With so many disks, in the target's network, on its processor: threads are where those are that
/// start them.
pub(super) fn start_target(
    wire: Option<&Wire>,
    cpu: usize,
    luns: u16,
    lacking: &mut Vec<(Way, String)>,
) -> Result<Arc<Target>, Error> {
    let start = |ether: Vec<Interface>| -> Result<Target, Error> {
        let plan = plan(wire, cpu, luns, ether)?;
        let start = || {
            let _ = affinity::pin(cpu);
            Target::start(plan)
        };
        let started = match wire {
            Some(wire) => wire.target.within(start).map_err(Error::rig)?,
            None => start_apart(start)?,
        };
        started.map_err(Error::rig)
    };
    let Some(wire) = wire else { return Ok(Arc::new(start(Vec::new())?)) };
    let at = |pairs: &[Pair], way| -> Vec<Interface> {
        let (names, way) = (pairs.iter().map(|pair| pair.target.clone()), frames_by(way));
        names.map(|name| Interface { name, way }).collect()
    };
    let (packet, past) = (at(&wire.pairs, Way::Ether), at(&wire.for_programs, Way::Xdp));
    let both = past.iter().chain(&packet).cloned().collect();
    let started = start(both).or_else(|error| {
        if past.is_empty() {
            return Err(error);
        }
        lacking.push((Way::Xdp, error.to_string()));
        start(packet)
    });
    let started = started.or_else(|error| {
        lacking.push((Way::Ether, format!("packet sockets are not to be had: {error}")));
        start(Vec::new())
    });
    Ok(Arc::new(started?))
}

/// The server of NFS, where the target is.
pub(super) fn start_nas(wire: Option<&Wire>, cpu: usize) -> Result<Served, String> {
    let address = wire.and_then(|wire| wire.pairs.first()).map(|pair| pair.address.ip());
    let address = match address {
        Some(IpAddr::V4(address)) => address,
        _ => Ipv4Addr::LOCALHOST,
    };
    let start = || {
        let _ = affinity::pin(cpu);
        Served::start(address)
    };
    match wire {
        Some(wire) => wire.target.within(start).map_err(|error| error.to_string())?,
        None => start_apart(start).map_err(|error| error.to_string())?,
    }
}

/// In a thread of its own, which may be pinned.
fn start_apart<T: Send>(start: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let ended = std::thread::scope(|scope| scope.spawn(start).join());
    ended.map_err(|_| Error::rig("the thread that starts the target has panicked"))
}

fn local_options(target: &Arc<Target>) -> initiator::Options {
    let weak = Arc::downgrade(target);
    let way = LocalTarget::new(move || {
        let gone = || std::io::Error::other("the target has stopped");
        Ok(weak.upgrade().ok_or_else(gone)?.connect_local())
    });
    initiator::Options::within_process(way, Some(TARGET.to_owned()))
}

/// As sessions are by default, but without digests and CRCs.
fn options(way: Way, peer: String) -> initiator::Options {
    let mut options = initiator::Options::new(peer, Some(TARGET.to_owned()));
    options.transport = match way {
        Way::Local | Way::Tcp | Way::Nfs => Transport::Tcp,
        Way::Iser => Transport::Iser(Begin::Rdma, Checks::None),
        Way::Ether | Way::Xdp => Transport::Ether,
    };
    let settings = &mut options.settings;
    (settings.header_digest, settings.data_digest) = (DigestOffer::Off, DigestOffer::Off);
    options
}

fn plan(wire: Option<&Wire>, cpu: usize, luns: u16, ether: Vec<Interface>) -> Result<Plan, Error> {
    let mut stores = Stores::new();
    let mut units = Vec::new();
    for lun in 0..luns {
        let store = stores.open(&Spec::Memory { bytes: DISK_BYTES }).map_err(Error::rig)?;
        let identity = Identity::derive(TARGET, lun, "LUNWIRE", "VIRTUAL DISK");
        units.push((lun, Arc::new(LogicalUnit::new(identity, store, 512).map_err(Error::rig)?)));
    }
    let node = Node::new(TARGET.to_owned(), units);
    let portals = match wire {
        Some(wire) => wire.pairs.iter().map(|pair| pair.address.into()).collect(),
        None => vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
    };
    let plan = Plan::new(portals, vec![node], stores);
    let (rdma, cpus) = (Rdma::Iwarp, vec![cpu]);
    // What a thread waits is not to count as work.
    Ok(Plan { rdma, cpus, ether, spin_max: Duration::ZERO, pool_bytes_max: POOL_BYTES, ..plan })
}
