// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store's work: to the engine and back.

use std::time::Duration;

use engine::Port;
use engine::Work;
use engine::files::Allocation;
use iscsi::datamover::TaskId;
use scsi::Input;
use scsi::KeepFailed;
use store::Io;
use store::IoResult;
use store::Space;
use store::Submitted;

use super::Doing;
use super::Kind;
use super::PendingIo;
use super::Pump;
use super::awaiting_memory::Reading;
use super::awaiting_memory::Want;
use super::complaint;
use super::complaint::Cause;
use super::services::scene;
use super::services::task_of;
use super::token;
use crate::stopwatch::Layer;
use crate::table::Key;

impl<P: Port> Pump<P> {
    /// Hands a store's work to the engine.
    pub(super) fn submit_io(&mut self, key: Key, id: TaskId, op: store::Op, io: Io) {
        let kept = io.clone();
        self.run_io(key, id, op, kept, io);
    }

    /// Runs `io`, which is all of `kept` or what `kept` is wrapped around; the store gets `kept`
    /// back with the result.
    pub(super) fn run_io(&mut self, key: Key, id: TaskId, op: store::Op, kept: Io, io: Io) {
        let work = match io {
            Io::Read { file, offset, length } => {
                let Some(buf) = self.take_to_read(key, id, length as usize) else {
                    return self.read_later(key, id, Reading { op, kept, io }, length);
                };
                Work::Read { file: file.0, offset, buf }
            }
            Io::Write { file, offset, data, durable } => {
                Work::Write { file: file.0, offset, data, durable }
            }
            Io::Sync { file } => Work::Sync { file: file.0 },
            Io::Punch { file, offset, length } => Work::Punch { file: file.0, offset, length },
            Io::Zero { file, offset, length } => Work::Zero { file: file.0, offset, length },
            Io::Reserve { file, offset, length } => Work::Reserve { file: file.0, offset, length },
            Io::Status { file, offset } => Work::Allocation { file: file.0, offset },
            Io::Clock { .. } => return self.tell_store_time(key, id, op, kept),
            Io::Pause { length, .. } => return self.begin_pause(key, id, op, kept, length),
            Io::Foreign(errand) => return self.begin_errand(key, id, op, kept, &errand),
            Io::Part(part) => return self.run_io(key, id, op, kept, part.io().clone()),
        };
        if let Some(io) = self.remember(key, id, Doing::Store { op, io: kept }) {
            self.context.port.submit(token(Kind::Io, io), work);
        }
    }

    /// There is no buffer for what would be read.
    #[cold]
    pub(super) fn read_later(&mut self, key: Key, id: TaskId, reading: Reading, length: u32) {
        if key == Key::NOBODY {
            return self.postpone_job(id, reading);
        }
        if !self.reads_less(key, id, length as usize) {
            self.await_memory(key, id, Want::Read(Box::new(reading)), length as usize);
        }
    }

    /// A store wants to know what time it is.
    #[cold]
    fn tell_store_time(&mut self, key: Key, id: TaskId, op: store::Op, io: Io) {
        let result = IoResult::Clock(self.context.port.now());
        self.answer(key, id, op, &io, result);
    }

    /// A store wants to go on when some time has passed.
    #[cold]
    fn begin_pause(&mut self, key: Key, id: TaskId, op: store::Op, io: Io, length: Duration) {
        let end = self.context.port.now() + length;
        if let Some(io) = self.remember(key, id, Doing::Store { op, io }) {
            self.context.timers.set(token(Kind::Io, io).0, end);
        }
    }

    /// Work is under way until `take_done`.
    pub(super) fn remember(&mut self, key: Key, id: TaskId, doing: Doing) -> Option<Key> {
        match self.sessions.get_mut(key) {
            Some(session) => session.ios += 1,
            None if key == Key::NOBODY => {}
            None => return None,
        }
        let watching = match &doing {
            Doing::Store { io, .. } => self.watching(key, id, io),
            Doing::Keep => None,
        };
        Some(self.context.ios.insert(PendingIo {
            session: key,
            task: id,
            doing,
            ended: None,
            managements: Vec::new(),
            stamp: self.context.watch.laps.stamp(),
            watching,
        }))
    }

