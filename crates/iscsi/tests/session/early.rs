// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unsolicited data that comes before the SCSI side has asked for any.

use super::driver::*;
use iscsi::datamover::{DataError, Immediate, TaskId};
use iscsi::target_role::{BufferNeed, ConnectionId, Output, Room};
use wire::iscsi::{Itt, TaskManagementRequest};

/// The task of the first command.
const FIRST: TaskId = TaskId { index: 0, generation: 0 };

/// The bursts for which a buffer was asked for ahead of the SCSI side.
fn reserved(outputs: &[Output]) -> Vec<(u32, bool)> {
    let of = |output: &Output| match output {
        Output::Reserve { length, staged, .. } => Some((*length, staged.is_some())),
        _ => None,
    };
    outputs.iter().filter_map(of).collect()
}

#[test]
fn data_without_room_cannot_be_asked_for() {
    let mut driver = Setup::new().start();
    driver.room = Room::None;
    let command = driver.write_more(4096);
    let outputs = driver.send(command);
    assert_eq!(reserved(&outputs), [(4096, false)], "nobody asked in time");
    assert_eq!(expected(&outputs), [(0, 4096, true)]);
    let task = driver.commands[0].task;
    let outputs = driver.receive(task, 4096);
    assert!(dropped(&outputs, task));
    assert_eq!(scsi(&driver.done(task, 0, 4096)).status, 0x28);
}

#[test]
fn announced_data_behind_a_hole_without_room_is_dropped() {
    let mut driver = Setup::new().start();
    driver.room = Room::None;
    let missing = driver.command();
    let command = driver.write_more(4096);
    let outputs = driver.send(command);
    assert_eq!(expected(&outputs), [(0, 4096, true)]);
    let task = FIRST;
    driver.done(task, 0, 4096);
    driver.send(missing);
    assert_eq!(driver.commands.len(), 2);
    assert!(driver.commands[1].exhausted);
    let task = driver.commands[1].task;
    assert_eq!(scsi(&driver.complete(task, status(0x28))).status, 0x28);
}

#[test]
fn announced_data_that_nobody_has_asked_for_is_kept() {
    for (immediate, more) in [(0, 0), (512, 0), (512, 1024)] {
        let mut driver = Setup::new().keys(|keys| keys.first_burst_length = 4096).start();
        let command = driver.write_more(4096 + more);
        let staged = if immediate > 0 { driver.staged(512, 8192) } else { Immediate::None };
        let outputs = driver.send_with(command, staged);
        // The SCSI side has the immediate data.
        assert_eq!(reserved(&outputs), [(4096, false)]);
        assert_eq!(expected(&outputs), [(immediate, 4096 - immediate, false)]);
        let task = driver.commands[0].task;
        driver.done(task, immediate, 4096 - immediate);
        let need = driver.session.buffer_need(task, 4096 + more);
        assert_eq!(need, BufferNeed { length: 4096 + more, is_reserved: true });
        let outputs = driver.receive(task, 4096 + more);
        assert_eq!(received(&outputs, task), more == 0);
        assert_eq!(asked(&outputs), if more == 0 { vec![] } else { vec![(4096, more)] });
    }
}

#[test]
fn announced_data_behind_a_hole_is_kept() {
    for immediate in [0, 512] {
        let mut driver = Setup::new().start();
        let missing = driver.command();
        let command = driver.write_more(4096);
        let staged = if immediate > 0 { driver.staged(512, 4096) } else { Immediate::None };
        let outputs = driver.send_with(command, staged);
        assert_eq!(reserved(&outputs), [(4096, immediate > 0)]);
        assert_eq!(expected(&outputs), [(immediate, 4096 - immediate, false)]);
        let task = FIRST;
        driver.done(task, immediate, 4096 - immediate);
        driver.send(missing);
        let told = &driver.commands[1];
        assert!(told.task == task && !told.exhausted && told.immediate.is_none());
        assert!(received(&driver.receive(task, 4096), task));
        assert_eq!(scsi(&driver.complete(task, good())).status, 0);
    }
}

