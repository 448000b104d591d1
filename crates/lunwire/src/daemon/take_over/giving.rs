// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side of the process that serves and is to end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::admin::Carried;
use control::admin::CarriedReservations;
use control::admin::CarriedState;
use control::admin::Offer;
use control::admin::Reply;
use control::admin::TAKE_OVER_PROTOCOL;
use control::admin::Word;
use scsi::LogicalUnit;
use target::Target;

use super::gate::Closed;
use super::sockets::Sockets;
use super::talk::Talk;
use super::talk::Unheard;
use super::waiting::Holder;
use crate::daemon::admin::has_data_in_memory;
use crate::daemon::configuration::Configuration;
use crate::daemon::manager;
use crate::output;
use crate::plan;
use crate::plan::Draft;
use crate::ports;

/// How long orders that are under way may go on when another process wants to serve, which waits
/// for longer.
const ORDERS_PATIENCE: Duration = Duration::from_secs(3);

/// How long disks may be flushed before they are let go, which the next process waits for, too.
const FLUSH_PATIENCE: Duration = Duration::from_secs(60);

/// How long reactors may take to have done what they have begun.
const HOLD_PATIENCE: Duration = Duration::from_secs(2);

/// How long the next process may look at its configuration when it has the sockets.
const TAKE_PATIENCE: Duration = Duration::from_secs(60);

/// How long disks may be closed and nobody serves them: clusters take their time to open.
const SERVE_PATIENCE: Duration = Duration::from_secs(300);

/// How long the next process may say nothing meanwhile: it says how far it is five times as often.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long it may open one disk.
const DISK_MAX: Duration = Duration::from_secs(120);

