// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One operation on a disk, or one command, from its letter to its end: which commands it takes,
//! and what they bring.
//!
//! ```text
//! Commands --all ended--> done
//!     |  not yet on stable storage
//!     v
//! Flush --all questions answered--> done
//! ```

use std::sync::Arc;

use buf::Buf;
use buf::Slice;
use wire::iscsi::Cdb;
use wire::scsi::SenseKey;
use wire::scsi::capacity::Capacity;
use wire::scsi::command;
use wire::scsi::mode;
use wire::scsi::opcode::Opcode;

use super::mail::Ended;
use super::mail::Outcome;
use super::mail::Owner;
use crate::Chunks;
use crate::Data;
use crate::Done;
use crate::Durability;
use crate::Error;
use crate::Generation;
use crate::Geometry;
use crate::Kind;
use crate::Operation;
use crate::Request;
use crate::Retry;
use crate::SessionId;
use crate::Space;
use crate::disk::Cache;
use crate::disk::DiskState;
use crate::flush::Flush;
use crate::scsi::capacity_of_10;
use crate::scsi::is_unsupported;
use crate::scsi::unmap_command;

/// An operation or a command that has not ended.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) session: SessionId,
    pub(super) owner: Owner,
    stage: Stage,
    /// A command that found no room.
    refused: Option<Request>,
    /// Commands under way.
    left: u32,
    /// Commands that were sent.
    sent: u32,
    first: Option<Buf>,
    rest: Vec<Option<Buf>>,
    generation: Generation,
    /// The error of the command that comes first in the range.
    error: Option<(u32, Error)>,
}

/// What an operation is at.
#[derive(Debug)]
enum Stage {
    /// One command of the caller's.
    Command(Option<Request>),
    /// A range of a disk.
    Range(Target, Range),
    /// A flush; true: its question was sent.
    Flush(Target, Flush, bool),
    /// What may change: READ CAPACITY, then MODE SENSE.
    Look(Target, Look),
    /// Nothing more is sent.
    Over,
}

/// The disk of an operation.
#[derive(Clone, Debug)]
struct Target {
    disk: Arc<DiskState>,
    geometry: Geometry,
}

/// What is left of a range to be sent.
#[derive(Debug)]
struct Range {
    operation: Operation,
    lba: u64,
    blocks: u64,
    /// Bytes of the data of a write that are sent.
    at: usize,
}

/// Which question is next, or was sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Long,
    LongSent,
    Short,
    ShortSent,
    Mode(Option<Capacity>),
    ModeSent(Option<Capacity>),
}

/// What there is to do after a command has ended.
#[derive(Debug)]
pub(super) enum Next {
    /// Others are under way.
    Wait,
    /// Ask for the next one.
    Send,
    /// The end.
    End(Outcome),
    /// The end of the questions for size and cache, with what the unit told of each.
    Looked(Arc<DiskState>, Option<Capacity>, Option<Cache>),
}

impl Running {
    /// A command.
    pub(super) fn command(session: SessionId, request: Request, owner: Owner) -> Self {
        Self::new(session, owner, Stage::Command(Some(request)))
    }

    /// An operation that fits `geometry`.
    pub(super) fn operation(
        disk: Arc<DiskState>,
        geometry: Geometry,
        operation: Operation,
        owner: Owner,
    ) -> Self {
        let (session, target) = (disk.session, Target { disk, geometry });
        let Some((offset, length)) = operation.range() else {
            return Self::new(session, owner, target.flush());
        };
        let block = u64::from(geometry.block.max(1));
        let range = Range { operation, lba: offset / block, blocks: length / block, at: 0 };
        Self::new(session, owner, Stage::Range(target, range))
    }

    /// The questions for the size of a disk, and for its cache.
    pub(super) fn look(disk: Arc<DiskState>, geometry: Geometry) -> Self {
        let (session, target) = (disk.session, Target { disk, geometry });
        Self::new(session, Owner::Server, Stage::Look(target, Look::Long))
    }

    fn new(session: SessionId, owner: Owner, stage: Stage) -> Self {
        Self {
            session,
            owner,
            stage,
            refused: None,
            left: 0,
            sent: 0,
            first: None,
            rest: Vec::new(),
            generation: Generation::default(),
            error: None,
        }
    }

    /// The next command to send, and which one of this operation it is. It counts as under way.
    pub(super) fn take(&mut self) -> Option<(u32, Request)> {
        let request = self.refused.take().or_else(|| self.stage.next())?;
        let part = self.sent;
        (self.left, self.sent) = (self.left + 1, self.sent + 1);
        Some((part, request))
    }

    /// There was no room for it.
    pub(super) fn give_back(&mut self, request: Request) {
        (self.left, self.sent) = (self.left - 1, self.sent - 1);
        self.refused = Some(request);
    }

    /// Whether nothing is under way.
    pub(super) const fn is_idle(&self) -> bool {
        self.left == 0
    }

    /// Whether it waits for room.
    pub(super) const fn waits_for_room(&self) -> bool {
        self.refused.is_some()
    }

