// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Much at once, nothing at all, and ends in the middle (RFC 7143 §4.2.3, §8.1.2, §11.4.7, §11.14).

use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::header;
use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;
use wire::iscsi::*;

const DIGESTS: [(&str, &str); 2] = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];

fn session(server: &Server, keys: &[(&str, &str)]) -> Initiator {
    let mut session = server.login_with(&LoginPlan::new().with(keys));
    session.settle(0);
    session
}

/// Blocks of a large READ: 1 MiB.
const LARGE: u16 = 2048;

/// Far more data is asked for than buffers hold, and nobody reads for a while.
#[test]
fn reads_that_nobody_takes_come_whole_later() {
    on_each_engine(
        |_| {},
        |server| {
            for keys in [&[][..], &DIGESTS] {
                let mut session = session(server, keys);
                let reads: Vec<ScsiCommand> =
                    (0..100).map(|_| session.read_blocks(0, 0, LARGE)).collect();
                for read in &reads {
                    session.start(read);
                }
                std::thread::sleep(Duration::from_millis(50));
                server.login().expect_quiet();
                for read in &reads {
                    let status = session.finish(read.itt);
                    assert!(matches!(status.code, 0x00 | 0x28), "{:#x}", status.code);
                    assert!(status.code != 0 || status.data.len() == 1 << 20);
                }
                session.expect_quiet();
            }
        },
    );
}

/// What leaves makes room for those that have waited, not for one that has just come.
#[test]
fn reads_that_wait_for_the_line_are_not_overtaken() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[]);
            let mut reads: VecDeque<Itt> = VecDeque::new();
            for round in 0..400 {
                // Far more than a session may be owed, so that some wait all the time.
                while reads.len() < 40 {
                    let read = session.read_blocks(0, 0, LARGE);
                    session.start(&read);
                    reads.push_back(read.itt);
                }
                let first = reads.pop_front().expect("there are 40");
                let status = session.finish(first);
                assert_eq!((status.code, status.data.len()), (GOOD, 1 << 20), "round {round}");
            }
            for read in reads {
                assert_eq!(session.finish(read).code, GOOD);
            }
        },
    );
}

/// A full window of WRITEs in one go, each with immediate data and R2Ts.
///
/// Covers: R2T-08.
#[test]
fn a_full_window_of_writes() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [("FirstBurstLength", "512"), ("MaxBurstLength", "1024")];
            let mut session = session(server, &keys);
            let writes: Vec<ScsiCommand> =
                (0..100).map(|index| session.write_blocks(0, index * 8, 8)).collect();
            let data = pattern(8 * BLOCK_BYTES, 1);
            let mut bytes = Vec::new();
            for write in &writes {
                let request = Request::Command(*write);
                bytes.extend(session.raw.assemble(&header(&request, 512), &data[..512]));
            }
            session.raw.write(&bytes);
            let mut done = 0;
            while done < writes.len() {
                let pdu = session.read();
                match pdu.response() {
                    Response::R2t(r2t) => {
                        let from = r2t.offset as usize;
                        let to = from + r2t.desired_length as usize;
                        let part = session.data_out(&r2t);
                        session.send(&Request::DataOut(part), &data[from..to]);
                    }
                    Response::Scsi(answer) => {
                        assert_eq!(answer.status, 0);
                        done += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let read = session.read_blocks(0, 0, 800);
            let all = session.run(&read).data;
            assert!(all.chunks(data.len()).all(|chunk| chunk == data));
        },
    );
}

/// Covers: LGO-02, LGO-04a.
#[test]
fn a_logout_in_the_middle_of_data_ends_the_stream_cleanly() {
    on_each_engine(
        |_| {},
        |server| {
            for keys in [&[][..], &DIGESTS] {
                let mut session = session(server, keys);
                for _ in 0..20 {
                    let read = session.read_blocks(0, 0, LARGE);
                    session.start(&read);
                }
                let logout = session.logout(0);
                session.send(&Request::Logout(logout), &[]);
                loop {
                    match session.read().response() {
                        Response::DataIn(_) | Response::Scsi(_) => {}
                        Response::Logout(answer) => break assert_eq!(answer.response, 0),
                        other => panic!("{other:?}"),
                    }
                }
                session.expect_closed();
            }
        },
    );
}

