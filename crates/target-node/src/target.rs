// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running target: starts its reactors, and answers for all of them.

mod closing;
mod doors;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use capture::Terms;
use scsi::LogicalUnit;
use station::Figures as StationFigures;
use station::Interface;
use station::Place;
use station::Reserved;
use station::Station;
use wire::iscsi::Tsih;

use crate::authentication::Challenges;
use crate::catalogue::Catalogue;
use crate::catalogue::Nodes;
use crate::figures::Figures;
use crate::figures::SessionSnapshot;
use crate::isns;
use crate::isns::NameService;
use crate::limits::Limit;
use crate::limits::LimitSnapshot;
use crate::limits::Limited;
use crate::limits::Limits;
use crate::mail::Answered;
use crate::mail::Answers;
use crate::mail::Mailbox;
use crate::node::LunMap;
use crate::node::Node;
use crate::node::NodeError;
use crate::node::Portal;
use crate::occupied::Occupied;
use crate::plan::Mode;
use crate::plan::Plan;
use crate::pump::Board;
use crate::pump::Letter;
use crate::pump::LocalEnd;
use crate::pump::Shared;
use crate::rdma::Rdma;
use crate::reactor::Start;
use crate::reactor::Starting;
use crate::reactor::seats;
use crate::registry::Registry;
use crate::silences::Silences;
use crate::slow::Slow;
use crate::stopwatch::Times;
use crate::stores::Files;
use crate::strangers::Strangers;
use crate::traces::Tracing;

use self::doors::Doors;

/// Reactors that do not answer a letter for so long are given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long a reactor has to say whether it has a session.
const SESSION_PATIENCE: Duration = Duration::from_secs(2);

/// Answers to an initiator with many commands outstanding wait at most so long for others.
const HOLD_BACK: Duration = Duration::from_micros(20);

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

