// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sessions cost is given back when they end. One test alone in its process, since it counts
//! what the process has.

use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::*;
use wire::iscsi::*;

/// Open descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Memory of this process, bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize = text.split(' ').nth(1).expect("a second field").parse().expect("a number");
    pages * 4096
}

/// A session with some of everything: I/O, pings, an abort, an end of one of three kinds.
fn live(server: &Server, round: usize) {
    // A session whose connection is lost is not kept.
    let plan = LoginPlan::new().with(&[("DefaultTime2Retain", "0")]);
    let mut session = server.login_with(&plan);
    session.settle(0);
    let write = session.write_blocks(0, 0, 8);
    session.send(&Request::Command(write), &pattern(8 * BLOCK_BYTES, 3));
    session.finish(write.itt);
    let read = session.read_blocks(0, 0, 8);
    session.run(&read);
    for _ in 0..8 {
        session.expect_quiet();
    }
    let unfinished = ScsiCommand { final_: false, ..session.write_blocks(0, 0, 64) };
    session.start(&unfinished);
    match round % 3 {
        0 => {
            let abort = session.management(1, 0, unfinished.itt);
            session.send(&Request::TaskManagement(abort), &[]);
        }
        1 => {
            let logout = session.logout(0);
            session.send(&Request::Logout(logout), &[]);
            session.read();
        }
        // It vanishes.
        _ => {}
    }
}

#[test]
fn nothing_is_left_of_sessions_that_are_over() {
    on_each_engine(
        |_| {},
        |server| {
            (0..12).for_each(|round| live(server, round));
            settle(server);
            let (before, memory) = (descriptors(), resident());
            (0..60).for_each(|round| live(server, round));
            settle(server);
            // Closing takes a moment; what is left must be nothing.
            let begun = Instant::now();
            while descriptors() > before {
                assert!(begun.elapsed() < Duration::from_secs(30), "descriptors leak");
                std::thread::sleep(Duration::from_millis(20));
            }
            let grown = resident().saturating_sub(memory);
            assert!(grown < 4 << 20, "{grown} bytes more after 60 sessions");
        },
    );
}

/// Waits until no session is left.
fn settle(server: &Server) {
    let begun = Instant::now();
    while !server.target().sessions().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "a session does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}
