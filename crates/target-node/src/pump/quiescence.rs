// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting until no work of tasks that have ended is left in the engine, here and on the other
//! reactors, or what is left keeps all that comes later out (`fencing.rs`): then what asked for
//! their end is answered.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::service::Function;
use scsi::LogicalUnit;

use super::Pump;
use super::context::Context;
use super::jobs;
use super::letter::Letter;
use super::letter::Units;
use super::services::task_of;
use super::view::SessionView;
use crate::table::Key;
use crate::table::Table;

/// What is under way on this reactor until nothing is pending any more.
#[derive(Debug, Default)]
pub(super) struct Managements(Table<Management>);

/// A function under way.
#[derive(Debug)]
struct Management {
    origin: Origin,
    /// Store work of ended tasks, and reactors that have not answered.
    pending: usize,
}

#[derive(Debug)]
pub(super) enum Origin {
    /// A session here asked.
    Session {
        session: Key,
        id: u32,
        function: Function,
        units: Units,
        /// Whose sessions TARGET COLD RESET ends.
        target: Option<Arc<str>>,
    },
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

impl Managements {
    /// Something is under way that is answered when nothing is pending: for now itself, so that it
    /// cannot finish while it is being started.
    pub(super) fn begin(&mut self, origin: Origin) -> Key {
        self.0.insert(Management { origin, pending: 1 })
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// So many other things have to be done, too.
    pub(super) fn wait_for_more(&mut self, management: Key, count: usize) {
        let entry = self.0.get_mut(management);
        debug_assert!(entry.is_some(), "it cannot finish while it is being started");
        if let Some(entry) = entry {
            entry.pending += count;
        }
    }

    /// One of the things that it waited for is done; who waits, after the last.
    fn one_done(&mut self, management: Key) -> Option<Origin> {
        let entry = self.0.get_mut(management);
        debug_assert!(entry.is_some(), "it finishes with the last of what it waits for");
        let entry = entry?;
        entry.pending -= 1;
        if entry.pending > 0 { None } else { Some(self.0.remove(management)?.origin) }
    }

    /// It wants to know that work is over, whatever that keeps out.
    pub(super) fn is_drain(&self, management: Key) -> bool {
        let entry = self.0.get(management);
        entry.is_some_and(|entry| matches!(entry.origin, Origin::Drain { .. }))
    }

    /// The session here that waits for it.
    fn session(&self, management: Key) -> Option<Key> {
        match self.0.get(management)?.origin {
            Origin::Session { session, .. }
            | Origin::Command { session, .. }
            | Origin::Logout { session, .. } => Some(session),
            Origin::Reactor { .. }
            | Origin::Join { .. }
            | Origin::Nobody
            | Origin::Drain { .. } => None,
        }
    }
}

impl<P: Port> Context<P> {
    /// Lets a function wait for all store work of tasks that have ended, also by another function
    /// or with their session, and for that of jobs.
    pub(super) fn wait_for_ended_work(&mut self, management: Key) {
        let mut count = 0;
        let mut waited = Vec::new();
        let drains = self.managements.is_drain(management);
        for (key, io) in self.ios.iter_mut().filter(|(_, io)| drains || !io.patience.is_over()) {
            if io.ended.is_some() || io.session == Key::NOBODY {
                io.managements.push(management);
                count += 1;
                waited.push(key);
            }
        }
        waited.into_iter().for_each(|io| self.bound_wait(io));
        self.managements.wait_for_more(management, count);
    }

    /// Waits for all work of tasks that have ended; gives `origin` back if there is none.
    fn quiesce(&mut self, origin: Origin) -> Option<Origin> {
        let management = self.managements.begin(origin);
        self.wait_for_ended_work(management);
        self.managements.one_done(management)
    }
}

impl<P: Port> SessionView<'_, P> {
    /// The session answers a logout once no work of its cleared tasks is left.
    pub(super) fn quiesce_for_logout(&mut self, id: u32) {
        if self.context.quiesce(Origin::Logout { session: self.key, id }).is_some() {
            self.session.machine.quiesced(id);
        }
    }
}

impl<P: Port> Pump<P> {
    /// A login goes on once no work is left of the connection that it replaces.
    pub(super) fn quiesce_for_join(&mut self, connection: Key) {
        if self.context.quiesce(Origin::Join { connection }).is_some() {
            self.go_on_joining(connection);
        }
    }

    /// Answers when the engine has done all work on `unit` that it has now. A pause is none: what
    /// comes after it is checked again.
    pub(super) fn drain(&mut self, unit: &Arc<LogicalUnit>, reply: Sender<()>) {
        let management = self.context.managements.begin(Origin::Drain { reply });
        let (sessions, jobs) = (&mut self.sessions, &self.jobs);
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
        self.context.managements.wait_for_more(management, count);
        self.one_done(management);
    }

    /// One of the things that a function waited for is done; after the last it is answered.
    pub(super) fn one_done(&mut self, management: Key) {
        match self.context.managements.one_done(management) {
            // Who asked may have given up.
            Some(Origin::Drain { reply }) => drop(reply.send(())),
            Some(Origin::Reactor { reactor, management }) => {
                let mailbox = &self.context.shared.mailboxes[reactor];
                mailbox.send(Letter::UnitsAborted { management });
            }
            Some(Origin::Command { session, task }) => {
                self.resume(session, task, scsi::Input::Turn);
            }
            // The session may have ended meanwhile.
            Some(Origin::Logout { session, id }) => {
                if let Some(view) = self.session(session) {
                    view.session.machine.quiesced(id);
                }
            }
            Some(Origin::Session { session, id, function, units, target }) => {
                self.finish(session, (id, function), &units);
                if let Some(target) = target.filter(|_| function == Function::TargetColdReset) {
                    self.end_all_sessions(target);
                }
            }
            Some(Origin::Join { connection }) => self.go_on_joining(connection),
            Some(Origin::Nobody) | None => {}
        }
    }

    /// As `one_done`, for store work of an ended task and for the answer of another reactor: nobody
    /// else settles the session that waits.
    pub(super) fn done_elsewhere(&mut self, management: Key) {
        let session = self.context.managements.session(management);
        self.one_done(management);
        if let Some(session) = session {
            self.settle(session);
        }
    }
}
