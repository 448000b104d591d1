// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FORMAT UNIT and SANITIZE: the whole medium is written anew while everybody waits.
//!
//! ```text
//!          FORMAT, SANITIZE                 done
//! ordinary ----------------> wiping ------------------> ordinary
//!                              | a store fails, a crash,   ^
//!                              | the end cannot be kept    |
//!                              v                           | SANITIZE, FORMAT;
//!                            failed -----------------------+ EXIT FAILURE MODE where AUSE was set
//! ```
//!
//! The work is a job of the unit and of no nexus: neither an abort nor a reset nor the end of the
//! session that asked stops it (SBC-3 §4.11.2). Other commands are answered meanwhile with how far
//! it is.

pub(crate) mod format;
mod protection;
pub(crate) mod sanitize;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use state::Kind;
pub(crate) use state::Wiping;

use crate::keeping::Change;
use crate::keeping::Keeping;
use crate::kept::KeepFailed;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::nexus::Mapped;
use crate::sbc::clear;
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
use core::sync::atomic::Ordering;
use protection::Reprotection;
use store::Error;
use store::Op;
use store::Outcome;
use store::Space;
use wire::scsi::protection::ProtectionType;

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
    /// What the store was asked for last.
    last: Option<Op>,
    trying: Trying,
}

/// What a store refuses for a moment is asked of it again: nothing is wrong with the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trying {
    First,
    /// Until changes are held back no more.
    Waits,
    /// Until others have given back what they use.
    Crowded,
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Writing,
    Flushing,
    /// How the unit is formatted is being written.
    Formatting,
    /// That the medium is as it should be is being kept.
    Keeping,
    Over,
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
    // It may have left the map since the command came.
    let own = context.nexus.mapped_unit(unit).ok_or(sense::UNIT_NOT_SUPPORTED)?;
    if !unit.make_special(Special::Wiping) {
        return Err(unit.wiping_sense().into());
    }
    // Who holds them back looks behind that for what is under way.
    if unit.holds_wipes_back() {
        unit.make_ordinary(Special::Wiping);
        return Err(Fault::BUSY);
    }
    let before = unit.wiping_kind();
    unit.wiping().begin(kind);
    let result = Arc::new(AtomicU8::new(0));
    let protection = Reprotection::new(unit, protection, own);
    let wipe = Wipe {
        content,
        result: Arc::clone(&result),
        at: 0,
        pass: 0,
        stage: Stage::Writing,
        protection,
        last: None,
        trying: Trying::First,
    };
    let awaiting = Awaiting { kind, result, presented };
    let own = Arc::clone(own);
    let beginning = Beginning { before, own, wipe: Box::new(wipe), awaiting, immediate };
    // Kept before the first byte changes: after a crash nobody takes the rest for a whole medium.
    match unit.note_wipe(Some(kind)) {
        Some(keep) => Ok(Keeping::begin(Change::WipeBegins(beginning), keep, 0)),
        None => beginning.finish(unit, Ok(())),
    }
}

/// A wipe that begins as soon as that is kept.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// The wipe before.
    before: Kind,
    own: Arc<Mapped>,
    wipe: Box<Wipe>,
    awaiting: Awaiting,
    immediate: bool,
}