/// Covers: TMF-04, TMF-19.
#[test]
fn nothing_of_an_aborted_read_follows_the_answer() {
    on_each_engine(
        |_| {},
        |server| {
            for function in [1, 2, 4, 5] {
                let mut session = session(server, &DIGESTS);
                let mut last = Itt::NONE;
                for _ in 0..20 {
                    let read = session.read_blocks(0, 0, LARGE);
                    session.start(&read);
                    last = read.itt;
                }
                let request = session.management(function, 0, last);
                session.send(&Request::TaskManagement(request), &[]);
                let mut answered = false;
                while !answered {
                    match session.read().response() {
                        Response::DataIn(_) | Response::Scsi(_) => {}
                        Response::NopIn(ping) => {
                            let pong = NopOut {
                                immediate: true,
                                itt: Itt::NONE,
                                ttt: ping.ttt,
                                lun: ping.lun,
                                cmd_sn: session.cmd_sn,
                                exp_stat_sn: session.exp_stat_sn,
                            };
                            session.send(&Request::NopOut(pong), &[]);
                        }
                        Response::TaskManagement(answer) => {
                            assert!(matches!(answer.response, 0 | 1), "{answer:?}");
                            answered = true;
                        }
                        other => panic!("{other:?}"),
                    }
                }
                if function != 1 {
                    session.expect_quiet();
                }
            }
        },
    );
}

/// Covers: LGN-52.
#[test]
fn a_login_that_dawdles_is_closed() {
    for engine in [engine::Choice::Epoll, engine::choose(engine::Choice::Auto)] {
        let plan = plan(engine, iscsi::target_role::Settings::default());
        let login_timeout = Duration::from_millis(500);
        let server = Server::start(target::Plan { login_timeout, ..plan });
        // Without a word; with half a PDU; with a first request only.
        let mut silent = server.connect();
        let mut slow = server.connect();
        slow.write(&[0x43; 20]);
        let mut half = server.connect();
        let plan = LoginPlan::new();
        let request = LoginRequest { transit: false, next: None, ..plan.request() };
        half.send(&Request::Login(request), &plan.text());
        assert!(matches!(half.read().response(), Response::Login(answer) if answer.status == 0));
        silent.expect_closed();
        slow.expect_closed();
        while let Heard::Pdu(pdu) = half.hear(Duration::from_secs(2)) {
            assert!(matches!(pdu.response(), Response::Login(answer) if answer.status != 0));
        }
        server.login().expect_quiet();
    }
}

/// A command that fails before its data comes: the status waits for the last PDU.
///
/// Covers: SRS-10.
#[test]
fn an_early_failure_waits_for_announced_data() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[("InitialR2T", "No")]);
            // Behind the end of the unit, and in a unit that is not there.
            for (lun, block) in [(0, u32::MAX - 8), (77, 0)] {
                let write = session.write_blocks(lun, block, 8);
                let write = ScsiCommand { final_: false, ..write };
                session.send(&Request::Command(write), &[1; 512]);
                session.expect_quiet();
                let part = DataOut {
                    final_: false,
                    lun: write.lun,
                    itt: write.itt,
                    ttt: Ttt::NONE,
                    exp_stat_sn: session.exp_stat_sn,
                    data_sn: DataSn(0),
                    offset: 512,
                };
                session.send(&Request::DataOut(part), &[1; 512]);
                session.expect_quiet();
                let last = DataOut { final_: true, data_sn: DataSn(1), offset: 1024, ..part };
                session.send(&Request::DataOut(last), &[1; 3072]);
                let status = session.finish(write.itt);
                assert_eq!((status.code, status.sense_code().0), (2, 5));
            }
        },
    );
}

