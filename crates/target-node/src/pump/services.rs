// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Border 1: commands in the hands of the device server, by the services of SAM-5 (§5.4).
//!
//! A command enters in [`SessionView::command`], runs in [`SessionView::advance`] and leaves in
//! [`SessionView::complete`]; on its way it may wait for data ([`SessionView::receive_data_out`]),
//! for the engine (`storing.rs`), for others (`waiting.rs`) or for its next turn.

pub(super) use wire::scsi::sam::TASK_SET_FULL;

use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;

use std::collections::VecDeque;

use buf::Buf;
use buf::Claim;
use buf::Slice;
use engine::Port;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use iscsi::service;
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
use super::course::With;
use super::held;
use super::owed::Answer;
use super::owed::OWED_MIN;
use super::reservations::Reserving;
use super::shared::Shared;
use super::storing::StoreUser;
use super::tally::Timed;
use super::view::Effect;
use super::view::SessionView;
use super::view::never;
use crate::stopwatch::Layer;
use crate::table::Key;

/// Synchronous store steps that one command may take before others get their turn.
const STEPS_PER_TURN: u32 = 16;

/// A command in the hands of the device server.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) scsi: scsi::Task,
    /// A buffer that no connection has now, and how many bytes of it are there: immediate data,
    /// or what a task that lost its connection takes along to the next one.
    pub(super) staged: Option<(Buf, u32)>,
    /// It was given a buffer: from now on it gets what it needs, so that it can give all back.
    pub(super) has_memory: bool,
    /// HEAD OF QUEUE or ACA.
    pub(super) overtakes: bool,
    pub(super) expected_out: u32,
    /// It reads for its initiator.
    pub(super) sends: bool,
    /// And has begun to.
    pub(super) is_reading: bool,
    /// The number that it is for, if it was sent before its initiator knew that another unit has
    /// it.
    pub(super) unaware: Option<u16>,
    /// Bytes of write data that the device server asked for and the initiator can give.
    pub(super) wanted: u32,
    pub(super) timed: Option<Timed>,
    /// What it has to pay to limits before it begins: bytes.
    pub(super) charge: Option<u64>,
    /// What it does to reservations.
    pub(super) reserving: Option<Reserving>,
}

/// Commands that used up their turn, with what they do next.
#[derive(Debug, Default)]
pub(super) struct Runnable(VecDeque<(Key, TaskId, Step)>);

impl Runnable {
    pub(super) fn push(&mut self, session: Key, id: TaskId, step: Step) {
        self.0.push_back((session, id, step));
    }

    fn pop(&mut self) -> Option<(Key, TaskId, Step)> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The command is over.
    pub(super) fn forget(&mut self, session: Key, id: TaskId) {
        self.0.retain(|(of, task, _)| (*of, *task) != (session, id));
    }

    /// The session is over.
    pub(super) fn forget_session(&mut self, session: Key) {
        self.0.retain(|(of, _, _)| *of != session);
    }
}

