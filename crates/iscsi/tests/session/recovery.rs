// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recovery above level 0: what is a matter of time, of bounds, or of the SCSI side (RFC 7143
//! §7.1.4, §7.2.2, §7.5, §7.8).

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{DataError, Event, Immediate, NumberedPut, Op};
use iscsi::service::{Completion, Indication, ServiceResponse};
use iscsi::target_role::{ConnectionId, Output};
use wire::iscsi::{
    Itt, LunField, NopOut, Request, Response, ScsiCommand, Snack, StatSn, TaskManagementRequest,
    Ttt,
};

fn recovering() -> Driver {
    Setup::new().keys(|keys| keys.error_recovery_level = 1).start()
}

fn released(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::Op(_, Op::Release { .. }))).count()
}

/// Covers: STS-06.
#[test]
fn a_task_is_kept_until_its_status_is_acknowledged() {
    let mut driver = recovering();
    driver.silent = true;
    let read = driver.read(4096);
    let task = driver.start(read);
    let outputs = driver.complete(task, data(4096));
    assert_eq!(released(&outputs), 0);
    assert_eq!(released(&driver.acknowledge()), 0, "it acknowledges nothing");
    driver.exp_stat_sn += 1;
    let outputs = driver.acknowledge();
    assert_eq!(released(&outputs), 1);
    assert!(ended(&outputs, task));
}

/// Each run but the last asks to be acknowledged, by a tag of its own and the unit of the command.
///
/// Covers: DIN-10a, DIN-12, DSN-01, DIN-02.
#[test]
fn what_is_to_be_acknowledged_names_its_unit() {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 1;
        keys.max_burst_length = 1024;
        keys.max_send_data_segment_length = 512;
    });
    let mut driver = setup.start();
    let lun = LunField([0, 3, 0, 0, 0, 0, 0, 0]);
    let read = ScsiCommand { lun, ..driver.read(4096) };
    let task = driver.start(read);
    let outputs = driver.complete(task, data(4096));
    let runs: Vec<&NumberedPut> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Op(_, Op::PutNumbered(put)) => Some(&**put),
            _ => None,
        })
        .collect();
    let places: Vec<(u32, u32)> = runs.iter().map(|run| (run.data_sn.0, run.offset)).collect();
    assert_eq!(places, [(0, 0), (2, 1024), (4, 2048), (6, 3072)], "one series");
    let asks: Vec<Option<(Ttt, LunField)>> = runs.iter().map(|run| run.acknowledge).collect();
    let [Some((first, a)), Some((second, b)), Some((third, c)), None] = asks[..] else {
        panic!("{asks:?}")
    };
    assert_eq!([a, b, c], [lun; 3]);
    assert!(![first, second, third].contains(&Ttt::NONE));
    assert!(first != second && second != third && first != third);
}

/// Whatever part is asked for, and however many bursts it reaches over.
///
/// Covers: DGT-10a.
#[test]
fn all_data_that_is_asked_for_comes_again() {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 1;
        keys.max_burst_length = 1024;
        keys.max_send_data_segment_length = 512;
    });
    let mut driver = setup.start();
    driver.silent = true;
    let read = driver.read(4096);
    let task = driver.start(read);
    driver.complete(task, data(4096));
    for (beg_run, run_length, from, to) in [
        (0, 0, 0, 4096),
        (0, 8, 0, 4096),
        (3, 0, 1536, 4096),
        (1, 4, 512, 2560),
        (4, 1, 2048, 2560),
    ] {
        let snack = Snack {
            kind: 0,
            lun: LunField::default(),
            itt: read.itt,
            tag: u32::MAX,
            exp_stat_sn: StatSn(driver.exp_stat_sn),
            beg_run,
            run_length,
        };
        let mut end = from;
        for output in &driver.request(Request::Snack(snack), &[]) {
            let Output::Op(_, Op::PutNumbered(put)) = output else { panic!("{output:?}") };
            assert_eq!((put.offset, put.data_sn.0), (end, end / 512));
            end += u32::try_from(put.data.len()).unwrap();
        }
        assert_eq!(end, to, "{beg_run} {run_length}");
    }
}

