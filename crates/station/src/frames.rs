// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a station's frames come from and go to.

use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use engine::links::Made;
use engine::packet::PacketSocket;
use engine::xdp::Copies;
use engine::xdp::Match;
use engine::xdp::XdpError;
use engine::xdp::XdpSocket;
use rustix::event::EventfdFlags;
use wire::ether::ConnectionId;
use wire::ether::ETHERTYPE;
use wire::ether::HEADER_LEN_MAX;
use wire::ether::Mac;
use wire::ether::TO_ACCEPTOR_BYTE;
use wire::ether::TO_BYTE;

use crate::Interface;
use crate::Way;
use crate::cable::End;
use crate::cable::Role;

/// An interface of the system, or the end of a cable.
#[derive(Debug)]
pub(crate) enum Frames {
    /// By AF_PACKET, and why not otherwise, if that was wanted.
    Interface(PacketSocket, Option<String>),
    /// By AF_XDP, and a socket for those that come at queues which the interface got later.
    Xdp(Box<XdpSocket>, Mark, Option<PacketSocket>),
    Cable(End),
    /// There are none yet. Nothing ever comes here.
    None(OwnedFd),
}

/// What the numbers of an opening station's connections begin with, so that frames which answer
/// them can be told from those for other stations at the same interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(Option<[u8; MARK_LEN]>);

/// Of 8 bytes; the others stay random.
const MARK_LEN: usize = 3;

impl Frames {
    pub(crate) fn open(interface: &Interface, role: Role) -> io::Result<Self> {
        let Interface { name, way } = interface;
        if let Some(end) = End::find(name, role) {
            return Ok(Self::Cable(end));
        }
        match way {
            Way::Packet => Ok(Self::Interface(PacketSocket::open(name, ETHERTYPE)?, None)),
            Way::Xdp => Self::xdp(name, role, Copies::Allowed).map_err(io_error),
            Way::Auto => Self::better_one(name, role),
        }
    }

    /// Of an interface that is waited for.
    pub(crate) fn none() -> io::Result<Self> {
        Ok(Self::None(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Those of an interface that is there again, for a process that may have given up rights to
    /// them since: better by packet sockets than not at all.
    pub(crate) fn again(interface: &Interface, role: Role) -> io::Result<Self> {
        match Self::open(interface, role) {
            Err(error)
                if interface.way == Way::Xdp && error.kind() == io::ErrorKind::PermissionDenied =>
            {
                let packet = PacketSocket::open(&interface.name, ETHERTYPE)?;
                Ok(Self::Interface(packet, Some(GIVEN_UP.into())))
            }
            opened => opened,
        }
    }

    /// What `bench/ether` has found to be as fast at least, where it has been tried.
    fn better_one(interface: &str, role: Role) -> io::Result<Self> {
        if let Some(why) = why_not_xdp(interface) {
            return Ok(Self::Interface(PacketSocket::open(interface, ETHERTYPE)?, Some(why)));
        }
        let why = match Self::xdp(interface, role, Copies::Refused) {
            Ok(found) => return Ok(found),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => Some(error.to_string()),
        };
        let packet = PacketSocket::open(interface, ETHERTYPE)?;
        let why = match why {
            Some(why) => why,
            None if !XdpSocket::takes_whole(packet.mtu()) => {
                "the driver takes no zero copy, without which frames of this length gain nothing"
                    .to_owned()
            }
            None => match Self::xdp(interface, role, Copies::Allowed) {
                Ok(Self::Xdp(socket, ..)) if !socket.is_by_driver() => {
                    "the driver runs no programs".to_owned()
                }
                Ok(found) => return Ok(found),
                Err(error) => error.to_string(),
            },
        };
        Ok(Self::Interface(packet, Some(why)))
    }

    fn xdp(interface: &str, role: Role, copies: Copies) -> Result<Self, XdpError> {
        let (mark, matches) = match role {
            Role::Takes => (Mark(None), vec![TO_ACCEPTOR]),
            Role::Opens => {
                let mark = Mark::draw();
                (mark, mark.matches())
            }
        };
        let socket = XdpSocket::open(interface, ETHERTYPE, &matches, copies)?;
        let beside = PacketSocket::open(interface, ETHERTYPE).ok();
        Ok(Self::Xdp(Box::new(socket), mark, beside))
    }

    pub(crate) const fn mac(&self) -> Mac {
        match self {
            Self::Interface(socket, _) => Mac(socket.mac()),
            Self::Xdp(socket, ..) => Mac(socket.mac()),
            Self::Cable(end) => end.mac(),
            Self::None(_) => Mac([0; 6]),
        }
    }

    pub(crate) const fn mtu(&self) -> usize {
        match self {
            Self::Interface(socket, _) => socket.mtu(),
            Self::Xdp(socket, ..) => socket.mtu(),
            Self::Cable(end) => end.mtu(),
            Self::None(_) => HEADER_LEN_MAX,
        }
    }

    /// Which way frames go, and why not another one.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Interface(_, None) => "packet".into(),
            Self::Interface(_, Some(why)) => format!("packet, not xdp: {why}"),
            Self::Xdp(socket, ..) => socket.to_string(),
            Self::Cable(_) => "cable".into(),
            Self::None(_) => GONE.into(),
        }
    }

    /// What connections that are opened here are called.
    pub(crate) const fn mark(&self) -> Mark {
        match self {
            Self::Xdp(_, mark, _) => *mark,
            Self::Interface(..) | Self::Cable(_) | Self::None(_) => Mark(None),
        }
    }

    /// Gives the frames to `take` that have come, `count` of them or some more; whether there may
    /// be more.
    pub(crate) fn receive(&mut self, count: usize, mut take: impl FnMut(&[u8])) -> bool {
        match self {
            Self::Interface(socket, _) => socket.receive(count, take),
            Self::Xdp(socket, _, beside) => {
                let more = socket.receive(count, &mut take);
                beside.as_mut().is_some_and(|beside| beside.receive(count, take)) || more
            }
            Self::Cable(end) => end.receive(count, take),
            Self::None(_) => false,
        }
    }

    /// Sends a frame that lies in pieces, some time before [`Frames::flush`] returns.
    pub(crate) fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        match self {
            Self::Interface(socket, _) => socket.send(pieces),
            Self::Xdp(socket, ..) => socket.send(pieces),
            Self::Cable(end) => {
                end.send(pieces);
                Ok(())
            }
            Self::None(_) => Ok(()),
        }
    }

