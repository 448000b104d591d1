// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All commands of a session: how each begins, gets its data and ends.

mod answers;
mod moving;
mod reserving;

use super::burst::Burst;
use super::entry::Phase;
use super::entry::Task;
use super::overdue::Look;
use super::table::Table;
use super::terms::Terms;
use super::transfer::Unsolicited;
use crate::datamover::Immediate;
use crate::datamover::Op;
use crate::datamover::TaskId;
use crate::service::Completion;
use crate::service::Indication;
use crate::target_role::fence::Fence;
use crate::target_role::limits;
use crate::target_role::names::ConnectionId;
use crate::target_role::names::NOWHERE;
use crate::target_role::output::Outputs;
use crate::target_role::recovery::Answer;
use crate::target_role::recovery::Kept;
use crate::target_role::reply::Reply;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::ScsiCommand;
use wire::iscsi::Ttt;

/// The tasks of a session. What is to be done goes into the queue that each call is given; what
/// needs numbers, or a place in a line, is returned.
#[derive(Debug)]
pub(in crate::target_role) struct Tasks {
    table: Table,
    terms: Terms,
    look: Look,
    kept: Kept,
    /// Delivered commands whose unsolicited data nobody has asked for yet.
    undeclared: Vec<TaskId>,
}

/// A command that was delivered.
#[derive(Clone, Copy, Debug)]
pub(in crate::target_role) struct Delivered {
    pub(in crate::target_role) connection: ConnectionId,
    pub(in crate::target_role) lun: LunField,
    /// It goes no further than that: it breaks the rules for data, or its data was lost.
    pub(in crate::target_role) is_broken: bool,
}

impl Tasks {
    /// Room for a window of `depth` commands, and for so many bytes of their answers.
    pub(in crate::target_role) fn new(depth: u16, terms: Terms, kept_bytes_max: usize) -> Self {
        Self {
            table: Table::new(depth),
            look: Look::new(terms.recovers),
            kept: Kept::new(kept_bytes_max),
            undeclared: Vec::with_capacity(usize::from(depth)),
            terms,
        }
    }

    /// A command has arrived: it waits for its turn.
    #[inline]
    pub(in crate::target_role) fn arrive(
        &mut self,
        connection: ConnectionId,
        command: ScsiCommand,
        data: Immediate,
    ) -> Result<TaskId, Violation> {
        let new = |id| Task::new(id, connection, command, data);
        self.table.insert(command.itt, new).ok_or(Violation::OutOfTasks)
    }

    /// SCSI Command Received, or the end of a command that breaks the rules for data: then it is
    /// to [advance](Self::advance). None if there is no such task.
    #[inline]
    pub(in crate::target_role) fn deliver(
        &mut self,
        id: TaskId,
        now: Instant,
        outputs: &mut Outputs,
    ) -> Option<Delivered> {
        self.table.start(id);
        let entry = self.table.running_mut(id);
        debug_assert!(entry.is_some(), "what is delivered is there");
        let entry = entry?;
        let (connection, lun) = (entry.connection, entry.command.lun);
        let check = entry.check_data(&self.terms);
        let is_broken = check.is_err() || entry.transfer.failure.is_some();
        if !is_broken {
            if entry.transfer.unsolicited == Unsolicited::Undeclared {
                self.undeclared.push(id);
            }
            outputs.indicate(Indication::Command(entry.indicate(&self.terms)));
        }
        if let Err(violation) = check {
            self.fail(id, violation, now, outputs);
        }
        Some(Delivered { connection, lun, is_broken })
    }

    /// SCSI side: the command takes `length` bytes of write data. False if that means nothing, as
    /// the task has ended.
    pub(in crate::target_role) fn receive(
        &mut self,
        id: TaskId,
        length: u32,
        now: Instant,
        outputs: &mut Outputs,
    ) -> bool {
        let Some(entry) = self.table.running_mut(id) else { return false };
        if !entry.is_with_scsi() || entry.transfer.wanted.is_some() {
            return false;
        }
        entry.transfer.wanted = Some(length.min(entry.expected_out()));
        entry.transfer.next = entry.first_burst_end(&self.terms);
        match entry.is_exhausted() {
            true => self.fail(id, Violation::NoBuffer, now, outputs),
            false => self.declare(id, Unsolicited::Open, now, outputs),
        }
        true
    }

