// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recovery over RDMA, where nothing is lost on a connection (RFC 7145 §7.3.3, §7.3.11, §10.2).

use super::driver::*;
use iscsi::datamover::{DataError, Immediate, NumberedGet, NumberedPut, Op};
use iscsi::target_role::{ConnectionId, Output};
use wire::iscsi::{Itt, LunField, Request, Response, Snack, StatSn, TaskManagementRequest};

fn level(level: u8) -> Setup {
    Setup::over_rdma().keys(|keys| {
        keys.error_recovery_level = level;
        keys.max_connections = 2;
        keys.time2retain = 10;
        keys.max_burst_length = 1024;
        keys.first_burst_length = 1024;
        keys.initial_r2t = false;
    })
}

fn puts(outputs: &[Output]) -> Vec<&NumberedPut> {
    let put = |output| match output {
        &Output::Op(_, Op::PutNumbered(ref put)) => Some(&**put),
        _ => None,
    };
    outputs.iter().filter_map(put).collect()
}

fn gets(outputs: &[Output]) -> Vec<(ConnectionId, NumberedGet)> {
    let get = |output: &_| match output {
        Output::Op(at, Op::GetNumbered(get)) => Some((*at, *get)),
        _ => None,
    };
    outputs.iter().filter_map(get).collect()
}

/// Each kind of SNACK is refused as no initiator over RDMA sends it, and asks for nothing.
fn refuses_snacks(driver: &mut Driver, itt: Itt) {
    for (kind, itt, tag) in
        [(0, itt, u32::MAX), (1, Itt::NONE, u32::MAX), (2, Itt::NONE, 5), (3, itt, 5)]
    {
        let exp_stat_sn = StatSn(driver.exp_stat_sn);
        let (lun, beg_run, run_length) = (LunField::default(), 0, 0);
        let snack = Snack { kind, lun, itt, tag, exp_stat_sn, beg_run, run_length };
        let outputs = driver.request(Request::Snack(snack), &[]);
        assert_eq!((outputs.len(), reject(&outputs)), (1, 0x04), "type {kind}");
    }
}

/// What a session at level 1 does is what one at level 0 does.
///
/// Covers: ISE-06/T, ISP-08.
#[test]
fn level_1_keeps_nothing_and_asks_for_nothing_again() {
    let run = |agreed| {
        let mut driver = level(agreed).start();
        driver.silent = true;
        let read = driver.read(4096);
        let task = driver.start(read);
        let mut seen = vec![driver.complete(task, data(4096))];
        assert!(matches!(
            seen[0][..],
            [
                Output::Op(_, Op::PutData { .. }),
                Output::Op(_, Op::SendControl { .. }),
                Output::Op(_, Op::Release { .. }),
                ..
            ]
        ));
        refuses_snacks(&mut driver, read.itt);
        for error in [DataError::Sequence, DataError::Overdue] {
            let write = driver.write(4096);
            let (task, outputs) = driver.start_write(write, Immediate::None, 4096);
            let failed = driver.failed(task, error);
            assert!(dropped(&failed, task), "it ends");
            seen.extend([outputs, failed]);
        }
        format!("{seen:?}")
    };
    assert_eq!(run(0), run(1));
}

/// Covers: ISE-06/T.
#[test]
fn level_2_asks_for_nothing_on_the_connection_that_a_task_began_on() {
    let mut driver = level(2).start();
    driver.silent = true;
    let read = driver.read(4096);
    let task = driver.start(read);
    let outputs = driver.complete(task, data(4096));
    let runs = puts(&outputs);
    assert_eq!(runs.len(), 4);
    let is_silent = |put: &&NumberedPut| put.acknowledge.is_none() && put.status.is_none();
    assert!(runs.iter().all(is_silent), "no PDU would acknowledge it");
    refuses_snacks(&mut driver, read.itt);
    for error in [DataError::Sequence, DataError::Overdue] {
        let write = driver.write(4096);
        let (task, outputs) = driver.start_write(write, Immediate::None, 4096);
        assert_eq!(asked(&outputs), [(0, 1024)]);
        let outputs = driver.failed(task, error);
        assert!(dropped(&outputs, task) && asked(&outputs).is_empty());
    }
}

