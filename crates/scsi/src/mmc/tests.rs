// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drive with a disc in memory.

use crate::Nexus;
use crate::limits;
use crate::table;
use crate::testing::Bench;
use crate::testing::Disk;
use crate::testing::Seen;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use crate::testing::sense_of;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use wire::scsi::Lun;
use wire::scsi::inquiry::PortGroups;
use wire::scsi::inquiry::Standard;
use wire::scsi::mmc;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;
use wire::scsi::opcode::Opcode;
use wire::scsi::sense::FieldOf;

const CD_BLOCKS: u64 = 1000;

fn cd() -> Bench {
    Bench::optical(CD_BLOCKS)
}

fn dvd() -> Bench {
    Bench::optical(limits::CD_BLOCKS_MAX + 1)
}

fn eject(bench: &Bench) -> (u8, u8, u8) {
    codes(bench.sense(&[0x1b, 0, 0, 0, 2, 0]))
}

fn load(bench: &Bench) -> (u8, u8, u8) {
    codes(bench.sense(&[0x1b, 0, 0, 0, 3, 0]))
}

/// Covers-scsi: 12, A0.
#[test]
fn inquiry_says_what_it_is() {
    let bench = cd();
    let bytes = bench.data(&[0x12, 0, 0, 0, 96, 0]);
    assert_eq!(bytes[..2], [5, 0x80], "optical and removable");
    let standard = Standard::parse(&bytes).expect("whole");
    assert_eq!(standard.port_groups, PortGroups::None);
    assert!(standard.version_descriptors.contains(&0x04e0));
    assert_eq!(bench.data(&[0x12, 1, 0, 0, 255, 0]), [5, 0, 0, 3, 0, 0x80, 0x83]);
    assert_eq!(bench.data(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0])[3], 8, "REPORT LUNS");
    assert_eq!(bench.data(&[0xa0, 0, 2, 0, 0, 0, 0, 0, 0, 255, 0, 0])[3], 16, "all of them");
    assert_eq!(bench.data(&[0x12, 1, 0x83, 0, 255, 0])[0], 5);
    for page in [0x86, 0xb0, 0xb1, 0xb2] {
        assert_eq!(codes(bench.sense(&[0x12, 1, page, 0, 255, 0])), (5, 0x24, 0), "{page:x}");
    }
}

#[test]
fn a_drive_needs_a_store_that_nobody_writes_to() {
    let identity = crate::Identity::derive("iqn.a", 0, "v", "p");
    let unit = crate::LogicalUnit::optical(identity, Disk::new(geometry()));
    assert_eq!(unit.err(), Some(crate::UnitError::Writable));
}

/// Covers-scsi: 25, 28, A8, BE.
#[test]
fn blocks_are_read_by_each_command() {
    let bench = cd();
    bench.disk.bytes.lock()[5 * 2048..7 * 2048].fill(9);
    assert_eq!(bench.data(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]), [0, 0, 3, 0xe7, 0, 0, 8, 0]);
    let read_10 = bench.data(&[0x28, 0, 0, 0, 0, 5, 0, 0, 2, 0]);
    assert_eq!(read_10, vec![9; 4096]);
    assert_eq!(bench.data(&[0xa8, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0]), read_10);
    assert_eq!(bench.data(&[0xbe, 0, 0, 0, 0, 5, 0, 0, 2, 0x10, 0, 0]), read_10);
    let mode_1 = [0xbe, 0x08, 0, 0, 0, 5, 0, 0, 2, 0x10, 0, 0];
    assert_eq!(bench.data(&mode_1), read_10);
    assert_eq!(bench.data(&[0xbe, 0, 0, 0, 0, 5, 0, 0, 2, 0, 0, 0]), [], "no main channel");
    bench.log();
    let beyond = bench.sense(&[0x28, 0, 0, 0, 3, 0xe7, 0, 0, 2, 0]);
    assert_eq!(codes(beyond), (5, 0x21, 0));
    assert_eq!(codes(bench.sense(&[0xbe, 4, 0, 0, 0, 0, 0, 0, 1, 0x10, 0, 0])), (5, 0x64, 0));
    for (byte, value) in [(9, 0xf8), (10, 1)] {
        let mut cdb = [0xbe, 0, 0, 0, 0, 0, 0, 0, 1, 0x10, 0, 0];
        cdb[byte] = value;
        assert_eq!(codes(bench.sense(&cdb)), (5, 0x24, 0), "{byte}");
    }
    assert_eq!(bench.log(), [], "nothing reached the store");
}

