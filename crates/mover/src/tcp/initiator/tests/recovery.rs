// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that is lost, damaged, comes twice or in another order; tasks that change connections.

use iscsi::initiator::datamover::Markers;
use iscsi::initiator::datamover::Run;

use super::*;

pub(super) const RECOVERY: Keys = Keys { recovery: true, strays: true, ..DIGESTS };

/// Data-In of 100 bytes; byte `n` of the whole is `n`.
pub(super) fn part(keys: Keys, number: u32, last: u32) -> Vec<u8> {
    let bytes: Vec<u8> = (number * 100..(number + 1) * 100).map(|at| at.to_le_bytes()[0]).collect();
    let status = (number + 1 == last).then_some(0);
    pdu(keys, Response::DataIn(data_in(number, number * 100, status)), &bytes)
}

pub(super) fn damaged(mut pdu: Vec<u8>) -> Vec<u8> {
    let at = pdu.len() - 10;
    pdu[at] ^= 1;
    pdu
}

pub(super) fn is_whole(tcp: &mut Tcp, length: u32) {
    let read = tcp.submit(Op::Detach { task: TASK }).unwrap();
    assert!(read.iter().zip(0u32..).all(|(byte, at)| *byte == at.to_le_bytes()[0]));
    assert_eq!(read.len(), length as usize);
}

/// Covers: DIN-16, R2T-06.
#[test]
fn data_may_come_in_any_order_where_that_was_agreed() {
    let keys = Keys { data_in_order: false, ..DIGESTS };
    let mut tcp = reading(keys, 400);
    let mut stream = Vec::new();
    for (number, place) in [3, 1, 0, 2].into_iter().enumerate() {
        let bytes: Vec<u8> =
            (place * 100..place * 100 + 100).map(|at: u32| at.to_le_bytes()[0]).collect();
        let number = u32::try_from(number).unwrap();
        let status = (number == 3).then_some(0);
        stream.extend(pdu(keys, Response::DataIn(data_in(number, place * 100, status)), &bytes));
    }
    let told = events(&mut tcp, &stream);
    assert!(matches!(told.last(), Some(Event::Ended(ended)) if ended.received == 400), "{told:?}");
    is_whole(&mut tcp, 400);
    // A gap that nothing fills is none of the target's to leave.
    let mut tcp = reading(keys, 400);
    let stream = pdu(keys, Response::DataIn(data_in(0, 200, Some(0))), &[0; 100]);
    violates(&mut tcp, &stream, |v| matches!(v, Violation::Offset { .. }));
    // Write data is asked for backwards.
    let (mut tcp, _) = writing(keys, 8192, 0, 0);
    for (number, offset) in [(0, 4096), (1, 0)] {
        events(&mut tcp, &pdu(keys, Response::R2t(r2t(number, offset, 4096)), &[]));
        check_burst(&split(keys, &sent(&mut tcp)), Ttt(77 + number), offset, offset + 4096);
    }
}

/// As a PDU whose digest was wrong: at level 0 it costs the connection, above it is asked for.
///
/// Covers: DSN-07b.
#[test]
fn a_lost_r2t_is_told_by_its_number() {
    let stream = |keys| [0, 2].map(|at| pdu(keys, Response::R2t(r2t(at, at * 1024, 1024)), &[]));
    let (mut tcp, _) = writing(DIGESTS, 8192, 0, 0);
    violates(&mut tcp, &stream(DIGESTS).concat(), |violation| {
        matches!(violation, Violation::Sequence { got: 2, expected: 1 })
    });
    let keys = Keys { max_outstanding_r2t: 4, ..RECOVERY };
    let (mut tcp, _) = writing(keys, 8192, 0, 0);
    let told = events(&mut tcp, &stream(keys).concat());
    let runs = told.iter().filter_map(|event| match event {
        Event::Incomplete { task: TASK, lost, has_status: false, .. } => Some(*lost),
        _ => None,
    });
    let lost = Some(Run { first: 1, count: 1 });
    assert_eq!(runs.collect::<Vec<_>>(), [lost], "{told:?}");
}

