// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes: pieces of a stream in any order, once or more, until they are read in order.

use alloc::vec::Vec;

use wire::ether::Data;
use wire::ether::Range;
use wire::ether::Sacks;

use crate::limits::RANGES_MAX;
use crate::limits::RING_BYTES;
use crate::ring::Ring;

/// The peer has broken the rules of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// ```text
///      read           next        range     range       window
///  ------|---- there ---|-- gap --|-----|---|----|--------|
/// ```
pub(crate) struct Receiver {
    ring: Ring,
    /// All before it was read.
    read: u64,
    /// All before it has come.
    next: u64,
    /// What has come beyond, in order, with gaps between.
    ranges: Vec<Range>,
    /// A byte of what came last, which is told first.
    latest: u64,
    /// Where the stream ends.
    fin: Option<u64>,
    /// The window's end, as the peer knows it.
    told: u64,
    /// Something is to be told.
    due: bool,
    /// What comes is dropped: nobody reads any more.
    dropping: bool,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            ring: Ring::new(),
            read: 0,
            next: 0,
            ranges: Vec::with_capacity(RANGES_MAX),
            latest: 0,
            fin: None,
            told: RING_BYTES as u64,
            due: false,
            dropping: false,
        }
    }

    /// A piece has come. Whether it is new does not matter to who has sent it: it is answered.
    pub(crate) fn take(&mut self, data: &Data<'_>) -> Result<(), Violation> {
        let Data { sequence, payload, fin, probe, .. } = *data;
        if payload.is_empty() && !fin {
            // It only tells what has come.
            self.due |= probe;
            return Ok(());
        }
        let end = sequence.checked_add(payload.len() as u64).ok_or(Violation)?;
        if fin {
            let highest = self.ranges.last().map_or(self.next, |range| range.end);
            if self.fin.is_some_and(|before| before != end) || highest > end {
                return Err(Violation);
            }
            self.fin = Some(end);
        }
        if self.fin.is_some_and(|fin| end > fin) {
            return Err(Violation);
        }
        self.due = true;
        let edge = self.read + RING_BYTES as u64;
        // What is beyond the window comes again when there is room.
        if !payload.is_empty() && end > self.next && end <= edge {
            let from = sequence.max(self.next);
            let skip = usize::try_from(from - sequence).unwrap_or(usize::MAX);
            let payload = payload.get(skip..).unwrap_or_default();
            if self.note(Range { start: from, end }) {
                self.ring.write(from, payload);
                self.latest = from;
            }
        }
        if self.dropping {
            self.read = self.next;
        }
        Ok(())
    }

    /// Takes a range into account; false if there is no room for it. Where it overlaps others the
    /// bytes are those of whoever came last.
    fn note(&mut self, new: Range) -> bool {
        if new.start <= self.next {
            self.next = new.end;
            let next = &mut self.next;
            self.ranges.retain(|range| {
                if range.start <= *next {
                    *next = (*next).max(range.end);
                }
                range.end > *next
            });
            return true;
        }
        let before = self.ranges.iter().filter(|range| range.end < new.start).count();
        let touched = self.ranges.iter().skip(before).take_while(|range| range.start <= new.end);
        let (count, joined) = touched.fold((0, new), |(count, joined), range| {
            let (start, end) = (joined.start.min(range.start), joined.end.max(range.end));
            (count + 1, Range { start, end })
        });
        if count == 0 && self.ranges.len() >= RANGES_MAX {
            return false;
        }
        self.ranges.splice(before..before + count, [joined]);
        true
    }

    /// What can be read, as much as is in one piece.
    pub(crate) fn readable(&self) -> &[u8] {
        self.ring.piece(self.read, usize::try_from(self.next - self.read).unwrap_or(0))
    }

    /// So many bytes of it were read.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.read = self.next.min(self.read + bytes as u64);
        // A window is told when it has grown by a quarter, so that it is worth a frame.
        self.due |= self.read + RING_BYTES as u64 - self.told >= RING_BYTES as u64 / 4;
    }

    /// Nobody reads any more.
    pub(crate) fn drop_all(&mut self) {
        self.dropping = true;
        self.consume(usize::MAX / 2);
    }

    /// The peer sends no more, and all was read.
    pub(crate) fn is_over(&self) -> bool {
        self.fin == Some(self.read)
    }

    pub(crate) const fn is_due(&self) -> bool {
        self.due
    }

    /// The next byte expected; the end of the stream counts as one.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.next + u64::from(self.fin == Some(self.next))
    }

    /// The next byte expected, where the end counts as one, and the next one to be read.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.acknowledged(), self.read)
    }

    /// What the next frame tells: the next byte expected, the window, and what has come beyond.
    pub(crate) fn tell(&mut self) -> (u64, u32, Sacks) {
        self.due = false;
        self.told = self.read + RING_BYTES as u64;
        let mut sacks = Sacks::default();
        let latest = |range: &&Range| range.start <= self.latest && self.latest < range.end;
        let others = self.ranges.iter().filter(|range| !latest(range));
        for range in self.ranges.iter().filter(latest).chain(others) {
            if !sacks.push(*range) {
                break;
            }
        }
        (self.acknowledged(), u32::try_from(self.told - self.next).unwrap_or(u32::MAX), sacks)
    }

    /// Its invariants hold.
    pub(crate) fn check(&self) {
        assert!(self.read <= self.next && self.next <= self.read + RING_BYTES as u64);
        assert!(self.ranges.len() <= RANGES_MAX);
        let starts = self.ranges.iter().map(|range| range.start);
        let ends = core::iter::once(self.next).chain(self.ranges.iter().map(|range| range.end));
        assert!(starts.zip(ends).all(|(start, before)| before < start), "gaps are between ranges");
        assert!(self.ranges.iter().all(|range| range.start < range.end), "none is empty");
        let last = self.ranges.last().map_or(self.next, |range| range.end);
        assert!(last <= self.read + RING_BYTES as u64);
        assert!(self.fin.is_none_or(|fin| last <= fin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(sequence: u64, payload: &[u8], fin: bool) -> Data<'_> {
        let (acknowledged, window, probe, sacks) = (0, 0, false, Sacks::default());
        Data { sequence, acknowledged, window, fin, probe, sacks, payload }
    }

    fn ranges(sacks: Sacks) -> Vec<(u64, u64)> {
        sacks.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn pieces_come_in_any_order() {
        let mut receiver = Receiver::new();
        receiver.take(&data(6, b"gh", false)).unwrap();
        receiver.take(&data(2, b"cd", false)).unwrap();
        let (next, window, sacks) = receiver.tell();
        assert_eq!((next, usize::try_from(window)), (0, Ok(RING_BYTES)));
        assert_eq!(ranges(sacks), [(2, 4), (6, 8)], "the latest first");
        receiver.take(&data(3, b"defg", false)).unwrap();
        assert_eq!(ranges(receiver.tell().2), [(2, 8)]);
        receiver.take(&data(0, b"abc", false)).unwrap();
        receiver.take(&data(8, b"", true)).unwrap();
        receiver.take(&data(0, b"abcd", false)).unwrap();
        assert_eq!(receiver.readable(), b"abcdefgh");
        let (next, _, sacks) = receiver.tell();
        assert_eq!((next, ranges(sacks)), (9, Vec::new()), "the end counts");
        assert!(!receiver.is_over());
        receiver.consume(8);
        receiver.check();
        assert!(receiver.is_over());
    }

    #[test]
    fn memory_and_ranges_are_bounded() {
        let mut receiver = Receiver::new();
        for at in 0..2 * RANGES_MAX as u64 {
            receiver.take(&data(2 * at + 1, b"x", false)).unwrap();
            receiver.check();
        }
        assert_eq!(receiver.ranges.len(), RANGES_MAX);
        // Beyond the window nothing is kept.
        receiver.take(&data(RING_BYTES as u64, b"x", false)).unwrap();
        receiver.take(&data(u64::MAX - 1, b"x", false)).unwrap();
        assert_eq!(receiver.take(&data(u64::MAX, b"x", false)), Err(Violation));
        receiver.check();
        receiver.drop_all();
        receiver.take(&data(0, &[1; 1000], false)).unwrap();
        receiver.check();
        assert_eq!((receiver.readable(), receiver.read), (&[][..], 1000));
    }

    #[test]
    fn a_stream_has_one_end() {
        let mut receiver = Receiver::new();
        receiver.take(&data(0, b"ab", true)).unwrap();
        assert_eq!(receiver.take(&data(0, b"abc", false)), Err(Violation));
        assert_eq!(receiver.take(&data(0, b"a", true)), Err(Violation));
        receiver.take(&data(1, b"b", true)).unwrap();
        let mut late = Receiver::new();
        late.take(&data(5, b"x", false)).unwrap();
        assert_eq!(late.take(&data(0, b"ab", true)), Err(Violation), "something is behind it");
    }

    #[test]
    fn a_window_that_opens_is_told() {
        let mut receiver = Receiver::new();
        let piece = [0; RING_BYTES / 8];
        for at in 0..8 {
            receiver.take(&data(at * piece.len() as u64, &piece, false)).unwrap();
        }
        assert_eq!(receiver.tell().1, 0);
        receiver.consume(piece.len());
        assert!(!receiver.is_due());
        receiver.consume(piece.len());
        assert!(receiver.is_due());
        assert_eq!(usize::try_from(receiver.tell().1), Ok(RING_BYTES / 4));
    }
}
