// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response fences over several connections (RFC 7143 §4.2.2.3).

use super::driver::*;
use iscsi::datamover::TaskId;
use iscsi::service::{Completion, ServiceResponse};
use iscsi::target_role::{ConnectionId, Output, TargetReset, TaskReporting};
use std::time::Duration;
use wire::iscsi::{Itt, Response, ScsiCommand, TaskManagementRequest};

/// Functions (RFC 7143 §11.5.1, RFC 7144 §6.3).
const CLEAR_ACA: u8 = 3;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;
const I_T_NEXUS_RESET: u8 = 11;

/// StatSN of the second connection at its start.
const SECOND_STAT_SN: u32 = 9000;

/// A session with two connections whose initiator acknowledges only what it is told to; one status
/// on the second connection is not acknowledged.
fn unacknowledged(reporting: TaskReporting) -> (Driver, ConnectionId) {
    let setup = Setup::new().keys(|keys| {
        keys.max_connections = 2;
        keys.task_reporting = reporting;
        keys.protocol_level = 2;
    });
    unacknowledged_of(setup)
}

fn unacknowledged_of(setup: Setup) -> (Driver, ConnectionId) {
    let mut driver = setup.start();
    let (second, _) = driver.join(8, SECOND_STAT_SN);
    driver.silent = true;
    driver.on(second);
    let command = driver.command();
    let task = driver.start(command);
    scsi(&driver.complete(task, good()));
    driver.on(OWN);
    (driver, second)
}

/// The second connection acknowledges all that it was sent.
fn acknowledge_second(driver: &mut Driver, second: ConnectionId) -> Vec<Output> {
    driver.on(second);
    driver.exp_stat_sn = SECOND_STAT_SN + 1;
    let outputs = driver.acknowledge();
    driver.on(OWN);
    outputs
}

/// The first connection acknowledges `count` responses.
fn acknowledge_own(driver: &mut Driver, count: u32) -> Vec<Output> {
    driver.exp_stat_sn = STAT_SN + count;
    driver.acknowledge()
}

fn answers(outputs: &[Output]) -> usize {
    let is_answer =
        |response: &&Response| matches!(response, Response::Scsi(_) | Response::TaskManagement(_));
    responses(outputs).iter().filter(is_answer).count()
}

fn fenced() -> Completion {
    Completion { fence: true, ..status(CHECK_CONDITION) }
}

/// Whichever is the last to acknowledge what it was sent, that which the answer leaves on, too.
///
/// Covers: STS-12a.
#[test]
fn every_connection_is_waited_for() {
    for last in 0..3 {
        let setup = Setup::new().keys(|keys| {
            keys.max_connections = 3;
            keys.task_reporting = TaskReporting::ResponseFence;
        });
        let mut driver = setup.start();
        driver.silent = true;
        let (second, third) = (driver.join(8, 9000).0, driver.join(9, 7000).0);
        let places = [(OWN, STAT_SN), (second, 9000), (third, 7000)];
        for (at, _) in places {
            driver.on(at);
            let command = driver.command();
            let task = driver.start(command);
            scsi(&driver.complete(task, good()));
        }
        driver.on(OWN);
        let command = driver.command();
        let task = driver.start(command);
        assert_eq!(answers(&driver.complete(task, fenced())), 0);
        for place in [(last + 1) % 3, (last + 2) % 3, last] {
            let (at, stat_sn) = places[place];
            driver.on(at);
            driver.exp_stat_sn = stat_sn + 1;
            let outputs = driver.acknowledge();
            assert_eq!(answers(&outputs), usize::from(place == last), "{place} of {last}");
        }
    }
}

/// Covers: STS-11.
#[test]
fn a_fenced_completion_comes_after_all_before_and_before_all_after() {
    for reporting in [TaskReporting::ResponseFence, TaskReporting::FastAbort] {
        let (mut driver, second) = unacknowledged(reporting);
        let commands = [driver.command(), driver.command()];
        let tasks = commands.map(|command| driver.start(command));
        let outputs = driver.complete(tasks[0], fenced());
        assert!(matches!(responses(&outputs)[..], [Response::NopIn(_)]), "asks: {outputs:?}");
        assert_eq!(answers(&driver.complete(tasks[1], good())), 0, "it gets in line");
        let outputs = acknowledge_second(&mut driver, second);
        assert_eq!(answers(&outputs), 1, "the fenced one alone");
        let outputs = acknowledge_own(&mut driver, 1);
        assert_eq!(scsi(&outputs).itt, commands[1].itt);
    }
}

