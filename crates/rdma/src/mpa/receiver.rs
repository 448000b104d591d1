// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FPDUs that come in, split anywhere. Read first: RFC 5044 §4 and §5.2.

use super::Checks;
use super::Framing;
use crate::violation::Violation;
use alloc::vec::Vec;
use crc::Crc32c;
use crc::crc32c;
use wire::iwarp::CRC_LEN;
use wire::iwarp::Ddp;
use wire::iwarp::LENGTH_LEN;
use wire::iwarp::MARKER_INTERVAL;
use wire::iwarp::MARKER_LEN;
use wire::iwarp::MULPDU_MAX;
use wire::iwarp::Marker;
use wire::iwarp::Markers;
use wire::iwarp::TAGGED_LEN;
use wire::iwarp::Tagged;
use wire::iwarp::fpdu_len;
use wire::iwarp::padding;

/// Finds DDP segments in a stream.
///
/// An FPDU that lies whole in the bytes that are given is lent from there; others are put together
/// first, in memory that grows with what has come, up to one FPDU. Nothing of an FPDU is given out
/// before its CRC has been seen (RFC 5044 §4.4). The payload of a tagged segment may go by the
/// caller, who knows its place from its header ([`Receiver::tagged`]): it is copied and counted in
/// one go, and has not come before its CRC has been seen.
#[derive(Debug)]
pub struct Receiver {
    checks: Checks,
    markers: Markers,
    /// Longest segment that is taken.
    segment_len_max: usize,
    /// The FPDU so far, without markers.
    staged: Vec<u8>,
    /// Of all that has come of the FPDU, markers included.
    crc: Crc32c,
    /// Stream bytes since its length.
    since_length: usize,
    /// Stream bytes up to the next marker.
    to_marker: usize,
    marker: Vec<u8>,
    /// `staged` is whole and was given out.
    is_lent: bool,
    /// The FPDU whose payload goes by the caller.
    passing: Option<Passing>,
    over: Option<Violation>,
}

/// What is to come of an FPDU whose payload goes by the caller.
#[derive(Clone, Copy, Debug)]
struct Passing {
    /// Bytes of the payload.
    payload: usize,
    /// Bytes between it and the CRC, whether they have come or not.
    padding: usize,
}

/// Bytes of an FPDU that say where the payload of a tagged segment goes.
const HEAD_LEN: usize = LENGTH_LEN + TAGGED_LEN;