/// Between two looks at what else is wanted of this process meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Another process waits for what this one has.
#[derive(Debug)]
pub(crate) struct Handing {
    talk: Talk,
    pub(crate) sockets: Sockets,
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// Orders would be lost from here on.
    _closed: Closed,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Handed {
    /// The other process serves.
    Over,
    /// It does not, since it says so, or is gone.
    Back(String),
    /// Somebody wants this process to end meanwhile.
    Stopped,
}

/// Speaks with the process that asks at `stream`, until it wants what there is. `sockets`: all that
/// is listened at.
///
/// # Errors
/// It does not, or cannot have it. It has been told why; all is as before.
pub(crate) fn offer(
    (protocol, version): (u32, &str),
    stream: UnixStream,
    (configuration, target): (&Configuration, &Target),
    sockets: impl FnOnce(&[(SocketAddr, SocketAddr)]) -> Result<Sockets>,
) -> Result<Handing> {
    let mut talk = Talk::over(stream).context("its socket")?;
    let prepared = prepare(protocol, configuration, target)
        .and_then(|(offer, closed)| Ok((offer, sockets(&configuration.portals())?, closed)));
    let (mut offer, sockets, closed) = prepared.inspect_err(|error| {
        // Who is gone does not want to know.
        let _ = talk.say(&Reply::Error { message: output::chain(error) });
    })?;
    let (offered, fds): (Vec<_>, Vec<_>) = sockets.offered().into_iter().unzip();
    offer.sockets = offered;
    talk.say(&Reply::Offer(offer)).and_then(|()| talk.pass(&fds)).context("it does not listen")?;
    expect_take(&mut talk, TAKE_PATIENCE, &closed, || may_go(&closed, target))?;
    let pid = talk.peer().map_or(0, |(pid, _)| pid);
    let version = version.to_owned();
    Ok(Handing { talk, sockets, version, pid, _closed: closed })
}

/// All but the sockets.
fn prepare(
    protocol: u32,
    configuration: &Configuration,
    target: &Target,
) -> Result<(Offer, Closed)> {
    if protocol != TAKE_OVER_PROTOCOL {
        bail!(
            "this daemon hands over by protocol {TAKE_OVER_PROTOCOL}, and not by {protocol}; \
             try: stop it, and start the other one"
        );
    }
    let closed = configuration.gate().close(ORDERS_PATIENCE).map_err(anyhow::Error::msg)?;
    keeps_all(target)?;
    let (added, removed) = configuration.ordered()?;
    let offer = Offer {
        protocol: TAKE_OVER_PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        state_dir: configuration.state_dir()?,
        sockets: Vec::new(),
        added,
        removed,
        limits: configuration.ordered_limits(),
        states: configuration.ordered_states(),
        watchdog_us: manager::watchdog_time().and_then(|time| time.as_micros().try_into().ok()),
        silence_ms: SILENCE_MAX.as_millis().try_into().ok(),
    };
    Ok((offer, closed))
}

/// Waits until the other process wants what it was offered, which `may_go` allows. Where the gate
/// is not `closed` for it any more nobody waits: the disks may be another one's then, and whoever
/// waits here holds them.
fn expect_take(
    talk: &mut Talk,
    patience: Duration,
    closed: &Closed,
    may_go: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    let heard = loop {
        match talk.hear(LOOK) {
            Err(Unheard::Silent) if closed.holds() && begun.elapsed() < patience => {}
            heard => break heard,
        }
    };
    let taken = match heard {
        Err(Unheard::Silent) if !closed.holds() => closed.is_final().map_err(anyhow::Error::msg),
        Ok(Word::Take) => may_go(),
        Ok(Word::Failed { message }) => Err(anyhow!(message)),
        Ok(_) => Err(anyhow!("it is not understood")),
        Err(error) => Err(error.into()),
    };
    taken.inspect_err(|error| {
        // Who is gone does not want to know; who stands still hears it later.
        let _ = talk.say(&Word::Failed { message: error.to_string() });
    })
}

/// Whether what was offered can be taken now: orders and hosts go on in between. Hosts write until
/// they have logged out, but to nothing any more that ends with this process.
fn may_go(closed: &Closed, target: &Target) -> Result<()> {
    closed.is_final().map_err(anyhow::Error::msg)?;
    // What is refused anyway disturbs no host.
    keeps_all(target)?;
    flushes_all(target)?;
    of_units(target, LogicalUnit::hold_back);
    let held = match target.figures(HOLD_PATIENCE).silent.is_empty() {
        // Who has answered has nothing under way that had begun before.
        true => keeps_all(target),
        false => Err(anyhow!("reactors do not answer; try: lunwire status")),
    };
    held.inspect_err(|_| of_units(target, LogicalUnit::let_on))
}

/// What the system has lost shows when it is flushed: this process can tell hosts, and the next one
/// would not know. There is less left to be flushed when nobody serves. What is lost even later:
/// [`losses`](super::losses).
fn flushes_all(target: &Target) -> Result<()> {
    let begun = Instant::now();
    if let Err(error) = target.flush() {
        keeps_all(target)?;
        return Err(error.into());
    }
    if begun.elapsed() > FLUSH_PATIENCE {
        let most = FLUSH_PATIENCE.as_secs();
        bail!("its disks could not be flushed within {most} s; try: again when less is written");
    }
    Ok(())
}

/// Does `what` to all units.
pub(crate) fn of_units(target: &Target, what: impl Fn(&LogicalUnit)) {
    for name in target.names() {
        target.units(&name).into_iter().flatten().for_each(|(_, unit)| what(&unit));
    }
}

/// Whether nothing of the disks would be lost by closing them.
fn keeps_all(target: &Target) -> Result<()> {
    for one in target.targets() {
        let name = &one.name;
        // Looked up once: there may be thousands.
        let units: BTreeMap<_, _> = target.units(name).unwrap_or_default().into_iter().collect();
        for lun in &one.luns {
            let number = lun.number;
            let unit = units.get(&number);
            let why = if unit.is_some_and(|unit| has_data_in_memory(unit)) {
                "it is in memory, and what hosts wrote to it would be lost; try: lunwire copy it \
                 to a file, and lunwire lun remove it with --destroy-data"
            } else if lun.astray.is_some() {
                "its file is not found by its path any more, and what hosts wrote to it would be \
                 lost; try: lunwire copy it to another one, or put it back"
            } else if lun.lost_writes {
                "the system has lost writes to it, and hosts would not hear of that; try: again \
                 when they have written and flushed"
            } else if unit.is_some_and(|unit| unit.is_being_wiped()) {
                "a FORMAT UNIT or SANITIZE is under way; try: again when it is done"
            } else {
                continue;
            };
            bail!("LUN {number} of {name}: {why}");
        }
    }
    Ok(())
}

/// What hosts and orders have made of the disks of `target`, which has stopped.
pub(crate) fn carried(target: &Target, draft: &Draft) -> Carried {
    let mut carried = Carried::default();
    for name in target.names() {
        for (lun, unit) in target.units(&name).into_iter().flatten() {
            for group in unit.port_groups() {
                let at_start = draft.state_at_start(&name, group.number);
                // The next process begins with the one of an order.
                let ordered = draft.ordered_states(&name).iter();
                let is_ordered = ordered.map(|(of, _)| *of).any(|of| of == group.number);
                if is_ordered || at_start.is_some_and(|state| state != group.state) {
                    let state = ports::name_of(group.state).to_owned();
                    let (target, group) = (name.clone(), group.number);
                    carried.states.push(CarriedState { target, lun, group, state });
                }
            }
            carried.disks.extend(plan::carried_disk(&name, lun, &unit));
            if let Some(state) = unit.carried_reservations() {
                let state = state.iter().map(|byte| format!("{byte:02x}")).collect();
                let target = name.clone();
                carried.reservations.push(CarriedReservations { target, lun, state });
            }
        }
    }
    carried
}

impl Handing {
    /// All disks are closed: waits until the next process serves them. `is_stopped`: somebody
    /// wants this one to end; it is asked now and then.
    pub(crate) fn release(
        &mut self,
        carried: &Carried,
        mut is_stopped: impl FnMut() -> bool,
    ) -> Handed {
        if let Err(error) = self.talk.say(&Word::Released(carried.clone())) {
            return Handed::Back(anyhow!(error).context("it does not listen").to_string());
        }
        let mut patience = Patience::new(Instant::now());
        loop {
            match self.talk.hear(LOOK) {
                Ok(Word::Serving) => return Handed::Over,
                Ok(Word::Failed { message }) => return Handed::Back(message),
                Ok(Word::Opening { disks }) => patience.hear(Instant::now(), disks),
                Ok(_) => return Handed::Back("it is not understood".to_owned()),
                Err(Unheard::Silent) => {}
                Err(error) => return Handed::Back(error.to_string()),
            }
            if is_stopped() {
                return Handed::Stopped;
            }
            if let Some(why) = patience.end(Instant::now()) {
                return Handed::Back(why);
            }
        }
    }
}

impl Handing {
    /// Nobody waits for the other process any more: the sockets, and what may have the disks.
    pub(crate) fn give_up(self, why: &str) -> (Sockets, Holder) {
        (self.sockets, Holder::given_up(self.talk, self.pid, why))
    }
}

/// With a process that opens disks.
#[derive(Debug)]
struct Patience {
    begun: Instant,
    /// When it has said something.
    heard: Instant,
    /// When it had opened one more.
    moved: Instant,
    disks: u64,
}

impl Patience {
    const fn new(now: Instant) -> Self {
        Self { begun: now, heard: now, moved: now, disks: 0 }
    }

