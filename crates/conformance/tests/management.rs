// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management over one and several sessions (RFC 7143 §4.2.3, §11.5, §11.6).

use lunwire_conformance::tasks::*;
use lunwire_conformance::*;
use wire::iscsi::*;

fn session(server: &Server) -> Initiator {
    session_with(server, &[])
}

/// Covers: TMF-01, TMF-09, TMF-04, DOU-11.
#[test]
fn an_aborted_task_is_not_heard_of_again() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            let r2t = open_write(&mut session, 0, 0);
            manage(&mut session, ABORT_TASK, 0, r2t.itt);
            assert_eq!(managed(&mut session), 0);
            answer(&mut session, &r2t);
            session.expect_quiet();
            expect_untouched(&mut session, 0, 0);
            // Now it is unknown, and its number long past.
            manage(&mut session, ABORT_TASK, 0, r2t.itt);
            assert_eq!(managed(&mut session), 1);
        },
    );
}

/// Covers: TMF-14, TMF-19, TMF-20.
#[test]
fn abort_task_set_ends_the_tasks_of_one_nexus_and_unit() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            let mine = open_write(&mut one, 0, 0);
            let other_unit = open_write(&mut one, 1, 0);
            let foreign = open_write(&mut two, 0, 2);
            manage(&mut one, ABORT_TASK_SET, 0, Itt::NONE);
            // It waits for the data that was asked for (RFC 7143 §4.2.3.3).
            one.expect_quiet();
            answer(&mut one, &mine);
            acknowledge(&mut one);
            assert_eq!(managed(&mut one), 0);
            one.expect_quiet();
            complete(&mut one, &other_unit);
            complete(&mut two, &foreign);
            expect_untouched(&mut one, 0, 0);
            assert_eq!(attention(&mut two, 0), (0, 0, 0));
        },
    );
}

/// Covers: TMF-16, TMF-20, TMF-25, TMF-26, FAB-08, KEY-37/T, DOU-11.
#[test]
fn clear_task_set_ends_the_tasks_of_all_nexuses() {
    on_each_transport(
        |_| {},
        |server| {
            for tas in [true, false] {
                let mut one = session(server);
                if !tas {
                    leave_aborted_unanswered(&mut one);
                }
                clear_task_set(server, one, tas);
            }
        },
    );
}

/// Others hear of the end of their tasks by a status each, or else by a unit attention. Without
/// FastAbort iSCSI itself tells them nothing (RFC 7143 §4.2.3.3).
fn clear_task_set(server: &Server, mut one: Initiator, tas: bool) {
    let (mut two, mut three) = (session(server), session(server));
    let mut four = session(server);
    assert_eq!(task_set_type(&mut one), 0, "one task set for all nexuses");
    let foreign = open_write(&mut two, 0, 2);
    let other_unit = open_write(&mut two, 1, 1);
    // A hole in front of a command of the third party: nobody waits for it.
    three.take_cmd_sn();
    let behind = three.test_unit_ready(0);
    three.start(&behind);
    three.expect_quiet();
    manage(&mut one, CLEAR_TASK_SET, 0, Itt::NONE);
    assert_eq!(managed(&mut one), 0);
    if tas {
        expect_aborted(&mut two, &foreign);
    } else {
        answer(&mut two, &foreign);
        two.expect_quiet();
        assert_eq!(attention(&mut two, 0), COMMANDS_CLEARED);
    }
    assert_eq!(attention(&mut two, 0), (0, 0, 0));
    complete(&mut two, &other_unit);
    expect_untouched(&mut one, 0, 2);
    three.expect_quiet();
    // Who had no task that ended hears of nothing, on no unit.
    for lun in [0, 1] {
        assert_eq!(attention(&mut four, lun), (0, 0, 0));
    }
    assert_eq!(attention(&mut two, 1), (0, 0, 0));
}

/// Covers: TMF-21.
#[test]
fn logical_unit_reset_ends_reservations_and_changes_of_modes() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two) = (session(server), session(server));
            protect(&mut one);
            assert_eq!(attention(&mut two, 0), (0x06, 0x2a, 0x01), "modes have changed");
            let reserve = one.command(0, &[0x16, 0, 0, 0, 0, 0]);
            assert_eq!(one.run(&reserve).code, 0);
            let ready = two.test_unit_ready(0);
            assert_eq!(two.run(&ready).code, 0x18, "RESERVATION CONFLICT");
            manage(&mut two, LOGICAL_UNIT_RESET, 0, Itt::NONE);
            assert_eq!(managed(&mut two), 0);
            for session in [&mut one, &mut two] {
                let (key, code, _) = attention(session, 0);
                assert_eq!((key, code), (0x06, 0x29));
            }
            let ready = two.test_unit_ready(0);
            assert_eq!(two.run(&ready).code, 0);
            assert!(!is_protected(&mut two));
        },
    );
}

