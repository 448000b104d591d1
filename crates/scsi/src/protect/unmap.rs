// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UNMAP of a protected unit: what stands beside the blocks of each piece is cleared first.

use super::piece::records_at;
use super::ranges::Held;
use super::ranges::Sharing;
use super::record::RECORD_LEN;
use crate::lun::Context;
use crate::lun::Extent;
use crate::lun::LogicalUnit;
use crate::sbc::unmap;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;
use store::Op;

/// An UNMAP under way: that of a unit without protection, whose every step is prepared.
#[derive(Debug)]
pub(crate) struct Unmap {
    inner: unmap::Unmap,
    held: Option<Held>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The inner machine is at work.
    Inner,
    /// Others have the blocks of this operation.
    Waiting(Op),
    /// What is beside its blocks is being cleared.
    Clearing(Op),
}

/// UNMAP.
pub(crate) fn unmap(context: &Context<'_>) -> Result<Started, Fault> {
    let started = unmap::unmap(context)?;
    if context.unit.protection_type().is_none() {
        return Ok(started);
    }
    match started {
        (Machine::Unmap(inner), step) => {
            let machine = Unmap { inner, held: None, stage: Stage::Inner };
            Ok((Machine::ProtectedUnmap(Box::new(machine)), step))
        }
        other => Ok(other),
    }
}

impl Unmap {
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        match core::mem::replace(&mut self.stage, Stage::Inner) {
            Stage::Inner => {
                let step = self.inner.resume(unit, input)?;
                self.held = None;
                let Step::Store(op) = step else { return Ok(step) };
                let (offset, length) = op.range();
                let protection = unit.protection().ok_or(sense::INTERNAL)?;
                let extent = Extent { offset, length };
                self.held = Some(protection.ranges().queue(extent, Sharing::Nobody));
                Ok(self.wait(unit, op))
            }
            Stage::Waiting(op) => match input {
                Input::Turn => Ok(self.wait(unit, op)),
                _ => Err(sense::INTERNAL.into()),
            },
            Stage::Clearing(op) => {
                task::done(input, unit.lba_of(op.range().0))?;
                Ok(Step::Store(op))
            }
        }
    }

    /// Clears once it holds its blocks.
    fn wait(&mut self, unit: &LogicalUnit, op: Op) -> Step {
        if !self.held.as_ref().is_some_and(Held::is_granted) {
            self.stage = Stage::Waiting(op);
            return Step::Wait;
        }
        let (offset, length) = op.range();
        self.stage = Stage::Clearing(op);
        let offset = records_at(unit.lba_of(offset));
        let length = unit.lba_of(length) * RECORD_LEN as u64;
        // Who writes to it later needs space beside it, too.
        Step::Store(Op::Clear { offset, length, leave: self.inner.leave() })
    }
}
