// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any CDB and any parameter list against a model of which answer is legal. The model is written
//! from the standards and shares nothing with the dispatch table.

use crate::Completion;
use crate::Request;
use crate::testing::Bench;
use crate::testing::cdb;
use crate::testing::run;
use crate::testing::sense_of;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use wire::iscsi::Attribute;
use wire::iscsi::LunField;
use wire::scsi::Sense;
use wire::scsi::sam::ACA_ACTIVE;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::CONDITION_MET;
use wire::scsi::sam::GOOD;
use wire::scsi::sam::RESERVATION_CONFLICT;
use wire::scsi::sense::FieldOf;

/// Commands that name blocks (SBC-3 table 17).
const BLOCKS: &[u8] = &[
    0x08, 0x0a, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x41, 0x42, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f,
    0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa8, 0xaa, 0xae, 0xaf, 0x7f,
];

/// Commands that take a parameter list, or data whose length the CDB fixes.
const LISTS: &[u8] =
    &[0x04, 0x15, 0x1d, 0x3b, 0x42, 0x48, 0x4c, 0x55, 0x5f, 0x83, 0x89, 0x8b, 0xa4];

/// Commands that compare.
const COMPARES: &[u8] = &[0x2e, 0x2f, 0x89, 0x8e, 0x8f, 0xae, 0xaf, 0x7f];

/// Commands that change the medium.
const CHANGES: &[u8] = &[
    0x04, 0x0a, 0x2a, 0x2e, 0x41, 0x42, 0x48, 0x83, 0x89, 0x8a, 0x8b, 0x8e, 0x93, 0x9c, 0xaa, 0xae,
    0x7f,
];

/// Copies and tokens (SPC-4 §5.17, SBC-3 §4.28), of which the codes are many.
const COPIES: &[u8] = &[0x83, 0x84];

/// Commands that a unit attention does not stop (SAM-5 §5.14.1).
const INFORMATIVE: &[u8] = &[0x03, 0x12, 0xa0];

/// What commands before have made of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Fresh,
    Used,
}

/// Whether the standards let the command `opcode` end so.
fn is_legal(opcode: u8, done: &Completion, unit: Unit) -> bool {
    let used = unit == Unit::Used;
    let sense = match done.status {
        GOOD => return done.sense.is_empty(),
        CONDITION_MET => return matches!(opcode, 0x34 | 0x90),
        RESERVATION_CONFLICT => return used || matches!(opcode, 0x5f | 0x16 | 0x17 | 0x56 | 0x57),
        ACA_ACTIVE | BUSY => return used,
        CHECK_CONDITION => Sense::parse(&done.sense),
        _ => None,
    };
    let Some(sense) = sense else { return false };
    if sense.field.is_some_and(|field| !is_sound(field.of, field.byte)) {
        return false;
    }
    let is = |list: &[u8]| list.contains(&opcode);
    match (sense.key as u8, sense.asc, sense.ascq) {
        // Invalid opcode, invalid field in CDB, invalid message, unit not supported.
        (5, 0x20 | 0x24 | 0x49 | 0x25, 0) => true,
        (5, 0x21, 0) => is(BLOCKS),
        (5, 0x1a, 0) | (5, 0x26, _) => is(LISTS),
        // The initiator means to send less than the CDB says.
        (5, 0x0e, 3) => is(LISTS) || is(CHANGES) || is(COMPARES),
        // Nothing was written to the echo buffer.
        (5, 0x2c, 0) => matches!(opcode, 0x3c | 0x48 | 0x83 | 0x84),
        (5, 0x39, 0) => matches!(opcode, 0x1a | 0x5a),
        (5, 0x55, 4) => opcode == 0x5f,
        (0xe, 0x1d, 0) => is(COMPARES),
        (0xa, ..) | (5, 0x23, _) => is(COPIES),
        // Stopped; being formatted or sanitized; a state of the port group.
        (2, 0x04, _) => used,
        (6, ..) => used && !is(INFORMATIVE),
        (7, 0x27, _) => used && is(CHANGES),
        _ => false,
    }
}

/// A field pointer names a byte that can be there.
fn is_sound(of: FieldOf, byte: u16) -> bool {
    match of {
        FieldOf::Cdb => byte < 32,
        FieldOf::ParameterList => byte < 8192,
    }
}

/// A CDB of a known command with some bits at random, or of any.
fn any_cdb() -> impl Strategy<Value = [u8; 32]> {
    let opcode = prop::sample::select(vec![
        0x00_u8, 0x03, 0x04, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e,
        0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x37, 0x3b, 0x3c, 0x41, 0x42, 0x48, 0x4c, 0x4d,
        0x55, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x7f, 0x83, 0x84, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f,
        0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa4, 0xa8, 0xaa, 0xae, 0xaf, 0xb7,
    ]);
    let byte = || prop_oneof![5 => Just(0_u8), 1 => 0_u8..32, 1 => any::<u8>()];
    let sparse = (opcode, prop::array::uniform31(byte())).prop_map(|(opcode, rest)| {
        let mut bytes = [0; 32];
        bytes[0] = opcode;
        bytes[1..].copy_from_slice(&rest);
        bytes
    });
    prop_oneof![1 => any::<[u8; 32]>(), 6 => sparse]
}

