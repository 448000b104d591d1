// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits to leave for an initiator that does not take it.
//!
//! A store in memory lends its pages to what is sent, and others who write to lent pages need new
//! ones, of which there is a bounded number. So a session to which much is owed reads no more until
//! some of that has left: however slowly it takes its data, it keeps few pages from the others. And
//! what all of them together are owed is lent up to a bound, and copied beyond that.
//!
//! Messages, such as the answers to pings, are in no pool: who does not take them is not heard any
//! more when its part of what all may have is full.

use engine::Port;
use iscsi::datamover::TaskId;
use scsi::Step;

use super::awaiting_memory::Want;
use super::services::task_of;
use super::view::SessionView;
use crate::table::Key;

/// What all reactors lend, bytes, each its part: half of the new pages that a disk in memory may
/// need. More is copied, as data of a file is; for what finds no memory there is another time.
const LENT_ALL: usize = 128 << 20;

/// What all sessions may be owed, bytes: a quarter of the new pages that a disk in memory may need.
/// Each has its part in it, within the next two.
const OWED_ALL: usize = 64 << 20;

/// What a session may be owed, bytes: eight lists of PDUs on top of all that a socket holds, so
/// that no line that takes it waits for us.
const OWED_MAX: usize = 16 << 20;

/// What it may be owed however many there are: two lists on top of what a socket of Linux holds by
/// default at most is as much as a line needs to be busy.
pub(super) const OWED_MIN: usize = 4 << 20;

/// What may wait of messages, bytes, on all connections: each has its part in it, by how many
/// sessions there are when it takes it, within
const MESSAGES_ALL: usize = 64 << 20;

/// several times what the statuses of a whole command window take,
const MESSAGES_MIN: usize = 256 << 10;

/// and what may wait at all.
const MESSAGES_MAX: usize = 16 << 20;

/// What the sessions of a reactor are owed together.
#[derive(Debug, Default)]
pub(super) struct Owed {
    bytes: usize,
    sessions: usize,
}

impl Owed {
    /// Another session is there, to which nothing is owed.
    pub(super) const fn open(&mut self) {
        self.sessions += 1;
    }

    /// A session has gone, to which so many bytes were owed.
    pub(super) const fn close(&mut self, bytes: usize) {
        self.sessions -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(super) const fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// A session is owed other bytes than before.
    const fn replace(&mut self, before: usize, now: usize) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(now);
    }

    /// Whether so many bytes more may be lent, on one of so many reactors.
    pub(super) fn lends(&self, bytes: usize, reactors: usize) -> bool {
        self.bytes.saturating_add(bytes) <= LENT_ALL / reactors.max(1)
    }

    /// What a session may be owed, on one of so many reactors.
    fn max(&self, reactors: usize) -> usize {
        let sessions = self.sessions.saturating_mul(reactors);
        (OWED_ALL / sessions.max(1)).clamp(OWED_MIN, OWED_MAX)
    }

    /// What may wait of messages on a connection, on one of so many reactors.
    pub(super) fn messages_max(&self, reactors: usize) -> usize {
        let sessions = self.sessions.saturating_mul(reactors);
        (MESSAGES_ALL / sessions.max(1)).clamp(MESSAGES_MIN, MESSAGES_MAX)
    }

    /// Panics if it knows of another number of sessions.
    pub(super) fn check(&self, sessions: usize) {
        assert_eq!(self.sessions, sessions, "each session has its part in what may be owed");
    }
}

impl<P: Port> SessionView<'_, P> {
    /// What a command of a session to which much is owed wants of its store; None if it reads for
    /// its initiator and waits for the line.
    #[cold]
    pub(super) fn read_or_wait(&mut self, id: TaskId, op: store::Op) -> Option<store::Op> {
        let store::Op::Read { length, .. } = &op else { return Some(op) };
        let length = usize::try_from(*length).unwrap_or(usize::MAX);
        let sum = self.session.owed.saturating_add(length);
        let sends = task_of(&mut self.session.tasks, id)?.sends;
        if !sends || sum <= self.context.owed.max(self.context.shared.mailboxes.len()) {
            return Some(op);
        }
        self.await_memory(id, Want::Line { op: Box::new(op) }, 0);
        None
    }

    /// A list has left on a connection of the session.
    pub(super) fn paid(&mut self) {
        let (session, context) = (&mut *self.session, &mut *self.context);
        let backlog = |key: &Key| Some(self.connections.get(*key)?.mover.backlog());
        let owed = session.connections.iter().filter_map(backlog).sum();
        context.owed.replace(std::mem::replace(&mut session.owed, owed), owed);
        if !session.awaiting_memory.is_empty() {
            session.paid = context.port.now();
            context.memory_queue.look_again();
        }
    }

    /// Goes on with a command that has waited for its line.
    pub(super) fn read_at_last(&mut self, id: TaskId, op: store::Op) {
        self.advance(id, Step::Store(op));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_all_connections_have_one_bound() {
        let of = |sessions| Owed { bytes: 0, sessions };
        assert_eq!((of(0).messages_max(1), of(1).messages_max(2)), (MESSAGES_MAX, MESSAGES_MAX));
        for sessions in [16, 60, 256] {
            assert!(of(sessions).messages_max(1) * sessions <= MESSAGES_ALL, "{sessions}");
        }
        assert_eq!(of(128).messages_max(2), MESSAGES_MIN);
        assert_eq!(of(usize::MAX).messages_max(3), MESSAGES_MIN);
    }
}
