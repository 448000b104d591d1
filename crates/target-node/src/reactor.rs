// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reactors: one thread each, one port, one pump; and the target that starts and stops them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use buf::Pool;
use engine::Choice;
use engine::Port;
use engine::ppe::Idle;
use engine::ppe::Ppe;
use engine::ppe::Seat;
use engine::ppe::Settings;
use scsi::LogicalUnit;
use wire::iscsi::Tsih;

use crate::authentication::AuthenticationPolicy;
use crate::authentication::Challenges;
use crate::catalogue::Catalogue;
use crate::catalogue::Nodes;
use crate::figures::Figures;
use crate::figures::SessionSnapshot;
use crate::isns;
use crate::isns::NameService;
use crate::mail::Answered;
use crate::mail::Answers;
use crate::mail::Mailbox;
use crate::node::LunMap;
use crate::node::Node;
use crate::node::NodeError;
use crate::node::Portal;
use crate::occupied::Occupied;
use crate::pump::Board;
use crate::pump::Letter;
use crate::pump::LocalEnd;
use crate::pump::Pump;
use crate::pump::Rdma;
use crate::pump::Shared;
use crate::registry::Registry;
use crate::registry::SESSIONS_MAX;
use crate::silences::Silences;
use crate::stopwatch::Times;
use crate::stores::Files;
use crate::stores::StoreFile;
use crate::stores::Stores;
use crate::strangers::ConnectionLimits;
use crate::strangers::Strangers;

/// Everything that a target needs to start.
#[derive(Debug)]
pub struct Plan {
    /// Addresses to listen on.
    pub portals: Vec<Portal>,
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
    /// Whether portals speak iSER, too.
    pub rdma: Rdma,
    /// Where RDMA adapters take connections of iSER.
    pub adapters: Adapters,
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
}

impl Plan {
    /// Serves `nodes`, whose stores were opened by `stores`, at `portals`: in one thread, to at
    /// most [`SESSIONS_MAX`] sessions, without proof of who asks what there
    /// is.
    #[must_use]
    pub fn new(portals: Vec<Portal>, nodes: Vec<Node>, stores: Stores) -> Self {
        Self {
            portals,
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
            end_wait: END_WAIT_DEFAULT,
            isns: None,
            sessions_max: SESSIONS_MAX,
            connections: ConnectionLimits::default(),
            hide_targets: false,
        }
    }
}

/// Where RDMA adapters take connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // nowhere, or it must, or it may be
pub enum Adapters {
    /// Nowhere.
    #[default]
    Off,
    /// At these addresses.
    At(Vec<Portal>),
    /// At those of these addresses that an adapter has.
    Where(Vec<Portal>),
}

impl Adapters {
    /// Opens what there is, which `portals` has afterwards.
    fn listen(&self, portals: &mut Vec<Portal>) -> Result<Vec<verbs::Listener>, verbs::VerbsError> {
        let (wanted, must) = match self {
            Self::Off => return Ok(Vec::new()),
            Self::At(wanted) => (wanted, true),
            Self::Where(wanted) => (wanted, false),
        };
        let mut listeners = Vec::new();
        for Portal { address, group } in wanted.iter().copied() {
            match verbs::Listener::new(address) {
                Ok(listener) => {
                    let portal = Portal { address: listener.address(), group };
                    if !portals.contains(&portal) {
                        portals.push(portal);
                    }
                    listeners.push(listener);
                }
                Err(error) if must => return Err(error),
                Err(error) => tracing::info!(%error, "no RDMA adapter at a portal"),
            }
        }
        Ok(listeners)
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

/// Reactors that do not answer a letter for so long are given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long a reactor has to say whether it has a session.
const SESSION_PATIENCE: Duration = Duration::from_secs(2);

/// Whether there was a session to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is one, there is none, or nobody knows
pub enum Found {
    /// It ends.
    Here,
    /// There is none with this TSIH.
    Nowhere,
    /// These reactors do not answer. If one of them has it, it ends when that reactor goes on.
    Unknown(Vec<usize>),
}

/// The reactor that listens at all portals, and deals the connections out.
pub(crate) const LISTENING_REACTOR: usize = 0;

/// Answers to an initiator with many commands outstanding wait at most so long for others.
const HOLD_BACK: Duration = Duration::from_micros(20);

/// What to do where a portal cannot be opened.
pub(crate) fn listening(address: &SocketAddr, source: &io::Error) -> String {
    let port = address.port();
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            format!("; try: another port, or ss -tanp 'sport = :{port}' to see who holds it")
        }
        io::ErrorKind::AddrNotAvailable => {
            "; it is no address of this machine; try: ip address, or 0.0.0.0 or [::] for all".into()
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 are for root; try: another port".into()
        }
        _ => String::new(),
    }
}

