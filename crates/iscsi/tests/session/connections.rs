// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several connections in a session: order, allegiance, ends.

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{Capabilities, Event, Immediate, Op, Rdma, StreamViolation};
use iscsi::service::{Indication, ServiceResponse};
use iscsi::target_role::{ConnectionId, Output};
use wire::iscsi::{
    Cid, Itt, LogoutRequest, LogoutResponse, NopOut, Request, Response, StatSn, TextRequest, Ttt,
};

const SECOND_CID: u16 = 8;

/// A session with a second connection.
fn two(change: impl FnOnce(&mut iscsi::target_role::Parameters)) -> (Driver, ConnectionId) {
    let setup = Setup::new().keys(|keys| {
        keys.max_connections = 4;
        keys.time2retain = 20;
        change(keys);
    });
    let mut driver = setup.start();
    let (second, outputs) = driver.join(SECOND_CID, 9000);
    assert!(matches!(outputs[..], [Output::Op(id, Op::NoticeKeys(_))] if id == second));
    (driver, second)
}

fn logout(driver: &mut Driver, reason: u8, cid: u16) -> Vec<Output> {
    let request = LogoutRequest { cid: Cid(cid), ..driver.logout(reason) };
    driver.log_out(request)
}

fn logged_out(outputs: &[Output]) -> LogoutResponse {
    let answer = responses(outputs).into_iter().find_map(|response| match response {
        Response::Logout(answer) => Some(answer),
        _ => None,
    });
    answer.expect("a Logout Response")
}

fn closed(outputs: &[Output]) -> Vec<ConnectionId> {
    let closed = outputs.iter().filter_map(|output| match output {
        Output::ConnectionClosed { connection, .. } => Some(*connection),
        _ => None,
    });
    closed.collect()
}

fn quiesce(outputs: &[Output]) -> Option<u32> {
    indications(outputs).into_iter().find_map(|indication| match indication {
        Indication::Quiesce { id } => Some(*id),
        _ => None,
    })
}

fn cleared(outputs: &[Output]) -> usize {
    let is = |indication: &&&Indication| matches!(indication, Indication::Cleared { .. });
    indications(outputs).iter().filter(is).count()
}

fn places(outputs: &[Output]) -> Vec<ConnectionId> {
    let ops = outputs.iter().filter_map(|output| match output {
        Output::Op(id, _) => Some(*id),
        _ => None,
    });
    ops.collect()
}

/// Covers: MCS-01, CMD-05, CMD-31/T, STS-01.
#[test]
fn commands_are_ordered_over_connections_and_keep_to_theirs() {
    let (mut driver, second) = two(|_| {});
    let one = driver.read(512);
    let two = driver.read(512);
    driver.on(second);
    assert!(driver.send(two).is_empty());
    assert!(driver.commands.is_empty());
    driver.on(OWN);
    driver.send(one);
    let tasks: Vec<_> = driver.commands.iter().map(|command| command.task).collect();
    assert_eq!(driver.session.connection_of(tasks[0]), Some(OWN));
    assert_eq!(driver.session.connection_of(tasks[1]), Some(second));
    assert!(places(&driver.complete(tasks[1], data(512))).iter().all(|id| *id == second));
    assert!(places(&driver.complete(tasks[0], data(512))).iter().all(|id| *id == OWN));
    // R2Ts, and the status of a write.
    driver.on(second);
    let write = driver.write(4096);
    let (task, outputs) = driver.start_write(write, Immediate::None, 4096);
    assert_eq!((asked(&outputs), places(&outputs)), (vec![(0, 4096)], vec![second]));
    driver.done(task, 0, 4096);
    let outputs = driver.complete(task, good());
    assert_eq!(scsi(&outputs).itt, write.itt);
    assert!(places(&outputs).iter().all(|id| *id == second));
}

