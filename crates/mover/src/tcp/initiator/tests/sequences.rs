// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sequences of Data-Outs as R2Ts ask for them, PDUs without data, and what fits the direction of
//! its command.

use super::recovery::RECOVERY;
use super::*;

/// Segments of an odd length, and none that is filled up in the middle of a sequence.
const ODD: Keys = Keys { max_send_data_segment_length: 1021, ..KEYS };

const ANY_ORDER: Keys = Keys { data_in_order: false, ..DIGESTS };

/// A Data-In of a target.
fn data(keys: Keys, response: DataIn, data: &[u8]) -> Vec<u8> {
    pdu(keys, Response::DataIn(response), data)
}

fn ask(tcp: &mut Tcp, keys: Keys, r2ts: &[R2t]) -> Vec<Pdu> {
    let stream = r2ts.iter().flat_map(|r2t| pdu(keys, Response::R2t(*r2t), &[]));
    let told = events(tcp, &stream.collect::<Vec<u8>>());
    assert!(told.iter().all(|event| matches!(event, Event::Window(_))), "{told:?}");
    split(keys, &sent(tcp))
}

/// Two wait at once; where sequences may come in any order, their places say nothing.
///
/// Covers: DOU-05.
#[test]
fn r2ts_of_a_task_are_answered_in_the_order_in_which_they_came() {
    for (keys, [first, second]) in [(KEYS, [0, 4096]), (ANY_ORDER, [4096, 0])] {
        let (mut tcp, _) = writing(keys, 8192, 0, 0);
        let outs = ask(&mut tcp, keys, &[r2t(0, first, 4096), r2t(1, second, 4096)]);
        assert_eq!(outs.len(), 8);
        check_burst(&outs[..4], Ttt(77), first, first + 4096);
        check_burst(&outs[4..], Ttt(78), second, second + 4096);
    }
}

/// Odd places and lengths, the first and the last byte, the longest range; in any order, and above
/// level 0 what was asked for before.
///
/// Covers: DOU-01, DOU-03, DOU-04, DOU-06, DOU-09, DIN-15/I.
#[test]
fn every_r2t_within_the_command_is_honoured() {
    let any = Keys { data_in_order: false, ..ODD };
    let again = Keys { recovery: true, strays: true, ..ODD };
    for (keys, ranges) in [
        (ODD, [(0, 1), (1, 4096), (4097, 3), (4100, 4091), (8191, 1)]),
        (any, [(8191, 1), (3, 4090), (0, 3), (4093, 4096), (8189, 2)]),
        (again, [(0, 4096), (1, 4095), (0, 1), (4096, 4096), (8191, 1)]),
    ] {
        let (mut tcp, _) = writing(keys, 8192, 0, 0);
        for (number, (offset, length)) in (0..).zip(ranges) {
            let outs = ask(&mut tcp, keys, &[r2t(number, offset, length)]);
            check_burst(&outs, Ttt(77 + number), offset, offset + length);
            let (_, full) = outs.split_last().expect("an answer");
            assert!(full.iter().all(|(_, data)| data.len().is_multiple_of(4)), "{offset} {length}");
        }
    }
}

