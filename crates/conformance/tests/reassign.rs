// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that go on over another connection at ErrorRecoveryLevel 2 (RFC 7143 §6.3.4, §7.2.2,
//! §11.14).

#![allow(clippy::cast_possible_truncation)] // lengths of the tests themselves

use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::*;
use wire::iscsi::*;

/// Bytes of a Data-In: the default MaxRecvDataSegmentLength.
const SEGMENT: usize = 8192;

/// Bytes of a burst of write data: two PDUs.
const BURST: usize = 2048;

const TASK_REASSIGN: u8 = 8;
const RECOVER: u8 = 2;

/// Answers to TASK REASSIGN (RFC 7143 §11.6.1).
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const STILL_ALLEGIANT: u8 = 3;

fn plan(keys: &[(&str, &str)]) -> LoginPlan {
    LoginPlan::new().with(&[("ErrorRecoveryLevel", "2"), ("DefaultTime2Retain", "20")]).with(keys)
}

fn login(server: &Server, plan: &LoginPlan) -> Initiator {
    let mut session = server.login_with(plan);
    assert_eq!(session.answer("ErrorRecoveryLevel"), Some("2"));
    assert_eq!(session.answer("DefaultTime2Retain"), Some("20"));
    session.settle(0);
    session
}

/// Another connection takes the place of `old`, which the target may or may not know to be gone.
fn replace(server: &Server, old: &Initiator, plan: &LoginPlan) -> Initiator {
    let plan = LoginPlan { exp_stat_sn: old.exp_stat_sn, ..plan.clone() };
    Initiator::rejoin(old, server.connect(), &plan)
}

fn reassign(session: &mut Initiator, task: Itt, from: u32) -> u8 {
    let request = session.management(TASK_REASSIGN, 0, task);
    let request = TaskManagementRequest { exp_data_sn: DataSn(from), ..request };
    session.send(&Request::TaskManagement(request), &[]);
    session.read_management()
}

fn fill(session: &mut Initiator, data: &[u8]) {
    let write = session.write_blocks(0, 0, (data.len() / 512) as u16);
    session.start(&write);
    give(session, write.itt, data);
}

/// Answers R2Ts until the status comes, which must be good; gives the R2Ts.
fn give(session: &mut Initiator, task: Itt, data: &[u8]) -> Vec<R2t> {
    let mut r2ts = Vec::new();
    loop {
        match session.read().response() {
            Response::R2t(r2t) => {
                let end = (r2t.offset + r2t.desired_length) as usize;
                let out = session.data_out(&r2t);
                session.send(&Request::DataOut(out), &data[r2t.offset as usize..end]);
                r2ts.push(r2t);
            }
            Response::Scsi(answer) => {
                assert_eq!((answer.itt, answer.status), (task, GOOD));
                return r2ts;
            }
            other => panic!("{other:?}"),
        }
    }
}

fn read_back(session: &mut Initiator, length: usize) -> Vec<u8> {
    let command = session.read_blocks(0, 0, (length / 512) as u16);
    let status = session.run(&command);
    assert_eq!(status.code, GOOD);
    status.data
}

