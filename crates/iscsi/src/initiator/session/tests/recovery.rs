// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked for again, and what becomes of connections that are gone.

use super::*;
use crate::initiator::Policy;
use crate::initiator::TaskReporting;
use crate::initiator::datamover::Run;

pub(super) const OTHER: ConnectionId = ConnectionId(1);

fn level(level: u8) -> Lab {
    Lab::with(false, |parameters| {
        parameters.error_recovery_level = level;
        parameters.time2retain = 20;
    })
}

/// A session with two connections.
fn pair(level: u8) -> Lab {
    two(level, |_| {})
}

/// As [`pair`], where something else is agreed on, too.
pub(super) fn two(level: u8, adjust: impl FnOnce(&mut Parameters)) -> Lab {
    let mut lab = alone_with(level, adjust);
    join(&mut lab, OTHER);
    lab
}

/// One that is to have two, and has one.
pub(super) fn alone(level: u8) -> Lab {
    alone_with(level, |_| {})
}

fn alone_with(level: u8, adjust: impl FnOnce(&mut Parameters)) -> Lab {
    let mut lab = Lab::with(false, |parameters| {
        parameters.error_recovery_level = level;
        parameters.max_connections = 2;
        parameters.time2retain = 20;
        adjust(parameters);
    });
    let settings = Settings { connections: 4, policy: Policy::RoundRobin, ..Settings::default() };
    let login = lab.session.login().clone();
    lab.session = Session::new(login, &settings, START);
    lab
}

/// The pump makes a connection that is wanted.
pub(super) fn join(lab: &mut Lab, id: ConnectionId) -> crate::initiator::Joining {
    assert_eq!(lab.session.wanted(START), Some(id));
    assert!(lab.session.joining(id).is_none(), "not before it is being made");
    lab.session.begin_join(id);
    let joining = lab.session.joining(id).unwrap();
    let login = LoggedIn {
        cid: joining.cid,
        exp_stat_sn: StatSn(500),
        exp_cmd_sn: lab.session.exp_cmd_sn,
        max_cmd_sn: lab.session.max_cmd_sn,
        ..lab.session.login().clone()
    };
    lab.session.joined(id, &login, START);
    lab.drain();
    joining
}

fn reject(lab: &mut Lab, reason: u8, request: Request) {
    let mut header = Vec::new();
    request.emit(0, &mut header);
    let numbers = Numbers { exp_cmd_sn: lab.session.exp_cmd_sn, ..lab.numbers(0) };
    let reject = Reject { reason, numbers, data_sn: DataSn(0) };
    lab.control(Response::Reject(reject), &header);
}

