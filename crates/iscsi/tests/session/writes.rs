// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Immediate, unsolicited and solicited write data.

use super::driver::*;
use iscsi::datamover::{DataError, Immediate};
use wire::iscsi::{LunField, Residual, ScsiCommand};

const FIRST: u32 = 65536;

#[test]
fn a_write_with_all_data_immediate_needs_no_pdu() {
    let mut driver = Setup::new().start();
    let (command, staged) = (driver.write(4096), driver.staged(4096, 4096));
    let (task, outputs) = driver.start_write(command, staged, 4096);
    assert!(driver.commands[0].immediate.as_ref().is_some_and(|(_, length)| *length == 4096));
    assert!(received(&outputs, task));
    assert!(asked(&outputs).is_empty());
    let outputs = driver.complete(task, presented(4096));
    assert_eq!(scsi(&outputs).residual, Residual::None);
    assert!(ended(&outputs, task));
}

fn presented(bytes: u64) -> iscsi::service::Completion {
    iscsi::service::Completion { presented: bytes, ..good() }
}

/// Covers: R2T-05.
#[test]
fn a_write_of_300000_bytes_with_immediate_and_unsolicited_data() {
    let mut driver = Setup::new().start();
    let (command, staged) = (driver.write_more(300_000), driver.staged(32768, 300_000));
    let (task, outputs) = driver.start_write(command, staged, 300_000);
    assert_eq!(expected(&outputs), [(32768, 32768, false)]);
    assert_eq!(asked(&outputs), [(FIRST, 234_464)]);
    let outputs = driver.done(task, 32768, 32768);
    assert!(!received(&outputs, task) && asked(&outputs).is_empty());
    let outputs = driver.done(task, FIRST, 234_464);
    assert!(received(&outputs, task));
    assert_eq!(scsi(&driver.complete(task, presented(300_000))).status, 0);
}

#[test]
fn the_same_write_with_initial_r2t() {
    let mut driver = Setup::new().keys(|keys| keys.initial_r2t = true).start();
    let (command, staged) = (driver.write(300_000), driver.staged(32768, 300_000));
    let (task, outputs) = driver.start_write(command, staged, 300_000);
    assert_eq!(asked(&outputs), [(32768, 262_144)]);
    assert_eq!(asked(&driver.done(task, 32768, 262_144)), [(294_912, 5088)]);
    assert!(received(&driver.done(task, 294_912, 5088), task));
}

#[test]
fn the_same_write_with_solicited_data_only() {
    let setup = Setup::new().keys(|keys| {
        keys.initial_r2t = true;
        keys.immediate_data = false;
    });
    let mut driver = setup.start();
    let command = driver.write(300_000);
    let (task, outputs) = driver.start_write(command, Immediate::None, 300_000);
    assert_eq!(asked(&outputs), [(0, 262_144)]);
    assert_eq!(asked(&driver.done(task, 0, 262_144)), [(262_144, 37_856)]);
    assert!(received(&driver.done(task, 262_144, 37_856), task));
}

#[test]
fn the_same_write_with_immediate_data_only() {
    let mut driver = Setup::new().start();
    let (command, staged) = (driver.write(300_000), driver.staged(32768, 300_000));
    let (task, outputs) = driver.start_write(command, staged, 300_000);
    assert_eq!(asked(&outputs), [(32768, 262_144)]);
    assert_eq!(asked(&driver.done(task, 32768, 262_144)), [(294_912, 5088)]);
}

/// The SCSI side may want more than the initiator has, or nothing.
///
/// Covers: R2T-01.
#[test]
fn no_r2t_asks_for_nothing_or_for_what_there_is_not() {
    for (wanted, bursts) in [(4096, &[(0, 1024), (1024, 512)][..]), (1024, &[(0, 1024)]), (0, &[])]
    {
        let setup = Setup::new().keys(|keys| {
            keys.max_outstanding_r2t = 4;
            keys.max_burst_length = 1024;
        });
        let mut driver = setup.start();
        let command = driver.write(1536);
        let (task, outputs) = driver.start_write(command, Immediate::None, wanted);
        assert_eq!(asked(&outputs), bursts, "{wanted} bytes");
        let mut last = outputs;
        for (offset, length) in bursts {
            last = driver.done(task, *offset, *length);
        }
        assert!(received(&last, task) && asked(&last).is_empty(), "{wanted} bytes");
    }
}