impl Receiver {
    /// For the first FPDU of a connection.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self {
            checks: framing.checks,
            markers: framing.received,
            segment_len_max: usize::MAX,
            staged: Vec::new(),
            crc: Crc32c::new(),
            since_length: 0,
            to_marker: 0,
            marker: Vec::new(),
            is_lent: false,
            passing: None,
            over: None,
        }
    }

    /// From now on no segment is longer than that: until it is known who the peer is, it has no
    /// reason to make us keep more.
    pub const fn set_segment_len_max(&mut self, segment_len_max: usize) {
        self.segment_len_max = segment_len_max;
    }

    /// Whether these bytes end an FPDU that is given out. With markers, whether they may.
    #[must_use]
    pub fn completes(&self, bytes: &[u8]) -> bool {
        if self.passing.is_some() {
            return false;
        }
        let staged = if self.is_lent { &[][..] } else { &self.staged };
        let mut front = staged.iter().chain(bytes).copied();
        match (front.next(), front.next()) {
            (Some(high), Some(low)) => {
                let length = fpdu_len(u16::from_be_bytes([high, low]));
                self.markers == Markers::Sent || staged.len() + bytes.len() >= length
            }
            _ => false,
        }
    }

    /// Takes bytes, of one FPDU at most: how many, and its segment when it is whole.
    ///
    /// # Errors
    /// What the peer did wrong; the same again from then on.
    pub fn feed<'a>(&'a mut self, bytes: &'a [u8]) -> Result<(usize, Option<&'a [u8]>), Violation> {
        if let Some(violation) = self.over {
            return Err(violation);
        }
        if self.is_lent {
            self.begin();
        }
        match self.find(bytes) {
            Ok(Found::Nothing) => Ok((bytes.len(), None)),
            Ok(Found::Here { taken, ulpdu_length }) => Ok((taken, segment(bytes, ulpdu_length))),
            Ok(Found::Staged { taken, ulpdu_length }) => {
                self.is_lent = true;
                Ok((taken, segment(&self.staged, ulpdu_length)))
            }
            Err(violation) => {
                self.over = Some(violation);
                Err(violation)
            }
        }
    }

    /// The header of the tagged segment whose first bytes these are, with those that have come
    /// before, and the length of its payload. None if it is not all there, or with markers.
    #[must_use]
    pub fn tagged(&self, bytes: &[u8]) -> Option<(Tagged, usize)> {
        let staged = if self.is_lent { &[][..] } else { &self.staged };
        let mut head = [0; HEAD_LEN];
        let (before, here) = head.split_at_mut_checked(staged.len())?;
        before.copy_from_slice(staged);
        here.copy_from_slice(bytes.get(..here.len())?);
        let is_barred = self.markers == Markers::Sent || self.over.is_some();
        let (length, header) = head.split_first_chunk()?;
        let ulpdu_length = u16::from_be_bytes(*length);
        match Ddp::parse(header) {
            Ok(Ddp::Tagged(header)) if !is_barred && self.checked(ulpdu_length).is_ok() => {
                Some((header, usize::from(ulpdu_length) - TAGGED_LEN))
            }
            _ => None,
        }
    }

    /// Takes the header that [`Receiver::tagged`] has found, as far as these bytes have it: how
    /// many they are. The payload goes by the caller, then comes [`Receiver::end_passing`].
    pub fn begin_passing(&mut self, bytes: &[u8], payload: usize) -> usize {
        if self.is_lent {
            self.begin();
        }
        let taken = HEAD_LEN.saturating_sub(self.staged.len());
        if let Some(crc) = self.sum() {
            crc.update(bytes.get(..taken).unwrap_or_default());
        }
        self.staged.clear();
        let ulpdu_length = u16::try_from(TAGGED_LEN + payload).unwrap_or(u16::MAX);
        self.passing = Some(Passing { payload, padding: padding(ulpdu_length) });
        taken
    }

    /// Bytes of the payload that goes by the caller and has not come.
    #[must_use]
    pub fn to_pass(&self) -> usize {
        self.passing.map_or(0, |rest| rest.payload)
    }

    /// Where bytes that go by the caller count; None if nothing is checked.
    pub fn sum(&mut self) -> Option<&mut Crc32c> {
        (self.checks == Checks::Crc).then_some(&mut self.crc)
    }

    /// So many bytes went by the caller.
    pub fn passed(&mut self, length: usize) {
        if let Some(rest) = &mut self.passing {
            rest.payload = rest.payload.saturating_sub(length);
        }
    }

    /// Takes bytes of the end, padding and CRC, of an FPDU whose payload went by the caller: how
    /// many, and whether that was all.
    ///
    /// # Errors
    /// The CRC is wrong: nothing of it has ever come.
    pub fn end_passing(&mut self, bytes: &[u8]) -> Result<(usize, bool), Violation> {
        let Some(Passing { payload: 0, padding }) = self.passing else { return Ok((0, false)) };
        let missing = (padding + CRC_LEN).saturating_sub(self.staged.len());
        let (here, _) = bytes.split_at(bytes.len().min(missing));
        self.staged.extend_from_slice(here);
        if here.len() < missing {
            return Ok((here.len(), false));
        }
        self.crc.update(self.staged.get(..padding).unwrap_or_default());
        (self.passing, self.is_lent) = (None, true);
        self.check_crc().inspect_err(|violation| self.over = Some(*violation))?;
        Ok((here.len(), true))
    }

    /// The segment that was given out last, if it did not lie whole in what was fed.
    #[must_use]
    pub fn staged(&self) -> Option<&[u8]> {
        let ulpdu_length = length_of(&self.staged).filter(|_| self.is_lent)?;
        segment(&self.staged, ulpdu_length)
    }

    /// Whether no FPDU has begun and not ended: where a stream may end (RFC 5044 §7.2).
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.is_lent || self.staged.is_empty() && self.marker.is_empty() && self.passing.is_none()
    }

    /// Memory that it holds, in bytes.
    #[must_use]
    pub const fn bytes_held(&self) -> usize {
        self.staged.capacity()
    }

    fn begin(&mut self) {
        self.staged.clear();
        self.crc = Crc32c::new();
        self.since_length = 0;
        self.is_lent = false;
    }

    fn find(&mut self, bytes: &[u8]) -> Result<Found, Violation> {
        if self.markers == Markers::None
            && self.staged.is_empty()
            && let Some(ulpdu_length) = length_of(bytes)
        {
            let length = self.checked(ulpdu_length)?;
            if let Some(fpdu) = bytes.get(..length) {
                let (covered, crc) = fpdu.split_at(length - CRC_LEN);
                if self.checks == Checks::Crc && crc != crc32c(covered).to_le_bytes() {
                    return Err(Violation::Crc);
                }
                return Ok(Found::Here { taken: length, ulpdu_length });
            }
        }
        self.stage(bytes)
    }

    /// Puts an FPDU together.
    fn stage(&mut self, bytes: &[u8]) -> Result<Found, Violation> {
        let mut rest = bytes;
        loop {
            let length = match length_of(&self.staged) {
                Some(ulpdu_length) => self.checked(ulpdu_length)?,
                None => LENGTH_LEN,
            };
            if let Some(ulpdu_length) = length_of(&self.staged)
                && self.staged.len() == length
            {
                self.check_crc()?;
                return Ok(Found::Staged { taken: bytes.len() - rest.len(), ulpdu_length });
            }
            if rest.is_empty() {
                return Ok(Found::Nothing);
            }
            rest = if self.markers == Markers::Sent && self.to_marker == 0 {
                self.take_marker(rest)?
            } else {
                self.take_data(rest, length)
            };
        }
    }

    fn take_data<'a>(&mut self, bytes: &'a [u8], length: usize) -> &'a [u8] {
        let room = match self.markers {
            Markers::None => usize::MAX,
            Markers::Sent => self.to_marker,
        };
        // The CRC itself is not covered: it is taken by itself.
        let covered = length.saturating_sub(CRC_LEN).max(LENGTH_LEN);
        let end = if self.staged.len() < covered { covered } else { length };
        let missing = end - self.staged.len();
        let (here, rest) = bytes.split_at(missing.min(room).min(bytes.len()));
        if self.checks == Checks::Crc && end == covered {
            self.crc.update(here);
        }
        self.reserve(here.len(), length);
        self.staged.extend_from_slice(here);
        self.since_length += here.len();
        if self.markers == Markers::Sent {
            self.to_marker -= here.len();
        }
        rest
    }

    /// Room for more of an FPDU that has this length: twice as much each time, and no more than it
    /// can take.
    fn reserve(&mut self, more: usize, length: usize) {
        let needed = self.staged.len() + more;
        if needed > self.staged.capacity() {
            let room = needed.max(length.min(2 * self.staged.capacity()));
            self.staged.reserve_exact(room - self.staged.len());
        }
    }

    fn take_marker<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Violation> {
        let missing = MARKER_LEN - self.marker.len();
        let (here, rest) = bytes.split_at(missing.min(bytes.len()));
        self.marker.extend_from_slice(here);
        let Some(marker) = self.marker.first_chunk() else { return Ok(rest) };
        let found = Marker::parse(*marker).fpdu_pointer;
        let wanted = u16::try_from(self.since_length).unwrap_or(u16::MAX);
        if found != wanted {
            return Err(Violation::Marker { wanted, found });
        }
        self.crc.update(marker);
        self.marker.clear();
        if !self.staged.is_empty() {
            self.since_length += MARKER_LEN;
        }
        self.to_marker = MARKER_INTERVAL - MARKER_LEN;
        Ok(rest)
    }

    /// The length of an FPDU whose ULPDU may have this length: a DDP header at least, and with
    /// markers no more than they can point across (RFC 5044 §4.5).
    fn checked(&self, ulpdu_length: u16) -> Result<usize, Violation> {
        let length = usize::from(ulpdu_length);
        let too_long = self.markers == Markers::Sent && length > MULPDU_MAX;
        if length < TAGGED_LEN || too_long {
            return Err(Violation::UlpduLength(ulpdu_length));
        }
        if length > self.segment_len_max {
            return Err(Violation::TooLong(self.segment_len_max));
        }
        Ok(fpdu_len(ulpdu_length))
    }

    fn check_crc(&self) -> Result<(), Violation> {
        let told = self.staged.last_chunk::<CRC_LEN>().copied().map(u32::from_le_bytes);
        match self.checks {
            Checks::Crc if told != Some(self.crc.finish()) => Err(Violation::Crc),
            Checks::Crc | Checks::None => Ok(()),
        }
    }
}

/// What is known of the next FPDU.
#[derive(Debug)]
enum Found {
    /// All bytes were taken, and it is not whole.
    Nothing,
    /// It lies in the bytes that were given.
    Here { taken: usize, ulpdu_length: u16 },
    /// It was put together.
    Staged { taken: usize, ulpdu_length: u16 },
}

fn length_of(fpdu: &[u8]) -> Option<u16> {
    fpdu.first_chunk::<LENGTH_LEN>().map(|length| u16::from_be_bytes(*length))
}

fn segment(fpdu: &[u8], ulpdu_length: u16) -> Option<&[u8]> {
    fpdu.get(LENGTH_LEN..LENGTH_LEN + usize::from(ulpdu_length))
}
