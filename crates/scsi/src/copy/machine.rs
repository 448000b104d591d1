// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A copy under way: piece by piece, from the store of one unit to that of another.
//!
//! ```text
//! read piece --> write piece --> read next piece --> ... --> Complete
//!                zero piece  --> zero next piece
//! ```
//!
//! Both units are asked before each piece, for reservations, write protection and access states may
//! change under way. A write holds its unit only until it is done, so that COMPARE AND WRITE gets
//! its turn between two pieces. Where there is no memory for a piece, a shorter one takes its
//! place.

use super::records::Record;
use super::tokens::RodToken;
use crate::limits;
use crate::lun::Special;
use crate::nexus::Mapped;
use crate::sense;
use crate::sense::Fault;
use crate::spc::alua::reach::Reach;
use crate::spc::persistent::rights;
use crate::spc::persistent::rights::Guard;
use crate::spc::persistent::rights::Starts;
use crate::task::Input;
use crate::task::Step;
use alloc::sync::Arc;
use alloc::vec::Vec;
use store::Error;
use store::Op;
use store::Outcome;
use store::Space;
use wire::scsi::copy::CopyStatus;

/// A run of bytes and where it goes.
#[derive(Debug)]
pub(crate) struct Leg {
    /// None: zeros.
    pub(crate) source: Option<Arc<Mapped>>,
    pub(crate) from: u64,
    pub(crate) destination: Arc<Mapped>,
    pub(crate) to: u64,
    pub(crate) length: u64,
}

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Copy {
    legs: Vec<Leg>,
    record: Option<Arc<Record>>,
    /// The data are those of a token, which must stay good until the end.
    token: Option<Arc<RodToken>>,
    /// The token ends with the copy.
    delete: bool,
    /// The port of the nexus that asked, whose access state counts.
    relative_port: u16,
    /// Bytes of Data-Out.
    presented: u64,
    leg: usize,
    /// Bytes of the leg that are done.
    done: u64,
    /// Bytes of the piece under way.
    piece: u64,
    /// Blocks that have been written.
    blocks: u64,
    /// Zeros were written, which no store writes through its cache.
    zeroed: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Reading,
    Writing,
    Flushing,
}

impl Copy {
    pub(crate) const fn new(
        legs: Vec<Leg>,
        record: Option<Arc<Record>>,
        token: Option<Arc<RodToken>>,
        relative_port: u16,
        presented: u64,
    ) -> Self {
        Self {
            legs,
            record,
            token,
            delete: false,
            relative_port,
            presented,
            leg: 0,
            done: 0,
            piece: 0,
            blocks: 0,
            zeroed: false,
            stage: Stage::Begun,
        }
    }

    /// The same, after which its token is no more (DEL_TKN).
    pub(crate) const fn deleting(mut self) -> Self {
        self.delete = true;
        self
    }

    /// Takes what the last step gave; Turn begins.
    pub(crate) fn resume(&mut self, input: Input) -> Result<Step, Fault> {
        let result = self.advance(input);
        match &result {
            Err(fault) => self.end(CopyStatus::Failed, Some(fault)),
            Ok(Step::Complete(_)) => self.end(CopyStatus::Done, None),
            Ok(_) => {}
        }
        result
    }

    /// The unit that the operation under way is for.
    pub(crate) fn place(&self) -> Option<&Arc<Mapped>> {
        let leg = self.legs.get(self.leg)?;
        if self.stage == Stage::Reading { leg.source.as_ref() } else { Some(&leg.destination) }
    }

    /// It cannot go on, for a reason that it does not see itself.
    pub(crate) fn fail(&self, fault: &Fault) {
        self.end(CopyStatus::Failed, Some(fault));
    }

    fn end(&self, status: CopyStatus, fault: Option<&Fault>) {
        if let (CopyStatus::Done, true, Some(token)) = (status, self.delete, &self.token) {
            token.delete();
        }
        if let Some(record) = &self.record {
            record.end(status, fault);
        }
    }

    /// There is no memory for the piece that it would read: a shorter one, of whole blocks of both
    /// units; None if there is none.
    pub(crate) fn shorten(&mut self) -> Option<Step> {
        if self.stage != Stage::Reading {
            return None;
        }
        let leg = self.legs.get(self.leg)?;
        let source = leg.source.as_ref()?;
        let block = u64::from(source.unit.block().max(leg.destination.unit.block()));
        let shorter = (self.piece / 2).checked_div(block)? * block;
        let length = u32::try_from(shorter).ok().filter(|length| *length > 0)?;
        self.piece = shorter;
        let offset = leg.from + self.offset(leg);
        Some(Step::Store(Op::Read { offset, length }))
    }

    /// It has waited to take `step`.
    pub(crate) fn go_on(&self, step: Step) -> Result<Step, Fault> {
        self.check_cancelled()?;
        Ok(step)
    }

