// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store in memory: `memory:SIZE`.

mod pages;

use crate::limits::ZERO_BY_DISCARD_MIN;
use crate::{
    Error, Geometry, Io, IoResult, Op, Outcome, Space, Store, Submitted, Usage, contradiction,
};
use alloc::sync::Arc;
use buf::{PAGE, Region, RegionError, SystemError};
use core::sync::atomic::{AtomicBool, Ordering};
use pages::Pages;

/// Zeroed, sparse memory; all operations are done at once and a Read lends the memory itself.
///
/// The bytes of a Read are those of the store, as they are now: a later write to lent pages goes to
/// new ones ([`Region`]). Gone when the process ends.
#[derive(Debug)]
pub struct Memory {
    region: Arc<Region>,
    /// Pages that were written or set aside since they were discarded last.
    pages: Pages,
    is_held_back: AtomicBool,
}

impl Memory {
    /// A store of `bytes` bytes, a multiple of 512.
    ///
    /// # Errors
    /// The system's error if there is not so much address space.
    pub fn new(bytes: u64) -> Result<Self, SystemError> {
        let region = Region::new(bytes)?;
        Ok(Self { region, pages: Pages::new(bytes), is_held_back: AtomicBool::new(false) })
    }

    fn run(&self, op: &Op) -> Result<Outcome, Error> {
        self.geometry().check(op)?;
        if op.changes() && self.is_held_back.load(Ordering::Relaxed) {
            return Err(Error::Silent);
        }
        match op {
            Op::Read { offset, length } => {
                let length = usize::try_from(*length).map_err(|_| Error::Internal)?;
                let data = self.region.lend(*offset, length)?;
                return Ok(Outcome::Data(data));
            }
            Op::Write { offset, data, .. } => {
                let written = self.region.write_slice(*offset, data);
                // Behind it, and a discard before its own: what both leave there is known.
                self.pages.write(*offset, data.len() as u64);
                written?;
            }
            Op::Flush => {}
            Op::Clear { offset, length, leave } => self.clear(*offset, *length, *leave)?,
            Op::ProvisioningStatus { offset, length } => {
                return Ok(Outcome::ProvisioningStatus(self.pages.run(*offset, *length)));
            }
            Op::CompareAndWrite { .. } | Op::WriteSame { .. } => return Err(Error::Unsupported),
        }
        Ok(Outcome::Done)
    }

    fn clear(&self, offset: u64, length: u64, leave: Space) -> Result<(), Error> {
        match leave {
            Space::Mapped => {
                self.pages.write(offset, length);
                if length < ZERO_BY_DISCARD_MIN {
                    self.region.fill_zero(offset, length)?;
                } else {
                    self.region.discard(offset, length)?;
                }
            }
            Space::Deallocated => {
                self.pages.clear(offset, length);
                let discarded = self.region.discard(offset, length);
                discarded.inspect_err(|_| self.pages.write(offset, length))?;
            }
            Space::Anchored => {
                // Zeroes that are written make the system give the pages now.
                self.region.fill_zero(offset, length)?;
                self.pages.anchor(offset, length);
            }
        }
        Ok(())
    }
}

impl Store for Memory {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.region.len(),
            read_only: false,
            discard_granularity: Some(PAGE_BYTES),
            anchors: self.pages.are_known(),
            volatile_cache: false,
            physical_block: BLOCK_BYTES,
            rotational: false,
        }
    }

    fn usage(&self) -> Option<Usage> {
        let used = self.pages.bytes()?.min(self.region.len());
        Some(Usage { used, available: self.region.len() - used, shared: false })
    }

    fn has_data_in_memory(&self) -> bool {
        // Who does not count may have some.
        self.pages.bytes() != Some(0)
    }

    fn hold_back(&self) {
        self.is_held_back.store(true, Ordering::Relaxed);
    }

    fn let_on(&self) {
        self.is_held_back.store(false, Ordering::Relaxed);
    }

    fn is_held_back(&self) -> bool {
        self.is_held_back.load(Ordering::Relaxed)
    }

    fn expect_read(&self, offset: u64, length: u32) {
        self.region.prefetch_to_lend(offset, length as usize);
    }

    fn expect_write(&self, offset: u64, length: u32) {
        // A block that no cache holds is otherwise waited for by whatever follows the copy.
        self.region.prefetch(offset, length as usize);
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.run(op).into()
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        contradiction()
    }
}

impl From<RegionError> for Error {
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::Full => Self::Busy,
            // The range was checked before: the store contradicts itself.
            RegionError::OutOfRange => Self::Internal,
        }
    }
}

/// What can be written without reading something around it.
const BLOCK_BYTES: u32 = 512;
const PAGE_BYTES: u32 = 4096;
const _: () = assert!(PAGE_BYTES as usize == PAGE);

#[cfg(test)]
mod tests;
