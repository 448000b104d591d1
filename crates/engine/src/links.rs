// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel says of how an interface is made of others (rtnetlink(7)): of the network that
//! we are in, and by any of the names that it has.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::net::netlink::SocketAddrNetlink;

/// How an interface is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Made {
    /// Its kind in the kernel's word, such as `vlan`; None of one that is a device.
    pub kind: Option<String>,
    /// The kind of the one that it is part of, such as `bond`.
    pub part_of: Option<String>,
    /// It is up.
    pub is_up: bool,
    /// Its address, where that is one of Ethernet.
    pub mac: Option<[u8; 6]>,
}

impl Made {
    /// How `interface` is.
    ///
    /// # Errors
    /// There is none of this name, or the system does not say.
    pub fn of(interface: &str) -> io::Result<Self> {
        let fd = socket()?;
        let index = rustix::net::netdevice::name_to_index(&fd, interface)?;
        Self::asked(&fd, index)
    }

    /// The same of the one that has this number: another one of the same name has another.
    ///
    /// # Errors
    /// As [`Made::of`].
    pub fn numbered(index: u32) -> io::Result<Self> {
        Self::asked(&socket()?, index)
    }

    fn asked(fd: &OwnedFd, index: u32) -> io::Result<Self> {
        rustix::net::send(fd, &question(index), SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_BYTES];
        // The kernel has answered when what it was asked is sent.
        let (count, _) = rustix::net::recv(fd, &mut answer[..], RecvFlags::DONTWAIT)?;
        Self::parse(answer.get(..count).unwrap_or_default())
    }

    fn parse(message: &[u8]) -> io::Result<Self> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let kind = message.get(4..6).ok_or_else(malformed)?;
        let body = message.get(HEADER_LEN..).ok_or_else(malformed)?;
        if kind == ERROR.to_ne_bytes() {
            let number = body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
            return Err(io::Error::from_raw_os_error(number.saturating_neg()));
        }
        if kind != NEW_LINK.to_ne_bytes() {
            return Err(malformed());
        }
        let all = body.get(LINK_LEN..).ok_or_else(malformed)?;
        let flags = body.get(LINK_FLAGS..).and_then(|rest| rest.first_chunk());
        let flags = flags.map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let info = find(all, LINK_INFO).unwrap_or_default();
        let word = |kind| {
            let text = find(info, kind)?.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        Ok(Self {
            kind: word(INFO_KIND),
            part_of: word(INFO_PART_KIND),
            is_up: flags & IS_UP != 0,
            mac: find(all, ADDRESS).and_then(|bytes| bytes.try_into().ok()),
        })
    }
}

/// What the kernel tells by itself of interfaces that change.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Of those in the network that the calling thread is in.
    ///
    /// # Errors
    /// What the system says.
    pub fn open() -> io::Result<Self> {
        let fd = socket()?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, LINKS_GROUP))?;
        Ok(Self(fd))
    }

    /// Whether something was told of the interface with this number since it was asked last; true
    /// also where that is not known.
    #[must_use]
    pub fn has_news_of(&self, index: u32) -> bool {
        let mut message = vec![0; ANSWER_BYTES];
        let mut has_news = false;
        loop {
            match rustix::net::recv(&self.0, &mut message[..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => {
                    has_news |= is_of(message.get(..count).unwrap_or_default(), index);
                }
                Err(rustix::io::Errno::AGAIN) => return has_news,
                Err(rustix::io::Errno::INTR) => {}
                // It was told of more than there is room for.
                Err(rustix::io::Errno::NOBUFS) => has_news = true,
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for Watch {
    /// Readable when something was told.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether one that the kernel sent by itself is of this interface.
fn is_of(message: &[u8], index: u32) -> bool {
    let told = message.get(HEADER_LEN + LINK_INDEX..).and_then(|rest| rest.first_chunk());
    told.is_none_or(|bytes| u32::from_ne_bytes(*bytes) == index)
}

/// Length of `struct nlmsghdr`, of `struct ifinfomsg` and of the head of an attribute.
const HEADER_LEN: usize = 16;
const LINK_LEN: usize = 16;
const ATTRIBUTE_LEN: usize = 4;

/// Where the number and the flags are in `struct ifinfomsg`, and the one that says it is up
/// (IFF_UP).
const LINK_INDEX: usize = 4;
const LINK_FLAGS: usize = 8;
const IS_UP: u32 = 1;

/// RTMGRP_LINK (linux/rtnetlink.h).
const LINKS_GROUP: u32 = 1;

/// More than what is told of an interface; see `man 7 netlink`.
const ANSWER_BYTES: usize = 32 << 10;

/// RTM_GETLINK, RTM_NEWLINK, NLMSG_ERROR, NLM_F_REQUEST (linux/rtnetlink.h, linux/netlink.h).
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;

/// IFLA_LINKINFO, and within it IFLA_INFO_KIND and IFLA_INFO_SLAVE_KIND (linux/if_link.h).
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
/// IFLA_ADDRESS.
const ADDRESS: u16 = 1;
const INFO_PART_KIND: u16 = 4;

/// Without NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const KIND_MASK: u16 = 0x3fff;

/// The number of an interface, by any of its names.
///
/// # Errors
/// There is none of this name.
pub fn number(interface: &str) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(&socket()?, interface)?)
}

fn socket() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    // Without a protocol it is that of interfaces and routes.
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, None)?)
}