    /// A command has ended. Nothing more is sent after an error.
    pub(super) fn ended(&mut self, part: u32, result: Result<Done, Error>) {
        self.left = self.left.saturating_sub(1);
        match result {
            Ok(done) => {
                self.generation = done.generation;
                self.stage.done(done.generation);
                self.keep(part, done.data);
            }
            Err(error) => {
                if self.error.as_ref().is_none_or(|(of, _)| part < *of) {
                    self.error = Some((part, self.judged(error)));
                }
                self.refused = None;
                if let Stage::Range(_, range) = &mut self.stage {
                    range.blocks = 0;
                }
            }
        }
    }

    fn keep(&mut self, part: u32, data: Option<Buf>) {
        let (Some(data), part) = (data, part as usize) else { return };
        let Some(at) = part.checked_sub(1) else {
            self.first = Some(data);
            return;
        };
        if self.rest.len() <= at {
            self.rest.resize_with(at + 1, || None);
        }
        if let Some(place) = self.rest.get_mut(at) {
            *place = Some(data);
        }
    }

    /// What to do when all that was sent has ended.
    pub(super) fn next(&mut self) -> Next {
        if self.left > 0 || self.waits_for_room() {
            return Next::Wait;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        match (stage, self.error.take()) {
            (Stage::Flush(target, flush, true), error) => self.flushed(target, flush, error),
            (Stage::Look(target, look), error) => {
                self.looked(target, look, error.map(|(_, error)| error))
            }
            (_, Some((_, error))) => Next::End(Err(error)),
            (Stage::Range(target, range), None) if range.needs_flush(&target.geometry) => {
                self.stage = target.flush();
                Next::Send
            }
            // Whoever writes so never flushes: there is nobody else to tell.
            (Stage::Range(target, range), None)
                if range.is_durable(&target.geometry) && target.has_failed(self.generation) =>
            {
                Next::End(Err(Error::new(Kind::WritesLost).at_lun(target.disk.lun)))
            }
            _ => Next::End(Ok(self.outcome())),
        }
    }

    fn outcome(&mut self) -> Ended {
        let rest = std::mem::take(&mut self.rest).into_iter().flatten().collect();
        let data = Chunks { first: self.first.take(), rest };
        Ended { data, generation: self.generation }
    }

    fn flushed(&mut self, target: Target, mut flush: Flush, error: Option<(u32, Error)>) -> Next {
        let data = self.take_data(self.sent.saturating_sub(1));
        let result = match error {
            None => Ok(Done { data, generation: self.generation }),
            Some((_, error)) => Err(error),
        };
        let end = {
            let ledger = &mut target.disk.inner().ledger;
            flush.answer(result, Some(&target.geometry), ledger)
        };
        match end {
            None => {
                self.stage = Stage::Flush(target, flush, false);
                Next::Send
            }
            Some(Ok(_)) => Next::End(Ok(self.outcome())),
            Some(Err(error)) => Next::End(Err(error.at_lun(target.disk.lun))),
        }
    }

    fn looked(&mut self, target: Target, look: Look, error: Option<Error>) -> Next {
        let answer = self.take_data(self.sent.saturating_sub(1));
        let next = match (look, error) {
            (Look::LongSent, None) => {
                Look::Mode(answer.and_then(|bytes| Capacity::parse_16(&bytes)))
            }
            (Look::LongSent, Some(error)) if is_unsupported(&error) => Look::Short,
            (Look::ShortSent, None) => {
                let told = answer.and_then(|bytes| Capacity::parse_10(&bytes));
                Look::Mode(told.map(|(last, block)| capacity_of_10(last, block)))
            }
            (Look::ModeSent(capacity), error) => {
                let is_told = error.as_ref().is_none_or(is_unsupported);
                let cache = is_told.then(|| Cache::of(answer.as_deref(), self.generation));
                return Next::Looked(target.disk, capacity, cache);
            }
            _ => Look::Mode(None),
        };
        self.stage = Stage::Look(target, next);
        Next::Send
    }

    fn take_data(&mut self, part: u32) -> Option<Buf> {
        match (part as usize).checked_sub(1) {
            None => self.first.take(),
            Some(at) => self.rest.get_mut(at).and_then(Option::take),
        }
    }

    /// What a miscompare is to the caller.
    fn judged(&self, error: Error) -> Error {
        let Stage::Range(_, Range { operation, .. }) = &self.stage else { return error };
        match (operation, error.sense()) {
            (Operation::CompareAndWrite { .. }, Some(sense))
                if sense.key == SenseKey::Miscompare =>
            {
                error.into_kind(Kind::Miscompare { at: sense.information })
            }
            _ => error,
        }
    }
}

impl Stage {
    fn next(&mut self) -> Option<Request> {
        match self {
            Self::Command(request) => request.take(),
            Self::Range(target, range) => range.next(target),
            Self::Flush(target, flush, sent @ false) => {
                *sent = true;
                let (cdb, data) = flush.question();
                Some(target.ask(cdb, data))
            }
            Self::Look(target, look) => {
                let (cdb, data, sent) = match *look {
                    Look::Long => (command::read_capacity_16(32), Data::In(32), Look::LongSent),
                    Look::Short => {
                        (command::plain(Opcode::READ_CAPACITY_10), Data::In(8), Look::ShortSent)
                    }
                    Look::Mode(capacity) => {
                        let cdb = command::mode_sense_6(mode::ALL_PAGES, 255);
                        (cdb, Data::In(255), Look::ModeSent(capacity))
                    }
                    Look::LongSent | Look::ShortSent | Look::ModeSent(_) => return None,
                };
                *look = sent;
                Some(target.ask(cdb, data))
            }
            _ => None,
        }
    }

