// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scenarios share.

use std::net::TcpListener;
use std::net::TcpStream;
use std::time::Duration;

use buf::Pool;
use buf::SgList;
use buf::Slice;
use clock::Instant;
use engine::Event;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Work;

/// Longer than anything takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The next event, which must come.
pub(crate) fn next<P: Port>(port: &mut P) -> (Token, Event) {
    let deadline = port.now() + PATIENCE;
    loop {
        if let Some(event) = port.next_event() {
            return event;
        }
        assert!(port.now() < deadline, "nothing came in time");
        port.wait(Some(deadline));
    }
}

/// The next event within `time`.
pub(crate) fn next_within<P: Port>(port: &mut P, time: Duration) -> Option<(Token, Event)> {
    let deadline = port.now() + time;
    loop {
        if let Some(event) = port.next_event() {
            return Some(event);
        }
        if port.now() >= deadline {
            return None;
        }
        port.wait(Some(deadline));
    }
}

/// Lets the port work for `time`; nothing may come.
pub(crate) fn quiet<P: Port>(port: &mut P, time: Duration) {
    if let Some(event) = next_within(port, time) {
        panic!("unexpected {event:?}");
    }
}

/// Two ends of a TCP connection.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// A connection whose server end belongs to `port` and receives under `token`.
pub(crate) fn receiving<P: Port>(port: &mut P, token: u64) -> (TcpStream, Socket) {
    let (client, server) = pair();
    let socket = port.add_socket(server.into());
    port.submit(Token(token), Work::Receive { socket });
    (client, socket)
}

/// A list of one piece.
pub(crate) fn list(bytes: Vec<u8>) -> SgList {
    let mut list = SgList::new();
    list.push(Slice::from(bytes));
    list
}

/// A list whose data come from `pool`, so that the pool tells whether they were given back.
pub(crate) fn pooled(pool: &Pool, len: usize) -> SgList {
    let mut list = SgList::new();
    list.push(pool.take(len).unwrap().freeze());
    list
}

/// Bytes that tell their position: byte `i` of the stream of `seed`.
pub(crate) fn pattern(seed: u64, from: u64, len: usize) -> Vec<u8> {
    let word = |i: u64| (i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let skip = usize::try_from(from % 8).unwrap();
    (from / 8..).flat_map(word).skip(skip).take(len).collect()
}

/// A source of small random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// CPU time of the calling thread.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Time between two instants.
pub(crate) fn between(from: Instant, to: Instant) -> Duration {
    to.since(from)
}
