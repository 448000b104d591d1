// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks, and the calls that wait.

use std::ffi::c_char;
use std::ffi::c_int;
use std::sync::PoisonError;

use initiator::Durability;
use initiator::Operation;
use initiator::Space;

use super::Destination;
use super::Handle;
use super::c_text;
use super::enter;
use super::memory;
use crate::code::Code;
use crate::code::Failure;
use crate::disk::Disk;
use crate::handles::DISKS;
use crate::handles::OPTIONS;
use crate::limits;
use crate::options::Draft;

/// `struct lunwire_info`. No padding; what is new comes behind.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Info {
    size: u64,
    block: u32,
    physical_block: u32,
    flags: u32,
    transfer_max: u32,
    compare_max: u32,
    lun: u32,
    discard_granularity: u64,
    discard_alignment: u64,
    name: [u8; 128],
    target: [u8; 224],
}

const _: () = assert!(size_of::<Info>() == 8 + 6 * 4 + 2 * 8 + 128 + 224);

const READ_ONLY: u32 = 1;
const WRITE_CACHE: u32 = 2;
const FUA: u32 = 4;
const DISCARD: u32 = 8;
const DISCARD_ZEROES: u32 = 16;
const ZERO: u32 = 32;

/// `LUNWIRE_FUA` and `LUNWIRE_KEEP`.
const WRITE_FUA: u32 = 1;
const ZERO_KEEP: u32 = 2;

impl Info {
    fn of(disk: &Disk) -> Self {
        let found = disk.geometry();
        let flags = [
            (found.read_only, READ_ONLY),
            (found.volatile_cache, WRITE_CACHE),
            (found.write_through, FUA),
            (found.unmap_max > 0, DISCARD),
            (found.unmap_zeros, DISCARD_ZEROES),
            (found.same_max > 0, ZERO),
        ];
        let block = u64::from(found.block);
        Self {
            size: found.bytes(),
            block: found.block,
            physical_block: found.physical,
            flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
            transfer_max: found.transfer_bytes(),
            compare_max: u32::from(found.compare_max).saturating_mul(found.block),
            lun: u32::from(disk.lun()),
            discard_granularity: u64::from(found.unmap_granularity) * block,
            discard_alignment: u64::from(found.unmap_alignment) * block,
            name: c_text(disk.name()),
            target: c_text(disk.target()),
        }
    }
}

/// Those of `flags` that a function knows; others would be promises that are not kept.
pub(super) fn known(flags: u32, known: u32) -> Result<u32, Failure> {
    match flags & !known {
        0 => Ok(flags),
        other => Err(Failure::new(Code::Argument, format!("there is no flag {other:#x} here"))),
    }
}

pub(super) fn durability(flags: u32) -> Durability {
    if flags & WRITE_FUA == 0 { Durability::Cached } else { Durability::Stable }
}

/// The operation of `lunwire_write`.
pub(super) fn write(
    disk: &Disk,
    from: &[u8],
    offset: u64,
    flags: u32,
) -> Result<Operation, Failure> {
    let durability = durability(known(flags, WRITE_FUA)?);
    Ok(Operation::Write { offset, data: disk.copy_of(from)?, durability })
}

pub(super) fn discard(offset: u64, length: u64, flags: u32) -> Result<Operation, Failure> {
    let durability = durability(known(flags, WRITE_FUA)?);
    Ok(Operation::Discard { offset, length, durability })
}

pub(super) fn zero(offset: u64, length: u64, flags: u32) -> Result<Operation, Failure> {
    let flags = known(flags, WRITE_FUA | ZERO_KEEP)?;
    let space = if flags & ZERO_KEEP == 0 { Space::GiveBack } else { Space::Keep };
    Ok(Operation::Zero { offset, length, space, durability: durability(flags) })
}

