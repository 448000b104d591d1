// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a seed draws: the systems, what is negotiated, the load, and what befalls them.

mod adapters;
mod deaf;
mod elsewhere;
mod ether;
mod exchange;
mod extras;
mod faults;
mod functions;
mod groups;
mod hogs;
mod hot;
mod keeping;
mod latest;
mod limits;
mod local;
mod news;
mod paths;
mod rados;
mod rdma;
mod reactors;
mod rogues;
mod show;
mod sizes;
mod slow;
mod strangers;
mod tokens;
mod writeback;

use std::time::Duration;

use initiator::DigestOffer;
use initiator::PathPolicy;
use initiator::Transport;
use iscsi::chap::Algorithm;
use iscsi::target_role::DigestPolicy;
use wire::scsi::persistent::Type;

pub use self::adapters::AdapterPlan;
pub use self::elsewhere::Remoteness;
pub use self::ether::FramePlan;
pub(crate) use self::extras::RESTS;
pub use self::extras::Secrets;
pub use self::faults::Class;
pub use self::faults::Fault;
pub use self::hogs::Hog;
pub use self::keeping::Keeping;
pub use self::limits::LimitPlan;
pub use self::rados::Rados;
pub use self::rados::Trouble;
pub use self::rdma::Usual;
pub use self::reactors::Reactors;
pub use self::rogues::Rogue;
pub use self::sizes::Resize;
use crate::rng::Rng;

/// What a session wishes.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Which target.
    pub target: usize,
    /// MaxRecvDataSegmentLength of the initiator, bytes.
    pub segment: u32,
    /// MaxBurstLength, bytes.
    pub burst: u32,
    /// FirstBurstLength, bytes.
    pub first_burst: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate: bool,
    /// MaxOutstandingR2T.
    pub r2t: u16,
    /// DataPDUInOrder and DataSequenceInOrder.
    pub in_order: [bool; 2],
    /// HeaderDigest and DataDigest.
    pub digests: [DigestOffer; 2],
    /// Requests outstanding.
    pub depth: usize,
    /// Requests in all.
    pub operations: u32,
    /// Longest request, blocks.
    pub blocks_max: usize,
    /// Longest pause between requests, microseconds.
    pub pause: u64,
    /// Whether writes whose end is unknown are sent again.
    pub repeat: bool,
    /// Seconds after which a command is aborted; 0: never.
    pub command_timeout: u64,
    /// How long to try to get a lost session back, seconds.
    pub patience: u64,
    /// Asks for markers in both directions.
    pub markers: bool,
    /// ErrorRecoveryLevel.
    pub recovery: u8,
    /// Connections that the session is to have.
    pub connections: u16,
    /// Commands go to the connection with the fewest under way; else in turn.
    pub least: bool,
    /// So many of a thousand writes are rare commands.
    pub rare: u64,
    /// So many of a thousand requests come with a task management function for their unit.
    pub manages: u64,
    /// Reserves units for itself.
    pub guard: bool,
    /// Registers beside the guard of its target.
    pub registers: bool,
    /// Longest rest, seconds; it has a few.
    pub rest: u64,
    /// So many of a thousand requests begin a copy by token.
    pub copies: u64,
    /// So many of a thousand requests fill the table of tokens of a unit.
    pub floods: u64,
    /// These are long, and their tokens expire early.
    pub long_copies: bool,
    /// So many of a thousand requests are about saved mode parameters.
    pub modes: u64,
    /// So many of a thousand copies that go on after their command meet a change of their disk.
    pub resized: u64,
    /// It needs no network.
    pub local: bool,
    /// What carries it where it does.
    pub transport: Transport,
    /// Over iSER, MaxOutstandingUnexpectedPDUs; 0: as many as usual.
    pub unexpected: u32,
    /// Over iSER it begins with a Hello.
    pub hello: bool,
    /// Paths to the disk; with one there is no choice.
    pub paths: usize,
    /// Which of them a request goes over.
    pub path_policy: PathPolicy,
}

