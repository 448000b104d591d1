// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FPDUs out and in.

use super::super::*;
use crate::violation::Violation;
use alloc::vec;
use alloc::vec::Vec;
use buf::SgList;
use buf::Slice;
use proptest::prelude::*;
use wire::iwarp::Cause;
use wire::iwarp::MULPDU_MAX;
use wire::iwarp::Stag;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;

const PLAIN: Framing =
    Framing { checks: Checks::Crc, sent: Markers::None, received: Markers::None };
const MARKED: Framing =
    Framing { checks: Checks::Crc, sent: Markers::Sent, received: Markers::Sent };

/// The stream of these segments.
fn stream(framing: Framing, segments: &[Vec<u8>]) -> Vec<u8> {
    let (mut sender, mut out) = (Sender::new(framing), SgList::new());
    for segment in segments {
        let (header, payload) = segment.split_at(segment.len().min(14));
        sender.frame(header, &Slice::from(payload.to_vec()), &mut out);
    }
    out.to_vec()
}

/// The segments in a stream that comes in pieces of these lengths.
fn segments(framing: Framing, stream: &[u8], cuts: &[usize]) -> Result<Vec<Vec<u8>>, Violation> {
    let mut receiver = Receiver::new(framing);
    let (mut found, mut rest, mut cuts) = (Vec::new(), stream, cuts.iter().cycle());
    while !rest.is_empty() {
        let piece = cuts.next().copied().unwrap_or(usize::MAX).clamp(1, rest.len());
        let (mut here, after) = rest.split_at(piece);
        while !here.is_empty() {
            let (taken, segment) = receiver.feed(here)?;
            assert!(taken > 0, "it goes on");
            found.extend(segment.map(<[u8]>::to_vec));
            here = &here[taken..];
        }
        rest = after;
    }
    Ok(found)
}

fn of_length(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Covers: MPA-01/S, MPA-02/S, MPA-03/S.
#[test]
fn fpdus_have_a_length_padding_and_a_crc() {
    let header =
        Tagged { last: true, control: 0x40, stag: Stag(0x1122_3344), offset: TaggedOffset(0x1000) };
    let segment = [&header.emit()[..], b"hello"].concat();
    let wanted = [
        0x00, 0x13, 0xc1, 0x40, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0, 0, 0x10, 0, 0x68, 0x65,
        0x6c, 0x6c, 0x6f, 0, 0, 0, 0xca, 0xdc, 0x4b, 0x88,
    ];
    assert_eq!(stream(PLAIN, core::slice::from_ref(&segment)), wanted);
    assert_eq!(segments(PLAIN, &wanted, &[usize::MAX]), Ok(vec![segment]));
    let ping =
        [&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..], b"ping"].concat();
    assert_eq!(stream(PLAIN, &[ping])[24..], [0xa5, 0x48, 0x7f, 0xa7]);
}

/// Covers: MPA-06/S.
#[test]
fn without_checks_the_crc_is_zero_and_ignored() {
    let framing = Framing { checks: Checks::None, ..PLAIN };
    let mut bytes = stream(framing, &[of_length(22)]);
    assert_eq!(bytes[24..], [0; 4]);
    bytes[24..].fill(0xa5);
    for cut in [1, usize::MAX] {
        assert_eq!(segments(framing, &bytes, &[cut]), Ok(vec![of_length(22)]));
    }
}

#[test]
fn a_wrong_byte_ends_the_stream() {
    let bytes = stream(PLAIN, &[of_length(40), of_length(40)]);
    for at in 2..bytes.len() / 2 {
        for cut in [1, 7, usize::MAX] {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            let mut receiver = Receiver::new(PLAIN);
            let mut rest = &bad[..];
            let violation = loop {
                match receiver.feed(&rest[..rest.len().min(cut)]) {
                    Ok((taken, None)) => rest = &rest[taken..],
                    Ok((_, Some(segment))) => panic!("byte {at}: {segment:?}"),
                    Err(violation) => break violation,
                }
            };
            assert_eq!(violation, Violation::Crc);
            assert_eq!(receiver.feed(&bytes), Err(Violation::Crc), "and nothing after it");
        }
    }
    assert_eq!(Violation::Crc.cause(), Cause { layer: 2, kind: 0, code: 2 });
}