    /// SCSI side: the command is over. False if that means nothing, as the task has ended.
    #[inline]
    pub(in crate::target_role) fn complete(
        &mut self,
        id: TaskId,
        completion: Completion,
        now: Instant,
        outputs: &mut Outputs,
    ) -> bool {
        let Some(entry) = self.table.running_mut(id).filter(|entry| entry.is_with_scsi()) else {
            return false;
        };
        entry.completion = Some(completion);
        self.declare(id, Unsolicited::Discarded, now, outputs);
        true
    }

    /// The next R2T: up to MaxOutstandingR2T, each at most MaxBurstLength, in order (RFC 7143
    /// §11.8).
    #[inline]
    pub(in crate::target_role) fn next_burst(&mut self, id: TaskId, now: Instant) -> Option<Burst> {
        let entry = self.table.running_mut(id).filter(|entry| entry.completion.is_none())?;
        let (offset, length) = entry.transfer.next_r2t(&self.terms)?;
        self.look.expect(now);
        let keeps = self.terms.keeps;
        let r2t_sn = keeps.then(|| entry.transfer.r2ts().ask(offset, length));
        Some(entry.burst((offset, length), r2t_sn, &self.terms))
    }

    /// What follows once no data is on its way: the news that all is there; or our own answer, or
    /// the SCSI side's, which stands to others as is told.
    #[inline]
    pub(in crate::target_role) fn advance(
        &mut self,
        id: TaskId,
        outputs: &mut Outputs,
    ) -> Option<Fence> {
        let entry = self.table.running_mut(id)?;
        if entry.transfer.is_open() || entry.orphan.is_some() {
            return None;
        }
        if entry.is_decided() {
            return Some(entry.fence());
        }
        if entry.transfer.is_all_there() {
            outputs.indicate(Indication::DataOutReceived { task: id });
        }
        None
    }

    /// The answer that is ready leaves: only the release of the task is awaited.
    #[inline]
    pub(in crate::target_role) fn answer(&mut self, id: TaskId) -> Option<Reply> {
        let reply = self.table.running_mut(id)?.take_reply(&self.terms);
        if reply.is_some() {
            self.table.drain(id);
        }
        reply
    }

    /// A burst has come in whole.
    pub(in crate::target_role) fn data_done(
        &mut self,
        id: TaskId,
        (offset, length): (u32, u32),
        now: Instant,
    ) {
        let Some(entry) = self.table.live_mut(id) else { return };
        let unsolicited = entry.is_unsolicited(offset, length, &self.terms);
        if let Some(r2ts) = &mut entry.transfer.r2ts {
            r2ts.close(offset, length);
        }
        entry.transfer.silences = 0;
        entry.transfer.close(unsolicited);
        self.look.came(now);
    }

    /// A burst has ended in error: within-command recovery asks for it again, or the task fails.
    pub(in crate::target_role) fn data_failed(
        &mut self,
        id: TaskId,
        (offset, length): (u32, u32),
        violation: Violation,
        now: Instant,
        outputs: &mut Outputs,
    ) {
        let Some(entry) = self.table.live_mut(id) else { return };
        let unsolicited = entry.is_unsolicited(offset, length, &self.terms);
        entry.transfer.close(unsolicited);
        let is_lost = self.terms.recovers && violation == Violation::LostData;
        let recovers = is_lost && entry.recovers_burst(offset, length);
        if !recovers && entry.completion.is_none() {
            self.fail(id, violation, now, outputs);
        }
    }

    /// Nothing of a burst has come for long. Counts at how many looks that was so.
    pub(in crate::target_role) fn note_silence(&mut self, id: TaskId) {
        let Some(entry) = self.table.live_mut(id) else { return };
        if !core::mem::replace(&mut entry.transfer.silent, true) {
            entry.transfer.silences = entry.transfer.silences.saturating_add(1);
        }
    }

    /// So much has come on all connections, in bytes: a slow line has time.
    pub(in crate::target_role) fn note_received(&mut self, received: u64) {
        self.look.note_received(received);
    }

    /// Looks for bursts to which nothing has come for long.
    pub(in crate::target_role) fn look_for_overdue(&mut self, now: Instant, outputs: &mut Outputs) {
        let table = &self.table;
        let open = || {
            let open = table.iter().filter(|task| task.is_waiting_for_data());
            open.map(|task| u64::from(task.expected_out())).sum()
        };
        if !self.look.take_due(now, open) {
            return;
        }
        for task in self.table.live() {
            let Some(entry) = self.table.live_mut(task) else { continue };
            entry.transfer.silent = false;
            if entry.transfer.is_open() {
                outputs.op(entry.connection, Op::Overdue { task });
                self.look.expect(now);
            }
        }
    }

