// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the interface of a station is there: one that is deleted takes its sockets along, and
//! another one of its name may come.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use clock::Instant;
use engine::links;
use engine::links::Made;
use engine::links::Watch;
use wire::ether::Mac;

use crate::Interface;
use crate::cable::Role;
use crate::claim_number;
use crate::frames::Frames;
use crate::frames::GONE;

/// How often it is looked for, while it is down or gone.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What is told of a station's interface; its thread changes it.
#[derive(Clone, Debug)]
pub(crate) struct Seen(Arc<Mutex<Facts>>);

#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) mac: Mac,
    pub(crate) mtu: usize,
    /// Which way frames go.
    pub(crate) frames: String,
}

pub(crate) struct Presence {
    seen: Seen,
    /// None of a cable.
    index: Option<u32>,
    /// Tells of what changes while frames go; without it only errors do.
    watch: Option<Watch>,
    /// When it is looked for again; None while all is well.
    due: Option<Instant>,
    is_gone: bool,
    /// It is there and down, which was told.
    is_down: bool,
    /// Why it could not be had again, as it was last told.
    told: String,
    /// As long as it is there, nobody else takes connections at the interface of this number. One
    /// that comes back may have it again.
    claim: Option<OwnedFd>,
}

/// What has become of an interface.
#[derive(Debug)]
pub(crate) enum Change {
    None,
    Gone,
    /// It has another address: peers do not know us by that, nor does what filters frames.
    Moved,
    Back(Frames),
}

/// How an interface that is there is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Down,
}

impl Seen {
    pub(crate) fn get(&self) -> Facts {
        // Whoever holds the lock writes one member.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, facts: Facts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = facts;
    }
}

impl Facts {
    fn of(frames: &Frames) -> Self {
        Self { mac: frames.mac(), mtu: frames.mtu(), frames: frames.told() }
    }
}

impl Presence {
    pub(crate) fn of(frames: &Frames, name: &str, claim: Option<OwnedFd>) -> Self {
        let seen = Seen(Arc::new(Mutex::new(Facts::of(frames))));
        let is_gone = matches!(frames, Frames::None(_));
        let index = match frames {
            Frames::Cable(_) => None,
            // No interface has that number.
            Frames::None(_) => Some(0),
            _ => links::number(name).ok(),
        };
        // What has changed before it was watched nobody tells.
        let due = index.map(|_| Instant(0));
        let watch = index.and_then(|_| Watch::open().ok());
        Self { seen, index, watch, due, is_gone, is_down: false, told: String::new(), claim }
    }

    /// What is readable when the kernel has told of interfaces; see [`Presence::hear`].
    pub(crate) const fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Something was told of interfaces.
    pub(crate) fn hear(&mut self, now: Instant) {
        if let (Some(watch), Some(index)) = (&self.watch, self.index)
            && watch.has_news_of(index)
        {
            self.doubt(now);
        }
    }

    pub(crate) const fn seen(&self) -> &Seen {
        &self.seen
    }

    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// When [`Presence::look`] has something to do.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Something is wrong with it.
    pub(crate) fn doubt(&mut self, now: Instant) {
        if self.index.is_some() && self.due.is_none() {
            self.due = Some(now);
        }
    }

    /// Looks for it, if it is time. `frames`: those of it.
    pub(crate) fn look(
        &mut self,
        interface: &Interface,
        role: Role,
        frames: &Frames,
        now: Instant,
    ) -> Change {
        let (Some(index), Some(due)) = (self.index, self.due) else { return Change::None };
        if now < due {
            return Change::None;
        }
        self.due = Some(now + LOOK_PAUSE);
        if self.is_gone {
            return self.look_for_another(interface, role);
        }
        match Made::numbered(index) {
            Err(error) if error.raw_os_error() == Some(NODEV) => return self.is_lost(interface),
            // Another one has its number, or it has come back from another network.
            _ if !frames.are_attached() => return self.is_lost(interface),
            Ok(Made { mac: Some(mac), .. }) if Mac(mac) != frames.mac() => {
                return self.has_moved(interface, Mac(mac), now);
            }
            // What is down tells once more when it goes, but for what was told meanwhile.
            Ok(made) if !made.is_up => self.is_set(interface, frames, State::Down),
            // The system does not say for now, as without descriptors, and tells of it once only.
            Err(_) if self.watch.is_some() => {}
            _ => {
                self.due = None;
                self.is_set(interface, frames, State::Up);
            }
        }
        Change::None
    }

    /// Down, no frame comes or goes, and no call says why.
    fn is_set(&mut self, interface: &Interface, frames: &Frames, state: State) {
        let (name, is_down) = (interface.name.as_str(), state == State::Down);
        if std::mem::replace(&mut self.is_down, is_down) == is_down {
            return;
        }
        let way = frames.told();
        let told = if is_down { format!("{way}; {DOWN}") } else { way };
        self.seen.set(Facts { frames: told, ..self.seen.get() });
        match state {
            State::Down => tracing::warn!(
                interface = name,
                "{DOWN}: nobody is reached there; try: ip link set {name} up"
            ),
            State::Up => tracing::info!(interface = name, "the interface is up"),
        }
    }

