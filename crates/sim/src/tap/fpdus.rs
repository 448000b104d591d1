// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens to MPA (RFC 5044): where FPDUs are, and what their CRC covers.
//!
//! Of what they carry it knows nothing. A flipped length is found only when as many bytes have come
//! as it says, so lengths count as not covered.

use std::ops::Range;

use crate::net::Side;

/// First byte of a request or reply (RFC 5044 §7.1.1).
pub(super) const FIRST_BYTE: u8 = b'M';
const START_LEN: usize = 20;
/// Where a request or reply has M and C.
const FLAGS: usize = 16;
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const LENGTH_LEN: usize = 2;
const CRC_LEN: usize = 4;

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
    /// What has come of a request, a reply or the length of an FPDU.
    head: Vec<u8>,
    /// Bytes that are left of what that has begun,
    left: usize,
    /// which is an FPDU.
    in_fpdu: bool,
    /// The request or reply has come.
    begun: bool,
}

impl Fpdus {
    /// Bytes that `side` sends, which are at `at` of their list; appends which of them a CRC
    /// covers.
    pub(super) fn hear(
        &mut self,
        side: Side,
        bytes: &[u8],
        at: usize,
        covered: &mut Vec<Range<usize>>,
    ) {
        let mut taken = 0;
        while taken < bytes.len() {
            let has_digests = self.has_digests();
            let half = &mut self.halves[side];
            let rest = &bytes[taken..];
            if half.left > 0 {
                let count = half.left.min(rest.len());
                half.left -= count;
                if half.in_fpdu && has_digests {
                    covered.push(at + taken..at + taken + count);
                }
                taken += count;
                continue;
            }
            let wanted = if half.begun { LENGTH_LEN } else { START_LEN };
            let count = (wanted - half.head.len()).min(rest.len());
            half.head.extend_from_slice(&rest[..count]);
            taken += count;
            if half.head.len() == wanted {
                self.headed(side);
            }
        }
    }

    fn headed(&mut self, side: Side) {
        let half = &mut self.halves[side];
        let head = std::mem::take(&mut half.head);
        let length = usize::from(u16::from_be_bytes([head[head.len() - 2], head[head.len() - 1]]));
        half.in_fpdu = half.begun;
        if half.begun {
            half.left = (LENGTH_LEN + length).next_multiple_of(4) - LENGTH_LEN + CRC_LEN;
        } else {
            half.begun = true;
            half.left = length;
            self.crc |= head[FLAGS] & CRC != 0;
            self.markers |= head[FLAGS] & MARKERS != 0;
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
}
