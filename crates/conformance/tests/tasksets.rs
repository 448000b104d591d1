// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task sets over the wire (SAM-5 §5.9, §8): task attributes, ACA, QERR, TST and TAS among sessions
//! that live on one thread or on several.

use std::time::Duration;

use lunwire_conformance::initiator::CHECK_CONDITION;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::Status;
use lunwire_conformance::*;
use wire::iscsi::*;
use wire::scsi::sam::ACA_ACTIVE;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::TASK_ABORTED;

const CLEAR_ACA: u8 = 3;
const CLEAR_TASK_SET: u8 = 4;
const READY: [u8; 6] = [0; 6];
/// NACA.
const READY_NACA: [u8; 6] = [0, 0, 0, 0, 0, 4];
/// READ(10) far behind the end, with NACA.
const WRONG_NACA: [u8; 10] = [0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 4];
const WRONG: [u8; 10] = [0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0];

fn session(server: &Server) -> Initiator {
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut session = server.login_with(&LoginPlan::new().with(&keys));
    session.settle(0);
    session
}

/// A WRITE whose data was asked for and not sent.
fn open_write(session: &mut Initiator, attribute: Attribute, block: u32) -> R2t {
    let command = session.write_blocks(0, block, 1);
    session.start(&ScsiCommand { attribute, ..command });
    session.read_r2t()
}

fn finish_write(session: &mut Initiator, r2t: &R2t) -> Status {
    let data = session.data_out(r2t);
    session.send(&Request::DataOut(data), &[1; 512]);
    session.finish(r2t.itt)
}

fn start(session: &mut Initiator, attribute: Attribute, cdb: &[u8]) -> Itt {
    let command = session.command(0, cdb);
    let reads = cdb[0] == 0x28;
    let expected_length = if reads { 512 } else { 0 };
    let command = ScsiCommand { attribute, read: reads, expected_length, ..command };
    session.start(&command);
    command.itt
}

fn run(session: &mut Initiator, attribute: Attribute, cdb: &[u8]) -> Status {
    let itt = start(session, attribute, cdb);
    session.finish(itt)
}

fn code(session: &mut Initiator, attribute: Attribute, cdb: &[u8]) -> u8 {
    run(session, attribute, cdb).code
}

fn manage(session: &mut Initiator, function: u8) -> u8 {
    let request = session.management(function, 0, Itt::NONE);
    session.send(&Request::TaskManagement(request), &[]);
    loop {
        match session.read().response() {
            Response::TaskManagement(answer) => return answer.response,
            Response::NopIn(ping) if ping.itt == Itt::NONE => {
                let pong = NopOut { ttt: ping.ttt, itt: Itt::NONE, ..session.ping() };
                session.cmd_sn = pong.cmd_sn;
                session.send(&Request::NopOut(NopOut { immediate: true, ..pong }), &[]);
            }
            other => panic!("an answer to task management was due: {other:?}"),
        }
    }
}

/// MODE SELECT of the control page: bytes 2, 3 and 5.
fn select(session: &mut Initiator, two: u8, three: u8, five: u8) {
    let list = [0, 0, 0, 0, 0x0a, 10, two, 0x10 | three, 0, five, 0, 0, 0xff, 0xff, 0, 0];
    let command = session.command(0, &[0x15, 0x10, 0, 0, 16, 0]);
    let command = ScsiCommand { write: true, expected_length: 16, ..command };
    session.start(&command);
    let r2t = session.read_r2t();
    let data = session.data_out(&r2t);
    session.send(&Request::DataOut(data), &list);
    assert_eq!(session.finish(command.itt).code, GOOD);
}

#[test]
fn ordered_commands_wait_for_other_sessions() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            let before = open_write(&mut one, Attribute::Simple, 0);
            let ordered = start(&mut two, Attribute::Ordered, &READY);
            let behind = start(&mut two, Attribute::Simple, &READY);
            two.expect_quiet();
            assert_eq!(code(&mut two, Attribute::HeadOfQueue, &READY), GOOD);
            assert_eq!(finish_write(&mut one, &before).code, GOOD);
            assert_eq!(two.finish(ordered).code, GOOD);
            assert_eq!(two.finish(behind).code, GOOD);
        },
    );
}

/// What a READ gives is of before every command that is ordered behind it, however late its
/// initiator takes it.
#[test]
fn a_write_that_is_ordered_behind_a_read_does_not_reach_its_data() {
    const COUNT: u16 = 8192;
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            let taken = || server.target().sessions().iter().map(|one| one.commands).sum::<u64>();
            let before = taken();
            // More than all buffers on the way hold.
            let reads: Vec<Itt> = (0..4)
                .map(|_| {
                    let command = one.read_blocks(0, 0, COUNT);
                    one.start(&command);
                    command.itt
                })
                .collect();
            // All of them have run: the other session may be on another reactor.
            while taken() < before + reads.len() as u64 {
                std::thread::sleep(Duration::from_millis(1));
            }
            for block in (0..u32::from(COUNT)).step_by(16) {
                let r2t = open_write(&mut two, Attribute::Ordered, block);
                assert_eq!(finish_write(&mut two, &r2t).code, GOOD);
            }
            for itt in reads {
                let status = one.finish(itt);
                assert_eq!(status.code, GOOD);
                let newer = status.data.iter().filter(|byte| **byte != 0).count();
                assert_eq!(newer, 0, "bytes of writes that were ordered behind the READ");
            }
            // And it is on the medium.
            let command = one.read_blocks(0, 16, 1);
            assert_eq!(one.run(&command).data, [1; 512]);
        },
    );
}

