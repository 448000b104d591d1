// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a target says unasked, and ends that do not depend on the initiator (RFC 7143 §7.6, §11.9).

use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::server::plan;
use lunwire_conformance::tasks::*;
use lunwire_conformance::*;
use target::Found;
use wire::iscsi::*;

/// What ends whatever the peer does has ended after this time, on a machine under load too.
const BOUND: Duration = Duration::from_secs(10);

const LOGOUT_REQUESTED: u8 = 1;
const SESSION_DROPPED: u8 = 3;

fn expect_no_session(server: &Server, begun: Instant) {
    while !server.target().sessions().is_empty() {
        assert!(begun.elapsed() < BOUND, "it has not ended in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asynchronous event reporting is obsolete since SPC-3 and not announced: whatever happens to a
/// unit, nobody is told by event 0; unit attentions wait for the next command.
///
/// Covers: ASY-10.
#[test]
fn changes_of_a_unit_are_no_asynchronous_events() {
    on_each_transport(
        |_| {},
        |server| {
            let mut one = session_with(server, &[]);
            let mut two = session_with(server, &[]);
            let inquiry = one.command(0, &[0x12, 0, 0, 0, 36, 0]);
            let inquiry = ScsiCommand { read: true, expected_length: 36, ..inquiry };
            assert_eq!(one.run(&inquiry).data[3] & 0x80, 0, "AERC");
            // Mode parameters change, the unit is stopped, started and reset.
            protect(&mut one);
            for start in [0, 1] {
                let command = one.command(0, &[0x1b, 0, 0, 0, start, 0]);
                assert_eq!(one.run(&command).code, 0);
            }
            manage(&mut one, LOGICAL_UNIT_RESET, 0, Itt::NONE);
            assert_eq!(managed(&mut one), 0);
            for session in [&mut one, &mut two] {
                session.expect_quiet();
            }
            two.settle(0);
        },
    );
}

/// The target does not use the permission to reject: an initiator that was asked to log out may
/// write what it still has, until its time is over.
///
/// Covers: ASY-05, ASY-06.
#[test]
fn commands_run_until_the_time_for_logging_out_is_over() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session_with(server, &[]);
            let open = open_write(&mut session, 0, 0);
            // Silence before does not count.
            std::thread::sleep(Duration::from_millis(1500));
            let begun = Instant::now();
            assert_eq!(server.target().logout_session(session.tsih.0, 2), Found::Here);
            match session.read().response() {
                Response::Async(message) => {
                    assert_eq!((message.event, message.parameter3), (LOGOUT_REQUESTED, 2));
                }
                other => panic!("a request to log out was due: {other:?}"),
            }
            complete(&mut session, &open);
            let read = session.read_blocks(0, 0, 1);
            assert_eq!(session.run(&read).data, [1; 512]);
            assert!(matches!(session.expect_dropped().event, 2 | 3));
            assert!(begun.elapsed() >= Duration::from_secs(2), "the whole time was given");
            expect_no_session(server, Instant::now());
        },
    );
}

/// An initiator that never reads: more data than all buffers on the way hold is waiting for it.
fn deaf(server: &Server) -> Initiator {
    let mut session = session_with(server, &[]);
    for _ in 0..24 {
        let read = session.read_blocks(0, 0, 2048);
        session.start(&read);
    }
    session
}

/// An initiator that reads and says nothing more: data was asked for, task management waits for it,
/// a fence waits for an acknowledgement.
fn mute(server: &Server) -> Initiator {
    let mut session = session_with(server, &[]);
    session.settle(FILE_LUN);
    open_write(&mut session, 0, 0);
    open_write(&mut session, FILE_LUN, 0);
    manage(&mut session, ABORT_TASK_SET, 0, Itt::NONE);
    manage(&mut session, LOGICAL_UNIT_RESET, FILE_LUN, Itt::NONE);
    session
}

/// Covers: ASY-06.
#[test]
fn administration_ends_a_session_whatever_its_initiator_does() {
    on_each_transport(
        |_| {},
        |server| {
            for peer in [deaf, mute] {
                for drops in [true, false] {
                    let session = peer(server);
                    let begun = Instant::now();
                    let tsih = session.tsih.0;
                    if drops {
                        assert_eq!(server.target().drop_session(tsih), Found::Here);
                    } else {
                        assert_eq!(server.target().logout_session(tsih, 1), Found::Here);
                    }
                    assert!(begun.elapsed() < BOUND, "administration itself does not wait");
                    expect_no_session(server, begun);
                    // Its place is free for the next one while the old connection still hangs.
                    session_with(server, &[]).leave();
                    drop(session);
                }
            }
        },
    );
}

#[test]
fn a_stop_waits_for_no_initiator() {
    for peer in [deaf, mute] {
        let plan = plan(engine::Choice::Auto, iscsi::target_role::Settings::default());
        let server = Server::start(plan);
        let session = peer(&server);
        let begun = Instant::now();
        server.target().stop(Duration::from_secs(1)).expect("stops");
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        drop(session);
    }
}

/// Covers: ASY-01, ASY-02, ASY-06, ASY-07.
#[test]
fn a_stop_asks_first_and_drops_then() {
    let plan = plan(engine::Choice::Auto, iscsi::target_role::Settings::default());
    let server = Server::start(plan);
    let mut session = session_with(&server, &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| server.target().stop(Duration::from_secs(2)).expect("stops"));
        let asked = session.read();
        assert_eq!(asked.word(16), u32::MAX, "no task");
        match asked.response() {
            Response::Async(message) => {
                assert_eq!((message.event, message.parameter3), (LOGOUT_REQUESTED, 2));
            }
            other => panic!("a request to log out was due: {other:?}"),
        }
        let message = session.expect_dropped();
        if message.event == SESSION_DROPPED {
            assert_eq!(message.parameter1, 0);
        } else {
            assert_eq!(message.parameter1, 1, "the CID");
        }
        let defaults = (2, 20);
        assert_eq!((message.parameter2, message.parameter3), defaults, "Time2Wait, Time2Retain");
    });
}

/// Tasks that ended without a status hold up nobody: an ORDERED command behind them runs.
///
/// Covers: LGO-12.
#[test]
fn ordered_successors_of_tasks_ended_silently_go_on() {
    on_each_transport(
        |_| {},
        |server| {
            let mut one = session_with(server, &[]);
            // Ended with their session, by a reset of the other's, or one by one.
            for how in 0..3 {
                let mut gone = session_with(server, &[]);
                one.settle(0);
                let open = open_write(&mut gone, 0, 0);
                let read = one.read_blocks(0, 64, 1);
                let ordered = ScsiCommand { attribute: Attribute::Ordered, ..read };
                one.start(&ordered);
                match how {
                    0 => drop(gone),
                    1 => gone.leave(),
                    _ => {
                        manage(&mut gone, ABORT_TASK, 0, open.itt);
                        assert_eq!(managed(&mut gone), 0);
                    }
                }
                let status = one.finish(ordered.itt);
                assert_eq!((status.code, status.data.len()), (0, 512));
            }
        },
    );
}