    /// Task management waits for the end of what is on its way: no new data is asked for.
    pub(in crate::target_role) fn hold_back(&mut self, id: TaskId) {
        if let Some(entry) = self.table.running_mut(id) {
            entry.transfer.held_back = true;
        }
    }

    /// Task management has not ended it: the task goes on. False if it cannot.
    pub(in crate::target_role) fn resume(&mut self, id: TaskId) -> bool {
        let running = self.table.running_mut(id).filter(|entry| entry.orphan.is_none());
        running.is_some_and(|entry| {
            entry.transfer.held_back = false;
            true
        })
    }

    /// Ends the data of a task that goes on: what still comes of it is dropped.
    pub(in crate::target_role) fn abandon(&mut self, id: TaskId, outputs: &mut Outputs) {
        let Some(entry) = self.table.running_mut(id) else { return };
        if entry.transfer.is_open() {
            entry.transfer.give_up();
            outputs.op(entry.connection, Op::Abandon { task: id });
        }
    }

    /// Ends a task that has not been answered, without an answer.
    pub(in crate::target_role) fn end(&mut self, id: TaskId, outputs: &mut Outputs) {
        let Some(entry) = self.table.live_mut(id) else { return };
        entry.completion = None;
        let (open, connection) = (entry.transfer.is_open(), entry.connection);
        let (orphan, itt) = (entry.orphan.is_some(), entry.command.itt);
        self.table.drain(id);
        if orphan {
            return self.release(id, outputs);
        }
        if open {
            outputs.op(connection, Op::Abandon { task: id });
        }
        outputs.op(connection, Op::Unname { itt });
        outputs.op(connection, Op::Release { task: id });
    }

    /// Takes out a task whose connection is gone, whatever its state.
    pub(in crate::target_role) fn discard(&mut self, id: TaskId, outputs: &mut Outputs) {
        let with_scsi = self.is_with_scsi(id);
        if self.table.live_ref(id).is_some() {
            self.table.drain(id);
        }
        if with_scsi {
            outputs.indicate(Indication::Cleared { task: id });
        }
        self.release(id, outputs);
    }

    /// Ends every task of the session (RFC 7143 §7.6).
    pub(in crate::target_role) fn end_all(&mut self, outputs: &mut Outputs) {
        for task in self.table.live() {
            self.end(task, outputs);
        }
        self.undeclared.clear();
    }

    /// The mover holds nothing of the task any more.
    #[inline]
    pub(in crate::target_role) fn release(&mut self, id: TaskId, outputs: &mut Outputs) {
        self.forget_answer(id);
        if self.table.remove(id) {
            outputs.indicate(Indication::Ended { task: id });
        }
    }

    /// Forgets the answer of a task: it is acknowledged, or nobody waits for it any more. Gives the
    /// last tag with which it asked for a DataACK.
    pub(in crate::target_role) fn forget_answer(&mut self, id: TaskId) -> Option<Ttt> {
        let answer = self.table.get_mut(id).and_then(|entry| entry.answer.take())?;
        self.kept.give_back(answer.kept_bytes());
        answer.last_tag()
    }

    /// A task in whatever phase.
    pub(in crate::target_role) fn get(&self, id: TaskId) -> Option<&Task> {
        self.table.get(id)
    }

    /// A task that has not been answered.
    #[inline]
    pub(in crate::target_role) fn live(&self, id: TaskId) -> Option<&Task> {
        self.table.live_ref(id)
    }

    /// The live task with this tag.
    #[inline]
    pub(in crate::target_role) fn find(&self, itt: Itt) -> Option<&Task> {
        self.table.find(itt)
    }

    /// The live task with this tag, or the answered one whose status is not acknowledged.
    pub(in crate::target_role) fn newest(&self, itt: Itt) -> Option<&Task> {
        self.table.newest(itt)
    }

    /// Every running task, in the order of delivery.
    pub(in crate::target_role) fn in_order(&self) -> Vec<&Task> {
        self.table.in_order()
    }