#[test]
fn a_burst_that_fails_behind_a_hole_fails_its_command() {
    let table = [(DataError::Amount, (0x0c, 0x0d)), (DataError::Digest, (0x47, 0x05))];
    for (error, (code, qualifier)) in table {
        let mut driver = Setup::new().start();
        let missing = driver.command();
        let command = driver.write_more(4096);
        driver.send(command);
        let task = FIRST;
        assert!(responses(&driver.failed(task, error)).is_empty(), "not before its turn");
        let outputs = driver.send(missing);
        assert_eq!(driver.commands.len(), 1, "the SCSI side never hears of it");
        assert_eq!(scsi(&outputs).itt, command.itt);
        assert_eq!(sense(&outputs), (0x0b, code, qualifier));
    }
}

#[test]
fn data_that_may_not_come_behind_a_hole_gets_no_buffer() {
    let mut driver = Setup::new().keys(|keys| keys.initial_r2t = true).start();
    let missing = driver.command();
    let command = driver.write_more(4096);
    let outputs = driver.send(command);
    assert!(reserved(&outputs).is_empty());
    assert_eq!(expected(&outputs), [(0, 4096, true)]);
    let task = FIRST;
    driver.done(task, 0, 4096);
    let outputs = driver.send(missing);
    assert_eq!(sense(&outputs), (0x0b, 0x0c, 0x0c));
}

/// Above ErrorRecoveryLevel 0 what was lost is asked for when it is the command's turn.
#[test]
fn a_burst_that_is_lost_behind_a_hole_is_asked_for_again() {
    let mut driver = Setup::new().keys(|keys| keys.error_recovery_level = 1).start();
    let missing = driver.command();
    let command = driver.write_more(4096);
    driver.send(command);
    assert!(asked(&driver.failed(FIRST, DataError::Digest)).is_empty(), "nobody wants it yet");
    driver.send(missing);
    assert_eq!(asked(&driver.receive(FIRST, 4096)), [(0, 4096)]);
    assert!(received(&driver.done(FIRST, 0, 4096), FIRST));
}

/// An empty burst that is lost leaves nothing to ask for.
#[test]
fn a_lost_burst_of_no_bytes_is_no_loss() {
    let keys = |keys: &mut iscsi::target_role::Parameters| {
        keys.error_recovery_level = 1;
        keys.first_burst_length = 512;
    };
    let mut driver = Setup::new().keys(keys).start();
    let (command, staged) = (driver.write_more(512), driver.staged(512, 512));
    let (task, outputs) = driver.start_write(command, staged, 512);
    assert_eq!(expected(&outputs), [(512, 0, false)]);
    let outputs = driver.failed(task, DataError::Sequence);
    assert!(asked(&outputs).is_empty() && received(&outputs, task));
}

fn detached(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Detach { task: FIRST, .. }))
}

/// Its connection is lost before the SCSI side has asked: what came stays, what did not come is
/// asked for over the next connection.
#[test]
fn early_data_outlives_its_connection() {
    for (immediate, came) in [(0, false), (512, false), (0, true), (512, true)] {
        let setup = Setup::new().keys(|keys| {
            keys.error_recovery_level = 2;
            keys.max_connections = 2;
            keys.time2retain = 10;
            keys.first_burst_length = 2048;
        });
        let mut driver = setup.start();
        let (other, _) = driver.join(8, 900);
        let command = driver.write_more(4096);
        let staged = if immediate > 0 { driver.staged(512, 4096) } else { Immediate::None };
        driver.send_with(command, staged);
        if came {
            driver.done(FIRST, immediate, 2048 - immediate);
        }
        assert!(detached(&driver.lose(OWN)), "the buffer waits for the next connection");
        assert!(!driver.session.buffer_need(FIRST, 4096).is_reserved);
        reassign(&mut driver, other, command.itt);
        let mut outputs = driver.receive(FIRST, 4096);
        let mut wanted = vec![(2048, 2048)];
        if !came {
            wanted.insert(0, (immediate, 2048 - immediate));
        }
        for (offset, length) in wanted {
            assert_eq!(asked(&outputs), [(offset, length)]);
            outputs = driver.done(FIRST, offset, length);
        }
        assert!(received(&outputs, FIRST));
    }
}

fn reassign(driver: &mut Driver, to: ConnectionId, itt: Itt) {
    driver.on(to);
    let logout = driver.logout(2);
    driver.log_out(logout);
    let request = driver.management(8);
    let outputs = driver.manage(TaskManagementRequest { referenced_task: itt, ..request });
    assert_eq!(managed(&outputs), 0);
}