/// What a target is.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// Logical units.
    pub luns: u16,
    /// Logical block length, bytes.
    pub block_len: usize,
    /// Its units are in memory, without disks behind them.
    pub memory: bool,
    /// Every write goes to stable storage.
    pub sync: bool,
    /// MaxRecvDataSegmentLength of the target, bytes.
    pub segment: u32,
    /// MaxBurstLength, bytes.
    pub burst: u32,
    /// FirstBurstLength, bytes.
    pub first_burst: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate: bool,
    /// MaxOutstandingR2T.
    pub r2t: u16,
    /// HeaderDigest and DataDigest.
    pub digests: [DigestPolicy; 2],
    /// Command window.
    pub window: u16,
    /// Bound of the pool, bytes.
    pub pool: usize,
    /// The disk can punch holes, and zero.
    pub abilities: [bool; 2],
    /// Highest ErrorRecoveryLevel.
    pub recovery: u8,
    /// Seconds of silence before a ping.
    pub ping: u64,
    /// Agrees to markers.
    pub markers: bool,
    /// MaxConnections.
    pub connections: u16,
    /// What a login has to prove,
    pub secrets: Secrets,
    /// and by which hash function.
    pub algorithm: Algorithm,
    /// An initiator may come in without the secret, and is then nobody.
    pub optional: bool,
    /// The type of its guard's reservations.
    pub reservation: Type,
    /// It has two portals, of one portal group each.
    pub two_groups: bool,
    /// Its units read and write so many bytes a second, each; 0: without a limit.
    pub limit: u64,
    /// It keeps reservations and mode parameters through a loss of power.
    pub keeping: Option<Keeping>,
    /// Its disks are elsewhere.
    pub elsewhere: Option<Remoteness>,
    /// Its disks are images on a cluster.
    pub rados: Option<Rados>,
    /// It has several reactors.
    pub reactors: Option<Reactors>,
    /// Over iSER, MaxOutstandingUnexpectedPDUs; 0: as many as usual.
    pub unexpected: u32,
    /// IRD and ORD that initiators have at the most.
    pub depths: Option<[u8; 2]>,
}

/// Everything that a seed draws.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// The class.
    pub class: Class,
    /// Targets.
    pub targets: Vec<TargetPlan>,
    /// Hosts, each with its sessions.
    pub hosts: Vec<Vec<SessionPlan>>,
    /// What RDMA adapters of this system can do.
    pub adapters: AdapterPlan,
    /// What befalls frames of raw Ethernet.
    pub frames: FramePlan,
    /// One way, microseconds.
    pub latency: (u64, u64),
    /// Largest piece that is sent or received at once, bytes.
    pub piece: usize,
    /// Window of a connection, bytes.
    pub window: (u64, u64),
    /// A step of disk work, microseconds.
    pub disk: (u64, u64),
    /// How much longer it takes in a slow spell.
    pub slow: u32,
    /// Blocks of each unit that are used.
    pub blocks: usize,
    /// Length of the safety phase at the most.
    pub length: Duration,
    /// So many of a thousand lists of PDUs have their data brought out of order, where that is
    /// agreed on.
    pub disorder: u64,
    /// When impostors come.
    pub impostors: Vec<Duration>,
    /// When which hogs come.
    pub hogs: Vec<(Duration, Hog)>,
    /// When hasty initiators come.
    pub hasty: Vec<Duration>,
    /// When which rogues come.
    pub rogues: Vec<(Duration, Rogue)>,
    /// When disks get other sizes.
    pub resizes: Vec<Resize>,
    /// When disks and initiators have other limits.
    pub limits: Vec<LimitPlan>,
    /// Nothing goes wrong but that images are silent, and hosts end what these do not answer.
    pub impatient: bool,
    /// When what happens.
    pub faults: Vec<(Duration, Fault)>,
}

