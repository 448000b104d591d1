// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A logical unit as a disk of bytes.

mod state;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;

use buf::Slice;
use wire::iscsi::Cdb;

use crate::Chunks;
use crate::CompletionQueue;
use crate::Data;
use crate::Error;
use crate::Generation;
use crate::Geometry;
use crate::Kind;
use crate::Operation;
use crate::Pending;
use crate::Request;
use crate::Retry;
use crate::Session;
use crate::scsi;
use crate::session::mail::Letter;
use crate::session::mail::Owner;
use crate::session::mail::Ticket;
use crate::survey::Survey;

pub(crate) use self::state::Cache;
pub(crate) use self::state::DiskState;

/// A disk. Ranges are bytes and made of whole blocks; they may be of any length and are cut to what
/// the unit takes. Calls from several threads go side by side.
///
/// There are three ways to have an [`Operation`] carried out, and all may be mixed:
///
/// - calls that wait ([`Disk::read_at`], [`Disk::write_at`], [`Disk::flush`] and so on);
/// - [`Disk::start`] gives a [`Transfer`], which is a future and can be waited for;
/// - [`Disk::submit`] has the end told to a [`CompletionQueue`], for whoever has a poll loop.
///
/// Operations that are under way at the same time are carried out in any order.
#[derive(Clone, Debug)]
pub struct Disk {
    session: Session,
    /// Of all clones: whoever flushes may have written by another one.
    state: Arc<DiskState>,
}

impl Disk {
    /// Waits until unit `lun` is ready, and learns its size and limits.
    ///
    /// # Errors
    /// However a command fails; [`Kind::NotADisk`].
    pub fn open(session: &Session, lun: u16) -> Result<Self, Error> {
        let survey = scsi::survey(&mut session.unit(lun))?;
        Ok(Self::new(session, lun, survey.geometry()?, survey.seen()))
    }

    /// As `open`, and waits for nothing.
    #[must_use]
    pub fn begin(session: &Session, lun: u16) -> Opening {
        Opening { session: session.clone(), lun, survey: Survey::default(), asked: None }
    }

    fn new(session: &Session, lun: u16, geometry: Geometry, seen: Generation) -> Self {
        let state = Arc::new(DiskState::new(session.id(), lun, geometry, seen));
        session.mail().send(Letter::Watch(Arc::downgrade(&state)));
        Self { session: session.clone(), state }
    }

