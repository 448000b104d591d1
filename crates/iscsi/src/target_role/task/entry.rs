// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session knows of one command: how far it is, and what of its write data has come.

use crate::datamover::{Immediate, TaskId};
use crate::service::Completion;
use crate::target_role::fence::Fence;
use crate::target_role::names::ConnectionId;
use crate::target_role::recovery::{Answer, Books};
use crate::violation::Violation;
use alloc::boxed::Box;
use wire::iscsi::ScsiCommand;

/// A SCSI command from its arrival until the mover has released it.
#[derive(Debug)]
pub(in crate::target_role) struct Task {
    pub(in crate::target_role) id: TaskId,
    pub(in crate::target_role) connection: ConnectionId,
    pub(in crate::target_role) command: ScsiCommand,
    pub(in crate::target_role) phase: Phase,
    /// The SCSI side was told of it.
    pub(super) indicated: bool,
    pub(super) immediate: Immediate,
    /// Bytes of immediate data: they stay known when the buffer has moved on.
    pub(super) immediate_length: u32,
    pub(in crate::target_role) transfer: Transfer,
    /// What the SCSI side said, while data is still on its way.
    pub(super) completion: Option<Completion>,
    /// Above ErrorRecoveryLevel 0: what it was answered, until that is acknowledged.
    pub(in crate::target_role) answer: Option<Box<Answer>>,
    /// At ErrorRecoveryLevel 2: the lost connection that it waits to be reassigned from.
    pub(in crate::target_role) orphan: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::target_role) enum Phase {
    Held,
    Running,
    Draining,
}

/// The write data of a task.
#[derive(Debug, Default)]
pub(in crate::target_role) struct Transfer {
    /// What the SCSI side asked for, within what the initiator has.
    pub(super) wanted: Option<u32>,
    /// Where the next R2T begins.
    pub(super) next: u32,
    /// R2Ts whose data has not ended.
    pub(in crate::target_role) open_r2t: u16,
    pub(super) unsolicited: Unsolicited,
    /// Unsolicited data was dropped: the task cannot have all its data any more.
    pub(super) lost: bool,
    /// Its mover has its buffer, before the SCSI side has asked for data.
    pub(super) reserved: bool,
    pub(super) failure: Option<Violation>,
    /// At how many looks for data none had come, since a burst did.
    pub(in crate::target_role) silences: u16,
    /// This look is counted.
    pub(super) silent: bool,
    /// Task management waits for the end of the open bursts: no new ones.
    pub(in crate::target_role) held_back: bool,
    /// The SCSI side was told that all is there.
    pub(super) told: bool,
    /// Above ErrorRecoveryLevel 0: what was asked for, and what was lost.
    pub(in crate::target_role) books: Option<Box<Books>>,
}

/// The unsolicited Data-Out PDUs that a command with F=0 announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unsolicited {
    /// None announced, or ended.
    #[default]
    None,
    /// Announced; the mover does not know where to put it.
    Undeclared,
    /// On its way into the task's buffer.
    Open,
    /// On its way into the void: the task cannot have it any more.
    Discarded,
}

impl Transfer {
    /// No data is waited for any more.
    pub(in crate::target_role) fn give_up(&mut self) {
        self.open_r2t = 0;
        self.unsolicited = Unsolicited::None;
    }

    /// True while the initiator has data to send that it was asked for or announced.
    pub(in crate::target_role) fn is_open(&self) -> bool {
        self.open_r2t > 0 || self.unsolicited != Unsolicited::None
    }

    /// The connection is gone: nothing is on its way any more, and nothing is asked for until
    /// another one takes over. True if unsolicited data was to come that the task still needs.
    pub(in crate::target_role) fn lose(&mut self) -> bool {
        self.open_r2t = 0;
        self.held_back = true;
        self.reserved = false;
        let before = core::mem::take(&mut self.unsolicited);
        matches!(before, Unsolicited::Open | Unsolicited::Undeclared)
    }
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
            immediate: data,
            immediate_length,
            transfer: Transfer { unsolicited, ..Transfer::default() },
            completion: None,
            answer: None,
            orphan: None,
        }
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
    pub(in crate::target_role) fn first_burst_end(&self, first_burst_length: u32) -> u32 {
        if self.command.final_ {
            self.immediate_length
        } else {
            first_burst_length.min(self.expected_out()).max(self.immediate_length)
        }
    }

    /// Where the immediate data ends.
    pub(in crate::target_role) const fn immediate_end(&self) -> u32 {
        self.immediate_length
    }

    /// True if write data is gone for want of a buffer.
    pub(super) fn is_exhausted(&self) -> bool {
        self.transfer.lost || matches!(self.immediate, Immediate::Exhausted { .. })
    }

    /// True if the SCSI side waits for write data, and nothing has ended the task.
    pub(in crate::target_role) fn awaits_data(&self) -> bool {
        self.is_with_scsi() && self.transfer.wanted.is_some()
    }

    /// True if its mover has a buffer that the task needs.
    pub(in crate::target_role) fn has_buffer(&self) -> bool {
        self.awaits_data() || (self.is_with_scsi() && self.transfer.reserved)
    }

    /// True unless something has ended the task.
    pub(in crate::target_role) fn may_go_on(&self) -> bool {
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
}

impl Task {
    /// One burst less is on its way.
    pub(super) fn close_burst(&mut self, unsolicited: bool) {
        let transfer = &mut self.transfer;
        match transfer.open_r2t.checked_sub(1) {
            Some(left) if !unsolicited => transfer.open_r2t = left,
            _ => transfer.unsolicited = Unsolicited::None,
        }
    }
}