impl TargetPlan {
    /// As many blocks as a command can read: there are buffers of the size of each class.
    #[must_use]
    pub fn readable(&self) -> usize {
        let classes = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
        let longest = classes.into_iter().rfind(|class| *class <= self.pool);
        longest.map_or(1, |longest| longest / self.block_len)
    }
}

impl Options {
    /// Draws from `seed`, faults of `class` only.
    #[must_use]
    pub fn draw(seed: u64, class: Class) -> Self {
        let mut options = Self::narrow(seed, class);
        options.widen_further();
        options.invite_impostors();
        options.spoil_writebacks();
        options.divide();
        options.crowd();
        options.invite_hogs();
        options.copy_by_token();
        options.resize_disks();
        options.keep_states();
        options.manage_much();
        options.contend();
        options.serve_elsewhere();
        options.exchange_disks();
        options.tell_of_failures();
        options.slow_readers();
        options.add_reactors();
        options.stay_at_home();
        options.serve_images();
        options.leave_work_behind();
        options.go_by_rdma();
        options.narrow_rdma();
        options.go_by_adapters();
        options.go_over_paths();
        options.go_by_frames();
        options.limit();
        options
    }

    /// The same system without what was added last.
    #[must_use]
    pub fn narrow(seed: u64, class: Class) -> Self {
        let mut options = Self::plain(seed, class);
        options.widen();
        options
    }

    /// The same system without what is drawn on top of it.
    #[must_use]
    pub fn plain(seed: u64, class: Class) -> Self {
        let mut rng = Rng::stream(seed, 0);
        let targets: Vec<TargetPlan> =
            (0..rng.pick(&[1, 1, 1, 2])).map(|_| target(&mut rng, class)).collect();
        let hosts: Vec<Vec<SessionPlan>> = (0..rng.pick(&[1, 1, 2, 3]))
            .map(|_| {
                let sessions = rng.pick(&[1, 1, 2]);
                (0..sessions).map(|_| session(&mut rng, targets.len(), class)).collect()
            })
            .collect();
        let length = Duration::from_secs(rng.within(20..=400));
        let latencies = [(20, 60), (50, 500), (200, 20_000), (1000, 100_000)];
        let quiet = matches!(class, Class::Calm | Class::Scarce);
        // Without faults nothing may take so long that somebody loses patience.
        let latency = rng.pick(if quiet { &latencies[..2] } else { &latencies });
        let low = rng.pick(&[4 << 10, 16 << 10, 64 << 10]);
        let mut options = Self {
            seed,
            class,
            targets,
            hosts,
            adapters: AdapterPlan::LARGE,
            frames: FramePlan::GOOD,
            latency,
            piece: rng.pick(&[64, 512, 1460, 9000, 65_536, 1 << 20]),
            window: (low, low * rng.pick(&[1, 4, 16])),
            disk: rng.pick(&[(10, 50), (50, 500), (100, 20_000)]),
            slow: 100,
            blocks: rng.pick(&[16, 64, 256]),
            length,
            disorder: 0,
            impostors: Vec::new(),
            hogs: Vec::new(),
            hasty: Vec::new(),
            rogues: Vec::new(),
            resizes: Vec::new(),
            limits: Vec::new(),
            impatient: false,
            faults: faults::draw(&mut Rng::stream(seed, 3), class, length),
        };
        options.reconcile();
        options
    }

    /// Takes out what cannot work, or would take too long to simulate.
    fn reconcile(&mut self) {
        for session in self.hosts.iter_mut().flatten() {
            let target = &mut self.targets[session.target];
            for (offer, policy) in session.digests.iter().zip(&mut target.digests) {
                if *offer == DigestOffer::Off && *policy == DigestPolicy::Required {
                    *policy = DigestPolicy::Any;
                }
            }
            if self.piece < 512 {
                session.blocks_max = session.blocks_max.min(4);
            }
            // All that is under way at once comes one window in a round trip.
            let bytes = session.depth * session.blocks_max * target.block_len;
            let trips = bytes as u64 / self.window.0 + 1;
            let patience = Duration::from_secs(session.command_timeout);
            let slow = Duration::from_micros(2 * self.latency.1 * trips) > patience / 2;
            if slow || self.class == Class::Calm {
                session.command_timeout = 0;
            }
        }
    }
}