/// Covers: ERL-12, SNK-05, DGT-09, SNK-10, DSN-07c.
#[test]
fn a_status_before_its_data_is_not_acknowledged() {
    let mut lab = level(1);
    let task = lab.command(0, 512);
    let other = lab.command(0, 512);
    let first = lab.session.exp_stat_sn();
    let lost = Some(Run { first: 3, count: 2 });
    let numbers = lab.numbers(0);
    lab.event(Event::Incomplete { task, lost, has_status: true, numbers }, &[]);
    let requests = lab.requests();
    let [Request::Snack(snack)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((snack.itt, snack.beg_run, snack.run_length), (itt(task), 3, 2));
    assert_eq!((snack.kind, snack.exp_stat_sn), (0, first));
    // Another status comes and counts, but nothing is acknowledged.
    let mut ended = lab.status(other, 0);
    ended.response.numbers.stat_sn = first.plus(1);
    lab.event(Event::Ended(ended), &[]);
    assert!(lab.outcome(other).is_some());
    assert_eq!(lab.session.exp_stat_sn(), first);
    assert_eq!(lab.requests().len(), 1, "what is held is not asked for as a status");
    lab.end(task);
    assert!(matches!(lab.outcome(task), Some(Outcome::Done(_))));
    assert_eq!(lab.session.exp_stat_sn(), first.plus(2));
}

/// Covers: DGT-11.
#[test]
fn data_that_is_refused_fails_its_command_when_its_status_is_there() {
    for before in [false, true] {
        let mut lab = level(1);
        let task = lab.command(0, 512);
        let lost = Some(Run { first: 0, count: 1 });
        let numbers = lab.numbers(0);
        lab.event(Event::Incomplete { task, lost, has_status: false, numbers }, &[]);
        let [Request::Snack(snack)] = lab.requests()[..] else { panic!("a SNACK") };
        if before {
            let numbers = lab.numbers(0);
            lab.event(Event::Incomplete { task, lost: None, has_status: true, numbers }, &[]);
            let mut numbers = lab.numbers(1);
            numbers.exp_cmd_sn = lab.session.exp_cmd_sn;
            let mut header = Vec::new();
            Request::Snack(snack).emit(0, &mut header);
            let reject = Reject { reason: 3, numbers, data_sn: DataSn(0) };
            lab.control(Response::Reject(reject), &header);
        } else {
            reject(&mut lab, 3, Request::Snack(snack));
            assert_eq!(lab.outcome(task), None, "its status is waited for");
            lab.end(task);
        }
        assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::Damaged)));
        assert!(lab.closed.is_none() && lab.session.is_active());
        assert!(lab.session.connections.get(LEADING).unwrap().statuses.are_in_order());
    }
}

/// Covers: CMD-19, CMD-25, CMD-23b.
#[test]
fn a_command_that_was_damaged_is_sent_again_under_its_number() {
    let mut lab = level(0);
    let task = lab.command(512, 0);
    let (first, ..) = lab.commands()[0];
    for again in 1..=u8::MAX {
        reject(&mut lab, 0x02, Request::Command(first));
        let commands = lab.commands();
        if lab.closed.is_some() {
            assert!(again > 4, "some tries");
            assert!(matches!(lab.outcome(task), Some(Outcome::Failed(Ending::Lost { .. }))));
            return;
        }
        let (last, ..) = *commands.last().unwrap();
        assert_eq!(commands.len(), usize::from(again) + 1);
        assert_eq!(ScsiCommand { exp_stat_sn: first.exp_stat_sn, ..last }, first);
    }
    panic!("no end of tries");
}

#[test]
fn the_window_keeps_later_commands_near_an_open_number() {
    // While a number is open the target's ExpCmdSN stands still, and a MaxCmdSN that is further
    // ahead than half of the numbers is none (RFC 7143 §4.2.2.1).
    let mut lab = level(0);
    let open = lab.session.cmd_sn;
    lab.command(0, 0);
    for ahead in [1 << 31, (1 << 31) + 1, u32::MAX] {
        let (stat_sn, exp_cmd_sn) = (StatSn(0), open);
        let numbers = Numbers { stat_sn, exp_cmd_sn, max_cmd_sn: open.plus(ahead) };
        lab.event(Event::Window(numbers), &[]);
        assert!(lab.session.max_cmd_sn.steps_from(open) < 1 << 31, "{ahead:#x}");
    }
    let numbers =
        Numbers { stat_sn: StatSn(0), exp_cmd_sn: open, max_cmd_sn: open.plus((1 << 31) - 2) };
    lab.event(Event::Window(numbers), &[]);
    assert_eq!(lab.session.max_cmd_sn.steps_from(open), (1 << 31) - 2);
}

/// The times are those that were agreed on, each for its own purpose.
///
/// Covers: TMO-02/I.
#[test]
fn an_unannounced_loss_has_the_times_of_the_session() {
    let mut lab = Lab::with(false, |parameters| {
        parameters.error_recovery_level = 2;
        (parameters.time2wait, parameters.time2retain) = (3, 7);
    });
    lab.session.handle_disconnect_at(LEADING, START);
    lab.drain();
    assert_eq!(lab.session.poll_timeout(), Some(START + Duration::from_secs(3)));
    assert_eq!(lab.session.wanted(START + Duration::from_millis(2999)), None);
    let later = START + Duration::from_secs(3);
    assert_eq!(lab.session.wanted(later), Some(LEADING));
    lab.session.begin_join(LEADING);
    lab.session.join_failed(LEADING, false, later);
    lab.session.handle_timeout(later + Duration::from_millis(6999));
    lab.drain();
    assert!(lab.closed.is_none());
    lab.session.handle_timeout(later + Duration::from_secs(7));
    lab.drain();
    assert!(matches!(lab.closed, Some((SessionError::Disconnected, _))));
}

