// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting until no work of tasks that have ended is left in the engine, here and on the other
//! reactors: then what asked for their end is answered.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::service::Function;
use scsi::LogicalUnit;

use super::Pump;
use super::jobs;
use super::services::task_of;
use crate::mail::Letter;
use crate::mail::Units;
use crate::table::Key;

/// A function under way on this reactor.
#[derive(Debug)]
pub(super) struct Management {
    origin: Origin,
    /// Store work of ended tasks, and reactors that have not answered.
    pending: usize,
}

#[derive(Debug)]
pub(super) enum Origin {
    /// A session here asked.
    Session { session: Key, id: u32, function: Function, units: Units },
    /// A command here preempts others.
    Command { session: Key, task: TaskId },
    /// Another reactor asked for its management.
    Reactor { reactor: usize, management: Key },
    /// A session wants to know that its cleared tasks are gone, to answer a logout.
    Logout { session: Key, id: u32 },
    /// A login waits for the tasks of the connection that it replaces.
    Join { connection: Key },
    /// Nobody waits any more.
    Nobody,
    /// Administration waits for the work on a unit that is under way now, or for the end of tasks.
    Drain { reply: Sender<()> },
}

impl<P: Port> Pump<P> {
    /// Something is under way that is answered when nothing is pending: for now itself, so that it
    /// cannot finish while it is being started.
    pub(super) fn begin_management(&mut self, origin: Origin) -> Key {
        self.context.managements.insert(Management { origin, pending: 1 })
    }

    /// So many other things have to be done, too.
    pub(super) fn wait_for_more(&mut self, management: Key, count: usize) {
        if let Some(entry) = self.context.managements.get_mut(management) {
            entry.pending += count;
        }
    }

    /// A session answers a logout once no work of its cleared tasks is left.
    pub(super) fn quiesce_for_logout(&mut self, session: Key, id: u32) {
        self.quiesce(Origin::Logout { session, id });
    }

    /// A login goes on once no work is left of the connection that it replaces.
    pub(super) fn quiesce_for_join(&mut self, connection: Key) {
        self.quiesce(Origin::Join { connection });
    }

    fn quiesce(&mut self, origin: Origin) {
        let management = self.begin_management(origin);
        self.wait_for_ended_work(management);
        self.one_done(management);
    }

    /// Lets a function wait for all store work of tasks that have ended, also by another function
    /// or with their session.
    pub(super) fn wait_for_ended_work(&mut self, management: Key) {
        let sessions = &mut self.sessions;
        let mut count = 0;
        for io in self.context.ios.values_mut() {
            let lives = sessions
                .get_mut(io.session)
                .is_some_and(|session| task_of(&mut session.tasks, io.task).is_some());
            if !lives {
                io.managements.push(management);
                count += 1;
            }
        }
        self.wait_for_more(management, count);
    }

    /// Answers when the engine has done all work on `unit` that it has now. A pause is none: what
    /// comes after it is checked again.
    pub(super) fn drain(&mut self, unit: &Arc<LogicalUnit>, reply: Sender<()>) {
        let management = self.begin_management(Origin::Drain { reply });
        let (sessions, jobs) = (&mut self.sessions, &self.context.jobs);
        let mut count = 0;
        for io in self.context.ios.values_mut().filter(|io| io.is_for_the_medium()) {
            let live = match io.session {
                Key::NOBODY => jobs.get(jobs::key_of(io.task)).map(jobs::Job::task),
                session => sessions
                    .get_mut(session)
                    .and_then(|session| task_of(&mut session.tasks, io.task))
                    .map(|task| &task.scsi),
            };
            // A copy works on the store of another unit than its command is for.
            let of = io.ended.as_deref().or(live).and_then(scsi::Task::store);
            if of.is_some_and(|of| Arc::ptr_eq(of, unit.store())) {
                io.managements.push(management);
                count += 1;
            }
        }
        self.wait_for_more(management, count);
        self.one_done(management);
    }

    /// One of the things that a function waited for is done; after the last it is answered.
    pub(super) fn one_done(&mut self, management: Key) {
        let Some(entry) = self.context.managements.get_mut(management) else { return };
        entry.pending -= 1;
        if entry.pending > 0 {
            return;
        }
        let Some(entry) = self.context.managements.remove(management) else { return };
        match entry.origin {
            Origin::Reactor { reactor, management } => {
                self.context.shared.mailboxes[reactor].send(Letter::UnitsAborted { management });
            }
            Origin::Command { session: key, task } => self.resume(key, task, scsi::Input::Turn),
            Origin::Logout { session, id } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.machine.quiesced(id);
                }
            }
            Origin::Join { connection } => self.join(connection),
            Origin::Nobody => {}
            // Who asked may have given up.
            Origin::Drain { reply } => drop(reply.send(())),
            Origin::Session { session, id, function, units } => {
                self.finish(session, id, function, &units);
            }
        }
    }

    /// As `one_done`, for store work of an ended task and for the answer of another reactor: nobody
    /// else settles the session that waits.
    pub(super) fn done_elsewhere(&mut self, management: Key) {
        let session = match self.context.managements.get(management).map(|entry| &entry.origin) {
            Some(
                Origin::Session { session, .. }
                | Origin::Command { session, .. }
                | Origin::Logout { session, .. },
            ) => Some(*session),
            _ => None,
        };
        self.one_done(management);
        if let Some(session) = session {
            self.settle(session);
        }
    }
}
