// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The services of a datamover (RFC 5047), as both ends over iSER give them: what the other tests
//! do not show of each.

use super::*;
use iscsi::datamover::StreamViolation;
use rdma::verbs::Head;
use wire::iwarp::Cause;

fn text(length: usize) -> Vec<u8> {
    [b'x'].repeat(length)
}

fn says(pair: &mut Pair, length: usize) {
    let request = ping(Itt(1), Ttt::NONE);
    pair.near.submit(initiator::Op::SendControl { request, data: text(length) });
}

/// Covers: DAP-04/T, DAP-04/I, DAP-05/T, DAP-05/I, ISE-04/I.
#[test]
fn resources_of_a_connection_are_there_before_it_or_it_is_not_begun() {
    let none = Pool::new(0).unwrap();
    assert!(Initiator::new(&none, 1).is_none() && Target::of_login(&none, 1).is_none());
    let pool = Pool::new(1 << 20).unwrap();
    let before = pool.bytes_in_use();
    let near = Initiator::new(&pool, 1).unwrap();
    let far = Target::of_login(&pool, 2).unwrap();
    assert!(pool.bytes_in_use() > before, "each has room for a message");
    drop((near, far));
    assert_eq!(pool.bytes_in_use(), before, "a login that fails leaves nothing behind");
}

/// Whoever begins with RDMA may log in while others have all of the pool, and whoever has logged in
/// may say what takes several segments.
#[test]
fn a_session_that_began_with_rdma_has_room_for_a_message_however_long() {
    let mut pair = Pair::begin(usize::MAX);
    let (none, pool) = (Pool::new(0).unwrap(), pair.pool.clone());
    pair.pool = none.clone();
    pair.near.set_segment_len(1460);
    pair.near.submit(initiator::Op::SendControl { request: login(), data: b"a=b\0".to_vec() });
    assert_eq!(pair.exchange().0.len(), 1);
    assert!(!pair.far.prepare(&none), "the login is refused");
    assert!(pair.far.prepare(&pool));
    pair.near.submit(initiator::Op::NoticeKeys(initiator::Keys::LOGIN));
    pair.far.submit(target::Op::NoticeKeys(target::Keys::LOGIN));
    says(&mut pair, 4000);
    let (events, _) = pair.exchange();
    assert!(matches!(events[..], [target::Event::Control { .. }]), "{events:?}");
    assert_eq!(pair.far.control_data(), text(4000));
}

/// Covers: DAP-08/T, DAP-08/I.
#[test]
fn limits_hold_from_when_they_are_told() {
    let (length, limit) = (600, 512);
    for told in [false, true] {
        let mut pair = Pair::new();
        if told {
            let keys = target::Keys { max_recv_data_segment_length: limit, ..target::Keys::LOGIN };
            pair.far.submit(target::Op::NoticeKeys(keys));
            let keys =
                initiator::Keys { max_recv_data_segment_length: limit, ..initiator::Keys::LOGIN };
            pair.near.submit(initiator::Op::NoticeKeys(keys));
        }
        says(&mut pair, length);
        pair.far.submit(control(pong(Itt(1)), &text(length)));
        let (at_far, at_near) = pair.exchange();
        let length = 600;
        let wrong = StreamViolation::SegmentTooLong { length, limit };
        match &at_far[..] {
            [target::Event::Violation(found)] => assert!(told && *found == wrong),
            other => assert!(!told, "{other:?}"),
        }
        let wrong = initiator::Violation::SegmentTooLong { length, limit };
        match &at_near[..] {
            [initiator::Event::Violation(found)] => assert!(told && *found == wrong),
            other => assert!(!told, "{other:?}"),
        }
    }
}

/// Covers: DAP-07/I.
#[test]
fn nothing_is_sent_after_the_end_was_asked_for() {
    let mut pair = Pair::new();
    says(&mut pair, 0);
    pair.near.submit(initiator::Op::Terminate);
    says(&mut pair, 0);
    let command = command(TASK, true, 0);
    pair.command(command, (None, 0), (0, 0));
    assert_eq!(pair.exchange().0.len(), 1, "what was said before, and no more");
}

