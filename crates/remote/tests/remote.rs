// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of a target in this process, as stores.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use buf::Pool;
use buf::Slice;
use initiator::Config;
use initiator::Disk;
use initiator::Initiator;
use initiator::Options;
use lunwire_remote::Remote;
use lunwire_remote::RemoteError;
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

const IQN: &str = "iqn.2026-01.com.example:disks";
const BYTES: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const ANYWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// A target with one disk.
fn serve(listen: SocketAddr, block: u32, word: &str) -> target::Target {
    let mut stores = target::Stores::new();
    let spec = word.parse().unwrap();
    let store = stores.open(&spec).unwrap();
    let identity = target::Identity::derive(IQN, 0, "EXAMPLE", "DISK");
    let unit = target::LogicalUnit::new(identity, store, block).unwrap();
    let node = target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
    target::Target::start(target::Plan::new(vec![listen.into()], vec![node], stores)).unwrap()
}

/// Lets go of all that is served.
fn end(target: target::Target) {
    target.stop(Duration::ZERO).unwrap();
}

fn open(portal: SocketAddr, wait: Duration, busy: Duration) -> Result<Remote, RemoteError> {
    let initiator = Initiator::start(&Config::default()).unwrap();
    let mut options = Options::new(portal.to_string(), Some(IQN.to_owned()));
    options.reconnect_patience = wait;
    let session = initiator.connect(options).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    Remote::new(session, disk, "iscsi://elsewhere", Some(busy))
}

/// A file of that size, and the word for a store in it.
fn file() -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BYTES).unwrap();
    let word = format!("file:{}", file.path().display());
    (file, word)
}

#[derive(Debug)]
struct Inbox(Mutex<mpsc::Sender<Outcome>>);

impl Answers for Inbox {
    fn answer(&self, _ticket: u64, outcome: Outcome) {
        // A test may have seen enough.
        let _ = self.0.lock().unwrap().send(outcome);
    }
}

/// An operation that has begun.
struct Begun {
    op: Op,
    io: Option<Io>,
    told: mpsc::Receiver<Outcome>,
}

/// Does what a reactor does with what a store wants.
fn begin(store: &dyn Store, op: Op) -> Begun {
    let submitted = store.submit(&op);
    follow(op, submitted)
}

fn follow(op: Op, submitted: Submitted) -> Begun {
    let (tell, told) = mpsc::channel();
    let io = match submitted {
        Submitted::Done(outcome) => {
            tell.send(outcome).unwrap();
            None
        }
        Submitted::Io(io) => {
            let Io::Foreign(errand) = &io else { panic!("{io:?}") };
            let pool = Pool::new(4 << 20).unwrap();
            let room = errand.room() as usize;
            let buf = (room > 0).then(|| pool.take(room).unwrap());
            errand.begin(Arc::new(Inbox(Mutex::new(tell))), 1, buf);
            Some(io)
        }
    };
    Begun { op, io, told }
}

impl Begun {
    fn is_over(&mut self, within: Duration) -> Option<Outcome> {
        self.told.recv_timeout(within).ok()
    }

    fn end(self, store: &dyn Store) -> Outcome {
        let Self { op, io, told } = self;
        let outcome = told.recv_timeout(PATIENCE).expect("an end");
        let Some(io) = io else { return outcome };
        match store.complete(&op, &io, IoResult::Foreign(outcome)) {
            Submitted::Done(outcome) => outcome,
            more @ Submitted::Io(_) => follow(op, more).end(store),
        }
    }
}

fn carry_out(store: &dyn Store, op: Op) -> Outcome {
    begin(store, op).end(store)
}

fn write(offset: u64, bytes: &[u8], durable: bool) -> Op {
    Op::Write { offset, data: Slice::from(bytes.to_vec()), durable }
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done)
}

