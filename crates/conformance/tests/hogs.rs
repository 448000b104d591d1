// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initiators that take all they can and give nothing back, beside others that do as they should.

use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::*;
use std::time::Duration;
use std::time::Instant;
use target::Mode;
use wire::iscsi::*;
use wire::scsi::sam::TASK_SET_FULL;

/// Blocks of a large command: 1 MiB.
const LARGE: u16 = 2048;

/// Blocks of a small one: 64 KiB.
const SMALL: u16 = 128;

/// Far longer than a neighbour of an initiator that does nothing may have to wait.
const SOON: Duration = Duration::from_secs(5);

/// A command that has waited for memory for so long is refused.
const REFUSED_AFTER: Duration = Duration::from_secs(2);

fn session(server: &Server, keys: &[(&str, &str)]) -> Initiator {
    let mut session = server.login_with(&LoginPlan::new().with(keys));
    session.settle(0);
    session.settle(FILE_LUN);
    session
}

/// Writes and reads; all of it must succeed, and soon.
fn expect_service(server: &Server) {
    // On whichever reactor it comes to live.
    for seed in 0..3 {
        let begin = Instant::now();
        let mut session = session(server, &[]);
        let data = pattern(usize::from(SMALL) * 512, seed);
        for lun in [0, FILE_LUN] {
            let write = session.write_blocks(lun, 8192, SMALL);
            session.send(&Request::Command(write), &data[..8192]);
            let r2t = session.read_r2t();
            let out = session.data_out(&r2t);
            session.send(&Request::DataOut(out), &data[8192..]);
            assert_eq!(session.finish(write.itt).code, GOOD, "a write, unit {lun}");
            let read = session.read_blocks(lun, 8192, SMALL);
            let status = session.run(&read);
            assert_eq!(status.code, GOOD, "a read, unit {lun}");
            assert!(status.data == data, "unit {lun}");
        }
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        session.leave();
    }
}

/// A window full of WRITEs whose data never comes takes from nobody else what it needs.
#[test]
fn writes_that_send_nothing_leave_room_for_others() {
    on_each_transport(
        |_| {},
        |server| {
            let mut hogs: Vec<Initiator> =
                (0..4).map(|_| session(server, &[("InitialR2T", "Yes")])).collect();
            for hog in &mut hogs {
                for index in 0..100_u8 {
                    let write = hog.write_blocks(index % 2 * FILE_LUN, 0, LARGE);
                    let immediate = if index % 3 == 0 { &[1; 512][..] } else { &[] };
                    hog.send(&Request::Command(write), immediate);
                }
            }
            for hog in &mut hogs {
                hog.read_r2t();
            }
            expect_service(server);
        },
    );
}

/// Those who ask for data and do not take it have their share of the buffers, and no more.
#[test]
fn readers_that_do_not_read_leave_room_for_others() {
    on_each_transport(
        |_| {},
        |server| {
            let digests = [("DataDigest", "CRC32C")];
            let mut hogs: Vec<Initiator> = (0..4).map(|_| session(server, &digests)).collect();
            for hog in &mut hogs {
                for _ in 0..100 {
                    let read = hog.read_blocks(FILE_LUN, 0, LARGE);
                    hog.start(&read);
                }
            }
            std::thread::sleep(Duration::from_millis(200));
            expect_service(server);
        },
    );
}

/// Bytes of a disk in memory that is larger than what its lent pages may cost.
const ROOMY: u32 = 1 << 30;

/// Bytes of the largest command.
const HUGE: u32 = 4 << 20;

const HUGE_BLOCKS: u32 = HUGE / BLOCK;
const ROOMY_COMMANDS: u32 = ROOMY / HUGE;
const ROOMY_BLOCKS: u32 = ROOMY / BLOCK;

/// A few who ask for all of a disk in memory and take nothing hold few of its pages, so that others
/// can write to all of it.
#[test]
fn readers_that_do_not_read_leave_pages_for_those_who_write() {
    write_beside_readers(4, 64, 64);
}

