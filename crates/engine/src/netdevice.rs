// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel says of a network interface (netdevice(7)). Not of sysfs, which shows the
//! interfaces of the network namespace that it was mounted in.

use std::io;
use std::num::NonZeroI32;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::ptr;

/// Its address and the most that a frame carries.
pub(crate) fn facts(fd: &OwnedFd, interface: &str) -> io::Result<([u8; 6], usize)> {
    let mut request = request(interface);
    ask(fd, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel has filled this member (netdevice(7)), and any bytes are one.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&address.sa_family) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it is no Ethernet"));
    }
    let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte.to_ne_bytes()[0]);
    ask(fd, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: as above.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(([a, b, c, d, e, f], usize::try_from(mtu).unwrap_or(0)))
}

/// How many queues take frames in; 1 of a device that does not count them.
pub(crate) fn receive_queues(fd: &OwnedFd, interface: &str) -> io::Result<u32> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request = request(interface);
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    match ask(fd, SIOCETHTOOL, &mut request) {
        Ok(()) => Ok(channels.receive.saturating_add(channels.combined).max(1)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}

/// `struct ethtool_channels` (linux/ethtool.h).
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

fn request(interface: &str) -> libc::ifreq {
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru };
    // A longer name is none, and the system has said so; the last byte stays zero.
    let name = interface.bytes().take(libc::IFNAMSIZ - 1);
    for (place, byte) in request.ifr_name.iter_mut().zip(name) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request
}

/// JUSTIFICATION: rustix knows names and numbers of interfaces, and nothing else of them.
fn ask(fd: &OwnedFd, question: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the kernel reads a name and writes an answer within the request, which is ours
    // alone, or within what it points to, which its caller has.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), question, ptr::from_mut(request)) };
    done(result)
}

pub(crate) fn done(result: i32) -> io::Result<()> {
    NonZeroI32::new(result).map_or(Ok(()), |_| Err(io::Error::last_os_error()))
}
