// SPDX-License-Identifier: Apache-2.0 OR MIT
//! READ and WRITE (SBC-3 §5.10-§5.13, §5.32-§5.35): range, data, store.

use crate::lun::Context;
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
    length: u32,
    durable: bool,
    stage: WriteStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStage {
    Receiving,
    Writing,
}

/// READ(6), (10), (12), (16). Blocks for which the initiator has no room are not read.
#[inline]
pub(crate) fn read(context: &Context<'_>) -> Result<Started, Fault> {
    let (extent, _) = context.transfer()?;
    let unit = context.unit;
    let travels = extent.length.min(u64::from(context.request.expected_in));
    let Ok(length @ 1..) = u32::try_from(unit.round_up(travels)) else {
        return Ok(task::good(extent.length));
    };
    let flush = context.cdb.fua() && unit.geometry().volatile_cache;
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
    if context.request.expected_out < length {
        return Err(sense::short_data_out(extent.length));
    }
    let durable = context.cdb.fua();
    let write = Write { offset: extent.offset, length, durable, stage: WriteStage::Receiving };
    Ok((Machine::Write(write), Step::ReceiveDataOut { length }))
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
        }))
    }

    const fn op(&self) -> Op {
        Op::Read { offset: self.offset, length: self.length }
    }
}

impl Write {
    #[inline]
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        match self.stage {
            WriteStage::Receiving => {
                let data = task::data_out(input, self.length)?;
                self.stage = WriteStage::Writing;
                let (offset, durable) = (self.offset, self.durable);
                Ok(Step::Store(Op::Write { offset, data, durable }))
            }
            WriteStage::Writing => {
                task::done(input, unit.lba_of(self.offset))?;
                Ok(Step::Complete(sense::good(u64::from(self.length))))
            }
        }
    }
}
