// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout, and connections that the target gives up: what may still be said, and when.

use super::recovery::OTHER;
use super::recovery::two;
use super::*;
use crate::initiator::TaskReporting;
use crate::initiator::datamover::Run;

fn asked(lab: &Lab) -> usize {
    lab.ops.iter().filter(|op| op.is_request()).count() + lab.reassigned.len()
}

fn seconds(count: u64) -> Instant {
    START + Duration::from_secs(count)
}

impl Lab {
    fn timeout(&mut self, at: Instant) {
        self.session.handle_timeout(at);
        self.drain();
    }

    /// The target gives a connection up: when to come back, and for how long its tasks wait.
    fn give_up(&mut self, cid: u16, wait: u16, retain: u16) {
        let message = self.asynchronous(2, (cid, wait, retain));
        self.control(message, &[]);
    }

    fn last_logout(&self) -> LogoutRequest {
        match self.requests().last() {
            Some(Request::Logout(logout)) => *logout,
            other => panic!("{other:?}"),
        }
    }

    fn logged_out(&mut self, time2wait: u16, now: Instant) {
        let itt = self.last_logout().itt;
        let numbers = Numbers { max_cmd_sn: self.session.max_cmd_sn, ..self.numbers(0) };
        let answer = LogoutResponse { response: 0, itt, numbers, time2wait, time2retain: 20 };
        let response = Response::Logout(answer);
        self.session.handle_event(Event::Control { response }, &[], now);
        self.drain();
    }
}

/// By whom it is lost, by the system or by what came on it: no byte of it counts any more.
///
/// Covers: ERL-05a/I.
#[test]
fn a_lost_connection_is_closed() {
    let losses: [fn(&mut Lab); 2] = [
        |lab| lab.session.handle_disconnect_at(OTHER, START),
        |lab| {
            let event = Event::Violation(Violation::HeaderDigest);
            lab.session.handle_event_at(OTHER, event, &[], START);
        },
    ];
    for (level, lose) in [0, 1, 2].into_iter().flat_map(|level| losses.map(|lose| (level, lose))) {
        let mut lab = two(level, |_| {});
        lose(&mut lab);
        let mut closed = Vec::new();
        while let Some((at, output)) = lab.session.poll_output_at() {
            match output {
                Output::Op(Op::Terminate) => closed.push(at),
                Output::Closed { .. } => panic!("the other connection is well"),
                _ => {}
            }
        }
        assert_eq!(closed, [OTHER], "level {level}");
    }
}

/// A command that a connection took along without a trace is sent again elsewhere once that one is
/// logged out.
///
/// Covers: CMD-23c.
#[test]
fn a_command_is_sent_again_elsewhere_when_its_connection_is_logged_out() {
    let mut lab = two(0, |_| {});
    lab.command(0, 512);
    let lost = lab.command(0, 512);
    assert_eq!(lab.session.tasks.get(lost).unwrap().connection, OTHER);
    let (first, ..) = *lab.commands().last().unwrap();
    lab.session.handle_disconnect_at(OTHER, START);
    lab.drain();
    let itt = lab.last_logout().itt;
    let numbers = Numbers { exp_cmd_sn: first.cmd_sn, ..lab.numbers(0) };
    let answer = LogoutResponse { response: 0, itt, numbers, time2wait: 0, time2retain: 0 };
    let event = Event::Control { response: Response::Logout(answer) };
    lab.session.handle_event(event, &[], START);
    let mut again = Vec::new();
    while let Some((at, output)) = lab.session.poll_output_at() {
        if let Output::Op(Op::SendCommand { command, .. }) = output {
            again.push((at, command.itt, command.cmd_sn));
        }
    }
    assert_eq!(again, [(LEADING, first.itt, first.cmd_sn)]);
}

