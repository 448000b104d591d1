// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FPDUs that go out. Read first: RFC 5044 §4.

use super::Checks;
use super::Framing;
use buf::SgList;
use buf::Slice;
use crc::Crc32c;
use wire::iwarp::CRC_LEN;
use wire::iwarp::MARKER_INTERVAL;
use wire::iwarp::MARKER_LEN;
use wire::iwarp::MULPDU_MAX;
use wire::iwarp::Marker;
use wire::iwarp::Markers;
use wire::iwarp::padding;

/// Makes FPDUs of DDP segments.
#[derive(Debug)]
pub struct Sender {
    checks: Checks,
    markers: Markers,
    /// Stream bytes up to the next marker.
    to_marker: usize,
}

impl Sender {
    /// For the first FPDU of a connection, which begins with a marker if there are markers
    /// (RFC 5044 §4.3).
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { checks: framing.checks, markers: framing.sent, to_marker: 0 }
    }

    /// Appends the FPDU of a segment to `out`; the payload goes by reference.
    ///
    /// # Panics
    /// If the segment is longer than any may be: the caller cuts them.
    pub fn frame(&mut self, header: &[u8], payload: &Slice, out: &mut SgList) {
        let length = header.len() + payload.len();
        assert!(length <= MULPDU_MAX, "a segment fits an FPDU");
        let length = u16::try_from(length).expect("a segment fits an FPDU");
        let mut fpdu = Fpdu { crc: Crc32c::new(), begun: None, out };
        self.put(&mut fpdu, &length.to_be_bytes());
        self.put(&mut fpdu, header);
        self.put_slice(&mut fpdu, payload);
        let zeroes = [0; CRC_LEN];
        self.put(&mut fpdu, zeroes.get(..padding(length)).unwrap_or_default());
        self.mark(&mut fpdu);
        let crc = match self.checks {
            Checks::Crc => fpdu.crc.finish().to_le_bytes(),
            Checks::None => zeroes,
        };
        self.put(&mut fpdu, &crc);
    }

    fn put(&mut self, fpdu: &mut Fpdu<'_>, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.mark(fpdu);
            let (here, rest) = bytes.split_at(bytes.len().min(self.room()));
            fpdu.out.push_bytes(here);
            self.account(fpdu, here);
            bytes = rest;
        }
    }

    fn put_slice(&mut self, fpdu: &mut Fpdu<'_>, slice: &Slice) {
        let mut at = 0;
        while at < slice.len() {
            self.mark(fpdu);
            let end = slice.len().min(at.saturating_add(self.room()));
            let here = slice.part(at..end).expect("a part lies within its slice");
            self.account(fpdu, here.bytes());
            fpdu.out.push(here);
            at = end;
        }
    }

    /// Puts a marker where one is due.
    fn mark(&mut self, fpdu: &mut Fpdu<'_>) {
        if self.markers == Markers::None || self.to_marker > 0 {
            return;
        }
        let back = fpdu.begun.unwrap_or(0);
        let fpdu_pointer = u16::try_from(back).expect("an FPDU with markers fits 64 KiB");
        let marker = Marker { fpdu_pointer }.emit();
        fpdu.out.push_bytes(&marker);
        fpdu.crc.update(&marker);
        fpdu.begun = fpdu.begun.map(|back| back + MARKER_LEN);
        self.to_marker = MARKER_INTERVAL - MARKER_LEN;
    }

    fn account(&mut self, fpdu: &mut Fpdu<'_>, bytes: &[u8]) {
        if self.checks == Checks::Crc {
            fpdu.crc.update(bytes);
        }
        fpdu.begun = Some(fpdu.begun.unwrap_or(0) + bytes.len());
        if self.markers == Markers::Sent {
            assert!(bytes.len() <= self.to_marker, "markers have their places");
            self.to_marker -= bytes.len();
        }
    }

    /// Bytes that may go before the next marker.
    const fn room(&self) -> usize {
        match self.markers {
            Markers::None => usize::MAX,
            Markers::Sent => self.to_marker,
        }
    }
}

/// The FPDU that is being made.
#[derive(Debug)]
struct Fpdu<'a> {
    crc: Crc32c,
    /// Stream bytes since its length; None before that.
    begun: Option<usize>,
    out: &'a mut SgList,
}