/// Covers: CMD-20, CMD-30.
#[test]
fn a_task_tag_is_unique_in_the_session() {
    let (mut driver, second) = two(|_| {});
    let command = driver.read(512);
    driver.start(command);
    driver.on(second);
    let other = driver.read(512);
    let outputs = driver.send(wire::iscsi::ScsiCommand { itt: command.itt, ..other });
    assert_eq!(reject(&outputs), 7);
    assert_eq!(places(&outputs), [second]);
    assert!(driver.send(command).is_empty(), "a retry of a command that runs is dropped");
}

/// Covers: LGO-02, LGO-06, LGO-10, LGO-11, CLR-03, MCS-05.
#[test]
fn a_logout_waits_for_the_tasks_of_its_connection() {
    let (mut driver, second) = two(|_| {});
    let kept = driver.read(512);
    let kept = driver.start(kept);
    driver.on(second);
    let write = driver.write(4096);
    driver.start_write(write, Immediate::None, 4096);
    driver.on(OWN);
    let outputs = logout(&mut driver, 1, SECOND_CID);
    assert!(responses(&outputs).is_empty());
    assert_eq!((cleared(&outputs), closed(&outputs)), (1, vec![second]));
    driver.session.quiesced(quiesce(&outputs).unwrap());
    let outputs = driver.drain();
    let answer = logged_out(&outputs);
    assert_eq!((answer.response, places(&outputs)), (0, vec![OWN]));
    assert_eq!((answer.time2wait, answer.time2retain), (0, 0), "there is nothing to come back to");
    assert_eq!(scsi(&driver.complete(kept, good())).status, 0);
    let (again, _) = driver.join(9, 77);
    assert_eq!(again, second, "the id is free again");
}

/// Covers: LGO-05/T, LGO-04a.
#[test]
fn the_logout_of_the_session_closes_all_its_connections() {
    for reason in [0, 1] {
        let (mut driver, second) = two(|_| {});
        driver.on(second);
        let outputs = logout(&mut driver, reason, SECOND_CID);
        assert_eq!(logged_out(&outputs).response, 0);
        let answered = |o: &Output| matches!(o, Output::Op(_, Op::SendControl { .. }));
        let at = outputs.iter().position(answered).unwrap();
        let ends = outputs[at..].iter().filter_map(|output| match output {
            Output::Op(id, Op::Terminate) => Some(*id),
            _ => None,
        });
        let expected = if reason == 0 { vec![OWN, second] } else { vec![second] };
        assert_eq!(ends.collect::<Vec<_>>(), expected, "reason {reason}");
    }
}

/// What ends with its connection is not heard of again, also where the session goes on.
///
/// Covers: LGO-12.
#[test]
fn tasks_of_a_lost_connection_have_no_status() {
    let (mut driver, second) = two(|_| {});
    driver.on(second);
    let read = driver.read(512);
    let read = driver.start(read);
    let outputs = driver.lose(second);
    assert_eq!(cleared(&outputs), 1);
    assert!(matches!(responses(&outputs)[..], [Response::Async(_)]), "{outputs:?}");
    assert!(driver.complete(read, data(512)).is_empty());
    driver.on(OWN);
    let after = driver.command();
    let after = driver.start(after);
    assert_eq!(scsi(&driver.complete(after, good())).status, 0);
}

/// Covers: LGO-04a, LGO-05/T, MCS-05.
#[test]
fn a_connection_may_log_itself_out() {
    let (mut driver, second) = two(|_| {});
    driver.on(second);
    let read = driver.read(512);
    let read = driver.start(read);
    let outputs = logout(&mut driver, 1, SECOND_CID);
    let id = quiesce(&outputs).unwrap();
    assert!(driver.acknowledge().is_empty());
    assert!(driver.complete(read, data(512)).is_empty());
    driver.session.quiesced(id);
    let outputs = driver.drain();
    assert_eq!(logged_out(&outputs).numbers.stat_sn, StatSn(9000));
    assert!(matches!(outputs[1], Output::Op(id, Op::Terminate) if id == second));
    assert_eq!(driver.open(), [OWN]);
    driver.on(OWN);
    assert_eq!(logged_out(&logout(&mut driver, 1, CID)).response, 0);
    assert_eq!(driver.closed.as_deref(), Some("logout"));
}