/// Covers: SES-15, SES-14, SES-33, TMO-01, TMO-02/I, ERL-05b.
#[test]
fn a_connection_is_replaced_only_when_it_is_gone() {
    let mut lab = level(2);
    assert_eq!(lab.session.wanted(START), None);
    lab.session.begin_join(LEADING);
    assert!(lab.session.joining(LEADING).is_none(), "LOGGED_IN");
    lab.command(0, 512);
    let acknowledged = lab.session.exp_stat_sn();
    lab.session.handle_disconnect_at(LEADING, START);
    lab.drain();
    assert!(lab.closed.is_none());
    assert_eq!(lab.session.wanted(START), None, "not before Time2Wait");
    let later = START + Duration::from_secs(2);
    assert_eq!(lab.session.poll_timeout(), Some(later));
    assert_eq!(lab.session.wanted(later), Some(LEADING));
    lab.session.begin_join(LEADING);
    let joining = lab.session.joining(LEADING).unwrap();
    assert_eq!((joining.tsih, joining.cid), (Tsih(1), Cid(0)));
    assert_eq!((joining.exp_stat_sn, joining.cmd_sn), (acknowledged, lab.session.cmd_sn));
    // Nobody comes back: the session is over after Time2Retain.
    lab.session.join_failed(LEADING, false, later);
    lab.session.handle_timeout(later + Duration::from_millis(19_999));
    lab.drain();
    assert!(lab.closed.is_none(), "Time2Retain is not over");
    lab.session.handle_timeout(later + Duration::from_secs(20));
    lab.drain();
    assert!(matches!(lab.closed, Some((SessionError::Disconnected, _))));
}

/// Covers: REA-01, TMF-06, TMF-28, LGN-34, ERL-05b, ERL-05c, LGO-14, CMD-19.
#[test]
fn commands_are_sent_again_or_reassigned_when_the_logout_has_succeeded() {
    let mut lab = pair(2);
    let tasks: Vec<TaskId> = (0..4).map(|_| lab.command(0, 512)).collect();
    let of_other: Vec<TaskId> = tasks
        .iter()
        .copied()
        .filter(|task| lab.session.tasks.get(*task).unwrap().connection == OTHER)
        .collect();
    assert_eq!(of_other.len(), 2, "they take turns");
    let numbers: Vec<CmdSn> =
        of_other.iter().filter_map(|task| lab.session.tasks.get(*task).unwrap().sent).collect();
    lab.session.handle_disconnect_at(OTHER, START);
    lab.drain();
    let Some(Request::Logout(logout)) = lab.requests().last().copied() else { panic!("a logout") };
    assert_eq!((logout.reason, logout.cid, logout.exp_stat_sn), (2, Cid(1), StatSn(500)));
    assert!(lab.reassigned.is_empty(), "not before the answer");
    // The target has the first of both, and not the second.
    let window = Numbers {
        stat_sn: lab.session.exp_stat_sn(),
        exp_cmd_sn: numbers[1],
        max_cmd_sn: lab.session.max_cmd_sn,
    };
    let itt = logout.itt;
    let (time2wait, time2retain) = (0, 20);
    let answer = LogoutResponse { response: 0, itt, numbers: window, time2wait, time2retain };
    lab.control(Response::Logout(answer), &[]);
    assert_eq!(lab.reassigned, [(LEADING, of_other[0])]);
    let commands = lab.commands();
    let (again, ..) = commands.last().unwrap();
    assert_eq!((again.cmd_sn, again.itt), (numbers[1], super::itt(of_other[1])));
    let before = lab.session.cmd_sn;
    let joining = join(&mut lab, OTHER);
    assert_eq!((joining.cid, joining.cmd_sn), (Cid(1), before));
    assert_eq!(lab.session.cmd_sn, before, "a login uses up no number");
    let management = lab.reassignments.last().copied().unwrap();
    assert!(management.immediate && management.function == 8);
    assert_eq!(management.referenced_task, super::itt(of_other[0]));
    let answer = TaskManagementResponse {
        response: 0,
        additional: 0,
        itt: management.itt,
        numbers: lab.numbers(0),
    };
    lab.control(Response::TaskManagement(answer), &[]);
    for task in tasks {
        let at = lab.session.tasks.get(task).unwrap().connection;
        assert_eq!(at, LEADING);
        lab.end(task);
        assert!(matches!(lab.outcome(task), Some(Outcome::Done(_))));
    }
}

