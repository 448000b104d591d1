// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bounded one-way queue from one thread to one other, with a doorbell for a reader that sleeps.
//!
//! Each side writes its own cache line and remembers what it saw last of the other's, so an
//! element costs no lock, no read-modify-write and, while the queue is neither full nor empty, no
//! line but its own. Nothing is allocated after `ring`.
//!
//! The doorbell is a question: before it sleeps, the reader says how many elements are worth
//! waking for ([`Consumer::sleep`]); after it has pushed, the writer asks whether somebody must be
//! woken ([`Producer::must_ring`]), and does that by means of its own. While the reader is awake
//! the answer costs a fence and a look.

use std::fmt;
use std::mem::MaybeUninit;

use crate::sync::Arc;
use crate::sync::AtomicBool;
use crate::sync::AtomicUsize;
use crate::sync::Ordering;
use crate::sync::UnsafeCell;
use crate::sync::fence;

/// A queue for at least `capacity` elements (a power of two; at least one): who writes, who reads.
pub(crate) fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.next_power_of_two();
    let slots = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared {
        slots,
        tail: Line(AtomicUsize::new(0)),
        head: Line(AtomicUsize::new(0)),
        wanted: Line(AtomicUsize::new(AWAKE)),
        closed: Line(AtomicBool::new(false)),
    });
    let producer = Producer { shared: Arc::clone(&shared), tail: 0, head: 0 };
    (producer, Consumer { shared, tail: 0, head: 0 })
}

/// The reader does not sleep: more elements than any queue holds.
const AWAKE: usize = usize::MAX;

/// Alone in the cache lines that a processor fetches together.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

/// Positions count up for ever and wrap; those from `head` to `tail` hold an element.
struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Behind the newest element; written by the producer alone.
    tail: Line<AtomicUsize>,
    /// The oldest element; written by the consumer alone.
    head: Line<AtomicUsize>,
    /// How many elements the sleeping consumer wants; `AWAKE`.
    wanted: Line<AtomicUsize>,
    /// One side has gone.
    closed: Line<AtomicBool>,
}

// SAFETY: an element is used by the producer before it moves `tail` over it, by the consumer from
// then on until it moves `head` over it; the moves are releases and their looks acquires. So each
// slot has one user at a time, and elements may go to other threads (`T: Send`).
unsafe impl<T: Send> Sync for Shared<T> {}

// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // The length is a power of two, and not zero.
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Takes the element at `position` out.
    ///
    /// # Safety
    /// There is one, the caller alone may use it, and nobody takes it again.
    unsafe fn take(&self, position: usize) -> T {
        self.slot(position).with_mut(|slot| {
            // SAFETY: the caller says that the slot is its own and that an element is there.
            unsafe { slot.cast::<T>().read() }
        })
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Acquire);
        let mut head = self.head.0.load(Ordering::Acquire);
        while head != tail {
            // SAFETY: both sides have gone, and what lies between the positions was not taken.
            drop(unsafe { self.take(head) });
            head = head.wrapping_add(1);
        }
    }
}

/// The side that writes.
pub(crate) struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// Where `head` was seen last: there is at least as much room as it says.
    head: usize,
}

impl<T> Producer<T> {
    /// Appends `value`; gives it back if the queue is full.
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        if self.is_full() {
            return Err(value);
        }
        self.shared.slot(self.tail).with_mut(|slot| {
            // SAFETY: the slot holds no element, since the queue is not full, and the consumer
            // does not touch it before `tail` is moved.
            unsafe { slot.cast::<T>().write(value) };
        });
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// True if `push` would give its value back.
    pub(crate) fn is_full(&mut self) -> bool {
        let full = |head: usize| self.tail.wrapping_sub(head) == self.shared.slots.len();
        if full(self.head) {
            self.head = self.shared.head.0.load(Ordering::Acquire);
        }
        full(self.head)
    }

    /// After pushing: true if the consumer sleeps and there is now what it wanted. It is told once;
    /// the caller then wakes it.
    pub(crate) fn must_ring(&self) -> bool {
        // Either we see that the consumer wants to sleep, or it sees what we pushed.
        fence(Ordering::SeqCst);
        let wanted = self.shared.wanted.0.load(Ordering::Relaxed);
        if wanted == AWAKE {
            return false;
        }
        let length = self.tail.wrapping_sub(self.shared.head.0.load(Ordering::Relaxed));
        length >= wanted
            && self
                .shared
                .wanted
                .0
                .compare_exchange(wanted, AWAKE, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.closed.0.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("tail", &self.tail).finish_non_exhaustive()
    }
}

/// The side that reads.
pub(crate) struct Consumer<T> {
    shared: Arc<Shared<T>>,
    /// Where `tail` was seen last: there are at least as many elements as it says.
    tail: usize,
    head: usize,
}

impl<T> Consumer<T> {
    /// The oldest element.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the queue is not empty, so there is an element at `head`; moving on makes sure
        // that it is taken once.
        let value = unsafe { self.shared.take(self.head) };
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release);
        Some(value)
    }

    /// True if there is no element.
    pub(crate) fn is_empty(&mut self) -> bool {
        if self.head == self.tail {
            self.tail = self.shared.tail.0.load(Ordering::Acquire);
        }
        self.head == self.tail
    }

    /// True if the producer has gone: what is in the queue now is all.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.0.load(Ordering::Acquire)
    }

    /// Before sleeping: from now on the producer is told to wake us as soon as there are `count`
    /// elements. False: there are already as many, or no more will come, and sleeping would be
    /// wrong.
    pub(crate) fn sleep(&mut self, count: usize) -> bool {
        self.shared.wanted.0.store(count.min(self.shared.slots.len()), Ordering::Relaxed);
        // Either the producer sees what we want, or we see what it pushed.
        fence(Ordering::SeqCst);
        self.tail = self.shared.tail.0.load(Ordering::Acquire);
        let enough = self.tail.wrapping_sub(self.head) >= count || self.is_closed();
        if enough {
            self.awake();
        }
        !enough
    }

    /// After sleeping.
    pub(crate) fn awake(&self) {
        self.shared.wanted.0.store(AWAKE, Ordering::Relaxed);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.closed.0.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("head", &self.head).finish_non_exhaustive()
    }
}
