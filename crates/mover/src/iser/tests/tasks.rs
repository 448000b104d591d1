// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands and their data between two ends that mean well.

use super::*;
use iscsi::datamover::StreamViolation;
use wire::iwarp::Cause;

/// The initiator would end the connection for a Data-In, and for status in one.
///
/// Covers: ISP-01/S, ISP-04, ISP-08, ISP-09, ISP-14, DAP-02, DAP-09/I, DAP-15.
#[test]
fn a_read_is_written_to_its_buffer_before_its_status_is_heard_of() {
    for piece in [usize::MAX, 1000, 1] {
        let mut pair = Pair::in_pieces(piece);
        pair.read(6000);
        assert_eq!(pair.near.advertised(), 1);
        let all = bytes(1, 6000);
        pair.far.submit(put(&all[..5000], 0));
        pair.far.submit(put(&all[5000..], 5000));
        pair.far.submit(control(status(TASK), &[]));
        pair.far.submit(target::Op::Release { task: TASK });
        assert!(pair.far.poll_event().is_none(), "its data has not left");
        assert!(pair.far.backlog() > 6000);
        let (at_far, at_near) = pair.exchange();
        assert!(matches!(at_far[..], [target::Event::Released { task: TASK }]), "{at_far:?}");
        let [initiator::Event::Ended(ended)] = &at_near[..] else { panic!("{at_near:?}") };
        let Ended { task: TASK, received: 6000, damaged: false, response } = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(response.exp_data_sn, DataSn(0));
        assert_eq!((pair.near.advertised(), pair.far.backlog()), (0, 0), "nothing is reached");
        let buf = pair.near.submit(initiator::Op::Detach { task: TASK }).unwrap();
        assert_eq!(buf[..], all[..]);
        pair.near.submit(initiator::Op::Release { task: TASK });
        assert_eq!((pair.near.task_count(), pair.far.task_count()), (0, 0));
        assert_eq!(pair.near.copied(), 6000, "once");
    }
}

/// Covers: ISP-04, ISP-13, DAP-03, DAP-11, DAP-17/T.
#[test]
fn a_write_comes_with_its_command_and_the_rest_is_fetched() {
    for piece in [usize::MAX, 1000, 1] {
        let mut pair = Pair::in_pieces(piece);
        let all = bytes(2, 9000);
        let before = pair.far.counters().bytes_copied;
        let mut events = pair.write(&all, 1001, 1001);
        let Some(target::Event::Control { immediate: Immediate::Staged { data, length }, .. }) =
            events.pop()
        else {
            panic!("no immediate data")
        };
        assert_eq!((length, data.len()), (1001, 9000), "there is room for all that comes");
        pair.far.submit(target::Op::Attach { task: TASK, buf: data });
        pair.far.submit(get(1001, 4000));
        pair.far.submit(get(5001, 3999));
        let (done, _) = pair.exchange();
        assert!(
            matches!(
                done[..],
                [
                    target::Event::DataDone { task: TASK, offset: 1001, length: 4000 },
                    target::Event::DataDone { task: TASK, offset: 5001, length: 3999 }
                ]
            ),
            "{done:?}"
        );
        assert_eq!((pair.near.advertised(), pair.far.reads()), (1, 0), "the task goes on");
        let buf = pair.far.submit(target::Op::Detach { task: TASK }).unwrap();
        assert_eq!(buf[..], all[..]);
        // A message that does not come in one piece is put together first.
        let put_together = if piece == usize::MAX { 0 } else { 1001 };
        assert_eq!(pair.far.counters().bytes_copied - before, 9000 + put_together);
        pair.far.submit(control(status(TASK), &[]));
        assert!(matches!(pair.exchange().1[..], [initiator::Event::Ended(_)]));
        assert_eq!(pair.near.advertised(), 0);
    }
}

