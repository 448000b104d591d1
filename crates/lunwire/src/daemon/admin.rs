// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket: local, for its owner and root only, one JSON line each way.

mod desk;

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use capture::Capture;
use control::admin;
use control::admin::Reply;
use control::admin::Request;
use control::admin::TraceOrder;
use scsi::LogicalUnit;
use store::spec::Spec;
use target::Answered;
use target::Event;
use target::Found;
use target::LimitSnapshot;
use target::LunSnapshot;
use target::NewImage;
use target::NewLun;
use target::Resized;
use target::Shrink;
use target::SnapshotPlace;
use target::Target;
use target::Times;
use target::VolumeError;

use self::desk::Desk;
use super::advice::reaching;
use super::clients::Clients;
use super::clients::Questions;
use super::clients::Stopper;
use super::configuration::Configuration;
use super::events::Events;
use super::limits;
use super::load;
use super::sandboxed::Sandbox;
use super::shown;
use super::shown::Waits;
use super::take_over::giving;
use super::take_over::giving::Handing;
use super::traces::EndsTraces;
use super::traces::Traces;
use crate::client::layers;
use crate::output;
use crate::plan;
use crate::plan::DraftLun;
use crate::plan::Dumped;
use crate::plan::initiators;
use crate::ports;

/// How long a daemon may take for what is no work.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whoever waits for an answer hears so as often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Reactors that do not answer for so long are named instead: nobody is to wait for them.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Longest answer that a client takes, bytes: many thousand sessions.
const REPLY_LEN_MAX: u64 = 64 << 20;

/// Answers on the control socket until it is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    desk: Desk,
    door: Option<Door>,
}

/// The socket, and who serves those that come to it.
#[derive(Debug)]
struct Door {
    socket: Socket,
    stopper: Stopper,
    threads: [JoinHandle<()>; 2],
    traces: EndsTraces,
}

/// The file by which a process is found that can be asked.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// Device and inode: which of the files of that name it is.
    identity: (u64, u64),
    /// As long as somebody listens, no other file gets that inode.
    listener: UnixListener,
    /// Another process listens at it.
    is_handed_over: bool,
}

impl Socket {
    /// `path`: where `listener` is bound.
    pub(crate) fn of(path: PathBuf, listener: &UnixListener) -> Result<Self> {
        let known = identity(&path).and_then(|known| Ok((known, listener.try_clone()?)));
        let (identity, listener) = known.with_context(|| path.display().to_string())?;
        Ok(Self { path, identity, listener, is_handed_over: false })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Somebody may have removed it, and another process may have its own there.
        if !self.is_handed_over && identity(&self.path).is_ok_and(|there| there == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of what is at `path`.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|facts| (facts.dev(), facts.ino()))
}

impl Admin {
    /// `path`: as the user gave it; otherwise the default place, and if that cannot be had, none,
    /// with a warning. `there`: a socket that listens there already.
    pub(crate) fn start(
        path: Option<PathBuf>,
        there: Option<OwnedFd>,
        target: Arc<Target>,
        configuration: Arc<Configuration>,
        beside: Beside,
    ) -> Result<Self> {
        let begun = Instant::now();
        let traces = Traces::default();
        let shared =
            Arc::new(Shared { target, configuration, begun, beside, traces: traces.clone() });
        let desk = Desk::new(Arc::clone(&shared));
        let (path, wanted) = match path {
            Some(path) => (path, true),
            None => match default_path() {
                Some(path) => (path, false),
                None => {
                    tracing::warn!(
                        "no control socket: XDG_RUNTIME_DIR is not set; try: --control-socket PATH"
                    );
                    return Ok(Self { desk, door: None });
                }
            },
        };
        let is_handed = there.is_some();
        // Its file may have gone meanwhile: nobody would find it.
        let there = there.filter(|_| identity(&path).is_ok());
        let listener = match there.map_or_else(|| bind(&path), |fd| Ok(UnixListener::from(fd))) {
            Ok(listener) => listener,
            // Hosts do not wait for it.
            Err(error) if wanted && !is_handed => return Err(error),
            Err(error) => {
                tracing::warn!("no control socket: {error:#}");
                return Ok(Self { desk, door: None });
            }
        };
        tracing::debug!(path = %path.display(), "control socket");
        let socket = Socket::of(path, &listener)?;
        let doorplate = socket.listener.try_clone().context("the control socket")?;
        let asked = Asked { shared: Arc::clone(&shared), socket: Arc::new(doorplate.into()) };
        let (mut clients, orders) =
            Clients::new(listener, asked).context("cannot serve the control socket")?;
        let stopper = clients.stopper(&orders).context("cannot serve the control socket")?;
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let carrying = thread("orders")
            .spawn(move || orders.run(|order, is_wanted| shared.carry_out(order, is_wanted)))
            .context("cannot start the thread for orders")?;
        let serving = thread("admin")
            .spawn(move || while clients.turn() {})
            .context("cannot start the control thread")?;
        let threads = [serving, carrying];
        let traces = EndsTraces(traces);
        Ok(Self { desk, door: Some(Door { socket, stopper, threads, traces }) })
    }

