// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side of the process that is to serve next.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::admin::Carried;
use control::admin::Offer;
use control::admin::Reply;
use control::admin::Request;
use control::admin::TAKE_OVER_PROTOCOL;
use control::admin::Word;
use rustix::io::Errno;
use rustix::process::Pid;
use target::Node;
use target::Reserved;

use super::losses::Loss;
use super::sockets::Sockets;
use super::talk::Talk;
use super::talk::Unheard;
use super::waiting::Holder;
use crate::control_socket;
use crate::control_socket::asking;
use crate::daemon::periodic::Periodic;
use crate::plan::Draft;
use crate::ports;

/// How long the process before may take to say what it has.
const OFFER_PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to close its disks: one of Ceph may wait for its cluster.
const RELEASE_PATIENCE: Duration = Duration::from_secs(120);

/// How long a word of it may be on its way.
const LOOK: Duration = Duration::from_millis(1);

/// How often this process says how far it is in the time that it may be silent.
const WORDS_IN_SILENCE: u32 = 5;

/// With what a process begins to serve.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) sockets: Sockets,
    pub(crate) carried: Carried,
    /// Of the service manager, where it was told to the process before.
    pub(crate) watchdog: Option<Duration>,
    /// Who waits until this process serves.
    pub(crate) before: Before,
    /// What its disks have lost as they were closed.
    pub(crate) lost: Vec<Loss>,
    /// Who was to serve next, and may have some of the disks.
    pub(crate) holder: Option<Holder>,
    /// What was opened before the sandbox was put on.
    pub(crate) frames: Vec<Reserved>,
}

/// The process before.
#[derive(Debug, Default)]
pub(crate) struct Before {
    talk: Option<Talk>,
    pid: u32,
    /// How long it may hear nothing.
    silence: Option<Duration>,
    /// Tells it how far this one is.
    telling: Option<Periodic>,
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Here,
    /// The process before, when it hears that this one does not.
    Before,
}

impl Before {
    /// This process opens disks: `opened` counts them.
    pub(crate) fn opening(&mut self, opened: &Arc<AtomicU64>) -> Result<()> {
        let Some((talk, silence)) = self.talk.as_ref().zip(self.silence) else { return Ok(()) };
        let (talk, opened) = (talk.teller()?, Arc::clone(opened));
        let tell = move || {
            // That it is gone is noticed when this one serves.
            let _ = talk.say(&Word::Opening { disks: opened.load(Ordering::Relaxed) });
        };
        self.telling = Some(Periodic::start("opening", silence / WORDS_IN_SILENCE, tell)?);
        Ok(())
    }

    /// Looks whether it still waits: all disks are open.
    ///
    /// # Errors
    /// It does not, and wants them back. Where it has ended nobody does.
    pub(crate) fn waits(&mut self) -> Result<()> {
        let Some(talk) = &mut self.talk else { return Ok(()) };
        match talk.hear(LOOK) {
            Ok(Word::Failed { message }) => {
                bail!("the process before waits no longer, and takes its disks back: {message}")
            }
            _ => Ok(()),
        }
    }

    /// This process serves, unless it `is_stopped`: that is asked at the last moment, behind which
    /// the one before ends.
    ///
    /// # Errors
    /// The one before serves, too: it has taken back disks that have no locks.
    pub(crate) fn serving(&mut self, is_stopped: impl FnOnce() -> bool) -> Result<Served> {
        self.telling = None;
        let Some(talk) = &self.talk else { return Ok(Served::Here) };
        if is_stopped() {
            return Ok(Served::Before);
        }
        let Err(error) = talk.say(&Word::Serving) else {
            self.talk = None;
            return Ok(Served::Here);
        };
        // Who has ended has taken nothing back.
        if is_alive(self.pid) {
            self.waits()?;
        }
        self.talk = None;
        // The disks are ours all the same, by their locks.
        tracing::warn!("the process before is gone: {error}");
        Ok(Served::Here)
    }

    /// Whether it waits, for all that is known.
    pub(crate) const fn is_there(&self) -> bool {
        self.talk.is_some()
    }

    /// It cannot, and has closed all that it had opened.
    pub(crate) fn failed(&mut self, why: &anyhow::Error) {
        self.telling = None;
        if let Some(talk) = self.talk.take() {
            let _ = talk.say(&Word::Failed { message: crate::output::chain(why) });
        }
    }
}