/// Covers: DAP-07/T, DAP-07/I.
#[test]
fn nothing_is_told_after_the_end_was_asked_for_but_the_end() {
    let mut pair = Pair::new();
    says(&mut pair, 0);
    pair.command(command(TASK, true, 100), (None, 100), (0, 0));
    pair.far.submit(target::Op::Terminate);
    let (at_far, _) = pair.exchange();
    assert!(at_far.is_empty(), "{at_far:?}");
    assert!(pair.far.is_terminated());
    pair.near.submit_raw(Head::of(&[&[0; 28]]).unwrap());
    let (at_far, _) = pair.exchange();
    assert!(matches!(at_far[..], [target::Event::Violation(_)]), "{at_far:?}");

    let mut pair = Pair::new();
    pair.read(100);
    pair.far.submit(control(pong(Itt(1)), &[]));
    pair.far.submit(control(status(TASK), &[]));
    pair.near.submit(initiator::Op::Terminate);
    let (_, at_near) = pair.exchange();
    assert!(at_near.is_empty(), "{at_near:?}");
}

/// What can be reached is asked for by name, and no name is left.
///
/// Covers: ISC-14, ISC-16/I.
#[test]
fn all_names_end_with_their_connection_and_its_commands_go_on_elsewhere() {
    let mut pair = Pair::new();
    pair.read(100);
    assert_eq!(pair.near.advertised(), 1);
    let mut carried = pair.near.carry_all();
    assert_eq!((carried.len(), pair.near.advertised(), pair.near.task_count()), (1, 0, 0));
    pair.far.submit(put(&bytes(1, 100), 0));
    let (_, at_near) = pair.exchange();
    let ended = initiator::Violation::Rdma(Some(Cause::TAGGED_INVALID_STAG));
    assert!(matches!(at_near[..], [initiator::Event::Violation(found)] if found == ended));
    // Its memory goes with it.
    let mut other = Pair::new();
    other.near.adopt(carried.pop().unwrap());
    let buf = other.near.submit(initiator::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[..], [0; 100]);
}

/// A session gives up what is under way when its logout is answered: what the target sends behind
/// that reaches nothing.
///
/// Covers: ISC-14.
#[test]
fn no_name_outlives_a_logout() {
    let mut pair = Pair::new();
    pair.read(100);
    let answer = LogoutResponse {
        response: 0,
        itt: Itt(1),
        numbers: numbers(),
        time2wait: 0,
        time2retain: 0,
    };
    says(&mut pair, 0);
    pair.far.submit(control(Response::Logout(answer), &[]));
    let (_, at_near) = pair.exchange();
    assert!(matches!(at_near[..], [initiator::Event::Control { .. }]), "{at_near:?}");
    let buf = pair.near.submit(initiator::Op::Detach { task: TASK }).unwrap();
    pair.near.submit(initiator::Op::Release { task: TASK });
    pair.near.submit(initiator::Op::Terminate);
    assert_eq!((pair.near.advertised(), pair.near.task_count()), (0, 0));
    pair.far.submit(put(&bytes(1, 100), 0));
    let (_, at_near) = pair.exchange();
    let ended = initiator::Violation::Rdma(Some(Cause::TAGGED_INVALID_STAG));
    assert!(matches!(at_near[..], [initiator::Event::Violation(found)] if found == ended));
    assert_eq!(buf[..], [0; 100]);
}

