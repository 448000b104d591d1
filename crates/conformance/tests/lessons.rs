// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other stacks got wrong on the wire (docs/LESSONS.md), where no other chapter has it.

use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::*;
use wire::iscsi::*;

/// The window that a PDU tells, as far as its kind has one.
fn window(pdu: &Pdu) -> Numbers {
    match pdu.response() {
        Response::NopIn(pdu) => pdu.numbers,
        Response::Scsi(pdu) => pdu.numbers,
        Response::TaskManagement(pdu) => pdu.numbers,
        Response::Login(pdu) => pdu.numbers,
        Response::Text(pdu) => pdu.numbers,
        Response::DataIn(pdu) => pdu.numbers,
        Response::Logout(pdu) => pdu.numbers,
        Response::R2t(pdu) => pdu.numbers,
        Response::Async(pdu) => pdu.numbers,
        Response::Reject(pdu) => pdu.numbers,
    }
}

/// Every kind of PDU of a target that nothing is outstanding at tells the window: ExpCmdSN as it
/// must be, and room for commands, in discovery too.
#[test]
fn every_pdu_tells_a_window_that_is_open() {
    on_each_transport(
        |_| {},
        |server| {
            for plan in [LoginPlan::new(), LoginPlan::discovery()] {
                let (response, _) = plan.begin(&mut server.connect());
                let Numbers { exp_cmd_sn, max_cmd_sn, .. } = response.numbers;
                assert_eq!(exp_cmd_sn, plan.cmd_sn);
                assert!(max_cmd_sn.0.wrapping_sub(exp_cmd_sn.0) < 4096, "{plan:?}");
            }
            let mut session = server.login_with(&LoginPlan::new().with(&[("InitialR2T", "Yes")]));
            session.settle(0);
            let check = |session: &Initiator, pdu: &Pdu| {
                let Numbers { exp_cmd_sn, max_cmd_sn, .. } = window(pdu);
                assert_eq!(exp_cmd_sn, session.cmd_sn, "{pdu:x?}");
                assert!(max_cmd_sn.0.wrapping_sub(exp_cmd_sn.0) < 4096, "{pdu:x?}");
            };
            let data = pattern(4 * BLOCK_BYTES, 3);
            let write = session.write_blocks(0, 0, 4);
            session.start(&write);
            let pdu = session.read();
            check(&session, &pdu);
            let Response::R2t(r2t) = pdu.response() else { panic!("{pdu:x?}") };
            let out = session.data_out(&r2t);
            session.send(&Request::DataOut(out), &data);
            let pdu = session.read();
            check(&session, &pdu);
            let read = session.read_blocks(0, 0, 4);
            session.start(&read);
            let pdu = session.read();
            check(&session, &pdu);
            let ping = session.ping();
            session.send(&Request::NopOut(ping), b"ping");
            let pdu = session.read();
            check(&session, &pdu);
            let text = session.text();
            session.send(&Request::Text(text), b"SendTargets=\0");
            let pdu = session.read();
            check(&session, &pdu);
            let abort = session.management(1, 0, Itt(0x7777));
            session.send(&Request::TaskManagement(abort), &[]);
            let pdu = session.read();
            check(&session, &pdu);
            let stray = DataOut { itt: Itt(0x7777), ..session.data_out(&r2t) };
            session.send(&Request::DataOut(stray), &data);
            let pdu = session.read();
            assert!(matches!(pdu.response(), Response::Reject(_)));
            check(&session, &pdu);
            let logout = session.logout(0);
            session.send(&Request::Logout(logout), &[]);
            let pdu = session.read();
            check(&session, &pdu);
        },
    );
}

/// Many logins at once with one name and one ISID: each succeeds or is closed by a later one, and
/// one session is left, which works.
#[test]
fn logins_may_race_for_one_session() {
    const RACERS: usize = 16;
    on_each_transport(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let racers: Vec<Raw> = std::thread::scope(|scope| {
                let race = || {
                    let mut raw = server.connect();
                    raw.send(&Request::Login(plan.request()), &plan.text());
                    if let Heard::Pdu(pdu) = raw.hear(raw::PATIENCE) {
                        let Response::Login(login) = pdu.response() else { panic!("{pdu:x?}") };
                        assert_eq!(login.status, 0);
                    }
                    raw
                };
                let threads: Vec<_> = (0..RACERS).map(|_| scope.spawn(race)).collect();
                threads.into_iter().map(|thread| thread.join().expect("a login")).collect()
            });
            let mut last = server.login_with(&plan);
            last.settle(0);
            let write = last.write_blocks(0, 0, 1);
            last.send(&Request::Command(write), &pattern(BLOCK_BYTES, 5));
            assert_eq!(last.finish(write.itt).code, GOOD);
            let sessions = server.target().sessions();
            assert_eq!(sessions.len(), 1);
            assert_eq!(sessions.first().expect("one").tsih, last.tsih.0);
            for mut raw in racers {
                while let Heard::Pdu(_) = raw.hear(raw::PATIENCE) {}
                assert_eq!(raw.hear(raw::PATIENCE), Heard::Closed);
            }
        },
    );
}
