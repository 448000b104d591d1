// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data-In, R2T, Data-Out: sequences, bounds, offsets (RFC 7143 §11.7, §11.8, §13.10 to §13.19).

use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::lun_field;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::*;
use wire::iscsi::*;

/// Small segments and bursts, so that little data makes many PDUs.
const SMALL: [(&str, &str); 3] = [
    ("MaxRecvDataSegmentLength", "1024"),
    ("MaxBurstLength", "2048"),
    ("FirstBurstLength", "1536"),
];
const INCORRECT_AMOUNT: (u8, u8, u8) = (0x0b, 0x0c, 0x0d);
const UNEXPECTED: (u8, u8, u8) = (0x0b, 0x0c, 0x0c);
const LOST_DATA: (u8, u8, u8) = (0x0b, 0x47, 0x05);

fn session(server: &Server, keys: &[(&str, &str)]) -> Initiator {
    let mut session = server.login_with(&LoginPlan::new().with(keys));
    session.settle(0);
    session
}

fn written(session: &mut Initiator, count: u16) -> Vec<u8> {
    let read = session.read_blocks(0, 0, count);
    session.run(&read).data
}

/// Covers: DIN-01, DIN-02, DIN-11, DIN-12, DIN-13/T, DIN-15/T, DSN-01, DIN-03a, DIN-07a, DIN-10b.
#[test]
fn data_in_comes_in_sequences_within_all_bounds() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &SMALL);
            let data = pattern(11 * BLOCK_BYTES, 3);
            let write = session.write_blocks(0, 0, 11);
            session.start(&write);
            loop {
                let pdu = session.read();
                let Response::R2t(r2t) = pdu.response() else { break };
                let from = r2t.offset as usize;
                let part = &data[from..from + r2t.desired_length as usize];
                let pdu = session.data_out(&r2t);
                session.send(&Request::DataOut(pdu), part);
            }
            let read = session.read_blocks(0, 0, 11);
            session.start(&read);
            let (mut at, mut data_sn) = (0, 0);
            loop {
                let pdu = session.read();
                let Response::DataIn(part) = pdu.response() else { panic!("{pdu:x?}") };
                assert_eq!((part.offset as usize, part.data_sn), (at, DataSn(data_sn)));
                assert!(pdu.data.len() <= 1024);
                assert_eq!(pdu.data, data[at..at + pdu.data.len()]);
                at += pdu.data.len();
                data_sn += 1;
                let sequence_ends = at % 2048 == 0 || at == data.len();
                assert_eq!(part.final_, sequence_ends, "F ends a sequence, at {at}");
                assert!(part.final_ || pdu.data.len().is_multiple_of(4));
                assert!(!part.acknowledge && part.ttt == Ttt::NONE);
                assert_eq!(part.status.is_some(), at == data.len(), "S on the last PDU only");
                if part.status.is_some() {
                    break;
                }
            }
        },
    );
}

/// Covers: R2T-01, R2T-02, R2T-03, R2T-04, R2T-05, R2T-09, DSN-03, STS-02, KEY-42a.
#[test]
fn r2ts_ask_for_adjoining_ranges_a_few_at_a_time() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [SMALL[0], SMALL[1], SMALL[2], ("MaxOutstandingR2T", "2")];
            let mut session = session(server, &keys);
            assert_eq!(session.answer("MaxOutstandingR2T"), Some("2"));
            let data = pattern(16 * BLOCK_BYTES, 9);
            let write = session.write_blocks(0, 0, 16);
            session.send(&Request::Command(write), &data[..1024]);
            let mut open = Vec::new();
            let (mut at, mut r2t_sn) = (1024, 0);
            while at < data.len() || !open.is_empty() {
                while at < data.len() && open.len() < 2 {
                    let pdu = session.read();
                    let Response::R2t(r2t) = pdu.response() else { panic!("{pdu:x?}") };
                    assert!(pdu.data.is_empty() && pdu.header.len() == 48);
                    assert_eq!((r2t.offset as usize, r2t.r2t_sn), (at, R2tSn(r2t_sn)));
                    assert!((1..=2048).contains(&r2t.desired_length));
                    assert!(open.iter().all(|other: &R2t| other.ttt != r2t.ttt));
                    at += r2t.desired_length as usize;
                    r2t_sn += 1;
                    open.push(r2t);
                }
                assert!(at <= data.len());
                session.expect_quiet();
                let r2t = open.remove(0);
                let from = r2t.offset as usize;
                let half = r2t.desired_length as usize / 2;
                let first = DataOut { final_: false, ..session.data_out(&r2t) };
                session.send(&Request::DataOut(first), &data[from..from + half]);
                // Half an answer is no answer: the R2T is open still.
                session.expect_quiet();
                let second = DataOut {
                    final_: true,
                    data_sn: DataSn(1),
                    offset: first.offset + u32::try_from(half).unwrap(),
                    ..first
                };
                let end = from + r2t.desired_length as usize;
                session.send(&Request::DataOut(second), &data[from + half..end]);
            }
            assert_eq!(session.finish(write.itt).code, 0);
            assert_eq!(written(&mut session, 16), data);
        },
    );
}

