// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command on a unit that is formatted with protection information, piece by piece.
//!
//! ```text
//! Receiving --> Waiting --> Flushing --> Data --> Records --> SavingRecords --> SavingData
//!                  |                      ^          |                              |
//!                  |                      +----------+------------------------------+
//!                  +--> ClearingRecords --> ClearingData --+
//!                         ^                                |
//!                         +--------------------------------+
//!
//! -->  one store operation or input; from Waiting on the command holds its blocks
//! ```
//!
//! What is beside a block is written before the block, so that it is there whatever happens in
//! between (see [`record`](super::record)); it is cleared before the block is, which leaves a
//! block of before without protection, never one that does not fit what is beside it.

use super::piece::Piece;
use super::piece::block_of;
use super::piece::part;
use super::piece::records_at;
use super::ranges::Held;
use super::ranges::Sharing;
use super::record::RECORD_LEN;
use super::sent;
use super::sent::Sent;
use super::terms::BlockPosition;
use super::terms::Terms;
use crate::limits;
use crate::lun::Extent;
use crate::lun::LogicalUnit;
use crate::sbc::clear;
use crate::sbc::compare::first_difference;
use crate::sbc::same;
use crate::sense;
use crate::sense::Fault;
use crate::statistics::Traffic;
use crate::task;
use crate::task::Completion;
use crate::task::Input;
use crate::task::Step;
use alloc::vec;
use alloc::vec::Vec;
use buf::Slice;
use store::Op;
use store::Space;
use wire::scsi::protection::INFORMATION_LEN;
use wire::scsi::protection::Information;

/// A command under way.
#[derive(Debug)]
pub(crate) struct Protected {
    work: Work,
    terms: Terms,
    extent: Extent,
    /// The piece under way: its first byte and its length.
    at: u64,
    piece: u32,
    sent: Sent,
    held: Option<Held>,
    stage: Stage,
    /// Base of the residual, bytes.
    presented: u64,
    durable: bool,
    failed: Option<FailedCheck>,
}

/// A block that is not what its protection information says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// Its address.
    pub block: u64,
    /// What of it does not fit.
    pub field: &'static str,
    /// Where that was seen.
    pub place: CheckedAt,
}

/// Where protection information was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is no third place
pub enum CheckedAt {
    /// In what a host sent; nothing of it was written.
    Sent,
    /// In what was read.
    Medium,
}

/// What a command does with its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read(Fua),
    Write,
    /// Reads it back, and compares it with what was sent.
    WriteVerify(Against),
    Verify(Against),
    /// One block for all.
    Same(Zeros),
    /// Zeros, and nothing beside them.
    Clear(Space),
    /// COMPARE AND WRITE.
    Compare,
    /// ORWRITE.
    Or,
}

/// What a READ finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fua {
    No,
    /// What is cached goes to the medium first.
    Flush,
}

/// What blocks are compared with (BYTCHK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    Nothing,
    /// All that was sent.
    Sent,
    /// The one block that was sent.
    One,
}

/// What becomes of zeros that are written to all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeros {
    Written,
    /// UNMAP.
    Unmapped(Space),
}

#[derive(Debug)]
enum Stage {
    /// So many bytes.
    Receiving(u32),
    Waiting,
    Flushing,
    Data,
    Records(Slice),
    SavingRecords(Slice),
    SavingData,
    ClearingRecords(u64),
    ClearingData(u64),
    Over,
}

impl Protected {
    /// A command that first awaits `receives` bytes.
    pub(super) fn new(work: Work, terms: Terms, extent: Extent, presented: u64) -> Self {
        Self {
            work,
            terms,
            extent,
            at: extent.offset,
            piece: 0,
            sent: Sent::default(),
            held: None,
            stage: Stage::Over,
            presented,
            durable: false,
            failed: None,
        }
    }

    /// Everything that it writes is on stable storage when it ends.
    pub(super) const fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Zeros with nothing beside them.
    pub(super) fn with_zeros(mut self, unit: &LogicalUnit) -> Self {
        let block = vec![0; usize::try_from(unit.block()).unwrap_or(0)];
        self.sent = Sent { data: self.pattern(&block), information: Some(vec![Information::ONES]) };
        self
    }

