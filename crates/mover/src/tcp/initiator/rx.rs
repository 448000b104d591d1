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
//! Any split of the stream gives the same events. `ending`: what a PDU means that is whole.

mod ending;

use alloc::vec::Vec;

use buf::Buf;
use crc::Crc32c;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::CmdSn;
use wire::iscsi::DataIn;
use wire::iscsi::Itt;
use wire::iscsi::Numbers;
use wire::iscsi::Response;
use wire::iscsi::StatSn;
use wire::iscsi::pad4;

use super::super::DIGEST_LEN;
use super::super::marker::Digests;
use super::super::marker::Next;
use super::super::marker::Stripper;
use super::super::marker::pdu_len;
use super::super::rx::Gather;
use super::super::rx::LENGTHS_END;
use super::super::rx::take_up_to;
use super::super::segment::deposit;
use super::super::segment::update;
use super::Touched;
use super::task::Place;
use super::task::Tasks;
use super::tx::Burst;
use super::tx::Tx;
use crate::limits::CONTROL_KEEP;
use crate::limits::LANDING_MIN;

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Rx {
    keys: Keys,
    violation: Option<Violation>,
    /// Some where the stream has markers.
    markers: Option<Stripper>,
    /// There are markers, or there was a violation: the one question that each call asks.
    is_special: bool,
    /// Bytes of the stream that were taken.
    position: u64,
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
    touched: Touched,
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
    /// Into the buffer of the task, from `at` on; `odd`: the task has books, or gets some.
    Data { task: TaskId, pdu: DataIn, at: usize, odd: bool },
    /// Nowhere: it came before, or belongs to a task that has ended.
    Nowhere(Response),
}

impl Default for Rx {
    fn default() -> Self {
        Self {
            keys: Keys::LOGIN,
            violation: None,
            markers: None,
            is_special: false,
            position: 0,
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
            touched: Touched::default(),
        }
    }
}

