// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed interval markers, against a stream that is marked byte by byte (RFC 3720 appendix A).

use iscsi::datamover::Markers;
use proptest::prelude::*;

use super::*;

/// A stream of which `login` bytes are the login, with markers behind it: byte by byte, by the
/// formula of the standard.
fn marked(login: usize, pdus: &[Vec<u8>], interval: usize) -> Vec<u8> {
    let mut stream = vec![0; login];
    for (place, pdu) in pdus.iter().enumerate() {
        for (at, byte) in pdu.iter().enumerate() {
            if stream.len() % (interval + 8) == interval {
                let next = if at == 0 { 0 } else { pdu.len() - at };
                let pointer = u32::try_from(next).unwrap().to_be_bytes();
                stream.extend_from_slice(&pointer);
                stream.extend_from_slice(&pointer);
            }
            stream.push(*byte);
        }
        assert!(place < pdus.len());
    }
    stream.split_off(login)
}

fn keys(digests: Keys, interval: u32) -> Keys {
    let both = Some(interval);
    Keys { markers: Markers { send: both, receive: both }, ..digests }
}

/// Pings of many lengths.
fn pings(plain: Keys, lengths: &[usize]) -> Vec<Vec<u8>> {
    let ping = |(itt, length): (u32, &usize)| {
        pdu(&Request::NopOut(nop_out(itt)), &pattern(*length), plain)
    };
    (1..).zip(lengths).map(ping).collect()
}

const LENGTHS: [usize; 9] = [0, 1, 4, 400, 0, 0, 511, 3000, 13];
const INTERVALS: [u32; 9] = [4, 8, 12, 48, 52, 56, 512, 2048, 65535 * 4];

#[test]
fn a_marked_stream_means_the_same_in_any_pieces() {
    for plain in [PLAIN, DIGESTS] {
        let mut host = Host::logged_in(plain);
        pings(plain, &LENGTHS).iter().for_each(|ping| host.feed(ping));
        let expected = host.notes;
        for interval in INTERVALS {
            let stream = marked(login().len(), &pings(plain, &LENGTHS), interval as usize);
            for piece in [1, 3, 8, 61, stream.len()] {
                let mut host = Host::logged_in(keys(plain, interval));
                stream.chunks(piece).for_each(|bytes| host.feed(bytes));
                assert_eq!(host.notes, expected, "interval {interval}, pieces of {piece}");
                let all = login().len() + stream.len();
                assert_eq!(host.tcp.counters().bytes_in, all as u64);
            }
        }
    }
}

#[test]
fn what_is_sent_has_markers_in_their_places() {
    for plain in [PLAIN, DIGESTS] {
        for interval in INTERVALS {
            let mut host = Host::logged_in(keys(plain, interval));
            let mut other = Host::logged_in(plain);
            let mut stream = Vec::new();
            let mut payload = Vec::new();
            for (index, length) in (1..).zip([9000, 5, 0, 40_000]) {
                for (host, bytes) in [(&mut host, &mut stream), (&mut other, &mut payload)] {
                    host.submit(put(index, Slice::from(pattern(length)), 0, Some(index)));
                    bytes.extend(host.drain());
                }
            }
            let digests = super::super::marker::Digests {
                header: plain.header_digest,
                data: plain.data_digest,
            };
            let mut pdus = Vec::new();
            let mut rest = payload.as_slice();
            while !rest.is_empty() {
                let (pdu, tail) = rest.split_at(super::super::marker::pdu_len(rest, digests));
                pdus.push(pdu.to_vec());
                rest = tail;
            }
            assert_eq!(stream, marked(0, &pdus, interval as usize), "interval {interval}");
            assert_eq!(host.tcp.counters().bytes_out, stream.len() as u64);
            assert_eq!(host.tcp.backlog(), 0);
        }
    }
}

/// The answer to the login and what follows at once: markers begin behind the login, wherever the
/// list ends.
#[test]
fn the_login_response_has_no_markers() {
    let mut host = Host::new(PLAIN);
    host.submit(put(1, Slice::from(pattern(100)), 0, Some(1)));
    host.submit(Op::NoticeKeys(keys(PLAIN, 16)));
    host.submit(put(2, Slice::from(pattern(100)), 0, Some(2)));
    let bytes = host.drain();
    let (first, second) = bytes.split_at(148);
    assert_eq!(responses(first, PLAIN).len(), 1);
    let mut other = Host::new(PLAIN);
    other.submit(put(2, Slice::from(pattern(100)), 0, Some(2)));
    assert_eq!(second, marked(148, &[other.drain()], 16));
    // Keys that come again change nothing.
    host.submit(Op::NoticeKeys(keys(PLAIN, 16)));
    host.submit(put(2, Slice::from(pattern(100)), 0, Some(2)));
    let third = host.drain();
    let mut stream = bytes.clone();
    stream.extend_from_slice(&third);
    let is_payload = |(at, byte): (usize, &u8)| (at < 148 || at % 24 < 16).then_some(*byte);
    let payload: Vec<u8> = stream.iter().enumerate().filter_map(is_payload).collect();
    assert_eq!(responses(&payload, PLAIN).len(), 3);
}

#[test]
fn a_wrong_marker_ends_the_connection() {
    let violation = Note::Violation(StreamViolation::Marker);
    let good = marked(login().len(), &pings(PLAIN, &LENGTHS), 64);
    let first = 64 - login().len() % 72;
    let first = if login().len() % 72 > 64 { 72 + first } else { first };
    for bit in 0..64 {
        let mut stream = good.clone();
        stream[first + bit / 8] ^= 1 << (bit % 8);
        let mut host = Host::logged_in(keys(PLAIN, 64));
        host.feed(&stream);
        assert_eq!(host.notes.last(), Some(&violation), "bit {bit}");
    }
}

proptest! {
    /// Whatever comes, pieces do not matter and nothing panics.
    #[test]
    fn any_bytes_in_any_pieces(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        piece in 1_usize..100,
        words in 1_u32..40,
    ) {
        let notes = |piece| {
            let mut host = Host::logged_in(keys(DIGESTS, words * 4));
            bytes.chunks(piece).for_each(|part| host.feed(part));
            host.notes
        };
        prop_assert_eq!(notes(piece), notes(bytes.len().max(1)));
    }
}
