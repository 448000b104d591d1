// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Command descriptor blocks (SPC-4 §4.2): the fixed places of the 6, 10, 12, 16 and 32-byte
//! groups.

use super::field::put;
use super::opcode::Opcode;
use crate::iscsi::Cdb;

/// Bytes of a CDB that are kept: all of the 32-byte group.
pub const CDB_LEN_MAX: usize = 32;

/// The group of a CDB, which fixes where its fields stand (SPC-4 §4.2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the standard has no further group with fixed places
pub enum Group {
    /// 6 bytes, group 0.
    Six,
    /// 10 bytes, groups 1 and 2.
    Ten,
    /// 12 bytes, group 5.
    Twelve,
    /// 16 bytes, group 4.
    Sixteen,
    /// Variable length, operation code 7Fh with ADDITIONAL CDB LENGTH 18h.
    ThirtyTwo,
}

impl Group {
    /// The group of an operation code; None for reserved and vendor specific groups.
    #[must_use]
    pub const fn of(opcode: Opcode) -> Option<Self> {
        match opcode.0 >> 5 {
            0 => Some(Self::Six),
            1 | 2 => Some(Self::Ten),
            3 if opcode.0 == Opcode::VARIABLE_LENGTH.0 => Some(Self::ThirtyTwo),
            4 => Some(Self::Sixteen),
            5 => Some(Self::Twelve),
            _ => None,
        }
    }

    /// Length of the CDB, bytes.
    #[must_use]
    pub const fn cdb_len(self) -> u8 {
        match self {
            Self::Six => 6,
            Self::Ten => 10,
            Self::Twelve => 12,
            Self::Sixteen => 16,
            Self::ThirtyTwo => 32,
        }
    }

    /// Where the CONTROL byte stands.
    #[must_use]
    pub const fn control_at(self) -> u8 {
        match self {
            Self::ThirtyTwo => 1,
            other => other.cdb_len() - 1,
        }
    }

    /// Where the byte of RDPROTECT, DPO and FUA stands.
    #[must_use]
    pub const fn flags_at(self) -> u8 {
        match self {
            Self::ThirtyTwo => 10,
            _ => 1,
        }
    }

    /// Where TRANSFER LENGTH starts.
    #[must_use]
    pub const fn length_at(self) -> u16 {
        match self {
            Self::Six => 4,
            Self::Ten => 7,
            Self::Twelve => 6,
            Self::Sixteen => 10,
            Self::ThirtyTwo => 28,
        }
    }

    /// Where LOGICAL BLOCK ADDRESS starts.
    #[must_use]
    pub const fn lba_at(self) -> u16 {
        match self {
            Self::Six => 1,
            Self::ThirtyTwo => 12,
            _ => 2,
        }
    }
}

/// A CDB seen field by field; every accessor is total.
#[derive(Clone, Copy, Debug)]
pub struct CdbView<'a> {
    bytes: &'a [u8; CDB_LEN_MAX],
}

impl<'a> CdbView<'a> {
    /// Sees `cdb`.
    #[must_use]
    pub const fn new(cdb: &'a Cdb) -> Self {
        Self { bytes: &cdb.bytes }
    }

