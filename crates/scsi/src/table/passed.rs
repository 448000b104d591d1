// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of a unit that is a device ([`crate::pass`]): which are answered here, which are
//! refused, and how those that are passed on stand to reservations. What is not here is passed on,
//! too, and conflicts with every reservation of another nexus (SPC-4 §5.12.1): nobody here knows
//! what it does.

use super::Entry;
use super::Flag;
use super::merged;
use super::total;
use crate::pass;
use crate::pass::inquiry;
use crate::pass::removal;
use crate::pass::report;
use crate::spc::alua;
use crate::spc::misc;
use crate::spc::persistent;
use crate::spc::persistent::rights::Guard;
use crate::spc::rsoc;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;
use wire::scsi::persistent as actions;

/// Every bit of a CDB is for the device to judge.
const ANY: [u8; 15] = [0xff; 15];

/// What has no row.
pub(super) static OTHER: Entry = passed(0, Guard::Writes);

const fn passed(opcode: u8, guard: Guard) -> Entry {
    Entry::new(Opcode(opcode), &ANY, pass::command).with(Flag::Passed).guarded(guard)
}

const fn refused(opcode: Opcode) -> Entry {
    Entry::new(opcode, &ANY, pass::refused).with(Flag::Refused).guarded(Guard::Always)
}

const fn informative(opcode: u8) -> Entry {
    passed(opcode, Guard::Unset).with(Flag::Informative)
}

/// Of every device (SPC-4), and those of disks, tapes (SSC) and changers (SMC) that only read:
/// TEST UNIT READY, READ BLOCK LIMITS, READ(6), READ REVERSE(6), MODE SENSE(6), RECEIVE DIAGNOSTIC
/// RESULTS, READ CAPACITY(10), READ(10), VERIFY(10), PRE-FETCH(10) or READ POSITION, READ DEFECT
/// DATA(10), READ BUFFER, READ LONG(10), REPORT DENSITY SUPPORT, LOG SENSE, MODE SENSE(10), READ
/// REVERSE(16), READ(16), READ ATTRIBUTE, VERIFY(16), PRE-FETCH(16), READ CAPACITY(16), GET LBA
/// STATUS, SECURITY PROTOCOL IN, READ(12), VERIFY(12), READ DEFECT DATA(12), READ ELEMENT STATUS.
const COMMON: &[Entry] = &[
    passed(0x00, Guard::Open),
    Entry::new(Opcode::REQUEST_SENSE, &ANY, pass::request_sense)
        .with(Flag::Passed)
        .with(Flag::Informative),
    passed(0x05, Guard::Open),
    passed(0x08, Guard::Reads),
    passed(0x0f, Guard::Reads),
    Entry::new(Opcode::INQUIRY, &ANY, inquiry::inquiry).with(Flag::Passed).with(Flag::Informative),
    Entry::new(Opcode::RESERVE_6, &[0, 0, 0, 0, 0], persistent::reserve).guarded(Guard::Decides),
    Entry::new(Opcode::RELEASE_6, &[0, 0, 0, 0, 0], persistent::release).guarded(Guard::Always),
    passed(0x1a, Guard::Reads),
    passed(0x1c, Guard::Reads),
    Entry::new(Opcode::PREVENT_ALLOW_MEDIUM_REMOVAL, &ANY, removal::prevent_allow)
        .with(Flag::Passed)
        .guarded(Guard::Writes),
    passed(0x25, Guard::Open),
    passed(0x28, Guard::Reads),
    passed(0x2f, Guard::Reads),
    passed(0x34, Guard::Reads),
    passed(0x37, Guard::Reads),
    passed(0x3c, Guard::Reads),
    passed(0x3e, Guard::Reads),
    passed(0x44, Guard::Open),
    passed(0x4d, Guard::Open),
    Entry::new(Opcode::RESERVE_10, &[0; 9], persistent::reserve).guarded(Guard::Decides),
    Entry::new(Opcode::RELEASE_10, &[0; 9], persistent::release).guarded(Guard::Always),
    passed(0x5a, Guard::Reads),
    Entry::reserve_in(actions::READ_KEYS),
    Entry::reserve_in(actions::READ_RESERVATION),
    Entry::reserve_in(actions::REPORT_CAPABILITIES),
    Entry::reserve_in(actions::READ_FULL_STATUS),
    Entry::reserve_out(actions::REGISTER),
    Entry::reserve_out(actions::RESERVE),
    Entry::reserve_out(actions::RELEASE),
    Entry::reserve_out(actions::CLEAR),
    Entry::reserve_out(actions::PREEMPT),
    Entry::reserve_out(actions::PREEMPT_AND_ABORT),
    Entry::reserve_out(actions::REGISTER_AND_IGNORE_EXISTING_KEY),
    Entry::reserve_out(actions::REGISTER_AND_MOVE),
    passed(0x81, Guard::Reads),
    refused(Opcode::THIRD_PARTY_COPY_OUT),
    refused(Opcode::THIRD_PARTY_COPY_IN),
    // ACCESS CONTROL IN and OUT: rights of the one nexus that the device knows.
    refused(Opcode(0x86)),
    refused(Opcode(0x87)),
    passed(0x88, Guard::Reads),
    passed(0x8c, Guard::Reads),
    passed(0x8f, Guard::Reads),
    passed(0x90, Guard::Reads),
    passed(0x9e, Guard::Open).service(opcode::READ_CAPACITY_16),
    passed(0x9e, Guard::Reads).service(opcode::GET_LBA_STATUS_16),
    Entry::new(
        Opcode::REPORT_LUNS,
        &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        misc::report_luns_of_unit,
    )
    .with(Flag::Informative),
    passed(0xa2, Guard::Reads),
    passed(0xa8, Guard::Reads),
    passed(0xaf, Guard::Reads),
    passed(0xb7, Guard::Reads),
    passed(0xb8, Guard::Reads),
];

