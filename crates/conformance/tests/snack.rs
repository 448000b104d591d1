// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is sent again at ErrorRecoveryLevel 1: status, data, R2T (RFC 7143 §7.8, §11.16).

#![allow(clippy::cast_possible_truncation)] // lengths of the tests themselves

use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::header;
use lunwire_conformance::*;
use wire::iscsi::*;

/// SNACK types (RFC 7143 §11.16.1).
const DATA: u8 = 0;
const STATUS: u8 = 1;
const DATA_ACK: u8 = 2;
const R_DATA: u8 = 3;

/// Bytes of a Data-In: the default MaxRecvDataSegmentLength.
const SEGMENT: usize = 8192;

fn recovering(server: &Server, keys: &[(&str, &str)]) -> Initiator {
    let plan = LoginPlan::new().with(&[("ErrorRecoveryLevel", "1")]).with(keys);
    let mut session = server.login_with(&plan);
    assert_eq!(session.answer("ErrorRecoveryLevel"), Some("1"));
    session.settle(0);
    session
}

/// The header without what RFC 7143 §11.16 lets differ: ExpCmdSN, MaxCmdSN, and ExpDataSN, which
/// in a Data-In is its DataSN.
fn replica(pdu: &Pdu) -> (Vec<u8>, Vec<u8>) {
    let mut header = pdu.header.clone();
    header[28..36].fill(0);
    (header, pdu.data.clone())
}

fn send_snack(session: &mut Initiator, snack: Snack) {
    session.send(&Request::Snack(snack), &[]);
}

/// Panics unless the SNACK is rejected; gives the Reject.
fn refused(session: &mut Initiator, snack: Snack, reason: u8) -> Pdu {
    send_snack(session, snack);
    let reject = session.expect_reject(reason);
    assert_eq!(reject.data, header(&Request::Snack(snack), 0));
    reject
}

/// Sends a read and gives all its PDUs: Data-In, the last one with the status.
fn read_pdus(session: &mut Initiator, command: &ScsiCommand) -> Vec<Pdu> {
    session.start(command);
    let mut pdus = Vec::new();
    loop {
        let pdu = session.read();
        let Response::DataIn(part) = pdu.response() else { panic!("{pdu:?}") };
        pdus.push(pdu);
        assert_eq!(part.itt, command.itt);
        if let Some(status) = part.status {
            assert_eq!(status.status, GOOD);
            return pdus;
        }
    }
}

fn write(session: &mut Initiator, block: u32, data: &[u8]) {
    let count = u16::try_from(data.len() / 512).expect("a short write");
    let command = session.write_blocks(0, block, count);
    session.start(&command);
    let mut at = 0;
    while at < data.len() {
        let r2t = session.read_r2t();
        let burst = &data[at..at + r2t.desired_length as usize];
        for (sn, part) in (0..).zip(burst.chunks(SEGMENT)) {
            let last = (sn as usize + 1) * SEGMENT >= burst.len();
            let pdu = DataOut {
                final_: last,
                data_sn: DataSn(sn),
                offset: r2t.offset + sn * SEGMENT as u32,
                ..session.data_out(&r2t)
            };
            session.send(&Request::DataOut(pdu), part);
        }
        at += burst.len();
    }
    assert_eq!(session.finish(command.itt).code, GOOD);
}

