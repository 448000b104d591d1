// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads that wait for the line of their session, and what ends those in front of them.

use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::raw::header;
use lunwire_conformance::server::Medium;
use lunwire_conformance::server::add_protected;
use lunwire_conformance::*;
use scsi::ProtectionType;
use wire::iscsi::*;
use wire::scsi::sam::TASK_SET_FULL;

/// Blocks of a large READ: 1 MiB.
const LARGE: u16 = 2048;

/// Far more of these than a session may be owed, and than the system takes for a connection.
const MANY: u32 = 60;

/// Until all of them have come, or wait.
const WHILE: Duration = Duration::from_millis(200);

/// Less than the time after which a command that waits is refused.
const SOON: Duration = Duration::from_millis(1500);

/// More than that time, and what a busy machine needs.
const LATER: Duration = Duration::from_secs(5);

const LOGICAL_UNIT_RESET: u8 = 5;
const ABORT_TASK: u8 = 1;
const COMPLETE: u8 = 0;

fn session(server: &Server) -> Initiator {
    let mut session = server.login_with(&LoginPlan::new());
    settle(&mut session);
    session
}

fn settle(session: &mut Initiator) {
    session.settle(0);
    session.settle(1);
}

/// All at once: a connection to which much is owed is not read, and holds up what has a later
/// CmdSN on another one.
fn start_many(session: &mut Initiator, lun: u8) -> Vec<Itt> {
    let reads: Vec<ScsiCommand> = (0..MANY).map(|_| session.read_blocks(lun, 0, LARGE)).collect();
    let mut bytes = Vec::new();
    for read in &reads {
        bytes.extend(session.raw.assemble(&header(&Request::Command(*read), 0), &[]));
    }
    session.raw.write(&bytes);
    reads.iter().map(|read| read.itt).collect()
}

/// What is due to a connection that has gone is due no more.
#[test]
fn reads_do_not_wait_for_a_connection_that_has_gone() {
    for is_lost in [true, false] {
        on_each_engine(
            |_| {},
            |server| {
                // Lost frames go again when their connection is read, which it is not here.
                if server.is_over_frames() {
                    return;
                }
                let mut plan = LoginPlan::new().with(&[("MaxConnections", "4")]);
                let mut first = server.login_with(&plan);
                settle(&mut first);
                plan.keys.clear();
                (plan.tsih, plan.cid, plan.cmd_sn) = (first.tsih, Cid(2), first.cmd_sn);
                let mut second = server.login_with(&plan);
                start_many(&mut first, 0);
                second.cmd_sn = first.cmd_sn;
                // It is answered when all commands before it have come.
                let ping = second.ping();
                second.send(&Request::NopOut(ping), &[]);
                assert!(matches!(second.read().response(), Response::NopIn(_)));
                let read = second.read_blocks(1, 0, LARGE);
                second.start(&read);
                std::thread::sleep(WHILE);
                let begun = Instant::now();
                let mut kept = Some(first);
                if is_lost {
                    drop(kept.take());
                } else {
                    let logout = LogoutRequest { cid: Cid(1), ..second.logout(1) };
                    second.send(&Request::Logout(logout), &[]);
                }
                let mut bytes = 0;
                let status = loop {
                    let pdu = second.read();
                    match pdu.response() {
                        Response::Async(_) => {}
                        Response::Logout(answer) => assert_eq!(answer.response, 0),
                        Response::DataIn(part) if part.itt == read.itt => {
                            bytes += pdu.data.len();
                            if let Some(end) = part.status {
                                break end.status;
                            }
                        }
                        Response::Scsi(answer) if answer.itt == read.itt => break answer.status,
                        other => panic!("{other:?}"),
                    }
                };
                let took = begun.elapsed();
                assert_eq!((status, bytes), (GOOD, 1 << 20), "lost: {is_lost}, {took:?}");
                assert!(took < SOON, "lost: {is_lost}, {took:?}");
            },
        );
    }
}

