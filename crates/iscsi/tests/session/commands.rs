// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command window: order, holes, duplicates, immediate commands.

use super::driver::*;
use iscsi::datamover::Immediate;
use iscsi::service::Indication;
use iscsi::target_role::Output;
use wire::iscsi::{
    Attribute, CmdSn, Itt, LunField, NopOut, Request, Response, ScsiCommand, TaskManagementRequest,
    Ttt,
};

/// Covers: CMD-05, CMD-06.
#[test]
fn commands_are_delivered_in_order() {
    let mut driver = Setup::new().start();
    let commands: Vec<ScsiCommand> = (0..4).map(|_| driver.command()).collect();
    for late in [2, 1, 3] {
        assert!(driver.send(commands[late]).is_empty());
        driver.acknowledge();
        let nop = driver.nop(Itt(late as u32), Ttt::NONE);
        driver.request(Request::NopOut(nop), &[]);
        assert_eq!(driver.exp_cmd_sn(), CMD_SN, "ExpCmdSN does not pass a hole");
    }
    driver.send(commands[0]);
    let tasks: Vec<_> = driver.commands.iter().map(|command| command.task).collect();
    assert_eq!(tasks.len(), 4);
    assert_eq!(driver.session.tasks(None), tasks);
    let order: Vec<Itt> =
        tasks.iter().map(|task| scsi(&driver.complete(*task, good())).itt).collect();
    assert_eq!(order, commands.iter().map(|command| command.itt).collect::<Vec<_>>());
}

/// Covers: CMD-01/T.
#[test]
fn the_numbers_wrap() {
    let setup = Setup { cmd_sn: 0xffff_fffd, stat_sn: 0xffff_fffe, ..Setup::new() };
    let mut driver = setup.start();
    for _ in 0..8 {
        let command = driver.command();
        let task = driver.start(command);
        driver.complete(task, good());
    }
    assert_eq!((driver.exp_cmd_sn(), driver.exp_stat_sn), (5, 6));
}

/// Covers: CMD-08.
#[test]
fn commands_outside_the_window_are_ignored() {
    let mut driver = Setup::new().start();
    for number in [CMD_SN - 1, CMD_SN + 8, CMD_SN + 1000, CMD_SN + 0x8000_0000] {
        let command = ScsiCommand { cmd_sn: CmdSn(number), ..driver.command() };
        assert!(driver.send(command).is_empty());
    }
    assert!(driver.commands.is_empty());
}

/// Covers: CMD-09.
#[test]
fn a_retry_is_not_executed_again() {
    let mut driver = Setup::new().start();
    let hole = driver.command();
    let held = driver.command();
    driver.send(held);
    assert!(driver.send(held).is_empty());
    // Its number is taken, whatever the tag.
    let other = ScsiCommand { itt: driver.next_itt(), ..held };
    assert!(driver.send(other).is_empty());
    driver.send(hole);
    assert_eq!(driver.commands.len(), 2);
    assert!(driver.send(hole).is_empty());
    assert!(driver.send(held).is_empty());
    let task = driver.commands[0].task;
    scsi(&driver.complete(task, good()));
    assert!(driver.send(hole).is_empty(), "its number is old");
    assert_eq!(driver.commands.len(), 2);
}

/// Covers: CMD-30, REJ-08, CMD-24.
#[test]
fn a_tag_in_use_is_rejected() {
    let mut driver = Setup::new().start();
    let first = driver.command();
    let task = driver.start(first);
    let again = ScsiCommand { itt: first.itt, ..driver.command() };
    assert_eq!(reject(&driver.send(again)), 7);
    assert_eq!(driver.exp_cmd_sn(), CMD_SN + 1, "its number is not taken");
    let immediate = ScsiCommand { immediate: true, ..again };
    assert_eq!(reject(&driver.send(immediate)), 7);
    driver.complete(task, good());
    driver.send(again);
    assert_eq!(driver.commands.len(), 2, "the tag is free after the response");
}

#[test]
fn a_tag_is_free_before_the_mover_has_let_go() {
    let mut driver = Setup::new().start();
    driver.releases = false;
    let first = driver.command();
    let task = driver.start(first);
    driver.complete(task, good());
    let again = ScsiCommand { itt: first.itt, ..driver.command() };
    driver.send(again);
    assert_eq!(driver.commands.len(), 2);
}

