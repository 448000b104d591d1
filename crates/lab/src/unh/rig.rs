// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target and its initiator in this process, over loopback: one transfer after the other, as the
//! study's interpreter did with `repeat`, or several at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use buf::Slice;
use capture::Capture;
use engine::Choice;
use initiator::{Begin, Checks, Data, DigestOffer, Event, Geometry, Queue, Request, Retry};
use initiator::{SessionId, Transport};
use scsi::{Identity, LogicalUnit};
use store::spec::Spec;
use target::{Node, Plan, Rdma, Stores, Target};

use super::{Asking, Backing, Carrier, Load};
use crate::measure::real;
use crate::threads::{Usage, find, usage};
use crate::workplace::Workplace;
use crate::{Error, LOAD_NAME};

const TARGET: &str = "iqn.2026-01.local.lunwire:lab";

/// Bytes of each disk: three of the largest transfers, and what most servers have in a cache.
const DISK_BYTES: u64 = 32 << 20;

/// Bytes that the buffers of one side may take.
const POOL_BYTES: usize = 256 << 20;

/// So many transfers are counted at least.
const TRANSFERS_MIN: u64 = 3;

/// The study's bursts and data segments: InitiatorRecvDataSegmentLength is less with iSER here,
/// which no data goes by that is asked for.
const BURST: u32 = 512 << 10;

/// What one run gave.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) transfers: f64,
    pub(super) seconds: f64,
    /// What the target's thread used, and the initiator's.
    pub(super) target: Usage,
    pub(super) initiator: Usage,
}

impl Sample {
    /// Processor time of both sides for a transfer, microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        real(self.target.cpu_ns + self.initiator.cpu_ns) / 1000.0 / self.transfers
    }
}

/// A running target, and sessions of all kinds with it.
pub(super) struct Rig {
    target: Target,
    portal: SocketAddr,
    threads: [u32; 2],
    queue: Queue,
    sessions: Vec<(Carrier, Asking, SessionId)>,
    geometry: Geometry,
    at: u64,
    _folder: Workplace,
}

impl Rig {
    /// `spin_max`: how long both sides look for more before they sleep.
    pub(super) fn start(spin_max: Duration) -> Result<Self, Error> {
        let wrong = |error: String| Error::Rig(error);
        let cpus = engine::affinity::allowed_cpus();
        let folder = Workplace::new().map_err(|error| wrong(error.to_string()))?;
        let place = cpus.first().copied().into_iter().collect();
        let plan = plan(&folder, place, spin_max)?;
        let target = Target::start(plan).map_err(|error| wrong(error.to_string()))?;
        let portal = target.portals().first().copied();
        let portal = portal.ok_or_else(|| wrong("it does not listen".into()))?;
        if let Some(last) = cpus.last() {
            // Where it cannot be pinned it runs where it likes.
            let _ = engine::affinity::pin(*last);
        }
        let threads = ["reactor-0", LOAD_NAME].map(find);
        let [Some(reactor), Some(load)] = threads else {
            return Err(wrong("a thread is missing".into()));
        };
        let mut queue = queue(spin_max)?;
        let mut sessions = Vec::new();
        for carrier in Carrier::ALL {
            for asking in [Asking::All, Asking::Rest] {
                let session = log_in(&mut queue, portal, (carrier, asking), None)?;
                sessions.push((carrier, asking, session));
            }
        }
        let first = sessions.first().map(|(_, _, session)| *session);
        let first = first.ok_or_else(|| wrong("no session".into()))?;
        let geometry = initiator::scsi::geometry(&mut queue.unit(first, 0));
        let geometry = geometry.map_err(|error| wrong(error.to_string()))?;
        let threads = [reactor, load];
        let mut rig =
            Self { target, portal, threads, queue, sessions, geometry, at: 0, _folder: folder };
        // All of the disks has its memory before anything is measured, and each session has moved
        // something.
        for carrier in Carrier::ALL {
            for backing in [Backing::Memory, Backing::File] {
                let load = Load { backing, ..Load::of(carrier, true, 1 << 20) };
                let all = |transfers, _| transfers * u64::from(load.bytes) < DISK_BYTES;
                rig.keep_busy(load, all).map_err(|error| match backing {
                    Backing::Memory => error,
                    Backing::File => needs_room(error),
                })?;
            }
        }
        Ok(rig)
    }

