// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Framing: any split, digests, limits.

use super::*;
use proptest::prelude::*;
use wire::iscsi::{LogoutRequest, Snack, TaskManagementRequest, TextRequest};

/// All PDU kinds of a session, with AHS, immediate, unsolicited and solicited data, and PDUs that
/// are refused.
pub(super) fn session(keys: Keys) -> Vec<Vec<u8>> {
    let (cmd_sn, exp_stat_sn) = (CmdSn(9), StatSn(1));
    let mut stream = vec![login()];
    stream.push(pdu(&Request::NopOut(nop_out(0x22)), b"hello", keys));
    let mut read = ScsiCommand { read: true, write: false, ..write(1, 512) };
    read.cdb = Cdb { bytes: [0x7f; 32], len: 32 };
    stream.push(pdu(&Request::Command(read), &[], keys));
    let data = pattern(2501);
    let command = ScsiCommand { final_: false, ..write(2, 2501) };
    stream.push(pdu(&Request::Command(command), &data[..301], keys));
    let out = |ttt, sn, range: core::ops::Range<usize>, final_| {
        let offset = u32::try_from(range.start).expect("small");
        let request = DataOut { final_, ..data_out(2, ttt, sn, offset) };
        pdu(&Request::DataOut(request), &data[range], keys)
    };
    stream.push(out(u32::MAX, 0, 301..700, false));
    stream.push(out(u32::MAX, 1, 700..1024, true));
    stream.push(out(0x0001_0000, 0, 1024..2002, false));
    stream.push(out(0x0001_0000, 1, 2002..2002, false));
    stream.push(out(0x0001_0000, 2, 2002..2501, true));
    let text = TextRequest {
        immediate: false,
        final_: true,
        continue_: false,
        lun: LunField::default(),
        itt: Itt(3),
        ttt: Ttt::NONE,
        cmd_sn,
        exp_stat_sn,
    };
    stream.push(pdu(&Request::Text(text), b"SendTargets=All\0", keys));
    let tmf = TaskManagementRequest {
        immediate: true,
        function: 1,
        lun: LUN,
        itt: Itt(4),
        referenced_task: Itt(2),
        cmd_sn,
        exp_stat_sn,
        ref_cmd_sn: CmdSn(7),
        exp_data_sn: DataSn(0),
    };
    stream.push(pdu(&Request::TaskManagement(tmf), &[], keys));
    let mut unknown = zeros(BHS_LEN);
    unknown[0] = 0x07;
    unknown[7] = 5;
    stream.push(frame(unknown, b"12345", keys, 0xff));
    stream.push(out(0x0001_0000, 0, 0..7, true));
    let snack = Snack {
        kind: 0,
        lun: LUN,
        itt: Itt(1),
        tag: u32::MAX,
        exp_stat_sn,
        beg_run: 0,
        run_length: 0,
    };
    stream.push(pdu(&Request::Snack(snack), &[], keys));
    let logout =
        LogoutRequest { immediate: true, reason: 0, itt: Itt(5), cid: Cid(1), cmd_sn, exp_stat_sn };
    stream.push(pdu(&Request::Logout(logout), &[], keys));
    stream
}

fn whole(keys: Keys) -> (Vec<u8>, Vec<Note>) {
    let stream = session(keys).concat();
    let mut host = Host::new(keys);
    host.feed(&stream);
    let notes = host.take_notes();
    (stream, notes)
}

/// Covers: DGT-03/T, DIN-14/T, FMT-08, PER-04, DGT-02a/T, FMT-04/T, FMT-06/T, FMT-18/T.
#[test]
fn a_session_of_all_kinds_is_understood() {
    for keys in [PLAIN, DIGESTS] {
        let (_, notes) = whole(keys);
        let written = notes.iter().find_map(|note| match note {
            Note::Written(data) => Some(data),
            _ => None,
        });
        assert_eq!(written, Some(&pattern(2501)));
        let command = |note: &Note| match note {
            Note::Control(Request::Command(command), _) => Some(command.cdb),
            _ => None,
        };
        let cdb = notes.iter().find_map(command);
        assert_eq!(cdb, Some(Cdb { bytes: [0x7f; 32], len: 32 }), "from the AHS");
        assert!(notes.contains(&Note::Done(task(2), 301, 723)));
        assert!(notes.contains(&Note::Done(task(2), 1024, 1477)));
        let kinds: Vec<u8> = notes
            .iter()
            .filter_map(|note| match note {
                Note::Rejected(reason, _) => Some(*reason),
                _ => None,
            })
            .collect();
        assert_eq!(kinds, [0x05, 0x09], "unknown opcode, stale transfer tag");
        assert_eq!(notes.len(), 14);
    }
}