/// F=0 although the immediate data is the whole first burst: an empty PDU with F ends it.
#[test]
fn an_unsolicited_burst_may_be_empty() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [("InitialR2T", "No"), ("FirstBurstLength", "512")];
            let mut session = session(server, &keys);
            for blocks in [1, 2] {
                let write = session.write_blocks(0, 0, blocks);
                let write = ScsiCommand { final_: false, ..write };
                session.send(&Request::Command(write), &[3; 512]);
                let last = DataOut {
                    final_: true,
                    lun: write.lun,
                    itt: write.itt,
                    ttt: Ttt::NONE,
                    exp_stat_sn: session.exp_stat_sn,
                    data_sn: DataSn(0),
                    offset: 512,
                };
                session.send(&Request::DataOut(last), &[]);
                if blocks == 2 {
                    let r2t = session.read_r2t();
                    assert_eq!((r2t.offset, r2t.desired_length), (512, 512));
                    let part = session.data_out(&r2t);
                    session.send(&Request::DataOut(part), &[3; 512]);
                }
                assert_eq!(session.finish(write.itt).code, 0);
            }
        },
    );
}

/// Commands whose length and direction do not fit what the CDB does.
///
/// Covers: SRS-04, SCC-15.
#[test]
fn lengths_and_directions_that_do_not_fit_the_command() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[]);
            let read = session.read_blocks(0, 0, 1);
            let read = ScsiCommand { read: false, expected_length: 0, ..read };
            let status = session.run(&read);
            assert_eq!((status.code, status.residual), (0, Residual::Overflow(512)));
            let write = session.write_blocks(0, 0, 1);
            let write = ScsiCommand { write: false, expected_length: 0, ..write };
            assert_eq!(session.run(&write).residual, Residual::Overflow(512));
            // A READ that is said to write: whatever the answer, the session goes on.
            let read = session.read_blocks(0, 0, 1);
            let read = ScsiCommand { read: false, write: true, ..read };
            session.send(&Request::Command(read), &[1; 512]);
            session.finish(read.itt);
            let write = session.write_blocks(0, 8, 1);
            let write = ScsiCommand { read: true, write: false, ..write };
            session.run(&write);
            session.expect_quiet();
            let read = session.read_blocks(0, 8, 1);
            assert_eq!(session.run(&read).data, [0; 512]);
        },
    );
}

/// Initiators that come and go while others work.
///
/// Covers: ERL-05a/T.
#[test]
fn connections_may_be_cut_at_any_byte() {
    on_each_engine(
        |_| {},
        |server| {
            let mut bystander = session(server, &[]);
            let plan = LoginPlan::new();
            for cut in 0..200 {
                let mut session = server.login_with(&plan);
                session.settle(0);
                let mut bytes = Vec::new();
                let write = session.write_blocks(0, 0, 1);
                bytes.extend(session.raw.assemble(&header(&Request::Command(write), 64), &[1; 64]));
                let read = session.read_blocks(0, 0, 1);
                bytes.extend(session.raw.assemble(&header(&Request::Command(read), 0), &[]));
                bytes.truncate(cut);
                session.raw.write(&bytes);
            }
            let read = bystander.read_blocks(0, 0, 1);
            assert_eq!(bystander.run(&read).data, [0; 512]);
        },
    );
}

/// So many WRITEs of 64 KiB at once.
const WRITES: u32 = 60;
const WRITE_BLOCKS: u16 = 128;

/// Sends WRITEs of ones to the file and waits for none of them.
fn flood(session: &mut Initiator) {
    let mut bytes = Vec::new();
    let data = vec![1; usize::from(WRITE_BLOCKS) * BLOCK_BYTES];
    for index in 0..WRITES {
        let write = session.write_blocks(FILE_LUN, index * u32::from(WRITE_BLOCKS), WRITE_BLOCKS);
        let header = header(&Request::Command(write), data.len());
        bytes.extend(session.raw.assemble(&header, &data));
    }
    session.raw.write(&bytes);
}

/// Writes twos over all of it, and finds nothing else there.
fn overwrite(session: &mut Initiator) {
    session.settle(FILE_LUN);
    let data = vec![2; usize::from(WRITE_BLOCKS) * BLOCK_BYTES];
    for index in 0..WRITES {
        let write = session.write_blocks(FILE_LUN, index * u32::from(WRITE_BLOCKS), WRITE_BLOCKS);
        session.send(&Request::Command(write), &data);
        assert_eq!(session.finish(write.itt).code, 0);
    }
    for index in 0..WRITES {
        let read = session.read_blocks(FILE_LUN, index * u32::from(WRITE_BLOCKS), WRITE_BLOCKS);
        assert!(session.run(&read).data == data, "a write came after its end, in {index}");
    }
}

