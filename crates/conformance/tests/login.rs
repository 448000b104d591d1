// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Login, names, sessions and the ISID rule (RFC 7143 §4.2.7, §4.4, §6.3).

use lunwire_conformance::initiator::lun_field;
use lunwire_conformance::raw::Raw;
use lunwire_conformance::raw::text;
use lunwire_conformance::server::CLOSED_TARGET;
use lunwire_conformance::server::FRIEND;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;
use wire::iscsi::*;

/// Waits until the target holds `count` sessions.
fn expect_sessions(server: &Server, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.target().sessions().len() != count {
        assert!(Instant::now() < deadline, "{:?}", server.target().sessions());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A session with a WRITE whose data was asked for and not sent.
fn with_open_write(mut session: Initiator) -> Initiator {
    session.settle(0);
    let command = session.write_blocks(0, 0, 8);
    session.start(&command);
    session.read_r2t();
    session
}

/// Covers: SES-09.
#[test]
fn an_unknown_isid_without_tsih_makes_a_session() {
    on_each_engine(
        |_| {},
        |server| {
            let first = server.login();
            let second = server.login();
            assert_ne!(first.tsih, Tsih(0));
            assert_ne!(first.tsih, second.tsih);
            expect_sessions(server, 2);
        },
    );
}

/// Covers: SES-08.
#[test]
fn an_unknown_tsih_names_no_session() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan { tsih: Tsih(0x7777), ..LoginPlan::new() };
            plan.expect_refused(server.connect(), 0x020a);
            // That of a session with another ISID is as unknown.
            let other = server.login();
            let plan = LoginPlan { tsih: other.tsih, ..LoginPlan::new() };
            plan.expect_refused(server.connect(), 0x020a);
        },
    );
}

/// Covers: SES-11, LGN-44, LGN-38/T.
#[test]
fn a_second_connection_is_one_too_many() {
    on_each_engine(
        |_| {},
        |server| {
            let mut plan = LoginPlan::new();
            let mut first = server.login_with(&plan);
            plan.tsih = first.tsih;
            plan.cid = Cid(2);
            plan.expect_refused(server.connect(), 0x0206);
            first.expect_quiet();
        },
    );
}

/// Covers: SES-29.
#[test]
fn sessions_may_use_the_same_cid() {
    on_each_engine(
        |_| {},
        |server| {
            let mut first = server.login_with(&LoginPlan { cid: Cid(9), ..LoginPlan::new() });
            let mut second = server.login_with(&LoginPlan { cid: Cid(9), ..LoginPlan::new() });
            first.expect_quiet();
            second.expect_quiet();
            // The logout of the one means its own connection.
            let request = LogoutRequest { cid: Cid(9), ..first.logout(1) };
            first.send(&Request::Logout(request), &[]);
            assert!(
                matches!(first.read().response(), Response::Logout(answer) if answer.response == 0)
            );
            first.expect_closed();
            second.expect_quiet();
        },
    );
}

/// Covers: SES-10, ERL-08/T, ERL-10, CLR-02.
#[test]
fn reinstatement_ends_the_old_session_silently() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let mut old = with_open_write(server.login_with(&plan));
            let mut new = server.login_with(&plan);
            old.expect_closed();
            assert_ne!(old.tsih, new.tsih);
            expect_sessions(server, 1);
            // Nothing of the old session is left: numbers begin anew, its tag is free.
            assert_eq!(new.cmd_sn, CmdSn(1));
            new.settle(0);
            let mut command = new.write_blocks(0, 0, 8);
            command.itt = Itt(2);
            new.start(&command);
            let r2t = new.read_r2t();
            assert_eq!(r2t.r2t_sn, R2tSn(0));
            let data = new.data_out(&r2t);
            new.send(&Request::DataOut(data), &[7; 4096]);
            assert_eq!(new.finish(command.itt).code, 0);
        },
    );
}

/// Covers: SES-22, TMO-04.
#[test]
fn a_session_is_over_after_logout_and_after_its_connection() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let leading = plan.clone().with(&[("DefaultTime2Retain", "0")]);
            let session = server.login_with(&leading);
            let join = LoginPlan { tsih: session.tsih, ..plan.clone() };
            session.leave();
            expect_sessions(server, 0);
            join.expect_refused(server.connect(), 0x020a);

            let session = server.login_with(&leading);
            let join = LoginPlan { tsih: session.tsih, ..plan };
            drop(session);
            expect_sessions(server, 0);
            join.expect_refused(server.connect(), 0x020a);
        },
    );
}