/// Why a target does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] NodeError),
    /// A portal cannot be opened.
    #[error("cannot listen on {address}: {source}{}", listening(address, source))]
    Listen {
        /// The portal.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No RDMA adapter takes connections there.
    #[error(transparent)]
    Adapter(#[from] verbs::VerbsError),
    /// The engine does not run here.
    #[error("cannot start the {engine} engine: {source}; try: lunwire explain")]
    Engine {
        /// Its name.
        engine: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A thread or its buffers cannot be made.
    #[error("cannot start a reactor: {0}")]
    Reactor(#[from] io::Error),
    /// A store could not be flushed at the end.
    #[error(
        "cannot flush {path}: {source}; what was not yet flushed may be lost by a crash of the host"
    )]
    Flush {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// What was written to a disk that is no file may not last.
    #[error(
        "cannot close LUN {lun} of {target}: {source}; {}",
        match .source {
            store::Error::Silent => "all that was acknowledged is there",
            _ => "writes that were acknowledged may be lost",
        }
    )]
    Finish {
        /// The target.
        target: String,
        /// The number.
        lun: u16,
        /// What is wrong.
        source: store::Error,
    },
}

/// A running target.
#[derive(Debug)]
pub struct Target {
    shared: Arc<Shared>,
    /// Empty once stopped.
    threads: Mutex<Vec<JoinHandle<()>>>,
    isns: NameService,
    engine: &'static str,
    mode: Mode,
    /// Held while a disk comes or goes.
    volumes: Mutex<()>,
    /// The disks that something is done to as a whole.
    occupied: Occupied,
    /// Disks that have become smaller than hosts see them: serial number, and bytes.
    shrunk: Mutex<BTreeMap<String, u64>>,
}

