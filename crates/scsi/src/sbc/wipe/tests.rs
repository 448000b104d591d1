// SPDX-License-Identifier: Apache-2.0 OR MIT

mod held;

use super::Wiping;
use crate::KeepFailed;
use crate::Keeper;
use crate::Kept;
use crate::RestoreError;
use crate::Step;
use crate::Task;
use crate::kept;
use crate::task::Input;
use crate::testing::BLOCKS;
use crate::testing::Bench;
use crate::testing::Seen;
use crate::testing::Shelf;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::request;
use crate::testing::submit;
use crate::testing::work;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use buf::Slice;
use store::Error;
use store::Geometry;
use wire::scsi::Lun;
use wire::scsi::Sense;

const IN_PROGRESS: (u8, u8, u8) = (2, 0x04, 0x1b);
const FAILED: (u8, u8, u8) = (3, 0x31, 0x03);
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn sanitize(flags: u8, length: u16) -> [u8; 10] {
    let [high, low] = length.to_be_bytes();
    [0x48, flags, 0, 0, 0, 0, 0, high, low, 0]
}

fn overwrite(count: u8, pattern: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(pattern.len()).expect("short").to_be_bytes();
    let mut list = vec![count, 0, high, low];
    list.extend_from_slice(pattern);
    list
}

/// Starts a command and gives its job before it has done anything.
fn job(bench: &Bench, cdb: &[u8], out: &[u8]) -> Box<Task> {
    let (mut task, mut step) = bench.nexus.start(&request(Lun::Unit(0), cdb, out, 0));
    loop {
        step = match step {
            Step::ReceiveDataOut { .. } => {
                task.resume(&bench.nexus, Input::DataOut(Slice::from(out.to_vec())))
            }
            Step::Spawn { job, .. } => return job,
            Step::Keep(keep) => task.resume(&bench.nexus, Input::Kept(keep.run())),
            other => panic!("{other:?}"),
        };
    }
}

fn finish(job: Task) {
    work(job);
}

fn all(bench: &Bench, byte: u8) -> bool {
    bench.disk.bytes.lock().iter().all(|found| *found == byte)
}

fn ready(bench: &Bench) -> Option<Sense> {
    bench.sense(&[0; 6])
}

/// Covers-scsi: 48/01.
#[test]
fn overwriting_writes_the_pattern_so_many_times_and_flushes() {
    let bench = Bench::new();
    let list = overwrite(3, &[0xaa; 4]);
    assert_eq!(bench.sense_out(&sanitize(0x01, 8), &list), None);
    assert!(all(&bench, 0xaa));
    let log = bench.log();
    assert_eq!(log.len(), 3 * 3);
    for pass in log.chunks(3) {
        assert!(matches!(pass, [Seen::Write(..), Seen::Write(..), Seen::Flush]), "{pass:?}");
    }
    let inverted = overwrite(0x82, &[0xf0]);
    assert_eq!(bench.sense_out(&sanitize(0x01, 5), &inverted), None);
    assert!(all(&bench, 0x0f), "the second pass is the complement");
}

#[test]
fn a_pattern_begins_anew_in_each_block() {
    let bench = Bench::new();
    let list = overwrite(1, &[1, 2, 3]);
    assert_eq!(bench.sense_out(&sanitize(0x01, 7), &list), None);
    let bytes = bench.disk.bytes.lock();
    assert!(bytes.chunks(512).all(|block| block[..4] == [1, 2, 3, 1] && block[511] == 2));
}

/// Covers-scsi: 48/02.
#[test]
fn block_erase_gives_the_space_back() {
    let bench = Bench::new();
    bench.disk.bytes.lock().fill(7);
    assert_eq!(bench.sense(&sanitize(0x02, 0)), None);
    assert!(all(&bench, 0));
    assert!(
        matches!(bench.log()[..], [Seen::Discard(0, length), Seen::Flush] if length == BLOCKS * 512)
    );
    let page = bench.data(&[0x12, 1, 0xb1, 0, 64, 0]);
    assert_eq!(page[7], 0x40, "WABEREQ");
    let fixed = Bench::with(Geometry { discard_granularity: None, ..geometry() }, 512);
    assert_eq!(codes(fixed.sense(&sanitize(0x02, 0))), (5, 0x24, 0));
    assert_eq!(fixed.data(&[0x12, 1, 0xb1, 0, 64, 0])[7], 0);
}

