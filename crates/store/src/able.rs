// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What some stores do by themselves, through all that may stand in front of one.

use crate::beside::{Beside, SIDE};
use crate::file::File;
use crate::filter::{Delay, Delayed, Failing, Fault, Limit, NoDiscard, Rate, ReadOnly, When};
use crate::memory::Memory;
use crate::null::Null;
use crate::stripe::Stripe;
use crate::{
    Error, FileId, FilterIndex, Geometry, Io, IoResult, Op, Outcome, Store, Submitted,
    contradiction,
};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use buf::Slice;
use core::time::Duration;

/// Memory that compares and writes, and repeats, by itself.
#[derive(Debug)]
struct Able(Memory);

/// What it compares as one, bytes.
const UNIT: u32 = 8192;

impl Able {
    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let length = u32::try_from(length).expect("small");
        match self.0.submit(&Op::Read { offset, length }) {
            Submitted::Done(Outcome::Data(data)) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

impl Store for Able {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn compare_unit(&self) -> Option<u32> {
        Some(UNIT)
    }

    fn writes_same(&self) -> bool {
        true
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.geometry().check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        let (offset, data) = match op {
            Op::CompareAndWrite { offset, old, new, .. } => {
                let there = self.read(*offset, old.len());
                let differs = there.iter().zip(old.bytes()).position(|(is, old)| is != old);
                if let Some(at) = differs {
                    return Submitted::Done(Outcome::Miscompare(Some(at as u64)));
                }
                (*offset, new.clone())
            }
            Op::WriteSame { offset, length, data } => {
                let times = usize::try_from(*length).expect("small") / data.len();
                (*offset, Slice::from(data.bytes().repeat(times)))
            }
            op => return self.0.submit(op),
        };
        self.0.submit(&Op::Write { offset, data, durable: false })
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        contradiction()
    }
}

fn able() -> Arc<Able> {
    Arc::new(Able(Memory::new(1 << 20).expect("room")))
}

fn compare(offset: u64, old: u8, new: u8) -> Op {
    let bytes = |byte| Slice::from(vec![byte; 512]);
    Op::CompareAndWrite { offset, old: bytes(old), new: bytes(new), durable: true }
}

fn same(offset: u64, length: u64, byte: u8) -> Op {
    Op::WriteSame { offset, length, data: Slice::from(vec![byte; 512]) }
}

#[track_caller]
fn fails(store: &dyn Store, op: &Op, error: Error) {
    let outcome = store.submit(op);
    let Submitted::Done(Outcome::Failed(said)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(said, error, "{op:?}");
}

#[track_caller]
fn is_done(store: &dyn Store, op: &Op) {
    let outcome = store.submit(op);
    assert!(matches!(outcome, Submitted::Done(Outcome::Done)), "{outcome:?}");
}

#[test]
fn who_does_not_offer_them_does_nothing() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new(1 << 20).expect("room"));
    let null: Arc<dyn Store> = Arc::new(Null::new(1 << 20).expect("room"));
    let file: Arc<dyn Store> = Arc::new(File::new(FileId(1), memory.geometry(), false));
    for store in [memory, null, file] {
        assert_eq!((store.compare_unit(), store.writes_same()), (None, false));
        fails(&*store, &compare(0, 0, 1), Error::Unsupported);
        fails(&*store, &same(0, 4096, 1), Error::Unsupported);
    }
}

#[test]
fn what_is_no_such_operation_is_refused() {
    let store = able();
    let (one, two) = (Slice::from(vec![0; 512]), Slice::from(vec![0; 1024]));
    let unequal = Op::CompareAndWrite { offset: 0, old: one, new: two.clone(), durable: false };
    fails(&*store, &unequal, Error::Internal);
    fails(&*store, &Op::WriteSame { offset: 0, length: 1536, data: two }, Error::Internal);
    let nothing = Slice::empty();
    fails(&*store, &Op::WriteSame { offset: 0, length: 0, data: nothing }, Error::Internal);
    fails(&*store, &compare(1 << 20, 0, 1), Error::Range);
    fails(&*store, &same((1 << 20) - 512, 1024, 1), Error::Range);
}

#[test]
fn filters_let_them_through_and_do_to_them_what_they_do_to_others() {
    let behind = || -> Arc<dyn Store> { able() };
    let filter = FilterIndex(3);
    let whole = NoDiscard::new(behind());
    assert_eq!((whole.compare_unit(), whole.writes_same()), (Some(UNIT), true));
    is_done(&whole, &compare(512, 0, 1));
    is_done(&whole, &same(4096, 4096, 1));
    for delayed in [Delayed::All, Delayed::Reads, Delayed::Writes] {
        let slow = Delay::new(behind(), filter, delayed, Duration::from_secs(1));
        assert!(matches!(slow.submit(&compare(0, 0, 1)), Submitted::Io(Io::Pause { .. })));
        let waits = matches!(slow.submit(&same(0, 512, 1)), Submitted::Io(Io::Pause { .. }));
        assert_eq!(waits, delayed != Delayed::Reads);
    }
    for (fault, of_compare, of_same) in [
        (Fault::Read, Some(Error::Read), None),
        (Fault::Write, Some(Error::Write), Some(Error::Write)),
        (Fault::Space, Some(Error::Space), Some(Error::Space)),
        (Fault::Flush, None, None),
    ] {
        let store = Failing::new(behind(), fault, When::Every(1));
        for (op, error) in [(compare(0, 0, 1), of_compare), (same(0, 512, 1), of_same)] {
            match error {
                Some(error) => fails(&store, &op, error),
                None => is_done(&store, &op),
            }
        }
    }
    for rate in [Rate::Operations(1), Rate::Bytes(1)] {
        let store = Limit::new(behind(), filter, rate);
        for op in [compare(0, 0, 1), same(0, 512, 1)] {
            assert!(matches!(store.submit(&op), Submitted::Io(Io::Clock { .. })), "{rate:?}");
        }
    }
    let fixed = ReadOnly::new(behind());
    assert_eq!((fixed.compare_unit(), fixed.writes_same()), (None, false));
    fails(&fixed, &compare(0, 0, 1), Error::ReadOnly);
    fails(&fixed, &same(0, 512, 1), Error::ReadOnly);
}

#[test]
fn what_lies_in_one_chunk_of_a_stripe_is_one() {
    let parts = [able(), able()];
    let stripe = |chunk| {
        let stores = parts.iter().map(|part| Arc::clone(part) as Arc<dyn Store>).collect();
        Stripe::new(chunk, stores).expect("legal")
    };
    assert_eq!(stripe(65_536).compare_unit(), Some(UNIT));
    let stripe = stripe(4096);
    assert_eq!((stripe.compare_unit(), stripe.writes_same()), (Some(4096), true));
    is_done(&stripe, &compare(4096 + 512, 0, 7));
    assert_eq!(parts[1].read(512, 512), [7; 512]);
    let missed = stripe.submit(&compare(4096 + 512, 0, 8));
    assert!(matches!(missed, Submitted::Done(Outcome::Miscompare(Some(0)))), "{missed:?}");
    fails(&stripe, &compare(4096 - 256, 0, 1), Error::Unsupported);
    is_done(&stripe, &same(3584, 8192, 5));
    let expected = |from: usize, length: usize| {
        let mut bytes = vec![0; 12_288];
        bytes[from..from + length].fill(5);
        bytes
    };
    assert_eq!(parts[0].read(0, 12_288), expected(3584, 4096), "chunks 0 and 2");
    assert_eq!(parts[1].read(0, 12_288), expected(0, 4096), "chunk 1");
    let odd = Op::WriteSame { offset: 0, length: 3000, data: Slice::from(vec![1; 1000]) };
    fails(&stripe, &odd, Error::Unsupported);
    let plain: Arc<dyn Store> = Arc::new(Null::new(1 << 20).expect("room"));
    let mixed = Stripe::new(4096, vec![able(), plain]).expect("legal");
    assert_eq!((mixed.compare_unit(), mixed.writes_same()), (None, false));
}

/// What stands beside changes, too: that is not one operation.
#[test]
fn what_has_something_beside_it_does_not_offer_them() {
    let (data, side) = (able(), able());
    let store = Beside::new(Arc::<Able>::clone(&data), Arc::<Able>::clone(&side));
    assert_eq!((store.compare_unit(), store.writes_same()), (None, false));
    is_done(&store, &compare(SIDE + 512, 0, 3));
    is_done(&store, &same(1024, 512, 4));
    assert_eq!((side.read(512, 512), data.read(512, 512)), (vec![3; 512], vec![0; 512]));
    assert_eq!((side.read(1024, 512), data.read(1024, 512)), (vec![0; 512], vec![4; 512]));
}
