// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One suite over every store: what holds for all of them, against a model of bytes.

use buf::{BUF_LEN_MAX, Pool, Slice};
use lunwire_store::file::File;
use lunwire_store::memory::Memory;
use lunwire_store::null::Null;
use lunwire_store::{Error, FileId, Geometry, Io, IoResult, Op, Outcome, Store, Submitted};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::FileExt;

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
    store: Box<dyn Store>,
    keeps: bool,
    file: Option<fs::File>,
    can: Can,
    pool: Pool,
}

impl Subject {
    fn new(name: &'static str, store: impl Store + 'static) -> Self {
        let pool = Pool::new(BUF_LEN_MAX).expect("room");
        let store = Box::new(store);
        Self { name, store, keeps: true, file: None, can: Can::PunchToo, pool }
    }

    fn file(name: &'static str, can: Can, sync: bool) -> Self {
        let file = tempfile::tempfile().expect("a place for files");
        file.set_len(BYTES).expect("a sparse file");
        let geometry = Geometry {
            bytes: BYTES,
            read_only: false,
            discard_granularity: Some(4096),
            volatile_cache: !sync,
            physical_block: 4096,
            rotational: false,
        };
        let store = File::new(FileId(3), geometry, sync);
        Self { file: Some(file), can, ..Self::new(name, store) }
    }

    /// Drives `op` to its end.
    fn run(&self, op: &Op) -> Outcome {
        let mut next = self.store.submit(op);
        for _ in 0..10 {
            match next {
                Submitted::Done(outcome) => return outcome,
                Submitted::Io(io) => {
                    let result = self.io(&io);
                    next = self.store.complete(op, &io, result);
                }
            }
        }
        panic!("{}: {op:?} has no end", self.name);
    }

    fn io(&self, io: &Io) -> IoResult {
        let file = self.file.as_ref().expect("only files need the driver");
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(0);
        if let Io::Status { offset, .. } = io {
            return IoResult::Status(allocation(file, *offset));
        }
        IoResult::Other(match io {
            Io::Status { .. } => unreachable!("answered above"),
            Io::Read { offset, length, .. } => {
                let mut buf = self.pool.take(*length as usize).expect("room");
                let read = file.read_at(&mut buf, *offset).map_err(errno);
                return IoResult::Read(read.map(|len| {
                    buf.truncate(len);
                    buf.freeze()
                }));
            }
            Io::Write { offset, data, .. } => {
                file.write_all_at(&data.to_vec(), *offset).map_err(errno)
            }
            Io::Sync { .. } => file.sync_all().map_err(errno),
            Io::Punch { offset, length, .. } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.allocate(Can::PunchToo, flags, *offset, *length)
            }
            Io::Zero { offset, length, .. } => {
                let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                self.allocate(Can::ZeroToo, flags, *offset, *length)
            }
        })
    }

    fn allocate(&self, need: Can, flags: FallocateFlags, at: u64, len: u64) -> Result<(), i32> {
        if self.can < need {
            return Err(Errno::OPNOTSUPP.raw_os_error());
        }
        let file = self.file.as_ref().expect("only files need the driver");
        fallocate(file, flags, at, len).map_err(Errno::raw_os_error)
    }

    fn read(&self, offset: u64, length: u32) -> Vec<u8> {
        match self.run(&Op::Read { offset, length }) {
            Outcome::Data(data) => data.to_vec(),
            outcome => panic!("{}: {outcome:?}", self.name),
        }
    }
}

/// Whether there is data at `offset`, and where that ends.
fn allocation(file: &fs::File, offset: u64) -> Result<(bool, u64), i32> {
    let hole = seek(file, SeekFrom::Hole(offset)).map_err(Errno::raw_os_error)?;
    if hole > offset {
        return Ok((true, hole));
    }
    Ok((false, seek(file, SeekFrom::Data(offset)).unwrap_or(BYTES)))
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
    ]
}

