// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a target needs to start.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use capture::Capture;
use engine::Choice;
use engine::ppe::Idle;
use station::Interface;
use station::Reserved;

use crate::adapters::Adapters;
use crate::authentication::AuthenticationPolicy;
use crate::limits::Limit;
use crate::node::Node;
use crate::node::Portal;
use crate::rdma::Rdma;
use crate::registry::SESSIONS_MAX;
use crate::stores::Stores;
use crate::strangers::ConnectionLimits;

/// Everything that a target needs to start.
#[derive(Debug)]
pub struct Plan {
    /// Addresses to listen on.
    pub portals: Vec<Portal>,
    /// Sockets that listen at some of them already, by their address in `portals`.
    pub listening: Vec<(SocketAddr, OwnedFd)>,
    /// What to serve.
    pub nodes: Vec<Node>,
    /// What initiators have to prove in discovery sessions.
    pub discovery: AuthenticationPolicy,
    /// The stores behind it.
    pub stores: Stores,
    /// Which engine to run on.
    pub engine: Choice,
    /// Who talks to the kernel.
    pub mode: Mode,
    /// Threads.
    pub reactors: usize,
    /// CPUs to pin them to, in turn, the reactors first and then the polling cores; none: the
    /// scheduler decides.
    pub cpus: Vec<usize>,
    /// Longest busy wait before a reactor sleeps.
    pub spin_max: Duration,
    /// Bound on data buffers of one reactor, bytes.
    pub pool_bytes_max: usize,
    /// A login that takes longer is closed.
    pub login_timeout: Duration,
    /// Whether portals that have no word of their own speak iSER, too.
    pub rdma: Rdma,
    /// Where RDMA adapters take connections of iSER.
    pub adapters: Adapters,
    /// Interfaces at which connections over raw Ethernet are taken; each belongs to one process.
    pub ether: Vec<Interface>,
    /// Frames of some of them, which were opened before. What is left of it is closed.
    pub frames: Vec<Reserved>,
    /// Where connections are captured to, from their first byte. Who makes it finishes it when the
    /// target has stopped.
    pub capture: Option<Capture>,
    /// Task management, logouts and logins that take the place of others wait so long for what
    /// stores have others do ([`store::foreign`]) for commands that have ended. Then its unit is
    /// fenced instead.
    pub end_wait: Duration,
    /// Name server to register with, `HOST:PORT`.
    pub isns: Option<String>,
    /// More sessions are refused, [`SESSIONS_MAX`] at most.
    pub sessions_max: usize,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
    /// Whether a target that an initiator may not use looks to it like one that is not there.
    pub hide_targets: bool,
    /// How much disks and initiators may have, by target ([`Target::limit`](crate::Target::limit)).
    pub limits: Vec<(String, Vec<Limit>)>,
}

impl Plan {
    /// Serves `nodes`, whose stores were opened by `stores`, at `portals`: in one thread, to at
    /// most [`SESSIONS_MAX`] sessions, without proof of who asks what there
    /// is.
    #[must_use]
    pub fn new(portals: Vec<Portal>, nodes: Vec<Node>, stores: Stores) -> Self {
        Self {
            portals,
            listening: Vec::new(),
            nodes,
            discovery: AuthenticationPolicy::default(),
            stores,
            engine: Choice::Auto,
            mode: Mode::Smp,
            reactors: 1,
            cpus: Vec::new(),
            spin_max: engine::limits::SPIN_MAX,
            pool_bytes_max: POOL_BYTES_DEFAULT,
            login_timeout: LOGIN_TIMEOUT_DEFAULT,
            rdma: Rdma::Off,
            adapters: Adapters::default(),
            ether: Vec::new(),
            frames: Vec::new(),
            capture: None,
            end_wait: END_WAIT_DEFAULT,
            isns: None,
            sessions_max: SESSIONS_MAX,
            connections: ConnectionLimits::default(),
            hide_targets: false,
            limits: Vec::new(),
        }
    }
}

/// Data buffers of one reactor where nobody says otherwise: enough for a full window of 1 MiB
/// commands of a session, touched only when used.
pub const POOL_BYTES_DEFAULT: usize = 512 << 20;

/// How long a login may take where nobody says otherwise.
pub const LOGIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

/// How long ends wait for work that is done elsewhere where nobody says otherwise: less than the
/// 10 s and more that hosts wait for task management and for a login, and so long that a cluster
/// which has lost an OSD has mostly found another one.
pub const END_WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// How work is divided between threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is no third way
pub enum Mode {
    /// Symmetric: each reactor does all of its work itself.
    #[default]
    Smp,
    /// Asymmetric: polling cores do the reactors' work on sockets and files.
    Amp {
        /// How many; the reactors are dealt out to them in turn. At most as many as reactors.
        cores: usize,
        /// What a core does with nothing to do.
        idle: Idle,
    },
}

impl Mode {
    /// As in `--mode`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smp => "smp",
            Self::Amp { .. } => "amp",
        }
    }
}
