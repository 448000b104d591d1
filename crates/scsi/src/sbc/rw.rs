// SPDX-License-Identifier: Apache-2.0 OR MIT
//! READ and WRITE (SBC-3 §5.10-§5.13, §5.32-§5.35): range, data, store.

use super::verify::Verify;
use crate::lun::Context;
use crate::lun::Extent;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Completion;
use crate::task::GOOD;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::vec::Vec;
use buf::Slice;
use store::Op;

/// A READ under way.
#[derive(Debug)]
pub(crate) struct Read {
    offset: u64,
    /// Whole blocks that cover what travels.
    length: u32,
    /// What the CDB asks for.
    presented: u64,
    stage: ReadStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadStage {
    /// What is cached goes to the medium first (FUA, SBC-3 §4.15).
    Flushing,
    Reading,
}

/// A WRITE under way.
#[derive(Debug)]
pub(crate) struct Write {
    offset: u64,
    /// Bytes that travel: what the CDB asks for or what the initiator means to send, whichever is
    /// less.
    length: u32,
    /// What the CDB asks for.
    presented: u64,
    durable: bool,
    stage: WriteStage,
}

#[derive(Debug)]
enum WriteStage {
    Receiving,
    /// `tail`: bytes of a last block that the initiator sends only in part.
    Writing {
        tail: Option<Slice>,
    },
    /// The rest of that block is kept.
    ReadingLast {
        tail: Slice,
    },
}

/// READ(6), (10), (12), (16). Blocks for which the initiator has no room are not read.
#[inline]
pub(crate) fn read(context: &Context<'_>) -> Result<Started, Fault> {
    let (extent, _) = context.transfer()?;
    read_extent(context, extent, context.cdb.fua())
}

/// Reads blocks; with `fua` what is on the medium.
#[inline]
pub(crate) fn read_extent(
    context: &Context<'_>,
    extent: Extent,
    fua: bool,
) -> Result<Started, Fault> {
    let unit = context.unit;
    let travels = extent.length.min(u64::from(context.request.expected_in));
    let Ok(length @ 1..) = u32::try_from(unit.round_up(travels)) else {
        return Ok(task::good(extent.length));
    };
    let flush = fua && unit.geometry().volatile_cache;
    let stage = if flush { ReadStage::Flushing } else { ReadStage::Reading };
    let read = Read { offset: extent.offset, length, presented: extent.length, stage };
    let op = if flush { Op::Flush } else { read.op() };
    Ok((Machine::Read(read), Step::Store(op)))
}

/// WRITE(6), (10), (12), (16).
#[inline]
pub(crate) fn write(context: &Context<'_>) -> Result<Started, Fault> {
    let (extent, length) = context.transfer()?;
    if length == 0 {
        return Ok(task::good(0));
    }
    let durable = context.cdb.fua();
    let presented = extent.length;
    let length = length.min(context.request.expected_out);
    let stage = WriteStage::Receiving;
    let write = Write { offset: extent.offset, length, presented, durable, stage };
    if length == 0 {
        return Ok(task::good(presented));
    }
    context.unit.store().expect_write(extent.offset, length);
    Ok((Machine::Write(write), Step::ReceiveDataOut { length }))
}

/// WRITE ATOMIC(16) (SBC-4 §5.50). MAXIMUM ATOMIC BOUNDARY SIZE is zero, so that there is none.
pub(crate) fn write_atomic(context: &Context<'_>) -> Result<Started, Fault> {
    let (extent, length) = context.transfer()?;
    if context.unit.atomic_max().is_none_or(|max| length > max) {
        return Err(sense::invalid_field(12).into());
    }
    if length == 0 {
        return Ok(task::good(0));
    }
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let (presented, durable) = (extent.length, context.cdb.fua());
    let stage = WriteStage::Receiving;
    let write = Write { offset: extent.offset, length, presented, durable, stage };
    Ok((Machine::Atomic(write), Step::ReceiveDataOut { length }))
}

impl Read {
    #[inline]
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        let lba = unit.lba_of(self.offset);
        if self.stage == ReadStage::Flushing {
            task::done(input, lba)?;
            self.stage = ReadStage::Reading;
            return Ok(Step::Store(self.op()));
        }
        let data: Slice = task::data_in(input, lba, self.length)?;
        Ok(Step::Complete(Completion {
            status: GOOD,
            sense: Vec::new(),
            data_in: Some(data),
            presented: self.presented,
            fence: false,
        }))
    }

