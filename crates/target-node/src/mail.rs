// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Letter boxes of reactors, and what comes of a letter to all of them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::Instant;

use engine::Waker;

/// The letter box of a reactor, for letters `L`.
#[derive(Debug)]
pub(crate) struct Mailbox<L> {
    /// None: nobody reads it any more.
    letters: Mutex<Option<VecDeque<L>>>,
    waker: Waker,
    /// Something has ended that commands may wait for there.
    stirred: AtomicBool,
}

impl<L> Mailbox<L> {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { letters: Mutex::new(Some(VecDeque::new())), waker, stirred: AtomicBool::new(false) }
    }

    pub(crate) fn send(&self, letter: L) {
        self.is_sent(letter);
    }

    /// The same; false if nobody reads it any more.
    pub(crate) fn is_sent(&self, letter: L) -> bool {
        let mut letters = self.letters();
        let is_read = letters.is_some();
        if let Some(letters) = &mut *letters {
            letters.push_back(letter);
        }
        drop(letters);
        self.waker.wake();
        is_read
    }

    /// Lets commands that wait try again; once, however often it is said before they do.
    pub(crate) fn stir(&self) {
        if !self.stirred.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Whether somebody said so since the last call.
    pub(crate) fn take_stirred(&self) -> bool {
        self.stirred.load(Ordering::SeqCst) && self.stirred.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn take(&self) -> Option<L> {
        self.letters().as_mut()?.pop_front()
    }

    /// Nobody reads it any more: gives what was not read; what still comes is dropped, so that
    /// whoever waits for an answer hears that there is none.
    pub(crate) fn close(&self) -> VecDeque<L> {
        self.letters().take().unwrap_or_default()
    }

    fn letters(&self) -> MutexGuard<'_, Option<VecDeque<L>>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers of all reactors to a letter.
#[derive(Debug)]
pub struct Answers<T> {
    /// Of reactors that have not answered, by number.
    open: Vec<(usize, Receiver<T>)>,
    answers: Vec<T>,
}

impl<T> Answers<T> {
    pub(crate) fn ask<L>(mailboxes: &[Mailbox<L>], letter: impl Fn(Sender<T>) -> L) -> Self {
        let mut open = Vec::with_capacity(mailboxes.len());
        for (reactor, mailbox) in mailboxes.iter().enumerate() {
            let (reply, replies) = mpsc::channel();
            mailbox.send(letter(reply));
            open.push((reactor, replies));
        }
        Self { open, answers: Vec::with_capacity(mailboxes.len()) }
    }

    /// Whether all reactors have answered.
    pub fn are_complete(&mut self) -> bool {
        self.open.retain(|(_, replies)| match replies.try_recv() {
            Ok(answer) => {
                self.answers.push(answer);
                false
            }
            Err(_) => true,
        });
        self.open.is_empty()
    }

    /// What came within that time, and which reactors have not answered.
    pub(crate) fn within(mut self, time: Duration) -> Answered<T> {
        let deadline = Instant::now() + time;
        let mut silent = Vec::new();
        for (reactor, replies) in self.open {
            let left = deadline.saturating_duration_since(Instant::now());
            match replies.recv_timeout(left) {
                Ok(answer) => self.answers.push(answer),
                Err(_) => silent.push(reactor),
            }
        }
        Answered { answers: self.answers, silent }
    }
}

/// What reactors have answered in time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answered<T> {
    /// By those that did.
    pub answers: Vec<T>,
    /// The numbers of those that did not, ascending.
    pub silent: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_waits_for_nobody_longer_than_it_said() {
        let mailbox = || Mailbox::new(Waker::new().expect("a descriptor"));
        let mailboxes = [mailbox(), mailbox(), mailbox()];
        let mut answers = Answers::ask(&mailboxes, |reply: Sender<bool>| reply);
        assert!(!answers.are_complete());
        for (mailbox, answer) in [(&mailboxes[2], true), (&mailboxes[0], false)] {
            mailbox.take().expect("a letter").send(answer).expect("somebody asked");
        }
        assert!(!answers.are_complete(), "one is missing");
        let begun = Instant::now();
        let answered = answers.within(Duration::from_millis(50));
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(answered.silent, [1]);
        assert_eq!(answered.answers, [false, true], "in their order");
    }
}
