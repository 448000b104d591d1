// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of a group of pages in loom's model of memory: every order of the steps of readers
//! that borrow and of a writer, and every value that a processor may give them to see. Two who wait
//! for one lock are more than loom can follow: it lets them spin for ever.

#![allow(dead_code, unreachable_pub)] // the model does not need all of the files
#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../src/limits.rs"]
mod limits;
#[path = "../src/region/words.rs"]
mod words;

mod sync {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::Ordering;
    pub(crate) use loom::thread::yield_now;

    use loom::sync::atomic;
    use loom::sync::atomic::fence;

    /// loom takes SeqCst of an access for AcqRel, but knows fences.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicU32(atomic::AtomicU32);

    impl AtomicU32 {
        fn at<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
            if order != Ordering::SeqCst {
                return access();
            }
            fence(order);
            let result = access();
            fence(order);
            result
        }

        pub(crate) fn load(&self, order: Ordering) -> u32 {
            Self::at(order, || match order {
                Ordering::SeqCst => self.0.load(Ordering::Acquire),
                order => self.0.load(order),
            })
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.0.store(value, order);
        }

        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            Self::at(order, || self.0.swap(value, order))
        }

        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            Self::at(order, || self.0.fetch_add(value, order))
        }

        pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
            Self::at(order, || self.0.fetch_sub(value, order))
        }

        pub(crate) fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
            self.0.fetch_or(value, order)
        }

        pub(crate) fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
            self.0.fetch_and(value, order)
        }
    }
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use words::Locked;
use words::Words;

/// More switches between the threads than a mistake of these few steps needs.
const SWITCHES_MAX: usize = 3;

/// A group of one page, as a region has it; loom sees who uses a page beside a writer of it.
#[derive(Debug, Default)]
struct Group {
    words: Words,
    page: UnsafeCell<u32>,
    new: UnsafeCell<u32>,
}

impl Group {
    fn bring_home(&self) {
        put(&self.page, get(&self.new));
        self.words.set_home();
    }

    fn lend(&self) -> bool {
        self.words.lend(|| self.bring_home())
    }

    fn take_back(&self) {
        self.words.take_back(|| self.bring_home());
    }

    /// The value while it is borrowed, twice; None if it cannot be.
    fn borrow(&self) -> Option<u32> {
        self.lend().then(|| {
            let value = get(&self.page);
            self.words.lend_again();
            self.take_back();
            assert_eq!(get(&self.page), value, "what is lent does not change");
            self.take_back();
            value
        })
    }

    /// As `read` of a region.
    fn read(&self) -> u32 {
        let locked = self.words.lock();
        let value = if self.words.is_moved() { get(&self.new) } else { get(&self.page) };
        self.unlock(locked);
        value
    }

    /// As `change` of a region.
    fn write(&self, value: u32) {
        let locked = self.words.lock();
        if locked == Locked::InUse && self.words.is_lent() {
            put(&self.new, value);
            self.words.set_moved();
        } else {
            if self.words.is_moved() {
                self.bring_home();
            }
            put(&self.page, value);
        }
        self.unlock(locked);
    }

    fn unlock(&self, locked: Locked) {
        match locked {
            Locked::Free => self.words.unlock_free(),
            Locked::InUse => self.words.unlock(|| self.bring_home()),
        }
    }

    /// All is as it was before the first slice.
    fn check_home(&self, value: u32) {
        assert!(!self.words.is_lent() && !self.words.is_moved(), "nothing is left of slices");
        assert_eq!(get(&self.page), value, "the newest value is at home");
    }
}

fn get(page: &UnsafeCell<u32>) -> u32 {
    // SAFETY: the value is whole; that nobody writes to it meanwhile is what loom looks at.
    page.with(|page| unsafe { *page })
}

fn put(page: &UnsafeCell<u32>, value: u32) {
    // SAFETY: as for `get`; and that nobody reads it.
    page.with_mut(|page| unsafe { *page = value });
}

fn model(check: impl Fn(Arc<Group>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(SWITCHES_MAX);
    builder.check(move || check(Arc::new(Group::default())));
}

#[test]
fn what_is_lent_does_not_change_and_what_is_written_comes_home() {
    model(|group| {
        let reader = Arc::clone(&group);
        let reader = thread::spawn(move || assert!(matches!(reader.borrow(), None | Some(0..=2))));
        group.write(1);
        group.write(2);
        assert_eq!(group.read(), 2);
        reader.join().unwrap();
        group.check_home(2);
    });
}

#[test]
fn the_last_of_two_slices_brings_new_pages_home() {
    model(|group| {
        assert!(group.lend());
        let reader = Arc::clone(&group);
        let reader = thread::spawn(move || reader.borrow());
        group.write(1);
        group.take_back();
        assert!(matches!(reader.join().unwrap(), None | Some(0..=1)));
        group.check_home(1);
    });
}
