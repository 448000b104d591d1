// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a target tells of itself: figures of each reactor.

use std::time::Duration;

use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::*;
use target::Traffic;

const PATIENCE: Duration = Duration::from_secs(20);

fn traffic(server: &Server) -> Traffic {
    let answered = server.target().figures(PATIENCE);
    assert_eq!(answered.silent, [0_usize; 0]);
    let mut all = Traffic::default();
    answered.answers.iter().for_each(|figures| all.join(&figures.traffic));
    all
}

/// They never become less when sessions and connections go.
#[test]
fn figures_count_what_has_come_and_gone() {
    on_each_engine(
        |_| {},
        |server| {
            let begin = traffic(server);
            assert_eq!(begin, Traffic::default());
            let mut session = server.login();
            session.settle(0);
            let before = traffic(server);
            for _ in 0..3 {
                let read = session.read_blocks(0, 0, 2);
                assert_eq!(session.run(&read).code, GOOD);
            }
            let during = traffic(server);
            assert_eq!(during.commands - before.commands, 3);
            assert_eq!(during.bytes_in - before.bytes_in, 6 * BLOCK_BYTES as u64);
            let (now, was) = (during.connections, before.connections);
            assert_eq!(now.pdus_in.scsi_command - was.pdus_in.scsi_command, 3);
            assert_eq!(now.pdus_out.data_in - was.pdus_out.data_in, 3);
            assert_eq!((now.pdus_in.login, now.pdus_out.login), (1, 1));
            session.leave();
            while !server.target().sessions().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let after = traffic(server);
            assert_eq!((after.commands, after.bytes_in), (during.commands, during.bytes_in));
            assert_eq!((after.connections.pdus_in.logout, after.connections.pdus_in.login), (1, 1));
            assert_eq!(after.connections.pdus_in.scsi_command, now.pdus_in.scsi_command);
        },
    );
}

#[test]
fn figures_name_sessions_and_memory_of_each_reactor() {
    on_each_engine(
        |_| {},
        |server| {
            let sessions = [server.login(), server.login(), server.login()];
            let figures = server.target().figures(PATIENCE).answers;
            let numbers: Vec<usize> = figures.iter().map(|one| one.reactor).collect();
            assert_eq!(numbers, (0..server.target().reactors()).collect::<Vec<_>>());
            let held: usize = figures.iter().map(|one| one.holdings.sessions).sum();
            assert_eq!(held, sessions.len());
            for one in &figures {
                assert_eq!(one.holdings.sessions, one.sessions.len());
                assert!(one.sessions.iter().all(|session| session.reactor == one.reactor));
                assert_eq!(one.pool_bytes_max, 64 << 20);
                assert!(one.holdings.pool_bytes <= one.pool_bytes_max);
            }
        },
    );
}
