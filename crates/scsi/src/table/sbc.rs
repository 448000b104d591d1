// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of a disk (SBC-3 §5).

use super::Entry;
use super::Flag;
use super::Handler;
use crate::sbc::capacity;
use crate::sbc::compare;
use crate::sbc::media;
use crate::sbc::rw;
use crate::sbc::same;
use crate::sbc::start_stop;
use crate::sbc::status;
use crate::sbc::sync;
use crate::sbc::unmap;
use crate::sbc::verify;
use crate::sbc::wipe::format;
use crate::sbc::wipe::sanitize;
use crate::sbc::write_verify;
use crate::spc::persistent::rights::Guard;
use wire::scsi::format as actions;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;

/// Each usage starts at byte 1 and ends with CONTROL. Sorted by operation code.
///
/// READ and WRITE take FUA_NV (byte 1 bit 1), which SBC-4 made obsolete: it asks for less than FUA
/// and is ignored. So is SYNC_NV of SYNCHRONIZE CACHE, and GROUP NUMBER, for there is no grouping
/// function.
pub(super) const COMMANDS: &[Entry] = &[
    Entry::new(Opcode::FORMAT_UNIT, &[0x3f, 0, 0, 0, 0], format::format_unit)
        .with(Flag::Medium)
        .with(Flag::Writes),
    Entry::new(Opcode::READ_6, &[0x1f, 0xff, 0xff, 0xff, 0], rw::read).with(Flag::Medium),
    Entry::new(Opcode::WRITE_6, &[0x1f, 0xff, 0xff, 0xff, 0], rw::write)
        .with(Flag::Medium)
        .with(Flag::Writes),
    Entry::new(Opcode::START_STOP_UNIT, &[0x01, 0, 0, 0xf7, 0], start_stop::start_stop)
        .guarded(Guard::Starts),
    Entry::new(
        Opcode::PREVENT_ALLOW_MEDIUM_REMOVAL,
        &[0, 0, 0, 0x03, 0],
        start_stop::prevent_allow,
    )
    .guarded(Guard::Writes),
    Entry::new(Opcode::READ_CAPACITY_10, &[0, 0, 0, 0, 0, 0, 0, 0, 0], capacity::capacity_10)
        .with(Flag::Medium)
        .guarded(Guard::Open),
    blocks_10(Opcode::READ_10, 0x1a, rw::read).with(Flag::Protect),
    blocks_10(Opcode::WRITE_10, 0x1a, rw::write).with(Flag::Writes).with(Flag::Protect),
    blocks_10(Opcode::WRITE_AND_VERIFY_10, 0x16, write_verify::write_and_verify)
        .with(Flag::Writes)
        .with(Flag::Protect),
    blocks_10(Opcode::VERIFY_10, 0x16, verify::verify).with(Flag::Protect),
    blocks_10(Opcode::PRE_FETCH_10, 0x02, media::pre_fetch),
    blocks_10(Opcode::SYNCHRONIZE_CACHE_10, 0x06, sync::synchronize_cache).guarded(Guard::Writes),
    Entry::new(
        Opcode::READ_DEFECT_DATA_10,
        &[0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0],
        media::defects_10,
    )
    .with(Flag::Medium),
    blocks_10(Opcode::WRITE_SAME_10, 0x18, same::write_same)
        .with(Flag::Writes)
        .with(Flag::Protect)
        .with(Flag::UnmapBit),
    Entry::new(Opcode::UNMAP, &[0x01, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0], unmap::unmap)
        .with(Flag::Medium)
        .with(Flag::Writes)
        .with(Flag::Discard)
        .with(Flag::AnchorBit),
    sanitize(actions::OVERWRITE, 0xa0, sanitize::overwrite),
    sanitize(actions::BLOCK_ERASE, 0xa0, sanitize::block_erase).with(Flag::Discard),
    sanitize(actions::EXIT_FAILURE_MODE, 0x80, sanitize::exit_failure_mode),
    Entry::long(opcode::READ_32, 0x1a, rw::read).with(Flag::Medium),
    Entry::long(opcode::VERIFY_32, 0x16, verify::verify).with(Flag::Medium),
    Entry::long(opcode::WRITE_32, 0x1a, rw::write).with(Flag::Medium).with(Flag::Writes),
    Entry::long(opcode::WRITE_AND_VERIFY_32, 0x16, write_verify::write_and_verify)
        .with(Flag::Medium)
        .with(Flag::Writes),
    Entry::long(opcode::WRITE_SAME_32, 0x19, same::write_same)
        .with(Flag::Medium)
        .with(Flag::Writes)
        .with(Flag::UnmapBit),
    blocks_16(Opcode::READ_16, 0x1a, rw::read).with(Flag::Protect),
    Entry::new(
        Opcode::COMPARE_AND_WRITE,
        &[0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x1f, 0],
        compare::compare_and_write,
    )
    .with(Flag::Medium)
    .with(Flag::Writes)
    .with(Flag::Protect),
    blocks_16(Opcode::WRITE_16, 0x1a, rw::write).with(Flag::Writes).with(Flag::Protect),
    blocks_16(Opcode::ORWRITE_16, 0x1a, compare::or_write).with(Flag::Writes).with(Flag::Protect),
    blocks_16(Opcode::WRITE_AND_VERIFY_16, 0x16, write_verify::write_and_verify)
        .with(Flag::Writes)
        .with(Flag::Protect),
    blocks_16(Opcode::VERIFY_16, 0x16, verify::verify).with(Flag::Protect),
    blocks_16(Opcode::PRE_FETCH_16, 0x02, media::pre_fetch),
    blocks_16(Opcode::SYNCHRONIZE_CACHE_16, 0x06, sync::synchronize_cache).guarded(Guard::Writes),
    blocks_16(Opcode::WRITE_SAME_16, 0x19, same::write_same)
        .with(Flag::Writes)
        .with(Flag::Protect)
        .with(Flag::UnmapBit),
    Entry::new(
        Opcode::WRITE_ATOMIC_16,
        &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, 0x1f, 0],
        rw::write_atomic,
    )
    .with(Flag::Medium)
    .with(Flag::Writes)
    .with(Flag::Protect)
    .with(Flag::Atomic),
    Entry::new(
        Opcode::SERVICE_ACTION_IN_16,
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        capacity::capacity_16,
    )
    .service(opcode::READ_CAPACITY_16)
    .with(Flag::Medium)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::SERVICE_ACTION_IN_16,
        &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        status::get_lba_status,
    )
    .service(opcode::GET_LBA_STATUS_16)
    .with(Flag::Medium),
    blocks_12(Opcode::READ_12, 0x1a, rw::read).with(Flag::Protect),
    blocks_12(Opcode::WRITE_12, 0x1a, rw::write).with(Flag::Writes).with(Flag::Protect),
    blocks_12(Opcode::WRITE_AND_VERIFY_12, 0x16, write_verify::write_and_verify)
        .with(Flag::Writes)
        .with(Flag::Protect),
    blocks_12(Opcode::VERIFY_12, 0x16, verify::verify).with(Flag::Protect),
    Entry::new(
        Opcode::READ_DEFECT_DATA_12,
        &[0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        media::defects_12,
    )
    .with(Flag::Medium),
];