/// All but the last PDU has arrived, and the status is on its way alone.
///
/// Covers: SNK-07.
#[test]
fn what_is_not_acknowledged_is_kept_to_the_last_pdu() {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 1;
        keys.max_burst_length = 1024;
        keys.max_send_data_segment_length = 512;
    });
    let mut driver = setup.start();
    driver.silent = true;
    let read = driver.read(3 * 512);
    let task = driver.start(read);
    let outputs = driver.complete(task, Completion { status: CHECK_CONDITION, ..data(3 * 512) });
    let runs = |outputs: &[Output]| -> Vec<NumberedPut> {
        let puts = outputs.iter().filter_map(|output| match output {
            Output::Op(_, Op::PutNumbered(put)) => Some((**put).clone()),
            _ => None,
        });
        puts.collect()
    };
    let [first, last] = &runs(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((first.status, last.status, last.data_sn.0), (None, None, 2));
    let (tag, lun) = first.acknowledge.unwrap();
    let ack = Snack {
        kind: 2,
        lun,
        itt: Itt::NONE,
        tag: tag.0,
        exp_stat_sn: StatSn(driver.exp_stat_sn),
        beg_run: 2,
        run_length: 0,
    };
    assert!(responses(&driver.request(Request::Snack(ack), &[])).is_empty());
    let wanted = Snack { kind: 0, itt: read.itt, tag: u32::MAX, run_length: 1, ..ack };
    let outputs = driver.request(Request::Snack(wanted), &[]);
    let [again] = &runs(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((again.data_sn, again.offset), (last.data_sn, last.offset));
    assert_eq!(again.data.to_vec(), last.data.to_vec());
}

/// Two are open and the older one fails: what asks again has the number behind both.
///
/// Covers: R2T-07.
#[test]
fn a_recovery_r2t_has_the_number_behind_all() {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 1;
        keys.max_outstanding_r2t = 2;
        keys.data_sequence_in_order = false;
        keys.max_burst_length = 1024;
    });
    let mut driver = setup.start();
    let numbered = |outputs: &[Output]| -> Vec<(u32, u32)> {
        let number = |output: &Output| match output {
            Output::Op(_, Op::GetNumbered(get)) => Some((get.r2t_sn.0, get.offset)),
            _ => None,
        };
        outputs.iter().filter_map(number).collect()
    };
    let write = driver.write(4096);
    let (task, outputs) = driver.start_write(write, Immediate::None, 4096);
    assert_eq!(numbered(&outputs), [(0, 0), (1, 1024)]);
    assert_eq!(numbered(&driver.failed(task, DataError::Digest)), [(2, 0)]);
    assert_eq!(numbered(&driver.done(task, 1024, 1024)), [(3, 2048)]);
    assert_eq!(numbered(&driver.done(task, 0, 1024)), [(4, 3072)]);
}

/// Covers: ERL-07.
#[test]
fn status_that_stays_unacknowledged_makes_the_target_ask() {
    let mut driver = recovering();
    driver.silent = true;
    let command = driver.command();
    let task = driver.start(command);
    let status = scsi(&driver.complete(task, good())).numbers.stat_sn;
    assert!(driver.wait(Duration::from_secs(4)).is_empty());
    let outputs = driver.wait(Duration::from_secs(2));
    let Response::NopIn(nop) = only(&outputs) else { panic!("{outputs:?}") };
    assert_eq!((nop.itt, nop.numbers.stat_sn.0), (Itt::NONE, status.0 + 1));
    assert_ne!(nop.ttt, Ttt::NONE);
    // The initiator sees that it misses a status, and asks for it again.
    let answer = driver.nop(Itt::NONE, nop.ttt);
    assert!(driver.request(Request::NopOut(answer), &[]).is_empty());
    assert!(driver.wait(Duration::from_secs(4)).is_empty(), "not at once again");
    driver.exp_stat_sn += 1;
    driver.acknowledge();
    assert!(driver.wait(Duration::from_secs(60)).is_empty(), "nothing is left to ask for");
}

#[test]
fn an_initiator_that_acknowledges_nothing_is_dropped_in_the_end() {
    let mut driver = recovering();
    driver.silent = true;
    for _ in 0..200 {
        let itt = driver.next_itt();
        let nop = NopOut { exp_stat_sn: StatSn(STAT_SN), ..driver.nop(itt, Ttt::NONE) };
        driver.request(Request::NopOut(nop), &[1; 65536]);
        if driver.closed.is_some() {
            return;
        }
    }
    panic!("it keeps as much as the initiator likes");
}