/// Every combination of InitialR2T and ImmediateData, and every way to send that it allows.
///
/// Covers: SCC-14, KEY-14a/T, KEY-15a/T, SCC-16/T.
#[test]
fn data_comes_solicited_and_unsolicited() {
    on_each_engine(
        |_| {},
        |server| {
            for (initial_r2t, immediate_data) in
                [("Yes", "Yes"), ("Yes", "No"), ("No", "Yes"), ("No", "No")]
            {
                let keys = [("InitialR2T", initial_r2t), ("ImmediateData", immediate_data)];
                let mut session = session(server, &[&SMALL[..], &keys[..]].concat());
                for immediate in [0, 512, 1024] {
                    for unsolicited in [false, true] {
                        if immediate > 0 && immediate_data == "No"
                            || unsolicited && initial_r2t == "Yes"
                        {
                            continue;
                        }
                        let seed = u8::try_from(immediate / 64).unwrap() + u8::from(unsolicited);
                        write_and_compare(&mut session, immediate, unsolicited, seed);
                    }
                }
            }
        },
    );
}

/// A WRITE of 8 blocks with some immediate data, with or without unsolicited PDUs up to 1536.
fn write_and_compare(session: &mut Initiator, immediate: usize, unsolicited: bool, seed: u8) {
    let data = pattern(8 * BLOCK_BYTES, seed);
    let write = session.write_blocks(0, 0, 8);
    let write = ScsiCommand { final_: !unsolicited, ..write };
    session.send(&Request::Command(write), &data[..immediate]);
    if unsolicited {
        let part = DataOut {
            final_: true,
            lun: write.lun,
            itt: write.itt,
            ttt: Ttt::NONE,
            exp_stat_sn: session.exp_stat_sn,
            data_sn: DataSn(0),
            offset: u32::try_from(immediate).expect("a short one"),
        };
        session.send(&Request::DataOut(part), &data[immediate..1536]);
    }
    let mut at = if unsolicited { 1536 } else { immediate };
    while at < data.len() {
        let r2t = session.read_r2t();
        assert_eq!(r2t.offset as usize, at, "nothing is asked for twice");
        at += r2t.desired_length as usize;
        let part = session.data_out(&r2t);
        session.send(&Request::DataOut(part), &data[r2t.offset as usize..at]);
    }
    assert_eq!(session.finish(write.itt).code, 0);
    assert_eq!(written(session, 8), data);
}

/// Covers: SCC-08, SRS-10.
#[test]
fn an_incorrect_amount_of_unsolicited_data_fails_the_command() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[&SMALL[..], &[("InitialR2T", "No")]].concat());
            for amount in [512, 1024, 2048] {
                let write = ScsiCommand { final_: false, ..session.write_blocks(0, 0, 8) };
                session.start(&write);
                let part = DataOut {
                    final_: true,
                    lun: write.lun,
                    itt: write.itt,
                    ttt: Ttt::NONE,
                    exp_stat_sn: session.exp_stat_sn,
                    data_sn: DataSn(0),
                    offset: 0,
                };
                session.send(&Request::DataOut(part), &vec![1; amount]);
                // What was asked for meanwhile must be answered before the status may come.
                let r2t = session.read_r2t();
                session.expect_quiet();
                let rest = session.data_out(&r2t);
                session.send(&Request::DataOut(rest), &vec![1; r2t.desired_length as usize]);
                let status = session.finish(write.itt);
                assert_eq!((status.code, status.sense_code()), (2, INCORRECT_AMOUNT));
            }
            assert_eq!(written(&mut session, 8), [0; 4096]);
        },
    );
}

