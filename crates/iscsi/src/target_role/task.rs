// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One SCSI command: its data bursts and its status (RFC 7143 §4.2.5, §11.3-11.4, §11.7-11.8).
//!
//! ```text
//!           +-- hole before it --> Held --+                      C  complete: status goes out
//!   arrives +                             +--> Running --C--> Draining --Released--> gone
//!           +-- in CmdSN order -----------+       |              ^
//!                                                 +--- abort ----+  (no status)
//! ```
//!
//! READ: `deliver` -> the SCSI side -> `complete` -> `respond`. WRITE: `deliver` -> the SCSI side
//! -> `receive_data_out` -> `ask` -> `data_done` ... -> `advance` -> the SCSI side -> `complete` ->
//! `respond`.

mod early;
mod entry;
mod overdue;
mod respond;
mod table;

pub use early::{BufferNeed, Room};
pub(super) use entry::{Phase, Task, Transfer};
pub(super) use overdue::Look;
pub(super) use respond::{collapses, sense_segment};
pub(super) use table::Tasks;

use entry::Unsolicited;

use super::fence::Holder;
use super::leaving::Cleared;
use super::limits;
use super::lun::lun_key;
use super::names::ConnectionId;
use super::numbering::Turn;
use super::pdu::Pdu;
use super::session::Session;
use crate::datamover::{Immediate, Op, TaskId};
use crate::service::{Command, Completion, Indication};
use crate::violation::Violation;
use alloc::vec::Vec;
use wire::iscsi::{Itt, LunField, ScsiCommand};

impl Session {
    /// SCSI side: the command takes `length` bytes of write data.
    ///
    /// Before, the pump attaches a buffer as [`buffer_need`](Self::buffer_need) says to the mover.
    /// `Indication::DataOutReceived` follows when they are there; a call for a task that has ended
    /// is ignored.
    pub fn receive_data_out(&mut self, task: TaskId, length: u32) {
        let first_burst_length = self.login.parameters.first_burst_length;
        let Some(entry) = self.tasks.running_mut(task) else { return };
        if !entry.is_with_scsi() || entry.transfer.wanted.is_some() {
            return;
        }
        entry.transfer.wanted = Some(length.min(entry.expected_out()));
        entry.transfer.next = entry.first_burst_end(first_burst_length);
        if entry.is_exhausted() {
            self.fail(task, Violation::NoBuffer);
        } else {
            self.declare(task, Unsolicited::Open);
            self.ask(task);
        }
        self.advance(task);
        self.settle();
    }

    /// SCSI side: the command is over. If write data is still on its way, the status waits for its
    /// end (RFC 7143 §11.4.2). A call for a task that has ended is ignored.
    pub fn complete(&mut self, task: TaskId, completion: Completion) {
        let Some(entry) = self.tasks.running_mut(task) else { return };
        if !entry.is_with_scsi() {
            return;
        }
        entry.completion = Some(completion);
        self.declare(task, Unsolicited::Discarded);
        self.advance(task);
        self.settle();
    }

    /// End a task without a response (task management, another nexus's reset). `Ended` follows when
    /// its buffer is free. A task that has been answered already is left alone.
    pub fn abort(&mut self, task: TaskId) {
        self.end_task(task);
        self.settle();
    }

    /// The tasks of `lun` (None: of all) that the SCSI side has or is to get an answer out of,
    /// oldest first.
    pub fn tasks(&self, lun: Option<LunField>) -> Vec<TaskId> {
        let key = lun.map(lun_key);
        self.tasks
            .in_order()
            .into_iter()
            .filter(|task| key.is_none_or(|key| lun_key(task.command.lun) == key))
            .map(|task| task.id)
            .collect()
    }

