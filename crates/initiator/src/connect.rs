// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that are to be made: over TCP, RDMA adapters or raw Ethernet to several portals, or
//! to a target in this process.
//!
//! The portal that was named first has a head start, then the first one that stands is taken, so
//! that a dead portal delays nothing for long.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::thread;

use engine::Waker;
use engine::duplex::End;
use mover::iser;
use mover::local::ToInitiator;
use mover::local::ToTarget;
use station::Place;
use station::PlaceError;

use crate::Error;
use crate::Transport;
use crate::limits::ADDRESSES_MAX;
use crate::limits::CONNECT_TIMEOUT;
use crate::limits::HEAD_START;

/// A connection that stands, and the portal that it goes to.
#[derive(Debug)]
pub struct Connected {
    /// The connection.
    pub line: Line,
    /// The other end; without an address 0.0.0.0, port 0.
    pub peer: SocketAddr,
    /// `host:port`, as it was asked for.
    pub portal: String,
}

impl Connected {
    /// Ours, then the peer's, as a capture shows them: a station has the address that IPv6 makes of
    /// its own, and we a port by a number that no other connection has now.
    pub(crate) fn ends(&self, transport: Transport) -> Option<(SocketAddr, SocketAddr)> {
        let Line::Stream(stream) = &self.line else { return None };
        if transport != Transport::Ether {
            return Some((stream.local_addr().ok()?, self.peer));
        }
        let place: Place = self.portal.parse().ok()?;
        let number = u16::try_from(stream.as_raw_fd()).unwrap_or(u16::MAX);
        let ours = SocketAddr::from((Ipv6Addr::UNSPECIFIED, FIRST_PRIVATE_PORT | number));
        Some((ours, SocketAddr::from((place.mac.link_local(), ISCSI_PORT))))
    }
}

/// Ports from there on belong to nobody (RFC 6335 §6).
const FIRST_PRIVATE_PORT: u16 = 0xc000;

/// By which programs know what a stream is.
const ISCSI_PORT: u16 = 3260;

/// What a connection goes over.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // a connector makes one of these
pub enum Line {
    /// TCP, or what is as good: a stream over frames.
    Stream(TcpStream),
    /// Messages, within this process.
    Local(LocalEnd),
    /// An RDMA adapter.
    Adapter(Box<dyn verbs::Adapter>),
}

/// The initiator's end of a local connection.
pub type LocalEnd = End<ToTarget, ToInitiator>;

/// A target in this process: where local connections come from.
///
/// ```
/// use std::sync::Arc;
///
/// use lunwire_initiator::Config;
/// use lunwire_initiator::LocalTarget;
/// use lunwire_initiator::Options;
/// use lunwire_initiator::Queue;
///
/// # let name = "iqn.2026-01.com.example:disks";
/// # let node = target::Node::new(name.to_owned(), Vec::new());
/// # let portal = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
/// # let plan = target::Plan::new(vec![portal], vec![node], target::Stores::new());
/// let server = Arc::new(target::Target::start(plan)?);
/// let way = Arc::clone(&server);
/// let way = LocalTarget::new(move || Ok(way.connect_local()));
///
/// let mut queue = Queue::new(&Config::default())?;
/// let session = queue.login(Options::within_process(way, Some(name.to_owned())))?;
/// queue.logout(session);
/// # server.stop(std::time::Duration::from_secs(2))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LocalTarget(Arc<dyn Fn() -> io::Result<LocalEnd> + Send + Sync>);

impl LocalTarget {
    /// `connect` makes another connection each time, without waiting for anything.
    pub fn new(connect: impl Fn() -> io::Result<LocalEnd> + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    /// Whether both are clones of one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for LocalTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalTarget")
    }
}

/// Connects to a target in this process.
pub(crate) fn within_process(target: &LocalTarget, waker: &Waker) -> Attempt {
    const HERE: &str = "local";
    let (result, attempt) = mpsc::channel();
    let peer = SocketAddr::from(([0, 0, 0, 0], 0));
    let connected = (target.0)()
        .map(|end| Connected { line: Line::Local(end), peer, portal: HERE.to_owned() })
        .map_err(|error| Error::unreachable(&[HERE.to_owned()], error.to_string()));
    // The receiver is here.
    let _ = result.send(connected);
    waker.wake();
    attempt
}

/// What comes of an attempt, once.
pub type Attempt = Receiver<Result<Connected, Error>>;

/// Makes the connections of a pump.
pub trait Connector: fmt::Debug {
    /// Connects to one of `portals`, or where none of them can be reached to one of `others`, by
    /// what carries `transport`; `waker` is called when the result is there.
    fn connect(
        &mut self,
        transport: Transport,
        portals: Vec<String>,
        others: Vec<String>,
        waker: Waker,
    ) -> Attempt;
}

/// Connects over TCP, RDMA adapters or raw Ethernet, by threads.
#[derive(Debug)]
pub(crate) struct Threads;

