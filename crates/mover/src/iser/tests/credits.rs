// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much may be sent before the other side is heard of (RFC 7145 §8.1.1).

use super::*;
use crate::limits::UNEXPECTED_MAX;
use iscsi::datamover::StreamViolation;
use wire::iwarp::Cause;

fn is_overrun(events: &[target::Event]) -> bool {
    let no_buffer = StreamViolation::Rdma(Some(Cause::UNTAGGED_NO_BUFFER));
    matches!(events.last(), Some(target::Event::Violation(violation)) if *violation == no_buffer)
}

/// Covers: ISF-07/S.
#[test]
fn a_login_request_waits_for_the_answer_to_the_last_one() {
    let mut pair = Pair::begin(usize::MAX);
    for _ in 0..2 {
        pair.near.submit(initiator::Op::SendControl { request: login(), data: Vec::new() });
    }
    let (events, told) = pair.exchange();
    assert!(is_overrun(&events), "{events:?}");
    let ended = Some(Cause::UNTAGGED_NO_BUFFER);
    assert!(
        matches!(told[..], [initiator::Event::Violation(initiator::Violation::Rdma(cause))]
            if cause == ended),
        "{told:?}"
    );
}

/// Covers: ISF-01/T.
#[test]
fn more_than_was_declared_ends_the_connection() {
    let mut pair = Pair::new();
    let keys = target::Keys { own_unexpected_max: UNEXPECTED_MAX, ..target::Keys::LOGIN };
    pair.far.submit(target::Op::NoticeKeys(keys));
    for round in 0..3 {
        for _ in 0..UNEXPECTED_MAX {
            let request = ping(Itt(7), Ttt::NONE);
            pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
        }
        let (events, _) = pair.exchange();
        assert_eq!(events.len(), UNEXPECTED_MAX as usize, "round {round}");
        assert!(!is_overrun(&events));
        pair.far.submit(control(pong(Itt(1)), &[]));
        pair.exchange();
    }
    for _ in 0..UNEXPECTED_MAX + 1 {
        let request = ping(Itt(7), Ttt::NONE);
        pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    }
    assert!(is_overrun(&pair.exchange().0));
}

/// A Linux initiator sends the unsolicited data of a full window at once.
#[test]
fn whoever_was_told_no_limit_has_none() {
    let mut pair = Pair::new();
    for _ in 0..2 * UNEXPECTED_MAX {
        let request = ping(Itt(7), Ttt::NONE);
        pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    }
    assert!(!is_overrun(&pair.exchange().0));
}

fn limited(max: u32) -> Pair {
    let mut pair = Pair::new();
    let keys = initiator::Keys { unexpected_max: max, ..initiator::Keys::LOGIN };
    pair.near.submit(initiator::Op::NoticeKeys(keys));
    pair
}

/// Covers: ISF-04, ISF-06.
#[test]
fn an_initiator_keeps_within_what_the_target_declares() {
    let mut pair = limited(2);
    for count in 0..5 {
        let request = ping(Itt(count), Ttt::NONE);
        pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    }
    let mut seen = pair.exchange().0.len();
    assert_eq!(seen, 2);
    // No command is known to have come: an answer to the first one says nothing of the second one.
    let answer = |itt| {
        let numbers = Numbers { exp_cmd_sn: CmdSn(1), ..numbers() };
        let (lun, ttt) = (LunField::default(), Ttt::NONE);
        control(Response::NopIn(NopIn { lun, itt, ttt, numbers }), &[])
    };
    pair.far.submit(answer(Itt(0)));
    seen += pair.exchange().0.len();
    assert_eq!(seen, 3);
    // One to the third one shows that the second one has come, too.
    pair.far.submit(answer(Itt(2)));
    seen += pair.exchange().0.len();
    assert_eq!(seen, 5);
}

