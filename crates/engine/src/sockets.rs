// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets as the ports want them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::net::sockopt;

use crate::limits::LISTEN_BACKLOG;
use crate::limits::RELEASE_PATIENCE;
use crate::limits::RELEASE_PAUSE;
use crate::limits::WINDOW_MIN;

/// A listening TCP socket at `address`; port 0 lets the system choose.
///
/// An IPv6 address takes IPv6 connections alone, so that both families can have the same port.
///
/// # Errors
///
/// What socket(2), bind(2) and listen(2) say: the address is in use and stays so for
/// [`RELEASE_PATIENCE`], is not of this machine, or needs a privilege.
pub fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = unbound(address)?;
    let begin = Instant::now();
    loop {
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if begin.elapsed() < RELEASE_PATIENCE => {
                thread::sleep(RELEASE_PAUSE);
            }
            bound => break bound?,
        }
    }
    rustix::net::listen(&socket, LISTEN_BACKLOG)?;
    Ok(socket)
}

/// Whether [`listen`] could have `address`, as far as can be seen without listening; who has its
/// port now does not count.
///
/// # Errors
///
/// What socket(2) and bind(2) say: it is not of this machine, or needs a privilege.
pub fn examine_address(mut address: SocketAddr) -> io::Result<()> {
    // Only a port of the privileged is bound itself, since nothing else tells who is privileged:
    // with any other one a program that starts at this moment could fail to get it.
    if address.port() >= first_port_of_all() {
        address.set_port(0);
    }
    match rustix::net::bind(unbound(address)?, &address) {
        Ok(()) | Err(Errno::ADDRINUSE) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn unbound(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// The first port that needs no privilege, in both families.
fn first_port_of_all() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

/// Whether calls on a socket wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// io_uring waits itself, and would not on a non-blocking socket.
    Blocking,
    NonBlocking,
}

/// Sets what a socket of a port needs. Options that a socket does not know are left: it works
/// without them.
pub(crate) fn prepare(fd: &OwnedFd, mode: Mode) {
    let _ = rustix::io::ioctl_fionbio(fd, mode == Mode::NonBlocking);
    let _ = sockopt::set_tcp_nodelay(fd, true);
    // From one that listens it would come to those that nobody has accepted, whom nobody reads.
    if !sockopt::socket_acceptconn(fd).unwrap_or_default() {
        let _ = widen(fd);
    }
    // Pacing of BBR, which some systems default to, costs a quarter of the throughput within a
    // host and gains nothing there.
    if let (Ok(local), Some(peer)) = (rustix::net::getsockname(fd), peer(fd))
        && peer.ip().is_loopback()
        && SocketAddr::try_from(local).is_ok_and(|local| local.ip().is_loopback())
    {
        let _ = sockopt::set_tcp_congestion(fd, "cubic");
    }
}

/// Lets a connection of TCP have [`WINDOW_MIN`] on its way from the beginning. The system widens a
/// receive buffer only while its reader is the quicker one, and leaves it at a fraction of what the
/// commands of a session carry where the reader is the slower one. A buffer that is set
/// (SO_RCVBUF) would never grow beyond that, and is bounded by net.core.rmem_max; asking to be told
/// of so much only widens it, within net.ipv4.tcp_rmem, and reserves nothing.
fn widen(fd: &OwnedFd) -> io::Result<()> {
    for bytes in [WINDOW_MIN, 1] {
        set_receive_low(fd, bytes)?;
    }
    Ok(())
}

/// See socket(7), SO_RCVLOWAT.
///
/// JUSTIFICATION: no library has it, see [`widen`].
fn set_receive_low(fd: &OwnedFd, bytes: i32) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of_val(&bytes)).unwrap_or_default();
    let value = (&raw const bytes).cast();
    // SAFETY: the kernel reads `len` bytes from `value`, which `bytes` has.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// From now on the end of a connection takes what has not left with it: without that the system
/// goes on sending for a program that is gone. Who ends one in order shuts it down first.
///
/// # Errors
/// What the system says.
pub fn forget_unsent_at_close(connection: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(connection, Some(Duration::ZERO))?)
}

/// The address at the other end; None if there is none, or no longer.
pub(crate) fn peer(fd: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getpeername(fd).ok().flatten().and_then(|any| SocketAddr::try_from(any).ok())
}

/// Bytes that the peer's system has acknowledged; None if this one does not say so.
pub(crate) fn acknowledged(fd: &OwnedFd) -> Option<u64> {
    carried(fd).map(|[acknowledged, _]| acknowledged)
}

/// Bytes that have come, read or not; None if this system does not say so.
pub(crate) fn arrived(fd: &OwnedFd) -> Option<u64> {
    carried(fd).map(|[_, arrived]| arrived)
}

/// Longest segment that is sent now, in bytes without headers; None if this system does not say so.
pub(crate) fn segment_len(fd: &OwnedFd) -> Option<usize> {
    /// `tcpi_snd_mss` of tcp_info (linux/tcp.h): behind eight bytes and two words.
    const AT: usize = 8 + 2 * 4;
    let length = *info(fd)?.get(AT..)?.first_chunk()?;
    usize::try_from(u32::from_ne_bytes(length)).ok()
}

/// Bytes that the peer's system has acknowledged, and those that have come.
fn carried(fd: &OwnedFd) -> Option<[u64; 2]> {
    let numbers: [u8; 16] = *info(fd)?.last_chunk()?;
    let (acknowledged, rest) = numbers.split_first_chunk()?;
    Some([u64::from_ne_bytes(*acknowledged), u64::from_ne_bytes(*rest.first_chunk()?)])
}

