// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management functions: order, scope, conditions.

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{Immediate, Op, TaskId};
use iscsi::service::{Function, Management, ServiceResponse};
use iscsi::target_role::Output;
use wire::iscsi::{
    CmdSn, Itt, LunField, Request, Response, ScsiCommand, TaskManagementRequest, Ttt,
};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const LUN_1: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);
const LUN_1_FLAT: LunField = LunField([0x40, 1, 0, 0, 0, 0, 0, 0]);

fn abort_of(driver: &mut Driver, command: &ScsiCommand) -> TaskManagementRequest {
    TaskManagementRequest {
        referenced_task: command.itt,
        ref_cmd_sn: command.cmd_sn,
        ..driver.management(ABORT_TASK)
    }
}

/// The SCSI side carries a function out as the pump does: ends what is there, then says so.
fn carry_out(driver: &mut Driver, asked: Management) -> Vec<Output> {
    match asked.function {
        Function::AbortTask { task } => driver.session.abort(task),
        _ => {
            for task in driver.session.tasks(Some(asked.lun)) {
                driver.session.abort(task);
            }
        }
    }
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    driver.drain()
}

fn released(outputs: &[Output], id: TaskId) -> bool {
    outputs.iter().any(|o| matches!(o, Output::Op(_, Op::Release { task }) if *task == id))
}

/// Covers: TMF-01, TMF-02, TMF-24, TMF-27/T, REA-02, P44-02/T.
#[test]
fn every_function_code_has_an_answer() {
    let mut driver = Setup::new().start();
    for function in 0..=127 {
        let request = driver.management(function);
        let outputs = driver.manage(request);
        let response = match function {
            ABORT_TASK => 1,
            7 => 6,
            ABORT_TASK_SET..=TARGET_WARM_RESET => {
                let asked = management(&outputs);
                let outputs = carry_out(&mut driver, asked);
                assert_eq!((managed(&outputs), segment(&outputs).len()), (0, 0));
                continue;
            }
            8 => 4,
            _ => 5,
        };
        assert_eq!(managed(&outputs), response, "function {function}");
        assert!(segment(&outputs).is_empty());
    }
}

/// Covers: TMF-04, TMF-09.
#[test]
fn aborting_a_running_task() {
    let mut driver = Setup::new().start();
    let command = driver.write(4096);
    let (task, _) = driver.start_write(command, Immediate::None, 4096);
    let request = abort_of(&mut driver, &command);
    let outputs = driver.manage(request);
    let asked = management(&outputs);
    assert_eq!(asked.function, Function::AbortTask { task });
    assert!(responses(&outputs).is_empty());
    let outputs = carry_out(&mut driver, asked);
    assert!(matches!(outputs[0], Output::Op(_, Op::Abandon { .. })));
    assert!(released(&outputs, task) && ended(&outputs, task));
    assert_eq!(managed(&outputs), 0);
    assert!(driver.complete(task, good()).is_empty());
}

/// Covers: TMF-09, TMF-10.
#[test]
fn aborting_a_finished_or_unknown_task() {
    let mut driver = Setup::new().start();
    let command = driver.command();
    let task = driver.start(command);
    driver.complete(task, good());
    let request = abort_of(&mut driver, &command);
    assert_eq!(managed(&driver.manage(request)), 1);
    let mut request = driver.management(ABORT_TASK);
    request.referenced_task = Itt(0x7777_7777);
    request.ref_cmd_sn = CmdSn(CMD_SN - 50);
    assert_eq!(managed(&driver.manage(request)), 1);
    let mut request = driver.management(ABORT_TASK);
    request.referenced_task = Itt(0x7777_7777);
    request.ref_cmd_sn = request.cmd_sn;
    assert_eq!(managed(&driver.manage(request)), 1);
    // Beyond the window, whatever number the function itself has.
    let beyond = driver.max_cmd_sn() + 1;
    for (ref_cmd_sn, cmd_sn) in [(beyond, CMD_SN + 1), (beyond, beyond + 1), (beyond, beyond + 99)]
    {
        let request = TaskManagementRequest {
            referenced_task: Itt(0x7777_7777),
            ref_cmd_sn: CmdSn(ref_cmd_sn),
            cmd_sn: CmdSn(cmd_sn),
            ..driver.management(ABORT_TASK)
        };
        assert_eq!(managed(&driver.manage(request)), 1, "{ref_cmd_sn} {cmd_sn}");
    }
    let next = driver.command();
    driver.start(next);
}

