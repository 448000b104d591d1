// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread of a station: frames on one side, sockets on the other.

use std::collections::BTreeMap;
use std::io;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::time::Duration;

use clock::Instant;
use ether::Ended;
use ether::Endpoint;
use ether::Event;
use ether::Figures;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use wire::ether::ConnectionId;
use wire::ether::HEADER_LEN_MAX;
use wire::ether::Mac;
use wire::ether::behind_ethernet;
use wire::ether::ethernet_header;

use crate::IDLE_PATIENCE;
use crate::Interface;
use crate::STOP_PATIENCE;
use crate::Stay;
use crate::Taker;
use crate::cable::Role;
use crate::frames::Frames;
use crate::line::Line;
use crate::named;
use crate::presence::Change;
use crate::presence::Presence;
use crate::retire;

/// What a station is asked to do.
pub(crate) enum Order {
    /// Open a connection; the answer is our end of it.
    Connect(Mac, Sender<io::Result<OwnedFd>>),
    /// Tell how far connections that stand have come.
    Figures(Sender<Vec<Figures>>),
    /// Tell when all connections that were closed are over.
    Settle(Sender<()>),
    /// End.
    Stop,
}

/// Frames that are taken in before sockets have their turn.
const FRAMES_AT_ONCE: usize = 256;

/// Frames that are sent before others are taken in, so that acknowledgements are not late.
const SENDS_AT_ONCE: usize = 128;

/// How soon frames are tried again for which there was no room, where nothing tells of it: a small
/// part of what a wire of 10 Gbit/s takes to send what waits there.
const ROOM_PATIENCE: Duration = Duration::from_micros(200);

pub(crate) struct Thread {
    interface: Interface,
    frames: Frames,
    mac: Mac,
    endpoint: Endpoint,
    orders: Receiver<Order>,
    /// One that was taken while it was looked whether there are any.
    next_order: Option<Order>,
    wake: Arc<OwnedFd>,
    taker: Option<Taker>,
    stay: Stay,
    lines: BTreeMap<ConnectionId, Line>,
    /// Who waits for connections that do not stand yet.
    opening: BTreeMap<ConnectionId, Sender<io::Result<OwnedFd>>>,
    /// Who waits for the end of connections that were closed.
    settling: Vec<Sender<()>>,
    /// A frame that the interface had no room for.
    stuck: Vec<u8>,
    /// Some that it has, and that have not left.
    has_unsent: bool,
    begin: std::time::Instant,
    /// Since when there is nothing to do.
    idle_since: Option<Instant>,
    /// When it ends at the latest.
    stopping: Option<Instant>,
    presence: Presence,
}

impl Thread {
    pub(crate) fn new(
        interface: Interface,
        frames: Frames,
        orders: Receiver<Order>,
        wake: Arc<OwnedFd>,
        taker: Option<Taker>,
        stay: Stay,
        presence: Presence,
    ) -> Self {
        let endpoint = endpoint(&frames, role(taker.as_ref()));
        Self {
            interface,
            mac: frames.mac(),
            frames,
            endpoint,
            orders,
            next_order: None,
            wake,
            taker,
            stay,
            lines: BTreeMap::new(),
            opening: BTreeMap::new(),
            settling: Vec::new(),
            stuck: Vec::new(),
            has_unsent: false,
            begin: std::time::Instant::now(),
            idle_since: None,
            stopping: None,
            presence,
        }
    }

    pub(crate) fn serve(mut self) {
        loop {
            self.look();
            self.take_orders();
            let more_frames = self.take_frames();
            self.endpoint.handle_timeout(self.now());
            self.take_events();
            self.serve_lines();
            self.take_events();
            let more_sends = self.transmit();
            self.has_unsent = !self.frames.flush();
            if !more_sends && self.lines.is_empty() && self.stuck.is_empty() {
                // Who waits no longer has dropped its end.
                self.settling.drain(..).for_each(|answer| answer.send(()).unwrap_or_default());
            }
            // Before it waits: nothing may come that ends the wait.
            if self.is_over() {
                break;
            }
            self.wait(more_frames || more_sends);
        }
        self.say_the_end(self.now());
    }

    /// An interface that is gone takes its connections along, and so does an address; the next one
    /// has others.
    fn look(&mut self) {
        let (role, now) = (role(self.taker.as_ref()), self.now());
        loop {
            let change = self.presence.look(&self.interface, role, &self.frames, now);
            let is_to_be_had = matches!(change, Change::Moved);
            match change {
                Change::None => return,
                Change::Gone => self.drop_lines(missing),
                Change::Moved => {
                    // Peers know us by the address of before.
                    self.say_the_end(now);
                    self.drop_lines(moved);
                    // At one interface there is one program.
                    if let Ok(none) = Frames::none() {
                        self.frames = none;
                    }
                }
                Change::Back(frames) => (self.mac, self.frames) = (frames.mac(), frames),
            }
            self.endpoint = endpoint(&self.frames, role);
            self.stuck.clear();
            self.has_unsent = false;
            if !is_to_be_had {
                return;
            }
        }
    }

