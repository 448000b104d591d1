// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several connections in a session, and how they come and go (RFC 7143 §4.2.5, §6.3.4-6.3.6, §7.5,
//! §11.14).

use iscsi::target_role::Redirection;
use iscsi::target_role::Settings;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::header;
use lunwire_conformance::server::CLOSED_TARGET;
use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use std::time::Duration;
use target::Found;
use target::Redirect;
use wire::iscsi::*;

const CLEARED: (u8, u8, u8) = (0x06, 0x47, 0x7f);
const NEXUS_LOST: (u8, u8, u8) = (0x06, 0x29, 0x07);
const SHORT: Duration = Duration::from_millis(200);

/// A session that may have four connections, and the plan to join it.
fn leading(server: &Server) -> (Initiator, LoginPlan) {
    let mut plan = LoginPlan::new().with(&[("MaxConnections", "8"), ("DefaultTime2Retain", "20")]);
    let mut first = server.login_with(&plan);
    first.settle(0);
    first.settle(1);
    plan.tsih = first.tsih;
    plan.keys.clear();
    (first, plan)
}

/// Another connection, whose next command comes after those of `first`.
fn join(server: &Server, plan: &LoginPlan, cid: u16, first: &Initiator) -> Initiator {
    let plan = LoginPlan { cid: Cid(cid), cmd_sn: first.cmd_sn, ..plan.clone() };
    let joined = server.login_with(&plan);
    assert_eq!(joined.tsih, first.tsih);
    joined
}

fn write(session: &mut Initiator, block: u32, data: &[u8]) {
    let command =
        session.write_blocks(0, block, u16::try_from(data.len() / 512).expect("few blocks"));
    session.start(&command);
    let r2t = session.read_r2t();
    let out = session.data_out(&r2t);
    session.send(&Request::DataOut(out), data);
    assert_eq!(session.finish(command.itt).code, 0);
}

fn read(session: &mut Initiator, block: u32, count: u16) -> Vec<u8> {
    let command = session.read_blocks(0, block, count);
    session.run(&command).data
}

fn logout(session: &mut Initiator, reason: u8, cid: u16) -> LogoutResponse {
    let request = LogoutRequest { cid: Cid(cid), ..session.logout(reason) };
    session.send(&Request::Logout(request), &[]);
    match session.read().response() {
        Response::Logout(answer) => answer,
        other => panic!("a Logout Response was due: {other:?}"),
    }
}

/// The sense of the next command.
fn attention(session: &mut Initiator) -> (u8, u8, u8) {
    let command = session.test_unit_ready(0);
    let status = session.run(&command);
    if status.code == 0 { (0, 0, 0) } else { status.sense_code() }
}

fn connections(server: &Server) -> Vec<u16> {
    let sessions = server.target().sessions();
    sessions.iter().flat_map(|session| &session.connections).map(|one| one.cid).collect()
}

/// Covers: MCS-01, SES-11, SES-06, CMD-31/T, MCS-02.
#[test]
fn two_connections_do_io() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            assert_eq!(connections(server), [1, 2]);
            for round in 0..20_u32 {
                let data = pattern(2048, round.to_be_bytes()[3]);
                second.cmd_sn = first.cmd_sn;
                write(&mut second, round * 8, &data);
                first.cmd_sn = second.cmd_sn;
                assert_eq!(read(&mut first, round * 8, 4), data);
                write(&mut first, round * 8 + 4, &data);
                second.cmd_sn = first.cmd_sn;
                assert_eq!(read(&mut second, round * 8 + 4, 4), data);
                first.cmd_sn = second.cmd_sn;
            }
            first.expect_quiet();
            second.expect_quiet();
        },
    );
}

/// Covers: CMD-05, STS-01.
#[test]
fn commands_run_in_order_over_all_connections() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            let stop = first.command(0, &[0x1b, 0, 0, 0, 0, 0]);
            second.cmd_sn = first.cmd_sn;
            let ready = second.test_unit_ready(0);
            second.start(&ready);
            assert_eq!(second.hear(SHORT), Heard::Nothing);
            first.start(&stop);
            assert_eq!(first.finish(stop.itt).code, 0);
            assert_eq!(second.finish(ready.itt).sense_code(), (0x02, 0x04, 0x02), "it is stopped");
        },
    );
}

