// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that the engine does not know: a library does it, in threads of its own, and answers later.
//!
//! ```text
//! store --Io::Foreign(Errand)--> driver --Foreign::begin(Completer)--> library
//!       <----Store::complete----        <-----Completer::complete-----
//! ```
//!
//! The [`Completer`] owns the buffer of a read until the answer and knows where the answer goes; it
//! can be sent to any thread. It answers once: by its methods, which consume it, or by being
//! dropped, which says that the operation failed. What must not happen is that it is kept for ever:
//! whoever waits for the end of the command would wait as long, as for a disk that hangs.

use crate::device::{Answer, Failure};
use crate::{Error, IoResult, Outcome, Submitted, contradiction};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::Buf;
use core::fmt;

/// One piece of work that is done elsewhere.
pub trait Foreign: Send + Sync + fmt::Debug {
    /// Begins, and returns soon: the thread that calls serves others. Called once at most.
    fn begin(&self, completer: Completer);

    /// Nobody waits for the result any more, only for the end: the sooner the completer answers,
    /// whatever it says, the better. From then on nothing may be changed that was not changed
    /// when it answers. Called after [`begin`](Self::begin), maybe when all is done already.
    fn cancel(&self) {}
}

/// Work that is done elsewhere, as the driver gets it.
#[derive(Clone, Debug)]
pub struct Errand {
    work: Arc<dyn Foreign>,
    room: u32,
    step: u64,
}

impl Errand {
    /// `work`, which brings no bytes.
    pub const fn new(work: Arc<dyn Foreign>) -> Self {
        Self { work, room: 0, step: 0 }
    }

    /// `work`, which brings `room` bytes, at most [`BUF_LEN_MAX`](buf::BUF_LEN_MAX): the driver
    /// takes a buffer for them from its pool.
    pub const fn reading(work: Arc<dyn Foreign>, room: u32) -> Self {
        Self { work, room, step: 0 }
    }

    /// The same as step `step` of an operation that needs several: the store finds it again.
    #[must_use]
    pub fn at_step(self, step: u64) -> Self {
        Self { step, ..self }
    }

    /// Which step of its operation it is; 0 unless the store has said so.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Length of the buffer that [`begin`](Self::begin) needs; none if that is 0.
    pub const fn room(&self) -> u32 {
        self.room
    }

    /// The driver: begins the work. Its end goes to `to`, once, under `ticket`.
    pub fn begin(&self, to: Arc<dyn Answers>, ticket: u64, buf: Option<Buf>) {
        self.work.begin(Completer { to, ticket, buf, is_open: true });
    }

    /// The driver: nobody waits for the result any more.
    pub fn cancel(&self) {
        self.work.cancel();
    }
}

/// Where answers go: to the thread that waits for them.
pub trait Answers: Send + Sync + fmt::Debug {
    /// The work with this ticket has ended so. Called from any thread; takes a moment at most.
    fn answer(&self, ticket: u64, outcome: Outcome);
}

/// The duty to answer, once.
#[derive(Debug)]
#[must_use = "dropped, it says that the operation has failed"]
pub struct Completer {
    to: Arc<dyn Answers>,
    ticket: u64,
    buf: Option<Buf>,
    is_open: bool,
}

impl Completer {
    /// Where the bytes that are read go: as many as [`Errand::reading`] said. Stays where it is
    /// when the completer moves. Other bytes may have been there before, so all must be written.
    pub fn room(&mut self) -> &mut [u8] {
        self.buf.as_deref_mut().unwrap_or_default()
    }

    /// It is done; what was read is in [`room`](Self::room). Or it failed.
    pub fn complete(mut self, result: Result<(), Error>) {
        let outcome = match (result, self.buf.take()) {
            (Ok(()), Some(buf)) => Outcome::Data(buf.freeze()),
            (Ok(()), None) => Outcome::Done,
            (Err(error), _) => Outcome::Failed(error),
        };
        self.answer(outcome);
    }