    /// A SCSI Command PDU has arrived.
    pub(super) fn handle_command(
        &mut self,
        pdu: &Pdu<'_>,
        command: ScsiCommand,
        data: Immediate,
    ) -> Result<(), Violation> {
        if command.itt == Itt::NONE {
            return Err(Violation::ReservedTaskTag);
        }
        if !command.final_ && !command.write {
            return Err(Violation::FinalMissing);
        }
        self.check_task_tag(&command)?;
        if command.immediate {
            let full = self.tasks.immediate() >= limits::IMMEDIATE_TASKS_MAX;
            if full || self.managements.bar_lun(command.lun) {
                return Err(Violation::TooManyImmediate);
            }
            let task = self.create(pdu.connection, command, data)?;
            self.deliver(task);
            return Ok(());
        }
        match self.numbering.turn(command.cmd_sn)? {
            Turn::Now if !self.managements.bar_command(&command) => {
                let task = self.create(pdu.connection, command, data)?;
                self.numbering.advance();
                self.deliver(task);
            }
            Turn::Now | Turn::Later => {
                let task = self.create(pdu.connection, command, data)?;
                self.numbering.hold_command(command.cmd_sn, task);
                self.reserve(task);
            }
        }
        Ok(())
    }

    /// Looks for a live task with the same tag before anything else (RFC 7143 §4.2.2.1): a retry of
    /// a command that runs is dropped, any other use of the tag is an error.
    fn check_task_tag(&self, command: &ScsiCommand) -> Result<(), Violation> {
        let retried = match self.tasks.find(command.itt) {
            Some(task) => Some((task.command.cmd_sn, task.command.immediate)),
            None => self.managements.has(command.itt).then_some((command.cmd_sn, true)),
        };
        match retried {
            None => Ok(()),
            Some((number, false)) if !command.immediate && number == command.cmd_sn => {
                Err(Violation::DuplicateCommand(number))
            }
            Some(_) if !command.immediate => match self.numbering.turn(command.cmd_sn) {
                Err(outside @ Violation::OutsideWindow(_)) => Err(outside),
                _ => Err(Violation::TaskInProgress),
            },
            Some(_) => Err(Violation::TaskInProgress),
        }
    }

    fn create(
        &mut self,
        connection: ConnectionId,
        command: ScsiCommand,
        data: Immediate,
    ) -> Result<TaskId, Violation> {
        let new = |id| Task::new(id, connection, command, data);
        self.tasks.insert(command.itt, new).ok_or(Violation::OutOfTasks)
    }

    /// SCSI Command Received, or the end of a command that breaks the rules for data.
    pub(super) fn deliver(&mut self, task: TaskId) {
        self.tasks.start(task);
        let Some(entry) = self.tasks.running_mut(task) else { return };
        let lun = entry.command.lun;
        let connection = entry.connection;
        if let Some(connection) = self.connection_mut(connection) {
            connection.note_lun(lun);
        }
        if let Err(violation) = self.check_data(task) {
            self.fail(task, violation);
        }
        let Some(entry) = self.tasks.running_mut(task) else { return };
        if entry.transfer.failure.is_some() {
            return self.advance(task);
        }
        entry.indicated = true;
        let exhausted = entry.is_exhausted();
        let immediate = match core::mem::take(&mut entry.immediate) {
            Immediate::Staged { data, length } if !exhausted => Some((data, length)),
            Immediate::Exhausted { length } => {
                entry.immediate = Immediate::Exhausted { length };
                None
            }
            Immediate::Staged { .. } | Immediate::None => None,
        };
        let command = Command {
            task,
            lun,
            cdb: entry.command.cdb,
            attribute: entry.command.attribute,
            priority: entry.command.priority & self.priority_mask,
            expected_out: entry.expected_out(),
            expected_in: entry.expected_in(),
            acknowledged: entry.command.exp_stat_sn,
            immediate,
            exhausted,
        };
        if entry.transfer.unsolicited == Unsolicited::Undeclared {
            self.tasks.undeclared.push(task);
        }
        self.outputs.indicate(Indication::Command(command));
    }

