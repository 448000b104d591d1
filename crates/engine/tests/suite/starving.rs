// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Too few buffers, readers that dawdle, a process that is stopped: late, but nothing is lost.

use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;

use engine::Config;
use engine::Event;
use engine::Port;
use engine::Token;

use crate::rig::next;
use crate::rig::next_within;
use crate::rig::quiet;
use crate::rig::receiving;
use crate::sockets::Echo;
use crate::sockets::client;
use crate::sockets::slow_client;

/// More connections than buffers, so that most of them find none.
const FEW: Config = Config {
    spin_max: Duration::from_micros(100),
    receive_buffers: 2,
    receive_buffer_bytes: 4096,
    name: String::new(),
};

pub(crate) fn idle_connections_starve_nobody<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&FEW);
    // Two connections have both buffers.
    let (mut first, _) = receiving(&mut port, 1);
    let (mut second, _) = receiving(&mut port, 2);
    first.write_all(b"one").unwrap();
    second.write_all(b"two").unwrap();
    let held = [next(&mut port), next(&mut port)];
    assert!(held.iter().all(|(_, event)| matches!(event, Event::Received { .. })), "{held:?}");
    // The others ask for one, have nothing to receive, and ask again when the buffers are back.
    let mut clients: Vec<_> = (3..40).map(|token| receiving(&mut port, token).0).collect();
    quiet(&mut port, Duration::from_millis(20));
    drop(held);
    let last = clients.last_mut().unwrap();
    let mut late = last.try_clone().unwrap();
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        late.write_all(b"last").unwrap();
    });
    let event = next_within(&mut port, Duration::from_secs(10));
    assert!(matches!(event, Some((Token(39), Event::Received { .. }))), "{event:?}");
    writer.join().unwrap();
}

pub(crate) fn slow_readers_and_two_buffers<P: Port>(make: impl Fn(&Config) -> P) {
    let mut echo = Echo::new(make(&FEW));
    let address = echo.address;
    let rest = Duration::from_millis(3);
    let clients: Vec<_> = (0..24)
        .map(|seed| thread::spawn(move || slow_client(address, seed, 400_000, rest)))
        .collect();
    echo.serve(clients.len());
    for client in clients {
        client.join().unwrap();
    }
}

/// Stops the process `$0` twelve times for ten milliseconds.
const STOPPER: &str = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do kill -STOP $0; sleep 0.01; \
                       kill -CONT $0; sleep 0.02; done";

/// SIGSTOP and SIGCONT interrupt waits at any point; what came meanwhile is found afterwards.
pub(crate) fn a_stopped_process_goes_on<P: Port>(make: impl Fn(&Config) -> P) {
    let mut stopper =
        Command::new("sh").args(["-c", STOPPER, &std::process::id().to_string()]).spawn().unwrap();
    for config in [FEW, Config { spin_max: Duration::ZERO, ..Config::default() }] {
        let mut echo = Echo::new(make(&config));
        let address = echo.address;
        let rest = Duration::from_millis(1);
        let clients: Vec<_> = (0..6)
            .map(|seed| {
                thread::spawn(move || match seed % 2 {
                    0 => client(address, seed, 2 << 20),
                    _ => slow_client(address, seed, 1 << 20, rest),
                })
            })
            .collect();
        echo.serve(clients.len());
        for client in clients {
            client.join().unwrap();
        }
    }
    assert!(stopper.wait().unwrap().success());
}
