// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose machine takes the next step of a command, and what it must hold of the unit for it.

use super::Input;
use super::Step;
use crate::Nexus;
use crate::copy::machine::Copy;
use crate::copy::using::Populating;
use crate::copy::using::Using;
use crate::exclusion::Access;
use crate::keeping::Keeping;
use crate::kept::KeepFailed;
use crate::lun::LogicalUnit;
use crate::nexus::Mapped;
use crate::protect::FailedCheck;
use crate::protect::Protected;
use crate::protect::unmap::Unmap as ProtectedUnmap;
use crate::sbc::compare::Compare;
use crate::sbc::rw::Read;
use crate::sbc::rw::Write;
use crate::sbc::same::Same;
use crate::sbc::status::Status;
use crate::sbc::sync::Sync;
use crate::sbc::unmap::Unmap;
use crate::sbc::verify::Verify;
use crate::sbc::wipe::Awaiting;
use crate::sbc::wipe::Wipe;
use crate::sbc::write_verify::WriteVerify;
use crate::sense;
use crate::sense::Fault;
use crate::spc::diagnostic::SelfTest;
use crate::spc::parameters::Parameters;
use crate::spc::persistent::Persistent;
use crate::spc::timestamp::Timing;
use alloc::boxed::Box;
use store::Op;

/// The commands that take more than one step.
#[derive(Debug)]
pub(crate) enum Machine {
    /// Complete.
    Done,
    /// Complete, or about to be: a block did not fit its protection information.
    Unfit(FailedCheck),
    Read(Read),
    Write(Write),
    /// A WRITE that nobody sees a part of.
    Atomic(Write),
    WriteVerify(Box<WriteVerify>),
    Compare(Compare),
    Persistent(Box<Persistent>),
    Parameters(Box<Parameters>),
    Status(Status),
    Verify(Verify),
    Same(Same),
    Sync(Sync),
    Unmap(Unmap),
    Timing(Timing),
    SelfTest(SelfTest),
    Copy(Box<Copy>),
    Populating(Box<Populating>),
    Using(Box<Using>),
    Wipe(Box<Wipe>),
    Keeping(Box<Keeping>),
    Awaiting(Awaiting),
    Protected(Box<Protected>),
    ProtectedUnmap(Box<ProtectedUnmap>),
}

/// A task is moved some times on its way, which takes the longer the longer it is: the machines of
/// rare commands stand elsewhere. The limit is what a WRITE needs.
const _: () = assert!(size_of::<Machine>() <= 88);

/// What a handler makes of a command.
pub(crate) type Started = (Machine, Step);

impl Machine {
    #[inline]
    pub(super) fn access(&self, unit: &LogicalUnit, op: &Op) -> Access {
        match self {
            Self::Compare(_) | Self::Populating(_) | Self::Atomic(_) => Access::Exclusive,
            Self::Wipe(_) => Access::Sole,
            Self::Copy(_) => Access::There,
            _ if op.changes() || unit.counts_readers() => Access::Shared,
            _ => Access::Free,
        }
    }

    /// It may belong to no nexus: no host waits for its next step.
    pub(super) const fn is_job(&self) -> bool {
        matches!(self, Self::Wipe(_) | Self::Copy(_))
    }

    pub(super) fn resume(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Step, Fault> {
        match self {
            Self::Done | Self::Unfit(_) => Err(sense::INTERNAL.into()),
            Self::Read(read) => read.resume(unit, input),
            Self::Write(write) | Self::Atomic(write) => write.resume(unit, input),
            Self::WriteVerify(both) => both.resume(unit, input),
            Self::Persistent(persistent) => persistent.resume(nexus, unit, input),
            Self::Parameters(parameters) => {
                let Some((machine, step)) = parameters.resume(nexus, unit, input)? else {
                    return Ok(Step::Wait);
                };
                *self = machine;
                Ok(step)
            }
            Self::Compare(compare) => compare.resume(unit, input),
            Self::Status(status) => status.resume(unit, input),
            Self::Verify(verify) => verify.resume(unit, input),
            Self::Same(same) => same.resume(unit, input),
            Self::Sync(sync) => sync.resume(unit, input),
            Self::Unmap(unmap) => unmap.resume(unit, input),
            Self::Timing(timing) => timing.resume(nexus, unit, input),
            Self::SelfTest(test) => test.resume(unit, input),
            Self::Copy(copy) => copy.resume(input),
            Self::Populating(populating) => populating.resume(unit, input),
            Self::Using(using) => {
                let (machine, step) = using.resume(nexus, unit, input)?;
                *self = machine;
                Ok(step)
            }
            Self::Awaiting(awaiting) => awaiting.resume(&input),
            Self::Protected(protected) => protected.resume(unit, input),
            Self::ProtectedUnmap(unmap) => unmap.resume(unit, input),
            Self::Keeping(keeping) => match input {
                Input::Kept(result) => {
                    let (machine, step) = keeping.finish(unit, nexus.state_at(unit), result)?;
                    *self = machine;
                    Ok(step)
                }
                _ => Err(sense::INTERNAL.into()),
            },
            // A job has no nexus.
            Self::Wipe(_) => Err(sense::INTERNAL.into()),
        }
    }

    /// What it had kept is decided after the end of its task.
    #[cold]
    pub(super) fn kept_late(
        &mut self,
        mapped: &Mapped,
        result: Result<(), KeepFailed>,
    ) -> Result<Step, Fault> {
        match self {
            Self::Persistent(persistent) => persistent.finish(&mapped.unit, result),
            Self::Keeping(keeping) => {
                let (machine, step) =
                    keeping.finish(&mapped.unit, Some(&mapped.nexus_state), result)?;
                *self = machine;
                Ok(step)
            }
            _ => Err(sense::INTERNAL.into()),
        }
    }

    /// The task is dropped: nobody carries on what it has begun.
    #[inline]
    pub(super) fn abandon(&mut self, unit: &LogicalUnit) {
        match self {
            Self::Wipe(wipe) => wipe.abandon(unit),
            Self::Keeping(keeping) => keeping.abandon(unit),
            Self::Persistent(persistent) => persistent.abandon(unit),
            _ => {}
        }
    }
}
