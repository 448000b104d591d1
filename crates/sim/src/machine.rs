// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target: the target's pump over stores on simulated disks.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use buf::Pool;
use engine::Port;
use iscsi::target_role::Settings;
use scsi::Identity;
use scsi::Kept;
use scsi::LogicalUnit;
use store::FileId;
use store::FilterIndex;
use store::Geometry;
use store::Store;
use store::filter::Limit;
use store::filter::Rate;
use target::AuthenticationPolicy;
use target::Node;
use target::Portal;
use target::SteppedPlan;
use target::SteppedTarget;

use crate::disk::SECTOR;
use crate::elsewhere::Counter;
use crate::elsewhere::Elsewhere;
use crate::elsewhere::Remote;
use crate::host::target_name;
use crate::options::TargetPlan;
use crate::port::SimPort;
use crate::rados::Cluster;
use crate::rados::ImageStore;
use crate::reactors::Crew;
use crate::resizing::Shrinking;
use crate::rng::Rng;
use crate::secrets;
use crate::shelf::Cupboard;
use crate::wires;
use crate::world;
use crate::world::Place;
use crate::world::Shared;

/// A target, up or down.
#[derive(Debug)]
pub(crate) struct Machine {
    /// That of its first reactor, which listens.
    pub(crate) desk: usize,
    /// Those of all its reactors.
    pub(crate) desks: Vec<usize>,
    pub(crate) plan: TargetPlan,
    pub(crate) target: Option<SteppedTarget<SimPort>>,
    /// Its disks, one a unit.
    pub(crate) disks: Vec<usize>,
    /// Of each unit, blocks: what its file has.
    pub(crate) sizes: Vec<usize>,
    pub(crate) shrinking: Option<Shrinking>,
    /// Of each unit: how often another disk took the place of the one before.
    exchanged: Vec<u32>,
    cupboard: Option<Cupboard>,
    /// Where its stores leave what is done elsewhere.
    counter: Counter,
    rng: Rng,
    pub(crate) world: Shared,
}

impl Machine {
    /// Made before any host, so that its desk has its number.
    pub(crate) fn new(world: &Shared, plan: &TargetPlan, blocks: usize, seed: u64) -> Self {
        let mut shared = world.borrow_mut();
        let desk = shared.desks.len();
        shared.add_desk(format!("target {desk}"));
        let elsewhere = plan.elsewhere.is_some() || plan.rados.is_some();
        // What is elsewhere does what it is asked for.
        let [punch, zero] = plan.abilities.map(|can| can || elsewhere);
        let first = shared.disks.len();
        for _ in 0..plan.luns {
            let abilities = crate::disk::Abilities { punch, zero, elsewhere };
            shared.disks.push(crate::disk::Disk::new(abilities));
        }
        let disks: Vec<usize> = (first..shared.disks.len()).collect();
        shared.resets.disks.insert(desk, disks.clone());
        drop(shared);
        let rng = Rng::stream(seed, 50 + desk as u64);
        let world = Shared::clone(world);
        let sizes = vec![blocks; usize::from(plan.luns)];
        let cupboard = plan.keeping.map(|keeping| {
            let rng = Rng::stream(seed, 2000 + desk as u64);
            let of_cupboard = Rng::stream(seed, 3000 + desk as u64);
            let cupboard = Cupboard::new(keeping.errors, of_cupboard);
            let keeper = world::Keeper { cupboard: cupboard.clone(), plan: keeping, rng };
            world.borrow_mut().keepers.insert(desk, keeper);
            cupboard
        });
        let counter = Counter::default();
        if let Some(remoteness) = plan.elsewhere {
            let rng = Rng::stream(seed, 4000 + desk as u64);
            let remote = Remote::new(counter.clone(), remoteness, rng);
            world.borrow_mut().remotes.insert(desk, remote);
        }
        if let Some(rados) = plan.rados {
            let cluster =
                Cluster::new(counter.clone(), rados, Rng::stream(seed, 6000 + desk as u64));
            world.borrow_mut().clusters.insert(desk, cluster);
        }
        let exchanged = vec![0; sizes.len()];
        let (plan, target, shrinking, desks) = (plan.clone(), None, None, vec![desk]);
        Self {
            desk,
            desks,
            plan,
            target,
            disks,
            sizes,
            shrinking,
            exchanged,
            cupboard,
            counter,
            rng,
            world,
        }
    }