#[test]
fn the_reserved_tag_is_rejected() {
    let mut driver = Setup::new().start();
    let command = ScsiCommand { itt: Itt::NONE, ..driver.command() };
    assert_eq!(reject(&driver.send(command)), 9);
    assert_eq!(driver.exp_cmd_sn(), CMD_SN);
}

/// Covers: CMD-32b/T.
#[test]
fn unsolicited_data_without_a_write_is_rejected() {
    let mut driver = Setup::new().start();
    let command = ScsiCommand { final_: false, ..driver.read(512) };
    assert_eq!(reject(&driver.send(command)), 9);
}

/// Covers: CMD-07, CMD-18.
#[test]
fn the_window_closes_and_opens_with_the_commands() {
    let mut driver = Setup::new().depth(2).start();
    let first = driver.command();
    let first = driver.start(first);
    let second = driver.command();
    let second = driver.start(second);
    let beyond = driver.command();
    assert!(driver.send(beyond).is_empty());
    assert_eq!(driver.commands.len(), 2);
    let ping = driver.nop(Itt(0x77), Ttt::NONE);
    let Response::NopIn(pong) = only(&driver.request(Request::NopOut(ping), &[])) else { panic!() };
    let told = (pong.numbers.exp_cmd_sn.0, pong.numbers.max_cmd_sn.0);
    assert_eq!(told, (CMD_SN + 2, CMD_SN + 1), "closed, and no further");
    let numbers = scsi(&driver.complete(second, good())).numbers;
    assert_eq!((numbers.exp_cmd_sn.0, numbers.max_cmd_sn.0), (CMD_SN + 2, CMD_SN + 2));
    driver.send(beyond);
    assert_eq!(driver.commands.len(), 3);
    let numbers = scsi(&driver.complete(first, good())).numbers;
    assert_eq!((numbers.exp_cmd_sn.0, numbers.max_cmd_sn.0), (CMD_SN + 3, CMD_SN + 3));
}

/// Covers: CMD-16, NOP-06.
#[test]
fn a_window_that_opens_silently_is_told() {
    let mut driver = Setup::new().depth(1).start();
    let command = driver.command();
    let task = driver.start(command);
    let nop = driver.nop(Itt(1), Ttt::NONE);
    driver.request(Request::NopOut(nop), &[]);
    assert_eq!((driver.exp_cmd_sn(), driver.max_cmd_sn()), (CMD_SN + 1, CMD_SN));
    let outputs = driver.abort(task);
    let Response::NopIn(nop) = only(&outputs) else { panic!() };
    assert_eq!((nop.itt, nop.ttt), (Itt::NONE, Ttt::NONE));
    assert!(segment(&outputs).is_empty());
    assert_eq!(nop.numbers.max_cmd_sn.0, CMD_SN + 1);
    let command = driver.command();
    driver.send(command);
    assert_eq!(driver.commands.len(), 2);
}

#[test]
fn a_mover_that_keeps_tasks_closes_the_window() {
    let mut driver = Setup::new().depth(2).start();
    driver.releases = false;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let command = driver.command();
        let task = driver.start(command);
        driver.complete(task, good());
        tasks.push(task);
    }
    assert_eq!(driver.max_cmd_sn(), driver.exp_cmd_sn() - 1);
    let command = driver.command();
    assert!(driver.send(command).is_empty());
    let outputs = driver.released(tasks[0]);
    assert!(responses(&outputs).iter().any(|pdu| matches!(pdu, Response::NopIn(_))));
    driver.send(command);
    assert_eq!(driver.commands.len(), 5);
}

