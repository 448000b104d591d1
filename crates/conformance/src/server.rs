// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our own target in this process: what the tests run against.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::Choice;
use iscsi::target_role::Settings;
use scsi::Identity;
use scsi::LogicalUnit;
use scsi::ProtectionType;
use station::cable::Cable;
use station::cable::Faults;
use store::Store;
use store::spec::FileSpec;
use store::spec::Spec;
use target::AccessRule;
use target::AuthenticationPolicy;
use target::Idle;
use target::Mode;
use target::Node;
use target::Plan;
use target::Stores;
use target::Target;

use crate::initiator::Initiator;
use crate::login::LoginPlan;
use crate::raw::Raw;

/// The target that everybody may use.
pub const TARGET: &str = "iqn.2026-01.example.conformance:disk";

/// The target that only [`FRIEND`] may use.
pub const CLOSED_TARGET: &str = "iqn.2026-01.example.conformance:closed";

/// The initiator that may use [`CLOSED_TARGET`].
pub const FRIEND: &str = "iqn.2026-01.example.conformance:friend";

/// Logical units of [`TARGET`], numbered from 0: the last one is a file, the others are memory.
pub const LUNS: u16 = 3;

/// The logical unit that is a file.
pub const FILE_LUN: u8 = 2;

/// Bytes in a logical unit.
pub const UNIT_BYTES: u64 = 16 << 20;

/// Bytes in a block.
pub const BLOCK: u32 = 512;

/// A running target; stopped when dropped.
#[derive(Debug)]
pub struct Server {
    target: Target,
    line: Line,
}

/// How tests get to it.
#[derive(Debug)]
enum Line {
    Tcp,
    /// Over raw Ethernet.
    Cable(Cable),
    /// Within this process.
    Local,
}

/// Runs `check` against a target on each engine that this machine has (always epoll, io_uring
/// where the kernel allows it), with one reactor and with two, so that sessions meet on one thread
/// and across threads; with two reactors that a polling core serves; and over raw Ethernet, on a
/// cable that loses, doubles and reorders frames. `adjust` changes what the target wishes.
pub fn on_each_engine(adjust: impl Fn(&mut Settings), check: impl Fn(&Server)) {
    on_each_plan(adjust, |_| {}, check);
}

/// As [`on_each_engine`]; `widen` changes the plan of the whole daemon.
pub fn on_each_plan(
    adjust: impl Fn(&mut Settings),
    widen: impl Fn(&mut Plan),
    check: impl Fn(&Server),
) {
    let best = engine::choose(Choice::Auto);
    let uring = (best == Choice::Uring).then_some(Choice::Uring);
    let engines = [Some(Choice::Epoll), uring].into_iter().flatten();
    let smp = engines.flat_map(|choice| [1, 2].map(|reactors| (choice, reactors, Mode::Smp)));
    let amp = (best, 2, Mode::Amp { cores: 1, idle: Idle::Sleep });
    for (choice, reactors, mode) in smp.chain([amp]) {
        let mut settings = Settings::default();
        adjust(&mut settings);
        let mut plan = Plan { reactors, mode, ..plan(choice, settings) };
        widen(&mut plan);
        check(&Server::start(plan));
    }
    let mut settings = Settings::default();
    adjust(&mut settings);
    let mut plan = Plan { reactors: 2, ..plan(best, settings) };
    widen(&mut plan);
    check(&Server::over_frames(plan, Faults::MANY));
}

/// As [`on_each_engine`], then over local connections to two reactors: for tests that do not speak
/// of bytes.
pub fn on_each_transport(adjust: impl Fn(&mut Settings), check: impl Fn(&Server)) {
    on_each_engine(&adjust, &check);
    let mut settings = Settings::default();
    adjust(&mut settings);
    let plan = Plan { reactors: 2, ..plan(engine::choose(Choice::Auto), settings) };
    check(&Server::local(plan));
}

/// One reactor, one portal, two targets.
#[must_use]
pub fn plan(engine: Choice, settings: Settings) -> Plan {
    let friends = vec![AccessRule {
        initiator: FRIEND.to_owned(),
        luns: None,
        account: None,
        target_reset: None,
    }];
    let mut stores = Stores::new();
    let nodes = vec![
        node(&mut stores, TARGET, settings.clone(), Vec::new()),
        node(&mut stores, CLOSED_TARGET, settings, friends),
    ];
    Plan {
        portals: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        listening: Vec::new(),
        nodes,
        discovery: AuthenticationPolicy::default(),
        stores,
        engine,
        mode: Mode::Smp,
        reactors: 1,
        cpus: Vec::new(),
        spin_max: Duration::ZERO,
        pool_bytes_max: 64 << 20,
        login_timeout: Duration::from_secs(15),
        rdma: target::Rdma::Off,
        capture: None,
        adapters: target::Adapters::default(),
        ether: Vec::new(),
        frames: Vec::new(),
        // Tests hold work back for as long as they like.
        end_wait: Duration::from_secs(60),
        isns: None,
        sessions_max: target::SESSIONS_MAX,
        connections: target::ConnectionLimits::default(),
        hide_targets: false,
        limits: Vec::new(),
    }
}

