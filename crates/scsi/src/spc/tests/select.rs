// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MODE SELECT and LOG SENSE.

use super::*;
use crate::Nexus;
use crate::testing::names;
use crate::testing::run;
use crate::testing::sense_of;
use alloc::sync::Arc;
use store::Error;

/// A list for MODE SELECT(6) with the control page; bytes 2 and 4 of it. TAS is as by default.
fn list(two: u8, four: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0x0a, 10, two, 0x10, four, 0x40, 0, 0, 0xff, 0xff, 0, 0]
}

pub(super) fn select(bench: &Bench, list: &[u8]) -> (u8, u8, u8) {
    let length = u8::try_from(list.len()).expect("short");
    codes(bench.sense_out(&[0x15, 0x10, 0, 0, length, 0], list))
}

/// Covers-scsi: 15.
#[test]
fn software_write_protection_refuses_writes() {
    let bench = Bench::new();
    let write =
        |bench: &Bench| codes(bench.sense_out(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512]));
    assert_eq!(select(&bench, &list(0, 8)), (0, 0, 0));
    assert_eq!(write(&bench), (7, 0x27, 2));
    let page = bench.data(&[0x1a, 8, 0x0a, 0, 255, 0]);
    assert_eq!((page[2] & 0x80, page[4 + 4]), (0x80, 8));
    assert_eq!(bench.data(&[0x1a, 8, 0x8a, 0, 255, 0])[4 + 4], 0, "by default not");
    assert_eq!(select(&bench, &list(0, 0)), (0, 0, 0));
    assert_eq!(write(&bench), (0, 0, 0));
    assert_eq!(select(&bench, &list(4, 8)), (0, 0, 0));
    bench.unit.logical_unit_reset();
    assert_eq!(write(&bench), (6, 0x29, 3));
    assert_eq!(write(&bench), (0, 0, 0), "a reset brings the default values back");
}

#[test]
fn sense_data_may_be_in_descriptor_format() {
    let bench = Bench::new();
    assert_eq!(select(&bench, &list(4, 0)), (0, 0, 0));
    let failed = bench.run(&[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0], &[], 512);
    assert_eq!(failed.sense[..4], [0x72, 5, 0x21, 0]);
    assert_eq!(select(&bench, &list(0, 0)), (0, 0, 0));
    let failed = bench.run(&[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0], &[], 512);
    assert_eq!(failed.sense[0], 0xf0);
}

/// Covers-scsi: 15.
#[test]
fn others_are_told_of_new_values() {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    let ready = || codes(sense_of(&run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[])));
    ready();
    select(&bench, &list(0, 0));
    assert_eq!(ready(), (0, 0, 0), "nothing is new");
    select(&bench, &list(0, 8));
    assert_eq!(ready(), (6, 0x2a, 1));
    assert_eq!(bench.sense(&[0; 6]), None);
}

/// Covers-scsi: 15, 55.
#[test]
fn what_was_sensed_can_be_selected() {
    let bench = Bench::new();
    let mut six = bench.data(&[0x1a, 0, 0x3f, 0, 255, 0]);
    assert_eq!(select(&bench, &six), (0, 0, 0));
    six[4..8].fill(0xff);
    assert_eq!(select(&bench, &six), (0, 0, 0), "as many blocks as there are");
    for long in [0, 0x10] {
        let ten = bench.data(&[0x5a, long, 0x3f, 0, 0, 0, 0, 0, 255, 0]);
        let length = u8::try_from(ten.len()).expect("short");
        let cdb = [0x55, 0x10, 0, 0, 0, 0, 0, 0, length, 0];
        assert_eq!(bench.sense_out(&cdb, &ten), None);
    }
}