/// Covers: CMD-10, CMD-11.
#[test]
fn immediate_commands_pass_a_closed_window() {
    let mut driver = Setup::new().depth(1).start();
    let command = driver.command();
    driver.start(command);
    let request = driver.management(0);
    assert_eq!(managed(&driver.manage(request)), 5);
    let command = driver.command();
    let command = driver.immediate(command);
    let task = driver.start(command);
    assert_eq!(scsi(&driver.complete(task, good())).status, 0);
    assert_eq!(driver.exp_cmd_sn(), CMD_SN + 1, "an immediate command takes no number");
    // Whatever it is, within the window or far from it.
    for number in [0, CMD_SN - 1, CMD_SN, CMD_SN + 5, CMD_SN + 1000, CMD_SN + (1 << 31)] {
        let command = driver.command();
        let command = driver.immediate(command);
        let task = driver.start(ScsiCommand { cmd_sn: CmdSn(number), ..command });
        assert_eq!(scsi(&driver.complete(task, good())).itt, command.itt, "{number}");
        let ping = NopOut { cmd_sn: CmdSn(number), ..driver.nop(Itt(0x77), Ttt::NONE) };
        let outputs = driver.request(Request::NopOut(ping), b"ping");
        assert!(matches!(only(&outputs), Response::NopIn(_)), "{number}");
    }
}

/// What one connection has under way leaves each other one what it may have.
///
/// Covers: CMD-11.
#[test]
fn each_connection_may_have_an_immediate_command_and_function() {
    let setup = Setup::new().depth(1).keys(|keys| keys.max_connections = 4);
    let mut driver = setup.start();
    let others = [8, 9, 10].map(|cid| driver.join(cid, 9000).0);
    let urgent = |driver: &mut Driver| {
        let command = driver.command();
        let command = driver.immediate(command);
        driver.send(ScsiCommand { lun: LunField([0, 1, 0, 0, 0, 0, 0, 0]), ..command })
    };
    while responses(&urgent(&mut driver)).is_empty() {}
    let taken = driver.commands.len();
    // They wait for a command that does not come.
    let reset = |driver: &mut Driver| {
        let request = driver.management(5);
        driver.manage(TaskManagementRequest { cmd_sn: CmdSn(CMD_SN + 1), ..request })
    };
    while responses(&reset(&mut driver)).is_empty() {}
    for (nth, connection) in (1..).zip(others) {
        driver.on(connection);
        assert!(responses(&urgent(&mut driver)).is_empty(), "a command on connection {nth}");
        assert_eq!(driver.commands.len(), taken + nth);
        assert!(responses(&reset(&mut driver)).is_empty(), "a function on connection {nth}");
        assert_eq!(reject(&urgent(&mut driver)), 6, "and no more");
        assert_eq!(reject(&reset(&mut driver)), 6, "and no more");
    }
}

/// Covers: CMD-12.
#[test]
fn there_is_a_bound_on_immediate_commands() {
    let mut driver = Setup::new().start();
    let mut rejected = 0;
    for _ in 0..200 {
        let command = driver.command();
        let command = driver.immediate(command);
        if !driver.send(command).is_empty() {
            rejected += 1;
        }
    }
    assert_eq!((driver.commands.len(), rejected), (8, 192));
    let command = driver.command();
    let command = driver.immediate(command);
    assert_eq!(reject(&driver.send(command)), 6);
    let task = driver.commands[0].task;
    driver.complete(task, good());
    driver.send(command);
    assert_eq!(driver.commands.len(), 9);
}

#[test]
fn the_numbering_trace_of_immediate_commands() {
    let setup = Setup { cmd_sn: 5, ..Setup::new() };
    let mut driver = setup.start();
    let nop = NopOut { cmd_sn: CmdSn(5), ..driver.nop(Itt(1), Ttt::NONE) };
    driver.request(Request::NopOut(nop), &[]);
    let command = driver.command();
    assert_eq!(command.cmd_sn, CmdSn(5));
    driver.send(command);
    assert_eq!(driver.cmd_sn, 6);
    let mut abort = driver.management(1);
    abort.referenced_task = command.itt;
    abort.ref_cmd_sn = CmdSn(5);
    assert_eq!(abort.cmd_sn, CmdSn(6));
    assert!(has_management(&driver.manage(abort)));
    let command = driver.command();
    assert_eq!(command.cmd_sn, CmdSn(6));
    driver.send(command);
    assert_eq!(driver.commands.len(), 2);
}

/// Covers: SCC-04/T.
#[test]
fn task_attributes_pass_unchanged() {
    let attributes = [
        Attribute::Untagged,
        Attribute::Simple,
        Attribute::Ordered,
        Attribute::HeadOfQueue,
        Attribute::Aca,
    ];
    let mut driver = Setup::new().keys(|keys| keys.protocol_level = 2).start();
    for attribute in attributes {
        let command = ScsiCommand { attribute, priority: 3, ..driver.command() };
        driver.send(command);
        let told = driver.commands.last().unwrap();
        assert_eq!((told.attribute, told.priority), (attribute, 3));
    }
}

