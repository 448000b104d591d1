// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session knows of one command: how far it is, and what of its write data has come.

use super::burst::Burst;
use super::terms::Terms;
use super::transfer::Transfer;
use super::transfer::Unsolicited;
use crate::datamover::Immediate;
use crate::datamover::TaskId;
use crate::service::Command;
use crate::service::Completion;
use crate::target_role::fence::Fence;
use crate::target_role::limits;
use crate::target_role::names::ConnectionId;
use crate::target_role::recovery::Answer;
use crate::target_role::reply::Reply;
use crate::target_role::reply::residual;
use crate::violation::Reaction;
use crate::violation::Violation;
use alloc::boxed::Box;
use alloc::vec::Vec;
use buf::Slice;
use wire::iscsi::Residual;
use wire::iscsi::ScsiCommand;
use wire::scsi::sam::CHECK_CONDITION;

/// A SCSI command from its arrival until the mover has released it.
#[derive(Debug)]
pub(in crate::target_role) struct Task {
    pub(super) id: TaskId,
    pub(super) connection: ConnectionId,
    pub(super) command: ScsiCommand,
    pub(super) phase: Phase,
    /// The SCSI side was told of it.
    pub(super) indicated: bool,
    /// Immediate data, until the SCSI side is told of the command.
    pub(super) staged: Immediate,
    /// Bytes of immediate data: they stay known when the buffer has moved on.
    pub(super) immediate_length: u32,
    pub(super) transfer: Transfer,
    /// What the SCSI side said, while data is still on its way.
    pub(super) completion: Option<Completion>,
    /// Above ErrorRecoveryLevel 0: what it was answered, until that is acknowledged.
    pub(super) answer: Option<Box<Answer>>,
    /// At ErrorRecoveryLevel 2: the lost connection that it waits to be reassigned from.
    pub(super) orphan: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Held,
    Running,
    Draining,
}

impl Task {
    pub(super) fn new(
        id: TaskId,
        connection: ConnectionId,
        command: ScsiCommand,
        data: Immediate,
    ) -> Self {
        let immediate_length = match data {
            Immediate::None => 0,
            Immediate::Staged { length, .. } | Immediate::Exhausted { length } => length,
        };
        let unsolicited = if command.final_ { Unsolicited::None } else { Unsolicited::Undeclared };
        Self {
            id,
            connection,
            command,
            phase: Phase::Held,
            indicated: false,
            staged: data,
            immediate_length,
            transfer: Transfer { unsolicited, ..Transfer::default() },
            completion: None,
            answer: None,
            orphan: None,
        }
    }

    /// Write data that is to be asked for.
    #[inline]
    pub(super) fn burst(
        &self,
        (offset, length): (u32, u32),
        r2t_sn: Option<u32>,
        terms: &Terms,
    ) -> Burst {
        let (itt, lun) = (self.command.itt, self.command.lun);
        let solicited_from = match self.transfer.moved {
            // On another connection nothing comes unasked (RFC 7145 §10.2.2).
            true => self.immediate_length,
            false => self.first_burst_end(terms),
        };
        let (connection, task) = (self.connection, self.id);
        Burst { connection, task, itt, lun, offset, length, r2t_sn, solicited_from }
    }

    /// Expected bytes from the initiator.
    pub(super) fn expected_out(&self) -> u32 {
        if self.command.write { self.command.expected_length } else { 0 }
    }

    /// Expected bytes to the initiator.
    pub(super) fn expected_in(&self) -> u32 {
        match (self.command.read, self.command.write) {
            (true, false) => self.command.expected_length,
            (true, true) => self.command.bidi_read_length.unwrap_or(0),
            (false, _) => 0,
        }
    }

    /// Where the unsolicited data ends, immediate data included.
    pub(super) fn first_burst_end(&self, terms: &Terms) -> u32 {
        if self.command.final_ {
            self.immediate_length
        } else {
            terms.first_burst_length.min(self.expected_out()).max(self.immediate_length)
        }
    }

