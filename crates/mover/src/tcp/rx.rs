// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiving side of a target: what the PDUs of an initiator mean to the core.
//!
//! Read first: RFC 7143 §11.3 (immediate data), §11.7 (Data-Out), §7.7 and §7.8 (errors). How bytes
//! become PDUs: [`frame`](super::frame).
//!
//! A corrupt Data-Out that ends its burst makes two events: that its digest is wrong, and the end
//! of the burst.

use buf::Buf;
use iscsi::datamover::{Event, Immediate, Keys, StreamViolation};
use wire::iscsi::{DataOut, OPCODE_LOGIN_REQUEST, OPCODE_SCSI_COMMAND, Request, StatSn};

use super::Framing;
use super::burst::BurstKey;
use super::frame::{Begun, Breach, Frame, Integrity, Pdu, Role, Rules, Segment};
use super::marker::Digests;
use super::segment::{Context, Sink};
use super::task::Tasks;
use crate::limits::AHS_LEN_MAX;

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Rx {
    frame: Frame<TargetRole>,
}

#[derive(Debug)]
struct TargetRole {
    sink: Sink,
    /// ExpStatSN of the last Data-Out, until it is taken.
    acknowledged: Option<StatSn>,
    /// Nothing has been accepted yet: only a Login Request may begin a connection.
    first: bool,
}

impl Rx {
    pub(super) fn new() -> Self {
        let role = TargetRole { sink: Sink::NONE, acknowledged: None, first: true };
        Self { frame: Frame::new(role, rules(&Keys::LOGIN)) }
    }

    /// `position`: bytes of the stream that were taken before these keys hold.
    pub(super) fn set_keys(&mut self, keys: &Keys, position: u64) {
        self.frame.set_rules(rules(keys), position);
    }

    /// Bytes that are held for PDUs, in use or not.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.frame.memory()
    }

    /// See [`Tcp::take_acknowledged`](super::Tcp::take_acknowledged).
    pub(super) const fn take_acknowledged(&mut self) -> Option<StatSn> {
        self.frame.role_mut().acknowledged.take()
    }

    pub(super) const fn framing(&self) -> Framing {
        let Digests { header, data } = self.frame.rules().digests;
        Framing { header_digest: header, data_digest: data }
    }

    pub(super) const fn has_markers(&self) -> bool {
        self.frame.rules().markers.is_some()
    }

    pub(super) fn left_of_pdu(&self) -> Option<usize> {
        self.frame.left_of_pdu()
    }

    pub(super) fn header(&self) -> &[u8] {
        self.frame.header()
    }

    pub(super) fn control_data(&self) -> &[u8] {
        self.frame.control_data()
    }

    /// See `Tcp::feed`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut context: Context<'_>,
    ) -> (usize, Option<Event>) {
        let (taken, event) = self.frame.feed(bytes, &mut context);
        context.counters.bytes_in += taken as u64;
        (taken, event)
    }

    /// See `Tcp::landing`.
    pub(super) fn landing(&mut self, tasks: &mut Tasks) -> Option<(Buf, usize, usize)> {
        self.frame.landing(tasks)
    }

    /// See `Tcp::landed`.
    pub(super) fn landed(
        &mut self,
        buf: Buf,
        bytes: usize,
        mut context: Context<'_>,
    ) -> Option<Event> {
        context.counters.bytes_in += bytes as u64;
        self.frame.landed(buf, bytes, &mut context)
    }
}

const fn rules(keys: &Keys) -> Rules {
    Rules {
        digests: Digests { header: keys.header_digest, data: keys.data_digest },
        segment_max: keys.max_recv_data_segment_length,
        markers: keys.markers.receive,
    }
}

impl Role for TargetRole {
    type Event = Event;
    type Violation = StreamViolation;
    type Tasks = Tasks;
    type Context<'a> = Context<'a>;

    const AHS_LEN_MAX: usize = AHS_LEN_MAX;

    fn violated(violation: StreamViolation) -> Event {
        Event::Violation(violation)
    }

    fn breach(breach: Breach) -> StreamViolation {
        match breach {
            Breach::HeaderDigest => StreamViolation::HeaderDigest,
            Breach::SegmentTooLong { length, limit } => {
                StreamViolation::SegmentTooLong { length, limit }
            }
            Breach::Marker => StreamViolation::Marker,
        }
    }

    /// The first byte is that of a Login Request, whatever I and the reserved bit say (RFC 7143
    /// §11.12).
    fn check_start(&self, header: &[u8]) -> Result<(), StreamViolation> {
        let is_login = |byte: &u8| byte & 0x3f == OPCODE_LOGIN_REQUEST;
        match self.first && !header.first().is_none_or(is_login) {
            true => Err(StreamViolation::NotLogin),
            false => Ok(()),
        }
    }

    fn check_additional(opcode: u8) -> Result<(), StreamViolation> {
        match opcode {
            OPCODE_SCSI_COMMAND => Ok(()),
            _ => Err(StreamViolation::AdditionalHeader),
        }
    }

