// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is heard of RDMA streams.

use super::*;

/// A request or reply of MPA with private data.
fn start(flags: u8, private: &[u8]) -> Vec<u8> {
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([flags, 1, 0, u8::try_from(private.len()).expect("short")]);
    frame.extend(private);
    frame
}

/// An FPDU with `length` bytes in it.
fn fpdu(length: u16) -> Vec<u8> {
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize((2 + usize::from(length)).next_multiple_of(4) + 4, 0xa5);
    frame
}

/// Which bytes of two FPDUs are covered, when each side sends `pieces` bytes at a time.
fn covered(flags: [u8; 2], pieces: usize) -> Vec<usize> {
    let (mut tap, mut sessions) = (Tap::default(), Sessions::default());
    let mut place = Place { target: 0, sessions: &mut sessions };
    for (side, flags) in flags.into_iter().enumerate() {
        for piece in start(flags, &[0; 4]).chunks(pieces) {
            assert!(tap.hear(side, piece, &mut place).covered.is_empty());
        }
    }
    let mut found = Vec::new();
    let mut at = 0;
    for piece in [fpdu(5), fpdu(0)].concat().chunks(pieces) {
        let heard = tap.hear(0, piece, &mut place);
        found.extend(heard.covered.into_iter().flatten().map(|byte| at + byte));
        at += piece.len();
    }
    assert_eq!(tap.has_digests(), !found.is_empty());
    assert!(!tap.is_bare() && !tap.is_plain());
    found
}

#[test]
fn a_crc_covers_all_of_an_fpdu_that_it_finds_at_once() {
    let all: Vec<usize> = (2..12).chain(14..20).collect();
    for pieces in [1, 3, 7, 100] {
        for flags in [[CRC, 0], [0, CRC]] {
            assert_eq!(covered(flags, pieces), all, "{pieces} bytes at a time");
        }
        for flags in [[0, 0], [CRC, MARKERS]] {
            assert_eq!(covered(flags, pieces), Vec::<usize>::new());
        }
    }
}

const CRC: u8 = 0x40;
const MARKERS: u8 = 0x80;
