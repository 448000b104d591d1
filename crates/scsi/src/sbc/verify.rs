// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VERIFY (SBC-3 §5.29-§5.31): reads piece by piece, and compares where BYTCHK says so.

use super::compare::first_difference;
use crate::limits;
use crate::lun::Context;
use crate::lun::Extent;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use buf::Slice;
use store::Op;

/// A VERIFY under way.
#[derive(Debug)]
pub(crate) struct Verify {
    start: u64,
    /// Where the next read starts, and where all ends: bytes.
    at: u64,
    end: u64,
    /// Length of the read under way.
    piece: u32,
    check: Check,
    last: Last,
}

/// How it ends where all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Good,
    /// PRE-FETCH.
    ConditionMet,
}

/// What each block must be.
#[derive(Debug)]
enum Check {
    /// Readable: BYTCHK = 00b.
    Readable,
    /// Awaits this many bytes to compare with.
    Awaits(u32),
    /// The same as its place here, over and over: all bytes (BYTCHK = 01b) or one block (11b).
    Equal(Slice),
}

/// VERIFY(10), (12), (16).
pub(crate) fn verify(context: &Context<'_>) -> Result<Started, Fault> {
    let byte_check = context.cdb.byte_check();
    if byte_check == 2 {
        return Err(context.flag_field(2).into());
    }
    let (extent, length) = context.transfer()?;
    if length == 0 {
        return Ok(task::good(0));
    }
    let needed = match byte_check {
        0 => 0,
        1 => length,
        _ => context.unit.block(),
    };
    if context.request.expected_out < needed {
        return Err(sense::short_data_out(u64::from(needed)));
    }
    let check = if needed == 0 { Check::Readable } else { Check::Awaits(needed) };
    let mut verify = Verify::new(extent, check, Last::Good);
    let step = if needed == 0 { verify.step() } else { Step::ReceiveDataOut { length: needed } };
    Ok((Machine::Verify(verify), step))
}

impl Verify {
    const fn new(extent: Extent, check: Check, last: Last) -> Self {
        let (start, end) = (extent.offset, extent.offset + extent.length);
        Self { start, at: start, end, piece: 0, check, last }
    }

    /// Reads and forgets.
    pub(crate) const fn pre_fetch(extent: Extent) -> Self {
        Self::new(extent, Check::Readable, Last::ConditionMet)
    }

    /// Reads what was written and compares it with what was sent, if that is there.
    pub(crate) fn written(extent: Extent, sent: Option<Slice>) -> Self {
        Self::new(extent, sent.map_or(Check::Readable, Check::Equal), Last::Good)
    }

    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        if let Check::Awaits(needed) = self.check {
            self.check = Check::Equal(task::data_out(input, needed)?);
            return Ok(self.step());
        }
        let read = task::data_in(input, unit.lba_of(self.at), self.piece)?;
        if let Check::Equal(expected) = &self.check {
            let place = usize::try_from(self.at - self.start).unwrap_or(usize::MAX);
            if let Some(at) = difference(read.bytes(), expected.bytes(), place) {
                let at = self.at - self.start + u64::try_from(at).unwrap_or(0);
                return Err(sense::MISCOMPARE.with_information(at).into());
            }
        }
        self.at += u64::from(self.piece);
        Ok(self.step())
    }

    pub(crate) fn step(&mut self) -> Step {
        let left = self.end - self.at;
        if left == 0 && self.last == Last::ConditionMet {
            return Step::Complete(task::condition_met());
        }
        if left == 0 {
            let presented = match &self.check {
                Check::Equal(expected) => u64::try_from(expected.len()).unwrap_or(u64::MAX),
                Check::Readable | Check::Awaits(_) => 0,
            };
            return Step::Complete(sense::good(presented));
        }
        self.piece =
            u32::try_from(left).map_or(limits::PIECE_MAX, |left| left.min(limits::PIECE_MAX));
        Step::Store(Op::Read { offset: self.at, length: self.piece })
    }
}

/// Where `read`, whose first byte has the place `place` in the command, begins to differ from
/// `expected` repeated. Pieces are whole blocks, so that a repeated block fits whole times.
fn difference(read: &[u8], expected: &[u8], place: usize) -> Option<usize> {
    let period = expected.len();
    let Some(here) = expected.get(place.checked_rem(period).unwrap_or(0)..) else { return Some(0) };
    if period == 0 {
        return Some(0);
    }
    if let Some(here) = here.get(..read.len()) {
        return if here == read { None } else { first_difference(read, here) };
    }
    for (index, block) in read.chunks(period).enumerate() {
        if block != expected {
            return Some(index * period + first_difference(block, expected).unwrap_or(0));
        }
    }
    None
}
