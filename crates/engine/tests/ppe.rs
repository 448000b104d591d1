// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only a polling core has: several hosts, events that are waited for by number, seats that
//! nobody takes. The scenarios of `suite` run on it, too.
#![allow(clippy::unwrap_used)] // a test fails by panicking

extern crate lunwire_engine as engine;

use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use buf::Pool;
use buf::SgList;
use engine::Choice;
use engine::Config;
use engine::Event;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Work;
use engine::limits::EVENTS;
use engine::ppe::Idle;
use engine::ppe::Ppe;
use engine::ppe::Seat;
use engine::ppe::Settings;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn seats(engine: Choice, idle: Idle, hosts: usize) -> Vec<Seat> {
    let port = Config { name: "ppe-test".into(), ..Config::default() };
    engine::ppe::start(&Settings { engine, port, cpu: None, idle }, hosts).unwrap()
}

fn receiving(port: &mut Ppe, token: u64) -> (TcpStream, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = port.add_socket(listener.accept().unwrap().0.into());
    port.submit(Token(token), Work::Receive { socket });
    (client, socket)
}

fn next(port: &mut Ppe) -> (Token, Event) {
    let deadline = port.now() + PATIENCE;
    loop {
        if let Some(event) = port.next_event() {
            return event;
        }
        assert!(port.now() < deadline, "nothing came in time");
        port.wait(Some(deadline));
    }
}

/// Sends `rounds` times what came, under tokens and sockets that the other host has, too.
fn echo(seat: Seat, rounds: usize) {
    let mut port = Ppe::from(seat);
    let (mut client, socket) = receiving(&mut port, 1);
    let pool = Pool::new(4 << 20).unwrap();
    for round in 0..rounds {
        let byte = u8::try_from(round % 251).unwrap();
        client.write_all(&[byte; 100]).unwrap();
        let mut got = 0;
        while got < 100 {
            let (Token(1), Event::Received { bytes }) = next(&mut port) else { panic!("no bytes") };
            assert!(bytes.iter().all(|other| *other == byte));
            got += bytes.len();
        }
        let mut list = SgList::new();
        let mut buf = pool.take(100).unwrap();
        buf.fill(byte);
        list.push(buf.freeze());
        port.submit(Token(2), Work::Send { socket, list });
        assert!(matches!(next(&mut port), (Token(2), Event::Sent { result: Ok(()), .. })));
        let mut back = [0; 100];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte; 100]);
    }
    // It leaves in the middle of something: what nobody reads is still to be sent.
    let mut list = SgList::new();
    list.push(pool.take(3 << 20).unwrap().freeze());
    port.submit(Token(3), Work::Send { socket, list });
    drop(port);
    assert_eq!(pool.bytes_in_use(), 0);
}

#[test]
fn one_core_serves_hosts_that_leave_one_by_one() {
    for (engine, idle) in
        [(Choice::Auto, Idle::Sleep), (Choice::Epoll, Idle::Sleep), (Choice::Auto, Idle::Poll)]
    {
        let hosts: Vec<_> = seats(engine, idle, 3)
            .into_iter()
            .zip([20, 200, 500])
            .map(|(seat, rounds)| thread::spawn(move || echo(seat, rounds)))
            .collect();
        for host in hosts {
            host.join().unwrap();
        }
    }
}

/// Buffers that were with a host when it left, in its ring or in its hands, come back to the core.
#[test]
fn who_leaves_takes_no_buffers_along() {
    let port = Config { receive_buffers: 2, receive_buffer_bytes: 4096, ..Config::default() };
    let settings = Settings { engine: Choice::Auto, port, cpu: None, idle: Idle::Sleep };
    let mut seats = engine::ppe::start(&settings, 3).unwrap();
    for round in 0..2 {
        let mut leaver = Ppe::from(seats.pop().unwrap());
        let (mut first, _) = receiving(&mut leaver, 1);
        let (mut second, _) = receiving(&mut leaver, 2);
        first.write_all(b"one").unwrap();
        let held = next(&mut leaver);
        second.write_all(b"two").unwrap();
        if round == 0 {
            // Time to come into the ring, where it stays.
            thread::sleep(Duration::from_millis(50));
        }
        drop(leaver);
        assert!(matches!(&held, (Token(1), Event::Received { bytes }) if bytes[..] == *b"one"));
    }
    echo(seats.pop().unwrap(), 20);
}

/// A host that takes no events keeps none from the others, and has all of its own later.
#[test]
fn a_host_that_stands_still_holds_nobody_up() {
    for engine in [Choice::Auto, Choice::Epoll] {
        let mut seats = seats(engine, Idle::Sleep, 2);
        let mut still = Ppe::from(seats.pop().unwrap());
        let (mut client, _) = receiving(&mut still, 1);
        let pool = Pool::new(1 << 20).unwrap();
        let count = 2 * EVENTS as u64;
        for token in 0..count {
            // To nowhere: it ends at once.
            let list = SgList::new();
            let socket = Socket(4000);
            still.submit(Token(100 + token), Work::Send { socket, list });
            if token == count / 2 {
                client.write_all(&[7; 100]).unwrap();
            }
        }
        still.wait(Some(still.now()));
        let (done, end) = std::sync::mpsc::channel();
        let other = seats.pop().unwrap();
        thread::spawn(move || {
            echo(other, 200);
            done.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(20)).expect("the other host is served");
        let (mut sent, mut bytes_in) = (0, 0);
        while sent < count || bytes_in < 100 {
            match next(&mut still) {
                (Token(1), Event::Received { bytes }) => bytes_in += bytes.len(),
                (Token(token), Event::Sent { .. }) => {
                    assert_eq!(token, 100 + sent);
                    sent += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(pool.bytes_in_use(), 0);
    }
}

#[test]
fn a_host_can_sleep_until_there_are_several_events() {
    let mut port = Ppe::from(seats(Choice::Auto, Idle::Sleep, 1).pop().unwrap());
    let mut clients: Vec<_> = (0..3).map(|token| receiving(&mut port, token).0).collect();
    port.wait(Some(port.now()));
    let writer = thread::spawn(move || {
        for client in &mut clients {
            thread::sleep(Duration::from_millis(30));
            client.write_all(b"x").unwrap();
        }
        clients
    });
    port.wait_n(3, port.now() + PATIENCE);
    let tokens = std::array::from_fn(|_| port.next_event().map(|(token, _)| token.0));
    assert_eq!(tokens, [Some(0), Some(1), Some(2)]);
    let _clients = writer.join().unwrap();
    // The deadline ends it, too.
    let from = port.now();
    port.wait_n(3, from + Duration::from_millis(20));
    assert!(port.now().since(from) >= Duration::from_millis(20));
    assert!(port.next_event().is_none());
}

#[test]
fn seats_that_nobody_takes_end_the_core() {
    drop(seats(Choice::Auto, Idle::Sleep, 2));
    let mut seats = seats(Choice::Epoll, Idle::Sleep, 2);
    drop(seats.pop());
    echo(seats.pop().unwrap(), 3);
}

#[test]
fn a_core_that_cannot_be_made_is_an_error() {
    let port = Config { receive_buffers: 3, ..Config::default() };
    let settings = Settings { engine: Choice::Uring, port, cpu: None, idle: Idle::Sleep };
    assert!(engine::ppe::start(&settings, 1).is_err());
}
