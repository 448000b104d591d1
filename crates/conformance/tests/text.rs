// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text exchanges in full feature phase (RFC 7143 §6.2, §11.10, §11.11, appendix C).

use lunwire_conformance::raw::text;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::*;
use wire::iscsi::*;

fn ask(session: &mut Initiator, request: &TextRequest, pairs: &[(&str, &str)]) -> TextResponse {
    session.send(&Request::Text(*request), &text(pairs));
    match session.read().response() {
        Response::Text(answer) => answer,
        other => panic!("a Text Response was due: {other:?}"),
    }
}

/// The longest Data-In of a READ of 8 blocks.
fn segment_length(session: &mut Initiator) -> usize {
    let read = session.read_blocks(0, 0, 8);
    session.start(&read);
    let first = session.read();
    let length = first.data.len();
    if length < 4096 {
        while !matches!(session.read().response(), Response::DataIn(part) if part.status.is_some())
        {
        }
    }
    length
}

/// Covers: NEG-23/T, KEY-20c/T, KEY-21a/T, TXT-11, TXT-13/T.
#[test]
fn values_take_effect_together_at_the_end_or_not_at_all() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            session.settle(0);
            assert_eq!(segment_length(&mut session), 4096);
            // Not finished: nothing has changed.
            let open = TextRequest { final_: false, ..session.text() };
            let answer = ask(&mut session, &open, &[("MaxRecvDataSegmentLength", "512")]);
            assert!(!answer.final_ && answer.ttt != Ttt::NONE);
            assert_eq!(segment_length(&mut session), 4096);
            // The same key twice: all is void.
            let twice = TextRequest { ttt: answer.ttt, final_: true, ..open };
            session.send(&Request::Text(twice), &text(&[("MaxRecvDataSegmentLength", "1024")]));
            session.expect_reject(0x04);
            assert_eq!(segment_length(&mut session), 4096);
            // Another exchange may begin in its place, and is never finished.
            let open = TextRequest { final_: false, ..session.text() };
            ask(&mut session, &open, &[("MaxRecvDataSegmentLength", "512")]);
            let request = session.text();
            let answer = ask(&mut session, &request, &[("MaxRecvDataSegmentLength", "1024")]);
            assert!(answer.final_ && answer.ttt == Ttt::NONE);
            assert_eq!(segment_length(&mut session), 1024);
        },
    );
}

/// Covers: TXT-04, TXT-05, TXT-16.
#[test]
fn each_text_request_has_one_answer() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new().with(&[("MaxRecvDataSegmentLength", "512")]);
            let mut session = server.login_with(&plan);
            let request = session.text();
            let mut pairs = vec![("SendTargets".to_owned(), String::new())];
            // Enough unknown keys that the answer does not fit into one PDU.
            for index in 0..60 {
                pairs.push((format!("X-com.example.{index}"), "1".to_owned()));
            }
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (&**k, &**v)).collect();
            session.send(&Request::Text(request), &text(&pairs));
            let (mut answer, mut turns) = (Vec::new(), 0);
            loop {
                let pdu = session.read();
                let Response::Text(part) = pdu.response() else { panic!("{pdu:x?}") };
                assert_eq!(part.itt, request.itt);
                assert!(pdu.data.len() <= 512);
                assert_eq!(part.final_, part.ttt == Ttt::NONE);
                answer.extend(pdu.data);
                turns += 1;
                if part.final_ {
                    break;
                }
                // The next part comes when it is asked for, and no sooner.
                let heard = session.hear(std::time::Duration::from_millis(20));
                assert_eq!(heard, Heard::Nothing);
                let next =
                    TextRequest { ttt: part.ttt, exp_stat_sn: session.exp_stat_sn, ..request };
                session.send(&Request::Text(next), &[]);
            }
            assert!(turns > 2);
            let answer = raw::pairs(&answer);
            assert!(answer.contains(&("TargetName".to_owned(), TARGET.to_owned())));
            assert_eq!(answer.iter().filter(|(_, value)| value == "NotUnderstood").count(), 60);
        },
    );
}

/// Covers: DIS-05, DIS-04, TXT-18, KEY-01/T.
#[test]
fn a_normal_session_asks_for_its_own_target_only() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            for (value, answered) in [("", true), (TARGET, true), ("All", false)] {
                let request = session.text();
                session.send(&Request::Text(request), &text(&[("SendTargets", value)]));
                let pairs = session.read().pairs();
                let named = pairs.contains(&("TargetName".to_owned(), TARGET.to_owned()));
                assert_eq!(named, answered, "SendTargets={value}: {pairs:?}");
            }
            let request = session.text();
            let login_keys = [("HeaderDigest", "CRC32C"), ("MaxBurstLength", "512")];
            session.send(&Request::Text(request), &text(&login_keys));
            let pairs = session.read().pairs();
            assert!(pairs.iter().all(|(_, value)| value == "Reject"), "{pairs:?}");
            session.expect_quiet();
            // What was agreed on at the login holds.
            session.settle(0);
            let write = session.write_blocks(0, 0, 8);
            session.start(&write);
            let r2t = session.read_r2t();
            assert_eq!(r2t.desired_length, 4096);
            let data = session.data_out(&r2t);
            session.send(&Request::DataOut(data), &[1; 4096]);
            assert_eq!(session.finish(write.itt).code, 0);
            assert_eq!(segment_length(&mut session), 4096);
        },
    );
}

/// Covers: DIS-12b, DIS-12c, DIS-15.
#[test]
fn a_discovery_session_takes_text_and_logout_only() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login_with(&LoginPlan::discovery());
            let ping = Request::NopOut(session.ping());
            let command = Request::Command(session.test_unit_ready(0));
            let management = Request::TaskManagement(session.management(5, 0, Itt::NONE));
            let logout = Request::Logout(session.logout(1));
            for request in [ping, command, management, logout] {
                session.send(&request, &[]);
                session.expect_reject(0x04);
            }
            session.leave();
        },
    );
}
