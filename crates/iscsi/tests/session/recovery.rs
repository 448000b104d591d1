// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ErrorRecoveryLevel 1: what is a matter of time or of bounds (RFC 7143 §7.1.4, §7.8).

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{DataError, Event, Immediate, Op};
use iscsi::target::Output;
use wire::iscsi::{Itt, NopOut, Request, Response, StatSn, Ttt};

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

#[test]
fn a_window_of_unacknowledged_commands_closes() {
    let mut driver = recovering();
    driver.silent = true;
    let mut taken = 0;
    while driver.max_cmd_sn().wrapping_sub(driver.cmd_sn) < 1 << 31 && taken < 100 {
        let command = driver.command();
        let task = driver.start(command);
        driver.complete(task, good());
        taken += 1;
    }
    assert_eq!(taken, 16, "twice the depth");
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
