// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store's work: to the engine and back.

use engine::Port;
use engine::Work;
use iscsi::datamover::TaskId;
use scsi::Input;
use store::Io;
use store::IoResult;
use store::Submitted;

use super::Kind;
use super::PendingIo;
use super::Pump;
use super::TASK_SET_FULL;
use super::empty_completion;
use super::task_of;
use super::token;
use crate::table::Key;

impl<P: Port> Pump<P> {
    /// Hands a store's work to the engine.
    pub(super) fn submit_io(&mut self, key: Key, id: TaskId, op: store::Op, io: Io) {
        if let Io::Status { file, offset } = io {
            return self.answer_status(key, id, op, io, (file, offset));
        }
        let kept = io.clone();
        let work = match io {
            Io::Read { file, offset, length } => match self.take_buf(length as usize) {
                Some(buf) => Work::Read { file: file.0, offset, buf },
                None => {
                    let Some(session) = self.sessions.get_mut(key) else { return };
                    session.take_task(id);
                    return session.machine.complete(id, empty_completion(TASK_SET_FULL));
                }
            },
            Io::Write { file, offset, data, durable } => {
                Work::Write { file: file.0, offset, data, durable }
            }
            Io::Sync { file } => Work::Sync { file: file.0 },
            Io::Punch { file, offset, length } => Work::Punch { file: file.0, offset, length },
            Io::Zero { file, offset, length } => Work::Zero { file: file.0, offset, length },
            Io::Status { .. } => return,
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.ios += 1;
        let io = self.ios.insert(PendingIo {
            session: key,
            task: id,
            op,
            io: kept,
            ended: None,
            managements: Vec::new(),
        });
        self.port.submit(token(Kind::Io, io), work);
    }

    /// Asks the file itself: the page cache knows, and the question is rare. The command goes on in
    /// the next turn, for it may have many questions.
    pub(super) fn answer_status(
        &mut self,
        key: Key,
        id: TaskId,
        op: store::Op,
        io: Io,
        (file, offset): (store::FileId, u64),
    ) {
        let file = self.shared.files.get(file.0 as usize);
        let result = match file.map(|file| engine::files::allocation(&file.fd, offset)) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(error.raw_os_error().unwrap_or(0)),
            None => Err(0),
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id)) else {
            return;
        };
        let Some(unit) = task.scsi.unit() else { return };
        if let Submitted::Done(outcome) = unit.store().complete(&op, &io, IoResult::Status(result))
        {
            let step = task.scsi.resume(nexus, Input::Store(outcome));
            self.runnable.push_back((key, id, step));
        }
    }

    /// The engine has done a store's work.
    pub(super) fn io_done(&mut self, key: Key, result: IoResult) {
        let Some(done) = self.ios.remove(key) else { return };
        let PendingIo { session: key, task: id, op, io, managements, ended } = done;
        drop(ended);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.ios -= 1;
        for management in managements {
            self.ended_work_done(management);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.closed {
            return self.vacate(key);
        }
        if let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id))
            && let Some(unit) = task.scsi.unit()
        {
            match unit.store().complete(&op, &io, result) {
                Submitted::Io(next) => self.submit_io(key, id, op, next),
                Submitted::Done(outcome) => {
                    let step = task.scsi.resume(nexus, Input::Store(outcome));
                    self.advance(key, id, step);
                }
            }
        }
        self.settle(key);
    }
}
