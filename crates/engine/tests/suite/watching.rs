// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors that are read elsewhere.

use std::os::fd::OwnedFd;
use std::time::Duration;

use engine::Config;
use engine::Event;
use engine::Port;
use engine::Token;
use engine::Work;
use rustix::event::EventfdFlags;
use rustix::event::epoll;
use rustix::event::epoll::EventData;
use rustix::event::epoll::EventFlags;
use rustix::event::eventfd;

use crate::rig::next;
use crate::rig::quiet;

const WATCHING: Token = Token(5);

/// A queue's descriptor, and one that is readable when that is: what a device has.
fn queue() -> (OwnedFd, OwnedFd) {
    let queue = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let all = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&all, &queue, EventData::new_u64(0), EventFlags::IN).unwrap();
    (queue, all)
}

fn fill(queue: &OwnedFd) {
    rustix::io::write(queue, &1_u64.to_ne_bytes()).unwrap();
}

fn drain(queue: &OwnedFd) {
    rustix::io::read(queue, &mut [0; 8]).unwrap();
}

pub(crate) fn what_can_be_read_is_told_once<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (queue, all) = queue();
    fill(&queue);
    let socket = port.add_socket(all);
    port.submit(WATCHING, Work::Watch { socket });
    for _ in 0..3 {
        // There before it was watched, and whenever more comes.
        assert!(matches!(next(&mut port), (WATCHING, Event::Ready)));
        drain(&queue);
        quiet(&mut port, Duration::from_millis(5));
        fill(&queue);
    }
}

pub(crate) fn closing_ends_watching<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (queue, all) = queue();
    let socket = port.add_socket(all);
    port.submit(WATCHING, Work::Watch { socket });
    quiet(&mut port, Duration::from_millis(5));
    port.close(socket);
    let (token, event) = next(&mut port);
    assert!(matches!(event, Event::ReceiveEnded { error: Some(libc::ECANCELED) }), "{event:?}");
    assert_eq!(token, WATCHING);
    fill(&queue);
    quiet(&mut port, Duration::from_millis(5));
    let socket = port.add_socket(queue);
    port.close(socket);
    port.submit(WATCHING, Work::Watch { socket });
    let (token, event) = next(&mut port);
    assert!(matches!(event, Event::ReceiveEnded { error: Some(libc::EBADF) }), "{event:?}");
    assert_eq!(token, WATCHING);
}
