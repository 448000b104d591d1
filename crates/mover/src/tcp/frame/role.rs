// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the frame machine asks of the role that it serves, and what it gives it.

use alloc::vec::Vec;
use core::fmt;

use buf::Buf;

use super::segment::Segment;

/// What one end of a connection makes of the PDUs that it receives.
pub(in crate::tcp) trait Role: fmt::Debug {
    type Event;
    type Violation: Copy + fmt::Debug;
    /// What lends and takes back buffers.
    type Tasks;
    /// What else a step may need.
    type Context<'a>;

    /// Longest AHS list that is taken, bytes. More is left to the parser, which refuses it.
    const AHS_LEN_MAX: usize;

    /// What the core is told of a stream that cannot go on.
    fn violated(violation: Self::Violation) -> Self::Event;

    /// The role's name of what the frame machine found.
    fn breach(breach: Breach) -> Self::Violation;

    /// The first bytes of a header are there: whether they may be here.
    fn check_start(&self, _header: &[u8]) -> Result<(), Self::Violation> {
        Ok(())
    }

    /// Whether PDUs of this opcode may have an AHS.
    fn check_additional(_opcode: u8) -> Result<(), Self::Violation> {
        Ok(())
    }

    /// The header is whole and verified: decides where its data goes, or, of a PDU without data,
    /// what it means to the core.
    fn begin(
        &mut self,
        pdu: Pdu<'_>,
        context: &mut Self::Context<'_>,
    ) -> Result<Begun<Self::Event>, Self::Violation>;

    /// The event of `Begun::Told` was dealt with.
    fn resume(&mut self, _context: &mut Self::Context<'_>) {}

    /// Puts the next data bytes where they belong.
    fn place(&mut self, part: &[u8], segment: &mut Segment, context: &mut Self::Context<'_>);

    /// Gives out the buffer for the next `length` data bytes, and where in it they begin.
    fn lend(&mut self, length: usize, tasks: &mut Self::Tasks) -> Option<(Buf, usize)>;

    /// Takes back what `lend` gave out, with the next `bytes` data bytes in it. All of them count
    /// for the digest.
    fn landed(
        &mut self,
        buf: Buf,
        bytes: usize,
        segment: &mut Segment,
        context: &mut Self::Context<'_>,
    );

    /// A header is corrupt, of which nothing is known then.
    fn count_corrupt_header(_context: &mut Self::Context<'_>) {}

    /// The data is corrupt: an event that comes before that of the end.
    fn tell_corrupt(&mut self, _context: &mut Self::Context<'_>) -> Option<Self::Event> {
        None
    }

    /// The end of a PDU of which `tell_corrupt` has told.
    fn end_told(&mut self, _context: &mut Self::Context<'_>) -> Option<Self::Event> {
        None
    }

    /// The data is whole: what the PDU means to the core.
    fn end(
        &mut self,
        integrity: Integrity,
        pdu: Pdu<'_>,
        context: &mut Self::Context<'_>,
    ) -> Result<Option<Self::Event>, Self::Violation>;
}

/// What breaks the framing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) enum Breach {
    HeaderDigest,
    SegmentTooLong { length: u32, limit: u32 },
    Marker,
}

/// Whether the data of a PDU arrived as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) enum Integrity {
    Good,
    Corrupt,
}

/// A PDU whose header is verified.
#[derive(Debug)]
pub(in crate::tcp) struct Pdu<'a> {
    /// BHS and AHS.
    pub(in crate::tcp) header: &'a [u8],
    /// DataSegmentLength.
    pub(in crate::tcp) length: u32,
    /// It has a header digest.
    pub(in crate::tcp) digested: bool,
    /// What was kept by [`Segment::keep`]: what the core is shown after the event.
    pub(in crate::tcp) control: &'a mut Vec<u8>,
}

/// What a header leads to.
#[derive(Debug)]
pub(in crate::tcp) enum Begun<E> {
    /// There is no data: the end.
    Whole(Option<E>),
    /// Data.
    Data,
    /// Data, and something is told before its first byte.
    Told(E),
}