    /// It goes no further.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_cancelled())
    }

    fn check_cancelled(&self) -> Result<(), Fault> {
        if self.is_cancelled() {
            self.end(CopyStatus::Terminated, None);
            return Err(sense::COPY_ABORTED.into());
        }
        Ok(())
    }

    fn advance(&mut self, input: Input) -> Result<Step, Fault> {
        self.check_cancelled()?;
        match (self.stage, input) {
            (Stage::Begun, Input::Turn) => self.next_piece(),
            (Stage::Reading, Input::Store(Outcome::Data(data)))
                if data.len() as u64 == self.piece =>
            {
                self.stage = Stage::Writing;
                let leg = self.legs.get(self.leg).ok_or(sense::INTERNAL)?;
                let offset = leg.to + self.offset(leg);
                let durable = leg.destination.unit.is_special(Special::WriteThrough);
                Ok(Step::Store(Op::Write { offset, data, durable }))
            }
            (Stage::Writing, Input::Store(Outcome::Done)) => self.written(),
            (Stage::Flushing, Input::Store(Outcome::Done)) => {
                self.zeroed = false;
                self.leg = self.legs.len();
                self.next_piece()
            }
            (_, Input::Store(Outcome::Failed(error))) => Err(match error {
                // Hosts stop what runs on a thin disk when they see it.
                Error::Space => sense::store_failed(error, 0),
                // As if it had not begun: whoever asks again may get it.
                Error::Silent | Error::Busy if self.blocks == 0 => sense::store_failed(error, 0),
                _ => sense::THIRD_PARTY_FAILURE.into(),
            }),
            _ => Err(sense::INTERNAL.into()),
        }
    }

    /// A piece is where it belongs. The token is looked at only now, after the bytes were taken:
    /// whoever changes the source revokes the token before.
    fn written(&mut self) -> Result<Step, Fault> {
        if let Some(token) = &self.token {
            token.check()?;
        }
        let leg = self.legs.get(self.leg).ok_or(sense::INTERNAL)?;
        self.blocks += leg.destination.unit.lba_of(self.piece);
        self.done += self.piece;
        if self.done == leg.length {
            self.leg += 1;
            self.done = 0;
        }
        if let Some(record) = &self.record {
            record.advance(self.leg, self.blocks);
        }
        self.next_piece()
    }

    fn next_piece(&mut self) -> Result<Step, Fault> {
        while self.legs.get(self.leg).is_some_and(|leg| leg.length == 0) {
            self.leg += 1;
        }
        let Some(leg) = self.legs.get(self.leg) else {
            return Ok(self.finish());
        };
        check(&leg.destination, self.relative_port, Guard::Writes)?;
        self.piece = leg.piece(self.done);
        let (offset, length) = (self.offset(leg), self.piece);
        let Some(source) = &leg.source else {
            (self.stage, self.zeroed) = (Stage::Writing, true);
            return Ok(Step::Store(Op::Clear {
                offset: leg.to + offset,
                length,
                leave: Space::Mapped,
            }));
        };
        check(source, self.relative_port, Guard::Reads)?;
        self.stage = Stage::Reading;
        let length = u32::try_from(length).map_err(|_| sense::INTERNAL)?;
        Ok(Step::Store(Op::Read { offset: leg.from + offset, length }))
    }

    /// All is written. Where the cache must not be relied on, zeros are brought to stable storage
    /// before the end; all legs of zeros have one destination.
    fn finish(&mut self) -> Step {
        if let (true, Some(last)) = (self.zeroed, self.legs.last())
            && last.destination.unit.is_special(Special::WriteThrough)
        {
            (self.stage, self.leg) = (Stage::Flushing, self.legs.len() - 1);
            return Step::Store(Op::Flush);
        }
        Step::Complete(sense::good(self.presented))
    }

    /// Where the piece under way begins in its leg.
    fn offset(&self, leg: &Leg) -> u64 {
        if leg.is_backward() { leg.length - self.done - self.piece } else { self.done }
    }
}

impl Drop for Copy {
    /// With its task: aborted, or its nexus lost.
    fn drop(&mut self) {
        self.end(CopyStatus::Terminated, None);
    }
}

impl Leg {
    /// Bytes of the next piece.
    fn piece(&self, done: u64) -> u64 {
        let left = self.length - done;
        let Some(source) = &self.source else { return left.min(limits::ZERO_MAX) };
        let longest = u64::from(limits::COPY_PIECE);
        // Within one unit a piece does not overlap itself.
        let apart = self.from.abs_diff(self.to);
        let same = core::ptr::eq(&raw const *source.unit, &raw const *self.destination.unit);
        left.min(if same && apart > 0 { longest.min(apart) } else { longest })
    }

    /// True if the last bytes must go first, for the source begins before the destination in the
    /// same unit and reaches into it.
    fn is_backward(&self) -> bool {
        self.source.as_ref().is_some_and(|source| {
            core::ptr::eq(&raw const *source.unit, &raw const *self.destination.unit)
                && self.from < self.to
                && self.to < self.from + self.length
        })
    }
}

/// Whether the nexus may use its copy source (guard `Reads`) or copy destination (`Writes`) now.
fn check(mapped: &Mapped, relative_port: u16, guard: Guard) -> Result<(), Fault> {
    let (unit, nexus_state) = (&mapped.unit, &mapped.nexus_state);
    if unit.is_special(Special::Reserved)
        && !rights::allows(unit.reserved(), nexus_state.standing.load(), guard, Starts::No)
    {
        return Err(sense::THIRD_PARTY_FAILURE.into());
    }
    let blocked = unit.is_special(Special::Asymmetric)
        && unit.access().obstacle(relative_port, Reach::Active).is_some();
    if blocked || unit.not_ready().is_some() {
        return Err(sense::COPY_TARGET_NOT_REACHABLE.into());
    }
    if guard == Guard::Writes {
        if unit.geometry().read_only {
            return Err(sense::WRITE_PROTECTED.into());
        }
        if unit.is_special(Special::WriteProtected) {
            return Err(sense::SOFTWARE_WRITE_PROTECTED.into());
        }
    }
    Ok(())
}
