// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Letters to the thread behind an initiator, and the places where it leaves what was asked for.
//!
//! A place is found again by its number, and all are under one lock with the letters: to post takes
//! it once, to leave all that has ended in a turn takes it once, and to fetch does.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::Weak;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::thread;
use std::thread::Thread;

use iscsi::initiator::discovery::Discovered;
use slab::Slab;

use super::lock;
use super::slot::Reply;
use crate::Chunks;
use crate::Error;
use crate::Generation;
use crate::Geometry;
use crate::Kind;
use crate::Management;
use crate::Operation;
use crate::Options;
use crate::PathChange;
use crate::Paths;
use crate::Request;
use crate::SessionId;
use crate::Stripe;
use crate::completions::Shared;
use crate::disk::DiskState;

/// What comes of an operation or a command.
pub(crate) type Outcome = Result<Ended, Error>;

/// How an operation or a command ended well.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) data: Chunks,
    pub(crate) generation: Generation,
}

/// What the thread is asked to do.
#[derive(Debug)]
pub(crate) enum Letter {
    OpenPaths(Box<Paths>, Reply<Result<SessionId, Error>>),
    OpenStripe(Box<Stripe>, Reply<Result<SessionId, Error>>),
    Open(Box<Options>, Reply<Result<SessionId, Error>>),
    Discover(Box<Options>, Reply<Result<Vec<Discovered>, Error>>),
    Command(SessionId, Request, Owner),
    Operation(Arc<DiskState>, Geometry, Operation, Owner),
    Watch(Weak<DiskState>),
    Declare(SessionId, u32, Reply<Result<(), Error>>),
    Manage(SessionId, Management, Reply<Result<(), Error>>),
    Troubles(SessionId, Reply<Vec<(usize, PathChange)>>),
    Close(SessionId, Reply<()>),
    Stop,
}

/// Who wants to know how something ends.
#[derive(Debug)]
pub(crate) enum Owner {
    /// Whoever has the ticket with this number.
    Ticket(usize),
    /// A completion queue, under this tag.
    Queue(Arc<Shared>, u64),
    /// The thread itself.
    Server,
}

/// Between callers and the thread.
pub(crate) struct Mailbox {
    state: Mutex<State>,
    waker: engine::Waker,
}

#[derive(Default)]
struct State {
    letters: Vec<Letter>,
    places: Slab<OutcomeSlot>,
    /// The thread has ended, and leaves nothing any more.
    over: bool,
}

/// Where an outcome is left.
enum OutcomeSlot {
    /// Nobody waits for it yet.
    Empty,
    Awaited(Sleeper),
    Filled(Outcome),
    /// Nobody will.
    Forgotten,
}

/// Who is to be woken.
pub(super) enum Sleeper {
    Thread(Thread),
    Task(Waker),
}

impl Sleeper {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(super) fn new(waker: engine::Waker) -> Self {
        Self { state: Mutex::default(), waker }
    }

    /// Sends a letter whose answer is in it. One that nobody reads any more is dropped, and tells
    /// so by that.
    pub(crate) fn send(&self, letter: Letter) {
        let mut state = lock(&self.state);
        if !state.over {
            state.letters.push(letter);
        }
        drop(state);
        self.waker.wake();
    }

    /// Sends a letter whose outcome is left in a place of the mailbox.
    pub(crate) fn ask(self: &Arc<Self>, letter: impl FnOnce(Owner) -> Letter) -> Ticket {
        let mut state = lock(&self.state);
        if state.over {
            return Ticket { mail: Arc::clone(self), place: None };
        }
        let place = state.places.insert(OutcomeSlot::Empty);
        state.letters.push(letter(Owner::Ticket(place)));
        drop(state);
        self.waker.wake();
        Ticket { mail: Arc::clone(self), place: Some(place) }
    }

    /// Sends a letter whose outcome goes to a completion queue. False: nobody reads it any more.
    pub(crate) fn submit(&self, letter: Letter) -> bool {
        let mut state = lock(&self.state);
        if state.over {
            return false;
        }
        state.letters.push(letter);
        drop(state);
        self.waker.wake();
        true
    }

    /// The thread: exchanges all letters for `empty`.
    pub(super) fn collect(&self, empty: &mut Vec<Letter>) {
        std::mem::swap(&mut lock(&self.state).letters, empty);
    }

    /// The thread: leaves what has ended. `sleepers` is empty, and keeps its memory.
    pub(super) fn leave(&self, ended: &mut Vec<(usize, Outcome)>, sleepers: &mut Vec<Sleeper>) {
        if ended.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        for (number, outcome) in ended.drain(..) {
            let Some(place) = state.places.get_mut(number) else { continue };
            match std::mem::replace(place, OutcomeSlot::Filled(outcome)) {
                OutcomeSlot::Awaited(sleeper) => sleepers.push(sleeper),
                OutcomeSlot::Empty => {}
                OutcomeSlot::Forgotten | OutcomeSlot::Filled(_) => {
                    state.places.remove(number);
                }
            }
        }
        // Whoever wakes up takes the lock.
        drop(state);
        sleepers.drain(..).for_each(Sleeper::wake);
    }

