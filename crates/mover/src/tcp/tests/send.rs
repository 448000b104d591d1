// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ops to PDUs: segments, numbers, digests, order, release.

use super::*;
use crate::limits::{TRANSMIT_BYTES_MAX, TRANSMIT_PIECES_MAX};
use alloc::sync::Arc;
use buf::Region;
use proptest::prelude::*;
use wire::iscsi::{DataIn, NopIn, R2t, ScsiResponse};

fn keys_with(max_send: u32, keys: Keys) -> Keys {
    Keys { max_send_data_segment_length: max_send, ..keys }
}

fn scsi_response(index: u32, response: u8) -> Op {
    let response = Response::Scsi(ScsiResponse {
        response,
        status: 0,
        status_qualifier: 0,
        itt: Itt(index),
        snack_tag: 0,
        numbers: numbers(50),
        exp_data_sn: DataSn(0),
        bidi_read_residual: Residual::None,
        residual: Residual::None,
    });
    Op::SendControl { response, data: vec![], task: Some(task(index)) }
}

fn nop_in(itt: u32, data: &[u8]) -> Op {
    let nop =
        NopIn { lun: LunField::default(), itt: Itt(itt), ttt: Ttt::NONE, numbers: numbers(3) };
    Op::SendControl { response: Response::NopIn(nop), data: data.to_vec(), task: None }
}

fn get(index: u32, offset: u32, length: u32) -> Op {
    let (task, numbers) = (task(index), numbers(9));
    Op::GetData { task, itt: Itt(index), lun: LUN, offset, length, numbers }
}

fn data_ins(sent: &[(Response, Vec<u8>)]) -> Vec<(DataIn, Vec<u8>)> {
    sent.iter()
        .map(|(response, data)| match response {
            Response::DataIn(data_in) => (*data_in, data.clone()),
            other => panic!("no Data-In: {other:?}"),
        })
        .collect()
}

fn r2ts(sent: &[(Response, Vec<u8>)]) -> Vec<R2t> {
    sent.iter()
        .map(|(response, data)| match response {
            Response::R2t(r2t) if data.is_empty() => *r2t,
            other => panic!("no R2T: {other:?}"),
        })
        .collect()
}

/// The 300,000 byte read of two bursts.
///
/// Covers: DSN-01, DSN-06, DIN-02, DIN-11, DIN-15/T, DIN-07a, DIN-10b, FMT-10/T.
#[test]
fn a_read_of_two_bursts_is_segmented_and_numbered() {
    for keys in [PLAIN, DIGESTS] {
        let keys = keys_with(65_536, keys);
        let mut host = Host::logged_in(keys);
        let data = Slice::from(pattern(300_000));
        let part = |range| data.part(range).expect("within");
        host.submit(put(1, part(0..262_144), 0, None));
        host.submit(put(1, part(262_144..300_000), 262_144, Some(77)));
        host.submit(scsi_response(1, 0));
        host.submit(scsi_response(1, 1));
        let mut sent = responses(&host.drain(), keys);
        let after: Vec<_> = sent.split_off(5);
        let mut all = Vec::new();
        for (index, (data_in, bytes)) in (0_u32..).zip(data_ins(&sent)) {
            assert_eq!(data_in.data_sn, DataSn(index));
            assert_eq!(data_in.offset as usize, all.len(), "also in the PDU with S");
            assert_eq!(data_in.final_, [3, 4].contains(&index));
            assert_eq!(data_in.status.is_some(), index == 4);
            assert_eq!(data_in.numbers.stat_sn, StatSn(if index == 4 { 77 } else { 0 }));
            assert_eq!(data_in.numbers.exp_cmd_sn, CmdSn(6));
            assert_eq!((data_in.ttt, data_in.acknowledge), (Ttt::NONE, false));
            assert_eq!(data_in.lun, LunField::default(), "reserved");
            all.extend_from_slice(&bytes);
        }
        assert_eq!(all, pattern(300_000));
        let expected: Vec<u32> = after
            .iter()
            .map(|(response, _)| match response {
                Response::Scsi(response) => response.exp_data_sn.0,
                other => panic!("no SCSI Response: {other:?}"),
            })
            .collect();
        assert_eq!(expected, [5, 0], "counted, and zero where the target failed");
    }
}