    /// Those behind the first one; called when all other desks are there, so that theirs do not
    /// depend on it.
    pub(crate) fn add_reactors(&mut self, seed: u64) {
        let Some(plan) = self.plan.reactors else { return };
        let mut world = self.world.borrow_mut();
        for reactor in 1..plan.count {
            let desk = world.add_desk(format!("target {}, reactor {reactor}", self.desk));
            world.desks[desk].home = self.desk;
            self.desks.push(desk);
        }
        let rng = Rng::stream(seed, 5000 + self.desk as u64);
        world.crews.insert(self.desk, Crew::new(self.desks.clone(), plan, rng));
    }

    /// Starts serving.
    pub(crate) fn start(&mut self) {
        let listener = wires::handle();
        {
            let mut world = self.world.borrow_mut();
            for desk in &self.desks {
                world.desks[*desk].state = world::State::Up;
            }
            world.handles.insert(listener.as_raw_fd(), Place::Listener);
        }
        let mut ports = Vec::new();
        for desk in &self.desks {
            let rng = Rng::new(self.rng.next());
            let port = SimPort::new(&self.world, *desk, rng, self.disks.clone());
            ports
                .push((port, Pool::new(self.plan.pool).expect("address space is left for a pool")));
        }
        if let Some(crew) = self.world.borrow_mut().crews.get_mut(&self.desk) {
            crew.begin(ports.iter().map(|(port, _)| port.waker()));
        }
        for (desk, (port, _)) in self.desks.iter().zip(&ports) {
            self.world.borrow_mut().locals.begin(*desk, port.waker());
        }
        let plan = SteppedPlan {
            portals: vec![self.portal()],
            nodes: vec![self.node()],
            discovery: AuthenticationPolicy::default(),
            login_timeout: Duration::from_secs(15),
            rdma: target::Rdma::Iwarp,
            end_wait: target::END_WAIT_DEFAULT,
            hold_back: Duration::ZERO,
            sessions_max: 64,
            connections: target::ConnectionLimits::default(),
        };
        let target = SteppedTarget::new(ports, plan, vec![listener]);
        let mut world = self.world.borrow_mut();
        world.locals.open(self.desk, target.local_door());
        self.target = Some(target);
        self.desks.iter().for_each(|desk| world.make_ready(*desk));
    }

    /// The first portal, which is that of connections without a local port. With two groups it is
    /// of the second one: those of the other portal are of none, which means the first.
    fn portal(&self) -> Portal {
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        match self.plan.two_groups {
            true => Portal { group: 2, ..address.into() },
            false => address.into(),
        }
    }

    fn node(&self) -> Node {
        let plan = &self.plan;
        let name = target_name(self.desk);
        let luns = (0..plan.luns)
            .map(|number| (number, Arc::new(self.with_keepers(number, self.unit(number)))));
        Node {
            luns: luns.collect(),
            alias: None,
            access: Vec::new(),
            authentication: secrets::of_target(
                self.desk,
                plan.secrets,
                plan.algorithm,
                plan.optional,
            ),
            settings: self.settings(),
            redirect: None,
            name,
        }
    }

    fn unit(&self, number: u16) -> LogicalUnit {
        let name = match self.exchanged[usize::from(number)] {
            0 => target_name(self.desk),
            count => format!("{}, disk {count}", target_name(self.desk)),
        };
        let identity = Identity::derive(&name, number, "LUNWIRE", "SIMULATED");
        let block = u32::try_from(self.plan.block_len).unwrap_or(0);
        LogicalUnit::new(identity, self.store(number), block).expect("a legal unit")
    }

    /// The unit with what was kept of it.
    fn with_keepers(&self, number: u16, mut unit: LogicalUnit) -> LogicalUnit {
        let Some(cupboard) = &self.cupboard else { return unit };
        for kept in [Kept::Reservations, Kept::ModeParameters] {
            let (keeper, state) = cupboard.open(number, unit.identity(), kept);
            unit = match unit.with_keeper(kept, keeper, state.as_deref()) {
                Ok(unit) => unit,
                Err(error) => {
                    let broken = format!("kept {} of unit {number}: {error}", kept.name());
                    self.world.borrow_mut().tally.broken.push(broken);
                    return self.unit(number);
                }
            };
        }
        unit
    }

