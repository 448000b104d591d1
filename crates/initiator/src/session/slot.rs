// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One result from one thread to another: whoever waits for it blocks, or polls as a future.

use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use super::lock;

/// Where one result is handed over.
#[derive(Debug)]
struct Slot<T> {
    state: Mutex<SlotState<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct SlotState<T> {
    value: Option<T>,
    /// Nobody will fill it any more.
    over: bool,
    waker: Option<Waker>,
}

/// The side that fills a slot; a slot that nobody filled is over when it is dropped.
#[derive(Debug)]
pub(crate) struct Reply<T>(Arc<Slot<T>>);

/// The side that waits.
#[derive(Debug)]
pub(super) struct Slotted<T>(Arc<Slot<T>>);

/// Both sides of a new slot.
pub(super) fn slot<T>() -> (Reply<T>, Slotted<T>) {
    let state = Mutex::new(SlotState { value: None, over: false, waker: None });
    let slot = Arc::new(Slot { state, filled: Condvar::new() });
    (Reply(Arc::clone(&slot)), Slotted(slot))
}

impl<T> Reply<T> {
    pub(super) fn send(self, value: T) {
        lock(&self.0.state).value = Some(value);
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.over = true;
        let waker = state.waker.take();
        drop(state);
        self.0.filled.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Slotted<T> {
    /// None if nobody filled it.
    pub(super) fn wait(&self) -> Option<T> {
        let mut state = lock(&self.0.state);
        while !state.over {
            state = self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.value.take()
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0.state);
        if state.over {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
