// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes to events: framing, digests, and Data-In into the buffers of its commands.
//!
//! Read first: RFC 7143 §11.2 (segments and digests), §7.7 to §7.9 (errors), §11.7 (Data-In), §11.8
//! (R2T).
//!
//! ```text
//!   Header --> HeaderDigest --> Data --> Padding --> DataDigest --> [event] --> Header
//!     |   (only if negotiated)  (only if there is data)
//!     +--> violated: for ever
//! ```
//!
//! Any split of the stream gives the same events.

use alloc::vec::Vec;

use crc::Crc32c;
use iscsi::initiator::datamover::Ended;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::CmdSn;
use wire::iscsi::DataIn;
use wire::iscsi::DataSn;
use wire::iscsi::Numbers;
use wire::iscsi::Residual;
use wire::iscsi::Response;
use wire::iscsi::ScsiResponse;
use wire::iscsi::pad4;

use super::super::rx::Gather;
use super::super::rx::take_up_to;
use super::super::segment::deposit;
use super::super::segment::update;
use super::task::Tasks;
use super::tx::Burst;
use super::tx::Tx;
use crate::limits::CONTROL_KEEP;

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Rx {
    keys: Keys,
    violation: Option<Violation>,
    phase: Phase,
    header: [u8; BHS_LEN],
    have: usize,
    digest: Gather,
    control: Vec<u8>,
    data_left: usize,
    padding_left: usize,
    /// Some if a data digest follows.
    crc: Option<Crc32c>,
    sink: Sink,
    /// Of the last PDU that told it.
    max_cmd_sn: CmdSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    HeaderDigest,
    Data,
    Padding,
    DataDigest,
}

/// Where data goes and what is told at the end.
#[derive(Clone, Copy, Debug)]
enum Sink {
    /// Into `control`.
    Control(Response),
    /// Into the buffer of the task, from `at` on.
    Data { task: TaskId, pdu: DataIn, at: usize },
}

impl Default for Rx {
    fn default() -> Self {
        Self {
            keys: Keys::LOGIN,
            violation: None,
            phase: Phase::Header,
            header: [0; BHS_LEN],
            have: 0,
            digest: Gather::default(),
            control: Vec::new(),
            data_left: 0,
            padding_left: 0,
            crc: None,
            sink: NOTHING,
            max_cmd_sn: CmdSn(0),
        }
    }
}

impl Rx {
    pub(super) const fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    pub(super) fn control_data(&self) -> &[u8] {
        &self.control
    }

