// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets on the ring: accept, receive, send, and the end of all of them.

mod asking;

use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use buf::SgList;
use io_uring::cqueue;
use io_uring::opcode;
use io_uring::squeue;
use io_uring::types::CancelBuilder;
use io_uring::types::Fd;
use rustix::net::Shutdown;

use super::Uring;
use super::ring::BUFFER_GROUP;
use super::ring::Key;
use super::ring::Kind;
use crate::Chunk;
use crate::Event;
use crate::Landing;
use crate::Socket;
use crate::Token;
use crate::gather::Gather;
use crate::limits::ACCEPT_PAUSE;
use crate::limits::SHORT_RECEIVE_BYTES;
use crate::limits::SHORT_RECEIVES;
use crate::limits::SINGLE_RECEIVES;
use crate::monotonic;
use crate::sockets::acknowledged;
use crate::sockets::arrived;
use crate::sockets::ends;
use crate::sockets::segment_len;

/// A socket of the port. Its slot is free again when the kernel owes it nothing.
#[derive(Debug)]
pub(super) struct Sock {
    fd: OwnedFd,
    /// Submissions whose last completion has not come.
    owed: u32,
    accept: Option<Token>,
    receive: Option<Token>,
    watch: Option<Token>,
    armed: Armed,
    /// Receives that are still asked for one by one.
    single: u8,
    /// Turns of others since something came, while the port asks.
    misses: u8,
    /// Where the receive goes that is with the kernel, if not into a buffer of the port.
    landing: Option<Landing>,
    paused: bool,
    /// In the queue of those that wait for a buffer.
    starved: bool,
    send: Option<Box<Gather>>,
    /// Half-close after the send under way.
    shutdown: bool,
    /// To be given back as soon as the kernel owes it nothing.
    detach: Option<Token>,
    closing: bool,
}

/// Which receive of a socket is with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    /// None.
    No,
    /// None, until what the last one brought has been looked at: in the queue of those.
    Soon,
    /// One for all that comes.
    Multi,
    /// One for what comes next.
    Single,
    /// One into `landing`.
    Landing,
    /// None: the port asks the socket itself.
    Asked,
}

/// How often a receive that is left to the kernel brings something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shots {
    One,
    All,
}

impl Sock {
    pub(super) const fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            owed: 0,
            accept: None,
            receive: None,
            watch: None,
            armed: Armed::No,
            single: 0,
            misses: 0,
            landing: None,
            paused: false,
            starved: false,
            send: None,
            shutdown: false,
            detach: None,
            closing: false,
        }
    }

    /// Makes whatever is under way on a connection end soon. A listening socket is left: others
    /// may accept from it too. What is watched is none.
    pub(super) fn abort(&mut self) {
        self.closing = true;
        if self.accept.is_none() && self.watch.is_none() {
            let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
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

    /// Longest of the receives that are asked for one by one, which is counted.
    fn next_single(&mut self, buffer_bytes: usize) -> usize {
        let short = self.single > SINGLE_RECEIVES - SHORT_RECEIVES;
        self.single = self.single.saturating_sub(1);
        if short { SHORT_RECEIVE_BYTES } else { buffer_bytes }
    }

    fn is_sending(&self) -> bool {
        self.send.as_ref().is_some_and(|gather| gather.is_busy())
    }

    fn number(&self) -> Fd {
        Fd(self.fd.as_raw_fd())
    }
}

// Watching.
impl Uring {
    pub(super) fn submit_watch(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if !sock.closing && sock.watch.is_none() => sock.watch = Some(token),
            _ => {
                let event = Event::ReceiveEnded { error: Some(libc::EBADF) };
                return self.ready.push_back((token, event));
            }
        }
        self.arm_watch(index);
    }

    fn arm_watch(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        sock.owed += 1;
        let flags = u32::from(libc::POLLIN.unsigned_abs());
        let poll = opcode::PollAdd::new(sock.number(), flags).multi(true).build();
        self.ring.push(Key::new(Kind::Watch, index), poll);
    }

    pub(super) fn watch_completed(
        &mut self,
        index: usize,
        result: Result<usize, i32>,
        last: bool,
    ) -> Option<(Token, Event)> {
        let sock = self.sockets.get_mut(index)?;
        if last {
            sock.owed = sock.owed.saturating_sub(1);
        }
        if sock.closing {
            self.settle_closed(index);
            return None;
        }
        if let Err(errno) = result {
            return Some((sock.watch.take()?, Event::ReceiveEnded { error: Some(errno) }));
        }
        let token = sock.watch?;
        if last {
            self.arm_watch(index);
        }
        Some((token, Event::Ready))
    }
}

