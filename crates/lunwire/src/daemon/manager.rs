// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the service manager is told, where one has started this process: sd_notify(3), as systemd
//! wants it of `Type=notify`. Libraries for it wait without end for a manager that does not read.

use std::env;
use std::io;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as SocketName;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;
use rustix::time::ClockId;
use target::Target;

use super::periodic::Periodic;

/// So often within the time of the watchdog it hears that all is well.
const WORDS_IN_TIME: u32 = 3;

/// So often the log tells that disks are still being closed.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Then a service manager may do what it thinks best: a disk that hangs does so for ever.
const CLOSING_MAX: Duration = Duration::from_secs(300);

/// A manager that has no room for a word for so long does not hear it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time of the watchdog of the process before, which this one stands for.
static HANDED: OnceLock<Duration> = OnceLock::new();

/// All is served. What that is stands in `systemctl status`.
pub(crate) fn ready(target: &Target) {
    let targets = target.targets();
    let luns: usize = targets.iter().map(|one| one.luns.len()).sum();
    match target.listening() {
        Ok(sockets) => sockets.iter().for_each(|(address, socket)| {
            // The manager knows those that it has.
            tell_with(&format!("FDSTORE=1\nFDNAME={}", name_of(*address)), Some(socket));
        }),
        Err(error) => tracing::warn!("the service manager has no sockets to keep: {error}"),
    }
    tell(&format!("READY=1\nSTATUS=LUNs: {luns}, targets: {}", targets.len()));
}

/// The sockets that the manager has for this process: those of its socket unit, and those that a
/// process before has given it to keep.
pub(crate) fn sockets() -> Vec<(SocketAddr, OwnedFd)> {
    let word = |name| env::var(name).ok();
    let is_ours = word("LISTEN_PID").is_some_and(|pid| pid == std::process::id().to_string());
    let count = word("LISTEN_FDS").and_then(|count| count.parse().ok());
    engine::left_open(count.filter(|_| is_ours).unwrap_or(0))
}

/// Nobody is to listen there any more.
pub(crate) fn forget(address: SocketAddr) {
    tell(&format!("FDSTOREREMOVE=1\nFDNAME={}", name_of(address)));
}

/// Of a socket; no name has a colon.
fn name_of(address: SocketAddr) -> String {
    format!("portal-{address}").replace(':', "_")
}

/// No more is served.
pub(crate) fn stopping() {
    tell("STOPPING=1\nSTATUS=initiators are asked to log out");
}

/// The process with this number serves now, and is whom the manager is to watch. It is taken for
/// that if it is one of the service.
pub(crate) fn handed_over(pid: u32) {
    tell(&format!("MAINPID={pid}"));
}

/// The configuration takes effect, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reloading<'a>(&'a Target);

impl<'a> Reloading<'a> {
    pub(crate) fn begin(target: &'a Target) -> Self {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
        Self(target)
    }
}

impl Drop for Reloading<'_> {
    fn drop(&mut self) {
        ready(self.0);
    }
}

/// Tells the watchdog that all is well, as long as all reactors answer. None: nobody waits for it.
/// `handed`: the time that the process before had for that.
pub(crate) fn watchdog(target: Arc<Target>, handed: Option<Duration>) -> Result<Option<Periodic>> {
    if let Some(within) = handed {
        // The next process is to hear of it, too. It is always the same.
        let _ = HANDED.set(within);
    }
    let Some(within) = watchdog_time() else { return Ok(None) };
    let period = within / WORDS_IN_TIME;
    let periodic = Periodic::start("watchdog", period, move || {
        let silent = target.figures(period).silent;
        match silent.is_empty() {
            true => tell("WATCHDOG=1"),
            false => tracing::warn!(?silent, "the watchdog is not told: reactors do not answer"),
        }
    })?;
    Ok(Some(periodic))
}

/// Tells the watchdog that all is well while another process takes over, which is to be bounded.
pub(crate) fn patience() -> Result<Option<Periodic>> {
    let Some(within) = watchdog_time() else { return Ok(None) };
    Periodic::start("watchdog", within / WORDS_IN_TIME, || tell("WATCHDOG=1")).map(Some)
}

/// Why disks are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Another process is to serve them.
    Handing,
    /// The process ends.
    Stop,
}

/// Tells the log, and whoever would end this process meanwhile, that disks are still being closed:
/// to flush what hosts have written may take long, though not for ever.
pub(crate) fn closing(why: Closing) -> Result<Periodic> {
    let begun = Instant::now();
    let period = watchdog_time().map_or(TELL_EVERY, |within| within / WORDS_IN_TIME);
    let mut told = Duration::ZERO;
    Periodic::start("closing", period.min(TELL_EVERY), move || {
        let since = begun.elapsed();
        let is_to_be_told = since >= told + TELL_EVERY;
        if is_to_be_told {
            told = since;
            let seconds = since.as_secs();
            match since < CLOSING_MAX {
                true => tracing::warn!(seconds, "disks are still being flushed and closed"),
                false => tracing::error!(
                    seconds,
                    "disks are not closed: the service manager may end this process"
                ),
            }
        }
        if since >= CLOSING_MAX {
            return;
        }
        if watchdog_time().is_some() {
            tell("WATCHDOG=1");
        }
        // A stop has a time of its own.
        if why == Closing::Stop && is_to_be_told {
            tell(&format!("EXTEND_TIMEOUT_USEC={}", (TELL_EVERY * WORDS_IN_TIME).as_micros()));
        }
    })
}

/// The time of the watchdog, where it is for this process.
pub(crate) fn watchdog_time() -> Option<Duration> {
    if let Some(within) = HANDED.get() {
        return Some(*within);
    }
    let word = |name| env::var(name).ok();
    let is_ours = word("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
    let within = word("WATCHDOG_USEC").and_then(|time| time.parse().ok()).filter(|time| *time > 0);
    within.filter(|_| is_ours).map(Duration::from_micros)
}

fn tell(state: &str) {
    tell_with(state, None);
}

/// The same, with a descriptor of a file for the manager.
fn tell_with(state: &str, file: Option<&OwnedFd>) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    let told = || -> io::Result<()> {
        let address = match socket.as_bytes() {
            [b'@', name @ ..] => SocketName::from_abstract_name(name)?,
            _ => SocketName::from_pathname(&socket)?,
        };
        let ours = UnixDatagram::unbound()?;
        ours.set_write_timeout(Some(PATIENCE))?;
        ours.connect_addr(&address)?;
        let fds: Vec<BorrowedFd<'_>> = file.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let state = [IoSlice::new(state.as_bytes())];
        Ok(rustix::net::sendmsg(&ours, &state, &mut control, SendFlags::NOSIGNAL).map(drop)?)
    };
    if let Err(error) = told() {
        tracing::warn!("the service manager cannot be told {state:?}: {error}");
    }
}
