// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes to PDUs, in either role: framing, digests, markers and bounds. What a header means and
//! where its data goes says the [`Role`].
//!
//! Read first: RFC 7143 §11.2 (segments and digests), §7.7 and §7.8 (errors).
//!
//! ```text
//!   Header --> HeaderDigest --> Data --> Padding --> DataDigest --> (end) --> Header
//!     |   (only if negotiated)  (only if there is data)    |
//!     |                  |                                 +--> Told --> (end)
//!     |                  +--> Paused --> Data: something was told before the first data byte
//!     +--> violated: for ever
//! ```
//!
//! Any split of the stream gives the same events. A PDU with a second event at its end gives that
//! one with its last byte, which the first one leaves untaken.

mod role;
mod segment;

use alloc::vec::Vec;

use buf::Buf;
use crc::Crc32c;
use wire::iscsi::{BHS_LEN, BhsView, pad4};

use super::DIGEST_LEN;
use super::marker::{Digests, Next, Stripper, pdu_len};
pub(super) use role::{Begun, Breach, Integrity, Pdu, Role};
pub(super) use segment::Segment;

use crate::limits::{CONTROL_KEEP, LANDING_MIN};

/// Bytes of a header up to the end of its lengths (RFC 7143 §11.2.1).
const LENGTHS_END: usize = 8;

/// What was negotiated about the framing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) digests: Digests,
    /// Longest data segment, bytes.
    pub(super) segment_max: u32,
    /// Payload bytes from one marker to the next.
    pub(super) markers: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    HeaderDigest,
    /// An event was told before the data.
    Paused,
    Data,
    Padding,
    DataDigest,
    /// `tell_corrupt` gave an event; the last byte brings the end.
    Told,
}

/// Four bytes that may come one by one.
#[derive(Clone, Copy, Debug, Default)]
struct Gather {
    bytes: [u8; DIGEST_LEN],
    have: usize,
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Frame<R: Role> {
    role: R,
    rules: Rules,
    violation: Option<R::Violation>,
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
    segment: Segment,
}

impl<R: Role> Frame<R> {
    pub(super) fn new(role: R, rules: Rules) -> Self {
        Self {
            role,
            rules,
            violation: None,
            markers: None,
            is_special: false,
            phase: Phase::Header,
            header: Vec::with_capacity(BHS_LEN),
            header_len: BHS_LEN,
            digest: Gather::default(),
            segment: Segment::default(),
        }
    }

    /// `position`: bytes of the stream that were taken before these rules hold.
    pub(super) fn set_rules(&mut self, rules: Rules, position: u64) {
        self.rules = rules;
        if let Some(interval) = rules.markers
            && self.markers.is_none()
        {
            self.markers = Some(Stripper::new(interval, position));
            self.is_special = true;
        }
    }

    /// Bytes that are held for PDUs, in use or not.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.header.capacity() + self.segment.control.capacity()
    }

