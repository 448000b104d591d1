// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers to work that stores have done elsewhere ([`store::foreign`]), from any thread to a
//! reactor. Who has no such stores pays for one look at a word in each turn.

use std::mem;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use engine::Waker;
use store::Outcome;

/// What a reactor has been answered and has not looked at.
#[derive(Debug)]
pub(crate) struct Inbox {
    answers: Mutex<Vec<Answer>>,
    /// There may be some, and the reactor knows.
    has_news: AtomicBool,
    waker: Waker,
}

/// The ticket of the work, and how it ended.
pub(crate) type Answer = (u64, Outcome);

impl Inbox {
    pub(crate) const fn new(waker: Waker) -> Self {
        Self { answers: Mutex::new(Vec::new()), has_news: AtomicBool::new(false), waker }
    }

    /// The reactor: all that came since the last time, in exchange for an empty list.
    pub(crate) fn take(&self, list: &mut Vec<Answer>) {
        // In this order: who comes after the exchange says so once more.
        if self.has_news.load(Ordering::Acquire) && self.has_news.swap(false, Ordering::SeqCst) {
            mem::swap(list, &mut self.answers());
        }
    }

    /// What this lock guards is whole between any two statements, so poison says nothing.
    fn answers(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl store::foreign::Answers for Inbox {
    fn answer(&self, ticket: u64, outcome: Outcome) {
        self.answers().push((ticket, outcome));
        if !self.has_news.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::foreign::Answers;

    use super::*;

    #[test]
    fn many_threads_answer_and_nothing_is_missed() {
        const EACH: u64 = 2000;
        let waker = Waker::new().expect("a descriptor");
        let inbox = Arc::new(Inbox::new(waker.clone()));
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let inbox = Arc::clone(&inbox);
                std::thread::spawn(move || {
                    (0..EACH).for_each(|number| inbox.answer(thread * EACH + number, Outcome::Done))
                })
            })
            .collect();
        let (mut seen, mut list) = (Vec::new(), Vec::new());
        let mut ended = false;
        loop {
            // As a reactor does: it looks when it was woken, and only then.
            if waker.answer() {
                inbox.take(&mut list);
                seen.extend(list.drain(..).map(|(ticket, _)| ticket));
            } else if ended {
                break;
            }
            ended = threads.iter().all(std::thread::JoinHandle::is_finished);
            std::thread::yield_now();
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..4 * EACH).collect::<Vec<_>>());
    }
}
