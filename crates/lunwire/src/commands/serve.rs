// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire serve`.

mod signals;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use capture::Capture;
use control::admin::Carried;
use engine::Choice;
use http::Access;
use http::Http;
use http::Listener;
use scsi::LogicalUnit;
use target::Reserved;
use target::StateFolder;
use target::Target;

use self::signals::State;
use crate::args::ServeOptions;
use crate::client;
use crate::client::capture::WRITE_PATIENCE;
use crate::daemon::admin::Admin;
use crate::daemon::admin::Beside;
use crate::daemon::admin::End;
use crate::daemon::configuration;
use crate::daemon::configuration::Configuration;
use crate::daemon::descriptors;
use crate::daemon::events::Events;
use crate::daemon::frames;
use crate::daemon::log;
use crate::daemon::log::Log;
use crate::daemon::log::Style;
use crate::daemon::log::Telling;
use crate::daemon::manager;
use crate::daemon::periodic::Periodic;
use crate::daemon::sandboxed::Sandbox;
use crate::daemon::take_over::Doors;
use crate::daemon::take_over::Entry;
use crate::daemon::take_over::Holder;
use crate::daemon::take_over::Sockets;
use crate::daemon::take_over::Waited;
use crate::daemon::take_over::giving;
use crate::daemon::take_over::giving::Handed;
use crate::daemon::take_over::giving::Handing;
use crate::daemon::take_over::losses;
use crate::daemon::take_over::taking;
use crate::daemon::take_over::taking::Before;
use crate::daemon::take_over::taking::Served;
use crate::daemon::watch;
use crate::output;
use crate::plan;
use crate::plan::Draft;
use crate::plan::Opened;

/// How long initiators get to log out when the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

/// Who still looks at the disks when they are closed gets so long to let go of them: their locks
/// end with the last one.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks whether that is so.
const CLOSE_PAUSE: Duration = Duration::from_millis(2);

/// Serves until SIGTERM or SIGINT, unless who started us ignores them; a second signal does not
/// wait for initiators.
pub(crate) fn run(options: &ServeOptions) -> Result<()> {
    let options = &plan::whole_options(options);
    let draft = Draft::from_options(options)?;
    let frames = frames::reserve(&draft, options)?;
    // The log has a thread.
    let sandbox = Sandbox::put_on(&draft, options)?;
    let telling = log::start(&draft.log, style(options.log_json))?;
    sandbox.tell();
    let result = serve(options, draft, &telling, sandbox, frames);
    telling.log.flush();
    result
}

fn serve(
    options: &ServeOptions,
    mut draft: Draft,
    telling: &Telling,
    sandbox: Sandbox,
    frames: Vec<Reserved>,
) -> Result<()> {
    let Telling { log, events } = telling;
    for warning in draft.warnings() {
        tracing::warn!("{warning}");
    }
    let (tell, ends) = mpsc::channel();
    let state = signals::listen(tell.clone(), log)?;
    descriptors::raise_limit();
    // What is wrong is told while another one serves. Who serves again looks no more: tokens that
    // cannot be read by then keep people from the port, and not hosts from their disks.
    let access = draft.http_access()?;
    let mut entry = match options.take_over {
        true => {
            let mut entry = taking::begin(&mut draft).map_err(|error| sandbox.hint(error))?;
            if let Some(before) = entry.carried.events.take() {
                events.carry_on(before);
            }
            entry
        }
        false => entry_of_manager(&draft),
    };
    entry.frames = frames;
    let daemon = Daemon { options, log, events, sandbox, access, state, tell, ends };
    loop {
        match daemon.serve(draft, &mut entry) {
            Ok(None) => {
                // Who waits still is to serve.
                entry.before.failed(&anyhow!("it was stopped"));
                return Ok(());
            }
            Ok(Some(again)) => (draft, entry) = *again,
            Err(error) => {
                entry.before.failed(&error);
                return Err(error);
            }
        }
    }
}

