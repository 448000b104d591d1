// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that is lost or corrupt at ErrorRecoveryLevel 1: recovery R2T and R2T SNACK (RFC 7143
//! §7.8, §11.8).

#![allow(clippy::cast_possible_truncation)] // lengths of the tests themselves

use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::header;
use lunwire_conformance::*;
use wire::iscsi::*;

/// Bytes of a Data-Out here.
const SEGMENT: usize = 1024;

/// Bytes of a burst: four PDUs.
const BURST: usize = 4 * SEGMENT;

/// Blocks of a write: three bursts.
const BLOCKS: u16 = (3 * BURST / 512) as u16;

fn recovering(server: &Server, keys: &[(&str, &str)]) -> Initiator {
    let plan = LoginPlan::new()
        .with(&[("ErrorRecoveryLevel", "1"), ("DataDigest", "CRC32C")])
        .with(&[("MaxBurstLength", "4096"), ("FirstBurstLength", "4096")])
        .with(keys);
    let mut session = server.login_with(&plan);
    assert_eq!(session.answer("ErrorRecoveryLevel"), Some("1"));
    session.settle(0);
    session
}

/// What happens to one Data-Out of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Corrupt,
    Lost,
}

/// Sends a burst in PDUs of `SEGMENT` bytes; the one at `place` has the fault.
fn send_burst(
    session: &mut Initiator,
    first: &DataOut,
    data: &[u8],
    fault: Option<(usize, Fault)>,
) {
    let count = data.len().div_ceil(SEGMENT);
    for (index, part) in data.chunks(SEGMENT).enumerate() {
        let pdu = DataOut {
            final_: index + 1 == count,
            data_sn: DataSn(index as u32),
            offset: first.offset + (index * SEGMENT) as u32,
            ..*first
        };
        let request = Request::DataOut(pdu);
        let mut bytes = session.raw.assemble(&header(&request, part.len()), part);
        match fault {
            Some((at, Fault::Lost)) if at == index => continue,
            Some((at, Fault::Corrupt)) if at == index => bytes[60] ^= 1,
            _ => {}
        }
        session.raw.write(&bytes);
    }
}

fn read_back(session: &mut Initiator, blocks: u16) -> Vec<u8> {
    let command = session.read_blocks(0, 0, blocks);
    let status = session.run(&command);
    assert_eq!(status.code, GOOD);
    status.data
}

/// Each digest of each burst is wrong once; each PDU but the last of a burst is lost once.
///
/// Covers: DGT-06, DGT-05, R2T-07, DSN-03, ERL-02/T.
#[test]
fn what_was_corrupt_or_lost_is_asked_for_again() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[]);
            let faults = [Fault::Corrupt, Fault::Lost];
            let places = (0..3 * 4).flat_map(|place| faults.map(|fault| (place, fault)));
            // A lost last PDU is a matter of time, not of order.
            let places = places.filter(|(place, fault)| *fault == Fault::Corrupt || place % 4 != 3);
            for (seed, (place, fault)) in (0..).zip(places) {
                let data = pattern(3 * BURST, seed);
                let write = session.write_blocks(0, 0, BLOCKS);
                session.start(&write);
                let mut r2t_sn = 0;
                for burst in 0..3 {
                    let part = &data[burst * BURST..(burst + 1) * BURST];
                    let r2t = session.read_r2t();
                    let range = ((burst * BURST) as u32, BURST as u32);
                    assert_eq!((r2t.offset, r2t.desired_length), range);
                    assert_eq!(r2t.r2t_sn, R2tSn(r2t_sn));
                    r2t_sn += 1;
                    let first = session.data_out(&r2t);
                    let hit = (place / 4 == burst).then_some((place % 4, fault));
                    send_burst(&mut session, &first, part, hit);
                    if hit.is_none() {
                        continue;
                    }
                    if fault == Fault::Corrupt {
                        session.expect_reject(0x02);
                    }
                    let again = session.read_r2t();
                    assert_eq!((again.offset, again.desired_length), range, "{place} {fault:?}");
                    assert_eq!(again.r2t_sn, R2tSn(r2t_sn), "the next unused number");
                    assert_ne!(again.ttt, r2t.ttt);
                    r2t_sn += 1;
                    let first = session.data_out(&again);
                    send_burst(&mut session, &first, part, None);
                }
                assert_eq!(session.finish(write.itt).code, GOOD, "{place} {fault:?}");
                assert_eq!(read_back(&mut session, BLOCKS), data, "{place} {fault:?}");
            }
        },
    );
}

/// Covers: DGT-06.
#[test]
fn unsolicited_data_that_was_corrupt_is_asked_for() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[("InitialR2T", "No")]);
            for (seed, place) in (40..).zip(0..3) {
                let data = pattern(BURST, seed);
                let write = session.write_blocks(0, 0, 8);
                let write = ScsiCommand { final_: false, ..write };
                session.send(&Request::Command(write), &data[..SEGMENT]);
                let first = DataOut {
                    final_: false,
                    lun: write.lun,
                    itt: write.itt,
                    ttt: Ttt::NONE,
                    exp_stat_sn: session.exp_stat_sn,
                    data_sn: DataSn(0),
                    offset: SEGMENT as u32,
                };
                send_burst(&mut session, &first, &data[SEGMENT..], Some((place, Fault::Corrupt)));
                session.expect_reject(0x02);
                let r2t = session.read_r2t();
                assert_eq!((r2t.offset, r2t.desired_length), (SEGMENT as u32, 3 * SEGMENT as u32));
                assert_eq!(r2t.r2t_sn, R2tSn(0));
                let first = session.data_out(&r2t);
                send_burst(&mut session, &first, &data[SEGMENT..], None);
                assert_eq!(session.finish(write.itt).code, GOOD);
                assert_eq!(read_back(&mut session, 8), data);
            }
        },
    );
}

