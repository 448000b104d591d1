// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens to a connection as it was sent, before the network does anything to it.
//!
//! It knows no more of the protocol than where a PDU begins and ends and what its digests cover
//! (RFC 7143 §11.2): enough to say which bytes may be flipped so that the receiver must notice, and
//! to show each header to the invariants.

mod fpdus;
mod marks;
mod messages;

use std::ops::Range;

use wire::iscsi::BHS_LEN;

use self::fpdus::Fpdus;
use self::marks::Marks;
use self::messages::Messages;
pub(crate) use self::messages::Said;
pub(crate) use self::messages::pdu;
use crate::check::Checks;
use crate::check::Sessions;
use crate::net::Side;

const DIGEST_LEN: usize = 4;
const LOGIN_REQUEST: u8 = 0x03;
const LOGIN_RESPONSE: u8 = 0x23;
const OPCODE: u8 = 0x3f;
/// T bit and NSG = 3: full feature phase follows (RFC 7143 §11.13).
const TRANSIT: u8 = 0x80;
const NEXT_STAGE: u8 = 0x03;
const REJECT: u8 = 0x3f;
/// Words from one marker to the next, unless agreed otherwise (RFC 3720 §A.3.2).
const DEFAULT_WORDS: usize = 2048;
const WORD: usize = 4;
/// Longest text of a login that is looked at, bytes.
const TEXT_MAX: usize = 16 << 10;

/// One direction.
#[derive(Debug, Default)]
struct Half {
    header: Vec<u8>,
    /// Bytes of the header with AHS and digest, once the BHS is there.
    header_len: usize,
    /// Bytes of data, padding and digest that are still to come.
    data_left: usize,
    data_len: usize,
    text: Vec<u8>,
    /// What it sends from here on has digests.
    full_feature: bool,
    /// Bytes so far.
    position: usize,
    marks: Option<Marks>,
}

impl Half {
    /// So many bytes of PDUs have passed.
    fn pass(&mut self, count: usize) {
        self.position += count;
        if let Some(marks) = &mut self.marks {
            marks.pass(count);
        }
    }
}

/// What bytes are.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Ranges of them that a digest covers.
    pub(crate) covered: Vec<Range<usize>>,
    /// Where headers begin that are whole in them, of the full feature phase and without a digest.
    pub(crate) headers: Vec<usize>,
    /// Segments of FPDUs that are whole in them.
    pub(crate) frames: Vec<Range<usize>>,
    /// Who cuts before one of these leaves an FPDU that never ends.
    pub(crate) inside: Vec<Range<usize>>,
    /// Where the depths stand that a request for a connection tells, byte by byte.
    pub(crate) depths: Vec<(usize, usize)>,
    /// From here on the connection is an RDMA stream.
    pub(crate) begins_rdma: bool,
}

/// Which digests PDUs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
}

/// Where a connection belongs to.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// Port of the target.
    pub(crate) target: usize,
    pub(crate) sessions: &'a mut Sessions,
}

/// What was heard on one connection.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    halves: [Half; 2],
    header_digest: bool,
    data_digest: bool,
    /// By the side that sends: markers were agreed on, and every so many words.
    markers: [(bool, Option<usize>); 2],
    /// It is, or became, an RDMA stream,
    fpdus: Option<Fpdus>,
    /// with these messages.
    messages: Messages,
    /// It is logged in over RDMA.
    is_up: bool,
    /// A login has agreed on that.
    becomes_rdma: bool,
    pub(crate) checks: Checks,
}