    /// The rules for immediate and unsolicited data (RFC 7143 §11.4.7.2, §13.10-13.14).
    fn check_data(&mut self, task: TaskId) -> Result<(), Violation> {
        let parameters = &self.login.parameters;
        let (initial_r2t, immediate_data) = (parameters.initial_r2t, parameters.immediate_data);
        let first_burst_length = parameters.first_burst_length;
        let Some(task) = self.tasks.live_mut(task) else { return Ok(()) };
        let immediate = task.immediate_length;
        let unannounced = immediate > 0 && (!immediate_data || !task.command.write);
        if unannounced || (!task.command.final_ && initial_r2t) {
            return Err(Violation::UnexpectedUnsolicited);
        }
        if immediate > first_burst_length.min(task.expected_out()) {
            return Err(Violation::IncorrectAmount);
        }
        if task.command.read && task.command.write {
            return Err(Violation::Bidirectional);
        }
        Ok(())
    }

    /// Sends R2Ts up to MaxOutstandingR2T, each at most MaxBurstLength, in order (RFC 7143 §11.8).
    /// With recovery and DataSequenceInOrder=Yes that is one at a time, whatever the initiator
    /// would take (§13.19): the login agrees on no more.
    fn ask(&mut self, task: TaskId) {
        let burst_length = self.login.parameters.max_burst_length;
        let open_max = self.login.parameters.max_outstanding_r2t.clamp(1, limits::OPEN_R2T_MAX);
        loop {
            let Some(entry) = self.tasks.running_mut(task) else { return };
            let transfer = &mut entry.transfer;
            let Some(wanted) = transfer.wanted else { return };
            let stopped = transfer.held_back
                || transfer.failure.is_some()
                || entry.completion.is_some()
                || transfer.open_r2t >= open_max;
            if stopped {
                return;
            }
            let (offset, length) = match transfer.take_missing() {
                Some(missing) => missing,
                None if transfer.next >= wanted => return,
                None => (transfer.next, burst_length.min(wanted - transfer.next)),
            };
            transfer.next = transfer.next.max(offset + length);
            transfer.open_r2t += 1;
            self.expect_data();
            if self.recovery.is_on() {
                self.get_numbered(task, offset, length);
                continue;
            }
            let Some(entry) = self.tasks.running_mut(task) else { return };
            let (itt, lun, connection) = (entry.command.itt, entry.command.lun, entry.connection);
            let numbers = self.numbers(connection);
            self.outputs.op(connection, Op::GetData { task, itt, lun, offset, length, numbers });
        }
    }

    /// True if a burst that has ended is the unsolicited one.
    fn is_unsolicited(&self, task: TaskId, offset: u32, length: u32) -> bool {
        let first_burst_length = self.login.parameters.first_burst_length;
        self.tasks.live_ref(task).is_some_and(|entry| {
            entry.transfer.unsolicited != Unsolicited::None
                && offset == entry.immediate_length
                && length == entry.first_burst_end(first_burst_length) - entry.immediate_length
        })
    }

    /// A burst has come in whole.
    pub(super) fn data_done(&mut self, task: TaskId, offset: u32, length: u32) {
        let unsolicited = self.is_unsolicited(task, offset, length);
        let Some(entry) = self.tasks.live_mut(task) else { return };
        if let Some(books) = &mut entry.transfer.books {
            books.close(offset, length);
        }
        entry.transfer.silences = 0;
        entry.close_burst(unsolicited);
        self.data_came();
        self.ask(task);
        self.advance(task);
    }

    /// A burst has ended in error.
    pub(super) fn data_failed(
        &mut self,
        task: TaskId,
        (offset, length): (u32, u32),
        violation: Violation,
    ) {
        let unsolicited = self.is_unsolicited(task, offset, length);
        let Some(entry) = self.tasks.live_mut(task) else { return };
        entry.close_burst(unsolicited);
        if self.recovers_burst(task, offset, length, violation) {
            self.ask(task);
            return self.advance(task);
        }
        let Some(entry) = self.tasks.live_mut(task) else { return };
        if entry.completion.is_none() {
            self.fail(task, violation);
        }
        self.advance(task);
    }

