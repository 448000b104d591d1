// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What no initiator should send.

use super::*;
use proptest::prelude::*;

/// Header and control data memory of one connection: one AHS list with room to grow, one login
/// segment.
const MEMORY_MAX: usize = 2 * 1068 + 8192;

/// Everything that may be reported of a stream, by the bytes it carries.
fn carries_only(notes: &[Note], clean: &[Note]) -> bool {
    notes.iter().all(|note| match note {
        Note::Control(..) | Note::Written(_) | Note::Done(..) => clean.contains(note),
        Note::Exhausted(_) => false,
        _ => true,
    })
}

/// Covers: DGT-04/T.
#[test]
fn no_corrupt_byte_is_ever_taken_for_data() {
    let parts = receive::session(DIGESTS);
    let stream = parts.concat();
    let mut host = Host::new(DIGESTS);
    host.feed(&stream);
    let clean = host.take_notes();
    // Data of the two PDUs that are refused anyway is skipped unread.
    let length = |count| parts[..count].iter().map(Vec::len).sum::<usize>();
    let refused = length(11)..length(13);
    let mut found = 0;
    for at in parts[0].len()..stream.len() {
        let mut wrong = stream.clone();
        wrong[at] ^= 1 << (at % 8);
        let mut host = Host::new(DIGESTS);
        host.feed(&wrong);
        assert!(carries_only(&host.notes, &clean), "byte {at}");
        assert!(host.notes != clean || refused.contains(&at), "byte {at} goes unnoticed");
        found += 1;
    }
    assert!(found > 3000);
}

#[test]
fn a_connection_cut_anywhere_leaves_nothing() {
    let stream = receive::session(DIGESTS).concat();
    for cut in 0..stream.len() {
        let mut host = Host::new(DIGESTS);
        host.feed(&stream[..cut]);
        let Host { tcp, pool, .. } = host;
        drop(tcp);
        assert_eq!(pool.bytes_in_use(), 0, "cut at {cut}");
    }
}

#[test]
fn sixteen_mebibytes_before_login_reserve_nothing() {
    let mut host = Host::new(PLAIN);
    let mut header = login()[..BHS_LEN].to_vec();
    header[5..8].fill(0xff);
    host.feed(&header);
    let (length, limit) = (0x00ff_ffff, 8192);
    let violation = StreamViolation::SegmentTooLong { length, limit };
    assert_eq!(host.notes, [Note::Violation(violation)]);
    assert!(host.tcp.rx.memory() <= BHS_LEN);
}

#[test]
fn memory_before_login_is_bounded_and_comes_with_the_bytes() {
    let mut host = Host::new(PLAIN);
    assert!(host.tcp.rx.memory() <= BHS_LEN);
    let mut header = login()[..BHS_LEN].to_vec();
    header[5..8].copy_from_slice(&[0, 0x20, 0]);
    host.feed(&header);
    assert!(host.tcp.rx.memory() <= BHS_LEN, "announced, not there");
    host.feed(&zeros(8192));
    assert_eq!(host.notes.len(), 1);
    assert!(host.tcp.rx.memory() <= BHS_LEN + 8192);
}

#[test]
fn memory_of_a_long_segment_goes_back() {
    let keys = Keys { max_recv_data_segment_length: 1 << 20, ..DIGESTS };
    let mut host = Host::logged_in(keys);
    host.feed(&pdu(&Request::NopOut(nop_out(1)), &pattern(1 << 20), keys));
    assert_eq!(host.notes, [Note::Control(Request::NopOut(nop_out(1)), pattern(1 << 20))]);
    host.feed(&pdu(&Request::NopOut(nop_out(2)), &[], keys));
    assert!(host.tcp.rx.memory() <= MEMORY_MAX);
}

#[test]
fn a_login_with_every_ahs_length_is_refused() {
    for words in 1..=u8::MAX {
        let mut host = Host::new(PLAIN);
        let mut header = login()[..BHS_LEN].to_vec();
        header[4] = words;
        host.feed(&header);
        assert_eq!(host.notes, [Note::Violation(StreamViolation::AdditionalHeader)]);
    }
}

/// One Data-Out of a hostile initiator.
#[derive(Clone, Debug)]
struct Shot {
    tag: usize,
    sn: u32,
    offset: u32,
    length: usize,
    last: u8,
}

fn shot() -> impl Strategy<Value = Shot> {
    let offset = prop_oneof![
        8 => prop::sample::select(vec![0_u32, 512, 1024, 2048, 4096, 4608, 8188]),
        1 => any::<u32>(),
    ];
    let length = prop::sample::select(vec![0_usize, 1, 512, 513, 1024, 4096, 4097]);
    (0..4_usize, 0..4_u32, offset, length, 0..4_u8)
        .prop_map(|(tag, sn, offset, length, last)| Shot { tag, sn, offset, length, last })
}