#[track_caller]
fn expect_bytes(store: &dyn Store, offset: u64, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap();
    match carry_out(store, Op::Read { offset, length }) {
        Outcome::Data(data) => assert!(data.to_vec() == bytes, "other bytes at {offset}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn expect_error(outcome: &Outcome, error: Error) {
    assert!(matches!(outcome, Outcome::Failed(found) if *found == error), "{outcome:?}");
}

#[test]
fn what_hosts_do_is_done_at_the_other_target() {
    let target = serve(ANYWHERE.into(), 512, &format!("memory:{BYTES}"));
    let disk = open(target.portals()[0], PATIENCE, PATIENCE).unwrap();
    let geometry = disk.geometry();
    assert_eq!((geometry.bytes, disk.block(), geometry.read_only), (BYTES, 512, false));
    let pattern: Vec<u8> = (0..1_500_160_u32).map(|at| (at / 3).to_le_bytes()[0]).collect();
    assert!(is_done(&carry_out(&disk, write(512, &pattern, false))));
    expect_bytes(&disk, 512, &pattern);
    assert!(is_done(&carry_out(&disk, write(0, &[9; 1024], true))));
    expect_bytes(&disk, 0, &[9; 1024]);
    expect_bytes(&disk, 1024, &pattern[512..1024]);
    for leave in [Space::Deallocated, Space::Mapped] {
        assert!(is_done(&carry_out(&disk, write(4096, &[7; 8192], false))));
        assert!(is_done(&carry_out(&disk, Op::Clear { offset: 4096, length: 8192, leave })));
        expect_bytes(&disk, 4096, &[0; 8192]);
    }
    assert!(is_done(&carry_out(&disk, Op::Flush)));
    disk.finish().unwrap();
    assert!(target.sessions().is_empty(), "it has logged out");
}

#[test]
fn what_has_space_there_is_told() {
    let target = serve(ANYWHERE.into(), 512, &format!("memory:{BYTES}"));
    let disk = open(target.portals()[0], PATIENCE, PATIENCE).unwrap();
    assert!(disk.geometry().discard_granularity.is_some());
    assert!(is_done(&carry_out(&disk, write(0, &[1; 8192], false))));
    let leave = Space::Deallocated;
    assert!(is_done(&carry_out(&disk, Op::Clear { offset: 4096, length: 4096, leave })));
    for (offset, space) in [(0, Space::Mapped), (4096, Space::Deallocated)] {
        let status = carry_out(&disk, Op::ProvisioningStatus { offset, length: 4096 });
        let run = Run { space, length: 4096 };
        assert!(matches!(status, Outcome::ProvisioningStatus(told) if told == run), "{status:?}");
    }
}

#[test]
fn bytes_are_compared_and_written_as_one_there() {
    let target = serve(ANYWHERE.into(), 512, &format!("memory:{BYTES}"));
    let disk = open(target.portals()[0], PATIENCE, PATIENCE).unwrap();
    let swap = |offset, old: u8, new: u8, length| {
        let [old, new] = [old, new].map(|byte| Slice::from(vec![byte; length]));
        carry_out(&disk, Op::CompareAndWrite { offset, old, new, durable: true })
    };
    assert!(is_done(&swap(512, 0, 1, 512)));
    let other = swap(512, 0, 2, 512);
    assert!(matches!(other, Outcome::Miscompare(Some(0) | None)), "{other:?}");
    expect_bytes(&disk, 512, &[1; 512]);
    let unit = disk.compare_unit().unwrap();
    assert!(unit.is_power_of_two() && unit >= 512);
    expect_error(&swap(u64::from(unit) - 512, 1, 2, 1024), Error::Unsupported);
    assert!(is_done(&swap(0, 0, 0, 0)));
}

#[test]
fn commands_wait_for_the_session_and_hosts_hear_busy_after_a_while() {
    let (_file, word) = file();
    let first = serve(ANYWHERE.into(), 512, &word);
    let portal = first.portals()[0];
    let disk = open(portal, Duration::MAX, Duration::from_millis(300)).unwrap();
    assert!(is_done(&carry_out(&disk, write(0, &[1; 512], true))));
    end(first);
    let mut waiting = begin(&disk, write(512, &[2; 512], false));
    assert!(waiting.is_over(Duration::from_millis(700)).is_none());
    assert!(disk.elsewhere().unwrap().is_busy);
    expect_error(&carry_out(&disk, Op::Read { offset: 0, length: 512 }), Error::Silent);
    let _second = serve(portal, 512, &word);
    assert!(is_done(&waiting.end(&disk)));
    let until = Instant::now() + PATIENCE;
    while disk.elsewhere().unwrap().is_busy && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    expect_bytes(&disk, 0, &[1; 512]);
    expect_bytes(&disk, 512, &[2; 512]);
}

#[test]
fn after_the_last_wait_all_fails_for_good() {
    let target = serve(ANYWHERE.into(), 512, &format!("memory:{BYTES}"));
    let disk = open(target.portals()[0], Duration::from_millis(200), PATIENCE).unwrap();
    end(target);
    let lost = carry_out(&disk, Op::Read { offset: 0, length: 512 });
    assert!(matches!(lost, Outcome::Failed(Error::Silent | Error::Internal)), "{lost:?}");
    let until = Instant::now() + PATIENCE;
    while !disk.elsewhere().unwrap().shut_out && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    expect_error(&carry_out(&disk, Op::Read { offset: 0, length: 512 }), Error::Internal);
    expect_error(&carry_out(&disk, write(0, &[1; 512], false)), Error::Internal);
}

/// A file that the system keeps in memory is a volatile cache: a target that begins anew may have
/// lost it.
#[test]
fn a_flush_tells_what_the_other_target_may_have_lost() {
    let (_file, word) = file();
    let first = serve(ANYWHERE.into(), 512, &word);
    let portal = first.portals()[0];
    let disk = open(portal, PATIENCE, PATIENCE).unwrap();
    assert!(disk.geometry().volatile_cache);
    assert!(is_done(&carry_out(&disk, write(0, &[1; 512], false))));
    assert!(is_done(&carry_out(&disk, Op::Flush)));
    assert!(!disk.may_have_lost());
    assert!(is_done(&carry_out(&disk, write(512, &[2; 512], false))));
    end(first);
    let _second = serve(portal, 512, &word);
    expect_error(&carry_out(&disk, Op::Flush), Error::Write);
    assert!(disk.may_have_lost());
    expect_error(&carry_out(&disk, Op::Flush), Error::Write);
    assert_eq!(disk.finish(), Err(Error::Write));
}

/// A disk with a cache, or without; what of it no flush has covered is counted.
#[derive(Debug)]
struct Cached {
    is_volatile: bool,
    unflushed: Arc<Mutex<usize>>,
}

impl Store for Cached {
    fn geometry(&self) -> target::Geometry {
        target::Geometry {
            bytes: BYTES,
            read_only: false,
            discard_granularity: Some(4096),
            anchors: false,
            volatile_cache: self.is_volatile,
            physical_block: 512,
            rotational: false,
        }
    }

    fn compare_unit(&self) -> Option<u32> {
        Some(4096)
    }

    fn submit(&self, op: &Op) -> Submitted {
        let mut unflushed = self.unflushed.lock().unwrap();
        Submitted::Done(match op {
            Op::Read { length, .. } => Outcome::Data(Slice::from(vec![0; *length as usize])),
            Op::Flush => {
                *unflushed = 0;
                Outcome::Done
            }
            op => {
                *unflushed += usize::from(self.is_volatile && op.changes());
                Outcome::Done
            }
        })
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        panic!("it has nothing to complete")
    }
}

/// Hosts that were told of no cache do not flush. When the disk has one nevertheless, what they
/// were told stays true.
#[test]
fn a_disk_that_had_no_cache_goes_on_as_if_it_had_none() {
    let unflushed = Arc::new(Mutex::new(0));
    let serve = |listen: SocketAddr, is_volatile| {
        let store = Arc::new(Cached { is_volatile, unflushed: Arc::clone(&unflushed) });
        let identity = target::Identity::derive(IQN, 0, "EXAMPLE", "DISK");
        let unit = target::LogicalUnit::new(identity, store, 512).unwrap();
        let node = target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
        let plan = target::Plan::new(vec![listen.into()], vec![node], target::Stores::new());
        target::Target::start(plan).unwrap()
    };
    let first = serve(ANYWHERE.into(), false);
    let portal = first.portals()[0];
    let disk = open(portal, PATIENCE, PATIENCE).unwrap();
    assert!(!disk.geometry().volatile_cache);
    assert!(is_done(&carry_out(&disk, write(0, &[1; 512], false))));
    end(first);
    // Under way meanwhile.
    let late = begin(&disk, write(512, &[1; 512], false));
    let second = serve(portal, true);
    assert!(is_done(&late.end(&disk)));
    assert_eq!(*unflushed.lock().unwrap(), 0, "acknowledged, and not on stable storage");
    let zeroes = || Slice::from(vec![0; 512]);
    let clear = Op::Clear { offset: 0, length: 4096, leave: Space::Deallocated };
    let compare = Op::CompareAndWrite { offset: 0, old: zeroes(), new: zeroes(), durable: false };
    for op in [write(0, &[1; 512], false), write(0, &[1; 512], true), clear, compare] {
        assert!(is_done(&carry_out(&disk, op.clone())), "{op:?}");
        assert_eq!(*unflushed.lock().unwrap(), 0, "{op:?}");
    }
    assert!(!disk.geometry().volatile_cache, "it is as hosts know it");
    assert!(!disk.may_have_lost(), "nothing was in a cache");
    end(second);
    let _third = serve(portal, true);
    assert!(is_done(&carry_out(&disk, Op::Flush)), "what was acknowledged was flushed");
    assert!(!disk.may_have_lost());
    assert_eq!(disk.finish(), Ok(()));
}

/// Two gateways whose disks lead to each other, which only a restart of one makes of them: a
/// command goes round there, a little, and then fails.
#[test]
fn gateways_in_a_circle_end_what_goes_round() {
    let serve = |listen: SocketAddr, store: Arc<dyn Store>| {
        let identity = target::Identity::derive(IQN, 0, "EXAMPLE", "DISK");
        let unit = target::LogicalUnit::new(identity, store, 512).unwrap();
        let node = target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
        let plan = target::Plan::new(vec![listen.into()], vec![node], target::Stores::new());
        target::Target::start(plan).unwrap()
    };
    let unflushed = Arc::default();
    let first = serve(ANYWHERE.into(), Arc::new(Cached { is_volatile: false, unflushed }));
    let portal = first.portals()[0];
    let near = Arc::new(open(portal, PATIENCE, PATIENCE).unwrap());
    let second = serve(ANYWHERE.into(), Arc::<Remote>::clone(&near));
    let far = Arc::new(open(second.portals()[0], PATIENCE, PATIENCE).unwrap());
    assert_eq!(far.gateways().len(), 2, "it knows whom it leads through");
    assert_eq!(near.gateways().len(), 1);
    end(first);
    let _first = serve(portal, Arc::<Remote>::clone(&far));
    let disk = {
        let initiator = Initiator::start(&Config::default()).unwrap();
        let options = Options::new(portal.to_string(), Some(IQN.to_owned()));
        Disk::open(&initiator.connect(options).unwrap(), 0).unwrap()
    };
    let began = Instant::now();
    let error = disk.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(began.elapsed() < PATIENCE / 2, "{error}");
    // Whatever goes round has an end, too.
    expect_error(&carry_out(&*near, Op::Read { offset: 0, length: 512 }), Error::Internal);
}

#[test]
fn another_size_is_heard_of() {
    let (_file, word) = file();
    let target = serve(ANYWHERE.into(), 512, &word);
    let disk = open(target.portals()[0], PATIENCE, PATIENCE).unwrap();
    let read = |offset| carry_out(&disk, Op::Read { offset, length: 512 });
    expect_error(&read(BYTES), Error::Range);
    target.resize(IQN, 0, 2 * BYTES, target::Shrink::Refused).unwrap();
    disk.look_behind().unwrap().unwrap();
    assert_eq!(disk.bytes_behind(), Some(2 * BYTES));
    // Hosts know the old one until it is set.
    expect_error(&read(BYTES), Error::Range);
    assert!(disk.set_bytes(2 * BYTES));
    assert!(matches!(read(BYTES), Outcome::Data(_)));
}

#[test]
fn a_disk_of_another_kind_is_none() {
    let target = serve(ANYWHERE.into(), 512, &format!("memory:{BYTES},readonly"));
    let disk = open(target.portals()[0], PATIENCE, PATIENCE).unwrap();
    assert!(disk.geometry().read_only && disk.compare_unit().is_none());
    expect_error(&carry_out(&disk, write(0, &[1; 512], false)), Error::ReadOnly);
    assert!(is_done(&carry_out(&disk, Op::Flush)));
    let target = serve(ANYWHERE.into(), 4096, &format!("memory:{BYTES}"));
    assert_eq!(open(target.portals()[0], PATIENCE, PATIENCE).unwrap().block(), 4096);
}

/// Whoever drops a disk leaves neither a session nor a thread behind.
#[test]
fn who_is_dropped_has_gone() {
    let target = serve(ANYWHERE.into(), 512, &format!("memory:{BYTES}"));
    let disk = open(target.portals()[0], PATIENCE, PATIENCE).unwrap();
    let Begun { told, .. } = begin(&disk, Op::Read { offset: 0, length: 512 });
    let until = Instant::now() + PATIENCE;
    drop(disk);
    while !target.sessions().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(target.sessions().is_empty());
    // The thread has answered before it has gone.
    assert!(told.recv_timeout(PATIENCE).is_ok());
    assert!(told.recv_timeout(PATIENCE).is_err(), "nobody is left who could answer");
}