/// Covers: KEY-21a/T, DIN-02, FMT-10/T.
#[test]
fn no_segment_is_longer_than_the_peer_takes() {
    for max_send in [512, 513, 1000, 16_777_215] {
        for keys in [PLAIN, DIGESTS] {
            let keys = keys_with(max_send, keys);
            let mut host = Host::logged_in(keys);
            host.submit(put(1, Slice::from(pattern(600_001)), 0, Some(1)));
            let sent = data_ins(&responses(&host.drain(), keys));
            let (last, full) = sent.split_last().expect("PDUs");
            assert!(full.iter().all(|(data_in, data)| data.len() % 4 == 0 && !data_in.final_));
            assert!(last.0.final_ && last.0.status.is_some());
            assert!(sent.iter().all(|(_, data)| data.len() <= max_send as usize));
            let all: Vec<u8> = sent.iter().flat_map(|(_, data)| data.clone()).collect();
            assert_eq!(all, pattern(600_001));
        }
    }
}

/// One operation, many bursts: the last PDU of each has F, and no PDU is in two.
///
/// Covers: DIN-01, DIN-12.
#[test]
fn bursts_end_where_they_should() {
    for (length_max, burst) in [(512, 2048), (8192, 512), (1000, 2500), (600, 1001)] {
        for keys in [PLAIN, DIGESTS] {
            let keys = keys_with(length_max, keys);
            let mut host = Host::logged_in(keys);
            let Op::PutData { task, itt, data, offset, numbers, status, .. } =
                put(1, Slice::from(pattern(10_000)), 0, Some(1))
            else {
                panic!("no PutData");
            };
            host.submit(Op::PutData { task, itt, data, offset, burst, numbers, status });
            let mut at = 0;
            for (number, (data_in, data)) in (0..).zip(data_ins(&responses(&host.drain(), keys))) {
                let length = u32::try_from(data.len()).expect("short");
                assert_eq!((data_in.data_sn, data_in.offset), (DataSn(number), at));
                assert_eq!(data[..], pattern(10_000)[at as usize..][..data.len()]);
                assert!(length <= length_max && at % burst + length <= burst, "within one burst");
                at += length;
                assert_eq!(data_in.final_, at % burst == 0 || at == 10_000);
                assert_eq!(data_in.status.is_some(), at == 10_000);
            }
            assert_eq!(at, 10_000);
        }
    }
}

/// Covers: FMT-01/T.
#[test]
fn the_answer_to_the_inquiry_is_as_recorded() {
    let mut host = Host::logged_in(PLAIN);
    let Op::PutData { task, data, offset, burst, status, .. } =
        put(0x11, Slice::from(zeros(36)), 0, Some(0))
    else {
        panic!("no PutData");
    };
    let numbers = numbers(101);
    host.submit(Op::PutData { task, itt: Itt(0x11), data, offset, burst, numbers, status });
    let expected = receive::hex(
        "25810000000000240000000000000000 00000011ffffffff0000006500000006
         00000025000000000000000000000000",
    );
    assert_eq!(host.drain()[..BHS_LEN], expected);
}

/// Covers: DGT-01/T, DGT-02b/T, FMT-04/T, FMT-05/T, FMT-10/T, FMT-18/T.
#[test]
fn the_echo_of_the_ping_is_as_recorded() {
    let mut host = Host::logged_in(DIGESTS);
    let nop =
        NopIn { lun: LunField::default(), itt: Itt(0x22), ttt: Ttt::NONE, numbers: numbers(0x66) };
    let data = b"hello".to_vec();
    host.submit(Op::SendControl { response: Response::NopIn(nop), data, task: None });
    let expected = receive::hex(
        "20800000000000050000000000000000 00000022ffffffff0000006600000006
         00000025000000000000000000000000 1487eb54 68656c6c6f000000 b3ed0390",
    );
    assert_eq!(host.drain(), expected);
}