/// Covers: MPA-08/S, MPA-10/S, MPA-11/S.
#[test]
fn markers_stand_where_they_must_and_point_back() {
    let pointers = |lengths: &[usize]| {
        let all: Vec<_> = lengths.iter().map(|length| of_length(*length)).collect();
        let bytes = stream(MARKED, &all);
        assert_eq!(segments(MARKED, &bytes, &[usize::MAX]), Ok(all));
        let markers = bytes.chunks(512).map(|part| {
            assert_eq!(part[..2], [0, 0]);
            u16::from_be_bytes([part[2], part[3]])
        });
        (bytes.len(), markers.collect::<Vec<_>>())
    };
    assert_eq!(pointers(&[600, 100]), (724, vec![0, 508]));
    assert_eq!(pointers(&[498, 40]), (560, vec![0, 4]));
    assert_eq!(pointers(&[502, 40]), (564, vec![0, 0]));
    let (_, longest) = pointers(&[MULPDU_MAX]);
    assert_eq!(longest.last(), Some(&65_020));
}

#[test]
fn a_marker_that_points_elsewhere_ends_the_stream() {
    let mut bytes = stream(MARKED, &[of_length(600)]);
    bytes[515] ^= 4;
    let wrong = Violation::Marker { wanted: 508, found: 508 ^ 4 };
    for cut in [1, 5, usize::MAX] {
        assert_eq!(segments(MARKED, &bytes, &[cut]), Err(wrong));
    }
    assert_eq!(wrong.cause(), Cause { layer: 2, kind: 0, code: 3 });
}

/// Covers: MPA-03/S.
#[test]
fn the_crc_covers_markers() {
    let mut bytes = stream(MARKED, &[of_length(600)]);
    assert_eq!(segments(MARKED, &bytes, &[usize::MAX]), Ok(vec![of_length(600)]));
    bytes[513] ^= 4; // reserved: nobody reads it
    assert_eq!(segments(MARKED, &bytes, &[usize::MAX]), Err(Violation::Crc));
}

/// Covers: MPA-30/S.
#[test]
fn a_length_without_room_for_a_header_ends_the_stream() {
    for length in [0, 1, 13] {
        for framing in [PLAIN, MARKED] {
            let marker = if framing == MARKED { &[0; 4][..] } else { &[] };
            let bytes = [marker, &[0, length], &[0; 64][..]].concat();
            for cut in [1, usize::MAX] {
                let wrong = Violation::UlpduLength(length.into());
                assert_eq!(segments(framing, &bytes, &[cut]), Err(wrong));
                assert_eq!(wrong.cause(), Cause::MPA_MARKER);
            }
        }
    }
}

#[test]
fn lengths_beyond_what_markers_reach_end_the_stream() {
    let [high, low] = u16::try_from(MULPDU_MAX + 1).unwrap().to_be_bytes();
    let bytes = [0, 0, 0, 0, high, low, 0, 0];
    assert!(matches!(segments(MARKED, &bytes, &[8]), Err(Violation::UlpduLength(_))));
    assert_eq!(segments(PLAIN, &bytes[4..], &[8]), Ok(vec![]), "without them they are good");
}

#[test]
fn a_stream_may_end_between_fpdus() {
    let bytes = stream(PLAIN, &[of_length(30)]);
    let mut receiver = Receiver::new(PLAIN);
    assert!(receiver.is_between());
    for (at, byte) in bytes.iter().enumerate() {
        let (_, segment) = receiver.feed(core::slice::from_ref(byte)).unwrap();
        let is_whole = at + 1 == bytes.len();
        assert_eq!(segment.is_some(), is_whole);
        assert_eq!(receiver.is_between(), is_whole, "byte {at}");
    }
}

#[test]
fn memory_grows_with_what_has_come() {
    let mut receiver = Receiver::new(PLAIN);
    assert_eq!(receiver.feed(&[0xff, 0xff, 0, 0]), Ok((4, None)));
    assert!(receiver.bytes_held() < 64);
}

proptest! {
    /// Covers: MPA-15/S.
    #[test]
    fn any_split_means_the_same(
        lengths in proptest::collection::vec(14..2000_usize, 1..8),
        cuts in proptest::collection::vec(1..1500_usize, 1..8),
        has_markers: bool,
        has_crc: bool,
    ) {
        let framing = Framing {
            checks: if has_crc { Checks::Crc } else { Checks::None },
            ..if has_markers { MARKED } else { PLAIN }
        };
        let all: Vec<_> = lengths.into_iter().map(of_length).collect();
        let bytes = stream(framing, &all);
        prop_assert_eq!(segments(framing, &bytes, &cuts), Ok(all.clone()));
        prop_assert_eq!(segments(framing, &bytes, &[1]), Ok(all));
    }

    #[test]
    fn any_bytes_are_judged(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        cuts in proptest::collection::vec(1..64_usize, 1..8),
        has_markers: bool,
    ) {
        let framing = if has_markers { MARKED } else { PLAIN };
        let framing = Framing { checks: Checks::None, ..framing };
        prop_assert_eq!(
            segments(framing, &bytes, &cuts),
            segments(framing, &bytes, &[usize::MAX])
        );
    }
}