/// Covers: R2T-01, R2T-03, R2T-04, R2T-08, KEY-28a/T, KEY-42a, ISP-25, ISP-26.
#[test]
fn as_many_r2ts_are_open_as_was_negotiated() {
    // A burst ends where it was negotiated, at any byte.
    for (open_max, length_max, over_rdma) in [
        (1_u16, 512, false),
        (4, 512, false),
        (1, 1001, false),
        (4, 1001, false),
        (1, 1001, true),
        (4, 512, true),
    ] {
        let setup = if over_rdma { Setup::over_rdma() } else { Setup::new() };
        let setup = setup.keys(|keys| {
            keys.max_outstanding_r2t = open_max;
            keys.max_burst_length = length_max;
        });
        let mut driver = setup.start();
        let command = driver.write(length_max * 10);
        let (task, outputs) = driver.start_write(command, Immediate::None, length_max * 10);
        assert_eq!(asked(&outputs).len(), usize::from(open_max));
        for burst in 0..10 {
            let open = driver.open_bursts(task);
            assert_eq!(open, usize::from(open_max).min(10 - burst));
            let (offset, length) = driver.open_burst(task).unwrap();
            assert_eq!((offset, length), (length_max * burst as u32, length_max));
            let outputs = driver.done(task, offset, length);
            assert_eq!(received(&outputs, task), burst == 9);
        }
    }
}

/// Covers: KEY-28a/T.
#[test]
fn each_task_has_r2ts_of_its_own() {
    let setup = Setup::new().keys(|keys| {
        keys.max_outstanding_r2t = 2;
        keys.max_burst_length = 512;
    });
    let mut driver = setup.start();
    let tasks = [(); 2].map(|()| {
        let command = driver.write(512 * 5);
        driver.start_write(command, Immediate::None, 512 * 5).0
    });
    assert_eq!(tasks.map(|task| driver.open_bursts(task)), [2, 2]);
}

#[test]
fn bursts_may_end_in_any_order() {
    let setup = Setup::new().keys(|keys| {
        keys.max_outstanding_r2t = 3;
        keys.max_burst_length = 1000;
    });
    let mut driver = setup.start();
    let command = driver.write(3000);
    let (task, _) = driver.start_write(command, Immediate::None, 3000);
    assert!(!received(&driver.done(task, 2000, 1000), task));
    assert!(!received(&driver.done(task, 0, 1000), task));
    assert!(received(&driver.done(task, 1000, 1000), task));
}

/// Covers: SCC-16/T.
#[test]
fn every_combination_around_every_limit() {
    for (initial_r2t, immediate_data) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        for length in [1, FIRST - 1, FIRST, FIRST + 1, 262_143, 262_144, 262_145, 600_000] {
            let setup = Setup::new().keys(|keys| {
                keys.initial_r2t = initial_r2t;
                keys.immediate_data = immediate_data;
            });
            let mut driver = setup.start();
            let immediate = if immediate_data { length.min(32768) } else { 0 };
            let first = if initial_r2t { immediate } else { length.min(FIRST) };
            let command = ScsiCommand { final_: first == immediate, ..driver.write(length) };
            let staged =
                if immediate > 0 { driver.staged(immediate, length) } else { Immediate::None };
            let (task, outputs) = driver.start_write(command, staged, length);
            let mut told = received(&outputs, task);
            let mut next = immediate;
            while let Some((offset, burst)) = driver.open_burst(task) {
                assert_eq!(offset, next, "{initial_r2t} {immediate_data} {length}");
                next += burst;
                told = received(&driver.done(task, offset, burst), task);
            }
            assert!(told && next == length, "{initial_r2t} {immediate_data} {length}");
            assert_eq!(scsi(&driver.complete(task, presented(u64::from(length)))).status, 0);
        }
    }
}

/// Covers: SCC-14.
#[test]
fn parameter_data_may_be_immediate() {
    let mut driver = Setup::new().start();
    let (mut command, staged) = (driver.write(24), driver.staged(24, 24));
    command.cdb.bytes[0] = 0x55;
    let (task, outputs) = driver.start_write(command, staged, 24);
    assert!(received(&outputs, task));
}

/// Covers: SCC-09, KEY-17.
#[test]
fn immediate_data_against_the_keys() {
    let mut driver = Setup::new().keys(|keys| keys.immediate_data = false).start();
    let (command, staged) = (driver.write(512), driver.staged(512, 512));
    let outputs = driver.send_with(command, staged);
    assert_eq!(sense(&outputs), (0x0b, 0x0c, 0x0c));
    assert!(driver.commands.is_empty(), "the SCSI side never hears of it");
}