/// Covers: STS-11, STS-13a, STS-13e.
#[test]
fn the_answers_of_functions_that_end_many_tasks_are_fenced() {
    for function in [CLEAR_ACA, LOGICAL_UNIT_RESET, TARGET_WARM_RESET, I_T_NEXUS_RESET] {
        let (mut driver, second) = unacknowledged(TaskReporting::ResponseFence);
        let request = driver.management(function);
        let asked = management(&driver.manage(request));
        driver.session.task_management_done(asked.id, ServiceResponse::Complete);
        let outputs = driver.drain();
        assert_eq!(answers(&outputs), 0, "function {function}: {outputs:?}");
        let after = driver.command();
        let after = driver.start(after);
        assert_eq!(answers(&driver.complete(after, good())), 0);
        let outputs = acknowledge_second(&mut driver, second);
        assert_eq!(answers(&outputs), 1, "function {function}");
        assert_eq!(answers(&acknowledge_own(&mut driver, 1)), 1);
    }
}

/// The session ends with its target, but not before the answer has left.
///
/// Covers: STS-13a, TMF-23.
#[test]
fn the_answer_of_a_cold_reset_is_fenced() {
    for is_acknowledged in [true, false] {
        let mut setup = Setup::new().keys(|keys| {
            keys.max_connections = 2;
            keys.task_reporting = TaskReporting::ResponseFence;
        });
        setup.settings.target_reset = TargetReset::Cold;
        let (mut driver, second) = unacknowledged_of(setup);
        let request = driver.management(TARGET_COLD_RESET);
        let asked = management(&driver.manage(request));
        driver.session.task_management_done(asked.id, ServiceResponse::Complete);
        driver.session.reset();
        let outputs = driver.drain();
        assert_eq!(answers(&outputs), 0, "a response before it is not acknowledged: {outputs:?}");
        assert_eq!(driver.closed, None);
        let outputs = match is_acknowledged {
            true => acknowledge_second(&mut driver, second),
            false => driver.lose(second),
        };
        assert_eq!(answers(&outputs), 1);
        let ends = |o: &&Output| matches!(o, Output::Op(_, iscsi::datamover::Op::Terminate));
        assert_eq!(outputs.iter().filter(ends).count(), 2, "all connections close: {outputs:?}");
        assert!(driver.closed.is_some());
    }
    let mut driver = Setup::new().start();
    driver.session.reset();
    driver.drain();
    assert!(driver.closed.is_some(), "also where nobody waits for an answer");
}

/// Covers: KEY-37/T.
#[test]
fn without_the_promise_there_is_no_fence() {
    let (mut driver, _) = unacknowledged(TaskReporting::Rfc3720);
    let command = driver.command();
    let task = driver.start(command);
    assert_eq!(scsi(&driver.complete(task, fenced())).itt, command.itt);
    let request = driver.management(LOGICAL_UNIT_RESET);
    let asked = management(&driver.manage(request));
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    assert_eq!(managed(&driver.drain()), 0);
}

#[test]
fn one_connection_needs_no_fence() {
    let mut driver =
        Setup::new().keys(|keys| keys.task_reporting = TaskReporting::FastAbort).start();
    driver.silent = true;
    for completion in [good(), fenced(), good()] {
        let command = driver.command();
        let task = driver.start(command);
        assert_eq!(scsi(&driver.complete(task, completion)).itt, command.itt);
    }
}

#[test]
fn several_fences_stand_in_order() {
    let (mut driver, second) = unacknowledged(TaskReporting::ResponseFence);
    let commands = [driver.command(), driver.command(), driver.command()];
    let tasks = commands.map(|command| driver.start(command));
    driver.complete(tasks[0], fenced());
    driver.complete(tasks[1], good());
    driver.complete(tasks[2], fenced());
    assert_eq!(answers(&acknowledge_second(&mut driver, second)), 1);
    let outputs = acknowledge_own(&mut driver, 1);
    assert_eq!(answers(&outputs), 1, "the second fence stands behind it: {outputs:?}");
    assert_eq!(answers(&acknowledge_own(&mut driver, 2)), 1);
    let command = driver.command();
    let task = driver.start(command);
    assert_eq!(answers(&driver.complete(task, good())), 0);
    assert_eq!(answers(&acknowledge_own(&mut driver, 3)), 1);
}

#[test]
fn a_fence_falls_with_its_task() {
    let (mut driver, _) = unacknowledged(TaskReporting::ResponseFence);
    let commands = [driver.command(), driver.command()];
    let tasks = commands.map(|command| driver.start(command));
    driver.complete(tasks[0], fenced());
    driver.complete(tasks[1], good());
    let outputs = driver.abort(tasks[0]);
    assert_eq!(answers(&outputs), 1, "nothing is in the way any more: {outputs:?}");
}