    /// Answers nobody any more, and leaves the socket to the process that listens at it next.
    pub(crate) fn hand_over(self) {
        let Some(Door { mut socket, stopper, threads, traces }) = self.door else { return };
        socket.is_handed_over = true;
        stopper.stop();
        drop(traces);
        for thread in threads {
            // It has panicked at worst, and told so.
            let _ = thread.join();
        }
    }

    /// Who answers, with or without a socket.
    pub(crate) fn desk(&self) -> Desk {
        self.desk.clone()
    }
}

/// What questions and orders are about.
#[derive(Debug)]
struct Shared {
    target: Arc<Target>,
    configuration: Arc<Configuration>,
    begun: Instant,
    beside: Beside,
    traces: Traces,
}

/// What the daemon does beside serving.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    /// Where it speaks HTTP.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) http_tls: bool,
    /// Its address in the configuration, and the socket.
    pub(crate) http_socket: Option<(SocketAddr, Arc<OwnedFd>)>,
    /// Who hears that another process takes over.
    pub(crate) ends: Sender<End>,
    pub(crate) capture: Option<Capture>,
    pub(crate) events: Events,
    pub(crate) sandbox: Sandbox,
}

/// Why a daemon ends.
#[derive(Debug)]
pub(crate) enum End {
    /// A signal asked for it.
    Asked,
    /// Another process serves next.
    Handing(Box<Handing>),
}

/// Answers what takes no time.
struct Asked {
    shared: Arc<Shared>,
    socket: Arc<OwnedFd>,
}

impl Questions for Asked {
    fn answer(&self, request: &Request) -> Option<Reply> {
        self.shared.answer(request)
    }

    fn converse(&self, request: &Request, stream: &UnixStream) -> bool {
        if let Request::Trace(order) = request {
            return self.trace(order, stream);
        }
        let Request::TakeOver { protocol, version } = request else { return false };
        let Ok(stream) = stream.try_clone() else { return false };
        let (shared, socket) = (Arc::clone(&self.shared), Arc::clone(&self.socket));
        let (protocol, version) = (*protocol, version.clone());
        let thread = std::thread::Builder::new().name("take-over".into());
        let spawned = thread.spawn(move || {
            match shared.offer((protocol, &version), stream, &socket) {
                // Who would hear it ends for another reason.
                Ok(handing) => drop(shared.beside.ends.send(End::Handing(Box::new(handing)))),
                Err(error) => {
                    let why = output::chain(&error);
                    tracing::warn!(version, why, "another process does not take over");
                }
            }
        });
        spawned.is_ok()
    }
}

impl Asked {
    /// Whether somebody serves the reader of a trace.
    fn trace(&self, order: &TraceOrder, stream: &UnixStream) -> bool {
        let Ok(stream) = stream.try_clone() else { return false };
        let (target, traces) = (Arc::clone(&self.shared.target), self.shared.traces.clone());
        let order = order.clone();
        let thread = std::thread::Builder::new().name("trace".into());
        let serve = move || traces.serve(target, &order, &stream);
        thread.spawn(serve).is_ok()
    }
}

impl Shared {
    /// All that another process needs to take over.
    fn offer(
        &self,
        who: (u32, &str),
        stream: UnixStream,
        control: &Arc<OwnedFd>,
    ) -> Result<Handing> {
        let http = self.beside.http_socket.as_ref().map(|(address, fd)| (*address, fd));
        giving::offer(who, stream, (&self.configuration, &self.target), |portals| {
            giving::all_sockets(&self.target, portals, http, Some(control))
        })
    }