/// TST of the control mode page (SPC-4 §7.5.8).
fn task_set_type(session: &mut Initiator) -> u8 {
    let command = session.command(0, &[0x1a, 0x08, 0x0a, 0, 64, 0]);
    let status = session.run(&ScsiCommand { read: true, expected_length: 64, ..command });
    assert_eq!((status.code, status.data[4] & 0x3f), (0, 0x0a));
    status.data[6] >> 5
}

/// Covers: TMF-20, TMF-21, FAB-08, CLR-04.
#[test]
fn logical_unit_reset_ends_all_tasks_and_tells_everybody() {
    on_each_transport(
        |_| {},
        |server| {
            let (mut one, mut two, mut three) = (session(server), session(server), session(server));
            let mine = open_write(&mut one, 0, 0);
            let other_unit = open_write(&mut one, 1, 0);
            let foreign = open_write(&mut two, 0, 2);
            manage(&mut one, LOGICAL_UNIT_RESET, 0, Itt::NONE);
            answer(&mut one, &mine);
            assert_eq!(managed(&mut one), 0);
            expect_aborted(&mut two, &foreign);
            for session in [&mut one, &mut two, &mut three] {
                let (key, code, _) = attention(session, 0);
                assert_eq!((key, code), (0x06, 0x29));
                assert_eq!(attention(session, 0), (0, 0, 0));
                // The sequence numbers went on: `Initiator` checks every StatSN.
                session.expect_quiet();
            }
            complete(&mut one, &other_unit);
            expect_untouched(&mut one, 0, 0);
            expect_untouched(&mut one, 0, 2);
            assert_eq!(attention(&mut three, 1), (0, 0, 0));
        },
    );
}

/// Covers: TMF-03, TMF-04.
#[test]
fn later_commands_live_through_abort_task_set() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            let first = open_write(&mut session, 0, 0);
            let request = session.management(ABORT_TASK_SET, 0, Itt::NONE);
            let cmd_sn = session.take_cmd_sn();
            let request = TaskManagementRequest { immediate: false, cmd_sn, ..request };
            session.send(&Request::TaskManagement(request), &[]);
            let later = session.test_unit_ready(0);
            session.start(&later);
            answer(&mut session, &first);
            acknowledge(&mut session);
            assert_eq!(managed(&mut session), 0);
            assert_eq!(session.finish(later.itt).code, 0);
            session.expect_quiet();
            expect_untouched(&mut session, 0, 0);
        },
    );
}

/// A command with the number of an immediate function, or a higher one, came behind it, although it
/// was carried out first: over several connections it overtakes the function. It is none of those
/// that the function ends, so it must be answered.
///
/// Covers: TMF-03.
#[test]
fn a_command_that_overtook_a_function_is_carried_out() {
    on_each_transport(
        |_| {},
        |server| {
            for function in [ABORT_TASK_SET, CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
                let mut session = session(server);
                let before = open_write(&mut session, 0, 0);
                let request = session.management(function, 0, Itt::NONE);
                let later = open_write(&mut session, 0, 2);
                session.send(&Request::TaskManagement(request), &[]);
                answer(&mut session, &before);
                acknowledge(&mut session);
                assert_eq!(managed(&mut session), 0);
                complete(&mut session, &later);
                session.expect_quiet();
            }
        },
    );
}

/// Covers: TMF-02, TMF-11.
#[test]
fn functions_and_units_that_are_not_there() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            for function in [0, 9, 10, 11, 12, 13, 0x7f] {
                manage(&mut session, function, 0, Itt::NONE);
                assert_eq!(managed(&mut session), 5, "function {function}");
            }
            for function in [ABORT_TASK_SET, CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
                manage(&mut session, function, 99, Itt::NONE);
                acknowledge(&mut session);
                assert_eq!(managed(&mut session), 2, "function {function}");
            }
            session.expect_quiet();
        },
    );
}

/// Covers: TMF-10, CMD-26.
#[test]
fn a_missing_command_counts_as_received_once_aborted() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            let missing = session.take_cmd_sn();
            let behind = session.test_unit_ready(0);
            session.start(&behind);
            session.expect_quiet();
            let request = session.management(ABORT_TASK, 0, Itt(0x5555));
            let request = TaskManagementRequest { ref_cmd_sn: missing, ..request };
            session.send(&Request::TaskManagement(request), &[]);
            assert_eq!(managed(&mut session), 0);
            assert_eq!(session.finish(behind.itt).code, 0);
        },
    );
}

/// Covers: CMD-32a/T.
#[test]
fn abort_task_with_another_unit_is_not_carried_out() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            let r2t = open_write(&mut session, 0, 0);
            manage(&mut session, ABORT_TASK, 1, r2t.itt);
            assert_eq!(managed(&mut session), 1, "that unit has no such task");
            complete(&mut session, &r2t);
        },
    );
}