#[test]
fn a_logout_whose_connection_is_lost_is_not_answered() {
    let (mut driver, second) = two(|_| {});
    let read = driver.read(512);
    driver.start(read);
    driver.on(second);
    let id = quiesce(&logout(&mut driver, 1, CID)).unwrap();
    let outputs = driver.lose(second);
    assert_eq!(closed(&outputs), [second]);
    driver.session.quiesced(id);
    assert!(driver.drain().is_empty());
    assert_eq!((driver.open(), driver.closed.as_ref()), (vec![], None));
}

/// Covers: MCS-06, CMD-27.
#[test]
fn what_waited_on_a_lost_connection_counts_as_not_received() {
    let (mut driver, second) = two(|_| {});
    let missing = driver.command();
    let held = driver.command();
    let immediate = driver.command();
    let immediate = driver.immediate(immediate);
    driver.on(second);
    assert!(driver.send(held).is_empty());
    let ping =
        NopOut { immediate: false, cmd_sn: driver.take_cmd_sn(), ..driver.nop(Itt(5), Ttt::NONE) };
    assert!(driver.request(Request::NopOut(ping), &[1; 100]).is_empty());
    driver.start(immediate);
    let outputs = driver.lose(second);
    assert_eq!(cleared(&outputs), 1);
    driver.on(OWN);
    driver.start(missing);
    assert_eq!(driver.commands.len(), 2);
    let outputs = driver.acknowledge();
    assert!(outputs.is_empty());
    driver.start(held);
    assert_eq!(driver.commands.len(), 3);
    assert!(matches!(only(&driver.request(Request::NopOut(ping), &[])), Response::NopIn(_)));
}

/// Covers: ERL-06, ASY-07.
#[test]
fn another_connection_tells_of_a_lost_one() {
    for broken in [false, true] {
        let (mut driver, second) = two(|_| {});
        driver.on(second);
        let outputs = if broken {
            driver.event(Event::Violation(StreamViolation::HeaderDigest), &[])
        } else {
            driver.lose(second)
        };
        let Response::Async(message) = only(&outputs) else { panic!() };
        let told = (message.event, message.parameter1, message.parameter2, message.parameter3);
        assert_eq!(told, (2, SECOND_CID, 2, 20));
        assert_eq!(closed(&outputs), [second]);
        assert!(driver.closed.is_none());
    }
}

/// Covers: SES-12, SES-17, SES-18.
#[test]
fn a_connection_is_replaced() {
    for (connections, level) in [(1, 0), (4, 0), (1, 1)] {
        let setup = Setup::new().keys(|keys| {
            keys.max_connections = connections;
            (keys.error_recovery_level, keys.time2retain) = (level, 20);
        });
        let mut driver = setup.start();
        let reads = [(); 2].map(|()| {
            let read = driver.read(512);
            driver.start(read)
        });
        assert_eq!(driver.session.admits(Cid(CID), Capabilities::STREAM), Ok(()));
        driver.session.replace_connection(Cid(CID), driver.now);
        let outputs = driver.drain();
        assert_eq!((cleared(&outputs), closed(&outputs)), (2, vec![OWN]));
        assert!(responses(&outputs).is_empty() && driver.session.tasks(None).is_empty());
        driver.wait(Duration::from_secs(4));
        driver.join(CID, 40);
        for read in reads {
            assert!(driver.complete(read, data(512)).is_empty());
        }
        driver.on(OWN);
        let command = driver.command();
        let task = driver.start(command);
        assert_eq!(scsi(&driver.complete(task, good())).numbers.stat_sn, StatSn(40));
    }
}