/// The same as by the short form, which others are told of.
///
/// Covers-scsi: 55.
#[test]
fn mode_select_10_changes_what_is_in_force() {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    let ready = || codes(sense_of(&run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[])));
    ready();
    let write = || codes(bench.sense_out(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512]));
    let select = |swp| {
        let list = [&[0; 8], &list(0, swp)[4..]].concat();
        let length = u8::try_from(list.len()).expect("short");
        codes(bench.sense_out(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, length, 0], &list))
    };
    assert_eq!(select(8), (0, 0, 0));
    assert_eq!(bench.data(&[0x5a, 8, 0x0a, 0, 0, 0, 0, 0, 255, 0])[8 + 4], 8);
    assert_eq!((write(), ready()), ((7, 0x27, 2), (6, 0x2a, 1)));
    assert_eq!(select(0), (0, 0, 0));
    assert_eq!(write(), (0, 0, 0));
    let cut = bench.sense_out(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 7, 0], &[0; 7]);
    assert_eq!(codes(cut), (5, 0x1a, 0));
}

/// Covers-scsi: 15.
#[test]
fn a_bad_list_changes_nothing() {
    let bench = Bench::new();
    let good = list(4, 8);
    for cut in 1..good.len() {
        let expected = match cut {
            4 => (0, 0, 0),
            _ => (5, 0x1a, 0),
        };
        assert_eq!(select(&bench, &good[..cut]), expected, "cut at {cut}");
    }
    for at in 4..good.len() {
        for bit in 0..8 {
            let mut bad = good;
            bad[at] ^= 1 << bit;
            // PS, TST, D_SENSE, QERR, SWP and TAS may be either, but QERR may not be 10b.
            if matches!((at, bit), (4, 7) | (6, 5) | (6, 2) | (7, 1) | (8, 3) | (9, 6)) {
                continue;
            }
            assert_eq!(select(&bench, &bad), (5, 0x26, 0), "{at}.{bit}");
        }
    }
    assert_eq!(bench.data(&[0x1a, 8, 0x0a, 0, 255, 0])[4..9], [0x0a, 10, 0, 0x10, 0]);
    let mut formatted = [0; 12];
    formatted[3] = 8;
    formatted[10] = 4;
    assert_eq!(select(&bench, &formatted), (5, 0x26, 0), "another block length");
    assert_eq!(field_of(&bench, &[0x15, 0x11, 0, 0, 16, 0]), Some((1, Some(0))), "not saved");
    assert_eq!(field_of(&bench, &[0x15, 0, 0, 0, 16, 0]), Some((1, Some(4))));
    assert_eq!(bench.sense(&[0x15, 0x10, 0, 0, 0, 0]), None);
}