/// Covers: DSN-09a.
#[test]
fn data_that_comes_twice_counts_once() {
    let part = |number| recovery::part(RECOVERY, number, 3);
    let mut tcp = reading(RECOVERY, 300);
    // The copy has other bytes: it is dropped, and not put in the place of the first.
    let copy = data(RECOVERY, data_in(0, 0, None), &[0xee; 100]);
    let told = events(&mut tcp, &[part(0), copy, part(1), part(1), part(2)].concat());
    let [.., Event::Ended(ended)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((ended.received, ended.response.exp_data_sn), (300, DataSn(3)));
    assert!(!told.iter().any(|event| matches!(event, Event::Incomplete { .. })), "{told:?}");
    recovery::is_whole(&mut tcp, 300);
}

/// Covers: DSN-09b.
#[test]
fn an_r2t_that_comes_twice_is_answered_once() {
    let (mut tcp, _) = writing(RECOVERY, 8192, 0, 0);
    let outs = ask(&mut tcp, RECOVERY, &[r2t(0, 0, 4096), r2t(0, 0, 4096)]);
    check_burst(&outs, Ttt(77), 0, 4096);
    let outs = ask(&mut tcp, RECOVERY, &[r2t(1, 4096, 4096), r2t(0, 0, 4096)]);
    check_burst(&outs, Ttt(78), 4096, 8192);
}

/// Covers: DIN-14/I.
#[test]
fn data_ins_without_data_are_taken() {
    for keys in [KEYS, DIGESTS, RECOVERY] {
        let mut tcp = reading(keys, 200);
        let stream = [
            data(keys, data_in(0, 0, None), &[]),
            data(keys, data_in(1, 0, None), &[7; 200]),
            data(keys, data_in(2, 200, None), &[]),
            data(keys, data_in(3, 200, Some(0)), &[]),
        ];
        let told = events(&mut tcp, &stream.concat());
        let [Event::Window(_), Event::Ended(ended)] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((ended.received, ended.damaged), (200, false));
        assert_eq!(*tcp.submit(Op::Detach { task: TASK }).unwrap(), [7; 200]);
    }
}

/// Covers: DIN-06.
#[test]
fn what_stands_for_a_status_means_nothing_without_s() {
    let run = |noise: &dyn Fn(&mut [u8])| {
        let mut tcp = reading(KEYS, 200);
        // The end of a sequence, and not of the command.
        let end = DataIn { final_: true, ..data_in(0, 0, None) };
        let mut first = data(KEYS, end, &[1; 100]);
        noise(&mut first);
        let told = events(&mut tcp, &first);
        assert!(matches!(told.as_slice(), [Event::Window(_)]), "{told:?}");
        let told = events(&mut tcp, &data(KEYS, data_in(1, 100, Some(0)), &[2; 100]));
        let [Event::Ended(ended)] = told.as_slice() else { panic!("{told:?}") };
        (ended.response, ended.received)
    };
    let plain = run(&|_| {});
    // Status, StatSN, residual flags and count.
    assert_eq!(run(&|pdu| pdu[3] = 2), plain);
    assert_eq!(run(&|pdu| pdu[24..28].fill(0xff)), plain);
    assert_eq!(run(&|pdu| pdu[1] |= 0x06), plain);
    assert_eq!(run(&|pdu| pdu[44..48].fill(0xff)), plain);
}

/// At level 0 the bit means nothing, also where data comes out of order.
///
/// Covers: DIN-08.
#[test]
fn nothing_is_acknowledged_at_level_0() {
    for (keys, offsets) in [(KEYS, [0, 100]), (ANY_ORDER, [100, 0])] {
        let mut tcp = reading(keys, 300);
        for (number, offset) in (0..).zip(offsets) {
            let asks = DataIn {
                final_: true,
                acknowledge: true,
                ttt: Ttt(1),
                ..data_in(number, offset, None)
            };
            let told = events(&mut tcp, &data(keys, asks, &[0; 100]));
            assert!(told.iter().all(|event| matches!(event, Event::Window(_))), "{told:?}");
        }
        assert!(sent(&mut tcp).is_empty());
    }
}

/// Data comes for what reads, and is asked for of what writes.
///
/// Covers: CMD-32b/I.
#[test]
fn what_does_not_fit_the_direction_of_its_command_is_an_error() {
    let foreign = [
        data(KEYS, data_in(0, 0, None), &[1; 100]),
        data(KEYS, data_in(0, 0, None), &[]),
        data(KEYS, data_in(0, 0, Some(0)), &[]),
    ];
    for foreign in foreign {
        let (mut tcp, _) = writing(KEYS, 8192, 0, 0);
        violates(&mut tcp, &foreign, |v| matches!(v, Violation::Range { buffer: 0, .. }));
    }
    let mut tcp = reading(KEYS, 8192);
    violates(&mut tcp, &pdu(KEYS, Response::R2t(r2t(0, 0, 100)), &[]), |v| {
        matches!(v, Violation::R2tRange { buffer: 0, .. })
    });
    // A command that moves nothing may end either way.
    let mut tcp = reading(KEYS, 0);
    let told = events(&mut tcp, &data(KEYS, data_in(0, 0, Some(0)), &[]));
    assert!(matches!(told.as_slice(), [Event::Ended(_)]), "{told:?}");
}

/// Covers: DGT-02a/I, DGT-02b/I, DGT-03/I, DGT-01/I.
#[test]
fn digests_cover_headers_with_all_they_have_and_data_with_its_padding() {
    let mut tcp = Tcp::new();
    tcp.submit(Op::NoticeKeys(DIGESTS));
    let write = Some(Slice::from(vec![0x5a; 1001]));
    tcp.submit(Op::Attach { task: TASK, write, read: None });
    // A CDB that needs an AHS.
    let cdb = Cdb { bytes: [0x7f; 32], len: 32 };
    let command = ScsiCommand { cdb, ..command(false, 1001) };
    let (immediate, unsolicited_end) = (1001, 1001);
    tcp.submit(Op::SendCommand { task: TASK, command, immediate, unsolicited_end });
    let bytes = sent(&mut tcp);
    let header = BHS_LEN + 4 * usize::from(bytes[4]);
    assert!(header > BHS_LEN, "there is an AHS");
    assert_eq!(bytes[header..header + 4], crc::crc32c(&bytes[..header]).to_le_bytes());
    let data = &bytes[header + 4..];
    assert_eq!(data.len(), 1004 + 4, "three bytes of padding");
    assert_eq!(data[1004..], crc::crc32c(&data[..1004]).to_le_bytes());
    // Without data there is no digest of it.
    let mut tcp = Tcp::new();
    tcp.submit(Op::NoticeKeys(DIGESTS));
    tcp.submit(Op::Attach { task: TASK, write: None, read: None });
    let cdb = Cdb { len: 16, ..cdb };
    let command = ScsiCommand { cdb, read: true, write: false, expected_length: 0, ..command };
    tcp.submit(Op::SendCommand { task: TASK, command, immediate: 0, unsolicited_end: 0 });
    assert_eq!(sent(&mut tcp).len(), BHS_LEN + 4);
    // What comes counts with its padding, whatever that is.
    for (padding, is_whole) in [(0, true), (0xa5, true), (0xa5, false)] {
        let mut tcp = reading(DIGESTS, 5);
        let mut pdu = data_pdu_padded(padding);
        if !is_whole {
            let at = pdu.len() - 5;
            pdu[at] ^= 1;
        }
        let told = events(&mut tcp, &pdu);
        match told.as_slice() {
            [Event::Window(_)] => assert_eq!(tcp.tasks.get(TASK).unwrap().damaged, !is_whole),
            other => panic!("{other:?}"),
        }
    }
}

/// A Data-In of five bytes with this padding, and digests over it.
fn data_pdu_padded(padding: u8) -> Vec<u8> {
    let mut bytes = pdu(DIGESTS, Response::DataIn(data_in(0, 0, None)), &[1; 5]);
    let data = BHS_LEN + 4;
    bytes[data + 5..data + 8].fill(padding);
    let digest = crc::crc32c(&bytes[data..data + 8]).to_le_bytes();
    bytes[data + 8..].copy_from_slice(&digest);
    bytes
}

/// Each kind of PDU that takes a StatSN.
///
/// Covers: DGT-12, DGT-13, DGT-08.
#[test]
fn what_is_damaged_counts_as_lost_with_its_number() {
    let (lun, numbers) = (LunField::default(), numbers(9));
    let message = AsyncMessage {
        lun,
        numbers,
        event: 1,
        vcode: 0,
        parameter1: 0,
        parameter2: 0,
        parameter3: 10,
    };
    let text =
        TextResponse { final_: true, continue_: false, lun, itt: Itt(5), ttt: Ttt::NONE, numbers };
    let counted = [
        Response::Scsi(status(2, 0)),
        Response::Async(message),
        Response::Reject(Reject { reason: 4, numbers, data_sn: DataSn(0) }),
        Response::Text(text),
        Response::NopIn(NopIn { lun, itt: Itt(5), ttt: Ttt::NONE, numbers }),
    ];
    for response in counted {
        let mut tcp = reading(RECOVERY, 200);
        let told = events(&mut tcp, &recovery::damaged(pdu(RECOVERY, response, &[7; 48])));
        assert!(
            matches!(told.as_slice(), [Event::StatusLost(StatSn(5))]),
            "{response:?}: {told:?}"
        );
    }
    // A ping of the target takes none.
    let ping = Response::NopIn(NopIn { lun, itt: Itt::NONE, ttt: Ttt(5), numbers });
    let mut tcp = reading(RECOVERY, 200);
    let told = events(&mut tcp, &recovery::damaged(pdu(RECOVERY, ping, &[7; 48])));
    assert!(told.is_empty(), "{told:?}");
}