    /// Size and limits, as they are known now. The size, and whether there is a volatile cache and
    /// FUA, are asked for when the unit tells that they have changed, or that it was reset, and in
    /// each new session.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.state.inner().geometry
    }

    /// Size, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.geometry().bytes()
    }

    /// Asks for size and limits anew, all of them, and waits for the answer.
    ///
    /// # Errors
    /// As for `open`; [`Kind::Reformatted`].
    pub fn learn(&self) -> Result<Geometry, Error> {
        let survey = scsi::survey(&mut self.session.unit(self.state.lun))?;
        let geometry = survey.geometry()?;
        let news = {
            let mut inner = self.state.inner();
            inner.replace(geometry, survey.seen());
            inner.take_news()
        };
        for (queue, tag, event) in news {
            queue.push(crate::Completion::Event { tag, event });
            queue.raise();
        }
        self.check(&Operation::Flush)
    }

    /// Has what happens to the disk told to `queue`, under `tag`, until the disk or the queue, with
    /// its clones, is dropped.
    pub fn watch(&self, queue: &CompletionQueue, tag: u64) {
        self.state.inner().watchers.push((Arc::downgrade(&queue.0), tag));
    }

    /// What was written until now is being written again: flushes say no longer that some of it may
    /// be lost. Whoever calls this has nothing under way, and keeps what no flush has confirmed.
    pub fn begin_again(&self) {
        self.state.inner().ledger.forget();
    }

    /// The same of what a volatile cache may have held: of what was on stable storage when it ended
    /// flushes still say whether the unit has failed to keep it.
    pub fn begin_again_cached(&self) {
        self.state.inner().ledger.forget_cached();
    }

    /// Whether something was written that no flush has confirmed and that was not durable by itself
    /// (FUA): a volatile cache may have it, or have had it, if the unit has one.
    #[must_use]
    pub fn has_unflushed(&self) -> bool {
        self.state.inner().ledger.has_cached()
    }

    /// Whether something was written that no flush has confirmed, also where the unit has no
    /// volatile cache; it may not have been told of its end yet.
    #[must_use]
    pub fn has_unconfirmed(&self) -> bool {
        self.state.inner().ledger.has_unconfirmed()
    }

    /// Starts an operation; waits for nothing. It goes on when the transfer is dropped.
    ///
    /// # Errors
    /// [`Kind::Unaligned`], [`Kind::Range`], and what [`Operation::CompareAndWrite`] asks too much:
    /// [`Kind::Unsupported`], [`Kind::TooLong`], [`Kind::Uneven`].
    pub fn start(&self, operation: Operation) -> Result<Transfer, Error> {
        let geometry = self.check(&operation)?;
        let disk = Arc::clone(&self.state);
        let letter = |owner| Letter::Operation(disk, geometry, operation, owner);
        Ok(Transfer(self.session.mail().ask(letter)))
    }

    /// Starts an operation, whose end is told to `queue` under `tag`; waits for nothing.
    ///
    /// # Errors
    /// As for `start`; [`Kind::Closed`]. Nothing is told to the queue then.
    pub fn submit(
        &self,
        queue: &CompletionQueue,
        tag: u64,
        operation: Operation,
    ) -> Result<(), Error> {
        let geometry = self.check(&operation)?;
        let owner = Owner::Queue(Arc::clone(&queue.0), tag);
        let letter = Letter::Operation(Arc::clone(&self.state), geometry, operation, owner);
        match self.session.mail().submit(letter) {
            true => Ok(()),
            false => Err(Error::new(Kind::Closed)),
        }
    }

    /// Sends a command of the caller's own to the unit ([`scsi`]); waits for nothing. One that
    /// changes the disk is none of those that `flush` stands for.
    pub fn post(&self, cdb: Cdb, data: Data, retry: Retry) -> Pending {
        self.session.post(Request { lun: self.state.lun, cdb, data, retry })
    }

    /// Reads; waits for nothing.
    ///
    /// # Errors
    /// As for `start`.
    pub fn read(&self, offset: u64, length: u64) -> Result<Transfer, Error> {
        self.start(Operation::read(offset, length))
    }

    /// Writes `data`, which is not copied; waits for nothing.
    ///
    /// # Errors
    /// As for `start`.
    pub fn write(&self, offset: u64, data: &Slice) -> Result<Transfer, Error> {
        self.start(Operation::write(offset, data.clone()))
    }

    /// Fills `to` from `offset` on.
    ///
    /// # Errors
    /// [`Kind::Unaligned`], [`Kind::Range`], or however a command fails.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.read(offset, to.len() as u64)?.wait()?.copy_to(to);
        Ok(())
    }

    /// Writes all of `from` at `offset`.
    ///
    /// # Errors
    /// As for `read_at`.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.carry_out(Operation::write(offset, self.copy(from)))
    }

    /// Brings what was written to stable storage: by all operations that have ended before.
    ///
    /// # Errors
    /// However the command fails. [`Kind::WritesLost`] if the unit may have lost some of them
    /// before, as when its target lost its power meanwhile, or told that it failed to keep them,
    /// also where it writes through; from then on each flush of this disk
    /// and its clones says so, since each may have written what is lost. Open the disk again and
    /// write what was not yet flushed once more.
    pub fn flush(&self) -> Result<(), Error> {
        self.carry_out(Operation::Flush)
    }

    /// Gives blocks back, where the unit can do that: true if it was done.
    ///
    /// # Errors
    /// As for `read_at`.
    pub fn discard(&self, offset: u64, length: u64) -> Result<bool, Error> {
        let done = self.geometry().unmap_max > 0;
        self.carry_out(Operation::discard(offset, length)).map(|()| done)
    }

    /// Writes zeroes; the unit may give the blocks back as long as they read as zeroes.
    ///
    /// # Errors
    /// As for `read_at`.
    pub fn zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.carry_out(Operation::zero(offset, length))
    }

    /// Writes `new` if the disk has `expected` there, as one.
    ///
    /// # Errors
    /// [`Kind::Miscompare`] if it has not; as for `start`; or however the command fails.
    pub fn compare_and_write(&self, offset: u64, expected: &[u8], new: &[u8]) -> Result<(), Error> {
        let [expected, new] = [expected, new].map(|bytes| Slice::from(bytes.to_vec()));
        self.carry_out(Operation::CompareAndWrite { offset, expected, new })
    }

    fn carry_out(&self, operation: Operation) -> Result<(), Error> {
        self.start(operation)?.wait().map(drop)
    }

    /// Whether the operation fits the disk, which is given as it is now.
    fn check(&self, operation: &Operation) -> Result<Geometry, Error> {
        let (geometry, reformatted) = {
            let inner = self.state.inner();
            (inner.geometry, inner.reformatted)
        };
        let failed = |kind| Err(Error::new(kind).at_lun(self.state.lun));
        if let Some(now) = reformatted {
            return failed(Kind::Reformatted { was: geometry.block, now });
        }
        let Some((offset, length)) = operation.range() else { return Ok(geometry) };
        let (_, blocks) = geometry.blocks_of(offset, length)?;
        let Operation::CompareAndWrite { expected, new, .. } = operation else {
            return Ok(geometry);
        };
        let max = u64::from(geometry.compare_max);
        match () {
            () if max == 0 => failed(Kind::Unsupported("COMPARE AND WRITE")),
            () if expected.len() != new.len() => {
                failed(Kind::Uneven { expected: expected.len(), new: new.len() })
            }
            () if blocks > max => failed(Kind::TooLong { blocks, max }),
            () => Ok(geometry),
        }
    }

    /// A copy in a page-aligned buffer, as long as the pool has one.
    fn copy(&self, bytes: &[u8]) -> Slice {
        match self.session.pool().take(bytes.len()) {
            Some(mut buf) => {
                buf.copy_from_slice(bytes);
                buf.freeze()
            }
            None => Slice::from(bytes.to_vec()),
        }
    }
}