impl Rx {
    pub(super) fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
        if let Some(interval) = keys.markers.receive
            && self.markers.is_none()
        {
            self.markers = Some(Stripper::new(interval, self.position));
            self.is_special = true;
        }
    }

    pub(super) const fn touched(&self) -> Touched {
        self.touched
    }

    pub(super) fn control_data(&self) -> &[u8] {
        &self.control
    }

    /// Whether a Data-In of the task is under way: counted, but not here.
    pub(super) fn is_receiving(&self, task: TaskId) -> bool {
        matches!(self.phase, Phase::Data | Phase::Padding | Phase::DataDigest)
            && matches!(self.sink, Sink::Data { task: of, .. } if of == task)
    }

    /// See `Tcp::feed`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        tasks: &mut Tasks,
        tx: &mut Tx,
    ) -> (usize, Option<Event>) {
        let mut rest = bytes;
        let event = match self.is_special {
            true => self.advance_marked(&mut rest, tasks, tx),
            false => self.advance(&mut rest, tasks, tx),
        };
        let taken = bytes.len() - rest.len();
        self.position += taken as u64;
        (taken, event)
    }

    /// See `Tcp::landing`.
    pub(super) fn landing(&mut self, tasks: &mut Tasks) -> Option<(Buf, usize, usize)> {
        let left = self.data_left;
        if self.phase != Phase::Data || left < LANDING_MIN || self.is_special || self.keys.recovery
        {
            return None;
        }
        let Sink::Data { task, at, .. } = self.sink else { return None };
        let end = at.checked_add(left)?;
        let buf = tasks.get_mut(task)?.read.take_if(|buf| end <= buf.len())?;
        Some((buf, at, end))
    }

    /// See `Tcp::landed`.
    pub(super) fn landed(&mut self, buf: Buf, bytes: usize, tasks: &mut Tasks) -> Option<Event> {
        debug_assert!(bytes <= self.data_left, "no more than was asked for");
        let Sink::Data { task, at, .. } = &mut self.sink else { return None };
        update(&mut self.crc, buf.get(*at..*at + bytes).unwrap_or_default());
        *at += bytes;
        if let Some(task) = tasks.get_mut(*task) {
            task.read.get_or_insert(buf);
        }
        if self.crc.is_some() {
            self.touched.digested += bytes as u64;
        }
        self.position += bytes as u64;
        self.data_left = self.data_left.saturating_sub(bytes);
        if self.data_left > 0 {
            return None;
        }
        self.phase = Phase::Padding;
        self.after_padding(tasks).unwrap_or_else(|violation| Some(self.violate(violation)))
    }

    /// Takes bytes up to an event, or all of them.
    fn advance(&mut self, rest: &mut &[u8], tasks: &mut Tasks, tx: &mut Tx) -> Option<Event> {
        while !rest.is_empty() {
            match self.step(rest, tasks, tx) {
                Ok(None) => {}
                Ok(Some(event)) => return Some(event),
                Err(violation) => {
                    *rest = &[];
                    return Some(self.violate(violation));
                }
            }
        }
        None
    }

    /// As `advance`, in a stream that is over, or that has markers: takes these out, checks them,
    /// and feeds what is between them.
    fn advance_marked(
        &mut self,
        rest: &mut &[u8],
        tasks: &mut Tasks,
        tx: &mut Tx,
    ) -> Option<Event> {
        if let Some(violation) = self.violation {
            *rest = &[];
            return Some(Event::Violation(violation));
        }
        while !rest.is_empty() {
            match self.markers.as_mut()?.next(rest) {
                Next::Starved => return None,
                Next::Marker(marker) => {
                    let pointer = marker.pointer().map(|pointer| pointer as usize);
                    if pointer.is_none() || self.left_of_pdu().is_some_and(|at| pointer != Some(at))
                    {
                        *rest = &[];
                        return Some(self.violate(Violation::Marker));
                    }
                }
                Next::Payload(until) => {
                    let mut part = rest.get(..until).unwrap_or(rest);
                    let length = part.len();
                    let event = self.advance(&mut part, tasks, tx);
                    let taken = length - part.len();
                    *rest = rest.get(taken..).unwrap_or_default();
                    self.markers.as_mut()?.pass(taken);
                    if event.is_some() {
                        return event;
                    }
                }
            }
        }
        None
    }

    fn violate(&mut self, violation: Violation) -> Event {
        self.violation = Some(violation);
        self.is_special = true;
        Event::Violation(violation)
    }

    /// Bytes of the PDU under way that have not come: what a marker points over. None while its
    /// lengths have not come.
    pub(super) fn left_of_pdu(&self) -> Option<usize> {
        let digests = Digests { header: self.keys.header_digest, data: self.keys.data_digest };
        let whole = pdu_len(&self.header, digests);
        let header_digest = if digests.header { DIGEST_LEN } else { 0 };
        let data_digest = if self.crc.is_some() { DIGEST_LEN } else { 0 };
        match self.phase {
            // The last PDU is whole, or none has begun.
            Phase::Header if matches!(self.have, 0 | BHS_LEN) => Some(0),
            Phase::Header if self.have < LENGTHS_END => None,
            Phase::Header => Some(whole.saturating_sub(self.have)),
            Phase::HeaderDigest => {
                let after = whole.saturating_sub(BHS_LEN + header_digest);
                Some(DIGEST_LEN - self.digest.have + after)
            }
            Phase::Data => Some(self.data_left + self.padding_left + data_digest),
            Phase::Padding => Some(self.padding_left + data_digest),
            Phase::DataDigest => Some(DIGEST_LEN - self.digest.have),
        }
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
                    return self.damage(tasks);
                }
                self.end(tasks)
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
        self.end(tasks)
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
        self.sink = self.sink_of(response, length, tasks, tx)?;
        self.data_left = length as usize;
        self.padding_left = pad4(self.data_left) - self.data_left;
        self.crc = (self.keys.data_digest && length > 0).then(Crc32c::new);
        if length == 0 {
            return self.end(tasks);
        }
        self.phase = Phase::Data;
        Ok(None)
    }

    fn sink_of(
        &self,
        response: Response,
        length: u32,
        tasks: &mut Tasks,
        tx: &mut Tx,
    ) -> Result<Sink, Violation> {
        let tag = match &response {
            Response::DataIn(pdu) => pdu.itt,
            Response::R2t(pdu) => pdu.itt,
            Response::Scsi(pdu) => pdu.itt,
            _ => return Ok(Sink::Control(response)),
        };
        let (task, books) = match tasks.find(tag) {
            Ok(found) => found,
            Err(_) if self.keys.strays => return Ok(Sink::Nowhere(response)),
            Err(unknown) => return Err(unknown),
        };
        match response {
            Response::DataIn(pdu) => match books.admit(&pdu, length, &self.keys)? {
                Place::At(at) => {
                    let odd = books.books.is_some() || pdu.acknowledge && self.keys.recovery;
                    Ok(Sink::Data { task, pdu, at: at as usize, odd })
                }
                Place::Nowhere => Ok(Sink::Nowhere(response)),
            },
            Response::R2t(pdu) => {
                if books.ask(&pdu, &self.keys)? {
                    tx.burst(Burst::solicited(task, &pdu));
                }
                Ok(Sink::Control(response))
            }
            _ => Ok(Sink::Control(response)),
        }
    }

    fn place(&mut self, part: &[u8], tasks: &mut Tasks) {
        if self.crc.is_some() {
            self.touched.digested += part.len() as u64;
        }
        match &mut self.sink {
            Sink::Control(_) => {
                self.control.extend_from_slice(part);
                update(&mut self.crc, part);
            }
            Sink::Data { task, at, .. } => {
                let buf = tasks.get_mut(*task).and_then(|task| task.read.as_mut());
                let place = buf.and_then(|buf| buf.get_mut(*at..*at + part.len()));
                *at += part.len();
                self.touched.copied += deposit(&mut self.crc, place, part) as u64;
            }
            Sink::Nowhere(_) => update(&mut self.crc, part),
        }
    }
}

/// Before the first PDU.
const NOTHING: Sink = Sink::Control(Response::NopIn(wire::iscsi::NopIn {
    lun: wire::iscsi::LunField([0; 8]),
    itt: Itt::NONE,
    ttt: wire::iscsi::Ttt::NONE,
    numbers: Numbers { stat_sn: StatSn(0), exp_cmd_sn: CmdSn(0), max_cmd_sn: CmdSn(0) },
}));