fn write(offset: u64, bytes: Vec<u8>) -> Op {
    Op::Write { offset, data: Slice::from(bytes), durable: false }
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
        1 => any_range().prop_map(|(offset, length)| Op::Discard { offset, length }),
        1 => any_range().prop_map(|(offset, length)| Op::Zero { offset, length }),
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
        Op::Discard { .. } | Op::Zero { .. } => range.fill(0),
        Op::Flush | Op::Status { .. } => {}
    }
    Some(Vec::new())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_store_behaves_as_bytes_do(ops in proptest::collection::vec(op(), 1..30)) {
        for subject in subjects() {
            let mut bytes = vec![0; usize::try_from(BYTES).expect("small")];
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
                    (Outcome::Failed(error), None) => prop_assert_eq!(error, Error::Internal),
                    (outcome, _) => prop_assert!(false, "{}: {:?}", subject.name, outcome),
                }
            }
            let whole = subject.read(0, u32::try_from(BYTES).expect("small"));
            prop_assert!(whole == bytes, "{}", subject.name);
        }
    }
}

#[test]
fn a_fresh_store_reads_as_zero_to_its_last_byte() {
    for subject in subjects() {
        let geometry = subject.store.geometry();
        assert_eq!(geometry.bytes, BYTES, "{}", subject.name);
        assert!(geometry.physical_block.is_power_of_two(), "{}", subject.name);
        assert_eq!(subject.read(BYTES - 512, 512), [0; 512], "{}", subject.name);
        assert_eq!(subject.read(BYTES, 0), [], "{}", subject.name);
    }
}

#[test]
fn ranges_that_overflow_are_refused_before_any_io() {
    for subject in subjects() {
        let ops = [
            Op::Read { offset: u64::MAX, length: u32::MAX },
            Op::Read { offset: BYTES - 512, length: 1024 },
            Op::Read { offset: BYTES + 1, length: 0 },
            write(u64::MAX - 511, vec![1; 512]),
            write(BYTES - 511, vec![1; 512]),
            Op::Discard { offset: 512, length: u64::MAX },
            Op::Zero { offset: u64::MAX, length: 1 },
        ];
        for op in ops {
            let submitted = subject.store.submit(&op);
            assert!(
                matches!(submitted, Submitted::Done(Outcome::Failed(Error::Internal))),
                "{}: {op:?}: {submitted:?}",
                subject.name
            );
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
    let file = subject.file.as_ref().expect("a file");
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
    let file = subject.file.as_ref().expect("a file");
    assert!(matches!(subject.run(&write(0, vec![1; 1 << 20])), Outcome::Done));
    let blocks = || {
        file.sync_all().expect("stable");
        file.metadata().expect("a file").blocks()
    };
    let before = blocks();
    assert!(before >= 2048, "the file takes up what was written");
    let outcome = subject.run(&Op::Discard { offset: 0, length: 1 << 20 });
    assert!(matches!(outcome, Outcome::Done));
    // A file system without holes has had zeroes written, which is as right for the reader.
    let file = subject.file.as_ref().expect("a file");
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if fallocate(file, flags, 0, 4096).is_ok() {
        assert!(blocks() <= before - 2048, "{} of {before} blocks are left", blocks());
    }
    assert_eq!(subject.read(0, 1 << 20), vec![0; 1 << 20]);
}

#[test]
fn status_tells_what_was_written() {
    for subject in subjects() {
        let name = subject.name;
        let status = |offset, length| match subject.run(&Op::Status { offset, length }) {
            Outcome::Status(run) => (run.allocated, run.length),
            outcome => panic!("{name}: {outcome:?}"),
        };
        if name == "null" {
            assert_eq!(status(0, BYTES), (true, BYTES), "{name}");
            continue;
        }
        assert_eq!(status(512, BYTES - 512), (false, BYTES - 512), "{name}");
        subject.run(&write(8192, vec![1; 8192]));
        assert_eq!(status(0, BYTES), (false, 8192), "{name}");
        assert_eq!(status(8192, BYTES - 8192), (true, 8192), "{name}");
        assert_eq!(status(8192 + 512, 512), (true, 512), "{name}");
        if subject.can == Can::PunchToo {
            subject.run(&Op::Discard { offset: 8192, length: 4096 });
            assert_eq!(status(8192, 8192), (false, 4096), "{name}");
        }
    }
}