    /// What was sent leaves. False: there is some that has not, and is to be tried again soon.
    pub(crate) fn flush(&mut self) -> bool {
        match self {
            Self::Xdp(socket, ..) => socket.flush(),
            Self::Interface(..) | Self::Cable(_) | Self::None(_) => true,
        }
    }

    /// What a wait was told is wrong, so that the next one is not; see
    /// [`PacketSocket::forget_error`].
    pub(crate) fn forget_error(&self) {
        match self {
            Self::Interface(socket, _) => socket.forget_error(),
            Self::Xdp(_, _, beside) => beside.iter().for_each(PacketSocket::forget_error),
            Self::Cable(_) | Self::None(_) => {}
        }
    }

    /// Whether they are still those of the interface, as far as a packet socket tells.
    pub(crate) fn are_attached(&self) -> bool {
        match self {
            Self::Interface(socket, _) => socket.is_attached(),
            Self::Xdp(_, _, beside) => beside.as_ref().is_none_or(PacketSocket::is_attached),
            Self::Cable(_) | Self::None(_) => true,
        }
    }

    /// What else is readable when frames have come.
    pub(crate) const fn beside(&self) -> Option<&PacketSocket> {
        match self {
            Self::Xdp(_, _, beside) => beside.as_ref(),
            Self::Interface(..) | Self::Cable(_) | Self::None(_) => None,
        }
    }

    /// It is writable when there is room for a frame; else nothing tells of that.
    pub(crate) const fn tells_of_room(&self) -> bool {
        !matches!(self, Self::Xdp(..))
    }
}

impl Mark {
    fn draw() -> Self {
        let mut bytes = [0; MARK_LEN];
        // Without random numbers no connection is opened, either.
        let _ = getrandom::fill(&mut bytes);
        Self(Some(bytes))
    }

    /// The number of a connection, which is random.
    pub(crate) fn on(self, id: ConnectionId) -> ConnectionId {
        let mut bytes = id.0.to_be_bytes();
        if let Self(Some(mark)) = self {
            bytes[..MARK_LEN].copy_from_slice(&mark);
        }
        // Zero is none.
        ConnectionId(u64::from_be_bytes(bytes).max(1))
    }

    /// Frames to the one that has opened, under such a number.
    fn matches(self) -> Vec<Match> {
        let mark = self.0.unwrap_or_default();
        let bytes = (TO_BYTE..).zip(mark);
        let of_mark = bytes.map(|(at, value)| Match { at, mask: 0xff, value });
        std::iter::once(Match { value: 0, ..TO_ACCEPTOR }).chain(of_mark).collect()
    }
}

/// Of a frame to a station that takes connections.
const TO_ACCEPTOR: Match =
    Match { at: TO_ACCEPTOR_BYTE.0, mask: TO_ACCEPTOR_BYTE.1, value: TO_ACCEPTOR_BYTE.1 };

