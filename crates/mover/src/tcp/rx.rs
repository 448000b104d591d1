// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes to events: framing, digests, and where the data of each PDU goes.
//!
//! Read first: RFC 7143 §11.2 (segments and digests), §7.7 and §7.8 (errors), §11.7 (Data-Out).
//!
//! ```text
//!   Header --> HeaderDigest --> Data --> Padding --> DataDigest --> (event) --> Header
//!     |   (only if negotiated)  (only if there is data)    |
//!     |                  |                                 +--> Told --> (second event)
//!     |                  +--> Short --> Data: no buffer for immediate data, which was told
//!     +--> violated: for ever
//! ```
//!
//! Any split of the stream gives the same events. A PDU with two events (a corrupt Data-Out that
//! ends its burst) gives the second one with its last byte, which the first one leaves untaken.

use alloc::vec::Vec;

use buf::Buf;
use crc::Crc32c;
use iscsi::datamover::{Event, Immediate, Keys, StreamViolation};
use wire::iscsi::{
    BHS_LEN, BhsView, DataOut, OPCODE_LOGIN_REQUEST, OPCODE_SCSI_COMMAND, Request, StatSn, pad4,
};

use super::DIGEST_LEN;
use super::burst::{BurstKey, Integrity};
use super::marker::{Digests, Next, Stripper, pdu_len};
use super::segment::{Context, Pdu, Sink, update};
use super::task::Tasks;
use crate::limits::{AHS_LEN_MAX, CONTROL_KEEP, LANDING_MIN};

/// Bytes of a header up to the end of its lengths (RFC 7143 §11.2.1).
pub(super) const LENGTHS_END: usize = 8;

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Rx {
    /// ExpStatSN of the last Data-Out, until it is taken.
    acknowledged: Option<StatSn>,
    keys: Keys,
    /// Nothing has been accepted yet: only a Login Request may begin a connection.
    first: bool,
    violation: Option<StreamViolation>,
    /// Some where the stream has markers.
    markers: Option<Stripper>,
    /// There are markers, or there was a violation: the one question that each call asks.
    is_special: bool,
    phase: Phase,
    /// BHS and AHS of the PDU under way, or of the last one.
    header: Vec<u8>,
    /// Bytes of BHS and AHS together, as far as known.
    header_len: usize,
    digest: Gather,
    control: Vec<u8>,
    pdu: Pdu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    HeaderDigest,
    /// `NoBuffer` was told; the pool is asked once more.
    Short,
    Data,
    Padding,
    DataDigest,
    /// `DigestError` was told; the last byte brings the end of the burst.
    Told,
}

/// Four bytes that may come one by one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gather {
    bytes: [u8; DIGEST_LEN],
    pub(super) have: usize,
}

/// What a step of the machine came to.
enum Step {
    /// Go on with what is left of the input.
    More,
    /// The input is used up.
    Starved,
    Event(Event),
}

impl Rx {
    /// See [`Tcp::take_acknowledged`](super::Tcp::take_acknowledged).
    pub(super) const fn take_acknowledged(&mut self) -> Option<StatSn> {
        self.acknowledged.take()
    }

    pub(super) fn new() -> Self {
        Self {
            acknowledged: None,
            keys: Keys::LOGIN,
            first: true,
            violation: None,
            markers: None,
            is_special: false,
            phase: Phase::Header,
            header: Vec::with_capacity(BHS_LEN),
            header_len: BHS_LEN,
            digest: Gather::default(),
            control: Vec::new(),
            pdu: Pdu::EMPTY,
        }
    }

    /// `position`: bytes of the stream that were taken before these keys hold.
    pub(super) fn set_keys(&mut self, keys: Keys, position: u64) {
        self.keys = keys;
        if let Some(interval) = keys.markers.receive
            && self.markers.is_none()
        {
            self.markers = Some(Stripper::new(interval, position));
            self.is_special = true;
        }
    }

