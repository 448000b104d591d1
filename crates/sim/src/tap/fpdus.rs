// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens to MPA (RFC 5044): where FPDUs are, what their CRC covers, and what they carry.
//!
//! A flipped length is found only when as many bytes have come as it says, so lengths count as not
//! covered.

use wire::iwarp::ENHANCED_LEN;
use wire::iwarp::LENGTH_LEN;
use wire::iwarp::START_LEN;
use wire::iwarp::fpdu_len;

use super::Heard;
use crate::net::Side;

/// First byte of a request or reply (RFC 5044 §7.1.1).
pub(super) const FIRST_BYTE: u8 = b'M';
/// Where a request or reply has M, C and S.
const FLAGS: usize = 16;
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const ENHANCED: u8 = 0x10;

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Fpdus {
    halves: [Half; 2],
    crc: bool,
    markers: bool,
}

/// One of them.
#[derive(Debug, Default)]
struct Half {
    /// What has come of a request, a reply or an FPDU.
    frame: Vec<u8>,
    /// The request or reply has come.
    begun: bool,
}

impl Fpdus {
    /// Bytes that `side` sends, which are at `at` of their list; notes which of them a CRC covers
    /// and what else there is to know, and appends the segments that end in them.
    pub(super) fn hear(
        &mut self,
        side: Side,
        bytes: &[u8],
        at: usize,
        (heard, segments): (&mut Heard, &mut Vec<Vec<u8>>),
    ) {
        let mut taken = 0;
        while taken < bytes.len() {
            let checks = self.has_digests();
            let half = &mut self.halves[side];
            let before = half.frame.len();
            let head = if half.begun { LENGTH_LEN } else { START_LEN };
            let wanted = if before < head { head } else { half.frame_len() };
            let count = (wanted - before).min(bytes.len() - taken);
            half.frame.extend_from_slice(&bytes[taken..taken + count]);
            let place = at + taken..at + taken + count;
            taken += count;
            if half.begun {
                if checks && before >= LENGTH_LEN {
                    heard.covered.push(place.clone());
                }
                // Whoever cuts before one of these leaves an FPDU that never ends.
                if place.len() > 1 {
                    heard.inside.push(place.start + 1..place.end);
                }
            } else if side == 0 && before >= START_LEN {
                let depths = place.zip(before - START_LEN..);
                let is_enhanced = half.frame[FLAGS] & ENHANCED != 0;
                let depths = depths.filter(|(_, byte)| is_enhanced && *byte < ENHANCED_LEN);
                heard.depths.extend(depths);
            }
            if half.frame.len() < head || half.frame.len() < half.frame_len() {
                continue;
            }
            let frame = std::mem::take(&mut half.frame);
            if std::mem::replace(&mut half.begun, true) {
                let segment = segment(&frame);
                if let Some(start) = taken.checked_sub(frame.len()) {
                    let start = at + start + LENGTH_LEN;
                    heard.frames.push(start..start + segment.len());
                }
                segments.push(segment.to_vec());
            } else {
                self.crc |= frame[FLAGS] & CRC != 0;
                self.markers |= frame[FLAGS] & MARKERS != 0;
            }
        }
    }

    /// Whether both have begun.
    pub(super) fn is_up(&self) -> bool {
        self.halves.iter().all(|half| half.begun)
    }

    /// Whether a CRC covers what is sent.
    pub(super) fn has_digests(&self) -> bool {
        self.is_up() && self.crc && !self.markers
    }

    /// Whether FPDUs follow each other that nothing covers.
    pub(super) fn is_bare(&self) -> bool {
        self.is_up() && !self.crc && !self.markers
    }
}

impl Half {
    /// Bytes of the frame whose head has come.
    fn frame_len(&self) -> usize {
        let at = if self.begun { 0 } else { START_LEN - LENGTH_LEN };
        let length = u16::from_be_bytes([self.frame[at], self.frame[at + 1]]);
        if self.begun { fpdu_len(length) } else { START_LEN + usize::from(length) }
    }
}

/// What an FPDU carries.
fn segment(fpdu: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
    &fpdu[LENGTH_LEN..LENGTH_LEN + length]
}
