// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GET LBA STATUS (SBC-3 §5.4): what is mapped and what is not, run by run.

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
use alloc::vec::Vec;
use store::Op;
use store::Outcome;
use store::Run;
use store::Space;
use wire::scsi::status;
use wire::scsi::status::Descriptor;
use wire::scsi::status::Provisioning;

/// A GET LBA STATUS under way.
#[derive(Debug)]
pub(crate) struct Status {
    allocation: u32,
    /// Block to ask about next.
    at: u64,
    /// Descriptors that fit the allocation length.
    room: usize,
    /// Questions that may still be asked.
    questions: u32,
    descriptors: Vec<Descriptor>,
}

/// GET LBA STATUS(16). The block must exist, whatever the allocation length is.
pub(crate) fn get_lba_status(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let at = cdb.lba();
    unit.extent(at, 1)?;
    let allocation = cdb.u32_at(10);
    let bytes = usize::try_from(allocation).unwrap_or(usize::MAX);
    let room = bytes.saturating_sub(status::HEADER_LEN).div_ceil(status::DESCRIPTOR_LEN);
    let room = room.clamp(1, limits::STATUS_DESCRIPTORS_MAX);
    let questions = limits::STATUS_QUESTIONS_MAX;
    let mut machine = Status { allocation, at, room, questions, descriptors: Vec::new() };
    let step = machine.ask(unit);
    Ok((Machine::Status(machine), step))
}

impl Status {
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        let Input::Store(Outcome::ProvisioningStatus(run)) = input else {
            task::done(input, self.at)?;
            return Err(sense::INTERNAL.into());
        };
        self.take(unit, run);
        Ok(self.ask(unit))
    }

    /// Joins a run to the list; a run that fills no whole block counts as mapped, and so does space
    /// that is set aside where hosts have no word for that (ANC_SUP).
    fn take(&mut self, unit: &LogicalUnit, run: Run) {
        let left = unit.blocks().saturating_sub(self.at).max(1);
        let whole = run.length / u64::from(unit.block());
        let (provisioning, blocks) = match (run.space, whole) {
            // All blocks of a disk that is fully provisioned are mapped (SBC-3 §4.7.2).
            (Space::Deallocated, 1..) if unit.can_discard() => (Provisioning::Deallocated, whole),
            (Space::Anchored, 1..) if unit.can_anchor() => (Provisioning::Anchored, whole),
            _ => (Provisioning::Mapped, unit.round_up(run.length) / u64::from(unit.block())),
        };
        let blocks = blocks.clamp(1, left);
        self.at += blocks;
        let mut blocks = blocks;
        let mut lba = self.at - blocks;
        while blocks > 0 {
            let last = self
                .descriptors
                .last_mut()
                .filter(|last| last.provisioning == provisioning && last.blocks < u32::MAX);
            if let Some(last) = last {
                let taken = blocks.min(u64::from(u32::MAX - last.blocks));
                last.blocks += u32::try_from(taken).unwrap_or(0);
                (blocks, lba) = (blocks - taken, lba + taken);
            } else {
                self.descriptors.push(Descriptor { lba, blocks: 0, provisioning });
            }
        }
    }

    /// The next question, or the answer. One run more than there is room for is found out, so that
    /// the last one is whole.
    fn ask(&mut self, unit: &LogicalUnit) -> Step {
        let enough = self.descriptors.len() > self.room || self.questions == 0;
        // The unit may have another size than a moment ago.
        let left = unit.blocks().saturating_sub(self.at);
        if enough || left == 0 {
            self.descriptors.truncate(self.room);
            let bytes = status::emit(&self.descriptors);
            return task::data(bytes, self.allocation).1;
        }
        self.questions -= 1;
        let block = u64::from(unit.block());
        let length = (left * block).min(limits::STATUS_LENGTH_MAX);
        Step::Store(Op::ProvisioningStatus { offset: self.at * block, length })
    }
}
