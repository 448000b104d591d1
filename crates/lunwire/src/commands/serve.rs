// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire serve`.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
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
use engine::Choice;
use http::Access;
use http::Http;
use http::Listener;
use signal_hook::consts::SIGALRM;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::consts::SIGUSR1;
use signal_hook::consts::SIGUSR2;
use signal_hook::consts::SIGXFSZ;
use signal_hook::iterator::Signals;
use target::StateFolder;
use target::Target;

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
use crate::daemon::log;
use crate::daemon::log::Log;
use crate::daemon::log::Style;
use crate::daemon::log::Telling;
use crate::daemon::manager;
use crate::daemon::periodic::Periodic;
use crate::daemon::sandboxed::Sandbox;
use crate::daemon::take_over::Entry;
use crate::daemon::take_over::Sockets;
use crate::daemon::take_over::giving;
use crate::daemon::take_over::giving::Handed;
use crate::daemon::take_over::giving::Handing;
use crate::daemon::take_over::taking;
use crate::daemon::take_over::taking::Before;
use crate::daemon::watch;
use crate::inherited;
use crate::output;
use crate::plan::Draft;

/// How long initiators get to log out when the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

/// How long disks that are being opened get when the daemon is to stop: a cluster that does not
/// answer holds up one for a minute.
const OPENING_GRACE: Duration = Duration::from_secs(2);

/// Who still looks at the disks when they are closed gets so long to let go of them: their locks
/// end with the last one.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks whether that is so.
const CLOSE_PAUSE: Duration = Duration::from_millis(2);

/// Reloads at a time that signals asked for: one reads the file, and one waits.
const RELOADS_MAX: usize = 2;

/// Signals that ask for an end.
const ENDS: [i32; 2] = [SIGTERM, SIGINT];

/// Signals that ask for something else: SIGHUP has the configuration read again.
const ORDERS: [i32; 1] = [SIGHUP];

/// Signals that would end a process without a flush, and that ask for what there is not. SIGXFSZ
/// comes with a write beyond the limit of the process, which fails then.
const IGNORED: [i32; 4] = [SIGUSR1, SIGUSR2, SIGALRM, SIGXFSZ];

/// Serves until SIGTERM or SIGINT, unless who started us ignores them; a second signal does not
/// wait for initiators.
pub(crate) fn run(options: &ServeOptions) -> Result<()> {
    let draft = Draft::from_options(options)?;
    // The log has a thread.
    let sandbox = Sandbox::put_on(&draft, options)?;
    let telling = log::start(&draft.log, style(options.log_json))?;
    sandbox.tell();
    let result = serve(options, draft, &telling, sandbox);
    telling.log.flush();
    result
}