/// Byte `at` of the transfer: what an honest initiator would send there.
fn honest(at: u32) -> u8 {
    u8::try_from(at % 251).expect("below 251")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Two bursts of 4096 bytes are open, at 0 and 4096 of a buffer of 12,288 bytes. Whatever
    /// comes, each byte of the buffer is untouched or the right one, those of other bursts are
    /// untouched, and a burst is done only if whole.
    #[test]
    fn bursts_hold_against_any_data_outs(shots in prop::collection::vec(shot(), 1..40)) {
        let mut host = Host::logged_in(PLAIN);
        let mut buf = host.pool.take(12_288).expect("a buffer");
        buf.fill(0xff);
        host.tcp.submit(Op::Attach { task: task(1), buf });
        for offset in [0, 4096] {
            let (task, itt, numbers) = (task(1), Itt(1), numbers(1));
            host.tcp.submit(Op::GetData { task, itt, lun: LUN, offset, length: 4096, numbers });
        }
        host.drain();
        let pool = host.pool.clone();
        let mut done = Vec::new();
        for Shot { tag, sn, offset, length, last } in shots {
            let data: Vec<u8> = (0..u32::try_from(length).expect("short"))
                .map(|at| honest(offset.wrapping_add(at)))
                .collect();
            let ttt = [0, 1, 7, u32::MAX][tag];
            let request = DataOut { final_: last == 0, ..data_out(1, ttt, sn, offset) };
            let bytes = pdu(&Request::DataOut(request), &data, PLAIN);
            let (taken, event) = host.tcp.feed(&bytes, &pool);
            prop_assert_eq!(taken, bytes.len());
            host.tcp.check();
            if let Some(Event::DataDone { offset, length, .. }) = event {
                prop_assert_eq!(length, 4096);
                done.push(offset);
            }
        }
        let buf = host.tcp.submit(Op::Detach { task: task(1) }).expect("the buffer");
        for (at, byte) in (0_u32..).zip(buf.iter()) {
            prop_assert!(*byte == 0xff || (at < 8192 && *byte == honest(at)), "byte {}", at);
            let whole = done.iter().any(|offset| (*offset..*offset + 4096).contains(&at));
            prop_assert!(!whole || *byte == honest(at), "byte {} of a burst that is done", at);
        }
    }

    /// Random bytes behind plausible first ones.
    #[test]
    fn random_bytes_never_panic(
        digests in any::<bool>(),
        pdus in prop::collection::vec(
            (prop::sample::select(vec![0_u8, 1, 2, 3, 4, 5, 6, 0x10, 0x20, 0x3f, 0x41]),
             prop::collection::vec(any::<u8>(), 0..60),
             0..300_u32,
             prop::sample::select(vec![0_u8, 0, 0, 0, 1, 5, 255])),
            1..30,
        ),
        chunk in 1..200_usize,
    ) {
        let keys = if digests { DIGESTS } else { PLAIN };
        let mut tcp = Host::logged_in(keys).tcp;
        let pool = Pool::new(1 << 20).expect("memory for a pool");
        let mut stream = Vec::new();
        for (opcode, bytes, length, ahs) in pdus {
            let mut header = zeros(BHS_LEN + usize::from(ahs) * 4);
            let count = header.len();
            for (to, from) in header.iter_mut().zip(bytes.iter().cycle().take(count)) {
                *to = *from;
            }
            header[0] = opcode;
            header[4] = if opcode & 0x3f == 1 { ahs } else { 0 };
            header.truncate(BHS_LEN + usize::from(header[4]) * 4);
            header[5] = 0;
            header[6..8].copy_from_slice(&u16::try_from(length).expect("short").to_be_bytes());
            stream.extend(frame(header, &pattern(length as usize), keys, 0));
        }
        let mut most = 0;
        for part in stream.chunks(chunk) {
            let mut rest = part;
            while !rest.is_empty() {
                let (taken, event) = tcp.feed(rest, &pool);
                prop_assert!(taken > 0 || event.is_some());
                rest = &rest[taken..];
                most = most.max(tcp.rx.memory());
                tcp.check();
            }
        }
        prop_assert!(most <= MEMORY_MAX, "{} bytes", most);
    }

    /// Bytes without any sense, before and after login.
    #[test]
    fn noise_never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..4000),
        logged_in in any::<bool>(),
    ) {
        let mut tcp = if logged_in { Host::logged_in(PLAIN).tcp } else { Tcp::new() };
        let pool = Pool::new(1 << 20).expect("memory for a pool");
        let mut rest = &noise[..];
        while !rest.is_empty() {
            let (taken, event) = tcp.feed(rest, &pool);
            prop_assert!(taken > 0 || event.is_some());
            rest = &rest[taken..];
        }
        prop_assert!(tcp.rx.memory() <= MEMORY_MAX + 8192);
    }
}
