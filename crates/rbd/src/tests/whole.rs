// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the library does as one: comparing and writing, and repeating.

use super::Driver;
use super::PATIENCE;
use super::data;
use super::fails;
use super::gone;
use super::nothing_was_misused;
use super::open;
use super::opened;
use crate::disk::Rbd;
use crate::fake;
use buf::Slice;
use std::time::Duration;
use store::Error;
use store::Op;
use store::Outcome;
use store::Store;
use store::Submitted;

pub(super) fn compare(offset: u64, old: Slice, new: Slice) -> Op {
    Op::CompareAndWrite { offset, old, new, durable: true }
}

/// Covers-scsi: 89.
#[test]
fn what_is_there_is_compared_and_written_by_the_library_however_ends_come() {
    let driver = Driver::new();
    for manner in ["well", "late", "twice", "other"] {
        let (store, fake) = open(&format!("{manner}.compare.bare"));
        assert_eq!(store.compare_unit(), Some(32 << 10), "half of an object");
        for (round, offset) in (0_u8..).zip([0, 512, 8192, fake::OBJECT + 4096]) {
            let (old, new) = (data(0, 512), data(round + 1, 512));
            let first = driver.run(&store, &compare(offset, old.clone(), new.clone()));
            assert!(matches!(first, Outcome::Done), "{manner}: {first:?}");
            for (at, mut is) in [(0, old.to_vec()), (511, new.to_vec())] {
                is[511] = 9;
                let second = driver.run(&store, &compare(offset, Slice::from(is), old.clone()));
                assert!(matches!(second, Outcome::Miscompare(Some(found)) if found == at));
            }
            let place = usize::try_from(offset).expect("small");
            assert_eq!(fake.bytes()[place..place + 512], new.to_vec());
        }
        drop(store);
        gone(&fake);
    }
    nothing_was_misused();
}