/// A SNACK asks for everything in 48 bytes: not for ever.
/// PDUs that cannot be parsed, or that are corrupt, acknowledge nothing either; their Rejects are
/// kept all the same.
#[test]
fn an_initiator_that_only_sends_what_is_rejected_is_dropped_in_the_end() {
    for event in [|| Event::Rejected { reason: 4 }, || Event::DigestError] {
        let mut driver = recovering();
        // The longest header, which a Reject repeats.
        driver.header = vec![0xab; 48 + 1020];
        let rejects = (0..10_000).take_while(|_| {
            driver.event(event(), &[]);
            driver.closed.is_none()
        });
        let rejects = rejects.count();
        assert!((1000..5000).contains(&rejects), "{rejects} Rejects are kept");
    }
}

#[test]
fn what_is_sent_again_is_bounded_until_more_is_acknowledged() {
    let mut driver = recovering();
    driver.silent = true;
    for _ in 0..16 {
        let itt = driver.next_itt();
        let nop = NopOut { exp_stat_sn: StatSn(STAT_SN), ..driver.nop(itt, Ttt::NONE) };
        driver.request(Request::NopOut(nop), &[1; 65536]);
    }
    let snack = |driver: &mut Driver| {
        let snack = Snack {
            kind: 1,
            lun: Default::default(),
            itt: Itt::NONE,
            tag: u32::MAX,
            exp_stat_sn: StatSn(driver.exp_stat_sn),
            beg_run: 0,
            run_length: 0,
        };
        let outputs = driver.request(Request::Snack(snack), &[]);
        responses(&outputs).iter().filter(|it| matches!(it, Response::NopIn(_))).count()
    };
    let served = (0..100).take_while(|_| snack(&mut driver) == 16).count();
    assert!((4..16).contains(&served), "{served}");
    assert_eq!(snack(&mut driver), 0);
    // What is acknowledged is paid back.
    driver.exp_stat_sn = STAT_SN + 15;
    driver.acknowledge();
    assert_eq!(snack(&mut driver), 1);
}

#[test]
fn a_window_of_unacknowledged_commands_closes() {
    let mut driver = recovering();
    driver.silent = true;
    let (mut taken, mut last) = (0, Vec::new());
    while driver.max_cmd_sn().wrapping_sub(driver.cmd_sn) < 1 << 31 && taken < 100 {
        let pings = |response: &Response| matches!(response, Response::NopIn(_));
        assert!(!responses(&last).iter().any(pings), "there will be a command to acknowledge with");
        let command = driver.command();
        let task = driver.start(command);
        last = driver.complete(task, good());
        taken += 1;
    }
    assert_eq!(taken, 16, "twice the depth");
    // The initiator has nothing to send any more: it is asked, once.
    let Some(Response::NopIn(nop)) = responses(&last).pop() else { panic!("{last:?}") };
    assert_ne!(nop.ttt, Ttt::NONE);
    let answer = driver.nop(Itt::NONE, nop.ttt);
    assert!(driver.request(Request::NopOut(answer), &[]).is_empty(), "not again");
    // What is acknowledged opens it again.
    driver.exp_stat_sn += 4;
    driver.acknowledge();
    assert!((0..4).contains(&driver.max_cmd_sn().wrapping_sub(driver.cmd_sn)));
}

fn overdue(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::Op(_, Op::Overdue { .. }))).count()
}

/// Covers: ERL-11.
#[test]
fn a_burst_that_does_not_end_is_asked_for_again() {
    let mut driver = recovering();
    let write = driver.write(4096);
    let (task, outputs) = driver.start_write(write, Immediate::None, 4096);
    assert_eq!(asked(&outputs), [(0, 4096)]);
    assert_eq!(overdue(&driver.wait(Duration::from_secs(4))), 0);
    assert_eq!(overdue(&driver.wait(Duration::from_secs(2))), 1);
    // Nothing came since: the mover gives it up.
    assert_eq!(overdue(&driver.wait(Duration::from_secs(6))), 1);
    let outputs = driver.failed(task, DataError::Overdue);
    assert_eq!(asked(&outputs), [(0, 4096)]);
    let outputs = driver.done(task, 0, 4096);
    assert!(received(&outputs, task));
    driver.complete(task, good());
    driver.acknowledge();
    assert_eq!(overdue(&driver.wait(Duration::from_secs(6))), 0);
    assert_eq!(overdue(&driver.wait(Duration::from_secs(60))), 0);
}