/// Covers: MCS-04/T.
#[test]
fn each_connection_has_its_own_segments_and_digests() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let keys = [("MaxRecvDataSegmentLength", "512"), ("HeaderDigest", "CRC32C")];
            let mut second = join(server, &plan.clone().with(&keys), 2, &first);
            assert!(second.raw.header_digest);
            let command = second.read_blocks(0, 0, 2);
            second.start(&command);
            assert_eq!(second.read().data.len(), 512);
            assert_eq!(second.read().data.len(), 512);
            second.expect_quiet();
            first.cmd_sn = second.cmd_sn;
            let command = first.read_blocks(0, 0, 2);
            first.start(&command);
            assert_eq!(first.read().data.len(), 1024);
            // The session allows immediate data, whatever the joining login did not say.
            second.cmd_sn = first.cmd_sn;
            let write = second.write_blocks(0, 20, 1);
            second.send(&Request::Command(write), &pattern(512, 1));
            assert_eq!(second.finish(write.itt).code, 0);
            let late = plan.with(&[("MaxBurstLength", "512")]);
            LoginPlan { cid: Cid(3), ..late }.expect_refused(server.connect(), 0x0200);
        },
    );
}

/// A WRITE whose data was asked for and does not come.
fn open_write(session: &mut Initiator, block: u32) -> (R2t, Vec<u8>) {
    let command = session.write_blocks(0, block, 1);
    session.start(&command);
    (session.read_r2t(), pattern(512, 99))
}

/// Covers: LGO-06, LGO-02, LGO-05/T, LGO-11, CLR-03, MCS-05.
#[test]
fn a_connection_is_logged_out_from_another() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            let (mine, data) = open_write(&mut first, 30);
            second.cmd_sn = first.cmd_sn;
            open_write(&mut second, 31);
            first.cmd_sn = second.cmd_sn;
            let answer = logout(&mut first, 1, 2);
            assert_eq!((answer.response, answer.time2retain), (0, 0));
            second.expect_closed();
            assert_eq!(connections(server), [1]);
            // The task of the other connection goes on.
            let out = first.data_out(&mine);
            first.send(&Request::DataOut(out), &data);
            assert_eq!(first.finish(mine.itt).code, 0);
            assert_eq!(attention(&mut first), CLEARED);
            assert_eq!(attention(&mut first), (0, 0, 0));
            assert_eq!(read(&mut first, 31, 1), [0; 512]);
            // The place is free again.
            let mut second = join(server, &plan, 2, &first);
            assert_eq!(read(&mut second, 30, 1), data);
        },
    );
}

/// Covers: LGO-07a, MCS-05.
#[test]
fn a_connection_logs_itself_out() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            assert_eq!(logout(&mut second, 1, 9).response, 1);
            assert_eq!(logout(&mut second, 2, 2).response, 2);
            assert_eq!(logout(&mut second, 1, 2).response, 0);
            second.expect_closed();
            first.expect_quiet();
            assert_eq!(logout(&mut first, 1, 1).response, 0);
            first.expect_closed();
            LoginPlan { cid: Cid(3), ..plan }.expect_refused(server.connect(), 0x020a);
        },
    );
}

/// Covers: MCS-05, ERL-06.
#[test]
fn a_lost_connection_leaves_the_others() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            open_write(&mut second, 40);
            first.cmd_sn = second.cmd_sn;
            drop(second);
            match first.read().response() {
                Response::Async(message) => {
                    assert_eq!((message.event, message.parameter1), (2, 2));
                }
                other => panic!("news of the other connection was due: {other:?}"),
            }
            assert_eq!(attention(&mut first), CLEARED);
            first.expect_quiet();
        },
    );
}

