// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

const DIGESTS: Framing = Framing { header_digest: true, data_digest: true };

/// A PDU on the wire.
fn pdu(opcode: u8, data: &[u8], framing: Framing) -> Vec<u8> {
    let mut bytes = vec![0; BHS_LEN];
    bytes[0] = opcode;
    bytes[5..8].copy_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes()[1..]);
    let is_login = matches!(opcode, OPCODE_LOGIN_REQUEST | OPCODE_LOGIN_RESPONSE);
    if framing.header_digest && !is_login {
        bytes.extend([0xaa; DIGEST_LEN]);
    }
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    if framing.data_digest && !data.is_empty() && !is_login {
        bytes.extend([0xbb; DIGEST_LEN]);
    }
    bytes
}

/// What is told of these pieces: opcode, kept, length.
fn told(cutter: &mut Cutter, pieces: &[Piece<'_>], data_max: usize) -> Vec<(u8, usize, usize)> {
    let mut told = Vec::new();
    for piece in pieces {
        cutter.take(*piece, DIGESTS, data_max, |pdu| {
            told.push((pdu.kept[0], pdu.kept.len(), pdu.length));
        });
    }
    told
}

fn stream() -> Vec<u8> {
    [
        pdu(OPCODE_LOGIN_REQUEST, b"InitiatorName=a\0x", DIGESTS),
        pdu(OPCODE_NOP_OUT, b"", DIGESTS),
        pdu(0x05, &[7; 1001], DIGESTS),
        pdu(OPCODE_SCSI_RESPONSE, &[1; 20], DIGESTS),
    ]
    .concat()
}

/// However it is split.
#[test]
fn a_stream_is_cut_at_its_pdus() {
    let stream = stream();
    let expected = [(3, 68, 68), (0, 52, 52), (5, 62, 1060), (0x21, 76, 76)];
    for size in [1, 3, 47, 48, 49, 100, stream.len()] {
        let pieces: Vec<_> = stream.chunks(size).map(Piece::Seen).collect();
        assert_eq!(told(&mut Cutter::new(0), &pieces, 10), expected, "parts of {size}");
    }
    let whole = told(&mut Cutter::new(0), &[Piece::Seen(&stream)], 1001);
    assert_eq!(whole[2], (5, 1060, 1060), "with its digest");
}

#[test]
fn what_is_under_way_is_passed_over() {
    let stream = stream();
    let rest = Piece::Seen(&stream[30..]);
    assert_eq!(told(&mut Cutter::new(68 - 30), &[rest], 10).len(), 3);
    let rest = [Piece::Unseen(20), Piece::Seen(&stream[50..])];
    assert_eq!(told(&mut Cutter::new(68 - 30), &rest, 10).len(), 3);
}

#[test]
fn nothing_is_kept_behind_a_hole() {
    let stream = stream();
    let (before, behind) = (68 + 52 + 52 + 100, 68 + 52 + 52 + 900);
    let pieces =
        [Piece::Seen(&stream[..before]), Piece::Unseen(800), Piece::Seen(&stream[behind..])];
    let told = told(&mut Cutter::new(0), &pieces, 2000);
    assert_eq!(told[2..], [(5, 52 + 100, 1060), (0x21, 76, 76)]);
}

#[test]
fn what_is_longer_than_a_segment_is_cut_within_it() {
    for opcode in [0x05, OPCODE_REJECT] {
        let long = pdu(opcode, &[1; SEGMENT_LEN_MAX], DIGESTS);
        let told = told(&mut Cutter::new(0), &[Piece::Seen(&long)], usize::MAX);
        assert_eq!(told, [(opcode, SEGMENT_LEN_MAX - 1, long.len())]);
    }
}
