// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is sent: a stream cut into frames, which are kept until they have come.

use alloc::collections::VecDeque;

use clock::Instant;
use wire::ether::Mac;
use wire::ether::Range;
use wire::ether::Sacks;

use crate::congestion::Congestion;
use crate::figures::Figures;
use crate::limits::REORDER_FRAMES;
use crate::limits::RING_BYTES;
use crate::limits::SEGMENTS_MAX;
use crate::limits::TIMEOUTS_MAX;
use crate::ring::Ring;
use crate::rtt::Rtt;

/// The peer has acknowledged what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// The peer does not answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silent;

/// What the next frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) sequence: u64,
    pub(crate) len: usize,
    pub(crate) fin: bool,
    pub(crate) probe: bool,
}

/// ```text
///     acknowledged        sent            end    window
///  ------|--- segments ----|-- waits ------|------|
/// ```
pub(crate) struct Sender {
    ring: Ring,
    acknowledged: u64,
    sent: u64,
    end: u64,
    /// The stream ends at `end`; that takes a place of its own behind the last byte.
    finished: bool,
    /// What was sent, cut as it was: it is sent again as it was.
    segments: VecDeque<Segment>,
    /// Bytes of those in flight; the end of the stream counts as one.
    in_flight: u64,
    /// How many are lost and wait to be sent again.
    lost: usize,
    /// All before this offset may be sent.
    window_end: u64,
    payload_max: usize,
    congestion: Congestion,
    rtt: Rtt,
    /// Number of the next frame.
    order: u64,
    /// The latest frame that has come.
    newest: Option<u64>,
    /// When a frame that is behind others counts as lost.
    late: Option<Instant>,
    /// When something was sent or has come, last.
    since: Instant,
    /// The tail was asked for, since something has come.
    probed: bool,
    /// A probe is to be sent: of the tail, or of a window that is closed.
    probing: Option<Probe>,
    /// Time-outs in a row.
    timeouts: u32,
    pub(crate) resent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// The last frame once more.
    Tail,
    /// A frame without bytes.
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InFlight,
    Lost,
    /// It has come, and others before it have not.
    Come,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    range: Range,
    fate: Fate,
    order: u64,
    at: Instant,
    again: bool,
}

impl Segment {
    const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Sender {
    pub(crate) fn new(window: u32, payload_max: usize, now: Instant) -> Self {
        Self {
            ring: Ring::new(),
            acknowledged: 0,
            sent: 0,
            end: 0,
            finished: false,
            segments: VecDeque::new(),
            in_flight: 0,
            lost: 0,
            window_end: u64::from(window),
            payload_max,
            congestion: Congestion::new(payload_max as u64),
            rtt: Rtt::default(),
            order: 0,
            newest: None,
            late: None,
            since: now,
            probed: false,
            probing: None,
            timeouts: 0,
            resent: 0,
        }
    }

    /// Where bytes to be sent are put: as much room as is in one piece.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let used =
            usize::try_from(self.end.saturating_sub(self.acknowledged)).unwrap_or(RING_BYTES);
        let free = if self.finished { 0 } else { RING_BYTES.saturating_sub(used) };
        self.ring.piece_mut(self.end, free)
    }

    /// So many bytes were put there.
    pub(crate) fn filled(&mut self, bytes: usize) {
        let bytes = bytes.min(self.room().len());
        self.end += bytes as u64;
    }