/// Covers: MCS-06.
#[test]
fn commands_of_a_lost_connection_may_be_sent_again() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            let lost = second.write_blocks(0, 50, 1);
            let early = second.read_blocks(0, 50, 1);
            second.start(&early);
            assert_eq!(second.hear(SHORT), Heard::Nothing);
            assert_eq!(logout(&mut first, 1, 2).response, 0);
            let again = first.test_unit_ready(0);
            let again = ScsiCommand { cmd_sn: early.cmd_sn, ..again };
            first.start(&again);
            assert_eq!(first.hear(SHORT), Heard::Nothing);
            let filler = first.test_unit_ready(0);
            let filler = ScsiCommand { cmd_sn: lost.cmd_sn, ..filler };
            first.start(&filler);
            assert_eq!(first.finish(filler.itt).code, 0);
            assert_eq!(first.finish(again.itt).code, 0);
        },
    );
}

/// Covers: SES-12, SES-17, SES-18, SES-29.
#[test]
fn a_connection_is_reinstated() {
    on_each_engine(
        |_| {},
        |server| {
            for connections_max in ["1", "4"] {
                let mut plan = LoginPlan::new().with(&[("MaxConnections", connections_max)]);
                let mut old = server.login_with(&plan);
                old.settle(0);
                plan.tsih = old.tsih;
                plan.keys.clear();
                open_write(&mut old, 60);
                let mut new = join(server, &plan, 1, &old);
                old.expect_closed();
                assert_eq!(attention(&mut new), CLEARED);
                new.expect_quiet();
                let data = pattern(512, 61);
                write(&mut new, 61, &data);
                assert_eq!(read(&mut new, 61, 1), data);
                assert_eq!(read(&mut new, 60, 1), [0; 512]);
                new.leave();
            }
        },
    );
}

/// Covers: SES-13.
#[test]
fn a_login_that_fails_disturbs_nobody() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let (r2t, data) = open_write(&mut first, 70);
            let bad = plan.clone().with(&[("MaxRecvDataSegmentLength", "1")]);
            bad.expect_refused(server.connect(), 0x0200);
            let bad = LoginPlan { tsih: Tsih(0), ..bad };
            bad.expect_refused(server.connect(), 0x0200);
            let out = first.data_out(&r2t);
            first.send(&Request::DataOut(out), &data);
            assert_eq!(first.finish(r2t.itt).code, 0);
            assert_eq!(attention(&mut first), (0, 0, 0));
        },
    );
}

/// Covers: SES-24, TMO-02/T.
#[test]
fn a_session_is_continued() {
    on_each_engine(
        |settings| settings.time2retain = 20,
        |server| {
            let (mut first, plan) = leading(server);
            open_write(&mut first, 80);
            let next = first.cmd_sn;
            drop(first);
            while !connections(server).is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut again = server.login_with(&LoginPlan { cmd_sn: next, ..plan.clone() });
            assert_eq!(again.tsih, plan.tsih);
            assert_eq!(attention(&mut again), CLEARED);
            let mut second = join(server, &plan, 2, &again);
            write(&mut second, 81, &pattern(512, 81));
        },
    );
}

/// Covers: SES-23, SES-21, CLR-02.
#[test]
fn a_session_that_nobody_continues_times_out() {
    on_each_engine(
        |settings| (settings.time2wait, settings.time2retain) = (0, 20),
        |server| {
            let keys = [("DefaultTime2Wait", "0"), ("DefaultTime2Retain", "1")];
            let mut plan = LoginPlan::new().with(&keys);
            let mut session = server.login_with(&plan);
            session.settle(0);
            plan.tsih = session.tsih;
            plan.keys.clear();
            drop(session);
            std::thread::sleep(Duration::from_millis(600));
            assert_eq!(server.target().sessions().len(), 1, "it is kept");
            std::thread::sleep(Duration::from_millis(900));
            assert_eq!(server.target().sessions().len(), 0, "it has timed out");
            plan.expect_refused(server.connect(), 0x020a);
            plan.tsih = Tsih(0);
            let mut new = server.login_with(&plan);
            assert_eq!(attention(&mut new), NEXUS_LOST);
        },
    );
}