    /// A command has ended well: what it wrote is to be accounted for.
    fn done(&self, generation: Generation) {
        match self {
            Self::Range(_, range) if !range.changes() => {}
            Self::Range(target, range) if range.is_durable(&target.geometry) => {
                target.disk.inner().ledger.wrote_durably(generation);
            }
            Self::Range(target, _) => target.disk.inner().wrote(generation),
            _ => {}
        }
    }
}

impl Target {
    fn ask(&self, cdb: Cdb, data: Data) -> Request {
        Request { lun: self.disk.lun, cdb, data, retry: Retry::Always }
    }

    /// A flush of what was written until now.
    fn flush(self) -> Stage {
        let flush = Flush::new(&self.disk.inner().ledger);
        Stage::Flush(self, flush, false)
    }

    fn has_failed(&self, generation: Generation) -> bool {
        self.disk.inner().ledger.has_failed(generation)
    }
}

impl Range {
    const fn changes(&self) -> bool {
        !matches!(self.operation, Operation::Read { .. } | Operation::Flush)
    }

    /// Whether what its commands write is on stable storage when they end, as far as the unit says.
    const fn is_durable(&self, geometry: &Geometry) -> bool {
        let wanted =
            matches!(self.operation, Operation::Write { durability: Durability::Stable, .. });
        wanted && geometry.write_through
    }

    /// Whether the operation ends with a flush.
    fn needs_flush(&self, geometry: &Geometry) -> bool {
        let wanted = matches!(
            self.operation,
            Operation::Write { durability: Durability::Stable, .. }
                | Operation::Zero { durability: Durability::Stable, .. }
                | Operation::Discard { durability: Durability::Stable, .. }
        );
        wanted && !self.is_durable(geometry)
    }

    fn next(&mut self, target: &Target) -> Option<Request> {
        let geometry = &target.geometry;
        let max = match &self.operation {
            Operation::Discard { .. } => geometry.unmap_max,
            Operation::Zero { .. } if geometry.same_max > 0 => geometry.same_max,
            Operation::CompareAndWrite { .. } => geometry.compare_max.into(),
            _ => geometry.transfer_max.max(1),
        };
        let blocks =
            u32::try_from(self.blocks.min(max.into())).ok().filter(|blocks| *blocks > 0)?;
        let (lba, bytes) = (self.lba, (blocks as usize).saturating_mul(geometry.block as usize));
        let (cdb, data) = match &self.operation {
            Operation::Read { .. } => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                (geometry.read(lba, blocks), Data::In(bytes))
            }
            Operation::Write { data, durability, .. } => {
                let data = data.part(self.at..self.at + bytes)?;
                let durably = *durability == Durability::Stable && geometry.write_through;
                let cdb = match durably {
                    true => geometry.write_durably(lba, blocks),
                    false => geometry.write(lba, blocks),
                };
                (cdb, Data::Out(data))
            }
            Operation::Discard { .. } => {
                let (cdb, list) = unmap_command(lba, blocks);
                (cdb, Data::Out(list))
            }
            Operation::Zero { space, .. } if geometry.same_max > 0 => {
                let cdb = match space {
                    Space::GiveBack => geometry.write_same(lba, blocks),
                    Space::Keep => geometry.write_same_in_place(lba, blocks),
                };
                (cdb?, Data::Out(zeroes(geometry.block as usize)))
            }
            Operation::Zero { .. } => (geometry.write(lba, blocks), Data::Out(zeroes(bytes))),
            Operation::CompareAndWrite { expected, new, .. } => {
                let both = [expected.to_vec(), new.to_vec()].concat();
                (geometry.compare_and_write(lba, blocks)?, Data::Out(Slice::from(both)))
            }
            Operation::Flush => return None,
        };
        self.lba += u64::from(blocks);
        self.blocks -= u64::from(blocks);
        self.at += bytes;
        let retry = match &self.operation {
            Operation::CompareAndWrite { .. } => Retry::IfNotDone,
            _ => Retry::Always,
        };
        Some(Request { lun: target.disk.lun, cdb, data, retry })
    }
}

/// Zeroes for one command.
fn zeroes(bytes: usize) -> Slice {
    let shared = Slice::zeroes().ok().and_then(|zeroes| zeroes.into_part(0..bytes));
    shared.unwrap_or_else(|| Slice::from(vec![0; bytes]))
}