fn node(stores: &mut Stores, name: &str, settings: Settings, access: Vec<AccessRule>) -> Node {
    let luns = (0..LUNS)
        .map(|number| {
            let store = match number == u16::from(FILE_LUN) {
                true => file(stores),
                false => stores.open(&Spec::Memory { bytes: UNIT_BYTES }).expect("memory"),
            };
            let identity = Identity::derive(name, number, "LUNWIRE", "VIRTUAL DISK");
            let unit = LogicalUnit::new(identity, store, BLOCK).expect("a legal unit");
            (number, Arc::new(unit))
        })
        .collect();
    let alias = Some("a disk to test".to_owned());
    let authentication = AuthenticationPolicy::default();
    Node { name: name.to_owned(), alias, luns, access, authentication, settings, redirect: None }
}

/// A store in a file that has no name any more.
fn file(stores: &mut Stores) -> Arc<dyn Store> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(UNIT_BYTES).expect("room for it");
    let path = file.path().to_str().expect("UTF-8").to_owned();
    let spec =
        FileSpec { path, size: None, direct: false, read_only: false, sync: false, raw: false };
    stores.open(&Spec::File(spec)).expect("a file")
}

/// Gives [`TARGET`] a disk with protection information: in a file, with a side file beside it, or
/// in memory.
pub fn add_protected(plan: &mut Plan, number: u16, kind: ProtectionType, medium: Medium) {
    // Nothing of it is left once the target has opened it.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk").display().to_string();
    let spec = match medium {
        Medium::Memory => Spec::Memory { bytes: UNIT_BYTES },
        Medium::File => Spec::File(FileSpec {
            path,
            size: Some(UNIT_BYTES),
            direct: false,
            read_only: false,
            sync: false,
            raw: false,
        }),
    };
    let (store, format) = plan.stores.open_protected(&spec, BLOCK, kind).expect("a disk");
    let identity = Identity::derive(TARGET, number, "LUNWIRE", "VIRTUAL DISK");
    let unit = LogicalUnit::protected(identity, store, format).expect("a legal unit");
    let node = plan.nodes.iter_mut().find(|node| node.name == TARGET).expect("the target");
    node.luns.push((number, Arc::new(unit)));
}

/// Where a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // tests choose
pub enum Medium {
    /// In memory.
    Memory,
    /// In a file.
    File,
}

impl Server {
    /// Starts what `plan` says.
    #[must_use]
    pub fn start(plan: Plan) -> Self {
        Self { target: Target::start(plan).expect("the target starts"), line: Line::Tcp }
    }

    /// The same; connections to it go over raw Ethernet, on a cable that does this to frames.
    #[must_use]
    pub fn over_frames(mut plan: Plan, faults: Faults) -> Self {
        let cable = Cable::lay(faults).expect("descriptors are left");
        plan.ether.push(cable.interface().into());
        let mut server = Self::start(plan);
        server.line = Line::Cable(cable);
        server
    }

    /// The same; connections to it need no network.
    #[must_use]
    pub fn local(plan: Plan) -> Self {
        let mut server = Self::start(plan);
        server.line = Line::Local;
        server
    }

    /// The target itself.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The first portal.
    #[must_use]
    pub fn portal(&self) -> SocketAddr {
        *self.target.portals().first().expect("a portal")
    }

    /// Whether what is served is reached by frames. There, who closes its connection at once takes
    /// along what has not left; and a cable within the process takes memory for each frame.
    #[must_use]
    pub const fn is_over_frames(&self) -> bool {
        matches!(self.line, Line::Cable(_))
    }

    /// A connection on which nothing has been said.
    #[must_use]
    pub fn connect(&self) -> Raw {
        match &self.line {
            Line::Tcp => Raw::connect(self.portal()).expect("the target listens"),
            Line::Cable(cable) => Raw::over_frames(&cable.place()).expect("the station listens"),
            Line::Local => Raw::local(self.target.connect_local()),
        }
    }

    /// A session with default keys.
    #[must_use]
    pub fn login(&self) -> Initiator {
        self.login_with(&LoginPlan::new())
    }

    /// A session.
    #[must_use]
    pub fn login_with(&self, plan: &LoginPlan) -> Initiator {
        Initiator::login(self.connect(), plan)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Memory cannot fail to be flushed.
        let _ = self.target.stop(Duration::ZERO);
    }
}
