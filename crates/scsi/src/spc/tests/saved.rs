// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mode pages that are saved, the write cache switched off, and identifying information.

use super::select::select;
use super::*;
use crate::Completion;
use crate::Kept;
use crate::testing::Seen;
use crate::testing::Shelf;
use crate::testing::sense_of;

fn bench_with(kept: Kept) -> (Bench, Arc<Shelf>) {
    let shelf = Arc::new(Shelf::default());
    (Bench::powered_on(kept, &shelf).expect("nothing is kept"), shelf)
}

/// MODE SELECT(6) with SP.
fn save(bench: &Bench, list: &[u8]) -> (u8, u8, u8) {
    let length = u8::try_from(list.len()).expect("short");
    codes(bench.sense_out(&[0x15, 0x11, 0, 0, length, 0], list))
}

fn control(two: u8, three: u8, four: u8, five: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0x0a, 10, two, 0x10 | three, four, five, 0, 0, 0xff, 0xff, 0, 0]
}

/// The control page with the values that PC asks for.
fn page(bench: &Bench, pc: u8) -> Vec<u8> {
    bench.data(&[0x1a, 8, pc << 6 | 0x0a, 0, 255, 0])[4..].to_vec()
}

/// Covers-scsi: 15, 1A.
#[test]
fn saved_values_are_in_force_after_power_on_and_after_a_reset() {
    let (bench, shelf) = bench_with(Kept::ModeParameters);
    assert_eq!(page(&bench, 3), page(&bench, 2), "nothing is saved yet");
    assert_eq!(page(&bench, 0)[0], 0x8a, "PS");
    assert_eq!(save(&bench, &control(0x24, 0x06, 8, 0x40)), (0, 0, 0));
    assert_eq!(page(&bench, 3)[2..6], [0x24, 0x16, 8, 0x40]);
    assert_eq!(select(&bench, &control(4, 0, 0, 0)), (0, 0, 0), "for now");
    assert_eq!(page(&bench, 0)[2..6], [4, 0x10, 0, 0]);
    assert_eq!(page(&bench, 3)[2..6], [0x24, 0x16, 8, 0x40]);
    bench.unit.logical_unit_reset();
    assert_eq!(codes(bench.sense(&[0; 6])), (6, 0x29, 3));
    assert_eq!(page(&bench, 0)[2..6], [0x24, 0x16, 8, 0x40]);
    let again = Bench::powered_on(Kept::ModeParameters, &shelf).expect("our own");
    assert_eq!(page(&again, 0)[2..6], [0x24, 0x16, 8, 0x40]);
    assert_eq!(page(&again, 2)[2..6], [0, 0x10, 0, 0x40], "TAS by default");
    assert_eq!(codes(again.sense_out(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512])), (7, 0x27, 2));
    // An empty list saves what is in force.
    assert_eq!(select(&again, &control(0, 0, 0, 0)), (0, 0, 0));
    assert_eq!(again.sense(&[0x15, 0x11, 0, 0, 0, 0]), None);
    let third = Bench::powered_on(Kept::ModeParameters, &shelf).expect("our own");
    assert_eq!(page(&third, 0)[2..6], [0, 0x10, 0, 0]);
}

#[test]
fn what_cannot_be_kept_is_not_in_force() {
    let (bench, shelf) = bench_with(Kept::ModeParameters);
    *shelf.broken.lock() = true;
    assert_eq!(save(&bench, &control(4, 0, 8, 0)), (4, 0x44, 0));
    assert_eq!(page(&bench, 0)[2..5], [0, 0x10, 0]);
    assert_eq!(page(&bench, 3)[2..5], [0, 0x10, 0]);
}

#[test]
fn damaged_state_is_refused() {
    let (bench, shelf) = bench_with(Kept::ModeParameters);
    assert_eq!(save(&bench, &control(4, 0, 0, 0)), (0, 0, 0));
    let good = shelf.state.lock().clone().expect("kept");
    for cut in 0..good.len() {
        *shelf.state.lock() = Some(good[..cut].to_vec());
        assert!(Bench::powered_on(Kept::ModeParameters, &shelf).is_err(), "cut at {cut}");
        let mut bad = good.clone();
        bad[cut] ^= 4;
        *shelf.state.lock() = Some(bad);
        assert!(Bench::powered_on(Kept::ModeParameters, &shelf).is_err(), "changed at {cut}");
    }
}

/// MODE SELECT of the caching page.
fn write_cache(bench: &Bench, on: bool) {
    let mut list = [0; 24];
    (list[4], list[5], list[6]) = (8, 18, if on { 4 } else { 0 });
    assert_eq!(select(bench, &list), (0, 0, 0));
}

/// Covers-scsi: 15.
#[test]
fn without_the_write_cache_everything_goes_to_stable_storage() {
    let bench = Bench::new();
    let write = |bench: &Bench| {
        bench.log();
        assert_eq!(bench.sense_out(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512]), None);
        bench.log()
    };
    assert_eq!(write(&bench), [Seen::Write(0, 512)]);
    write_cache(&bench, false);
    assert_eq!(write(&bench), [Seen::Durable(0, 512)]);
    let mut unmap = [0; 24];
    (unmap[1], unmap[3], unmap[19]) = (22, 16, 8);
    assert_eq!(bench.sense_out(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap), None);
    assert_eq!(bench.log(), [Seen::Discard(0, 4096), Seen::Flush]);
    let same = bench.run(&[0x93, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[], 0);
    assert_eq!(sense_of(&same), None);
    assert_eq!(bench.log().last(), Some(&Seen::Flush), "zeroing too");
    assert_eq!(bench.data(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).len(), 512);
    assert_eq!(bench.log(), [Seen::Read(0, 512)], "reading needs no flush");
    write_cache(&bench, true);
    assert_eq!(write(&bench), [Seen::Write(0, 512)]);
}