const SEGMENTS: [u32; 6] = [512, 1024, 4096, 8192, 65_536, 262_144];
const BURSTS: [u32; 6] = [512, 4096, 16_384, 65_536, 262_144, 1 << 20];

fn target(rng: &mut Rng, class: Class) -> TargetPlan {
    use DigestPolicy as D;
    let memory = !matches!(class, Class::Target | Class::Disk | Class::Mixed) && rng.chance(300);
    let burst = rng.pick(&BURSTS);
    let scarce = matches!(class, Class::Scarce | Class::Mixed) && rng.chance(600);
    TargetPlan {
        luns: rng.pick(&[1, 1, 2, 3]),
        block_len: rng.pick(&[512, 512, 4096]),
        memory,
        sync: rng.chance(150),
        segment: rng.pick(&SEGMENTS),
        burst,
        first_burst: rng.pick(&BURSTS).min(burst),
        initial_r2t: rng.chance(300),
        immediate: rng.chance(700),
        r2t: rng.pick(&[1, 2, 8]),
        digests: [(); 2].map(|()| rng.pick(&[D::Any, D::Any, D::Any, D::Required])),
        window: if scarce { rng.pick(&[1, 2, 4]) } else { rng.pick(&[1, 8, 32, 128]) },
        pool: if scarce { rng.pick(&[64 << 10, 256 << 10, 1 << 20]) } else { 32 << 20 },
        abilities: [rng.chance(500), rng.chance(500)],
        recovery: rng.pick(&[0, 1, 2]),
        ping: rng.pick(&[2, 10, 30]),
        markers: false,
        connections: 4,
        secrets: Secrets::None,
        algorithm: Algorithm::Md5,
        optional: false,
        reservation: Type::WriteExclusive,
        two_groups: false,
        limit: 0,
        keeping: None,
        elsewhere: None,
        rados: None,
        reactors: None,
        unexpected: 0,
        depths: None,
    }
}

fn session(rng: &mut Rng, targets: usize, class: Class) -> SessionPlan {
    use DigestOffer as D;
    let burst = rng.pick(&BURSTS);
    let flips = matches!(class, Class::Network | Class::Mixed | Class::Ether) && rng.chance(600);
    let offers =
        if flips { [D::Required; 4] } else { [D::Off, D::Allowed, D::Preferred, D::Required] };
    let pause = rng.pick(&[0, 1000, 100_000, 2_000_000]);
    SessionPlan {
        target: rng.index(targets),
        segment: rng.pick(&SEGMENTS),
        burst,
        first_burst: rng.pick(&BURSTS).min(burst),
        initial_r2t: rng.chance(300),
        immediate: rng.chance(700),
        r2t: rng.pick(&[1, 4, 16]),
        in_order: [true; 2],
        // A header digest would unmask a liar.
        digests: [if class == Class::Liar { D::Off } else { rng.pick(&offers) }, rng.pick(&offers)],
        depth: rng.pick(&[1, 2, 8, 32]),
        operations: u32::try_from(rng.within(50..=200)).unwrap_or(50),
        blocks_max: rng.pick(&[1, 4, 16, 64]),
        pause,
        repeat: rng.chance(700),
        command_timeout: rng.pick(&[0, 5, 30, 60]),
        patience: rng.pick(&[30, 120, 600]),
        markers: false,
        recovery: 0,
        connections: 1,
        least: false,
        rare: 0,
        manages: 0,
        guard: false,
        registers: false,
        rest: 0,
        copies: 0,
        floods: 0,
        long_copies: false,
        modes: 0,
        resized: 0,
        local: false,
        transport: Transport::Tcp,
        unexpected: 0,
        hello: false,
        paths: 1,
        path_policy: PathPolicy::LeastQueued,
    }
}