    pub(super) fn engine(&self) -> &'static str {
        self.target.engine()
    }

    pub(super) fn run(&mut self, load: Load, time: Duration) -> Result<Sample, Error> {
        let before = self.threads.map(usage);
        let going = |transfers, elapsed| transfers < TRANSFERS_MIN || elapsed < time;
        let (transfers, seconds) = self.keep_busy(load, going)?;
        let [target, initiator] = self.threads.map(usage);
        let (target, initiator) = (target - before[0], initiator - before[1]);
        Ok(Sample { transfers: real(transfers), seconds, target, initiator })
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        drop(self.queue);
        self.target.stop(Duration::ZERO).map_err(|error| Error::Rig(error.to_string()))
    }

    /// A session of its own that is captured, with this load once, or with none.
    pub(super) fn capture(&self, load: Load, once: bool, to: &Capture) -> Result<(), Error> {
        let mut queue = queue(Duration::ZERO)?;
        let of = (load.carrier, load.asking);
        let session = log_in(&mut queue, self.portal, of, Some(to.clone()))?;
        // A new nexus has unit attentions.
        let _ = initiator::scsi::test_unit_ready(&mut queue.unit(session, 0));
        if once {
            let mut driver =
                Driver { queue: &mut queue, session, load, geometry: &self.geometry, at: &mut 0 };
            driver.keep_busy(|transfers, _| transfers == 0)?;
        }
        queue.logout(session);
        Ok(())
    }

    fn keep_busy(
        &mut self,
        load: Load,
        going: impl Fn(u64, Duration) -> bool,
    ) -> Result<(u64, f64), Error> {
        let is_it =
            |one: &&(Carrier, Asking, SessionId)| (one.0, one.1) == (load.carrier, load.asking);
        let session = self.sessions.iter().find(is_it).map(|(_, _, session)| *session);
        let session = session.ok_or_else(|| Error::Rig("no session".into()))?;
        let Self { queue, geometry, at, .. } = self;
        Driver { queue, session, load, geometry, at }.keep_busy(going)
    }
}

/// Transfers on one session.
struct Driver<'a> {
    queue: &'a mut Queue,
    session: SessionId,
    load: Load,
    geometry: &'a Geometry,
    /// The block that is next.
    at: &'a mut u64,
}

/// A transfer under way: its next block, and the blocks that are left.
#[derive(Clone, Copy)]
struct Transfer {
    lba: u64,
    left: u32,
}

impl Driver<'_> {
    /// Keeps transfers under way while `going` says so of those that are over, and of the time;
    /// gives their number and the seconds.
    fn keep_busy(&mut self, going: impl Fn(u64, Duration) -> bool) -> Result<(u64, f64), Error> {
        let length = self.load.bytes.min(self.load.cut) as usize;
        let data = self.queue.pool().take(length).ok_or(Error::Memory(length))?.freeze();
        let mut transfers = Vec::new();
        let begin = Instant::now();
        for slot in 0..self.load.depth {
            let transfer = self.next();
            transfers.push(transfer);
            self.post(slot, &mut transfers, &data)?;
        }
        let (mut over, mut under_way) = (0, self.load.depth);
        while under_way > 0 {
            self.queue.wait_n(1, Duration::from_secs(10));
            while let Some(event) = self.queue.reap() {
                let tag = match event {
                    Event::Done { tag, result, .. } => {
                        result.map_err(|error| Error::Rig(error.to_string()))?;
                        tag
                    }
                    Event::Down { error, .. } => return Err(Error::Rig(error.to_string())),
                    _ => continue,
                };
                let slot = usize::try_from(tag).unwrap_or(usize::MAX);
                let left = transfers.get(slot).map_or(0, |transfer| transfer.left);
                if left == 0 {
                    over += 1;
                    if !going(over, begin.elapsed()) {
                        under_way -= 1;
                        continue;
                    }
                    let next = self.next();
                    transfers.iter_mut().skip(slot).take(1).for_each(|slot| *slot = next);
                }
                self.post(slot, &mut transfers, &data)?;
            }
        }
        Ok((over, begin.elapsed().as_secs_f64()))
    }

    /// The next transfer, at the beginning where it does not fit any more.
    fn next(&mut self) -> Transfer {
        let blocks = self.load.bytes / self.geometry.block;
        let end = DISK_BYTES / u64::from(self.geometry.block);
        if *self.at + u64::from(blocks) > end {
            *self.at = 0;
        }
        let lba = *self.at;
        *self.at += u64::from(blocks);
        Transfer { lba, left: blocks }
    }

    /// The next command of the transfer in this slot.
    fn post(&mut self, slot: usize, transfers: &mut [Transfer], data: &Slice) -> Result<(), Error> {
        let wrong = |error: &str| Error::Rig(error.to_owned());
        let transfer = transfers.get_mut(slot).ok_or_else(|| wrong("an end of nothing"))?;
        let block = self.geometry.block;
        let blocks = transfer.left.min(self.load.cut / block);
        let lba = transfer.lba;
        *transfer = Transfer { lba: lba + u64::from(blocks), left: transfer.left - blocks };
        let length = blocks * block;
        let (cdb, data) = match self.load.write {
            true => {
                let part = data.part(0..length as usize).ok_or_else(|| wrong("no data"))?;
                (self.geometry.write(lba, blocks), Data::Out(part))
            }
            false => (self.geometry.read(lba, blocks), Data::In(length)),
        };
        let lun = match self.load.backing {
            Backing::Memory => 0,
            Backing::File => 1,
        };
        let request = Request { lun, cdb, data, retry: Retry::Always };
        let posted = self.queue.post(self.session, slot as u64, request);
        posted.map_err(|(error, _)| Error::Rig(error.to_string()))
    }
}

