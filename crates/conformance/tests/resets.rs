// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resets of a whole target (RFC 7143 §11.5.1) and the functions of RFC 7144.

use std::time::Duration;
use std::time::Instant;

use iscsi::target_role::TargetReset;
use lunwire_conformance::server::CLOSED_TARGET;
use lunwire_conformance::server::FRIEND;
use lunwire_conformance::server::plan;
use lunwire_conformance::tasks::*;
use lunwire_conformance::*;
use wire::iscsi::*;
use wire::scsi::sam::RESERVATION_CONFLICT;

const QUERY_TASK: u8 = 9;
const QUERY_TASK_SET: u8 = 10;
const I_T_NEXUS_RESET: u8 = 11;
const QUERY_ASYNCHRONOUS_EVENT: u8 = 12;

const NOTHING: (u8, u8, u8) = (0, 0, 0);
const POWER_ON: (u8, u8, u8) = (0x06, 0x29, 0x00);
const DEVICE_RESET: (u8, u8, u8) = (0x06, 0x29, 0x03);
const NEXUS_LOSS: (u8, u8, u8) = (0x06, 0x29, 0x07);

const PROTOCOL_LEVEL: [(&str, &str); 1] = [("iSCSIProtocolLevel", "2")];

/// Response and additional information of a function.
fn asked(session: &mut Initiator, request: TaskManagementRequest) -> (u8, u32) {
    session.send(&Request::TaskManagement(request), &[]);
    match session.read().response() {
        Response::TaskManagement(answer) => (answer.response, answer.additional),
        other => panic!("an answer to task management was due: {other:?}"),
    }
}

fn ask(session: &mut Initiator, function: u8, lun: u8, task: Itt) -> (u8, u32) {
    let request = session.management(function, lun, task);
    asked(session, request)
}

/// Covers: TMF-22, TMF-20, TMF-14, CLR-04.
#[test]
fn warm_reset_ends_the_tasks_of_all_units_and_sessions() {
    on_each_transport(
        |_| {},
        |server| {
            let [mut one, mut two] = [(); 2].map(|()| session_with(server, &[]));
            let mut three = session_with(server, &[]);
            let mine = [open_write(&mut one, 0, 0), open_write(&mut one, 1, 0)];
            let foreign = [open_write(&mut two, 0, 2), open_write(&mut two, 1, 2)];
            manage(&mut one, TARGET_WARM_RESET, 0, Itt::NONE);
            one.expect_quiet();
            for r2t in &mine {
                one.expect_quiet();
                answer(&mut one, r2t);
            }
            assert_eq!(managed(&mut one), 0);
            for r2t in &foreign {
                expect_aborted(&mut two, r2t);
            }
            for session in [&mut one, &mut two, &mut three] {
                for lun in [0, 1] {
                    assert_eq!(attention(session, lun), DEVICE_RESET);
                    assert_eq!(attention(session, lun), NOTHING);
                }
                // The sequence numbers went on: `Initiator` checks every StatSN.
                session.expect_quiet();
            }
            for (lun, block) in [(0, 0), (1, 0), (0, 2), (1, 2)] {
                expect_untouched(&mut three, lun, block);
            }
        },
    );
}

/// Covers: TMF-17.
#[test]
fn a_target_reset_plugs_what_has_not_come() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session_with(server, &[]);
            let missing = session.test_unit_ready(0);
            let behind = session.test_unit_ready(1);
            session.start(&behind);
            session.expect_quiet();
            let request = session.management(TARGET_WARM_RESET, 0, Itt::NONE);
            session.send(&Request::TaskManagement(request), &[]);
            // What had come was a command like any other: it has run, or it has ended.
            let answer = loop {
                match session.read().response() {
                    Response::TaskManagement(answer) => break answer,
                    Response::Scsi(answer) => assert_eq!(answer.itt, behind.itt),
                    other => panic!("an answer to task management was due: {other:?}"),
                }
            };
            assert_eq!(answer.response, 0);
            assert_eq!(answer.numbers.exp_cmd_sn, session.cmd_sn);
            session.start(&missing);
            session.expect_quiet();
        },
    );
}

/// Registers a key.
fn register(session: &mut Initiator) {
    let mut list = [0; 24];
    list[15] = 7;
    let command = session.command(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0]);
    let command = ScsiCommand { write: true, expected_length: 24, ..command };
    session.send(&Request::Command(command), &list);
    assert_eq!(session.finish(command.itt).code, 0, "REGISTER");
}