    /// The answer of `order` about a target, or about the only one there is.
    fn of_target(
        &self,
        name: Option<&str>,
        order: impl FnOnce(&str) -> Result<Reply, VolumeError>,
    ) -> Reply {
        let reply = self.name_of(name).and_then(|name| Ok(order(&name)?));
        reply.unwrap_or_else(|error| Reply::Error { message: output::chain(&error) })
    }

    /// The target that is meant.
    fn name_of(&self, name: Option<&str>) -> Result<String> {
        match (name, &self.target.names()[..]) {
            (Some(name), _) => Ok(name.to_owned()),
            (None, [only]) => Ok(only.clone()),
            (None, _) => bail!("there are several targets; try: --target IQN"),
        }
    }

    /// Limits a unit or an initiator, or does so no more.
    fn limit(
        &self,
        name: Option<&str>,
        of: (Option<u16>, Option<&str>),
        most: (Option<u64>, Option<u64>, Option<u64>),
    ) -> Result<(), String> {
        let name = self.name_of(name).map_err(|error| output::chain(&error))?;
        let limit = limits::of_order(&self.target, &name, of, most)?;
        let of = plan::limit::shown(&limit.of);
        let is_it = |known: &LimitSnapshot| known.target == name && known.limit.of == limit.of;
        match most {
            (None, None, None) if !self.target.limits().iter().any(is_it) => {
                return Err(format!("{of} of {name} has no limit; try: lunwire limit"));
            }
            (None, None, None) => tracing::info!(
                name: Event::Limit.name(), target = name, of, "limited no more"
            ),
            (iops, bandwidth, sessions) => {
                tracing::info!(
                    name: Event::Limit.name(), target = name, of, iops, bandwidth, sessions,
                    "limited"
                );
            }
        }
        self.configuration.limit(&name, limit);
        Ok(())
    }

