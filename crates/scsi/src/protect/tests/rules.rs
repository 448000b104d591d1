// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every code of every protection field against tables that stand here a second time.

use super::*;

/// What of the information is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoiled {
    Nothing,
    Guard,
    Application,
    Reference,
}

const SPOILED: [Spoiled; 4] =
    [Spoiled::Nothing, Spoiled::Guard, Spoiled::Application, Spoiled::Reference];

fn spoil(mut information: Information, what: Spoiled) -> Information {
    match what {
        Spoiled::Nothing => {}
        Spoiled::Guard => information.guard ^= 0x100,
        Spoiled::Application => information.application ^= 0x0010,
        Spoiled::Reference => information.reference ^= 1,
    }
    information
}

/// The tables of RDPROTECT, WRPROTECT and VRPROTECT: guard, application tag, reference tag.
const TABLE: [(u8, [bool; 3]); 6] = [
    (0, [true, true, true]),
    (1, [true, true, true]),
    (2, [false, true, true]),
    (3, [false, false, false]),
    (4, [true, false, false]),
    (5, [true, true, true]),
];

/// How a command must end. Only CDBs of type 2 say which application tag is right, and type 3
/// leaves the reference tag to the application.
fn expected(kind: ProtectionType, checks: [bool; 3], what: Spoiled) -> (u8, u8, u8) {
    match what {
        Spoiled::Guard if checks[0] => GUARD,
        Spoiled::Application if checks[1] && kind == Two => APPLICATION,
        Spoiled::Reference if checks[2] && kind != Three => REFERENCE,
        _ => GOOD,
    }
}

fn asking(name: Name, code: u8, lba: u64) -> Ask {
    Ask { application: 0x1234, mask: 0xffff, ..Ask::new(name, code, lba, 2) }
}