#[test]
fn what_a_target_does_not_give_back_ends_the_session() {
    for (response, fails) in [(1, false), (3, true), (4, true), (255, true)] {
        let mut lab = pair(2);
        let tasks = [lab.command(0, 512), lab.command(0, 512)];
        lab.session.handle_disconnect_at(OTHER, START);
        lab.drain();
        let Some(Request::Logout(logout)) = lab.requests().last().copied() else {
            panic!("a logout")
        };
        let answer = LogoutResponse {
            response: 0,
            itt: logout.itt,
            numbers: lab.numbers(0),
            time2wait: 0,
            time2retain: 20,
        };
        lab.control(Response::Logout(answer), &[]);
        let itt = lab.reassignments.last().unwrap().itt;
        let numbers = lab.numbers(0);
        let answer = TaskManagementResponse { response, additional: 0, itt, numbers };
        lab.control(Response::TaskManagement(answer), &[]);
        let lost = Outcome::Failed(Ending::Lost { sent: true });
        assert_eq!(lab.outcome(tasks[1]), Some(&lost), "response {response}");
        assert_eq!(lab.closed.is_some(), fails, "response {response}");
    }
}

#[test]
fn below_level_two_commands_end_with_their_connection() {
    let mut lab = pair(0);
    let tasks = [lab.command(0, 512), lab.command(0, 512)];
    lab.session.handle_disconnect_at(OTHER, START);
    lab.drain();
    let Some(Request::Logout(logout)) = lab.requests().last().copied() else { panic!("a logout") };
    assert_eq!((logout.reason, logout.cid), (1, Cid(1)));
    assert_eq!(lab.outcome(tasks[1]), None, "not before it is logged out");
    let answer = LogoutResponse {
        response: 1,
        itt: logout.itt,
        numbers: lab.numbers(0),
        time2wait: 0,
        time2retain: 0,
    };
    lab.control(Response::Logout(answer), &[]);
    assert_eq!(lab.outcome(tasks[1]), Some(&Outcome::Failed(Ending::Lost { sent: true })));
    assert_eq!(lab.outcome(tasks[0]), None);
    lab.session.handle_disconnect_at(LEADING, START);
    lab.drain();
    assert!(matches!(lab.closed, Some((SessionError::Disconnected, _))), "the last one");
}

