// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection, as segments that could have carried it.

use std::net::SocketAddr;
use std::time::Duration;

use buf::SgList;
use wire::pcap::Flags;
use wire::pcap::SEGMENT_LEN_MAX;
use wire::pcap::Segment;

use crate::Capture;
use crate::first_sequence;

/// Which side of the connection the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a connection has two
pub enum Side {
    /// It has connected.
    Initiator,
    /// It was connected to.
    Target,
}

/// Is told what a connection carries, in order: each piece when it is handed to the system, or has
/// come from it. Times are since 1970.
#[derive(Debug)]
pub struct Tap {
    capture: Capture,
    ours: Half,
    theirs: Half,
    /// Of what was told last.
    time: Duration,
    /// Room for a segment that comes in pieces.
    scratch: Vec<u8>,
}

/// One direction.
#[derive(Clone, Copy, Debug)]
struct Half {
    from: SocketAddr,
    /// Of the next byte.
    sequence: u32,
    is_over: bool,
}

impl Tap {
    /// A connection stands; None if the capture takes nothing more.
    #[must_use]
    pub fn open(
        capture: &Capture,
        side: Side,
        (ours, theirs): (SocketAddr, SocketAddr),
        now: Duration,
    ) -> Option<Self> {
        let sequence = first_sequence(now);
        let half = |from| Half { from, sequence, is_over: false };
        let (ours, theirs) = (half(ours), half(theirs));
        let (capture, scratch) = (capture.clone(), Vec::new());
        let mut tap = Self { capture, ours, theirs, time: now, scratch };
        let sent = matches!(side, Side::Initiator);
        tap.say(sent, Flags::Syn);
        tap.say(!sent, Flags::SynAck);
        tap.say(sent, Flags::Ack);
        tap.capture.is_open().then_some(tap)
    }

    /// Whether the capture takes more.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.capture.is_open()
    }

    /// These bytes were handed to the system.
    pub fn sent(&mut self, now: Duration, list: &SgList) {
        if !self.is_open() {
            self.scratch = Vec::new();
            return;
        }
        self.time = now;
        let most = share(list.len());
        let mut scratch = std::mem::take(&mut self.scratch);
        for mut part in list.parts() {
            while !part.is_empty() {
                let (now, later) = part.split_at(part.len().min(most - scratch.len()));
                scratch.extend_from_slice(now);
                part = later;
                if scratch.len() == most {
                    self.carry(true, &scratch);
                    scratch.clear();
                }
            }
        }
        if !scratch.is_empty() {
            self.carry(true, &scratch);
            scratch.clear();
        }
        self.scratch = scratch;
    }

    /// These bytes have come.
    pub fn received(&mut self, now: Duration, bytes: &[u8]) {
        self.time = now;
        bytes.chunks(share(bytes.len())).for_each(|bytes| self.carry(false, bytes));
    }

    /// We send nothing more.
    pub fn shut(&mut self, now: Duration) {
        self.time = now;
        self.end(true);
    }

    /// The other side sends nothing more; `reset`: and has broken off.
    pub fn ended(&mut self, now: Duration, reset: bool) {
        self.time = now;
        match reset && !self.theirs.is_over {
            true => {
                self.say(false, Flags::Reset);
                (self.ours.is_over, self.theirs.is_over) = (true, true);
            }
            false => self.end(false),
        }
    }

    /// The connection is closed.
    pub fn closed(mut self, now: Duration) {
        self.time = now;
        self.end(true);
    }

    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.scratch.capacity()
    }

    fn end(&mut self, sent: bool) {
        if !self.half(sent).is_over {
            self.say(sent, Flags::Fin);
            self.half(sent).is_over = true;
        }
    }

    fn half(&mut self, sent: bool) -> &mut Half {
        if sent { &mut self.ours } else { &mut self.theirs }
    }

    /// Something that takes one number, or none.
    fn say(&mut self, sent: bool, flags: Flags) {
        self.put(sent, flags, &[]);
        let numbers = u32::from(!matches!(flags, Flags::Ack | Flags::Reset));
        let half = self.half(sent);
        half.sequence = half.sequence.wrapping_add(numbers);
    }

    fn carry(&mut self, sent: bool, payload: &[u8]) {
        self.put(sent, Flags::Ack, payload);
        let half = self.half(sent);
        let length = u32::try_from(payload.len()).unwrap_or_default();
        half.sequence = half.sequence.wrapping_add(length);
    }

    fn put(&self, sent: bool, flags: Flags, payload: &[u8]) {
        let (half, other) = if sent { (self.ours, self.theirs) } else { (self.theirs, self.ours) };
        // Whoever begins knows no number of the other side.
        let acknowledged = if flags == Flags::Syn { 0 } else { other.sequence };
        let (from, to, sequence) = (half.from, other.from, half.sequence);
        let segment = Segment { from, to, sequence, acknowledged, flags, payload, missing: 0 };
        self.capture.push(self.time, &segment);
    }
}

/// What each segment carries of so many bytes: about the same, so that none is left with a few.
/// Where an FPDU begins with less than 8 bytes in its segment, tshark sees none, and takes what is
/// in the next ones for others.
fn share(length: usize) -> usize {
    length.div_ceil(length.div_ceil(SEGMENT_LEN_MAX).max(1)).max(1)
}