    fn drop_lines(&mut self, why: fn(&Interface) -> io::Error) {
        self.lines.clear();
        for answer in std::mem::take(&mut self.opening).into_values() {
            // Who asked may have given up.
            let _ = answer.send(Err(why(&self.interface)));
        }
    }

    /// All connections are over, and peers are told.
    fn say_the_end(&mut self, now: Instant) {
        self.endpoint.abort_all(now);
        while self.transmit() {}
        self.frames.flush();
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nothing is left to be done, and nobody will ask for anything.
    fn is_over(&mut self) -> bool {
        let now = self.now();
        if let Some(until) = self.stopping {
            // Who has all that was said need not close its end first.
            return self.lines.is_empty() && self.endpoint.has_said_all() || now >= until;
        }
        if self.stay == Stay::Always || !self.endpoint.is_empty() || self.next_order.is_some() {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        let (orders, next) = (&self.orders, &mut self.next_order);
        now.since(since) >= IDLE_PATIENCE
            && retire(&self.interface, || {
                *next = next.take().or_else(|| orders.try_recv().ok());
                next.is_some()
            })
    }

    fn take_orders(&mut self) {
        while let Some(order) = self.next_order.take().or_else(|| self.orders.try_recv().ok()) {
            match order {
                Order::Settle(answer) => self.settling.push(answer),
                Order::Figures(answer) => {
                    let all = self.lines.keys().filter_map(|id| self.endpoint.figures(*id));
                    let _ = answer.send(all.collect());
                }
                Order::Stop => {
                    let now = self.now();
                    self.stopping.get_or_insert(now + STOP_PATIENCE);
                    self.taker = Some(Box::new(|_, _| {}));
                }
                Order::Connect(_, answer) if self.presence.is_gone() => {
                    let _ = answer.send(Err(missing(&self.interface)));
                }
                Order::Connect(peer, answer) => {
                    match random_id().map(|id| self.frames.mark().on(id)) {
                        Ok(id) if self.endpoint.open(peer, id, self.now()) => {
                            self.opening.insert(id, answer);
                        }
                        // Who asked may have given up, here and below.
                        Ok(_) => {
                            let error = "too many connections of this process on the interface";
                            let _ = answer.send(Err(io::Error::other(error)));
                        }
                        Err(error) => drop(answer.send(Err(error))),
                    }
                }
            }
        }
    }

    /// True if there may be more.
    fn take_frames(&mut self) -> bool {
        let now = self.now();
        let (endpoint, mac, stopping) = (&mut self.endpoint, self.mac, self.stopping.is_some());
        self.frames.receive(FRAMES_AT_ONCE, |bytes| {
            let Some((to, from, frame)) = behind_ethernet(bytes) else { return };
            // An interface may be told to take what is for others.
            if to == mac
                && let Some(asked) = endpoint.handle_frame(from, frame, now)
                && !stopping
                && let Ok(id) = random_id()
            {
                endpoint.accept(asked, id, now);
            }
        })
    }

    fn take_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Opened(id) => {
                    let Some(answer) = self.opening.remove(&id) else { continue };
                    let pair = self.pair(id);
                    if answer.send(pair).is_err() {
                        self.lines.remove(&id);
                        self.endpoint.abort(id, self.now());
                    }
                }
                Event::Accepted(id, peer) => match self.pair(id) {
                    Ok(theirs) => {
                        if let Some(taker) = &mut self.taker {
                            taker(theirs, peer);
                        }
                    }
                    // Without descriptors it cannot be served.
                    Err(_) => self.endpoint.abort(id, self.now()),
                },
                Event::Ended(id, why) => {
                    self.lines.remove(&id);
                    if let Some(answer) = self.opening.remove(&id) {
                        let _ = answer.send(Err(refusal(why)));
                    }
                }
            }
        }
    }

    /// Sockets for a connection that stands: ours is kept, the other one given.
    fn pair(&mut self, id: ConnectionId) -> io::Result<OwnedFd> {
        let (stream, theirs) = UnixStream::pair()?;
        self.lines.insert(id, Line::new(stream)?);
        Ok(theirs.into())
    }

    /// Carries bytes between sockets and streams.
    fn serve_lines(&mut self) {
        let (now, is_opener) = (self.now(), self.taker.is_none());
        let endpoint = &mut self.endpoint;
        self.lines.retain(|id, line| {
            line.carry(*id, endpoint, now);
            if !line.is_left() {
                return true;
            }
            // Who opens a connection and closes it wants nothing to go on; who serves one has said
            // what there was to say.
            if is_opener {
                endpoint.abort(*id, now);
                return false;
            }
            if line.has_ended() {
                endpoint.leave(*id, now);
            }
            !line.has_ended()
        });
    }

    /// True if there is more that could be sent now.
    fn transmit(&mut self) -> bool {
        let now = self.now();
        if !self.stuck.is_empty() {
            if is_full(self.frames.send(&[IoSlice::new(&self.stuck)])) {
                return false;
            }
            self.stuck.clear();
        }
        for _ in 0..SENDS_AT_ONCE {
            let Some(due) = self.endpoint.poll_transmit(now) else { return false };
            let front = ethernet_header(due.to, self.mac);
            let [first, second] = due.payload;
            let pieces = [&front, due.header.bytes(), first, second];
            // What an interface drops is lost on the way, and sent again.
            if is_full(self.frames.send(&pieces.map(IoSlice::new))) {
                pieces.iter().for_each(|piece| self.stuck.extend_from_slice(piece));
                return false;
            }
        }
        true
    }

    /// Until something comes, or is due; not at all if there is something to do.
    fn wait(&mut self, busy: bool) {
        let now = self.now();
        let mut polled = Vec::with_capacity(self.lines.len() + 2);
        let mut of_socket = PollFlags::IN;
        let is_stuck = !self.stuck.is_empty() || self.has_unsent;
        of_socket.set(PollFlags::OUT, is_stuck && self.frames.tells_of_room());
        polled.push(PollFd::new(&self.frames, of_socket));
        polled.push(PollFd::new(&*self.wake, PollFlags::IN));
        let mut ids = Vec::with_capacity(self.lines.len());
        for (id, line) in &self.lines {
            if let Some(of_line) = line.polled(*id, &mut self.endpoint) {
                polled.push(of_line);
                ids.push(*id);
            }
        }
        // Behind all others, where nothing is looked for by its place.
        polled.extend(self.frames.beside().map(|beside| PollFd::new(beside, PollFlags::IN)));
        let (at_watch, has_beside) = (polled.len(), self.frames.beside().is_some());
        polled.extend(self.presence.watch().map(|watch| PollFd::new(watch, PollFlags::IN)));
        let idle = self.idle_since.map(|since| since + IDLE_PATIENCE);
        let until = [self.endpoint.poll_timeout(), idle, self.stopping, self.presence.due()];
        let until = until.into_iter().flatten().min();
        let wait = match busy {
            true => Some(Duration::ZERO),
            false if is_stuck && !self.frames.tells_of_room() => Some(ROOM_PATIENCE),
            false => until.map(|until| until.since(now)),
        };
        let wait = wait.map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        // A signal or an error: everything is looked at all the same.
        let _ = rustix::event::poll(&mut polled, wait.as_ref());
        let at_frames = [polled.first(), polled.get(ids.len() + 2).filter(|_| has_beside)];
        let is_wrong = |one: &PollFd<'_>| one.revents().contains(PollFlags::ERR);
        let is_wrong = at_frames.into_iter().flatten().any(is_wrong);
        let is_told = polled.get(at_watch).is_some_and(|one| !one.revents().is_empty());
        let told: Vec<_> = polled.iter().skip(1).map(PollFd::revents).collect();
        if is_told {
            self.presence.hear(now);
        }
        if is_wrong {
            self.frames.forget_error();
            self.presence.doubt(now);
        }
        if told.first().is_some_and(|told| !told.is_empty()) {
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        }
        for (id, told) in ids.into_iter().zip(told.into_iter().skip(1)) {
            if let Some(line) = self.lines.get_mut(&id) {
                line.hear(told);
            }
        }
    }
}

