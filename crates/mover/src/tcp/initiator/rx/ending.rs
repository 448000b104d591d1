// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a PDU means once its last byte is there: the end of a task, something missing, news of the
//! command window.
//!
//! Read first: RFC 7143 §7.8, §7.9 (what is lost), §11.4.8 (ExpDataSN), §11.16 (SNACK).

use alloc::vec::Vec;

use iscsi::initiator::datamover::Ended;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use wire::iscsi::DataIn;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::Numbers;
use wire::iscsi::R2t;
use wire::iscsi::Residual;
use wire::iscsi::Response;
use wire::iscsi::ScsiResponse;
use wire::iscsi::StatSn;

use super::InitiatorRole;
use super::Sink;
use crate::tcp::initiator::task::Tasks;

impl InitiatorRole {
    /// The data digest is wrong, of a segment of `length` bytes. Above ErrorRecoveryLevel 0 what is
    /// lost comes again. At level 0 data may be left out, as the command still ends; but a status
    /// or a control PDU that is lost leaves a gap that nothing fills (RFC 7143 §7.8).
    pub(super) fn damage(
        &mut self,
        length: u32,
        tasks: &mut Tasks,
    ) -> Result<Option<Event>, Violation> {
        match self.sink {
            Sink::Data { task, pdu, .. } if self.keys.recovery => {
                let Some(entry) = tasks.get_mut(task) else { return Ok(None) };
                entry.retract(&pdu, length)?;
                let has_status = pdu.status.is_some();
                let lost = entry.reassembly().take_found();
                Ok(Some(Event::Incomplete { task, lost, has_status, numbers: pdu.numbers }))
            }
            Sink::Data { pdu, task, .. } if pdu.status.is_none() => {
                if let Some(task) = tasks.get_mut(task) {
                    task.damaged = true;
                }
                Ok(self.window(pdu.numbers))
            }
            Sink::Control(response) | Sink::Nowhere(response) if self.keys.recovery => {
                Ok(stat_sn(&response).map(Event::StatusLost))
            }
            _ => Err(Violation::DataDigest),
        }
    }

    /// The PDU is whole: what it means to the core. `control`: its control data, which becomes that
    /// of the event.
    pub(super) fn complete(
        &mut self,
        control: &mut Vec<u8>,
        tasks: &mut Tasks,
    ) -> Result<Option<Event>, Violation> {
        match self.sink {
            Sink::Data { task, pdu, odd: true, .. } => {
                Ok(self.end_odd(task, &pdu, control, tasks)?)
            }
            Sink::Data { task, pdu, .. } => match response_of(&pdu) {
                None => Ok(self.window(pdu.numbers)),
                Some(mut response) => {
                    self.max_cmd_sn = pdu.numbers.max_cmd_sn;
                    let Some(entry) = tasks.get_mut(task) else { return Ok(None) };
                    response.exp_data_sn = DataSn(entry.next_sn);
                    let (received, damaged) = (entry.received, entry.damaged);
                    Ok(Some(Event::Ended(Ended { task, response, received, damaged })))
                }
            },
            Sink::Control(Response::R2t(pdu)) => self.end_r2t(&pdu, control, tasks),
            Sink::Control(Response::Scsi(response)) => self.end_status(response, control, tasks),
            Sink::Control(response) => Ok(Some(Event::Control { response })),
            Sink::Nowhere(Response::Scsi(pdu)) => Ok(Some(Event::Stray(pdu.numbers))),
            Sink::Nowhere(Response::DataIn(pdu)) if pdu.status.is_some() => {
                let numbers = pdu.numbers;
                Ok(Some(match tasks.find(pdu.itt) {
                    // Its data is yet to come, or another status after its data.
                    Ok((task, _)) => held(task, numbers),
                    Err(_) => Event::Stray(numbers),
                }))
            }
            Sink::Nowhere(Response::DataIn(DataIn { numbers, .. }))
            | Sink::Nowhere(Response::R2t(R2t { numbers, .. })) => Ok(self.window(numbers)),
            Sink::Nowhere(_) => Ok(None),
        }
    }

    fn end_r2t(
        &mut self,
        pdu: &R2t,
        control: &mut Vec<u8>,
        tasks: &mut Tasks,
    ) -> Result<Option<Event>, Violation> {
        let Ok((task, entry)) = tasks.find(pdu.itt) else { return Ok(None) };
        if entry.reassembly.is_none() {
            return Ok(self.window(pdu.numbers));
        }
        self.settle(task, pdu.numbers, control, tasks)
    }

    /// A SCSI Response: ends its task, unless something before it is missing.
    fn end_status(
        &mut self,
        response: ScsiResponse,
        control: &mut Vec<u8>,
        tasks: &mut Tasks,
    ) -> Result<Option<Event>, Violation> {
        self.max_cmd_sn = response.numbers.max_cmd_sn;
        let Ok((task, entry)) = tasks.find(response.itt) else { return Ok(None) };
        if entry.is_outdated(&response) {
            return Ok(Some(held(task, response.numbers)));
        }
        if entry.takes_data() {
            entry.close_count(&response, &self.keys)?;
        } else {
            // A target that has a status does not wait for the answer to an R2T.
            entry.reassembly = None;
        }
        if entry.reassembly.is_some() && response.response == 0 {
            entry.reassembly().held = Some((response, control.clone()));
            return self.settle(task, response.numbers, control, tasks);
        }
        let (received, damaged) = (entry.received, entry.damaged);
        Ok(Some(Event::Ended(Ended { task, response, received, damaged })))
    }

