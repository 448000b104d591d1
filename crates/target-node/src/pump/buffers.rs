// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where buffers of tasks come from, and where they wait while a task has no connection.

use buf::Buf;
use buf::Claim;
use buf::Pool;
use buf::Slice;
use engine::Port;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::Room;

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
        let buf = connection.and_then(|to| to.mover.submit(Op::Detach { task }));
        if let Some(buf) = buf {
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
            connection.mover.submit(Op::Attach { task, buf });
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
        let length = length as usize;
        let buf = self.widen(key, immediate.or(staged), length, Claim::Convenience).ok();
        let Some(session) = self.sessions.get_mut(key) else { return };
        // None if the task has ended meanwhile.
        let connection = session.connection_of(task);
        let room = match (connection.and_then(|key| self.connections.get_mut(key)), buf) {
            (Some(connection), Some(buf)) => {
                connection.mover.submit(Op::Attach { task, buf });
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
        self.connections.get_mut(connection)?.mover.submit(Op::Detach { task }).map(whole)
    }

    /// The buffer that a task has, or one that is long enough, with what is valid of it.
    ///
    /// # Errors
    /// There is no memory: what it has.
    pub(super) fn widen(
        &mut self,
        key: Key,
        mut staged: Option<(Buf, u32)>,
        length: usize,
        claim: Claim,
    ) -> Result<Buf, Option<(Buf, u32)>> {
        if let Some((buf, _)) = staged.take_if(|(buf, _)| buf.len() >= length) {
            return Ok(buf);
        }
        let Some(mut buf) = self.take_buf(key, length, claim) else { return Err(staged) };
        if let Some((staged, valid)) = staged {
            let valid = (valid as usize).min(staged.len()).min(buf.len());
            buf[..valid].copy_from_slice(&staged[..valid]);
            self.context.watch.copied += valid as u64;
        }
        Ok(buf)
    }

    /// What `widen` gave back goes where it was.
    #[cold]
    pub(super) fn put_back(
        &mut self,
        key: Key,
        id: TaskId,
        staged: Option<(Buf, u32)>,
        is_reserved: bool,
    ) {
        let (Some(session), Some((buf, valid))) = (self.sessions.get_mut(key), staged) else {
            return;
        };
        let connection = session.connection_of(id).filter(|_| is_reserved);
        match connection.and_then(|key| self.connections.get_mut(key)) {
            Some(connection) => {
                connection.mover.submit(Op::Attach { task: id, buf });
            }
            None => {
                if let Some(task) = task_of(&mut session.tasks, id) {
                    task.immediate = Some((buf, valid));
                }
            }
        }
    }

    /// A buffer for what is read: the first one of a command is of its session's share.
    pub(super) fn take_to_read(&mut self, key: Key, id: TaskId, length: usize) -> Option<Buf> {
        let task = self.sessions.get_mut(key).and_then(|of| task_of(&mut of.tasks, id));
        let has_memory = task.is_some_and(|task| std::mem::replace(&mut task.has_memory, true));
        let claim = if has_memory { Claim::Completion } else { Claim::Share };
        let buf = self.take_buf(key, length, claim);
        if buf.is_none()
            && let Some(session) = self.sessions.get_mut(key)
            && let Some(task) = task_of(&mut session.tasks, id)
        {
            task.has_memory = has_memory;
        }
        buf
    }

    /// A buffer from what the session has of the pool. Where there is none, data that is kept only
    /// to be sent again makes room. Behind commands that wait for memory nobody gets any before
    /// them but who has some already.
    pub(super) fn take_buf(&mut self, key: Key, length: usize, claim: Claim) -> Option<Buf> {
        // A session that waits for a connection takes some, too.
        self.sweep_later();
        let Some(session) = self.sessions.get(key) else {
            return self.take_from(key, length, claim);
        };
        if claim == Claim::Share
            && !session.awaiting_memory.is_empty()
            && !self.context.memory_queue.is_serving()
        {
            return None;
        }
        self.take_from(key, length, claim)
    }

    fn take_from(&mut self, key: Key, length: usize, claim: Claim) -> Option<Buf> {
        let take = |pump: &Self| {
            let session = pump.sessions.get(key);
            session.map_or(&pump.context.pool, |session| &session.pool).take_as(length, claim)
        };
        take(self).or_else(|| if self.give_up_kept_data() { take(self) } else { None })
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

/// Lent data in memory of its own, if there is some: pages of a store must not be lent until an
/// initiator acknowledges what it has got, nor to many who do not take it.
pub(super) fn private(pool: &Pool, data: Slice, claim: Claim) -> Slice {
    if !data.is_lent() {
        return data;
    }
    match pool.take_as(data.len(), claim) {
        Some(mut copy) => {
            data.copy_to(&mut copy);
            copy.freeze()
        }
        None => data,
    }
}