    /// Serves one more unit.
    fn add(
        &self,
        name: Option<&str>,
        number: Option<u16>,
        order: &admin::NewLun,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Reply> {
        if let Some(number) = number {
            plan::lun_number(number)
                .map_err(|right| anyhow::anyhow!("--number {number}: {right}"))?;
        }
        let target = self.name_of(name)?;
        let initiators = initiators(order).map_err(anyhow::Error::msg)?;
        // Nothing else comes or goes while a store is opened.
        plan::await_clusters(&order.store).with_context(|| format!("store {}", order.store))?;
        let only = initiators.clone();
        let new = NewLun { number, initiators };
        let mut warnings = Vec::new();
        let changing = self.configuration.changing();
        let (maker, mut drafted) = (self.configuration.maker(), None);
        let number = self.target.add_lun(&target, new, |stores, number| {
            let unwanted = || {
                let store = &order.store;
                anyhow::anyhow!("{store} is not served: nobody waits for it any more")
            };
            if !is_wanted() {
                return Err(unwanted());
            }
            let draft = DraftLun::from_order(number, order).map_err(anyhow::Error::msg)?;
            self.beside.sandbox.admits(&draft).map_err(anyhow::Error::msg)?;
            let taken = |naa: &[u8]| self.target.find_disk(naa);
            let unit = maker.make(stores, &target, &draft, &taken);
            drafted = Some(draft.only_for(only));
            let (made, new_images) = (stores.made(), stores.new_images());
            warnings.extend(new_images.iter().map(ToString::to_string));
            warnings.extend(stores.odd_sizes().iter().map(ToString::to_string));
            // Opening may have taken its time.
            let unit = unit.and_then(|unit| if is_wanted() { Ok(unit) } else { Err(unwanted()) });
            unit.map_err(|error| {
                made.take_back();
                let targets = self.target.targets();
                let luns = targets.iter().flat_map(|target| {
                    let luns = target.luns.iter();
                    luns.map(|lun| (&*target.name, lun.number, &*lun.label))
                });
                let error = self.beside.sandbox.hint(plan::served_already(error, luns));
                new_images.iter().fold(error, |error, NewImage { place, .. }| {
                    let said = output::chain(&error);
                    anyhow::anyhow!("{said}; the new, empty image {place} stays: rbd rm {place}")
                })
            })
        })?;
        if let Some(drafted) = drafted {
            self.configuration.added(changing, &target, drafted);
        }
        let for_nobody = !self.target.is_for_somebody(&target, number)?;
        let lun = self.lun(&target, number).context("it was removed at once")?;
        let told = self.odd_about(&lun);
        told.iter().for_each(|warning| tracing::warn!("{warning}"));
        warnings.extend(told);
        let disk = shown::lun(lun, &Waits::new());
        Ok(Reply::Added { target, lun: number, disk, for_nobody, warnings })
    }

    /// What hosts can write, and this machine has no room for, where this disk has a part in it.
    fn odd_about(&self, lun: &LunSnapshot) -> Vec<String> {
        let all = self.disks();
        let Ok(this) = lun.label.parse() else { return Vec::new() };
        let mut odd = plan::machine::too_little_room(&all, Some(&this));
        if plan::memory_of(&this) > 0 {
            let disks = all.iter().map(plan::memory_of).fold(0, u64::saturating_add);
            odd.extend(plan::machine::too_much_memory(disks));
        }
        odd
    }

    /// What backs all LUNs.
    fn disks(&self) -> Vec<Spec> {
        let targets = self.target.targets();
        let luns = targets.iter().flat_map(|target| &target.luns);
        luns.filter_map(|lun| lun.label.parse().ok()).collect()
    }

    fn lun(&self, target: &str, number: u16) -> Option<LunSnapshot> {
        let mut targets = self.target.targets().into_iter();
        let mut luns = targets.find(|one| one.name == target)?.luns.into_iter();
        luns.find(|lun| lun.number == number)
    }

    /// Whoever has it keeps it from being closed.
    fn unit(&self, target: &str, number: u16) -> Option<Arc<LogicalUnit>> {
        let mut units = self.target.units(target)?.into_iter();
        units.find(|(known, _)| *known == number).map(|(_, unit)| unit)
    }

    /// Serves a unit no more.
    fn remove(&self, name: Option<&str>, lun: u16, destroy_data: bool) -> Result<Reply> {
        let target = self.name_of(name)?;
        if !destroy_data && self.unit(&target, lun).is_some_and(|unit| has_data_in_memory(&unit)) {
            bail!(
                "LUN {lun} is in memory, and what hosts wrote to it would be lost; \
                 try: --destroy-data, or lunwire copy it first"
            );
        }
        let changing = self.configuration.changing();
        self.target.remove_lun_and(&target, lun, || self.configuration.removed(changing))?;
        Ok(Reply::Removed { target, lun, warnings: Vec::new() })
    }

    /// The answer to a question, or to an order that is done at once.
    fn answer(&self, request: &Request) -> Option<Reply> {
        Some(match request {
            Request::Status => {
                let Answered { answers, silent, .. } = self.target.figures(ANSWER_WAIT);
                let waits = answers.iter().flat_map(|figures| &figures.waits);
                let waits = shown::by_disk(waits);
                let targets = self.target.targets().into_iter();
                let sessions = answers.iter().flat_map(|figures| &figures.sessions);
                Reply::Status(admin::Status {
                    version: env!("CARGO_PKG_VERSION").into(),
                    pid: std::process::id(),
                    uptime_s: self.begun.elapsed().as_secs(),
                    engine: self.target.engine().into(),
                    mode: self.target.mode().name().into(),
                    crc32c: crc::tier().name().into(),
                    reactors: self.target.reactors(),
                    iser: shown::iser(&self.target, sessions),
                    stations: shown::stations(&self.target, ANSWER_WAIT),
                    portals: self.target.portals().iter().map(ToString::to_string).collect(),
                    targets: targets.map(|target| shown::target(target, &waits)).collect(),
                    sessions: answers.iter().map(|figures| figures.sessions.len()).sum(),
                    silent_reactors: silent,
                    limits: limits::shown(&self.target, &answers),
                    http: self.beside.http.map(|address| address.to_string()),
                    http_tls: self.beside.http_tls,
                    capture: self.beside.capture.as_ref().map(shown::capture),
                    sandbox: self.beside.sandbox.held().map(str::to_owned).collect(),
                })
            }
            Request::Layers => {
                let Answered { answers, silent, .. } = self.target.figures(ANSWER_WAIT);
                let mut times = Times::default();
                answers.into_iter().for_each(|figures| times.join(figures.times));
                match &silent[..] {
                    [] => Reply::Layers(layers::told(&times)),
                    // What is missing would look like time that was not spent.
                    silent => Reply::Error { message: shown::silent(silent) },
                }
            }
            Request::Load => {
                Reply::Load(load::of(&self.target, ANSWER_WAIT, || self.begun.elapsed()))
            }
            Request::Sessions => {
                let Answered { answers, silent, .. } = self.target.figures(ANSWER_WAIT);
                let mut sessions: Vec<_> = answers
                    .into_iter()
                    .flat_map(|figures| figures.sessions)
                    .map(shown::session)
                    .collect();
                sessions.sort_by_key(|session| session.tsih);
                Reply::Sessions { sessions, silent_reactors: silent }
            }
            Request::Events { after } => Reply::Events(self.beside.events.after(*after)),
            Request::PortGroups => Reply::PortGroups { groups: ports::shown(&self.target) },
            Request::LogoutSession { tsih, timeout_s } => {
                of_session(*tsih, self.target.logout_session(*tsih, *timeout_s))
            }
            Request::DropSession { tsih } => of_session(*tsih, self.target.drop_session(*tsih)),
            _ => return None,
        })
    }

    fn carry_out(&self, request: &Request, is_wanted: &dyn Fn() -> bool) -> Reply {
        let Some(_pass) = self.configuration.gate().enter() else {
            let message = "another process takes over; try: again in a moment".to_owned();
            return Reply::Error { message };
        };
        match request {
            Request::ResizeLun { target, lun, bytes, shrink } => {
                let shrink = if *shrink { Shrink::Allowed } else { Shrink::Refused };
                self.of_target(target.as_deref(), |target| {
                    let Resized { before, now } =
                        self.target.resize_while(is_wanted, target, *lun, *bytes, shrink)?;
                    let grown = self.lun(target, *lun).filter(|_| now > before);
                    let warnings = grown.map(|lun| self.odd_about(&lun)).unwrap_or_default();
                    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                    let (target, lun) = (target.to_owned(), *lun);
                    Ok(Reply::Resized { target, lun, before, now, warnings })
                })
            }
            Request::AddLun { target, number, lun } => {
                let added = self.add(target.as_deref(), *number, lun, is_wanted);
                added.unwrap_or_else(|error| Reply::Error { message: output::chain(&error) })
            }
            Request::RemoveLun { target, lun, destroy_data } => {
                let removed = self.remove(target.as_deref(), *lun, *destroy_data);
                removed.unwrap_or_else(|error| Reply::Error { message: output::chain(&error) })
            }
            Request::RescanLuns => {
                let shown = |found: target::Rescanned| {
                    let target::Rescanned { target, lun, before, now } = found;
                    admin::RescannedLun { target, lun, before, now }
                };
                let unseen = self.target.look_behind();
                let luns: Vec<_> = self.target.rescan().into_iter().map(shown).collect();
                let smaller = luns.iter().filter(|found| found.now < found.before);
                let warnings = smaller.map(shown::smaller);
                let warnings = warnings.chain(unseen.iter().map(shown::unseen)).collect();
                Reply::Rescanned { luns, warnings }
            }
            Request::SnapshotLun { target, lun, path, name } => {
                let place = SnapshotPlace { path: Path::new(path), name: name.as_deref() };
                self.of_target(target.as_deref(), |target| {
                    let is_elsewhere =
                        self.lun(target, *lun).is_some_and(|lun| lun.elsewhere.is_some());
                    let admitted = self.beside.sandbox.admits_file(Path::new(path));
                    if let (false, Err(message)) = (is_elsewhere, admitted) {
                        return Ok(Reply::Error { message });
                    }
                    let kept = self.target.snapshot_while(is_wanted, target, *lun, place)?;
                    let image = self.lun(target, *lun).and_then(|lun| lun.elsewhere);
                    let lost = image.and_then(|image| image.lost);
                    let warnings = lost.map(|how| shown::kept_elsewhere(*lun, how));
                    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                    Ok(Reply::Snapshotted {
                        target: target.to_owned(),
                        lun: *lun,
                        bytes: kept.bytes,
                        name: kept.name,
                        warnings: warnings.into_iter().collect(),
                    })
                })
            }
            Request::Reload { dry_run, destroy_data } => {
                let reloaded = self.configuration.reload(*dry_run, *destroy_data);
                match reloaded {
                    Ok(told) => Reply::Reloaded(told),
                    Err(error) => Reply::Error { message: output::chain(&error) },
                }
            }
            Request::Dump => match self.configuration.dump() {
                Ok(Dumped { text, warnings }) => Reply::Dumped { text, warnings },
                Err(error) => Reply::Error { message: output::chain(&error) },
            },
            Request::SetLimit { target, lun, initiator, iops, bandwidth, sessions } => {
                let limited = self.limit(
                    target.as_deref(),
                    (*lun, initiator.as_deref()),
                    (*iops, *bandwidth, *sessions),
                );
                match limited {
                    Ok(()) => Reply::Done,
                    Err(message) => Reply::Error { message },
                }
            }
            Request::SetPortGroup { target, lun, group, state } => {
                let set = match lun {
                    None => self.configuration.set_state(target, *group, state),
                    Some(_) => ports::set(&self.target, target, *lun, *group, state).map(drop),
                };
                match set {
                    Ok(()) => Reply::Done,
                    Err(message) => Reply::Error { message },
                }
            }
            other => self.answer(other).unwrap_or_else(|| Reply::Error {
                message: "this daemon does not know that order".to_owned(),
            }),
        }
    }
}

/// Whether there is something on a disk that ends with it.
pub(super) fn has_data_in_memory(unit: &LogicalUnit) -> bool {
    let Ok(spec) = unit.label().parse() else { return false };
    // Who does not count may have some.
    let has_some = || unit.store().usage().is_none_or(|usage| usage.used > 0);
    plan::is_in_memory(&spec) && (has_some() || unit.is_formatted_otherwise())
}

fn of_session(tsih: u16, found: Found) -> Reply {
    let message = match found {
        Found::Here => return Reply::Done,
        Found::Nowhere => format!("no session {tsih}; try: lunwire sessions"),
        Found::Unknown(reactors) => format!(
            "{}; if session {tsih} is there, it ends when that goes on",
            shown::silent(&reactors)
        ),
    };
    Reply::Error { message }
}

/// Asks the daemon behind `path`, or behind the default control socket.
pub(crate) fn ask(path: Option<&Path>, request: &Request) -> Result<Reply> {
    ask_patiently(path, request, TIMEOUT, |_| {})
}

/// The same, for orders that take longer: `tell` hears now and then for how long.
pub(crate) fn ask_patiently(
    path: Option<&Path>,
    request: &Request,
    patience: Duration,
    tell: impl FnMut(Duration),
) -> Result<Reply> {
    let given = path;
    let Some(path) = path.map(Path::to_path_buf).or_else(default_path) else {
        bail!("no default control socket here; try: --control-socket PATH");
    };
    let daemon = path.display();
    let mut stream = UnixStream::connect(&path).map_err(|error| unreachable(&path, error))?;
    stream.set_read_timeout(Some(TELL_EVERY.min(patience)))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    let mut answer = String::new();
    let asked =
        stream.write_all(&text).and_then(|()| read_answer(&stream, &mut answer, patience, tell));
    let is_cut = match &asked {
        Ok(()) => !answer.ends_with('\n'),
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    };
    if is_cut {
        bail!(hung_up(&stream, &daemon));
    }
    asked.with_context(|| {
        let seconds = patience.as_secs();
        format!(
            "no answer from the daemon at {daemon} within {seconds} s; try: again, or look at its \
             log"
        )
    })?;
    match serde_json::from_str(&answer).with_context(|| other_version(&daemon))? {
        Reply::Error { message } => bail!(reaching(&message, given)),
        reply => Ok(reply),
    }
}

/// Begins what goes on at the socket after the answer: the stream, the answer, and what has come
/// behind it.
pub(crate) fn begin(
    path: Option<&Path>,
    request: &Request,
) -> Result<(UnixStream, Reply, Vec<u8>)> {
    let given = path;
    let Some(path) = path.map(Path::to_path_buf).or_else(default_path) else {
        bail!("no default control socket here; try: --control-socket PATH");
    };
    let daemon = path.display();
    let mut stream = UnixStream::connect(&path).map_err(|error| unreachable(&path, error))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    let mut came = Vec::new();
    let mut part = [0; 4096];
    let said = stream.write_all(&text);
    let end = loop {
        if let Some(end) = came.iter().position(|byte| *byte == b'\n') {
            break end;
        }
        match said.as_ref().map_or(Ok(0), |()| stream.read(&mut part)) {
            Ok(0) => bail!(hung_up(&stream, &daemon)),
            Ok(length) => came.extend(part.iter().take(length)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                bail!(hung_up(&stream, &daemon));
            }
            Err(error) => {
                let why = format!("no answer from the daemon at {daemon}; try: again");
                return Err(anyhow::Error::from(error).context(why));
            }
        }
    };
    let rest = came.split_off(end + 1);
    match serde_json::from_slice(&came).with_context(|| other_version(&daemon))? {
        Reply::Error { message } => bail!(reaching(&message, given)),
        reply => Ok((stream, reply, rest)),
    }
}

/// Why the daemon behind `stream` has hung up without an answer.
fn hung_up(stream: &UnixStream, daemon: &std::path::Display<'_>) -> String {
    let user = rustix::process::geteuid();
    let owner = rustix::net::sockopt::socket_peercred(stream).map(|owner| owner.uid);
    if user.is_root() || owner.is_ok_and(|owner| owner == user) {
        return format!(
            "the daemon at {daemon} has ended before it answered, and may have done what it was \
             asked; try: lunwire status, when it runs again, or look at its log"
        );
    }
    format!(
        "the daemon at {daemon} does not answer user {}; try: as root, or as the user that it runs \
         as",
        user.as_raw()
    )
}

/// All that comes until the other end has said all, in so much time at most between two parts.
fn read_answer(
    stream: &UnixStream,
    answer: &mut String,
    patience: Duration,
    mut tell: impl FnMut(Duration),
) -> std::io::Result<()> {
    let (mut stream, mut bytes) = (stream.take(REPLY_LEN_MAX), Vec::new());
    let (begun, mut last) = (Instant::now(), Instant::now());
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => {
                bytes.extend(part.iter().take(length));
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && last.elapsed() < patience => {
                tell(begun.elapsed());
            }
            Err(error) => return Err(error),
        }
    }
    *answer = String::from_utf8(bytes).map_err(std::io::Error::other)?;
    Ok(())
}

