// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that belongs to no session: FORMAT UNIT and SANITIZE, and copies that go on after their
//! command.
//!
//! A job lives on the reactor of the session that began it and outlives that session. It takes
//! short turns, so that nobody notices it beside its own unit.

#[cfg(test)]
mod tests;

use std::time::Duration;

use buf::Buf;
use buf::Claim;
use engine::Port;
use iscsi::datamover::TaskId;
use scsi::Completion;
use scsi::DRAWN_LEN;
use scsi::Drawn;
use scsi::Input;
use scsi::KeepFailed;
use scsi::Step;
use store::Io;
use store::IoResult;
use store::Submitted;

use super::Doing;
use super::Kind;
use super::Pump;
use super::awaiting_memory::Reading;
use super::buffers::Shortage;
use super::complaint;
use super::complaint::Cause;
use super::complaint::Scene;
use super::context::Context;
use super::storing::StoreUser;
use super::token;
use super::view::Effect;
use super::view::JobView;
use super::view::SessionView;
use super::view::never;
use super::watching::Watching;
use crate::table::Key;

/// Synchronous store steps of a job before others get their turn: each may move half a MiB.
const STEPS_PER_TURN: u32 = 2;

/// A job that waits for others, or for a buffer, tries again after so long.
const WAIT: Duration = Duration::from_millis(1);

/// A job under way.
#[derive(Debug)]
pub(super) struct Job {
    scsi: scsi::Task,
    /// The command that waits for its end.
    waiter: Option<(Key, TaskId)>,
    /// What it will try again, for which there was no buffer: the store has let it through already,
    /// and need not be asked, nor paid, once more.
    postponed: Option<Reading>,
}

impl Job {
    pub(super) const fn task(&self) -> &scsi::Task {
        &self.scsi
    }

    /// See [`scsi::Task::fence_cancelled`].
    pub(super) fn fence_cancelled(&mut self) -> Option<bool> {
        self.scsi.fence_cancelled()
    }
}

/// A job that can go on: None begins, or tries again.
pub(super) type Turn = (Key, Option<Step>);

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It has another turn, or hears when it goes on.
    UnderWay,
    Over,
}

impl<P: Port> Pump<P> {
    /// A command leaves work behind, for which it waits if it has no `completion` yet.
    #[cold]
    pub(super) fn spawn(
        &mut self,
        key: Key,
        id: TaskId,
        job: scsi::Task,
        completion: Option<Completion>,
    ) {
        let waiter = completion.is_none().then_some((key, id));
        self.begin_job(job, waiter);
        if let Some(completion) = completion
            && let Some(mut view) = self.session(key)
        {
            view.complete(id, completion);
        }
    }

    pub(super) fn begin_job(&mut self, job: scsi::Task, waiter: Option<(Key, TaskId)>) {
        let job = self.jobs.insert(Job { scsi: job, waiter, postponed: None });
        self.context.job_turns.push_back((job, None));
    }

    /// Gives each job that can go on a short turn.
    pub(super) fn take_job_turns(&mut self) {
        for _ in 0..self.context.job_turns.len() {
            let Some((key, step)) = self.context.job_turns.pop_front() else { return };
            // It may have ended, or been dropped, since it was to go on.
            let Some(view) = self.job(key) else { continue };
            let step = step.unwrap_or_else(|| view.job.scsi.work(Input::Turn));
            if self.drops_job(key) {
                continue;
            }
            if let Some(mut view) = self.job(key)
                && view.advance(step) == Progress::Over
            {
                self.end_job(key);
            }
            self.carry_out_effects();
        }
    }

    /// A stop does not wait for jobs: true if this one is dropped for it.
    fn drops_job(&mut self, key: Key) -> bool {
        if self.context.stopping.is_none() {
            return false;
        }
        if self.jobs.remove(key).is_some() {
            tracing::warn!("stopped before FORMAT UNIT, SANITIZE or a copy was at its end");
        }
        true
    }

    fn end_job(&mut self, key: Key) {
        let Some(job) = self.jobs.remove(key) else { return never("it has just had its turn") };
        self.context.over(job.scsi);
        if let Some((session, task)) = job.waiter {
            self.resume(session, task, Input::Turn);
        }
    }

    /// Store work of a job is done.
    #[cold]
    pub(super) fn job_io_done(&mut self, id: TaskId, op: store::Op, io: &Io, result: IoResult) {
        let key = key_of(id);
        if self.drops_job(key) {
            return;
        }
        if let Some(mut view) = self.job(key) {
            view.answer(id, op, io, result);
        }
        self.carry_out_effects();
    }

    /// A state that a job had kept is kept, or not: that may have been its end.
    #[cold]
    pub(super) fn job_kept(&mut self, id: TaskId, result: Result<(), KeepFailed>) {
        let key = key_of(id);
        // A stop may have dropped it.
        let Some(view) = self.job(key) else { return };
        match view.job.scsi.work(Input::Kept(result)) {
            Step::Complete(_) => self.end_job(key),
            step => view.context.job_turns.push_back((key, Some(step))),
        }
    }

    /// A job is short of memory: what all sessions keep only to send it again makes room, if there
    /// is such data.
    #[cold]
    pub(super) fn make_room_for_job(&mut self, key: Key, reading: Reading) {
        let freed = self.give_up_kept_data();
        if let Some(mut view) = self.job(key) {
            match freed {
                true => {
                    let Reading { op, kept, io } = reading;
                    view.run_io(id_of(key), op, kept, io);
                }
                false => view.postpone(reading),
            }
        }
    }
}