/// The session goes on, and each command gets its own data.
///
/// Covers: SCC-11.
#[test]
fn unsolicited_data_of_two_commands_may_come_in_the_wrong_order() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[&SMALL[..], &[("InitialR2T", "No")]].concat());
            let writes = [0, 1].map(|block| {
                let write = session.write_blocks(0, block, 1);
                let write = ScsiCommand { final_: false, ..write };
                session.start(&write);
                write
            });
            for (write, byte) in writes.iter().zip([1, 2]).rev() {
                let part = DataOut {
                    final_: true,
                    lun: write.lun,
                    itt: write.itt,
                    ttt: Ttt::NONE,
                    exp_stat_sn: session.exp_stat_sn,
                    data_sn: DataSn(0),
                    offset: 0,
                };
                session.send(&Request::DataOut(part), &[byte; 512]);
                assert_eq!(session.finish(write.itt).code, 0);
            }
            assert_eq!(written(&mut session, 2), [[1; 512], [2; 512]].concat());
        },
    );
}

/// Covers: SCC-09, KEY-17.
#[test]
fn unsolicited_data_that_the_keys_forbid_fails_the_command() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
            let mut session = session(server, &keys);
            let write = session.write_blocks(0, 0, 1);
            session.send(&Request::Command(write), &[1; 512]);
            let status = session.finish(write.itt);
            assert_eq!((status.code, status.sense_code()), (2, UNEXPECTED));
            let write = ScsiCommand { final_: false, ..session.write_blocks(0, 0, 1) };
            session.start(&write);
            let part = DataOut {
                final_: true,
                lun: write.lun,
                itt: write.itt,
                ttt: Ttt::NONE,
                exp_stat_sn: session.exp_stat_sn,
                data_sn: DataSn(0),
                offset: 0,
            };
            session.send(&Request::DataOut(part), &[1; 512]);
            let status = session.finish(write.itt);
            assert_eq!((status.code, status.sense_code()), (2, UNEXPECTED));
            assert_eq!(written(&mut session, 1), [0; 512]);
        },
    );
}

/// Covers: DOU-08.
#[test]
fn an_answer_of_the_wrong_length_fails_the_command() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[]);
            for length in [512, 1536] {
                let write = session.write_blocks(0, 0, 2);
                session.start(&write);
                let r2t = session.read_r2t();
                let part = session.data_out(&r2t);
                session.send(&Request::DataOut(part), &vec![1; length]);
                let status = session.finish(write.itt);
                assert_eq!((status.code, status.sense_code()), (2, INCORRECT_AMOUNT), "{length}");
                session.expect_quiet();
            }
            assert_eq!(written(&mut session, 3), [0; 1536], "and no byte of it is written");
        },
    );
}

/// Covers: DSN-08, DOU-12a.
#[test]
fn offsets_and_numbers_out_of_order_fail_the_command() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[]);
            for (offset, data_sn) in
                [(512, 0), (1024, 0), (0x00ff_fe00, 0), (u32::MAX - 511, 0), (0, 1), (0, u32::MAX)]
            {
                let write = session.write_blocks(0, 0, 2);
                session.start(&write);
                let r2t = session.read_r2t();
                let part = DataOut { offset, data_sn: DataSn(data_sn), ..session.data_out(&r2t) };
                session.send(&Request::DataOut(part), &[1; 1024]);
                let status = session.finish(write.itt);
                let sense = status.sense_code();
                assert_eq!(status.code, 2, "{offset:#x} {data_sn}");
                assert!(sense == LOST_DATA || sense == INCORRECT_AMOUNT, "{sense:x?}");
            }
            assert_eq!(written(&mut session, 3), [0; 1536]);
        },
    );
}