/// Reads the rest of a command whose data begins with the DataSN `from`.
fn rest(session: &mut Initiator, task: Itt, from: u32) -> Vec<u8> {
    let mut data = Vec::new();
    for number in from.. {
        let pdu = session.read();
        match pdu.response() {
            Response::DataIn(part) => {
                assert_eq!((part.itt, part.data_sn), (task, DataSn(number)));
                data.extend_from_slice(&pdu.data);
            }
            Response::Scsi(answer) => {
                assert_eq!((answer.itt, answer.status), (task, GOOD));
                assert_eq!((answer.exp_data_sn, answer.snack_tag), (DataSn(number), 0));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    data
}

/// The connection is cut after each PDU of a read: what did not come comes over another one.
///
/// Covers: REA-03, REA-04, REA-05, SES-19, ERL-05a/T.
#[test]
fn a_read_goes_on_wherever_it_was_cut() {
    on_each_engine(
        |_| {},
        |server| {
            let expected = pattern(4 * SEGMENT, 9);
            let plan = plan(&[]);
            let mut session = login(server, &plan);
            fill(&mut session, &expected);
            for seen in 0..=4 {
                session.expect_quiet();
                let read = session.read_blocks(0, 0, 64);
                let acknowledged = session.exp_stat_sn;
                session.start(&read);
                let mut data = Vec::new();
                for _ in 0..seen {
                    data.extend_from_slice(&session.read().data);
                }
                // The status, if it came, was not acknowledged.
                session.exp_stat_sn = acknowledged;
                session.raw.finish();
                session = replace(server, &session, &plan);
                assert_eq!(reassign(&mut session, read.itt, seen), COMPLETE, "after {seen}");
                data.extend(rest(&mut session, read.itt, seen));
                assert_eq!(data, expected, "after {seen}");
                session.expect_quiet();
                session.expect_quiet();
                assert_eq!(reassign(&mut session, read.itt, 0), NO_TASK, "it is acknowledged");
            }
        },
    );
}

/// The connection is cut after each PDU of a write; the data that did not come is asked for again.
///
/// Covers: REA-10, REA-04, CLR-01a, CLR-01e, SES-19.
#[test]
fn a_write_goes_on_wherever_it_was_cut() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = plan(&[("MaxBurstLength", "2048"), ("FirstBurstLength", "2048")]);
            let mut session = login(server, &plan);
            // Nothing, the command, each of two PDUs for each of three R2Ts.
            for sent in 0..=6 {
                let data = pattern(3 * BURST, sent as u8 + 60);
                session.expect_quiet();
                let write = session.write_blocks(0, 0, 12);
                session.start(&write);
                let mut tags = Vec::new();
                for index in 0..sent {
                    if index % 2 == 0 {
                        tags.push(session.read_r2t());
                    }
                    let r2t = tags.last().expect("an R2T came");
                    let at = index * 1024;
                    let out = DataOut {
                        final_: index % 2 == 1,
                        data_sn: DataSn(index as u32 % 2),
                        offset: at as u32,
                        ..session.data_out(r2t)
                    };
                    session.send(&Request::DataOut(out), &data[at..at + 1024]);
                }
                session.raw.finish();
                let seen = tags.len() as u32;
                session = replace(server, &session, &plan);
                // A tag of the old connection means nothing.
                if let Some(r2t) = tags.last() {
                    let out = session.data_out(r2t);
                    session.send(&Request::DataOut(out), &[0; 512]);
                    session.expect_reject(0x09);
                }
                assert_eq!(reassign(&mut session, write.itt, seen), COMPLETE, "after {sent}");
                let r2ts = give(&mut session, write.itt, &data);
                assert_eq!(r2ts.is_empty(), sent == 6, "after {sent}");
                // An R2T that was under way when the line was cut is sent again under its number.
                assert!(r2ts.first().is_none_or(|r2t| r2t.r2t_sn.0 == seen), "{r2ts:?}");
                assert_eq!(read_back(&mut session, data.len()), data, "after {sent}");
            }
        },
    );
}

/// The header digest of each PDU of a write is wrong once: the stream cannot be trusted any more,
/// the connection is dropped, and the write goes on over another one.
///
/// Covers: ERL-05a/T, DGT-04/T, REA-10.
#[test]
fn a_write_goes_on_after_a_wrong_header_digest() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
            let plan = plan(&[("MaxBurstLength", "2048"), ("FirstBurstLength", "2048")]);
            let mut session = login(server, &plan.clone().with(&keys));
            for broken in 0..=4 {
                let data = pattern(2 * BURST, broken + 120);
                session.expect_quiet();
                let write = session.write_blocks(0, 0, 8);
                let corrupt = |session: &mut Initiator, request: &Request, data: &[u8]| {
                    let header = raw::header(request, data.len());
                    let mut bytes = session.raw.assemble(&header, data);
                    bytes[49] ^= 4;
                    session.raw.write(&bytes);
                };
                let mut r2ts = 0;
                if broken == 0 {
                    corrupt(&mut session, &Request::Command(write), &[]);
                } else {
                    session.start(&write);
                    let mut r2t = session.read_r2t();
                    r2ts = 1;
                    for index in 0..broken {
                        if index == 2 {
                            r2t = session.read_r2t();
                            r2ts = 2;
                        }
                        let at = usize::from(index) * 1024;
                        let out = Request::DataOut(DataOut {
                            final_: index % 2 == 1,
                            data_sn: DataSn(u32::from(index) % 2),
                            offset: at as u32,
                            ..session.data_out(&r2t)
                        });
                        let part = &data[at..at + 1024];
                        match index + 1 == broken {
                            true => corrupt(&mut session, &out, part),
                            false => session.send(&out, part),
                        }
                    }
                }
                // The news of the end counts as a response, which nobody has to acknowledge.
                session.expect_dropped();
                let next = LoginPlan { exp_stat_sn: session.exp_stat_sn, ..plan.clone() };
                session = Initiator::rejoin(&session, server.connect(), &next);
                if broken == 0 {
                    assert_eq!(reassign(&mut session, write.itt, 0), NO_TASK);
                    // It never came: it may be sent again as it was.
                    session.start(&write);
                } else {
                    assert_eq!(reassign(&mut session, write.itt, r2ts), COMPLETE);
                }
                let given = give(&mut session, write.itt, &data);
                assert_eq!(given.first().map(|r2t| r2t.r2t_sn), Some(R2tSn(r2ts)), "{broken}");
                assert_eq!(read_back(&mut session, data.len()), data, "PDU {broken}");
                // The next round has digests again.
                session = login(server, &LoginPlan { ..plan.clone().with(&keys) });
            }
        },
    );
}