/// Nor is anything told of what else was asked for there: functions, and what waited for its turn.
///
/// Covers: SES-18.
#[test]
fn functions_and_what_waits_end_with_the_connection_that_is_replaced() {
    let mut driver = Setup::new().keys(|keys| keys.time2retain = 20).start();
    let read = driver.read(512);
    driver.start(read);
    let reset = driver.management(5);
    let asked = management(&driver.manage(reset));
    let (missing, held) = (driver.command(), driver.command());
    assert!(driver.send(held).is_empty());
    driver.session.replace_connection(Cid(CID), driver.now);
    assert!(responses(&driver.drain()).is_empty());
    assert_eq!(driver.join(CID, 40).0, OWN);
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    assert!(responses(&driver.drain()).is_empty());
    let begun = driver.commands.len();
    driver.start(missing);
    assert_eq!(driver.commands.len(), begun + 1, "the one behind it has to come again");
}

/// Covers: SES-18.
#[test]
fn a_logout_ends_with_the_connection_that_is_replaced() {
    let (mut driver, second) = two(|_| {});
    let read = driver.read(512);
    driver.start(read);
    driver.on(second);
    let id = quiesce(&logout(&mut driver, 1, CID)).unwrap();
    driver.session.replace_connection(Cid(SECOND_CID), driver.now);
    driver.drain();
    assert_eq!((driver.join(CID, 30).0, driver.join(SECOND_CID, 40).0), (OWN, second));
    driver.session.quiesced(id);
    assert!(driver.drain().is_empty());
}

/// Covers: SES-11, SES-29.
#[test]
fn admission_knows_cids_and_their_number() {
    let (mut driver, _) = two(|keys| keys.max_connections = 2);
    assert_eq!(driver.session.admits(Cid(CID), Capabilities::STREAM), Ok(()));
    assert_eq!(driver.session.admits(Cid(1), Capabilities::STREAM), Err(0x0206));
    driver.session.request_logout(10);
    driver.drain();
    assert_eq!(driver.session.admits(Cid(CID), Capabilities::STREAM), Err(0x0301));
    driver.session.drop_session();
    driver.drain();
    assert_eq!(driver.session.admits(Cid(CID), Capabilities::STREAM), Err(0x020a));
}

/// Covers: SES-24, SES-23, SES-22, TMO-02/T, TMO-04, SES-21.
#[test]
fn a_session_without_a_connection_is_kept_for_a_time() {
    let setup = || Setup::new().keys(|keys| keys.time2retain = 20);
    let mut driver = setup().start();
    let outputs = driver.lose(OWN);
    assert!(!nexus_lost(&outputs));
    assert!(driver.wait(Duration::from_secs(21)).is_empty());
    driver.join(CID, 1);
    let command = driver.command();
    driver.start(command);

    // Time2Wait and then Time2Retain.
    let others = |keys: &mut iscsi::target_role::Parameters| {
        (keys.time2wait, keys.time2retain) = (3, 7);
    };
    let mut driver = Setup::new().keys(others).start();
    driver.lose(OWN);
    assert!(driver.wait(Duration::from_millis(9999)).is_empty());
    assert!(nexus_lost(&driver.wait(Duration::from_millis(1))));

    let mut driver = setup().start();
    driver.lose(OWN);
    let outputs = driver.wait(Duration::from_secs(22));
    assert!(nexus_lost(&outputs));
    assert_eq!(driver.closed.as_deref(), Some("session timeout"));

    // One that has another connection is not lost.
    let (mut driver, second) = two(|_| {});
    driver.lose(second);
    assert!(!nexus_lost(&driver.wait(Duration::from_secs(23))) && driver.closed.is_none());
    driver.lose(OWN);
    assert!(nexus_lost(&driver.wait(Duration::from_secs(22))));

    let mut driver = Setup::new().start();
    assert!(nexus_lost(&driver.lose(OWN)));
    assert_eq!(driver.closed.as_deref(), Some("connection lost"));
}