    fn is_lost(&mut self, interface: &Interface) -> Change {
        (self.is_gone, self.claim) = (true, None);
        self.seen.set(Facts { frames: GONE.to_owned(), ..self.seen.get() });
        tracing::warn!(
            interface = interface.name,
            "the interface is gone, and all connections there with it; one of its name is taken as \
             soon as it is up"
        );
        Change::Gone
    }

    fn has_moved(&mut self, interface: &Interface, mac: Mac, now: Instant) -> Change {
        (self.is_gone, self.claim, self.due) = (true, None, Some(now));
        self.seen.set(Facts { mac, frames: MOVED.to_owned(), ..self.seen.get() });
        tracing::warn!(
            interface = interface.name,
            %mac,
            "the interface has another address, and all connections there end; it is served anew"
        );
        Change::Moved
    }

    fn look_for_another(&mut self, interface: &Interface, role: Role) -> Change {
        let name = interface.name.as_str();
        // One that is down has not been set up yet: its frames may become longer.
        if !Made::of(name).is_ok_and(|made| made.is_up) {
            return Change::None;
        }
        match again(interface, role) {
            Ok((claim, index, frames)) => {
                let facts = Facts::of(&frames);
                let (mac, way) = (facts.mac, facts.frames.as_str());
                tracing::info!(
                    interface = name,
                    %mac,
                    frames = way,
                    "the interface is there again"
                );
                self.seen.set(facts);
                let seen = self.seen.clone();
                let (index, told, watch) = (Some(index), String::new(), self.watch.take());
                let (is_gone, is_down) = (false, false);
                *self = Self { seen, index, watch, due: None, is_gone, is_down, told, claim };
                Change::Back(frames)
            }
            Err(error) => {
                let why = error.to_string();
                if why != self.told {
                    tracing::warn!(
                        interface = name,
                        why,
                        "an interface of this name is there and cannot be had; it is tried again \
                         each second"
                    );
                    self.told = why;
                }
                Change::None
            }
        }
    }
}

fn again(interface: &Interface, role: Role) -> io::Result<(Option<OwnedFd>, u32, Frames)> {
    let name = interface.name.as_str();
    let claim = match role {
        Role::Takes => Some(claim_number(name)?),
        Role::Opens => None,
    };
    let frames = Frames::again(interface, role)?;
    Ok((claim, links::number(name)?, frames))
}

/// What is told of one that is down with another address.
const MOVED: &str = "the interface has another address, and is waited for";

/// What is told of one that is down.
pub(crate) const DOWN: &str = "the interface is down";

const NODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();

#[cfg(test)]
mod tests {
    use engine::network::Network;

    use super::*;
    use crate::Way;

    const NAME: &str = "v0";

    fn ip(words: &str) -> bool {
        let run = std::process::Command::new("ip").args(words.split(' ')).status();
        run.is_ok_and(|status| status.success())
    }

    /// An interface with a number that the next one has, too.
    fn make() -> bool {
        ip("link add v0 index 77 type veth peer name v1")
            && ["v0", "v1"].iter().all(|name| ip(&format!("link set {name} up")))
    }

    /// One that is deleted and made with its number, or goes to another network and comes back.
    #[test]
    fn an_interface_that_has_the_number_of_the_one_before_is_another_one() {
        let seen = || {
            if !make() {
                return Err("no interfaces".to_owned());
            }
            let interface = Interface { name: NAME.into(), way: Way::Packet };
            let open = Frames::open(&interface, Role::Takes);
            let mut frames = open.map_err(|error| format!("no packet socket: {error}"))?;
            let mut presence = Presence::of(&frames, NAME, claim_number(NAME).ok());
            let mut now = Instant(0);
            let mut look = |presence: &mut Presence, frames: &Frames| {
                now = now + LOOK_PAUSE;
                presence.doubt(now);
                presence.look(&interface, Role::Takes, frames, now)
            };
            // Who begins without one takes it when it comes.
            let none = Frames::none().map_err(|error| error.to_string())?;
            let mut awaited = Presence::of(&none, NAME, None);
            assert!(awaited.is_gone());
            assert!(matches!(look(&mut awaited, &none), Change::None), "it is claimed");
            drop(presence.claim.take());
            assert!(matches!(look(&mut awaited, &none), Change::Back(_)));
            drop(awaited);
            for is_quick in [true, false] {
                assert!(matches!(look(&mut presence, &frames), Change::None), "it is there");
                assert!(ip("link del v0") && (!is_quick || make()));
                assert!(matches!(look(&mut presence, &frames), Change::Gone), "quick: {is_quick}");
                assert!(is_quick || make());
                match look(&mut presence, &frames) {
                    Change::Back(back) => frames = back,
                    other => panic!("it is not had again: {other:?}"),
                }
            }
            Ok(())
        };
        let Ok(network) = Network::new() else {
            println!("skipped: no network of its own");
            return;
        };
        if let Err(why) = network.within(seen).unwrap() {
            println!("skipped: {why}");
        }
    }

