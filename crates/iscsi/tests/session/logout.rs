// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout and other ends of a session.

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{Event, Immediate, Op, StreamViolation};
use iscsi::target_role::Output;
use wire::iscsi::{
    AsyncMessage, Cid, LogoutRequest, LogoutResponse, Request, Response, StatSn,
    TaskManagementRequest,
};

fn answer(outputs: &[Output]) -> LogoutResponse {
    match only(outputs) {
        Response::Logout(response) => response,
        other => panic!("{other:?}"),
    }
}

fn event(outputs: &[Output]) -> AsyncMessage {
    match only(outputs) {
        Response::Async(message) => message,
        other => panic!("{other:?}"),
    }
}

/// Covers: LGO-04a, LGO-05/T, LGO-08, LGO-10, SES-21, SES-22.
#[test]
fn closing_the_session_answers_and_then_closes() {
    let mut driver = Setup::new().keys(|keys| keys.time2retain = 20).start();
    let request = LogoutRequest { cid: Cid(0x5555), ..driver.logout(0) };
    let outputs = driver.log_out(request);
    let response = answer(&outputs);
    assert_eq!((response.response, response.itt), (0, request.itt));
    assert_eq!(response.time2retain, 0);
    let sent = |o: &Output| matches!(o, Output::Op(_, Op::SendControl { .. }));
    let ends = |o: &Output| matches!(o, Output::Op(_, Op::Terminate));
    let at = outputs.iter().position(sent).unwrap();
    assert!(nexus_lost(&outputs[..at]));
    assert!(ends(&outputs[at + 1]));
    assert_eq!(driver.closed.as_deref(), Some("logout"));
}

/// Covers: LGO-02, CLR-02.
#[test]
fn tasks_end_silently_before_the_answer() {
    let mut driver = Setup::new().start();
    let read = driver.read(4096);
    let read = driver.start(read);
    let write = driver.write(4096);
    let (write, _) = driver.start_write(write, Immediate::None, 4096);
    let request = driver.logout(0);
    let outputs = driver.log_out(request);
    assert!(nexus_lost(&outputs) && responses(&outputs).is_empty(), "their work is under way");
    let id = outputs.iter().find_map(quiesce_id).unwrap();
    let is = |o: &Output, wanted| match o {
        Output::Op(_, Op::Release { task }) => *task == wanted,
        _ => false,
    };
    assert!(outputs.iter().any(|o| is(o, read)) && outputs.iter().any(|o| is(o, write)));
    let abandons = |o: &Output| matches!(o, Output::Op(_, Op::Abandon { task }) if *task == write);
    assert!(outputs.iter().any(abandons));
    assert!(driver.complete(read, data(4096)).is_empty());
    assert!(driver.event(Event::DataDone { task: write, offset: 0, length: 4096 }, &[]).is_empty());
    let late = driver.command();
    assert!(driver.send(late).is_empty(), "nothing is taken meanwhile");
    assert!(driver.wait(Duration::from_secs(1000)).is_empty());
    assert!(!driver.terminated);
    driver.session.quiesced(id);
    assert_eq!(answer(&driver.drain()).response, 0);
    assert_eq!(driver.closed.as_deref(), Some("logout"));
}

/// What a function has ended is no task any more, but its work may be left.
///
/// Covers: LGO-02.
#[test]
fn the_work_of_aborted_tasks_is_waited_for() {
    for reason in [0, 1] {
        let mut driver = Setup::new().start();
        let write = driver.write(4096);
        let (task, _) = driver.start_write(write, Immediate::None, 4096);
        driver.done(task, 0, 4096);
        let request = TaskManagementRequest {
            referenced_task: write.itt,
            ref_cmd_sn: write.cmd_sn,
            ..driver.management(1)
        };
        driver.manage(request);
        driver.session.abort(task);
        driver.drain();
        assert!(driver.session.tasks(None).is_empty());
        let request = driver.logout(reason);
        let outputs = driver.request(Request::Logout(request), &[]);
        assert!(responses(&outputs).is_empty(), "reason {reason}");
        driver.session.quiesced(outputs.iter().find_map(quiesce_id).unwrap());
        assert_eq!(answer(&driver.drain()).response, 0);
    }
}

