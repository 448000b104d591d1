// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One suite over every store: what holds for all of them, against a model of bytes.

use buf::{BUF_LEN_MAX, Pool, Slice};
use clock::Instant;
use lunwire_store::file::File;
use lunwire_store::filter::{
    Delay, Delayed, Failing, Fault, Journal, Limit, Log, NoDiscard, Rate, ReadOnly, When,
};
use lunwire_store::memory::Memory;
use lunwire_store::null::Null;
use lunwire_store::stripe::Stripe;
use lunwire_store::{
    Error, FileId, FilterIndex, Geometry, Io, IoResult, Op, Outcome, Space, Store, Submitted,
};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::cell::Cell;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Above two pieces of written zeroes, with a rest, and not a multiple of the page.
const BYTES: u64 = (2 << 20) + 5 * 512;

/// What a file under a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Can {
    Write,
    ZeroToo,
    PunchToo,
}

/// A store with all that it needs to run.
#[derive(Debug)]
struct Subject {
    name: &'static str,
    store: Arc<dyn Store>,
    keeps: bool,
    files: Vec<(FileId, fs::File)>,
    can: Can,
    /// Pieces of 4096 bytes that were reserved, as the file system would know them.
    reserved: RefCell<HashSet<(FileId, u64)>>,
    pool: Pool,
    now: Cell<Instant>,
}

impl Subject {
    fn new(name: &'static str, store: impl Store + 'static) -> Self {
        let pool = Pool::new(BUF_LEN_MAX).expect("room");
        let now = Cell::new(Instant(1 << 40));
        let (store, files) = (Arc::new(store), Vec::new());
        let reserved = RefCell::default();
        Self { name, store, keeps: true, files, can: Can::PunchToo, reserved, pool, now }
    }

    fn file(name: &'static str, can: Can, sync: bool) -> Self {
        let (id, file, store) = file_store(3, BYTES, sync);
        Self { files: vec![(id, file)], can, ..Self::new(name, store) }
    }

    /// The same store behind filters.
    fn behind(
        mut self,
        name: &'static str,
        filter: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Self {
        self.name = name;
        self.store = filter(self.store);
        self
    }

    fn bytes(&self) -> u64 {
        self.store.geometry().bytes
    }

    fn only_file(&self) -> &fs::File {
        &self.files.first().expect("a file").1
    }

    /// Drives `op` to its end.
    fn run(&self, op: &Op) -> Outcome {
        let mut next = self.store.submit(op);
        for _ in 0..10_000 {
            match next {
                Submitted::Done(outcome) => return outcome,
                Submitted::Io(io) => {
                    let mut work = &io;
                    while let Io::Part(part) = work {
                        work = part.io();
                    }
                    let result = self.io(work);
                    next = self.store.complete(op, &io, result);
                }
            }
        }
        panic!("{}: {op:?} has no end", self.name);
    }

    fn io(&self, io: &Io) -> IoResult {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(0);
        let id = match io {
            Io::Clock { .. } => return IoResult::Clock(self.now.get()),
            Io::Pause { length, .. } => {
                self.now.set(self.now.get() + *length);
                return IoResult::Clock(self.now.get());
            }
            Io::Read { file, .. }
            | Io::Write { file, .. }
            | Io::Sync { file }
            | Io::Clear { file, .. }
            | Io::ProvisioningStatus { file, .. } => *file,
            Io::Foreign(_) | Io::Part(_) => unreachable!("none here, or taken apart by the caller"),
        };
        let (_, file) = self.files.iter().find(|(own, _)| *own == id).expect("a known file");
        if let Io::ProvisioningStatus { offset, .. } = io {
            let is_reserved = |at: u64| self.reserved.borrow().contains(&(id, at / PIECE));
            return IoResult::ProvisioningStatus(allocation(file, *offset, is_reserved));
        }
        let forget = |pieces: Range<u64>| {
            self.reserved.borrow_mut().retain(|(own, at)| *own != id || !pieces.contains(at));
        };
        IoResult::Other(match io {
            Io::Read { offset, length, .. } => {
                let mut buf = self.pool.take(*length as usize).expect("room");
                let read = file.read_at(&mut buf, *offset).map_err(errno);
                return IoResult::Read(read.map(|len| {
                    buf.truncate(len);
                    buf.freeze()
                }));
            }
            Io::Write { offset, data, .. } => {
                forget(offset / PIECE..(offset + data.len() as u64).div_ceil(PIECE));
                file.write_all_at(&data.to_vec(), *offset).map_err(errno)
            }
            Io::Sync { .. } => file.sync_all().map_err(errno),
            Io::Clear { offset, length, leave: Space::Deallocated, .. } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let first = offset.div_ceil(PIECE);
                forget(first..((offset + length) / PIECE).max(first));
                self.allocate(file, Can::PunchToo, flags, *offset, *length)
            }
            Io::Clear { offset, length, leave: Space::Anchored, .. } => {
                let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                let done = self.allocate(file, Can::PunchToo, flags, *offset, *length);
                if done.is_ok() {
                    let pieces = offset / PIECE..(offset + length).div_ceil(PIECE);
                    self.reserved.borrow_mut().extend(pieces.map(|at| (id, at)));
                }
                done
            }
            Io::Clear { offset, length, leave: Space::Mapped, .. } => {
                let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                self.allocate(file, Can::ZeroToo, flags, *offset, *length)
            }
            _ => unreachable!("answered above"),
        })
    }

