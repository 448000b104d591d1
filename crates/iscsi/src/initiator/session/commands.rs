// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI commands from the window to their end. Read first: RFC 7143 §4.2.2.1 (the command window),
//! §4.2.5.2 (unsolicited data), §11.3, §11.4.

pub(super) use wire::scsi::sam::CHECK_CONDITION;

use clock::Instant;
use wire::iscsi::CmdSn;
use wire::iscsi::Residual;
use wire::iscsi::ScsiCommand;

use super::Completion;
use super::Ending;
use super::Indication;
use super::Outcome;
use super::Session;
use super::SessionError;
use super::State;
use crate::initiator::ConnectionId;
use crate::initiator::datamover::Ended;
use crate::initiator::datamover::Keys;
use crate::initiator::datamover::Op;
use crate::initiator::datamover::TaskId;
use crate::initiator::datamover::itt;
use crate::serial::Serial;

impl Session {
    /// Sends what the window takes, in order (RFC 7143 §4.2.2.1).
    pub(super) fn send_waiting(&mut self, now: Instant) {
        while self.state == State::Active
            && !self.cmd_sn.is_after(self.max_cmd_sn)
            && !self.waiting.is_empty()
            && self.tasks.sent() < self.commands_max
            && self.retries.allow(self.cmd_sn)
        {
            let at = self.retries.wants().or_else(|| self.connections.choose());
            let Some(at) = at else { return };
            let Some(id) = self.waiting.pop_front() else { return };
            let number = self.cmd_sn;
            self.cmd_sn = number.plus(1);
            if self.tasks.sent() == 0 {
                self.looked = now;
            }
            let Some(task) = self.tasks.mark_sent(id, number, at, now) else { return };
            self.connections.shift_load(None, Some(at), &task.command);
            self.retries.sent(at, number);
            self.send(id, number, at);
        }
    }

    /// Sends a command, for the first time or again under its number.
    pub(super) fn send(&mut self, id: TaskId, number: CmdSn, at: ConnectionId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.resegment = false;
        let command = task.command;
        let (immediate, end) = self.unsolicited_split(command.data_out, at);
        let unsolicited_end = if self.has_credit(end - immediate, at) { end } else { immediate };
        let command = ScsiCommand {
            immediate: false,
            final_: unsolicited_end == immediate,
            read: command.data_in > 0,
            write: command.data_out > 0,
            attribute: command.attribute,
            priority: 0,
            lun: command.lun,
            itt: itt(id),
            expected_length: command.data_out.max(command.data_in),
            cmd_sn: number,
            exp_stat_sn: self.exp_stat_sn_at(at),
            cdb: command.cdb,
            bidi_read_length: None,
        };
        self.op(at, Op::SendCommand { task: id, command, immediate, unsolicited_end });
    }

    /// How much of `length` bytes goes as immediate data, and where unsolicited data ends (RFC 7143
    /// §13.10, §13.11, §4.2.5.2).
    fn unsolicited_split(&self, length: u32, at: ConnectionId) -> (u32, u32) {
        let agreed = &self.login.parameters;
        let first = length.min(agreed.first_burst_length);
        let connection = self.connections.get(at);
        let segment = connection.map_or(0, |at| at.keys.max_send_data_segment_length);
        let immediate = if agreed.immediate_data { first.min(segment) } else { 0 };
        (immediate, if agreed.initial_r2t { immediate } else { first })
    }

    /// Whether the target takes so much data in PDUs that it does not expect (RFC 7145 §8.1.1): one
    /// of them stays free, since it may say nothing before it has all of a burst.
    fn has_credit(&self, length: u32, at: ConnectionId) -> bool {
        let Some(connection) = self.connections.get(at) else { return true };
        let Keys { unexpected_max, max_send_data_segment_length: segment, .. } = connection.keys;
        unexpected_max == 0 || length.div_ceil(segment.max(1)) < unexpected_max
    }

    pub(super) fn ended(
        &mut self,
        at: ConnectionId,
        ended: &Ended,
        data: &[u8],
    ) -> Result<(), SessionError> {
        let response = &ended.response;
        self.move_window(response.numbers);
        if !self.count_status(at, response.numbers.stat_sn)? {
            return Ok(());
        }
        let Some(task) = self.tasks.get(ended.task) else { return Ok(()) };
        let (expected, aborting) = (task.command.data_in, task.aborting);
        let damaged = ended.damaged || task.given_up;
        let sense = sense_of(data);
        if response.response == 0 && response.status == CHECK_CONDITION && data.is_empty() {
            return Err(SessionError::NoSense);
        }
        let outcome = if response.response != 0 {
            Outcome::Failed(Ending::TargetFailure(response.response))
        } else if damaged {
            Outcome::Failed(Ending::Damaged)
        } else {
            let unused = match response.residual {
                Residual::Underflow(unused) if expected > 0 => unused.min(expected),
                _ => 0,
            };
            Outcome::Done(Completion {
                status: response.status,
                sense: sense.unwrap_or_default().to_vec(),
                received: ended.received.min(expected - unused),
                residual: response.residual,
            })
        };
        if aborting {
            self.controls.concluded(ended.task);
        }
        self.end_task(ended.task, outcome);
        Ok(())
    }

    pub(super) fn end_task(&mut self, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.remove(id) else { return };
        if task.sent.is_none() {
            self.waiting.retain(|waiting| *waiting != id);
        } else {
            self.connections.shift_load(Some(task.connection), None, &task.command);
        }
        self.op(task.connection, Op::Release { task: id });
        self.indicate(Indication::Ended { task: id, outcome });
    }
}

/// Sense data of a response: behind its length (RFC 7143 §11.4.7).
pub(super) fn sense_of(data: &[u8]) -> Option<&[u8]> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    rest.get(..length).filter(|sense| !sense.is_empty())
}
