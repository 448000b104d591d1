// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resets of the whole target, and the functions of RFC 7144.

use super::driver::*;
use iscsi::datamover::TaskId;
use iscsi::service::{Function, ServiceResponse};
use iscsi::target_role::{ConnectionId, TargetReset};
use wire::iscsi::{LunField, Response, ScsiCommand, TaskManagementRequest};

const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const QUERY_TASK: u8 = 9;
const QUERY_TASK_SET: u8 = 10;
const I_T_NEXUS_RESET: u8 = 11;
const QUERY_ASYNCHRONOUS_EVENT: u8 = 12;
const LUN_1: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);

fn permitting(reset: TargetReset) -> Driver {
    let mut setup = Setup::new();
    setup.settings.target_reset = reset;
    setup.start()
}

fn level_2() -> Driver {
    Setup::new().keys(|keys| keys.protocol_level = 2).start()
}

/// The answer to a function that reaches the SCSI side, which says `response`.
fn answered(driver: &mut Driver, request: TaskManagementRequest, response: ServiceResponse) -> u8 {
    let asked = management(&driver.manage(request));
    driver.session.task_management_done(asked.id, response);
    managed(&driver.drain())
}

/// Covers: TMF-22, TMF-24.
#[test]
fn a_reset_needs_permission() {
    let table = [
        (TargetReset::None, TARGET_WARM_RESET, false),
        (TargetReset::None, TARGET_COLD_RESET, false),
        (TargetReset::Warm, TARGET_WARM_RESET, true),
        (TargetReset::Warm, TARGET_COLD_RESET, false),
        (TargetReset::Cold, TARGET_WARM_RESET, true),
        (TargetReset::Cold, TARGET_COLD_RESET, true),
    ];
    for (policy, function, permitted) in table {
        let mut driver = permitting(policy);
        let command = driver.command();
        let task = driver.start(command);
        let request = driver.management(function);
        let outputs = driver.manage(request);
        assert_eq!(has_management(&outputs), permitted, "{policy:?} {function}");
        if !permitted {
            assert_eq!(managed(&outputs), 6);
            assert_eq!(driver.session.tasks(None), [task], "nothing has happened");
        }
    }
}

/// Covers: TMF-17.
#[test]
fn a_reset_waits_for_no_command() {
    for immediate in [true, false] {
        let mut driver = permitting(TargetReset::Warm);
        let first = driver.take_cmd_sn();
        let held = driver.command();
        driver.send(held);
        driver.take_cmd_sn();
        assert!(driver.commands.is_empty(), "{first:?} is missing");
        let mut request = driver.management(TARGET_WARM_RESET);
        request.immediate = immediate;
        if !immediate {
            request.cmd_sn = driver.take_cmd_sn();
        }
        let outputs = driver.manage(request);
        let asked = management(&outputs);
        assert_eq!(driver.commands.len(), 1, "what had come is a task like any other");
        driver.session.terminate(&[], Some(asked.id));
        driver.session.task_management_done(asked.id, ServiceResponse::Complete);
        let outputs = driver.drain();
        assert_eq!(managed(&outputs), 0);
        let numbers = CMD_SN + if immediate { 3 } else { 4 };
        assert_eq!(driver.exp_cmd_sn(), numbers, "all before it count as received");
        assert!(driver.session.tasks(None).is_empty());
    }
}

#[test]
fn a_refused_reset_leaves_missing_commands_missing() {
    let mut driver = permitting(TargetReset::None);
    let missing = driver.command();
    let request = driver.management(TARGET_WARM_RESET);
    assert_eq!(managed(&driver.manage(request)), 6);
    driver.send(missing);
    assert_eq!(driver.commands.len(), 1);
}

#[test]
fn a_reset_holds_back_later_commands_of_every_unit() {
    let mut driver = permitting(TargetReset::Warm);
    let request = driver.management(TARGET_WARM_RESET);
    let asked = management(&driver.manage(request));
    let later = ScsiCommand { lun: LUN_1, ..driver.command() };
    driver.send(later);
    assert!(driver.commands.is_empty());
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    driver.drain();
    assert_eq!(driver.commands.len(), 1, "it lives");
}

/// Below level 2 nobody is asked, so that nobody can say that a function succeeded.
///
/// Covers: P44-02/T, P44-07.
#[test]
fn the_newer_functions_need_protocol_level_2() {
    for level in [0, 1] {
        let mut driver = Setup::new().keys(|keys| keys.protocol_level = level).start();
        let command = driver.command();
        let task = driver.start(command);
        for function in QUERY_TASK..=QUERY_ASYNCHRONOUS_EVENT {
            let referenced_task = command.itt;
            let request = TaskManagementRequest { referenced_task, ..driver.management(function) };
            let outputs = driver.manage(request);
            assert!(!has_management(&outputs), "function {function}");
            assert_eq!(managed(&outputs), 5, "function {function}");
        }
        assert_eq!(driver.session.tasks(None), [task]);
    }
    let mut driver = level_2();
    for function in [13, 14, 0x7f] {
        let request = driver.management(function);
        assert_eq!(managed(&driver.manage(request)), 5, "function {function}");
    }
}