// Accepting.
impl Uring {
    pub(super) fn submit_accept(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if !sock.closing && sock.accept.is_none() => sock.accept = Some(token),
            _ => {
                let event = Event::AcceptFailed { errno: libc::EBADF };
                return self.ready.push_back((token, event));
            }
        }
        self.arm_accept(index);
    }

    pub(super) fn arm_accept(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        if sock.closing || sock.accept.is_none() {
            return;
        }
        sock.owed += 1;
        let accept = opcode::AcceptMulti::new(sock.number()).flags(libc::SOCK_CLOEXEC).build();
        self.ring.push(Key::new(Kind::Accept, index), accept);
    }

    pub(super) fn accept_completed(
        &mut self,
        index: usize,
        result: Result<usize, i32>,
        last: bool,
    ) -> Option<(Token, Event)> {
        let connection = result.and_then(own);
        let sock = self.sockets.get_mut(index)?;
        if last {
            sock.owed = sock.owed.saturating_sub(1);
        }
        if sock.closing {
            self.settle_closed(index);
            return None;
        }
        let token = sock.accept?;
        let errno = match connection {
            Ok(connection) => {
                if last {
                    self.arm_accept(index);
                }
                // Without a peer it is gone already.
                let (peer, local) = ends(&connection)?;
                return Some((token, Event::Accepted { connection, peer, local }));
            }
            Err(errno) => errno,
        };
        match errno {
            libc::EBADF | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTSOCK => sock.accept = None,
            libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
                self.resting.push_back((monotonic() + ACCEPT_PAUSE, index));
            }
            // A connection that was gone before it was accepted.
            _ => {
                self.arm_accept(index);
                return None;
            }
        }
        Some((token, Event::AcceptFailed { errno }))
    }
}