    fn allocate(
        &self,
        file: &fs::File,
        need: Can,
        flags: FallocateFlags,
        at: u64,
        len: u64,
    ) -> Result<(), i32> {
        if self.can < need {
            return Err(Errno::OPNOTSUPP.raw_os_error());
        }
        fallocate(file, flags, at, len).map_err(Errno::raw_os_error)
    }

    /// What stands behind the bytes at `offset`, and how far. A store may tell of a part of a run:
    /// the rest is asked for.
    fn status(&self, offset: u64, length: u64) -> (Space, u64) {
        let (name, end) = (self.name, offset + length);
        let mut first = None;
        let mut at = offset;
        while at < end {
            let op = Op::ProvisioningStatus { offset: at, length: end - at };
            let Outcome::ProvisioningStatus(run) = self.run(&op) else { panic!("{name}: a run") };
            assert!(run.length > 0 && at + run.length <= end, "{name}");
            if *first.get_or_insert(run.space) != run.space {
                break;
            }
            at += run.length;
        }
        (first.expect("asked about something"), at - offset)
    }

    fn read(&self, offset: u64, length: u32) -> Vec<u8> {
        match self.run(&Op::Read { offset, length }) {
            Outcome::Data(data) => data.to_vec(),
            outcome => panic!("{}: {outcome:?}", self.name),
        }
    }
}

/// A sparse file and the store in it.
fn file_store(id: u32, bytes: u64, sync: bool) -> (FileId, fs::File, File) {
    let file = tempfile::tempfile().expect("a place for files");
    file.set_len(bytes).expect("a sparse file");
    let geometry = Geometry {
        bytes,
        read_only: false,
        discard_granularity: Some(4096),
        anchors: true,
        volatile_cache: !sync,
        physical_block: 4096,
        rotational: false,
    };
    (FileId(id), file, File::new(FileId(id), geometry, sync))
}

/// Three stores as one, of which the first and the last are files.
fn stripe() -> Subject {
    let bytes = 170 * 4096;
    let (first, first_file, first_store) = file_store(1, bytes, false);
    let (last, last_file, last_store) = file_store(2, bytes + 512, false);
    let memory: Arc<dyn Store> = Arc::new(Memory::new(bytes).expect("room"));
    let memory =
        Arc::new(Delay::new(memory, FilterIndex(0), Delayed::All, Duration::from_millis(1)));
    let stores: Vec<Arc<dyn Store>> = vec![Arc::new(first_store), memory, Arc::new(last_store)];
    let stripe = Stripe::new(4096, stores).expect("legal");
    let files = vec![(first, first_file), (last, last_file)];
    Subject { files, ..Subject::new("stripe", stripe) }
}