impl Target {
    /// Opens the portals and starts the reactors.
    ///
    /// # Errors
    /// If a name is none, or a portal, the engine, a thread or its buffers cannot be had; nothing
    /// is left running then.
    pub fn start(plan: Plan) -> Result<Self, Error> {
        plan.nodes.iter().try_for_each(Node::check)?;
        let mut listeners = Vec::new();
        let mut portals = Vec::new();
        for Portal { address, group } in plan.portals.iter().copied() {
            let failed = |source| Error::Listen { address, source };
            let listener = TcpListener::from(engine::listen(address).map_err(failed)?);
            let address = listener.local_addr().map_err(failed)?;
            portals.push(Portal { address, group });
            listeners.push((OwnedFd::from(listener), address));
        }
        let mut adapters = plan.adapters.listen(&mut portals)?;
        let engine = engine::choose(plan.engine);
        let mut starting = Vec::new();
        let reactors = plan.reactors.max(1);
        let failed = |source| Error::Engine { engine: engine.name(), source };
        let mut seats = seats(engine, reactors, &plan).map_err(failed)?;
        for index in 0..reactors {
            let seat = seats.get_mut(index).and_then(Option::take);
            starting.push(Starting::spawn(index, engine, seat, &plan)?);
        }
        let nodes = Nodes::new(plan.nodes, portals, plan.discovery).hidden(plan.hide_targets);
        let isns = NameService::new(plan.isns);
        isns.tell(registration(&nodes))?;
        let mut mailboxes = Vec::new();
        for reactor in &starting {
            let waker = reactor.waker.recv().map_err(|_| stopped())?;
            mailboxes.push(Mailbox::new(waker.map_err(failed)?));
        }
        let registry = Registry::new(plan.sessions_max);
        registry.keep_room_for_proof(nodes.takes_proof());
        let shared = Arc::new(Shared {
            catalogue: Catalogue::new(nodes),
            challenges: Challenges::default(),
            registry,
            strangers: Strangers::new(plan.connections),
            mailboxes,
            board: Board::default(),
            silences: Silences::default(),
            files: Files::new(plan.stores.files),
            login_timeout: plan.login_timeout,
            rdma: plan.rdma,
            end_wait: plan.end_wait,
            hold_back: HOLD_BACK.min(plan.spin_max),
            locals: AtomicUsize::new(0),
        });
        let mut threads = Vec::new();
        for reactor in starting {
            let start = Start {
                shared: Arc::clone(&shared),
                listeners: std::mem::take(&mut listeners),
                adapters: std::mem::take(&mut adapters),
            };
            reactor.start.send(start).map_err(|_| stopped())?;
            threads.push(reactor.thread);
        }
        Ok(Self {
            shared,
            threads: Mutex::new(threads),
            isns,
            engine: engine.name(),
            mode: plan.mode,
            volumes: Mutex::new(()),
            occupied: Occupied::default(),
            shrunk: Mutex::default(),
        })
    }

    /// Every disk: target, number, unit.
    pub(crate) fn disks(&self) -> impl Iterator<Item = (String, u16, Arc<LogicalUnit>)> + use<> {
        let nodes = self.nodes();
        let disks: Vec<_> = nodes
            .all()
            .iter()
            .flat_map(|served| {
                let name = &served.node().name;
                served.luns().into_iter().map(move |(number, unit)| (name.clone(), number, unit))
            })
            .collect();
        disks.into_iter()
    }

    /// What is served now.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        self.shared.catalogue.now()
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.shared.catalogue
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// The name server is told of these from now on.
    pub(crate) fn register(&self, nodes: &Nodes) {
        if let Err(error) = self.isns.tell(registration(nodes)) {
            tracing::error!(%error, "the name server is not told of what is served");
        }
    }

    pub(crate) fn files(&self) -> &Files {
        &self.shared.files
    }

    pub(crate) fn mailboxes(&self) -> &[Mailbox<Letter>] {
        &self.shared.mailboxes
    }

    pub(crate) const fn occupied(&self) -> &Occupied {
        &self.occupied
    }

    pub(crate) const fn shrunk(&self) -> &Mutex<BTreeMap<String, u64>> {
        &self.shrunk
    }

    pub(crate) const fn volume_lock(&self) -> &Mutex<()> {
        &self.volumes
    }

    /// Opens a connection to it that needs no network: messages instead of bytes. It logs in as any
    /// other does; access lists and proofs hold for it. Where the target has stopped, or has as
    /// many connections as it may have, the other end closes at once.
    #[must_use]
    pub fn connect_local(&self) -> LocalEnd {
        self.shared.open_local()
    }

    /// The addresses that it really listens on.
    #[must_use]
    pub fn portals(&self) -> Vec<SocketAddr> {
        self.nodes().addresses()
    }

    /// The tags of its portal groups, ascending.
    #[must_use]
    pub fn portal_groups(&self) -> Vec<u16> {
        self.nodes().portal_groups()
    }