    /// Nothing follows.
    pub(crate) const fn finish(&mut self) {
        self.finished = true;
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// All has come, with the end of the stream.
    pub(crate) const fn is_over(&self) -> bool {
        self.finished && self.acknowledged > self.end
    }

    /// The peer has told what has come.
    pub(crate) fn acknowledge(
        &mut self,
        acknowledged: u64,
        window: u32,
        sacks: &Sacks,
        now: Instant,
    ) -> Result<(), Violation> {
        if acknowledged > self.sent || sacks.iter().any(|range| range.end > self.sent) {
            return Err(Violation);
        }
        self.window_end = self.window_end.max(acknowledged.saturating_add(u64::from(window)));
        let was_full = self.in_flight + self.payload_max as u64 >= self.congestion.window();
        let mut come = Come::default();
        while let Some(front) = self.segments.front().copied()
            && front.range.end <= acknowledged
        {
            self.segments.pop_front();
            self.acknowledged = front.range.end;
            self.has_come(&front, &mut come);
        }
        for range in sacks.iter() {
            let first = self.segments.partition_point(|segment| segment.range.start < range.start);
            for index in first..self.segments.len() {
                let Some(segment) = self.segments.get_mut(index) else { break };
                if segment.range.end > range.end {
                    break;
                }
                let before = *segment;
                segment.fate = Fate::Come;
                self.has_come(&before, &mut come);
            }
        }
        if come.bytes > 0 {
            (self.timeouts, self.probed, self.since) = (0, false, now);
            // The answer to a frame that was sent twice may be that to the first one.
            if let Some(at) = come.latest_once {
                self.rtt.measured(now.since(at));
            }
            if was_full {
                self.congestion.delivered(come.bytes);
            }
        }
        if let Some(segment) = come.latest
            && (!segment.again || now.since(segment.at) >= self.rtt.shortest())
        {
            self.newest = self.newest.max(Some(segment.order));
        }
        self.look_for_losses(now);
        Ok(())
    }

    /// Accounts for a segment that has come.
    fn has_come(&mut self, segment: &Segment, come: &mut Come) {
        match segment.fate {
            Fate::Come => return,
            Fate::InFlight => self.in_flight -= segment.len(),
            Fate::Lost => self.lost -= 1,
        }
        come.bytes += segment.len();
        if come.latest.is_none_or(|latest| latest.order < segment.order) {
            come.latest = Some(*segment);
            come.latest_once = (!segment.again).then_some(segment.at);
        }
    }

    /// What was sent before something that has come, by more than may be reordered, is lost.
    fn look_for_losses(&mut self, now: Instant) {
        self.late = None;
        let Some(newest) = self.newest else { return };
        let patience = self.rtt.reordering();
        for segment in &mut self.segments {
            if segment.fate != Fate::InFlight || segment.order >= newest {
                continue;
            }
            let due = segment.at + patience;
            if segment.order + REORDER_FRAMES <= newest || due <= now {
                segment.fate = Fate::Lost;
                self.in_flight -= segment.len();
                self.lost += 1;
                self.congestion.lost(segment.order, self.order);
            } else {
                self.late = Some(self.late.map_or(due, |late| late.min(due)));
            }
        }
    }

    /// When something is to be done though nothing comes.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.in_flight == 0 && !self.is_shut_out() {
            return None;
        }
        let probe = self.in_flight > 0 && !self.probed && self.timeouts == 0;
        let wait = if probe { self.rtt.probe() } else { self.rtt.timeout(self.timeouts) };
        let due = self.since + wait;
        Some(self.late.map_or(due, |late| late.min(due)))
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<(), Silent> {
        if self.late.is_some_and(|late| late <= now) {
            self.look_for_losses(now);
        }
        if self.poll_timeout().is_none_or(|due| now < due) {
            return Ok(());
        }
        self.since = now;
        if self.in_flight == 0 {
            // A peer that is there and has no room may take as long as it likes.
            self.probing = Some(Probe::Empty);
            self.timeouts = (self.timeouts + 1).min(TIMEOUTS_MAX - 1);
        } else if !self.probed && self.timeouts == 0 {
            (self.probed, self.probing) = (true, Some(Probe::Tail));
        } else {
            self.timeouts += 1;
            if self.timeouts >= TIMEOUTS_MAX {
                return Err(Silent);
            }
            for segment in &mut self.segments {
                if segment.fate == Fate::InFlight {
                    segment.fate = Fate::Lost;
                    self.lost += 1;
                }
            }
            self.in_flight = 0;
            self.congestion.timed_out(self.order);
        }
        Ok(())
    }

    /// Something waits, and the peer has no room for it.
    fn is_shut_out(&self) -> bool {
        self.in_flight == 0 && self.lost == 0 && self.sent < self.end && self.fresh() == 0
    }

    /// Bytes that have not been sent and may be, as far as the peer is concerned.
    const fn fresh(&self) -> u64 {
        let allowed = if self.end < self.window_end { self.end } else { self.window_end };
        allowed.saturating_sub(self.sent)
    }