/// An initiator that wants the smallest bursts gets them, each with F; few of them ask to be
/// acknowledged, and any part comes again just as it was.
///
/// Covers: DIN-01, SNK-07, SNK-03.
#[test]
fn a_long_read_in_the_smallest_bursts() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[("MaxBurstLength", "512")]);
            let read = session.read_blocks(0, 0, 2048);
            let pdus = read_pdus(&mut session, &read);
            assert_eq!(pdus.len(), 2048);
            let mut asking = 0;
            for (number, pdu) in (0..).zip(&pdus) {
                let Response::DataIn(part) = pdu.response() else { panic!("{pdu:?}") };
                assert_eq!((part.data_sn, part.offset), (DataSn(number), number * 512));
                assert!(part.final_ && pdu.data.len() == 512);
                asking += u32::from(part.acknowledge);
            }
            assert!((1..64).contains(&asking), "{asking} of 2048 ask to be acknowledged");
            let snack = Snack {
                itt: read.itt,
                beg_run: 100,
                run_length: 300,
                ..session.snack(DATA, StatSn(session.exp_stat_sn.0 - 1))
            };
            send_snack(&mut session, snack);
            for pdu in &pdus[100..400] {
                assert!(replica(&session.read()) == replica(pdu), "{:?}", pdu.header);
            }
        },
    );
}

/// Covers: ERL-02/T, ERL-03/T, REA-02.
#[test]
fn the_lower_level_is_agreed_on() {
    for own in [0, 1, 2] {
        on_each_engine(
            |settings| settings.error_recovery_level = own,
            |server| {
                for offer in [0, 1, 2] {
                    let level = offer.to_string();
                    let plan = LoginPlan::new().with(&[("ErrorRecoveryLevel", &level)]);
                    let mut session = server.login_with(&plan);
                    let agreed = own.min(offer);
                    assert_eq!(session.answer("ErrorRecoveryLevel"), Some(&*agreed.to_string()));
                    session.settle(0);
                    // A status that was not acknowledged is sent again above level 0.
                    session.expect_quiet();
                    let before = session.exp_stat_sn;
                    let ready = session.test_unit_ready(0);
                    session.start(&ready);
                    let status = session.read();
                    let snack = session.snack(STATUS, before);
                    send_snack(&mut session, snack);
                    if agreed == 0 {
                        session.expect_reject(0x05);
                    } else {
                        assert_eq!(replica(&session.raw.read()), replica(&status));
                    }
                    let reassign = session.management(8, 0, Itt(0x7777));
                    session.send(&Request::TaskManagement(reassign), &[]);
                    assert_eq!(session.read_management(), if agreed < 2 { 4 } else { 1 });
                    if agreed < 2 {
                        let logout = session.logout(2);
                        session.send(&Request::Logout(logout), &[]);
                        match session.read().response() {
                            Response::Logout(answer) => assert_eq!(answer.response, 2),
                            other => panic!("{other:?}"),
                        }
                    }
                    session.expect_quiet();
                }
            },
        );
    }
}

/// Covers: SNK-02, SNK-12/T, STS-09, STS-06, REJ-05, SNK-04, FMT-03/T.
#[test]
fn responses_are_sent_again_until_they_are_acknowledged() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[]);
            session.expect_quiet();
            let before = session.exp_stat_sn;
            // Nothing after this acknowledges anything.
            let mut heard = Vec::new();
            let command = session.test_unit_ready(0);
            session.start(&ScsiCommand { exp_stat_sn: before, ..command });
            heard.push(session.read());
            let bad = session.command(0, &[0xff]);
            session.start(&ScsiCommand { exp_stat_sn: before, ..bad });
            heard.push(session.read());
            let ping = session.ping();
            session.send(&Request::NopOut(NopOut { exp_stat_sn: before, ..ping }), b"again");
            heard.push(session.read());
            let abort = session.management(1, 0, Itt(0x7777));
            let abort = TaskManagementRequest { exp_stat_sn: before, ..abort };
            session.send(&Request::TaskManagement(abort), &[]);
            heard.push(session.read());
            let snack = Snack { kind: 9, ..session.snack(STATUS, before) };
            send_snack(&mut session, snack);
            heard.push(session.expect_reject(0x09));

            // A status that travels with data; the data before it is not sent again.
            let read = session.read_blocks(0, 0, 32);
            let pdus = read_pdus(&mut session, &ScsiCommand { exp_stat_sn: before, ..read });
            heard.extend(pdus.into_iter().next_back());

            let first = before.0;
            let runs = [
                (0, 0, 0..6),
                (first, 1, 0..1),
                (first + 1, 3, 1..4),
                (first + 3, 0, 3..6),
                (first + 5, 1, 5..6),
            ];
            for (beg_run, run_length, wanted) in runs {
                let snack = Snack { beg_run, run_length, ..session.snack(STATUS, before) };
                send_snack(&mut session, snack);
                for old in &heard[wanted] {
                    let again = session.raw.read();
                    assert_eq!(replica(&again), replica(old));
                    assert_eq!(again.word(28), session.cmd_sn.0, "ExpCmdSN is that of now");
                    assert_eq!(again.word(32), heard[5].word(32), "and MaxCmdSN");
                }
            }
            assert_ne!(heard[0].word(32), heard[5].word(32));
            // Never sent, or beyond what was sent.
            for (beg_run, run_length) in [(first + 6, 1), (first + 20, 0), (first, 9), (77, 3)] {
                let snack = Snack { beg_run, run_length, ..session.snack(STATUS, before) };
                refused(&mut session, snack, 0x04);
            }
            session.expect_quiet();
            session.expect_quiet();
            // Acknowledged.
            for run_length in [0, 1] {
                let now = session.exp_stat_sn;
                let snack = Snack { beg_run: first, run_length, ..session.snack(STATUS, now) };
                refused(&mut session, snack, 0x04);
            }
            session.expect_quiet();
        },
    );
}