/// Covers: DSN-07a.
#[test]
fn what_is_lost_is_told_and_fits_in_later() {
    let mut tcp = reading(RECOVERY, 500);
    let stream =
        [part(RECOVERY, 0, 5), part(RECOVERY, 3, 5), damaged(part(RECOVERY, 4, 5))].concat();
    let told = events(&mut tcp, &stream);
    let runs: Vec<_> = told
        .iter()
        .filter_map(|event| match event {
            Event::Incomplete { lost, has_status, .. } => Some((*lost, *has_status)),
            _ => None,
        })
        .collect();
    let run = |first, count| Some(Run { first, count });
    assert_eq!(runs, [(run(1, 2), false), (run(4, 1), true)], "{told:?}");
    // One is damaged again, another one comes twice.
    let stream =
        [damaged(part(RECOVERY, 2, 5)), part(RECOVERY, 1, 5), part(RECOVERY, 1, 5)].concat();
    let told = events(&mut tcp, &stream);
    assert!(matches!(told.as_slice(), [Event::Incomplete { lost, .. }] if *lost == run(2, 1)));
    let told = events(&mut tcp, &[part(RECOVERY, 4, 5), part(RECOVERY, 2, 5)].concat());
    let [Event::Incomplete { lost: None, has_status: true, .. }, Event::Ended(ended)] =
        told.as_slice()
    else {
        panic!("{told:?}");
    };
    assert_eq!(
        (ended.received, ended.damaged, ended.response.exp_data_sn),
        (500, false, DataSn(5))
    );
    is_whole(&mut tcp, 500);
}

/// The last number that fits in the field has none behind it.
#[test]
fn no_command_has_as_many_pdus_as_there_are_numbers() {
    let last = |keys| pdu(keys, Response::DataIn(data_in(u32::MAX, 0, None)), &[0; 100]);
    let mut tcp = reading(RECOVERY, 100);
    violates(&mut tcp, &damaged(last(RECOVERY)), |v| matches!(v, Violation::Sequence { .. }));
    let (mut tcp, _) = writing(RECOVERY, 8192, 0, 0);
    let ask = R2t { r2t_sn: R2tSn(u32::MAX), ..r2t(0, 0, 4096) };
    let stream = pdu(RECOVERY, Response::R2t(ask), &[]);
    violates(&mut tcp, &stream, |v| matches!(v, Violation::Sequence { .. }));
}

/// Covers: DSN-07c.
#[test]
fn sense_data_waits_with_its_status() {
    let mut tcp = reading(RECOVERY, 200);
    let response = Response::Scsi(status(2, 2));
    let told = events(&mut tcp, &pdu(RECOVERY, response, &[0, 1, 0x70]));
    let [Event::Incomplete { lost: Some(Run { first: 0, count: 2 }), has_status: true, .. }] =
        told.as_slice()
    else {
        panic!("{told:?}");
    };
    events(&mut tcp, &part(RECOVERY, 0, 9));
    let told = events(&mut tcp, &part(RECOVERY, 1, 9));
    assert!(matches!(told.as_slice(), [Event::Ended(ended)] if ended.response.status == 2));
    assert_eq!(tcp.control_data(), [0, 1, 0x70]);
    let mut lost = pdu(RECOVERY, Response::Scsi(status(2, 2)), &[0, 1, 0x70]);
    *lost.last_mut().unwrap() ^= 1;
    let mut tcp = reading(RECOVERY, 200);
    let told = events(&mut tcp, &lost);
    assert!(matches!(told.as_slice(), [Event::StatusLost(StatSn(5))]), "{told:?}");
}

/// Covers: DIN-09.
#[test]
fn acknowledgements_are_asked_for_when_nothing_is_missing() {
    let mut tcp = reading(RECOVERY, 400);
    let asks = |number| {
        let lun = LunField([0, 9, 0, 0, 0, 0, 0, 0]);
        let data = DataIn {
            acknowledge: true,
            lun,
            ttt: Ttt(66 + number),
            ..data_in(number, number * 100, None)
        };
        pdu(RECOVERY, Response::DataIn(data), &[0; 100])
    };
    let told = events(&mut tcp, &asks(0));
    assert!(
        matches!(told.as_slice(), [Event::Acknowledge { ttt: Ttt(66), next: DataSn(1), .. }]),
        "{told:?}"
    );
    let told = events(&mut tcp, &asks(2));
    assert!(matches!(told.as_slice(), [Event::Incomplete { .. }]), "{told:?}");
    let told = events(&mut tcp, &part(RECOVERY, 3, 9));
    let acknowledges = |event: &Event| matches!(event, Event::Acknowledge { .. });
    assert!(!told.iter().any(acknowledges), "not while there is a hole: {told:?}");
    let told = events(&mut tcp, &part(RECOVERY, 1, 9));
    let [Event::Acknowledge { ttt: Ttt(68), next: DataSn(4), lun, .. }] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(lun.0[1], 9);
    // At level 0 the bit means nothing (RFC 7143 §11.7.2).
    let mut tcp = reading(KEYS, 400);
    let data = DataIn { acknowledge: true, ttt: Ttt(1), ..data_in(0, 0, None) };
    let told = events(&mut tcp, &pdu(KEYS, Response::DataIn(data), &[0; 100]));
    assert!(told.iter().all(|event| matches!(event, Event::Window(_))), "{told:?}");
}