/// Covers-scsi: 48/01, 48/02, 48/1F.
#[test]
fn lists_that_are_wrong_are_refused() {
    let bench = Bench::new();
    for (length, list) in [
        (0, vec![]),
        (4, vec![1, 0, 0, 0]),
        (517, overwrite(1, &[0; 513])),
        (8, overwrite(0, &[0; 4])),
        (8, vec![1, 0, 0, 0, 0, 0, 0, 0]),
        (8, vec![1, 0, 0, 5, 0, 0, 0, 0]),
        (8, vec![0x21, 0, 0, 4, 0, 0, 0, 0]),
    ] {
        let sense = bench.sense_out(&sanitize(0x01, length), &list);
        assert!(matches!(codes(sense), (5, 0x24 | 0x26, 0)), "{list:?}: {sense:?}");
    }
    for action in [0x02, 0x1f] {
        assert_eq!(codes(bench.sense_out(&sanitize(action, 8), &[0; 8])), (5, 0x24, 0));
    }
    assert_eq!(bench.log(), []);
    for action in [0x1f, 0x9f] {
        assert_eq!(bench.sense(&sanitize(action, 0)), None, "there is no failure to exit from");
    }
}

/// Covers-scsi: 48/01.
#[test]
fn everybody_waits_and_is_told_how_far_it_is() {
    let bench = Bench::new();
    let mut job = job(&bench, &sanitize(0x81, 8), &overwrite(2, &[5; 4]));
    let told = ready(&bench).expect("not ready");
    assert_eq!((codes(Some(told)), told.progress), (IN_PROGRESS, Some(0)));
    let step = job.work(Input::Turn);
    let Step::Store(op) = step else { panic!("{step:?}") };
    let _ = job.work(Input::Store(submit(&job, &op)));
    assert_eq!(ready(&bench).and_then(|sense| sense.progress), Some(0x4000), "a quarter");
    for cdb in [&READ[..], &[0x1b, 0, 0, 0, 1, 0], &[0x1a, 0, 8, 0, 64, 0], &sanitize(0x02, 0)] {
        assert_eq!(codes(bench.sense(cdb)), IN_PROGRESS, "{cdb:x?}");
    }
    let sensed = bench.data(&[3, 0, 0, 0, 18, 0]);
    assert_eq!(codes(Sense::parse(&sensed)), IN_PROGRESS);
    assert_eq!(bench.sense(&[0x12, 0, 0, 0, 36, 0]), None);
    assert_eq!(bench.sense(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]), None);
    bench.unit.logical_unit_reset();
    assert_eq!(codes(ready(&bench)), (6, 0x29, 3));
    assert_eq!(codes(ready(&bench)), IN_PROGRESS, "a reset does not stop it");
}

#[test]
fn a_job_runs_to_its_end_by_itself() {
    let bench = Bench::new();
    let job = job(&bench, &sanitize(0x81, 8), &overwrite(1, &[5; 4]));
    finish(*job);
    assert_eq!(ready(&bench), None);
    assert!(all(&bench, 5));
}

#[test]
fn a_writer_that_was_let_in_before_is_turned_away() {
    let bench = Bench::new();
    let out = vec![9; 512];
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let (mut late, step) = bench.nexus.start(&request(Lun::Unit(0), &write, &out, 0));
    assert!(matches!(step, Step::ReceiveDataOut { .. }));
    let job = job(&bench, &sanitize(0x81, 8), &overwrite(1, &[5; 4]));
    let step = late.resume(&bench.nexus, Input::DataOut(Slice::from(out)));
    let Step::Complete(completion) = step else { panic!("{step:?}") };
    assert_eq!(codes(Sense::parse(&completion.sense)), IN_PROGRESS);
    finish(*job);
    assert!(all(&bench, 5));
}

