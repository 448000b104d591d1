// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The places: files at hand, targets that serve such files, and the initiator that stripes over
//! them, in this process over loopback.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use initiator::{Geometry, Options, Paths, Queue, SessionId, Stripe};
use scsi::{Identity, LogicalUnit};
use store::spec::Spec;
use target::{Node, Plan, Stores, Target};

use super::direct::{CHUNK, Cache, Files, path_of};
use super::theirs::{DISKS, NODES};
use super::{Load, Place, Sample};
use crate::Error;
use crate::driver::{Ask, Driver};
use crate::measure::real;
use crate::threads::own_ns;
use crate::workplace::Workplace;

const TARGET: &str = "iqn.2026-01.local.lunwire:lab";

/// Bytes that the buffers of one side may take.
const POOL_BYTES: usize = 64 << 20;

/// All places, with what keeps them.
pub(super) struct Rig {
    disk: Files,
    /// Why requests of one disk do not pass the cache by.
    disk_lacking: Option<String>,
    direct: Files,
    targets: Vec<Target>,
    queue: Queue,
    sessions: Vec<(Place, SessionId, Geometry)>,
    /// Why three targets do not pass the cache by.
    uncached_lacking: Option<String>,
    folder: Workplace,
}

impl Rig {
    /// `bytes` of each disk.
    pub(super) fn start(bytes: u64) -> Result<Self, Error> {
        let folder = Workplace::new().map_err(Error::rig)?;
        pin_application();
        let node = |name: &str| node_folder(folder.path(), name, bytes);
        let at_hand = node("direct")?;
        let direct = Files::open(&at_hand, DISKS, bytes, Cache::Used).map_err(Error::rig)?;
        let uncached = Files::open(&at_hand, 1, bytes, Cache::PassedBy);
        let disk_lacking = uncached.as_ref().err().map(ToString::to_string);
        let disk = match uncached {
            Ok(disk) => disk,
            Err(_) => Files::open(&at_hand, 1, bytes, Cache::Used).map_err(Error::rig)?,
        };
        let config = initiator::Config {
            spin_max: Duration::ZERO,
            pool_bytes_max: POOL_BYTES,
            ..initiator::Config::default()
        };
        let queue = Queue::new(&config).map_err(Error::rig)?;
        let mut rig = Self {
            disk,
            disk_lacking,
            direct,
            targets: Vec::new(),
            queue,
            sessions: Vec::new(),
            uncached_lacking: None,
            folder,
        };
        let memory = Spec::Memory { bytes: bytes * DISKS as u64 };
        rig.add(Place::Ram, &[memory])?;
        let folder = rig.folder.path().to_owned();
        let node = |name: &str, option| spec_of(&node_folder(&folder, name, bytes)?, option);
        rig.add(Place::X1, &[node("x1", "")?])?;
        let three = |name: &str, option| -> Result<Vec<Spec>, Error> {
            (0..NODES).map(|index| node(&format!("{name}-{index}"), option)).collect()
        };
        rig.add(Place::X3, &three("x3", "")?)?;
        let uncached = three("uncached", ",direct")?;
        rig.uncached_lacking =
            rig.add(Place::X3Uncached, &uncached).err().map(|error| error.to_string());
        Ok(rig)
    }

