// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on a network interface past the network stack (AF_XDP), beside [`crate::packet`].
//!
//! ```text
//!  interface -> program -> fill ring -> frame in our memory -> rx ring -> reader
//!                  |                                               (chunk back to the fill ring)
//!                  +-> not ours: the network stack, as without us
//!  writer -> one copy into our memory -> tx ring -> interface -> completion ring -> chunk is free
//! ```
//!
//! A driver that takes it reads and writes our memory itself (zero copy); else the kernel copies
//! each frame between its own buffer and our memory, once a direction (copy mode).

mod program;
mod queue;
mod ring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::net::AddressFamily;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::net::xdp::SocketAddrXdp;

use crate::limits::XDP_QUEUES_MAX;
use crate::netdevice;

use program::Attached;
use program::Program;
use program::Sockets;
use queue::QUEUE;
use queue::Queue;
use queue::Shape;
use queue::Step;

/// Sockets for whole frames, Ethernet's header included: one for each queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    // Before what it gives frames to.
    attached: Attached,
    queues: Vec<Queue>,
    /// Of several queues: readable when one of them is.
    any: Option<OwnedFd>,
    mac: [u8; 6],
    mtu: usize,
}

/// A byte that a frame must have, under a mask, to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // what a comparison needs
pub struct Match {
    /// Its place in the frame, Ethernet's header included.
    pub at: u8,
    /// The bits that count.
    pub mask: u8,
    /// What they are.
    pub value: u8,
}

/// Whether the kernel may copy frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum Copies {
    /// Where the driver does not read and write our memory itself.
    Allowed,
    /// Then there is no socket (`Unsupported`), and no program was at the interface.
    Refused,
}

/// Why there is no socket, and what helps.
#[derive(Debug, thiserror::Error)]
#[error("AF_XDP at {interface}: {step}: {cause}; try: {advice}")]
pub struct XdpError {
    interface: String,
    step: &'static str,
    advice: String,
    cause: io::Error,
}

impl XdpError {
    /// Of what kind it is.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }
}

impl XdpSocket {
    /// Frames of `ethertype` that come to us on `interface` and for which `matches` hold, from now
    /// on. Nobody else gets these frames; all others go their way.
    ///
    /// # Errors
    /// There is no such interface, it is no Ethernet, has a program of somebody else or too many
    /// queues; the kernel has no AF_XDP; or we may not (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF).
    pub fn open(
        interface: &str,
        ethertype: u16,
        matches: &[Match],
        copies: Copies,
    ) -> Result<Self, XdpError> {
        let advice = Advice(interface);
        let (family, kind) = (AddressFamily::XDP, SocketType::RAW);
        let open = || rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
        let first = open().map_err(advice.to("a socket of AF_XDP"))?;
        // One of AF_XDP answers no questions about interfaces.
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let asks = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(advice.to("the interface"))?;
        let index = rustix::net::netdevice::name_to_index(&asks, interface)
            .map_err(advice.to("the interface"))?;
        let asked = netdevice::facts(&asks, interface);
        let (mac, mtu) = asked.map_err(advice.to("the interface"))?;
        let count = netdevice::receive_queues(&asks, interface).map_err(advice.to(QUEUES))?;
        if count > XDP_QUEUES_MAX {
            let text = format!("it has {count}, and {XDP_QUEUES_MAX} is the most");
            return Err(advice.of(QUEUES, io::Error::other(text)));
        }
        let shape = Shape::of(mtu);
        let mut fds = vec![first];
        for _ in 1..count {
            fds.push(open().map_err(advice.to("a socket of AF_XDP"))?);
        }
        let sockets = Sockets::new(count).map_err(advice.to("a map of sockets (bpf)"))?;
        let mut queues = Vec::new();
        for (number, fd) in (0..count).zip(fds) {
            let at = SocketAddrXdp::new(shape.flags(copies), index, number);
            let queue = Queue::open(fd, &at, shape)
                .map_err(|Step(step, source)| advice.of(step, source))?;
            sockets.set(number, queue.fd.as_fd()).map_err(advice.to("a map of sockets (bpf)"))?;
            queues.push(queue);
        }
        let any = (count > 1).then(|| any_of(&queues)).transpose();
        let any = any.map_err(advice.to("a wait for all queues"))?;
        let all = all_matches(mac, ethertype, matches);
        let program = Program::load(&all, &sockets, shape.in_pieces);
        let program = program.map_err(advice.to("the program for the interface (bpf)"))?;
        let attached = program.attach(index).map_err(advice.to("the program at the interface"))?;
        Ok(Self { attached, queues, any, mac, mtu })
    }

