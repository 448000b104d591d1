// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator when memory is short: a READ whose buffer the engine still has waits for another
//! one, as it waits for a busy target.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clock::Instant;
use conformance::Server;
use conformance::server::BLOCK;
use conformance::server::TARGET;
use conformance::server::plan;
use engine::Choice;
use engine::Event as Arrived;
use engine::Landing;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Waker;
use engine::Work;
use engine::epoll::Epoll;
use initiator::Attempt;
use initiator::Config;
use initiator::Connected;
use initiator::Connector;
use initiator::Data;
use initiator::Error;
use initiator::Event;
use initiator::Kind;
use initiator::Line;
use initiator::Options;
use initiator::Pump;
use initiator::Request;
use initiator::Retry;
use initiator::SessionId;
use initiator::Transport;
use wire::iscsi::Cdb;

use lunwire_conformance as conformance;

/// All that the pool of these tests has, and what a large READ asks for.
const POOL_BYTES: usize = 1 << 20;
const LARGE: u32 = 1 << 20;
const SMALL: u32 = 4096;

/// What the engine does with buffers of connections that are closed.
#[derive(Debug, Default)]
struct Grip {
    /// Where data was to land when the connection broke.
    held: Vec<Landing>,
    waits: usize,
}

/// A port whose connections break while data land; it keeps the buffers, as a kernel does until it
/// has cancelled its work.
#[derive(Debug)]
struct Clinging {
    inner: Epoll,
    receiving: HashMap<u32, Token>,
    broken: Vec<Token>,
    untold: Vec<Token>,
    /// So many connections are to break.
    breaks: usize,
    grip: Rc<RefCell<Grip>>,
}

impl Port for Clinging {
    fn add_socket(&mut self, fd: OwnedFd) -> Socket {
        self.inner.add_socket(fd)
    }

    fn add_file(
        &mut self,
        id: u32,
        file: Arc<OwnedFd>,
        direct: bool,
    ) -> Result<(), engine::FileRefused> {
        self.inner.add_file(id, file, direct)
    }

    fn remove_file(&mut self, id: u32) {
        self.inner.remove_file(id);
    }

    fn submit(&mut self, token: Token, work: Work) {
        if let Work::Receive { socket } = &work {
            self.receiving.insert(socket.0, token);
        }
        self.inner.submit(token, work);
    }

    fn pause(&mut self, socket: Socket) {
        self.inner.pause(socket);
    }

    fn resume(&mut self, socket: Socket) {
        self.inner.resume(socket);
    }

    fn land(&mut self, socket: Socket, landing: Landing) -> Option<Landing> {
        if self.breaks == 0 {
            return Some(landing);
        }
        self.breaks -= 1;
        let token = self.receiving[&socket.0];
        self.broken.push(token);
        self.untold.push(token);
        self.grip.borrow_mut().held.push(landing);
        None
    }

    fn shutdown(&mut self, socket: Socket) {
        self.inner.shutdown(socket);
    }

    fn close(&mut self, socket: Socket) {
        self.inner.close(socket);
    }

    fn next_event(&mut self) -> Option<(Token, Arrived)> {
        if let Some(token) = self.untold.pop() {
            return Some((token, Arrived::ReceiveEnded { error: None }));
        }
        loop {
            let (token, event) = self.inner.next_event()?;
            if !self.broken.contains(&token) {
                return Some((token, event));
            }
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        self.grip.borrow_mut().waits += 1;
        self.inner.wait(if self.untold.is_empty() { deadline } else { Some(self.inner.now()) });
    }

    fn wait_n(&mut self, _count: usize, deadline: Instant) {
        self.wait(Some(deadline));
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn name(&self) -> &'static str {
        "clinging"
    }
}

/// Connects where it is asked to.
#[derive(Debug)]
struct Plain;

impl Connector for Plain {
    fn connect(
        &mut self,
        _transport: Transport,
        portals: Vec<String>,
        _others: Vec<String>,
        waker: Waker,
    ) -> Attempt {
        let (result, attempt) = mpsc::channel();
        let stream = TcpStream::connect(&portals[0]).unwrap();
        let peer = stream.peer_addr().unwrap();
        result
            .send(Ok(Connected { line: Line::Stream(stream), peer, portal: portals[0].clone() }))
            .unwrap();
        waker.wake();
        attempt
    }
}

/// A pump over such a port, and one session.
struct Lab {
    // Dropped last: the session ends first.
    _server: Server,
    pump: Pump<Clinging>,
    session: SessionId,
    grip: Rc<RefCell<Grip>>,
}

impl Lab {
    /// The first `breaks` connections break while data land.
    fn start(breaks: usize, command_timeout: Duration) -> Self {
        let settings = iscsi::target_role::Settings { time2wait: 0, ..Default::default() };
        let server = Server::start(plan(Choice::Epoll, settings));
        let inner = Epoll::new(&engine::Config::default()).unwrap();
        let grip = Rc::new(RefCell::new(Grip::default()));
        let port = Clinging {
            inner,
            receiving: HashMap::new(),
            broken: Vec::new(),
            untold: Vec::new(),
            breaks,
            grip: Rc::clone(&grip),
        };
        let config = Config { pool_bytes_max: POOL_BYTES, ..Config::default() };
        let mut pump = Pump::new(port, Box::new(Plain), &config).unwrap();
        let mut options = Options::new(server.portal().to_string(), Some(TARGET.to_owned()));
        options.settings.max_recv_data_segment_length = LARGE;
        options.settings.command_timeout = command_timeout;
        let session = pump.open(options).unwrap();
        let mut lab = Self { _server: server, pump, session, grip };
        lab.until(|event| matches!(event, Event::Up { .. }));
        lab
    }