/// What to do where frames cannot be taken.
pub(crate) fn at_interface(source: &io::Error) -> String {
    if let Some(advice) = station::advice(source) {
        return format!("; {advice}");
    }
    let advice = match source.kind() {
        // Of a way of its own, which says what helps.
        _ if source.get_ref().is_some_and(|inner| inner.to_string().contains("; try: ")) => "",
        io::ErrorKind::AddrInUse => "; another process takes connections there",
        _ => "; try: ip link",
    };
    advice.to_owned()
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
    /// Frames cannot be taken at an interface.
    #[error("cannot take frames at {interface}: {source}{}", at_interface(source))]
    Ether {
        /// Its name.
        interface: String,
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
    /// Where frames are taken; empty once stopped.
    stations: Mutex<Vec<Station>>,
    /// The sockets that reactors listen at, for who is to have them after us.
    doors: Doors,
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
    pub fn start(mut plan: Plan) -> Result<Self, Error> {
        plan.nodes.iter().try_for_each(Node::check)?;
        let mut there = std::mem::take(&mut plan.listening);
        let (doors, mut listeners) = (Doors::default(), Vec::new());
        let mut portals = Vec::new();
        for portal in plan.portals.iter().copied() {
            let wanted = portal.address;
            let failed = |source| Error::Listen { address: wanted, source };
            let (listener, address) = doors::open(wanted, &mut there).map_err(failed)?;
            doors.add(&listener, address).map_err(failed)?;
            portals.push(Portal { address, ..portal });
            listeners.push((listener, address));
        }
        // Nobody listens at the others any more.
        drop(there);
        let (mut adapters, adapter_portals) = plan.adapters.listen(&portals)?;
        // What comes before all has begun is closed again.
        let begun = Arc::new(OnceLock::new());
        let mut frames = std::mem::take(&mut plan.frames);
        let stations = plan.ether.iter().map(|at| open_station(at, &mut frames, &begun));
        let stations = stations.collect::<Result<Vec<_>, _>>()?;
        drop(frames);
        let engine = engine::choose(plan.engine);
        let mut starting = Vec::new();
        let reactors = plan.reactors.max(1);
        let failed = |source| Error::Engine { engine: engine.name(), source };
        let mut seats = seats(engine, reactors, &plan).map_err(failed)?;
        for index in 0..reactors {
            let seat = seats.get_mut(index).and_then(Option::take);
            starting.push(Starting::spawn(index, engine, seat, &plan)?);
        }
        let nodes = Nodes::new(plan.nodes, portals, plan.discovery)
            .with_adapters(adapter_portals)
            .hidden(plan.hide_targets);
        let isns = NameService::new(plan.isns);
        isns.tell(registration(&nodes))?;
        let mut mailboxes = Vec::new();
        for reactor in &starting {
            let waker = reactor.waker.recv().map_err(|_| stopped())?;
            mailboxes.push(Mailbox::new(waker.map_err(failed)?));
        }
        let registry = Registry::new(plan.sessions_max);
        registry.keep_room_for_proof(nodes.takes_proof());
        let limits = Limits::default();
        limits.set(plan.limits);
        let shared = Arc::new(Shared {
            catalogue: Catalogue::new(nodes),
            challenges: Challenges::default(),
            registry,
            strangers: Strangers::new(plan.connections),
            mailboxes,
            board: Board::default(),
            silences: Silences::default(),
            limits,
            slow: Slow::default(),
            files: Files::new(plan.stores),
            login_timeout: plan.login_timeout,
            rdma: plan.rdma,
            capture: plan.capture,
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
        let _ = begun.set(Arc::clone(&shared));
        Ok(Self {
            shared,
            stations: Mutex::new(stations),
            doors,
            threads: Mutex::new(threads),
            isns,
            engine: engine.name(),
            mode: plan.mode,
            volumes: Mutex::new(()),
            occupied: Occupied::default(),
            shrunk: Mutex::default(),
        })
    }

    pub(crate) const fn doors(&self) -> &Doors {
        &self.doors
    }

    /// The sockets that it listens at, by their addresses, for who is to listen there when it has
    /// stopped: connections wait in them meanwhile.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn listening(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        self.doors.copies()
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

    /// Begins a trace of sessions that are there, and of those that come.
    #[must_use]
    pub fn trace(&self, terms: Terms) -> Tracing {
        Tracing::begin(Arc::clone(&self.shared), terms)
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

    /// The addresses that it really listens on: those of [`socket_portals`](Self::socket_portals),
    /// and behind them those of RDMA adapters alone.
    #[must_use]
    pub fn portals(&self) -> Vec<SocketAddr> {
        let mut portals = self.socket_portals();
        let adapters = self.adapter_portals().into_iter();
        let alone: Vec<_> = adapters.filter(|adapter| !portals.contains(adapter)).collect();
        portals.extend(alone);
        portals
    }

    /// Those of them that can be reached over TCP.
    #[must_use]
    pub fn socket_portals(&self) -> Vec<SocketAddr> {
        self.nodes().addresses()
    }

    /// Those of them that speak iSER, too.
    #[must_use]
    pub fn iser_portals(&self) -> Vec<SocketAddr> {
        let (nodes, else_so) = (self.nodes(), self.shared.rdma);
        let speaks = |portal: &&Portal| portal.rdma.unwrap_or(else_so) != Rdma::Off;
        nodes.portals.iter().filter(speaks).map(|portal| portal.address).collect()
    }

    /// Those at which RDMA adapters take connections.
    #[must_use]
    pub fn adapter_portals(&self) -> Vec<SocketAddr> {
        self.nodes().adapters.iter().map(|portal| portal.address).collect()
    }

    /// Where it takes connections over raw Ethernet, with the bytes that a frame carries there.
    #[must_use]
    pub fn stations(&self) -> Vec<(Place, usize)> {
        let stations = self.stations.lock().unwrap_or_else(PoisonError::into_inner);
        stations.iter().map(|station| (station.place(), station.mtu())).collect()
    }

    /// By station, in the same order: which way its frames come and go, in words.
    #[must_use]
    pub fn station_frames(&self) -> Vec<String> {
        let stations = self.stations.lock().unwrap_or_else(PoisonError::into_inner);
        stations.iter().map(Station::frames).collect()
    }

    /// By station, in the same order: how far its connections have come.
    #[must_use]
    pub fn station_figures(&self, patience: Duration) -> Vec<Vec<StationFigures>> {
        let stations = self.stations.lock().unwrap_or_else(PoisonError::into_inner);
        stations.iter().map(|station| station.figures(patience)).collect()
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

    /// From now on the log is told of commands that take so long, with what they spent the time;
    /// zero, as when a target begins: of none.
    pub fn tell_slow_commands(&self, after: Duration) {
        self.shared.slow.set(after);
    }

    /// From now on these limits, by target, in the place of those before, which are its plan's at
    /// first. What a limit holds that is another now, or none, looks at once whether it may go on.
    /// Sessions that are more than an initiator may have stay.
    pub fn limit(&self, limits: Vec<(String, Vec<Limit>)>) {
        self.shared.limit(limits);
    }

    /// The limits, and what came to them.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitSnapshot> {
        let mut limits = self.shared.limits.snapshot();
        for one in &mut limits {
            if let Limited::Lun(lun) = one.limit.of {
                let luns = self.nodes().find(&one.target).map(|served| served.luns());
                let mut luns = luns.into_iter().flatten();
                let unit = luns.find(|(number, _)| *number == lun);
                one.disk = unit.map(|(_, unit)| unit.identity().serial.clone());
            }
        }
        limits
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

/// Takes connections at an interface, for a target that is to begin.
fn open_station(
    interface: &Interface,
    frames: &mut Vec<Reserved>,
    begun: &Arc<OnceLock<Arc<Shared>>>,
) -> Result<Station, Error> {
    let begun = Arc::clone(begun);
    let taker = Box::new(move |fd, peer| {
        if let Some(shared) = begun.get() {
            shared.take_stream(fd, peer);
        }
    });
    let station = match frames.iter().position(|one| one.interface() == interface) {
        Some(at) => frames.swap_remove(at).serve(taker),
        None => Station::open(interface, taker),
    };
    let station =
        station.map_err(|source| Error::Ether { interface: interface.name.clone(), source })?;
    tracing::info!(interface = interface.name, frames = station.frames(), "frames are taken");
    Ok(station)
}

fn stopped() -> Error {
    Error::Reactor(io::Error::other("its thread stopped"))
}