    /// The thread: nothing will be left any more. Gives the letters that nobody has read.
    pub(super) fn end(&self) -> Vec<Letter> {
        let mut state = lock(&self.state);
        state.over = true;
        for (_, place) in &mut state.places {
            if matches!(place, OutcomeSlot::Awaited(_))
                && let OutcomeSlot::Awaited(sleeper) = std::mem::replace(place, OutcomeSlot::Empty)
            {
                sleeper.wake();
            }
        }
        std::mem::take(&mut state.letters)
    }
}

/// Names the place of an outcome.
#[derive(Debug)]
pub(crate) struct Ticket {
    mail: Arc<Mailbox>,
    /// None: the outcome was fetched, or there will be none.
    place: Option<usize>,
}

impl Ticket {
    /// Waits for the outcome.
    pub(crate) fn wait(mut self) -> Outcome {
        loop {
            match self.fetch(|| Sleeper::Thread(thread::current())) {
                Some(outcome) => return outcome,
                None => thread::park(),
            }
        }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<Outcome> {
        match self.fetch(|| Sleeper::Task(context.waker().clone())) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }

    /// The outcome if it is there; else `sleeper` is woken when it is.
    fn fetch(&mut self, sleeper: impl FnOnce() -> Sleeper) -> Option<Outcome> {
        let closed = || Some(Err(Error::new(Kind::Closed)));
        let Some(number) = self.place else { return closed() };
        let mut state = lock(&self.mail.state);
        let over = state.over;
        let Some(place) = state.places.get_mut(number) else { return closed() };
        if !over && !matches!(place, OutcomeSlot::Filled(_)) {
            *place = OutcomeSlot::Awaited(sleeper());
            return None;
        }
        self.place = None;
        match state.places.remove(number) {
            OutcomeSlot::Filled(outcome) => Some(outcome),
            _ => closed(),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(number) = self.place else { return };
        let mut state = lock(&self.mail.state);
        let over = state.over;
        let Some(place) = state.places.get_mut(number) else { return };
        match std::mem::replace(place, OutcomeSlot::Forgotten) {
            // Dropped after the lock: its buffers go back to their pool.
            OutcomeSlot::Filled(outcome) => {
                state.places.remove(number);
                drop(state);
                drop(outcome);
            }
            _ if over => {
                state.places.remove(number);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new(engine::Waker::new().unwrap()))
    }

    fn ask(mail: &Arc<Mailbox>) -> (Ticket, usize) {
        let mut place = 0;
        let ticket = mail.ask(|owner| {
            if let Owner::Ticket(number) = owner {
                place = number;
            }
            Letter::Stop
        });
        (ticket, place)
    }

    fn leave(mail: &Mailbox, mut ended: Vec<(usize, Outcome)>) {
        mail.leave(&mut ended, &mut Vec::new());
    }

    #[test]
    fn outcomes_are_left_and_fetched_in_any_order() {
        let mail = mailbox();
        let [(first, one), (second, two), (third, three)] = [(); 3].map(|()| ask(&mail));
        let after = |resets| Generation::of(resets, 0);
        let ended = |generation| Ok(Ended { generation, ..Ended::default() });
        leave(&mail, vec![(two, ended(after(2))), (one, ended(after(1)))]);
        assert_eq!(first.wait().unwrap().generation, after(1));
        assert_eq!(second.wait().unwrap().generation, after(2));
        let waits = thread::spawn(move || third.wait().unwrap().generation);
        leave(&mail, vec![(three, ended(after(3)))]);
        assert_eq!(waits.join().unwrap(), after(3));
        assert!(lock(&mail.state).places.is_empty());
    }

    #[test]
    fn nothing_is_left_of_what_nobody_waits_for() {
        let mail = mailbox();
        let (ticket, place) = ask(&mail);
        drop(ticket);
        assert_eq!(lock(&mail.state).places.len(), 1, "it is under way");
        leave(&mail, vec![(place, Ok(Ended::default()))]);
        assert!(lock(&mail.state).places.is_empty());
        let (ticket, place) = ask(&mail);
        leave(&mail, vec![(place, Ok(Ended::default()))]);
        drop(ticket);
        assert!(lock(&mail.state).places.is_empty());
    }

    #[test]
    fn whoever_waits_at_the_end_is_told() {
        let mail = mailbox();
        let (before, _) = ask(&mail);
        let (dropped, _) = ask(&mail);
        let waits = thread::spawn(move || before.wait().is_err());
        assert_eq!(mail.end().len(), 2);
        assert!(waits.join().unwrap());
        drop(dropped);
        let (after, _) = ask(&mail);
        assert!(after.wait().is_err() && !mail.submit(Letter::Stop));
        assert!(lock(&mail.state).places.is_empty());
    }
}