/// A command for blocks with a CDB of 10 bytes: an address, GROUP NUMBER, a length. `flags`: of
/// byte 1.
const fn blocks_10(opcode: Opcode, flags: u8, handler: Handler) -> Entry {
    let usage = [flags, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    Entry::new(opcode, &usage, handler).with(Flag::Medium)
}

/// As `blocks_10`: an address, a length, GROUP NUMBER.
const fn blocks_12(opcode: Opcode, flags: u8, handler: Handler) -> Entry {
    let usage = [flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    Entry::new(opcode, &usage, handler).with(Flag::Medium)
}

/// As `blocks_12`, with a long address.
const fn blocks_16(opcode: Opcode, flags: u8, handler: Handler) -> Entry {
    let mut usage = [0xff; 15];
    (usage[0], usage[13], usage[14]) = (flags, 0x1f, 0);
    Entry::new(opcode, &usage, handler).with(Flag::Medium)
}

/// `flags`: IMMED and AUSE. ZNR speaks of zones, which there are none of.
const fn sanitize(action: u16, flags: u8, handler: Handler) -> Entry {
    let usage = [flags, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    Entry::new(Opcode::SANITIZE, &usage, handler)
        .service(action)
        .with(Flag::Medium)
        .with(Flag::Writes)
}
