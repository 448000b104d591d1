// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values between two ports of a process: nobody sleeps while there is something for him.

use std::collections::VecDeque;
use std::thread;

use engine::Config;
use engine::Event;
use engine::Port;
use engine::duplex::Bounds;
use engine::duplex::End;
use engine::duplex::duplex;
use engine::epoll::Epoll;

use crate::rig::next;

/// Many more than there is room for.
const VALUES: u32 = 20_000;

/// Little room, so that both sides wait for it time and again.
const BOUNDS: Bounds = Bounds { count_max: 7, weight_max: 20 };

pub(crate) fn values_flow_both_ways<P: Port>(make: impl Fn(&Config) -> P) {
    let (near, far) = duplex::<u32, u32>(BOUNDS);
    let echo = thread::spawn(move || give_back(&far));
    let mut port = make(&Config::default());
    near.attach(port.waker());
    let (mut sent, mut expected, mut came) = (0, 0, VecDeque::new());
    while expected < VALUES {
        near.send_from(|| {
            let value = (sent < VALUES).then_some(sent)?;
            sent += 1;
            Some((value, value as usize % 9))
        });
        assert!(matches!(next(&mut port), (_, Event::Woken)));
        near.receive(&mut came);
        for value in came.drain(..) {
            assert_eq!(value, expected, "in order");
            expected += 1;
        }
    }
    drop(near);
    echo.join().unwrap();
}

/// Sends back what comes, until the other end closes.
fn give_back(end: &End<u32, u32>) {
    let mut port = Epoll::new(&Config::default()).unwrap();
    end.attach(port.waker());
    let mut came = VecDeque::new();
    loop {
        // What comes while there is something left is not told of again.
        while came.is_empty() {
            end.receive(&mut came);
            if came.is_empty() {
                break;
            }
            end.send_from(|| came.pop_front().map(|value| (value, 3)));
        }
        if came.is_empty() && end.is_over() {
            return;
        }
        assert!(matches!(next(&mut port), (_, Event::Woken)));
        end.send_from(|| came.pop_front().map(|value| (value, 3)));
    }
}