/// Covers: ISC-16/T, ISE-01/T, ISE-01/I, DAP-13/T, DAP-13/I.
#[test]
fn a_connection_that_is_damaged_is_over_for_both() {
    for at_target in [true, false] {
        let mut pair = Pair::new();
        pair.write(&bytes(5, 8000), 0, 0);
        pair.attach(8000);
        pair.far.submit(get(0, 8000));
        says(&mut pair, 100);
        pair.far.submit(control(pong(Itt(1)), &text(100)));
        let (mut to_far, mut to_near) = (pair.near_bytes(), pair.far_bytes());
        let bytes = if at_target { &mut to_far } else { &mut to_near };
        bytes[40] ^= 4;
        let cause = Some(Cause::MPA_CRC);
        if at_target {
            let events = pair.feed_far(&to_far);
            let told = StreamViolation::Rdma(cause);
            assert!(matches!(events[..], [target::Event::Violation(found)] if found == told));
            // What was under way is over, and its memory is had back.
            assert_eq!(pair.far.submit(target::Op::Detach { task: TASK }).unwrap().len(), 8000);
            pair.far.submit(target::Op::Release { task: TASK });
            assert!(matches!(pair.far.poll_event(), Some(target::Event::Released { .. })));
        } else {
            let events = pair.feed_near(&to_near);
            let told = initiator::Violation::Rdma(cause);
            assert!(matches!(events[..], [initiator::Event::Violation(found)] if found == told));
        }
    }
}

/// Covers: ISP-07, ISP-21.
#[test]
fn memory_stays_until_the_end_of_its_task_whatever_else_is_said() {
    let mut pair = Pair::new();
    pair.read(200);
    let all = bytes(9, 200);
    pair.far.submit(put(&all[..100], 0));
    pair.far.submit(control(pong(Itt(77)), &[]));
    assert!(matches!(pair.exchange().1[..], [initiator::Event::Control { .. }]));
    assert_eq!(pair.near.advertised(), 1);
    // An abort is under way: nothing more is sent for it, and it still gets what comes.
    pair.near.submit(initiator::Op::Quiet { task: TASK });
    pair.far.submit(put(&all[100..], 100));
    pair.far.submit(control(status(TASK), &[]));
    let (_, at_near) = pair.exchange();
    let [initiator::Event::Ended(ended)] = &at_near[..] else { panic!("{at_near:?}") };
    assert_eq!((ended.received, pair.near.advertised()), (200, 0));
    assert_eq!(pair.near.submit(initiator::Op::Detach { task: TASK }).unwrap()[..], all[..]);
    // Of a write, whatever of it has come unasked, or was fetched.
    let mut pair = Pair::new();
    pair.write(&bytes(4, 3000), 100, 1000);
    pair.attach(3000);
    for at in [1000, 2000] {
        assert_eq!(pair.near.advertised(), 1);
        pair.far.submit(get(at, 1000));
        pair.far.submit(control(pong(Itt(at)), &[]));
        let (at_far, _) = pair.exchange();
        assert!(at_far.iter().any(|event| matches!(event, target::Event::DataDone { .. })));
    }
    assert_eq!(pair.near.advertised(), 1);
    pair.far.submit(control(status(TASK), &[]));
    pair.exchange();
    assert_eq!(pair.near.advertised(), 0);
}

/// An initiator that takes all that may come unasked, and for each command of a window its end,
/// while it does nothing about any of it. Those of several segments need memory of its own.
///
/// Covers: ISF-01/I.
#[test]
fn an_initiator_takes_all_that_may_come_at_once() {
    let mut pair = Pair::new();
    let message = Response::Async(AsyncMessage {
        lun: LunField::default(),
        event: 4,
        vcode: 0,
        parameter1: 0,
        parameter2: 0,
        parameter3: 0,
        numbers: numbers(),
    });
    for count in 0..2000 {
        pair.far.submit(control(message, &[]));
        pair.far.submit(control(pong(Itt(count)), &text(100)));
        pair.far.submit(control(pong(Itt(count)), &text(2000)));
    }
    assert_eq!(pair.exchange().1.len(), 6000);
}

/// Covers: DAP-09/T.
#[test]
fn what_a_task_has_is_free_when_it_is_released() {
    let mut pair = Pair::new();
    let before = pair.pool.bytes_in_use();
    pair.write(&bytes(5, 8000), 0, 0);
    pair.attach(8000);
    assert_eq!(pair.far.task_count(), 1);
    assert!(pair.pool.bytes_in_use() > before);
    pair.far.submit(control(status(TASK), &[]));
    pair.far.submit(target::Op::Release { task: TASK });
    let (at_far, _) = pair.exchange();
    assert!(matches!(at_far[..], [target::Event::Released { task: TASK }]), "{at_far:?}");
    assert_eq!((pair.far.task_count(), pair.pool.bytes_in_use()), (0, before));
}