/// Covers: CMD-26, TMF-10.
#[test]
fn aborting_a_command_that_was_lost() {
    let mut driver = Setup::new().start();
    let lost = driver.command();
    let request = abort_of(&mut driver, &lost);
    let outputs = driver.manage(request);
    assert_eq!(managed(&outputs), 0);
    assert_eq!(driver.exp_cmd_sn(), lost.cmd_sn.0 + 1);
    assert!(driver.send(lost).is_empty(), "it comes too late");
    assert!(driver.commands.is_empty());
    let next = driver.command();
    driver.send(next);
    assert_eq!(driver.commands.len(), 1);
}

#[test]
fn a_plug_frees_what_waited_behind_it() {
    let mut driver = Setup::new().start();
    let lost = driver.command();
    let behind = driver.command();
    driver.send(behind);
    assert!(driver.commands.is_empty());
    let request = abort_of(&mut driver, &lost);
    assert_eq!(managed(&driver.manage(request)), 0);
    assert_eq!(driver.commands.len(), 1);
}

#[test]
fn aborting_a_command_that_waits_behind_a_hole() {
    let mut driver = Setup::new().start();
    let hole = driver.command();
    let waiting = driver.write_more(4096);
    let outputs = driver.send(waiting);
    assert_eq!(expected(&outputs), [(0, 4096, false)]);
    let request = abort_of(&mut driver, &waiting);
    let outputs = driver.manage(request);
    assert_eq!(managed(&outputs), 0);
    assert!(outputs.iter().any(|o| matches!(o, Output::Op(_, Op::Abandon { .. }))));
    driver.send(hole);
    assert_eq!(driver.commands.len(), 1);
    assert_eq!(driver.session.tasks(None).len(), 1);
    let task = driver.commands[0].task;
    let numbers = scsi(&driver.complete(task, good())).numbers;
    assert_eq!(numbers.exp_cmd_sn.0, waiting.cmd_sn.0 + 1);
}

#[test]
fn aborting_a_task_whose_status_waits_for_data() {
    let mut driver = Setup::new().start();
    let command = driver.write(4096);
    let (task, _) = driver.start_write(command, Immediate::None, 4096);
    assert!(driver.complete(task, status(8)).is_empty());
    let request = abort_of(&mut driver, &command);
    let outputs = driver.manage(request);
    assert_eq!(managed(&outputs), 0);
    assert!(released(&outputs, task) && !has_management(&outputs));
}

/// Covers: TMF-08, TMF-29a.
#[test]
fn task_management_cannot_be_aborted() {
    let mut driver = Setup::new().start();
    let command = driver.command();
    driver.start(command);
    let pending = driver.management(ABORT_TASK_SET);
    let outputs = driver.manage(pending);
    assert!(has_management(&outputs));
    for function in [ABORT_TASK, 8] {
        let mut request = driver.management(function);
        request.referenced_task = pending.itt;
        assert_eq!(managed(&driver.manage(request)), 255);
    }
    let mut request = driver.management(ABORT_TASK);
    request.referenced_task = request.itt;
    assert_eq!(managed(&driver.manage(request)), 255);
}

#[test]
fn a_command_may_not_take_the_tag_of_task_management() {
    let mut driver = Setup::new().start();
    let pending = driver.management(LOGICAL_UNIT_RESET);
    driver.manage(pending);
    let command = ScsiCommand { itt: pending.itt, ..driver.command() };
    assert_eq!(reject(&driver.send(command)), 7);
    let again = TaskManagementRequest { itt: pending.itt, ..driver.management(LOGICAL_UNIT_RESET) };
    assert_eq!(reject(&driver.manage(again)), 7);
    let none = TaskManagementRequest { itt: Itt::NONE, ..driver.management(LOGICAL_UNIT_RESET) };
    assert_eq!(reject(&driver.manage(none)), 9);
}