    #[inline]
    fn begin(
        &mut self,
        pdu: Pdu<'_>,
        context: &mut Context<'_>,
    ) -> Result<Begun<Event>, StreamViolation> {
        self.first = false;
        if pdu.digested {
            context.counters.bytes_crc += pdu.header.len() as u64;
        }
        let request = match Request::parse(pdu.header) {
            Ok(request) => request,
            Err(error) => {
                context.counters.pdus_in.malformed += 1;
                let reason = error.reject_reason();
                if pdu.length == 0 {
                    return Ok(Begun::Whole(Some(Event::Rejected { reason })));
                }
                self.sink = Sink::Reject { reason };
                return Ok(Begun::Data);
            }
        };
        context.counters.pdus_in.count(&request);
        if let Request::DataOut(pdu) = &request {
            self.acknowledged = Some(pdu.exp_stat_sn);
        } else if pdu.length == 0 {
            let immediate = Immediate::None;
            return Ok(Begun::Whole(Some(Event::Control { request, immediate })));
        }
        self.sink = Sink::new(request, pdu.length, context);
        Ok(match self.sink {
            _ if pdu.length == 0 => Begun::Whole(self.end_sink(Integrity::Good, context)),
            Sink::Exhausted { .. } => Begun::Told(Event::NoBuffer),
            _ => Begun::Data,
        })
    }

    /// After `NoBuffer` the core may have made room.
    fn resume(&mut self, context: &mut Context<'_>) {
        if let Sink::Exhausted { command, length } = self.sink {
            self.sink = Sink::stage(command, length, context.pool);
        }
    }

    #[inline]
    fn place(&mut self, part: &[u8], segment: &mut Segment, context: &mut Context<'_>) {
        self.sink.place(part, segment, context);
    }

    fn lend(&mut self, length: usize, tasks: &mut Tasks) -> Option<(Buf, usize)> {
        self.sink.lend(length, tasks)
    }

    fn landed(&mut self, buf: Buf, bytes: usize, segment: &mut Segment, context: &mut Context<'_>) {
        self.sink.landed(buf, bytes, segment, context);
    }

    fn count_corrupt_header(context: &mut Context<'_>) {
        context.counters.header_digest_errors += 1;
    }

    /// The PDU under way may be a Data-Out with F of a burst that the core wants to hear about.
    fn tell_corrupt(&mut self, context: &mut Context<'_>) -> Option<Event> {
        context.counters.data_digest_errors += 1;
        match &self.sink {
            Sink::Burst { key, pdu, .. } if pdu.final_ && context.tasks.bursts.is_wanted(*key) => {
                Some(Event::DigestError)
            }
            _ => None,
        }
    }

    fn end_told(&mut self, context: &mut Context<'_>) -> Option<Event> {
        match core::mem::replace(&mut self.sink, Sink::NONE) {
            Sink::Burst { key, pdu, .. } => {
                context.tasks.bursts.finish(key, &pdu, Integrity::Corrupt)
            }
            _ => None,
        }
    }

    #[inline]
    fn end(
        &mut self,
        integrity: Integrity,
        _pdu: Pdu<'_>,
        context: &mut Context<'_>,
    ) -> Result<Option<Event>, StreamViolation> {
        Ok(self.end_sink(integrity, context))
    }
}

impl TargetRole {
    fn end_sink(&mut self, data: Integrity, context: &mut Context<'_>) -> Option<Event> {
        let sink = core::mem::replace(&mut self.sink, Sink::NONE);
        let (request, immediate) = match sink {
            Sink::Reject { reason } => return Some(Event::Rejected { reason }),
            Sink::Ignored { key, pdu } => {
                return context.tasks.bursts.finish(key, &pdu, Integrity::Good);
            }
            Sink::Burst { key, pdu, .. } => return end_data_out(key, &pdu, data, context),
            Sink::Control(request) => (request, Immediate::None),
            Sink::Stage { command, data: Some(data), at } => {
                let length = u32::try_from(at).unwrap_or(u32::MAX);
                (Request::Command(command), Immediate::Staged { data, length })
            }
            Sink::Stage { command, data: None, at } => {
                debug_assert!(false, "a segment is not whole while the port fills it");
                let length = u32::try_from(at).unwrap_or(u32::MAX);
                (Request::Command(command), Immediate::Exhausted { length })
            }
            Sink::Exhausted { command, length } => {
                (Request::Command(command), Immediate::Exhausted { length })
            }
        };
        Some(match data {
            Integrity::Good => Event::Control { request, immediate },
            Integrity::Corrupt => Event::DigestError,
        })
    }
}

/// A Data-Out is whole. A corrupt one is told at once, unless its task is gone; one that also ends
/// its burst has been told before and comes by another way.
fn end_data_out(
    key: BurstKey,
    pdu: &DataOut,
    data: Integrity,
    context: &mut Context<'_>,
) -> Option<Event> {
    let wanted = context.tasks.bursts.is_wanted(key);
    let event = context.tasks.bursts.finish(key, pdu, data);
    if data == Integrity::Corrupt && wanted {
        debug_assert!(event.is_none(), "the end of a corrupt burst is told apart");
        return Some(Event::DigestError);
    }
    event
}
