// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys at login (RFC 7143 §6.2, §13).

use lunwire_conformance::raw::pairs;
use lunwire_conformance::raw::text;
use lunwire_conformance::*;
use wire::iscsi::*;

/// Covers: NEG-16/T.
#[test]
fn what_was_not_understood_is_not_done() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [
                ("TaskPriorities", "Yes"),
                ("X-com.example.markers", "4"),
                ("X#Compression", "lz"),
                ("Zz.unknown", "1"),
            ];
            let mut session = server.login_with(&LoginPlan::new().with(&keys));
            for (key, _) in keys {
                assert_eq!(session.answer(key), Some("NotUnderstood"), "{key}");
            }
            // A plain session over TCP, as if they had not been named.
            session.settle(0);
            let read = session.read_blocks(0, 0, 64);
            assert_eq!(session.run(&read).data.len(), 64 * 512);
            session.expect_quiet();
        },
    );
}

/// Covers: NEG-23/T, LGN-49/T.
#[test]
fn a_login_that_fails_leaves_no_values_behind() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let mut raw = server.connect();
            let request = LoginRequest { transit: false, next: None, ..plan.request() };
            let keys = plan.clone().with(&[("MaxRecvDataSegmentLength", "512")]);
            raw.send(&Request::Login(request), &keys.text());
            assert!(matches!(raw.read().response(), Response::Login(answer) if answer.status == 0));
            // The same key again is an error, and the whole login is void.
            let again = text(&[("MaxRecvDataSegmentLength", "1024")]);
            raw.send(&Request::Login(plan.request()), &again);
            let Response::Login(answer) = raw.read().response() else { panic!() };
            assert_eq!(answer.status, 0x0200);
            raw.expect_closed();
            assert_eq!(server.target().sessions().len(), 0);

            let mut session = server.login_with(&plan);
            session.settle(0);
            let read = session.read_blocks(0, 0, 8);
            session.start(&read);
            assert_eq!(session.read().data.len(), 4096, "the default length is in force");
        },
    );
}

/// Offers and what must come of them: result functions, ranges, answers that are due.
///
/// Covers: KEY-05a/T, KEY-23a/T, KEY-24a/T, KEY-26a/T, KEY-27a/T, KEY-28a/T, KEY-29a/T, KEY-30a/T,
/// KEY-32a/T, KEY-35a/T, KEY-38/T.
#[test]
fn every_key_has_its_result_function() {
    on_each_engine(
        |settings| {
            settings.max_burst_length = 65536;
            settings.first_burst_length = 8192;
            settings.max_outstanding_r2t = 4;
            settings.time2wait = 2;
            settings.time2retain = 0;
            settings.error_recovery_level = 1;
        },
        |server| {
            let cases = [
                ("MaxConnections", "65535", "4"),
                ("MaxConnections", "2", "2"),
                ("MaxBurstLength", "512", "512"),
                ("MaxBurstLength", "16777215", "65536"),
                ("FirstBurstLength", "512", "512"),
                ("FirstBurstLength", "65536", "8192"),
                ("DefaultTime2Wait", "0", "2"),
                ("DefaultTime2Wait", "3600", "3600"),
                ("DefaultTime2Retain", "3600", "0"),
                ("MaxOutstandingR2T", "65535", "4"),
                ("MaxOutstandingR2T", "0x2", "2"),
                ("DataPDUInOrder", "Yes", "Yes"),
                ("DataPDUInOrder", "No", "No"),
                ("DataSequenceInOrder", "Yes", "Yes"),
                ("DataSequenceInOrder", "No", "No"),
                ("ErrorRecoveryLevel", "1", "1"),
                ("ErrorRecoveryLevel", "2", "1"),
                ("iSCSIProtocolLevel", "2", "2"),
                ("iSCSIProtocolLevel", "31", "2"),
                ("TaskReporting", "RFC3720,ResponseFence", "RFC3720"),
                ("TaskReporting", "FastAbort,ResponseFence,RFC3720", "FastAbort"),
            ];
            for (key, offer, result) in cases {
                let session = server.login_with(&LoginPlan::new().with(&[(key, offer)]));
                match session.answer(key) {
                    // OR with Yes needs no answer (RFC 7143 §6.2.2).
                    None => assert!(key.ends_with("InOrder"), "{key}={offer}"),
                    answer => assert_eq!(answer, Some(result), "{key}={offer}"),
                }
                session.leave();
            }
        },
    );
}

/// Covers: NEG-02/T, LGN-35.
#[test]
fn a_pair_may_be_cut_anywhere() {
    on_each_engine(
        |_| {},
        |server| {
            let long = "x".repeat(200);
            let mut plan = LoginPlan::new();
            for index in 0..35 {
                plan.keys.push((format!("X-com.example.{index}"), long.clone()));
            }
            let all = plan.text();
            assert!(all.len() > 7000);
            let mut raw = server.connect();
            let mut answers = Vec::new();
            let mut chunks = all.chunks(777).peekable();
            while let Some(chunk) = chunks.next() {
                let more = chunks.peek().is_some();
                let request = LoginRequest {
                    transit: !more,
                    continue_: more,
                    next: (!more).then_some(Stage::FullFeature),
                    ..plan.request()
                };
                raw.send(&Request::Login(request), chunk);
                let pdu = raw.read();
                let Response::Login(answer) = pdu.response() else { panic!("{pdu:x?}") };
                assert_eq!(answer.status, 0);
                assert!(!more || pdu.data.is_empty() && !answer.transit);
                answers.extend(pdu.data);
            }
            let answers = pairs(&answers);
            let refused = answers.iter().filter(|(_, value)| value == "NotUnderstood");
            assert_eq!(refused.count(), 35);
        },
    );
}

/// No segment and no burst is shorter than 512 bytes: 2^32 bytes make less than 2^32 PDUs.
///
/// Covers: KEY-20a/T, DSN-05/T.
#[test]
fn lengths_below_512_are_not_agreed_upon() {
    on_each_engine(
        |_| {},
        |server| {
            for key in ["MaxRecvDataSegmentLength", "MaxBurstLength", "FirstBurstLength"] {
                for value in ["0", "1", "511", "16777216"] {
                    let plan = LoginPlan::new().with(&[(key, value)]);
                    let (response, pdu) = plan.begin(&mut server.connect());
                    let refused = pdu.pairs().contains(&(key.to_owned(), "Reject".to_owned()));
                    assert!(response.status != 0 || refused, "{key}={value}: {pdu:x?}");
                }
                for value in ["512", "16777215"] {
                    server.login_with(&LoginPlan::new().with(&[(key, value)])).leave();
                }
            }
        },
    );
}
