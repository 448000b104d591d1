// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for memory: what their session has of the pool is used up, or all of it is.
//!
//! ```text
//!   wants a buffer --> has one                                        share, or bound
//!                  +-> waits ---something came back, its turn--> has one
//!                  |          +--too long--> TASK SET FULL
//!                  +-> more than there can be --> INSUFFICIENT RESOURCES
//! ```
//!
//! Commands of one session get theirs in the order in which they came to wait. One that has a
//! buffer already does not wait for another: it gives back what it has only when it is over.

use std::time::Duration;

use clock::Instant;
use engine::Port;
use iscsi::datamover::TaskId;
use store::Io;
use store::foreign::Errand;

use super::Kind;
use super::Pump;
use super::buffers::Shortage;
use super::course::With;
use super::services::TASK_SET_FULL;
use super::services::empty_completion;
use super::services::task_of;
use super::storing::StoreUser;
use super::token;
use super::view::Effect;
use super::view::SessionView;
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
    pub(super) want: Want,
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
    /// What a device sends.
    Device(Errand),
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

impl<P: Port> SessionView<'_, P> {
    /// There is no buffer of `bytes` bytes for a command. What sessions keep only to send it again
    /// makes room, but not for one that has to wait for others anyway.
    #[cold]
    pub(super) fn is_short(&mut self, shortage: Shortage, task: TaskId, want: Want, bytes: usize) {
        match shortage {
            Shortage::Line => self.do_without(task, want, bytes),
            Shortage::Pool => self.effect(Effect::MakeRoom { task, want, bytes }),
        }
    }

    /// A command does with less, or waits.
    #[cold]
    fn do_without(&mut self, task: TaskId, want: Want, bytes: usize) {
        if !(matches!(want, Want::Read(_)) && self.reads_less(task, bytes)) {
            self.await_memory(task, want, bytes);
        }
    }

    /// A command waits for a buffer of `bytes` bytes.
    #[cold]
    pub(super) fn await_memory(&mut self, task: TaskId, want: Want, bytes: usize) {
        if !self.could_have(task, bytes) {
            return self.refuse_for_good(task);
        }
        self.spends(task, With::Memory);
        let now = self.context.port.now();
        let (session, queue) = (&mut *self.session, &mut self.context.memory_queue);
        if let Some(since) = queue.serving {
            return session.awaiting_memory.push_front(Waiter { task, want, since });
        }
        if session.awaiting_memory.is_empty() {
            self.context.timers.set(token(Kind::MemoryTimer, self.key).0, now + PATIENCE);
        }
        // What came back while others waited is for them to see.
        if queue.is_empty() {
            queue.returned = self.context.pool.returned();
        }
        session.awaiting_memory.push_back(Waiter { task, want, since: now });
        if !queue.sessions.contains(&self.key) {
            queue.sessions.push(self.key);
        }
    }

    /// Whether there can ever be a buffer of `bytes` bytes for a command: beside what it holds
    /// meanwhile, and what connections of its session have as long as they are there.
    fn could_have(&mut self, id: TaskId, bytes: usize) -> bool {
        let session = &mut *self.session;
        let held = task_of(&mut session.tasks, id).and_then(|task| task.staged.as_ref());
        let held = held.map(|(buf, _)| buf.len());
        let connections = session.connections.iter().filter_map(|key| self.connections.get(*key));
        let standing = connections.flat_map(|connection| connection.mover.standing_buffers());
        self.context.pool.could_take([bytes].into_iter().chain(held).chain(standing))
    }

    /// A command that would read more than there is memory at all reads less instead, in its next
    /// turn; false if there may be memory, or it has nothing less to read.
    #[cold]
    fn reads_less(&mut self, id: TaskId, bytes: usize) -> bool {
        if self.could_have(id, bytes) {
            return false;
        }
        let task = task_of(&mut self.session.tasks, id);
        let Some(step) = task.and_then(|task| task.scsi.shorten()) else { return false };
        self.context.runnable.push(self.key, id, step);
        true
    }

    /// A command goes on, if there is a buffer now.
    fn go_on(&mut self, task: TaskId, want: Want) {
        match want {
            Want::DataOut { length } => self.receive_data_out(task, length),
            Want::Read(reading) => {
                let Reading { op, kept, io } = *reading;
                self.run_io(task, op, kept, io);
            }
            Want::Device(errand) => self.send_to_device(task, errand),
            Want::Line { op } => self.read_at_last(task, *op),
        }
    }

    /// Those that waited too long are told to come again later.
    pub(super) fn refuse_overdue(&mut self) {
        let now = self.context.port.now();
        while let Some(waiter) = self.session.awaiting_memory.front() {
            // One that waits for a line that gets on has time.
            let since = match waiter.want {
                Want::Line { .. } => waiter.since.max(self.session.paid),
                _ => waiter.since,
            };
            let end = since + PATIENCE;
            if end > now {
                self.context.timers.set(token(Kind::MemoryTimer, self.key).0, end);
                break;
            }
            let task = waiter.task;
            self.session.awaiting_memory.pop_front();
            self.context.memory_queue.moved_up = true;
            self.refuse(task);
        }
    }

    /// A command waits no more.
    #[cold]
    pub(super) fn forget_waiter(&mut self, task: TaskId) {
        let waiting = &mut self.session.awaiting_memory;
        if let Some(place) = waiting.iter().position(|waiter| waiter.task == task) {
            waiting.remove(place);
            self.context.memory_queue.moved_up |= place == 0;
        }
    }

    /// There is never so much memory as a command needs: it must not come again.
    #[cold]
    fn refuse_for_good(&mut self, id: TaskId) {
        if let Some(task) = task_of(&mut self.session.tasks, id) {
            let step = task.scsi.lacks_resources();
            self.context.runnable.push(self.key, id, step);
        }
    }

    /// There is no memory for a command now.
    #[cold]
    fn refuse(&mut self, id: TaskId) {
        self.tally(id, TASK_SET_FULL, &[]);
        self.end(id);
        self.session.machine.complete(id, empty_completion(TASK_SET_FULL));
    }
}

impl<P: Port> Pump<P> {
    /// A command is short of memory: what all sessions keep only to send it again makes room, if
    /// there is such data.
    #[cold]
    pub(super) fn make_room_for_command(
        &mut self,
        key: Key,
        task: TaskId,
        want: Want,
        bytes: usize,
    ) {
        let freed = self.give_up_kept_data();
        if let Some(mut view) = self.session(key) {
            match freed {
                true => view.go_on(task, want),
                false => view.do_without(task, want, bytes),
            }
        }
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
        let queue = &mut self.context.memory_queue;
        let came_back = std::mem::replace(&mut queue.returned, returned) != returned;
        if !std::mem::take(&mut queue.moved_up) && !came_back {
            return;
        }
        for key in std::mem::take(&mut queue.connections) {
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
        while let Some(mut view) = self.session(key) {
            let Some(waiter) = view.session.awaiting_memory.pop_front() else {
                self.context.timers.cancel(token(Kind::MemoryTimer, key).0);
                return false;
            };
            let Waiter { task, want, since } = waiter;
            view.session.machine.set_now(now);
            view.context.memory_queue.serving = Some(since);
            view.go_on(task, want);
            self.carry_out_effects();
            self.context.memory_queue.serving = None;
            let front = self.sessions.get(key).and_then(|session| session.awaiting_memory.front());
            let waits = front.is_some_and(|front| front.task == task);
            self.settle(key);
            if waits {
                return true;
            }
        }
        false
    }
}
