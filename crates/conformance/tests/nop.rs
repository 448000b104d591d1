// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pings of both sides (RFC 7143 §11.18, §11.19).

use lunwire_conformance::initiator::lun_field;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::*;
use std::time::Duration;
use wire::iscsi::*;

/// Covers: NOP-01, NOP-07.
#[test]
fn a_ping_comes_back_with_its_data() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new().with(&[("MaxRecvDataSegmentLength", "512")]);
            let mut session = server.login_with(&plan);
            for length in [0, 1, 511, 512, 513, 4096] {
                let ping = session.ping();
                let data = pattern(length, 5);
                session.send(&Request::NopOut(ping), &data);
                let pdu = session.read();
                let Response::NopIn(answer) = pdu.response() else { panic!("{pdu:x?}") };
                assert_eq!((answer.itt, answer.ttt), (ping.itt, Ttt::NONE));
                assert_eq!(pdu.data, data[..length.min(512)]);
            }
        },
    );
}

/// Covers: NOP-05, NOP-09.
#[test]
fn a_nop_without_a_tag_has_no_answer() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            let nop = NopOut { itt: Itt::NONE, immediate: true, ..session.ping() };
            session.cmd_sn = nop.cmd_sn;
            session.send(&Request::NopOut(nop), &[]);
            session.expect_quiet();
            session.send(&Request::NopOut(NopOut { immediate: false, ..nop }), &[]);
            session.expect_reject(0x04);
            session.expect_quiet();
        },
    );
}

/// Covers: NOP-06, NOP-07, NOP-10/T, STS-02.
#[test]
fn a_silent_initiator_is_pinged_and_dropped() {
    on_each_engine(
        |settings| {
            settings.ping_interval = Duration::from_millis(50);
            settings.ping_timeout = Duration::from_millis(600);
        },
        |server| {
            let mut session = server.login();
            session.settle(1);
            for turn in 0..3 {
                let pdu = session.read();
                let Response::NopIn(ping) = pdu.response() else { panic!("{pdu:x?}") };
                assert!(pdu.data.is_empty());
                assert_eq!((ping.itt, ping.lun), (Itt::NONE, lun_field(1)));
                assert_ne!(ping.ttt, Ttt::NONE);
                // The third one stays without answer.
                if turn < 2 {
                    let answer = NopOut {
                        immediate: true,
                        itt: Itt::NONE,
                        ttt: ping.ttt,
                        lun: ping.lun,
                        cmd_sn: session.cmd_sn,
                        exp_stat_sn: session.exp_stat_sn,
                    };
                    session.send(&Request::NopOut(answer), &[]);
                }
            }
            session.expect_dropped();
        },
    );
}

/// On a slow line the ping comes behind all that was asked for before.
#[test]
fn a_slow_line_is_not_cut_for_a_ping_behind_its_data() {
    on_each_engine(
        |settings| {
            settings.ping_interval = Duration::from_millis(100);
            settings.ping_timeout = Duration::from_secs(1);
        },
        |server| {
            let mut session = server.login();
            session.settle(0);
            for _ in 0..24 {
                let read = session.read_blocks(0, 0, 2048);
                session.start(&read);
            }
            let (mut rest, mut pings) = (24, 0);
            while rest > 0 || pings == 0 {
                let pdu = session.read();
                // Together several times as long as a ping may take.
                std::thread::sleep(Duration::from_micros(700));
                match pdu.response() {
                    Response::NopIn(ping) => {
                        pings += 1;
                        let answer = NopOut {
                            immediate: true,
                            itt: Itt::NONE,
                            ttt: ping.ttt,
                            lun: ping.lun,
                            cmd_sn: session.cmd_sn,
                            exp_stat_sn: session.exp_stat_sn,
                        };
                        session.send(&Request::NopOut(answer), &[]);
                    }
                    Response::DataIn(data) => rest -= i32::from(data.status.is_some()),
                    other => panic!("{other:?}"),
                }
            }
        },
    );
}
