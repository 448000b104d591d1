// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store's work: to the engine and back.

use std::sync::Arc;
use std::time::Duration;

use buf::Buf;
use engine::Port;
use engine::Work;
use iscsi::datamover::TaskId;
use scsi::Input;
use scsi::Keep;
use scsi::KeepFailed;
use scsi::Step;
use store::Io;
use store::IoResult;
use store::Submitted;
use store::foreign::Errand;

use super::Doing;
use super::Kind;
use super::PendingIo;
use super::Pump;
use super::awaiting_memory::Reading;
use super::awaiting_memory::Want;
use super::buffers::Shortage;
use super::complaint;
use super::complaint::Cause;
use super::context::Context;
use super::course::With;
use super::fencing;
use super::fencing::Patience;
use super::services::scene;
use super::token;
use super::view::SessionView;
use super::view::never;
use super::watching::Watching;
use crate::stopwatch::Layer;
use crate::table::Key;

/// Who has work for a store: a command, or a job.
pub(super) trait StoreUser<P: Port> {
    fn context(&mut self) -> &mut Context<P>;

    /// A buffer for what is read.
    ///
    /// # Errors
    /// There is none.
    fn take_to_read(&mut self, id: TaskId, length: usize) -> Result<Buf, Shortage>;

    /// There is no buffer of so many bytes for what would be read.
    fn read_later(&mut self, id: TaskId, reading: Reading, length: u32, shortage: Shortage);

    /// The answer to a question that needed no engine.
    fn answer(&mut self, id: TaskId, op: store::Op, io: &Io, result: IoResult);

    /// Work is under way until `take_done`.
    fn remember(&mut self, id: TaskId, doing: Doing) -> Key;

    /// Hands a store's work to the engine.
    fn submit_io(&mut self, id: TaskId, op: store::Op, io: Io) {
        let kept = io.clone();
        self.run_io(id, op, kept, io);
    }

    /// Runs `io`, which is all of `kept` or what `kept` is wrapped around; the store gets `kept`
    /// back with the result.
    fn run_io(&mut self, id: TaskId, op: store::Op, kept: Io, io: Io) {
        let work = match io {
            Io::Read { file, offset, length } => match self.take_to_read(id, length as usize) {
                Ok(buf) => Work::Read { file: file.0, offset, buf },
                Err(shortage) => {
                    return self.read_later(id, Reading { op, kept, io }, length, shortage);
                }
            },
            Io::Write { file, offset, data, durable } => {
                Work::Write { file: file.0, offset, data, durable }
            }
            Io::Sync { file } => Work::Sync { file: file.0 },
            Io::Clear { file, offset, length, leave } => {
                Work::Clear { file: file.0, offset, length, leave }
            }
            Io::ProvisioningStatus { file, offset } => Work::Allocation { file: file.0, offset },
            Io::Clock { .. } => return self.tell_store_time(id, op, &kept),
            Io::Pause { length, .. } => return self.begin_pause(id, op, kept, length),
            Io::Foreign(errand) => return self.begin_errand(id, op, kept, &errand),
            Io::Part(part) => return self.run_io(id, op, kept, part.io().clone()),
        };
        let io = self.remember(id, Doing::Store { op, io: kept });
        self.context().port.submit(token(Kind::Io, io), work);
    }

    /// A command, or a job, cannot go on before this is kept.
    #[cold]
    fn submit_keep(&mut self, id: TaskId, keep: Keep) {
        let io = self.remember(id, Doing::Keep);
        self.context().submit_keep(io, keep);
    }

    /// A store wants to know what time it is.
    #[cold]
    fn tell_store_time(&mut self, id: TaskId, op: store::Op, io: &Io) {
        let result = IoResult::Clock(self.context().port.now());
        self.answer(id, op, io, result);
    }

    /// A store wants to go on when some time has passed.
    #[cold]
    fn begin_pause(&mut self, id: TaskId, op: store::Op, io: Io, length: Duration) {
        let end = self.context().port.now() + length;
        let io = self.remember(id, Doing::Store { op, io });
        self.context().timers.set(token(Kind::Io, io).0, end);
    }

    /// Lets somebody else do a store's work; `kept` is all that the store has around it.
    fn begin_errand(&mut self, id: TaskId, op: store::Op, kept: Io, errand: &Errand) {
        let room = errand.room();
        let buf = match room {
            0 => None,
            _ => match self.take_to_read(id, room as usize) {
                Ok(buf) => Some(buf),
                Err(shortage) => {
                    let io = Io::Foreign(errand.clone());
                    return self.read_later(id, Reading { op, kept, io }, room, shortage);
                }
            },
        };
        let io = self.remember(id, Doing::Store { op, io: kept });
        let inbox = Arc::clone(&self.context().inbox);
        self.context().errands += 1;
        self.context().look_for_silence(io);
        errand.begin(inbox, io.to_bits(), buf);
    }
}