fn missing(interface: &Interface) -> io::Error {
    named(rustix::io::Errno::NODEV.into(), &interface.name)
}

fn moved(interface: &Interface) -> io::Error {
    let text = format!("the interface {} has another address now", interface.name);
    io::Error::new(io::ErrorKind::ConnectionAborted, text)
}

fn role(taker: Option<&Taker>) -> Role {
    if taker.is_some() { Role::Takes } else { Role::Opens }
}

fn endpoint(frames: &Frames, role: Role) -> Endpoint {
    let endpoint = Endpoint::new(frames.mtu().saturating_sub(HEADER_LEN_MAX));
    match role {
        Role::Takes => endpoint.accepting(),
        Role::Opens => endpoint,
    }
}

/// A number that nobody can guess.
fn random_id() -> io::Result<ConnectionId> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    // Zero is none.
    Ok(ConnectionId(u64::from_ne_bytes(bytes).max(1)))
}

fn is_full(sent: io::Result<()>) -> bool {
    sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn refusal(why: Ended) -> io::Error {
    let (kind, text) = match why {
        Ended::Refused => (io::ErrorKind::ConnectionRefused, "it takes no more connections"),
        Ended::Silent => (io::ErrorKind::TimedOut, "no station answers there"),
        _ => (io::ErrorKind::ConnectionAborted, "the station does not speak as it should"),
    };
    io::Error::new(kind, text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use std::io::Read;
    use std::io::Write;
    use std::net::Shutdown;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::Place;
    use crate::Station;
    use crate::connect;

    /// A station on the loopback interface, which one process at a time has, and what comes to it.
    /// None, and a word about it, where this process may not.
    fn station() -> Option<(Station, Place, Receiver<UnixStream>)> {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let (give, come) = mpsc::channel();
            let taker: Taker = Box::new(move |fd, peer| {
                assert_eq!(peer, Mac::default());
                let _ = give.send(UnixStream::from(fd));
            });
            match Station::open(&"lo".into(), taker) {
                Ok(station) => {
                    let place = station.place();
                    return Some((station, place, come));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    assert!(std::time::Instant::now() < end, "somebody else has it all the time");
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => {
                    println!("skipped: no station on lo: {error}");
                    return None;
                }
            }
        }
    }

    /// One test, since one station takes connections on the one loopback interface.
    #[test]
    fn streams_go_both_ways_and_end() {
        let Some((station, place, come)) = station() else { return };
        let mut ours = UnixStream::from(connect(&place).unwrap());
        let mut theirs = come.recv_timeout(Duration::from_secs(10)).unwrap();
        let sent: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let copy = sent.clone();
        let writer = {
            let mut ours = ours.try_clone().unwrap();
            thread::spawn(move || {
                ours.write_all(&copy).unwrap();
                ours.shutdown(Shutdown::Write).unwrap();
            })
        };
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
        writer.join().unwrap();
        theirs.write_all(b"the answer").unwrap();
        // Who serves says all, even when it has closed.
        drop(theirs);
        let mut answer = String::new();
        ours.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "the answer");

        let first = UnixStream::from(connect(&place).unwrap());
        let mut theirs = come.recv_timeout(Duration::from_secs(10)).unwrap();
        let second = connect(&place).unwrap();
        let _others = come.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(first);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "a reset ends it");
        drop(station);
        let mut second = UnixStream::from(second);
        assert_eq!(second.read(&mut [0]).unwrap(), 0, "so does the end of the station");
    }

    /// Two stations at the ends of a wire; who has connections hears that they are over.
    #[test]
    fn a_station_goes_on_with_the_next_address_of_its_interface() {
        let moved = || {
            let ip = |words: &str| {
                let run = std::process::Command::new("ip").args(words.split(' ')).status();
                run.is_ok_and(|status| status.success())
            };
            let is_made = ip("link add m0 type veth peer name m1");
            if !is_made || !["m0", "m1"].iter().all(|name| ip(&format!("link set {name} up"))) {
                return Err("no interfaces".to_owned());
            }
            let (give, come) = mpsc::channel();
            let taker: Taker = Box::new(move |fd, _| give.send(UnixStream::from(fd)).unwrap());
            let station = Station::open(&"m0".into(), taker).map_err(|error| error.to_string())?;
            let there = || Place { mac: station.place().mac, interface: "m1".into() };
            let patience = Duration::from_secs(10);
            let mut ours = UnixStream::from(connect(&there()).unwrap());
            let mut theirs = come.recv_timeout(patience).unwrap();
            for (name, address) in [("m0", 7), ("m1", 8)] {
                ours.set_read_timeout(Some(patience)).unwrap();
                theirs.set_read_timeout(Some(patience)).unwrap();
                assert!(ip(&format!("link set {name} address 02:00:00:00:00:0{address}")));
                assert_eq!(ours.read(&mut [0]).unwrap(), 0, "{name}: it is over");
                assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "{name}: at both ends");
                let end = std::time::Instant::now() + patience;
                let is_had = || {
                    let is_new = station.place().mac == Mac([2, 0, 0, 0, 0, address]);
                    (is_new || name == "m1") && station.frames() == "packet"
                };
                while !is_had() {
                    assert!(std::time::Instant::now() < end, "{:?}", station.place());
                }
                ours = UnixStream::from(connect(&there()).unwrap());
                theirs = come.recv_timeout(patience).unwrap();
                ours.write_all(b"here").unwrap();
                let mut word = [0; 4];
                theirs.read_exact(&mut word).unwrap();
                assert_eq!(&word, b"here");
            }
            Ok(())
        };
        let Ok(network) = engine::network::Network::new() else {
            println!("skipped: no network of its own");
            return;
        };
        if let Err(why) = network.within(moved).unwrap() {
            println!("skipped: {why}");
        }
    }
}
