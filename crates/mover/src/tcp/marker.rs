// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed interval markers: eight bytes that tell where the next PDU begins, at places of the stream
//! that do not depend on PDUs.
//!
//! Read first: RFC 3720 appendix A. RFC 7143 §13.25 made the keys obsolete; they are negotiated
//! where the configuration asks for it only.
//!
//! A marker stands wherever the bytes of the stream, those of markers included and counted from the
//! first byte of the connection, make up one interval after the marker before. The login has none,
//! but its bytes count. The pointer, twice in each marker, counts payload bytes from the marker to
//! the next header. Digests do not cover markers: they are put in after digests were taken and
//! taken out before digests are checked.

use alloc::vec::Vec;

use buf::{SgList, Slice};
use wire::iscsi::{BHS_LEN, MARKER_LEN, Marker, pad4};

use super::DIGEST_LEN;

/// Which digests PDUs have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digests {
    pub(super) header: bool,
    pub(super) data: bool,
}

/// Where the next marker of one direction stands.
#[derive(Clone, Copy, Debug)]
struct MarkerPosition {
    /// Payload bytes from one marker to the next.
    interval: usize,
    /// Payload bytes before the next marker.
    until: usize,
}

impl MarkerPosition {
    /// For markers that begin after `position` bytes of the stream. A marker that would have begun
    /// before is left out whole.
    fn new(interval: u32, position: u64) -> Self {
        let interval = u64::from(interval.max(1));
        let cycle = interval + MARKER_LEN as u64;
        let at = position % cycle;
        let until = if at <= interval { interval - at } else { cycle - at + interval };
        let small = |count| usize::try_from(count).unwrap_or(usize::MAX);
        Self { interval: small(interval), until: small(until) }
    }

    /// `count` payload bytes have passed.
    fn pass(&mut self, count: usize) {
        debug_assert!(count <= self.until, "payload beyond a marker");
        self.until = self.until.saturating_sub(count);
    }

    /// The marker has passed.
    fn renew(&mut self) {
        debug_assert_eq!(self.until, 0, "a marker at its place");
        self.until = self.interval;
    }
}

/// Puts markers into what is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inserter(MarkerPosition);

impl Inserter {
    /// For the stream after its first `position` bytes.
    pub(super) fn new(interval: u32, position: u64) -> Self {
        Self(MarkerPosition::new(interval, position))
    }

    /// Replaces a list of whole PDUs by the same with markers. The bytes are copied: markers serve
    /// old peers and studies, not speed.
    pub(super) fn mark(&mut self, list: &mut SgList, digests: Digests) {
        let payload = list.to_vec();
        let mut rest = payload.as_slice();
        let mut marked = Vec::with_capacity(payload.len() + payload.len() / 2);
        let mut next_pdu = 0;
        while !rest.is_empty() {
            let at = payload.len() - rest.len();
            while next_pdu < at {
                next_pdu += pdu_len(payload.get(next_pdu..).unwrap_or_default(), digests);
            }
            if self.0.until == 0 {
                let pointer = u32::try_from(next_pdu - at).unwrap_or(u32::MAX);
                marked.extend_from_slice(&Marker::new(pointer).emit());
                self.0.renew();
            }
            let (part, tail) = rest.split_at(self.0.until.min(rest.len()));
            marked.extend_from_slice(part);
            self.0.pass(part.len());
            rest = tail;
        }
        list.clear();
        list.push(Slice::from(marked));
    }
}

/// Takes markers out of what is received.
#[derive(Debug)]
pub(super) struct Stripper {
    place: MarkerPosition,
    /// Bytes of the marker at hand.
    marker: [u8; MARKER_LEN],
    have: usize,
}

/// What comes next in a marked stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// At most so many bytes of payload.
    Payload(usize),
    /// A marker, now whole.
    Marker(Marker),
    /// The rest of a marker.
    Starved,
}

impl Stripper {
    /// For the stream after its first `position` bytes.
    pub(super) fn new(interval: u32, position: u64) -> Self {
        Self { place: MarkerPosition::new(interval, position), marker: [0; MARKER_LEN], have: 0 }
    }

    /// Cuts bytes of a marker off the front of `rest`, if it stands there.
    pub(super) fn next(&mut self, rest: &mut &[u8]) -> Next {
        if self.place.until > 0 {
            return Next::Payload(self.place.until);
        }
        let (part, tail) = rest.split_at((MARKER_LEN - self.have).min(rest.len()));
        for (to, from) in self.marker.iter_mut().skip(self.have).zip(part) {
            *to = *from;
        }
        self.have += part.len();
        *rest = tail;
        if self.have < MARKER_LEN {
            return Next::Starved;
        }
        self.have = 0;
        self.place.renew();
        Next::Marker(Marker::parse(self.marker))
    }

    /// `count` payload bytes were taken.
    pub(super) fn pass(&mut self, count: usize) {
        self.place.pass(count);
    }
}

/// Bytes of the PDU that `bytes` begin with, digests included. At least one, so that a caller that
/// goes from PDU to PDU gets on.
pub(super) fn pdu_len(bytes: &[u8], digests: Digests) -> usize {
    let [_, _, _, _, ahs, l2, l1, l0] = *bytes.first_chunk().unwrap_or(&[0; 8]);
    let header = BHS_LEN + usize::from(ahs) * 4;
    let data = u32::from_be_bytes([0, l2, l1, l0]) as usize;
    let header_digest = if digests.header { DIGEST_LEN } else { 0 };
    let data_digest = if digests.data && data > 0 { DIGEST_LEN } else { 0 };
    header + header_digest + pad4(data) + data_digest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 3720 §A.2: intervals of 512 bytes, a login of 1003 bytes.
    #[test]
    fn the_login_counts_as_if_it_had_markers() {
        assert_eq!(MarkerPosition::new(512, 1003).until, 1032 - 1003);
        assert_eq!(MarkerPosition::new(512, 0).until, 512);
        assert_eq!(MarkerPosition::new(512, 512).until, 0, "right behind the login");
        assert_eq!(
            MarkerPosition::new(512, 513).until,
            1032 - 513,
            "it would have begun in the login"
        );
        assert_eq!(MarkerPosition::new(512, 519).until, 1032 - 519);
        assert_eq!(MarkerPosition::new(512, 520).until, 512);
        assert_eq!(MarkerPosition::new(4, 12).until, 4);
    }

    #[test]
    fn lengths_of_pdus() {
        let mut header = [0; BHS_LEN];
        header[4] = 2;
        header[7] = 5;
        let on = Digests { header: true, data: true };
        let off = Digests { header: false, data: false };
        assert_eq!(pdu_len(&header, on), 48 + 8 + 4 + 8 + 4);
        assert_eq!(pdu_len(&header, off), 48 + 8 + 8);
        header[7] = 0;
        assert_eq!(pdu_len(&header, on), 48 + 8 + 4);
        assert_eq!(pdu_len(&[], off), 48);
    }
}
