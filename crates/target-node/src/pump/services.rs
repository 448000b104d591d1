// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Border 1: commands in the hands of the device server, by the services of SAM-5 (§5.4).
//!
//! A command enters in [`Pump::command`], runs in [`Pump::advance`] and leaves in
//! [`Pump::complete`]; on its way it may wait for data ([`Pump::receive_data_out`]), for the engine
//! (`storing.rs`), for others (`waiting.rs`) or for its next turn.

pub(super) use wire::scsi::sam::TASK_SET_FULL;

use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;

use buf::Buf;
use buf::Claim;
use buf::Slice;
use engine::Port;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use iscsi::service;
use iscsi::target_role::LoggedIn;
use scsi::Input;
use scsi::Nexus;
use scsi::Step;
use store::Submitted;
use wire::iscsi::Attribute;

use super::Pump;
use super::Session;
use super::awaiting_memory::Want;
use super::buffers;
use super::complaint;
use super::complaint::Cause;
use super::complaint::Scene;
use super::owed::LENT_ALL;
use super::owed::OWED_MIN;
use crate::reactor::Shared;
use crate::stopwatch::Layer;
use crate::table::Key;

/// Synchronous store steps that one command may take before others get their turn.
const STEPS_PER_TURN: u32 = 16;

/// A command in the hands of the device server.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) scsi: scsi::Task,
    pub(super) immediate: Option<(Buf, u32)>,
    /// It was given a buffer: from now on it gets what it needs, so that it can give all back.
    pub(super) has_memory: bool,
    /// HEAD OF QUEUE or ACA.
    pub(super) overtakes: bool,
    pub(super) expected_out: u32,
    /// It reads for its initiator.
    pub(super) sends: bool,
    /// The number that it is for, if it was sent before its initiator knew that another unit has
    /// it.
    pub(super) unaware: Option<u16>,
    /// Bytes of write data that the device server asked for and the initiator can give.
    pub(super) wanted: u32,
}

