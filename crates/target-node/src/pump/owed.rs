// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits to leave for an initiator that does not take it.
//!
//! A store in memory lends its pages to what is sent, and others who write to lent pages need new
//! ones, of which there is a bounded number. So a session to which much is owed reads no more until
//! some of that has left: however slowly it takes its data, it keeps few pages from the others. And
//! what all of them together are owed is lent up to a bound, and copied beyond that.
//!
//! Messages, such as the answers to pings, are in no pool: who does not take them is not heard any
//! more when it has the most that one may have, or a little and all together have the most.

use engine::Port;
use iscsi::datamover::TaskId;
use scsi::Step;

use super::Phase;
use super::awaiting_memory::Want;
use super::services::task_of;
use super::view::SessionView;

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

/// What may wait of messages, bytes, on all connections, before none may have more than
const MESSAGES_ALL: usize = 64 << 20;

/// several times what the statuses of a whole command window take.
const MESSAGES_MIN: usize = 256 << 10;

/// What may wait on one as long as all have less.
const MESSAGES_MAX: usize = 16 << 20;

/// What the sessions of a reactor are owed together.
#[derive(Debug, Default)]
pub(super) struct Owed {
    bytes: usize,
    sessions: usize,
    /// Bytes of messages that wait on all connections.
    messages: usize,
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

    /// On a connection other bytes of messages wait than before.
    pub(super) const fn replace_messages(&mut self, before: usize, now: usize) {
        self.messages = self.messages.saturating_sub(before).saturating_add(now);
    }

    /// What may wait of messages on a connection, on one of so many reactors.
    pub(super) fn messages_max(&self, reactors: usize) -> usize {
        match self.messages < MESSAGES_ALL / reactors.max(1) {
            true => MESSAGES_MAX,
            false => MESSAGES_MIN,
        }
    }

    /// Panics if it knows of another number of sessions, or of messages that wait on no connection.
    pub(super) fn check(&self, sessions: usize, messages: usize) {
        assert_eq!(self.sessions, sessions, "each session has its part in what may be owed");
        assert_eq!(self.messages, messages, "what waits is counted once, and no longer");
    }
}

impl<P: Port> SessionView<'_, P> {
    /// What a command wants of its store, in a session to which much is owed or in which others
    /// wait; None if it reads for its initiator and waits for the line.
    #[cold]
    pub(super) fn read_or_wait(&mut self, id: TaskId, op: store::Op) -> Option<store::Op> {
        let store::Op::Read { length, .. } = &op else { return Some(op) };
        let length = usize::try_from(*length).unwrap_or(usize::MAX);
        let owed = self.session.owed;
        let max = self.context.owed.max(self.context.shared.mailboxes.len());
        let has_room = owed < OWED_MIN || owed.saturating_add(length) <= max;
        let is_behind_others = self.is_behind_others();
        let task = task_of(&mut self.session.tasks, id)?;
        // Who has begun holds blocks and memory, for which others wait, too.
        let is_first = task.is_reading || task.overtakes;
        if !task.sends || (has_room && (is_first || !is_behind_others)) {
            return Some(op);
        }
        self.await_memory(id, Want::Line { op: Box::new(op) }, 0);
        None
    }

    /// Others wait for the line already. What has left since is for them: who came later would take
    /// it each time, until they are refused.
    fn is_behind_others(&self) -> bool {
        let mut waiting = self.session.awaiting_memory.iter();
        !self.context.memory_queue.is_serving()
            && waiting.any(|waiter| matches!(waiter.want, Want::Line { .. }))
    }

    /// A list has left on a connection of the session, or the connection has.
    pub(super) fn paid(&mut self) {
        let (session, context) = (&mut *self.session, &mut *self.context);
        let connections = session.connections.iter().filter_map(|key| self.connections.get(*key));
        let owed = connections
            .filter(|one| matches!(one.phase, Phase::Session { .. }))
            .map(|one| one.mover.backlog())
            .sum();
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

    /// However they come: one by one, in sessions of several connections, and on some of the
    /// reactors only.
    #[test]
    fn messages_for_all_connections_have_one_bound() {
        for reactors in [1, 2, 16] {
            let (mut owed, connections) = (Owed::default(), 500);
            for _ in 0..connections {
                owed.replace_messages(0, owed.messages_max(reactors));
            }
            let most = MESSAGES_ALL / reactors + MESSAGES_MAX + connections * MESSAGES_MIN;
            assert!((MESSAGES_ALL / reactors..most).contains(&owed.messages), "{owed:?}");
            assert_eq!(owed.messages_max(reactors), MESSAGES_MIN);
            owed.replace_messages(owed.messages, 0);
            assert_eq!(owed.messages_max(reactors), MESSAGES_MAX, "all has left");
        }
    }
}
