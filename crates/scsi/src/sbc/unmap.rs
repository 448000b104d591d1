// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UNMAP (SBC-3 §5.28): the whole list is checked before the first block is touched.

use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sbc::clear;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use buf::Slice;
use store::Space;
use wire::scsi::unmap;
use wire::scsi::unmap::Malformed;
use wire::scsi::unmap::View;

/// An UNMAP under way.
#[derive(Debug)]
pub(crate) struct Unmap {
    /// PARAMETER LIST LENGTH.
    length: u32,
    /// The list, once it is there.
    list: Option<Slice>,
    /// Descriptor to look at next.
    next: usize,
    /// What is left of the descriptor before it: bytes.
    offset: u64,
    left: u64,
    leave: Space,
}

/// UNMAP.
pub(crate) fn unmap(context: &Context<'_>) -> Result<Started, Fault> {
    let anchor = context.cdb.bit(1, 0);
    if anchor && !context.unit.can_anchor() {
        return Err(sense::invalid_bit(1, 0).into());
    }
    let length = u32::from(context.cdb.u16_at(7));
    if length == 0 {
        return Ok(task::good(0));
    }
    if length < HEADER_LEN {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let leave = clear::left_by(anchor);
    let machine = Unmap { length, list: None, next: 0, offset: 0, left: 0, leave };
    Ok((Machine::Unmap(machine), Step::ReceiveDataOut { length }))
}

const HEADER_LEN: u32 = 8;
const _: () = assert!(HEADER_LEN as usize == unmap::HEADER_LEN);

impl Unmap {
    /// What becomes of the space.
    pub(crate) const fn leave(&self) -> Space {
        self.leave
    }

    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        if self.list.is_some() {
            task::done(input, unit.lba_of(self.offset))?;
        } else {
            let list = task::data_out(input, self.length)?;
            check(unit, list.bytes())?;
            self.list = Some(list);
        }
        Ok(self.step(unit))
    }

    /// The next piece of the next descriptor that has any block.
    fn step(&mut self, unit: &LogicalUnit) -> Step {
        let list = self.list.as_ref().map_or(&[][..], Slice::bytes);
        while self.left == 0 {
            let range = View::new(list).ok().and_then(|view| view.range(self.next));
            let Some(range) = range else {
                return Step::Complete(sense::good(u64::from(self.length)));
            };
            self.next += 1;
            if let Ok(extent) = unit.extent(range.lba, u64::from(range.blocks)) {
                self.offset = extent.offset;
                self.left = extent.length;
            }
        }
        let (length, op) = clear::piece(self.offset, self.left, self.leave);
        self.offset += length;
        self.left -= length;
        Step::Store(op)
    }
}

/// Every rule that a list must keep.
fn check(unit: &LogicalUnit, list: &[u8]) -> Result<(), Fault> {
    let view = View::new(list).map_err(|malformed| match malformed {
        Malformed::DescriptorLength => sense::invalid_parameter(2),
        _ => sense::PARAMETER_LIST_LENGTH,
    })?;
    if u32::try_from(view.len()).map_or(true, |count| count > limits::UNMAP_DESCRIPTORS_MAX) {
        return Err(sense::invalid_parameter(2).into());
    }
    let mut total = 0_u64;
    for (range, at) in view.ranges().zip((8_u16..).step_by(unmap::DESCRIPTOR_LEN)) {
        unit.extent(range.lba, u64::from(range.blocks))?;
        total += u64::from(range.blocks);
        if total > u64::from(limits::UNMAP_BLOCKS_MAX) {
            return Err(sense::invalid_parameter(at + 8).into());
        }
    }
    Ok(())
}