/// A path that corrupts everything: the command ends with an error in the end.
///
/// Covers: DGT-06.
#[test]
fn what_is_corrupt_again_and_again_fails() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = recovering(server, &[]);
            let write = session.write_blocks(0, 0, 8);
            session.start(&write);
            let mut r2ts = 0;
            let status = loop {
                match session.read().response() {
                    Response::R2t(r2t) => {
                        r2ts += 1;
                        let first = session.data_out(&r2t);
                        send_burst(&mut session, &first, &[7; BURST], Some((1, Fault::Corrupt)));
                        session.expect_reject(0x02);
                    }
                    Response::Scsi(answer) => break answer,
                    other => panic!("{other:?}"),
                }
            };
            assert!((2..64).contains(&r2ts), "{r2ts} tries");
            assert_eq!(status.status, 2);
            session.expect_quiet();
        },
    );
}

/// Covers: SNK-01, SNK-02, SNK-04, REJ-09, KEY-31/T, SNK-12/T.
#[test]
fn r2ts_are_sent_again_while_their_data_is_missing() {
    on_each_engine(
        |settings| settings.max_outstanding_r2t = 8,
        |server| {
            for keys in [
                [("MaxOutstandingR2T", "8"), ("DataPDUInOrder", "Yes")],
                [("DataSequenceInOrder", "Yes"), ("MaxOutstandingR2T", "8")],
            ] {
                let mut session = recovering(server, &keys);
                assert_eq!(session.answer("MaxOutstandingR2T"), Some("1"));
                let write = session.write_blocks(0, 0, BLOCKS);
                session.start(&write);
                let first = session.read();
                // One at a time, although the initiator would take eight.
                session.expect_quiet();
                let of = Snack { itt: write.itt, ..session.snack(0, session.exp_stat_sn) };
                for (beg_run, run_length) in [(0, 0), (0, 1)] {
                    // Another command and its answer have gone by.
                    let between = session.test_unit_ready(1);
                    session.run(&between);
                    let snack = Snack { beg_run, run_length, ..of };
                    session.send(&Request::Snack(snack), &[]);
                    let again = session.raw.read();
                    let mut expected = first.header.clone();
                    // StatSN, ExpCmdSN and MaxCmdSN are those of now.
                    expected[24..36].copy_from_slice(&again.header[24..36]);
                    assert_eq!(again.header, expected);
                    assert_eq!(again.word(24), session.exp_stat_sn.0);
                    assert_ne!(again.word(24), first.word(24));
                    assert_eq!(again.word(28), session.cmd_sn.0, "ExpCmdSN");
                }
                let r2t = match first.response() {
                    Response::R2t(r2t) => r2t,
                    other => panic!("{other:?}"),
                };
                let wrong = [(1, 1), (0, 2), (5, 0)];
                for (beg_run, run_length) in wrong {
                    let snack = Snack { beg_run, run_length, ..of };
                    session.send(&Request::Snack(snack), &[]);
                    assert_eq!(session.expect_reject(0x04).word(36), 1, "the next R2TSN");
                }
                let data = pattern(3 * BURST, 3);
                let out = session.data_out(&r2t);
                send_burst(&mut session, &out, &data[..BURST], None);
                let second = session.read_r2t();
                assert_eq!(second.r2t_sn, R2tSn(1));
                // Whatever is not answered yet: the second one alone.
                session.send(&Request::Snack(of), &[]);
                match session.raw.read().response() {
                    Response::R2t(again) => {
                        assert_eq!((again.r2t_sn, again.ttt), (second.r2t_sn, second.ttt));
                    }
                    other => panic!("{other:?}"),
                }
                // The first one's data is here.
                session.send(&Request::Snack(Snack { run_length: 1, ..of }), &[]);
                assert_eq!(session.expect_reject(0x04).word(36), 2);
                let out = session.data_out(&second);
                send_burst(&mut session, &out, &data[BURST..2 * BURST], None);
                let third = session.read_r2t();
                let out = session.data_out(&third);
                send_burst(&mut session, &out, &data[2 * BURST..], None);
                assert_eq!(session.finish(write.itt).code, GOOD);
                assert_eq!(read_back(&mut session, BLOCKS), data);
            }
        },
    );
}

/// Where data sequences may come in any order, recovery does not hold R2Ts back.
///
/// Covers: R2T-03.
#[test]
fn several_r2ts_are_open_where_sequences_may_come_in_any_order() {
    on_each_engine(
        |settings| settings.max_outstanding_r2t = 8,
        |server| {
            let keys = [("DataSequenceInOrder", "No"), ("MaxOutstandingR2T", "2")];
            let mut session = recovering(server, &keys);
            assert_eq!(session.answer("MaxOutstandingR2T"), Some("2"));
            let data = pattern(3 * BURST, 8);
            let write = session.write_blocks(0, 0, BLOCKS);
            session.start(&write);
            let (first, second) = (session.read_r2t(), session.read_r2t());
            session.expect_quiet();
            let give = |session: &mut Initiator, r2t: &R2t| {
                let from = r2t.offset as usize;
                let out = session.data_out(r2t);
                send_burst(session, &out, &data[from..from + BURST], None);
            };
            give(&mut session, &second);
            let third = session.read_r2t();
            assert_eq!((first.r2t_sn, third.r2t_sn), (R2tSn(0), R2tSn(2)));
            give(&mut session, &third);
            give(&mut session, &first);
            assert_eq!(session.finish(write.itt).code, GOOD);
            let read = session.read_blocks(0, 0, BLOCKS);
            assert!(session.run(&read).data == data);
        },
    );
}
