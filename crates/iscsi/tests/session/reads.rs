// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data-In bursts, status, residuals.

use super::driver::*;
use iscsi::datamover::{Capabilities, Op};
use iscsi::service::Completion;
use iscsi::target_role::Output;
use wire::iscsi::{CollapsedStatus, Residual, ScsiCommand};

/// Offset, length and status of Data-In bursts.
fn put(outputs: &[Output]) -> Vec<(u32, usize, Option<CollapsedStatus>)> {
    let mut bursts = Vec::new();
    for output in outputs {
        let Output::Op(_, Op::PutData { offset, data, burst, status, .. }) = output else {
            continue;
        };
        assert_eq!(*offset, 0, "one operation for all");
        let total = u32::try_from(data.len()).unwrap();
        for at in (0..total).step_by(*burst as usize) {
            let end = total.min(at + burst);
            bursts.push((at, (end - at) as usize, status.filter(|_| end == total)));
        }
    }
    bursts
}

const GOOD: CollapsedStatus = CollapsedStatus { status: 0, residual: Residual::None };

#[test]
fn an_inquiry_is_answered_by_one_burst_with_status() {
    let mut driver = Setup::new().start();
    let command = driver.read(36);
    let task = driver.start(command);
    assert_eq!(driver.commands[0].expected_in, 36);
    assert_eq!(driver.commands[0].expected_out, 0);
    let outputs = driver.complete(task, data(36));
    assert_eq!(put(&outputs), [(0, 36, Some(GOOD))]);
    assert!(responses(&outputs).is_empty());
    let ops: Vec<&Output> = outputs.iter().collect();
    assert!(matches!(ops[1], Output::Op(_, Op::Release { .. })));
    assert!(ended(&outputs, task));
}

#[test]
fn status_travels_alone_where_the_mover_cannot_collapse_it() {
    let capabilities = Capabilities { collapses_status: false, ..Capabilities::STREAM };
    for level in [0, 1] {
        let setup = Setup::new().keys(|keys| keys.error_recovery_level = level);
        let mut driver = Setup { capabilities, ..setup }.start();
        let command = driver.read(512);
        let task = driver.start(command);
        let outputs = driver.complete(task, data(512));
        let collapsed = outputs.iter().any(|output| match output {
            Output::Op(_, Op::PutData { status, .. }) => status.is_some(),
            Output::Op(_, Op::PutNumbered(put)) => put.status.is_some(),
            _ => false,
        });
        assert!(!collapsed);
        assert_eq!(scsi(&outputs).status, 0);
    }
}

/// Covers: DIN-01.
#[test]
fn a_read_of_300000_bytes_is_two_bursts() {
    let mut driver = Setup::new().start();
    let command = driver.read(300_000);
    let task = driver.start(command);
    let outputs = driver.complete(task, data(300_000));
    assert_eq!(put(&outputs), [(0, 262_144, None), (262_144, 37_856, Some(GOOD))]);
}

/// What an initiator can make us queue for a read does not grow with the smallness of its bursts.
#[test]
fn small_bursts_cost_no_more_operations() {
    for (level, operations) in [(0, 1), (1, 64)] {
        let setup = Setup::new().keys(|keys| {
            keys.max_burst_length = 512;
            keys.error_recovery_level = level;
        });
        let mut driver = setup.start();
        let command = driver.read(4 << 20);
        let task = driver.start(command);
        let outputs = driver.complete(task, data(4 << 20));
        let puts = outputs.iter().filter(|output| {
            matches!(output, Output::Op(_, Op::PutData { .. } | Op::PutNumbered(_)))
        });
        assert_eq!(puts.count(), operations, "level {level}");
    }
}

/// Covers: SRS-08, DIN-03b.
#[test]
fn bad_status_never_travels_with_data() {
    let mut driver = Setup::new().start();
    let command = driver.read(4096);
    let task = driver.start(command);
    let sense = vec![0x70, 0, 3, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0];
    let failure = Completion { status: CHECK_CONDITION, sense: sense.clone(), ..data(512) };
    let outputs = driver.complete(task, failure);
    assert_eq!(put(&outputs), [(0, 512, None)]);
    let response = scsi(&outputs);
    assert_eq!((response.status, response.residual), (2, Residual::Underflow(3584)));
    assert_eq!(segment(&outputs)[..2], [0, 18]);
    assert_eq!(segment(&outputs)[2..], sense);
    // BUSY, RESERVATION CONFLICT, TASK SET FULL, ACA ACTIVE, TASK ABORTED; then GOOD and CONDITION
    // MET, which may.
    for (status, travels) in
        [(0x08, false), (0x18, false), (0x28, false), (0x30, false), (0x40, false)]
            .into_iter()
            .chain([(0x00, true), (0x04, true)])
    {
        let command = driver.read(512);
        let task = driver.start(command);
        let outputs = driver.complete(task, Completion { status, ..data(512) });
        let [(0, 512, with_data)] = put(&outputs)[..] else { panic!("{outputs:?}") };
        assert_eq!(with_data.map(|told| told.status), travels.then_some(status));
        assert_eq!(responses(&outputs).is_empty(), travels, "{status:#x}");
    }
}