/// Where the operation codes A3 and A4 are MAINTENANCE IN and OUT, and not SEND KEY and REPORT KEY.
const MAINTENANCE: &[Entry] = &[
    passed(0xa3, Guard::Open).service(opcode::REPORT_IDENTIFYING_INFORMATION),
    Entry::new(
        Opcode::MAINTENANCE_IN,
        &[0xe0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        alua::report_groups,
    )
    .service(opcode::REPORT_TARGET_PORT_GROUPS)
    .guarded(Guard::Open),
    Entry::new(Opcode::MAINTENANCE_IN, &ANY, report::supported_commands)
        .service(opcode::REPORT_SUPPORTED_OPERATION_CODES)
        .guarded(Guard::Reads),
    Entry::new(
        Opcode::MAINTENANCE_IN,
        &[0, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        rsoc::report_task_management,
    )
    .service(opcode::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS)
    .guarded(Guard::Reads),
    passed(0xa3, Guard::Open).service(opcode::REPORT_TIMESTAMP),
    Entry::new(
        Opcode::MAINTENANCE_OUT,
        &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        alua::set_groups,
    )
    .service(opcode::SET_TARGET_PORT_GROUPS)
    .with(Flag::Explicit)
    .guarded(Guard::Writes),
];

/// START STOP UNIT, which on tape drives is LOAD UNLOAD: to load is to wind there, and no start.
const STARTS: &[Entry] = &[passed(0x1b, Guard::Starts)];

/// Of a CD or DVD drive (MMC): READ FORMAT CAPACITIES, READ SUB-CHANNEL, READ TOC/PMA/ATIP, GET
/// CONFIGURATION, GET EVENT STATUS NOTIFICATION, READ DISC INFORMATION, READ TRACK INFORMATION,
/// READ BUFFER CAPACITY, GET PERFORMANCE, READ DISC STRUCTURE, READ CD MSF, SET CD SPEED, MECHANISM
/// STATUS, READ CD.
const MULTIMEDIA: &[Entry] = &[
    passed(0x23, Guard::Open),
    passed(0x42, Guard::Reads),
    passed(0x43, Guard::Open),
    informative(0x46),
    informative(0x4a),
    passed(0x51, Guard::Open),
    passed(0x52, Guard::Open),
    passed(0x5c, Guard::Open),
    passed(0xac, Guard::Open),
    passed(0xad, Guard::Open),
    passed(0xb9, Guard::Reads),
    passed(0xbb, Guard::Open),
    passed(0xbd, Guard::Open),
    passed(0xbe, Guard::Reads),
];

const ANY_SETS: [&[Entry]; 2] = [COMMON, MAINTENANCE];
const DISK_SETS: [&[Entry]; 3] = [COMMON, MAINTENANCE, STARTS];
const OPTICAL_SETS: [&[Entry]; 3] = [COMMON, STARTS, MULTIMEDIA];

/// Of a tape drive, a changer and every kind of device that has no set of its own.
pub(super) static COMMANDS: [Entry; total(&ANY_SETS)] = merged(&ANY_SETS);
/// Of a disk.
pub(super) static DISK: [Entry; total(&DISK_SETS)] = merged(&DISK_SETS);
/// Of a CD or DVD drive.
pub(super) static OPTICAL: [Entry; total(&OPTICAL_SETS)] = merged(&OPTICAL_SETS);