    /// See `Tcp::feed`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        tasks: &mut Tasks,
        tx: &mut Tx,
    ) -> (usize, Option<Event>) {
        if let Some(violation) = self.violation {
            return (bytes.len(), Some(Event::Violation(violation)));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.step(&mut rest, tasks, tx) {
                Ok(None) => {}
                Ok(Some(event)) => return (bytes.len() - rest.len(), Some(event)),
                Err(violation) => {
                    self.violation = Some(violation);
                    return (bytes.len(), Some(Event::Violation(violation)));
                }
            }
        }
        (bytes.len(), None)
    }

    fn step(
        &mut self,
        rest: &mut &[u8],
        tasks: &mut Tasks,
        tx: &mut Tx,
    ) -> Result<Option<Event>, Violation> {
        match self.phase {
            Phase::Header => {
                if !self.take_header(rest) {
                    return Ok(None);
                }
                if self.keys.header_digest {
                    self.digest = Gather::default();
                    self.phase = Phase::HeaderDigest;
                    return Ok(None);
                }
                self.begin(tasks, tx)
            }
            Phase::HeaderDigest => {
                if !self.digest.take(rest) {
                    return Ok(None);
                }
                if self.digest.value() != crc::crc32c(&self.header) {
                    return Err(Violation::HeaderDigest);
                }
                self.begin(tasks, tx)
            }
            Phase::Data => {
                let part = take_up_to(rest, self.data_left);
                self.data_left -= part.len();
                self.place(part, tasks);
                if self.data_left > 0 {
                    return Ok(None);
                }
                self.phase = Phase::Padding;
                self.after_padding(tasks)
            }
            Phase::Padding => {
                let part = take_up_to(rest, self.padding_left);
                self.padding_left -= part.len();
                update(&mut self.crc, part);
                self.after_padding(tasks)
            }
            Phase::DataDigest => {
                if !self.digest.take(rest) {
                    return Ok(None);
                }
                let computed = self.crc.take().map(Crc32c::finish);
                if computed != Some(self.digest.value()) {
                    self.damage(tasks)?;
                }
                Ok(self.end(tasks))
            }
        }
    }

    /// True once the header is whole.
    fn take_header(&mut self, rest: &mut &[u8]) -> bool {
        if self.have == BHS_LEN {
            self.have = 0;
            self.control.clear();
            self.control.shrink_to(CONTROL_KEEP);
        }
        let part = take_up_to(rest, BHS_LEN - self.have);
        if let Some(place) = self.header.get_mut(self.have..self.have + part.len()) {
            place.copy_from_slice(part);
        }
        self.have += part.len();
        self.have == BHS_LEN
    }

    /// All data has come; goes on once the padding has, too.
    fn after_padding(&mut self, tasks: &mut Tasks) -> Result<Option<Event>, Violation> {
        if self.padding_left > 0 {
            return Ok(None);
        }
        if self.crc.is_some() {
            self.digest = Gather::default();
            self.phase = Phase::DataDigest;
            return Ok(None);
        }
        Ok(self.end(tasks))
    }

    /// The header is whole and verified: decides where the data goes, before any memory is taken
    /// for it.
    fn begin(&mut self, tasks: &mut Tasks, tx: &mut Tx) -> Result<Option<Event>, Violation> {
        let Ok(bhs) = BhsView::new_checked(&self.header) else { return Ok(None) };
        let (length, limit) = (bhs.data_segment_length(), self.keys.max_recv_data_segment_length);
        if length > limit {
            return Err(Violation::SegmentTooLong { length, limit });
        }
        let malformed = Violation::Malformed { opcode: bhs.opcode() };
        let response = Response::parse(&self.header).map_err(|_| malformed)?;
        self.sink = match response {
            Response::DataIn(pdu) => {
                let (task, books) = tasks.find(pdu.itt)?;
                let at = books.admit(&pdu, length)? as usize;
                Sink::Data { task, pdu, at }
            }
            Response::R2t(pdu) => {
                let (task, books) = tasks.find(pdu.itt)?;
                books.ask(&pdu, &self.keys)?;
                tx.burst(Burst::solicited(task, &pdu));
                Sink::Control(response)
            }
            Response::Scsi(pdu) => {
                tasks.find(pdu.itt)?;
                Sink::Control(response)
            }
            _ => Sink::Control(response),
        };
        self.data_left = length as usize;
        self.padding_left = pad4(self.data_left) - self.data_left;
        self.crc = (self.keys.data_digest && length > 0).then(Crc32c::new);
        if length == 0 {
            return self.end_checked(tasks);
        }
        self.phase = Phase::Data;
        Ok(None)
    }

    fn place(&mut self, part: &[u8], tasks: &mut Tasks) {
        match &mut self.sink {
            Sink::Control(_) => {
                self.control.extend_from_slice(part);
                update(&mut self.crc, part);
            }
            Sink::Data { task, at, .. } => {
                let buf = tasks.get_mut(*task).and_then(|task| task.read.as_mut());
                let place = buf.and_then(|buf| buf.get_mut(*at..*at + part.len()));
                *at += part.len();
                deposit(&mut self.crc, place, part);
            }
        }
    }

    /// The data digest is wrong. Data may be left out, as the command still ends; but a status or a
    /// control PDU that is lost leaves a gap that nothing fills at ErrorRecoveryLevel 0 (RFC 7143
    /// §7.8).
    fn damage(&self, tasks: &mut Tasks) -> Result<(), Violation> {
        let Sink::Data { task, pdu, .. } = &self.sink else { return Err(Violation::DataDigest) };
        if pdu.status.is_some() {
            return Err(Violation::DataDigest);
        }
        if let Some(task) = tasks.get_mut(*task) {
            task.damaged = true;
        }
        Ok(())
    }

    /// As `end`, for a PDU without data, whose books may be wrong.
    fn end_checked(&mut self, tasks: &mut Tasks) -> Result<Option<Event>, Violation> {
        self.check_books(tasks)?;
        Ok(self.end(tasks))
    }

    /// A status that counts more Data-In and R2Ts than came: some were lost (RFC 7143 §7.9).
    fn check_books(&self, tasks: &mut Tasks) -> Result<(), Violation> {
        let Sink::Control(Response::Scsi(pdu)) = &self.sink else { return Ok(()) };
        let (_, books) = tasks.find(pdu.itt)?;
        if pdu.response == 0 && pdu.exp_data_sn.0 > books.next_sn {
            return Err(Violation::Sequence { got: pdu.exp_data_sn.0, expected: books.next_sn });
        }
        Ok(())
    }

    /// The PDU is whole: what it means to the core.
    fn end(&mut self, tasks: &mut Tasks) -> Option<Event> {
        self.phase = Phase::Header;
        match self.sink {
            Sink::Data { task, pdu, .. } => match pdu.status {
                None => self.window(pdu.numbers),
                Some(status) => {
                    self.max_cmd_sn = pdu.numbers.max_cmd_sn;
                    let books = tasks.get_mut(task)?;
                    let response = ScsiResponse {
                        response: 0,
                        status: status.status,
                        status_qualifier: 0,
                        itt: pdu.itt,
                        snack_tag: 0,
                        numbers: pdu.numbers,
                        exp_data_sn: DataSn(books.next_sn),
                        bidi_read_residual: Residual::None,
                        residual: status.residual,
                    };
                    let (received, damaged) = (books.received, books.damaged);
                    Some(Event::Ended(Ended { task, response, received, damaged }))
                }
            },
            Sink::Control(Response::R2t(pdu)) => self.window(pdu.numbers),
            Sink::Control(Response::Scsi(response)) => {
                self.max_cmd_sn = response.numbers.max_cmd_sn;
                if let Err(violation) = self.check_books(tasks) {
                    self.violation = Some(violation);
                    return Some(Event::Violation(violation));
                }
                let (task, books) = tasks.find(response.itt).ok()?;
                let (received, damaged) = (books.received, books.damaged);
                Some(Event::Ended(Ended { task, response, received, damaged }))
            }
            Sink::Control(response) => Some(Event::Control { response }),
        }
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

/// Before the first PDU.
const NOTHING: Sink = Sink::Control(Response::NopIn(wire::iscsi::NopIn {
    lun: wire::iscsi::LunField([0; 8]),
    itt: wire::iscsi::Itt::NONE,
    ttt: wire::iscsi::Ttt::NONE,
    numbers: Numbers {
        stat_sn: wire::iscsi::StatSn(0),
        exp_cmd_sn: CmdSn(0),
        max_cmd_sn: CmdSn(0),
    },
}));