    /// Bytes that are held for PDUs, in use or not.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.header.capacity() + self.control.capacity()
    }

    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    pub(super) fn control_data(&self) -> &[u8] {
        &self.control
    }

    /// See `Tcp::feed`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut context: Context<'_>,
    ) -> (usize, Option<Event>) {
        if self.is_special {
            return self.feed_special(bytes, &mut context);
        }
        let mut rest = bytes;
        let event = self.advance(&mut rest, &mut context);
        let taken = bytes.len() - rest.len();
        context.counters.bytes_in += taken as u64;
        (taken, event)
    }

    /// See `Tcp::landing`.
    pub(super) fn landing(&mut self, tasks: &mut Tasks) -> Option<(Buf, usize, usize)> {
        let left = self.pdu.data_left;
        if self.phase != Phase::Data || left < LANDING_MIN || self.is_special {
            return None;
        }
        self.pdu.lend(tasks).map(|(buf, at)| (buf, at, at + left))
    }

    /// See `Tcp::landed`.
    pub(super) fn landed(
        &mut self,
        buf: Buf,
        bytes: usize,
        mut context: Context<'_>,
    ) -> Option<Event> {
        debug_assert_eq!(self.phase, Phase::Data, "nothing was fed meanwhile");
        debug_assert!(bytes <= self.pdu.data_left, "no more than was asked for");
        context.counters.bytes_in += bytes as u64;
        self.pdu.landed(buf, bytes, &mut context);
        if self.pdu.data_left > 0 {
            return None;
        }
        self.phase = Phase::Padding;
        self.advance(&mut [].as_slice(), &mut context)
    }

    /// A stream with markers, or one that is over.
    fn feed_special(&mut self, bytes: &[u8], context: &mut Context<'_>) -> (usize, Option<Event>) {
        if let Some(violation) = self.violation {
            return (bytes.len(), Some(Event::Violation(violation)));
        }
        let mut rest = bytes;
        let event = self.advance_marked(&mut rest, context);
        let taken = bytes.len() - rest.len();
        context.counters.bytes_in += taken as u64;
        (taken, event)
    }

    /// Takes markers out, checks them, and feeds what is between them.
    fn advance_marked(&mut self, rest: &mut &[u8], context: &mut Context<'_>) -> Option<Event> {
        while !rest.is_empty() {
            let markers = self.markers.as_mut()?;
            match markers.next(rest) {
                Next::Starved => return None,
                Next::Marker(marker) => {
                    let pointer = marker.pointer().map(|pointer| pointer as usize);
                    let left = self.left_of_pdu();
                    if pointer.is_none() || left.is_some_and(|left| pointer != Some(left)) {
                        return Some(self.violate(StreamViolation::Marker));
                    }
                }
                Next::Payload(until) => {
                    let mut part = rest.get(..until).unwrap_or(rest);
                    let length = part.len();
                    let event = self.advance(&mut part, context);
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

    /// Takes bytes up to an event, or all of them.
    fn advance(&mut self, rest: &mut &[u8], context: &mut Context<'_>) -> Option<Event> {
        loop {
            match self.step(rest, context) {
                Ok(Step::More) => {}
                Ok(Step::Starved) => return None,
                Ok(Step::Event(event)) => return Some(event),
                Err(violation) => return Some(self.violate(violation)),
            }
        }
    }

    fn violate(&mut self, violation: StreamViolation) -> Event {
        self.violation = Some(violation);
        self.is_special = true;
        Event::Violation(violation)
    }

    /// Bytes of the PDU under way that have not come: what a marker points over. None while its
    /// lengths have not come.
    fn left_of_pdu(&self) -> Option<usize> {
        let digests = Digests { header: self.keys.header_digest, data: self.keys.data_digest };
        let whole = pdu_len(&self.header, digests);
        let header_digest = if self.keys.header_digest { DIGEST_LEN } else { 0 };
        let data_digest = if self.pdu.crc.is_some() { DIGEST_LEN } else { 0 };
        let after_header = || whole.saturating_sub(self.header_len + header_digest);
        match self.phase {
            // The last PDU is whole, or none has begun.
            Phase::Header if self.header.len() >= self.header_len => Some(0),
            Phase::Header if self.header.is_empty() => Some(0),
            Phase::Header if self.header.len() < LENGTHS_END => None,
            Phase::Header => Some(whole.saturating_sub(self.header.len())),
            Phase::HeaderDigest => Some(DIGEST_LEN - self.digest.have + after_header()),
            Phase::Short => Some(after_header()),
            Phase::Data => Some(self.pdu.data_left + self.pdu.padding_left + data_digest),
            Phase::Padding => Some(self.pdu.padding_left + data_digest),
            Phase::DataDigest => Some(DIGEST_LEN - self.digest.have),
            Phase::Told => Some(1),
        }
    }

    fn step(
        &mut self,
        rest: &mut &[u8],
        context: &mut Context<'_>,
    ) -> Result<Step, StreamViolation> {
        match self.phase {
            Phase::Header => self.take_header(rest, context),
            Phase::HeaderDigest => self.take_header_digest(rest, context),
            Phase::Short => Ok(self.ask_again(context)),
            Phase::Data => Ok(self.take_data(rest, context)),
            Phase::Padding => Ok(self.take_padding(rest, context)),
            Phase::DataDigest => Ok(self.take_data_digest(rest, context)),
            Phase::Told => Ok(self.take_last_byte(rest, context)),
        }
    }

    fn take_header(
        &mut self,
        rest: &mut &[u8],
        context: &mut Context<'_>,
    ) -> Result<Step, StreamViolation> {
        if rest.is_empty() {
            return Ok(Step::Starved);
        }
        if self.header.len() >= self.header_len {
            self.start();
        }
        let part = take_up_to(rest, self.header_len - self.header.len());
        self.header.extend_from_slice(part);
        if self.first && !self.may_be_login() {
            return Err(StreamViolation::NotLogin);
        }
        if self.header.len() < self.header_len {
            return Ok(Step::Starved);
        }
        let bhs = BhsView::new_checked(self.header.as_slice()).expect("48 bytes are there");
        let ahs_len = bhs.total_ahs_length().min(AHS_LEN_MAX);
        if self.header_len < BHS_LEN + ahs_len {
            if !self.keys.header_digest {
                self.check_lengths()?;
            }
            self.header_len = BHS_LEN + ahs_len;
            return Ok(Step::More);
        }
        if self.keys.header_digest {
            self.digest = Gather::default();
            self.phase = Phase::HeaderDigest;
            return Ok(Step::More);
        }
        self.begin(context)
    }

    fn take_header_digest(
        &mut self,
        rest: &mut &[u8],
        context: &mut Context<'_>,
    ) -> Result<Step, StreamViolation> {
        if !self.digest.take(rest) {
            return Ok(Step::Starved);
        }
        context.counters.bytes_crc += self.header.len() as u64;
        if self.digest.value() != crc::crc32c(&self.header) {
            return Err(StreamViolation::HeaderDigest);
        }
        self.begin(context)
    }

    fn take_data(&mut self, rest: &mut &[u8], context: &mut Context<'_>) -> Step {
        let part = take_up_to(rest, self.pdu.data_left);
        if part.is_empty() {
            return Step::Starved;
        }
        self.pdu.data_left -= part.len();
        self.pdu.place(part, &mut self.control, context);
        if self.pdu.data_left > 0 {
            return Step::Starved;
        }
        self.phase = Phase::Padding;
        Step::More
    }

    fn take_padding(&mut self, rest: &mut &[u8], context: &mut Context<'_>) -> Step {
        let part = take_up_to(rest, self.pdu.padding_left);
        self.pdu.padding_left -= part.len();
        update(&mut self.pdu.crc, part);
        if self.pdu.padding_left > 0 {
            return Step::Starved;
        }
        if self.pdu.crc.is_some() {
            self.digest = Gather::default();
            self.phase = Phase::DataDigest;
            return Step::More;
        }
        self.end(Integrity::Good, context)
    }

    fn take_data_digest(&mut self, rest: &mut &[u8], context: &mut Context<'_>) -> Step {
        let before = *rest;
        if !self.digest.take(rest) {
            return Step::Starved;
        }
        let computed = self.pdu.crc.take().map(Crc32c::finish);
        if computed == Some(self.digest.value()) {
            return self.end(Integrity::Good, context);
        }
        if self.ends_wanted_burst(context) {
            let taken_but_last = (before.len() - rest.len()).saturating_sub(1);
            *rest = before.get(taken_but_last..).unwrap_or_default();
            self.phase = Phase::Told;
            return Step::Event(Event::DigestError);
        }
        self.end(Integrity::Corrupt, context)
    }

    fn take_last_byte(&mut self, rest: &mut &[u8], context: &mut Context<'_>) -> Step {
        if take_up_to(rest, 1).is_empty() {
            return Step::Starved;
        }
        self.phase = Phase::Header;
        match core::mem::replace(&mut self.pdu.sink, Sink::NONE) {
            Sink::Burst { key, pdu, .. } => {
                step_of(context.tasks.bursts.finish(key, &pdu, Integrity::Corrupt))
            }
            _ => Step::More,
        }
    }

    /// The PDU under way is a Data-Out with F of a burst that the core wants to hear about.
    fn ends_wanted_burst(&self, context: &Context<'_>) -> bool {
        match &self.pdu.sink {
            Sink::Burst { key, pdu, .. } => pdu.final_ && context.tasks.bursts.is_wanted(*key),
            _ => false,
        }
    }

    /// The first byte is that of a Login Request, whatever I and the reserved bit say (RFC 7143
    /// §11.12).
    fn may_be_login(&self) -> bool {
        self.header.first().is_none_or(|byte| byte & 0x3f == OPCODE_LOGIN_REQUEST)
    }

    /// A new PDU begins: what the last one left is void.
    fn start(&mut self) {
        self.header.clear();
        self.header_len = BHS_LEN;
        self.control.clear();
        self.control.shrink_to(CONTROL_KEEP);
    }

    /// Refuses what would break framing or bounds, before any memory is taken for it (RFC 7143
    /// §7.7).
    fn check_lengths(&self) -> Result<(), StreamViolation> {
        let Ok(bhs) = BhsView::new_checked(self.header.as_slice()) else { return Ok(()) };
        if bhs.total_ahs_length() > 0 && bhs.opcode() != OPCODE_SCSI_COMMAND {
            return Err(StreamViolation::AdditionalHeader);
        }
        let length = bhs.data_segment_length();
        let limit = self.keys.max_recv_data_segment_length;
        if length > limit {
            return Err(StreamViolation::SegmentTooLong { length, limit });
        }
        Ok(())
    }

    /// The header is whole and verified: decides where the data goes.
    fn begin(&mut self, context: &mut Context<'_>) -> Result<Step, StreamViolation> {
        self.check_lengths()?;
        self.first = false;
        let bhs = BhsView::new_checked(self.header.as_slice());
        let length = bhs.map_or(0, |bhs| bhs.data_segment_length());
        let sink = match Request::parse(&self.header) {
            Ok(request) => {
                context.counters.pdus_in.count(&request);
                if let Request::DataOut(pdu) = &request {
                    self.acknowledged = Some(pdu.exp_stat_sn);
                }
                Sink::new(request, length, context)
            }
            Err(error) => {
                context.counters.pdus_in.malformed += 1;
                Sink::Reject { reason: error.reject_reason() }
            }
        };
        let data_left = length as usize;
        let digest = self.keys.data_digest && length > 0;
        let padding_left = pad4(data_left) - data_left;
        let is_short = matches!(sink, Sink::Exhausted { .. });
        self.pdu = Pdu { data_left, padding_left, crc: digest.then(Crc32c::new), sink };
        if length == 0 {
            return Ok(self.end(Integrity::Good, context));
        }
        if is_short {
            self.phase = Phase::Short;
            return Ok(Step::Event(Event::NoBuffer));
        }
        self.phase = Phase::Data;
        Ok(Step::More)
    }

    /// Whoever was told that there is no buffer may have made room.
    fn ask_again(&mut self, context: &Context<'_>) -> Step {
        if let Sink::Exhausted { command, length } = self.pdu.sink {
            self.pdu.sink = Sink::stage(command, length, context.pool);
        }
        self.phase = Phase::Data;
        Step::More
    }

    /// The PDU is whole: what it means to the core.
    fn end(&mut self, data: Integrity, context: &mut Context<'_>) -> Step {
        self.phase = Phase::Header;
        let sink = core::mem::replace(&mut self.pdu.sink, Sink::NONE);
        let (request, immediate) = match sink {
            Sink::Reject { reason } => return Step::Event(Event::Rejected { reason }),
            Sink::Ignored { key, pdu } => {
                return step_of(context.tasks.bursts.finish(key, &pdu, Integrity::Good));
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
        Step::Event(match data {
            Integrity::Good => Event::Control { request, immediate },
            Integrity::Corrupt => Event::DigestError,
        })
    }
}

impl Gather {
    /// True once all bytes are there.
    pub(super) fn take(&mut self, rest: &mut &[u8]) -> bool {
        let part = take_up_to(rest, DIGEST_LEN - self.have);
        for (to, from) in self.bytes.iter_mut().skip(self.have).zip(part) {
            *to = *from;
        }
        self.have += part.len();
        self.have == DIGEST_LEN
    }

    /// Digests travel least significant byte first (RFC 7143 §13.1).
    pub(super) fn value(&self) -> u32 {
        u32::from_le_bytes(self.bytes)
    }
}

/// A Data-Out is whole. A corrupt one is told at once, unless its task is gone; one that also ends
/// its burst has been told before and comes by another way.
fn end_data_out(key: BurstKey, pdu: &DataOut, data: Integrity, context: &mut Context<'_>) -> Step {
    let wanted = context.tasks.bursts.is_wanted(key);
    let event = context.tasks.bursts.finish(key, pdu, data);
    if data == Integrity::Corrupt && wanted {
        debug_assert!(event.is_none(), "the end of a corrupt burst is told apart");
        return Step::Event(Event::DigestError);
    }
    step_of(event)
}

fn step_of(event: Option<Event>) -> Step {
    event.map_or(Step::More, Step::Event)
}

/// Cuts up to `count` bytes off the front of `rest`.
pub(super) fn take_up_to<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (part, tail) = rest.split_at(count.min(rest.len()));
    *rest = tail;
    part
}