/// Counts what it is told.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Journal for Count {
    fn ended(&self, _: &Op, _: &Outcome) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Filters that change nothing but the time.
fn filters(behind: Arc<dyn Store>) -> Arc<dyn Store> {
    let time = Duration::from_millis(3);
    let delay = Arc::new(Delay::new(behind, FilterIndex(0), Delayed::Writes, time));
    let limit = Arc::new(Limit::new(delay, FilterIndex(1), Rate::Operations(50)));
    let limit = Arc::new(Limit::new(limit, FilterIndex(2), Rate::Bytes(1 << 20)));
    let never = When::Every(u64::MAX);
    let failing = Arc::new(Failing::new(limit, Fault::Write, never));
    let log = Arc::new(Log::new(failing, Arc::new(Count::default())));
    Arc::new(Delay::new(log, FilterIndex(3), Delayed::Reads, time))
}

/// Unit of what is reserved, bytes.
const PIECE: u64 = 4096;

/// What a file has at `offset`, and where that ends.
fn allocation(
    file: &fs::File,
    offset: u64,
    is_reserved: impl Fn(u64) -> bool,
) -> Result<(Space, u64), i32> {
    let end = file.metadata().map_or(0, |facts| facts.len());
    let reserved = is_reserved(offset);
    let mut alike = offset;
    while alike < end && is_reserved(alike) == reserved {
        alike = (alike + 1).next_multiple_of(PIECE);
    }
    // Space that was reserved may seem to be data as long as it is in the page cache.
    if reserved {
        return Ok((Space::Anchored, alike.min(end)));
    }
    let hole = seek(file, SeekFrom::Hole(offset)).map_err(Errno::raw_os_error)?;
    if hole > offset {
        return Ok((Space::Mapped, hole.min(alike)));
    }
    let data = seek(file, SeekFrom::Data(offset)).unwrap_or(end);
    Ok((Space::Deallocated, data.min(alike)))
}

/// True if the temporary folder's file system can set space aside.
fn files_can_reserve() -> bool {
    let file = tempfile::tempfile().expect("a place for files");
    fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 0, PIECE).is_ok()
}

/// Every store there is, in every way in which it can be set up.
fn subjects() -> Vec<Subject> {
    let null = Null::new(BYTES).expect("room");
    vec![
        Subject::new("memory", Memory::new(BYTES).expect("room")),
        Subject { keeps: false, ..Subject::new("null", null) },
        Subject::file("file", Can::PunchToo, false),
        Subject::file("file, sync", Can::PunchToo, true),
        Subject::file("file that cannot punch", Can::ZeroToo, false),
        Subject::file("file that can only write", Can::Write, false),
        Subject::file("file that can only write, sync", Can::Write, true),
        Subject::new("memory", Memory::new(BYTES).expect("room"))
            .behind("memory, filters", filters),
        Subject::file("file", Can::PunchToo, false).behind("file, filters", filters),
        Subject::file("file", Can::PunchToo, false)
            .behind("discard=off", |behind| Arc::new(NoDiscard::new(behind))),
        stripe(),
        stripe().behind("stripe, filters", filters),
    ]
}

fn write(offset: u64, bytes: Vec<u8>) -> Op {
    Op::Write { offset, data: Slice::from(bytes), durable: false }
}

fn any_space() -> impl Strategy<Value = Space> {
    prop_oneof![Just(Space::Deallocated), Just(Space::Mapped), Just(Space::Anchored)]
}

fn op() -> impl Strategy<Value = Op> {
    let blocks = BYTES / 512;
    let range = (0..blocks + 2, 0..blocks).prop_map(|(at, len)| (at * 512, len * 512));
    let short = (0..blocks + 2, 0..40_u64).prop_map(|(at, len)| (at * 512, len * 512));
    let any_range = || prop_oneof![range.clone(), short.clone()];
    prop_oneof![
        3 => (short.clone(), 1..255_u8, any::<bool>()).prop_map(|((offset, len), byte, durable)| {
            let len = usize::try_from(len).expect("short");
            Op::Write { offset, data: Slice::from(vec![byte; len]), durable }
        }),
        3 => any_range().prop_map(|(offset, len)| {
            Op::Read { offset, length: u32::try_from(len).expect("short") }
        }),
        1 => Just(Op::Flush),
        3 => (any_range(), any_space()).prop_map(|((offset, length), leave)| {
            Op::Clear { offset, length, leave }
        }),
    ]
}

