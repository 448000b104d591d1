// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A logical unit as a disk of bytes.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;

use buf::Buf;
use buf::Slice;

use crate::Data;
use crate::Done;
use crate::Error;
use crate::Geometry;
use crate::Kind;
use crate::Pending;
use crate::Request;
use crate::Retry;
use crate::Session;
use crate::scsi;

/// A disk. Ranges are bytes and made of whole blocks; they may be of any length and are cut to what
/// the unit takes. Calls from several threads go side by side.
#[derive(Clone, Debug)]
pub struct Disk {
    session: Session,
    lun: u16,
    geometry: Geometry,
}

impl Disk {
    /// Waits until unit `lun` is ready, and learns its size and limits.
    ///
    /// # Errors
    /// However a command fails; [`Kind::NotADisk`].
    pub fn open(session: &Session, lun: u16) -> Result<Self, Error> {
        let geometry = scsi::geometry(&mut session.unit(lun))?;
        Ok(Self { session: session.clone(), lun, geometry })
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
        Transfer { parts, ended: Vec::new(), expected: None }.wait().map(drop)
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
        Ok(Transfer { parts: parts.collect(), ended: Vec::new(), expected: Some(length) })
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
        Ok(Transfer { parts: parts.collect(), ended: Vec::new(), expected: None })
    }

    /// Brings what was written to stable storage.
    ///
    /// # Errors
    /// However the command fails.
    pub fn flush(&self) -> Result<(), Error> {
        scsi::flush(&mut self.session.unit(self.lun))
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
            scsi::unmap(&mut self.session.unit(self.lun), lba, blocks)?;
        }
        Ok(true)
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
            data.extend(ended?.data);
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
