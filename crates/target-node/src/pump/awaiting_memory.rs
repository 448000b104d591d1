// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for memory: what their session has of the pool is used up, or all of it is.
//!
//! ```text
//!   wants a buffer --> has one                                        share, or bound
//!                  +-> waits ---something came back, its turn--> has one
//!                             +--too long, or more than there is--> TASK SET FULL
//! ```
//!
//! Commands of one session get theirs in the order in which they came to wait. One that has a
//! buffer already does not wait for another: it gives back what it has only when it is over.

use std::time::Duration;

use clock::Instant;
use engine::Port;
use iscsi::datamover::TaskId;
use store::Io;

use super::Kind;
use super::Pump;
use super::services::TASK_SET_FULL;
use super::services::empty_completion;
use super::services::task_of;
use super::token;
use crate::table::Key;

/// A command that waits longer than this is refused: well below the shortest time after which hosts
/// give a command up, 5 s, with as much again for the command itself. One that is refused comes
/// back after a short delay, fewer at a time (SAM-5 §5.3.1), which serves it better than silence.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who waits for memory on a reactor.
#[derive(Debug, Default)]
pub(super) struct MemoryQueue {
    /// Sessions with commands that do.
    sessions: Vec<Key>,
    /// Connections that cannot send without.
    connections: Vec<Key>,
    /// What had come back to the pool when they tried last.
    returned: u64,
    /// One that stood in front of others waits no more: they may need less.
    moved_up: bool,
    /// When the command began to wait that tries again now.
    serving: Option<Instant>,
}

/// A command that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) task: TaskId,
    want: Want,
    since: Instant,
}

/// What it goes on with when there is a buffer.
#[derive(Debug)]
pub(super) enum Want {
    /// Receive Data-Out of so many bytes.
    DataOut {
        length: u32,
    },
    Read(Box<Reading>),
    /// This, for an initiator that does not take what it has asked for before.
    Line {
        op: Box<store::Op>,
    },
}

/// A store's work that has not gone to the engine.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) op: store::Op,
    pub(super) kept: Io,
    pub(super) io: Io,
}

impl MemoryQueue {
    /// The one that waits longest tries again.
    pub(super) const fn is_serving(&self) -> bool {
        self.serving.is_some()
    }

    /// Some of what a session waits for has gone.
    pub(super) const fn look_again(&mut self) {
        self.moved_up = true;
    }

    /// Something that somebody waits for has gone since they tried last.
    pub(super) const fn has_moved_up(&self) -> bool {
        self.moved_up
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.connections.is_empty()
    }

    /// A connection has something to send and could not.
    #[cold]
    pub(super) fn wait_to_send(&mut self, key: Key) {
        if !self.connections.contains(&key) {
            self.connections.push(key);
        }
    }
}

