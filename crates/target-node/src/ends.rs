// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two ends of a connection.

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;

use wire::ether::Mac;

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// Where it came from.
    pub(crate) peer: Peer,
    /// Where it came to.
    pub(crate) local: SocketAddr,
}

impl Ends {
    /// Ours, then the peer's, as a capture shows them; None where there are no bytes. A station has
    /// the address that IPv6 makes of its own, and a port by a number that no other connection has
    /// now.
    pub(crate) fn captured(self, number: u16) -> Option<(SocketAddr, SocketAddr)> {
        match self.peer {
            Peer::Address(peer) => Some((self.local, peer)),
            Peer::Station(mac) => {
                let ours = SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.local.port()));
                let theirs = SocketAddr::from((mac.link_local(), FIRST_PRIVATE_PORT | number));
                Some((ours, theirs))
            }
            Peer::Local => None,
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a peer has an address of some kind, or is in the same process
pub enum Peer {
    /// Somebody at an address.
    Address(SocketAddr),
    /// A station on an Ethernet.
    Station(Mac),
    /// Somebody in the process of the target.
    Local,
}

impl Peer {
    /// Where it counts among those who have not said who they are.
    pub(crate) const fn ip(self) -> IpAddr {
        match self {
            Self::Address(address) => address.ip(),
            // A network of its own: addresses that are not in use (RFC 6666), with its own behind.
            Self::Station(Mac([a, b, c, d, e, f])) => {
                let word = u16::from_be_bytes;
                let [first, second, third] = [word([a, b]), word([c, d]), word([e, f])];
                IpAddr::V6(Ipv6Addr::new(0x0100, first, second, third, 0, 0, 0, 0))
            }
            Self::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// An IPv4 peer of an IPv6 socket is shown as what it is.
    pub(crate) fn without_mapping(self) -> Self {
        match self {
            Self::Address(address) => Self::Address(without_mapping(address)),
            Self::Station(_) | Self::Local => self,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Station(mac) => mac.fmt(f),
            Self::Local => f.write_str("local"),
        }
    }
}

/// Ports from there on belong to nobody (RFC 6335 §6).
const FIRST_PRIVATE_PORT: u16 = 0xc000;

/// An address without the mapping of IPv4 into IPv6.
pub(crate) fn without_mapping(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
