// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sender that uses what DataPDUInOrder=No and DataSequenceInOrder=No allow (RFC 7143 §13.18,
//! §13.19): ours sends in order whatever is agreed on.
//!
//! A list of PDUs is changed before any of it leaves. DataSNs ascend as before, and F stays where
//! it was: only offsets change places, with the data that belongs to them. At ErrorRecoveryLevel 0
//! only, since elsewhere the sender is asked again by DataSN for what it believes it has sent.

use std::ops::Range;

use wire::iscsi::BHS_LEN;

use crate::rng::Rng;
use crate::tap::Framing;

const OPCODE: u8 = 0x3f;
const DATA_OUT: u8 = 0x05;
const DATA_IN: u8 = 0x25;
const FINAL: u8 = 0x80;
/// ITT and TTT, which name a sequence of Data-Outs together.
const TAGS: Range<usize> = 16..24;
const DATA_SN: Range<usize> = 36..40;
const OFFSET: Range<usize> = 40..44;
const DIGEST_LEN: usize = 4;

/// Which order is agreed to be free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freedom {
    /// Of PDUs within a sequence.
    pub(crate) pdus: bool,
    /// Of sequences.
    pub(crate) sequences: bool,
}

/// What was brought out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shuffled {
    pub(crate) pdus: bool,
    pub(crate) sequences: bool,
}

/// A data PDU in the bytes of a list.
#[derive(Debug)]
struct Found {
    at: usize,
    /// Data with padding and digest.
    data: Range<usize>,
    length: u32,
    tags: [u8; 8],
    inward: bool,
    first: bool,
    last: bool,
}

/// Changes the order of the data in `bytes`, which are whole PDUs.
pub(crate) fn shuffle(
    bytes: &mut [u8],
    framing: Framing,
    freedom: Freedom,
    rng: &mut Rng,
) -> Shuffled {
    let mut shuffled = Shuffled::default();
    let sequences = sequences(find(bytes, framing));
    if freedom.sequences {
        for (at, sequence) in sequences.iter().enumerate() {
            let alike = |other: &&Vec<Found>| is_whole(other) && has_shape(other, sequence);
            let others: Vec<&Vec<Found>> = sequences[at + 1..].iter().filter(alike).collect();
            if !is_whole(sequence) || others.is_empty() || !rng.chance(500) {
                continue;
            }
            let other = others[rng.index(others.len())];
            for (one, other) in sequence.iter().zip(other) {
                exchange(bytes, one, other);
            }
            shuffled.sequences = true;
        }
    }
    if freedom.pdus {
        for sequence in &sequences {
            for (at, one) in sequence.iter().enumerate() {
                let alike = |other: &&Found| other.length == one.length;
                let others: Vec<&Found> = sequence[at + 1..].iter().filter(alike).collect();
                if others.is_empty() || !rng.chance(500) {
                    continue;
                }
                exchange(bytes, one, others[rng.index(others.len())]);
                shuffled.pdus = true;
            }
        }
    }
    if framing.header_digest && shuffled != Shuffled::default() {
        for found in sequences.iter().flatten() {
            let digest = crc::crc32c(&bytes[found.at..found.at + BHS_LEN]).to_le_bytes();
            bytes[found.at + BHS_LEN..found.at + BHS_LEN + DIGEST_LEN].copy_from_slice(&digest);
        }
    }
    shuffled
}

/// All data PDUs that carry something.
fn find(bytes: &[u8], framing: Framing) -> Vec<Found> {
    let digest = |on: bool| if on { DIGEST_LEN } else { 0 };
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + BHS_LEN) {
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let begin = at + BHS_LEN + usize::from(header[4]) * 4 + digest(framing.header_digest);
        let padded = (length as usize).next_multiple_of(4);
        let end = begin + if padded > 0 { padded + digest(framing.data_digest) } else { 0 };
        let opcode = header[0] & OPCODE;
        if end > bytes.len() {
            break;
        }
        if matches!(opcode, DATA_IN | DATA_OUT) && header[4] == 0 && length > 0 {
            all.push(Found {
                at,
                data: begin..end,
                length,
                tags: std::array::from_fn(|tag| header[TAGS.start + tag]),
                inward: opcode == DATA_IN,
                first: header[DATA_SN].iter().all(|byte| *byte == 0),
                last: header[1] & FINAL != 0,
            });
        }
        at = end;
    }
    all
}

/// The PDUs by their sequences, those that are cut by an end of the list among them.
fn sequences(all: Vec<Found>) -> Vec<Vec<Found>> {
    let mut sequences: Vec<Vec<Found>> = Vec::new();
    for mut found in all {
        let begins = found.first;
        let mut before = sequences.iter_mut().rev();
        let before = before.find(|sequence| sequence.iter().any(|pdu| pdu.tags == found.tags));
        match before {
            Some(open) if !begins && open.last().is_some_and(|pdu| !pdu.last) => open.push(found),
            // A sequence was at its end: the next one begins.
            Some(_) => {
                found.first = true;
                sequences.push(vec![found]);
            }
            None => sequences.push(vec![found]),
        }
    }
    sequences
}

