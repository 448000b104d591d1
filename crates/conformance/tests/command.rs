// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands, their order and their answers (RFC 7143 §4.2.2, §11.3, §11.4).

use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::header;
use lunwire_conformance::*;
use wire::iscsi::*;

fn session(server: &Server) -> Initiator {
    let mut session = server.login();
    session.settle(0);
    session
}

/// Covers: CMD-05, CMD-18.
#[test]
fn commands_run_in_the_order_of_their_numbers() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server);
            let commands: Vec<ScsiCommand> = (0..5).map(|_| session.test_unit_ready(0)).collect();
            for command in commands.iter().skip(1).rev() {
                session.start(command);
            }
            session.expect_quiet();
            session.start(&commands[0]);
            for command in &commands {
                let pdu = session.read();
                let Response::Scsi(answer) = pdu.response() else { panic!("{pdu:x?}") };
                assert_eq!(answer.itt, command.itt);
                let acknowledged = answer.numbers.exp_cmd_sn.0.wrapping_sub(command.cmd_sn.0);
                assert!((1..=5).contains(&acknowledged), "a command is acknowledged first");
            }
            session.expect_quiet();
        },
    );
}

/// Covers: CMD-08.
#[test]
fn commands_outside_the_window_and_duplicates_are_ignored() {
    on_each_engine(
        |settings| settings.queue_depth = 4,
        |server| {
            let mut session = session(server);
            let done = session.test_unit_ready(0);
            session.run(&done);
            let duplicate = ScsiCommand { itt: session.itt(), ..done };
            session.start(&duplicate);
            let ahead = session.test_unit_ready(0);
            session.cmd_sn = ahead.cmd_sn;
            let far = CmdSn(ahead.cmd_sn.0 + 4);
            session.start(&ScsiCommand { cmd_sn: far, ..ahead });
            session.expect_quiet();
            assert_eq!(session.run(&ahead).code, 0);
        },
    );
}

/// Covers: CMD-01/T, LGN-32.
#[test]
fn command_numbers_wrap() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan { cmd_sn: CmdSn(u32::MAX - 1), ..LoginPlan::new() };
            let mut session = server.login_with(&plan);
            session.settle(0);
            for _ in 0..4 {
                let command = session.test_unit_ready(0);
                assert_eq!(session.run(&command).code, 0);
            }
            assert!(session.cmd_sn.0 < 8);
        },
    );
}

/// Covers: CMD-17/T.
#[test]
fn a_closed_window_takes_no_numbered_command() {
    on_each_engine(
        |settings| settings.queue_depth = 1,
        |server| {
            let mut session = session(server);
            let write = session.write_blocks(0, 0, 1);
            session.start(&write);
            let r2t = session.read_r2t();
            assert_eq!(r2t.numbers.max_cmd_sn.0.wrapping_add(1), r2t.numbers.exp_cmd_sn.0);
            let next = session.test_unit_ready(0);
            session.start(&next);
            session.expect_quiet();
            let data = session.data_out(&r2t);
            session.send(&Request::DataOut(data), &[1; 512]);
            let pdu = session.read();
            assert_eq!(
                (pdu.word(16), pdu.word(28), pdu.word(32)),
                (write.itt.0, next.cmd_sn.0, next.cmd_sn.0)
            );
            assert_eq!(session.run(&next).code, 0);
        },
    );
}

/// Covers: CMD-20, CMD-30, REJ-08.
#[test]
fn the_tag_of_a_live_task_is_taken() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server);
            let write = session.write_blocks(0, 0, 1);
            session.start(&write);
            let r2t = session.read_r2t();
            // A retry of the same is dropped; another command with its tag is refused.
            session.start(&write);
            session.expect_quiet();
            let other = session.test_unit_ready(0);
            session.start(&ScsiCommand { itt: write.itt, ..other });
            session.expect_reject(0x07);
            assert_eq!(session.run(&other).code, 0, "the number is still free");
            let data = session.data_out(&r2t);
            session.send(&Request::DataOut(data), &[1; 512]);
            assert_eq!(session.finish(write.itt).code, 0);
        },
    );
}

/// Covers: CMD-10, CMD-11.
#[test]
fn immediate_commands_pass_a_closed_window() {
    on_each_engine(
        |settings| settings.queue_depth = 1,
        |server| {
            let mut session = session(server);
            let write = session.write_blocks(0, 0, 1);
            session.start(&write);
            let r2t = session.read_r2t();
            let urgent = session.test_unit_ready(1);
            let urgent = ScsiCommand { immediate: true, ..urgent };
            session.cmd_sn = urgent.cmd_sn;
            session.start(&urgent);
            session.finish(urgent.itt);
            let unknown = session.management(1, 0, Itt(0x6666));
            session.send(&Request::TaskManagement(unknown), &[]);
            assert_eq!(session.read_management(), 1);
            session.expect_quiet();
            let data = session.data_out(&r2t);
            session.send(&Request::DataOut(data), &[1; 512]);
            assert_eq!(session.finish(write.itt).code, 0);
        },
    );
}

