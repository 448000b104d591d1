// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store over a library that completes late, twice, never, from other threads, and with errors.

use crate::RbdError;
use crate::disk::Rbd;
use crate::disk::Use;
use crate::fake;
use crate::fake::Fake;
use crate::fake::MISUSES;
use crate::limits::CLOSE_MAX;
use buf::Pool;
use buf::Slice;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::Instant;
use store::Error;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Run;
use store::Space;
use store::Store;
use store::Submitted;
use store::foreign::Answers;
use store::spec::RbdSpec;
use store::spec::Spec;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

fn spec(word: &str) -> RbdSpec {
    let Ok(Spec::Rbd(spec)) = word.parse() else { panic!("{word}") };
    spec
}

fn opened(word: &str) -> Result<Rbd, RbdError> {
    Rbd::open_by(&fake::API, &spec(word), Use::Serve)
}

fn open(image: &str) -> (Rbd, Arc<Fake>) {
    (opened(&format!("rbd:pool/{image}")).expect("opens"), Fake::of(image))
}

/// A reactor's inbox.
#[derive(Debug)]
struct Inbox(Mutex<Sender<(u64, Outcome)>>);

impl Answers for Inbox {
    fn answer(&self, ticket: u64, outcome: Outcome) {
        // Who has gone does not want to know.
        let _ = self.0.lock().expect("no panic").send((ticket, outcome));
    }
}

/// What a pump does for a store.
#[derive(Debug)]
struct Driver {
    pool: Pool,
    inbox: Arc<Inbox>,
    answers: Receiver<(u64, Outcome)>,
}

impl Driver {
    fn new() -> Self {
        let (sender, answers) = mpsc::channel();
        let pool = Pool::new(64 << 20).expect("room");
        Self { pool, inbox: Arc::new(Inbox(Mutex::new(sender))), answers }
    }

    fn begin(&self, io: &Io, ticket: u64) {
        let Io::Foreign(errand) = io else { panic!("{io:?}") };
        let room = errand.room() as usize;
        let buf = (room > 0).then(|| self.pool.take(room).expect("room"));
        errand.begin(Arc::clone(&self.inbox) as Arc<dyn Answers>, ticket, buf);
    }

    fn run(&self, store: &dyn Store, op: &Op) -> Outcome {
        let mut submitted = store.submit(op);
        loop {
            match submitted {
                Submitted::Done(outcome) => return outcome,
                Submitted::Io(io) => {
                    self.begin(&io, 7);
                    let (ticket, outcome) = self.answers.recv_timeout(PATIENCE).expect("an end");
                    assert_eq!(ticket, 7);
                    submitted = store.complete(op, &io, IoResult::Foreign(outcome));
                }
            }
        }
    }
}

fn data(byte: u8, length: usize) -> Slice {
    Slice::from(vec![byte; length])
}

fn write(offset: u64, data: Slice) -> Op {
    Op::Write { offset, data, durable: false }
}

fn nothing_was_misused() {
    assert_eq!(MISUSES.load(Ordering::SeqCst), 0);
}

#[track_caller]
fn fails(outcome: &Outcome, error: Error) {
    assert!(matches!(outcome, Outcome::Failed(failed) if *failed == error), "{outcome:?}");
}

#[test]
fn what_is_written_is_read_however_ends_come() {
    for manner in ["well", "late", "twice", "other"] {
        let (store, fake) = open(&format!("{manner}.read"));
        let driver = Driver::new();
        for round in 1..20_u8 {
            let offset = u64::from(round) * 8192;
            let outcome = driver.run(&store, &write(offset, data(round, 4096)));
            assert!(matches!(outcome, Outcome::Done), "{manner}: {outcome:?}");
            let op = Op::Read { offset: offset - 512, length: 5120 };
            let Outcome::Data(read) = driver.run(&store, &op) else { panic!("{manner}") };
            let expected = [vec![0; 512], vec![round; 4096], vec![0; 512]].concat();
            assert_eq!(read.to_vec(), expected, "{manner}");
        }
        assert!(fake.bytes()[8192..12_288].iter().all(|byte| *byte == 1));
        drop(store);
        gone(&fake);
        assert!(driver.answers.try_recv().is_err(), "{manner}: each is answered once");
        assert_eq!(driver.pool.bytes_in_use(), 0, "{manner}");
    }
    nothing_was_misused();
}

