// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams: every byte arrives, every buffer comes back.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use buf::Pool;
use buf::SgList;
use buf::Slice;
use engine::Config;
use engine::Event;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Work;

use crate::rig::Random;
use crate::rig::list;
use crate::rig::next;
use crate::rig::next_within;
use crate::rig::pair;
use crate::rig::pattern;
use crate::rig::pooled;
use crate::rig::quiet;
use crate::rig::receiving;

/// Sends back what comes; holds at most about `HIGH` bytes for a connection.
pub(crate) struct Echo<P> {
    port: P,
    pub(crate) address: SocketAddr,
    connections: HashMap<u64, Connection>,
    next: u64,
    ended: usize,
}

struct Connection {
    socket: Socket,
    waiting: Vec<u8>,
    list: Option<SgList>,
    paused: bool,
    ended: bool,
}

const HIGH: usize = 1 << 20;
const LISTENER: Token = Token(0);
const SEND: u64 = 1 << 32;

impl<P: Port> Echo<P> {
    pub(crate) fn new(mut port: P) -> Self {
        let listener = engine::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        let socket = port.add_socket(listener.into());
        port.submit(LISTENER, Work::Accept { socket });
        Self { port, address, connections: HashMap::new(), next: 1, ended: 0 }
    }

    /// Serves until `count` connections have come and gone.
    pub(crate) fn serve(&mut self, count: usize) {
        while self.ended < count {
            let (token, event) = next(&mut self.port);
            let key = token.0 % SEND;
            match event {
                Event::Accepted { connection, peer, local } => {
                    assert!(peer.ip().is_loopback());
                    assert_eq!(local, self.address);
                    self.accepted(connection.into());
                }
                Event::Received { bytes } => {
                    self.connections.get_mut(&key).unwrap().waiting.extend_from_slice(&bytes);
                }
                Event::ReceiveEnded { error } => {
                    assert_eq!(error, None);
                    self.connections.get_mut(&key).unwrap().ended = true;
                }
                Event::Sent { list, result } => {
                    result.unwrap();
                    self.connections.get_mut(&key).unwrap().list = Some(list);
                }
                other => panic!("unexpected {other:?}"),
            }
            self.transmit(key);
        }
    }

    fn accepted(&mut self, stream: TcpStream) {
        let socket = self.port.add_socket(stream.into());
        self.port.submit(Token(self.next), Work::Receive { socket });
        let connection = Connection {
            socket,
            waiting: Vec::new(),
            list: Some(SgList::new()),
            paused: false,
            ended: false,
        };
        self.connections.insert(self.next, connection);
        self.next += 1;
    }

    fn transmit(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let socket = connection.socket;
        if let Some(mut list) = connection.list.take() {
            if !connection.waiting.is_empty() {
                list.clear();
                list.push(Slice::from(std::mem::take(&mut connection.waiting)));
                self.port.submit(Token(key | SEND), Work::Send { socket, list });
            } else if connection.ended {
                self.connections.remove(&key);
                self.port.shutdown(socket);
                self.port.close(socket);
                self.ended += 1;
                return;
            } else {
                connection.list = Some(list);
            }
        }
        let connection = self.connections.get_mut(&key).unwrap();
        let full = connection.waiting.len() > HIGH;
        if full != connection.paused {
            connection.paused = full;
            if full { self.port.pause(socket) } else { self.port.resume(socket) }
        }
    }
}

/// Sends `total` bytes in random pieces while it reads and checks what comes back.
pub(crate) fn client(address: SocketAddr, seed: u64, total: usize) {
    slow_client(address, seed, total, Duration::ZERO);
}

/// The same; rests for `rest` before one read in sixteen.
pub(crate) fn slow_client(address: SocketAddr, seed: u64, total: usize, rest: Duration) {
    let mut writer = TcpStream::connect(address).unwrap();
    let mut reader = writer.try_clone().unwrap();
    let checking = thread::spawn(move || {
        let (mut at, mut bytes, mut random) = (0u64, vec![0; 1 << 16], Random(seed));
        loop {
            if random.below(16) == 0 {
                thread::sleep(rest);
            }
            let got = match reader.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                got => got.unwrap(),
            };
            if got == 0 {
                return at;
            }
            assert!(bytes[..got] == pattern(seed, at, got), "damage after {at}");
            at += got as u64;
        }
    });
    let (mut at, mut random) = (0, Random(seed));
    while at < total {
        let scale = 1 + random.below(18);
        let len = (1 + random.below(1 << scale)).min(total - at);
        writer.write_all(&pattern(seed, at as u64, len)).unwrap();
        at += len;
    }
    writer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(checking.join().unwrap(), total as u64);
}