/// What `op` gives on plain bytes; None: it is refused.
fn model(bytes: &mut [u8], op: &Op) -> Option<Vec<u8>> {
    let (offset, length) = op.range();
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    let range = bytes.get_mut(start..end)?;
    match op {
        Op::Read { .. } => return Some(range.to_vec()),
        Op::Write { data, .. } => range.copy_from_slice(&data.to_vec()),
        Op::Clear { leave: Space::Deallocated, .. }
        | Op::Clear { leave: Space::Mapped, .. }
        | Op::Clear { leave: Space::Anchored, .. } => range.fill(0),
        Op::Flush | Op::ProvisioningStatus { .. } => {}
        // None of these stores offers them.
        Op::CompareAndWrite { .. } | Op::WriteSame { .. } => return None,
    }
    Some(Vec::new())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_store_behaves_as_bytes_do(ops in proptest::collection::vec(op(), 1..30)) {
        for subject in subjects() {
            let mut bytes = vec![0; usize::try_from(subject.bytes()).expect("small")];
            for op in &ops {
                let expected = model(&mut bytes, op);
                if !subject.keeps {
                    bytes.fill(0);
                }
                let reads = matches!(op, Op::Read { .. });
                match (subject.run(op), expected) {
                    (Outcome::Data(data), Some(expected)) => {
                        prop_assert!(reads);
                        let expected = if subject.keeps { expected } else { vec![0; data.len()] };
                        prop_assert!(data.to_vec() == expected, "{}: {:?}", subject.name, op);
                    }
                    (Outcome::Done, Some(_)) => prop_assert!(!reads),
                    (Outcome::Failed(error), None) => prop_assert_eq!(error, Error::Range),
                    (outcome, _) => prop_assert!(false, "{}: {:?}", subject.name, outcome),
                }
            }
            let whole = subject.read(0, u32::try_from(subject.bytes()).expect("small"));
            prop_assert!(whole == bytes, "{}", subject.name);
        }
    }
}

#[test]
fn a_fresh_store_reads_as_zero_to_its_last_byte() {
    for subject in subjects() {
        let geometry = subject.store.geometry();
        let bytes = geometry.bytes;
        let expected = if subject.name.starts_with("stripe") { 510 * 4096 } else { BYTES };
        assert_eq!(bytes, expected, "{}", subject.name);
        assert!(geometry.physical_block.is_power_of_two(), "{}", subject.name);
        assert_eq!(subject.read(bytes - 512, 512), [0; 512], "{}", subject.name);
        assert_eq!(subject.read(bytes, 0), [], "{}", subject.name);
    }
}

#[test]
fn ranges_that_overflow_are_refused() {
    for subject in subjects() {
        let bytes = subject.bytes();
        let ops = [
            Op::Read { offset: u64::MAX, length: u32::MAX },
            Op::Read { offset: bytes - 512, length: 1024 },
            Op::Read { offset: bytes + 1, length: 0 },
            write(u64::MAX - 511, vec![1; 512]),
            write(bytes - 511, vec![1; 512]),
            Op::Clear { offset: 512, length: u64::MAX, leave: Space::Deallocated },
            Op::Clear { offset: u64::MAX, length: 1, leave: Space::Mapped },
            Op::Clear { offset: bytes, length: 1, leave: Space::Anchored },
        ];
        for op in ops {
            let outcome = subject.run(&op);
            let refused = matches!(outcome, Outcome::Failed(Error::Range));
            assert!(refused, "{}: {op:?}: {outcome:?}", subject.name);
        }
    }
}