    /// The engine that was chosen.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        self.engine
    }

    /// How work is divided.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// How many reactors serve.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.shared.mailboxes.len()
    }

    /// What each reactor has and has counted, as far as they answer `within` that time: one that
    /// hangs holds up nobody for longer.
    #[must_use]
    pub fn figures(&self, within: Duration) -> Answered<Figures> {
        Answers::ask(&self.shared.mailboxes, |reply| Letter::Figures { reply }).within(within)
    }

    /// The figures of all reactors that answer at all; the log names the others.
    fn patient_figures(&self) -> Vec<Figures> {
        let Answered { answers, silent } = self.figures(PATIENCE);
        if !silent.is_empty() {
            tracing::error!(reactors = ?silent, "reactors do not answer");
        }
        answers
    }

    /// All sessions, by TSIH.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionSnapshot> {
        let figures = self.patient_figures();
        let mut sessions: Vec<_> = figures.into_iter().flat_map(|one| one.sessions).collect();
        sessions.sort_by_key(|session| session.tsih);
        sessions
    }

    /// Where the time of the reactors went.
    #[must_use]
    pub fn times(&self) -> Times {
        let mut all = Times::default();
        self.patient_figures().into_iter().for_each(|figures| all.join(figures.times));
        all
    }

    /// Every unit that the target `name` has now, or none if there is no such target.
    #[must_use]
    pub fn units(&self, name: &str) -> Option<LunMap> {
        self.nodes().find(name).map(|served| served.luns())
    }

    /// The names of all targets.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.nodes().all().iter().map(|served| served.node().name.clone()).collect()
    }

    /// Ends a session.
    #[must_use]
    pub fn drop_session(&self, tsih: u16) -> Found {
        self.some_reactor(|reply| Letter::Drop { tsih: Tsih(tsih), reply })
    }

    /// Asks the initiator of a session to log out within `seconds`, after which the session is
    /// dropped.
    #[must_use]
    pub fn logout_session(&self, tsih: u16, seconds: u16) -> Found {
        self.some_reactor(|reply| Letter::Logout { tsih: Tsih(tsih), seconds, reply })
    }

    /// Whether a reactor says yes; who does is not made to wait for one that hangs.
    fn some_reactor(&self, letter: impl Fn(Sender<(usize, bool)>) -> Letter) -> Found {
        let (reply, replies) = mpsc::channel();
        for mailbox in &self.shared.mailboxes {
            mailbox.send(letter(reply.clone()));
        }
        drop(reply);
        let deadline = Instant::now() + SESSION_PATIENCE;
        let mut silent: Vec<usize> = (0..self.shared.mailboxes.len()).collect();
        while let Ok((reactor, found)) =
            replies.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            silent.retain(|number| *number != reactor);
            if found {
                return Found::Here;
            }
        }
        match silent.is_empty() {
            true => Found::Nowhere,
            false => Found::Unknown(silent),
        }
    }

    /// Stops cleanly: no new connections; initiators are asked to log out and get `grace` for it;
    /// what is left is dropped with an asynchronous message; commands under way end; files are
    /// flushed.
    ///
    /// # Errors
    /// If a file cannot be flushed; all the rest is done first.
    pub fn stop(&self, grace: Duration) -> Result<(), Error> {
        let leaving = self.isns.leave();
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Letter::Stop { grace });
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reactor had panicked");
            }
        }
        self.shared.mailboxes.iter().for_each(|mailbox| drop(mailbox.close()));
        if let Some(leaving) = leaving {
            leaving.wait();
        }
        worst([self.flush(), self.finish_stores()])
    }

    /// Lets go of what is no file, of all disks at once: each may have to wait for what does not
    /// answer.
    pub(crate) fn finish_stores(&self) -> Result<(), Error> {
        let nodes = self.nodes();
        let units = nodes.all().iter().flat_map(|served| {
            let name = &served.node().name;
            served.luns().into_iter().map(move |(lun, unit)| (name, lun, unit))
        });
        let units: Vec<_> = units.collect();
        let ends: Vec<_> = units.iter().map(|(.., unit)| || unit.store().finish()).collect();
        let ends = side_by_side(&ends, thread::Builder::new);
        worst(units.iter().zip(ends).map(|((name, lun, _), end)| {
            let failed = |source| Error::Finish { target: (*name).clone(), lun: *lun, source };
            end.map_err(failed)
        }))
    }

    /// Brings what was written to the files of all disks to stable storage.
    ///
    /// # Errors
    /// If that is not certain of one of them; the last one is named.
    pub fn flush(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for file in self.files().all().into_iter().filter(|file| file.writable) {
            if let Err(source) = file.synced(|fd| engine::files::sync(fd)) {
                result = Err(Error::Flush { path: file.path, source });
            }
        }
        result
    }
}