    /// A Data-In of a task whose PDUs did not come in order, or that asks for an acknowledgement.
    fn end_odd(
        &mut self,
        task: TaskId,
        pdu: &DataIn,
        control: &mut Vec<u8>,
        tasks: &mut Tasks,
    ) -> Result<Option<Event>, Violation> {
        let Some(entry) = tasks.get_mut(task) else { return Ok(None) };
        match response_of(pdu) {
            // Data that was asked for anew ends with a status of its own.
            Some(_) if entry.reassembly().again.is_some() => {
                let lost = entry.reassembly().take_found();
                let numbers = pdu.numbers;
                return Ok(Some(Event::Incomplete { task, lost, has_status: true, numbers }));
            }
            Some(response) => entry.reassembly().held = Some((response, Vec::new())),
            None if pdu.acknowledge && self.keys.recovery => {
                entry.reassembly().acknowledge = Some((pdu.lun, pdu.ttt));
            }
            None => {}
        }
        self.settle(task, pdu.numbers, control, tasks)
    }

    /// What is missing of a task after a PDU of it.
    fn settle(
        &mut self,
        task: TaskId,
        numbers: Numbers,
        control: &mut Vec<u8>,
        tasks: &mut Tasks,
    ) -> Result<Option<Event>, Violation> {
        let Some(entry) = tasks.get_mut(task) else { return Ok(None) };
        let (next, received) = (entry.next_sn, entry.received);
        let reassembly = entry.reassembly();
        let lost = reassembly.take_found();
        let is_status = |held: &(ScsiResponse, Vec<u8>)| held.0.numbers == numbers;
        let has_status = reassembly.held.as_ref().is_some_and(is_status);
        if lost.is_some() || reassembly.is_missing() && has_status {
            return Ok(Some(Event::Incomplete { task, lost, has_status, numbers }));
        }
        if reassembly.is_missing() {
            return Ok(self.window(numbers));
        }
        if let Some((mut response, sense)) = reassembly.held.take() {
            if reassembly.has_gap() {
                return Err(Violation::Offset { offset: next, expected: received });
            }
            self.max_cmd_sn = numbers.max_cmd_sn;
            *control = sense;
            response.exp_data_sn = DataSn(next);
            let damaged = entry.damaged;
            return Ok(Some(Event::Ended(Ended { task, response, received, damaged })));
        }
        let event = match reassembly.acknowledge.take() {
            Some((lun, ttt)) => {
                entry.confirm();
                let next = DataSn(next);
                Some(Event::Acknowledge { task, lun, ttt, next, numbers })
            }
            None => self.window(numbers),
        };
        entry.close_reassembly();
        Ok(event)
    }

    /// Told only where it changes, so that most data PDUs need no event.
    fn window(&mut self, numbers: Numbers) -> Option<Event> {
        if numbers.max_cmd_sn == self.max_cmd_sn {
            return None;
        }
        self.max_cmd_sn = numbers.max_cmd_sn;
        Some(Event::Window(numbers))
    }
}

/// A status that came and does not end its task.
const fn held(task: TaskId, numbers: Numbers) -> Event {
    Event::Incomplete { task, lost: None, has_status: true, numbers }
}

/// The status in a Data-In as a SCSI Response would say it.
fn response_of(pdu: &DataIn) -> Option<ScsiResponse> {
    let status = pdu.status?;
    Some(ScsiResponse {
        response: 0,
        status: status.status,
        status_qualifier: 0,
        itt: pdu.itt,
        snack_tag: 0,
        numbers: pdu.numbers,
        exp_data_sn: DataSn(0),
        bidi_read_residual: Residual::None,
        residual: status.residual,
    })
}

/// The StatSN that a PDU takes; None of one that takes none (RFC 7143 §4.2.2.2).
fn stat_sn(response: &Response) -> Option<StatSn> {
    let numbers = match response {
        Response::NopIn(pdu) if pdu.itt == Itt::NONE => return None,
        Response::DataIn(pdu) if pdu.status.is_none() => return None,
        Response::R2t(_) => return None,
        Response::NopIn(pdu) => pdu.numbers,
        Response::Scsi(pdu) => pdu.numbers,
        Response::TaskManagement(pdu) => pdu.numbers,
        Response::Login(pdu) => pdu.numbers,
        Response::Text(pdu) => pdu.numbers,
        Response::DataIn(pdu) => pdu.numbers,
        Response::Logout(pdu) => pdu.numbers,
        Response::Async(pdu) => pdu.numbers,
        Response::Reject(pdu) => pdu.numbers,
    };
    Some(numbers.stat_sn)
}
