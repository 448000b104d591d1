// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for others: for their turn in the task set, for the end of an ACA condition,
//! for a unit that somebody works on alone.
//!
//! Whoever ends on this reactor may be the one that is waited for, so all try again then. Whoever
//! ends on another reactor is noticed by trying again: at once for a short while, then at
//! intervals.

use std::time::Duration;

use clock::Instant;
use engine::Port;
use iscsi::datamover::TaskId;
use scsi::Input;

use super::Pump;
use crate::table::Key;

/// As long as this a wait is expected to be over at any moment, as that for COMPARE AND WRITE is.
const SHORT: Duration = Duration::from_micros(200);

/// Later it may last as long as an initiator likes: little work, and soon enough for a person.
const INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(super) struct Waiting {
    tasks: Vec<(Key, TaskId)>,
    /// When the last of them began to wait.
    since: Option<Instant>,
    next: Option<Instant>,
    ended: bool,
    /// Those that waited are trying again.
    retrying: bool,
}

impl Waiting {
    /// A command has ended here: it may be the one that others wait for.
    pub(super) fn somebody_ended(&mut self) {
        self.ended = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// When to try again, if anybody waits.
    pub(super) fn next_try(&self, now: Instant) -> Option<Instant> {
        let since = self.since.filter(|_| !self.tasks.is_empty())?;
        if now < since + SHORT { Some(now) } else { self.next }
    }

    /// The task is over.
    pub(super) fn forget(&mut self, session: Key, task: TaskId) {
        self.ended = true;
        self.tasks.retain(|waiting| *waiting != (session, task));
    }

    /// The session is over.
    pub(super) fn forget_session(&mut self, key: Key) {
        self.ended = true;
        self.tasks.retain(|(session, _)| *session != key);
    }

    /// All that wait, if there is a reason to try again now.
    fn take_due(&mut self, now: Instant) -> Vec<(Key, TaskId)> {
        let due = std::mem::take(&mut self.ended) || self.next_try(now).is_some_and(|at| at <= now);
        if !due {
            return Vec::new();
        }
        self.next = Some(now + INTERVAL);
        std::mem::take(&mut self.tasks)
    }
}

impl<P: Port> Pump<P> {
    /// A command cannot go on before others.
    #[cold]
    pub(super) fn wait_for_others(&mut self, key: Key, id: TaskId) {
        self.waiting.tasks.push((key, id));
        if !self.waiting.retrying {
            let now = self.port.now();
            self.waiting.since = Some(now);
            self.waiting.next = Some(now + INTERVAL);
        }
    }

    /// Lets commands that wait try again, in the order in which they began to.
    pub(super) fn try_again(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let due = self.waiting.take_due(self.port.now());
        self.waiting.retrying = true;
        for (key, id) in due {
            self.resume(key, id, Input::Turn);
            self.settle(key);
        }
        self.waiting.retrying = false;
    }

    /// What time it is.
    #[cold]
    pub(super) fn tell_time(&mut self, key: Key, id: TaskId) {
        let milliseconds = self.port.wall_clock().as_millis();
        self.resume(key, id, Input::Clock(u64::try_from(milliseconds).unwrap_or(u64::MAX)));
    }
}