/// Covers: SES-11.
#[test]
fn more_connections_than_agreed_are_refused() {
    on_each_engine(
        |settings| settings.max_connections = 2,
        |server| {
            let (first, plan) = leading(server);
            assert_eq!(first.answer("MaxConnections"), Some("2"));
            let second = join(server, &plan, 2, &first);
            let third = LoginPlan { cid: Cid(3), ..plan.clone() };
            third.expect_refused(server.connect(), 0x0206);
            drop(second);
            while connections(server).len() > 1 {
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut third = join(server, &plan, 3, &first);
            third.expect_quiet();
        },
    );
}

/// Covers: MCS-02.
#[test]
fn nobody_joins_a_login() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let mut raw = server.connect();
            let begin = LoginRequest { transit: false, next: None, ..plan.request() };
            raw.send(&Request::Login(begin), &plan.text());
            raw.read();
            let early = LoginPlan { tsih: Tsih(1), cid: Cid(2), ..plan };
            early.expect_refused(server.connect(), 0x020a);
        },
    );
}

/// Covers: TMF-19, STS-12a, STS-12b.
#[test]
fn a_fenced_response_waits_for_every_connection() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            // An answer on the second connection that is not acknowledged.
            let ready = second.test_unit_ready(0);
            second.start(&ready);
            assert_eq!(second.finish(ready.itt).code, 0);
            first.cmd_sn = second.cmd_sn;
            let abort = first.management(2, 0, Itt::NONE);
            first.send(&Request::TaskManagement(abort), &[]);
            acknowledge(&mut first);
            assert_eq!(first.hear(SHORT), Heard::Nothing);
            acknowledge(&mut second);
            match first.read().response() {
                Response::TaskManagement(answer) => assert_eq!(answer.response, 0),
                other => panic!("an answer to task management was due: {other:?}"),
            }
            // Until that is acknowledged, no other answer leaves.
            second.cmd_sn = first.cmd_sn;
            let ready = second.test_unit_ready(0);
            second.start(&ready);
            loop {
                match second.hear(SHORT) {
                    Heard::Nothing => break,
                    Heard::Pdu(pdu) => assert!(matches!(pdu.response(), Response::NopIn(_))),
                    Heard::Closed => panic!("closed"),
                }
            }
            acknowledge(&mut first);
            assert_eq!(second.finish(ready.itt).code, 0);
        },
    );
}

/// Acknowledges all that came, without asking for anything.
fn acknowledge(session: &mut Initiator) {
    let nop = NopOut { immediate: true, itt: Itt::NONE, ..session.ping() };
    session.cmd_sn = nop.cmd_sn;
    session.send(&Request::NopOut(nop), &[]);
}

/// What a redirected login is told.
fn redirected(server: &Server, plan: &LoginPlan, status: u16) {
    let mut raw = server.connect();
    let (response, pdu) = plan.begin(&mut raw);
    assert_eq!(response.status, status);
    assert_eq!(pdu.data, b"TargetAddress=192.0.2.7:3260\0");
    raw.expect_closed();
}

/// Covers: RDR-01, RDR-02, RDR-06/T, KEY-12.
#[test]
fn a_target_that_has_moved_says_where() {
    let durations = [(Redirection::Temporary, 0x0101), (Redirection::Permanent, 0x0102)];
    for (duration, status) in durations {
        let mut plan = plan(engine::Choice::Auto, Settings::default());
        let address = "192.0.2.7:3260".to_owned();
        plan.nodes.first_mut().expect("a target").redirect = Some(Redirect { address, duration });
        let server = Server::start(plan);
        redirected(&server, &LoginPlan::new(), status);
        let other = LoginPlan { target: Some(CLOSED_TARGET.to_owned()), ..LoginPlan::new() };
        other.expect_refused(server.connect(), 0x0202);
        let mut discovery = server.login_with(&LoginPlan::discovery());
        let text = discovery.text();
        discovery.send(&Request::Text(text), b"SendTargets=All\0");
        let records = discovery.read().pairs();
        let address = records.iter().find(|(key, _)| key == "TargetAddress").expect("an address");
        assert!(address.1.ends_with(",1"), "SendTargets has the tag: {address:?}");
    }
}