/// Covers: LGN-42a, LGN-42b.
#[test]
fn unknown_targets_and_unwelcome_initiators_are_told_apart() {
    on_each_engine(
        |_| {},
        |server| {
            let mut plan = LoginPlan::new();
            plan.target = Some("iqn.2026-01.example.conformance:nowhere".to_owned());
            plan.expect_refused(server.connect(), 0x0203);
            plan.target = Some(CLOSED_TARGET.to_owned());
            plan.expect_refused(server.connect(), 0x0202);
            plan.initiator = Some(FRIEND.to_owned());
            server.login_with(&plan).expect_quiet();
        },
    );
}

/// Covers: PER-06.
#[test]
fn hidden_targets_look_like_unknown_ones() {
    let hiding = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
    let server = Server::start(target::Plan { hide_targets: true, ..hiding });
    let mut plan = LoginPlan::new();
    plan.target = Some(CLOSED_TARGET.to_owned());
    plan.expect_refused(server.connect(), 0x0203);
    plan.initiator = Some(FRIEND.to_owned());
    server.login_with(&plan).expect_quiet();
}

/// Covers: LGN-45.
#[test]
fn a_session_too_many_is_refused_until_one_ends() {
    on_each_plan(
        |_| {},
        |plan| plan.sessions_max = 2,
        |server| {
            let _first = server.login();
            let mut second = server.login();
            LoginPlan::new().expect_refused(server.connect(), 0x0302);
            let logout = second.logout(0);
            second.send(&Request::Logout(logout), &[]);
            let pdu = second.read();
            let Response::Logout(answer) = pdu.response() else { panic!("{pdu:x?}") };
            assert_eq!(answer.response, 0);
            second.raw.expect_closed();
            // The place is free when the engine holds none of the session's work any more.
            let deadline = Instant::now() + Duration::from_secs(10);
            let status = || LoginPlan::new().begin(&mut server.connect()).0.status;
            while status() != 0 {
                assert!(Instant::now() < deadline, "the place was never free again");
                std::thread::sleep(Duration::from_millis(10));
            }
        },
    );
}

/// Nothing to serve: 0301, service unavailable.
#[test]
fn a_target_that_serves_nothing_is_unavailable() {
    let mut empty = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
    empty.nodes.clear();
    let server = Server::start(empty);
    LoginPlan::discovery().expect_refused(server.connect(), 0x0301);
}

/// Covers: NAM-07/T.
#[test]
fn names_are_prepared_and_then_compared_byte_for_byte() {
    on_each_engine(
        |_| {},
        |server| {
            let status = |target: &str, initiator: Option<&str>| {
                let mut plan = LoginPlan::new();
                plan.target = Some(target.to_owned());
                plan.initiator = initiator.map_or(plan.initiator, |name| Some(name.to_owned()));
                plan.begin(&mut server.connect()).0.status
            };
            assert_eq!(status(&TARGET.replace("disk", "DISK"), None), 0);
            assert_eq!(status(&TARGET.replace("disk", "Disk1"), None), 0x0203);
            assert_eq!(status(CLOSED_TARGET, Some(&FRIEND.replace("friend", "Friend"))), 0);
            assert_eq!(status(CLOSED_TARGET, Some(&FRIEND.replace("friend", "Fiend"))), 0x0202);
        },
    );
}

/// One name in two ways of writing is one target: a login with the same ISID replaces the session.
#[test]
fn a_name_in_other_letters_is_the_same_target() {
    on_each_engine(
        |_| {},
        |server| {
            let mut plan = LoginPlan::new();
            let mut first = server.login_with(&plan);
            first.settle(0);
            plan.target = Some(TARGET.replace("disk", "DiSk"));
            let mut second = server.login_with(&plan);
            first.raw.expect_closed();
            second.settle(0);
            expect_sessions(server, 1);
            let sessions = server.target().sessions();
            assert_eq!(sessions[0].target.as_deref(), Some(TARGET));
        },
    );
}