/// Covers: FAB-02, FAB-03, FAB-06b, FAB-01/I.
#[test]
fn fast_abort_stops_data_at_once() {
    let mut lab = Lab::with(false, |parameters| {
        parameters.task_reporting = TaskReporting::FastAbort;
    });
    let lun = LunField([0, 7, 0, 0, 0, 0, 0, 0]);
    let task = lab.command(1 << 20, 0);
    lab.session.manage(Function::AbortTaskSet(LunField::default()), START).unwrap();
    lab.drain();
    let place = |wanted: fn(&Op) -> bool| lab.ops.iter().position(wanted);
    let request =
        place(|op| matches!(op, Op::SendControl { request: Request::TaskManagement(_), .. }));
    let quiet = lab.ops.iter().position(|op| matches!(op, Op::Quiet { task: of } if *of == task));
    assert!(request.unwrap() < quiet.unwrap());
    let Some(Request::TaskManagement(tmf)) = lab.requests().last().copied() else {
        panic!("a function")
    };
    let numbers = lab.numbers(0);
    let (response, additional) = (0, 0);
    let answer = TaskManagementResponse { response, additional, itt: tmf.itt, numbers };
    lab.control(Response::TaskManagement(answer), &[]);
    assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::Aborted)));
    // A response that comes after all is counted and no more.
    let expected = lab.session.exp_stat_sn();
    let late = lab.numbers(0);
    lab.event(Event::Stray(late), &[]);
    assert_eq!(lab.session.exp_stat_sn(), expected.plus(1));
    assert!(lab.closed.is_none());
    // The tasks of a unit were ended by somebody else.
    let mut message = lab.asynchronous(5, (0, 0, 0));
    if let Response::Async(pdu) = &mut message {
        pdu.lun = lun;
    }
    let told = lab.session.exp_stat_sn();
    lab.control(message, &[]);
    let Some(Request::NopOut(nop)) = lab.requests().last().copied() else { panic!("an answer") };
    assert_eq!((nop.itt, nop.ttt, nop.lun), (Itt::NONE, Ttt::NONE, lun));
    assert_eq!(nop.exp_stat_sn, told.plus(1), "the message is acknowledged");
}

/// R2Ts are answered up to the response, and news of ended tasks is none.
///
/// Covers: KEY-37/I.
#[test]
fn without_fast_abort_data_is_sent_as_it_is_asked_for() {
    for reporting in [TaskReporting::Rfc3720, TaskReporting::ResponseFence] {
        for function in [
            Function::AbortTaskSet(LunField::default()),
            Function::LogicalUnitReset(LunField::default()),
            Function::TargetWarmReset,
        ] {
            let mut lab = Lab::with(false, |parameters| parameters.task_reporting = reporting);
            let task = lab.command(1 << 20, 0);
            lab.session.manage(function, START).unwrap();
            lab.drain();
            let asked = lab.requests().len();
            assert!(asked > 0);
            let message = lab.asynchronous(5, (0, 0, 0));
            lab.control(message, &[]);
            assert_eq!(lab.requests().len(), asked, "no promise that no data follows");
            let silenced = |op: &Op| matches!(op, Op::Quiet { .. } | Op::Release { .. });
            assert!(!lab.ops.iter().any(silenced), "{reporting:?}, {function:?}");
            assert_eq!(lab.outcome(task), None);
        }
    }
}

/// Covers: FMT-17a, FMT-17b, FMT-17c.
#[test]
fn pdus_that_are_made_wrong_end_the_session() {
    let lab = level(0);
    let mut both = lab.nop_in(Itt(0xfffe), Ttt(3));
    let mut strange = lab.nop_in(Itt::NONE, Ttt(3));
    for (response, lun, last) in [(&mut both, 0x00, 0), (&mut strange, 0xc7, 9)] {
        if let Response::NopIn(pdu) = response {
            pdu.lun = LunField([lun, 1, 0, 0, 0, 0, 0, last]);
        }
    }
    for (response, what) in [(both, "both tags"), (strange, "a strange lun")] {
        let mut lab = level(0);
        lab.control(response, &[]);
        let Some((SessionError::Malformed(said), _)) = lab.closed else { panic!("{response:?}") };
        assert!(said.contains(what), "{said}");
    }
    let mut lab = level(0);
    let task = lab.command(0, 512);
    let ended = lab.status(task, CHECK_CONDITION);
    lab.event(Event::Ended(ended), &[]);
    assert_eq!(lab.closed.map(|(error, _)| error), Some(SessionError::NoSense));
}

