// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps orders and a hand-over apart: what an order changes is handed over, or not begun.

use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

/// Open to orders, until it is closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    orders: usize,
    is_closed: bool,
}

/// An order is carried out as long as it lives.
#[derive(Debug)]
pub(crate) struct Pass(Gate);

/// None is as long as this lives.
#[derive(Debug)]
pub(crate) struct Closed(Gate);

impl Gate {
    /// None: it is closed.
    pub(crate) fn enter(&self) -> Option<Pass> {
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        state.orders += 1;
        drop(state);
        Some(Pass(self.clone()))
    }

    /// Lets no further order in, and gives those that are under way so long to end. The error says
    /// why it cannot be; it is open then.
    pub(super) fn close(&self, patience: Duration) -> Result<Closed, &'static str> {
        let mut state = self.state();
        if state.is_closed {
            return Err("another process takes over already; try: lunwire status, in a moment");
        }
        state.is_closed = true;
        let closed = Closed(self.clone());
        let are_there = |state: &mut State| state.orders > 0;
        let waited = self.0.left.wait_timeout_while(state, patience, are_there);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_busy = state.orders > 0;
        // Who opens it again wants the lock.
        drop(state);
        match is_busy {
            true => Err("an order is being carried out; try: again when it is done"),
            false => Ok(closed),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What the lock guards is whole between any two statements.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.state().orders -= 1;
        self.0.0.left.notify_all();
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.state().is_closed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_a_hand_over_exclude_each_other() {
        let gate = Gate::default();
        let (first, second) = (gate.enter(), gate.enter());
        assert!(first.is_some() && second.is_some());
        assert!(gate.close(Duration::ZERO).is_err());
        let third = gate.enter();
        assert!(third.is_some(), "it is open as before");
        drop((first, second, third));
        let closed = gate.close(Duration::ZERO).expect("nobody is there");
        assert!(gate.enter().is_none() && gate.close(Duration::ZERO).is_err());
        drop(closed);
        assert!(gate.enter().is_some());
    }

    #[test]
    fn orders_that_are_done_soon_are_waited_for() {
        let gate = Gate::default();
        let order = gate.enter();
        let closing = std::thread::spawn({
            let gate = gate.clone();
            move || gate.close(Duration::from_secs(60)).map(drop)
        });
        while gate.enter().is_some() {
            std::thread::yield_now();
        }
        drop(order);
        assert_eq!(closing.join().expect("it ends"), Ok(()));
    }
}