/// What is more than ASCII may be written in several ways that are one name (NFKC), which nobody
/// here can tell.
#[test]
fn initiators_whose_names_cannot_be_compared_are_refused() {
    let server =
        Server::start(plan(engine::Choice::Epoll, iscsi::target_role::Settings::default()));
    for name in ["iqn.2026-01.example:caf\u{e9}", "iqn.2026-01.example:\u{212a}", "\u{ff49}qn.a"] {
        let mut plan = LoginPlan::new();
        plan.initiator = Some(name.to_owned());
        plan.expect_refused(server.connect(), 0x0200);
    }
}

#[test]
fn a_lost_connection_is_recovered_by_a_new_session() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            drop(with_open_write(server.login_with(&plan)));
            let mut session = server.login_with(&plan);
            session.settle(0);
            let command = session.read_blocks(0, 0, 8);
            assert_eq!(session.run(&command).data, [0; 4096], "the lost write never happened");
        },
    );
}

/// Covers: ERL-04/T.
#[test]
fn recovery_has_no_place_in_the_login_phase() {
    on_each_engine(
        |_| {},
        |server| {
            let mut raw = server.connect();
            let plan = LoginPlan::new();
            let request = LoginRequest { transit: false, next: None, ..plan.request() };
            raw.send(&Request::Login(request), &plan.text());
            assert!(matches!(raw.read().response(), Response::Login(answer) if answer.status == 0));
            let snack = Snack {
                kind: 1,
                lun: lun_field(0),
                itt: Itt::NONE,
                tag: u32::MAX,
                exp_stat_sn: StatSn(0),
                beg_run: 1,
                run_length: 1,
            };
            raw.send(&Request::Snack(snack), &[]);
            assert!(
                matches!(raw.read().response(), Response::Login(answer) if answer.status == 0x020b)
            );
            raw.expect_closed();
        },
    );
}

/// Covers: LGN-02.
#[test]
fn the_first_pdu_is_a_login_request_or_the_last() {
    on_each_engine(
        |_| {},
        |server| {
            let mut raw = server.connect();
            raw.write(&[0; 48]);
            raw.expect_closed();
            server.login().expect_quiet();
        },
    );
}

#[test]
fn the_target_proposes_neither_digests_nor_task_reporting() {
    on_each_engine(
        |_| {},
        |server| {
            let session = server.login();
            for key in ["HeaderDigest", "DataDigest", "TaskReporting"] {
                assert_eq!(session.answer(key), None, "{key}");
            }
        },
    );
}

/// The records of SendTargets=All.
fn discover(session: &mut Initiator) -> Vec<(String, String)> {
    let request = session.text();
    session.send(&Request::Text(request), &text(&[("SendTargets", "All")]));
    let pdu = session.read();
    assert!(matches!(pdu.response(), Response::Text(answer) if answer.final_), "{pdu:x?}");
    pdu.pairs()
}

/// Covers: DIS-02, DIS-07.
#[test]
fn an_initiator_hears_of_the_targets_that_it_may_use_and_of_no_other() {
    let names = |server: &Server, initiator: Option<&str>, value: &str| -> Vec<String> {
        let plan = LoginPlan::discovery();
        let initiator = initiator.map(ToOwned::to_owned).or_else(|| plan.initiator.clone());
        let mut session = server.login_with(&LoginPlan { initiator, ..plan });
        let request = session.text();
        session.send(&Request::Text(request), &text(&[("SendTargets", value)]));
        let records = session.read().pairs();
        records.into_iter().filter(|(key, _)| key == "TargetName").map(|(_, name)| name).collect()
    };
    on_each_engine(
        |_| {},
        |server| {
            assert_eq!(names(server, None, "All"), [TARGET]);
            assert_eq!(names(server, Some(FRIEND), "All"), [TARGET, CLOSED_TARGET]);
            assert_eq!(names(server, None, CLOSED_TARGET), [""; 0]);
            assert_eq!(names(server, Some(FRIEND), CLOSED_TARGET), [CLOSED_TARGET]);
        },
    );
    // Nothing at all, where there is nothing for it.
    on_each_plan(
        |_| {},
        |plan| drop(plan.nodes.remove(0)),
        |server| {
            for value in ["All", CLOSED_TARGET, TARGET] {
                assert_eq!(names(server, None, value), [""; 0], "{value}");
            }
            assert_eq!(names(server, Some(FRIEND), "All"), [CLOSED_TARGET]);
        },
    );
}