#[test]
fn every_cut_of_the_stream_gives_the_same_events() {
    for keys in [PLAIN, DIGESTS] {
        let (stream, expected) = whole(keys);
        for cut in 0..stream.len() {
            let mut host = Host::new(keys);
            host.feed(&stream[..cut]);
            host.feed(&stream[cut..]);
            assert!(host.notes == expected, "cut at {cut}");
        }
    }
}

#[test]
fn single_bytes_give_the_same_events() {
    for keys in [PLAIN, DIGESTS] {
        let (stream, expected) = whole(keys);
        let mut host = Host::new(keys);
        for byte in &stream {
            host.feed(core::slice::from_ref(byte));
        }
        assert!(host.notes == expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_splits_give_the_same_events(cuts in prop::collection::vec(1..700_usize, 1..40)) {
        for keys in [PLAIN, DIGESTS] {
            let (stream, expected) = whole(keys);
            let mut host = Host::new(keys);
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                let (part, tail) = rest.split_at((*cut).min(rest.len()));
                host.feed(part);
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(host.notes == expected);
        }
    }
}

/// Covers: DGT-01/T, DGT-02b/T.
#[test]
fn vectors_with_digests_are_taken() {
    let mut host = Host::logged_in(DIGESTS);
    let inquiry = hex("01c10000000000000000000000000000 00000011000000240000000500000065
         12000000240000000000000000000000 7d268666");
    host.feed(&inquiry);
    let ping = hex("40800000000000050000000000000000 00000022ffffffff0000000600000066
         00000000000000000000000000000000 59ea3bb2 68656c6c6f000000 b3ed0390");
    host.feed(&ping);
    let [Note::Control(Request::Command(command), _), Note::Control(Request::NopOut(nop), data)] =
        &host.notes[..]
    else {
        panic!("unexpected: {:?}", host.notes);
    };
    assert_eq!((command.itt, command.expected_length), (Itt(0x11), 36));
    assert_eq!((nop.itt, &data[..]), (Itt(0x22), &b"hello"[..]));
}

/// Covers: DGT-02b/T, FMT-05/T.
#[test]
fn padding_may_have_any_value() {
    for keys in [PLAIN, DIGESTS] {
        for length in 1..=4 {
            let mut host = Host::logged_in(keys);
            let data = &b"ping"[..length];
            host.feed(&pdu_padded(&Request::NopOut(nop_out(1)), data, keys, 0xa5));
            host.feed(&pdu(&Request::NopOut(nop_out(2)), &[], keys));
            let expected = [
                Note::Control(Request::NopOut(nop_out(1)), data.to_vec()),
                Note::Control(Request::NopOut(nop_out(2)), vec![]),
            ];
            assert_eq!(host.notes, expected);
        }
    }
}

/// Covers: DGT-04/T.
#[test]
fn a_wrong_header_digest_ends_the_stream() {
    let stream = pdu(&Request::Command(write(1, 4)), b"data", DIGESTS);
    for at in 0..BHS_LEN + 4 {
        let mut host = Host::logged_in(DIGESTS);
        let mut wrong = stream.clone();
        wrong[at] ^= 0x10;
        // A corrupt TotalAHSLength asks for more header first.
        host.feed(&wrong);
        host.feed(&zeros(1024));
        assert_eq!(host.notes, [Note::Violation(StreamViolation::HeaderDigest)], "byte {at}");
        host.feed(&stream);
        assert_eq!(host.notes.len(), 1, "nothing is taken afterwards");
        assert_eq!(host.tcp.counters().header_digest_errors, 1, "byte {at}");
    }
}

/// Covers: DGT-07, DGT-05.
#[test]
fn a_wrong_data_digest_skips_the_pdu() {
    let text = session(DIGESTS)[9].clone();
    for stream in [
        pdu(&Request::NopOut(nop_out(1)), b"hello", DIGESTS),
        pdu(&Request::Command(write(1, 5)), b"hello", DIGESTS),
        text,
    ] {
        for at in BHS_LEN + 4..stream.len() {
            let mut host = Host::logged_in(DIGESTS);
            let mut wrong = stream.clone();
            wrong[at] ^= 1;
            host.feed(&wrong);
            host.feed(&pdu(&Request::NopOut(nop_out(7)), &[], DIGESTS));
            let expected = [
                Note::DigestError(stream[..BHS_LEN].to_vec()),
                Note::Control(Request::NopOut(nop_out(7)), vec![]),
            ];
            assert_eq!(host.notes, expected, "byte {at}");
            assert_eq!(host.pool.bytes_in_use(), 0, "the staged buffer went back");
            assert_eq!(host.tcp.counters().data_digest_errors, 1, "byte {at}");
        }
    }
}

/// Covers: FMT-02/T.
#[test]
fn reserved_bits_do_not_matter() {
    // Reserved bytes of each PDU, and the reserved bits of its first two bytes (RFC 7143 §11).
    let ping = pdu(&Request::NopOut(nop_out(1)), b"ping", PLAIN);
    let command = ScsiCommand { final_: false, ..write(2, 2000) };
    let write = pdu(&Request::Command(command), &pattern(1000), PLAIN);
    let out = DataOut { final_: true, ..data_out(2, u32::MAX, 0, 1000) };
    let out = pdu(&Request::DataOut(out), &pattern(2000)[1000..1024], PLAIN);
    let get = data_out(2, 0x0001_0000, 0, 1024);
    let get = DataOut { final_: true, ..get };
    let get = pdu(&Request::DataOut(get), &pattern(2000)[1024..], PLAIN);
    let table: [(Vec<u8>, u8, u8, &[usize]); 4] = [
        (ping, 0x80, 0x7f, &[2, 3, 32, 33, 40, 47]),
        (write, 0x80, 0x18, &[3]),
        (out, 0xc0, 0x7f, &[2, 3, 8, 15, 24, 27, 32, 35, 44, 47]),
        (get, 0xc0, 0x7f, &[2, 3, 24, 27, 32, 35, 44, 47]),
    ];
    let mut plain = Host::logged_in(PLAIN);
    let mut noisy = Host::logged_in(PLAIN);
    for (mut bytes, first, second, reserved) in table {
        plain.feed(&bytes);
        bytes[0] |= first;
        bytes[1] |= second;
        for at in reserved {
            bytes[*at] = 0xff;
        }
        noisy.feed(&bytes);
    }
    assert!(plain.notes.contains(&Note::Written(pattern(2000))));
    assert!(plain.notes == noisy.notes);
}

#[test]
fn only_a_login_request_begins_a_connection() {
    for first in 0..=u8::MAX {
        let mut host = Host::new(PLAIN);
        host.feed(&[first]);
        if first & 0x3f == 0x03 {
            assert_eq!(host.notes, []);
        } else {
            assert_eq!(host.notes, [Note::Violation(StreamViolation::NotLogin)]);
        }
    }
}

/// Covers: FMT-19.
#[test]
fn a_segment_that_is_too_long_is_a_violation() {
    let limit = PLAIN.max_recv_data_segment_length;
    for (length, fits) in [(limit, true), (limit + 1, false), (0x00ff_ffff, false)] {
        let mut header = Vec::new();
        Request::NopOut(nop_out(1)).emit(length, &mut header);
        let mut host = Host::logged_in(PLAIN);
        host.feed(&header);
        let violation = Note::Violation(StreamViolation::SegmentTooLong { length, limit });
        assert_eq!(host.notes, if fits { vec![] } else { vec![violation] });
    }
}

/// Covers: LGN-06/T.
#[test]
fn a_login_request_has_8192_bytes_at_most() {
    for (length, fits) in [(8192, true), (8193, false), (8196, false)] {
        let mut host = Host::new(PLAIN);
        let mut header = login()[..BHS_LEN].to_vec();
        header[5..8].copy_from_slice(&u32::to_be_bytes(length)[1..]);
        host.feed(&header);
        let limit = 8192;
        let violation = Note::Violation(StreamViolation::SegmentTooLong { length, limit });
        assert_eq!(host.notes, if fits { vec![] } else { vec![violation] });
    }
}

/// Covers: FMT-09/T.
#[test]
fn an_ahs_belongs_to_commands_only() {
    for opcode in [0x00, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10, 0x3f] {
        for keys in [PLAIN, DIGESTS] {
            let mut host = Host::logged_in(keys);
            let mut header = zeros(BHS_LEN + 4);
            header[0] = opcode;
            header[4] = 1;
            host.feed(&frame(header, &[], keys, 0));
            assert_eq!(host.notes, [Note::Violation(StreamViolation::AdditionalHeader)]);
        }
    }
}

/// Covers: FMT-15, REJ-01.
#[test]
fn a_broken_ahs_list_is_rejected() {
    // Longer than the list; of an unknown type.
    let lists = [[0xff, 0xff, 1, 0, 0, 0, 0, 0], [0, 5, 9, 0, 0, 0, 0, 0]];
    for (ahs, keys) in lists.into_iter().flat_map(|ahs| [(ahs, PLAIN), (ahs, DIGESTS)]) {
        let mut host = Host::logged_in(keys);
        let mut header = Vec::new();
        Request::Command(write(1, 4)).emit(4, &mut header);
        header[4] = 2;
        header.extend_from_slice(&ahs);
        host.feed(&frame(header.clone(), b"data", keys, 0));
        host.feed(&pdu(&Request::NopOut(nop_out(7)), &[], keys));
        let [Note::Rejected(reason, rejected), Note::Control(..)] = &host.notes[..] else {
            panic!("unexpected: {:?}", host.notes);
        };
        assert!([0x04, 0x09].contains(reason));
        assert_eq!(rejected, &header);
    }
}

/// Covers: FMT-07/T, FMT-08.
#[test]
fn opcodes_that_no_initiator_has_are_rejected() {
    let legal = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10];
    for opcode in (0..0x40).filter(|opcode| !legal.contains(opcode)) {
        for data in [&b""[..], b"abc"] {
            let mut host = Host::logged_in(DIGESTS);
            let mut header = zeros(BHS_LEN);
            header[0] = opcode;
            header[7] = u8::try_from(data.len()).expect("short");
            host.feed(&frame(header.clone(), data, DIGESTS, 0));
            assert_eq!(host.notes, [Note::Rejected(0x05, header)]);
        }
    }
}

#[test]
fn immediate_data_is_staged_for_the_whole_transfer() {
    let mut tcp = Host::logged_in(PLAIN).tcp;
    let pool = Pool::new(1 << 20).expect("memory for a pool");
    let stream = pdu(&Request::Command(write(1, 100_000)), &pattern(1000), PLAIN);
    let (taken, event) = tcp.feed(&stream, &pool);
    assert_eq!(taken, stream.len());
    let Some(Event::Control { immediate: Immediate::Staged { data, length }, .. }) = event else {
        panic!("unexpected: {event:?}");
    };
    assert_eq!((data.len(), length), (100_000, 1000));
    assert_eq!(&data[..1000], &pattern(1000)[..]);
    // More data than the command announces, and a transfer beyond the longest buffer.
    for expected in [8, u32::MAX] {
        let stream = pdu(&Request::Command(write(1, expected)), &pattern(1000), PLAIN);
        let Some(Event::Control { immediate, .. }) = tcp.feed(&stream, &pool).1 else {
            panic!("no event");
        };
        let Immediate::Staged { data, length } = immediate else { panic!("not staged") };
        assert!(data.len() >= 1000);
        assert_eq!(length, 1000);
    }
}

/// Where others could use it, what has not come gets no memory.
#[test]
fn immediate_data_takes_what_it_needs_where_memory_is_short() {
    let mut tcp = Host::logged_in(PLAIN).tcp;
    let pool = Pool::new(4 << 20).expect("memory for a pool").share();
    let mut held = Vec::new();
    let mut lengths = Vec::new();
    for itt in 1..=4 {
        let stream = pdu(&Request::Command(write(itt, 1 << 20)), &pattern(1000), PLAIN);
        let Some(Event::Control { immediate: Immediate::Staged { data, .. }, .. }) =
            tcp.feed(&stream, &pool).1
        else {
            panic!("not staged");
        };
        lengths.push(data.len());
        held.push(data);
    }
    assert_eq!(lengths, [1 << 20, 1 << 20, 1000, 1000]);
}

#[test]
fn without_a_buffer_immediate_data_is_dropped() {
    let mut host = Host::logged_in(DIGESTS);
    host.pool = Pool::new(0).expect("an empty pool");
    host.feed(&pdu(&Request::Command(write(1, 1 << 20)), &pattern(1000), DIGESTS));
    host.feed(&pdu(&Request::NopOut(nop_out(7)), &[], DIGESTS));
    let last = Note::Control(Request::NopOut(nop_out(7)), vec![]);
    assert_eq!(host.notes, [Note::NoBuffer, Note::Exhausted(1000), last]);
}

#[test]
fn immediate_data_waits_for_whoever_makes_room() {
    for split in [false, true] {
        let mut tcp = Host::logged_in(DIGESTS).tcp;
        let pool = Pool::new(4096).expect("memory for a pool");
        let kept = pool.take(4096).expect("all of it");
        let stream = pdu(&Request::Command(write(1, 4096)), &pattern(1000), DIGESTS);
        let header = BHS_LEN + 4;
        let first = if split { &stream[..header] } else { &stream[..] };
        let (taken, event) = tcp.feed(first, &pool);
        assert_eq!(taken, header, "nothing of the data");
        assert!(matches!(event, Some(Event::NoBuffer)), "{event:?}");
        drop(kept);
        let (taken, event) = tcp.feed(&stream[header..], &pool);
        assert_eq!(taken, stream.len() - header);
        let Some(Event::Control { immediate: Immediate::Staged { data, length }, .. }) = event
        else {
            panic!("unexpected: {event:?}");
        };
        assert_eq!((&data[..1000], length), (&pattern(1000)[..], 1000));
    }
}

pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).expect("a digit"));
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]).expect("a digit") << 4 | digit(pair[1]).expect("a digit"))
        .collect()
}