pub(crate) fn echoes_messages_of_all_sizes<P: Port>(make: impl Fn(&Config) -> P) {
    let mut echo = Echo::new(make(&Config::default()));
    let address = echo.address;
    let sizes = [1, 2, 47, 48, 49, 511, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20];
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        for (round, size) in (0u64..).zip(sizes) {
            let sent = pattern(round, 0, size);
            stream.write_all(&sent).unwrap();
            let mut got = vec![0; size];
            stream.read_exact(&mut got).unwrap();
            assert!(sent == got, "damage at size {size}");
        }
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
    echo.serve(1);
    client.join().unwrap();
}

pub(crate) fn echoes_a_long_stream<P: Port>(make: impl Fn(&Config) -> P) {
    let mut echo = Echo::new(make(&Config::default()));
    let address = echo.address;
    let client = thread::spawn(move || client(address, 7, 64 << 20));
    echo.serve(1);
    client.join().unwrap();
}

pub(crate) fn serves_many_connections<P: Port>(make: impl Fn(&Config) -> P) {
    // Few small buffers, so that receives run out of them all the time.
    let few = Config { receive_buffers: 8, receive_buffer_bytes: 4096, ..Config::default() };
    let mut echo = Echo::new(make(&few));
    let address = echo.address;
    let clients: Vec<_> =
        (0..64).map(|seed| thread::spawn(move || client(address, seed, 300_000))).collect();
    echo.serve(clients.len());
    for client in clients {
        client.join().unwrap();
    }
}

pub(crate) fn half_close_keeps_the_other_direction<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (mut client, socket) = receiving(&mut port, 1);
    client.shutdown(Shutdown::Write).unwrap();
    let (token, event) = next(&mut port);
    assert!(matches!(event, Event::ReceiveEnded { error: None }), "{event:?}");
    assert_eq!(token, Token(1));
    port.submit(Token(2), Work::Send { socket, list: list(vec![5; 100]) });
    let (token, event) = next(&mut port);
    assert!(matches!(event, Event::Sent { result: Ok(()), .. }), "{event:?}");
    assert_eq!(token, Token(2));
    port.shutdown(socket);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, [5; 100]);
    port.close(socket);
    quiet(&mut port, Duration::from_millis(20));
}

pub(crate) fn shutdown_waits_for_the_send_under_way<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (mut client, socket) = receiving(&mut port, 1);
    let bytes = pattern(3, 0, 32 << 20);
    port.submit(Token(2), Work::Send { socket, list: list(bytes.clone()) });
    port.shutdown(socket);
    port.submit(Token(3), Work::Send { socket, list: list(vec![1]) });
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == bytes);
    });
    let mut ends = HashMap::new();
    while ends.len() < 3 {
        match next(&mut port) {
            (token, Event::Sent { result, .. }) => ends.insert(token.0, result),
            (token, Event::ReceiveEnded { error }) => {
                ends.insert(token.0, error.map_or(Ok(()), Err))
            }
            other => panic!("unexpected {other:?}"),
        };
    }
    reader.join().unwrap();
    assert_eq!(ends[&2], Ok(()));
    assert!(ends[&3] == Err(libc::EALREADY) || ends[&3] == Err(libc::EPIPE));
}

fn reset(client: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
}

pub(crate) fn a_reset_ends_receiving<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (client, socket) = receiving(&mut port, 1);
    quiet(&mut port, Duration::from_millis(5));
    reset(client);
    let (_, event) = next(&mut port);
    let reset = matches!(event, Event::ReceiveEnded { error: Some(libc::ECONNRESET) });
    assert!(reset, "{event:?}");
    port.close(socket);
    quiet(&mut port, Duration::from_millis(20));
}

pub(crate) fn sending_to_a_dead_peer_fails<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (client, server) = pair();
    let socket = port.add_socket(server.into());
    reset(client);
    thread::sleep(Duration::from_millis(10));
    let pool = Pool::new(1 << 20).unwrap();
    for _ in 0..3 {
        let list = pooled(&pool, 1000);
        port.submit(Token(1), Work::Send { socket, list });
        let (_, event) = next(&mut port);
        let Event::Sent { list, result } = event else { panic!("unexpected {event:?}") };
        assert!(matches!(result, Err(libc::ECONNRESET | libc::EPIPE)), "{result:?}");
        assert_eq!(list.len(), 1000);
    }
    assert_eq!(pool.bytes_in_use(), 0);
}

