// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT and SET TIMESTAMP (SPC-4 §6.38, §6.45): the host's clock, until an initiator sets another
//! time.

use crate::attention::Attention;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use core::sync::atomic::AtomicI64;
use core::sync::atomic::Ordering;
use wire::scsi::timestamp;
use wire::scsi::timestamp::Origin;

/// How far the time of a unit is from the host's, milliseconds; [`UNSET`] where nobody has set it.
#[derive(Debug)]
pub(crate) struct Timestamp(AtomicI64);

/// No difference that 48 bits can have.
const UNSET: i64 = i64::MIN;

/// A command that needs to know the time.
#[derive(Debug)]
pub(crate) struct Timing {
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reporting { allocation: u32 },
    Receiving,
    Setting { wanted: u64 },
}

impl Default for Timestamp {
    fn default() -> Self {
        Self(AtomicI64::new(UNSET))
    }
}

impl Timestamp {
    fn at(&self, now: u64) -> (Origin, u64) {
        match self.0.load(Ordering::Relaxed) {
            UNSET => (Origin::Other, now),
            difference => (Origin::Command, now.wrapping_add_signed(difference)),
        }
    }

    fn set(&self, now: u64, wanted: u64) {
        let difference = i64::try_from(wanted).ok().zip(i64::try_from(now).ok());
        let difference = difference.map_or(UNSET, |(wanted, now)| wanted - now);
        self.0.store(difference, Ordering::Relaxed);
    }

    /// After a reset the time is the host's again.
    pub(crate) fn revert(&self) {
        self.0.store(UNSET, Ordering::Relaxed);
    }
}

/// REPORT TIMESTAMP.
pub(crate) fn report(context: &Context<'_>) -> Result<Started, Fault> {
    let stage = Stage::Reporting { allocation: context.cdb.u32_at(6) };
    Ok((Machine::Timing(Timing { stage }), Step::Clock))
}

/// SET TIMESTAMP.
pub(crate) fn set(context: &Context<'_>) -> Result<Started, Fault> {
    let length = context.cdb.u32_at(6);
    if length == 0 {
        return Ok(task::good(0));
    }
    if usize::try_from(length) != Ok(timestamp::LEN) {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    Ok((Machine::Timing(Timing { stage: Stage::Receiving }), Step::ReceiveDataOut { length }))
}

impl Timing {
    pub(crate) fn resume(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Step, Fault> {
        match (self.stage, input) {
            (Stage::Reporting { allocation }, Input::Clock(now)) => {
                let (origin, shown) = unit.timestamp().at(now);
                Ok(task::data(timestamp::emit(origin, shown).to_vec(), allocation).1)
            }
            (Stage::Receiving, input @ Input::DataOut(_)) => {
                let length = u32::try_from(timestamp::LEN).map_err(|_| sense::INTERNAL)?;
                let list = task::data_out(input, length)?.to_vec();
                let wanted = timestamp::parse(&list).ok_or(sense::PARAMETER_LIST_LENGTH)?;
                if let Some(at) = timestamp::first_reserved(&list) {
                    return Err(sense::invalid_parameter(at).into());
                }
                self.stage = Stage::Setting { wanted };
                Ok(Step::Clock)
            }
            (Stage::Setting { wanted }, Input::Clock(now)) => {
                unit.timestamp().set(now, wanted);
                nexus.tell_others(unit, Attention::TimestampChanged);
                let presented = u64::try_from(timestamp::LEN).unwrap_or(0);
                Ok(Step::Complete(sense::good(presented)))
            }
            _ => Err(sense::INTERNAL.into()),
        }
    }
}