fn serve(
    options: &ServeOptions,
    mut draft: Draft,
    telling: &Telling,
    sandbox: Sandbox,
) -> Result<()> {
    let Telling { log, events } = telling;
    for warning in draft.warnings() {
        tracing::warn!("{warning}");
    }
    let ends = inherited::not_ignored(&ENDS);
    // Who is started by nohup keeps its configuration when the terminal is closed.
    let orders = inherited::not_ignored(&ORDERS);
    let signals =
        Signals::new(ends.iter().chain(&orders).chain(&IGNORED)).context("cannot catch signals")?;
    let (tell, ends) = mpsc::channel();
    let state = listen(signals, tell.clone(), log)?;
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
    let daemon = Daemon { options, log, events, sandbox, access, state, tell, ends };
    loop {
        match daemon.serve(draft, &mut entry) {
            Ok(None) => return Ok(()),
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
        let sockets = std::mem::take(&mut entry.sockets);
        // Before anything is opened: a port that somebody else has is told of at once.
        let access = self.access.clone();
        let there = sockets.http.map(|(_, socket)| socket);
        let http = draft.http.map(|address| http_at(address, there, access)).transpose()?;
        entry.before.opening(draft.opened())?;
        let mut plan = draft.open().map_err(|error| sandbox.hint(error))?;
        // An old one is replaced when it is no disk, and nothing is wrong with those there are.
        let capture = match draft.capture.as_ref().map(captured).transpose() {
            Ok(capture) => capture,
            Err(error) => {
                plan.made.take_back();
                return Err(error);
            }
        };
        plan.plan.capture.clone_from(&capture);
        plan.plan.listening = sockets.portals;
        taking::carry_on(&plan.plan.nodes, &entry.carried);
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
        state.is_configured_by(&configuration);
        let reader = match options.watch {
            true => {
                let state = Arc::clone(state);
                configuration::watch(&configuration, move || state.reload("it has changed"))
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
        // They are held no longer than they are served.
        drop(plan.made);
        if let Some(http) = &http {
            http.serves(Arc::clone(&target), Arc::new(admin.desk()));
        }
        entry.before.serving();
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
        http.iter().for_each(Http::stops);
        admin.hand_over();
        drop((http, attendants));
        let draft = configuration.take_draft();
        drop(configuration);
        let stopped = target.stop(GRACE);
        let mut carried = giving::carried(&target, &draft);
        let left = closed_elsewhere();
        // Their locks go with them.
        let patience = Instant::now() + CLOSE_PATIENCE;
        while Arc::strong_count(&target) > 1 && Instant::now() < patience {
            thread::sleep(CLOSE_PAUSE);
        }
        drop((target, state_folder));
        finish_capture(capture);
        let seconds = output::rounded(begun.elapsed().as_secs_f64());
        tracing::info!(pid, seconds, "all is closed");
        carried.events = Some(self.events.all());
        let is_stopped = || self.ends.try_recv().is_ok_and(|end| matches!(end, End::Asked));
        match handing.release(&carried, is_stopped) {
            Handed::Over => {
                manager::handed_over(pid);
                tracing::info!(pid, "handed over");
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
                let sockets = handing.sockets;
                carried.events = None;
                let watchdog = manager::watchdog_time();
                let entry = Entry { sockets, carried, watchdog, before: Before::default() };
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

/// The capture of all connections.
fn captured((path, limit): &(PathBuf, u64)) -> Result<Capture> {
    let file = path.clone();
    let tell = move |end: &capture::End| {
        tracing::warn!(file = %file.display(), reason = %end, "nothing more is captured");
    };
    Ok(Capture::create(path, *limit, tell)?)
}

/// What who listens to signals knows of the daemon.
#[derive(Debug)]
struct State {
    is_opening: AtomicBool,
    /// None there before it serves.
    target: Mutex<Weak<Target>>,
    configuration: Mutex<Weak<Configuration>>,
    /// One that reads the file, and one that waits for it.
    reloads: Arc<()>,
}

impl State {
    fn is_configured_by(&self, configuration: &Arc<Configuration>) {
        let mut known = self.configuration.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Arc::downgrade(configuration);
    }

    /// Has the file read again, which may take its time: the next signal is not to wait for it.
    fn reload(&self, why: &'static str) {
        let known = self.configuration.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(configuration) = known.upgrade() else {
            tracing::warn!("{why}: ignored; nothing is served yet");
            return;
        };
        // One that has not begun will read what is there by then.
        if Arc::strong_count(&self.reloads) > RELOADS_MAX {
            tracing::info!("{why}: the configuration is about to be read again already");
            return;
        }
        tracing::info!("{why}: the configuration is read again");
        let under_way = Arc::clone(&self.reloads);
        thread::spawn(move || {
            configuration::log(&configuration.reload(false, false));
            drop(under_way);
        });
    }

    /// Whether a disk is served whose unflushed writes are kept by a client of ours, and no kernel.
    fn has_cached_elsewhere(&self) -> bool {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let Some(target) = target else { return false };
        let names = target.names();
        let mut units = names.iter().flat_map(|name| target.units(name).unwrap_or_default());
        units.any(|(_, unit)| {
            let store = unit.store();
            store.elsewhere().is_some() && store.geometry().volatile_cache
        })
    }
}

/// Listens to signals in a thread of its own: the first one that asks for an end is told, a second
/// one ends the process. So does the first one while disks are being opened, which is so until
/// somebody says that it is not, if that takes too long.
fn listen(signals: Signals, tell: Sender<End>, log: &Log) -> Result<Arc<State>> {
    let state = Arc::new(State {
        is_opening: AtomicBool::new(true),
        target: Mutex::default(),
        configuration: Mutex::default(),
        reloads: Arc::default(),
    });
    let (log, known) = (log.clone(), Arc::clone(&state));
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || heed(signals, &tell, &log, &known))
        .context("cannot start a thread")?;
    Ok(state)
}

fn heed(mut signals: Signals, tell: &Sender<End>, log: &Log, state: &Arc<State>) {
    let Some(signal) = next_end(&mut signals, state) else { return };
    let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
    tracing::info!(signal = name, "asked to stop");
    // Before the disks are let go.
    let loses_caches = state.has_cached_elsewhere();
    // Who stops for another reason does not want to know.
    let _ = tell.send(End::Asked);
    if state.is_opening.load(Ordering::SeqCst) {
        let (log, state) = (log.clone(), Arc::clone(state));
        thread::spawn(move || {
            thread::sleep(OPENING_GRACE);
            if state.is_opening.load(Ordering::SeqCst) {
                tracing::warn!("stopped before all disks were open");
                log.flush();
                signal_hook::low_level::exit(0);
            }
        });
    }
    if next_end(&mut signals, state).is_some() {
        let lost = if loses_caches { ", those of a cache of Ceph's client are lost" } else { "" };
        tracing::warn!(
            "second signal: leaving at once; unflushed writes rest with the kernel{lost}"
        );
        log.flush();
        // Without hooks: threads go on that use what these take away.
        signal_hook::low_level::exit(1);
    }
}

/// The next signal that asks for an end.
fn next_end(signals: &mut Signals, state: &State) -> Option<i32> {
    signals.forever().find(|signal| {
        let name = signal_hook::low_level::signal_name(*signal).unwrap_or("signal");
        match *signal {
            SIGHUP => state.reload("SIGHUP"),
            signal if IGNORED.contains(&signal) => tracing::warn!("{name}: ignored"),
            _ => {}
        }
        ENDS.contains(signal)
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

/// One line for each LUN and portal: the URL to use; behind these the URLs over iSER. They are
/// said at once: whoever reads the first ones may go then.
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
    for (place, mtu) in target.stations() {
        // The interface is the initiator's, and its name nobody knows here.
        let (mac, at) = (place.mac, place.interface);
        for node in &served {
            for lun in &node.luns {
                let disk = format!("{}/{}", node.name, lun.number);
                lines.push(format!(
                    "also ether://{mac}%INTERFACE/{disk} (at {at}, {mtu} bytes in a frame)"
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
