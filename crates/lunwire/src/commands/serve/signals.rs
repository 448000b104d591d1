// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What signals have a daemon do.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use control::admin::Reply;
use control::admin::Request;
use signal_hook::consts::SIGALRM;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::consts::SIGUSR1;
use signal_hook::consts::SIGUSR2;
use signal_hook::consts::SIGXFSZ;
use signal_hook::iterator::Signals;
use target::Target;

use crate::control_socket::asking;
use crate::daemon::admin::End;
use crate::daemon::configuration;
use crate::daemon::configuration::Configuration;
use crate::daemon::log::Log;
use crate::daemon::take_over::gate::Gate;
use crate::inherited;

/// How long disks that are being opened get when the daemon is to stop: a cluster that does not
/// answer holds up one for a minute.
const OPENING_GRACE: Duration = Duration::from_secs(2);

/// How long another process may take to read the configuration again.
const RELOAD_PATIENCE: Duration = Duration::from_secs(30);

/// Reloads at a time that signals asked for: one reads the file, and one waits.
const RELOADS_MAX: usize = 2;

/// Signals that ask for an end.
const ENDS: [i32; 2] = [SIGTERM, SIGINT];

/// Signals that ask for something else: SIGHUP has the configuration read again.
const ORDERS: [i32; 1] = [SIGHUP];

/// Signals that would end a process without a flush, and that ask for what there is not. SIGXFSZ
/// comes with a write beyond the limit of the process, which fails then.
const IGNORED: [i32; 4] = [SIGUSR1, SIGUSR2, SIGALRM, SIGXFSZ];

/// What who listens to signals knows of the daemon.
#[derive(Debug)]
pub(super) struct State {
    pub(super) is_opening: AtomicBool,
    /// An end was asked for: so it is from the signal on, whenever a thread hears of it.
    pub(super) is_asked: Arc<AtomicBool>,
    /// None there before it serves.
    pub(super) target: Mutex<Weak<Target>>,
    configuration: Mutex<Weak<Configuration>>,
    /// It was to be read again, and was not yet: by who serves next, where that is another process.
    is_missed: AtomicBool,
    /// Another process serves, and has been asked for the last time.
    is_over: AtomicBool,
    /// One that reads the file, and one that waits for it.
    reloads: Arc<()>,
}

impl State {
    pub(super) fn is_configured_by(self: &Arc<Self>, configuration: &Arc<Configuration>) {
        let mut known = self.configuration.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Arc::downgrade(configuration);
        drop(known);
        if self.has_missed() {
            self.reload("asked for before");
        }
    }

    /// The process that serves now, which answers at `socket`, may have read the file before that
    /// was asked for here. A sandbox keeps signals from it.
    pub(super) fn hands_on(&self, socket: Option<&Path>) {
        self.has_read_elsewhere(socket);
        // Who comes later is told so, and who comes meanwhile is not missed.
        self.is_over.store(true, Ordering::SeqCst);
        self.has_read_elsewhere(socket);
    }

    fn has_read_elsewhere(&self, socket: Option<&Path>) {
        if !self.has_missed() {
            return;
        }
        let order = Request::Reload { dry_run: false, destroy_data: false };
        let reply = asking::ask_patiently(socket, &order, RELOAD_PATIENCE, |_| {});
        configuration::log(&reply.and_then(|reply| match reply {
            Reply::Reloaded(told) => Ok(told),
            _ => Err(asking::unexpected(socket)),
        }));
    }

    /// Whether the file was to be read again and was not, which is asked once.
    fn has_missed(&self) -> bool {
        self.is_missed.swap(false, Ordering::SeqCst)
    }

    /// Has the file read again, which may take its time: the next signal is not to wait for it.
    pub(super) fn reload(self: &Arc<Self>, why: &str) {
        let known = self.configuration.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(configuration) = known.upgrade() else {
            self.is_missed.store(true, Ordering::SeqCst);
            if self.is_over.load(Ordering::SeqCst) && self.has_missed() {
                tracing::warn!(
                    "{why}: not reloaded: another process has taken over; try: lunwire reload"
                );
            } else {
                tracing::info!("{why}: the configuration is read again when it is served");
            }
            return;
        };
        // By whoever serves when it is read.
        self.is_missed.store(true, Ordering::SeqCst);
        // One that has not begun will read what is there by then.
        if Arc::strong_count(&self.reloads) > RELOADS_MAX {
            tracing::info!("{why}: the configuration is about to be read again already");
            return;
        }
        let gate = configuration.gate().clone();
        let when = match gate.is_closed() {
            true => " by who serves when another process has taken over, or has not",
            false => "",
        };
        tracing::info!("{why}: the configuration is read again{when}");
        let (state, under_way) = (Arc::clone(self), Arc::clone(&self.reloads));
        // Who waits keeps no disks from being closed.
        let configuration = Arc::downgrade(&configuration);
        let asked = why.to_owned();
        let read = move || {
            state.read_again(&asked, &gate, &configuration);
            drop(under_way);
        };
        if let Err(error) = thread::Builder::new().name("reload".into()).spawn(read) {
            self.is_missed.store(false, Ordering::SeqCst);
            tracing::error!("{why}: not reloaded: no thread for it: {error}; try: lunwire reload");
        }
    }

    /// Waits where another process takes over. Who serves anew meanwhile, here or there, sees that
    /// it was missed.
    fn read_again(&self, why: &str, gate: &Gate, configuration: &Weak<Configuration>) {
        let Some(pass) = gate.enter_in_turn() else {
            tracing::warn!(
                "{why}: not reloaded: this process does not serve; try: lunwire reload, in a moment"
            );
            return;
        };
        let Some(configuration) = configuration.upgrade() else { return };
        if self.has_missed() {
            configuration::log(&configuration.reload(&pass, false, false));
        }
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
pub(super) fn listen(tell: Sender<End>, log: &Log) -> Result<Arc<State>> {
    let ends = inherited::not_ignored(&ENDS);
    // Who is started by nohup keeps its configuration when the terminal is closed.
    let orders = inherited::not_ignored(&ORDERS);
    let signals =
        Signals::new(ends.iter().chain(&orders).chain(&IGNORED)).context("cannot catch signals")?;
    let is_asked = Arc::new(AtomicBool::new(false));
    for end in &ends {
        signal_hook::flag::register(*end, Arc::clone(&is_asked)).context("cannot catch signals")?;
    }
    let state = Arc::new(State {
        is_opening: AtomicBool::new(true),
        is_asked,
        target: Mutex::default(),
        configuration: Mutex::default(),
        is_missed: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
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
        let give_up = move || {
            thread::sleep(OPENING_GRACE);
            if state.is_opening.load(Ordering::SeqCst) {
                tracing::warn!("stopped before all disks were open");
                log.flush();
                signal_hook::low_level::exit(0);
            }
        };
        // Without a thread for that a second signal does it.
        let _ = thread::Builder::new().name("grace".into()).spawn(give_up);
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
fn next_end(signals: &mut Signals, state: &Arc<State>) -> Option<i32> {
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