#[test]
fn a_lost_session_is_waited_for_no_longer() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            let _open = open_write(&mut one, Attribute::Ordered, 0);
            let behind = start(&mut two, Attribute::Ordered, &READY);
            two.expect_quiet();
            drop(one);
            assert_eq!(two.finish(behind).code, GOOD);
        },
    );
}

#[test]
fn an_aca_condition_lasts_until_it_is_cleared() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            let held = open_write(&mut two, Attribute::Simple, 0);
            assert_eq!(run(&mut one, Attribute::Simple, &WRONG_NACA).sense_code(), (5, 0x21, 0));
            assert_eq!(code(&mut one, Attribute::Simple, &READY), ACA_ACTIVE);
            assert_eq!(code(&mut two, Attribute::Simple, &READY), BUSY);
            assert_eq!(code(&mut two, Attribute::Simple, &READY_NACA), ACA_ACTIVE);
            assert_eq!(code(&mut one, Attribute::Aca, &READY), GOOD);
            let data = two.data_out(&held);
            two.send(&Request::DataOut(data), &[1; 512]);
            two.expect_quiet();
            assert_eq!(manage(&mut two, CLEAR_ACA), 255, "it is not its own");
            assert_eq!(manage(&mut one, CLEAR_ACA), 0);
            assert_eq!(two.finish(held.itt).code, GOOD);
            assert_eq!(code(&mut one, Attribute::Simple, &READY), GOOD);
            assert_eq!(manage(&mut one, CLEAR_ACA), 0, "there is none");
            let status = run(&mut one, Attribute::Aca, &READY);
            assert_eq!(status.sense_code(), (5, 0x49, 0));
        },
    );
}

#[test]
fn an_aca_condition_ends_with_its_session() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            assert_eq!(code(&mut one, Attribute::Simple, &WRONG_NACA), CHECK_CONDITION);
            assert_eq!(code(&mut two, Attribute::Simple, &READY), BUSY);
            one.leave();
            assert_eq!(code(&mut two, Attribute::Simple, &READY), GOOD);
        },
    );
}

/// Covers: TMF-16.
#[test]
fn with_tas_others_hear_of_their_aborted_commands() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            select(&mut one, 0, 0, 0x40);
            two.settle(0);
            let open = open_write(&mut two, Attribute::Simple, 0);
            assert_eq!(manage(&mut one, CLEAR_TASK_SET), 0);
            assert_eq!(finish_write(&mut two, &open).code, TASK_ABORTED);
            assert_eq!(code(&mut two, Attribute::Simple, &READY), GOOD, "no unit attention");
            let read = two.read_blocks(0, 0, 1);
            assert_eq!(two.run(&read).data, [0; 512], "the aborted write must not happen");
        },
    );
}

/// Covers: TMF-25.
#[test]
fn with_tst_clear_task_set_leaves_other_sessions_alone() {
    on_each_transport(
        |_| {},
        |server| {
            // Two blocks, of which one comes.
            let small = [("MaxBurstLength", "512"), ("FirstBurstLength", "512")];
            let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No"), small[0], small[1]];
            let mut one = server.login_with(&LoginPlan::new().with(&keys));
            one.settle(0);
            let mut two = session(server);
            select(&mut one, 0x20, 0, 0);
            two.settle(0);
            let open = open_write(&mut two, Attribute::Simple, 0);
            assert_eq!(code(&mut one, Attribute::Ordered, &READY), GOOD, "another task set");
            let write = one.write_blocks(0, 1, 2);
            one.start(&write);
            let own = one.read_r2t();
            // The data that was asked for still comes, and the function waits for it.
            let request = one.management(CLEAR_TASK_SET, 0, Itt::NONE);
            one.send(&Request::TaskManagement(request), &[]);
            let data = one.data_out(&own);
            one.send(&Request::DataOut(data), &[1; 512]);
            assert_eq!(one.read_management(), 0);
            one.expect_quiet();
            assert_eq!(finish_write(&mut two, &open).code, GOOD);
        },
    );
}

#[test]
fn with_qerr_a_failure_aborts_the_task_set() {
    on_each_transport(
        |_| {},
        |server| {
            for tas in [0, 0x40] {
                let (mut one, mut two) = (session(server), session(server));
                select(&mut one, 0, 0x02, tas);
                two.settle(0);
                let mine = open_write(&mut one, Attribute::Simple, 0);
                let foreign = open_write(&mut two, Attribute::Simple, 1);
                assert_eq!(run(&mut one, Attribute::Simple, &WRONG).sense_code(), (5, 0x21, 0));
                if tas == 0 {
                    let data = two.data_out(&foreign);
                    two.send(&Request::DataOut(data), &[1; 512]);
                    two.expect_quiet();
                    let told = run(&mut two, Attribute::Simple, &READY).sense_code();
                    assert_eq!(told, (6, 0x2f, 0));
                } else {
                    assert_eq!(finish_write(&mut two, &foreign).code, TASK_ABORTED);
                }
                assert_eq!(code(&mut two, Attribute::Simple, &READY), GOOD);
                let data = one.data_out(&mine);
                one.send(&Request::DataOut(data), &[1; 512]);
                one.expect_quiet();
                let read = one.read_blocks(0, 0, 2);
                assert_eq!(one.run(&read).data, [0; 1024], "neither write happened");
                select(&mut one, 0, 0, 0);
            }
        },
    );
}