    /// True if write data is gone for want of a buffer.
    pub(super) fn is_exhausted(&self) -> bool {
        self.transfer.lost || matches!(self.staged, Immediate::Exhausted { .. })
    }

    /// True if the SCSI side waits for write data, and nothing has ended the task.
    pub(super) fn awaits_data(&self) -> bool {
        self.is_with_scsi() && self.transfer.wanted.is_some()
    }

    /// True if its mover has a buffer that the task needs.
    pub(super) fn has_buffer(&self) -> bool {
        self.awaits_data() || (self.is_with_scsi() && self.transfer.reserved)
    }

    /// True unless something has ended the task.
    pub(super) fn may_go_on(&self) -> bool {
        self.phase != Phase::Draining
            && self.completion.is_none()
            && self.transfer.failure.is_none()
    }

    /// How its answer stands to those of other tasks.
    pub(super) fn fence(&self) -> Fence {
        match &self.completion {
            Some(completion) if completion.fence => Fence::Promised,
            _ => Fence::None,
        }
    }

    /// True if the SCSI side has it and has not said how it ends.
    pub(super) fn is_with_scsi(&self) -> bool {
        self.phase == Phase::Running
            && self.indicated
            && self.completion.is_none()
            && self.transfer.failure.is_none()
    }

    pub(in crate::target_role) const fn id(&self) -> TaskId {
        self.id
    }

    pub(in crate::target_role) const fn connection(&self) -> ConnectionId {
        self.connection
    }

    pub(in crate::target_role) const fn command(&self) -> &ScsiCommand {
        &self.command
    }

    /// What it was answered, as long as that is not acknowledged.
    pub(in crate::target_role) fn answer(&self) -> Option<&Answer> {
        self.answer.as_deref()
    }

    /// True while the initiator has data to send that it was asked for or announced.
    pub(in crate::target_role) fn is_open(&self) -> bool {
        self.transfer.is_open()
    }

    /// The same of a task that has not been answered.
    pub(super) fn is_waiting_for_data(&self) -> bool {
        self.phase != Phase::Draining && self.transfer.is_open()
    }

    /// The lost connection that it waits to be reassigned from.
    pub(in crate::target_role) const fn orphan(&self) -> Option<u32> {
        self.orphan
    }

    /// The rules for immediate and unsolicited data (RFC 7143 §11.4.7.2, §13.10-13.14).
    #[inline]
    pub(super) fn check_data(&self, terms: &Terms) -> Result<(), Violation> {
        let command = &self.command;
        let immediate = self.immediate_length;
        let unannounced = immediate > 0 && (!terms.immediate_data || !command.write);
        if unannounced || (!command.final_ && terms.initial_r2t) {
            return Err(Violation::UnexpectedUnsolicited);
        }
        if immediate > terms.first_burst_length.min(self.expected_out()) {
            return Err(Violation::IncorrectAmount);
        }
        if command.read && command.write {
            return Err(Violation::Bidirectional);
        }
        Ok(())
    }

    /// What the SCSI side is told of it, once.
    #[inline]
    pub(super) fn indicate(&mut self, terms: &Terms) -> Command {
        debug_assert!(!self.indicated, "a command is told once");
        self.indicated = true;
        let exhausted = self.is_exhausted();
        let immediate = match core::mem::take(&mut self.staged) {
            Immediate::Staged { data, length } if !exhausted => Some((data, length)),
            Immediate::Exhausted { length } => {
                self.staged = Immediate::Exhausted { length };
                None
            }
            Immediate::Staged { .. } | Immediate::None => None,
        };
        Command {
            task: self.id,
            lun: self.command.lun,
            cdb: self.command.cdb,
            attribute: self.command.attribute,
            priority: if terms.has_level_two { self.command.priority & 0x0f } else { 0 },
            expected_out: self.expected_out(),
            expected_in: self.expected_in(),
            acknowledged: self.command.exp_stat_sn,
            numbered: !self.command.immediate,
            immediate,
            exhausted,
        }
    }

