// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Size and limits of a disk, and how transfers are cut to them.
//!
//! Adjacent requests are not merged into one command: they would share a status, so that one bad
//! block or reservation fails both, and with it what may be sent again and what FUA promises; reads
//! would end in one buffer with two owners. What it would save is a header and a status for each
//! request, which leave and arrive many in one system call anyway.

use wire::iscsi::Cdb;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::opcode::Opcode;
use wire::scsi::protection::ProtectionType;

use crate::Error;
use crate::Kind;
use crate::limits;

/// Size and limits of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a block.
    pub block: u32,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Most blocks of one READ or WRITE.
    pub transfer_max: u32,
    /// Most blocks of one UNMAP range; zero: there is no UNMAP.
    pub unmap_max: u32,
    /// Blocks of which whole multiples are given back best; zero: the unit does not say.
    pub unmap_granularity: u32,
    /// First block of such a multiple.
    pub unmap_alignment: u32,
    /// Most blocks of one WRITE SAME(16) that may give blocks back; zero: there is none.
    pub same_max: u32,
    /// Most blocks of one COMPARE AND WRITE; zero: there is none.
    pub compare_max: u8,
    /// Blocks that were unmapped read as zero. A disk need not unmap what it is asked to: what
    /// shall be zero is written, with WRITE SAME where `same_max` is not zero.
    pub unmap_zeros: bool,
    /// Bytes before the disk's own alignment to physical blocks is lost.
    pub physical: u32,
    /// Nothing can be written.
    pub read_only: bool,
    /// Writes are acknowledged before they are on stable storage, as far as the unit says.
    pub volatile_cache: bool,
    /// Single writes can be brought to stable storage before they are acknowledged (FUA).
    pub write_through: bool,
    /// Formatted with protection information of this type, which is not asked for here.
    pub protection: Option<ProtectionType>,
}

impl Geometry {
    /// Size, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block as u64)
    }

    /// Most bytes of one command.
    #[must_use]
    pub const fn transfer_bytes(&self) -> u32 {
        self.transfer_max.saturating_mul(self.block)
    }

    /// The limits of Block Limits (SBC-3 §6.6.3) with ours: in whole blocks, at least one.
    pub(crate) fn bounded(block: u32, announced_max: u32, optimal: u32) -> u32 {
        let block = block.max(1);
        let ceiling = (limits::TRANSFER_BYTES_MAX / block).max(1);
        let usual = (limits::TRANSFER_BYTES_DEFAULT / block).max(1);
        let ceiling = if announced_max == 0 { ceiling } else { ceiling.min(announced_max) };
        // An optimum below a burst would only make more commands of it.
        usual.max(optimal).min(ceiling).max(1)
    }

    /// Checks a range of bytes; gives its first block and the number of its blocks.
    ///
    /// # Errors
    /// [`Kind::Unaligned`], [`Kind::Range`].
    pub fn blocks_of(&self, offset: u64, length: u64) -> Result<(u64, u64), Error> {
        let block = u64::from(self.block);
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(Error::new(Kind::Unaligned(self.block)));
        }
        let (end, size) = (offset.saturating_add(length), self.bytes());
        if end > size {
            return Err(Error::new(Kind::Range { end, size }));
        }
        Ok((offset / block, length / block))
    }

    /// Cuts a range of blocks to what one command may transfer: first block and number of each.
    pub fn split(&self, lba: u64, blocks: u64) -> impl Iterator<Item = (u64, u32)> + use<> {
        let max = u64::from(self.transfer_max.max(1));
        let mut done = 0;
        std::iter::from_fn(move || {
            let left = (blocks - done).min(max);
            let count = u32::try_from(left).ok().filter(|count| *count > 0)?;
            let at = lba + done;
            done += left;
            Some((at, count))
        })
    }

    /// READ of `blocks` at `lba`.
    #[must_use]
    pub fn read(&self, lba: u64, blocks: u32) -> Cdb {
        block_command(Opcode::READ_10, Opcode::READ_16, lba, blocks, 0)
    }

    /// WRITE of `blocks` at `lba`.
    #[must_use]
    pub fn write(&self, lba: u64, blocks: u32) -> Cdb {
        block_command(Opcode::WRITE_10, Opcode::WRITE_16, lba, blocks, 0)
    }

    /// WRITE of `blocks` at `lba` that is acknowledged when they are on stable storage (FUA).
    #[must_use]
    pub fn write_durably(&self, lba: u64, blocks: u32) -> Cdb {
        block_command(Opcode::WRITE_10, Opcode::WRITE_16, lba, blocks, FUA)
    }

    /// COMPARE AND WRITE (SBC-3 §5.3): the data for comparison comes first, then what is written if
    /// it is the same. None for more than the disk takes.
    #[must_use]
    pub fn compare_and_write(&self, lba: u64, blocks: u32) -> Option<Cdb> {
        let (opcode, length, flags) = (Opcode::COMPARE_AND_WRITE, blocks, 0);
        let command = BlockCommand { opcode, lba, length, flags, group_number: 0 };
        // No blocks would be no comparison.
        if blocks == 0 || blocks > self.compare_max.into() { None } else { command.emit() }
    }

    /// WRITE SAME(16) (SBC-3 §5.50) that gives nothing back: every block becomes a copy of the one
    /// that goes with the command. None for more than the disk takes.
    #[must_use]
    pub fn write_same_in_place(&self, lba: u64, blocks: u32) -> Option<Cdb> {
        self.write_same_with(lba, blocks, 0)
    }

    /// WRITE SAME(16) with UNMAP (SBC-3 §5.50): every block becomes a copy of the one that goes
    /// with the command. If it is one of zeroes, the disk gives blocks back as far as they read as
    /// zeroes then, and writes the others. None for more than the disk takes.
    #[must_use]
    pub fn write_same(&self, lba: u64, blocks: u32) -> Option<Cdb> {
        self.write_same_with(lba, blocks, UNMAP)
    }

    fn write_same_with(&self, lba: u64, blocks: u32, flags: u8) -> Option<Cdb> {
        let (opcode, length) = (Opcode::WRITE_SAME_16, blocks);
        let command = BlockCommand { opcode, lba, length, flags, group_number: 0 };
        // No blocks would be all up to the end.
        if blocks == 0 || blocks > self.same_max { None } else { command.emit() }
    }
}