#[test]
fn a_store_without_a_cache_has_none_to_switch_on() {
    let bench = Bench::with(Geometry { volatile_cache: false, ..geometry() }, 512);
    let mut list = [0; 24];
    (list[4], list[5], list[6]) = (8, 18, 4);
    assert_eq!(select(&bench, &list), (5, 0x26, 0));
    list[6] = 0;
    assert_eq!(select(&bench, &list), (0, 0, 0));
}

fn set_information(bench: &Bench, kind: u8, list: &[u8]) -> Completion {
    let [high, low] = u16::try_from(list.len()).expect("short").to_be_bytes();
    bench.run(&[0xa4, 0x06, 0, 0, 0, 0, 0, 0, high, low, kind << 1, 0], list, 0)
}

fn information(bench: &Bench, kind: u8) -> Vec<u8> {
    let bytes = bench.data(&[0xa3, 0x05, 0, 0, 0, 0, 0, 0, 4, 0, kind << 1, 0]);
    assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len() - 4);
    bytes[4..].to_vec()
}

/// Covers-scsi: A3/05, A4/06.
#[test]
fn identifying_information_outlives_power_off() {
    let (bench, shelf) = bench_with(Kept::Identification);
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    let ready = || codes(sense_of(&run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[])));
    ready();
    assert_eq!(information(&bench, 0x7f), [0, 0, 2, 0, 4, 0, 1, 0]);
    assert_eq!(information(&bench, 0), []);
    assert_eq!(set_information(&bench, 0, &[7; 512]).status, 0);
    assert_eq!(set_information(&bench, 2, b"database\0").status, 0);
    assert_eq!(ready(), (6, 0x3f, 5));
    let again = Bench::powered_on(Kept::Identification, &shelf).expect("our own");
    for bench in [&bench, &again] {
        assert_eq!(information(bench, 0), [7; 512]);
        assert_eq!(information(bench, 2), b"database\0");
    }
    assert_eq!(set_information(&again, 0, &[]).status, 0);
    assert_eq!(information(&again, 0), []);
    let third = Bench::powered_on(Kept::Identification, &shelf).expect("our own");
    assert_eq!((information(&third, 0).len(), information(&third, 2).len()), (0, 9));
}

/// Covers-scsi: A3/05, A4/06.
#[test]
fn identifying_information_is_checked() {
    let (bench, shelf) = bench_with(Kept::Identification);
    let refused = |kind, list: &[u8]| codes(sense_of(&set_information(&bench, kind, list)));
    assert_eq!(refused(0, &[1; 513]), (5, 0x1a, 0));
    assert_eq!(refused(2, &[0; 257]), (5, 0x1a, 0));
    for text in [&b"no null"[..], b"two\0\0", b"\xff\0"] {
        assert_eq!(refused(2, text), (5, 0x26, 0));
    }
    assert_eq!(refused(1, b"x"), (5, 0x24, 0));
    assert_eq!(refused(0x7f, b"x"), (5, 0x24, 0));
    assert_eq!(field_of(&bench, &[0xa3, 5, 0, 0, 0, 0, 0, 0, 4, 0, 8, 0]), Some((10, Some(7))));
    *shelf.broken.lock() = true;
    assert_eq!(refused(0, b"x"), (4, 0x44, 0));
    assert_eq!(information(&bench, 0), []);
    // Without a place to keep it there are no such commands.
    let plain = Bench::new();
    assert_eq!(field_of(&plain, &[0xa3, 5, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]), Some((1, Some(4))));
    assert_eq!(codes(sense_of(&set_information(&plain, 0, b"x"))), (5, 0x24, 0));
}

/// Covers-scsi: A3/0F, A4/0F.
#[test]
fn the_time_is_the_hosts_until_it_is_set() {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    let ready = || codes(sense_of(&run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[])));
    ready();
    let report = |bench: &Bench| bench.data(&[0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]);
    let now = crate::testing::NOW.to_be_bytes();
    assert_eq!(report(&bench), [&[0, 10, 3, 0][..], &now[2..], &[0, 0]].concat());
    let set = |list: &[u8]| {
        let length = u8::try_from(list.len()).expect("short");
        codes(bench.sense_out(&[0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, length, 0, 0], list))
    };
    assert_eq!(set(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0]), (0, 0, 0));
    assert_eq!(report(&bench), [0, 10, 2, 0, 0, 0, 0, 0, 1, 2, 0, 0]);
    assert_eq!(ready(), (6, 0x2a, 0x10));
    for length in 1..30 {
        if length != 12 {
            assert_eq!(set(&vec![0; length]), (5, 0x1a, 0));
        }
    }
    for at in [0, 1, 2, 3, 10, 11] {
        let mut list = [0; 12];
        list[at] = 1;
        assert_eq!(set(&list), (5, 0x26, 0));
    }
    assert_eq!(set(&[]), (0, 0, 0));
    bench.unit.logical_unit_reset();
    assert_eq!(codes(bench.sense(&[0; 6])), (6, 0x29, 3));
    assert_eq!(report(&bench)[2], 3, "a reset gives the host's time back");
}