/// Covers: TMO-03/T, LGO-15/T.
#[test]
fn a_dropped_connection_has_the_times_that_were_told() {
    let mut driver = Setup::new().keys(|keys| keys.time2retain = 5).start();
    let outputs = driver.event(Event::Violation(StreamViolation::HeaderDigest), &[]);
    let Response::Async(message) = only(&outputs) else { panic!() };
    assert_eq!((message.event, message.parameter2, message.parameter3), (2, 2, 5));
    driver.wait(Duration::from_millis(6999));
    assert!(driver.closed.is_none());
    driver.wait(Duration::from_millis(1));
    assert!(driver.closed.is_some());
}

#[test]
fn a_session_without_a_connection_can_be_dropped() {
    for order in 0..2 {
        let mut driver = Setup::new().keys(|keys| keys.time2retain = 20).start();
        driver.lose(OWN);
        match order {
            0 => driver.session.drop_session(),
            _ => driver.session.request_logout(10),
        }
        let outputs = driver.drain();
        assert!(nexus_lost(&outputs) && responses(&outputs).is_empty());
        assert!(driver.closed.is_some());
    }
}

/// Covers: TMF-19, STS-12a, STS-12b.
#[test]
fn a_fenced_response_is_alone_on_all_connections() {
    let (mut driver, second) = two(|_| {});
    driver.silent = true;
    driver.on(second);
    let command = driver.command();
    let task = driver.start(command);
    scsi(&driver.complete(task, good()));
    driver.on(OWN);
    let later = driver.command();
    let later = driver.start(wire::iscsi::ScsiCommand {
        lun: wire::iscsi::LunField([0, 1, 0, 0, 0, 0, 0, 0]),
        ..later
    });
    let request = driver.management(2);
    let asked = management(&driver.manage(request));
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    let outputs = driver.drain();
    assert!(matches!(responses(&outputs)[..], [Response::NopIn(_)]), "{outputs:?}");
    assert_eq!(places(&outputs), [second], "only there is something missing");
    driver.exp_stat_sn = STAT_SN;
    driver.on(second);
    driver.exp_stat_sn = 9001;
    let outputs = driver.acknowledge();
    let [Response::TaskManagement(answer), Response::NopIn(_)] = responses(&outputs)[..] else {
        panic!("the answer and a question for ExpStatSN: {outputs:?}")
    };
    assert_eq!((answer.response, places(&outputs)), (0, vec![OWN, OWN]));
    // It is not acknowledged: the next response waits.
    let outputs = driver.complete(later, good());
    assert!(!responses(&outputs).iter().any(|r| matches!(r, Response::Scsi(_))));
    let one = driver.management(1);
    let missing = wire::iscsi::TaskManagementRequest { referenced_task: Itt(0x7777), ..one };
    assert!(responses(&driver.manage(missing)).is_empty());
    driver.on(OWN);
    driver.exp_stat_sn = STAT_SN + 1;
    let outputs = driver.acknowledge();
    let all = responses(&outputs);
    assert!(all.iter().any(|r| matches!(r, Response::Scsi(_))));
    assert!(all.iter().any(|r| matches!(r, Response::TaskManagement(_))));
}

#[test]
fn a_fence_falls_with_its_connection() {
    let (mut driver, second) = two(|_| {});
    driver.silent = true;
    driver.on(second);
    let command = driver.command();
    let task = driver.start(command);
    driver.complete(task, good());
    driver.on(OWN);
    let request = driver.management(2);
    let asked = management(&driver.manage(request));
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    driver.drain();
    let outputs = driver.lose(second);
    assert!(responses(&outputs).iter().any(|r| matches!(r, Response::TaskManagement(_))));
}