/// A target with three portals, one of them IPv6 where there is IPv6.
fn with_portals(engine: engine::Choice) -> Server {
    let mut plan = plan(engine, iscsi::target_role::Settings::default());
    plan.portals.push(SocketAddr::from(([127, 0, 0, 1], 0)).into());
    let six: SocketAddr = "[::1]:0".parse().expect("an address");
    if std::net::TcpListener::bind(six).is_ok() {
        plan.portals.push(six.into());
    }
    Server::start(plan)
}

/// Covers: NAM-01/T, DIS-01, DIS-02, KEY-11.
#[test]
fn every_portal_tells_of_one_name_and_all_addresses() {
    let server = with_portals(engine::Choice::Epoll);
    let portals = server.target().portals().to_vec();
    for portal in &portals {
        let raw = Raw::connect(*portal).unwrap();
        let mut session = Initiator::login(raw, &LoginPlan::discovery());
        let records = discover(&mut session);
        let names: Vec<&str> =
            records.iter().filter(|(key, _)| key == "TargetName").map(|(_, v)| &**v).collect();
        assert_eq!(names, [TARGET]);
        let addresses: Vec<&str> =
            records.iter().filter(|(key, _)| key == "TargetAddress").map(|(_, v)| &**v).collect();
        // SocketAddr writes IPv6 addresses in brackets.
        let wanted: Vec<String> = portals.iter().map(|portal| format!("{portal},1")).collect();
        assert_eq!(addresses, wanted);
    }
}

/// Covers: DIS-16, DIS-17, DIS-18.
#[test]
fn unnamed_discovery_sessions_belong_to_their_portal() {
    let server = with_portals(engine::Choice::Epoll);
    let portals = server.target().portals().to_vec();
    let discovery = LoginPlan::discovery();
    let normal = LoginPlan { isid: discovery.isid, ..LoginPlan::new() };
    let mut disk = server.login_with(&normal);
    let mut here = server.login_with(&discovery);
    let there = Raw::connect(portals[1]).unwrap();
    let mut there = Initiator::login(there, &discovery);
    // One that names a target is another one, too, whichever comes first.
    let named = LoginPlan { discovery: true, ..normal.clone() };
    let mut with_name = server.login_with(&named);
    expect_sessions(&server, 4);
    disk.expect_quiet();
    discover(&mut here);
    // The same again on the first portal takes the place of the first one only.
    let mut again = server.login_with(&discovery);
    here.expect_closed();
    discover(&mut there);
    discover(&mut again);
    discover(&mut with_name);
    disk.expect_quiet();
    // Nor does a Normal session take the place of an unnamed discovery session.
    let mut disk_again = server.login_with(&normal);
    disk.expect_closed();
    discover(&mut there);
    discover(&mut again);
    disk_again.expect_quiet();
}

/// Covers: DIS-19.
#[test]
fn named_discovery_sessions_obey_the_plain_isid_rule() {
    on_each_engine(
        |_| {},
        |server| {
            let named = LoginPlan { discovery: true, ..LoginPlan::new() };
            let mut first = server.login_with(&named);
            let second = server.login_with(&named);
            first.expect_closed();
            assert_ne!(first.tsih, second.tsih);
            let mut third = server.login_with(&LoginPlan { isid: Isid([0x80; 6]), ..named });
            discover(&mut third);
            expect_sessions(server, 2);
        },
    );
}

/// Covers: DIS-14/T.
#[test]
fn a_discovery_session_has_one_connection() {
    on_each_engine(
        |_| {},
        |server| {
            let mut plan = LoginPlan::discovery().with(&[("MaxConnections", "8")]);
            let mut session = server.login_with(&plan);
            plan.tsih = session.tsih;
            plan.cid = Cid(2);
            plan.keys.clear();
            plan.expect_refused(server.connect(), 0x0206);
            discover(&mut session);
        },
    );
}