fn queue(spin_max: Duration) -> Result<Queue, Error> {
    let config =
        initiator::Config { spin_max, pool_bytes_max: POOL_BYTES, ..initiator::Config::default() };
    Queue::new(&config).map_err(|error| Error::Rig(error.to_string()))
}

fn log_in(
    queue: &mut Queue,
    portal: SocketAddr,
    (carrier, asking): (Carrier, Asking),
    capture: Option<Capture>,
) -> Result<SessionId, Error> {
    let mut options = initiator::Options::new(portal.to_string(), Some(TARGET.to_owned()));
    options.transport = match carrier {
        Carrier::Tcp | Carrier::TcpDigests => Transport::Tcp,
        Carrier::Iwarp => Transport::Iser(Begin::Rdma, Checks::Crc),
        Carrier::IwarpNoCrc => Transport::Iser(Begin::Rdma, Checks::None),
    };
    let digests = match carrier {
        Carrier::TcpDigests => DigestOffer::Required,
        Carrier::Tcp | Carrier::Iwarp | Carrier::IwarpNoCrc => DigestOffer::Off,
    };
    let settings = &mut options.settings;
    (settings.header_digest, settings.data_digest) = (digests, digests);
    settings.max_recv_data_segment_length = BURST;
    settings.max_burst_length = BURST;
    let asks_all = asking == Asking::All;
    (settings.initial_r2t, settings.immediate_data) = (asks_all, !asks_all);
    options.capture = capture;
    queue.login(options).map_err(|error| Error::Rig(error.to_string()))
}

fn needs_room(error: Error) -> Error {
    let (mib, below) = (DISK_BYTES >> 20, std::env::temp_dir());
    Error::Rig(format!(
        "a disk in a file needs {mib} MiB below {}: {}",
        below.display(),
        error.why()
    ))
}

fn plan(folder: &Workplace, cpus: Vec<usize>, spin_max: Duration) -> Result<Plan, Error> {
    let wrong = |error: String| Error::Rig(error);
    let mut stores = Stores::new();
    let file = format!("file:{}/disk,size={DISK_BYTES}", folder.path().display());
    let file = file.parse::<Spec>().map_err(|error| wrong(error.to_string()))?;
    let mut luns = Vec::new();
    for (number, spec) in [(0, Spec::Memory { bytes: DISK_BYTES }), (1, file)] {
        let store = stores.open(&spec).map_err(|error| wrong(error.to_string()))?;
        let identity = Identity::derive(TARGET, number, "LUNWIRE", "VIRTUAL DISK");
        let unit = LogicalUnit::new(identity, store, 512);
        luns.push((number, Arc::new(unit.map_err(|error| wrong(error.to_string()))?)));
    }
    let mut node = Node::new(TARGET.to_owned(), luns);
    node.settings.max_recv_data_segment_length = BURST;
    let portal = SocketAddr::from(([127, 0, 0, 1], 0));
    let plan = Plan::new(vec![portal.into()], vec![node], stores);
    let (engine, rdma) = (Choice::Auto, Rdma::Iwarp);
    Ok(Plan { engine, rdma, cpus, spin_max, pool_bytes_max: POOL_BYTES, ..plan })
}
