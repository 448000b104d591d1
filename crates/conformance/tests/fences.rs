// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response fences and fast multi-task abort over several connections and sessions (RFC 7143
//! §4.2.2.3, §4.2.3.3-4.2.3.5).

use std::time::Duration;

use lunwire_conformance::tasks::*;
use lunwire_conformance::*;
use wire::iscsi::*;
use wire::scsi::sam::ACA_ACTIVE;

/// For what must not come.
const SHORT: Duration = Duration::from_millis(200);
/// For what must, on a machine with much to do.
const LONG: Duration = Duration::from_secs(10);
const DEVICE_RESET: (u8, u8, u8) = (0x06, 0x29, 0x03);
const TASK_TERMINATION: u8 = 5;
const CLEAR_ACA: u8 = 3;
/// PERSISTENT RESERVE OUT.
const REGISTER: u8 = 0;
const PREEMPT_AND_ABORT: u8 = 5;

const FENCE: (&str, &str) = ("TaskReporting", "ResponseFence,RFC3720");
const FAST: (&str, &str) = ("TaskReporting", "FastAbort,ResponseFence,RFC3720");

/// Two connections of a session, without attentions.
fn pair(server: &Server, reporting: (&str, &str)) -> [Initiator; 2] {
    let keys = [
        ("MaxConnections", "2"),
        ("MaxBurstLength", "512"),
        ("FirstBurstLength", "512"),
        reporting,
    ];
    let plan = LoginPlan::new().with(&keys);
    let mut first = server.login_with(&plan);
    first.settle(0);
    first.settle(1);
    let joining =
        LoginPlan { tsih: first.tsih, cid: Cid(2), cmd_sn: first.cmd_sn, keys: Vec::new(), ..plan };
    let second = server.login_with(&joining);
    [first, second]
}

/// The second connection has been told a status that it does not acknowledge.
fn leave_unacknowledged([first, second]: &mut [Initiator; 2]) {
    second.cmd_sn = first.cmd_sn;
    let ready = second.test_unit_ready(1);
    second.start(&ready);
    assert_eq!(second.finish(ready.itt).code, 0);
    first.cmd_sn = second.cmd_sn;
}

/// What comes on a connection soon, but questions for ExpStatSN.
fn heard(session: &mut Initiator) -> Option<Response> {
    heard_within(session, SHORT)
}

/// The same of what is due.
fn due(session: &mut Initiator) -> Option<Response> {
    heard_within(session, LONG)
}

fn heard_within(session: &mut Initiator, patience: Duration) -> Option<Response> {
    loop {
        match session.hear(patience) {
            Heard::Nothing => return None,
            Heard::Closed => panic!("closed"),
            Heard::Pdu(pdu) => match pdu.response() {
                Response::NopIn(_) => {}
                other => return Some(other),
            },
        }
    }
}

/// A response that is due on the first connection comes only once the second one has acknowledged
/// what it was sent, and nothing comes behind it until it is acknowledged itself.
fn expect_fenced(pair: &mut [Initiator; 2], is_it: impl Fn(&Response) -> bool) {
    let [first, second] = pair;
    assert_eq!(heard(first), None, "it waits for all before it");
    second.cmd_sn = first.cmd_sn;
    let after = second.test_unit_ready(1);
    second.start(&after);
    assert_eq!(heard(second), None, "a later one gets in line");
    first.cmd_sn = second.cmd_sn;
    acknowledge(second);
    let response = due(first).expect("it is due now");
    assert!(is_it(&response), "{response:?}");
    assert_eq!(heard(second), None, "all after it wait");
    acknowledge(first);
    match due(second) {
        Some(Response::Scsi(answer)) => assert_eq!((answer.itt, answer.status), (after.itt, 0)),
        other => panic!("its turn has come: {other:?}"),
    }
}

fn is_managed(response: &Response) -> bool {
    matches!(response, Response::TaskManagement(answer) if answer.response == 0)
}

/// Covers: STS-11, STS-13a.
#[test]
fn the_answer_to_a_reset_is_fenced() {
    on_each_transport(
        |_| {},
        |server| {
            for function in [LOGICAL_UNIT_RESET, TARGET_WARM_RESET] {
                let mut pair = pair(server, FENCE);
                let [first, _] = &pair;
                assert_eq!(first.answer("TaskReporting"), Some("ResponseFence"));
                leave_unacknowledged(&mut pair);
                manage(&mut pair[0], function, 0, Itt::NONE);
                assert_eq!(heard(&mut pair[0]), None);
                acknowledge(&mut pair[1]);
                assert!(is_managed(&due(&mut pair[0]).expect("it is due now")));
            }
        },
    );
}

