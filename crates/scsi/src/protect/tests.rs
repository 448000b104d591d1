// SPDX-License-Identifier: Apache-2.0 OR MIT

mod commands;
mod crash;
mod format;
mod hostile;
mod rules;

use crate::testing::Bench;
use crate::testing::Disk;
use crate::testing::codes;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use wire::scsi::Sense;
use wire::scsi::protection::Information;
use wire::scsi::protection::ProtectionType;
use wire::scsi::protection::ProtectionType::{One, Three, Two};

const BLOCK: usize = 512;

/// A command by its name, in the group of 16 or of 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Read,
    Write,
    Verify,
    WriteVerify,
    Same,
    Or,
}

/// The fields of a CDB.
#[derive(Clone, Copy, Debug)]
struct Ask {
    name: Name,
    /// Protection field.
    code: u8,
    /// The rest of its byte.
    flags: u8,
    lba: u64,
    blocks: u32,
    reference: u32,
    application: u16,
    mask: u16,
}

impl Ask {
    fn new(name: Name, code: u8, lba: u64, blocks: u32) -> Self {
        let reference = u32::try_from(lba).expect("small");
        Self { name, code, flags: 0, lba, blocks, reference, application: 0, mask: 0 }
    }

    fn flags(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    /// The 16-byte CDB, or that of 32 bytes for type 2.
    fn cdb(&self, kind: ProtectionType) -> Vec<u8> {
        if kind == Two { self.long() } else { self.short() }
    }

    fn short(&self) -> Vec<u8> {
        let opcode = match self.name {
            Name::Read => 0x88,
            Name::Write => 0x8a,
            Name::Verify => 0x8f,
            Name::WriteVerify => 0x8e,
            Name::Same => 0x93,
            Name::Or => 0x8b,
        };
        let mut cdb = vec![opcode, self.code << 5 | self.flags];
        cdb.extend_from_slice(&self.lba.to_be_bytes());
        cdb.extend_from_slice(&self.blocks.to_be_bytes());
        cdb.resize(16, 0);
        cdb
    }

    fn long(&self) -> Vec<u8> {
        let action = match self.name {
            Name::Read => 0x09,
            Name::Write => 0x0b,
            Name::Verify => 0x0a,
            Name::WriteVerify => 0x0c,
            Name::Same => 0x0d,
            Name::Or => 0x0e,
        };
        let mut cdb = vec![0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0, action];
        cdb.extend_from_slice(&[self.code << 5 | self.flags, 0]);
        cdb.extend_from_slice(&self.lba.to_be_bytes());
        cdb.extend_from_slice(&self.reference.to_be_bytes());
        cdb.extend_from_slice(&self.application.to_be_bytes());
        cdb.extend_from_slice(&self.mask.to_be_bytes());
        cdb.extend_from_slice(&self.blocks.to_be_bytes());
        cdb
    }
}

/// A protected disk and its host.
struct Rig {
    bench: Bench,
    side: Arc<Disk>,
    kind: ProtectionType,
}

impl Rig {
    fn new(kind: ProtectionType) -> Self {
        let (bench, side) = Bench::protected(Some(kind), 512);
        Self { bench, side, kind }
    }

    /// The sense data of a command that sends `out`.
    fn sense(&self, ask: Ask, out: &[u8]) -> Option<Sense> {
        self.bench.sense_out(&ask.cdb(self.kind), out)
    }

    fn codes(&self, ask: Ask, out: &[u8]) -> (u8, u8, u8) {
        codes(self.sense(ask, out))
    }

    /// What a READ gives.
    fn read(&self, code: u8, lba: u64, blocks: u32) -> Vec<u8> {
        self.bench.data(&Ask::new(Name::Read, code, lba, blocks).cdb(self.kind))
    }

    /// What stands beside blocks, without any check.
    fn beside(&self, lba: u64, blocks: u32) -> Vec<Information> {
        let read = self.read(3, lba, blocks);
        read.chunks(BLOCK + 8).map(|pair| Information::at(pair, BLOCK).expect("whole")).collect()
    }

    /// Switches bits of the control page on: byte and bits.
    fn control(&self, byte: usize, bits: u8) {
        let mut page = self.bench.data(&[0x1a, 0x08, 0x0a, 0, 64, 0])[4..].to_vec();
        page[0] &= 0x3f;
        page[byte] |= bits;
        let mut list = vec![0, 0, 0, 0];
        list.extend(page);
        assert_eq!(self.bench.sense_out(&[0x15, 0x10, 0, 0, 16, 0], &list), None);
    }

    fn own_tags(&self) {
        self.control(5, 0x80);
    }
}

fn block(fill: u8) -> Vec<u8> {
    (0..BLOCK).map(|at| fill ^ u8::try_from(at % 251).expect("small")).collect()
}

/// What belongs to a block.
fn right(data: &[u8], lba: u64) -> Information {
    let reference = u32::try_from(lba).expect("small");
    Information { guard: crc::crc16_t10dif(data), application: 0x1234, reference }
}

/// Blocks with what belongs to each.
fn pairs(fill: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let pair = |index: u32| {
        let data = block(fill.wrapping_add(u8::try_from(index % 256).expect("small")));
        pair(&data, right(&data, lba + u64::from(index)))
    };
    (0..blocks).flat_map(pair).collect()
}

fn pair(data: &[u8], information: Information) -> Vec<u8> {
    let mut pair = data.to_vec();
    pair.extend_from_slice(&information.emit());
    pair
}

const GUARD: (u8, u8, u8) = (0xb, 0x10, 1);
const APPLICATION: (u8, u8, u8) = (0xb, 0x10, 2);
const REFERENCE: (u8, u8, u8) = (0xb, 0x10, 3);
const GOOD: (u8, u8, u8) = (0, 0, 0);
const FIELD: (u8, u8, u8) = (5, 0x24, 0);
const OPCODE: (u8, u8, u8) = (5, 0x20, 0);