impl Tap {
    /// Bytes that `side` sends.
    pub(crate) fn hear(&mut self, side: Side, bytes: &[u8], place: &mut Place<'_>) -> Heard {
        let mut heard = Heard::default();
        let was_rdma = self.fpdus.is_some();
        let mut at = 0;
        while at < bytes.len() {
            if let Some(fpdus) = &mut self.fpdus {
                let mut segments = Vec::new();
                fpdus.hear(side, &bytes[at..], at, (&mut heard, &mut segments));
                segments.iter().for_each(|segment| self.segment(side, segment, place));
                break;
            }
            let half = &mut self.halves[side];
            if half.position == 0 && bytes[at] == fpdus::FIRST_BYTE {
                self.fpdus = Some(Fpdus::default());
                continue;
            }
            let full_feature = half.full_feature;
            let mut rest = &bytes[at..];
            if let Some(marks) = &mut half.marks {
                let taken = marks.take(rest);
                if taken > 0 {
                    at += taken;
                    continue;
                }
                rest = &rest[..rest.len().min(marks.until())];
            }
            let headed = half.header.len() >= BHS_LEN && half.header.len() == half.header_len;
            if headed && half.data_left > 0 {
                let taken = rest.len().min(half.data_left);
                half.data_left -= taken;
                half.pass(taken);
                let wanted = !full_feature || half.header[0] & OPCODE == REJECT;
                if wanted && half.text.len() < TEXT_MAX {
                    half.text.extend_from_slice(&rest[..taken]);
                }
                if full_feature && self.data_digest {
                    heard.covered.push(at..at + taken);
                }
                at += taken;
                if half.data_left == 0 {
                    self.pdu(side, place);
                }
                continue;
            }
            let wanted = if half.header.len() < BHS_LEN { BHS_LEN } else { half.header_len };
            let taken = rest.len().min(wanted - half.header.len());
            if half.header.is_empty()
                && let Some(Err(wrong)) = half.marks.as_mut().map(Marks::header)
            {
                self.checks.broken.push(wrong);
            }
            half.header.extend_from_slice(&rest[..taken]);
            half.pass(taken);
            if full_feature && self.header_digest {
                heard.covered.push(at..at + taken);
            }
            if full_feature && !self.header_digest && taken == BHS_LEN && wanted == BHS_LEN {
                heard.headers.push(at);
            }
            at += taken;
            if half.header.len() == BHS_LEN && wanted == BHS_LEN {
                self.lengths(side);
            }
            let half = &self.halves[side];
            let complete = half.header.len() >= BHS_LEN && half.header.len() == half.header_len;
            if complete && half.data_left == 0 {
                self.pdu(side, place);
            }
        }
        heard.begins_rdma = !was_rdma && self.fpdus.is_some();
        heard
    }

    /// A segment of an RDMA stream.
    fn segment(&mut self, side: Side, segment: &[u8], place: &mut Place<'_>) {
        let said = self.messages.hear(side, segment);
        self.said(side, said, place);
    }

    /// Of a connection over adapters, which have so many RDMA Reads under way.
    pub(crate) fn of_adapter(reads: usize) -> Self {
        let mut tap = Self { becomes_rdma: true, ..Self::default() };
        tap.checks.memory.depth = Some(reads);
        tap
    }

    /// What a message over RDMA says, or why nobody could understand it.
    pub(crate) fn said(
        &mut self,
        side: Side,
        said: Result<Option<Said>, String>,
        place: &mut Place<'_>,
    ) {
        match said {
            Ok(None) => {}
            Ok(Some(Said::Pdu(_, header, data))) if !self.is_up => {
                let Some(bhs) = header.first_chunk::<BHS_LEN>() else { return };
                self.login(side, bhs, &data, place);
            }
            Ok(Some(Said::Pdu(iser, header, data))) => {
                self.checks.message(side, iser, (&header, &data));
            }
            Ok(Some(Said::Written(stag, offset, length))) => {
                self.checks.rdma_write(side, (stag, offset), length);
            }
            Ok(Some(Said::Asked(request))) => self.checks.rdma_read(side, &request),
            Ok(Some(Said::Answered(length, last))) => self.checks.rdma_response(side, length, last),
            Err(wrong) => self.checks.broken.push(wrong),
        }
    }

    /// The BHS is there: how long is the rest?
    fn lengths(&mut self, side: Side) {
        let half = &mut self.halves[side];
        let digest = |on: bool| if on && half.full_feature { DIGEST_LEN } else { 0 };
        half.header_len = BHS_LEN + usize::from(half.header[4]) * 4 + digest(self.header_digest);
        let length = [0, half.header[5], half.header[6], half.header[7]];
        half.data_len = u32::from_be_bytes(length) as usize;
        let padded = half.data_len.next_multiple_of(4);
        half.data_left = if padded > 0 { padded + digest(self.data_digest) } else { 0 };
    }