    /// Byte 0.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.bytes[0])
    }

    /// The byte at `at`; zero beyond the CDB.
    #[must_use]
    pub fn byte(&self, at: u8) -> u8 {
        self.bytes.get(usize::from(at)).copied().unwrap_or(0)
    }

    /// True if bit `bit` (0-7) of byte `at` is set.
    #[must_use]
    pub fn bit(&self, at: u8, bit: u8) -> bool {
        self.byte(at) >> (bit & 7) & 1 == 1
    }

    /// The 16-bit field at `at`.
    #[must_use]
    pub fn u16_at(&self, at: u8) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at.saturating_add(1))])
    }

    /// The 32-bit field at `at`.
    #[must_use]
    pub fn u32_at(&self, at: u8) -> u32 {
        u32::from(self.u16_at(at)) << 16 | u32::from(self.u16_at(at.saturating_add(2)))
    }

    /// The 64-bit field at `at`.
    #[must_use]
    pub fn u64_at(&self, at: u8) -> u64 {
        u64::from(self.u32_at(at)) << 32 | u64::from(self.u32_at(at.saturating_add(4)))
    }

    /// SERVICE ACTION: byte 1 bits 4-0, or bytes 8-9 of a variable length CDB. Meaningful only
    /// where the operation code has one.
    #[must_use]
    pub fn service_action(&self) -> u16 {
        match self.opcode() {
            Opcode::VARIABLE_LENGTH => self.u16_at(8),
            _ => u16::from(self.byte(1) & 0x1f),
        }
    }

    /// LOGICAL BLOCK ADDRESS where the group has it (SPC-4 §4.2.5.2); zero for a reserved group.
    #[inline]
    #[must_use]
    pub fn lba(&self) -> u64 {
        let b = self.bytes;
        match Group::of(self.opcode()) {
            Some(Group::Six) => u64::from(u32::from_be_bytes([0, b[1] & 0x1f, b[2], b[3]])),
            Some(Group::Ten | Group::Twelve) => {
                u64::from(u32::from_be_bytes([b[2], b[3], b[4], b[5]]))
            }
            Some(Group::Sixteen) => {
                u64::from_be_bytes([b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9]])
            }
            Some(Group::ThirtyTwo) => self.u64_at(12),
            None => 0,
        }
    }

    /// TRANSFER LENGTH in blocks, where the group has it. In READ(6) and WRITE(6) zero means 256
    /// (SBC-3 §5.10).
    #[inline]
    #[must_use]
    pub fn transfer_length(&self) -> u32 {
        let b = self.bytes;
        match Group::of(self.opcode()) {
            Some(Group::Six) if b[4] == 0 => 256,
            Some(Group::Six) => u32::from(b[4]),
            Some(Group::Ten) => u32::from(u16::from_be_bytes([b[7], b[8]])),
            Some(Group::Twelve) => u32::from_be_bytes([b[6], b[7], b[8], b[9]]),
            Some(Group::Sixteen) => u32::from_be_bytes([b[10], b[11], b[12], b[13]]),
            Some(Group::ThirtyTwo) => self.u32_at(28),
            None => 0,
        }
    }

    /// RDPROTECT, WRPROTECT or VRPROTECT, 0-7; zero in the 6-byte group, which has none.
    #[must_use]
    pub fn protect(&self) -> u8 {
        self.flags() >> 5
    }

    /// DPO: the data will not be used soon.
    #[must_use]
    pub fn dpo(&self) -> bool {
        self.flags() & 0x10 != 0
    }

    /// FUA: from or to stable storage.
    #[inline]
    #[must_use]
    pub fn fua(&self) -> bool {
        self.flags() & 0x08 != 0
    }

    /// BYTCHK of VERIFY, two bits.
    #[must_use]
    pub fn byte_check(&self) -> u8 {
        self.flags() >> 1 & 3
    }

    /// GROUP NUMBER, 0-31.
    #[must_use]
    pub fn group_number(&self) -> u8 {
        let at = match Group::of(self.opcode()) {
            Some(Group::Ten) => 6,
            Some(Group::Twelve) => 10,
            Some(Group::Sixteen) => 14,
            Some(Group::ThirtyTwo) => 6,
            Some(Group::Six) | None => return 0,
        };
        self.byte(at) & 0x1f
    }

    /// CONTROL; bit 2 is NACA.
    #[must_use]
    pub fn control(&self) -> u8 {
        Group::of(self.opcode()).map_or(0, |group| self.byte(group.control_at()))
    }

    /// Bit `bit` of the byte of DPO and FUA; false in the 6-byte group, which has none.
    #[inline]
    #[must_use]
    pub const fn flag(&self, bit: u8) -> bool {
        self.flags() >> (bit & 7) & 1 == 1
    }

    const fn flags(&self) -> u8 {
        match Group::of(self.opcode()) {
            Some(Group::Ten | Group::Twelve | Group::Sixteen) => self.bytes[1],
            Some(Group::ThirtyTwo) => self.bytes[10],
            Some(Group::Six) | None => 0,
        }
    }
}

/// A block command (READ, WRITE, VERIFY, ... of SBC-3 §5) as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCommand {
    /// Fixes the group.
    pub opcode: Opcode,
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub length: u32,
    /// Byte 1 (byte 10 in the 32-byte group): protection, DPO, FUA, BYTCHK, UNMAP and the like.
    pub flags: u8,
    /// GROUP NUMBER, 0-31.
    pub group_number: u8,
}

impl BlockCommand {
    /// Reads a CDB of a group that holds a block command; the 32-byte group is only read, not
    /// written.
    #[must_use]
    pub fn parse(cdb: &Cdb) -> Option<Self> {
        let view = CdbView::new(cdb);
        Group::of(view.opcode())?;
        Some(Self {
            opcode: view.opcode(),
            lba: view.lba(),
            length: view.transfer_length(),
            flags: view.flags(),
            group_number: view.group_number(),
        })
    }