/// Hosts give a command up after 30 s as a rule: there is time for several tries before.
///
/// Covers: TMO-05/T.
#[test]
fn lost_data_is_asked_for_several_times_before_a_host_gives_up() {
    let mut driver = recovering();
    let write = driver.write(4096);
    let (task, _) = driver.start_write(write, Immediate::None, 4096);
    let mut tries = 0;
    for _ in 0..30 {
        if overdue(&driver.wait(Duration::from_secs(1))) > 0 {
            tries += asked(&driver.failed(task, DataError::Overdue)).len();
        }
        driver.acknowledge();
    }
    assert!(tries >= 3, "{tries} tries in 30 s");
}

/// Wrong amounts are no loss: the initiator does not know what it does.
#[test]
fn a_burst_of_the_wrong_length_fails_the_task() {
    let mut driver = recovering();
    let write = driver.write(4096);
    let (task, _) = driver.start_write(write, Immediate::None, 4096);
    let outputs = driver.failed(task, DataError::Amount);
    assert!(dropped(&outputs, task));
    assert_eq!(sense(&outputs), (0x0b, 0x0c, 0x0d));
}

#[test]
fn kept_data_makes_room_when_memory_is_short() {
    let mut driver = recovering();
    driver.silent = true;
    assert!(!driver.session.give_up_kept_data());
    let read = driver.read(4096);
    let task = driver.start(read);
    driver.complete(task, data(4096));
    assert!(driver.session.keeps_data());
    assert!(driver.session.give_up_kept_data());
    assert!(!driver.session.give_up_kept_data());
    driver.session.check();
    let stale = Event::DataDone { task, offset: 0, length: 4096 };
    assert!(driver.event(stale, &[]).is_empty());
}

/// Two connections at ErrorRecoveryLevel 2.
fn reassigning() -> (Driver, ConnectionId) {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 2;
        keys.max_connections = 2;
        keys.time2retain = 10;
    });
    let mut driver = setup.start();
    let (other, _) = driver.join(8, 900);
    (driver, other)
}

fn reassign(driver: &mut Driver, itt: Itt) -> Vec<Output> {
    let request = driver.management(8);
    driver.manage(TaskManagementRequest { referenced_task: itt, ..request })
}

/// The code of the first response, which is to a task management request.
fn first(outputs: &[Output]) -> u8 {
    match responses(outputs).first() {
        Some(Response::TaskManagement(answer)) => answer.response,
        other => panic!("{other:?}"),
    }
}

fn recover(driver: &mut Driver) -> Vec<Output> {
    let logout = driver.logout(2);
    driver.log_out(logout)
}

/// The unit attention that follows from the end of a task is the SCSI side's.
///
/// Covers: REA-09, LGO-11.
#[test]
fn tasks_wait_for_time2wait_and_time2retain() {
    // Two seconds and ten, from the logout on.
    for (wait, expected) in [(11_900, 0), (12_100, 1)] {
        let (mut driver, other) = reassigning();
        let command = driver.command();
        let task = driver.start(command);
        driver.lose(OWN);
        driver.on(other);
        driver.acknowledge();
        driver.wait(Duration::from_secs(8));
        let outputs = recover(&mut driver);
        assert!(matches!(only(&outputs), Response::Logout(answer) if answer.time2retain == 10));
        driver.acknowledge();
        let outputs = driver.wait(Duration::from_millis(wait));
        let cleared = |i: &&Indication| matches!(i, Indication::Cleared { task: t } if *t == task);
        assert_eq!(indications(&outputs).iter().any(cleared), expected == 1);
        let outputs = reassign(&mut driver, command.itt);
        assert_eq!(first(&outputs), expected, "after {wait} ms");
    }
}