/// Covers: TMF-11.
#[test]
fn the_scsi_sides_answers_pass() {
    let answers = [
        (ServiceResponse::LunDoesNotExist, 2),
        (ServiceResponse::AuthorizationFailed, 6),
        (ServiceResponse::Rejected, 255),
        (ServiceResponse::NotSupported, 5),
        (ServiceResponse::TaskDoesNotExist, 1),
    ];
    for (response, code) in answers {
        let mut driver = Setup::new().start();
        let request = driver.management(LOGICAL_UNIT_RESET);
        let asked = management(&driver.manage(request));
        driver.session.task_management_done(asked.id, response);
        assert_eq!(managed(&driver.drain()), code);
        driver.session.task_management_done(asked.id, response);
        assert!(driver.drain().is_empty(), "answered once");
    }
}

/// Those of another unit neither wait nor end.
///
/// Covers: TMF-03.
#[test]
fn later_commands_of_the_unit_wait() {
    for function in [ABORT_TASK_SET, CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
        let mut driver = Setup::new().start();
        let before = driver.command();
        let before = driver.start(before);
        let elsewhere = ScsiCommand { lun: LUN_1, ..driver.command() };
        let elsewhere = driver.start(elsewhere);
        let request = driver.management(function);
        let outputs = driver.manage(request);
        let beside = ScsiCommand { lun: LUN_1, ..driver.command() };
        let beside = driver.start(beside);
        assert_eq!(driver.commands.len(), 3, "of another unit");
        let after = driver.command();
        driver.send(after);
        assert_eq!(driver.commands.len(), 3, "the later command waits");
        assert_eq!(driver.session.tasks(Some(LunField::default())), [before]);
        let outputs = carry_out(&mut driver, management(&outputs));
        assert!(released(&outputs, before));
        assert_eq!(driver.commands.len(), 4, "and then runs");
        for task in [driver.commands[3].task, elsewhere, beside] {
            let outputs = driver.complete(task, good());
            assert!(responses(&outputs).iter().any(|pdu| matches!(pdu, Response::Scsi(_))));
        }
    }
}

#[test]
fn immediate_commands_of_the_unit_are_refused_meanwhile() {
    let mut driver = Setup::new().start();
    let request = driver.management(LOGICAL_UNIT_RESET);
    driver.manage(request);
    let command = driver.command();
    let command = driver.immediate(command);
    assert_eq!(reject(&driver.send(command)), 6);
    let other = driver.command();
    let other = ScsiCommand { lun: LUN_1, ..driver.immediate(other) };
    driver.send(other);
    assert_eq!(driver.commands.len(), 1);
}

#[test]
fn other_units_are_left_alone() {
    let mut driver = Setup::new().start();
    let mine = driver.command();
    let mine = driver.start(mine);
    let other = ScsiCommand { lun: LUN_1, ..driver.command() };
    let other = driver.start(other);
    let request = driver.management(ABORT_TASK_SET);
    let asked = management(&driver.manage(request));
    let outputs = carry_out(&mut driver, asked);
    assert!(released(&outputs, mine) && !released(&outputs, other));
    assert_eq!(driver.session.tasks(None), [other]);
}

#[test]
fn both_forms_of_a_lun_are_one_unit() {
    let mut driver = Setup::new().start();
    let command = ScsiCommand { lun: LUN_1_FLAT, ..driver.command() };
    let task = driver.start(command);
    assert_eq!(driver.session.tasks(Some(LUN_1)), [task]);
    let request = TaskManagementRequest { lun: LUN_1, ..driver.management(ABORT_TASK_SET) };
    let asked = management(&driver.manage(request));
    assert!(released(&carry_out(&mut driver, asked), task));
}

/// It does not wait for its turn: what needs no missing command is done, and what comes behind it
/// waits for it.
///
/// Covers: TMF-30.
#[test]
fn an_immediate_function_is_looked_at_at_once() {
    let mut driver = Setup::new().start();
    let running = driver.read(512);
    let running_task = driver.start(running);
    let missing = driver.command();
    let request = abort_of(&mut driver, &running);
    assert!(request.immediate);
    let outputs = driver.manage(request);
    assert_eq!(management(&outputs).function, Function::AbortTask { task: running_task });
    let outputs = carry_out(&mut driver, management(&outputs));
    assert_eq!(managed(&outputs), 0);
    let set = driver.management(ABORT_TASK_SET);
    let later = driver.command();
    assert!(driver.manage(set).is_empty(), "its effects wait");
    assert!(driver.send(later).is_empty());
    let outputs = driver.send(missing);
    assert_eq!(driver.commands.len(), 2, "the later one waits for the function");
    let outputs = carry_out(&mut driver, management(&outputs));
    assert!(responses(&outputs).iter().any(|r| matches!(r, Response::TaskManagement(_))));
    assert_eq!(driver.commands.len(), 3);
}