/// Covers: ISP-05, DAP-17/I.
#[test]
fn unsolicited_data_comes_in_pdus_behind_its_command() {
    for discard in [false, true] {
        let mut pair = Pair::new();
        let all = bytes(3, 30_000);
        let command = ScsiCommand { final_: false, ..command(TASK, false, 30_000) };
        pair.command(command, (Some(&all), 0), (500, 30_000));
        let to_near = pair.far_bytes();
        pair.feed_near(&to_near);
        let to_far = pair.near_bytes();
        assert_eq!(pair.near.advertised(), 0, "all comes unasked");
        let mut rest = &to_far[..];
        let (taken, event) = pair.far.feed(rest, &pair.pool);
        rest = &rest[taken..];
        let Some(target::Event::Control { immediate: Immediate::Staged { data, .. }, .. }) = event
        else {
            panic!("{event:?}")
        };
        if !discard {
            pair.far.submit(target::Op::Attach { task: TASK, buf: data });
        }
        let (itt, lun, offset, length) = (itt(TASK), UNIT, 500, 29_500);
        let task = TASK;
        pair.far.submit(target::Op::ExpectUnsolicited { task, itt, lun, offset, length, discard });
        let events = pair.feed_far(rest);
        assert!(
            matches!(
                events[..],
                [target::Event::DataDone { task: TASK, offset: 500, length: 29_500 }]
            ),
            "{events:?}"
        );
        assert_eq!(pair.far.counters().pdus_in.data_out, 4, "8192 bytes each at most");
        assert_eq!(pair.far.take_acknowledged(), Some(StatSn(9)));
        let buf = pair.far.submit(target::Op::Detach { task: TASK });
        assert!(discard || buf.unwrap()[..] == all[..]);
    }
}

/// Covers: ISP-06.
#[test]
fn memory_is_named_for_what_is_read_and_for_what_is_fetched() {
    for (read, length, immediate, unsolicited_end, named) in [
        (true, 100, 0, 0, 1),
        (true, 0, 0, 0, 0),
        (false, 100, 0, 0, 1),
        (false, 100, 99, 99, 1),
        (false, 100, 100, 100, 0),
        (false, 100, 50, 100, 0),
        (false, 0, 0, 0, 0),
    ] {
        let mut pair = Pair::new();
        let data = bytes(1, length);
        let final_ = immediate == unsolicited_end;
        let command = ScsiCommand { final_, ..command(TASK, read, length) };
        let write = (!read).then_some(&data[..]);
        pair.command(command, (write, length as usize), (immediate, unsolicited_end));
        pair.near_bytes();
        assert_eq!(pair.near.advertised(), named, "{read} {length} {immediate}");
    }
}

/// Covers: ISP-24/T, ISP-24/I.
#[test]
fn a_bidirectional_command_names_both() {
    let mut pair = Pair::new();
    let out = bytes(5, 600);
    let command =
        ScsiCommand { read: true, bidi_read_length: Some(300), ..command(TASK, false, 600) };
    pair.command(command, (Some(&out), 300), (0, 0));
    assert_eq!(pair.exchange().0.len(), 1);
    assert_eq!(pair.near.advertised(), 2);
    pair.attach(600);
    pair.far.submit(get(0, 600));
    let back = bytes(6, 300);
    pair.far.submit(put(&back, 0));
    pair.far.submit(control(status(TASK), &[]));
    let (_, at_near) = pair.exchange();
    assert!(matches!(at_near[..], [initiator::Event::Ended(_)]), "{at_near:?}");
    assert_eq!(pair.near.advertised(), 0, "the one that the target ended, and the other");
    assert_eq!(pair.far.submit(target::Op::Detach { task: TASK }).unwrap()[..], out[..]);
    assert_eq!(pair.near.submit(initiator::Op::Detach { task: TASK }).unwrap()[..], back[..]);
}

