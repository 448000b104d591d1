// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FORMAT UNIT, SANITIZE, and what hosts are told of protection.

use super::*;
use crate::LogicalUnit;
use crate::Nexus;
use crate::ProtectionFormat;
use crate::UnitError;
use crate::testing::geometry;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use crate::testing::sense_of;
use store::Error;
use store::beside::Beside;
use wire::scsi::Lun;
use wire::scsi::capacity::Capacity;

fn capacity_bits(bench: &Bench) -> Option<ProtectionType> {
    let data = bench.data(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]);
    Capacity::parse_16(&data).expect("whole").protection
}

fn format(bench: &Bench, information: u8, usage: u8) -> (u8, u8, u8) {
    codes(bench.sense_out(&[4, information << 6 | 0x10, 0, 0, 0, 0], &[usage, 0, 0, 0]))
}

fn header(side: &Disk) -> Option<ProtectionFormat> {
    ProtectionFormat::parse(&side.bytes.lock()[..512]).expect("ours")
}

/// Covers-scsi: 04, 9E/10.
#[test]
fn format_unit_gives_the_unit_every_type() {
    let (bench, side) = Bench::protected(Some(One), 512);
    assert_eq!(capacity_bits(&bench), Some(One));
    for (information, usage, kind) in
        [(3, 0, Some(Two)), (3, 1, Some(Three)), (0, 0, None), (2, 0, Some(One))]
    {
        bench.disk.bytes.lock().fill(7);
        assert_eq!(format(&bench, information, usage), GOOD);
        assert_eq!((capacity_bits(&bench), bench.unit.protection_type()), (kind, kind));
        let expected = ProtectionFormat { kind, block: 512, blocks: bench.unit.blocks() };
        assert_eq!(header(&side), Some(expected));
        assert!(bench.disk.bytes.lock().iter().all(|byte| *byte == 0));
        assert!(side.bytes.lock()[4096..].iter().all(|byte| *byte == 0), "all ones to hosts");
    }
    for (information, usage, wanted) in
        [(1, 0, FIELD), (0, 1, (5, 0x26, 0)), (2, 1, (5, 0x26, 0)), (3, 2, (5, 0x26, 0))]
    {
        assert_eq!(format(&bench, information, usage), wanted, "{information} {usage}");
    }
    assert_eq!(capacity_bits(&bench), Some(One));
    // Without a parameter list: FMTPINFO alone.
    assert_eq!(bench.sense(&[4, 0x80, 0, 0, 0, 0]), None);
    assert_eq!(bench.sense(&[4, 0, 0, 0, 0, 0]), None);
    assert_eq!(capacity_bits(&bench), None);
}

#[test]
fn other_hosts_are_told_of_another_type() {
    let (bench, _) = Bench::protected(Some(One), 512);
    let other = Nexus::new(names("iqn.b,i,0x1"), vec![(0, Arc::clone(&bench.unit))]);
    let ready = || codes(sense_of(&run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[])));
    assert_eq!(ready(), (6, 0x29, 0));
    assert_eq!(format(&bench, 2, 0), GOOD);
    assert_eq!(ready(), GOOD, "nothing has changed");
    assert_eq!(format(&bench, 3, 1), GOOD);
    assert_eq!(ready(), (6, 0x2a, 9));
    assert_eq!(bench.sense(&[0; 6]), None, "who asked for it knows");
}

#[test]
fn a_unit_that_is_formatted_without_is_like_any_other() {
    let (bench, side) = Bench::protected(None, 512);
    let ask = |name, code| Ask::new(name, code, 5, 1);
    assert_eq!(bench.sense_out(&ask(Name::Write, 0).short(), &block(3)), None);
    assert_eq!(bench.data(&ask(Name::Read, 0).short()), block(3));
    assert_eq!(codes(bench.sense(&ask(Name::Read, 0).long())), (5, 0x20, 0));
    for name in [Name::Read, Name::Write, Name::Verify, Name::Same, Name::Or] {
        let sense = bench.sense_out(&ask(name, 1).short(), &[0; 520]).expect("refused");
        assert_eq!(codes(Some(sense)), FIELD);
        assert_eq!(sense.field.map(|field| (field.byte, field.bit)), Some((1, Some(7))));
    }
    assert!(side.log.lock().is_empty());
    assert_eq!(format(&bench, 2, 0), GOOD);
    assert_eq!(codes(bench.sense(&ask(Name::Read, 1).short())), GOOD);
}