impl<P: Port> StoreUser<P> for SessionView<'_, P> {
    fn context(&mut self) -> &mut Context<P> {
        self.context
    }

    fn take_to_read(&mut self, id: TaskId, length: usize) -> Result<Buf, Shortage> {
        self.take_for_read(id, length)
    }

    #[cold]
    fn read_later(&mut self, id: TaskId, reading: Reading, length: u32, shortage: Shortage) {
        self.is_short(shortage, id, Want::Read(Box::new(reading)), length as usize);
    }

    /// The command goes on in the next turn, for it may have many questions.
    fn answer(&mut self, id: TaskId, op: store::Op, io: &Io, result: IoResult) {
        if let Some(step) = self.stored(id, op, io, result) {
            self.context.runnable.push(self.key, id, step);
        }
    }

    fn remember(&mut self, id: TaskId, doing: Doing) -> Key {
        self.session.ios += 1;
        self.spends(id, With::Store);
        let store = self.session.at_work(id).and_then(|(_, task, _)| task.scsi.store());
        let watching = Watching::of(&doing, store);
        self.context.remember((self.key, id), doing, watching)
    }
}

impl<P: Port> SessionView<'_, P> {
    /// A store's work is done: what its command does next, if it has not ended and the store does
    /// not want more.
    fn stored(&mut self, id: TaskId, op: store::Op, io: &Io, result: IoResult) -> Option<Step> {
        let (nexus, task, target) = self.session.at_work(id)?;
        let store = task.scsi.store()?;
        let cause = Cause::of(io, &result);
        match store.complete(&op, io, result) {
            Submitted::Io(next) => {
                self.submit_io(id, op, next);
                None
            }
            Submitted::Done(outcome) => {
                self.context.watch.laps.lap(Layer::Store);
                let scene = scene(&self.context.shared, nexus, target);
                complaint::of(scene, &task.scsi, &op, &outcome, cause);
                let step = task.scsi.resume(nexus, Input::Store(outcome));
                self.context.watch.laps.lap(Layer::Scsi);
                Some(step)
            }
        }
    }
}

impl<P: Port> Context<P> {
    /// Work is under way, for a command of a session or for a job.
    pub(super) fn remember(
        &mut self,
        (session, task): (Key, TaskId),
        doing: Doing,
        watching: Option<Watching>,
    ) -> Key {
        self.ios.insert(PendingIo {
            session,
            task,
            doing,
            ended: None,
            managements: Vec::new(),
            patience: Patience::default(),
            seen: None,
            stamp: self.watch.laps.stamp(),
            begun: None,
            watching,
        })
    }

    /// Nobody waits for the result of work any more: a pause is over, and who does the work
    /// elsewhere is told. What the engine has goes on.
    pub(super) fn hurry(&mut self, key: Key) {
        let now = self.port.now();
        let Some(pending) = self.ios.get(key) else { return never("it is still under way") };
        if pending.is_pause() {
            self.timers.set(token(Kind::Io, key).0, now);
        }
        if let Some(errand) = pending.errand() {
            errand.cancel();
        }
    }
}

impl<P: Port> Pump<P> {
    /// Work is under way no more. If its task had ended, nothing waits for it any more but what is
    /// answered here; a state that was to be kept, with what result, takes effect first. None: a
    /// stop has given the work up before.
    pub(super) fn take_done(
        &mut self,
        io: Key,
        kept: Option<Result<(), KeepFailed>>,
    ) -> Option<(Key, TaskId, Doing)> {
        let done = self.context.ios.remove(io)?;
        let PendingIo {
            session: key, task: id, doing, managements, patience, ended, stamp, ..
        } = done;
        self.context.watch.laps.since(Layer::StoreWait, stamp);
        if patience.is_bounded() {
            self.context.timers.cancel(token(Kind::EndTimer, io).0);
        }
        self.context.left -= usize::from(patience.is_over());
        let of = ended.as_ref().filter(|_| patience.is_over()).and_then(|task| task.place());
        let fenced = of.filter(|unit| unit.is_fenced() && !self.has_given_up()).cloned();
        if let Some(task) = ended {
            if let Some(result) = kept {
                self.kept_late(key, *task, result);
            } else {
                self.context.over(*task);
            }
        }
        if let Some(unit) = fenced {
            fencing::tell_end(&unit);
        }
        if !patience.is_over()
            && let Some(session) = self.sessions.get_mut(key)
        {
            session.ios -= 1;
        }
        for management in managements {
            self.done_elsewhere(management);
        }
        Some((key, id, doing))
    }

    /// The engine has done a store's work.
    pub(super) fn io_done(&mut self, key: Key, result: IoResult) {
        // What overlaps with it may have to end first.
        let Some(result) = self.context.judged(key, result) else { return };
        self.context.tell_of_late_answer(key, &result);
        let (key, id, op, io) = match self.take_done(key, None) {
            Some((key, id, Doing::Store { op, io })) => (key, id, op, io),
            Some((key, id, Doing::Device(_))) => return self.device_answered(key, id, result),
            // Who waits for a reset has heard of it; what has lost its task is for nobody.
            Some((_, _, Doing::Keep | Doing::Reset(_))) | None => return,
        };
        if key == Key::NOBODY {
            return self.job_io_done(id, op, &io, result);
        }
        // A session that has waited for just this has gone.
        let Some(mut view) = self.session(key) else { return };
        if view.session.closed {
            return self.vacate(key);
        }
        view.spends(id, With::Server);
        if let Some(step) = view.stored(id, op, &io, result) {
            view.advance(id, step);
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
        match &self.doing {
            Doing::Store { io, .. } => !is_pause(io),
            Doing::Device(_) => true,
            Doing::Keep | Doing::Reset(_) => false,
        }
    }
}

/// Whether a store only lets time pass. All else that it may wait for, now or later, may reach the
/// medium.
pub(super) fn is_pause(io: &Io) -> bool {
    matches!(io.innermost(), Io::Pause { .. })
}