/// Covers: DAP-09/I.
#[test]
fn what_an_aborted_command_has_is_free_when_it_is_released() {
    let mut pair = Pair::new();
    let before = pair.pool.bytes_in_use();
    pair.read(8000);
    assert_eq!((pair.near.task_count(), pair.near.advertised()), (1, 1));
    pair.near.submit(initiator::Op::Release { task: TASK });
    assert_eq!((pair.near.task_count(), pair.near.advertised()), (0, 0), "nor can it be reached");
    assert_eq!(pair.pool.bytes_in_use(), before);
}

/// Its RDMA Read has its memory until the end, of which nobody hears.
///
/// Covers: DAP-09/T.
#[test]
fn what_an_aborted_task_has_is_free_when_its_data_has_come() {
    let mut pair = Pair::new();
    let before = pair.pool.bytes_in_use();
    pair.write(&bytes(5, 8000), 0, 0);
    pair.attach(8000);
    pair.far.submit(get(0, 8000));
    let asked = pair.far_bytes();
    pair.far.submit(target::Op::Release { task: TASK });
    let told = pair.far.poll_event();
    assert!(matches!(told, Some(target::Event::Released { task: TASK })), "{told:?}");
    assert_eq!((pair.far.task_count(), pair.far.reads()), (0, 1));
    pair.feed_near(&asked);
    let (at_far, _) = pair.exchange();
    assert!(at_far.is_empty(), "{at_far:?}");
    assert_eq!((pair.far.reads(), pair.pool.bytes_in_use()), (0, before));
}

/// Covers: ISC-16/T.
#[test]
fn what_waits_to_leave_ends_with_its_connection() {
    let mut pair = Pair::new();
    pair.read(6000);
    pair.far.submit(put(&bytes(1, 6000), 0));
    pair.far.submit(control(status(TASK), &[]));
    pair.far.submit(target::Op::Release { task: TASK });
    assert!(pair.far.poll_event().is_none(), "its data has not left");
    says(&mut pair, 100);
    let mut bytes = pair.near_bytes();
    bytes[40] ^= 4;
    let events = pair.feed_far(&bytes);
    assert!(matches!(events[..], [target::Event::Violation(_)]), "{events:?}");
    let told = pair.far.poll_event();
    assert!(matches!(told, Some(target::Event::Released { task: TASK })), "{told:?}");
    assert_eq!(pair.far.task_count(), 0);
}

/// Who finds fault ends the stream, and who is told so by a Terminate ends it as well.
///
/// Covers: ISC-16/T, ISC-16/I, ISE-01/T, ISE-01/I.
#[test]
fn a_fault_that_one_end_finds_is_the_end_for_both() {
    // The target gets a message that iSER does not have.
    let mut pair = Pair::new();
    pair.near.submit_raw(Head::of(&[&[0; 28]]).unwrap());
    let (at_far, at_near) = pair.exchange();
    let cause = Some(Cause::UNEXPECTED_OPCODE);
    let told = StreamViolation::Rdma(cause);
    assert!(matches!(at_far[..], [target::Event::Violation(found)] if found == told));
    let told = initiator::Violation::Rdma(cause);
    assert!(matches!(at_near[..], [initiator::Event::Violation(found)] if found == told));
    // The initiator gets data for memory that it does not name any more.
    let mut pair = Pair::new();
    pair.read(100);
    drop(pair.near.carry_all());
    pair.far.submit(put(&bytes(1, 100), 0));
    let (at_far, at_near) = pair.exchange();
    let cause = Some(Cause::TAGGED_INVALID_STAG);
    let told = initiator::Violation::Rdma(cause);
    assert!(matches!(at_near[..], [initiator::Event::Violation(found)] if found == told));
    let told = StreamViolation::Rdma(cause);
    assert!(matches!(at_far[..], [target::Event::Violation(found)] if found == told));
}