/// Covers: KEY-17.
#[test]
fn announced_data_against_the_keys_is_waited_for() {
    let mut driver = Setup::new().keys(|keys| keys.initial_r2t = true).start();
    let command = driver.write_more(4096);
    let outputs = driver.send(command);
    assert_eq!(expected(&outputs), [(0, 4096, true)]);
    assert!(responses(&outputs).is_empty());
    driver.releases = false;
    let task = task_of(&driver);
    assert_eq!(sense(&driver.done(task, 0, 4096)), (0x0b, 0x0c, 0x0c));
}

/// The first task of a session.
fn task_of(_: &Driver) -> iscsi::datamover::TaskId {
    iscsi::datamover::TaskId { index: 0, generation: 0 }
}

#[test]
fn immediate_data_with_a_read_is_unexpected() {
    let mut driver = Setup::new().start();
    let (command, staged) = (driver.read(512), driver.staged(512, 512));
    assert_eq!(sense(&driver.send_with(command, staged)), (0x0b, 0x0c, 0x0c));
}

#[test]
fn more_immediate_data_than_the_command_has() {
    let mut driver = Setup::new().start();
    let (command, staged) = (driver.write(512), driver.staged(1024, 1024));
    assert_eq!(sense(&driver.send_with(command, staged)), (0x0b, 0x0c, 0x0d));
    let mut driver = Setup::new().keys(|keys| keys.first_burst_length = 512).start();
    let (command, staged) = (driver.write(4096), driver.staged(1024, 4096));
    assert_eq!(sense(&driver.send_with(command, staged)), (0x0b, 0x0c, 0x0d));
}

/// Covers: SCC-08.
#[test]
fn a_short_unsolicited_burst_fails_the_command() {
    let mut driver = Setup::new().start();
    let command = driver.write_more(FIRST);
    let (task, outputs) = driver.start_write(command, Immediate::None, FIRST);
    assert_eq!(expected(&outputs), [(0, FIRST, false)]);
    let outputs = driver.failed(task, DataError::Amount);
    assert_eq!(sense(&outputs), (0x0b, 0x0c, 0x0d));
    assert!(dropped(&outputs, task) && ended(&outputs, task));
}

/// Covers: DOU-08, DSN-08.
#[test]
fn a_solicited_burst_that_fails() {
    let table = [
        (DataError::Amount, (0x0b, 0x0c, 0x0d)),
        (DataError::Digest, (0x0b, 0x47, 0x05)),
        (DataError::Sequence, (0x0b, 0x47, 0x05)),
    ];
    for (error, code) in table {
        let mut driver = Setup::new().start();
        let command = driver.write(4096);
        let (task, _) = driver.start_write(command, Immediate::None, 4096);
        let outputs = driver.failed(task, error);
        assert!(dropped(&outputs, task));
        assert_eq!(sense(&outputs), code);
    }
}

/// Covers: REJ-02, REJ-03, DGT-06.
#[test]
fn a_failed_command_is_answered_after_the_last_f() {
    let setup = Setup::new().keys(|keys| {
        keys.max_outstanding_r2t = 2;
        keys.max_burst_length = 1024;
    });
    let mut driver = setup.start();
    let command = driver.write(4096);
    let (task, outputs) = driver.start_write(command, Immediate::None, 4096);
    assert_eq!(asked(&outputs), [(0, 1024), (1024, 1024)]);
    assert_eq!(reject(&driver.event(iscsi::datamover::Event::DigestError, &[])), 2);
    let outputs = driver.failed(task, DataError::Digest);
    assert!(dropped(&outputs, task));
    assert!(responses(&outputs).is_empty() && asked(&outputs).is_empty());
    assert!(driver.complete(task, good()).is_empty(), "the SCSI side has no say any more");
    let outputs = driver.done(task, 1024, 1024);
    assert_eq!(sense(&outputs), (0x0b, 0x47, 0x05));
}

/// Covers: SRS-10.
#[test]
fn a_status_waits_for_data_on_its_way() {
    let mut driver = Setup::new().start();
    driver.answer = Box::new(|_| Answer::Complete(status(CHECK_CONDITION)));
    let command = driver.write_more(4096);
    let outputs = driver.send(command);
    assert_eq!(expected(&outputs), [(0, 4096, true)]);
    assert!(responses(&outputs).is_empty());
    let task = driver.commands[0].task;
    assert_eq!(scsi(&driver.done(task, 0, 4096)).status, CHECK_CONDITION);
}

