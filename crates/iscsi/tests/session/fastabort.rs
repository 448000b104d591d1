// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fast multi-task abort (RFC 7143 §4.2.3.4-4.2.3.5).

use super::driver::*;
use iscsi::datamover::{Immediate, Op, TaskId};
use iscsi::service::{Function, ServiceResponse};
use iscsi::target_role::{ConnectionId, Output, TaskReporting};
use wire::iscsi::{AsyncMessage, Itt, LunField, NopOut, Request, Response, ScsiCommand, Ttt};

const ABORT_TASK_SET: u8 = 2;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TASK_TERMINATION: u8 = 5;
const LUN_1: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);

fn start(reporting: TaskReporting) -> (Driver, ConnectionId) {
    let setup = Setup::new().keys(|keys| {
        keys.max_connections = 2;
        keys.task_reporting = reporting;
        keys.initial_r2t = true;
    });
    let mut driver = setup.start();
    let (second, _) = driver.join(8, 9000);
    (driver, second)
}

/// A WRITE whose data was asked for and does not come.
fn open_write(driver: &mut Driver, lun: LunField) -> TaskId {
    let command = ScsiCommand { lun, ..driver.write(4096) };
    driver.start_write(command, Immediate::None, 4096).0
}

fn events(outputs: &[Output]) -> Vec<(ConnectionId, AsyncMessage)> {
    let event = |output: &Output| match output {
        Output::Op(id, Op::SendControl { response: Response::Async(message), .. }) => {
            Some((*id, *message))
        }
        _ => None,
    };
    outputs.iter().filter_map(event).collect()
}

fn forgotten(outputs: &[Output]) -> Vec<TaskId> {
    let forget = |output: &Output| match output {
        Output::Op(_, Op::Forget { task }) => Some(*task),
        _ => None,
    };
    outputs.iter().filter_map(forget).collect()
}

/// A NOP-Out that is no ping.
fn nop(driver: &mut Driver, lun: LunField) -> Vec<Output> {
    let nop = NopOut { lun, ..driver.nop(Itt::NONE, Ttt::NONE) };
    driver.request(Request::NopOut(nop), &[])
}

/// Covers: FAB-01/T, FAB-04, FAB-07, FAB-05a.
#[test]
fn tasks_end_at_once_and_each_other_connection_hears_of_it() {
    let (mut driver, second) = start(TaskReporting::FastAbort);
    let own = open_write(&mut driver, LunField::default());
    driver.on(second);
    let (elsewhere, other_unit) =
        (open_write(&mut driver, LunField::default()), open_write(&mut driver, LUN_1));
    driver.on(OWN);
    let request = driver.management(LOGICAL_UNIT_RESET);
    // No data is waited for.
    let asked = management(&driver.manage(request));
    driver.session.terminate(&[own, elsewhere], Some(asked.id));
    let outputs = driver.drain();
    let told = events(&outputs);
    let [(id, message)] = told[..] else { panic!("one event: {outputs:?}") };
    assert_eq!((id, message.event, message.lun), (second, TASK_TERMINATION, LunField::default()));
    let zero = (message.parameter1, message.parameter2, message.parameter3);
    assert_eq!(zero, (0, 0, 0));
    assert!(outputs.iter().any(|o| matches!(o, Output::Op(_, Op::Abandon { .. }))));
    assert!(forgotten(&outputs).is_empty(), "the tags stay valid");
    driver.session.task_management_done(asked.id, ServiceResponse::Complete);
    let outputs = driver.drain();
    assert!(events(&outputs).is_empty(), "told once");
    // The event has its own StatSN, which the answer, a fenced response, waits for.
    assert!(!responses(&outputs).iter().any(|r| matches!(r, Response::TaskManagement(_))));
    driver.on(second);
    assert!(forgotten(&nop(&mut driver, LUN_1)).is_empty(), "of another unit");
    let outputs = nop(&mut driver, LunField::default());
    assert_eq!(forgotten(&outputs), [elsewhere]);
    assert!(forgotten(&nop(&mut driver, LunField::default())).is_empty(), "once");
    assert!(driver.open_burst(other_unit).is_some());
}

/// Of the own session those that did not bring the function, of another one all that have tasks.
///
/// Covers: FAB-05a, FAB-05b.
#[test]
fn every_connection_with_affected_tasks_is_told() {
    for is_own in [true, false] {
        let setup = Setup::new().keys(|keys| {
            keys.max_connections = 4;
            keys.task_reporting = TaskReporting::FastAbort;
            keys.initial_r2t = true;
        });
        let mut driver = setup.start();
        let [second, third, idle] = [8, 9, 10].map(|cid| driver.join(cid, 1000 * u32::from(cid)).0);
        let tasks = [OWN, second, third].map(|id| {
            driver.on(id);
            open_write(&mut driver, LunField::default())
        });
        driver.on(OWN);
        let issuer = is_own.then(|| {
            let request = driver.management(LOGICAL_UNIT_RESET);
            management(&driver.manage(request)).id
        });
        driver.session.terminate(&tasks, issuer);
        let told: Vec<ConnectionId> = events(&driver.drain()).iter().map(|(id, _)| *id).collect();
        let all = [OWN, second, third];
        assert_eq!(told, if is_own { &all[1..] } else { &all }, "not {idle:?}");
    }
}