/// Waits until no session is left; panics if that takes longer than `patience`.
fn expect_no_session(server: &Server, patience: Duration) {
    let begun = std::time::Instant::now();
    while !server.target().sessions().is_empty() {
        assert!(begun.elapsed() < patience, "it has not ended in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Covers: ASY-02, ASY-06.
#[test]
fn a_session_ends_in_time_whatever_its_initiator_does() {
    on_each_engine(
        |_| {},
        |server| {
            // The initiator does nothing at all.
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            open_write(&mut second, 90);
            assert_eq!(server.target().logout_session(first.tsih.0, 1), Found::Here);
            for session in [&mut first, &mut second] {
                match session.read().response() {
                    Response::Async(message) => {
                        assert_eq!((message.event, message.parameter3), (1, 1));
                    }
                    other => panic!("a request to log out was due: {other:?}"),
                }
            }
            expect_no_session(server, Duration::from_secs(3));

            // It does as it is asked.
            let (mut first, plan) = leading(server);
            let mut second = join(server, &plan, 2, &first);
            assert_eq!(server.target().logout_session(first.tsih.0, 30), Found::Here);
            first.read();
            second.read();
            assert_eq!(logout(&mut first, 0, 0).response, 0);
            second.expect_closed();
            expect_no_session(server, Duration::from_secs(1));

            // Nobody is asked.
            let (mut first, _) = leading(server);
            assert_eq!(server.target().drop_session(first.tsih.0), Found::Here);
            assert_eq!(first.expect_dropped().event, 3);
            expect_no_session(server, Duration::from_secs(1));
            assert_eq!(server.target().drop_session(first.tsih.0), Found::Nowhere);
            assert_eq!(server.target().logout_session(first.tsih.0, 1), Found::Nowhere);
        },
    );
}

/// A session without a connection is listed, and can be ended.
#[test]
fn a_deserted_session_can_be_ended() {
    on_each_engine(
        |settings| settings.time2retain = 20,
        |server| {
            for drop_it in [true, false] {
                let (first, plan) = leading(server);
                drop(first);
                while !connections(server).is_empty() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert_eq!(server.target().sessions().len(), 1);
                if drop_it {
                    assert_eq!(server.target().drop_session(plan.tsih.0), Found::Here);
                } else {
                    assert_eq!(server.target().logout_session(plan.tsih.0, 30), Found::Here);
                }
                expect_no_session(server, Duration::from_secs(1));
            }
        },
    );
}

/// Writes that were under way when their connection was logged out or replaced are over when that
/// is answered: what another connection writes then stays.
///
/// Covers: LGO-02, SES-18.
#[test]
fn nothing_is_written_after_the_answer() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server);
            first.settle(FILE_LUN);
            for round in 0..30_u8 {
                let mut second = join(server, &plan, 2, &first);
                for _ in 0..16 {
                    let write = second.write_blocks(FILE_LUN, 200, 8);
                    second.send(&Request::Command(write), &pattern(4096, round));
                }
                first.cmd_sn = second.cmd_sn;
                let mut heir = if round % 2 == 0 {
                    assert_eq!(logout(&mut first, 1, 2).response, 0);
                    join(server, &plan, 3, &first)
                } else {
                    join(server, &plan, 2, &first)
                };
                // Whatever part of the writes had come: the numbers of the rest are missing.
                let mut nop = heir.ping();
                nop.immediate = true;
                heir.send(&Request::NopOut(nop), b"");
                let pdu = heir.read();
                heir.cmd_sn = CmdSn(pdu.word(28));
                let data = pattern(4096, 200 - round);
                loop {
                    let write = heir.write_blocks(FILE_LUN, 200, 8);
                    heir.send(&Request::Command(write), &data);
                    let status = heir.finish(write.itt);
                    if status.code == 0 {
                        break;
                    }
                    assert_eq!(status.sense_code(), CLEARED);
                }
                std::thread::sleep(Duration::from_millis(2));
                let command = heir.read_blocks(FILE_LUN, 200, 8);
                assert!(heir.run(&command).data == data, "an old write came late");
                first.cmd_sn = heir.cmd_sn;
                let cid = if round % 2 == 0 { 3 } else { 2 };
                assert_eq!(logout(&mut first, 1, cid).response, 0);
                heir.expect_closed();
            }
        },
    );
}

