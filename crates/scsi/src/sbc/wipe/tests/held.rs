// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wipes of what ends with its process, in the moments in which another one takes over.

use super::*;
use crate::task::BUSY;
use core::sync::atomic::Ordering;
use store::Outcome;

/// It may go with the process, or stay: nobody is told that it is being wiped, nor that it failed.
///
/// Covers-scsi: 04, 48/01, 48/02.
#[test]
fn no_wipe_begins_while_changes_are_held_back() {
    let shelf = Arc::new(Shelf::default());
    let bench = started(&shelf);
    bench.disk.held.store(true, Ordering::Relaxed);
    let list = overwrite(1, &[5; 4]);
    for (cdb, out) in [
        (&[4, 0, 0, 0, 0, 0][..], &[][..]),
        (&[4, 0x10, 0, 0, 0, 0], &[0, 2, 0, 0]),
        (&sanitize(0x02, 0), &[]),
        (&sanitize(0x82, 0), &[]),
        (&sanitize(0x01, 8), &list),
    ] {
        let completion = bench.run(cdb, out, 0);
        assert_eq!((completion.status, completion.sense.len()), (BUSY, 0), "{cdb:x?}");
        assert!(!bench.unit.is_being_wiped() && !bench.unit.wipe_has_failed(), "{cdb:x?}");
    }
    assert_eq!((shelf.state.lock().is_none(), bench.log()), (true, Vec::new()));
    bench.disk.held.store(false, Ordering::Relaxed);
    assert_eq!(bench.sense(&READ), None);
    assert_eq!(bench.sense(&sanitize(0x02, 0)), None);
}

/// What is kept of the disk stays, and the wipe would not: it would have been acknowledged, and
/// nobody would carry it on.
///
/// Covers-scsi: 04, 48/01, 48/02.
#[test]
fn no_wipe_begins_of_a_unit_that_another_process_is_to_serve() {
    let bench = Bench::new();
    // A store that outlives its process.
    bench.unit.hold_back();
    bench.disk.held.store(false, Ordering::Relaxed);
    let list = overwrite(1, &[5; 4]);
    for (cdb, out) in [
        (&[4, 0, 0, 0, 0, 0][..], &[][..]),
        (&[4, 0x10, 0, 0, 0, 0], &[0, 2, 0, 0]),
        (&sanitize(0x82, 0), &[]),
        (&sanitize(0x81, 8), &list),
    ] {
        let completion = bench.run(cdb, out, 0);
        assert_eq!((completion.status, completion.sense.len()), (BUSY, 0), "{cdb:x?}");
        assert!(!bench.unit.is_being_wiped() && !bench.unit.wipe_has_failed(), "{cdb:x?}");
    }
    assert_eq!((bench.sense(&READ), bench.log().len()), (None, 1), "hosts read on");
    bench.unit.let_on();
    assert_eq!(bench.sense(&sanitize(0x02, 0)), None);
}

/// Covers-scsi: 48/01.
#[test]
fn a_wipe_under_way_waits_while_changes_are_held_back() {
    let bench = Bench::new();
    let mut job = job(&bench, &sanitize(0x81, 8), &overwrite(1, &[5; 4]));
    let Step::Store(first) = job.work(Input::Turn) else { panic!("it begins") };
    let Step::Store(second) = job.work(Input::Store(submit(&job, &first))) else {
        panic!("it goes on")
    };
    for _ in 0..2 {
        bench.disk.held.store(true, Ordering::Relaxed);
        assert!(matches!(job.work(Input::Store(submit(&job, &second))), Step::Wait));
        assert!(matches!(job.work(Input::Turn), Step::Wait));
        assert_eq!(codes(ready(&bench)), IN_PROGRESS);
        bench.disk.held.store(false, Ordering::Relaxed);
        let step = job.work(Input::Turn);
        assert!(matches!(step, Step::Store(op) if op.range() == second.range()), "the same");
    }
    let mut step = job.work(Input::Store(submit(&job, &second)));
    while let Step::Store(op) = step {
        step = job.work(Input::Store(submit(&job, &op)));
    }
    assert!(matches!(step, Step::Complete(_)), "{step:?}");
    assert!(all(&bench, 5) && ready(&bench).is_none());
}

/// Others have so much of a disk in memory that there is no room for now: as for a write, nothing
/// is wrong with the medium.
///
/// Covers-scsi: 04, 48/01.
#[test]
fn a_wipe_waits_for_room_that_others_use() {
    let bench = Bench::new();
    let mut job = job(&bench, &sanitize(0x81, 8), &overwrite(1, &[5; 4]));
    let Step::Store(first) = job.work(Input::Turn) else { panic!("it begins") };
    let Step::Store(second) = job.work(Input::Store(submit(&job, &first))) else {
        panic!("it goes on")
    };
    for _ in 0..9 {
        assert!(matches!(job.work(Input::Store(Outcome::Failed(Error::Busy))), Step::Wait));
        assert_eq!(codes(ready(&bench)), IN_PROGRESS);
        let step = job.work(Input::Turn);
        assert!(matches!(step, Step::Store(op) if op.range() == second.range()), "the same");
    }
    let mut step = job.work(Input::Store(submit(&job, &second)));
    while let Step::Store(op) = step {
        step = job.work(Input::Store(submit(&job, &op)));
    }
    assert!(matches!(step, Step::Complete(_)), "{step:?}");
    assert!(all(&bench, 5) && ready(&bench).is_none());
}

/// Who was told that there is no room was not told that it is silent.
#[test]
fn a_wipe_that_has_waited_for_room_waits_for_a_take_over_too() {
    let bench = Bench::new();
    let mut job = job(&bench, &sanitize(0x81, 8), &overwrite(1, &[5; 4]));
    let Step::Store(first) = job.work(Input::Turn) else { panic!("it begins") };
    assert!(matches!(job.work(Input::Store(Outcome::Failed(Error::Busy))), Step::Wait));
    assert!(matches!(job.work(Input::Turn), Step::Store(_)));
    // Held back when it was asked, and no more when it is heard.
    let silent = job.work(Input::Store(Outcome::Failed(Error::Silent)));
    assert!(matches!(silent, Step::Wait), "{silent:?}");
    let step = job.work(Input::Turn);
    assert!(matches!(step, Step::Store(op) if op.range() == first.range()), "the same");
    assert_eq!(codes(ready(&bench)), IN_PROGRESS);
}

/// It may have been held back until just now: who says so twice has fallen silent.
#[test]
fn a_wipe_of_a_store_that_is_silent_fails() {
    let bench = Bench::new();
    let mut job = job(&bench, &sanitize(0x81, 8), &overwrite(1, &[5; 4]));
    let silent = || Input::Store(Outcome::Failed(Error::Silent));
    let Step::Store(op) = job.work(Input::Turn) else { panic!("it begins") };
    assert!(matches!(job.work(silent()), Step::Wait));
    let step = job.work(Input::Turn);
    assert!(matches!(step, Step::Store(again) if again.range() == op.range()), "the same");
    assert!(matches!(job.work(silent()), Step::Complete(_)));
    assert!(bench.unit.wipe_has_failed());
}