#[test]
fn a_failure_is_kept_until_a_sanitize_succeeds() {
    let bench = Bench::new();
    *bench.disk.error.lock() = Some(Error::Write);
    assert_eq!(codes(bench.sense_out(&sanitize(0x01, 8), &overwrite(1, &[5; 4]))), FAILED);
    *bench.disk.error.lock() = None;
    assert_eq!(codes(bench.sense(&READ)), FAILED);
    assert_eq!(bench.sense(&[0x1a, 0, 8, 0, 64, 0]), None, "what needs no medium goes on");
    assert_eq!(codes(bench.sense(&sanitize(0x1f, 0))), (5, 0x24, 0), "AUSE was not set");
    assert_eq!(codes(bench.sense(&sanitize(0x22, 0))), (5, 0x24, 0), "nor can it be now");
    assert_eq!(bench.sense(&sanitize(0x02, 0)), None);
    assert_eq!(bench.sense(&READ), None);
}

/// Covers-scsi: 48/1F.
#[test]
fn an_unrestricted_failure_can_be_exited() {
    let bench = Bench::new();
    *bench.disk.error.lock() = Some(Error::Write);
    assert_eq!(codes(bench.sense(&sanitize(0x22, 0))), FAILED);
    *bench.disk.error.lock() = None;
    assert_eq!(codes(bench.sense(&READ)), FAILED);
    assert_eq!(bench.sense(&sanitize(0x1f, 0)), None);
    assert_eq!(bench.sense(&READ), None);
}

/// Covers-scsi: 04.
#[test]
fn formatting_writes_zeros_or_a_pattern() {
    let bench = Bench::new();
    let format = |flags: u8, out: &[u8]| bench.sense_out(&[4, flags, 0, 0, 0, 0], out);
    bench.disk.bytes.lock().fill(7);
    assert_eq!(format(0, &[]), None);
    assert!(all(&bench, 0));
    bench.disk.bytes.lock().fill(7);
    assert_eq!(format(0x10, &[0, 0, 0, 0]), None);
    assert!(all(&bench, 0));
    assert_eq!(format(0x10, &[0, 0x88, 0, 0, 0, 1, 0, 1, 0x33]), None);
    assert!(all(&bench, 0x33));
    assert_eq!(format(0x30, &[0; 8]), None, "a long list");
    assert!(all(&bench, 0));
    for (flags, list) in [
        (0x40, &[0; 4][..]),
        (0x08, &[]),
        (0x10, &[1, 0, 0, 0]),
        (0x10, &[0, 0, 0, 8]),
        (0x30, &[0, 0, 0, 1, 0, 0, 0, 0]),
        (0x10, &[0, 0x40, 0, 0]),
    ] {
        assert_eq!(codes(format(flags, list)).0, 5, "{flags:x} {list:?}");
    }
}

/// Covers-scsi: 04.
#[test]
fn formatting_at_once_shows_its_progress() {
    let bench = Bench::new();
    let job = job(&bench, &[4, 0x10, 0, 0, 0, 0], &[0, 2, 0, 0]);
    assert_eq!(codes(ready(&bench)), (2, 0x04, 0x04));
    finish(*job);
    assert_eq!(ready(&bench), None);
}

#[test]
fn a_protected_disk_is_not_wiped() {
    let bench = Bench::with(Geometry { read_only: true, ..geometry() }, 512);
    for cdb in [&sanitize(0x02, 0)[..], &[4, 0, 0, 0, 0, 0]] {
        assert_eq!(codes(bench.sense(cdb)), (7, 0x27, 0));
    }
    assert_eq!(bench.log(), []);
}

/// The unit as it is after a start with what is on the shelf.
fn started(shelf: &Arc<Shelf>) -> Bench {
    Bench::powered_on(Kept::Wipe, shelf).expect("ours")
}