/// A lost status leaves its connection without use, which is closed by a logout over another one
/// (RFC 7143 §7.8 c); a target that numbers R2Ts wrongly is wrong on all connections.
///
/// Covers: STS-07a, R2T-10.
#[test]
fn at_level_0_a_gap_costs_its_connection_or_the_session() {
    let mut lab = two(0, |_| {});
    let tasks = [lab.command(0, 512), lab.command(0, 512)];
    let place = |lab: &Lab, task| lab.session.tasks.get(task).unwrap().connection;
    let [own, other] = tasks;
    assert_eq!((place(&lab, own), place(&lab, other)), (LEADING, OTHER));
    let mut ended = lab.status(other, 0);
    ended.response.numbers.stat_sn = lab.session.exp_stat_sn_at(OTHER).plus(1);
    lab.session.handle_event_at(OTHER, Event::Ended(ended), &[], START);
    lab.drain();
    assert!(lab.closed.is_none());
    assert_eq!((lab.last_logout().reason, lab.last_logout().cid), (1, Cid(1)));
    assert_eq!(lab.ops.iter().filter(|op| matches!(op, Op::Terminate)).count(), 1);
    lab.logged_out(0, START);
    assert_eq!(lab.outcome(other), Some(&Outcome::Failed(Ending::Lost { sent: true })));
    lab.end(own);
    assert!(matches!(lab.outcome(own), Some(Outcome::Done(_))));

    let mut lab = two(0, |_| {});
    let gap = Violation::Sequence { got: 2, expected: 1 };
    lab.session.handle_event_at(OTHER, Event::Violation(gap), &[], START);
    lab.drain();
    assert_eq!(lab.closed.map(|(error, _)| error), Some(SessionError::Violation(gap)));
}

/// Whatever else happens until its answer.
///
/// Covers: LGO-01.
#[test]
fn nothing_is_asked_after_a_logout() {
    let mut lab = two(2, |parameters| parameters.task_reporting = TaskReporting::FastAbort);
    lab.session.command_timeout = Duration::from_secs(1);
    let tasks: Vec<TaskId> = (0..6).map(|_| lab.command(0, 512)).collect();
    lab.session.manage(Function::AbortTask(tasks[0]), START).unwrap();
    lab.session.declare(4096, START).unwrap();
    lab.drain();
    let sent = lab.commands()[2].0;
    let requests = lab.requests();
    let Some(Request::TaskManagement(abort)) = requests.iter().rev().nth(1) else {
        panic!("{requests:?}")
    };
    let Some(Request::Text(text)) = requests.last() else { panic!("{requests:?}") };
    let (abort, text) = (abort.itt, text.itt);
    lab.session.logout(START);
    lab.drain();
    assert_eq!(lab.last_logout().reason, 0);
    let before = asked(&lab);

    let mut header = Vec::new();
    Request::Command(sent).emit(0, &mut header);
    let numbers = Numbers { exp_cmd_sn: lab.session.exp_cmd_sn, ..lab.numbers(0) };
    let reject = Reject { reason: 2, numbers, data_sn: DataSn(0) };
    lab.control(Response::Reject(reject), &header);
    let ping = lab.nop_in(Itt::NONE, Ttt(5));
    lab.control(ping, &[]);
    lab.session.handle_event_at(OTHER, Event::StatusLost(StatSn(501)), &[], START);
    for event in [1, 4, 5] {
        let message = lab.asynchronous(event, (1, 0, 20));
        lab.control(message, &[]);
    }
    let (lost, numbers) = (Some(Run { first: 0, count: 1 }), lab.numbers(0));
    lab.event(Event::Incomplete { task: tasks[0], lost, has_status: false, numbers }, &[]);
    let (lun, continue_, numbers) = (LunField::default(), true, lab.numbers(0));
    let part = TextResponse { final_: false, continue_, lun, itt: text, ttt: Ttt(9), numbers };
    let response = Response::Text(part);
    lab.control(response, b"MaxRecvDataSegm");
    let (response, additional, numbers) = (5, 0, lab.numbers(0));
    let refused = TaskManagementResponse { response, additional, itt: abort, numbers };
    lab.control(Response::TaskManagement(refused), &[]);
    lab.end(tasks[2]);
    lab.timeout(seconds(4));
    lab.session.handle_disconnect_at(OTHER, seconds(4));
    lab.drain();
    assert!(lab.closed.is_none(), "{:?}", lab.closed);
    assert_eq!(asked(&lab), before, "{:?}", lab.ops);
    assert_eq!(lab.session.poll_timeout(), Some(seconds(5)), "nothing else is waited for");
}

/// The other connections go with the session.
///
/// Covers: LGO-04b, LGO-05/I, LGO-15/I.
#[test]
fn connections_are_closed_when_the_logout_is_answered() {
    let mut lab = two(0, |_| {});
    lab.session.logout(START);
    lab.drain();
    assert!(!lab.ops.iter().any(|op| matches!(op, Op::Terminate)), "not before the answer");
    let (itt, numbers) = (lab.last_logout().itt, lab.numbers(0));
    let answer = LogoutResponse { response: 0, itt, numbers, time2wait: 0, time2retain: 0 };
    let event = Event::Control { response: Response::Logout(answer) };
    lab.session.handle_event(event, &[], START);
    let mut closed = Vec::new();
    while let Some((at, output)) = lab.session.poll_output_at() {
        if matches!(output, Output::Op(Op::Terminate)) {
            closed.push(at);
        }
    }
    assert_eq!(closed, [LEADING, OTHER]);
}