pub(super) fn compare_and_write(
    disk: &Disk,
    expected: &[u8],
    new: &[u8],
    offset: u64,
) -> Result<Operation, Failure> {
    let (expected, new) = (disk.copy_of(expected)?, disk.copy_of(new)?);
    Ok(Operation::CompareAndWrite { offset, expected, new })
}

/// Whether an operation may have so much data.
pub(super) fn bounded(length: usize) -> Result<(), Failure> {
    if length <= limits::LENGTH_MAX {
        return Ok(());
    }
    let text = format!("one operation has {} bytes at most", limits::LENGTH_MAX);
    Err(Failure::new(Code::TooLong, text))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_connect(
    url: *const c_char,
    options: Handle,
    disk: *mut Handle,
) -> c_int {
    enter(|| {
        // SAFETY: as the caller says; nothing is opened for whom it cannot be given.
        unsafe { memory::put(disk, Handle { id: 0 }) }?;
        // SAFETY: the caller says that it is a text.
        let url = unsafe { memory::text(url, "URL") }?;
        let draft = match options.id {
            0 => Draft::default(),
            id => OPTIONS.get(id)?.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let id = DISKS.insert(Disk::open(url, &draft)?)?;
        // SAFETY: as before.
        unsafe { memory::put(disk, Handle { id }) }.map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_close(disk: Handle) -> c_int {
    enter(|| {
        DISKS.remove(disk.id)?.close();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_info(disk: Handle, info: *mut Info, size: usize) -> c_int {
    enter(|| {
        let found = Info::of(&*DISKS.get(disk.id)?);
        // SAFETY: the caller says that there is place for `size` bytes; `Info` has no padding.
        unsafe { memory::put_start(info, &found, size) }.map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_learn(disk: Handle) -> c_int {
    enter(|| {
        DISKS.get(disk.id)?.remote().learn()?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_read(disk: Handle, to: *mut u8, length: usize, offset: u64) -> c_int {
    enter(|| {
        let disk = DISKS.get(disk.id)?;
        disk.check(offset, length)?;
        // SAFETY: the caller says that there is place; it is filled before this call ends.
        let mut to = unsafe { Destination::new(to, length) }?;
        for (at, length) in disk.pieces(length) {
            let piece = Operation::read(offset + at as u64, length as u64);
            to.fill(at, &disk.carry_out(piece)?);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_write(
    disk: Handle,
    from: *const u8,
    length: usize,
    offset: u64,
    flags: u32,
) -> c_int {
    enter(|| {
        let disk = DISKS.get(disk.id)?;
        disk.check(offset, length)?;
        known(flags, WRITE_FUA)?;
        // SAFETY: the caller says that they are there.
        let from = unsafe { memory::bytes(from, length) }?;
        for (at, length) in disk.pieces(length) {
            let piece = from.get(at..at + length).unwrap_or_default();
            disk.carry_out(write(&disk, piece, offset + at as u64, flags)?)?;
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_flush(disk: Handle) -> c_int {
    enter(|| {
        DISKS.get(disk.id)?.carry_out(Operation::Flush)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_discard(disk: Handle, offset: u64, length: u64, flags: u32) -> c_int {
    enter(|| {
        DISKS.get(disk.id)?.carry_out(discard(offset, length, flags)?)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_zero(disk: Handle, offset: u64, length: u64, flags: u32) -> c_int {
    enter(|| {
        DISKS.get(disk.id)?.carry_out(zero(offset, length, flags)?)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_compare_and_write(
    disk: Handle,
    expected: *const u8,
    new: *const u8,
    length: usize,
    offset: u64,
) -> c_int {
    enter(|| {
        let disk = DISKS.get(disk.id)?;
        bounded(length)?;
        // SAFETY: the caller says that they are there.
        let expected = unsafe { memory::bytes(expected, length) }?;
        // SAFETY: the same.
        let new = unsafe { memory::bytes(new, length) }?;
        disk.carry_out(compare_and_write(&disk, expected, new, offset)?)?;
        Ok(0)
    })
}