/// Covers-scsi: 48/01, 48/02, 48/1F.
#[test]
fn a_wipe_that_a_crash_cut_short_has_failed() {
    for (ause, exits) in [(0x00, false), (0x20, true)] {
        let shelf = Arc::new(Shelf::default());
        let bench = started(&shelf);
        assert_eq!(bench.sense(&READ), None);
        let mut job = job(&bench, &sanitize(0x81 | ause, 8), &overwrite(1, &[5; 4]));
        assert!(matches!(job.work(Input::Turn), Step::Store(_)), "it has begun, no more");
        let bench = started(&shelf);
        assert!(bench.unit.wipe_has_failed());
        assert_eq!(codes(bench.sense(&READ)), FAILED);
        assert_eq!(bench.sense(&sanitize(0x1f, 0)).is_none(), exits);
        assert_eq!(bench.unit.wipe_has_failed(), !exits);
        assert_eq!(started(&shelf).sense(&READ).is_none(), exits);
        let bench = started(&shelf);
        assert_eq!(bench.sense(&sanitize(0x02, 0)), None);
        assert_eq!(bench.sense(&READ), None);
        assert_eq!(started(&shelf).sense(&READ), None, "a wipe that ended well is over");
    }
}

/// Covers-scsi: 04, 48/02.
#[test]
fn a_failure_outlives_a_crash() {
    for (cdb, told) in [(&sanitize(0x02, 0)[..], FAILED), (&[4, 0, 0, 0, 0, 0], (3, 0x31, 1))] {
        let shelf = Arc::new(Shelf::default());
        let bench = started(&shelf);
        *bench.disk.error.lock() = Some(Error::Write);
        assert_eq!(codes(bench.sense(cdb)), told);
        assert_eq!(codes(started(&shelf).sense(&READ)), told);
    }
}

/// Covers-scsi: 04, 48/02.
#[test]
fn nothing_is_wiped_that_cannot_be_kept() {
    let shelf = Arc::new(Shelf::default());
    let bench = started(&shelf);
    *shelf.broken.lock() = true;
    for cdb in [&sanitize(0x02, 0)[..], &[4, 0, 0, 0, 0, 0]] {
        assert_eq!(codes(bench.sense(cdb)), (4, 0x44, 0));
    }
    assert_eq!(bench.log(), []);
    assert_eq!(bench.sense(&READ), None);
}

/// Covers-scsi: 04.
#[test]
fn a_wipe_begins_under_an_aca_condition_of_later() {
    let bench = Bench::new();
    let list = [0, 2, 0, 0];
    let cdb = request(Lun::Unit(0), &[4, 0x10, 0, 0, 0, 0], &list, 0);
    let (mut format, step) = bench.nexus.start(&cdb);
    assert!(matches!(step, Step::ReceiveDataOut { .. }));
    // Beyond the end, with NACA.
    assert_eq!(codes(bench.sense(&[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 4])), (5, 0x21, 0));
    match format.resume(&bench.nexus, Input::DataOut(Slice::from(list.to_vec()))) {
        Step::Spawn { job, .. } => finish(*job),
        other => panic!("the unit is marked and nobody wipes it: {other:?}"),
    }
    assert!(!bench.unit.is_being_wiped());
}

/// Covers-scsi: 48/01.
#[test]
fn a_wipe_that_is_dropped_has_failed() {
    let bench = Bench::new();
    let mut job = job(&bench, &sanitize(0x81, 8), &overwrite(1, &[5; 4]));
    assert!(matches!(job.work(Input::Turn), Step::Store(_)), "it has begun, no more");
    assert_eq!(codes(ready(&bench)), IN_PROGRESS);
    drop(job);
    assert!(!bench.unit.is_being_wiped());
    assert_eq!(codes(bench.sense(&READ)), FAILED);
    assert_eq!(bench.sense(&sanitize(0x02, 0)), None);
    assert_eq!(bench.sense(&READ), None);
}

/// Keeps all, and tries to begin a SANITIZE when it is told that there is none any more.
#[derive(Debug, Default)]
struct Meddler {
    state: spin::Mutex<Vec<u8>>,
    bench: spin::Mutex<Option<Arc<Bench>>>,
}