fn question(index: u32) -> [u8; HEADER_LEN + LINK_LEN] {
    let mut message = [0; HEADER_LEN + LINK_LEN];
    let len = u32::try_from(message.len()).unwrap_or(0);
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    message[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&index.to_ne_bytes());
    message
}

/// What the first attribute of this kind holds.
fn find(mut all: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (head, _) = all.split_first_chunk::<ATTRIBUTE_LEN>()?;
        let [a, b, c, d] = *head;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = all.get(ATTRIBUTE_LEN..len)?;
        if u16::from_ne_bytes([c, d]) & KIND_MASK == wanted {
            return Some(value);
        }
        all = all.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(ATTRIBUTE_LEN + value.len()).unwrap();
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn link(own: Option<&str>, part_of: Option<&str>) -> Vec<u8> {
        let text = |kind, word: &str| attribute(kind, &[word.as_bytes(), &[0]].concat());
        let info = [
            own.map(|word| text(INFO_KIND, word)),
            own.map(|_| attribute(2, &[1, 2, 3])),
            part_of.map(|word| text(INFO_PART_KIND, word)),
        ];
        let info = info.into_iter().flatten().flatten().collect::<Vec<_>>();
        let nested = attribute(LINK_INFO | 0x8000, &info);
        let all = [vec![0; LINK_LEN], text(3, "eth0.7"), nested, attribute(4, &[0; 4])].concat();
        message(NEW_LINK, &all)
    }

    #[test]
    fn an_interface_says_what_it_is_and_is_part_of() {
        for (own, part_of) in
            [(Some("vlan"), None), (Some("bond"), None), (None, Some("bond")), (None, None)]
        {
            let made = Made::parse(&link(own, part_of)).unwrap();
            assert_eq!((made.kind.as_deref(), made.part_of.as_deref()), (own, part_of));
        }
        let whole = link(Some("vlan"), Some("bridge"));
        for len in 0..whole.len() {
            let _ = Made::parse(&whole[..len]);
        }
        let none = message(ERROR, &(-libc::ENODEV).to_ne_bytes());
        assert_eq!(Made::parse(&none).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        Made::parse(&message(3, &[0; 64])).unwrap_err();
        // An attribute of no length is the last one.
        assert_eq!(find(&[0; 8], LINK_INFO), None);
    }

    #[test]
    fn the_kernel_says_it_of_interfaces_in_our_network() {
        let made = |network: &Network, words: &str| {
            let ip = || std::process::Command::new("ip").args(words.split(' ')).status();
            network.within(ip).unwrap().is_ok_and(|status| status.success())
        };
        let Ok(network) = Network::new() else {
            println!("skipped: no network of its own");
            return;
        };
        if !made(&network, "link add v0 type veth peer name v1") {
            println!("skipped: no interfaces");
            return;
        }
        let seen = |name: &str| {
            let Made { kind, part_of, .. } = network.within(|| Made::of(name)).unwrap().unwrap();
            (kind.unwrap_or_default(), part_of.unwrap_or_default())
        };
        assert_eq!(seen("lo"), ("".into(), "".into()));
        assert_eq!(seen("v0"), ("veth".into(), "".into()));
        if made(&network, "link add b0 type bridge") && made(&network, "link set v1 master b0") {
            assert_eq!(seen("b0"), ("bridge".into(), "".into()));
            assert_eq!(seen("v1"), ("veth".into(), "bridge".into()));
        }
        for (name, words, kind) in [
            ("bond7", "link add bond7 type bond", "bond"),
            ("v0.7", "link add link v0 name v0.7 type vlan id 7", "vlan"),
            ("m0", "link add link v0 name m0 type macvlan", "macvlan"),
        ] {
            match made(&network, words) {
                true => assert_eq!(seen(name).0, kind),
                false => println!("skipped: this kernel has no {kind}"),
            }
        }
        let is_up = || network.within(|| Made::of("v0")).unwrap().unwrap().is_up;
        assert!(!is_up() && made(&network, "link set v0 up") && is_up());
        let index = network.within(|| number("v0")).unwrap().unwrap();
        let watch = network.within(Watch::open).unwrap().unwrap();
        assert!(!watch.has_news_of(index));
        let mac = || network.within(|| Made::numbered(index)).unwrap().unwrap().mac;
        assert_ne!(mac(), Some([2, 0, 0, 0, 0, 9]));
        assert!(made(&network, "link set v0 address 02:00:00:00:00:09"));
        assert_eq!(mac(), Some([2, 0, 0, 0, 0, 9]));
        assert!(watch.has_news_of(index) && !watch.has_news_of(index), "once");
        assert!(made(&network, "link set lo up") && !watch.has_news_of(index), "of another");
        assert!(network.within(|| Made::numbered(index)).unwrap().is_ok());
        assert!(made(&network, "link del v0") && made(&network, "link add v0 type bridge"));
        let gone = network.within(|| Made::numbered(index)).unwrap().unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
        network.within(|| Made::of("nowhere0")).unwrap().unwrap_err();
    }
}