pub(crate) fn long_lists_are_sent_whole<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (mut client, socket) = receiving(&mut port, 1);
    let mut list = SgList::new();
    for round in 0..2000u64 {
        list.push_bytes(&pattern(round, 0, 48));
        list.push(Slice::from(pattern(round, 48, 3001)));
    }
    let expected = list.to_vec();
    for token in 0..3 {
        port.submit(Token(token), Work::Send { socket, list });
        let expected = expected.clone();
        let mut reader = client.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            reader.read_exact(&mut got).unwrap();
            assert!(got == expected);
        });
        let (_, event) = next(&mut port);
        let Event::Sent { list: back, result: Ok(()) } = event else { panic!("{event:?}") };
        reader.join().unwrap();
        list = back;
    }
    list.clear();
    port.submit(Token(9), Work::Send { socket, list });
    assert!(matches!(next(&mut port), (Token(9), Event::Sent { result: Ok(()), .. })));
    port.close(socket);
    let (_, event) = next(&mut port);
    assert!(matches!(event, Event::ReceiveEnded { error: Some(libc::ECANCELED) }));
    assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
}

/// A thread that writes `total` bytes of pattern 1 as fast as it can.
fn flood(client: &TcpStream, total: usize) -> thread::JoinHandle<()> {
    let mut client = client.try_clone().unwrap();
    thread::spawn(move || {
        client.write_all(&pattern(1, 0, total)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    })
}

/// Takes what comes until the stream ends; returns how many bytes.
fn drain<P: Port>(port: &mut P, mut at: u64) -> u64 {
    loop {
        match next(port).1 {
            Event::Received { bytes } => {
                assert!(*bytes == pattern(1, at, bytes.len()), "damage after {at}");
                at += bytes.len() as u64;
            }
            Event::ReceiveEnded { error: None } => return at,
            other => panic!("unexpected {other:?}"),
        }
    }
}

pub(crate) fn pausing_stops_the_peer<P: Port>(make: impl Fn(&Config) -> P) {
    const TOTAL: usize = 48 << 20;
    let mut port = make(&Config::default());
    let (client, socket) = receiving(&mut port, 1);
    let writer = flood(&client, TOTAL);
    let mut at = 0;
    for _ in 0..4 {
        port.pause(socket);
        port.pause(socket);
        let before = at;
        while let Some((_, event)) = next_within(&mut port, Duration::from_millis(50)) {
            let Event::Received { bytes } = event else { panic!("unexpected {event:?}") };
            assert!(*bytes == pattern(1, at, bytes.len()), "damage after {at}");
            at += bytes.len() as u64;
        }
        assert!(at - before < 8 << 20, "{} bytes came through a pause", at - before);
        port.resume(socket);
        port.resume(socket);
        let (_, event) = next(&mut port);
        let Event::Received { bytes } = event else { panic!("unexpected {event:?}") };
        assert!(*bytes == pattern(1, at, bytes.len()), "damage after {at}");
        at += bytes.len() as u64;
        // Pausing and resuming at once must lose nothing either.
        port.pause(socket);
        port.resume(socket);
    }
    assert_eq!(drain(&mut port, at), TOTAL as u64);
    writer.join().unwrap();
    port.pause(socket);
    port.close(socket);
    quiet(&mut port, Duration::from_millis(20));
}

pub(crate) fn held_chunks_stop_the_peer<P: Port>(make: impl Fn(&Config) -> P) {
    const TOTAL: usize = 2 << 20;
    let few = Config { receive_buffers: 4, receive_buffer_bytes: 8192, ..Config::default() };
    let mut port = make(&few);
    let (client, socket) = receiving(&mut port, 1);
    let writer = flood(&client, TOTAL);
    let (mut held, mut at) = (Vec::new(), 0);
    while held.len() < 4 {
        let (_, event) = next(&mut port);
        let Event::Received { bytes } = event else { panic!("unexpected {event:?}") };
        held.push(bytes);
    }
    quiet(&mut port, Duration::from_millis(50));
    for bytes in held.drain(..) {
        assert!(*bytes == pattern(1, at, bytes.len()), "damage after {at}");
        at += bytes.len() as u64;
    }
    assert_eq!(drain(&mut port, at), TOTAL as u64);
    writer.join().unwrap();
    port.close(socket);
}

pub(crate) fn closing_gives_everything_back<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let pool = Pool::new(64 << 20).unwrap();
    for round in 0..20 {
        let (mut client, socket) = receiving(&mut port, 1);
        let list = pooled(&pool, 8 << 20);
        port.submit(Token(2), Work::Send { socket, list });
        client.write_all(&[1; 1000]).unwrap();
        if round % 2 == 0 {
            port.wait(Some(port.now()));
        }
        port.close(socket);
        let (mut sent, mut ended) = (false, false);
        while !(sent && ended) {
            match next(&mut port) {
                (Token(1), Event::Received { .. }) => assert!(!ended),
                (Token(1), Event::ReceiveEnded { error: Some(libc::ECANCELED) }) => ended = true,
                (Token(2), Event::Sent { list, result: Err(libc::ECANCELED) }) => {
                    assert_eq!(list.len(), 8 << 20);
                    sent = true;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        assert_eq!(pool.bytes_in_use(), 0);
        quiet(&mut port, Duration::from_millis(1));
        // A stream that was cut; whether it ends or is reset depends on what was unread.
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        assert!(rest.len() < 8 << 20);
    }
}

pub(crate) fn closing_a_listener_ends_accepting<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let listener = TcpListener::from(engine::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    let address = listener.local_addr().unwrap();
    let socket = port.add_socket(listener.into());
    port.submit(Token(4), Work::Accept { socket });
    let _client = TcpStream::connect(address).unwrap();
    assert!(matches!(next(&mut port), (Token(4), Event::Accepted { .. })));
    port.close(socket);
    let (token, event) = next(&mut port);
    assert!(matches!(event, Event::AcceptFailed { errno: libc::ECANCELED }), "{event:?}");
    assert_eq!(token, Token(4));
    assert!(TcpStream::connect(address).is_err());
    quiet(&mut port, Duration::from_millis(5));
}

pub(crate) fn dropping_the_port_gives_everything_back<P: Port>(make: impl Fn(&Config) -> P) {
    let pool = Pool::new(64 << 20).unwrap();
    let mut port = make(&Config::default());
    let mut clients = Vec::new();
    for token in 0..5 {
        let (mut client, socket) = receiving(&mut port, token);
        port.submit(Token(9), Work::Send { socket, list: pooled(&pool, 8 << 20) });
        client.write_all(&[1; 1000]).unwrap();
        clients.push(client);
    }
    let listener = engine::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let socket = port.add_socket(listener);
    port.submit(Token(10), Work::Accept { socket });
    let mut chunk = None;
    while chunk.is_none() {
        if let (_, Event::Received { bytes }) = next(&mut port) {
            chunk = Some(bytes);
        }
    }
    drop(port);
    assert_eq!(pool.bytes_in_use(), 0);
    assert_eq!(chunk.unwrap()[..], [1; 1000]);
    for mut client in clients {
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
    }
}

/// A connection goes from one port to another and back under load; no byte is lost or doubled.
pub(crate) fn a_connection_is_given_back_whole<P: Port>(make: impl Fn(&Config) -> P) {
    const BYTES: usize = 4 << 20;
    let mut ports = [make(&Config::default()), make(&Config::default())];
    let (mut client, server) = pair();
    let sender = thread::spawn(move || {
        client.write_all(&pattern(3, 0, BYTES)).unwrap();
        client
    });
    let mut got = Vec::new();
    let mut fd = Some(server.into());
    let mut at = 0;
    while let Some(connection) = fd.take() {
        at = 1 - at;
        let port = &mut ports[at];
        let socket = port.add_socket(connection);
        port.submit(Token(1), Work::Receive { socket });
        let mut ended = false;
        let mut asked = false;
        loop {
            match next(port) {
                (Token(1), Event::Received { bytes }) => got.extend_from_slice(&bytes),
                (Token(1), Event::ReceiveEnded { error: None }) => ended = true,
                (Token(2), Event::Detached { connection }) => {
                    fd = connection;
                    break;
                }
                other => panic!("unexpected {other:?}"),
            }
            if !asked {
                asked = true;
                port.submit(Token(2), Work::Detach { socket });
            }
        }
        if ended || got.len() == BYTES {
            break;
        }
    }
    assert!(got == pattern(3, 0, BYTES), "{} bytes", got.len());
    drop(sender.join().unwrap());
}

/// A send under way is finished first; a closed socket is not given back.
pub(crate) fn giving_back_waits_for_the_send<P: Port>(make: impl Fn(&Config) -> P) {
    const BYTES: usize = 8 << 20;
    let mut port = make(&Config::default());
    let (mut client, socket) = receiving(&mut port, 1);
    port.submit(Token(2), Work::Send { socket, list: list(pattern(5, 0, BYTES)) });
    port.submit(Token(3), Work::Detach { socket });
    quiet(&mut port, Duration::from_millis(50));
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; BYTES];
        client.read_exact(&mut bytes).unwrap();
        (client, bytes)
    });
    let (token, event) = next(&mut port);
    assert!(token == Token(2) && matches!(event, Event::Sent { result: Ok(()), .. }), "{event:?}");
    let (token, event) = next(&mut port);
    let Event::Detached { connection: Some(connection) } = event else { panic!("{event:?}") };
    assert_eq!(token, Token(3));
    let (mut client, bytes) = reader.join().unwrap();
    assert!(bytes == pattern(5, 0, BYTES));
    let mut server = TcpStream::from(connection);
    client.write_all(b"still there").unwrap();
    server.set_nonblocking(false).unwrap();
    let mut bytes = [0; 11];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"still there");

    port.submit(Token(4), Work::Detach { socket: Socket(99) });
    let (token, event) = next(&mut port);
    assert!(token == Token(4) && matches!(event, Event::Detached { connection: None }));
    let (_client, socket) = receiving(&mut port, 5);
    port.submit(Token(6), Work::Send { socket, list: list(pattern(5, 0, BYTES)) });
    port.submit(Token(7), Work::Detach { socket });
    quiet(&mut port, Duration::from_millis(20));
    port.close(socket);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let (token, event) = next(&mut port);
        assert!(!matches!(event, Event::Detached { connection: Some(_) }), "it is closed");
        tokens.push(token.0);
    }
    tokens.sort_unstable();
    assert_eq!(tokens, [5, 6, 7]);
    quiet(&mut port, Duration::from_millis(20));
}