/// Covers: TMF-14, TMF-30.
#[test]
fn an_immediate_function_waits_for_the_commands_before_it() {
    let mut driver = Setup::new().start();
    let first = driver.command();
    let second = driver.command();
    let request = driver.management(ABORT_TASK_SET);
    assert!(driver.manage(request).is_empty());
    driver.send(second);
    let outputs = driver.send(first);
    assert_eq!(driver.commands.len(), 2);
    let outputs = carry_out(&mut driver, management(&outputs));
    assert_eq!(managed(&outputs), 0);
    assert!(driver.session.tasks(None).is_empty());
}

/// All tasks of all connections, in whatever order their data ends.
///
/// Covers: TMF-14.
#[test]
fn a_function_waits_for_the_data_of_each_task() {
    for order in [[0, 1, 2], [2, 1, 0], [0, 2, 1]] {
        let mut driver = Setup::new().keys(|keys| keys.max_connections = 2).start();
        let (second, _) = driver.join(8, 9000);
        let tasks = [OWN, second, OWN].map(|at| {
            driver.on(at);
            let command = driver.write(4096);
            (at, driver.start_write(command, Immediate::None, 4096).0)
        });
        driver.on(OWN);
        let request = driver.management(LOGICAL_UNIT_RESET);
        assert!(driver.manage(request).is_empty());
        for (nth, index) in order.into_iter().enumerate() {
            let (at, task) = tasks[index];
            driver.on(at);
            let outputs = driver.done(task, 0, 4096);
            assert_eq!(has_management(&outputs), nth == 2, "{order:?}");
        }
    }
}

/// Covers: TMF-14, KEY-37/T.
#[test]
fn a_function_waits_for_the_data_it_was_promised() {
    let setup = Setup::new().keys(|keys| {
        keys.max_outstanding_r2t = 2;
        keys.max_burst_length = 1024;
    });
    let mut driver = setup.start();
    let command = driver.write(8192);
    let (task, _) = driver.start_write(command, Immediate::None, 8192);
    let request = driver.management(LOGICAL_UNIT_RESET);
    assert!(driver.manage(request).is_empty());
    let outputs = driver.done(task, 0, 1024);
    assert!(outputs.is_empty(), "no further R2T, and one is still open");
    let outputs = driver.done(task, 1024, 1024);
    let outputs = carry_out(&mut driver, management(&outputs));
    assert!(released(&outputs, task));
    assert!(!outputs.iter().any(|o| matches!(o, Output::Op(_, Op::Abandon { .. }))));
}

#[test]
fn a_function_does_not_wait_for_ever() {
    let mut driver = Setup::new().start();
    let command = driver.write(8192);
    let (task, _) = driver.start_write(command, Immediate::None, 8192);
    let request = driver.management(LOGICAL_UNIT_RESET);
    assert!(driver.manage(request).is_empty());
    assert!(driver.wait(Duration::from_secs(1)).is_empty());
    let outputs = driver.wait(Duration::from_secs(1));
    let outputs = carry_out(&mut driver, management(&outputs));
    assert!(outputs.iter().any(|o| matches!(o, Output::Op(_, Op::Abandon { .. }))));
    assert!(released(&outputs, task));
}

#[test]
fn tasks_go_on_when_a_function_fails() {
    let setup = Setup::new().keys(|keys| keys.max_burst_length = 1024);
    let mut driver = setup.start();
    let command = driver.write(2048);
    let (task, _) = driver.start_write(command, Immediate::None, 2048);
    let request = driver.management(CLEAR_TASK_SET);
    driver.manage(request);
    let asked_for = management(&driver.done(task, 0, 1024));
    driver.session.task_management_done(asked_for.id, ServiceResponse::AuthorizationFailed);
    let outputs = driver.drain();
    assert_eq!(asked(&outputs), [(1024, 1024)]);
    assert!(received(&driver.done(task, 1024, 1024), task));
}

