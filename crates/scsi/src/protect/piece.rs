// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks as they are on the medium, each with what stands beside it.

use super::format::PROTECTION_RECORDS_AT;
use super::record::RECORD_LEN;
use super::record::Record;
use super::terms::BlockPosition;
use super::terms::Terms;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use alloc::vec::Vec;
use store::beside::SIDE;
use wire::scsi::protection::Information;

/// A piece as it is on the medium.
pub(super) struct Piece<'a> {
    /// Which of the command's blocks is its first, from 0.
    pub(super) index: u64,
    pub(super) lba: u64,
    pub(super) block: usize,
    pub(super) data: &'a [u8],
    pub(super) records: &'a [u8],
}

/// A block of a piece.
pub(super) struct Block<'a> {
    pub(super) place: BlockPosition,
    pub(super) data: &'a [u8],
    pub(super) data_crc: u32,
    pub(super) record: Record,
}

impl Piece<'_> {
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        let (records, _) = self.records.as_chunks::<RECORD_LEN>();
        let data = self.data.chunks_exact(self.block);
        data.zip(records).zip(0..).map(|((data, record), at)| Block {
            place: BlockPosition { lba: self.lba + at, index: self.index + at },
            data,
            data_crc: crc::crc32c(data),
            record: Record::parse(*record),
        })
    }

    /// Checks every block, and gives what is beside each.
    pub(super) fn check(&self, terms: &Terms) -> Result<Vec<Information>, Fault> {
        let check = |block: Block<'_>| {
            let found = block.information();
            let checked = terms.check_medium(found, || crc::crc16_t10dif(block.data), block.place);
            checked.map(|()| found).map_err(|wrong| wrong.aborted(block.place.lba))
        };
        self.blocks().map(check).collect()
    }
}

impl Block<'_> {
    pub(super) fn information(&self) -> Information {
        self.record.information(self.data_crc)
    }
}

/// Where what is beside a block stands.
pub(super) const fn records_at(lba: u64) -> u64 {
    SIDE + PROTECTION_RECORDS_AT + lba * RECORD_LEN as u64
}

pub(super) fn block_of(unit: &LogicalUnit) -> usize {
    usize::try_from(unit.block()).unwrap_or(usize::MAX)
}

/// Block `index` of `data`.
pub(super) fn part(data: &[u8], index: u64, block: usize) -> Result<&[u8], Fault> {
    let at = usize::try_from(index).ok().and_then(|index| index.checked_mul(block));
    let rest = at.and_then(|at| data.get(at..)).and_then(|rest| rest.get(..block));
    rest.ok_or_else(|| sense::INTERNAL.into())
}