    /// The next frame with bytes, if there is one that may be sent.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Piece> {
        match self.probing.take() {
            Some(Probe::Empty) => {
                return Some(Piece { sequence: self.sent, len: 0, fin: false, probe: true });
            }
            Some(Probe::Tail) => {
                let last = self.segments.iter().rposition(|one| one.fate == Fate::InFlight);
                if let Some(piece) = last.and_then(|index| self.send_again(index, now)) {
                    return Some(piece);
                }
            }
            None => {}
        }
        if self.lost > 0 {
            let first = self.segments.iter().position(|segment| segment.fate == Fate::Lost)?;
            let len = self.segments.get(first)?.len();
            return if self.may_send(len) { self.send_again(first, now) } else { None };
        }
        self.send_fresh(now)
    }

    fn send_again(&mut self, index: usize, now: Instant) -> Option<Piece> {
        let (order, end) = (self.order, self.end);
        let segment = self.segments.get_mut(index)?;
        if segment.fate == Fate::Lost {
            self.lost -= 1;
            self.in_flight += segment.len();
        }
        *segment = Segment { fate: Fate::InFlight, order, at: now, again: true, ..*segment };
        let Range { start, .. } = segment.range;
        let fin = start >= end;
        let len = if fin { 0 } else { usize::try_from(segment.len()).unwrap_or(0) };
        self.order += 1;
        self.resent += 1;
        self.since = now;
        Some(Piece { sequence: start, len, fin, probe: false })
    }

    fn send_fresh(&mut self, now: Instant) -> Option<Piece> {
        if self.segments.len() >= SEGMENTS_MAX {
            return None;
        }
        let payload_max = self.payload_max as u64;
        let (len, fin) = match self.fresh().min(payload_max) {
            0 if self.finished && self.sent == self.end => (1, true),
            0 => return None,
            // A window that is opened in small pieces is not filled in small pieces (RFC 9293
            // §3.8.6.2.1).
            len if len < payload_max && self.sent + len < self.end && self.in_flight > 0 => {
                return None;
            }
            len => (len, false),
        };
        if !self.may_send(len) {
            return None;
        }
        let range = Range { start: self.sent, end: self.sent + len };
        let (fate, order) = (Fate::InFlight, self.order);
        self.segments.push_back(Segment { range, fate, order, at: now, again: false });
        if self.in_flight == 0 {
            // Time-outs of a closed window are no time-outs of this.
            self.timeouts = 0;
        }
        (self.sent, self.order, self.since) = (range.end, self.order + 1, now);
        self.in_flight += len;
        let len = if fin { 0 } else { usize::try_from(len).unwrap_or(0) };
        Some(Piece { sequence: range.start, len, fin, probe: false })
    }

    const fn may_send(&self, len: u64) -> bool {
        self.in_flight == 0 || self.in_flight + len <= self.congestion.window()
    }

    /// The bytes of a piece.
    pub(crate) fn bytes(&self, piece: &Piece) -> [&[u8]; 2] {
        self.ring.pieces(piece.sequence, piece.len)
    }

    /// Where a frame without bytes stands.
    pub(crate) const fn position(&self) -> u64 {
        self.sent
    }

    /// What it has done; the peer and what comes from it are for others to say.
    pub(crate) const fn figures(&self) -> Figures {
        Figures {
            peer: Mac([0; 6]),
            acknowledged: self.acknowledged,
            sent: self.sent,
            allowed: self.window_end,
            window: self.congestion.window(),
            in_flight: self.in_flight,
            resent: self.resent,
            come: 0,
            read: 0,
            payload_max: self.payload_max,
            round_trip: self.rtt.smoothed(),
        }
    }

    /// Its invariants hold.
    pub(crate) fn check(&self) {
        assert!(self.acknowledged <= self.sent && self.sent <= self.end + 1);
        assert!(self.end <= self.acknowledged + RING_BYTES as u64);
        assert!(self.segments.len() <= SEGMENTS_MAX);
        let (mut at, mut in_flight, mut lost) = (self.acknowledged, 0, 0);
        for segment in &self.segments {
            assert_eq!(segment.range.start, at, "segments are without gaps");
            at = segment.range.end;
            match segment.fate {
                Fate::InFlight => in_flight += segment.len(),
                Fate::Lost => lost += 1,
                Fate::Come => {}
            }
        }
        assert_eq!((at, in_flight, lost), (self.sent, self.in_flight, self.lost));
    }
}

/// What an acknowledgement has brought.
#[derive(Default)]
struct Come {
    bytes: u64,
    /// The one that was sent last.
    latest: Option<Segment>,
    /// When, if it was sent once.
    latest_once: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 1000;

    fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    fn sender(bytes: usize) -> Sender {
        let mut sender = Sender::new(1 << 20, FRAME, at(0));
        sender.room()[..bytes].fill(7);
        sender.filled(bytes);
        sender
    }