/// Covers: DAP-01/S, DAP-10/S, DAP-16/S, FMT-10/T.
#[test]
fn other_pdus_come_as_they_are_and_in_order() {
    let mut pair = Pair::new();
    for count in 0..100 {
        let request = ping(Itt(count), Ttt::NONE);
        let data = bytes(count, count);
        pair.near.submit(initiator::Op::SendControl { request, data });
    }
    let to_near = pair.far_bytes();
    pair.feed_near(&to_near);
    let to_far = pair.near_bytes();
    let (mut rest, mut count) = (&to_far[..], 0);
    while !rest.is_empty() {
        let (taken, event) = pair.far.feed(rest, &pair.pool);
        rest = &rest[taken..];
        let Some(event) = event else { continue };
        let target::Event::Control { request: Request::NopOut(nop), .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!((nop.itt, pair.far.control_data()), (Itt(count), &bytes(count, count)[..]));
        pair.far.submit(control(pong(nop.itt), &bytes(count, count)));
        count += 1;
    }
    let to_near = pair.far_bytes();
    let (mut rest, mut back) = (&to_near[..], 0);
    while !rest.is_empty() {
        let (taken, event) = pair.near.feed(rest);
        rest = &rest[taken..];
        let Some(event) = event else { continue };
        let initiator::Event::Control { response: Response::NopIn(nop) } = event else {
            panic!("{event:?}")
        };
        assert_eq!((nop.itt, pair.near.control_data()), (Itt(back), &bytes(back, back)[..]));
        back += 1;
    }
    assert_eq!((count, back), (100, 100));
}

#[test]
fn sense_travels_with_its_status() {
    let mut pair = Pair::new();
    pair.read(512);
    pair.far.submit(control(status(TASK), &[0, 18, 0x70]));
    assert!(matches!(pair.exchange().1[..], [initiator::Event::Ended(_)]));
    assert_eq!(pair.near.control_data(), [0, 18, 0x70]);
}

/// Covers: ISP-20, DAP-18/T.
#[test]
fn an_abandoned_task_keeps_its_memory_until_its_reads_are_over() {
    let mut pair = Pair::new();
    let all = bytes(5, 8000);
    pair.write(&all, 0, 0);
    pair.attach(8000);
    pair.far.submit(get(0, 4000));
    pair.far.submit(get(4000, 4000));
    let asks = pair.far_bytes();
    let used = pair.pool.bytes_in_use();
    pair.far.submit(target::Op::Abandon { task: TASK });
    pair.far.submit(target::Op::Release { task: TASK });
    assert!(matches!(pair.far.poll_event(), Some(target::Event::Released { task: TASK })));
    assert_eq!((pair.far.task_count(), pair.far.reads(), pair.far.reads_over()), (0, 2, 0));
    assert_eq!(pair.pool.bytes_in_use(), used, "data may still come");
    pair.feed_near(&asks);
    let answers = pair.near_bytes();
    assert!(pair.feed_far(&answers).is_empty(), "nobody wants to hear of it");
    assert_eq!((pair.far.reads(), pair.far.reads_over()), (0, 2));
    assert!(pair.pool.bytes_in_use() < used);
}

#[test]
fn what_an_abandoned_task_has_queued_is_not_asked_for() {
    let mut pair = Pair::new();
    pair.write(&bytes(5, 8000), 0, 0);
    pair.attach(8000);
    pair.far.submit(get(0, 4000));
    pair.far.submit(target::Op::Abandon { task: TASK });
    assert!(pair.far_bytes().is_empty());
    assert_eq!((pair.far.backlog(), pair.far.reads()), (0, 0));
}

/// Else an initiator that answers nothing would have memory of ours for as long as it likes.
#[test]
fn data_that_is_not_read_ends_the_connection_at_the_second_look() {
    let mut pair = Pair::new();
    pair.write(&bytes(7, 4000), 0, 0);
    pair.attach(4000);
    pair.far.submit(get(0, 4000));
    pair.far_bytes();
    pair.far.submit(target::Op::Overdue { task: TASK });
    assert!(pair.far.poll_event().is_none());
    pair.far.submit(target::Op::Overdue { task: TASK });
    let wanted = StreamViolation::Rdma(Some(Cause::CATASTROPHIC_STREAM));
    let event = pair.far.poll_event();
    assert!(matches!(event, Some(target::Event::Violation(found)) if found == wanted));
    pair.far.submit(target::Op::Overdue { task: TASK });
    assert!(pair.far.poll_event().is_none(), "once");
    let last = pair.far_bytes();
    assert_eq!(pair.feed_near(&last).len(), 1, "it is told");
    assert_eq!(pair.far.submit(target::Op::Detach { task: TASK }).unwrap().len(), 4000);
}

#[test]
fn without_a_buffer_or_memory_a_burst_fails() {
    let mut pair = Pair::new();
    pair.write(&bytes(7, 4000), 0, 0);
    pair.far.submit(get(0, 4000));
    let (events, _) = pair.exchange();
    assert!(matches!(events[..], [target::Event::DataFailed { .. }]), "no buffer: {events:?}");
    pair.attach(3000);
    pair.far.submit(get(0, 4000));
    let (events, _) = pair.exchange();
    assert!(matches!(events[..], [target::Event::DataFailed { .. }]), "short: {events:?}");
    assert!(pair.far.submit(target::Op::Detach { task: TASK }).is_some(), "and stays");
}

#[test]
fn without_memory_immediate_data_is_told_then_asked_for_again_then_dropped() {
    let mut pair = Pair::new();
    let pool = Pool::new(0).unwrap();
    let data = bytes(4, 100);
    pair.command(command(TASK, false, 100), (Some(&data), 0), (100, 100));
    let to_near = pair.far_bytes();
    pair.feed_near(&to_near);
    let bytes = pair.near_bytes();
    let (taken, event) = pair.far.feed(&bytes, &pool);
    assert!(matches!(event, Some(target::Event::NoBuffer)) && pair.far.has_more());
    let (none, event) = pair.far.feed(&bytes[taken..], &pool);
    let Some(target::Event::Control { immediate, .. }) = event else { panic!("{event:?}") };
    assert!(matches!(immediate, Immediate::Exhausted { length: 100 }));
    assert!(none == 0 && !pair.far.has_more());
}

/// Covers: ISP-13, ISK-12.
#[test]
fn memory_that_has_only_what_is_asked_for_is_counted_from_there() {
    // As an initiator that names its buffer from the first byte on that it does not send unasked.
    let mut pair = Pair::new();
    let keys = target::Keys { solicited_only: true, ..target::Keys::LOGIN };
    pair.far.submit(target::Op::NoticeKeys(keys));
    let all = bytes(2, 9000);
    pair.command(command(TASK, false, 9000), (Some(&all), 0), (0, 0));
    pair.exchange();
    pair.attach(10_000);
    // Byte 1000 of the command is byte 0 of what is named.
    pair.far.submit(get(1000, 4000));
    pair.far.submit(get(5000, 4000));
    assert_eq!(pair.exchange().0.len(), 2);
    let buf = pair.far.submit(target::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[1000..9000], all[..8000]);
    // As we do it ourselves.
    let mut pair = Pair::new();
    let own = initiator::Keys { solicited_only: true, ..initiator::Keys::LOGIN };
    pair.near.submit(initiator::Op::NoticeKeys(own));
    pair.far.submit(target::Op::NoticeKeys(keys));
    let command = ScsiCommand { final_: true, ..command(TASK, false, 9000) };
    pair.command(command, (Some(&all), 0), (1000, 1000));
    pair.exchange();
    pair.attach(9000);
    pair.far.submit(get(1000, 8000));
    assert_eq!(pair.exchange().0.len(), 1);
    let buf = pair.far.submit(target::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[1000..9000], all[1000..]);
}

/// Covers: ISP-12, IST-03, DAP-18/I.
#[test]
fn memory_of_a_task_that_is_given_up_is_reached_no_more() {
    for release in [false, true] {
        let mut pair = Pair::new();
        pair.read(100);
        if release {
            pair.near.submit(initiator::Op::Release { task: TASK });
        } else {
            let buf = pair.near.submit(initiator::Op::Detach { task: TASK });
            assert_eq!(buf.unwrap()[..], [0; 100]);
        }
        assert_eq!(pair.near.advertised(), 0);
        pair.far.submit(put(&bytes(1, 100), 0));
        let (_, at_near) = pair.exchange();
        assert!(
            matches!(
                at_near[..],
                [initiator::Event::Violation(initiator::Violation::Rdma(Some(cause)))]
                    if cause == Cause::TAGGED_INVALID_STAG
            ),
            "{at_near:?}"
        );
    }
}

/// Covers: DAP-07/T.
#[test]
fn terminate_comes_after_all_that_was_queued_before() {
    let mut pair = Pair::new();
    pair.read(100);
    pair.far.submit(put(&bytes(8, 100), 0));
    pair.far.submit(control(status(TASK), &[]));
    pair.far.submit(target::Op::Terminate);
    pair.far.submit(control(pong(Itt(1)), &[]));
    assert!(!pair.far.is_terminated());
    assert_eq!(pair.exchange().1.len(), 1);
    assert!(pair.far.is_terminated());
    pair.far.submit(target::Op::Release { task: TASK });
    assert!(matches!(pair.far.poll_event(), Some(target::Event::Released { task: TASK })));
}

#[test]
fn a_task_that_has_nothing_to_send_is_released_all_the_same() {
    let mut pair = Pair::new();
    pair.write(&bytes(1, 100), 100, 100);
    pair.far.submit(get(0, 0));
    pair.far.submit(target::Op::Release { task: TASK });
    assert!(!pair.far.has_events());
    assert!(!pair.far.poll_transmit(&mut SgList::new()));
    assert!(pair.far.has_events());
    assert!(matches!(pair.far.poll_event(), Some(target::Event::Released { task: TASK })));
}

#[test]
fn progress_is_seen_where_data_moves() {
    let mut pair = Pair::new();
    pair.read(6000);
    let before = pair.near.progress(TASK).unwrap();
    pair.far.submit(put(&bytes(1, 3000), 0));
    pair.exchange();
    assert_eq!(pair.near.progress(TASK).unwrap(), before + 3000);
    assert!(pair.near.progress(TaskId { index: 9, generation: 0 }).is_none());
}

#[test]
fn a_message_of_nothing_is_passed_over() {
    let mut pair = Pair::begin(usize::MAX);
    pair.near.nudge();
    pair.near.submit(initiator::Op::SendControl { request: login(), data: Vec::new() });
    assert_eq!(pair.exchange().0.len(), 1, "there is no RDMA yet");
    let before = pair.far_bytes().len();
    pair.near.nudge();
    let bytes = pair.near_bytes();
    // Length, the header of a Write without a name, CRC.
    assert_eq!(bytes[..16], [&[0, 14, 0xc1, 0x40][..], &[0; 12]].concat());
    assert_eq!((bytes.len(), before), (20, 0));
    assert!(pair.feed_far(&bytes).is_empty());
    pair.far.submit(control(pong(Itt(1)), &[]));
    assert_eq!(pair.exchange().1.len(), 1, "it goes on");
}

/// A command that a target has not counted is sent again when its connection is lost.
#[test]
fn a_task_goes_to_another_connection_with_its_memory() {
    let (mut lost, mut pair) = (Pair::in_pieces(usize::MAX), Pair::in_pieces(usize::MAX));
    lost.read(6000);
    assert_eq!(lost.near.advertised(), 1);
    let carried = lost.near.carry_all();
    assert_eq!((carried.len(), lost.near.advertised(), lost.near.task_count()), (1, 0, 0));
    lost.near.check();
    carried.into_iter().for_each(|task| pair.near.adopt(task));
    assert!(pair.near.holds(TASK));
    assert!(lost.near.carry(TASK).is_none());
    let command = command(TASK, true, 6000);
    let op = initiator::Op::SendCommand { task: TASK, command, immediate: 0, unsolicited_end: 0 };
    pair.near.submit(op);
    pair.exchange();
    let all = bytes(1, 6000);
    pair.far.submit(put(&all, 0));
    pair.far.submit(control(status(TASK), &[]));
    pair.exchange();
    let buf = pair.near.submit(initiator::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[..], all[..]);
}