/// Covers: REA-09.
#[test]
fn tasks_that_nobody_logs_out_end_too() {
    let (mut driver, other) = reassigning();
    let command = driver.command();
    let task = driver.start(command);
    driver.lose(OWN);
    driver.on(other);
    driver.acknowledge();
    driver.wait(Duration::from_millis(11_900));
    assert_eq!(first(&reassign(&mut driver, command.itt)), 3, "it is there, and not logged out");
    assert!(ended(&driver.wait(Duration::from_millis(200)), task));
    assert_eq!(first(&reassign(&mut driver, command.itt)), 1);
    assert!(
        matches!(only(&recover(&mut driver)), Response::Logout(answer) if answer.response == 1)
    );
}

/// Nor does the session lose what it has on another connection.
///
/// Covers: TMO-04.
#[test]
fn without_time2retain_tasks_end_with_their_connection() {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 2;
        keys.max_connections = 2;
        keys.time2retain = 0;
    });
    let mut driver = setup.start();
    let (other, _) = driver.join(8, 900);
    let command = driver.command();
    let task = driver.start(command);
    driver.on(other);
    let kept = driver.command();
    let kept = driver.start(kept);
    assert!(ended(&driver.lose(OWN), task), "at once");
    driver.acknowledge();
    assert_eq!(first(&reassign(&mut driver, command.itt)), 1);
    let outputs = recover(&mut driver);
    assert!(matches!(only(&outputs), Response::Logout(answer) if answer.response == 1));
    assert_eq!(driver.session.tasks(None), [kept]);
}

/// Of a connection that works: neither data nor a status nor an R2T leaves, until it is asked for
/// over another one.
///
/// Covers: LGO-03b.
#[test]
fn nothing_leaves_of_what_was_logged_out_for_recovery() {
    for by_itself in [false, true] {
        let (mut driver, other) = reassigning();
        let (read, write, plain) = (driver.read(4096), driver.write(4096), driver.command());
        let tasks = [read, write, plain].map(|command| driver.start(command));
        if !by_itself {
            driver.on(other);
        }
        let outputs = recover(&mut driver);
        assert!(matches!(only(&outputs), Response::Logout(answer) if answer.response == 0));
        driver.on(other);
        assert!(driver.complete(tasks[0], data(4096)).is_empty(), "data");
        assert!(driver.receive(tasks[1], 4096).is_empty(), "an R2T");
        assert!(driver.complete(tasks[2], good()).is_empty(), "a status");
        driver.acknowledge();
        let outputs = reassign(&mut driver, read.itt);
        let put =
            |output: &Output| matches!(output, Output::Op(at, Op::PutNumbered(_)) if *at == other);
        assert!(outputs.iter().any(put));
        assert_eq!(asked(&reassign(&mut driver, write.itt)), [(0, 4096)]);
        let outputs = reassign(&mut driver, plain.itt);
        assert!(matches!(responses(&outputs)[..], [_, Response::Scsi(_)]), "{outputs:?}");
    }
}

/// One that was not numbered ends with its connection.
///
/// Covers: CMD-27, CLR-01b.
#[test]
fn an_immediate_command_is_not_reassigned() {
    let (mut driver, other) = reassigning();
    let urgent = driver.command();
    let urgent = driver.immediate(urgent);
    let task = driver.start(urgent);
    let numbered = driver.command();
    driver.start(numbered);
    let outputs = driver.lose(OWN);
    let cleared = |i: &&Indication| matches!(i, Indication::Cleared { task: t } if *t == task);
    assert!(indications(&outputs).iter().any(cleared));
    assert!(ended(&outputs, task));
    driver.on(other);
    driver.acknowledge();
    recover(&mut driver);
    assert_eq!(first(&reassign(&mut driver, urgent.itt)), 1, "there is no such task");
    assert_eq!(first(&reassign(&mut driver, numbered.itt)), 0);
}