/// Covers: SCC-04/T, OBS-08, FMT-03/T.
#[test]
fn attributes_that_there_are_and_reserved_ones() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server);
            use Attribute::*;
            for attribute in [Untagged, Simple, Ordered, HeadOfQueue] {
                let command = ScsiCommand { attribute, ..session.test_unit_ready(0) };
                assert_eq!(session.run(&command).code, 0, "{attribute:?}");
            }
            for code in 5..=7 {
                let command = session.test_unit_ready(0);
                session.cmd_sn = command.cmd_sn;
                let mut bytes = header(&Request::Command(command), 0);
                bytes[1] = 0x80 | code;
                session.raw.send_header(&bytes, &[]);
                let pdu = session.read();
                assert!(matches!(pdu.response(), Response::Reject(_)), "ATTR {code}: {pdu:x?}");
            }
            session.expect_quiet();
        },
    );
}

/// Covers: SRS-03, SRS-04, SRS-05, SCC-15, SRS-01a, SRS-13.
#[test]
fn residuals_say_how_much_more_or_less_there_was() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server);
            // The CDB asks for more than is expected, and for less.
            let read = session.read_blocks(0, 0, 4);
            let short = session.run(&ScsiCommand { expected_length: 1000, ..read });
            assert_eq!((short.data.len(), short.residual), (1000, Residual::Overflow(1048)));
            let read = session.read_blocks(0, 0, 4);
            let long = session.run(&ScsiCommand { expected_length: 5000, ..read });
            assert_eq!((long.data.len(), long.residual), (2048, Residual::Underflow(2952)));
            let exact = session.read_blocks(0, 0, 4);
            assert_eq!(session.run(&exact).residual, Residual::None);
            // An allocation length that cuts is no overflow.
            let inquiry = session.command(0, &[0x12, 0, 0, 0, 10, 0]);
            let inquiry = ScsiCommand { read: true, expected_length: 10, ..inquiry };
            assert_eq!(session.run(&inquiry).residual, Residual::None);
            let inquiry = session.command(0, &[0x12, 0, 0, 0, 10, 0]);
            let inquiry = ScsiCommand { read: true, expected_length: 36, ..inquiry };
            let status = session.run(&inquiry);
            assert_eq!((status.data.len(), status.residual), (10, Residual::Underflow(26)));
            // Writes likewise.
            let write = session.write_blocks(0, 0, 2);
            let write = ScsiCommand { expected_length: 512, ..write };
            session.send(&Request::Command(write), &pattern(512, 1));
            assert_eq!(session.finish(write.itt).residual, Residual::Overflow(512));
            let write = session.write_blocks(0, 0, 1);
            let write = ScsiCommand { expected_length: 1024, ..write };
            session.send(&Request::Command(write), &pattern(1024, 1));
            assert_eq!(session.finish(write.itt).residual, Residual::Underflow(512));
        },
    );
}

/// Covers: SRS-08, SRS-12.
#[test]
fn check_condition_brings_its_sense() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server);
            let command = session.command(0, &[0xff; 6]);
            session.start(&command);
            let pdu = session.read();
            let Response::Scsi(answer) = pdu.response() else { panic!("{pdu:x?}") };
            assert_eq!((answer.status, answer.response), (2, 0));
            let length = usize::from(u16::from_be_bytes([pdu.data[0], pdu.data[1]]));
            assert_eq!(pdu.data.len(), 2 + length);
            assert_eq!((pdu.data[4] & 0xf, pdu.data[14], pdu.data[15]), (5, 0x20, 0));
        },
    );
}

/// Covers: STS-01, STS-02, REJ-01, REJ-11.
#[test]
fn every_response_counts_once() {
    on_each_engine(
        |_| {},
        |server| {
            // `Initiator::read` checks each number; here all kinds follow each other.
            let mut session = session(server);
            let write = session.write_blocks(0, 0, 1);
            session.start(&write);
            let r2t = session.read_r2t();
            session.expect_quiet();
            let data = session.data_out(&r2t);
            session.send(&Request::DataOut(data), &[0; 512]);
            session.finish(write.itt);
            let read = session.read_blocks(0, 0, 1);
            session.run(&read);
            let tmf = session.management(5, 1, Itt::NONE);
            session.send(&Request::TaskManagement(tmf), &[]);
            session.read_management();
            let text = session.text();
            session.send(&Request::Text(text), &[]);
            session.read();
            let login = Request::Login(LoginPlan::new().request());
            session.send(&login, &[]);
            let reject = session.expect_reject(0x04);
            assert_eq!((reject.word(16), reject.byte(1)), (u32::MAX, 0x80));
            assert_eq!(reject.data, header(&login, 0));
            session.leave();
        },
    );
}
