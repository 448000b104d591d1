// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection of those that a trace may be about.
//!
//! ```text
//!   Deciding --its login says who it is--> Following | Ignoring
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use buf::SgList;
use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::OPCODE_DATA_IN;
use wire::iscsi::OPCODE_DATA_OUT;
use wire::iscsi::OPCODE_LOGIN_REQUEST;
use wire::iscsi::OPCODE_LOGIN_RESPONSE;
use wire::iscsi::OPCODE_R2T;
use wire::iscsi::OPCODE_SCSI_COMMAND;
use wire::iscsi::OPCODE_SCSI_RESPONSE;
use wire::iscsi::OPCODE_SNACK;
use wire::iscsi::OPCODE_TASK_MANAGEMENT_REQUEST;
use wire::iscsi::OPCODE_TASK_MANAGEMENT_RESPONSE;
use wire::iscsi::OPCODE_TEXT_REQUEST;
use wire::iscsi::OPCODE_TEXT_RESPONSE;
use wire::iscsi::pad4;
use wire::pcap::Flags;

use super::Packet;
use super::Trace;
use super::cutter::Cutter;
use super::cutter::Framing;
use super::cutter::Pdu;
use super::cutter::Piece;
use super::cutter::kept_of;
use super::mask::Mask;
use super::tags::Tags;
use crate::Side;
use crate::first_sequence;

/// What is kept of a login until it is known whether it is wanted, bytes.
const HELD_BYTES_MAX: usize = 64 << 10;

/// In a Login or Text PDU: the text goes on in the next one (RFC 7143 §11.10.3, §11.12.2).
const CONTINUES: u8 = 0x40;

/// In a Login Response: T, and the stage that follows is the last one (RFC 7143 §11.13.3).
const TRANSITS_TO_FULL_FEATURE: u8 = 0x83;

/// Where a Login PDU has the TSIH, and a response its status (RFC 7143 §11.12, §11.13).
const TSIH_AT: usize = 14;
const STATUS_CLASS_AT: usize = 36;

/// In a Task Management Function Request (RFC 7143 §11.5): the function, and the task that it is
/// about.
const FUNCTION: u8 = 0x7f;
const REFERENCED_TAG_AT: usize = 20;

/// Its response: done, or there is no such task any more (RFC 7143 §11.6.1).
const RESPONSE_AT: usize = 2;
const RESPONSES_OF_AN_END: std::ops::RangeInclusive<u8> = 0..=1;

/// In a Data-In: S, status travels with it (RFC 7143 §11.7.3).
const HAS_STATUS: u8 = 0x01;

/// Whose connection it is, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // a session has no other names
pub struct Who {
    /// The initiator's name.
    pub initiator: Option<String>,
    /// The target's.
    pub target: Option<String>,
    /// Target session identifying handle.
    pub tsih: Option<u16>,
}

/// Is told what a connection carries, in order, and gives what its trace is about. Times are since
/// 1970.
#[derive(Debug)]
pub struct Follower {
    trace: Trace,
    ours: Half,
    theirs: Half,
    who: Who,
    state: State,
    /// Texts of Login Requests, until it is known who it is.
    names: Vec<u8>,
    /// Tags of what is for the unit that is wanted.
    tags: Tags,
    /// When it began; None: before us, or that has been told.
    begun: Option<Duration>,
}

/// One direction.
#[derive(Debug)]
struct Half {
    from: SocketAddr,
    /// Of the next byte.
    sequence: u32,
    cutter: Cutter,
    mask: Mask,
}

#[derive(Debug)]
enum State {
    Deciding(Held),
    Following,
    Ignoring,
}

/// What is kept until then.
#[derive(Debug, Default)]
struct Held {
    pdus: Vec<(Duration, Side, Vec<u8>, usize)>,
    bytes: usize,
    /// There was no room for so many.
    lost: u64,
}

impl Follower {
    /// Follows a connection that begins. `ends`: ours, and theirs.
    #[must_use]
    pub fn of_new(trace: &Trace, ends: (SocketAddr, SocketAddr), now: Duration) -> Self {
        let mut follower = Self::new(trace, ends, 0, first_sequence(now));
        follower.begun = Some(now);
        follower.decide(now, false);
        follower
    }

