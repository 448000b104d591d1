// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::FilterIndex;
use crate::beside::Beside;
use crate::filter::{
    Atomic, Delay, Delayed, Failing, Fault, Limit, Log, NoDiscard, Physical, Rate, When,
};
use crate::stripe::Stripe;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

#[derive(Debug)]
struct Deaf;

impl crate::filter::Journal for Deaf {
    fn ended(&self, _: &Op, _: &Outcome) {}
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(1 << 20).expect("room"))
}

/// All that may stand in front of it, and that it may be a part of.
fn fronts(behind: &Arc<Memory>) -> Vec<Arc<dyn Store>> {
    let store = || -> Arc<dyn Store> { Arc::<Memory>::clone(behind) };
    let null = || -> Arc<dyn Store> { Arc::new(crate::null::Null::new(1 << 20).expect("room")) };
    let (index, second) = (FilterIndex(0), Duration::from_secs(1));
    vec![
        store(),
        Arc::new(NoDiscard::new(store())),
        Arc::new(Delay::new(store(), index, Delayed::All, second)),
        Arc::new(Failing::new(store(), Fault::Read, When::Every(1))),
        Arc::new(Limit::new(store(), index, Rate::Operations(1))),
        Arc::new(Physical::new(store(), 4096)),
        Arc::new(Atomic::new(store())),
        Arc::new(Log::new(store(), Arc::new(Deaf))),
        Arc::new(Stripe::new(65_536, vec![null(), store()]).expect("legal")),
        Arc::new(Beside::new(store(), null())),
    ]
}

#[test]
fn changes_are_held_back_whatever_stands_in_front() {
    let data = buf::Slice::from(vec![7; 512]);
    let write = Op::Write { offset: 0, data, durable: false };
    let memory = memory();
    for front in fronts(&memory) {
        front.hold_back();
        assert!(front.is_held_back(), "{front:?}");
        let held = memory.submit(&write);
        assert!(matches!(held, Submitted::Done(Outcome::Failed(Error::Silent))), "{front:?}");
        front.let_on();
        assert!(!front.is_held_back(), "{front:?}");
    }
    assert!(matches!(memory.submit(&write), Submitted::Done(Outcome::Done)));
}

#[test]
fn what_ends_with_the_process_is_known_whatever_stands_in_front() {
    let memory = memory();
    let mut fronts = fronts(&memory);
    fronts.push(Arc::new(crate::filter::ReadOnly::new(Arc::<Memory>::clone(&memory))));
    assert!(fronts.iter().all(|front| !front.has_data_in_memory()), "nobody has written to it");
    let write = Op::Write { offset: 0, data: buf::Slice::from(vec![7; 512]), durable: false };
    memory.submit(&write);
    assert!(fronts.iter().all(|front| front.has_data_in_memory()));
    memory.submit(&Op::Clear { offset: 0, length: 1 << 20, leave: Space::Deallocated });
    assert!(fronts.iter().all(|front| !front.has_data_in_memory()));
}

/// Whichever comes last: what is left there is known to be there.
#[test]
fn what_is_written_beside_a_discard_is_known() {
    const PAGES: u64 = 256;
    let memory = memory();
    let place = |number: u64| number % PAGES * u64::from(PAGE_BYTES);
    let data = buf::Slice::from(vec![7; PAGE_BYTES as usize]);
    let turn = std::sync::Barrier::new(2);
    let mut unknown = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..100 * PAGES {
                turn.wait();
                let (offset, length) = (place(number), PAGE_BYTES.into());
                memory.submit(&Op::Clear { offset, length, leave: Space::Deallocated });
                turn.wait();
            }
        });
        for number in 0..100 * PAGES {
            let offset = place(number);
            turn.wait();
            memory.submit(&Op::Write { offset, data: data.clone(), durable: false });
            turn.wait();
            let read = memory.submit(&Op::Read { offset, length: 512 });
            let is_there =
                matches!(read, Submitted::Done(Outcome::Data(read)) if read.bytes()[0] == 7);
            unknown += u32::from(is_there && memory.pages.run(offset, 1).space != Space::Mapped);
        }
    });
    assert_eq!(unknown, 0);
}
