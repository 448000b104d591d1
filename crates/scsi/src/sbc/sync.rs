// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYNCHRONIZE CACHE (SBC-3 §5.24, §5.25), and the flush of STOP.

use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use store::Op;

/// A flush under way.
#[derive(Debug)]
pub(crate) struct Sync {
    /// First block of the command, for sense data.
    lba: u64,
    then: Then,
}

/// What follows a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing: SYNCHRONIZE CACHE.
    Complete,
    /// The unit stops: START STOP UNIT.
    Stop,
}

/// SYNCHRONIZE CACHE(10), (16): the whole cache, whatever the range; zero blocks mean "to the end".
/// With IMMED the status still comes after the flush, which the host cannot tell from a fast one.
pub(crate) fn synchronize_cache(context: &Context<'_>) -> Result<Started, Fault> {
    let lba = context.cdb.lba();
    context.unit.extent(lba, u64::from(context.cdb.transfer_length()))?;
    Ok(flush(lba, Then::Complete))
}

/// A command that flushes.
pub(crate) const fn flush(lba: u64, then: Then) -> Started {
    (Machine::Sync(Sync { lba, then }), Step::Store(Op::Flush))
}

impl Sync {
    pub(crate) fn resume(&self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        task::done(input, self.lba)?;
        if self.then == Then::Stop {
            unit.stop();
        }
        Ok(Step::Complete(sense::good(0)))
    }
}
