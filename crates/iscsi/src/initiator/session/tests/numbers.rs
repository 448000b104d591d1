// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of commands and statuses, and what is sent again, over one and several connections.

use super::recovery::OTHER;
use super::recovery::alone;
use super::recovery::join;
use super::*;
use crate::initiator::Policy;
use crate::initiator::TaskReporting;
use crate::initiator::datamover::Run;
use crate::initiator::limits;
use crate::violation::reason::DATA_DIGEST_ERROR;

fn level(level: u8) -> Lab {
    Lab::with(false, |parameters| {
        parameters.error_recovery_level = level;
        parameters.time2retain = 20;
    })
}

/// A session with two connections.
fn pair(level: u8) -> Lab {
    let mut lab = alone(level);
    join(&mut lab, OTHER);
    lab
}

/// A command, and where it was sent.
fn start(lab: &mut Lab, data_out: u32, data_in: u32) -> (TaskId, Vec<(ConnectionId, ScsiCommand)>) {
    let cdb = Cdb { bytes: [0; 32], len: 16 };
    let (lun, attribute) = (LunField([0, 4, 0, 0, 0, 0, 0, 0]), Attribute::Simple);
    let command = Command { lun, cdb, attribute, data_out, data_in };
    let task = lab.session.command(command, START).unwrap();
    (task, sent(lab))
}

/// What was sent since the last look, and where.
fn placed(lab: &mut Lab) -> Vec<(ConnectionId, Op)> {
    let mut ops = Vec::new();
    while let Some((at, output)) = lab.session.poll_output_at() {
        match output {
            Output::Op(op) => ops.push((at, op)),
            Output::Indication(indication) => lab.told.push(indication),
            Output::Closed { error, time2wait } => lab.closed = Some((error, time2wait)),
        }
    }
    lab.session.check();
    ops
}

/// The commands that were sent since the last look, and where.
fn sent(lab: &mut Lab) -> Vec<(ConnectionId, ScsiCommand)> {
    let commands = placed(lab).into_iter().filter_map(|(at, op)| match op {
        Op::SendCommand { command, .. } => Some((at, command)),
        _ => None,
    });
    commands.collect()
}

/// The SNACKs that were sent since the last look, and where.
fn snacks(lab: &mut Lab) -> Vec<(ConnectionId, Snack)> {
    let snacks = placed(lab).into_iter().filter_map(|(at, op)| match op {
        Op::SendControl { request: Request::Snack(snack), .. } => Some((at, snack)),
        _ => None,
    });
    snacks.collect()
}

/// The target dropped this command, as it was damaged; it has all before `expected`.
fn reject(lab: &mut Lab, at: ConnectionId, command: ScsiCommand, expected: CmdSn) {
    let mut header = Vec::new();
    Request::Command(command).emit(0, &mut header);
    let numbers = Numbers {
        stat_sn: lab.session.exp_stat_sn_at(at),
        exp_cmd_sn: expected,
        max_cmd_sn: lab.session.max_cmd_sn,
    };
    let reject = Reject { reason: DATA_DIGEST_ERROR, numbers, data_sn: DataSn(0) };
    let response = Response::Reject(reject);
    lab.session.handle_event_at(at, Event::Control { response }, &header, START);
}

fn window(lab: &mut Lab, at: ConnectionId, exp: CmdSn, max: CmdSn) {
    let numbers = Numbers { stat_sn: StatSn(0), exp_cmd_sn: exp, max_cmd_sn: max };
    lab.session.handle_event_at(at, Event::Window(numbers), &[], START);
}

