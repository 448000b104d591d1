// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process without descriptors goes on accepting when it has some again. Lowers the limit of
//! the process, so it is alone in it.
#![allow(clippy::unwrap_used)] // a test fails by panicking

extern crate lunwire_engine as engine;

use std::net::TcpListener;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use engine::Config;
use engine::Event;
use engine::Port;
use engine::Token;
use engine::Work;
use engine::epoll::Epoll;
use engine::uring::Uring;
use rustix::process::Resource;
use rustix::process::Rlimit;

fn limit(descriptors: Option<u64>) {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let current = descriptors.or(maximum);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

fn next<P: Port>(port: &mut P, time: Duration) -> Option<Event> {
    let deadline = port.now() + time;
    loop {
        if let Some((token, event)) = port.next_event() {
            assert_eq!(token, Token(3));
            return Some(event);
        }
        if port.now() >= deadline {
            return None;
        }
        port.wait(Some(deadline));
    }
}

fn runs_out_and_recovers<P: Port>(mut port: P) {
    let patience = Duration::from_secs(20);
    let listener = TcpListener::from(engine::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    let address = listener.local_addr().unwrap();
    let socket = port.add_socket(listener.into());
    let client = TcpStream::connect(address).unwrap();
    // No number above the client's is left. Before the work, as io_uring looks at the limit then.
    limit(u64::try_from(client.as_raw_fd() + 1).ok());
    port.submit(Token(3), Work::Accept { socket });
    let event = next(&mut port, patience);
    let failed = matches!(event, Some(Event::AcceptFailed { errno: libc::EMFILE }));
    assert!(failed, "{event:?}");
    // Not at once again: that would be a loop without an end.
    assert!(next(&mut port, Duration::from_millis(40)).is_none());
    limit(None);
    let accepted = loop {
        match next(&mut port, patience).unwrap() {
            Event::Accepted { connection, peer, .. } => break (connection, peer),
            Event::AcceptFailed { errno } => assert_eq!(errno, libc::EMFILE),
            other => panic!("unexpected {other:?}"),
        }
    };
    assert_eq!(accepted.1, client.local_addr().unwrap());
}

#[test]
fn accepting_pauses_without_descriptors() {
    runs_out_and_recovers(Epoll::new(&Config::default()).unwrap());
    match engine::probe().uring {
        Ok(_) => runs_out_and_recovers(Uring::new(&Config::default()).unwrap()),
        Err(why) => println!("skipped: io_uring is {why}"),
    }
}