/// Covers-scsi: 88, 8A, 8F, 7F/0009, 7F/000A, 7F/000B.
#[test]
fn every_code_checks_what_its_table_says() {
    for kind in ProtectionType::ALL {
        for (code, checks) in TABLE {
            for what in SPOILED {
                let rig = Rig::new(kind);
                rig.own_tags();
                // The second block is spoiled.
                let mut out = pairs(7, 100, 2);
                let second = block(8);
                out.truncate(BLOCK + 8);
                out.extend(pair(&second, spoil(right(&second, 101), what)));
                let case = (kind, code, what);
                let wanted = expected(kind, checks, what);
                if code != 0 {
                    let sense = rig.sense(asking(Name::Write, code, 100), &out);
                    assert_eq!(codes(sense), wanted, "write {case:?}");
                    if wanted != GOOD {
                        let told = sense.expect("there").information;
                        assert_eq!(told, Some(101), "write {case:?}");
                        assert!(rig.bench.disk.bytes.lock().iter().all(|byte| *byte == 0));
                    }
                }
                assert_eq!(rig.codes(asking(Name::Write, 3, 100), &out), GOOD, "{case:?}");
                for name in [Name::Read, Name::Verify] {
                    let sense = rig.sense(asking(name, code, 100), &[]);
                    assert_eq!(codes(sense), wanted, "{name:?} {case:?}");
                    if wanted != GOOD {
                        assert_eq!(sense.expect("there").information, Some(101), "{case:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn dpicz_stops_checks_where_the_field_is_zero() {
    for kind in ProtectionType::ALL {
        let rig = Rig::new(kind);
        let data = block(1);
        let out = pair(&data, spoil(right(&data, 9), Spoiled::Guard));
        let one = |name, code| Ask::new(name, code, 9, 1);
        assert_eq!(rig.codes(one(Name::Write, 3), &out), GOOD);
        assert_eq!(rig.codes(one(Name::Read, 0), &[]), GUARD);
        rig.control(2, 0x08);
        assert_eq!(rig.codes(one(Name::Read, 0), &[]), GOOD);
        assert_eq!(rig.codes(one(Name::Verify, 0), &[]), GOOD);
        assert_eq!(rig.codes(one(Name::Read, 1), &[]), GUARD);
    }
}

#[test]
fn an_application_tag_of_ones_stops_every_check_of_what_is_read() {
    for (kind, reference, stops) in
        [(One, 7, true), (Two, 7, true), (Three, 7, false), (Three, u32::MAX, true)]
    {
        let rig = Rig::new(kind);
        let information = Information { guard: 1, application: u16::MAX, reference };
        let out = pair(&block(3), information);
        assert_eq!(rig.codes(Ask::new(Name::Write, 3, 50, 1), &out), GOOD);
        let wanted = if stops { GOOD } else { GUARD };
        for code in [0, 1] {
            assert_eq!(rig.codes(Ask::new(Name::Read, code, 50, 1), &[]), wanted, "{kind:?}");
            assert_eq!(rig.codes(Ask::new(Name::Verify, code, 50, 1), &[]), wanted, "{kind:?}");
        }
        // What is sent is checked all the same.
        assert_ne!(rig.codes(Ask::new(Name::Write, 1, 50, 1), &out), GOOD);
    }
}

#[test]
fn only_the_bits_of_the_mask_are_compared_and_only_if_tags_belong_to_hosts() {
    let rig = Rig::new(Two);
    assert_eq!(rig.codes(asking(Name::Write, 1, 20), &pairs(1, 20, 2)), GOOD);
    let other = |mask| Ask { application: 0x1235, mask, ..asking(Name::Read, 1, 20) };
    assert_eq!(rig.codes(other(0xffff), &[]), GOOD, "ATO is not set");
    rig.own_tags();
    assert_eq!(rig.codes(other(0xffff), &[]), APPLICATION);
    assert_eq!(rig.codes(other(0x0001), &[]), APPLICATION);
    assert_eq!(rig.codes(other(0xfffe), &[]), GOOD);
    let elsewhere = Ask { reference: 77, ..asking(Name::Read, 1, 20) };
    assert_eq!(rig.codes(elsewhere, &[]), REFERENCE);
}

#[test]
fn reserved_codes_and_foreign_cdbs_are_refused() {
    for kind in ProtectionType::ALL {
        let rig = Rig::new(kind);
        for name in [Name::Read, Name::Write, Name::Verify, Name::WriteVerify, Name::Same] {
            for code in [6, 7] {
                let sense = rig.sense(Ask::new(name, code, 0, 1), &[0; 520]).expect("refused");
                let at = if kind == Two { 10 } else { 1 };
                assert_eq!(codes(Some(sense)), FIELD, "{name:?}");
                assert_eq!(sense.field.map(|field| (field.byte, field.bit)), Some((at, Some(7))));
            }
            let foreign = Ask::new(name, 1, 0, 1);
            let foreign = if kind == Two { foreign.short() } else { foreign.long() };
            let refused = codes(rig.bench.sense_out(&foreign, &[0; 520]));
            assert_eq!(refused, OPCODE, "{kind:?} {name:?}");
        }
        for cdb in
            [&[0xa8_u8, 0x20][..], &[0x28, 0x20], &[0x2a, 0x20], &[0x89, 0x20], &[0x8b, 0x20]]
        {
            let refused = codes(rig.bench.sense(cdb)) == OPCODE;
            assert_eq!(refused, kind == Two, "{kind:?} {cdb:x?}");
        }
    }
}

#[test]
fn without_type_2_short_cdbs_without_information_do() {
    let rig = Rig::new(Two);
    let short = |name| Ask::new(name, 0, 5, 1).short();
    assert_eq!(rig.bench.sense_out(&short(Name::Write), &block(4)), None);
    assert_eq!(rig.bench.data(&short(Name::Read)), block(4));
    let beside = rig.beside(5, 1)[0];
    assert_eq!((beside.guard, beside.reference), (crc::crc16_t10dif(&block(4)), u32::MAX));
    assert_eq!(rig.codes(Ask::new(Name::Read, 0, 5, 1), &[]), REFERENCE, "a long one knows");
}

/// Covers-scsi: 8F, 7F/000A.
#[test]
fn verify_compares_what_was_sent_as_its_table_says() {
    // Of code, and what is another one on the medium: compared, but for type 3 with ATO.
    for kind in ProtectionType::ALL {
        for code in 1..=5 {
            for what in SPOILED {
                for owned in [false, true] {
                    let rig = Rig::new(kind);
                    if owned {
                        rig.own_tags();
                    }
                    let data = block(1);
                    let stored = pair(&data, spoil(right(&data, 9), what));
                    assert_eq!(rig.codes(Ask::new(Name::Write, 3, 9, 1), &stored), GOOD);
                    let found = rig.codes(
                        Ask::new(Name::Verify, code, 9, 1).flags(2),
                        &pair(&data, right(&data, 9)),
                    );
                    let wanted = match what {
                        Spoiled::Guard if code != 2 => (0xe, 0x10, 1),
                        Spoiled::Application if owned => (0xe, 0x10, 2),
                        Spoiled::Reference if kind != Three || !owned || code == 5 => {
                            (0xe, 0x10, 3)
                        }
                        _ => GOOD,
                    };
                    assert_eq!(found, wanted, "{kind:?} {code} {what:?} {owned}");
                }
            }
        }
    }
}

#[test]
fn verify_checks_what_is_sent_and_points_at_the_byte_that_differs() {
    let rig = Rig::new(One);
    assert_eq!(rig.codes(Ask::new(Name::Write, 1, 9, 2), &pairs(1, 9, 2)), GOOD);
    let mut out = pairs(1, 9, 2);
    let verify = |code| Ask::new(Name::Verify, code, 9, 2).flags(2);
    assert_eq!(rig.codes(verify(1), &out), GOOD);
    out[520 + 7] ^= 1;
    assert_eq!(rig.codes(verify(1), &out), GUARD);
    let sense = rig.sense(verify(3), &out).expect("differs");
    assert_eq!((codes(Some(sense)), sense.information), ((0xe, 0x1d, 0), Some(527)));
    // Without information the data are compared, and the medium is checked.
    let plain: Vec<u8> = [block(1), block(2)].concat();
    assert_eq!(rig.codes(verify(0), &plain), GOOD);
    // One block for all.
    assert_eq!(rig.codes(Ask::new(Name::Same, 1, 30, 3), &pairs(5, 30, 1)), GOOD);
    let one = |code| Ask::new(Name::Verify, code, 30, 3).flags(6);
    assert_eq!(rig.codes(one(1), &pairs(5, 30, 1)), GOOD);
    assert_eq!(rig.codes(one(0), &block(5)), GOOD);
    assert_eq!(rig.codes(one(0), &block(6)), (0xe, 0x1d, 0));
}