    pub(super) const fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) const fn role(&self) -> &R {
        &self.role
    }

    pub(super) const fn role_mut(&mut self) -> &mut R {
        &mut self.role
    }

    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    pub(super) fn control_data(&self) -> &[u8] {
        &self.segment.control
    }

    /// The header of the PDU under way has come, its end has not.
    pub(super) const fn is_within_data(&self) -> bool {
        matches!(self.phase, Phase::Data | Phase::Padding | Phase::DataDigest)
    }

    /// See `Tcp::feed`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        context: &mut R::Context<'_>,
    ) -> (usize, Option<R::Event>) {
        let mut rest = bytes;
        let event = match self.is_special {
            true => self.advance_special(&mut rest, context),
            false => self.advance(&mut rest, context),
        };
        (bytes.len() - rest.len(), event)
    }

    /// See `Tcp::landing`.
    pub(super) fn landing(&mut self, tasks: &mut R::Tasks) -> Option<(Buf, usize, usize)> {
        let left = self.segment.left;
        if self.phase != Phase::Data || left < LANDING_MIN || self.is_special {
            return None;
        }
        self.role.lend(left, tasks).map(|(buf, at)| (buf, at, at + left))
    }

    /// See `Tcp::landed`.
    pub(super) fn landed(
        &mut self,
        buf: Buf,
        bytes: usize,
        context: &mut R::Context<'_>,
    ) -> Option<R::Event> {
        debug_assert_eq!(self.phase, Phase::Data, "nothing was fed meanwhile");
        debug_assert!(bytes <= self.segment.left, "no more than was asked for");
        self.role.landed(buf, bytes, &mut self.segment, context);
        self.segment.left = self.segment.left.saturating_sub(bytes);
        if self.segment.left > 0 {
            return None;
        }
        self.after_data(context)
            .unwrap_or_else(|violation| Some(self.violate(violation, &mut [].as_slice())))
    }

    /// A stream with markers, or one that is over, of which everything is taken.
    fn advance_special(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Option<R::Event> {
        if let Some(violation) = self.violation {
            *rest = &[];
            return Some(R::violated(violation));
        }
        self.advance_marked(rest, context)
    }

    /// Takes markers out, checks them, and feeds what is between them.
    fn advance_marked(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Option<R::Event> {
        while !rest.is_empty() {
            match self.markers.as_mut()?.next(rest) {
                Next::Starved => return None,
                Next::Marker(marker) => {
                    let pointer = marker.pointer().map(|pointer| pointer as usize);
                    let left = self.left_of_pdu();
                    if pointer.is_none() || left.is_some_and(|left| pointer != Some(left)) {
                        return Some(self.violate(R::breach(Breach::Marker), rest));
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
    fn advance(&mut self, rest: &mut &[u8], context: &mut R::Context<'_>) -> Option<R::Event> {
        while !rest.is_empty() {
            match self.step(rest, context) {
                Ok(None) => {}
                Ok(Some(event)) => return Some(event),
                Err(violation) => return Some(self.violate(violation, rest)),
            }
        }
        None
    }

    /// From now on everything is taken.
    fn violate(&mut self, violation: R::Violation, rest: &mut &[u8]) -> R::Event {
        *rest = &[];
        self.violation = Some(violation);
        self.is_special = true;
        R::violated(violation)
    }

    /// Bytes of the PDU under way that have not come: what a marker points over. None while its
    /// lengths have not come.
    pub(super) fn left_of_pdu(&self) -> Option<usize> {
        let whole = pdu_len(&self.header, self.rules.digests);
        let header_digest = if self.rules.digests.header { DIGEST_LEN } else { 0 };
        let data_digest = if self.segment.crc.is_some() { DIGEST_LEN } else { 0 };
        let after_header = || whole.saturating_sub(self.header_len + header_digest);
        match self.phase {
            // The last PDU is whole, or none has begun.
            Phase::Header if self.header.len() >= self.header_len => Some(0),
            Phase::Header if self.header.is_empty() => Some(0),
            Phase::Header if self.header.len() < LENGTHS_END => None,
            Phase::Header => Some(whole.saturating_sub(self.header.len())),
            Phase::HeaderDigest => Some(DIGEST_LEN - self.digest.have + after_header()),
            Phase::Paused => Some(after_header()),
            Phase::Data => Some(self.segment.left + self.segment.padding_left + data_digest),
            Phase::Padding => Some(self.segment.padding_left + data_digest),
            Phase::DataDigest => Some(DIGEST_LEN - self.digest.have),
            Phase::Told => Some(1),
        }
    }

    fn step(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        match self.phase {
            Phase::Header => self.take_header(rest, context),
            Phase::HeaderDigest => self.take_header_digest(rest, context),
            Phase::Paused => {
                self.role.resume(context);
                self.phase = Phase::Data;
                Ok(None)
            }
            Phase::Data => self.take_data(rest, context),
            Phase::Padding => self.take_padding(rest, context),
            Phase::DataDigest => self.take_data_digest(rest, context),
            Phase::Told => {
                *rest = rest.get(1..).unwrap_or_default();
                self.phase = Phase::Header;
                Ok(self.role.end_told(context))
            }
        }
    }

    fn take_header(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        if self.header.len() >= self.header_len {
            self.start();
        }
        let part = take_up_to(rest, self.header_len - self.header.len());
        self.header.extend_from_slice(part);
        self.role.check_start(&self.header)?;
        if self.header.len() < self.header_len {
            return Ok(None);
        }
        let bhs = BhsView::new_checked(self.header.as_slice()).expect("48 bytes are there");
        let ahs_len = bhs.total_ahs_length().min(R::AHS_LEN_MAX);
        if self.header_len < BHS_LEN + ahs_len {
            if !self.rules.digests.header {
                self.check_lengths()?;
            }
            self.header_len = BHS_LEN + ahs_len;
            return Ok(None);
        }
        if self.rules.digests.header {
            self.digest = Gather::default();
            self.phase = Phase::HeaderDigest;
            return Ok(None);
        }
        self.begin(context)
    }

    fn take_header_digest(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        if !self.digest.take(rest) {
            return Ok(None);
        }
        if self.digest.value() != crc::crc32c(&self.header) {
            R::count_corrupt_header(context);
            return Err(R::breach(Breach::HeaderDigest));
        }
        self.begin(context)
    }

    fn take_data(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        let part = take_up_to(rest, self.segment.left);
        self.segment.left -= part.len();
        self.role.place(part, &mut self.segment, context);
        if self.segment.left > 0 {
            return Ok(None);
        }
        self.after_data(context)
    }

    /// All data is there. Most segments have no padding.
    fn after_data(
        &mut self,
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        self.phase = Phase::Padding;
        if self.segment.padding_left > 0 {
            return Ok(None);
        }
        self.after_padding(context)
    }

    fn take_padding(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        let part = take_up_to(rest, self.segment.padding_left);
        self.segment.padding_left -= part.len();
        self.segment.digest(part);
        if self.segment.padding_left > 0 {
            return Ok(None);
        }
        self.after_padding(context)
    }

    fn after_padding(
        &mut self,
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        if self.segment.has_digest() {
            self.digest = Gather::default();
            self.phase = Phase::DataDigest;
            return Ok(None);
        }
        self.end(Integrity::Good, context)
    }

    fn take_data_digest(
        &mut self,
        rest: &mut &[u8],
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        let before = *rest;
        if !self.digest.take(rest) {
            return Ok(None);
        }
        let computed = self.segment.crc.take().map(Crc32c::finish);
        if computed == Some(self.digest.value()) {
            return self.end(Integrity::Good, context);
        }
        if let Some(event) = self.role.tell_corrupt(context) {
            let taken_but_last = (before.len() - rest.len()).saturating_sub(1);
            *rest = before.get(taken_but_last..).unwrap_or_default();
            self.phase = Phase::Told;
            return Ok(Some(event));
        }
        self.end(Integrity::Corrupt, context)
    }

    /// A new PDU begins: what the last one left is void.
    fn start(&mut self) {
        self.header.clear();
        self.header_len = BHS_LEN;
        self.segment.control.clear();
        self.segment.control.shrink_to(CONTROL_KEEP);
    }

    /// Refuses what would break framing or bounds, before any memory is taken for it (RFC 7143
    /// §7.7). Gives the length of the data segment.
    fn check_lengths(&self) -> Result<u32, R::Violation> {
        let Ok(bhs) = BhsView::new_checked(self.header.as_slice()) else { return Ok(0) };
        if bhs.total_ahs_length() > 0 {
            R::check_additional(bhs.opcode())?;
        }
        let (length, limit) = (bhs.data_segment_length(), self.rules.segment_max);
        if length > limit {
            return Err(R::breach(Breach::SegmentTooLong { length, limit }));
        }
        Ok(length)
    }

    /// The header is whole and verified.
    fn begin(&mut self, context: &mut R::Context<'_>) -> Result<Option<R::Event>, R::Violation> {
        let length = self.check_lengths()?;
        self.phase = Phase::Header;
        let (role, pdu) = self.split(length);
        let begun = role.begin(pdu, context)?;
        debug_assert_eq!(length == 0, matches!(begun, Begun::Whole(_)), "whole without data");
        if let Begun::Whole(event) = begun {
            return Ok(event);
        }
        self.segment.left = length as usize;
        self.segment.padding_left = pad4(self.segment.left) - self.segment.left;
        self.segment.crc = self.rules.digests.data.then(Crc32c::new);
        if let Begun::Told(event) = begun {
            self.phase = Phase::Paused;
            return Ok(Some(event));
        }
        self.phase = Phase::Data;
        Ok(None)
    }

    fn end(
        &mut self,
        integrity: Integrity,
        context: &mut R::Context<'_>,
    ) -> Result<Option<R::Event>, R::Violation> {
        self.phase = Phase::Header;
        let length = BhsView::new_checked(self.header.as_slice());
        let length = length.map_or(0, |bhs| bhs.data_segment_length());
        let (role, pdu) = self.split(length);
        role.end(integrity, pdu, context)
    }

    /// The role, and the PDU that it is asked about.
    fn split(&mut self, length: u32) -> (&mut R, Pdu<'_>) {
        let Self { role, header, segment, rules, .. } = self;
        let digested = rules.digests.header;
        (role, Pdu { header, length, digested, control: &mut segment.control })
    }
}

impl Gather {
    /// True once all bytes are there.
    fn take(&mut self, rest: &mut &[u8]) -> bool {
        let part = take_up_to(rest, DIGEST_LEN - self.have);
        for (to, from) in self.bytes.iter_mut().skip(self.have).zip(part) {
            *to = *from;
        }
        self.have += part.len();
        self.have == DIGEST_LEN
    }

    /// Digests travel least significant byte first (RFC 7143 §13.1).
    fn value(&self) -> u32 {
        u32::from_le_bytes(self.bytes)
    }
}

/// Cuts up to `count` bytes off the front of `rest`.
fn take_up_to<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (part, tail) = rest.split_at(count.min(rest.len()));
    *rest = tail;
    part
}
