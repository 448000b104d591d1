// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The blocks of a unit and the bytes of its store.

use super::LogicalUnit;
use super::UnitError;
use crate::attention::Attention;
use crate::sense;
use crate::sense::Fault;
use core::sync::atomic::Ordering;
use store::Geometry;

/// A run of blocks within a unit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl LogicalUnit {
    /// Logical block length, bytes.
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// Capacity, blocks; at least one. It may be another one a moment later.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// The store has another size: commands from now on see it, and every nexus is told (SBC-3
    /// §4.10: CAPACITY DATA HAS CHANGED). What is left of a last block that is not whole is not
    /// used. False if nothing has changed.
    ///
    /// # Errors
    /// If the store does not hold one block; nothing has changed then.
    pub fn resized(&self) -> Result<bool, UnitError> {
        let bytes = self.store.geometry().bytes;
        let blocks = bytes >> self.block_shift;
        if blocks == 0 {
            return Err(UnitError::Empty { bytes, block: self.block });
        }
        if self.blocks.swap(blocks, Ordering::Relaxed) == blocks {
            return Ok(false);
        }
        self.establish_everywhere(Attention::CapacityChanged);
        Ok(true)
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) const fn can_discard(&self) -> bool {
        self.geometry.discard_granularity.is_some()
    }

    /// ANC_SUP: hosts may set space aside.
    pub(crate) const fn can_anchor(&self) -> bool {
        self.can_discard() && self.geometry.anchors
    }

    /// `bytes` in blocks, rounded down.
    pub(crate) const fn blocks_in(&self, bytes: u32) -> u32 {
        bytes >> self.block_shift
    }

    /// `length` rounded up to whole blocks.
    pub(crate) const fn round_up(&self, length: u64) -> u64 {
        length.next_multiple_of(1 << self.block_shift)
    }

    /// The block of a byte.
    pub(crate) const fn lba_of(&self, offset: u64) -> u64 {
        offset >> self.block_shift
    }

    /// The bytes of `blocks` blocks from `lba` on, if all are there. No block at the very end is
    /// there too (SBC-3 §4.5).
    pub(crate) fn extent(&self, lba: u64, blocks: u64) -> Result<Extent, Fault> {
        let capacity = self.blocks();
        match lba.checked_add(blocks) {
            Some(end) if end <= capacity => {
                Ok(Extent { offset: lba << self.block_shift, length: blocks << self.block_shift })
            }
            _ => {
                let first_bad = lba.max(capacity);
                Err(sense::LBA_OUT_OF_RANGE.with_information(first_bad).into())
            }
        }
    }
}
