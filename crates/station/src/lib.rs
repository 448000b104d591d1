// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections over raw Ethernet as stream sockets; target and initiator call it.
//!
//! A station is a thread at one interface: it has the packet socket, the machine of
//! [`ether::Endpoint`], and for each connection one end of a pair of sockets. Whoever asked for the
//! connection has the other end, and treats it as one of TCP: so engines, pumps and machines know
//! nothing of frames. That costs a copy in each direction, and a thread.
#![forbid(unsafe_code)]

pub mod cable;
mod frames;
mod interface;
mod line;
mod place;
mod presence;
mod thread;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::links;
use rustix::event::EventfdFlags;
use rustix::net::AddressFamily;
use rustix::net::SocketAddrUnix;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use wire::ether::Mac;

use cable::Role;
use frames::Frames;
use presence::Presence;
use presence::Seen;
use thread::Order;
use thread::Thread;

pub use ether::Figures;
pub use frames::why_not_xdp;
pub use interface::Interface;
pub use interface::InterfaceError;
pub use interface::Way;
pub use place::Place;
pub use place::PlaceError;

/// Takes connections at an interface until it is dropped.
pub struct Station {
    interface: Interface,
    seen: Seen,
    orders: Orders,
    thread: Option<JoinHandle<()>>,
    /// As long as it is there, nobody else takes connections at an interface of this name.
    _claim: OwnedFd,
}

/// Frames of an interface, before anybody takes connections there: for a process that gives up
/// the right to them before it has all that takes connections.
#[derive(Debug)]
pub struct Reserved {
    interface: Interface,
    frames: Frames,
    claim: [OwnedFd; 2],
}

/// Who is given connections: one end of each, and who has opened it. Called by the station's
/// thread, so it waits for nothing.
pub type Taker = Box<dyn FnMut(OwnedFd, Mac) + Send>;

/// A way to a station's thread.
#[derive(Clone)]
struct Orders {
    sender: Sender<Order>,
    wake: Arc<OwnedFd>,
}

impl Orders {
    fn send(&self, order: Order) {
        // A thread that is gone drops what it is asked, and who asks hears that.
        let _ = self.sender.send(order);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// A station that opens connections, and which way its frames go.
struct Opener {
    orders: Orders,
    seen: Seen,
}

/// Stations of this process that open connections, by interface. A thread that ends takes itself
/// out.
static OPENERS: Mutex<BTreeMap<Interface, Opener>> = Mutex::new(BTreeMap::new());

/// How long a station is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Always,
    WhileUsed,
}

/// Frames for such stations that are to come, and then stay.
static PREPARED: Mutex<BTreeMap<Interface, Frames>> = Mutex::new(BTreeMap::new());

impl Reserved {
    /// From now on frames for connections come here; none is looked at until [`Reserved::serve`].
    ///
    /// # Errors
    /// As [`Station::open`].
    pub fn open(interface: &Interface) -> io::Result<Self> {
        let claim = claim(&interface.name)?;
        let frames = Frames::open(interface, Role::Takes)?;
        Ok(Self { interface: interface.clone(), frames, claim })
    }

    /// Of an interface that cannot be had now: it is taken as soon as it is there, and up.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn awaited(interface: &Interface) -> io::Result<Self> {
        // Who has the name may be about to go; the number is claimed when it is there.
        let by_name = claimed(&interface.name).or_else(|_| unnamed())?;
        let claim = [by_name, unnamed()?];
        Ok(Self { interface: interface.clone(), frames: Frames::none()?, claim })
    }

    /// Where it is.
    #[must_use]
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Takes connections, for `taker`.
    ///
    /// # Errors
    /// There is no descriptor or thread left.
    pub fn serve(self, taker: Taker) -> io::Result<Station> {
        let Self { interface, frames, claim } = self;
        let [by_name, by_number] = claim;
        let takes = Some((taker, by_number));
        let (orders, seen, thread) = start(&interface, frames, takes, Stay::Always)?;
        let thread = Some(thread);
        Ok(Station { interface, seen, orders, thread, _claim: by_name })
    }
}