/// UNMAP bit of WRITE SAME.
const UNMAP: u8 = 0x08;

/// FUA bit of WRITE.
const FUA: u8 = 0x08;

/// The shorter form where address and length fit it: every disk has it.
fn block_command(short: Opcode, long: Opcode, lba: u64, blocks: u32, flags: u8) -> Cdb {
    let command = |opcode| BlockCommand { opcode, lba, length: blocks, flags, group_number: 0 };
    let short = command(short).emit();
    short.or_else(|| command(long).emit()).expect("any address and length fit 16 bytes")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
pub(crate) mod tests {
    use super::*;

    pub(crate) const DISK: Geometry = Geometry {
        block: 512,
        blocks: 1000,
        transfer_max: 300,
        unmap_max: 0,
        unmap_granularity: 0,
        unmap_alignment: 0,
        same_max: 100,
        compare_max: 8,
        unmap_zeros: false,
        physical: 512,
        read_only: false,
        volatile_cache: true,
        write_through: true,
        protection: None,
    };

    #[test]
    fn ranges_are_cut_to_the_limit() {
        let parts: Vec<_> = DISK.split(10, 700).collect();
        assert_eq!(parts, [(10, 300), (310, 300), (610, 100)]);
        assert_eq!(DISK.split(0, 0).count(), 0);
        assert_eq!(DISK.blocks_of(512, 1024).unwrap(), (1, 2));
        assert!(matches!(DISK.blocks_of(1, 512).unwrap_err().kind(), Kind::Unaligned(512)));
        assert!(matches!(DISK.blocks_of(512, 512_000).unwrap_err().kind(), Kind::Range { .. }));
        assert!(DISK.blocks_of(u64::MAX - 511, 512).is_err());
    }

    #[test]
    fn limits_of_the_unit_and_ours_hold() {
        assert_eq!(Geometry::bounded(512, 0, 0), 2048);
        assert_eq!(Geometry::bounded(512, 64, 0), 64);
        assert_eq!(Geometry::bounded(512, 0, 1 << 30), 8192);
        assert_eq!(Geometry::bounded(4096, 0, 1), 256);
        assert_eq!(Geometry::bounded(0, 0, 0), 1 << 20);
    }

    #[test]
    fn write_same_stays_within_what_the_disk_takes() {
        let cdb = DISK.write_same(1 << 32, 100).unwrap();
        assert_eq!(cdb.bytes[..16], [0x93, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0]);
        assert_eq!([0, 101].map(|blocks| DISK.write_same(0, blocks)), [None, None]);
    }

    #[test]
    fn durable_writes_and_comparisons_are_what_the_standard_says() {
        let cdb = DISK.write_durably(5, 8);
        assert_eq!(cdb.bytes[..10], [0x2a, 8, 0, 0, 0, 5, 0, 0, 8, 0]);
        let cdb = DISK.compare_and_write(5, 8).unwrap();
        assert_eq!(cdb.bytes[..16], [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0]);
        assert_eq!([0, 9].map(|blocks| DISK.compare_and_write(0, blocks)), [None, None]);
        let cdb = DISK.write_same_in_place(0, 100).unwrap();
        assert_eq!(cdb.bytes[..2], [0x93, 0]);
    }

    #[test]
    fn large_addresses_take_the_long_form() {
        assert_eq!(DISK.read(0, 8).bytes[0], Opcode::READ_10.0);
        assert_eq!(DISK.read(1 << 32, 8).bytes[0], Opcode::READ_16.0);
        assert_eq!(DISK.write(0, 65536).bytes[0], Opcode::WRITE_16.0);
    }
}
