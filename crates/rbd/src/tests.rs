// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store over a library that completes late, twice, never, from other threads, and with errors.

mod caches;
mod opening;
mod sizes;
mod whole;

use crate::RbdError;
use crate::disk::Rbd;
use crate::disk::Use;
use crate::fake;
use crate::fake::Fake;
use crate::fake::MISUSES;
use crate::limits::CHORE_MAX;
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
fn an_order_that_nobody_waits_for_any_more_is_not_begun() {
    let (store, fake) = open("well.late-orders");
    let gate = fake.hold_orders();
    let begun =
        store.resize_behind(2 << 20, &|| true).expect("it can").expect_err("nobody answers");
    assert!(begun.contains("may still do it"), "{begun}");
    let begin = Instant::now();
    for _ in 0..3 {
        let given_up =
            store.resize_behind(4 << 20, &|| true).expect("it can").expect_err("nobody answers");
        assert!(given_up.contains("nothing was done"), "{given_up}");
    }
    assert!(begin.elapsed() < 3 * CHORE_MAX, "they wait for what is known not to answer");
    drop(gate);
    while fake.bytes().len() != 2 << 20 {
        assert!(begin.elapsed() < PATIENCE, "the first one is not done");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.snapshot_behind("after", &|| true).map(|made| made.is_ok()), Some(true));
    assert_eq!(fake.bytes().len(), 2 << 20, "the second order is not done");
    nothing_was_misused();
}

#[test]
fn an_order_whose_asker_is_gone_before_its_turn_is_not_begun() {
    let (store, fake) = open("well.asker");
    let gate = fake.hold_orders();
    let begun = store.resize_behind(2 << 20, &|| true).expect("it can");
    assert!(begun.expect_err("nobody answers").contains("may still do it"));
    let given_up =
        store.snapshot_behind("monday", &|| false).expect("it can").expect_err("dropped");
    assert!(given_up.contains("nobody waits"), "{given_up}");
    drop(gate);
    let begin = Instant::now();
    while fake.bytes().len() != 2 << 20 {
        assert!(begin.elapsed() < PATIENCE, "what had begun is not done");
        std::thread::sleep(Duration::from_millis(1));
    }
    // On a busy machine the thread may be late with saying that it is over.
    while store.resize_behind(3 << 20, &|| true) != Some(Ok(())) {
        assert!(begin.elapsed() < PATIENCE, "nothing goes on");
    }
    assert!(!fake.done().contains(&"snapshot"), "{:?}", fake.done());
    nothing_was_misused();
}

#[test]
fn caches_are_told_and_so_are_others_that_have_the_image_open() {
    for (image, cache) in [("well.told", "none"), ("caches.told", "writeback")] {
        let Ok(store) = opened(&format!("rbd:pool/{image},busy=7s")) else { panic!("{image}") };
        let told = store.elsewhere().expect("the cluster");
        assert_eq!((told.who, told.cache), ("cluster", cache), "{image}");
        assert_eq!((told.busy_after, told.is_busy), (Duration::from_secs(7), false));
        let fake = Fake::of(image);
        for count in [2, 0] {
            fake.set_others(count);
            let expected = (cache != "none").then_some(count);
            let begin = Instant::now();
            while store.elsewhere().map(|told| told.others) != Some(expected) {
                assert!(begin.elapsed() < PATIENCE, "{image}: nobody looks");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    nothing_was_misused();
}

#[test]
fn an_image_that_is_not_found_by_its_name_any_more_is_told() {
    for (word, fates) in [
        ("rbd:pool/well.fate", &[("moved", Some("moved")), ("replaced", Some("replaced"))][..]),
        (
            "rbd:pool/well.fate@then",
            &[
                ("removed", Some("removed")),
                // One that gets its name afterwards is another one.
                ("remade", Some("removed")),
                ("another", Some("moved")),
                ("given", Some("replaced")),
            ],
        ),
    ] {
        let (store, fake) = (opened(word).expect(word), Fake::of("well.fate"));
        for (fate, told) in fates.iter().copied().chain([("", None)]) {
            fake.set_fate(fate);
            let begin = Instant::now();
            while store.elsewhere().map(|elsewhere| elsewhere.lost) != Some(told) {
                assert!(begin.elapsed() < PATIENCE, "{word}: {fate}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
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

/// What the thread of the image does hangs as operations do.
#[test]
fn looks_that_hang_alone_are_a_silence_too() {
    let store = opened("rbd:pool/well.looks,busy=30ms").expect("opens");
    let (fake, driver) = (Fake::of("well.looks"), Driver::new());
    let status = Op::ProvisioningStatus { offset: 0, length: 4096 };
    let gate = fake.hold_orders();
    for ticket in 0..3 {
        let Submitted::Io(io) = store.submit(&status) else { panic!("nothing is under way") };
        driver.begin(&io, ticket);
    }
    std::thread::sleep(Duration::from_millis(60));
    for op in [&status, &Op::Read { offset: 0, length: 512 }] {
        let Submitted::Done(outcome) = store.submit(op) else { panic!("{op:?}") };
        fails(&outcome, Error::Silent);
    }
    assert!(store.elsewhere().is_some_and(|told| told.is_busy));
    drop(gate);
    for _ in 0..3 {
        let (_, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
        assert!(matches!(outcome, Outcome::ProvisioningStatus(_)), "{outcome:?}");
    }
    assert!(matches!(driver.run(&store, &status), Outcome::ProvisioningStatus(_)));
    // One that does not begin any more holds up no close.
    let gate = fake.hold_orders();
    for ticket in 0..2 {
        let Submitted::Io(io) = store.submit(&status) else { panic!("nothing is under way") };
        driver.begin(&io, ticket);
    }
    store.begin_finish();
    let Submitted::Io(io) = store.submit(&status) else { panic!("soon") };
    driver.begin(&io, 2);
    drop(gate);
    assert_eq!(store.finish(), Ok(()));
    let mut tickets: Vec<u64> =
        (0..3).map(|_| driver.answers.recv_timeout(PATIENCE).expect("an end").0).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, [0, 1, 2]);
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

/// Soon, by a thread of its own.
#[track_caller]
fn gone(fake: &Fake) {
    let begin = Instant::now();
    while fake.is_open() {
        assert!(begin.elapsed() < PATIENCE, "closed when nobody has it any more");
        std::thread::sleep(Duration::from_millis(1));
    }
}