/// Covers: DGT-03/T.
#[test]
fn an_empty_segment_has_no_data_digest() {
    let mut host = Host::logged_in(DIGESTS);
    host.submit(nop_in(1, &[]));
    host.submit(put(2, Slice::empty(), 0, Some(4)));
    assert_eq!(host.drain().len(), 2 * (BHS_LEN + 4));
}

/// Covers: DSN-03, R2T-02, R2T-09, FMT-10/T.
#[test]
fn r2ts_are_numbered_for_each_task_and_named_apart() {
    let mut host = Host::logged_in(DIGESTS);
    for offset in [0, 4096, 8192] {
        host.submit(get(1, offset, 4096));
        host.submit(get(2, offset, 4096));
    }
    let bytes = host.drain();
    for header in bytes.chunks(BHS_LEN + 4) {
        assert_eq!(header[4..8], [0; 4], "neither AHS nor data");
    }
    let sent = r2ts(&responses(&bytes, DIGESTS));
    for (index, pair) in (0_u32..).zip(sent.chunks(2)) {
        for r2t in pair {
            assert_eq!(r2t.r2t_sn.0, index);
            assert_eq!((r2t.offset, r2t.desired_length), (index * 4096, 4096));
            assert_eq!((r2t.lun, r2t.numbers), (LUN, numbers(9)));
            assert_ne!(r2t.ttt, Ttt::NONE);
        }
    }
    let mut tags: Vec<u32> = sent.iter().map(|r2t| r2t.ttt.0).collect();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 6);
    assert_eq!(host.tcp.open_bursts(), 6);
}

/// Covers: DSN-04, DSN-06.
#[test]
fn both_directions_of_a_task_share_one_series() {
    let mut host = Host::logged_in(PLAIN);
    host.submit(get(1, 0, 512));
    host.submit(put(1, Slice::from(zeros(512)), 0, None));
    host.submit(get(1, 512, 512));
    host.submit(scsi_response(1, 0));
    let sent = responses(&host.drain(), PLAIN);
    let [(Response::R2t(a), _), (Response::DataIn(b), _), (Response::R2t(c), _), (last, _)] =
        &sent[..]
    else {
        panic!("unexpected: {sent:?}");
    };
    assert_eq!((a.r2t_sn.0, b.data_sn.0, c.r2t_sn.0), (0, 1, 2));
    let Response::Scsi(response) = last else { panic!("no SCSI Response") };
    assert_eq!(response.exp_data_sn, DataSn(1), "Data-In only");
}

/// What is written to the store after the digest was taken does not reach what is sent.
#[test]
fn lent_memory_is_sent_under_a_digest_without_a_copy() {
    let region: Arc<Region> = Region::new(1 << 20).expect("a region");
    region.write(0, &pattern(100_000)).expect("within");
    let keys = keys_with(65_536, DIGESTS);
    let mut host = Host::logged_in(keys);
    host.pool = Pool::new(4096).expect("a pool too small for any segment");
    host.submit(nop_in(1, b"before"));
    host.submit(put(1, region.lend(0, 100_000).expect("within"), 0, Some(1)));
    let mut list = SgList::new();
    assert!(host.tcp.poll_transmit(&mut list));
    region.write(0, &zeros(100_000)).expect("room");
    let mut sent = responses(&list.to_vec(), keys);
    host.tcp.handle_sent();
    sent.remove(0);
    let all: Vec<u8> = data_ins(&sent).into_iter().flat_map(|(_, data)| data).collect();
    assert_eq!(all, pattern(100_000));
    assert_eq!(host.tcp.counters().bytes_copied, 43 + 6, "the login text and the ping");
    assert_eq!(host.tcp.backlog(), 0);
}

