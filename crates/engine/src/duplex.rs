// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values both ways between two threads of a process, in order, a bounded number of them under way.
//!
//! What a socket pair is for bytes. Each [`End`] wakes the port at the other one. Closing is
//! orderly: what was sent before an end was dropped can still be received.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::Waker;

/// How much may be under way in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Values.
    pub count_max: usize,
    /// What they weigh together; the last one may go beyond it.
    pub weight_max: usize,
}

/// One of two ends: sends `S`, receives `R`. Dropping it closes both directions.
pub struct End<S, R> {
    outgoing: Arc<Lane<S>>,
    incoming: Arc<Lane<R>>,
}

/// One direction.
struct Lane<T> {
    bounds: Bounds,
    state: Mutex<State<T>>,
}

struct State<T> {
    queue: VecDeque<T>,
    /// Of what is in the queue.
    weight: usize,
    receiver: Option<Waker>,
    sender: Option<Waker>,
    /// The sender found no room.
    starved: bool,
    closed: bool,
}

/// Two ends that belong together.
#[must_use]
pub fn duplex<A, B>(bounds: Bounds) -> (End<A, B>, End<B, A>) {
    let (there, back) = (Arc::new(Lane::new(bounds)), Arc::new(Lane::new(bounds)));
    let near = End { outgoing: Arc::clone(&there), incoming: Arc::clone(&back) };
    (near, End { outgoing: back, incoming: there })
}

impl<S, R> End<S, R> {
    /// From now on this port is woken: when something comes where nothing was to be received, when
    /// there is room again after there was none, when the other end closes. So whoever was woken
    /// receives until nothing is left, and sends what waits for room. Woken at once, as all that
    /// may have been before.
    pub fn attach(&self, waker: Waker) {
        self.outgoing.lock().sender = Some(waker.clone());
        self.incoming.lock().receiver = Some(waker.clone());
        waker.wake();
    }

    /// Sends what `next` gives, each value with its weight, until it has no more or there is no
    /// room; false if there is none. Nobody receives what is sent after the other end has closed.
    pub fn send_from(&self, mut next: impl FnMut() -> Option<(S, usize)>) -> bool {
        let mut state = self.outgoing.lock();
        let was_empty = state.queue.is_empty();
        let room = loop {
            if !self.outgoing.bounds.has_room(&state) {
                state.starved = true;
                break false;
            }
            let Some((value, weight)) = next() else { break true };
            if !state.closed {
                state.weight = state.weight.saturating_add(weight);
                state.queue.push_back(value);
            }
        };
        if was_empty && !state.queue.is_empty() {
            let receiver = state.receiver.clone();
            drop(state);
            receiver.inspect(Waker::wake);
        }
        room
    }

    /// Exchanges all that has come for `empty`, which keeps its memory. Does nothing if it is not
    /// empty: what it has is to be treated first.
    pub fn receive(&self, empty: &mut VecDeque<R>) {
        if !empty.is_empty() {
            return;
        }
        let mut state = self.incoming.lock();
        std::mem::swap(&mut state.queue, empty);
        state.weight = 0;
        if std::mem::take(&mut state.starved) {
            let sender = state.sender.clone();
            drop(state);
            sender.inspect(Waker::wake);
        }
    }

    /// The other end is gone, and all that it sent was received.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let state = self.incoming.lock();
        state.closed && state.queue.is_empty()
    }
}

impl<S, R> Drop for End<S, R> {
    fn drop(&mut self) {
        let (receiver, _) = self.outgoing.close();
        let (_, sender) = self.incoming.close();
        [receiver, sender].into_iter().flatten().for_each(|waker| waker.wake());
    }
}

impl<S, R> fmt::Debug for End<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
    }
}

impl<T> Lane<T> {
    const fn new(bounds: Bounds) -> Self {
        let state = State {
            queue: VecDeque::new(),
            weight: 0,
            receiver: None,
            sender: None,
            starved: false,
            closed: false,
        };
        Self { bounds, state: Mutex::new(state) }
    }

    /// No code of others runs while it is held but `next`, which leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who is to be woken: receiver and sender.
    fn close(&self) -> (Option<Waker>, Option<Waker>) {
        let mut state = self.lock();
        state.closed = true;
        (state.receiver.clone(), state.sender.clone())
    }
}

impl Bounds {
    fn has_room<T>(&self, state: &State<T>) -> bool {
        state.closed || state.queue.len() < self.count_max && state.weight < self.weight_max
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { count_max: 3, weight_max: 10 };

    fn send<R>(end: &End<u32, R>, values: &[(u32, usize)]) -> (usize, bool) {
        let mut left = values.iter().copied();
        let room = end.send_from(|| left.next());
        (values.len() - left.len(), room)
    }

    #[test]
    fn values_arrive_in_order_and_within_the_bounds() {
        let (near, far) = duplex::<u32, ()>(BOUNDS);
        assert_eq!(send(&near, &[(1, 0), (2, 0), (3, 0), (4, 0)]), (3, false));
        let mut got = VecDeque::new();
        far.receive(&mut got);
        assert_eq!(got, [1, 2, 3]);
        far.receive(&mut got);
        assert_eq!(got.len(), 3, "what was not treated stays");
        got.clear();
        assert_eq!(send(&near, &[(4, 9), (5, 9), (6, 9)]), (2, false), "one goes beyond");
        far.receive(&mut got);
        assert_eq!(got, [4, 5]);
        assert_eq!(send(&near, &[(6, 1)]), (1, true));
    }

    #[test]
    fn ports_are_woken_when_something_changes_for_them() {
        let (near, far) = duplex::<u32, ()>(BOUNDS);
        let (ours, theirs) = (Waker::new().unwrap(), Waker::new().unwrap());
        near.attach(ours.clone());
        far.attach(theirs.clone());
        assert!(ours.answer() && theirs.answer(), "whatever was before");
        send(&near, &[(1, 0)]);
        assert!(theirs.answer() && !ours.answer());
        send(&near, &[(2, 0)]);
        assert!(!theirs.answer(), "it knows");
        assert_eq!(send(&near, &[(3, 0), (4, 0)]), (1, false));
        let mut got = VecDeque::new();
        far.receive(&mut got);
        assert!(ours.answer(), "there is room again");
        got.clear();
        far.receive(&mut got);
        assert!(!ours.answer());
        drop(far);
        assert!(ours.answer() && near.is_over());
    }

    #[test]
    fn what_was_sent_before_the_end_arrives() {
        let (near, far) = duplex::<u32, ()>(BOUNDS);
        send(&near, &[(1, 0)]);
        drop(near);
        assert!(!far.is_over(), "there is something left");
        let mut got = VecDeque::new();
        far.receive(&mut got);
        assert_eq!(got, [1]);
        assert!(far.is_over());
        assert!(far.send_from(|| None), "nobody is left, and nothing waits for room");
    }
}