    fn settings(&self) -> Settings {
        let plan = &self.plan;
        Settings {
            max_recv_data_segment_length: plan.segment,
            max_burst_length: plan.burst,
            first_burst_length: plan.first_burst,
            initial_r2t: plan.initial_r2t,
            immediate_data: plan.immediate,
            max_outstanding_r2t: plan.r2t,
            header_digest: plan.digests[0],
            data_digest: plan.digests[1],
            queue_depth: plan.window,
            error_recovery_level: plan.recovery,
            max_connections: plan.connections,
            markers: plan.markers,
            unexpected_pdus_max: match plan.unexpected {
                0 => Settings::default().unexpected_pdus_max,
                few => few,
            },
            ping_interval: Duration::from_secs(plan.ping),
            ..Settings::default()
        }
    }

    fn store(&self, number: u16) -> Arc<dyn Store> {
        let bytes = (self.sizes[usize::from(number)] * self.plan.block_len) as u64;
        if self.plan.memory {
            return Arc::new(store::memory::Memory::new(bytes).expect("memory for a small disk"));
        }
        let geometry = Geometry {
            bytes,
            read_only: false,
            discard_granularity: Some(512),
            anchors: true,
            volatile_cache: !self.plan.sync,
            physical_block: u32::try_from(SECTOR).unwrap_or(512),
            rotational: false,
        };
        let disk = self.disks[usize::from(number)];
        if let Some(rados) = &self.plan.rados {
            let sight = self.world.borrow_mut().open_image(self.desk, disk, bytes);
            let counter = self.counter.clone();
            let object = rados.object;
            return self.limited(Arc::new(ImageStore::new(counter, disk, geometry, sight, object)));
        }
        if self.plan.elsewhere.is_some() {
            return self.limited(Arc::new(Elsewhere::new(self.counter.clone(), disk, geometry)));
        }
        let file = store::file::File::new(FileId(u32::from(number)), geometry, self.plan.sync);
        let file = match self.world.borrow_mut().disks[disk].open() {
            true => file,
            false => file.after_a_loss(),
        };
        self.limited(Arc::new(file))
    }

    fn limited(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        match self.plan.limit {
            0 => store,
            limit => Arc::new(Limit::new(store, FilterIndex(0), Rate::Bytes(limit))),
        }
    }

    /// Lets the pump of `desk` run.
    pub(crate) fn turn(&mut self, desk: usize) {
        let reactor = self.desks.iter().position(|own| *own == desk);
        if let (Some(target), Some(reactor)) = (&mut self.target, reactor) {
            self.world.borrow_mut().look_at_images(self.desk);
            if reactor == 0 {
                let asking = self.world.borrow_mut().take_asking(self.desk);
                asking.into_iter().for_each(|one| target.ask(Box::new(one)));
            }
            target.turn(reactor);
            target.check();
            let mut world = self.world.borrow_mut();
            world.take_orders(self.desk);
            world.take_cluster_orders(self.desk);
            world.ring(desk);
        }
    }

    /// From its next start on another disk is behind one of its units.
    pub(crate) fn exchange(&mut self, unit: usize) {
        let mut world = self.world.borrow_mut();
        let disk = &mut world.disks[self.disks[unit]];
        *disk = disk.another();
        world.put_image(self.desk, self.disks[unit]);
        drop(world);
        self.exchanged[unit] += 1;
    }

    /// The process is killed, or with `dark` the machine loses its power. True for each disk that
    /// may have lost what was not flushed.
    pub(crate) fn crash(&mut self, dark: bool) -> Vec<bool> {
        self.target = None;
        self.world.borrow_mut().locals.close(self.desk);
        if let Some(cupboard) = &self.cupboard {
            cupboard.crash(dark);
        }
        let mut world = self.world.borrow_mut();
        self.desks.iter().for_each(|desk| world.crash(*desk, dark));
        let world = &mut *world;
        if self.plan.rados.is_some() {
            return world.lose_clients(self.desk, &self.disks);
        }
        let mut lose = |disk: &usize| {
            if dark {
                world.disks[*disk].lose_power(&mut world.disk_rng);
                return true;
            }
            world.disks[*disk].lose_process(self.desk, &mut world.disk_rng)
        };
        self.disks.iter().map(&mut lose).collect()
    }
}