    /// Every task of a connection, in whatever phase.
    pub(in crate::target_role) fn of(&self, connection: ConnectionId) -> Vec<TaskId> {
        self.table.of(connection)
    }

    /// The tasks of a lost connection.
    pub(in crate::target_role) fn orphans(&self, lost: u32) -> impl Iterator<Item = &Task> {
        self.table.iter().filter(move |task| task.orphan == Some(lost))
    }

    /// True if it has been delivered and not answered.
    pub(in crate::target_role) fn is_running(&self, id: TaskId) -> bool {
        self.table.live_ref(id).is_some_and(|task| task.phase == Phase::Running)
    }

    /// True if the answer of a task may leave: one that waits for another connection gets in line
    /// again with it.
    pub(in crate::target_role) fn is_ready(&self, id: TaskId) -> bool {
        self.is_running(id) && self.table.live_ref(id).is_some_and(|task| task.orphan.is_none())
    }

    /// True if the SCSI side has the task and has not said how it ends.
    pub(in crate::target_role) fn is_with_scsi(&self, id: TaskId) -> bool {
        self.table.live_ref(id).is_some_and(Task::is_with_scsi)
    }

    /// True if no other immediate command of a connection is taken. One is, however many the others
    /// have (RFC 7143 §4.2.2.1).
    #[inline]
    pub(in crate::target_role) fn has_all_immediate(&self, connection: ConnectionId) -> bool {
        let of = |task: &Task| task.command.immediate && task.connection == connection;
        self.table.immediate() >= limits::IMMEDIATE_TASKS_MAX && self.table.iter().any(of)
    }

    /// Delivered tasks that take a place in the command window.
    #[inline]
    pub(in crate::target_role) const fn running(&self) -> u16 {
        self.table.running()
    }

    /// Ended tasks that the mover has not released, immediate ones not counted.
    #[inline]
    pub(in crate::target_role) const fn draining(&self) -> u16 {
        self.table.draining()
    }

    /// When [`look_for_overdue`](Self::look_for_overdue) has something to do.
    pub(in crate::target_role) const fn deadline(&self) -> Option<Instant> {
        self.look.at()
    }

    /// Panics if an invariant does not hold. `lives`: whether tasks of a connection may exist;
    /// `waits`: whether it is lost and waited for.
    pub(in crate::target_role) fn check(
        &self,
        lives: impl Fn(ConnectionId) -> bool,
        waits: impl Fn(u32) -> bool,
    ) {
        self.table.check(&self.terms);
        let answers = || self.table.iter().filter_map(Task::answer);
        self.kept.check(answers().map(Answer::kept_bytes).sum());
        assert!(self.terms.keeps || answers().next().is_none(), "nothing is kept for nothing");
        for task in self.table.iter() {
            let nowhere = task.connection == NOWHERE;
            assert_eq!(task.orphan.is_some(), nowhere, "an orphan is nowhere");
            assert!(nowhere || lives(task.connection), "a task outlived its connection");
            assert!(task.orphan.is_none_or(&waits), "an orphan is waited for");
        }
    }

    /// Tells the mover where unsolicited data goes, if it does not know yet.
    #[inline]
    fn declare(&mut self, id: TaskId, how: Unsolicited, now: Instant, outputs: &mut Outputs) {
        let Some(entry) = self.table.live_mut(id) else { return };
        if entry.transfer.unsolicited != Unsolicited::Undeclared {
            return;
        }
        entry.transfer.unsolicited = how;
        entry.transfer.lost = how == Unsolicited::Discarded;
        let offset = entry.immediate_length;
        let op = Op::ExpectUnsolicited {
            task: id,
            itt: entry.command.itt,
            lun: entry.command.lun,
            offset,
            length: entry.first_burst_end(&self.terms) - offset,
            discard: entry.transfer.lost,
        };
        outputs.op(entry.connection, op);
        self.look.expect(now);
    }

    /// The task ends by our own answer; the SCSI side forgets it at once.
    #[cold]
    fn fail(&mut self, id: TaskId, violation: Violation, now: Instant, outputs: &mut Outputs) {
        let Some(entry) = self.table.live_mut(id) else { return };
        if entry.transfer.failure.is_some() {
            return;
        }
        entry.transfer.failure = Some(violation);
        let indicated = entry.indicated;
        self.declare(id, Unsolicited::Discarded, now, outputs);
        if indicated {
            outputs.indicate(Indication::Dropped { task: id });
        }
    }
}