#[test]
fn a_list_keeps_its_budget_and_holds_many_pdus() {
    let keys = keys_with(512, PLAIN);
    let mut host = Host::logged_in(keys);
    host.submit(put(1, Slice::from(pattern(4 << 20)), 0, Some(1)));
    let mut list = SgList::new();
    let before = host.tcp.backlog();
    let mut lists = 0;
    let mut bytes = Vec::new();
    while host.tcp.poll_transmit(&mut list) {
        assert!(list.pieces() <= TRANSMIT_PIECES_MAX);
        assert!(list.len() < TRANSMIT_BYTES_MAX + 1024);
        assert!(!host.tcp.poll_transmit(&mut SgList::new()), "one at a time");
        assert!(host.tcp.backlog() <= before + 255 * BHS_LEN);
        bytes.extend_from_slice(&list.to_vec());
        host.tcp.handle_sent();
        lists += 1;
    }
    assert!((8192 / 256..8192 / 200).contains(&lists), "{lists} lists");
    assert_eq!(responses(&bytes, keys).len(), 8192);
    assert_eq!(host.tcp.backlog(), 0);
    assert_eq!(host.tcp.counters().pdus_out.data_in, 8192);
    assert_eq!(host.tcp.counters().bytes_out, bytes.len() as u64);
}

#[test]
fn released_is_told_when_the_data_has_left() {
    let mut host = Host::logged_in(PLAIN);
    let mut list = SgList::new();
    host.submit(put(1, Slice::from(zeros(512)), 0, Some(1)));
    host.submit(Op::Release { task: task(1) });
    assert!(host.tcp.poll_transmit(&mut list));
    assert!(host.tcp.poll_event().is_none(), "still under way");
    host.submit(Op::Release { task: task(2) });
    assert!(host.tcp.poll_event().is_none(), "in order");
    host.tcp.handle_sent();
    host.poll_events();
    assert_eq!(host.take_notes(), [Note::Released(task(1)), Note::Released(task(2))]);
    host.submit(Op::Release { task: task(3) });
    assert_eq!(host.take_notes(), [Note::Released(task(3))], "nothing to wait for");
    assert_eq!(host.tcp.task_count(), 0);
}

#[test]
fn a_release_behind_a_full_list_is_told_with_it() {
    // The list is full exactly after the last PDU.
    let keys = keys_with(262_144, PLAIN);
    let mut host = Host::logged_in(keys);
    let mut list = SgList::new();
    host.submit(put(1, Slice::from(zeros(1 << 20)), 0, Some(1)));
    host.submit(Op::Release { task: task(1) });
    assert!(host.tcp.poll_transmit(&mut list));
    assert!(list.len() >= TRANSMIT_BYTES_MAX);
    host.tcp.handle_sent();
    host.poll_events();
    assert_eq!(host.take_notes(), [Note::Released(task(1))]);
}

#[test]
fn keys_change_between_two_responses() {
    let mut host = Host::logged_in(PLAIN);
    host.submit(nop_in(1, b"a"));
    host.submit(Op::NoticeKeys(DIGESTS));
    host.submit(nop_in(2, b"b"));
    let bytes = host.drain();
    assert_eq!(bytes.len(), BHS_LEN + 4 + BHS_LEN + 4 + 4 + 4);
    let (plain, digests) = bytes.split_at(BHS_LEN + 4);
    assert_eq!(responses(plain, PLAIN)[0].1, b"a");
    assert_eq!(responses(digests, DIGESTS)[0].1, b"b");
    // The receiving side changed at once.
    host.feed(&pdu(&Request::NopOut(nop_out(1)), b"ping", DIGESTS));
    assert_eq!(host.notes, [Note::Control(Request::NopOut(nop_out(1)), b"ping".to_vec())]);
}

