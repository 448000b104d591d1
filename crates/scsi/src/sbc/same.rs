// SPDX-License-Identifier: Apache-2.0 OR MIT
//! WRITE SAME (SBC-3 §5.42, §5.43): zeros become a discard, an anchoring or a zeroing; anything
//! else is repeated by the store, or written piece by piece where it cannot do that.

use crate::limits;
use crate::lun::Context;
use crate::lun::Extent;
use crate::lun::LogicalUnit;
use crate::sbc::clear;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::vec::Vec;
use buf::Slice;
use store::Op;
use store::Space;
use wire::scsi::opcode::Opcode;

/// Addresses of pieces are multiples of this, which direct I/O needs.
const ALIGNMENT: usize = 4096;

/// A WRITE SAME under way.
#[derive(Debug)]
pub(crate) struct Same {
    /// What is left, in bytes.
    at: u64,
    end: u64,
    /// First byte of the operation under way.
    current: u64,
    /// UNMAP: what becomes of the space of zeros.
    unmap: Option<Space>,
    /// Bytes of Data-Out.
    presented: u32,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// Awaits the block.
    Awaited,
    /// Zeros.
    Zeros,
    /// The block, repeated as often as one piece needs.
    Pattern(Slice),
    /// The block, which the store repeats.
    Block(Slice),
}

/// What the UNMAP and ANCHOR bits of a WRITE SAME ask for; ANCHOR alone is refused (SBC-3
/// §5.42).
pub(crate) fn leave_of(context: &Context<'_>) -> Result<Option<Space>, Fault> {
    let (unmap, anchor) = (context.cdb.flag(3), context.cdb.flag(4));
    if anchor && !(unmap && context.unit.can_anchor()) {
        return Err(context.flag_field(4).into());
    }
    if unmap && !context.unit.can_discard() {
        return Err(context.flag_field(3).into());
    }
    Ok(unmap.then(|| clear::left_by(anchor)))
}

/// The blocks that a WRITE SAME(10), (16) or (32) is for. WSNZ is set: zero blocks are refused, for
/// a host that means "to the end" by it is as likely wrong as right.
pub(crate) fn extent_of(context: &Context<'_>) -> Result<Extent, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let blocks = cdb.transfer_length();
    let extent = unit.extent(cdb.lba(), u64::from(blocks))?;
    if blocks == 0 || blocks > unit.blocks_in(limits::WRITE_SAME_MAX) {
        return Err(context.length_field().into());
    }
    Ok(extent)
}

/// WRITE SAME(10), (16), (32).
pub(crate) fn write_same(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let (unmap, extent) = (leave_of(context)?, extent_of(context)?);
    let no_data_out = cdb.opcode() != Opcode::WRITE_SAME_10 && cdb.flag(0);
    if no_data_out {
        let mut same = Same::new(extent, unmap, 0);
        same.content = Content::Zeros;
        let step = same.step(unit);
        return Ok((Machine::Same(same), step));
    }
    let length = unit.block();
    if context.request.expected_out != length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let same = Same::new(extent, unmap, length);
    Ok((Machine::Same(same), Step::ReceiveDataOut { length }))
}

impl Same {
    const fn new(extent: Extent, unmap: Option<Space>, presented: u32) -> Self {
        let (at, end) = (extent.offset, extent.offset + extent.length);
        Self { at, end, current: at, unmap, presented, content: Content::Awaited }
    }

    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        if matches!(self.content, Content::Awaited) {
            let block = task::data_out(input, self.presented)?;
            self.content = if block.bytes().iter().all(|byte| *byte == 0) {
                Content::Zeros
            } else if unit.writes_same() {
                Content::Block(block)
            } else {
                Content::Pattern(repeat(block.bytes(), self.piece(limits::PIECE_MAX)))
            };
        } else {
            task::done(input, unit.lba_of(self.current))?;
        }
        Ok(self.step(unit))
    }

    fn step(&mut self, unit: &LogicalUnit) -> Step {
        if self.at == self.end {
            return Step::Complete(sense::good(u64::from(self.presented)));
        }
        let offset = self.at;
        let (length, op) = match (&self.content, self.unmap) {
            (Content::Block(block), _) => {
                let length = self.end - offset;
                (length, Op::WriteSame { offset, length, data: block.clone() })
            }
            (Content::Pattern(pattern), _) => {
                let length = self.piece(limits::PIECE_MAX);
                match usize::try_from(length).ok().and_then(|length| pattern.part(0..length)) {
                    Some(data) => (length, Op::Write { offset, data, durable: false }),
                    None => return Step::Complete(unit.fault(sense::INTERNAL.into())),
                }
            }
            (Content::Zeros | Content::Awaited, unmap) => {
                clear::piece(offset, self.end - self.at, unmap.unwrap_or(Space::Mapped))
            }
        };
        self.current = offset;
        self.at += length;
        Step::Store(op)
    }

    /// Bytes of the next piece.
    fn piece(&self, max: u32) -> u64 {
        (self.end - self.at).min(u64::from(max))
    }
}

/// `block` over and over, `length` bytes, at an aligned address.
pub(crate) fn repeat(block: &[u8], length: u64) -> Slice {
    let length = usize::try_from(length).unwrap_or(0);
    let mut bytes: Vec<u8> = Vec::with_capacity(length + ALIGNMENT);
    let skip = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    bytes.resize(skip, 0);
    while bytes.len() < skip + length && !block.is_empty() {
        let left = skip + length - bytes.len();
        bytes.extend_from_slice(block.get(..left).unwrap_or(block));
    }
    Slice::from(bytes).part(skip..skip + length).unwrap_or_default()
}
