// SPDX-License-Identifier: Apache-2.0 OR MIT
//! COMPARE AND WRITE (SBC-3 §5.3) and ORWRITE (SBC-3 §5.9): read, decide, write, as one.
//!
//! ```text
//! Receiving --> Reading --> Writing --> end
//!     |            ^                     ^
//!     +--> Whole --+---------------------+     the store compares and writes, or cannot (then ^)
//! ```
//!
//! The unit is claimed meanwhile in both ways ([`crate::exclusion`]): a store that compares and
//! writes by itself keeps out those who come by another way, and the claim those of this one.

use crate::lun::Context;
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
use store::Outcome;

/// A command that reads, decides and writes.
#[derive(Debug)]
pub(crate) struct Compare {
    offset: u64,
    /// Bytes on the medium.
    length: u32,
    /// Bytes of Data-Out.
    presented: u32,
    durable: bool,
    rule: Rule,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// COMPARE AND WRITE: the first half must be there, the second is written.
    Compare,
    /// ORWRITE: bits are set.
    Or,
}

#[derive(Debug)]
enum Stage {
    Receiving,
    /// The store does it all.
    Whole(Slice),
    Reading(Slice),
    Writing,
}

/// COMPARE AND WRITE.
pub(crate) fn compare_and_write(context: &Context<'_>) -> Result<Started, Fault> {
    let blocks = u32::from(context.cdb.byte(13));
    let extent = context.unit.extent(context.cdb.lba(), u64::from(blocks))?;
    if blocks > u32::from(context.unit.compare_max()) {
        return Err(sense::invalid_field(13).into());
    }
    if blocks == 0 && context.request.expected_out > 0 {
        // More blocks than the field can count: nothing would be written, and GOOD would be a lie.
        return Err(sense::invalid_field(13).into());
    }
    let length = u32::try_from(extent.length).map_err(|_| sense::INTERNAL)?;
    start(context, extent.offset, (length, length * 2), Rule::Compare)
}

/// ORWRITE(16).
pub(crate) fn or_write(context: &Context<'_>) -> Result<Started, Fault> {
    let (extent, length) = context.transfer()?;
    start(context, extent.offset, (length, length), Rule::Or)
}

fn start(
    context: &Context<'_>,
    offset: u64,
    (length, presented): (u32, u32),
    rule: Rule,
) -> Result<Started, Fault> {
    if length == 0 {
        return Ok(task::good(0));
    }
    let sent = context.request.expected_out;
    if sent < presented || (rule == Rule::Compare && sent != presented) {
        return Err(sense::short_data_out(u64::from(presented)));
    }
    let durable = context.cdb.fua();
    let stage = Stage::Receiving;
    let machine = Compare { offset, length, presented, durable, rule, stage };
    Ok((Machine::Compare(machine), Step::ReceiveDataOut { length: presented }))
}

impl Compare {
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        let lba = unit.lba_of(self.offset);
        match core::mem::replace(&mut self.stage, Stage::Writing) {
            Stage::Receiving => {
                let sent = task::data_out(input, self.presented)?;
                if self.rule == Rule::Or || !unit.compares_as_one() {
                    return Ok(self.read(sent));
                }
                let (old, new) = halves(&sent)?;
                self.stage = Stage::Whole(sent);
                let (offset, durable) = (self.offset, self.durable);
                Ok(Step::Store(Op::CompareAndWrite { offset, old, new, durable }))
            }
            Stage::Whole(sent) => match input {
                Input::Store(Outcome::Failed(store::Error::Unsupported)) => Ok(self.read(sent)),
                Input::Store(Outcome::Miscompare(at)) => Err(miscompare(at)),
                input => self.end(input, lba),
            },
            Stage::Reading(sent) => {
                let read = task::data_in(input, lba, self.length)?;
                let data = match self.rule {
                    Rule::Compare => compared(&read, &sent)?,
                    Rule::Or => joined(&read, &sent),
                };
                Ok(Step::Store(Op::Write { offset: self.offset, data, durable: self.durable }))
            }
            Stage::Writing => self.end(input, lba),
        }
    }

    fn read(&mut self, sent: Slice) -> Step {
        self.stage = Stage::Reading(sent);
        Step::Store(Op::Read { offset: self.offset, length: self.length })
    }

    fn end(&self, input: Input, lba: u64) -> Result<Step, Fault> {
        task::done(input, lba)?;
        Ok(Step::Complete(sense::good(u64::from(self.presented))))
    }
}

/// What must be there, and what is written then.
fn halves(sent: &Slice) -> Result<(Slice, Slice), Fault> {
    let half = sent.len() / 2;
    let old = sent.part(0..half).ok_or(sense::INTERNAL)?;
    Ok((old, sent.part(half..sent.len()).ok_or(sense::INTERNAL)?))
}

/// The second half of `sent`, if the first is what was `read`.
fn compared(read: &Slice, sent: &Slice) -> Result<Slice, Fault> {
    let (old, new) = halves(sent)?;
    match first_difference(read.bytes(), old.bytes()) {
        None => Ok(new),
        Some(at) => Err(miscompare(u64::try_from(at).ok())),
    }
}

/// INFORMATION is the offset of the first byte that differs (SBC-3 §5.3.1).
fn miscompare(at: Option<u64>) -> Fault {
    match at {
        Some(at) => sense::MISCOMPARE.with_information(at).into(),
        None => sense::MISCOMPARE.into(),
    }
}

/// Where two runs of bytes begin to differ.
pub(crate) fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    left.iter().zip(right).position(|(left, right)| left != right)
}

fn joined(read: &Slice, sent: &Slice) -> Slice {
    let mut data = sent.to_vec();
    for (to, from) in data.iter_mut().zip(read.bytes()) {
        *to |= from;
    }
    Slice::from(data)
}
