// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a station's frames come from and go to.

use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use engine::packet::PacketSocket;
use engine::xdp::Copies;
use engine::xdp::Match;
use engine::xdp::XdpError;
use engine::xdp::XdpSocket;
use wire::ether::ConnectionId;
use wire::ether::ETHERTYPE;
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

    /// What `bench/ether` has found to be as fast at least.
    fn better_one(interface: &str, role: Role) -> io::Result<Self> {
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
        }
    }

    pub(crate) const fn mtu(&self) -> usize {
        match self {
            Self::Interface(socket, _) => socket.mtu(),
            Self::Xdp(socket, ..) => socket.mtu(),
            Self::Cable(end) => end.mtu(),
        }
    }

    /// Which way frames go, and why not another one.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Interface(_, None) => "packet".into(),
            Self::Interface(_, Some(why)) => format!("packet, not xdp: {why}"),
            Self::Xdp(socket, ..) => socket.to_string(),
            Self::Cable(_) => "cable".into(),
        }
    }

    /// What connections that are opened here are called.
    pub(crate) const fn mark(&self) -> Mark {
        match self {
            Self::Xdp(_, mark, _) => *mark,
            Self::Interface(..) | Self::Cable(_) => Mark(None),
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
        }
    }

    /// What was sent leaves. False: there is some that has not, and is to be tried again soon.
    pub(crate) fn flush(&mut self) -> bool {
        match self {
            Self::Xdp(socket, ..) => socket.flush(),
            Self::Interface(..) | Self::Cable(_) => true,
        }
    }

    /// What a wait was told is wrong, so that the next one is not; see
    /// [`PacketSocket::forget_error`].
    pub(crate) fn forget_error(&self) {
        match self {
            Self::Interface(socket, _) => socket.forget_error(),
            Self::Xdp(_, _, beside) => beside.iter().for_each(PacketSocket::forget_error),
            Self::Cable(_) => {}
        }
    }

    /// What else is readable when frames have come.
    pub(crate) const fn beside(&self) -> Option<&PacketSocket> {
        match self {
            Self::Xdp(_, _, beside) => beside.as_ref(),
            Self::Interface(..) | Self::Cable(_) => None,
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
        }
    }
}
