// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps orders and a hand-over apart: what an order changes is handed over, or not begun.

use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

/// So long a process may look at its configuration before an order goes before it.
const HELD_MAX: Duration = Duration::from_secs(10);

/// Between two looks whether it has done so.
const LOOK: Duration = Duration::from_millis(500);

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
    start: Start,
    orders: usize,
    closing: Option<Closing>,
    /// Closings there were.
    count: u64,
}

/// Whether this process serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Start {
    #[default]
    Serves,
    /// It is about to, and may leave that to another process yet.
    Waits,
    Given,
}

/// Who has closed it.
#[derive(Clone, Copy, Debug)]
struct Closing {
    number: u64,
    since: Instant,
    /// What is there is being handed over.
    is_final: bool,
}

impl State {
    /// Opens it to an order, or to another process, where who has closed it takes his time.
    fn is_open(&mut self) -> bool {
        if self.start == Start::Given {
            return false;
        }
        let held = self.closing.filter(|it| it.is_final || it.since.elapsed() < HELD_MAX);
        self.closing = held;
        held.is_none()
    }

    fn is_closed_by(&self, number: u64) -> bool {
        self.closing.is_some_and(|it| it.number == number)
    }
}

/// An order is carried out as long as it lives.
#[derive(Debug)]
pub(crate) struct Pass(Gate);

/// Who comes waits as long as this lives, and is sent away if it is dropped before this process
/// serves: what he would change is not that of the one that does.
#[derive(Debug)]
pub(crate) struct Starting(Gate);

/// None is as long as this lives, but for one that has waited for too long.
#[derive(Debug)]
pub(crate) struct Closed {
    gate: Gate,
    number: u64,
}

impl Gate {
    /// Holds up whoever comes, from before the first one does.
    pub(crate) fn starting(&self) -> Starting {
        self.state().start = Start::Waits;
        Starting(self.clone())
    }

    /// None: it is closed.
    pub(crate) fn enter(&self) -> Option<Pass> {
        let mut state = self.started();
        if !state.is_open() {
            return None;
        }
        state.orders += 1;
        drop(state);
        Some(Pass(self.clone()))
    }

