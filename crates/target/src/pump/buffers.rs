// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where buffers of tasks come from, and where they wait while a task has no connection.

use buf::Buf;
use buf::Pool;
use buf::Slice;
use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::target::ConnectionId;
use iscsi::target::Room;

use super::Pump;
use super::Session;
use super::services::task_of;
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

    /// Data of a task comes before the device server has asked for it.
    #[cold]
    pub(super) fn reserve_buf(
        &mut self,
        key: Key,
        task: TaskId,
        (length, staged): (u32, Option<(Buf, u32)>),
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let immediate = task_of(&mut session.tasks, task).and_then(|task| task.immediate.take());
        let buf = self.widen(immediate.or(staged), length as usize);
        let Some(session) = self.sessions.get_mut(key) else { return };
        // None if the task has ended meanwhile.
        let connection = session.connection_of(task);
        let room = match (connection.and_then(|key| self.connections.get_mut(key)), buf) {
            (Some(connection), Some(buf)) => {
                connection.mover.attach(task, buf);
                Room::Attached
            }
            _ => Room::None,
        };
        session.machine.reserved(task, room);
    }

    /// The buffer that was reserved for a task, with what came into it.
    #[cold]
    pub(super) fn take_reserved(&mut self, key: Key, task: TaskId) -> Option<(Buf, u32)> {
        let connection = self.sessions.get(key)?.connection_of(task)?;
        self.connections.get_mut(connection)?.mover.detach(task).map(whole)
    }

    /// The buffer that a task has, or one that is long enough, with what is valid of it.
    pub(super) fn widen(&mut self, staged: Option<(Buf, u32)>, length: usize) -> Option<Buf> {
        match staged {
            Some((buf, _)) if buf.len() >= length => Some(buf),
            None => self.take_buf(length),
            Some((staged, valid)) => self.take_buf(length).map(|mut buf| {
                let valid = (valid as usize).min(staged.len()).min(buf.len());
                buf[..valid].copy_from_slice(&staged[..valid]);
                self.watch.copied += valid as u64;
                buf
            }),
        }
    }

    /// A buffer from the pool. Where there is none, data that is kept only to be sent again makes
    /// room.
    pub(super) fn take_buf(&mut self, length: usize) -> Option<Buf> {
        self.pool
            .take(length)
            .or_else(|| if self.give_up_kept_data() { self.pool.take(length) } else { None })
    }

    /// Gives up what all sessions keep only to send it again; false if there was nothing.
    #[cold]
    pub(super) fn give_up_kept_data(&mut self) -> bool {
        let mut freed = false;
        for session in self.sessions.values_mut() {
            freed |= session.machine.give_up_kept_data();
        }
        freed
    }
}

impl Session {
    /// Keeps the buffer of a task that has no connection, where its immediate data was.
    pub(super) fn park_buf(&mut self, id: TaskId, buf: Buf) {
        if let Some(task) = task_of(&mut self.tasks, id) {
            task.immediate = Some(whole(buf));
        }
    }
}

/// A buffer whose valid bytes are not known apart.
fn whole(buf: Buf) -> (Buf, u32) {
    let length = u32::try_from(buf.len()).unwrap_or(u32::MAX);
    (buf, length)
}

/// Lent data in memory of its own, if there is some: it is kept until its initiator acknowledges
/// it, and pages of a store must not be lent for so long.
pub(super) fn private(pool: &Pool, data: Slice) -> Slice {
    if !data.is_lent() {
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