    /// Whether this process may have one, whatever the interface.
    ///
    /// # Errors
    /// What the system says.
    pub fn examine() -> io::Result<()> {
        let (family, kind) = (AddressFamily::XDP, SocketType::RAW);
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        Sockets::new(1)?;
        Ok(())
    }

    /// Whether a frame lies in one piece where an interface has this `mtu`.
    #[must_use]
    pub fn takes_whole(mtu: usize) -> bool {
        !Shape::of(mtu).in_pieces
    }

    /// The address of the interface.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Bytes that a frame may have behind Ethernet's header, as the interface was set.
    #[must_use]
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    /// The driver reads and writes our memory itself, at all queues.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.queues.iter().all(|queue| queue.is_zero_copy)
    }

    /// The driver runs the program; else the kernel does, behind it.
    #[must_use]
    pub const fn is_by_driver(&self) -> bool {
        self.attached.by_driver
    }

    /// Queues of the interface.
    #[must_use]
    pub const fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Gives the frames to `take` that have come, at most `count` of each queue; whether there may
    /// be more.
    pub fn receive(&mut self, count: usize, mut take: impl FnMut(&[u8])) -> bool {
        let mut more = false;
        for queue in &mut self.queues {
            more |= queue.receive(count, &mut take);
        }
        more
    }

    /// Sends a frame that lies in pieces, some time before [`XdpSocket::flush`] returns.
    ///
    /// # Errors
    /// `WouldBlock`: not now; nothing tells when, but it is soon. `InvalidInput`: it is too long.
    /// Others: it is lost.
    pub fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let first = self.queues.first_mut().ok_or(io::ErrorKind::NotConnected)?;
        first.send(pieces)
    }

    /// What was sent leaves. False: not all of it has, and nothing tells when it can.
    pub fn flush(&mut self) -> bool {
        self.queues.first_mut().is_none_or(Queue::flush)
    }
}

impl AsFd for XdpSocket {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let first = self.queues.first().map(|queue| &queue.fd);
        let fd = self.any.as_ref().or(first);
        fd.expect("an interface has a queue").as_fd()
    }
}

impl fmt::Display for XdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copies = if self.is_zero_copy() { "zero copy" } else { "copy mode" };
        let place = if self.is_by_driver() { "in the driver" } else { "generic" };
        write!(f, "xdp, {copies}, {place}")?;
        match self.queues() {
            1 => Ok(()),
            queues => write!(f, ", {queues} queues"),
        }
    }
}

/// Says what failed, and what helps.
struct Advice<'a>(&'a str);

impl Advice<'_> {
    fn to<E: Into<io::Error>>(&self, step: &'static str) -> impl Fn(E) -> XdpError {
        move |error| self.of(step, error.into())
    }

    fn of(&self, step: &'static str, cause: io::Error) -> XdpError {
        let Self(interface) = self;
        let advice = match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "as root, or with CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (setcap, \
                 AmbientCapabilities, --cap-add)"
                    .into()
            }
            Some(libc::ENODEV) => "ip link".into(),
            Some(libc::EAFNOSUPPORT | libc::ENOSYS) => {
                "a kernel with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL, or frames=packet".into()
            }
            Some(libc::EBUSY | libc::EEXIST) => format!(
                "ip link set dev {interface} xdp off, if that is not needed, or frames=packet"
            ),
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                "a higher limit of locked memory (ulimit -l), or frames=packet".into()
            }
            Some(libc::EINVAL | libc::EOPNOTSUPP) if step == QUEUE => {
                format!("ip link set {interface} mtu 1500 or Linux 6.6, or frames=packet")
            }
            _ if step == QUEUES => {
                format!("ethtool -L {interface} combined {XDP_QUEUES_MAX}, or frames=packet")
            }
            _ => "frames=packet".into(),
        };
        XdpError { interface: (*interface).to_owned(), step, advice, cause }
    }
}

const QUEUES: &str = "the queues of the interface";

/// What a frame must have: our address, the kind, and what else is asked for.
fn all_matches(mac: [u8; 6], ethertype: u16, matches: &[Match]) -> Vec<Match> {
    let [high, low] = ethertype.to_be_bytes();
    let [a, b, c, d, e, f] = mac;
    let front = [(12, high), (13, low), (0, a), (1, b), (2, c), (3, d), (4, e), (5, f)];
    let front = front.into_iter().map(|(at, value)| Match { at, mask: 0xff, value });
    front.chain(matches.iter().copied()).collect()
}

/// What is readable when a queue is.
fn any_of(queues: &[Queue]) -> io::Result<OwnedFd> {
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for queue in queues {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&any, &queue.fd, data, epoll::EventFlags::IN)?;
    }
    Ok(any)
}