impl<P: Port> Pump<P> {
    /// SCSI Command Received.
    pub(super) fn command(&mut self, key: Key, command: service::Command) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.commands += 1;
        self.context.watch.command();
        let id = command.task;
        if session.nexus.is_none() || command.exhausted {
            return session.machine.complete(id, empty_completion(TASK_SET_FULL));
        }
        let unaware = match session.exchanges.is_empty() {
            true => None,
            false => session.is_unaware(&command),
        };
        let Some(nexus) = &session.nexus else { return };
        let (scsi, step) = nexus.start(&scsi::Request {
            lun: command.lun,
            cdb: command.cdb,
            attribute: command.attribute,
            expected_out: command.expected_out,
            expected_in: command.expected_in,
            unaware: unaware.is_some(),
        });
        self.context.watch.laps.lap(Layer::Scsi);
        let overtakes = matches!(command.attribute, Attribute::HeadOfQueue | Attribute::Aca);
        *session.new_slot(id) = Some(Task {
            id,
            scsi,
            overtakes,
            has_memory: command.immediate.is_some(),
            immediate: command.immediate,
            expected_out: command.expected_out,
            sends: command.expected_in > 0,
            unaware,
            wanted: 0,
        });
        self.advance(key, id, step);
    }

    /// Runs a command until it waits for data, for the engine or for its next turn, or is complete.
    pub(super) fn advance(&mut self, key: Key, id: TaskId, mut step: Step) {
        for _ in 0..STEPS_PER_TURN {
            let op = match step {
                Step::ReceiveDataOut { length } => return self.receive_data_out(key, id, length),
                Step::Complete(completion) => return self.complete(key, id, completion),
                Step::Wait => return self.wait_for_others(key, id),
                Step::Abort { victims } => return self.preempt(key, id, victims),
                Step::Clock => return self.tell_time(key, id),
                Step::Draw => return self.draw(key, id),
                Step::Keep(keep) => return self.submit_keep(key, id, keep),
                Step::Spawn { job, completion } => return self.spawn(key, id, *job, completion),
                Step::Store(op) => op,
            };
            let Some(mut session) = self.sessions.get_mut(key) else { return };
            let mut op = op;
            if session.owed >= OWED_MIN {
                let Some(again) = self.read_or_wait(key, id, op) else { return };
                let Some(same) = self.sessions.get_mut(key) else { return };
                (op, session) = (again, same);
            }
            let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id))
            else {
                return;
            };
            let Some(store) = task.scsi.store() else { return };
            match store.submit(&op) {
                Submitted::Done(outcome) => {
                    self.context.watch.stored(&op);
                    let scene = scene(&self.context.shared, nexus, &session.login);
                    complaint::of(scene, &task.scsi, &op, &outcome, Cause::default());
                    step = task.scsi.resume(nexus, Input::Store(outcome));
                    self.context.watch.laps.lap(Layer::Scsi);
                }
                Submitted::Io(io) => return self.submit_io(key, id, op, io),
            }
        }
        match step {
            Step::Wait => self.wait_for_others(key, id),
            Step::Store(_)
            | Step::Abort { .. }
            | Step::Clock
            | Step::Draw
            | Step::Keep(_)
            | Step::Spawn { .. } => self.context.runnable.push_back((key, id, step)),
            Step::ReceiveDataOut { length } => self.receive_data_out(key, id, length),
            Step::Complete(completion) => self.complete(key, id, completion),
        }
    }

    /// Gives commands that used up their turn another one.
    pub(super) fn take_turns(&mut self) {
        for _ in 0..self.context.runnable.len() {
            let Some((key, id, step)) = self.context.runnable.pop_front() else { return };
            self.advance(key, id, step);
            self.settle(key);
        }
    }

    /// Gives a command what it waits for.
    pub(super) fn resume(&mut self, key: Key, id: TaskId, input: Input) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id)) else {
            return;
        };
        let step = task.scsi.resume(nexus, input);
        self.advance(key, id, step);
    }

    /// Receive Data-Out: the task gets a buffer before the initiator is asked for the rest.
    pub(super) fn receive_data_out(&mut self, key: Key, id: TaskId, length: u32) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(task) = task_of(&mut session.tasks, id) else { return };
        task.wanted = length.min(task.expected_out);
        let need = session.machine.buffer_need(id, length);
        let staged = task.immediate.take();
        let staged = if need.is_reserved { self.take_reserved(key, id).or(staged) } else { staged };
        let buf = match self.widen(key, staged, need.length as usize, Claim::Share) {
            Ok(buf) => buf,
            Err(staged) => {
                self.put_back(key, id, staged, need.is_reserved);
                return self.await_memory(key, id, Want::DataOut { length }, need.length as usize);
            }
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some(task) = task_of(&mut session.tasks, id) {
            task.has_memory = true;
        }
        let connection = session.connection_of(id);
        match connection.and_then(|key| self.connections.get_mut(key)) {
            Some(connection) => {
                connection.mover.submit(Op::Attach { task: id, buf });
            }
            // Its connection is gone: the buffer waits with the task for another one.
            None => session.park_buf(id, buf),
        }
        session.machine.receive_data_out(id, length);
    }

    /// Data-Out Received: all write data is in the task's buffer.
    pub(super) fn data_out_received(&mut self, key: Key, id: TaskId) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let connection = session.connection_of(id);
        let Some(connection) = connection.and_then(|key| self.connections.get_mut(key)) else {
            return;
        };
        let Some(mut buf) = connection.mover.submit(Op::Detach { task: id }) else { return };
        let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id)) else {
            return;
        };
        buf.truncate(task.wanted as usize);
        session.bytes_out += u64::from(task.wanted);
        self.context.watch.laps.lap(Layer::Protocol);
        let step = task.scsi.resume(nexus, Input::DataOut(buf.freeze()));
        self.context.watch.laps.lap(Layer::Scsi);
        self.advance(key, id, step);
    }

    /// Send SCSI Command Complete.
    pub(super) fn complete(&mut self, key: Key, id: TaskId, completion: scsi::Completion) {
        let mut telling = None;
        if completion.status == CHECK_CONDITION {
            self.tell_failed_check(key, id);
            telling = self.sessions.get_mut(key).and_then(|session| session.telling(id));
        }
        if !self.end(key, id) {
            return;
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if completion.fence {
            session.machine.set_now(self.context.port.now());
        }
        let bytes = completion.data_in.as_ref().map_or(0, |data| data.len());
        let lends = self.context.owed.saturating_add(bytes)
            <= LENT_ALL / self.context.shared.mailboxes.len().max(1);
        let data_in = match completion.data_in {
            Some(data) if session.machine.keeps_data() => {
                self.context.watch.copied += data.len() as u64;
                Some(buffers::private(&session.pool, data, Claim::Convenience))
            }
            Some(data) if !lends && data.is_lent() => {
                self.context.watch.copied += data.len() as u64;
                let data = buffers::private(&session.pool, data, Claim::Convenience);
                // What is said of it is said once.
                if data.is_lent() && completion.status == GOOD {
                    return session.machine.complete(id, empty_completion(TASK_SET_FULL));
                }
                Some(data)
            }
            data => data,
        };
        session.bytes_in += bytes as u64;
        session.owed = session.owed.saturating_add(bytes);
        self.context.owed = self.context.owed.saturating_add(bytes);
        let completion = service::Completion {
            status: completion.status,
            sense: completion.sense,
            data_in,
            presented: completion.presented,
            fence: completion.fence,
        };
        session.machine.complete(id, completion);
        if let Some(telling) = telling {
            session.told(telling);
        }
    }
}

impl<P: Port> Pump<P> {
    /// What a command has found wrong is for the log, too.
    #[cold]
    fn tell_failed_check(&mut self, key: Key, id: TaskId) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id)) {
            complaint::of_check(scene(&self.context.shared, nexus, &session.login), &task.scsi);
        }
    }
}

/// Where a command of a session is carried out.
pub(super) fn scene<'a>(shared: &'a Shared, nexus: &'a Nexus, login: &'a LoggedIn) -> Scene<'a> {
    Scene { shared, session: Some((nexus, login.target.as_deref())) }
}

impl Session {
    /// The connection of a task that has not been answered.
    pub(super) fn connection_of(&self, task: TaskId) -> Option<Key> {
        let id = self.machine.connection_of(task)?;
        self.connections.get(usize::from(id.0)).copied()
    }

    /// Where a task shall stand.
    fn new_slot(&mut self, id: TaskId) -> &mut Option<Task> {
        let index = id.index as usize;
        if self.tasks.len() <= index {
            self.tasks.resize_with(index + 1, || None);
        }
        &mut self.tasks[index]
    }

    /// Where a task stands.
    pub(super) fn slot_of(&mut self, id: TaskId) -> Option<&mut Option<Task>> {
        let slot = self.tasks.get_mut(id.index as usize)?;
        slot.as_ref().is_some_and(|task| task.id == id).then_some(slot)
    }
}

pub(super) fn task_of(tasks: &mut [Option<Task>], id: TaskId) -> Option<&mut Task> {
    tasks.get_mut(id.index as usize)?.as_mut().filter(|task| task.id == id)
}

/// A completion that is a status and nothing else.
pub(super) fn empty_completion(status: u8) -> service::Completion {
    let (sense, data_in) = (Vec::new(), None::<Slice>);
    service::Completion { status, sense, data_in, presented: 0, fence: false }
}