/// Whether it is a sequence of Data-Ins from its first PDU to its last one. The order of Data-Outs
/// follows from the R2Ts.
fn is_whole(sequence: &[Found]) -> bool {
    sequence.first().is_some_and(|pdu| pdu.first && pdu.inward)
        && sequence.last().is_some_and(|pdu| pdu.last)
}

fn has_shape(one: &[Found], other: &[Found]) -> bool {
    let tags = |sequence: &[Found]| sequence.first().map(|pdu| pdu.tags);
    let lengths = one.iter().zip(other).all(|(one, other)| one.length == other.length);
    tags(one) == tags(other) && one.len() == other.len() && lengths
}

/// Two PDUs of one length give each other their offsets and data.
fn exchange(bytes: &mut [u8], one: &Found, other: &Found) {
    let pairs = [(one.at + OFFSET.start, other.at + OFFSET.start, OFFSET.len())];
    let data = (one.data.start, other.data.start, one.data.len());
    for (from, to, length) in pairs.into_iter().chain([data]) {
        let (low, high) = (from.min(to), from.max(to));
        let (left, right) = bytes.split_at_mut(high);
        left[low..low + length].swap_with_slice(&mut right[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Data-In of tag 7, with its digests.
    fn pdu(data_sn: u32, offset: u32, data: &[u8], last: bool) -> Vec<u8> {
        let mut bytes = vec![0; BHS_LEN];
        (bytes[0], bytes[1], bytes[19]) = (DATA_IN, if last { FINAL } else { 0 }, 7);
        bytes[7] = u8::try_from(data.len()).expect("short");
        bytes[DATA_SN].copy_from_slice(&data_sn.to_be_bytes());
        bytes[OFFSET].copy_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&crc::crc32c(&bytes).to_le_bytes());
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(&crc::crc32c(data).to_le_bytes());
        bytes
    }

    const BOTH: Framing = Framing { header_digest: true, data_digest: true };

    /// Offset, data and whether it is the last one, of each PDU, in the order of their DataSNs.
    fn parts(bytes: &[u8]) -> Vec<(u32, Vec<u8>, bool)> {
        let all = find(bytes, BOTH).into_iter().enumerate();
        all.map(|(number, found)| {
            let header = &bytes[found.at..found.at + BHS_LEN];
            let digest = &bytes[found.at + BHS_LEN..found.at + BHS_LEN + DIGEST_LEN];
            assert_eq!(digest, crc::crc32c(header).to_le_bytes());
            assert_eq!(usize::from(header[DATA_SN][3]), number);
            let (data, digest) = bytes[found.data].split_at(found.length as usize);
            assert_eq!(digest, crc::crc32c(data).to_le_bytes());
            (u32::from(header[OFFSET][3]), data.to_vec(), found.last)
        })
        .collect()
    }

    /// Two sequences of two, and a short one; the first of `count` shuffles that changes anything.
    fn shuffled(freedom: Freedom, seed: u64) -> Vec<(u32, Vec<u8>, bool)> {
        let mut bytes = [
            pdu(0, 0, b"aaaa", false),
            pdu(1, 4, b"bbbb", true),
            pdu(2, 8, b"cccc", false),
            pdu(3, 12, b"dddd", true),
            pdu(4, 16, b"eeeeeeee", true),
        ]
        .concat();
        shuffle(&mut bytes, BOTH, freedom, &mut Rng::new(seed));
        parts(&bytes)
    }

    #[test]
    fn data_moves_with_its_offset_and_numbers_stay() {
        let names: [(u32, &[u8]); 5] =
            [(0, b"aaaa"), (4, b"bbbb"), (8, b"cccc"), (12, b"dddd"), (16, b"eeeeeeee")];
        let mut orders = [false; 3];
        for seed in 0..100 {
            let pdus = shuffled(Freedom { pdus: true, sequences: false }, seed);
            let sequences = shuffled(Freedom { pdus: false, sequences: true }, seed);
            for all in [&pdus, &sequences] {
                let mut sorted: Vec<_> = all.iter().map(|(at, data, _)| (*at, &data[..])).collect();
                sorted.sort_unstable();
                assert_eq!(sorted, names);
                let ends: Vec<bool> = all.iter().map(|(_, _, last)| *last).collect();
                assert_eq!(ends, [false, true, false, true, true]);
            }
            let offsets = |all: &[(u32, Vec<u8>, bool)]| all.iter().map(|part| part.0).collect();
            let (pdus, sequences): (Vec<u32>, Vec<u32>) = (offsets(&pdus), offsets(&sequences));
            assert!(pdus[..2].iter().all(|at| *at < 8), "PDUs stay in their sequence");
            orders[0] |= pdus[..2] == [4, 0];
            orders[1] |= sequences == [8, 12, 0, 4, 16];
            orders[2] |= sequences == [0, 4, 8, 12, 16];
            let none = shuffled(Freedom::default(), seed);
            assert!(none.iter().map(|part| part.0).eq([0, 4, 8, 12, 16]));
        }
        assert_eq!(orders, [true; 3]);
    }
}
