// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unsolicited data, which may come before the SCSI side asks for any: the command waits for its
//! turn in CmdSN order, or for other tasks (RFC 7143 §4.2.2.1, §4.2.5.2, §11.7).
//!
//! ```text
//!   command with F=0 --> Undeclared --+-- receive_data_out --> Open ------+--> None: F has come
//!                                     +-- Reserve, a buffer -> Open ------+
//!                                     +-- Reserve, no buffer > Discarded -+
//!                                     +-- complete, fail ----> Discarded -+
//! ```
//!
//! Whoever is asked first gives the buffer: the SCSI side, if it wants data at once, or the pump by
//! [`Output::Reserve`]. Only data for which there is no memory is dropped; its command ends with
//! TASK SET FULL.

use super::Unsolicited;
use crate::datamover::{Immediate, Op, TaskId};
use crate::target_role::output::Output;
use crate::target_role::session::Session;

/// The buffer that a task needs for its write data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // the pump reads both
pub struct BufferNeed {
    /// Bytes: what the SCSI side wants and the initiator has, and more where the initiator sends
    /// more than that unasked.
    pub length: u32,
    /// The mover has a buffer of the task already, with data of it: it goes on in that one, or in a
    /// longer copy.
    pub is_reserved: bool,
}

/// What became of an [`Output::Reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // there is no third
pub enum Room {
    /// The mover has the buffer.
    Attached,
    /// There was no memory.
    None,
}

impl Session {
    /// What buffer `task` needs for `length` bytes of write data.
    pub fn buffer_need(&self, task: TaskId, length: u32) -> BufferNeed {
        let Some(entry) = self.tasks.live_ref(task) else {
            return BufferNeed { length: 0, is_reserved: false };
        };
        let unasked = entry.first_burst_end(self.login.parameters.first_burst_length);
        BufferNeed {
            length: length.min(entry.expected_out()).max(unasked),
            is_reserved: entry.transfer.reserved,
        }
    }

    /// The answer to [`Output::Reserve`].
    pub fn reserved(&mut self, task: TaskId, room: Room) {
        let Some(entry) = self.tasks.live_mut(task) else { return };
        entry.transfer.reserved = room == Room::Attached;
        self.declare(
            task,
            match room {
                Room::Attached => Unsolicited::Open,
                Room::None => Unsolicited::Discarded,
            },
        );
    }

    /// Data that was announced comes before the SCSI side has asked for any: it needs a place.
    pub(super) fn reserve(&mut self, task: TaskId) {
        let first_burst_length = self.login.parameters.first_burst_length;
        let is_right = self.check_data(task).is_ok();
        let Some(entry) = self.tasks.live_mut(task) else { return };
        if entry.transfer.unsolicited != Unsolicited::Undeclared {
            return;
        }
        if !is_right || entry.is_exhausted() || !entry.may_go_on() {
            return self.declare(task, Unsolicited::Discarded);
        }
        let staged = match core::mem::take(&mut entry.immediate) {
            Immediate::Staged { data, length } => Some((data, length)),
            Immediate::None | Immediate::Exhausted { .. } => None,
        };
        let (connection, length) = (entry.connection, entry.first_burst_end(first_burst_length));
        self.outputs.push(Output::Reserve { connection, task, length, staged });
    }

    /// Tells the mover where unsolicited data goes, if it does not know yet.
    pub(super) fn declare(&mut self, task: TaskId, how: Unsolicited) {
        let first_burst_length = self.login.parameters.first_burst_length;
        let Some(entry) = self.tasks.live_mut(task) else { return };
        if entry.transfer.unsolicited != Unsolicited::Undeclared {
            return;
        }
        entry.transfer.unsolicited = how;
        entry.transfer.lost = how == Unsolicited::Discarded;
        let offset = entry.immediate_length;
        let op = Op::ExpectUnsolicited {
            task,
            itt: entry.command.itt,
            lun: entry.command.lun,
            offset,
            length: entry.first_burst_end(first_burst_length) - offset,
            discard: entry.transfer.lost,
        };
        let connection = entry.connection;
        self.expect_data();
        self.outputs.op(connection, op);
    }

    /// What the SCSI side did not ask for at once.
    pub(in crate::target_role) fn reserve_undeclared(&mut self) {
        while let Some(task) = self.tasks.undeclared.pop() {
            self.reserve(task);
        }
    }
}
