// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Header and data digests (RFC 7143 §7.7, §7.8, §11.2.3, §13.1).

use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::header;
use lunwire_conformance::raw::text;
use lunwire_conformance::*;
use wire::iscsi::*;

const BOTH: [(&str, &str); 2] = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];

fn with_digests(server: &Server, keys: &[(&str, &str)]) -> Initiator {
    let mut session = server.login_with(&LoginPlan::new().with(&BOTH).with(keys));
    session.settle(0);
    session
}

/// The bytes of a PDU whose data digest is wrong by one bit.
fn corrupt(session: &Initiator, request: &Request, data: &[u8]) -> Vec<u8> {
    let mut bytes = session.raw.assemble(&header(request, data.len()), data);
    *bytes.last_mut().expect("a digest") ^= 0x10;
    bytes
}

/// Covers: KEY-02/T.
#[test]
fn the_first_known_digest_of_the_list_is_taken() {
    on_each_engine(
        |_| {},
        |server| {
            let offers = [
                ("CRC32C,None", "CRC32C"),
                ("None,CRC32C", "None"),
                ("None", "None"),
                ("CRC32C", "CRC32C"),
                ("X-example.sum,CRC32C", "CRC32C"),
            ];
            for (offer, answer) in offers {
                for key in ["HeaderDigest", "DataDigest"] {
                    let plan = LoginPlan::new().with(&[(key, offer)]);
                    let mut session = server.login_with(&plan);
                    assert_eq!(session.answer(key), Some(answer), "{key}={offer}");
                    session.expect_quiet();
                }
            }
            // Without an offer there is none.
            let mut session = server.login();
            assert!(!session.raw.header_digest && !session.raw.data_digest);
            session.expect_quiet();
        },
    );
}

/// The reader of this crate checks the digests of every PDU that comes.
///
/// Covers: KEY-03/T, DGT-01/T, DGT-03/T, DGT-02b/T, FMT-18/T.
#[test]
fn every_pdu_after_the_login_has_its_digests() {
    on_each_engine(
        |_| {},
        |server| {
            for keys in [&BOTH[..], &BOTH[..1], &BOTH[1..]] {
                let mut session = server.login_with(&LoginPlan::new().with(keys));
                session.settle(0);
                session.expect_quiet();
                let data = pattern(1024, 1);
                let write = session.write_blocks(0, 0, 4);
                session.send(&Request::Command(write), &data);
                let r2t = session.read_r2t();
                let part = session.data_out(&r2t);
                session.send(&Request::DataOut(part), &data);
                assert_eq!(session.finish(write.itt).code, 0);
                let read = session.read_blocks(0, 0, 4);
                assert_eq!(session.run(&read).data, [data.clone(), data].concat());
                let management = session.management(5, 1, Itt::NONE);
                session.send(&Request::TaskManagement(management), &[]);
                assert_eq!(session.read_management(), 0);
                let request = session.text();
                session.send(&Request::Text(request), &text(&[("SendTargets", "")]));
                assert!(matches!(session.read().response(), Response::Text(_)));
                let login = Request::Login(LoginPlan::new().request());
                session.send(&login, &[]);
                session.expect_reject(0x04);
                session.leave();
            }
        },
    );
}

/// Covers: DGT-04/T.
#[test]
fn a_wrong_header_digest_closes_the_connection() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = with_digests(server, &[]);
            let ping = Request::NopOut(session.ping());
            let mut bytes = session.raw.assemble(&header(&ping, 0), &[]);
            bytes[50] ^= 1;
            session.raw.write(&bytes);
            session.expect_dropped();
        },
    );
}

/// Covers: DGT-05.
#[test]
fn a_wrong_data_digest_is_rejected_and_the_pdu_dropped() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = with_digests(server, &[]);
            let ping = session.ping();
            session.cmd_sn = ping.cmd_sn;
            let bad = corrupt(&session, &Request::NopOut(ping), b"data");
            session.raw.write(&bad);
            let reject = session.expect_reject(0x02);
            assert_eq!(reject.data, header(&Request::NopOut(ping), 4));
            // Its number is free still.
            session.expect_quiet();
            let again = session.ping();
            assert_eq!(again.cmd_sn, ping.cmd_sn);
            session.send(&Request::NopOut(again), b"data");
            assert_eq!(session.read().data, b"data");
        },
    );
}