#[test]
fn many_at_once_end_in_any_order_and_each_once() {
    let (store, _) = open("late.many");
    let driver = Driver::new();
    let mut begun = Vec::new();
    for ticket in 0..300_u64 {
        let op = match ticket % 3 {
            0 => write(ticket * 512, data(1, 512)),
            1 => Op::Read { offset: ticket * 512, length: 512 },
            _ => Op::Flush,
        };
        let Submitted::Io(io) = store.submit(&op) else { panic!("{op:?}") };
        driver.begin(&io, ticket);
        begun.push(io);
    }
    let end = |_| driver.answers.recv_timeout(PATIENCE).expect("an end").0;
    let mut tickets: Vec<u64> = (0..begun.len()).map(end).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, (0..300).collect::<Vec<_>>());
    nothing_was_misused();
}

#[test]
fn an_operation_that_never_ends_keeps_its_memory_and_its_image() {
    let (store, fake) = open("never.read");
    let driver = Driver::new();
    let read = Op::Read { offset: 0, length: 65_536 };
    let Submitted::Io(io) = store.submit(&read) else { panic!("done") };
    driver.begin(&io, 3);
    let in_use = driver.pool.bytes_in_use();
    assert!(in_use >= 65_536);
    drop((io, store));
    // Nobody waits for ever, and the library may still write to the buffer.
    std::thread::sleep(Duration::from_millis(300));
    assert!(fake.is_open());
    assert_eq!(driver.pool.bytes_in_use(), in_use);
    fake.end_all();
    let (ticket, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
    assert_eq!(ticket, 3);
    assert!(matches!(outcome, Outcome::Data(_)));
    drop(outcome);
    assert_eq!(driver.pool.bytes_in_use(), 0);
    nothing_was_misused();
}

#[test]
fn errors_of_the_library_are_what_hosts_understand() {
    let driver = Driver::new();
    let read = || Op::Read { offset: 0, length: 4096 };
    let clear = |leave| Op::Clear { offset: 0, length: 65_536, leave };
    for manner in ["ends", "begins"] {
        for (errno, of_read, of_write) in [
            (5, Error::Read, Error::Write),
            (28, Error::Space, Error::Space),
            (122, Error::Space, Error::Space),
            (30, Error::ReadOnly, Error::ReadOnly),
            (2, Error::Internal, Error::Internal),
            (108, Error::Internal, Error::Internal),
            (110, Error::Internal, Error::Internal),
            (22, Error::Range, Error::Range),
            (133, Error::Read, Error::Write),
        ] {
            let (store, _) = open(&format!("{manner}-{errno}.errors"));
            fails(&driver.run(&store, &read()), of_read);
            fails(&driver.run(&store, &write(0, data(1, 512))), of_write);
            // Who was shut out has lost what nobody can name.
            let of_flush = if errno == 108 { Error::Write } else { of_write };
            fails(&driver.run(&store, &Op::Flush), of_flush);
            fails(&driver.run(&store, &clear(Space::Deallocated)), of_write);
            fails(&driver.run(&store, &clear(Space::Mapped)), of_write);
        }
    }
    let (short, _) = open("short.errors");
    fails(&driver.run(&short, &read()), Error::Range);
    assert_eq!(driver.pool.bytes_in_use(), 0);
    nothing_was_misused();
}

#[test]
fn what_must_last_is_flushed_unless_all_lasts() {
    let driver = Driver::new();
    let durable = Op::Write { offset: 0, data: data(1, 512), durable: true };
    let (cached, fake) = open("caches.cached");
    assert!(cached.geometry().volatile_cache);
    assert!(matches!(driver.run(&cached, &durable), Outcome::Done));
    assert_eq!(fake.done(), ["write", "flush"]);
    let (safe, fake) = open("safe.through");
    assert!(!safe.geometry().volatile_cache);
    assert!(matches!(driver.run(&safe, &durable), Outcome::Done));
    assert_eq!(fake.done(), ["write"]);
    nothing_was_misused();
}

#[test]
fn a_failed_flush_is_for_everybody_until_all_is_written_again() {
    let driver = Driver::new();
    let durable = |offset| Op::Write { offset, data: data(3, 8192), durable: true };
    let (store, fake) = open("caches.lost");
    let done = |op: &Op| assert!(matches!(driver.run(&store, op), Outcome::Done), "{op:?}");
    done(&write(8192, data(1, 4096)));
    done(&write(65_536, data(1, 4096)));
    fake.fail_flush(5);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    // The library has told it, and knows nothing of it any more.
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    fails(&driver.run(&store, &durable(8192)), Error::Write);
    assert!(matches!(driver.run(&store, &Op::Read { offset: 0, length: 512 }), Outcome::Data(_)));
    done(&write(65_536, data(2, 4096)));
    done(&Op::Flush);
    done(&durable(0));
    // Zeroes count as written, and a second failure as another one.
    done(&write(0, data(1, 65_536)));
    fake.fail_flush(28);
    fails(&driver.run(&store, &Op::Flush), Error::Space);
    done(&Op::Clear { offset: 0, length: 65_536, leave: Space::Mapped });
    fake.fail_flush(5);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    nothing_was_misused();
}

#[test]
fn who_was_shut_out_by_the_cluster_flushes_nothing_any_more() {
    let driver = Driver::new();
    for name in ["caches.shut-out", "safe.shut-out"] {
        let (store, fake) = open(name);
        let outcome = driver.run(&store, &write(0, data(1, 4096)));
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
        fake.fail_flush(108);
        fails(&driver.run(&store, &Op::Flush), Error::Internal);
        fails(&driver.run(&store, &Op::Flush), Error::Write);
        // The library keeps such a write for ever.
        let begun = fake.done().len();
        fails(&driver.run(&store, &write(0, data(1, 4096))), Error::Internal);
        fails(&driver.run(&store, &Op::Read { offset: 0, length: 512 }), Error::Internal);
        fails(&driver.run(&store, &Op::Flush), Error::Write);
        assert_eq!(fake.done().len(), begun, "the library is not asked");
        assert_eq!(store.may_have_lost(), name == "caches.shut-out");
        drop(store);
        // Whoever opens it again knows nothing that could be lost.
        let (store, _) = open(name);
        assert!(matches!(driver.run(&store, &Op::Flush), Outcome::Done));
    }
    nothing_was_misused();
}

#[test]
fn whoever_hears_first_that_the_cluster_has_shut_us_out_tells_all() {
    let driver = Driver::new();
    let status = Op::ProvisioningStatus { offset: 0, length: 4096 };
    for name in ["resize", "snapshot", "status"] {
        let (store, fake) = open(&format!("blocked.{name}"));
        match name {
            "resize" => assert!(matches!(store.resize_behind(2 << 20), Some(Err(_)))),
            "snapshot" => assert!(matches!(store.snapshot_behind("monday"), Some(Err(_)))),
            _ => fails(&driver.run(&store, &status), Error::Internal),
        }
        fails(&driver.run(&store, &write(0, data(1, 512))), Error::Internal);
        assert!(fake.done().is_empty(), "{name}");
    }
    nothing_was_misused();
}

fn compare(offset: u64, old: Slice, new: Slice) -> Op {
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

#[test]
fn flushes_go_one_after_the_other_and_those_that_wait_go_together() {
    let (store, fake) = open("never.flushes");
    let driver = Driver::new();
    let begin = |ticket| {
        let Submitted::Io(io) = store.submit(&Op::Flush) else { panic!("done") };
        driver.begin(&io, ticket);
    };
    (0..4).for_each(begin);
    assert_eq!((fake.held(), fake.done().len()), (1, 1));
    let ended = || driver.answers.try_iter().map(|(ticket, _)| ticket).collect::<Vec<_>>();
    assert!(ended().is_empty());
    fake.end_all();
    assert_eq!(ended(), [0]);
    assert_eq!((fake.held(), fake.done().len()), (1, 2), "one for the three others");
    begin(4);
    fake.end_all();
    assert_eq!(ended(), [1, 2, 3]);
    fake.end_all();
    assert_eq!(ended(), [4]);
    nothing_was_misused();
}

#[test]
fn zeroes_and_discards_are_told_apart_and_seen() {
    let driver = Driver::new();
    let (store, fake) = open("other.clear");
    driver.run(&store, &write(0, data(7, 3 * 65_536)));
    let status = |offset, length| {
        let outcome = driver.run(&store, &Op::ProvisioningStatus { offset, length });
        let Outcome::ProvisioningStatus(run) = outcome else { panic!("{outcome:?}") };
        run
    };
    let run = |space, length| Run { space, length };
    assert_eq!(status(0, 1 << 20), run(Space::Mapped, 3 * 65_536));
    let clear = |offset, length, leave| {
        let outcome = driver.run(&store, &Op::Clear { offset, length, leave });
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    };
    clear(65_536, 65_536, Space::Deallocated);
    clear(0, 512, Space::Mapped);
    assert_eq!(fake.done(), ["write", "discard", "zero"]);
    assert_eq!(status(0, 1 << 20), run(Space::Mapped, 65_536));
    assert_eq!(status(65_536, 4096), run(Space::Deallocated, 4096));
    assert_eq!(status(70_000, 1 << 17), run(Space::Deallocated, 131_072 - 70_000));
    assert!(fake.bytes()[..512].iter().all(|byte| *byte == 0));
    assert_eq!(fake.bytes()[512], 7);
    nothing_was_misused();
}

#[test]
fn operations_that_cannot_be_never_reach_the_library() {
    let driver = Driver::new();
    let (store, fake) = open("well.refused");
    fails(&driver.run(&store, &Op::Read { offset: fake::BYTES, length: 512 }), Error::Range);
    fails(&driver.run(&store, &write(fake::BYTES - 512, data(1, 1024))), Error::Range);
    assert!(matches!(driver.run(&store, &write(0, Slice::empty())), Outcome::Done));
    let none = Op::Clear { offset: 0, length: 0, leave: Space::Deallocated };
    assert!(matches!(driver.run(&store, &none), Outcome::Done));
    let read = driver.run(&store, &Op::Read { offset: 0, length: 0 });
    assert!(matches!(read, Outcome::Data(data) if data.is_empty()));
    assert!(fake.done().is_empty());
    let snapshot = opened("rbd:pool/well.snapshot@monday").expect("opens");
    assert!(snapshot.geometry().read_only);
    assert!(!snapshot.geometry().volatile_cache, "nothing to lose");
    fails(&driver.run(&snapshot, &write(0, data(1, 512))), Error::ReadOnly);
    nothing_was_misused();
}

#[test]
fn another_size_is_heard_and_a_watch_that_is_late_harms_nobody() {
    let (store, fake) = open("well.resized");
    assert_eq!(store.bytes_behind(), None);
    fake.resize(2 << 20);
    hears_of(&store, 2 << 20);
    assert_eq!(store.geometry().bytes, 1 << 20, "until somebody has told the hosts");
    assert!(store.set_bytes(2 << 20));
    assert_eq!(store.geometry().bytes, 2 << 20);
    drop(store);
    fake.resize(1 << 20);
    nothing_was_misused();
}

#[track_caller]
fn hears_of(store: &Rbd, bytes: u64) {
    let begin = Instant::now();
    while store.bytes_behind() != Some(bytes) {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_is_written_behind_the_end_that_somebody_else_has_moved() {
    let (store, fake) = open("well.shrunk");
    let driver = Driver::new();
    fake.resize(512 << 10);
    let end = 512 << 10;
    hears_of(&store, end);
    let leave = Space::Deallocated;
    for op in [
        write(end - 4096, data(7, 8192)),
        write(end, data(7, 4096)),
        Op::Read { offset: end - 4096, length: 8192 },
        Op::Clear { offset: end - 4096, length: 8192, leave },
        Op::WriteSame { offset: end - 4096, length: 8192, data: data(7, 512) },
        compare(end, data(0, 512), data(7, 512)),
        Op::ProvisioningStatus { offset: end, length: 4096 },
    ] {
        fails(&driver.run(&store, &op), Error::Range);
    }
    assert!(fake.done().is_empty(), "{:?}", fake.done());
    let outcome = driver.run(&store, &write(end - 4096, data(7, 4096)));
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    nothing_was_misused();
}

#[test]
fn who_wrote_when_the_end_moved_is_told() {
    let (store, fake) = open("never.shrunk");
    let end = 512 << 10;
    for op in [
        write(end - 4096, data(7, 8192)),
        Op::Clear { offset: end - 4096, length: 8192, leave: Space::Deallocated },
        Op::WriteSame { offset: end - 4096, length: 8192, data: data(7, 512) },
    ] {
        let Submitted::Io(io) = store.submit(&op) else { panic!("{op:?}") };
        let driver = Driver::new();
        driver.begin(&io, 1);
        fake.resize(512 << 10);
        hears_of(&store, end);
        fake.end_all();
        let (_, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
        let Submitted::Done(outcome) = store.complete(&op, &io, IoResult::Foreign(outcome)) else {
            panic!("goes on behind the end: {op:?}");
        };
        fails(&outcome, Error::Range);
        fake.resize(1 << 20);
        hears_of(&store, 1 << 20);
    }
    nothing_was_misused();
}

#[test]
fn a_cache_that_forgets_what_it_could_not_write_is_not_used() {
    for (image, volatile) in
        [("well.policy", false), ("safe.policy", false), ("caches.policy", true)]
    {
        assert_eq!(open(image).0.geometry().volatile_cache, volatile, "{image}");
    }
    let error = opened("rbd:pool/insists").expect_err("it would lose what is flushed").to_string();
    assert!(error.contains("writearound") && error.contains("rbd config image"), "{error}");
    assert!(!Fake::of("insists").is_open());
    let error = opened("rbd:pool/lends").expect_err("some writes would never end").to_string();
    assert!(error.contains("rbd config image rm POOL/IMAGE rbd_disable_zero"), "{error}");
    assert!(!Fake::of("lends").is_open());
    nothing_was_misused();
}

#[test]
fn an_image_gets_another_size_and_snapshots_of_its_own_kind() {
    let (store, fake) = open("other.orders");
    assert_eq!(store.resize_behind(3 << 20), Some(Ok(())));
    assert_eq!((fake.bytes().len(), store.bytes_behind()), (3 << 20, Some(3 << 20)));
    assert_eq!(store.geometry().bytes, 1 << 20, "until somebody has told the hosts");
    let made = store.snapshot_behind("monday").expect("it can");
    assert_eq!(made.as_deref(), Ok("pool/other.orders@monday"));
    assert_eq!(fake.done(), ["snapshot"]);
    for (name, said) in [
        ("there", "cannot make the snapshot: File exists"),
        ("a/b", "no name for a snapshot"),
        ("a@b", "no name for a snapshot"),
        ("", "no name for a snapshot"),
    ] {
        let error = store.snapshot_behind(name).expect("it can").expect_err(name);
        assert!(error.starts_with("rbd:pool/other.orders: ") && error.contains(said), "{error}");
    }
    let (fixed, _) = open("forbidden.orders");
    let error = fixed.resize_behind(512).expect("it can").expect_err("not allowed");
    assert!(error.contains("cannot give the image another size: Operation not"), "{error}");
    nothing_was_misused();
}

#[test]
fn who_comes_when_the_cluster_is_silent_hears_that_it_is_busy() {
    let store = opened("rbd:pool/never.silent,busy=30ms").expect("opens");
    let (fake, driver) = (Fake::of("never.silent"), Driver::new());
    std::thread::sleep(Duration::from_millis(60));
    let read = Op::Read { offset: 0, length: 512 };
    let Submitted::Io(io) = store.submit(&read) else { panic!("nothing is under way") };
    driver.begin(&io, 1);
    assert!(matches!(store.submit(&read), Submitted::Io(_)), "soon");
    std::thread::sleep(Duration::from_millis(60));
    for op in [read.clone(), Op::Flush, write(0, data(1, 512))] {
        let Submitted::Done(outcome) = store.submit(&op) else { panic!("{op:?}") };
        fails(&outcome, Error::Silent);
    }
    fake.end_all();
    let (_, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
    assert!(matches!(outcome, Outcome::Data(_)), "what was under way has waited");
    assert!(matches!(store.submit(&read), Submitted::Io(_)), "it goes on by itself");
    nothing_was_misused();
}

#[test]
fn one_operation_that_never_ends_keeps_nobody_out_for_ever() {
    let store = opened("rbd:pool/stuck.alone,busy=30ms").expect("opens");
    let (fake, driver) = (Fake::of("stuck.alone"), Driver::new());
    let Submitted::Io(io) = store.submit(&write(0, data(1, 512))) else { panic!("done") };
    driver.begin(&io, 1);
    std::thread::sleep(Duration::from_millis(60));
    let read = Op::Read { offset: 0, length: 512 };
    let Submitted::Done(outcome) = store.submit(&read) else { panic!("nothing has ended") };
    fails(&outcome, Error::Silent);
    let begin = Instant::now();
    while !matches!(store.submit(&read), Submitted::Io(_)) {
        assert!(begin.elapsed() < PATIENCE, "the cluster answers, but nobody asks it");
        std::thread::sleep(Duration::from_millis(1));
    }
    fake.end_all();
    nothing_was_misused();
}

#[test]
fn an_image_that_is_let_go_is_closed_whoever_still_has_the_store() {
    let (store, fake) = open("late.finished");
    let driver = Driver::new();
    let write = write(0, data(1, 4096));
    let Submitted::Io(io) = store.submit(&write) else { panic!("done") };
    driver.begin(&io, 1);
    assert_eq!(store.finish(), Ok(()));
    assert!(!fake.is_open());
    let (_, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
    assert!(matches!(outcome, Outcome::Done), "it waits for what is under way: {outcome:?}");
    fails(&driver.run(&store, &Op::Flush), Error::Internal);
    assert_eq!(store.finish(), Ok(()), "again");
    let (stuck, fake) = open("never.finished");
    let Submitted::Io(io) = stuck.submit(&Op::Flush) else { panic!("done") };
    driver.begin(&io, 2);
    assert_eq!(stuck.finish(), Err(Error::Write));
    assert!(fake.is_open(), "the library has it still");
    fake.end_all();
    nothing_was_misused();
}

/// That may be a reactor, which has others to serve.
#[test]
fn who_has_the_last_of_an_image_does_not_wait_for_its_end() {
    let (store, fake) = open("never.last");
    let driver = Driver::new();
    let Submitted::Io(io) = store.submit(&write(0, data(1, 4096))) else { panic!("done") };
    driver.begin(&io, 1);
    drop(store);
    let begin = Instant::now();
    drop(io);
    assert!(begin.elapsed() < CLOSE_MAX / 2);
    fake.end_all();
    gone(&fake);
    nothing_was_misused();
}

/// Soon, by a thread of its own.
#[track_caller]
fn gone(fake: &Fake) {
    let begin = Instant::now();
    while fake.is_open() {
        assert!(begin.elapsed() < PATIENCE, "closed when nobody has it any more");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_image_says_what_it_is() {
    let (store, _) = open("well.facts");
    let geometry = store.geometry();
    assert_eq!((geometry.bytes, geometry.discard_granularity), (fake::BYTES, Some(65_536)));
    assert_eq!(store.optimal_io(), Some(131_072), "a row of objects");
    assert!(store.identity().starts_with("f51d/3//0x"), "{}", store.identity());
    let again = opened("rbd:pool/well.facts").expect_err("served already").to_string();
    assert!(again.contains("given twice"), "{again}");
    let word = "rbd:pool/well.facts";
    assert!(Rbd::open_by(&fake::API, &spec(word), Use::Look).is_ok(), "looking is no harm");
}

#[test]
fn an_image_that_is_missing_is_made_if_that_is_asked_for() {
    let (store, made) = (opened("rbd:pool/missing.new,create,size=4M").expect("made"), true);
    assert_eq!((store.geometry().bytes, store.was_made()), (4 << 20, made));
    drop(store);
    let again = opened("rbd:pool/missing.new,create,size=8M").expect("there");
    assert_eq!((again.geometry().bytes, again.was_made()), (4 << 20, false));
    let empty = opened("rbd:pool/missing.small,create,size=4M").expect("made");
    drop(empty);
    Fake::of("missing.small").resize(100);
    let error = opened("rbd:pool/missing.small").expect_err("no disk").to_string();
    assert!(error.contains("100 bytes is no size"), "{error}");
}

#[test]
fn what_does_not_open_says_why() {
    for (word, said) in [
        ("rbd:missing/disk", "rbd:missing/disk: cannot use the pool: No such file"),
        ("rbd:forbidden/disk", "cannot use the pool: Operation not permitted"),
        ("rbd:pool/missing.disk", "cannot open the image: No such file"),
        ("rbd:pool/disk,conf=missing.conf", "(missing.conf); try: conf=FILE"),
        ("rbd:pool/disk,keyring=bad", "cannot set keyring: Invalid argument"),
        ("rbd:pool/disk,id=nobody", "cannot set up librados: Invalid argument"),
    ] {
        let error = opened(word).expect_err(word).to_string();
        assert!(error.contains(said), "{error}");
    }
    nothing_was_misused();
}