    /// The answer to a question that needed no engine. The command goes on in the next turn, for it
    /// may have many questions.
    fn answer(&mut self, key: Key, id: TaskId, op: store::Op, io: &Io, result: IoResult) {
        if key == Key::NOBODY {
            return self.job_io_done(id, &op, io, result);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id)) else {
            return;
        };
        let Some(store) = task.scsi.store() else { return };
        let cause = Cause::of(io, &result);
        match store.complete(&op, io, result) {
            Submitted::Io(next) => self.submit_io(key, id, op, next),
            Submitted::Done(outcome) => {
                let scene = scene(&self.context.shared, nexus, &session.login);
                complaint::of(scene, &task.scsi, &op, &outcome, cause);
                let step = task.scsi.resume(nexus, Input::Store(outcome));
                self.context.runnable.push_back((key, id, step));
            }
        }
    }

    /// Nobody waits for the result of work any more: a pause is over, and who does the work
    /// elsewhere is told. What the engine has goes on.
    pub(super) fn hurry(&mut self, key: Key) {
        let now = self.context.port.now();
        let Some(pending) = self.context.ios.get(key) else { return };
        if pending.is_pause() {
            self.context.timers.set(token(Kind::Io, key).0, now);
        }
        if let Some(errand) = pending.errand() {
            errand.cancel();
        }
    }

    /// Work is under way no more. If its task had ended, nothing waits for it any more but what is
    /// answered here; a state that was to be kept, with what result, takes effect first.
    pub(super) fn take_done(
        &mut self,
        key: Key,
        kept: Option<Result<(), KeepFailed>>,
    ) -> Option<(Key, TaskId, Doing)> {
        let done = self.context.ios.remove(key)?;
        let PendingIo { session: key, task: id, doing, managements, ended, stamp, .. } = done;
        self.context.watch.laps.since(Layer::StoreWait, stamp);
        if let Some(task) = ended {
            if let Some(result) = kept {
                self.kept_late(key, *task, result);
            } else {
                self.over(*task);
            }
        }
        if let Some(session) = self.sessions.get_mut(key) {
            session.ios -= 1;
        }
        for management in managements {
            self.done_elsewhere(management);
        }
        Some((key, id, doing))
    }

    /// The engine has done a store's work.
    pub(super) fn io_done(&mut self, key: Key, result: IoResult) {
        let Some(result) = self.judged(key, result) else { return };
        let Some((key, id, doing)) = self.take_done(key, None) else { return };
        let Doing::Store { op, io } = doing else { return };
        if key == Key::NOBODY {
            return self.job_io_done(id, &op, &io, result);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.closed {
            return self.vacate(key);
        }
        if let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id))
            && let Some(store) = task.scsi.store()
        {
            let cause = Cause::of(&io, &result);
            match store.complete(&op, &io, result) {
                Submitted::Io(next) => self.submit_io(key, id, op, next),
                Submitted::Done(outcome) => {
                    self.context.watch.laps.lap(Layer::Store);
                    let scene = scene(&self.context.shared, nexus, &session.login);
                    complaint::of(scene, &task.scsi, &op, &outcome, cause);
                    let step = task.scsi.resume(nexus, Input::Store(outcome));
                    self.context.watch.laps.lap(Layer::Scsi);
                    self.advance(key, id, step);
                }
            }
        }
        self.settle(key);
    }
}

impl PendingIo {
    /// Nothing is under way but time.
    fn is_pause(&self) -> bool {
        matches!(&self.doing, Doing::Store { io, .. } if is_pause(io))
    }

    /// Something is done to the medium, or read from it.
    pub(super) fn is_for_the_medium(&self) -> bool {
        matches!(&self.doing, Doing::Store { io, .. } if !is_pause(io))
    }
}

/// Whether a store only lets time pass. All else that it may wait for, now or later, may reach the
/// medium.
pub(super) fn is_pause(io: &Io) -> bool {
    matches!(io.innermost(), Io::Pause { .. })
}

/// What stands behind bytes, in the words of the store.
pub(super) const fn space_of(what: Allocation) -> Space {
    match what {
        Allocation::Data => Space::Mapped,
        Allocation::Reserved => Space::Anchored,
        Allocation::Hole => Space::Deallocated,
    }
}
