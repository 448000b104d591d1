// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections without a network, as the target sees them.

use engine::Choice;
use iscsi::target_role::Settings;
use lunwire_conformance::initiator::*;
use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use target::Peer;
use target::Plan;
use wire::iscsi::*;

/// Blocks of a large READ: 1 MiB.
const LARGE: u16 = 2048;

fn local(adjust: impl FnOnce(&mut Plan)) -> Server {
    let mut plan = plan(engine::choose(Choice::Auto), Settings::default());
    adjust(&mut plan);
    Server::local(plan)
}

/// All of `count` large reads, which may end in any order; gives how many bytes came.
fn read_much(session: &mut Initiator, lun: u8, count: usize) -> usize {
    for _ in 0..count {
        let read = session.read_blocks(lun, 0, LARGE);
        session.start(&read);
    }
    let (mut done, mut bytes) = (0, 0);
    while done < count {
        let pdu = session.read();
        match pdu.response() {
            Response::DataIn(part) => {
                bytes += pdu.data.len();
                done += usize::from(part.status.is_some());
            }
            Response::Scsi(answer) => {
                assert_eq!(answer.status, GOOD);
                done += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    bytes
}

/// A connection that was not read because of what waited to leave is read again.
#[test]
fn a_connection_with_much_to_send_is_read_again() {
    let server = local(|_| {});
    let mut session = server.login();
    session.settle(0);
    assert_eq!(read_much(&mut session, 0, 100), 100 << 20);
    session.expect_quiet();
}

/// Memory that a local initiator gives back comes without a word: who waits for it gets it.
#[test]
fn memory_comes_back_without_a_word() {
    let server = local(|plan| plan.pool_bytes_max = 16 << 20);
    let mut session = server.login();
    session.settle(FILE_LUN);
    assert_eq!(read_much(&mut session, FILE_LUN, 60), 60 << 20);
}

/// All connections of a session are of one kind, on whichever reactor they begin.
#[test]
fn a_session_has_connections_of_one_kind() {
    let server = local(|plan| plan.reactors = 2);
    let plan = LoginPlan::new().with(&[("MaxConnections", "4")]);
    let first = server.login_with(&plan);
    let mut others = Vec::new();
    for cid in 2..=3 {
        let plan = LoginPlan { cid: Cid(cid), ..plan.clone() };
        let mut second = Initiator::rejoin(&first, server.connect(), &plan);
        second.cmd_sn = first.cmd_sn;
        second.expect_quiet();
        others.push(second);
    }
    let sessions = server.target().sessions();
    let peers: Vec<Peer> = sessions[0].connections.iter().map(|one| one.peer).collect();
    assert_eq!(peers, [Peer::Local; 3]);
    assert_eq!(peers[0].to_string(), "local");
    let stranger = LoginPlan { cid: Cid(4), tsih: first.tsih, keys: Vec::new(), ..plan.clone() };
    let raw = Raw::connect(server.portal()).expect("the target listens");
    stranger.expect_refused(raw, 0x0208);
}
