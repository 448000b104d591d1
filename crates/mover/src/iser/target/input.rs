// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes to the target.

use core::ops::Range;

use buf::Buf;
use buf::Pool;
use buf::Slice;
use iscsi::datamover::Event;
use iscsi::datamover::Immediate;
use iscsi::datamover::StreamViolation;
use iscsi::datamover::TaskId;
use wire::iscsi::DataOut;
use wire::iscsi::Itt;
use wire::iscsi::Request;
use wire::iscsi::ScsiCommand;
use wire::iscsi::Ttt;
use wire::iser::Advertised;
use wire::iser::ISER_LEN;
use wire::iser::ISER_VERSION;
use wire::iser::IserHeader;
use wire::iwarp::Cause;

use super::Credit;
use super::End;
use super::Held;
use super::Reading;
use super::Target;
use crate::counters::Counters;
use crate::iser::message::MESSAGE_LEN_MAX;
use crate::iser::message::Parts;
use crate::iser::message::head;
use crate::iser::message::parts;
use crate::iser::stream::Arrival;
use crate::iser::stream::Stream;
use crate::iser::unsolicited::Place;
use crate::staging::stage;

/// RFC 7143 §11.5.1.
const TASK_REASSIGN: u8 = 8;

/// Reject reason "Protocol Error" (RFC 7143 §11.17.1).
const PROTOCOL_ERROR: u8 = 0x04;

/// Reject reason "Invalid PDU field" (RFC 7143 §11.17.1).
const INVALID_PDU_FIELD: u8 = 0x09;

/// What a Terminate says of a message that iSER does not have here (RFC 7145 §10.1.3).
const FORMAT_ERROR: Cause = Cause::UNEXPECTED_OPCODE;