/// Covers: NOP-10/T.
#[test]
fn each_connection_is_pinged() {
    let mut setup = Setup::new().keys(|keys| {
        keys.max_connections = 2;
        keys.time2retain = 20;
    });
    setup.settings.ping_interval = Duration::from_secs(30);
    let mut driver = setup.start();
    driver.wait(Duration::from_secs(10));
    let (second, _) = driver.join(SECOND_CID, 1);
    assert_eq!(places(&driver.wait(Duration::from_secs(20))), [OWN]);
    let outputs = driver.wait(Duration::from_secs(5));
    assert_eq!(closed(&outputs), [OWN]);
    assert_eq!(driver.open(), [second]);
    assert_eq!(places(&driver.wait(Duration::from_secs(5))), [second]);
}

/// Covers: ASY-02, ASY-06.
#[test]
fn every_connection_is_asked_to_log_out() {
    let (mut driver, second) = two(|_| {});
    driver.session.request_logout(10);
    assert_eq!(places(&driver.drain()), [OWN, second]);
    let outputs = driver.wait(Duration::from_secs(10));
    assert!(nexus_lost(&outputs));
    assert!(driver.closed.is_some());
}

/// Covers: FMT-16/T.
#[test]
fn a_format_error_ends_all_connections_of_the_session() {
    let violations = [
        StreamViolation::AdditionalHeader,
        StreamViolation::SegmentTooLong { length: 1, limit: 0 },
    ];
    for violation in violations {
        let (mut driver, second) = two(|keys| keys.error_recovery_level = 2);
        driver.on(second);
        let outputs = driver.event(Event::Violation(violation), &[]);
        let terminated = |id| {
            outputs.iter().any(|one| matches!(one, Output::Op(at, Op::Terminate) if *at == id))
        };
        assert!(terminated(OWN) && terminated(second), "{outputs:?}");
        assert!(driver.closed.is_some());
    }
    // A wrong digest is none: the other connection goes on.
    let (mut driver, second) = two(|_| {});
    driver.on(second);
    driver.event(Event::Violation(StreamViolation::HeaderDigest), &[]);
    assert_eq!((driver.open(), driver.closed.as_deref()), (vec![OWN], None));
}

/// Covers: TMF-29c.
#[test]
fn the_tag_of_a_logout_is_no_task() {
    let (mut driver, second) = two(|keys| keys.error_recovery_level = 2);
    driver.on(second);
    let write = driver.write(4096);
    driver.start_write(write, Immediate::None, 4096);
    driver.on(OWN);
    let request = LogoutRequest { cid: Cid(SECOND_CID), ..driver.logout(1) };
    let outputs = driver.log_out(request);
    let waiting = quiesce(&outputs).expect("the logout waits");
    for function in [1, 8] {
        let mut management = driver.management(function);
        management.referenced_task = request.itt;
        assert_eq!(managed(&driver.manage(management)), 255, "{function}");
    }
    driver.session.quiesced(waiting);
    assert_eq!(logged_out(&driver.drain()).response, 0);
}

/// What a session has agreed on holds for all of its connections, so all of their movers must be
/// able to do it.
///
/// Covers: ISK-03/T, SES-11.
#[test]
fn connections_over_another_kind_of_transport_do_not_join() {
    let driver = Setup::new().keys(|keys| keys.max_connections = 4).start();
    let other = Capabilities { numbers_data: false, ..Capabilities::STREAM };
    for other in [other, Capabilities::RDMA] {
        assert_eq!(driver.session.admits(Cid(1), other), Err(0x0208));
    }
    // Over RDMA a byte stream joins that can go on with it, and no other; an adapter has buffers.
    let driver = Setup::over_rdma().keys(|keys| keys.max_connections = 4).start();
    let stream = Capabilities::STREAM;
    let adapter = Capabilities { buffers: Some(160), ..Capabilities::RDMA };
    for (other, fits) in [
        (Capabilities::RDMA, true),
        (Capabilities { rdma: Rdma::Possible, ..stream }, true),
        (stream, false),
        (adapter, false),
    ] {
        let answer = driver.session.admits(Cid(1), other);
        assert_eq!(answer, if fits { Ok(()) } else { Err(0x0208) });
    }
}