#[test]
fn pdus_of_all_kinds_wait_for_their_turn() {
    let mut driver = Setup::new().start();
    let hole = driver.command();
    let nop =
        NopOut { immediate: false, cmd_sn: driver.take_cmd_sn(), ..driver.nop(Itt(9), Ttt::NONE) };
    assert!(driver.request(Request::NopOut(nop), b"ping").is_empty());
    let text = driver.text();
    assert!(driver.ask(text, b"X-a=1\0").is_empty());
    let last = driver.command();
    assert!(driver.send(last).is_empty());
    let outputs = driver.send(hole);
    assert!(matches!(responses(&outputs)[..], [Response::NopIn(_), Response::Text(_)]));
    assert_eq!(segment(&outputs), b"ping");
    assert_eq!(driver.commands.len(), 2);
}

#[test]
fn what_waits_is_bounded() {
    let mut driver = Setup::new().depth(64).start();
    let _hole = driver.command();
    let mut reasons = Vec::new();
    for n in 0..32 {
        let cmd_sn = driver.take_cmd_sn();
        let nop = NopOut { immediate: false, cmd_sn, ..driver.nop(Itt(n), Ttt::NONE) };
        let outputs = driver.request(Request::NopOut(nop), &[0; 32768]);
        reasons.extend(responses(&outputs));
    }
    assert!(reasons.len() >= 24);
    assert!(
        reasons.iter().all(|pdu| matches!(pdu, Response::Reject(reject) if reject.reason == 0x0a))
    );
}

#[test]
fn a_rejected_pdu_that_waited_leaves_a_hole() {
    let mut driver = Setup::new().start();
    let hole = driver.command();
    let text = driver.text();
    driver.header = vec![0x11; 48];
    assert!(driver.ask(text, b"no pair").is_empty());
    let last = driver.command();
    driver.send(last);
    driver.header = vec![0x22; 48];
    let outputs = driver.send(hole);
    assert_eq!(reject(&outputs), 4);
    assert_eq!(segment(&outputs), [0x11; 48]);
    assert_eq!(driver.exp_cmd_sn(), text.cmd_sn.0);
    assert_eq!(driver.commands.len(), 1);
    let nop = NopOut { immediate: false, cmd_sn: text.cmd_sn, ..driver.nop(Itt(9), Ttt::NONE) };
    driver.request(Request::NopOut(nop), &[]);
    assert_eq!(driver.commands.len(), 2);
}

#[test]
fn stale_events_of_the_mover_do_nothing() {
    use iscsi::datamover::{DataError, Event, TaskId};
    let mut driver = Setup::new().start();
    let command = driver.write(512);
    let (task, _) = driver.start_write(command, Immediate::None, 512);
    for task in [TaskId { index: 99, ..task }, TaskId { generation: 7, ..task }] {
        assert!(driver.event(Event::DataDone { task, offset: 0, length: 512 }, &[]).is_empty());
        let error = DataError::Digest;
        assert!(
            driver.event(Event::DataFailed { task, offset: 0, length: 4, error }, &[]).is_empty()
        );
        assert!(driver.released(task).is_empty());
        assert!(driver.complete(task, good()).is_empty());
        assert!(driver.receive(task, 512).is_empty());
        assert!(driver.abort(task).is_empty());
    }
    assert!(driver.released(task).is_empty(), "it was not asked to let go");
}

#[test]
fn an_aborted_task_ends_without_a_response() {
    let mut driver = Setup::new().start();
    let command = driver.write(512);
    let (task, _) = driver.start_write(command, Immediate::None, 512);
    let outputs = driver.abort(task);
    use iscsi::datamover::Op;
    assert!(matches!(outputs[0], Output::Op(_, Op::Abandon { .. })));
    assert!(matches!(outputs[1], Output::Op(_, Op::Unname { itt }) if itt == command.itt));
    assert!(matches!(outputs[2], Output::Op(_, Op::Release { .. })));
    assert!(matches!(outputs[3], Output::Indication(Indication::Ended { .. })));
    assert_eq!(outputs.len(), 4);
}