    /// Writes the CDB; None if a value does not fit the group of the operation code.
    #[must_use]
    pub fn emit(&self) -> Option<Cdb> {
        let group = Group::of(self.opcode)?;
        let mut bytes = [0; CDB_LEN_MAX];
        let short = u32::try_from(self.lba);
        match group {
            Group::Six => {
                let lba = short.ok().filter(|lba| *lba < 1 << 21)?;
                put(&mut bytes, 0, lba.to_be_bytes());
                bytes[4] = match self.length {
                    256 => 0,
                    0 => return None,
                    length => u8::try_from(length).ok()?,
                };
            }
            Group::Ten => {
                put(&mut bytes, 2, short.ok()?.to_be_bytes());
                put(&mut bytes, 7, u16::try_from(self.length).ok()?.to_be_bytes());
                bytes[6] = self.group_number & 0x1f;
            }
            Group::Twelve => {
                put(&mut bytes, 2, short.ok()?.to_be_bytes());
                put(&mut bytes, 6, self.length.to_be_bytes());
                bytes[10] = self.group_number & 0x1f;
            }
            Group::Sixteen => {
                put(&mut bytes, 2, self.lba.to_be_bytes());
                put(&mut bytes, 10, self.length.to_be_bytes());
                bytes[14] = self.group_number & 0x1f;
            }
            Group::ThirtyTwo => return None,
        }
        if group != Group::Six {
            bytes[1] = self.flags;
        }
        bytes[0] = self.opcode.0;
        Some(Cdb { bytes, len: 16 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cdb(bytes: &[u8]) -> Cdb {
        Cdb::new(bytes).expect("32 bytes at most")
    }

    #[test]
    fn read_16_vector() {
        let cdb = cdb(&[0x88, 0x18, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 2, 0x05, 0x04]);
        let view = CdbView::new(&cdb);
        assert_eq!(view.lba(), 0x0102_0304_0506_0708);
        assert_eq!(view.transfer_length(), 0x0001_0002);
        assert!(view.dpo() && view.fua());
        assert_eq!((view.protect(), view.group_number(), view.control()), (0, 5, 4));
    }

    #[test]
    fn read_12_and_10_vectors() {
        let twelve = cdb(&[0xa8, 0xe0, 0, 0, 1, 0, 0, 0, 0, 9, 0x1f, 0]);
        let view = CdbView::new(&twelve);
        assert_eq!((view.lba(), view.transfer_length()), (256, 9));
        assert_eq!((view.protect(), view.group_number()), (7, 31));
        let ten = cdb(&[0x2f, 0x06, 0xff, 0xff, 0xff, 0xff, 0, 0x12, 0x34, 0]);
        let view = CdbView::new(&ten);
        assert_eq!((view.lba(), view.transfer_length()), (0xffff_ffff, 0x1234));
        assert_eq!(view.byte_check(), 3);
    }

    #[test]
    fn read_6_of_zero_blocks_means_256() {
        let six = cdb(&[0x08, 0x1f, 0xff, 0xfe, 0, 0]);
        let view = CdbView::new(&six);
        assert_eq!((view.lba(), view.transfer_length()), (0x1f_fffe, 256));
        assert_eq!((view.protect(), view.fua()), (0, false));
    }

    #[test]
    fn variable_length_fields_stand_elsewhere() {
        let mut bytes = [0; 32];
        bytes[0] = 0x7f;
        bytes[1] = 0x04;
        bytes[9] = 0x09;
        bytes[10] = 0x08;
        bytes[19] = 7;
        bytes[31] = 3;
        let long = Cdb { bytes, len: 32 };
        let view = CdbView::new(&long);
        assert_eq!((view.service_action(), view.lba(), view.transfer_length()), (9, 7, 3));
        assert!(view.fua());
        assert_eq!(view.control(), 4);
    }

    proptest! {
        #[test]
        fn accessors_are_total(bytes: [u8; 32], at: u8, bit: u8) {
            let cdb = Cdb { bytes, len: 32 };
            let view = CdbView::new(&cdb);
            let _ = (view.byte(at), view.bit(at, bit), view.u16_at(at), view.u32_at(at));
            let _ = (view.u64_at(at), view.service_action(), view.lba(), view.transfer_length());
            let _ = (view.protect(), view.dpo(), view.byte_check(), view.group_number());
            let _ = (view.control(), BlockCommand::parse(&cdb));
        }

        #[test]
        fn block_command_round_trip(
            which in 0_usize..4, lba: u64, length: u32, flags: u8, group_number in 0_u8..32,
        ) {
            let six = which == 0;
            let opcode = [Opcode::READ_6, Opcode::READ_10, Opcode::READ_12, Opcode::READ_16][which];
            let command = BlockCommand {
                opcode,
                lba: match which { 0 => lba & 0x1f_ffff, 3 => lba, _ => lba & 0xffff_ffff },
                length: match which { 0 => length % 256 + 1, 1 => length & 0xffff, _ => length },
                flags: if six { 0 } else { flags },
                group_number: if six { 0 } else { group_number },
            };
            let cdb = command.emit().expect("values fit the group");
            prop_assert_eq!(BlockCommand::parse(&cdb), Some(command));
        }
    }
}
