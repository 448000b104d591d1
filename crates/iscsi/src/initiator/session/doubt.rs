// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of which nobody knows whether a function has ended them. Read first: RFC 7143 §4.2.3.3
//! (multi-task abort), §11.5.1, §11.6.1.
//!
//! A function over many tasks ends commands of all connections without a word: only its answer
//! tells so, and that comes on the connection where it was asked for. When this one is gone, what
//! the function was to end on the others may never be answered. So each of these commands is
//! aborted by itself, over its own connection: that this is done, and that there is no such task,
//! both say that it has ended.

use alloc::collections::VecDeque;

use clock::Instant;

use super::Function;
use super::Session;
use super::SessionError;
use super::State;
use super::management::Job;
use crate::initiator::datamover::TaskId;
use crate::initiator::tasks::Home;

/// Commands in doubt that wait for their turn to be aborted.
#[derive(Debug, Default)]
pub(super) struct Doubts(VecDeque<TaskId>);

impl Session {
    /// A function is lost that was to end these commands. Those whose connection is gone, too, are
    /// told of by its logout.
    pub(super) fn doubt(&mut self, tasks: impl IntoIterator<Item = TaskId>) {
        self.doubts.0.extend(tasks);
    }

    /// Aborts as many commands in doubt as may be asked for at once.
    pub(super) fn abort_doubtful(&mut self, now: Instant) {
        while self.may_ask() && self.controls.has_room() {
            let Some(task) = self.doubts.0.pop_front() else { return };
            if let Some(entry) = self.tasks.get(task)
                && entry.home == Home::There
            {
                let at = entry.connection;
                self.send_management(Job::Doubtful(task), Function::AbortTask(task), at, now);
            }
        }
    }

    /// The target can neither abort a command in doubt nor say that it is gone: it may never be
    /// answered, and only another session makes sure that it is not carried out later.
    pub(super) fn refused_doubtful(&self, task: TaskId) -> Result<(), SessionError> {
        match self.tasks.get(task) {
            Some(_) => Err(SessionError::NotRecovered),
            None => Ok(()),
        }
    }

    pub(super) fn end_doubts(&mut self) {
        self.doubts = Doubts::default();
    }

    pub(super) fn check_doubts(&self) {
        let waits = self.may_ask() && self.controls.has_room() && !self.doubts.0.is_empty();
        assert!(!waits, "a command in doubt is aborted once that can be asked for");
    }

    /// Nothing is asked for behind a logout.
    const fn may_ask(&self) -> bool {
        matches!(self.state, State::Active | State::Draining { .. })
    }
}