/// Covers: CMD-02, CMD-03.
#[test]
fn what_is_immediate_takes_no_number() {
    let mut lab = Lab::new();
    let first = lab.session.cmd_sn;
    lab.command(0, 512);
    let ping = lab.nop_in(Itt::NONE, Ttt(5));
    lab.control(ping, &[]);
    lab.session.manage(Function::LogicalUnitReset(LunField::default()), START).unwrap();
    lab.drain();
    lab.command(0, 512);
    lab.session.logout(START);
    lab.drain();
    let numbers: Vec<CmdSn> = lab.commands().iter().map(|(command, ..)| command.cmd_sn).collect();
    assert_eq!(numbers, [first, first.plus(1)]);
    let requests = lab.requests();
    let [Request::NopOut(nop), Request::TaskManagement(reset), Request::Logout(logout)] =
        requests.as_slice()
    else {
        panic!("{requests:?}")
    };
    assert!(nop.immediate && reset.immediate && logout.immediate);
    assert_eq!((nop.cmd_sn, reset.cmd_sn), (first.plus(1), first.plus(1)));
    assert_eq!(logout.cmd_sn, first.plus(2));
}

/// Whatever a command moves, it has its place among the others: SPACE and MOVE MEDIUM have no data.
///
/// Covers: CMD-28.
#[test]
fn no_command_is_immediate() {
    let mut lab = Lab::new();
    for (data_out, data_in) in [(0, 0), (512, 0), (0, 512)] {
        let (_, sent) = start(&mut lab, data_out, data_in);
        assert!(sent.iter().all(|(_, command)| !command.immediate), "{sent:?}");
        assert_eq!(sent.len(), 1);
    }
}

/// Covers: CMD-17/I, CMD-15.
#[test]
fn a_window_without_room_takes_no_command() {
    for start_at in [CmdSn(10), CmdSn(0), CmdSn(1 << 31)] {
        let mut lab = Lab::new();
        (lab.session.cmd_sn, lab.session.exp_cmd_sn) = (start_at, start_at);
        lab.session.max_cmd_sn = start_at.minus(1);
        lab.command(0, 512);
        window(&mut lab, LEADING, start_at, start_at.minus(1));
        lab.drain();
        assert!(lab.commands().is_empty(), "MaxCmdSN is ExpCmdSN - 1 at {start_at:?}");
        window(&mut lab, LEADING, start_at, start_at);
        lab.drain();
        assert_eq!(lab.commands().len(), 1);
    }
}

/// Tags of commands and of all else that is under way at the same time.
///
/// Covers: CMD-29.
#[test]
fn no_two_tags_are_alike() {
    let mut lab = Lab::new();
    lab.session.max_cmd_sn = lab.session.cmd_sn.plus(200);
    for _ in 0..100 {
        lab.command(0, 512);
    }
    for _ in 0..limits::MANAGEMENTS_MAX {
        lab.session.manage(Function::LogicalUnitReset(LunField::default()), START).unwrap();
    }
    lab.session.send_targets(START).unwrap();
    lab.session.handle_timeout(START + lab.session.ping_interval);
    lab.session.logout(START);
    lab.drain();
    let mut tags: Vec<u32> = lab.commands().iter().map(|(command, ..)| command.itt.0).collect();
    tags.extend(lab.requests().iter().map(|request| match request {
        Request::TaskManagement(pdu) => pdu.itt.0,
        Request::Text(pdu) => pdu.itt.0,
        Request::NopOut(pdu) => pdu.itt.0,
        Request::Logout(pdu) => pdu.itt.0,
        other => panic!("{other:?}"),
    }));
    assert_eq!(tags.len(), 100 + limits::MANAGEMENTS_MAX + 3);
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 100 + limits::MANAGEMENTS_MAX + 3, "each has its own");
    assert!(!tags.contains(&Itt::NONE.0));
}

/// A command whose number the target has counted is not sent again, whatever a Reject says.
///
/// Covers: CMD-23a.
#[test]
fn only_what_left_a_gap_is_sent_again() {
    for counted in [false, true] {
        let mut lab = level(0);
        let (_, sent_first) = start(&mut lab, 512, 0);
        let (at, first) = sent_first[0];
        let expected = if counted { first.cmd_sn.plus(1) } else { first.cmd_sn };
        reject(&mut lab, at, first, expected);
        let again = sent(&mut lab);
        assert_eq!(again.len(), usize::from(!counted), "{again:?}");
        assert_eq!(lab.closed.is_some(), counted);
    }
}

