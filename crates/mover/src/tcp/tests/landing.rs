// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that the port puts into its buffer without the mover.

use super::*;

const LENGTH: u32 = 150_000;
const FIRST: usize = 40_001;

/// A write with much immediate and much solicited data, and a PDU after it.
fn stream(keys: Keys, data: &[u8]) -> Vec<u8> {
    let command = pdu(&Request::Command(write(2, LENGTH)), &data[..FIRST], keys);
    let offset = u32::try_from(FIRST).expect("small");
    let rest = DataOut { final_: true, ..data_out(2, 0, 0, offset) };
    let rest = pdu(&Request::DataOut(rest), &data[FIRST..], keys);
    [command, rest, pdu(&Request::NopOut(nop_out(0x22)), b"hello", keys)].concat()
}

/// As a port does it: `short` bytes by `feed`, then what the mover wants in place, at most `long`
/// bytes at once. Returns how many went that way.
fn land(host: &mut Host, bytes: &[u8], short: usize, long: usize) -> usize {
    let (mut rest, mut landed) = (bytes, 0);
    while !rest.is_empty() {
        if let Some((mut buf, at, end)) = host.tcp.landing() {
            let (part, after) = rest.split_at(rest.len().min(end - at).min(long));
            buf[at..at + part.len()].copy_from_slice(part);
            landed += part.len();
            rest = after;
            if let Some(event) = host.tcp.landed(buf, part.len(), &host.pool) {
                host.handle(event);
            }
            host.tcp.check();
        } else {
            let (part, after) = rest.split_at(rest.len().min(short));
            host.feed(part);
            rest = after;
        }
    }
    landed
}

fn wide(keys: Keys) -> Keys {
    Keys { max_recv_data_segment_length: 1 << 20, first_burst_length: 1 << 20, ..keys }
}

#[test]
fn data_in_place_makes_the_same_events() {
    for keys in [wide(PLAIN), wide(DIGESTS)] {
        let stream = stream(keys, &pattern(LENGTH as usize));
        let mut plain = Host::logged_in(keys);
        plain.feed(&stream);
        assert!(plain.notes.contains(&Note::Written(pattern(LENGTH as usize))));
        for (short, long) in [(48, 1 << 20), (500, 33_000), (4096, 1 << 20), (1 << 20, 7), (99, 0)]
        {
            let long = if long == 0 { 40_960 } else { long };
            let mut host = Host::logged_in(keys);
            let landed = land(&mut host, &stream, short, long);
            assert_eq!(landed > 0, short < 1 << 20, "{short} {long}");
            assert!(host.notes == plain.notes, "{short} {long}");
            let counters = |host: &Host| {
                let counters = host.tcp.counters();
                (counters.bytes_in, counters.bytes_crc, counters.bytes_copied)
            };
            let (ours, theirs) = (counters(&host), counters(&plain));
            assert_eq!((ours.0, ours.1), (theirs.0, theirs.1));
            assert_eq!(ours.2 + landed as u64, theirs.2, "what lands is not copied");
        }
    }
}

#[test]
fn damage_in_place_is_found() {
    let keys = wide(DIGESTS);
    let mut stream = stream(keys, &pattern(LENGTH as usize));
    let at = stream.len() - 1000;
    stream[at] ^= 1;
    let mut plain = Host::logged_in(keys);
    plain.feed(&stream);
    let mut host = Host::logged_in(keys);
    assert!(land(&mut host, &stream, 48, 1 << 20) > 100_000);
    assert_eq!(host.notes, plain.notes);
    assert!(host.notes.iter().any(|note| matches!(note, Note::DigestError(_))));
}

#[test]
fn a_task_that_ends_meanwhile_does_not_get_its_buffer_back() {
    let keys = wide(PLAIN);
    let stream = stream(keys, &pattern(LENGTH as usize));
    let mut host = Host::logged_in(keys);
    let header = FIRST + 3 + 2 * BHS_LEN;
    host.feed(&stream[..header]);
    let (buf, at, end) = host.tcp.landing().expect("a burst is under way");
    assert_eq!((at, end), (FIRST, LENGTH as usize));
    host.submit(Op::Abandon { task: task(2) });
    host.submit(Op::Release { task: task(2) });
    assert!(host.tcp.landed(buf, end - at, &host.pool).is_none());
    host.tcp.check();
    host.feed(&stream[header + end - at..]);
    assert_eq!((host.tcp.task_count(), host.tcp.open_bursts()), (0, 0));
    assert!(matches!(host.notes.last(), Some(Note::Control(Request::NopOut(_), _))));
}

/// What is longer than what was asked for does not land: it would go on behind that.
///
/// Covers: DOU-12a.
#[test]
fn nothing_lands_beside_a_burst() {
    for keys in [wide(PLAIN), wide(DIGESTS)] {
        let mut host = Host::logged_in(keys);
        let mut buf = host.pool.take(150_000).expect("a buffer");
        buf.fill(0xee);
        host.tcp.submit(Op::Attach { task: task(1), buf });
        let (lun, offset, length) = (LUN, 0, 50_000);
        host.submit(Op::GetData {
            task: task(1),
            itt: Itt(1),
            lun,
            offset,
            length,
            numbers: numbers(9),
        });
        let [(Response::R2t(asked), _)] = responses(&host.drain(), keys)[..] else {
            panic!("an R2T")
        };
        let out = Request::DataOut(data_out(1, asked.ttt.0, 0, 0));
        let bytes = pdu(&out, &pattern(100_000), keys);
        assert_eq!(land(&mut host, &bytes, 48, 1 << 20), 0);
        let buf = host.tcp.submit(Op::Detach { task: task(1) }).expect("the buffer");
        assert_eq!(buf[..50_000], pattern(50_000));
        assert!(buf[50_000..].iter().all(|byte| *byte == 0xee));
    }
}

/// The device server asks for data that is under way already, and gives a buffer for it.
#[test]
fn a_buffer_that_comes_meanwhile_gets_all_that_is_there() {
    for keys in [wide(PLAIN), wide(DIGESTS)] {
        let data = pattern(LENGTH as usize);
        let stream = stream(keys, &data);
        let mut plain = Host::logged_in(keys);
        plain.feed(&stream);
        let mut host = Host::logged_in(keys);
        let (mut at, mut turns) = (0, 0);
        while at < stream.len() {
            let Some((mut buf, start, end)) = host.tcp.landing() else {
                let part = &stream[at..stream.len().min(at + 48)];
                host.feed(part);
                at += part.len();
                continue;
            };
            let length = (end - start).min(50_000);
            buf[start..start + length].copy_from_slice(&stream[at..at + length]);
            at += length;
            // The immediate data has no task yet.
            if host.tcp.task_count() > 0 {
                let other = host.pool.take(LENGTH as usize).expect("room");
                host.tcp.submit(Op::Attach { task: task(2), buf: other });
                turns += 1;
            }
            if let Some(event) = host.tcp.landed(buf, length, &host.pool) {
                host.handle(event);
            }
            host.tcp.check();
        }
        assert!(turns > 1 && host.notes == plain.notes);
    }
}