/// Covers: ISF-04, ISF-06.
#[test]
fn unsolicited_data_counts_and_status_shows_that_it_has_come() {
    let mut pair = limited(3);
    let all = bytes(3, 60_000);
    let command = ScsiCommand { final_: false, ..command(TASK, false, 60_000) };
    pair.command(command, (Some(&all), 0), (0, 60_000));
    pair.exchange();
    assert_eq!(pair.far.counters().pdus_in.data_out, 2);
    // A window that moves past commands that came later shows it, too.
    let next = ScsiCommand { cmd_sn: CmdSn(2), immediate: false, ..super::command(TASK, true, 0) };
    let numbers = Numbers { exp_cmd_sn: CmdSn(3), ..numbers() };
    assert!(next.cmd_sn.0 < numbers.exp_cmd_sn.0);
    let (lun, ttt) = (LunField::default(), Ttt::NONE);
    let told = Response::NopIn(NopIn { lun, itt: Itt(77), ttt, numbers });
    pair.far.submit(control(told, &[]));
    pair.exchange();
    assert_eq!(pair.far.counters().pdus_in.data_out, 4);
    pair.far.submit(control(status(TASK), &[]));
    pair.exchange();
    assert_eq!(pair.far.counters().pdus_in.data_out, 6, "the mover sends what it was told to");
}

/// Covers: ISF-05.
#[test]
fn a_target_keeps_within_what_the_initiator_declares() {
    let mut pair = Pair::new();
    let keys = target::Keys { unexpected_max: 2, ..target::Keys::LOGIN };
    pair.far.submit(target::Op::NoticeKeys(keys));
    let reject = |stat_sn| {
        let numbers = Numbers { stat_sn: StatSn(stat_sn), ..numbers() };
        Response::Reject(Reject { reason: 4, numbers, data_sn: DataSn(0) })
    };
    let ping_of_target = Response::NopIn(NopIn {
        lun: LunField::default(),
        itt: Itt::NONE,
        ttt: Ttt(1),
        numbers: numbers(),
    });
    pair.far.submit(control(ping_of_target, &[]));
    for stat_sn in 8..11 {
        pair.far.submit(control(reject(stat_sn), &[0; 48]));
    }
    assert_eq!(pair.exchange().1.len(), 2, "the ping and one more");
    // Its answer acknowledges what is before number 9, as all PDUs of this pair do.
    let request = ping(Itt::NONE, Ttt(1));
    pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    assert_eq!(pair.exchange().1.len(), 2, "both that waited");
}

/// Commands that take long say nothing of the data that came with them.
///
/// Covers: ISF-04.
#[test]
fn the_last_credit_is_a_pings_and_echoes_need_none() {
    let mut pair = limited(2);
    let all = bytes(3, 20_000);
    let command = ScsiCommand { final_: false, ..command(TASK, false, 20_000) };
    pair.command(command, (Some(&all), 0), (0, 20_000));
    let next = ScsiCommand { itt: Itt(9), cmd_sn: CmdSn(2), ..super::command(TASK, true, 0) };
    pair.near
        .submit(initiator::Op::SendControl { request: Request::Command(next), data: Vec::new() });
    pair.exchange();
    assert_eq!(pair.far.counters().pdus_in.data_out, 1, "and the rest of it waits");
    for count in 0..3 {
        let request = ping(Itt::NONE, Ttt(count));
        pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    }
    let request = Request::NopOut(match ping(Itt(5), Ttt::NONE) {
        Request::NopOut(ping) => NopOut { cmd_sn: CmdSn(3), ..ping },
        other => panic!("{other:?}"),
    });
    pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    let events = pair.exchange().0;
    let [target::Event::Control { request: Request::NopOut(asked), .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((asked.itt, asked.cmd_sn), (Itt(5), CmdSn(2)), "before the next command");
    let (lun, ttt) = (LunField::default(), Ttt::NONE);
    let numbers = Numbers { exp_cmd_sn: CmdSn(2), ..numbers() };
    let told = Response::NopIn(NopIn { lun, itt: Itt(5), ttt, numbers });
    pair.far.submit(control(told, &[]));
    pair.exchange();
    assert_eq!(pair.far.counters().pdus_in.data_out, 2, "its answer shows that the first has come");
}
