// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps orders and a hand-over apart: what an order changes is handed over, or not begun.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Open to orders, until it is closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Mutex<State>>);

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

    /// The error says why it cannot be.
    pub(super) fn close(&self) -> Result<Closed, &'static str> {
        let mut state = self.state();
        if state.is_closed {
            return Err("another process takes over already; try: lunwire status, in a moment");
        }
        if state.orders > 0 {
            return Err("an order is being carried out; try: again when it is done");
        }
        state.is_closed = true;
        drop(state);
        Ok(Closed(self.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What the lock guards is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.state().orders -= 1;
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
        assert!(gate.close().is_err());
        drop((first, second));
        let closed = gate.close().expect("nobody is there");
        assert!(gate.enter().is_none() && gate.close().is_err());
        drop(closed);
        assert!(gate.enter().is_some());
    }
}