/// Covers: SNK-03, SNK-12/T, SNK-04, REJ-09.
#[test]
fn data_is_sent_again_as_it_was() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[]);
            let old = pattern(8 * SEGMENT, 1);
            write(&mut session, 0, &old);
            session.expect_quiet();
            let read = session.read_blocks(0, 0, 128);
            let acknowledged = session.exp_stat_sn;
            let pdus = read_pdus(&mut session, &read);
            assert_eq!(pdus.len(), 8);
            let of = Snack { itt: read.itt, ..session.snack(DATA, acknowledged) };
            let runs = [(0, 0, 0..8), (2, 3, 2..5), (7, 1, 7..8), (5, 0, 5..8), (0, 2, 0..2)];
            for (beg_run, run_length, wanted) in runs {
                send_snack(&mut session, Snack { beg_run, run_length, ..of });
                for old in &pdus[wanted] {
                    assert_eq!(replica(&session.raw.read()), replica(old));
                }
            }
            for (beg_run, run_length) in [(8, 1), (8, 0), (0, 9), (100, 0), (7, u32::MAX)] {
                let reject = refused(&mut session, Snack { beg_run, run_length, ..of }, 0x04);
                assert_eq!(reject.word(36), 8, "the next DataSN");
            }
            for wrong in [Snack { itt: Itt::NONE, ..of }, Snack { tag: 7, ..of }] {
                refused(&mut session, wrong, 0x09);
            }
            refused(&mut session, Snack { itt: Itt(0x5555), ..of }, 0x04);
            session.expect_quiet();
            session.expect_quiet();
            let acknowledged = Snack { exp_stat_sn: session.exp_stat_sn, run_length: 1, ..of };
            refused(&mut session, acknowledged, 0x04);
        },
    );
}

/// A write between the first time and the second changes nothing.
///
/// Covers: SNK-03.
#[test]
fn data_that_was_overwritten_since_is_sent_again_as_it_was() {
    on_each_engine(
        |_| {},
        |server| {
            for lun in [0, server::FILE_LUN] {
                let mut session = recovering(server, &[("InitialR2T", "No")]);
                session.settle(lun);
                let fill = |session: &mut Initiator, byte: u8, acknowledged: StatSn| {
                    let command = session.write_blocks(lun, 8, 8);
                    let command = ScsiCommand { exp_stat_sn: acknowledged, ..command };
                    session.send(&Request::Command(command), &[byte; 4096]);
                    assert_eq!(session.finish(command.itt).code, GOOD);
                };
                let before = session.exp_stat_sn;
                fill(&mut session, 1, before);
                let acknowledged = session.exp_stat_sn;
                let read = session.read_blocks(lun, 8, 8);
                let pdus = read_pdus(&mut session, &read);
                fill(&mut session, 2, acknowledged);
                let snack = Snack { itt: read.itt, ..session.snack(DATA, acknowledged) };
                send_snack(&mut session, snack);
                let again = session.raw.read();
                assert_eq!(again.data, [1; 4096]);
                assert_eq!(replica(&again), replica(&pdus[0]));
            }
        },
    );
}