/// Covers: TMF-19.
#[test]
fn the_answer_waits_for_acknowledgements() {
    for function in [ABORT_TASK_SET, CLEAR_TASK_SET] {
        let mut driver = Setup::new().start();
        let command = driver.command();
        let task = driver.start(command);
        driver.silent = true;
        driver.complete(task, good());
        let request = driver.management(function);
        let asked = management(&driver.manage(request));
        let outputs = carry_out(&mut driver, asked);
        let Response::NopIn(ping) = only(&outputs) else { panic!() };
        assert_ne!(ping.ttt, Ttt::NONE, "an answer is asked for");
        assert!(driver.acknowledge().is_empty(), "an old ExpStatSN acknowledges nothing");
        driver.exp_stat_sn = STAT_SN + 1;
        let nop = driver.nop(Itt::NONE, ping.ttt);
        assert_eq!(managed(&driver.request(Request::NopOut(nop), &[])), 0);
    }
}

#[test]
fn who_never_acknowledges_is_dropped() {
    let mut driver = Setup::new().start();
    let command = driver.command();
    let task = driver.start(command);
    driver.silent = true;
    driver.complete(task, good());
    let request = driver.management(ABORT_TASK_SET);
    let asked = management(&driver.manage(request));
    carry_out(&mut driver, asked);
    driver.wait(Duration::from_secs(5));
    assert_eq!(driver.closed.as_deref(), Some("no answer to a ping"));
}

/// Covers: CLR-04.
#[test]
fn a_reset_leaves_the_numbers_alone() {
    let mut driver = Setup::new().start();
    let command = driver.command();
    driver.start(command);
    let request = driver.management(LOGICAL_UNIT_RESET);
    let asked = management(&driver.manage(request));
    let outputs = carry_out(&mut driver, asked);
    let Response::TaskManagement(response) = only(&outputs) else { panic!() };
    assert_eq!(response.numbers.stat_sn.0, STAT_SN);
    assert_eq!(response.numbers.exp_cmd_sn.0, CMD_SN + 1);
    let command = driver.command();
    assert_eq!(command.cmd_sn.0, CMD_SN + 1);
    let task = driver.start(command);
    assert_eq!(scsi(&driver.complete(task, good())).numbers.stat_sn.0, STAT_SN + 1);
}

#[test]
fn a_numbered_function_takes_a_place_in_the_window() {
    let mut driver = Setup::new().depth(2).start();
    let mut request = driver.management(LOGICAL_UNIT_RESET);
    request.immediate = false;
    request.cmd_sn = driver.take_cmd_sn();
    let asked = management(&driver.manage(request));
    let command = ScsiCommand { lun: LUN_1, ..driver.command() };
    driver.start(command);
    let beyond = ScsiCommand { lun: LUN_1, ..driver.command() };
    assert!(driver.send(beyond).is_empty());
    let outputs = carry_out(&mut driver, asked);
    let Response::TaskManagement(response) = only(&outputs) else { panic!() };
    assert_eq!(response.numbers.max_cmd_sn.0, CMD_SN + 2);
}

#[test]
fn there_is_a_bound_on_immediate_functions() {
    let mut driver = Setup::new().start();
    for n in 0..20 {
        let request = driver.management(LOGICAL_UNIT_RESET);
        let outputs = driver.manage(request);
        if n < 8 {
            assert!(has_management(&outputs));
        } else {
            assert_eq!(reject(&outputs), 6);
        }
    }
}

/// Covers: TMF-04.
#[test]
fn the_scsi_side_may_miss_tasks() {
    for function in [ABORT_TASK, ABORT_TASK_SET, CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
        let mut driver = Setup::new().start();
        let commands = [(); 3].map(|()| driver.command());
        let tasks = commands.map(|command| driver.start(command));
        let (request, tasks) = match function {
            ABORT_TASK => (abort_of(&mut driver, &commands[1]), &tasks[1..2]),
            _ => (driver.management(function), &tasks[..]),
        };
        let asked = management(&driver.manage(request));
        driver.session.task_management_done(asked.id, ServiceResponse::Complete);
        let outputs = driver.drain();
        for &task in tasks {
            assert!(released(&outputs, task), "no response of a covered task may follow");
            assert!(driver.complete(task, good()).is_empty());
        }
        assert_eq!(managed(&outputs), 0, "function {function}");
    }
}