impl Station {
    /// Takes connections that come to `interface`, for `taker`.
    ///
    /// # Errors
    /// There is no such interface, it is no Ethernet, we may not (CAP_NET_RAW), or somebody else
    /// takes connections there; or it takes no frames in the way that is wanted.
    pub fn open(interface: &Interface, taker: Taker) -> io::Result<Self> {
        Reserved::open(interface)?.serve(taker)
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { mac: self.seen.get().mac, interface: self.interface.clone() }
    }

    /// How far its connections have come; none if it does not answer in time.
    #[must_use]
    pub fn figures(&self, patience: Duration) -> Vec<Figures> {
        let (answer, answered) = mpsc::channel();
        self.orders.send(Order::Figures(answer));
        answered.recv_timeout(patience).unwrap_or_default()
    }

    /// Which way frames come and go, and why not another one that was wanted, if so; or that the
    /// interface is gone.
    #[must_use]
    pub fn frames(&self) -> String {
        self.seen.get().frames
    }

    /// Bytes that a frame carries there.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.seen.get().mtu
    }
}

impl Drop for Station {
    /// Takes no connections any more, and waits until those that were closed have said all, for a
    /// bounded time.
    fn drop(&mut self) {
        self.orders.send(Order::Stop);
        // A panic was reported when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Opens a connection, which waits up to some seconds. When what is given back is closed, the
/// connection is reset: what has not left goes with it.
///
/// # Errors
/// As [`Station::open`]; or nobody answers, or takes connections there.
pub fn connect(place: &Place) -> io::Result<OwnedFd> {
    let (answer, answered) = mpsc::channel();
    {
        let mut openers = lock(&OPENERS);
        let orders = match openers.get(&place.interface) {
            Some(opener) => opener.orders.clone(),
            None => {
                let (frames, stay) = match lock(&PREPARED).remove(&place.interface) {
                    // They could not be had again.
                    Some(frames) => (frames, Stay::Always),
                    None => (frames_to_open(&place.interface)?, Stay::WhileUsed),
                };
                // It ends by itself, see `retire`.
                let (orders, seen, _thread) = start(&place.interface, frames, None, stay)?;
                let opener = Opener { orders: orders.clone(), seen };
                openers.insert(place.interface.clone(), opener);
                orders
            }
        };
        // Under the lock: a thread that leaves looks for orders under it.
        orders.send(Order::Connect(place.mac, answer));
    }
    // The thread answers, or drops the question when it ends.
    let answer = answered.recv().unwrap_or_else(|_| Err(io::ErrorKind::ConnectionAborted.into()));
    answer.map_err(|error| explained(error, &place.interface.name))
}

/// Says so where nobody answers since our own interface is down.
fn explained(error: io::Error, interface: &str) -> io::Error {
    let is_down = || links::Made::of(interface).is_ok_and(|made| !made.is_up);
    if error.kind() != io::ErrorKind::TimedOut || !is_down() {
        return error;
    }
    let text = format!("{interface} is down; try: ip link set {interface} up");
    io::Error::new(error.kind(), text)
}

/// Has the frames of connections that will be opened from `interface`: for a process that gives up
/// the right to them before it connects. They are had until it ends.
///
/// # Errors
/// As [`Station::open`].
pub fn prepare(interface: &Interface) -> io::Result<()> {
    let mut prepared = lock(&PREPARED);
    if !prepared.contains_key(interface) {
        let frames = frames_to_open(interface)?;
        prepared.insert(interface.clone(), frames);
    }
    Ok(())
}

/// What helps where packet sockets may not be had, if that is known of this error.
#[must_use]
pub fn advice(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => Some(
            "raw Ethernet needs CAP_NET_RAW; try: as root, setcap cap_net_raw+ep for the program, \
             AmbientCapabilities=CAP_NET_RAW for a service of systemd, or --cap-add NET_RAW for a \
             container",
        ),
        Some(rustix::io::Errno::AFNOSUPPORT) => Some(
            "there are no packet sockets; try: RestrictAddressFamilies=AF_PACKET for a service of \
             systemd, or a kernel with CONFIG_PACKET",
        ),
        _ => None,
    }
}

/// Which way frames of connections that were opened from `interface` come and go, and why not
/// another one that was wanted, if so; None without such connections.
#[must_use]
pub fn frames_of(interface: &Interface) -> Option<String> {
    lock(&OPENERS).get(interface).map(|opener| opener.seen.get().frames)
}

fn frames_to_open(interface: &Interface) -> io::Result<Frames> {
    Frames::open(interface, Role::Opens).map_err(|error| named(error, &interface.name))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is whole between any two statements.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says of an interface that is not there which one it is.
fn named(error: io::Error, interface: &str) -> io::Error {
    match error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) {
        true => {
            let text = format!("there is no interface {interface}");
            io::Error::new(io::ErrorKind::NotFound, text)
        }
        false => error,
    }
}

/// Waits until the peers of connections that were opened here, and are closed, have been told so:
/// for a process that ends, and takes its stations along. Returns at once where there are none.
pub fn settle(patience: Duration) {
    let begin = std::time::Instant::now();
    let openers = lock(&OPENERS);
    let (answer, answered) = mpsc::channel();
    openers.values().for_each(|opener| opener.orders.send(Order::Settle(answer.clone())));
    drop((openers, answer));
    // Until each has answered, or dropped the question.
    while answered.recv_timeout(patience.saturating_sub(begin.elapsed())).is_ok() {}
}

/// The thread of an opening station is not needed any more, unless `has_orders`.
fn retire(interface: &Interface, has_orders: impl FnOnce() -> bool) -> bool {
    let mut openers = lock(&OPENERS);
    if has_orders() {
        return false;
    }
    openers.remove(interface);
    true
}

fn start(
    interface: &Interface,
    frames: Frames,
    takes: Option<(Taker, OwnedFd)>,
    stay: Stay,
) -> io::Result<(Orders, Seen, JoinHandle<()>)> {
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let wake = Arc::new(wake);
    let (sender, receiver) = mpsc::channel();
    let orders = Orders { sender, wake: Arc::clone(&wake) };
    let at = interface.clone();
    let builder = std::thread::Builder::new().name("ether".into());
    let (taker, claim) = takes.unzip();
    let presence = Presence::of(&frames, &at.name, claim);
    let seen = presence.seen().clone();
    let thread = move || Thread::new(at, frames, receiver, wake, taker, stay, presence).serve();
    let thread = builder.spawn(thread)?;
    Ok((orders, seen, thread))
}

/// Names of this kind are of a network namespace, as interfaces are, and go with their process. An
/// interface may have several names, and is one all the same; a cable has no number.
fn claim(interface: &str) -> io::Result<[OwnedFd; 2]> {
    let by_name = claimed(interface)?;
    Ok([by_name, claim_number(interface)?])
}

/// Of the interface that has the name now.
fn claim_number(interface: &str) -> io::Result<OwnedFd> {
    match links::number(interface) {
        // No name of an interface has a slash in it.
        Ok(number) => claimed(&format!("/{number}")),
        Err(_) => unnamed(),
    }
}

fn claimed(name: &str) -> io::Result<OwnedFd> {
    let (socket, name) = (unnamed()?, format!("lunwire-ether-{name}"));
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

fn unnamed() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// How long a station that stops waits for what its connections have left to say.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// So long an opening station is kept without connections.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Orders")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_how_it_is_given() {
        let of = |errno: rustix::io::Errno| advice(&errno.into()).unwrap_or_default();
        for errno in [rustix::io::Errno::PERM, rustix::io::Errno::ACCESS] {
            for word in ["CAP_NET_RAW", "setcap", "AmbientCapabilities=", "--cap-add NET_RAW"] {
                assert!(of(errno).contains(word), "{word}");
            }
        }
        assert!(of(rustix::io::Errno::AFNOSUPPORT).contains("RestrictAddressFamilies=AF_PACKET"));
        assert_eq!(of(rustix::io::Errno::NODEV), "");
    }
}