/// Covers: SNK-07, REJ-07, SNK-01, DIN-07b, DIN-10b, SNK-04, SNK-12/T.
#[test]
fn data_is_given_up_when_it_is_acknowledged() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[("MaxBurstLength", "16384")]);
            session.expect_quiet();
            let acknowledged = session.exp_stat_sn;
            let read = session.read_blocks(0, 0, 128);
            let pdus = read_pdus(&mut session, &read);
            let data_in = |pdu: &Pdu| match pdu.response() {
                Response::DataIn(part) => part,
                other => panic!("{other:?}"),
            };
            // A with F at the end of each burst, at most once each MaxBurstLength.
            for (number, pdu) in (0..).zip(&pdus[..8]) {
                let part = data_in(pdu);
                assert_eq!(part.data_sn, DataSn(number));
                assert_eq!(part.final_, number % 2 == 1, "{part:?}");
                assert_eq!(part.acknowledge, number % 2 == 1 && number < 7, "{part:?}");
                assert_eq!(part.ttt == Ttt::NONE, !part.acknowledge);
            }
            let asks = data_in(&pdus[3]);
            let ack = Snack {
                lun: asks.lun,
                tag: asks.ttt.0,
                beg_run: 4,
                ..session.snack(DATA_ACK, acknowledged)
            };
            for wrong in [
                Snack { tag: ack.tag + 100, ..ack },
                Snack { beg_run: 0, ..ack },
                Snack { beg_run: 9, ..ack },
                Snack { run_length: 1, ..ack },
                Snack { itt: read.itt, ..ack },
                Snack { lun: LunField([0, 9, 0, 0, 0, 0, 0, 0]), ..ack },
            ] {
                refused(&mut session, wrong, 0x08);
            }
            // Nothing of that has taken anything away.
            let of = Snack { itt: read.itt, ..session.snack(DATA, acknowledged) };
            send_snack(&mut session, Snack { run_length: 1, ..of });
            assert_eq!(replica(&session.raw.read()), replica(&pdus[0]));

            send_snack(&mut session, ack);
            refused(&mut session, Snack { beg_run: 3, run_length: 1, ..of }, 0x04);
            refused(&mut session, ack, 0x08);
            send_snack(&mut session, of);
            for old in &pdus[4..8] {
                assert_eq!(
                    replica(&session.raw.read()),
                    replica(old),
                    "all that is unacknowledged"
                );
            }
            session.expect_quiet();
        },
    );
}

/// An initiator that has got all of two reads acknowledges status and data at once: its DataACKs
/// carry the ExpStatSN that makes an end of both tasks.
///
/// Covers: SNK-07.
#[test]
fn data_may_be_acknowledged_with_its_status() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[("MaxBurstLength", "16384")]);
            let mut asked = Vec::new();
            for _ in 0..2 {
                let read = session.read_blocks(0, 0, 128);
                for pdu in read_pdus(&mut session, &read) {
                    if let Response::DataIn(part) = pdu.response()
                        && part.acknowledge
                    {
                        asked.push(part);
                    }
                }
            }
            assert_eq!(asked.len(), 6, "three bursts of each read but its last one");
            let acknowledged = session.exp_stat_sn;
            for part in &asked {
                let beg_run = part.data_sn.0 + 1;
                let ack = session.snack(DATA_ACK, acknowledged);
                send_snack(&mut session, Snack { lun: part.lun, tag: part.ttt.0, beg_run, ..ack });
            }
            session.expect_quiet();
            // One that was never asked for is wrong all the same.
            let tag = asked.iter().map(|part| part.ttt.0).max().expect("six of them") + 1;
            let ack = Snack { tag, beg_run: 2, ..session.snack(DATA_ACK, acknowledged) };
            refused(&mut session, ack, 0x08);
        },
    );
}