/// Takes over a descriptor that a completion carries.
fn own(number: usize) -> Result<OwnedFd, i32> {
    let number = i32::try_from(number).map_err(|_| libc::EBADF)?;
    // SAFETY: the kernel made this descriptor for this accept and told nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

// Receiving.
impl Uring {
    pub(super) fn submit_receive(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if !sock.closing && sock.receive.is_none() => sock.receive = Some(token),
            _ => {
                let event = Event::ReceiveEnded { error: Some(libc::EBADF) };
                return self.ready.push_back((token, event));
            }
        }
        self.arm_receive(index);
    }

    /// Asks for what arrives, unless that is asked for or not wanted now.
    pub(super) fn arm_receive(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        sock.starved = false;
        let wanted = sock.receive.is_some() && sock.detach.is_none();
        if sock.armed != Armed::No || sock.paused || sock.closing || !wanted {
            return;
        }
        match self.can_ask() {
            true => self.begin_asking(index),
            false => self.hand_receive(index, Shots::All),
        }
    }

    /// Leaves what comes to the kernel.
    fn hand_receive(&mut self, index: usize, shots: Shots) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        sock.owed += 1;
        let receive = if sock.single == 0 && shots == Shots::All {
            sock.armed = Armed::Multi;
            opcode::RecvMulti::new(sock.number(), BUFFER_GROUP).build()
        } else {
            sock.armed = Armed::Single;
            let bytes = sock.next_single(self.buffers.buffer_bytes());
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let receive = opcode::Recv::new(sock.number(), std::ptr::null_mut(), bytes);
            receive.buf_group(BUFFER_GROUP).build().flags(squeue::Flags::BUFFER_SELECT)
        };
        self.ring.push(Key::new(Kind::Receive, index), receive);
    }

    /// What the last receive of a socket brought has been looked at.
    pub(super) fn receive_next(&mut self, index: usize) {
        if let Some(sock) = self.sockets.get_mut(index)
            && sock.armed == Armed::Soon
        {
            sock.armed = Armed::No;
            self.arm_receive(index);
        }
    }

    /// See `Port::land`. A multishot receive takes all that comes: the first landing that finds one
    /// ends it, so that the next one comes in time.
    pub(super) fn land_on(&mut self, index: usize, landing: Landing) -> Option<Landing> {
        let Some(sock) = self.sockets.get_mut(index) else { return Some(landing) };
        if sock.closing || sock.detach.is_some() {
            return Some(landing);
        }
        match sock.armed {
            Armed::Soon | Armed::Asked if !sock.paused => {}
            Armed::Multi if sock.single == 0 => {
                sock.single = SINGLE_RECEIVES;
                self.cancel_receive(index);
                return Some(landing);
            }
            _ => return Some(landing),
        }
        let number = sock.number();
        let landing = sock.landing.insert(landing);
        let room = landing.buf.get_mut(landing.at..landing.end).unwrap_or_default();
        let bytes = u32::try_from(room.len()).unwrap_or(u32::MAX);
        let flags = libc::MSG_WAITALL;
        let receive = opcode::Recv::new(number, room.as_mut_ptr(), bytes).flags(flags).build();
        sock.armed = Armed::Landing;
        sock.single = SINGLE_RECEIVES;
        sock.owed += 1;
        self.ring.push(Key::new(Kind::Receive, index), receive);
        None
    }

    pub(super) fn receive_completed(
        &mut self,
        index: usize,
        result: Result<usize, i32>,
        flags: u32,
    ) -> Option<(Token, Event)> {
        let chunk = cqueue::buffer_select(flags).map(|id| {
            self.buffers.taken();
            self.buffers.chunk(id, result.unwrap_or(0))
        });
        let last = !cqueue::more(flags);
        let sock = self.sockets.get_mut(index)?;
        let armed = sock.armed;
        if last {
            sock.armed = Armed::No;
            sock.owed = sock.owed.saturating_sub(1);
        }
        if sock.closing {
            self.settle_closed(index);
            return None;
        }
        let token = sock.receive?;
        let event = match armed {
            Armed::Landing => self.landed(index, token, result),
            _ => self.received(index, token, result, (armed, last), chunk),
        };
        self.before_detached(index, event)
    }

    /// The buffer goes back first, whatever happened to the connection.
    fn landed(
        &mut self,
        index: usize,
        token: Token,
        result: Result<usize, i32>,
    ) -> Option<(Token, Event)> {
        let sock = self.sockets.get_mut(index)?;
        let Landing { buf, .. } = sock.landing.take()?;
        let event = (token, Event::Landed { buf, bytes: result.unwrap_or(0) });
        let error = match result {
            Ok(0) => None,
            Ok(_) | Err(libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {
                self.receive_soon(index);
                return Some(event);
            }
            Err(errno) => Some(errno),
        };
        sock.receive = None;
        self.ready.push_back(event);
        Some((token, Event::ReceiveEnded { error }))
    }

    fn receive_soon(&mut self, index: usize) {
        if let Some(sock) = self.sockets.get_mut(index) {
            sock.armed = Armed::Soon;
            self.single.push(index);
        }
    }

    fn received(
        &mut self,
        index: usize,
        token: Token,
        result: Result<usize, i32>,
        (armed, last): (Armed, bool),
        chunk: Option<Chunk>,
    ) -> Option<(Token, Event)> {
        let sock = self.sockets.get_mut(index)?;
        match result {
            Ok(0) => {
                sock.receive = None;
                Some((token, Event::ReceiveEnded { error: None }))
            }
            Ok(_) => {
                // What was cancelled may have been worked on just then.
                let unwanted = sock.paused || sock.detach.is_some();
                if last && armed == Armed::Single {
                    self.receive_soon(index);
                } else if last {
                    self.arm_receive(index);
                } else if unwanted || self.can_ask() {
                    self.cancel_receive(index);
                }
                chunk.map(|bytes| (token, Event::Received { bytes }))
            }
            Err(libc::ENOBUFS) => {
                if !sock.starved && sock.detach.is_none() {
                    sock.starved = true;
                    self.starved.push_back(index);
                }
                None
            }
            Err(libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {
                self.arm_receive(index);
                None
            }
            Err(errno) => {
                sock.receive = None;
                Some((token, Event::ReceiveEnded { error: Some(errno) }))
            }
        }
    }

    pub(super) fn pause_socket(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        if !sock.paused {
            sock.paused = true;
            // What lands goes to a buffer that waits for it.
            if matches!(sock.armed, Armed::Multi | Armed::Single) {
                self.cancel_receive(index);
            }
        }
    }

    fn cancel_receive(&mut self, index: usize) {
        let target = Key::new(Kind::Receive, index).user_data();
        let cancel = opcode::AsyncCancel::new(target).build();
        self.ring.push(Key::new(Kind::Pause, index), cancel);
    }

    pub(super) fn resume_socket(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        sock.paused = false;
        if !sock.starved {
            self.arm_receive(index);
        }
    }
}

// Sending.
impl Uring {
    pub(super) fn submit_send(&mut self, token: Token, socket: Socket, list: SgList) {
        let index = socket.0 as usize;
        let refused = match self.sockets.get_mut(index) {
            Some(sock) if sock.closing => Err(libc::EBADF),
            Some(sock) if sock.is_sending() => Err(libc::EALREADY),
            Some(sock) if sock.shutdown => Err(libc::EPIPE),
            Some(_) if list.is_empty() => Ok(()),
            Some(sock) => {
                sock.send.get_or_insert_with(Gather::new).start(token, list);
                return self.push_send(index);
            }
            None => Err(libc::EBADF),
        };
        self.ready.push_back((token, Event::Sent { list, result: refused }));
    }

    fn push_send(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        let number = sock.number();
        let Some(gather) = &mut sock.send else { return };
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL).unsigned_abs();
        let send = opcode::SendMsg::new(number, gather.header()).flags(flags).build();
        sock.owed += 1;
        self.ring.push(Key::new(Kind::Send, index), send);
    }

    pub(super) fn send_completed(
        &mut self,
        index: usize,
        result: Result<usize, i32>,
    ) -> Option<(Token, Event)> {
        let sock = self.sockets.get_mut(index)?;
        sock.owed = sock.owed.saturating_sub(1);
        let gather = sock.send.as_mut()?;
        let result = match result {
            Ok(0) => Err(libc::EIO),
            Ok(bytes) => {
                gather.advance(bytes);
                Ok(())
            }
            Err(libc::EINTR | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(errno),
        };
        let left = gather.remaining();
        if sock.closing {
            let result = if left == 0 { result } else { Err(libc::ECANCELED) };
            if let Some((token, list)) = gather.finish() {
                self.ready.push_back((token, Event::Sent { list, result }));
            }
            self.settle_closed(index);
            return None;
        }
        if result.is_ok() && left > 0 {
            self.push_send(index);
            return None;
        }
        let (token, list) = gather.finish()?;
        if sock.shutdown {
            let _ = rustix::net::shutdown(&sock.fd, Shutdown::Write);
        }
        self.before_detached(index, Some((token, Event::Sent { list, result })))
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
impl Uring {
    pub(super) fn submit_detach(&mut self, token: Token, socket: Socket) {
        let index = socket.0 as usize;
        match self.sockets.get_mut(index) {
            Some(sock) if !sock.closing && sock.detach.is_none() && sock.accept.is_none() => {
                sock.detach = Some(token);
                if sock.starved {
                    sock.starved = false;
                    self.starved.retain(|other| *other != index);
                } else if !matches!(sock.armed, Armed::No | Armed::Soon | Armed::Asked) {
                    self.cancel_receive(index);
                }
            }
            _ => return self.ready.push_back((token, Event::Detached { connection: None })),
        }
        self.settle_detached(index);
    }

    /// Lets an event of a socket come before the socket is given back.
    fn before_detached(
        &mut self,
        index: usize,
        event: Option<(Token, Event)>,
    ) -> Option<(Token, Event)> {
        if self.sockets.get(index).is_none_or(|sock| sock.detach.is_none()) {
            return event;
        }
        self.ready.extend(event);
        self.settle_detached(index);
        None
    }

    /// Gives a socket back that the kernel owes nothing.
    fn settle_detached(&mut self, index: usize) {
        let Some(sock) = self.sockets.get(index) else { return };
        let Some(token) = sock.detach.filter(|_| sock.owed == 0 && !sock.closing) else { return };
        let sock = self.sockets.remove(index);
        self.ready.push_back((token, Event::Detached { connection: Some(sock.fd) }));
    }
}

// Closing.
impl Uring {
    pub(super) fn close_socket(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        if sock.closing {
            return;
        }
        sock.closing = true;
        if sock.starved {
            sock.starved = false;
            self.starved.retain(|other| *other != index);
        }
        self.resting.retain(|(_, other)| *other != index);
        if sock.owed > 0 {
            self.cancel_all(index);
        } else {
            self.settle_closed(index);
        }
    }

    fn cancel_all(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        sock.owed += 1;
        let all = CancelBuilder::fd(sock.number()).all();
        self.ring.push(Key::new(Kind::Cancel, index), opcode::AsyncCancel2::new(all).build());
    }

    /// `cancelled` of the socket's submissions will end soon.
    pub(super) fn cancel_completed(&mut self, index: usize, cancelled: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        sock.owed = sock.owed.saturating_sub(1);
        if sock.owed as usize > cancelled {
            // What was being worked on at that moment was not found.
            sock.abort();
            if sock.accept.is_some() || sock.watch.is_some() {
                return self.cancel_all(index);
            }
        }
        self.settle_closed(index);
    }

    /// Gives a closed socket up when the kernel owes it nothing, with the last events of its work.
    fn settle_closed(&mut self, index: usize) {
        if self.sockets.get(index).is_none_or(|sock| sock.owed > 0) {
            return;
        }
        let sock = self.sockets.remove(index);
        if let Some(token) = sock.accept {
            let event = Event::AcceptFailed { errno: libc::ECANCELED };
            self.ready.push_back((token, event));
        }
        for token in sock.receive.into_iter().chain(sock.watch) {
            let event = Event::ReceiveEnded { error: Some(libc::ECANCELED) };
            self.ready.push_back((token, event));
        }
        if let Some(token) = sock.detach {
            self.ready.push_back((token, Event::Detached { connection: None }));
        }
    }
}