#[test]
fn a_format_that_fails_leaves_the_type_as_it_was() {
    let (bench, side) = Bench::protected(Some(One), 512);
    *side.error.lock() = Some(Error::Write);
    assert_eq!(format(&bench, 3, 1), (3, 0x31, 1));
    *side.error.lock() = None;
    assert_eq!(bench.unit.protection_type(), Some(One));
    assert_eq!(format(&bench, 3, 1), GOOD);
    assert_eq!(bench.unit.protection_type(), Some(Three));
}

/// Covers-scsi: 48/01, 48/02.
#[test]
fn sanitizing_clears_what_stands_beside_and_keeps_the_type() {
    for (cdb, out) in [
        (&[0x48, 0x01, 0, 0, 0, 0, 0, 0, 8, 0][..], &[1, 0, 0, 4, 0xaa, 0xaa, 0xaa, 0xaa][..]),
        (&[0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    ] {
        let rig = Rig::new(One);
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 8, 2), &pairs(1, 8, 2)), GOOD);
        assert_eq!(rig.bench.sense_out(cdb, out), None);
        assert_eq!(rig.beside(8, 2), [Information::ONES; 2]);
        assert_eq!(rig.bench.unit.protection_type(), Some(One));
        assert_eq!(rig.codes(Ask::new(Name::Read, 1, 8, 2), &[]), GOOD);
    }
}

/// Covers-scsi: 12.
#[test]
fn inquiry_says_what_the_unit_can_be_formatted_with() {
    for kind in [None, Some(One), Some(Two)] {
        let (bench, _) = Bench::protected(kind, 512);
        let standard = bench.data(&[0x12, 0, 0, 0, 96, 0]);
        assert_eq!(standard[5] & 0x09, 0x01, "PROTECT, and no 3PC");
        let extended = bench.data(&[0x12, 1, 0x86, 0, 64, 0]);
        assert_eq!(extended[4], 0x3f, "SPT = 111b, GRD_CHK, APP_CHK, REF_CHK");
        let pages = bench.data(&[0x12, 1, 0, 0, 64, 0]);
        assert!(!pages[4..].contains(&0x8f), "{pages:x?}");
        assert_eq!(codes(bench.sense(&[0x12, 1, 0x8f, 0, 64, 0])), FIELD);
        assert_eq!(codes(bench.sense(&[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0])), OPCODE);
    }
    let plain = Bench::new();
    assert_eq!(plain.data(&[0x12, 0, 0, 0, 96, 0])[5] & 0x09, 0x08);
    assert_eq!(plain.data(&[0x12, 1, 0x86, 0, 64, 0])[4], 0);
    assert_eq!(codes(plain.sense(&[4, 0x80, 0, 0, 0, 0])), FIELD, "FMTPINFO is not understood");
}

/// Covers-scsi: 1A, 15.
#[test]
fn ato_and_dpicz_can_be_changed_where_they_mean_something() {
    let control = |bench: &Bench, control: u8| {
        let page = bench.data(&[0x1a, 0x08, control << 6 | 0x0a, 0, 64, 0])[4..].to_vec();
        (page[2] & 0x08, page[5] & 0x80)
    };
    let rig = Rig::new(One);
    assert_eq!(control(&rig.bench, 1), (0x08, 0x80));
    assert_eq!(control(&rig.bench, 0), (0, 0));
    rig.own_tags();
    rig.control(2, 0x08);
    assert_eq!(control(&rig.bench, 0), (0x08, 0x80));
    assert_eq!(control(&Bench::new(), 1), (0, 0));
}

#[test]
fn what_is_reported_as_supported_understands_the_protection_field() {
    let usage =
        |bench: &Bench| bench.data(&[0xa3, 0x0c, 1, 0x88, 0, 0, 0, 0, 1, 0, 0, 0])[4 + 1] & 0xe0;
    assert_eq!(usage(&Rig::new(One).bench), 0xe0);
    assert_eq!(usage(&Bench::new()), 0);
}

#[test]
fn a_unit_has_the_capacity_that_it_was_formatted_with() {
    let disk = Disk::new(geometry());
    let side = Disk::new(geometry());
    let identity = crate::Identity::derive("iqn.2026-01.org.example:target", 0, "LUNWIRE", "disk");
    let wrong = ProtectionFormat { kind: Some(One), block: 512, blocks: 4095 };
    let unit = LogicalUnit::protected(identity, Arc::new(Beside::new(disk, side)), wrong);
    assert_eq!(unit.err(), Some(UnitError::Formatted { formatted: 4095, blocks: 4096 }));
}
