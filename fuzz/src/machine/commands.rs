// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SCSI side: commands against a small disk that answers at once or when it is told to.

use buf::Buf;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use iscsi::service;
use iscsi::service::ServiceResponse;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::Room;

use super::World;
use crate::disk::Turn;
use crate::target::buffer;
use crate::target::whole;

const TURNS_MAX: usize = 100_000;
const TASK_SET_FULL: u8 = 0x28;

/// A command in the hands of the disk.
pub(super) struct Command {
    scsi: scsi::Task,
    immediate: Option<(Buf, u32)>,
    wanted: u32,
}

impl World<'_> {
    pub(super) fn forget(&mut self, task: TaskId) {
        self.tasks.remove(&task);
        self.waiting.retain(|(id, _)| *id != task);
    }

    /// Answers what waits for the disk to be quiet; false if there is nothing.
    pub(super) fn answer_questions(&mut self) -> bool {
        let Some(session) = &mut self.session else {
            self.quiesce.clear();
            self.management.clear();
            return false;
        };
        if let Some(id) = self.quiesce.pop_front() {
            session.quiesced(id);
            return true;
        }
        let Some(id) = self.management.pop_front() else { return false };
        session.task_management_done(id, ServiceResponse::Complete);
        // Tasks of other units live on; they are answered so that nothing waits for ever.
        for task in session.tasks(None) {
            if !self.tasks.contains_key(&task) {
                session.complete(task, empty(TASK_SET_FULL));
            }
        }
        true
    }

    pub(super) fn start(&mut self, command: service::Command) {
        let id = command.task;
        if command.exhausted {
            return self.finish(id, empty(TASK_SET_FULL));
        }
        let (scsi, step) = self.disk.nexus.start(&scsi::Request {
            lun: command.lun,
            cdb: command.cdb,
            attribute: command.attribute,
            expected_out: command.expected_out,
            expected_in: command.expected_in,
            unaware: false,
        });
        self.tasks.insert(id, Command { scsi, immediate: command.immediate, wanted: 0 });
        if self.eager {
            self.advance(id, step);
        } else {
            self.waiting.push_back((id, step));
        }
    }

    /// One of the commands that wait for the disk goes on.
    pub(super) fn turn(&mut self, which: usize) {
        if self.waiting.is_empty() {
            self.answer_questions();
        } else if let Some((id, step)) = self.waiting.remove(which % self.waiting.len()) {
            self.advance(id, step);
        }
        if !self.eager {
            self.settle();
        }
    }

    pub(super) fn advance(&mut self, id: TaskId, mut step: scsi::Step) {
        for _ in 0..TURNS_MAX {
            let Some(task) = self.tasks.get_mut(&id) else { return };
            step = match self.disk.turn(&mut task.scsi, step) {
                Turn::Next(step) => step,
                Turn::Waits => return self.blocked.push(id),
                Turn::DataOut(length) => return self.receive_data_out(id, length),
                Turn::Over(completion) => {
                    let completion = service::Completion {
                        status: completion.status,
                        sense: completion.sense,
                        data_in: completion.data_in,
                        presented: completion.presented,
                        fence: false,
                    };
                    return self.finish(id, completion);
                }
            };
        }
        panic!("a command without end");
    }

    /// Data that comes before its task asks for it.
    pub(super) fn reserve(
        &mut self,
        at: ConnectionId,
        id: TaskId,
        (length, staged): (u32, Option<(Buf, u32)>),
    ) {
        let task = self.tasks.get_mut(&id);
        let immediate = task.and_then(|task| task.immediate.take()).or(staged);
        let room = match (buffer(self.pool, immediate, length), self.member(at)) {
            (Some(buf), Some(connection)) => {
                connection.mover.submit(Op::Attach { task: id, buf });
                Room::Attached
            }
            _ => Room::None,
        };
        if let Some(session) = &mut self.session {
            session.reserved(id, room);
        }
    }

    pub(super) fn receive_data_out(&mut self, id: TaskId, length: u32) {
        let (Some(task), Some(session)) = (self.tasks.get_mut(&id), &mut self.session) else {
            return;
        };
        task.wanted = length;
        let need = session.buffer_need(id, length);
        let mut staged = task.immediate.take();
        let connection = session.connection_of(id);
        if need.is_reserved {
            let reserved =
                connection.and_then(|at| self.member(at)?.mover.submit(Op::Detach { task: id }));
            staged = reserved.map(whole).or(staged);
        }
        let Some(buf) = buffer(self.pool, staged, need.length) else {
            return self.finish(id, empty(TASK_SET_FULL));
        };
        match connection.and_then(|id| self.member(id)) {
            Some(connection) => {
                connection.mover.submit(Op::Attach { task: id, buf });
            }
            // Its connection is gone: the buffer waits with the task for another one.
            None => self.park(id, Some(buf)),
        }
        if let Some(session) = &mut self.session {
            session.receive_data_out(id, length);
        }
    }

    pub(super) fn data_out(&mut self, id: TaskId) {
        let connection = self.session.as_ref().and_then(|session| session.connection_of(id));
        let Some(connection) = connection.and_then(|id| self.member(id)) else { return };
        let mut buf = connection
            .mover
            .submit(Op::Detach { task: id })
            .expect("the buffer of a task whose data is there");
        let Some(task) = self.tasks.get_mut(&id) else { return };
        buf.truncate(usize::try_from(task.wanted).expect("64-bit"));
        let step = task.scsi.resume(&self.disk.nexus, scsi::Input::DataOut(buf.freeze()));
        if self.eager {
            self.advance(id, step);
        } else {
            self.waiting.push_back((id, step));
        }
    }

    pub(super) fn finish(&mut self, id: TaskId, completion: service::Completion) {
        self.tasks.remove(&id);
        if let Some(session) = &mut self.session {
            session.complete(id, completion);
        }
    }

    /// Keeps the buffer of a task that has no connection.
    pub(super) fn park(&mut self, id: TaskId, buf: Option<Buf>) {
        if let (Some(task), Some(buf)) = (self.tasks.get_mut(&id), buf) {
            task.immediate = Some(whole(buf));
        }
    }

    /// The buffer that was kept.
    pub(super) fn unpark(&mut self, id: TaskId) -> Option<Buf> {
        Some(self.tasks.get_mut(&id)?.immediate.take()?.0)
    }

    /// Commands that wait for others have another try.
    pub(super) fn try_again(&mut self) {
        for id in std::mem::take(&mut self.blocked) {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let step = task.scsi.resume(&self.disk.nexus, scsi::Input::Turn);
            self.advance(id, step);
        }
        self.settle();
    }
}

fn empty(status: u8) -> service::Completion {
    service::Completion { status, sense: Vec::new(), data_in: None, presented: 0, fence: false }
}
