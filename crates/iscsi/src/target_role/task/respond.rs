// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data-In and status of a SCSI command (RFC 7143 §11.4, §11.7).

use super::Task;
use crate::datamover::{Op, TaskId};
use crate::service::Completion;
use crate::target_role::session::Session;
use crate::violation::{Reaction, Violation};
use alloc::vec::Vec;
use buf::Slice;
use wire::iscsi::{CollapsedStatus, DataSn, Residual, Response, ScsiResponse};
use wire::scsi::sam::BUSY;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::CONDITION_MET;
use wire::scsi::sam::GOOD;
use wire::scsi::sam::TASK_SET_FULL;

/// In units of 100 ms, for the unit alone (SAM-5 §5.3.2): buffers are free again after a few round
/// trips.
const RETRY_DELAY: u16 = 1;

/// Response code "command completed at target" (RFC 7143 §11.4.3).
const COMPLETED_AT_TARGET: u8 = 0x00;

impl Session {
    /// Sends data and status, and gives the task's resources back.
    pub(super) fn respond(&mut self, task: TaskId, mut completion: Completion) {
        if self.recovery.is_on() {
            return self.respond_and_keep(task, completion);
        }
        let Some(entry) = self.tasks.running_mut(task) else { return };
        let connection = entry.connection;
        let itt = entry.command.itt;
        let (residual, bidi_read_residual) = entry.residuals(&completion);
        let data = completion.data_in.take().and_then(|data| entry.data_to_send(data));
        let collapses = collapses(completion.status) && data.is_some();
        self.tasks.drain(task);
        self.open_window();
        let status = CollapsedStatus { status: completion.status, residual };
        if let Some(data) = data {
            self.put_data(task, data, collapses.then_some(status));
        }
        if !collapses {
            let numbers = self.response_numbers(connection);
            let response = Response::Scsi(ScsiResponse {
                response: COMPLETED_AT_TARGET,
                status: completion.status,
                status_qualifier: self.retry_delay(completion.status),
                itt,
                snack_tag: 0,
                numbers,
                exp_data_sn: DataSn(0),
                bidi_read_residual,
                residual,
            });
            let data = sense_segment(&completion.sense);
            self.outputs.op(connection, Op::SendControl { response, data, task: Some(task) });
        }
        self.outputs.op(connection, Op::Release { task });
    }

    /// Status Qualifier: when a command that found no room may be tried again (RFC 7144 §6.2.1).
    pub(in crate::target_role) fn retry_delay(&self, status: u8) -> u16 {
        let is_full = matches!(status, BUSY | TASK_SET_FULL);
        if is_full && self.login.parameters.protocol_level >= 2 { RETRY_DELAY } else { 0 }
    }

    /// Send Data-In, in bursts of MaxBurstLength; `status` goes with the last.
    fn put_data(&mut self, task: TaskId, data: Slice, status: Option<CollapsedStatus>) {
        let Some((connection, itt)) = self.tasks.draining_tag(task) else { return };
        let burst = self.login.parameters.max_burst_length.max(1);
        let numbers = match status {
            Some(_) => self.response_numbers(connection),
            None => self.numbers(connection),
        };
        self.outputs
            .op(connection, Op::PutData { task, itt, data, offset: 0, burst, numbers, status });
    }
}

impl Task {
    /// What travels of the data that the SCSI side had: at most the expected length (RFC 7143
    /// §11.4.5.2).
    pub(in crate::target_role) fn data_to_send(&self, data: Slice) -> Option<Slice> {
        let have = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let travels = have.min(self.expected_in());
        if travels == 0 {
            return None;
        }
        data.into_part(0..usize::try_from(travels).ok()?)
    }

    /// The residual, and the one of the read part of a bidirectional command.
    pub(in crate::target_role) fn residuals(
        &self,
        completion: &Completion,
    ) -> (Residual, Residual) {
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

    /// Our own answer to a command that broke the rules for data.
    pub(super) fn own_completion(&self, violation: Violation) -> Completion {
        let (status, sense) = match violation.reaction() {
            Reaction::FailTask(sense) => (CHECK_CONDITION, sense.to_fixed().to_vec()),
            Reaction::RefuseTask(status) => (status, Vec::new()),
            _ => unreachable!("only violations of a task end a task"),
        };
        Completion { status, sense, data_in: None, presented: 0, fence: false }
    }
}

/// True for a status that may travel with the last data (RFC 7143 §11.7.3).
pub(in crate::target_role) const fn collapses(status: u8) -> bool {
    matches!(status, GOOD | CONDITION_MET)
}

/// RFC 7143 §11.4.5.2: what the SCSI layer presents against what the initiator expects.
fn residual(expected: u32, presented: u64) -> Residual {
    let wide = u64::from(expected);
    if presented > wide {
        Residual::Overflow(u32::try_from(presented - wide).unwrap_or(u32::MAX))
    } else if presented < wide {
        Residual::Underflow(u32::try_from(wide - presented).unwrap_or(u32::MAX))
    } else {
        Residual::None
    }
}

/// SenseLength and sense data (RFC 7143 §11.4.7.1); nothing without sense.
pub(in crate::target_role) fn sense_segment(sense: &[u8]) -> Vec<u8> {
    if sense.is_empty() {
        return Vec::new();
    }
    let sense = sense.get(..SENSE_MAX).unwrap_or(sense);
    let length = u16::try_from(sense.len()).unwrap_or(0);
    let mut segment = Vec::with_capacity(2 + sense.len());
    segment.extend_from_slice(&length.to_be_bytes());
    segment.extend_from_slice(sense);
    segment
}

/// Longest sense data, bytes (SPC-4 §4.5.2.1).
const SENSE_MAX: usize = 252;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residual_table() {
        assert_eq!(residual(4096, 4096), Residual::None);
        assert_eq!(residual(2048, 4096), Residual::Overflow(2048));
        assert_eq!(residual(8192, 4096), Residual::Underflow(4096));
        assert_eq!(residual(36, 36), Residual::None);
        assert_eq!(residual(255, 96), Residual::Underflow(159));
        assert_eq!(residual(512, 0), Residual::Underflow(512));
        assert_eq!(residual(0, u64::MAX), Residual::Overflow(u32::MAX));
    }
}