    fn hear(&mut self, now: Instant, disks: u64) {
        self.heard = now;
        if disks > self.disks {
            (self.moved, self.disks) = (now, disks);
        }
    }

    /// Why it has come to its end, if so.
    fn end(&self, now: Instant) -> Option<String> {
        let is_over = |since: Instant, most: Duration| now.duration_since(since) > most;
        let within =
            |what: &str, most: Duration| Some(format!("{what} within {} s", most.as_secs()));
        if is_over(self.heard, SILENCE_MAX) {
            return within("it says nothing", SILENCE_MAX);
        }
        if is_over(self.moved, DISK_MAX) {
            return within("it opens no disk", DISK_MAX);
        }
        if is_over(self.begun, SERVE_PATIENCE) {
            return within("it does not serve", SERVE_PATIENCE);
        }
        None
    }
}

/// The sockets of a daemon: those of `target` by the addresses `configured`, and two others.
pub(crate) fn all_sockets(
    target: &Target,
    configured: &[(SocketAddr, SocketAddr)],
    http: Option<(SocketAddr, &Arc<OwnedFd>)>,
    control: Option<&Arc<OwnedFd>>,
) -> Result<Sockets> {
    let copy = |fd: &Arc<OwnedFd>| fd.as_fd().try_clone_to_owned();
    let portals = target.listening()?.into_iter().map(|(real, fd)| {
        let known = configured.iter().find(|(_, at)| *at == real);
        (known.map_or(real, |(address, _)| *address), fd)
    });
    let portals = portals.collect();
    let http = http.map(|(address, fd)| Ok::<_, std::io::Error>((address, copy(fd)?)));
    let control = control.map(copy);
    Ok(Sockets { portals, http: http.transpose()?, control: control.transpose()? })
}

#[cfg(test)]
mod tests {
    use super::super::gate::Gate;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Ends after so many seconds, of a process that says at each one what `said` gives.
    fn ends(said: impl Fn(u32) -> Option<u64>) -> (u32, String) {
        let begun = Instant::now();
        let mut patience = Patience::new(begun);
        for second in 0..1000 {
            let now = begun + SECOND * second;
            if let Some(why) = patience.end(now) {
                return (second, why);
            }
            if let Some(disks) = said(second) {
                patience.hear(now, disks);
            }
        }
        panic!("it has no end");
    }