    /// The task ends by our own answer; the SCSI side forgets it at once.
    fn fail(&mut self, task: TaskId, violation: Violation) {
        let Some(entry) = self.tasks.live_mut(task) else { return };
        if entry.transfer.failure.is_some() {
            return;
        }
        entry.transfer.failure = Some(violation);
        let indicated = entry.indicated;
        self.declare(task, Unsolicited::Discarded);
        if indicated {
            self.outputs.indicate(Indication::Dropped { task });
        }
    }

    /// What follows once no data is on its way: our own answer, the SCSI side's, or the news that
    /// all is there.
    pub(super) fn advance(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.running_mut(task) else { return };
        if entry.transfer.is_open() || entry.orphan.is_some() {
            return;
        }
        if entry.transfer.failure.is_some() || entry.completion.is_some() {
            let fence = entry.fence();
            if !(self.fences.holds_up(fence) && self.get_in_line(Holder::Task(task), fence)) {
                self.answer_task(task);
            }
        } else if let Some(wanted) = entry.transfer.wanted
            && entry.transfer.next >= wanted
            && !entry.transfer.misses()
            && !entry.transfer.told
        {
            entry.transfer.told = true;
            self.outputs.indicate(Indication::DataOutReceived { task });
        }
    }

    /// Sends the answer that is ready.
    pub(super) fn answer_task(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.running_mut(task) else { return };
        if let Some(violation) = entry.transfer.failure {
            let completion = entry.own_completion(violation);
            self.respond(task, completion);
        } else if let Some(completion) = entry.completion.take() {
            self.respond(task, completion);
        }
    }

    /// Ends a task that has not been answered, without an answer.
    pub(super) fn end_task(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.live_mut(task) else { return };
        entry.completion = None;
        let (open, connection) = (entry.transfer.is_open(), entry.connection);
        let orphan = entry.orphan.is_some();
        self.tasks.drain(task);
        if orphan {
            return self.task_released(task);
        }
        if open {
            self.outputs.op(connection, Op::Abandon { task });
        }
        self.outputs.op(connection, Op::Release { task });
    }

    /// Takes out a task whose connection is gone, whatever its state.
    pub(super) fn discard(&mut self, task: TaskId) -> Cleared {
        let with_scsi = self.is_known_to_scsi(task);
        if self.tasks.live_ref(task).is_some() {
            self.tasks.drain(task);
        }
        if with_scsi {
            self.outputs.indicate(Indication::Cleared { task });
        }
        self.task_released(task);
        if with_scsi { Cleared::Tasks } else { Cleared::Nothing }
    }

    /// Ends every task of the session (RFC 7143 §7.6).
    pub(super) fn end_tasks(&mut self) {
        for task in self.tasks.live() {
            self.end_task(task);
        }
        self.tasks.undeclared.clear();
        self.fences.clear();
        self.managements.clear();
    }

    /// True if the SCSI side has the task and has not said how it ends.
    pub(super) fn is_known_to_scsi(&mut self, task: TaskId) -> bool {
        self.tasks.running_mut(task).is_some_and(|task| task.is_with_scsi())
    }

    /// Lets a task go on that waited for task management in vain.
    pub(super) fn resume(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.running_mut(task) else { return };
        if entry.orphan.is_some() {
            return;
        }
        entry.transfer.held_back = false;
        self.ask(task);
        self.advance(task);
    }

    /// The mover holds nothing of the task any more.
    pub(super) fn task_released(&mut self, task: TaskId) {
        self.give_up_answer(task);
        if self.tasks.remove(task) {
            self.outputs.indicate(Indication::Ended { task });
        }
    }
}
