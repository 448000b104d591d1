// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that comes before the SCSI side has asked for it (RFC 7143 §4.2.5.2).

use super::Tasks;
use crate::datamover::Immediate;
use crate::datamover::TaskId;
use crate::target_role::output::Output;
use crate::target_role::output::Outputs;
use crate::target_role::task::early::BufferNeed;
use crate::target_role::task::early::Room;
use crate::target_role::task::transfer::Unsolicited;
use clock::Instant;

impl Tasks {
    /// What buffer `id` needs for `length` bytes of write data.
    pub(in crate::target_role) fn buffer_need(&self, id: TaskId, length: u32) -> BufferNeed {
        let Some(entry) = self.table.live_ref(id) else {
            return BufferNeed { length: 0, is_reserved: false };
        };
        let unasked = entry.first_burst_end(&self.terms);
        BufferNeed {
            length: length.min(entry.expected_out()).max(unasked),
            is_reserved: entry.transfer.reserved,
        }
    }

    /// The answer to [`Output::Reserve`].
    pub(in crate::target_role) fn reserved(
        &mut self,
        id: TaskId,
        room: Room,
        now: Instant,
        outputs: &mut Outputs,
    ) {
        let Some(entry) = self.table.live_mut(id) else { return };
        entry.transfer.reserved = room == Room::Attached;
        let how = match room {
            Room::Attached => Unsolicited::Open,
            Room::None => Unsolicited::Discarded,
        };
        self.declare(id, how, now, outputs);
    }

    /// Data that was announced comes before the SCSI side has asked for any: it needs a place.
    pub(in crate::target_role) fn reserve(
        &mut self,
        id: TaskId,
        now: Instant,
        outputs: &mut Outputs,
    ) {
        let Some(entry) = self.table.live_mut(id) else { return };
        if entry.transfer.unsolicited != Unsolicited::Undeclared {
            return;
        }
        let is_right = entry.check_data(&self.terms).is_ok();
        if !is_right || entry.is_exhausted() || !entry.may_go_on() {
            return self.declare(id, Unsolicited::Discarded, now, outputs);
        }
        let staged = match core::mem::take(&mut entry.staged) {
            Immediate::Staged { data, length } => Some((data, length)),
            Immediate::None | Immediate::Exhausted { .. } => None,
        };
        let (connection, length) = (entry.connection, entry.first_burst_end(&self.terms));
        outputs.push(Output::Reserve { connection, task: id, length, staged });
    }

    /// What the SCSI side did not ask for at once.
    #[inline]
    pub(in crate::target_role) fn reserve_undeclared(
        &mut self,
        now: Instant,
        outputs: &mut Outputs,
    ) {
        while let Some(task) = self.undeclared.pop() {
            self.reserve(task, now, outputs);
        }
    }
}