/// Covers: CMD-23b, CMD-23c.
#[test]
fn a_command_is_sent_again_as_it_was_and_where_it_was() {
    for wanted in [LEADING, OTHER] {
        let mut lab = pair(0);
        let mut first = start(&mut lab, 512, 0).1[0];
        if wanted == OTHER {
            first = start(&mut lab, 512, 0).1[0];
        }
        assert_eq!(first.0, wanted, "they take turns");
        let exp_stat_sn = lab.session.exp_stat_sn_at(wanted).plus(1);
        let open = lab.session.exp_cmd_sn;
        reject(&mut lab, wanted, first.1, open);
        let again = sent(&mut lab);
        assert_eq!(again, [(wanted, ScsiCommand { exp_stat_sn, ..first.1 })]);
    }
}

/// An old copy of the command could still be under way: it must not come to be a new command. What
/// comes next goes the same way, behind it.
///
/// Covers: CMD-21, CMD-22.
#[test]
fn numbers_do_not_go_round_a_command_that_was_sent_again() {
    let mut lab = pair(0);
    start(&mut lab, 0, 0);
    let (at, again) = start(&mut lab, 512, 0).1[0];
    assert_eq!(at, OTHER);
    reject(&mut lab, OTHER, again, again.cmd_sn);
    assert_eq!(sent(&mut lab).len(), 1);
    // Numbers have gone on as far as they may.
    let last = again.cmd_sn.plus((1 << 31) - 1);
    (lab.session.cmd_sn, lab.session.exp_cmd_sn) = (last, last);
    lab.session.max_cmd_sn = last.plus(10);
    let (_, behind) = start(&mut lab, 0, 0);
    let [(OTHER, behind)] = behind[..] else { panic!("on the same connection: {behind:?}") };
    assert_eq!(behind.cmd_sn, last);
    for _ in 0..2 {
        assert!(start(&mut lab, 0, 0).1.is_empty(), "it waits");
    }
    // What another connection tells of the numbers counts, too.
    window(&mut lab, LEADING, last, last.plus(11));
    assert!(sent(&mut lab).is_empty(), "nothing new is acknowledged");
    window(&mut lab, LEADING, last.plus(1), last.plus(11));
    let numbers: Vec<CmdSn> = sent(&mut lab).iter().map(|(_, command)| command.cmd_sn).collect();
    assert_eq!(numbers, [last.plus(1), last.plus(2)]);
}

/// With its connection all is gone that was under way there.
#[test]
fn numbers_go_on_when_the_connection_of_the_copy_is_gone() {
    let mut lab = pair(0);
    start(&mut lab, 0, 0);
    let (_, again) = start(&mut lab, 512, 0).1[0];
    reject(&mut lab, OTHER, again, again.cmd_sn);
    let next = again.cmd_sn.plus(1 << 31);
    (lab.session.cmd_sn, lab.session.exp_cmd_sn) = (next, next);
    lab.session.max_cmd_sn = next.plus(10);
    start(&mut lab, 0, 0);
    assert!(sent(&mut lab).is_empty());
    lab.session.handle_disconnect_at(OTHER, START);
    lab.session.send_waiting(START);
    assert_eq!(sent(&mut lab).len(), 1);
}

/// Data, status and what asks for them belong to the connection of the command.
///
/// Covers: CMD-31/I.
#[test]
fn what_a_command_needs_is_asked_for_where_it_was_sent() {
    let mut lab = pair(1);
    let (first, second) = (start(&mut lab, 0, 4096), start(&mut lab, 0, 4096));
    for (task, at) in [(second.0, OTHER), (first.0, LEADING)] {
        let numbers = Numbers {
            stat_sn: lab.session.exp_stat_sn_at(at),
            exp_cmd_sn: lab.session.exp_cmd_sn,
            max_cmd_sn: lab.session.max_cmd_sn,
        };
        let lost = Some(Run { first: 1, count: 2 });
        let event = Event::Incomplete { task, lost, has_status: true, numbers };
        lab.session.handle_event_at(at, event, &[], START);
        let asked = snacks(&mut lab);
        let [(place, snack)] = asked[..] else { panic!("{asked:?}") };
        assert_eq!((place, snack.itt, snack.exp_stat_sn), (at, itt(task), numbers.stat_sn));
        let mut ended = lab.status(task, 0);
        ended.response.numbers = numbers;
        lab.session.handle_event_at(at, Event::Ended(ended), &[], START);
        assert_eq!(lab.session.exp_stat_sn_at(at), numbers.stat_sn.plus(1));
    }
}