    /// Follows one that is there; None: the trace is not about it. `left`: bytes that are to come
    /// of the PDU that the initiator sends.
    #[must_use]
    pub fn of_old(
        trace: &Trace,
        ends: (SocketAddr, SocketAddr),
        who: Option<Who>,
        left: usize,
    ) -> Option<Self> {
        let mut follower = Self::new(trace, ends, left, 1);
        match who {
            Some(who) => {
                follower.who = who;
                follower.decide(Duration::ZERO, true);
            }
            // It logs in, and may be in the middle of a text, or of a secret.
            None => {
                follower.ours.mask.lose();
                follower.theirs.mask.lose();
                follower.decide(Duration::ZERO, false);
            }
        }
        (!matches!(follower.state, State::Ignoring)).then_some(follower)
    }

    fn new(trace: &Trace, (ours, theirs): (SocketAddr, SocketAddr), left: usize, at: u32) -> Self {
        let half =
            |from, left| Half { from, sequence: at, cutter: Cutter::new(left), mask: Mask::new() };
        Self {
            trace: trace.clone(),
            ours: half(ours, 0),
            theirs: half(theirs, left),
            who: Who::default(),
            state: State::Deciding(Held::default()),
            names: Vec::new(),
            tags: Tags::default(),
            begun: None,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn is_of(&self, trace: &Trace) -> bool {
        self.trace.is(trace)
    }

    /// Its login is over: this is who it is.
    pub fn know(&mut self, now: Duration, who: Who) {
        self.who = who;
        self.decide(now, true);
    }

    /// These bytes of iSCSI have come.
    pub fn received(&mut self, now: Duration, bytes: &[u8], framing: Framing) {
        self.take(now, Side::Initiator, Piece::Seen(bytes), framing);
    }

    /// So many bytes have come where they belong.
    pub fn landed(&mut self, now: Duration, bytes: usize, framing: Framing) {
        self.take(now, Side::Initiator, Piece::Unseen(bytes), framing);
    }

    /// These whole PDUs were handed to the system.
    pub fn sent(&mut self, now: Duration, list: &SgList, framing: Framing) {
        for part in list.parts() {
            self.take(now, Side::Target, Piece::Seen(part), framing);
        }
    }

    /// The same, of bytes.
    pub fn sent_bytes(&mut self, now: Duration, bytes: &[u8], framing: Framing) {
        self.take(now, Side::Target, Piece::Seen(bytes), framing);
    }

    /// A PDU was said, whatever carried it; of its data so much is here, or none.
    pub fn message(&mut self, now: Duration, from: Side, header: &[u8], data: &[u8]) {
        if !self.is_wanted() {
            return;
        }
        let Ok(bhs) = BhsView::new_checked(header) else { return };
        let (head, length) = (header.len(), bhs.data_segment_length() as usize);
        let whole = head + pad4(length);
        let keep = kept_of(bhs.opcode(), (head, length, whole), self.trace.terms().data_max);
        let most = length.min(keep.saturating_sub(head));
        let mut kept = [header, data.get(..most).unwrap_or(data)].concat();
        if keep == whole && data.len() >= length {
            kept.resize(whole, 0);
        }
        debug_assert!(kept.len() >= BHS_LEN, "a header is whole");
        self.pdu(now, from, Pdu { kept: &mut kept, head, data: length, length: whole });
    }

    /// The connection is closed.
    pub fn closed(mut self, now: Duration) {
        if matches!(self.state, State::Deciding(_)) {
            self.decide(now, true);
        }
        if matches!(self.state, State::Following) {
            self.begin();
            self.say(now, Side::Target, Flags::Fin);
        }
    }

    fn is_wanted(&self) -> bool {
        self.trace.is_open() && !matches!(self.state, State::Ignoring)
    }

    fn take(&mut self, now: Duration, from: Side, piece: Piece<'_>, framing: Framing) {
        if !self.is_wanted() {
            return;
        }
        let mut cutter = std::mem::replace(&mut self.half(from).cutter, Cutter::new(0));
        let data_max = self.trace.terms().data_max;
        cutter.take(piece, framing, data_max, |pdu| self.pdu(now, from, pdu));
        self.half(from).cutter = cutter;
    }

    fn half(&mut self, from: Side) -> &mut Half {
        match from {
            Side::Target => &mut self.ours,
            Side::Initiator => &mut self.theirs,
        }
    }

    /// A whole PDU.
    fn pdu(&mut self, now: Duration, from: Side, pdu: Pdu<'_>) {
        self.cover(from, &mut *pdu.kept, (pdu.head, pdu.data));
        if !self.is_for_unit(from, pdu.kept) {
            return;
        }
        self.learn(pdu.kept, (pdu.head, pdu.data));
        if let State::Deciding(held) = &mut self.state {
            match held.bytes + pdu.kept.len() <= HELD_BYTES_MAX {
                true => {
                    held.bytes += pdu.kept.len();
                    held.pdus.push((now, from, pdu.kept.to_vec(), pdu.length));
                }
                false => held.lost += 1,
            }
            let ends = is_last_of_login(pdu.kept);
            return self.decide(now, ends);
        }
        self.write(now, from, pdu.kept, pdu.length);
    }

    /// Secrets in texts are covered.
    fn cover(&mut self, from: Side, kept: &mut [u8], (head, data): (usize, usize)) {
        if !is_text(kept) {
            return;
        }
        let continues = kept.get(1).is_some_and(|flags| flags & CONTINUES != 0);
        let end = (head + data).min(kept.len());
        let is_whole = end == head + data;
        let mask = &mut self.half(from).mask;
        if let Some(text) = kept.get_mut(head..end) {
            mask.cover(text);
        }
        match (continues, is_whole) {
            (false, _) => mask.end(),
            (true, true) => {}
            (true, false) => mask.lose(),
        }
    }

    /// What a login says of who it is.
    fn learn(&mut self, kept: &[u8], (head, data): (usize, usize)) {
        let State::Deciding(_) = self.state else { return };
        if !is_login(kept) {
            return;
        }
        if let Some(tsih) = word(kept, TSIH_AT).filter(|tsih| *tsih != 0) {
            self.who.tsih = Some(tsih);
        }
        if opcode(kept) != OPCODE_LOGIN_REQUEST {
            return;
        }
        let text = kept.get(head..(head + data).min(kept.len())).unwrap_or_default();
        if self.names.len() + text.len() <= HELD_BYTES_MAX {
            self.names.extend_from_slice(text);
        }
        // A value that goes on is not known yet.
        let texts = self.names.split_inclusive(|byte| *byte == 0);
        for text in texts.filter_map(|text| text.strip_suffix(&[0])) {
            let Ok(text) = std::str::from_utf8(text) else { continue };
            match text.split_once('=') {
                Some(("InitiatorName", name)) => self.who.initiator = Some(name.to_owned()),
                Some(("TargetName", name)) => self.who.target = Some(name.to_owned()),
                _ => {}
            }
        }
    }

    /// Whether it is wanted, as soon as that is known. `is_all`: nothing more is going to be known.
    fn decide(&mut self, now: Duration, is_all: bool) {
        let State::Deciding(_) = self.state else { return };
        let filter = &self.trace.terms().filter;
        let same = |wanted: &str, name: &str| wanted.eq_ignore_ascii_case(name);
        let fits = [
            fit(filter.target.as_deref(), self.who.target.as_deref(), same),
            fit(filter.initiator.as_deref(), self.who.initiator.as_deref(), same),
            fit(filter.tsih, self.who.tsih, |wanted, tsih| wanted == tsih),
        ];
        if fits.contains(&Some(false)) || is_all && fits.contains(&None) {
            self.state = State::Ignoring;
            self.names = Vec::new();
        } else if fits == [Some(true); 3] {
            let held = std::mem::replace(&mut self.state, State::Following);
            self.names = Vec::new();
            self.trace.count_connection();
            let State::Deciding(Held { pdus, lost, .. }) = held else { return };
            for (time, from, kept, length) in pdus {
                self.write(time, from, &kept, length);
            }
            self.trace.count_lost(lost);
        }
        debug_assert!(!is_all || !matches!(self.state, State::Deciding(_)), "{now:?}");
    }

    /// Whether it is for the unit that is wanted, or for none, or that one is not wanted alone.
    fn is_for_unit(&mut self, from: Side, kept: &[u8]) -> bool {
        let Some(lun) = self.trace.terms().filter.lun else { return true };
        let tag = long(kept, 16).unwrap_or_default();
        let flags = kept.get(1).copied().unwrap_or_default();
        match (from, opcode(kept)) {
            (Side::Initiator, OPCODE_SCSI_COMMAND) => self.tags.begin(tag, is_lun(kept, lun)),
            (Side::Initiator, OPCODE_TASK_MANAGEMENT_REQUEST) => {
                let is_it = is_lun(kept, lun);
                let about = long(kept, REFERENCED_TAG_AT).unwrap_or_default();
                if is_it {
                    self.tags.is_to_end(tag, flags & FUNCTION, about);
                }
                self.tags.begin(tag, is_it)
            }
            (Side::Target, OPCODE_SCSI_RESPONSE) => self.tags.end(tag),
            (Side::Target, OPCODE_TASK_MANAGEMENT_RESPONSE) => {
                let response = kept.get(RESPONSE_AT).copied().unwrap_or_default();
                self.tags.has_ended(tag, RESPONSES_OF_AN_END.contains(&response));
                self.tags.end(tag)
            }
            (Side::Target, OPCODE_DATA_IN) if flags & HAS_STATUS != 0 => self.tags.end(tag),
            (Side::Initiator, OPCODE_DATA_OUT | OPCODE_SNACK)
            | (Side::Target, OPCODE_R2T | OPCODE_DATA_IN) => self.tags.has(tag),
            _ => true,
        }
    }

    /// The beginning of the connection, if that has not been told.
    fn begin(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.say(begun, Side::Initiator, Flags::Syn);
            self.say(begun, Side::Target, Flags::SynAck);
            self.say(begun, Side::Initiator, Flags::Ack);
        }
    }

    fn write(&mut self, time: Duration, from: Side, kept: &[u8], length: usize) {
        self.begin();
        self.put(time, from, Flags::Ack, (kept, length));
    }

    fn say(&mut self, time: Duration, from: Side, flags: Flags) {
        self.put(time, from, flags, (&[], 0));
        let half = self.half(from);
        half.sequence = half.sequence.wrapping_add(u32::from(flags != Flags::Ack));
    }

    fn put(&mut self, time: Duration, from: Side, flags: Flags, (kept, length): (&[u8], usize)) {
        let (half, other) = match from {
            Side::Target => (&self.ours, &self.theirs),
            Side::Initiator => (&self.theirs, &self.ours),
        };
        let acknowledged = if flags == Flags::Syn { 0 } else { other.sequence };
        let (from_address, to, sequence) = (half.from, other.from, half.sequence);
        let packet = Packet { from: from_address, to, sequence, acknowledged, flags, kept, length };
        self.trace.push(time, &packet);
        let half = self.half(from);
        half.sequence = half.sequence.wrapping_add(u32::try_from(length).unwrap_or_default());
    }
}

/// Whether what is there is what is wanted; None: it is not known yet.
fn fit<T>(wanted: Option<T>, there: Option<T>, same: impl Fn(T, T) -> bool) -> Option<bool> {
    match (wanted, there) {
        (None, _) => Some(true),
        (Some(_), None) => None,
        (Some(wanted), Some(there)) => Some(same(wanted, there)),
    }
}

fn opcode(kept: &[u8]) -> u8 {
    kept.first().copied().unwrap_or_default() & 0x3f
}

fn is_login(kept: &[u8]) -> bool {
    matches!(opcode(kept), OPCODE_LOGIN_REQUEST | OPCODE_LOGIN_RESPONSE)
}

fn is_text(kept: &[u8]) -> bool {
    is_login(kept) || matches!(opcode(kept), OPCODE_TEXT_REQUEST | OPCODE_TEXT_RESPONSE)
}

/// With this Login Response the login has succeeded or failed.
fn is_last_of_login(kept: &[u8]) -> bool {
    if opcode(kept) != OPCODE_LOGIN_RESPONSE {
        return false;
    }
    let has_failed = kept.get(STATUS_CLASS_AT).is_some_and(|class| *class != 0);
    let flags = kept.get(1).copied().unwrap_or_default();
    has_failed || flags & TRANSITS_TO_FULL_FEATURE == TRANSITS_TO_FULL_FEATURE
}

/// A number of a header.
fn word(kept: &[u8], at: usize) -> Option<u16> {
    kept.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn long(kept: &[u8], at: usize) -> Option<u32> {
    kept.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Whether a header is for this unit: peripheral or flat space addressing (SAM-5 §4.7).
fn is_lun(kept: &[u8], lun: u16) -> bool {
    let Some(first) = word(kept, 8) else { return false };
    let number = match first >> 14 {
        0 if first < 0x100 => first,
        1 => first & 0x3fff,
        _ => return false,
    };
    number == lun
}

#[cfg(test)]
mod tests;