/// Covers: DOU-10, PER-04, REJ-04.
#[test]
fn data_for_no_transfer_is_rejected_and_the_session_lives() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[]);
            let write = session.write_blocks(0, 0, 2);
            session.start(&write);
            let r2t = session.read_r2t();
            let right = session.data_out(&r2t);
            let read = session.read_blocks(0, 0, 1);
            session.run(&read);
            let wrong = [
                DataOut { ttt: Ttt(right.ttt.0 ^ 1), ..right },
                DataOut { ttt: Ttt(right.ttt.0 ^ 0x0001_0000), ..right },
                DataOut { itt: Itt(0x0bad_0bad), ..right },
                DataOut { ttt: Ttt::NONE, ..right },
                // For a command that reads, and that has ended.
                DataOut { itt: read.itt, ttt: Ttt::NONE, ..right },
            ];
            for part in wrong {
                session.send(&Request::DataOut(part), &[1; 1024]);
                session.expect_reject(0x09);
            }
            session.send(&Request::DataOut(right), &[2; 1024]);
            assert_eq!(session.finish(write.itt).code, 0);
            // The transfer is over: its tag is worth nothing now.
            session.send(&Request::DataOut(right), &[3; 1024]);
            session.expect_reject(0x09);
            assert_eq!(written(&mut session, 2), [2; 1024]);
        },
    );
}

/// Covers: CMD-32a/T.
#[test]
fn data_for_another_unit_is_rejected() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[]);
            let write = session.write_blocks(0, 0, 1);
            session.start(&write);
            let r2t = session.read_r2t();
            let right = session.data_out(&r2t);
            session.send(&Request::DataOut(DataOut { lun: lun_field(1), ..right }), &[1; 512]);
            session.expect_reject(0x09);
            session.send(&Request::DataOut(right), &[2; 512]);
            assert_eq!(session.finish(write.itt).code, 0);
            assert_eq!(written(&mut session, 1), [2; 512]);
        },
    );
}

/// Covers: DIN-14/T.
#[test]
fn an_empty_data_pdu_is_taken() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = session(server, &[]);
            let write = session.write_blocks(0, 0, 1);
            session.start(&write);
            let r2t = session.read_r2t();
            let all = session.data_out(&r2t);
            let empty = DataOut { final_: false, ..all };
            session.send(&Request::DataOut(empty), &[]);
            let full = DataOut { final_: false, data_sn: DataSn(1), ..all };
            session.send(&Request::DataOut(full), &[5; 512]);
            let last = DataOut { data_sn: DataSn(2), offset: 512, ..all };
            session.send(&Request::DataOut(last), &[]);
            assert_eq!(session.finish(write.itt).code, 0);
            assert_eq!(written(&mut session, 1), [5; 512]);
        },
    );
}

#[test]
fn equal_tags_of_two_sessions_do_not_meet() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server, &[]), session(server, &[]));
            let mut first = one.write_blocks(0, 0, 1);
            let mut second = two.write_blocks(0, 1, 1);
            (first.itt, second.itt) = (Itt(0x77), Itt(0x77));
            one.start(&first);
            two.start(&second);
            let (r2t_one, r2t_two) = (one.read_r2t(), two.read_r2t());
            let part = two.data_out(&r2t_two);
            two.send(&Request::DataOut(part), &[2; 512]);
            assert_eq!(two.finish(Itt(0x77)).code, 0);
            one.expect_quiet();
            let part = one.data_out(&r2t_one);
            one.send(&Request::DataOut(part), &[1; 512]);
            assert_eq!(one.finish(Itt(0x77)).code, 0);
            two.expect_quiet();
            assert_eq!(written(&mut one, 2), [[1; 512], [2; 512]].concat());
        },
    );
}

/// Covers: OBS-03/T.
#[test]
fn no_markers_stand_in_the_stream() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [
                ("IFMarker", "Yes"),
                ("OFMarker", "Yes"),
                ("IFMarkInt", "1~2"),
                ("OFMarkInt", "1~2"),
                ("ImmediateData", "Yes"),
            ];
            let mut session = session(server, &keys);
            // Both directions run far beyond any marker interval: the streams stay in step.
            let data = pattern(128 * BLOCK_BYTES, 4);
            let write = session.write_blocks(0, 0, 128);
            session.send(&Request::Command(write), &data);
            assert_eq!(session.finish(write.itt).code, 0);
            assert_eq!(written(&mut session, 128), data);
        },
    );
}

