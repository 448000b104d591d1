// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lengths that change in full feature phase, and data that is cut anew (RFC 7143 §11.16.3).

use iscsi::initiator::datamover::Run;

use super::recovery::RECOVERY;
use super::recovery::damaged;
use super::recovery::is_whole;
use super::recovery::part;
use super::*;

/// Data-In of `length` bytes at `number * length`; byte `n` of the whole is `n`.
fn cut(number: u32, length: u32) -> Vec<u8> {
    let bytes = (number * length..(number + 1) * length).map(|at| at.to_le_bytes()[0]);
    let data = data_in(number, number * length, None);
    pdu(RECOVERY, Response::DataIn(data), &bytes.collect::<Vec<u8>>())
}

fn tagged(tag: u32, exp_data_sn: u32) -> Vec<u8> {
    let response = ScsiResponse { snack_tag: tag, ..status(0, exp_data_sn) };
    pdu(RECOVERY, Response::Scsi(response), &[])
}

fn ask_anew(tcp: &mut Tcp, tag: u32) {
    let request = Snack {
        kind: 3,
        lun: LunField::default(),
        itt: itt(TASK),
        tag,
        exp_stat_sn: StatSn(0),
        beg_run: 0,
        run_length: 0,
    };
    tcp.submit(Op::Resegment { task: TASK, request });
    let pdus = split(RECOVERY, &sent(tcp));
    let [asked] = pdus.as_slice() else { panic!("{pdus:?}") };
    let Request::Snack(asked) = asked.0 else { panic!("{asked:?}") };
    assert_eq!((asked.kind, asked.tag), (3, tag));
}

/// A READ of 500 bytes in parts of 100, of which the second one was damaged, asked for anew.
fn asked_anew() -> Tcp {
    let mut tcp = reading(RECOVERY, 500);
    let stream = [part(RECOVERY, 0, 5), damaged(part(RECOVERY, 1, 5))].concat();
    let told = events(&mut tcp, &stream);
    assert!(matches!(told.last(), Some(Event::Incomplete { lost: Some(_), .. })), "{told:?}");
    ask_anew(&mut tcp, 1);
    tcp
}

/// Whether the status is told to be there without the end of its task.
fn is_held(told: &[Event]) -> bool {
    matches!(told, [Event::Incomplete { lost: None, has_status: true, .. }])
}