/// So with many, of whom each asks for little.
#[test]
fn many_readers_that_do_not_read_leave_pages_for_those_who_write() {
    write_beside_readers(85, 3, 1);
}

/// So many initiators ask for so many different parts of a disk in memory; another one writes to
/// the first ones of each then.
fn write_beside_readers(hogs: usize, each: u32, written: u32) {
    let server = roomy_server();
    let mut hogs: Vec<Initiator> = (0..hogs).map(|_| server.login()).collect();
    for (hog, first) in hogs.iter_mut().zip((0..ROOMY_COMMANDS).step_by(each as usize)) {
        hog.settle(9);
        for command in first..first + each {
            let read = read_long(hog, 9, command * HUGE_BLOCKS, HUGE_BLOCKS);
            hog.start(&read);
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    write_all(&server, (0..ROOMY_COMMANDS).filter(|command| command % each < written));
}

/// Bytes of a group of pages of a disk in memory, which is lent as a whole.
const GROUP: u32 = 64 << 10;

/// So with those of whom each asks for little in many places: what they hold is more than what they
/// are owed.
#[test]
fn readers_of_little_that_do_not_read_leave_pages_for_those_who_write() {
    const HOGS: u32 = 24;
    const EACH: u32 = 120;
    let server = roomy_server();
    let mut hogs: Vec<Initiator> = (0..HOGS).map(|_| server.login()).collect();
    for (hog, first) in hogs.iter_mut().zip((0..).step_by(EACH as usize)) {
        hog.settle(9);
        // More than the sockets hold.
        for blocks in [HUGE_BLOCKS, HUGE_BLOCKS / 8 * 3] {
            let read = read_long(hog, 9, ROOMY_BLOCKS - HUGE_BLOCKS, blocks);
            hog.start(&read);
        }
        for place in first..first + EACH {
            // A block on either side of where one group ends and another one begins.
            let read = read_long(hog, 9, (2 * place + 1) * (GROUP / BLOCK) - 1, 2);
            hog.start(&read);
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    write_all(&server, 0..2 * HOGS * EACH * GROUP / HUGE);
}

/// Serves a disk of [`ROOMY`] bytes in memory as LUN 9, too.
fn roomy_server() -> Server {
    let engine = engine::choose(engine::Choice::Auto);
    let mut plan = server::plan(engine, iscsi::target_role::Settings::default());
    let spec = store::spec::Spec::Memory { bytes: ROOMY.into() };
    let store = plan.stores.open(&spec).expect("memory");
    let identity = scsi::Identity::derive("roomy", 9, "LUNWIRE", "VIRTUAL DISK");
    let unit = scsi::LogicalUnit::new(identity, store, BLOCK).expect("a legal unit");
    plan.nodes[0].luns.push((9, std::sync::Arc::new(unit)));
    Server::start(plan)
}

/// Another initiator writes to these parts, of [`HUGE`] bytes, of the disk of such a server.
fn write_all(server: &Server, parts: impl Iterator<Item = u32>) {
    let mut writer = server.login_with(&LoginPlan::new().with(&[("InitialR2T", "Yes")]));
    writer.settle(9);
    let data = vec![7; HUGE as usize];
    for part in parts {
        let status = write_huge(&mut writer, 9, part * HUGE_BLOCKS, &data);
        assert_eq!(status, GOOD, "after {part} commands");
    }
    let read = writer.read_blocks(9, 0, SMALL);
    assert_eq!(writer.run(&read).code, GOOD, "others are read to");
}

/// Reads so many blocks, which may be as many as a command can.
fn read_long(session: &mut Initiator, lun: u8, lba: u32, blocks: u32) -> ScsiCommand {
    let cdb = wire::scsi::cdb::BlockCommand {
        opcode: wire::scsi::opcode::Opcode::READ_16,
        lba: lba.into(),
        length: blocks,
        flags: 0,
        group_number: 0,
    };
    let command = session.command(lun, &cdb.emit().expect("a small range").bytes[..16]);
    ScsiCommand { read: true, expected_length: blocks * BLOCK, ..command }
}

/// Writes as much as a command can; gives the status.
fn write_huge(session: &mut Initiator, lun: u8, lba: u32, data: &[u8]) -> u8 {
    let length = u32::try_from(data.len()).expect("32 bits are enough");
    let cdb = wire::scsi::cdb::BlockCommand {
        opcode: wire::scsi::opcode::Opcode::WRITE_16,
        lba: u64::from(lba),
        length: length / BLOCK,
        flags: 0,
        group_number: 0,
    };
    let command = session.command(lun, &cdb.emit().expect("a small range").bytes[..16]);
    session.start(&ScsiCommand { write: true, expected_length: length, ..command });
    loop {
        let pdu = session.read();
        match pdu.response() {
            Response::R2t(r2t) => answer_r2t(session, &r2t, data),
            Response::Scsi(answer) => return answer.status,
            other => panic!("{other:?}"),
        }
    }
}

/// Sends what was asked for of `data`, which is all that the command writes.
fn answer_r2t(session: &mut Initiator, r2t: &R2t, data: &[u8]) {
    let from = r2t.offset as usize;
    let part = &data[from..from + r2t.desired_length as usize];
    let out = session.data_out(r2t);
    for (index, piece) in (0..).zip(part.chunks(8192)) {
        let offset = r2t.offset + index * 8192;
        let final_ = (index + 1) as usize * 8192 >= part.len();
        let out = DataOut { final_, data_sn: DataSn(index), offset, ..out };
        session.send(&Request::DataOut(out), piece);
    }
}

/// What does not fit the share of a session waits for what the session gives back.
#[test]
fn a_window_larger_than_the_share_is_served_in_turn() {
    on_each_plan(
        |_| {},
        |plan| plan.pool_bytes_max = 16 << 20,
        |server| {
            let mut session = session(server, &[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
            let writes: Vec<ScsiCommand> = (0..60_u32)
                .map(|index| session.write_blocks(FILE_LUN, index % 14 * 2048, LARGE))
                .collect();
            writes.iter().for_each(|write| session.start(write));
            let data = pattern(usize::from(LARGE) * 512, 1);
            let mut done = 0;
            while done < writes.len() {
                let pdu = session.read();
                match pdu.response() {
                    Response::R2t(r2t) => answer_r2t(&mut session, &r2t, &data),
                    Response::Scsi(answer) => {
                        assert_eq!(answer.status, GOOD);
                        done += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let reads: Vec<ScsiCommand> = (0..60_u32)
                .map(|index| session.read_blocks(FILE_LUN, index % 14 * 2048, LARGE))
                .collect();
            reads.iter().for_each(|read| session.start(read));
            let mut done = 0;
            let mut bytes = 0;
            while done < reads.len() {
                let pdu = session.read();
                match pdu.response() {
                    Response::DataIn(part) => {
                        bytes += pdu.data.len();
                        done += usize::from(part.status.is_some());
                        assert!(part.status.is_none_or(|status| status.status == GOOD));
                    }
                    Response::Scsi(answer) => {
                        assert_eq!(answer.status, GOOD);
                        done += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(bytes, 60 * data.len());
        },
    );
}

/// The whole pool of the tests below: one buffer of it serves a command of `LARGE`.
const ONE_BUFFER: usize = 1 << 20;

/// Data that is kept to be sent again is acknowledged with the next command of its initiator, which
/// may wait for the memory of this one.
#[test]
fn data_kept_to_be_sent_again_does_not_hold_up_commands_that_wait() {
    on_each_plan(
        |_| {},
        |plan| plan.pool_bytes_max = ONE_BUFFER,
        |server| {
            let mut session = session(server, &[("ErrorRecoveryLevel", "1")]);
            let begin = Instant::now();
            let reads: Vec<ScsiCommand> =
                (0..4_u32).map(|at| session.read_blocks(FILE_LUN, at * 2048, LARGE)).collect();
            reads.iter().for_each(|read| session.start(read));
            let mut done = 0;
            while done < reads.len() {
                let pdu = session.read();
                let status = match pdu.response() {
                    Response::DataIn(part) => part.status.map(|status| status.status),
                    Response::Scsi(answer) => Some(answer.status),
                    other => panic!("{other:?}"),
                };
                assert!(status.is_none_or(|status| status == GOOD), "{status:?}");
                done += usize::from(status.is_some());
            }
            assert!(begin.elapsed() < REFUSED_AFTER, "{:?}", begin.elapsed());
        },
    );
}

/// A session on the one reactor whose pool of so many bytes another one has a large buffer of, for
/// data that does not come.
fn beside_a_hog(pool_bytes_max: usize, check: impl Fn(&mut Initiator)) {
    on_each_plan(
        |_| {},
        |plan| {
            (plan.reactors, plan.mode) = (1, Mode::Smp);
            plan.pool_bytes_max = pool_bytes_max;
        },
        |server| {
            let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
            let mut hog = session(server, &keys);
            let mut other = session(server, &keys);
            let write = hog.write_blocks(FILE_LUN, 0, LARGE);
            hog.start(&write);
            hog.read_r2t();
            check(&mut other);
        },
    );
}

/// A command for which there is no memory hears so before its host gives it up.
#[test]
fn a_command_without_memory_is_refused_in_time() {
    beside_a_hog(ONE_BUFFER, |other| {
        let begin = Instant::now();
        let read = other.read_blocks(FILE_LUN, 0, LARGE);
        let status = other.run(&read);
        assert_eq!(status.code, TASK_SET_FULL);
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    });
}

/// One that waits in front of others and is aborted does not leave them where they are.
#[test]
fn what_stands_behind_an_aborted_command_goes_on() {
    beside_a_hog(ONE_BUFFER * 5 / 4, |other| {
        let begin = Instant::now();
        let first = other.read_blocks(FILE_LUN, 0, LARGE);
        other.start(&first);
        let behind = other.read_blocks(FILE_LUN, 0, 8);
        other.start(&behind);
        let abort = other.management(1, FILE_LUN, first.itt);
        other.send(&Request::TaskManagement(abort), &[]);
        let Response::TaskManagement(answer) = other.read().response() else {
            panic!("the abort is answered first")
        };
        assert_eq!(answer.response, 0);
        assert_eq!(other.finish(behind.itt).code, GOOD);
        assert!(begin.elapsed() < REFUSED_AFTER, "{:?}", begin.elapsed());
    });
}

/// Nor does one that has waited for too long.
#[test]
fn what_stands_behind_a_refused_command_goes_on() {
    beside_a_hog(ONE_BUFFER * 5 / 4, |other| {
        let first = other.read_blocks(FILE_LUN, 0, LARGE);
        other.start(&first);
        std::thread::sleep(Duration::from_millis(500));
        let behind = other.read_blocks(FILE_LUN, 0, 8);
        other.start(&behind);
        assert_eq!(other.finish(first.itt).code, TASK_SET_FULL);
        assert_eq!(other.finish(behind.itt).code, GOOD);
    });
}

/// A command that there can never be memory for is not told to come again.
#[test]
fn a_command_for_which_there_is_never_memory_does_not_come_again() {
    on_each_plan(
        |_| {},
        |plan| plan.pool_bytes_max = ONE_BUFFER / 2,
        |server| {
            let begin = Instant::now();
            let mut session = session(server, &[]);
            let read = session.read_blocks(FILE_LUN, 0, LARGE);
            assert_eq!(session.run(&read).sense_code(), (5, 0x55, 0x03));
            let write = session.write_blocks(FILE_LUN, 0, LARGE);
            assert_eq!(session.run(&write).sense_code(), (5, 0x55, 0x03));
            let read = session.read_blocks(FILE_LUN, 0, 8);
            assert_eq!(session.run(&read).code, GOOD);
            assert!(begin.elapsed() < REFUSED_AFTER, "{:?}", begin.elapsed());
        },
    );
}
