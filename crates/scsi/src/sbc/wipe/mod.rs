// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FORMAT UNIT and SANITIZE: the whole medium is written anew while everybody waits.
//!
//! ```text
//!          FORMAT, SANITIZE                 done
//! ordinary ----------------> wiping ------------------> ordinary
//!                              | a store fails             ^
//!                              v                           | SANITIZE, FORMAT;
//!                            failed -----------------------+ EXIT FAILURE MODE where AUSE was set
//! ```
//!
//! The work is a job of the unit and of no nexus: neither an abort nor a reset nor the end of the
//! session that asked stops it (SBC-3 §4.11.2). Other commands are answered meanwhile with how far
//! it is.

pub(crate) mod format;
pub(crate) mod sanitize;
#[cfg(test)]
mod tests;

use crate::attention::Attention;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::nexus::Mapped;
use crate::protect;
use crate::sbc::same;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::Slice;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::AtomicU16;
use core::sync::atomic::Ordering;
use store::Op;
use wire::scsi::Sense;
use wire::scsi::protection::ProtectionType;

/// What a unit knows of its last or present wipe.
#[derive(Debug, Default)]
pub(crate) struct Wiping {
    /// Parts of 65536.
    progress: AtomicU16,
    /// Of [`Kind`].
    kind: AtomicU8,
}

/// What wipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Format = 0,
    /// A failure is left by another SANITIZE only.
    Sanitize = 1,
    /// AUSE: a failure is left by EXIT FAILURE MODE too.
    SanitizeUnrestricted = 2,
}

/// With what.
#[derive(Debug)]
pub(crate) enum Content {
    /// Space is given back: zeros.
    Discard,
    /// Zeros that take their space.
    Zeros,
    /// A pattern, as long as a piece, so many times; with its complement in turn.
    Pattern { piece: Slice, passes: u8, complement: Option<Slice> },
}

/// The job.
#[derive(Debug)]
pub(crate) struct Wipe {
    content: Content,
    result: Arc<AtomicU8>,
    /// Next byte.
    at: u64,
    pass: u8,
    stage: Stage,
    protection: Option<Reprotection>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Writing,
    Flushing,
    /// How the unit is formatted is being written.
    Formatting,
    Over,
}

/// What becomes of protection information: what stands beside the blocks is cleared first, so that
/// none of it is ever taken for that of new data; then, when all else is done, the unit is of
/// another type.
#[derive(Debug)]
struct Reprotection {
    /// What is left to be cleared: first byte and end.
    at: u64,
    end: u64,
    kind: Option<ProtectionType>,
    /// Who has asked for it, and need not be told.
    own: Arc<Mapped>,
}

/// A command that waits for the end of its job.
#[derive(Debug)]
pub(crate) struct Awaiting {
    kind: Kind,
    result: Arc<AtomicU8>,
    presented: u64,
}

const FAILED: u8 = 1;

/// Begins; of two commands at the same time one finds that the other was first.
fn begin(
    context: &Context<'_>,
    kind: Kind,
    content: Content,
    immediate: bool,
    presented: u64,
) -> Result<Started, Fault> {
    begin_as(context, (kind, context.unit.protection_type()), content, immediate, presented)
}

/// Begins, and gives a unit that can be protected a type.
fn begin_as(
    context: &Context<'_>,
    (kind, protection): (Kind, Option<ProtectionType>),
    content: Content,
    immediate: bool,
    presented: u64,
) -> Result<Started, Fault> {
    let unit = context.unit;
    let own = context.nexus.mapped_unit(unit).ok_or(sense::INTERNAL)?;
    if !unit.make_special(Special::Wiping) {
        return Err(unit.wiping_sense().into());
    }
    unit.wiping().kind.store(kind as u8, Ordering::Release);
    unit.wiping().progress.store(0, Ordering::Release);
    unit.make_ordinary(Special::WipeFailed);
    let result = Arc::new(AtomicU8::new(0));
    let protection = unit.protection().map(|_| {
        let (at, length) = protect::all_records(unit);
        Reprotection { at, end: at + length, kind: protection, own: Arc::clone(own) }
    });
    let stage = Stage::Writing;
    let wipe = Wipe { content, result: Arc::clone(&result), at: 0, pass: 0, stage, protection };
    let job = Box::new(task::Task::job(Arc::clone(own), Machine::Wipe(Box::new(wipe))));
    if immediate {
        let completion = Some(sense::good(presented));
        return Ok((Machine::Done, Step::Spawn { job, completion }));
    }
    let awaiting = Awaiting { kind, result, presented };
    Ok((Machine::Awaiting(awaiting), Step::Spawn { job, completion: None }))
}

impl Awaiting {
    pub(crate) fn resume(&self, input: &Input) -> Result<Step, Fault> {
        match (input, self.result.load(Ordering::Acquire)) {
            (Input::Turn, FAILED) => Err(self.kind.failed().into()),
            (Input::Turn, _) => Ok(Step::Complete(sense::good(self.presented))),
            _ => Err(sense::INTERNAL.into()),
        }
    }
}

impl Kind {
    const fn of(code: u8) -> Self {
        match code {
            0 => Self::Format,
            1 => Self::Sanitize,
            _ => Self::SanitizeUnrestricted,
        }
    }