#[test]
fn one_target_port_group_is_active() {
    let bench = Bench::new();
    let cdb =
        |format: u8, length: u8| [0xa3, 0x0a | format << 5, 0, 0, 0, 0, 0, 0, 0, length, 0, 0];
    let group = [0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    assert_eq!(bench.data(&cdb(0, 255)), [&[0, 0, 0, 12][..], &group].concat());
    assert_eq!(bench.data(&cdb(1, 255)), [&[0, 0, 0, 16, 0x10, 0, 0, 0][..], &group].concat());
    assert_eq!(bench.data(&cdb(0, 4)), [0, 0, 0, 12]);
    assert_eq!(field_of(&bench, &cdb(2, 255)), Some((1, Some(7))));
    assert_eq!(bench.data(&[0x12, 0, 0, 0, 96, 0])[5] & 0x30, 0x10);
}

fn log(bench: &Bench, page: u8, subpage: u8) -> Vec<u8> {
    bench.data(&[0x4d, 0, page, subpage, 0, 0, 0, 1, 0, 0])
}

/// Covers-scsi: 4D.
#[test]
fn log_pages_are_listed_and_there() {
    let bench = Bench::new();
    let list = log(&bench, 0x40, 0);
    assert_eq!(list, [0, 0, 0, 7, 0, 2, 3, 5, 0x0d, 0x19, 0x2f]);
    assert_eq!(log(&bench, 0x40, 0xff)[..4], [0x40, 0xff, 0, 16]);
    for page in &list[4..] {
        let bytes = log(&bench, 0x40 | page, 0);
        assert_eq!(bytes[0], *page);
        assert_eq!(usize::from(bytes[3]), bytes.len() - 4);
    }
    let from_the_second = bench.data(&[0x4d, 0, 0x4d, 0, 0, 0, 1, 1, 0, 0]);
    assert_eq!(from_the_second, [0x0d, 0, 0, 6, 0, 1, 3, 2, 0, 0xff]);
    assert_eq!(field_of(&bench, &[0x4d, 0, 0x41, 0, 0, 0, 0, 1, 0, 0]), Some((2, Some(5))));
    assert_eq!(field_of(&bench, &[0x4d, 0, 0x42, 1, 0, 0, 0, 1, 0, 0]), Some((3, None)));
    assert_eq!(field_of(&bench, &[0x4d, 0, 0x02, 0, 0, 0, 0, 1, 0, 0]), Some((2, Some(7))));
    assert_eq!(field_of(&bench, &[0x4d, 0, 0x42, 0, 0, 0, 7, 1, 0, 0]), Some((5, None)));
}

#[test]
fn errors_are_counted() {
    let bench = Bench::new();
    *bench.disk.error.lock() = Some(Error::Read);
    bench.sense(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    bench.sense(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    *bench.disk.error.lock() = Some(Error::Write);
    bench.sense_out(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512]);
    assert_eq!(log(&bench, 0x43, 0)[4..], [0, 6, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(log(&bench, 0x42, 0)[15], 1);
    assert_eq!(log(&bench, 0xc2, 0)[15], 0, "the default");
}

/// Numbers of READ and WRITE commands, and blocks received and transmitted.
fn statistics(bench: &Bench, page: u8) -> [u64; 4] {
    let bytes = log(bench, page, 0);
    assert_eq!(bytes[4..8], [0, 1, 3, 64]);
    let values = wire::scsi::log::GeneralStatistics::parse(&bytes[8..]).expect("whole");
    [values.reads, values.writes, values.blocks_received, values.blocks_transmitted]
}

/// Covers-scsi: 4C, 4D.
#[test]
fn commands_are_counted_whoever_sent_them() {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    let ready = || codes(sense_of(&run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[])));
    ready();
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 3, 0];
    bench.data(&read);
    run(&other, request(Lun::Unit(0), &read, &[], 4096), &[]);
    assert_eq!(bench.sense_out(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0], &[1; 1024]), None);
    bench.sense(&[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(statistics(&bench, 0x59), [2, 1, 2, 6]);
    assert_eq!(statistics(&bench, 0xd9), [0; 4], "by default");
    assert_eq!(log(&bench, 0x4d, 0)[4..], [0, 0, 3, 2, 0, 0xff, 0, 1, 3, 2, 0, 0xff]);
    assert_eq!(bench.sense(&[0x4c, 2, 0x43, 0, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(ready(), (6, 0x2a, 2));
    assert_eq!(statistics(&bench, 0x59), [2, 1, 2, 6], "another page");
    assert_eq!(bench.sense(&[0x4c, 2, 0x40, 0, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(statistics(&bench, 0x59), [0; 4]);
    bench.data(&read);
    assert_eq!(statistics(&bench, 0x59), [1, 0, 0, 3]);
}

fn log_select(bench: &Bench, list: &[u8]) -> Option<Sense> {
    let [high, low] = u16::try_from(list.len()).expect("short").to_be_bytes();
    bench.sense_out(&[0x4c, 0, 0x40, 0, 0, 0, 0, high, low, 0], list)
}

/// Covers-scsi: 4C, 4D.
#[test]
fn a_list_sets_counters() {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    let ready = || codes(sense_of(&run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[])));
    ready();
    let list =
        [2, 0, 0, 12, 0, 6, 0, 8, 0, 0, 0, 0, 0, 0, 1, 44, 3, 0, 0, 5, 0, 6, 0, 1, 9, 5, 0, 0, 0];
    assert_eq!(log_select(&bench, &list), None);
    assert_eq!(ready(), (6, 0x2a, 2));
    assert_eq!(log(&bench, 0x42, 0)[14..], [1, 44]);
    assert_eq!((log(&bench, 0x43, 0)[15], log(&bench, 0x45, 0)[15]), (9, 0));
    *bench.disk.error.lock() = Some(Error::Read);
    bench.sense(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    *bench.disk.error.lock() = None;
    assert_eq!(log(&bench, 0x43, 0)[15], 10, "it counts from there");
}

/// Covers-scsi: 4C.
#[test]
fn a_list_with_one_parameter_that_cannot_be_set_sets_nothing() {
    let bench = Bench::new();
    let good = [2, 0, 0, 5, 0, 6, 0, 1, 7];
    for (rest, at) in [
        (&[3, 0, 0, 5, 0, 1, 0, 1, 7][..], 13),
        (&[3, 0, 0, 4, 0, 6, 0, 0], 16),
        (&[0x0d, 0, 0, 6, 0, 0, 3, 2, 0, 40], 9),
        (&[0x19, 0, 0, 0], 9),
        (&[0x3e, 0, 0, 0], 9),
        (&[0x43, 1, 0, 0], 9),
        (&[2, 0, 0, 5, 0, 6, 0, 1, 7], 9),
    ] {
        let sense = log_select(&bench, &[&good, rest].concat()).expect("refused");
        assert_eq!(codes(Some(sense)), (5, 0x26, 0), "{rest:?}");
        assert_eq!(sense.field.map(|field| field.byte), Some(at), "{rest:?}");
    }
    for rest in [&[3, 0, 0][..], &[3, 0, 0, 1], &[3, 0, 0, 4, 0, 6, 0, 1]] {
        let sense = log_select(&bench, &[&good, rest].concat());
        assert_eq!(codes(sense), (5, 0x1a, 0), "{rest:?}");
    }
    assert_eq!(log(&bench, 0x42, 0)[15], 0);
}

/// Covers-scsi: 4C.
#[test]
fn log_select_resets() {
    let bench = Bench::new();
    *bench.disk.error.lock() = Some(Error::Read);
    bench.sense(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    *bench.disk.error.lock() = None;
    let miscompare = bench.sense_out(&[0x2f, 2, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512]);
    assert_eq!(codes(miscompare), (0xe, 0x1d, 0));
    assert_eq!((log(&bench, 0x43, 0)[15], log(&bench, 0x45, 0)[15]), (1, 1));
    assert_eq!(bench.sense(&[0x4c, 0, 0x43, 0, 0, 0, 0, 0, 0, 0]), None, "as it is");
    assert_eq!(log(&bench, 0x43, 0)[15], 1);
    assert_eq!(bench.sense(&[0x4c, 0, 0xc3, 0, 0, 0, 0, 0, 0, 0]), None, "default values");
    assert_eq!((log(&bench, 0x43, 0)[15], log(&bench, 0x45, 0)[15]), (0, 1));
    assert_eq!(field_of(&bench, &[0x4c, 2, 0x41, 0, 0, 0, 0, 0, 0, 0]), Some((2, Some(5))));
    assert_eq!(field_of(&bench, &[0x4c, 2, 0x43, 1, 0, 0, 0, 0, 0, 0]), Some((3, None)));
    assert_eq!(field_of(&bench, &[0x4c, 2, 0x40, 0, 0, 0, 0, 0, 4, 0]), Some((1, Some(1))));
    assert_eq!(field_of(&bench, &[0x4c, 0, 0x43, 0, 0, 0, 0, 0, 4, 0]), Some((2, Some(5))));
    assert_eq!(field_of(&bench, &[0x4c, 0, 0x40, 1, 0, 0, 0, 0, 4, 0]), Some((3, None)));
    assert_eq!(field_of(&bench, &[0x4c, 0, 0xc0, 0, 0, 0, 0, 0, 4, 0]), Some((2, Some(7))));
    assert_eq!(field_of(&bench, &[0x4c, 0, 0x40, 0, 0, 0, 0, 4, 1, 0]), Some((7, None)));
    assert_eq!(field_of(&bench, &[0x4c, 3, 0x43, 0, 0, 0, 0, 0, 0, 0]), Some((1, Some(0))));
    assert_eq!(field_of(&bench, &[0x4c, 0, 0x03, 0, 0, 0, 0, 0, 0, 0]), Some((2, Some(7))));
}