const FIRST_BURST: [(&str, &str); 2] =
    [("FirstBurstLength", "262144"), ("MaxRecvDataSegmentLength", "262144")];

/// Covers: SES-10, CLR-02.
#[test]
fn no_write_of_a_reinstated_session_reaches_the_medium() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new().with(&FIRST_BURST);
            for _ in 0..5 {
                let mut old = server.login_with(&plan);
                old.settle(FILE_LUN);
                flood(&mut old);
                let mut new = server.login_with(&plan);
                overwrite(&mut new);
            }
        },
    );
}

/// Covers: TMF-20, TMF-21.
#[test]
fn no_write_reaches_the_medium_after_a_reset() {
    on_each_engine(
        |_| {},
        |server| {
            let mut resetting = server.login_with(&LoginPlan::new().with(&FIRST_BURST));
            resetting.settle(FILE_LUN);
            for turn in 0..6 {
                let mut writing = server.login_with(&LoginPlan::new().with(&FIRST_BURST));
                writing.settle(FILE_LUN);
                flood(&mut writing);
                // All commands are there once an immediate ping behind them is answered.
                let ping = NopOut { immediate: true, ..writing.ping() };
                writing.send(&Request::NopOut(ping), &[]);
                while !matches!(writing.read().response(), Response::NopIn(_)) {}
                // The session is there still, or its connection has just been lost.
                let kept = (turn % 2 == 0).then_some(writing);
                let request = resetting.management(5, FILE_LUN, Itt::NONE);
                resetting.send(&Request::TaskManagement(request), &[]);
                assert_eq!(resetting.read_management(), 0);
                overwrite(&mut resetting);
                drop(kept);
            }
        },
    );
}

/// Covers: LGO-02.
#[test]
fn no_write_reaches_the_medium_after_a_logout() {
    on_each_engine(
        |_| {},
        |server| {
            let mut other = server.login_with(&LoginPlan::new().with(&FIRST_BURST));
            other.settle(FILE_LUN);
            for reason in [0, 1, 0, 1] {
                let mut writing = server.login_with(&LoginPlan::new().with(&FIRST_BURST));
                writing.settle(FILE_LUN);
                flood(&mut writing);
                let request = writing.logout(reason);
                writing.send(&Request::Logout(request), &[]);
                while !matches!(writing.read().response(), Response::Logout(_)) {}
                overwrite(&mut other);
            }
        },
    );
}

/// Who lost commands to a reset hears of it, also when who asked has gone before it was done.
///
/// Covers: TMF-21.
#[test]
fn a_reset_is_carried_out_for_who_has_gone() {
    on_each_engine(
        |_| {},
        |server| {
            if server.is_over_frames() {
                return;
            }
            for _ in 0..4 {
                let mut writing = server.login_with(&LoginPlan::new().with(&FIRST_BURST));
                let mut resetting = server.login_with(&LoginPlan::new().with(&FIRST_BURST));
                writing.settle(FILE_LUN);
                resetting.settle(FILE_LUN);
                flood(&mut writing);
                let ping = NopOut { immediate: true, ..writing.ping() };
                writing.cmd_sn = ping.cmd_sn;
                writing.send(&Request::NopOut(ping), &[]);
                while !matches!(writing.read().response(), Response::NopIn(_)) {}
                let request = resetting.management(5, FILE_LUN, Itt::NONE);
                resetting.send(&Request::TaskManagement(request), &[]);
                drop(resetting);
                let begun = Instant::now();
                let mut told = false;
                while !told && begun.elapsed() < Duration::from_secs(5) {
                    std::thread::sleep(Duration::from_millis(5));
                    let ready = writing.test_unit_ready(FILE_LUN);
                    writing.start(&ScsiCommand { attribute: Attribute::HeadOfQueue, ..ready });
                    // What was not ended has its status, too.
                    told = loop {
                        let pdu = writing.read();
                        let Response::Scsi(answer) = pdu.response() else { continue };
                        if answer.itt == ready.itt {
                            break answer.status == 2 && pdu.data[14..16] == [0x29, 0x03];
                        }
                    };
                }
                assert!(told, "a unit attention was due");
            }
        },
    );
}