#[test]
fn one_store_can_be_copied_to_another() {
    let source = Subject::new("memory", Memory::new(BYTES).expect("room"));
    let pattern: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    assert!(matches!(source.run(&write(1000, pattern.clone())), Outcome::Done));
    for subject in subjects().iter().filter(|subject| subject.keeps) {
        let Outcome::Data(data) = source.run(&Op::Read { offset: 1000, length: 70_000 }) else {
            panic!("the memory store reads");
        };
        let op = Op::Write { offset: 4096, data, durable: true };
        assert!(matches!(subject.run(&op), Outcome::Done), "{}", subject.name);
        assert_eq!(subject.read(4096, 70_000), pattern, "{}", subject.name);
    }
}

#[test]
fn a_file_that_is_cut_short_is_unreadable_behind_the_cut() {
    let subject = Subject::file("file", Can::PunchToo, false);
    let file = subject.only_file();
    file.set_len(4096 + 100).expect("shorter");
    assert_eq!(subject.read(0, 4096), [0; 4096]);
    for offset in [4096, 8192] {
        let outcome = subject.run(&Op::Read { offset, length: 512 });
        assert!(matches!(outcome, Outcome::Failed(Error::Read)), "{outcome:?}");
    }
}

#[test]
fn a_discard_gives_the_space_of_a_file_back() {
    use std::os::unix::fs::MetadataExt;
    let subject = Subject::file("file", Can::PunchToo, false);
    let file = subject.only_file();
    assert!(matches!(subject.run(&write(0, vec![1; 1 << 20])), Outcome::Done));
    let blocks = || {
        file.sync_all().expect("stable");
        file.metadata().expect("a file").blocks()
    };
    let before = blocks();
    assert!(before >= 2048, "the file takes up what was written");
    let outcome = subject.run(&Op::Clear { offset: 0, length: 1 << 20, leave: Space::Deallocated });
    assert!(matches!(outcome, Outcome::Done));
    // A file system without holes has had zeroes written, which is as right for the reader.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if fallocate(file, flags, 0, 4096).is_ok() {
        assert!(blocks() <= before - 2048, "{} of {before} blocks are left", blocks());
    }
    assert_eq!(subject.read(0, 1 << 20), vec![0; 1 << 20]);
}

#[test]
fn status_tells_what_was_written() {
    use Space::{Deallocated, Mapped};
    for subject in subjects() {
        let (name, bytes) = (subject.name, subject.bytes());
        let status = |offset, length| subject.status(offset, length);
        if name == "null" {
            assert_eq!(status(0, bytes), (Mapped, bytes), "{name}");
            continue;
        }
        assert_eq!(status(512, bytes - 512), (Deallocated, bytes - 512), "{name}");
        subject.run(&write(8192, vec![1; 8192]));
        assert_eq!(status(0, bytes), (Deallocated, 8192), "{name}");
        assert_eq!(status(8192, bytes - 8192), (Mapped, 8192), "{name}");
        assert_eq!(status(8192 + 512, 512), (Mapped, 512), "{name}");
        if subject.can == Can::PunchToo && name != "discard=off" {
            subject.run(&Op::Clear { offset: 8192, length: 4096, leave: Deallocated });
            assert_eq!(status(8192, 8192), (Deallocated, 4096), "{name}");
        }
    }
}

