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
use super::view::Effect;
use super::view::SessionView;
use crate::table::Key;

/// Why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Others of the session wait for one, and come first.
    Line,
    /// Neither the session's share of the pool has one, nor all of it.
    Pool,
}

impl<P: Port> SessionView<'_, P> {
    /// A task leaves its connection: its buffer waits for the next one.
    pub(super) fn detach_buf(&mut self, id: ConnectionId, task: TaskId) {
        let session = &mut *self.session;
        let connection = session.connection(self.connections, id);
        let buf = connection.and_then(|(_, at)| at.mover.submit(Op::Detach { task }));
        if let Some(buf) = buf {
            session.park_buf(task, buf);
        }
    }

    /// A task goes on over another connection, with the buffer that it had.
    pub(super) fn attach_buf(&mut self, id: ConnectionId, task: TaskId) {
        let session = &mut *self.session;
        if let Some((_, connection)) = session.connection(self.connections, id)
            && let Some(entry) = task_of(&mut session.tasks, task)
            && let Some((buf, _)) = entry.staged.take()
        {
            connection.mover.submit(Op::Attach { task, buf });
        }
    }

    /// Data of a task comes before the device server has asked for it.
    #[cold]
    pub(super) fn reserve_buf(
        &mut self,
        task: TaskId,
        (length, staged): (u32, Option<(Buf, u32)>),
    ) {
        let own = task_of(&mut self.session.tasks, task).and_then(|task| task.staged.take());
        let staged = own.or(staged);
        match self.widen(staged, length as usize, Claim::Convenience) {
            Ok(buf) => self.reserved(task, Some(buf)),
            Err((_, staged)) => self.effect(Effect::MakeRoomForData { task, length, staged }),
        }
    }

    /// There is a buffer for such data, or not.
    #[cold]
    fn reserved(&mut self, task: TaskId, buf: Option<Buf>) {
        let session = &mut *self.session;
        // None if the task has ended meanwhile.
        let connection = session.connection_of(self.connections, task);
        let room = match (connection, buf) {
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
    pub(super) fn take_reserved(&mut self, task: TaskId) -> Option<(Buf, u32)> {
        let connection = self.session.connection_of(self.connections, task)?;
        connection.mover.submit(Op::Detach { task }).map(whole)
    }

    /// The buffer that a task has, or one that is long enough, with what is valid of it.
    ///
    /// # Errors
    /// There is no memory: why, and what it has.
    pub(super) fn widen(
        &mut self,
        mut staged: Option<(Buf, u32)>,
        length: usize,
        claim: Claim,
    ) -> Result<Buf, (Shortage, Option<(Buf, u32)>)> {
        if let Some((buf, _)) = staged.take_if(|(buf, _)| buf.len() >= length) {
            return Ok(buf);
        }
        let mut buf = match self.take_buf(length, claim) {
            Ok(buf) => buf,
            Err(shortage) => return Err((shortage, staged)),
        };
        if let Some((staged, valid)) = staged {
            let valid = (valid as usize).min(staged.len()).min(buf.len());
            buf[..valid].copy_from_slice(&staged[..valid]);
            self.context.watch.copied += valid as u64;
        }
        Ok(buf)
    }

    /// What `widen` gave back goes where it was.
    #[cold]
    pub(super) fn put_back(&mut self, id: TaskId, staged: Option<(Buf, u32)>, is_reserved: bool) {
        let Some((buf, valid)) = staged else { return };
        let session = &mut *self.session;
        let connection =
            if is_reserved { session.connection_of(self.connections, id) } else { None };
        match connection {
            Some(connection) => {
                connection.mover.submit(Op::Attach { task: id, buf });
            }
            None => {
                if let Some(task) = task_of(&mut session.tasks, id) {
                    task.staged = Some((buf, valid));
                }
            }
        }
    }

    /// A buffer for what is read: the first one of a command is of its session's share.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn take_for_read(&mut self, id: TaskId, length: usize) -> Result<Buf, Shortage> {
        let has_memory = task_of(&mut self.session.tasks, id).is_some_and(|task| task.has_memory);
        let claim = if has_memory { Claim::Completion } else { Claim::Share };
        let buf = self.take_buf(length, claim)?;
        if let Some(task) = task_of(&mut self.session.tasks, id) {
            task.has_memory = true;
        }
        Ok(buf)
    }

    /// A buffer from what the session has of the pool. Behind commands that wait for memory nobody
    /// gets any before them but who has some already.
    fn take_buf(&mut self, length: usize, claim: Claim) -> Result<Buf, Shortage> {
        // A session that waits for a connection takes some, too.
        self.context.sweep_later();
        if claim == Claim::Share
            && !self.session.awaiting_memory.is_empty()
            && !self.context.memory_queue.is_serving()
        {
            return Err(Shortage::Line);
        }
        self.session.pool.take_as(length, claim).ok_or(Shortage::Pool)
    }
}

impl<P: Port> Pump<P> {
    /// There is no memory for data that comes before it was asked for: what all sessions keep only
    /// to send it again makes room.
    #[cold]
    pub(super) fn make_room_for_data(
        &mut self,
        key: Key,
        task: TaskId,
        (length, staged): (u32, Option<(Buf, u32)>),
    ) {
        let freed = self.give_up_kept_data();
        if let Some(mut view) = self.session(key) {
            let buf = match freed {
                true => view.widen(staged, length as usize, Claim::Convenience).ok(),
                false => None,
            };
            view.reserved(task, buf);
        }
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
    /// Keeps the buffer of a task that has no connection, until it gets one.
    pub(super) fn park_buf(&mut self, id: TaskId, buf: Buf) {
        if let Some(task) = task_of(&mut self.tasks, id) {
            task.staged = Some(whole(buf));
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