fn registrations(session: &mut Initiator) -> u32 {
    let command = session.command(0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0]);
    let status = session.run(&ScsiCommand { read: true, expected_length: 64, ..command });
    assert_eq!(status.code, 0);
    u32::from_be_bytes(status.data[4..8].try_into().expect("four bytes")) / 8
}

fn expect_no_session(server: &Server) {
    let begun = Instant::now();
    while !server.target().sessions().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "all sessions end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Covers: TMF-22, TMF-23, CLR-05, ASY-07.
#[test]
fn cold_reset_is_as_power_on() {
    on_each_transport(
        |settings| settings.target_reset = TargetReset::Cold,
        |server| {
            let names = ["first", "second"].map(|name| LoginPlan {
                initiator: Some(format!("iqn.2026-01.example.conformance:{name}")),
                ..LoginPlan::new()
            });
            let [mut one, mut two] = names.clone().map(|plan| server.login_with(&plan));
            for session in [&mut one, &mut two] {
                session.settle(0);
            }
            let foreign = open_write(&mut two, 0, 2);
            protect(&mut one);
            assert!(is_protected(&mut one));
            register(&mut one);
            manage(&mut one, TARGET_COLD_RESET, 0, Itt::NONE);
            assert_eq!(managed(&mut one), 0);
            answer(&mut two, &foreign);
            for session in [&mut one, &mut two] {
                let news = session.expect_dropped();
                assert_eq!((news.event, news.parameter2), (3, 2));
            }
            expect_no_session(server);
            for plan in &names {
                let mut session = server.login_with(plan);
                assert_eq!(attention(&mut session, 0), POWER_ON);
                assert_eq!(attention(&mut session, 0), NOTHING);
                assert!(!is_protected(&mut session), "the default is back");
                assert_eq!(registrations(&mut session), 0);
                expect_untouched(&mut session, 0, 2);
                session.leave();
            }
        },
    );
}

/// Covers: TMF-24.
#[test]
fn resets_are_refused_to_whom_they_are_forbidden() {
    // Everybody may ask for a warm one, and the friend of the closed target for nothing.
    let mut plan = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
    plan.nodes[1].access[0].target_reset = Some(TargetReset::None);
    let server = Server::start(plan);
    let friend = LoginPlan {
        initiator: Some(FRIEND.to_owned()),
        target: Some(CLOSED_TARGET.to_owned()),
        ..LoginPlan::new().with(&[("MaxBurstLength", "512"), ("FirstBurstLength", "512")])
    };
    let mut friend = server.login_with(&friend);
    friend.settle(0);
    let mut other = session_with(&server, &[]);
    let open = open_write(&mut friend, 0, 0);
    for function in [TARGET_WARM_RESET, TARGET_COLD_RESET] {
        assert_eq!(ask(&mut friend, function, 0, Itt::NONE).0, 6);
    }
    complete(&mut friend, &open);
    assert_eq!(attention(&mut friend, 0), NOTHING);
    assert_eq!(ask(&mut other, TARGET_COLD_RESET, 0, Itt::NONE).0, 6);
    assert_eq!(ask(&mut other, TARGET_WARM_RESET, 0, Itt::NONE).0, 0);
    assert_eq!(attention(&mut friend, 0), NOTHING, "another target");
}

/// Covers: P44-01a/T, P44-02/T.
#[test]
fn the_newer_functions_are_for_sessions_of_level_2() {
    on_each_transport(
        |_| {},
        |server| {
            for (keys, answer) in [(&[][..], 5), (&[("iSCSIProtocolLevel", "1")], 5)] {
                let mut session = session_with(server, keys);
                let open = open_write(&mut session, 0, 0);
                for function in QUERY_TASK..=QUERY_ASYNCHRONOUS_EVENT {
                    assert_eq!(ask(&mut session, function, 0, open.itt), (answer, 0));
                }
                complete(&mut session, &open);
            }
            let mut session = session_with(server, &PROTOCOL_LEVEL);
            assert_eq!(session.answer("iSCSIProtocolLevel"), Some("2"));
            assert_eq!(ask(&mut session, QUERY_TASK_SET, 0, Itt::NONE), (0, 0));
            assert_eq!(ask(&mut session, 13, 0, Itt::NONE), (5, 0));
        },
    );
}

/// Covers: P44-03, P44-07, TMF-11.
#[test]
fn query_task_tells_whether_a_task_is_there() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session_with(server, &PROTOCOL_LEVEL);
            let open = open_write(&mut session, 0, 0);
            assert_eq!(ask(&mut session, QUERY_TASK, 0, open.itt), (7, 0));
            assert_eq!(ask(&mut session, QUERY_TASK, 1, open.itt), (0, 0), "not on that unit");
            assert_eq!(ask(&mut session, QUERY_TASK, 99, open.itt), (2, 0));
            complete(&mut session, &open);
            assert_eq!(ask(&mut session, QUERY_TASK, 0, open.itt), (0, 0));
        },
    );
}