    /// A PDU is complete.
    fn pdu(&mut self, side: Side, place: &mut Place<'_>) {
        let half = &mut self.halves[side];
        let header = std::mem::take(&mut half.header);
        let text = std::mem::take(&mut half.text);
        let data_len = half.data_len;
        (half.header_len, half.data_len) = (0, 0);
        let bhs: [u8; BHS_LEN] = std::array::from_fn(|at| header[at]);
        let opcode = bhs[0] & OPCODE;
        if !half.full_feature && matches!(opcode, LOGIN_REQUEST | LOGIN_RESPONSE) {
            // Padding belongs to no pair.
            let text = text.get(..data_len).unwrap_or(&text);
            self.login(side, &bhs, text, place);
        } else {
            let rejected = if opcode == REJECT { &text[..] } else { &[] };
            self.checks.pdu(side, &header, data_len, rejected);
        }
    }

    fn login(&mut self, side: Side, bhs: &[u8; BHS_LEN], text: &[u8], place: &mut Place<'_>) {
        self.checks.login(side, bhs, text);
        if side == 1 {
            let has = |pair: &[u8]| text.split(|byte| *byte == 0).any(|found| found == pair);
            self.header_digest |= has(b"HeaderDigest=CRC32C");
            self.data_digest |= has(b"DataDigest=CRC32C");
            self.becomes_rdma |= has(b"RDMAExtensions=Yes");
            self.hear_markers(text);
            self.becomes_rdma |= self.checks.joins_rdma(place.target, place.sessions);
            let moves_on = bhs[1] & TRANSIT != 0 && bhs[1] & NEXT_STAGE == NEXT_STAGE;
            if moves_on && bhs[36] == 0 && (self.becomes_rdma || self.fpdus.is_some()) {
                let _ = self.fpdus.get_or_insert_default();
                self.is_up = true;
                self.checks.go_over_rdma();
                self.checks.begin(place.target, place.sessions);
            } else if moves_on && bhs[36] == 0 {
                for (half, (on, words)) in self.halves.iter_mut().zip(self.markers) {
                    half.full_feature = true;
                    let interval = words.unwrap_or(DEFAULT_WORDS) * WORD;
                    half.marks = on.then(|| Marks::new(interval, half.position));
                }
                self.checks.begin(place.target, place.sessions);
            }
        }
    }

    /// What the target answers about markers: OFMarker is about those of the initiator.
    fn hear_markers(&mut self, text: &[u8]) {
        for pair in text.split(|byte| *byte == 0) {
            let pair = String::from_utf8_lossy(pair);
            let Some((key, value)) = pair.split_once('=') else { continue };
            match key {
                "OFMarker" => self.markers[0].0 = value == "Yes",
                "IFMarker" => self.markers[1].0 = value == "Yes",
                "OFMarkInt" => self.markers[0].1 = value.parse().ok(),
                "IFMarkInt" => self.markers[1].1 = value.parse().ok(),
                _ => {}
            }
        }
    }

    /// How the next bytes of `side` are to be read, if they begin with a PDU of the full feature
    /// phase and have no markers among them.
    pub(crate) fn framing(&self, side: Side) -> Option<Framing> {
        let half = &self.halves[side];
        let plain = half.full_feature && half.marks.is_none();
        let between = half.header.is_empty() && half.data_left == 0;
        let Self { header_digest, data_digest, .. } = *self;
        (plain && between).then_some(Framing { header_digest, data_digest })
    }

    /// Whether it is logged in without header digests, and PDUs follow each other.
    pub(crate) const fn is_bare(&self) -> bool {
        self.halves[1].full_feature && !self.header_digest
    }

    /// Whether it is logged in without anything that counts bytes.
    pub(crate) const fn is_plain(&self) -> bool {
        let [(ours, _), (theirs, _)] = self.markers;
        self.is_bare() && !self.data_digest && !ours && !theirs
    }

    /// Whether some bytes of it are covered by a digest.
    pub(crate) fn has_digests(&self) -> bool {
        let digests = self.halves[1].full_feature && (self.header_digest || self.data_digest);
        digests || self.fpdus.as_ref().is_some_and(Fpdus::has_digests)
    }

    /// Whether it is an RDMA stream that is logged in.
    pub(crate) const fn is_rdma(&self) -> bool {
        self.is_up
    }

    /// Whether lies can be told on it in well formed PDUs, or segments.
    pub(crate) fn takes_lies(&self) -> bool {
        self.is_bare() || self.is_up && self.fpdus.as_ref().is_some_and(Fpdus::is_bare)
    }
}

#[cfg(test)]
mod tests;