    /// It has ended so, with data of its own if there are any.
    pub fn complete_with(mut self, outcome: Outcome) {
        self.buf = None;
        self.answer(outcome);
    }

    /// The device has ended the command with `status`; of what came from it the first `moved`
    /// bytes are in [`room`](Self::room).
    pub fn answer_command(mut self, status: u8, sense: Vec<u8>, moved: u32) {
        let length = usize::try_from(moved).unwrap_or(usize::MAX);
        let data = self.buf.take().filter(|_| length > 0).map(|mut buf| {
            buf.truncate(length);
            buf.freeze()
        });
        let answer = Answer::Ended { status, sense, moved, data };
        self.answer(Outcome::Answered(Box::new(answer)));
    }

    /// The command has not reached the device, or nobody knows what became of it.
    pub fn fail_command(self, failure: Failure) {
        self.complete_with(Outcome::Answered(Box::new(Answer::Failed(failure))));
    }

    fn answer(&mut self, outcome: Outcome) {
        if core::mem::take(&mut self.is_open) {
            self.to.answer(self.ticket, outcome);
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.buf = None;
        self.answer(Outcome::Failed(Error::Internal));
    }
}

/// What a store says to the `result` of foreign work that was all there was to do.
pub fn ended(result: IoResult) -> Submitted {
    match result {
        IoResult::Foreign(outcome) => Submitted::Done(outcome),
        _ => contradiction(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buf::Pool;
    use spin::Mutex;

    #[derive(Debug, Default)]
    struct Inbox(Mutex<Vec<(u64, Outcome)>>);

    impl Answers for Inbox {
        fn answer(&self, ticket: u64, outcome: Outcome) {
            self.0.lock().push((ticket, outcome));
        }
    }

    /// What is done with the completer.
    #[derive(Debug)]
    struct Way(fn(Completer));

    impl Foreign for Way {
        fn begin(&self, completer: Completer) {
            (self.0)(completer);
        }
    }

    fn answers(way: fn(Completer), buf: Option<Buf>) -> Vec<(u64, Outcome)> {
        let inbox = Arc::new(Inbox::default());
        let to = Arc::clone(&inbox);
        Errand::new(Arc::new(Way(way))).begin(to, 7, buf);
        core::mem::take(&mut *inbox.0.lock())
    }

    #[test]
    fn a_completer_answers_once_whatever_is_done_with_it() {
        let done = answers(|completer| completer.complete(Ok(())), None);
        assert!(matches!(done[..], [(7, Outcome::Done)]), "{done:?}");
        let failed = answers(|completer| completer.complete(Err(Error::Space)), None);
        assert!(matches!(failed[..], [(7, Outcome::Failed(Error::Space))]), "{failed:?}");
        let dropped = answers(drop, None);
        assert!(matches!(dropped[..], [(7, Outcome::Failed(Error::Internal))]), "{dropped:?}");
        let own = answers(|completer| completer.complete_with(Outcome::Done), None);
        assert!(matches!(own[..], [(7, Outcome::Done)]), "{own:?}");
    }

    #[test]
    fn bytes_go_into_the_buffer_of_the_driver_which_comes_back() {
        fn fail(completer: Completer) {
            completer.complete(Err(Error::Read));
        }
        let pool = Pool::new(1 << 20).expect("room");
        let buf = || pool.take(4096);
        let mut read = answers(
            |mut completer| {
                completer.room().fill(9);
                completer.complete(Ok(()));
            },
            buf(),
        );
        let Some((7, Outcome::Data(data))) = read.pop() else { panic!("{read:?}") };
        assert_eq!(data.to_vec(), [9; 4096]);
        drop(data);
        for way in [drop::<Completer>, fail] {
            let failed = answers(way, buf());
            assert!(matches!(failed[..], [(7, Outcome::Failed(_))]), "{failed:?}");
            assert_eq!(pool.bytes_in_use(), 0);
        }
    }
}