    /// What medium access commands are told after a failure, and who asked for it.
    const fn failed(self) -> Sense {
        match self {
            Self::Format => sense::FORMAT_FAILED,
            Self::Sanitize | Self::SanitizeUnrestricted => sense::SANITIZE_FAILED,
        }
    }
}

impl Content {
    /// Zeros by the way that gives space back, where there is one.
    fn zeros(unit: &LogicalUnit) -> Self {
        if unit.can_discard() { Self::Discard } else { Self::Zeros }
    }

    /// `pattern` from the first byte of each block on, over and over.
    fn pattern(unit: &LogicalUnit, pattern: &[u8], passes: u8, invert: bool) -> Self {
        let block = usize::try_from(unit.block()).unwrap_or(0);
        let block: Vec<u8> = pattern.iter().copied().cycle().take(block).collect();
        let piece = |block: &[u8]| same::repeat(block, u64::from(limits::PIECE_MAX));
        let complement = invert.then(|| {
            let complement: Vec<u8> = block.iter().map(|byte| !byte).collect();
            piece(&complement)
        });
        Self::Pattern { piece: piece(&block), passes, complement }
    }

    const fn passes(&self) -> u8 {
        match self {
            Self::Pattern { passes, .. } => *passes,
            _ => 1,
        }
    }
}

impl Wipe {
    /// Takes what the last step gave; Turn begins.
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        if !matches!(input, Input::Turn)
            && let Err(fault) = task::done(input, unit.lba_of(self.at))
        {
            self.end(unit, FAILED);
            return Err(fault);
        }
        if let Some(op) = self.protection.as_mut().and_then(Reprotection::clear) {
            return Ok(Step::Store(op));
        }
        match (self.stage, &self.protection) {
            (Stage::Flushing, Some(Reprotection { kind, .. }))
                if *kind != unit.protection_type() =>
            {
                self.stage = Stage::Formatting;
                return Ok(Step::Store(protect::header(unit, *kind)));
            }
            (Stage::Flushing | Stage::Formatting, _) => {
                self.end(unit, 0);
                return Ok(Step::Complete(sense::good(0)));
            }
            _ => {}
        }
        let end = unit.blocks() * u64::from(unit.block());
        if self.at >= end {
            self.pass += 1;
            self.at = 0;
        }
        self.show(unit, end);
        if self.pass == self.content.passes() {
            self.stage = Stage::Flushing;
            return Ok(Step::Store(Op::Flush));
        }
        let op = self.op(end)?;
        self.at += op.range().1;
        Ok(Step::Store(op))
    }

    fn op(&self, end: u64) -> Result<Op, Fault> {
        let (offset, left) = (self.at, end.saturating_sub(self.at));
        Ok(match &self.content {
            Content::Discard => Op::Discard { offset, length: left.min(limits::DISCARD_MAX) },
            Content::Zeros => Op::Zero { offset, length: left.min(u64::from(limits::ZERO_MAX)) },
            Content::Pattern { piece, complement, .. } => {
                let piece = complement.as_ref().filter(|_| self.pass % 2 == 1).unwrap_or(piece);
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let data = piece.part(0..length).ok_or(sense::INTERNAL)?;
                Op::Write { offset, data, durable: false }
            }
        })
    }

    fn show(&self, unit: &LogicalUnit, end: u64) {
        let passes = u128::from(self.content.passes());
        let done = u128::from(end) * u128::from(self.pass) + u128::from(self.at);
        let parts = done * 65_536 / (u128::from(end) * passes);
        let parts = u16::try_from(parts).unwrap_or(u16::MAX);
        unit.wiping().progress.store(parts, Ordering::Release);
    }

    fn end(&mut self, unit: &LogicalUnit, result: u8) {
        self.stage = Stage::Over;
        self.result.store(result, Ordering::Release);
        if let (0, Some(new), Some(protection)) = (result, &self.protection, unit.protection())
            && protection.kind() != new.kind
        {
            protection.set_kind(new.kind);
            // READ CAPACITY(16) says another P_TYPE (SBC-3 §4.10).
            unit.establish_elsewhere(&new.own.link, Attention::CapacityChanged);
        }
        if result == FAILED {
            unit.make_special(Special::WipeFailed);
        }
        unit.make_ordinary(Special::Wiping);
    }
}

impl Reprotection {
    /// The next piece of what is to be cleared.
    fn clear(&mut self) -> Option<Op> {
        let (offset, length) = (self.at, (self.end - self.at).min(limits::DISCARD_MAX));
        self.at += length;
        (length > 0).then_some(Op::Discard { offset, length })
    }
}

impl LogicalUnit {
    /// How far FORMAT UNIT or SANITIZE is.
    pub(crate) fn wiping_sense(&self) -> Sense {
        let sense = match self.wiping_kind() {
            Kind::Format => sense::FORMAT_IN_PROGRESS,
            Kind::Sanitize | Kind::SanitizeUnrestricted => sense::SANITIZE_IN_PROGRESS,
        };
        sense.with_progress(self.wiping().progress.load(Ordering::Acquire))
    }

    /// What is told of a wipe that failed.
    pub(crate) fn wipe_failed_sense(&self) -> Sense {
        self.wiping_kind().failed()
    }

    pub(crate) fn wiping_kind(&self) -> Kind {
        Kind::of(self.wiping().kind.load(Ordering::Acquire))
    }
}
