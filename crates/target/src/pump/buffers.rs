// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where buffers of tasks come from, and where they wait while a task has no connection.

use buf::Buf;
use buf::Pool;
use buf::Slice;
use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::target::ConnectionId;

use super::Pump;
use super::Session;
use super::task_of;
use crate::table::Key;

impl<P: Port> Pump<P> {
    /// A task leaves its connection: its buffer waits for the next one.
    pub(super) fn detach_buf(&mut self, key: Key, id: ConnectionId, task: TaskId) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let connection = session.connections.get(usize::from(id.0)).copied();
        let connection = connection.and_then(|key| self.connections.get_mut(key));
        if let Some(buf) = connection.and_then(|connection| connection.mover.detach(task)) {
            session.park_buf(task, buf);
        }
    }

    /// A task goes on over another connection, with the buffer that it had.
    pub(super) fn attach_buf(&mut self, key: Key, id: ConnectionId, task: TaskId) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let connection = session.connections.get(usize::from(id.0)).copied();
        let Some(connection) = connection.and_then(|key| self.connections.get_mut(key)) else {
            return;
        };
        if let Some(entry) = task_of(&mut session.tasks, task)
            && let Some((buf, _)) = entry.immediate.take()
        {
            connection.mover.attach(task, buf);
        }
    }

    /// A buffer from the pool. Where there is none, data that is kept only to be sent again makes
    /// room.
    pub(super) fn take_buf(&mut self, length: usize) -> Option<Buf> {
        self.pool.take(length).or_else(|| {
            let mut freed = false;
            for session in self.sessions.values_mut() {
                freed |= session.machine.give_up_kept_data();
            }
            if freed { self.pool.take(length) } else { None }
        })
    }
}

impl Session {
    /// Keeps the buffer of a task that has no connection, where its immediate data was.
    pub(super) fn park_buf(&mut self, id: TaskId, buf: Buf) {
        if let Some(task) = task_of(&mut self.tasks, id) {
            task.immediate = Some((buf, 0));
        }
    }
}

/// Data that others may change, in memory of its own if there is some: sent again, it must be what
/// it was (RFC 7143 §11.16).
pub(super) fn private(pool: &Pool, data: Slice) -> Slice {
    if data.bytes().is_some() {
        return data;
    }
    match pool.take(data.len()) {
        Some(mut copy) => {
            data.copy_to(&mut copy);
            copy.freeze()
        }
        None => data,
    }
}