/// A login that moves to another thread keeps what came right behind its request, and what comes in
/// single bytes.
#[test]
fn a_joining_login_loses_no_byte() {
    on_each_engine(
        |_| {},
        |server| {
            let (first, plan) = leading(server);
            for cid in 2..5 {
                let plan = LoginPlan { cid: Cid(cid), cmd_sn: first.cmd_sn, ..plan.clone() };
                let mut raw = server.connect();
                let text = plan.text();
                let request = Request::Login(plan.request());
                let mut bytes = raw.assemble(&header(&request, text.len()), &text);
                let ping = NopOut {
                    immediate: true,
                    lun: LunField::default(),
                    itt: Itt(77),
                    ttt: Ttt::NONE,
                    cmd_sn: first.cmd_sn,
                    exp_stat_sn: StatSn(0),
                };
                let ping = Request::NopOut(ping);
                bytes.extend(raw.assemble(&header(&ping, 5), b"early"));
                match cid {
                    2 => raw.write(&bytes),
                    3 => bytes.chunks(1).for_each(|byte| raw.write(byte)),
                    _ => bytes.chunks(150).for_each(|part| {
                        raw.write(part);
                        std::thread::sleep(Duration::from_millis(1));
                    }),
                }
                assert!(matches!(raw.read().response(), Response::Login(_)));
                let pdu = raw.read();
                assert!(matches!(pdu.response(), Response::NopIn(_)));
                assert_eq!(pdu.data, b"early");
            }
        },
    );
}

/// Many connections join and leave at once while others work.
#[test]
fn connections_join_and_leave_under_load() {
    on_each_engine(
        |settings| settings.max_connections = 8,
        |server| {
            let (mut first, plan) = leading(server);
            for round in 0..10_u16 {
                let mut joined: Vec<Initiator> =
                    (0..6).map(|n| join(server, &plan, 10 + (round + n) % 9, &first)).collect();
                for session in &mut joined {
                    session.cmd_sn = first.cmd_sn;
                    let data = pattern(1024, round.to_be_bytes()[1]);
                    write(session, 100, &data);
                    assert_eq!(read(session, 100, 2), data);
                    first.cmd_sn = session.cmd_sn;
                }
                for session in &mut joined {
                    session.cmd_sn = first.cmd_sn;
                    let reads: Vec<ScsiCommand> =
                        (0..5).map(|_| session.read_blocks(0, 100, 2)).collect();
                    for command in &reads {
                        session.start(command);
                    }
                    for command in &reads {
                        assert_eq!(session.finish(command.itt).data.len(), 1024);
                    }
                    first.cmd_sn = session.cmd_sn;
                }
                for n in 0..6 {
                    assert_eq!(logout(&mut first, 1, 10 + (round + n) % 9).response, 0);
                }
                for session in &mut joined {
                    session.expect_closed();
                }
            }
            first.leave();
        },
    );
}

/// Covers: MCS-03/T.
#[test]
fn a_session_stays_within_its_portal_group() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let portal = |group| target::Portal { group, ..address.into() };
    on_each_plan(
        |_| {},
        |plan| plan.portals = vec![portal(1), portal(1), portal(2)],
        |server| {
            let (mut first, plan) = leading(server);
            let of =
                |index: usize| Raw::connect(server.target().portals()[index]).expect("it listens");
            let next = LoginPlan { cid: Cid(2), cmd_sn: first.cmd_sn, ..plan.clone() };
            let mut second = Initiator::login(of(1), &next);
            second.expect_quiet();
            LoginPlan { cid: Cid(3), ..next.clone() }.expect_refused(of(2), 0x020a);
            // There it is the ISID of another session.
            let other = Initiator::login(of(2), &LoginPlan { tsih: Tsih(0), ..next });
            assert_ne!(other.tsih, first.tsih);
            first.expect_quiet();
        },
    );
}