impl<P: Port> SessionView<'_, P> {
    /// SCSI Command Received.
    pub(super) fn command(&mut self, command: service::Command) {
        let session = &mut *self.session;
        session.commands += 1;
        self.context.watch.command();
        let id = command.task;
        let unaware = match session.exchanges.is_empty() || command.exhausted {
            true => None,
            false => session.is_unaware(&command),
        };
        let Some(nexus) = session.nexus.as_ref().filter(|_| !command.exhausted) else {
            self.context.tally.failed(None, TASK_SET_FULL, &[]);
            return session.machine.complete(id, empty_completion(TASK_SET_FULL));
        };
        let (scsi, step) = nexus.start(&scsi::Request {
            lun: command.lun,
            cdb: command.cdb,
            attribute: command.attribute,
            expected_out: command.expected_out,
            expected_in: command.expected_in,
            unaware: unaware.is_some(),
        });
        self.context.watch.laps.lap(Layer::Scsi);
        let charge = match self.context.shared.limits.generation() {
            0 => None,
            _ => held::charge(&command),
        };
        let overtakes = matches!(command.attribute, Attribute::HeadOfQueue | Attribute::Aca);
        *session.new_slot(id) = Some(Task {
            id,
            scsi,
            overtakes,
            has_memory: command.immediate.is_some(),
            staged: command.immediate,
            expected_out: command.expected_out,
            sends: command.expected_in > 0,
            is_reading: false,
            unaware,
            wanted: 0,
            timed: Timed::since(self.context.watch.laps.stamp(), &command.cdb),
            charge,
            reserving: Reserving::of(&command.cdb),
        });
        self.sets_out(id, command.cdb);
        let step = match charge {
            None => Some(step),
            Some(_) => self.pay(id, step),
        };
        if let Some(step) = step {
            self.advance(id, step);
        }
    }

    /// Runs a command until it waits for data, for the engine or for its next turn, or is complete.
    pub(super) fn advance(&mut self, id: TaskId, mut step: Step) {
        for _ in 0..STEPS_PER_TURN {
            let mut op = match step {
                Step::ReceiveDataOut { length } => return self.receive_data_out(id, length),
                Step::Complete(completion) => return self.complete(id, completion),
                Step::Wait => return self.wait_for_others(id),
                Step::Abort { victims } => {
                    return self.effect(Effect::Preempt { task: id, victims });
                }
                Step::Clock => return self.tell_time(id),
                Step::Draw => return self.draw(id),
                Step::Keep(keep) => return self.submit_keep(id, keep),
                Step::Device(errand) => return self.send_to_device(id, errand),
                Step::Spawn { job, completion } => {
                    return self.effect(Effect::Spawn { task: id, job, completion });
                }
                Step::Store(op) => op,
            };
            if self.session.owed >= OWED_MIN || !self.session.awaiting_memory.is_empty() {
                match self.read_or_wait(id, op) {
                    Some(again) => op = again,
                    None => return,
                }
            }
            let Some((nexus, task, target)) = self.session.at_work(id) else {
                return never("who ends a command takes its next step, too");
            };
            let Some(store) = task.scsi.store() else {
                return never("only a command for a unit asks a store");
            };
            task.is_reading |= matches!(op, store::Op::Read { .. });
            match store.submit(&op) {
                Submitted::Done(outcome) => {
                    self.context.watch.stored(&op);
                    let scene = scene(&self.context.shared, nexus, target);
                    complaint::of(scene, &task.scsi, &op, &outcome, Cause::default());
                    step = task.scsi.resume(nexus, Input::Store(outcome));
                    self.context.watch.laps.lap(Layer::Scsi);
                }
                Submitted::Io(io) => return self.submit_io(id, op, io),
            }
        }
        match step {
            Step::Wait => self.wait_for_others(id),
            Step::Store(_)
            | Step::Abort { .. }
            | Step::Clock
            | Step::Draw
            | Step::Keep(_)
            | Step::Device(_)
            | Step::Spawn { .. } => self.context.runnable.push(self.key, id, step),
            Step::ReceiveDataOut { length } => self.receive_data_out(id, length),
            Step::Complete(completion) => self.complete(id, completion),
        }
    }

    /// Gives a command what it waits for; it may have ended meanwhile.
    pub(super) fn resume(&mut self, id: TaskId, input: Input) {
        if let Some((nexus, task, _)) = self.session.at_work(id) {
            let step = task.scsi.resume(nexus, input);
            let has_to_pay = task.charge.is_some();
            self.spends(id, With::Server);
            let step = if has_to_pay { self.pay(id, step) } else { Some(step) };
            if let Some(step) = step {
                self.advance(id, step);
            }
        }
    }

    /// Receive Data-Out: the task gets a buffer before the initiator is asked for the rest.
    pub(super) fn receive_data_out(&mut self, id: TaskId, length: u32) {
        let session = &mut *self.session;
        let Some(task) = task_of(&mut session.tasks, id) else {
            return never("who ends a command that waits takes it out of its line");
        };
        task.wanted = length.min(task.expected_out);
        let need = session.machine.buffer_need(id, length);
        let staged = task.staged.take();
        let staged = if need.is_reserved { self.take_reserved(id).or(staged) } else { staged };
        let buf = match self.widen(staged, need.length as usize, Claim::Share) {
            Ok(buf) => buf,
            Err((shortage, staged)) => {
                self.put_back(id, staged, need.is_reserved);
                let want = Want::DataOut { length };
                return self.is_short(shortage, id, want, need.length as usize);
            }
        };
        let session = &mut *self.session;
        if let Some(task) = task_of(&mut session.tasks, id) {
            task.has_memory = true;
        }
        match session.connection_of(self.connections, id) {
            Some(connection) => {
                connection.mover.submit(Op::Attach { task: id, buf });
            }
            // Its connection is gone: the buffer waits with the task for another one.
            None => session.park_buf(id, buf),
        }
        session.machine.receive_data_out(id, length);
        self.spends(id, With::Data);
    }

    /// Data-Out Received: all write data is in the task's buffer.
    pub(super) fn data_out_received(&mut self, id: TaskId) {
        let session = &mut *self.session;
        let connection = session.connection_of(self.connections, id);
        // It may have ended, or its connection, since the machine said so.
        let detach = Op::Detach { task: id };
        let Some(mut buf) = connection.and_then(|connection| connection.mover.submit(detach))
        else {
            return;
        };
        let Some((nexus, task, _)) = session.at_work(id) else { return };
        let wanted = task.wanted;
        buf.truncate(wanted as usize);
        self.context.watch.laps.lap(Layer::Protocol);
        let step = task.scsi.resume(nexus, Input::DataOut(buf.freeze()));
        session.bytes_out += u64::from(wanted);
        self.context.watch.laps.lap(Layer::Scsi);
        self.spends(id, With::Server);
        self.advance(id, step);
    }

    /// Send SCSI Command Complete.
    pub(super) fn complete(&mut self, id: TaskId, completion: scsi::Completion) {
        let mut telling = None;
        self.tally(id, completion.status, &completion.sense);
        if completion.status == CHECK_CONDITION {
            self.tell_failed_check(id);
            telling = self.session.telling(id);
        }
        self.arrives(id, Some(completion.status));
        self.tell_reservation(id, completion.status);
        if !self.end(id) {
            return;
        }
        let (session, context) = (&mut *self.session, &mut *self.context);
        if completion.fence {
            session.machine.set_now(context.port.now());
        }
        let bytes = completion.data_in.as_ref().map_or(0, |data| data.len());
        let lent = completion.data_in.as_ref().map_or(0, |data| data.lent_bytes());
        let lends = context.owed.lends(lent, context.shared.mailboxes.len());
        let data_in = match completion.data_in {
            Some(data) if session.machine.keeps_data() => {
                context.watch.copied += data.len() as u64;
                Some(buffers::private(&session.pool, data, Claim::Convenience))
            }
            Some(data) if !lends && data.is_lent() => {
                context.watch.copied += data.len() as u64;
                let data = buffers::private(&session.pool, data, Claim::Convenience);
                // What is said of it is said once.
                if data.is_lent() && completion.status == GOOD {
                    context.tally.failed(None, TASK_SET_FULL, &[]);
                    return session.machine.complete(id, empty_completion(TASK_SET_FULL));
                }
                Some(data)
            }
            data => data,
        };
        if data_in.as_ref().is_some_and(Slice::is_lent)
            && let Some(connection) = session.machine.connection_of(id)
        {
            context.owed.lend(&mut session.lent, Answer { task: id, connection, bytes: lent });
        }
        session.bytes_in += bytes as u64;
        session.owed = session.owed.saturating_add(bytes);
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

    /// Counts the end of a command.
    #[inline]
    pub(super) fn tally(&mut self, id: TaskId, status: u8, sense: &[u8]) {
        let session = &mut *self.session;
        if let Some(task) = task_of(&mut session.tasks, id) {
            let (place, took) = (task.scsi.place(), &mut session.took);
            self.context.tally.ended(place, task.timed, status, sense, took);
        }
    }

    /// What a command has found wrong is for the log, too.
    #[cold]
    fn tell_failed_check(&mut self, id: TaskId) {
        if let Some((nexus, task, target)) = self.session.at_work(id) {
            complaint::of_check(scene(&self.context.shared, nexus, target), &task.scsi);
        }
    }
}

impl<P: Port> Pump<P> {
    /// Gives commands that used up their turn another one.
    pub(super) fn take_turns(&mut self) {
        for _ in 0..self.context.runnable.len() {
            if let Some((key, id, step)) = self.context.runnable.pop()
                && let Some(mut view) = self.session(key)
            {
                view.advance(id, step);
                self.settle(key);
            }
        }
    }

    /// Gives a command of a session that may have gone what it waits for.
    pub(super) fn resume(&mut self, key: Key, id: TaskId, input: Input) {
        if let Some(mut view) = self.session(key) {
            view.resume(id, input);
        }
        self.settle(key);
    }
}

/// Where a command of a session is carried out.
pub(super) fn scene<'a>(
    shared: &'a Shared,
    nexus: &'a Nexus,
    target: Option<&'a str>,
) -> Scene<'a> {
    Scene { shared, session: Some((nexus, target)) }
}

impl Session {
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
