// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use alloc::vec;
use alloc::vec::Vec;

const ID: FileId = FileId(7);
const BYTES: u64 = 4 << 20;

fn geometry() -> Geometry {
    Geometry {
        bytes: BYTES,
        read_only: false,
        discard_granularity: Some(4096),
        anchors: true,
        volatile_cache: true,
        physical_block: 4096,
        rotational: false,
    }
}

fn file() -> File {
    File::new(ID, geometry(), false)
}

fn read(length: u32) -> Op {
    Op::Read { offset: 0, length }
}

fn write(offset: u64, length: usize) -> Op {
    Op::Write { offset, data: Slice::from(vec![1; length]), durable: false }
}

fn first(store: &File, op: &Op) -> Io {
    match store.submit(op) {
        Submitted::Io(io) => io,
        Submitted::Done(outcome) => panic!("{outcome:?} without an Io"),
    }
}

fn failure(submitted: Submitted) -> Option<Error> {
    match submitted {
        Submitted::Done(Outcome::Failed(error)) => Some(error),
        _ => None,
    }
}

/// The kinds of Io that `op` takes if those of `unsupported` fail.
fn kinds(store: &File, op: &Op, unsupported: &[&'static str]) -> (Vec<&'static str>, Outcome) {
    let mut kinds = Vec::new();
    let mut next = store.submit(op);
    loop {
        let io = match next {
            Submitted::Io(io) => io,
            Submitted::Done(outcome) => return (kinds, outcome),
        };
        let kind = match &io {
            Io::Read { .. } => "read",
            Io::Write { durable: true, .. } => "durable write",
            Io::Write { .. } => "write",
            Io::Sync { .. } => "sync",
            Io::Clear { leave: Space::Deallocated, .. } => "punch",
            Io::Clear { leave: Space::Mapped, .. } => "zero",
            Io::Clear { leave: Space::Anchored, .. } => "reserve",
            Io::ProvisioningStatus { .. } => "status",
            other => panic!("{other:?} is not for a file"),
        };
        kinds.push(kind);
        assert!(kinds.len() < 20, "an end");
        let result = if unsupported.contains(&kind) { Err(EOPNOTSUPP) } else { Ok(()) };
        next = store.complete(op, &io, IoResult::Other(result));
    }
}

#[test]
fn a_short_read_is_an_unreadable_medium() {
    let store = file();
    let op = read(4096);
    let io = first(&store, &op);
    let complete = |len| store.complete(&op, &io, IoResult::Read(Ok(Slice::from(vec![0; len]))));
    assert_eq!(failure(complete(4095)), Some(Error::Read));
    assert_eq!(failure(complete(0)), Some(Error::Read));
    assert_eq!(failure(complete(4097)), Some(Error::Internal));
    assert!(matches!(complete(4096), Submitted::Done(Outcome::Data(data)) if data.len() == 4096));
    let wrong_kind = store.complete(&op, &io, IoResult::Other(Ok(())));
    assert_eq!(failure(wrong_kind), Some(Error::Internal));
}

#[test]
fn what_the_system_says_becomes_what_the_disk_says() {
    let store = file();
    let cases = [
        (ENOSPC, Error::Internal, Error::Space),
        (EDQUOT, Error::Internal, Error::Space),
        (EFBIG, Error::Internal, Error::Space),
        (EROFS, Error::Internal, Error::ReadOnly),
        (EBADF, Error::Internal, Error::ReadOnly),
        (EIO, Error::Read, Error::Write),
        (ENODATA, Error::Read, Error::Write),
        (EINVAL, Error::Internal, Error::Internal),
        (EOPNOTSUPP, Error::Internal, Error::Internal),
    ];
    let fails = |op: &Op, errno| {
        let result = match op {
            Op::Read { .. } => IoResult::Read(Err(errno)),
            _ => IoResult::Other(Err(errno)),
        };
        failure(store.complete(op, &first(&store, op), result))
    };
    for (errno, on_read, on_write) in cases {
        assert_eq!(fails(&read(512), errno), Some(on_read), "{errno}");
        assert_eq!(fails(&write(0, 512), errno), Some(on_write), "{errno}");
    }
    assert_eq!(fails(&Op::Flush, EIO), Some(Error::Write));
    assert_eq!(
        fails(&Op::Clear { offset: 0, length: 512, leave: Space::Deallocated }, EIO),
        Some(Error::Write)
    );
    for op in [
        Op::Clear { offset: 0, length: 512, leave: Space::Mapped },
        Op::Clear { offset: 0, length: 512, leave: Space::Anchored },
    ] {
        assert_eq!(fails(&op, ENOSPC), Some(Error::Space));
    }
}

#[test]
fn zeroing_takes_the_best_way_that_there_is() {
    let store = file();
    let discard = Op::Clear { offset: 512, length: (2 << 20) + 512, leave: Space::Deallocated };
    let zero = Op::Clear { offset: 512, length: (2 << 20) + 512, leave: Space::Mapped };
    let ways = |op, unsupported| {
        let (kinds, outcome) = kinds(&store, op, unsupported);
        assert!(matches!(outcome, Outcome::Done));
        kinds
    };
    assert_eq!(ways(&discard, &[]), ["punch"]);
    assert_eq!(ways(&discard, &["punch"]), ["punch", "zero"]);
    let writes = ["punch", "zero", "write", "write", "write"];
    assert_eq!(ways(&discard, &["punch", "zero"]), writes);
    assert_eq!(ways(&zero, &[]), ["zero"]);
    assert_eq!(ways(&zero, &["zero"]), writes[1..]);
    let anchor = Op::Clear { offset: 512, length: (2 << 20) + 512, leave: Space::Anchored };
    assert_eq!(ways(&anchor, &[]), ["reserve"]);
    assert_eq!(ways(&anchor, &["reserve"]), ["reserve", "write", "write", "write"]);
    let (kinds, outcome) = kinds(&store, &zero, &["zero", "write"]);
    assert_eq!(kinds, ["zero", "write"]);
    assert!(matches!(outcome, Outcome::Failed(Error::Internal)));
}

#[test]
fn the_pieces_of_zeroes_cover_the_range_once() {
    let store = file();
    let (start, length) = (1024, (3 << 20) - 512);
    let op = Op::Clear { offset: start, length, leave: Space::Mapped };
    let zero = first(&store, &op);
    let mut next = store.complete(&op, &zero, IoResult::Other(Err(EOPNOTSUPP)));
    let mut reached = start;
    while let Submitted::Io(io) = next {
        let Io::Write { file, offset, data, .. } = &io else { panic!("{io:?}") };
        assert_eq!((*file, *offset), (ID, reached));
        assert!(data.len() as u64 <= ZERO_PIECE_LEN);
        assert!(data.bytes().iter().all(|byte| *byte == 0));
        reached += data.len() as u64;
        next = store.complete(&op, &io, IoResult::Other(Ok(())));
    }
    assert_eq!(reached, start + length);
    assert!(matches!(next, Submitted::Done(Outcome::Done)));
}

#[test]
fn without_discard_nothing_is_punched() {
    let geometry = Geometry { discard_granularity: None, anchors: false, ..geometry() };
    let store = File::new(ID, geometry, false);
    let (offset, length) = (0, 512);
    for op in [
        Op::Clear { offset, length, leave: Space::Deallocated },
        Op::Clear { offset, length, leave: Space::Anchored },
    ] {
        assert_eq!(kinds(&store, &op, &[]).0, ["zero"]);
    }
}

#[test]
fn a_sync_store_brings_every_change_to_stable_storage() {
    let store = File::new(ID, Geometry { volatile_cache: false, ..geometry() }, true);
    let discard = Op::Clear { offset: 0, length: 2 << 20, leave: Space::Deallocated };
    assert_eq!(kinds(&store, &write(0, 512), &[]).0, ["durable write"]);
    assert_eq!(kinds(&store, &discard, &[]).0, ["punch", "sync"]);
    assert_eq!(kinds(&store, &discard, &["punch"]).0, ["punch", "zero", "sync"]);
    let anchor = Op::Clear { offset: 0, length: 2 << 20, leave: Space::Anchored };
    assert_eq!(kinds(&store, &anchor, &[]).0, ["reserve", "sync"]);
    let written = ["punch", "zero", "durable write", "durable write"];
    assert_eq!(kinds(&store, &discard, &["punch", "zero"]).0, written);
    let (kinds, outcome) = kinds(&store, &discard, &["sync"]);
    assert_eq!(kinds, ["punch", "sync"]);
    assert!(matches!(outcome, Outcome::Failed(_)));
}

#[test]
fn durable_is_durable_on_any_store() {
    let op = Op::Write { offset: 0, data: Slice::from(vec![1; 512]), durable: true };
    assert_eq!(kinds(&file(), &op, &[]).0, ["durable write"]);
    assert_eq!(kinds(&file(), &write(0, 512), &[]).0, ["write"]);
}

#[test]
fn a_read_only_store_refuses_before_any_io() {
    let store = File::new(ID, Geometry { read_only: true, ..geometry() }, false);
    let (offset, length) = (0, 512);
    let (discard, zero) = (
        Op::Clear { offset, length, leave: Space::Deallocated },
        Op::Clear { offset, length, leave: Space::Mapped },
    );
    let anchor = Op::Clear { offset, length, leave: Space::Anchored };
    for op in [write(0, 512), discard, zero, anchor, write(BYTES, 512)] {
        assert_eq!(failure(store.submit(&op)), Some(Error::ReadOnly));
    }
    assert!(matches!(store.submit(&Op::Flush), Submitted::Done(Outcome::Done)));
    assert!(matches!(store.submit(&read(512)), Submitted::Io(Io::Read { .. })));
}

/// Drives `op` as a reactor does: each work of it ends with `result`.
fn drive(store: &File, op: &Op, result: Result<(), i32>) -> Result<(), Error> {
    let mut next = store.submit(op);
    loop {
        let io = match next {
            Submitted::Done(Outcome::Failed(error)) => return Err(error),
            Submitted::Done(_) => return Ok(()),
            Submitted::Io(io) => io,
        };
        let mut watch = io.watched().map(|(file, what)| {
            crate::health::Watch::begin(&store.health(file).expect("its own"), what)
        });
        watch.as_mut().map(|watch| (watch.end(result.is_ok()), watch.verdict()));
        next = store.complete(op, &io, IoResult::Other(result));
    }
}

#[test]
fn a_failed_sync_is_for_everybody_until_all_is_written_again_and_synced() {
    let store = file();
    let durable = |offset| Op::Write { offset, data: Slice::from(vec![1; 4096]), durable: true };
    for offset in [0, 65_536] {
        drive(&store, &write(offset, 4096), Ok(())).expect("a write");
    }
    assert_eq!(drive(&store, &Op::Flush, Err(EIO)), Err(Error::Write));
    for _ in 0..3 {
        assert_eq!(drive(&store, &Op::Flush, Ok(())), Err(Error::Write), "told again");
        assert_eq!(drive(&store, &durable(1 << 20), Ok(())), Err(Error::Write));
        assert_eq!(drive(&store, &read(0), Ok(())), Ok(()), "it can be read");
    }
    // In pieces, by a write and by zeroes; a write that fails repairs nothing.
    drive(&store, &write(0, 4096), Ok(())).expect("a write");
    drive(&store, &write(65_536, 4096), Err(EIO)).expect_err("a write");
    assert_eq!(drive(&store, &Op::Flush, Ok(())), Err(Error::Write));
    drive(&store, &Op::Clear { offset: 65_536, length: 2048, leave: Space::Mapped }, Ok(()))
        .expect("zeroes");
    assert_eq!(drive(&store, &Op::Flush, Ok(())), Err(Error::Write), "half a block");
    drive(&store, &Op::Clear { offset: 65_536, length: 4096, leave: Space::Deallocated }, Ok(()))
        .expect("a hole");
    assert_eq!(drive(&store, &durable(1 << 20), Ok(())), Ok(()));
    assert_eq!(drive(&store, &Op::Flush, Ok(())), Ok(()));
    assert!(!store.health.has_failed());
}

#[test]
fn where_every_write_is_durable_a_failure_is_of_its_own_write_alone() {
    let store = File::new(ID, geometry(), true);
    drive(&store, &write(0, 4096), Err(EIO)).expect_err("told to who asked");
    assert_eq!(drive(&store, &write(4096, 4096), Ok(())), Ok(()));
    assert_eq!(drive(&store, &Op::Flush, Ok(())), Ok(()));
}

#[test]
fn what_was_lost_before_it_was_opened_no_write_repairs() {
    let store = file().after_a_loss();
    for _ in 0..2 {
        assert_eq!(drive(&store, &Op::Flush, Ok(())), Err(Error::Write));
        drive(&store, &write(0, 4 << 20), Ok(())).expect("a write of all of it");
        assert_eq!(drive(&store, &read(0), Ok(())), Ok(()), "it can be read");
    }
    assert!(store.health.has_failed());
}