    /// Waits where another process takes over: for its turn as any order, or until that has not
    /// done so. None: this process does not serve.
    pub(crate) fn enter_in_turn(&self) -> Option<Pass> {
        let mut state = self.started();
        while !state.is_open() {
            if state.start == Start::Given {
                return None;
            }
            // Who takes his time does not say so.
            let waited = self.0.left.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.orders += 1;
        drop(state);
        Some(Pass(self.clone()))
    }

    /// Whether who enters in turn waits, for all that is known.
    pub(crate) fn is_closed(&self) -> bool {
        !self.state().is_open()
    }

    /// Lets no further order in, and gives those that are under way so long to end. The error says
    /// why it cannot be; it is open then.
    pub(super) fn close(&self, patience: Duration) -> Result<Closed, &'static str> {
        let mut state = self.started();
        if !state.is_open() {
            return Err("another process takes over already; try: lunwire status, in a moment");
        }
        state.count += 1;
        let (number, since) = (state.count, Instant::now());
        state.closing = Some(Closing { number, since, is_final: false });
        let closed = Closed { gate: self.clone(), number };
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

    /// When it is known who serves.
    fn started(&self) -> MutexGuard<'_, State> {
        let is_waited_for = |state: &mut State| state.start == Start::Waits;
        let waited = self.0.left.wait_while(self.state(), is_waited_for);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What the lock guards is whole between any two statements.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Starting {
    /// This process serves.
    pub(crate) fn serves(self) {
        self.0.state().start = Start::Serves;
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.start == Start::Waits {
            state.start = Start::Given;
        }
        drop(state);
        self.0.0.left.notify_all();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.state().orders -= 1;
        self.0.0.left.notify_all();
    }
}

impl Closed {
    /// No order has come before, and no other process.
    pub(super) fn holds(&self) -> bool {
        self.gate.state().is_closed_by(self.number)
    }

    /// As if it had been closed for as long as it may be.
    #[cfg(test)]
    pub(super) fn grow_old(&self) {
        let long_ago = Instant::now().checked_sub(HELD_MAX);
        let mut state = self.gate.state();
        let closing = state.closing.as_mut().expect("it is closed");
        closing.since = long_ago.expect("the machine is up for longer");
    }

    /// What is there is handed over now: no order comes before that is done. The error: one has.
    pub(super) fn is_final(&self) -> Result<(), &'static str> {
        let mut state = self.gate.state();
        match &mut state.closing {
            Some(closing) if closing.number == self.number => {
                closing.is_final = true;
                Ok(())
            }
            _ => Err("an order came first, or another process, since it took its time; try: again"),
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        if state.is_closed_by(self.number) {
            state.closing = None;
        }
        drop(state);
        self.gate.0.left.notify_all();
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
    fn who_comes_before_a_process_serves_waits_for_that() {
        for serves in [true, false] {
            let gate = Gate::default();
            let starting = gate.starting();
            let (tell, told) = std::sync::mpsc::channel();
            let comes = |what: fn(&Gate) -> bool| {
                let (gate, tell) = (gate.clone(), tell.clone());
                std::thread::spawn(move || tell.send(what(&gate)))
            };
            let order = comes(|gate| gate.enter().is_some());
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it does not wait");
            let other = comes(|gate| gate.close(Duration::from_secs(60)).is_ok());
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it does not wait");
            match serves {
                true => starting.serves(),
                false => drop(starting),
            }
            let both = [told.recv(), told.recv()].map(|it| it.expect("it waits no longer"));
            // One may have come while the other one was there.
            assert!(both.contains(&serves) && (serves || both == [false; 2]), "{both:?}");
            for thread in [order, other] {
                thread.join().expect("it ends").expect("heard");
            }
        }
    }

    #[test]
    fn who_takes_his_time_holds_up_no_order_for_long() {
        let gate = Gate::default();
        let first = gate.close(Duration::ZERO).expect("nobody is there");
        first.grow_old();
        drop(gate.enter().expect("an order goes before it"));
        assert!(first.is_final().is_err());
        let second = gate.close(Duration::ZERO).expect("nobody is there");
        drop(first);
        assert!(gate.enter().is_none(), "it is closed by another one");
        second.grow_old();
        let third = gate.close(Duration::ZERO).expect("that one takes its time, too");
        assert!(second.is_final().is_err());
        assert_eq!(third.is_final(), Ok(()));
        third.grow_old();
        assert!(gate.enter().is_none() && gate.close(Duration::ZERO).is_err(), "it is handed over");
        drop(third);
        assert!(gate.enter().is_some());
    }

    #[test]
    fn who_enters_in_turn_waits_for_who_takes_over() {
        let gate = Gate::default();
        let enters = |gate: &Gate| {
            let (gate, (tell, told)) = (gate.clone(), std::sync::mpsc::channel());
            std::thread::spawn(move || tell.send(gate.enter_in_turn().is_some()));
            told
        };
        let waits = |told: &std::sync::mpsc::Receiver<bool>| {
            told.recv_timeout(Duration::from_millis(50)).is_err()
        };
        assert!(!gate.is_closed());
        assert_eq!(enters(&gate).recv(), Ok(true));
        // Nothing was handed over.
        let closed = gate.close(Duration::from_secs(60)).expect("nobody is there");
        assert_eq!(closed.is_final(), Ok(()));
        let told = enters(&gate);
        assert!(gate.is_closed() && waits(&told));
        drop(closed);
        assert_eq!(told.recv(), Ok(true));
        // It takes its time.
        let closed = gate.close(Duration::from_secs(60)).expect("nobody is there");
        let told = enters(&gate);
        assert!(waits(&told));
        closed.grow_old();
        assert_eq!(told.recv(), Ok(true));
        let starting = gate.starting();
        let told = enters(&gate);
        assert!(waits(&told));
        drop(starting);
        assert_eq!(told.recv(), Ok(false));
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