/// With the sockets that the service manager has.
fn entry_of_manager(draft: &Draft) -> Entry {
    let portals: Vec<SocketAddr> = draft.portals().iter().map(|portal| portal.address).collect();
    let (sockets, unwanted) = Sockets::of_manager(manager::sockets(), &portals, draft.http);
    if !sockets.portals.is_empty() {
        let count = sockets.portals.len();
        tracing::info!(count, "listening at sockets of the service manager");
    }
    for address in unwanted {
        tracing::warn!(%address, "a socket of the service manager is no portal: it is closed");
        manager::forget(address);
    }
    Entry { sockets, ..Entry::default() }
}

/// What outlives a service that nobody takes over in the end.
struct Daemon<'a> {
    options: &'a ServeOptions,
    log: &'a Log,
    events: &'a Events,
    sandbox: Sandbox,
    access: Access,
    state: Arc<State>,
    tell: Sender<End>,
    ends: Receiver<End>,
}

/// With what it is served anew.
type Again = Option<Box<(Draft, Entry)>>;

/// All that serves.
struct Service {
    target: Arc<Target>,
    configuration: Arc<Configuration>,
    http: Option<Http>,
    admin: Admin,
    /// Who looks at it from time to time.
    attendants: Vec<Periodic>,
    capture: Option<Capture>,
    state_folder: Option<StateFolder>,
}