/// Covers: STS-11, STS-13b.
#[test]
fn the_first_unit_attention_after_a_reset_is_fenced_everywhere() {
    on_each_transport(
        |_| {},
        |server| {
            // The session that asks for the reset, and a third party.
            for own in [true, false] {
                let mut pair = pair(server, FENCE);
                let mut other = session_with(server, &[]);
                let issuer = if own { &mut pair[0] } else { &mut other };
                manage(issuer, LOGICAL_UNIT_RESET, 0, Itt::NONE);
                assert_eq!(managed(issuer), 0);
                acknowledge(issuer);
                leave_unacknowledged(&mut pair);
                let ready = pair[0].test_unit_ready(0);
                pair[0].start(&ready);
                expect_fenced(&mut pair, is_status(ready.itt, 2));
            }
        },
    );
}

fn reserve_out(session: &mut Initiator, action: u8, keys: [u8; 2]) -> ScsiCommand {
    let mut list = [0; 24];
    [list[7], list[15]] = keys;
    let command = session.command(0, &[0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0]);
    let command = ScsiCommand { write: true, expected_length: 24, ..command };
    session.send(&Request::Command(command), &list);
    command
}

/// Covers: STS-11, STS-13f.
#[test]
fn the_end_of_preempt_and_abort_is_fenced() {
    on_each_transport(
        |_| {},
        |server| {
            let mut pair = pair(server, FENCE);
            let mut other = session_with(server, &[]);
            for (session, key) in [(&mut pair[0], 1), (&mut other, 2)] {
                let command = reserve_out(session, REGISTER, [0, key]);
                assert_eq!(session.finish(command.itt).code, 0);
            }
            leave_unacknowledged(&mut pair);
            let command = reserve_out(&mut pair[0], PREEMPT_AND_ABORT, [1, 2]);
            expect_fenced(&mut pair, is_status(command.itt, 0));
        },
    );
}

/// A READ behind the end with NACA: its CHECK CONDITION establishes an auto contingent
/// allegiance.
fn fail_with_naca(session: &mut Initiator) -> ScsiCommand {
    let command = session.command(0, &[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 4]);
    let command = ScsiCommand { read: true, expected_length: 512, ..command };
    session.start(&command);
    command
}

fn is_status(itt: Itt, status: u8) -> impl Fn(&Response) -> bool {
    move |response| match response {
        Response::Scsi(answer) => (answer.itt, answer.status) == (itt, status),
        _ => false,
    }
}

/// Its beginning, the news that it blocks a command, and its end.
///
/// Covers: STS-11, STS-13c, STS-13d, STS-13e.
#[test]
fn auto_contingent_allegiance_is_fenced() {
    on_each_transport(
        |_| {},
        |server| {
            let mut pair = pair(server, FENCE);
            leave_unacknowledged(&mut pair);
            let failing = fail_with_naca(&mut pair[0]);
            expect_fenced(&mut pair, is_status(failing.itt, 2));
            leave_unacknowledged(&mut pair);
            let blocked = pair[0].test_unit_ready(0);
            pair[0].start(&blocked);
            expect_fenced(&mut pair, is_status(blocked.itt, ACA_ACTIVE));
            leave_unacknowledged(&mut pair);
            manage(&mut pair[0], CLEAR_ACA, 0, Itt::NONE);
            expect_fenced(&mut pair, is_managed);
            acknowledge(&mut pair[1]);
            pair[0].cmd_sn = pair[1].cmd_sn;
            assert_eq!(attention(&mut pair[0], 0), (0, 0, 0), "it has ended");
        },
    );
}

/// Covers: KEY-37/T.
#[test]
fn without_the_promise_nothing_is_held_back() {
    on_each_transport(
        |_| {},
        |server| {
            let mut pair = pair(server, ("TaskReporting", "RFC3720"));
            leave_unacknowledged(&mut pair);
            manage(&mut pair[0], LOGICAL_UNIT_RESET, 0, Itt::NONE);
            assert!(is_managed(&due(&mut pair[0]).expect("at once")));
            assert_eq!(attention(&mut pair[0], 0), DEVICE_RESET);
        },
    );
}

/// The end of the tasks on `lun`, which must be told now.
fn expect_termination(session: &mut Initiator, lun: u8) -> AsyncMessage {
    match session.read().response() {
        Response::Async(message) => {
            assert_eq!(message.event, TASK_TERMINATION);
            assert_eq!(message.lun, initiator::lun_field(lun));
            message
        }
        other => panic!("news of the end of tasks was due: {other:?}"),
    }
}

/// Says that no data will follow.
fn confirm(session: &mut Initiator, message: &AsyncMessage) {
    let nop = NopOut { immediate: true, itt: Itt::NONE, lun: message.lun, ..session.ping() };
    session.cmd_sn = nop.cmd_sn;
    session.send(&Request::NopOut(nop), &[]);
}

/// Data for an ended task: dropped without a word until the initiator has confirmed the end.
fn expect_tag_until_confirmed(session: &mut Initiator, r2t: &R2t, message: &AsyncMessage) {
    let more = DataOut { final_: false, ..session.data_out(r2t) };
    session.send(&Request::DataOut(more), &[1; 256]);
    assert_eq!(heard(session), None);
    confirm(session, message);
    let late = DataOut { data_sn: DataSn(1), offset: 256, ..session.data_out(r2t) };
    session.send(&Request::DataOut(late), &[1; 256]);
    session.expect_reject(0x09);
}

