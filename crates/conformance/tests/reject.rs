// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals in full feature phase (RFC 7143 §7.3, §11.17).

use lunwire_conformance::initiator::lun_field;
use lunwire_conformance::raw::header;
use lunwire_conformance::*;
use wire::iscsi::*;

/// Covers: PER-02.
#[test]
fn a_second_login_is_an_error() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            let plan = LoginPlan::new();
            session.send(&Request::Login(plan.request()), &plan.text());
            let reject = session.expect_reject(0x04);
            assert_eq!(reject.data, header(&Request::Login(plan.request()), plan.text().len()));
            session.expect_quiet();
        },
    );
}

/// Covers: SNK-14.
#[test]
fn snacks_have_no_place_at_recovery_level_zero() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            for kind in 0..4 {
                let snack = Snack {
                    kind,
                    lun: lun_field(0),
                    itt: Itt::NONE,
                    tag: u32::MAX,
                    exp_stat_sn: session.exp_stat_sn,
                    beg_run: 0,
                    run_length: 0,
                };
                session.send(&Request::Snack(snack), &[]);
                session.expect_reject(0x05);
            }
            session.expect_quiet();
        },
    );
}

/// Sequence errors of PDUs that are whole.
///
/// Covers: PER-01, REJ-01, REJ-05, REJ-11, TXT-09.
#[test]
fn what_is_out_of_place_is_rejected_with_its_header() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            let text = session.text();
            // C and F at once.
            let mut bytes = header(&Request::Text(text), 0);
            bytes[1] = 0xc0;
            session.raw.send_header(&bytes, &[]);
            assert_eq!(session.expect_reject(0x04).data, bytes);
            let cases = [
                (Request::Text(TextRequest { ttt: Ttt(0x99), ..text }), 0x09),
                (
                    Request::NopOut(NopOut { ttt: Ttt(0x99), immediate: true, ..session.ping() }),
                    0x04,
                ),
                (
                    Request::NopOut(NopOut {
                        itt: Itt::NONE,
                        ttt: Ttt(0x99),
                        immediate: true,
                        ..session.ping()
                    }),
                    0x09,
                ),
                (Request::Login(LoginPlan::new().request()), 0x04),
            ];
            for (request, reason) in cases {
                session.send(&request, &[]);
                let reject = session.expect_reject(reason);
                assert_eq!(reject.data, header(&request, 0));
                assert_eq!((reject.word(16), reject.byte(1)), (u32::MAX, 0x80));
            }
        },
    );
}

/// Covers: REJ-02.
#[test]
fn a_reject_does_not_end_a_live_task() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            session.settle(0);
            let write = session.write_blocks(0, 0, 1);
            session.start(&write);
            let r2t = session.read_r2t();
            let data = session.data_out(&r2t);
            let stray = DataOut { ttt: Ttt(data.ttt.0 ^ 1), ..data };
            session.send(&Request::DataOut(stray), &[1; 512]);
            session.expect_reject(0x09);
            session.send(&Request::DataOut(data), &[1; 512]);
            assert_eq!(session.finish(write.itt).code, 0);
        },
    );
}