/// The error that matters most: all are told, and one is given to whoever asks, who is not to hear
/// that nothing is lost where something may be.
fn worst(results: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let errors: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
    if errors.len() > 1 {
        errors.iter().for_each(|error| tracing::error!("{error}"));
    }
    let is_harmless =
        |error: &Error| matches!(error, Error::Finish { source: store::Error::Silent, .. });
    errors.into_iter().min_by_key(is_harmless).map_or(Ok(()), Err)
}

/// What all of these give, each by a thread of its own; where none is to be had, before the next
/// one begins.
fn side_by_side<F: Fn() -> Result<(), store::Error> + Sync>(
    ends: &[F],
    new: impl Fn() -> thread::Builder,
) -> Vec<Result<(), store::Error>> {
    thread::scope(|scope| {
        let begun: Vec<_> =
            ends.iter().map(|end| new().spawn_scoped(scope, end).map_err(|_| end())).collect();
        let ended = begun.into_iter().map(|end| match end {
            // One that has panicked has said why.
            Ok(thread) => thread.join().unwrap_or(Err(store::Error::Internal)),
            Err(ended) => ended,
        });
        ended.collect()
    })
}

/// What a reactor's thread waits for once its port exists.
struct Start {
    shared: Arc<Shared>,
    /// With the addresses that they really listen on.
    listeners: Vec<(OwnedFd, SocketAddr)>,
    adapters: Vec<verbs::Listener>,
}

/// A reactor whose thread runs but does not serve yet.
struct Starting {
    waker: mpsc::Receiver<io::Result<engine::Waker>>,
    start: Sender<Start>,
    thread: JoinHandle<()>,
}

impl Starting {
    fn spawn(index: usize, engine: Choice, seat: Option<Seat>, plan: &Plan) -> io::Result<Self> {
        let (waker_to, waker) = mpsc::channel();
        let (start, start_from) = mpsc::channel();
        let config = engine::Config { spin_max: plan.spin_max, ..engine::Config::default() };
        let pool = Pool::new(plan.pool_bytes_max)?;
        let files = plan.stores.files.clone();
        let cpu = plan.cpus.get(index % plan.cpus.len().max(1)).copied();
        let builder = thread::Builder::new().name(format!("reactor-{index}"));
        let thread = builder.spawn(move || {
            if let Some(cpu) = cpu
                && let Err(error) = engine::affinity::pin(cpu)
            {
                tracing::warn!(cpu, %error, "cannot pin a reactor");
            }
            let setup = Setup { index, pool, files, waker_to, start_from };
            match (seat, engine) {
                (Some(seat), _) => setup.serve(Ok(Ppe::from(seat))),
                (None, Choice::Epoll) => setup.serve(engine::epoll::Epoll::new(&config)),
                (None, _) => setup.serve(engine::uring::Uring::new(&config)),
            }
        })?;
        Ok(Self { waker, start, thread })
    }
}

/// Starts the polling cores; a seat at one of them for each reactor, none in the symmetric mode.
fn seats(engine: Choice, reactors: usize, plan: &Plan) -> io::Result<Vec<Option<Seat>>> {
    let Mode::Amp { cores, idle } = plan.mode else { return Ok(Vec::new()) };
    let cores = cores.clamp(1, reactors);
    let mut seats: Vec<Option<Seat>> = (0..reactors).map(|_| None).collect();
    for core in 0..cores {
        let port = engine::Config {
            spin_max: plan.spin_max,
            name: format!("ppe-{core}"),
            ..engine::Config::default()
        };
        let cpu = plan.cpus.get((reactors + core) % plan.cpus.len().max(1)).copied();
        let places = seats.iter_mut().skip(core).step_by(cores);
        let settings = Settings { engine, port, cpu, idle };
        for (place, seat) in
            places.zip(engine::ppe::start(&settings, (reactors - core).div_ceil(cores))?)
        {
            *place = Some(seat);
        }
    }
    Ok(seats)
}