/// Nothing that such a target says on any connection can be relied on.
///
/// Covers: FMT-16/I, DGT-04/I.
#[test]
fn a_format_error_ends_all_connections_of_the_session() {
    let violations = [
        Violation::Malformed { opcode: 0x21 },
        Violation::SegmentTooLong { length: 8196, limit: 8192 },
    ];
    let end = |level, violation| {
        let mut lab = pair(level);
        lab.session.handle_event_at(OTHER, Event::Violation(violation), &[], START);
        let (mut terminated, mut closed) = (Vec::new(), None);
        while let Some((at, output)) = lab.session.poll_output_at() {
            match output {
                Output::Op(Op::Terminate) => terminated.push(at),
                Output::Closed { error, .. } => closed = Some(error),
                _ => {}
            }
        }
        terminated.sort_unstable_by_key(|at| at.0);
        (terminated, closed)
    };
    for level in 0..=2 {
        for violation in violations {
            let closed = Some(SessionError::Violation(violation));
            assert_eq!(end(level, violation), (vec![LEADING, OTHER], closed), "level {level}");
        }
    }
    // A wrong digest is none: the other connection goes on.
    assert_eq!(end(2, Violation::HeaderDigest), (vec![OTHER], None));
}

/// Covers: P44-02/I.
#[test]
fn what_needs_protocol_level_2_is_not_asked_for() {
    let unit = LunField::default();
    let functions: [fn(TaskId, LunField) -> Function; 5] = [
        |task, _| Function::AbortTask(task),
        |_, unit| Function::AbortTaskSet(unit),
        |_, unit| Function::ClearTaskSet(unit),
        |_, unit| Function::LogicalUnitReset(unit),
        |_, _| Function::TargetWarmReset,
    ];
    for function in functions {
        let mut lab = level(0);
        let task = lab.command(512, 0);
        lab.command(0, 512);
        assert!(lab.commands().iter().all(|(command, ..)| command.priority == 0));
        lab.session.manage(function(task, unit), START).unwrap();
        lab.drain();
        let Some(Request::TaskManagement(request)) = lab.requests().last().copied() else {
            panic!("a request");
        };
        assert!((1..=8).contains(&request.function), "{request:?}");
    }
}

/// An R2T may be late for many reasons; what is waited for too long is aborted instead.
///
/// Covers: SNK-15.
#[test]
fn no_r2t_is_asked_for_because_it_is_late() {
    let mut lab = level(2);
    lab.command(65536, 0);
    let patience = Settings::default().command_timeout;
    let mut now = START;
    while now < START + patience {
        now = now + Duration::from_secs(1);
        lab.session.handle_timeout(now);
        lab.drain();
        let asked = lab.requests();
        assert!(!asked.iter().any(|request| matches!(request, Request::Snack(_))), "{asked:?}");
        if let Some(Request::NopOut(ping)) = asked.last() {
            let answer = lab.nop_in(ping.itt, Ttt::NONE);
            lab.session.handle_event(Event::Control { response: answer }, &[], now);
            lab.ops.clear();
            lab.drain();
        }
    }
    assert!(lab.requests().iter().any(|request| matches!(request, Request::TaskManagement(_))));
}

/// Covers: SRS-14.
#[test]
fn more_than_sense_data_does_no_harm() {
    let mut lab = level(0);
    let task = lab.command(0, 512);
    let ended = lab.status(task, CHECK_CONDITION);
    lab.event(Event::Ended(ended), &[0, 2, 0x70, 0, 1, 2, 3, 4]);
    assert!(matches!(lab.outcome(task),
        Some(Outcome::Done(Completion { sense, .. })) if *sense == [0x70, 0]));
}

/// Covers: TMO-05/I.
#[test]
fn the_timers_of_iscsi_are_shorter_than_those_of_commands() {
    let settings = Settings::default();
    let noticed = settings.ping_interval + settings.ping_timeout;
    assert!(noticed + settings.login_timeout < settings.command_timeout);
}