/// Covers: STS-03/I.
#[test]
fn the_stat_sn_of_data_means_nothing() {
    for level_of in [0, 1] {
        let mut lab = level(level_of);
        let task = lab.command(0, 4096);
        let expected = lab.session.exp_stat_sn();
        let far = Numbers { stat_sn: expected.plus(1000), ..lab.numbers(0) };
        lab.event(Event::Window(far), &[]);
        if level_of > 0 {
            let lost = Some(Run { first: 0, count: 1 });
            lab.event(Event::Incomplete { task, lost, has_status: false, numbers: far }, &[]);
        }
        assert!(lab.closed.is_none());
        assert_eq!(lab.session.exp_stat_sn(), expected);
        let asked: Vec<Request> = lab.requests();
        assert!(
            asked.iter().all(|request| matches!(request, Request::Snack(snack) if snack.kind == 0)),
            "no status is missing: {asked:?}"
        );
        lab.end(task);
        assert_eq!(lab.session.exp_stat_sn(), expected.plus(1));
    }
}

/// Covers: STS-07b, SNK-10, SNK-11c, STS-04, SNK-05.
#[test]
fn statuses_in_a_gap_are_asked_for() {
    let mut lab = level(1);
    let tasks: Vec<TaskId> = (0..4).map(|_| lab.command(0, 512)).collect();
    let first = lab.session.exp_stat_sn();
    let mut ended = lab.status(tasks[2], 0);
    ended.response.numbers = lab.numbers(2);
    lab.event(Event::Ended(ended), &[]);
    assert!(lab.closed.is_none());
    assert!(lab.outcome(tasks[2]).is_some(), "what came counts");
    let requests = lab.requests();
    let [Request::Snack(snack)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((snack.kind, snack.beg_run, snack.run_length), (1, first.0, 2));
    assert_eq!((snack.itt, snack.tag), (Itt::NONE, Ttt::NONE.0));
    assert_eq!((snack.lun, snack.exp_stat_sn), (LunField::default(), first));
    lab.end(tasks[0]);
    assert_eq!(lab.session.exp_stat_sn(), first.plus(1), "not beyond the gap");
    lab.end(tasks[1]);
    assert_eq!(lab.session.exp_stat_sn(), first.plus(3));
    assert_eq!(lab.requests().len(), 1, "asked once");
}

/// More than an own limit is lost: the session is begun anew.
///
/// Covers: STS-05.
#[test]
fn a_gap_may_be_only_so_wide() {
    let most = u32::try_from(limits::STATUSES_AHEAD_MAX).unwrap();
    assert!(most < 1 << 31);
    for (ahead, ends) in [(most - 1, false), (most, true), ((1 << 31) - 1, true)] {
        let mut lab = level(1);
        let task = lab.command(0, 512);
        let mut ended = lab.status(task, 0);
        ended.response.numbers = lab.numbers(ahead);
        lab.event(Event::Ended(ended), &[]);
        let lost = matches!(lab.closed, Some((SessionError::StatusLost { .. }, _)));
        assert_eq!(lost, ends, "{ahead} ahead");
    }
}

/// Covers: DGT-12.
#[test]
fn a_damaged_status_is_asked_for() {
    let mut lab = level(1);
    let task = lab.command(0, 512);
    let first = lab.session.exp_stat_sn();
    lab.event(Event::StatusLost(first), &[]);
    let requests = lab.requests();
    let [Request::Snack(snack)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((snack.kind, snack.beg_run, snack.run_length), (1, first.0, 1));
    assert_eq!(lab.session.exp_stat_sn(), first, "it is not acknowledged");
    lab.end(task);
    assert_eq!(lab.session.exp_stat_sn(), first.plus(1));
}

/// Covers: SNK-10, SNK-11a, SNK-13, DIN-09.
#[test]
fn an_acknowledgement_names_what_asked_for_it() {
    let mut lab = level(1);
    let task = lab.command(0, 512);
    let lun = LunField([0, 5, 0, 0, 0, 0, 0, 0]);
    let (ttt, next, numbers) = (Ttt(77), DataSn(9), lab.numbers(0));
    lab.event(Event::Acknowledge { task, lun, ttt, next, numbers }, &[]);
    let requests = lab.requests();
    let [Request::Snack(snack)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((snack.kind, snack.itt, snack.lun, snack.tag), (2, Itt::NONE, lun, 77));
    assert_eq!((snack.beg_run, snack.run_length), (9, 0));
}

/// What is lost is asked for at level 1 and above, commands are moved at level 2: at no level more
/// than was agreed on, and no less.
///
/// Covers: ERL-02/I, ERL-03/I, STS-07a, DGT-14/I.
#[test]
fn each_level_has_its_recovery() {
    for agreed in [0, 1, 2] {
        // A status is lost.
        let mut lab = level(agreed);
        let task = lab.command(0, 512);
        let mut ended = lab.status(task, 0);
        ended.response.numbers = lab.numbers(1);
        lab.event(Event::Ended(ended), &[]);
        let asks = lab.requests().iter().any(|request| matches!(request, Request::Snack(_)));
        assert_eq!((asks, lab.closed.is_some()), (agreed > 0, agreed == 0), "level {agreed}");
        // A PDU of data is lost.
        if agreed > 0 {
            let mut lab = level(agreed);
            let task = lab.command(0, 512);
            let (lost, numbers) = (Some(Run { first: 0, count: 1 }), lab.numbers(0));
            lab.event(Event::Incomplete { task, lost, has_status: false, numbers }, &[]);
            assert!(matches!(lab.requests()[..], [Request::Snack(_)]), "level {agreed}");
        }
        // One of two connections is lost.
        let mut lab = pair(agreed);
        let tasks = [lab.command(0, 512), lab.command(0, 512)];
        lab.session.handle_disconnect_at(OTHER, START);
        lab.drain();
        let Some(Request::Logout(logout)) = lab.requests().last().copied() else { panic!() };
        assert_eq!(logout.reason, if agreed == 2 { 2 } else { 1 }, "level {agreed}");
        let answer = LogoutResponse {
            response: 0,
            itt: logout.itt,
            numbers: lab.numbers(0),
            time2wait: 0,
            time2retain: 20,
        };
        lab.control(Response::Logout(answer), &[]);
        assert_eq!(lab.reassigned.len(), usize::from(agreed == 2), "level {agreed}");
        assert_eq!(lab.outcome(tasks[1]).is_some(), agreed < 2, "level {agreed}");
        assert_eq!(lab.outcome(tasks[0]), None);
        // The only one is.
        let mut lab = level(agreed);
        lab.session.handle_disconnect_at(LEADING, START);
        lab.drain();
        assert_eq!(lab.closed.is_some(), agreed < 2, "level {agreed}");
    }
    // Digests that are wrong in what cannot be asked for again.
    let mut lab = level(0);
    lab.event(Event::Violation(Violation::DataDigest), &[]);
    assert!(lab.closed.is_some());
}

fn over_rdma(level: u8) -> Lab {
    Lab::with(false, |parameters| {
        parameters.error_recovery_level = level;
        parameters.time2retain = 20;
        parameters.rdma = Some(RdmaParameters {
            unexpected_max: 0,
            own_unexpected_max: 0,
            solicited_only: true,
            hello: false,
        });
    })
}

/// What is missing over RDMA was never sent: the connection ends, and at level 2 its commands go on
/// elsewhere.
///
/// Covers: ISP-16, ISE-06/I.
#[test]
fn no_level_asks_for_anything_over_rdma() {
    for agreed in [0, 1, 2] {
        let mut lab = over_rdma(agreed);
        assert!(!lab.session.login().keys().recovery);
        let task = lab.command(0, 512);
        let mut ended = lab.status(task, 0);
        ended.response.numbers = lab.numbers(1);
        lab.event(Event::Ended(ended), &[]);
        assert!(lab.requests().is_empty(), "level {agreed}");
        assert_eq!(lab.closed.is_some(), agreed < 2, "level {agreed}");
        let terminated = lab.ops.iter().any(|op| matches!(op, Op::Terminate));
        assert!(terminated, "level {agreed}");
        // A NOP-In tells the next number.
        let mut lab = over_rdma(agreed);
        let (lun, itt, ttt, numbers) = (Default::default(), Itt::NONE, Ttt::NONE, lab.numbers(1));
        lab.control(Response::NopIn(NopIn { lun, itt, ttt, numbers }), &[]);
        assert!(lab.requests().is_empty(), "level {agreed}");
        assert_eq!(lab.closed.is_some(), agreed < 2, "level {agreed}");
    }
}

/// Whatever it could recover by itself.
///
/// Covers: ERL-08/I.
#[test]
fn a_session_that_the_target_ends_is_over() {
    for agreed in [0, 1, 2] {
        let mut lab = pair(agreed);
        let tasks = [lab.command(0, 512), lab.command(0, 512)];
        let dropped = lab.asynchronous(3, (0, 4, 0));
        lab.control(dropped, &[]);
        assert_eq!(lab.closed, Some((SessionError::Dropped, Duration::from_secs(4))));
        for task in tasks {
            assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::Lost { sent: true })));
        }
        assert!(lab.requests().is_empty() && lab.reassigned.is_empty(), "level {agreed}");
        let ends = lab.ops.iter().filter(|op| matches!(op, Op::Terminate));
        assert_eq!(ends.count(), 2, "all connections");
    }
}