/// What a reactor's thread owns before it serves.
struct Setup {
    index: usize,
    pool: Pool,
    files: Vec<StoreFile>,
    waker_to: Sender<io::Result<engine::Waker>>,
    start_from: mpsc::Receiver<Start>,
}

impl Setup {
    fn serve<P: Port>(self, port: io::Result<P>) {
        let mut port = match port {
            Ok(port) => port,
            Err(error) => {
                // The starter has gone only if it failed itself.
                let _ = self.waker_to.send(Err(error));
                return;
            }
        };
        for file in self.files {
            if let Err(error) = port.add_file(file.id.0, file.fd, file.direct) {
                let _ = self.waker_to.send(Err(io::Error::other(error)));
                return;
            }
        }
        if self.waker_to.send(Ok(port.waker())).is_err() {
            return;
        }
        let Ok(start) = self.start_from.recv() else { return };
        let mut pump = Pump::new(port, self.pool, start.shared, self.index);
        for (fd, address) in start.listeners {
            pump.listen(fd, address);
        }
        for listener in start.adapters {
            pump.listen_at_adapters(listener);
        }
        pump.serve();
    }
}

/// What a name server is told. None: there is no target.
fn registration(nodes: &Nodes) -> Option<isns::Registration> {
    let targets = nodes.all().iter().map(|served| served.node());
    Some(isns::Registration {
        entity: nodes.all().first()?.node().name.clone(),
        targets: targets.map(|node| (node.name.clone(), node.alias.clone())).collect(),
        portals: nodes.portals.clone(),
    })
}

fn stopped() -> Error {
    Error::Reactor(io::Error::other("its thread stopped"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn closing(lun: u16, source: store::Error) -> Error {
        Error::Finish { target: "iqn.2026-01.com.example:a".to_owned(), lun, source }
    }

    #[test]
    fn of_two_errors_the_one_is_told_that_may_be_a_loss() {
        let (silent, lost) = (store::Error::Silent, store::Error::Write);
        for results in [[(1, silent), (2, lost)], [(2, lost), (3, silent)]] {
            let said = worst(results.map(|(lun, source)| Err(closing(lun, source))));
            let said = said.expect_err("two errors").to_string();
            assert!(said.contains("LUN 2") && said.contains("may be lost"), "{said}");
        }
        let flush =
            || Error::Flush { path: "/disk".to_owned(), source: io::ErrorKind::Other.into() };
        let said = worst([Err(closing(1, silent)), Err(flush())]).expect_err("two errors");
        assert!(said.to_string().contains("/disk"), "{said}");
        assert!(worst([Ok(()), Ok(())]).is_ok());
    }

    /// A machine without threads closes all disks, too.
    #[test]
    fn disks_are_closed_with_and_without_threads() {
        let closed = AtomicUsize::new(0);
        let ends: Vec<_> = (0..9)
            .map(|number| {
                let closed = &closed;
                move || {
                    closed.fetch_add(1, Ordering::Relaxed);
                    if number == 7 { Err(store::Error::Silent) } else { Ok(()) }
                }
            })
            .collect();
        let without = || thread::Builder::new().stack_size(1 << 60);
        for new in [thread::Builder::new as fn() -> thread::Builder, without] {
            let ended = side_by_side(&ends, new);
            assert_eq!(ended.iter().position(Result::is_err), Some(7));
            assert_eq!((ended.len(), closed.swap(0, Ordering::Relaxed)), (9, 9));
        }
    }
}