/// The session that waits ends whole: with who asked, by administration, or in order.
#[test]
fn a_session_that_waits_to_be_logged_out_may_end_otherwise() {
    for how in 0..2 {
        let mut driver = Setup::new().start();
        let read = driver.read(4096);
        driver.start(read);
        let request = driver.logout(0);
        let outputs = driver.log_out(request);
        let id = outputs.iter().find_map(quiesce_id).unwrap();
        driver.session.request_logout(1);
        assert!(driver.drain().is_empty());
        match how {
            0 => driver.session.handle_disconnect(OWN, driver.now),
            _ => driver.session.drop_session(),
        }
        let outputs = driver.drain();
        assert!(!nexus_lost(&outputs), "it is lost already");
        assert!(driver.closed.is_some() && responses(&outputs).is_empty());
        driver.session.quiesced(id);
        assert!(driver.drain().is_empty());
    }
}

#[test]
fn closing_the_only_connection_closes_the_session() {
    let mut driver = Setup::new().start();
    let request = driver.logout(1);
    assert_eq!(answer(&driver.log_out(request)).response, 0);
    assert!(driver.closed.is_some());
}

/// Covers: LGO-07a, LGO-09.
#[test]
fn refused_logouts_change_nothing() {
    let mut driver = Setup::new().keys(|keys| keys.time2retain = 20).start();
    let request = LogoutRequest { cid: Cid(CID + 1), ..driver.logout(1) };
    assert_eq!(answer(&driver.log_out(request)).response, 1);
    let request = driver.logout(2);
    let response = answer(&driver.log_out(request));
    assert_eq!((response.response, response.time2wait, response.time2retain), (2, 2, 20));
    assert!(driver.closed.is_none());
    let command = driver.command();
    driver.start(command);
}

/// Covers: OBS-10.
#[test]
fn unknown_reasons_are_rejected() {
    let mut driver = Setup::new().start();
    for reason in [3, 9, 127] {
        let request = driver.logout(reason);
        assert_eq!(reject(&driver.log_out(request)), 9);
    }
    assert!(driver.closed.is_none());
}

#[test]
fn a_logout_in_order_waits_for_its_turn() {
    let mut driver = Setup::new().start();
    let missing = driver.command();
    let mut request = driver.logout(0);
    request.immediate = false;
    request.cmd_sn = driver.take_cmd_sn();
    assert!(driver.log_out(request).is_empty());
    let outputs = driver.send(missing);
    driver.session.quiesced(outputs.iter().find_map(quiesce_id).unwrap());
    assert_eq!(answer(&driver.drain()).response, 0);
}

#[test]
fn nothing_is_taken_after_the_logout() {
    let mut driver = Setup::new().start();
    let request = driver.logout(0);
    driver.log_out(request);
    let command = driver.command();
    assert!(driver.send(command).is_empty());
    assert!(driver.acknowledge().is_empty());
    assert!(driver.wait(Duration::from_secs(1000)).is_empty());
    driver.session.handle_disconnect(OWN, driver.now);
    driver.session.request_logout(1);
    driver.session.drop_session();
    assert!(driver.drain().is_empty());
}

/// Covers: ERL-05a/T, ERL-01/T.
#[test]
fn a_lost_connection_ends_the_session() {
    let mut driver = Setup::new().start();
    let command = driver.read(512);
    driver.start(command);
    let immediate = driver.command();
    let immediate = driver.immediate(immediate);
    driver.start(immediate);
    driver.session.handle_disconnect(OWN, driver.now);
    let outputs = driver.drain();
    assert!(nexus_lost(&outputs) && responses(&outputs).is_empty());
    assert_eq!(driver.closed.as_deref(), Some("connection lost"));
}

/// Covers: ASY-01, ASY-02.
#[test]
fn a_logout_can_be_requested() {
    let mut driver = Setup::new().start();
    driver.session.request_logout(10);
    let message = event(&driver.drain());
    assert_eq!((message.event, message.parameter3), (1, 10));
    assert_eq!(message.numbers.stat_sn, StatSn(STAT_SN));
    let command = driver.command();
    let task = driver.start(command);
    assert_eq!(scsi(&driver.complete(task, good())).numbers.stat_sn, StatSn(STAT_SN + 1));
    driver.wait(Duration::from_secs(9));
    let request = driver.logout(0);
    assert_eq!(answer(&driver.log_out(request)).response, 0);
}