impl Daemon<'_> {
    /// Serves `draft` until it is to end, or until another process that wanted to serve has not:
    /// then with what it is to be served again.
    fn serve(&self, draft: Draft, entry: &mut Entry) -> Result<Again> {
        let Self { options, log, sandbox, state, .. } = self;
        state.is_opening.store(true, Ordering::SeqCst);
        let mut sockets = std::mem::take(&mut entry.sockets);
        // Then hosts are not to wait for what is beside their disks.
        let is_again = entry.holder.is_some();
        // Before anything is opened: a port that somebody else has is told of at once.
        let access = self.access.clone();
        let there = sockets.http.take().map(|(_, socket)| socket);
        let http = draft.http.map(|address| http_at(address, there, access)).transpose()?;
        entry.before.opening(draft.opened())?;
        let opened = self.open(&draft, &entry.carried, entry.holder.take(), &sockets);
        let Some(mut plan) = opened? else {
            return Ok(None);
        };
        if let Err(error) = entry.before.waits() {
            plan.made.take_back();
            return Err(error);
        }
        if self.leaves(&entry.before) {
            plan.made.take_back();
            return Ok(None);
        }
        // An old one is replaced when it is no disk, and nothing is wrong with those there are.
        // What another one has captured stays.
        let there = match is_again || entry.before.is_there() {
            true => Captured::Before,
            false => Captured::Replaced,
        };
        let capture = draft.capture.as_ref().map(|capture| captured(capture, there));
        let capture = match capture.transpose() {
            Ok(capture) => capture,
            Err(error) if is_again => {
                tracing::error!("nothing is captured any more: {}", output::chain(&error));
                None
            }
            Err(error) => {
                plan.made.take_back();
                return Err(error);
            }
        };
        // All that is read behind this may be read for an order, or again.
        engine::files::refuse_pipes();
        plan.plan.capture.clone_from(&capture);
        plan.plan.listening = sockets.portals;
        plan.plan.frames = std::mem::take(&mut entry.frames);
        frames::without_rights(&mut plan.plan, sandbox);
        if is_again {
            frames::await_missing(&mut plan.plan);
        }
        taking::carry_on(&plan.plan.nodes, &entry.carried);
        losses::keep(&plan.plan.nodes, &entry.lost);
        if entry.before.is_there() {
            taking::hold_back(&plan.plan.nodes);
        }
        state.is_opening.store(false, Ordering::SeqCst);
        let left = descriptors::left_for_connections(plan.plan.reactors);
        plan.plan.connections = plan.plan.connections.within(left);
        let engine = plan.plan.engine;
        let target = match Target::start(plan.plan) {
            Ok(target) => Arc::new(target),
            Err(error) => {
                plan.made.take_back();
                return Err(error.into());
            }
        };
        if self.leaves(&entry.before) {
            let _ = target.stop(GRACE);
            plan.made.take_back();
            return Ok(None);
        }
        target.tell_slow_commands(draft.slow());
        *state.target.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&target);
        let last_word = (*log).clone();
        target::end_process_on_panic(&target, move || last_word.flush());
        tracing::debug!(
            engine = target.engine(),
            mode = target.mode().name(),
            reactors = target.reactors(),
            crc32c = crc::tier().name(),
            "serving"
        );
        let control_socket = draft.control_socket.clone();
        let wanted_http = draft.http;
        let configuration =
            Configuration::new((*options).clone(), draft, Arc::clone(&target), sandbox.clone());
        let configuration = Arc::new(configuration);
        // What comes now would be lost if the process before served in the end.
        let starting = configuration.gate().starting();
        state.is_configured_by(&configuration);
        let reader = match options.watch {
            true => {
                let state = Arc::clone(state);
                let there = match is_again {
                    true => Ok(()),
                    false => configuration::expect_file(&configuration),
                };
                there.and_then(|()| {
                    configuration::watch(&configuration, move |what| state.reload(what))
                })
            }
            false => Ok(None),
        };
        let (http, http_socket) = http.unzip();
        let beside = Beside {
            http: http.as_ref().map(Http::address),
            http_tls: http.as_ref().is_some_and(|http| http.scheme() == "https"),
            http_socket: wanted_http.zip(http_socket),
            ends: self.tell.clone(),
            capture: capture.clone(),
            events: self.events.clone(),
            sandbox: sandbox.clone(),
        };
        let (ours, known) = (Arc::clone(&target), Arc::clone(&configuration));
        let attended =
            Admin::start(control_socket, sockets.control, ours, known, beside).and_then(|admin| {
                let watch = watch::start(Arc::clone(&target))?;
                let watchdog = manager::watchdog(Arc::clone(&target), entry.watchdog)?;
                Ok((admin, [Some(watch), watchdog, reader?].into_iter().flatten().collect()))
            });
        let (admin, attendants) = match attended {
            Ok(attended) => attended,
            Err(error) => {
                // Hosts may be there already. The error that came first is the one to tell.
                let _ = target.stop(GRACE);
                plan.made.take_back();
                return Err(error);
            }
        };
        if let Some(http) = &http {
            http.serves(Arc::clone(&target), Arc::new(admin.desk()));
        }
        let served = entry.before.serving(|| self.is_told_to_leave());
        if !matches!(served, Ok(Served::Here)) {
            drop(starting);
            // Its socket is that of the other one.
            admin.hand_over();
            let _ = target.stop(GRACE);
            plan.made.take_back();
            return served.map(|_| None);
        }
        giving::of_units(&target, LogicalUnit::let_on);
        starting.serves();
        // They are held no longer than they are served.
        drop(plan.made);
        announce(&target, http.as_ref());
        manager::ready(&target);
        explain_epoll(engine);
        let state_folder = plan.state_folder;
        let service =
            Service { target, configuration, http, admin, attendants, capture, state_folder };
        // Who listens does so as long as this process is there.
        match self.ends.recv() {
            Ok(End::Handing(handing)) => self.hand_over(*handing, service),
            Ok(End::Asked) | Err(_) => service.stop().map(|()| None),
        }
    }

    /// Opens all disks; None: there is nothing to do any more. `holder`: who may have some of them.
    fn open(
        &self,
        draft: &Draft,
        before: &Carried,
        holder: Option<Holder>,
        sockets: &Sockets,
    ) -> Result<Option<Opened>> {
        let open = || draft.open(&before.disks).map_err(|error| self.sandbox.hint(error));
        let Some(mut holder) = holder else { return open().map(Some) };
        let pid = holder.pid();
        let _doors = Doors::of(sockets, &self.access, pid);
        let why = match holder.outlast(open, || self.is_stopped())? {
            Waited::Had(opened) => return Ok(Some(opened)),
            Waited::Serves => "the process that was given up serves after all",
            Waited::Stopped => "stopped before all disks were had back",
        };
        tracing::info!(pid, "{why}");
        Ok(None)
    }

    /// Whether this process is to end, and the one before still waits: that serves then.
    fn leaves(&self, before: &Before) -> bool {
        before.is_there() && self.is_told_to_leave()
    }

    fn is_told_to_leave(&self) -> bool {
        let is_stopped = self.is_stopped();
        if is_stopped {
            tracing::info!("stopped: the process before serves again");
        }
        is_stopped
    }

    /// Whether somebody has asked for an end.
    fn is_stopped(&self) -> bool {
        self.state.is_asked.load(Ordering::SeqCst)
    }

    /// Lets go of everything, for the process that is to serve next; takes it back if that does
    /// not.
    fn hand_over(&self, mut handing: Handing, service: Service) -> Result<Again> {
        let (pid, version) = (handing.pid, handing.version.clone());
        tracing::info!(
            name: target::Event::TakeOver.name(), pid, version,
            "another process takes over: initiators are asked to log out"
        );
        let Service { target, configuration, http, admin, attendants, capture, state_folder } =
            service;
        let begun = Instant::now();
        // Without a thread for it the watchdog may be impatient, here and below.
        let closing = manager::closing(manager::Closing::Handing).ok();
        http.iter().for_each(Http::stops);
        admin.hand_over();
        drop((http, attendants));
        let doors = Doors::of(&handing.sockets, &self.access, pid);
        let draft = configuration.take_draft();
        drop(configuration);
        let stopped = target.stop(GRACE);
        let mut carried = giving::carried(&target, &draft);
        let lost = losses::of(&target, &stopped);
        let left = closed_elsewhere();
        // Their locks go with them.
        let patience = Instant::now() + CLOSE_PATIENCE;
        while Arc::strong_count(&target) > 1 && Instant::now() < patience {
            thread::sleep(CLOSE_PAUSE);
        }
        drop((target, state_folder));
        finish_capture(capture);
        drop(closing);
        let seconds = output::rounded(begun.elapsed().as_secs_f64());
        tracing::info!(pid, seconds, "all is closed");
        carried.events = Some(self.events.all());
        let patience = manager::patience().ok().flatten();
        let handed = match losses::why_kept(&lost) {
            Some(why) => Handed::Back(why),
            None => handing.release(&carried, || self.is_stopped()),
        };
        drop((doors, patience));
        match handed {
            Handed::Over => {
                manager::handed_over(pid);
                tracing::info!(pid, "handed over");
                self.state.hands_on(draft.control_socket.as_deref());
                stopped.map_err(anyhow::Error::from).and(left).map(|()| None)
            }
            Handed::Stopped => {
                tracing::info!("stopped before the other process served");
                Ok(None)
            }
            Handed::Back(why) => {
                tracing::warn!(
                    name: target::Event::TakeOver.name(), pid, why,
                    "another process has not taken over: serving again"
                );
                let (sockets, holder) = handing.give_up(&why);
                carried.events = None;
                let watchdog = manager::watchdog_time();
                let (before, holder) = (Before::default(), Some(holder));
                let entry =
                    Entry { sockets, carried, watchdog, before, lost, holder, ..Entry::default() };
                Ok(Some(Box::new((draft, entry))))
            }
        }
    }
}