/// Covers: SNK-01, SRS-11, SNK-09a, SNK-09b.
#[test]
fn data_is_cut_anew_after_the_segment_length_changed() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[("MaxBurstLength", "16384")]);
            let old = pattern(4 * SEGMENT, 5);
            write(&mut session, 0, &old);
            session.expect_quiet();
            let acknowledged = session.exp_stat_sn;
            let read = session.read_blocks(0, 0, 64);
            let pdus = read_pdus(&mut session, &read);
            let status = pdus[3].word(24);
            let asks = match pdus[1].response() {
                Response::DataIn(part) if part.acknowledge => part,
                other => panic!("{other:?}"),
            };

            let shorter = TextRequest { exp_stat_sn: acknowledged, ..session.text() };
            session
                .send(&Request::Text(shorter), &raw::text(&[("MaxRecvDataSegmentLength", "4096")]));
            assert!(matches!(session.read().response(), Response::Text(_)));
            // Only an R-Data SNACK may ask now.
            let of = Snack { itt: read.itt, ..session.snack(DATA, acknowledged) };
            refused(&mut session, of, 0x04);

            let r_data = Snack { tag: 0x1234, kind: R_DATA, ..of };
            for wrong in [
                Snack { tag: 0, ..r_data },
                Snack { tag: u32::MAX, ..r_data },
                Snack { beg_run: 1, ..r_data },
                Snack { run_length: 1, ..r_data },
                Snack { itt: Itt::NONE, ..r_data },
            ] {
                refused(&mut session, wrong, 0x09);
            }
            let check = |session: &mut Initiator, tag: u32, from: usize, first: u32| {
                let mut at = from;
                for number in first.. {
                    let pdu = session.raw.read();
                    match pdu.response() {
                        Response::DataIn(part) => {
                            assert_eq!(part.data_sn, DataSn(number));
                            assert_eq!((part.offset as usize, pdu.data.len()), (at, 4096));
                            assert_eq!(pdu.data, old[at..at + 4096]);
                            at += 4096;
                        }
                        Response::Scsi(answer) => {
                            assert_eq!((at, answer.snack_tag), (old.len(), tag));
                            assert_eq!(answer.numbers.stat_sn.0, status);
                            assert_eq!(answer.exp_data_sn, DataSn(number));
                            return;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            };
            send_snack(&mut session, r_data);
            check(&mut session, 0x1234, 0, 0);
            // The status is now the latest one.
            let lost =
                Snack { beg_run: status, run_length: 1, ..session.snack(STATUS, acknowledged) };
            send_snack(&mut session, lost);
            match session.raw.read().response() {
                Response::Scsi(answer) => {
                    assert_eq!((answer.snack_tag, answer.numbers.stat_sn.0), (0x1234, status));
                    assert_eq!(answer.exp_data_sn, DataSn(8));
                }
                other => panic!("{other:?}"),
            }
            // The tag of the old burst means nothing any more, that of the new one does.
            let ack = Snack { lun: asks.lun, tag: asks.ttt.0, beg_run: 2, ..of };
            refused(&mut session, Snack { kind: DATA_ACK, itt: Itt::NONE, ..ack }, 0x08);
            session.expect_quiet();
        },
    );
}

