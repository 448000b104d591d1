// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A listening socket that epoll cannot watch for want of memory is tried again, and its work has
//! one last event: for polling cores, which keep an entry until then, too.
#![allow(clippy::unwrap_used)] // a test fails by panicking

extern crate lunwire_engine as engine;

mod sandbox;

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::thread;
use std::time::Duration;

use engine::Choice;
use engine::Config;
use engine::Event;
use engine::Port;
use engine::Token;
use engine::Work;
use engine::epoll::Epoll;
use engine::ppe::Idle;
use engine::ppe::Ppe;
use engine::ppe::Settings;
use libc::sock_filter;

use self::sandbox::confine;

const PATIENCE: Duration = Duration::from_secs(60);
/// Where seccomp(2) puts the third argument of a call, on a machine whose low word comes first.
const THIRD_ARGUMENT: u32 = 32;

/// Makes epoll_ctl(2) fail for one descriptor on the calling thread and on those that it starts,
/// for ever.
fn forbid(fd: RawFd) -> io::Result<()> {
    let code = |bits: u32| u16::try_from(bits).unwrap();
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
    let jump = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let give = code(libc::BPF_RET | libc::BPF_K);
    let call = u32::try_from(libc::SYS_epoll_ctl).unwrap();
    let errno = libc::SECCOMP_RET_ERRNO | libc::ENOMEM.unsigned_abs();
    let mut filter = [
        sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        sock_filter { code: jump, jt: 0, jf: 3, k: call },
        sock_filter { code: load, jt: 0, jf: 0, k: THIRD_ARGUMENT },
        sock_filter { code: jump, jt: 0, jf: 1, k: fd.unsigned_abs() },
        sock_filter { code: give, jt: 0, jf: 0, k: errno },
        sock_filter { code: give, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    confine(&mut filter)
}

fn next<P: Port>(port: &mut P) -> Event {
    let deadline = port.now() + PATIENCE;
    loop {
        if let Some((token, event)) = port.next_event() {
            assert_eq!(token, Token(3));
            return event;
        }
        assert!(port.now() < deadline, "nothing came in time");
        port.wait(Some(deadline));
    }
}

fn fails_until_closed<P: Port>(mut port: P, listener: OwnedFd) {
    let socket = port.add_socket(listener);
    port.submit(Token(3), Work::Accept { socket });
    let begin = port.now();
    for _ in 0..3 {
        let event = next(&mut port);
        assert!(matches!(event, Event::AcceptFailed { errno: libc::ENOMEM }), "{event:?}");
    }
    assert!(port.now().since(begin) >= Duration::from_millis(150), "no pause between them");
    port.close(socket);
    loop {
        match next(&mut port) {
            Event::AcceptFailed { errno: libc::ECANCELED } => break,
            Event::AcceptFailed { errno: libc::ENOMEM } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// Runs `scenario` where its listening socket cannot be watched.
fn unwatched(scenario: impl FnOnce(OwnedFd) + Send + 'static) {
    let listener = engine::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let sandboxed = thread::spawn(move || match forbid(listener.as_raw_fd()) {
        Ok(()) => scenario(listener),
        Err(error) => println!("skipped: no seccomp filters here: {error}"),
    });
    sandboxed.join().unwrap();
}

#[test]
fn epoll_tries_again_to_watch() {
    unwatched(|listener| fails_until_closed(Epoll::new(&Config::default()).unwrap(), listener));
}

#[test]
fn a_polling_core_tries_again_to_watch() {
    unwatched(|listener| {
        let port = Config::default();
        let settings = Settings { engine: Choice::Epoll, port, cpu: None, idle: Idle::Sleep };
        let seat = engine::ppe::start(&settings, 1).unwrap().pop().unwrap();
        fails_until_closed(Ppe::from(seat), listener);
    });
}