#[test]
fn a_comparison_that_never_ends_keeps_its_memory() {
    let (store, fake) = open("never.compare.bare");
    let driver = Driver::new();
    let op = compare(4096, data(1, 512), data(2, 512));
    let Submitted::Io(io) = store.submit(&op) else { panic!("done") };
    driver.begin(&io, 3);
    drop((io, op, store));
    std::thread::sleep(Duration::from_millis(300));
    assert!(fake.is_open());
    // The library writes, by now, where it was told to say what differs.
    fake.end_all();
    let (ticket, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
    assert!(matches!((ticket, &outcome), (3, Outcome::Miscompare(Some(0)))), "{outcome:?}");
    nothing_was_misused();
}

/// Covers-scsi: 89.
#[test]
fn comparisons_fail_as_writes_do_and_what_is_not_one_is_told() {
    let driver = Driver::new();
    let op = || compare(0, data(0, 512), data(2, 512));
    for (errno, error) in
        [(5, Error::Write), (28, Error::Space), (30, Error::ReadOnly), (108, Error::Internal)]
    {
        for manner in ["ends", "begins"] {
            let (store, _) = open(&format!("{manner}-{errno}.compare.bare"));
            fails(&driver.run(&store, &op()), error);
        }
    }
    // One that compares no more than a sector, and what lies in several units.
    let (store, fake) = open("sector.compare.bare");
    assert!(matches!(driver.run(&store, &op()), Outcome::Done));
    let page = compare(0, data(0, 4096), data(1, 4096));
    fails(&driver.run(&store, &page), Error::Unsupported);
    let across = compare((32 << 10) - 512, data(0, 1024), data(1, 1024));
    assert!(matches!(store.submit(&across), Submitted::Done(Outcome::Failed(Error::Unsupported))));
    assert_eq!(fake.done(), ["compare", "compare"]);
    let unequal = compare(0, data(0, 512), data(1, 1024));
    fails(&driver.run(&store, &unequal), Error::Internal);
    let (store, _) = open("nowhere.compare.bare");
    let outcome = driver.run(&store, &compare(0, data(1, 512), data(2, 512)));
    assert!(matches!(outcome, Outcome::Miscompare(None)), "{outcome:?}");
    nothing_was_misused();
}

#[test]
fn who_has_a_cache_between_or_narrow_stripes_leaves_comparing_to_others() {
    let driver = Driver::new();
    for name in ["caches.compare", "narrow.compare.bare"] {
        let (store, fake) = open(name);
        assert_eq!(store.compare_unit(), None, "{name}");
        fails(&driver.run(&store, &compare(0, data(0, 512), data(1, 512))), Error::Unsupported);
        assert!(fake.done().is_empty());
    }
    let snapshot = opened("rbd:pool/well.bare@monday").expect("opens");
    assert_eq!(snapshot.compare_unit(), None);
    fails(&driver.run(&snapshot, &compare(0, data(0, 512), data(1, 512))), Error::ReadOnly);
    nothing_was_misused();
}

#[test]
fn what_is_compared_and_repeated_counts_as_written() {
    let driver = Driver::new();
    let done = |store: &Rbd, op: &Op| {
        let outcome = driver.run(store, op);
        assert!(matches!(outcome, Outcome::Done), "{op:?}: {outcome:?}");
    };
    let same = Op::WriteSame { offset: 0, length: 8192, data: data(5, 512) };
    // Lost, and whole again.
    let (store, fake) = open("caches.same");
    done(&store, &same);
    fake.fail_flush(5);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    done(&store, &same);
    done(&store, &Op::Flush);
    assert_eq!(fake.bytes()[..8192], [5; 8192]);
    nothing_was_misused();
}

/// Covers-scsi: 93.
#[test]
fn a_block_is_repeated_by_the_library() {
    let driver = Driver::new();
    for manner in ["well", "late", "twice", "other"] {
        let (store, fake) = open(&format!("{manner}.same"));
        assert!(store.writes_same());
        let block = Slice::from((0..=255).chain(0..=255).collect::<Vec<u8>>());
        let op = Op::WriteSame { offset: 4096, length: 1 << 18, data: block.clone() };
        assert!(matches!(driver.run(&store, &op), Outcome::Done), "{manner}");
        assert_eq!(fake.done(), ["same"]);
        let bytes = fake.bytes();
        let (before, rest) = bytes.split_at(4096);
        let (written, behind) = rest.split_at(1 << 18);
        assert!(written.chunks(512).all(|one| one == block.to_vec()), "{manner}");
        assert!(before.iter().chain(behind).all(|byte| *byte == 0), "{manner}");
    }
    for (manner, error) in [("ends-28", Error::Space), ("begins-5", Error::Write)] {
        let (store, _) = open(&format!("{manner}.same"));
        let op = Op::WriteSame { offset: 0, length: 4096, data: data(1, 512) };
        fails(&driver.run(&store, &op), error);
        let odd = Op::WriteSame { offset: 0, length: 1000, data: data(1, 512) };
        fails(&driver.run(&store, &odd), Error::Internal);
    }
    // As much of it at once as fits everywhere.
    let (store, fake) = open("well.repeated");
    for (offset, length, each) in [
        (0, 1 << 18, 512),
        (65_536, 12_288, 512),
        (512, 1 << 17, 512),
        (0, 1536, 512),
        (0, 2000, 500),
        (0, 1 << 18, 4096),
    ] {
        let op = Op::WriteSame { offset, length, data: data(1, each) };
        assert!(matches!(driver.run(&store, &op), Outcome::Done));
    }
    assert_eq!(fake.repeated(), [8192, 4096, 512, 512, 2000, 8192]);
    // What is longer than one call may be, piece by piece, each of whole blocks.
    let (store, fake) = open("other.pieces");
    let op = Op::WriteSame { offset: 0, length: 600_000, data: data(1, 1000) };
    assert!(matches!(driver.run(&store, &op), Outcome::Done));
    assert_eq!(fake.done(), ["same", "same", "same"]);
    assert!(fake.bytes()[..600_000].iter().all(|byte| *byte == 1));
    nothing_was_misused();
}

/// The library would abort the process for an entry of a journal that is too small.
#[test]
fn what_small_entries_of_a_journal_have_no_room_for_is_left_to_others() {
    let driver = Driver::new();
    let (store, fake) = open("journals.bare");
    assert_eq!((store.writes_same(), store.compare_unit()), (false, None));
    fails(&driver.run(&store, &compare(0, data(0, 512), data(1, 512))), Error::Unsupported);
    assert!(fake.done().is_empty());
    nothing_was_misused();
}