/// Covers: FAB-02, FAB-03.
#[test]
fn a_quiet_task_sends_nothing_and_strays_are_passed_over() {
    let keys = Keys { strays: true, ..KEYS };
    let (mut tcp, _) = writing(keys, 8192, 0, 0);
    events(&mut tcp, &pdu(keys, Response::R2t(r2t(0, 0, 4096)), &[]));
    tcp.submit(Op::Quiet { task: TASK });
    assert!(sent(&mut tcp).is_empty());
    tcp.submit(Op::Release { task: TASK });
    let late = [
        pdu(keys, Response::R2t(r2t(1, 4096, 4096)), &[]),
        pdu(keys, Response::DataIn(data_in(0, 0, None)), &[1; 50]),
        pdu(keys, Response::Scsi(status(0, 0)), &[]),
    ];
    let told = events(&mut tcp, &late.concat());
    assert!(matches!(told.last(), Some(Event::Stray(_))), "{told:?}");
    assert!(sent(&mut tcp).is_empty());
}

/// Covers: REA-06.
#[test]
fn a_task_goes_on_at_another_connection_from_what_it_has() {
    let cases = [(vec![0, 1], false, 2), (vec![0, 1, 3], false, 0), (vec![], false, 0)];
    for (before, cut, expected) in cases.into_iter().chain([(vec![0, 1], true, 0)]) {
        let mut old = reading(RECOVERY, 500);
        for number in before {
            events(&mut old, &part(RECOVERY, number, 5));
        }
        if cut {
            // All but the last byte of the next PDU.
            let pdu = part(RECOVERY, 2, 5);
            assert!(events(&mut old, &pdu[..pdu.len() - 1]).is_empty());
        }
        let mut new = Tcp::new();
        new.submit(Op::NoticeKeys(RECOVERY));
        for carried in old.carry_all() {
            assert_eq!(carried.id(), TASK);
            new.adopt(carried);
        }
        assert_eq!((old.task_count(), new.task_count()), (0, 1));
        let request = TaskManagementRequest {
            immediate: true,
            function: 8,
            lun: LunField::default(),
            itt: Itt(1),
            referenced_task: itt(TASK),
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(0),
            ref_cmd_sn: CmdSn(0),
            exp_data_sn: DataSn(0),
        };
        new.submit(Op::Reassign { task: TASK, request });
        let sent = split(RECOVERY, &sent(&mut new));
        let [(Request::TaskManagement(request), _)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(request.exp_data_sn, DataSn(expected));
        let rest: Vec<u8> = (expected..5).flat_map(|number| part(RECOVERY, number, 5)).collect();
        let told = events(&mut new, &rest);
        assert!(matches!(told.last(), Some(Event::Ended(ended)) if ended.received == 500));
        is_whole(&mut new, 500);
    }
}

/// What is lost on the way to the next connection is asked for by its number there, which is not
/// below what the reassignment told; what had come behind the gap counts.
fn goes_on_behind_a_gap(lost_from: u32) {
    let mut old = reading(RECOVERY, 500);
    for number in 0..2 {
        events(&mut old, &part(RECOVERY, number, 5));
    }
    let mut new = reassigned(&mut old, RECOVERY);
    let asked = split(RECOVERY, &sent(&mut new));
    let [(Request::TaskManagement(request), _)] = asked.as_slice() else { panic!("{asked:?}") };
    let from = request.exp_data_sn.0;
    // The target goes on from there; of what it sends some parts before the last one are lost.
    for number in from..lost_from {
        events(&mut new, &part(RECOVERY, number, 5));
    }
    let told = events(&mut new, &part(RECOVERY, 4, 5));
    let lost = told.iter().find_map(|event| match event {
        Event::Incomplete { lost, .. } => *lost,
        _ => None,
    });
    let lost = lost.expect("a gap");
    assert_eq!((lost.first, lost.first + lost.count), (lost_from, 4));
    assert!(lost.first >= from);
    let rest: Vec<u8> = (lost_from..4).flat_map(|number| part(RECOVERY, number, 5)).collect();
    let told = events(&mut new, &rest);
    assert!(matches!(told.last(), Some(Event::Ended(ended)) if ended.received == 500), "{told:?}");
    is_whole(&mut new, 500);
}

/// Covers: REA-07.
#[test]
fn nothing_below_a_reassignment_is_asked_for() {
    for lost_from in [2, 3] {
        goes_on_behind_a_gap(lost_from);
    }
}

/// The same for R2Ts.
#[test]
fn r2ts_behind_a_gap_count_after_a_reassignment() {
    let (mut old, _) = writing(RECOVERY, 8192, 0, 0);
    events(&mut old, &pdu(RECOVERY, Response::R2t(r2t(0, 0, 1024)), &[]));
    sent(&mut old);
    let mut new = reassigned(&mut old, Keys { max_outstanding_r2t: 4, ..RECOVERY });
    sent(&mut new);
    // The second one is lost, and comes again.
    let told = events(&mut new, &pdu(RECOVERY, Response::R2t(r2t(2, 2048, 1024)), &[]));
    let lost = |told: &[Event]| told.iter().any(|event| matches!(event, Event::Incomplete { .. }));
    assert!(lost(&told), "{told:?}");
    for r2t in [r2t(1, 1024, 1024), r2t(3, 3072, 1024)] {
        let told = events(&mut new, &pdu(RECOVERY, Response::R2t(r2t), &[]));
        assert!(!lost(&told), "{told:?}");
    }
    let outs = split(RECOVERY, &sent(&mut new));
    assert_eq!(outs.len(), 3);
}

#[test]
fn streams_may_have_markers() {
    let markers = Markers { send: Some(64), receive: Some(64) };
    let keys = Keys { markers, ..DIGESTS };
    let mut tcp = reading(keys, 200);
    let plain = [part(DIGESTS, 0, 2), part(DIGESTS, 1, 2)].concat();
    let mut marked = Vec::new();
    let pdu_len = plain.len() / 2;
    for (at, byte) in plain.iter().enumerate() {
        if at > 0 && at % 64 == 0 {
            let left = (pdu_len - at % pdu_len) % pdu_len;
            marked.extend(Marker::new(u32::try_from(left).unwrap()).emit());
        }
        marked.push(*byte);
    }
    let told = events(&mut tcp, &marked);
    assert!(matches!(told.last(), Some(Event::Ended(ended)) if ended.received == 200), "{told:?}");
    is_whole(&mut tcp, 200);
    let mut tcp = reading(keys, 200);
    marked[64] ^= 1;
    violates(&mut tcp, &marked, |v| *v == Violation::Marker);
}

proptest! {
    /// Whatever is lost, damaged or doubled: with what is asked for the data is whole, and the
    /// command ends once.
    #[test]
    fn the_data_is_whole_in_the_end(
        fates in proptest::collection::vec(0..4u8, 1..24),
        again in proptest::collection::vec(0..3u8, 0..40),
    ) {
        let last = u32::try_from(fates.len()).unwrap() + 1;
        let mut tcp = reading(RECOVERY, last * 100);
        let (mut told, mut again) = (Vec::new(), again.into_iter());
        for (number, fate) in (0u32..).zip(&fates) {
            let pdu = part(RECOVERY, number, last);
            let bytes = match fate {
                0 => Vec::new(),
                1 => damaged(pdu),
                2 => [pdu.clone(), pdu].concat(),
                _ => pdu,
            };
            told.extend(events(&mut tcp, &bytes));
        }
        told.extend(events(&mut tcp, &part(RECOVERY, last - 1, last)));
        let (mut ended, mut at) = (0, 0);
        while let Some(event) = told.get(at) {
            at += 1;
            tcp.check();
            match event {
                Event::Ended(end) => {
                    prop_assert_eq!(end.received, last * 100);
                    ended += 1;
                }
                Event::Incomplete { lost: Some(run), .. } => {
                    for number in run.first..run.first + run.count {
                        let pdu = part(RECOVERY, number, last);
                        let bytes = if again.next() == Some(0) { damaged(pdu) } else { pdu };
                        told.extend(events(&mut tcp, &bytes));
                    }
                }
                Event::Incomplete { .. } | Event::Window(_) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(ended, 1);
        is_whole(&mut tcp, last * 100);
    }
}