/// Has the daemon at the control socket of `draft` let go of all that it serves. Where there is
/// none it is a start like any other.
///
/// # Errors
/// It cannot be taken over, or not with this configuration; then it goes on as before.
pub(crate) fn begin(draft: &mut Draft) -> Result<Entry> {
    let Some(path) = draft.control_socket.clone().or_else(control_socket::default_path) else {
        bail!("--take-over: no default control socket here; try: --control-socket PATH");
    };
    let at = path.display();
    let stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
        {
            tracing::info!("--take-over: no daemon at {at}: a start like any other");
            return Ok(Entry::default());
        }
        Err(error) => return Err(asking::unreachable(&path, error).context("--take-over")),
    };
    let taken = take(draft, &path, stream);
    let taken = taken.with_context(|| format!("cannot take over the daemon at {at}"))?;
    Ok(taken.unwrap_or_else(|| {
        tracing::warn!("--take-over: the daemon at {at} has ended: a start like any other");
        Entry::default()
    }))
}

/// None: it has ended before it said what it has.
fn take(draft: &mut Draft, path: &Path, stream: UnixStream) -> Result<Option<Entry>> {
    let mut talk = Talk::over(stream)?;
    let user = rustix::process::geteuid();
    if let Some((_, owner)) = talk.peer()
        && owner != user
    {
        bail!("it is of user {}; try: as that user", owner.as_raw());
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let ask = Request::TakeOver { protocol: TAKE_OVER_PROTOCOL, version };
    if talk.say(&ask).is_err() {
        return Ok(None);
    }
    let offer = match talk.hear(OFFER_PATIENCE) {
        Ok(Reply::Offer(offer)) => offer,
        Ok(Reply::Error { message }) if message.contains("request not understood") => {
            bail!("it is of a version that cannot hand over; try: stop it, and start this one")
        }
        Ok(Reply::Error { message }) => bail!("{message}"),
        Ok(_) => return Err(asking::unexpected(Some(path))),
        Err(Unheard::Gone) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if offer.protocol != TAKE_OVER_PROTOCOL {
        bail!("it hands over by protocol {}, and not by {TAKE_OVER_PROTOCOL}", offer.protocol);
    }
    let fds = match talk.fds(offer.sockets.len(), OFFER_PATIENCE) {
        Err(Unheard::Gone) => return Ok(None),
        fds => fds.context("its sockets")?,
    };
    let sockets = Sockets::taken(&offer.sockets, fds)?;
    let portals: Vec<SocketAddr> = draft.portals().iter().map(|portal| portal.address).collect();
    let prepared = prepare(draft, &offer)
        .and_then(|()| sockets.for_configuration(&portals, draft.http))
        .inspect_err(|error| {
            let _ = talk.say(&Word::Failed { message: crate::output::chain(error) });
        });
    let sockets = prepared?;
    let (pid, version) = (offer.pid, offer.version);
    tracing::info!(name: target::Event::TakeOver.name(), pid, version, "taking over");
    let carried = released(&mut talk, pid)?;
    let watchdog = offer.watchdog_us.map(Duration::from_micros);
    let silence = offer.silence_ms.map(Duration::from_millis);
    let before = Before { talk: Some(talk), pid, silence, telling: None };
    Ok(Some(Entry { sockets, carried, watchdog, before, ..Entry::default() }))
}

/// Has the process before, `pid`, let go of its disks.
///
/// # Errors
/// It does not.
fn released(talk: &mut Talk, pid: u32) -> Result<Carried> {
    // Who does not hear it has ended, or waits no longer and has said so.
    let _ = talk.say(&Word::Take);
    match talk.hear(RELEASE_PATIENCE) {
        Ok(Word::Released(carried)) => Ok(carried),
        Ok(Word::Failed { message }) => Err(anyhow!(message)),
        Ok(_) => Err(anyhow!("it is not understood")),
        Err(Unheard::Gone) => {
            tracing::warn!(pid, "the process before has ended before it had closed its disks");
            Ok(Carried::default())
        }
        Err(error) => Err(error.into()),
    }
}

/// Looks at the configuration once more, with what orders have changed.
fn prepare(draft: &mut Draft, offer: &Offer) -> Result<()> {
    let ours = draft.state_dir.as_deref().map(std::path::absolute).transpose()?;
    if let Some(theirs) = &offer.state_dir
        && ours.as_deref() != Some(Path::new(theirs))
    {
        bail!("its state, reservations among it, is in {theirs}; try: --state-dir {theirs}");
    }
    for told in draft.take_ordered(&offer.added, &offer.removed)? {
        tracing::warn!("{told}");
    }
    for told in draft.take_limits(&offer.limits)? {
        tracing::warn!("{told}");
    }
    for told in draft.take_states(&offer.states)? {
        tracing::warn!("{told}");
    }
    match draft.examine_files().wrong.into_iter().next() {
        Some(wrong) => Err(wrong),
        None => Ok(()),
    }
}

/// Has the disks of `nodes` be what those of the process before were.
pub(crate) fn carry_on(nodes: &[Node], carried: &Carried) {
    let units = nodes.iter().flat_map(|node| {
        node.luns.iter().map(move |(number, unit)| ((node.name.as_str(), *number), unit))
    });
    let units: BTreeMap<_, _> = units.collect();
    for state in &carried.states {
        let Some(unit) = units.get(&(state.target.as_str(), state.lun)) else { continue };
        let known = ports::state(&state.state).map_err(anyhow::Error::msg);
        let set = known.and_then(|known| Ok(unit.set_access_state(state.group, known)?));
        if let Err(error) = set {
            tracing::warn!(
                target = state.target, lun = state.lun, group = state.group, %error,
                "its access state is that of the configuration"
            );
        }
    }
    for kept in &carried.reservations {
        let carried = match units.get(&(kept.target.as_str(), kept.lun)) {
            Some(unit) => bytes(&kept.state)
                .and_then(|state| Ok(unit.carry_reservations(&state)?))
                .map_err(|error| error.to_string()),
            None => Err("the disk is served no more".to_owned()),
        };
        if let Err(why) = carried {
            let (target, lun) = (&kept.target, kept.lun);
            tracing::warn!(target, lun, why, "its reservations are lost");
        }
    }
}

/// What hosts write to memory, and wipes that they begin, would be lost if the process before
/// served in the end.
pub(crate) fn hold_back(nodes: &[Node]) {
    nodes.iter().flat_map(|node| &node.luns).for_each(|(_, unit)| unit.hold_back());
}

/// One that this one may not signal lives, too.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

fn bytes(digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    pairs.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_taken_disks_back_serves_alone() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (ours, before) = (Talk::over(one).expect("ours"), Talk::over(other).expect("ours"));
        before.say(&Word::Failed { message: "it is late".to_owned() }).expect("heard");
        drop(before);
        let mut known = Before { talk: Some(ours), pid: std::process::id(), ..Before::default() };
        let error = known.serving(|| false).expect_err("both serve");
        assert!(error.to_string().ends_with("it is late"), "{error}");
    }

    /// The one before ends when it hears that this one serves, which would end then, too.
    #[test]
    fn who_is_stopped_at_the_last_moment_does_not_serve() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (ours, mut before) = (Talk::over(one).expect("ours"), Talk::over(other).expect("ours"));
        let pid = std::process::id();
        let mut known = Before { talk: Some(ours), pid, ..Before::default() };
        assert_eq!(known.serving(|| true).expect("nothing is wrong"), Served::Before);
        assert!(matches!(before.hear::<Word>(LOOK), Err(Unheard::Silent)));
        known.failed(&anyhow!("it was stopped"));
        let message = "it was stopped".to_owned();
        assert_eq!(before.hear::<Word>(LOOK * 100).expect("said"), Word::Failed { message });
        let mut first = Before::default();
        assert_eq!(first.serving(|| true).expect("nothing is wrong"), Served::Here);
    }

    #[test]
    fn who_waits_no_longer_has_not_ended() {
        let pair = || {
            let (one, other) = UnixStream::pair().expect("a pair");
            (Talk::over(one).expect("ours"), Talk::over(other).expect("ours"))
        };
        let (mut ours, before) = pair();
        before.say(&Word::Failed { message: "it is late".to_owned() }).expect("heard");
        drop(before);
        let error = released(&mut ours, 7).expect_err("it goes on");
        assert_eq!(error.to_string(), "it is late");
        let (mut ours, before) = pair();
        drop(before);
        assert_eq!(released(&mut ours, 7).expect("it has ended"), Carried::default());
    }
}