    /// As where there is no descriptor for the question: nobody tells of the change once more.
    #[test]
    fn a_change_is_looked_at_again_where_the_system_did_not_say() {
        let seen = || {
            if !make() {
                return Err("no interfaces".to_owned());
            }
            let interface = Interface { name: NAME.into(), way: Way::Packet };
            let open = Frames::open(&interface, Role::Takes);
            let frames = open.map_err(|error| format!("no packet socket: {error}"))?;
            let mut presence = Presence::of(&frames, NAME, claim_number(NAME).ok());
            let look = |presence: &mut Presence, seconds: u32| {
                let now = Instant(0) + LOOK_PAUSE * seconds;
                presence.look(&interface, Role::Takes, &frames, now)
            };
            // The kernel takes that for no question.
            let index = presence.index.replace(0);
            assert!(matches!(look(&mut presence, 1), Change::None));
            assert!(ip("link set v0 address 02:00:00:00:00:07"));
            presence.index = index;
            assert!(matches!(look(&mut presence, 2), Change::Moved), "{:?}", presence.due());
            Ok(())
        };
        let Ok(network) = Network::new() else {
            println!("skipped: no network of its own");
            return;
        };
        if let Err(why) = network.within(seen).unwrap() {
            println!("skipped: {why}");
        }
    }

    /// While it is up, and while it is down.
    #[test]
    fn an_interface_that_has_another_address_is_taken_with_it() {
        let seen = || {
            if !make() {
                return Err("no interfaces".to_owned());
            }
            let interface = Interface { name: NAME.into(), way: Way::Packet };
            let open = Frames::open(&interface, Role::Takes);
            let mut frames = open.map_err(|error| format!("no packet socket: {error}"))?;
            let mut presence = Presence::of(&frames, NAME, claim_number(NAME).ok());
            let mut now = Instant(0);
            // Another test that starts a program may hold its claim for a moment.
            let mut look = |presence: &mut Presence, frames: &Frames, most: u32| {
                for _ in 0..most {
                    now = now + LOOK_PAUSE;
                    presence.hear(now);
                    match presence.look(&interface, Role::Takes, frames, now) {
                        Change::None => std::thread::sleep(Duration::from_millis(10)),
                        change => return change,
                    }
                }
                Change::None
            };
            assert!(matches!(look(&mut presence, &frames, 1), Change::None), "it is as it was");
            assert_eq!(presence.due(), None, "nothing is looked for");
            for (words, mac) in [
                (&["address 02:00:00:00:00:07"][..], Mac([2, 0, 0, 0, 0, 7])),
                (&["down", "address 02:00:00:00:00:08", "up"], Mac([2, 0, 0, 0, 0, 8])),
            ] {
                assert!(words.iter().all(|word| ip(&format!("link set {NAME} {word}"))));
                assert!(matches!(look(&mut presence, &frames, 500), Change::Moved), "{words:?}");
                match look(&mut presence, &frames, 500) {
                    Change::Back(back) => frames = back,
                    other => panic!("it is not had again: {other:?}"),
                }
                assert_eq!((presence.seen().get().mac, frames.mac()), (mac, mac));
                assert!(matches!(look(&mut presence, &frames, 1), Change::None), "once");
            }
            Ok(())
        };
        let Ok(network) = Network::new() else {
            println!("skipped: no network of its own");
            return;
        };
        if let Err(why) = network.within(seen).unwrap() {
            println!("skipped: {why}");
        }
    }

    /// From the start on, and when it goes.
    #[test]
    fn an_interface_that_is_down_is_told() {
        let seen = || {
            if !make() || !ip("link set v0 down") {
                return Err("no interfaces".to_owned());
            }
            let interface = Interface { name: NAME.into(), way: Way::Packet };
            let open = Frames::open(&interface, Role::Takes);
            let frames = open.map_err(|error| format!("no packet socket: {error}"))?;
            let mut presence = Presence::of(&frames, NAME, claim_number(NAME).ok());
            let mut now = Instant(0);
            for (word, told) in [
                ("down", "packet; the interface is down"),
                ("up", "packet"),
                ("down", "packet; the interface is down"),
                ("up", "packet"),
            ] {
                assert!(ip(&format!("link set {NAME} {word}")));
                now = now + LOOK_PAUSE;
                presence.hear(now);
                let change = presence.look(&interface, Role::Takes, &frames, now);
                assert!(matches!(change, Change::None), "{word}: {change:?}");
                assert_eq!(presence.seen().get().frames, told, "{word}");
            }
            assert_eq!(presence.due(), None, "nothing is looked for");
            Ok(())
        };
        let Ok(network) = Network::new() else {
            println!("skipped: no network of its own");
            return;
        };
        if let Err(why) = network.within(seen).unwrap() {
            println!("skipped: {why}");
        }
    }
}