impl<P: Port> Context<P> {
    /// What jobs wait for ends soon if it can, so that a stop does not wait for them.
    pub(super) fn hurry_jobs(&mut self) {
        let of_jobs = self.ios.iter().filter(|(_, io)| io.session == Key::NOBODY);
        let of_jobs: Vec<Key> = of_jobs.map(|(io, _)| io).collect();
        for io in of_jobs {
            self.hurry(io);
        }
    }

    /// Lets a job be for a while.
    fn rest_job(&mut self, key: Key) {
        let at = self.port.now() + WAIT;
        self.timers.set(token(Kind::JobTimer, key).0, at);
    }

    /// A job has rested.
    pub(super) fn wake_job(&mut self, key: Key) {
        self.job_turns.push_back((key, None));
    }
}

impl<P: Port> JobView<'_, P> {
    fn advance(&mut self, mut step: Step) -> Progress {
        for _ in 0..STEPS_PER_TURN {
            let op = match step {
                Step::Store(op) => op,
                Step::Wait => {
                    self.context.rest_job(self.key);
                    return Progress::UnderWay;
                }
                Step::Keep(keep) => {
                    self.submit_keep(id_of(self.key), keep);
                    return Progress::UnderWay;
                }
                // Jobs ask for nothing else; one that did would be over.
                Step::Complete(_)
                | Step::ReceiveDataOut { .. }
                | Step::Abort { .. }
                | Step::Clock
                | Step::Draw
                | Step::Spawn { .. } => return Progress::Over,
            };
            if let Some(Reading { op, kept, io }) = self.job.postponed.take() {
                self.run_io(id_of(self.key), op, kept, io);
                return Progress::UnderWay;
            }
            let Some(store) = self.job.scsi.store() else {
                never("a job works on its unit");
                return Progress::Over;
            };
            match store.submit(&op) {
                Submitted::Done(outcome) => {
                    let scene = Scene { shared: &self.context.shared, session: None };
                    complaint::of(scene, &self.job.scsi, &op, &outcome, Cause::default());
                    step = self.job.scsi.work(Input::Store(outcome));
                }
                Submitted::Io(io) => {
                    self.submit_io(id_of(self.key), op, io);
                    return Progress::UnderWay;
                }
            }
        }
        self.context.job_turns.push_back((self.key, Some(step)));
        Progress::UnderWay
    }

    /// There is no buffer for an operation of a job: it takes one that needs less or, where there
    /// is none, tries again. However little the pool has, and for how long, it gets on.
    #[cold]
    fn postpone(&mut self, reading: Reading) {
        debug_assert!(self.job.postponed.is_none(), "a job does one thing at a time");
        match self.job.scsi.shorten() {
            Some(step) => self.context.job_turns.push_back((self.key, Some(step))),
            None => {
                self.job.scsi.postpone(reading.op.clone());
                self.job.postponed = Some(reading);
                self.context.rest_job(self.key);
            }
        }
    }
}

impl<P: Port> StoreUser<P> for JobView<'_, P> {
    fn context(&mut self) -> &mut Context<P> {
        self.context
    }

    fn take_to_read(&mut self, _id: TaskId, length: usize) -> Result<Buf, Shortage> {
        self.context.sweep_later();
        self.context.pool.take_as(length, Claim::Share).ok_or(Shortage::Pool)
    }

    #[cold]
    fn read_later(&mut self, _id: TaskId, reading: Reading, _length: u32, _shortage: Shortage) {
        let effect = Effect::MakeRoomForJob(Box::new(reading));
        self.context.effects.push_back((self.key, effect));
    }

    fn answer(&mut self, id: TaskId, op: store::Op, io: &Io, result: IoResult) {
        let Some(store) = self.job.scsi.store() else { return never("a job works on its unit") };
        let cause = Cause::of(io, &result);
        match store.complete(&op, io, result) {
            Submitted::Io(next) => self.submit_io(id, op, next),
            Submitted::Done(outcome) => {
                let scene = Scene { shared: &self.context.shared, session: None };
                complaint::of(scene, &self.job.scsi, &op, &outcome, cause);
                let step = self.job.scsi.work(Input::Store(outcome));
                self.context.job_turns.push_back((self.key, Some(step)));
            }
        }
    }

    fn remember(&mut self, id: TaskId, doing: Doing) -> Key {
        let watching = Watching::of(&doing, self.job.scsi.store());
        self.context.remember((Key::NOBODY, id), doing, watching)
    }
}

impl<P: Port> SessionView<'_, P> {
    /// What a command cannot know by itself.
    #[cold]
    pub(super) fn draw(&mut self, id: TaskId) {
        let mut random = [0; DRAWN_LEN];
        let random = match self.context.port.random(&mut random) {
            Ok(()) => Some(random),
            Err(error) => {
                tracing::error!(%error, "no randomness; ROD tokens are refused");
                None
            }
        };
        let now = self.context.port.now();
        self.resume(id, Input::Drawn(Drawn { random, now }));
    }
}

/// A job as the owner of store work: a task of nobody.
const fn id_of(job: Key) -> TaskId {
    let (index, generation) = job.parts();
    TaskId { index, generation }
}

pub(super) const fn key_of(id: TaskId) -> Key {
    Key::from_parts((id.index, id.generation))
}