/// Not those that were negotiated.
///
/// Covers: TMO-03/I, ASY-08.
#[test]
fn a_connection_that_is_given_up_has_the_times_that_were_told() {
    let mut lab = Lab::with(false, |parameters| {
        parameters.error_recovery_level = 2;
        (parameters.time2wait, parameters.time2retain) = (1, 3);
    });
    // Its next login stands for the logout.
    lab.give_up(0, 5, 7);
    assert!(lab.closed.is_none());
    lab.timeout(seconds(4));
    assert!(lab.session.wanted(seconds(4)).is_none(), "Time2Wait is not over");
    assert_eq!(lab.session.wanted(seconds(5)), Some(LEADING));
    lab.timeout(seconds(5 + 6));
    assert!(lab.closed.is_none(), "Time2Retain is not over");
    lab.timeout(seconds(5 + 7));
    assert!(matches!(lab.closed, Some((SessionError::Disconnected, _))));
}

/// Another connection that is lost without a word has those of the session.
///
/// Covers: TMO-03/I.
#[test]
fn the_times_that_were_told_are_of_that_connection_only() {
    let mut lab = two(2, |parameters| (parameters.time2wait, parameters.time2retain) = (1, 20));
    lab.give_up(1, 5, 7);
    lab.session.handle_disconnect_at(LEADING, START);
    lab.drain();
    assert_eq!(lab.session.wanted(seconds(1)), Some(LEADING));
}

/// For that connection only, and again from the answer to its logout on.
///
/// Covers: TMO-03/I, ASY-08.
#[test]
fn the_times_of_one_connection_are_not_those_of_another() {
    let mut lab = two(2, |_| {});
    let tasks = [lab.command(0, 512), lab.command(0, 512)];
    assert_eq!(lab.session.tasks.get(tasks[1]).unwrap().connection, OTHER);
    lab.give_up(1, 5, 7);
    assert!(lab.requests().is_empty(), "Time2Wait is not over");
    lab.command(0, 512);
    assert_eq!(lab.commands().len(), 3, "the other connection goes on");
    assert_eq!(lab.session.poll_timeout().map(|at| at <= seconds(5)), Some(true));
    lab.timeout(seconds(4));
    assert!(!lab.requests().iter().any(|one| matches!(one, Request::Logout(_))));
    lab.ops.clear();
    lab.timeout(seconds(5));
    assert_eq!((lab.last_logout().cid, lab.last_logout().reason), (Cid(1), 2));
    lab.logged_out(3, seconds(5));
    lab.timeout(seconds(7));
    assert!(lab.reassigned.is_empty(), "the target said when it takes them again");
    assert_eq!(lab.session.wanted(seconds(7)), None);
    lab.timeout(seconds(8));
    assert_eq!(lab.reassigned, [(LEADING, tasks[1])]);
    assert_eq!(lab.session.wanted(seconds(8)), Some(OTHER));
    assert!(lab.closed.is_none());
}

/// Covers: ASY-08.
#[test]
fn a_session_that_is_given_up_is_over() {
    // All connections by event 3; by event 2 the only one, whose tasks the target does not keep.
    for (event, cid, level) in [(3, 0, 2), (2, 0, 0), (2, 0, 2)] {
        let mut lab = Lab::with(false, |parameters| {
            parameters.error_recovery_level = level;
            parameters.time2retain = 20;
        });
        let task = lab.command(0, 512);
        let message = lab.asynchronous(event, (cid, 4, 0));
        lab.control(message, &[]);
        assert_eq!(lab.closed, Some((SessionError::Dropped, Duration::from_secs(4))));
        let lost = Outcome::Failed(Ending::Lost { sent: true });
        assert_eq!(lab.outcome(task), Some(&lost));
    }
    let mut lab = two(2, |_| {});
    let message = lab.asynchronous(3, (0, 4, 20));
    lab.control(message, &[]);
    assert_eq!(lab.closed, Some((SessionError::Dropped, Duration::from_secs(4))));
}

