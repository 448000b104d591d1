// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A logical unit as a disk of bytes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;

use buf::Buf;
use buf::Slice;

use crate::Data;
use crate::Done;
use crate::Error;
use crate::Geometry;
use crate::Kind;
use crate::Ledger;
use crate::Pending;
use crate::Request;
use crate::Retry;
use crate::Session;
use crate::scsi;
use crate::scsi::Execute;

/// A disk. Ranges are bytes and made of whole blocks; they may be of any length and are cut to what
/// the unit takes. Calls from several threads go side by side.
#[derive(Clone, Debug)]
pub struct Disk {
    session: Session,
    lun: u16,
    geometry: Geometry,
    /// Of all clones: whoever flushes may have written by another one.
    ledger: Arc<Mutex<Ledger>>,
}

impl Disk {
    /// Waits until unit `lun` is ready, and learns its size and limits.
    ///
    /// # Errors
    /// However a command fails; [`Kind::NotADisk`].
    pub fn open(session: &Session, lun: u16) -> Result<Self, Error> {
        let geometry = scsi::geometry(&mut session.unit(lun))?;
        let (session, ledger) = (session.clone(), Arc::default());
        Ok(Self { session, lun, geometry, ledger })
    }

    /// Size and limits.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Size, bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.geometry.bytes()
    }

    /// Fills `to` from `offset` on.
    ///
    /// # Errors
    /// [`Kind::Unaligned`], [`Kind::Range`], or however a command fails.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        let mut rest = to;
        for part in self.read(offset, rest.len() as u64)?.wait()? {
            let (here, after) = rest.split_at_mut(part.len().min(rest.len()));
            here.copy_from_slice(part.get(..here.len()).unwrap_or_default());
            rest = after;
        }
        Ok(())
    }

    /// Writes all of `from` at `offset`.
    ///
    /// # Errors
    /// As for `read_at`.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let (lba, blocks) = self.geometry.blocks_of(offset, from.len() as u64)?;
        let mut parts = Vec::new();
        let mut rest = from;
        for (lba, blocks) in self.geometry.split(lba, blocks) {
            let length = (blocks as usize).saturating_mul(self.geometry.block as usize);
            let (here, after) = rest.split_at(length.min(rest.len()));
            parts.push(self.write_blocks(lba, blocks, self.copy(here)));
            rest = after;
        }
        self.writing(parts).wait().map(drop)
    }

    /// Reads; waits for nothing. The data comes in one buffer for each command.
    ///
    /// # Errors
    /// [`Kind::Unaligned`], [`Kind::Range`].
    pub fn read(&self, offset: u64, length: u64) -> Result<Transfer, Error> {
        let (lba, blocks) = self.geometry.blocks_of(offset, length)?;
        let parts = self.geometry.split(lba, blocks).map(|(lba, blocks)| {
            self.session.post(Request {
                lun: self.lun,
                cdb: self.geometry.read(lba, blocks),
                data: Data::In(blocks.saturating_mul(self.geometry.block)),
                retry: Retry::Always,
            })
        });
        let (parts, ended, expected) = (parts.collect(), Vec::new(), Some(length));
        Ok(Transfer { parts, ended, expected, ledger: None })
    }

    /// Writes `data`, which is not copied; waits for nothing.
    ///
    /// # Errors
    /// [`Kind::Unaligned`], [`Kind::Range`].
    pub fn write(&self, offset: u64, data: &Slice) -> Result<Transfer, Error> {
        let (lba, blocks) = self.geometry.blocks_of(offset, data.len() as u64)?;
        let mut at = 0;
        let parts = self.geometry.split(lba, blocks).filter_map(|(lba, blocks)| {
            let length = (blocks as usize).saturating_mul(self.geometry.block as usize);
            let part = data.part(at..at + length)?;
            at += length;
            Some(self.write_blocks(lba, blocks, part))
        });
        Ok(self.writing(parts.collect()))
    }

    /// Brings what was written to stable storage: all transfers that have ended before.
    ///
    /// # Errors
    /// However the command fails. [`Kind::WritesLost`] if the unit may have lost some of them
    /// before, as when its target lost its power meanwhile; from then on each flush of this disk
    /// and its clones says so, since each may have written what is lost. Open the disk again and
    /// write what was not yet flushed once more.
    pub fn flush(&self) -> Result<(), Error> {
        let unit = &mut self.session.unit(self.lun);
        let mark = lock(&self.ledger).mark();
        let generation = scsi::synchronize(unit)?;
        if lock(&self.ledger).flushed(mark, generation) {
            return Ok(());
        }
        // One that writes through had nothing to lose, if it still does.
        if !self.geometry.volatile_cache && !scsi::has_volatile_cache(unit)? {
            lock(&self.ledger).forget();
            return Ok(());
        }
        Err(Error::new(Kind::WritesLost).at_lun(self.lun))
    }

    /// Gives blocks back, where the unit can do that: true if it was done.
    ///
    /// # Errors
    /// As for `read_at`.
    pub fn discard(&self, offset: u64, length: u64) -> Result<bool, Error> {
        let (lba, blocks) = self.geometry.blocks_of(offset, length)?;
        if self.geometry.unmap_max == 0 {
            return Ok(false);
        }
        let bounded = Geometry { transfer_max: self.geometry.unmap_max, ..self.geometry };
        for (lba, blocks) in bounded.split(lba, blocks) {
            let (cdb, list) = scsi::unmap_command(lba, blocks);
            let unit = &mut self.session.unit(self.lun);
            let done = unit.execute(cdb, Data::Out(list), Retry::Always)?;
            lock(&self.ledger).wrote(done.generation);
        }
        Ok(true)
    }

    fn writing(&self, parts: Vec<Pending>) -> Transfer {
        let (ended, ledger) = (Vec::new(), Some(Arc::clone(&self.ledger)));
        Transfer { parts, ended, expected: None, ledger }
    }

    fn write_blocks(&self, lba: u64, blocks: u32, data: Slice) -> Pending {
        self.session.post(Request {
            lun: self.lun,
            cdb: self.geometry.write(lba, blocks),
            data: Data::Out(data),
            retry: Retry::Always,
        })
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

/// The commands of one transfer: wait for them, or poll them as a future. All of them end before
/// the result is there.
#[derive(Debug)]
pub struct Transfer {
    parts: Vec<Pending>,
    ended: Vec<Result<Done, Error>>,
    /// Bytes that must have come.
    expected: Option<u64>,
    /// Of a disk that is written to.
    ledger: Option<Arc<Mutex<Ledger>>>,
}

impl Transfer {
    /// Waits for the end of all; the data of reads, in order.
    ///
    /// # Errors
    /// The first error in the order of the range.
    pub fn wait(mut self) -> Result<Vec<Buf>, Error> {
        let parts = std::mem::take(&mut self.parts);
        self.ended.extend(parts.into_iter().map(Pending::wait));
        self.result()
    }

    fn result(&mut self) -> Result<Vec<Buf>, Error> {
        let mut data = Vec::new();
        for ended in self.ended.drain(..) {
            let done = ended?;
            if let Some(ledger) = &self.ledger {
                lock(ledger).wrote(done.generation);
            }
            data.extend(done.data);
        }
        let received: usize = data.iter().map(|buf| buf.len()).sum();
        match self.expected {
            Some(expected) if expected != received as u64 => Err(Error::new(Kind::Short {
                received: u32::try_from(received).unwrap_or(u32::MAX),
                expected: u32::try_from(expected).unwrap_or(u32::MAX),
            })),
            _ => Ok(data),
        }
    }
}

impl Future for Transfer {
    type Output = Result<Vec<Buf>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let transfer = &mut *self;
        while let Some(first) = transfer.parts.first_mut() {
            match Pin::new(first).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ended) => {
                    transfer.ended.push(ended);
                    transfer.parts.remove(0);
                }
            }
        }
        Poll::Ready(transfer.result())
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
