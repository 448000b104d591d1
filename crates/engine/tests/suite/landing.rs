// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that go straight to where they belong.

use std::io::Write;
use std::net::Shutdown;
use std::thread;

use buf::Pool;
use engine::Config;
use engine::Event;
use engine::Landing;
use engine::Port;
use engine::Token;

use crate::rig::next;
use crate::rig::pattern;
use crate::rig::receiving;

const SEED: u64 = 7;

/// Where a landing begins in its buffer.
const AT: usize = 4096;

/// Each byte once and in order, whichever way it comes; the port says no where it must.
pub(crate) fn bytes_land_where_they_belong<P: Port>(make: impl Fn(&Config) -> P) {
    const TOTAL: usize = 32 << 20;
    let mut port = make(&Config::default());
    let (mut peer, socket) = receiving(&mut port, 1);
    let sender = thread::spawn(move || peer.write_all(&pattern(SEED, 0, TOTAL)).unwrap());
    let pool = Pool::new(16 << 20).unwrap();
    let (mut at, mut landed, mut under_way) = (0, 0, false);
    while at < TOTAL {
        match next(&mut port) {
            (Token(1), Event::Received { bytes }) => {
                assert!(!under_way, "nothing comes before what lands");
                assert!(bytes[..] == pattern(SEED, at as u64, bytes.len()), "at {at}");
                at += bytes.len();
            }
            (Token(1), Event::Landed { buf, bytes }) => {
                assert!(buf[AT..AT + bytes] == pattern(SEED, at as u64, bytes), "at {at}");
                at += bytes;
                landed += bytes;
                under_way = false;
            }
            other => panic!("{other:?}"),
        }
        // Now and then nothing is asked for, so that the port goes back to what it does else.
        let length = (TOTAL - at).min(100_000);
        if !under_way && length > 0 && at / (4 << 20) % 3 != 2 {
            let buf = pool.take(AT + length).unwrap();
            under_way = port.land(socket, Landing { buf, at: AT, end: AT + length }).is_none();
        }
    }
    sender.join().unwrap();
    if port.name() == "uring" {
        assert!(landed > TOTAL / 4, "{landed} bytes landed");
    }
}

/// What has come before the end of the stream, then the buffer, then the end.
pub(crate) fn the_end_of_the_stream_gives_the_buffer_back<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let pool = Pool::new(1 << 20).unwrap();
    let (mut peer, socket) = receiving(&mut port, 1);
    let (mut at, mut under_way) = (0, 0);
    let mut sent = 0;
    loop {
        if sent < 50_000 {
            peer.write_all(&pattern(SEED, sent, 10_000)).unwrap();
            sent += 10_000;
        } else {
            let _ = peer.shutdown(Shutdown::Write);
        }
        match next(&mut port).1 {
            Event::Received { bytes } => at += bytes.len() as u64,
            Event::Landed { buf, bytes } => {
                assert!(buf[..bytes] == pattern(SEED, at, bytes));
                at += bytes as u64;
                under_way -= 1;
            }
            Event::ReceiveEnded { error } => {
                assert_eq!((at, under_way, error), (sent, 0, None));
                return;
            }
            other => panic!("{other:?}"),
        }
        // The last one asks for more than ever comes.
        let end = if at < sent { 10_000 } else { 200_000 };
        if under_way == 0 && (at < sent || sent == 50_000) {
            let buf = pool.take(200_000).unwrap();
            under_way += i32::from(port.land(socket, Landing { buf, at: 0, end }).is_none());
        }
    }
}

/// The kernel may write to the buffer until the last event has come; then the pool has it again.
pub(crate) fn closing_gives_a_landing_up<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let pool = Pool::new(1 << 20).unwrap();
    let (mut peer, socket) = receiving(&mut port, 1);
    let mut under_way = false;
    for _ in 0..20 {
        peer.write_all(&[1; 1000]).unwrap();
        match next(&mut port).1 {
            Event::Received { .. } | Event::Landed { .. } => {}
            other => panic!("{other:?}"),
        }
        let buf = pool.take(1 << 20).unwrap();
        under_way = port.land(socket, Landing { buf, at: 0, end: 1 << 20 }).is_none();
        if under_way {
            break;
        }
    }
    assert!(under_way || port.name() != "uring", "it lands at the second try");
    port.close(socket);
    loop {
        match next(&mut port).1 {
            Event::Received { .. } => {}
            Event::ReceiveEnded { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(pool.take(1 << 20).is_some(), "the buffer has gone back");
}
