// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that belongs to no session: FORMAT UNIT and SANITIZE, and copies that go on after their
//! command.
//!
//! A job lives on the reactor of the session that began it and outlives that session. It takes
//! short turns, so that nobody notices it beside its own unit.

#[cfg(test)]
mod tests;

use std::time::Duration;

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

use super::Kind;
use super::Pump;
use super::awaiting_memory::Reading;
use super::complaint;
use super::complaint::Cause;
use super::complaint::Scene;
use super::token;
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
}

/// A job that can go on: None begins, or tries again.
pub(super) type Turn = (Key, Option<Step>);

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
        if let Some(completion) = completion {
            self.complete(key, id, completion);
        }
    }

    pub(super) fn begin_job(&mut self, job: scsi::Task, waiter: Option<(Key, TaskId)>) {
        let job = self.context.jobs.insert(Job { scsi: job, waiter, postponed: None });
        self.context.job_turns.push_back((job, None));
    }

    /// Gives each job that can go on a short turn.
    pub(super) fn take_job_turns(&mut self) {
        for _ in 0..self.context.job_turns.len() {
            let Some((key, step)) = self.context.job_turns.pop_front() else { return };
            let step = match step {
                Some(step) => step,
                None => match self.context.jobs.get_mut(key) {
                    Some(job) => job.scsi.work(Input::Turn),
                    None => continue,
                },
            };
            self.advance_job(key, step);
        }
    }

    fn advance_job(&mut self, key: Key, mut step: Step) {
        if self.drops_job(key) {
            return;
        }
        for _ in 0..STEPS_PER_TURN {
            let op = match step {
                Step::Store(op) => op,
                Step::Wait => return self.rest_job(key),
                Step::Keep(keep) => return self.submit_keep(Key::NOBODY, id_of(key), keep),
                // Jobs ask for nothing else; one that did would be over.
                Step::Complete(_)
                | Step::ReceiveDataOut { .. }
                | Step::Abort { .. }
                | Step::Clock
                | Step::Draw
                | Step::Spawn { .. } => return self.end_job(key),
            };
            let Some(job) = self.context.jobs.get_mut(key) else { return };
            if let Some(Reading { op, kept, io }) = job.postponed.take() {
                return self.run_io(Key::NOBODY, id_of(key), op, kept, io);
            }
            let Some(store) = job.scsi.store() else { return };
            match store.submit(&op) {
                Submitted::Done(outcome) => {
                    let scene = Scene { shared: &self.context.shared, session: None };
                    complaint::of(scene, &job.scsi, &op, &outcome, Cause::default());
                    step = job.scsi.work(Input::Store(outcome));
                }
                Submitted::Io(io) => return self.submit_io(Key::NOBODY, id_of(key), op, io),
            }
        }
        self.context.job_turns.push_back((key, Some(step)));
    }

    /// A stop does not wait for jobs: true if this one is dropped for it.
    fn drops_job(&mut self, key: Key) -> bool {
        if self.context.stopping.is_none() {
            return false;
        }
        if self.context.jobs.remove(key).is_some() {
            tracing::warn!("stopped before FORMAT UNIT, SANITIZE or a copy was at its end");
        }
        true
    }

    /// What jobs wait for ends soon if it can, so that a stop does not wait for them.
    pub(super) fn hurry_jobs(&mut self) {
        let of_jobs = self.context.ios.iter().filter(|(_, io)| io.session == Key::NOBODY);
        let of_jobs: Vec<Key> = of_jobs.map(|(io, _)| io).collect();
        for io in of_jobs {
            self.hurry(io);
        }
    }

    fn end_job(&mut self, key: Key) {
        let Some(job) = self.context.jobs.remove(key) else { return };
        self.over(job.scsi);
        if let Some((session, task)) = job.waiter {
            self.resume(session, task, Input::Turn);
            self.settle(session);
        }
    }

    /// Store work of a job is done.
    #[cold]
    pub(super) fn job_io_done(&mut self, id: TaskId, op: &store::Op, io: &Io, result: IoResult) {
        let key = key_of(id);
        if self.drops_job(key) {
            return;
        }
        let Some(job) = self.context.jobs.get_mut(key) else { return };
        let Some(store) = job.scsi.store() else { return };
        let cause = Cause::of(io, &result);
        match store.complete(op, io, result) {
            Submitted::Io(next) => self.submit_io(Key::NOBODY, id, op.clone(), next),
            Submitted::Done(outcome) => {
                let scene = Scene { shared: &self.context.shared, session: None };
                complaint::of(scene, &job.scsi, op, &outcome, cause);
                let step = job.scsi.work(Input::Store(outcome));
                self.context.job_turns.push_back((key, Some(step)));
            }
        }
    }

    /// A state that a job had kept is kept, or not: that may have been its end.
    #[cold]
    pub(super) fn job_kept(&mut self, id: TaskId, result: Result<(), KeepFailed>) {
        let key = key_of(id);
        let Some(job) = self.context.jobs.get_mut(key) else { return };
        match job.scsi.work(Input::Kept(result)) {
            Step::Complete(_) => self.end_job(key),
            step => self.context.job_turns.push_back((key, Some(step))),
        }
    }

    /// Where a job works.
    pub(super) fn job_store(&self, id: TaskId) -> Option<&std::sync::Arc<dyn store::Store>> {
        self.context.jobs.get(key_of(id))?.scsi.store()
    }

    /// There is no buffer for an operation of a job: it takes one that needs less or, where there
    /// is none, tries again. However little the pool has, and for how long, it gets on.
    #[cold]
    pub(super) fn postpone_job(&mut self, id: TaskId, reading: Reading) {
        let key = key_of(id);
        let Some(job) = self.context.jobs.get_mut(key) else { return };
        debug_assert!(job.postponed.is_none(), "a job does one thing at a time");
        match job.scsi.shorten() {
            Some(step) => self.context.job_turns.push_back((key, Some(step))),
            None => {
                job.scsi.postpone(reading.op.clone());
                job.postponed = Some(reading);
                self.rest_job(key);
            }
        }
    }

    /// Lets a job be for a while.
    fn rest_job(&mut self, key: Key) {
        let at = self.context.port.now() + WAIT;
        self.context.timers.set(token(Kind::JobTimer, key).0, at);
    }

    /// A job has rested.
    pub(super) fn wake_job(&mut self, key: Key) {
        self.context.job_turns.push_back((key, None));
    }

    /// What a command cannot know by itself.
    #[cold]
    pub(super) fn draw(&mut self, key: Key, id: TaskId) {
        let mut random = [0; DRAWN_LEN];
        let random = match self.context.port.random(&mut random) {
            Ok(()) => Some(random),
            Err(error) => {
                tracing::error!(%error, "no randomness; ROD tokens are refused");
                None
            }
        };
        let now = self.context.port.now();
        self.resume(key, id, Input::Drawn(Drawn { random, now }));
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