    /// Its first step where there is Data-Out.
    pub(super) fn receive(&mut self, length: u32) -> Step {
        self.stage = Stage::Receiving(length);
        Step::ReceiveDataOut { length }
    }

    /// Its first step where there is none.
    pub(super) fn begin(&mut self, unit: &LogicalUnit) -> Result<Step, Fault> {
        let sharing = match self.work {
            Work::Read(_) | Work::Verify(_) => Sharing::Reads,
            _ => Sharing::Nobody,
        };
        let protection = unit.protection().ok_or(sense::INTERNAL)?;
        self.held = Some(protection.ranges().queue(self.extent, sharing));
        self.wait(unit)
    }

    /// Counts what a command has done that ended well.
    pub(crate) fn count(&self, traffic: &Traffic) {
        match self.work {
            Work::Read(_) => traffic.count_read(self.extent.length),
            Work::Write => traffic.count_write(self.extent.length),
            _ => {}
        }
    }

    /// The check that ended it, if one did.
    pub(crate) const fn failed_check(&self) -> Option<FailedCheck> {
        self.failed
    }

    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        let result = self.step(unit, input);
        if let Err(Fault { sense, .. }) = &result
            && let (Some(field), Some(block)) = (sense::field_checked(sense), sense.information)
        {
            // It holds its blocks before it reads them.
            let is_read = self.held.is_some();
            let place = if is_read { CheckedAt::Medium } else { CheckedAt::Sent };
            self.failed = Some(FailedCheck { block, field, place });
        }
        result
    }

    fn step(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        let lba = unit.lba_of(self.at);
        match core::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Receiving(length) => {
                self.receive_data(unit, task::data_out(input, length)?)?;
                self.begin(unit)
            }
            Stage::Waiting => match input {
                Input::Turn => self.wait(unit),
                _ => Err(sense::INTERNAL.into()),
            },
            Stage::Flushing => {
                task::done(input, lba)?;
                Ok(self.load())
            }
            Stage::Data => {
                let data = task::data_in(input, lba, self.piece)?;
                self.stage = Stage::Records(data);
                let (offset, length) = self.records(unit, u64::from(self.piece));
                let length = u32::try_from(length).map_err(|_| sense::INTERNAL)?;
                Ok(Step::Store(Op::Read { offset, length }))
            }
            Stage::Records(data) => {
                let (_, length) = self.records(unit, u64::from(self.piece));
                let length = u32::try_from(length).map_err(|_| sense::INTERNAL)?;
                let records = task::data_in(input, lba, length)?;
                self.decide(unit, &data, &records)
            }
            Stage::SavingRecords(data) => {
                task::done(input, lba)?;
                self.stage = Stage::SavingData;
                let (offset, durable) = (self.at, self.durable);
                Ok(Step::Store(Op::Write { offset, data, durable }))
            }
            Stage::SavingData => {
                task::done(input, lba)?;
                Ok(self.next(u64::from(self.piece)))
            }
            Stage::ClearingRecords(length) => {
                task::done(input, lba)?;
                self.stage = Stage::ClearingData(length);
                Ok(Step::Store(Op::Clear { offset: self.at, length, leave: self.leave() }))
            }
            Stage::ClearingData(length) => {
                task::done(input, lba)?;
                self.at += length;
                Ok(self.clear(unit))
            }
            Stage::Over => Err(sense::INTERNAL.into()),
        }
    }

    /// Goes on once it holds its blocks.
    fn wait(&mut self, unit: &LogicalUnit) -> Result<Step, Fault> {
        let Some(held) = &self.held else { return Err(sense::INTERNAL.into()) };
        if !held.is_granted() {
            self.stage = Stage::Waiting;
            return Ok(Step::Wait);
        }
        Ok(match self.work {
            Work::Clear(_) => self.clear(unit),
            Work::Read(Fua::Flush) => {
                self.stage = Stage::Flushing;
                Step::Store(Op::Flush)
            }
            _ => self.load(),
        })
    }

    /// Reads the next piece.
    fn load(&mut self) -> Step {
        let left = self.end() - self.at;
        let max = self.piece_max();
        self.piece = u32::try_from(left).map_or(max, |left| left.min(max));
        self.stage = Stage::Data;
        Step::Store(Op::Read { offset: self.at, length: self.piece })
    }

    /// Takes what was sent, and checks what is to be checked before anything is written.
    fn receive_data(&mut self, unit: &LogicalUnit, data: Slice) -> Result<(), Fault> {
        let (block, terms) = (block_of(unit), self.terms);
        self.sent = Sent::split(data, block, &terms)?;
        let lba = unit.lba_of(self.extent.offset);
        let one = matches!(self.work, Work::Same(_));
        // What is written to many blocks as it comes has no tags to be checked (SBC-3 §5.42).
        if !(one && self.sent.information(0) == Some(Information::ONES)) {
            self.sent.check(&terms, lba, unit.lba_of(self.extent.length), block)?;
        }
        if let Work::Same(zeros) = self.work {
            let sent = self.sent.bytes();
            let plain = self.sent.information(0).is_none_or(|sent| sent == Information::ONES);
            let clears = plain && sent.iter().all(|byte| *byte == 0);
            let pattern = self.pattern(sent);
            self.sent.data = pattern;
            if let Zeros::Unmapped(leave) = zeros
                && clears
            {
                self.work = Work::Clear(leave);
            }
        }
        Ok(())
    }

    /// What is to be done with a piece that was read.
    fn decide(&mut self, unit: &LogicalUnit, data: &Slice, records: &Slice) -> Result<Step, Fault> {
        let (read, records) = (data.bytes(), records.bytes());
        let piece = Piece {
            index: unit.lba_of(self.at - self.extent.offset),
            lba: unit.lba_of(self.at),
            block: block_of(unit),
            data: read,
            records,
        };
        match self.work {
            Work::Read(_) => {
                let found = piece.check(&self.terms)?;
                let data = match self.terms.travels() {
                    true => sent::joined(read, piece.block, &found),
                    false => data.clone(),
                };
                let completion = Completion { data_in: Some(data), ..sense::good(self.presented) };
                Ok(Step::Complete(completion))
            }
            Work::Verify(against) => {
                self.verify(&piece, against)?;
                Ok(self.next(u64::from(self.piece)))
            }
            Work::Write | Work::WriteVerify(_) | Work::Same(_) => {
                let new = self.sent.data.part(0..read.len()).ok_or(sense::INTERNAL)?;
                Ok(self.save(&piece, new, 0))
            }
            Work::Compare => {
                self.compare(&piece)?;
                let new = self.sent.data.part(read.len()..2 * read.len()).ok_or(sense::INTERNAL)?;
                Ok(self.save(&piece, new, unit.lba_of(self.extent.length)))
            }
            Work::Or => {
                piece.check(&self.terms)?;
                let mut new = self.sent.bytes().to_vec();
                new.iter_mut().zip(read.iter()).for_each(|(to, from)| *to |= from);
                Ok(self.save(&piece, Slice::from(new), 0))
            }
            Work::Clear(_) => Err(sense::INTERNAL.into()),
        }
    }

    /// Checks a piece and compares it with what was sent.
    fn verify(&self, piece: &Piece<'_>, against: Against) -> Result<(), Fault> {
        // With something to compare with, the medium is checked only if nothing came behind it.
        if against == Against::Nothing || !self.terms.travels() {
            piece.check(&self.terms)?;
        }
        if against == Against::Nothing {
            return Ok(());
        }
        let sent = self.sent.bytes();
        for block in piece.blocks() {
            let BlockPosition { lba, index } = block.place;
            let at = if against == Against::One { 0 } else { index };
            let expected = part(sent, at, piece.block)?;
            if let Some(first) = first_difference(block.data, expected) {
                return Err(self.miscompare(at, piece.block, first));
            }
            let Some(information) = self.sent.information(at) else { continue };
            let information = self.terms.repeated(information, index - at);
            self.terms
                .compare(information, block.information())
                .map_err(|wrong| wrong.miscompare(lba))?;
        }
        Ok(())
    }

    /// COMPARE AND WRITE: the data must be there. What is beside them is only checked.
    fn compare(&self, piece: &Piece<'_>) -> Result<(), Fault> {
        piece.check(&self.terms.internal())?;
        let sent = self.sent.bytes();
        for (data, index) in piece.data.chunks_exact(piece.block).zip(0..) {
            if let Some(first) = first_difference(data, part(sent, index, piece.block)?) {
                return Err(self.miscompare(index, piece.block, first));
            }
        }
        Ok(())
    }

    /// INFORMATION is the place in the Data-Out buffer.
    fn miscompare(&self, index: u64, block: usize, first: usize) -> Fault {
        let travels = block + if self.terms.travels() { INFORMATION_LEN } else { 0 };
        let at = index.saturating_mul(travels as u64).saturating_add(first as u64);
        sense::MISCOMPARE.with_information(at).into()
    }

    /// Writes what belongs beside the new data of a piece, before them. `first`: which of the
    /// blocks that were sent is the first one to be written.
    fn save(&mut self, piece: &Piece<'_>, new: Slice, first: u64) -> Step {
        let data = new.bytes();
        let mut records = Vec::with_capacity(piece.records.len());
        for (block, data) in piece.blocks().zip(data.chunks_exact(piece.block)) {
            let information = self.information(block.place, data, first);
            let record = block.record.replaced(block.data_crc, crc::crc32c(data), information);
            records.extend_from_slice(&record.emit());
        }
        self.stage = Stage::SavingRecords(new);
        let offset = records_at(piece.lba);
        Step::Store(Op::Write { offset, data: Slice::from(records), durable: self.durable })
    }

    /// What is to stand beside a block.
    fn information(&self, place: BlockPosition, data: &[u8], first: u64) -> Information {
        let guard = || crc::crc16_t10dif(data);
        let index = if matches!(self.work, Work::Same(_)) { 0 } else { place.index + first };
        match (self.sent.information(index), self.work) {
            (None, _) => self.terms.generated(guard(), place.lba),
            (Some(sent), Work::Same(_)) => self.terms.repeated(sent, place.index),
            // The data are others than those that were sent.
            (Some(sent), Work::Or) => Information { guard: guard(), ..sent },
            (Some(sent), _) => sent,
        }
    }

    /// The next piece, or the end.
    fn next(&mut self, length: u64) -> Step {
        self.at += length;
        if self.at < self.end() {
            return self.load();
        }
        if let Work::WriteVerify(against) = self.work {
            self.work = Work::Verify(against);
            self.at = self.extent.offset;
            return self.load();
        }
        Step::Complete(sense::good(self.presented))
    }

    /// Clears the next piece.
    fn clear(&mut self, unit: &LogicalUnit) -> Step {
        let (length, _) = clear::piece(self.at, self.end() - self.at, self.leave());
        if length == 0 {
            return Step::Complete(sense::good(self.presented));
        }
        self.stage = Stage::ClearingRecords(length);
        let (offset, length) = self.records(unit, length);
        Step::Store(Op::Clear { offset, length, leave: self.leave() })
    }

    /// What becomes of the space of what is cleared, and of what is beside it: who writes to it
    /// later needs both.
    const fn leave(&self) -> Space {
        match self.work {
            Work::Clear(leave) => leave,
            _ => Space::Deallocated,
        }
    }

    /// Where what is beside `length` bytes from here on stands, and how long it is.
    fn records(&self, unit: &LogicalUnit, length: u64) -> (u64, u64) {
        (records_at(unit.lba_of(self.at)), unit.lba_of(length) * RECORD_LEN as u64)
    }

    const fn end(&self) -> u64 {
        self.extent.offset + self.extent.length
    }

    /// Longest piece, bytes: what one buffer holds where data travel, else less, so that others get
    /// their turn.
    const fn piece_max(&self) -> u32 {
        match self.work {
            Work::Verify(_) | Work::Same(_) => limits::PIECE_MAX,
            _ => limits::TRANSFER_MAX,
        }
    }

    /// One block as often as a piece needs it.
    fn pattern(&self, block: &[u8]) -> Slice {
        same::repeat(block, self.extent.length.min(u64::from(limits::PIECE_MAX)))
    }
}