/// Covers: FAB-01/T, FAB-04, FAB-07, FAB-08, STS-11, FAB-05a, FAB-05b, DOU-11.
#[test]
fn fast_abort_tells_each_other_connection() {
    on_each_transport(
        |_| {},
        |server| {
            let mut pair = pair(server, FAST);
            let mut fast = session_with(server, &[FAST]);
            let mut old = session_with(server, &[]);
            let mine = open_write(&mut pair[0], 0, 0);
            pair[1].cmd_sn = pair[0].cmd_sn;
            let beside = open_write(&mut pair[1], 0, 4);
            let other_unit = open_write(&mut pair[1], 1, 4);
            pair[0].cmd_sn = pair[1].cmd_sn;
            let foreign = open_write(&mut fast, 0, 8);
            let foreign_old = open_write(&mut old, 0, 12);
            manage(&mut pair[0], LOGICAL_UNIT_RESET, 0, Itt::NONE);
            // Nobody's data is waited for.
            let here = expect_termination(&mut pair[1], 0);
            let there = expect_termination(&mut fast, 0);
            assert_eq!(fast.finish(foreign.itt).code, TASK_ABORTED, "and nothing is waited for");
            old.expect_quiet();
            let [first, second] = &mut pair;
            second.cmd_sn = first.cmd_sn;
            expect_tag_until_confirmed(second, &beside, &here);
            acknowledge(second);
            assert_eq!(managed(first), 0);
            // On the connection of the request no more data comes; should some, it is dropped.
            answer(first, &mine);
            assert_eq!(heard(first), None);
            acknowledge(first);
            first.expect_quiet();
            expect_tag_until_confirmed(&mut fast, &foreign, &there);
            expect_aborted(&mut old, &foreign_old);
            second.cmd_sn = first.cmd_sn;
            complete(second, &other_unit);
            first.cmd_sn = second.cmd_sn;
            acknowledge(second);
            for session in [first, &mut fast, &mut old] {
                assert_eq!(attention(session, 0), DEVICE_RESET);
                acknowledge(session);
                for block in [0, 4, 8, 12] {
                    expect_untouched(session, 0, block);
                }
            }
        },
    );
}

/// Covers: FAB-08, FAB-05b, FAB-05c.
#[test]
fn each_session_hears_what_it_has_agreed_to() {
    on_each_transport(
        |_| {},
        |server| {
            let mut old = session_with(server, &[]);
            let mut fast = session_with(server, &[FAST]);
            let mut fence = session_with(server, &[FENCE]);
            // Without tasks there is nothing to tell.
            let mut idle = session_with(server, &[FAST]);
            let on = |session: &mut Initiator, block| {
                let r2ts = [open_write(session, 0, block), open_write(session, 1, block)];
                (r2ts[0], r2ts[1])
            };
            let (zero, one) = on(&mut fast, 8);
            let open = on(&mut fence, 16);
            manage(&mut old, TARGET_WARM_RESET, 0, Itt::NONE);
            assert_eq!(managed(&mut old), 0);
            let told = [expect_termination(&mut fast, 0), expect_termination(&mut fast, 1)];
            for r2t in [zero, one] {
                assert_eq!(fast.finish(r2t.itt).code, TASK_ABORTED);
            }
            for (r2t, message) in [zero, one].iter().zip(&told) {
                expect_tag_until_confirmed(&mut fast, r2t, message);
            }
            for r2t in [open.0, open.1] {
                expect_aborted(&mut fence, &r2t);
            }
            fence.expect_quiet();
            idle.expect_quiet();
        },
    );
}

/// The target waits for the data of the session that asks, and for nobody else's: what comes late
/// for tasks of others is dropped.
///
/// Covers: TMF-14, TMF-16.
#[test]
fn data_of_third_parties_is_not_waited_for() {
    on_each_transport(
        |_| {},
        |server| {
            let mut one = session_with(server, &[]);
            let mut two = session_with(server, &[]);
            let foreign = open_write(&mut two, 0, 2);
            manage(&mut one, LOGICAL_UNIT_RESET, 0, Itt::NONE);
            assert_eq!(managed(&mut one), 0, "although its data is held back");
            let half = DataOut { final_: false, ..two.data_out(&foreign) };
            two.send(&Request::DataOut(half), &[1; 256]);
            let rest = DataOut { data_sn: DataSn(1), offset: 256, ..two.data_out(&foreign) };
            two.expect_quiet();
            two.send(&Request::DataOut(rest), &[1; 256]);
            assert_eq!(two.finish(foreign.itt).code, TASK_ABORTED);
            assert_eq!(attention(&mut two, 0), DEVICE_RESET);
            expect_untouched(&mut two, 0, 2);
        },
    );
}