/// Why nobody can be asked at `path`, and what to do.
pub(super) fn unreachable(path: &Path, error: std::io::Error) -> anyhow::Error {
    let daemon = path.display();
    let what = match error.kind() {
        ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            format!(
                "user {user} may not ask the daemon at {daemon}; \
                 try: as root, or as the user that it runs as"
            )
        }
        _ if path.metadata().is_ok_and(|facts| !facts.file_type().is_socket()) => {
            return anyhow::anyhow!(
                "{daemon} is no socket; try: the path that the daemon got as --control-socket"
            );
        }
        _ => format!(
            "cannot reach a daemon at {daemon}; try: lunwire serve --control-socket {daemon}, or \
             the --control-socket that a running one was started with"
        ),
    };
    anyhow::Error::from(error).context(what)
}

/// What is wrong with an answer that does not belong to the request.
pub(crate) fn unexpected(path: Option<&Path>) -> anyhow::Error {
    let path = path.map(Path::to_path_buf).or_else(default_path).unwrap_or_default();
    anyhow::Error::msg(other_version(&path.display()))
}

fn other_version(daemon: &std::path::Display<'_>) -> String {
    format!(
        "the answer of the daemon at {daemon} is not understood; is it of another version? \
         try: the lunwire that it was started with"
    )
}

/// `lunwire.sock` in the user's runtime folder, or in /run for root.
pub(crate) fn default_path() -> Option<PathBuf> {
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
        _ => return None,
    };
    Some(folder.join("lunwire.sock"))
}

/// Binds `path` for its owner only; a socket that nobody answers on is left over and replaced.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        let path = path.display();
        bail!("{path} belongs to a running daemon; try: --control-socket with another path");
    }
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_socket());
    if is_socket {
        // If it cannot be removed, binding says so.
        let _ = std::fs::remove_file(path);
    } else if let Ok(facts) = std::fs::symlink_metadata(path) {
        let what = match facts.file_type() {
            kind if kind.is_dir() => "a folder",
            kind if kind.is_file() => "a file",
            _ => "there, and no socket",
        };
        bail!("{} is {what}; try: --control-socket with another path", path.display());
    }
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener.with_context(|| match path.parent().filter(|path| !path.exists()) {
        Some(folder) if folder != Path::new("") => {
            let (path, folder) = (path.display(), folder.display());
            format!("cannot make {path}: the folder {folder} is missing; try: mkdir -p {folder}")
        }
        _ => format!("cannot make {}", path.display()),
    })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