/// A task whose connection was logged out for recovery, and an open fence: one status on the third
/// connection is not acknowledged, and a fenced response on the second waits for that. The task is
/// kept for four seconds more.
fn fence_before_a_reassignment() -> (Driver, [ConnectionId; 2], ScsiCommand, TaskId) {
    let setup = Setup::new().keys(|keys| {
        keys.max_connections = 3;
        keys.error_recovery_level = 2;
        keys.time2retain = 10;
        keys.task_reporting = TaskReporting::ResponseFence;
    });
    let mut driver = setup.start();
    let (second, _) = driver.join(8, SECOND_STAT_SN);
    let (third, _) = driver.join(9, SECOND_STAT_SN);
    let command = driver.command();
    let task = driver.start(command);
    driver.lose(OWN);
    driver.on(second);
    let logout = driver.logout(2);
    driver.log_out(logout);
    driver.acknowledge();
    driver.wait(Duration::from_secs(8));
    driver.acknowledge();
    driver.silent = true;
    driver.on(third);
    let other = driver.command();
    let other = driver.start(other);
    scsi(&driver.complete(other, good()));
    driver.on(second);
    let other = driver.command();
    let other = driver.start(other);
    assert_eq!(answers(&driver.complete(other, fenced())), 0, "the fence is open");
    (driver, [second, third], command, task)
}

fn reassign(driver: &mut Driver, itt: Itt) -> Vec<Output> {
    let request = driver.management(TASK_REASSIGN);
    driver.manage(TaskManagementRequest { referenced_task: itt, ..request })
}

/// The fence closes: the responses that were in line leave.
fn close_fence(driver: &mut Driver, [second, third]: [ConnectionId; 2]) -> Vec<Output> {
    driver.on(third).exp_stat_sn += 1;
    assert_eq!(answers(&driver.acknowledge()), 1, "the fenced one alone");
    driver.on(second).exp_stat_sn += 1;
    driver.acknowledge()
}

/// Codes of the answers to task management requests.
fn codes(outputs: &[Output]) -> Vec<u8> {
    let code = |response: &Response| match response {
        Response::TaskManagement(answer) => Some(answer.response),
        _ => None,
    };
    responses(outputs).iter().filter_map(code).collect()
}

/// The answer is in line like any other, and the task waits with it.
///
/// Covers: REA-03, STS-11.
#[test]
fn a_reassignment_waits_in_line() {
    let (mut driver, connections, command, task) = fence_before_a_reassignment();
    assert_eq!(answers(&reassign(&mut driver, command.itt)), 0, "in line, not refused");
    assert!(driver.complete(task, good()).is_empty(), "it belongs to no connection yet");
    let outputs = close_fence(&mut driver, connections);
    let [Response::TaskManagement(first), Response::Scsi(second)] = responses(&outputs)[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!((first.response, second.itt), (0, command.itt));
}

/// The second of two requests finds the task where the first has put it.
#[test]
fn a_reassignment_in_line_is_granted_once() {
    let (mut driver, connections, command, _) = fence_before_a_reassignment();
    for _ in 0..2 {
        assert_eq!(answers(&reassign(&mut driver, command.itt)), 0);
    }
    assert_eq!(codes(&close_fence(&mut driver, connections)), [0, 3]);
}

/// Whoever came in time is in time, however long the fence stands.
#[test]
fn a_reassignment_in_line_keeps_its_task() {
    let (mut driver, connections, command, task) = fence_before_a_reassignment();
    reassign(&mut driver, command.itt);
    let outputs = driver.wait(Duration::from_millis(4100));
    assert!(!ended(&outputs, task), "{outputs:?}");
    assert_eq!(codes(&close_fence(&mut driver, connections)), [0]);
    assert_eq!(scsi(&driver.complete(task, good())).itt, command.itt);
}

/// A task that is aborted meanwhile is not there any more; one that ended is not either.
#[test]
fn a_reassignment_in_line_finds_that_its_task_has_ended() {
    let (mut driver, connections, command, task) = fence_before_a_reassignment();
    reassign(&mut driver, command.itt);
    driver.abort(task);
    assert_eq!(codes(&close_fence(&mut driver, connections)), [1]);
}

/// With the connection of the request the claim is gone: time runs again.
#[test]
fn a_reassignment_falls_with_its_connection() {
    let (mut driver, [second, third], command, task) = fence_before_a_reassignment();
    driver.on(third);
    reassign(&mut driver, command.itt);
    driver.lose(third);
    driver.on(second);
    assert!(ended(&driver.wait(Duration::from_millis(4100)), task));
}