#[test]
fn a_status_waits_for_open_r2ts_and_no_more_are_sent() {
    let setup = Setup::new().keys(|keys| {
        keys.max_outstanding_r2t = 2;
        keys.max_burst_length = 1024;
    });
    let mut driver = setup.start();
    let command = driver.write(8192);
    let (task, _) = driver.start_write(command, Immediate::None, 8192);
    assert!(driver.complete(task, status(8)).is_empty());
    let outputs = driver.done(task, 0, 1024);
    assert!(asked(&outputs).is_empty() && responses(&outputs).is_empty());
    assert_eq!(scsi(&driver.failed(task, DataError::Amount)).status, 8);
}

#[test]
fn residuals_of_writes() {
    let table = [(8192, 4096, Residual::Underflow(4096)), (2048, 4096, Residual::Overflow(2048))];
    for (length, taken, residual) in table {
        let mut driver = Setup::new().start();
        let command = driver.write(length);
        let (task, outputs) = driver.start_write(command, Immediate::None, taken);
        let (offset, asked) = asked(&outputs)[0];
        assert_eq!(asked, length.min(taken), "never more than the initiator has");
        assert!(received(&driver.done(task, offset, asked), task));
        let outputs = driver.complete(task, presented(u64::from(taken)));
        assert_eq!(scsi(&outputs).residual, residual);
    }
}

#[test]
fn a_command_without_immediate_buffer_is_told_so() {
    let mut driver = Setup::new().start();
    let command = driver.write(512);
    driver.send_with(command, Immediate::Exhausted { length: 512 });
    let told = &driver.commands[0];
    assert!(told.exhausted && told.immediate.is_none());
    let task = told.task;
    assert_eq!(scsi(&driver.complete(task, status(0x28))).status, 0x28);
}

#[test]
fn a_held_command_keeps_its_immediate_data() {
    let mut driver = Setup::new().start();
    let missing = driver.command();
    let (command, staged) = (driver.write(512), driver.staged(512, 512));
    driver.send_with(command, staged);
    assert!(driver.commands.is_empty());
    driver.answer = Box::new(|command| match command.expected_out {
        0 => Answer::Later,
        length => Answer::Receive(length),
    });
    let outputs = driver.send(missing);
    let task = driver.commands[1].task;
    assert!(received(&outputs, task));
}

/// Covers: DIN-14/T.
#[test]
fn a_burst_of_no_bytes_is_taken() {
    let mut driver = Setup::new().keys(|keys| keys.first_burst_length = 512).start();
    let (command, staged) = (driver.write_more(1024), driver.staged(512, 1024));
    let (task, outputs) = driver.start_write(command, staged, 1024);
    assert_eq!(expected(&outputs), [(512, 0, false)]);
    driver.done(task, 512, 0);
    assert!(received(&driver.done(task, 512, 512), task));
}

#[test]
fn a_write_of_no_bytes_is_taken() {
    let mut driver = Setup::new().start();
    let command = driver.write(0);
    let (task, outputs) = driver.start_write(command, Immediate::None, 0);
    assert!(received(&outputs, task));
    assert_eq!(scsi(&driver.complete(task, good())).residual, Residual::None);
}

#[test]
fn an_r2t_carries_the_commands_names() {
    let mut driver = Setup::new().start();
    let lun = LunField([0, 3, 0, 0, 0, 0, 0, 0]);
    let command = ScsiCommand { lun, ..driver.write(512) };
    let (_, outputs) = driver.start_write(command, Immediate::None, 512);
    let named = outputs.iter().any(|output| {
        use iscsi::{datamover::Op, target_role::Output};
        matches!(output, Output::Op(_, Op::GetData { itt, lun: at, .. })
            if *itt == command.itt && *at == lun)
    });
    assert!(named);
}

#[test]
fn a_buffer_has_room_for_what_comes_unasked() {
    let mut driver = Setup::new().start();
    let command = driver.write_more(8192);
    driver.answer = Box::new(|_| Answer::Receive(4096));
    driver.send(command);
    let task = driver.commands[0].task;
    assert_eq!(driver.session.buffer_need(task, 4096).length, 8192);
    assert!(received(&driver.done(task, 0, 8192), task));
    assert_eq!(scsi(&driver.complete(task, presented(4096))).residual, Residual::Underflow(4096));
    assert_eq!(driver.session.buffer_need(task, 4096).length, 0);
    let command = driver.write(8192);
    driver.answer = Box::new(|_| Answer::Later);
    let task = driver.start(command);
    assert_eq!(driver.session.buffer_need(task, 4096).length, 4096);
    assert_eq!(driver.session.buffer_need(task, 16384).length, 8192);
}
