// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout, and ends by the target (RFC 7143 §11.9, §11.14, §11.15).

use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::*;
use std::time::Duration;
use target::Found;
use wire::iscsi::*;

fn log_out(session: &mut Initiator, request: LogoutRequest) -> LogoutResponse {
    session.send(&Request::Logout(request), &[]);
    match session.read().response() {
        Response::Logout(answer) => answer,
        other => panic!("a Logout Response was due: {other:?}"),
    }
}

fn open_write(session: &mut Initiator) -> R2t {
    session.settle(0);
    let command = session.write_blocks(0, 0, 1);
    session.start(&command);
    session.read_r2t()
}

/// Covers: LGO-02, LGO-04a, LGO-05/T, LGO-08, LGO-10, CLR-02.
#[test]
fn a_logout_ends_all_tasks_without_a_word_and_closes() {
    on_each_transport(
        |_| {},
        |server| {
            for (reason, cid) in [(0, 1), (0, 77), (1, 1)] {
                let plan = LoginPlan::new();
                let mut session = server.login_with(&plan);
                let r2t = open_write(&mut session);
                let request = LogoutRequest { cid: Cid(cid), ..session.logout(reason) };
                let data = Request::DataOut(session.data_out(&r2t));
                let answer = log_out(&mut session, request);
                assert_eq!((answer.response, answer.time2retain), (0, 0));
                session.expect_closed();
                session.send(&data, &[1; 512]);
                let mut next = server.login_with(&plan);
                next.settle(0);
                let read = next.read_blocks(0, 0, 1);
                assert_eq!(next.run(&read).data, [0; 512]);
            }
        },
    );
}

/// The target closes its half and waits for the initiator to close the other one.
///
/// Covers: LGO-04a.
#[test]
fn a_logout_leaves_the_initiators_half_open() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            let request = session.logout(0);
            assert_eq!(log_out(&mut session, request).response, 0);
            session.expect_closed();
            assert!(session.raw.takes(&[0; 48]), "the other half is open");
        },
    );
}

/// Covers: LGO-11, SES-21.
#[test]
fn the_next_session_hears_what_was_cleared() {
    on_each_transport(
        |_| {},
        |server| {
            // Logout, loss of the connection, reinstatement.
            for end in 0..3 {
                let plan = LoginPlan::new();
                let mut session = server.login_with(&plan);
                session.settle(1);
                session.settle(FILE_LUN);
                open_write(&mut session);
                let other = session.write_blocks(FILE_LUN, 0, 1);
                session.start(&other);
                session.read_r2t();
                let mut lost = None;
                match end {
                    0 => session.leave(),
                    1 => drop(session),
                    _ => lost = Some(session),
                }
                let mut next = server.login_with(&plan);
                drop(lost);
                let mut attentions = |lun| {
                    let mut seen = Vec::new();
                    loop {
                        let command = next.test_unit_ready(lun);
                        let status = next.run(&command);
                        if status.code == 0 {
                            return seen;
                        }
                        seen.push(status.sense_code());
                    }
                };
                for lun in [0, FILE_LUN] {
                    assert_eq!(attentions(lun), [(6, 0x29, 0x07), (6, 0x47, 0x7f)], "affected");
                }
                assert_eq!(attentions(1), [(6, 0x29, 0x07)], "not affected");
            }
        },
    );
}

/// Covers: LGO-07a, LGO-09, OBS-10.
#[test]
fn a_logout_that_cannot_be_leaves_the_session_alone() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = server.login();
            let unknown = LogoutRequest { cid: Cid(2), ..session.logout(1) };
            assert_eq!(log_out(&mut session, unknown).response, 1);
            let recovery = session.logout(2);
            let answer = log_out(&mut session, recovery);
            assert_eq!((answer.response, answer.time2wait), (2, 2));
            let strange = session.logout(3);
            session.send(&Request::Logout(strange), &[]);
            session.expect_reject(0x09);
            session.expect_quiet();
        },
    );
}

/// Covers: ASY-01, ASY-02, ASY-06, LGO-15/T.
#[test]
fn a_target_that_stops_asks_for_logout_and_says_when_it_drops() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut polite, mut deaf) = (server.login(), server.login());
            std::thread::scope(|scope| {
                scope.spawn(|| server.target().stop(Duration::from_millis(500)).unwrap());
                for session in [&mut polite, &mut deaf] {
                    let pdu = session.read();
                    let Response::Async(message) = pdu.response() else { panic!("{pdu:x?}") };
                    assert_eq!((message.event, pdu.word(16)), (1, u32::MAX));
                    assert!(message.parameter3 >= 1);
                }
                let request = polite.logout(0);
                assert_eq!(log_out(&mut polite, request).response, 0);
                polite.expect_closed();
                deaf.expect_dropped();
            });
        },
    );
}

/// A session that administration ends says so.
///
/// Covers: LGO-15/T.
#[test]
fn a_session_that_is_dropped_is_told() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = server.login();
            assert_eq!(server.target().drop_session(session.tsih.0), Found::Here);
            assert_eq!(server.target().drop_session(0x7777), Found::Nowhere);
            session.expect_dropped();
        },
    );
}