/// Those behind the ones that are ended come in their order, and are not refused.
#[test]
fn reads_behind_those_that_are_ended_go_on() {
    for function in [ABORT_TASK, LOGICAL_UNIT_RESET] {
        on_each_engine(
            |_| {},
            |server| {
                let mut session = session(server);
                let ended = start_many(&mut session, 0);
                let behind: Vec<Itt> = (0..8)
                    .map(|_| {
                        let read = session.read_blocks(1, 0, LARGE);
                        session.start(&read);
                        read.itt
                    })
                    .collect();
                std::thread::sleep(WHILE);
                // From those that wait longest to those that have just come.
                let orders = if function == ABORT_TASK { &ended[20..] } else { &ended[..1] };
                let mut asked = Vec::new();
                for itt in orders {
                    let mut order = session.management(function, 0, *itt);
                    order.immediate = false;
                    session.take_cmd_sn();
                    session.send(&Request::TaskManagement(order), &[]);
                    asked.push(order.itt);
                }
                let mut due = behind.clone();
                let (mut told, mut in_order) = (0, Vec::new());
                let begun = Instant::now();
                while told < asked.len() || !due.is_empty() {
                    assert!(begun.elapsed() < 4 * SOON, "{told} told, {} due", due.len());
                    let pdu = session.read();
                    let (itt, status) = match pdu.response() {
                        Response::TaskManagement(answer) => {
                            assert!(matches!(answer.response, COMPLETE | 1), "{answer:?}");
                            told += 1;
                            continue;
                        }
                        Response::DataIn(part) => match part.status {
                            Some(end) => (part.itt, end.status),
                            None => continue,
                        },
                        Response::Scsi(answer) => (answer.itt, answer.status),
                        Response::Async(_) => continue,
                        other => panic!("{other:?}"),
                    };
                    if behind.contains(&itt) {
                        assert_eq!(status, GOOD, "function {function}");
                        in_order.push(itt);
                        due.retain(|one| *one != itt);
                    }
                }
                assert_eq!(in_order, behind, "function {function}");
            },
        );
    }
}

/// A read of a disk with protection information holds its blocks, also while it waits; it does so
/// no longer than until it would be refused.
#[test]
fn reads_that_wait_hold_up_a_writer_for_some_time_only() {
    const PROTECTED: u8 = 3;
    for medium in [Medium::Memory, Medium::File] {
        let mut plan = server::plan(engine::choose(engine::Choice::Auto), settings());
        add_protected(&mut plan, PROTECTED.into(), ProtectionType::One, medium);
        let server = Server::start(plan);
        let mut hog = session(&server);
        hog.settle(PROTECTED);
        let reads = start_many(&mut hog, PROTECTED);
        let mut other = session(&server);
        other.settle(PROTECTED);
        std::thread::sleep(WHILE);
        let begun = Instant::now();
        let write = other.write_blocks(PROTECTED, 0, 1);
        other.send(&Request::Command(write), &[1; 512]);
        assert_eq!(other.finish(write.itt).code, GOOD, "{medium:?}");
        assert!(begun.elapsed() < LATER, "{medium:?} {:?}", begun.elapsed());
        let mut due = reads.len();
        while due > 0 {
            let status = match hog.read().response() {
                Response::DataIn(part) => part.status.map(|end| end.status),
                Response::Scsi(answer) => Some(answer.status),
                other => panic!("{other:?}"),
            };
            if let Some(status) = status {
                assert!(matches!(status, GOOD | TASK_SET_FULL), "{medium:?}: {status:#x}");
                due -= 1;
            }
        }
    }
}

/// Who takes its data slowly is not refused as long as it takes some.
#[test]
fn reads_over_a_slow_line_are_not_refused() {
    let server = Server::start(server::plan(engine::choose(engine::Choice::Auto), settings()));
    let mut session = session(&server);
    let reads = start_many(&mut session, 0);
    for itt in reads {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(session.finish(itt).code, GOOD);
    }
}

fn settings() -> iscsi::target_role::Settings {
    iscsi::target_role::Settings::default()
}
