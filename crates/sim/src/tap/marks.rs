// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Markers of one direction (RFC 3720 appendix A): where they stand, and whether they are right.

use wire::iscsi::MARKER_LEN;
use wire::iscsi::Marker;

/// The markers of one direction, from the full feature phase on.
#[derive(Debug)]
pub(super) struct Marks {
    interval: usize,
    /// Payload bytes before the next marker.
    until: usize,
    /// What there is of a marker.
    marker: Vec<u8>,
    /// Payload bytes so far.
    payload: u64,
    /// Where markers said that the next header begins, payload bytes.
    pointed: Vec<u64>,
}

impl Marks {
    /// After `position` bytes of the stream, which count but have no markers.
    pub(super) fn new(interval: usize, position: usize) -> Self {
        let cycle = interval + MARKER_LEN;
        let at = position % cycle;
        let until = if at <= interval { interval - at } else { cycle - at + interval };
        Self { interval, until, marker: Vec::new(), payload: 0, pointed: Vec::new() }
    }

    /// How many of the bytes at the front of `rest` belong to a marker.
    pub(super) fn take(&mut self, rest: &[u8]) -> usize {
        if self.until > 0 {
            return 0;
        }
        let taken = rest.len().min(MARKER_LEN - self.marker.len());
        self.marker.extend_from_slice(&rest[..taken]);
        if let Ok(marker) = <[u8; MARKER_LEN]>::try_from(self.marker.as_slice()) {
            // Two copies that differ point nowhere.
            let pointer = Marker::parse(marker).pointer().map_or(u64::MAX, u64::from);
            self.pointed.push(self.payload.saturating_add(pointer));
            self.marker.clear();
            self.until = self.interval;
        }
        taken
    }

    /// Payload bytes that may be looked at before the next marker.
    pub(super) const fn until(&self) -> usize {
        self.until
    }

    /// So many payload bytes have passed.
    pub(super) const fn pass(&mut self, count: usize) {
        self.until -= count;
        self.payload += count as u64;
    }

    /// A header begins here: did the markers before it say so?
    pub(super) fn header(&mut self) -> Result<(), String> {
        let at = self.payload;
        let wrong = self.pointed.iter().find(|pointed| **pointed != at);
        let said = wrong.map(|pointed| format!("a marker said {pointed}, the header is at {at}"));
        self.pointed.clear();
        said.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_stands_after_each_interval_and_points_to_a_header() {
        let mut marks = Marks::new(100, 60);
        assert_eq!((marks.until(), marks.take(&[0; 40])), (40, 0));
        marks.pass(40);
        let marker = Marker::new(7).emit();
        assert_eq!((marks.take(&marker[..3]), marks.take(&marker[3..])), (3, 5));
        assert_eq!(marks.until(), 100);
        marks.pass(7);
        assert!(marks.header().is_ok());
        marks.pass(93);
        assert_eq!(marks.take(&marker), MARKER_LEN);
        marks.pass(6);
        assert!(marks.header().is_err());
        assert_eq!(Marks::new(100, 104).until(), 104);
    }
}
