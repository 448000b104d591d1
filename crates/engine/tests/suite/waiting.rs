// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting: neither too long nor too short, and at no cost.

use std::io::Read;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clock::Instant;
use engine::Config;
use engine::Event;
use engine::Port;
use engine::Token;
use engine::Work;

use crate::rig::PATIENCE;
use crate::rig::between;
use crate::rig::cpu_time;
use crate::rig::list;
use crate::rig::next;
use crate::rig::pair;
use crate::rig::receiving;

/// So late a machine with much to do lets a thread go on.
const LATE_MAX: Duration = Duration::from_secs(3);

pub(crate) fn deadlines_are_kept<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    for millis in [0, 1, 5, 30] {
        let from = port.now();
        port.wait(Some(from + Duration::from_millis(millis)));
        let waited = between(from, port.now());
        assert!(waited >= Duration::from_millis(millis), "{waited:?} for {millis} ms");
        assert!(waited < Duration::from_millis(millis) + LATE_MAX, "{waited:?} for {millis} ms");
        assert!(port.next_event().is_none());
    }
    let from = port.now();
    port.wait(Some(Instant(0)));
    assert!(between(from, port.now()) < LATE_MAX);
    // What has arrived is seen by a poll.
    let (mut client, _socket) = receiving(&mut port, 1);
    port.wait(Some(Instant(0)));
    client.write_all(b"x").unwrap();
    thread::sleep(Duration::from_millis(20));
    // A core of its own has to get a CPU for that first.
    let patience = if port.name().starts_with("amp") { PATIENCE } else { Duration::ZERO };
    let deadline = port.now() + patience;
    let event = loop {
        port.wait(Some(Instant(0)));
        match port.next_event() {
            None if port.now() < deadline => thread::yield_now(),
            event => break event,
        }
    };
    assert!(matches!(event, Some((Token(1), Event::Received { .. }))));
}

pub(crate) fn wakers_wake<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let waker = port.waker();
    // Before the wait, several times: once.
    waker.wake();
    waker.wake();
    port.wait(None);
    assert!(matches!(port.next_event(), Some((Token(0), Event::Woken))));
    port.wait(Some(port.now() + Duration::from_millis(10)));
    assert!(port.next_event().is_none());
    // Out of sleep.
    for _ in 0..5 {
        let waker = port.waker();
        let sleeper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        port.wait(None);
        assert!(matches!(port.next_event(), Some((_, Event::Woken))));
        sleeper.join().unwrap();
    }
    drop(port);
    // Of a port that is gone: nothing.
    waker.wake();
}

pub(crate) fn wakers_race<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (waker, seen) = (port.waker(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000 {
                seen.store(false, Ordering::SeqCst);
                waker.wake();
                // Each wake must be answered: a lost one hangs here.
                while !seen.load(Ordering::SeqCst) {
                    if round % 3 == 0 {
                        thread::yield_now();
                    }
                    std::hint::spin_loop();
                }
            }
        });
        for _ in 0..20_000 {
            let (_, event) = next(&mut port);
            assert!(matches!(event, Event::Woken));
            seen.store(true, Ordering::SeqCst);
        }
    });
}

pub(crate) fn idle_costs_nothing<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let idle: Vec<_> = (0..10).map(|token| receiving(&mut port, token)).collect();
    // Some traffic first, so that the port has a reason to spin.
    let (mut client, mut stream) = pair();
    let socket = port.add_socket(stream.try_clone().unwrap().into());
    let _ = stream.set_nodelay(true);
    for _ in 0..200 {
        port.submit(Token(50), Work::Send { socket, list: list(vec![1; 100]) });
        let (_, event) = next(&mut port);
        assert!(matches!(event, Event::Sent { result: Ok(()), .. }));
        client.read_exact(&mut [0; 100]).unwrap();
    }
    stream.flush().unwrap();
    let (from, before) = (port.now(), cpu_time());
    let until = from + Duration::from_secs(2);
    while port.now() < until {
        port.wait(Some(until));
        assert!(port.next_event().is_none());
    }
    let spent = cpu_time() - before;
    println!("{}: {spent:?} of CPU time in two idle seconds", port.name());
    assert!(spent < Duration::from_millis(20), "{spent:?} in two idle seconds");
    drop(idle);
}

pub(crate) fn short_waits_do_not_sleep<P: Port>(make: impl Fn(&Config) -> P) {
    // Correctness of the spinning path: a quick peer, a long window.
    let _alone = crate::alone();
    let spin = Config { spin_max: Duration::from_millis(2), ..Config::default() };
    let mut port = make(&spin);
    let (mut client, socket) = receiving(&mut port, 1);
    client.set_nodelay(true).unwrap();
    let peer = thread::spawn(move || {
        let mut bytes = [0; 64];
        for _ in 0..5000 {
            client.write_all(&[7; 64]).unwrap();
            client.read_exact(&mut bytes).unwrap();
        }
    });
    let (mut got, mut replies, mut spare, from) = (0, 0, Some(list(vec![9; 64])), port.now());
    while replies < 5000 {
        match next(&mut port).1 {
            Event::Received { bytes } => got += bytes.len(),
            Event::Sent { list, result: Ok(()) } => {
                spare = Some(list);
                replies += 1;
            }
            other => panic!("unexpected {other:?}"),
        }
        if got >= 64
            && let Some(list) = spare.take()
        {
            got -= 64;
            port.submit(Token(2), Work::Send { socket, list });
        }
    }
    peer.join().unwrap();
    let each = between(from, port.now()) / 5000;
    println!("{}: {each:?} a round trip", port.name());
}