fn any_attribute() -> impl Strategy<Value = Attribute> {
    prop::sample::select(vec![
        Attribute::Untagged,
        Attribute::Simple,
        Attribute::Ordered,
        Attribute::HeadOfQueue,
        Attribute::Aca,
    ])
}

fn request(bytes: &[u8], attribute: Attribute, out: usize, expected_in: u32) -> Request {
    Request {
        lun: LunField([0; 8]),
        cdb: cdb(bytes),
        attribute,
        expected_out: u32::try_from(out).expect("short"),
        expected_in,
        unaware: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn every_cdb_ends_as_the_standards_allow(
        bytes in any_cdb(), attribute in any_attribute(), expected_in in 0_u32..70_000,
        out in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let request = request(&bytes, attribute, out.len(), expected_in);
        let done = run(&Bench::new().nexus, request, &out);
        prop_assert!(is_legal(bytes[0], &done, Unit::Fresh), "{bytes:x?} {done:?}");
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// One after the other at one unit, whatever they make of it.
    #[test]
    fn every_sequence_ends_as_the_standards_allow(
        commands in proptest::collection::vec(
            (any_cdb(), any_attribute(), proptest::collection::vec(any::<u8>(), 0..100)), 1..40,
        ),
    ) {
        let bench = Bench::new();
        for (bytes, attribute, out) in commands {
            let done = run(&bench.nexus, request(&bytes, attribute, out.len(), 512), &out);
            prop_assert!(is_legal(bytes[0], &done, Unit::Used), "{bytes:x?} {done:?}");
        }
    }
}

/// A command with a list that is right: CDB, where the length of the list stands, bytes of that
/// field, list.
type Good = (Vec<u8>, usize, usize, Vec<u8>);

fn good_lists() -> Vec<Good> {
    let mode = vec![0, 0, 0, 0, 0x0a, 10, 0, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
    let mode_10 = [&[0; 4][..], &mode].concat();
    let mut unmap = vec![0; 24];
    (unmap[1], unmap[3], unmap[19]) = (22, 16, 8);
    let mut register = vec![0; 24];
    register[15] = 1;
    vec![
        (vec![0x15, 0x10, 0, 0, 0, 0], 4, 1, mode),
        (vec![0x55, 0x10, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2, mode_10),
        (vec![0x1d, 0x10, 0, 0, 0, 0], 3, 2, vec![0; 4]),
        (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2, unmap),
        (vec![0x5f, 0, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2, register),
        (vec![0x48, 0x01, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2, vec![1, 0, 0, 4, 1, 2, 3, 4]),
        (vec![0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, 2, vec![0; 12]),
    ]
}

/// The command with `list`, of which `sent` bytes are sent.
fn with_list((bytes, at, size, _): &Good, list: &[u8], sent: usize) -> Completion {
    let mut bytes = bytes.clone();
    let length = u64::try_from(list.len()).expect("short").to_be_bytes();
    bytes[*at..at + size].copy_from_slice(&length[8 - size..]);
    let list = &list[..sent];
    run(&Bench::new().nexus, request(&bytes, Attribute::Simple, sent, 0), list)
}

fn expect_list_error(done: &Completion, what: &str) {
    let sense = sense_of(done).map(|sense| (sense.key as u8, sense.asc));
    // SBC-4 makes a wrong length of SANITIZE an invalid field of its CDB.
    assert!(matches!(sense, None | Some((5, 0x1a | 0x26 | 0x24))), "{what}: {done:?}");
}

#[test]
fn every_list_may_be_cut_anywhere() {
    for good in good_lists() {
        let (bytes, .., list) = &good;
        assert_eq!(with_list(&good, list, list.len()).status, GOOD, "{bytes:x?}");
        for length in 0..list.len() {
            let what = alloc::format!("{bytes:x?} cut at {length}");
            expect_list_error(&with_list(&good, &list[..length], length), &what);
            // The CDB says that all of it comes, and it does not.
            let short = sense_of(&with_list(&good, list, length)).expect("refused");
            assert_eq!((short.asc, short.ascq), (0x0e, 3), "{what}");
        }
    }
}

#[test]
fn every_list_may_be_longer_than_it_says() {
    for good in good_lists() {
        let (bytes, .., list) = &good;
        for more in 1..40 {
            for fill in [0, 0xff] {
                let longer = [&list[..], &vec![fill; more]].concat();
                let what = alloc::format!("{bytes:x?} with {more} more of {fill:x}");
                expect_list_error(&with_list(&good, &longer, longer.len()), &what);
            }
        }
    }
}

#[test]
fn every_bit_of_every_list_may_be_wrong() {
    for good in good_lists() {
        let (bytes, .., list) = &good;
        for at in 0..list.len() * 8 {
            let mut bad = list.clone();
            bad[at / 8] ^= 0x80 >> (at % 8);
            let done = with_list(&good, &bad, bad.len());
            let what = alloc::format!("{bytes:x?} bit {at}: {done:?}");
            match done.status {
                GOOD => {}
                // A key that is not registered.
                RESERVATION_CONFLICT => assert_eq!(bytes[0], 0x5f, "{what}"),
                _ => {
                    let sense = sense_of(&done).expect("sense data");
                    assert!(matches!(sense.asc, 0x1a | 0x26 | 0x21), "{what}");
                }
            }
        }
    }
}
