// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets of an epoll port: accept, receive, send, and when to be told of what.

use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use buf::SgList;
use rustix::event::epoll;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::SocketFlags;

use super::Epoll;
use crate::Event;
use crate::Socket;
use crate::Token;
use crate::gather::Gather;
use crate::limits::ACCEPT_BUDGET;
use crate::limits::ACCEPT_PAUSE;
use crate::limits::RECEIVE_BUDGET_BYTES;
use crate::monotonic;
use crate::sockets::acknowledged;
use crate::sockets::arrived;
use crate::sockets::ends;
use crate::sockets::segment_len;

/// A socket of the port.
#[derive(Debug)]
pub(super) struct Sock {
    fd: OwnedFd,
    accept: Option<Token>,
    receive: Option<Token>,
    watch: Option<Token>,
    paused: bool,
    /// In the queue of those that wait for a buffer.
    starved: bool,
    /// Accepts nothing until its pause is over.
    resting: bool,
    send: Option<Box<Gather>>,
    /// Half-close after the send under way.
    shutdown: bool,
    /// To be given back when its send is over.
    detach: Option<Token>,
    /// What epoll was told to report; empty: not registered, since epoll would report a hang-up
    /// that nobody wants to hear of for ever.
    interest: EventFlags,
}

impl Sock {
    pub(super) const fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            accept: None,
            receive: None,
            watch: None,
            paused: false,
            starved: false,
            resting: false,
            send: None,
            shutdown: false,
            detach: None,
            interest: EventFlags::empty(),
        }
    }

    /// Bytes that the peer has acknowledged.
    pub(super) fn acknowledged(&self) -> Option<u64> {
        acknowledged(&self.fd)
    }

    /// Bytes that have come.
    pub(super) fn arrived(&self) -> Option<u64> {
        arrived(&self.fd)
    }

    /// Longest segment that is sent now.
    pub(super) fn segment_len(&self) -> Option<usize> {
        segment_len(&self.fd)
    }

    fn is_sending(&self) -> bool {
        self.send.as_ref().is_some_and(|gather| gather.is_busy())
    }

    fn wants(&self) -> EventFlags {
        let mut wants = EventFlags::empty();
        let receives =
            self.receive.is_some() && !self.paused && !self.starved && self.detach.is_none();
        if receives || (self.accept.is_some() && !self.resting) {
            wants |= EventFlags::IN;
        }
        if self.watch.is_some() {
            // What is there is told once: it is read elsewhere.
            wants |= EventFlags::IN | EventFlags::ET;
        }
        if self.is_sending() {
            wants |= EventFlags::OUT;
        }
        wants
    }
}

impl Epoll {
    /// Tells epoll what the socket wants to hear now.
    fn update(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        let wants = sock.wants();
        if wants == sock.interest {
            return;
        }
        let data = epoll::EventData::new_u64(index as u64);
        let told = if wants.is_empty() {
            epoll::delete(&self.epoll, &sock.fd)
        } else if sock.interest.is_empty() {
            epoll::add(&self.epoll, &sock.fd, data, wants)
        } else {
            epoll::modify(&self.epoll, &sock.fd, data, wants)
        };
        match told {
            Ok(()) => sock.interest = wants,
            Err(errno) => self.fail(index, errno),
        }
    }

    /// The socket is closed or cannot be watched: its work ends, but for accepting when there is
    /// no memory or too much is watched, which may pass.
    fn fail(&mut self, index: usize, errno: Errno) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        if let Some(token) = sock.accept {
            let passes = matches!(errno, Errno::NOMEM | Errno::NOSPC);
            // What epoll cannot watch at all is no socket.
            let reported = if errno == Errno::PERM { Errno::NOTSOCK } else { errno };
            if passes {
                sock.resting = true;
                self.resting.push_back((monotonic() + ACCEPT_PAUSE, index));
            } else {
                sock.accept = None;
            }
            let event = Event::AcceptFailed { errno: reported.raw_os_error() };
            self.ready.push_back((token, event));
        }
        let errno = errno.raw_os_error();
        for token in sock.receive.take().into_iter().chain(sock.watch.take()) {
            self.ready.push_back((token, Event::ReceiveEnded { error: Some(errno) }));
        }
        if let Some((token, list)) = sock.send.as_mut().and_then(|gather| gather.finish()) {
            self.ready.push_back((token, Event::Sent { list, result: Err(errno) }));
        }
    }

    /// Epoll says that something can be done. Errors and hang-ups are found by doing it.
    pub(super) fn reported(&mut self, index: usize, flags: EventFlags) {
        let Some(sock) = self.sockets.get(index) else { return };
        if let Some(token) = sock.watch {
            return self.ready.push_back((token, Event::Ready));
        }
        let trouble = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let (accepts, sends) = (sock.accept.is_some() && !sock.resting, sock.is_sending());
        let receives = sock.wants().contains(EventFlags::IN) && !accepts;
        if sends && (trouble || flags.contains(EventFlags::OUT)) {
            self.continue_send(index);
        }
        if trouble || flags.contains(EventFlags::IN) {
            if accepts {
                self.accept(index);
            } else if receives {
                self.receive(index);
            }
        }
    }
}