    /// Bytes read, in whole blocks.
    pub(crate) const fn bytes(&self) -> u64 {
        self.length as u64
    }

    const fn op(&self) -> Op {
        Op::Read { offset: self.offset, length: self.length }
    }
}

impl Write {
    #[inline]
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        match core::mem::replace(&mut self.stage, WriteStage::Receiving) {
            WriteStage::Receiving => {
                let data = task::data_out(input, self.length)?;
                let (whole, tail) = split_at_block(unit, &data)?;
                if let (true, Some(tail)) = (whole.is_empty(), &tail) {
                    return self.read_last(unit, tail.clone());
                }
                self.stage = WriteStage::Writing { tail };
                let (offset, durable) = (self.offset, self.durable);
                Ok(Step::Store(Op::Write { offset, data: whole, durable }))
            }
            WriteStage::Writing { tail } => {
                task::done(input, unit.lba_of(self.offset))?;
                match tail {
                    Some(tail) => self.read_last(unit, tail),
                    None => Ok(Step::Complete(sense::good(self.presented))),
                }
            }
            WriteStage::ReadingLast { tail } => {
                let offset = self.last_block(&tail);
                let length = unit.block();
                let old = task::data_in(input, unit.lba_of(offset), length)?;
                let mut block = old.to_vec();
                let sent = block.get_mut(..tail.len()).ok_or(sense::INTERNAL)?;
                tail.copy_to(sent);
                self.stage = WriteStage::Writing { tail: None };
                Ok(Step::Store(Op::Write { offset, data: block.into(), durable: self.durable }))
            }
        }
    }

    /// Bytes written.
    pub(crate) const fn bytes(&self) -> u64 {
        self.length as u64
    }

    /// FUA, whatever the CDB says.
    pub(crate) const fn make_durable(&mut self) {
        self.durable = true;
    }

    /// What the CDB asks for, bytes.
    pub(crate) const fn presented(&self) -> u64 {
        self.presented
    }

    /// Reads back what was written and compares it with `sent`, if that is there and whole.
    pub(crate) fn verify(&self, unit: &LogicalUnit, sent: Option<Slice>) -> Verify {
        let length = unit.round_up(u64::from(self.length));
        let extent = Extent { offset: self.offset, length };
        let sent = sent.filter(|sent| sent.len() as u64 == length);
        Verify::written(extent, sent)
    }

    /// A block of which only a part is sent keeps the rest (FCP-4 §9.5.8 says for residuals what
    /// iSCSI leaves open).
    #[cold]
    fn read_last(&mut self, unit: &LogicalUnit, tail: Slice) -> Result<Step, Fault> {
        let offset = self.last_block(&tail);
        self.stage = WriteStage::ReadingLast { tail };
        Ok(Step::Store(Op::Read { offset, length: unit.block() }))
    }

    /// Where the block begins whose first bytes are `tail`.
    fn last_block(&self, tail: &Slice) -> u64 {
        (self.offset + u64::from(self.length)).saturating_sub(tail.len() as u64)
    }
}

/// Whole blocks, and what is left of a last one.
#[inline]
fn split_at_block(unit: &LogicalUnit, data: &Slice) -> Result<(Slice, Option<Slice>), Fault> {
    let block = usize::try_from(unit.block()).map_err(|_| sense::INTERNAL)?;
    let whole = data.len() - data.len() % block;
    if whole == data.len() {
        return Ok((data.clone(), None));
    }
    let first = data.part(0..whole).ok_or(sense::INTERNAL)?;
    let tail = data.part(whole..data.len()).ok_or(sense::INTERNAL)?;
    Ok((first, Some(tail)))
}
