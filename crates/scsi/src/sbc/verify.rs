// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VERIFY (SBC-3 §5.29-§5.31): reads piece by piece, and compares where BYTCHK says so.

use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::borrow::Cow;
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
        return Err(sense::invalid_bit(1, 2).into());
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
    let (start, end) = (extent.offset, extent.offset + extent.length);
    let check = if needed == 0 { Check::Readable } else { Check::Awaits(needed) };
    let mut verify = Verify { start, at: start, end, piece: 0, check };
    let step = if needed == 0 { verify.step() } else { Step::ReceiveDataOut { length: needed } };
    Ok((Machine::Verify(verify), step))
}

impl Verify {
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        if let Check::Awaits(needed) = self.check {
            self.check = Check::Equal(task::data_out(input, needed)?);
            return Ok(self.step());
        }
        let read = task::data_in(input, unit.lba_of(self.at), self.piece)?;
        if let Check::Equal(expected) = &self.check {
            let place = usize::try_from(self.at - self.start).unwrap_or(usize::MAX);
            if !equal(&bytes(&read), &bytes(expected), place) {
                return Err(sense::MISCOMPARE.into());
            }
        }
        self.at += u64::from(self.piece);
        Ok(self.step())
    }

    fn step(&mut self) -> Step {
        let left = self.end - self.at;
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

/// True if `read`, whose first byte has the place `place` in the command, is `expected` repeated.
/// Pieces are whole blocks, so that a repeated block fits whole times.
fn equal(read: &[u8], expected: &[u8], place: usize) -> bool {
    let period = expected.len();
    if period == 0 {
        return false;
    }
    match expected.get(place % period..) {
        Some(here) if here.len() >= read.len() => here.get(..read.len()) == Some(read),
        _ => place.is_multiple_of(period) && read.chunks(period).all(|block| block == expected),
    }
}

fn bytes(slice: &Slice) -> Cow<'_, [u8]> {
    slice.bytes().map_or_else(|| Cow::Owned(slice.to_vec()), Cow::Borrowed)
}