impl Target {
    /// Takes bytes up to the next event: how many, and that. After an [`Event::Violation`] every
    /// other call gives the same. After `Terminate` nothing else is told (RFC 5047:
    /// Connection_Terminate).
    pub fn feed(&mut self, bytes: &[u8], pool: &Pool) -> (usize, Option<Event>) {
        if let Some(violation) = self.violation {
            return (bytes.len(), Some(Event::Violation(violation)));
        }
        if let Some(command) = self.short.take().filter(|_| self.end == End::Open) {
            return (0, Some(self.try_again(command, pool)));
        }
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken..).unwrap_or_default();
            let (more, arrival) = self.stream.feed(rest, || pool.take(MESSAGE_LEN_MAX));
            taken += more;
            self.counters.bytes_in += u64::try_from(more).unwrap_or_default();
            let Some(arrival) = arrival else { return (taken, None) };
            match self.handle(arrival, rest, pool) {
                Ok(Some(event)) if self.end == End::Open => return (taken, Some(event)),
                Ok(_) => {}
                Err(violation) => {
                    self.violation = Some(violation);
                    self.settle_left();
                    return (taken, Some(Event::Violation(violation)));
                }
            }
        }
    }

    /// There is an event of what was fed: feed once more, perhaps nothing.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.violation.is_none() && (self.short.is_some() || self.stream.has_more())
    }

    /// `given`: the bytes that it came with.
    fn handle(
        &mut self,
        arrival: Arrival,
        given: &[u8],
        pool: &Pool,
    ) -> Result<Option<Event>, StreamViolation> {
        match arrival {
            // No message of an initiator ends an STag of ours.
            Arrival::Message { invalidated: Some(_) } => Err(self.breach(FORMAT_ERROR)),
            Arrival::Message { invalidated: None } => self.handle_message(given, pool),
            Arrival::Read => Ok(self.handle_read()),
            Arrival::Ended(cause) => Err(StreamViolation::Rdma(cause)),
        }
    }

    /// The peer breaks a rule of iSER: the stream ends (RFC 7145 §10.1.3).
    pub(super) fn breach(&mut self, cause: Cause) -> StreamViolation {
        self.stream.terminate(cause);
        StreamViolation::Rdma(Some(cause))
    }

    fn handle_message(
        &mut self,
        given: &[u8],
        pool: &Pool,
    ) -> Result<Option<Event>, StreamViolation> {
        if core::mem::take(&mut self.awaits_hello) {
            return self.handle_hello(given);
        }
        let message = self.stream.message(given);
        let (Ok(IserHeader::Control { write, read }), Some(parts)) =
            (IserHeader::parse(message), parts(message))
        else {
            return Err(self.breach(FORMAT_ERROR));
        };
        let Parts { header, data } = parts;
        self.header.clear();
        self.header.extend_from_slice(message.get(header).unwrap_or_default());
        self.control.clear();
        let request = Request::parse(&self.header);
        if core::mem::take(&mut self.first) && !matches!(request, Ok(Request::Login(_))) {
            return Err(StreamViolation::NotLogin);
        }
        let data = Part { given, at: data };
        let (length, limit) = (data.length(), self.keys.max_recv_data_segment_length);
        if self.stream.is_copied() {
            self.counters.bytes_copied += u64::from(length);
        }
        if length > limit {
            return Err(StreamViolation::SegmentTooLong { length, limit });
        }
        if !self.spend(request.as_ref().ok()) {
            return Err(self.breach(Cause::UNTAGGED_NO_BUFFER));
        }
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.counters.pdus_in.malformed += 1;
                return Ok(Some(Event::Rejected { reason: error.reject_reason() }));
            }
        };
        self.counters.pdus_in.count(&request);
        self.unasked.note_received(&request);
        Ok(match request {
            Request::Command(command) => {
                Some(self.handle_command(command, (write, read), &data, pool))
            }
            Request::DataOut(pdu) => self.handle_data(&pdu, &data),
            request => {
                if let Request::TaskManagement(pdu) = &request
                    && pdu.function == TASK_REASSIGN
                {
                    // What the task has from now on (RFC 7145 §7.3.3).
                    self.remote.enter(pdu.referenced_task, write, read);
                }
                self.keep(&data);
                Some(Event::Control { request, immediate: Immediate::None })
            }
        })
    }

    /// The first message of an initiator that asked for this exchange (RFC 7145 §5.1.3).
    fn handle_hello(&mut self, given: &[u8]) -> Result<Option<Event>, StreamViolation> {
        let message = self.stream.message(given);
        let header = IserHeader::parse(message).ok().filter(|_| message.len() == ISER_LEN);
        let Some(IserHeader::Hello { max_version, min_version, ird }) = header else {
            return Err(self.breach(FORMAT_ERROR));
        };
        let rejected = !(min_version..=max_version).contains(&ISER_VERSION);
        let ord = ird.min(u16::try_from(self.stream.free_reads()).unwrap_or(u16::MAX));
        self.reads_max = ord.into();
        let (max_version, version) = (ISER_VERSION, ISER_VERSION);
        let reply = IserHeader::HelloReply { rejected, max_version, version, ord };
        if let Some(head) = head(reply, &[]) {
            self.stream.send(head, Slice::empty(), None);
        }
        if rejected { Err(StreamViolation::Rdma(None)) } else { Ok(None) }
    }

    /// Whether the initiator had a right to send this now (RFC 7145 §8.1.1). Whoever stated no
    /// limit was told none.
    fn spend(&mut self, request: Option<&Request>) -> bool {
        match &mut self.credit {
            Credit::Login { answered } => core::mem::take(answered),
            Credit::Full { unexpected } => {
                let is_unexpected = match request {
                    Some(Request::Command(pdu)) => pdu.immediate,
                    Some(Request::Text(pdu)) => pdu.immediate,
                    Some(Request::Logout(pdu)) => pdu.immediate,
                    // We have asked for an echo.
                    Some(Request::NopOut(pdu)) => pdu.immediate && pdu.itt != Itt::NONE,
                    Some(Request::TaskManagement(pdu)) => pdu.immediate,
                    // FirstBurstLength bounds what comes with each command of the window.
                    Some(Request::DataOut(_)) => false,
                    Some(Request::Login(_) | Request::Snack(_)) | None => true,
                };
                *unexpected = unexpected.saturating_add(u32::from(is_unexpected));
                let most = self.keys.own_unexpected_max;
                most == 0 || *unexpected <= most
            }
        }
    }

    fn handle_command(
        &mut self,
        command: ScsiCommand,
        (write, read): (Option<Advertised>, Option<Advertised>),
        data: &Part<'_>,
        pool: &Pool,
    ) -> Event {
        let length = data.length();
        if lacks_memory(&command, (write, read), length) {
            return Event::Rejected { reason: PROTOCOL_ERROR };
        }
        self.remote.enter(command.itt, write, read);
        let request = Request::Command(command);
        if length == 0 {
            return Event::Control { request, immediate: Immediate::None };
        }
        match stage(&command, length, pool) {
            Some(buf) => {
                let immediate = staged(buf, data.of(&self.stream), &mut self.counters);
                Event::Control { request, immediate }
            }
            None => {
                self.keep(data);
                self.short = Some(command);
                Event::NoBuffer
            }
        }
    }

    /// Whoever was told may have made room.
    fn try_again(&mut self, command: ScsiCommand, pool: &Pool) -> Event {
        let length = u32::try_from(self.control.len()).unwrap_or(u32::MAX);
        let immediate = match stage(&command, length, pool) {
            Some(buf) => staged(buf, &self.control, &mut self.counters),
            None => Immediate::Exhausted { length },
        };
        self.control.clear();
        Event::Control { request: Request::Command(command), immediate }
    }

    /// Keeps data of a message that is needed after it.
    fn keep(&mut self, data: &Part<'_>) {
        self.control.extend_from_slice(data.of(&self.stream));
    }

    /// Data that comes unasked; what is asked for never comes as a PDU (RFC 7145 §7.3.4).
    fn handle_data(&mut self, pdu: &DataOut, data: &Part<'_>) -> Option<Event> {
        self.acknowledged = Some(pdu.exp_stat_sn);
        let length = data.length();
        match self.unsolicited.place(pdu, length) {
            Place::Unknown if pdu.ttt != Ttt::NONE => {
                return Some(Event::Rejected { reason: PROTOCOL_ERROR });
            }
            Place::Unknown => return Some(Event::Rejected { reason: INVALID_PDU_FIELD }),
            Place::Nowhere => {}
            Place::Buffer(task) if self.land(task, pdu.offset, data) => {
                self.counters.bytes_copied += u64::from(length);
            }
            Place::Buffer(_) => self.unsolicited.misplaced(pdu.itt),
        }
        if pdu.final_ { self.unsolicited.end(pdu.itt) } else { None }
    }

    /// Puts bytes into the buffer of a task; false if they do not fit.
    fn land(&mut self, task: TaskId, offset: u32, data: &Part<'_>) -> bool {
        let bytes = data.of(&self.stream);
        match self.tasks.get_mut(task).map(|task| &mut task.buf) {
            Some(Held::Here(buf)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let place = buf.get_mut(start..start.saturating_add(bytes.len()));
                place.is_some_and(|place| {
                    place.copy_from_slice(bytes);
                    true
                })
            }
            Some(Held::Sink(stag)) => self.stream.place(*stag, offset, data.given, &data.at),
            Some(Held::None) | None => false,
        }
    }

    /// The oldest RDMA Read is complete.
    fn handle_read(&mut self) -> Option<Event> {
        let Reading { task, sink, offset, length, wanted, .. } = self.reads.pop_front()?;
        match self.stream.is_of_adapter() {
            true => self.counters.bytes_in += u64::from(length),
            false => self.counters.bytes_copied += u64::from(length),
        }
        self.restore(task, sink);
        wanted.then_some(Event::DataDone { task, offset, length })
    }
}