/// Covers: TMF-29b.
#[test]
fn the_tag_of_a_text_exchange_is_no_task() {
    let (mut driver, second) = two(|keys| keys.error_recovery_level = 2);
    let mut open = |at| {
        driver.on(at);
        let open = TextRequest { final_: false, ..driver.text() };
        driver.ask(open, b"X-com.example.key=1\0");
        open
    };
    let (open, _) = (open(second), open(OWN));
    for function in [1, 8] {
        let mut management = driver.management(function);
        management.referenced_task = open.itt;
        assert_eq!(managed(&driver.manage(management)), 255, "{function}");
    }
    // Once it is over, or is gone with its connection, the tag is of nothing.
    driver.lose(second);
    let mut management = driver.management(8);
    management.referenced_task = open.itt;
    assert_eq!(managed(&driver.manage(management)), 1);
}

/// Covers: TMF-01.
#[test]
fn functions_are_answered_where_they_came_from() {
    let (mut driver, second) = two(|_| {});
    for at in [second, OWN] {
        driver.on(at);
        // What is refused at once, and what the SCSI side carries out.
        let refused = driver.management(127);
        let outputs = driver.manage(refused);
        assert_eq!((managed(&outputs), places(&outputs)), (5, vec![at]));
        let reset = driver.management(5);
        let asked = management(&driver.manage(reset));
        driver.session.task_management_done(asked.id, ServiceResponse::Complete);
        let outputs = driver.drain();
        assert_eq!((managed(&outputs), places(&outputs)), (0, vec![at]));
    }
}

/// Covers: MCS-04/T, KEY-15b/T, KEY-29b/T, KEY-02/T.
#[test]
fn a_connection_has_what_the_session_agreed_on() {
    let setup = Setup::new().keys(|keys| {
        keys.max_connections = 4;
        keys.immediate_data = false;
        keys.data_pdu_in_order = false;
        keys.first_burst_length = 4096;
    });
    let mut driver = setup.start();
    let (_, outputs) = driver.join_with(SECOND_CID, 9000, |own| {
        own.immediate_data = true;
        own.data_pdu_in_order = true;
        own.first_burst_length = 65536;
        own.max_send_data_segment_length = 512;
        own.header_digest = true;
    });
    let [Output::Op(_, Op::NoticeKeys(keys))] = outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((keys.first_burst_length, keys.data_pdu_in_order), (0, false));
    assert_eq!((keys.max_send_data_segment_length, keys.header_digest), (512, true));
}

/// Covers: CLR-02.
#[test]
fn a_session_that_ends_has_no_tasks_left() {
    // The target drops it, as for its reinstatement; its last connection goes; it times out.
    for end in 0..3 {
        let setup = Setup::new().keys(|keys| {
            keys.max_connections = 4;
            (keys.error_recovery_level, keys.time2retain) = (2, 20);
            if end == 1 {
                keys.time2retain = 0;
            }
        });
        let mut driver = setup.start();
        let read = driver.read(512);
        let read = driver.start(read);
        let write = driver.write(4096);
        let (write, _) = driver.start_write(write, Immediate::None, 4096);
        let missing = driver.take_cmd_sn();
        let held = driver.command();
        driver.send(held);
        match end {
            0 => driver.session.drop_session(),
            1 => drop(driver.lose(OWN)),
            _ => {
                driver.lose(OWN);
                driver.wait(Duration::from_secs(22));
            }
        }
        driver.drain();
        assert!(driver.closed.is_some(), "end {end}, without {missing:?}");
        assert!(driver.session.tasks(None).is_empty(), "end {end}");
        assert!(driver.complete(read, data(512)).is_empty());
        let done = Event::DataDone { task: write, offset: 0, length: 4096 };
        assert!(driver.event(done, &[]).is_empty());
    }
}
