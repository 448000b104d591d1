// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SEND DIAGNOSTIC and RECEIVE DIAGNOSTIC RESULTS (SPC-4 §6.28, §6.42): self-tests in the
//! foreground, and the page that lists the pages.

use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use crate::task::data;
use store::Op;
use store::Outcome;

/// The page that lists the pages, and the only one.
const SUPPORTED_PAGES: u8 = 0x00;

/// SELF-TEST CODE: foreground, short and extended.
const FOREGROUND: core::ops::RangeInclusive<u8> = 5..=6;

/// Length of the page that asks for the list.
const PAGE_LEN: u16 = 4;

/// A self-test: the first and the last block can be read, and the store can flush.
#[derive(Debug)]
pub(crate) struct SelfTest {
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    Last,
    Flushing,
}

/// SEND DIAGNOSTIC.
pub(crate) fn send(context: &Context<'_>) -> Result<Started, Fault> {
    let cdb = &context.cdb;
    let (code, length, is_default) = (cdb.byte(1) >> 5, cdb.u16_at(3), cdb.bit(1, 2));
    let tests = FOREGROUND.contains(&code) || is_default;
    if code != 0 && (is_default || !tests) {
        // Background tests would need a log of their results.
        return Err(sense::invalid_bit(1, 7).into());
    }
    if tests {
        if length != 0 {
            return Err(sense::invalid_field(3).into());
        }
        if let Some(sense) = context.unit.not_ready() {
            return Err(sense.into());
        }
        let machine = Machine::SelfTest(SelfTest { stage: Stage::First });
        return Ok((machine, read_block(context.unit, 0)));
    }
    if length == 0 {
        return Ok(task::good(0));
    }
    if !cdb.bit(1, 4) {
        return Err(sense::invalid_bit(1, 4).into());
    }
    parameters::receive(context, u32::from(length), |_, list| {
        let Some([page, rest @ ..]) = list.first_chunk::<{ PAGE_LEN as usize }>() else {
            return Err(sense::PARAMETER_LIST_LENGTH.into());
        };
        if *page != SUPPORTED_PAGES {
            return Err(sense::invalid_parameter(0).into());
        }
        if let Some(at) = rest.iter().position(|byte| *byte != 0) {
            return Err(sense::invalid_parameter(u16::try_from(at + 1).unwrap_or(0)).into());
        }
        if list.len() != usize::from(PAGE_LEN) {
            return Err(sense::PARAMETER_LIST_LENGTH.into());
        }
        Ok(task::good(u64::from(PAGE_LEN)))
    })
}

/// RECEIVE DIAGNOSTIC RESULTS. Without PCV it gives what was asked for last, which can only be the
/// one page.
pub(crate) fn receive(context: &Context<'_>) -> Result<Started, Fault> {
    let cdb = &context.cdb;
    if cdb.byte(2) != SUPPORTED_PAGES {
        return Err(sense::invalid_field(2).into());
    }
    let page = [SUPPORTED_PAGES, 0, 0, 1, SUPPORTED_PAGES];
    Ok(data(page.to_vec(), u32::from(cdb.u16_at(3))))
}

fn read_block(unit: &LogicalUnit, lba: u64) -> Step {
    let offset = lba.saturating_mul(u64::from(unit.block()));
    Step::Store(Op::Read { offset, length: unit.block() })
}

impl SelfTest {
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        match input {
            Input::Store(Outcome::Data(_) | Outcome::Done) => {}
            Input::Store(_) => return Err(sense::FAILED_SELF_TEST.into()),
            _ => return Err(sense::INTERNAL.into()),
        }
        Ok(match self.stage {
            Stage::First => {
                self.stage = Stage::Last;
                read_block(unit, unit.blocks() - 1)
            }
            Stage::Last => {
                self.stage = Stage::Flushing;
                Step::Store(Op::Flush)
            }
            Stage::Flushing => Step::Complete(sense::good(0)),
        })
    }
}