/// As a target that stops while an administrator has given the session more time.
///
/// Covers: ASY-02, ASY-06.
#[test]
fn a_logout_can_be_requested_sooner() {
    let mut driver = Setup::new().start();
    driver.session.request_logout(1000);
    assert_eq!(event(&driver.drain()).parameter3, 1000);
    driver.session.request_logout(10);
    let message = event(&driver.drain());
    assert_eq!((message.event, message.parameter3), (1, 10));
    driver.session.request_logout(10);
    assert!(driver.drain().is_empty(), "it was told");
    assert!(driver.wait(Duration::from_millis(9999)).is_empty());
    assert_eq!(event(&driver.wait(Duration::from_millis(1))).event, 2);
    assert!(driver.terminated);
}

/// Covers: ASY-06.
#[test]
fn who_does_not_log_out_is_dropped() {
    let mut driver = Setup::new().start();
    driver.session.request_logout(10);
    driver.session.request_logout(1000);
    driver.drain();
    let outputs = driver.wait(Duration::from_secs(10));
    let message = event(&outputs);
    assert_eq!((message.event, message.parameter1), (2, CID));
    assert!(driver.terminated);
}

#[test]
fn a_dropped_session_says_so() {
    let mut driver = Setup::new().start();
    driver.session.drop_session();
    let outputs = driver.drain();
    let message = event(&outputs);
    assert_eq!((message.event, message.parameter1), (3, 0));
    assert_eq!((message.parameter2, message.parameter3), (2, 0));
    assert!(nexus_lost(&outputs) && driver.terminated);
}

/// Covers: DGT-04/T, DGT-14/T.
#[test]
fn a_broken_stream_ends_the_connection() {
    let breaks = [
        StreamViolation::HeaderDigest,
        StreamViolation::SegmentTooLong { length: 1 << 20, limit: 32768 },
        StreamViolation::AdditionalHeader,
    ];
    for violation in breaks {
        let mut driver = Setup::new().start();
        let command = driver.read(512);
        driver.start(command);
        let outputs = driver.event(Event::Violation(violation), &[]);
        assert!(nexus_lost(&outputs) && driver.terminated);
        assert!(driver.closed.as_ref().unwrap().starts_with("byte stream"));
    }
}

/// libiscsi counts the StatSN of an R2T as used and is one ahead from its first R2T to the next
/// response.
#[test]
fn an_acknowledgement_of_the_future_harms_nothing() {
    let mut driver = Setup::new().start();
    driver.exp_stat_sn = STAT_SN + 1;
    let outputs = driver.acknowledge();
    assert!(!nexus_lost(&outputs) && !driver.terminated);
}

/// The session may end in each phase of a write, and nothing is said of the write.
///
/// Covers: ERL-08/T.
#[test]
fn a_write_may_be_cut_in_each_phase() {
    for phase in 0..7 {
        let mut driver = Setup::new().keys(|keys| keys.max_burst_length = 65536).start();
        if phase == 0 {
            driver.command();
        }
        let command = driver.write_more(200_000);
        let length = if phase == 1 { 0 } else { 200_000 };
        driver.answer = Box::new(move |_| match length {
            0 => Answer::Later,
            length => Answer::Receive(length),
        });
        driver.send(command);
        if phase >= 3 {
            let task = driver.commands[0].task;
            driver.done(task, 0, 65536);
            let offsets = [65536, 131_072].into_iter().take(phase - 3);
            for offset in offsets {
                driver.done(task, offset, 65536);
            }
            if phase == 5 {
                driver.complete(task, status(8));
            }
            if phase == 6 {
                driver.done(task, 196_608, 3392);
            }
        }
        driver.session.handle_disconnect(OWN, driver.now);
        let outputs = driver.drain();
        assert!(responses(&outputs).is_empty() && nexus_lost(&outputs), "phase {phase}");
        assert!(driver.session.tasks(None).is_empty());
    }
}

/// The time for logging out begins when it is asked for, however long the session was silent.
#[test]
fn silence_before_the_request_does_not_count() {
    let mut driver = Setup::new().start();
    driver.now = driver.now + Duration::from_secs(100);
    driver.session.set_now(driver.now);
    driver.session.request_logout(5);
    driver.drain();
    driver.wait(Duration::from_secs(4));
    assert_eq!(driver.closed, None);
    driver.wait(Duration::from_secs(1));
    assert!(driver.closed.is_some());
}