impl<P: Port> Pump<P> {
    /// A command waits for a buffer of `bytes` bytes.
    #[cold]
    pub(super) fn await_memory(&mut self, key: Key, task: TaskId, want: Want, bytes: usize) {
        let now = self.context.port.now();
        let Some(session) = self.sessions.get_mut(key) else { return };
        // What it holds meanwhile does not come back for it.
        let held = task_of(&mut session.tasks, task).and_then(|task| task.immediate.as_ref());
        let held = held.map(|(buf, _)| buf.len());
        if !self.context.pool.could_take([bytes].into_iter().chain(held)) {
            return self.refuse(key, task);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some(since) = self.context.memory_queue.serving {
            return session.awaiting_memory.push_front(Waiter { task, want, since });
        }
        if session.awaiting_memory.is_empty() {
            self.context.timers.set(token(Kind::MemoryTimer, key).0, now + PATIENCE);
        }
        // What came back while others waited is for them to see.
        if self.context.memory_queue.is_empty() {
            self.context.memory_queue.returned = self.context.pool.returned();
        }
        session.awaiting_memory.push_back(Waiter { task, want, since: now });
        if !self.context.memory_queue.sessions.contains(&key) {
            self.context.memory_queue.sessions.push(key);
        }
    }

    /// A command that would read more than there is memory at all reads less instead, in its next
    /// turn; false if there may be memory, or it has nothing less to read.
    #[cold]
    pub(super) fn reads_less(&mut self, key: Key, id: TaskId, bytes: usize) -> bool {
        if self.context.pool.could_take([bytes]) {
            return false;
        }
        let task = self.sessions.get_mut(key).and_then(|of| task_of(&mut of.tasks, id));
        let Some(step) = task.and_then(|task| task.scsi.shorten()) else { return false };
        self.context.runnable.push_back((key, id, step));
        true
    }

    /// Lets those go on for which there is memory now.
    pub(super) fn serve_memory_queue(&mut self) {
        if self.context.memory_queue.is_empty() {
            return;
        }
        // What is kept to be sent again since they began to wait comes back only when its initiator
        // says more, and that may wait for them.
        self.give_up_kept_data();
        let returned = self.context.pool.returned();
        let came_back =
            std::mem::replace(&mut self.context.memory_queue.returned, returned) != returned;
        if !std::mem::take(&mut self.context.memory_queue.moved_up) && !came_back {
            return;
        }
        for key in std::mem::take(&mut self.context.memory_queue.connections) {
            self.mark_dirty(key);
        }
        // They stay listed meanwhile: a command that comes to wait now is not the first one, and
        // what came back since the others tried is still for them to see.
        let mut at = 0;
        while let Some(key) = self.context.memory_queue.sessions.get(at).copied() {
            match self.serve_session(key) {
                true => at += 1,
                false => drop(self.context.memory_queue.sessions.remove(at)),
            }
        }
    }

    /// True if it must still wait.
    fn serve_session(&mut self, key: Key) -> bool {
        let now = self.context.port.now();
        loop {
            let Some(session) = self.sessions.get_mut(key) else { return false };
            let Some(waiter) = session.awaiting_memory.pop_front() else {
                self.context.timers.cancel(token(Kind::MemoryTimer, key).0);
                return false;
            };
            let Waiter { task, want, since } = waiter;
            session.machine.set_now(now);
            self.context.memory_queue.serving = Some(since);
            match want {
                Want::DataOut { length } => self.receive_data_out(key, task, length),
                Want::Read(reading) => {
                    let Reading { op, kept, io } = *reading;
                    self.run_io(key, task, op, kept, io);
                }
                Want::Line { op } => self.read_at_last(key, task, *op),
            }
            self.context.memory_queue.serving = None;
            let front = self.sessions.get(key).and_then(|session| session.awaiting_memory.front());
            let waits = front.is_some_and(|front| front.task == task);
            self.settle(key);
            if waits {
                return true;
            }
        }
    }

    /// Those that waited too long are told to come again later.
    pub(super) fn refuse_overdue(&mut self, key: Key) {
        let now = self.context.port.now();
        while let Some(session) = self.sessions.get_mut(key)
            && let Some(waiter) = session.awaiting_memory.front()
        {
            // One that waits for a line that gets on has time.
            let since = match waiter.want {
                Want::Line { .. } => waiter.since.max(session.paid),
                _ => waiter.since,
            };
            let end = since + PATIENCE;
            if end > now {
                self.context.timers.set(token(Kind::MemoryTimer, key).0, end);
                break;
            }
            let task = waiter.task;
            session.awaiting_memory.pop_front();
            self.context.memory_queue.moved_up = true;
            self.refuse(key, task);
        }
        self.settle(key);
    }

    /// A command waits no more.
    #[cold]
    pub(super) fn forget_waiter(&mut self, key: Key, task: TaskId) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let place = session.awaiting_memory.iter().position(|waiter| waiter.task == task);
        let Some(place) = place else { return };
        session.awaiting_memory.remove(place);
        self.context.memory_queue.moved_up |= place == 0;
    }

    /// There is no memory for a command.
    #[cold]
    pub(super) fn refuse(&mut self, key: Key, id: TaskId) {
        self.end(key, id);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.machine.complete(id, empty_completion(TASK_SET_FULL));
    }
}