/// Why `frames=auto` means packet sockets at `interface` without a look at its driver, if it does.
#[must_use]
pub fn why_not_xdp(interface: &str) -> Option<String> {
    untried(Made::of(interface))
}

/// Why nobody knows what AF_XDP does at an interface: it is neither a device nor what these are
/// tested with (veth, tap), or it carries what belongs to another one.
fn untried(made: io::Result<Made>) -> Option<String> {
    let Made { kind, part_of, .. } = match made {
        Ok(made) => made,
        Err(error) if error.raw_os_error() == Some(NODEV) => return None,
        Err(error) => return Some(format!("what the interface is made of is not told: {error}")),
    };
    let called = |kind: String| match kind.as_str() {
        "bond" => "a bond".to_owned(),
        "bridge" => "a bridge".to_owned(),
        "vlan" => "a VLAN".to_owned(),
        _ => format!("an interface of the kind {kind}"),
    };
    let is = match (kind, part_of) {
        (_, Some(whole)) => format!("it is part of {}", called(whole)),
        (Some(kind), None) if !TRIED.contains(&kind.as_str()) => format!("it is {}", called(kind)),
        _ => return None,
    };
    Some(format!("{is}, where AF_XDP is untested"))
}

/// What is told of one that is waited for.
pub(crate) const GONE: &str = "the interface is gone; one of its name is waited for";

/// By a sandbox, or with rights that were left.
const GIVEN_UP: &str =
    "this process has given up the right to it (bpf) since it began, and a restart has it again";

const NODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();

/// Kinds of interfaces that are no devices, and at which `interop/ether` has it.
const TRIED: [&str; 2] = ["veth", "tun"];

fn io_error(error: XdpError) -> io::Error {
    io::Error::new(error.kind(), error)
}

impl AsFd for Frames {
    /// Readable when frames have come; see [`Frames::tells_of_room`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Interface(socket, _) => socket.as_fd(),
            Self::Xdp(socket, ..) => socket.as_fd(),
            Self::Cable(end) => end.as_fd(),
            Self::None(fd) => fd.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::network::Network;

    use super::*;

    fn made(kind: Option<&str>, part_of: Option<&str>) -> io::Result<Made> {
        let mut made = Made::default();
        made.kind = kind.map(str::to_owned);
        made.part_of = part_of.map(str::to_owned);
        Ok(made)
    }

    #[test]
    fn interfaces_that_are_made_of_others_have_packet_sockets() {
        for (kind, part_of, why) in [
            (None, None, None),
            (Some("veth"), None, None),
            (Some("tun"), None, None),
            (Some("bond"), None, Some("it is a bond")),
            (None, Some("bond"), Some("it is part of a bond")),
            (Some("bridge"), None, Some("it is a bridge")),
            (Some("veth"), Some("bridge"), Some("it is part of a bridge")),
            (Some("vlan"), None, Some("it is a VLAN")),
            (Some("vlan"), Some("bond"), Some("it is part of a bond")),
            (Some("team"), None, Some("it is an interface of the kind team")),
        ] {
            let why = why.map(|why| format!("{why}, where AF_XDP is untested"));
            assert_eq!(untried(made(kind, part_of)), why);
        }
        let missing = io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error());
        assert_eq!(untried(Err(missing)), None, "that is told by who opens it");
        let unknown = untried(Err(io::ErrorKind::PermissionDenied.into()));
        let why = "what the interface is made of is not told: permission denied";
        assert_eq!(unknown.as_deref(), Some(why));
    }

    #[test]
    fn a_bridge_and_its_parts_have_packet_sockets() {
        let Ok(network) = Network::new() else {
            println!("skipped: no network of its own");
            return;
        };
        let ip = |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            let run = || std::process::Command::new("ip").args(words).status();
            network.within(run).unwrap().is_ok_and(|status| status.success())
        };
        let is_made = ip("link add v0 type veth peer name v1")
            && ip("link add b0 type bridge")
            && ip("link set v1 master b0")
            && ["v0", "v1", "b0"].iter().all(|name| ip(&format!("link set {name} up")));
        if !is_made {
            println!("skipped: no bridge");
            return;
        }
        let told = |name: &str| {
            let interface = Interface { name: name.into(), way: Way::Auto };
            network.within(|| Frames::open(&interface, Role::Takes).map(|one| one.told())).unwrap()
        };
        match told("v0") {
            Err(error) => println!("skipped: no packet socket: {error}"),
            Ok(veth) => {
                assert!(!veth.contains("untested"), "{veth}");
                let why = "where AF_XDP is untested";
                assert_eq!(told("b0").unwrap(), format!("packet, not xdp: it is a bridge, {why}"));
                let part = format!("packet, not xdp: it is part of a bridge, {why}");
                assert_eq!(told("v1").unwrap(), part);
            }
        }
    }
}