impl Service {
    fn stop(self) -> Result<()> {
        tracing::info!("stopping: initiators are asked to log out");
        manager::stopping();
        self.http.iter().for_each(Http::stops);
        let begun = Instant::now();
        // Without a thread for it the manager may be impatient.
        let _closing = manager::closing(manager::Closing::Stop).ok();
        drop((self.attendants, self.admin));
        let result = self.target.stop(GRACE);
        let left = closed_elsewhere();
        drop(self.state_folder);
        finish_capture(self.capture);
        tracing::info!(seconds = output::rounded(begun.elapsed().as_secs_f64()), "stopped");
        result.map_err(anyhow::Error::from).and(left).context("cannot stop cleanly")
    }
}

/// Waits for images of Ceph. A LUN that was removed may have left one that its cluster keeps from
/// being closed.
fn closed_elsewhere() -> Result<()> {
    let left = rbd::wait_until_closed().into_iter().map(|image| {
        anyhow!("rbd:{image} is not closed: no answer; writes that were acknowledged may be lost")
    });
    let left: Vec<_> = left.inspect(|error| tracing::error!("{error}")).collect();
    left.into_iter().next().map_or(Ok(()), Err)
}

fn finish_capture(capture: Option<Capture>) {
    if let Some(capture) = capture {
        let figures = capture.finish(WRITE_PATIENCE);
        let lacking = client::capture::lacking(capture.path(), &figures);
        lacking.iter().for_each(|lacking| tracing::warn!("{lacking}"));
    }
}