/// What the login of an added connection says of a level changes nothing for any connection.
///
/// Covers: P44-01b/T.
#[test]
fn the_protocol_level_holds_on_each_connection() {
    for (level, other) in [(2, 1), (1, 2)] {
        let setup = Setup::new().keys(|keys| {
            keys.protocol_level = level;
            keys.max_connections = 2;
        });
        let mut driver = setup.start();
        let (second, _) = driver.join_with(8, 9000, |keys| keys.protocol_level = other);
        for id in [second, ConnectionId(0)] {
            driver.on(id);
            let command = ScsiCommand { priority: 9, ..driver.command() };
            let task = driver.start(command);
            let started = driver.commands.last().expect("it has started");
            assert_eq!(started.priority, if level == 2 { 9 } else { 0 }, "level {level}");
            scsi(&driver.complete(task, good()));
            let request = driver.management(QUERY_TASK_SET);
            let outputs = driver.manage(request);
            assert_eq!(has_management(&outputs), level == 2, "level {level}");
            if level == 2 {
                let asked = management(&outputs);
                driver.session.task_management_done(asked.id, ServiceResponse::Complete);
                driver.drain();
            }
        }
    }
}

/// What a discovery session takes does not hang on its level.
///
/// Covers: P44-01c/T.
#[test]
fn the_protocol_level_means_nothing_in_discovery() {
    for level in 0..=2 {
        let mut driver = Setup::discovery().keys(|keys| keys.protocol_level = level).start();
        for function in 1..=QUERY_ASYNCHRONOUS_EVENT {
            let request = driver.management(function);
            assert_eq!(reject(&driver.manage(request)), 4, "level {level}, function {function}");
        }
    }
}

/// Covers: P44-03.
#[test]
fn query_task_names_the_task_that_is_there() {
    let mut driver = level_2();
    let command = driver.command();
    let task = driver.start(command);
    let query = |driver: &mut Driver, lun| {
        let request = TaskManagementRequest {
            referenced_task: command.itt,
            lun,
            ..driver.management(QUERY_TASK)
        };
        let asked = management(&driver.manage(request));
        driver.session.task_management_done(asked.id, ServiceResponse::Complete);
        driver.drain();
        match asked.function {
            Function::QueryTask { task } => task,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(query(&mut driver, LunField::default()), Some(task));
    assert_eq!(query(&mut driver, LUN_1), None, "of another unit");
    scsi(&driver.complete(task, good()));
    assert_eq!(query(&mut driver, LunField::default()), None, "it has ended");
}

/// Covers: P44-07.
#[test]
fn a_question_ends_no_task() {
    let mut driver = level_2();
    let command = driver.command();
    let task: TaskId = driver.start(command);
    for function in [QUERY_TASK, QUERY_TASK_SET, QUERY_ASYNCHRONOUS_EVENT] {
        let request = driver.management(function);
        assert_eq!(answered(&mut driver, request, ServiceResponse::Complete), 0);
        let request = driver.management(function);
        let asked = management(&driver.manage(request));
        // Meanwhile commands of the unit go on.
        let other = driver.command();
        driver.start(other);
        let additional = 0x0010_2900;
        let response = ServiceResponse::Succeeded { additional };
        driver.session.task_management_done(asked.id, response);
        let Response::TaskManagement(answer) = only(&driver.drain()) else { panic!() };
        assert_eq!((answer.response, answer.additional), (7, additional));
    }
    assert_eq!(scsi(&driver.complete(task, good())).itt, command.itt);
}

/// Covers: P44-05.
#[test]
fn nexus_reset_ends_the_tasks_of_every_unit() {
    let mut driver = level_2();
    let first = driver.command();
    driver.start(first);
    let second = ScsiCommand { lun: LUN_1, ..driver.command() };
    driver.start(second);
    let request = driver.management(I_T_NEXUS_RESET);
    assert_eq!(answered(&mut driver, request, ServiceResponse::Complete), 0);
    assert!(driver.session.tasks(None).is_empty());
}

/// Covers: P44-02/T, P44-08.
#[test]
fn priority_counts_at_protocol_level_2_only() {
    for (level, priority) in [(0, 0), (1, 0), (2, 9)] {
        let mut driver = Setup::new().keys(|keys| keys.protocol_level = level).start();
        let command = ScsiCommand { priority: 9, ..driver.command() };
        driver.start(command);
        assert_eq!(driver.commands[0].priority, priority, "level {level}");
    }
}

/// Covers: P44-02/T, P44-09.
#[test]
fn a_command_that_found_no_room_hears_when_to_come_back() {
    for (level, code, qualifier) in [(2, 0x28, 1), (2, 8, 1), (2, 2, 0), (2, 0, 0), (1, 0x28, 0)] {
        let mut driver = Setup::new().keys(|keys| keys.protocol_level = level).start();
        let command = driver.command();
        let task = driver.start(command);
        let answer = scsi(&driver.complete(task, status(code)));
        assert_eq!((answer.status, answer.status_qualifier), (code, qualifier), "level {level}");
    }
}

/// What a lost connection asked for is not answered on another one, and holds up nobody there.
///
/// Covers: CMD-27.
#[test]
fn an_immediate_function_is_forgotten_with_its_connection() {
    let mut driver = Setup::new().keys(|keys| keys.max_connections = 2).start();
    let (second, _) = driver.join(8, 9000);
    driver.on(second);
    let request = driver.management(5);
    assert!(request.immediate);
    let asked = management(&driver.manage(request));
    driver.lose(second);
    driver.on(ConnectionId(0));
    driver.acknowledge();
    let behind = driver.command();
    let behind = driver.start(behind);
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    let outputs = driver.drain();
    assert!(responses(&outputs).is_empty(), "nobody waits for it: {outputs:?}");
    assert_eq!(driver.session.tasks(None), [behind], "and it ends nothing");
}