/// Where `tcpi_bytes_acked` of tcp_info (linux/tcp.h) is, behind which `tcpi_bytes_received` comes:
/// eight bytes, 24 words, and two numbers of eight bytes before it.
const CARRIED_AT: usize = 8 + 24 * 4 + 2 * 8;

/// What the system knows of a connection of TCP.
///
/// JUSTIFICATION: no library has TCP_INFO; without it a slow line cannot be told from a dead one,
/// and FPDUs of iWARP not be cut to segments.
fn info(fd: &OwnedFd) -> Option<[u8; CARRIED_AT + 16]> {
    let mut info = [0_u8; CARRIED_AT + 16];
    let room = libc::socklen_t::try_from(info.len()).ok()?;
    let mut len = room;
    // SAFETY: the kernel writes at most `len` bytes (tcp(7)), which `info` has.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0 && len == room).then_some(info)
}

/// Both ends of a connection, the other one first; None if it is gone.
pub(crate) fn ends(fd: impl AsFd) -> Option<(SocketAddr, SocketAddr)> {
    let local = rustix::net::getsockname(&fd).ok()?;
    Some((peer(&fd)?, SocketAddr::try_from(local).ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::net::TcpStream;

    use super::*;

    /// Those that nobody has accepted inherit what a listening socket may hold.
    #[test]
    fn what_waits_to_be_accepted_holds_no_more_than_the_system_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = OwnedFd::from(listener);
        let before = sockopt::socket_recv_buffer_size(&fd).unwrap();
        prepare(&fd, Mode::NonBlocking);
        assert_eq!(sockopt::socket_recv_buffer_size(&fd).unwrap(), before);
    }

    #[test]
    fn both_families_can_have_one_port() {
        let v4 = TcpListener::from(listen("0.0.0.0:0".parse().unwrap()).unwrap());
        let port = v4.local_addr().unwrap().port();
        let Ok(v6) = listen(SocketAddr::new("::".parse().unwrap(), port)) else {
            println!("skipped: no IPv6 here");
            return;
        };
        assert_eq!(TcpListener::from(v6).local_addr().unwrap().port(), port);
    }

    #[test]
    fn connections_within_the_host_are_prepared() {
        let listener = TcpListener::from(listen("127.0.0.1:0".parse().unwrap()).unwrap());
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, from) = listener.accept().unwrap();
        let fd = OwnedFd::from(server);
        prepare(&fd, Mode::NonBlocking);
        assert!(sockopt::tcp_nodelay(&fd).unwrap());
        let most = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
        let most: usize = most.split_whitespace().nth(2).unwrap().parse().unwrap();
        let wanted = usize::try_from(WINDOW_MIN).unwrap().min(most / 2);
        assert!(sockopt::socket_recv_buffer_size(&fd).unwrap() >= wanted, "{wanted} may come");
        assert_eq!(sockopt::tcp_congestion(&fd).unwrap(), "cubic");
        assert_eq!(peer(&fd), Some(from));
        assert_eq!(client.local_addr().unwrap(), from);
        assert!(rustix::fs::fcntl_getfl(&fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        prepare(&fd, Mode::Blocking);
        assert!(!rustix::fs::fcntl_getfl(&fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    }

    #[test]
    fn what_a_connection_has_carried_is_known() {
        let listener = TcpListener::from(listen("127.0.0.1:0".parse().unwrap()).unwrap());
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let fd = OwnedFd::from(server.try_clone().unwrap());
        let before = acknowledged(&fd).unwrap();
        server.write_all(&[1; 10_000]).unwrap();
        let end = Instant::now() + RELEASE_PATIENCE;
        while acknowledged(&fd).unwrap() - before < 10_000 && Instant::now() < end {
            thread::sleep(RELEASE_PAUSE);
        }
        assert_eq!(acknowledged(&fd).unwrap() - before, 10_000, "though nobody has read");
        assert_eq!(arrived(&fd), Some(0));
        assert_eq!(arrived(&OwnedFd::from(client)), Some(10_000), "though nobody has read");
        assert!(segment_len(&fd).is_some_and(|length| (500..1 << 16).contains(&length)));
        let other = std::os::unix::net::UnixStream::pair().unwrap().0;
        let other = OwnedFd::from(other);
        let told = (acknowledged(&other), arrived(&other), segment_len(&other));
        assert_eq!(told, (None, None, None));
    }

    #[test]
    fn a_port_that_is_given_back_soon_is_waited_for() {
        let first = TcpListener::from(listen("127.0.0.1:0".parse().unwrap()).unwrap());
        let address = first.local_addr().unwrap();
        let holder = thread::spawn(move || {
            thread::sleep(10 * RELEASE_PAUSE);
            drop(first);
        });
        let second = listen(address).map(TcpListener::from).unwrap();
        assert_eq!(second.local_addr().unwrap(), address);
        holder.join().unwrap();
    }

    #[test]
    fn a_look_at_an_address_takes_nothing() {
        let taken = TcpListener::from(listen("127.0.0.1:0".parse().unwrap()).unwrap());
        for address in [taken.local_addr().unwrap(), "127.0.0.1:0".parse().unwrap()] {
            examine_address(address).unwrap();
        }
        let far = examine_address("192.0.2.1:3260".parse().unwrap()).unwrap_err();
        assert_eq!(far.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_taken_port_is_an_error() {
        let first = TcpListener::from(listen("127.0.0.1:0".parse().unwrap()).unwrap());
        let error = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