// Watching.
impl Epoll {
    pub(super) fn submit_watch(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if sock.watch.is_none() => sock.watch = Some(token),
            _ => {
                let event = Event::ReceiveEnded { error: Some(libc::EBADF) };
                return self.ready.push_back((token, event));
            }
        }
        self.update(index);
    }
}

// Accepting.
impl Epoll {
    pub(super) fn submit_accept(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if sock.accept.is_none() => sock.accept = Some(token),
            _ => {
                let event = Event::AcceptFailed { errno: libc::EBADF };
                return self.ready.push_back((token, event));
            }
        }
        self.update(index);
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPT_BUDGET {
            let Some(sock) = self.sockets.get_mut(index) else { return };
            let Some(token) = sock.accept else { return };
            match rustix::net::accept_with(&sock.fd, SocketFlags::CLOEXEC) {
                Ok(connection) => {
                    // Without a peer it is gone already.
                    if let Some((peer, local)) = ends(&connection) {
                        let event = Event::Accepted { connection, peer, local };
                        self.ready.push_back((token, event));
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(errno @ (Errno::BADF | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTSOCK)) => {
                    sock.accept = None;
                    let event = Event::AcceptFailed { errno: errno.raw_os_error() };
                    self.ready.push_back((token, event));
                    return self.update(index);
                }
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    sock.resting = true;
                    self.resting.push_back((monotonic() + ACCEPT_PAUSE, index));
                    let event = Event::AcceptFailed { errno: errno.raw_os_error() };
                    self.ready.push_back((token, event));
                    return self.update(index);
                }
                // A connection that was gone before it was accepted.
                Err(_) => {}
            }
        }
    }

    /// The pause of a listening socket is over.
    pub(super) fn rested(&mut self, index: usize) {
        if let Some(sock) = self.sockets.get_mut(index) {
            sock.resting = false;
        }
        self.update(index);
    }
}

// Receiving.
impl Epoll {
    pub(super) fn submit_receive(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if sock.receive.is_none() => sock.receive = Some(token),
            _ => {
                let event = Event::ReceiveEnded { error: Some(libc::EBADF) };
                return self.ready.push_back((token, event));
            }
        }
        self.update(index);
    }

    /// Receives until there is no more, or it is the turn of others.
    fn receive(&mut self, index: usize) {
        let mut budget = RECEIVE_BUDGET_BYTES;
        loop {
            let Some(sock) = self.sockets.get_mut(index) else { return };
            let Some(token) = sock.receive else { return };
            let Some(id) = self.buffers.take() else {
                sock.starved = true;
                self.starved.push_back(index);
                return self.update(index);
            };
            let size = self.buffers.buffer_bytes();
            let address = self.buffers.address(id);
            // SAFETY: the buffer was taken from the stack just now, so nobody else has it, and it
            // is `size` bytes long.
            let got = unsafe { libc::recv(sock.fd.as_raw_fd(), address.cast(), size, 0) };
            // Given back by its drop unless it becomes an event.
            let chunk = self.buffers.chunk(id, usize::try_from(got).unwrap_or(0));
            match usize::try_from(got) {
                Ok(0) => return self.receive_ended(index, None),
                Ok(bytes) => {
                    self.ready.push_back((token, Event::Received { bytes: chunk }));
                    budget = budget.saturating_sub(bytes);
                    if bytes < size || budget < size {
                        return;
                    }
                }
                Err(_) => match last_errno() {
                    libc::EINTR => {}
                    libc::EAGAIN => return,
                    errno => return self.receive_ended(index, Some(errno)),
                },
            }
        }
    }

    fn receive_ended(&mut self, index: usize, error: Option<i32>) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        if let Some(token) = sock.receive.take() {
            self.ready.push_back((token, Event::ReceiveEnded { error }));
        }
        self.update(index);
    }

    /// There may be a buffer for a starved socket.
    pub(super) fn feed(&mut self, index: usize) {
        if let Some(sock) = self.sockets.get_mut(index) {
            sock.starved = false;
        }
        self.update(index);
    }

    pub(super) fn pause_socket(&mut self, index: usize) {
        self.set_paused(index, true);
    }

    pub(super) fn resume_socket(&mut self, index: usize) {
        self.set_paused(index, false);
    }

    fn set_paused(&mut self, index: usize, paused: bool) {
        if let Some(sock) = self.sockets.get_mut(index) {
            sock.paused = paused;
        }
        self.update(index);
    }
}