/// Waits until the target has dealt with all that was sent: what it has not read when another
/// connection takes the place of this one never came. It may ask for more data meanwhile.
fn wait_until_heard(session: &mut Initiator) {
    let ping = NopOut { immediate: true, ..session.ping() };
    session.cmd_sn = ping.cmd_sn;
    session.send(&Request::NopOut(ping), b"heard");
    loop {
        match session.read().response() {
            Response::NopIn(answer) if answer.itt == ping.itt => return,
            Response::R2t(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Covers: REA-10.
#[test]
fn unsolicited_data_that_was_cut_is_asked_for() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = plan(&[("InitialR2T", "No"), ("FirstBurstLength", "4096")]);
            let mut session = login(server, &plan);
            for pdus in 0..3 {
                let data = pattern(2 * 4096, pdus as u8 + 90);
                session.expect_quiet();
                let write = ScsiCommand { final_: false, ..session.write_blocks(0, 0, 16) };
                session.send(&Request::Command(write), &data[..512]);
                for index in 0..pdus {
                    let at = 512 + index * 1024;
                    let out = DataOut {
                        final_: false,
                        lun: write.lun,
                        itt: write.itt,
                        ttt: Ttt::NONE,
                        exp_stat_sn: session.exp_stat_sn,
                        data_sn: DataSn(index as u32),
                        offset: at as u32,
                    };
                    session.send(&Request::DataOut(out), &data[at..at + 1024]);
                }
                wait_until_heard(&mut session);
                session.raw.finish();
                session = replace(server, &session, &plan);
                assert_eq!(reassign(&mut session, write.itt, 0), COMPLETE);
                let r2ts = give(&mut session, write.itt, &data);
                let mut asked: Vec<(u32, u32)> =
                    r2ts.iter().map(|r2t| (r2t.offset, r2t.desired_length)).collect();
                asked.sort_unstable();
                assert_eq!(asked.first(), Some(&(512, 3584)));
                assert_eq!(read_back(&mut session, data.len()), data);
            }
        },
    );
}

/// Two connections: the task of a lost one is reassigned after an explicit logout, not before.
///
/// Covers: REA-02, LGO-09, ERL-06.
#[test]
fn a_lost_connection_is_logged_out_over_another_one() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = plan(&[("MaxConnections", "2"), ("MaxBurstLength", "2048")]);
            let mut lost = login(server, &plan);
            let second = LoginPlan { cid: Cid(2), ..plan.clone() };
            let data = pattern(2 * BURST, 33);
            let write = lost.write_blocks(0, 0, 8);
            lost.start(&write);
            let r2t = lost.read_r2t();
            let mut session = Initiator::rejoin(&lost, server.connect(), &second);
            assert_eq!(reassign(&mut session, write.itt, 0), STILL_ALLEGIANT, "it is well");
            lost.raw.finish();
            match session.read().response() {
                Response::Async(news) => {
                    assert_eq!((news.event, news.parameter1), (2, 1));
                    assert_eq!((news.parameter2, news.parameter3), (2, 20));
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(reassign(&mut session, write.itt, 0), STILL_ALLEGIANT, "not logged out");
            let logout = |session: &mut Initiator, cid| {
                let request = LogoutRequest { cid, ..session.logout(RECOVER) };
                let request = LogoutRequest { exp_stat_sn: lost.exp_stat_sn, ..request };
                session.send(&Request::Logout(request), &[]);
                match session.read().response() {
                    Response::Logout(answer) => answer,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(logout(&mut session, Cid(9)).response, 1);
            let answer = logout(&mut session, Cid(1));
            assert_eq!((answer.response, answer.time2wait, answer.time2retain), (0, 2, 20));
            assert_eq!(reassign(&mut session, Itt(0x7777), 0), NO_TASK);
            assert_eq!(reassign(&mut session, write.itt, 1), COMPLETE);
            let r2ts = give(&mut session, write.itt, &data);
            assert_eq!(r2ts.len(), 2);
            assert_eq!((r2ts[0].offset, r2ts[0].r2t_sn), (r2t.offset, R2tSn(1)));
            assert_eq!(read_back(&mut session, data.len()), data);
        },
    );
}

/// A connection that works is logged out for recovery by itself, and by another one: nothing more
/// of its tasks comes there, and a command that was not in order counts as never sent.
///
/// Covers: LGO-03a, LGO-03b, LGO-06, LGO-09.
#[test]
fn a_working_connection_is_logged_out_for_recovery() {
    on_each_engine(
        |_| {},
        |server| {
            for by_itself in [true, false] {
                let plan = plan(&[("MaxConnections", "2"), ("MaxBurstLength", "2048")]);
                let mut old = login(server, &plan);
                let second = LoginPlan { cid: Cid(2), ..plan.clone() };
                let data = pattern(2 * BURST, 44);
                let write = old.write_blocks(0, 0, 8);
                old.start(&write);
                old.read_r2t();
                let missing = old.test_unit_ready(0);
                let ahead = old.test_unit_ready(0);
                old.start(&ahead);
                let mut session = match by_itself {
                    true => {
                        let request = old.logout(RECOVER);
                        old.send(&Request::Logout(request), &[]);
                        let pdu = old.read();
                        let Response::Logout(answer) = pdu.response() else { panic!("{pdu:?}") };
                        let times = (answer.time2wait, answer.time2retain);
                        assert_eq!((answer.response, times), (0, (2, 20)));
                        old.expect_closed();
                        Initiator::rejoin(&old, server.connect(), &second)
                    }
                    false => {
                        // All that was sent has been taken.
                        let mut ping = old.ping();
                        (ping.immediate, old.cmd_sn) = (true, ping.cmd_sn);
                        old.send(&Request::NopOut(ping), &[]);
                        assert!(matches!(old.read().response(), Response::NopIn(_)));
                        let mut session = Initiator::rejoin(&old, server.connect(), &second);
                        let request = session.logout(RECOVER);
                        let exp_stat_sn = old.exp_stat_sn;
                        let request = LogoutRequest { exp_stat_sn, ..request };
                        session.send(&Request::Logout(request), &[]);
                        let pdu = session.read();
                        let Response::Logout(answer) = pdu.response() else { panic!("{pdu:?}") };
                        assert_eq!(answer.response, 0);
                        old.expect_closed();
                        session
                    }
                };
                assert_eq!(reassign(&mut session, write.itt, 1), COMPLETE);
                give(&mut session, write.itt, &data);
                // The hole is filled; what stood behind it must be sent again.
                assert_eq!(session.run(&missing).code, GOOD);
                session.expect_quiet();
                assert_eq!(session.run(&ahead).code, GOOD);
                assert_eq!(read_back(&mut session, data.len()), data);
            }
        },
    );
}

/// Covers: SES-16, SES-12, SES-24.
#[test]
fn a_connection_is_cleaned_up_over_a_second_one_where_only_one_is_allowed() {
    on_each_engine(
        |settings| settings.max_connections = 1,
        |server| {
            let plan = plan(&[("MaxConnections", "1")]);
            let mut old = login(server, &plan);
            let read = old.read_blocks(0, 0, 16);
            old.start(&read);
            // The target has the read before it hears of the new connection. The old one is open,
            // and says what it has to say.
            old.raw.read();
            let mut session = replace(server, &old, &plan);
            assert_eq!(reassign(&mut session, read.itt, 0), COMPLETE);
            assert_eq!(rest(&mut session, read.itt, 0).len(), SEGMENT);
            session.expect_quiet();
            // With the session left without any connection, too.
            let read = session.read_blocks(0, 0, 16);
            session.start(&read);
            let request = session.logout(RECOVER);
            session.send(&Request::Logout(request), &[]);
            while session.raw.hear(raw::PATIENCE) != Heard::Closed {}
            let other = LoginPlan { cid: Cid(7), ..plan };
            let mut session = Initiator::rejoin(&session, server.connect(), &other);
            assert_eq!(reassign(&mut session, read.itt, 0), COMPLETE);
            rest(&mut session, read.itt, 0);
            session.expect_quiet();
        },
    );
}

/// Covers: REA-05, REA-08/T.
#[test]
fn only_a_valid_exp_data_sn_counts() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = plan(&[("MaxBurstLength", "16384")]);
            let mut session = login(server, &plan);
            // Given, and where the data begins: DataSN 0 and 1 are acknowledged.
            for (given, begins) in [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4), (5, 2), (77, 2)] {
                session.expect_quiet();
                let acknowledged = session.exp_stat_sn;
                let read = session.read_blocks(0, 0, 64);
                session.start(&read);
                let pdus: Vec<Pdu> = (0..4).map(|_| session.read()).collect();
                let Response::DataIn(asks) = pdus[1].response() else { panic!("{pdus:?}") };
                assert!(asks.acknowledge);
                let ack = session.snack(2, acknowledged);
                let ack = Snack { lun: asks.lun, tag: asks.ttt.0, beg_run: 2, ..ack };
                session.send(&Request::Snack(ack), &[]);
                // A tag that the old connection gave.
                let r_data = Snack { itt: read.itt, tag: 5, ..session.snack(3, acknowledged) };
                session.send(&Request::Snack(r_data), &[]);
                for _ in 0..3 {
                    session.raw.read();
                }
                session.exp_stat_sn = acknowledged;
                session.raw.finish();
                session = replace(server, &session, &plan);
                assert_eq!(reassign(&mut session, read.itt, given), COMPLETE);
                let data = rest(&mut session, read.itt, begins);
                assert_eq!(data.len(), (4 - begins as usize) * SEGMENT, "ExpDataSN {given}");
            }
        },
    );
}