    /// True if a burst that has ended is the unsolicited one.
    pub(super) fn is_unsolicited(&self, offset: u32, length: u32, terms: &Terms) -> bool {
        self.transfer.unsolicited != Unsolicited::None
            && offset == self.immediate_length
            && length == self.first_burst_end(terms) - self.immediate_length
    }

    /// A burst is lost: true if it will be asked for again.
    pub(super) fn recovers_burst(&mut self, offset: u32, length: u32) -> bool {
        let may_go_on = self.may_go_on() && self.transfer.silences < limits::SILENCES_MAX;
        let r2ts = self.transfer.r2ts();
        r2ts.close(offset, length);
        let recovers = may_go_on && r2ts.try_again();
        if recovers {
            r2ts.miss(offset, length);
        }
        recovers
    }

    /// What was under way to a connection that is gone must be asked for again.
    pub(super) fn lose_transfers(&mut self, terms: &Terms) {
        let (from, to) = (self.immediate_length, self.first_burst_end(terms));
        let lost = self.transfer.lose();
        self.transfer.r2ts().lose(lost.then_some((from, to - from)));
    }

    /// True if it has its answer, ours or the SCSI side's, and no data is on its way.
    pub(super) const fn is_decided(&self) -> bool {
        self.transfer.failure.is_some() || self.completion.is_some()
    }

    /// Takes its answer, if it has one.
    #[inline]
    pub(super) fn take_reply(&mut self, terms: &Terms) -> Option<Reply> {
        let mut completion = match self.transfer.failure {
            Some(violation) => own_completion(violation),
            None => self.completion.take()?,
        };
        let (residual, bidi_read_residual) = self.residuals(&completion);
        Some(Reply {
            connection: self.connection,
            itt: self.command.itt,
            status: completion.status,
            data: completion.data_in.take().and_then(|data| self.data_to_send(data)),
            sense: completion.sense,
            residual,
            bidi_read_residual,
            qualified: terms.has_level_two,
            collapses: terms.collapses,
        })
    }

    /// What travels of the data that the SCSI side had: at most the expected length (RFC 7143
    /// §11.4.5.2).
    #[inline]
    fn data_to_send(&self, data: Slice) -> Option<Slice> {
        let have = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let travels = have.min(self.expected_in());
        if travels == 0 {
            return None;
        }
        data.into_part(0..usize::try_from(travels).ok()?)
    }

    /// The residual, and the one of the read part of a bidirectional command.
    #[inline]
    fn residuals(&self, completion: &Completion) -> (Residual, Residual) {
        let presented = completion.presented;
        let has_data_in = completion.data_in.as_ref().is_some_and(|data| !data.is_empty());
        match (self.command.read, self.command.write) {
            (true, true) => (
                residual(self.expected_out(), if has_data_in { 0 } else { presented }),
                residual(self.expected_in(), if has_data_in { presented } else { 0 }),
            ),
            // Data for the initiator, but the initiator expects to send: nothing of that was taken.
            (false, true) if has_data_in => (residual(self.expected_out(), 0), Residual::None),
            (false, true) => (residual(self.expected_out(), presented), Residual::None),
            (_, false) => (residual(self.expected_in(), presented), Residual::None),
        }
    }
}

/// Our own answer to a command that broke the rules for data.
fn own_completion(violation: Violation) -> Completion {
    let (status, sense) = match violation.reaction() {
        Reaction::FailTask(sense) => (CHECK_CONDITION, sense.to_fixed().to_vec()),
        Reaction::RefuseTask(status) => (status, Vec::new()),
        _ => unreachable!("only violations of a task end a task"),
    };
    Completion { status, sense, data_in: None, presented: 0, fence: false }
}