/// SCSI goes on while the task has no connection; nothing leaves before the reassignment.
///
/// Covers: REA-03, REA-04.
#[test]
fn a_command_that_ends_meanwhile_is_answered_after_the_reassignment() {
    let (mut driver, other) = reassigning();
    let read = driver.read(4096);
    let task = driver.start(read);
    driver.lose(OWN);
    driver.on(other);
    assert!(driver.complete(task, data(4096)).is_empty());
    recover(&mut driver);
    let outputs = reassign(&mut driver, read.itt);
    assert_eq!(first(&outputs), 0);
    let on_the_new_one = |op: &Output| matches!(op, Output::Op(id, _) if *id == other);
    let ops: Vec<&Output> = outputs.iter().filter(|output| on_the_new_one(output)).collect();
    let [Output::Op(_, Op::SendControl { response, .. }), Output::Op(_, Op::PutNumbered(put))] =
        ops[..]
    else {
        panic!("{ops:?}")
    };
    assert!(matches!(response, Response::TaskManagement(_)));
    assert_eq!((put.data.len(), put.status.map(|status| status.status)), (4096, Some(0)));
}

/// A write that SCSI asks data for only after its connection is gone.
#[test]
fn data_is_asked_for_after_the_reassignment() {
    let (mut driver, other) = reassigning();
    let write = driver.write(4096);
    let task = driver.start(write);
    driver.lose(OWN);
    driver.on(other);
    assert!(driver.receive(task, 4096).is_empty());
    recover(&mut driver);
    let outputs = reassign(&mut driver, write.itt);
    assert_eq!(asked(&outputs), [(0, 4096)]);
    assert!(received(&driver.done(task, 0, 4096), task));
}

/// A task that waits can be aborted, and ends with its logical unit's reset.
#[test]
fn tasks_that_wait_can_be_aborted() {
    let (mut driver, other) = reassigning();
    let command = driver.command();
    let task = driver.start(command);
    let more = driver.command();
    let second = driver.start(more);
    driver.lose(OWN);
    driver.on(other);
    let abort = driver.management(1);
    let outputs = driver.manage(TaskManagementRequest { referenced_task: command.itt, ..abort });
    let asked = management(&outputs);
    driver.session.abort(task);
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    let outputs = driver.drain();
    assert!(ended(&outputs, task));
    assert_eq!(managed(&outputs), 0);
    let reset = driver.management(5);
    let outputs = driver.manage(reset);
    driver.session.task_management_done(management(&outputs).id, ServiceResponse::Complete);
    assert!(ended(&driver.drain(), second));
    recover(&mut driver);
    assert_eq!(first(&reassign(&mut driver, more.itt)), 1);
}

/// Covers: CLR-03.
#[test]
fn a_close_logout_of_a_lost_connection_ends_its_tasks_alone() {
    let (mut driver, other) = reassigning();
    let command = driver.command();
    let task = driver.start(command);
    driver.on(other);
    let own = driver.command();
    driver.start(own);
    driver.lose(OWN);
    let logout = driver.logout(1);
    let outputs = driver.log_out(logout);
    assert!(ended(&outputs, task));
    let quiesce = |i: &&Indication| matches!(i, Indication::Quiesce { .. });
    assert!(indications(&outputs).iter().any(quiesce));
    driver.session.quiesced(0);
    let outputs = driver.drain();
    assert!(matches!(only(&outputs), Response::Logout(answer) if answer.response == 0));
    assert_eq!(driver.session.tasks(None).len(), 1);
}

/// Without Time2Retain nothing is kept (RFC 7143 §13.16).
#[test]
fn without_time_to_retain_tasks_end_with_their_connection() {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 2;
        keys.max_connections = 2;
    });
    let mut driver = setup.start();
    let (other, _) = driver.join(8, 900);
    let command = driver.command();
    let task = driver.start(command);
    assert!(ended(&driver.lose(OWN), task));
    driver.on(other);
    assert_eq!(first(&reassign(&mut driver, command.itt)), 1);
}

/// The session waits for its tasks, then it is over.
#[test]
fn a_session_without_connections_ends_with_its_tasks() {
    let setup = Setup::new().keys(|keys| {
        keys.error_recovery_level = 2;
        keys.time2retain = 10;
    });
    let mut driver = setup.start();
    let command = driver.command();
    driver.start(command);
    recover(&mut driver);
    assert!(driver.terminated && driver.closed.is_none());
    driver.wait(Duration::from_millis(11_900));
    assert!(driver.closed.is_none());
    driver.wait(Duration::from_millis(200));
    assert_eq!(driver.closed.as_deref(), Some("session timeout"));
    assert!(driver.session.tasks(None).is_empty());
}