/// Covers: FAB-05c.
#[test]
fn a_reset_of_the_target_is_told_for_each_unit() {
    let (mut driver, second) = start(TaskReporting::FastAbort);
    driver.on(second);
    open_write(&mut driver, LunField::default());
    open_write(&mut driver, LUN_1);
    let command = ScsiCommand { lun: LUN_1, ..driver.command() };
    driver.start(command);
    driver.on(OWN);
    let request = driver.management(TARGET_WARM_RESET);
    let asked = management(&driver.manage(request));
    assert_eq!(asked.function, Function::TargetWarmReset);
    driver.session.terminate(&[], Some(asked.id));
    let told = events(&driver.drain());
    let units: Vec<LunField> = told.iter().map(|(_, message)| message.lun).collect();
    assert_eq!(units, [LunField::default(), LUN_1]);
}

/// Covers: FAB-07, FAB-08, FAB-05b.
#[test]
fn a_session_hears_of_the_functions_of_others_if_it_agreed_to() {
    for reporting in
        [TaskReporting::FastAbort, TaskReporting::ResponseFence, TaskReporting::Rfc3720]
    {
        let mut driver = Setup::new().keys(|keys| keys.task_reporting = reporting).start();
        let task = open_write(&mut driver, LunField::default());
        driver.session.terminate(&[task], None);
        let outputs = driver.drain();
        if reporting == TaskReporting::FastAbort {
            assert!(matches!(events(&outputs)[..], [(OWN, AsyncMessage { event: 5, .. })]));
            assert_eq!(forgotten(&nop(&mut driver, LunField::default())), [task]);
        } else {
            assert!(events(&outputs).is_empty());
            assert!(forgotten(&nop(&mut driver, LunField::default())).is_empty());
        }
        assert_eq!(driver.open_bursts(task), 0);
    }
}

/// Covers: FAB-05b.
#[test]
fn a_task_without_data_of_the_initiator_is_told_of_too() {
    let setup = Setup::new().keys(|keys| keys.task_reporting = TaskReporting::FastAbort);
    let mut driver = setup.start();
    let read = driver.read(4096);
    let task = driver.start(read);
    driver.session.terminate(&[task], None);
    let outputs = driver.drain();
    assert!(matches!(events(&outputs)[..], [(OWN, AsyncMessage { event: 5, .. })]));
}

/// Covers: FAB-08, KEY-37/T.
#[test]
fn without_fast_abort_the_data_is_waited_for() {
    for reporting in [TaskReporting::ResponseFence, TaskReporting::Rfc3720] {
        let (mut driver, second) = start(reporting);
        driver.on(second);
        let task = open_write(&mut driver, LunField::default());
        driver.on(OWN);
        let request = driver.management(ABORT_TASK_SET);
        assert!(driver.manage(request).is_empty());
        driver.on(second);
        let asked = management(&driver.done(task, 0, 4096));
        driver.session.terminate(&[task], Some(asked.id));
        assert!(events(&driver.drain()).is_empty());
    }
}

#[test]
fn an_acknowledgement_by_another_pdu_confirms_nothing() {
    let mut driver =
        Setup::new().keys(|keys| keys.task_reporting = TaskReporting::FastAbort).start();
    let task = open_write(&mut driver, LunField::default());
    driver.session.terminate(&[task], None);
    driver.drain();
    let command = driver.command();
    assert!(forgotten(&driver.send(command)).is_empty());
    driver.silent = true;
    driver.exp_stat_sn = STAT_SN;
    assert!(forgotten(&nop(&mut driver, LunField::default())).is_empty(), "it has not seen it");
    driver.exp_stat_sn = STAT_SN + 1;
    assert_eq!(forgotten(&nop(&mut driver, LunField::default())), [task]);
}

#[test]
fn what_nobody_confirms_is_bounded() {
    let mut driver =
        Setup::new().keys(|keys| keys.task_reporting = TaskReporting::FastAbort).start();
    driver.silent = true;
    let first = open_write(&mut driver, LunField::default());
    driver.session.terminate(&[first], None);
    driver.drain();
    let mut given_up = Vec::new();
    for _ in 0..256 {
        let task = open_write(&mut driver, LunField::default());
        driver.session.terminate(&[task], None);
        given_up.extend(forgotten(&driver.drain()));
    }
    assert_eq!(given_up, [first]);
}

/// Where TAS says that each task of another nexus is answered.
///
/// Covers: FAB-05b.
#[test]
fn tasks_may_end_with_a_status() {
    const TASK_ABORTED: u8 = 0x40;
    for reporting in [TaskReporting::FastAbort, TaskReporting::Rfc3720] {
        let mut driver = Setup::new().keys(|keys| keys.task_reporting = reporting).start();
        let task = open_write(&mut driver, LunField::default());
        driver.session.terminate_with(&[task], TASK_ABORTED);
        let mut outputs = driver.drain();
        if reporting == TaskReporting::FastAbort {
            assert!(matches!(events(&outputs)[..], [(OWN, AsyncMessage { event: 5, .. })]));
            assert_eq!(forgotten(&nop(&mut driver, LunField::default())), [task]);
        } else {
            assert!(responses(&outputs).is_empty(), "not while data is on its way");
            outputs = driver.done(task, 0, 4096);
        }
        let aborted = |r: &Response| matches!(r, Response::Scsi(r) if r.status == TASK_ABORTED);
        assert_eq!(responses(&outputs).iter().filter(|r| aborted(r)).count(), 1);
    }
}