/// A disk that is being opened: a future.
#[derive(Debug)]
pub struct Opening {
    session: Session,
    lun: u16,
    survey: Survey,
    /// The command under way.
    asked: Option<Pending>,
}

impl Future for Opening {
    type Output = Result<Disk, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let opening = &mut *self;
        loop {
            if let Some(asked) = &mut opening.asked {
                let Poll::Ready(result) = Pin::new(asked).poll(context) else {
                    return Poll::Pending;
                };
                opening.asked = None;
                if let Err(error) = opening.survey.answer(result) {
                    return Poll::Ready(Err(error));
                }
            }
            let Some((cdb, data)) = opening.survey.question() else {
                let (geometry, seen) = (opening.survey.geometry(), opening.survey.seen());
                let disk =
                    geometry.map(|found| Disk::new(&opening.session, opening.lun, found, seen));
                return Poll::Ready(disk);
            };
            let request = Request { lun: opening.lun, cdb, data, retry: Retry::Always };
            opening.asked = Some(opening.session.post(request));
        }
    }
}

/// An operation under way: wait for it, or poll it as a future. Dropping it does not end it.
#[derive(Debug)]
pub struct Transfer(Ticket);

impl Transfer {
    /// Waits for its end; gives the data of a read.
    ///
    /// # Errors
    /// The first error in the order of the range. All commands have ended then.
    pub fn wait(self) -> Result<Chunks, Error> {
        self.0.wait().map(|ended| ended.data)
    }
}

impl Future for Transfer {
    type Output = Result<Chunks, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map_ok(|ended| ended.data)
    }
}