impl Keeper for Meddler {
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
        let bench = self.bench.lock().take();
        if let Some(bench) = bench {
            let (_, step) = bench.nexus.start(&request(Lun::Unit(0), &sanitize(0x82, 0), &[], 0));
            let begins = matches!(step, Step::Spawn { .. } | Step::Keep(_));
            assert!(!begins, "what is kept would say that no wipe is under way");
        }
        *self.state.lock() = state.to_vec();
        Ok(())
    }
}

/// Covers-scsi: 48/1F.
#[test]
fn no_wipe_begins_while_a_failure_is_left() {
    let meddler = Arc::new(Meddler::default());
    let bench = Arc::new(Bench::with_keeper(Kept::Wipe, Arc::<Meddler>::clone(&meddler)));
    drop(job(&bench, &sanitize(0xa1, 8), &overwrite(1, &[5; 4])));
    assert!(bench.unit.wipe_has_failed());
    *meddler.bench.lock() = Some(Arc::clone(&bench));
    assert_eq!(bench.sense(&sanitize(0x1f, 0)), None);
    assert_eq!(bench.sense(&READ), None);
    assert!(!bench.unit.is_being_wiped());
}

#[test]
fn hostile_state_of_a_wipe_is_refused() {
    let unit = Bench::new().unit;
    for body in [&[][..], &[4], &[1, 0]] {
        let mut wiping = Wiping::default();
        let state = kept::seal(Kept::Wipe, unit.number(), body);
        let shelf = Arc::new(Shelf::default());
        let refused = wiping.keep(shelf, Some(&state), unit.number());
        assert_eq!(refused, Err(RestoreError::Damaged), "{body:?}");
    }
}

/// Else hosts would write to a medium that the next start takes for one that is wiped in part.
///
/// Covers-scsi: 04, 48/02.
#[test]
fn a_wipe_whose_end_cannot_be_kept_has_failed() {
    for cdb in [&sanitize(0x82, 0)[..], &sanitize(0x22, 0)] {
        let shelf = Arc::new(Shelf::default());
        let bench = started(&shelf);
        let (mut task, step) = bench.nexus.start(&request(Lun::Unit(0), cdb, &[], 0));
        let Step::Keep(keep) = step else { panic!("{step:?}") };
        assert!(bench.unit.is_being_wiped());
        let Step::Spawn { job, .. } = task.resume(&bench.nexus, Input::Kept(keep.run())) else {
            panic!("it is kept")
        };
        *shelf.broken.lock() = true;
        finish(*job);
        assert!(!bench.unit.is_being_wiped());
        assert!(bench.unit.wipe_has_failed());
        assert_eq!(started(&shelf).unit.wipe_has_failed(), bench.unit.wipe_has_failed());
        *shelf.broken.lock() = false;
        assert_eq!(bench.sense(&sanitize(0x02, 0)), None);
        assert!(!started(&shelf).unit.wipe_has_failed());
    }
}

/// What is under way outlives the command: aborted or not, a wipe that is kept begins.
///
/// Covers-scsi: 48/02.
#[test]
fn a_wipe_begins_if_it_is_kept() {
    let shelf = Arc::new(Shelf::default());
    let bench = started(&shelf);
    let begin = || {
        let cdb = sanitize(0x02, 0);
        match bench.nexus.start(&request(Lun::Unit(0), &cdb, &[], 0)) {
            (task, Step::Keep(keep)) => (task, keep),
            (_, step) => panic!("{step:?}"),
        }
    };
    drop(begin());
    assert_eq!((bench.unit.is_being_wiped(), bench.sense(&READ)), (false, None));
    let (mut task, _) = begin();
    assert!(matches!(task.kept_late(Err(KeepFailed)), Step::Complete(_)));
    assert_eq!((bench.unit.is_being_wiped(), bench.sense(&READ)), (false, None));
    let (mut task, keep) = begin();
    match task.kept_late(keep.run()) {
        Step::Spawn { job, .. } => finish(*job),
        step => panic!("{step:?}"),
    }
    assert_eq!(bench.sense(&READ), None);
}