/// The login that replaces a connection acknowledges what that one sent, and so does a logout.
///
/// Covers: REA-04, CLR-01f.
#[test]
fn a_status_that_the_logout_acknowledges_is_not_sent_again() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = plan(&[]);
            let mut old = login(server, &plan);
            old.expect_quiet();
            let acknowledged = old.exp_stat_sn;
            let first = old.test_unit_ready(0);
            assert_eq!(old.run(&first).code, GOOD);
            let second = old.test_unit_ready(0);
            old.start(&ScsiCommand { exp_stat_sn: acknowledged, ..second });
            old.raw.read();
            old.raw.finish();
            let mut session = replace(server, &old, &plan);
            assert_eq!(reassign(&mut session, first.itt, 0), NO_TASK);
            assert_eq!(reassign(&mut session, second.itt, 0), COMPLETE);
            assert_eq!(session.finish(second.itt).code, GOOD);
            session.expect_quiet();
        },
    );
}

/// Data that could not be kept: the command ends with an error instead of data.
///
/// Covers: REA-04, DGT-10b.
#[test]
fn a_read_whose_data_is_gone_ends_with_an_error() {
    on_each_engine(
        |settings| settings.kept_bytes_max = SEGMENT,
        |server| {
            let plan = plan(&[]);
            let mut session = login(server, &plan);
            session.expect_quiet();
            for (seen, sense) in [(1, true), (2, false)] {
                let acknowledged = session.exp_stat_sn;
                let read = session.read_blocks(0, 0, 32);
                session.start(&read);
                for _ in 0..2 {
                    session.read();
                }
                session.exp_stat_sn = acknowledged;
                session.raw.finish();
                session = replace(server, &session, &plan);
                assert_eq!(reassign(&mut session, read.itt, seen), COMPLETE);
                let status = session.finish(read.itt);
                assert!(status.data.is_empty());
                match sense {
                    true => assert_eq!(status.sense_code(), (0x0b, 0x11, 0x13)),
                    false => assert_eq!(status.code, GOOD),
                }
                session.expect_quiet();
            }
        },
    );
}

/// Session recovery is always possible: what waits to be reassigned ends with the old session.
///
/// Covers: ERL-08/T, CLR-02.
#[test]
fn session_reinstatement_ends_what_waits() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = plan(&[]);
            let mut old = login(server, &plan);
            let write = old.write_blocks(0, 0, 8);
            old.start(&write);
            old.read_r2t();
            old.raw.finish();
            let mut waiting = replace(server, &old, &plan);
            waiting.expect_quiet();
            let mut session = login(server, &plan);
            waiting.expect_closed();
            assert_eq!(reassign(&mut session, write.itt, 0), NO_TASK);
            session.expect_quiet();
        },
    );
}