pub(crate) fn misuse_is_an_event<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let socket = Socket(77);
    port.submit(Token(1), Work::Send { socket, list: list(vec![1]) });
    port.submit(Token(2), Work::Receive { socket });
    port.submit(Token(3), Work::Accept { socket });
    port.pause(socket);
    port.resume(socket);
    port.shutdown(socket);
    port.close(socket);
    for _ in 0..3 {
        match next(&mut port) {
            (Token(1), Event::Sent { result: Err(libc::EBADF), .. })
            | (Token(2), Event::ReceiveEnded { error: Some(libc::EBADF) })
            | (Token(3), Event::AcceptFailed { errno: libc::EBADF }) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    // Accepting from what does not listen.
    let (_client, server) = pair();
    let socket = port.add_socket(server.into());
    port.submit(Token(4), Work::Accept { socket });
    // Epoll hears nothing of such a socket until its peer does something; io_uring at once.
    drop(_client);
    let (_, event) = next(&mut port);
    assert!(matches!(event, Event::AcceptFailed { errno: libc::EINVAL }), "{event:?}");
    port.close(socket);
    quiet(&mut port, Duration::from_millis(5));
    // Accepting from what is no socket, which epoll cannot even watch.
    let socket = port.add_socket(tempfile::tempfile().unwrap().into());
    port.submit(Token(5), Work::Accept { socket });
    let (_, event) = next(&mut port);
    assert!(matches!(event, Event::AcceptFailed { errno: libc::ENOTSOCK }), "{event:?}");
    port.close(socket);
    quiet(&mut port, Duration::from_millis(5));
}

pub(crate) fn thousands_of_idle_connections<P: Port>(make: impl Fn(&Config) -> P) {
    let _alone = crate::alone();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let room = usize::try_from(limit.unwrap_or(40_000)).unwrap();
    // Both ends are in this process; the other scenarios need some descriptors too.
    let count = (room.saturating_sub(2000) / 2).min(10_000);
    let mut port = make(&Config::default());
    let listener = TcpListener::from(engine::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    let address = listener.local_addr().unwrap();
    let socket = port.add_socket(listener.into());
    port.submit(Token(0), Work::Accept { socket });
    let clients = thread::spawn(move || {
        (0..count).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>()
    });
    let mut sockets = Vec::new();
    while sockets.len() < count {
        let (_, event) = next(&mut port);
        let Event::Accepted { connection, .. } = event else { panic!("unexpected {event:?}") };
        let socket = port.add_socket(connection);
        port.submit(Token(1 + sockets.len() as u64), Work::Receive { socket });
        sockets.push(socket);
    }
    let mut clients = clients.join().unwrap();
    println!("{count} connections on {}", port.name());
    for index in [0, count / 2, count - 1] {
        clients[index].write_all(b"here").unwrap();
        let (token, event) = next(&mut port);
        assert!(matches!(event, Event::Received { bytes } if *bytes == *b"here"));
        assert!(token.0 >= 1 && token.0 <= count as u64);
    }
    for socket in sockets {
        port.close(socket);
    }
    for _ in 0..count {
        let (_, event) = next(&mut port);
        assert!(matches!(event, Event::ReceiveEnded { error: Some(libc::ECANCELED) }));
    }
    quiet(&mut port, Duration::from_millis(5));
}