/// Covers: DGT-06, SRS-10.
#[test]
fn corrupt_write_data_ends_the_command_after_its_last_pdu() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = with_digests(server, &[("InitialR2T", "Yes")]);
            let write = session.write_blocks(0, 0, 4);
            session.start(&write);
            let r2t = session.read_r2t();
            let part = DataOut { final_: false, ..session.data_out(&r2t) };
            let bad = corrupt(&session, &Request::DataOut(part), &[1; 1024]);
            session.raw.write(&bad);
            session.expect_reject(0x02);
            session.expect_quiet();
            let last = DataOut { final_: true, data_sn: DataSn(1), offset: 1024, ..part };
            session.send(&Request::DataOut(last), &[1; 1024]);
            let status = session.finish(write.itt);
            assert_eq!((status.code, status.sense_code()), (2, (0x0b, 0x47, 0x05)));
            let read = session.read_blocks(0, 0, 4);
            assert_eq!(session.run(&read).data, [0; 2048], "nothing was written");
        },
    );
}

/// The same when the last PDU itself is corrupt: first the Reject, then the status.
///
/// Covers: DGT-06, REJ-02, REJ-03.
#[test]
fn a_corrupt_last_pdu_is_rejected_and_ends_the_command() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = with_digests(server, &[]);
            let write = session.write_blocks(0, 0, 4);
            session.start(&write);
            let r2t = session.read_r2t();
            let part = session.data_out(&r2t);
            let bad = corrupt(&session, &Request::DataOut(part), &[1; 2048]);
            session.raw.write(&bad);
            session.expect_reject(0x02);
            let status = session.finish(write.itt);
            assert_eq!((status.code, status.sense_code()), (2, (0x0b, 0x47, 0x05)));
        },
    );
}

/// A path that corrupts a command again and again: its retries have the number that it has, nothing
/// that comes later runs before it, and it runs once.
///
#[test]
fn a_command_keeps_its_number_however_often_it_is_sent() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = with_digests(server, &[]);
            let write = session.write_blocks(0, 0, 1);
            let bad = corrupt(&session, &Request::Command(write), &[1; 512]);
            let later = session.test_unit_ready(0);
            for tries in 0..3 {
                session.raw.write(&bad);
                let reject = session.expect_reject(0x02);
                assert_eq!(reject.word(28), write.cmd_sn.0, "ExpCmdSN did not move");
                if tries == 0 {
                    session.start(&later);
                }
                session.expect_quiet();
            }
            session.send(&Request::Command(write), &[1; 512]);
            let mut answered = [session.read(), session.read()].map(|pdu| match pdu.response() {
                Response::Scsi(answer) => (answer.itt, answer.status),
                other => panic!("a status was due: {other:?}"),
            });
            answered.sort_by_key(|(itt, _)| itt.0);
            assert_eq!(answered, [(write.itt, 0), (later.itt, 0)]);
            // Under its old number it is not run again.
            session.send(&Request::Command(write), &[2; 512]);
            session.expect_quiet();
            let read = session.read_blocks(0, 0, 1);
            assert_eq!(read.cmd_sn.0, write.cmd_sn.0 + 2);
            assert_eq!(session.run(&read).data, [1; 512]);
        },
    );
}

/// Covers: DGT-07, CMD-24.
#[test]
fn a_command_with_corrupt_immediate_data_was_never_there() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = with_digests(server, &[]);
            let write = session.write_blocks(0, 0, 1);
            let bad = corrupt(&session, &Request::Command(write), &[1; 512]);
            session.raw.write(&bad);
            let reject = session.expect_reject(0x02);
            assert_eq!(reject.word(28), write.cmd_sn.0, "ExpCmdSN did not move");
            session.expect_quiet();
            // The same again, with the same number and the same tag.
            session.send(&Request::Command(write), &[1; 512]);
            assert_eq!(session.finish(write.itt).code, 0);
            let read = session.read_blocks(0, 0, 1);
            assert_eq!(session.run(&read).data, [1; 512]);
        },
    );
}