    fn post(&mut self, tag: u64, length: u32) -> Result<(), Error> {
        let [high, low] = u16::try_from(length / BLOCK).unwrap().to_be_bytes();
        let cdb = Cdb::new(&[0x28, 0, 0, 0, 0, 0, 0, high, low, 0]).unwrap();
        let data = Data::In(length);
        let request = Request { lun: 0, cdb, data, retry: Retry::Always };
        let posted = self.pump.post(self.session, tag, request);
        posted.map_err(|(error, _)| error)
    }

    /// Turns until there is an event that is waited for.
    fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            while let Some(event) = self.pump.next_event() {
                if wanted(&event) {
                    return event;
                }
                assert!(!matches!(event, Event::Done { .. }), "not yet: {event:?}");
            }
            self.pump.turn(None);
        }
    }

    /// How the request ends; its data go back to the pool.
    fn end(&mut self, tag: u64) -> Result<usize, Error> {
        match self.until(|event| matches!(event, Event::Done { .. })) {
            Event::Done { tag: of, result, .. } => {
                assert_eq!(of, tag);
                result.map(|done| done.data.map_or(0, |data| data.len()))
            }
            _ => unreachable!(),
        }
    }

    /// Turns for so long; how often it waited.
    fn turn_for(&mut self, time: Duration) -> usize {
        let begun = std::time::Instant::now();
        let before = self.grip.borrow().waits;
        while begun.elapsed() < time {
            let left = time.saturating_sub(begun.elapsed());
            let port = Epoll::new(&engine::Config::default()).unwrap();
            self.pump.turn(Some(port.now() + left));
            assert!(self.pump.next_event().is_none(), "nothing can end");
        }
        self.grip.borrow().waits - before
    }
}

/// Whether it failed, and like that.
fn is<T>(result: Result<T, Error>, like: fn(&Kind) -> bool) -> bool {
    result.is_err_and(|error| like(error.kind()))
}

#[test]
fn a_read_whose_buffer_is_held_back_waits_for_another_one() {
    let mut lab = Lab::start(1, Duration::from_secs(60));
    assert!(lab.post(1, LARGE).is_ok());
    lab.until(|event| matches!(event, Event::Down { .. }));
    lab.until(|event| matches!(event, Event::Up { .. }));
    assert_eq!(lab.pump.pool().bytes_in_use(), POOL_BYTES, "all of it is held");

    let waits = lab.turn_for(Duration::from_millis(300));
    assert!(waits <= 400, "{waits} waits in 300 ms: it spins");

    lab.grip.borrow_mut().held.clear();
    assert_eq!(lab.end(1).unwrap(), LARGE as usize);
    assert_eq!(lab.pump.pool().bytes_in_use(), 0);
}

#[test]
fn who_waits_for_a_buffer_comes_before_who_asks_later() {
    let mut lab = Lab::start(1, Duration::from_secs(60));
    assert!(lab.post(1, LARGE).is_ok());
    lab.until(|event| matches!(event, Event::Up { .. }));
    lab.grip.borrow_mut().held.clear();
    // One small request after the other would keep the large one out for ever.
    assert!(is(lab.post(2, SMALL), |kind| matches!(kind, Kind::Full)));
    assert_eq!(lab.end(1).unwrap(), LARGE as usize);
    assert!(lab.post(2, SMALL).is_ok());
    assert_eq!(lab.end(2).unwrap(), SMALL as usize);
}

#[test]
fn nobody_waits_for_a_buffer_longer_than_for_the_command() {
    let mut lab = Lab::start(1, Duration::from_millis(500));
    assert!(lab.post(1, LARGE).is_ok());
    lab.until(|event| matches!(event, Event::Up { .. }));
    let begun = std::time::Instant::now();
    assert!(is(lab.end(1), |kind| matches!(kind, Kind::Full)));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(lab.grip.borrow().held.len() == 1, "it was never given back");
    // The session goes on.
    lab.grip.borrow_mut().held.clear();
    assert!(lab.post(2, SMALL).is_ok());
    assert_eq!(lab.end(2).unwrap(), SMALL as usize);
}

#[test]
fn a_session_that_is_closed_waits_for_no_buffer() {
    let mut lab = Lab::start(1, Duration::ZERO);
    assert!(lab.post(1, LARGE).is_ok());
    lab.until(|event| matches!(event, Event::Up { .. }));
    lab.pump.close(lab.session);
    assert!(is(lab.end(1), |kind| matches!(kind, Kind::Closed)));
    lab.until(|event| matches!(event, Event::Ended { error: None, .. }));
}
