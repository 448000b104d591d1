// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a Read gives is of one moment, whatever is changed before it is used.

use buf::Slice;
use lunwire_store::Space;
use lunwire_store::filter::{Atomic, NoDiscard};
use lunwire_store::memory::Memory;
use lunwire_store::stripe::Stripe;
use lunwire_store::{Op, Outcome, Store, Submitted};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BYTES: u64 = 4 << 20;

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(BYTES).expect("room"))
}

/// Stores that answer at once, each of them memory in the end.
fn stores() -> Vec<(&'static str, Arc<dyn Store>)> {
    let stripe = Stripe::new(65_536, vec![memory(), memory()]).expect("legal");
    vec![
        ("memory", memory()),
        ("stripe", Arc::new(stripe)),
        ("atomic", Arc::new(Atomic::new(memory()))),
        ("no discard", Arc::new(NoDiscard::new(memory()))),
    ]
}

fn run(store: &Arc<dyn Store>, op: &Op) -> Outcome {
    match store.submit(op) {
        Submitted::Done(outcome) => outcome,
        Submitted::Io(io) => panic!("memory needs no engine: {io:?}"),
    }
}

fn read(store: &Arc<dyn Store>, offset: u64, length: u32) -> Slice {
    match run(store, &Op::Read { offset, length }) {
        Outcome::Data(data) => data,
        other => panic!("{other:?}"),
    }
}

fn write(offset: u64, length: usize, byte: u8) -> Op {
    Op::Write { offset, data: Slice::from(vec![byte; length]), durable: false }
}

fn change(store: &Arc<dyn Store>, op: &Op) {
    assert!(matches!(run(store, op), Outcome::Done), "{op:?}");
}

#[test]
fn no_change_reaches_what_was_read_before() {
    let length = 1 << 20;
    let changes = [
        write(0, length, 2),
        write(4096 + 512, 512, 2),
        Op::Clear { offset: 512, length: 1024, leave: Space::Mapped },
        Op::Clear { offset: 0, length: length as u64, leave: Space::Mapped },
        Op::Clear { offset: 0, length: length as u64, leave: Space::Deallocated },
        Op::Clear { offset: 512, length: 30_000, leave: Space::Deallocated },
        Op::Clear { offset: 0, length: length as u64, leave: Space::Anchored },
    ];
    for (name, store) in stores() {
        for op in &changes {
            change(&store, &write(0, length, 1));
            let before = read(&store, 0, u32::try_from(length).expect("small"));
            change(&store, op);
            let (from, count) = op.range();
            let (from, count) = (usize::try_from(from), usize::try_from(count));
            let (from, count) = (from.expect("small"), count.expect("small"));
            let mut model = vec![1; length];
            let byte = if matches!(op, Op::Write { .. }) { 2 } else { 0 };
            model[from..from + count].fill(byte);
            let after = read(&store, 0, u32::try_from(length).expect("small"));
            assert!(before.to_vec() == vec![1; length], "{name}: {op:?} reached an older read");
            assert!(after.to_vec() == model, "{name}: {op:?} as a later read sees it");
            drop(before);
            assert!(after.to_vec() == model, "{name}: {op:?} once the older read is over");
            drop(after);
            let again = read(&store, 0, u32::try_from(length).expect("small"));
            assert!(again.to_vec() == model, "{name}: {op:?} as the medium has it");
        }
    }
}

#[test]
fn a_part_of_what_was_read_keeps_its_bytes_too() {
    for (name, store) in stores() {
        change(&store, &write(0, 65_536, 1));
        let whole = read(&store, 0, 65_536);
        let (part, clone) = (whole.part(30_000..40_000).expect("within"), whole.clone());
        drop(whole);
        change(&store, &write(0, 65_536, 2));
        assert!(clone.to_vec() == [1; 65_536], "{name}");
        drop(clone);
        change(&store, &write(0, 65_536, 3));
        assert!(part.to_vec() == [1; 10_000], "{name}");
        drop(part);
        assert!(read(&store, 0, 65_536).to_vec() == [3; 65_536], "{name}");
    }
}

#[test]
fn what_was_read_can_be_written_where_it_came_from() {
    for (name, store) in stores() {
        let bytes: Vec<u8> = (0..40_000).map(|at: u32| at.to_le_bytes()[1]).collect();
        change(&store, &Op::Write { offset: 0, data: Slice::from(bytes.clone()), durable: false });
        let data = read(&store, 0, 40_000);
        change(&store, &Op::Write { offset: 512, data: data.clone(), durable: false });
        assert!(data.to_vec() == bytes, "{name}");
        assert!(read(&store, 512, 40_000).to_vec() == bytes, "{name}");
    }
}

/// Writers give whole blocks of one byte; no block that is read may have two of them, neither at
/// once nor later.
#[test]
fn a_block_is_never_of_two_writes() {
    for (name, store) in &stores() {
        let over = AtomicBool::new(false);
        let mut wrong = None;
        std::thread::scope(|scope| {
            for byte in 1..3_u8 {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        for (offset, length) in [(512, 512), (0, 65_536), (12_288, 8192)] {
                            change(store, &write(offset, length, byte));
                        }
                        change(
                            store,
                            &Op::Clear { offset: 8192, length: 16_384, leave: Space::Deallocated },
                        );
                    }
                });
            }
            for _ in 0..100 {
                let data = read(store, 0, 65_536);
                let first = data.to_vec();
                std::thread::yield_now();
                let torn = first.chunks(512).any(|block| block.iter().any(|b| *b != block[0]));
                if torn || data.to_vec() != first {
                    wrong = Some(if torn { "torn" } else { "changed" });
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(wrong, None, "{name}");
    }
}