#[test]
fn what_is_anchored_takes_space_and_holds_nothing() {
    let files = files_can_reserve();
    for subject in subjects() {
        let name = subject.name;
        let anchor = |offset, length| {
            let outcome = subject.run(&Op::Clear { offset, length, leave: Space::Anchored });
            assert!(matches!(outcome, Outcome::Done), "{name}: {outcome:?}");
        };
        subject.run(&write(16_384, vec![1; 16_384]));
        anchor(8192, 16_384);
        assert_eq!(subject.store.geometry().anchors, name != "null" && name != "discard=off");
        let mut expected = vec![0; 32_768];
        if subject.keeps {
            expected[24_576..].fill(1);
        }
        if !subject.store.geometry().anchors {
            assert_eq!(subject.read(0, 32_768), expected, "{name}");
            continue;
        }
        let anchored = match subject.can {
            Can::PunchToo if files || subject.files.is_empty() => Space::Anchored,
            // Written zeroes take the space as well.
            _ => Space::Mapped,
        };
        let until_data = if anchored == Space::Mapped { 24_576 } else { 16_384 };
        assert_eq!(subject.status(0, 32_768), (Space::Deallocated, 8192), "{name}");
        assert_eq!(subject.status(8192, 24_576), (anchored, until_data), "{name}");
        assert_eq!(subject.status(24_576, 8192), (Space::Mapped, 8192), "{name}");
        // What is there already stays; a part of a block takes all of it.
        anchor(8192, 8192);
        anchor(40_960 + 512, 512);
        assert_eq!(subject.status(8192, 8192), (anchored, 8192), "{name}");
        assert_eq!(subject.status(40_960, 8192), (anchored, 4096), "{name}");
        assert_eq!(subject.read(0, 32_768), expected, "{name}");
        subject.run(&write(8192, vec![1; 512]));
        assert_eq!(subject.status(8192, 4096), (Space::Mapped, 4096), "{name}");
        if let Some(usage) = subject.store.usage() {
            assert_eq!(usage.used, 28_672, "{name}: as much as if it were written");
        }
        if subject.can == Can::PunchToo {
            subject.run(&Op::Clear { offset: 8192, length: 8192, leave: Space::Deallocated });
            assert_eq!(subject.status(8192, 8192), (Space::Deallocated, 8192), "{name}");
        }
    }
}

#[test]
fn a_read_only_filter_refuses_changes_and_nothing_else() {
    let memory = Memory::new(BYTES).expect("room");
    let subject = Subject::new("readonly", ReadOnly::new(Arc::new(memory)));
    let geometry = subject.store.geometry();
    assert!(geometry.read_only && geometry.discard_granularity.is_none());
    let (offset, length) = (0, 512);
    let (discard, zero) = (
        Op::Clear { offset, length, leave: Space::Deallocated },
        Op::Clear { offset, length, leave: Space::Mapped },
    );
    assert!(!geometry.anchors);
    for op in [
        write(0, vec![1; 512]),
        discard,
        zero,
        Op::Clear { offset, length, leave: Space::Anchored },
    ] {
        assert!(matches!(subject.run(&op), Outcome::Failed(Error::ReadOnly)), "{op:?}");
    }
    assert!(matches!(subject.run(&Op::Flush), Outcome::Done));
    assert_eq!(subject.read(0, 512), [0; 512]);
    assert!(!subject.store.set_bytes(512) && subject.store.file().is_none());
}

#[test]
fn without_discard_space_stays() {
    let subject = Subject::file("discard=off", Can::PunchToo, false)
        .behind("discard=off", |behind| Arc::new(NoDiscard::new(behind)));
    assert_eq!(subject.store.geometry().discard_granularity, None);
    subject.run(&write(0, vec![1; 65_536]));
    let (offset, length) = (0, 65_536);
    for op in [
        Op::Clear { offset, length, leave: Space::Anchored },
        Op::Clear { offset, length, leave: Space::Deallocated },
    ] {
        let Submitted::Io(io) = subject.store.submit(&op) else { panic!("work") };
        assert!(matches!(io, Io::Clear { leave: Space::Mapped, .. }), "{io:?}");
        assert!(matches!(subject.run(&op), Outcome::Done));
    }
    assert_eq!(subject.read(0, 65_536), vec![0; 65_536]);
}