/// A part of the message at hand.
#[derive(Debug)]
struct Part<'a> {
    /// The bytes that it came with.
    given: &'a [u8],
    at: Range<usize>,
}

impl Part<'_> {
    fn length(&self) -> u32 {
        u32::try_from(self.at.len()).unwrap_or(u32::MAX)
    }

    fn of<'a>(&'a self, stream: &'a Stream) -> &'a [u8] {
        stream.message(self.given).get(self.at.clone()).unwrap_or_default()
    }
}

/// Immediate data in a buffer of its own.
fn staged(mut buf: Buf, bytes: &[u8], counters: &mut Counters) -> Immediate {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let Some(place) = buf.get_mut(..bytes.len()) else {
        debug_assert!(false, "a staged buffer has room for the data");
        return Immediate::Exhausted { length };
    };
    buf::copy(place, bytes);
    counters.bytes_copied += u64::from(length);
    Immediate::Staged { data: buf, length }
}

/// Whether a command moves data and names no memory for it (RFC 7145 §7.3.1). What still comes
/// unasked is not known here.
fn lacks_memory(
    command: &ScsiCommand,
    (write, read): (Option<Advertised>, Option<Advertised>),
    immediate: u32,
) -> bool {
    let writes = command.write && command.final_ && command.expected_length > immediate;
    let reads = match command.bidi_read_length {
        Some(length) => length > 0,
        None => command.read && command.expected_length > 0,
    };
    writes && write.is_none() || reads && read.is_none()
}