impl Beginning {
    /// It is kept that it begins; or not.
    pub(crate) fn finish(
        self,
        unit: &LogicalUnit,
        result: Result<(), KeepFailed>,
    ) -> Result<Started, Fault> {
        let Self { before, own, wipe, awaiting, immediate } = self;
        if let Err(failed) = result {
            unit.wiping().begin(before);
            unit.make_ordinary(Special::Wiping);
            return Err(failed.into());
        }
        unit.make_ordinary(Special::WipeFailed);
        let job = Box::new(task::Task::job(own, Machine::Wipe(wipe)));
        if immediate {
            let completion = Some(sense::good(awaiting.presented));
            return Ok((Machine::Done, Step::Spawn { job, completion }));
        }
        Ok((Machine::Awaiting(awaiting), Step::Spawn { job, completion: None }))
    }
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
        let step = match self.try_again(unit, &input) {
            Some(step) => Ok(step),
            None => self.advance(unit, input),
        };
        match &step {
            Ok(Step::Store(op)) => self.last = Some(op.clone()),
            Ok(_) => {}
            Err(_) => self.end(unit, FAILED),
        }
        step
    }

    /// The next step, if the last one is to be done again.
    fn try_again(&mut self, unit: &LogicalUnit, input: &Input) -> Option<Step> {
        let is_held = unit.store().is_held_back();
        match input {
            // It may have been held back until just now. Who says so twice has fallen silent.
            Input::Store(Outcome::Failed(Error::Silent))
                if is_held || self.trying != Trying::Again =>
            {
                self.trying = Trying::Waits;
                Some(Step::Wait)
            }
            // Others have so much of it, and give it back: a write hears TASK SET FULL.
            Input::Store(Outcome::Failed(Error::Busy)) => {
                self.trying = Trying::Crowded;
                Some(Step::Wait)
            }
            // Of silence nothing was said.
            Input::Turn if self.trying == Trying::Crowded => {
                self.trying = Trying::First;
                self.last.clone().map(Step::Store)
            }
            Input::Turn if self.trying == Trying::Waits && is_held => Some(Step::Wait),
            Input::Turn if self.trying == Trying::Waits => {
                self.trying = Trying::Again;
                self.last.clone().map(Step::Store)
            }
            _ => {
                self.trying = Trying::First;
                None
            }
        }
    }

    /// Nobody carries it on: without this the unit would say for ever that it is under way.
    pub(crate) fn abandon(&mut self, unit: &LogicalUnit) {
        if self.stage != Stage::Over {
            self.end(unit, FAILED);
        }
    }

    fn advance(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        match input {
            Input::Turn => {}
            Input::Kept(result) => return self.kept(unit, result),
            input => task::done(input, unit.lba_of(self.at))?,
        }
        if let Some(op) = self.protection.as_mut().and_then(Reprotection::clear) {
            return Ok(Step::Store(op));
        }
        if self.stage == Stage::Formatting {
            return Ok(self.keep(unit));
        }
        let end = unit.blocks() * u64::from(unit.block());
        if self.stage == Stage::Flushing {
            if self.pass == self.content.passes() {
                if let Some(op) = self.protection.as_ref().and_then(|of| of.header(unit)) {
                    self.stage = Stage::Formatting;
                    return Ok(Step::Store(op));
                }
                return Ok(self.keep(unit));
            }
            self.stage = Stage::Writing;
        } else if self.at >= end {
            // Each pass reaches the medium: in a cache the next one would overwrite it.
            self.pass += 1;
            self.at = 0;
            self.stage = Stage::Flushing;
            self.show(unit, end);
            return Ok(Step::Store(Op::Flush));
        }
        self.show(unit, end);
        let op = self.op(end)?;
        self.at += op.range().1;
        Ok(Step::Store(op))
    }

    /// All is written. It has ended well when that is kept: else the next start would take the
    /// medium, and what hosts have written to it since, for one that is wiped in part.
    fn keep(&mut self, unit: &LogicalUnit) -> Step {
        match unit.note_wipe(None) {
            Some(keep) => {
                self.stage = Stage::Keeping;
                Step::Keep(keep)
            }
            None => self.end_well(unit),
        }
    }

    fn kept(&mut self, unit: &LogicalUnit, result: Result<(), KeepFailed>) -> Result<Step, Fault> {
        if self.stage != Stage::Keeping {
            return Err(sense::INTERNAL.into());
        }
        if result.is_err()
            && let Some(protection) = &self.protection
        {
            // So it is written.
            protection.take_effect(unit);
        }
        result?;
        Ok(self.end_well(unit))
    }

    fn end_well(&mut self, unit: &LogicalUnit) -> Step {
        self.end(unit, 0);
        Step::Complete(sense::good(0))
    }

    fn op(&self, end: u64) -> Result<Op, Fault> {
        let (offset, left) = (self.at, end.saturating_sub(self.at));
        Ok(match &self.content {
            Content::Discard => clear::piece(offset, left, Space::Deallocated).1,
            Content::Zeros => clear::piece(offset, left, Space::Mapped).1,
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
        if let (0, Some(protection)) = (result, &self.protection) {
            protection.take_effect(unit);
        }
        if result == FAILED {
            unit.make_special(Special::WipeFailed);
        }
        unit.make_ordinary(Special::Wiping);
    }
}
