// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that the service manager has left open in this process (sd_listen_fds(3)).

use std::net::SocketAddr;
use std::net::TcpListener;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use rustix::io::FdFlags;
use rustix::net::SocketType;
use rustix::net::sockopt;

/// The first one (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;

/// More are left alone: a manager that means more than so many is a mistake.
const COUNT_MAX: RawFd = 1024;

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Those of the first `count` descriptors behind the standard ones at which somebody listens over
/// TCP, with their addresses. There are none any more at the second call.
///
/// JUSTIFICATION: they are known by their numbers alone, and no safe call makes a descriptor of a
/// number. `listenfd` does the same with less looking.
#[must_use]
pub fn left_open(count: i32) -> Vec<(SocketAddr, OwnedFd)> {
    if IS_TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let sockets = (FIRST..FIRST + count.clamp(0, COUNT_MAX)).filter_map(|number| {
        // SAFETY: fcntl(2) with F_GETFD changes nothing, whatever the number is.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            return None;
        }
        // SAFETY: it is open. It was so before this process began, as whoever calls us was told by
        // the manager, so that nothing here has got this number from the system; and nobody was
        // given it by us before, since we come here once.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        listening(socket)
    });
    sockets.collect()
}

fn listening(socket: OwnedFd) -> Option<(SocketAddr, OwnedFd)> {
    let is_stream = sockopt::socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
    if !is_stream || !sockopt::socket_acceptconn(&socket).unwrap_or(false) {
        return None;
    }
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC).ok()?;
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().ok()?;
    Some((address, listener.into()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_socket_that_listens_is_told_from_others() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("it has one");
        let found = listening(listener.into()).expect("it listens");
        assert_eq!(found.0, at);
        assert!(listening(File::open("/dev/null").expect("it is there").into()).is_none());
        let connected = std::net::TcpStream::connect(at).expect("somebody listens");
        assert!(listening(connected.into()).is_none());
    }
}
