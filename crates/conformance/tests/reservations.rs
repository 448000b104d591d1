// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reservations and the sessions that hold them (RFC 7143 §4.4.3.2).

use lunwire_conformance::*;
use wire::iscsi::*;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;
use wire::scsi::sam::RESERVATION_CONFLICT;

const KEY: u64 = 0x0123_4567_89ab_cdef;

/// The status of a command without data.
fn run(session: &mut Initiator, cdb: &[u8]) -> u8 {
    let command = session.command(0, cdb);
    session.run(&command).code
}

/// PERSISTENT RESERVE OUT.
fn reserve_out(session: &mut Initiator, action: u8, kind: u8, keys: [u64; 2]) -> u8 {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&keys[0].to_be_bytes());
    list[8..16].copy_from_slice(&keys[1].to_be_bytes());
    let command = session.command(0, &[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0]);
    write(session, command, &list)
}

/// PERSISTENT RESERVE IN.
fn reserve_in(session: &mut Initiator, action: u8) -> Vec<u8> {
    let command = session.command(0, &[0x5e, action, 0, 0, 0, 0, 0, 0, 64, 0]);
    session.run(&ScsiCommand { read: true, expected_length: 64, ..command }).data
}

/// Covers: SES-31.
#[test]
fn persistent_reservations_outlive_the_session() {
    on_each_transport(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let mut first = server.login_with(&plan);
            first.settle(0);
            assert_eq!(reserve_out(&mut first, 0, 0, [0, KEY]), GOOD);
            assert_eq!(reserve_out(&mut first, 1, 1, [KEY, 0]), GOOD);
            let before = (reserve_in(&mut first, 0), reserve_in(&mut first, 1));
            assert!(before.0.windows(8).any(|window| window == KEY.to_be_bytes()));
            drop(first);
            let mut other = server.login();
            other.settle(0);
            assert_eq!(write_block(&mut other), RESERVATION_CONFLICT);
            let mut again = server.login_with(&plan);
            again.settle(0);
            assert_eq!((reserve_in(&mut again, 0), reserve_in(&mut again, 1)), before);
            assert_eq!(write_block(&mut again), GOOD, "the nexus holds what it held");
        },
    );
}

/// One initiator in two ways of writing is one: a login with the same ISID replaces the session,
/// and has what its port has registered and reserved.
///
/// Sessions of one initiator are different ports: what one has registered is not the other's, and
/// each hears of what the other has done.
///
/// Covers: SES-04.
#[test]
fn each_session_of_an_initiator_is_a_port_of_its_own() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (server.login(), server.login());
            one.settle(0);
            two.settle(0);
            assert_eq!(reserve_out(&mut one, 0, 0, [0, KEY]), GOOD);
            assert_eq!(reserve_out(&mut one, 1, 1, [KEY, 0]), GOOD);
            assert_eq!(write_block(&mut two), RESERVATION_CONFLICT, "of another port");
            assert_eq!(reserve_out(&mut two, 0, 0, [0, KEY + 1]), GOOD);
            let keys = reserve_in(&mut two, 0);
            for key in [KEY, KEY + 1] {
                assert!(keys.windows(8).any(|window| window == key.to_be_bytes()), "{keys:x?}");
            }
            assert_eq!(reserve_out(&mut one, 3, 0, [KEY, 0]), GOOD, "CLEAR");
            // Whose registration was taken away is told, and nobody else.
            let ready = one.test_unit_ready(0);
            assert_eq!(one.run(&ready).code, GOOD);
            let ready = two.test_unit_ready(0);
            assert_eq!(two.run(&ready).sense_code(), (0x06, 0x2a, 0x03), "RESERVATIONS PREEMPTED");
            one.leave();
            two.leave();
        },
    );
}

/// As READ FULL STATUS has it: names of each length beside a multiple of four, with their null.
///
/// Covers: NAM-12/T.
#[test]
fn a_registration_names_the_port_of_the_session() {
    on_each_transport(
        |_| {},
        |server| {
            for rest in ["a", "ab", "abc", "abcd"] {
                let name = format!("iqn.2026-01.com.example:{rest}");
                let plan = LoginPlan { initiator: Some(name.clone()), ..LoginPlan::new() };
                let mut session = server.login_with(&plan);
                session.settle(0);
                assert_eq!(reserve_out(&mut session, 0, 0, [0, KEY]), GOOD);
                let command = session.command(0, &[0x5e, 3, 0, 0, 0, 0, 0, 0, 255, 0]);
                let status =
                    session.run(&ScsiCommand { read: true, expected_length: 255, ..command });
                let digits = plan.isid.0.map(|byte| format!("{byte:02x}")).concat();
                let mut port = format!("{name},i,0x{digits}\0").into_bytes();
                port.resize(port.len().next_multiple_of(4), 0);
                let length = u8::try_from(port.len()).expect("a short name");
                // Behind the header of the data and that of the only registration.
                assert_eq!(status.data[32..], [&[0x45, 0, 0, length][..], &port].concat());
                assert_eq!(reserve_out(&mut session, 0, 0, [KEY, 0]), GOOD);
                session.leave();
            }
        },
    );
}

/// Covers: NAM-07/T.
#[test]
fn a_name_in_other_letters_is_the_same_initiator() {
    on_each_transport(
        |_| {},
        |server| {
            let mut plan = LoginPlan::new();
            let name = plan.initiator.clone().expect("it has one");
            let mut first = server.login_with(&plan);
            first.settle(0);
            assert_eq!(reserve_out(&mut first, 0, 0, [0, KEY]), GOOD);
            assert_eq!(reserve_out(&mut first, 1, 1, [KEY, 0]), GOOD);
            plan.initiator = Some(name.replace("iqn.", "IQN.").replace("initiator", "InitiatoR"));
            let mut second = server.login_with(&plan);
            first.raw.expect_closed();
            second.settle(0);
            assert_eq!(write_block(&mut second), GOOD, "its port holds the reservation");
            let sessions = server.target().sessions();
            assert_eq!(sessions.len(), 1);
            assert_eq!(sessions[0].initiator, name);
        },
    );
}

/// Covers: SES-32.
#[test]
fn reserve_outlives_session_reinstatement_only() {
    on_each_transport(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let mut first = server.login_with(&plan);
            first.settle(0);
            let mut other = server.login();
            other.settle(0);
            assert_eq!(run(&mut first, &[0x16, 0, 0, 0, 0, 0]), GOOD);
            assert_eq!(run(&mut other, &[0; 6]), RESERVATION_CONFLICT);
            // The same ISID while the old session lives.
            let mut again = server.login_with(&plan);
            assert_eq!(run(&mut again, &[0; 6]), CHECK_CONDITION, "nexus loss is told");
            assert_eq!(run(&mut other, &[0; 6]), RESERVATION_CONFLICT);
            assert_eq!(run(&mut again, &[0; 6]), GOOD);
            let logout = again.logout(0);
            again.send(&Request::Logout(logout), &[]);
            again.read();
            again.raw.expect_closed();
            assert_eq!(run(&mut other, &[0; 6]), GOOD, "a logout ends what RESERVE gave");
        },
    );
}

fn write_block(session: &mut Initiator) -> u8 {
    let command = session.write_blocks(0, 0, 1);
    write(session, command, &[7; 512])
}

/// Runs a command with all its data immediate; gives its status.
fn write(session: &mut Initiator, command: ScsiCommand, data: &[u8]) -> u8 {
    let expected_length = u32::try_from(data.len()).expect("a short list");
    let command = ScsiCommand { write: true, expected_length, ..command };
    session.send(&Request::Command(command), data);
    session.finish(command.itt).code
}