#[test]
fn what_was_sent_before_counts_for_nothing() {
    let mut tcp = asked_anew();
    // What was on its way, with a status, and a status that a Status SNACK brings.
    let told = events(&mut tcp, &[part(RECOVERY, 2, 5), part(RECOVERY, 3, 5)].concat());
    assert!(told.is_empty() || matches!(told.as_slice(), [Event::Window(_)]), "{told:?}");
    assert!(is_held(&events(&mut tcp, &part(RECOVERY, 4, 5))));
    assert!(is_held(&events(&mut tcp, &tagged(0, 5))));
    for number in 0..10 {
        let told = events(&mut tcp, &cut(number, 50));
        assert!(told.is_empty(), "{told:?}");
    }
    assert!(is_held(&events(&mut tcp, &tagged(7, 10))), "not the tag that was asked for");
    let told = events(&mut tcp, &tagged(1, 10));
    let [Event::Ended(ended)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((ended.received, ended.response.exp_data_sn), (500, DataSn(10)));
    is_whole(&mut tcp, 500);
}

/// What was asked for anew comes plain, where it was not complete, over the next connection.
///
/// Covers: REA-08/I.
#[test]
fn a_snack_tag_stays_with_its_connection() {
    // Also where the first part is lost there.
    for first in [0, 1] {
        goes_on_without_a_tag(first);
    }
}

fn goes_on_without_a_tag(first: u32) {
    let mut old = asked_anew();
    events(&mut old, &cut(0, 50));
    let mut new = reassigned(&mut old, RECOVERY);
    let asked = split(RECOVERY, &sent(&mut new));
    let [(Request::TaskManagement(request), _)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(request.exp_data_sn, DataSn(0), "nothing is acknowledged");
    for number in first..10 {
        events(&mut new, &cut(number, 50));
    }
    for number in 0..first {
        events(&mut new, &cut(number, 50));
    }
    let told = events(&mut new, &tagged(0, 10));
    assert!(matches!(told.as_slice(), [Event::Ended(ended)] if ended.received == 500), "{told:?}");
    is_whole(&mut new, 500);
}

#[test]
fn what_comes_anew_may_be_lost_again() {
    let mut tcp = asked_anew();
    // The first one, too; it is asked for by its number then.
    let told = events(&mut tcp, &[damaged(cut(0, 50)), cut(1, 50)].concat());
    assert!(
        matches!(
            told.as_slice(),
            [Event::Incomplete { lost: Some(Run { first: 0, count: 1 }), .. }]
        ),
        "{told:?}"
    );
    events(&mut tcp, &[cut(2, 50), cut(0, 50)].concat());
    for number in 3..8 {
        events(&mut tcp, &cut(number, 50));
    }
    // The last two did not come.
    let told = events(&mut tcp, &tagged(1, 10));
    assert!(matches!(
        told.as_slice(),
        [Event::Incomplete { lost: Some(Run { first: 8, count: 2 }), has_status: true, .. }]
    ));
    events(&mut tcp, &cut(9, 50));
    let told = events(&mut tcp, &cut(8, 50));
    assert!(matches!(told.as_slice(), [Event::Ended(ended)] if ended.received == 500), "{told:?}");
    is_whole(&mut tcp, 500);
}

#[test]
fn an_older_answer_with_the_first_number_is_no_beginning() {
    let mut tcp = asked_anew();
    events(&mut tcp, &part(RECOVERY, 0, 5));
    for number in 0..10 {
        events(&mut tcp, &cut(number, 50));
    }
    let told = events(&mut tcp, &tagged(1, 10));
    assert!(matches!(told.as_slice(), [Event::Ended(ended)] if ended.received == 500), "{told:?}");
    is_whole(&mut tcp, 500);
}

/// Nothing at all came again: the status says so.
#[test]
fn a_status_before_its_data_tells_what_is_missing() {
    let mut tcp = asked_anew();
    let told = events(&mut tcp, &tagged(1, 5));
    assert!(matches!(
        told.as_slice(),
        [Event::Incomplete { lost: Some(Run { first: 0, count: 5 }), has_status: true, .. }]
    ));
    for number in 0..5 {
        let told = events(&mut tcp, &cut(number, 100));
        assert_eq!(told.len(), usize::from(number == 4), "{told:?}");
    }
    is_whole(&mut tcp, 500);
}

/// Covers: SNK-06.
#[test]
fn acknowledged_data_does_not_come_again() {
    let mut tcp = reading(RECOVERY, 500);
    let asks = DataIn { acknowledge: true, ttt: Ttt(3), ..data_in(1, 100, None) };
    let bytes: Vec<u8> = (100..200).collect();
    let asks = pdu(RECOVERY, Response::DataIn(asks), &bytes);
    let told = events(&mut tcp, &[part(RECOVERY, 0, 5), asks].concat());
    assert!(matches!(told.last(), Some(Event::Acknowledge { next: DataSn(2), .. })), "{told:?}");
    events(&mut tcp, &damaged(part(RECOVERY, 2, 9)));
    ask_anew(&mut tcp, 4);
    for (number, at) in (2..).zip((200..500).step_by(50)) {
        let bytes: Vec<u8> = (at..at + 50).map(|at: u32| at.to_le_bytes()[0]).collect();
        events(&mut tcp, &pdu(RECOVERY, Response::DataIn(data_in(number, at, None)), &bytes));
    }
    let told = events(&mut tcp, &tagged(4, 8));
    assert!(matches!(told.as_slice(), [Event::Ended(ended)] if ended.received == 500), "{told:?}");
    is_whole(&mut tcp, 500);
}

/// What waits to be sent is cut to what the target takes now; what it may send counts at once.
#[test]
fn new_lengths_hold_at_once() {
    for (unsolicited, final_) in [(1024, true), (4096, false)] {
        let bytes: Vec<u8> = (0..4096_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut tcp = Tcp::new();
        tcp.submit(Op::NoticeKeys(KEYS));
        tcp.submit(Op::Attach { task: TASK, write: Some(Slice::from(bytes)), read: None });
        let command = ScsiCommand { final_, ..command(false, 4096) };
        let (task, unsolicited_end) = (TASK, unsolicited);
        tcp.submit(Op::SendCommand { task, command, immediate: 1024, unsolicited_end });
        let shorter =
            Keys { max_send_data_segment_length: 512, max_recv_data_segment_length: 512, ..KEYS };
        tcp.submit(Op::NoticeKeys(shorter));
        let pdus = split(KEYS, &sent(&mut tcp));
        assert!(pdus.iter().all(|(_, data)| data.len() == 512));
        let Request::Command(first) = pdus[0].0 else { panic!("a command") };
        assert_eq!(first.final_, final_);
        assert_eq!(pdus.len(), if final_ { 1 } else { 8 });
        let long = pdu(KEYS, Response::Scsi(status(0, 0)), &[0; 516]);
        violates(&mut tcp, &long, |v| matches!(v, Violation::SegmentTooLong { limit: 512, .. }));
    }
}