    /// Serves these stores, each by a target of its own, and logs in to them as one disk.
    fn add(&mut self, place: Place, specs: &[Spec]) -> Result<(), Error> {
        let mut options = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let target = Target::start(plan(spec, index)?).map_err(Error::rig)?;
            let portal = target.portals().first().copied();
            self.targets.push(target);
            let portal: SocketAddr = portal.ok_or_else(|| Error::rig("it does not listen"))?;
            options.push(Options::new(portal.to_string(), Some(name_of(index))));
        }
        let session = match options.len() {
            1 => self.queue.login(options.remove(0)),
            _ => {
                let members = options.into_iter().map(|one| Paths::new(vec![(one, 0)]));
                self.queue.login_stripe(Stripe { chunk: CHUNK, members: members.collect() })
            }
        };
        let session = session.map_err(Error::rig)?;
        let geometry = initiator::scsi::geometry(&mut self.queue.unit(session, 0));
        self.sessions.push((place, session, geometry.map_err(Error::rig)?));
        Ok(())
    }

    /// Whether requests of this size can be made there.
    pub(super) fn has(&self, place: Place, bytes: u32) -> bool {
        match place {
            Place::Direct => true,
            Place::Disk => self.disk_lacking.is_none() && self.disk.takes(bytes),
            _ => self
                .sessions
                .iter()
                .any(|(at, _, geometry)| *at == place && bytes.is_multiple_of(geometry.block)),
        }
    }

    /// What is not to be had here, and why.
    pub(super) fn lacking(&self) -> Vec<(Place, String)> {
        let whys = [(Place::Disk, &self.disk_lacking), (Place::X3Uncached, &self.uncached_lacking)];
        whys.into_iter().filter_map(|(place, why)| Some((place, why.clone()?))).collect()
    }

    pub(super) fn run(
        &mut self,
        place: Place,
        load: Load,
        time: Duration,
    ) -> Result<Sample, Error> {
        match place {
            Place::Disk => return self.disk.run(load, time),
            Place::Direct => return self.direct.run(load, time),
            _ => {}
        }
        let session = self.sessions.iter().find(|(at, ..)| *at == place);
        let (_, session, geometry) = session.ok_or_else(|| Error::rig("no session"))?;
        let length = load.bytes as usize;
        let data = self.queue.pool().take(length).ok_or(Error::Memory(length))?.freeze();
        let before = own_ns();
        let driver = Driver {
            queue: &mut self.queue,
            session: *session,
            geometry,
            data: &data,
            depth: load.depth,
        };
        let ask = |number, size| Ask {
            offset: load.offset(number, size),
            write: load.mix.writes(number),
        };
        let (ios, seconds) = driver.keep_busy(time, ask)?;
        Ok(Sample { ios: real(ios), seconds, cpu_ns: own_ns() - before })
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        drop(self.queue);
        for target in self.targets {
            target.stop(Duration::ZERO).map_err(Error::rig)?;
        }
        Ok(())
    }
}

/// This thread, and what it begins, has the last processor.
pub(super) fn pin_application() {
    if let Some(last) = engine::affinity::allowed_cpus().last() {
        // Where it cannot be pinned it runs where it likes.
        let _ = engine::affinity::pin(*last);
    }
}

pub(super) fn name_of(index: usize) -> String {
    format!("{TARGET}-{index}")
}

/// The folder of a node, with its disks, which have their space.
pub(super) fn node_folder(
    folder: &Path,
    name: &str,
    bytes: u64,
) -> Result<std::path::PathBuf, Error> {
    let folder = folder.join(name);
    let lacks = |error: std::io::Error| {
        let all = (bytes * DISKS as u64 * (2 + 2 * NODES as u64)) >> 20;
        Error::Rig(format!("the disks need {all} MiB below {}: {error}", folder.display()))
    };
    std::fs::create_dir_all(&folder).map_err(lacks)?;
    for index in 0..DISKS {
        let file = File::create(path_of(&folder, index));
        file.and_then(|mut file| fill(&mut file, bytes)).map_err(lacks)?;
    }
    Ok(folder)
}

/// Gives a file its space: whole MiB.
pub(super) fn fill(file: &mut File, bytes: u64) -> std::io::Result<()> {
    let part = vec![0x5a; 1 << 20];
    (0..bytes >> 20).try_for_each(|_| file.write_all(&part))
}

/// Its disks as RAID-0.
pub(super) fn spec_of(folder: &Path, option: &str) -> Result<Spec, Error> {
    let files =
        (0..DISKS).map(|index| format!("file:{}{option}", path_of(folder, index).display()));
    let stripe = format!("stripe:{CHUNK}({})", files.collect::<Vec<_>>().join(";"));
    stripe.parse().map_err(Error::rig)
}

pub(super) fn plan(spec: &Spec, index: usize) -> Result<Plan, Error> {
    let mut stores = Stores::new();
    let name = name_of(index);
    let store = stores.open_for(spec, 512).map_err(Error::rig)?;
    let identity = Identity::derive(&name, 0, "LUNWIRE", "VIRTUAL DISK");
    let unit = LogicalUnit::new(identity, store, 512).map_err(Error::rig)?;
    let node = Node::new(name, vec![(0, Arc::new(unit))]);
    let portal = SocketAddr::from(([127, 0, 0, 1], 0));
    let cpus = engine::affinity::allowed_cpus().into_iter().take(1).collect();
    let plan = Plan::new(vec![portal.into()], vec![node], stores);
    // What a thread waits is not to count as work.
    Ok(Plan { cpus, spin_max: Duration::ZERO, pool_bytes_max: POOL_BYTES, ..plan })
}