#[test]
fn errors_come_when_they_were_asked_for_and_touch_nothing() {
    let failing = |fault, when| {
        let memory = Memory::new(BYTES).expect("room");
        Subject::new("error", Failing::new(Arc::new(memory), fault, when))
    };
    let subject = failing(Fault::Write, When::Every(3));
    let outcomes: Vec<bool> = (0..9)
        .map(|at| matches!(subject.run(&write(at * 512, vec![1; 512])), Outcome::Done))
        .collect();
    assert_eq!(outcomes, [true, true, false, true, true, false, true, true, false]);
    assert_eq!(subject.read(2 * 512, 512), [0; 512], "nothing of a failed write is there");
    let subject = failing(Fault::Read, When::Within { offset: 4096, length: 512 });
    for (offset, length, fails) in [(0, 4096, false), (4608, 512, false), (0, 8192, true)] {
        let outcome = subject.run(&Op::Read { offset, length });
        assert_eq!(matches!(outcome, Outcome::Failed(Error::Read)), fails, "{offset}");
    }
    let subject = failing(Fault::Space, When::Every(1));
    let outcome = subject.run(&write(0, vec![1; 512]));
    assert!(matches!(outcome, Outcome::Failed(Error::Space)));
    assert!(matches!(subject.run(&Op::Flush), Outcome::Done));
    let subject = failing(Fault::Flush, When::Every(1));
    assert!(matches!(subject.run(&Op::Flush), Outcome::Failed(Error::Write)));
}

#[test]
fn a_delay_passes_before_the_operation() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new(BYTES).expect("room"));
    let time = Duration::from_millis(10);
    let outer = Delay::new(
        Arc::new(Delay::new(memory, FilterIndex(0), Delayed::All, time)),
        FilterIndex(1),
        Delayed::Reads,
        time,
    );
    let subject = Subject::new("delay", outer);
    let took = |op: &Op| {
        let begun = subject.now.get();
        subject.run(op);
        subject.now.get().since(begun)
    };
    assert_eq!(took(&write(0, vec![1; 512])), time);
    assert_eq!(took(&Op::Read { offset: 0, length: 512 }), 2 * time, "both");
    assert_eq!(took(&Op::Flush), time);
}

#[test]
fn a_log_hears_of_every_end() {
    #[derive(Debug, Default)]
    struct Lines(Mutex<Vec<String>>);
    impl Journal for Lines {
        fn ended(&self, op: &Op, outcome: &Outcome) {
            let how = if matches!(outcome, Outcome::Failed(_)) { "failed" } else { "done" };
            self.0.lock().expect("unbroken").push(format!("{:?} {how}", op.range()));
        }
    }
    let lines = Arc::new(Lines::default());
    let journal = Arc::<Lines>::clone(&lines);
    let subject = Subject::file("log", Can::PunchToo, false)
        .behind("log", |behind| Arc::new(Log::new(behind, journal)));
    subject.run(&write(0, vec![1; 512]));
    subject.read(512, 1024);
    subject.run(&write(BYTES, vec![1; 512]));
    let expected = ["(0, 512) done", "(512, 1024) done", "(2099712, 512) failed"];
    assert_eq!(*lines.0.lock().expect("unbroken"), expected);
}

#[test]
fn a_file_gets_another_size_through_its_filters() {
    let subject = Subject::file("file", Can::PunchToo, false).behind("file, filters", filters);
    assert_eq!(subject.store.file(), Some(FileId(3)));
    subject.only_file().set_len(2 * BYTES).expect("longer");
    assert!(subject.store.set_bytes(2 * BYTES));
    assert!(matches!(subject.run(&write(2 * BYTES - 512, vec![1; 512])), Outcome::Done));
    assert!(subject.store.set_bytes(4096));
    let outcome = subject.run(&Op::Read { offset: 4096, length: 512 });
    assert!(matches!(outcome, Outcome::Failed(Error::Range)));
    let memory = Memory::new(BYTES).expect("room");
    assert!(memory.file().is_none() && !memory.set_bytes(BYTES * 2));
    assert!(stripe().store.file().is_none());
}

#[test]
fn a_file_that_becomes_smaller_is_not_written_behind_its_end() {
    let (_, _, store) = file_store(1, BYTES, false);
    let op = Op::Clear { offset: 0, length: BYTES, leave: Space::Mapped };
    let Submitted::Io(io) = store.submit(&op) else { panic!("work") };
    store.set_bytes(4096);
    let unsupported = IoResult::Other(Err(Errno::OPNOTSUPP.raw_os_error()));
    let next = store.complete(&op, &io, unsupported);
    assert!(matches!(next, Submitted::Done(Outcome::Failed(Error::Range))), "{next:?}");
}