/// Sends an R2T's data in PDUs of a block each, the last ones first.
fn answer_backwards(session: &mut Initiator, r2t: &R2t, data: &[u8]) {
    let blocks = r2t.desired_length / BLOCK;
    for sn in 0..blocks {
        let offset = r2t.offset + (blocks - 1 - sn) * BLOCK;
        let from = offset as usize;
        let part = &data[from..from + BLOCK_BYTES];
        let final_ = sn + 1 == blocks;
        let out = DataOut { final_, offset, data_sn: DataSn(sn), ..session.data_out(r2t) };
        session.send(&Request::DataOut(out), part);
    }
}

/// Covers: KEY-29a/T.
#[test]
fn pdus_of_a_sequence_come_in_any_order_where_agreed() {
    for (word, sense) in [("No", None), ("Yes", Some(LOST_DATA))] {
        on_each_engine(
            |_| {},
            |server| {
                let keys = [SMALL[0], SMALL[1], SMALL[2], ("DataPDUInOrder", word)];
                let mut session = session(server, &keys);
                assert_eq!(session.answer("DataPDUInOrder"), Some(word));
                let data = pattern(8 * BLOCK_BYTES, 5);
                let write = session.write_blocks(0, 0, 8);
                session.start(&write);
                for _ in 0..2 {
                    let r2t = session.read_r2t();
                    answer_backwards(&mut session, &r2t, &data);
                    if sense.is_some() {
                        break;
                    }
                }
                let status = session.finish(write.itt);
                match sense {
                    None => {
                        assert_eq!(status.code, GOOD);
                        assert_eq!(written(&mut session, 8), data);
                    }
                    Some(sense) => assert_eq!(status.sense_code(), sense),
                }
            },
        );
    }
}

/// Bytes that come twice are more than was asked for, whatever the order.
///
/// Covers: KEY-29a/T.
#[test]
fn overlapping_data_fails_the_command() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [SMALL[0], SMALL[1], SMALL[2], ("DataPDUInOrder", "No")];
            let mut session = session(server, &keys);
            let before = written(&mut session, 4);
            let data = pattern(4 * BLOCK_BYTES, 7);
            let write = session.write_blocks(0, 0, 4);
            session.start(&write);
            let r2t = session.read_r2t();
            for (sn, block) in [3, 1, 1, 0].into_iter().enumerate() {
                let offset = block * BLOCK;
                let part = &data[offset as usize..offset as usize + BLOCK_BYTES];
                let data_sn = DataSn(u32::try_from(sn).unwrap());
                let out = DataOut { final_: sn == 3, offset, data_sn, ..session.data_out(&r2t) };
                session.send(&Request::DataOut(out), part);
            }
            assert_eq!(session.finish(write.itt).sense_code(), INCORRECT_AMOUNT);
            assert_eq!(written(&mut session, 4), before, "nothing of it is written");
        },
    );
}

/// With DataSequenceInOrder=No sequences end in any order, as many at once as were asked for.
///
/// Covers: KEY-28a/T, KEY-30a/T, R2T-03.
#[test]
fn sequences_come_in_any_order() {
    on_each_engine(
        |settings| settings.max_outstanding_r2t = u16::MAX,
        |server| {
            let keys = [
                ("MaxBurstLength", "512"),
                ("FirstBurstLength", "512"),
                ("MaxOutstandingR2T", "65535"),
                ("DataSequenceInOrder", "No"),
            ];
            let mut session = session(server, &keys);
            assert_eq!(session.answer("MaxOutstandingR2T"), Some("65535"));
            assert_eq!(session.answer("DataSequenceInOrder"), Some("No"));
            let blocks = 200;
            let data = pattern(usize::from(blocks) * BLOCK_BYTES, 11);
            let write = session.write_blocks(0, 0, blocks);
            session.start(&write);
            // The target has its own bound: 64 are open, and each end lets it ask for one more.
            let mut open: Vec<R2t> = (0..64).map(|_| session.read_r2t()).collect();
            session.expect_quiet();
            let mut asked = open.len();
            while let Some(r2t) = open.pop() {
                let from = r2t.offset as usize;
                let out = session.data_out(&r2t);
                session.send(&Request::DataOut(out), &data[from..from + BLOCK_BYTES]);
                if asked < usize::from(blocks) {
                    open.push(session.read_r2t());
                    asked += 1;
                }
            }
            assert_eq!(session.finish(write.itt).code, GOOD);
            assert_eq!(written(&mut session, blocks), data);
        },
    );
}