#[test]
fn condition_met_travels_with_data_and_alone() {
    let mut driver = Setup::new().start();
    let command = driver.read(512);
    let task = driver.start(command);
    let outputs = driver.complete(task, Completion { status: 4, ..data(512) });
    assert_eq!(put(&outputs)[0].2.unwrap().status, 4);
    let command = driver.command();
    let task = driver.start(command);
    assert_eq!(scsi(&driver.complete(task, status(4))).status, 4);
}

/// Covers: SRS-01a, SRS-11, SRS-12.
#[test]
fn every_status_code_passes_unchanged() {
    let mut driver = Setup::new().start();
    for code in [0x00, 0x02, 0x04, 0x08, 0x18, 0x28, 0x30, 0x40] {
        let command = driver.command();
        let task = driver.start(command);
        let response = scsi(&driver.complete(task, status(code)));
        assert_eq!((response.response, response.status), (0, code));
        assert_eq!(response.snack_tag, 0);
    }
}

/// The residual table: expected length, bytes of the SCSI side, travelled, residual.
///
/// Covers: SRS-03, SRS-04, SRS-05, SCC-15, DIN-13/T.
#[test]
fn residuals_of_reads() {
    let table = [
        (4096, 4096, 4096, Residual::None),
        (2048, 4096, 2048, Residual::Overflow(2048)),
        (8192, 4096, 4096, Residual::Underflow(4096)),
        (36, 36, 36, Residual::None),
        (255, 96, 96, Residual::Underflow(159)),
        (16, 16, 16, Residual::None),
        (512, 0, 0, Residual::Underflow(512)),
    ];
    for (expected, presented, moved, residual) in table {
        let mut driver = Setup::new().start();
        let command = driver.read(expected);
        let task = driver.start(command);
        let completion = if presented == 0 { good() } else { data(presented) };
        let outputs = driver.complete(task, completion);
        let bursts = put(&outputs);
        assert_eq!(bursts.iter().map(|burst| burst.1).sum::<usize>(), moved);
        let told = match bursts.last() {
            Some((_, _, status)) => status.unwrap().residual,
            None => scsi(&outputs).residual,
        };
        assert_eq!(told, residual, "expected {expected}, presented {presented}");
    }
}

#[test]
fn a_failed_read_moves_nothing() {
    let mut driver = Setup::new().start();
    let command = driver.read(4096);
    let task = driver.start(command);
    let outputs = driver.complete(task, status(CHECK_CONDITION));
    assert!(put(&outputs).is_empty());
    assert_eq!(scsi(&outputs).residual, Residual::Underflow(4096));
}

#[test]
fn a_read_of_no_bytes_has_a_response() {
    let mut driver = Setup::new().start();
    let command = driver.read(0);
    let task = driver.start(command);
    let outputs = driver.complete(task, data(36));
    assert!(put(&outputs).is_empty());
    assert_eq!(scsi(&outputs).residual, Residual::Overflow(36));
}

#[test]
fn data_for_an_initiator_that_expects_to_send_stays_here() {
    let mut driver = Setup::new().start();
    let command = driver.write(512);
    let task = driver.start(command);
    let outputs = driver.complete(task, data(96));
    assert!(put(&outputs).is_empty());
    assert_eq!(scsi(&outputs).residual, Residual::Underflow(512));
}

/// Covers: SCC-12, SRS-07a, DIN-04.
#[test]
fn bidirectional_commands_are_refused_with_both_residuals() {
    let mut driver = Setup::new().start();
    let command = ScsiCommand { read: true, bidi_read_length: Some(1024), ..driver.write(512) };
    let outputs = driver.send(command);
    assert!(driver.commands.is_empty());
    assert_eq!(sense(&outputs), (5, 0x20, 0));
    let response = scsi(&outputs);
    assert_eq!(response.residual, Residual::Underflow(512));
    assert_eq!(response.bidi_read_residual, Residual::Underflow(1024));
}

#[test]
fn a_task_is_answered_once() {
    let mut driver = Setup::new().start();
    driver.releases = false;
    let command = driver.read(36);
    let task = driver.start(command);
    assert!(!driver.complete(task, data(36)).is_empty());
    assert!(driver.complete(task, data(36)).is_empty());
    assert!(driver.receive(task, 36).is_empty());
    assert!(driver.abort(task).is_empty());
    assert!(ended(&driver.released(task), task));
    assert!(driver.released(task).is_empty());
}