// Sending.
impl Epoll {
    pub(super) fn submit_send(&mut self, token: Token, socket: Socket, list: SgList) {
        let index = socket.0 as usize;
        let refused = match self.sockets.get_mut(index) {
            Some(sock) if sock.is_sending() => Err(libc::EALREADY),
            Some(sock) if sock.shutdown => Err(libc::EPIPE),
            Some(_) if list.is_empty() => Ok(()),
            Some(sock) => {
                sock.send.get_or_insert_with(Gather::new).start(token, list);
                return self.continue_send(index);
            }
            None => Err(libc::EBADF),
        };
        self.ready.push_back((token, Event::Sent { list, result: refused }));
    }

    /// Sends until all is sent or the socket takes no more now.
    fn continue_send(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        let Some(gather) = &mut sock.send else { return };
        let mut result = Ok(());
        while gather.remaining() > 0 {
            let (fd, header) = (sock.fd.as_raw_fd(), gather.header());
            // SAFETY: the header and what it points to belong to the gather and its list, which
            // live and are not changed during the call; the kernel only reads them.
            let sent = unsafe { libc::sendmsg(fd, header, libc::MSG_NOSIGNAL) };
            match usize::try_from(sent) {
                Ok(0) => result = Err(libc::EIO),
                Ok(bytes) => gather.advance(bytes),
                Err(_) => match last_errno() {
                    libc::EINTR => {}
                    libc::EAGAIN => return self.update(index),
                    errno => result = Err(errno),
                },
            }
            if result.is_err() {
                break;
            }
        }
        if let Some((token, list)) = gather.finish() {
            self.ready.push_back((token, Event::Sent { list, result }));
        }
        if sock.shutdown {
            let _ = rustix::net::shutdown(&sock.fd, Shutdown::Write);
        }
        self.update(index);
        self.settle_detached(index);
    }

    pub(super) fn shutdown_socket(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        if !sock.shutdown {
            sock.shutdown = true;
            if !sock.is_sending() {
                // A peer that is gone needs no end of stream.
                let _ = rustix::net::shutdown(&sock.fd, Shutdown::Write);
            }
        }
    }
}

// Giving back.
impl Epoll {
    pub(super) fn submit_detach(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if sock.detach.is_none() && sock.accept.is_none() => {
                sock.detach = Some(token);
            }
            _ => return self.ready.push_back((token, Event::Detached { connection: None })),
        }
        self.starved.retain(|other| *other != index);
        self.update(index);
        self.settle_detached(index);
    }

    /// Gives a socket back that has nothing under way.
    fn settle_detached(&mut self, index: usize) {
        let Some(sock) = self.sockets.get(index) else { return };
        let Some(token) = sock.detach.filter(|_| !sock.is_sending()) else { return };
        let sock = self.sockets.remove(index);
        if !sock.interest.is_empty() {
            let _ = epoll::delete(&self.epoll, &sock.fd);
        }
        self.ready.push_back((token, Event::Detached { connection: Some(sock.fd) }));
    }
}

// Closing.
impl Epoll {
    pub(super) fn close_socket(&mut self, index: usize) {
        if !self.sockets.contains(index) {
            return;
        }
        self.starved.retain(|other| *other != index);
        self.resting.retain(|(_, other)| *other != index);
        self.fail(index, Errno::CANCELED);
        if let Some(token) = self.sockets.get(index).and_then(|sock| sock.detach) {
            self.ready.push_back((token, Event::Detached { connection: None }));
        }
        let sock = self.sockets.remove(index);
        if !sock.interest.is_empty() {
            // Another process may hold the same socket: closing alone would not end the reports.
            let _ = epoll::delete(&self.epoll, &sock.fd);
        }
    }
}

fn last_errno() -> i32 {
    crate::filework::errno_of(&std::io::Error::last_os_error())
}