/// Covers: SNK-09a, SNK-09b.
#[test]
fn data_is_cut_anew_from_what_was_acknowledged() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[("MaxBurstLength", "16384")]);
            session.expect_quiet();
            let acknowledged = session.exp_stat_sn;
            let read = session.read_blocks(0, 0, 64);
            let pdus = read_pdus(&mut session, &read);
            let asks = match pdus[1].response() {
                Response::DataIn(part) => part,
                other => panic!("{other:?}"),
            };
            let ack = session.snack(DATA_ACK, acknowledged);
            send_snack(&mut session, Snack { lun: asks.lun, tag: asks.ttt.0, beg_run: 2, ..ack });
            let longer = TextRequest { exp_stat_sn: acknowledged, ..session.text() };
            session
                .send(&Request::Text(longer), &raw::text(&[("MaxRecvDataSegmentLength", "65536")]));
            assert!(matches!(session.read().response(), Response::Text(_)));
            let r_data = session.snack(R_DATA, acknowledged);
            send_snack(&mut session, Snack { itt: read.itt, tag: 9, ..r_data });
            let pdu = session.raw.read();
            match pdu.response() {
                Response::DataIn(part) => {
                    assert_eq!((part.data_sn, part.offset), (DataSn(2), 16384));
                    assert_eq!((pdu.data.len(), part.final_), (16384, true));
                }
                other => panic!("{other:?}"),
            }
            match session.raw.read().response() {
                Response::Scsi(answer) => {
                    assert_eq!((answer.snack_tag, answer.exp_data_sn), (9, DataSn(3)));
                }
                other => panic!("{other:?}"),
            }
            session.expect_quiet();
        },
    );
}

/// Covers: DGT-10a.
#[test]
fn data_that_was_not_kept_is_refused() {
    on_each_engine(
        |settings| settings.kept_bytes_max = 4 * SEGMENT,
        |server| {
            let mut session = recovering(server, &[]);
            session.expect_quiet();
            let acknowledged = session.exp_stat_sn;
            // More than there is room for.
            let long = session.read_blocks(0, 0, 128);
            assert_eq!(read_pdus(&mut session, &long).len(), 8);
            // As much as there is room for, twice: the older one has to give way.
            let hold = |command: ScsiCommand| ScsiCommand { exp_stat_sn: acknowledged, ..command };
            let older = hold(session.read_blocks(0, 0, 64));
            read_pdus(&mut session, &older);
            let newer = hold(session.read_blocks(0, 0, 64));
            let pdus = read_pdus(&mut session, &newer);
            let snack = session.snack(DATA, acknowledged);
            for gone in [long.itt, older.itt] {
                refused(&mut session, Snack { itt: gone, ..snack }, 0x03);
                let tagged = Snack { itt: gone, tag: 5, kind: R_DATA, ..snack };
                refused(&mut session, tagged, 0x03);
            }
            send_snack(&mut session, Snack { itt: newer.itt, ..snack });
            for old in &pdus[..4] {
                assert_eq!(replica(&session.raw.read()), replica(old));
            }
            session.expect_quiet();
        },
    );
}

/// What a Data-Out acknowledges is not sent again.
///
/// Covers: STS-06.
#[test]
fn a_data_out_acknowledges_statuses() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[]);
            session.expect_quiet();
            let command = session.write_blocks(0, 0, 16);
            session.start(&command);
            let r2t = session.read_r2t();
            let before = session.exp_stat_sn;
            let ping = session.ping();
            session.send(&Request::NopOut(NopOut { exp_stat_sn: before, ..ping }), b"again");
            session.read();
            assert_eq!(session.exp_stat_sn.0, before.0.wrapping_add(1));
            // A part of the burst: no more than its header may be needed.
            let part = DataOut { final_: false, ..session.data_out(&r2t) };
            session.send(&Request::DataOut(part), &pattern(4096, 1));
            let snack = Snack { beg_run: before.0, run_length: 1, ..session.snack(STATUS, before) };
            refused(&mut session, snack, 0x04);
            let offset = r2t.offset + 4096;
            let rest = DataOut { data_sn: DataSn(1), offset, ..session.data_out(&r2t) };
            session.send(&Request::DataOut(rest), &pattern(4096, 2));
            assert_eq!(session.finish(command.itt).code, GOOD);
        },
    );
}
