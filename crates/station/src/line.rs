// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection between a stream over Ethernet and the socket of its user.

use std::io;
use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use clock::Instant;
use ether::Endpoint;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::net::SendFlags;
use wire::ether::ConnectionId;

/// A connection that stands.
pub(crate) struct Line {
    stream: UnixStream,
    /// The user may have sent something.
    has_more: bool,
    /// The user sends no more.
    has_ended: bool,
    /// The user was told that the peer sends no more.
    was_told: bool,
    /// The user has closed its end.
    is_left: bool,
}

impl Line {
    /// # Errors
    /// The socket cannot be had as it is to be.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (has_more, has_ended, was_told, is_left) = (true, false, false, false);
        Ok(Self { stream, has_more, has_ended, was_told, is_left })
    }

    pub(crate) const fn is_left(&self) -> bool {
        self.is_left
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What is waited for; None where a hang-up would be told of for ever.
    pub(crate) fn polled(&self, id: ConnectionId, endpoint: &mut Endpoint) -> Option<PollFd<'_>> {
        if self.is_left || self.has_ended && self.was_told {
            return None;
        }
        let mut of_line = PollFlags::empty();
        let may_take = !self.has_ended && !self.has_more && !endpoint.room(id).is_empty();
        of_line.set(PollFlags::IN, may_take);
        of_line.set(PollFlags::OUT, !endpoint.readable(id).is_empty());
        Some(PollFd::new(&self.stream, of_line))
    }

    /// What poll(2) has told of it.
    pub(crate) fn hear(&mut self, told: PollFlags) {
        let gone = told.intersects(PollFlags::HUP | PollFlags::ERR);
        self.has_more |= gone || told.contains(PollFlags::IN);
        self.is_left |= gone && !self.was_told;
    }

    /// Both ways.
    pub(crate) fn carry(&mut self, id: ConnectionId, endpoint: &mut Endpoint, now: Instant) {
        self.give(id, endpoint, now);
        self.take(id, endpoint, now);
    }

    /// What the user sends goes into the stream, as long as there is room.
    fn take(&mut self, id: ConnectionId, endpoint: &mut Endpoint, now: Instant) {
        while self.has_more && !self.has_ended {
            let room = endpoint.room(id);
            if room.is_empty() {
                return;
            }
            match self.stream.read(room) {
                Ok(0) => {
                    self.has_ended = true;
                    endpoint.finish(id, now);
                }
                Ok(bytes) => endpoint.filled(id, bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.has_more = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It was closed with something unread.
                Err(_) => (self.has_ended, self.is_left) = (true, true),
            }
        }
    }

    /// What has come goes to the user, as long as there is room.
    fn give(&mut self, id: ConnectionId, endpoint: &mut Endpoint, now: Instant) {
        loop {
            let bytes = endpoint.readable(id);
            if bytes.is_empty() || self.is_left {
                break;
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.stream, bytes, flags) {
                Ok(count) => endpoint.consume(id, count, now),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                // What it has sent before that is still there; nobody tells of it any more.
                Err(_) => (self.is_left, self.has_more) = (true, true),
            }
        }
        if !self.was_told && endpoint.is_at_end(id) {
            self.was_told = true;
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use std::io::Write;

    use wire::ether::Mac;

    use super::*;

    /// What `from` has to send goes to `to`, which accepts what it is asked for.
    fn pass(from: &mut Endpoint, to: &mut Endpoint, now: Instant) {
        while let Some(out) = from.poll_transmit(now) {
            let [first, second] = out.payload;
            let frame = [out.header.bytes(), first, second].concat();
            if let Some(asked) = to.handle_frame(Mac([2, 0, 0, 0, 0, 1]), &frame, now) {
                to.accept(asked, ConnectionId(2), now);
            }
        }
    }

    /// Its socket may tell of that first when bytes that have come are given to it.
    #[test]
    fn who_closes_while_bytes_come_is_left() {
        let now = Instant(1);
        let peer = Mac([2, 0, 0, 0, 0, 1]);
        let (mut opener, mut taker) = (Endpoint::new(1400), Endpoint::new(1400).accepting());
        assert!(opener.open(peer, ConnectionId(1), now));
        for _ in 0..2 {
            pass(&mut opener, &mut taker, now);
            pass(&mut taker, &mut opener, now);
        }
        opener.room(ConnectionId(1))[..4].copy_from_slice(b"come");
        opener.filled(ConnectionId(1), 4);
        pass(&mut opener, &mut taker, now);
        let id = ConnectionId(2);
        assert_eq!(taker.readable(id), b"come");
        let (stream, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"last words").unwrap();
        drop(theirs);
        let mut line = Line { has_more: false, ..Line::new(stream).unwrap() };
        line.carry(id, &mut taker, now);
        assert!(line.is_left && line.has_ended, "nobody would ever look at it again");
        pass(&mut taker, &mut opener, now);
        assert_eq!(opener.readable(ConnectionId(1)), b"last words");
    }
}