    fn sequences(sender: &mut Sender, now: Instant) -> Vec<u64> {
        let pieces = core::iter::from_fn(|| sender.poll_transmit(now));
        let pieces = pieces.map(|piece| piece.sequence).collect();
        sender.check();
        pieces
    }

    fn acknowledge(sender: &mut Sender, next: u64, sacks: &[(u64, u64)], now: Instant) {
        let mut told = Sacks::default();
        sacks.iter().for_each(|&(start, end)| assert!(told.push(Range { start, end })));
        sender.acknowledge(next, 1 << 20, &told, now).unwrap();
        sender.check();
    }

    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn a_frame_behind_three_others_is_lost() {
        let mut sender = sender(5 * FRAME);
        assert_eq!(sequences(&mut sender, at(0)), [0, 1000, 2000, 3000, 4000]);
        acknowledge(&mut sender, 0, &[(1000, 3000)], at(1));
        assert_eq!(sequences(&mut sender, at(1)), [], "they may be reordered");
        acknowledge(&mut sender, 0, &[(1000, 4000)], at(1));
        assert_eq!(sequences(&mut sender, at(1)), [0]);
        acknowledge(&mut sender, 5000, &[], at(2));
        assert_eq!(sender.poll_timeout(), None);
    }

    #[test]
    fn a_frame_that_is_late_is_lost() {
        let mut sender = sender(2 * FRAME);
        sequences(&mut sender, at(0));
        acknowledge(&mut sender, 0, &[(1000, 2000)], at(80));
        let due = sender.poll_timeout().unwrap();
        assert_eq!(due, at(90), "9/8 of a round trip");
        sender.handle_timeout(due).unwrap();
        assert_eq!(sequences(&mut sender, due), [0]);
    }

    #[test]
    fn the_tail_is_asked_for_then_all_times_out() {
        let mut sender = sender(2 * FRAME);
        sequences(&mut sender, at(0));
        let probe = sender.poll_timeout().unwrap();
        sender.handle_timeout(probe).unwrap();
        assert_eq!(sequences(&mut sender, probe), [1000]);
        let timeout = sender.poll_timeout().unwrap();
        assert!(timeout > probe);
        sender.handle_timeout(timeout).unwrap();
        assert_eq!(sequences(&mut sender, timeout), [0, 1000]);
        let mut count = 0;
        let silent = loop {
            let due = sender.poll_timeout().unwrap();
            if sender.handle_timeout(due).is_err() {
                break due;
            }
            sequences(&mut sender, due);
            count += 1;
        };
        assert!(count > 10 && (at(10_000)..at(40_000)).contains(&silent), "{count} {silent:?}");
    }

    #[test]
    fn a_closed_window_is_asked_about_and_the_end_needs_none() {
        let mut sender = Sender::new(500, FRAME, at(0));
        sender.filled(600);
        assert_eq!(sequences(&mut sender, at(0)), [0]);
        sender.acknowledge(500, 0, &Sacks::default(), at(1)).unwrap();
        let due = sender.poll_timeout().unwrap();
        sender.handle_timeout(due).unwrap();
        let probe = sender.poll_transmit(due).unwrap();
        assert_eq!(probe, Piece { sequence: 500, len: 0, fin: false, probe: true });
        sender.finish();
        assert_eq!(sequences(&mut sender, due), []);
        sender.acknowledge(500, 100, &Sacks::default(), due).unwrap();
        let pieces = [sender.poll_transmit(due).unwrap(), sender.poll_transmit(due).unwrap()];
        assert_eq!(pieces.map(|piece| (piece.sequence, piece.fin)), [(500, false), (600, true)]);
        acknowledge(&mut sender, 601, &[], due);
        assert!(sender.is_over());
    }

    #[test]
    fn nothing_is_believed_of_what_was_not_sent() {
        let mut sender = sender(FRAME);
        assert_eq!(sender.acknowledge(1, 0, &Sacks::default(), at(0)), Err(Violation));
        sequences(&mut sender, at(0));
        let mut sacks = Sacks::default();
        sacks.push(Range { start: 5, end: 1001 });
        assert_eq!(sender.acknowledge(0, 0, &sacks, at(0)), Err(Violation));
        // In the middle of a frame: it has not come.
        acknowledge(&mut sender, 500, &[(300, 700)], at(0));
        assert_eq!(vec![sender.in_flight], [1000]);
    }
}