impl Connector for Threads {
    fn connect(
        &mut self,
        transport: Transport,
        portals: Vec<String>,
        others: Vec<String>,
        waker: Waker,
    ) -> Attempt {
        let (result, attempt) = mpsc::channel();
        let ask = result.clone();
        let spawned = thread::Builder::new().name("connect".into()).spawn(move || {
            let mut outcome = first_of(transport, &portals);
            if outcome.is_err() && !others.is_empty() {
                outcome = first_of(transport, &others);
            }
            let _ = ask.send(outcome);
            waker.wake();
        });
        if let Err(error) = spawned {
            // The port is awake: who asked looks at the attempt before it sleeps.
            let _ = result.send(Err(error.into()));
        }
        attempt
    }
}

/// Tries the first one, and soon all the others at once.
fn first_of(transport: Transport, portals: &[String]) -> Result<Connected, Error> {
    let (found, results) = mpsc::channel();
    let mut refused: Vec<Refusal> = Vec::new();
    let (named, others) = portals.split_at(portals.len().min(1));
    start(transport, named, &found);
    if !others.is_empty() {
        match results.recv_timeout(HEAD_START) {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(refusal)) => refused.push(refusal),
            Err(_) => {}
        }
        start(transport, others, &found);
    }
    drop(found);
    for result in results {
        match result {
            Ok(connected) => return Ok(connected),
            Err(refusal) if !refused.contains(&refusal) => refused.push(refusal),
            Err(_) => {}
        }
    }
    let system = match refused.as_slice() {
        [one] => one.system,
        _ => None,
    };
    let reasons: Vec<String> = refused.into_iter().map(|refusal| refusal.reason).collect();
    let reason =
        if reasons.is_empty() { "no address is known".to_owned() } else { reasons.join("; ") };
    Err(Error::unreachable_as(portals, reason, system))
}

/// Linux: connection timed out.
const ETIMEDOUT: i32 = 110;

/// Linux: device or resource busy. Somebody else has our interface, as long as it likes.
pub(crate) const EBUSY: i32 = 16;

/// Linux: operation not permitted. It will not be, either, while this process runs.
pub(crate) const EPERM: i32 = 1;

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: String,
    system: Option<i32>,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let system = match error.kind() {
            // Of a wait that this side ends.
            io::ErrorKind::TimedOut => Some(ETIMEDOUT),
            _ => error.raw_os_error(),
        };
        Self { reason: error.to_string(), system }
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self { reason, system: None }
    }
}

/// A name server that does not answer delays its own portal only. Threads that are not waited for
/// end by their time-out.
fn start(transport: Transport, portals: &[String], found: &Sender<Result<Connected, Refusal>>) {
    for portal in portals {
        let (portal, found) = (portal.clone(), found.clone());
        let _ = thread::Builder::new()
            .name("resolve".into())
            .spawn(move || try_portal(transport, &portal, &found));
    }
}

fn try_portal(transport: Transport, portal: &str, found: &Sender<Result<Connected, Refusal>>) {
    if transport == Transport::Ether {
        let peer = SocketAddr::from(([0, 0, 0, 0], 0));
        let line = line_to_station(portal);
        let _ = found.send(line.map(|line| Connected { line, peer, portal: portal.to_owned() }));
        return;
    }
    let addresses = match portal.to_socket_addrs() {
        Ok(addresses) => addresses.take(ADDRESSES_MAX),
        Err(error) => {
            let _ = found.send(Err(error.into()));
            return;
        }
    };
    for peer in addresses {
        let (portal, found) = (portal.to_owned(), found.clone());
        let _ = thread::Builder::new().name("connect".into()).spawn(move || {
            let line = line_to(peer, transport);
            let _ = found.send(line.map(|line| Connected { line, peer, portal }));
        });
    }
}

/// A stream over frames, whose end resets it: to its user it is one of TCP.
fn line_to_station(portal: &str) -> Result<Line, Refusal> {
    let place: Place = portal.parse().map_err(|error: PlaceError| error.to_string())?;
    let stream = station::connect(&place).map_err(|error| Refusal {
        system: match error.kind() {
            io::ErrorKind::ResourceBusy => Some(EBUSY),
            io::ErrorKind::PermissionDenied => Some(EPERM),
            _ => None,
        },
        reason: match error.kind() {
            // It says what helps.
            _ if error.get_ref().is_some_and(|inner| inner.to_string().contains("; try: ")) => {
                error.to_string()
            }
            io::ErrorKind::NotFound => format!("{error}; try: ip link"),
            _ => match station::advice(&error) {
                Some(advice) => format!("{error}: {advice}"),
                None => error.to_string(),
            },
        },
    })?;
    Ok(Line::Stream(TcpStream::from(stream)))
}

fn line_to(peer: SocketAddr, transport: Transport) -> Result<Line, Refusal> {
    if transport == Transport::Verbs {
        let asked = verbs::Outgoing::connect(peer, &iser::Initiator::ASKED, CONNECT_TIMEOUT);
        let stands = asked.map_err(|error| error.to_string())?;
        return Ok(Line::Adapter(Box::new(stands.into_connection())));
    }
    let result = TcpStream::connect_timeout(&peer, CONNECT_TIMEOUT).and_then(|stream| {
        engine::forget_unsent_at_close(&stream)?;
        Ok(stream)
    });
    Ok(Line::Stream(result?))
}