/// Covers-scsi: 1A, 5A.
#[test]
fn a_drive_writes_nothing() {
    let bench = cd();
    for opcode in [0x0a, 0x2a, 0xaa, 0x8a, 0x41, 0x42, 0x04, 0x35] {
        assert_eq!(codes(bench.sense(&[opcode; 1])), (5, 0x20, 0), "{opcode:x}");
    }
    let data = bench.data(&[0x5a, 0, 0x3f, 0, 0, 0, 0, 1, 0, 0]);
    let mode = ModeData::parse(Header::Ten, &data).expect("whole");
    assert!(mode.specific.write_protected && mode.descriptor.is_none());
    for page in [0x01, 0x0d, 0x1c, 0x1d, 0x2a] {
        assert!(mode.page(page).is_some(), "{page:x}");
    }
    let changeable = bench.data(&[0x5a, 0, 0x6a, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(changeable[8], 0x2a);
    assert!(changeable[10..].iter().all(|byte| *byte == 0), "{changeable:?}");
    let six = bench.data(&[0x1a, 8, 0x2a, 0, 255, 0]);
    assert_eq!((usize::from(six[0]), six[4]), (six.len() - 1, 0x2a));
    assert_eq!(codes(bench.sense(&[0x1a, 0, 0x08, 0, 255, 0])), (5, 0x24, 0));
    assert_eq!(codes(bench.sense(&[0x1a, 0, 0xea, 0, 255, 0])), (5, 0x39, 0));
}

/// Covers-scsi: 43.
#[test]
fn the_table_of_contents_has_one_data_track() {
    let bench = cd();
    let toc = bench.data(&[0x43, 0, 0, 0, 0, 0, 0, 3, 0x24, 0]);
    assert_eq!(mmc::parse_toc(&toc), Some((0, 1000)));
    assert_eq!(toc[..8], [0, 18, 1, 1, 0, 0x14, 1, 0]);
    assert_eq!(bench.data(&[0x43, 2, 0, 0, 0, 0, 0xaa, 0, 0, 0]), [], "allocation length 0");
    let lead_out = bench.data(&[0x43, 2, 0, 0, 0, 0, 0xaa, 0, 12, 0]);
    assert_eq!(lead_out[8..12], [0, 0, 15, 25]);
    // The format of old hosts, as the kernel's sr driver sends it.
    let sessions = bench.data(&[0x43, 0, 0, 0, 0, 0, 0, 0, 12, 0x40]);
    assert_eq!(sessions, [0, 10, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0]);
    assert_eq!(bench.data(&[0x43, 0, 1, 0, 0, 0, 0, 0, 12, 0]), sessions);
    assert_eq!(bench.data(&[0x43, 2, 2, 0, 0, 0, 1, 0, 255, 0]).len(), 48);
    for (format, track) in [(0, 2), (2, 2), (3, 0), (4, 0), (5, 0)] {
        let sense = bench.sense(&[0x43, 0, format, 0, 0, 0, track, 0, 255, 0]);
        assert_eq!(codes(sense), (5, 0x24, 0), "{format}");
    }
}

/// Covers-scsi: 46.
#[test]
fn the_profile_follows_the_size() {
    let current = |bench: &Bench, asked, first: u8| {
        let data = bench.data(&[0x46, asked, 0, first, 0, 0, 0, 1, 0, 0]);
        mmc::parse_configuration(&data).expect("whole")
    };
    let codes_of =
        |features: &[mmc::Feature]| features.iter().map(|feature| feature.code).collect::<Vec<_>>();
    let (profile, features) = current(&cd(), 0, 0);
    assert_eq!(profile, 0x08);
    assert_eq!(codes_of(&features), [0, 1, 2, 3, 0x10, 0x1e, 0x1f, 0x105, 0x108]);
    let (profile, features) = current(&dvd(), 1, 0x10);
    assert_eq!((profile, codes_of(&features)), (0x10, vec![0x10, 0x1f, 0x105, 0x108]));
    let (_, features) = current(&dvd(), 2, 0x1e);
    assert_eq!((codes_of(&features), features[0].current), (vec![0x1e], false));
    assert_eq!(current(&cd(), 2, 0x20).1, []);
    assert_eq!(codes(cd().sense(&[0x46, 3, 0, 0, 0, 0, 0, 1, 0, 0])), (5, 0x24, 0));
    let bench = cd();
    eject(&bench);
    assert_eq!(current(&bench, 0, 0).0, 0, "no medium, no profile");
}

/// Covers-scsi: 51, 52, AD, BB.
#[test]
fn discs_and_tracks_are_described() {
    let bench = dvd();
    assert_eq!(bench.data(&[0x51, 0, 0, 0, 0, 0, 0, 0, 34, 0])[2], 0x0e);
    assert_eq!(codes(bench.sense(&[0x51, 1, 0, 0, 0, 0, 0, 0, 34, 0])), (5, 0x24, 0));
    for (by, number) in [(0, 7), (1, 1), (2, 1)] {
        let track = bench.data(&[0x52, by, 0, 0, 0, number, 0, 0, 36, 0]);
        assert_eq!(track[24..28], [0, 5, 0x7e, 0x41], "{by}");
    }
    for (by, number) in [(1, 0), (1, 2), (2, 2), (3, 1)] {
        let sense = bench.sense(&[0x52, by, 0, 0, 0, number, 0, 0, 36, 0]);
        assert_eq!(codes(sense), (5, 0x24, 0), "{by} {number}");
    }
    let beyond = bench.sense(&[0x52, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 36, 0]);
    assert_eq!(codes(beyond), (5, 0x21, 0));
    let structure = |bench: &Bench, format| {
        let cdb = [0xad, 0, 0, 0, 0, 0, 0, format, 0x10, 0, 0, 0];
        let completion = bench.run(&cdb, &[], 1 << 16);
        match sense_of(&completion) {
            None => Ok(completion.data_in.expect("data").len()),
            sense => Err(codes(sense)),
        }
    };
    for (format, length) in [(0, 2052), (1, 8), (4, 2052), (0xff, 16)] {
        assert_eq!(structure(&bench, format), Ok(length));
    }
    assert_eq!(structure(&bench, 3), Err((5, 0x24, 0)));
    let blu_ray = [0xad, 1, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0];
    assert_eq!(codes(bench.sense(&blu_ray)), (5, 0x24, 0), "it is a DVD");
    assert_eq!(structure(&cd(), 0), Err((5, 0x30, 2)), "a CD has none");
    assert_eq!(bench.sense(&[0xbb, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0]), None);
}

/// Covers-scsi: 00, 03, 1B, 1E, 4A, BD.
#[test]
fn the_tray_opens_for_all_and_only_if_nobody_prevents_it() {
    let bench = cd();
    let other = Nexus::new(names("iqn.b,i,0x1"), vec![(0, Arc::clone(&bench.unit))]);
    let at = |nexus: &Nexus, cdb: &[u8]| run(nexus, request(Lun::Unit(0), cdb, &[], 255), &[]);
    let ready = |nexus: &Nexus| codes(sense_of(&at(nexus, &[0; 6])));
    let event = |nexus: &Nexus| {
        let data = at(nexus, &[0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0]).data_in.expect("data").to_vec();
        (data[4], data[5])
    };
    // No changer: one slot, no table of slots.
    let mechanism = |length| bench.data(&[0xbd, 0, 0, 0, 0, 0, 0, 0, 0, length, 0, 0]);
    assert_eq!(mechanism(255), [0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(mechanism(6), [0, 0, 0, 0, 0, 1]);
    assert_eq!(ready(&other), (6, 0x29, 0));
    assert_eq!(event(&other), (0, 2));
    assert_eq!(codes(sense_of(&at(&other, &[0x1e, 0, 0, 0, 1, 0]))), (0, 0, 0));
    assert_eq!(bench.data(&[0x1a, 0, 0x2a, 0, 255, 0])[4 + 6], 0x2b, "locked");
    assert_eq!(eject(&bench), (5, 0x53, 2));
    assert_eq!(ready(&bench.nexus), (0, 0, 0));
    assert_eq!(codes(sense_of(&at(&other, &[0x1e, 0, 0, 0, 0, 0]))), (0, 0, 0));
    assert_eq!(eject(&bench), (0, 0, 0));
    for nexus in [&bench.nexus, &other] {
        assert_eq!(ready(nexus), (2, 0x3a, 2));
        assert_eq!(event(nexus), (3, 1), "removed");
        assert_eq!(event(nexus), (0, 1), "told once");
    }
    assert_eq!(mechanism(8), [0, 0x10, 0, 0, 0, 1, 0, 0]);
    assert_eq!(bench.data(&[3, 0, 0, 0, 18, 0])[12..14], [0x3a, 2]);
    for entry in table::OPTICAL.all().filter(|entry| entry.has(table::Flag::Medium)) {
        assert_eq!(codes(bench.sense(&entry.bare())), (2, 0x3a, 2), "{:?}", entry.opcode.name());
    }
    assert_eq!(load(&bench), (0, 0, 0));
    for nexus in [&bench.nexus, &other] {
        assert_eq!(event(nexus), (2, 2), "new, and asked before the attention");
        assert_eq!(ready(nexus), (6, 0x28, 0));
        assert_eq!(ready(nexus), (0, 0, 0));
    }
    assert_eq!(load(&bench), (0, 0, 0));
    assert_eq!(ready(&other), (0, 0, 0), "nothing has changed");
}

#[test]
fn who_is_gone_prevents_nothing() {
    let bench = cd();
    let other = Nexus::new(names("iqn.b,i,0x1"), vec![(0, Arc::clone(&bench.unit))]);
    let prevent = [0x1e, 0, 0, 0, 1, 0];
    let at = |nexus: &Nexus, cdb: &[u8]| run(nexus, request(Lun::Unit(0), cdb, &[], 0), &[]);
    at(&other, &prevent);
    assert_eq!(codes(sense_of(&at(&other, &prevent))), (0, 0, 0));
    assert_eq!(eject(&bench), (5, 0x53, 2));
    other.lost();
    assert_eq!(eject(&bench), (0, 0, 0));
    assert_eq!(load(&bench), (0, 0, 0));
    assert_eq!(codes(bench.sense(&[0; 6])), (6, 0x28, 0));
    assert_eq!(bench.sense(&prevent), None);
    bench.unit.logical_unit_reset();
    assert_eq!(codes(bench.sense(&[0; 6])), (6, 0x29, 3));
    assert_eq!(eject(&bench), (0, 0, 0));
}

#[test]
fn start_and_stop_alone_are_nothing() {
    let bench = cd();
    for flags in [0, 1] {
        assert_eq!(bench.sense(&[0x1b, 0, 0, 0, flags, 0]), None);
        assert_eq!(bench.sense(&[0; 6]), None);
    }
    assert_eq!(codes(bench.sense(&[0x1b, 0, 0, 0, 0x20, 0])), (5, 0x24, 0));
    assert_eq!(codes(bench.sense(&[0x1e, 0, 0, 0, 2, 0])), (5, 0x24, 0));
    assert_eq!(codes(bench.sense(&[0x4a, 0, 0, 0, 0x10, 0, 0, 0, 8, 0])), (5, 0x24, 0));
    let none = bench.data(&[0x4a, 1, 0, 0, 0x02, 0, 0, 0, 8, 0]);
    assert_eq!(none, [0, 2, 0x80, 0x10], "no class that there is");
}

#[test]
fn every_bit_that_is_not_understood_is_refused() {
    let bench = cd();
    for entry in table::OPTICAL.all() {
        let (usage, length) = entry.usage_for(&bench.unit);
        for (byte, usage) in usage.into_iter().enumerate().take(length).skip(1) {
            for bit in (0..8).filter(|bit| usage >> bit & 1 == 0) {
                let mut cdb = entry.bare();
                cdb[byte] |= 1 << bit;
                let sense = bench.sense(&cdb).expect("refused");
                let what = entry.opcode.name().expect("named");
                assert_eq!(codes(Some(sense)), (5, 0x24, 0), "{what} {byte}.{bit}");
                let field = sense.field.expect("a field pointer");
                assert_eq!((field.of, usize::from(field.byte)), (FieldOf::Cdb, byte), "{what}");
            }
        }
    }
    assert_eq!(bench.log(), []);
}

#[test]
fn every_other_opcode_is_invalid() {
    let bench = cd();
    for code in 0..=u8::MAX {
        if table::OPTICAL.of_opcode(Opcode(code)).next().is_none() {
            assert_eq!(codes(bench.sense(&[code, 0xff])), (5, 0x20, 0), "opcode {code:02x}");
        }
    }
}

#[test]
fn force_unit_access_reads_what_is_there() {
    let bench = cd();
    bench.data(&[0x28, 8, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(bench.log(), [Seen::Flush, Seen::Read(0, 2048)]);
}