/// Covers: TXT-17.
#[test]
fn a_text_exchange_ends_with_its_connection() {
    let mut lab = two(2, |_| {});
    lab.session.send_targets(START).unwrap();
    lab.drain();
    let Some(Request::Text(first)) = lab.requests().last().copied() else { panic!("a request") };
    let lun = LunField::default();
    let (itt, numbers) = (first.itt, lab.numbers(0));
    let part = TextResponse { final_: false, continue_: true, lun, itt, ttt: Ttt(9), numbers };
    lab.control(Response::Text(part), b"TargetName=iqn.2026-01.com.exa");
    lab.session.handle_disconnect_at(LEADING, START);
    lab.drain();
    assert!(matches!(lab.told.last(), Some(Indication::TargetsRejected(0))), "{:?}", lab.told);
    lab.ops.clear();
    lab.session.send_targets(START).unwrap();
    lab.drain();
    let Some(Request::Text(again)) = lab.requests().last().copied() else { panic!("a request") };
    assert!(again.itt != first.itt && again.ttt == Ttt::NONE);
}

/// Covers: ASY-09.
#[test]
fn a_wish_to_negotiate_is_met_where_it_was_told() {
    let mut lab = two(0, |_| {});
    let message = lab.asynchronous(4, (0, 0, 10));
    let Response::Async(pdu) = message else { panic!("a message") };
    let numbers = Numbers { stat_sn: StatSn(500), ..pdu.numbers };
    let response = Response::Async(AsyncMessage { numbers, ..pdu });
    lab.session.handle_event_at(OTHER, Event::Control { response }, &[], START);
    let (at, output) = lab.session.poll_output_at().unwrap();
    assert_eq!(at, OTHER);
    let Output::Op(Op::SendControl { request: Request::Text(_), .. }) = output else {
        panic!("{output:?}")
    };
    // While that is pending another connection has none: the session is logged out in time.
    let message = lab.asynchronous(4, (0, 0, 10));
    lab.control(message, &[]);
    let logout = |lab: &Lab| lab.requests().iter().any(|one| matches!(one, Request::Logout(_)));
    assert!(logout(&lab), "nothing is under way");
    let mut lab = two(0, |_| {});
    lab.command(0, 512);
    lab.session.declare(4096, START).unwrap();
    lab.drain();
    let message = lab.asynchronous(4, (0, 0, 10));
    lab.control(message, &[]);
    assert!(!logout(&lab) && lab.session.poll_timeout().is_some_and(|at| at < seconds(10)));
    lab.timeout(seconds(9));
    assert!(logout(&lab));
}

/// However long somebody else was to wait for the end of what is under way.
///
/// Covers: ASY-03, ASY-09.
#[test]
fn a_target_that_has_less_patience_is_left_in_time() {
    for event in [1, 4] {
        for own in [true, false] {
            let mut lab = two(0, |_| {});
            lab.command(0, 512);
            if own {
                lab.session.drain(Duration::from_secs(60), START);
            } else {
                let message = lab.asynchronous(1, (0, 0, 100));
                lab.control(message, &[]);
            }
            let message = lab.asynchronous(event, (0, 0, 10));
            lab.control(message, &[]);
            assert!(lab.requests().is_empty());
            lab.timeout(seconds(9));
            assert_eq!(lab.last_logout().reason, 0, "event {event}");
            // One that has more of it changes nothing.
            let mut lab = two(0, |_| {});
            lab.command(0, 512);
            lab.session.drain(Duration::from_secs(5), START);
            let message = lab.asynchronous(event, (0, 0, 100));
            lab.control(message, &[]);
            lab.timeout(seconds(5));
            assert_eq!(lab.last_logout().reason, 0, "event {event}");
        }
    }
}

/// Covers: ASY-03.
#[test]
fn a_logout_that_is_asked_for_does_not_wait_too_long() {
    let mut lab = two(0, |_| {});
    let task = lab.command(0, 512);
    let message = lab.asynchronous(1, (0, 0, 10));
    lab.control(message, &[]);
    assert!(lab.requests().is_empty());
    let at = lab.session.poll_timeout().unwrap();
    assert!(at < seconds(10));
    lab.timeout(seconds(9));
    assert_eq!(lab.last_logout().reason, 0);
    assert_eq!(lab.outcome(task), None);
}

#[test]
fn a_connection_that_rests_may_come_to_be_the_last() {
    let mut lab = two(2, |_| {});
    lab.give_up(1, 5, 7);
    lab.session.handle_disconnect_at(LEADING, seconds(1));
    lab.drain();
    lab.timeout(seconds(5));
    assert_eq!(lab.session.wanted(seconds(7)), Some(LEADING));
    lab.session.begin_join(LEADING);
    let login = LoggedIn { exp_stat_sn: StatSn(9), ..lab.session.login().clone() };
    lab.session.joined(LEADING, &login, seconds(7));
    lab.drain();
    assert_eq!(lab.session.wanted(seconds(7)), Some(OTHER));
}
