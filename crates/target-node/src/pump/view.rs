// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an event is about, looked up once: a session, a connection or a job, lent with all that it
//! works with. What it means for others goes into the [`Effects`], which the pump carries out when
//! the view is over, before anything else.

use std::collections::VecDeque;

use buf::Buf;
use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::service;
use iscsi::target_role::ConnectionId;
use scsi::Completion;
use scsi::Nexus;
use scsi::Victims;

use super::Connection;
use super::Phase;
use super::Pump;
use super::Session;
use super::awaiting_memory::Reading;
use super::awaiting_memory::Want;
use super::context::Context;
use super::jobs::Job;
use super::services::Task;
use super::services::task_of;
use crate::table::Key;
use crate::table::Table;

/// A session.
pub(super) struct SessionView<'a, P> {
    pub(super) key: Key,
    pub(super) session: &'a mut Session,
    pub(super) connections: &'a mut Table<Connection>,
    pub(super) context: &'a mut Context<P>,
}

/// A connection.
pub(super) struct ConnectionView<'a, P> {
    pub(super) key: Key,
    pub(super) connection: &'a mut Connection,
    pub(super) sessions: &'a mut Table<Session>,
    pub(super) context: &'a mut Context<P>,
}

/// A job.
pub(super) struct JobView<'a, P> {
    pub(super) key: Key,
    pub(super) job: &'a mut Job,
    pub(super) context: &'a mut Context<P>,
}

/// What an event of one session, or job, means for others.
#[derive(Debug)]
pub(super) enum Effect {
    /// An initiator ends commands.
    Manage(service::Management),
    /// A command ends those of others.
    Preempt { task: TaskId, victims: Victims },
    /// A command leaves a job behind.
    Spawn { task: TaskId, job: Box<scsi::Task>, completion: Option<Completion> },
    /// All sessions give up what they keep only to send it again.
    GiveUpKeptData,
    /// They do so for a command.
    MakeRoom { task: TaskId, want: Want, bytes: usize },
    /// They do so for data that comes before it was asked for.
    MakeRoomForData { task: TaskId, length: u32, staged: Option<(Buf, u32)> },
    /// They do so for a job.
    MakeRoomForJob(Box<Reading>),
    /// The session has no connection any more.
    Deserted,
}

/// What is looked up here is there, because of `why`: not so is a defect of ours.
#[cold]
pub(super) fn never(why: &str) {
    debug_assert!(false, "{why}");
}

/// Effects that are not carried out yet, with the session or job that has them.
pub(super) type Effects = VecDeque<(Key, Effect)>;

impl<P: Port> Pump<P> {
    /// None: it has gone, and what names it comes late.
    #[inline]
    pub(super) fn session(&mut self, key: Key) -> Option<SessionView<'_, P>> {
        let session = self.sessions.get_mut(key)?;
        let (connections, context) = (&mut self.connections, &mut self.context);
        Some(SessionView { key, session, connections, context })
    }

    /// None: it has gone, and what names it comes late.
    #[inline]
    pub(super) fn connection(&mut self, key: Key) -> Option<ConnectionView<'_, P>> {
        let connection = self.connections.get_mut(key)?;
        let (sessions, context) = (&mut self.sessions, &mut self.context);
        Some(ConnectionView { key, connection, sessions, context })
    }

    /// None: it is over.
    pub(super) fn job(&mut self, key: Key) -> Option<JobView<'_, P>> {
        let job = self.jobs.get_mut(key)?;
        Some(JobView { key, job, context: &mut self.context })
    }

    /// Carries out what an event means for others than it was about.
    #[inline]
    pub(super) fn carry_out_effects(&mut self) {
        while let Some((key, effect)) = self.context.effects.pop_front() {
            self.carry_out(key, effect);
        }
    }

    #[cold]
    fn carry_out(&mut self, key: Key, effect: Effect) {
        match effect {
            Effect::Manage(request) => self.manage(key, request),
            Effect::Preempt { task, victims } => self.preempt(key, task, victims),
            Effect::Spawn { task, job, completion } => self.spawn(key, task, *job, completion),
            Effect::GiveUpKeptData => drop(self.give_up_kept_data()),
            Effect::MakeRoom { task, want, bytes } => {
                self.make_room_for_command(key, task, want, bytes);
            }
            Effect::MakeRoomForData { task, length, staged } => {
                self.make_room_for_data(key, task, (length, staged));
            }
            Effect::MakeRoomForJob(reading) => self.make_room_for_job(key, *reading),
            Effect::Deserted => self.bound_deserted(key),
        }
    }
}

impl<P> SessionView<'_, P> {
    pub(super) fn effect(&mut self, effect: Effect) {
        self.context.effects.push_back((self.key, effect));
    }
}

impl<P> ConnectionView<'_, P> {
    /// The session that it belongs to, and what it is called there; None before and after.
    #[inline]
    pub(super) fn session(&mut self) -> Option<(&mut Connection, &mut Session, ConnectionId)> {
        let Phase::Session { session, id } = self.connection.phase else { return None };
        let session = self.sessions.get_mut(session);
        debug_assert!(session.is_some(), "the end of a session closes its connections");
        Some((self.connection, session?, id))
    }
}

impl Session {
    /// One of its connections; None where that has gone, of which the machine hears in its turn.
    #[inline]
    pub(super) fn connection<'a>(
        &self,
        connections: &'a mut Table<Connection>,
        id: ConnectionId,
    ) -> Option<(Key, &'a mut Connection)> {
        let key = *self.connections.get(usize::from(id.0))?;
        Some((key, connections.get_mut(key)?))
    }

    /// The connection of a task that has not been answered; a task may be without.
    #[inline]
    pub(super) fn connection_of<'a>(
        &self,
        connections: &'a mut Table<Connection>,
        task: TaskId,
    ) -> Option<&'a mut Connection> {
        let id = self.machine.connection_of(task)?;
        self.connection(connections, id).map(|(_, connection)| connection)
    }

    /// A command in the hands of the device server, for whom, and the name of the target. None: it
    /// has ended.
    #[inline]
    pub(super) fn at_work(&mut self, id: TaskId) -> Option<(&Nexus, &mut Task, Option<&str>)> {
        let task = task_of(&mut self.tasks, id)?;
        Some((self.nexus.as_ref()?, task, self.login.target.as_deref()))
    }
}
