// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several connections in a session, and how they come and go (RFC 7143 §4.2.5, §6.3.4-6.3.6, §7.5,
//! §11.14).

use lunwire_conformance::initiator::pattern;
use lunwire_conformance::*;
use std::time::Duration;
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
    let command = session.write_blocks(0, block, u16::try_from(data.len() / 512).unwrap());
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

/// Covers: MCS-01, SES-11, SES-06, CMD-31, MCS-02.
#[test]
fn two_connections_do_io() {
    on_each_reactor(
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