/// The tasks of that unit on that connection, and no others.
///
/// Covers: FAB-06a, FAB-06b.
#[test]
fn the_end_of_tasks_on_a_unit_stops_their_data() {
    let mut lab = alone(0);
    let mut login = lab.session.login().clone();
    login.parameters.task_reporting = TaskReporting::FastAbort;
    let settings = Settings { connections: 2, policy: Policy::RoundRobin, ..Settings::default() };
    lab.session = Session::new(login, &settings, START);
    join(&mut lab, OTHER);
    lab.session.max_cmd_sn = lab.session.cmd_sn.plus(10);
    let unit = |unit| LunField([0, unit, 0, 0, 0, 0, 0, 0]);
    let mut write = |unit| {
        let cdb = Cdb { bytes: [0; 32], len: 16 };
        let (attribute, data_out) = (Attribute::Simple, 1 << 20);
        let command = Command { lun: unit, cdb, attribute, data_out, data_in: 0 };
        let task = lab.session.command(command, START).unwrap();
        (task, sent(&mut lab)[0].0)
    };
    let written = [4, 4, 7, 7].map(|number| write(unit(number)));
    assert_eq!(written.map(|(_, at)| at), [LEADING, OTHER, LEADING, OTHER]);
    let numbers = Numbers {
        stat_sn: lab.session.exp_stat_sn_at(OTHER),
        exp_cmd_sn: lab.session.cmd_sn,
        max_cmd_sn: lab.session.max_cmd_sn,
    };
    let mut message = lab.asynchronous(5, (0, 0, 0));
    if let Response::Async(pdu) = &mut message {
        (pdu.lun, pdu.numbers) = (unit(7), numbers);
    }
    lab.session.handle_event_at(OTHER, Event::Control { response: message }, &[], START);
    let ops = placed(&mut lab);
    let [
        (OTHER, Op::Quiet { task }),
        (OTHER, Op::SendControl { request: Request::NopOut(nop), .. }),
    ] = ops.as_slice()
    else {
        panic!("{ops:?}")
    };
    assert_eq!(*task, written[3].0);
    assert_eq!((nop.itt, nop.ttt, nop.lun), (Itt::NONE, Ttt::NONE, unit(7)));
    assert_eq!(nop.exp_stat_sn, numbers.stat_sn.plus(1), "the message is acknowledged");
}