/// Covers: P44-04, P44-07.
#[test]
fn query_task_set_is_about_one_nexus_and_unit() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session_with(server, &PROTOCOL_LEVEL);
            let mut other = session_with(server, &PROTOCOL_LEVEL);
            let open = open_write(&mut session, 0, 0);
            assert_eq!(ask(&mut session, QUERY_TASK_SET, 0, Itt::NONE), (7, 0));
            assert_eq!(ask(&mut session, QUERY_TASK_SET, 1, Itt::NONE), (0, 0));
            assert_eq!(ask(&mut other, QUERY_TASK_SET, 0, Itt::NONE), (0, 0));
            assert_eq!(ask(&mut session, QUERY_TASK_SET, 99, Itt::NONE), (2, 0));
            complete(&mut session, &open);
            assert_eq!(ask(&mut session, QUERY_TASK_SET, 0, Itt::NONE), (0, 0));
        },
    );
}

/// Covers: P44-05.
#[test]
fn nexus_reset_ends_the_tasks_of_one_session_on_all_units() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session_with(server, &PROTOCOL_LEVEL);
            let mut other = session_with(server, &PROTOCOL_LEVEL);
            let reserve = session.command(1, &[0x16, 0, 0, 0, 0, 0]);
            assert_eq!(session.run(&reserve).code, 0);
            let ready = other.test_unit_ready(1);
            assert_eq!(other.run(&ready).code, RESERVATION_CONFLICT);
            let open = [open_write(&mut session, 0, 0), open_write(&mut session, 1, 0)];
            let foreign = open_write(&mut other, 0, 2);
            manage(&mut session, I_T_NEXUS_RESET, 0, Itt::NONE);
            for r2t in &open {
                answer(&mut session, r2t);
            }
            assert_eq!(managed(&mut session), 0);
            for lun in [0, 1] {
                assert_eq!(attention(&mut session, lun), NEXUS_LOSS);
                assert_eq!(attention(&mut session, lun), NOTHING);
                expect_untouched(&mut session, lun, 0);
            }
            complete(&mut other, &foreign);
            assert_eq!(attention(&mut other, 0), NOTHING);
            assert_eq!(attention(&mut other, 1), NOTHING, "the reservation of RESERVE has ended");
        },
    );
}

/// Covers: P44-06a, P44-07.
#[test]
fn query_asynchronous_event_tells_what_waits() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session_with(server, &PROTOCOL_LEVEL);
            let mut other = session_with(server, &PROTOCOL_LEVEL);
            let query = |session: &mut Initiator, lun| {
                ask(session, QUERY_ASYNCHRONOUS_EVENT, lun, Itt::NONE)
            };
            assert_eq!(query(&mut session, 0), (0, 0));
            assert_eq!(ask(&mut other, LOGICAL_UNIT_RESET, 0, Itt::NONE), (0, 0));
            // One: the key and codes of what the next command is told. Asking takes nothing away.
            assert_eq!(query(&mut session, 0), (7, 0x0016_2903));
            assert_eq!(query(&mut session, 0), (7, 0x0016_2903));
            assert_eq!(query(&mut session, 1), (0, 0));
            assert_eq!(query(&mut session, 99), (2, 0));
            other.settle(0);
            protect(&mut other);
            assert_eq!(query(&mut session, 0), (7, 0x0026_2903), "there are more");
            assert_eq!(attention(&mut session, 0), DEVICE_RESET);
            assert_eq!(query(&mut session, 0), (7, 0x0016_2a01));
            session.settle(0);
            assert_eq!(query(&mut session, 0), (0, 0));
        },
    );
}
