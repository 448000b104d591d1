// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits to leave for an initiator that does not take it.
//!
//! A store in memory lends its pages to what is sent, and others who write to lent pages need new
//! ones, of which there is a bounded number. So a session to which much is owed reads no more until
//! some of that has left: however slowly it takes its data, it keeps few pages from the others. And
//! what all of them together are owed is lent up to a bound, and copied beyond that.

use engine::Port;
use iscsi::datamover::TaskId;
use scsi::Step;

use super::Pump;
use super::awaiting_memory::Want;
use super::services::task_of;
use crate::table::Key;

/// What all reactors lend, bytes, each its part: half of the new pages that a disk in memory may
/// need. More is copied, as data of a file is; for what finds no memory there is another time.
pub(super) const LENT_ALL: usize = 128 << 20;

/// What all sessions may be owed, bytes: a quarter of the new pages that a disk in memory may need.
/// Each has its part in it, within the next two.
const OWED_ALL: usize = 64 << 20;

/// What a session may be owed, bytes: eight lists of PDUs on top of all that a socket holds, so
/// that no line that takes it waits for us.
const OWED_MAX: usize = 16 << 20;

/// What it may be owed however many there are: two lists on top of what a socket of Linux holds by
/// default at most is as much as a line needs to be busy.
pub(super) const OWED_MIN: usize = 4 << 20;

impl<P: Port> Pump<P> {
    /// What a session may be owed.
    fn owed_max(&self) -> usize {
        let sessions = self.sessions.len().saturating_mul(self.context.shared.mailboxes.len());
        (OWED_ALL / sessions.max(1)).clamp(OWED_MIN, OWED_MAX)
    }

    /// What a command of a session to which much is owed wants of its store; None if it reads for
    /// its initiator and waits for the line.
    #[cold]
    pub(super) fn read_or_wait(
        &mut self,
        key: Key,
        id: TaskId,
        op: store::Op,
    ) -> Option<store::Op> {
        let store::Op::Read { length, .. } = &op else { return Some(op) };
        let length = usize::try_from(*length).unwrap_or(usize::MAX);
        let session = self.sessions.get_mut(key)?;
        let sum = session.owed.saturating_add(length);
        let sends = task_of(&mut session.tasks, id)?.sends;
        if !sends || sum <= self.owed_max() {
            return Some(op);
        }
        self.await_memory(key, id, Want::Line { op: Box::new(op) }, 0);
        None
    }

    /// A list has left on a connection of a session.
    pub(super) fn paid(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let backlog = |key: &Key| Some(self.connections.get(*key)?.mover.backlog());
        let owed = session.connections.iter().filter_map(backlog).sum();
        self.context.owed =
            self.context.owed.saturating_sub(std::mem::replace(&mut session.owed, owed));
        self.context.owed = self.context.owed.saturating_add(owed);
        if !session.awaiting_memory.is_empty() {
            session.paid = self.context.port.now();
            self.context.memory_queue.look_again();
        }
    }

    /// Goes on with a command that has waited for its line.
    pub(super) fn read_at_last(&mut self, key: Key, id: TaskId, op: store::Op) {
        self.advance(key, id, Step::Store(op));
    }
}