#[test]
fn terminate_waits_for_all_before_it() {
    let mut host = Host::logged_in(PLAIN);
    let mut list = SgList::new();
    host.submit(nop_in(1, b"last"));
    host.submit(Op::Terminate);
    host.submit(nop_in(2, b"too late"));
    host.submit(Op::Release { task: task(1) });
    assert!(!host.tcp.is_terminated());
    assert!(host.tcp.poll_transmit(&mut list));
    assert_eq!(responses(&list.to_vec(), PLAIN).len(), 1);
    assert!(!host.tcp.is_terminated());
    host.tcp.handle_sent();
    assert!(host.tcp.is_terminated());
    assert!(!host.tcp.poll_transmit(&mut list));
    host.poll_events();
    assert_eq!(host.notes, [Note::Released(task(1))]);
    let mut host = Host::logged_in(PLAIN);
    host.submit(Op::Terminate);
    assert!(host.tcp.is_terminated(), "nothing to wait for");
}

#[test]
fn long_control_data_goes_by_reference() {
    let mut host = Host::logged_in(DIGESTS);
    host.submit(nop_in(1, &pattern(8191)));
    let sent = responses(&host.drain(), DIGESTS);
    assert_eq!(sent[0].1, pattern(8191));
}

/// What a core may ask for, in any order.
#[derive(Clone, Debug)]
enum Act {
    Put { index: u32, length: usize },
    Get { index: u32, length: u32 },
    Control { length: usize },
    Abandon { index: u32 },
    Transmit,
    Sent,
}

fn act() -> impl Strategy<Value = Act> {
    let index = 0..5_u32;
    let length = prop::sample::select(vec![1_usize, 3, 511, 512, 513, 4096, 70_000, 1 << 20]);
    prop_oneof![
        3 => (index.clone(), length).prop_map(|(index, length)| Act::Put { index, length }),
        2 => (index.clone(), 1..9000_u32).prop_map(|(index, length)| Act::Get { index, length }),
        1 => (0..512_usize).prop_map(|length| Act::Control { length }),
        1 => index.prop_map(|index| Act::Abandon { index }),
        3 => Just(Act::Transmit),
        3 => Just(Act::Sent),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Everything arrives once, whole and in order; nothing is left when all tasks are released.
    #[test]
    fn any_order_of_ops_sends_everything(
        acts in prop::collection::vec(act(), 1..60),
        max_send in prop::sample::select(vec![512_u32, 1000, 8192, 1 << 20]),
        digests in any::<bool>(),
    ) {
        let keys = keys_with(max_send, if digests { DIGESTS } else { PLAIN });
        let mut host = Host::logged_in(keys);
        let (mut list, mut bytes, mut wanted) = (SgList::new(), Vec::new(), Vec::new());
        for act in acts {
            match act {
                Act::Put { index, length } => {
                    host.submit(put(index, Slice::from(pattern(length)), 0, Some(1)));
                    wanted.push((index, length));
                }
                Act::Get { index, length } => host.submit(get(index, 0, length)),
                Act::Control { length } => host.submit(nop_in(9, &pattern(length))),
                Act::Abandon { index } => host.submit(Op::Abandon { task: task(index) }),
                Act::Transmit => {
                    if host.tcp.poll_transmit(&mut list) {
                        bytes.extend_from_slice(&list.to_vec());
                    }
                }
                Act::Sent => host.tcp.handle_sent(),
            }
            host.tcp.check();
        }
        for index in 0..5 {
            host.submit(Op::Release { task: task(index) });
        }
        host.tcp.handle_sent();
        host.poll_events();
        bytes.extend(host.drain());
        host.tcp.check();
        let told = |note: &&Note| matches!(note, Note::Released(_));
        let released = host.notes.iter().filter(told).count();
        prop_assert_eq!(released, 5);
        let left = (host.tcp.task_count(), host.tcp.open_bursts(), host.tcp.backlog());
        prop_assert_eq!(left, (0, 0, 0));
        let mut data = Vec::new();
        let mut whole = Vec::new();
        for (response, part) in responses(&bytes, keys) {
            let Response::DataIn(data_in) = response else { continue };
            prop_assert_eq!(data_in.offset as usize, data.len());
            data.extend_from_slice(&part);
            if data_in.status.is_some() {
                prop_assert!(data == pattern(data.len()));
                whole.push((data_in.itt.0, data.len()));
                data.clear();
            }
        }
        prop_assert_eq!(whole, wanted);
    }
}
