// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receiving at our own pace: while waits are short, the port asks its sockets itself.
//!
//! A receive that the kernel has is woken by each segment, and takes the socket's lock just when
//! the peer's segments need it. A port that spins has the time to look: it takes once in a turn all
//! that has come meanwhile. Before it sleeps the kernel has all receives.

use std::io;
use std::os::fd::AsRawFd;

use super::Armed;
use super::Shots;
use super::Uring;
use crate::Event;
use crate::filework::errno_of;
use crate::limits::ASKED_MAX;
use crate::limits::ASKED_MISSES_MAX;

/// What came of asking a socket.
enum Answer {
    Asked,
    /// It is to be asked no more.
    Over,
}

impl Uring {
    /// Whether one more socket may be asked.
    pub(super) fn can_ask(&self) -> bool {
        self.spin.budget_ns() > 0 && self.asked.len() < ASKED_MAX && self.buffers.has_spare()
    }

    pub(super) fn begin_asking(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        sock.armed = Armed::Asked;
        sock.misses = 0;
        self.asked.push(index);
    }

    /// Takes what has come at the sockets that are asked.
    pub(in crate::uring) fn ask(&mut self) {
        let mut at = 0;
        while let Some(index) = self.asked.get(at).copied() {
            match self.ask_socket(index) {
                Answer::Asked => at += 1,
                Answer::Over => {
                    self.asked.swap_remove(at);
                }
            }
        }
    }

    fn ask_socket(&mut self, index: usize) -> Answer {
        // Its slot may have a new tenant, which is no worse to ask.
        let Some(sock) = self.sockets.get_mut(index) else { return Answer::Over };
        if sock.armed != Armed::Asked {
            return Answer::Over;
        }
        let Some(token) = sock.receive.filter(|_| !sock.paused && !sock.closing) else {
            sock.armed = Armed::No;
            return Answer::Over;
        };
        let Some(id) = self.buffers.take_spare() else {
            self.hand_receive(index, Shots::One);
            return Answer::Over;
        };
        let before = sock.single;
        let bytes = sock.next_single(self.buffers.buffer_bytes());
        let (fd, address) = (sock.fd.as_raw_fd(), self.buffers.address(id).cast());
        // SAFETY: the buffer was taken from the spare ones just now, so neither the kernel's ring
        // nor anybody else has it, and `bytes` is at most its length.
        let got = unsafe { libc::recv(fd, address, bytes, libc::MSG_DONTWAIT) };
        let error = match usize::try_from(got) {
            Ok(0) => None,
            Ok(bytes) => {
                sock.misses = 0;
                let bytes = self.buffers.chunk(id, bytes);
                self.ready.push_back((token, Event::Received { bytes }));
                return Answer::Asked;
            }
            Err(_) => Some(errno_of(&io::Error::last_os_error())),
        };
        self.buffers.put_spare(id);
        if let Some(libc::EAGAIN | libc::EINTR) = error {
            sock.single = before;
            return Answer::Asked;
        }
        sock.armed = Armed::No;
        sock.receive = None;
        self.ready.push_back((token, Event::ReceiveEnded { error }));
        Answer::Over
    }

    /// A turn brought something. A socket that had nothing in many of them is not worth the calls.
    pub(in crate::uring) fn count_misses(&mut self) {
        let mut at = 0;
        while let Some(index) = self.asked.get(at).copied() {
            let Some(sock) = self.sockets.get_mut(index) else {
                self.asked.swap_remove(at);
                continue;
            };
            sock.misses = sock.misses.saturating_add(1);
            if sock.misses < ASKED_MISSES_MAX {
                at += 1;
            } else {
                self.asked.swap_remove(at);
                self.leave_to_kernel(index);
            }
        }
    }

    /// The port is about to sleep.
    pub(in crate::uring) fn stop_asking(&mut self) {
        while let Some(index) = self.asked.pop() {
            self.leave_to_kernel(index);
        }
    }

    /// One receive: what it brings shows that it is worth asking again.
    fn leave_to_kernel(&mut self, index: usize) {
        let Some(sock) = self.sockets.get_mut(index) else { return };
        if sock.armed == Armed::Asked {
            sock.armed = Armed::No;
            if sock.receive.is_some() && !sock.paused && !sock.closing {
                self.hand_receive(index, Shots::One);
            }
        }
    }
}