/// A session with a task on the first of two connections, which is lost and logged out.
fn lost(driver: &mut Driver, other: ConnectionId) {
    driver.lose(OWN);
    driver.on(other);
    driver.silent = false;
    driver.acknowledge();
    let logout = driver.logout(2);
    let outputs = driver.log_out(logout);
    assert!(matches!(only(&outputs), Response::Logout(answer) if answer.response == 0));
}

fn reassign(driver: &mut Driver, itt: Itt) -> Vec<Output> {
    let request = driver.management(8);
    driver.manage(TaskManagementRequest { referenced_task: itt, ..request })
}

/// Covers: ISE-07/T.
#[test]
fn all_data_of_a_reassigned_read_comes_with_its_status() {
    let mut driver = level(2).start();
    let (other, _) = driver.join(8, 900);
    driver.silent = true;
    let read = driver.read(4096);
    let task = driver.start(read);
    driver.complete(task, data(4096));
    lost(&mut driver, other);
    let outputs = reassign(&mut driver, read.itt);
    let said = responses(&outputs);
    assert!(matches!(said[0], Response::TaskManagement(answer) if answer.response == 0));
    let places: Vec<_> = puts(&outputs).iter().map(|put| (put.offset, put.data.len())).collect();
    assert_eq!(places, [(0, 1024), (1024, 1024), (2048, 1024), (3072, 1024)]);
    assert!(matches!(said[1], Response::Scsi(end) if end.itt == read.itt && end.status == 0));
    driver.exp_stat_sn += 2;
    assert!(ended(&driver.acknowledge(), task), "what was acknowledged is not kept");
}

/// The initiator names what came with the command no more, and all else from there on.
///
/// Covers: ISE-07/T.
#[test]
fn what_a_reassigned_write_lacks_is_fetched_with_what_was_to_come_unasked() {
    let mut driver = level(2).start();
    let (other, _) = driver.join(8, 900);
    let write = driver.write_more(4096);
    let immediate = driver.staged(512, 4096);
    let (task, outputs) = driver.start_write(write, immediate, 4096);
    assert_eq!(expected(&outputs), [(512, 512, false)]);
    let [(OWN, first)] = gets(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((first.offset, first.solicited_from), (1024, 1024), "the first that is asked for");
    let next = driver.done(task, 1024, 1024);
    let [(OWN, second)] = gets(&next)[..] else { panic!("{next:?}") };
    assert_eq!((second.offset, second.solicited_from), (2048, 1024));
    // Both the unsolicited data and the second burst are on their way.
    lost(&mut driver, other);
    let mut outputs = reassign(&mut driver, write.itt);
    let mut places = Vec::new();
    while let [(at, get)] = gets(&outputs)[..] {
        assert_eq!((at, get.solicited_from), (other, 512));
        places.push((get.offset, get.length));
        outputs = driver.done(task, get.offset, get.length);
    }
    assert_eq!(places, [(512, 512), (2048, 1024), (3072, 1024)]);
    assert!(received(&outputs, task));
}

/// Whoever ends it: the mover hears that nothing of its memory is reached any more.
#[test]
fn the_memory_of_a_task_that_ends_without_an_answer_is_given_up() {
    let mut driver = level(0).start();
    driver.silent = true;
    for write in [false, true] {
        let command = if write { driver.write(4096) } else { driver.read(4096) };
        let task = match write {
            true => driver.start_write(command, Immediate::None, 4096).0,
            false => driver.start(command),
        };
        driver.session.abort(task);
        let outputs = driver.drain();
        let is_unnamed =
            |o: &Output| matches!(o, Output::Op(_, Op::Unname { itt }) if *itt == command.itt);
        let unnamed = outputs.iter().position(is_unnamed);
        let released = outputs.iter().position(|o| matches!(o, Output::Op(_, Op::Release { .. })));
        assert!(unnamed.is_some() && unnamed < released, "{outputs:?}");
    }
}