/// Answers over HTTP from now on.
fn http_at(
    address: SocketAddr,
    there: Option<OwnedFd>,
    access: Access,
) -> Result<(Http, Arc<OwnedFd>)> {
    let listener = match there {
        Some(socket) => Listener::at(socket).context("the socket for HTTP")?,
        None => Listener::bind(address).map_err(|error| anyhow!("--http (http): {error}"))?,
    };
    let socket = Arc::new(listener.socket().context("the socket for HTTP")?);
    let http = Http::start(listener, env!("CARGO_PKG_VERSION"), access);
    let http = http.map_err(|error| anyhow!("--http (http): {error}"))?;
    tracing::info!(address = %http.address(), scheme = http.scheme(), "HTTP");
    Ok((http, socket))
}

/// What becomes of the capture that is there.
#[derive(Clone, Copy, Debug)]
enum Captured {
    /// It goes on.
    Before,
    Replaced,
}

/// The capture of all connections.
fn captured((path, limit): &(PathBuf, u64), there: Captured) -> Result<Capture> {
    let file = path.clone();
    let tell = move |end: &capture::End| {
        tracing::warn!(file = %file.display(), reason = %end, "nothing more is captured");
    };
    Ok(match there {
        Captured::Before => Capture::go_on(path, *limit, tell)?,
        Captured::Replaced => Capture::create(path, *limit, tell)?,
    })
}

/// Who wanted the fastest engine hears why there is a slower one.
fn explain_epoll(wanted: Choice) {
    if wanted == Choice::Auto
        && let Err(refusal) = engine::probe().uring
    {
        tracing::warn!("the epoll engine serves, which is slower: io_uring is {refusal}");
    }
}

/// A listener on all addresses is reached on this machine by its loopback address.
fn reached(mut at: SocketAddr) -> SocketAddr {
    if at.ip().is_unspecified() {
        at.set_ip(match at {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    at
}

/// One line for each LUN and portal: the URL to use; behind these the URLs over iSER. They are
/// said at once: whoever reads the first ones may go then.
fn announce(target: &Target, http: Option<&Http>) {
    let served = target.targets();
    let mut lines: Vec<String> = Vec::new();
    let mut tell = |what: &str, portal: SocketAddr, behind: &str| {
        let reach = reached(portal);
        for node in &served {
            for lun in &node.luns {
                lines.push(format!("{what}://{reach}/{}/{}{behind}", node.name, lun.number));
            }
        }
    };
    for portal in target.socket_portals() {
        tell("serving iscsi", portal, "");
    }
    for portal in target.iser_portals() {
        tell("also iser", portal, "");
    }
    for portal in target.adapter_portals() {
        tell("also iser", portal, "?provider=verbs");
    }
    for ((place, mtu), frames) in target.stations().into_iter().zip(target.station_frames()) {
        // The interface is the initiator's, and its name nobody knows here.
        let (mac, at) = (place.mac, place.interface.name);
        for node in &served {
            for lun in &node.luns {
                let disk = format!("{}/{}", node.name, lun.number);
                lines.push(format!(
                    "also ether://{mac}%INTERFACE/{disk} (at {at}, {mtu} bytes in a frame, \
                     {frames})"
                ));
            }
        }
    }
    lines.extend(http.map(|http| format!("also {}://{}/", http.scheme(), reached(http.address()))));
    if !lines.is_empty() {
        output::line(lines.join("\n"));
    }
}

fn style(json: bool) -> Style {
    if json { Style::Json } else { Style::Text { colours: output::colors() } }
}
