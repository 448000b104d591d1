// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two portal groups, two target port groups, one disk (SPC-4 §5.15, RFC 7143 §4.4.1).

use std::net::SocketAddr;
use std::sync::Arc;

use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::UNIT_BYTES;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use scsi::AccessState;
use scsi::Explicit;
use scsi::Identity;
use scsi::LogicalUnit;
use scsi::PortGroup;
use store::spec::Spec;
use target::Portal;
use wire::iscsi::*;

const RTPG: [u8; 12] = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
const STPG: [u8; 12] = [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
const CHANGED: (u8, u8, u8) = (6, 0x2a, 0x06);
const STANDBY: (u8, u8, u8) = (2, 0x04, 0x0b);

fn group(number: u16, port: u16, state: AccessState) -> PortGroup {
    PortGroup { number, ports: vec![port], preferred: false, state }
}

/// Group 10 is active, group 20 in standby; a reactor each for the two sessions.
fn server() -> Server {
    let mut plan = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
    plan.reactors = 2;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    plan.portals = vec![address.into(), Portal { group: 2, ..address.into() }];
    let node = plan.nodes.first_mut().expect("a target");
    let store = plan.stores.open(&Spec::Memory { bytes: UNIT_BYTES }).expect("memory");
    let identity = Identity::derive(TARGET, 0, "LUNWIRE", "VIRTUAL DISK");
    let groups =
        vec![group(10, 1, AccessState::ActiveOptimized), group(20, 2, AccessState::Standby)];
    let unit = LogicalUnit::new(identity, store, BLOCK).expect("a legal unit");
    let unit = unit.with_port_groups(groups, Explicit::Yes).expect("two groups");
    node.luns = vec![(0, Arc::new(unit))];
    Server::start(plan)
}

fn session(server: &Server, portal: usize) -> Initiator {
    let portals = server.target().portals();
    let raw = Raw::connect(portals[portal]).expect("the portal listens");
    let mut session = Initiator::login(raw, &LoginPlan::new());
    let ready = session.test_unit_ready(0);
    assert_eq!(session.run(&ready).sense_code(), (6, 0x29, 0));
    session
}

fn ready(session: &mut Initiator) -> (u8, u8, u8) {
    let command = session.test_unit_ready(0);
    session.run(&command).sense_code()
}

fn states(session: &mut Initiator) -> Vec<(u8, u8)> {
    let command = session.command(0, &RTPG);
    let status = session.run(&ScsiCommand { read: true, expected_length: 256, ..command });
    assert_eq!(status.code, 0);
    status.data[4..].chunks_exact(12).map(|group| (group[3], group[0] & 0xf)).collect()
}

fn set(session: &mut Initiator, state: u8, group: u8) -> (u8, u8, u8) {
    let command = session.command(0, &STPG);
    let command = ScsiCommand { write: true, expected_length: 8, ..command };
    session.send(&Request::Command(command), &[0, 0, 0, 0, state, 0, 0, group]);
    session.finish(command.itt).sense_code()
}

/// Covers-scsi: A3/0A.
#[test]
fn each_portal_group_is_a_target_port_with_its_state() {
    let server = server();
    let (mut first, mut second) = (session(&server, 0), session(&server, 1));
    assert_eq!(first.answer("TargetPortalGroupTag"), Some("1"));
    assert_eq!(second.answer("TargetPortalGroupTag"), Some("2"));
    for session in [&mut first, &mut second] {
        assert_eq!(states(session), [(10, 0), (20, 2)]);
    }
    assert_eq!(ready(&mut first), (0, 0, 0));
    assert_eq!(ready(&mut second), STANDBY);
    let read = second.read_blocks(0, 0, 1);
    assert_eq!(second.run(&read).sense_code(), STANDBY);
}

/// Covers-scsi: A4/0A.
#[test]
fn a_host_moves_from_one_group_to_the_other() {
    let server = server();
    let (mut first, mut second) = (session(&server, 0), session(&server, 1));
    assert_eq!(set(&mut second, 0, 20), (0, 0, 0));
    assert_eq!(ready(&mut second), (0, 0, 0), "who asked is not told");
    assert_eq!(ready(&mut first), CHANGED);
    assert_eq!(set(&mut second, 2, 10), (0, 0, 0));
    assert_eq!(ready(&mut first), CHANGED);
    assert_eq!(ready(&mut first), STANDBY);
    assert_eq!(states(&mut first), [(10, 2), (20, 0)]);
    assert_eq!(set(&mut second, 0, 99), (5, 0x26, 0));
}

#[test]
fn an_administrator_changes_a_group_under_way() {
    let server = server();
    let (mut first, mut second) = (session(&server, 0), session(&server, 1));
    let units = server.target().units(TARGET).expect("the target");
    units[0].1.set_access_state(20, AccessState::ActiveNonOptimized).expect("a group");
    for session in [&mut first, &mut second] {
        assert_eq!(ready(session), CHANGED);
        assert_eq!(ready(session), (0, 0, 0));
    }
    let read = second.read_blocks(0, 0, 1);
    assert_eq!(second.run(&read).code, 0);
    units[0].1.set_access_state(20, AccessState::Unavailable).expect("a group");
    assert_eq!(ready(&mut second), CHANGED);
    assert_eq!(ready(&mut second), (2, 0x04, 0x0c));
}

/// The rule of the ISID is one session for each initiator port and target port.
#[test]
fn one_isid_has_a_session_in_each_portal_group_and_none_across() {
    let server = server();
    let portals = server.target().portals().to_vec();
    let plan = LoginPlan::new();
    let mut first = Initiator::login(Raw::connect(portals[0]).unwrap(), &plan);
    let mut second = Initiator::login(Raw::connect(portals[1]).unwrap(), &plan);
    first.expect_quiet();
    second.expect_quiet();
    let sessions = server.target().sessions();
    assert_eq!(sessions.len(), 2, "neither took the other's place");
    let tsih = sessions[0].tsih;
    let other = sessions[0].connections[0].local;
    let elsewhere = portals.iter().find(|portal| **portal != other).unwrap();
    let join = LoginPlan { tsih: Tsih(tsih), cid: Cid(7), ..plan };
    join.expect_refused(Raw::connect(*elsewhere).unwrap(), 0x020a);
}