    fn handing() -> (Handing, Talk) {
        let (one, other) = UnixStream::pair().expect("a pair");
        let talk = Talk::over(one).expect("ours");
        let closed = Gate::default().close(Duration::ZERO).expect("nobody is there");
        let (sockets, version) = (Sockets::default(), "0.1.0".to_owned());
        let handing = Handing { talk, sockets, version, pid: 7, _closed: closed };
        (handing, Talk::over(other).expect("ours"))
    }

    /// Former versions say no word between that they want the disks and that they serve.
    #[test]
    fn who_does_not_say_how_far_it_is_serves_all_the_same() {
        let (mut handing, mut other) = handing();
        let next = std::thread::spawn(move || {
            let released = other.hear::<Word>(SECOND * 10).expect("it is told");
            std::thread::sleep(LOOK * 3);
            other.say(&Word::Serving).expect("heard");
            released
        });
        let handed = handing.release(&Carried::default(), || false);
        assert!(matches!(handed, Handed::Over), "{handed:?}");
        let released = next.join().expect("it serves");
        assert_eq!(released, Word::Released(Carried::default()));
    }

    #[test]
    fn who_says_what_is_not_understood_is_given_up_and_told_so() {
        let (mut handing, mut other) = handing();
        other.say(&"farther than ever").expect("heard");
        let handed = handing.release(&Carried::default(), || false);
        let Handed::Back(why) = handed else { panic!("{handed:?}") };
        let (_, holder) = handing.give_up(&why);
        assert_eq!(holder.pid(), 7);
        let word = |talk: &mut Talk| talk.hear::<Word>(SECOND * 10).expect("it is told");
        assert!(matches!(word(&mut other), Word::Released(_)));
        assert_eq!(word(&mut other), Word::Failed { message: why });
    }

    /// Who goes on later takes this process for ended otherwise, and serves beside it what has no
    /// locks.
    #[test]
    fn who_does_not_take_what_he_was_offered_is_told_that_nobody_waits() {
        let pair = || {
            let (one, other) = UnixStream::pair().expect("a pair");
            (Talk::over(one).expect("ours"), Talk::over(other).expect("ours"))
        };
        let heard = |other: &mut Talk| match other.hear(SECOND * 10).expect("it is told") {
            Word::Failed { message } => message,
            word => panic!("{word:?}"),
        };
        let gate = Gate::default();
        let closed = gate.close(Duration::ZERO).expect("nobody is there");
        let (mut one, mut other) = pair();
        let taken = expect_take(&mut one, SECOND / 50, &closed, || Ok(()));
        assert_eq!(heard(&mut other), taken.expect_err("it says nothing").to_string());
        let (mut one, mut other) = pair();
        other.say(&"nonsense").expect("heard");
        let taken = expect_take(&mut one, SECOND * 10, &closed, || Ok(()));
        assert_eq!(heard(&mut other), taken.expect_err("it is no word").to_string());
        let (mut one, mut other) = pair();
        other.say(&Word::Take).expect("heard");
        assert!(expect_take(&mut one, SECOND * 10, &closed, || Err(anyhow!("not now"))).is_err());
        assert_eq!(heard(&mut other), "not now");
        other.say(&Word::Take).expect("heard");
        assert!(expect_take(&mut one, SECOND * 10, &closed, || Ok(())).is_ok());
        // Another one has come first.
        closed.grow_old();
        let _other = gate.close(Duration::ZERO).expect("it takes its time");
        let taken = expect_take(&mut one, SECOND * 1000, &closed, || Ok(()));
        assert_eq!(heard(&mut other), taken.expect_err("it is late").to_string());
    }

    #[test]
    fn who_opens_disks_has_time_and_who_says_nothing_has_none() {
        assert_eq!(ends(|_| None), (11, "it says nothing within 10 s".into()));
        let slow = |second: u32| Some(u64::from(second / 100));
        assert_eq!(ends(slow), (301, "it does not serve within 300 s".into()));
        assert_eq!(ends(|_| Some(3)), (121, "it opens no disk within 120 s".into()));
        let dies = |second: u32| (second < 50).then(|| second.into());
        assert_eq!(ends(dies).0, 60);
    }
}
